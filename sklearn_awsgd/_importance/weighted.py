"""Rounds of draws with replacement, weighted by 1/q: Algorithm 1 of the paper.

How often the sampler learns afresh was set while looking at
``benchmarks/bench_importance.py``; when an interval is not believed is a matter of
judgement, on integrals like those of the tests.
"""

import numpy as np
from scipy.special import chdtrc

from sklearn_awsgd._importance.intervals import Estimate
from sklearn_awsgd._importance.rounds import Rounds
from sklearn_awsgd._kernels._loop import POINT, SUMS
from sklearn_awsgd._solver.runs import run_batches, unbiasing_weights

# Growth of the draws at which the sampler learns afresh; in between it learns from each
# round.
REFIT_GROWTH = 1.4
# The run ends when less than this share of the budget is left, draws with replacement
# bringing few new rows by then.
BUDGET_LEFT = 0.01
# Blocks of rounds that are compared, and how improbable their difference, or that of
# the mean of 1/q from one, must be before the interval is not believed.
N_BLOCKS = 8
LEAST_PROBABLE = 1e-6
WEIGHTS_OFF, ERRORS_OFF = 0.2, 6.0
# Locations: what is learned there gives draws of about equal size. If their effective
# number is below this share, they are few that happened to be found, and others not.
LEAST_EFFECTIVE = 0.05


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
        # The largest deviations upwards and downwards, and their sizes.
        self._largest = np.zeros(2)
        self._events = np.zeros((2, n_values))
        # Of each round: weight, mean and variance along the direction, and the same of
        # the weights 1/q, whose mean is one.
        self._rounds = []

    def add(self, values, direction, trust=1.0, unbiasing=None):
        """Take in a round.

        Parameters
        ----------
        values : ndarray of shape (n_draws, n_values)
            Each row has the expectation of interest.
        direction : ndarray of shape (n_values,)
            Gradient of the target, as known before the round.
        trust : float, default=1.0
            Factor of the weight, as known before the round.
        unbiasing : ndarray of shape (n_draws,), default=None
            1/q of each draw.
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
        for k, sign in enumerate((1, -1)):
            i = np.argmax(sign * along)
            if sign * along[i] > self._largest[k]:
                self._largest[k] = sign * along[i]
                self._events[k] = deviation[i] * (weight / n)
        row = [weight, mean @ direction, direction @ second @ direction]
        if unbiasing is not None:
            row += [unbiasing.mean(), unbiasing.var(ddof=1) / n]
        self._rounds.append(row)

    def consistency(self):
        """Return how probable it is that rounds differ as they do (chi2).

        Rounds are taken together to some blocks first: a round in which nothing was
        found knows nothing of its error.
        """
        means, variances = self._blocks(1)
        known = variances > 0
        if known.sum() < 3:
            return 1.0
        means, variances = means[known], variances[known]
        centre = (means / variances).sum() / (1 / variances).sum()
        return float(chdtrc(len(means) - 1, ((means - centre) ** 2 / variances).sum()))

    def weight_of_all(self):
        """Return the mean of 1/q and its standard error; it should be one."""
        if len(self._rounds[0]) < 4:
            return 1.0, 0.0
        weight, _, _, mean, variance = np.array(self._rounds).T
        weight = weight / weight.sum()
        return float(weight @ mean), float(np.sqrt(weight**2 @ variance))

    def _blocks(self, column):
        """Return means and variances of blocks of rounds of about equal weight."""
        rounds = np.array(self._rounds)
        weight = rounds[:, 0]
        ends = np.cumsum(weight) / weight.sum() * N_BLOCKS
        block = np.minimum(ends.astype(int), N_BLOCKS - 1)
        total = np.bincount(block, weight)
        used = total > 0
        total = np.where(used, total, 1.0)
        means = np.bincount(block, weight * rounds[:, column]) / total
        variances = np.bincount(block, weight**2 * rounds[:, column + 1]) / total**2
        return means[used], variances[used]

    def snapshot(self):
        """Return the average so far as an :class:`Estimate`."""
        mean, second, third = (
            total / self._weight**order for order, total in enumerate(self._sums, 1)
        )
        sizes = self._sizes / self._weight ** np.array([1, 2, 1])
        return Estimate(mean, second, third, self._events / self._weight, sizes)


class WeightedRounds(Rounds):
    """Rounds of weighted draws.

    A round is one batch of :func:`sklearn_awsgd._solver.runs.run_batches`: draw, step,
    observe. There is no model; a step evaluates the points and takes them into the
    estimate.

    Parameters
    ----------
    pool : Pool or Locations
        What is evaluated.
    sampler : BaseSampler
        Keeps what is learned.
    opened : OpenedSampler
        The same, opened: draws and learns.
    """

    # Shorter ones have no third moment.
    shortest_round = 3
    # Draws of known points are without error and do not count.
    stopping_sample_size = 100

    def __init__(self, pool, sampler, opened):
        super().__init__(pool, sampler)
        self.opened = opened
        self.halves = tuple(Combination(self.target.n_values) for _ in range(2))
        self.direction = self.target.direction(np.zeros(self.target.n_values))
        self.pending = None
        self._refit_at = 0
        # Of one uniform draw along the direction: sums of 1/q, f/q and f^2/q.
        self._uniform = np.zeros(3)

    @property
    def n_draws(self):
        """Number of draws, with replacement."""
        return sum(half.n_draws for half in self.halves)

    def draws_of_halves(self):
        """Return how many draws each half has had."""
        return np.array([half.n_draws for half in self.halves])

    def draw(self, size):
        """Draw a round, evaluate it and let the sampler learn."""
        size = size if self.pending is None else len(self.pending)
        run_batches(self, self, size, np.empty(size, dtype=POINT), np.zeros(len(SUMS)))

    def draw_points(self, n_points):
        """Draw the points of a round, or those of the round that is pending."""
        if self.pending is None:
            self.pending = self.opened.draw_points(n_points)
        return self.pending

    def step_points(self, points, weights):
        """Evaluate points and take them into the estimate.

        Parameters
        ----------
        points : structured ndarray
            As drawn; value and square of the weighted value are filled in, both along
            the direction of interest.
        weights : ndarray of shape (n_points,)
            1/q of each.
        """
        known = self.pool.known_share
        made = self.pool.evaluate_points(points)
        self.pending = None
        # Draws of known points are without error, so that the variance of a round
        # falls with their share; the weight of a round makes use of it.
        parts = made.guess_mean + (made.values - made.guess) * weights[:, None]
        for half, rows in self._deal(len(parts)):
            half.add(parts[rows], self.direction, 1 / (1 - known), weights[rows])
        along = made.values @ self.direction
        points["loss"] = along
        points["norm2"] = (along * weights) ** 2
        self._uniform += weights.sum(), along @ weights, along**2 @ weights
        self.direction = self.target.direction(self.estimate().mean)

    def observe_points(self, points):
        """Let the sampler learn from points that have been evaluated."""
        self.opened.observe_points(points)

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
        """Let the sampler learn afresh, now and then, whatever is left to evaluate."""
        if self.n_draws >= self._refit_at and hasattr(self.opened, "refit"):
            self._refit_at = REFIT_GROWTH * self.n_draws
            self.opened.refit()

    def least_left(self, max_evaluations):
        """Return how much of a budget must be left for a round."""
        return max(self.shortest_round, int(BUDGET_LEFT * max_evaluations))

    def finish(self):
        """Evaluate all that is not known yet."""
        self.pool.finish()

    def estimate(self, half=None):
        """Return the estimate, of both halves or as one of them tells it."""
        chosen = self.halves if half is None else (self.halves[half],) * 2
        first, *second = (h.snapshot() for h in chosen if h.n_draws)
        # With equal weights, whatever their numbers of draws: these go with the values
        # of the other half.
        return first.merge(second[0], 0.5) if second else first

    def doubt(self):
        """Return why the interval cannot be believed, or None."""
        for half in self.halves:
            if not half.n_draws:
                continue
            mean, error = half.weight_of_all()
            if abs(mean - 1) > max(ERRORS_OFF * error, WEIGHTS_OFF):
                return (
                    f"the weights 1/q have a mean of {mean:.2g} instead of 1, so part "
                    "of the pool is never drawn: lower eta0 or raise mixing of the "
                    "sampler, or use update='moments'"
                )
            chance = half.consistency()
            if chance < LEAST_PROBABLE:
                return (
                    f"rounds differ more than their errors allow (chance {chance:.1g}),"
                    " so large values are missed by most of them: raise "
                    "max_evaluations, or use other settings of the sampler"
                )
        effective = self.estimate().effective_sample_size(self.target)
        is_finite = np.isfinite(self.n_unknown)
        if not is_finite and 0 < effective < LEAST_EFFECTIVE * self.n_draws:
            return (
                f"{self.n_draws} draws count as {effective:.0f}, so what is large may "
                "have been missed: raise max_evaluations, or n_components of "
                "GaussianSampler if it lies in several places"
            )
        return None

    def variance_gain(self):
        """Return the variance of as many uniform evaluations, over ours."""
        total, first, second = self._uniform
        ours = self.direction @ self.estimate().second @ self.direction
        uniform = max(second / total - (first / total) ** 2, 0.0)
        if ours == 0:
            return np.inf if uniform > 0 else 1.0
        return uniform / self.n_evaluations / ours

    def probabilities(self):
        """Return the probabilities of strata, or of the rows and of the columns."""
        if self.pool.n_columns is not None:
            return self.opened.row_probabilities(), self.opened.column_probabilities()
        return self.opened.stratum_probabilities()

    def keep(self):
        """Let the sampler keep what has been learned."""
        self.sampler.keep(0, self.opened)

    def sample(self, n_samples):
        """Draw positions, entries or locations, with weights."""
        points = self.opened.draw_points(n_samples)
        return self.pool.places(points), unbiasing_weights(points)
