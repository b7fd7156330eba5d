"""Factorizations on partitions end where those of all rows do, or below."""

import warnings

import numpy as np
import pytest
from joblib import Parallel, delayed
from scipy import sparse

from sklearn_awsgd import AWSGDMatrixFactorization
from sklearn_awsgd._factorization.columns import EquationSolver, column_equations
from sklearn_awsgd._factorization.entries import check_entries
from sklearn_awsgd._factorization.finish import Scales
from sklearn_awsgd._factorization.row_solver import evaluate_loss
from sklearn_awsgd._partitions import factorization
from sklearn_awsgd.partitions import MatrixPartition, factorize_partitions

N_ROWS, N_COLUMNS = 150, 12


def cut(X, weights=None, bounds=(40, 40, 110)):
    """Return partitions of unequal size; between equal bounds there is an empty one."""
    edges = [0, *bounds, X.shape[0]]
    slices = [slice(*edges[k : k + 2]) for k in range(len(edges) - 1)]
    return [
        MatrixPartition(X[s], None if weights is None else weights[s], number)
        for number, s in enumerate(slices)
    ]


def runner(partitions):
    return lambda function, *arguments: [function(p, *arguments) for p in partitions]


@pytest.fixture
def matrix(rng):
    """Return a matrix of rank three with noise, and a place for holes in it."""
    left, right = rng.normal(size=(N_ROWS, 3)), rng.normal(size=(3, N_COLUMNS))
    X = left @ right + 0.5 * rng.normal(size=(N_ROWS, N_COLUMNS)) + 1
    return X, rng.random(X.shape) < 0.4


KINDS = ["dense", "holes", "zeros", "stored", "weights", "stored weights"]


def as_kind(kind, X, holes, rng):
    """Return X, weights and settings of the estimator."""
    weights = rng.integers(0, 4, size=X.shape).astype(float) if "w" in kind else None
    if kind == "holes":
        return np.where(holes, np.nan, X), weights, {}
    if kind in ("dense", "weights"):
        return X, weights, {}
    unstored = "zero" if kind == "zeros" else "missing"
    return sparse.csr_array(np.where(holes, 0, X)), weights, {"unstored": unstored}


def entries_of(loss, matrix):
    X, holes = matrix
    if loss == "log_loss":
        return (X > 1).astype(float), holes
    return (np.rint(np.abs(X)), holes) if loss == "poisson" else (X, holes)


@pytest.mark.parametrize("fit_bias", [False, True])
@pytest.mark.parametrize("kind", ["dense", "zeros"])
def test_the_same_optimum(kind, fit_bias, matrix, rng):
    X, _, settings = as_kind(kind, *matrix, rng)
    settings |= {"n_components": 3, "alpha": 0.1, "fit_bias": fit_bias}
    settings["random_state"] = 0
    local = AWSGDMatrixFactorization(tol=1e-9, max_iter=5000, **settings).fit(X)
    for partitions in (cut(X), cut(X, bounds=range(15, 150, 15))):
        model = AWSGDMatrixFactorization(tol=1e-9, max_iter=5000, **settings)
        factorize_partitions(model, runner(partitions))
        objective, expected = (m.history_["objective"][-1] for m in (model, local))
        np.testing.assert_allclose(objective, expected, rtol=1e-6)
        np.testing.assert_allclose(
            model.reconstruction_err_, local.reconstruction_err_, rtol=1e-4
        )
        # The error is that of the rows as they are solved for.
        mean_loss = model._mean_loss(
            model._check_X(X), model._row_factors(model._check_X(X))
        )
        np.testing.assert_allclose(model.reconstruction_err_, mean_loss, rtol=1e-9)


@pytest.mark.parametrize("loss", ["squared_error", "huber", "log_loss", "poisson"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_loss_and_kind_of_matrix(kind, loss, matrix, rng):
    """The objective never rises, and ends near that of rows in one place."""
    X, weights, settings = as_kind(kind, *entries_of(loss, matrix), rng)
    settings |= {"n_components": 3, "loss": loss, "random_state": 0, "fit_bias": True}
    settings |= {"tol": 1e-5, "max_iter": 1000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        local = AWSGDMatrixFactorization(**settings).fit(X, entry_weight=weights)
    model = AWSGDMatrixFactorization(**settings)
    factorize_partitions(model, runner(cut(X, weights)))
    history = model.history_
    exact = history["objective"][history["phase"] == "exact"]
    assert len(exact) > 1
    assert np.all(np.diff(exact) <= 1e-12 * abs(exact[0]))
    assert exact[-1] <= local.history_["objective"][-1] * (1 + 1e-3)
    assert model.reconstruction_err_ <= 1.1 * local.reconstruction_err_
    np.testing.assert_allclose(model.global_bias_, local.global_bias_, rtol=1e-9)
    data = model._check_X(X, entry_weight=weights)
    mean_loss = model._mean_loss(data, model._row_factors(data))
    np.testing.assert_allclose(model.reconstruction_err_, mean_loss, rtol=1e-6)


def scales_of(loss, gain, is_common=False):
    return Scales(loss, 0.7, 0.1, 0.3 * (gain > 0), gain, is_common)


@pytest.mark.parametrize("gain", [0.0, 1.5])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["squared_error", "huber", "log_loss", "poisson"])
def test_equations_are_derivatives(loss, kind, gain, matrix, rng):
    """By the envelope theorem, also with the rows solved anew for the columns."""
    X, weights, settings = as_kind(kind, *entries_of(loss, matrix), rng)
    data = check_entries(X, weights, np.nan, settings.get("unstored", "zero"), loss)
    scales = scales_of(loss, gain)
    size = 3 + (gain > 0)
    columns = rng.normal(size=(N_COLUMNS, 4))
    columns[:, size:] = 0
    sums = column_equations(data, columns, scales)
    slope = sums.gradient + scales.ridge * sums.mass[:, None] * columns[:, :size]
    direction = rng.normal(size=(N_COLUMNS, size))
    values = []
    for move in (-1e-5, 1e-5):
        there = columns.copy()
        there[:, :size] += move * direction
        equations = column_equations(data, there, scales)
        values.append(equations.objective(there[:, :size], scales.ridge))
    numerical = (values[1] - values[0]) / 2e-5
    # Parabolas above "huber" come near the solution of a row, no nearer.
    rtol = 1e-3 if loss == "huber" else 1e-5
    np.testing.assert_allclose(np.sum(slope * direction), numerical, rtol=rtol)


@pytest.mark.parametrize("gain", [0.0, 1.5])
@pytest.mark.parametrize("kind", ["dense", "zeros"])
def test_common_equations_are_those_of_the_cells(kind, gain, matrix, rng):
    X, _, _ = as_kind(kind, *matrix, rng)
    data = check_entries(X, None, np.nan, "zero", "squared_error")
    columns = rng.normal(size=(N_COLUMNS, 4))
    columns[:, 3] *= gain > 0
    cells = column_equations(data, columns, scales_of("squared_error", gain))
    scales = scales_of("squared_error", gain, is_common=True)
    common = column_equations(data, columns, scales)
    for name, expected in vars(cells).items():
        found = np.broadcast_to(getattr(common, name), np.shape(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    size = common.gradient.shape[1]
    np.testing.assert_allclose(
        common.step(columns[:, :size], scales),
        cells.step(columns[:, :size], scales_of("squared_error", gain)),
        rtol=1e-8,
    )


def test_the_step_solves_the_squared_error(matrix, rng):
    """As least squares with the ridge, column by column."""
    X, holes = matrix
    data = check_entries(np.where(holes, np.nan, X), None, np.nan, "zero", "huber")
    scales = scales_of("squared_error", 0.0)
    columns = np.column_stack([rng.normal(size=(N_COLUMNS, 3)), np.zeros(N_COLUMNS)])
    new = column_equations(data, columns, scales).step(columns[:, :3], scales)
    model = AWSGDMatrixFactorization(3)
    vars(model).update(
        components_=columns[:, :3].T,
        column_bias_=np.zeros(N_COLUMNS),
        global_bias_=0.0,
        _ridge=scales.ridge,
        _epsilon=1.0,
    )
    rows = model._solve(data)
    for j in range(N_COLUMNS):
        U, x = rows[~holes[:, j]], X[~holes[:, j], j]
        ridge = scales.ridge * len(x) * np.eye(3)
        np.testing.assert_allclose(
            new[j], np.linalg.solve(U.T @ U + ridge, U.T @ x), rtol=1e-7
        )


@pytest.mark.parametrize("loss", ["log_loss", "poisson"])
def test_steps_from_far_away_do_not_rise(loss, matrix, rng):
    X, _ = entries_of(loss, matrix)
    columns = np.column_stack([4 * rng.normal(size=(12, 3)), np.zeros(12)])
    if loss == "poisson":
        # Whole steps of this column would go from a rate of 1 to one of exp(99).
        X[:, 0] = 100
        columns[0] = 0
    data = check_entries(X, None, np.nan, "zero", loss)
    scales = Scales(loss, 1.0, 1e-4, 0.0, 1.0, is_common=False)
    last = np.inf
    for _ in range(20):
        sums = column_equations(data, columns, scales)
        objective = sums.objective(columns, scales.ridge)
        assert objective <= last
        last = objective
        columns = sums.step(columns, scales)


@pytest.mark.parametrize("loss", ["log_loss", "poisson"])
def test_bold_steps_that_were_too_long_are_taken_back(loss, matrix, rng):
    X, _ = entries_of(loss, matrix)
    columns = np.column_stack([rng.normal(size=(12, 3)), np.zeros(12)])
    if loss == "poisson":
        X[:, 0] = 100
        columns[0] = 0
    data = check_entries(X, None, np.nan, "zero", loss)
    scales = Scales(loss, 1.0, 1e-4, 0.0, 1.0, is_common=False)
    visits, objectives = [], []

    def visit(columns, scales):
        visits.append(columns)
        return column_equations(data, columns, scales)

    solver = EquationSolver(visit, None, columns, scales)
    solver.solve_rows()
    for _ in range(20):
        solver.solve_columns()
        solver.solve_rows()
        objectives.append(solver.objective())
    assert np.all(np.diff(objectives) <= 0)
    n_taken_back = len(visits) - 21
    assert (n_taken_back > 0) == (loss == "poisson")
    # Steps that cannot be too long lead less far.
    for _ in range(20):
        columns = visit(columns, scales).step(columns, scales)
    last = visit(columns, scales).objective(columns, scales.ridge)
    assert objectives[-1] < last / solver.column_masses().sum()


def test_weights_count_entries(matrix, rng):
    """A row with weights of two is two rows, whatever partition it is in."""
    X, _ = matrix
    weights = np.ones_like(X)
    weights[60:] = 2
    doubled = np.concatenate([X, X[60:]])
    settings = {
        "n_components": 3,
        "alpha": 0.1,
        "tol": 1e-9,
        "max_iter": 5000,
        "random_state": 0,
    }
    model = AWSGDMatrixFactorization(**settings)
    factorize_partitions(model, runner(cut(X, weights)))
    other = factorize_partitions(
        AWSGDMatrixFactorization(**settings), runner(cut(doubled))
    )
    np.testing.assert_allclose(
        model.history_["objective"][-1], other.history_["objective"][-1], rtol=1e-6
    )
    np.testing.assert_allclose(model.predict(X), other.predict(X), atol=1e-3)


def test_more_rows_than_are_drawn(rng, monkeypatch):
    monkeypatch.setattr(factorization, "MOST_DRAWN", 200)
    X = rng.normal(size=(1000, 3)) @ rng.normal(size=(3, 15))
    X += 0.3 * rng.normal(size=X.shape)
    settings = {
        "n_components": 3,
        "alpha": 0.1,
        "tol": 1e-9,
        "max_iter": 5000,
        "random_state": 0,
    }
    model = AWSGDMatrixFactorization(**settings)
    factorize_partitions(model, runner(cut(X, bounds=(300, 300, 450))))
    local = AWSGDMatrixFactorization(**settings).fit(X)
    np.testing.assert_allclose(
        model.history_["objective"][-1], local.history_["objective"][-1], rtol=1e-6
    )
    assert abs(len(model.row_probabilities_) - 200) <= 3
    model.partial_fit(X[:50])


def test_the_backends_of_joblib(matrix):
    X, _ = matrix
    partitions = cut(X)
    with Parallel(n_jobs=2, backend="threading") as parallel:

        def run(function, *arguments):
            return parallel(delayed(function)(p, *arguments) for p in partitions)

        model = factorize_partitions(AWSGDMatrixFactorization(3, random_state=0), run)
    plain = AWSGDMatrixFactorization(3, random_state=0)
    factorize_partitions(plain, runner(partitions))
    np.testing.assert_array_equal(model.components_, plain.components_)


def test_errors(matrix):
    X, _ = matrix
    model = AWSGDMatrixFactorization(3)
    bad = X.copy()
    bad[50, 3] = np.inf
    for partitions, text in [
        (cut(bad), "Partition 2: Input X contains infinity"),
        (cut(X[:0], bounds=()), "Found array with 0 sample"),
        (cut(np.full((9, 3), np.nan), bounds=(4,)), "X has no observed entry"),
        (cut(X, X), "Partition 0: entry_weight has a negative value"),
        ([*cut(X), MatrixPartition(X[:, :3], number=4)], "Partition 4 has n_features"),
    ]:
        with pytest.raises(ValueError, match=text):
            factorize_partitions(model, runner(partitions))
        assert not hasattr(model, "components_")
    for setting in ({"learning_rate": "constant"}, {"step": "gradient", "eta0": 0.1}):
        name = next(iter(setting))
        with pytest.raises(ValueError, match=f"{name}='{setting[name]}' needs all"):
            factorize_partitions(AWSGDMatrixFactorization(3, **setting), runner(cut(X)))
    with pytest.raises(ValueError, match="Partition 0: loss='poisson' needs entries"):
        factorize_partitions(
            AWSGDMatrixFactorization(3, loss="poisson"), runner(cut(X))
        )


def test_third_derivatives_are_no_larger_than_second_ones():
    """The damped step rests on this."""
    z = np.linspace(-6, 6, 1001)
    for loss, y in (("log_loss", 0.3), ("poisson", 2.0)):
        curvature = evaluate_loss(loss, 1.0, np.full(len(z), y), z)[2]
        third = np.gradient(curvature, z)
        assert np.all(np.abs(third)[1:-1] <= curvature[1:-1] * (1 + 1e-3))
