"""Objectives of the linear models, evaluated exactly, with sampled curvature."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dasum

from sklearn_awsgd._kernels import _newton
from sklearn_awsgd._linear.curvature import (
    InverseCurvature,
    add_penalty,
    cost_of_pass,
)
from sklearn_awsgd._linear.streams.learner import NARROW_SPARSE

# Columns up to which a curvature is kept: streams of more have a diagonal.
MOST_KEPT = NARROW_SPARSE + 1
# What the sums of a dual point may be at most, relative to the least value so far: what
# is left of larger ones, as at the end of a step that was far too long, is rounding.
MOST_CANCELLED = 1e10


@dataclass
class Evaluation:
    """The objective at some parameters, from one pass over the rows."""

    v: np.ndarray
    value: float
    gradient: np.ndarray
    gap: float  # certified bound of the suboptimality, infinite where there is none
    curvatures: object  # what the curvature is made of: known to the sums alone


class Objective(ABC):
    """A smooth objective as the descent sees it: sums over rows, and nothing else.

    A descent never sees rows, nor does an objective: they may lie in memory or anywhere
    else.

    Attributes
    ----------
    n_samples, n_columns, n_nonzero : int
        Rows, features and one for the intercept, and numbers in the rows.
    alpha : float
        Strength of the l2 penalty.
    sharp : bool
        Whether the curvature holds beyond the next kink of the loss.
    has_jumps : bool
        Whether the curvature of the loss has jumps.
    is_quadratic : bool
        Whether it is the same everywhere.
    is_wide : bool
        Whether columns are too many for a matrix of their curvature.
    is_at_hand : bool
        Whether rows are in memory, and curvatures an array with a number for each.
    rows_per_column : int
        Rows of the first curvature sample for each column, at least.
    curvature : ndarray of shape (n_columns, n_columns) or None
        The upper triangle of the Hessian of E_P[f] that was sampled last, if it is
        small, for a stream that may go on from here.
    """

    rows_per_column = 12
    has_jumps = is_quadratic = is_wide = is_at_hand = False
    curvature = None

    @abstractmethod
    def __call__(self, v):
        """Return the Evaluation at v, from one pass over the rows."""

    def canonical(self, v):
        """Return v, or parameters of the same predictions that are preferred."""
        return v

    def expect_curvature(self, n_rows, rng, floor):
        """Be told that the curvature will be asked for at the next point.

        Rows that are elsewhere may bring it along with the gradient. The parameters are
        those of `inverse_curvature`.
        """

    @abstractmethod
    def newton_flops(self):
        """Return the cost of the curvature of all rows."""

    @abstractmethod
    def inverse_curvature(self, here, n_rows, rng, floor):
        """Return the inverse of a sampled curvature.

        Parameters
        ----------
        here : Evaluation
            Where.
        n_rows : int
            Size of the sample; all rows when it is `n_samples`.
        rng : numpy.random.Generator
            Draws the sample.
        floor : float
            Least curvature of a row, as a share of the largest the loss can have: with
            1 a step cannot overshoot.
        """


class LinearObjective(Objective):
    """E_P[f(y, <x, w> + b)] + alpha / 2 ||w||^2 as a function of v = (w, b).

    Parameters
    ----------
    sums : LinearSums
        Gives sums over the rows, wherever they are.
    alpha : float
        Strength of the penalty.
    fit_intercept : bool
        Whether b is free.
    sharp : bool, default=True
        Whether the curvature holds beyond the next kink of the loss.
    alpha_l1 : float, default=0.0
        Strength of an l1 penalty, which is no part of the value and the gradient, but
        of what the bound of the suboptimality is for.
    """

    def __init__(self, sums, alpha, fit_intercept, sharp=True, alpha_l1=0.0):
        self.sums, self.alpha, self.fit_intercept = sums, alpha, fit_intercept
        self.sharp, self.alpha_l1 = sharp, alpha_l1
        self.n_samples, self.n_columns = sums.n_samples, sums.n_columns
        self.n_nonzero = sums.n_nonzero
        # The best dual point so far, or its bound with an l1 penalty: see `mix_dual`.
        # Zero is one, with the bound zero.
        self._dual, self._bound = (0.0, np.zeros(self.n_columns - 1)), 0.0
        # The least value so far: a bound that is made of far larger numbers is none.
        self._least = np.inf

    def __call__(self, v, predictions=None):
        """Return the Evaluation at v, from one pass over the rows.

        It is a shorter one where the predictions at v are known.
        """
        known = {} if predictions is None else {"predictions": predictions}
        gradients, sums, curvatures = self.sums.evaluate(v, **known)
        value, gradient, size = _newton.assess(
            gradients, sums, v, self.alpha, self.fit_intercept
        )
        gap, self._least = np.inf, min(self._least, value)
        if self.alpha > 0 or self.alpha_l1 > 0:
            if size <= MOST_CANCELLED * self._least:
                self.mix_dual(*_newton.dual_point(gradients, sums, self.fit_intercept))
            gap = value - self.lower_bound()
        if self.alpha_l1 > 0:
            gap += self.alpha_l1 * dasum(v[:-1])
        return Evaluation(v, value, gradient, gap, curvatures)

    def mix_dual(self, value, mean, spare=0.0):
        """Take in a dual point: mix it with the best so far such that the bound rises.

        A dual point is a pair (l, u), ``l <= -sum P f*(a)`` and ``u = sum P a x``, with
        the bound ``l - ||u||^2 / (2 alpha)``; as f* is convex, mixtures of pairs are
        pairs of mixtures. What is left of the gradients of several points partly
        cancels, so a mixture is far better than the last point. With an l1 penalty the
        better bound of the two is kept, for which `spare` counts: see
        `penalized_bound`.
        """
        if self.alpha_l1 > 0:
            bound = penalized_bound(value, mean, self.alpha_l1, self.alpha, spare)
            self._bound = max(self._bound, bound)
            return
        self._dual = _newton.mix(*self._dual, value, mean, self.alpha)

    def lower_bound(self):
        """Return the best lower bound of the minimum."""
        if self.alpha_l1 > 0:
            return self._bound
        value, mean = self._dual
        return value - mean @ mean / (2 * self.alpha)

    def newton_flops(self):
        return self.n_nonzero**2 / self.n_samples + self.n_columns**3 / 3

    def expect_curvature(self, n_rows, rng, floor):
        if not self.is_wide:
            self.sums.expect_hessian(floor, n_rows, rng)

    def inverse_curvature(self, here, n_rows, rng, floor):
        if self.is_wide:
            diagonal = self.sums.hessian_diagonal(here.curvatures, floor)
            add_penalty(diagonal, self.alpha, self.fit_intercept)
            return InverseCurvature.from_diagonal(diagonal)
        return InverseCurvature.from_hessian(*self.hessian(here, n_rows, rng, floor))

    def hessian(self, here, n_rows, rng, floor):
        """Return the upper triangle of a sampled Hessian, and its cost in passes.

        The parameters are those of :meth:`Objective.inverse_curvature`.
        """
        hessian, flops = self.sums.hessian(here.curvatures, floor, n_rows, rng)
        if not self.fit_intercept:
            hessian[:, -1] = 0
        if self.n_columns <= MOST_KEPT and floor == 0:
            self.curvature = hessian.copy()
        add_penalty(np.einsum("ii->i", hessian), self.alpha, self.fit_intercept)
        flops += self.n_columns**3 / 30
        return hessian, flops / cost_of_pass(self.n_samples, self.n_nonzero)


def penalized_bound(value, mean, l1, l2, spare=0.0):
    """Return a lower bound of the minimum of a loss with an l1 penalty.

    With a dual point (l, u), see `LinearObjective.mix_dual`, also
    ``(s l + s (1 - s) r, s u)`` is one for s from 0 to 1: see
    :func:`~sklearn_awsgd._kernels._newton.dual_point`. The conjugate of the penalties
    at u is ``sum_j max(|u_j| - l1, 0)^2 / (2 l2)``, infinite without l2 unless it is
    zero. The bound is that of the best s,
    ``s l + s (1 - s) r - sum_j max(s |u_j| - l1, 0)^2 / (2 l2)``.

    Parameters
    ----------
    value : float
        l.
    mean : ndarray
        u.
    l1, l2 : float
        Strengths of the penalties, the first positive.
    spare : float, default=0.0
        r, what the convexity of f* spares.
    """
    slope = value + spare
    if slope <= 0:
        return 0.0
    largest = max(mean.max(initial=0.0), -mean.min(initial=0.0))
    # While no slope is beyond the penalty, the derivative in s is slope - 2 s r.
    s = min(1.0, l1 / max(largest, l1))
    if 2 * s * spare >= slope:
        s = slope / (2 * spare)
    elif s < 1 and l2 > 0:
        size = np.abs(mean)
        size = np.sort(size[size > l1])[::-1]
        # The derivative in s falls; with the k largest beyond l1 it is zero at s[k].
        squares, sums = np.cumsum(size**2), np.cumsum(size)
        zeros = (l2 * slope + l1 * sums) / (squares + 2 * l2 * spare)
        zeros = np.minimum(zeros, 1.0)
        # It is so for the first k whose next largest is not beyond l1 there.
        k = np.argmax(np.append(zeros[:-1] * size[1:] <= l1, True))
        s, beyond = zeros[k], zeros[k] * size[: k + 1] - l1
        return s * value + s * (1 - s) * spare - beyond @ beyond / (2 * l2)
    return s * value + s * (1 - s) * spare


def few_values(y, mass):
    """Return the values of targets as float64, and their P; each of two once."""
    low, high = y.min(), y.max()
    is_high = y == high
    if (is_high | (y == low)).all():
        share = is_high.mean() if mass is None else mass @ is_high
        return np.array([low, high], dtype=np.float64), np.array([1 - share, share])
    weights = np.full(len(y), 1 / len(y)) if mass is None else mass
    return y.astype(np.float64, copy=False), weights


def best_constant(loss, y, mass):
    """Return the b that minimises E_P[f(y, b)], nearly.

    It is where the sampling phase starts: a rare class is far from b = 0, and the
    derivatives at its own b tell which rows matter.
    """
    values, weights = few_values(y, mass)
    b, step = weights @ values, 0.0
    best, z = np.inf, np.empty(len(values))
    for _ in range(50):
        z[:] = b
        losses, derivatives = loss(values, z)
        mean = weights @ losses
        if mean > best:
            step /= 2
            b += step
            continue
        best = mean
        curvature = weights @ loss.second_derivatives(values, z)
        if curvature <= 1e-12:
            # On the lines of all losses: a step that the test above may take back.
            curvature = 0.01 * loss.smoothness
        step = weights @ derivatives / curvature
        if abs(step) <= 1e-6 * (1 + abs(b)):
            break
        b -= step
    return b
