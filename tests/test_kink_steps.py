"""Kinks: dual steps without rounding, and Newton's method with multipliers."""

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import linear_state, stream
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_diabetes
from sklearn.svm import SVC, LinearSVC, LinearSVR
from sklearn_awsgd._kernels._kinks import KinkSteps
from sklearn_awsgd._kernels._losses import EpsilonInsensitive, Hinge
from sklearn_awsgd._kernels._multipliers import smooth_losses, smooth_losses_along
from sklearn_awsgd._kernels._rows import Rows

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._linear.phases import kink_steps
from sklearn_awsgd._linear.phases.multipliers import RowsInPlay
from sklearn_awsgd.sources import IndexedRows

LOSSES = {"hinge": Hinge(1.0), "epsilon": EpsilonInsensitive(0.3), "sum": Hinge(0.0)}
ALPHA, BETA = 0.02, 0.3
each_loss = pytest.mark.parametrize("name", LOSSES)


def rare(n=20_000, d=8):
    """Return rows and labels, a few of a hundred of which are positive."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    z = 2 * X @ rng.standard_normal(d) / np.sqrt(d) - 3
    return X, rng.random(n) < 1 / (1 + np.exp(-z))


class Setup:
    """A small problem whose rows have different norms and masses."""

    def __init__(
        self, name, weighted=True, beta=BETA, form=np.ascontiguousarray, run_length=4
    ):
        rng = np.random.default_rng(1)
        n, d = 80, 4
        self.X = rng.normal(size=(n, d)) * rng.lognormal(0, 0.5, size=(n, 1))
        self.y = np.where(self.X[:, 0] + rng.normal(size=n) > 0.5, 1.0, -1.0)
        if name == "epsilon":
            self.y = self.X[:, 0] + rng.normal(size=n)
        self.P = rng.dirichlet(np.ones(n)) if weighted else np.full(n, 1 / n)
        self.loss, self.state, self.beta = LOSSES[name], linear_state(d), beta
        self.steps = KinkSteps(
            np.arange(n, dtype=np.int32),
            run_length,
            stream(0)[0],
            Rows(form(self.X)),
            self.loss,
            self.y,
            np.sum(self.X**2, axis=1),
            self.state,
            self.P if weighted else None,
            ALPHA,
            beta,
        )

    def conjugates(self, a):
        low, high = self.loss.flat_ends(self.y)
        return np.where(a < 0, a * low, np.where(a > 0, a * high, 0.0))

    def dual(self, a):
        """The dual objective, without the intercept."""
        w = -(self.P * a) @ self.X / ALPHA
        return -self.P @ np.where(a == 0, 0.0, self.conjugates(a)) - ALPHA / 2 * w @ w


@pytest.fixture(autouse=True)
def infinite_ends():
    # Where a loss never rises, an end is infinite and its variate zero.
    with np.errstate(invalid="ignore"):
        yield


@each_loss
def test_the_flat_part(name):
    loss = LOSSES[name]
    y = np.array([1.0, -1.0])
    for end, side in zip(loss.flat_ends(y), (-1, 1)):
        is_there = np.isfinite(end)
        t, y_there = end[is_there], y[is_there]
        assert len(t)
        losses, slopes = loss(y_there, t + side * 0.25)
        assert_allclose(losses, 0.25)
        assert_array_equal(slopes, side)
        assert_array_equal(loss(y_there, t - side * 0.1)[1], 0)


@each_loss
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", [np.ascontiguousarray, sparse.csr_array])
def test_sweeps_raise_the_dual_objective_to_the_optimum(name, weighted, form):
    setup = Setup(name, weighted, beta=None, form=form)
    values, fewest = [0.0], len(setup.y)
    for k in range(1000):
        if k == 500:
            # Some of the rows that were set aside on the way may be needed.
            setup.steps.activate()
        _, value = setup.steps.sweep()
        a = np.array(setup.steps.variates)
        assert_allclose(value, setup.dual(a), atol=1e-12)
        assert (np.abs(a) <= 1).all()
        assert_allclose(setup.state["coef"], -(setup.P * a) @ setup.X / ALPHA)
        values.append(value)
        fewest = min(fewest, setup.steps.n_active)
    assert (np.diff(values) >= -1e-12).all()
    w = setup.state["coef"]
    primal = setup.P @ setup.loss(setup.y, setup.X @ w)[0] + ALPHA / 2 * w @ w
    assert primal - values[-1] <= 1e-4 * max(primal, 1e-5)
    # Rows that were set aside are on the line of their variate.
    aside = np.array(setup.steps.order[setup.steps.n_active :])
    assert name == "sum" or fewest < len(setup.y)
    slopes = setup.loss(setup.y[aside], setup.X[aside] @ w)[1]
    assert_array_equal(a[aside], slopes)


@each_loss
def test_a_step_is_the_maximum_along_its_row(name):
    setup = Setup(name, beta=None)
    setup.steps.sweep()
    before = np.array(setup.steps.variates)
    low, high = setup.loss.flat_ends(setup.y)
    # Sweeps in the order of rows, of which only the first is left.
    only = KinkSteps(
        np.array([7], dtype=np.int32),
        1,
        None,
        Rows(setup.X),
        setup.loss,
        setup.y,
        np.sum(setup.X**2, axis=1),
        {key: value.copy() for key, value in setup.state.items()},
        setup.P,
        ALPHA,
        None,
    )
    np.asarray(only.variates)[:] = before
    only.sweep()
    after = np.array(only.variates)
    assert_array_equal(np.flatnonzero(before != after) == 7, True)

    def along(t):
        a = before.copy()
        a[7] = t
        return -setup.dual(a)

    bounds = (-1.0 * np.isfinite(low[7]), 1.0 * np.isfinite(high[7]))
    best = minimize_scalar(along, bounds=bounds, options={"xatol": 1e-10})
    assert along(after[7]) <= best.fun + 1e-12


@each_loss
@pytest.mark.parametrize("weighted", [False, True])
def test_the_intercept_balances_the_variates(name, weighted):
    setup = Setup(name, weighted)
    for _ in range(2000):
        setup.steps.sweep()
    a = np.array(setup.steps.variates)
    assert abs(setup.P @ a) < 1e-5
    value, mean = setup.steps.dual_point()
    assert_allclose(value, -setup.P @ setup.conjugates(a), atol=1e-5)
    assert_allclose(mean, (setup.P * a) @ setup.X, atol=1e-5)


@each_loss
def test_smooth_losses(name):
    rng = np.random.default_rng(0)
    n, width = 200, 0.4
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    loss, z, c = LOSSES[name], 2 * rng.normal(size=n), np.empty(n)
    ends = loss.flat_ends(y)
    a = rng.uniform(np.where(np.isfinite(ends[0]), -1, 0), np.isfinite(ends[1]))
    mass = rng.dirichlet(np.ones(n))

    def smooth(z):
        # The minimum is on one of the lines, or at a kink.
        s = z + width * a
        values = []
        for u in (s, s - width, s + width, *ends):
            u = np.where(np.isfinite(u), u, s)
            values.append(loss(y, u)[0] + (s - u) ** 2 / (2 * width))
        return np.min(values, axis=0) - width / 2 * a**2

    total, exact, below, above, changes = smooth_losses(ends, mass, a, z, width, c)
    expected = smooth(z)
    assert_allclose(total, mass @ expected)
    assert (expected <= loss(y, z)[0] + 1e-12).all()
    assert_allclose(exact, mass @ loss(y, z)[0])
    assert_allclose(changes, mass @ (c - a) ** 2)
    h = 1e-6
    ahead, behind = (
        smooth_losses(ends, mass, a, z + s * h, width, np.empty(n))[0] for s in (1, -1)
    )
    assert_allclose((ahead - behind) / (2 * h), mass @ c, atol=1e-7)
    conjugates = np.where(c < 0, c * ends[0], np.where(c > 0, c * ends[1], 0.0))
    assert_allclose(below, -(mass * conjugates)[c < 0].sum())
    assert_allclose(above, -(mass * conjugates)[c > 0].sum())


@each_loss
def test_smooth_losses_along_a_step(name):
    rng = np.random.default_rng(0)
    n, width, h = 200, 0.4, 1e-6
    ends = LOSSES[name].flat_ends(np.where(rng.random(n) < 0.5, 1.0, -1.0))
    a = rng.uniform(np.where(np.isfinite(ends[0]), -1, 0), np.isfinite(ends[1]))
    z, moves, mass = rng.normal(size=n), rng.normal(size=n), rng.dirichlet(np.ones(n))

    def along(length):
        return smooth_losses_along(ends, mass, a, z, moves, length, width)

    for length in (0.0, 0.3, 1.0, 4.0):
        c, there = np.empty(n), z + length * moves
        value = smooth_losses(ends, mass, a, there, width, c)[0]
        assert_allclose(along(length), (value, mass @ (c * moves)))
        slope = (along(length + h)[0] - along(length - h)[0]) / (2 * h)
        assert_allclose(slope, along(length)[1], atol=1e-7)


@each_loss
def test_sweeps_of_one_call_are_those_of_several(name):
    once, again = Setup(name), Setup(name)
    for _ in range(3):
        expected = once.steps.sweep()
    assert again.steps.sweep(3) == expected
    assert_array_equal(again.state["coef"], once.state["coef"])
    assert again.steps.n_active == once.steps.n_active


class NoBound:
    """Stands for an objective; keeps the dual points it is told of."""

    def __init__(self):
        self.points = []

    def mix_dual(self, value, mean):
        self.points.append((value, mean))


def task_of(model, X, y):
    """Return the task of a model when Newton's method begins."""
    found = []

    def keep(task, rows, variates):
        found.append(task)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kink_steps, "RowsInPlay", keep)
        patch.setattr(kink_steps, "NEWTON_PASSES", 0)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    return found[0]


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_rows_in_play_with_the_lines_of_all_others(fit_intercept):
    X, y = rare(3000, 4)
    model = AWSGDClassifier("hinge", alpha=1e-3, fit_intercept=fit_intercept)
    task, n = task_of(model, X, y), len(y)
    v = np.append(task.parameters()[:-1], -0.9 if fit_intercept else 0.0)
    z = X @ v[:-1] + v[-1]
    sign = np.where(y, 1.0, -1.0)
    slopes = -sign * (sign * z <= 1)
    near = np.flatnonzero(np.abs(sign * z - 1) < 0.2)
    some, every = (RowsInPlay(task, r, slopes) for r in (near, np.arange(n)))
    width, places, bounds = 0.05, [], []
    for play, rows in ((some, near), (every, np.arange(n))):
        told = NoBound()
        places.append(play.place(v, play.predict(v), slopes[rows], width, told))
        bounds.append(told.points)
    for name in ("smooth", "value", "gradient", "gain"):
        ours, theirs = (getattr(place, name) for place in places)
        assert_allclose(ours, theirs, atol=1e-12)
    assert_array_equal(places[0].c, places[1].c[near])
    exact = np.maximum(1 - sign * z, 0).mean() + 1e-3 / 2 * v[:-1] @ v[:-1]
    assert_allclose(places[0].value, exact)
    # What every dual point is: no more than the objective anywhere.
    for value, mean in bounds[0] + bounds[1]:
        assert value - mean @ mean / (2 * 1e-3) <= exact


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("n_curved", [0, 1, 200, 1000])
@pytest.mark.parametrize("form", [np.ascontiguousarray, sparse.csr_array])
def test_conjugate_gradients_take_newtons_step(form, n_curved, fit_intercept, rng):
    X, y = rare(3000, 12)
    X[np.abs(X) < 1] = 0
    model = AWSGDClassifier("hinge", alpha=1e-4, fit_intercept=fit_intercept)
    play = RowsInPlay(task_of(model, form(X), y), np.arange(3000), np.zeros(3000))
    curved = np.arange(3000) < n_curved
    here = SimpleNamespace(c=np.zeros(3000), gradient=rng.standard_normal(13))
    here.gradient[-1] *= fit_intercept and n_curved > 0
    width = 0.3
    ours = play._conjugate_step(here, curved / width)
    theirs = play.newton_step(here, width, rng, curved.astype(float))
    gains = [
        -(here.gradient @ step) - step @ curvature(X, curved, width, step) / 2
        for step in (ours, theirs)
    ]
    assert gains[1] * 0.98 <= gains[0] <= gains[1] * (1 + 1e-9)
    if n_curved == 0:
        assert_allclose(ours, theirs, atol=1e-9)


def curvature(X, curved, width, step):
    """The product of a step and the curvature of a penalty of 1e-4 and curved rows."""
    moves = curved * (X @ step[:-1] + step[-1]) / (width * len(X))
    return np.append(X.T @ moves + 1e-4 * step[:-1], moves.sum())


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-4, 1e-6])
@pytest.mark.parametrize("sweeps", [True, False])
def test_hinge_as_linear_svc(tol, sweeps, monkeypatch):
    """By sweeps, or without them as where rows are far more than columns."""
    monkeypatch.setattr(kink_steps, "CHEAP_NEWTON_STEP", 0 if sweeps else np.inf)
    if not sweeps:
        monkeypatch.delattr(kink_steps.KinkRun, "sweep")
    X, y = rare()
    X = np.hstack([X, np.ones((len(X), 1))])
    alpha, sign = 1e-3, np.where(y, 1, -1)
    best = LinearSVC(
        loss="hinge",
        C=1 / (alpha * len(y)),
        fit_intercept=False,
        tol=1e-8,
        max_iter=20_000,
        random_state=0,
    ).fit(X, y)

    def value(model):
        w = model.coef_.ravel()
        return np.maximum(1 - sign * (X @ w), 0).mean() + alpha / 2 * w @ w

    model = AWSGDClassifier(
        "hinge", alpha=alpha, fit_intercept=False, tol=tol, random_state=0
    ).fit(X, y)
    assert value(model) <= (1 + tol) * value(best)
    assert value(model) - value(best) - 1e-9 <= model.duality_gap_[0]
    if sweeps:
        # They end by the certificate, Newton's method over all rows by an estimate.
        assert model.duality_gap_[0] <= tol * value(model)
    # Rows that have nothing to say are not looked at in most passes.
    assert model.n_iter_ <= 40


@pytest.mark.parametrize("weighted", [False, True])
def test_drawn_rows_stand_for_all(weighted, monkeypatch):
    """The mean of their objectives at one place is that of all rows."""
    X, y = rare()
    weight = np.random.default_rng(0).lognormal(size=len(y)) if weighted else None
    v, found = np.append(np.full(X.shape[1], 0.1), -0.5), []

    def keep(task, rows, variates):
        found.append(task.value(v))
        raise KeyboardInterrupt

    monkeypatch.setattr(kink_steps, "RowsInPlay", keep)
    monkeypatch.setattr(kink_steps, "CHEAP_NEWTON_STEP", np.inf)
    for seed in range(60):
        model = AWSGDClassifier("hinge", alpha=1e-3, random_state=seed)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y, sample_weight=weight)
    losses = np.maximum(1 - np.where(y, 1, -1) * (X @ v[:-1] + v[-1]), 0)
    expected = np.average(losses, weights=weight) + 1e-3 / 2 * v[:-1] @ v[:-1]
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert 0 < error < 0.01 * expected
    assert abs(np.mean(found) - expected) < 5 * error


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    is_class=st.booleans(),
    noise=st.sampled_from([0.2, 2.0, 10.0]),
    offset=st.sampled_from([0.0, -2.0, -4.0]),
    alpha=st.floats(-6, -1),
    tol=st.floats(-4, -1),
    weighted=st.booleans(),
)
def test_estimates_of_far_more_rows_than_columns(
    seed, is_class, noise, offset, alpha, tol, weighted
):
    """Where nothing can be told of a rare class, most rows lie on a kink."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(500, 12_000)), int(rng.integers(1, 30))
    X, alpha, tol = rng.normal(size=(n, d)), 10**alpha, 10**tol
    z = X @ rng.normal(size=d) / np.sqrt(d)
    weight = rng.lognormal(size=n) if weighted else None
    if is_class:
        y = np.where(z + noise * rng.logistic(size=n) + offset > 0, 1.0, -1.0)
        y[:2] = -1, 1
    else:
        y = z + noise * rng.standard_t(2, size=n)

    def fit(tol, cheap):
        kind = AWSGDClassifier if is_class else AWSGDRegressor
        loss = "hinge" if is_class else "epsilon_insensitive"
        model = kind(loss, alpha=alpha, tol=tol, max_iter=3000, random_state=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kink_steps, "CHEAP_NEWTON_STEP", cheap)
            model.fit(X, y, sample_weight=weight)
        w, b = model.coef_.ravel(), model.intercept_[0]
        losses = model._make_loss()(y, X @ w + b)[0]
        value = np.average(losses, weights=weight) + alpha / 2 * w @ w
        return value, model.duality_gap_[0]

    (value, gap), (least, _) = fit(tol, np.inf), fit(1e-7, 0)
    assert value <= (1 + tol) * least
    assert value - gap <= (1 + 1e-12) * least


@pytest.mark.parametrize(("n", "d", "sweeps"), [(40_000, 8, 0), (400, 8, 1)])
def test_sweeps_are_for_rows_that_are_not_far_more_than_columns(
    n, d, sweeps, monkeypatch
):
    calls, sweep = [], kink_steps.KinkRun.sweep
    monkeypatch.setattr(
        kink_steps.KinkRun, "sweep", lambda run: (calls.append(run), sweep(run))
    )
    AWSGDClassifier("hinge", alpha=1e-3, random_state=0).fit(*rare(n, d))
    assert len(calls) == sweeps


@pytest.mark.parametrize("newton", [0, np.inf])
def test_hinge_with_an_intercept_as_svc(newton, monkeypatch):
    """By Newton's method as soon as can be, and by sweeps alone."""
    monkeypatch.setattr(kink_steps, "NEWTON_PASSES", newton)
    X, y = rare(2000, 5)
    alpha, sign = 1e-2, np.where(y, 1, -1)
    best = SVC(kernel="linear", C=1 / (alpha * len(y)), tol=1e-6).fit(X, y)

    def value(model):
        w = model.coef_.ravel()
        z = X @ w + model.intercept_[0]
        return np.maximum(1 - sign * z, 0).mean() + alpha / 2 * w @ w

    for seed in range(3):
        model = AWSGDClassifier("hinge", alpha=alpha, tol=1e-5, random_state=seed)
        model.fit(X, y)
        assert value(model) <= (1 + 1.1e-5) * value(best)
        assert value(model) - value(best) - 1e-7 <= model.duality_gap_[0]


def test_epsilon_insensitive_as_linear_svr():
    X, y = load_diabetes(return_X_y=True)
    X, y = 20 * X, (y - y.mean()) / y.std()
    alpha = 1e-3
    best = LinearSVR(
        epsilon=0.1,
        C=1 / (alpha * len(y)),
        fit_intercept=False,
        tol=1e-10,
        max_iter=1_000_000,
        random_state=0,
    ).fit(X, y)

    def value(model):
        losses = np.maximum(np.abs(y - X @ model.coef_) - 0.1, 0)
        return losses.mean() + alpha / 2 * model.coef_ @ model.coef_

    model = AWSGDRegressor(
        "epsilon_insensitive", alpha=alpha, fit_intercept=False, random_state=0
    )
    for tol in (1e-2, 1e-4, 1e-8):
        model.set_params(tol=tol).fit(X, y)
        assert value(model) <= (1 + tol) * value(best) + 1e-9
        assert value(model) - value(best) - 1e-9 <= model.duality_gap_[0]


def test_a_weak_penalty_takes_few_passes():
    """Sweeps alone would take thousands."""
    X, y = rare(5000, 6)
    settings = {"loss": "hinge", "alpha": 1e-9, "random_state": 0}
    model = AWSGDClassifier(tol=1e-6, **settings).fit(X, y)
    assert model.n_iter_ < 150
    closer = AWSGDClassifier(tol=1e-10, **settings).fit(X, y)
    best = closer.history_["objective"][-1]
    assert closer.duality_gap_[0] <= 1e-6 * best
    assert model.history_["objective"][-1] <= (1 + 1e-6) * best


def test_a_warm_start_takes_fewer_passes():
    X, y = rare()
    model = AWSGDClassifier("hinge", tol=1e-5, random_state=0, warm_start=True)
    n_first, value = model.fit(X, y).n_iter_, model.history_["objective"][-1]
    model.fit(X, y)
    assert model.n_iter_ <= n_first
    assert_allclose(model.history_["objective"][-1], value, rtol=1e-5)


def test_the_order_of_rows_and_threads():
    X, y = rare(4000)
    settings = {"loss": "hinge", "tol": 1e-4, "random_state": 0}
    models = [
        AWSGDClassifier(n_jobs=n_jobs, shuffle=shuffle, **settings).fit(X, y)
        for n_jobs, shuffle in ((1, True), (2, True), (1, False))
    ]
    assert_array_equal(models[0].coef_, models[1].coef_)
    values = [model.history_["objective"][-1] for model in models]
    assert_allclose(values[2], values[0], rtol=1e-4)


@pytest.mark.parametrize("n", [400, 4000, 40_000])
@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-4])
def test_the_last_record_is_of_the_coefficients_returned(n, tol, seed):
    X, y = rare(n)
    sign = np.where(y, 1.0, -1.0)
    for k in range(5):
        model = AWSGDClassifier("hinge", tol=tol, random_state=seed + k).fit(X, y)
        value = np.maximum(1 - sign * model.decision_function(X), 0).mean()
        value += model.alpha / 2 * np.sum(model.coef_**2)
        assert_allclose(model.history_["objective"][-1], value, rtol=1e-12)
        gap = model.history_["duality_gap"][-1]
        assert_allclose(gap, model.duality_gap_[0], atol=1e-15)


@pytest.mark.parametrize("d", [8, 20])
def test_predictions_that_are_all_the_same_are_not_near_the_optimum(d):
    """Of some drawn rows the best may be a constant, which is a kink of most others."""
    X, y = rare(20_000, d)
    sign = np.where(y, 1.0, -1.0)

    def value(tol, seed):
        model = AWSGDClassifier("hinge", tol=tol, random_state=seed).fit(X, y)
        losses = np.maximum(1 - sign * model.decision_function(X), 0)
        return losses.mean() + model.alpha / 2 * np.sum(model.coef_**2)

    best = value(1e-8, 0)
    for tol in (1e-2, 1e-3):
        for seed in range(12):
            assert value(tol, seed) <= (1 + tol) * best


def test_no_estimate_is_believed_while_most_rows_lie_next_to_a_kink():
    """Of features with offsets, whose best model is hardly more than a constant."""
    rng = np.random.default_rng(1)
    n, d = int(10 ** rng.uniform(3, 4.9)), int(rng.integers(1, 41))
    X = rng.standard_normal((n, d))
    rng.integers(5)
    X = X * 10 ** rng.uniform(-1.5, 1.5, d) + 3 * rng.standard_normal(d)
    w = rng.standard_normal(d) / np.sqrt(d) / X.std(axis=0)
    z = 10 ** rng.uniform(-1, 1.2) * (X - X.mean(axis=0)) @ w
    # The state of the stream in which this was found.
    rng.random(2), rng.integers(2, 5), rng.random(), rng.integers(3), rng.random(2)
    least = np.quantile(z + rng.logistic(size=n), 1 - 0.19207378488463087)
    sign = np.where(z + rng.logistic(size=n) > least, 1.0, -1.0)
    rows, alpha = sparse.csr_array(X), 1.3737641666623042e-3

    def value(tol, seed):
        model = AWSGDClassifier("hinge", alpha=alpha, tol=tol, random_state=seed)
        losses = np.maximum(1 - sign * model.fit(rows, sign).decision_function(X), 0)
        return losses.mean() + alpha / 2 * np.sum(model.coef_**2)

    best = value(1e-9, 0)
    for seed in range(6):
        assert value(1e-4, seed) <= (1 + 1e-4) * best


@pytest.mark.parametrize("max_iter", [5, 9, 14])
def test_sweeps_of_one_call_are_no_more_than_are_left(max_iter):
    """Of few rows, several sweeps are one call."""
    X, y = rare(100, 4)
    model = AWSGDClassifier("perceptron", tol=1e-9, max_iter=max_iter, random_state=0)
    with pytest.warns():
        model.fit(X, y)
    assert model.n_iter_ <= max_iter


def test_passes_run_out():
    X, y = rare(4000)
    for max_iter in (1, 2, 3, 6):
        model = AWSGDClassifier("hinge", tol=1e-9, max_iter=max_iter, random_state=0)
        with pytest.warns(match="max_iter"):
            model.fit(X, y)
        assert model.n_iter_ <= max_iter
        assert (np.diff(model.history_["draws"]) > 0).all()


def test_plans():
    """Where these steps do not suit: other losses, penalties, and sources."""

    def task(**other):
        return SimpleNamespace(
            **{
                "has_dual_steps": True,
                "is_smooth": False,
                "penalty": SimpleNamespace(l1=0.0, l2=1e-3),
                "data": SimpleNamespace(is_source=False),
                "target": SimpleNamespace(values=np.ones(3)),
            }
            | other
        )

    for other in (
        {"has_dual_steps": False},
        {"is_smooth": True},
        {"penalty": SimpleNamespace(l1=0.1, l2=1e-3)},
        {"penalty": SimpleNamespace(l1=0.0, l2=0.0)},
        {"data": SimpleNamespace(is_source=True)},
    ):
        assert kink_steps.plan_kink_steps(task(**other)) is None


@pytest.mark.parametrize(
    "form",
    [sparse.csr_array, lambda X: X.astype(np.float32), IndexedRows],
    ids=["csr", "float32", "source"],
)
def test_forms_of_rows(form):
    X, y = rare()
    X = X.astype(np.float32).astype(float)
    here = AWSGDClassifier("hinge", random_state=0).fit(X, y)
    there = AWSGDClassifier("hinge", random_state=0).fit(form(X), y)
    values = [model.history_["objective"][-1] for model in (here, there)]
    assert_allclose(*values, rtol=2e-3)


def test_weights():
    X, y = rare()
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    twice = np.repeat(np.arange(len(y)), weight)
    model = AWSGDClassifier("hinge", tol=1e-4, random_state=0)
    weighted = model.fit(X, y, sample_weight=weight).history_["objective"][-1]
    repeated = model.fit(X[twice], y[twice]).history_["objective"][-1]
    assert_allclose(weighted, repeated, rtol=2e-4)
    balanced = AWSGDClassifier("hinge", class_weight="balanced", random_state=0)
    assert balanced.fit(X, y).predict(X)[y].mean() > 0.5
