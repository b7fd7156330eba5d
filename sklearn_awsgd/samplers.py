"""Settings of the samplers, as given to the `sampler` parameter of the estimators.

A setting is a scikit-learn estimator without ``fit``: it can be cloned, printed and
searched over (``sampler__mixing`` in a grid search). Fitted estimators carry a copy in
``sampler_`` that holds what was learned; the parameter itself never changes.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, column_or_1d

from sklearn_awsgd._documentation import DocumentationLinkMixin
from sklearn_awsgd._factorization.row_column import RowColumnSampler
from sklearn_awsgd._importance.continuous import GaussianSampler
from sklearn_awsgd._kernels import _level_sampler
from sklearn_awsgd._kernels import _samplers as kernels
from sklearn_awsgd._validation import check_number, check_option

__all__ = [
    "GaussianSampler",
    "LevelSampler",
    "RowColumnSampler",
    "StrataSampler",
    "UniformSampler",
]


class RowTable:
    """The rows a sampler may draw from: their masses and their norms.

    It is shared, read-only, by the samplers of all one-vs-rest problems of a fit.

    Parameters
    ----------
    mass : ndarray of shape (n_samples,) or None
        P of each row, summing to one; None when all are equal.
    norms2 : ndarray of shape (n_samples,)
        Squared norms of the rows.
    shuffle : bool, default=True
        Whether passes over all rows take them in random order.

    Attributes
    ----------
    rows : ndarray of int32
        Rows with positive mass.
    strata : ndarray of int or None
        Given stratum of each row, as an index.
    """

    def __init__(self, mass, norms2, shuffle=True):
        self.n_samples = norms2.shape[0]
        self.shuffle = shuffle
        self.mass = mass
        self.rows = np.arange(self.n_samples, dtype=np.int32)
        if mass is not None:
            self.rows = self.rows[mass > 0]
        self.strata = None
        self._norms2 = norms2
        self._safe = None

    def safe(self):
        """Return the density and the alias table of the safe distribution.

        It is proportional to ``P_i sqrt(||x_i||^2 + 1)``, the bound of the gradient
        norm of a Lipschitz loss with an intercept: neither a large row nor a small one
        can then have a large weighted gradient.
        """
        if self._safe is None:
            bound = np.sqrt(self._norms2 + 1)
            if self.mass is None:
                density = bound / bound.mean()
                table = kernels.AliasTable(density)
            else:
                density = bound / (self.mass @ bound)
                table = kernels.AliasTable(density * self.mass)
            self._safe = density, table
        return self._safe


@dataclass
class ProblemView:
    """What a sampler may know of one problem.

    Attributes
    ----------
    groups : ndarray of shape (n_samples,) and dtype int32
        Group of each row: 1 for the positive class, 0 for the rest.
    norms2 : ndarray of shape (n_samples,)
        Squared gradient norm of each row at the start.
    """

    groups: np.ndarray
    norms2: np.ndarray


class StrataLayout:
    """Which rows are in which stratum: read-only input of the compiled sampler.

    Parameters
    ----------
    table : RowTable
        The rows.
    strata : ndarray of shape (n_samples,) and dtype int
        Stratum of each row.
    n_strata : int
        Number of strata; some may have no rows.
    with_safe : bool
        Whether the safe distribution is needed.
    """

    def __init__(self, table, strata, n_strata, with_safe):
        # Small integers are sorted by counting, in linear time.
        narrow = np.int16 if n_strata < 2**15 else np.int32
        rows = table.rows
        chosen = strata[rows] if len(rows) < table.n_samples else strata
        self.order = rows[np.argsort(chosen.astype(narrow), kind="stable")]
        n_rows = np.bincount(chosen, minlength=n_strata)
        self.start = np.concatenate([[0], np.cumsum(n_rows)]).astype(np.intp)
        self.strata = np.ascontiguousarray(strata, dtype=np.int32)
        self.within = None
        if table.mass is None:
            self.mass = n_rows / table.n_samples
        else:
            ordered = table.mass[self.order]
            self.mass = np.bincount(
                chosen, weights=table.mass[rows], minlength=n_strata
            )
            first = np.minimum(self.start[:-1], len(ordered) - 1)
            if (ordered != np.repeat(ordered[first], n_rows)).any():
                self.within = kernels.AliasTable(ordered, self.start)
            self.strata = np.where(table.mass > 0, self.strata, np.int32(-1))
        self.safe_density, self.safe = table.safe() if with_safe else (None, None)


class UniformSampler(DocumentationLinkMixin, BaseEstimator):
    """Shuffled passes: every row once in random order, then all again.

    This is how :class:`~sklearn.linear_model.SGDClassifier` samples. Nothing is
    learned. With ``shuffle=False`` the linear estimators take the rows in their order.

    Attributes
    ----------
    probabilities_ : ndarray of shape (n_problems, 1)
        All ones: there is one stratum.

    Examples
    --------
    >>> from sklearn_awsgd import AWSGDClassifier
    >>> from sklearn_awsgd.samplers import UniformSampler
    >>> clf = AWSGDClassifier(sampler=UniformSampler())
    """

    _doc_page = "sampling"

    def _check(self):
        """Check the parameters: there are none."""

    def _prepare(self, table, n_problems, n_groups, strata):
        """Allocate what is learned, for all problems: nothing."""
        self.probabilities_ = np.ones((n_problems, 1))

    def _kernel(self, problem, generator, table, view):
        """Return the compiled sampler of one problem."""
        return kernels.ShuffledPasses(
            generator, table.rows.copy(), table.mass, table.shuffle
        )

    def _store(self, problem, kernel):
        """Keep what the compiled sampler of one problem has learned: nothing."""

    def _describe(self, strata, group_names):
        """Return what numbers of strata stand for: all rows."""
        return {"group": np.full(len(strata), "all", dtype=object)}


class StrataSampler(DocumentationLinkMixin, BaseEstimator):
    """Draw strata with learned probabilities, rows inside a stratum as they come.

    The probabilities minimise the second moment of the weighted gradient, so its
    variance; the weights 1/q keep every step unbiased whatever they are.

    Parameters
    ----------
    by : {"label", "given"}, default="label"
        What the strata are: the classes (positive and rest for each one-vs-rest
        problem), or the `strata` given to ``fit`` and ``partial_fit``.
    update : {"moments", "sgd", "adagrad"}, default="moments"
        How the probabilities are learned.

        - "moments": in closed form, ``pi_s ~ N_s sqrt(M_s)``, with N_s the mass of the
          stratum and M_s a running mean of its squared gradient norms. No step size.
        - "sgd": the paper's gradient step on tau, the logits of the probabilities.
        - "adagrad": the same with AdaGrad step sizes, as in the paper's section 5.
    mixing : float in [0, 1), default=0.1
        Share of draws from a safe distribution, proportional to
        ``sqrt(||x||^2 + 1)``. It bounds the weights; 0 is the paper's algorithm.
    forgetting : float in (0, 1], default=0.001
        Weight of the newest observation in the running means. Raise it to follow a
        stream that changes faster.
    eta0 : float >= 0, default=0.05
        Step size of "sgd" and "adagrad".
    normalize : bool, default=True
        Whether "sgd" and "adagrad" divide the squared gradient norm by its running
        mean, so that `eta0` has no units. False is the paper's algorithm.
    start : {"proportional", "balanced"}, default="proportional"
        Probabilities before anything is learned with "sgd" and "adagrad": those of the
        data, or equal ones (tau = 0, as in the paper). "moments" starts from the data.

    Attributes
    ----------
    probabilities_ : ndarray of shape (n_problems, n_strata)
        Learned probabilities of the strata, without the safe part.
    tau_ : ndarray of shape (n_problems, n_strata)
        Logits of "sgd" and "adagrad", relative to the first stratum.
    second_moments_ : ndarray of shape (n_problems, n_strata)
        Running means of the squared gradient norms, of "moments".

    Notes
    -----
    "moments", the mixture and the normalisation are additions of this package to the
    paper [1]_; ``StrataSampler(update="adagrad", eta0=0.1, normalize=False, mixing=0,
    start="balanced")`` is the paper's own sampler.

    :class:`~sklearn_awsgd.MinVarianceImportanceEstimator` samples strata without
    replacement when `update` is "moments" and its ``control_variate`` is True. It then
    uses `by` and `mixing` alone, `mixing` being the share of the rows that strata get
    in proportion to their size.

    References
    ----------
    .. [1] G. Bouchard, T. Trouillon, J. Perez, A. Gaidon, "Online Learning to Sample".

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn_awsgd import AWSGDClassifier
    >>> from sklearn_awsgd.samplers import StrataSampler
    >>> X, y = make_classification(weights=[0.95], random_state=0)
    >>> clf = AWSGDClassifier(sampler=StrataSampler(mixing=0.2), random_state=0)
    >>> bool(clf.fit(X, y).sampler_.probabilities_[0, 1] > y.mean())
    True
    """

    _doc_page = "sampling"
    # Learned arrays of shape (n_problems, n_strata), and their value before any draw.
    _learned = {
        "probabilities_": np.nan,
        "tau_": np.nan,
        "second_moments_": 0.0,
        "_counts": 0.0,
        "_adagrad": 0.0,
    }

    def __init__(
        self,
        by="label",
        *,
        update="moments",
        mixing=0.1,
        forgetting=0.001,
        eta0=0.05,
        normalize=True,
        start="proportional",
    ):
        self.by = by
        self.update = update
        self.mixing = mixing
        self.forgetting = forgetting
        self.eta0 = eta0
        self.normalize = normalize
        self.start = start

    def _check(self):
        check_option("sampler.by", self.by, ("label", "given"))
        check_option("sampler.update", self.update, tuple(kernels.UPDATES))
        check_option("sampler.start", self.start, ("proportional", "balanced"))
        check_number("sampler.mixing", self.mixing, low=0, below=1)
        check_number("sampler.forgetting", self.forgetting, above=0, high=1)
        check_number("sampler.eta0", self.eta0, low=0)

    def _prepare(self, table, n_problems, n_groups, strata):
        """Allocate what is learned, for all problems.

        New strata of a later call are added behind the known ones.
        """
        if self.mixing > 0:
            table.safe()  # Built here once, not by each thread.
        n_strata = n_groups
        if self.by == "given":
            table.strata = self._encode(strata, table.n_samples)
            n_strata = len(self.strata_)
        n_known = self.tau_.shape[1] if hasattr(self, "tau_") else 0
        for name, empty in self._learned.items():
            array = np.full((n_problems, n_strata), empty)
            if n_known:
                array[:, :n_known] = getattr(self, name)
            setattr(self, name, array)
        if not n_known:
            self._scale = np.zeros((n_problems, 2))

    def _encode(self, strata, n_samples):
        """Return given strata as indices into `strata_`."""
        if strata is None:
            raise ValueError(
                "The sampler draws given strata, but strata=None: pass strata to fit "
                "and partial_fit, or use sampler='label'."
            )
        strata = column_or_1d(
            check_array(strata, ensure_2d=False, dtype=None, input_name="strata")
        )
        if strata.shape[0] != n_samples:
            raise ValueError(
                f"strata has {strata.shape[0]} values, X has {n_samples} rows; give "
                "one stratum for each row."
            )
        values = np.unique(strata)
        known = getattr(self, "strata_", values[:0])
        self.strata_ = np.concatenate([known, np.setdiff1d(values, known)])
        order = np.argsort(self.strata_, kind="stable")
        return order[np.searchsorted(self.strata_[order], strata)]

    def _kernel(self, problem, generator, table, view):
        """Return the compiled sampler of one problem, on the state kept here."""
        strata = view.groups if self.by == "label" else table.strata
        n_strata = self.tau_.shape[1]
        layout = StrataLayout(table, strata, n_strata, with_safe=self.mixing > 0)
        tau = self.tau_[problem]
        unknown = np.isnan(tau)
        if self.start == "proportional":
            # Half a row for a stratum that has not come yet.
            share = np.log(np.maximum(layout.mass, 0.5 / table.n_samples))
            tau[unknown] = (share - share[0])[unknown]
        else:
            tau[unknown] = 0
        state = {
            "tau": tau,
            "squares": self.second_moments_[problem],
            "counts": self._counts[problem],
            "adagrad": self._adagrad[problem],
            "scale": self._scale[problem],
        }
        return kernels.StrataDraws(generator, layout, state, self)

    def _store(self, problem, kernel):
        """Keep what the compiled sampler of one problem has learned."""
        self.probabilities_[problem] = kernel.stratum_probabilities()

    def _describe(self, strata, group_names):
        """Return what numbers of strata stand for.

        Parameters
        ----------
        strata : ndarray of int
            Their numbers.
        group_names : callable
            Returns the names of the problem's groups of rows.

        Returns
        -------
        columns : dict of ndarray
            The group, and the level where there are levels.
        """
        if self.by == "given":
            return {"group": self.strata_[strata.astype(np.intp)].astype(object)}
        return {"group": group_names(strata)}


class LevelSampler(DocumentationLinkMixin, BaseEstimator):
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

    _doc_page = "sampling"

    def __init__(self, *, mixing=0.1, forgetting=0.01):
        self.mixing = mixing
        self.forgetting = forgetting

    def _check(self):
        check_number("sampler.mixing", self.mixing, low=0, below=1)
        check_number("sampler.forgetting", self.forgetting, above=0, high=1)

    def _prepare(self, table, n_problems, n_groups, strata):
        """Allocate what is learned, for all problems."""
        if self.mixing > 0:
            table.safe()  # Built here once, not by each thread.
        self._n_groups = n_groups
        n_strata = n_groups * _level_sampler.N_LEVELS_PER_GROUP
        self.probabilities_ = np.zeros((n_problems, n_strata))

    def _kernel(self, problem, generator, table, view):
        """Return the compiled sampler of one problem."""
        return _level_sampler.LevelDraws(
            generator,
            table,
            view.groups,
            self._n_groups,
            view.norms2,
            self.mixing,
            self.forgetting,
        )

    def _store(self, problem, kernel):
        """Keep what the compiled sampler of one problem has learned."""
        self.probabilities_[problem] = kernel.stratum_probabilities()

    def _describe(self, strata, group_names):
        """Return what numbers of strata stand for, as :class:`StrataSampler` does."""
        groups, levels = np.divmod(strata, _level_sampler.N_LEVELS_PER_GROUP)
        return {
            "group": group_names(groups),
            "level": levels - _level_sampler.FIRST_LEVEL,
        }
