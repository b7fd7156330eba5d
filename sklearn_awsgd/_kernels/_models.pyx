# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Quadratic models with an l1 penalty, minimised by coordinate descent."""

import numpy as np

from sklearn_awsgd._kernels._steps cimport soft


def minimize_l1_model(
    const double[:, ::1] hessian,
    const double[::1] gradient,
    const double[::1] w,
    double alpha_l1,
    double[::1] d,
    Py_ssize_t max_sweeps,
):
    """Minimise <g, d> + d^T H d / 2 + alpha_l1 ||w + d||_1 by coordinate descent.

    Parameters
    ----------
    hessian : ndarray of shape (p, p)
        H, symmetric, with a positive diagonal.
    gradient, w : ndarray of shape (p,)
        g and w; the last coordinate is the intercept, which has no l1 penalty.
    alpha_l1 : float
        Strength of the l1 penalty.
    d : ndarray of shape (p,)
        Where to start; set to the minimiser.
    max_sweeps : int
        Largest number of sweeps over the coordinates.

    Returns
    -------
    last_gain : float
        Twice what the best coordinate gained in the last sweep; 0 at the minimum.
    """
    cdef Py_ssize_t _sweep, j, k, p = w.shape[0]
    cdef double old, new, change, largest = 0.0, first = 0.0
    cdef double[::1] slope = np.add(gradient, np.dot(hessian, d))
    with nogil:
        for _sweep in range(max_sweeps):
            largest = 0.0
            for j in range(p):
                old = w[j] + d[j]
                new = old - slope[j] / hessian[j, j]
                if j < p - 1:
                    new = soft(new, alpha_l1 / hessian[j, j])
                change = new - old
                if change != 0.0:
                    d[j] += change
                    for k in range(p):
                        slope[k] += change * hessian[j, k]
                    largest = max(largest, change * change * hessian[j, j])
            first = max(first, largest)
            if largest <= 1e-16 * first:
                largest = 0.0
                break
    return largest


cdef class SoftmaxModel:
    """<G, D> + D^T H D / 2 + alpha_l1 ||W + D||_1, for softmax regression.

    H is the Hessian of softmax regression, plus a diagonal. It is never formed: with
    ``move_ki = <x_i, D_k>`` and ``mean_i = sum_k p_ki move_ki``, its product with D is
    ``sum_i weight_i p_ki (move_ki - mean_i) x_i``, and a step along one coordinate
    changes only the moves of the rows where that feature is not zero.

    Parameters
    ----------
    columns : tuple of three ndarray
        The rows by columns, as `data`, `indices` and `indptr` of CSC.
    weighted, probabilities : ndarray of shape (n_classes, n_rows)
        p_ki times the row's weight, and p_ki.
    diagonal : ndarray of shape (n_classes, n_features + 1)
        Diagonal of H, all of it, positive.
    ridge : ndarray of shape (n_features + 1,)
        What is in the diagonal of H in addition, for all classes.
    """

    cdef const double[::1] values, ridge
    cdef const int[::1] indices, starts
    cdef const double[:, ::1] weighted, probabilities, diagonal

    def __init__(self, columns, weighted, probabilities, diagonal, ridge):
        self.values, self.indices, self.starts = columns
        self.weighted = weighted
        self.probabilities = probabilities
        self.diagonal = diagonal
        self.ridge = ridge

    def minimize(
        self, const double[:, ::1] gradient, const double[:, ::1] W, double alpha_l1,
        bint fit_intercept, double precision, Py_ssize_t max_sweeps,
    ):
        """Minimise the model by coordinate descent.

        Parameters
        ----------
        gradient, W : ndarray of shape (n_classes, n_features + 1)
            G and W; the intercepts, which have no penalty, are last.
        alpha_l1 : float
            Strength of the l1 penalty.
        fit_intercept : bool
            Whether the intercepts move.
        precision : float
            Share of the largest gain of a coordinate below which gains are next to
            nothing.
        max_sweeps : int
            Largest number of sweeps, over the coefficients that are not zero and now
            and then over all.

        Returns
        -------
        D : ndarray of shape (n_classes, n_features + 1)
            The minimiser.
        converged : bool
            Whether a sweep over all coordinates changed next to nothing.
        """
        # Where the compiler can see that nobody else moves them.
        cdef const double[::1] values = self.values
        cdef const int[::1] indices = self.indices
        cdef const double[:, ::1] weighted = self.weighted
        cdef const double[:, ::1] probabilities = self.probabilities
        cdef Py_ssize_t K = W.shape[0], p = W.shape[1], n_rows = weighted.shape[1]
        cdef Py_ssize_t _sweep, j, k, m, i, first, last
        cdef bint everything = True, intercept, converged = False
        cdef double slope, old, new, change, largest, first_change = 0.0
        cdef double[:, ::1] moves = np.zeros((K, n_rows))
        cdef double[::1] mean = np.zeros(n_rows)
        minimiser = np.zeros((K, p))
        cdef double[:, ::1] D = minimiser
        with nogil:
            for _sweep in range(max_sweeps):
                largest = 0.0
                for j in range(p if fit_intercept else p - 1):
                    intercept = j == p - 1
                    first = 0 if intercept else self.starts[j]
                    last = n_rows if intercept else self.starts[j + 1]
                    for k in range(K):
                        old = W[k, j] + D[k, j]
                        if old == 0.0 and not everything and not intercept:
                            continue
                        slope = gradient[k, j] + self.ridge[j] * D[k, j]
                        if intercept:
                            for i in range(n_rows):
                                slope += weighted[k, i] * (moves[k, i] - mean[i])
                        else:
                            for m in range(first, last):
                                i = indices[m]
                                slope += values[m] * weighted[k, i] * (
                                    moves[k, i] - mean[i]
                                )
                        new = old - slope / self.diagonal[k, j]
                        if not intercept:
                            new = soft(new, alpha_l1 / self.diagonal[k, j])
                        change = new - old
                        if change == 0.0:
                            continue
                        D[k, j] = new - W[k, j]
                        largest = max(largest, change * change * self.diagonal[k, j])
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
        return minimiser, converged
