"""What is wanted of some integrals: one itself, a ratio of two, a difference."""

import numpy as np
from scipy.optimize import brentq


class Mean:
    """The target is the integral itself.

    Parameters
    ----------
    bounds : tuple of two floats
        Between which values it must be.
    attained : bool, default=False
        Whether one more value may always be as far as the bounds, whatever was seen.

    Attributes
    ----------
    mirrored : bool
        Whether a large value is as possible with the other sign.
    """

    n_values = 1
    mirrored = False

    def __init__(self, bounds=(-np.inf, np.inf), attained=False):
        self.bounds = bounds
        self.attained = attained

    def value(self, mean):
        """Return the target at a vector of integrals."""
        return float(mean[0])

    def direction(self, mean):
        """Return the gradient of the target: which combination should vary little."""
        return np.ones(1)

    def extremes(self, parts, unit):
        """Return values that may come though none like them has been seen.

        Parameters
        ----------
        parts : ndarray of shape (n_drawn, n_values)
            Values seen, times the mass of their row.
        unit : float
            Mean mass of a row.
        """
        return unit * np.array(self.bounds)[:, None][: 2 * self.attained]

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
    mirrored = False

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

    def extremes(self, parts, unit):
        """Return values that may come though none like them has been seen.

        A rate is made of hits and misses; there may be only one kind so far.
        """
        return unit * np.array([[1.0, 1.0], [0.0, 1.0]])

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


class Smooth:
    """The target is a smooth function of some integrals, by the delta method."""

    mirrored = True

    def extremes(self, parts, unit):
        """Return values that may come though none like them has been seen: none."""
        return np.zeros((0, self.n_values))

    def interval(self, limits, mean):
        """Return the interval of the target, by the delta method."""
        v = self.direction(mean)
        low, high = limits(v)
        shift = self.value(mean) - mean @ v
        return low + shift, high + shift


class Function(Smooth):
    """The target is a function of some integrals that a user gives.

    Parameters
    ----------
    function : callable
        Takes the vector of integrals, returns a number.
    n_values : int
        Number of integrals.
    """

    bounds = (-np.inf, np.inf)

    def __init__(self, function, n_values):
        self._function = function
        self.n_values = n_values

    def value(self, mean):
        """Return the target at a vector of integrals."""
        value = np.asarray(self._function(np.asarray(mean, dtype=float)), dtype=float)
        if value.shape != () or not np.isfinite(value):
            raise ValueError(
                f"function returned {value} for the means {mean}; it must be one "
                "finite number."
            )
        return float(value)

    def direction(self, mean):
        """Return the gradient of the target, by central differences."""
        mean = np.asarray(mean, dtype=float)
        steps = np.diag(1e-5 * np.where(mean == 0, 1.0, np.abs(mean)))
        return np.array(
            [
                (self.value(mean + step) - self.value(mean - step)) / (2 * step.sum())
                for step in steps
            ]
        )


class Root(Smooth):
    """The target is minus the root of an integral, as of squared errors."""

    n_values = 1
    mirrored = False
    bounds = (-np.inf, 0.0)

    def value(self, mean):
        """Return the target at a vector of integrals."""
        return -float(np.sqrt(max(mean[0], 0.0)))

    def direction(self, mean):
        """Return the gradient of the target; before anything is known, a guess."""
        return np.array([-0.5 / np.sqrt(mean[0]) if mean[0] > 0 else -1.0])

    def interval(self, limits, mean):
        """Return the interval: that of the integral, transformed."""
        low, high = limits(np.ones(1))
        return self.value([high]), self.value([low])


class Correlation(Smooth):
    """The target is Matthews' correlation of predicted and actual positives.

    The integrals are the shares of true positives, of predicted and actual positives.
    """

    n_values = 3
    bounds = (-1.0, 1.0)

    def value(self, mean):
        """Return the target at a vector of integrals; 0 where it has none."""
        both, p, a = mean
        spread = p * (1 - p) * a * (1 - a)
        return float(
            np.clip((both - p * a) / np.sqrt(spread), -1, 1) if spread > 0 else 0
        )

    def direction(self, mean):
        """Return the gradient of the target; before anything is known, a guess."""
        _, p, a = mean
        spread = p * (1 - p) * a * (1 - a)
        if spread <= 0:
            return np.array([1.0, -0.5, -0.5])
        root, r = np.sqrt(spread), self.value(mean)
        return np.array(
            [
                1 / root,
                -a / root - r * (1 - 2 * p) / (2 * p * (1 - p)),
                -p / root - r * (1 - 2 * a) / (2 * a * (1 - a)),
            ]
        )

    def extremes(self, parts, unit):
        """Return values that may come: all that a row may be but a true negative."""
        return unit * np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


class Difference(Smooth):
    """The target is one target less another of the same kind.

    Either may be the better one at a row that has not been seen.
    """

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

    def extremes(self, parts, unit):
        """Return values that may come though none like them has been seen."""
        first, second = np.split(parts, 2, axis=1)
        first, second = (
            self.part.extremes(first, unit),
            self.part.extremes(second, unit),
        )
        none = np.zeros_like(first)
        return np.concatenate([np.hstack([first, none]), np.hstack([none, second])])
