"""Conjugate gradients, for least squares with too many features for their curvature.

The curvature is the same everywhere, so nothing has to be sampled: products with it,
each of which is a pass over the rows, are all that is needed. The steps themselves tell
how far the optimum is. They are those of Lanczos' method, whose tridiagonal matrix
knows the spectrum of the curvature; with the penalty as a lower bound of that, the
Gauss-Radau rule makes of it an upper bound of what is left (Golub and Meurant,
*Matrices, Moments and Quadrature with Applications*, 2010; the recursion is that of
Meurant and Tichy, "On computing quadrature-based bounds for the A-norm of the error in
conjugate gradients", 2013).
"""

from dataclasses import replace

import numpy as np

from sklearn_awsgd._kernels._batch import hessian_diagonal
from sklearn_awsgd._kernels._losses import SquaredError
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._linear.curvature import expectation
from sklearn_awsgd._linear.phases.descent import Report

# Moments, the beginning, a step and the end take a pass each.
FEWEST_PASSES = 4
# Gain of a step, relative to the objective, that rounding hides.
ROUNDING_GAIN = 1e-17
# How far sums along the way may be from those at its end, relative to the tolerance,
# and to the objective where rounding decides; and how often it may begin anew.
DRIFT = 0.1
LEAST_DRIFT = 1e-12
MOST_STARTS = 5
# Objective, relative to that of no model, below which no relative distance is small.
NEAR_ZERO = 1e-10


def suits_conjugate_gradients(task, budget):
    """Return whether these steps can be taken: for wide least squares in memory."""
    return (
        budget.max_passes >= FEWEST_PASSES
        and isinstance(task.loss, SquaredError)
        and task.is_wide
        and task.is_at_hand
        and task.penalty.l2 > 0
        and task.penalty.l1 == 0
    )


def take_conjugate_steps(task, n_draws, budget, log):
    """Go to the optimum; return a Report, or None where numbers are out of range.

    Parameters
    ----------
    task : LinearTask
        Suits :func:`suits_conjugate_gradients`.
    n_draws : int
        Draws before.
    budget, log : Budget and Log
        What may be spent, and what is recorded.
    """
    run = _Run(task, budget, log, n_draws)
    for _ in range(MOST_STARTS):
        if not run.go_on():
            break
    if not run.is_finite:
        return None
    return Report(run.here, run.n_passes, run.converged)


class _Run:
    """Counts and records passes of a task, and knows where they have led.

    Where rounding has added up along the way, it begins anew.
    """

    def __init__(self, task, budget, log, n_draws):
        self.task, self.budget, self.log = task, budget, log
        self.tol, self.least = budget.tol or 0.0, NEAR_ZERO * task.constant_loss()
        self.objective = task.make_objective()
        mass = task.data.mass
        if mass is None:
            mass = np.full(task.n_samples, 1 / task.n_samples)
        self.system = CenteredSystem(
            task.data.blocks, mass, task.penalty.l2, task.fit_intercept
        )
        self._y_mean = expectation(task.target.numbers(), task.data.mass)
        # That of the moments is the first.
        self.n_passes, self._n_draws = 1, n_draws
        self.converged, self.is_finite = False, True
        self.here = self._look(task.parameters()[:-1])

    def _look(self, w):
        """Evaluate coefficients on all rows, with the best intercept."""
        v, known = self._with_intercept(w), None
        if not w.any():
            known = np.full(self.task.n_samples, v[-1])
        here = self.objective(v, known)
        self._record(here.value, here.gap, lambda: here.v)
        return here

    def _with_intercept(self, w):
        """Return parameters: coefficients with their best intercept."""
        b = self.task.parameters()[-1]
        if self.task.fit_intercept:
            b = self._y_mean - self.system.center @ w
        return np.append(w, b)

    def _record(self, value, gap, parameters):
        self.n_passes += 1
        at = self._n_draws + self.n_passes * self.task.n_samples
        self.log.add_exact(at, value, gap, parameters)

    def go_on(self):
        """Take steps from here; return whether to begin anew where they end."""
        here = self.here
        steps = ConjugateSteps(self.system, here.v[:-1], here.value, here.gradient[:-1])
        while True:
            scale = max(abs(steps.value), self.least)
            self.converged = bool(
                steps.left <= self.tol * scale or steps.gain <= ROUNDING_GAIN * scale
            )
            # The last pass is a look at where this has led.
            if self.converged or self.budget.is_spent(self.n_passes + 1):
                break
            steps.step()
            self.is_finite = bool(np.isfinite(steps.left))
            if not self.is_finite:
                return False
            w = steps.w
            self._record(steps.value, steps.left, lambda w=w: self._with_intercept(w))
        if steps.n_steps == 0:
            return False
        before, self.here = self.here, self._look(steps.w)
        if self.here.value > before.value:
            # Rounding is all that is left.
            self.here = before
            return False
        drift = abs(self.here.value - steps.value)
        is_little = drift <= max(DRIFT * self.tol, LEAST_DRIFT) * scale
        if is_little:
            gap = min(self.here.gap, steps.left + drift)
            self.here = replace(self.here, gap=gap)
        return self.converged and not is_little


class CenteredSystem:
    """sum_i h_i (x_i - m) (x_i - m)^T + alpha, where m is the weighted mean of rows.

    It is the curvature of the coefficients, each with its best intercept; without an
    intercept m is zero.

    Parameters
    ----------
    blocks : Blocks
        Rows.
    h : ndarray of shape (n_samples,)
        Their weights.
    alpha : float
        Strength of the penalty.
    fit_intercept : bool
        Whether there is an intercept.

    Attributes
    ----------
    center : ndarray of shape (n_features,)
        m.
    total : float
        Sum of the weights.
    diagonal : ndarray of shape (n_features,)
        That of the matrix.
    """

    def __init__(self, blocks, h, alpha, fit_intercept):
        self.alpha, self._blocks, self._h, self.total = alpha, blocks, h, h.sum()
        self.center = np.zeros(blocks.shape[1])
        if fit_intercept and self.total > 0:
            means = self._sum(lambda X, h: X.T.dot(h))
            self.center = means / self.total
        squares = self._sum(_squares) - self.total * self.center**2
        self.diagonal = np.maximum(squares, 0.0) + self.alpha

    def _sum(self, function):
        """Return the sum of a function of the rows of each block and their weights."""
        return sum(self._blocks.map(lambda X, part: function(X, self._h[part])))

    def __matmul__(self, p):
        product = self._sum(lambda X, h: X.T.dot(h * X.dot(p)))
        product -= self.total * (self.center @ p) * self.center
        return product + self.alpha * p


def _squares(X, h):
    return hessian_diagonal(Rows(X), h, np.ones(len(h)))[:-1]


class ConjugateSteps:
    """Conjugate gradients, preconditioned by the diagonal, and what they leave.

    Parameters
    ----------
    system : CenteredSystem
        The curvature.
    w : ndarray of shape (n_features,)
        Coefficients to start from.
    value : float
        The objective there, with the best intercept.
    gradient : ndarray of shape (n_features,)
        Its gradient.

    Attributes
    ----------
    w : ndarray of shape (n_features,)
        Coefficients.
    value, gain : float
        The objective there, and by how much the last step has lowered it.
    n_steps : int
        Number of steps.
    """

    def __init__(self, system, w, value, gradient):
        self._system, self.w, self.value = system, w.copy(), value
        self._residual = -gradient
        self._step = self._residual / system.diagonal
        self._norm2 = self._residual @ self._step
        # No eigenvalue of the preconditioned matrix is less.
        self._least = system.alpha / system.diagonal.max()
        # The bound of the squared error, relative to that norm.
        self._ratio = 1 / self._least
        self.gain, self.n_steps = np.inf, 0

    @property
    def left(self):
        """How far the objective is above its minimum, at most."""
        return self._ratio * self._norm2 / 2

    def step(self):
        """Take a step."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            product = self._system @ self._step
            length = self._norm2 / (self._step @ product)
            self.w = self.w + length * self._step
            self._residual = self._residual - length * product
            self.gain = length * self._norm2 / 2
            self.value -= self.gain
            scaled = self._residual / self._system.diagonal
            norm2 = self._residual @ scaled
            share = norm2 / self._norm2
            self._step = scaled + share * self._step
            excess = self._ratio - length
            self._ratio = 1 / self._least
            if excess > 0:
                # Of the Gauss-Radau rule with a node at the least eigenvalue.
                self._ratio = excess / (self._least * excess + share)
        self._norm2, self.n_steps = norm2, self.n_steps + 1
