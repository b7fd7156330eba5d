# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What a step of Newton's method does beside sums over the rows.

With few columns it is next to no arithmetic, of which calls of NumPy took longer than a
pass over some hundred rows.
"""

import numpy as np
from scipy.linalg import LinAlgError

from cython cimport floating
from libc.math cimport fabs, sqrt
from scipy.linalg.cython_blas cimport ddot
from scipy.linalg.cython_lapack cimport dpotrf, dpotrs

# What the diagonal of a matrix is enlarged by at first, relative to it.
cdef double LEAST_ENLARGED = 1e-12


cdef class Cholesky:
    """Solves for a positive matrix.

    It is scaled to a unit diagonal, so that features of very different size are alike,
    and the diagonal is enlarged where rounding asks for it.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
        The upper triangle counts.
    """
    cdef int n
    cdef double[::1] roots
    cdef double[::1, :] factor

    def __init__(self, const double[:, :] matrix):
        cdef Py_ssize_t i, j, n = matrix.shape[0]
        cdef int size = <int> n, failed = 1
        cdef double more = LEAST_ENLARGED
        self.n = size
        self.roots = np.empty(n)
        self.factor = np.empty((n, n), order="F")
        cdef double[::1] diagonal = np.empty(n)
        for i in range(n):
            self.roots[i] = sqrt(matrix[i, i]) if matrix[i, i] > 0.0 else 1.0
            diagonal[i] = matrix[i, i] / self.roots[i] / self.roots[i] + more
        while True:
            with nogil:
                for j in range(n):
                    for i in range(j):
                        self.factor[i, j] = (
                            matrix[i, j] / self.roots[j] / self.roots[i]
                        )
                    self.factor[j, j] = diagonal[j]
                if n > 0:
                    dpotrf(b"U", &size, &self.factor[0, 0], &size, &failed)
            if n == 0 or not failed:
                break
            if more > 1e300:
                raise LinAlgError("The curvature is not positive definite.")
            more *= 100
            for i in range(n):
                diagonal[i] += more

    def __call__(self, g):
        """Return the inverse applied to the columns of an array."""
        solution = np.array(g, dtype=np.float64, order="F")
        cdef double[::1, :] x = solution if g.ndim == 2 else solution[:, None]
        cdef Py_ssize_t i, k
        cdef int n_columns = <int> x.shape[1], failed
        if x.size == 0:
            return solution
        with nogil:
            for k in range(n_columns):
                for i in range(self.n):
                    x[i, k] /= self.roots[i]
            dpotrs(
                b"U", &self.n, &n_columns, &self.factor[0, 0], &self.n, &x[0, 0],
                &self.n, &failed,
            )
            for k in range(n_columns):
                for i in range(self.n):
                    x[i, k] /= self.roots[i]
        return solution


def weigh_rows(
    const floating[:, ::1] X, const Py_ssize_t[::1] rows, const double[::1] roots, dtype
):
    """Return rows with a one behind each, multiplied with roots of their weights.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows.
    rows : ndarray of int of shape (n_rows,) or None
        Which of them; None for all.
    roots : ndarray of shape (n_rows,)
        What to multiply each with.
    dtype : dtype
        Of the result, float32 or float64.
    """
    cdef Py_ssize_t i, j, k, n = roots.shape[0], d = X.shape[1]
    result = np.empty((n, d + 1), dtype=dtype)
    cdef double[:, ::1] wide
    cdef float[:, ::1] narrow
    if dtype == np.float64:
        wide = result
        with nogil:
            for k in range(n):
                i = k if rows is None else rows[k]
                for j in range(d):
                    wide[k, j] = X[i, j] * roots[k]
                wide[k, d] = roots[k]
    else:
        narrow = result
        with nogil:
            for k in range(n):
                i = k if rows is None else rows[k]
                for j in range(d):
                    narrow[k, j] = <float> (<float> X[i, j] * roots[k])
                narrow[k, d] = <float> roots[k]
    return result


def assess(
    const double[:, ::1] gradients,
    const double[:, ::1] sums,
    const double[::1] v,
    double alpha,
    bint fit_intercept,
):
    """Return what sums over the rows say of an objective with an l2 penalty.

    Parameters
    ----------
    gradients, sums : ndarrays of shapes (2, n_columns) and (2, 3)
        From an evaluation of all rows, see :func:`_batch.evaluate`.
    v : ndarray of shape (n_columns,)
        Where: coefficients, then the intercept.
    alpha : float
        Strength of the penalty.
    fit_intercept : bool
        Whether the intercept is free.

    Returns
    -------
    value : float
        Of the objective.
    gradient : ndarray of shape (n_columns,)
        Likewise.
    size : float
        Sum of the sizes of what a dual point is made of.
    """
    cdef Py_ssize_t j
    cdef int d = <int> v.shape[0] - 1, one = 1
    cdef double half = alpha / 2.0, penalty
    result = np.empty(d + 1)
    cdef double[::1] gradient = result
    with nogil:
        for j in range(d):
            gradient[j] = half * v[j]
        penalty = ddot(&d, &gradient[0], &one, <double*> &v[0], &one)
        for j in range(d + 1):
            gradient[j] = gradients[0, j] + gradients[1, j]
        for j in range(d):
            gradient[j] += alpha * v[j]
    if not fit_intercept:
        gradient[d] = 0.0
    cdef double size = fabs(sums[0, 0]) + fabs(sums[0, 1])
    size = size + fabs(sums[1, 0]) + fabs(sums[1, 1])
    # No number of Python, which would raise where it overflows.
    return np.float64(sums[0, 0] + sums[1, 0] + penalty), result, size


def dual_point(
    const double[:, ::1] gradients, const double[:, ::1] sums, bint fit_intercept
):
    """Return the dual point of the derivatives c_i.

    With an intercept it is feasible when their mean is zero, so the side with the
    larger sum is scaled down, by s. For a loss whose infimum is zero and whose second
    derivative is L at most, ``f*(s c) <= s f*(c) - s (1 - s) c^2 / (2 L)``; and
    ``f*(c) = c z - f`` at c = f'(z). So its dual objective is at least
    ``sum s (f - c z) + s (1 - s) c^2 / (2 L) - ||sum s c x||^2 / (2 alpha)``.

    The parameters are those of :func:`assess`.

    Returns
    -------
    value : float
        Of the dual objective, up to the penalty.
    mean : ndarray of shape (n_columns - 1,)
        Sum of P a x.
    spare : float
        Sum of P a^2 / (2 L): all of it may be scaled further, likewise.
    """
    cdef Py_ssize_t j, d = gradients.shape[1] - 1
    cdef double below = -gradients[0, d], above = gradients[1, d]
    cdef double[2] scale = [1.0, 1.0]
    if fit_intercept:
        scale[above > below] = min(below, above) / max(below, above, 1e-300)
    result = np.empty(d)
    cdef double[::1] mean = result
    with nogil:
        for j in range(d):
            mean[j] = scale[0] * gradients[0, j] + scale[1] * gradients[1, j]
    cdef double value = 0.0, spare = 0.0
    for j in range(2):
        value += scale[j] * (sums[j, 0] - sums[j, 1])
        value += scale[j] * (1.0 - scale[j]) * sums[j, 2]
        spare += scale[j] * scale[j] * sums[j, 2]
    return value, result, spare


def mix(
    double old_value,
    const double[::1] old_mean,
    double value,
    const double[::1] mean,
    double alpha,
):
    """Return the mixture of two dual points whose bound is the largest.

    A dual point is a pair (l, u) with the bound ``l - ||u||^2 / (2 alpha)``.
    """
    cdef Py_ssize_t j
    cdef int d = <int> mean.shape[0], one = 1
    result = np.empty(d)
    cdef double[::1] mixed = result
    cdef double slope = alpha * (value - old_value), size, share
    with nogil:
        for j in range(d):
            mixed[j] = mean[j] - old_mean[j]
        slope -= ddot(&d, <double*> &old_mean[0], &one, &mixed[0], &one)
        size = ddot(&d, &mixed[0], &one, &mixed[0], &one)
        share = min(max(slope / max(size, 1e-300), 0.0), 1.0)
        for j in range(d):
            mixed[j] = old_mean[j] + share * mixed[j]
    return np.float64(old_value + share * (value - old_value)), result


def mirrored(const double[:, ::1] upper, double factor):
    """Return the symmetric matrix of an upper triangle, multiplied with a factor."""
    cdef Py_ssize_t i, j, n = upper.shape[0]
    result = np.empty((n, n))
    cdef double[:, ::1] view = result
    with nogil:
        for i in range(n):
            for j in range(i, n):
                view[i, j] = view[j, i] = upper[i, j] * factor
    return result
