"""Newton's method with multipliers, for losses with kinks and an l2 penalty.

A loss with kinks is made smooth by a multiplier for each row, close to its derivative
at the optimum (``smooth_losses`` in ``_kernels/_multipliers.pyx``). With the right ones
the minimum is that of the loss with its kinks, over whatever width these are rounded;
so, unlike a rounding that must become sharper and sharper, few widths are enough. Each
is solved by Newton's method, whose curvature is that of the rows next to a kink, and
the derivatives there are the next multipliers (the method of multipliers, which is a
proximal point method of the dual).

Constants were chosen on w8a, mammography, "heavy tails" and diabetes of
``benchmarks/bench_every_loss.py``.
"""

from dataclasses import dataclass

import numpy as np

from sklearn_awsgd._kernels._batch import add_weighted_rows
from sklearn_awsgd._kernels._multipliers import smooth_losses, smooth_losses_along
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd._linear.curvature import InverseCurvature, add_penalty
from sklearn_awsgd._linear.phases.conjugate import CenteredSystem, ConjugateSteps
from sklearn_awsgd._linear.phases.descent import SUFFICIENT
from sklearn_awsgd._linear.sums import LinearSums

# The first width, relative to how far rows are from where their multiplier is a slope
# of the loss. Near the optimum, rows that lie within it of a kink, for each column, or
# what rounding over it adds to the rows that lie beyond, relative to the tolerance. And
# what it is divided by when few steps were enough.
FIRST_WIDTH = 3.0
NEAR_PER_COLUMN = 60
LITTLE = 3.0
SHRINKING = 3
FEW_STEPS = 2
# Spread of the predictions, relative to that of the targets, below which they are the
# same for all rows. Chosen on the generated rows of tests/test_kink_steps.py.
LEAST_SPREAD = 0.05
# Distances from a kink that are compared, at most.
MOST_DISTANCES = 2**17
# How well one width is solved, relative to what the next multipliers will gain.
SHARE_OF_GAIN = 0.1
# Rows of a curvature sample for each column; the cost of a step is that of the sample.
CURVATURE_ROWS_PER_COLUMN = 64
# Flops of its matrix in the time that a pass takes for a number. Conjugate gradients
# instead: about how many steps they take, in numbers what the calls of each cost, how
# many they may be, and what they leave of what a step gains. Chosen on "timestamp".
FLOPS_PER_NUMBER = 40
CONJUGATE_STEPS = 25
CONJUGATE_CALLS = 10_000
MOST_CONJUGATE_STEPS = 500
SHARE_LEFT_BY_GRADIENTS = 0.01
# Slope that ends the search along a step that was too long, relative to that at its
# beginning, and trials of it.
FLAT = 0.5
# Gain of a step, relative to the objective, that rounding hides.
ROUNDING_STEP = 1e-14
# What a step leaves at most, in what the next one promises: at least, and relative to
# what the last one gained of what it had promised.
LEAST_TRUST = 1.5
TRUST = 2.0
# That is believed once a step, of which so much was taken at least, has left no more
# than this share of what was promised.
LEAST_LENGTH = 0.5
SHARE_LEFT = 0.2
# And as long as no more of all rows have curvature: where most lie next to a kink, as
# about a constant, they leave it one after the other, and take their curvature along.
# Chosen on the generated rows of tests/test_kink_steps.py.
LARGEST_SHARE_CURVED = 1 / 3
MOST_ALONG_STEP = 60
# Sets of multipliers, and steps for each.
MOST_WIDTHS = 60
MOST_NEWTON_STEPS = 100


@dataclass
class Place:
    """Where the method is."""

    v: np.ndarray
    z: np.ndarray  # predictions of the rows in play
    c: np.ndarray  # derivatives of their smooth losses
    smooth: float  # objective with smooth losses
    value: float  # objective with kinks
    gradient: np.ndarray  # of the smooth objective
    gain: float  # what other multipliers gain at least


@dataclass
class MultiplierStart:
    """Where a search begins."""

    v: np.ndarray
    z: np.ndarray  # predictions of the rows in play
    a: np.ndarray  # their multipliers
    width: float  # over which kinks are rounded first
    # Curvature of each row for the first step, in terms of 1 / width.
    curved: np.ndarray | None = None


class RowsInPlay:
    """Some rows, and the lines that all others lie on.

    Parameters
    ----------
    task : LinearTask
        With a loss with kinks.
    rows : ndarray of int
        Numbers of the rows, sorted.
    variates : ndarray of shape (n_samples,)
        A slope of each row's loss.
    """

    def __init__(self, task, rows, variates):
        data, y = task.data, task.target.numbers()
        n = task.n_samples
        mass = np.full(n, 1 / n) if data.mass is None else data.mass
        low, high = task.loss.flat_ends(y)
        self.constant, self.slopes = 0.0, np.zeros(task.n_features + 1)
        if len(rows) == n:
            # A slice is read where it lies.
            rows = slice(None)
        else:
            at_rest = mass * variates
            at_rest[rows] = 0.0
            # f*(a), where f is a line: the loss is a z - f*(a).
            is_low, is_high = at_rest < 0, at_rest > 0
            self.constant -= at_rest[is_low] @ low[is_low]
            self.constant -= at_rest[is_high] @ high[is_high]

            def add(X, part):
                total = np.zeros(X.shape[1])
                add_weighted_rows(Rows(X), at_rest[part], total)
                return total

            for more in data.blocks.map(add):
                self.slopes[:-1] += more
            self.slopes[-1] = at_rest.sum()
        self.alpha, self.fit_intercept = task.penalty.l2, task.fit_intercept
        self.ends, self.mass = (low[rows], high[rows]), mass[rows]
        X, y, norms2 = data.X[rows], y[rows], data.norms2[rows]
        blocks = Blocks(X, data.blocks.n_threads)
        self.sums = LinearSums(blocks, task.loss, y, self.mass, norms2)
        self.n_rows, self.share = len(y), len(y) / n
        self.spread = task.target.spread

    def predict(self, v):
        """Return the predictions of the rows."""
        parts = self.sums.blocks.map(lambda X, part: X.dot(v[:-1]) + v[-1])
        return np.concatenate(list(parts)).astype(np.float64, copy=False)

    def correlate(self, weigh):
        """Return the sum of weights times rows, and of the weights on each side.

        `weigh` returns the weights of a slice of the rows.
        """

        def visit(X, part):
            weights, more = weigh(part), np.zeros(X.shape[1])
            add_weighted_rows(Rows(X), weights, more)
            below = np.minimum(weights, 0).sum()
            return more, np.array([below, weights.sum() - below])

        total, sides = np.zeros(self.sums.n_columns), np.zeros(2)
        for more, more_of_sides in self.sums.blocks.map(visit):
            total[:-1] += more
            sides += more_of_sides
        total[-1] = sides.sum()
        return total, sides

    def smooth_along(self, here, moves, length, a, width):
        """Return the sum of smooth losses at some length of a step, and its slope."""
        low, high = self.ends

        def visit(X, part):
            ends, mass, z = (low[part], high[part]), self.mass[part], here.z[part]
            return np.array(
                smooth_losses_along(ends, mass, a[part], z, moves[part], length, width)
            )

        return sum(self.sums.blocks.map(visit))

    def place(self, v, z, a, width, objective):
        """Return the Place of v, and tell the objective of its dual point."""
        (low, high), c, sums = self.ends, np.empty(self.n_rows), []

        def smooth(part):
            ends, mass = (low[part], high[part]), self.mass[part]
            found = smooth_losses(ends, mass, a[part], z[part], width, c[part])
            sums.append((part.start, found))
            return mass * c[part]

        gradient, sides = self.correlate(smooth)
        # In the order of the rows, whatever thread was first.
        found = np.sum([found for _, found in sorted(sums)], axis=0)
        smooth, exact, below, above, changes = found
        gradient += self.slopes
        lines = self.slopes @ v + self.constant + self.alpha / 2 * v[:-1] @ v[:-1]
        self._mix_dual(c, gradient, sides, (below, above), objective)
        gradient[:-1] += self.alpha * v[:-1]
        if not self.fit_intercept:
            gradient[-1] = 0.0
        return Place(
            v, z, c, smooth + lines, exact + lines, gradient, width / 2 * changes
        )

    def _mix_dual(self, c, mean, sides, conjugates, objective):
        """Tell an objective of a dual point, made feasible as it does itself."""
        total = sum(conjugates) + self.constant
        if not self.fit_intercept:
            objective.mix_dual(total, mean[:-1].copy())
            return
        if abs(mean[-1]) > 1e-3 * np.abs(sides).sum():
            # Too far from being one.
            return
        # Rows of the side with the larger sum are scaled down.
        k, side_of = (1, np.maximum) if mean[-1] > 0 else (0, np.minimum)
        share = abs(mean[-1]) / max(abs(sides[k]), 1e-300)
        if share >= 1:
            return
        larger, _ = self.correlate(lambda part: self.mass[part] * side_of(c[part], 0))
        total -= share * conjugates[k]
        objective.mix_dual(total, mean[:-1] - share * larger[:-1])

    def newton_step(self, here, width, rng, curved=None):
        """Return Newton's step."""
        if curved is None:
            curved = is_curved(here.c)
        if self._solves_by_gradients(np.count_nonzero(curved)):
            return self._conjugate_step(here, curved / width)
        most = max(CURVATURE_ROWS_PER_COLUMN * self.sums.n_columns, 1000)
        n_rows = self.n_rows if np.count_nonzero(curved) <= most else most
        hessian, _ = self.sums.hessian(curved / width, 0.0, n_rows, rng)
        if not self.fit_intercept:
            hessian[:, -1] = 0
        add_penalty(np.einsum("ii->i", hessian), self.alpha, self.fit_intercept)
        return -(InverseCurvature.from_hessian(hessian, cost=0.0) @ here.gradient)

    def _solves_by_gradients(self, n_curved):
        """Return whether conjugate gradients cost less than a matrix of the curvature.

        So it is with hundreds of columns, of which each row has few.
        """
        per_row = self.sums.n_nonzero / max(self.n_rows, 1)
        matrix = curvature_cost(self.sums.n_columns, per_row, n_curved)
        return conjugate_cost(per_row, n_curved) < matrix

    def _conjugate_step(self, here, curvatures):
        """Return Newton's step, nearly, by conjugate gradients."""
        rows = np.flatnonzero(curvatures)
        h = curvatures[rows] * self.mass[rows]
        blocks = Blocks(self.sums.blocks.take(rows), self.sums.blocks.n_threads)
        system = CenteredSystem(blocks, h, self.alpha, self.fit_intercept)
        slope = here.gradient[-1] if system.total > 0 else 0.0
        gradient = here.gradient[:-1] - slope * system.center
        steps = ConjugateSteps(system, np.zeros(len(gradient)), 0.0, gradient)
        for _ in range(MOST_CONJUGATE_STEPS):
            steps.step()
            if steps.left <= SHARE_LEFT_BY_GRADIENTS * -steps.value:
                break
        b = -slope / max(system.total, 1e-300) - system.center @ steps.w
        return np.append(steps.w, b if self.fit_intercept else 0.0)


def is_curved(c):
    """Return which derivatives are those of rows next to a kink."""
    return (np.abs(c) < 1) & (c != 0)


def curvature_cost(n_columns, per_row, n_curved):
    """Return what a matrix of the curvature costs, in numbers that a pass looks at."""
    return (n_curved * per_row**2 + n_columns**3 / 3) / FLOPS_PER_NUMBER


def conjugate_cost(per_row, n_curved):
    """Return what conjugate gradients cost, likewise."""
    return CONJUGATE_STEPS * (2 * per_row * n_curved + CONJUGATE_CALLS)


def begin_far(play, v, a):
    """Return the MultiplierStart of a search that begins far from the optimum.

    With a multiplier for each row: an array `a`.
    """
    z, (low, high) = play.predict(v), play.ends
    # Where the multiplier is a slope of the loss: between these two.
    begin = np.where(a <= -1, -np.inf, np.where(a <= 0, low, high))
    end = np.where(a >= 1, np.inf, np.where(a >= 0, high, low))
    far = np.maximum(begin - z, 0) + np.maximum(z - end, 0)
    far = far[far > 0]
    width = FIRST_WIDTH * np.sqrt(np.mean(far**2)) if len(far) else 1.0
    return MultiplierStart(v, z, a, width)


def begin_near(play, v, tol):
    """Return the MultiplierStart of a search that begins close to the optimum.

    Its width is so small that not many rows lie next to a kink, or that rounding kinks
    over it would matter less than the tolerance. The multipliers are the derivatives
    when that is done.
    """
    z, (low, high), mass = play.predict(v), play.ends, play.mass
    if z.std() < LEAST_SPREAD * play.spread:
        # The same for all rows: next to one kink, or far from any, and far from knowing
        # what matters.
        return begin_far(play, v, np.zeros(play.n_rows))
    distances, blocks = np.empty(play.n_rows), play.sums.blocks

    def look(X, part):
        below, above = low[part] - z[part], z[part] - high[part]
        np.minimum(np.abs(below), np.abs(above), out=distances[part])
        beyond = np.maximum(np.maximum(below, above), 0.0)
        return mass[part] @ beyond, mass[part] @ (beyond > 0)

    loss, share = np.sum(list(blocks.map(look)), axis=0)
    n_near = min(NEAR_PER_COLUMN * play.sums.n_columns, play.n_rows - 1)
    # Of very many rows, every so many tell as much.
    step = -(-play.n_rows // MOST_DISTANCES)
    near = np.partition(distances[::step], n_near // step)[n_near // step]
    width = max(near, LITTLE * tol * loss / max(share, 1e-300), 1e-300)
    a, nothing = np.empty(play.n_rows), np.zeros(play.n_rows)
    curved = np.empty(play.n_rows)

    def smooth(X, part):
        ends = low[part], high[part]
        smooth_losses(ends, mass[part], nothing[part], z[part], width, a[part])
        # Those of both sides of a kink tell the curvature ahead better than one side.
        np.divide(distances[part] <= width, 2, out=curved[part])

    for _ in blocks.map(smooth):
        pass
    return MultiplierStart(v, z, a, width, curved)


def minimize_with_multipliers(play, start, goal, run, rng):
    """Minimise over the rows in play, the others on their lines.

    It ends by the duality gap of these rows, or by an estimate. The smooth objective is
    nowhere above that with kinks, so its minimum, as far as Newton's method knows that,
    bounds the minimum sought.

    Parameters
    ----------
    play : RowsInPlay
        Rows.
    start : MultiplierStart
        Where to start.
    goal : tuple of float
        Relative suboptimality to reach on these rows, and the least objective that it
        is relative to.
    run : KinkRun
        Its objective is told of dual points; it counts what is spent and keeps what is
        estimated.
    rng : numpy.random.Generator
        Draws curvature samples.

    Returns
    -------
    best : Place
        Where the objective of these rows was least.
    a : ndarray of shape (n_rows,)
        The last multipliers.
    reached : bool
        Whether the goal was reached.
    """
    v, z, a, width = start.v, start.z, start.a, start.width
    objective, best, curved = run.objective, None, start.curved

    def spend(best):
        # What the rows that are not in play lack is not known.
        gap = best.value - objective.lower_bound() if play.share == 1 else np.nan
        run.spend(play.share, best.value, gap, best.v)

    for _ in range(MOST_WIDTHS):
        here, before = play.place(v, z, a, width, objective), None
        best = _better(best, here)
        for n_steps in range(MOST_NEWTON_STEPS):
            enough = goal[0] * max(best.value, goal[1])
            if best.value - objective.lower_bound() <= enough:
                return best, here.c, True
            if run.is_spent:
                return best, here.c, False
            step = play.newton_step(here, width, rng, curved)
            curved = None
            left = -(here.gradient @ step) / 2
            if (
                before is not None
                and left <= SHARE_LEFT * before[1]
                and np.count_nonzero(is_curved(here.c))
                <= LARGEST_SHARE_CURVED * play.n_rows
            ):
                below = here.smooth - _trust(before, here, left) * left
                run.estimate(below)
                if best.value - below <= enough:
                    return best, here.c, True
            if left <= ROUNDING_STEP * abs(here.smooth):
                # Rounding hides what the step gains: it is taken as it is.
                end = here.v + step
                here = play.place(end, play.predict(end), a, width, objective)
                best = _better(best, here)
                spend(best)
                break
            if left <= SHARE_OF_GAIN * here.gain:
                break
            new, length = _search(play, here, step, left, a, width, objective)
            best = _better(best, new or here)
            spend(best)
            if new is None:
                break
            before = (here.smooth, left) if length >= LEAST_LENGTH else None
            here = new
        if n_steps <= FEW_STEPS:
            width /= SHRINKING
        v, z, a = here.v, here.z, here.c
    return best, a, False


def _better(best, here):
    """Return the Place whose objective is less; there may be none so far."""
    return here if best is None or here.value < best.value else best


def _trust(before, here, left):
    """Return how much more than it promises a step may gain, by what the last one did.

    `before` has the objective before that, and what was promised.
    """
    value, promised = before
    promised -= left
    ratio = (value - here.smooth) / promised if promised > 0 else np.inf
    return TRUST * max(ratio, LEAST_TRUST)


def _search(play, here, step, left, a, width, objective):
    """Return the Place near the minimum along a step, and the share of it taken.

    None and 0 if rounding hides it. A trial costs a look at the predictions alone.
    """
    moves, lines = play.predict(step), play.slopes @ step
    slope = -2 * left
    # Where the slope is negative, and where it is positive, with what it is there.
    low, high, length = (0.0, slope), None, 1.0
    for _ in range(MOST_ALONG_STEP):
        v = here.v + length * step
        smooth, end = play.smooth_along(here, moves, length, a, width)
        smooth += play.slopes @ v + play.constant + play.alpha / 2 * v[:-1] @ v[:-1]
        end += lines + play.alpha * v[:-1] @ step[:-1]
        enough = smooth <= here.smooth + SUFFICIENT * length * slope
        if enough and (abs(end) <= FLAT * -slope or (end < 0 and high is None)):
            z = here.z + length * moves
            return play.place(v, z, a, width, objective), length
        if end > 0:
            # Illinois: an end that stays counts half, so that the other one comes.
            low = low if high is None else (low[0], low[1] / 2)
            high = length, end
        elif enough and high is not None:
            low, high = (length, end), (high[0], high[1] / 2)
        else:
            break
        length = (low[0] * high[1] - high[0] * low[1]) / (high[1] - low[1])
    return None, 0.0
