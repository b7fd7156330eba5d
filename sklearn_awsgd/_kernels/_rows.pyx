# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rows of a dense or CSR matrix, whatever its dtypes, without copying the matrix.

Every kernel is written once for a dense row of doubles and once for a sparse row of
doubles and 32-bit indices. A float64 matrix with 32-bit indices (or none) is read where
it lies; a row of another type is converted into a scratch row, which stays in the first
level cache, when it is drawn.
"""

import numpy as np

cimport numpy as cnp
from libc.limits cimport INT_MAX
from scipy.linalg.cython_blas cimport daxpy, ddot

cnp.import_array()

# Rows shorter than this are quicker in a plain loop than through BLAS, and rows longer
# than BLAS_MAX would wake its threads: they are handed over in pieces.
cdef enum:
    BLAS_MIN = 48
    BLAS_MAX = 8192

cdef class Numbers:
    """One number for each row, read where it lies.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        Contiguous; float64, float32 or int8.
    """

    def __init__(self, values):
        kinds = {"d": FLOAT64, "f": FLOAT32, "b": INT8}
        if values.dtype.char not in kinds or not (
            values.ndim == 1 and values.flags.c_contiguous
        ):
            raise ValueError("Numbers must be contiguous float64, float32 or int8.")
        self.owner = values
        self.kind = kinds[values.dtype.char]
        self.width = values.dtype.itemsize
        self.values = <const char*> cnp.PyArray_DATA(values)
        self.size = values.shape[0]


cdef class Rows:
    """A view of the rows of X, for one thread.

    Parameters
    ----------
    X : ndarray or CSR matrix or array of shape (n_rows, n_features)
        C-contiguous when dense; float32 or float64; int32 or int64 indices. It may be
        read-only or memory-mapped.
    """

    def __init__(self, X):
        # Quicker to find out than what is sparse.
        cdef bint is_dense = isinstance(X, np.ndarray)
        data = X if is_dense else X.data
        if not data.flags.c_contiguous or data.dtype not in (np.float32, np.float64):
            raise ValueError("X must be C-contiguous and of dtype float32 or float64.")
        self.owner = X
        self.n_rows, self.n_features = X.shape
        self.value_kind = FLOAT64 if data.dtype == np.float64 else FLOAT32
        self.index_kind = DENSE
        self.values = <const char*> cnp.PyArray_DATA(data)
        self.longest = self.n_features
        if self.n_features > INT_MAX:
            raise ValueError(
                f"X has {self.n_features} features; at most {INT_MAX} can be trained."
            )
        if not is_dense:
            if X.indices.dtype != X.indptr.dtype:
                raise ValueError("X.indices and X.indptr must have one dtype.")
            if X.indices.dtype not in (np.int32, np.int64) or not (
                X.indices.flags.c_contiguous and X.indptr.flags.c_contiguous
            ):
                raise ValueError(
                    "X.indices and X.indptr must be contiguous and int32 or int64."
                )
            self.index_kind = INT32 if X.indices.dtype == np.int32 else INT64
            self.indices = <const char*> cnp.PyArray_DATA(X.indices)
            self.indptr = <const char*> cnp.PyArray_DATA(X.indptr)
            self.longest = int(np.diff(X.indptr).max(initial=0))
        if self.value_kind == FLOAT32:
            self.value_scratch = np.empty(max(self.longest, 1))
        if self.index_kind == INT64:
            self.index_scratch = np.empty(max(self.longest, 1), dtype=np.int32)

    cdef void convert(self, Py_ssize_t start, Row* row) noexcept nogil:
        """Copy the row that begins at `start` into the scratch row."""
        cdef Py_ssize_t k
        cdef const float* narrow = (<const float*> self.values) + start
        cdef const long long* wide = (<const long long*> self.indices) + start
        if self.value_kind == FLOAT32:
            for k in range(row.size):
                self.value_scratch[k] = narrow[k]
            row.values = &self.value_scratch[0]
        if self.index_kind == INT64:
            for k in range(row.size):
                self.index_scratch[k] = <int> wide[k]
            row.indices = &self.index_scratch[0]

    def squared_norms(self, dtype=np.float64):
        """Return ||x_i||^2 of every row as float64 or float32, in one pass."""
        cdef Py_ssize_t i
        cdef Row row
        cdef double[::1] wide
        cdef float[::1] narrow
        cdef bint is_wide = dtype == np.float64
        norms = np.empty(self.n_rows, dtype=dtype)
        if is_wide:
            wide = norms
        else:
            narrow = norms
        with nogil:
            for i in range(self.n_rows):
                get_row(self, i, &row)
                if is_wide:
                    wide[i] = squared_norm(&row)
                else:
                    narrow[i] = <float> squared_norm(&row)
        return norms


cdef extern from *:
    """
    /* Whether columns are outside, and how often one is not behind the one before it:
       counted in the type of the columns, so that they stay in wide registers. */
    #define SCAN(NAME, TYPE, UNSIGNED)                                              \\
        WIDE static int NAME(                                                       \\
            const TYPE* j, Py_ssize_t n, Py_ssize_t width, Py_ssize_t* n_falls      \\
        ) {                                                                         \\
            TYPE outside = 0, falls = 0;                                            \\
            for (Py_ssize_t k = 0; k < n; k++)                                      \\
                outside |= (UNSIGNED) j[k] >= (UNSIGNED) width;                     \\
            for (Py_ssize_t k = 1; k < n; k++)                                      \\
                falls += j[k] <= j[k - 1];                                          \\
            *n_falls += falls;                                                      \\
            return outside != 0;                                                    \\
        }
    SCAN(scan_int, int, unsigned int)
    SCAN(scan_long, long long, unsigned long long)
    """
    int scan_int(
        const int* j, Py_ssize_t n, Py_ssize_t width, Py_ssize_t* n_falls
    ) noexcept nogil
    int scan_long(
        const long long* j, Py_ssize_t n, Py_ssize_t width, Py_ssize_t* n_falls
    ) noexcept nogil


ctypedef fused Index:
    int
    long long


# Columns that are looked at together: they stay in the cache between two looks.
cdef enum:
    TOGETHER = 2048


def check_places(const Index[::1] indptr, const Index[::1] indices, Py_ssize_t width):
    """Check where the numbers of a compressed sparse matrix are, in one pass.

    Parameters
    ----------
    indptr : ndarray of int of shape (n_rows + 1,)
        Where rows begin and end.
    indices : ndarray of int of shape (n_nonzero,)
        Columns, row after row.
    width : int
        Number of columns.

    Returns
    -------
    bad_row : int
        First row that does not begin at 0, or ends before it begins or behind the
        end of `indices`; -1 if there is none.
    bad_index : int
        Position in `indices` of the first that is no column; -1 if there is none.
    is_canonical : bool
        Whether the columns of each row are sorted and different.
    """
    cdef Py_ssize_t n_rows = indptr.shape[0] - 1, n = indices.shape[0]
    cdef Py_ssize_t i, k, begin, size
    cdef Py_ssize_t n_falls = 0, n_falls_between = 0
    cdef Py_ssize_t bad_row = -1, bad_index = -1
    cdef bint is_outside = False
    with nogil:
        for i in range(n_rows):
            if indptr[0] != 0 or not indptr[i] <= indptr[i + 1] <= n:
                bad_row = i
                break
        n = indptr[n_rows] if bad_row < 0 else 0
        begin = 0
        while begin < n:
            size = min(<Py_ssize_t> TOGETHER, n - begin)
            if Index is int:
                is_outside |= scan_int(&indices[begin], size, width, &n_falls)
            else:
                is_outside |= scan_long(&indices[begin], size, width, &n_falls)
            # The last one again, before the next ones.
            begin += TOGETHER - 1
        # From one row to the next columns may fall.
        for i in range(1, n_rows if n > 0 else 0):
            begin = indptr[i]
            if 0 < begin < indptr[i + 1]:
                n_falls_between += indices[begin] <= indices[begin - 1]
        if is_outside:
            for k in range(n):
                if not 0 <= indices[k] < width:
                    bad_index = k
                    break
    return bad_row, bad_index, n_falls == n_falls_between


cdef double dense_dot(const double* x, const double* w, Py_ssize_t size) noexcept nogil:
    cdef double total = 0.0, even = 0.0, odd = 0.0
    cdef Py_ssize_t k
    cdef int one = 1, piece
    if size < BLAS_MIN:
        for k in range(0, size - 1, 2):
            even += x[k] * w[k]
            odd += x[k + 1] * w[k + 1]
        if size % 2:
            even += x[size - 1] * w[size - 1]
        return even + odd
    while size > 0:
        piece = <int> min(size, <Py_ssize_t> BLAS_MAX)
        total += ddot(&piece, <double*> x, &one, <double*> w, &one)
        x += piece
        w += piece
        size -= piece
    return total


cdef double dot(const Row* row, const double* w) noexcept nogil:
    """<x, w>."""
    if row.indices == NULL:
        return dense_dot(row.values, w, row.size)
    return sparse_dot(row, w)


cdef void axpy(double a, const Row* row, double* w) noexcept nogil:
    """w += a x."""
    cdef Py_ssize_t k, size = row.size
    cdef const double* x = row.values
    cdef int one = 1, piece
    if row.indices != NULL:
        sparse_axpy(a, row, w)
    elif size < BLAS_MIN:
        for k in range(size):
            w[k] += a * x[k]
    else:
        while size > 0:
            piece = <int> min(size, <Py_ssize_t> BLAS_MAX)
            daxpy(&piece, &a, <double*> x, &one, w, &one)
            x += piece
            w += piece
            size -= piece


cdef double squared_norm(const Row* row) noexcept nogil:
    """||x||^2."""
    return dense_dot(row.values, row.values, row.size)
