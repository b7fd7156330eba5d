"""Rounds until an estimate is good enough.

Rounds and their growth were set while looking at ``benchmarks/bench_importance.py``.
"""

from dataclasses import dataclass, fields, replace
from time import perf_counter

import numpy as np
from scipy.special import ndtr

from sklearn_awsgd._importance.intervals import Estimate
from sklearn_awsgd._solver.records import MOST_RECORDS, thinned

# Rounds of batch_size="auto": the first, growth by a share of all draws, the longest.
FIRST_ROUND = 100
ROUND_GROWTH = 0.15
LONGEST_ROUND = 10_000
# Growth of the draws at which all is learned again and stopping is considered.
CHECK_GROWTH = 1.15
# With many draws it is rarer: each time costs as much as all draws so far.
MANY_DRAWS = 20_000
RARE_CHECK_GROWTH = 1.6
# But it is not put off beyond the end that is in sight, as long as that is so far off.
LEAST_CHECK_GROWTH = 1.03
# Rounds in a row that bring nothing new, before a run is ended.
MAX_IDLE_ROUNDS = 100


@dataclass(frozen=True)
class Progress:
    """One line of ``history_``: the estimate, how good it is and what it took."""

    draws: int
    evaluations: int
    seconds: float
    estimate: float
    low: float
    high: float
    std_error: float
    effective_sample_size: float
    variance_gain: float


class Integrator:
    """The state of a run.

    Parameters
    ----------
    rounds : Rounds
        What draws, evaluates, learns and estimates.
    generator : numpy.random.BitGenerator
        Random stream of the rounds.
    weight : float
        Total weight of their points.
    before : Integrator, default=None
        The run over the rows of a stream that came before.
    anytime : bool, default=False
        Whether intervals are to hold at all times together.

    Attributes
    ----------
    weight : float
        Total weight of all of the stream.
    history : list of Progress
        In the order of time.
    """

    def __init__(self, rounds, generator, weight, before=None, anytime=False):
        self._anytime = anytime
        self._first_variance = None if before is None else before._first_variance
        self.rounds = rounds
        self.generator = generator
        self.target = rounds.target
        self.weight = weight if before is None else before.weight + weight
        self._share = weight / self.weight
        self._past = None if before is None else before.estimate()
        self._past_uniform = 0.0 if before is None else before._uniform_variance()
        self._n_draws_before = 0 if before is None else before.n_draws
        self._n_evaluations_before = 0 if before is None else before.n_evaluations
        self.history = [] if before is None else before.history.copy()
        self._check_at = 0
        self._seconds = 0.0 if before is None else before._seconds

    @property
    def n_draws(self):
        """Number of draws in all of the stream."""
        return self._n_draws_before + self.rounds.n_draws

    @property
    def n_evaluations(self):
        """Number of evaluations in all of the stream."""
        return self._n_evaluations_before + self.rounds.n_evaluations

    @property
    def has_past(self):
        """Whether rows of a stream came before."""
        return self._past is not None

    @property
    def is_exact(self):
        """Whether every point is known."""
        return self.rounds.n_unknown == 0

    def run(self, max_evaluations, batch_size, precision, report):
        """Draw until the interval is narrow, the budget is spent or all is known.

        Parameters
        ----------
        max_evaluations : int
            Largest number of further evaluations.
        batch_size : int or "auto"
            Draws in a round.
        precision : Precision
            How narrow an interval is wanted.
        report : callable
            Called with this integrator now and then; returns whether to stop.

        Returns
        -------
        status : {"exact", "tolerance", "budget", "stopped"}
            Why it ended.
        """
        rounds = self.rounds
        rounds.go_on()
        stop_at = rounds.n_evaluations + max_evaluations
        started, idle = perf_counter() - self._seconds, 0
        while not self.is_exact:
            left = stop_at - rounds.n_evaluations
            size = batch_size
            if batch_size == "auto":
                size = int(ROUND_GROWTH * rounds.n_draws)
                size = min(max(size, FIRST_ROUND), LONGEST_ROUND)
            if rounds.pending is None and rounds.n_unknown <= min(size, left):
                rounds.finish()
                break
            if rounds.n_draws and left < rounds.least_left(max_evaluations):
                break
            if idle > MAX_IDLE_ROUNDS:
                break
            before = rounds.n_evaluations
            size = max(size, rounds.least_round())
            rounds.draw(max(min(size, left), rounds.shortest_round))
            idle = idle + 1 if rounds.n_evaluations == before else 0
            self._seconds = perf_counter() - started
            if rounds.n_draws >= self._check_at:
                many = rounds.n_draws > MANY_DRAWS
                growth = RARE_CHECK_GROWTH if many else CHECK_GROWTH
                self._check_at = growth * rounds.n_draws
                rounds.learn(stop_at - rounds.n_evaluations)
                self.record(precision.confidence)
                if report(self):
                    return "stopped"
                level = self._level(self.estimate(), precision.confidence)
                if precision.is_wanted and rounds.has_reached(
                    replace(precision, confidence=level), self._with_past
                ):
                    return "tolerance"
                in_sight = max(rounds.end_in_sight, LEAST_CHECK_GROWTH * rounds.n_draws)
                self._check_at = min(self._check_at, in_sight)
        self._seconds = perf_counter() - started
        rounds.learn()
        self.record(precision.confidence)
        report(self)
        if not self.is_exact:
            return "budget"
        estimate = self.estimate()
        if estimate.exact:
            return "exact"
        # Of these rows all are known, of those that came before they are not.
        precision = replace(precision, sample_size=rounds.stopping_sample_size)
        level = self._level(estimate, precision.confidence)
        precision = replace(precision, confidence=level)
        narrow = precision.is_reached(estimate, self.target)
        return "tolerance" if narrow else "budget"

    def _with_past(self, estimate):
        """Return the estimate over all of the stream."""
        if self._past is None:
            return estimate
        return self._past.merge(estimate, self._share)

    def estimate(self):
        """Return the estimate over all of the stream."""
        if self.is_exact:
            return self._with_past(Estimate.of_exact(self.rounds.exact()))
        return self._with_past(self.rounds.estimate())

    def interval(self, confidence, side="two-sided"):
        """Return the confidence interval, without limits where it cannot be believed.

        Parameters
        ----------
        confidence : float
            Probability to cover.
        side : {"two-sided", "lower", "upper"}, default="two-sided"
            Which ends are wanted; the other one is that of the range.
        """
        estimate, (least, most) = self.estimate(), self.target.bounds
        if side != "two-sided":
            # The one end of an interval whose other end may be missed as often.
            confidence = max(2 * confidence - 1, 0.0)
        if not estimate.exact:
            confidence = self._level(estimate, confidence)
            if self.rounds.doubt() is not None:
                return least, most
        low, high = estimate.interval(self.target, confidence)
        return (low if side != "upper" else least), (high if side != "lower" else most)

    def _level(self, estimate, confidence):
        """Return the confidence to ask for now, so that it holds at all times.

        The boundary is that of a normal mixture (Robbins): if the inverse variance is
        the time of a Brownian motion, it is crossed at some time with the probability
        ``1 - confidence``. It is narrowest at about ten times the first inverse
        variance.
        """
        if not self._anytime:
            return confidence
        variance = estimate.standard_error(self.target) ** 2
        if self._first_variance is None and variance > 0:
            self._first_variance = variance
        time = 1.0 if variance <= 0 else self._first_variance / variance
        limit = (1 + 1 / time) * (np.log1p(time) - 2 * np.log(1 - confidence))
        return float(1 - 2 * ndtr(-np.sqrt(limit)))

    def variance_gain(self):
        """Return the variance of as many uniform evaluations, over ours."""
        ours = self.estimate().standard_error(self.target) ** 2
        if self._past is None or ours == 0:
            return np.inf if self.is_exact else float(self.rounds.variance_gain())
        return self._uniform_variance() / ours

    def _uniform_variance(self):
        """Return the variance of as many uniform evaluations of all of the stream."""
        uniform = 0.0
        if not self.is_exact:
            ours = self.rounds.estimate().standard_error(self.target) ** 2
            uniform = ours * self.rounds.variance_gain() if ours > 0 else 0.0
        return self._share**2 * uniform + (1 - self._share) ** 2 * self._past_uniform

    def record(self, confidence):
        """Add a line to the history, whose length does not grow with a stream."""
        estimate = self.estimate()
        self.history.append(
            Progress(
                self.n_draws,
                self.n_evaluations,
                self._seconds,
                self.target.value(estimate.mean),
                *self.interval(confidence),
                estimate.standard_error(self.target),
                estimate.effective_sample_size(self.target),
                self.variance_gain(),
            )
        )
        if len(self.history) > MOST_RECORDS:
            self.history = thinned(self.history, MOST_RECORDS, lambda line: 0)

    def history_table(self):
        """Return the history as a dict of arrays."""
        return {
            field.name: np.asarray([getattr(line, field.name) for line in self.history])
            for field in fields(Progress)
        }
