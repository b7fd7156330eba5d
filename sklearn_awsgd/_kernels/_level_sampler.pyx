# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Dynamic strata: rows grouped by the size of the gradient they last showed."""

import numpy as np

from libc.math cimport ilogb, isfinite, ldexp, sqrt

from sklearn_awsgd._kernels._rows cimport PREFETCH
from sklearn_awsgd._kernels._samplers cimport uniform

cdef enum:
    N_LEVELS = 32
    # Levels above the largest norm at the start.
    HEADROOM = 4

N_LEVELS_PER_GROUP = N_LEVELS
# Level of the largest norm at the start.
FIRST_LEVEL = N_LEVELS - 1 - HEADROOM


cdef class LevelDraws(RandomSampler):
    """Strata (group, power-of-two level of the last seen gradient norm).

    With P_i the mass of a row and g_i its gradient, the best distribution is
    ``Q_i ~ P_i ||g_i||``. All rows whose ``n P_i ||g_i||`` was last seen between two
    powers of two form a stratum s of n_s rows, from which rows are drawn alike:
    ``Q_i = v_s / sum_s n_s v_s``, where v_s is the root mean square of what draws from
    s have shown lately. A row changes stratum by swaps at the boundaries.

    With costs c_i the best distribution is ``P_i ||g_i|| / sqrt(c_i)``: levels and v_s
    are then those of gradient norms divided by the root of what the row last cost.

    v_s may be stale, the counts n_s never are: they and the density change together, at
    every move, so ``q_i = Q_i / P_i`` is exact.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    table : RowSpace
        The rows, their masses and the safe distribution; read only.
    groups : ndarray of shape (n_samples,) and dtype int
        Group of each row, such as its class.
    n_groups : int
        Number of groups.
    norms2 : ndarray of shape (n_samples,)
        Squared gradient norms at the start, up to a common factor.
    mixing, forgetting : float
    time_aware : bool, default=False
        See :class:`sklearn_awsgd.samplers.LevelSampler`.
    """

    def __init__(
        self, generator, table, groups, Py_ssize_t n_groups, norms2, double mixing,
        double forgetting, bint time_aware=False,
    ):
        super().__init__(generator)
        self.mass = table.mass
        self.n_rows = table.rows.shape[0]
        self.mixing = mixing
        self.forgetting = forgetting
        self.time_aware = time_aware
        self.patience = DRAWS_AHEAD
        self.n_strata = n_groups * N_LEVELS
        if time_aware and table.costs is not None:
            norms2 = norms2 / table.costs
        self.place(table, groups, norms2)
        # Another thread may be making it meanwhile.
        if mixing > 0.0:
            self.safe_density, self.safe = table.safe(time_aware)
        # Before a stratum is drawn from, its rows have the middle norm of their level.
        levels = np.arange(self.n_strata) % N_LEVELS
        self.squares = 2.0 * self.base * 4.0**levels
        self.counts = np.zeros(self.n_strata)
        self.values = np.empty(self.n_strata)
        # The strata that have rows, for the search in `prepare`.
        self.filled = np.empty(self.n_strata, dtype=np.int32)
        self.ends = np.empty(1 << int(self.n_strata - 1).bit_length())
        self.row_probability = np.empty(self.n_strata)
        self.pending_row = np.empty(4096, dtype=np.int32)
        self.pending_stratum = np.empty(4096, dtype=np.int32)
        self.n_used = DRAWS_AHEAD
        self.refresh()

    def place(self, table, const int[::1] groups, const double[::1] norms2):
        """Sort the rows by group and level."""
        cdef Py_ssize_t i, k, s
        cdef double largest = 0.0
        cdef const int[::1] rows = table.rows
        self.stratum = np.full(table.n_samples, -1, dtype=np.int32)
        self.position = np.full(table.n_samples, -1, dtype=np.int32)
        self.order = np.empty(self.n_rows, dtype=np.int32)
        self.start = np.zeros(self.n_strata + 1, dtype=np.intp)
        cdef Py_ssize_t[::1] free = np.empty(self.n_strata, dtype=np.intp)
        with nogil:
            for k in range(self.n_rows):
                i = rows[k]
                largest = max(largest, self.scaled_norm2(i, norms2[i]))
            self.base = 1.0
            if largest > 0.0:
                # Divided by `base`, the largest is of level N_LEVELS - 1 - HEADROOM.
                self.base = largest / ldexp(1.0, 2 * (N_LEVELS - 1 - HEADROOM))
            for k in range(self.n_rows):
                i = rows[k]
                s = groups[i] * N_LEVELS
                s += self.level(self.scaled_norm2(i, norms2[i]))
                self.stratum[i] = <int> s
                self.start[s + 1] += 1
            for s in range(self.n_strata):
                free[s] = self.start[s]
                self.start[s + 1] += self.start[s]
            for k in range(self.n_rows):
                i = rows[k]
                s = self.stratum[i]
                self.order[free[s]] = <int> i
                self.position[i] = <int> free[s]
                free[s] += 1

    cdef double scaled_mass(self, Py_ssize_t i) noexcept nogil:
        """n P_i."""
        return 1.0 if self.mass is None else self.n_rows * self.mass[i]

    cdef double scaled_norm2(self, Py_ssize_t i, double norm2) noexcept nogil:
        """(n P_i)^2 times a squared norm."""
        norm2 *= self.scaled_mass(i) * self.scaled_mass(i)
        # What overflows is large; whether too large the first steps will tell.
        return norm2 if isfinite(norm2) else 1e300

    cdef Py_ssize_t level(self, double norm2) noexcept nogil:
        cdef Py_ssize_t exponent
        norm2 /= self.base
        if norm2 < 4.0:
            return 0
        exponent = ilogb(norm2) // 2
        return min(exponent, <Py_ssize_t> (N_LEVELS - 1))

    cdef void draw(self, Point* x) noexcept nogil:
        cdef Py_ssize_t b
        cdef const Point* ready
        if self.n_used == DRAWS_AHEAD:
            for b in range(DRAWS_AHEAD):
                self.uniforms[b] = uniform(self.bits)
                self.uniforms_inside[b] = uniform(self.bits)
            self.n_used = 0
            self.prepared = False
        if not self.prepared:
            self.prepare()
        ready = &self.prepared_points[self.n_used]
        x.i, x.origin, x.q = ready.i, ready.origin, ready.q
        self.n_used += 1

    cdef void prepare(self) noexcept nogil:
        """Turn the random numbers that wait into draws at the current state.

        A draw reads three places that are not in the cache, each known from the one
        before: drawn one by one, they would be waited for one by one. Every draw has
        two random numbers, so those made for draws to come are still theirs when the
        state has changed.
        """
        cdef Py_ssize_t b, s, step, k
        cdef const double* ends = &self.ends[0]
        cdef Py_ssize_t[DRAWS_AHEAD] slots
        cdef double u, density
        cdef Point* x
        for b in range(self.n_used, DRAWS_AHEAD):
            u = self.uniforms[b]
            if u < self.mixing:
                slots[b] = <Py_ssize_t> (self.uniforms_inside[b] * self.safe.size)
                PREFETCH(&self.safe.accept[slots[b]])
                PREFETCH(&self.safe.other[slots[b]])
                continue
            # The first stratum that ends above u; nothing could predict branches here.
            k = 0
            step = self.half
            while step > 0:
                k += step * (ends[k + step - 1] <= u)
                step >>= 1
            s = self.filled[k]
            self.prepared_points[b].origin = s
            slots[b] = self.start[s] + <Py_ssize_t> (
                self.uniforms_inside[b] * (self.start[s + 1] - self.start[s])
            )
            PREFETCH(&self.order[slots[b]])
        for b in range(self.n_used, DRAWS_AHEAD):
            x = &self.prepared_points[b]
            k = slots[b]
            if self.uniforms[b] < self.mixing:
                # As AliasTable.pick: the fraction decides between a row and its other.
                u = self.uniforms_inside[b] * self.safe.size - k
                x.i = k if u < self.safe.accept[k] else self.safe.other[k]
                x.origin = -1
                PREFETCH(&self.stratum[x.i])
            else:
                x.i = self.order[k]
            if self.mixing > 0.0:
                PREFETCH(&self.safe_density[x.i])
        for b in range(self.n_used, DRAWS_AHEAD):
            x = &self.prepared_points[b]
            if x.origin < 0:
                x.origin = self.stratum[x.i]
            density = self.n_rows * self.row_probability[x.origin]
            x.q = density / self.scaled_mass(x.i)
            if self.mixing > 0.0:
                x.q += self.mixing * self.safe_density[x.i]
        self.prepared = True

    cdef void observe(self, const Point* x) noexcept nogil:
        cdef Py_ssize_t s = x.origin, target
        cdef double m = self.scaled_mass(x.i), weight = 1.0 / (m * x.q)
        # (n P_i ||g_i||)^2
        cdef double norm2 = x.norm2 * x.q * x.q * m * m
        if self.time_aware:
            norm2 /= x.cost
        # As in StrataDraws: the probability that the learned part drew this row.
        cdef double share = self.n_rows * self.row_probability[s] * weight
        cdef double new = self.forgetting * share, old = 1.0 - self.forgetting
        if self.mixing > 0.0:
            old += self.forgetting * (self.mixing * self.safe_density[x.i] * weight * m)
        # As `update_mean`, old weights shrunk by 1 - forgetting * share. But sums
        # of positive terms alone keep all digits: norms may be ten decades apart.
        old *= self.counts[s]
        self.counts[s] = old + new
        if self.counts[s] > 0.0:
            self.squares[s] = (old * self.squares[s] + new * norm2) / self.counts[s]
        target = s - s % N_LEVELS + self.level(norm2)
        if target != s and self.n_pending < self.pending_row.shape[0]:
            PREFETCH(&self.position[x.i])
            self.pending_row[self.n_pending] = <int> x.i
            self.pending_stratum[self.n_pending] = <int> target
            self.n_pending += 1

    cdef void adapt(self) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.n_pending):
            self.move(self.pending_row[k], self.pending_stratum[k])
        self.n_pending = 0
        self.refresh()

    cdef void move(self, Py_ssize_t i, Py_ssize_t target) noexcept nogil:
        """Take row i to stratum `target`, one boundary at a time."""
        cdef Py_ssize_t s = self.stratum[i], edge
        cdef int other
        while s != target:
            # Swap with the row at the boundary, then shift the boundary.
            if s < target:
                edge = self.start[s + 1] - 1
                self.start[s + 1] -= 1
                s += 1
            else:
                edge = self.start[s]
                self.start[s] += 1
                s -= 1
            other = self.order[edge]
            self.order[self.position[i]] = other
            self.position[other] = self.position[i]
            self.order[edge] = <int> i
            self.position[i] = <int> edge
        self.stratum[i] = <int> target

    cdef void refresh(self) noexcept nogil:
        """Derive the probabilities from counts and running means."""
        cdef Py_ssize_t s, k, n_filled = 0
        cdef double total = 0.0, below = self.mixing, share
        for s in range(self.n_strata):
            self.row_probability[s] = 0.0
            if self.start[s + 1] > self.start[s]:
                # A stratum all of whose gradients were zero may wake up again.
                self.values[s] = sqrt(self.squares[s] + 1e-6 * self.base)
                total += (self.start[s + 1] - self.start[s]) * self.values[s]
                self.filled[n_filled] = <int> s
                n_filled += 1
        share = (1.0 - self.mixing) / total
        for k in range(n_filled):
            s = self.filled[k]
            self.row_probability[s] = share * self.values[s]
            below += (self.start[s + 1] - self.start[s]) * self.row_probability[s]
            self.ends[k] = below
        # The search looks at a power of two, of which no draw may be behind the last
        # stratum, by rounding or otherwise.
        self.half = 1
        while 2 * self.half < n_filled:
            self.half *= 2
        for k in range(n_filled - 1, 2 * self.half):
            self.ends[k] = 2.0
        self.prepared = False

    def stratum_probabilities(self):
        """Return the learned probability of each (group, level)."""
        cdef Py_ssize_t s
        result = np.empty(self.n_strata)
        cdef double[::1] view = result
        for s in range(self.n_strata):
            view[s] = (
                (self.start[s + 1] - self.start[s]) * self.row_probability[s]
                / (1.0 - self.mixing)
            )
        return result

    def row_strata(self):
        """Return the stratum of each row; -1 for rows that cannot be drawn."""
        return np.array(self.stratum)

    def densities(self):
        """Return q of every row; of those that cannot be drawn, zero."""
        stratum = np.asarray(self.stratum)
        result = self.n_rows * np.asarray(self.row_probability)[stratum]
        if self.mass is not None:
            mass = np.asarray(self.mass)
            result = result / np.where(mass > 0, self.n_rows * mass, 1)
        if self.mixing > 0:
            result = result + self.mixing * np.asarray(self.safe_density)
        result[stratum < 0] = 0
        return result
