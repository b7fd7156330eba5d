"""Where a fit ends, against independent solvers: weights, losses, zeros and holes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import minimize

from sklearn_awsgd import AWSGDMatrixFactorization
from sklearn_awsgd._factorization import row_solver
from sklearn_awsgd._factorization.costs import solving_pays
from sklearn_awsgd._factorization.entries import check_entries
from sklearn_awsgd._factorization.row_solver import solve_rows
from sklearn_awsgd.sources import IndexedRows

SHAPE, RANK, ALPHA = (60, 40), 3, 0.03
LOSSES = ["squared_error", "huber", "log_loss", "poisson"]


def problem(loss, kind, seed=0):
    """Return X for fit, all values, and all weights, zero where missing."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(SHAPE[0], RANK)) @ rng.normal(size=(RANK, SHAPE[1])) / 2
    X = {
        "squared_error": lambda: z + 0.3 * rng.normal(size=SHAPE),
        "huber": lambda: z + 0.3 * rng.standard_t(2, size=SHAPE),
        "log_loss": lambda: (rng.random(SHAPE) < 1 / (1 + np.exp(-3 * z))) * 1.0,
        "poisson": lambda: rng.poisson(np.exp(z)) * 1.0,
    }[loss]()
    weights = rng.uniform(0.2, 3, size=SHAPE)
    if kind == "zeros":
        X = np.where(rng.random(SHAPE) < 0.3, X, 0)
        weights = np.where(X != 0, 3 * weights, 1)
        return sparse.csr_array(X), X, weights
    if kind == "missing":
        weights = np.where(rng.random(SHAPE) < 0.4, weights, 0)
        return np.where(weights > 0, X, np.nan), X, weights
    return X, X, weights


def stored(values, weights):
    """Return the weights of what is stored."""
    return sparse.csr_array(np.where(values != 0, weights, 0))


def make_objective(model, X, weights):
    """Return the objective of factors and its gradient, from all cells."""
    weights = weights / weights.sum()
    n, (ridge, epsilon) = len(X), (model._ridge, model._epsilon)

    def of_loss(z):
        r = z - X
        if model.loss == "squared_error":
            return r * r / 2, r
        if model.loss == "huber":
            inside = np.abs(r) <= epsilon
            outside = epsilon * (np.abs(r) - epsilon / 2)
            return np.where(inside, r * r / 2, outside), np.clip(r, -epsilon, epsilon)
        if model.loss == "log_loss":
            return np.logaddexp(0, z) - X * z, 1 / (1 + np.exp(-z)) - X
        return np.exp(z) - X * z, np.exp(z) - X

    def objective(factors):
        factors = factors.reshape(sum(X.shape), -1)
        u, v = factors[:n], factors[n:]
        value, slope = of_loss(u @ v.T)
        a, b = weights.sum(axis=1)[:, None], weights.sum(axis=0)[:, None]
        value = np.sum(weights * value)
        value += ridge / 2 * (np.sum(a * u * u) + np.sum(b * v * v))
        slope = weights * slope
        gradient = slope @ v + ridge * a * u, slope.T @ u + ridge * b * v
        return value, np.concatenate(gradient).ravel()

    return objective


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["full", "zeros", "missing"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("tol", [0.002, 1e-4])
def test_fits_end_near_a_minimum(loss, kind, seed, tol):
    X, values, weights = problem(loss, kind)
    # What may be left of the way. Rounds are slow where entries say little: zeros and
    # holes, of losses that are lines far from their minimum.
    left = {0.002: 0.003, 1e-4: 5e-4}[tol]
    if loss != "squared_error" and kind != "full":
        left = {0.002: 0.06, 1e-4: 0.01}[tol]
    given = stored(values, weights) if kind == "zeros" else weights
    model = AWSGDMatrixFactorization(
        RANK, loss=loss, alpha=ALPHA, tol=tol, max_iter=1000, random_state=seed
    )
    model.fit(X, entry_weight=given)
    assert model.history_["phase"][-1] == "exact"
    objective = make_objective(model, values, weights)
    data = model._check_X(X, entry_weight=given)
    end = np.concatenate([model._row_factors(data), model.components_.T]).ravel()
    # Rows are as good as solved at the end, and the history has their objective.
    found = objective(end)[0]
    least = minimize(objective, end, jac=True, method="L-BFGS-B").fun
    start = objective(0.1 * np.random.default_rng(0).normal(size=end.size))[0]
    assert found <= model.history_["objective"][-1] + 1e-9
    assert model.history_["objective"][-1] - found <= 0.01 * (start - least)
    assert found - least <= left * (start - least)
    exact = model.history_["objective"][model.history_["phase"] == "exact"]
    assert (np.diff(exact) <= 1e-12).all()


def alternate_in_numpy(X, weights, ridge, n_rounds):
    """Return the objective after some rounds of ridge regressions, row by row."""
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(X.shape[1], RANK))

    def solve(X, weights, v):
        systems = np.einsum("ij,jk,jl->ikl", weights, v, v)
        systems += ridge * weights.sum(axis=1)[:, None, None] * np.eye(RANK)
        return np.linalg.solve(systems, ((weights * X) @ v)[:, :, None])[:, :, 0]

    for _ in range(n_rounds):
        rows = solve(X, weights, columns)
        columns = solve(X.T, weights.T, rows)
    squares = np.sum(rows**2, axis=1)[:, None] + np.sum(columns**2, axis=1)
    cells = (X - rows @ columns.T) ** 2 + ridge * squares
    return np.sum(weights * cells) / 2 / weights.sum()


@pytest.mark.parametrize("kind", ["full", "zeros", "missing"])
def test_weighted_fits_reach_what_alternating_regressions_do(kind):
    X, values, weights = problem("squared_error", kind)
    model = AWSGDMatrixFactorization(
        RANK, alpha=ALPHA, tol=1e-6, max_iter=2000, random_state=0
    )
    given = stored(values, weights) if kind == "zeros" else weights
    model.fit(X, entry_weight=given)
    least = alternate_in_numpy(values, weights, model._ridge, 1000)
    assert_allclose(model.history_["objective"][-1], least, rtol=1e-3)


@pytest.mark.parametrize(
    ("loss", "kind"), [("squared_error", "missing"), *((a, "full") for a in LOSSES[1:])]
)
def test_sources_end_where_matrices_do(loss, kind):
    X, _, _ = problem(loss, kind)
    settings = {"loss": loss, "alpha": ALPHA, "tol": 1e-5, "max_iter": 4000}
    model = AWSGDMatrixFactorization(RANK, random_state=0, **settings)
    near, far = (
        model.fit(given).history_["objective"][-1] for given in (X, IndexedRows(X))
    )
    assert model.history_["phase"][-1] == "exact"
    assert_allclose(far, near, rtol=5e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["full", "zeros", "missing", "stored"])
def test_rows_with_many_columns_have_their_own_products(loss, kind, monkeypatch):
    X, values, weights = problem(loss, "missing" if kind == "stored" else kind)
    unstored = "zero"
    if kind == "zeros":
        weights = stored(values, weights)
    if kind == "stored":
        where = np.nonzero(weights)
        X = sparse.csr_array((values[where], where), shape=SHAPE)
        weights = sparse.csr_array((weights[where], where), shape=SHAPE)
        unstored = "missing"
    data = check_entries(X, weights, np.nan, unstored, loss)
    v = np.random.default_rng(0).normal(size=(SHAPE[1], 3))
    arguments = data, v, np.full(SHAPE[1], 0.1), loss, 0.7, 0.02
    shared = solve_rows(*arguments)
    monkeypatch.setattr(row_solver, "LARGEST_PRODUCTS", 0)
    assert_allclose(solve_rows(*arguments), shared, rtol=1e-6, atol=1e-8)
    if kind == "missing":
        # Stored or not, what is observed is the same.
        assert_allclose(solve_rows(data.as_sparse(), *arguments[1:]), shared, rtol=1e-6)


def test_zeros_that_are_not_stored_are_not_free():
    # Losses other than the squared error look at each of them.
    X = sparse.random_array((2000, 1000), density=0.004, rng=0, format="csr")
    X.data[:] = 1
    data = check_entries(X, None, np.nan, "zero", "log_loss")
    assert not solving_pays(data, "log_loss", 5, 2 * X.nnz)
    assert solving_pays(data, "squared_error", 5, 2 * X.nnz)
    # On small data it takes next to no time.
    few = check_entries(X[:100], None, np.nan, "zero", "log_loss")
    assert solving_pays(few, "log_loss", 5, 2 * X[:100].nnz)
    data = check_entries(X, X, np.nan, "zero", "squared_error")
    assert solving_pays(data, "squared_error", 5, 2 * X.nnz)


def test_rows_that_cannot_be_solved_are_named():
    X, _, _ = problem("squared_error", "missing")
    model = AWSGDMatrixFactorization(RANK, random_state=0).fit(X)
    # Squares of these overflow.
    model.components_ = 1e200 * model.components_
    with pytest.raises(ValueError, match="60 of 60 rows or columns could not"):
        model.transform(X)
