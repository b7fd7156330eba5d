"""All problems of a stream: what an estimator keeps between calls of partial_fit."""

import copy

import numpy as np
from scipy import sparse

from sklearn_awsgd._linear.streams.bank import Bank
from sklearn_awsgd._linear.streams.calibration import Calibration, Temperature
from sklearn_awsgd._linear.streams.diagonal import SoftmaxStream, WideStream
from sklearn_awsgd._linear.streams.narrow import NarrowStream

# Up to this many features the past is a full quadratic. Its work grows with the square
# of what is not zero in a row, and for each chunk with the cube of the features.
NARROW_DENSE, NARROW_SPARSE = 200, 400
# Rows that learners remember under forgetting="auto", and the same for each feature.
WINDOWS = np.inf, 2500.0
WINDOW_PER_FEATURE = 10.0


def choose_windows(forgetting, n_features):
    """Return the windows that a value of the parameter `forgetting` stands for."""
    if isinstance(forgetting, str):
        return WINDOWS[0], max(WINDOWS[1], WINDOW_PER_FEATURE * n_features)
    return (1 / forgetting if forgetting > 0 else np.inf,)


class WideBank:
    """Wide streams with several windows, weighted by their evidence."""

    def __init__(self, first, windows):
        self.learners, self.bank = [first], Bank(windows)

    @property
    def v(self):
        """The coefficients, the intercept last."""
        if len(self.learners) == 1:
            return self.learners[0].w
        weights = self.bank.weights(len(self.learners))
        total = weights[0] * self.learners[0].w
        for weight, learner in zip(weights[1:], self.learners[1:], strict=True):
            total += weight * learner.w
        return total

    def learn(self, problem, X, sizes, y, a, count):
        """Learn a chunk; see :meth:`NarrowStream.learn`."""
        losses = []
        if len(self.learners) > 1:
            losses = [learner.loss(problem, X, y, a) for learner in self.learners]
        for learner in self.learners:
            learner.learn(problem, X, sizes, y, a, count)
        if losses:
            winner = self.bank.observe(losses, a.sum(), learner.is_likelihood(problem))
            for k in range(winner):
                window = self.learners[k].window
                self.learners[k] = copy.deepcopy(self.learners[winner])
                self.learners[k].window = window
        n = len(self.learners)
        if self.bank.is_due(n, self.learners[0].n):
            learner = copy.deepcopy(self.learners[0])
            learner.window = self.bank.windows[n]
            self.learners.append(learner)

    def merge(self, problem, other):
        """Take in what another stream has learned."""
        del self.learners[1:]
        self.learners[0].merge(problem, other.learners[0])

    @property
    def memory(self):
        """Targets and weights of the rows in the memory."""
        return self.learners[0].y, self.learners[0].a


class StreamLearner:
    """What is known of a stream: a model for each problem, and its calibration.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_rows, n_features)
        Rows like those to come.
    n_problems : int
        Number of problems.
    n_classes : int, default=0
        Classes of softmax regression, which is one problem; 0 for other losses.
    fit_intercept : bool, default=True
        Whether intercepts are free.
    forgetting : "auto" or float, default="auto"
        What share of the past each row replaces.
    seed : int, default=0
        Seed of the visits of wide streams.
    """

    def __init__(
        self,
        X,
        n_problems,
        *,
        n_classes=0,
        fit_intercept=True,
        forgetting="auto",
        seed=0,
    ):
        n_features = X.shape[1]
        windows = choose_windows(forgetting, n_features)
        self.is_softmax = n_classes > 0
        limit = NARROW_SPARSE if sparse.issparse(X) else NARROW_DENSE
        self.is_narrow = n_features <= limit and not self.is_softmax
        self.streams = []
        for k in range(n_problems):
            if self.is_narrow:
                stream = NarrowStream(X, fit_intercept, windows)
            elif self.is_softmax:
                first = SoftmaxStream(X, n_classes, fit_intercept, windows[0], seed)
                stream = WideBank(first, windows)
            else:
                first = WideStream(X, fit_intercept, windows[0], seed + k)
                stream = WideBank(first, windows)
            self.streams.append(stream)
        self.calibration = Temperature() if n_classes else Calibration(n_problems)
        self.n_rows = 0

    def coefficients(self):
        """Return coefficients and intercepts, ndarray of shape (n_models, p)."""
        if self.is_softmax:
            return self.streams[0].v.T
        return np.array([stream.v for stream in self.streams])

    def learn(self, problem, X, sizes, targets, a, count):
        """Learn a chunk.

        Parameters
        ----------
        problem : StreamProblem
            Loss and penalties.
        X : ndarray or CSR of shape (n_rows, n_features)
            The rows.
        sizes : ndarray of shape (n_rows,)
            Their squared norms.
        targets : list of ndarray of shape (n_rows,)
            Targets of each problem.
        a : ndarray of shape (n_rows,)
            Weights.
        count : float
            Sum of the sample weights.
        """
        if self.n_rows and (problem.is_log_loss or self.is_softmax):
            v = self.coefficients()
            scores = X @ v[:, :-1].T + v[:, -1]
            target = targets[0] if self.is_softmax else np.stack(targets, axis=1)
            self.calibration.observe(scores, target, a)
        for stream, target in zip(self.streams, targets, strict=True):
            stream.learn(problem, X, sizes, target, a, count)
        self.n_rows += len(a)

    def merge(self, problem, other):
        """Take in what another learner of the same kind has learned."""
        for mine, theirs in zip(self.streams, other.streams, strict=True):
            mine.merge(problem, theirs)
        self.n_rows += other.n_rows
