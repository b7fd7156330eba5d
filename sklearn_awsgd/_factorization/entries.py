"""The entries of a matrix: which are observed, their values and their weights."""

import numbers
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from sklearn_awsgd._factorization.grid import GridPasses, count_parts
from sklearn_awsgd._factorization.row_solver import row_blocks
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd._spaces import EntryCosts, EntrySpace
from sklearn_awsgd._validation import check_costs, check_sparse
from sklearn_awsgd.samplers import UniformSampler

# Ranges of the entries for which the losses are losses.
RANGES = {"log_loss": (0, 1), "poisson": (0, np.inf)}
# Weights beyond these, either way, are scaled: their sums and products would overflow.
LARGEST_WEIGHT, SMALLEST_WEIGHT = 1e100, 1e-100
# Least weight then, relative to the largest: less makes no difference.
LEAST_WEIGHT = 1e-100


@dataclass
class EntryData:
    """A validated matrix, seen as entries.

    Attributes
    ----------
    X : ndarray or CSR of shape (n_rows, n_columns)
        The matrix; missing entries of a dense one are zero here.
    observed : ndarray of bool of shape (n_rows, n_columns) or None
        Which entries of a dense matrix are there; None when all are.
    weights : ndarray or CSR of the shape of X, or None
        Weights of the entries, of mean one.
    kind : {"dense", "zeros", "missing"}
        Whether all entries are stored, and what those are that are not.
    unstored_weight : float
        Weight of the zeros that are not stored.
    """

    X: object
    observed: np.ndarray | None
    weights: object
    kind: str
    unstored_weight: float = 1.0
    costs: EntryCosts | None = None  # what it costs to fetch each entry
    _stored: tuple | None = None

    @property
    def n_entries(self):
        """Number of observed entries."""
        if self.kind != "missing":
            return self.X.shape[0] * self.X.shape[1]
        return self.X.nnz if self.observed is None else int(self.observed.sum())

    @property
    def pass_cost(self):
        """What all entries cost; NaN where that is not known."""
        if self.costs is None:
            return np.nan
        return self.n_entries * self.mean_cost()

    def mean_cost(self):
        """Return what an entry costs on average, where that is known."""
        return self.costs.mean(self.space())

    def row_blocks(self, n_threads):
        """Return the rows, for sums over them in threads."""
        return Blocks(self.X, n_threads, row_blocks(*self._block_shape))

    @property
    def _block_shape(self):
        """Number of rows, and of numbers in each that are stored."""
        n_rows, width = self.X.shape
        if sparse.issparse(self.X):
            width = self.X.nnz // n_rows
        return n_rows, width

    def blocks_of(self, rows):
        """Yield the entries of some rows, those that are looked at together."""
        yield EntryData(
            self.X[rows],
            None if self.observed is None else self.observed[rows],
            None if self.weights is None else self.weights[rows],
            self.kind,
            self.unstored_weight,
        )

    def transposed(self):
        """Return the entries with columns for rows; of arrays, views."""

        def turn(matrix):
            return matrix.T.tocsr() if sparse.issparse(matrix) else matrix.T

        return EntryData(
            turn(self.X),
            None if self.observed is None else turn(self.observed),
            None if self.weights is None else turn(self.weights),
            self.kind,
            self.unstored_weight,
        )

    def as_sparse(self):
        """Return the entries of an array that misses some, which are all stored."""
        start, columns = self.places()

        def matrix(values):
            return sparse.csr_array((values, columns, start), shape=self.X.shape)

        values, weights = self.stored()
        weights = None if weights is None else matrix(weights)
        return EntryData(matrix(values), None, weights, "missing")

    def masses(self):
        """Return the sum of the weights of the observed entries of each row."""
        n_rows, n_columns = self.X.shape
        if not sparse.issparse(self.X):
            weights = self.observed if self.weights is None else self.weights
            full = np.full(n_rows, float(n_columns))
            return full if weights is None else weights.sum(axis=1, dtype=np.float64)
        counts = np.diff(self.X.indptr).astype(np.float64)
        masses = counts
        if self.weights is not None:
            masses = np.asarray(self.weights.sum(axis=1)).ravel()
        if self.kind == "zeros":
            masses = masses + self.unstored_weight * (n_columns - counts)
        return masses

    def stored(self):
        """Return the values of the stored entries, row by row, and their weights."""
        if self._stored is None:
            self._stored = self._find_stored()
        return self._stored

    def _find_stored(self):
        if sparse.issparse(self.X):
            values = self.X.data
            weights = None if self.weights is None else self.weights.data
        elif self.observed is None:
            values = self.X.ravel()
            weights = None if self.weights is None else self.weights.ravel()
        else:
            values = self.X[self.observed]
            weights = None if self.weights is None else self.weights[self.observed]
        return values, weights

    def column_counts(self):
        """Return the number of observed entries of each column."""
        n_rows, n_columns = self.X.shape
        if self.kind != "missing":
            return np.full(n_columns, n_rows)
        if self.observed is not None:
            return self.observed.sum(axis=0)
        return np.bincount(self.X.indices, minlength=n_columns)

    def places(self):
        """Return where the stored entries are, as `indptr` and `indices` of CSR."""
        if sparse.issparse(self.X):
            return self.X.indptr, self.X.indices
        start = np.concatenate([[0], np.cumsum(self.observed.sum(axis=1))])
        return start, np.ascontiguousarray(np.nonzero(self.observed)[1])

    def space(self):
        """Return where the entries are, as samplers see them."""
        if self.kind == "dense":
            return EntrySpace(self.X.shape, costs=self.costs)
        start, columns = self.places()
        return EntrySpace(self.X.shape, self.kind, start, columns, costs=self.costs)

    def draws(self, generator, pass_length, batch_size, n_threads):
        """Return what opens samplers of the entries, with a random stream."""
        return EntryDraws(self, generator, n_threads)

    def blocks(self):
        """Yield entries of rows that are looked at together, and where they are."""
        yield self, slice(0, self.X.shape[0])

    @property
    def n_stored(self):
        """Number of entries that are stored."""
        return len(self.stored()[0])

    def mean(self):
        """Return the weighted mean of the entries."""
        return self._mean_of(lambda values: values)

    def mean_distance(self, center):
        """Return the weighted mean distance of the entries from a number."""
        return self._mean_of(lambda values: np.abs(values - center))

    def _mean_of(self, function):
        """Return the weighted mean of a function of the entries."""
        values, weights = self.stored()
        n_unstored = self.n_entries - len(values)
        values = function(values.astype(np.float64, copy=False))
        total = values.sum() if weights is None else weights @ values
        if n_unstored:
            total += n_unstored * self.unstored_weight * function(np.zeros(1))[0]
        # Weights have mean one.
        return total / self.n_entries


class EntryDraws:
    """Opens samplers of the entries of a matrix in memory.

    Parameters
    ----------
    data : EntryData
        The entries.
    generator : numpy.random.BitGenerator
        Random stream.
    n_threads : int
        Threads for shuffled passes.
    """

    def __init__(self, data, generator, n_threads):
        self._space, self._generator = data.space(), generator
        self._threads = data.row_blocks(n_threads)
        self.costs = None if data.costs is None else data.costs.kernel

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def open(self, sampler):
        """Return what draws entries."""
        space, generator = self._space, self._generator
        n_parts, n_bands = count_parts(space.entries.n_entries, space.shape)
        if isinstance(sampler, UniformSampler) and n_parts > 1:
            return GridPasses(space.entries, generator, self._threads, n_parts, n_bands)
        sampler.prepare(space, n_problems=1, n_groups=1, strata=None)
        return sampler.open(space, None, 0, generator)


def check_entries(X, entry_weight, missing_values, unstored, loss, to_train=True):
    """Return an array or CSR matrix, already of the right type, as `EntryData`.

    Rows to train from have to have an entry; others may have none.

    Raises
    ------
    ValueError
        When nothing is observed, or a value is outside the range of the loss.
    """
    weights = _check_entry_weight(entry_weight, X)
    if sparse.issparse(X):
        weights, unstored_weight = _within_range(weights, unstored)
        data = _sparse_entries(X, weights, missing_values, unstored, unstored_weight)
    else:
        weights, _ = _within_range(weights, "missing")
        data = _dense_entries(X, weights, missing_values)
    values, _ = data.stored()
    if to_train and data.n_entries == 0:
        raise ValueError(
            "X has no observed entry with a positive weight; at least one is needed."
        )
    low, high = RANGES.get(loss, (-np.inf, np.inf))
    if len(values) and (values.min() < low or values.max() > high):
        raise ValueError(
            f"loss={loss!r} needs entries from {low} to {high}, got entries from "
            f"{values.min():.6g} to {values.max():.6g}; rescale X or use "
            "loss='squared_error'."
        )
    return data


def _is_missing(values, missing_values):
    if isinstance(missing_values, numbers.Real) and np.isnan(missing_values):
        return np.isnan(values)
    return values == missing_values


def _dense_entries(X, weights, missing_values):
    observed = ~_is_missing(X, missing_values)
    if weights is not None:
        observed &= weights > 0
    if observed.all():
        observed = None
    else:
        X = np.where(observed, X, 0)
    kind = "dense" if observed is None else "missing"
    data = EntryData(X, observed, weights, kind)
    if weights is not None and data.n_entries:
        used = weights if observed is None else np.where(observed, weights, 0)
        data.weights = used / (used.sum() / data.n_entries)
    return data


def _within_range(weights, unstored):
    """Return weights that can be added and multiplied, and that of a zero not stored.

    Only their ratios matter.
    """
    if weights is None:
        return None, 1.0
    values = weights.data if sparse.issparse(weights) else weights
    largest = values.max(initial=0.0)
    smallest = np.min(values, initial=largest, where=values > 0)
    if SMALLEST_WEIGHT <= smallest <= largest <= LARGEST_WEIGHT or largest == 0:
        return weights, 1.0
    unstored_weight = 1.0
    if unstored == "zero":
        largest = max(largest, 1.0)
        unstored_weight = max(1 / largest, LEAST_WEIGHT)
    values = np.where(values > 0, np.maximum(values / largest, LEAST_WEIGHT), 0.0)
    if not sparse.issparse(weights):
        return values, unstored_weight
    weights = weights.copy()
    weights.data = values
    return weights, unstored_weight


def _sparse_entries(X, weights, missing_values, unstored, unstored_weight):
    gone = _is_missing(X.data, missing_values)
    if weights is not None:
        gone |= weights.data == 0
    if gone.any() and unstored == "zero":
        raise ValueError(
            "X stores missing entries (or entries of weight zero) but unstored='zero' "
            "says that what is not stored is zero; use unstored='missing' or a dense X."
        )
    if gone.any():
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[~gone]
        place = rows, X.indices[~gone]
        if weights is not None:
            weights = sparse.csr_array((weights.data[~gone], place), shape=X.shape)
        X = sparse.csr_array((X.data[~gone], place), shape=X.shape)
    kind = "zeros" if unstored == "zero" else "missing"
    data = EntryData(X, None, weights, kind)
    if weights is not None and data.n_entries:
        total = weights.data.sum() + data.n_entries * unstored_weight
        mean = (total - X.nnz * unstored_weight) / data.n_entries
        data.weights = weights.copy()
        data.weights.data = weights.data / mean
        data.unstored_weight = unstored_weight / mean
    return data


def _check_entry_weight(entry_weight, X):
    """Return the weights in the layout of X, or None."""
    if entry_weight is None:
        return None
    weights = check_array(
        check_sparse(entry_weight, "entry_weight"),
        accept_sparse="csr",
        dtype=np.float64,
        order="C",
        ensure_min_samples=0,
        input_name="entry_weight",
    )
    if weights.shape != X.shape:
        raise ValueError(
            f"entry_weight has shape {weights.shape}, X has {X.shape}; give one weight "
            "for each entry."
        )
    values = weights.data if sparse.issparse(weights) else weights
    if values.size and values.min() < 0:
        raise ValueError(
            f"entry_weight has a negative value, {values.min()}; use 0 to leave an "
            "entry out."
        )
    if sparse.issparse(X) == sparse.issparse(weights):
        if not sparse.issparse(X):
            return weights
        weights = weights.tocsr()
        weights.sum_duplicates()
        if np.array_equal(weights.indptr, X.indptr) and np.array_equal(
            weights.indices, X.indices
        ):
            return weights
        raise ValueError(
            "entry_weight is sparse but stores other entries than X; give a weight for "
            "each stored entry of X."
        )
    if not sparse.issparse(X):
        raise ValueError("X is dense and entry_weight is sparse; give both dense.")
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return sparse.csr_array((weights[rows, X.indices], X.indices, X.indptr), X.shape)


def check_entry_costs(access_cost, data):
    """Return the costs of the entries of `EntryData` as EntryCosts, or None.

    They are given for each row, as a pair for rows and columns, or for each entry.
    """
    if access_cost is None:
        return None
    if not isinstance(data, EntryData):
        raise ValueError(
            "access_cost makes no difference where X is a row source: rows are read in "
            "blocks, each once in a pass; leave access_cost out."
        )
    n_rows, n_columns = data.X.shape
    name = "access_cost"
    if isinstance(access_cost, tuple) and len(access_cost) == 2:
        rows, columns = access_cost
        rows = check_costs(rows, n_rows, f"{name}[0]")
        return EntryCosts(rows, check_costs(columns, n_columns, f"{name}[1]"))
    if np.ndim(access_cost) == 1 and not sparse.issparse(access_cost):
        return EntryCosts(check_costs(access_cost, n_rows), np.zeros(n_columns))
    cells = check_array(
        check_sparse(access_cost, name),
        accept_sparse="csr",
        dtype=np.float64,
        order="C",
        input_name=name,
    )
    if cells.shape != data.X.shape:
        raise ValueError(
            f"{name} has shape {cells.shape}, X has {data.X.shape}; give what each row "
            "costs, a pair (rows, columns), or what each entry costs."
        )
    if not sparse.issparse(cells):
        check_costs(cells.ravel(), cells.size)
        return EntryCosts(cells=cells)
    cells.sum_duplicates()
    same = sparse.issparse(data.X) and data.kind == "missing"
    if not (
        same
        and np.array_equal(cells.indptr, data.X.indptr)
        and np.array_equal(cells.indices, data.X.indices)
    ):
        raise ValueError(
            f"{name} is sparse, which needs a sparse X with unstored='missing' that "
            "stores the same entries; give a dense array, or what each row costs."
        )
    return EntryCosts(entries=check_costs(cells.data, len(cells.data)))
