"""LevelSampler: rows by the size of the gradient they last showed."""

import numpy as np

from sklearn_awsgd._kernels import _level_sampler
from sklearn_awsgd._validation import Real
from sklearn_awsgd.samplers.base import BaseSampler


class LevelSampler(BaseSampler):
    """Draw rows by the size of the gradient they last showed.

    Strata are (class, power-of-two level of the last seen gradient norm); a row changes
    stratum when it is drawn. Rows that have been learned sink to low levels and are
    drawn seldom, rows that still matter stay high: in the limit the probability of a
    row is proportional to its gradient norm, which no distribution over fixed strata
    can reach.

    It looks at the same rows again and again, so it is for ``fit``. A stream has no
    second look: ``partial_fit`` starts the levels anew with each chunk, and what
    :class:`StrataSampler` learns lasts longer.

    Parameters
    ----------
    mixing : float in [0, 1), default=0.1
        Share of draws from a safe distribution, proportional to
        ``sqrt(||x||^2 + 1)``. It bounds the weights, and it finds rows whose gradient
        has grown since they were last drawn.
    forgetting : float in (0, 1], default=0.01
        Weight of the newest observation in the running mean of a stratum.

    Attributes
    ----------
    probabilities_ : ndarray of shape (n_problems, n_strata)
        Learned probability of each stratum, without the safe part. Stratum
        ``32 c + 27 + l`` holds the rows of group c (0 the rest, 1 the positive class)
        at level l: 0 is the level of the largest gradient norm at the start, a level
        down is half of it. ``sampling_history_`` has group and level as columns.

    Notes
    -----
    An addition of this package to the paper.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn_awsgd import AWSGDClassifier
    >>> from sklearn_awsgd.samplers import LevelSampler
    >>> X, y = make_classification(weights=[0.95], random_state=0)
    >>> clf = AWSGDClassifier(
    ...     sampler=LevelSampler(), learning_rate="adagrad", random_state=0
    ... )
    >>> clf.fit(X, y).sampler_.probabilities_.shape
    (1, 64)
    """

    _parameters = {
        "mixing": Real(low=0, below=1),
        "forgetting": Real(above=0, high=1),
    }
    # A row whose value does not change needs no second look.
    _needs_training = True

    def __init__(self, *, mixing=0.1, forgetting=0.01):
        self.mixing = mixing
        self.forgetting = forgetting

    def prepare(self, space, n_problems, n_groups, strata):
        """Allocate what is learned, for all problems."""
        if self.mixing > 0:
            space.safe()  # Built here once, not by each thread.
        self._n_groups = n_groups
        n_strata = n_groups * _level_sampler.N_LEVELS_PER_GROUP
        self.probabilities_ = np.zeros((n_problems, n_strata))

    def open(self, space, view, problem, generator):
        """Return the compiled sampler of one problem."""
        return _level_sampler.LevelDraws(
            generator,
            space,
            view.groups,
            self._n_groups,
            view.norms2,
            self.mixing,
            self.forgetting,
        )

    def describe(self, strata, group_names):
        """Return what numbers of strata stand for, as :class:`StrataSampler` does."""
        groups, levels = np.divmod(strata, _level_sampler.N_LEVELS_PER_GROUP)
        return {
            "group": group_names(groups),
            "level": levels - _level_sampler.FIRST_LEVEL,
        }
