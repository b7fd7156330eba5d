cimport cython
from numpy.random cimport bitgen_t

from sklearn_awsgd._kernels._loop cimport Point
from sklearn_awsgd._kernels._rows cimport PREFETCH
from sklearn_awsgd._kernels._samplers cimport RandomSampler


cdef enum:
    # Points drawn ahead, so that their memory is there when their step comes.
    POINTS_AHEAD = 32


cdef inline double within(double u, double start, double stretch) noexcept nogil:
    """Where u is in an interval, from 0 to the largest number below 1.

    A uniform number of [0, 1) is uniform again, given the interval it is in. `stretch`
    is the reciprocal of the interval's length.
    """
    return min((u - start) * stretch, 1.0 - 2.0 ** -53)


cdef inline Py_ssize_t below(double u, Py_ssize_t n) noexcept nogil:
    """An integer of 0 .. n - 1, uniform when u is uniform over [0, 1)."""
    return <Py_ssize_t> (u * n)


@cython.final
cdef class Entries:
    cdef readonly Py_ssize_t n_rows, n_columns, n_entries
    cdef readonly str kind
    # A dense matrix has none of these; a sparse one with zeros has the first two.
    cdef const Py_ssize_t[::1] row_start
    cdef const int[::1] columns
    cdef const int[::1] rows
    cdef const Py_ssize_t[::1] column_start, by_column
    # Rows of the entries in the order of `by_column`.
    cdef const int[::1] column_rows
    cdef bint dense, missing
    # Sets x.entry of cell (x.i, x.j) of a matrix without missing entries.
    cdef void locate(self, Point* x) noexcept nogil
    # Sets x to the stored entry with number e.
    cdef void stored_at(self, Py_ssize_t e, Point* x) noexcept nogil


@cython.final
cdef class GuideTable:
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t n_cells
    cdef double[::1] cumulative
    cdef int[::1] guide
    cdef void build(
        self, const double* probabilities, Py_ssize_t stride
    ) noexcept nogil
    # Of the two arrays, for what is written into the samplers' own code below.
    cdef const double* ends
    cdef const int* cells


cdef inline Py_ssize_t find(GuideTable table, double u) noexcept nogil:
    """Return the item that u, uniform over [0, 1), stands for."""
    cdef Py_ssize_t k = table.cells[below(u, table.n_cells)]
    while table.ends[k] <= u:
        k += 1
    return k


# Two steps of asking for the memory that `find` will read.
cdef inline void ask(GuideTable table, double u) noexcept nogil:
    PREFETCH(&table.cells[below(u, table.n_cells)])


cdef inline Py_ssize_t guess(GuideTable table, double u) noexcept nogil:
    cdef Py_ssize_t k = table.cells[below(u, table.n_cells)]
    PREFETCH(&table.ends[k])
    return k


cdef enum:
    CHUNKS_OF_DECK = 32


cdef struct Shuffle:
    # A keyed bijection of the numbers below mask + 1, and the next one to deal.
    unsigned long long position
    unsigned long long mask
    unsigned long long keys[4]
    int shift


@cython.final
cdef class ShuffledEntries(RandomSampler):
    cdef Entries entries
    # The entries that are dealt: all, or those of some rows and columns.
    cdef readonly Py_ssize_t n_entries
    cdef Py_ssize_t first_row, first_column, n_columns, first
    # Where the pass is: in its chunks, and in the deck that is dealt.
    cdef Shuffle chunk_order, deck_order
    cdef int chunk_bits
    cdef Py_ssize_t n_chunks
    # First entries of the chunks of the deck.
    cdef Py_ssize_t starts[CHUNKS_OF_DECK]
    cdef void next_deck(self) noexcept nogil
