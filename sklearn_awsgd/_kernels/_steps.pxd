from libc.math cimport copysign, fabs

from sklearn_awsgd._kernels._rows cimport Row, Rows


cdef inline double soft(double u, double threshold) noexcept nogil:
    cdef double size = fabs(u) - threshold
    return copysign(size, u) if size > 0.0 else 0.0


cdef class Steps:
    # State that outlives the steps: arrays of the caller, changed in place.
    cdef double[::1] coef, intercept, clock
    cdef double[::1] average_coef, average_intercept, average_clock
    cdef double alpha_l1, alpha_l2, average_start
    cdef readonly bint fit_intercept
    cdef bint averaging, summing
    # How long steps are; a rule that lowers it as it goes on writes here.
    cdef public double eta0
    # Sums over the steps of this run, for the mean of w.
    cdef double[::1] coef_sum
    cdef double intercept_sum, n_summed
    # Takes what is the subclass's own of the rate and of the state.
    cdef set_up(self, Rows rows, state, rate)
    # <x, w> at the current w.
    cdef double predict(self, const Row* row) noexcept nogil
    # w <- prox(w - rho g x), and the same for the intercept without penalty.
    cdef void move(self, const Row* row, double g) noexcept nogil
    # Brings lazily kept coefficients, and the mean of w, up to date.
    cdef void flush(self) noexcept nogil
    # Starts the sums at the current step: nothing may lag behind it.
    cdef void begin_average(self) noexcept nogil
    # Takes the sums of this run, which `coef_sum` then holds, into the mean of w.
    cdef void fold_average(self) noexcept nogil


cdef inline double score(Steps steps, const Row* row) noexcept nogil:
    """<x, w> + b at the current w."""
    return steps.predict(row) + steps.intercept[0]


cdef inline void take(Steps steps, const Row* row, double g) noexcept nogil:
    """One step along g x: the clock, the move and the mean of w."""
    steps.clock[0] += 1.0
    if steps.averaging and not steps.summing:
        if steps.clock[0] >= steps.average_start:
            steps.begin_average()
    steps.move(row, g)
    if steps.summing:
        steps.intercept_sum += steps.intercept[0]
        steps.n_summed += 1.0


cdef class ScalarRate(Steps):
    cdef int schedule
    cdef double power_t, alpha, optimal_init
    cdef double scale, inverse_scale, threshold, scale_sum
    cdef bint lazy, eager
    cdef double[::1] thresholds
    cdef double rate(self) noexcept nogil
    cdef void catch_up(self, Py_ssize_t j) noexcept nogil
    cdef void fold_scale(self) noexcept nogil
