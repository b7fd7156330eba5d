"""All problems of a stream: what an estimator keeps between calls of partial_fit."""

import copy

import numpy as np
from scipy import sparse

from sklearn_awsgd._linear.streams.bank import Bank
from sklearn_awsgd._linear.streams.calibration import CHUNK, Calibration, Temperature
from sklearn_awsgd._linear.streams.contest import Contest
from sklearn_awsgd._linear.streams.diagonal import SoftmaxStream, WideStream
from sklearn_awsgd._linear.streams.narrow import NarrowStream
from sklearn_awsgd._linear.streams.presence import FIRST_ROWS, Presence

# Up to this many features the past is a full quadratic. Its work grows with the square
# of what is not zero in a row, and for each chunk with the cube of the features.
NARROW_DENSE, NARROW_SPARSE = 200, 400
# Rows that the learner which forgets remembers under forgetting="auto": so many for
# each feature, between two limits. The other one remembers as many between two others,
# the second of which is a share of what the first remembers.
SHORTEST_WINDOW, LONGEST_WINDOW, WINDOW_PER_FEATURE = 2500.0, 5000.0, 10.0
SHORTEST_QUICK, QUICKER = 250.0, 5.0
# A stream begins anew when targets fall with the scores that rows had before they were
# learned, by so many standard deviations, in a chunk of at least so many rows.
CONTRADICTION, FEWEST_TO_CONTRADICT = 5.0, 50


def is_narrow(X):
    """Return whether rows like those of X are worth a full quadratic."""
    return X.shape[1] <= (NARROW_SPARSE if sparse.issparse(X) else NARROW_DENSE)


def choose_windows(forgetting, n_features, narrow):
    """Return the windows that a value of the parameter `forgetting` stands for.

    Learners of narrow streams cost little beside the first: the quickest is the first
    to have enough rows. Those of wide streams come on demand, the quickest last.
    """
    if isinstance(forgetting, str):
        wanted = WINDOW_PER_FEATURE * n_features
        window = min(max(SHORTEST_WINDOW, wanted), LONGEST_WINDOW)
        quick = min(max(SHORTEST_QUICK, wanted), window / QUICKER)
        others = quick, window
        return np.inf, *(others if narrow else others[::-1])
    return (1 / forgetting if forgetting > 0 else np.inf,)


def contradicts(scores, targets):
    """Return whether targets fall with the scores, beyond any chance."""
    n = len(targets)
    # As a rule they rise, which three sums tell.
    rise = n * (scores @ targets) >= scores.sum() * targets.sum()
    if n < FEWEST_TO_CONTRADICT or rise:
        return False
    product = (scores - scores.mean()) * (targets - targets.mean())
    return product.sum() < -CONTRADICTION * np.sqrt(product @ product)


class WideBank:
    """Wide streams with several windows, weighted by their evidence."""

    def __init__(self, first, windows):
        self.learners, self.bank = [first], Bank(windows, on_demand=True)

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

    def learn(self, problem, X, sizes, y, a, count, balanced=True):
        """Learn a chunk; see :meth:`NarrowStream.learn`."""
        losses = []
        if len(self.bank.windows) > 1 and balanced:
            losses = [learner.loss(problem, X, y, a) for learner in self.learners]
        for learner in self.learners:
            learner.learn(problem, X, sizes, y, a, count, balanced)
        if losses:
            winner = self.bank.observe(losses, a.sum(), problem.is_log_loss)
            for k in range(winner):
                window = self.learners[k].window
                self.learners[k] = copy.deepcopy(self.learners[winner])
                self.learners[k].window = window
        if not balanced:
            return
        n = len(self.learners)
        if self.bank.is_over(n - 1):
            self.learners.pop()
        elif self.bank.is_due(n, self.learners[0].n):
            learner = copy.deepcopy(self.learners[-1])
            learner.window = self.bank.windows[n]
            learner.rescale(min(learner.window / learner.n, 1.0))
            self.learners.append(learner)

    def merge(self, problem, other):
        """Take in what another stream has learned."""
        del self.learners[1:]
        self.learners[0].merge(problem, other.learners[0])

    @property
    def memory(self):
        """Targets, weights and curvatures of the rows in the memory."""
        return self.learners[0].memory

    @property
    def n_settled(self):
        """How often the memory has changed."""
        return self.learners[0].n_settled

    def seed(self, problem, curvature, v, n):
        """Begin where a fit has ended."""
        self.learners[0].seed(problem, curvature, v, n)

    def rescale(self, factor):
        """Multiply all weights with a factor."""
        for learner in self.learners:
            learner.rescale(factor)


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
    has_signs : bool, default=True
        Whether the targets of other losses are -1 and +1, for classes.
    fit_intercept : bool, default=True
        Whether intercepts are free.
    forgetting : "auto" or float, default="auto"
        What share of the past each row replaces.
    seed : int, default=0
        Seed of the visits of wide streams.
    """

    # What `coefficients` has returned since the last change.
    _coefficients = None

    def __init__(
        self,
        X,
        n_problems,
        *,
        n_classes=0,
        has_signs=True,
        fit_intercept=True,
        forgetting="auto",
        seed=0,
    ):
        self.is_softmax = n_classes > 0
        self.is_narrow = is_narrow(X) and not self.is_softmax
        self.windows = choose_windows(forgetting, X.shape[1], self.is_narrow)
        self._given = n_classes, bool(fit_intercept), seed
        self.streams = [self._new_stream(X, k) for k in range(n_problems)]
        self.calibration = (
            Temperature()
            if n_classes
            else Calibration(n_problems, in_parts=not self.is_narrow)
        )
        self.presences = []
        if n_classes or has_signs:
            self.presences = [Presence(n_classes or 2) for _ in range(n_problems)]
        self.n_rows = 0
        # Sample weight that counts as one row.
        self.unit = 1.0
        # Number, mean and sum of squares about it of real targets.
        self.targets = 0, 0.0, 0.0

    def __getstate__(self):
        return self.__dict__ | {"_coefficients": None}

    def _new_stream(self, X, k):
        """Return a stream that nothing has been learned from, for one problem."""
        windows, (n_classes, fit_intercept, seed) = self.windows, self._given
        if self.is_narrow:
            stream = NarrowStream(X, fit_intercept, windows)
        elif self.is_softmax:
            first = SoftmaxStream(X, n_classes, fit_intercept, windows[0], seed)
            stream = WideBank(first, windows)
        else:
            first = WideStream(X, fit_intercept, windows[0], seed + k)
            stream = WideBank(first, windows)
        return Contest(stream, len(windows) > 1)

    def seed(self, problem, seeds):
        """Begin where a fit has ended.

        Parameters
        ----------
        problem : StreamProblem
            Loss and penalties.
        seeds : list of tuple of (curvature, v, n)
            Of each problem: the curvature of all losses, or its diagonal for wide data;
            the coefficients, the intercept last; and the rows.
        """
        for stream, (curvature, v, n) in zip(self.streams, seeds, strict=True):
            stream.seed(problem, curvature, v, n)
        self._coefficients = None

    def rescale(self, factor):
        """Multiply all weights with a factor."""
        if factor != 1.0:
            for stream in self.streams:
                stream.rescale(factor)

    def spread(self, y):
        """Return how far apart real targets are, those given and all before."""
        count, mean, square = self.targets
        n = count + len(y)
        mean_after = mean + (y.sum() - len(y) * mean) / n
        square = square + (y - mean) @ (y - mean_after)
        self.targets = n, mean_after, square
        return np.sqrt(square / n) or 1.0

    def coefficients(self):
        """Return coefficients and intercepts, ndarray of shape (n_models, p)."""
        if self._coefficients is None and self.is_softmax:
            self._coefficients = self.streams[0].v.T
        elif self._coefficients is None:
            self._coefficients = np.array([stream.v for stream in self.streams])
        return self._coefficients

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

        Returns
        -------
        losses : ndarray of shape (n_problems,)
            Mean loss of the rows before they were learned.
        """
        v = self.coefficients()
        scores = X @ v[:, :-1].T + v[:, -1]
        balanced, missing = [True] * len(targets), [False] * len(targets)
        few = [self.n_rows < CHUNK or not p.have_come for p in self.presences]
        for k, presence in enumerate(self.presences):
            codes = targets[k] if self.is_softmax else targets[k] > 0
            missing[k], begun = presence.observe(codes)
            balanced[k] = begun and not missing[k]
        if len(self.windows) > 1 and not self.is_softmax:
            for k, target in enumerate(targets):
                if balanced[k] and contradicts(scores[:, k], target):
                    self.streams[k] = self._new_stream(X, k)
                    self.calibration.forget(k)
                    missing[k] = True
        if self.presences and self.n_rows and problem.is_log_loss:
            if self.is_softmax:
                self.calibration.observe(scores, targets[0], a, missing)
            else:
                # Scores of a model of few rows say nothing about those of later ones.
                missing = np.logical_or(missing, few)
                rows = scores, np.stack(targets, axis=1), a
                self.calibration.observe(*rows, missing, self.n_rows)
        late = [
            stream.learn(problem, X, sizes, targets[k], a, count, balanced[k])
            for k, stream in enumerate(self.streams)
        ]
        if not self.n_rows and self.presences and problem.is_log_loss:
            self._calibrate_early(late, targets, a)
        self.n_rows, self._coefficients = self.n_rows + len(a), None
        return self._losses(problem, scores, targets, a)

    def _calibrate_early(self, late, targets, a):
        """Calibrate wide streams with what the contests say of the first chunk.

        Parameters
        ----------
        late : list of ndarray or None
            Scores of its second half before it was learned, for each problem.
        targets, a : list of ndarray, and ndarray of shape (n_rows,)
            Targets of each problem, and weights.
        """
        n_late = max(0 if scores is None else len(scores) for scores in late)
        half = len(a) - n_late
        if self.is_softmax or self.is_narrow or not n_late or half < CHUNK:
            return
        few, columns = [], []
        for scores, target in zip(late, targets, strict=True):
            n_positive = np.count_nonzero(target[:half] > 0)
            rare = min(n_positive, half - n_positive) < FIRST_ROWS
            few.append(scores is None or rare)
            columns.append(np.zeros(n_late) if scores is None else scores)
        rest = [target[half:] for target in targets]
        rows = np.stack(columns, axis=1), np.stack(rest, axis=1), a[half:]
        self.calibration.observe(*rows, few, half)

    def _losses(self, problem, scores, targets, a):
        parts = [scores] if self.is_softmax else scores.T
        pairs = zip(targets, parts, strict=True)
        return np.array([problem.total(y, z, a) for y, z in pairs]) / a.sum()

    def memory(self, k):
        """Return targets and relative curvatures of the rows in a memory."""
        y, a, h = self.streams[k].memory
        return y, h / np.maximum(a, 1e-300)

    @property
    def n_settled(self):
        """How often memories have changed."""
        return self.streams[0].n_settled

    def merged_spread(self, other):
        """Return how far apart the real targets of two learners are."""
        (n, mean, square), (count, other_mean, other_square) = (
            self.targets,
            other.targets,
        )
        total = n + count
        if total == 0:
            return 1.0
        gap = (mean - other_mean) ** 2 * n * count / total
        self.targets = (
            total,
            (n * mean + count * other_mean) / total,
            square + other_square + gap,
        )
        return np.sqrt(self.targets[2] / total) or 1.0

    def merge(self, problem, other):
        """Take in what another learner of the same kind has learned."""
        other.rescale(other.unit / self.unit)
        for mine, theirs in zip(self.streams, other.streams, strict=True):
            mine.merge(problem, theirs)
        for mine, theirs in zip(self.presences, other.presences, strict=True):
            mine.merge(theirs)
        self.n_rows, self._coefficients = self.n_rows + other.n_rows, None
