cimport cython

from sklearn_awsgd._kernels._entries cimport GuideTable
from sklearn_awsgd._kernels._entry_samplers cimport LearnedEntryDraws
from sklearn_awsgd._kernels._loop cimport Point


@cython.final
cdef class ProductDraws(LearnedEntryDraws):
    cdef GuideTable row_table, column_table
    # The safe part, where it knows costs: else it is uniform.
    cdef GuideTable safe_row_table, safe_column_table
    cdef double[::1] safe_density
    cdef double safe_share(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil
    # Squares of the two components, then their counts; costs, then what is known.
    cdef double[::1] parts
    # Probability of the stored entries in the learned part; where the product begins
    # among the numbers of [0, 1), and the reciprocal of its share of them.
    cdef double stored, product_start, product_stretch
    cdef double product_share(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil
    cdef double stored_share(self) noexcept nogil
    cdef void learn_part(
        self, int part, double share, const Point* x, double probability
    ) noexcept nogil
