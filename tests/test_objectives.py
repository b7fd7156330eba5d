"""Objectives: values, gradients and curvatures, exact and sampled."""

from itertools import pairwise

import numpy as np
import pytest
from helpers import SMOOTH_LOSSES, linear_objective
from scipy import sparse
from scipy.optimize import minimize_scalar

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd._linear.curvature import InverseCurvature, systematic_sample
from sklearn_awsgd._linear.objectives import best_constant
from sklearn_awsgd._linear.phases.descent import Trail
from sklearn_awsgd._linear.softmax_objective import SoftmaxObjective
from sklearn_awsgd._linear.softmax_sums import SoftmaxSums
from sklearn_awsgd._linear.sums import MANY_COLUMNS

each_layout = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])


def finite_difference(F, v, h=1e-6):
    steps = h * np.eye(len(v))
    return np.array([(F(v + e) - F(v - e)) / (2 * h) for e in steps])


def rows(rng, layout=np.asarray, n_rows=40, n_features=3):
    X = rng.standard_normal((n_rows, n_features))
    X[rng.random(X.shape) < 0.3] = 0
    return layout(X), (X**2).sum(axis=1)


def random_mass(rng, n_rows=40):
    mass = rng.integers(0, 4, n_rows) * rng.uniform(0.5, 1, n_rows)
    return mass / mass.sum()


@each_layout
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_gradient_and_hessian_of_linear_objective(
    loss, fit_intercept, weighted, layout, rng
):
    X, norms2 = rows(rng, layout)
    y = np.where(rng.random(40) < 0.4, 1.0, -1.0)
    mass = random_mass(rng) if weighted else None
    compiled = SMOOTH_LOSSES[loss](AWSGDClassifier(epsilon=0.7))
    F = linear_objective(X, compiled, y, mass, norms2, 0.1, fit_intercept)
    v = rng.standard_normal(4)
    v[-1] *= fit_intercept
    point = F(v)
    P = np.full(40, 1 / 40) if mass is None else mass
    z = np.asarray(X @ v[:-1] + v[-1])
    value = P @ compiled(y, z)[0] + 0.05 * v[:-1] @ v[:-1]
    np.testing.assert_allclose(point.value, value, rtol=1e-12)
    slope = finite_difference(lambda v: F(v).value, v)
    free = slice(None) if fit_intercept else slice(-1)
    np.testing.assert_allclose(point.gradient[free], slope[free], atol=1e-6)
    if not fit_intercept:
        assert point.gradient[-1] == 0
    np.testing.assert_allclose(point.curvatures, compiled.second_derivatives(y, z))
    upper, _ = F.hessian(point, 40, rng, 0.0)
    expected = finite_difference(lambda v: F(v).gradient, v)
    np.testing.assert_allclose(
        np.triu(upper)[free, free], np.triu(expected)[free, free], atol=1e-5
    )


@each_layout
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_gradient_and_hessian_of_multinomial_objective(
    fit_intercept, weighted, layout, rng
):
    X, norms2 = rows(rng, layout)
    codes = rng.integers(0, 3, 40).astype(np.int32)
    mass = random_mass(rng) if weighted else None
    sums = SoftmaxSums(Blocks(X), codes, 3, mass, norms2)
    F = SoftmaxObjective(sums, 0.1, fit_intercept)
    V = rng.standard_normal((3, 4))
    V[:, -1] *= fit_intercept
    v = V.ravel()
    point = F(v)
    P = np.full(40, 1 / 40) if mass is None else mass
    Z = X @ V[:, :-1].T + V[:, -1]
    losses = np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(40), codes]
    value = P @ losses + 0.05 * (V[:, :-1] ** 2).sum()
    np.testing.assert_allclose(point.value, value, rtol=1e-12)
    free = np.tile([True, True, True, fit_intercept], 3)
    slope = finite_difference(lambda v: F(v).value, v)
    np.testing.assert_allclose(point.gradient[free], slope[free], atol=1e-6)
    assert (point.gradient[~free] == 0).all()
    sample = sums.sample(v, point.curvatures, 40, rng)
    hessian = F._hessian(sample, 0.0)
    expected = finite_difference(lambda v: F(v).gradient, v)
    # The intercepts' common shift is pinned by a constant.
    pin = (hessian - expected)[3::4, 3::4]
    if fit_intercept:
        assert pin.min() > 0
        np.testing.assert_allclose(pin, pin[0, 0], atol=1e-5)
        expected[3::4, 3::4] += pin[0, 0]
    used = np.ix_(free, free)
    np.testing.assert_allclose(hessian[used], expected[used], atol=1e-5)
    assert np.linalg.eigvalsh(hessian).min() > 0
    # With the largest floor it bounds the curvature everywhere.
    bound = F._hessian(sample, 1.0)
    other = F(3 * rng.standard_normal(12))
    for there in (point, other):
        sampled = sums.sample(there.v, there.curvatures, 40, rng)
        rest = bound - F._hessian(sampled, 0.0)
        assert np.linalg.eigvalsh(rest[used].reshape(free.sum(), -1)).min() > -1e-6
    # The same predictions, and the gradient does not move along a common shift.
    canonical = F.canonical(v)
    np.testing.assert_allclose(canonical.reshape(3, 4)[:, -1].sum(), 0, atol=1e-12)
    np.testing.assert_allclose(F(canonical).value, point.value, rtol=1e-12)


class FixedUniform:
    """A generator whose uniform number is known."""

    def __init__(self, u):
        self.u = u

    def random(self):
        return self.u


@pytest.mark.parametrize("n_rows", [1, 3, 10, 25])
def test_systematic_samples_are_unbiased_by_enumeration(n_rows, rng):
    """What is drawn is constant between the places where a row enters or leaves."""
    size = rng.lognormal(sigma=2, size=30)
    size[[3, 7]] = 0
    edges = np.sort(-(np.cumsum(size) * (n_rows / size.sum())) % 1)
    edges = np.concatenate([[0], edges, [1]])
    mean, n_drawn = np.zeros(30), 0.0
    for low, high in pairwise(edges):
        if high - low < 1e-13:
            continue
        chosen, times = systematic_sample(size, n_rows, FixedUniform((low + high) / 2))
        assert len(np.unique(chosen)) == len(chosen)
        mean[chosen] += (high - low) * times
        n_drawn += (high - low) * (times * size[chosen]).sum()
    np.testing.assert_allclose(mean, size > 0, atol=1e-9)
    np.testing.assert_allclose(n_drawn, size.sum(), rtol=1e-9)


def test_systematic_sample_of_all_rows(rng):
    size = np.array([1.0, 0.0, 5.0])
    for n_rows in (3, 10):
        chosen, times = systematic_sample(size, n_rows, rng)
        np.testing.assert_array_equal(chosen, [0, 2])
        np.testing.assert_array_equal(times, 1)
    chosen, _ = systematic_sample(np.zeros(4), 2, rng)
    assert len(chosen) == 0


def test_sampled_hessian_is_unbiased_by_enumeration(rng):
    X, norms2 = rows(rng)
    y = np.where(rng.random(40) < 0.4, 1.0, -1.0)
    loss = SMOOTH_LOSSES["log_loss"](None)
    F = linear_objective(X, loss, y, None, norms2, 0.1, True)
    point = F(rng.standard_normal(4))
    full, _ = F.hessian(point, 40, rng, 0.0)
    size = point.curvatures / 40 * (norms2 + 1)
    edges = np.sort(-(np.cumsum(size) * (10 / size.sum())) % 1)
    edges = np.concatenate([[0], edges, [1]])
    mean = sum(
        (high - low) * F.hessian(point, 10, FixedUniform((low + high) / 2), 0.0)[0]
        for low, high in pairwise(edges)
    )
    np.testing.assert_allclose(mean, full, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e16])
def test_sampled_hessian_of_many_columns(scale, rng):
    """It may be formed in single precision, unless that would overflow."""
    X = scale * rng.standard_normal((500, MANY_COLUMNS))
    norms2 = (X**2).sum(axis=1)
    y = np.where(rng.random(500) < 0.4, 1.0, -1.0)
    loss = SMOOTH_LOSSES["log_loss"](None)
    F = linear_objective(X, loss, y, None, norms2, 0.1, True)
    point = F(np.zeros(MANY_COLUMNS + 1))
    hessian, _ = F.hessian(point, 300, FixedUniform(0.5), 0.0)
    size = point.curvatures / 500 * (norms2 + 1)
    chosen, times = systematic_sample(size, 300, FixedUniform(0.5))
    weights = times * point.curvatures[chosen] / 500
    expected = (X[chosen].T * weights) @ X[chosen] + 0.1 * np.eye(MANY_COLUMNS)
    hessian = hessian[:-1, :-1]
    sizes = np.sqrt(np.diagonal(expected))
    np.testing.assert_allclose(
        np.triu(hessian) / sizes / sizes[:, None],
        np.triu(expected) / sizes / sizes[:, None],
        atol=1e-6,
    )


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_best_constant(loss, weighted, real, rng):
    y = rng.standard_normal(40) + 1
    if not real:
        y = np.where(y > 2, 1.0, -1.0)
    elif loss in ("log_loss", "squared_hinge", "modified_huber"):
        pytest.skip("A loss of classes.")
    mass = random_mass(rng) if weighted else None
    P = np.full(40, 1 / 40) if mass is None else mass
    compiled = SMOOTH_LOSSES[loss](AWSGDClassifier(epsilon=0.5))

    def mean_loss(b):
        return P @ compiled(y, np.full(40, b))[0]

    lowest = minimize_scalar(mean_loss, (-1.0, 1.0), tol=1e-12).fun
    assert mean_loss(best_constant(compiled, y, mass)) <= lowest * (1 + 1e-3) + 1e-12


def test_inverse_curvature_satisfies_its_pairs(rng):
    A = rng.normal(size=(8, 8))
    hessian, diagonal = A @ A.T + np.eye(8), rng.random(8) + 0.1
    inverse = InverseCurvature.from_diagonal(diagonal)
    np.testing.assert_allclose(inverse @ np.ones(8), 1 / diagonal)
    for _ in range(3):
        step = rng.normal(size=8)
        inverse.update(step, hessian @ step)
        # The secant equation, and symmetry.
        np.testing.assert_allclose(inverse @ (hessian @ step), step)
        full = np.column_stack([inverse @ e for e in np.eye(8)])
        np.testing.assert_allclose(full, full.T, atol=1e-12)
        assert np.linalg.eigvalsh((full + full.T) / 2).min() > 0


def test_what_is_left_of_a_geometric_series():
    trail = Trail(None, None)
    trail.reached = [3.0 + 2.0 * 0.7**k for k in range(10)]
    for n_steps in (1, 2, 4):
        assert trail.rest(n_steps) == pytest.approx(2.0 * 0.7**9)
    # Too few steps, and gains that do not fall.
    assert trail.rest(5) == np.inf
    trail.reached = [3.0, 2.0, 1.0]
    assert trail.rest(1) == np.inf
    trail.reached = [1.0, 1.0, 1.0]
    assert trail.rest(1) == np.inf


def test_the_scale_of_a_diagonal_does_not_matter_once_there_is_a_pair(rng):
    diagonal, step, g = rng.random(5) + 0.1, rng.normal(size=5), rng.normal(size=5)
    change = step * (rng.random(5) + 0.5)
    products = []
    for scale in (1e-3, 1.0, 1e3):
        inverse = InverseCurvature.from_diagonal(scale * diagonal)
        inverse.update(step, change)
        products.append(inverse @ g)
    np.testing.assert_allclose(products, [products[0]] * 3)
    other = InverseCurvature.from_diagonal(np.ones(5))
    replaced = InverseCurvature.from_diagonal(diagonal)
    for one in (other, replaced):
        one.update(step, change)
    replaced.replace(InverseCurvature.from_diagonal(np.full(5, 7.0)))
    np.testing.assert_allclose(replaced @ g, other @ g)
