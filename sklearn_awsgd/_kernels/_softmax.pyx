# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Softmax regression: K linear models that share a row and a normalisation."""

import numpy as np
from scipy.special import softmax

from libc.math cimport exp, log

from sklearn_awsgd._kernels._loop cimport Point, Problem
from sklearn_awsgd._kernels._rows cimport (
    Numbers, Row, Rows, get_row, number, prefetch_row
)
from sklearn_awsgd._kernels._steps cimport Steps, score, take

cdef extern from "Python.h":
    # As a pointer without a reference: an item that is called without the GIL.
    void* PyTuple_GET_ITEM(void* items, Py_ssize_t k) noexcept nogil


cdef class SoftmaxProblem(Problem):
    """f = log sum_k exp(z_k) - z_y, with z_k = <x, w_k> + b_k.

    Parameters
    ----------
    rows : Rows
        The rows of X.
    codes : ndarray of shape (n_samples,) and dtype int32
        Class of each row.
    norms2 : ndarray of shape (n_samples,)
        ``||x_i||^2``.
    steps : sequence of Steps
        Parameters, penalty and step sizes of each class.
    loss_scale : float, default=1.0
        As for `LinearProblem`.
    """

    cdef Rows rows
    cdef const int[::1] codes
    cdef Numbers norms2
    cdef readonly tuple steps
    cdef double[::1] gradient
    cdef bint fit_intercept
    cdef double loss_scale

    def __init__(
        self, Rows rows, const int[::1] codes, norms2, steps, double loss_scale=1.0,
    ):
        cdef Steps one
        self.rows = rows
        self.codes = codes
        self.norms2 = Numbers(norms2)
        self.steps = tuple(steps)
        for one in self.steps:
            self.fit_intercept = one.fit_intercept
        self.gradient = np.empty(len(self.steps))
        self.loss_scale = loss_scale

    cdef void* model(self, Py_ssize_t k) noexcept nogil:
        """The steps of class k."""
        return PyTuple_GET_ITEM(<void*> self.steps, k)

    cdef void step(self, Point* x, double weight) noexcept nogil:
        cdef Row row
        cdef Py_ssize_t k, n_classes = self.gradient.shape[0]
        cdef double largest = -1e300, total = 0.0, norm2 = 0.0, own
        get_row(self.rows, x.i, &row)
        for k in range(n_classes):
            self.gradient[k] = score(<Steps> self.model(k), &row)
            largest = max(largest, self.gradient[k])
        own = self.gradient[self.codes[x.i]]
        for k in range(n_classes):
            self.gradient[k] = exp(self.gradient[k] - largest)
            total += self.gradient[k]
        x.loss = self.loss_scale * (log(total) + largest - own)
        for k in range(n_classes):
            self.gradient[k] /= total
            if k == self.codes[x.i]:
                self.gradient[k] -= 1.0
            self.gradient[k] *= weight * self.loss_scale
            norm2 += self.gradient[k] * self.gradient[k]
            take(<Steps> self.model(k), &row, self.gradient[k])
        x.norm2 = norm2 * (number(self.norms2, x.i) + self.fit_intercept)

    cdef void prefetch(self, const Point* x) noexcept nogil:
        prefetch_row(self.rows, x.i)

    cdef void flush(self) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.gradient.shape[0]):
            (<Steps> self.model(k)).flush()

    @property
    def eta0(self):
        """Step size of the models."""
        return self.steps[0].eta0

    @eta0.setter
    def eta0(self, double value):
        for steps in self.steps:
            steps.eta0 = value

    def first_norms2(self, rows=slice(None)):
        """Return squared gradient norms of a slice of rows, where all W are zero."""
        cdef Steps steps
        codes = np.asarray(self.codes)[rows]
        p = softmax([steps.intercept[0] for steps in self.steps])
        gradient2 = self.loss_scale**2 * (p @ p - 2 * p[codes] + 1)
        return gradient2 * (self.norms2.owner[rows] + self.fit_intercept)

    def penalty(self):
        """Return the penalty at the current parameters."""
        return sum(steps.penalty() for steps in self.steps)
