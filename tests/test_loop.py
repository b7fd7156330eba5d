"""The loop: what it sums, how batches share a state, and where it stops."""

import numpy as np
import pytest
from helpers import (
    StrataTwin,
    linear_problem,
    linear_state,
    linear_twin,
    log_loss,
    run_draws,
    strata_kernel,
    stream,
    uniform_kernel,
)
from scipy import sparse
from sklearn.base import clone
from sklearn_awsgd._kernels._loop import POINT, SUMS, Problem, Sampler, run
from sklearn_awsgd._kernels._losses import LogLoss, SquaredError

from sklearn_awsgd._spaces import ProblemView, RowSpace
from sklearn_awsgd.samplers import LevelSampler, StrataSampler, UniformSampler

N_ROWS = 30


@pytest.fixture
def data(rng):
    X = rng.standard_normal((N_ROWS, 3))
    return X, np.where(rng.random(N_ROWS) < 0.3, 1.0, -1.0)


def frozen(X, y, state):
    """A problem whose steps are too small to matter."""
    return linear_problem(X, y, LogLoss(), state, "constant", eta0=1e-300)


def test_sums_and_counts_of_a_pass(data, seed, rng):
    X, y = data
    mass = rng.integers(1, 4, N_ROWS) / 1.0
    mass /= mass.sum()
    state = linear_state(3, coef=rng.standard_normal(3))
    counts = np.zeros(N_ROWS, dtype=np.uint32)
    sampler = uniform_kernel(np.random.PCG64(seed), N_ROWS, mass)
    done, sums = run_draws(frozen(X, y, state), sampler, 2 * N_ROWS, draw_counts=counts)
    assert done == 2 * N_ROWS
    np.testing.assert_array_equal(counts, 2)
    loss, slope = log_loss(y, X @ state["coef"])
    norms2 = slope**2 * ((X**2).sum(axis=1) + 1)
    weight = N_ROWS * mass
    expected = {
        "loss": weight @ loss,
        "norm2": weight**2 @ norms2,
        "norm2_uniform": weight @ norms2,
        "weight": weight.sum(),
        "weight2": weight @ weight,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(sums[name], 2 * value, rtol=1e-12)


@pytest.mark.parametrize("update", ["moments", "sgd", "adagrad"])
@pytest.mark.parametrize("batch_size", [1, 4, 7])
def test_model_and_sampler_together_equal_their_twins(batch_size, update, data, seed):
    """Draws of a batch share one state of the sampler; steps are sequential in it."""
    X, y = data
    setting = StrataSampler(update=update, forgetting=0.05, eta0=0.2)
    strata, norms2 = (y > 0).astype(int), (X**2).sum(axis=1)
    bits, rng = stream(seed)
    kernel = strata_kernel(clone(setting), bits, strata, 2, norms2=norms2)
    twin = StrataTwin(rng, setting, strata, 2, norms2=norms2)
    state, twin_state = linear_state(3), linear_state(3)
    problem = linear_problem(X, y, LogLoss(), state, "adagrad", l2=0.01, eta0=0.3)
    rule = {"rule": "adagrad", "eta0": 0.3, "l1": 0, "l2": 0.01, "average_start": 0}
    n_draws = 100
    run_draws(problem, kernel, n_draws, batch_size)
    for first in range(0, n_draws, batch_size):
        size = min(batch_size, n_draws - first)
        q = twin.densities()
        rows = [twin.draw() for _ in range(size)]
        found = [linear_twin(X, y, [i], [1 / q[i]], twin_state, **rule) for i in rows]
        twin.learn(rows, [norm2 for _, norm2 in found])
    for name in ("coef", "intercept", "squares"):
        np.testing.assert_allclose(state[name], twin_state[name], rtol=1e-8)
    np.testing.assert_allclose(kernel.densities(), twin.densities(), rtol=1e-8)


def test_pieces_join_without_a_seam(data, seed):
    X, y = data
    results = []
    for pieces in ([60], [7, 1, 22, 30]):
        state = linear_state(3)
        problem = linear_problem(X, y, LogLoss(), state, "adagrad", l2=0.01, eta0=0.3)
        sampler = uniform_kernel(np.random.PCG64(seed), N_ROWS)
        for n_draws in pieces:
            run_draws(problem, sampler, n_draws)
        results.append(np.concatenate([state["coef"], state["intercept"]]))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-12)


def test_overflow_ends_the_run(data, seed):
    X, y = data
    problem = linear_problem(
        X, y, SquaredError(), linear_state(3), "constant", eta0=1e10
    )
    sampler = uniform_kernel(np.random.PCG64(seed), N_ROWS)
    done, _ = run_draws(problem, sampler, 10 * N_ROWS)
    assert done < 10 * N_ROWS


def test_points_carry_what_the_batch_door_needs(data, seed):
    _, y = data
    kernel = strata_kernel(StrataSampler(), np.random.PCG64(seed), (y > 0).astype(int))
    points = kernel.draw_points(9)
    assert points.dtype == POINT
    assert ((points["i"] >= 0) & (points["i"] < N_ROWS)).all()
    assert (points["q"] > 0).all()
    assert (points["norm2"] == 0).all()
    assert (points["cost"] == 1).all()


@pytest.mark.parametrize("sampler", [UniformSampler, StrataSampler, LevelSampler])
def test_a_draw_costs_one(sampler, data, seed):
    """Whatever was in the memory that the points are drawn into."""
    X, y = data
    problem = frozen(X, y, linear_state(3))
    table = RowSpace(None, (X**2).sum(axis=1))
    setting = sampler()
    setting.prepare(table, 1, 2, None)
    view = ProblemView((y > 0).astype(np.int32), problem.first_norms2())
    kernel = setting.open(table, view, 0, np.random.PCG64(seed))
    batch = np.zeros(64, dtype=POINT)
    batch["cost"] = 7
    assert run(problem, kernel, 64, batch, np.zeros(len(SUMS))) == 64
    assert (batch["cost"] == 1).all()
    assert (kernel.draw_points(64)["cost"] == 1).all()


@pytest.mark.parametrize("rule", ["constant", "adagrad"])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_the_batch_door_takes_the_steps_of_the_loop(layout, rule, data, seed):
    X, y = data
    X[::2, 1] = 0
    states, found = [linear_state(3), linear_state(3)], []
    for state, by_hand in zip(states, (False, True), strict=True):
        problem = linear_problem(
            layout(X), y, LogLoss(), state, rule, l2=0.01, eta0=0.3
        )
        kernel = strata_kernel(
            StrataSampler(), np.random.PCG64(seed), (y > 0).astype(int)
        )
        if by_hand:
            points = kernel.draw_points(20)
            problem.step_points(points, 1 / points["q"])
            kernel.observe_points(points)
        else:
            points = np.zeros(20, dtype=POINT)
            run(problem, kernel, 20, points, np.zeros(len(SUMS)))
        found.append((points, kernel.densities()))
    for name in ("coef", "intercept", "squares", "clock"):
        np.testing.assert_array_equal(states[0][name], states[1][name])
    assert found[0][0].tobytes() == found[1][0].tobytes()
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_every_point_has_a_weight(data, seed):
    X, y = data
    points = uniform_kernel(np.random.PCG64(seed), N_ROWS).draw_points(4)
    with pytest.raises(ValueError, match="4 points have 3 weights"):
        frozen(X, y, linear_state(3)).step_points(points, np.ones(3))


def test_defaults_of_the_interfaces():
    assert Problem().penalty() == 0
    np.testing.assert_array_equal(Sampler().stratum_probabilities(), [1])
    assert Sampler().patience == 1
    assert POINT.itemsize == 8 * len(POINT.names)
