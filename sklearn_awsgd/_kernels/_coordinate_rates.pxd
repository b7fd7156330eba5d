cimport cython

from sklearn_awsgd._kernels._rows cimport Row, Rows
from sklearn_awsgd._kernels._steps cimport Steps


cdef class CoordinateRate(Steps):
    cdef int rule
    cdef double decay
    cdef double[::1] squares, moves, rates
    cdef long long[::1] seen
    cdef long long now
    cdef bint lazy, eager, waiting
    cdef allocate(self, Rows rows)

    @cython.final
    cdef double rate(self, Py_ssize_t j) noexcept nogil

    @cython.final
    cdef double step_rate(self, Py_ssize_t j, double g) noexcept nogil

    @cython.final
    cdef void begin_step(self, double g) noexcept nogil

    @cython.final
    cdef void catch_up(self, Py_ssize_t j) noexcept nogil
    cdef void catch_up_all(self) noexcept nogil

    @cython.final
    cdef void look_for_waiting(self) noexcept nogil

    @cython.final
    cdef void move_dense(self, const Row* row, double g) noexcept nogil

    @cython.final
    cdef void move_sparse(self, const Row* row, double g) noexcept nogil


@cython.final
cdef class PackedAdaGrad(CoordinateRate):
    cdef bint is_packed
    cdef double[:, ::1] packed
    # What is gathered of the coordinates of a row.
    cdef double[::1] row_coef, row_squares, row_rates
    cdef void pack(self) noexcept nogil
