"""Several strengths of the penalty at once, until one of them predicts best.

While there are few rows for each coefficient, the strength of the penalty decides how
well a model predicts, and the one that was given is a guess. Streams with others take
part in a contest: they are weighted by the losses of rows before these were learned,
and those that are far behind are out.
"""

import copy
from dataclasses import replace

import numpy as np

# Strengths of the others, relative to the one that was given. They are those of a prior
# that is worth this many rows, so that they do not grow with the rows that come after,
# and what was given takes over from stronger ones in the end. (The weaker one is for
# text, whose classes words tell apart: newsgroups 10 in chunks of 1,000 .88 of the loss
# without it, 11 other streams the same. Two weaker ones were no better.)
OTHERS, PRIOR_ROWS = (1 / 6, 6.0, 36.0, 216.0), 1000.0
# The one that was given, and a prior of its strength that does not grow either.
GIVEN, CONSTANT = 1.0, 0.0
# What the others have to make good, and what they are out with, in logarithms of
# probabilities.
HANDICAP, OUT = 3.0, 10.0
# Rows before which nobody is out; rows before which the best does not go on alone, and
# rows for each coefficient after which it does. On 30 streams of bench_streams.py and
# others losses are 1.000 (at most 1.003) of those with 1,000, 1,000 and 50.
ROWS_TO_DROP, ROWS_TO_DECIDE, ROWS_PER_COEFFICIENT = 300.0, 1000.0, 20.0
# A first chunk of at least so many rows is learned in two halves: the second is the
# first evidence, unless either has rows of one class alone.
FIRST_CHUNK = 20


class Contest:
    """One stream for each strength of the penalty; see :class:`NarrowStream`.

    Parameters
    ----------
    stream : NarrowStream or WideBank
        A stream that nothing has been learned from.
    is_open : bool, default=True
        Whether other strengths than the one that was given may take part.

    Attributes
    ----------
    streams : list of streams
        Those that are still in.
    factors : list of float
        Their strengths.
    losses : ndarray of shape (n_streams,)
        Discounted loss of each, less that of the best.
    """

    def __init__(self, stream, is_open=True):
        self.streams, self.factors, self.losses = [stream], [GIVEN], np.zeros(1)
        self.is_open, self.n, self.mean_loss = bool(is_open), 0.0, 0.0

    @property
    def behind(self):
        """How far each is behind the best, ndarray of shape (n_streams,)."""
        behind = self.losses + HANDICAP * (np.array(self.factors) != GIVEN)
        return behind - behind.min()

    @property
    def best(self):
        """The stream that predicts best."""
        if len(self.streams) == 1:
            return self.streams[0]
        return self.streams[int(self.behind.argmin())]

    @property
    def v(self):
        """The coefficients, weighted by evidence; the intercept last."""
        if len(self.streams) == 1:
            return self.streams[0].v
        weights = np.exp(-self.behind)
        weights /= weights.sum()
        pairs = zip(weights, self.streams, strict=True)
        return sum(weight * stream.v for weight, stream in pairs)

    @property
    def memory(self):
        """Targets, weights and curvatures of the rows in the memory."""
        return self.best.memory

    @property
    def n_settled(self):
        """How often the memory has changed."""
        return self.best.n_settled

    def learn(self, problem, X, sizes, y, a, count, balanced=True):
        """Learn a chunk; see :meth:`NarrowStream.learn`.

        Returns
        -------
        scores : ndarray or None
            Of the second half of the first chunk, before it was learned.
        """
        if self.is_open and (problem.alpha_l2 == 0 or problem.alpha_l1 > 0):
            self.close()
        if not self.is_open:
            self._learn(problem, X, sizes, y, a, count, balanced)
            return None
        n_rows = half = len(y)
        if begins := self.n == 0:
            for factor in OTHERS:
                self._admit(factor)
            half = n_rows // 2
            if n_rows < FIRST_CHUNK or min(np.ptp(y[:half]), np.ptp(y[half:])) == 0:
                half = n_rows
        for part in (slice(half), slice(half, n_rows)):
            if rows := len(y[part]):
                chunk = X[part], sizes[part], y[part], a[part], count * rows / n_rows
                scores = self._learn(problem, *chunk, balanced)
        if self.n > max(ROWS_TO_DECIDE, ROWS_PER_COEFFICIENT * len(self.v)):
            self.close()
        return scores if begins else None

    def _learn(self, problem, X, sizes, y, a, count, balanced):
        scores = None
        if len(self.streams) > 1 and self.n > 0 and balanced:
            scores = self._observe(problem, X, y, a)
        begins = self.is_open and self.n <= PRIOR_ROWS < self.n + count
        if begins and self.factors[0] == GIVEN:
            # Until now it has been the same as what was given.
            self._admit(CONSTANT)
        self.n += count
        share = min(1.0, PRIOR_ROWS / max(self.n, 1e-300))
        for factor, stream in zip(self.factors, self.streams, strict=True):
            own = problem
            if factor != GIVEN:
                strength = share if factor == CONSTANT else factor * share
                if factor > GIVEN:
                    strength = max(strength, GIVEN)
                own = replace(problem, alpha_l2=strength * problem.alpha_l2)
            stream.learn(own, X, sizes, y, a, count, balanced)
        return scores

    def _observe(self, problem, X, y, a):
        """Take in the losses of a chunk that has not been learned.

        Returns
        -------
        scores : ndarray
            Those of the streams, weighted by the evidence, this chunk's included.
        """
        weight = a.sum()
        scores = [X @ stream.v[:-1] + stream.v[-1] for stream in self.streams]
        losses = np.array([problem.total(y, z, a) for z in scores])
        total = self.n + weight
        if not problem.is_log_loss:
            # As the exponents of a distribution whose width is that of the losses.
            self.mean_loss += (losses.min() - weight * self.mean_loss) / total
            losses /= 2 * self.mean_loss + 1e-300
        # What was best for few rows need not be for many: evidence counts by the
        # number of rows that there were.
        losses += self.n / total * self.losses
        self.losses = losses - losses.min()
        weights = np.exp(-self.behind)
        pairs = zip(weights / weights.sum(), scores, strict=True)
        scores = sum(weight * z for weight, z in pairs)
        if total >= ROWS_TO_DROP:
            self._keep(np.flatnonzero(self.behind < OUT))
        return scores

    def _admit(self, factor):
        """Let another strength take part, with what the given one has learned."""
        self.streams.append(copy.deepcopy(self.streams[0]))
        self.factors.append(factor)
        self.losses = np.append(self.losses, self.losses[0])

    def _keep(self, which):
        self.streams = [self.streams[k] for k in which]
        self.factors, self.losses = [self.factors[k] for k in which], self.losses[which]

    def close(self):
        """Let the best go on alone."""
        self._keep([int(self.behind.argmin())])
        self.is_open = False

    def merge(self, problem, other):
        """Take in what another stream has learned."""
        self.close()
        self.n += other.n
        self.streams[0].merge(problem, other.best)

    def seed(self, problem, curvature, v, n):
        """Begin where a fit has ended, with the strength that it had."""
        self.close()
        self.n = n
        self.streams[0].seed(problem, curvature, v, n)

    def rescale(self, factor):
        """Multiply all weights with a factor."""
        for stream in self.streams:
            stream.rescale(factor)
