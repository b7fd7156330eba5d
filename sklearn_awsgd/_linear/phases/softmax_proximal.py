"""Proximal Newton steps for softmax regression with an l1 penalty.

For all classes together; their quadratic models are minimised by coordinate descent, so
coefficients become exactly zero.
"""

import numpy as np

from sklearn_awsgd._kernels._models import SoftmaxModel
from sklearn_awsgd._linear.phases.descent import (
    CHEAP,
    ROUNDING,
    STILL,
    Direction,
    Proposal,
)

# Numbers in the rows that the curvature is taken from.
NUMBERS_IN_SAMPLE = 20_000_000
# Sweeps of coordinate descent for one quadratic model of all classes.
SOFTMAX_SWEEPS = 100
# Precision of the first of these, and that from which on it tells the suboptimality.
FIRST_PRECISION = 1e-2
SURE_PRECISION = 1e-3
# What a model promises is multiplied with to be on the safe side: steps are damped.
MARGIN = 4.0
# Least curvature of a coordinate, as a share of the largest it can have: where all rows
# are fitted well there is next to none, and steps would be far too long.
LEAST_SHARE = 1e-8
# The first damping where steps were too long, a share of the same.
FIRST_DAMPING = 1e-3


class SoftmaxProximalDirection(Direction):
    """Proximal Newton directions of a SoftmaxObjective.

    Unlike the other directions these look for rounding after the last trial only, and
    their damping has no end.
    """

    # Ten trials, each half as long as the one before.
    shortest, cut = 2.0**-9, 1 / 2

    def __init__(self, objective, tol, rng, alpha_l1):
        super().__init__(objective, tol, rng)
        self.alpha_l1 = alpha_l1
        self.shape = (objective.n_classes, objective.n_columns)
        self.sample = objective.sums.sample_columns(
            NUMBERS_IN_SAMPLE, objective.fit_intercept, rng
        )
        # As for `NewtonDirection`: where passes cost nothing, rounding decides.
        exact = objective.newton_flops() <= CHEAP
        self.goal = ROUNDING if exact else max(tol, 1e-14)
        self.max_sweeps = 50 * SOFTMAX_SWEEPS if exact else SOFTMAX_SWEEPS
        # Far from the optimum the model is not worth much work.
        self.precision = ROUNDING if exact else FIRST_PRECISION
        self.damping = 0.0

    def evaluate(self, v):
        """Return the Evaluation at the cheapest shift, with the l1 penalty."""
        V = center(v.reshape(self.shape), self.alpha_l1, self.objective.alpha)
        there = self.objective(self.objective.canonical(V.ravel()))
        there.value += self.alpha_l1 * np.abs(V[:, :-1]).sum()
        return there

    def propose(self, here, trail):
        V = here.v.reshape(self.shape)
        D, solved = self._minimize_model(here)
        step = D.ravel()
        slope = np.sum(here.gradient * step) + self.alpha_l1 * (
            np.abs(V[:, :-1] + D[:, :-1]).sum() - np.abs(V[:, :-1]).sum()
        )
        scale = max(abs(here.value), 1e-300)
        sure = solved and self.precision < SURE_PRECISION and self.is_off_lines
        sure = sure or trail.rest(1) <= self.goal * scale
        if self.damping > LEAST_SHARE:
            # Damped steps promise less than there is, and some of them gain little.
            sure = trail.stands_still(self.tol * scale, STILL)
        bound = min(-MARGIN * slope if sure else np.inf, here.gap)
        return Proposal(step, slope, scale, bound, bound)

    def _minimize_model(self, here):
        """Return the minimiser of the model, and whether it was reached."""
        sample = self.sample
        p = self.objective.sums.probabilities(here.v, sample.rows)[1]
        p = np.ascontiguousarray(p.T)
        diagonal = np.ascontiguousarray(
            (sample.squares @ (sample.weights * p * (1 - p)).T).T
        )
        # No class can have more curvature than half of this.
        ridge = (LEAST_SHARE + self.damping) / 2 * (sample.squares @ sample.weights)
        ridge[:-1] += self.objective.alpha
        ridge += 1e-300
        diagonal += ridge
        model = SoftmaxModel(sample.columns, sample.weights * p, p, diagonal, ridge)
        gradient = here.gradient.reshape(self.shape).copy()
        gradient[:, :-1] -= gradient[:, -1:] * sample.center
        D, solved = model.minimize(
            gradient,
            here.v.reshape(self.shape),
            self.alpha_l1,
            self.objective.fit_intercept,
            self.precision,
            self.max_sweeps,
        )
        # What intercepts are without the center.
        D[:, -1] -= D[:, :-1] @ sample.center
        return D, solved

    def is_lost(self, here, new, proposal, length):
        is_last = self.cut * length < self.shortest
        return is_last and super().is_lost(here, new, proposal, length)

    def take(self, here, new, proposal, length, trail):
        """Take a step: the next model is worth more work."""
        self.count_off_lines(here, new, proposal, length)
        if length == 1:
            self.damping /= 4
        else:
            self.damping = max(self.damping, FIRST_DAMPING)
        self.precision = max(self.precision / 4, ROUNDING)
        return new

    def stiffen(self, here, trail):
        """Damp the next step more."""
        self.damping = max(4 * self.damping, FIRST_DAMPING)
        return True


def center(V, alpha_l1, alpha_l2):
    """Shift each feature's coefficients to where their common shift costs least.

    The predictions do not depend on it, so no curvature would tell.
    """
    W = V[:, :-1]
    K = len(W)
    if alpha_l2 > 0:
        # The median formula of a sum of distances plus a square.
        reach = alpha_l1 / (K * alpha_l2) * (K - 2 * np.arange(K + 1))
        shift = np.median(np.vstack([W, W.mean(axis=0) + reach[:, None]]), axis=0)
    else:
        # All between two medians cost the same: that next to zero.
        ordered = np.sort(W, axis=0)
        shift = np.clip(0.0, ordered[(K - 1) // 2], ordered[K // 2])
    shift[np.abs(shift) <= 1e-12 * np.abs(W).max(axis=0)] = 0
    return np.hstack([W - shift, V[:, -1:]])
