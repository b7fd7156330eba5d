"""Rounds of draws with replacement, weighted by 1/q: Algorithm 1 of the paper.

The draws of every round are dealt to two halves, and each half ends when the *other*
one says so: a run that has been low also looks precise, and must not end for that.
"""

import numpy as np

from sklearn_awsgd._importance.integration import (
    Estimate,
    draws_wanted,
    is_narrow,
)

# Growth of the draws at which the family learns afresh; in between it learns from each
# round.
REFIT_GROWTH = 1.4
# The run ends when less than this share of the budget is left, draws with replacement
# bringing few new rows by then.
BUDGET_LEFT = 0.01


class Combination:
    """The weighted average of all rounds so far, and its moments.

    Round k of B_k draws has the weight ``B_k sqrt(T_k)``, T_k draws having been made by
    its end: later rounds come from a better sampler and count more. The weights do not
    depend on the values, so the average stays unbiased. Weights by estimated variances
    would not do: rounds that happen to be low also look precise.

    Parameters
    ----------
    n_values : int
        Number of integrals.
    """

    def __init__(self, n_values):
        self.n_draws = 0
        self._weight = 0.0
        self._sums = [np.zeros((n_values,) * order) for order in (1, 2, 3)]
        # Of the draws' deviations along the direction of interest: sum of sizes, sum of
        # squares, largest size.
        self._sizes = np.zeros(3)
        # Sums of squares of the deviations upwards and downwards, and of deviations
        # weighted by their squares.
        self._squares = np.zeros(2)
        self._events = np.zeros((2, n_values))

    def add(self, values, direction, trust=1.0):
        """Take in a round.

        Parameters
        ----------
        values : ndarray of shape (n_draws, n_values)
            Each row has the expectation of interest.
        direction : ndarray of shape (n_values,)
            Gradient of the target, as known before the round.
        trust : float, default=1.0
            Factor of the weight, as known before the round.
        """
        n = len(values)
        self.n_draws += n
        weight = n * np.sqrt(self.n_draws) * trust
        mean = values.mean(axis=0)
        deviation = values - mean
        # Unbiased moments of the round's mean, not of one draw.
        second = deviation.T @ deviation / (n * (n - 1))
        cubes = (deviation[:, :, None] * deviation[:, None, :]).reshape(n, -1)
        third = (deviation.T @ cubes).reshape((values.shape[1],) * 3)
        third /= n * (n - 1) * (n - 2)
        for order, moment in enumerate((mean, second, third), start=1):
            self._sums[order - 1] += weight**order * moment
        self._weight += weight
        along = deviation @ direction * (weight / n)
        size = np.abs(along)
        self._sizes[0] += size.sum()
        self._sizes[1] += size @ size
        self._sizes[2] = max(self._sizes[2], size.max())
        for k, chosen in enumerate((along > 0, along < 0)):
            squares = size[chosen] ** 2
            self._squares[k] += squares.sum()
            self._events[k] += squares @ deviation[chosen] * (weight / n)

    def snapshot(self):
        """Return the average so far as an :class:`Estimate`."""
        mean, second, third = (
            total / self._weight**order for order, total in enumerate(self._sums, 1)
        )
        sizes = self._sizes / self._weight ** np.array([1, 2, 1])
        squares = np.where(self._squares > 0, self._squares, 1.0)
        events = self._events / (squares[:, None] * self._weight)
        return Estimate(mean, second, third, events, sizes)


class WeightedRounds:
    """Rounds of weighted draws from a space.

    Parameters
    ----------
    space : FiniteSpace or DistributionSpace
        What is integrated over, evaluated and drawn.
    """

    # Shorter ones have no third moment.
    shortest_round = 3
    # A run may stop early from this effective sample size on. Draws of known points are
    # without error and do not count.
    stopping_sample_size = 100
    # Draws after which the wanted tolerance may be reached: not foreseen here, where
    # the variance falls faster than with the number of draws.
    end_in_sight = np.inf

    def __init__(self, space):
        self.space = space
        self.integrand = space.integrand
        self.target = target = space.integrand.target
        self.halves = tuple(Combination(target.n_values) for _ in range(2))
        self._active = np.ones(2, dtype=bool)
        self.direction = target.direction(np.zeros(target.n_values))
        self.pending = None
        self._refit_at = 0
        # Of one uniform draw along the direction: sums of 1/q, f/q and f^2/q.
        self._uniform = np.zeros(3)

    @property
    def n_draws(self):
        """Number of draws, with replacement."""
        return sum(half.n_draws for half in self.halves)

    @property
    def n_evaluations(self):
        """Number of different points evaluated."""
        return self.space.n_evaluations

    @property
    def n_fetched(self):
        """Number of points evaluated, those of an incomplete round included."""
        return self.n_evaluations + len(self.space.calls)

    @property
    def n_unknown(self):
        """Number of points not evaluated yet."""
        return self.space.n_unknown

    def draw(self, size):
        """Draw a round, evaluate it and let the family learn.

        When the loss fails, the points stay pending: drawing others instead would leave
        out those on which it fails.
        """
        if self.pending is None:
            self.pending = self.space.family.draw_points(size)
        points = self.pending
        known = self.space.known_share
        values, guess, total = self.space.evaluate(points)
        self.pending = None
        # The only place where the unbiasing factor 1/q is formed.
        weight = 1 / points["q"]
        # Draws of known points are without error, so that the variance of a round
        # falls with their share; the weight of a round makes use of it.
        parts = total + (values - guess) * weight[:, None]
        for half, rows in self._deal(len(parts)):
            half.add(parts[rows], self.direction, 1 / (1 - known))
        along = values @ self.direction
        points["norm2"] = (along * weight) ** 2
        self.space.family.observe_points(points)
        self._uniform += weight.sum(), along @ weight, along**2 @ weight
        self.direction = self.target.direction(self.estimate().mean)

    def go_on(self):
        """Let both halves draw again: what ended one may no longer be wanted."""
        self._active[:] = True

    def _deal(self, n_draws):
        """Yield the halves that go on, each with the rows of a round it gets."""
        # That with fewer draws so far comes first.
        going = [h for h, active in zip(self.halves, self._active) if active]
        going.sort(key=lambda half: half.n_draws)
        if n_draws < len(going) * self.shortest_round:
            going = going[:1]
        ends = np.linspace(n_draws, 0, len(going) + 1).astype(int)
        for half, end, begin in zip(going, ends[:-1], ends[1:]):
            yield half, slice(begin, end)

    def learn(self, left=0):
        """Let the family learn afresh, now and then, whatever is left to evaluate."""
        if self.n_draws >= self._refit_at:
            self._refit_at = REFIT_GROWTH * self.n_draws
            self.space.family.refit()

    def least_left(self, max_evaluations):
        """Return how much of a budget must be left for a round."""
        return max(self.shortest_round, int(BUDGET_LEFT * max_evaluations))

    def least_round(self):
        """Return how many draws the next round must have."""
        return self.shortest_round

    def finish(self):
        """Evaluate all that is not known yet."""
        self.space.finish()

    def exact(self):
        """Return the integral itself, once nothing is unknown."""
        return self.space.exact()

    def estimate(self, half=None):
        """Return the estimate over the space.

        Parameters
        ----------
        half : {0, 1}, default=None
            Return what this half tells about the estimate of both, as if the other one
            were like it.
        """
        chosen = self.halves if half is None else (self.halves[half],) * 2
        first, *second = (h.snapshot() for h in chosen if h.n_draws)
        # With equal weights, whatever their numbers of draws: these go with the values
        # of the other half.
        return first.merge(second[0], 0.5) if second else first

    def has_reached(self, rtol, confidence, with_past):
        """Decide for each half whether it goes on; return whether none does.

        Parameters
        ----------
        rtol : float
            Wanted half width of the interval, relative to the estimate.
        confidence : float
            Of the interval.
        with_past : callable
            Takes an estimate over this space, returns that over all of a stream.
        """
        n_draws = np.array([half.n_draws for half in self.halves])
        if not n_draws.all():
            return False
        least = self.stopping_sample_size
        wanted = [
            n_draws[other]
            * draws_wanted(
                with_past(self.estimate(other)), self.target, rtol, confidence, least
            )
            for other in (1, 0)
        ]
        self._active = n_draws < wanted
        if self._active.any():
            return False
        # Both go on if the run does.
        self.go_on()
        whole = with_past(self.estimate())
        return is_narrow(whole, self.target, rtol, confidence, least)

    def variance_gain(self):
        """Return the variance of as many uniform evaluations, over ours."""
        total, first, second = self._uniform
        ours = self.direction @ self.estimate().second @ self.direction
        uniform = max(second / total - (first / total) ** 2, 0.0)
        if ours == 0:
            return np.inf if uniform > 0 else 1.0
        return uniform / self.n_evaluations / ours

    def probabilities(self):
        """Return what the family has learned."""
        return self.space.family.probabilities()

    def sample(self, n_samples):
        """Draw positions or locations from the learned distribution, with weights."""
        points = self.space.family.draw_points(n_samples)
        return self.space.places(points), 1 / points["q"]
