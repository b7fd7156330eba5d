from sklearn_awsgd._kernels._loop cimport Point
from sklearn_awsgd._kernels._samplers cimport RandomSampler
from sklearn_awsgd._kernels._tables cimport SafeRows


cdef enum:
    # Draws that are prepared together and share one state.
    DRAWS_AHEAD = 64


cdef class LevelDraws(RandomSampler):
    cdef const double[::1] mass
    cdef SafeRows safe
    cdef double mixing, forgetting, base
    cdef bint time_aware
    cdef Py_ssize_t n_rows, n_strata, n_pending
    # Rows sorted by stratum: order[start[s]:start[s + 1]] are those of stratum s. Where
    # a row stands in this order, -1 for those that cannot be drawn, tells its stratum.
    cdef int[::1] order, position
    cdef Py_ssize_t[::1] start
    # Running means of the squared norms met in draws from each stratum.
    cdef double[::1] squares, counts
    # Moves that wait for `adapt`.
    cdef int[::1] pending_row, pending_stratum
    # Derived by `refresh`: v_s and Q of one row; the strata that have rows, their ends
    # on (0, 1), and the first step of a search in them.
    cdef double[::1] values, row_probability, ends
    cdef int[::1] filled
    cdef Py_ssize_t half
    # Draws ahead: their random numbers and, when `prepared`, their points.
    cdef double[DRAWS_AHEAD] uniforms, uniforms_inside
    cdef Point[DRAWS_AHEAD] prepared_points
    cdef Py_ssize_t n_used
    cdef bint prepared
    cdef void prepare(self) noexcept nogil
    cdef Py_ssize_t stratum(self, Py_ssize_t i) noexcept nogil
    cdef double scaled_mass(self, Py_ssize_t i) noexcept nogil
    cdef double scaled_norm2(self, Py_ssize_t i, double norm2) noexcept nogil
    cdef Py_ssize_t level(self, double norm2) noexcept nogil
    cdef void move(self, Py_ssize_t i, Py_ssize_t target) noexcept nogil
    cdef void refresh(self) noexcept nogil
