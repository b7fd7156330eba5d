# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Dual steps of softmax regression with an l2 penalty."""

import numpy as np

from sklearn_awsgd._kernels._rows cimport Row, Rows, get_row, prefetch_row
from sklearn_awsgd._kernels._stream_dual cimport implicit_softmax


def take_steps(
    Rows rows, const Py_ssize_t[::1] order, const int[::1] codes,
    const double[::1] weights, const double[::1] norms2, double[:, ::1] variates,
    double[:, ::1] coef, double[::1] intercepts, double strength, double hold,
):
    """Maximise the dual objective along one row after the other, the others fixed.

    That is, of ``sum_i weight_i f_i + strength / 2 ||W||^2 + hold / 2 ||b - c||^2``.
    The variates of a row become ``weight (e - p)``, where p are its probabilities after
    the step and e has a one for its class; ``strength W`` stays the sum of the variates
    times their rows, and ``hold (b - c)`` their sum.

    Parameters
    ----------
    rows, codes, weights, norms2 : Rows and ndarrays of shape (n_samples,)
        The rows, their classes, weights and squared norms.
    order : ndarray of int
        Rows to visit.
    variates : ndarray of shape (n_samples, n_classes)
        Changed.
    coef, intercepts : ndarrays of shape (n_features, n_classes) and (n_classes,)
        Changed.
    strength, hold : float
        Strength of the penalty, and of what holds the intercepts; no `hold` for none.
    """
    cdef Py_ssize_t k, i, j, m, c, n_classes = coef.shape[1]
    cdef double x, own, per_intercept = 1.0 / hold if hold > 0.0 else 0.0
    cdef double[:, ::1] work = np.empty((5, n_classes))
    cdef double* z = &work[0, 0]
    cdef double* q = &work[1, 0]
    cdef double* u = &work[2, 0]
    cdef double* p = &work[3, 0]
    cdef double* step = &work[4, 0]
    cdef double* line
    cdef Row row
    with nogil:
        for k in range(order.shape[0]):
            i = order[k]
            if k + 1 < order.shape[0]:
                prefetch_row(rows, order[k + 1])
            own = norms2[i] / strength + per_intercept
            if weights[i] <= 0.0 or own <= 0.0:
                continue
            get_row(rows, i, &row)
            for c in range(n_classes):
                z[c] = intercepts[c]
                q[c] = own
            for m in range(row.size):
                j = m if row.indices == NULL else row.indices[m]
                x, line = row.values[m], &coef[j, 0]
                for c in range(n_classes):
                    z[c] += line[c] * x
            implicit_softmax(
                z, q, &variates[i, 0], codes[i], weights[i], n_classes, u, p, step
            )
            for c in range(n_classes):
                # What the score has moved by, so that variates and coefficients agree
                # however far it was solved for.
                step[c] = (u[c] - z[c]) / own
                variates[i, c] += step[c]
                intercepts[c] += step[c] * per_intercept
            for m in range(row.size):
                j = m if row.indices == NULL else row.indices[m]
                x, line = row.values[m] / strength, &coef[j, 0]
                for c in range(n_classes):
                    line[c] += step[c] * x
