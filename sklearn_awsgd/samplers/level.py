"""LevelSampler: rows by the size of the gradient they last showed."""

import numpy as np

from sklearn_awsgd._kernels import _level_sampler
from sklearn_awsgd._validation import Boolean, Real
from sklearn_awsgd.samplers.base import BaseSampler

# Classes of costs that are told apart, each four times as dear as the one before.
MOST_COST_CLASSES = 16


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
    time_aware : bool, default=False
        Whether to learn the variance for each second: strata then tell rows of
        different cost apart (each class of costs up to four times as dear as the one
        before), levels are those of the gradient norm divided by the root of the cost,
        and the safe distribution is divided by that root, too. See :ref:`time-aware`.

    Attributes
    ----------
    probabilities_ : ndarray of shape (n_problems, n_strata)
        Learned probability of each stratum, without the safe part. Stratum
        ``32 c + 27 + l`` holds the rows of group c (0 the rest, 1 the positive class)
        at level l: 0 is the level of the largest gradient norm at the start, a level
        down is half of it. ``sampling_history_`` has group and level as columns. With
        `time_aware` each group comes once for each class of costs, the cheapest first.

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
        "time_aware": Boolean(),
    }
    # A row whose value does not change needs no second look.
    _needs_training = True

    def __init__(self, *, mixing=0.1, forgetting=0.01, time_aware=False):
        self.mixing = mixing
        self.forgetting = forgetting
        self.time_aware = time_aware

    def prepare(self, space, n_problems, n_groups, strata):
        """Allocate what is learned, for all problems."""
        if self.mixing > 0:
            space.safe(self.time_aware)
        self._n_cost_classes = 1 + int(self._cost_classes(space).max())
        self._n_groups = n_groups * self._n_cost_classes
        n_strata = self._n_groups * _level_sampler.N_LEVELS_PER_GROUP
        self.probabilities_ = np.zeros((n_problems, n_strata))

    def _cost_classes(self, space, rows=slice(None)):
        """Return the class of the cost of each of some rows, or zero for all.

        Rows of a stratum are drawn alike, and often those that happened to show a small
        gradient set its probability: it must not be that of dear rows, too.
        """
        if not self.time_aware or space.costs is None:
            return np.zeros(1, dtype=np.int32)
        octaves = np.log2(space.costs[rows] / space.costs.min()) / 2
        return np.minimum(octaves, MOST_COST_CLASSES - 1).astype(np.int32)

    def open(self, space, view, problem, generator):
        """Return the compiled sampler of one problem."""

        def look(rows):
            groups, norms2 = view.part(rows)
            if self._n_cost_classes > 1:
                groups = groups * np.int32(self._n_cost_classes)
                groups += self._cost_classes(space, rows)
            if self.time_aware and space.costs is not None:
                norms2 = norms2 / space.costs[rows]
            return groups, norms2

        return _level_sampler.LevelDraws(
            generator,
            space,
            look,
            self._n_groups,
            self.mixing,
            self.forgetting,
            self.time_aware,
        )

    def describe(self, strata, group_names):
        """Return what numbers of strata stand for, as :class:`StrataSampler` does."""
        groups, levels = np.divmod(strata, _level_sampler.N_LEVELS_PER_GROUP)
        return {
            "group": group_names(groups // self._n_cost_classes),
            "level": levels - _level_sampler.FIRST_LEVEL,
        }
