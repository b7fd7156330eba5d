# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The linear model: penalised losses of <x, w> + b.

F(w, b) = E_P[f(y, <x, w> + b)] + alpha_l2 / 2 ||w||^2 + alpha_l1 ||w||_1
"""

import numpy as np

from libc.math cimport NAN

from sklearn_awsgd._kernels._loop cimport Point
from sklearn_awsgd._kernels._rows cimport (
    Numbers, Row, Rows, dot, get_row, number, prefetch_number, prefetch_row
)
from sklearn_awsgd._kernels._steps cimport score, take


cdef class LinearProblem(Problem):
    """One linear model of all rows.

    Parameters
    ----------
    rows : Rows
        The rows of X; a view of its own for each problem.
    loss : Loss
        The loss f(y, z).
    y : ndarray of shape (n_samples,)
        Targets, as `Numbers` takes them.
    norms2 : ndarray of shape (n_samples,)
        ``||x_i||^2``, likewise.
    steps : Steps
        Parameters, penalty and step sizes.
    loss_scale : float, default=1.0
        Factor of the loss.
    """

    def __init__(
        self, Rows rows, Loss loss, y, norms2, Steps steps, double loss_scale=1.0,
    ):
        self.rows = rows
        self.loss = loss
        self.y = Numbers(y)
        self.norms2 = Numbers(norms2)
        self.steps = steps
        self.loss_scale = loss_scale

    cdef void step(self, Point* x, double weight) noexcept nogil:
        cdef Row row
        cdef double derivative = 0.0, g
        get_row(self.rows, x.i, &row)
        x.loss = self.loss.evaluate(
            number(self.y, x.i), score(self.steps, &row), &derivative
        )
        x.loss *= self.loss_scale
        g = weight * self.loss_scale * derivative
        x.norm2 = g * g * (number(self.norms2, x.i) + self.steps.fit_intercept)
        take(self.steps, &row, g)

    cdef void prefetch(self, const Point* x) noexcept nogil:
        prefetch_number(self.y, x.i)
        prefetch_number(self.norms2, x.i)
        prefetch_row(self.rows, x.i)

    cdef void flush(self) noexcept nogil:
        self.steps.flush()

    @property
    def eta0(self):
        """Step size."""
        return self.steps.eta0

    @eta0.setter
    def eta0(self, double value):
        self.steps.eta0 = value

    def first_norms2(self, rows=slice(None)):
        """Return the squared gradient norms of a slice of the rows at the current w.

        From w = 0, where the prediction is the intercept for all rows, without a pass.
        """
        cdef Py_ssize_t i, begin, end
        cdef double derivative = 0.0, z = self.steps.intercept[0], last = NAN, y
        cdef double scale2 = self.loss_scale * self.loss_scale
        cdef bint moved = np.any(self.steps.coef)
        cdef Row row
        begin, end, _ = rows.indices(self.y.size)
        result = np.empty(end - begin)
        cdef double[::1] view = result
        with nogil:
            for i in range(begin, end):
                if moved:
                    get_row(self.rows, i, &row)
                    z = dot(&row, &self.steps.coef[0]) + self.steps.intercept[0]
                y = number(self.y, i)
                if moved or y != last:
                    # All rows of a class have the same derivative.
                    last = y
                    self.loss.evaluate(y, z, &derivative)
                view[i - begin] = scale2 * derivative * derivative * (
                    number(self.norms2, i) + self.steps.fit_intercept
                )
        return result

    def penalty(self):
        """Return the penalty at the current w."""
        return self.steps.penalty()
