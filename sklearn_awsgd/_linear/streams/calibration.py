"""Probabilities from scores that were taken before a row was learned.

The optimum for a fixed strength of the penalty is too sure of itself on new rows, or
not sure enough. The scores of rows before they are learned are those of new rows: a
model with a slope, and an intercept, from score to class is learned from them, as a
quadratic with a window. Whether it is used is for the same losses to decide.
"""

import numpy as np
from scipy.special import expit, log_softmax, logsumexp

from sklearn_awsgd._kernels import _stream
from sklearn_awsgd._kernels._losses import LogLoss

# Rows that count, and the weight of a prior at slope 1 and intercept 0.
WINDOW, PRIOR = 3000.0, 5.0
# Rows before it begins, for each class of softmax regression, and the least and most
# that it takes in.
FIRST_ROWS, CHUNK, MOST_ROWS = 10, 250, 500
STEPS = 2
# The prior as such a quadratic, and the factors that are tried for softmax regression.
AT_START = PRIOR * np.array([1.0, 0.0, 1.0, 1.0, 0.0])
SLOPES = 0.1, 10.0
# What it has to make good before it is used, in logarithms of probabilities.
HANDICAP, FURTHEST = 3.0, 20.0
LOG_LOSS = LogLoss()


class Calibration:
    """From scores to scores whose probabilities are right, problem by problem.

    Parameters
    ----------
    n_problems : int
        Number of problems, each with two classes.
    in_parts : bool, default=False
        Whether the first of many scores are evidence for those behind them, so that it
        is used one chunk sooner. For wide streams, whose scores are far off from the
        beginning (newsgroups in chunks of 1,000: losses of .86 to .98, and .90 to .99
        when the balance drifts). In narrow ones what is off is drift as a rule, which
        is learned with the chunk (w8a when the balance drifts: 1.04).
    """

    def __init__(self, n_problems, in_parts=False):
        start = np.array([1.0, 0.0])
        self.in_parts = in_parts
        # Rows that the model of the last scores had learned, relative to all now. What
        # it had wrong, one of more rows has less of: used as it is, losses of mnist in
        # chunks of 1,000 rose by 2 %, with this share by .5 %.
        self.age = 1.0
        self.point = np.tile(start, (n_problems, 1))
        # A quadratic of each: the three numbers of its matrix, and two of its slope.
        self.known = np.zeros((n_problems, 5))
        # How far it is behind scores as they are.
        self.behind = np.full(n_problems, HANDICAP)
        self.pending, self.n_pending = [], 0

    def forget(self, k):
        """Begin anew with one problem."""
        self.point[k], self.known[k], self.behind[k] = (1.0, 0.0), 0.0, HANDICAP

    @property
    def parameters(self):
        """Slope and intercept of each problem, ndarray of shape (n_problems, 2)."""
        share = self.age * expit(-self.behind)[:, None]
        return share * self.point + (1 - share) * np.array([1.0, 0.0])

    def __call__(self, scores):
        """Return the scores to take probabilities from."""
        slope, intercept = self.parameters.T
        return scores * slope + intercept

    def observe(self, scores, targets, weights, missing, n_learned):
        """Take in the scores of rows before they were learned.

        Parameters
        ----------
        scores, targets : ndarrays of shape (n_rows, n_problems)
            Scores, and targets -1 or +1.
        weights : ndarray of shape (n_rows,)
            What the rows weigh.
        missing : list of bool
            Whether a class of each problem is missing: then the rows do not tell how
            often it comes, and are left out. As are those of a model that has only
            begun.
        n_learned : int
            Rows that had been learned before these.
        """
        if self.in_parts:
            self.age = n_learned / (n_learned + len(weights))
        if all(missing):
            return
        self.pending.append((scores, targets, weights, missing))
        self.n_pending += len(weights)
        if self.n_pending < CHUNK:
            return
        scores, targets, weights, missing = zip(*self.pending, strict=True)
        parts = zip(weights, np.logical_not(missing), strict=True)
        weights = [np.outer(counts, part) for part, counts in parts]
        stride = -(-self.n_pending // MOST_ROWS)
        self.pending, self.n_pending = [], 0
        scores, targets = np.concatenate(scores).T, np.concatenate(targets).T
        weights = stride * np.concatenate(weights, axis=1)
        n_rows = scores.shape[1]
        size = CHUNK * stride if self.in_parts else n_rows
        for start in range(0, n_rows, size):
            part = slice(start, start + size, stride)
            parts = scores[:, part], targets[:, part], weights[:, part]
            self._learn(*map(np.ascontiguousarray, parts))

    def _learn(self, scores, targets, weights):
        """Learn from scores, targets and weights of shape (n_problems, n_rows)."""
        totals, gains = weights.sum(axis=1), np.empty(5)
        values = np.empty((3, scores.shape[1]))
        for k, keep in enumerate(np.exp(-totals / WINDOW)):
            if totals[k] > 0:
                known = keep * self.known[k]
                rows = scores[k], targets[k], weights[k]
                raw = _stream.evaluate_rows(LOG_LOSS, rows[1], rows[0], rows[2], values)
                own = _stream.calibrate(
                    LOG_LOSS,
                    *rows,
                    self.point[k],
                    known + AT_START,
                    STEPS,
                    gains,
                )
                behind = keep * self.behind[k] + own - raw
                self.behind[k] = min(max(behind, -FURTHEST), FURTHEST)
                self.known[k] = known + gains


class Temperature:
    """As :class:`Calibration` for softmax regression: one factor of all scores."""

    def __init__(self):
        self.point, self.curvature, self.slope = 1.0, 0.0, 0.0
        self.seen, self.behind = 0.0, HANDICAP
        self.pending, self.n_pending = [], 0

    def __call__(self, scores):
        """Return the scores to take probabilities from."""
        share = expit(-self.behind)
        return scores * (share * self.point + 1 - share)

    def observe(self, scores, codes, weights, missing):
        """Take in the scores of rows before they were learned."""
        if all(missing):
            return
        self.pending.append((scores, codes, weights))
        self.n_pending += len(weights)
        if self.n_pending < CHUNK:
            return
        scores, codes, weights = (
            np.concatenate(part) for part in zip(*self.pending, strict=True)
        )
        self.pending, self.n_pending = [], 0
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
