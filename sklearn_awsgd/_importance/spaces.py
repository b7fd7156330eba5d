"""What is integrated over: the rows of a pool, the entries of a matrix, a distribution.

A pool evaluates the integrand at positions, each once. A space draws weighted points
from it by a family, or from a distribution, and gives each round as ``values``,
``guess`` and the integral of the guess.
"""

import numpy as np


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


class Pool:
    """A finite pool of rows, or the entries of a matrix.

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

    Attributes
    ----------
    known : ndarray of shape (n_points,)
        Whether a point has been evaluated, or needs no evaluation.
    values : ndarray of shape (n_points, n_values)
        Values of the known points.
    """

    def __init__(self, integrand, mass, longest_call, n_columns=None):
        self.integrand = integrand
        self.mass = mass
        self.n_points = int(np.count_nonzero(mass))
        self.n_columns = n_columns
        self.known = mass == 0
        self.values = np.zeros((len(mass), integrand.target.n_values))
        self.n_unknown = self.n_points
        self.calls = Calls(integrand, longest_call)

    @property
    def n_evaluations(self):
        """Number of points evaluated so far."""
        return self.n_points - self.n_unknown

    def evaluate(self, rows):
        """Evaluate positions not known yet, and return their values."""
        if len(rows):
            self.values[rows] = self.calls.values(self._evaluate_at, rows)
        self.known[rows] = True
        self.n_unknown -= len(rows)
        return self.values[rows]

    def _evaluate_at(self, rows):
        if self.n_columns is None:
            return self.integrand.at(rows)
        entries = np.column_stack(np.divmod(rows, self.n_columns))
        values = self.integrand.X[entries[:, 0], entries[:, 1]]
        return self.integrand.on(entries, np.asarray(values).ravel(), len(rows))

    def exact(self):
        """Return the integral itself, once nothing is unknown."""
        return self.mass @ self.values


class FiniteSpace:
    """Weighted draws from a pool.

    The guess of a point evaluated before is its value, so that drawing it again costs
    nothing and adds no noise; that of others is zero.

    Parameters
    ----------
    pool : Pool
        What is evaluated.
    family : family of :mod:`sklearn_awsgd._importance.families`
        How to draw.
    guess_known : bool
        Whether values are used as guesses at all.
    """

    def __init__(self, pool, family, guess_known):
        self.pool = pool
        self.family = family
        self.guess_known = guess_known
        self._known_sum = np.zeros(pool.values.shape[1])

    @property
    def integrand(self):
        """What is evaluated."""
        return self.pool.integrand

    @property
    def n_evaluations(self):
        """Number of points evaluated so far."""
        return self.pool.n_evaluations

    @property
    def n_unknown(self):
        """Number of points not evaluated yet."""
        return self.pool.n_unknown

    @property
    def known_share(self):
        """Share of the points whose value is used as a guess."""
        return self.n_evaluations / self.pool.n_points if self.guess_known else 0.0

    @property
    def calls(self):
        """What calls the loss."""
        return self.pool.calls

    def places(self, points):
        """Return the rows or entries (i, j) of points."""
        if self.pool.n_columns is None:
            return points["i"].copy()
        return np.column_stack([points["i"], points["j"]])

    def positions(self, points):
        """Return the positions of points in the pool."""
        if self.pool.n_columns is None:
            return points["i"]
        return points["i"] * self.pool.n_columns + points["j"]

    def evaluate(self, points):
        """Return values and guesses at points, and the integral of the guess."""
        pool, rows = self.pool, self.positions(points)
        known = pool.known[rows]
        # Faster than np.unique for the size of a round.
        new = np.sort(rows[~known])
        new = new[np.concatenate([[True], new[1:] != new[:-1]])] if len(new) else new
        pool.evaluate(new)
        values = pool.values[rows]
        # Guesses belong to the time before the round.
        guess = values * (known[:, None] & self.guess_known)
        total = self._known_sum * self.guess_known
        self._known_sum = self._known_sum + pool.mass[new] @ pool.values[new]
        return values, guess, total

    def finish(self):
        """Evaluate all that is not known yet."""
        self.pool.evaluate(np.flatnonzero(~self.pool.known))

    def exact(self):
        """Return the integral itself, once nothing is unknown."""
        return self.pool.exact()


class DistributionSpace:
    """Weighted draws from a continuous distribution: no point comes twice.

    Parameters
    ----------
    integrand : Integrand
        What to evaluate.
    family : GaussianFamily
        How to draw.
    longest_call : int
        Most points that are evaluated in one call of the loss.
    """

    n_unknown = np.inf
    known_share = 0.0

    def __init__(self, integrand, family, longest_call):
        self.integrand = integrand
        self.family = family
        self.calls = Calls(integrand, longest_call)
        self.n_evaluations = 0

    def places(self, points):
        """Return the locations of points."""
        return self.family.arguments(points)

    def evaluate(self, points):
        """Return values and guesses at points, and the integral of the guess."""
        inside = np.isfinite(points["q"])
        values = np.zeros((len(points), self.integrand.target.n_values))

        def evaluate_at(locations):
            return self.integrand.on(locations, None, len(locations))

        if inside.any():
            locations = self.places(points[inside])
            values[inside] = self.calls.values(evaluate_at, locations)
            self.n_evaluations += len(locations)
        return values, np.zeros_like(values), np.zeros(values.shape[1])
