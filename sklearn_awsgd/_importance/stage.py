"""What the rows of one stage tell: moments of the stratified mean of each half.

How many rows are in doubt was set while looking at ``benchmarks/bench_importance.py``;
how many events are, rows of all labels, and what lies beyond all that was seen, while
looking at ``benchmarks/bench_importance_peers.py``.
"""

from dataclasses import dataclass

import numpy as np

from sklearn_awsgd._importance.intervals import Estimate
from sklearn_awsgd._importance.shapes import fit_shapes
from sklearn_awsgd._kernels._cells import cell_sizes, centre

# Large values that a stratum may hide: half a one, the usual allowance for a count of
# zero, but not more than so many in all strata together.
UNSEEN_EVENTS = 0.5
UNSEEN_IN_ALL = 2.0
# Rows of each cell that a score counts for in what is known of its spread.
ROWS_IN_DOUBT = 3
# Large values that what was guessed before counts for.
EVENTS_IN_DOUBT = 3
# Rows of each cell that what a score lets expect in all labels counts for in one.
ROWS_OF_ALL_LABELS = 1
# Large values that the spread of the bins around a bin counts for, and the weights of
# the bins at a distance of 0, 1 and 2.
EVENTS_AROUND = 2
WEIGHTS_AROUND = (2, 2, 1)
# One more large value may be this many times as large as any seen in its label, but not
# larger than the largest of all.
BEYOND_SEEN = 3.0
# Of a heavy tail it may be larger than any, by the tail's own measure and at most by
# this factor; the tail is so many of the largest values, at most.
MOST_BEYOND = 4.0
# Where there is a score it is so much larger in any case. Rows that the score misleads
# about may have values twice as large as any seen: if they add more than the interval
# allows for, none of them is drawn in 1 run of exp(3.69 * 1.5 / 2) = 16 at most.
LEAST_BEYOND = 1.5
ROWS_IN_TAIL = 20
# Of rows that a score misleads about there are at most so many times as many as are
# known to have values as large (looked at on "few large losses at small scores", where
# half of it covers less, and on lognormal values).
MORE_THAN_KNOWN = 8.0
# So many of the largest values are looked at for that.
LARGEST_LOOKED_AT = 100
# About as many rows as a slope is fitted to, at most.
ROWS_FOR_SLOPE = 10_000
# Squared standard errors that a slope has to exceed.
SLOPE_DOUBT = 2.0


@dataclass
class Scores:
    """What is known of the scores of all rows of a stage.

    Parameters
    ----------
    sums : ndarray of shape (2,)
        Sum of the scores of each half.
    shapes : ndarray of shape (2 * n_strata, n_shapes)
        Squares to expect in each cell, up to a factor, as different beliefs have it.
    may_mislead : bool, default=True
        Whether they are guesses, and not just the weights of rows.
    """

    sums: np.ndarray
    shapes: np.ndarray
    may_mislead: bool = True


@dataclass
class Drawn:
    """The rows drawn in a stage.

    Attributes
    ----------
    cells : ndarray of shape (n_drawn,)
        Cell of each row.
    parts : ndarray of shape (n_drawn, n_values)
        Its part of the integrals.
    score : ndarray of shape (n_drawn,) or None
        Its score.
    unit : float
        Mean mass of a row: the part of the integral that a value of one has.
    """

    cells: np.ndarray
    parts: np.ndarray
    score: np.ndarray | None = None
    unit: float = 1.0


class Stage:
    """Moments of the two halves' stratified means.

    A cell is a stratum in a half; cells of the first half come first. All sums are of
    parts of the integral, that is of values times the mass of their row.

    Parameters
    ----------
    drawn : Drawn
        The rows drawn.
    sizes : ndarray of shape (2 * n_strata,)
        Rows of each cell.
    known_sum : ndarray of shape (2, n_values)
        Integrals over the rows known before.
    half_mass : ndarray of shape (2,)
        Mass of the halves.
    target : Mean, Ratio or Difference
        What is wanted of the integrals.
    n_groups : int
        Number of labels; the strata of a label follow each other.
    scores : Scores, default=None
        What is known of the scores of all rows.
    """

    def __init__(
        self, drawn, sizes, known_sum, half_mass, target, n_groups, scores=None
    ):
        cells, parts, score = drawn.cells, drawn.parts, drawn.score
        n_cells = len(sizes)
        self._half = np.repeat([0, 1], n_cells // 2)
        self._n_groups = n_groups
        self._group = np.repeat(np.arange(2 * n_groups), n_cells // (2 * n_groups))
        self.sizes = sizes
        self.counts = counts = np.bincount(cells, minlength=n_cells)
        n = np.maximum(counts, 1)

        def cell_means(columns):
            sums = [np.bincount(cells, column, n_cells) for column in columns.T]
            return np.stack(sums, axis=1) / n[:, None]

        means = plain_means = cell_means(parts)
        residuals = np.empty_like(parts)
        for part, mean, residual in zip(parts.T, means.T, residuals.T):
            centre(cells, part, mean, residual)
        # The variance of a cell's total is this times the sum of squared residuals.
        self.leverage2 = sizes * (sizes - counts) / (n * np.maximum(n - 1, 1))
        self.slopes = np.zeros_like(known_sum)
        if score is not None:
            score_means = cell_means(score[:, None])
            deviations = score[:, None] - score_means[cells]
            self._fit_slopes(cells, deviations, residuals)
            residuals = residuals - self.slopes[self._half][cells] * deviations
            means = means - self.slopes[self._half] * score_means
        self.mean = known_sum + self._by_half(sizes[:, None] * means)
        if score is not None:
            self.mean += self.slopes * scores.sums[:, None]
        self._measure(cells, residuals)
        overall = self._by_half(sizes[:, None] * plain_means)
        overall /= np.maximum(self._by_half(sizes), 1)[:, None]
        deviations = np.empty_like(parts)
        for part, mean, deviation in zip(parts.T, overall.T, deviations.T):
            centre(cells, part, mean[self._half], deviation)
        self._overall = overall.mean(axis=0)
        self._extremes = target.extremes(parts, drawn.unit) - self._overall
        self._mirrored = target.mirrored
        # Upwards and downwards: nothing is beyond zero, or beyond what is known.
        known = len(self._extremes) > 0
        self._is_bounded = [known or bound == 0 for bound in target.bounds[::-1]]
        may_mislead = scores is not None and scores.may_mislead
        self._least_beyond = LEAST_BEYOND if may_mislead else 1.0
        # Values of a known range may all be at its ends.
        self._is_limited = may_mislead and not known
        self._look_along(cells, residuals, deviations, half_mass, target, scores)

    def _by_group(self, x):
        return np.bincount(self._group, x, 2 * self._n_groups)

    def _by_half(self, x):
        return x.reshape(2, -1, *x.shape[1:]).sum(axis=1)

    def _fit_slopes(self, cells, deviations, residuals):
        """Give each half the coefficient that is best for the other one."""
        root = np.sqrt(self.leverage2)[:, None]
        for half in (0, 1):
            rows = np.flatnonzero(self._half[cells] == half)
            rows = rows[:: 1 + len(rows) // ROWS_FOR_SLOPE]
            self.slopes[1 - half] = shrunken_slope(
                root[cells[rows]] * deviations[rows],
                root[cells[rows]] * residuals[rows],
            )

    def _measure(self, cells, residuals):
        """Compute the second and third moments of the halves' means."""
        sizes, n = self.sizes, np.maximum(self.counts, 3)
        taken = self.counts / np.maximum(sizes, 1)
        # Without replacement, as moments of a sum of that many different rows.
        third = sizes**3.0 * (1 - taken) * (1 - 2 * taken) / (n * (n - 1.0) * (n - 2))
        columns = residuals.T

        def by_half(weight, *indices):
            product = columns[indices[0]]
            for index in indices[1:]:
                product = product * columns[index]
            return self._by_half(weight * np.bincount(cells, product, len(sizes)))

        shape = len(columns)
        self.second = np.zeros((2, shape, shape))
        self.third = np.zeros((2, shape, shape, shape))
        for i, j in np.ndindex(shape, shape):
            self.second[:, i, j] = by_half(self.leverage2, i, j)
            for k in range(shape):
                self.third[:, i, j, k] = by_half(third, i, j, k)

    def _look_along(self, cells, residuals, deviations, half_mass, target, scores):
        """Measure what matters for the target: spreads of cells, large values."""
        sizes, n = self.sizes, np.maximum(self.counts, 1)
        # The direction of a half is its own: the other one learns from its spreads.
        directions = np.stack(
            [target.direction(self.mean[h] / half_mass[h]) for h in (0, 1)]
        )

        def in_direction(vectors):
            if (directions[0] == directions[1]).all():
                return vectors @ directions[0]
            return np.einsum("ij,ij->i", vectors, directions[self._half][cells])

        along = in_direction(residuals)
        sums, squares, fourth, largest = cell_sizes(cells, along, len(sizes))
        # A large value: as in a row drawn with odds of its squared deviation.
        far = in_direction(deviations)
        _, far2, far4, largest_far = cell_sizes(cells, far, len(sizes))
        total, total4 = (self._by_half(sizes / n * x) for x in (far2, far4))
        event2 = total4 / np.where(total > 0, total, 1.0)
        # How much is in doubt depends on the number of rows of the half, not of the
        # cell: this one goes with the values of the other half, and so would its own
        # sample then go with its own values.
        n_half = self._by_half(self.counts)[self._half]
        group_share = (self._by_group(sizes) / sizes.sum() * 2)[self._group]
        unseen = min(UNSEEN_EVENTS, UNSEEN_IN_ALL / self._n_groups)
        hidden = unseen * event2[self._half] / np.maximum(n_half * group_share, 1)
        self.squares = squares / np.maximum(n - 1, 1)
        expected = np.ones(len(sizes))
        if scores is not None:
            expected = self._expect(scores.shapes)
        self._look_around(fourth / n, expected)
        if scores is not None:
            doubt = ROWS_IN_DOUBT * len(sizes) / 2
            doubt = doubt / (doubt + n_half)
            self.squares += doubt * (expected - self.squares)
            # As far beyond what the score says as any has been, wherever that was: a
            # score that misleads is trusted no more once that has been seen.
            odd = largest**2 / np.where(expected > 0, expected, np.inf)
            odd = np.maximum.reduceat(odd, [0, len(sizes) // 2])[self._half]
            event2 = np.where(event2 > 0, event2, 1.0)[self._half]
            hidden = hidden * np.minimum(odd * expected / event2, 1.0)
        self.squares += hidden
        # While there are few large values, little is known of spreads.
        seen2, seen4 = self._by_half(far2), self._by_half(far4)
        n_events = seen2**2 / np.where(seen4 > 0, seen4, 1.0)
        self.certainty = n_events / (n_events + EVENTS_IN_DOUBT)
        left = sizes - self.counts
        self.variance = self._by_half(sizes * left / n * self.squares)
        self.is_known = self._by_half(left) == 0
        self.largest_weight = rows_of_an_event(sizes, self.counts).max()
        self.largest = np.maximum.reduceat(largest_far, [0, len(sizes) // 2])
        self._drawn = cells, deviations, far
        self.label_spread = self._spread_of_labels(cells, far)
        # As if drawn with replacement: what is known of a stratum does not become less
        # when its rows run out.
        factor = sizes / n
        self.along_sizes = np.stack(
            [
                self._by_half(factor * sums),
                self._by_half(factor**2 * squares),
                np.full(2, (factor * largest).max()),
            ],
            axis=1,
        )

    def _spread_of_labels(self, cells, far):
        """Return for each cell how much values vary over all of its label."""
        group = self._group[cells]
        weight = (self.sizes / np.maximum(self.counts, 1))[cells]
        n_groups = 2 * self._n_groups
        total = np.maximum(np.bincount(group, weight, n_groups), 1e-300)
        mean = np.bincount(group, weight * far, n_groups) / total
        square = np.bincount(group, weight * far**2, n_groups) / total - mean**2
        return np.sqrt(np.maximum(square, 0.0))[self._group]

    def _expect(self, shapes):
        """Return the squares that the score lets expect in each cell.

        They are a mixture of the shapes, fitted first to each half, then to each label
        of it, where some rows more are as the half says.
        """
        rows = np.maximum(self.counts - 1.0, 0.0)
        squares = rows * self.squares

        def fit(n_parts, squares, rows):
            by_part = (x.reshape(n_parts, -1) for x in (squares, rows))
            return fit_shapes(shapes.reshape(n_parts, -1, shapes.shape[1]), *by_part)

        half = fit(2, squares, rows)
        if self._n_groups == 1:
            return half
        squares, rows = squares + ROWS_OF_ALL_LABELS * half, rows + ROWS_OF_ALL_LABELS
        return fit(2 * self._n_groups, squares, rows)

    def _look_around(self, fourth, expected):
        """Draw the spreads of bins towards those of the bins around them.

        If a bin in which no large value has been seen were left alone for that, the
        halves would agree to leave it alone, and its rare values would be missing from
        the mean: each half would have listened to itself, by way of the other one. Next
        to bins that have some it is not left alone: large values are counted, and those
        around count as some more of them, in as many rows as they would come from. What
        is compared is how far squares are beyond those that the score lets expect.

        Parameters
        ----------
        fourth : ndarray of shape (2 * n_strata,)
            Mean fourth power of the deviations of each cell.
        expected : ndarray of shape (2 * n_strata,)
            Squares to expect in each cell.
        """
        unit = np.where(expected > 0, expected, 1.0)
        square = self._around(self.squares / unit)
        fourth = self._around(fourth / unit / unit)
        rows = EVENTS_AROUND * fourth / np.where(square > 0, square, 1.0) ** 2
        n = np.maximum(self.counts, 1)
        self.squares = (n * self.squares + rows * square * unit) / (n + rows)

    def _around(self, x):
        """Return the weighted mean over the bins around each, of the same label."""
        x = x.reshape(2 * self._n_groups, -1)
        n_bins = x.shape[1]
        total, weights = WEIGHTS_AROUND[0] * x, np.full(n_bins, WEIGHTS_AROUND[0])
        for distance, weight in enumerate(WEIGHTS_AROUND[1:], start=1):
            if distance < n_bins:
                total[:, distance:] += weight * x[:, :-distance]
                total[:, :-distance] += weight * x[:, distance:]
                weights[distance:] += weight
                weights[:-distance] += weight
        return (total / weights).ravel()

    def events(self, half=None):
        """Return what one more large value, upwards or downwards, would have added.

        It may be larger than the largest value seen, whatever the score of its row: a
        surrogate that is wrong somewhere is wrong where it promises small values. In a
        label it is at most ``BEYOND_SEEN`` times the largest of that label. It counts
        for as many rows as in the bin of its label that is looked at most seldom, but
        with a score for not more than ``MORE_THAN_KNOWN`` times those known to be as
        large: where few are, an event of smaller values may add more.

        Parameters
        ----------
        half : {0, 1}, default=None
            As this half shows it, or both.
        """
        cells, _, far = self._drawn
        halves = [0, 1] if half is None else [half]
        sizes, counts = (
            x.reshape(2, -1)[halves].sum(axis=0) for x in (self.sizes, self.counts)
        )
        weight = rows_of_an_event(sizes, counts).reshape(self._n_groups, -1)
        weight = weight.max(axis=1)
        in_cells = cell_sizes(cells, far, len(self.sizes))[3].reshape(2, -1)[halves]
        in_groups = in_cells.reshape(len(halves), self._n_groups, -1).max(axis=(0, 2))
        # Labels in which all is small hide smaller ones.
        share = np.minimum(BEYOND_SEEN * in_groups / (in_groups.max() or 1.0), 1.0)
        events = self._farthest(half, np.max(weight * share))
        return np.concatenate([events, weight.max() * self._extremes])

    def hidden(self, half, weights):
        """Return about what one more event adds to a half, as the half shows it.

        Parameters
        ----------
        half : {0, 1}
            Which one.
        weights : ndarray
            Rows that the event stands for.
        """
        cells, _, far = self._drawn
        chosen = self._half[cells] == half
        if not (self._is_limited and chosen.any()):
            return weights * self.largest[half]
        sizes = np.abs(far[chosen])
        largest, rows = most_hidden(sizes, 2 * self._rows_each()[chosen], weights)
        return sizes[largest] * rows

    def _rows_each(self):
        """Return how many rows each row drawn stands for."""
        return (self.sizes / np.maximum(self.counts, 1))[self._drawn[0]]

    def _farthest(self, half=None, weight=1.0):
        """Return the largest deviations that one more event may add, up and down."""
        cells, deviations, far = self._drawn
        rows_each = self._rows_each()
        if half is not None:
            chosen = self._half[cells] == half
            deviations, far, rows_each = (
                x[chosen] for x in (deviations, far, rows_each)
            )
        # The other half is taken to be like one alone.
        parts = 1 if half is None else 2
        farthest = np.zeros((2, deviations.shape[1]))
        for k, sign in enumerate((1, -1) if len(far) else ()):
            upwards = np.abs(far) if self._mirrored else sign * far
            chosen, rows = np.argmax(upwards), weight
            if upwards[chosen] <= 0:
                continue
            factor = 1.0
            if not self._is_bounded[k]:
                factor = max(
                    beyond_seen(upwards, rows_each[chosen]), self._least_beyond
                )
            if self._is_limited:
                weights = np.array([weight])
                chosen, rows = most_hidden(upwards, parts * rows_each, weights)
                chosen, rows = chosen[0], rows[0]
            towards = sign if far[chosen] > 0 else -sign
            factor *= towards if self._mirrored else 1
            farthest[k] = factor * rows * deviations[chosen]
        return farthest

    def reach(self):
        """Return the least and the largest value that one more row may have."""
        return self._overall + self._farthest()[::-1]

    def part(self, half, share):
        """Return a half's part of the estimate, as an estimate of its own.

        Parameters
        ----------
        half : {0, 1}
            Which one.
        share : float
            Factor of this part in the whole.
        """
        powers = share ** np.array([1, 2, 1])
        return Estimate(
            share * self.mean[half],
            share**2 * self.second[half],
            share**3 * self.third[half],
            np.zeros((0, self.mean.shape[1])),
            powers * self.along_sizes[half],
        )


def rows_of_an_event(sizes, counts):
    """Return how many rows an event stands for that has not been seen in a cell.

    Of K events in N rows none is among n with a probability of ``(1 - n/N) ** K`` at
    most, and of ``exp(-K / w)`` if each is seen with the odds 1/w: the two agree for
    this w. It is N/n for small samples, and for large ones more than what is left over
    n: the last row that has not been evaluated may still be an event. There are no more
    than the rows that are left.
    """
    left = sizes - counts
    some = (left > 0) & (counts > 0)
    ratio = np.where(some, sizes / np.maximum(left, 1), np.e)
    return np.where(some, np.minimum(1 / np.log(ratio), left), 0.0)


def most_hidden(values, rows_each, weights):
    """Return which value seen would add most as an event, and for how many rows.

    Rows that nobody has looked at are many and large values are few: as many rows as
    an event stands for cannot well be as large as a value that hardly any row has.

    Parameters
    ----------
    values : ndarray of shape (n_drawn,)
        Deviations, of which the positive ones matter.
    rows_each : ndarray of shape (n_drawn,)
        How many rows of the pool each of them stands for.
    weights : ndarray of shape (n_events,)
        How many rows events stand for at most.

    Returns
    -------
    chosen, rows : ndarray of shape (n_events,)
        Positions of the values, and their numbers of rows.
    """
    order = np.arange(len(values))
    if len(values) > LARGEST_LOOKED_AT:
        order = np.argpartition(values, -LARGEST_LOOKED_AT)[-LARGEST_LOOKED_AT:]
    order = order[np.argsort(-values[order])]
    most = MORE_THAN_KNOWN * np.cumsum(rows_each[order])
    rows = np.minimum(weights, most[:, None])
    # None of the smaller values that are not looked at adds more.
    rows[-1] = weights
    best = np.argmax(values[order, None] * rows, axis=0)
    return order[best], rows[best, np.arange(len(weights))]


def beyond_seen(values, rows):
    """Return how much larger than the largest value one more of them may be.

    Values that are exceeded by a share p of all go with ``p ** -h`` in a tail, h being
    the mean logarithm of the values there over the least of them (Hill). The level that
    is exceeded e times more seldom than the largest value is then ``exp(h)`` times as
    high. Values that are all alike are never exceeded; and of the rows that the largest
    one stands for only one is the largest.

    Parameters
    ----------
    values : ndarray of shape (n_drawn,)
        Deviations, of which the positive ones matter.
    rows : float
        How many rows of the pool the largest one stands for.
    """
    scale = np.sqrt(values @ values / max(len(values), 1))
    tail = values[values > scale]
    if len(tail) < 2:
        return 1.0
    if len(tail) > ROWS_IN_TAIL:
        tail = np.partition(tail, -ROWS_IN_TAIL)[-ROWS_IN_TAIL:]
    index = np.log(tail / tail.min()).sum() / (len(tail) - 1)
    return float(min(min(rows, np.e) ** index, MOST_BEYOND))


def shrunken_slope(x, y):
    """Return regression slopes, drawn towards zero as far as they are uncertain.

    One large value must not tilt the guesses of all rows: the variance is that of the
    jackknife, which sees how much the slope hangs on single rows.

    Parameters
    ----------
    x : ndarray of shape (n_rows, 1)
        Centred score.
    y : ndarray of shape (n_rows, n_values)
        Centred values.

    Returns
    -------
    slope : ndarray of shape (n_values,)
        Of each value on the score.
    """
    squares = x * x
    total = squares.sum()
    if total == 0:
        return np.zeros(y.shape[1])
    slope = (x * y).sum(axis=0) / total
    # Without its own row, a residual is larger by this factor.
    alone = 1 / np.maximum(1 - squares / total, 1e-6)
    variance = (squares * ((y - slope * x) * alone) ** 2).sum(axis=0) / total**2
    kept = 1 - SLOPE_DOUBT * variance / np.where(slope == 0, 1.0, slope) ** 2
    return slope * np.maximum(kept, 0.0)


def round_to(total, wanted, room, offset):
    """Return integers close to `wanted` that sum to `total`, none above its room.

    Parameters
    ----------
    total : int
        At most the sum of `room`.
    wanted, room : ndarray of shape (n_cells,)
        What is wanted, and the most that is possible (integers). Of more than `total`
        each cell gets its share.
    offset : float
        In [0, 1): which way to round.
    """
    wanted = wanted * min(1.0, total / max(wanted.sum(), 1e-300))
    steps = np.floor(np.cumsum(wanted) + offset).astype(np.intp)
    # Faster than np.diff, and this is done in every round.
    counts = steps.copy()
    counts[1:] -= steps[:-1]
    np.minimum(counts, room, out=counts)
    missing = total - counts.sum()
    if missing < 0:
        # Rounding went up once too often.
        for cell in np.flatnonzero(counts)[:-missing]:
            counts[cell] -= 1
    if missing > 0:
        extra = np.cumsum(np.minimum(room - counts, missing))
        extra = np.minimum(extra, missing)
        counts += np.diff(extra, prepend=0)
    return counts
