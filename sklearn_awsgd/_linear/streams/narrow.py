"""The learner of narrow streams: chunks, single rows, a memory and drift."""

import math

import numpy as np

from sklearn_awsgd._kernels import _stream
from sklearn_awsgd._linear.streams.bank import Bank, Shift
from sklearn_awsgd._linear.streams.quadratic import (
    FEW_ROWS,
    AtHand,
    Past,
    Scale,
    expand,
    expand_summaries,
    settle,
)
from sklearn_awsgd._linear.streams.rows import make_rows

# Chunks of at most this many rows, or with this much work, are learned by rank-one
# steps, and again with the memory when this many rows have come, or a share of all
# before.
SMALL_CHUNK, SMALL_WORK = 32, 2.5e5
# The squared error needs no memory: up to so many coefficients every chunk is exact.
CHEAP_TO_SOLVE = 64
MOST_PENDING, FEWEST_PENDING, PENDING_SHARE = 500, 16, 0.25
# Rows that stand for a class which has not come yet.
EXPECTED = 0.5
# How far behind a learner that forgets takes the expansions of the first: that saves a
# sixth of a call. On eight generated drifts losses were .98-1.01 of those with its own.
FAR_BEHIND = 3.0
# The curvature of a large chunk is that of a sample, of so many rows a coefficient,
# where that saves work, so many rows a coefficient are known, and nothing drifts.
# On cover_2v4, a9a, w8a, breast cancer and 13 generated streams losses with 2 were
# .998-1.003 of those with all rows; on 20 streams of the same with 1, .999-1.001 of
# those with 2.
SAMPLED_PER_COEFFICIENT, WORK_TO_SAMPLE, ROWS_TO_SAMPLE = 1, 5e5, 20
# How often a learner that is furthest behind is looked at in any case, in chunks. On
# the same streams, some of which drift, 4 are as good as 1.
NAP = 4
# A row that leaves has its curvature taken anew when it is off by this share.
OFF = 0.3


class NarrowStream:
    """A linear model of a stream with few features.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_rows, n_features)
        Rows like those to come.
    fit_intercept : bool, default=True
        Whether the intercept is free.
    windows : tuple of float, default=(inf,)
        Number of rows after which a row counts 1/e of what it did, for each of several
        learners at once; the first has the memory.

    Attributes
    ----------
    v : ndarray of shape (n_features + 1,)
        The coefficients, the intercept last.
    """

    def __init__(self, X, fit_intercept=True, windows=(np.inf,)):
        p = X.shape[1] + 1
        self.fit_intercept = bool(fit_intercept)
        self.buffer = make_rows(X, fit_intercept)
        self.y, self.a, self.sizes = np.empty(0), np.empty(0), np.empty(0)
        # The first rows of the buffer are the memory, the others are pending.
        self.n_memory = 0
        self.pasts = [Past(p)]
        self.bank, self.shift = Bank(windows), Shift()
        # Rows that stand for all of one class that have left.
        self._clear_summaries()
        # Whether rows of either class have come.
        self.seen = np.zeros(2, dtype=bool)
        # Expansions of the rows in the memory.
        self.expansion = np.empty((3, 0))
        self.count_since, self.n_settled, self.scale = 0.0, 0, None

    @property
    def v(self):
        """The coefficients: those of the learners, weighted by their evidence."""
        weights = self.bank.weights(len(self.pasts))
        v = weights @ np.array([past.v for past in self.pasts])
        v[-1] += weights[0] * self.shift.value
        return v

    @property
    def n_pending(self):
        """Rows that wait for being learned exactly, with the memory."""
        return self.buffer.n_rows - self.n_memory

    def learn(self, problem, X, sizes, y, a, count, balanced=True):
        """Learn a chunk.

        Parameters
        ----------
        problem : StreamProblem
            Loss and penalties.
        X : ndarray or CSR of shape (n_rows, n_features)
            The rows.
        sizes : ndarray of shape (n_rows,)
            Their squared norms.
        y, a : ndarray of shape (n_rows,)
            Targets and weights.
        count : float
            What the rows count for the penalties: the sum of their sample weights.
        balanced : bool, default=True
            Whether the last rows may tell how often classes come. If not they are
            learned, but they are no evidence for what forgets.
        """
        start, started = self.buffer.n_rows, self.pasts[0].n > 0
        n_new, p = len(y), self.buffer.n_columns
        self.buffer.append(X)
        self.y, self.a = np.append(self.y, y), np.append(self.a, a)
        self.sizes = np.append(self.sizes, sizes + self.fit_intercept)
        self.count_since += count
        for past in self.pasts:
            past.n += count
        quota = min(max(FEWEST_PENDING, PENDING_SHARE * self.pasts[0].n), MOST_PENDING)
        small = n_new <= SMALL_CHUNK or n_new * p * p <= SMALL_WORK
        if problem.is_quadratic and p <= CHEAP_TO_SOLVE:
            small = False
        if started and small and self.n_pending < quota:
            self._step(problem, start, y, a)
            return
        losses, weight = self._settle(problem, balanced=balanced), self.count_since
        self.count_since = 0.0
        if not balanced:
            return
        if len(self.bank.windows) > 1:
            winner = self.bank.observe(losses, weight, problem.is_log_loss)
            if winner:
                self._restart(winner)
        if self.bank.is_due(len(self.pasts), self.pasts[0].n):
            past = self.pasts[-1].copy()
            past.rescale(min(self.bank.windows[len(self.pasts)] / past.n, 1.0))
            self.pasts.append(past)

    def merge(self, problem, other):
        """Take in what another stream has learned: quadratics and memories add."""
        for stream in (self, other):
            if stream.n_pending:
                stream._settle(problem)
                stream.count_since = 0.0
        del self.pasts[len(other.pasts) :]
        for mine, theirs in zip(self.pasts, other.pasts, strict=False):
            mine.add(theirs)
        self.bank.behind = 0.5 * (self.bank.behind + other.bank.behind)
        self.buffer.extend(other.buffer)
        self.y, self.a = np.append(self.y, other.y), np.append(self.a, other.a)
        self.sizes = np.append(self.sizes, other.sizes)
        self.expansion = np.hstack([self.expansion, other.expansion])
        self.n_memory = self.buffer.n_rows
        self.seen = self.seen | other.seen
        self._set_summaries(
            np.vstack([self.summaries, other.summaries]),
            np.append(self.summary_y, other.summary_y),
            np.append(self.summary_a, other.summary_a),
            np.append(self.offset, other.offset),
            np.append(self.real, other.real),
            np.hstack([self.summary_expansion, other.summary_expansion]),
        )
        self._settle(problem)

    @property
    def memory(self):
        """Targets, weights and curvatures of the rows in the memory."""
        m = self.n_memory
        return self.y[:m], self.a[:m], self.expansion[2]

    def rescale(self, factor):
        """Multiply all weights with a factor; the coefficients stay."""
        for past in self.pasts:
            past.rescale(factor)
        self._rescale_rows(factor)

    def _rescale_rows(self, factor):
        self.a, self.summary_a = factor * self.a, factor * self.summary_a
        self.expansion *= factor
        self.summary_expansion *= factor

    def seed(self, problem, curvature, v, n):
        """Begin where a fit has ended, at the minimum of a quadratic."""
        past = self.pasts[0]
        past.curvature, past.v, past.n = curvature.copy(), v.copy(), n
        penalty = past.penalties(problem, self.fit_intercept) * v
        penalty[:-1] += problem.alpha_l1 * n * np.sign(v[:-1])
        past.slope = curvature @ v + penalty
        self.seen[:] = True

    def _step(self, problem, start, y, a):
        """Learn the last rows of the buffer one by one, by the first learner."""
        past = self.pasts[0]
        if past.inverse is None:
            scale = self.scale if past.n >= FEW_ROWS else None
            past.invert(problem, scale or Scale(self.buffer))
            # Without the copy the losses before would be those of a model that has
            # seen the rows.
            past.settled, past.v = past.v, past.v.copy()
        zeros = None
        if problem.alpha_l1 > 0:
            # What the l1 penalty has put at zero stays there until the next exact
            # steps.
            zeros = np.flatnonzero(past.v[:-1] == 0)
        rows = self.buffer.rows(start)
        _stream.rank_one_steps(rows, problem.loss, y, a, past.v, past.inverse)
        if zeros is not None:
            past.v[zeros] = 0.0

    def _expect(self, problem):
        """Let half a row stand for a class that has not come yet.

        Without it the intercept would go wherever the other class pushes it.
        """
        if not problem.is_log_loss or not self.fit_intercept:
            return
        if self.seen.all() and self.real.all():
            return
        self.seen |= (self.y == -1.0).any(), (self.y == 1.0).any()
        past = self.pasts[0]
        for k, label in enumerate((-1.0, 1.0)):
            standing = np.flatnonzero((self.summary_y == label) & ~self.real)
            if self.seen[k] and len(standing):
                h, r, _ = self.summary_expansion[:, standing].sum(axis=1)
                past.curvature[-1, -1] -= h
                past.slope[-1] -= r
                rest = np.ones(len(self.summary_y), dtype=bool)
                rest[standing] = False
                self._set_summaries(
                    self.summaries[rest],
                    self.summary_y[rest],
                    self.summary_a[rest],
                    self.offset[rest],
                    self.real[rest],
                    self.summary_expansion[:, rest],
                )
            elif not self.seen[k] and not len(standing):
                x = np.zeros((1, len(past.v)))
                x[0, -1] = 1.0
                self._set_summaries(
                    np.vstack([self.summaries, x]),
                    np.append(self.summary_y, label),
                    np.append(self.summary_a, EXPECTED),
                    np.append(self.offset, 0.0),
                    np.append(self.real, False),
                    np.hstack([self.summary_expansion, np.zeros((3, 1))]),
                )

    def _set_summaries(self, x, y, a, offset, real, expansion):
        """Set the rows that stand for others."""
        self.summaries, self.summary_y, self.summary_a = x, y, a
        self.offset, self.real, self.summary_expansion = offset, real, expansion

    def _clear_summaries(self):
        empty = np.empty(0)
        self._set_summaries(
            np.zeros((0, self.buffer.n_columns)),
            empty,
            empty,
            empty,
            empty.astype(bool),
            np.empty((3, 0)),
        )

    def _settle(self, problem, *, balanced=True):
        """Learn all rows at hand exactly, and let rows leave."""
        self._expect(problem)
        if self.scale is None or self.pasts[0].n < FEW_ROWS:
            self.scale = Scale(self.buffer)
        at_hand, values, sizes, before, shared = self._settle_first(problem, balanced)
        losses = [before]
        if len(self.pasts) > 1:
            # What the new rows have added, expanded where the first learner is now.
            new = slice(self.n_memory, self.buffer.n_rows)
            slope = shared[1] @ self.pasts[0].v
            slope -= self.buffer.combine(values[1, new], self.n_memory)
            gains = shared[1], slope
        for k, past in enumerate(self.pasts[1:], start=1):
            if self._follows(problem, k):
                asleep = (self.n_settled + k) % NAP and self.bank.may_sleep(
                    k, before, self.count_since, problem.is_log_loss
                )
                losses.append(None if asleep else self._loss_of(problem, past.v)[0])
                past.take(*gains)
                if not asleep:
                    past.solve(problem, self.scale, self.fit_intercept)
                continue
            y, a = self.y[new], self.a[new]
            past.expansion = np.zeros((3, len(y)))
            rows = AtHand(self.buffer, self.n_memory, y, a)
            _, before, _, _ = settle(
                past, rows, problem, self.scale, self.sizes[new], 0, shared
            )
            losses.append(before)
        self._let_leave(problem, at_hand, values, sizes)
        for k, past in enumerate(self.pasts):
            if np.isfinite(self.bank.windows[k]):
                factor = np.exp(-self.count_since / self.bank.windows[k])
                past.rescale(factor)
                if k == 0:
                    self._rescale_rows(factor)
        self.n_settled += 1
        return losses

    def _settle_first(self, problem, balanced):
        """Settle the learner with the memory.

        Returns
        -------
        at_hand, values, sizes : AtHand and ndarrays
            Its rows, their losses and derivatives, and squared norms.
        before : float
            Loss of the new rows before they were learned.
        shared : tuple of ndarrays
            See :func:`settle`.
        """
        past, n, m = self.pasts[0], self.buffer.n_rows, self.n_memory
        past.inverse = None
        y, a, sizes, summaries, offset = self.y, self.a, self.sizes, None, None
        past.expansion = expansion = np.zeros((3, n + len(self.summaries)))
        expansion[:, :m] = self.expansion
        if len(self.summaries):
            expansion[:, n:] = self.summary_expansion
            summaries, offset = self.summaries, self.offset
            y, a = np.append(y, self.summary_y), np.append(a, self.summary_a)
            squares = np.einsum("ij,ij->i", summaries, summaries)
            sizes = np.append(sizes, squares)
        at_hand = AtHand(self.buffer, 0, y, a, summaries, offset)
        values, before, scores, shared = settle(
            past, at_hand, problem, self.scale, sizes, m, sample=self._sample(problem)
        )
        if past.settled is not None and len(self.bank.windows) > 1:
            before, scores = self._loss_of(problem, past.settled)
        past.settled = None
        if balanced and self._can_shift(problem):
            before = self.shift.observe(problem, self.y[m:], scores, self.a[m:], before)
        return at_hand, values, sizes, before, shared

    def _sample(self, problem):
        """Return how to sample the curvature of the new rows, or None for all."""
        n_rows, p = self.n_pending, self.buffer.n_columns
        n_sampled = SAMPLED_PER_COEFFICIENT * p
        known = self.pasts[0].n >= ROWS_TO_SAMPLE * p and not problem.is_quadratic
        if not known or n_rows < 2 * n_sampled or n_rows * p * p < WORK_TO_SAMPLE:
            return None
        if not all(self._follows(problem, k) for k in range(1, len(self.pasts))):
            return None
        # Multiples of the golden ratio are evenly spread.
        return n_sampled, 0.6180339887498949 * self.n_settled % 1.0

    def _follows(self, problem, k):
        """Return whether a learner takes the expansions of the first.

        Those of the squared error are the same everywhere, and one that is far behind
        has no drift to follow, and is near the first.
        """
        if problem.alpha_l1 > 0:
            return False
        return problem.is_quadratic or self.bank.behind[k] >= FAR_BEHIND

    def _loss_of(self, problem, v):
        """Return the loss of all pending rows, and their scores."""
        m = self.n_memory
        values = np.empty((3, self.n_pending))
        t = self.buffer.scores(v, m)
        return problem.evaluate(self.y[m:], t, self.a[m:], values), t

    def _can_shift(self, problem):
        """Return whether the intercept may move by itself."""
        return (
            len(self.bank.windows) > 1
            and problem.is_log_loss
            and self.fit_intercept
            and self.n_settled > 0
        )

    def _let_leave(self, problem, at_hand, values, sizes):
        """Let the rows with the least curvature leave the memory."""
        past, n = self.pasts[0], self.buffer.n_rows
        memory_size = 0 if problem.is_quadratic else problem.memory_size
        order = np.arange(n)
        self.summary_expansion = past.expansion[:, n:]
        if n > memory_size:
            n_leaving = n - memory_size
            curvature = values[2, :n] * sizes[:n]
            order = np.argpartition(curvature, n_leaving - 1)
            leaving, stay = order[:n_leaving], order[n_leaving:]
            now, then = values[2, leaving], past.expansion[2, leaving]
            off = leaving[np.abs(now - then) > OFF * np.maximum(now, then)]
            if len(off):
                # Those that hardly count are not worth the work.
                off = off[curvature[off] > 0.01 * curvature[leaving].mean()]
                expand(past, at_hand, values, at_hand.scores(past.v), off)
            if problem.is_log_loss:
                self._summarise(at_hand, values, leaving)
            order = self.buffer.keep(stay)
            self.y, self.a, self.sizes = self.y[order], self.a[order], self.sizes[order]
        self.expansion = past.expansion[:, order]
        self.n_memory = self.buffer.n_rows
        for other in self.pasts:
            other.expansion = None

    def _summarise(self, at_hand, values, leaving):
        """Let one row for each class stand for all that have left.

        Rows of a class that the model is sure of have no curvature: a quadratic of
        them would not resist when the other class comes at last. A row at the mean of
        those that left, weighted by their curvatures, with the same derivatives now,
        does. It adds nothing to value, slope and curvature at the present v, and as a
        mean has no more curvature in any direction than its rows, it keeps the
        objective convex.
        """
        past, n = self.pasts[0], at_hand.n_rows
        if len(self.summaries):
            expand_summaries(past, at_hand, values)
        x, totals = np.zeros((2, len(past.v))), np.zeros((2, 2))
        h, _, c = past.expansion
        _stream.class_sums(self.buffer.rows(), leaving, self.y, values, h, c, x, totals)
        totals = totals.tolist()
        for k, label in enumerate(self.summary_y):
            own, weight = int(label > 0), h[n + k]
            x[own] += weight * self.summaries[k]
            totals[own][0] += weight
            totals[own][1] += abs(values[1, n + k])
        some = [k for k in range(2) if totals[k][0] > 1e-200]
        if not some:
            return
        x = np.array([x[k] / totals[k][0] for k in some])
        rows = []
        for score, k in zip((x @ past.v).tolist(), some, strict=True):
            curvature, slope = totals[k]
            y = 2.0 * k - 1.0
            # With p the probability of the other class, the derivatives of a rows are
            # a p and a p (1 - p).
            p = min(max(1 - curvature / slope, 1e-12), 1 - 1e-12)
            a, curvature = slope / p, slope * (1 - p)
            offset = -y * math.log(p / (1 - p)) - score
            r = curvature * score + y * slope
            rows.append((y, a, offset, curvature, r, curvature))
        rows = np.array(rows).T.copy()
        self._set_summaries(x, *rows[:3], self.seen[some], rows[3:])

    def _restart(self, winner):
        """Let learners that lost to a quicker one go on from its past.

        The memory is of another time, too.
        """
        for k in range(winner):
            self.pasts[k] = self.pasts[winner].copy()
        self.buffer.keep(np.arange(0))
        self.y, self.a, self.sizes = np.empty(0), np.empty(0), np.empty(0)
        self.expansion, self.n_memory = np.empty((3, 0)), 0
        self._clear_summaries()
        self.shift = Shift()
