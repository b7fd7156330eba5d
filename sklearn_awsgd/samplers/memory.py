"""What the memory of a stream holds, in the words of samplers."""

import numpy as np

from sklearn_awsgd.samplers.base import BaseSampler

# Levels of curvature that are told apart, each half of the one above.
LEVELS_SHOWN = 16
LEAST_LEVEL = 0.5 ** (LEVELS_SHOWN - 1)


class StreamMemory(BaseSampler):
    """Which rows of a stream are looked at again: those with the largest curvature.

    It is found as ``sampler_`` after ``partial_fit`` with ``learning_rate="auto"``, and
    draws nothing itself.

    Attributes
    ----------
    probabilities_ : ndarray of shape (n_problems, n_strata)
        Share of the memory that each stratum has: a class and a level of curvature.
    n_rows_ : ndarray of shape (n_problems,)
        Rows in the memory.
    """

    _space = ()

    def prepare(self, space, n_problems, n_groups, strata):
        """Allocate the shares."""
        self.probabilities_ = np.zeros((n_problems, n_groups * LEVELS_SHOWN))
        self.n_rows_ = np.zeros(n_problems, dtype=np.intp)

    def open(self, space, view, problem, generator):
        """Raise TypeError: there is nothing to draw."""
        raise TypeError("StreamMemory shows what a stream remembers; it draws nothing.")

    def look(self, problem, groups, curvature):
        """Take in the rows in the memory of a problem.

        Parameters
        ----------
        problem : int
            Its number.
        groups : ndarray of int
            Classes of the rows.
        curvature : ndarray
            Curvatures of their losses, relative to the largest that the loss has.
        """
        known = np.minimum(np.maximum(curvature, LEAST_LEVEL), 1.0)
        levels = (-np.ceil(np.log2(known))).astype(np.intp)
        n_strata = self.probabilities_.shape[1]
        counts = np.bincount(groups * LEVELS_SHOWN + levels, minlength=n_strata)
        self.n_rows_[problem] = len(groups)
        self.probabilities_[problem] = counts / max(len(groups), 1)

    def describe(self, strata, group_names):
        """Return the class and the level of strata: 0 the largest, -1 half of it."""
        groups, levels = np.divmod(strata, LEVELS_SHOWN)
        return {"group": group_names(groups), "level": -levels}
