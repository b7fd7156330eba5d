# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Steps with a control variate for each row, whose mean costs nothing.

A control variate a_i, close to the derivative c_i of row i, takes most of the variance
out of a step: ``d = (c_i - a_i) x_i / q_i + gbar + alpha w`` with the mean
``gbar = sum_i P_i a_i x_i``. Here w and the variates move together such that
``gbar = -alpha w`` at every moment. Then the dense part of d is zero, a step touches
the nonzeros of one row alone, and nothing is left to be applied lazily.

The length of the step is not chosen but solved for: it takes the variate of the row to
the derivative that the row has *after* the step,

    a' = c_i(z - k (a' - a)),    k = P_i ||x_i||^2 / alpha,

which is the exact maximum of the dual objective along a_i (stochastic dual coordinate
ascent). It cannot overshoot, whichever row it is taken for: the distribution of the
draws decides how fast the steps converge and not where to, so the weight 1/q enters the
statistics only.
"""

import numpy as np

from libc.math cimport NAN, fabs, isnan

from sklearn_awsgd._kernels._rows cimport (
    PREFETCH, Numbers, Row, Rows, axpy, dot, get_row, number, prefetch_number,
    prefetch_row,
)

cdef enum:
    # Newton steps, or halvings where they leave the bracket.
    MAX_ROOT_STEPS = 60

# How well the equation of a step is solved, relative to the step.
cdef double ACCURACY = 0.1


cdef class DualSteps(Problem):
    """The linear model with an l2 penalty, moved by dual steps.

    The intercept has no penalty, so it is held by ``beta / 2 (b - center)^2`` instead,
    as if it were a feature, and the center follows it: see :meth:`recenter`.

    Parameters
    ----------
    rows, loss, y, norms2
        As for :class:`~sklearn_awsgd._kernels._linear.LinearProblem`.
    state : dict of ndarray
        `coef`, `intercept` and `clock` as for
        :class:`~sklearn_awsgd._kernels._steps.Steps`; the coefficients must be zero.
    mass : ndarray of shape (n_samples,) or None
        P of each row; None when all are equal.
    alpha : float > 0
        Strength of the penalty.
    beta : float > 0 or None
        Strength of what holds the intercept; None for a model without one.
    """

    def __init__(
        self, Rows rows, Loss loss, y, norms2, state, const double[::1] mass,
        double alpha, beta,
    ):
        self.rows = rows
        self.loss = loss
        self.y = Numbers(y)
        self.norms2 = Numbers(norms2)
        self.mass = mass
        self.row_mass = 1.0 / rows.n_rows
        self.coef = state["coef"]
        self.intercept = state["intercept"]
        self.clock = state["clock"]
        self.alpha = alpha
        self.fit_intercept = beta is not None
        if self.fit_intercept:
            self.beta = beta
        # f*(0) = 0 for a loss whose infimum is zero.
        self.variates = np.zeros(rows.n_rows)
        self.conjugates = np.zeros(rows.n_rows)

    cdef void step(self, Point* x, double weight) noexcept nogil:
        cdef Row row
        cdef double p = self.mass_of(x.i)
        cdef double a = self.variates[x.i], y = number(self.y, x.i)
        cdef double norm2 = number(self.norms2, x.i)
        cdef double derivative = 0.0, conjugate = 0.0, z, k, new
        get_row(self.rows, x.i, &row)
        z = dot(&row, &self.coef[0]) + self.intercept[0]
        x.loss = self.loss.evaluate(y, z, &derivative)
        x.norm2 = weight * (derivative - a)
        x.norm2 *= x.norm2 * (norm2 + self.fit_intercept)
        # Fenchel and Young: never negative, zero when a is the derivative.
        self.gap_sum += weight * (x.loss + self.conjugates[x.i] - a * z)
        self.n_steps += 1
        self.clock[0] += 1.0
        if derivative == a:
            return
        k = p * norm2 / self.alpha
        if self.fit_intercept:
            k += p / self.beta
        new = self.new_variate(y, z, a, derivative, k, &conjugate)
        if isnan(new):
            return
        self.variates[x.i] = new
        self.conjugates[x.i] = conjugate
        axpy(-p * (new - a) / self.alpha, &row, &self.coef[0])
        if self.fit_intercept:
            self.intercept[0] -= p * (new - a) / self.beta

    cdef double new_variate(
        self, double y, double z, double a, double derivative, double k,
        double* conjugate,
    ) noexcept nogil:
        # miss(t) = c(z - k t) - a - t falls from c - a at t = 0 to the other side of
        # zero at t = c - a: Newton's method in that bracket.
        cdef double near = 0.0, far = derivative - a, miss = far, t = 0.0, trial, value
        cdef double here = z
        cdef Py_ssize_t _trial
        for _trial in range(MAX_ROOT_STEPS):
            trial = t + miss / (1.0 + k * self.loss.curvature(y, here, derivative))
            if (trial - near) * (far - trial) <= 0.0:
                trial = 0.5 * (near + far)
            t = trial
            here = z - k * t
            value = self.loss.evaluate(y, here, &derivative)
            miss = derivative - a - t
            if fabs(miss) <= ACCURACY * fabs(t):
                # The variate is the derivative at a known point, so its conjugate is
                # known: f*(a) = a z - f(z) there.
                conjugate[0] = derivative * here - value
                return derivative
            if miss * far > 0.0:
                near = t
            else:
                far = t
        return NAN

    cdef void prefetch(self, const Point* x) noexcept nogil:
        prefetch_row(self.rows, x.i)
        PREFETCH(&self.variates[x.i])
        PREFETCH(&self.conjugates[x.i])
        prefetch_number(self.norms2, x.i)
        prefetch_number(self.y, x.i)

    def penalty(self):
        """Return the penalty at the current w."""
        coef = np.asarray(self.coef)
        return self.alpha / 2 * np.dot(coef, coef)

    def take_gap(self):
        """Return the mean gap of the rows since the last call, each as it was met.

        It is above the duality gap of the last w by what was gained meanwhile.
        """
        gap = self.gap_sum / max(self.n_steps, 1)
        self.gap_sum = 0.0
        self.n_steps = 0
        return gap

    def recenter(self):
        """Let the center of the intercept follow it.

        ``beta (b - center) + sum_i P_i a_i = 0`` holds after each step; at the optimum
        without the center the sum is zero.
        """
        if self.fit_intercept:
            below, above = self.sums()
            self.intercept[0] -= (above - below) / self.beta

    def sums(self):
        """Return the sums of P_i |a_i| over rows with negative and positive a_i."""
        cdef Py_ssize_t i
        cdef double below = 0.0, above = 0.0, part
        with nogil:
            for i in range(self.rows.n_rows):
                part = self.mass_of(i) * self.variates[i]
                below -= min(part, 0.0)
                above += max(part, 0.0)
        return below, above

    def dual_point(self):
        """Return the dual point of the variates, for `LinearObjective.mix_dual`.

        With an intercept their mean must be zero, so those of the sign with the larger
        sum are scaled down; ``f*(s a) <= s f*(a)``.
        """
        cdef Py_ssize_t i
        cdef double conjugate = 0.0, p, a, share
        cdef double below_share = 1.0, above_share = 1.0
        cdef Row row
        mean = -self.alpha * np.asarray(self.coef)
        cdef double[::1] view = mean
        if self.fit_intercept:
            below, above = self.sums()
            share = min(below, above) / max(below, above, 1e-300)
            if above > below:
                above_share = share
            else:
                below_share = share
        with nogil:
            for i in range(self.rows.n_rows):
                p, a = self.mass_of(i), self.variates[i]
                share = above_share if a > 0.0 else below_share
                conjugate += p * share * self.conjugates[i]
                if share != 1.0 and a != 0.0:
                    get_row(self.rows, i, &row)
                    axpy((share - 1.0) * p * a, &row, &view[0])
        return -conjugate, mean

    cdef double mass_of(self, Py_ssize_t i) noexcept nogil:
        """P_i."""
        return self.row_mass if self.mass is None else self.mass[i]
