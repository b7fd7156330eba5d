"""Proximal Newton steps, for an l1 penalty and for losses with lines.

Each step minimises the quadratic model of a curvature sample plus the l1 penalty by
coordinate descent, so coefficients become exactly zero. Without an l1 penalty these are
Newton's steps with new curvature each time, which losses need that have none in places,
or suddenly much.
"""

import numpy as np
from scipy.linalg.blas import dasum

from sklearn_awsgd._kernels._models import minimize_l1_model
from sklearn_awsgd._linear.curvature import InverseCurvature
from sklearn_awsgd._linear.phases import descent
from sklearn_awsgd._linear.phases.descent import Direction, Proposal

# The first share of the largest curvature that is added where there is too little.
LEAST_FLOOR = 1e-4
# Slopes of coefficients that stay zero may exceed the penalty by so much, relatively.
KEPT_AT_ZERO = 1e-9
# Sweeps of coordinate descent for a quadratic model.
MAX_SWEEPS = 1000
# Between kinks, where they are soon followed by an exact solution for the coefficients
# that are not zero, and how often that may be. Chosen on "diabetes" and two generated
# sets: with offset features, sweeps alone creep.
SWEEPS_BEFORE_FACES = 100
MOST_FACES = 10
# Relative suboptimality that certifies that an exact solution is one.
SOLVED = 1e-10
# Curvature of a feature that rounding leaves where its mean is taken off, relatively.
LEAST_CENTERED = 1e-12


def add_l1_penalty(there, alpha_l1):
    """Return an Evaluation with an l1 penalty of its coefficients."""
    there.value += alpha_l1 * dasum(there.v[:-1])
    return there


def l1_change(w, step):
    """Return the change of the l1 norm by a step.

    Where signs stay, from the step itself: in a difference of norms small steps, of
    which the last digits of a solution are made, would be lost.
    """
    after = w + step
    # Products of signs: those of numbers may be out of range.
    stays = np.sign(w) * np.sign(after) > 0
    return np.where(stays, np.sign(w) * step, np.abs(after) - np.abs(w)).sum()


def take_intercept_off(hessian, gradient):
    """Return a model of features that are taken from their means.

    With the best intercept each, that is: of features with offsets, sweeps over the
    coefficients and the intercept would undo what each other did.

    Returns
    -------
    centered : ndarray of shape (n_columns, n_columns)
        Its curvature; the intercept goes with no coefficient.
    slopes : ndarray of shape (n_columns,)
        Its gradient.
    center : ndarray of shape (n_columns - 1,)
        What was taken off: the intercept of a step is less by its product with the
        coefficients.
    """
    along, slopes = hessian[:-1, -1], gradient.copy()
    center = along / hessian[-1, -1]
    slopes[:-1] -= gradient[-1] * center
    centered = hessian.copy()
    centered[:-1, :-1] -= np.outer(center, along)
    centered[:-1, -1] = centered[-1, :-1] = 0.0
    diagonal = np.einsum("ii->i", centered)
    # A feature that is constant has none, up to rounding.
    np.maximum(diagonal, LEAST_CENTERED * np.diagonal(hessian), out=diagonal)
    return centered, slopes, center


class ProximalDirection(Direction):
    """Proximal Newton directions, with an l1 penalty of strength `alpha_l1`."""

    def __init__(self, objective, tol, rng, alpha_l1):
        super().__init__(objective, tol, rng)
        cheap = objective.newton_flops() <= descent.CHEAP
        self.alpha_l1, self.exact = alpha_l1, objective.sharp and cheap
        self.by_faces = cheap and not self.exact
        self.goal = descent.ROUNDING if self.exact else tol
        self.n_rows = descent.first_sample_size(objective, cheap)
        self.floor, self.left = 0.0, np.inf
        # A curvature that stays, and whether its model was minimised exactly.
        self._lasting, self._is_solved = None, False
        objective.expect_curvature(self.n_rows, rng, self.floor)

    def evaluate(self, v):
        return add_l1_penalty(self.objective(v), self.alpha_l1)

    def propose(self, here, trail):
        scale = max(abs(here.value), 1e-300)
        # A model that was the objective and solved exactly leaves rounding only.
        enough = min(SOLVED, self.tol) if self._is_solved else 0.0
        goal = max(self.goal, enough)
        if here.gap <= goal * scale:
            return Proposal(np.zeros_like(here.v), 0.0, scale, 0.0, here.gap)
        step, last_gain = self._minimize_model(here)
        slope = here.gradient @ step
        if self.alpha_l1 > 0:
            slope += self.alpha_l1 * l1_change(here.v[:-1], step[:-1])
        # With curvature added, and between kinks, a model promises too little; so it
        # does of few rows, each of which may take its curvature away.
        objective = self.objective
        few = objective.n_samples < 2 * objective.n_columns
        sure = self.floor == 0 and objective.sharp and not (objective.has_jumps and few)
        sure = sure or trail.stands_still(self.tol * scale, descent.STILL)
        # So it does short of its own minimum: as many sweeps as were made may gain as
        # much again.
        sure &= MAX_SWEEPS * len(step) * last_gain <= self.tol * scale
        sure &= self.is_off_lines
        estimate = -slope if sure else np.inf
        left = -slope / 2
        if left > descent.SLOW_STEP * self.left and left < descent.NEAR * scale:
            self.n_rows = descent.larger_sample_size(
                self.n_rows, self.objective.n_samples
            )
        self.left = left
        # Out of passes the certificate decides, if there is one: along lines of the
        # losses many steps gain little each, and models promise too little.
        certified = here.gap if np.isfinite(here.gap) else estimate
        return Proposal(step, slope, scale, min(here.gap, estimate), certified)

    def _minimize_model(self, here):
        """Return the minimiser of the model, and what the last sweep gained at most."""
        hessian = self._hessian(here)
        if self.alpha_l1 == 0:
            inverse = InverseCurvature.from_hessian(hessian, cost=0.0)
            return -(inverse @ here.gradient), 0.0
        hessian = np.triu(hessian) + np.triu(hessian, 1).T
        centered, gradient, center = take_intercept_off(hessian, here.gradient)
        step = np.zeros_like(here.v)
        n_sweeps = SWEEPS_BEFORE_FACES if self.by_faces else MAX_SWEEPS
        for _ in range(MOST_FACES):
            step[-1] += center @ step[:-1]
            last_gain = minimize_l1_model(
                centered, gradient, here.v, self.alpha_l1, step, n_sweeps
            )
            step[-1] -= center @ step[:-1]
            if not self.exact and (last_gain == 0 or not self.by_faces):
                break
            if self._polish(hessian, here, step):
                self._is_solved = self._lasting is not None
                return step, 0.0
            if self.exact:
                break
        return step, last_gain

    def _hessian(self, here):
        """Return the upper triangle of a curvature; that of all rows may stay."""
        if self._lasting is not None:
            return self._lasting
        hessian, _ = self.objective.hessian(here, self.n_rows, self.rng, self.floor)
        takes_all = self.n_rows >= self.objective.n_samples and self.floor == 0
        if takes_all and self.objective.is_quadratic:
            self._lasting = hessian
        return hessian

    def _polish(self, hessian, here, step):
        """Solve exactly for the coefficients that coordinate descent left nonzero.

        Return whether that is the minimum: it keeps their signs, and leaves the others
        zero. Those that would change their sign become zero, one after the other; but a
        smooth loss may be a line, whose model holds no farther: the step stays.
        """
        v = here.v + step
        while True:
            signs = np.append(np.sign(v[:-1]), 0.0)
            active = np.append(v[:-1] != 0, True)
            slope = here.gradient + hessian @ (v - here.v) + self.alpha_l1 * signs
            inverse = InverseCurvature.from_hessian(
                hessian[np.ix_(active, active)], cost=0.0
            )
            change = np.zeros_like(v)
            change[active] = -(inverse @ slope[active])
            turned = signs * (v + change) < 0
            if not turned.any():
                break
            if self.exact:
                return False
            shares = np.where(turned, -v / np.where(turned, change, 1.0), np.inf)
            first = np.argmin(shares)
            v = np.where(active, v + shares[first] * change, 0.0)
            v[first] = 0.0
        step[:] = v + change - here.v
        slope = here.gradient[~active] + hessian[~active] @ step
        return bool((np.abs(slope) <= self.alpha_l1 * (1 + KEPT_AT_ZERO)).all())

    def last_word(self, here, new, proposal):
        """Trust the model once more where it is exact, unless the objective rises."""
        rises = new.value > here.value + self.lost * proposal.scale
        return here if rises or not self.exact else new

    def take(self, here, new, proposal, length, trail):
        """Take a step: less curvature has to be added."""
        self.count_off_lines(here, new, proposal, length)
        self.floor = self.floor / 8 if self.floor > LEAST_FLOOR else 0.0
        return new

    def stiffen(self, here, trail):
        if self.floor >= 1:
            return False
        self.floor = max(32 * self.floor, LEAST_FLOOR)
        return True
