"""Narrow streams: the past as a full quadratic, the chunk and a memory exact.

Each row i that was seen has an expansion ``h_i t^2 / 2 - r_i t`` of its loss at the
score t = <x_i, v>; the sums over all of them are the quadratic ``v^T T v / 2 - s^T v``.
Rows that are at hand, those of the memory and of the chunk, count with what their loss
has beyond its expansion, so the objective is

    v^T T v / 2 - s^T v + sum over rows at hand of (a_i f(y_i, t_i) - h_i t_i^2 / 2
    + r_i t_i) + penalties.

A row that leaves has been expanded at the present v and takes nothing with it;
forgetting multiplies everything by a factor; quadratics of two streams add.

An h_i need not be the curvature c_i of the loss. Of a large chunk h_i is c_i over the
probability that row i is drawn, or 0 if it is not, so that T costs less; and as h_i is
never negative, nor is what the objective curves by.
"""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from sklearn_awsgd._kernels import _batch, _stream
from sklearn_awsgd._kernels._models import minimize_l1_model
from sklearn_awsgd._kernels._newton import mirrored

# Newton steps stop when they promise less than this much of the objective, which is a
# sum over rows: what the rows leave uncertain is half a unit for each coefficient.
ENOUGH = 0.01
MOST_STEPS = 8
# Curvatures are taken anew when they are off by this share of their sum.
STALE = 0.2
# Weight of a prior for the intercept, and for all coefficients in rank-one steps, where
# it is relative to the variance of the column.
INTERCEPT_PRIOR = 1e-6
ONE_ROW_PRIOR = 0.1
# Steps are damped by that prior, too, while there are few rows.
FEW_ROWS = 1000
# Added to the diagonal of what is factorised: relative to it, and to what rows of that
# size would add, for columns that no row with any curvature has touched.
JITTER, FLOOR = 1e-14, 1e-16
# No step changes a score by more than this, relative to scores and targets.
LONGEST_REACH = 10.0
SHORTEST = 1e-12
# What derivatives have beyond those of expansions, relative to them, if it is nothing.
NEGLIGIBLE = 1e-13


class Scale:
    """How far the columns spread: what single rows may do is relative to it.

    Parameters
    ----------
    buffer : DenseRows or SparseRows
        Some rows.

    Attributes
    ----------
    squares : ndarray of shape (p,)
        Mean squares of the columns; the mean of all for those without any.
    """

    def __init__(self, buffer):
        mean, self._variance = buffer.moments()
        self.squares = self._variance + mean * mean
        empty = self.squares == 0
        self.squares[empty] = self.squares.mean() or 1.0
        self._variance[empty] = self.squares[empty]
        # A score moves with the intercept by as much, wherever the columns are centred.
        self._mean = mean if buffer.fit_intercept else None
        if self._mean is None:
            self._variance = self.squares

    def damp(self, matrix):
        """Add the prior of rank-one steps to a curvature.

        It is that of centred columns and their intercept: columns whose mean is large
        beside their variance are damped no more than others.
        """
        matrix.flat[:: len(matrix) + 1] += ONE_ROW_PRIOR * self._variance
        if self._mean is not None:
            matrix += np.outer(ONE_ROW_PRIOR * self._mean, self._mean)


class Past:
    """A quadratic with its minimum, for one rate of forgetting.

    Attributes
    ----------
    curvature, slope : ndarrays of shape (p, p) and (p,)
        T and s.
    n : float
        Rows so far, those forgotten not counted.
    v : ndarray of shape (p,)
        The coefficients, the intercept last.
    inverse : ndarray of shape (p, p) or None
        Inverse curvature for rank-one steps.
    settled : ndarray of shape (p,) or None
        The coefficients before rank-one steps, if any were taken.
    expansion : ndarray of shape (3, n_at_hand) or None
        h, r and c of the rows at hand, while it is settled.
    """

    def __init__(self, p):
        self.curvature, self.slope = np.zeros((p, p)), np.zeros(p)
        self.n, self.v, self.inverse, self.settled = 0.0, np.zeros(p), None, None
        self.expansion = None

    def copy(self):
        """Return a past that goes on by itself, without rows at hand."""
        other = Past(len(self.v))
        other.curvature, other.slope = self.curvature.copy(), self.slope.copy()
        other.n, other.v = self.n, self.v.copy()
        return other

    def add(self, other):
        """Add the past of another stream, and begin at its and this one's minimum."""
        share = other.n / max(self.n + other.n, 1e-300)
        self.v = (1 - share) * self.v + share * other.v
        self.curvature += other.curvature
        self.slope += other.slope
        self.n += other.n
        self.inverse = None

    def rescale(self, factor):
        """Multiply all weights with a factor; the minimum stays."""
        self.curvature *= factor
        self.slope *= factor
        self.n *= factor
        if self.inverse is not None:
            self.inverse /= factor

    def penalties(self, problem, fit_intercept):
        """Return the curvature of the l2 penalty and of the intercept's prior."""
        diagonal = np.full(len(self.v), problem.alpha_l2 * self.n + 1e-200)
        diagonal[-1] = INTERCEPT_PRIOR if fit_intercept else 1.0
        return diagonal

    def factorise(self, extra, scale=None):
        """Return the Cholesky factor of T plus a diagonal, and a prior if any."""
        diagonal = self.curvature.diagonal()
        jitter = JITTER
        while jitter < 1e6:
            matrix = self.curvature.copy()
            matrix.flat[:: len(extra) + 1] += extra + jitter * diagonal
            if scale is not None:
                scale.damp(matrix)
            factor, failure = dpotrf(matrix, lower=1, overwrite_a=1)
            if not failure:
                return factor, matrix
            jitter *= 100
        raise FloatingPointError("the curvature of the stream is not finite")

    def take(self, gram, slope):
        """Take in what the expansions of rows add to curvature and slope."""
        self.curvature += gram
        self.slope += slope

    def solve(self, problem, scale, fit_intercept):
        """Move to the minimum where no row is at hand; not for l1 penalties."""
        extra = self.penalties(problem, fit_intercept) + FLOOR * self.n * scale.squares
        factor, _ = self.factorise(extra)
        self.v = dpotrs(factor, self.slope, lower=1)[0]

    def invert(self, problem, scale):
        """Make the inverse curvature that rank-one steps begin with.

        Where little has been seen the loss is no quadratic, and single rows must not
        throw the coefficients about: hence a prior.
        """
        extra = np.full(len(self.v), problem.alpha_l2 * self.n)
        factor, _ = self.factorise(extra, scale)
        lower, _ = dpotri(factor, lower=1, overwrite_c=1)
        self.inverse = mirrored(lower.T, 1.0)


class AtHand:
    """Rows that count exactly: those of a buffer from one on, and summaries of others.

    Parameters
    ----------
    buffer : DenseRows or SparseRows
        The rows.
    start : int
        The first that counts.
    y, a : ndarray of shape (n_rows,)
        Targets and weights, of these rows and then of the summaries.
    summaries : ndarray of shape (n_summaries, p)
        Further rows.
    offset : ndarray of shape (n_summaries,)
        Added to the scores of those.
    """

    def __init__(self, buffer, start, y, a, summaries=None, offset=None):
        self.buffer, self.start, self.y, self.a = buffer, start, y, a
        self.summaries, self.offset = summaries, offset
        self.n_rows = buffer.n_rows - start

    def scores(self, v):
        """Return <x, v> of every row."""
        t = self.buffer.scores(v, self.start)
        return t if self.summaries is None else np.append(t, self.summaries @ v)

    def combine(self, c):
        """Return the sum of c_i x_i."""
        total = self.buffer.combine(c[: self.n_rows], self.start)
        if self.summaries is not None:
            total += c[self.n_rows :] @ self.summaries
        return total

    def draw_gram(self, curvatures, sizes, new, sample):
        """Return expansions and sum of h x x^T of new rows; see :func:`settle`."""
        total = np.zeros((self.buffer.n_columns,) * 2)
        if sample is None:
            h, which = curvatures[new].copy(), slice(self.start + new.start, None)
            self.buffer.add_gram(h, total, which)
            return h, total
        which, times = _batch.draw_systematically(curvatures[new] * sizes[new], *sample)
        h = np.zeros(new.stop - new.start)
        h[which] = times * curvatures[new.start + which]
        self.buffer.add_gram(h[which], total, self.start + new.start + which)
        return h, total

    def add_gram(self, weights, total, which):
        """Add the sum of weights_i x_i x_i^T over rows of the buffer, by number."""
        rows = which < self.n_rows
        self.buffer.add_gram(weights[rows], total, self.start + which[rows])
        if self.summaries is not None and not rows.all():
            x = self.summaries[which[~rows] - self.n_rows]
            total += (weights[~rows, None] * x).T @ x

    def evaluate(self, problem, t, result):
        """Set `result` to a f(y, t) and its derivatives; return the sum."""
        if self.offset is not None:
            t = t.copy()
            t[self.n_rows :] += self.offset
        return problem.evaluate(self.y, t, self.a, result)


def settle(past, at_hand, problem, scale, sizes, n_old, shared=None, sample=None):
    """Move a past to the minimum of its objective, and expand its rows there.

    Parameters
    ----------
    past : Past
        Changed: minimum, curvature, slope and expansions.
    at_hand : AtHand
        The rows that count exactly.
    problem : StreamProblem
        Loss and penalties.
    scale : Scale
        Of the rows.
    sizes : ndarray of shape (n_at_hand,)
        Squared norms of the rows.
    n_old : int
        Rows of the buffer that have been expanded; those behind them are new.
    shared : tuple of ndarrays, default=None
        Curvatures of the new rows, and the sum of h x x^T over them, as another past
        has found them.
    sample : tuple of (int, float), default=None
        How many of the new rows to draw for that sum, in proportion to what they add to
        its trace, and where between them to begin; None takes all.

    Returns
    -------
    values : ndarray of shape (3, n_at_hand)
        Losses and two derivatives at the end, times the weights.
    before : float
        Sum of the losses of the new rows before they were learned.
    scores : ndarray of shape (n_new,)
        Their scores then.
    shared : tuple of ndarrays
        As above.
    """
    n_at_hand, threshold = len(sizes), problem.alpha_l1 * past.n
    penalties = past.penalties(problem, at_hand.buffer.fit_intercept)
    v, t = past.v, at_hand.scores(past.v)
    values, trial = np.empty((3, n_at_hand)), np.empty((3, n_at_hand))
    total = at_hand.evaluate(problem, t, values)
    (h, r, c), new = past.expansion, slice(n_old, at_hand.n_rows)
    before, scores = values[0, new].sum(), t[new]
    if shared is None:
        shared = at_hand.draw_gram(values[2], sizes, new, sample)
    h[new], gram = shared
    c[new] = values[2, new] if sample else h[new]
    r[new] = h[new] * t[new] - values[1, new]
    past.curvature += gram
    past.slope += gram @ v
    past.slope -= at_hand.buffer.combine(values[1, new], at_hand.start + n_old)
    factor, tv, beyond = None, past.curvature @ v, np.empty(n_at_hand)
    extra = penalties + FLOOR * past.n * scale.squares
    largest = np.abs(at_hand.y).max(initial=0)
    damping = scale if past.n < FEW_ROWS else None
    enough = ENOUGH
    if problem.is_quadratic:
        enough = 1e-18 * (1 + total)
    elif not problem.is_log_loss:
        # A loss that is no logarithm is measured by its mean.
        enough *= 2 * total / max(at_hand.a.sum(), 1e-300)
    for _ in range(MOST_STEPS):
        longest, off = _stream.beyond_expansions(values[1], h, r, t, beyond)
        if off < NEGLIGIBLE:
            # As always before the first step, unless v has moved since the last ones.
            beyond[:], pull = 0.0, np.zeros_like(v)
        else:
            pull = at_hand.combine(beyond)
        smooth = tv - past.slope + penalties * v
        gradient = smooth + pull
        if factor is None:
            factor, matrix = past.factorise(extra, damping)
        if threshold > 0:
            step = np.zeros_like(v)
            minimize_l1_model(matrix, gradient, v, threshold, step, 100)
        else:
            step = -dpotrs(factor, gradient, lower=1)[0]
        promise = gradient @ step
        if threshold > 0:
            promise += threshold * (
                np.abs(v[:-1] + step[:-1]).sum() - np.abs(v[:-1]).sum()
            )
        if not -promise > 2 * enough:
            break
        t_step, tv_step = at_hand.scores(step), past.curvature @ step
        slope, square, furthest = _stream.expansions_along(h, r, t, t_step)
        linear = step @ smooth - slope
        square = 0.5 * (step @ tv_step + penalties @ (step * step)) - square
        length = min(1.0, LONGEST_REACH * (1 + largest + longest) / (furthest + 1e-300))
        while True:
            new_t = t + length * t_step
            new_total = at_hand.evaluate(problem, new_t, trial)
            change = new_total - total + length * (linear + length * square)
            if threshold > 0:
                change += threshold * (
                    np.abs(v[:-1] + length * step[:-1]).sum() - np.abs(v[:-1]).sum()
                )
            if change <= 1e-4 * length * promise or length < SHORTEST:
                break
            length *= 0.5
        if not change <= 0:
            break
        v = v + length * step
        t, total, tv = new_t, new_total, tv + length * tv_step
        values, trial = trial, values
        if _stream.staleness(values[2], c, sizes) > STALE:
            which = np.flatnonzero(np.abs(values[2] - c) > 0.5 * STALE * c)
            expand(past, at_hand, values, t, which)
            factor, tv = None, past.curvature @ v
    else:
        _stream.beyond_expansions(values[1], h, r, t, beyond)
        pull = at_hand.combine(beyond)
    past.v = v
    # From here on every row is expanded at v: what it has beyond its expansion has no
    # slope there.
    past.slope -= pull
    r -= beyond
    return values, before, scores, shared


def expand(past, at_hand, values, t, which):
    """Take the curvatures of some rows at hand anew."""
    h, r, c = past.expansion
    gain = values[2, which] - h[which]
    at_hand.add_gram(gain, past.curvature, which)
    change = np.zeros(len(t))
    change[which] = gain * t[which]
    past.slope += at_hand.combine(change)
    h[which] = c[which] = values[2, which]
    r[which] += change[which]


def expand_summaries(past, at_hand, values):
    """Take the curvatures of the summaries anew."""
    x, (h, r, c) = at_hand.summaries, past.expansion[:, at_hand.n_rows :]
    gain = values[2, at_hand.n_rows :] - h
    change = gain * (x @ past.v)
    past.curvature += (gain * x.T) @ x
    past.slope += change @ x
    h += gain
    c[:] = h
    r += change
