"""Row sources: what is fetched, checked and kept, and that the optimum is the same."""

import pickle
import runpy
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._linear import fetching
from sklearn_awsgd._linear.fetching import ROWS_IN_BATCH, SourceBlocks, SourceRows
from sklearn_awsgd.samplers import LevelSampler, StrataSampler
from sklearn_awsgd.sources import (
    BYTES_OF_ENTRY,
    ChunkFolder,
    IndexedRows,
    RowCache,
)


def data(n=3000, d=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    z = X @ rng.normal(size=d) + rng.normal(size=n)
    return X, (z > 0.5).astype(int), z


class Recorded(IndexedRows):
    """Remembers which rows were asked for, and by how many at once."""

    def __init__(self, rows):
        super().__init__(rows)
        self.asked = []

    def take(self, indices):
        self.asked.append(np.array(indices))
        return super().take(indices)


SETTINGS = [
    {},
    {"loss": "hinge"},
    {"penalty": "l1", "alpha": 1e-3},
    {"loss": "squared_hinge", "fit_intercept": False},
]


@pytest.mark.parametrize("form", ["dense", "sparse", "cached"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_optimum_is_that_of_rows_in_memory(form, settings):
    X, y, _ = data()
    if form == "sparse":
        X = sparse.csr_array(np.where(abs(X) > 0.7, X, 0))
    source = IndexedRows(X)
    if form == "cached":
        source = RowCache(source, max_bytes=50_000)
    clf = AWSGDClassifier(tol=1e-7, random_state=0, **settings)
    if settings.get("loss") == "hinge":
        clf.set_params(tol=1e-4)
    far = clf.fit(source, y).history_["objective"][-1]
    scores = clf.decision_function(source)
    assert_allclose(scores, clf.decision_function(X), rtol=1e-10)
    near = clf.fit(X, y).history_["objective"][-1]
    assert_allclose(far, near, rtol=2 * clf.tol)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_are_kept_come_before_passes_over_all(weighted, monkeypatch):
    X, y, _ = data(n=20_000)
    weight = np.where(y == 1, 3.0, 0.5) if weighted else None
    first = {}
    for n_kept in (4000, 100):
        # A hundred are too few of each class.
        monkeypatch.setattr(fetching, "NUMBERS_KEPT", 8 * n_kept)
        clf = AWSGDClassifier(alpha=1e-3, tol=1e-6, random_state=0)
        clf.fit(IndexedRows(X), y, sample_weight=weight)
        history = clf.history_
        exact = history["objective"][history["phase"] == "exact"]
        first[n_kept] = exact[0] / exact[-1] - 1
    assert 0 < first[4000] < 0.01 < 2 * first[100]
    near = clf.fit(X, y, sample_weight=weight).history_["objective"][-1]
    assert_allclose(exact[-1], near, rtol=2e-6)


def test_softmax_and_regression_read_sources():
    X, _, z = data()
    y = np.digitize(z, [-1, 1])
    for kind, target in ((AWSGDClassifier, y), (AWSGDRegressor, z)):
        model = kind(random_state=0)
        if kind is AWSGDClassifier:
            model.set_params(loss="multinomial")
        far = model.fit(IndexedRows(X), target).history_["objective"][-1]
        near = model.fit(X, target).history_["objective"][-1]
        assert_allclose(far, near, rtol=2e-3)


SEVERAL = [
    ("classes", {"loss": "multinomial"}),
    ("classes", {"loss": "multinomial", "penalty": "l1", "alpha": 1e-3}),
    ("classes", {"loss": "multinomial", "class_weight": "balanced"}),
    ("classes", {"n_jobs": 2}),
    ("labels", {}),
]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("target", "settings"), SEVERAL, ids=str)
def test_several_classes_have_the_optimum_of_rows_in_memory(target, settings, form):
    X, _, z = data()
    y = np.digitize(z, [-1, 1])
    if target == "labels":
        y = np.column_stack([z > 0.5, X[:, 0] > 0.3]).astype(int)
    X = form(np.where(abs(X) > 0.3, X, 0))
    weight = np.random.default_rng(1).random(len(y))
    clf = AWSGDClassifier(tol=1e-6, random_state=0, **settings)
    ends = []
    for rows in (IndexedRows(X), X):
        clf.fit(rows, y, sample_weight=weight)
        ends.append(clf.history_["objective"][-1])
    assert_allclose(*ends, rtol=3e-6)


@pytest.mark.parametrize("loss", ["log_loss", "multinomial"])
def test_held_out_rows_decide_when_they_are_given(loss):
    X, _, z = data()
    y, coefficients = np.digitize(z, [-1, 1]), []
    clf = AWSGDClassifier(loss=loss, early_stopping=True, random_state=0)
    for held_out in (X[2000:], IndexedRows(X[2000:])):
        clf.fit(IndexedRows(X[:2000]), y[:2000], X_val=held_out, y_val=y[2000:])
        coefficients.append(clf.coef_)
    assert_array_equal(*coefficients)
    if loss == "multinomial":
        # The coefficients that scored best are kept.
        best = np.nanmax(clf.history_["validation_score"])
        assert clf.score(X[2000:], y[2000:]) == pytest.approx(best, abs=1e-12)


def test_steps_are_those_of_the_batches_drawn():
    # The twin: the same draws, stepped by the compiled problem in memory.
    X, y, _ = data(n=1000)
    source = Recorded(X)
    settings = {
        "learning_rate": "constant",
        "eta0": 0.01,
        "sampler": "uniform",
        "shuffle": False,
        "max_iter": 2,
        "tol": None,
    }
    far = AWSGDClassifier(**settings).fit(source, y)
    near = AWSGDClassifier(**settings).fit(X, y)
    # In their order, batches are the rows one after the other.
    assert_allclose(far.coef_, near.coef_, rtol=1e-10)
    drawn = [rows for rows in source.asked if len(rows) == ROWS_IN_BATCH]
    assert_array_equal(np.concatenate(drawn)[:1000], np.arange(1000))


def test_same_seed_same_result():
    X, y, _ = data()
    fits = [
        AWSGDClassifier(learning_rate="adagrad", max_iter=2, tol=None, random_state=3)
        .fit(IndexedRows(X), y)
        .coef_
        for _ in range(2)
    ]
    assert_array_equal(*fits)


def test_warm_starts_and_weights():
    X, y, _ = data()
    weight = np.random.default_rng(0).random(len(y))
    clf = AWSGDClassifier(tol=1e-7, random_state=0).fit(X, y, sample_weight=weight)
    other = AWSGDClassifier(tol=1e-7, warm_start=True, random_state=1)
    other.fit(IndexedRows(X), y, sample_weight=weight)
    assert_allclose(other.coef_, clf.coef_, rtol=2e-3)
    other.set_params(learning_rate="adagrad", max_iter=1, tol=None, sampler="level")
    other.fit(IndexedRows(X), y, sample_weight=weight)
    # Streams go on from there.
    other.set_params(learning_rate="auto", sampler="auto")
    other.partial_fit(X[:100], y[:100])


def test_no_more_than_two_blocks_are_in_memory(monkeypatch):
    monkeypatch.setattr(fetching, "NUMBERS_READ", 800)
    X, y, _ = data()
    source = Recorded(X)
    seen = []

    def look(rows, part):
        seen.append(part)
        # The one that is visited and the next one, after that of the constructor.
        assert len(source.asked) - 1 <= len(seen) + 1
        assert_array_equal(rows, X[part])
        return part.stop - part.start

    assert sum(SourceBlocks(SourceRows(source)).map(look)) == len(X)
    assert max(map(len, source.asked)) == 100
    AWSGDClassifier(random_state=0).fit(source, y)
    assert max(map(len, source.asked)) <= 4096


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


def with_nan(rows):
    rows[len(rows) // 2] = np.nan
    return rows


@pytest.mark.parametrize("rate", ["auto", "adagrad"])
@pytest.mark.parametrize("n_good", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lost, RuntimeError, r"failed to give row.*connection lost"),
        (with_nan, ValueError, r"NaN.* in row"),
        (lambda rows: rows[:, :3], ValueError, r"gave shape .* for row"),
        (lambda rows: rows.astype("f4"), ValueError, r"float32 for row"),
        (lambda rows: sparse.csr_array(rows), ValueError, r"sparse rows.* for row"),
    ],
)
def test_failures_name_the_rows_and_leave_the_model(change, kind, words, n_good, rate):
    X, y, _ = data()
    clf = AWSGDClassifier(random_state=0, learning_rate=rate, max_iter=50)
    clf.fit(X, y)
    before = pickle.dumps(clf)
    with pytest.raises(kind, match=words):
        clf.fit(Failing(X, change, n_good), y)
    assert pickle.dumps(clf) == before
    clf.partial_fit(X[:50], y[:50])


def test_sources_of_other_shapes_are_refused():
    X, y, _ = data()
    with pytest.raises(ValueError, match="has type int64"):
        AWSGDClassifier().fit(IndexedRows(X.astype(int)), y)
    with pytest.raises(RuntimeError, match="failed to give row 0"):
        AWSGDClassifier().fit(Failing(X, lost, 0), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        AWSGDClassifier().fit(IndexedRows(X), y[1:])
    with pytest.raises(ValueError, match="give X_val"):
        AWSGDClassifier(early_stopping=True).fit(IndexedRows(X), y)
    with pytest.raises(TypeError, match=r"X\.take"):
        AWSGDClassifier().partial_fit(IndexedRows(X), y, classes=[0, 1])
    with pytest.raises(ValueError, match="expecting 8 features"):
        AWSGDClassifier().fit(X, y).predict(IndexedRows(X[:, :3]))


def test_memory_maps_work_as_they_are_and_as_sources(tmp_path):
    X, y, _ = data()
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    clf = AWSGDClassifier(random_state=0)
    as_it_is = clf.fit(mapped, y).coef_
    assert_allclose(clf.fit(IndexedRows(mapped), y).coef_, as_it_is, rtol=0.05)


@pytest.mark.parametrize("name", ["h5py", "zarr"])
def test_files_of_other_libraries(name, tmp_path):
    pytest.importorskip(name)
    path = Path(__file__).parents[1] / "examples" / "sources_h5py_zarr.py"
    example = runpy.run_path(str(path))
    X, y, _ = data()
    source = example["ADAPTERS"][name](tmp_path / "rows", X)
    rows = np.random.default_rng(0).integers(len(X), size=500)
    assert_array_equal(source.take(rows), X[rows])
    far = AWSGDClassifier(random_state=0).fit(source, y)
    near = AWSGDClassifier(random_state=0).fit(IndexedRows(X), y)
    assert_array_equal(far.coef_, near.coef_)


def test_a_folder_of_chunks(tmp_path):
    X, y, _ = data()
    for k, part in enumerate(np.array_split(X, 7)):
        np.save(tmp_path / f"{k}.npy", part)
    source = ChunkFolder(tmp_path)
    assert source.shape == X.shape
    assert source.dtype == X.dtype
    rows = np.random.default_rng(0).integers(len(X), size=500)
    assert_array_equal(source.take(rows), X[rows])
    assert_array_equal(source.take(np.arange(400, 900)), X[400:900])
    far = AWSGDClassifier(random_state=0).fit(source, y)
    near = AWSGDClassifier(random_state=0).fit(IndexedRows(X), y)
    assert_array_equal(far.coef_, near.coef_)
    np.save(tmp_path / "8.npy", X[:, :3])
    with pytest.raises(ValueError, match="same features"):
        ChunkFolder(tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no file"):
        ChunkFolder(tmp_path / "none")


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_cache_keeps_the_rows_asked_for_last(form):
    X = np.random.default_rng(0).normal(size=(200, 10))
    source = Recorded(form(X))
    cache = RowCache(source, max_bytes=40_000)
    rng = np.random.default_rng(1)
    for _ in range(50):
        rows = rng.integers(20, size=30) + rng.integers(2) * rng.integers(180)
        got = cache.take(rows)
        assert_array_equal(got.toarray() if sparse.issparse(got) else got, X[rows])
        assert cache.n_bytes <= cache.max_bytes
    asked = sum(map(len, source.asked))
    assert asked == cache.n_misses
    assert cache.n_hits + cache.n_misses == 1500
    assert cache.n_hits > 500
    # Exact passes go past it.
    SourceRows(cache).survey()
    assert cache.n_hits + cache.n_misses == 1500
    copied = pickle.loads(pickle.dumps(RowCache(IndexedRows(X), 1000)))
    assert_array_equal(copied.take(np.arange(3)), X[:3])
    with pytest.raises(TypeError, match="max_bytes"):
        RowCache(source, max_bytes=1.5)


def test_a_cache_is_right_when_threads_ask_at_the_same_time():
    X = np.random.default_rng(0).normal(size=(500, 10))
    cache = RowCache(IndexedRows(X), max_bytes=30_000)

    def ask(seed):
        rng = np.random.default_rng(seed)
        for _ in range(100):
            rows = rng.integers(500, size=20)
            assert_array_equal(cache.take(rows), X[rows])
            assert set(np.unique(cache.places(rows))) <= {0, 1}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert cache.n_hits + cache.n_misses == 8 * 100 * 20
    assert 0 < cache.n_bytes <= cache.max_bytes
    assert cache.n_bytes == len(cache._rows) * (80 + BYTES_OF_ENTRY)


class Generated:
    """Rows that are made when they are asked for: nothing of them is kept."""

    shape, dtype = (60_000, 100), np.dtype(np.float64)

    def take(self, indices):
        numbers = np.multiply.outer(indices + 1.0, np.sqrt(np.arange(2.0, 102.0)))
        return 2 * (numbers % 1) - 1


@pytest.mark.parametrize("rate", ["auto", "adagrad"])
def test_memory_is_that_of_the_cache_and_two_batches(rate):
    source = Generated()
    y = (source.take(np.arange(60_000))[:, :10].sum(axis=1) > 1).astype(int)
    clf = AWSGDClassifier(
        random_state=0,
        learning_rate=rate,
        max_iter=1 if rate == "adagrad" else 100,
        tol=None if rate == "adagrad" else 0.01,
    )
    cache = RowCache(source, max_bytes=2_000_000)
    tracemalloc.start()
    clf.fit(cache, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    blocks = 2 * 8 * fetching.NUMBERS_READ
    of_rows = 25 * 8 * source.shape[0]  # Targets, norms, curvatures, tables.
    # Making a block here needs another one, and a block of rows stays.
    assert peak < cache.max_bytes + 2 * blocks + of_rows
    assert peak < 8 * np.prod(source.shape)
    assert cache.n_bytes <= cache.max_bytes


class Slow(IndexedRows):
    """Half of the rows are elsewhere: a clock that runs as fetches do."""

    def __init__(self, rows, clock):
        super().__init__(rows)
        self.clock = clock

    def places(self, indices):
        return (indices >= len(self.rows) // 2).astype(int)

    def take(self, indices):
        rows = super().take(indices)
        slow = self.places(np.asarray(indices)).sum()
        self.clock[0] += 1e-3 * slow + 1e-6 * (len(rows) - slow)
        return rows


@pytest.mark.parametrize(
    "sampler", [LevelSampler(time_aware=True), StrataSampler(by="given")]
)
def test_measured_costs_are_learned(sampler, monkeypatch):
    X, y, _ = data(n=4000)
    clock = [0.0]
    monkeypatch.setattr(fetching, "perf_counter", lambda: clock[0])
    share = {}
    strata = (np.arange(4000) >= 2000).astype(int)
    for time_aware in (True, False):
        sampler.time_aware = time_aware
        clf = AWSGDRegressor(
            sampler=sampler,
            learning_rate="adagrad",
            max_iter=2,
            tol=None,
            count_draws=True,
            random_state=0,
        )
        given = {"strata": strata} if hasattr(sampler, "by") else {}
        clf.fit(Slow(X, clock), y, **given)
        counts = clf.draw_counts_[0]
        share[time_aware] = counts[2000:].sum() / counts.sum()
        if time_aware and given:
            assert_allclose(clf.sampler_.mean_costs_[0], [1e-6, 1e-3], rtol=0.01)
    assert share[False] > 0.4
    # 1 / (1 + sqrt(1000)) of the draws would be best.
    assert share[True] < 0.08


def test_strata_say_where_rows_are(monkeypatch):
    X, y, _ = data(n=4000)
    source = IndexedRows(X)
    clf = AWSGDClassifier(
        sampler=StrataSampler(by="given", time_aware=True),
        learning_rate="adagrad",
        max_iter=1,
        tol=None,
        random_state=0,
    ).fit(source, y, strata=np.where(np.arange(4000) < 2000, "here", "there"))
    assert (clf.sampler_.mean_costs_ > 0).all()
    assert np.isnan(clf.history_["simulated_seconds"]).all()


def test_given_costs_of_a_source_are_charged():
    X, y, _ = data()
    costs = np.where(np.arange(3000) < 1500, 1.0, 100.0)
    clf = AWSGDClassifier(
        learning_rate="adagrad", max_iter=1, tol=None, count_draws=True, random_state=0
    ).fit(IndexedRows(X), y, access_cost=costs)
    simulated = clf.history_["simulated_seconds"][-1]
    assert_allclose(simulated, clf.draw_counts_[0] @ costs)
