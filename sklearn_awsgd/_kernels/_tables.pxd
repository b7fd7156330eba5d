from sklearn_awsgd._kernels._rows cimport Numbers


cdef class AliasTable:
    cdef readonly Py_ssize_t size
    cdef const double[::1] accept
    cdef const int[::1] other
    cdef Py_ssize_t pick(
        self, double u, Py_ssize_t start, Py_ssize_t stop
    ) noexcept nogil


cdef class SafeRows:
    cdef readonly Py_ssize_t n_rows
    cdef Numbers norms2
    cdef const double[::1] costs, mass
    # Which of the runs of rows a draw comes from.
    cdef AliasTable runs
    # Mean of the bounds over P.
    cdef double mean
    cdef double bound(self, Py_ssize_t i) noexcept nogil
    cdef double density(self, Py_ssize_t i) noexcept nogil
    cdef Py_ssize_t run_weights(self, Py_ssize_t run, double* weights) noexcept nogil
    cdef void prefetch(self, Py_ssize_t i) noexcept nogil
    cdef void prefetch_run(self, double u) noexcept nogil
    cdef Py_ssize_t pick_run(self, double u, double* rest) noexcept nogil
    cdef Py_ssize_t pick_row(self, Py_ssize_t run, double rest) noexcept nogil
