# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Losses with kinks that multipliers have made smooth."""

# For height and slope_beyond.
from sklearn_awsgd._kernels._kink_losses cimport height  # no-cython-lint
# For WIDE.
from sklearn_awsgd._kernels._rows cimport PREFETCH  # no-cython-lint

cdef extern from *:
    """
    /* Rows whose sums are kept apart, so that several are taken at once; added up in
       this order, whatever the registers. */
    enum {LANES = 8};

    static inline double add_lanes(const double* sums) {
        double total = 0.0;
        for (int l = 0; l < LANES; l++) total += sums[l];
        return total;
    }

    WIDE static void sum_smooth_losses(
        const double* low, const double* high, const double* mass, const double* a,
        const double* z, double width, Py_ssize_t n, double* __restrict c, double* sums
    ) {
        double smooth[LANES] = {0}, exact[LANES] = {0}, below[LANES] = {0};
        double above[LANES] = {0}, changes[LANES] = {0};
        for (Py_ssize_t start = 0; start < n; start += LANES) {
            int size = n - start < LANES ? (int) (n - start) : LANES;
            for (int l = 0; l < size; l++) {
                Py_ssize_t i = start + l;
                double s = z[i] + width * a[i], p = mass[i];
                double slope = slope_beyond(s, width, low[i], high[i]);
                double rounded = height(s - width * slope, low[i], high[i]);
                /* Ends at infinity belong to no slope. */
                double low_end = slope < 0.0 ? low[i] : 0.0;
                double high_end = slope > 0.0 ? high[i] : 0.0;
                c[i] = slope;
                rounded += width / 2 * (slope * slope - a[i] * a[i]);
                smooth[l] += p * rounded;
                exact[l] += p * height(z[i], low[i], high[i]);
                below[l] -= p * slope * low_end;
                above[l] -= p * slope * high_end;
                changes[l] += p * (slope - a[i]) * (slope - a[i]);
            }
        }
        sums[0] = add_lanes(smooth);
        sums[1] = add_lanes(exact);
        sums[2] = add_lanes(below);
        sums[3] = add_lanes(above);
        sums[4] = add_lanes(changes);
    }

    WIDE static void sum_smooth_losses_along(
        const double* low, const double* high, const double* mass, const double* a,
        const double* z, const double* moves, double length, double width, Py_ssize_t n,
        double* sums
    ) {
        double value[LANES] = {0}, along[LANES] = {0};
        for (Py_ssize_t start = 0; start < n; start += LANES) {
            int size = n - start < LANES ? (int) (n - start) : LANES;
            for (int l = 0; l < size; l++) {
                Py_ssize_t i = start + l;
                double s = z[i] + length * moves[i] + width * a[i], p = mass[i];
                double slope = slope_beyond(s, width, low[i], high[i]);
                double rounded = height(s - width * slope, low[i], high[i]);
                rounded += width / 2 * (slope * slope - a[i] * a[i]);
                value[l] += p * rounded;
                along[l] += p * slope * moves[i];
            }
        }
        sums[0] = add_lanes(value);
        sums[1] = add_lanes(along);
    }
    """
    void sum_smooth_losses(
        const double* low, const double* high, const double* mass, const double* a,
        const double* z, double width, Py_ssize_t n, double* c, double* sums
    ) noexcept nogil
    void sum_smooth_losses_along(
        const double* low, const double* high, const double* mass, const double* a,
        const double* z, const double* moves, double length, double width, Py_ssize_t n,
        double* sums
    ) noexcept nogil


def smooth_losses(
    ends, const double[::1] mass, const double[::1] a, const double[::1] z,
    double width, double[::1] c,
):
    """Sum losses that multipliers have made smooth.

    With a multiplier a for each row, ``g(z) = min_u f(u) + (z - u + width a)^2 / (2
    width) - width a^2 / 2`` is nowhere above f; its derivative c is a slope of f at u.

    Parameters
    ----------
    ends : tuple of two ndarray of shape (n,)
        `low` and `high` of each row.
    mass, a, z : ndarray of shape (n,)
        P, multiplier and prediction of each row.
    width : float
        Over how much kinks are rounded.
    c : ndarray of shape (n,)
        Set to the derivatives.

    Returns
    -------
    sums : tuple of float
        Of P g, P f, -P f*(c) of c <= 0 and of c > 0, P (c - a)^2.
    """
    cdef const double[::1] low = ends[0], high = ends[1]
    cdef Py_ssize_t n = z.shape[0]
    cdef double[5] sums = [0.0, 0.0, 0.0, 0.0, 0.0]
    if n > 0:
        with nogil:
            sum_smooth_losses(
                &low[0], &high[0], &mass[0], &a[0], &z[0], width, n, &c[0], sums
            )
    return sums[0], sums[1], sums[2], sums[3], sums[4]


def smooth_losses_along(
    ends, const double[::1] mass, const double[::1] a, const double[::1] z,
    const double[::1] moves, double length, double width,
):
    """Sum smooth losses at some length of a step, and their slope along it.

    Parameters
    ----------
    ends, mass, a, z, width
        Those of :func:`smooth_losses`.
    moves : ndarray of shape (n,)
        How far the step moves each prediction.
    length : float
        Share of the step.

    Returns
    -------
    value, slope : float
        Sums of P g and of P c times the move.
    """
    cdef const double[::1] low = ends[0], high = ends[1]
    cdef Py_ssize_t n = z.shape[0]
    cdef double[2] sums = [0.0, 0.0]
    if n > 0:
        with nogil:
            sum_smooth_losses_along(
                &low[0], &high[0], &mass[0], &a[0], &z[0], &moves[0], length, width, n,
                sums,
            )
    return sums[0], sums[1]
