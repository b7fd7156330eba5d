"""What is integrated over: the rows of a pool, the entries of a matrix, a distribution.

A space draws points, evaluates the integrand at them and lets its family learn. It
gives each round as ``values``, ``guess`` and the integral of the guess.
"""

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from sklearn_awsgd._importance.families import score_bins

# Rows that a surrogate is first learned from; then at each doubling.
FIRST_SURROGATE = 200


class FiniteSpace:
    """A finite pool of rows, or the entries of a matrix.

    Parameters
    ----------
    integrand : Integrand
        What to evaluate.
    mass : ndarray of shape (n_points,)
        P, summing to one.
    family : family of :mod:`sklearn_awsgd._importance.families`
        How to draw.
    control : Control
        What is known.
    longest_call : int
        Most points that are evaluated in one call of the loss.
    n_columns : int, default=None
        For the entries of a matrix: its number of columns.
    """

    def __init__(self, integrand, mass, family, control, longest_call, n_columns=None):
        self.integrand = integrand
        self.family = family
        self.control = control
        self.n_points = int(np.count_nonzero(mass))
        self._longest_call = longest_call
        self._n_columns = n_columns
        self._learned = None
        # Values of a round that is not complete, by position.
        self._fetched = {}

    def learn_surrogate(self, features, labels, n_labels, random_state):
        """Let a regressor of |f| be the surrogate, once it can be learned."""
        self._learned = (features, labels, n_labels, random_state)
        self._next_surrogate = FIRST_SURROGATE

    @property
    def n_evaluations(self):
        """Number of points evaluated so far."""
        return self.n_points - self.control.n_unknown

    @property
    def known_share(self):
        """Share of the points whose value is used instead of a guess."""
        return self.n_evaluations / self.n_points if self.control.guess_known else 0.0

    def rows(self, points):
        """Return the positions of points."""
        if self._n_columns is None:
            return points["i"]
        return points["i"] * self._n_columns + points["j"]

    def _evaluate_at(self, rows):
        if self._n_columns is None:
            return self.integrand.at(rows)
        entries = np.column_stack(np.divmod(rows, self._n_columns))
        values = self.integrand.X[entries[:, 0], entries[:, 1]]
        return self.integrand.on(entries, np.asarray(values).ravel(), len(rows))

    def evaluate(self, points):
        """Return values and guesses at points, and the integral of the guess."""
        rows = self.rows(points)
        control = self.control
        # Faster than np.unique for the size of a round.
        new = np.sort(rows[~control.known[rows]])
        new = new[np.concatenate([[True], new[1:] != new[:-1]])] if len(new) else new
        values = self._fetch(new)
        # All of this belongs to the time before the round.
        self._model = control.model(rows)
        guess, total = control.guess(rows, self._model), control.total()
        control.add(new, values)
        return control.values[rows], guess, total

    def _fetch(self, rows):
        """Return the values at positions, call by call.

        What the calls before a failure returned is kept for the next time.
        """
        step = self._longest_call
        parts = [rows[begin : begin + step] for begin in range(0, len(rows), step)]
        for part in parts:
            # A round that failed comes again with the same rows, so in the same parts.
            if part[0] not in self._fetched:
                values = self.integrand.repeatable(self._evaluate_at, part)
                self._fetched[part[0]] = values
        values = [self._fetched[part[0]] for part in parts]
        self._fetched = {}
        n_values = self.control.values.shape[1]
        return np.concatenate(values) if values else np.zeros((0, n_values))

    def observe(self, points, values, direction):
        """Let the family learn from a round."""
        residual = (values - self._model) @ direction
        points["norm2"] = (residual / points["q"]) ** 2
        self.family.observe_points(points)

    def refit(self, direction):
        """Learn afresh from all that is known."""
        if self._learned is not None and self.n_evaluations >= self._next_surrogate:
            self._refit_surrogate(direction)
            self._next_surrogate = 2 * self.n_evaluations
        self.family.refit(*self.control.learn(direction))

    def _refit_surrogate(self, direction):
        features, labels, n_labels, random_state = self._learned
        rows, values = self.control.evaluated()
        target = np.abs(values @ direction)
        if target.max() == target.min():
            return
        model = HistGradientBoostingRegressor(
            max_iter=100, early_stopping=False, random_state=random_state
        )
        model.fit(features[rows], target)
        score = np.maximum(model.predict(features), 0.0)
        strata, n_strata = score_bins(score, self.control.mass, labels, n_labels)
        self.family.set_strata(strata, n_strata)
        self.control.set_strata(strata, n_strata, score)

    def finish(self):
        """Evaluate all that is not known yet."""
        control = self.control
        new = np.flatnonzero(~control.known & (control.mass > 0))
        control.add(new, self._fetch(new))

    @property
    def n_unknown(self):
        """Number of points not evaluated yet."""
        return self.control.n_unknown

    def exact(self):
        """Return the integral itself, once nothing is unknown."""
        return self.control.exact()

    def allowance(self):
        """Return what may hide in points not evaluated yet."""
        control = self.control
        return {
            "leverage": self.family.leverage(),
            "events": control.events,
            "second": control.event_second,
            "third": control.event_third,
        }


class DistributionSpace:
    """A continuous distribution: no point comes twice.

    Parameters
    ----------
    integrand : Integrand
        What to evaluate.
    family : GaussianFamily
        How to draw.
    """

    n_unknown = np.inf
    known_share = 0.0

    def __init__(self, integrand, family):
        self.integrand = integrand
        self.family = family
        self.n_evaluations = 0

    def evaluate(self, points):
        """Return values and guesses at points, and the integral of the guess."""
        inside = np.isfinite(points["q"])
        values = np.zeros((len(points), self.integrand.target.n_values))

        def evaluate_at(chosen):
            x = self.family.arguments(chosen)
            return self.integrand.on(x, None, len(chosen))

        if inside.any():
            chosen = points[inside]
            values[inside] = self.integrand.repeatable(evaluate_at, chosen)
            self.n_evaluations += len(chosen)
        return values, np.zeros_like(values), np.zeros(values.shape[1])

    def observe(self, points, values, direction):
        """Let the family learn from a round."""
        points["norm2"] = ((values @ direction) / points["q"]) ** 2
        self.family.observe_points(points)

    def refit(self, direction):
        """Learn afresh from all that is known."""
        self.family.refit(None, None)

    def allowance(self):
        """Return what may hide: nothing is said of it."""
        return {}
