# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What the samplers of matrix entries share that learn.

P is uniform over the entries: over all cells of a full matrix, over the observed
entries of one with holes.
"""

import numpy as np

cimport cython
from libc.math cimport exp, fmax, fmin, sqrt

from sklearn_awsgd._kernels._samplers cimport (
    MOMENTS, SGD, TINY_MOMENT, step_weight, update_mean
)

# A row or column begins with this many visits' worth of the mean of all: one visit
# alone says little about it.
cdef double PRIOR_VISITS = 4.0
# exp of less is zero.
cdef double LOWEST_TAU = -700.0

cdef enum:
    # Draws between two moves, for each row and column.
    REST = 4

ENTRY_UPDATES = {"moments": MOMENTS, "sgd": SGD}


cdef class LearnedEntryDraws(RandomSampler):
    """What the samplers share that learn a number for each row and each column.

    "moments" holds for each row and column the running mean of
    ``(probability / base)^2 ||d||^2``, over the draws that came through it. Its square
    root is where the second moment of d would be smallest with the others held fixed;
    divided by the mean cost of these draws first, where draws are least dear for what
    they bring.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    entries : Entries
        The entries.
    state : dict of ndarray
        `table` of shape (n_rows + n_columns, 4), its columns named in the ``.pxd``
        file, `costs` of shape (n_rows + n_columns, 2), `scale` of shape (4,) and
        `parts` of shape (8,), changed in place.
    setting : RowColumnSampler
        Its `update`, `mixing`, `forgetting`, `eta0`, `normalize` and `time_aware` are
        used.
    """

    def __init__(self, generator, Entries entries, state, setting):
        super().__init__(generator)
        cdef Py_ssize_t size = entries.n_rows + entries.n_columns
        self.entries = entries
        self.update = ENTRY_UPDATES[setting.update]
        self.mixing = setting.mixing
        self.forgetting = setting.forgetting
        self.eta0 = setting.eta0
        self.normalize = setting.normalize
        self.table = state["table"]
        self.scale = state["scale"]
        self.costs = state["costs"]
        self.lines, self.cost_lines = &self.table[0, 0], &self.costs[0, 0]
        self.time_aware = setting.time_aware
        if self.update == SGD:
            self.gradient = np.zeros(size)
            self.hits = np.zeros(size)
        # What is O(n_rows + n_columns) is done once in some times as many draws; the
        # paper's own rule moves after each batch.
        self.period = REST * size if self.update == MOMENTS or self.normalize else 1
        if self.period > 1:
            self.patience = POINTS_AHEAD
        self.n_used = 2 * POINTS_AHEAD

    @cython.final
    cdef const double* next_numbers(self) noexcept nogil:
        """Return the two random numbers of the next draw.

        They are made for some draws at once. What these will read is asked for with the
        distribution of now; it may have moved when they come, and nothing is lost then
        but the time to wait.
        """
        cdef int r
        if self.n_used == 2 * POINTS_AHEAD:
            for r in range(2 * POINTS_AHEAD):
                self.numbers[r] = self.bits.next_double(self.bits.state)
            self.n_used = 0
            self.look_ahead()
        self.n_used += 2
        return &self.numbers[self.n_used - 2]

    cdef void look_ahead(self) noexcept nogil:
        pass

    @cython.final
    cdef double take(self, const Point* x) noexcept nogil:
        """Take in a draw for the running means; return its weight for tau."""
        self.batch_norm2 += x.norm2
        if not self.time_aware:
            return x.norm2
        self.batch_cost += x.cost
        return step_weight(x.norm2, x.cost, self.scale, self.normalize)

    @cython.final
    cdef void hit(self, Py_ssize_t k, double norm2) noexcept nogil:
        """Take in a draw through row or column k, for the next step of tau."""
        self.gradient[k] += norm2
        self.hits[k] += 1.0

    cdef void adapt(self) noexcept nogil:
        if self.batch_size < self.period:
            return
        if self.update == SGD:
            self.move_tau()
        self.batch_size = 0
        self.refresh()

    def settle(self):
        """Take in what was observed since the last move, though it is not yet due."""
        period, self.period = self.period, 1
        self.adapt()
        self.period = period

    cdef void move_tau(self) noexcept nogil:
        """Move the logits by the sums over the draws since the last move.

        The paper's step is ``sum_b w_b (e_k(b) - softmax)``, w_b = ||d_b||^2. The
        normalised one divides w by its running mean over the moves before, so that
        eta0 has no units, and takes the mean of the other draws' w as a baseline: this
        leaves the expectation as it is, and the weights then sum to zero, so that there
        is no dense part.
        """
        cdef Py_ssize_t k
        cdef int d
        cdef double g, largest
        cdef double eta = self.eta0
        if self.normalize:
            eta *= self.n_learned > 1.0 and self.scale[0] > 0.0
            if eta > 0.0:
                eta /= self.scale[0] * (self.n_learned - 1.0)
        for d in range(self.n_distributions):
            largest = LOWEST_TAU
            for k in range(self.bounds[d], self.bounds[d + 1]):
                if self.normalize:
                    g = self.n_learned * self.gradient[k]
                    g -= self.gradient_total * self.hits[k]
                else:
                    g = self.gradient[k]
                    g -= self.gradient_total * self.table[k, PROBABILITY]
                self.table[k, TAU] += eta * g
                self.gradient[k] = 0.0
                self.hits[k] = 0.0
                if self.base[k] > 0.0:
                    largest = fmax(largest, self.table[k, TAU])
            # A softmax does not change with a constant; this one keeps tau finite.
            for k in range(self.bounds[d], self.bounds[d + 1]):
                g = fmax(self.table[k, TAU] - largest, LOWEST_TAU)
                self.table[k, TAU] = fmin(g, 0.0)
        update_mean(
            &self.scale[0], &self.scale[1], self.forgetting, 1.0,
            self.batch_norm2 / self.batch_size,
        )
        if self.time_aware:
            update_mean(
                &self.scale[2], &self.scale[3], self.forgetting, 1.0,
                self.batch_cost / self.batch_size,
            )
        self.batch_norm2 = self.batch_cost = 0.0
        self.gradient_total = 0.0
        self.n_learned = 0.0

    cdef void derive(self) noexcept nogil:
        """Derive the probabilities of rows and columns from the state."""
        cdef Py_ssize_t k
        cdef int d
        cdef double g, total, seen, n_seen, cost, n_cost
        cdef double prior = PRIOR_VISITS * self.forgetting
        for d in range(self.n_distributions):
            total = seen = n_seen = cost = n_cost = 0.0
            if self.update == MOMENTS:
                for k in range(self.bounds[d], self.bounds[d + 1]):
                    if self.base[k] > 0.0:
                        seen += self.table[k, COUNT] * self.table[k, SQUARE]
                        n_seen += self.table[k, COUNT]
                        cost += self.costs[k, 1] * self.costs[k, 0]
                        n_cost += self.costs[k, 1]
                cost = cost / n_cost if n_cost > 0.0 else 1.0
                seen = seen / n_seen if n_seen > 0.0 else 1.0
            for k in range(self.bounds[d], self.bounds[d + 1]):
                self.table[k, PROBABILITY] = 0.0
                if self.base[k] > 0.0:
                    if self.update == SGD:
                        self.table[k, PROBABILITY] = exp(self.table[k, TAU])
                    else:
                        # The running mean, with the prior for a few visits more.
                        g = self.table[k, COUNT] * self.table[k, SQUARE] + prior * seen
                        g /= self.table[k, COUNT] + prior
                        if self.time_aware:
                            g /= self.costs[k, 0] if self.costs[k, 1] > 0.0 else cost
                        g = sqrt(TINY_MOMENT + g)
                        self.table[k, PROBABILITY] = self.base[k] * g
                total += self.table[k, PROBABILITY]
            for k in range(self.bounds[d], self.bounds[d + 1]):
                self.table[k, PROBABILITY] /= total

    cdef void refresh(self) noexcept nogil:
        pass
