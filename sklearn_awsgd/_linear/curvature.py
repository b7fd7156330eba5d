"""Curvature: samples of rows, and inverses that steps correct."""

import numpy as np
from scipy.linalg.blas import daxpy

from sklearn_awsgd._kernels import _batch
from sklearn_awsgd._kernels._newton import Cholesky

# With more parameters only the diagonal of the curvature is used, and where rows are so
# sparse that the inverse of its matrix would cost more than so many passes: chosen on
# one-hot rows of eight features, 50,000 and 400,000 of them, and on generated texts.
MOST_PARAMETERS = 3000
MOST_INVERTING = 15.0
# BFGS pairs that are kept. On the set `sparse` of bench_time_to_optimum.py 20 were
# better than fewer, and 40 no better.
N_PAIRS = 20
# Rows handled together where arrays of their size are made.
ROWS_IN_CHUNK = 4096
# Curvature of a feature below which there is none.
NO_CURVATURE = 1e-200
# Rows whose numbers are looked at together, one for each row.
ROWS_IN_PART = 2**16


class InverseCurvature:
    """The inverse of a curvature, improved by BFGS pairs.

    Parameters
    ----------
    solve : callable
        Applies the inverse to a vector.
    cost : float
        What it cost, in passes over the rows.
    step_cost : float, default=0.0
        What each product with it costs, likewise.
    sharp : bool
        Whether it is good enough to tell the suboptimality from the gradient.
    rough : bool, default=False
        Whether it leaves out much more than a sample does, as a diagonal: then steps
        are many, and small ones need not mean that the end is near. The last pair
        tells its scale, and it may be replaced by that of another point without
        forgetting the pairs.
    diagonal : bool, default=False
        Whether it is a diagonal, which is rough.

    Attributes
    ----------
    margin : float
        What the estimate of the suboptimality is multiplied with to be on the safe
        side.
    """

    def __init__(self, solve, cost, sharp, step_cost=0.0, rough=False, diagonal=False):
        self.margin = 2.0 if sharp else (8.0 if diagonal else 4.0)
        self._solve, self.cost, self.diagonal = solve, cost, diagonal
        self.step_cost, self.rough = step_cost, rough or diagonal
        self._pairs, self._scale = [], 1.0

    @classmethod
    def from_hessian(cls, hessian, cost):
        """Invert a matrix, of which the upper triangle counts."""
        return cls(Cholesky(hessian), cost, True)

    @classmethod
    def from_diagonal(cls, diagonal):
        """Invert a diagonal, which is never worth being sampled from more rows."""
        return cls(lambda g: g / diagonal, np.inf, sharp=False, diagonal=True)

    def update(self, step, change):
        """Take in a step and the change of the gradient along it."""
        product = step @ change
        if product > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
            self._pairs = [*self._pairs[1 - N_PAIRS :], (step, change, 1 / product)]
            self._rescale()

    def replace(self, other):
        """Take over another rough curvature."""
        self._solve = other._solve
        self._rescale()

    def _rescale(self):
        if self.rough and self._pairs:
            _, change, inverse = self._pairs[-1]
            self._scale = 1 / (inverse * (change @ self._solve(change)))

    def __matmul__(self, gradient):
        """Return the L-BFGS product with a gradient."""
        g, factors = gradient.copy(), []
        for step, change, inverse in reversed(self._pairs):
            factors.append(inverse * (step @ g))
            g = daxpy(change, g, a=-factors[-1])
        g = self._scale * self._solve(g)
        for (step, change, inverse), a in zip(
            self._pairs, reversed(factors), strict=True
        ):
            g = daxpy(step, g, a=a - inverse * (change @ g))
        return g


def cost_of_inverting(n_columns, n_samples, n_nonzero):
    """Return what inverting a matrix of curvature costs, in passes over the rows."""
    return n_columns**3 / 30 / cost_of_pass(n_samples, n_nonzero)


def cost_of_pass(n_samples, n_nonzero):
    """Return what a pass over the rows costs, in flops."""
    return 4 * (n_nonzero + 5 * n_samples)


def expectation(values, mass):
    """Return E_P of values; a mass of None means that all rows are equal."""
    return values.mean(dtype=np.float64) if mass is None else mass @ values


def systematic_sample(size, n_rows, rng):
    """Draw rows in proportion to `size`, about `n_rows` times in all.

    Returns
    -------
    chosen : ndarray of int
        The rows drawn at least once; all rows when `n_rows` says so.
    times : ndarray of float
        What to multiply a row's contribution with for an unbiased sum.
    """
    if n_rows >= len(size) or not size.any():
        chosen = np.flatnonzero(size)
        return chosen, np.ones(len(chosen))
    return _batch.draw_systematically(size, n_rows, rng.random())


def row_chunks(n_rows, size=ROWS_IN_CHUNK):
    """Return slices of so many rows each."""
    return [slice(start, start + size) for start in range(0, n_rows, size)]


def add_penalty(diagonal, alpha, fit_intercept):
    """Add the penalty's curvature to the diagonal of one model."""
    diagonal[:-1] += alpha
    if not fit_intercept:
        diagonal[-1] = 1
    # Features without curvature and without penalty must not break the inverse, nor
    # those with next to none, as where kinks are far: their steps would overflow.
    if diagonal.min() < NO_CURVATURE:
        none = diagonal < NO_CURVATURE
        diagonal[none] = 1e-12 * diagonal.max() + NO_CURVATURE
