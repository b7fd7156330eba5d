"""How a fit goes: the trial of the learned sampler, and the exact end."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD

from sklearn_awsgd import AWSGDMatrixFactorization
from sklearn_awsgd._factorization.finish import AlternatingSolver
from sklearn_awsgd._linear.blocks import Blocks


def noisy(shape=(60, 40), rank=4, seed=0):
    rng = np.random.default_rng(seed)
    n, m = shape
    signal = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, m))
    return signal + 0.3 * rng.normal(size=shape)


def direct_objective(X, solver):
    """The objective of a solver, entry by entry."""
    X = X.toarray() if sparse.issparse(X) else X
    u, b = solver.rows[:, :-1], solver.gain * solver.rows[:, -1]
    v, c = solver.columns[:, :-1], solver.gain * solver.columns[:, -1]
    z = solver.baseline + b[:, None] + c + u @ v.T
    ridge = (solver.rows**2).sum(axis=1)[:, None] + (solver.columns**2).sum(axis=1)
    return np.mean((X - z) ** 2 / 2 + solver.ridge / 2 * ridge)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("gain", [0.0, 1.3])
@pytest.mark.parametrize("at_once", [True, False])
def test_alternating_solutions_are_the_minima_of_each_side(kind, gain, at_once):
    rng = np.random.default_rng(0)
    X = kind(np.where(rng.random((60, 40)) < 0.5, noisy(), 0))
    rows, columns = rng.normal(size=(60, 4)), rng.normal(size=(40, 4))
    if not gain:
        rows[:, -1] = columns[:, -1] = 0
    blocks = Blocks(X, 2, [slice(0, 25), slice(25, 60)])
    scales = 0.2 if gain else 0.0, gain, 0.03
    solver = AlternatingSolver(blocks, rows, columns, *scales, at_once)
    assert solver.objective() == pytest.approx(direct_objective(X, solver))
    for solve, side in (
        (solver.solve_columns, solver.columns),
        (solver.solve_rows, solver.rows),
        (solver.solve_columns, solver.columns),
    ):
        solve()
        best = solver.objective()
        assert best == pytest.approx(direct_objective(X, solver))
        free = side[:, : 4 if gain else 3]
        for _ in range(20):
            move = 1e-3 * rng.normal(size=free.shape)
            free += move
            assert solver.objective() > best
            free -= move


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_objective_of_a_close_fit_is_precise(dtype):
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(300, 3)), rng.normal(size=(200, 3))
    X = (U @ V.T + 1e-3 * rng.normal(size=(300, 200)) + 5).astype(dtype)
    rows = np.column_stack([U, np.zeros(300)])
    columns = np.column_stack([V, np.zeros(200)])
    solver = AlternatingSolver(Blocks(X), rows, columns, 5, 1, 0.0)
    assert solver.objective() == pytest.approx(direct_objective(X, solver), rel=1e-4)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_default_fit_of_a_full_matrix_is_that_of_the_svd(kind):
    X = noisy()
    svd = TruncatedSVD(4, algorithm="arpack").fit(X)
    best = np.mean((X - svd.inverse_transform(svd.transform(X))) ** 2)
    model = AWSGDMatrixFactorization(4, alpha=0, tol=1e-6, random_state=0)
    model.fit(kind(X))
    assert 2 * model.reconstruction_err_ == pytest.approx(best, rel=1e-4)
    assert set(model.history_["phase"]) == {"sampling", "exact"}
    # The factors of the fit are those of transform: rows are solved last.
    np.testing.assert_allclose(
        np.mean((model.predict(X) - X) ** 2), 2 * model.reconstruction_err_, rtol=1e-6
    )
    exact = model.history_["objective"][model.history_["phase"] == "exact"]
    assert (np.diff(exact) <= 1e-12).all()


def test_biases_are_solved_too():
    rng = np.random.default_rng(1)
    X = noisy(rank=2) + 5 * rng.normal(size=(60, 1)) + 3 * rng.normal(size=40) + 20
    errors = [
        AWSGDMatrixFactorization(2, fit_bias=bias, alpha=1e-4, tol=1e-3, random_state=0)
        .fit(X)
        .reconstruction_err_
        for bias in (True, False)
    ]
    # Noise of 0.3 is left with biases; without them two factors are not enough.
    assert errors[0] < 0.5 * 0.3**2
    assert errors[1] > 5 * errors[0]


@pytest.mark.parametrize(
    "setting",
    [
        {"tol": None},
        {"learning_rate": "constant"},
        {"learning_rate": "inverse"},
        {"loss": "huber"},
        {"step": "gradient", "eta0": 1e-3},
    ],
)
@pytest.mark.filterwarnings("ignore:The objective was still falling")
def test_other_settings_make_draws_only(setting):
    model = AWSGDMatrixFactorization(2, max_iter=4, random_state=0, **setting)
    model.fit(noisy())
    assert set(model.history_["phase"]) == {"sampling"}
    assert model.t_ > model.n_iter_ * 60 * 40


def test_missing_entries_and_weights_make_draws_only():
    X = noisy()
    weights = np.random.default_rng(0).uniform(0.5, 2, size=X.shape)
    holes = np.where(weights < 1, np.nan, X)
    for fit in (
        lambda model: model.fit(holes),
        lambda model: model.fit(X, entry_weight=weights),
    ):
        model = fit(AWSGDMatrixFactorization(2, tol=0.05, random_state=0))
        assert set(model.history_["phase"]) == {"sampling"}


def test_max_iter_counts_solutions():
    X = noisy()
    for max_iter, expected in ((1, 1), (2, 2), (3, 3), (4, 3), (6, 5)):
        model = AWSGDMatrixFactorization(2, max_iter=max_iter, tol=0, random_state=0)
        with pytest.warns(match="max_iter"):
            model.fit(X)
        assert model.n_iter_ == expected


@pytest.mark.parametrize("missing", [False, True])
def test_auto_keeps_what_pays(missing):
    X = noisy((80, 60))
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X)
    X = X if missing else noisy((80, 60))
    settings = {"max_iter": 4, "tol": None, "random_state": 0}
    alike = AWSGDMatrixFactorization(4, **settings).fit(X)
    assert alike.variance_gain_ == 1
    # The trial leaves nothing behind but what was learned about sampling.
    assert alike.t_ == 1 + 4 * np.isfinite(X).sum()
    X[:3] *= 100
    uneven = AWSGDMatrixFactorization(4, **settings).fit(X)
    assert uneven.variance_gain_ > 1.5
    heavy, light = np.split(uneven.row_probabilities_, [3])
    assert heavy.min() > 2 * light.mean()


def test_auto_without_gain_fits_as_well_as_uniform():
    # From the same factors, with another random order.
    X = noisy()
    errors = [
        AWSGDMatrixFactorization(
            4, sampler=sampler, max_iter=6, tol=None, random_state=0
        )
        .fit(X)
        .reconstruction_err_
        for sampler in ("auto", "uniform")
    ]
    assert errors[0] == pytest.approx(errors[1], rel=0.2)


def test_poisson_without_biases_begins_at_the_mean():
    rng = np.random.default_rng(0)
    X = rng.poisson(500, size=(40, 30)).astype(float)
    model = AWSGDMatrixFactorization(
        2, loss="poisson", max_iter=1, tol=None, eta0=1e-9, random_state=0
    )
    z = np.log(model.fit(X).predict(X))
    assert np.abs(z - np.log(500)).max() < 0.5
    assert model.reconstruction_err_ < 0.1 * 500
