"""What a stream minimises: a loss and penalties, relative to the rows so far."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from sklearn_awsgd._kernels import _losses, _stream

# Width over which the kinks of a loss are rounded, relative to the spread of the
# targets: the curvature of what is rounded estimates how dense the rows lie there.
KINK_WIDTH = 0.1
# Width over which the curvature of a loss with lines and parabolas is averaged: rows on
# a line have none, and would leave a past without any resistance.
AVERAGING = 0.5


@dataclass
class StreamProblem:
    """A loss and penalties.

    The objective after n rows is ``sum a_i f(y_i, z_i) + n (alpha_l1 ||w||_1 + alpha_l2
    ||w||^2 / 2)``, where n counts rows by their sample weights.

    Attributes
    ----------
    loss : Loss
        The compiled loss; one with kinks is rounded.
    alpha_l1, alpha_l2 : float
        Strengths of the penalties.
    memory_size : int
        Past rows to keep exact.
    averaging : float
        Width over which curvatures are averaged; 0 takes them as they are.
    """

    loss: object
    alpha_l1: float = 0.0
    alpha_l2: float = 0.0
    memory_size: int = 1000
    averaging: float = 0.0

    @classmethod
    def of(cls, loss, spread=1.0, **options):
        """Return the problem of a loss, for targets with a spread."""
        if not np.isfinite(loss.smoothness):
            return cls(loss.rounded(KINK_WIDTH * spread), **options)
        smooth = isinstance(loss, (_losses.LogLoss, _losses.SquaredError))
        return cls(loss, averaging=0.0 if smooth else AVERAGING * spread, **options)

    @property
    def is_log_loss(self):
        """Whether the loss is the negative logarithm of a probability."""
        return isinstance(self.loss, _losses.LogLoss)

    @property
    def is_quadratic(self):
        """Whether the past is a quadratic already, so that no row need be kept."""
        return isinstance(self.loss, _losses.SquaredError)

    def total(self, y, scores, a):
        """Return the sum of the losses; of softmax regression for scores of classes."""
        if scores.ndim == 2:
            return a @ (logsumexp(scores, axis=1) - scores[np.arange(len(y)), y])
        values = np.empty((3, len(y)))
        scores = np.ascontiguousarray(scores)
        return _stream.evaluate_rows(self.loss, y, scores, a, values)

    def evaluate(self, y, z, a, result):
        """Set the lines of `result` to a f and its two derivatives; return the sum."""
        total = _stream.evaluate_rows(self.loss, y, z, a, result)
        if self.averaging:
            other = np.empty_like(result)
            _stream.evaluate_rows(self.loss, y, z + self.averaging, a, other)
            result[2] = other[1]
            _stream.evaluate_rows(self.loss, y, z - self.averaging, a, other)
            result[2] -= other[1]
            result[2] /= 2 * self.averaging
        return total
