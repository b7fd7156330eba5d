"""What is known of every row before a round: the control variate.

A round estimates ``A + mean((f - a) / q)``, where a is any guess of f made before the
round and A its exact integral over the pool. For a row evaluated before, the guess is
its value: drawing it again adds no noise and costs nothing. For another row it is the
level of its stratum plus a multiple of the surrogate's score, both fitted to the rows
evaluated so far.
"""

import numpy as np

# Large values that a stratum may hide: half a one, the usual allowance for a count of
# zero, less where some have been seen, and not more than so many in all strata
# together. A surrogate has an opinion of its own on where they are.
UNSEEN_EVENTS = 0.5
UNSEEN_IN_ALL = 2.0
UNSEEN_BESIDE_SURROGATE = 0.05
# Squared standard errors that a slope has to exceed.
SLOPE_DOUBT = 2.0
SLOPE_STEPS = 4


class Control:
    """Values known so far and guesses of the others, with their exact integral.

    Parameters
    ----------
    mass : ndarray of shape (n_samples,)
        P of each row, summing to one.
    n_values : int
        Number of integrals.
    guess_known, guess_unknown : bool
        Whether rows evaluated before, and the others, have a guess; else it is zero.

    Notes
    -----
    Call :meth:`set_strata` before anything else.
    """

    def __init__(self, mass, n_values, guess_known=True, guess_unknown=True):
        n_samples = len(mass)
        self.mass = mass
        self.guess_known = guess_known
        self.guess_unknown = guess_unknown
        self.known = np.zeros(n_samples, dtype=bool)
        self.values = np.zeros((n_samples, n_values))
        self.n_unknown = int(np.count_nonzero(mass))
        self._evaluated = Columns()
        self._known_sum = np.zeros(n_values)

    def set_strata(self, strata, n_strata, score=None):
        """Choose the strata and the score that guesses are made of."""
        self.strata = strata
        self.score = score
        self.level = np.zeros((n_strata, self.values.shape[1]))
        self.slope = np.zeros(self.values.shape[1])
        self.stratum_mass = np.bincount(strata, self.mass, n_strata)
        unknown = np.where(self.known, 0.0, self.mass)
        self._unknown_mass = np.bincount(strata, unknown, n_strata)
        self._score_squares = None
        rows = self._evaluated.get("rows", np.intp)
        self._evaluated.replace("strata", strata[rows])
        if score is not None:
            self._evaluated.replace("score", score[rows])
            self._unknown_score = unknown @ score
            squares = np.bincount(strata, self.mass * score**2, n_strata)
            squares /= np.where(self.stratum_mass > 0, self.stratum_mass, 1)
            # A score of zero is no promise.
            self._score_squares = squares + 0.01 * (self.stratum_mass @ squares)

    @property
    def n_strata(self):
        """Number of strata."""
        return len(self._unknown_mass)

    def add(self, rows, values):
        """Take in the values of rows not evaluated before."""
        mass, strata = self.mass[rows], self.strata[rows]
        self.known[rows] = True
        self.values[rows] = values
        self.n_unknown -= len(rows)
        self._known_sum += mass @ values
        self._unknown_mass -= np.bincount(strata, mass, self.n_strata)
        self._evaluated.append("rows", rows)
        self._evaluated.append("values", values)
        self._evaluated.append("strata", strata)
        if self.score is not None:
            score = self.score[rows]
            self._unknown_score -= mass @ score
            self._evaluated.append("score", score)

    def evaluated(self):
        """Return the rows evaluated so far, in that order, and their values."""
        n_values = self.values.shape[1]
        rows = self._evaluated.get("rows", np.intp)
        return rows, self._evaluated.get("values").reshape(-1, n_values)

    def model(self, rows):
        """Return the guess of rows as if none of them had been evaluated."""
        guess = self.level[self.strata[rows]]
        if self.score is not None:
            guess += self.slope * self.score[rows, None]
        return guess

    def guess(self, rows, model):
        """Return a of rows, given what :meth:`model` says of them."""
        if not self.guess_known:
            return model
        return np.where(self.known[rows, None], self.values[rows], model)

    def total(self):
        """Return A, the integral of a."""
        if not self.guess_known:
            return np.zeros(self.values.shape[1])
        total = self._known_sum + self._unknown_mass @ self.level
        if self.score is not None:
            total = total + self._unknown_score * self.slope
        return total

    def exact(self):
        """Return the integral of f, once all rows are known."""
        return self.mass @ self.values

    def expected_squares(self):
        """Return the relative size of squared values to expect before any is known."""
        if self._score_squares is not None:
            return self._score_squares
        # Between sampling strata as they come and sampling all of them alike.
        return 1 / np.where(self.stratum_mass > 0, self.stratum_mass, 1)

    def learn(self, direction):
        """Fit the guesses to what is known.

        Parameters
        ----------
        direction : ndarray of shape (n_values,)
            Combination of the integrals whose residuals matter.

        Returns
        -------
        squares : ndarray of shape (n_strata,)
            Mean squared residual of each stratum; zero where nothing is left to learn.
        counts : ndarray of shape (n_strata,)
            Rows it was learned from.
        """
        n_strata = self.n_strata
        _, values = self.evaluated()
        strata = self._evaluated.get("strata", np.int32)
        counts = np.bincount(strata, minlength=n_strata).astype(float)
        guess, lost = 0.0, 0.0
        if self.guess_unknown:
            guess = self._fit(values, strata, counts, direction)
            lost = np.minimum(counts, 1.0)
        residual = (values - guess) @ direction
        squares = np.bincount(strata, residual**2, n_strata)
        self._expect_events(values, direction, squares, counts)
        size = direction @ self.event_second @ direction
        squares = (squares + size * self.events) / (counts - lost + 1)
        return np.where(self.events > 0, squares, 0.0), counts

    def _expect_events(self, values, direction, squares, counts):
        """Guess what one more row of each stratum might bring.

        An event is a row that the integral is made of: a row drawn with a probability
        proportional to its squared value. `event_second` and `event_third` are the
        moments of its values, `events` its probability in one more row.
        """
        chance = (values @ direction) ** 2
        total = chance.sum()
        chance = chance / total if total > 0 else chance
        weighted = chance[:, None] * values
        self.event_second = weighted.T @ values
        pairs = (weighted[:, :, None] * values[:, None, :]).reshape(len(values), -1)
        self.event_third = (values.T @ pairs).reshape((values.shape[1],) * 3)
        scored = self._score_squares is not None
        in_all = UNSEEN_BESIDE_SURROGATE if scored else UNSEEN_IN_ALL
        size = direction @ self.event_second @ direction
        # Squares in units of events: for losses of 0 and 1, the ones seen.
        n_seen = squares / size if size > 0 else 0 * squares
        events = min(UNSEEN_EVENTS, in_all / self.n_strata) / (1 + n_seen)
        if scored and size > 0:
            # Also as many as the scores say.
            seen = counts > 0
            scale = self.stratum_mass[seen] @ (squares[seen] / counts[seen])
            scale /= self.stratum_mass[seen] @ self._score_squares[seen]
            events += self._score_squares * (scale / size)
        if self.guess_known:
            # Rounding leaves a trace of mass where every row is known.
            events[self._unknown_mass <= 1e-12 * self.stratum_mass] = 0.0
        self.events = events

    def _fit(self, values, strata, counts, direction):
        """Fit slope and levels by least squares inside strata; return the guesses."""

        n_rows = np.maximum(counts, 1)[:, None]

        def stratum_means(x):
            total = [np.bincount(strata, column, self.n_strata) for column in x.T]
            return np.stack(total, axis=1) / n_rows

        trend = 0.0
        if self.score is not None:
            score = self._evaluated.get("score")[:, None]
            x = score - stratum_means(score)[strata]
            y = values - stratum_means(values)[strata]
            self.slope = self._fit_slope(x, y, strata, n_rows[:, 0], direction)
            trend = self.slope * score
        means = stratum_means(values - trend)
        # Shrunken as if by one more row, of the mean over the pool.
        mass = np.where(counts > 0, self.stratum_mass, 0.0)
        mean = mass @ means / mass.sum()
        self.level = (counts[:, None] * means + mean) / (counts[:, None] + 1)
        return self.level[strata] + trend

    def _fit_slope(self, x, y, strata, n_rows, direction):
        """Return the slope that is best for the allocation that will follow.

        With strata drawn in proportion to ``N_s sigma_s`` the variance is the square of
        the sum of them, and the slope that makes it least is a regression with weights
        ``N_s / sigma_s``: a steep slope in one stratum must not disturb the others.
        """
        slope = np.zeros(y.shape[1])
        for _ in range(SLOPE_STEPS):
            residual2 = ((y - slope * x) @ direction) ** 2
            squares = np.bincount(strata, residual2, self.n_strata) / n_rows
            least = 0.01 * (self.stratum_mass @ squares)
            if least == 0:
                break
            root = np.sqrt(self.stratum_mass / n_rows / np.sqrt(squares + least))
            weight = root[strata, None]
            slope = shrunken_slope(weight * x, weight * y)
        return slope


def shrunken_slope(x, y):
    """Return regression slopes, drawn towards zero as far as they are uncertain.

    One large value must not tilt the guesses of all rows: the variance is that of the
    jackknife, which sees how much the slope hangs on single rows.

    Parameters
    ----------
    x : ndarray of shape (n_rows, 1)
        Centred score.
    y : ndarray of shape (n_rows, n_values)
        Centred values.

    Returns
    -------
    slope : ndarray of shape (n_values,)
        Of each value on the score.
    """
    squares = x * x
    total = squares.sum()
    if total == 0:
        return np.zeros(y.shape[1])
    slope = (x * y).sum(axis=0) / total
    # Without its own row, a residual is larger by this factor.
    alone = 1 / np.maximum(1 - squares / total, 1e-6)
    variance = (squares * ((y - slope * x) * alone) ** 2).sum(axis=0) / total**2
    kept = 1 - SLOPE_DOUBT * variance / np.where(slope == 0, 1.0, slope) ** 2
    return slope * np.maximum(kept, 0.0)


class Columns:
    """Arrays that grow at their ends, in the order of evaluation.

    The rows of a pool lie anywhere in memory; what is learned from all of them again
    and again is faster to read from here.
    """

    def __init__(self):
        self._parts = {}

    def append(self, name, array):
        """Add to the end of a column."""
        self._parts.setdefault(name, []).append(array)

    def replace(self, name, array):
        """Set a whole column."""
        self._parts[name] = [array]

    def get(self, name, dtype=np.float64):
        """Return a whole column."""
        parts = self._parts.get(name, [])
        if len(parts) > 1:
            self._parts[name] = parts = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0, dtype=dtype)
