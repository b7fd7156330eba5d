"""Sparse matrices as users make them: right, or an error that says what is wrong."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn_awsgd._kernels._rows import Rows, check_places

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd._linear.data import Data
from sklearn_awsgd._linear.steps import default_eta0
from sklearn_awsgd._linear.targets import SignTarget
from sklearn_awsgd._validation import check_sparse

N_ROWS, N_COLUMNS = 40, 12


def csr(kind=sparse.csr_array, n_columns=N_COLUMNS):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N_ROWS, n_columns))
    X[rng.random(X.shape) < 0.6] = 0
    X[5] = 0
    return kind(X)


LABELS = np.arange(N_ROWS) % 2


def fit_classifier(X):
    return AWSGDClassifier(random_state=0, max_iter=5, tol=None).fit(X, LABELS).coef_


def fit_stream(X):
    model = AWSGDClassifier(random_state=0)
    return model.partial_fit(X, LABELS, classes=[0, 1]).coef_


def fit_regressor(X):
    model = AWSGDRegressor(random_state=0, max_iter=5, tol=None)
    return model.fit(X, LABELS.astype(float)).coef_


def predict(X):
    return AWSGDClassifier(random_state=0).fit(csr(), LABELS).decision_function(X)


def early_stopping(X):
    model = AWSGDClassifier(random_state=0, learning_rate="adagrad", max_iter=50)
    return model.fit(csr(), LABELS, X_val=X, y_val=LABELS).coef_


def factorize(X):
    model = AWSGDMatrixFactorization(2, max_iter=3, tol=None, random_state=0)
    return model.fit(X).components_


def factorize_missing(X):
    model = AWSGDMatrixFactorization(
        2, max_iter=3, tol=None, random_state=0, unstored="missing"
    )
    return model.fit(X).components_


def transform(X):
    return AWSGDMatrixFactorization(2, random_state=0).fit(csr()).transform(X)


def recommend(X):
    return AWSGDMatrixFactorization(2, random_state=0).fit(csr()).recommend(X, 3)


def weigh(X):
    X.data = np.abs(X.data)
    model = AWSGDMatrixFactorization(2, max_iter=3, tol=None, random_state=0)
    return model.fit(csr(), entry_weight=X).components_


def estimate(X):
    def loss(rows, y):
        return np.asarray(abs(rows).sum(axis=1)).ravel()

    model = MinVarianceImportanceEstimator(
        None, loss, sampler="norm", max_evaluations=60, rtol=None, random_state=0
    )
    return np.array(model.fit(X, LABELS).estimate_)


def estimate_entries(X):
    model = MinVarianceImportanceEstimator(
        None,
        lambda places, values: np.asarray(values, dtype=float).ravel() ** 2,
        sampler="row_column",
        max_evaluations=60,
        rtol=None,
        random_state=0,
    )
    return np.array(model.fit(X).estimate_)


DOORS = [
    fit_classifier,
    fit_stream,
    fit_regressor,
    predict,
    early_stopping,
    factorize,
    factorize_missing,
    transform,
    recommend,
    estimate,
    estimate_entries,
]
doors = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)


def with_parts(data=None, indices=None, indptr=None):
    """Return a matrix whose parts have been replaced behind SciPy's back."""
    X = csr()
    for name, change in (("data", data), ("indices", indices), ("indptr", indptr)):
        if change is not None:
            setattr(X, name, change(getattr(X, name)))
    return X


def strided(part):
    return np.repeat(part, 2)[::2]


def backwards(part):
    return part[::-1].copy()[::-1]


def unaligned(part):
    raw = np.zeros(part.nbytes + 1, dtype=np.uint8)
    view = raw[1:].view(part.dtype)
    view[:] = part
    return view


def as_type(dtype):
    return lambda part: part.astype(dtype)


def longer(part):
    return np.append(part, part[:3])


UNUSUAL = {
    "strided indices": {"indices": strided},
    "strided indptr": {"indptr": strided},
    "strided data": {"data": strided},
    "all strided": {"data": strided, "indices": strided, "indptr": strided},
    "backward views": {"data": backwards, "indices": backwards, "indptr": backwards},
    "unaligned": {"data": unaligned, "indices": unaligned, "indptr": unaligned},
    "int64": {"indices": as_type(np.int64), "indptr": as_type(np.int64)},
    "int16": {"indices": as_type(np.int16), "indptr": as_type(np.int16)},
    "uint8 indices": {"indices": as_type(np.uint8)},
    "uint32": {"indices": as_type(np.uint32), "indptr": as_type(np.uint32)},
    "uint64": {"indices": as_type(np.uint64), "indptr": as_type(np.uint64)},
    "big-endian": {"indices": as_type(">i4"), "indptr": as_type(">i4")},
    "big-endian int64": {"indices": as_type(">i8"), "indptr": as_type(">i8")},
    "two types": {"indptr": as_type(np.int64)},
    "the other two types": {"indices": as_type(np.int64)},
    "numbers behind the last row": {"data": longer, "indices": longer},
}


@doors
@pytest.mark.parametrize("parts", UNUSUAL.values(), ids=UNUSUAL.keys())
def test_unusual_but_right(parts, door):
    X = with_parts(**parts)
    before = [np.array(part) for part in (X.data, X.indices, X.indptr)]
    np.testing.assert_array_equal(door(X), door(csr()))
    # The caller's matrix has not been changed.
    for old, new in zip(before, (X.data, X.indices, X.indptr), strict=True):
        assert old.dtype == new.dtype
        np.testing.assert_array_equal(old, new)


def test_unusual_weights_of_entries():
    usual = weigh(csr())
    for parts in UNUSUAL.values():
        np.testing.assert_array_equal(weigh(with_parts(**parts)), usual)


def change(position, value):
    def changed(part):
        part = part.copy()
        part[position] = value
        return part

    return changed


WRONG = {
    "index too large": ({"indices": change(3, N_COLUMNS)}, "indices has 12 at"),
    "far index": ({"indices": change(-1, 2**31 - 1)}, "indices has 2147483647"),
    "negative index": ({"indices": change(7, -1)}, "indices has -1 at position 7"),
    "wrapped index": (
        {"indices": lambda part: change(2, 2**64 - 1)(part.astype(np.uint64))},
        "indices has -1 at position 2",
    ),
    "falling indptr": ({"indptr": change(4, 10**6)}, "never fall"),
    "negative indptr": ({"indptr": change(4, -3)}, "never fall"),
    "late start": ({"indptr": change(0, 2)}, "begin with 0"),
    "far end": ({"indptr": change(-1, 10**9)}, "ends with 1000000000"),
    "negative end": ({"indptr": change(-1, -5)}, "ends with -5"),
    "short indptr": ({"indptr": lambda part: part[:-1]}, "indptr has 40 elements"),
    "long indptr": ({"indptr": longer}, "indptr has 44 elements"),
    "short indices": ({"indices": lambda part: part[:-4]}, "but X.indices has"),
    "short data": ({"data": lambda part: part[:-4]}, "and X.data has"),
    "float indices": ({"indices": as_type(np.float64)}, "is float64 of shape"),
    "square indices": ({"indices": lambda part: part[:, None]}, "one dimension"),
}


@doors
@pytest.mark.parametrize(("parts", "words"), WRONG.values(), ids=WRONG.keys())
def test_wrong(parts, words, door):
    with pytest.raises(ValueError, match=f"X is no valid CSR matrix: .*{words}"):
        door(with_parts(**parts))


@pytest.mark.parametrize(("parts", "words"), WRONG.values(), ids=WRONG.keys())
def test_wrong_weights_of_entries(parts, words):
    words = words.replace("X.", "entry_weight.")
    with pytest.raises(ValueError, match=f"entry_weight is no valid CSR .*{words}"):
        weigh(with_parts(**parts))


@doors
@pytest.mark.parametrize("name", ["csc", "bsr", "coo"])
def test_other_formats(name, door):
    right = csr().asformat(name)
    np.testing.assert_array_equal(door(right), door(csr()))
    wrong = csr().asformat(name)
    if name == "coo":
        wrong.coords = (change(3, 10**6)(wrong.coords[0]), wrong.coords[1])
    else:
        wrong.indices = change(3, 10**6)(wrong.indices)
    with pytest.raises(ValueError, match=f"X is no valid {name.upper()} matrix"):
        door(wrong)


def test_lists_of_rows():
    X = csr().tolil()
    np.testing.assert_array_equal(fit_classifier(X), fit_classifier(csr()))
    X.rows[0][0] = 10**6
    with pytest.raises(ValueError, match=r"indices has 1000000 at position"):
        fit_classifier(X)


def test_wrong_indicators_of_labels():
    y = sparse.csr_array(np.eye(3, dtype=int)[np.arange(N_ROWS) % 3])
    y.indices = change(3, 10**6)(y.indices)
    with pytest.raises(ValueError, match="y is no valid CSR matrix"):
        AWSGDClassifier().fit(csr(), y)


def test_coordinates_of_coo():
    for column in (np.zeros(2), np.zeros(5, dtype=int)):
        X = sparse.coo_array((np.ones(2), ([0, 1], [0, 1])), shape=(2, 2))
        X.coords = (X.coords[0], column)
        with pytest.raises(ValueError, match="X is no valid COO matrix: it has 2"):
            check_sparse(X)


def test_blocks_of_bsr():
    X = sparse.bsr_array(csr(), blocksize=(4, 3))
    assert check_sparse(X) is X
    X.indices = change(-1, N_COLUMNS // 3)(X.indices)
    with pytest.raises(ValueError, match="X is no valid BSR matrix"):
        check_sparse(X)


def test_right_matrices_are_not_copied():
    for X in (csr(), csr(sparse.csr_matrix), csr().tocsc(), csr().tocoo()):
        assert check_sparse(X) is X
    assert check_sparse(None) is None


@doors
def test_unaligned_dense(door):
    X = csr().toarray()
    off = unaligned(X.ravel()).reshape(X.shape)
    assert not off.flags.aligned
    np.testing.assert_array_equal(door(off), door(X))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_stale_flag_is_not_believed(dtype):
    X = sparse.csr_array(
        (np.array([1.0, 2.0, 3.0]), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 2)
    )
    X.indices, X.indptr = X.indices.astype(dtype), X.indptr.astype(dtype)
    X.has_canonical_format = True
    assert not check_sparse(X).has_canonical_format


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_places_as_numpy_sees_them(dtype, rng):
    # Long enough for several parts of the scan, with faults at their seams.
    for n_rows, width in ((1, 9000), (3000, 5), (7, 2000)):
        X = sparse.random_array((n_rows, width), density=0.6, rng=rng, format="csr")
        X.sum_duplicates()
        indptr, indices = X.indptr.astype(dtype), X.indices.astype(dtype)
        assert check_places(indptr, indices, width) == (-1, -1, True)
        for position in {0, 1, 2046, 2047, 2048, 4094, len(indices) - 1}:
            if position < len(indices):
                for bad in (-1, width, np.iinfo(dtype).max, np.iinfo(dtype).min):
                    found = check_places(indptr, change(position, bad)(indices), width)
                    assert found[:2] == (-1, position)
                row = np.searchsorted(indptr, position, side="right") - 1
                if indptr[row] < position:
                    same = change(position, indices[position - 1])(indices)
                    assert check_places(indptr, same, width) == (-1, -1, False)


def test_rows_refuse_what_they_cannot_read():
    for parts in ({"indices": strided}, {"indptr": strided}):
        with pytest.raises(ValueError, match="contiguous"):
            Rows(with_parts(**parts))
    X = with_parts(indices=as_type(np.uint32), indptr=as_type(np.uint32))
    with pytest.raises(ValueError, match="int32 or int64"):
        Rows(X)
    wide = sparse.csr_array((1, 2**31), dtype=np.float64)
    with pytest.raises(ValueError, match="at most 2147483647"):
        Rows(wide)


@pytest.mark.parametrize("n_rows", [1, 7, 50, 3000])
def test_first_step_is_that_of_dense_rows(n_rows):
    """Its size comes from some rows: of a sparse matrix, runs of them."""
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(n_rows, 30)) * (rng.random((n_rows, 30)) < 0.3)
    # Every column has a scale of its own, and later rows are larger.
    X *= np.geomspace(1, 100, 30) * np.linspace(1, 3, n_rows)[:, None]
    target = SignTarget(np.ones(n_rows, dtype=bool))
    rates = [
        default_eta0("adagrad", Data(rows, None, np.ones(n_rows)), target)
        for rows in (X, sparse.csr_array(X))
    ]
    assert_allclose(rates[1], rates[0], rtol=0.1)
    exact = 3 / (1 + X.sum(axis=1).mean())
    assert_allclose(rates[1], exact, rtol=0.1)
