# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Tables for draws from distributions that do not move."""

import numpy as np

from libc.math cimport sqrt

from sklearn_awsgd._kernels._rows cimport (
    PREFETCH, Numbers, number, prefetch_number
)

cdef enum:
    # Rows that are drawn together, and then one of them: 64 bytes of norms, or twice.
    RUN = 16

ROWS_IN_RUN = RUN


cdef class AliasTable:
    """Walker's alias method: draws from fixed weights in constant time.

    Parameters
    ----------
    weights : ndarray of shape (n,)
        Non-negative.
    start : ndarray of shape (n_blocks + 1,), default=None
        The table serves each block ``start[s]:start[s + 1]`` by itself; each block
        with any rows has a positive sum.
    """

    def __init__(self, const double[::1] weights, const Py_ssize_t[::1] start=None):
        cdef Py_ssize_t n = weights.shape[0], s, k, first, last, small, large
        cdef Py_ssize_t n_small, n_large
        cdef double mean
        if start is None:
            start = np.array([0, n], dtype=np.intp)
        accept_array, other_array = np.empty(n), np.arange(n, dtype=np.int32)
        cdef double[::1] accept = accept_array
        cdef int[::1] other = other_array
        # One stack from each end: blocks below the mean, blocks above it.
        cdef int[::1] stack = np.empty(n, dtype=np.int32)
        with nogil:
            for s in range(start.shape[0] - 1):
                first, last = start[s], start[s + 1]
                mean = 0.0
                for k in range(first, last):
                    mean += weights[k]
                mean /= last - first
                n_small = n_large = 0
                for k in range(first, last):
                    accept[k] = weights[k] / mean
                    if accept[k] < 1.0:
                        stack[first + n_small] = <int> k
                        n_small += 1
                    else:
                        stack[last - 1 - n_large] = <int> k
                        n_large += 1
                while n_small > 0 and n_large > 0:
                    n_small -= 1
                    small = stack[first + n_small]
                    large = stack[last - n_large]
                    other[small] = <int> large
                    accept[large] -= 1.0 - accept[small]
                    if accept[large] < 1.0:
                        n_large -= 1
                        stack[first + n_small] = <int> large
                        n_small += 1
                # What is left differs from 1 by rounding only.
                for k in range(n_small):
                    accept[stack[first + k]] = 1.0
                for k in range(n_large):
                    accept[stack[last - 1 - k]] = 1.0
        self.size = n
        self.accept = accept_array
        self.other = other_array

    cdef Py_ssize_t pick(
        self, double u, Py_ssize_t start, Py_ssize_t stop
    ) noexcept nogil:
        """Return the index of the block ``start:stop`` that a random number draws."""
        cdef Py_ssize_t k
        u *= stop - start
        k = <Py_ssize_t> u
        if u - k < self.accept[start + k]:
            return start + k
        return self.other[start + k]

    def probabilities(self, Py_ssize_t start=0, stop=None):
        """Return the probabilities the table really has, by summing its cells."""
        cdef Py_ssize_t end = self.size if stop is None else stop, k
        result = np.zeros(self.size)
        for k in range(start, end):
            result[k] += self.accept[k] / (end - start)
            result[self.other[k]] += (1 - self.accept[k]) / (end - start)
        return result


cdef class SafeRows:
    """Draws in proportion to P times a bound of the gradient norm of each row.

    The bound is ``sqrt(||x_i||^2 + 1)``, that of a Lipschitz loss with an intercept,
    divided by the root of what a row costs where that is given. The alias method draws
    a run of rows, and what is left of the random number a row of the run: a table of
    all rows would be as large as several numbers for each.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    norms2 : ndarray of shape (n_rows,) or None
        Squared norms of the rows; None where nothing is bounded, and all bounds are 1.
    mass : ndarray of shape (n_rows,) or None
        P of each row; None when all are equal.
    costs : ndarray of shape (n_rows,) or None
        What each row costs.
    """

    def __init__(self, Py_ssize_t n_rows, norms2, mass, costs):
        cdef Py_ssize_t k, size, run, n_runs = (n_rows + RUN - 1) // RUN
        cdef double total = 0.0
        cdef double[RUN] weights
        cdef double[::1] sums = np.zeros(n_runs)
        self.n_rows = n_rows
        self.norms2 = None if norms2 is None else Numbers(norms2)
        self.mass = mass
        self.costs = costs
        with nogil:
            for run in range(n_runs):
                size = self.run_weights(run, weights)
                for k in range(size):
                    sums[run] += weights[k]
                total += sums[run]
        # Masses sum to one.
        self.mean = total / n_rows if mass is None else total
        self.runs = AliasTable(sums)

    cdef double bound(self, Py_ssize_t i) noexcept nogil:
        cdef double bound = 1.0
        if self.norms2 is not None:
            bound = sqrt(number(self.norms2, i) + 1.0)
        if self.costs is not None:
            bound /= sqrt(self.costs[i])
        return bound

    cdef double density(self, Py_ssize_t i) noexcept nogil:
        """The density against P."""
        return self.bound(i) / self.mean

    cdef Py_ssize_t run_weights(self, Py_ssize_t run, double* weights) noexcept nogil:
        """Set what rows of a run are drawn in proportion to; return their number."""
        cdef Py_ssize_t k, first = run * RUN
        cdef Py_ssize_t size = min(<Py_ssize_t> RUN, self.n_rows - first)
        for k in range(size):
            weights[k] = self.bound(first + k)
            if self.mass is not None:
                weights[k] *= self.mass[first + k]
        return size

    cdef void prefetch(self, Py_ssize_t i) noexcept nogil:
        """Ask for what the density of a row is made of."""
        if self.norms2 is not None:
            prefetch_number(self.norms2, i)

    cdef void prefetch_run(self, double u) noexcept nogil:
        """Ask for what `pick_run` will look at."""
        cdef Py_ssize_t k = <Py_ssize_t> (u * self.runs.size)
        PREFETCH(&self.runs.accept[k])
        PREFETCH(&self.runs.other[k])

    cdef Py_ssize_t pick_run(self, double u, double* rest) noexcept nogil:
        """The run of a random number, and the random number that is left of it."""
        cdef double accept
        cdef Py_ssize_t run
        u *= self.runs.size
        run = <Py_ssize_t> u
        u -= run
        accept = self.runs.accept[run]
        if u < accept:
            rest[0] = u / accept
        else:
            rest[0] = (u - accept) / (1.0 - accept)
            run = self.runs.other[run]
        self.prefetch(run * RUN)
        self.prefetch(min(run * RUN + RUN, self.n_rows) - 1)
        return run

    cdef Py_ssize_t pick_row(self, Py_ssize_t run, double rest) noexcept nogil:
        """The row of a run that a random number stands for."""
        cdef double[RUN] weights
        cdef Py_ssize_t k, size = self.run_weights(run, weights), last = 0
        cdef double total = 0.0, below = 0.0
        for k in range(size):
            total += weights[k]
        total *= rest
        for k in range(size):
            below += weights[k]
            if below > total:
                return run * RUN + k
            # Rounding must not lead to a row that cannot be drawn.
            if weights[k] > 0.0:
                last = k
        return run * RUN + last

    def densities(self):
        """Return the density of every row against P."""
        cdef Py_ssize_t i
        result = np.empty(self.n_rows)
        cdef double[::1] view = result
        for i in range(self.n_rows):
            view[i] = self.density(i)
        return result

    def probabilities(self):
        """Return the probabilities that draws really have, from the table of runs."""
        cdef double[RUN] weights
        cdef Py_ssize_t k, run, size
        result = np.empty(self.n_rows)
        for run, share in enumerate(self.runs.probabilities()):
            size = self.run_weights(run, weights)
            shares = np.array([weights[k] for k in range(size)])
            if share > 0:
                shares *= share / shares.sum()
            result[run * RUN : run * RUN + size] = shares
        return result
