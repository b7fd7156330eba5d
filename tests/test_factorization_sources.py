"""Factorizations of matrices whose rows are fetched: the same model, less memory."""

import pickle
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn_awsgd._kernels._loop import SUMS

from sklearn_awsgd import AWSGDMatrixFactorization
from sklearn_awsgd._factorization.entries import check_entries
from sklearn_awsgd._factorization.fetching import SourceEntries, SourceProblem
from sklearn_awsgd._linear import fetching
from sklearn_awsgd.samplers import RowColumnSampler, UniformSampler
from sklearn_awsgd.sources import IndexedRows

N, M = 300, 50


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(fetching, "NUMBERS_READ", 2000)


def matrix(kind="dense", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3)) @ rng.normal(size=(3, M))
    X += 0.3 * rng.normal(size=X.shape)
    if kind == "columns":
        X[:, :2] *= 30
    if kind == "holes":
        # Some blocks have none.
        holes = rng.random(X.shape) < 0.4
        holes[:100] = False
        X[holes] = np.nan
    if kind in ("zeros", "missing"):
        return sparse.csr_array(np.where(rng.random(X.shape) < 0.3, X, 0))
    return X


CASES = [
    ("dense", {}),
    ("dense", {"fit_bias": True}),
    ("holes", {"max_iter": 60, "tol": None}),
    ("zeros", {}),
    ("missing", {"unstored": "missing", "max_iter": 60, "tol": None}),
    ("columns", {"sampler": "row_column"}),
    ("columns", {}),
]


@pytest.mark.parametrize(("kind", "settings"), CASES, ids=str)
def test_the_model_is_that_of_rows_in_memory(kind, settings):
    X = matrix(kind)
    settings = {"tol": 1e-5, "max_iter": 500} | settings
    model = AWSGDMatrixFactorization(3, alpha=0.02, random_state=0, **settings)
    near = model.fit(X).reconstruction_err_
    source = IndexedRows(X)
    far = model.fit(source).reconstruction_err_
    # Where there is no exact end, the noise of the last draws is left.
    assert_allclose(far, near, rtol=0.03 if settings["tol"] is None else 0.002)
    assert_allclose(model.transform(source), model.transform(X), rtol=1e-6, atol=1e-9)
    assert_allclose(model.score(source), model.score(X), rtol=1e-9)
    assert_array_equal(model.recommend(source, 4), model.recommend(X, 4))
    entries = [7, 290, 7, 120], [0, 3, 49, 20]
    assert_allclose(
        model.predict_entries(source, *entries), model.predict_entries(X, *entries)
    )
    assert model.predict_entries(source, [], []).shape == (0,)


@pytest.mark.parametrize("loss", ["huber", "poisson", "log_loss"])
def test_other_losses_read_sources(loss):
    X = matrix()
    if loss == "poisson":
        X = np.random.default_rng(0).poisson(np.exp(X / 4)).astype(float)
    if loss == "log_loss":
        X = (X > 0).astype(float)
    model = AWSGDMatrixFactorization(
        3, loss=loss, alpha=0.1, max_iter=30, tol=None, random_state=0
    )
    near = model.fit(X).reconstruction_err_
    assert_allclose(model.fit(IndexedRows(X)).reconstruction_err_, near, rtol=0.02)


class Recorder:
    """A problem in Python that remembers the points of a block."""

    def __init__(self, seen):
        self.seen = seen

    def step_points(self, points, weights):
        self.seen.append(points.copy())
        # Gradients of the first columns are larger.
        points["norm2"] = np.where(points["j"] < 3, 100.0, 1.0) * weights**2

    def penalty(self):
        return 0.0


def opened(X, sampler, n_draws, **settings):
    """Return the draws of a source, its passes, and a problem that keeps points."""
    options = {"missing_values": np.nan, "unstored": "zero", "loss": None} | settings

    def check(rows):
        return check_entries(rows, None, to_train=False, **options)

    data = SourceEntries(IndexedRows(X), check, allow_nan=True)
    data.survey()
    draws = data.draws(np.random.PCG64(0), n_draws or data.n_entries, 1, n_threads=1)
    seen = []
    state = {"rows": np.zeros((N, 8)), "row_bias": np.zeros(N)}
    problem = SourceProblem(state, lambda block, own: Recorder(seen))
    return data, draws, draws.open(sampler), problem, seen


@pytest.mark.parametrize("kind", ["dense", "holes", "missing"])
def test_a_shuffled_pass_has_every_entry_once(kind):
    X = matrix(kind)
    unstored = "missing" if kind == "missing" else "zero"
    data, draws, passes, problem, seen = opened(
        X, UniformSampler(), None, unstored=unstored
    )
    observed = X.toarray() != 0 if kind == "missing" else ~np.isnan(X)
    assert data.n_entries == observed.sum()
    with draws:
        for _ in range(2):
            seen.clear()
            sums, found, blocks = np.zeros(len(SUMS)), np.zeros((N, M)), set()
            done = 0
            # In pieces that end inside of blocks.
            while done < data.n_entries:
                size = min(777, data.n_entries - done)
                before = len(seen)
                assert passes.run(problem, size, None, sums) == size
                done += size
                blocks.add(passes._k)
                assert sum(map(len, seen[before:])) == size
            assert len(blocks) == len(draws.rows)
            assert_allclose(sums[3], data.n_entries)
    # Which rows of the matrix those of a block are, from one pass block by block.
    data, draws, passes, problem, seen = opened(
        X, UniformSampler(), None, unstored=unstored
    )
    with draws:
        for _ in draws.rows:
            passes.begin_block(problem)
            rows = draws.rows[passes._k]
            passes.run_block(passes.n_left, np.zeros(len(SUMS)))
            passes.end_block()
            points = np.concatenate(seen)
            np.add.at(found, (rows[points["i"]], points["j"]), 1)
            seen.clear()
    assert_array_equal(found, observed.astype(float))


@pytest.mark.parametrize("kind", ["dense", "holes", "zeros"])
@pytest.mark.parametrize("update", ["moments", "sgd"])
def test_learned_draws_are_unbiased_over_a_pass(kind, update):
    # With what any block has learned its densities sum to one under its P, and its
    # share of the draws is that of its entries: so is the whole.
    X = matrix(kind)
    sampler = RowColumnSampler(update=update)
    data, draws, passes, problem, seen = opened(X, sampler, 10_000)
    assert draws.n_draws.sum() == 10_000
    for rows, n_draws in zip(draws.rows, draws.n_draws, strict=True):
        share = data.row_counts[rows].sum() / data.n_entries
        assert abs(n_draws - 10_000 * share) <= 1
    with draws:
        for _ in range(3 * len(draws.rows)):
            passes.begin_block(problem)
            q, rows = passes._opened.densities(), draws.rows[passes._k]
            n_entries = data.row_counts[rows].sum()
            assert_allclose(q.sum(), n_entries, rtol=1e-12)
            passes.run_block(20, np.zeros(len(SUMS)))
            points = seen[0]
            assert_allclose(points["q"], q[points["i"], points["j"]], rtol=1e-12)
            passes.run_block(passes.n_left, np.zeros(len(SUMS)))
            passes.end_block()
            seen.clear()
    if update == "moments":
        # Steps of tau are few here.
        p = passes.column_probabilities()
        assert p[:3].mean() > 1.5 * p[3:].mean()
    if kind != "holes":
        # Else a part of the draws goes through the columns.
        assert_allclose(passes.row_probabilities().sum(), 1, rtol=1e-9)


def test_what_is_learned_of_rows_is_recalled():
    X = matrix()
    sampler = RowColumnSampler()
    _, draws, passes, problem, _ = opened(X, sampler, None)
    with draws:
        for _ in range(2 * len(draws.rows)):
            passes.begin_block(problem)
            known = passes._known[passes._k]
            table = sampler._state["table"][: len(draws.rows[passes._k])]
            if known is None:
                assert not table[:, 1].any()
            else:
                assert (table[:, 1] > 0).any()
                assert_array_equal(table[:, 1], known["table"][:, 1])
            passes.run_block(passes.n_left, np.zeros(len(SUMS)))
            passes.end_block()


class Recorded(IndexedRows):
    """Counts the rows that were asked for."""

    n_asked = longest = 0

    def take(self, indices):
        self.n_asked += len(indices)
        self.longest = max(self.longest, len(indices))
        return super().take(indices)


def test_a_round_of_exact_solutions_reads_the_rows_once():
    source = Recorded(matrix())
    model = AWSGDMatrixFactorization(3, max_iter=100, random_state=0).fit(source)
    exact = model.history_["phase"] == "exact"
    n_rounds = exact.sum()
    # The survey, a trial of at most a pass, two passes of draws, the mean loss, and
    # blocks that were read ahead.
    assert N * (n_rounds + 4) <= source.n_asked <= N * (n_rounds + 5) + 100
    assert source.longest == 40


def test_same_seed_same_result_whatever_n_jobs():
    for kind in ("dense", "holes"):
        X = matrix(kind)
        for data in (X, IndexedRows(X)):
            fits = [
                AWSGDMatrixFactorization(
                    3, max_iter=10, tol=1e-9, n_jobs=n_jobs, random_state=0
                )
                for n_jobs in (None, 1, 2, 3)
            ]
            with pytest.warns(UserWarning, match="still falling"):
                factors = [(m.fit(data).components_, m.transform(data)) for m in fits]
            for V, U in factors[1:]:
                assert_array_equal(V, factors[0][0])
                assert_array_equal(U, factors[0][1])


def test_streams_of_sources():
    model = AWSGDMatrixFactorization(3, random_state=0)
    for seed in range(3):
        model.partial_fit(IndexedRows(matrix()[seed * 100 : (seed + 1) * 100]))
    assert model.score(matrix()) > 0.8
    # As chunks in memory do.
    model.partial_fit(matrix()[:50])


class Failing(IndexedRows):
    """Fails, or gives something else, from some call on."""

    def __init__(self, rows, change, n_good):
        super().__init__(rows)
        self.change, self.n_good = change, n_good

    def take(self, indices):
        self.n_good -= 1
        rows = np.array(super().take(indices))
        return rows if self.n_good >= 0 else self.change(rows)


def lost(rows):
    raise OSError("connection lost")


@pytest.mark.parametrize("n_good", [1, 5, 30, 60])
@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lost, RuntimeError, r"failed to give row.*connection lost"),
        (lambda rows: rows * np.inf, ValueError, r"infinite.* in row"),
        (lambda rows: rows[:, :3], ValueError, r"gave shape .* for row"),
        (lambda rows: rows.astype("f4"), ValueError, r"float32 for row"),
    ],
)
def test_failures_name_the_rows_and_leave_the_model(change, kind, words, n_good):
    X = matrix()
    model = AWSGDMatrixFactorization(3, random_state=0).fit(X)
    before = pickle.dumps(model)
    for train in (model.fit, model.partial_fit):
        with pytest.raises(kind, match=words):
            train(Failing(X, change, n_good))
        assert pickle.dumps(model) == before
        if n_good > 20:
            break  # A chunk is read less often.
    model.partial_fit(X[:50])


def test_what_sources_cannot_have_is_told():
    X = matrix()
    source, model = IndexedRows(X), AWSGDMatrixFactorization(3, random_state=0)
    with pytest.raises(ValueError, match="leave entry_weight out"):
        model.fit(source, entry_weight=np.ones(X.shape))
    with pytest.raises(ValueError, match="leave access_cost out"):
        model.fit(source, access_cost=np.ones(N))
    aware = AWSGDMatrixFactorization(3, sampler=RowColumnSampler(time_aware=True))
    with pytest.warns(UserWarning, match="each once in a pass"):
        aware.fit(source)
    with pytest.raises(ValueError, match="no observed entry"):
        model.fit(IndexedRows(np.full((5, 4), np.nan)))
    X = np.abs(X)
    X[55, 3] = -1
    with pytest.raises(ValueError, match=r"In rows 40 to 79: .*needs entries from 0"):
        AWSGDMatrixFactorization(3, loss="poisson").fit(IndexedRows(X))
    with pytest.raises(TypeError, match=r"X\.take"):
        model.fit(source).predict(source)
    with pytest.raises(ValueError, match="expecting 50 features"):
        model.transform(IndexedRows(matrix()[:, :3]))


class Generated:
    """Rows that are made when they are asked for: nothing of them is kept."""

    shape, dtype = (20_000, 200), np.dtype(np.float64)

    def __init__(self):
        rng = np.random.default_rng(0)
        self.U = rng.normal(size=(self.shape[0], 2))
        self.V = rng.normal(size=(2, self.shape[1]))

    def take(self, indices):
        return self.U[indices] @ self.V


def test_memory_is_that_of_two_blocks_and_the_factors(monkeypatch):
    monkeypatch.setattr(fetching, "NUMBERS_READ", 2**16)
    source = Generated()
    model = AWSGDMatrixFactorization(2, max_iter=9, sampler="uniform", tol=0.5)
    tracemalloc.start()
    model.fit(source)
    assert "exact" in model.history_["phase"]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Row factors, eight wide, with copies for the exact solutions; blocks of half a
    # megabyte. The matrix has 32.
    assert peak < 6 * 8 * 8 * source.shape[0] + 8 * 2**19
    assert peak < 0.4 * 8 * np.prod(source.shape)
