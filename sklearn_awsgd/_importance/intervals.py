"""An estimate of some integrals, and intervals from the moments of its error.

The margin was set while looking at ``benchmarks/bench_importance.py``.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, ndtri

# A half ends when the other one promises an interval this much narrower than wanted:
# the two then rarely disagree on it.
STOPPING_MARGIN = 0.95
# Draws too few to know their error are enough if half of a normal interval is this
# share of what is wanted: the error may then be four times as large (looked at on the
# pools of ``benchmarks/bench_importance_peers.py``, with rtol).
SLIGHT = 0.25


def gamma_quantile(mean, variance, third, probability):
    """Return a quantile of what is known of a mean: a shifted gamma distribution.

    Parameters
    ----------
    mean : float
        Estimate.
    variance, third : float
        Second and third central moments of the estimate itself, not of one draw.
    probability : float
        Of the quantile.

    Notes
    -----
    If x events of weight w have been counted, the moments are ``(w x, w^2 x, w^3 x)``
    and the quantiles of the gamma distribution of shape x and scale w are the exact
    limits of a Poisson mean (the upper ones when an event is added to the count). The
    distribution here has these quantiles, for other moments the same relation of its
    skewness, twice that of the estimate, and none without skewness: it is normal then.
    """
    if variance <= 0:
        return mean
    se = np.sqrt(variance)
    # The skewness of a single event is 1: more cannot be told from a sample.
    skewness = min(max(third / (variance * se), -1.0), 1.0)
    if abs(skewness) < 1e-4:
        return float(mean + se * ndtri(probability))
    if skewness < 0:
        return -gamma_quantile(-mean, variance, -third, 1 - probability)
    shape = 1 / skewness**2
    return float(
        mean + se * (skewness * gammaincinv(shape, probability) - 1 / skewness)
    )


@dataclass
class Estimate:
    """An estimate of some integrals, with the moments of its error.

    Attributes
    ----------
    mean : ndarray of shape (n_values,)
        The estimate.
    second, third : ndarray
        Central moments of the estimate.
    hidden : ndarray of shape (n_events, n_values)
        What one more large value, upwards or downwards, would have added.
    sizes : ndarray of shape (3,)
        Sum of the sizes of the draws' deviations, of their squares, and the largest.
    exact : bool
        Whether there is no error at all.
    """

    mean: np.ndarray
    second: np.ndarray
    third: np.ndarray
    hidden: np.ndarray
    sizes: np.ndarray
    exact: bool = False

    @classmethod
    def of_exact(cls, mean):
        """Return the estimate that is no estimate."""
        n = len(mean)
        second, third = np.zeros((n, n)), np.zeros((n, n, n))
        return cls(mean, second, third, np.zeros((0, n)), np.zeros(3), exact=True)

    def merge(self, other, share):
        """Return the estimate over two parts; `share` is the mass of the other one."""

        def add(a, b, order):
            return (1 - share) ** order * a + share**order * b

        sizes = add(self.sizes, other.sizes, np.array([1, 2, 1]))
        sizes[2] = max((1 - share) * self.sizes[2], share * other.sizes[2])
        return Estimate(
            add(self.mean, other.mean, 1),
            add(self.second, other.second, 2),
            add(self.third, other.third, 3),
            np.concatenate([(1 - share) * self.hidden, share * other.hidden]),
            sizes,
            self.exact and other.exact,
        )

    def standard_error(self, target):
        """Return the standard error of a target."""
        v = target.direction(self.mean)
        return float(np.sqrt(max(v @ self.second @ v, 0.0)))

    def effective_sample_size(self, target):
        """Return how many equally large deviations would vary as much (Kish).

        The hidden event counts as one deviation, so that what has not been seen yet
        does not make the sample look good.
        """
        total, squares, _ = self.sizes
        v = target.direction(self.mean)
        hidden = np.abs(self.hidden @ v).max(initial=0.0)
        if squares <= 0:
            return 0.0
        return float((total + hidden) ** 2 / (squares + hidden**2))

    def max_weight_share(self):
        """Return the share of the largest deviation in all."""
        total, _, largest = self.sizes
        return float(largest / total) if total > 0 else 0.0

    def limits(self, v, confidence):
        """Return the interval of ``integrals @ v``.

        Where nothing varied and nothing is known of what might, there is no limit. The
        upper limit is that after one more event upwards, the lower one that after
        one more downwards: as the exact limits of a count are.
        """
        mean, second = self.mean @ v, v @ self.second @ v
        third = self.third @ v @ v @ v
        if second <= 0 and not (self.hidden @ v).any():
            return -np.inf, np.inf
        tail = (1 - confidence) / 2
        ends = []
        for sign, probability in ((-1, tail), (1, 1 - tail)):
            event = sign * np.max(sign * (self.hidden @ v), initial=0.0)
            ends.append(
                gamma_quantile(
                    mean + event, second + event**2, third + event**3, probability
                )
            )
        return tuple(ends)

    def interval(self, target, confidence):
        """Return the confidence interval of a target.

        Where nothing varied and nothing is known of what might, it is the range.
        """
        least, most = target.bounds
        if self.exact:
            value = target.value(self.mean)
            return value, value
        if not self.second.any() and not self.hidden.any():
            return least, most
        low, high = target.interval(lambda v: self.limits(v, confidence), self.mean)
        return max(low, least), min(high, most)


@dataclass(frozen=True)
class Precision:
    """How narrow an interval is wanted.

    Attributes
    ----------
    rtol : float or None
        Wanted half width of the interval, relative to the estimate; None for as narrow
        as the budget allows.
    atol : float or None
        The same, absolute; the wider of the two is enough.
    confidence : float
        Of the interval.
    sample_size : float
        Least effective sample size.
    """

    rtol: float | None
    atol: float | None
    confidence: float
    sample_size: float = 0.0

    @property
    def is_wanted(self):
        """Whether anything but the budget ends a run."""
        return self.rtol is not None or self.atol is not None

    def is_reached(self, estimate, target):
        """Return whether an interval is as narrow as wanted, and of draws enough."""
        if not self.is_wanted or self._is_small(estimate, target):
            return False
        return self._relative_width(estimate, target) <= 1

    def draws_wanted(self, estimate, target):
        """Return how many times its draws an estimate should have had, by itself.

        Parameters
        ----------
        estimate : Estimate
            Of half of the draws.
        target : Mean, Ratio or Difference
            What is wanted.
        """
        if self._is_small(estimate, target):
            return np.inf
        width = self._relative_width(estimate, target)
        return (width / STOPPING_MARGIN) ** 2

    def _is_small(self, estimate, target):
        """Return whether draws are too few, for an error that matters.

        With a good surrogate an interval is as wide as what one more event could do,
        which is known from the first draws on; the event counts as one draw beside
        which all others are small, and there would never be draws enough.
        """
        if estimate.effective_sample_size(target) >= self.sample_size:
            return False
        error = ndtri((1 + self.confidence) / 2) * estimate.standard_error(target)
        return not error <= SLIGHT * self._half_width(estimate, target)

    def _half_width(self, estimate, target):
        """Return half the width that is wanted of an interval."""
        wanted = (self.rtol or 0.0) * abs(target.value(estimate.mean))
        return max(wanted, self.atol or 0.0)

    def _relative_width(self, estimate, target):
        """Return half the width of an interval, relative to what is wanted."""
        low, high = estimate.interval(target, self.confidence)
        wanted = self._half_width(estimate, target)
        return (high - low) / (2 * wanted) if wanted > 0 and high > low else np.inf
