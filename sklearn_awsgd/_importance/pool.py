"""What is evaluated: the rows of a pool, the entries of a matrix, locations.

Each point of a pool is evaluated once; locations never come twice.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np


@dataclass
class PointValues:
    """What is known of drawn points.

    Attributes
    ----------
    values : ndarray of shape (n_points, n_values)
        Values of the integrands.
    guess : ndarray of shape (n_points, n_values)
        What was known of them before they were drawn.
    guess_mean : ndarray of shape (n_values,)
        The integral of the guess.
    """

    values: np.ndarray
    guess: np.ndarray
    guess_mean: np.ndarray


class Calls:
    """Evaluates the points of a round, in several calls of the loss.

    What the calls before a failure returned is kept for the next time.

    Parameters
    ----------
    integrand : Integrand
        What to evaluate.
    longest_call : int
        Most points that are evaluated in one call.
    """

    def __init__(self, integrand, longest_call):
        self._integrand, self._longest_call = integrand, longest_call
        self._keys, self._parts = None, []

    def __len__(self):
        """Return the number of points of an incomplete round that are evaluated."""
        return sum(map(len, self._parts))

    def values(self, evaluate, keys):
        """Return the values of keys, given what evaluates an array of them."""
        if not np.array_equal(keys, self._keys):
            self._keys, self._parts = keys, []
        left = keys[len(self) :]
        for part in self._integrand.in_calls(evaluate, left, self._longest_call):
            self._parts.append(part)
        parts, self._keys, self._parts = self._parts, None, []
        return np.concatenate(parts)


class Source(ABC):
    """What points are evaluated by.

    Parameters
    ----------
    integrand : Integrand
        What to evaluate.
    longest_call : int
        Most points that are evaluated in one call of the loss.

    Attributes
    ----------
    n_evaluations : int
        Number of different points evaluated so far.
    n_unknown : float
        Number of points not evaluated yet.
    known_share : float
        Share of the points whose value is used as a guess.
    n_columns : int or None
        Number of columns, where points are the entries of a matrix.
    """

    n_columns = None

    def __init__(self, integrand, longest_call):
        self.integrand = integrand
        self._calls = Calls(integrand, longest_call)

    @property
    def n_fetched(self):
        """Number of points evaluated, those of an incomplete round included."""
        return self.n_evaluations + len(self._calls)

    @abstractmethod
    def places(self, points):
        """Return where points are, as users know them."""

    @abstractmethod
    def evaluate_points(self, points):
        """Return the :class:`PointValues` of drawn points."""


class Pool(Source):
    """A finite pool of rows, or the entries of a matrix.

    The guess of a point evaluated before is its value, so that drawing it again costs
    nothing and adds no noise; that of others is zero.

    Parameters
    ----------
    integrand : Integrand
        What to evaluate.
    mass : ndarray of shape (n_points,)
        P, summing to one.
    longest_call : int
        Most points that are evaluated in one call of the loss.
    n_columns : int, default=None
        For the entries of a matrix: its number of columns.
    guess_known : bool, default=True
        Whether values are used as guesses at all.

    Attributes
    ----------
    known : ndarray of shape (n_points,)
        Whether a point has been evaluated, or needs no evaluation.
    values : ndarray of shape (n_points, n_values)
        Values of the known points.
    """

    def __init__(self, integrand, mass, longest_call, n_columns=None, guess_known=True):
        super().__init__(integrand, longest_call)
        self.mass = mass
        self.n_points = int(np.count_nonzero(mass))
        self.n_columns = n_columns
        self.known = mass == 0
        self.values = np.zeros((len(mass), integrand.target.n_values))
        self.n_unknown = self.n_points
        self.guess_known = guess_known
        self._known_sum = np.zeros(integrand.target.n_values)

    @property
    def n_evaluations(self):
        """Number of points evaluated so far."""
        return self.n_points - self.n_unknown

    @property
    def known_share(self):
        """Share of the points whose value is used as a guess."""
        return self.n_evaluations / self.n_points if self.guess_known else 0.0

    def evaluate(self, rows):
        """Evaluate positions not known yet, and return their values."""
        if len(rows):
            self.put(rows, self._calls.values(self._evaluate_at, rows))
        return self.values[rows]

    def put(self, rows, values):
        """Take the values of positions not known yet."""
        self.values[rows] = values
        self.known[rows] = True
        self.n_unknown -= len(rows)

    def evaluated(self):
        """Return the positions that have been evaluated."""
        return np.flatnonzero(self.known & (self.mass > 0))

    def _evaluate_at(self, rows):
        if self.n_columns is None:
            return self.integrand.at(rows)
        entries = np.column_stack(np.divmod(rows, self.n_columns))
        values = self.integrand.X[entries[:, 0], entries[:, 1]]
        return self.integrand.on(entries, np.asarray(values).ravel(), len(rows))

    def places(self, points):
        """Return the rows or entries (i, j) of points."""
        if self.n_columns is None:
            return points["i"].copy()
        return np.column_stack([points["i"], points["j"]])

    def positions(self, points):
        """Return the positions of points in the pool."""
        if self.n_columns is None:
            return points["i"]
        return points["i"] * self.n_columns + points["j"]

    def evaluate_points(self, points):
        """Return values and guesses at points, and the integral of the guess."""
        rows = self.positions(points)
        known = self.known[rows]
        # Faster than np.unique for the size of a round.
        new = np.sort(rows[~known])
        new = new[np.concatenate([[True], new[1:] != new[:-1]])] if len(new) else new
        self.evaluate(new)
        values = self.values[rows]
        # Guesses belong to the time before the round.
        made = PointValues(
            values,
            values * (known[:, None] & self.guess_known),
            self._known_sum * self.guess_known,
        )
        self._known_sum = self._known_sum + self.mass[new] @ self.values[new]
        return made

    def finish(self):
        """Evaluate all that is not known yet."""
        self.evaluate(np.flatnonzero(~self.known))

    def exact(self):
        """Return the integral itself, once nothing is unknown."""
        return self.mass @ self.values


class Locations(Source):
    """The locations of a continuous distribution: none comes twice.

    Parameters
    ----------
    integrand : Integrand
        What to evaluate.
    space : sklearn_awsgd._spaces.DistributionSpace
        The distribution.
    longest_call : int
        Most points that are evaluated in one call of the loss.
    """

    n_unknown = np.inf
    known_share = 0.0

    def __init__(self, integrand, space, longest_call):
        super().__init__(integrand, longest_call)
        self.n_evaluations = 0
        self._space = space

    def places(self, points):
        """Return the locations of points."""
        return self._space.arguments(points["x"])

    def evaluate_points(self, points):
        """Return values at points; there are no guesses."""
        inside = np.isfinite(points["q"])
        values = np.zeros((len(points), self.integrand.target.n_values))

        def evaluate_at(locations):
            return self.integrand.on(locations, None, len(locations))

        if inside.any():
            locations = self.places(points[inside])
            values[inside] = self._calls.values(evaluate_at, locations)
            self.n_evaluations += len(locations)
        return PointValues(values, np.zeros_like(values), np.zeros(values.shape[1]))
