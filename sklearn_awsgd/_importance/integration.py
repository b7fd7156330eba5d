"""What is wanted of some integrals, and intervals from the moments of an estimate."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtri

# A half ends when the other one promises an interval this much narrower than wanted:
# the two then rarely disagree on it.
STOPPING_MARGIN = 0.95


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


class Mean:
    """The target is the integral itself.

    Parameters
    ----------
    bounds : tuple of two floats
        Between which values it must be.
    """

    n_values = 1

    def __init__(self, bounds=(-np.inf, np.inf)):
        self.bounds = bounds

    def value(self, mean):
        """Return the target at a vector of integrals."""
        return float(mean[0])

    def direction(self, mean):
        """Return the gradient of the target: which combination should vary little."""
        return np.ones(1)

    def extremes(self, parts):
        """Return values that may come though none like them has been seen: none."""
        return np.zeros((0, 1))

    def interval(self, limits, mean):
        """Return the interval of the target.

        Parameters
        ----------
        limits : callable
            Takes a vector v, returns the interval of ``integrals @ v``.
        mean : ndarray of shape (n_values,)
            The integrals.
        """
        return limits(np.ones(1))


class Ratio:
    """The target is the ratio of two integrals, between 0 and 1 as rates are."""

    n_values = 2
    bounds = (0.0, 1.0)

    def value(self, mean):
        """Return the target at a vector of integrals; 0 where the ratio has none."""
        return float(np.clip(mean[0] / mean[1], 0, 1)) if mean[1] > 0 else 0.0

    def direction(self, mean):
        """Return the gradient of the target; before anything is known, a guess."""
        if mean[1] <= 0:
            return np.array([1.0, -0.5])
        # A ratio of exactly 0 or 1 so far must not hide one of the two integrals.
        ratio = np.clip(self.value(mean), 0.05, 0.95)
        return np.array([1.0, -ratio]) / mean[1]

    def extremes(self, parts):
        """Return values that may come though none like them has been seen.

        A rate is made of hits and misses; there may be only one kind so far.
        """
        seen = parts[:, 1] > 0
        size = parts[seen, 1].mean() if seen.any() else 0.0
        return np.array([[size, size], [0.0, size]])

    def interval(self, limits, mean):
        """Return all ratios R for which ``first - R second = 0`` is credible.

        This is Fieller's construction: there is no division by an uncertain number.
        """

        def gap(ratio, side):
            return limits(np.array([1.0, -ratio]))[side]

        # Where an end of the interval of the difference is 0, the ratio is at the edge
        # of what is credible.
        ratio = self.value(mean)
        low = high = ratio
        if gap(0.0, 0) <= 0:
            low = 0.0
        elif gap(ratio, 0) < 0:
            low = brentq(gap, 0.0, ratio, args=(0,))
        if gap(1.0, 1) >= 0:
            high = 1.0
        elif gap(ratio, 1) > 0:
            high = brentq(gap, ratio, 1.0, args=(1,))
        return float(low), float(high)


class Difference:
    """The target is one target less another of the same kind."""

    def __init__(self, part):
        self.part = part
        self.n_values = 2 * part.n_values
        low, high = part.bounds
        self.bounds = (low - high, high - low)

    def value(self, mean):
        """Return the target at a vector of integrals."""
        first, second = np.split(np.asarray(mean), 2)
        return self.part.value(first) - self.part.value(second)

    def direction(self, mean):
        """Return the gradient of the target."""
        first, second = np.split(np.asarray(mean), 2)
        return np.concatenate(
            [self.part.direction(first), -self.part.direction(second)]
        )

    def extremes(self, parts):
        """Return values that may come though none like them has been seen: none."""
        return np.zeros((0, self.n_values))

    def interval(self, limits, mean):
        """Return the interval of the target, by the delta method."""
        v = self.direction(mean)
        low, high = limits(v)
        shift = self.value(mean) - mean @ v
        return low + shift, high + shift


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

        The upper limit is that after one more event upwards, the lower one that after
        one more downwards: as the exact limits of a count are.
        """
        mean, second = self.mean @ v, v @ self.second @ v
        third = self.third @ v @ v @ v
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


def relative_width(estimate, target, confidence):
    """Return half the width of an interval, relative to the estimate."""
    low, high = estimate.interval(target, confidence)
    value = abs(target.value(estimate.mean))
    return (high - low) / (2 * value) if value > 0 and high > low else np.inf


def is_narrow(estimate, target, rtol, confidence, sample_size):
    """Return whether an interval is as narrow as wanted, and of draws enough."""
    if estimate.effective_sample_size(target) < sample_size:
        return False
    return relative_width(estimate, target, confidence) <= rtol


def draws_wanted(estimate, target, rtol, confidence, sample_size):
    """Return how many times its draws an estimate should have had, by itself.

    Parameters
    ----------
    estimate : Estimate
        Of half of the draws.
    target : Mean, Ratio or Difference
        What is wanted.
    rtol : float
        Wanted half width of the interval, relative to the estimate.
    confidence : float
        Of the interval.
    sample_size : float
        Least effective sample size.
    """
    if estimate.effective_sample_size(target) < sample_size:
        return np.inf
    return (
        relative_width(estimate, target, confidence) / (STOPPING_MARGIN * rtol)
    ) ** 2
