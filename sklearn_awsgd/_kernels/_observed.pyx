# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Exact solutions for rows, each on the entries of it that are observed.

For row i this minimises, over u,

    sum_j weight_ij ((x_ij - offset_j - <u, v_j>)^2 + alpha ||u||^2)

over its observed entries j, by its normal equations.
"""

import numpy as np

from libc.math cimport NAN, isfinite, sqrt
from libc.string cimport memcpy, memset
from scipy.linalg.cython_blas cimport ddot, dgemv, dsyrk
from scipy.linalg.cython_lapack cimport dposv

cdef enum:
    # Entries whose factors are gathered at a time: they stay in the cache.
    GATHERED = 64

ctypedef fused Index:
    int
    long long

ctypedef fused Value:
    float
    double


def solve_observed(
    const Index[::1] start, const Index[::1] columns, const Value[::1] values,
    const double[::1] weights, const double[:, ::1] factors, const double[::1] offset,
    double alpha, double jitter, double[:, ::1] solution, double[::1] least,
):
    """Solve rows.

    Parameters
    ----------
    start, columns, values : memoryviews
        Entries, as in CSR: those of row i are from ``start[i]`` to ``start[i + 1]``.
    weights : memoryview
        Weights of the entries; empty when all are 1.
    factors : memoryview of shape (n_columns, n_factors)
        v, the factors of the columns.
    offset : memoryview of shape (n_columns,)
        Prediction of each column for u = 0.
    alpha : float
        Strength of the ridge.
    jitter : float
        Share of the trace that is added to the ridge.
    solution : memoryview of shape (n_rows, n_factors)
        Set to the minimisers; those of a row without entries are zero.
    least : memoryview of shape (n_rows,)
        Set to the minima, which are not finite for rows that could not be solved.
    """
    cdef int size = <int> factors.shape[1], one = 1, n = 0, info = 0
    cdef double[::1] gathered = np.empty(GATHERED * size)
    cdef double[::1] residuals = np.empty(GATHERED)
    cdef double[::1] gram = np.empty(size * size)
    cdef double[::1] target = np.empty(size)
    cdef Py_ssize_t i, k, e, first, last
    cdef double root, total, square, ridge, unit = 1.0
    cdef bint weighted = weights.shape[0] > 0
    with nogil:
        for i in range(solution.shape[0]):
            memset(&gram[0], 0, size * size * sizeof(double))
            memset(&target[0], 0, size * sizeof(double))
            total = square = ridge = 0.0
            first = start[i]
            while first < start[i + 1]:
                last = min(first + GATHERED, <Py_ssize_t> start[i + 1])
                n = <int> (last - first)
                for e in range(n):
                    k = columns[first + e]
                    memcpy(&gathered[e * size], &factors[k, 0], size * sizeof(double))
                    residuals[e] = values[first + e] - offset[k]
                    total += weights[first + e] if weighted else 1.0
                if weighted:
                    for e in range(n):
                        root = sqrt(weights[first + e])
                        residuals[e] *= root
                        for k in range(size):
                            gathered[e * size + k] *= root
                dsyrk(
                    b"U", b"N", &size, &n, &unit, &gathered[0], &size, &unit, &gram[0],
                    &size,
                )
                dgemv(
                    b"N", &size, &n, &unit, &gathered[0], &size, &residuals[0], &one,
                    &unit, &target[0], &one,
                )
                square += ddot(&n, &residuals[0], &one, &residuals[0], &one)
                first = last
            for k in range(size):
                ridge += gram[k * size + k]
            ridge = alpha * total + jitter * ridge
            for k in range(size):
                gram[k * size + k] += ridge if ridge > 0 else 1.0
                solution[i, k] = target[k]
            dposv(
                b"U", &size, &one, &gram[0], &size, &solution[i, 0], &size, &info
            )
            if info != 0 or not isfinite(ridge):
                for k in range(size):
                    solution[i, k] = NAN
            least[i] = square - ddot(&size, &target[0], &one, &solution[i, 0], &one)
