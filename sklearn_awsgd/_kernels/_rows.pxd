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
    # Numbers in the longest row.
    cdef readonly Py_ssize_t longest
    cdef void convert(self, Py_ssize_t start, Row* row) noexcept nogil


cdef enum:
    # Kinds of values and of indices.
    FLOAT64
    FLOAT32
    INT8
    DENSE
    INT32
    INT64


cdef class Numbers:
    cdef object owner
    cdef int kind, width
    cdef const char* values
    cdef readonly Py_ssize_t size


cdef inline double number(Numbers numbers, Py_ssize_t i) noexcept nogil:
    """The number of row i."""
    if numbers.kind == FLOAT64:
        return (<const double*> numbers.values)[i]
    if numbers.kind == FLOAT32:
        return (<const float*> numbers.values)[i]
    return (<const signed char*> numbers.values)[i]


cdef inline void get_row(Rows rows, Py_ssize_t i, Row* row) noexcept nogil:
    """Point `row` at row i; what it points at stays valid until the next call."""
    cdef Py_ssize_t start
    if rows.index_kind == DENSE:
        start = i * rows.n_features
        row.size = rows.n_features
        row.indices = NULL
    elif rows.index_kind == INT32:
        start = (<const int*> rows.indptr)[i]
        row.size = (<const int*> rows.indptr)[i + 1] - start
        row.indices = (<const int*> rows.indices) + start
    else:
        start = (<const long long*> rows.indptr)[i]
        row.size = (<const long long*> rows.indptr)[i + 1] - start
    row.values = (<const double*> rows.values) + start
    if rows.value_kind == FLOAT32 or rows.index_kind == INT64:
        rows.convert(start, row)


cdef inline double sparse_dot(const Row* row, const double* w) noexcept nogil:
    """<x, w> of a sparse row: in place, as a call takes as long as some numbers."""
    cdef double even = 0.0, odd = 0.0
    cdef Py_ssize_t k
    cdef const double* x = row.values
    cdef const int* j = row.indices
    # Two sums: one would wait for each addition.
    for k in range(0, row.size - 1, 2):
        even += x[k] * w[j[k]]
        odd += x[k + 1] * w[j[k + 1]]
    if row.size % 2:
        even += x[row.size - 1] * w[j[row.size - 1]]
    return even + odd


cdef inline void sparse_axpy(double a, const Row* row, double* w) noexcept nogil:
    """w += a x of a sparse row."""
    cdef Py_ssize_t k
    for k in range(row.size):
        w[row.indices[k]] += a * row.values[k]


cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define PREFETCH(address) __builtin_prefetch(address)
    #else
    #define PREFETCH(address)
    #endif
    /* Functions marked WIDE use wider registers where the processor has them, chosen
       when the module is loaded, which is before sanitizers are ready. Nothing is
       fused, so the results are the same with any width. */
    #if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) \\
        && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
    #define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
    #else
    #define WIDE
    #endif
    """
    void PREFETCH(const void* address) noexcept nogil


cdef inline void ask_for(const char* begin, Py_ssize_t size) noexcept nogil:
    """Ask for the cache lines of the first numbers behind an address."""
    cdef Py_ssize_t k
    size = min(size, <Py_ssize_t> 1024)
    for k in range(0, size, 64):
        PREFETCH(begin + k)
    # The last line, which the steps above may have missed.
    if size > 0:
        PREFETCH(begin + size - 1)


cdef inline void prefetch_number(Numbers numbers, Py_ssize_t i) noexcept nogil:
    """Ask for the number of row i."""
    PREFETCH(numbers.values + i * numbers.width)


cdef inline void prefetch_row(Rows rows, Py_ssize_t i) noexcept nogil:
    """Ask for the beginning of row i; the hardware follows on its own from there."""
    cdef Py_ssize_t start, width = 4 if rows.value_kind == FLOAT32 else 8
    cdef Py_ssize_t size = rows.n_features
    if rows.index_kind == DENSE:
        start = i * rows.n_features
    elif rows.index_kind == INT32:
        start = (<const int*> rows.indptr)[i]
        size = (<const int*> rows.indptr)[i + 1] - start
    else:
        start = (<const long long*> rows.indptr)[i]
        size = (<const long long*> rows.indptr)[i + 1] - start
    ask_for(rows.values + start * width, size * width)
    if rows.index_kind != DENSE:
        width = 4 if rows.index_kind == INT32 else 8
        ask_for(rows.indices + start * width, size * width)


cdef double dot(const Row* row, const double* w) noexcept nogil
cdef void axpy(double a, const Row* row, double* w) noexcept nogil
cdef double squared_norm(const Row* row) noexcept nogil
