cimport cython

from sklearn_awsgd._kernels._entries cimport POINTS_AHEAD, GuideTable
from sklearn_awsgd._kernels._entry_samplers cimport LearnedEntryDraws
from sklearn_awsgd._kernels._tables cimport AliasTable


@cython.final
cdef class TwoWayDraws(LearnedEntryDraws):
    cdef GuideTable guide
    # dQ/dP that each row and column adds to its entries.
    cdef double[::1] density
    # Probability that a draw comes through each row and column.
    cdef double[::1] drawn
    # Reciprocal of the share of the learned part; the share of safe draws that come
    # through no row or column, and the reciprocal of the others'.
    cdef double stretch, apart, apart_stretch
    # Row or column of each of the next draws, and where its entry is among theirs.
    cdef Py_ssize_t ways[POINTS_AHEAD]
    cdef Py_ssize_t places[POINTS_AHEAD]
    # The safe part, where it knows costs: else it is uniform over the entries.
    cdef AliasTable safe
    cdef double[::1] safe_density
    cdef double safe_share(self, Py_ssize_t e) noexcept nogil
