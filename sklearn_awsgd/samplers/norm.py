"""NormSampler: rows in proportion to their norms."""

import numpy as np

from sklearn_awsgd._validation import Boolean
from sklearn_awsgd.samplers.base import BaseSampler, OpenedSampler


class NormSampler(BaseSampler):
    """Draw rows in proportion to ``sqrt(||x||^2 + 1)``.

    Nothing is learned. It is the best fixed distribution for losses whose gradient is
    bounded by a constant times that norm, where nothing else is known of a row.

    Parameters
    ----------
    time_aware : bool, default=False
        Whether to divide that by the root of what each row costs, where costs are
        given. See :ref:`time-aware`.

    Attributes
    ----------
    probabilities_ : ndarray of shape (n_problems, 1)
        All ones: there is one stratum.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_awsgd import MinVarianceImportanceEstimator
    >>> from sklearn_awsgd.samplers import NormSampler
    >>> X = np.random.default_rng(0).lognormal(size=(2000, 1))
    >>> mean = MinVarianceImportanceEstimator(
    ...     loss=lambda rows: rows[:, 0], sampler=NormSampler(), random_state=0
    ... ).fit(X)
    >>> bool(mean.variance_gain_ > 1)
    True
    """

    _parameters = {"time_aware": Boolean()}

    def __init__(self, *, time_aware=False):
        self.time_aware = time_aware

    def open(self, space, view, problem, generator):
        """Return the sampler of one problem."""
        return NormDraws(space, generator, self.time_aware)


class NormDraws(OpenedSampler):
    """Rows in proportion to ``sqrt(||x||^2 + 1)``.

    Parameters
    ----------
    space : RowSpace
        The rows.
    generator : numpy.random.BitGenerator
        Random stream.
    time_aware : bool, default=False
        Whether to divide by the root of what rows cost.
    """

    # Nothing moves; a batch has to be worth its calls of NumPy.
    patience = 256

    def __init__(self, space, generator, time_aware=False):
        # In double precision, as they are added up.
        bound2 = np.add(space.norms2, 1.0, dtype=np.float64)
        mass, bound = space.mass, np.sqrt(bound2, out=bound2)
        if time_aware and space.costs is not None:
            bound = bound / np.sqrt(space.costs)
        weight = bound if mass is None else mass * bound
        self._space = space
        self._random = np.random.Generator(generator)
        self._cumulative = np.cumsum(weight / weight.sum())
        self._densities = bound / (
            bound.mean() if mass is None else mass @ bound / mass.sum()
        )
        self._last = int(np.flatnonzero(weight)[-1])

    def draw_points(self, n_points):
        """Draw points."""
        points = self._space.points(n_points)
        u = self._random.random(n_points)
        rows = np.searchsorted(self._cumulative, u, side="right")
        # Rounding must not leave a draw behind the last row.
        points["i"] = np.minimum(rows, self._last)
        points["q"] = self._densities[points["i"]]
        return points

    def densities(self):
        """Return q of every row."""
        return self._densities
