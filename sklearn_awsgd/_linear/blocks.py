"""Rows in blocks, over which sums are taken.

Which rows a block has depends on their number and length alone, and results come in the
order of the blocks: a sum is the same bit by bit, whatever the number of threads.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Condition

import numpy as np
from scipy import sparse

from sklearn_awsgd._kernels._newton import weigh_rows
from sklearn_awsgd._linear.curvature import systematic_sample

# Numbers in the rows of a block, and the least rows of one: enough that calls from
# Python, some 20 microseconds each, do not show.
NUMBERS_IN_BLOCK = 2**19
FEWEST_IN_BLOCK = 8192
# Blocks that each thread may be ahead of the sum: their results wait in memory.
RESULTS_AHEAD = 2


class Blocks:
    """Rows in memory, visited block by block.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_samples, n_features)
        Rows. Blocks are views of them.
    n_threads : int, default=1
        Threads that visit blocks.
    parts : list of slice, default=None
        The rows of each block; None for about equal numbers of numbers.

    Attributes
    ----------
    shape : tuple of int
        Number of rows and features.
    dtype : dtype
        Of the numbers in the rows.
    n_nonzero : int
        Numbers in all rows.
    is_sparse : bool
        Whether rows come as CSR.
    """

    def __init__(self, X, n_threads=1, parts=None):
        self._X, self.n_threads, self._parts = X, n_threads, parts
        self.shape, self.dtype = X.shape, X.dtype
        self.is_sparse = sparse.issparse(X)
        self.n_nonzero = X.nnz if self.is_sparse else X.size

    @cached_property
    def _blocks(self):
        """Pairs of the rows of each block and where they stand."""
        parts = self._parts or row_slices(self.shape[0], self.n_nonzero)
        return [(rows_between(self._X, part), part) for part in parts]

    @cached_property
    def _helpers(self):
        return ThreadPoolExecutor(self.n_threads - 1)

    def map(self, function):
        """Yield ``function(X, part)`` of each block, in their order.

        `X` has the rows ``part`` of all, a slice. Functions of several blocks may run
        at the same time: their products are by ``dot``, as ``@`` of NumPy 2.4 holds the
        GIL where an operand is transposed.
        """
        return self.run(function, self._blocks)

    def run(self, function, calls):
        """Yield ``function(*arguments)`` of each of the calls, in their order."""
        if self.n_threads == 1 or len(calls) == 1:
            for arguments in calls:
                yield function(*arguments)
            return
        shared = SharedCalls(function, calls, RESULTS_AHEAD * self.n_threads)
        for _ in range(min(self.n_threads, len(calls)) - 1):
            self._helpers.submit(shared.work)
        try:
            for k in range(len(calls)):
                yield shared.result(k)
        finally:
            shared.stop()

    def take(self, rows):
        """Return some rows, by their rising numbers: a view where none is left out."""
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and not self.is_sparse:
            return self._X[rows[0] : rows[-1] + 1]
        return self._X[rows]

    def weigh(self, rows, roots, dtype):
        """Return dense rows, a one behind each, multiplied with roots of weights."""
        return weigh_rows(self._X, rows, roots, dtype)

    def sample(self, size, n_rows, rng):
        """Draw rows for a curvature, as `systematic_sample` does."""
        return systematic_sample(size, n_rows, rng)


class SharedCalls:
    """Calls that a thread makes together with helpers, and their results in order.

    Whoever is free takes the next call. Where a call is short, this is quicker than to
    hand each of them over, and the thread that wants the results does not wait idly.

    Parameters
    ----------
    function : callable
        What is called.
    calls : list of tuple
        Its arguments.
    n_ahead : int
        How many calls may have been taken that the results wanted do not need yet.
    """

    def __init__(self, function, calls, n_ahead):
        self._function, self._calls, self._n_ahead = function, calls, n_ahead
        self._n_taken, self._wanted, self._results = 0, 0, {}
        self._changed = Condition()

    def work(self):
        """Help until all calls are taken."""
        while (k := self._take(may_wait=True)) is not None:
            self._call(k)

    def result(self, k):
        """Return the result of call k; they have to be asked for in their order."""
        with self._changed:
            self._wanted = k
            self._changed.notify_all()
        while k not in self._results:
            mine = self._take(may_wait=False)
            if mine is not None:
                self._call(mine)
                continue
            with self._changed:
                self._changed.wait_for(lambda: k in self._results)
        result, error = self._results.pop(k)
        if error is not None:
            raise error
        return result

    def stop(self):
        """Let helpers take no more calls."""
        with self._changed:
            self._n_taken = len(self._calls)
            self._changed.notify_all()

    def _take(self, may_wait):
        """Return the number of a call that is to be made; None if there is none."""
        with self._changed:
            while True:
                k = self._n_taken
                if k == len(self._calls):
                    return None
                if k < self._wanted + self._n_ahead:
                    self._n_taken += 1
                    return k
                if not may_wait:
                    return None
                self._changed.wait()

    def _call(self, k):
        try:
            outcome = self._function(*self._calls[k]), None
        except BaseException as error:
            outcome = None, error
        with self._changed:
            self._results[k] = outcome
            self._changed.notify_all()


def row_slices(n_samples, n_nonzero):
    """Return the slices of the rows that are visited together."""
    per_row = max(n_nonzero / max(n_samples, 1), 1.0)
    n_rows = max(int(NUMBERS_IN_BLOCK / per_row), FEWEST_IN_BLOCK)
    starts = range(0, max(n_samples, 1), n_rows)
    return [slice(start, min(start + n_rows, n_samples)) for start in starts]


def rows_between(X, part):
    """Return the rows of a slice, without a copy of their numbers."""
    if part.start == 0 and part.stop == X.shape[0]:
        return X
    if not sparse.issparse(X):
        return X[part]
    starts = X.indptr[part.start : part.stop + 1]
    numbers = slice(starts[0], starts[-1])
    block = sparse.csr_array((len(starts) - 1, X.shape[1]), dtype=X.dtype)
    block.data, block.indices = X.data[numbers], X.indices[numbers]
    block.indptr = starts - starts[0]
    return block


def stack_rows(parts):
    """Return the rows of several arrays or CSR matrices as one; one alone as it is."""
    if len(parts) == 1:
        return parts[0]
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts).tocsr()
    return np.concatenate(parts)
