# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The parameters w and b of a linear model, and the steps that move them.

The penalty is no part of what is sampled, so it is not weighted by 1/q. It enters each
step exactly, through its proximal operator,

    prox(u) = sign(u) max(|u| - rho alpha_l1, 0) / (1 + rho alpha_l2),

which gives exact zeros and cannot overshoot however large rho alpha is.
"""

import numpy as np

from libc.math cimport pow

from sklearn_awsgd._kernels._rows cimport DENSE, axpy, dot

# The common scale of the coefficients is folded in before it loses digits.
cdef double SCALE_MIN = 1e-9

cdef enum:
    CONSTANT
    OPTIMAL
    INVSCALING

# "adaptive" is constant until the solver lowers eta0.
SCHEDULES = {
    "constant": CONSTANT,
    "adaptive": CONSTANT,
    "optimal": OPTIMAL,
    "invscaling": INVSCALING,
}


cdef class Steps:
    """What all linear steps share.

    Parameters
    ----------
    rows : Rows
        The rows that steps go along.
    state : dict of ndarray
        `coef` of shape (n_features,), `intercept` and `clock` (number of steps) of
        shape (1,), and what a subclass names; changed in place.
    penalty : Penalty
        Strengths of the penalties.
    rate : Rate
        The rule for the step sizes and its parameters.
    fit_intercept : bool, default=True
        Whether the intercept moves.
    average_start : int, default=0
        Step from which on w enters the mean that `state` then holds in `average_coef`,
        `average_intercept` and `average_clock` (number of steps); 0 for no mean.
    """

    def __init__(
        self, Rows rows, state, penalty, rate, bint fit_intercept=True,
        double average_start=0.0,
    ):
        self.coef = state["coef"]
        self.intercept = state["intercept"]
        self.clock = state["clock"]
        self.alpha_l1 = penalty.l1
        self.alpha_l2 = penalty.l2
        self.eta0 = rate.eta0
        self.fit_intercept = fit_intercept
        self.average_start = average_start
        self.averaging = average_start > 0.0
        if self.averaging:
            self.average_coef = state["average_coef"]
            self.average_intercept = state["average_intercept"]
            self.average_clock = state["average_clock"]
            self.coef_sum = np.zeros(self.coef.shape[0])
        self.set_up(rows, state, rate)

    cdef set_up(self, Rows rows, state, rate):
        pass

    cdef double predict(self, const Row* row) noexcept nogil:
        return dot(row, &self.coef[0])

    cdef void move(self, const Row* row, double g) noexcept nogil:
        pass

    cdef void flush(self) noexcept nogil:
        pass

    cdef void begin_average(self) noexcept nogil:
        self.summing = True

    cdef void fold_average(self) noexcept nogil:
        cdef Py_ssize_t j
        cdef double n_all = self.average_clock[0] + self.n_summed
        if self.n_summed == 0.0:
            return
        for j in range(self.coef.shape[0]):
            self.average_coef[j] += (
                self.coef_sum[j] - self.n_summed * self.average_coef[j]
            ) / n_all
            self.coef_sum[j] = 0.0
        self.average_intercept[0] += (
            self.intercept_sum - self.n_summed * self.average_intercept[0]
        ) / n_all
        self.average_clock[0] = n_all
        self.intercept_sum = 0.0
        self.n_summed = 0.0

    def penalty(self):
        """Return the penalty at the current w."""
        coef = np.asarray(self.coef)
        return (
            self.alpha_l2 / 2 * np.dot(coef, coef)
            + self.alpha_l1 * np.abs(coef).sum()
        )


cdef class ScalarRate(Steps):
    """One step size rho_t for all coordinates.

    rho_t is `eta0` ("constant", "adaptive"), ``1 / (alpha (t0 + t))`` ("optimal") or
    ``eta0 / t^power_t`` ("invscaling").

    The coefficients are kept as ``w = scale * v``, so that the l2 shrinkage of all of
    them is one division. In units of v the soft threshold of a step is
    ``rho alpha_l1 / scale``; `threshold` is the sum of these, and a coordinate of a
    sparse problem catches up with it when it is next read.
    """

    cdef set_up(self, Rows rows, state, rate):
        self.schedule = SCHEDULES[rate.name]
        self.power_t = rate.power_t
        self.alpha = rate.alpha
        self.optimal_init = rate.t0
        self.scale = 1.0
        self.inverse_scale = 1.0
        # The mean of w with lazy thresholds has no closed form: then all coordinates
        # move at each step.
        self.lazy = (
            rows.index_kind != DENSE and self.alpha_l1 > 0.0 and not self.averaging
        )
        self.eager = self.alpha_l1 > 0.0 and not self.lazy
        if self.lazy:
            self.thresholds = np.zeros(self.coef.shape[0])

    cdef double rate(self) noexcept nogil:
        if self.schedule == CONSTANT:
            return self.eta0
        if self.schedule == OPTIMAL:
            return 1.0 / (self.alpha * (self.optimal_init + self.clock[0] - 1.0))
        return self.eta0 / pow(self.clock[0], self.power_t)

    cdef double predict(self, const Row* row) noexcept nogil:
        cdef Py_ssize_t k
        if self.lazy:
            for k in range(row.size):
                self.catch_up(row.indices[k])
        return self.scale * dot(row, &self.coef[0])

    cdef void move(self, const Row* row, double g) noexcept nogil:
        cdef double rho = self.rate()
        cdef double growth = 1.0 + rho * self.alpha_l2
        cdef double a = -rho * g * self.inverse_scale
        cdef double cut = rho * self.alpha_l1 * self.inverse_scale
        cdef Py_ssize_t j
        axpy(a, row, &self.coef[0])
        if self.fit_intercept:
            self.intercept[0] -= rho * g
        if self.summing and not self.eager:
            # sum_t w_t = sum_t scale_t v_t
            #           = scale_sum_T v_T - sum_t (v_t - v_{t-1}) scale_sum_{t-1}:
            # `coef_sum` gathers the second sum, which is as sparse as the rows.
            axpy(a * self.scale_sum, row, &self.coef_sum[0])
        self.threshold += cut
        self.scale /= growth
        self.inverse_scale *= growth
        if self.eager:
            for j in range(self.coef.shape[0]):
                self.coef[j] = soft(self.coef[j], cut)
            if self.summing:
                for j in range(self.coef.shape[0]):
                    self.coef_sum[j] += self.scale * self.coef[j]
        if self.summing:
            self.scale_sum += self.scale
        if self.scale < SCALE_MIN:
            self.fold_scale()

    cdef void catch_up(self, Py_ssize_t j) noexcept nogil:
        self.coef[j] = soft(self.coef[j], self.threshold - self.thresholds[j])
        self.thresholds[j] = self.threshold

    cdef void fold_scale(self) noexcept nogil:
        cdef Py_ssize_t j
        for j in range(self.coef.shape[0]):
            if self.lazy:
                self.catch_up(j)
                self.thresholds[j] = 0.0
            self.coef[j] *= self.scale
        self.scale_sum /= self.scale
        self.threshold = 0.0
        self.scale = 1.0
        self.inverse_scale = 1.0

    cdef void flush(self) noexcept nogil:
        cdef Py_ssize_t j
        self.fold_scale()
        if self.summing:
            if not self.eager:
                for j in range(self.coef.shape[0]):
                    self.coef_sum[j] = self.scale_sum * self.coef[j] - self.coef_sum[j]
            self.fold_average()
        self.scale_sum = 0.0
