from sklearn_awsgd._kernels._loop cimport Point, Problem
from sklearn_awsgd._kernels._losses cimport Loss
from sklearn_awsgd._kernels._rows cimport Row, Rows


cdef class LinearProblem(Problem):
    cdef Rows rows
    cdef Loss loss
    cdef const double[::1] y, norms2
    # State that outlives the problem: arrays of the caller, changed in place.
    cdef double[::1] coef, intercept, clock
    cdef double[::1] average_coef, average_intercept, average_clock
    cdef double alpha_l1, alpha_l2
    # Factor of the loss, as for the chunks of a stream that weigh more than others.
    cdef public double loss_scale
    cdef double average_start
    cdef bint fit_intercept, averaging, summing
    # Sums over the steps of this run, for the mean of w.
    cdef double[::1] coef_sum
    cdef double intercept_sum, n_summed
    # <x, w> + b at the current w.
    cdef double score(self, const Row* row) noexcept nogil
    # <x, w> at the current w.
    cdef double predict(self, const Row* row) noexcept nogil
    # One step along g x: the clock, the move and the mean of w.
    cdef void take(self, const Row* row, double g) noexcept nogil
    # w <- prox(w - rho g x), and the same for the intercept without penalty.
    cdef void move(self, const Row* row, double g) noexcept nogil
    # Starts the sums at the current step: nothing may lag behind it.
    cdef void begin_average(self) noexcept nogil
    # Takes the sums of this run, which `coef_sum` then holds, into the mean of w.
    cdef void fold_average(self) noexcept nogil


cdef class ScalarRate(LinearProblem):
    cdef int schedule
    cdef public double eta0
    cdef double power_t, alpha, optimal_init
    cdef double scale, inverse_scale, threshold, scale_sum
    cdef bint lazy, eager
    cdef double[::1] thresholds
    cdef double rate(self) noexcept nogil
    cdef void catch_up(self, Py_ssize_t j) noexcept nogil
    cdef void fold_scale(self) noexcept nogil


cdef class CoordinateRate(LinearProblem):
    cdef int rule
    cdef double eta0, decay
    cdef double[::1] squares, moves, rates
    cdef long long[::1] seen
    cdef long long now
    cdef bint lazy, eager, waiting, packing, is_packed
    cdef double[:, ::1] packed
    # What is gathered of the coordinates of a row.
    cdef double[::1] row_coef, row_squares, row_rates
    cdef double rate(self, Py_ssize_t j) noexcept nogil
    cdef double step_rate(self, Py_ssize_t j, double g) noexcept nogil
    cdef void catch_up(self, Py_ssize_t j) noexcept nogil
    cdef void catch_up_all(self) noexcept nogil
    cdef void look_for_waiting(self) noexcept nogil
    cdef void move_dense(self, const Row* row, double g) noexcept nogil
    cdef double predict_packed(self, const Row* row) noexcept nogil
    cdef void move_packed(self, const Row* row, double g) noexcept nogil
    cdef void pack(self) noexcept nogil
    cdef void unpack(self) noexcept nogil
    cdef void move_sparse(self, const Row* row, double g) noexcept nogil
