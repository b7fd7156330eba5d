"""Conjugate gradients: against an exact solve, and what they say of what is left."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._kernels.settings import Penalty
from sklearn_awsgd._linear import tasks
from sklearn_awsgd._linear.curvature import MOST_PARAMETERS
from sklearn_awsgd._linear.phases.conjugate import ConjugateSteps


def one_hot(rng, n=1500, n_levels=300, n_features=3):
    """Return rows with a one in each of some groups of columns, and targets."""
    levels = rng.integers(n_levels, size=(n, n_features)) ** 2 // n_levels
    columns = levels + n_levels * np.arange(n_features)
    places = columns.ravel(), n_features * np.arange(n + 1)
    X = sparse.csr_array((np.ones(columns.size), *places))
    X.resize((n, n_levels * n_features))
    return X, X @ rng.standard_normal(X.shape[1]) + rng.standard_normal(n) + 5


def solve(X, y, P, alpha, fit_intercept):
    """Return the minimum of least squares with an l2 penalty, and where it is."""
    A = np.column_stack([X.toarray(), np.ones(len(y))])
    ridge = np.append(np.full(X.shape[1], alpha), 0.0)
    if not fit_intercept:
        A[:, -1], ridge[-1] = 0.0, 1.0
    v = np.linalg.solve((A.T * P) @ A + np.diag(ridge), A.T @ (P * y))
    return P @ (A @ v - y) ** 2 / 2 + ridge @ v**2 / 2, v


def value_of(model, X, y, P):
    residuals = X @ model.coef_.ravel() + model.intercept_[0] - y
    return P @ residuals**2 / 2 + model.alpha / 2 * np.sum(model.coef_**2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_optimum_of_an_exact_solve(fit_intercept, weighted, dtype, rng):
    X, y = one_hot(rng)
    weight = rng.gamma(1.0, size=len(y)) if weighted else np.ones(len(y))
    P = weight / weight.sum()
    best, v = solve(X, y, P, 1e-3, fit_intercept)
    reg = AWSGDRegressor(alpha=1e-3, tol=1e-12, fit_intercept=fit_intercept)
    reg.fit(X.astype(dtype), y, sample_weight=weight if weighted else None)
    # Coefficients are as exact as the rows.
    rtol, rounding = (1e-5, 1e-10) if dtype == np.float64 else (1e-4, 1e-6)
    np.testing.assert_allclose(reg.coef_, v[:-1], rtol=rtol, atol=rtol)
    np.testing.assert_allclose(reg.intercept_[0], v[-1], rtol=rtol)
    assert (reg.history_["phase"] == "exact").all()  # nothing was drawn
    assert value_of(reg, X, y, P) - best <= rounding * best


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-4, 1e-6])
def test_the_tolerance_is_kept_and_certified(tol, rng):
    X, y = one_hot(rng)
    P = np.full(len(y), 1 / len(y))
    for alpha in (1e-1, 1e-3, 1e-6):
        best, _ = solve(X, y, P, alpha, True)
        reg = AWSGDRegressor(alpha=alpha, tol=tol).fit(X, y)
        excess = value_of(reg, X, y, P) - best
        assert excess <= reg.duality_gap_[0] * (1 + 1e-9) + 1e-12
        assert reg.duality_gap_[0] <= tol * best * (1 + tol) * 1.2


def test_signs_of_two_classes(rng):
    X, y = one_hot(rng)
    labels = np.where(y > np.quantile(y, 0.8), "many", "few")
    signs = np.where(labels == "many", 1.0, -1.0)
    P = np.full(len(y), 1 / len(y))
    best, _ = solve(X, signs, P, 1e-3, True)
    clf = AWSGDClassifier("squared_error", alpha=1e-3, tol=1e-6).fit(X, labels)
    assert value_of(clf, X, signs, P) <= best * (1 + 1e-6)


class Matrix:
    """A curvature as conjugate gradients see it."""

    def __init__(self, matrix, alpha):
        self.matrix, self.alpha = matrix, alpha
        self.diagonal = np.diagonal(matrix).copy()

    def __matmul__(self, vector):
        return self.matrix @ vector


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 40),
    spread=st.floats(0, 4),
    alpha=st.sampled_from([1e-6, 1e-3, 1.0]),
)
def test_what_is_left_is_an_upper_bound(seed, d, spread, alpha):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((2 * d, d)) * 10.0 ** rng.uniform(-spread / 2, 0, d)
    H, c = A.T @ A / (2 * d) + alpha * np.eye(d), rng.standard_normal(d)
    w = rng.standard_normal(d)
    best = -c @ np.linalg.solve(H, c) / 2
    value = w @ H @ w / 2 - c @ w
    steps = ConjugateSteps(Matrix(H, alpha), w, value, H @ w - c)
    rounding = 1e-7 * (abs(best) + abs(value))
    for _ in range(d):
        now = steps.w @ H @ steps.w / 2 - c @ steps.w
        np.testing.assert_allclose(steps.value, now, rtol=1e-6, atol=rounding)
        assert steps.left >= now - best - rounding
        steps.step()


def test_a_warm_start_goes_on(rng):
    X, y = one_hot(rng)
    reg = AWSGDRegressor(alpha=1e-4, tol=1e-8, warm_start=True).fit(X, y)
    n_passes = reg.n_iter_
    reg.set_params(alpha=1.1e-4).fit(X, y)
    assert reg.n_iter_ < n_passes
    best, _ = solve(X, y, np.full(len(y), 1 / len(y)), 1.1e-4, True)
    assert value_of(reg, X, y, np.full(len(y), 1 / len(y))) <= best * (1 + 1e-7)


def test_draws_that_are_asked_for_are_made(rng):
    X, y = one_hot(rng)
    reg = AWSGDRegressor(alpha=1e-4, sampler="level", random_state=0).fit(X, y)
    assert (reg.history_["phase"] == "sampling").any()
    best, _ = solve(X, y, np.full(len(y), 1 / len(y)), 1e-4, True)
    assert value_of(reg, X, y, np.full(len(y), 1 / len(y))) <= best * (1 + 1e-3)


@pytest.mark.parametrize("max_iter", [1, 2, 4, 6])
def test_passes_that_are_over_are_told(max_iter, rng):
    X, y = one_hot(rng)
    reg = AWSGDRegressor(alpha=1e-7, tol=1e-10, max_iter=max_iter, random_state=0)
    with pytest.warns(ConvergenceWarning, match="tol=1e-10 was not reached"):
        reg.fit(X, y)
    assert reg.n_iter_ == max_iter
    P = np.full(len(y), 1 / len(y))
    excess = value_of(reg, X, y, P) - solve(X, y, P, 1e-7, True)[0]
    assert excess <= reg.duality_gap_[0] * (1 + 1e-9)


def test_threads_change_no_bit(rng):
    X, y = one_hot(rng, n=40_000)
    one, two = (AWSGDRegressor(alpha=1e-4, n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_numbers_out_of_range_are_told(rng):
    X, y = one_hot(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        reg = AWSGDRegressor(alpha=1e-4).fit(1e150 * X, y)
    assert np.isfinite(reg.coef_).all()


# --- when features are too many for a matrix of their curvature -----------------------


def is_wide(X, n_models=1, is_smooth=True, alpha=0.1):
    """Return what a task of these rows says."""
    facts = {"n_samples": X.shape[0], "n_features": X.shape[1], "n_models": n_models}
    facts |= {"data": SimpleNamespace(X=X), "is_smooth": is_smooth}
    facts |= {"penalty": Penalty(l2=alpha)}
    return tasks.Task.is_wide.fget(SimpleNamespace(**facts))


def test_short_rows_are_wide_where_a_matrix_would_cost_many_passes(rng):
    X, _ = one_hot(rng)
    assert is_wide(X)
    # A pass takes longer if it is over all numbers of an array, over many more rows, or
    # for many models.
    assert not is_wide(X.toarray())
    assert not is_wide(sparse.vstack([X] * 40).tocsr())
    assert not is_wide(X, n_models=60)
    assert not is_wide(X[:, :150])
    assert not is_wide(X, is_smooth=False)
    assert not is_wide(X, alpha=0.0)
    assert is_wide(np.zeros((10, MOST_PARAMETERS)))


@pytest.mark.parametrize("loss", ["log_loss", "huber", "squared_hinge", "hinge"])
def test_short_rows_have_the_optimum_of_long_ones(loss, rng):
    X, y = one_hot(rng, n=800)
    kinds = AWSGDRegressor if loss == "huber" else AWSGDClassifier
    target = y if loss == "huber" else y > np.quantile(y, 0.8)
    short, long = (
        kinds(loss=loss, alpha=1e-3, tol=1e-7, random_state=0).fit(rows, target)
        for rows in (X, X.toarray())
    )
    ends = [model.history_["objective"][-1] for model in (short, long)]
    np.testing.assert_allclose(*ends, rtol=1e-6)
