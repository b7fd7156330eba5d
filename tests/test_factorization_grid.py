"""Shuffled passes in blocks of rows and columns that do not meet."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn_awsgd._kernels._factorization import FactorizationProblem
from sklearn_awsgd._kernels._loop import POINT, SUMS, Costs
from sklearn_awsgd._kernels._loop import run as _loop_run
from sklearn_awsgd._kernels._losses import SquaredError

from sklearn_awsgd import AWSGDMatrixFactorization
from sklearn_awsgd._factorization import entries as entries_module
from sklearn_awsgd._factorization.entries import EntryDraws, check_entries
from sklearn_awsgd._factorization.grid import GridPasses, count_parts
from sklearn_awsgd._factorization.training import padded
from sklearn_awsgd._kernels.settings import Biases, EntryRate, StoredValues
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd.samplers import UniformSampler

N, M, PARTS, BANDS = 90, 41, 3, 4


def matrix(kind, shape=(N, M)):
    """Return a matrix, a third of which is there; the first rows have more."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(shape[0], 3)) @ rng.normal(size=(3, shape[1]))
    X += 0.1 * rng.normal(size=shape)
    if kind == "dense":
        return X
    there = rng.random(shape) < np.linspace(0.9, 0.2, shape[0])[:, None]
    if kind == "holes":
        return np.where(there, X, np.nan)
    return sparse.csr_array(np.where(there, X, 0.0))


def check(X, unstored="zero", weights=None):
    return check_entries(X, weights, np.nan, unstored, "squared_error")


def passes_of(data, n_threads=1, seed=0):
    threads = Blocks(data.X, n_threads)
    space = data.space()
    return GridPasses(space.entries, np.random.PCG64(seed), threads, PARTS, BANDS)


def cut(passes, data):
    """Go to where the first pass ends and the blocks begin."""
    passes._n_first = 0
    passes._cut_matrix(problem_of(data))
    return passes


KINDS = [("dense", "zero"), ("holes", "zero"), ("csr", "zero"), ("csr", "missing")]


@pytest.mark.parametrize(("kind", "unstored"), KINDS)
def test_a_pass_has_every_entry_once_in_rounds_that_do_not_meet(kind, unstored):
    X = matrix(kind)
    data = check(X, unstored)
    passes = cut(passes_of(data), data)
    stored = X.toarray() if kind == "csr" else np.asarray(X)
    there = np.ones((N, M)) if data.kind != "missing" else (stored != 0)
    there = np.where(np.isnan(stored), 0, there)
    order = passes._order
    number = np.full((N, M), -1)
    known = ~np.isnan(stored) & ((stored != 0) | (kind == "dense"))
    number[known] = np.arange(known.sum())
    starts = []
    for _ in range(2):
        found = np.zeros((N, M))
        for _ in range(PARTS * BANDS):
            passes._begin_round()
            seen_rows, seen_columns = set(), set()
            for part, size in passes._waiting:
                points = passes._dealers[part].draw_points(size)
                rows, columns = set(points["i"]), set(points["j"])
                assert not rows & seen_rows
                assert not columns & seen_columns
                seen_rows |= rows
                seen_columns |= columns
                np.add.at(found, (points["i"], points["j"]), 1)
                entry = points["entry"]
                if order is not None:
                    entry = order[entry]
                assert_array_equal(entry, number[points["i"], points["j"]])
                starts.append((points["i"][0], points["j"][0]))
            passes._waiting.clear()
        assert_array_equal(found, there)
    assert starts[: len(starts) // 2] != starts[len(starts) // 2 :]


def problem_of(data):
    """Return a problem with biases and weights, at random factors."""
    rng = np.random.default_rng(1)
    values, weights = data.stored()
    state = {
        "rows": padded(rng.normal(size=(N, 5))),
        "columns": padded(rng.normal(size=(M, 5))),
        "row_bias": rng.normal(size=N),
        "column_bias": rng.normal(size=M),
        "clock": np.array([7.0]),
    }
    return FactorizationProblem(
        StoredValues(values, weights, data.unstored_weight),
        state,
        SquaredError(),
        0.1,
        Biases(0.2, 0.7),
        EntryRate(0.1, 1000.0, 1.0, True),
    )


@pytest.mark.parametrize(("kind", "unstored"), KINDS)
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_steps_are_those_of_one_thread_in_the_order_of_the_blocks(
    kind, unstored, n_threads
):
    X = matrix(kind)
    weights = np.random.default_rng(2).random((N, M)) + 0.5
    data = check(X, unstored, weights)
    costs = Costs(rows=np.arange(1.0, N + 1), columns=np.arange(M) / 100)
    if kind == "csr" and unstored == "missing":
        costs = Costs(entries=np.arange(1.0, data.n_entries + 1))
    problem, twin = problem_of(data), problem_of(data)
    passes, same = passes_of(data, n_threads), passes_of(data)
    batch = np.zeros(passes.patience, dtype=POINT)
    sums, expected = np.zeros(len(SUMS)), np.zeros(len(SUMS))
    done = data.n_entries
    assert passes.run(problem, done, batch, sums, costs=costs) == done
    _loop_run(twin, same._whole, done, batch, expected, costs=costs)
    cut(same, data)
    # In pieces that end anywhere, for more than a pass.
    for size in [10, 1000, 1, data.n_entries]:
        assert passes.run(problem, size, batch, sums, costs=costs) == size
        left = size
        while left:
            if not same._waiting:
                same._begin_round()
            part, n_left = same._waiting.pop()
            points = same._dealers[part].draw_points(min(n_left, left))
            if n_left > left:
                same._waiting.append((part, n_left - left))
            if same._order is not None:
                points["entry"] = same._order[points["entry"]]
            costs.charge(points)
            twin.step_points(points, np.ones(len(points)))
            loss, norm2, cost = (
                points[name].sum() for name in ("loss", "norm2", "cost")
            )
            expected += [loss, norm2, norm2, len(points), len(points), cost]
            left -= len(points)
            done += len(points)
    assert_allclose(sums, expected, rtol=1e-10)
    assert problem.state["clock"][0] == twin.state["clock"][0] == 7 + done
    for name, array in twin.state.items():
        assert_array_equal(problem.state[name], array)


def test_parts_depend_on_the_matrix_alone():
    assert count_parts(60_000, (1000, 1700)) == (1, 4)
    assert count_parts(2_000_000, (20_000, 10_000)) == (8, 4)
    # More bands where blocks would not fit into a cache.
    assert count_parts(10**8, (10**6, 10_000)) == (8, 95)
    # A row should have some entries in each block, and each part some rows.
    assert count_parts(10**7, (10**6, 10_000))[0] == 1
    assert count_parts(8 * 10**6, (10**6, 8))[0] == 1
    assert count_parts(4 * 10**6, (20, 10**6))[0] == 1


@pytest.mark.parametrize(("kind", "unstored"), KINDS)
def test_same_seed_same_result_whatever_n_jobs(kind, unstored, monkeypatch):
    monkeypatch.setattr(entries_module, "count_parts", lambda *_: (PARTS, BANDS))
    fits = [
        AWSGDMatrixFactorization(
            4,
            sampler="uniform",
            unstored=unstored,
            fit_bias=True,
            tol=None,
            max_iter=3,
            n_jobs=n_jobs,
            random_state=0,
        ).fit(matrix(kind))
        for n_jobs in (None, 1, 2, 3)
    ]
    for model in fits[1:]:
        assert_array_equal(model.components_, fits[0].components_)
        assert_array_equal(model.column_bias_, fits[0].column_bias_)
        assert_array_equal(model.history_["objective"], fits[0].history_["objective"])
        assert model.reconstruction_err_ == fits[0].reconstruction_err_
        assert model.t_ == fits[0].t_


def test_large_matrices_take_it_and_streams_go_on():
    X = matrix("holes", (1000, 900))
    data = check(X)
    draws = EntryDraws(data, np.random.PCG64(0), n_threads=1)
    assert isinstance(draws.open(UniformSampler()), GridPasses)
    streams = [
        AWSGDMatrixFactorization(3, sampler="uniform", n_jobs=n_jobs, random_state=0)
        for n_jobs in (1, 2)
    ]
    for model in streams:
        for _ in range(2):
            model.partial_fit(X)
    assert streams[0].t_ == 1 + 2 * data.n_entries
    assert_array_equal(streams[0].components_, streams[1].components_)
    assert_allclose(
        streams[0].column_probabilities_, data.column_counts() / data.n_entries
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_passes_are_worth_what_they_are_without_blocks(seed, monkeypatch):
    # Blocks from the start would be worth half of it: each finds its own basis.
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(1500, 10)) @ rng.normal(size=(10, 500))
    shown = rng.random(truth.shape) < 0.5
    X = np.where(shown, truth + 0.3 * rng.normal(size=truth.shape), np.nan)
    errors = {}
    for parts in (count_parts(shown.sum(), X.shape), (1, 1)):
        monkeypatch.setattr(entries_module, "count_parts", lambda *_, p=parts: p)
        for n_passes in (2, 4):
            model = AWSGDMatrixFactorization(
                10, sampler="uniform", tol=None, max_iter=n_passes, random_state=seed
            ).fit(X)
            wrong = (model.predict(X) - truth)[~shown]
            errors[parts[0], n_passes] = np.sqrt(np.mean(wrong**2))
    assert errors[4, 2] < 1.1 * errors[1, 2]
    assert errors[4, 4] < 1.1 * errors[1, 4]


def test_steps_that_diverge_in_a_thread_are_told(monkeypatch):
    monkeypatch.setattr(entries_module, "count_parts", lambda *_: (PARTS, BANDS))
    model = AWSGDMatrixFactorization(
        3,
        sampler="uniform",
        step="gradient",
        learning_rate="constant",
        eta0=1e3,
        n_jobs=2,
        random_state=0,
    )
    with pytest.raises(ValueError, match="overflow"):
        model.fit(matrix("holes"))
    assert not hasattr(model, "components_")
