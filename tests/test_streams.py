"""Streams: the past as a quadratic, the chunk and a memory of past rows exact."""

import copy
import pickle

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.special import expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge
from sklearn_awsgd._kernels._rows import Rows

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._kernels import _losses, _stream, _stream_dual
from sklearn_awsgd._linear.streams import quadratic as quadratic_module
from sklearn_awsgd._linear.streams.bank import FURTHEST, LASTING_HANDICAP, Bank, Shift
from sklearn_awsgd._linear.streams.calibration import Calibration, Temperature
from sklearn_awsgd._linear.streams.diagonal import (
    SoftmaxStream,
    WideStream,
    rms_eigenvalue,
)
from sklearn_awsgd._linear.streams.learner import (
    StreamLearner,
    WideBank,
    choose_windows,
)
from sklearn_awsgd._linear.streams.narrow import NarrowStream
from sklearn_awsgd._linear.streams.presence import Presence
from sklearn_awsgd._linear.streams.problem import StreamProblem
from sklearn_awsgd._linear.streams.rows import make_rows

LOSSES = {
    "log_loss": _losses.LogLoss(),
    "hinge": _losses.Hinge(1.0),
    "squared_hinge": _losses.SquaredHinge(),
    "modified_huber": _losses.ModifiedHuber(),
    "perceptron": _losses.Hinge(0.0),
    "squared_error": _losses.SquaredError(),
    "huber": _losses.Huber(0.1),
    "epsilon_insensitive": _losses.EpsilonInsensitive(0.1),
    "squared_epsilon_insensitive": _losses.SquaredEpsilonInsensitive(0.1),
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
LAYOUTS = {"dense": np.asarray, "csr": sparse.csr_matrix}
each_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
each_kind = pytest.mark.parametrize("kind", [NarrowStream, WideStream])


def make_data(rng, n=400, d=5, shift=-1.0):
    """Rows and targets -1, +1 of a logistic model."""
    X = rng.standard_normal((n, d))
    y = np.where(rng.random(n) < expit(X @ np.linspace(1, -1, d) + shift), 1.0, -1.0)
    return X, y


def feed(stream, problem, X, y, size, a=None, rows=None):
    """Learn rows in chunks."""
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        chunk = X[part]
        norms2 = np.asarray(
            chunk.multiply(chunk).sum(axis=1)
            if sparse.issparse(chunk)
            else (chunk * chunk).sum(axis=1)
        ).ravel()
        weights = np.ones(len(norms2)) if a is None else a[part]
        stream.learn(problem, chunk, norms2, y[part], weights, weights.sum())
    return stream


def minimise(problem, X, y, a=None):
    """The optimum on all rows, by scipy; twice differentiable losses."""
    a = np.ones(len(y)) if a is None else a
    Xa = np.column_stack([X, np.ones(len(y))])

    def objective(v):
        losses, derivatives = problem.loss(y, Xa @ v)
        penalty = problem.alpha_l2 * a.sum() * np.append(v[:-1], 0)
        return a @ losses + 0.5 * penalty @ v, Xa.T @ (a * derivatives) + penalty

    found = optimize.minimize(
        objective,
        np.zeros(Xa.shape[1]),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 2000},
    )
    return found.x


@each_layout
@pytest.mark.parametrize("size", [1, 7, 60, 400])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_memory_of_all_rows_is_the_refit(weighted, size, layout, rng, monkeypatch):
    X, y = make_data(rng)
    a = rng.uniform(0.5, 2, len(y)) if weighted else None
    monkeypatch.setattr(quadratic_module, "ENOUGH", 1e-14)
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=0.01, memory_size=10_000)
    stream = feed(NarrowStream(X), problem, layout(X), y, size, a)
    stream._settle(problem)
    np.testing.assert_allclose(stream.v, minimise(problem, X, y, a), atol=1e-6)


@each_layout
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("memory_size", [0, 1000])
def test_squared_error_is_ridge_on_all_rows(memory_size, fit_intercept, layout, rng):
    X = rng.standard_normal((300, 4)) * [1, 10, 100, 0.1]
    y = X @ [1, 2, 0.3, -1] + 5 + rng.standard_normal(300)
    problem = StreamProblem.of(
        _losses.SquaredError(), alpha_l2=0.02, memory_size=memory_size
    )
    stream = NarrowStream(X, fit_intercept)
    feed(stream, problem, layout(X), y, 60)
    ridge = Ridge(alpha=0.02 * 300, fit_intercept=fit_intercept).fit(X, y)
    expected = np.append(ridge.coef_, ridge.intercept_)
    np.testing.assert_allclose(stream.v, expected, rtol=1e-7, atol=1e-8)
    assert stream.buffer.n_rows == 0


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_a_learner_that_follows_is_near_one_that_settles(loss, rng, monkeypatch):
    """And the same for the squared error, where every expansion is exact."""
    X, y = make_data(rng, 3000)
    problem = StreamProblem.of(LOSSES[loss], alpha_l2=1e-3, memory_size=100)
    found = []
    for follows in (True, False):
        monkeypatch.setattr(NarrowStream, "_follows", lambda *_, f=follows: f)
        stream = feed(NarrowStream(X, windows=(np.inf, 500.0)), problem, X, y, 200)
        found.append(stream.pasts[1].v)
    atol = 1e-10 if loss == "squared_error" else 0.05 * np.abs(found[1]).max()
    np.testing.assert_allclose(*found, atol=atol)
    # It forgets, so that it is not where the first one is.
    assert np.abs(stream.pasts[0].v - found[1]).max() > 0.01


def test_quadratics_add(rng):
    X = rng.standard_normal((300, 4))
    y = X @ [1, 2, 0.3, -1] + 5 + rng.standard_normal(300)
    problem = StreamProblem.of(_losses.SquaredError(), alpha_l2=0.02)
    first = feed(NarrowStream(X), problem, X[:120], y[:120], 60)
    second = feed(NarrowStream(X), problem, X[120:], y[120:], 60)
    first.merge(problem, second)
    ridge = Ridge(alpha=0.02 * 300).fit(X, y)
    np.testing.assert_allclose(first.v[:-1], ridge.coef_, rtol=1e-7)


@each_kind
@each_layout
def test_merging_is_close_to_one_stream(layout, kind, rng):
    X, y = make_data(rng, 6000)
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=1e-3, memory_size=300)
    parts = [
        feed(kind(X), problem, layout(X[part]), y[part], 200)
        for part in (slice(0, 2500), slice(2500, None))
    ]
    parts[0].merge(problem, parts[1])
    whole = feed(kind(X), problem, layout(X), y, 200)
    narrow = kind is NarrowStream
    expected = 300 if narrow else parts[0].capacity(problem)
    assert parts[0].buffer.n_rows == expected
    np.testing.assert_allclose(parts[0].v, whole.v, atol=0.03)
    np.testing.assert_allclose(whole.v, minimise(problem, X, y), atol=0.08)


@each_kind
@each_layout
@pytest.mark.parametrize("size", [1, 5, 100])
def test_pickling_goes_on_bit_by_bit(size, layout, kind, rng):
    X, y = make_data(rng, 900)
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=1e-3, memory_size=100)
    stream = feed(kind(X), problem, layout(X[:600]), y[:600], size)
    other = pickle.loads(pickle.dumps(stream))
    for learner in (stream, other):
        feed(learner, problem, layout(X[600:]), y[600:], size)
    np.testing.assert_array_equal(stream.v, other.v)
    np.testing.assert_array_equal(
        stream.buffer.scores(stream.v), other.buffer.scores(stream.v)
    )


@each_loss
@each_kind
@pytest.mark.parametrize("memory_size", [0, 50])
def test_every_loss_gets_close_to_its_optimum(memory_size, kind, loss, rng):
    X, y = make_data(rng, 3000, shift=0.0)
    problem = StreamProblem.of(loss, alpha_l2=1e-2, memory_size=memory_size)
    stream = feed(kind(X), problem, X, y, 100)
    Xa = np.column_stack([X, np.ones(len(y))])

    def objective(v):
        return loss(y, Xa @ v)[0].mean() + 0.005 * v[:-1] @ v[:-1]

    start = minimise(problem, X, y)
    best = min(
        objective(start),
        optimize.minimize(objective, start, method="Nelder-Mead").fun,
    )
    # The optimum of the perceptron is a kink at zero, which is rounded.
    margin = 0.05 if loss is LOSSES["perceptron"] else 0.005
    assert objective(stream.v) < 1.05 * best + margin


@each_kind
def test_l1_gives_zeros_where_the_optimum_has_them(kind, rng):
    X, y = make_data(rng, 4000)
    X[:, 2:] = rng.standard_normal((4000, 3))
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l1=0.05, memory_size=200)
    stream = feed(kind(X), problem, X, y, 200)
    assert (stream.v[2:5] == 0).all()
    assert (stream.v[:2] != 0).all()
    feed(stream, problem, X[:3], y[:3], 1)
    assert (stream.v[2:5] == 0).all()


HARD = {
    "separable": lambda X, y, rng: (X + 10 * y[:, None], y),
    "one class": lambda X, y, rng: (X, -np.ones(len(y))),
    "one class at first": lambda X, y, rng: (
        X,
        np.where(np.arange(len(y)) < 500, -1.0, y),
    ),
    "constant columns": lambda X, y, rng: (np.column_stack([X * 0, X * 0 + 3, X]), y),
    "raw scales": lambda X, y, rng: (X * [1e-6, 1e6, 1, 1e3, 1e-3] + 1e3, y),
    "zeros": lambda X, y, rng: (X * 0, y),
    "few rows": lambda X, y, rng: (X[:2], y[:2]),
}


@each_kind
@each_layout
@pytest.mark.parametrize("size", [1, 20, 200])
@pytest.mark.parametrize("alpha", [0.0, 1e-4])
@pytest.mark.parametrize("name", ["log_loss", "hinge", "huber", "squared_error"])
@pytest.mark.parametrize("case", HARD)
def test_hard_streams_stay_finite(case, name, alpha, size, layout, kind, rng):
    X, y = HARD[case](*make_data(rng, 800), rng)
    problem = StreamProblem.of(LOSSES[name], alpha_l2=alpha, memory_size=50)
    stream = feed(kind(X), problem, layout(X), y, size)
    assert np.isfinite(stream.v).all()
    losses = LOSSES[name](y, X @ stream.v[:-1] + stream.v[-1])[0]
    constant = LOSSES[name](y, np.zeros(len(y)))[0]
    if case not in ("raw scales",) or kind is NarrowStream:
        assert losses.mean() <= 1.1 * constant.mean() + 0.1


def test_a_class_that_comes_late_is_believed_as_much_as_it_should(rng):
    """Negatives first, then as many positives as there are in all, then both."""
    X, y = make_data(rng, 8000, shift=-3.0)
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=1e-4, memory_size=100)
    order = np.argsort(y, kind="stable")
    stream = feed(NarrowStream(X), problem, X[order], y[order], 100)
    best = minimise(problem, X, y)

    def loss(v):
        return np.logaddexp(0, -y * (X @ v[:-1] + v[-1])).mean()

    # Half-way between the optimum and a coin.
    assert loss(stream.v) < 0.5 * (loss(best) + np.log(2))


@pytest.mark.parametrize("size", [50, 500])
def test_wide_streams_sorted_by_class_are_better_than_the_shares(size, rng):
    n, d = 3000, 300
    X = rng.standard_normal((n, d))
    y = 2 * X[:, :4].sum(axis=1) + rng.logistic(size=n) > 0
    rows, labels = X[:2000], y[:2000]
    order = np.argsort(labels, kind="stable")
    clf = AWSGDClassifier(random_state=0)
    for start in range(0, 2000, size):
        part = order[start : start + size]
        clf.partial_fit(rows[part], labels[part], classes=[False, True])
    p = clf.predict_proba(X[2000:])[np.arange(1000), y[2000:].astype(int)]
    assert -np.log(p).mean() < 0.95 * np.log(2)


def test_quadratics_of_rows_that_leave_are_above_their_losses(rng):
    stream = WideStream(np.zeros((1, 3)))
    stream.a, score = np.array([1.0, 2.0, 1.0, 3.0]), np.array([-6.0, -1.0, 0.0, 4.0])
    # Of targets +1.
    stream.beta = stream.a * expit(-score)
    curvature = stream._curvature_above(np.arange(4))
    for a, z, beta, h in zip(stream.a, score, stream.beta, curvature, strict=True):
        gap = np.linspace(-20, 20, 401) - z
        quadratic = a * np.logaddexp(0, -z) - beta * gap + h * gap * gap / 2
        above = quadratic - a * np.logaddexp(0, -z - gap)
        assert above.min() > -1e-8
        # And touch them at -z, too.
        touches = a * (np.logaddexp(0, -z) - np.logaddexp(0, z)) + 2 * beta * z
        assert touches + 2 * h * z * z == pytest.approx(0, abs=1e-6)


def test_rows_without_a_second_class_leave_a_bounded_intercept(rng):
    X, _ = make_data(rng, 4000)
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=1e-4, memory_size=100)
    stream = feed(NarrowStream(X), problem, X, -np.ones(4000), 100)
    p = expit(X @ stream.v[:-1] + stream.v[-1])
    assert 0.1 < p.sum() < 1


def drifting(rng, n=12_000, d=6):
    """A logistic model that turns round half-way."""
    X = rng.standard_normal((n, d))
    sign = np.where(np.arange(n) < n // 2, 1, -1)
    return X, np.where(rng.random(n) < expit(2 * sign * X[:, 0]), 1.0, -1.0)


def prequential(stream, problem, X, y, size):
    losses = []
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        v = stream.v
        losses.append(np.logaddexp(0, -y[part] * (X[part] @ v[:-1] + v[-1])).mean())
        feed(stream, problem, X[part], y[part], size)
    return np.array(losses)


@pytest.mark.parametrize("size", [10, 200])
@each_kind
def test_a_bank_follows_drift_and_costs_nothing_without(kind, size, rng):
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=1e-4, memory_size=200)
    windows = np.inf, 1000.0

    def make(X, windows):
        if kind is NarrowStream:
            return NarrowStream(X, True, windows)
        return WideBank(WideStream(X), windows)

    X, y = drifting(rng)
    last = slice(-3000 // size, None)
    plain = prequential(make(X, (np.inf,)), problem, X, y, size)
    bank = prequential(make(X, windows), problem, X, y, size)
    truth = np.logaddexp(0, 2 * y * X[:, 0])[-3000:].mean()
    assert plain[last].mean() > 1.15 * truth
    assert bank[last].mean() < 1.05 * truth
    X, y = make_data(rng, 12_000)
    plain = prequential(make(X, (np.inf,)), problem, X, y, size)
    bank = prequential(make(X, windows), problem, X, y, size)
    assert bank[last].mean() < 1.005 * plain[last].mean()


def test_forgetting_weighs_rows_by_their_age(rng):
    """With a memory of all rows: the optimum of losses with decaying weights."""
    X, y = make_data(rng, 600)
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=0.01, memory_size=1000)
    stream = feed(NarrowStream(X, True, (200.0,)), problem, X, y, 100)
    a = np.exp(-np.repeat(np.arange(5, -1, -1), 100) * 100 / 200)
    np.testing.assert_allclose(stream.v, minimise(problem, X, y, a), atol=0.03)


def test_the_bank_is_soon_heard():
    bank = Bank((np.inf, 100.0))
    assert bank.weights(1) == [1.0]
    assert not bank.is_due(1, 199)
    assert bank.is_due(1, 200)
    for _ in range(1000):
        assert bank.observe([10.0, 20.0], 10, True) == 0
    assert bank.weights(2)[0] > 0.999
    for _ in range(5):
        winner = bank.observe([20.0, 10.0], 10, True)
        if winner:
            break
    assert winner == 1


def test_learners_that_nothing_tells_apart():
    """The first has what the other has to make good, for ever."""
    bank = Bank((np.inf, 100.0))
    for _ in range(5000):
        bank.observe([10.0, 10.0], 10, True)
    np.testing.assert_allclose(bank.behind, [0.0, LASTING_HANDICAP])
    for _ in range(5000):
        bank.observe([10.0, None], 10, True)
    np.testing.assert_allclose(bank.behind, [0.0, FURTHEST])


def test_windows_of_few_and_many_features():
    assert choose_windows("auto", 10, True) == (np.inf, 250, 2500)
    assert choose_windows("auto", 30, True) == (np.inf, 300, 2500)
    assert choose_windows("auto", 100, True) == (np.inf, 500, 2500)
    assert choose_windows("auto", 1000, False) == (np.inf, 5000, 1000)


def test_coupling_is_an_eigenvalue(rng):
    # Ten columns that are nine times themselves, and one alone.
    X = rng.standard_normal((400, 30))
    assert abs(rms_eigenvalue(X) - 1) < 0.1
    nine = np.repeat(X[:, :10], 9, axis=1)
    X = np.hstack([nine, np.zeros((400, 3)), 5 * X[:, 10:20]])
    expected = np.sqrt((10 * 81 + 10) / 100)
    assert abs(rms_eigenvalue(X) - expected) < 0.1
    assert rms_eigenvalue(X[:1]) == rms_eigenvalue(np.zeros((5, 3))) == 0


def softmax_data(rng, n=3000):
    X = rng.standard_normal((n, 4))
    scores = X @ rng.standard_normal((4, 3)) + [0, 1, -1]
    y = np.array([rng.choice(3, p=p) for p in softmax(scores, axis=1)])
    return X, y.astype(np.int32)


@each_layout
@pytest.mark.parametrize("size", [1, 50, 500])
def test_softmax_gets_close_to_the_optimum(size, layout, rng):
    X, y = softmax_data(rng)
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=1e-3, memory_size=300)
    stream = feed(SoftmaxStream(X, 3), problem, layout(X), y, size)
    Xa = np.column_stack([X, np.ones(len(y))])

    def objective(v):
        W = v.reshape(5, 3)
        losses = -log_softmax(Xa @ W, axis=1)[np.arange(len(y)), y]
        return losses.mean() + 0.0005 * (W[:-1] ** 2).sum()

    best = optimize.minimize(objective, np.zeros(15)).fun
    assert objective(stream.w.ravel()) < 1.02 * best
    assert abs(stream.w[-1].mean()) < 1e-12


def test_softmax_with_classes_one_after_the_other(rng):
    X, y = softmax_data(rng)
    order = np.argsort(y, kind="stable")
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=1e-3, memory_size=300)
    stream = feed(SoftmaxStream(X, 3), problem, X[order], y[order], 100)
    assert np.isfinite(stream.w).all()
    feed(stream, problem, X, y, 100)
    accuracy = ((X @ stream.w[:-1] + stream.w[-1]).argmax(axis=1) == y).mean()
    assert accuracy > 0.6


# Kernels and their twins.


@each_loss
@each_layout
@pytest.mark.parametrize("n_columns", [5, 70])
def test_rank_one_steps_and_their_twin(n_columns, layout, loss, rng):
    loss = StreamProblem.of(loss).loss
    y = make_data(rng, 36)[1]
    X = np.column_stack([rng.standard_normal((36, n_columns)), np.ones(36)])
    a, p = rng.uniform(0.5, 2, 36), n_columns + 1
    base = rng.standard_normal((4 * p, p))
    H = base.T @ base / 20
    v, inverse = rng.standard_normal(p), np.linalg.inv(H)
    w = v.copy()
    _stream.rank_one_steps(Rows(layout(X)), loss, y, a, v, inverse)
    for i, x in enumerate(X):
        z, q = x @ w, x @ np.linalg.solve(H, x)

        def gap(u, i=i, z=z, q=q):
            return u - z + q * a[i] * loss(y[i : i + 1], np.array([u]))[1][0]

        reach = 10 + 100 * q * a[i]
        u = optimize.brentq(gap, z - reach, z + reach, xtol=1e-13)
        w = w + np.linalg.solve(H, x) * (u - z) / q
        h = a[i] * loss.second_derivatives(y[i : i + 1], np.array([u]))[0]
        H = H + h * np.outer(x, x)
    np.testing.assert_allclose(v, w, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(inverse, np.linalg.inv(H), rtol=1e-5, atol=1e-7)


@each_layout
@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_dual_steps_and_their_twin(threshold, layout, rng):
    loss = _losses.LogLoss()
    X, y = make_data(rng, 30)
    X = np.column_stack([X, np.ones(30)])
    a, inverse = rng.uniform(0.5, 2, 30), rng.uniform(0.5, 2, 6)
    order = rng.integers(0, 30, 100)
    beta, theta, w = np.zeros(30), np.zeros(6), np.zeros(6)
    _stream_dual.dual_steps(
        Rows(layout(X)), loss, order, y, a, beta, theta, w, inverse, threshold
    )
    b, t = np.zeros(30), np.zeros(6)

    def coefficients(t):
        limit = np.append(np.full(5, threshold), 0)
        return np.sign(t) * np.maximum(np.abs(t) - limit, 0) * inverse

    for i in order:
        z, q = X[i] @ coefficients(t), X[i] @ (inverse * X[i])

        def gap(u, i=i, z=z, q=q):
            return u - z + q * (a[i] * loss(y[i : i + 1], np.array([u]))[1][0] + b[i])

        u = optimize.brentq(gap, z - 200, z + 200, xtol=1e-13)
        b[i] += (u - z) / q
        t += (u - z) / q * X[i]
    np.testing.assert_allclose(beta, b, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(theta, t, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(w, coefficients(t), rtol=1e-6, atol=1e-8)


@each_layout
def test_softmax_steps_and_their_twin(layout, rng):
    X, y = softmax_data(rng, 30)
    X = np.column_stack([X, np.ones(30)])
    a, inverse = rng.uniform(0.5, 2, 30), rng.uniform(0.5, 2, (5, 3))
    inverse[:] = inverse[:, :1]
    order = rng.integers(0, 30, 60)
    beta, theta, w = np.zeros((30, 3)), np.zeros((5, 3)), np.zeros((5, 3))
    _stream_dual.softmax_steps(
        Rows(layout(X)), order, y, a, beta, theta, w, inverse, 0.0
    )
    b, t = np.zeros((30, 3)), np.zeros((5, 3))
    for i in order:
        z, q = X[i] @ (t * inverse), X[i] ** 2 @ inverse

        def gap(u, i=i, z=z, q=q):
            return u - z - q * (a[i] * (np.eye(3)[y[i]] - softmax(u)) - b[i])

        u = optimize.fsolve(gap, z, xtol=1e-12)
        b[i] += (u - z) / q
        t += np.outer(X[i], (u - z) / q)
    np.testing.assert_allclose(beta, b, atol=1e-5)
    np.testing.assert_allclose(w, t * inverse, atol=1e-5)


@each_layout
def test_squares_of_rows_and_their_twin(layout, rng):
    X = np.column_stack([rng.standard_normal((10, 4)), np.ones(10)])
    h, chosen, total = rng.uniform(0, 1, 3), np.array([1, 4, 7]), np.ones(5)
    _stream_dual.add_squared_rows(Rows(layout(X)), chosen, h, total)
    expected = 1 + np.append(h @ X[chosen, :-1] ** 2, 0)
    np.testing.assert_allclose(total, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [WideStream, SoftmaxStream])
def test_leaving_keeps_the_coefficients(kind, rng):
    X, y = softmax_data(rng, 300)
    n_classes = [] if kind is WideStream else [3]
    y = y if n_classes else np.where(y > 0, 1.0, -1.0)
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=1e-3, memory_size=100)
    stream = feed(kind(X, *n_classes), problem, X, y, 100)
    w, strength = stream.w.copy(), stream.diagonal + problem.alpha_l2 * stream.n
    assert (stream.diagonal[:-1] > 0).all()
    np.testing.assert_allclose((stream.theta.T / strength).T[:-1], w[:-1], rtol=1e-9)


@each_layout
def test_rows_come_and_go(layout, rng):
    X = rng.standard_normal((9, 3)) * (rng.random((9, 3)) < 0.7)
    buffer = make_rows(layout(X), True)
    buffer.append(layout(X[:4]))
    buffer.append(layout(X[4:]))
    full = np.column_stack([X, np.ones(9)])
    v, c = rng.standard_normal(4), rng.standard_normal(9)
    np.testing.assert_allclose(buffer.scores(v), full @ v)
    np.testing.assert_allclose(buffer.scores(v, 3), full[3:] @ v)
    np.testing.assert_allclose(buffer.combine(c), c @ full)
    for weights in (c, np.abs(c)):
        total = np.zeros((4, 4))
        buffer.add_gram(weights, total)
        np.testing.assert_allclose(total, (full.T * weights) @ full)
    total = np.zeros((4, 4))
    some = np.array([7, 2])
    buffer.add_gram(c[some], total, some)
    np.testing.assert_allclose(total, (full[some].T * c[some]) @ full[some])
    mean, variance = buffer.moments()
    np.testing.assert_allclose(mean, full.mean(axis=0))
    np.testing.assert_allclose(variance, full.var(axis=0), atol=1e-15)
    order = buffer.keep(np.array([8, 0, 3, 5]))
    assert sorted(order) == [0, 3, 5, 8]
    np.testing.assert_allclose(buffer.scores(v), full[order] @ v)
    other = pickle.loads(pickle.dumps(buffer))
    buffer.extend(other)
    np.testing.assert_allclose(buffer.scores(v), np.tile(full[order] @ v, 2))


def test_calibration_finds_slope_and_intercept(rng):
    scores = rng.standard_normal((20_000, 2)) * 2
    truth = expit(scores * [0.5, 1.0] + [-0.5, 0.0])
    targets = np.where(rng.random(scores.shape) < truth, 1.0, -1.0)
    calibration = Calibration(2)
    for start in range(0, 20_000, 50):
        part = slice(start, start + 50)
        missing = [False, False]
        calibration.observe(scores[part], targets[part], np.ones(50), missing, start)
    np.testing.assert_allclose(
        calibration.parameters, [[0.5, -0.5], [1.0, 0.0]], atol=0.1
    )


def test_temperature_finds_the_factor(rng):
    scores = rng.standard_normal((10_000, 4)) * 2
    codes = np.array([rng.choice(4, p=p) for p in softmax(0.5 * scores, axis=1)])
    temperature = Temperature()
    for start in range(0, 10_000, 50):
        part = slice(start, start + 50)
        temperature.observe(scores[part], codes[part], np.ones(50), [False])
    np.testing.assert_allclose(temperature(1.0), 0.5, atol=0.05)


def test_a_quicker_learner_comes_with_a_surprise():
    """Streams without drift do not pay for it, and it goes when drift is over."""
    windows, rng = (np.inf, 1000.0, 200.0), np.random.default_rng(0)
    bank = Bank(windows, on_demand=True)
    # Where it costs little it begins as soon as there is what to forget.
    assert Bank(windows).is_due(2, 400.0)
    assert not Bank(windows).is_due(2, 399.0)
    assert not Bank(windows).is_due(3, 1e9)
    for _ in range(50):
        bank.observe(50 + rng.standard_normal(1), 100.0, True)
        assert not bank.is_due(2, 5000.0)
    bank.observe([62.0], 100.0, True)
    assert bank.is_due(2, 5000.0)
    bank.observe([50.0, 52.0, 53.0], 100.0, True)
    assert not bank.is_due(2, 5000.0)
    # The second is ahead.
    bank.observe([58.0, 50.0], 100.0, True)
    bank.observe([50.0, 50.0], 100.0, True)
    assert bank.is_due(2, 5000.0)
    assert not bank.is_over(2)
    for _ in range(20):
        bank.observe([50.0, 50.0, 60.0], 100.0, True)
    assert bank.is_over(2)
    assert not bank.is_over(2)


def test_a_shift_finds_the_intercept(rng):
    """Newton steps end where the balance of the rows is that of the scores."""
    problem, shift = StreamProblem.of(_losses.LogLoss()), Shift()
    scores = 2 * rng.standard_normal(20_000)
    y = np.where(rng.random(20_000) < expit(scores + 1.5), 1.0, -1.0)
    a, values, losses = np.ones(500), np.empty((3, 500)), []
    for t, target in chunks(scores, y, 500):
        raw = problem.evaluate(target, t, a, values)
        losses.append((shift.observe(problem, target, t, a, raw), raw))
    assert losses[0][0] == losses[0][1]
    assert sum(own for own, _ in losses) < sum(raw for _, raw in losses) - 500
    np.testing.assert_allclose(shift.value, 1.5, atol=0.2)


def test_a_shift_that_is_not_needed_is_not_used(rng):
    problem, shift = StreamProblem.of(_losses.LogLoss()), Shift()
    scores = 2 * rng.standard_normal(20_000)
    y = np.where(rng.random(20_000) < expit(scores), 1.0, -1.0)
    a, values, used = np.ones(500), np.empty((3, 500)), []
    for t, target in chunks(scores, y, 500):
        shift.observe(problem, target, t, a, problem.evaluate(target, t, a, values))
        used.append(abs(shift.value))
    assert np.mean(used) < 0.03


def test_the_balance_drifts_and_nothing_else_is_forgotten(rng):
    """The direction stays that of all rows, and the intercept follows."""
    n, w = 20_000, np.linspace(1, -1, 5)
    X, shift = rng.standard_normal((n, 5)), np.linspace(-4, 1, n)
    y = np.where(rng.random(n) < expit(X @ w + shift), 1.0, -1.0)
    clf = AWSGDClassifier(random_state=0)
    for part in chunks(X, y, 500):
        clf.partial_fit(*part, classes=[-1, 1])
    np.testing.assert_allclose(clf.intercept_, 1.0, atol=0.6)
    cosine = clf.coef_[0] @ w / np.linalg.norm(clf.coef_) / np.linalg.norm(w)
    assert cosine > 0.98


def test_a_quick_drift_is_followed(rng):
    """A model that turns once within 10,000 rows, of which 2,500 are remembered."""
    n = 10_000
    X, turn = rng.standard_normal((n, 4)), np.exp(2j * np.pi * np.arange(n) / n)
    z = 3 * (turn.real * X[:, 0] + turn.imag * X[:, 1])
    y = np.where(rng.random(n) < expit(z), 1.0, -1.0)
    clf, losses = AWSGDClassifier(random_state=0), []
    for rows, target in chunks(X, y, 250):
        if losses or hasattr(clf, "coef_"):
            score = clf.decision_function(rows)
            losses.append(np.logaddexp(0, -target * score).mean())
        clf.partial_fit(rows, target, classes=[-1, 1])
    ideal = np.logaddexp(0, -y * z).mean()
    assert np.mean(losses[20:]) < ideal + 0.1


def test_the_state_does_not_grow(rng):
    X, y = make_data(rng, 8000)
    learner = StreamLearner(X, 1)
    problem = StreamProblem.of(_losses.LogLoss(), alpha_l2=1e-4, memory_size=100)
    sizes = []
    for start in range(0, 8000, 40):
        part = slice(start, start + 40)
        norms2 = (X[part] ** 2).sum(axis=1)
        learner.learn(problem, X[part], norms2, [y[part]], np.ones(40), 40.0)
        sizes.append(len(pickle.dumps(learner)))
    assert max(sizes[150:]) < 1.1 * max(sizes[80:150])
    assert copy.deepcopy(learner).coefficients().shape == (1, 6)


def chunks(X, y, size):
    for start in range(0, len(y), size):
        yield X[start : start + size], y[start : start + size]


def test_estimators_are_close_to_their_refit(rng, seed):
    X, y = make_data(rng, 4000)
    clf = AWSGDClassifier(random_state=seed)
    for part in chunks(X, y, 250):
        clf.partial_fit(*part, classes=[-1, 1])
    fitted = AWSGDClassifier(random_state=seed, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(clf.coef_, fitted.coef_, atol=0.05)
    assert clf.t_ == 1 + len(y)
    assert set(clf.history_["phase"]) == {"stream"}


RAW = {
    "decades": lambda X: X * np.logspace(-6, 6, X.shape[1]),
    "far from zero": lambda X: X + 1000.0,
    "time": lambda X: np.column_stack([X, 1.7e9 + np.arange(len(X))]),
}


@pytest.mark.parametrize("scale", RAW.values(), ids=RAW)
@pytest.mark.parametrize("size", [1, 60, 400])
@each_layout
def test_raw_scales(layout, size, scale, rng, seed):
    """One column must not keep the others from being learned."""
    X, y = make_data(rng, 1200)
    expected = AWSGDClassifier(alpha=0.0, random_state=seed, tol=1e-8).fit(X, y)
    clf, raw = AWSGDClassifier(alpha=0.0, random_state=seed, memory_size=200), scale(X)
    for part in chunks(layout(raw), y, size):
        clf.partial_fit(*part, classes=[-1, 1])
    error = clf.decision_function(layout(raw)) - expected.decision_function(X)
    assert np.sqrt(np.mean(error**2)) < 0.15


def test_a_stream_goes_on_from_fit(rng, seed):
    """The rows of fit count as if they had come before."""
    X, y = make_data(rng, 6000)
    clf = AWSGDClassifier(random_state=seed).fit(X[:5000], y[:5000])
    clf.partial_fit(X[5000:], y[5000:])
    whole = AWSGDClassifier(random_state=seed, tol=1e-8).fit(X, y)
    alone = AWSGDClassifier(random_state=seed, tol=1e-8).fit(X[5000:], y[5000:])
    error = np.abs(clf.coef_ - whole.coef_).max()
    assert error < 0.2 * np.abs(alone.coef_ - whole.coef_).max()


@each_layout
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_fit_leaves_its_own_curvature(fit_intercept, layout, rng, seed):
    X, y = make_data(rng)
    weights = rng.gamma(1.0, size=len(y))
    rows = np.column_stack([X, np.full(len(y), fit_intercept)])
    settings = {"fit_intercept": fit_intercept, "random_state": seed}
    classifier = AWSGDClassifier(class_weight={1: 3.0}, **settings)
    classifier.fit(layout(X), y, sample_weight=weights)
    positive = classifier.predict_proba(X)[:, 1]
    a = weights / weights.mean() * np.where(y > 0, 3.0, 1.0)
    regressor = AWSGDRegressor(**settings).fit(layout(X), y, sample_weight=weights)
    for model, h in (
        (classifier, a * positive * (1 - positive)),
        (regressor, weights / weights.mean()),
    ):
        ((curvature, v, n),) = model._seeds
        # The descent ends next to where it has looked at the curvature last.
        np.testing.assert_allclose(curvature, rows.T @ (h[:, None] * rows), rtol=1e-6)
        np.testing.assert_allclose(v[:-1], np.ravel(model.coef_))
        assert n == len(y)


def test_weights_are_rows(rng, seed):
    """A weight of three is the row three times, whatever the unit of weights."""
    X, y = make_data(rng, 900)
    weights = rng.choice([1.0, 3.0], len(y))
    again = np.repeat(np.arange(len(y)), weights.astype(int))
    one = AWSGDClassifier(memory_size=10_000, forgetting=0)
    two, three = clone(one), clone(one)
    one.partial_fit(X[:500], y[:500], [-1, 1], weights[:500])
    one.partial_fit(X[500:], y[500:], sample_weight=weights[500:])
    two.partial_fit(X[:500], y[:500], [-1, 1], 7 * weights[:500])
    two.partial_fit(X[500:], y[500:], sample_weight=7 * weights[500:])
    three.partial_fit(X[again], y[again], [-1, 1])
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-9)
    np.testing.assert_allclose(one.coef_, three.coef_, atol=0.01)


def test_merge_needs_estimators_that_match(rng):
    X, y = make_data(rng, 400)
    one = AWSGDClassifier().partial_fit(X, y, classes=[-1, 1])
    with pytest.raises(TypeError, match="partial_fit"):
        one.merge(AWSGDClassifier().fit(X, y))
    with pytest.raises(ValueError, match="features"):
        one.merge(AWSGDClassifier().partial_fit(X[:, :2], y, classes=[-1, 1]))
    other = AWSGDClassifier().partial_fit(X, y, classes=[-1, 1])
    before = pickle.dumps(other)
    one.merge(other)
    assert pickle.dumps(other) == before
    assert one.t_ == 801


def test_merged_regressors_are_ridge(rng):
    X, y = make_data(rng, 400)
    one = AWSGDRegressor(forgetting=0).partial_fit(X[:100], y[:100])
    one.merge(AWSGDRegressor(forgetting=0).partial_fit(X[100:], y[100:]))
    ridge = Ridge(alpha=1e-4 * 400).fit(X, y)
    np.testing.assert_allclose(one.coef_, ridge.coef_, rtol=1e-6)


def test_a_copy_learns_by_itself(rng):
    X, y = make_data(rng, 400)
    clf = AWSGDClassifier().partial_fit(X, y, classes=[-1, 1])
    before = pickle.dumps(clf)
    copy.copy(clf).partial_fit(X, y)
    assert pickle.dumps(clf) == before


def test_memory_is_shown(rng):
    X, y = make_data(rng, 3000)
    clf = AWSGDClassifier(memory_size=200)
    for part in chunks(X, y, 250):
        clf.partial_fit(*part, classes=[-1, 1])
    np.testing.assert_array_equal(clf.sampler_.n_rows_, [200])
    np.testing.assert_allclose(clf.sampler_.probabilities_.sum(), 1)
    shown = clf.sampling_history_
    assert set(shown["group"]) == {-1, 1}
    # What stays has the largest curvature.
    assert shown["level"][shown["draws"] == 3000].min() >= -1
    with pytest.raises(TypeError, match="draws nothing"):
        clf.sampler_.open(None, None, 0, None)


@pytest.mark.parametrize("loss", ["log_loss", "multinomial"])
def test_probabilities_are_calibrated_and_scores_are_not(loss, rng, seed):
    """Wide rows: the optimum for a penalty that stays weak is too sure of itself."""
    X = rng.standard_normal((3000, 300))
    scores = X[:, :3] * 2
    y = np.array([rng.choice(3, p=p) for p in softmax(scores, axis=1)])
    clf = AWSGDClassifier(loss, random_state=seed, forgetting=0)
    losses = []
    for rows, labels in chunks(X, y, 100):
        if hasattr(clf, "coef_"):
            p = clf.predict_proba(rows)
            plain = clf.decision_function(rows)
            q = softmax(plain, axis=1)
            if loss == "log_loss":
                q = expit(plain) / expit(plain).sum(axis=1, keepdims=True)
            own = np.arange(len(labels)), labels
            losses.append([-np.log(r[own]).mean() for r in (p, q)])
        clf.partial_fit(rows, labels, classes=[0, 1, 2])
    calibrated, plain = np.mean(losses[15:], axis=0)
    assert calibrated < 0.9 * plain


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_chunk_calibrates_in_parts(in_parts, rng):
    """The first scores of a chunk are evidence for the others, and it is used at once.

    As far as the model that they are of is not one of far fewer rows.
    """
    scores = rng.standard_normal((1000, 1)) * 2 - 3
    truth = expit(2 * scores + 3)
    targets = np.where(rng.random(scores.shape) < truth, 1.0, -1.0)
    found = []
    for n_learned in (1000, 1_000_000):
        calibration = Calibration(1, in_parts=in_parts)
        calibration.observe(scores, targets, np.ones(1000), [False], n_learned)
        found.append(calibration.parameters[0])
    half, whole = found
    if in_parts:
        assert whole[0] > 1.3
        assert whole[1] > 1.5
        np.testing.assert_allclose(half, 0.5 * (whole + np.array([1, 0])), atol=1e-2)
    else:
        assert whole[0] < 1.1
        np.testing.assert_array_equal(half, whole)


def test_scores_of_few_rows_do_not_calibrate(rng):
    """What a model of less than 250 rows has wrong is not what later ones have."""
    X = rng.standard_normal((500, 20))
    y = rng.random(500) < expit(2 * X[:, 0])
    clf = AWSGDClassifier(random_state=0)
    pending = []
    for rows, labels in chunks(X, y, 50):
        clf.partial_fit(rows, labels, classes=[False, True])
        pending.append(clf._stream.calibration.n_pending)
    assert pending == [0] * 5 + [50, 100, 150, 200, 0]


def test_presence_counts_rows_whatever_the_chunks(rng):
    codes = np.append(rng.permutation(np.arange(150) % 3), np.ones(50, dtype=int))
    for size in (1, 7, 200):
        presence = Presence(3)
        for start in range(0, 200, size):
            missing, _ = presence.observe(codes[start : start + size])
        assert presence.seen == np.bincount(codes).tolist()
        last = [np.flatnonzero(codes == k)[-1] for k in range(3)]
        assert presence.since == (199 - np.array(last)).tolist()
    # Of either other class a quarter of the last 50 rows should have come; and later a
    # fifth of 110 or more.
    assert not missing
    assert presence.observe(np.ones(60, dtype=int))[0]
    assert not presence.observe(np.arange(3))[0]


def test_a_class_is_missing_when_chance_cannot_tell_why():
    presence = Presence(2)
    assert presence.observe(np.zeros(9, dtype=bool)) == (False, True)
    assert presence.observe(np.zeros(1, dtype=bool)) == (False, True)
    # The other class has not begun to come, and here comes its beginning.
    assert presence.observe(np.ones(10, dtype=bool)) == (False, False)
    assert presence.observe(np.array([False, True] * 40)) == (False, True)
    # Both have 50 rows. After 66 more of one, 66 * 50 / 166 of the other should have
    # come since its last: the first number above 20 is that of 67.
    assert presence.observe(np.ones(65, dtype=bool)) == (False, True)
    assert presence.observe(np.ones(1, dtype=bool)) == (True, True)
    assert presence.observe(np.zeros(1, dtype=bool)) == (False, True)
    other = Presence(2)
    other.observe(np.ones(7, dtype=bool))
    presence.merge(other)
    assert presence.seen == [51, 123]
    assert presence.since == [0, 0]


@pytest.mark.parametrize("kind", ["narrow", "small chunks", "wide"])
@pytest.mark.parametrize("last", [-1, 1])
def test_sorted_by_class(kind, last, rng, seed):
    """Neither windows nor calibration follow the class that comes last."""
    d, n = (250 if kind == "wide" else 8), 6000
    X, y = make_data(rng, 2 * n, d)
    order = np.argsort(last * y[:n], kind="stable")
    size = 12 if kind == "small chunks" else 200
    models = [AWSGDClassifier(forgetting=f, random_state=seed) for f in (0, "auto")]
    for clf in models:
        for rows, labels in chunks(X[order], y[order], size):
            clf.partial_fit(rows, labels, classes=[-1, 1])
    plain, auto = models
    scores = plain.decision_function(X[n:])
    # That with the penalty which was given: hardly any row tells which one is best.
    contest = auto._stream.streams[0]
    v = contest.streams[contest.factors.index(1.0)].v
    np.testing.assert_allclose(X[n:] @ v[:-1] + v[-1], scores, atol=0.05)
    for clf in models:
        p = clf.predict_proba(X[n:])[:, 1]
        np.testing.assert_allclose(p, expit(clf.decision_function(X[n:])), atol=0.01)
    best = AWSGDClassifier(random_state=seed).fit(X[:n], y[:n])
    ideal = np.logaddexp(0, -y[n:] * best.decision_function(X[n:])).mean()
    # Half-way between a fit and a coin; a diagonal knows less of rows that have left.
    enough = np.log(2) if kind == "wide" else 0.5 * (ideal + np.log(2))
    for clf in models:
        scores = clf.decision_function(X[n:])
        assert np.logaddexp(0, -y[n:] * scores).mean() < enough


def test_softmax_of_columns_that_move_together(rng, seed):
    """Steps of single rows need enough of them to come near a fit."""
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    X, y = X[order] / 16, y[order]
    clf = AWSGDClassifier("multinomial", random_state=seed)
    for rows, labels in chunks(X[:1200], y[:1200], 100):
        clf.partial_fit(rows, labels, classes=range(10))
    fitted = AWSGDClassifier("multinomial", random_state=seed).fit(X[:1200], y[:1200])
    losses = [
        -np.log(model.predict_proba(X[1200:])[np.arange(597), y[1200:]]).mean()
        for model in (clf, fitted)
    ]
    assert losses[0] < 1.3 * losses[1]


@pytest.mark.parametrize("loss", ["log_loss", "multinomial"])
def test_sorted_by_several_classes(loss, rng, seed):
    X = rng.standard_normal((8000, 6))
    scores = X @ rng.standard_normal((6, 4)) + rng.gumbel(size=(8000, 4))
    y = scores.argmax(axis=1)
    order = np.argsort(y[:6000], kind="stable")
    clf = AWSGDClassifier(loss, random_state=seed)
    for rows, labels in chunks(X[order], y[order], 200):
        clf.partial_fit(rows, labels, classes=range(4))
    p = clf.predict_proba(X[6000:])
    assert -np.log(p[np.arange(2000), y[6000:]]).mean() < np.log(4)


@pytest.mark.parametrize("rows", [1, 20])
def test_weights_that_are_all_zero_are_refused_and_change_nothing(rows, rng, seed):
    """As scikit-learn's SGDClassifier refuses them."""
    X, y = make_data(rng, 300)
    clf = AWSGDClassifier(random_state=seed)
    with pytest.raises(ValueError, match=r"sample_weight is zero .* leave the call"):
        clf.partial_fit(X[:rows], y[:rows], [-1, 1], np.zeros(rows))
    assert not hasattr(clf, "coef_")
    clf.partial_fit(X[:200], y[:200], classes=[-1, 1])
    twin = copy.deepcopy(clf)
    with pytest.raises(ValueError, match="sample_weight is zero"):
        clf.partial_fit(X[:rows], y[:rows], sample_weight=np.zeros(rows))
    for model in (clf, twin):
        model.partial_fit(X[200:], y[200:])
    np.testing.assert_array_equal(clf.coef_, twin.coef_)
    np.testing.assert_array_equal(clf.predict_proba(X), twin.predict_proba(X))


@pytest.mark.parametrize(("n_rows", "is_early"), [(1000, True), (400, False)])
def test_the_first_chunk_calibrates_wide_streams(n_rows, is_early, rng):
    """Its second half does, if enough rows of both classes were before it."""
    X = rng.standard_normal((n_rows, 300))
    y = (X[:, 0] + rng.logistic(size=n_rows) > 0).astype(int)
    clf = AWSGDClassifier(random_state=0).partial_fit(X, y, classes=[0, 1])
    assert clf._stream.calibration.known.any() == is_early
    narrow = AWSGDClassifier(random_state=0).partial_fit(X[:, :5], y, classes=[0, 1])
    assert not narrow._stream.calibration.known.any()
    order = np.argsort(y)
    clf = AWSGDClassifier(random_state=0).partial_fit(
        X[order], y[order], classes=[0, 1]
    )
    assert not clf._stream.calibration.known.any()
