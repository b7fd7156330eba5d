"""What a Newton step does beside sums over the rows: kernels and their twins."""

import numpy as np
import pytest
from scipy.linalg import LinAlgError

from sklearn_awsgd._kernels import _newton


def positive_matrix(rng, n=7, scales=(1e-6, 1e6)):
    A = rng.standard_normal((2 * n, n)) * np.geomspace(*scales, n)
    return A.T @ A


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n_columns", [None, 1, 4])
def test_cholesky_solves_columns_of_any_scale(order, n_columns, rng):
    matrix = positive_matrix(rng)
    x = rng.standard_normal(7 if n_columns is None else (7, n_columns))
    upper = np.array(np.triu(matrix), order=order)
    before = upper.copy()
    scale = np.sqrt(np.diagonal(matrix)) * np.ones(x.T.shape)
    found = _newton.Cholesky(upper)(matrix @ (x.T / scale).T)
    np.testing.assert_allclose(found.T * scale, x.T, rtol=1e-6)
    np.testing.assert_array_equal(upper, before)


def test_the_diagonal_is_enlarged_until_there_is_a_factor(rng):
    matrix = np.ones((3, 3))
    matrix[0, 1] = 1 + 1e-6
    g = np.array([1.0, 1.0, 1.0])
    x = _newton.Cholesky(matrix)(g)
    assert np.isfinite(x).all()
    assert g @ x > 0
    with pytest.raises(LinAlgError, match="not positive definite"):
        _newton.Cholesky(np.array([[0.0, 1e305], [1e305, 0.0]]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("given", [np.float32, np.float64])
@pytest.mark.parametrize("some", [False, True])
def test_weighted_rows(some, given, dtype, rng):
    X = rng.standard_normal((9, 4)).astype(given)
    rows = np.array([1, 3, 3, 8]) if some else None
    roots = rng.random(4 if some else 9)
    A = np.column_stack([X, np.ones(9)]).astype(dtype)[
        slice(None) if rows is None else rows
    ]
    expected = (A * roots[:, None]).astype(dtype)
    found = _newton.weigh_rows(X, rows, roots, np.dtype(dtype))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_value_gradient_and_dual_point_from_sums(fit_intercept, rng):
    gradients, sums = rng.standard_normal((2, 5)), rng.standard_normal((2, 3))
    gradients[:, -1] = -0.2, 0.5
    v, alpha = rng.standard_normal(5), 0.3
    value, gradient, size = _newton.assess(gradients, sums, v, alpha, fit_intercept)
    w = v[:-1]
    np.testing.assert_allclose(value, sums[:, 0].sum() + alpha / 2 * w @ w)
    expected = gradients.sum(axis=0) + alpha * np.append(w, 0)
    expected[-1] *= fit_intercept
    np.testing.assert_allclose(gradient, expected)
    np.testing.assert_allclose(size, np.abs(sums[:, :2]).sum())
    # The side with the larger sum is scaled down.
    scale = np.array([1.0, 0.4]) if fit_intercept else np.ones(2)
    bound, mean, spare = _newton.dual_point(gradients, sums, fit_intercept)
    spared = scale * (1 - scale) @ sums[:, 2]
    np.testing.assert_allclose(bound, scale @ (sums[:, 0] - sums[:, 1]) + spared)
    np.testing.assert_allclose(spare, scale**2 @ sums[:, 2])
    np.testing.assert_allclose(mean, scale @ gradients[:, :-1])


def test_the_mixture_of_dual_points_has_the_best_bound(rng):
    alpha, shares = 0.4, np.linspace(0, 1, 1001)
    inside = 0
    for _ in range(20):
        values, means = rng.standard_normal(2), rng.standard_normal((2, 4))
        mixed = np.outer(1 - shares, means[0]) + np.outer(shares, means[1])
        bounds = values[0] + shares * (values[1] - values[0])
        bounds -= (mixed**2).sum(axis=1) / (2 * alpha)
        value, mean = _newton.mix(values[0], means[0], values[1], means[1], alpha)
        np.testing.assert_allclose(
            value - mean @ mean / (2 * alpha), bounds.max(), 1e-5
        )
        inside += 0 < bounds.argmax() < 1000
    assert inside > 3


def test_mirrored(rng):
    matrix = positive_matrix(rng, scales=(1, 1))
    found = _newton.mirrored(np.triu(matrix), 3.0)
    np.testing.assert_array_equal(found, 3.0 * np.maximum(matrix, matrix.T))
