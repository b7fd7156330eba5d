"""Rows of a matrix in one place, and the functions that are called where they are."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from sklearn_awsgd._factorization.columns import column_equations
from sklearn_awsgd._factorization.entries import check_entries
from sklearn_awsgd._linear.curvature import systematic_sample
from sklearn_awsgd._partitions.rows import Start, as_rows, naming_partition, size_of
from sklearn_awsgd._validation import canonical


@dataclass(frozen=True)
class Reading:
    """How a matrix is read."""

    missing_values: float
    unstored: str
    loss: str

    @property
    def allows_nan(self):
        """Whether NaN is that of missing entries."""
        return bool(np.isnan(self.missing_values))


@dataclass
class EntryFacts:
    """What there is to know of the entries of a partition, or of several."""

    number: int
    n_rows: int
    n_features: int
    n_entries: int
    n_stored: int
    dtype: np.dtype
    is_sparse: bool
    is_full: bool  # neither holes nor weights
    mass: float  # sum of the weights
    mean: float  # weighted, of the entries


class MatrixPartition:
    """Rows of a matrix, and the weights of their entries, in one place.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_rows, n_features)
        Rows; there may be none.
    entry_weight : array-like or sparse matrix of the shape of X, default=None
        Weights of the entries.
    number : int, default=0
        Which of the partitions it is: errors tell.
    """

    def __init__(self, X, entry_weight=None, number=0):
        self.number, self.entry_weight = number, None
        if entry_weight is not None:
            is_sparse = sparse.issparse(entry_weight)
            as_stored = sparse.csr_array if is_sparse else np.asarray
            self.entry_weight = as_stored(entry_weight)
        with naming_partition(number):
            self.X = canonical(as_rows(X))
        self._last = None

    def __len__(self):
        return self.X.shape[0]

    def __sizeof__(self):
        """Return the bytes of the arrays: clusters ask, and save what is too much."""
        weight = self.entry_weight
        return size_of(self.X) + (0 if weight is None else size_of(weight))

    def __getstate__(self):
        return vars(self) | {"_last": None}

    def entries(self, reading):
        """Return the entries, whose weights have mean one, and the mean itself."""
        if self._last is None or self._last[0] != reading:
            with naming_partition(self.number):
                self._last = reading, *self._read(reading)
        return self._last[1:]

    def _read(self, reading):
        # Finite, or missing.
        check_array(
            self.X,
            accept_sparse="csr",
            ensure_all_finite="allow-nan" if reading.allows_nan else True,
            ensure_min_samples=0,
            input_name="X",
        )
        data = check_entries(
            self.X,
            self.entry_weight,
            reading.missing_values,
            reading.unstored,
            reading.loss,
            to_train=False,
        )
        if data.weights is None or data.n_entries == 0:
            return data, 1.0
        if data.kind == "zeros":
            # A zero that is not stored weighs one.
            return data, 1 / data.unstored_weight
        # In both units that of the largest is known.
        if sparse.issparse(data.X):
            k = data.weights.data.argmax()
            place = np.searchsorted(data.X.indptr, k, side="right") - 1
            place, scaled = (place, data.X.indices[k]), data.weights.data[k]
        else:
            place = np.unravel_index(data.weights.argmax(), data.weights.shape)
            scaled = data.weights[place]
        return data, self.entry_weight[place] / scaled


def describe(partition, reading):
    """Return the EntryFacts of a partition."""
    data, mean_weight = partition.entries(reading)
    n_rows, n_features = data.X.shape
    return EntryFacts(
        number=partition.number,
        n_rows=n_rows,
        n_features=n_features,
        n_entries=data.n_entries,
        n_stored=data.n_stored,
        dtype=data.X.dtype,
        is_sparse=sparse.issparse(data.X),
        is_full=data.kind != "missing" and data.weights is None,
        mass=mean_weight * data.n_entries,
        mean=data.mean() if data.n_entries else 0.0,
    )


def distances(partition, reading, center):
    """Return the weighted sum of the distances of the entries from a number."""
    data, mean_weight = partition.entries(reading)
    if data.n_entries == 0:
        return None
    return (mean_weight * data.n_entries * data.mean_distance(center),)


distances.adds_up = True


def draw_rows(partition, share, start):
    """Return a share of the rows, and the weights of their entries."""
    if not len(partition):
        return None
    n_rows = int(np.ceil(share * len(partition)))
    size = np.ones(len(partition))
    rows, _ = systematic_sample(size, n_rows, Start(start, partition.number))
    weight = partition.entry_weight
    return partition.X[rows], None if weight is None else weight[rows]


def equations(partition, reading, columns, scales):
    """Return the ColumnEquations of the rows, solved for these columns."""
    data, mean_weight = partition.entries(reading)
    if data.n_entries == 0:
        return None
    return (column_equations(data, columns, scales).times(mean_weight),)


equations.adds_up = True
