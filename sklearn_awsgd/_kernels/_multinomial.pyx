# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Softmax regression: K linear models that share a row and a normalisation."""

import numpy as np

from libc.math cimport exp, log

from sklearn_awsgd._kernels._linear cimport LinearProblem
from sklearn_awsgd._kernels._loop cimport Point, Problem
from sklearn_awsgd._kernels._rows cimport Row, Rows, get_row, prefetch_row


cdef class MultinomialProblem(Problem):
    """f = log sum_k exp(z_k) - z_y, with z_k = <x, w_k> + b_k.

    Parameters
    ----------
    rows : Rows
        The rows of X.
    codes : ndarray of shape (n_samples,) and dtype int32
        Class of each row.
    norms2 : ndarray of shape (n_samples,)
        ``||x_i||^2``.
    models : list of LinearProblem
        One for each class: its parameters, penalty and step size. Its loss and targets
        are not used.
    fit_intercept : bool
        Whether the intercepts move.
    """

    cdef Rows rows
    cdef const int[::1] codes
    cdef const double[::1] norms2
    cdef list models
    # Addresses of the models, which can be called without the GIL.
    cdef Py_ssize_t[::1] addresses
    cdef double[::1] gradient
    cdef bint fit_intercept

    def __init__(
        self, Rows rows, const int[::1] codes, const double[::1] norms2, list models,
        bint fit_intercept,
    ):
        self.rows = rows
        self.codes = codes
        self.norms2 = norms2
        self.models = models
        self.addresses = np.array(
            [<Py_ssize_t> <void*> model for model in models], dtype=np.intp
        )
        self.gradient = np.empty(len(models))
        self.fit_intercept = fit_intercept

    cdef void step(self, Point* x, double weight) noexcept nogil:
        cdef Row row
        cdef Py_ssize_t k, n_classes = self.addresses.shape[0]
        cdef double largest = -1e300, total = 0.0, norm2 = 0.0, own
        get_row(self.rows, x.i, &row)
        for k in range(n_classes):
            self.gradient[k] = (<LinearProblem> <void*> self.addresses[k]).score(&row)
            largest = max(largest, self.gradient[k])
        own = self.gradient[self.codes[x.i]]
        for k in range(n_classes):
            self.gradient[k] = exp(self.gradient[k] - largest)
            total += self.gradient[k]
        x.loss = log(total) + largest - own
        for k in range(n_classes):
            self.gradient[k] /= total
            if k == self.codes[x.i]:
                self.gradient[k] -= 1.0
            self.gradient[k] *= weight
            norm2 += self.gradient[k] * self.gradient[k]
            (<LinearProblem> <void*> self.addresses[k]).take(&row, self.gradient[k])
        x.norm2 = norm2 * (self.norms2[x.i] + self.fit_intercept)

    cdef void prefetch(self, const Point* x) noexcept nogil:
        prefetch_row(self.rows, x.i)

    cdef void flush(self) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.addresses.shape[0]):
            (<LinearProblem> <void*> self.addresses[k]).flush()

    @property
    def eta0(self):
        """Step size of the models."""
        return self.models[0].eta0

    @eta0.setter
    def eta0(self, double value):
        for model in self.models:
            model.eta0 = value

    def penalty(self):
        """Return the penalty at the current parameters."""
        return sum(model.penalty() for model in self.models)
