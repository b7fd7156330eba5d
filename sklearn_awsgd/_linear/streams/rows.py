"""Rows that a stream keeps: a buffer that rows are added to and leave from.

A row is stored as doubles and ends with a number for the intercept: 1, or 0 without
one. Dense and sparse rows have the same methods.
"""

import numpy as np
from scipy import sparse

from sklearn_awsgd._kernels import _stream
from sklearn_awsgd._kernels._rows import Rows


def make_rows(X, fit_intercept):
    """Return an empty buffer for rows like those of X."""
    kind = SparseRows if sparse.issparse(X) else DenseRows
    return kind(X.shape[1] + 1, fit_intercept)


class DenseRows:
    """A buffer of dense rows.

    Parameters
    ----------
    n_columns : int
        Features and intercept.
    fit_intercept : bool
        Whether rows end with 1 rather than 0.

    Attributes
    ----------
    n_rows : int
        Rows in the buffer.
    """

    def __init__(self, n_columns, fit_intercept):
        self.n_columns, self.fit_intercept = n_columns, bool(fit_intercept)
        self.n_rows = 0
        self._buffer = np.empty((0, n_columns))

    def __getstate__(self):
        return self.__dict__ | {"_buffer": self._buffer[: self.n_rows].copy()}

    @property
    def X(self):
        """The rows, an ndarray of shape (n_rows, n_columns)."""
        return self._buffer[: self.n_rows]

    def like(self, X):
        """Return X as this buffer stores rows: a dense array."""
        return X.toarray() if sparse.issparse(X) else X

    def append(self, X):
        """Add the rows of X, which have no number for the intercept yet."""
        end = self.n_rows + X.shape[0]
        if end > len(self._buffer):
            grown = np.empty((max(end, 2 * self.n_rows), self.n_columns))
            grown[: self.n_rows] = self.X
            self._buffer = grown
        new = self._buffer[self.n_rows : end]
        new[:, :-1] = self.like(X)
        new[:, -1] = self.fit_intercept
        self.n_rows = end

    def keep(self, stay):
        """Keep some rows, and return which row is now at which place.

        Only rows that close gaps are moved: of a large memory that hardly changes,
        hardly any.
        """
        n = len(stay)
        order = np.arange(n)
        staying = np.zeros(self.n_rows, dtype=bool)
        staying[stay] = True
        gaps = np.flatnonzero(~staying[:n])
        movers = n + np.flatnonzero(staying[n:])
        order[gaps] = movers
        self._buffer[gaps] = self._buffer[movers]
        self.n_rows = n
        return order

    def extend(self, other):
        """Add the rows of another buffer."""
        if other.n_rows:
            X = other.X
            self.append(X[:, :-1])

    def rows(self, start=0):
        """Return the rows from one on, for kernels."""
        return Rows(self._buffer[start : self.n_rows])

    def scores(self, v, start=0):
        """Return <x, v> of every row."""
        return self._buffer[start : self.n_rows] @ v

    def product(self, W):
        """Return the scores of several models."""
        return self.X @ W

    def combine(self, c, start=0):
        """Return the sum of c_i x_i."""
        return c @ self._buffer[start : self.n_rows]

    def add_gram(self, weights, total, which=slice(None)):
        """Add the sum of weights_i x_i x_i^T to `total`."""
        X = self.X[which]
        if len(weights) and (weights >= 0).all():
            # The product of an array and its own transpose takes half the time.
            scaled = X * np.sqrt(weights)[:, None]
            total += scaled.T @ scaled
        elif len(weights):
            total += (X * weights[:, None]).T @ X

    def moments(self):
        """Return mean and variance of each column."""
        n = max(self.n_rows, 1)
        mean = self.X.sum(axis=0) / n
        # What is far from zero would leave nothing but rounding of a mean square.
        gap = self.X - mean
        return mean, np.einsum("ij,ij->j", gap, gap) / n


class SparseRows:
    """A buffer of sparse rows; see :class:`DenseRows`."""

    def __init__(self, n_columns, fit_intercept):
        self.n_columns, self.fit_intercept = n_columns, bool(fit_intercept)
        self.n_rows = 0
        self.data = np.empty(0)
        self.indices = np.empty(0, dtype=np.int32)
        self.indptr = np.zeros(1, dtype=np.int32)
        self._views = {}

    def __getstate__(self):
        return self.__dict__ | {"_views": {}}

    def like(self, X):
        """Return X as this buffer stores rows: as CSR."""
        if sparse.issparse(X):
            return X
        return sparse.csr_matrix(X)

    def append(self, X):
        """Add the rows of X, which have no number for the intercept yet."""
        X = self.like(X)
        n, lengths = X.shape[0], np.diff(X.indptr)
        if n == 0:
            return
        # Where the numbers of X go, with one place left behind each row.
        ends = np.cumsum(lengths + 1)
        data, indices = np.empty(ends[-1]), np.empty(ends[-1], dtype=np.int32)
        places = np.arange(X.nnz) + np.repeat(np.arange(n), lengths)
        data[places], indices[places] = X.data, X.indices
        data[ends - 1], indices[ends - 1] = self.fit_intercept, self.n_columns - 1
        self._join(data, indices, ends, n)

    def _join(self, data, indices, ends, n):
        self.indptr = np.append(self.indptr, (self.indptr[-1] + ends).astype(np.int32))
        self.data = np.concatenate([self.data, data])
        self.indices = np.concatenate([self.indices, indices])
        self.n_rows += n
        self._views = {}

    def keep(self, stay):
        """Keep some rows, and return which row is now at which place."""
        order = np.sort(stay)
        starts, lengths = self.indptr[order], np.diff(self.indptr)[order]
        ends = np.cumsum(lengths)
        total = ends[-1] if len(ends) else 0
        places = np.arange(total) + np.repeat(starts - ends + lengths, lengths)
        self.data, self.indices = self.data[places], self.indices[places]
        self.indptr = np.append(0, ends).astype(np.int32)
        self.n_rows = len(order)
        self._views = {}
        return order

    def extend(self, other):
        """Add the rows of another buffer."""
        if isinstance(other, SparseRows):
            self._join(other.data, other.indices, other.indptr[1:], other.n_rows)
        elif other.n_rows:
            self.append(other.X[:, :-1])

    def matrix(self, start=0):
        """Return the rows from one on as CSR."""
        indptr = self.indptr[start:]
        first = indptr[0]
        return sparse.csr_matrix(
            (self.data[first:], self.indices[first:], indptr - first),
            shape=(self.n_rows - start, self.n_columns),
        )

    def rows(self, start=0):
        """Return the rows from one on, for kernels."""
        if start not in self._views:
            self._views[start] = Rows(self.matrix(start))
        return self._views[start]

    def scores(self, v, start=0):
        """Return <x, v> of every row."""
        z = np.empty(self.n_rows - start)
        _stream.scores(self.rows(start), v, z)
        return z

    def product(self, W):
        """Return the scores of several models."""
        return self.matrix() @ W

    def combine(self, c, start=0):
        """Return the sum of c_i x_i."""
        total = np.zeros(self.n_columns)
        _stream.combine(self.rows(start), c, total)
        return total

    def add_gram(self, weights, total, which=slice(None)):
        """Add the sum of weights_i x_i x_i^T to `total`."""
        every = np.zeros(self.n_rows)
        every[which] = weights
        _stream.add_gram(self.rows(), every, total)

    def moments(self):
        """Return mean and variance of each column."""
        n = max(self.n_rows, 1)
        mean = np.bincount(self.indices, self.data, self.n_columns) / n
        filled = np.bincount(self.indices, minlength=self.n_columns) / n
        gap = self.data - mean[self.indices]
        square = np.bincount(self.indices, gap * gap, self.n_columns) / n
        return mean, square + (1 - filled) * mean * mean
