# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Row times column: the sampler of the entries of a matrix without holes."""

import numpy as np

cimport cython
from libc.math cimport fmax, fmin, sqrt

from sklearn_awsgd._kernels._entries cimport (
    POINTS_AHEAD, GuideTable, ask, below, find, guess, within
)
from sklearn_awsgd._kernels._entry_samplers cimport (
    LEARNED,
    N_FIELDS,
    PROBABILITY,
    SAFE,
    STORED,
    LearnedEntryDraws,
    learn,
)
from sklearn_awsgd._kernels._loop cimport Point
from sklearn_awsgd._kernels._rows cimport PREFETCH
from sklearn_awsgd._kernels._samplers cimport SGD, TINY_MOMENT, update_mean


@cython.final
cdef class ProductDraws(LearnedEntryDraws):
    """Row times column, for matrices without missing entries.

    ``q(i, j) = n m p_i p_j`` in the learned part, mixed with the uniform distribution
    once. Where zeros are not stored the learned part has a second component, the
    uniform distribution over the stored entries, with a learned probability: no product
    of rows and columns can tell them from the zeros.
    """

    def __init__(self, generator, entries, state, setting, marginal_costs=None):
        super().__init__(generator, entries, state, setting)
        n = self.entries.n_rows
        self.bounds[1] = n
        self.bounds[2] = n + self.entries.n_columns
        self.n_distributions = 2
        self.row_table = GuideTable(n)
        self.column_table = GuideTable(self.entries.n_columns)
        self.parts = state["parts"]
        shape = n, self.entries.n_columns
        self.base = np.repeat(1 / np.array(shape), shape)
        self.safe_density = None
        if self.mixing > 0.0 and marginal_costs is not None:
            self.build_safe(*marginal_costs)
        self.refresh()

    def build_safe(self, row_costs, column_costs):
        """Make the safe part that of roots of mean costs, rows times columns."""
        cdef double[::1] p
        sides, tables = [], []
        for costs in (row_costs, column_costs):
            p = 1 / np.sqrt(costs)
            p = np.asarray(p) / np.sum(p)
            table = GuideTable(p.shape[0])
            build_table(table, p)
            tables.append(table)
            sides.append(np.asarray(p) * p.shape[0])
        self.safe_row_table, self.safe_column_table = tables
        self.safe_density = np.concatenate(sides)

    cdef double safe_share(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """What the safe part adds to q of cell (i, j)."""
        if self.safe_density is None:
            return self.mixing
        return (
            self.mixing * self.safe_density[i]
            * self.safe_density[self.entries.n_rows + j]
        )

    cdef double product_share(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """What the product adds to q of cell (i, j)."""
        return (
            (1.0 - self.mixing) * (1.0 - self.stored) * self.entries.n_entries
            * self.table[i, PROBABILITY]
            * self.table[self.entries.n_rows + j, PROBABILITY]
        )

    cdef double stored_share(self) noexcept nogil:
        """What the uniform draws of stored entries add to q of each of them."""
        return (
            (1.0 - self.mixing) * self.stored * self.entries.n_entries
            / self.entries.columns.shape[0]
        )

    cdef void look_ahead(self) noexcept nogil:
        cdef double u
        cdef int r
        for r in range(0, 2 * POINTS_AHEAD, 2):
            if self.numbers[r] >= self.product_start:
                u = within(
                    self.numbers[r], self.product_start, self.product_stretch
                )
                ask(self.row_table, u)
                ask(self.column_table, self.numbers[r + 1])
        for r in range(0, 2 * POINTS_AHEAD, 2):
            if self.numbers[r] >= self.product_start:
                u = within(
                    self.numbers[r], self.product_start, self.product_stretch
                )
                PREFETCH(&self.table[guess(self.row_table, u), 0])
                guess(self.column_table, self.numbers[r + 1])

    cdef void draw(self, Point* x) noexcept nogil:
        cdef const double* u = self.next_numbers()
        if u[0] >= self.product_start:
            x.origin = LEARNED
            x.i = find(
                self.row_table, within(u[0], self.product_start, self.product_stretch)
            )
            x.j = find(self.column_table, u[1])
            self.entries.locate(x)
        elif u[0] < self.mixing:
            x.origin = SAFE
            if self.safe_density is None:
                x.i = below(within(u[0], 0.0, 1.0 / self.mixing), self.entries.n_rows)
                x.j = below(u[1], self.entries.n_columns)
            else:
                x.i = find(
                    self.safe_row_table, within(u[0], 0.0, 1.0 / self.mixing)
                )
                x.j = find(self.safe_column_table, u[1])
            self.entries.locate(x)
        else:
            x.origin = STORED
            self.entries.stored_at(below(u[1], self.entries.columns.shape[0]), x)
        x.q = self.safe_share(x.i, x.j) + self.product_share(x.i, x.j)
        if self.stored > 0.0 and x.entry >= 0:
            x.q += self.stored_share()

    cdef void observe(self, const Point* x) noexcept nogil:
        cdef Py_ssize_t n = self.entries.n_rows, column = n + x.j
        cdef double q_row, q_column, share, square, weight
        self.batch_size += 1
        if self.update == SGD:
            weight = self.take(x)
            if x.origin == LEARNED:
                self.hit(x.i, weight)
                self.hit(column, weight)
                self.gradient_total += weight
                self.n_learned += 1.0
            return
        # Probability that a draw of this cell came from the product. Weighted by it,
        # draws of the mixture have the law of the product.
        share = self.product_share(x.i, x.j) / x.q
        q_row = self.table[x.i, PROBABILITY] * n
        q_column = self.table[column, PROBABILITY] * self.entries.n_columns
        # (g / q_column)^2 and (g / q_row)^2, with one division.
        square = x.norm2 * (x.q / (q_row * q_column)) ** 2
        learn(self, x.i, share, square * q_row * q_row, x.cost)
        learn(self, column, share, square * q_column * q_column, x.cost)
        if self.stored > 0.0:
            self.learn_part(0, share, x, 1.0 - self.stored)
            if x.entry >= 0:
                share = self.stored_share() / x.q
                self.learn_part(1, share, x, self.stored)

    cdef void learn_part(
        self, int part, double share, const Point* x, double probability
    ) noexcept nogil:
        # A part is seen at each draw, a row once in a while: this is about the same
        # memory in draws.
        cdef double weight = self.forgetting / self.table.shape[0] * share
        update_mean(
            &self.parts[part], &self.parts[2 + part], weight, 1.0,
            x.norm2 * (probability * probability),
        )
        if self.time_aware:
            update_mean(
                &self.parts[4 + part], &self.parts[6 + part], weight, 1.0, x.cost
            )

    cdef void refresh(self) noexcept nogil:
        cdef double product, stored
        self.derive()
        self.row_table.build(&self.table[0, PROBABILITY], N_FIELDS)
        self.column_table.build(
            &self.table[self.entries.n_rows, PROBABILITY], N_FIELDS
        )
        self.stored = 0.0
        if not self.entries.dense and self.entries.columns.shape[0] > 0:
            self.stored = 0.5
            if self.parts[2] > 0.0 and self.parts[3] > 0.0:
                product = sqrt(self.parts[0] + TINY_MOMENT)
                stored = sqrt(self.parts[1] + TINY_MOMENT)
                if self.time_aware:
                    product /= sqrt(self.parts[4])
                    stored /= sqrt(self.parts[5])
                # A part that starves would not renew what it has learned.
                self.stored = fmin(fmax(stored / (product + stored), 0.05), 0.95)
        self.product_start = self.mixing + (1.0 - self.mixing) * self.stored
        self.product_stretch = 1.0 / (1.0 - self.product_start)

    def row_probabilities(self):
        """Return p of the rows."""
        return np.array(self.table[:self.entries.n_rows, PROBABILITY])

    def column_probabilities(self):
        """Return p of the columns."""
        return np.array(self.table[self.entries.n_rows:, PROBABILITY])

    def stratum_probabilities(self):
        """Return what is recorded over time: the probabilities of the columns."""
        return self.column_probabilities()

    def densities(self):
        """Return q of every cell."""
        cdef Point x
        result = np.empty((self.entries.n_rows, self.entries.n_columns))
        for i in range(self.entries.n_rows):
            for j in range(self.entries.n_columns):
                x.i, x.j = i, j
                self.entries.locate(&x)
                result[i, j] = self.safe_share(i, j) + self.product_share(i, j)
                if self.stored > 0 and x.entry >= 0:
                    result[i, j] += self.stored_share()
        return result


cdef build_table(GuideTable table, const double[::1] probabilities):
    table.build(&probabilities[0], 1)
