"""Checks of parameters and weights; every message names the remedy."""

import numbers
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array, check_random_state
from sklearn.utils import validation as sklearn_validation

from sklearn_awsgd._kernels._rows import Rows, check_places

# Seeded anew for each seed that is a number: to make one takes longer than some fits.
_random, _random_lock = np.random.RandomState(0), Lock()
# Where the largest squared norm is less, others may be lost in single precision.
LEAST_NORM2 = 1e-20


def check_option(name, value, options):
    """Raise ValueError unless `value` is one of `options`."""
    if not any(value is option or value == option for option in options):
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}={value!r} is not known; choose one of {listed}.")


def check_number(
    name, value, *, low=None, above=None, high=None, below=None, integer=False
):
    """Raise unless `value` is a number in the given range.

    `low` and `high` are allowed values, `above` and `below` are not.
    """
    kind = numbers.Integral if integer else numbers.Real
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, kind):
        word = "an integer" if integer else "a number"
        raise TypeError(f"{name} must be {word}, got {value!r}.")
    bounds = [
        (low, ">=", lambda bound: value >= bound),
        (above, ">", lambda bound: value > bound),
        (high, "<=", lambda bound: value <= bound),
        (below, "<", lambda bound: value < bound),
    ]
    used = [bound for bound in bounds if bound[0] is not None]
    # NaN fails every comparison; infinity is never a setting.
    if not np.isfinite(value) or not all(holds(bound) for bound, _, holds in used):
        text = " and ".join(f"{sign} {bound}" for bound, sign, _ in used)
        raise ValueError(f"{name}={value!r} is out of range: it must be {text}.")


class Options:
    """A parameter that has one of some values.

    Parameters
    ----------
    *options : object
        The values.
    """

    def __init__(self, *options):
        self.options = options

    def check(self, name, value):
        """Raise ValueError unless `value` is one of them."""
        check_option(name, value, self.options)


@dataclass(frozen=True, kw_only=True)
class Real:
    """A parameter that is a number in a range.

    Attributes
    ----------
    low, high : float or None
        The least and the largest value.
    above, below : float or None
        Bounds that are not values themselves.
    optional : bool
        Whether it may be None.
    words : tuple of str
        What it may be instead of a number.
    or_boolean : bool
        Whether it may be True or False instead.
    """

    low: float | None = None
    above: float | None = None
    high: float | None = None
    below: float | None = None
    optional: bool = False
    words: tuple = ()
    or_boolean: bool = False
    integer = False

    def check(self, name, value):
        """Raise TypeError or ValueError unless `value` is in the range."""
        if (self.optional and value is None) or (
            isinstance(value, str) and value in self.words
        ):
            return
        if self.or_boolean and isinstance(value, (bool, np.bool_)):
            return
        check_number(
            name,
            value,
            low=self.low,
            above=self.above,
            high=self.high,
            below=self.below,
            integer=self.integer,
        )


class Integer(Real):
    """A parameter that is an integer in a range; see :class:`Real`."""

    integer = True


class Boolean:
    """A parameter that is True or False; 1 and 0 will do."""

    def check(self, name, value):
        """Raise TypeError when `value` is something else."""
        if not isinstance(value, (numbers.Integral, np.bool_)) or value not in (0, 1):
            raise TypeError(f"{name} must be True or False, got {value!r}.")


def check_parameters(obj, table, prefix=""):
    """Raise unless the parameters of an object are what its table says.

    Parameters
    ----------
    obj : object
        Its attributes are checked, in the order of the table.
    table : dict
        What each parameter may be, by name: :class:`Options`, :class:`Real`,
        :class:`Integer` or :class:`Boolean`.
    prefix : str, default=""
        What stands before a name in messages, such as "sampler.".
    """
    for name, kind in table.items():
        kind.check(prefix + name, getattr(obj, name))


def draw_seeds(random_state, n):
    """Return the first n integers that `check_random_state` would draw, an array."""
    most = np.iinfo(np.int32).max
    if not isinstance(random_state, numbers.Integral):
        return check_random_state(random_state).randint(most, size=n)
    with _random_lock:
        _random.seed(random_state)
        return _random.randint(most, size=n)


def check_weights(sample_weight, n_samples):
    """Return `sample_weight` as a float64 vector, or None when all are equal.

    Raises
    ------
    ValueError
        When weights are negative, not finite, all zero or of the wrong length.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Number):
        sample_weight = np.full(n_samples, sample_weight, dtype=np.float64)
    weight = check_array(
        sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        order="C",
        input_name="sample_weight",
    )
    if weight.ndim != 1:
        raise ValueError(
            f"Sample weights must be 1D array or scalar, got {weight.ndim}D array."
        )
    if weight.shape[0] != n_samples:
        raise ValueError(
            f"sample_weight.shape == {weight.shape}, expected {(n_samples,)}!"
        )
    if weight.min() < 0:
        raise ValueError(
            f"sample_weight has a negative value, {weight.min()}; a weight is how "
            "often a row counts: use 0 to leave a row out."
        )
    if weight.max() == 0:
        raise ValueError(
            "sample_weight is zero for every sample; at least one row needs a "
            "positive weight: leave the call out when no row counts."
        )
    # Scaled first: the sum of huge weights must not overflow.
    weight = weight / weight.max()
    return None if (weight == weight[0]).all() else weight


def check_costs(access_cost, n_samples, name="access_cost"):
    """Return what each row costs as a float64 vector, or None when nothing is given.

    Raises
    ------
    ValueError
        When costs are not positive, not finite or of the wrong length.
    """
    if access_cost is None:
        return None
    costs = check_array(
        access_cost, ensure_2d=False, dtype=np.float64, order="C", input_name=name
    )
    if costs.shape != (n_samples,):
        raise ValueError(
            f"{name} has shape {costs.shape}, expected {(n_samples,)}: give what each "
            "row costs to fetch."
        )
    if costs.min() <= 0:
        raise ValueError(
            f"{name} has the value {costs.min()}; costs have to be positive: give a "
            "row that is at hand a small one, such as 1e-7 seconds."
        )
    return costs


def check_strata(strata):
    """Refuse the name of a column, which looks like a sequence."""
    if isinstance(strata, str):
        raise TypeError(
            f"strata={strata!r} is a text; give a value for each row, for example "
            f"strata=X[{strata!r}] of a data frame."
        )


def mean_weight(sample_weight):
    """Return the mean of weights that have been checked; 1 without any."""
    if sample_weight is None:
        return 1.0
    weight = np.asarray(sample_weight, dtype=np.float64)
    # Scaled first: the sum of huge weights must not overflow.
    return float(weight.max() * np.mean(weight / weight.max()))


@contextmanager
def unchanged_on_failure(estimator):
    """Give an estimator its attributes back when the body raises."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def is_source(X):
    """Return whether X is a row source, and not an array of whatever library."""
    return (
        callable(getattr(X, "take", None))
        and hasattr(X, "shape")
        and hasattr(X, "dtype")
        and not hasattr(X, "__array__")
        and not hasattr(X, "__dataframe__")
        and not sparse.issparse(X)
    )


def validate_data(estimator, X="no_validation", y="no_validation", **options):
    """scikit-learn's function of this name, which trusts what arrays say of themselves.

    So do SciPy and our kernels: with a wrong index array of a sparse matrix they would
    read and write at random addresses.
    """
    X, y = check_sparse(X), check_sparse(y, "y")
    if isinstance(X, np.ndarray) and not X.flags.aligned:
        X = X.copy()
    return sklearn_validation.validate_data(estimator, X, y, **options)


def check_features(estimator, X, reset):
    """Tell scikit-learn of the features of rows that are not at hand."""
    none = np.broadcast_to(np.zeros(1, dtype=X.dtype), (1, X.shape[1]))
    validate_data(estimator, none, reset=reset)


def check_sparse(X, name="X"):
    """Return a sparse matrix whose index arrays can be trusted; others as they are.

    Index arrays that are right but strided, unaligned, too long or of an uncommon type
    are copied; the matrix of the caller stays as it is.

    Raises
    ------
    ValueError
        When an index array is wrong, with what is wrong.
    """
    if not sparse.issparse(X) or X.ndim != 2:
        return X
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {name} is {X.dtype}.")
    if X.format == "coo":
        for index, size in zip((X.row, X.col), X.shape, strict=True):
            _check_coordinates(np.asarray(index), size, X.data.size, name)
    elif X.format == "lil":
        # The conversion copies Python integers without looking at them.
        return _check_compressed(X.tocsr(), name)
    elif X.format in ("csr", "csc", "bsr"):
        return _check_compressed(X, name)
    return X


def _check_coordinates(index, size, n_values, name):
    """Check the rows or the columns of a matrix in the format COO."""
    invalid = f"{name} is no valid COO matrix: "
    if index.dtype.kind not in "iu" or index.shape != (n_values,):
        raise ValueError(
            f"{invalid}it has {n_values} values and coordinates that are "
            f"{index.dtype} of shape {index.shape}; as many integers are needed."
        )
    if n_values and not 0 <= int(index.min()) <= int(index.max()) < size:
        raise ValueError(
            f"{invalid}it has coordinates from {index.min()} to {index.max()} in a "
            f"dimension of size {size}."
        )


def _check_compressed(X, name):
    """Check a matrix in the format CSR, CSC or BSR."""
    invalid = f"{name} is no valid {X.format.upper()} matrix: "
    parts = [np.asarray(part) for part in (X.data, X.indices, X.indptr)]
    data, indices, indptr = parts
    # Rows of a CSC matrix are its columns, those of a BSR matrix rows of blocks.
    blocks = data.shape[1:] if X.format == "bsr" else (1, 1)
    if len(blocks) != 2 or 0 in blocks:
        raise ValueError(f"{invalid}its data have shape {data.shape}.")
    sizes = [size // block for size, block in zip(X.shape, blocks, strict=True)]
    n_rows, width = sizes[::-1] if X.format == "csc" else sizes
    for part, array in (("indices", indices), ("indptr", indptr)):
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise ValueError(
                f"{invalid}{name}.{part} is {array.dtype} of shape {array.shape}; one "
                "dimension of integers is needed."
            )
    if len(indptr) != n_rows + 1:
        raise ValueError(
            f"{invalid}{name}.indptr has {len(indptr)} elements, shape {X.shape} "
            f"needs {n_rows + 1}."
        )
    n_nonzero = int(indptr[-1])
    if not 0 <= n_nonzero <= min(len(indices), len(data)):
        raise ValueError(
            f"{invalid}{name}.indptr ends with {n_nonzero}, but {name}.indices has "
            f"{len(indices)} elements and {name}.data has {len(data)}."
        )
    dtype = _index_dtype(indices.dtype, n_nonzero)
    data = np.require(data[:n_nonzero], requirements=["C", "A"])
    indices, indptr = (
        np.require(part, dtype=dtype, requirements=["C", "A"])
        for part in (indices[:n_nonzero], indptr)
    )
    bad_row, bad_index, is_canonical = check_places(indptr, indices, width)
    if bad_row >= 0:
        raise ValueError(
            f"{invalid}{name}.indptr has to begin with 0, never fall and end with the "
            f"number of stored values; it has {indptr[bad_row]} and then "
            f"{indptr[bad_row + 1]} at position {bad_row}."
        )
    if bad_index >= 0:
        raise ValueError(
            f"{invalid}{name}.indices has {indices[bad_index]} at position "
            f"{bad_index}, indices go from 0 to {width - 1}."
        )
    checked = (data, indices, indptr)
    if any(
        old.shape != new.shape or not np.may_share_memory(old, new)
        for old, new in zip(parts, checked, strict=True)
    ):
        X = type(X)(checked, shape=X.shape)
    # SciPy would find out in a pass of its own.
    X.has_canonical_format = is_canonical
    return X


def _index_dtype(given, n_nonzero):
    """Return the one type that both index arrays are read as."""
    narrow = given.itemsize < 4 or (given.itemsize == 4 and given.kind == "i")
    return np.int32 if narrow and n_nonzero <= np.iinfo(np.int32).max else np.int64


def canonical(X):
    """Return X; a sparse one with sorted indices, each once."""
    if sparse.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def squared_norms(X, dtype):
    """Return the squared norms of rows as float32 or float64."""
    return Rows(X).squared_norms(dtype)


def check_rows(X, squared_norms=squared_norms):
    """Return a canonical X and the squared norms of its rows.

    The norms are as exact as the rows, if their range allows. The pass that computes
    them also finds values that are not finite; whoever has threads for it gives another
    function.

    Raises
    ------
    ValueError
        When X has NaN, infinite values or values whose squares overflow.
    """
    X = canonical(X)
    norms2 = squared_norms(X, X.dtype)
    if X.dtype == np.float32 and not LEAST_NORM2 < norms2.max(initial=0) < np.inf:
        norms2 = squared_norms(X, np.float64)
    if not np.isfinite(norms2).all():
        assert_all_finite(X, input_name="X")
        raise ValueError(
            "X has values so large that their squares overflow; scale the features, "
            "for example with StandardScaler."
        )
    return X, norms2
