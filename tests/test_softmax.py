"""Softmax regression to the optimum: passes, curvature, certificates, dual steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._kernels._softmax_dual import take_steps

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd._kernels import _softmax_batch
from sklearn_awsgd._linear import blocks as blocks_module
from sklearn_awsgd._linear import softmax_objective, tasks
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd._linear.phases import newton, softmax_dual
from sklearn_awsgd._linear.softmax_objective import (
    ConjugateGradients,
    MeanCurvature,
    SoftmaxObjective,
)
from sklearn_awsgd._linear.softmax_sums import SoftmaxSums
from sklearn_awsgd._linear.sums import MANY_COLUMNS


def make_data(rng, n=200, d=8, n_classes=4, scale=1.0):
    X = rng.standard_normal((n, d))
    scores = scale * X @ rng.standard_normal((d, n_classes))
    codes = np.array([rng.choice(n_classes, p=p) for p in softmax(scores, axis=1)])
    codes[:n_classes] = np.arange(n_classes)
    return X, codes.astype(np.int32)


def make_sums(X, codes, mass=None, n_threads=1):
    rows = Blocks(X, n_threads)
    return SoftmaxSums(rows, codes, codes.max() + 1, mass, Rows(X).squared_norms())


def value_of(clf, X, y, alpha, l1=0.0, mass=None):
    """Return the objective of a fitted model."""
    losses = -log_softmax(X @ clf.coef_.T + clf.intercept_, axis=1)[
        np.arange(len(y)), y
    ]
    W = clf.coef_
    penalty = alpha / 2 * np.sum(W**2) + l1 * np.abs(W).sum()
    return np.average(losses, weights=mass) + penalty


# Kernels and their twins.


@pytest.mark.parametrize("n_rows", [1, 63, 64, 200])
@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_become_residuals(n_rows, scale, weighted, rng):
    scores, b = scale * rng.standard_normal((n_rows, 5)), rng.standard_normal(5)
    codes = rng.integers(0, 5, n_rows).astype(np.int32)
    mass = rng.random(n_rows) if weighted else None
    P = np.full(n_rows, 0.3) if mass is None else mass
    Z = scores + b
    p, spreads, sums = softmax(Z, axis=1), np.empty(n_rows), np.empty(5)
    loss = _softmax_batch.evaluate(scores, b, codes, mass, 0.3, spreads, sums)
    losses = logsumexp(Z, axis=1) - Z[np.arange(n_rows), codes]
    np.testing.assert_allclose(loss, P @ losses, rtol=1e-13)
    expected = P[:, None] * (p - np.eye(5)[codes])
    np.testing.assert_allclose(scores, expected, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(sums, expected.sum(axis=0), rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(spreads, 1 - (p**2).sum(axis=1), atol=1e-14)
    again = Z - b
    _softmax_batch.probabilities(again, b)
    np.testing.assert_allclose(again, p, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moves_times_curvature(dtype, rng):
    moves, w = rng.standard_normal((7, 3)), rng.random(7)
    p = softmax(rng.standard_normal((7, 3)), axis=1)
    full = np.einsum("ij,jk->ijk", p, np.eye(3)) - p[:, :, None] * p[:, None]
    full = w[:, None, None] * (0.75 * full + 0.25 / 2 * np.eye(3))
    expected = np.einsum("ijk,ik->ij", full, moves)
    moves = moves.astype(dtype)
    _softmax_batch.curve(moves, p.astype(dtype), w.astype(dtype), dtype(0.25))
    rtol = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(moves, expected, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("intercepts", [True, False])
def test_dual_steps_and_what_they_keep(layout, intercepts, rng):
    X, codes = make_data(rng, 30)
    n, K = len(codes), 4
    weights, variates = rng.random(n), np.zeros((n, K))
    weights[3] = 0
    coef, b = np.zeros((8, K)), rng.standard_normal(K)
    center, hold = b.copy(), 0.7 * intercepts
    X = layout(X)
    rows = Rows(X)
    norms2 = rows.squared_norms()
    for _ in range(60):
        order = rng.permutation(n)
        take_steps(
            rows, order, codes, weights, norms2, variates, coef, b, 0.5, float(hold)
        )
        np.testing.assert_allclose(0.5 * coef, X.T @ variates, atol=1e-12)
        np.testing.assert_allclose(
            hold * (b - center), hold * variates.sum(axis=0) / (hold or 1), atol=1e-12
        )
    # At the optimum all variates are those of the probabilities.
    p = softmax(X @ coef + b, axis=1)
    expected = weights[:, None] * (np.eye(K)[codes] - p)
    np.testing.assert_allclose(variates, expected, atol=1e-4)


# Curvature.


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("floor", [0.0, 0.5])
def test_conjugate_gradients_solve(floor, fit_intercept, layout, rng, monkeypatch):
    X, codes = make_data(rng)
    sums = make_sums(layout(X), codes)
    V = 0.5 * rng.standard_normal((4, 9))
    V[:, -1] *= fit_intercept
    # Else the pin of a common shift would be felt.
    v = (V - V.mean(axis=0)).ravel()
    objective = SoftmaxObjective(sums, 0.1, fit_intercept)
    here = objective(v)
    sample = sums.sample(v, here.curvatures, 200, rng)
    D = rng.standard_normal((4, 9))
    hessian = sample.hessian(floor)
    np.testing.assert_allclose(
        sample.product(D, floor).ravel(), hessian @ D.ravel(), atol=1e-10
    )
    blocks = hessian.reshape(4, 9, 4, 9)
    mean = np.mean([blocks[k, :, k] for k in range(4)], axis=0)
    if floor == 0:
        # With the mean curvature of a row and a class added to that of each row.
        A = np.column_stack([X, np.ones(len(X))])
        p = softmax(X @ V[:, :-1].T + V[:, -1], axis=1)
        mean += np.mean(p * (1 - p)) * A.T @ A / len(A)
        np.testing.assert_allclose(sample.mean_hessian(floor), mean, atol=1e-12)
    monkeypatch.setattr("sklearn_awsgd._linear.softmax_objective.LEFT_OVER", 1e-9)
    solve = ConjugateGradients(sample, 0.1, fit_intercept, floor)
    expected = np.linalg.lstsq(
        objective._hessian(sample, floor), here.gradient, rcond=None
    )[0]
    found, expected = solve(here.gradient).reshape(4, 9), expected.reshape(4, 9)
    np.testing.assert_allclose(found[:, :-1], expected[:, :-1], atol=1e-5)
    shift = found[:, -1] - expected[:, -1]
    np.testing.assert_allclose(shift, shift[0], atol=1e-5)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_mean_curvature_of_equal_classes(fit_intercept, rng):
    X, codes = make_data(rng)
    sums = make_sums(X, codes)
    v, floor = np.zeros(36), 0.25
    sample = sums.sample(v, sums.evaluate(v)[-1], 200, rng)
    mean = sample.mean_hessian(floor)
    mean[:8, :8] += 0.1 * np.eye(8)
    gradient = rng.standard_normal((4, 9))
    if not fit_intercept:
        gradient[:, -1] = mean[-1, :-1] = mean[:-1, -1] = 0
    found = MeanCurvature(sample, 0.1, fit_intercept, floor)(gradient.ravel())
    expected = np.linalg.solve(mean, gradient.T).T
    np.testing.assert_allclose(found, expected.ravel(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_few_rows_for_each_column(tol, fit_intercept, rng, monkeypatch):
    # Products on sampled rows would save nothing: pairs improve the mean curvature.
    def refuse(*args):
        raise AssertionError("conjugate gradients")

    monkeypatch.setattr(
        "sklearn_awsgd._linear.softmax_objective.ConjugateGradients", refuse
    )
    X, y = make_data(rng, n=500, d=160, n_classes=7, scale=0.2)
    settings = {"alpha": 1e-3, "fit_intercept": fit_intercept}
    clf = AWSGDClassifier("multinomial", tol=tol, random_state=0, **settings).fit(X, y)
    peer = LogisticRegression(
        C=1 / (1e-3 * 500), fit_intercept=fit_intercept, tol=1e-10, max_iter=5000
    ).fit(X, y)
    value, best = value_of(clf, X, y, 1e-3), value_of(peer, X, y, 1e-3)
    assert value <= (1 + tol) * best
    assert value - clf.duality_gap_[0] <= best * (1 + 1e-9)


@pytest.mark.parametrize(("n", "has_draws"), [(1000, False), (5000, True)])
def test_draws_only_where_the_curvature_is_sampled(n, has_draws, rng):
    X, y = make_data(rng, n=n, d=50, n_classes=9, scale=0.3)
    clf = AWSGDClassifier("multinomial", tol=1e-2, random_state=0).fit(X, y)
    assert ("sampling" in clf.history_["phase"]) == has_draws


@pytest.mark.parametrize("seed", [1, 2])
def test_columns_that_a_sample_lacks(seed):
    # Some pixels are set in a row or two, and a sample may have none of them.
    X, y = load_digits(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    clf = AWSGDClassifier("multinomial", tol=1e-3, random_state=seed).fit(X, y)
    peer = LogisticRegression(C=1 / (1e-4 * len(y)), max_iter=300, tol=1e-4).fit(X, y)
    assert value_of(clf, X, y, 1e-4) <= 1.001 * value_of(peer, X, y, 1e-4)


def test_sampled_curvature_is_unbiased(rng):
    X, codes = make_data(rng, n=60, d=2, n_classes=3)
    sums = make_sums(X, codes)
    v = rng.standard_normal(9)
    spreads = sums.evaluate(v)[-1]
    full = sums.sample(v, spreads, 60, rng).hessian(0.0)
    samples = [sums.sample(v, spreads, 20, rng).hessian(0.0) for _ in range(2000)]
    error = np.std(samples, axis=0) / np.sqrt(2000)
    assert (np.abs(np.mean(samples, axis=0) - full) <= 5 * error + 1e-12).all()


# Certificates.


def lowest(X, codes, n_classes, l2, l1, fit_intercept):
    """Return the minimum, each coefficient split in its positive and negative part."""
    n, d = X.shape
    hot = np.eye(n_classes)[codes]

    def objective(u):
        up, down, b = np.split(u, [n_classes * d, 2 * n_classes * d])
        W = (up - down).reshape(n_classes, d)
        Z = X @ W.T + (b if fit_intercept else 0)
        R = (softmax(Z, axis=1) - hot) / n
        value = np.mean(logsumexp(Z, axis=1) - Z[np.arange(n), codes])
        value += l2 / 2 * np.sum(W**2) + l1 * u[: 2 * n_classes * d].sum()
        G = (R.T @ X + l2 * W).ravel()
        return value, np.concatenate([G + l1, l1 - G, R.sum(axis=0) * fit_intercept])

    size = 2 * n_classes * d
    bounds = [(0, None)] * size + [(None, None)] * n_classes
    start = np.zeros(size + n_classes)
    options = {"maxiter": 3000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-10}
    return minimize(objective, start, jac=True, bounds=bounds, options=options).fun


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    n_classes=st.integers(3, 5),
    penalties=st.sampled_from([(0.1, 0.0), (1e-3, 0.0), (0.02, 0.02), (0.0, 0.02)]),
    fit_intercept=st.booleans(),
    scale=st.sampled_from([0.0, 0.1, 2.0]),
)
def test_gaps_bound_the_suboptimality(seed, n_classes, penalties, fit_intercept, scale):
    rng = np.random.default_rng(seed)
    X, codes = make_data(rng, n=40, d=3, n_classes=n_classes)
    l2, l1 = penalties
    F = SoftmaxObjective(make_sums(X, codes), l2, fit_intercept, l1)
    least = lowest(X, codes, n_classes, l2, l1, fit_intercept)
    # The bound is that of all points so far.
    for _ in range(4):
        V = scale * rng.standard_normal((n_classes, 4))
        V[:, -1] *= fit_intercept
        there = F(V.ravel())
        value = there.value + l1 * np.abs(V[:, :-1]).sum()
        assert there.gap >= value - least - 1e-9


@pytest.mark.parametrize("penalty", ["l2", "elasticnet", "l1"])
@pytest.mark.parametrize("d", [3, 150])
def test_fitted_gaps_hold_and_close(penalty, d, seed, rng):
    X, y = make_data(rng, n=300, d=d, scale=2 / np.sqrt(d))
    clf = AWSGDClassifier(
        "multinomial", penalty=penalty, alpha=0.01, l1_ratio=0.5, random_state=seed
    )
    values, gaps = [], []
    for tol in (1e-2, 1e-9):
        clf.set_params(tol=tol).fit(X, y)
        l1 = {"l2": 0, "elasticnet": 0.005, "l1": 0.01}[penalty]
        values.append(value_of(clf, X, y, 0.01 - l1, l1))
        gaps.append(float(clf.duality_gap_[0]))
    assert gaps[0] >= values[0] - values[1] - 1e-12
    assert 0 <= gaps[1] < 1e-3 * values[1]


# Fits.


@pytest.mark.parametrize(
    "kind", ["dense", "float32", "csr", "weighted", "no intercept"]
)
def test_many_parameters_keep_their_tolerance(kind, seed, rng):
    X, y = make_data(rng, n=1500, d=60, n_classes=8, scale=0.4)
    weight = rng.random(1500) if kind == "weighted" else None
    fit_intercept = kind != "no intercept"
    if kind == "float32":
        X = X.astype(np.float32)
    rows = sparse.csr_array(X) if kind == "csr" else X
    peer = LogisticRegression(
        C=1 / (1e-3 * (1500 if weight is None else weight.sum())),
        tol=1e-10,
        max_iter=5000,
        fit_intercept=fit_intercept,
    ).fit(X.astype(np.float64), y, weight)
    least = value_of(peer, X, y, 1e-3, mass=weight)
    for tol in (1e-2, 1e-4):
        clf = AWSGDClassifier(
            "multinomial",
            alpha=1e-3,
            tol=tol,
            fit_intercept=fit_intercept,
            random_state=seed,
        ).fit(rows, y, sample_weight=weight)
        reached = value_of(clf, X, y, 1e-3, mass=weight)
        assert reached <= (1 + tol) * least
        assert clf.duality_gap_[0] >= reached - least - 1e-9


def test_threads_change_no_bit(rng, monkeypatch):
    monkeypatch.setattr(blocks_module, "NUMBERS_IN_BLOCK", 1000)
    monkeypatch.setattr(blocks_module, "FEWEST_IN_BLOCK", 100)
    X, y = make_data(rng, n=1500, d=60, n_classes=8, scale=0.4)
    one, two = (
        AWSGDClassifier("multinomial", n_jobs=n_jobs, random_state=0).fit(X, y)
        for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.intercept_, two.intercept_)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_wide_rows_by_dual_steps(fit_intercept, weighted, seed, rng, monkeypatch):
    monkeypatch.setattr(tasks, "MOST_PARAMETERS", 50)
    taken = []
    steps = softmax_dual.take_steps
    monkeypatch.setattr(
        softmax_dual, "take_steps", lambda *given: taken.append(steps(*given))
    )
    X = sparse.random_array((400, 300), density=0.05, rng=rng, format="csr")
    scores = X @ rng.standard_normal((300, 4))
    y = (4 * scores + rng.gumbel(size=(400, 4))).argmax(axis=1)
    weight = rng.random(400) if weighted else None
    peer = LogisticRegression(
        C=1 / (1e-3 * (400 if weight is None else weight.sum())),
        tol=1e-10,
        max_iter=5000,
        fit_intercept=fit_intercept,
    ).fit(X, y, weight)
    clf = AWSGDClassifier(
        "multinomial", alpha=1e-3, fit_intercept=fit_intercept, random_state=seed
    )
    least = value_of(peer, X, y, 1e-3, mass=weight)
    for tol in (1e-2, 1e-4, 1e-10):
        taken.clear()
        clf.set_params(tol=tol).fit(X, y, sample_weight=weight)
        assert taken
        reached = value_of(clf, X, y, 1e-3, mass=weight)
        assert reached <= (1 + tol) * least + 1e-12
        assert clf.duality_gap_[0] >= reached - least - 1e-9
    np.testing.assert_allclose(clf.coef_, peer.coef_, atol=2e-4)


def test_curvature_of_many_columns_is_renewed_late(monkeypatch):
    """It takes as long as some passes, so fewer of them are worth it."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((500, MANY_COLUMNS)), rng.integers(0, 8, 500)
    X[:, :8] += 3 * np.eye(8)[y]
    numbers = []
    for many in (MANY_COLUMNS, np.inf):
        made = []
        monkeypatch.setattr(newton, "MANY_COLUMNS", many)
        monkeypatch.setattr(
            softmax_objective,
            "MeanCurvature",
            lambda *settings, made=made: (
                made.append(settings) or MeanCurvature(*settings)
            ),
        )
        model = AWSGDClassifier("multinomial", alpha=1e-4, tol=1e-3, random_state=0)
        model.fit(X, y)
        numbers.append(len(made))
        assert model.history_["objective"][-1] < 0.1 * np.log(8)
    assert 1 <= numbers[0] < numbers[1]
