# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Losses with kinks and an l2 penalty: dual steps without rounding, and multipliers.

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
from sklearn_awsgd._kernels._loop cimport Point
from sklearn_awsgd._kernels._rows cimport (
    PREFETCH, Row, axpy, dot, get_row, number, prefetch_number, prefetch_row
)
from sklearn_awsgd._kernels._samplers cimport uniform

cdef enum:
    # Rows that are asked for before their turn.
    ROWS_AHEAD = 6


cdef inline double proximal(
    double s, double k, double low, double high, double* away
) noexcept nogil:
    """Return the a that is a slope of the loss at s - k a.

    `away` is set to the distance of that point from the next kink.
    """
    away[0] = 0.0
    if s < low:
        if s < low - k:
            away[0] = low - k - s
            return -1.0
        return max((s - low) / k, -1.0)
    if s <= high:
        away[0] = min(s - low, high - s)
        return 0.0
    if s > high + k:
        away[0] = s - high - k
        return 1.0
    return min((s - high) / k, 1.0)


cdef inline double conjugate_at(double a, double low, double high) noexcept nogil:
    """f*(a)."""
    if a < 0.0:
        return a * low
    return a * high if a > 0.0 else 0.0


cdef inline double loss_at(double z, double low, double high) noexcept nogil:
    """f(z)."""
    if z < low:
        return low - z
    return z - high if z > high else 0.0


cdef class KinkSteps(DualSteps):
    """Dual steps of a loss with kinks.

    Besides being drawn, rows are gone through by :meth:`sweep`, which sets aside those
    that lie on a line of their loss and farther from its kinks than any row has lately
    been from where it had to be.

    Parameters
    ----------
    order : ndarray of int32
        Rows with positive mass; their order is changed.
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
    cdef readonly Py_ssize_t n_active
    cdef double reach
    # Sums of P f*(a) and P a.
    cdef double conjugate_sum, balance
    cdef bitgen_t* bits
    cdef object generator

    def __init__(self, int[::1] order, generator, *arguments):
        super().__init__(*arguments)
        self.order = order
        self.generator = generator
        if generator is not None:
            self.bits = <bitgen_t*> PyCapsule_GetPointer(
                generator.capsule, "BitGenerator"
            )
        self.activate()

    cdef void step(self, Point* x, double weight) noexcept nogil:
        cdef double away = 0.0, moved = 0.0, gap
        gap = self.move(x.i, &x.loss, &x.norm2, &moved, &away)
        x.norm2 *= weight
        x.norm2 *= x.norm2 * (number(self.norms2, x.i) + self.fit_intercept)
        self.gap_sum += weight * gap
        self.n_steps += 1
        self.clock[0] += 1.0

    cdef double move(
        self, Py_ssize_t i, double* loss, double* miss, double* moved, double* away
    ) noexcept nogil:
        """Take the step of a row; return what the row had of the gap before.

        Sets the loss before, how far the variate was from the derivative, how far the
        prediction moves, and how far it is from the next kink then.
        """
        cdef Row row
        cdef double p = self.mass_of(i)
        cdef double a = self.variates[i], old = self.conjugates[i]
        cdef double low, high, z, k, new, gap, value
        get_row(self.rows, i, &row)
        self.loss.flat(number(self.y, i), &low, &high)
        z = dot(&row, &self.coef[0]) + self.intercept[0]
        k = p * number(self.norms2, i) / self.alpha
        if self.fit_intercept:
            k += p / self.beta
        new = proximal(z + k * a, k, low, high, away)
        loss[0] = loss_at(z, low, high)
        miss[0] = a + 1.0 if z < low else a - (1.0 if z > high else 0.0)
        moved[0] = k * fabs(new - a)
        if new == a:
            return 0.0
        # Fenchel and Young: never negative.
        gap = loss[0] + old - a * z
        value = conjugate_at(new, low, high)
        self.variates[i] = new
        self.conjugates[i] = value
        self.conjugate_sum += p * (value - old)
        self.balance += p * (new - a)
        axpy(-p * (new - a) / self.alpha, &row, &self.coef[0])
        if self.fit_intercept:
            self.intercept[0] -= p * (new - a) / self.beta
        return gap

    def activate(self):
        """Set no row aside any more."""
        self.n_active = self.order.shape[0]
        self.reach = INFINITY

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
        cdef Py_ssize_t t, r, i, n = self.n_active
        cdef double loss = 0.0, miss = 0.0, moved = 0.0, away = 0.0
        cdef double total = 0.0, farthest = 0.0, gap
        for t in range(n - 1 if self.bits != NULL else 0, 0, -1):
            r = <Py_ssize_t> (uniform(self.bits) * (t + 1))
            self.order[t], self.order[r] = self.order[r], self.order[t]
        t = 0
        while t < n:
            if t + ROWS_AHEAD < n:
                r = self.order[t + ROWS_AHEAD]
                prefetch_row(self.rows, r)
                PREFETCH(&self.variates[r])
                PREFETCH(&self.conjugates[r])
                prefetch_number(self.norms2, r)
                prefetch_number(self.y, r)
            i = self.order[t]
            gap = self.move(i, &loss, &miss, &moved, &away)
            if moved == 0.0 and away > self.reach:
                # The last active row takes its turn.
                n -= 1
                self.order[t], self.order[n] = self.order[n], self.order[t]
                continue
            total += gap * self.mass_of(i)
            farthest = max(farthest, moved)
            t += 1
        self.n_active = n
        self.reach = farthest if farthest > 0.0 else INFINITY
        if self.fit_intercept:
            # As `recenter`.
            self.intercept[0] -= self.balance / self.beta
        return total


def smooth_losses(
    ends, const double[::1] mass, const double[::1] a, const double[::1] z,
    double width, double[::1] c,
):
    """Sum losses that multipliers have made smooth.

    With a multiplier a for each row, ``g(z) = min_u f(u) + (z - u + width a)^2 / (2
    width) - width a^2 / 2`` is nowhere above f; its derivative c is a slope of f at u.

    Parameters
    ----------
    ends : tuple of two ndarray of shape (n,)
        `low` and `high` of each row.
    mass, a, z : ndarray of shape (n,)
        P, multiplier and prediction of each row.
    width : float
        Over how much kinks are rounded.
    c : ndarray of shape (n,)
        Set to the derivatives.

    Returns
    -------
    sums : tuple of float
        Of P g, P f, -P f*(c) of c <= 0 and of c > 0, P (c - a)^2.
    """
    cdef const double[::1] low = ends[0], high = ends[1]
    cdef Py_ssize_t i, n = z.shape[0]
    cdef double s, away = 0.0, smooth = 0.0, exact = 0.0, changes = 0.0
    cdef double below = 0.0, above = 0.0
    with nogil:
        for i in range(n):
            s = z[i] + width * a[i]
            c[i] = proximal(s, width, low[i], high[i], &away)
            smooth += mass[i] * (
                loss_at(s - width * c[i], low[i], high[i])
                + width / 2 * (c[i] * c[i] - a[i] * a[i])
            )
            exact += mass[i] * loss_at(z[i], low[i], high[i])
            if c[i] > 0.0:
                above -= mass[i] * c[i] * high[i]
            elif c[i] < 0.0:
                below -= mass[i] * c[i] * low[i]
            changes += mass[i] * (c[i] - a[i]) * (c[i] - a[i])
    return smooth, exact, below, above, changes


def smooth_losses_along(
    ends, const double[::1] mass, const double[::1] a, const double[::1] z,
    const double[::1] moves, double length, double width,
):
    """Sum smooth losses at some length of a step, and their slope along it.

    Parameters
    ----------
    ends, mass, a, z, width
        Those of :func:`smooth_losses`.
    moves : ndarray of shape (n,)
        How far the step moves each prediction.
    length : float
        Share of the step.

    Returns
    -------
    value, slope : float
        Sums of P g and of P c times the move.
    """
    cdef const double[::1] low = ends[0], high = ends[1]
    cdef Py_ssize_t i, n = z.shape[0]
    cdef double s, c, away = 0.0, value = 0.0, slope = 0.0
    with nogil:
        for i in range(n):
            s = z[i] + length * moves[i] + width * a[i]
            c = proximal(s, width, low[i], high[i], &away)
            value += mass[i] * (
                loss_at(s - width * c, low[i], high[i])
                + width / 2 * (c * c - a[i] * a[i])
            )
            slope += mass[i] * c * moves[i]
    return value, slope
