# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Steps along the coordinates of a linear model, by the columns of its rows.

Columns are the rows of the transposed matrix: CSC of rows is CSR of columns.
"""

import numpy as np

from libc.math cimport fabs

from sklearn_awsgd._kernels._rows cimport Row, Rows, axpy, dot, get_row
from sklearn_awsgd._kernels._steps cimport soft

cdef enum:
    # Sweeps over the coordinates that are not zero, before one over all.
    MOST_PARTIAL = 10


def combine(Rows columns, const Py_ssize_t[::1] which, const double[::1] w, double b):
    """Return ``b + sum_j w_j x_j`` over some columns."""
    cdef Py_ssize_t j
    cdef Row column
    total = np.full(columns.n_features, b)
    cdef double[::1] view = total
    with nogil:
        for j in range(which.shape[0]):
            if w[j] != 0.0:
                get_row(columns, which[j], &column)
                axpy(w[j], &column, &view[0])
    return total


def correlate(Rows columns, const Py_ssize_t[::1] which, const double[::1] c):
    """Return ``<x_j, c>`` of some columns."""
    cdef Py_ssize_t j
    cdef Row column
    products = np.empty(which.shape[0])
    cdef double[::1] view = products
    with nogil:
        for j in range(which.shape[0]):
            get_row(columns, which[j], &column)
            view[j] = dot(&column, &c[0])
    return products


cdef inline void add_weighted(
    double a, const Row* column, const double* h, double* total
) noexcept nogil:
    """total += a h x, row by row."""
    cdef Py_ssize_t m, i
    cdef const double* x = column.values
    if column.indices == NULL:
        for i in range(column.size):
            total[i] += a * (h[i] * x[i])
        return
    for m in range(column.size):
        i = column.indices[m]
        total[i] += a * (h[i] * x[m])


cdef inline double weighted_square(const Row* column, const double* h) noexcept nogil:
    """<x, h x>."""
    cdef Py_ssize_t m
    cdef double total = 0.0
    cdef const double* x = column.values
    if column.indices == NULL:
        for m in range(column.size):
            total += h[m] * (x[m] * x[m])
        return total
    for m in range(column.size):
        total += h[column.indices[m]] * (x[m] * x[m])
    return total


def weighted_gram(
    Rows columns, const Py_ssize_t[::1] which, const double[::1] h
):
    """Return ``X^T diag(h) X`` of some columns and, last, one of ones."""
    cdef Py_ssize_t p = which.shape[0], n = columns.n_features, i, j, k
    cdef Row column
    products = np.empty((p + 1, p + 1))
    cdef double[:, ::1] view = products
    cdef double[::1] weighed = np.empty(n)
    cdef double total = 0.0
    with nogil:
        for j in range(p + 1):
            if j < p:
                get_row(columns, which[j], &column)
                weighed[:] = 0.0
                add_weighted(1.0, &column, &h[0], &weighed[0])
            else:
                weighed[:] = h
            for k in range(min(j + 1, p)):
                get_row(columns, which[k], &column)
                view[j, k] = view[k, j] = dot(&column, &weighed[0])
        for i in range(n):
            total += h[i]
        view[p, p] = total
    return products


def minimize_by_columns(
    Rows columns, const Py_ssize_t[::1] which, const double[::1] h,
    const double[::1] gradient, const double[::1] v, penalties, enough,
    Py_ssize_t max_sweeps,
):
    """Minimise a quadratic model with an l1 penalty, by coordinate descent.

    With the coefficients of some columns and the intercept, v = (w, b), the model is
    ``<g, d> + sum_i h_i m_i^2 / 2 + l1 ||w + d||_1 + l2 / 2 ||d||^2`` where the move
    of row i is ``m_i = sum_j d_j x_ij + d_b``.

    Parameters
    ----------
    columns : Rows
        The columns.
    which : ndarray of shape (p,)
        Numbers of the columns that the model has.
    h : ndarray of shape (n_samples,)
        Curvature of each row times its P.
    gradient, v : ndarray of shape (p + 1,)
        g and v, the intercept's last.
    penalties : tuple of float
        l1 and l2.
    enough : tuple of float
        Slopes that count as zero, of the coefficients and of the intercept; the latter
        is infinite for a model without one.
    max_sweeps : int
        Largest number of sweeps over the coordinates that are not zero, and now and
        then over all.

    Returns
    -------
    d : ndarray of shape (p + 1,)
        The minimiser.
    n_sweeps : int
        Number of sweeps; `max_sweeps` where it was not reached.
    """
    cdef double l1 = penalties[0], l2 = penalties[1]
    cdef double flat = enough[0], flat_intercept = enough[1]
    cdef bint fit_intercept = flat_intercept < np.inf
    cdef Py_ssize_t p = which.shape[0], n = columns.n_features
    cdef Py_ssize_t i, j, sweep = 0, n_partial = 0
    cdef bint everything = True, quiet = False
    cdef double slope, old, change, total_h = 0.0
    cdef Row column
    cdef double[::1] curvature = np.empty(p), weighed = np.zeros(n)
    minimiser = np.zeros(p + 1)
    cdef double[::1] d = minimiser
    with nogil:
        for i in range(n):
            total_h += h[i]
        for j in range(p):
            get_row(columns, which[j], &column)
            curvature[j] = weighted_square(&column, &h[0]) + l2
        while sweep < max_sweeps:
            sweep += 1
            quiet = True
            for j in range(p):
                old = v[j] + d[j]
                if (old == 0.0 and not everything) or curvature[j] <= 0.0:
                    continue
                get_row(columns, which[j], &column)
                slope = gradient[j] + dot(&column, &weighed[0]) + l2 * d[j]
                change = soft(old - slope / curvature[j], l1 / curvature[j]) - old
                if change == 0.0:
                    continue
                d[j] += change
                add_weighted(change, &column, &h[0], &weighed[0])
                quiet &= fabs(change) * curvature[j] <= flat
            if fit_intercept and total_h > 0.0:
                slope = gradient[p]
                for i in range(n):
                    slope += weighed[i]
                change = -slope / total_h
                d[p] += change
                for i in range(n):
                    weighed[i] += change * h[i]
                quiet &= fabs(slope) <= flat_intercept
            if quiet and everything:
                break
            n_partial += 1
            everything = quiet or n_partial == MOST_PARTIAL
            if everything:
                n_partial = 0
    return minimiser, sweep if quiet else max_sweeps
