# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Streams: rows that are exact, and one-row steps against a past that is not.

A row here ends with what the intercept is multiplied with: the last of its p columns is
1, or 0 without an intercept. `a` are weights of rows.
"""

import numpy as np

from libc.math cimport INFINITY, fabs

from scipy.linalg.cython_blas cimport dgemm

from sklearn_awsgd._kernels._losses cimport Loss
# For WIDE.
from sklearn_awsgd._kernels._rows cimport PREFETCH  # no-cython-lint
from sklearn_awsgd._kernels._rows cimport DENSE, Row, Rows, axpy, dot, get_row

cdef extern from *:
    """
    WIDE static void add_scaled(
        double a, const double* __restrict x, Py_ssize_t n, double* __restrict y
    ) {
        Py_ssize_t k;
        for (k = 0; k < n; k++) y[k] += a * x[k];
    }
    """
    void add_scaled(
        double a, const double* x, Py_ssize_t n, double* y
    ) noexcept nogil

cdef enum:
    MOST_TRIALS = 40
    MOST_LATE = 16
    COLUMNS_AHEAD = 64

cdef double CLOSE = 1e-10
# Slopes of calibrated scores.
cdef double LEAST_SLOPE = 0.1, MOST_SLOPE = 10.0


def evaluate_rows(
    Loss loss, const double[::1] y, const double[::1] z, const double[::1] a,
    double[:, ::1] result,
):
    """Set the three lines of `result` to a f(y, z) and its derivatives in z.

    Returns
    -------
    total : float
        The sum of a f(y, z).
    """
    cdef double total
    with nogil:
        total = evaluate_weighted(loss, y, z, a, result)
    return total


cdef double evaluate_weighted(
    Loss loss, const double[::1] y, const double[::1] z, const double[::1] a,
    double[:, ::1] result,
) noexcept nogil:
    """As `evaluate_rows`."""
    cdef Py_ssize_t k, n = y.shape[0]
    cdef double total = 0.0
    if n == 0:
        return total
    loss.evaluate_many(&y[0], &z[0], n, &result[0, 0], &result[1, 0], &result[2, 0])
    for k in range(n):
        result[0, k] *= a[k]
        result[1, k] *= a[k]
        result[2, k] *= a[k]
        total += result[0, k]
    return total


def beyond_expansions(
    const double[::1] derivatives, const double[::1] h, const double[::1] r,
    const double[::1] t, double[::1] beyond,
):
    """Set `beyond` to what derivatives have beyond those of ``h t^2 / 2 - r t``.

    Returns
    -------
    largest, off : float
        The largest |t|, and the largest |beyond| relative to the largest derivative.
    """
    cdef Py_ssize_t k
    cdef double largest = 0.0, off = 0.0, size = 0.0
    with nogil:
        for k in range(t.shape[0]):
            beyond[k] = derivatives[k] - (h[k] * t[k] - r[k])
            largest = max(largest, fabs(t[k]))
            off = max(off, fabs(beyond[k]))
            size = max(size, max(fabs(derivatives[k]), fabs(r[k])))
    return largest, off / size if size > 0.0 else 0.0


def expansions_along(
    const double[::1] h, const double[::1] r, const double[::1] t,
    const double[::1] step,
):
    """Return slope and half the curvature of all expansions along a step of scores.

    And the largest |step|.
    """
    cdef Py_ssize_t k
    cdef double slope = 0.0, square = 0.0, largest = 0.0
    with nogil:
        for k in range(t.shape[0]):
            slope += step[k] * (h[k] * t[k] - r[k])
            square += h[k] * step[k] * step[k]
            largest = max(largest, fabs(step[k]))
    return slope, 0.5 * square, largest


def staleness(
    const double[::1] curvatures, const double[::1] h, const double[::1] sizes
):
    """Return by how much of their sum curvatures differ from those of expansions."""
    cdef Py_ssize_t k
    cdef double off = 0.0, total = 0.0
    with nogil:
        for k in range(h.shape[0]):
            off += fabs(curvatures[k] - h[k]) * sizes[k]
            total += h[k] * sizes[k]
    return off / total if total > 0.0 else (1.0 if off > 0.0 else 0.0)


def class_sums(
    Rows rows, const Py_ssize_t[::1] chosen, const double[::1] y,
    const double[:, ::1] values, const double[::1] h, const double[::1] c,
    double[:, ::1] x, double[:, ::1] totals,
):
    """Add up rows of either class, weighted by their curvatures.

    Parameters
    ----------
    rows, y : Rows and ndarray of shape (n_rows,)
        The rows, and their targets -1 and +1.
    chosen : ndarray of int
        Those to add up.
    values : ndarray of shape (3, n_rows or more)
        Losses and two derivatives.
    h, c : ndarrays of shape (n_rows or more,)
        What rows weigh at most, and their curvatures when they were given that.
    x : ndarray of shape (2, p)
        The sums are added to.
    totals : ndarray of shape (2, 2)
        For each class the sums of curvatures and of |derivatives|, added to.
    """
    cdef Py_ssize_t k, i, label
    cdef double weight
    cdef Row row
    with nogil:
        for k in range(chosen.shape[0]):
            i = chosen[k]
            label = y[i] > 0.0
            weight = h[i] * min(values[2, i] / c[i], 1.0) if c[i] > 0.0 else 0.0
            totals[label, 0] += weight
            totals[label, 1] += fabs(values[1, i])
            get_row(rows, i, &row)
            axpy(weight, &row, &x[label, 0])


def calibrate(
    Loss loss, const double[::1] scores, const double[::1] y, const double[::1] a,
    double[::1] point, const double[::1] prior, Py_ssize_t n_steps, double[::1] gains,
):
    """Take Newton steps of the logistic regression on scores and a constant.

    Parameters
    ----------
    loss : LogLoss
        Evaluates many rows at once.
    scores, y, a : ndarrays of shape (n_rows,)
        Scores, targets -1 and +1, weights.
    point : ndarray of shape (2,)
        Slope and intercept; changed.
    prior : ndarray of shape (5,)
        Three numbers of a symmetric matrix and two of a vector: a quadratic.
    n_steps : int
        Number of steps.
    gains : ndarray of shape (5,)
        Set to the same of the expansion of these rows at the end.

    Returns
    -------
    own : float
        Loss at the first point.
    """
    cdef Py_ssize_t i, step, n = scores.shape[0]
    cdef double g, h, g0, g1, h0, h1, h2, r0, r1, determinant, value, own = 0.0
    cdef double[::1] z = np.empty(n)
    cdef double[:, ::1] values = np.empty((3, n))
    with nogil:
        for step in range(n_steps + 1):
            for i in range(n):
                z[i] = scores[i] * point[0] + point[1]
            value = evaluate_weighted(loss, y, z, a, values)
            if step == 0:
                own = value
            g0, g1, h0, h1, h2 = 0.0, 0.0, 0.0, 0.0, 0.0
            for i in range(n):
                g, h = values[1, i], values[2, i]
                g0 += g
                g1 += g * scores[i]
                h0 += h
                h1 += h * scores[i]
                h2 += h * scores[i] * scores[i]
            if step == n_steps:
                break
            r1 = g1 + prior[0] * point[0] + prior[1] * point[1] - prior[3]
            r0 = g0 + prior[1] * point[0] + prior[2] * point[1] - prior[4]
            h0 += prior[2]
            h1 += prior[1]
            h2 += prior[0]
            determinant = h2 * h0 - h1 * h1
            point[0] -= (h0 * r1 - h1 * r0) / determinant
            point[1] -= (h2 * r0 - h1 * r1) / determinant
            point[0] = min(max(point[0], LEAST_SLOPE), MOST_SLOPE)
        gains[0], gains[1], gains[2] = h2, h1, h0
        gains[3] = h2 * point[0] + h1 * point[1] - g1
        gains[4] = h1 * point[0] + h0 * point[1] - g0
    return own


cdef double implicit_score(
    Loss loss, double y, double a, double z, double q, double beta, double* derivative
) noexcept nogil:
    """Return u with u = z - q (a f'(y, u) + beta), and set a f'(y, u).

    The right-hand side falls with u, so that there is one solution, between z and what
    it is at z. Newton steps that leave this interval, or come after one that did not
    halve the gap, are replaced by its middle.
    """
    cdef double low, high, u = z, gap, slope, new, before = INFINITY
    cdef int _trial
    loss.evaluate(y, u, derivative)
    gap = q * (a * derivative[0] + beta)
    low, high = min(z, z - gap), max(z, z - gap)
    for _trial in range(MOST_TRIALS):
        slope = 1.0 + q * a * loss.curvature(y, u, derivative[0])
        if gap > 0.0:
            high = min(high, u)
        else:
            low = max(low, u)
        new = u - gap / slope
        if not low < new < high or fabs(gap) > 0.5 * before:
            new = 0.5 * (low + high)
        before = fabs(gap)
        gap, u = new - u, new
        loss.evaluate(y, u, derivative)
        if fabs(gap) <= CLOSE * (1.0 + fabs(u)):
            break
        gap = u - z + q * (a * derivative[0] + beta)
    derivative[0] *= a
    return u


def rank_one_steps(
    Rows rows, Loss loss, const double[::1] y, const double[::1] a, double[::1] v,
    double[:, ::1] inverse,
):
    """Learn rows one after the other, each against a quadratic of all before it.

    The quadratic has its minimum at v and the inverse curvature S = `inverse`. A row
    moves v to the minimum of its loss plus the quadratic, which is in the direction
    S x, and then adds its own curvature there.

    Parameters
    ----------
    rows, loss, y, a : Rows, Loss and ndarrays of shape (n_rows,)
        The rows, which are float64, their targets and weights.
    v, inverse : ndarrays of shape (p,) and (p, p)
        Minimum and inverse curvature; changed.
    """
    cdef Py_ssize_t i, j, k, m, p = v.shape[0]
    cdef int size = p, n_late = 0, n_ahead = 0
    cdef double z, q, u, derivative = 0.0, h, zero = 0.0, one = 1.0, minus = -1.0
    # What S still has to lose: the sum of `shares` times `directions` over late rows,
    # a product of matrices that is several times as fast as one row after the other.
    cdef double[:, ::1] directions = np.empty((MOST_LATE, p))
    cdef double[:, ::1] shares = np.empty((MOST_LATE, p))
    cdef double* s
    cdef Row row
    cdef bint takes_many = (
        rows.index_kind == DENSE and rows.n_rows > 1 and p >= COLUMNS_AHEAD
    )
    with nogil:
        for i in range(rows.n_rows):
            get_row(rows, i, &row)
            z = dot(&row, &v[0])
            if n_ahead == 0 and takes_many:
                # So are the products of S with the next rows.
                n_ahead = min(MOST_LATE - n_late, rows.n_rows - i)
                dgemm(
                    b"N", b"N", &size, &n_ahead, &size, &one, &inverse[0, 0], &size,
                    <double*> row.values, &size, &zero, &directions[n_late, 0], &size,
                )
            s = &directions[n_late, 0]
            if n_ahead > 0:
                n_ahead -= 1
            else:
                # S is symmetric: its lines are its columns.
                for k in range(p):
                    s[k] = 0.0
                for m in range(row.size):
                    j = m if row.indices == NULL else row.indices[m]
                    add_scaled(row.values[m], &inverse[j, 0], p, s)
            for k in range(n_late):
                add_scaled(-dot(&row, &shares[k, 0]), &directions[k, 0], p, s)
            q = dot(&row, s)
            u = implicit_score(loss, y[i], a[i], z, q, 0.0, &derivative)
            h = loss.curvature(y[i], u, derivative / a[i]) * a[i]
            add_scaled(-derivative, s, p, &v[0])
            for k in range(p):
                shares[n_late, k] = h / (1.0 + h * q) * s[k]
            n_late += 1
            if n_late == MOST_LATE or i == rows.n_rows - 1:
                dgemm(
                    b"N", b"T", &size, &size, &n_late, &minus, &shares[0, 0], &size,
                    &directions[0, 0], &size, &one, &inverse[0, 0], &size,
                )
                n_late = 0


def add_gram(Rows rows, const double[::1] weights, double[:, ::1] curvature):
    """Add ``sum_i weights_i x_i x_i^T``; meant for sparse rows."""
    cdef Py_ssize_t i, m
    cdef Row row
    with nogil:
        for i in range(rows.n_rows):
            if weights[i] == 0.0:
                continue
            get_row(rows, i, &row)
            for m in range(row.size):
                axpy(
                    weights[i] * row.values[m], &row, &curvature[row.indices[m], 0]
                )


def scores(Rows rows, const double[::1] v, double[::1] z):
    """Set z to <x_i, v> of every row."""
    cdef Py_ssize_t i
    cdef Row row
    with nogil:
        for i in range(rows.n_rows):
            get_row(rows, i, &row)
            z[i] = dot(&row, &v[0])


def combine(Rows rows, const double[::1] c, double[::1] total):
    """Add ``sum_i c_i x_i`` to `total`."""
    cdef Py_ssize_t i
    cdef Row row
    with nogil:
        for i in range(rows.n_rows):
            get_row(rows, i, &row)
            axpy(c[i], &row, &total[0])
