"""Linear steps: every rate and penalty equals a NumPy twin, dense and sparse alike."""

import numpy as np
import pytest
from helpers import (
    linear_problem,
    linear_state,
    linear_twin,
    run_draws,
    shuffle_twin,
    stream,
    uniform_kernel,
)
from scipy import sparse
from sklearn_awsgd._kernels._losses import LogLoss

N_ROWS, N_FEATURES, N_PASSES = 25, 6, 4

RATES = {
    "constant": {"eta0": 0.2},
    "optimal": {"eta0": 1.0, "alpha": 0.03, "t0": 10.0},
    "invscaling": {"eta0": 0.5, "power_t": 0.4},
    "adagrad": {"eta0": 0.3},
    "rmsprop": {"eta0": 0.02},
    "adadelta": {"eta0": 1.0},
}
PENALTIES = {
    "none": {"l1": 0.0, "l2": 0.0},
    "l2": {"l1": 0.0, "l2": 0.03},
    "l1": {"l1": 0.02, "l2": 0.0},
    "elasticnet": {"l1": 0.01, "l2": 0.02},
}
each_rate = pytest.mark.parametrize("rate", RATES)
each_penalty = pytest.mark.parametrize("penalty", PENALTIES)


@pytest.fixture
def data(rng):
    """Sparse rows, an empty row, a feature that is never there, and masses."""
    X = rng.standard_normal((N_ROWS, N_FEATURES))
    X[rng.random(X.shape) < 0.5] = 0
    X[4], X[:, 3] = 0, 0
    y = np.where(rng.random(N_ROWS) < 0.4, 1.0, -1.0)
    mass = rng.uniform(0.2, 2, N_ROWS)
    return X, y, mass / mass.sum()


def draws_of(seed, mass):
    """The draws of shuffled passes and their weights 1/q."""
    rng = stream(seed)[1]
    order, draws = range(len(mass)), []
    for _ in range(N_PASSES):
        order = shuffle_twin(rng, order)
        draws += order
    return draws, len(mass) * mass[draws]


def check_equal(state, expected, names=("coef", "intercept")):
    for name in names:
        np.testing.assert_allclose(state[name], expected[name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("average_start", [0, 1, 37])
@each_penalty
@each_rate
def test_steps_equal_the_twin(rate, penalty, average_start, layout, data, seed):
    X, y, mass = data
    arguments = {**RATES[rate], **PENALTIES[penalty], "average_start": average_start}
    state, expected = linear_state(N_FEATURES), linear_state(N_FEATURES)
    rows = X if layout == "dense" else sparse.csr_array(X)
    problem = linear_problem(rows, y, LogLoss(), state, rate, **arguments)
    sampler = uniform_kernel(np.random.PCG64(seed), N_ROWS, mass)
    _, sums = run_draws(problem, sampler, N_PASSES * N_ROWS)
    loss, norm2 = linear_twin(X, y, *draws_of(seed, mass), expected, rate, **arguments)
    check_equal(state, expected)
    check_equal(state, expected, ["average_coef", "average_intercept"])
    np.testing.assert_allclose([sums["loss"], sums["norm2"]], [loss, norm2], rtol=1e-10)
    assert state["clock"][0] == N_PASSES * N_ROWS
    if average_start:
        assert state["average_clock"][0] == N_PASSES * N_ROWS - average_start + 1


@pytest.mark.parametrize("average_start", [0, 37])
@each_penalty
@each_rate
def test_lazy_steps_equal_eager_ones_across_runs(
    rate, penalty, average_start, data, seed
):
    """Flushing after each draw applies all penalties eagerly: nothing may change."""
    X, y, mass = data
    arguments = {**RATES[rate], **PENALTIES[penalty], "average_start": average_start}
    states = []
    for piece in (1, N_PASSES * N_ROWS):
        state = linear_state(N_FEATURES)
        problem = linear_problem(
            sparse.csr_array(X), y, LogLoss(), state, rate, **arguments
        )
        sampler = uniform_kernel(np.random.PCG64(seed), N_ROWS, mass)
        for _ in range(N_PASSES * N_ROWS // piece):
            run_draws(problem, sampler, piece)
        states.append(state)
    check_equal(*states)
    check_equal(*states, ["average_coef", "average_intercept", "average_clock"])


@pytest.mark.parametrize("layout", ["dense", "csr"])
@each_penalty
@each_rate
def test_steps_from_given_coefficients(rate, penalty, layout, data, seed, rng):
    """A coefficient whose feature has not come yet is not lost to the penalty."""
    X, y, mass = data
    coef = rng.standard_normal(N_FEATURES)
    arguments = {**RATES[rate], **PENALTIES[penalty], "average_start": 0}
    state, expected = linear_state(N_FEATURES, coef), linear_state(N_FEATURES, coef)
    rows = X if layout == "dense" else sparse.csr_array(X)
    problem = linear_problem(rows, y, LogLoss(), state, rate, **arguments)
    sampler = uniform_kernel(np.random.PCG64(seed), N_ROWS, mass)
    run_draws(problem, sampler, N_PASSES * N_ROWS)
    linear_twin(X, y, *draws_of(seed, mass), expected, rate, **arguments)
    check_equal(state, expected)
    if rate in ("adagrad", "rmsprop", "adadelta"):
        assert state["coef"][3] == coef[3]


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_strong_shrinkage_does_not_lose_digits(layout, data, seed):
    """The common scale of the coefficients is folded in many times here."""
    X, y, mass = data
    arguments = {"eta0": 0.5, "l1": 0.001, "l2": 20.0, "average_start": 10}
    state, expected = linear_state(N_FEATURES), linear_state(N_FEATURES)
    rows = X if layout == "dense" else sparse.csr_array(X)
    problem = linear_problem(rows, y, LogLoss(), state, "constant", **arguments)
    sampler = uniform_kernel(np.random.PCG64(seed), N_ROWS, mass)
    run_draws(problem, sampler, N_PASSES * N_ROWS)
    linear_twin(X, y, *draws_of(seed, mass), expected, "constant", **arguments)
    check_equal(state, expected)
    check_equal(state, expected, ["average_coef", "average_intercept"])


@pytest.mark.parametrize("rate", ["constant", "adagrad"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_strong_l1_penalty_gives_exact_zeros(layout, rate, data, seed):
    X, y, mass = data
    state = linear_state(N_FEATURES)
    rows = X if layout == "dense" else sparse.csr_array(X)
    problem = linear_problem(rows, y, LogLoss(), state, rate, l1=5.0, eta0=0.1)
    run_draws(problem, uniform_kernel(np.random.PCG64(seed), N_ROWS, mass), 200)
    assert (state["coef"] == 0).all()
    assert state["intercept"][0] != 0
    assert problem.penalty() == 0


def test_penalty_value(data, rng):
    X, y, _ = data
    coef = rng.standard_normal(N_FEATURES)
    state = linear_state(N_FEATURES, coef)
    problem = linear_problem(
        X, y, LogLoss(), state, "constant", l1=0.2, l2=0.6, eta0=0.1
    )
    expected = 0.3 * coef @ coef + 0.2 * np.abs(coef).sum()
    np.testing.assert_allclose(problem.penalty(), expected, rtol=1e-14)


def test_no_intercept_when_none_is_fitted(data, seed):
    from sklearn_awsgd import AWSGDClassifier

    X, y, _ = data
    clf = AWSGDClassifier(
        fit_intercept=False,
        sampler="uniform",
        learning_rate="constant",
        max_iter=3,
        tol=None,
        random_state=seed,
    ).fit(X, y)
    assert clf.intercept_ == 0
