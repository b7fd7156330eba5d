"""The contract of samplers: what an estimator asks of one, and what it may rely on.

A *sampler* is what a user gives: parameters, and after a fit what was learned. An
*opened* sampler draws for one problem, on the state that the sampler keeps. It is
compiled (a :class:`sklearn_awsgd._kernels._loop.Sampler`) or an
:class:`OpenedSampler` written in Python, which is slower and as right. Neither knows a
model: what it may know is its space and the view of one problem.
"""

from abc import ABC, abstractmethod

import numpy as np
from sklearn.base import BaseEstimator, clone

from sklearn_awsgd._base import EstimatorMixin
from sklearn_awsgd._validation import check_option, check_parameters

# What samplers draw from the spaces of :mod:`sklearn_awsgd._spaces`, in words.
DRAWN = {
    "rows": "rows",
    "entries": "entries of a matrix",
    "distribution": "locations of a distribution",
    "episodes": "episodes",
}


class BaseSampler(EstimatorMixin, BaseEstimator, ABC):
    """Base class of samplers.

    A subclass has its parameters in ``__init__``, as every scikit-learn estimator, and
    ``open``. The other methods have defaults. An estimator calls them in this order, on
    a copy: ``check``; ``prepare``, once; ``open`` and later ``keep``, for each problem,
    perhaps in several threads; ``describe``, when somebody looks.

    Attributes
    ----------
    probabilities_ : ndarray of shape (n_problems, n_strata)
        Learned probability of each stratum, for samplers that have strata.
    """

    _doc_page = "sampling"
    # The kinds of spaces it can draw from, keys of `DRAWN`: one, or a tuple of them.
    _space = "rows"
    # What parameters may be, by name: see `sklearn_awsgd._validation.check_parameters`.
    _parameters = {}
    # Whether it lives on values that change as a model is trained.
    _needs_training = False

    @classmethod
    def draws_from(cls, space):
        """Return whether it can draw from a kind of space.

        Parameters
        ----------
        space : str
            The kind: "rows", "entries", "distribution" or "episodes".
        """
        kinds = (cls._space,) if isinstance(cls._space, str) else cls._space
        return space in kinds

    def check(self):
        """Raise TypeError or ValueError unless the parameters are right."""
        check_parameters(self, self._parameters, prefix="sampler.")

    def prepare(self, space, n_problems, n_groups, strata):
        """Allocate what is learned, for all problems.

        By default there is one stratum. What an earlier call has learned may be kept.

        Parameters
        ----------
        space : RowSpace, EntrySpace or DistributionSpace
            What is drawn from.
        n_problems : int
            Number of problems, such as one for each class against the rest.
        n_groups : int
            Number of groups of rows that a problem tells apart.
        strata : array-like of shape (n_samples,) or None
            Strata of the rows, as given to ``fit``.
        """
        self.probabilities_ = np.ones((n_problems, 1))

    @abstractmethod
    def open(self, space, view, problem, generator):
        """Return what draws for one problem, on the state kept here.

        Parameters
        ----------
        space : RowSpace, EntrySpace or DistributionSpace
            What is drawn from, shared by all problems and not to be changed.
        view : ProblemView or None
            What may be known of the problem; None where there are no rows.
        problem : int
            Its number.
        generator : numpy.random.BitGenerator
            Random stream of the problem, the only one that may be used.

        Returns
        -------
        opened : compiled Sampler or OpenedSampler
            What draws.
        """

    def keep(self, problem, opened):
        """Keep what an opened sampler has learned, in attributes with a final ``_``.

        By default these are the probabilities of its strata.

        Parameters
        ----------
        problem : int
            Number of the problem.
        opened : compiled Sampler or OpenedSampler
            What `open` returned.
        """
        self.probabilities_[problem] = opened.stratum_probabilities()

    def known_rows(self):
        """Return what was learned of single rows of a matrix; by default nothing, None.

        A matrix whose rows are fetched is sampled block by block.
        """
        return None

    def recall_rows(self, known):
        """Begin with what was learned of the rows of a block, after ``prepare``.

        Parameters
        ----------
        known : object
            What `known_rows` returned when the block was sampled last.
        """

    def describe(self, strata, group_names):
        """Return what numbers of strata stand for.

        Parameters
        ----------
        strata : ndarray of int
            Their numbers.
        group_names : callable
            Takes numbers of groups of rows, returns their names.

        Returns
        -------
        columns : dict of ndarray
            The group, and the level where there are levels. By default there is one
            stratum, of all rows.
        """
        return {"group": np.full(len(strata), "all", dtype=object)}


class OpenedSampler(ABC):
    """An opened sampler written in Python.

    Draws that are asked for at once share one state. Their densities are those of that
    state, and have to be exact: then steps are unbiased, whatever has been learned.

    Attributes
    ----------
    patience : int
        Draws that share one state even if an estimator's ``batch_size`` is less. Each
        batch costs some calls of NumPy, so that more is faster.
    """

    patience = 1

    @abstractmethod
    def draw_points(self, n_points):
        """Draw points that share one state.

        Parameters
        ----------
        n_points : int
            Number of draws.

        Returns
        -------
        points : structured ndarray of shape (n_points,)
            From ``space.points(n_points)``, with where they are (``i`` of rows, ``i``
            and ``j`` of entries, ``x`` of locations), ``q``, the density dQ/dP, and
            ``origin``, the stratum, set.
        """

    def observe_points(self, points):
        """Learn from points that have been drawn, as one batch.

        Parameters
        ----------
        points : structured ndarray
            As drawn, with ``norm2``, the squared norm of the gradient divided by q,
            ``loss`` and ``cost`` filled in.
        """

    def stratum_probabilities(self):
        """Return the learned probabilities of the strata: by default there is one."""
        return np.ones(1)

    @abstractmethod
    def densities(self):
        """Return q as it is now: of every row, or of every entry of a matrix.

        A sampler of locations takes these, of shape (n, n_dimensions), and returns q
        there.
        """

    def row_probabilities(self):
        """Return the probability of each row of a matrix of entries."""
        q = self.densities()
        return q.sum(axis=1) / q.sum()

    def column_probabilities(self):
        """Return the probability of each column of a matrix of entries."""
        q = self.densities()
        return q.sum(axis=0) / q.sum()

    def refit(self):
        """Learn again from all draws so far, where the space is stationary.

        The mean of a function is: its values do not move. Called now and then.
        """


def resolve_sampler(sampler, named, space, *, stationary=False):
    """Return a checked copy of the sampler that a parameter stands for.

    Parameters
    ----------
    sampler : str or BaseSampler
        As given by a user.
    named : dict
        What names stand for: samplers by name, made for this call.
    space : str
        Kind of the space that is drawn from: "rows", "entries", "distribution" or
        "episodes".
    stationary : bool, default=False
        Whether that space is stationary: nothing is trained.

    Returns
    -------
    sampler : BaseSampler
        One of `named` or a copy, with parameters that have been checked.

    Raises
    ------
    ValueError
        When a name is not known, or a parameter of the sampler is out of range.
    TypeError
        When it is no sampler, a class and not an instance, or a sampler that cannot
        draw from this space.
    """
    is_named = isinstance(sampler, str)
    if is_named:
        check_option("sampler", sampler, tuple(named))
        sampler = named[sampler]
    elif isinstance(sampler, type) and issubclass(sampler, BaseSampler):
        name = sampler.__name__
        raise TypeError(f"sampler={name} is a class; give an instance: {name}().")
    elif not isinstance(sampler, BaseSampler):
        raise TypeError(
            f"sampler={sampler!r} is neither one of {tuple(named)} nor a sampler of "
            "sklearn_awsgd.samplers."
        )
    name = type(sampler).__name__
    if not sampler.draws_from(space):
        drawn = " or ".join(
            what for kind, what in DRAWN.items() if sampler.draws_from(kind)
        )
        raise TypeError(
            f"sampler={sampler!r} cannot be used here: {name} draws {drawn}, and here "
            f"{DRAWN[space]} are drawn; samplers of these are "
            f"{known_samplers(space, stationary)}."
        )
    if stationary and sampler._needs_training:
        raise TypeError(
            f"sampler={sampler!r} cannot be used here: {name} follows gradients that "
            f"change as a model is trained, and here nothing is trained; use one of "
            f"{known_samplers(space, stationary)}."
        )
    if stationary and getattr(sampler, "time_aware", False):
        raise ValueError(
            f"sampler={sampler!r} cannot be used here: evaluations have no cost that a "
            "time-aware sampler could learn; use time_aware=False."
        )
    if not is_named:
        sampler = clone(sampler)
    sampler.check()
    return sampler


def known_samplers(space, stationary=False):
    """Return the names of this package's samplers of a kind of space, as a text."""
    return ", ".join(
        sorted(
            kind.__name__
            for kind in BaseSampler.__subclasses__()
            if kind.__module__.startswith("sklearn_awsgd.")
            and kind.draws_from(space)
            and not (stationary and kind._needs_training)
        )
    )
