# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Where the entries of a matrix are, and how to draw them without learning."""

import numpy as np

cimport cython

from sklearn_awsgd._kernels._rows cimport PREFETCH

cdef enum:
    # Entries of a chunk, as a power of two: rows, columns and values of a deck are some
    # hundred kilobytes. Parts of a matrix have few entries, of which few decks would
    # leave many places empty.
    CHUNK_BITS = 9
    PART_CHUNK_BITS = 5
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
        self.by_column = None
        self.rows = np.repeat(
            np.arange(self.n_rows, dtype=np.int32), np.diff(row_start)
        )

    def sort(self, const int[::1] row_labels, const int[::1] column_labels, n_labels):
        """Sort the stored entries by the sum of the labels of row and column.

        It takes linear time, and entries of one label stay in their order.

        Returns
        -------
        order : ndarray of shape (n_stored,)
            Numbers of the entries.
        start : ndarray of shape (n_labels + 1,)
            Where those of each label begin.
        """
        cdef Py_ssize_t e, n_stored = self.columns.shape[0]
        cdef Py_ssize_t[::1] order = np.empty(n_stored, dtype=np.intp)
        cdef Py_ssize_t[::1] free = np.zeros(n_labels + 1, dtype=np.intp)
        cdef int label
        with nogil:
            for e in range(n_stored):
                free[1 + row_labels[self.rows[e]] + column_labels[self.columns[e]]] += 1
        start = np.cumsum(free)
        free = start.copy()
        with nogil:
            for e in range(n_stored):
                label = row_labels[self.rows[e]] + column_labels[self.columns[e]]
                order[free[label]] = e
                free[label] += 1
        return np.asarray(order), start

    def sort_by_column(self):
        """Have `column_start`, `by_column` and `column_rows`, for draws by column."""
        if self.by_column is None:
            no_labels = np.zeros(self.n_rows, dtype=np.int32)
            columns = np.arange(self.n_columns, dtype=np.int32)
            self.by_column, self.column_start = self.sort(
                no_labels, columns, self.n_columns
            )
            self.column_rows = np.asarray(self.rows)[np.asarray(self.by_column)]

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

    cdef void stored_at(self, Py_ssize_t e, Point* x) noexcept nogil:
        x.i = self.rows[e]
        x.j = self.columns[e]
        x.entry = e

    def reordered(self, order):
        """Return the entries that are stored in another order, to deal from."""
        cdef Entries result = Entries.__new__(Entries)
        result.n_rows, result.n_columns = self.n_rows, self.n_columns
        result.kind, result.missing = "missing", True
        result.n_entries = len(order)
        result.rows, result.columns = (side[order] for side in self.places())
        return result

    def places(self):
        """Return the rows and the columns of the entries that are stored."""
        return np.asarray(self.rows), np.asarray(self.columns)

    def row_counts(self):
        """Return the number of entries of each row."""
        if self.missing:
            return np.diff(self.row_start)
        return np.full(self.n_rows, self.n_columns)

    def column_counts(self):
        """Return the number of entries of each column."""
        if self.missing:
            return np.bincount(self.columns, minlength=self.n_columns)
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


cdef int bits_below(Py_ssize_t n) noexcept nogil:
    """The bits of the numbers below n."""
    cdef int n_bits = 0
    while (1LL << n_bits) < n:
        n_bits += 1
    return n_bits


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
    cache make a deck, whose entries are dealt in random order. So memory is read about
    once in a pass and not once for each entry. A matrix with fewer entries than a deck
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
        self.entries = entries
        self.patience = POINTS_AHEAD
        everything = slice(0, entries.n_rows), slice(0, entries.n_columns)
        self.turn_to(*everything, slice(0, entries.n_entries), CHUNK_BITS)

    def turn_to(self, rows, columns, part, chunk_bits=PART_CHUNK_BITS):
        """Deal the entries where some rows and columns meet.

        Parameters
        ----------
        rows, columns : slice
            The rows and the columns.
        part : slice
            Where their entries are among all, if some are missing.
        chunk_bits : int
            Entries of a chunk, as a power of two.
        """
        self.first, self.first_row, self.first_column = 0, rows.start, columns.start
        self.n_columns = columns.stop - columns.start
        self.n_entries = (rows.stop - rows.start) * self.n_columns
        if self.entries.missing:
            self.first, self.n_entries = part.start, part.stop - part.start
        self.chunk_bits = min(bits_below(self.n_entries), chunk_bits)
        self.n_chunks = ((self.n_entries - 1) >> self.chunk_bits) + 1
        set_up(&self.chunk_order, bits_below(self.n_chunks))
        set_up(&self.deck_order, 1)

    cdef void next_deck(self) noexcept nogil:
        cdef int filled = 0, slot
        cdef Py_ssize_t chunk, e, size, first
        if self.chunk_order.position > self.chunk_order.mask:
            shuffle(&self.chunk_order, self.bits)
        for slot in range(CHUNKS_OF_DECK):
            # Where the pass has no chunk left there is none of its entries.
            self.starts[slot] = self.n_entries
        while filled < CHUNKS_OF_DECK:
            if self.chunk_order.position > self.chunk_order.mask:
                break
            chunk = <Py_ssize_t> deal(&self.chunk_order)
            if chunk < self.n_chunks:
                self.starts[filled] = chunk << self.chunk_bits
                if self.entries.missing:
                    first = self.first + self.starts[filled]
                    # In order this is quicker than entry by entry.
                    size = self.n_entries - self.starts[filled]
                    for e in range(0, min(1 << self.chunk_bits, size), 16):
                        PREFETCH(&self.entries.rows[first + e])
                        PREFETCH(&self.entries.columns[first + e])
                filled += 1
        set_up(&self.deck_order, self.chunk_bits + bits_below(filled))
        shuffle(&self.deck_order, self.bits)

    cdef void draw(self, Point* x) noexcept nogil:
        cdef unsigned long long place, within = (1ULL << self.chunk_bits) - 1
        cdef Py_ssize_t e
        while True:
            if self.deck_order.position > self.deck_order.mask:
                self.next_deck()
            place = deal(&self.deck_order)
            e = self.starts[place >> self.chunk_bits] + <Py_ssize_t> (place & within)
            if e < self.n_entries:
                break
        if self.entries.missing:
            self.entries.stored_at(self.first + e, x)
        else:
            x.i = e // self.n_columns
            x.j = self.first_column + e - x.i * self.n_columns
            x.i += self.first_row
            self.entries.locate(x)
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
        result[entries.places()] = values
    else:
        result[:] = values
    return result
