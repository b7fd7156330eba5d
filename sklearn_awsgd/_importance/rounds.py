"""The protocol of rounds: what draws, evaluates, learns and estimates.

:class:`~sklearn_awsgd._importance.run.Integrator` runs them until an estimate is good
enough, and knows nothing of how they draw. Draws are dealt to two halves, and each half
ends when the *other* one says so: a run that has been low also looks precise, and must
not end for that.
"""

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np


class Rounds(ABC):
    """Rounds of draws that are evaluated and learned from.

    Parameters
    ----------
    pool : Pool or Locations
        What is evaluated.
    sampler : BaseSampler
        Says how to draw, and keeps what was learned.

    Attributes
    ----------
    target : Mean, Ratio or Difference
        What is wanted of the integrals.
    shortest_round : int
        Draws that a round must have.
    stopping_sample_size : int
        A run may stop early from this effective sample size on.
    n_draws : int
        Number of draws so far.
    pending : object or None
        A round that was drawn and could not be evaluated.
    end_in_sight : float
        Draws after which the wanted precision may be reached, as far as is known.
    """

    end_in_sight = np.inf
    # Whether that end can be told from the draws still wanted.
    foresees_end = False

    def __init__(self, pool, sampler):
        self.pool, self.sampler = pool, sampler
        self.target = pool.integrand.target
        self._active = np.ones(2, dtype=bool)

    @abstractmethod
    def draw(self, size):
        """Draw a round and evaluate it.

        When the loss fails, the round stays pending and is evaluated the next time,
        whatever the size: drawing another one would leave out the points on which it
        fails.
        """

    @abstractmethod
    def learn(self, left=0):
        """Learn from all that is known by now, perhaps.

        Parameters
        ----------
        left : int, default=0
            Evaluations that are left.
        """

    @abstractmethod
    def finish(self):
        """Evaluate all that is not known yet."""

    @abstractmethod
    def least_left(self, max_evaluations):
        """Return how much of a budget must be left for a round."""

    def least_round(self):
        """Return how many draws the next round must have."""
        return self.shortest_round

    @abstractmethod
    def estimate(self, half=None):
        """Return the estimate over the pool.

        Parameters
        ----------
        half : {0, 1}, default=None
            Return what this half tells about the estimate of both, as if the other one
            were like it.
        """

    def doubt(self):
        """Return why the interval cannot be believed, or None."""
        return None

    def assumed_range(self):
        """Return between which values the interval takes all others to lie, or None."""
        return None

    @abstractmethod
    def variance_gain(self):
        """Return the variance of a plain average of as many points, over ours."""

    @abstractmethod
    def probabilities(self):
        """Return what has been learned about sampling."""

    @abstractmethod
    def keep(self):
        """Let the sampler keep what has been learned."""

    @abstractmethod
    def sample(self, n_samples):
        """Draw places with replacement, as they are drawn now, with weights 1/q."""

    @abstractmethod
    def draws_of_halves(self):
        """Return how many draws each half has had, an array of two."""

    @property
    def n_evaluations(self):
        """Number of different points evaluated."""
        return self.pool.n_evaluations

    @property
    def n_fetched(self):
        """Number of points evaluated, those of an incomplete round included."""
        return self.pool.n_fetched

    @property
    def n_unknown(self):
        """Number of points not evaluated yet."""
        return self.pool.n_unknown

    def exact(self):
        """Return the integral itself, once nothing is unknown."""
        return self.pool.exact()

    def go_on(self):
        """Let both halves draw again: what ended one may no longer be wanted."""
        self._active[:] = True

    def has_reached(self, precision, with_past):
        """Decide for each half whether it goes on; return whether none does.

        Parameters
        ----------
        precision : Precision
            How narrow an interval is wanted.
        with_past : callable
            Takes an estimate over this pool, returns that over all of a stream.
        """
        n_draws = self.draws_of_halves()
        if not n_draws.all():
            return False
        precision = replace(precision, sample_size=self.stopping_sample_size)
        wanted = np.array(
            [
                n_draws[other]
                * precision.draws_wanted(with_past(self.estimate(other)), self.target)
                for other in (1, 0)
            ]
        )
        # A half that is too small to say what the other should have must not rest: the
        # other one would go on alone, and nothing would ever end it.
        self._active = (n_draws < wanted) | ~np.isfinite(wanted[::-1])
        if self.foresees_end:
            missing = np.maximum(wanted - n_draws, 0.0).sum()
            self.end_in_sight = self.n_draws + missing
        if self._active.any():
            return False
        # Both go on if the run does.
        self.go_on()
        return precision.is_reached(with_past(self.estimate()), self.target)
