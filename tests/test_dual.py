"""Dual steps: their equation, their invariants, their bound and where they lead."""

import warnings

import numpy as np
import pytest
from helpers import (
    SMOOTH_LOSSES,
    linear_objective,
    linear_state,
    minimum,
    run_draws,
    stream,
)
from scipy import sparse
from scipy.optimize import brentq
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn_awsgd._kernels._level_sampler import LevelDraws
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._kernels._samplers import ShuffledPasses

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._kernels import _dual
from sklearn_awsgd._linear.curvature import MOST_PARAMETERS
from sklearn_awsgd._linear.phases import dual
from sklearn_awsgd._linear.phases.dual import LARGEST_RATIO, DualStop, curvature_ratio
from sklearn_awsgd._spaces import ProblemView, RowSpace

ALPHA, BETA = 0.03, 0.2
each_loss = pytest.mark.parametrize("name", SMOOTH_LOSSES)


class Setup:
    """A small problem whose rows have different norms and masses."""

    def __init__(self, name, weighted=True, fit_intercept=True, n=60, d=5, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(n, d)) * rng.lognormal(0, 0.5, size=(n, 1))
        self.y = np.where(self.X[:, 0] + rng.normal(size=n) > 0.7, 1.0, -1.0)
        self.P = rng.dirichlet(np.ones(n)) if weighted else np.full(n, 1 / n)
        self.mass = self.P if weighted else None
        self.fit_intercept = fit_intercept
        self.loss = SMOOTH_LOSSES[name](AWSGDClassifier())
        self.norms2 = np.sum(self.X**2, axis=1)
        self.state = linear_state(d)
        self.problem = _dual.DualSteps(
            Rows(self.X),
            self.loss,
            self.y,
            self.norms2,
            self.state,
            self.mass,
            ALPHA,
            BETA if fit_intercept else None,
        )
        self.table = RowSpace(self.mass, self.norms2)

    def shuffled(self, seed=0):
        return ShuffledPasses(stream(seed)[0], self.table.rows.copy(), self.mass)

    def level(self, seed=0):
        groups = (self.y > 0).astype(np.int32)
        generator = stream(seed)[0]
        view = ProblemView(groups, self.norms2 + 1)
        return LevelDraws(generator, self.table, view.part, 2, 0.1, 0.001)

    def derivative(self, i, z):
        return self.loss(self.y[[i]], np.array([z]))[1][0]

    def minimum(self):
        return minimum(
            self.X, self.y, self.loss, self.P, 0.0, ALPHA, self.fit_intercept
        )

    def objective(self):
        return linear_objective(
            self.X, self.loss, self.y, self.mass, self.norms2, ALPHA, self.fit_intercept
        )


@each_loss
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_step_solves_its_equation(name, fit_intercept):
    # One draw at a time, against a scalar root finder.
    setup = Setup(name, fit_intercept=fit_intercept)
    problem, sampler = setup.problem, setup.level()
    w, b = setup.state["coef"], setup.state["intercept"]
    for _ in range(150):
        old, z = np.array(problem.variates), setup.X @ w + b[0]
        counts = np.zeros(len(z), dtype=np.uint32)
        run_draws(problem, sampler, 1, draw_counts=counts)
        i = int(np.argmax(counts))
        new = problem.variates[i]
        k = setup.P[i] * (setup.norms2[i] / ALPHA + fit_intercept / BETA)
        c = setup.derivative(i, z[i])
        if c != old[i]:

            def miss(t, i=i, k=k, z=z, old=old):
                return setup.derivative(i, z[i] - k * t) - old[i] - t

            root = brentq(miss, *sorted([0.0, c - old[i]]), xtol=1e-14)
            assert new - old[i] == pytest.approx(root, rel=0.112)
        others = np.arange(len(z)) != i
        np.testing.assert_array_equal(np.asarray(problem.variates)[others], old[others])


@each_loss
@pytest.mark.parametrize("weighted", [True, False])
def test_the_mean_of_the_variates_is_known(name, weighted):
    # gbar = -alpha w after any draws, and the center of the intercept holds it.
    setup = Setup(name, weighted=weighted)
    center = 0.0
    for sampler in (setup.level(), setup.shuffled()):
        run_draws(setup.problem, sampler, 200)
        mean = setup.P * np.asarray(setup.problem.variates)
        np.testing.assert_allclose(
            mean @ setup.X, -ALPHA * setup.state["coef"], rtol=1e-9, atol=1e-12
        )
        b = setup.state["intercept"][0]
        assert BETA * (b - center) == pytest.approx(-mean.sum(), rel=1e-9, abs=1e-12)
        setup.problem.recenter()
        center = b


def dual_objective(setup):
    """The dual objective with the intercept held at a center of zero."""
    problem = setup.problem
    mean = setup.P * np.asarray(problem.variates)
    return (
        -setup.P @ np.asarray(problem.conjugates)
        - np.sum((mean @ setup.X) ** 2) / (2 * ALPHA)
        - mean.sum() ** 2 / (2 * BETA)
    )


@each_loss
def test_no_step_lowers_the_dual_objective(name):
    setup = Setup(name)
    sampler = setup.level()
    values = [dual_objective(setup)]
    for _ in range(300):
        run_draws(setup.problem, sampler, 1)
        values.append(dual_objective(setup))
    assert np.diff(values).min() >= -1e-12
    assert values[-1] > values[0]


@each_loss
@pytest.mark.parametrize("kind", ["level", "shuffled"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_any_draws_lead_to_the_optimum_with_a_bound_below_it(name, kind, fit_intercept):
    setup = Setup(name, fit_intercept=fit_intercept)
    best = setup.minimum()
    sampler = getattr(setup, kind)()
    for _ in range(100):
        run_draws(setup.problem, sampler, 10 * len(setup.y))
        value, mean = setup.problem.dual_point()
        assert value - mean @ mean / (2 * ALPHA) <= best * (1 + 1e-9)
        setup.problem.recenter()
    point = setup.objective()(np.append(setup.state["coef"], setup.state["intercept"]))
    assert point.value == pytest.approx(best, rel=1e-5)
    assert value - mean @ mean / (2 * ALPHA) == pytest.approx(best, rel=1e-3)


@each_loss
def test_the_gap_of_the_rows_is_met_before_their_steps(name):
    # The Fenchel gaps by hand, one draw at a time.
    setup = Setup(name)
    sampler, expected, n_draws = setup.shuffled(), 0.0, 100
    for _ in range(n_draws):
        z = setup.X @ setup.state["coef"] + setup.state["intercept"][0]
        a, conjugates = map(
            np.array, (setup.problem.variates, setup.problem.conjugates)
        )
        gaps = setup.loss(setup.y, z)[0] + conjugates - a * z
        assert gaps.min() > -1e-12
        counts = np.zeros(len(z), dtype=np.uint32)
        run_draws(setup.problem, sampler, 1, draw_counts=counts)
        i = int(np.argmax(counts))
        # Shuffled passes draw each row once: q = 1 / (n P).
        expected += gaps[i] * setup.P[i] * len(z)
    assert setup.problem.take_gap() == pytest.approx(expected / n_draws, rel=1e-9)
    assert setup.problem.take_gap() == 0


@each_loss
def test_mixing_dual_points_only_raises_the_bound(name):
    setup = Setup(name)
    objective, best = setup.objective(), setup.minimum()
    rng = np.random.default_rng(1)
    bounds = []
    for scale in (1.0, 0.3, 0.1, 0.03):
        point = objective(scale * rng.normal(size=6))
        bounds.append(point.value - point.gap)
    assert np.diff(bounds).min() >= -1e-12
    assert bounds[-1] <= best * (1 + 1e-9)


class FakeProblem:
    """Plays back the gaps of passes."""

    def __init__(self, gaps):
        self.gaps = iter(gaps)

    def take_gap(self):
        return next(self.gaps)

    def dual_point(self):
        return 0.0, np.zeros(1)

    def recenter(self):
        pass


def test_the_passes_end_when_two_of_them_gain_too_little():
    stop = DualStop(FakeProblem([1, 0.5, 0.45, 0.44]), None, 1e-9, max_passes=9)
    assert [stop(1.0) for _ in range(4)] == [False, False, False, True]
    assert stop.end is None


def test_the_passes_end_when_an_exact_pass_says_so():
    points = []

    def evaluate(dual_point):
        gap = [0.5, 0.005][len(points)]
        points.append(type("Evaluation", (), {"gap": gap, "value": 1.0}))
        return points[-1]

    problem = FakeProblem([1, 0.01, 0.005, 0.0001])
    stop = DualStop(problem, evaluate, 0.01, max_passes=9)
    assert [stop(1.0) for _ in range(4)] == [False, False, False, True]
    assert (stop.n_exact, stop.n_passes) == (2, 6)
    assert stop.end is points[-1]


def test_gaps_of_zero_need_no_more_passes():
    point = type("Evaluation", (), {"gap": 0.0, "value": 0.0})
    stop = DualStop(FakeProblem([0.0, -1e-17]), lambda dual: point, 0.0, max_passes=9)
    assert [stop(0.0), stop(0.0)] == [False, True]


def wide_data(n=300, seed=0):
    rng = np.random.default_rng(seed)
    d = MOST_PARAMETERS + 50
    X = sparse.random_array(
        (n, d), density=0.01, format="csr", rng=rng, data_sampler=rng.standard_normal
    )
    return X, X @ rng.normal(size=d)


@pytest.mark.parametrize("layout", [sparse.csr_array, lambda X: X.toarray()])
@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge"])
def test_a_wide_classifier_is_certified(loss, layout):
    X, z = wide_data()
    X, y = layout(X), z > 3
    clf = AWSGDClassifier(loss=loss, alpha=0.01, tol=1e-4, random_state=0).fit(X, y)
    phases = clf.history_["phase"]
    assert (phases == "sampling").sum() > 0
    best = minimum(
        X.toarray() if sparse.issparse(X) else X,
        np.where(y, 1.0, -1.0),
        clf._make_loss(),
        np.full(len(y), 1 / len(y)),
        0.0,
        0.01,
        True,
    )
    value = clf.history_["objective"][phases == "exact"][-1]
    assert best * (1 - 1e-7) <= value <= best * (1 + 1e-4)
    assert value - best <= clf.duality_gap_[0] * (1 + 1e-6) + 1e-7 * best
    if loss == "log_loss":
        assert clf.duality_gap_[0] <= 1e-4 * value


def test_a_wide_support_vector_machine_is_certified():
    # The kinks are rounded so little that the hinge itself is within the bound.
    X, z = wide_data()
    y = np.where(z > 3, 1.0, -1.0)
    clf = AWSGDClassifier("hinge", alpha=0.01, tol=1e-3, random_state=0).fit(X, y)
    w, b = clf.coef_[0], clf.intercept_[0]
    value = np.maximum(0, 1 - y * (X @ w + b)).mean() + 0.01 / 2 * w @ w
    assert clf.duality_gap_[0] <= 1e-3 * value
    exact = AWSGDClassifier("hinge", alpha=0.01, tol=1e-5, random_state=1).fit(X, y)
    w, b = exact.coef_[0], exact.intercept_[0]
    best = np.maximum(0, 1 - y * (X @ w + b)).mean() + 0.01 / 2 * w @ w
    assert value - best <= clf.duality_gap_[0]
    assert exact.duality_gap_[0] <= 1e-5 * best


def test_a_wide_regressor_is_certified():
    X, z = wide_data()
    reg = AWSGDRegressor(alpha=0.1, tol=1e-5, random_state=0).fit(X, z + 5)
    value = reg.history_["objective"][-1]
    assert reg.duality_gap_[0] <= 1e-5 * value


def test_a_loss_without_curvature_at_the_start():
    # All residuals of the best constant are on the lines of Huber's loss.
    X, z = wide_data()
    y = np.where(z > 0, 10.0, -10.0)
    reg = AWSGDRegressor(loss="huber", alpha=1e-4, tol=1e-5, random_state=0).fit(X, y)
    P = np.full(len(y), 1 / len(y))
    best = minimum(X.toarray(), y, reg._make_loss(), P, 0.0, 1e-4, True)
    assert reg.history_["objective"][-1] == pytest.approx(best, rel=1e-4)


def test_weights_are_repetitions_also_in_wide_data():
    X, z = wide_data(n=80)
    y = (z > 1).astype(int)
    times = np.random.default_rng(0).integers(0, 4, size=80)
    repeated = np.repeat(np.arange(80), times)
    settings = {"alpha": 0.01, "tol": 1e-10, "random_state": 0}
    weighted = AWSGDClassifier(**settings).fit(X, y, sample_weight=times)
    plain = AWSGDClassifier(**settings).fit(X[repeated], y[repeated])
    np.testing.assert_allclose(weighted.coef_, plain.coef_, atol=1e-4)


def test_rows_too_large_for_the_penalty_go_to_the_finish(monkeypatch):
    monkeypatch.setattr(dual, "ROWS_PER_FEATURE", 0)  # As if there were many rows.
    X, z = wide_data()
    y = np.where(z > 3, 1.0, -1.0)
    norms2 = np.asarray(X.multiply(X).sum(axis=1)).ravel()
    ratio = curvature_ratio(0.25, None, norms2, 1e-3)
    assert ratio == pytest.approx(0.25 * norms2.mean() / 1e-3 / len(y))
    mass = np.full(len(y), 1 / len(y))
    assert curvature_ratio(0.25, mass, norms2, 1e-3) == pytest.approx(ratio)
    # At a tenth of the smallest alpha for dual steps no pass is one of them.
    alpha = 1e-3 * ratio / LARGEST_RATIO / 100
    clf = AWSGDClassifier(alpha=alpha, random_state=0).fit(X, y)
    draws = clf.history_["draws"][clf.history_["phase"] == "sampling"]
    assert draws.max() <= len(y)


@pytest.mark.parametrize("max_iter", [1, 2, 3, 4, 5])
def test_max_iter_counts_the_exact_checks(max_iter):
    X, z = wide_data()
    clf = AWSGDClassifier(alpha=0.1, tol=0.05, max_iter=max_iter, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.fit(X, z > 3)
    assert clf.n_iter_ <= max_iter
    # The first draws are half a pass.
    n_first = -(-X.shape[0] // 2)
    assert clf.t_ == 1 + n_first + (clf.n_iter_ - 1) * X.shape[0]


def test_dual_steps_of_a_loss_that_is_zero():
    X, z = wide_data()
    reg = AWSGDRegressor("squared_epsilon_insensitive", epsilon=1e6, alpha=0.1)
    np.testing.assert_array_equal(reg.fit(X, z).coef_, 0)


def test_class_weights_scale_the_gap_as_the_objective():
    X, z = wide_data()
    settings = {"alpha": 0.1, "tol": 1e-3, "random_state": 0}
    plain = AWSGDClassifier(**settings).fit(X, z > 3)
    settings["alpha"] *= 1000
    scaled = AWSGDClassifier(class_weight={0: 1e3, 1: 1e3}, **settings).fit(X, z > 3)
    assert scaled.n_iter_ == plain.n_iter_
    np.testing.assert_allclose(scaled.coef_, plain.coef_, rtol=1e-6)


def test_shuffled_passes_are_not_in_the_sampling_history():
    X, z = wide_data()
    clf = AWSGDClassifier(alpha=0.01, tol=1e-6, random_state=0).fit(X, z > 3)
    history = clf.sampling_history_
    assert history["draws"].max() <= X.shape[0]
    assert set(history["group"]) == {False, True}


def test_max_iter_counts_dual_passes():
    X, z = wide_data()
    with pytest.warns(match="max_iter"):
        clf = AWSGDClassifier(alpha=0.01, tol=1e-12, max_iter=3).fit(X, z > 3)
    assert clf.n_iter_ == 3


def test_a_narrow_problem_takes_no_dual_steps():
    X, y = make_classification(random_state=0)
    clf = AWSGDClassifier(alpha=1.0).fit(X, y)
    draws = clf.history_["draws"][clf.history_["phase"] == "sampling"]
    assert draws.max() <= len(y)


def test_the_history_of_dual_passes_goes_on():
    X, z = wide_data()
    history = AWSGDClassifier(alpha=0.01, tol=1e-8).fit(X, z > 3).history_
    assert (np.diff(history["draws"]) >= 0).all()
    assert (np.diff(history["seconds"]) >= 0).all()
    assert history["draws"][-1] > 2 * X.shape[0]


@pytest.mark.parametrize("alpha", [1e-4, 1e-5])
def test_hinge_where_the_objective_falls_far(alpha, rng):
    """Nearly separable text-like rows: the rounding must still matter less than tol."""
    X = sparse.random_array((2000, 3500), density=0.01, format="csr", rng=rng)
    y = X @ rng.standard_normal(3500) > 0
    clf = AWSGDClassifier("hinge", alpha=alpha, tol=1e-3, random_state=0).fit(X, y)
    margin = np.where(y, 1, -1) * clf.decision_function(X)
    w = clf.coef_.ravel()
    objective = np.maximum(0, 1 - margin).mean() + alpha / 2 * w @ w
    assert objective < 0.1 * np.maximum(0, 1 - np.where(y, 1, -1)).mean()
    assert 0 <= clf.duality_gap_[0] <= 1e-3 * objective


def test_gap_is_told_when_passes_run_out(rng):
    X = sparse.random_array((300, 3500), density=0.01, format="csr", rng=rng)
    y = X @ rng.standard_normal(3500) > 0
    clf = AWSGDClassifier("hinge", alpha=1e-5, tol=1e-9, max_iter=4, random_state=0)
    with pytest.warns(ConvergenceWarning, match="tol=1e-09"):
        clf.fit(X, y)
    assert clf.n_iter_ == 4
    assert 0 < clf.duality_gap_[0] < np.inf


@pytest.mark.parametrize("max_iter", [1, 2])
def test_running_out_of_passes_is_a_warning(max_iter):
    X, z = wide_data()
    clf = AWSGDClassifier(alpha=0.1, tol=1e-9, max_iter=max_iter, random_state=0)
    with pytest.warns(ConvergenceWarning, match="tol=1e-09 was not reached"):
        clf.fit(X, z > 3)


@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_exact_passes_are_draws_too(tol):
    X, z = wide_data()
    clf = AWSGDClassifier(alpha=0.01, tol=tol, random_state=0).fit(X, z > 3)
    draws = clf.history_["draws"]
    assert (np.diff(draws) > 0).all()
    assert draws[-1] == clf.t_ - 1
