"""Rounds of draws until an estimate is good enough: Algorithm 1 of the paper."""

from time import perf_counter

import numpy as np

from sklearn_awsgd._importance.integration import (
    SHORTEST_ROUND,
    STOPPING_SAMPLE_SIZE,
    Combination,
    Estimate,
)

# Rounds of batch_size="auto": the first, growth by a share of all draws, the longest.
FIRST_ROUND = 100
ROUND_GROWTH = 0.15
LONGEST_ROUND = 10_000
# Growth of the draws at which stopping is considered, and at which the family learns
# afresh; in between it learns from each round.
CHECK_GROWTH = 1.1
REFIT_GROWTH = 1.4
# The run ends when less than this share of the budget is left.
BUDGET_LEFT = 0.01
# Rounds in a row that bring nothing new, before a run is ended.
MAX_IDLE_ROUNDS = 100

HISTORY_COLUMNS = (
    "draws",
    "evaluations",
    "seconds",
    "estimate",
    "std_error",
    "effective_sample_size",
    "variance_gain",
)


class Integrator:
    """The state of a run over one space.

    Parameters
    ----------
    space : FiniteSpace or DistributionSpace
        What is integrated over, evaluated and drawn.
    target : Mean, Ratio or Difference
        What is wanted of the integrals.
    before : Integrator, default=None
        The run over the rows of a stream that came before.
    share : float, default=1.0
        Mass of this space in all of the stream.
    """

    def __init__(self, space, target, before=None, share=1.0):
        self.space = space
        self.target = target
        self._share = share
        self._past = None if before is None else before.estimate()
        self._n_draws_before = 0 if before is None else before.n_draws_in_all
        self._n_evaluations_before = 0 if before is None else before.n_evaluations
        self.combination = Combination(target.n_values)
        self.direction = target.direction(np.zeros(target.n_values))
        self.history = [] if before is None else before.history.copy()
        self.pending = None
        self._check_at = self._refit_at = 0
        self._seconds = 0.0 if before is None else before._seconds
        # Of one uniform draw along the direction: sums of 1/q, f/q and f^2/q.
        self._uniform = np.zeros(3)

    @property
    def n_draws(self):
        """Number of draws from this space."""
        return self.combination.n_draws

    @property
    def n_draws_in_all(self):
        """Number of draws from all spaces of the stream."""
        return self._n_draws_before + self.n_draws

    @property
    def n_evaluations(self):
        """Number of evaluations in all spaces of the stream."""
        return self._n_evaluations_before + self.space.n_evaluations

    @property
    def is_exact(self):
        """Whether every point of the space is known."""
        return self.space.n_unknown == 0

    def run(self, max_evaluations, batch_size, rtol, confidence, report):
        """Draw until the interval is narrow, the budget is spent or all is known.

        Parameters
        ----------
        max_evaluations : int
            Largest number of further evaluations.
        batch_size : int or "auto"
            Draws in a round.
        rtol : float or None
            Wanted half width of the interval, relative to the estimate.
        confidence : float
            Of the interval.
        report : callable
            Called with this integrator now and then.

        Returns
        -------
        status : {"exact", "tolerance", "budget"}
            Why it ended.
        """
        stop_at = self.space.n_evaluations + max_evaluations
        least = max(SHORTEST_ROUND, int(BUDGET_LEFT * max_evaluations))
        started, idle = perf_counter() - self._seconds, 0
        while not self.is_exact:
            left = stop_at - self.space.n_evaluations
            size = batch_size
            if batch_size == "auto":
                size = int(ROUND_GROWTH * self.n_draws)
                size = min(max(size, FIRST_ROUND), LONGEST_ROUND)
            size = max(size, SHORTEST_ROUND)
            if self.pending is None and self.space.n_unknown <= min(size, left):
                self.space.finish()
                break
            if (left < least and self.n_draws) or idle > MAX_IDLE_ROUNDS:
                self._record()
                return "budget"
            before = self.space.n_evaluations
            self._round(max(min(size, left), SHORTEST_ROUND))
            idle = idle + 1 if self.space.n_evaluations == before else 0
            self._seconds = perf_counter() - started
            if self.n_draws >= self._refit_at:
                self._refit_at = REFIT_GROWTH * self.n_draws
                self.space.refit(self.direction)
            if self.n_draws >= self._check_at:
                self._check_at = CHECK_GROWTH * self.n_draws
                self._record()
                report(self)
                if rtol is not None and self._is_narrow(rtol, confidence):
                    return "tolerance"
        self._seconds = perf_counter() - started
        self._record()
        report(self)
        return "exact"

    def _round(self, size):
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
        self.combination.add(
            total + (values - guess) * weight[:, None], self.direction, 1 / (1 - known)
        )
        self.space.observe(points, values, self.direction)
        along = values @ self.direction
        self._uniform += weight.sum(), along @ weight, along**2 @ weight
        self.direction = self.target.direction(self.combination.snapshot().mean)

    def local_estimate(self):
        """Return the estimate over this space."""
        if self.is_exact:
            return Estimate.of_exact(self.space.exact())
        return self.combination.snapshot(**self.space.allowance())

    def estimate(self):
        """Return the estimate over all spaces of the stream."""
        local = self.local_estimate()
        if self._past is None:
            return local
        return self._past.merge(local, self._share)

    def variance_gain(self, estimate):
        """Return the variance of as many uniform evaluations, over ours."""
        total, first, second = self._uniform
        if estimate.exact or total == 0:
            return np.inf
        local = self.combination.snapshot()
        ours = self.direction @ local.second @ self.direction
        uniform = max(second / total - (first / total) ** 2, 0.0)
        return uniform / self.space.n_evaluations / ours if ours > 0 else 1.0

    def _is_narrow(self, rtol, confidence):
        estimate = self.estimate()
        if estimate.effective_sample_size(self.target) < STOPPING_SAMPLE_SIZE:
            return False
        low, high = estimate.interval(self.target, confidence)
        value = self.target.value(estimate.mean)
        return 0 < high - low <= 2 * rtol * abs(value)

    def _record(self):
        estimate = self.estimate()
        self.history.append(
            (
                self.n_draws_in_all,
                self.n_evaluations,
                self._seconds,
                self.target.value(estimate.mean),
                estimate.standard_error(self.target),
                estimate.effective_sample_size(self.target),
                self.variance_gain(estimate),
            )
        )
