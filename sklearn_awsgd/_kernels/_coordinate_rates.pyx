# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Linear steps with a step size for each coordinate: AdaGrad, RMSProp, AdaDelta."""

import numpy as np

cimport cython
from libc.math cimport copysign, expm1, fabs, log1p, sqrt

from sklearn_awsgd._kernels._rows cimport DENSE, dot
from sklearn_awsgd._kernels._steps cimport soft

from sklearn_awsgd._kernels._steps import SCHEDULES, ScalarRate

cdef extern from *:
    """
    /* Keeps AdaGrad's division defined for a coordinate that has seen no gradient. */
    #define TINY 1e-300

    /* AdaGrad for dense rows: the proximal step with rho = eta0 / root, multiplied
       through by root. One square root and one division for each coordinate. */
    WIDE static void adagrad_step(
        const double* __restrict x, double* __restrict w, double* __restrict squares,
        Py_ssize_t size, double g, double eta0, double l1, double l2
    ) {
        Py_ssize_t j;
        for (j = 0; j < size; j++) {
            double gradient = g * x[j], root, u, cut;
            squares[j] += gradient * gradient;
            root = sqrt(squares[j] + TINY);
            u = w[j] * root - eta0 * gradient;
            cut = u > l1 ? l1 : u;
            cut = cut < -l1 ? -l1 : cut;
            w[j] = (u - cut) / (root + l2);
        }
    }

    WIDE static void adagrad_rates(
        const double* __restrict squares, double* __restrict rates, Py_ssize_t size,
        double eta0
    ) {
        Py_ssize_t j;
        for (j = 0; j < size; j++) rates[j] = eta0 / sqrt(squares[j] + TINY);
    }
    """
    void adagrad_step(
        const double* x, double* w, double* squares, Py_ssize_t size, double g,
        double eta0, double l1, double l2
    ) noexcept nogil
    void adagrad_rates(
        const double* squares, double* rates, Py_ssize_t size, double eta0
    ) noexcept nogil


# Keeps the first steps of RMSProp and AdaDelta finite, and AdaDelta's above zero.
cdef double EPSILON = 1e-6

cdef enum:
    ADAGRAD
    RMSPROP
    ADADELTA

RULES = {"adagrad": ADAGRAD, "rmsprop": RMSPROP, "adadelta": ADADELTA}


cdef inline double discounted_steps(double a, double k) noexcept nogil:
    """(1 - (1 + a)^-k) / a, by its series where k a is small: no transcendental."""
    cdef double z = (k + 1.0) * a
    # k - k(k+1)/2! a + k(k+1)(k+2)/3! a^2 - ... to 1e-13, without a division.
    if z < 0.03:
        return k * (1.0 - z * 0.5 * (1.0 - (z + a) * (1.0 / 3.0) * (
            1.0 - (z + 2.0 * a) * 0.25 * (1.0 - (z + 3.0 * a) * 0.2 * (
                1.0 - (z + 4.0 * a) * (1.0 / 6.0))))))
    return -expm1(-k * log1p(a)) / a


cdef class CoordinateRate(Steps):
    """A step size rho_j for each coordinate, from the gradients it has seen.

    With g the gradient of the coordinate:
    adagrad, ``S += g^2``, ``rho = eta0 / sqrt(S)``;
    rmsprop, ``S += (1 - decay) (g^2 - S)``, ``rho = eta0 / (sqrt(S) + EPSILON)``;
    adadelta, S as rmsprop, ``rho = eta0 sqrt(D + EPSILON) / sqrt(S + EPSILON)``,
    then ``D += (1 - decay) ((rho g)^2 - D)``.
    `state` holds S in `squares` and D in `moves`, the intercept's last.

    A coordinate's rate is zero until it has had a gradient, so that the penalty does
    not undo a coefficient that training starts from, and moves only when the
    coordinate has one: dense and sparse rows of the same numbers give the same steps.
    Between two visits of a coordinate of a sparse problem its rate is constant and the
    penalty has the closed form of `catch_up`.
    """

    cdef set_up(self, Rows rows, state, rate):
        self.rule = RULES[rate.name]
        self.decay = rate.decay
        self.squares = state["squares"]
        if self.rule == ADADELTA:
            self.moves = state["moves"]
        self.lazy = rows.index_kind != DENSE
        # As in `ScalarRate`.
        self.eager = self.lazy and self.averaging and self.alpha_l1 > 0.0
        self.look_for_waiting()
        if self.lazy:
            self.allocate(rows)

    cdef allocate(self, Rows rows):
        """Make room for what is known of coordinates between two visits."""
        cdef Py_ssize_t j
        self.seen = np.zeros(self.coef.shape[0], dtype=np.int64)
        self.rates = np.empty(self.coef.shape[0])
        for j in range(self.coef.shape[0]):
            self.rates[j] = self.rate(j)

    @cython.final
    cdef double rate(self, Py_ssize_t j) noexcept nogil:
        """rho_j from what coordinate j has seen."""
        if self.squares[j] == 0.0:
            return 0.0
        if self.rule == ADAGRAD:
            return self.eta0 / sqrt(self.squares[j])
        if self.rule == RMSPROP:
            return self.eta0 / (sqrt(self.squares[j]) + EPSILON)
        return (
            self.eta0 * sqrt(self.moves[j] + EPSILON) / sqrt(self.squares[j] + EPSILON)
        )

    @cython.final
    cdef double step_rate(self, Py_ssize_t j, double g) noexcept nogil:
        """Take in the gradient g of coordinate j and return rho_j for its step."""
        cdef double rho
        if self.rule == ADAGRAD:
            self.squares[j] += g * g
            return self.rate(j)
        self.squares[j] += (1.0 - self.decay) * (g * g - self.squares[j])
        rho = self.rate(j)
        if self.rule == ADADELTA:
            self.moves[j] += (1.0 - self.decay) * (rho * rho * g * g - self.moves[j])
        return rho

    @cython.final
    cdef void begin_step(self, double g) noexcept nogil:
        """Count a step, and move the intercept."""
        self.now += 1
        if self.fit_intercept and g != 0.0:
            self.intercept[0] -= self.step_rate(self.coef.shape[0], g) * g

    cdef double predict(self, const Row* row) noexcept nogil:
        cdef Py_ssize_t k
        if self.lazy:
            for k in range(row.size):
                self.catch_up(row.indices[k])
        return dot(row, &self.coef[0])

    cdef void move(self, const Row* row, double g) noexcept nogil:
        self.begin_step(g)
        if self.lazy:
            self.move_sparse(row, g)
        else:
            self.move_dense(row, g)

    @cython.final
    cdef void move_dense(self, const Row* row, double g) noexcept nogil:
        cdef Py_ssize_t j, size = row.size
        cdef const double* x = row.values
        cdef double* w = &self.coef[0]
        cdef double gradient, u, rho
        if self.rule == ADAGRAD and not self.waiting:
            adagrad_step(
                x, w, &self.squares[0], size, g, self.eta0, self.eta0 * self.alpha_l1,
                self.eta0 * self.alpha_l2,
            )
        else:
            for j in range(size):
                gradient = g * x[j]
                rho = self.rate(j)
                if gradient != 0.0:
                    rho = self.step_rate(j, gradient)
                u = soft(w[j] - rho * gradient, rho * self.alpha_l1)
                w[j] = u / (1.0 + rho * self.alpha_l2)
        if self.summing:
            for j in range(size):
                self.coef_sum[j] += w[j]

    @cython.final
    cdef void move_sparse(self, const Row* row, double g) noexcept nogil:
        cdef Py_ssize_t k, j
        cdef double gradient, rho
        for k in range(row.size):
            j = row.indices[k]
            gradient = g * row.values[k]
            if gradient != 0.0:
                rho = self.step_rate(j, gradient)
                self.coef[j] = soft(
                    self.coef[j] - rho * gradient, rho * self.alpha_l1
                ) / (1.0 + rho * self.alpha_l2)
                self.rates[j] = rho if self.rule != ADADELTA else self.rate(j)
                self.seen[j] = self.now
                if self.summing:
                    self.coef_sum[j] += self.coef[j]
        if self.eager:
            for j in range(self.coef.shape[0]):
                self.catch_up(j)

    @cython.final
    cdef void catch_up(self, Py_ssize_t j) noexcept nogil:
        """Apply the penalty of the steps since coordinate j was last up to date.

        k proximal steps with a = rho alpha_l2 and b = rho alpha_l1 take |w| to
        ``(1 + a)^-k |w| - b (1 - (1 + a)^-k) / a``, or to zero.
        """
        cdef double k = <double> (self.now - self.seen[j])
        cdef double w = self.coef[j], rho, a, b, shrunk, size, n_steps
        self.seen[j] = self.now
        if k == 0.0 or w == 0.0:
            return
        rho = self.rates[j]
        a = rho * self.alpha_l2
        b = rho * self.alpha_l1
        if a > 0.0:
            # (1 - (1 + a)^-k) / a and from it (1 + a)^-k.
            n_steps = discounted_steps(a, k)
            shrunk = 1.0 - a * n_steps
        else:
            n_steps = k
            shrunk = 1.0
        size = shrunk * fabs(w) - b * n_steps
        self.coef[j] = copysign(size, w) if size > 0.0 else 0.0
        if self.summing:
            # The sum of the k values on the way; with an l1 part k is one (`eager`).
            self.coef_sum[j] += self.coef[j] if b > 0.0 else w * n_steps

    cdef void begin_average(self) noexcept nogil:
        self.catch_up_all()
        self.summing = True

    cdef void catch_up_all(self) noexcept nogil:
        cdef Py_ssize_t j
        if self.lazy:
            for j in range(self.coef.shape[0]):
                self.catch_up(j)

    @cython.final
    cdef void look_for_waiting(self) noexcept nogil:
        """Find out whether a coefficient to start from still waits for a gradient."""
        cdef Py_ssize_t j
        self.waiting = False
        for j in range(self.coef.shape[0]):
            if self.squares[j] == 0.0 and self.coef[j] != 0.0:
                self.waiting = True

    cdef void flush(self) noexcept nogil:
        self.catch_up_all()
        self.look_for_waiting()
        if self.summing:
            self.fold_average()


@cython.final
cdef class PackedAdaGrad(CoordinateRate):
    """AdaGrad on sparse rows with an l2 penalty or none: what "auto" begins with.

    All that is known of a coordinate lies in one place, (w, S, rho, the step it is up
    to date with), so that a nonzero waits for memory once; and the coordinates of a row
    are gathered, so that the arithmetic is that of dense rows. It is for means of no
    steps, and for coefficients none of which waits for its first gradient.
    """

    cdef allocate(self, Rows rows):
        self.packed = np.empty((self.coef.shape[0], 4))
        self.row_coef, self.row_squares, self.row_rates = np.empty(
            (3, max(rows.longest, 1))
        )

    cdef double predict(self, const Row* row) noexcept nogil:
        cdef Py_ssize_t k
        cdef double a, now = <double> self.now, l2 = self.alpha_l2
        cdef double* w = &self.row_coef[0]
        cdef double* squares = &self.row_squares[0]
        cdef const double* coordinate
        cdef Row gathered
        if not self.is_packed:
            self.pack()
        for k in range(row.size):
            coordinate = &self.packed[row.indices[k], 0]
            a = coordinate[2] * l2
            w[k] = coordinate[0] * (1.0 - a * discounted_steps(a, now - coordinate[3]))
            squares[k] = coordinate[1]
        gathered.values = row.values
        gathered.indices = NULL
        gathered.size = row.size
        return dot(&gathered, w)

    cdef void move(self, const Row* row, double g) noexcept nogil:
        """Step the coordinates that `predict` has gathered."""
        cdef Py_ssize_t k
        cdef double now
        cdef double* w = &self.row_coef[0]
        cdef double* squares = &self.row_squares[0]
        cdef double* rates = &self.row_rates[0]
        cdef double* coordinate
        self.begin_step(g)
        if g == 0.0:
            return
        now = <double> self.now
        adagrad_step(
            row.values, w, squares, row.size, g, self.eta0, 0.0,
            self.eta0 * self.alpha_l2,
        )
        adagrad_rates(squares, rates, row.size, self.eta0)
        for k in range(row.size):
            coordinate = &self.packed[row.indices[k], 0]
            coordinate[0] = w[k]
            coordinate[1] = squares[k]
            coordinate[2] = rates[k]
            coordinate[3] = now

    cdef void pack(self) noexcept nogil:
        cdef Py_ssize_t j
        for j in range(self.coef.shape[0]):
            self.packed[j, 0] = self.coef[j]
            self.packed[j, 1] = self.squares[j]
            self.packed[j, 2] = self.rate(j)
            self.packed[j, 3] = <double> self.now
        self.is_packed = True

    cdef void catch_up_all(self) noexcept nogil:
        cdef Py_ssize_t j
        cdef double a, now = <double> self.now
        if not self.is_packed:
            return
        for j in range(self.coef.shape[0]):
            a = self.packed[j, 2] * self.alpha_l2
            self.coef[j] = self.packed[j, 0] * (
                1.0 - a * discounted_steps(a, now - self.packed[j, 3])
            )
            self.squares[j] = self.packed[j, 1]
        self.is_packed = False


def make_steps(
    Rows rows, state, penalty, rate, bint fit_intercept=True, average_start=0
):
    """Return the steps of a rate; the parameters are those of `Steps`."""
    kind = ScalarRate if rate.name in SCHEDULES else CoordinateRate
    if rate.name == "adagrad" and rows.index_kind != DENSE:
        waiting = (state["squares"][:-1] == 0) & (state["coef"] != 0)
        if penalty.l1 == 0 and not average_start and not waiting.any():
            kind = PackedAdaGrad
    return kind(rows, state, penalty, rate, fit_intercept, average_start)
