"""Probabilities from scores that were taken before a row was learned.

The optimum for a fixed strength of the penalty is too sure of itself on new rows, or
not sure enough. The scores of rows before they are learned are those of new rows: a
model with a slope, and an intercept, from score to class is learned from them, as a
quadratic with a window. Whether it is used is for the same losses to decide.
"""

import numpy as np
from scipy.special import expit, log_softmax, logsumexp

# Rows that count, and the weight of a prior at slope 1 and intercept 0.
WINDOW, PRIOR = 3000.0, 5.0
# Rows of either class before it begins, and the least and most that it takes in.
FIRST_ROWS, CHUNK, MOST_ROWS = 10, 250, 500
STEPS = 2
SLOPES = 0.1, 10.0
# What it has to make good before it is used, in logarithms of probabilities.
HANDICAP, FURTHEST = 3.0, 20.0


class Calibration:
    """From scores to scores whose probabilities are right, problem by problem.

    Parameters
    ----------
    n_problems : int
        Number of problems, each with two classes.
    """

    def __init__(self, n_problems):
        start = np.array([1.0, 0.0])
        self.point = np.tile(start, (n_problems, 1))
        self.curvature = np.zeros((n_problems, 3))
        self.slope = np.zeros((n_problems, 2))
        self.seen = np.zeros((n_problems, 2))
        # How far it is behind scores as they are.
        self.behind = np.full(n_problems, HANDICAP)
        self.pending = []

    @property
    def parameters(self):
        """Slope and intercept of each problem, ndarray of shape (n_problems, 2)."""
        share = expit(-self.behind)[:, None]
        return share * self.point + (1 - share) * np.array([1.0, 0.0])

    def __call__(self, scores):
        """Return the scores to take probabilities from."""
        slope, intercept = self.parameters.T
        return scores * slope + intercept

    def observe(self, scores, targets, weights):
        """Take in the scores of rows before they were learned.

        Parameters
        ----------
        scores, targets : ndarrays of shape (n_rows, n_problems)
            Scores, and targets -1 or +1.
        weights : ndarray of shape (n_rows,)
            What the rows weigh.
        """
        self.pending.append((scores, targets, weights))
        if sum(len(part[0]) for part in self.pending) < CHUNK:
            return
        scores, targets, weights = (
            np.concatenate(part) for part in zip(*self.pending, strict=True)
        )
        self.pending = []
        stride = -(-len(weights) // MOST_ROWS)
        self._learn(
            np.ascontiguousarray(scores[::stride].T),
            np.ascontiguousarray(targets[::stride].T),
            stride * weights[::stride],
        )

    def _learn(self, scores, targets, weights):
        """Learn from scores and targets of shape (n_problems, n_rows)."""
        ready = self.seen.min(axis=1) >= FIRST_ROWS
        positive = targets > 0
        self.seen += np.stack([~positive @ weights, positive @ weights], axis=1)
        if not ready.any():
            return
        keep = np.exp(-weights.sum() / WINDOW)
        slope, intercept = self.point.T[:, :, None]
        raw = np.logaddexp(0, -targets * scores) @ weights
        own = np.logaddexp(0, -targets * (scores * slope + intercept)) @ weights
        behind = keep * self.behind + np.where(ready, own - raw, 0)
        self.behind = np.clip(behind, -FURTHEST, FURTHEST)
        # The three numbers of a symmetric matrix for each problem, and two of a vector.
        a, b, c = (keep * self.curvature).T + np.array([[PRIOR], [0.0], [PRIOR]])
        d, e = (keep * self.slope).T + np.array([[PRIOR], [0.0]])
        slope, intercept = self.point.T
        powers = np.stack([np.ones_like(scores), scores, scores * scores], axis=2)
        for step in range(STEPS + 1):
            p = expit(scores * slope[:, None] + intercept[:, None])
            g = weights * (p - positive)
            h = weights * p * (1 - p)
            g0, g1 = np.matmul(g[:, None], powers[..., :2])[:, 0].T
            h0, h1, h2 = np.matmul(h[:, None], powers)[:, 0].T
            if step == STEPS:
                break
            r1 = g1 + a * slope + b * intercept - d
            r0 = g0 + b * slope + c * intercept - e
            determinant = (a + h2) * (c + h0) - (b + h1) ** 2
            slope = slope - ((c + h0) * r1 - (b + h1) * r0) / determinant
            intercept = intercept - ((a + h2) * r0 - (b + h1) * r1) / determinant
            slope = np.clip(slope, *SLOPES)
        self.point[ready] = np.stack([slope, intercept], axis=1)[ready]
        self.curvature[ready] = np.stack(
            [a - PRIOR + h2, b + h1, c - PRIOR + h0], axis=1
        )[ready]
        self.slope[ready] = np.stack(
            [
                d - PRIOR + h2 * slope + h1 * intercept - g1,
                e + h1 * slope + h0 * intercept - g0,
            ],
            axis=1,
        )[ready]


class Temperature:
    """As :class:`Calibration` for softmax regression: one factor of all scores."""

    def __init__(self):
        self.point, self.curvature, self.slope = 1.0, 0.0, 0.0
        self.seen, self.behind, self.pending = 0.0, HANDICAP, []

    def __call__(self, scores):
        """Return the scores to take probabilities from."""
        share = expit(-self.behind)
        return scores * (share * self.point + 1 - share)

    def observe(self, scores, codes, weights):
        """Take in the scores of rows before they were learned."""
        self.pending.append((scores, codes, weights))
        if sum(len(part[0]) for part in self.pending) < CHUNK:
            return
        scores, codes, weights = (
            np.concatenate(part) for part in zip(*self.pending, strict=True)
        )
        self.pending = []
        self.seen += weights.sum()
        if self.seen < FIRST_ROWS * scores.shape[1]:
            return
        keep = np.exp(-weights.sum() / WINDOW)
        own = scores[np.arange(len(codes)), codes]

        def loss(factor):
            return weights @ (logsumexp(factor * scores, axis=1) - factor * own)

        behind = keep * self.behind + loss(self.point) - loss(1.0)
        self.behind = float(np.clip(behind, -FURTHEST, FURTHEST))
        self.curvature *= keep
        self.slope *= keep
        point = self.point
        for step in range(STEPS + 1):
            p = np.exp(log_softmax(point * scores, axis=1))
            mean = (p * scores).sum(axis=1)
            g = weights @ (mean - own)
            h = weights @ ((p * scores * scores).sum(axis=1) - mean * mean)
            if step == STEPS:
                break
            total = g + (self.curvature + PRIOR) * point - self.slope - PRIOR
            point -= total / (h + self.curvature + PRIOR)
            point = float(np.clip(point, *SLOPES))
        self.curvature += h
        self.slope += h * point - g
        self.point = point
