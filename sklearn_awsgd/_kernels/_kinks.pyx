# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Losses with kinks and an l2 penalty: dual steps without rounding.

Such a loss is zero from `low` to `high` and rises beyond as a line of slope 1, so the
variates a of :mod:`sklearn_awsgd._kernels._dual` lie between -1 and 1, its conjugate is
``f*(a) = a low`` below zero and ``a high`` above, and the equation of a step has a
solution in closed form.
"""

import numpy as np

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, fabs
from numpy.random cimport bitgen_t

from sklearn_awsgd._kernels._dual cimport DualSteps
from sklearn_awsgd._kernels._kink_losses cimport conjugate_at, height, slope_beyond
from sklearn_awsgd._kernels._loop cimport Point
from sklearn_awsgd._kernels._rows cimport (
    PREFETCH, Row, axpy, dot, get_row, number, prefetch_number, prefetch_row
)
from sklearn_awsgd._kernels._samplers cimport uniform

cdef enum:
    # Rows that are asked for before their turn.
    ROWS_AHEAD = 6


cdef inline double distance_to_kink(
    double a, double z, double low, double high
) noexcept nogil:
    """How far a prediction on the line of slope a is from the next kink."""
    if a == -1.0:
        return low - z
    if a == 1.0:
        return z - high
    return min(z - low, high - z) if a == 0.0 else 0.0


cdef class KinkSteps(DualSteps):
    """Dual steps of a loss with kinks.

    Besides being drawn, rows are gone through by :meth:`sweep`, in short runs whose
    order is random. It sets aside those that lie on a line of their loss and farther
    from its kinks than any row has lately been from where it had to be.

    Parameters
    ----------
    order : ndarray of int32
        Rows with positive mass, sorted; their order is changed.
    run_length : int
        How many of them are visited one after the other: what they share of the cache's
        lines is fetched once.
    generator : numpy.random.BitGenerator or None
        Random stream of the sweeps; None for sweeps in the order of the rows.
    *arguments
        Those of :class:`~sklearn_awsgd._kernels._dual.DualSteps`.

    Attributes
    ----------
    n_active : int
        Rows that are not set aside, the first of `order`.
    """

    cdef readonly int[::1] order
    # Turns of the runs, and room to sort rows.
    cdef int[::1] turns, room
    cdef readonly Py_ssize_t n_active
    cdef Py_ssize_t run_length
    cdef double reach
    # Sums of P f*(a) and P a.
    cdef double conjugate_sum, balance
    cdef bitgen_t* bits
    cdef object generator

    def __init__(self, int[::1] order, Py_ssize_t run_length, generator, *arguments):
        super().__init__(*arguments)
        cdef Py_ssize_t n_runs = order.shape[0] // run_length + 1
        self.order = order
        self.run_length = run_length
        self.turns = np.empty(n_runs, dtype=np.int32)
        self.room = np.empty(order.shape[0], dtype=np.int32)
        self.generator = generator
        if generator is not None:
            self.bits = <bitgen_t*> PyCapsule_GetPointer(
                generator.capsule, "BitGenerator"
            )
        self.activate()

    cdef void step(self, Point* x, double weight) noexcept nogil:
        cdef double away = 0.0, gap = 0.0, miss
        cdef double low = 0.0, high = 0.0, a = self.variates[x.i], z
        cdef Row row
        get_row(self.rows, x.i, &row)
        self.loss.flat(number(self.y, x.i), &low, &high)
        z = dot(&row, &self.coef[0]) + self.intercept[0]
        x.loss = height(z, low, high)
        # How far the variate is from the derivative.
        miss = a + 1.0 if z < low else a - (1.0 if z > high else 0.0)
        self.move(x.i, &gap, &away)
        x.norm2 = miss * weight
        x.norm2 *= x.norm2 * (number(self.norms2, x.i) + self.fit_intercept)
        self.gap_sum += weight * gap
        self.n_steps += 1
        self.clock[0] += 1.0

    cdef double move(self, Py_ssize_t i, double* gap, double* away) noexcept nogil:
        """Take the step of a row; return how far its prediction moves.

        Sets what it had of the gap before; if it stays, instead how far it is from the
        next kink.
        """
        cdef Row row
        cdef double p = self.mass_of(i), a = self.variates[i], change
        cdef double low, high, z, k, new, old, value
        get_row(self.rows, i, &row)
        self.loss.flat(number(self.y, i), &low, &high)
        z = dot(&row, &self.coef[0]) + self.intercept[0]
        k = p * number(self.norms2, i) / self.alpha
        if self.fit_intercept:
            k += p / self.beta
        new = slope_beyond(z + k * a, k, low, high)
        change = new - a
        if change == 0.0:
            gap[0] = 0.0
            away[0] = distance_to_kink(a, z, low, high)
            return 0.0
        old, value = conjugate_at(a, low, high), conjugate_at(new, low, high)
        # Fenchel and Young: never negative.
        gap[0], away[0] = height(z, low, high) + old - a * z, 0.0
        self.variates[i] = new
        self.conjugate_sum += p * (value - old)
        self.balance += p * change
        axpy(-p * change / self.alpha, &row, &self.coef[0])
        if self.fit_intercept:
            self.intercept[0] -= p * change / self.beta
        return k * fabs(change)

    def activate(self):
        """Set no row aside any more."""
        if self.n_active < self.order.shape[0]:
            np.asarray(self.order).sort()
        self.n_active = self.order.shape[0]
        self.reach = INFINITY

    def dual_point(self):
        """Return the dual point of the variates, as those of smooth losses do."""
        cdef Py_ssize_t i
        cdef double low = 0.0, high = 0.0
        with nogil:
            for i in range(self.rows.n_rows):
                self.loss.flat(number(self.y, i), &low, &high)
                self.conjugates[i] = conjugate_at(self.variates[i], low, high)
        return super().dual_point()

    def sweep(self, int times=1):
        """Take the steps of all active rows, so many times.

        Returns
        -------
        gap : float
            The duality gap of these rows, each as it was met, in the last sweep.
        value : float
            The dual objective after it.
        """
        cdef double total = 0.0
        with nogil:
            for _ in range(times):
                total = self.sweep_once()
        coef = np.asarray(self.coef)
        return total, -self.conjugate_sum - self.alpha / 2 * np.dot(coef, coef)

    cdef double sweep_once(self) noexcept nogil:
        cdef Py_ssize_t run, t, i, n = self.n_active, n_aside = 0
        cdef Py_ssize_t size = self.run_length, n_runs = (n + size - 1) // size
        cdef Py_ssize_t begin, end
        cdef double total = 0.0, farthest = 0.0, gap = 0.0, away = 0.0, moved
        self.shuffle(n_runs)
        for run in range(n_runs):
            begin = self.turns[run] * size
            end = min(begin + size, n)
            if run + 1 < n_runs:
                self.prefetch_run(self.turns[run + 1], n)
            for t in range(begin, end):
                i = self.order[t]
                moved = self.move(i, &gap, &away)
                if moved == 0.0 and away > self.reach:
                    # Marked.
                    self.order[t] = -1 - <int> i
                    n_aside += 1
                    continue
                total += gap * self.mass_of(i)
                farthest = max(farthest, moved)
        if n_aside > 0:
            self.set_aside(n_aside)
        self.reach = farthest if farthest > 0.0 else INFINITY
        if self.fit_intercept:
            # As `recenter`.
            self.intercept[0] -= self.balance / self.beta
        return total

    cdef void shuffle(self, Py_ssize_t n_runs) noexcept nogil:
        """Shuffle the turns of so many runs."""
        cdef Py_ssize_t k, r
        for k in range(n_runs):
            self.turns[k] = <int> k
        for k in range(n_runs - 1 if self.bits != NULL else 0, 0, -1):
            r = <Py_ssize_t> (uniform(self.bits) * (k + 1))
            self.turns[k], self.turns[r] = self.turns[r], self.turns[k]

    cdef void prefetch_run(self, Py_ssize_t run, Py_ssize_t n) noexcept nogil:
        """Ask for the first rows of a run; the hardware follows from there."""
        cdef Py_ssize_t t, i, begin = run * self.run_length
        cdef Py_ssize_t size = min(<Py_ssize_t> ROWS_AHEAD, self.run_length)
        for t in range(begin, min(begin + size, n)):
            i = self.order[t]
            prefetch_row(self.rows, i)
            PREFETCH(&self.variates[i])
            prefetch_number(self.norms2, i)
            prefetch_number(self.y, i)

    cdef void set_aside(self, Py_ssize_t n_aside) noexcept nogil:
        """Put so many rows that are marked behind the active ones, in their order."""
        cdef Py_ssize_t t, n = self.n_active, n_left = 0, n_marked = n - n_aside
        cdef int i
        for t in range(n):
            i = self.order[t]
            if i < 0:
                self.room[n_marked] = -1 - i
                n_marked += 1
            else:
                self.room[n_left] = i
                n_left += 1
        self.order[:n] = self.room[:n]
        self.n_active = n_left
