"""How a fit goes: the trial of the learned sampler, and the exact end."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd import AWSGDMatrixFactorization
from sklearn_awsgd._factorization import observed as observed_entries
from sklearn_awsgd._factorization.costs import solving_pays
from sklearn_awsgd._factorization.entries import EntryData, check_entries
from sklearn_awsgd._factorization.finish import (
    AlternatingSolver,
    ObservedSolver,
    Scales,
)
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd.sources import IndexedRows


def noisy(shape=(60, 40), rank=4, seed=0):
    rng = np.random.default_rng(seed)
    n, m = shape
    signal = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, m))
    return signal + 0.3 * rng.normal(size=shape)


def direct_objective(X, solver):
    """The objective of a solver, entry by entry."""
    X = X.toarray() if sparse.issparse(X) else X
    u, b = solver.rows[:, :-1], solver.scales.gain * solver.rows[:, -1]
    v, c = solver.columns[:, :-1], solver.scales.gain * solver.columns[:, -1]
    z = solver.scales.baseline + b[:, None] + c + u @ v.T
    ridge = (solver.rows**2).sum(axis=1)[:, None] + (solver.columns**2).sum(axis=1)
    return np.mean((X - z) ** 2 / 2 + solver.scales.ridge / 2 * ridge)


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
    scales = Scales("squared_error", 1.0, 0.03, 0.2 if gain else 0.0, gain)
    solver = AlternatingSolver(blocks, rows, columns, scales, at_once)
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


@pytest.mark.parametrize("kind", ["dense", "sparse", "wide indices", "single"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("gain", [0.0, 1.3])
def test_solutions_of_observed_entries_are_the_minima(
    kind, weighted, gain, monkeypatch
):
    rng = np.random.default_rng(0)
    # A row without entries, a row with more than are gathered at a time, a zero.
    X, observed = noisy((60, 150)), rng.random((60, 150)) < 0.4
    observed[7], observed[8], X[8, 0] = False, True, 0.0
    weights = rng.uniform(0.5, 2, size=X.shape) if weighted else np.ones(X.shape)
    weights = np.where(observed, weights, 0)
    weights /= weights.sum() / observed.sum()
    if kind == "dense":
        data = EntryData(X, observed, weights if weighted else None, "missing")
    else:
        index = np.int64 if kind == "wide indices" else np.int32
        X = X.astype(np.float32 if kind == "single" else np.float64)
        start = np.append(0, observed.sum(axis=1).cumsum()).astype(index)
        where = np.nonzero(observed)[1].astype(index), start
        kept = sparse.csr_array((weights[observed], *where), shape=X.shape)
        data = sparse.csr_array((X[observed], *where), shape=X.shape)
        data = EntryData(data, None, kept if weighted else None, "missing")
    rows, columns = rng.normal(size=(60, 4)), rng.normal(size=(150, 4))
    if not gain:
        rows[:, -1] = columns[:, -1] = 0
    scales = Scales("squared_error", 1.0, 0.03, 0.2 if gain else 0.0, gain)
    solver = ObservedSolver(data, rows, columns, scales, n_threads=2)

    def direct():
        u, b = rows[:, :-1], gain * rows[:, -1]
        v, c = columns[:, :-1], gain * columns[:, -1]
        error = (X - (solver.scales.baseline + b[:, None] + c + u @ v.T)) ** 2
        ridge = (rows**2).sum(axis=1)[:, None] + (columns**2).sum(axis=1)
        return np.sum(weights * (error + 0.03 * ridge)) / 2 / weights.sum()

    for solve, side in ((solver.solve_columns, columns), (solver.solve_rows, rows)):
        solve()
        best = direct()
        free = side[:, : 4 if gain else 3]
        for _ in range(20):
            move = 1e-3 * rng.normal(size=free.shape)
            free += move
            assert direct() > best
            free -= move
    assert solver.objective() == pytest.approx(best)
    np.testing.assert_array_equal(rows[7], 0)
    # Rows are solved one by one, in whatever thread.
    solver.solve_rows()
    kept = rows.copy()
    monkeypatch.setattr(observed_entries, "PART_SIZE", 500)
    solver.solve_rows()
    np.testing.assert_array_equal(rows, kept)


@pytest.mark.parametrize("seed", range(4))
def test_ratings_end_at_a_minimum_on_every_seed(seed):
    # Few entries for each row: draws alone came to rest far from it, for their rate
    # falls, and on some seeds farther than on others.
    rng = np.random.default_rng(0)
    truth = 0.25 * rng.normal(size=(300, 4)) @ rng.normal(size=(4, 150))
    truth += 3 + rng.normal(scale=0.4, size=150) + rng.normal(size=truth.shape) / 2
    shown = np.where(rng.random(truth.shape) < 0.1, truth, np.nan)
    settings = {"alpha": 0.2, "fit_bias": True, "random_state": seed}
    model = AWSGDMatrixFactorization(5, **settings).fit(shown)
    longer = AWSGDMatrixFactorization(5, tol=1e-6, max_iter=5000, **settings).fit(shown)
    objective, least = (m.history_["objective"][-1] for m in (model, longer))
    assert least <= objective <= 1.01 * least
    draws = AWSGDMatrixFactorization(5, tol=None, max_iter=60, **settings).fit(shown)
    assert draws.history_["objective"][-1] > 1.03 * least


def test_solutions_are_left_out_where_they_cost_too_much():
    shape = 300, 250
    X = np.where(np.random.default_rng(0).random(shape) < 0.5, noisy(shape), np.nan)
    data = check_entries(X, None, np.nan, "missing", "squared_error")
    assert solving_pays(data, "squared_error", 40, data.n_entries)
    assert not solving_pays(data, "squared_error", 200, data.n_entries)
    model = AWSGDMatrixFactorization(200, max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model.fit(X)
    assert model.n_iter_ == 3
    # That draws have come to rest says less, and is told.
    model.set_params(max_iter=100, tol=0.5)
    with pytest.warns(ConvergenceWarning, match="n_components=200.*Lower tol"):
        model.fit(X)
    assert set(model.history_["phase"]) == {"sampling"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_objective_of_a_close_fit_is_precise(dtype):
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(300, 3)), rng.normal(size=(200, 3))
    X = (U @ V.T + 1e-3 * rng.normal(size=(300, 200)) + 5).astype(dtype)
    rows = np.column_stack([U, np.zeros(300)])
    columns = np.column_stack([V, np.zeros(200)])
    scales = Scales("squared_error", 1.0, ridge=0.0, baseline=5, gain=1)
    solver = AlternatingSolver(Blocks(X), rows, columns, scales)
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
        {"step": "gradient", "eta0": 1e-3},
    ],
)
@pytest.mark.filterwarnings("ignore:The objective was still falling")
def test_other_settings_make_draws_only(setting):
    model = AWSGDMatrixFactorization(2, max_iter=4, random_state=0, **setting)
    model.fit(noisy())
    assert set(model.history_["phase"]) == {"sampling"}
    assert model.t_ > model.n_iter_ * 60 * 40


def test_where_fits_end_exactly():
    X = noisy()
    weights = np.random.default_rng(0).uniform(0.5, 2, size=X.shape)
    holes = np.where(weights < 1, np.nan, X)
    for fit, exact in (
        (lambda model: model.fit(holes), True),
        (lambda model: model.fit(holes, entry_weight=weights), True),
        (lambda model: model.fit(X, entry_weight=weights), True),
        (lambda model: model.set_params(loss="huber").fit(holes), True),
        (lambda model: model.fit(IndexedRows(holes)), True),
        (lambda model: model.set_params(loss="huber").fit(IndexedRows(X)), True),
        (lambda model: model.set_params(step="gradient").fit(holes), False),
    ):
        model = fit(AWSGDMatrixFactorization(2, tol=0.05, random_state=0))
        assert ("exact" in model.history_["phase"]) == exact


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
    # With more heavy rows the gain is close to where "auto" decides: a matter of luck.
    X[:1] *= 100
    uneven = AWSGDMatrixFactorization(4, **settings).fit(X)
    assert uneven.variance_gain_ > 1.5
    heavy, light = np.split(uneven.row_probabilities_, [1])
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
