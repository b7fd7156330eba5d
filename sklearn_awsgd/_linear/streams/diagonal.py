"""Wide streams: the past as a diagonal quadratic, a memory, and one-row steps.

The objective after n rows is

    sum over rows at hand of a_i f(y_i, z_i) + sum_j D_j (w_j - m_j)^2 / 2 + penalties,

and every row at hand has a dual number beta_i, which is -a_i f'(y_i, z_i) where it is
solved. Of the centres m only ``theta = D m + sum beta_i x_i`` is kept: the minimum over
w is ``shrink(theta, alpha_l1 n) / (D + alpha_l2 n)``. A row that leaves adds h_i x_i^2
to D, and its dual number stays in theta.

The intercept has no penalty. Its part of a one-row step is damped by the curvature of
all rows, and after the steps of a chunk it takes Newton steps of its own.
"""

import numpy as np
from scipy.special import expit, logit, softmax

from sklearn_awsgd._kernels import _stream, _stream_dual
from sklearn_awsgd._linear.streams.rows import DenseRows, make_rows

# Rows of memory and chunk that are looked at again, for each row of the chunk. More of
# a small one, whose call is mostly overhead: so many that there are so many numbers
# altogether, up to a limit (16 streams of mnist, coco and 600 columns: at chunks of 32,
# 2 are as good as 4 and 8; newsgroups: 16 are better). The most of narrow rows, which
# cost little and move together (softmax regression: with 2 the loss on 7 x 7 images of
# mnist was 1.11 of a refit's, with 16 it is 1.03; in large chunks of wide rows more
# than 2 gave nothing).
VISITS = 2.0
MOST_VISITS, VISITED_NUMBERS = 16.0, 5e4
# Many columns of dense rows move together, which a diagonal does not know of: rows that
# leave are given more curvature, this share of the root mean square eigenvalue of their
# correlations, as so many rows tell it (shares of .35 to 1 are as good on coco, mnist
# and 600 columns, whose rows are given 5, 3 and 1 times theirs).
COUPLING, ROWS_TO_COUPLE = 0.5, 200
# And of the memory only a share is used: rows at hand that are not solved to the end
# are noise. From so many columns on.
DENSE_SHARE, MANY_DENSE = 0.05, 200
# Passes over both memories when streams are merged.
MERGING_PASSES = 10
# Chunks of at most this many rows wait for others before rows leave.
WAITING_CHUNK = 48
MOST_PENDING, FEWEST_PENDING, PENDING_SHARE = 500, 16, 0.25
# Least curvature of a coordinate, relative to the mean square of all.
COORDINATE_FLOOR = 0.1
# The same of the intercept; and rows that stand for a class which has not come yet.
INTERCEPT_FLOOR, EXPECTED = 1e-2, 0.5
# Share of the curvature of new rows that damps the intercept: it is to move while they
# are looked at (mnist, coco, newsgroups, digits, 600 columns sorted by class: less is
# better for some, up to 9 % on mnist, and more for those that come sorted, up to 14 %).
NEW_SHARE = 0.1
INTERCEPT_STEPS, LONGEST_SHIFT = 4, 2.0


class WideStream:
    """A linear model of a stream with many features.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_rows, n_features)
        Rows like those to come.
    fit_intercept : bool, default=True
        Whether the intercept is free.
    window : float, default=inf
        Number of rows after which a row counts 1/e of what it did.
    seed : int, default=0
        Seed of the visits.
    shape : tuple, default=()
        Shape behind the rows: (n_classes,) for softmax regression.

    Attributes
    ----------
    w : ndarray of shape (n_features + 1, ...)
        The coefficients, the intercept last.
    coupling : float or None
        What the curvature of rows that leave is multiplied with, once it is known.
    """

    coupling = None

    def __init__(self, X, fit_intercept=True, window=np.inf, seed=0, shape=()):
        p = X.shape[1] + 1
        self.fit_intercept, self.window = bool(fit_intercept), window
        self.buffer = make_rows(X, fit_intercept)
        self.y, self.a = np.empty(0, dtype=np.int32 if shape else float), np.empty(0)
        self.beta = np.empty((0, *shape))
        self.n, self.n_memory = 0.0, 0
        self.diagonal = np.zeros(p)
        self.theta, self.w = np.zeros((p, *shape)), np.zeros((p, *shape))
        # Curvature and slope of the intercept's past, and all of its curvature.
        self.past_curvature, self.past_slope = np.zeros(shape), np.zeros(shape)
        self.memory_curvature = np.zeros(shape)
        self.seen = np.zeros(shape or 2, dtype=bool)
        self.scale, self.n_settled, self.h = 1.0, 0, np.empty((0, *shape))
        self.rng = np.random.Generator(np.random.PCG64(seed))

    @property
    def v(self):
        """The coefficients, the intercept last."""
        return self.w

    @property
    def memory(self):
        """Targets, weights and curvatures of the rows in the memory."""
        m = self.n_memory
        h = self.h if self.h.ndim == 1 else 0.5 * self.h.sum(axis=1)
        return self.y[:m], self.a[:m], h

    def seed(self, problem, curvature, v, n):
        """Begin where a fit has ended; `curvature` is a diagonal."""
        self.diagonal, self.n = curvature.copy(), n
        self.w = np.ascontiguousarray(v.T).copy()
        strength = self.diagonal + problem.alpha_l2 * n
        if self.w.ndim == 2:
            strength = strength[:, None]
        self.theta = strength * self.w + problem.alpha_l1 * n * np.sign(self.w)
        self.diagonal[-1] = 0.0
        self.scale = max(np.mean(curvature[:-1]) / n, 1e-12)
        self.past_curvature = np.zeros(self.w.shape[1:]) + curvature[-1]
        self.past_slope = self.past_curvature * self.w[-1]
        self.seen[:] = True

    @property
    def n_pending(self):
        """Rows that have come since rows have left."""
        return self.buffer.n_rows - self.n_memory

    def learn(self, problem, X, sizes, y, a, count, balanced=True):
        """Learn a chunk; see :meth:`NarrowStream.learn`."""
        start, n_new = self.buffer.n_rows, len(y)
        self.buffer.append(X)
        self.y = np.append(self.y, y).astype(self.y.dtype, copy=False)
        self.a = np.append(self.a, a)
        self.beta = np.concatenate([self.beta, np.zeros((n_new, *self.beta.shape[1:]))])
        if self.n == 0:
            # Single precision may have no room for a sum of squares.
            size = np.mean(sizes, dtype=np.float64)
            self.scale = max(size / (self.buffer.n_columns - 1), 1e-12)
            self._begin(problem)
        self.n += count
        inverse, threshold = self._prepare(problem, a)
        rows = self.buffer.rows()
        visits = VISITS
        if self.buffer.n_columns <= MANY_DENSE:
            visits = MOST_VISITS
        elif n_new <= WAITING_CHUNK:
            # The size of a sparse X is that of what it stores.
            visits = VISITED_NUMBERS / max(X.size, 1)
            visits = min(max(visits, VISITS), MOST_VISITS)
        n_visits, n_rows = int(visits * n_new), self.buffer.n_rows
        order = np.arange(start, n_rows)
        while n_visits > 0:
            again = self.rng.permutation(n_rows)[:n_visits]
            order = np.append(order, again)
            n_visits -= len(again)
        self._steps(problem, rows, order, inverse, threshold)
        quota = min(max(FEWEST_PENDING, PENDING_SHARE * self.n), MOST_PENDING)
        if n_new > WAITING_CHUNK or self.n_pending >= quota:
            n_since = self.n_pending
            h = self._settle_intercept(problem, rows)
            self._let_leave(problem, h, rows, balanced)
            if np.isfinite(self.window):
                self.rescale(np.exp(-n_since / self.window))
            self.n_memory = self.buffer.n_rows
        self._set_intercept(self.w[-1])

    def merge(self, problem, other):
        """Take in what another stream has learned, and settle with some passes."""
        self.buffer.extend(other.buffer)
        self.y, self.a = np.append(self.y, other.y), np.append(self.a, other.a)
        self.beta = np.concatenate([self.beta, other.beta])
        share = other.n / max(self.n + other.n, 1e-300)
        intercept = (1 - share) * self.w[-1] + share * other.w[-1]
        self.seen = self.seen | other.seen
        self.diagonal += other.diagonal
        self.theta += other.theta
        self.n += other.n
        self.past_curvature = self.past_curvature + other.past_curvature
        self.past_slope = self.past_slope + other.past_slope
        self.memory_curvature = self.memory_curvature + other.memory_curvature
        self.w[-1] = intercept
        rows = self.buffer.rows()
        for _ in range(MERGING_PASSES):
            inverse, threshold = self._prepare(problem, np.zeros(1))
            order = self.rng.permutation(self.buffer.n_rows)
            self._steps(problem, rows, order, inverse, threshold)
            h = self._settle_intercept(problem, rows)
        self._let_leave(problem, h, rows, True)
        self.n_memory = self.buffer.n_rows

    def loss(self, problem, X, y, a):
        """Return the sum of the losses of rows that have not been learned."""
        return problem.total(y, X @ self.w[:-1] + self.w[-1], a)

    def _settle_intercept(self, problem, rows):
        """Move the intercept to its optimum; return the curvatures of all rows."""
        z = self._scores(rows)
        for _ in range(INTERCEPT_STEPS):
            g, h, bound = self._derivatives(problem, z)
            if not self.fit_intercept:
                break
            b = self.w[-1]
            slope, extra = self._absent(problem)
            gradient = g.sum(axis=0) + slope + self.past_curvature * b - self.past_slope
            curvature = bound.sum(axis=0) + extra + self.past_curvature + 1e-9
            step = np.clip(-gradient / curvature, -LONGEST_SHIFT, LONGEST_SHIFT)
            if np.abs(step).max() < 1e-3:
                break
            self._set_intercept(b + step)
            z += self.w[-1] - b
        return h

    def _prepare(self, problem, a):
        """Return the inverse curvature of every coordinate, and the l1 threshold."""
        strength = max(problem.alpha_l2 * self.n, COORDINATE_FLOOR * self.scale)
        inverse = 1.0 / (self.diagonal + strength)
        if self.w.ndim == 2:
            inverse = np.repeat(inverse[:, None], self.w.shape[1], axis=1)
        curvature = self.past_curvature + self.memory_curvature + INTERCEPT_FLOOR
        new = NEW_SHARE * a.sum() * self._constant_curvature(problem)
        inverse[-1] = 1 / (curvature + new)
        self._damping = inverse[-1]
        self._set_intercept(self.w[-1])
        return inverse, problem.alpha_l1 * self.n

    def _set_intercept(self, value):
        self.w[-1] = value
        self.theta[-1] = value / self._damping

    def _let_leave(self, problem, h, rows, balanced):
        """Let the rows with the least curvature leave the memory.

        While classes do not come as often as they should, rows of a class that the
        model is sure of would leave next to no curvature, and nothing of them would
        resist when the other class comes at last: they are given more.
        """
        n_leaving = self.buffer.n_rows - self.capacity(problem)
        if n_leaving > 0:
            order = np.argpartition(self._priority(h), n_leaving - 1)
            leaving, stay = order[:n_leaving], order[n_leaving:]
            gain = h[leaving] * self._find_coupling()
            curvature = self._intercept_curvature(problem, leaving, h[leaving])
            if not balanced and problem.is_log_loss and gain.ndim == 1:
                above = self._curvature_above(leaving)
                gain, curvature = np.maximum(gain, above), above.sum()
            self._leave(rows, leaving, gain)
            if self.fit_intercept:
                self.past_curvature = self.past_curvature + curvature
                self.past_slope = self.past_slope + (
                    curvature * self.w[-1] + self.beta[leaving].sum(axis=0)
                )
            order = self.buffer.keep(stay)
            self.y, self.a = self.y[order], self.a[order]
            self.beta, h = self.beta[order], h[order]
        self.memory_curvature, self.h = h.sum(axis=0), h
        self.n_settled += 1

    def _find_coupling(self):
        """Return what the curvature of rows that leave is multiplied with.

        It is found when the first rows leave.
        """
        if self.coupling is None:
            self.coupling = 1.0
            if self.is_coupled:
                some = self.buffer.X[:ROWS_TO_COUPLE, :-1]
                self.coupling = max(1.0, COUPLING * rms_eigenvalue(some))
        return self.coupling

    def _stiffen(self, rows, leaving, h):
        """Add curvature of rows that leave to the diagonal, such that w stays."""
        gain = np.zeros(len(self.diagonal))
        _stream_dual.add_squared_rows(rows, leaving, h, gain)
        self.diagonal += gain
        self.theta += (gain * self.w.T).T

    def capacity(self, problem):
        """Return the number of rows to keep."""
        share = DENSE_SHARE if self.is_coupled else 1.0
        return int(np.ceil(share * problem.memory_size))

    @property
    def is_coupled(self):
        """Whether rows are dense and have many columns."""
        many = self.buffer.n_columns > MANY_DENSE
        return many and isinstance(self.buffer, DenseRows)

    def rescale(self, factor):
        """Multiply all weights with a factor; the coefficients stay."""
        self.diagonal *= factor
        self.theta *= factor
        self.n *= factor
        self.a, self.beta = factor * self.a, factor * self.beta
        self.past_curvature = factor * self.past_curvature
        self.past_slope = factor * self.past_slope
        self.memory_curvature, self.h = factor * self.memory_curvature, factor * self.h

    # What follows is overridden for softmax regression.

    def _begin(self, problem):
        """Begin at the best constant, with half a row of either class more."""
        if problem.is_log_loss and self.fit_intercept:
            positive = self.a[self.y > 0].sum() + EXPECTED
            self.w[-1] = np.log(positive / (self.a.sum() + 2 * EXPECTED - positive))
        elif problem.is_quadratic and self.fit_intercept:
            self.w[-1] = np.average(self.y, weights=self.a)

    def _constant_curvature(self, problem):
        """Return the curvature of a row that only the intercept speaks for."""
        if problem.is_log_loss:
            p = expit(self.w[-1])
            return p * (1 - p)
        return min(problem.loss.smoothness, 1.0)

    def _steps(self, problem, rows, order, inverse, threshold):
        _stream_dual.dual_steps(
            rows,
            problem.loss,
            order,
            self.y,
            self.a,
            self.beta,
            self.theta,
            self.w,
            inverse,
            threshold,
        )

    def _scores(self, rows):
        """Return the scores of all rows at hand."""
        z = np.empty(len(self.y))
        _stream.scores(rows, self.w, z)
        return z

    def _derivatives(self, problem, z):
        """Return derivatives, curvatures and steps' curvatures of all rows at hand."""
        values = np.empty((3, len(z)))
        problem.evaluate(self.y, z, self.a, values)
        if problem.is_log_loss:
            return values[1], values[2], values[2]
        # On a line there is none: no step is longer than the largest one allows.
        return values[1], values[2], problem.loss.smoothness * self.a

    def _absent(self, problem):
        """Return slope and curvature of what stands for a class not come yet."""
        if not problem.is_log_loss or self.seen.all():
            return 0.0, 0.0
        self.seen |= (self.y < 0).any(), (self.y > 0).any()
        p = expit(self.w[-1])
        count = EXPECTED * (~self.seen).sum()
        return EXPECTED * (p * (~self.seen[0]) - (1 - p) * (~self.seen[1])), (
            count * p * (1 - p)
        )

    def _priority(self, h):
        return h

    def _leave(self, rows, leaving, h):
        self._stiffen(rows, leaving, h)

    def _curvature_above(self, leaving):
        """Return the least curvatures of quadratics that are nowhere below the loss.

        Those with value and slope of the log loss at the score z of a row: that is
        tanh(z / 2) / (2 z), the bound of Jaakkola and Jordan.
        """
        a = np.maximum(self.a[leaving], 1e-300)
        z = logit(np.clip(np.abs(self.beta[leaving]) / a, 1e-7, 1 - 1e-7))
        z = np.maximum(np.abs(z), 1e-6)
        return a * np.tanh(0.5 * z) / (2 * z)

    def _intercept_curvature(self, problem, leaving, h):
        """Return what leaving rows add to the curvature of the intercept.

        Averaged over what is not known of the intercept: where rows of one class only
        have come, there is more of it than at the most likely one.
        """
        if not problem.is_log_loss:
            return h.sum()
        a = np.maximum(self.a[leaving], 1e-300)
        p = np.clip(np.abs(self.beta[leaving]) / a, 1e-7, 1 - 1e-7)
        kappa = 1 / np.sqrt(1 + np.pi / 8 * self._damping)
        p = expit(kappa * logit(p))
        return (a * kappa * p * (1 - p)).sum()


class SoftmaxStream(WideStream):
    """Softmax regression of a stream, with one curvature for all classes.

    Parameters
    ----------
    X, fit_intercept, window, seed : see :class:`WideStream`
        The same.
    n_classes : int
        Number of classes.
    """

    def __init__(self, X, n_classes, fit_intercept=True, window=np.inf, seed=0):
        super().__init__(X, fit_intercept, window, seed, shape=(n_classes,))

    def _begin(self, problem):
        if self.fit_intercept:
            counts = np.bincount(self.y, self.a, minlength=self.w.shape[1])
            counts = counts + EXPECTED
            constants = np.log(counts / counts.sum())
            self.w[-1] = constants - constants.mean()

    def _set_intercept(self, value):
        super()._set_intercept(value - value.mean())

    def _constant_curvature(self, problem):
        p = softmax(self.w[-1])
        return p * (1 - p)

    def _steps(self, problem, rows, order, inverse, threshold):
        _stream_dual.softmax_steps(
            rows,
            order,
            self.y,
            self.a,
            self.beta,
            self.theta,
            self.w,
            inverse,
            threshold,
        )

    def _scores(self, rows):
        return self.buffer.product(self.w)

    def _derivatives(self, problem, z):
        p = self.a[:, None] * softmax(z, axis=1)
        g = p.copy()
        g[np.arange(len(g)), self.y] -= self.a
        # The curvature of all classes together is at most diag(p).
        return g, p * (1 - p / np.maximum(self.a, 1e-300)[:, None]), p

    def _absent(self, problem):
        missing = EXPECTED * ~self.seen
        if missing.any():
            self.seen |= np.bincount(self.y, minlength=len(missing)) > 0
            missing = EXPECTED * ~self.seen
        p = softmax(self.w[-1])
        return missing.sum() * p - missing, missing.sum() * p

    def _priority(self, h):
        return h.sum(axis=1)

    def _leave(self, rows, leaving, h):
        # Half of the trace, 1 - ||p||^2: between the mean and the largest of the
        # curvature's directions.
        shared = 0.5 * h.sum(axis=1)
        self._stiffen(rows, leaving, shared)

    def _intercept_curvature(self, problem, leaving, h):
        return np.full(h.shape[1], 0.5 * h.sum())


def rms_eigenvalue(X):
    """Return the root mean square eigenvalue of X^T X / n, columns scaled to size 1."""
    squares = np.einsum("ij,ij->j", X, X) / len(X)
    X = X[:, squares > 0] / np.sqrt(squares[squares > 0])
    products, n = X @ X.T, len(X)
    # Products of a row with itself would add p / n to each eigenvalue.
    total = np.vdot(products, products) - np.square(products.diagonal()).sum()
    return np.sqrt(max(total, 0.0) / max(n * (n - 1) * X.shape[1], 1))
