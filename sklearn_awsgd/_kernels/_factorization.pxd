cimport cython

from sklearn_awsgd._kernels._loop cimport Point, Problem


@cython.final
cdef class FactorizationProblem(Problem):
    cdef const double[::1] values64, weights
    cdef const float[::1] values32
    cdef bint narrow, weighted, proximal
    cdef int loss
    cdef double epsilon, alpha, eta0, offset, power, baseline, gain
    cdef double unstored_weight
    cdef Py_ssize_t n_components
    cdef tuple settings
    # State that outlives the problem: arrays of the caller, changed in place.
    cdef readonly dict state
    cdef double[:, ::1] rows, columns
    cdef double[::1] row_bias, column_bias, clock
