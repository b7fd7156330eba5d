# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Losses f(y, z) of a prediction z; classification codes y as -1 and +1."""

import numpy as np

from libc.math cimport INFINITY, copysign, exp, fabs, log

# For exp_of_minus.
from sklearn_awsgd._kernels._exponential cimport exp_of_minus  # no-cython-lint
# For WIDE.
from sklearn_awsgd._kernels._rows cimport PREFETCH  # no-cython-lint

cdef extern from *:
    """
    enum {N_LOG = 16};
    static const double reciprocals_of_odds[N_LOG] = {
        1.0 / 31, 1.0 / 29, 1.0 / 27, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17,
        1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0
    };

    /* log(1 + exp(-y z)) with its first two derivatives, without a branch or a call, so
       that several rows are computed at once. With m = y z and e = exp(-|m|), the loss
       is log(1 + e) + max(-m, 0). The series is that of Taylor, to 1e-16. */
    WIDE static void log_losses(
        const double* __restrict y, const double* __restrict z, Py_ssize_t n,
        double* __restrict losses, double* __restrict derivatives,
        double* __restrict curvatures
    ) {
        Py_ssize_t k;
        int j;
        for (k = 0; k < n; k++) {
            double m = y[k] * z[k], size = fabs(m), e, s, s2, p, series;
            double below, top;
            e = exp_of_minus(size);
            /* log(1 + e) = 2 artanh(s), |s| <= 1/3 */
            s = e / (2.0 + e);
            s2 = s * s;
            series = reciprocals_of_odds[0];
            for (j = 1; j < N_LOG; j++) series = series * s2 + reciprocals_of_odds[j];
            below = -m;
            below = below > 0.0 ? below : 0.0;
            losses[k] = 2.0 * s * series + below;
            p = 1.0 / (1.0 + e);
            curvatures[k] = e * p * p;
            top = m > 0.0 ? e : 1.0;
            derivatives[k] = -y[k] * (top * p);
        }
    }
    """
    void log_losses(
        const double* y, const double* z, Py_ssize_t n, double* losses,
        double* derivatives, double* curvatures
    ) noexcept nogil

LARGEST_Z = float(HIGHEST_Z)


cdef class Loss:
    """A loss and its derivatives in z."""

    def __cinit__(self, *args):
        self.smoothness = INFINITY

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        derivative[0] = 0.0
        return 0.0

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        return 0.0

    cdef void flat(self, double y, double* low, double* high) noexcept nogil:
        low[0] = -INFINITY
        high[0] = INFINITY

    cdef void evaluate_many(
        self, const double* y, const double* z, Py_ssize_t n, double* losses,
        double* derivatives, double* curvatures
    ) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(n):
            losses[k] = self.evaluate(y[k], z[k], &derivatives[k])
            curvatures[k] = self.curvature(y[k], z[k], derivatives[k])

    def __call__(self, const double[::1] y, const double[::1] z):
        """Return the losses and derivatives of arrays of targets and predictions."""
        cdef Py_ssize_t k, n = y.shape[0]
        losses, derivatives = np.empty(n), np.empty(n)
        cdef double[::1] loss_view = losses, derivative_view = derivatives
        with nogil:
            for k in range(n):
                loss_view[k] = self.evaluate(y[k], z[k], &derivative_view[k])
        return losses, derivatives

    def with_curvatures(self, const double[::1] y, const double[::1] z):
        """Return losses, derivatives and second derivatives, several at once."""
        cdef Py_ssize_t n = y.shape[0]
        losses, derivatives, curvatures = np.empty(n), np.empty(n), np.empty(n)
        cdef double[::1] values = losses, slopes = derivatives, bends = curvatures
        if n > 0:
            with nogil:
                self.evaluate_many(&y[0], &z[0], n, &values[0], &slopes[0], &bends[0])
        return losses, derivatives, curvatures

    def rounded(self, double width):
        """Return a smooth loss, above this one by at most ``2 log(2) width``."""
        return self

    def flat_ends(self, const double[::1] y):
        """Return where losses with kinks begin to rise, below and above; see `flat`."""
        cdef Py_ssize_t k, n = y.shape[0]
        low, high = np.empty(n), np.empty(n)
        cdef double[::1] low_view = low, high_view = high
        with nogil:
            for k in range(n):
                self.flat(y[k], &low_view[k], &high_view[k])
        return low, high

    def second_derivatives(self, const double[::1] y, const double[::1] z):
        """Return the second derivatives at arrays of targets and predictions."""
        cdef Py_ssize_t k, n = y.shape[0]
        cdef double derivative = 0.0
        result = np.empty(n)
        cdef double[::1] view = result
        with nogil:
            for k in range(n):
                self.evaluate(y[k], z[k], &derivative)
                view[k] = self.curvature(y[k], z[k], derivative)
        return result


cdef class LogLoss(Loss):
    """log(1 + exp(-y z)), without overflow at either end."""

    def __init__(self):
        self.smoothness = 0.25

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double margin = y * z
        cdef double e
        # log is quicker than log1p; the loss is off by 1e-16, the derivative exact.
        if margin > 0.0:
            e = exp(-margin)
            derivative[0] = -y * e / (1.0 + e)
            return log(1.0 + e)
        e = exp(margin)
        derivative[0] = -y / (1.0 + e)
        return log(1.0 + e) - margin

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        # With p = |derivative|, p (1 - p).
        return fabs(derivative) * (1.0 - fabs(derivative))

    cdef void evaluate_many(
        self, const double* y, const double* z, Py_ssize_t n, double* losses,
        double* derivatives, double* curvatures
    ) noexcept nogil:
        log_losses(y, z, n, losses, derivatives, curvatures)


cdef inline double rounded_ramp(
    double excess, double width, double* derivative
) noexcept nogil:
    """max(0, excess), with its kink rounded: width log(1 + exp(excess / width))."""
    cdef double u = excess / width, e = exp(-fabs(u))
    if u > 0.0:
        derivative[0] = 1.0 / (1.0 + e)
        return excess + width * log(1.0 + e)
    derivative[0] = e / (1.0 + e)
    return width * log(1.0 + e)


cdef class RoundedHinge(Loss):
    """The hinge with its kink rounded over `width`."""

    cdef double threshold, width

    def __init__(self, double threshold, double width):
        self.threshold = threshold
        self.width = width
        self.smoothness = 0.25 / width

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double value = rounded_ramp(self.threshold - y * z, self.width, derivative)
        derivative[0] *= -y
        return value

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        return fabs(derivative) * (1.0 - fabs(derivative)) / self.width


cdef class RoundedEpsilonInsensitive(Loss):
    """The epsilon-insensitive loss with its kinks rounded over `width`."""

    cdef double epsilon, width

    def __init__(self, double epsilon, double width):
        self.epsilon = epsilon
        self.width = width
        self.smoothness = 0.5 / width

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double above = 0.0, below = 0.0, value
        value = rounded_ramp(z - y - self.epsilon, self.width, &above)
        value += rounded_ramp(y - z - self.epsilon, self.width, &below)
        derivative[0] = above - below
        return value

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        cdef double above = 0.0, below = 0.0
        rounded_ramp(z - y - self.epsilon, self.width, &above)
        rounded_ramp(y - z - self.epsilon, self.width, &below)
        return (above * (1.0 - above) + below * (1.0 - below)) / self.width


cdef class Hinge(Loss):
    """max(0, threshold - y z): 1 for the hinge, 0 for the perceptron."""

    cdef double threshold

    def __init__(self, double threshold=1.0):
        self.threshold = threshold

    def rounded(self, double width):
        return RoundedHinge(self.threshold, width)

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double gap = self.threshold - y * z
        if gap >= 0.0:
            derivative[0] = -y
            return gap
        derivative[0] = 0.0
        return 0.0

    cdef void flat(self, double y, double* low, double* high) noexcept nogil:
        low[0] = self.threshold if y > 0.0 else -INFINITY
        high[0] = INFINITY if y > 0.0 else -self.threshold


cdef class SquaredHinge(Loss):
    """max(0, 1 - y z)^2."""

    def __init__(self):
        self.smoothness = 2.0

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double gap = 1.0 - y * z
        if gap > 0.0:
            derivative[0] = -2.0 * y * gap
            return gap * gap
        derivative[0] = 0.0
        return 0.0

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        return 2.0 if y * z < 1.0 else 0.0


cdef class ModifiedHuber(Loss):
    """The squared hinge, continued as a line below y z = -1."""

    def __init__(self):
        self.smoothness = 2.0

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double margin = y * z
        if margin >= 1.0:
            derivative[0] = 0.0
            return 0.0
        if margin >= -1.0:
            derivative[0] = -2.0 * y * (1.0 - margin)
            return (1.0 - margin) * (1.0 - margin)
        derivative[0] = -4.0 * y
        return -4.0 * margin

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        return 2.0 if -1.0 <= y * z < 1.0 else 0.0


cdef class SquaredError(Loss):
    """(y - z)^2 / 2."""

    def __init__(self):
        self.smoothness = 1.0

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        return squared_error(y, z, derivative)

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        return 1.0

    cdef void evaluate_many(
        self, const double* y, const double* z, Py_ssize_t n, double* losses,
        double* derivatives, double* curvatures
    ) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(n):
            losses[k] = squared_error(y[k], z[k], &derivatives[k])
            curvatures[k] = 1.0


cdef class Huber(Loss):
    """The squared error, continued as a line beyond |y - z| = epsilon."""

    cdef readonly double epsilon

    def __init__(self, double epsilon):
        self.epsilon = epsilon
        self.smoothness = 1.0

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        return huber(self.epsilon, y, z, derivative)

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        return 1.0 if fabs(z - y) <= self.epsilon else 0.0


cdef class CrossEntropy(Loss):
    """log(1 + exp(z)) - y z, with y from 0 to 1."""

    def __init__(self):
        self.smoothness = 0.25

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double second
        return cross_entropy(y, z, derivative, &second)

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        cdef double first, second
        cross_entropy(y, z, &first, &second)
        return second


cdef class Poisson(Loss):
    """exp(z) - y z, with y >= 0."""

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double second
        return poisson(y, z, derivative, &second)

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        cdef double first, second
        poisson(y, z, &first, &second)
        return second


cdef class EpsilonInsensitive(Loss):
    """max(0, |y - z| - epsilon)."""

    cdef double epsilon

    def __init__(self, double epsilon):
        self.epsilon = epsilon

    def rounded(self, double width):
        return RoundedEpsilonInsensitive(self.epsilon, width)

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double excess = fabs(z - y) - self.epsilon
        if excess > 0.0:
            derivative[0] = copysign(1.0, z - y)
            return excess
        derivative[0] = 0.0
        return 0.0

    cdef void flat(self, double y, double* low, double* high) noexcept nogil:
        low[0] = y - self.epsilon
        high[0] = y + self.epsilon


cdef class SquaredEpsilonInsensitive(Loss):
    """max(0, |y - z| - epsilon)^2."""

    cdef double epsilon

    def __init__(self, double epsilon):
        self.epsilon = epsilon
        self.smoothness = 2.0

    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil:
        cdef double excess = fabs(z - y) - self.epsilon
        if excess > 0.0:
            derivative[0] = copysign(2.0 * excess, z - y)
            return excess * excess
        derivative[0] = 0.0
        return 0.0

    cdef double curvature(self, double y, double z, double derivative) noexcept nogil:
        return 2.0 if fabs(z - y) > self.epsilon else 0.0
