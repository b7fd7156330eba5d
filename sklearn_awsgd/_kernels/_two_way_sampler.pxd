cimport cython

from sklearn_awsgd._kernels._entries cimport GuideTable
from sklearn_awsgd._kernels._entry_samplers cimport LearnedEntryDraws


@cython.final
cdef class TwoWayDraws(LearnedEntryDraws):
    cdef GuideTable guide
    # dQ/dP that each row and column adds to its entries.
    cdef double[::1] density
    # Reciprocal of the share of the learned part.
    cdef double stretch
    cdef Py_ssize_t place(self, Py_ssize_t k, double u) noexcept nogil
