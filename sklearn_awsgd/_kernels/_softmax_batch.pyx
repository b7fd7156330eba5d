# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Exact passes of softmax regression: what follows the scores of a block of rows.

Scores come from matrix products, a line for each row; these functions change them in
place, so that nothing of the size of all rows times all classes is ever made.
"""

import numpy as np

from cython cimport floating
from libc.math cimport log

# For exp_of_minus.
from sklearn_awsgd._kernels._exponential cimport exp_of_minus  # no-cython-lint
# For WIDE.
from sklearn_awsgd._kernels._rows cimport PREFETCH  # no-cython-lint

cdef extern from *:
    """
    enum {LANES = 64};

    /* Probabilities of the classes of at most LANES rows, in place of their scores z
       without the intercepts b. Rows lie next to each other meanwhile, in `work`, so
       that several are computed at once. Also set, of each row: the largest score, the
       sum of the exponentials relative to it, and sum_k p_k^2. */
    WIDE static void to_probabilities(
        double* __restrict z, Py_ssize_t n_rows, Py_ssize_t n_classes,
        const double* __restrict b, double* __restrict work,
        double* __restrict largest, double* __restrict totals,
        double* __restrict squares
    ) {
        Py_ssize_t i, k;
        double inverse[LANES];
        for (k = 0; k < n_classes; k++) {
            double* line = work + k * LANES;
            for (i = 0; i < n_rows; i++) line[i] = z[i * n_classes + k] + b[k];
        }
        for (i = 0; i < n_rows; i++) {
            largest[i] = work[i];
            totals[i] = squares[i] = 0.0;
        }
        for (k = 1; k < n_classes; k++) {
            const double* line = work + k * LANES;
            for (i = 0; i < n_rows; i++)
                largest[i] = line[i] > largest[i] ? line[i] : largest[i];
        }
        for (k = 0; k < n_classes; k++) {
            double* line = work + k * LANES;
            for (i = 0; i < n_rows; i++) {
                line[i] = exp_of_minus(largest[i] - line[i]);
                totals[i] += line[i];
            }
        }
        for (i = 0; i < n_rows; i++) inverse[i] = 1.0 / totals[i];
        for (k = 0; k < n_classes; k++) {
            double* line = work + k * LANES;
            for (i = 0; i < n_rows; i++) {
                line[i] *= inverse[i];
                squares[i] += line[i] * line[i];
            }
        }
        for (i = 0; i < n_rows; i++)
            for (k = 0; k < n_classes; k++) z[i * n_classes + k] = work[k * LANES + i];
    }
    """
    enum: LANES
    void to_probabilities(
        double* z, Py_ssize_t n_rows, Py_ssize_t n_classes, const double* b,
        double* work, double* largest, double* totals, double* squares
    ) noexcept nogil


def evaluate(
    double[:, ::1] scores,
    const double[::1] intercepts,
    const int[::1] codes,
    const double[::1] mass,
    double row_mass,
    double[::1] spreads,
    double[::1] sums,
):
    """Turn scores into residuals, and add up these and losses.

    Parameters
    ----------
    scores : ndarray of shape (n_rows, n_classes)
        Scores without intercepts; changed to ``P_i (p_ik - [k = y_i])``.
    intercepts : ndarray of shape (n_classes,)
        Intercepts.
    codes : ndarray of shape (n_rows,)
        Class of each row.
    mass : ndarray of shape (n_rows,) or None
        P of each row.
    row_mass : float
        P of each row when `mass` is None.
    spreads : ndarray of shape (n_rows,)
        Set to ``1 - sum_k p_k^2``, the trace of a row's curvature.
    sums : ndarray of shape (n_classes,)
        Set to the sums of the residuals.

    Returns
    -------
    loss : float
        Sum of P f.
    """
    cdef Py_ssize_t block, start, size, i, k
    cdef Py_ssize_t n = scores.shape[0], n_classes = scores.shape[1]
    cdef double[LANES] own, largest, totals, squares
    cdef double p, loss = 0.0
    cdef double[::1] work = np.empty(n_classes * LANES)
    cdef double* row
    sums[:] = 0.0
    with nogil:
        for block in range((n + LANES - 1) // LANES):
            start = block * LANES
            size = min(<Py_ssize_t> LANES, n - start)
            row = &scores[start, 0]
            for i in range(size):
                k = codes[start + i]
                own[i] = scores[start + i, k] + intercepts[k]
            to_probabilities(
                row, size, n_classes, &intercepts[0], &work[0], largest, totals, squares
            )
            for i in range(size):
                p = row_mass if mass is None else mass[start + i]
                loss += p * (log(totals[i]) + (largest[i] - own[i]))
                spreads[start + i] = 1.0 - squares[i]
                for k in range(n_classes):
                    row[k] *= p
                row[codes[start + i]] -= p
                for k in range(n_classes):
                    sums[k] += row[k]
                row += n_classes
    return loss


def probabilities(double[:, ::1] scores, const double[::1] intercepts):
    """Turn scores without intercepts into the probabilities of the classes."""
    cdef Py_ssize_t block, start, n = scores.shape[0], n_classes = scores.shape[1]
    cdef double[LANES] largest, totals, squares
    cdef double[::1] work = np.empty(n_classes * LANES)
    with nogil:
        for block in range((n + LANES - 1) // LANES):
            start = block * LANES
            to_probabilities(
                &scores[start, 0], min(<Py_ssize_t> LANES, n - start), n_classes,
                &intercepts[0], &work[0], largest, totals, squares,
            )


def curve(
    floating[:, ::1] moves,
    const floating[:, ::1] p,
    const floating[::1] weights,
    floating floor,
):
    """Multiply the scores' moves with the curvature of their rows.

    A move m becomes ``w ((1 - floor) p (m - sum_k p_k m_k) + floor / 2 m)``: a share of
    the curvature is replaced by its bound.
    """
    cdef Py_ssize_t i, k, n_classes = p.shape[1]
    cdef floating mean, kept, bound
    with nogil:
        for i in range(p.shape[0]):
            mean = 0
            for k in range(n_classes):
                mean += p[i, k] * moves[i, k]
            kept = weights[i] * (1 - floor)
            bound = weights[i] * floor / 2
            for k in range(n_classes):
                moves[i, k] = (
                    kept * p[i, k] * (moves[i, k] - mean) + bound * moves[i, k]
                )
