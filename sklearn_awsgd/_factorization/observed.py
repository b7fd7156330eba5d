"""Exact solutions where entries are missing: each row has its own system.

A system costs as many operations as the squared number of factors for each entry, and
the cube of it for each row; they are done in blocks, so that one solution of all rows
or columns takes as long as a few passes of draws.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from sklearn_awsgd._kernels._observed import solve_observed
from sklearn_awsgd._linear.blocks import Blocks

# Keeps systems solvable where alpha is 0 and a row has few entries.
LEAST_RIDGE = 1e-11
# Threads share the rows in parts of about this many entries.
PART_SIZE = 1 << 16


@dataclass
class StoredEntries:
    """Entries by rows, as in CSR.

    Attributes
    ----------
    start, columns : ndarray of int
        Where the entries of each row begin, and their columns.
    values : ndarray of shape (n_entries,)
        Values of the entries.
    weights : ndarray of shape (n_entries,) or None
        Their weights; None when all are 1.
    """

    start: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    weights: np.ndarray | None

    @classmethod
    def of(cls, data):
        """Return the observed entries of an `EntryData` that misses some."""
        return cls(*data.places(), *data.stored())

    def transposed(self, n_columns):
        """Return the entries by columns."""
        shape = len(self.start) - 1, n_columns

        def transpose(values):
            matrix = sparse.csr_array((values, self.columns, self.start), shape=shape)
            return matrix.T.tocsr()

        turned = transpose(self.values)
        weights = None if self.weights is None else transpose(self.weights).data
        return StoredEntries(turned.indptr, turned.indices, turned.data, weights)

    def masses(self):
        """Return the sum of the weights of each row."""
        if self.weights is None:
            return np.diff(self.start).astype(np.float64)
        ends = np.concatenate([[0.0], np.cumsum(self.weights)])
        return np.diff(ends[self.start])

    def solve(self, factors, offset, alpha, n_threads=1):
        """Solve all rows, given factors and offset of the columns.

        Parameters
        ----------
        factors : ndarray of shape (n_columns, n_factors)
            Factors of the columns.
        offset : ndarray of shape (n_columns,)
            Prediction of each column for factors of zero.
        alpha : float
            Strength of the ridge.
        n_threads : int, default=1
            Threads, which change no result: rows are solved one by one.

        Returns
        -------
        solution : ndarray of shape (n_rows, n_factors)
            The minimisers.
        least : ndarray of shape (n_rows,)
            The minima, of twice the loss and the ridge.

        Raises
        ------
        ValueError
            If numbers overflow: a ridge keeps all systems solvable otherwise.
        """
        n_rows = len(self.start) - 1
        solution, least = np.empty((n_rows, factors.shape[1])), np.empty(n_rows)
        weights = np.empty(0) if self.weights is None else self.weights
        factors = np.ascontiguousarray(factors, dtype=np.float64)

        def solve(part):
            solve_observed(
                self.start[part.start : part.stop + 1],
                self.columns,
                self.values,
                weights,
                factors,
                offset,
                alpha,
                LEAST_RIDGE,
                solution[part],
                least[part],
            )

        n_parts = max(1, len(self.values) // PART_SIZE)
        step = max(1, -(-n_rows // n_parts))
        parts = [slice(k, min(k + step, n_rows)) for k in range(0, n_rows, step)]
        for _ in Blocks(solution, n_threads).run(solve, [(part,) for part in parts]):
            pass
        n_failed = np.count_nonzero(~np.isfinite(least))
        if n_failed:
            raise ValueError(
                f"Floating-point overflow: {n_failed} of {n_rows} rows or columns "
                "could not be solved for; scale X, look for values far beyond all "
                "others, or lower alpha."
            )
        return solution, least
