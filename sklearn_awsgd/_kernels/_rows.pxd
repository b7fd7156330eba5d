cdef struct Row:
    # One row of X as doubles. Dense rows have no indices.
    const double* values
    const int* indices
    Py_ssize_t size


cdef class Rows:
    cdef object owner
    cdef int value_kind, index_kind
    cdef const char* values
    cdef const char* indices
    cdef const char* indptr
    cdef double[::1] value_scratch
    cdef int[::1] index_scratch
    cdef readonly Py_ssize_t n_rows, n_features
    # Points `row` at row i; what it points at stays valid until the next call.
    cdef void get(self, Py_ssize_t i, Row* row) noexcept nogil


cdef double dot(const Row* row, const double* w) noexcept nogil
cdef void axpy(double a, const Row* row, double* w) noexcept nogil
cdef double squared_norm(const Row* row) noexcept nogil
