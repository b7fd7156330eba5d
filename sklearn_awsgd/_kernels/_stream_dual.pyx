# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Wide streams: one-row steps with dual numbers against a diagonal past.

A row ends with what the intercept is multiplied with, as in ``_stream.pyx``.
"""

import numpy as np

from libc.math cimport copysign, exp, fabs, fmax

from sklearn_awsgd._kernels._losses cimport Loss
# For WIDE.
from sklearn_awsgd._kernels._rows cimport PREFETCH  # no-cython-lint
from sklearn_awsgd._kernels._rows cimport Row, Rows, get_row, prefetch_row
from sklearn_awsgd._kernels._stream cimport implicit_score

cdef extern from *:
    """
    /* Both for dense rows. Sums have eight lanes in any case, so that the results do
       not depend on how wide the registers are. */
    WIDE static double score_of(
        const double* x, const double* theta, const double* inverse, Py_ssize_t size,
        double* square
    ) {
        double z[8] = {0}, q[8] = {0};
        Py_ssize_t i = 0, k;
        for (; i + 8 <= size; i += 8)
            for (k = 0; k < 8; k++) {
                double scaled = x[i + k] * inverse[i + k];
                z[k] += scaled * theta[i + k];
                q[k] += scaled * x[i + k];
            }
        for (k = 0; i < size; i++, k++) {
            z[k] += x[i] * inverse[i] * theta[i];
            q[k] += x[i] * inverse[i] * x[i];
        }
        *square = ((q[0] + q[1]) + (q[2] + q[3])) + ((q[4] + q[5]) + (q[6] + q[7]));
        return ((z[0] + z[1]) + (z[2] + z[3])) + ((z[4] + z[5]) + (z[6] + z[7]));
    }

    WIDE static void move_along(
        double delta, const double* __restrict x, Py_ssize_t size,
        double* __restrict theta
    ) {
        Py_ssize_t i;
        for (i = 0; i < size; i++) theta[i] += delta * x[i];
    }

    WIDE static void add_squares(
        double h, const double* __restrict x, Py_ssize_t size,
        double* __restrict total
    ) {
        Py_ssize_t i;
        for (i = 0; i < size; i++) total[i] += h * x[i] * x[i];
    }
    """
    double score_of(
        const double* x, const double* theta, const double* inverse, Py_ssize_t size,
        double* square,
    ) noexcept nogil
    void move_along(
        double delta, const double* x, Py_ssize_t size, double* theta
    ) noexcept nogil
    void add_squares(
        double h, const double* x, Py_ssize_t size, double* total
    ) noexcept nogil


cdef enum:
    MOST_TRIALS = 40


cdef inline double shrunk(double value, double threshold) noexcept nogil:
    """Return the value, moved towards zero by the threshold."""
    cdef double size
    if threshold == 0.0:
        return value
    size = fabs(value) - threshold
    return copysign(size, value) if size > 0.0 else 0.0


def dual_steps(
    Rows rows, Loss loss, const Py_ssize_t[::1] order, const double[::1] y,
    const double[::1] a, double[::1] beta, double[::1] theta, double[::1] w,
    const double[::1] inverse, double threshold,
):
    """Solve for the dual number of one row after the other, the others fixed.

    With L = 1 / `inverse`, the curvature of each coordinate, and the dual numbers
    beta_i, which are -a_i f'(y_i, z_i) where row i is solved, w is
    ``shrink(theta, threshold) / L`` while theta gains what beta_i gains, times x_i.
    The last coordinate, the intercept, has no threshold.

    Parameters
    ----------
    rows, loss, y, a : Rows, Loss and ndarrays of shape (n_rows,)
        The rows, their targets and weights.
    order : ndarray of int
        Rows to visit.
    beta : ndarray of shape (n_rows,)
        Changed.
    theta : ndarray of shape (p,)
        Changed.
    w : ndarray of shape (p,)
        Set to what it is at the end: the steps need theta alone.
    inverse : ndarray of shape (p,)
        1 / L.
    threshold : float
        Strength of the l1 penalty, times the number of rows.
    """
    cdef Py_ssize_t k, i, j, m, n = order.shape[0], last = w.shape[0] - 1
    cdef double z, q, u, x, delta, derivative = 0.0
    cdef Row row
    with nogil:
        for k in range(n):
            i = order[k]
            if k + 1 < n:
                prefetch_row(rows, order[k + 1])
            if a[i] <= 0.0:
                continue
            get_row(rows, i, &row)
            z = 0.0
            q = 0.0
            if row.indices == NULL and threshold == 0.0:
                z = score_of(row.values, &theta[0], &inverse[0], row.size, &q)
            else:
                for m in range(row.size):
                    j = m if row.indices == NULL else row.indices[m]
                    x = row.values[m] * inverse[j]
                    z += x * shrunk(theta[j], threshold if j < last else 0.0)
                    q += x * row.values[m]
            if q <= 0.0:
                continue
            u = implicit_score(loss, y[i], a[i], z, q, beta[i], &derivative)
            # What the score has moved by, and not -derivative - beta, so that theta
            # and beta agree however far the score was solved for.
            delta = (u - z) / q
            beta[i] += delta
            if row.indices == NULL:
                move_along(delta, row.values, row.size, &theta[0])
            else:
                for m in range(row.size):
                    theta[row.indices[m]] += delta * row.values[m]
        for j in range(last + 1):
            w[j] = shrunk(theta[j], threshold if j < last else 0.0) * inverse[j]


cdef void softmax_into(
    const double* scores, Py_ssize_t n_classes, double* p
) noexcept nogil:
    cdef Py_ssize_t c
    cdef double largest = scores[0], total = 0.0
    for c in range(1, n_classes):
        largest = fmax(largest, scores[c])
    for c in range(n_classes):
        p[c] = exp(scores[c] - largest)
        total += p[c]
    for c in range(n_classes):
        p[c] /= total


cdef void implicit_softmax(
    const double* z, const double* q, const double* beta, Py_ssize_t target, double a,
    Py_ssize_t n_classes, double* u, double* p, double* step,
) noexcept nogil:
    """Set u to the solution of u = z + q (a (t - softmax(u)) - beta).

    Newton steps: the Jacobian ``diag(1 + q a p) - (q a p) p^T`` is inverted by the
    formula of Sherman and Morrison.
    """
    cdef Py_ssize_t c
    cdef int _trial
    cdef double e, above, below, ratio, largest
    for c in range(n_classes):
        u[c] = z[c]
    for _trial in range(MOST_TRIALS):
        softmax_into(u, n_classes, p)
        above, below = 0.0, 0.0
        for c in range(n_classes):
            e = 1.0 + q[c] * a * p[c]
            step[c] = u[c] - z[c] - q[c] * (a * ((c == target) - p[c]) - beta[c])
            above += p[c] * step[c] / e
            below += p[c] * q[c] * a * p[c] / e
        ratio = above / fmax(1.0 - below, 1e-12)
        largest = 0.0
        for c in range(n_classes):
            e = 1.0 + q[c] * a * p[c]
            step[c] = (step[c] + q[c] * a * p[c] * ratio) / e
            largest = fmax(largest, fabs(step[c]))
        # Far away the exponentials are no quadratics: no step beyond three.
        ratio = 1.0 if largest <= 3.0 else 3.0 / largest
        for c in range(n_classes):
            u[c] -= ratio * step[c]
        if largest < 1e-4:
            break


def softmax_steps(
    Rows rows, const Py_ssize_t[::1] order, const int[::1] y, const double[::1] a,
    double[:, ::1] beta, double[:, ::1] theta, double[:, ::1] w,
    const double[:, ::1] inverse, double threshold,
):
    """As `dual_steps` for softmax regression, all classes of a row at once.

    `beta`, `theta`, `w` and `inverse` have one column for each class.
    """
    cdef Py_ssize_t k, i, j, m, c, n_classes = w.shape[1], last = w.shape[0] - 1
    cdef double x, limit
    work = np.empty((5, n_classes))
    cdef double[:, ::1] view = work
    cdef double* z = &view[0, 0]
    cdef double* q = &view[1, 0]
    cdef double* u = &view[2, 0]
    cdef double* p = &view[3, 0]
    cdef double* step = &view[4, 0]
    cdef Row row
    with nogil:
        for k in range(order.shape[0]):
            i = order[k]
            if a[i] <= 0.0:
                continue
            get_row(rows, i, &row)
            for c in range(n_classes):
                z[c] = 0.0
                # A row of zeros without an intercept has nothing to say.
                q[c] = 1e-300
            for m in range(row.size):
                j = m if row.indices == NULL else row.indices[m]
                limit = threshold if j < last else 0.0
                for c in range(n_classes):
                    x = row.values[m] * inverse[j, c]
                    z[c] += x * shrunk(theta[j, c], limit)
                    q[c] += x * row.values[m]
            implicit_softmax(z, q, &beta[i, 0], y[i], a[i], n_classes, u, p, step)
            for c in range(n_classes):
                step[c] = (u[c] - z[c]) / q[c]
                beta[i, c] += step[c]
            for m in range(row.size):
                j = m if row.indices == NULL else row.indices[m]
                for c in range(n_classes):
                    theta[j, c] += step[c] * row.values[m]
        for j in range(last + 1):
            limit = threshold if j < last else 0.0
            for c in range(n_classes):
                w[j, c] = shrunk(theta[j, c], limit) * inverse[j, c]


def add_squared_rows(
    Rows rows, const Py_ssize_t[::1] chosen, const double[::1] h, double[::1] total
):
    """Add ``sum_k h_k x_i^2`` over chosen rows to `total`, the last column left out."""
    cdef Py_ssize_t k, m, last = total.shape[0] - 1
    cdef Row row
    with nogil:
        for k in range(chosen.shape[0]):
            get_row(rows, chosen[k], &row)
            if row.indices == NULL:
                add_squares(h[k], row.values, last, &total[0])
                continue
            for m in range(row.size):
                if row.indices[m] < last:
                    total[row.indices[m]] += h[k] * row.values[m] * row.values[m]
