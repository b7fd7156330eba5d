# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Dynamic strata: rows grouped by the size of the gradient they last showed."""

import numpy as np

from libc.math cimport isfinite, ldexp, sqrt
from libc.string cimport memcpy

from sklearn_awsgd._kernels._rows cimport PREFETCH
from sklearn_awsgd._kernels._samplers cimport uniform

cdef enum:
    N_LEVELS = 32
    # Levels above the largest norm at the start.
    HEADROOM = 4
    # Rows that are placed together.
    PLACED_TOGETHER = 1 << 16
    # Powers of four that doubles have, and more.
    LEAST_POWER = -600
    N_POWERS = 1200

N_LEVELS_PER_GROUP = N_LEVELS
# Level of the largest norm at the start.
FIRST_LEVEL = N_LEVELS - 1 - HEADROOM


cdef inline Py_ssize_t power_of_four(double value) noexcept nogil:
    """The exponent, rounded down; `value` is positive and finite."""
    cdef unsigned long long bits
    memcpy(&bits, &value, sizeof(double))
    # Shifts round down where divisions would round to zero. Numbers that have no
    # exponent of their own are as small as any.
    return (<Py_ssize_t> (bits >> 52) - 1023) >> 1


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
    look : callable
        Takes a slice of the rows and returns their groups, such as classes, of dtype
        int32, and squared gradient norms at the start, up to a common factor.
    n_groups : int
        Number of groups.
    mixing, forgetting : float
    time_aware : bool, default=False
        See :class:`sklearn_awsgd.samplers.LevelSampler`.
    """

    def __init__(
        self, generator, table, look, Py_ssize_t n_groups, double mixing,
        double forgetting, bint time_aware=False,
    ):
        super().__init__(generator)
        self.mass = table.mass
        self.n_rows = table.n_rows
        self.mixing = mixing
        self.forgetting = forgetting
        self.time_aware = time_aware
        self.patience = DRAWS_AHEAD
        self.n_strata = n_groups * N_LEVELS
        self.place(table.n_samples, look)
        if mixing > 0.0:
            self.safe = table.safe(time_aware)
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

    def place(self, Py_ssize_t n_samples, look):
        """Sort the rows by group and level."""
        cdef Py_ssize_t i, s, begin, power, highest = -N_POWERS, lowest = 0
        cdef int code
        cdef double norm2
        cdef const int[::1] groups
        cdef const double[::1] norms2
        # At first the group and the power of four of each row.
        self.position = np.full(n_samples, -1, dtype=np.int32)
        for begin in range(0, n_samples, PLACED_TOGETHER):
            groups, norms2 = look(slice(begin, begin + PLACED_TOGETHER))
            with nogil:
                for i in range(begin, begin + groups.shape[0]):
                    norm2 = self.scaled_norm2(i, norms2[i - begin])
                    power = LEAST_POWER
                    if norm2 > 0.0:
                        power = power_of_four(norm2)
                        highest = max(highest, power)
                    if self.scaled_mass(i) > 0.0:
                        code = <int> (power - LEAST_POWER)
                        self.position[i] = groups[i - begin] * N_POWERS + code
        # Divided by `base`, the largest are of level N_LEVELS - 1 - HEADROOM.
        if highest >= LEAST_POWER:
            lowest = max(highest - (N_LEVELS - 1 - HEADROOM), <Py_ssize_t> -500)
        self.base = ldexp(1.0, 2 * lowest)
        self.order = np.empty(self.n_rows, dtype=np.int32)
        self.start = np.zeros(self.n_strata + 1, dtype=np.intp)
        cdef Py_ssize_t[::1] free = np.empty(self.n_strata, dtype=np.intp)
        with nogil:
            for i in range(n_samples):
                code = self.position[i]
                if code >= 0:
                    power = LEAST_POWER + code % N_POWERS - lowest
                    s = code // N_POWERS * N_LEVELS + max(power, <Py_ssize_t> 0)
                    self.position[i] = <int> s
                    self.start[s + 1] += 1
            for s in range(self.n_strata):
                free[s] = self.start[s]
                self.start[s + 1] += self.start[s]
            for i in range(n_samples):
                s = self.position[i]
                if s >= 0:
                    self.order[free[s]] = <int> i
                    self.position[i] = <int> free[s]
                    free[s] += 1

    cdef Py_ssize_t stratum(self, Py_ssize_t i) noexcept nogil:
        """The stratum of a row: the last that starts no later than where it stands."""
        cdef const Py_ssize_t* start = &self.start[0]
        cdef Py_ssize_t place = self.position[i], n = self.n_strata, half
        # Nothing could predict branches here.
        while n > 1:
            half = n // 2
            start += half * (start[half] <= place)
            n -= half
        return start - &self.start[0]

    cdef double scaled_mass(self, Py_ssize_t i) noexcept nogil:
        """n P_i."""
        return 1.0 if self.mass is None else self.n_rows * self.mass[i]

    cdef double scaled_norm2(self, Py_ssize_t i, double norm2) noexcept nogil:
        """(n P_i)^2 times a squared norm."""
        norm2 *= self.scaled_mass(i) * self.scaled_mass(i)
        # What overflows is large; whether too large the first steps will tell.
        return norm2 if isfinite(norm2) else 1e300

    cdef Py_ssize_t level(self, double norm2) noexcept nogil:
        norm2 /= self.base
        # What is no number has no exponent.
        if not norm2 >= 4.0:
            return 0
        return min(power_of_four(norm2), <Py_ssize_t> (N_LEVELS - 1))

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
        # Where to look: for a row in `order`, or for a run of rows.
        cdef Py_ssize_t[DRAWS_AHEAD] slots
        cdef double[DRAWS_AHEAD] rests
        cdef double u, density
        cdef Point* x
        for b in range(self.n_used, DRAWS_AHEAD):
            u = self.uniforms[b]
            if u < self.mixing:
                self.safe.prefetch_run(self.uniforms_inside[b])
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
            if self.uniforms[b] < self.mixing:
                slots[b] = self.safe.pick_run(self.uniforms_inside[b], &rests[b])
            else:
                self.prepared_points[b].i = self.order[slots[b]]
                if self.mixing > 0.0:
                    self.safe.prefetch(self.prepared_points[b].i)
        for b in range(self.n_used, DRAWS_AHEAD):
            if self.uniforms[b] < self.mixing:
                k = self.safe.pick_row(slots[b], rests[b])
                self.prepared_points[b].i = k
                PREFETCH(&self.position[k])
        for b in range(self.n_used, DRAWS_AHEAD):
            x = &self.prepared_points[b]
            if self.uniforms[b] < self.mixing:
                x.origin = self.stratum(x.i)
            density = self.n_rows * self.row_probability[x.origin]
            x.q = density / self.scaled_mass(x.i)
            if self.mixing > 0.0:
                x.q += self.mixing * self.safe.density(x.i)
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
            old += self.forgetting * (self.mixing * self.safe.density(x.i) * weight * m)
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
        cdef Py_ssize_t s = self.stratum(i), edge
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
        position = np.asarray(self.position)
        strata = np.searchsorted(np.asarray(self.start), position, side="right") - 1
        return np.where(position < 0, -1, strata)

    def densities(self):
        """Return q of every row; of those that cannot be drawn, zero."""
        stratum = self.row_strata()
        result = self.n_rows * np.asarray(self.row_probability)[stratum]
        if self.mass is not None:
            mass = np.asarray(self.mass)
            result = result / np.where(mass > 0, self.n_rows * mass, 1)
        if self.mixing > 0:
            result = result + self.mixing * self.safe.densities()
        result[stratum < 0] = 0
        return result
