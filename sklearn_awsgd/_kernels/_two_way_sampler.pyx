# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The two-way sampler of the observed entries of a matrix with holes."""

import numpy as np

cimport cython

from sklearn_awsgd._kernels._entries cimport (
    POINTS_AHEAD, GuideTable, ask, below, find, guess, within
)
from sklearn_awsgd._kernels._entry_samplers cimport (
    COLUMN,
    LEARNED,
    PROBABILITY,
    SAFE,
    LearnedEntryDraws,
    learn,
)
from sklearn_awsgd._kernels._loop cimport Point
from sklearn_awsgd._kernels._rows cimport PREFETCH
from sklearn_awsgd._kernels._samplers cimport SGD
from sklearn_awsgd._kernels._tables cimport AliasTable

from sklearn_awsgd._kernels._entries import scatter


@cython.final
cdef class TwoWayDraws(LearnedEntryDraws):
    """A row or a column, then one of its entries: for matrices with missing entries.

    ``Q(i, j) = r_i / |row i| + c_j / |column j|`` in the learned part, r and c summing
    to one together, mixed with the uniform distribution over the entries, or with one
    in proportion to one over the root of their costs.
    """

    def __init__(self, generator, entries, state, setting, entry_costs=None):
        super().__init__(generator, entries, state, setting)
        entries.sort_by_column()
        size = self.entries.n_rows + self.entries.n_columns
        self.bounds[1] = size
        self.n_distributions = 1
        self.guide = GuideTable(size)
        counts = np.concatenate([entries.row_counts(), entries.column_counts()])
        self.base = counts / (2 * entries.n_entries)
        self.density = np.zeros(size)
        self.drawn = np.zeros(size)
        self.stretch = 1 / (1 - self.mixing)
        self.safe_density = None
        if self.mixing > 0.0 and entry_costs is not None:
            weights = 1 / np.sqrt(entry_costs)
            self.safe_density = weights / weights.mean()
            self.safe = AliasTable(self.safe_density)
        # Uniform draws are draws of a row or column by its number of entries too.
        # Without a part of their own the processor need not guess which it will be.
        asked = self.update == SGD or self.safe_density is not None
        self.apart = self.mixing if asked else 0.0
        self.apart_stretch = 1 / (1 - self.apart)
        self.refresh()

    cdef double safe_share(self, Py_ssize_t e) noexcept nogil:
        """What the safe part adds to q of the entry with number e."""
        if self.safe_density is None:
            return self.mixing
        return self.mixing * self.safe_density[e]

    cdef void look_ahead(self) noexcept nogil:
        # In variables of its own: what is behind `self` might have changed by a store.
        cdef const Py_ssize_t* row_start = &self.entries.row_start[0]
        cdef const Py_ssize_t* column_start = &self.entries.column_start[0]
        cdef const int* columns = &self.entries.columns[0]
        cdef const int* column_rows = &self.entries.column_rows[0]
        cdef const Py_ssize_t* by_column = &self.entries.by_column[0]
        cdef Py_ssize_t n = self.entries.n_rows, n_entries = self.entries.n_entries
        cdef Py_ssize_t k, e
        cdef double apart = self.apart, stretch = self.apart_stretch
        cdef int r
        for r in range(0, 2 * POINTS_AHEAD, 2):
            if self.numbers[r] >= apart:
                ask(self.guide, within(self.numbers[r], apart, stretch))
        for r in range(0, 2 * POINTS_AHEAD, 2):
            if self.numbers[r] >= apart:
                guess(self.guide, within(self.numbers[r], apart, stretch))
        for r in range(0, 2 * POINTS_AHEAD, 2):
            if self.numbers[r] < apart:
                e = below(self.numbers[r + 1], n_entries)
                PREFETCH(&self.entries.rows[e])
                PREFETCH(&columns[e])
                continue
            k = find(self.guide, within(self.numbers[r], apart, stretch))
            # Where the entry is among those of row or column k.
            if k < n:
                e = row_start[k]
                e += below(self.numbers[r + 1], row_start[k + 1] - e)
                PREFETCH(&columns[e])
            else:
                e = column_start[k - n]
                e += below(self.numbers[r + 1], column_start[k - n + 1] - e)
                PREFETCH(&by_column[e])
                PREFETCH(&column_rows[e])
            self.ways[r // 2], self.places[r // 2] = k, e

    cdef void draw(self, Point* x) noexcept nogil:
        cdef const double* u = self.next_numbers()
        cdef Py_ssize_t k, e, n = self.entries.n_rows
        if u[0] < self.apart:
            x.origin = SAFE
            e = below(u[1], self.entries.n_entries)
            if self.safe_density is not None:
                # As AliasTable.pick: the fraction decides between two entries.
                if u[1] * self.entries.n_entries - e >= self.safe.accept[e]:
                    e = self.safe.other[e]
            self.entries.stored_at(e, x)
        else:
            k = self.ways[self.n_used // 2 - 1]
            e = self.places[self.n_used // 2 - 1]
            if k < n:
                x.origin = LEARNED
                x.i = k
                x.entry = e
                x.j = self.entries.columns[e]
            else:
                x.origin = COLUMN
                x.j = k - n
                x.entry = self.entries.by_column[e]
                x.i = self.entries.column_rows[e]
        x.q = self.safe_share(x.entry) + self.density[x.i] + self.density[n + x.j]

    cdef void observe(self, const Point* x) noexcept nogil:
        cdef Py_ssize_t k, _way
        cdef double size, weight
        self.batch_size += 1
        if self.update == SGD:
            weight = self.take(x)
            if x.origin != SAFE:
                self.hit(
                    x.i if x.origin == LEARNED else self.entries.n_rows + x.j, weight
                )
                self.gradient_total += weight
                self.n_learned += 1.0
            return
        weight = 1.0 / x.q
        k = x.i
        for _way in range(2):
            # The probability of k over its base.
            size = 2.0 * self.stretch * self.density[k]
            # The odds of a draw through k, given the entry: weighted by them, the
            # draws are uniform over the entries of k.
            learn(self, k, self.density[k] * weight, x.norm2 * size * size, x.cost)
            k = self.entries.n_rows + x.j

    cdef void refresh(self) noexcept nogil:
        cdef Py_ssize_t k
        cdef double p
        cdef double share = 1.0 - self.mixing, uniform = self.mixing - self.apart
        self.derive()
        for k in range(self.guide.size):
            self.density[k] = self.drawn[k] = 0.0
            if self.base[k] > 0.0:
                p = self.table[k, PROBABILITY]
                # base is |k| / (2 n_entries).
                self.density[k] = share * p / (2.0 * self.base[k])
                self.drawn[k] = (
                    (share * p + uniform * self.base[k]) * self.apart_stretch
                )
        self.guide.build(&self.drawn[0], 1)
        if self.n_used < 2 * POINTS_AHEAD:
            # The numbers that are left stand for other entries now.
            self.look_ahead()

    def densities(self):
        """Return q of every cell; of missing ones, zero."""
        rows = np.asarray(self.entries.rows)
        columns = np.asarray(self.entries.columns)
        density = np.asarray(self.density)
        safe = self.mixing
        if self.safe_density is not None:
            safe = self.mixing * np.asarray(self.safe_density)
        return scatter(
            self.entries,
            safe + density[rows] + density[self.entries.n_rows + columns],
        )

    def row_probabilities(self):
        """Return the probability that the learned part draws each row."""
        return self.marginals()[0]

    def column_probabilities(self):
        """Return the probability that the learned part draws each column."""
        return self.marginals()[1]

    def stratum_probabilities(self):
        """Return what is recorded over time: the probabilities of the columns."""
        return self.column_probabilities()

    def marginals(self):
        """Return the probabilities of rows and of columns in the learned part."""
        cdef const Py_ssize_t[::1] start = self.entries.row_start
        cdef Py_ssize_t n = self.entries.n_rows, i, e, j
        row_array, column_array = np.zeros(n), np.zeros(self.entries.n_columns)
        cdef double[::1] rows = row_array, columns = column_array
        cdef double q
        with nogil:
            for i in range(n):
                for e in range(start[i], start[i + 1]):
                    j = self.entries.columns[e]
                    q = self.density[i] + self.density[n + j]
                    rows[i] += q
                    columns[j] += q
        return row_array / row_array.sum(), column_array / column_array.sum()
