# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Exact passes over all rows: objective, gradient, curvature, Hessian."""

import numpy as np

from libc.math cimport floor

from scipy.linalg.cython_blas cimport dgemv

from sklearn_awsgd._kernels._losses cimport Loss
from sklearn_awsgd._kernels._rows cimport (
    DENSE, FLOAT64, INT64, Row, Rows, axpy, dot, get_row, prefetch_row, sparse_axpy,
    sparse_dot
)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Single precision to double. */
    WIDE static void widen(const float* x, Py_ssize_t n, double* result) {
        for (Py_ssize_t k = 0; k < n; k++)
            result[k] = x[k];
    }
    /* A number or zero, without a branch that nobody can predict. */
    static inline double number_if(int is_meant, double number) {
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        bits &= -(uint64_t) is_meant;
        memcpy(&number, &bits, sizeof bits);
        return number;
    }

    /* Derivatives of each side, zeros elsewhere, times P; sums of P times losses, of
       these times scores, of these and of these times derivatives are added to totals.
    */
    static void add_sides(
        const double* losses, const double* derivatives, const double* slopes,
        const double* scores, Py_ssize_t n, double* lower, double* upper,
        double* lower_totals, double* upper_totals
    ) {
        double a0 = lower_totals[0], a1 = lower_totals[1], a2 = lower_totals[2];
        double b0 = upper_totals[0], b1 = upper_totals[1], b2 = upper_totals[2];
        double a3 = lower_totals[3], b3 = upper_totals[3];
        for (Py_ssize_t k = 0; k < n; k++) {
            int is_upper = slopes[k] > 0.0;
            lower[k] = number_if(!is_upper, slopes[k]);
            upper[k] = number_if(is_upper, slopes[k]);
            a0 += number_if(!is_upper, losses[k]);
            b0 += number_if(is_upper, losses[k]);
            a1 += lower[k] * scores[k];
            b1 += upper[k] * scores[k];
            a2 += lower[k];
            b2 += upper[k];
            a3 += lower[k] * derivatives[k];
            b3 += upper[k] * derivatives[k];
        }
        lower_totals[0] = a0; lower_totals[1] = a1; lower_totals[2] = a2;
        upper_totals[0] = b0; upper_totals[1] = b1; upper_totals[2] = b2;
        lower_totals[3] = a3; upper_totals[3] = b3;
    }
    """
    void widen(const float* x, Py_ssize_t n, double* result) noexcept nogil
    void add_sides(
        const double* losses, const double* derivatives, const double* slopes,
        const double* scores, Py_ssize_t n, double* lower, double* upper,
        double* lower_totals, double* upper_totals
    ) noexcept nogil


cdef enum:
    # Dense rows up to this length are multiplied in blocks of at most NUMBERS_OF_BLOCK
    # numbers, below what would wake the threads of BLAS.
    SHORT_ROW = 512
    NUMBERS_OF_BLOCK = 8192
    LARGEST_BLOCK = 64
    # Rows that are asked for before their turn, and the share of rows with weights, one
    # in so many, from which on all are read in their order.
    ROWS_AHEAD = 6
    DENSELY = 4


def evaluate(
    Rows rows,
    Loss loss,
    const double[::1] y,
    const double[::1] mass,
    const double[::1] v,
    double[:, ::1] gradients,
    double[:, ::1] sums,
    double[::1] curvatures,
    *,
    const double[::1] predictions=None,
):
    """Sum losses, gradients and curvatures over all rows, in one pass.

    The rows fall in two sides by the sign of their derivative c = df/dz (0 for c <= 0,
    1 for c > 0), which is what a certificate of optimality needs.

    Parameters
    ----------
    rows, loss, y : Rows, Loss and ndarray of shape (n_samples,)
        The linear model.
    mass : ndarray of shape (n_samples,) or None
        P of each row; None when all are equal.
    v : ndarray of shape (n_features + 1,)
        The point: coefficients, then the intercept.
    gradients : ndarray of shape (2, n_features + 1)
        Set to the sum of P c x of each side, the intercept's last.
    sums : ndarray of shape (2, 3)
        Set to the sums of P f, of P c z and of P c^2 / (2 L) of each side, where L is
        the largest second derivative of the loss.
    curvatures : ndarray of shape (n_samples,)
        Set to d2f/dz2 of each row.
    predictions : ndarray of shape (n_samples,), default=None
        Predictions at v, if they are known.
    """
    cdef Py_ssize_t k, start, side, n = rows.n_rows, d = rows.n_features
    cdef Py_ssize_t size, block = 1
    cdef double p = 1.0 / n
    # Sums of P f, P c z, P c and P c^2 of the two sides.
    cdef double[2][4] totals
    cdef bint in_place = rows.value_kind == FLOAT64 and rows.index_kind != INT64
    cdef bint is_dense = rows.index_kind == DENSE
    cdef bint with_blas = is_dense and d <= SHORT_ROW
    cdef const double* values = NULL
    cdef const float* narrow
    cdef Row row
    # Blocks of rows, whose second reading finds them in the cache; long rows, which
    # fill it, and sparse ones that have to be converted are handled one by one.
    if with_blas:
        block = max(1, min(<Py_ssize_t> LARGEST_BLOCK, NUMBERS_OF_BLOCK // d))
    elif in_place and not is_dense:
        block = LARGEST_BLOCK
    cdef double[LARGEST_BLOCK] scores, losses, derivatives, slopes
    cdef double[2][LARGEST_BLOCK] sides
    cdef double[::1] widened
    if with_blas and not in_place:
        widened = np.empty(block * d)
    gradients[:] = 0.0
    with nogil:
        for k in range(4):
            totals[0][k] = 0.0
            totals[1][k] = 0.0
        start = 0
        while start < n:
            size = min(block, n - start)
            if with_blas:
                values = (<const double*> rows.values) + start * d
                if not in_place:
                    narrow = (<const float*> rows.values) + start * d
                    widen(narrow, size * d, &widened[0])
                    values = &widened[0]
            if predictions is not None:
                for k in range(size):
                    scores[k] = predictions[start + k]
            else:
                if with_blas:
                    block_scores(values, size, d, &v[0], scores)
                else:
                    for k in range(size):
                        get_row(rows, start + k, &row)
                        if is_dense:
                            scores[k] = dot(&row, &v[0])
                        else:
                            scores[k] = sparse_dot(&row, &v[0])
                for k in range(size):
                    scores[k] += v[d]
            loss.evaluate_many(
                &y[start], scores, size, losses, derivatives,
                &curvatures[start],
            )
            for k in range(size):
                if mass is not None:
                    p = mass[start + k]
                losses[k] *= p
                slopes[k] = p * derivatives[k]
            add_sides(
                losses, derivatives, slopes, scores, size, sides[0], sides[1],
                totals[0], totals[1],
            )
            if with_blas:
                for side in range(2):
                    add_block(values, size, d, sides[side], &gradients[side, 0])
            else:
                for k in range(size):
                    if slopes[k] != 0.0:
                        if block > 1 or predictions is not None:
                            get_row(rows, start + k, &row)
                        side = slopes[k] > 0.0
                        if is_dense:
                            axpy(slopes[k], &row, &gradients[side, 0])
                        else:
                            sparse_axpy(slopes[k], &row, &gradients[side, 0])
            start += size
        for side in range(2):
            sums[side, 0], sums[side, 1] = totals[side][0], totals[side][1]
            gradients[side, d] = totals[side][2]
            sums[side, 2] = totals[side][3] / (2.0 * loss.smoothness)


def add_weighted_rows(Rows rows, const double[::1] weights, double[::1] total):
    """Add ``sum_i weights_i x_i`` to a total of shape (n_features,).

    Rows without weight are not looked at.
    """
    cdef Py_ssize_t k, start, size, n_there, n = rows.n_rows, d = rows.n_features
    cdef bint in_place = rows.value_kind == FLOAT64 and rows.index_kind == DENSE
    cdef bint is_sparse
    cdef Py_ssize_t block = LARGEST_BLOCK
    cdef Py_ssize_t[LARGEST_BLOCK] there
    cdef const double* values
    cdef Row row
    if in_place and d <= SHORT_ROW:
        block = max(1, min(<Py_ssize_t> LARGEST_BLOCK, NUMBERS_OF_BLOCK // d))
    with nogil:
        start = 0
        while start < n:
            size = min(block, n - start)
            n_there = 0
            for k in range(size):
                there[n_there] = start + k
                n_there += weights[start + k] != 0.0
            if in_place and d <= SHORT_ROW and DENSELY * n_there > size:
                values = (<const double*> rows.values) + start * d
                add_block(values, size, d, &weights[start], &total[0])
            else:
                is_sparse = DENSELY * n_there < size
                for k in range(min(n_there, <Py_ssize_t> ROWS_AHEAD)):
                    prefetch_row(rows, there[k])
                for k in range(n_there):
                    # One after the other is what the hardware expects.
                    if is_sparse and k + ROWS_AHEAD < n_there:
                        prefetch_row(rows, there[k + ROWS_AHEAD])
                    get_row(rows, there[k], &row)
                    if row.indices == NULL:
                        axpy(weights[there[k]], &row, &total[0])
                    else:
                        sparse_axpy(weights[there[k]], &row, &total[0])
            start += size


cdef void block_scores(
    const double* values, Py_ssize_t n_rows, Py_ssize_t d, const double* w,
    double* scores,
) noexcept nogil:
    """scores = X w for a block of dense rows, column-major to BLAS."""
    cdef int m = <int> d, n = <int> n_rows, one = 1
    cdef double unit = 1.0, zero = 0.0
    dgemv(
        b"T", &m, &n, &unit, <double*> values, &m, <double*> w, &one, &zero, scores,
        &one,
    )


cdef void add_block(
    const double* values, Py_ssize_t n_rows, Py_ssize_t d, const double* c,
    double* gradient,
) noexcept nogil:
    """gradient += X^T c for a block of dense rows."""
    cdef int m = <int> d, n = <int> n_rows, one = 1
    cdef double unit = 1.0
    dgemv(
        b"N", &m, &n, &unit, <double*> values, &m, <double*> c, &one, &unit, gradient,
        &one,
    )


ctypedef fused Size:
    float
    double


def draw_systematically(const Size[::1] size, Py_ssize_t n_draws, double start):
    """Draw rows about as often as their shares of the sum say.

    Row i is drawn as many times as a whole number lies between `start` plus the running
    sums before and after it, which are scaled such that the last is `n_draws`.

    Parameters
    ----------
    size : ndarray of shape (n_samples,)
        What each row is drawn in proportion to.
    n_draws : int
        Number of draws.
    start : float
        A random number between 0 and 1.

    Returns
    -------
    chosen : ndarray of int
        The rows drawn at least once.
    times : ndarray of float
        What to multiply a row's contribution with for an unbiased sum.
    """
    cdef Py_ssize_t i, k = 0, n = size.shape[0]
    cdef double total = 0.0, sum_so_far = 0.0, before = 0.0, after
    # Rounding may add one draw.
    chosen, times = np.empty(n_draws + 1, dtype=np.intp), np.empty(n_draws + 1)
    cdef Py_ssize_t[::1] chosen_view = chosen
    cdef double[::1] times_view = times
    with nogil:
        for i in range(n):
            total += size[i]
        for i in range(n):
            sum_so_far += size[i]
            after = floor(sum_so_far * (n_draws / total) + start)
            if after > before and k <= n_draws:
                chosen_view[k] = i
                times_view[k] = (after - before) * (total / n_draws) / size[i]
                k += 1
            before = after
    return chosen[:k], times[:k]


def add_hessian(Rows rows, const double[::1] weights, double[:, ::1] hessian):
    """Add ``sum_i weights_i x_i x_i^T`` of rows, each with a 1 behind it.

    Only entries (j, k) with j <= k are added to; meant for sparse rows, whose indices
    are sorted.
    """
    cdef Py_ssize_t i, a, b, d = rows.n_features
    cdef double value
    cdef double* line
    cdef Row row
    with nogil:
        for i in range(rows.n_rows):
            get_row(rows, i, &row)
            for a in range(row.size):
                value = weights[i] * row.values[a]
                line = &hessian[row.indices[a], 0]
                for b in range(a, row.size):
                    line[row.indices[b]] += value * row.values[b]
                line[d] += value
            hessian[d, d] += weights[i]


def hessian_diagonal(Rows rows, const double[::1] mass, const double[::1] curvatures):
    """Return the diagonal of the Hessian of E_P[f], the intercept's last."""
    cdef Py_ssize_t i, k, j, n = rows.n_rows, d = rows.n_features
    cdef double weight
    cdef Row row
    diagonal = np.zeros(d + 1)
    cdef double[::1] view = diagonal
    with nogil:
        for i in range(n):
            weight = curvatures[i] * (1.0 / n if mass is None else mass[i])
            if weight == 0.0:
                continue
            get_row(rows, i, &row)
            for k in range(row.size):
                j = k if row.indices == NULL else row.indices[k]
                view[j] += weight * row.values[k] * row.values[k]
            view[d] += weight
    return diagonal
