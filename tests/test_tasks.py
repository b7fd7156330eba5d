"""Tasks, phases and their order, without an estimator in sight."""

import numpy as np
import pytest
from helpers import SMOOTH_LOSSES, minimum
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd._kernels import _losses
from sklearn_awsgd._kernels.settings import Penalty, Rate
from sklearn_awsgd._linear.data import Data
from sklearn_awsgd._linear.objectives import Evaluation
from sklearn_awsgd._linear.phases.descent import Direction, Proposal, descend
from sklearn_awsgd._linear.phases.dual import plan_dual_steps
from sklearn_awsgd._linear.phases.proximal import l1_change, take_intercept_off
from sklearn_awsgd._linear.phases.sampling import Draws
from sklearn_awsgd._linear.steps import complete_state, new_state
from sklearn_awsgd._linear.targets import CodeTarget, RealTarget, SignTarget
from sklearn_awsgd._linear.tasks import LinearTask, SoftmaxTask, make_task
from sklearn_awsgd._linear.train import Rules, train
from sklearn_awsgd._solver.records import Budget, Log
from sklearn_awsgd._spaces import RowSpace
from sklearn_awsgd.samplers import LevelSampler

N_ROWS, N_FEATURES, N_CLASSES = 200, 4, 3
each_kind = pytest.mark.parametrize("kind", ["linear", "softmax"])
each_layout = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])


def a_task(kind, rng, layout=np.asarray, weighted=True, penalty=None, **settings):
    """Return a task on random rows, some of which weigh nothing."""
    X = rng.standard_normal((N_ROWS, N_FEATURES))
    scores = X @ rng.standard_normal((N_FEATURES, N_CLASSES))
    codes = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    mass = None
    if weighted:
        mass = rng.exponential(size=N_ROWS) * (rng.random(N_ROWS) > 0.1)
        mass /= mass.sum()
    target = (
        SignTarget(codes == 0, mass)
        if kind == "linear"
        else CodeTarget(codes, N_CLASSES, mass)
    )
    states = [new_state(N_FEATURES) for _ in range(target.n_models)]
    for state in states:
        complete_state(state, "adagrad", average=False)
    return make_task(
        target,
        data=Data(layout(X), codes, np.sum(X**2, axis=1), mass=mass),
        loss=settings.pop("loss", _losses.LogLoss()),
        penalty=penalty or Penalty(l2=0.01),
        rate=Rate("adagrad", eta0=0.3),
        states=states,
        generator=np.random.PCG64(0),
        **settings,
    )


def draws_of(task):
    space = RowSpace(task.data.mass, task.data.norms2)
    sampler = LevelSampler()
    sampler.prepare(space, 1, task.target.n_groups, None)
    return Draws(sampler, space)


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


def masses(task):
    return np.full(N_ROWS, 1 / N_ROWS) if task.data.mass is None else task.data.mass


def lowest(task):
    """The minimum of the objective of a task, by scipy."""
    X, P = dense(task.data.X), masses(task)
    l1, l2 = task.penalty.l1, task.penalty.l2
    if task.n_models == 1:
        y = task.target.numbers()
        return minimum(X, y, task.loss, P, l1, l2, task.fit_intercept)

    def value(v):
        V = v.reshape(N_CLASSES, -1)
        Z = X @ V[:, :-1].T + V[:, -1]
        own = Z[np.arange(N_ROWS), task.target.values]
        return P @ (logsumexp(Z, axis=1) - own) + l2 / 2 * np.sum(V[:, :-1] ** 2)

    return minimize(value, np.zeros(N_CLASSES * (N_FEATURES + 1)), tol=1e-10).fun


@each_kind
def test_a_target_makes_its_kind_of_task(kind, rng):
    task = a_task(kind, rng)
    assert type(task) is {"linear": LinearTask, "softmax": SoftmaxTask}[kind]
    assert task.n_models == task.target.n_models
    assert task.target.groups().dtype == np.int32
    assert task.target.has_all_groups


@each_kind
def test_parameters_live_in_the_states(kind, rng):
    task = a_task(kind, rng)
    v = rng.standard_normal(task.n_models * (N_FEATURES + 1))
    assert not task.has("coef")
    task.set_parameters(v, n_draws=7)
    np.testing.assert_array_equal(task.parameters(), v)
    first = task.states[0]
    np.testing.assert_array_equal(first["coef"], v[:N_FEATURES])
    assert first["intercept"][0] == v[N_FEATURES]
    assert all(state["clock"][0] == 7 for state in task.states)
    assert task.has("coef")
    # A copy: a descent must not move the model before its end.
    task.parameters()[:] = 0
    assert task.has("coef")


@each_kind
@pytest.mark.parametrize("weighted", [False, True])
def test_the_best_constants(kind, weighted, rng):
    task = a_task(kind, rng, weighted=weighted)
    task.begin_at_constants()
    share = np.bincount(task.target.groups(), weights=masses(task))
    b = np.array([state["intercept"][0] for state in task.states])
    found = 1 / (1 + np.exp(-b[0])) if kind == "linear" else softmax(b)
    np.testing.assert_allclose(found, share[1] if kind == "linear" else share, 1e-5)
    np.testing.assert_allclose(task.constant_loss(), -share @ np.log(share), rtol=1e-9)
    value = task.make_objective()(task.parameters()).value
    np.testing.assert_allclose(task.constant_loss(), value, rtol=1e-12)
    # Intercepts that were given stay.
    task.states[0]["intercept"][0] = 5.0
    task.begin_at_constants()
    assert task.states[0]["intercept"][0] == 5.0


@each_kind
@each_layout
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_first_norms_are_those_of_the_gradients(kind, layout, fit_intercept, rng):
    task = a_task(kind, rng, layout, fit_intercept=fit_intercept)
    if fit_intercept:
        task.begin_at_constants()
    norms2 = task.make_problem().first_norms2()
    X = np.c_[dense(task.data.X), np.full(N_ROWS, float(fit_intercept))]
    b = np.array([state["intercept"][0] for state in task.states])
    if kind == "linear":
        slopes = task.loss(task.target.numbers(), np.full(N_ROWS, b[0]))[1][:, None]
    else:
        slopes = softmax(b) - np.eye(N_CLASSES)[task.target.values]
    gradients = slopes[:, :, None] * X[:, None, :]
    np.testing.assert_allclose(norms2, np.sum(gradients**2, axis=(1, 2)), rtol=1e-9)


@each_kind
@each_layout
def test_training_needs_no_estimator(kind, layout, rng):
    task = a_task(kind, rng, layout)
    log = Log()
    outcome = train(task, draws_of(task), Budget(100, 1e-6), log, Rules())
    assert outcome.converged
    value = task.make_objective()(task.parameters()).value
    assert value <= lowest(task) * (1 + 1e-6)
    phases = [record.phase for record in log.records]
    n_sampling = phases.count("sampling")
    # Small softmax regression has its full curvature, and no draws before it.
    assert (n_sampling > 0) == (kind != "softmax")
    assert n_sampling < len(phases)
    assert phases == ["sampling"] * n_sampling + ["exact"] * (len(phases) - n_sampling)
    assert log.records[-1].objective == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
@pytest.mark.parametrize("penalty", [Penalty(), Penalty(l1=0.02), Penalty(0.01, 0.02)])
def test_each_direction_leads_to_the_optimum(loss, penalty, rng):
    compiled = SMOOTH_LOSSES[loss](AWSGDClassifier(epsilon=0.5))
    task = a_task("linear", rng, penalty=penalty, loss=compiled)
    outcome = train(task, draws_of(task), Budget(200, 1e-8), Log(), Rules())
    assert outcome.converged
    v = task.parameters()
    value = task.make_objective()(v).value + penalty.l1 * np.abs(v[:-1]).sum()
    assert value <= lowest(task) * (1 + 1e-6)


@each_kind
def test_steps_alone_stay_steps(kind, rng):
    task, log = a_task(kind, rng), Log()
    scores = iter([0.1, 0.9, 0.5, 0.4])
    seen = []

    def score(scored):
        seen.append(scored.parameters())
        return next(scores)

    rules = Rules(to_optimum=False, n_iter_no_change=2, score=score)
    outcome = train(task, draws_of(task), Budget(10, 1e-3), log, rules)
    assert outcome.n_iter == 4
    assert {record.phase for record in log.records} == {"sampling"}
    np.testing.assert_array_equal(task.parameters(), seen[1])


@each_kind
def test_what_was_learned_is_where_training_goes_on(kind, rng):
    task, log = a_task(kind, rng), Log()
    train(task, draws_of(task), Budget(100, 1e-8), Log(), Rules())
    outcome = train(task, draws_of(task), Budget(100, 1e-4), log, Rules())
    assert {record.phase for record in log.records} == {"exact"}
    assert outcome.n_iter <= 2


def test_one_target_for_all_rows_is_no_sampling(rng):
    for target in (RealTarget(np.full(50, 7.0)), CodeTarget(np.full(50, 1), 3)):
        task = a_task("linear", rng)
        task.target, task.data.mass = target, None
        task.data.X, task.data.norms2 = task.data.X[:50], task.data.norms2[:50]
        if target.n_models > 1:
            task = SoftmaxTask(
                **{**vars(task), "states": [new_state(4) for _ in "abc"]}
            )
        else:
            task.loss = _losses.SquaredError()
        log = Log()
        outcome = train(task, draws_of(task), Budget(100, 1e-3), log, Rules())
        assert outcome.converged
        assert outcome.duality_gap == log.records[-1].objective <= 1e-10
        assert [record.phase for record in log.records] == ["exact"]


def test_a_softmax_of_which_one_class_counts(rng):
    X, y = rng.standard_normal((60, 3)), np.arange(60) % 3
    weights = {0: 0.0, 1: 0.0, 2: 1.0}
    clf = AWSGDClassifier("multinomial", class_weight=weights, random_state=0)
    assert (clf.fit(X, y).predict(X) == 2).all()


def test_dual_steps_are_for_wide_data(rng):
    assert plan_dual_steps(a_task("linear", rng)) is None
    task = a_task("linear", rng)
    task.data.X = sparse.csr_array((N_ROWS, 4000))
    assert plan_dual_steps(task) > 0
    smooth, task.loss = task.loss, _losses.Hinge(1.0)
    assert plan_dual_steps(task) is None
    task.loss, task.penalty = smooth, Penalty(l1=0.01, l2=0.01)
    assert plan_dual_steps(task) is None


class Downhill(Direction):
    """Steps along the gradient of ||v||^2 / 2 + 1, as long as they are told to be."""

    rate, n_stiffened, cut, lost = 1.0, 0, 1 / 2, 0.0

    def evaluate(self, v):
        return Evaluation(v, v @ v / 2 + 1, v, np.inf, None)

    def propose(self, here, trail):
        step = -self.rate * here.gradient
        left = here.value - 1
        return Proposal(step, here.gradient @ step, here.value, left, left)

    def take(self, here, new, proposal, length, trail):
        return new

    def stiffen(self, here, trail):
        self.n_stiffened += 1
        self.rate /= 100
        return self.n_stiffened < 3


def go_down(rate, budget=None, tol=1e-3, enough=None):
    direction, seen = Downhill(None, tol, None), []
    direction.rate = rate
    report = descend(
        direction,
        np.array([3.0, 4.0]),
        budget or Budget(),
        lambda there, n_passes: seen.append((n_passes, there.value)),
        enough,
    )
    return report, direction, seen


@pytest.mark.parametrize("rate", [0.1, 1.0, 1.9, 30.0, 5000.0])
def test_the_driver_takes_steps_that_lower_the_objective(rate):
    report, direction, seen = go_down(rate)
    assert report.converged
    assert report.end.value <= 1 + 1.01e-3
    assert report.n_passes == len(seen)
    assert [n for n, _ in seen] == list(range(1, len(seen) + 1))
    # Steps a hundred times too long are not only halved.
    assert direction.n_stiffened == (1 if rate == 5000.0 else 0)


def test_the_driver_keeps_to_its_budget():
    for n_passes in (1, 2, 5):
        report, _, seen = go_down(0.1, Budget(n_passes))
        assert not report.converged
        assert report.n_passes == len(seen) == n_passes
    assert go_down(0.1, Budget(deadline=0.0))[0].n_passes == 1
    # What is enough when passes are over is another question than when to stop.
    assert go_down(0.1, Budget(5), enough=1.0)[0].converged


def test_the_driver_ends_where_no_curvature_helps():
    report, direction, _ = go_down(1e12)
    assert not report.converged
    assert direction.n_stiffened == 3
    np.testing.assert_array_equal(report.end.v, [3.0, 4.0])


def test_small_changes_of_an_l1_norm_keep_their_digits():
    w, step = np.array([1e4, -3.0, 0.0, 2.0]), np.array([1e-15, 1e-20, -1e-18, -3.0])
    np.testing.assert_allclose(l1_change(w[:3], step[:3]), 1e-15 + 1e-18, rtol=1e-4)
    # Through zero it falls and rises.
    assert l1_change(w, step) == pytest.approx(-1.0)
    # Products of these numbers are no numbers.
    w, step = np.array([1e300, -1e-300]), np.array([-1e299, -1e-300])
    assert l1_change(w, step) == -1e299
    assert l1_change(w[1:], step[1:]) == 1e-300


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3])
def test_a_model_without_its_intercept_is_the_same(offset, rng):
    A = np.column_stack([rng.standard_normal((50, 4)) + offset, np.ones(50)])
    A[:, 3] = 1.0  # a constant feature, of which rounding is left
    h, gradient = rng.random(50), rng.standard_normal(5)
    hessian = (A.T * h) @ A + 0.1 * np.diag([1.0, 1, 1, 1, 0])
    centered, slopes, center = take_intercept_off(hessian, gradient)
    assert (np.diagonal(centered) > 0).all()
    for w in rng.standard_normal((5, 4)):
        # The intercept that is best for w, in both.
        step = np.append(w, -slopes[-1] / centered[-1, -1])
        model = slopes @ step + step @ centered @ step / 2
        step[-1] -= center @ w
        along = gradient[-1] + hessian[-1] @ step
        size = np.abs(hessian).max() * np.abs(step).max()
        assert abs(along) <= 1e-12 * size
        value = gradient @ step + step @ hessian @ step / 2
        np.testing.assert_allclose(model, value, rtol=1e-9, atol=1e-12 * size)
