# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where the entries of a matrix are, and how to draw them without learning."""

import numpy as np

cimport cython

from sklearn_awsgd._kernels._rows cimport PREFETCH

cdef enum:
    # Entries of a chunk and of a block, as powers of two: rows, columns and values of a
    # block are some hundred kilobytes.
    CHUNK_BITS = 9
    BLOCK_BITS = 14
    # Cells of a guide table for each item.
    CELLS_OF_ITEM = 4


@cython.final
cdef class Entries:
    """Where the entries of a matrix are.

    Parameters
    ----------
    shape : tuple of two int
        Shape of the matrix.
    kind : {"dense", "zeros", "missing"}
        Whether all cells are stored one after the other, or only those named by
        `row_start` and `columns`; what is not stored is then zero or missing.
    row_start : ndarray of shape (n_rows + 1,) and dtype intp, default=None
    columns : ndarray of shape (n_stored,) and dtype int32, default=None
        As `indptr` and `indices` of a canonical CSR matrix.
    """

    def __init__(self, shape, str kind, row_start=None, columns=None):
        self.n_rows, self.n_columns = shape
        self.kind = kind
        self.dense = kind == "dense"
        self.missing = kind == "missing"
        self.n_entries = self.n_rows * self.n_columns
        if self.dense:
            return
        self.row_start = row_start
        self.columns = columns
        if self.missing:
            self.n_entries = len(columns)
        self.rows = np.repeat(
            np.arange(self.n_rows, dtype=np.int32), np.diff(row_start)
        )
        if self.missing:
            counts = np.bincount(columns, minlength=self.n_columns)
            self.column_start = np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)
            self.sort_by_column()

    def sort_by_column(self):
        """Fill `by_column` and `column_rows`, in linear time."""
        cdef Py_ssize_t[::1] order = np.empty(self.n_entries, dtype=np.intp)
        cdef int[::1] rows = np.empty(self.n_entries, dtype=np.int32)
        cdef Py_ssize_t[::1] free = np.array(self.column_start)
        cdef Py_ssize_t e, place
        with nogil:
            for e in range(self.n_entries):
                place = free[self.columns[e]]
                free[self.columns[e]] += 1
                order[place] = e
                rows[place] = self.rows[e]
        self.by_column = order
        self.column_rows = rows

    cdef void locate(self, Point* x) noexcept nogil:
        cdef Py_ssize_t low, high, middle
        if self.dense:
            x.entry = x.i * self.n_columns + x.j
            return
        low, high = self.row_start[x.i], self.row_start[x.i + 1]
        while low < high:
            middle = (low + high) // 2
            if self.columns[middle] < x.j:
                low = middle + 1
            else:
                high = middle
        x.entry = -1
        if low < self.row_start[x.i + 1] and self.columns[low] == x.j:
            x.entry = low

    cdef void point_at(self, Py_ssize_t e, Point* x) noexcept nogil:
        if self.missing:
            self.stored_at(e, x)
        else:
            x.i = e // self.n_columns
            x.j = e - x.i * self.n_columns
            self.locate(x)

    cdef void stored_at(self, Py_ssize_t e, Point* x) noexcept nogil:
        x.i = self.rows[e]
        x.j = self.columns[e]
        x.entry = e

    def row_counts(self):
        """Return the number of entries of each row."""
        if self.missing:
            return np.diff(self.row_start)
        return np.full(self.n_rows, self.n_columns)

    def column_counts(self):
        """Return the number of entries of each column."""
        if self.missing:
            return np.diff(self.column_start)
        return np.full(self.n_columns, self.n_rows)


@cython.final
cdef class GuideTable:
    """Draws from probabilities that change now and then, in constant expected time.

    A first guess from a table with some cells for each item, then a walk along the
    cumulative probabilities: a quarter of a step on average, whatever they are.
    Building it is a plain pass, quicker than that of an alias table.
    """

    def __init__(self, Py_ssize_t size):
        self.size = size
        self.n_cells = CELLS_OF_ITEM * size
        self.cumulative = np.zeros(size)
        self.guide = np.zeros(self.n_cells, dtype=np.int32)
        self.ends, self.cells = &self.cumulative[0], &self.guide[0]

    cdef void build(
        self, const double* probabilities, Py_ssize_t stride
    ) noexcept nogil:
        """Take new probabilities, `stride` apart, that sum to one up to rounding."""
        cdef Py_ssize_t k, last = 0, cell = 0
        cdef double total = 0.0
        for k in range(self.size):
            total += probabilities[k * stride]
            self.cumulative[k] = total
            if probabilities[k * stride] > 0.0:
                last = k
        # Rounding must not leave a draw behind the last item.
        for k in range(last, self.size):
            self.cumulative[k] = 2.0
        k = 0
        for cell in range(self.n_cells):
            while self.cumulative[k] * self.n_cells <= cell:
                k += 1
            self.guide[cell] = <int> k


cdef void set_up(Shuffle* order, int n_bits) noexcept nogil:
    order.mask = (1ULL << n_bits) - 1
    order.shift = (n_bits + 1) // 2
    order.position = order.mask + 1


cdef void shuffle(Shuffle* order, bitgen_t* bits) noexcept nogil:
    """Take new keys and begin anew."""
    cdef int r
    for r in range(4):
        order.keys[r] = bits.next_uint64(bits.state) | 1
    order.position = 0


cdef inline unsigned long long deal(Shuffle* order) noexcept nogil:
    """Return the next number.

    Multiplications by odd numbers and xors with a shift of itself permute the numbers
    of k bits, so that no list of them is needed.
    """
    cdef unsigned long long e = (order.position ^ (order.keys[0] >> 1)) & order.mask
    cdef int r
    order.position += 1
    for r in range(1, 4):
        e = (e * order.keys[r]) & order.mask
        e ^= e >> order.shift
    return e


@cython.final
cdef class ShuffledEntries(RandomSampler):
    """Shuffled passes over the entries: every one once, then a new order.

    Chunks of neighbouring entries are dealt in random order; as many as fit into a
    cache make a block, whose entries are dealt in random order. So memory is read about
    once in a pass and not once for each entry. A matrix with fewer entries than a block
    is shuffled as a whole.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    entries : Entries
        The entries.
    """

    def __init__(self, generator, Entries entries):
        super().__init__(generator)
        cdef Py_ssize_t last = entries.n_entries - 1
        cdef int n_bits = max(int(last).bit_length(), 1)
        self.entries = entries
        self.chunk_bits = min(n_bits, CHUNK_BITS)
        self.n_chunks = (last >> self.chunk_bits) + 1
        set_up(&self.block_order, min(n_bits, BLOCK_BITS))
        set_up(&self.chunk_order, max(int(self.n_chunks - 1).bit_length(), 1))
        self.patience = POINTS_AHEAD

    cdef void next_block(self) noexcept nogil:
        cdef int filled = 0, slot
        cdef Py_ssize_t chunk, e, size
        if self.chunk_order.position > self.chunk_order.mask:
            shuffle(&self.chunk_order, self.bits)
        for slot in range(CHUNKS_OF_BLOCK):
            # Where the pass has no chunk left there is none of its entries.
            self.starts[slot] = self.entries.n_entries
        while filled < CHUNKS_OF_BLOCK:
            if self.chunk_order.position > self.chunk_order.mask:
                break
            chunk = <Py_ssize_t> deal(&self.chunk_order)
            if chunk < self.n_chunks:
                self.starts[filled] = chunk << self.chunk_bits
                if self.entries.missing:
                    # In order this is quicker than entry by entry.
                    size = self.entries.n_entries - self.starts[filled]
                    for e in range(0, min(1 << self.chunk_bits, size), 16):
                        PREFETCH(&self.entries.rows[self.starts[filled] + e])
                        PREFETCH(&self.entries.columns[self.starts[filled] + e])
                filled += 1
        shuffle(&self.block_order, self.bits)

    cdef void draw(self, Point* x) noexcept nogil:
        cdef unsigned long long place, within = (1ULL << self.chunk_bits) - 1
        cdef Py_ssize_t e
        while True:
            if self.block_order.position > self.block_order.mask:
                self.next_block()
            place = deal(&self.block_order)
            e = self.starts[place >> self.chunk_bits] + <Py_ssize_t> (place & within)
            if e < self.entries.n_entries:
                break
        self.entries.point_at(e, x)
        x.origin = 0
        x.q = 1.0

    def row_probabilities(self):
        """Return the share of each row in the draws."""
        return self.entries.row_counts() / self.entries.n_entries

    def column_probabilities(self):
        """Return the share of each column in the draws."""
        return self.entries.column_counts() / self.entries.n_entries

    def stratum_probabilities(self):
        """Return what is recorded over time: the probabilities of the columns."""
        return self.column_probabilities()

    def densities(self):
        """Return q of every cell; of missing ones, zero."""
        return scatter(self.entries, 1.0)


def scatter(Entries entries, values):
    """Return an array of the matrix's shape with values at the entries."""
    result = np.zeros((entries.n_rows, entries.n_columns))
    if entries.missing:
        result[np.asarray(entries.rows), np.asarray(entries.columns)] = values
    else:
        result[:] = values
    return result
