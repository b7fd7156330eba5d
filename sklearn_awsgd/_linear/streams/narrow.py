"""The learner of narrow streams: chunks, single rows, a memory and drift."""

import numpy as np
from scipy.special import logit

from sklearn_awsgd._kernels import _stream
from sklearn_awsgd._linear.streams.bank import Bank
from sklearn_awsgd._linear.streams.quadratic import ENOUGH, AtHand, Past, expand, settle
from sklearn_awsgd._linear.streams.rows import make_rows

# Chunks of at most this many rows are learned by rank-one steps, and again with the
# memory when this many rows have come, or a share of all before.
SMALL_CHUNK = 48
MOST_PENDING, FEWEST_PENDING, PENDING_SHARE = 500, 16, 0.25
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
        self.n_memory, self.n_expanded = 0, 0
        self.pasts = [Past(p) for _ in windows]
        self.bank = Bank(windows)
        # Rows that stand for all of one class that have left.
        self.summaries = np.zeros((0, p))
        self.summary_y, self.summary_a = np.empty(0), np.empty(0)
        self.offset = np.empty(0)
        self.count_since = 0.0

    @property
    def v(self):
        """The coefficients: those of the learners, weighted by their evidence."""
        if len(self.pasts) == 1:
            return self.pasts[0].v
        return self.bank.weights @ np.array([past.v for past in self.pasts])

    def learn(self, problem, X, sizes, y, a, count):
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
        """
        start, started = self.buffer.n_rows, self.pasts[0].n > 0
        n_new = len(y)
        self.buffer.append(X)
        self.y, self.a = np.append(self.y, y), np.append(self.a, a)
        self.sizes = np.append(self.sizes, sizes + self.fit_intercept)
        self.count_since += count
        single = started and n_new <= SMALL_CHUNK
        losses = []
        if single:
            losses = self._step(problem, start, y, a)
            self.n_expanded = self.buffer.n_rows
        for past in self.pasts:
            past.n += count
        n_pending = self.buffer.n_rows - self.n_memory
        quota = min(max(FEWEST_PENDING, PENDING_SHARE * self.pasts[0].n), MOST_PENDING)
        if not single or n_pending >= quota:
            before = self._settle(problem)
            losses = losses or before
        if len(self.pasts) > 1:
            best = self.bank.observe(losses, a.sum(), problem.is_log_loss)
            if best is not None:
                self._restart(best)

    def _step(self, problem, start, y, a):
        """Learn the last rows of the buffer one by one; return the losses before."""
        rows, losses = self.buffer.rows(start), []
        for past in self.pasts:
            if past.inverse is None:
                past.invert(problem, self.buffer.squares())
            expansion = np.empty((2, len(y)))
            zeros = None
            if problem.alpha_l1 > 0:
                zeros = past.v == 0
            losses.append(
                _stream.rank_one_steps(
                    rows,
                    problem.loss,
                    y,
                    a,
                    past.v,
                    past.inverse,
                    past.curvature,
                    past.slope,
                    expansion,
                )
            )
            if zeros is not None:
                # What the l1 penalty has put at zero stays there until the next
                # exact steps.
                past.v[:-1][zeros[:-1]] = 0.0
            past.h, past.r = (
                np.append(old, new)
                for old, new in zip((past.h, past.r), expansion, strict=True)
            )
        return losses

    def _settle(self, problem, enough=ENOUGH):
        """Learn all rows at hand exactly, and let rows leave."""
        n, losses = self.buffer.n_rows, []
        for k, past in enumerate(self.pasts):
            start = past.first = 0 if k == 0 else self.n_memory
            past.inverse = None
            n_rows, n_old = n - start, self.n_expanded - start
            n_summaries = len(self.summaries) if k == 0 else 0
            grown = np.zeros((2, n_rows + n_summaries))
            grown[0, :n_old], grown[1, :n_old] = past.h[:n_old], past.r[:n_old]
            if n_summaries:
                grown[:, n_rows:] = past.h[n_old:], past.r[n_old:]
            past.h, past.r = grown
            y, a, sizes = self.y[start:], self.a[start:], self.sizes[start:]
            summaries = offset = None
            if n_summaries:
                summaries, offset = self.summaries, self.offset
                y, a = np.append(y, self.summary_y), np.append(a, self.summary_a)
                squares = np.einsum("ij,ij->i", summaries, summaries)
                sizes = np.append(sizes, squares)
            at_hand = AtHand(self.buffer, start, y, a, summaries, offset)
            values, before = settle(
                past,
                at_hand,
                problem,
                sizes,
                self.fit_intercept,
                slice(n_old, n_rows),
                enough,
            )
            losses.append(before)
            if k == 0:
                first = at_hand, values, sizes
        self._let_leave(problem, *first)
        for past, window in zip(self.pasts, self.bank.windows, strict=True):
            if np.isfinite(window):
                factor = np.exp(-self.count_since / window)
                past.forget(factor)
                if past is self.pasts[0]:
                    self.a, self.summary_a = factor * self.a, factor * self.summary_a
        self.count_since = 0.0
        return losses

    def _let_leave(self, problem, at_hand, values, sizes):
        """Let the rows with the least curvature leave the memory."""
        past, n = self.pasts[0], self.buffer.n_rows
        memory_size = 0 if problem.is_quadratic else problem.memory_size
        order = np.arange(n)
        if n > memory_size:
            n_leaving = n - memory_size
            curvature = values[2, :n] * sizes[:n]
            order = np.argpartition(curvature, n_leaving - 1)
            leaving, stay = order[:n_leaving], order[n_leaving:]
            now, then = values[2, leaving], past.h[leaving]
            off = leaving[np.abs(now - then) > OFF * np.maximum(now, then)]
            # Those that hardly count are not worth the work.
            off = off[curvature[off] > 0.01 * curvature[leaving].mean()]
            if len(off):
                expand(past, at_hand, values, at_hand.scores(past.v), off)
            if problem.is_log_loss:
                self._summarise(at_hand, values, leaving)
            order = self.buffer.keep(stay)
            self.y, self.a, self.sizes = self.y[order], self.a[order], self.sizes[order]
        n_old = at_hand.n_rows
        past.h = np.append(past.h[order], past.h[n_old:])
        past.r = np.append(past.r[order], past.r[n_old:])
        self.n_memory = self.n_expanded = self.buffer.n_rows
        for other in self.pasts[1:]:
            other.h, other.r = np.empty(0), np.empty(0)

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
        t = at_hand.scores(past.v)
        if len(self.summaries):
            expand(past, at_hand, values, t, np.arange(n, len(t)))
        found = []
        for label in (-1.0, 1.0):
            own = leaving[self.y[leaving] == label]
            slopes, weights = np.abs(values[1, own]).sum(), np.zeros(len(t))
            weights[own] = values[2, own]
            old = n + np.flatnonzero(self.summary_y == label)
            weights[old] = values[2, old]
            slopes += np.abs(values[1, old]).sum()
            curvature = weights.sum()
            if curvature <= 1e-200:
                continue
            x = at_hand.combine(weights) / curvature
            # With p the probability of the other class, the derivatives of a rows are
            # a p and a p (1 - p).
            p = np.clip(1 - curvature / slopes, 1e-12, 1 - 1e-12)
            score = x @ past.v
            found.append(
                (
                    x,
                    label,
                    slopes / p,
                    -label * logit(p) - score,
                    slopes * (1 - p),
                    slopes * (1 - p) * score + label * slopes,
                )
            )
        if found:
            x, y, a, offset, h, r = (np.array(part) for part in zip(*found, strict=True))
            self.summaries, self.summary_y, self.summary_a = x, y, a
            self.offset = offset
            past.h, past.r = np.append(past.h[:n], h), np.append(past.r[:n], r)

    def _restart(self, best):
        """Let learners that lost to a quicker one go on from its past."""
        source = self.pasts[best]
        for past in self.pasts[:best]:
            past.curvature = source.curvature.copy()
            past.slope, past.v = source.slope.copy(), source.v.copy()
            past.n, past.inverse = source.n, None
        if best > 0:
            self.buffer.keep(np.arange(0))
            self.y, self.a, self.sizes = np.empty(0), np.empty(0), np.empty(0)
            self.n_memory = self.n_expanded = 0
            self.summaries = self.summaries[:0]
            self.summary_y, self.summary_a = np.empty(0), np.empty(0)
            self.offset = np.empty(0)
            for past in self.pasts:
                past.h, past.r = np.empty(0), np.empty(0)
