# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Softmax regression: K linear models that share a row and a normalisation."""

import numpy as np

from libc.math cimport copysign, exp, fabs, log

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
    # As for `LinearProblem`.
    cdef public double loss_scale

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
        self.loss_scale = 1.0

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
        x.loss = self.loss_scale * (log(total) + largest - own)
        for k in range(n_classes):
            self.gradient[k] /= total
            if k == self.codes[x.i]:
                self.gradient[k] -= 1.0
            self.gradient[k] *= weight * self.loss_scale
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


def minimize_softmax_model(
    const double[::1] values,
    const int[::1] indices,
    const int[::1] starts,
    const double[:, ::1] weighted,
    const double[:, ::1] probabilities,
    const double[:, ::1] diagonal,
    const double[:, ::1] gradient,
    const double[:, ::1] W,
    double alpha_l1,
    const double[::1] ridge,
    bint fit_intercept,
    double[:, ::1] D,
    double precision,
    Py_ssize_t max_sweeps,
):
    """Minimise <G, D> + D^T H D / 2 + alpha_l1 ||W + D||_1 by coordinate descent.

    H is the Hessian of softmax regression, plus a diagonal. It is never formed: with
    ``move_ki = <x_i, D_k>`` and ``mean_i = sum_k p_ki move_ki``, its product with D is
    ``sum_i weight_i p_ki (move_ki - mean_i) x_i``, and a step along one coordinate
    changes only the moves of the rows where that feature is not zero.

    Parameters
    ----------
    values, indices, starts : ndarray
        The rows by columns, as CSC holds them.
    weighted, probabilities : ndarray of shape (n_classes, n_rows)
        p_ki times the row's weight, and p_ki.
    diagonal : ndarray of shape (n_classes, n_features + 1)
        Diagonal of H, all of it, positive.
    gradient, W : ndarray of shape (n_classes, n_features + 1)
        G and W; the intercepts, which have no penalty, are last.
    alpha_l1 : float
        Strength of the l1 penalty.
    ridge : ndarray of shape (n_features + 1,)
        What is in the diagonal of H in addition, for all classes.
    fit_intercept : bool
        Whether the intercepts move.
    D : ndarray of shape (n_classes, n_features + 1)
        Set to the minimiser.
    precision : float
        Share of the largest gain of a coordinate below which gains are next to nothing.
    max_sweeps : int
        Largest number of sweeps, over the coefficients that are not zero and now and
        then over all.

    Returns
    -------
    converged : bool
        Whether a sweep over all coordinates changed next to nothing.
    """
    cdef Py_ssize_t K = W.shape[0], p = W.shape[1], n_rows = weighted.shape[1]
    cdef Py_ssize_t _sweep, j, k, m, i, first, last
    cdef bint everything = True, intercept, converged = False
    cdef double slope, old, new, change, size, largest, first_change = 0.0
    cdef double[:, ::1] moves = np.zeros((K, n_rows))
    cdef double[::1] mean = np.zeros(n_rows)
    D[:, :] = 0.0
    with nogil:
        for _sweep in range(max_sweeps):
            largest = 0.0
            for j in range(p if fit_intercept else p - 1):
                intercept = j == p - 1
                first = 0 if intercept else starts[j]
                last = n_rows if intercept else starts[j + 1]
                for k in range(K):
                    old = W[k, j] + D[k, j]
                    if old == 0.0 and not everything and not intercept:
                        continue
                    slope = gradient[k, j] + ridge[j] * D[k, j]
                    if intercept:
                        for i in range(n_rows):
                            slope += weighted[k, i] * (moves[k, i] - mean[i])
                    else:
                        for m in range(first, last):
                            i = indices[m]
                            slope += values[m] * weighted[k, i] * (
                                moves[k, i] - mean[i]
                            )
                    new = old - slope / diagonal[k, j]
                    if not intercept:
                        size = fabs(new) - alpha_l1 / diagonal[k, j]
                        new = copysign(size, new) if size > 0.0 else 0.0
                    change = new - old
                    if change == 0.0:
                        continue
                    D[k, j] = new - W[k, j]
                    largest = max(largest, change * change * diagonal[k, j])
                    if intercept:
                        for i in range(n_rows):
                            moves[k, i] += change
                            mean[i] += change * probabilities[k, i]
                    else:
                        for m in range(first, last):
                            i = indices[m]
                            moves[k, i] += change * values[m]
                            mean[i] += change * values[m] * probabilities[k, i]
            first_change = max(first_change, largest)
            if largest <= precision * first_change:
                if everything:
                    converged = True
                    break
                everything = True
            else:
                everything = False
    return converged
