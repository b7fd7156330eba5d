cimport cython

from sklearn_awsgd._kernels._entries cimport GuideTable
from sklearn_awsgd._kernels._entry_samplers cimport LearnedEntryDraws
from sklearn_awsgd._kernels._samplers cimport AliasTable


@cython.final
cdef class TwoWayDraws(LearnedEntryDraws):
    cdef GuideTable guide
    # dQ/dP that each row and column adds to its entries.
    cdef double[::1] density
    # Reciprocal of the share of the learned part.
    cdef double stretch
    # The safe part, where it knows costs: else it is uniform over the entries.
    cdef AliasTable safe
    cdef double[::1] safe_density
    cdef double safe_share(self, Py_ssize_t e) noexcept nogil
    cdef Py_ssize_t place(self, Py_ssize_t k, double u) noexcept nogil
