# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The two-way sampler of the observed entries of a matrix with holes."""

import numpy as np

cimport cython

from sklearn_awsgd._kernels._entries cimport GuideTable, below, uniform
from sklearn_awsgd._kernels._entry_samplers cimport (
    COLUMN,
    LEARNED,
    N_FIELDS,
    PROBABILITY,
    SAFE,
    SGD,
    LearnedEntrySampler,
)
from sklearn_awsgd._kernels._loop cimport Point

from sklearn_awsgd._kernels._entries import scatter


@cython.final
cdef class TwoWaySampler(LearnedEntrySampler):
    """A row or a column, then one of its entries: for matrices with missing entries.

    ``Q(i, j) = r_i / |row i| + c_j / |column j|`` in the learned part, r and c summing
    to one together, mixed with the uniform distribution over the entries.
    """

    def __init__(
        self, generator, entries, state, update, mixing, forgetting, eta0, normalize
    ):
        super().__init__(
            generator, entries, state, update, mixing, forgetting, eta0, normalize
        )
        size = self.entries.n_rows + self.entries.n_columns
        self.bounds[1] = size
        self.n_distributions = 1
        self.guide = GuideTable(size)
        counts = np.concatenate([entries.row_counts(), entries.column_counts()])
        self.base = counts / (2 * entries.n_entries)
        self.density = np.zeros(size)
        self.refresh()

    cdef void draw(self, Point* x) noexcept nogil:
        cdef double u = uniform(self.bits)
        cdef Py_ssize_t k, n = self.entries.n_rows, start
        if u < self.mixing:
            x.origin = SAFE
            self.entries.pick_stored(self.bits, x)
        else:
            x.origin = LEARNED
            k = self.guide.pick(self.bits)
            if k < n:
                start = self.entries.row_start[k]
                x.i = k
                x.entry = start + below(
                    self.bits, self.entries.row_start[k + 1] - start
                )
                x.j = self.entries.columns[x.entry]
            else:
                x.origin = COLUMN
                x.j = k - n
                start = self.entries.column_start[x.j]
                x.entry = self.entries.by_column[start + below(
                    self.bits, self.entries.column_start[x.j + 1] - start
                )]
                x.i = self.entries.rows[x.entry]
        x.q = self.mixing + self.density[x.i] + self.density[n + x.j]

    cdef void observe(self, const Point* x) noexcept nogil:
        cdef Py_ssize_t k, _way
        cdef double size
        self.batch_size += 1
        if self.update == SGD:
            self.batch_norm2 += x.norm2
            if x.origin != SAFE:
                self.hit(
                    x.i if x.origin == LEARNED else self.entries.n_rows + x.j, x.norm2
                )
                self.gradient_total += x.norm2
                self.n_learned += 1.0
            return
        k = x.i
        for _way in range(2):
            # The odds of a draw through k, given the entry: weighted by them, the
            # draws are uniform over the entries of k.
            size = self.table[k, PROBABILITY] / self.base[k]
            self.learn(k, self.density[k] / x.q, x.norm2 * size * size)
            k = self.entries.n_rows + x.j

    cdef void refresh(self) noexcept nogil:
        cdef Py_ssize_t k
        self.derive()
        self.guide.build(&self.table[0, PROBABILITY], N_FIELDS)
        for k in range(self.guide.size):
            self.density[k] = 0.0
            if self.base[k] > 0.0:
                # base is |k| / (2 n_entries).
                self.density[k] = (
                    (1.0 - self.mixing) * self.table[k, PROBABILITY]
                    / (2.0 * self.base[k])
                )

    def densities(self):
        """Return q of every cell; of missing ones, zero."""
        rows = np.asarray(self.entries.rows)
        columns = np.asarray(self.entries.columns)
        density = np.asarray(self.density)
        return scatter(
            self.entries,
            self.mixing + density[rows] + density[self.entries.n_rows + columns],
        )

    def row_probabilities(self):
        """Return the probability that the learned part draws each row."""
        return self._marginal(np.asarray(self.entries.rows), self.entries.n_rows)

    def column_probabilities(self):
        """Return the probability that the learned part draws each column."""
        return self._marginal(np.asarray(self.entries.columns), self.entries.n_columns)

    def _marginal(self, group, n_groups):
        rows = np.asarray(self.entries.rows)
        columns = np.asarray(self.entries.columns)
        density = np.asarray(self.density)
        density = density[rows] + density[self.entries.n_rows + columns]
        result = np.bincount(group, weights=density, minlength=n_groups)
        return result / result.sum()
