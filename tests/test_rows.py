"""Row views: every dtype and layout gives the same numbers, and nothing is copied."""

import numpy as np
import pytest
from helpers import linear_problem, linear_state, run_draws, uniform_kernel
from scipy import sparse
from sklearn_awsgd._kernels._losses import LogLoss
from sklearn_awsgd._kernels._rows import Numbers, Rows

from sklearn_awsgd._validation import check_rows


def as_csr(X, index_dtype=np.int32, kind=sparse.csr_array):
    """Return X as CSR with indices of one dtype."""
    result = kind(X)
    result.indices = result.indices.astype(index_dtype)
    result.indptr = result.indptr.astype(index_dtype)
    return result


LAYOUTS = {
    "dense": lambda X: X,
    "csr_array": as_csr,
    "csr_matrix": lambda X: as_csr(X, kind=sparse.csr_matrix),
    "csr_int64": lambda X: as_csr(X, np.int64),
}


def data_with_zeros(rng, n_features, dtype):
    X = rng.standard_normal((30, n_features)).astype(dtype)
    X[rng.random(X.shape) < 0.4] = 0
    X[3] = 0
    return X


@pytest.mark.parametrize("n_features", [1, 2, 7, 47, 48, 200, 8193])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_squared_norms(layout, dtype, n_features, rng):
    X = data_with_zeros(rng, n_features, dtype)
    rows = Rows(LAYOUTS[layout](X))
    assert (rows.n_rows, rows.n_features) == X.shape
    expected = (X.astype(np.float64) ** 2).sum(axis=1)
    np.testing.assert_allclose(rows.squared_norms(), expected, rtol=1e-12)


@pytest.mark.parametrize("n_features", [5, 60])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rule", ["constant", "adagrad"])
def test_layouts_give_the_same_steps(rule, layout, dtype, n_features, seed, rng):
    X = data_with_zeros(rng, n_features, dtype)
    y = np.where(rng.random(30) < 0.5, -1.0, 1.0)
    results = []
    for view in (X.astype(np.float64), LAYOUTS[layout](X)):
        state = linear_state(n_features)
        problem = linear_problem(view, y, LogLoss(), state, rule, l2=0.01, eta0=0.1)
        run_draws(problem, uniform_kernel(np.random.PCG64(seed), 30), 90)
        results.append(np.append(state["coef"], state["intercept"]))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_read_only_rows_are_not_copied(layout, rng):
    X = LAYOUTS[layout](data_with_zeros(rng, 6, np.float64))
    parts = [X] if layout == "dense" else [X.data, X.indices, X.indptr]
    for part in parts:
        part.flags.writeable = False
    checked, norms2 = check_rows(X)
    assert checked is X
    view = Rows(X)
    assert np.isfinite(norms2).all()
    # A change of the matrix behind the view's back is seen: it reads X itself.
    parts[0].flags.writeable = True
    parts[0][...] *= 2
    np.testing.assert_allclose(view.squared_norms(), 4 * norms2, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_mapped_rows(dtype, rng, tmp_path):
    X = data_with_zeros(rng, 6, dtype)
    X.tofile(tmp_path / "X.bin")
    mapped = np.memmap(tmp_path / "X.bin", dtype=dtype, mode="r", shape=X.shape)
    checked, norms2 = check_rows(mapped)
    assert checked is mapped
    np.testing.assert_array_equal(norms2, Rows(X).squared_norms(dtype))


@pytest.mark.parametrize(
    ("scale", "expected"), [(1, np.float32), (1e25, np.float64), (1e-25, np.float64)]
)
def test_norms_are_as_exact_as_rows_if_their_range_allows(scale, expected, rng):
    X = (scale * rng.standard_normal((30, 4))).astype(np.float32)
    norms2 = check_rows(X)[1]
    assert norms2.dtype == expected
    wide = X.astype(np.float64)
    rtol = 2 * np.finfo(expected).eps
    np.testing.assert_allclose(norms2, (wide**2).sum(axis=1), rtol=rtol)
    assert check_rows(wide)[1].dtype == np.float64
    # Of nothing, nothing is lost.
    assert check_rows(X[:0])[1].shape == (0,)


def test_numbers_of_other_types_are_refused():
    for wrong in (np.arange(3), np.ones(6)[::2], np.ones((3, 1))):
        with pytest.raises(ValueError, match="Numbers must be contiguous"):
            Numbers(wrong)


def test_a_view_keeps_its_matrix_alive(rng):
    X = rng.standard_normal((1000, 50))
    view, expected = Rows(X.copy()), (X**2).sum(axis=1)
    np.testing.assert_allclose(view.squared_norms(), expected, rtol=1e-12)


def test_indices_of_two_dtypes_are_refused(rng):
    X = as_csr(data_with_zeros(rng, 6, np.float64))
    X.indptr = X.indptr.astype(np.int64)
    with pytest.raises(ValueError, match="one dtype"):
        Rows(X)


def test_duplicates_and_disorder_are_resolved_in_a_copy():
    X = sparse.csr_array(
        (np.array([1.0, 2.0, 3.0]), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 2)
    )
    checked, norms2 = check_rows(X)
    np.testing.assert_allclose(norms2, [2.0**2 + 4.0**2])
    np.testing.assert_array_equal(checked.toarray(), [[2.0, 4.0]])
    np.testing.assert_array_equal(X.data, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_are_not_finite_are_found(layout, bad, rng):
    X = data_with_zeros(rng, 60, np.float64)
    X[17, 3] = bad
    with pytest.raises(ValueError, match="X contains"):
        check_rows(LAYOUTS[layout](X))


def test_squares_that_overflow_are_found(rng):
    X = rng.standard_normal((5, 3))
    X[2] = 1e200
    with pytest.raises(ValueError, match="StandardScaler"):
        check_rows(X)
