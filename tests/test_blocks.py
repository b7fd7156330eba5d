"""Sums over blocks of rows: what they add up to, whatever the number of threads."""

import threading
import time

import numpy as np
import pytest
from helpers import SMOOTH_LOSSES
from scipy import sparse
from sklearn_awsgd._kernels._batch import add_weighted_rows
from sklearn_awsgd._kernels._losses import EpsilonInsensitive
from sklearn_awsgd._kernels._rows import Rows

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._linear import blocks as _blocks
from sklearn_awsgd._linear.blocks import Blocks, row_slices, rows_between
from sklearn_awsgd._linear.data import norms_in_threads
from sklearn_awsgd._linear.sums import LinearSums
from sklearn_awsgd._validation import squared_norms

LAYOUTS = {
    "dense": np.asarray,
    "float32": np.float32,
    "csr": sparse.csr_array,
    "csr matrix": sparse.csr_matrix,
    "int64": lambda X: with_long_indices(sparse.csr_array(X)),
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def with_long_indices(X):
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of seven rows at least."""
    monkeypatch.setattr(_blocks, "FEWEST_IN_BLOCK", 7)
    monkeypatch.setattr(_blocks, "NUMBERS_IN_BLOCK", 1)


def make_rows(rng, layout, n_rows=100, n_features=6):
    X = rng.standard_normal((n_rows, n_features))
    X[rng.random(X.shape) < 0.4] = 0
    X[30:45] = 0
    return LAYOUTS[layout](X)


@each_layout
def test_blocks_are_all_rows_in_their_order_and_no_copies(layout, small_blocks, rng):
    X = make_rows(rng, layout)
    seen = list(Blocks(X, n_threads=3).map(lambda X, part: (X, part)))
    assert [part.start for _, part in seen] == list(range(0, 100, 7))
    dense = X.toarray() if sparse.issparse(X) else X
    for block, part in seen:
        values = block.toarray() if sparse.issparse(block) else block
        np.testing.assert_array_equal(values, dense[part])
        numbers, all_numbers = (
            (block.data, X.data) if sparse.issparse(X) else (block, X)
        )
        assert np.shares_memory(numbers, all_numbers) or numbers.size == 0
        assert block.dtype == X.dtype


def rounding(X, least):
    """The relative error of numbers that are as exact as rows, or a least one."""
    return max(least, np.finfo(X.dtype).eps)


@pytest.mark.parametrize("n_features", [1, 100, 513])
@pytest.mark.parametrize("layout", ["dense", "float32"])
def test_a_pass_as_numpy_has_it(layout, n_features, rng):
    """In blocks of short rows, which are widened if need be, and row by row."""
    X = LAYOUTS[layout](rng.standard_normal((201, n_features)))
    y, mass = rng.choice([-1.0, 1.0], size=201), rng.random(201)
    v = rng.standard_normal(n_features + 1) / 10
    sums = LinearSums(
        Blocks(X), SMOOTH_LOSSES["log_loss"](None), y, mass, (X**2).sum(axis=1)
    )
    gradients, totals, curvatures = sums.evaluate(v)
    wide = np.column_stack([X.astype(np.float64), np.ones(201)])
    z = wide @ v
    p = 1 / (1 + np.exp(y * z))
    for side, of_side in enumerate((y > 0, y < 0)):
        c = np.where(of_side, -y * p * mass, 0.0)
        np.testing.assert_allclose(gradients[side], c @ wide, atol=1e-12)
        loss = np.where(of_side, mass * np.logaddexp(0, -y * z), 0.0).sum()
        # A logistic loss has curvature 1/4 at most.
        spare = np.where(of_side, 2 * mass * p**2, 0.0).sum()
        np.testing.assert_allclose(totals[side], [loss, c @ z, spare], rtol=1e-12)
    # They are as exact as the rows.
    assert curvatures.dtype == X.dtype
    np.testing.assert_allclose(curvatures, p * (1 - p), rtol=rounding(X, 1e-10))


@each_layout
@pytest.mark.parametrize("n_features", [1, 6, 100, 513])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
def test_weighted_rows_as_numpy_adds_them(layout, n_features, share, rng):
    """Whether most rows of a block have weights, or hardly any."""
    X = make_rows(rng, layout, 300, n_features)
    dense = X.toarray() if sparse.issparse(X) else X
    weights = rng.standard_normal(300) * (rng.random(300) < share)
    before = rng.standard_normal(n_features)
    total = before.copy()
    add_weighted_rows(Rows(X), weights, total)
    np.testing.assert_allclose(total, before + weights @ dense, atol=1e-11)


@each_layout
def test_rows_without_weight_are_not_looked_at(layout, rng):
    X = make_rows(rng, layout)
    values = X.data if sparse.issparse(X) else X.ravel()
    values[...] = np.nan
    total = np.zeros(X.shape[1])
    add_weighted_rows(Rows(X), np.zeros(100), total)
    assert (total == 0).all()


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e25])
def test_curvatures_beyond_single_precision(scale, rng):
    X = LAYOUTS["float32"](rng.standard_normal((50, 3)))
    y = scale * rng.standard_normal(50)
    loss = EpsilonInsensitive(scale).rounded(scale)
    sums = LinearSums(Blocks(X), loss, y, None, (X**2).sum(axis=1))
    curvatures = sums.evaluate(np.append(np.zeros(3), scale))[-1]
    assert curvatures.dtype == (np.float32 if scale == 1e-10 else np.float64)
    expected = loss.second_derivatives(y, np.full(50, scale))
    np.testing.assert_allclose(curvatures, expected, rtol=np.finfo(np.float32).eps)
    assert curvatures.min() > 0


def test_slices_depend_on_numbers_and_rows_alone():
    assert row_slices(5, 10) == [slice(0, 5)]
    parts = row_slices(100_000, 100_000 * 64)
    assert {part.stop - part.start for part in parts[:-1]} == {8192}
    assert parts[-1].stop == 100_000
    # Rows that lie close together are in one block, which is the matrix itself.
    X = np.zeros((3, 2))
    assert rows_between(X, slice(0, 3)) is X


@each_layout
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_over_blocks_are_those_over_all_rows(layout, weighted, rng, monkeypatch):
    X = make_rows(rng, layout)
    y, v = np.sign(rng.standard_normal(100)), rng.standard_normal(7)
    mass = rng.uniform(0, 2, 100) / 100 if weighted else None
    norms2 = rng.uniform(0, 3, 100)
    loss = SMOOTH_LOSSES["log_loss"](None)
    whole = LinearSums(Blocks(X), loss, y, mass, norms2)
    monkeypatch.setattr(_blocks, "FEWEST_IN_BLOCK", 7)
    monkeypatch.setattr(_blocks, "NUMBERS_IN_BLOCK", 1)
    results = []
    for n_threads in (1, 2, 5):
        sums = LinearSums(Blocks(X, n_threads), loss, y, mass, norms2)
        *totals, curvatures = sums.evaluate(v)
        for n_rows in (50, 100):
            generator = np.random.default_rng(0)
            totals.append(sums.hessian(curvatures, 0.1, n_rows, generator)[0])
        totals.append(sums.hessian_diagonal(curvatures, 0.1))
        totals.append(sums.mean_loss(v))
        results.append([*totals, curvatures])
    for others in results[1:]:
        for total, other in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(total, other)
    *expected, curvatures = whole.evaluate(v)
    for n_rows in (50, 100):
        generator = np.random.default_rng(0)
        expected.append(whole.hessian(curvatures, 0.1, n_rows, generator)[0])
    expected.append(whole.hessian_diagonal(curvatures, 0.1))
    expected.append(whole.mean_loss(v))
    for total, other in zip(results[0], [*expected, curvatures], strict=True):
        np.testing.assert_allclose(total, other, rtol=rounding(X, 1e-9), atol=1e-12)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize(
    ("Estimator", "loss"),
    [
        (AWSGDClassifier, "log_loss"),
        (AWSGDClassifier, "hinge"),
        (AWSGDClassifier, "multinomial"),
        (AWSGDRegressor, "huber"),
    ],
)
def test_threads_change_no_bit(Estimator, loss, layout, small_blocks, rng):
    X = make_rows(rng, layout)
    y = rng.integers(0, 3 if loss == "multinomial" else 2, 100)
    models = [
        Estimator(loss, random_state=0, n_jobs=n_jobs).fit(X, y)
        for n_jobs in (None, 2, 7)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_array_equal(model.duality_gap_, models[0].duality_gap_)
        for name in ("objective", "duality_gap"):
            if name in model.history_:
                np.testing.assert_array_equal(
                    model.history_[name], models[0].history_[name]
                )


@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_threads_share_calls_and_do_not_run_far_ahead(n_threads):
    """The thread that wants the results makes calls, too."""
    most = _blocks.RESULTS_AHEAD * n_threads
    blocks, lock = Blocks(np.zeros((2, 1)), n_threads), threading.Lock()
    made, callers, wanted = [], set(), 0

    def call(k):
        with lock:
            made.append(k)
            callers.add(threading.get_ident())
            assert k < wanted + most
        time.sleep(1e-4)
        return -k

    for k, result in enumerate(blocks.run(call, [(k,) for k in range(60)])):
        assert result == -k
        wanted = k + 1
    assert sorted(made) == list(range(60))
    assert threading.get_ident() in callers
    assert 1 < len(callers) <= n_threads


def test_results_that_nobody_wants_any_more():
    blocks, made = Blocks(np.zeros((2, 1)), n_threads=3), []
    results = blocks.run(made.append, [(k,) for k in range(1000)])
    next(results)
    results.close()
    # All threads are free again.
    assert list(blocks.run(lambda k: k, [(1,), (2,), (3,)])) == [1, 2, 3]
    assert len(made) <= 1 + _blocks.RESULTS_AHEAD * 3


def test_a_failure_in_a_thread_is_told(small_blocks, rng):
    blocks = Blocks(make_rows(rng, "dense"), n_threads=2)

    def fail(X, part):
        if part.start == 21:
            raise RuntimeError("Here.")

    with pytest.raises(RuntimeError, match="Here"):
        list(blocks.map(fail))


@each_layout
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_found_in_threads_are_those_of_one_pass(layout, dtype, rng, small_blocks):
    X = make_rows(rng, layout)
    found = norms_in_threads(3, X, dtype)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, squared_norms(X, dtype))
