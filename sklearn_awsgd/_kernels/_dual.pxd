from sklearn_awsgd._kernels._loop cimport Point, Problem
from sklearn_awsgd._kernels._losses cimport Loss
from sklearn_awsgd._kernels._rows cimport Numbers, Rows


cdef class DualSteps(Problem):
    cdef Rows rows
    cdef Loss loss
    cdef Numbers y, norms2
    cdef const double[::1] mass
    # State that outlives the problem: arrays of the caller, changed in place.
    cdef double[::1] coef, intercept, clock
    # a_i and f*(a_i) of each row.
    cdef readonly double[::1] variates, conjugates
    cdef double alpha, beta, row_mass
    cdef bint fit_intercept
    # Sum of the gaps of the rows as they were met, and their number.
    cdef double gap_sum
    cdef Py_ssize_t n_steps
    cdef double mass_of(self, Py_ssize_t i) noexcept nogil
    # Returns a' = c(z - k (a' - a)), given c(z) and d2f/dz2 there; NaN for no step.
    cdef double new_variate(
        self, double y, double z, double a, double derivative, double k,
        double* conjugate,
    ) noexcept nogil
