"""Strata without replacement: a pool in two halves that learn from each other.

The rows are dealt into two halves at random. Each half is sampled in its strata without
replacement and estimated by the classical stratified mean. What is learned, namely how
many rows to take of each stratum, the coefficient of the control variate, the weights
of stages and when to stop, comes for each half from the values of the *other* one. A
stratum is then not left early because its own values happened to be small, so that the
sizes of samples are not tied to what is in them.

The shares that are tried, and what a width is made of, were set while looking at
``benchmarks/bench_importance_peers.py``.
"""

import numpy as np

from sklearn_awsgd._importance.design import Asked, Columns, Design
from sklearn_awsgd._importance.intervals import Estimate
from sklearn_awsgd._importance.rounds import Rounds
from sklearn_awsgd._importance.shapes import score_shapes
from sklearn_awsgd._importance.stage import Scores, round_to
from sklearn_awsgd._importance.targets import Difference, Mean
from sklearn_awsgd._kernels._cells import fill

# Least rate at which rows are taken whatever the score says, over the rate that they
# would have without it: how many are tried, and the highest where the budget ends a run
# (higher ones cost more error than they save width) and where the width does.
TRIED_FLOORS = 10
HIGHEST_FLOOR, HIGHEST_FLOOR_FOR_WIDTH = 0.6, 1.0
# Widths of an interval: in standard errors, and in hidden events.
ERRORS_IN_WIDTH, EVENTS_IN_WIDTH = 3.9, 2.7
# Rows of each cell (a stratum in a half) that are taken first; a third moment needs 3.
LEAST_ROWS = 3


class StratifiedRounds(Rounds):
    """Rounds of rows drawn without replacement from the strata of a pool.

    Parameters
    ----------
    pool : Pool
        What is evaluated.
    sampler : StrataSampler
        Its `mixing` is the share of the rows that are taken in proportion to the size
        of their stratum.
    generator : numpy.random.BitGenerator
        Random stream.
    strata : Strata
        The strata to begin with.
    learned : LearnedStrata, default=None
        Makes other strata and scores now and then.
    for_width : bool, default=False
        Whether a narrow interval is wanted most, which has to allow for large values
        where the score promises small ones; otherwise a small error is.
    """

    # A round of one row is possible, and so the budget can be spent to the last.
    shortest_round = 1
    stopping_sample_size = 200
    foresees_end = True

    def __init__(self, pool, sampler, generator, strata, learned=None, for_width=False):
        super().__init__(pool, sampler)
        self._highest_floor = HIGHEST_FLOOR_FOR_WIDTH if for_width else HIGHEST_FLOOR
        self._random = np.random.Generator(generator)
        self._learned = learned
        self._past_stages = []
        # As of the last time that something was learned.
        self._estimate = None
        self._past_designs = []
        self.pending = None
        # Rows asked for and not told yet.
        self.n_outstanding = 0
        self.restratify(strata, self._deal(strata.index))

    def _deal(self, strata):
        """Deal the rows of every stratum to the two halves; return their order."""
        order = self._shuffled(np.flatnonzero(~self.pool.known), strata)
        self.half = np.zeros(len(self.pool.mass), dtype=np.int8)
        begin = int(self._random.integers(2))
        self.half[order] = (np.arange(len(order)) + begin) % 2
        self.half_mass = np.bincount(self.half, self.pool.mass, 2)
        return np.concatenate([order[begin::2], order[1 - begin :: 2]])

    def _shuffled(self, rows, cells):
        """Return rows in random order, sorted by cell."""
        rows = self._random.permutation(rows)
        # A stable sort of short integers takes linear time.
        short = cells[rows].astype(np.min_scalar_type(cells.max()))
        return rows[np.argsort(short, kind="stable")]

    @property
    def n_draws(self):
        """Number of draws: each is of a new row."""
        return self.pool.n_evaluations

    def draws_of_halves(self):
        """Return how many rows of each half are known, from all stages."""
        known = self.pool.known & (self.pool.mass > 0)
        return np.bincount(self.half[known], minlength=2)

    def restratify(self, strata, order=None):
        """Begin a stage: choose the strata of the rows not evaluated yet.

        Parameters
        ----------
        strata : Strata
            Strata and scores of a half must depend on values of the other half only.
        order : ndarray, default=None
            The rows in random order, sorted by half and stratum.
        """
        self.n_strata = n_strata = strata.n_strata
        self._n_groups, score = strata.n_labels, strata.score
        known = self.pool.known
        # A view of all rows, if none is known: pools may have many millions.
        unknown = np.flatnonzero(~known) if known.any() else slice(None)
        cells = self.half * np.int32(n_strata) + strata.index
        # In a new order: the rows that an earlier stage left lie in no random one.
        if order is None:
            order = self._shuffled(np.flatnonzero(~known), cells)
        self._order = order
        self._sizes = np.bincount(cells[unknown], minlength=2 * n_strata)
        self._begin = np.cumsum(self._sizes) - self._sizes
        # Rows asked for in each cell, and those of them whose values are known.
        self._taken = np.zeros(2 * n_strata, dtype=np.intp)
        self._told = np.zeros(2 * n_strata, dtype=np.intp)
        self._drawn = Columns()
        self._known_before = np.flatnonzero(known & (self.pool.mass > 0))
        self._known_sum = self.known_sum(self._known_before, self.pool.values)
        self._score = self._scores = None
        if score is not None:
            self._score = self.pool.mass * score
            x = self._score[unknown]
            self._scores = Scores(
                sums=np.bincount(self.half[unknown], x, 2),
                shapes=score_shapes(cells[unknown], x, self._sizes),
                may_mislead=bool((score != score[0]).any()),
            )
            self._first_spread = np.sqrt(self._scores.shapes.mean(axis=1))
        else:
            # Between taking strata as they come and taking the same of all.
            self._first_spread = 1 / np.sqrt(np.maximum(self._sizes, 1))
        self._spread = self._first_spread
        self._known_shares = {}
        self._stage = None

    def _shares(self, half):
        """Return which share of a half's rows each stratum should have."""
        if half not in self._known_shares:
            self._known_shares[half] = self._find_shares(half)
        return self._known_shares[half]

    def _find_shares(self, half):
        cells = self._cells(half)
        sizes = self._sizes[cells]
        certainty = 0.0 if self._stage is None else self._stage.certainty[1 - half]
        weight = np.zeros(self.n_strata)
        for spread, share in (
            (self._first_spread[cells], 1 - certainty),
            (self._spread[self._cells(1 - half)], certainty),
        ):
            weight += share * sizes * spread / ((sizes * spread).sum() or 1.0)
        least = self.sampler.mixing
        shares = (1 - least) * weight + least * sizes / max(sizes.sum(), 1)
        if self._stage is None or self.n_strata == self._n_groups:
            return shares
        # As if there were no score: the best division among labels; or none at all.
        by_label = sizes * self._stage.label_spread[self._cells(1 - half)]
        by_size = sizes / max(sizes.sum(), 1)
        by_label = (1 - least) * by_label / (by_label.sum() or 1.0) + least * by_size
        # What is hidden goes with the least rate, and a floor raises that at the least
        # expense of the others.
        floors = np.linspace(0.0, self._highest_floor, TRIED_FLOORS)[:, None]
        tried = np.concatenate(
            [np.maximum(shares, floors * safe) for safe in (by_label, by_size)]
        )
        tried /= np.maximum(tried.sum(axis=1, keepdims=True), 1e-300)
        return tried[np.argmin(self._widths(half, tried))]

    def _widths(self, half, shares):
        """Return about how wide intervals would be with some shares of the strata.

        Rows at small scores that are seldom looked at may hide large values, and the
        interval has to allow for them. Spreads are those of the other half.

        Parameters
        ----------
        half : {0, 1}
            Which half is to be divided.
        shares : ndarray of shape (n_trials, n_strata)
            Shares of its rows.
        """
        sizes = self._sizes[self._cells(half)]
        n_taken = max(self._taken[self._cells(half)].sum(), 1)
        counts = np.maximum(n_taken * shares, 1e-9)
        spread = self._spread[self._cells(1 - half)]
        error = np.sqrt(((sizes * spread) ** 2 / counts).sum(axis=1))
        hidden = self._stage.hidden(1 - half, (sizes / counts).max(axis=1))
        return ERRORS_IN_WIDTH * error + EVENTS_IN_WIDTH * hidden

    def _cells(self, half):
        return slice(half * self.n_strata, (half + 1) * self.n_strata)

    def probabilities(self):
        """Return the share of the rows that each stratum should have."""
        return (self._shares(0) + self._shares(1)) / 2

    def keep(self):
        """Let the sampler keep these shares."""
        self.sampler.probabilities_ = self.probabilities()[None]

    def allocate(self, size):
        """Return how many rows of each cell to draw in a round.

        Each half is brought towards the allocation of Neyman, with the spreads known
        from the other half, of all rows it will then have had in this stage.
        """
        counts = np.zeros_like(self._taken)
        first_rows = self._least()
        for half, part in enumerate(self._split(size, first_rows)):
            cells = self._cells(half)
            sizes, taken = self._sizes[cells], self._taken[cells]
            room = sizes - taken
            least = first_rows[cells]
            if least.sum() < part:
                wanted = fill(
                    taken.sum() + part, self._shares(half), sizes.astype(float)
                )
                more = np.maximum(wanted - taken - least, 0.0)
                # What others have had too much of is missing here.
                least = least + more * ((part - least.sum()) / (more.sum() or 1.0))
            offset = self._random.random()
            counts[cells] = round_to(part, least, room, offset)
        return counts

    def _split(self, size, least):
        """Return how many rows to draw of each half."""
        room = np.add.reduceat(self._sizes - self._taken, [0, self.n_strata])
        least = np.add.reduceat(least, [0, self.n_strata])
        active = self._active & (room > 0)
        if not active.any():
            active = room > 0
        odd = int(self._random.integers(2))
        part = (size + np.array([odd, 1 - odd])) // 2 if active.all() else size * active
        if least.sum() <= size:
            # Nothing is learned of a stage before every cell has had its first rows.
            first = min(max(part[0], least[0]), size - least[1])
            part = np.array([first, size - first])
        return np.minimum(part, room)

    def _least(self):
        """Return how many of its first rows each cell still has to get."""
        return np.maximum(np.minimum(self._sizes, LEAST_ROWS) - self._taken, 0)

    def draw(self, size):
        """Draw a round and evaluate it."""
        if self.pending is None:
            self.pending = self.ask(size)
        self.pool.evaluate(self.pending.rows)
        self.tell(self.pending)
        self.pending = None

    def ask(self, size):
        """Return a round of rows to evaluate.

        Parameters
        ----------
        size : int
            Rows wanted; there may be fewer left.
        """
        counts = self.allocate(size)
        begin = self._begin + self._taken - (np.cumsum(counts) - counts)
        rows = np.repeat(begin, counts) + np.arange(counts.sum())
        self._taken += counts
        self.n_outstanding += len(rows)
        return Asked(self._order[rows], counts)

    def tell(self, asked):
        """Take in a round that was asked for, all of whose rows the pool knows."""
        rows, counts = asked.rows, asked.counts
        values = self.pool.values[rows]
        self.n_outstanding -= len(rows)
        self._told += counts
        self._drawn.append("cells", np.repeat(np.arange(len(counts)), counts))
        self._drawn.append("rows", rows)
        mass = self.pool.mass[rows]
        self._drawn.append("mass", mass)
        self._drawn.append("parts", mass[:, None] * values)
        if self._score is not None:
            self._drawn.append("score", self._score[rows])

    @property
    def is_measured(self):
        """Whether there is an estimate."""
        return self.n_unknown == 0 or bool(self._stage or self._past_stages)

    def finish(self):
        """Evaluate all that is not known yet."""
        self.go_on()
        while self.n_unknown:
            self.draw(self.n_unknown)

    def least_left(self, max_evaluations):
        """Return how much of a budget must be left for a round."""
        return 1

    def least_round(self):
        """Return how many rows the next round must have, for some of every cell."""
        return int(self._least().sum())

    def learn(self, left=0):
        """Learn from what is known by now; perhaps begin a new stage.

        Parameters
        ----------
        left : int, default=0
            Evaluations that are left: a stage is begun only if they are enough for the
            first rows of all its cells, without which nothing is known of it.
        """
        if self.n_unknown == 0 or ((self._told == 0) & (self._sizes > 0)).any():
            return
        self._measure()
        if self.n_outstanding:
            # They belong to the strata as they are.
            return
        learned = self._learned
        if learned is None or self.n_evaluations < learned.next_at:
            return
        if left >= 2 * LEAST_ROWS * learned.n_strata(self.n_evaluations):
            # What matters is, for each half, known from itself: it teaches the other.
            directions = np.stack(
                [self.target.direction(self.estimate(half).mean) for half in (0, 1)]
            )
            values = np.einsum("ij,ij->i", self.pool.values, directions[self.half])
            made = learned.strata(self.pool.known, self.half, values, self.pool.mass)
            if made is not None:
                self._past_stages.append(self._stage)
                self._past_designs.append(self._design())
                self.restratify(made)

    def _measure(self):
        """Measure the current stage, and learn the spread of its cells."""
        self._stage = self._design().stage(self, self.pool.values, self.target)
        self._spread = np.sqrt(self._stage.squares)
        self._known_shares = {}
        self._estimate = None

    def estimate(self, half=None):
        """Return the estimate, of both halves or as one of them tells it."""
        if half is None and self._estimate is not None:
            return self._estimate
        stages = [*self._past_stages, *([self._stage] if self._stage else [])]
        estimate = self._combine(stages, self.target, half)
        if half is None:
            self._estimate = estimate
        return estimate

    def estimate_of(self, values, target):
        """Return the estimate of another function, from the rows known by now.

        Parameters
        ----------
        values : ndarray of shape (n_samples, n_values)
            Its values at these rows; others are not looked at.
        target : Mean, Ratio or Difference
            What is wanted of it.
        """
        designs = [*self._past_designs, *([self._design()] if self._stage else [])]
        stages = [design.stage(self, values, target) for design in designs]
        return self._combine(stages, target)

    def _design(self):
        """Return how the rows of this stage were drawn."""
        return Design(
            self._drawn.get("rows", np.intp),
            self._drawn.get("cells", np.intp),
            self._sizes,
            self._known_before,
            self._n_groups,
            None if self._score is None else self._drawn.get("score"),
            self._scores,
        )

    def known_sum(self, rows, values):
        """Return the integrals over some known rows of each half."""
        parts = self.pool.mass[rows, None] * values[rows]
        sums = [np.bincount(self.half[rows], column, 2) for column in parts.T]
        return np.stack(sums, axis=1)

    def _combine(self, stages, target, half=None):
        """Return the estimate of some stages together."""
        parts = []
        for h in (0, 1) if half is None else (half, half):
            if stages[-1].is_known[h]:
                weights = np.eye(len(stages))[-1]
            else:
                weights = [1 / max(s.variance[1 - h], 1e-300) for s in stages]
                weights = np.array(weights)
                weights /= weights.sum()
            scale = 1.0 if half is None else 0.5 / self.half_mass[h]
            parts += [s.part(h, c * scale) for s, c in zip(stages, weights)]
        mean = sum(part.mean for part in parts)
        sizes = np.stack([part.sizes for part in parts])
        return Estimate(
            mean,
            sum(part.second for part in parts),
            sum(part.third for part in parts),
            self._hidden_events(stages[-1], target, half, mean),
            np.append(sum(sizes[:, :2]), sizes[:, 2].max()),
        )

    def _hidden_events(self, stage, target, half, mean):
        """Return what one more large value would have added."""
        events, bounds = stage.events(half), np.array(target.bounds)
        if events.any() or len(mean) > 1 or not np.isfinite(bounds).all():
            return events
        # Nothing varied: what is known is the range.
        return stage.largest_weight / self.pool.n_points * (bounds - mean)[:, None]

    def assumed_range(self):
        """Return between which values the interval takes all others to lie, or None."""
        target = self.target
        mean = target.part if isinstance(target, Difference) else target
        if not isinstance(mean, Mean) or self._stage is None:
            return None
        if mean.attained:
            return target.bounds
        direction = target.direction(self.estimate().mean)
        reach = self.pool.n_points * self._stage.reach() @ direction
        return tuple(np.clip(reach, *target.bounds).tolist())

    def variance_gain(self):
        """Return the variance of a plain average of as many rows, over ours."""
        estimate = self.estimate()
        direction = self.target.direction(estimate.mean)
        rows, weight = self.expansion()
        along = self.pool.values[rows] @ direction
        mean = weight @ along / weight.sum()
        uniform = weight @ (along - mean) ** 2 / weight.sum()
        uniform *= 1 / self.n_evaluations - 1 / self.pool.n_points
        ours = direction @ estimate.second @ direction
        if ours == 0:
            return np.inf if uniform > 0 else 1.0
        return uniform / ours

    def expansion(self):
        """Return the rows known by now, and the mass that each of them stands for.

        Those known before the strata were made stand for themselves.
        """
        before, cells = self._known_before, self._drawn.get("cells", np.intp)
        stands_for = (self._sizes / np.maximum(self._told, 1))[cells]
        weight = stands_for * self._drawn.get("mass")
        rows = np.concatenate([before, self._drawn.get("rows", np.intp)])
        return rows, np.concatenate([self.pool.mass[before], weight])

    def sample(self, n_samples):
        """Draw positions with replacement, as strata are drawn now, with weights."""
        before = self._known_before
        left = self.pool.mass[self._order].sum()
        shares = np.concatenate([self._shares(0), self._shares(1)])
        shares = np.where(self._sizes > 0, shares, 0.0)
        # Rows known before the strata were made are one more stratum, by their mass.
        shares = np.append(left * shares / shares.sum(), max(1 - left, 0.0))
        sizes = np.append(self._sizes, len(before))
        shares = np.where(sizes > 0, shares, 0.0) / shares[sizes > 0].sum()
        cells = self._random.choice(len(shares), size=n_samples, p=shares)
        within = (self._random.random(n_samples) * sizes[cells]).astype(np.intp)
        begin = np.append(self._begin, len(self._order))
        rows = np.concatenate([self._order, before])[begin[cells] + within]
        return rows, self.pool.mass[rows] * (sizes / np.maximum(shares, 1e-300))[cells]
