# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The low-rank model of the entries of a matrix, and the step that moves it.

The prediction of entry (i, j) is ``z = z0 + g (b_i + c_j) + <u_i, v_j>`` and its share
of the objective is

    f = weight_ij (loss(y_ij, z) + alpha / 2 (||u_i||^2 + ||v_j||^2 + b_i^2 + c_j^2)).

A gradient step on a bilinear model diverges when the rate is large, so the step is the
exact proximal one: it minimises ``h f(u', v') + ||u' - u||^2 / 2 + ||v' - v||^2 / 2``
with h = rho / q. The ridge only shrinks u, v and h by 1 + h alpha beforehand. Then
u' = u - c v' and v' = v - c u' with one unknown number c = h dloss/dz(z'), so that

    u' = (u - c v) / (1 - c^2),    v' = (v - c u) / (1 - c^2),
    z'(c) = <u', v'> = ((1 + c^2) <u, v> - c N) / (1 - c^2)^2,    N = ||u||^2 + ||v||^2.

z' falls from +infinity to -infinity as c goes from -1 to 1 and the loss is convex, so
``c = h dloss/dz(z'(c))`` has one root, which lies between 0 and its value for c = 0.
"""

import numpy as np

cimport cython
from libc.math cimport copysign, fabs, pow

from sklearn_awsgd._kernels._losses cimport (
    Loss, cross_entropy, huber, poisson, squared_error
)
from sklearn_awsgd._kernels._rows cimport PREFETCH

from sklearn_awsgd._kernels._losses import CrossEntropy, Huber, Poisson, SquaredError

cdef enum:
    SQUARED_ERROR
    HUBER
    LOG_LOSS
    POISSON

# Losses that are written into the step, which a call would make longer.
KINDS = {
    SquaredError: SQUARED_ERROR, Huber: HUBER, CrossEntropy: LOG_LOSS, Poisson: POISSON
}

cdef enum:
    # Bisection alone would need 50; Newton's method takes 2 to 6.
    MAX_ROOT_STEPS = 60

# |c| stays below 1: a step lengthens u and v by a million at most.
cdef double LARGEST_C = 1.0 - 1e-6
# Relative accuracy of the root before its last step, which squares it.
cdef double ROOT_TOL = 1e-3


cdef extern from *:
    """
    /* Sums and products in eight lanes. */
    #if defined(__GNUC__)
    #define ALWAYS static inline __attribute__((always_inline))
    typedef double Eight __attribute__((vector_size(64), aligned(8), may_alias));
    typedef double Two __attribute__((vector_size(16), aligned(8), may_alias));
    #else
    #define ALWAYS static inline
    #endif
    /* out <- <u, v>, ||u||^2 + ||v||^2. */
    ALWAYS void products(const double* u, const double* v, Py_ssize_t size, double* out)
    {
        double z = 0, n = 0;
        Py_ssize_t k = 0;
    #if defined(__GNUC__)
        Eight zs = {0}, ns = {0};
        Two z2, n2;
        for (; k + 7 < size; k += 8) {
            Eight x = *(const Eight*)(u + k), y = *(const Eight*)(v + k);
            zs += x * y;
            ns += x * x + y * y;
        }
        z2 = ((Two*)&zs)[0] + ((Two*)&zs)[2] + (((Two*)&zs)[1] + ((Two*)&zs)[3]);
        n2 = ((Two*)&ns)[0] + ((Two*)&ns)[2] + (((Two*)&ns)[1] + ((Two*)&ns)[3]);
        z = z2[0] + z2[1];
        n = n2[0] + n2[1];
    #endif
        for (; k < size; k++) {
            z += u[k] * v[k];
            n += u[k] * u[k] + v[k] * v[k];
        }
        out[0] = z;
        out[1] = n;
    }
    /* u, v <- a u - b v, a v - b u. */
    ALWAYS void mix(double* u, double* v, Py_ssize_t size, double a, double b)
    {
        Py_ssize_t k = 0;
    #if defined(__GNUC__)
        for (; k + 7 < size; k += 8) {
            Eight x = *(Eight*)(u + k), y = *(Eight*)(v + k);
            *(Eight*)(u + k) = a * x - b * y;
            *(Eight*)(v + k) = a * y - b * x;
        }
    #endif
        for (; k < size; k++) {
            double x = u[k], y = v[k];
            u[k] = a * x - b * y;
            v[k] = a * y - b * x;
        }
    }
    WIDE static void inner_products(
        const double* u, const double* v, Py_ssize_t size, double* out
    ) {
        products(u, v, size, out);
    }
    WIDE static void turn(double* u, double* v, Py_ssize_t size, double a, double b) {
        mix(u, v, size, a, b);
    }
    /* The proximal step of the squared error where |c| is small; returns c, or 2 when
       it is not small and nothing was done but to set `out`.

       `offset` is z - y without <u, v>. With s = h / (1 + h (N + 2 g^2)) the gap is, up
       to a factor and terms of the order c^5, c - c0 - a c^2 - b c^3 - 5 a c^4 / 3. Its
       root is a power series in c0; what is left out is less than 1e-4 of c. */
    WIDE static double short_step(
        double* u, double* v, Py_ssize_t size, double offset, double h, double shrink,
        double gain2, double* out
    ) {
        double shrink2 = shrink * shrink, product, norm2, s, c0, c, a, b, a2, stretch;
        products(u, v, size, out);
        product = shrink2 * out[0];
        norm2 = shrink2 * out[1];
        s = h / (1.0 + h * (norm2 + 2.0 * gain2));
        c0 = s * (offset + product);
        /* Also where it is not a number. */
        if (!(c0 < 0.05 && c0 > -0.05))
            return 2.0;
        a = 3.0 * product * s;
        b = -2.0 * norm2 * s;
        a2 = a * a;
        c = c0 * c0;
        c = c0 + c * (
            (a + c0 * (2.0 * a2 + b)) + c * (5.0 * a2 * a + a * (5.0 * b + 5.0 / 3.0))
        );
        /* 1 / (1 - c^2), but for c^8. */
        a2 = c * c;
        stretch = shrink * (1.0 + a2) * (1.0 + a2 * a2);
        mix(u, v, size, stretch, stretch * c);
        return c;
    }
    """
    void inner_products(
        const double* u, const double* v, Py_ssize_t size, double* out
    ) noexcept nogil
    void turn(
        double* u, double* v, Py_ssize_t size, double a, double b
    ) noexcept nogil
    double short_step(
        double* u, double* v, Py_ssize_t size, double offset, double h, double shrink,
        double gain2, double* out
    ) noexcept nogil


cdef inline double evaluate(
    int loss, double epsilon, double y, double z, double* first, double* second
) noexcept nogil:
    """Return the loss and set its first and second derivative in z."""
    second[0] = 1.0
    if loss == SQUARED_ERROR:
        return squared_error(y, z, first)
    if loss == HUBER:
        second[0] = fabs(z - y) <= epsilon
        return huber(epsilon, y, z, first)
    if loss == LOG_LOSS:
        return cross_entropy(y, z, first, second)
    return poisson(y, z, first, second)


cdef inline double proximal_root(
    int loss, double epsilon, double y, double h, double product, double norm2,
    double rest, double gain2,
) noexcept nogil:
    """Return c with ``c = h dloss/dz(z'(c))``.

    Newton's method inside a bracket that shrinks at each evaluation. `product` is
    <u, v>, `norm2` is N, `rest` the part of z without <u, v> and `gain2` is g^2: the
    biases move by -g c each.
    """
    cdef double low = 0.0, high, c = 0.0, trial, gap, slope, inverse
    cdef double c2, first, second, sign, last = 1.0
    cdef int _step
    evaluate(loss, epsilon, y, rest + product, &first, &second)
    if first == 0.0:
        return 0.0
    # c has the sign of the derivative; its size is what is searched.
    sign = copysign(1.0, first)
    high = min(h * fabs(first), LARGEST_C)
    c = min(h * fabs(first) / (1.0 + h * second * (norm2 + 2.0 * gain2)), high)
    for _step in range(MAX_ROOT_STEPS):
        c2 = c * c
        inverse = 1.0 / (1.0 - c2)
        evaluate(
            loss, epsilon, y,
            rest - 2.0 * sign * c * gain2
            + ((1.0 + c2) * product - sign * c * norm2) * inverse * inverse,
            &first, &second,
        )
        gap = c - sign * h * first
        if gap > 0.0:
            high = c
        else:
            low = c
        slope = 1.0 + h * second * (
            2.0 * gain2 + inverse * inverse * inverse * (
                norm2 * (1.0 + 3.0 * c2) - sign * product * c * (6.0 + 2.0 * c2)
            )
        )
        trial = c - gap / slope
        if gap > c or not low <= trial <= high or fabs(trial - c) > 0.5 * last:
            # Bisection where Newton's steps leave the bracket or do not get shorter,
            # and beyond the minimum of the loss, where they can be far too short.
            trial = 0.5 * (low + high)
        elif fabs(trial - c) <= ROOT_TOL * trial * (1.0 - trial):
            return sign * trial
        last = fabs(trial - c)
        c = trial
    return sign * c


@cython.final
cdef class FactorizationProblem(Problem):
    """Low-rank model of the entries of a matrix.

    Parameters
    ----------
    stored : StoredValues
        y of the stored entries, float32 or float64, and their weights. A point whose
        entry is negative has y = 0.
    state : dict of ndarray
        `rows` of shape (n_rows, n_components), `columns` of shape (n_columns,
        n_components), `row_bias`, `column_bias` and `clock` (number of steps) of shape
        (1,); changed in place.
    loss : Loss
        One of `KINDS`.
    alpha : float
        Strength of the ridge.
    biases : Biases
        z0 and g.
    rate : EntryRate
        The rate of step t, and whether steps are proximal; otherwise they go along the
        gradient, as in the paper, and may diverge.
    """

    def __init__(self, stored, state, Loss loss, double alpha, biases, rate):
        self.settings = stored, loss, alpha, biases, rate
        self.narrow = stored.values.dtype == np.float32
        if self.narrow:
            self.values32 = stored.values
        else:
            self.values64 = stored.values
        self.weights = stored.weights
        self.weighted = stored.weights is not None
        self.unstored_weight = stored.unstored_weight
        self.state = state
        self.rows = state["rows"]
        self.columns = state["columns"]
        self.n_components = self.rows.shape[1]
        self.row_bias = state["row_bias"]
        self.column_bias = state["column_bias"]
        self.clock = state["clock"]
        self.loss = KINDS[type(loss)]
        if self.loss == HUBER:
            self.epsilon = loss.epsilon
        self.alpha = alpha
        self.baseline = biases.baseline
        self.gain = biases.gain
        self.eta0 = rate.eta0
        self.offset = rate.offset
        self.power = rate.power
        self.proximal = rate.proximal

    def share(self, clocks, order=None):
        """Return problems of the same factors, each with a clock of its own.

        With `order` their stored entries are in another order.
        """
        stored, *settings = self.settings
        if order is not None:
            stored = stored.reordered(order)
        return [
            FactorizationProblem(stored, self.state | {"clock": clock}, *settings)
            for clock in clocks
        ]

    cdef void step(self, Point* x, double weight) noexcept nogil:
        cdef double* u = &self.rows[x.i, 0]
        cdef double* v = &self.columns[x.j, 0]
        cdef double y = 0.0, entry_weight = self.unstored_weight, rate = self.eta0
        cdef double bias = 0.0, bias2 = 0.0, first = 0.0, second = 0.0
        cdef double c = 2.0, product, norm2, h, shrink, stretch
        cdef double sums[2]
        cdef bint short_way = self.proximal and self.loss == SQUARED_ERROR
        if x.entry >= 0:
            y = self.values32[x.entry] if self.narrow else self.values64[x.entry]
            entry_weight = self.weights[x.entry] if self.weighted else 1.0
        if self.power == 1.0:
            rate *= self.offset / (self.offset + self.clock[0])
        elif self.power != 0.0:
            rate /= pow(1.0 + self.clock[0] / self.offset, self.power)
        self.clock[0] += 1.0
        weight *= entry_weight
        h = rate * weight
        if self.gain > 0.0:
            bias = self.gain * (self.row_bias[x.i] + self.column_bias[x.j])
            bias2 = self.row_bias[x.i] ** 2 + self.column_bias[x.j] ** 2
        shrink = 1.0 / (1.0 + h * self.alpha) if self.proximal else 1.0 - h * self.alpha
        if short_way:
            c = short_step(
                u, v, self.n_components, self.baseline + shrink * bias - y, h * shrink,
                shrink, self.gain * self.gain, sums,
            )
        else:
            inner_products(u, v, self.n_components, sums)
        product, norm2 = sums[0], sums[1]
        x.loss = entry_weight * (
            evaluate(
                self.loss, self.epsilon, y, self.baseline + bias + product,
                &first, &second,
            ) + 0.5 * self.alpha * (norm2 + bias2)
        )
        # ||d||^2 of the loss and the ridge together; the middle term is their product.
        x.norm2 = weight * weight * (
            first * first * (norm2 + 2.0 * self.gain * self.gain)
            + self.alpha * first * (4.0 * product + 2.0 * bias)
            + self.alpha * self.alpha * (norm2 + bias2)
        )
        if not self.proximal:
            c = h * first
            turn(u, v, self.n_components, shrink, c)
        elif c == 2.0:
            c = proximal_root(
                self.loss, self.epsilon, y, h * shrink, shrink * shrink * product,
                shrink * shrink * norm2, self.baseline + shrink * bias,
                self.gain * self.gain,
            )
            stretch = shrink / (1.0 - c * c)
            turn(u, v, self.n_components, stretch, stretch * c)
        if self.gain > 0.0:
            c *= self.gain
            self.row_bias[x.i] = shrink * self.row_bias[x.i] - c
            self.column_bias[x.j] = shrink * self.column_bias[x.j] - c

    cdef void prefetch(self, const Point* x) noexcept nogil:
        cdef Py_ssize_t k
        cdef const char* u = <const char*> &self.rows[x.i, 0]
        cdef const char* v = <const char*> &self.columns[x.j, 0]
        for k in range(0, self.n_components * 8, 64):
            PREFETCH(u + k)
            PREFETCH(v + k)
        if x.entry >= 0:
            if self.narrow:
                PREFETCH(&self.values32[x.entry])
            else:
                PREFETCH(&self.values64[x.entry])
