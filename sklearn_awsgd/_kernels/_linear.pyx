# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The linear model: penalised losses of <x, w> + b, and the steps that move w and b.

F(w, b) = E_P[f(y, <x, w> + b)] + alpha_l2 / 2 ||w||^2 + alpha_l1 ||w||_1

The penalty is no part of what is sampled, so it is not weighted by 1/q. It enters each
step exactly, through its proximal operator,

    prox(u) = sign(u) max(|u| - rho alpha_l1, 0) / (1 + rho alpha_l2),

which gives exact zeros and cannot overshoot however large rho alpha is.
"""

import numpy as np

from libc.math cimport NAN, copysign, expm1, fabs, log1p, pow, sqrt

from sklearn_awsgd._kernels._rows cimport PREFETCH, axpy, dot, get_row, prefetch_row

cdef extern from *:
    """
    /* AdaGrad for dense rows: the proximal step with rho = eta0 / root, multiplied
       through by root. One square root and one division for each coordinate. */
    WIDE static void adagrad_step(
        const double* __restrict x, double* __restrict w, double* __restrict squares,
        Py_ssize_t size, double g, double eta0, double l1, double l2, double tiny
    ) {
        Py_ssize_t j;
        for (j = 0; j < size; j++) {
            double gradient = g * x[j], root, u, cut;
            squares[j] += gradient * gradient;
            root = sqrt(squares[j] + tiny);
            u = w[j] * root - eta0 * gradient;
            cut = u > l1 ? l1 : u;
            cut = cut < -l1 ? -l1 : cut;
            w[j] = (u - cut) / (root + l2);
        }
    }

    WIDE static void adagrad_rates(
        const double* __restrict squares, double* __restrict rates, Py_ssize_t size,
        double eta0, double tiny
    ) {
        Py_ssize_t j;
        for (j = 0; j < size; j++) rates[j] = eta0 / sqrt(squares[j] + tiny);
    }
    """
    void adagrad_step(
        const double* x, double* w, double* squares, Py_ssize_t size, double g,
        double eta0, double l1, double l2, double tiny
    ) noexcept nogil
    void adagrad_rates(
        const double* squares, double* rates, Py_ssize_t size, double eta0, double tiny
    ) noexcept nogil


# Keeps AdaGrad's division defined for a coordinate that has seen no gradient.
cdef double TINY = 1e-300
# Keeps the first steps of RMSProp and AdaDelta finite, and AdaDelta's above zero.
cdef double EPSILON = 1e-6
# The common scale of the coefficients is folded in before it loses digits.
cdef double SCALE_MIN = 1e-9

cdef enum:
    CONSTANT
    OPTIMAL
    INVSCALING

# "adaptive" is constant until the solver lowers eta0.
SCHEDULES = {
    "constant": CONSTANT,
    "adaptive": CONSTANT,
    "optimal": OPTIMAL,
    "invscaling": INVSCALING,
}

cdef enum:
    ADAGRAD
    RMSPROP
    ADADELTA

RULES = {"adagrad": ADAGRAD, "rmsprop": RMSPROP, "adadelta": ADADELTA}


cdef inline double soft(double u, double threshold) noexcept nogil:
    cdef double size = fabs(u) - threshold
    return copysign(size, u) if size > 0.0 else 0.0


cdef inline double discounted_steps(double a, double k) noexcept nogil:
    """(1 - (1 + a)^-k) / a, by its series where k a is small: no transcendental."""
    cdef double z = (k + 1.0) * a
    # k - k(k+1)/2! a + k(k+1)(k+2)/3! a^2 - ... to 1e-13, without a division.
    if z < 0.03:
        return k * (1.0 - z * 0.5 * (1.0 - (z + a) * (1.0 / 3.0) * (
            1.0 - (z + 2.0 * a) * 0.25 * (1.0 - (z + 3.0 * a) * 0.2 * (
                1.0 - (z + 4.0 * a) * (1.0 / 6.0))))))
    return -expm1(-k * log1p(a)) / a


cdef class LinearProblem(Problem):
    """What all linear steps share.

    Parameters
    ----------
    rows : Rows
        The rows of X; a view of its own for each problem.
    loss : Loss
        The loss f(y, z).
    y : ndarray of shape (n_samples,)
        Targets.
    norms2 : ndarray of shape (n_samples,)
        ``||x_i||^2``.
    state : dict of ndarray
        `coef` of shape (n_features,), `intercept` and `clock` (number of steps) of
        shape (1,), and what a subclass names; changed in place.
    alpha_l1, alpha_l2 : float
        Strengths of the penalties.
    fit_intercept : bool
        Whether the intercept moves.
    average_start : int
        Step from which on w enters the mean that `state` then holds in `average_coef`,
        `average_intercept` and `average_clock` (number of steps); 0 for no mean.
    """

    def __init__(
        self, Rows rows, Loss loss, const double[::1] y, const double[::1] norms2,
        state, double alpha_l1, double alpha_l2, bint fit_intercept,
        double average_start,
    ):
        self.rows = rows
        self.loss = loss
        self.y = y
        self.norms2 = norms2
        self.coef = state["coef"]
        self.intercept = state["intercept"]
        self.clock = state["clock"]
        self.alpha_l1 = alpha_l1
        self.alpha_l2 = alpha_l2
        self.loss_scale = 1.0
        self.fit_intercept = fit_intercept
        self.average_start = average_start
        self.averaging = average_start > 0.0
        if self.averaging:
            self.average_coef = state["average_coef"]
            self.average_intercept = state["average_intercept"]
            self.average_clock = state["average_clock"]
            self.coef_sum = np.zeros(self.coef.shape[0])

    cdef void step(self, Point* x, double weight) noexcept nogil:
        cdef Row row
        cdef double derivative = 0.0, g
        get_row(self.rows, x.i, &row)
        x.loss = self.loss.evaluate(self.y[x.i], self.score(&row), &derivative)
        x.loss *= self.loss_scale
        g = weight * self.loss_scale * derivative
        x.norm2 = g * g * (self.norms2[x.i] + self.fit_intercept)
        self.take(&row, g)

    cdef void take(self, const Row* row, double g) noexcept nogil:
        self.clock[0] += 1.0
        if self.averaging and not self.summing:
            if self.clock[0] >= self.average_start:
                self.begin_average()
        self.move(row, g)
        if self.summing:
            self.intercept_sum += self.intercept[0]
            self.n_summed += 1.0

    cdef void prefetch(self, const Point* x) noexcept nogil:
        PREFETCH(&self.y[x.i])
        PREFETCH(&self.norms2[x.i])
        prefetch_row(self.rows, x.i)

    cdef double score(self, const Row* row) noexcept nogil:
        return self.predict(row) + self.intercept[0]

    cdef double predict(self, const Row* row) noexcept nogil:
        return dot(row, &self.coef[0])

    cdef void move(self, const Row* row, double g) noexcept nogil:
        pass

    cdef void begin_average(self) noexcept nogil:
        self.summing = True

    cdef void fold_average(self) noexcept nogil:
        cdef Py_ssize_t j
        cdef double n_all = self.average_clock[0] + self.n_summed
        if self.n_summed == 0.0:
            return
        for j in range(self.coef.shape[0]):
            self.average_coef[j] += (
                self.coef_sum[j] - self.n_summed * self.average_coef[j]
            ) / n_all
            self.coef_sum[j] = 0.0
        self.average_intercept[0] += (
            self.intercept_sum - self.n_summed * self.average_intercept[0]
        ) / n_all
        self.average_clock[0] = n_all
        self.intercept_sum = 0.0
        self.n_summed = 0.0

    def first_norms2(self):
        """Return the squared gradient norm of every row at the current w.

        From w = 0, where the prediction is the intercept for all rows, without a pass.
        """
        cdef Py_ssize_t i
        cdef double derivative = 0.0, z = self.intercept[0], last = NAN
        cdef double scale2 = self.loss_scale * self.loss_scale
        cdef bint moved = np.any(self.coef)
        cdef Row row
        result = np.empty(self.y.shape[0])
        cdef double[::1] view = result
        with nogil:
            for i in range(self.y.shape[0]):
                if moved:
                    get_row(self.rows, i, &row)
                    z = dot(&row, &self.coef[0]) + self.intercept[0]
                if moved or self.y[i] != last:
                    # All rows of a class have the same derivative.
                    last = self.y[i]
                    self.loss.evaluate(last, z, &derivative)
                view[i] = scale2 * derivative * derivative * (
                    self.norms2[i] + self.fit_intercept
                )
        return result

    def penalty(self):
        """Return the penalty at the current w."""
        coef = np.asarray(self.coef)
        return (
            self.alpha_l2 / 2 * np.dot(coef, coef)
            + self.alpha_l1 * np.abs(coef).sum()
        )


cdef class ScalarRate(LinearProblem):
    """One step size rho_t for all coordinates.

    The coefficients are kept as ``w = scale * v``, so that the l2 shrinkage of all of
    them is one division. In units of v the soft threshold of a step is
    ``rho alpha_l1 / scale``; `threshold` is the sum of these, and a coordinate of a
    sparse problem catches up with it when it is next read.

    Parameters
    ----------
    schedule : {"constant", "adaptive", "optimal", "invscaling"}
        rho_t is `eta0`, ``1 / (alpha (t0 + t))`` or ``eta0 / t^power_t``.
    eta0, power_t, alpha, t0 : float
        Parameters of the schedule.
    sparse : bool
        Whether the rows are sparse.
    """

    def __init__(
        self, rows, loss, y, norms2, state, alpha_l1, alpha_l2, fit_intercept,
        average_start, str schedule, double eta0, double power_t, double alpha,
        double t0, bint sparse,
    ):
        super().__init__(
            rows, loss, y, norms2, state, alpha_l1, alpha_l2, fit_intercept,
            average_start,
        )
        self.schedule = SCHEDULES[schedule]
        self.eta0 = eta0
        self.power_t = power_t
        self.alpha = alpha
        self.optimal_init = t0
        self.scale = 1.0
        self.inverse_scale = 1.0
        # The mean of w with lazy thresholds has no closed form: then all coordinates
        # move at each step.
        self.lazy = sparse and alpha_l1 > 0.0 and not self.averaging
        self.eager = alpha_l1 > 0.0 and not self.lazy
        if self.lazy:
            self.thresholds = np.zeros(self.coef.shape[0])

    cdef double rate(self) noexcept nogil:
        if self.schedule == CONSTANT:
            return self.eta0
        if self.schedule == OPTIMAL:
            return 1.0 / (self.alpha * (self.optimal_init + self.clock[0] - 1.0))
        return self.eta0 / pow(self.clock[0], self.power_t)

    cdef double predict(self, const Row* row) noexcept nogil:
        cdef Py_ssize_t k
        if self.lazy:
            for k in range(row.size):
                self.catch_up(row.indices[k])
        return self.scale * dot(row, &self.coef[0])

    cdef void move(self, const Row* row, double g) noexcept nogil:
        cdef double rho = self.rate()
        cdef double growth = 1.0 + rho * self.alpha_l2
        cdef double a = -rho * g * self.inverse_scale
        cdef double cut = rho * self.alpha_l1 * self.inverse_scale
        cdef Py_ssize_t j
        axpy(a, row, &self.coef[0])
        if self.fit_intercept:
            self.intercept[0] -= rho * g
        if self.summing and not self.eager:
            # sum_t w_t = sum_t scale_t v_t
            #           = scale_sum_T v_T - sum_t (v_t - v_{t-1}) scale_sum_{t-1}:
            # `coef_sum` gathers the second sum, which is as sparse as the rows.
            axpy(a * self.scale_sum, row, &self.coef_sum[0])
        self.threshold += cut
        self.scale /= growth
        self.inverse_scale *= growth
        if self.eager:
            for j in range(self.coef.shape[0]):
                self.coef[j] = soft(self.coef[j], cut)
            if self.summing:
                for j in range(self.coef.shape[0]):
                    self.coef_sum[j] += self.scale * self.coef[j]
        if self.summing:
            self.scale_sum += self.scale
        if self.scale < SCALE_MIN:
            self.fold_scale()

    cdef void catch_up(self, Py_ssize_t j) noexcept nogil:
        self.coef[j] = soft(self.coef[j], self.threshold - self.thresholds[j])
        self.thresholds[j] = self.threshold

    cdef void fold_scale(self) noexcept nogil:
        cdef Py_ssize_t j
        for j in range(self.coef.shape[0]):
            if self.lazy:
                self.catch_up(j)
                self.thresholds[j] = 0.0
            self.coef[j] *= self.scale
        self.scale_sum /= self.scale
        self.threshold = 0.0
        self.scale = 1.0
        self.inverse_scale = 1.0

    cdef void flush(self) noexcept nogil:
        cdef Py_ssize_t j
        self.fold_scale()
        if self.summing:
            if not self.eager:
                for j in range(self.coef.shape[0]):
                    self.coef_sum[j] = self.scale_sum * self.coef[j] - self.coef_sum[j]
            self.fold_average()
        self.scale_sum = 0.0


cdef class CoordinateRate(LinearProblem):
    """A step size rho_j for each coordinate, from the gradients it has seen.

    A coordinate's rate is zero until it has had a gradient, so that the penalty does
    not undo a coefficient that training starts from, and moves only when the
    coordinate has one: dense and sparse rows of the same numbers give the same steps.
    Between two visits of a coordinate of a sparse problem its rate is constant and the
    penalty has the closed form of `catch_up`.

    Parameters
    ----------
    rule : {"adagrad", "rmsprop", "adadelta"}
        With g the gradient of the coordinate:
        adagrad, ``S += g^2``, ``rho = eta0 / sqrt(S)``;
        rmsprop, ``S += (1 - decay) (g^2 - S)``, ``rho = eta0 / (sqrt(S) + EPSILON)``;
        adadelta, S as rmsprop, ``rho = eta0 sqrt(D + EPSILON) / sqrt(S + EPSILON)``,
        then ``D += (1 - decay) ((rho g)^2 - D)``.
        `state` holds S in `squares` and D in `moves`, the intercept's last.
    eta0, decay : float
        Parameters of the rule.
    sparse : bool
        Whether the rows are sparse.
    """

    def __init__(
        self, rows, loss, y, norms2, state, alpha_l1, alpha_l2, fit_intercept,
        average_start, str rule, double eta0, double decay, bint sparse,
    ):
        cdef Py_ssize_t j
        super().__init__(
            rows, loss, y, norms2, state, alpha_l1, alpha_l2, fit_intercept,
            average_start,
        )
        self.rule = RULES[rule]
        self.eta0 = eta0
        self.decay = decay
        self.squares = state["squares"]
        if self.rule == ADADELTA:
            self.moves = state["moves"]
        self.lazy = sparse
        # As in `ScalarRate`.
        self.eager = sparse and self.averaging and alpha_l1 > 0.0
        self.look_for_waiting()
        self.packing = (
            sparse
            and self.rule == ADAGRAD
            and alpha_l1 == 0.0
            and not (self.averaging or self.waiting)
        )
        if self.packing:
            self.packed = np.empty((self.coef.shape[0], 4))
            self.row_coef, self.row_squares, self.row_rates = np.empty(
                (3, max(rows.longest, 1))
            )
        elif sparse:
            self.seen = np.zeros(self.coef.shape[0], dtype=np.int64)
            self.rates = np.empty(self.coef.shape[0])
            for j in range(self.coef.shape[0]):
                self.rates[j] = self.rate(j)

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

    cdef double predict(self, const Row* row) noexcept nogil:
        cdef Py_ssize_t k
        if self.packing:
            return self.predict_packed(row)
        if self.lazy:
            for k in range(row.size):
                self.catch_up(row.indices[k])
        return dot(row, &self.coef[0])

    cdef void move(self, const Row* row, double g) noexcept nogil:
        self.now += 1
        if self.fit_intercept and g != 0.0:
            self.intercept[0] -= self.step_rate(self.coef.shape[0], g) * g
        if self.packing:
            self.move_packed(row, g)
        elif self.lazy:
            self.move_sparse(row, g)
        else:
            self.move_dense(row, g)

    cdef void move_dense(self, const Row* row, double g) noexcept nogil:
        cdef Py_ssize_t j, size = row.size
        cdef const double* x = row.values
        cdef double* w = &self.coef[0]
        cdef double gradient, u, rho
        if self.rule == ADAGRAD and not self.waiting:
            adagrad_step(
                x, w, &self.squares[0], size, g, self.eta0, self.eta0 * self.alpha_l1,
                self.eta0 * self.alpha_l2, TINY,
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

    # AdaGrad on sparse rows with an l2 penalty or none, the case that "auto" begins
    # with. All that is known of a coordinate lies in one place, (w, S, rho, the step it
    # is up to date with), so that a nonzero waits for memory once; and the coordinates
    # of a row are gathered, so that the arithmetic is that of dense rows.

    cdef double predict_packed(self, const Row* row) noexcept nogil:
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

    cdef void move_packed(self, const Row* row, double g) noexcept nogil:
        """Step the coordinates that `predict_packed` has gathered."""
        cdef Py_ssize_t k
        cdef double now = <double> self.now
        cdef double* w = &self.row_coef[0]
        cdef double* squares = &self.row_squares[0]
        cdef double* rates = &self.row_rates[0]
        cdef double* coordinate
        if g == 0.0:
            return
        adagrad_step(
            row.values, w, squares, row.size, g, self.eta0, 0.0,
            self.eta0 * self.alpha_l2, TINY,
        )
        adagrad_rates(squares, rates, row.size, self.eta0, TINY)
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

    cdef void unpack(self) noexcept nogil:
        cdef Py_ssize_t j
        cdef double a, now = <double> self.now
        for j in range(self.coef.shape[0]):
            a = self.packed[j, 2] * self.alpha_l2
            self.coef[j] = self.packed[j, 0] * (
                1.0 - a * discounted_steps(a, now - self.packed[j, 3])
            )
            self.squares[j] = self.packed[j, 1]
        self.is_packed = False

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
        if self.is_packed:
            self.unpack()
        elif self.lazy and not self.packing:
            for j in range(self.coef.shape[0]):
                self.catch_up(j)

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
