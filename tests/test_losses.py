"""Losses: values, derivatives, convexity and the far ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn_awsgd._kernels._rows import Rows

from sklearn_awsgd._factorization.row_solver import evaluate_loss, make_loss
from sklearn_awsgd._kernels import _batch, _losses

EPSILON = 0.3
# Each loss with its formula in NumPy and the places where it has a kink in z.
LOSSES = {
    "log_loss": (_losses.LogLoss(), lambda y, z: np.logaddexp(0, -y * z)),
    "hinge": (_losses.Hinge(1.0), lambda y, z: np.maximum(0, 1 - y * z)),
    "perceptron": (_losses.Hinge(0.0), lambda y, z: np.maximum(0, -y * z)),
    "squared_hinge": (
        _losses.SquaredHinge(),
        lambda y, z: np.maximum(0, 1 - y * z) ** 2,
    ),
    "modified_huber": (
        _losses.ModifiedHuber(),
        lambda y, z: np.where(y * z < -1, -4 * y * z, np.maximum(0, 1 - y * z) ** 2),
    ),
    "squared_error": (_losses.SquaredError(), lambda y, z: (y - z) ** 2 / 2),
    "huber": (
        _losses.Huber(EPSILON),
        lambda y, z: np.where(
            np.abs(y - z) <= EPSILON,
            (y - z) ** 2 / 2,
            EPSILON * (np.abs(y - z) - EPSILON / 2),
        ),
    ),
    "epsilon_insensitive": (
        _losses.EpsilonInsensitive(EPSILON),
        lambda y, z: np.maximum(0, np.abs(y - z) - EPSILON),
    ),
    "squared_epsilon_insensitive": (
        _losses.SquaredEpsilonInsensitive(EPSILON),
        lambda y, z: np.maximum(0, np.abs(y - z) - EPSILON) ** 2,
    ),
}
KINKS = {"hinge": [1], "perceptron": [0], "epsilon_insensitive": [-EPSILON, EPSILON]}
# Where a second derivative jumps.
BENDS = [-1, 1, -EPSILON, EPSILON]
# The largest second derivative, as `_finish` is told.
SMOOTHNESS = {
    "log_loss": 0.25,
    "hinge": np.inf,
    "perceptron": np.inf,
    "squared_hinge": 2.0,
    "modified_huber": 2.0,
    "squared_error": 1.0,
    "huber": 1.0,
    "epsilon_insensitive": np.inf,
    "squared_epsilon_insensitive": 2.0,
}
MARGIN_LOSSES = {"log_loss", "hinge", "perceptron", "squared_hinge", "modified_huber"}

signs = st.sampled_from([-1.0, 1.0])
predictions = st.floats(-30, 30)
each_loss = pytest.mark.parametrize("name", LOSSES)


def evaluate(name, y, z):
    value, derivative = LOSSES[name][0](np.array([y]), np.array([z]))
    return value[0], derivative[0]


@each_loss
@given(y=signs, z=predictions)
def test_values(name, y, z):
    np.testing.assert_allclose(
        evaluate(name, y, z)[0], LOSSES[name][1](y, z), rtol=1e-12, atol=4e-16
    )


@each_loss
@given(y=signs, z=predictions)
def test_derivatives_by_finite_differences(name, y, z):
    position = y * z if name in MARGIN_LOSSES else z - y
    h = 1e-5
    if any(abs(position - kink) < 2 * h for kink in KINKS.get(name, ())):
        return
    formula = LOSSES[name][1]
    slope = (formula(y, z + h) - formula(y, z - h)) / (2 * h)
    np.testing.assert_allclose(evaluate(name, y, z)[1], slope, rtol=1e-5, atol=2e-5)


@each_loss
@given(y=signs, z=predictions)
def test_second_derivatives_by_finite_differences(name, y, z):
    position = y * z if name in MARGIN_LOSSES else z - y
    h = 1e-5
    if any(abs(position - kink) < 2 * h for kink in [*BENDS, *KINKS.get(name, ())]):
        return
    slope = (evaluate(name, y, z + h)[1] - evaluate(name, y, z - h)[1]) / (2 * h)
    second = LOSSES[name][0].second_derivatives(np.array([y]), np.array([z]))[0]
    np.testing.assert_allclose(second, slope, rtol=1e-5, atol=1e-8)


@each_loss
@given(y=signs, z=predictions, other=predictions)
def test_smoothness_bounds_the_second_derivative(name, y, z, other):
    """And the change of the derivative; it is reached, and infinite at a kink."""
    loss, smoothness = LOSSES[name][0], SMOOTHNESS[name]
    second = loss.second_derivatives(np.array([y, y]), np.array([z, other]))
    assert (second >= 0).all()
    assert (second <= smoothness).all()
    change = abs(evaluate(name, y, z)[1] - evaluate(name, y, other)[1])
    if np.isfinite(smoothness):
        assert change <= smoothness * abs(z - other) * (1 + 1e-9) + 1e-12
    assert loss.smoothness == smoothness


@pytest.mark.parametrize("z", [-1e3, 1e3, -1e150, 1e150])
@each_loss
def test_second_derivatives_at_the_far_ends(name, z):
    y = np.array([-1.0, 1.0])
    second = LOSSES[name][0].second_derivatives(y, np.array([z, z]))
    assert np.isfinite(second).all()
    assert (second >= 0).all()


@each_loss
@given(y=signs, z=predictions, other=predictions)
def test_derivatives_are_subgradients(name, y, z, other):
    """f(other) >= f(z) + f'(z) (other - z): convex, at the kinks as well."""
    value, derivative = evaluate(name, y, z)
    bound = value + derivative * (other - z)
    assert evaluate(name, y, other)[0] >= bound - 1e-12 * (1 + abs(bound) + abs(value))


@each_loss
@pytest.mark.parametrize("y", [-1.0, 1.0])
@pytest.mark.parametrize("z", [-1e3, 1e3, -1e150, 1e150])
def test_far_ends_do_not_overflow(name, y, z):
    value, derivative = evaluate(name, y, z)
    assert np.isfinite(value)
    assert np.isfinite(derivative)
    np.testing.assert_allclose(value, LOSSES[name][1](y, z), rtol=1e-12)


def test_log_loss_derivative_has_full_precision_at_both_ends():
    z = np.array([-700.0, -40.0, 40.0, 700.0])
    _, derivative = _losses.LogLoss()(np.ones(4), z)
    np.testing.assert_allclose(derivative, [-1, -1, -np.exp(-40), -np.exp(-700)])


def exact_pass(loss, y, z):
    """Return losses, derivatives and curvatures of rows as exact passes have them.

    One feature, z, and a pass for each row in which only that row has mass.
    """
    curvatures, result = np.empty(len(y)), []
    for mass in np.eye(len(y)):
        gradients, sums = np.empty((2, 2)), np.empty((2, 3))
        X, v = Rows(z[:, None]), np.array([1.0, 0.0])
        _batch.evaluate(X, loss, y, mass, v, gradients, sums, curvatures)
        result.append((sums[:, 0].sum(), gradients[:, 1].sum()))
    return *np.array(result).T, curvatures


@pytest.mark.parametrize("name", LOSSES)
@given(rows=st.lists(st.tuples(signs, predictions), min_size=1, max_size=20))
def test_exact_passes_have_the_losses_of_single_rows(name, rows):
    loss = LOSSES[name][0]
    y, z = np.array(rows).T.copy()
    losses, derivatives, curvatures = exact_pass(loss, y, z)
    expected, expected_derivatives = loss(y, z)
    np.testing.assert_allclose(losses, expected, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(derivatives, expected_derivatives, rtol=1e-14)
    # p (1 - p) of single rows loses digits next to p = 1, the others do not.
    np.testing.assert_allclose(
        curvatures, loss.second_derivatives(y, z), rtol=1e-13, atol=4e-16
    )


def test_log_loss_of_exact_passes_at_the_far_ends():
    z = np.array([0.0, 1e-300, 40.0, 690.0, 800.0, 1e300, np.inf])
    for sign in (1.0, -1.0):
        for y in (1.0, -1.0):
            parts = [
                exact_pass(_losses.LogLoss(), np.array([y]), np.array([sign * one]))
                for one in z
            ]
            losses, derivatives, curvatures = np.array(parts)[..., 0].T
            np.testing.assert_allclose(
                losses, np.logaddexp(0, -y * sign * z), rtol=1e-14, atol=1e-300
            )
            # p of margins beyond 700 is rounded up to exp(-700).
            p = np.exp(-np.logaddexp(0, y * sign * z))
            np.testing.assert_allclose(derivatives, -y * p, rtol=1e-13, atol=1e-300)
            assert (curvatures >= 0).all()
            assert (curvatures <= 0.25).all()
    for column in exact_pass(_losses.LogLoss(), np.ones(1), np.array([np.nan]))[:2]:
        assert np.isnan(column).all()


@pytest.mark.parametrize(
    ("name", "targets"), [("log_loss", [0.0, 0.3, 1.0]), ("poisson", [0.0, 1.0, 7.0])]
)
def test_losses_of_entries_equal_their_twins(name, targets):
    """Also far out, where only the cut keeps exp finite."""
    y, z = map(np.ravel, np.meshgrid(targets, [-300.0, -2.0, 0.0, 1.5, 40.0, 300.0]))
    loss = make_loss(name, EPSILON)
    expected = evaluate_loss(name, EPSILON, y, z)
    found = *loss(y, z), loss.second_derivatives(y, z)
    for ours, twin in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, twin, rtol=1e-13, atol=1e-15)
    assert (found[2] <= loss.smoothness).all()
