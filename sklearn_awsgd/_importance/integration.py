"""Rounds of weighted draws become one estimate with an interval.

Nothing here knows where draws come from: a round is an array of unbiased values d, one
row for each draw.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

# An interval is given from this many effective draws, and a run may stop early from
# that many.
LEAST_SAMPLE_SIZE = 25
STOPPING_SAMPLE_SIZE = 100
# Rounds shorter than this have no third moment.
SHORTEST_ROUND = 3


def hall_interval(mean, variance, third, confidence):
    """Return Hall's interval, which allows for skewness.

    Parameters
    ----------
    mean : float
        Estimate.
    variance, third : float
        Second and third central moments of the estimate itself, not of one draw.
    confidence : float
        Wanted probability to cover.

    Returns
    -------
    low, high : float
        Ends of the interval.

    Notes
    -----
    With ``T = (mean - truth) / se`` and the skewness ``s = third / se^3``, the variable
    ``g(T) = T + s T^2 / 3 + s^2 T^3 / 27 + s / 6`` is normal up to terms of second
    order (P. Hall, 1992), and g has the inverse used here.
    """
    if variance <= 0:
        return mean, mean
    se = np.sqrt(variance)
    skewness = third / (variance * se)
    z = norm.ppf(0.5 + confidence / 2)
    ends = np.array([z, -z])
    if abs(skewness) > 1e-8:
        base = 1 + skewness * (ends - skewness / 6)
        ends = 3 / skewness * (np.cbrt(base) - 1)
    low, high = mean - se * ends
    return float(low), float(high)


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

    def interval(self, mean, second, third, confidence):
        """Return the interval of the target from the moments of the integrals."""
        return hall_interval(mean[0], second[0, 0], third[0, 0, 0], confidence)


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

    def interval(self, mean, second, third, confidence):
        """Return all ratios R for which ``first - R second = 0`` is credible.

        This is Fieller's construction: there is no division by an uncertain number.
        """

        def gap(ratio, side):
            v = np.array([1.0, -ratio])
            return hall_interval(
                mean @ v, v @ second @ v, third @ v @ v @ v, confidence
            )[side]

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

    def interval(self, mean, second, third, confidence):
        """Return the interval of the target, by the delta method."""
        v = self.direction(mean)
        return hall_interval(
            self.value(mean), v @ second @ v, third @ v @ v @ v, confidence
        )


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
        self._trust = 1.0
        self._sums = [np.zeros((n_values,) * order) for order in (1, 2, 3)]
        # Of the draws' deviations along the direction of interest: sum of sizes, sum of
        # squares, largest size.
        self._sizes = np.zeros(3)

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
        self._trust = trust
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
        size = np.abs(deviation @ direction) * (weight / n)
        self._sizes[0] += size.sum()
        self._sizes[1] += size @ size
        self._sizes[2] = max(self._sizes[2], size.max())

    def snapshot(self, leverage=None, events=None, second=None, third=None):
        """Return the average so far as an :class:`Estimate`.

        Parameters
        ----------
        leverage : ndarray of shape (n_strata,), default=None
            1/q of each stratum.
        events : ndarray of shape (n_strata,), default=None
            Number of large values that each stratum may hide.
        second, third : ndarray, default=None
            Moments of such a large value.
        """
        mean, *moments = (
            total / self._weight**order for order, total in enumerate(self._sums, 1)
        )
        sizes = self._sizes / self._weight ** np.array([1, 2, 1])
        wide = moments
        if events is not None:
            share = leverage * np.sqrt(self.n_draws) * self._trust / self._weight
            wide = [
                moments[0] + (events @ share**2) * second,
                moments[1] + (events @ share**3) * third,
            ]
        return Estimate(mean, *moments, *wide, sizes)


@dataclass
class Estimate:
    """An estimate of some integrals, with the moments of its error.

    Attributes
    ----------
    mean : ndarray of shape (n_values,)
        The estimate.
    second, third : ndarray
        Central moments of the estimate.
    wide_second, wide_third : ndarray
        The same with an allowance for large values not seen yet.
    sizes : ndarray of shape (3,)
        Sum of the sizes of the draws' deviations, of their squares, and the largest.
    exact : bool
        Whether there is no error at all.
    """

    mean: np.ndarray
    second: np.ndarray
    third: np.ndarray
    wide_second: np.ndarray
    wide_third: np.ndarray
    sizes: np.ndarray
    exact: bool = False

    @classmethod
    def of_exact(cls, mean):
        """Return the estimate that is no estimate."""
        n = len(mean)
        second, third = np.zeros((n, n)), np.zeros((n, n, n))
        return cls(mean, second, third, second, third, np.zeros(3), exact=True)

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
            add(self.wide_second, other.wide_second, 2),
            add(self.wide_third, other.wide_third, 3),
            sizes,
            self.exact and other.exact,
        )

    def standard_error(self, target):
        """Return the standard error of a target."""
        v = target.direction(self.mean)
        return float(np.sqrt(max(v @ self.second @ v, 0.0)))

    def effective_sample_size(self, target):
        """Return how many equally large deviations would vary as much (Kish).

        The allowance counts as one deviation, so that what has not been seen yet does
        not make the sample look good.
        """
        total, squares, _ = self.sizes
        v = target.direction(self.mean)
        hidden = max(v @ (self.wide_second - self.second) @ v, 0.0)
        if squares <= 0:
            return 0.0
        return float((total + np.sqrt(hidden)) ** 2 / (squares + hidden))

    def max_weight_share(self):
        """Return the share of the largest deviation in all."""
        total, _, largest = self.sizes
        return float(largest / total) if total > 0 else 0.0

    def interval(self, target, confidence):
        """Return the confidence interval of a target.

        With too few effective draws to know, it is the range of the target. Else it
        holds both intervals, without and with the allowance: the skewness of unseen
        values moves the interval up, and must not lift its lower end.
        """
        least, most = target.bounds
        if self.exact:
            value = target.value(self.mean)
            return value, value
        if self.effective_sample_size(target) < LEAST_SAMPLE_SIZE:
            return least, most
        ends = [
            target.interval(self.mean, second, third, confidence)
            for second, third in (
                (self.second, self.third),
                (self.wide_second, self.wide_third),
            )
        ]
        low, high = min(e[0] for e in ends), max(e[1] for e in ends)
        return max(low, least), min(high, most)
