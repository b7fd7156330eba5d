"""StrataSampler: strata with learned probabilities."""

import numpy as np
from sklearn.utils import check_array, column_or_1d

from sklearn_awsgd._kernels import _samplers
from sklearn_awsgd._spaces import StrataLayout
from sklearn_awsgd._validation import Boolean, Options, Real, check_strata
from sklearn_awsgd.samplers.base import BaseSampler, OpenedSampler

# Draws that a gradient step of tau is made of, at most, where draws come in rounds.
LONGEST_STEP = 20


class StrataSampler(BaseSampler):
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
    time_aware : bool, default=False
        Whether to learn the variance for each second, from what draws cost
        (`access_cost` of ``fit``, or measured). "moments" then draws
        ``pi_s ~ N_s sqrt(M_s / C_s)``, C_s the mean cost of the stratum. The gradient
        step is the paper's Algorithm 3, ``||d||^2`` divided by the cost, with
        ``normalize=False``; else it goes down E||d||^2 E[cost], which leads to the best
        probabilities also where costs differ inside a stratum. The safe distribution is
        divided by the root of the cost. See :ref:`time-aware`.

    Attributes
    ----------
    probabilities_ : ndarray of shape (n_problems, n_strata)
        Learned probabilities of the strata, without the safe part.
    tau_ : ndarray of shape (n_problems, n_strata)
        Logits of "sgd" and "adagrad", relative to the first stratum.
    second_moments_ : ndarray of shape (n_problems, n_strata)
        Running means of the squared gradient norms, of "moments".
    mean_costs_ : ndarray of shape (n_problems, n_strata)
        What a draw from each stratum costs, of "moments" with `time_aware`; 0 where
        that is not known.

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

    _parameters = {
        "by": Options("label", "given"),
        "update": Options(*_samplers.UPDATES),
        "start": Options("proportional", "balanced"),
        "mixing": Real(low=0, below=1),
        "forgetting": Real(above=0, high=1),
        "eta0": Real(low=0),
        "normalize": Boolean(),
        "time_aware": Boolean(),
    }
    # Learned arrays of shape (n_problems, n_strata), and their value before any draw.
    _learned = {
        "probabilities_": np.nan,
        "tau_": np.nan,
        "second_moments_": 0.0,
        "_counts": 0.0,
        "_adagrad": 0.0,
        "mean_costs_": 0.0,
        "_cost_counts": 0.0,
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
        time_aware=False,
    ):
        self.by = by
        self.update = update
        self.mixing = mixing
        self.forgetting = forgetting
        self.eta0 = eta0
        self.normalize = normalize
        self.start = start
        self.time_aware = time_aware

    def prepare(self, space, n_problems, n_groups, strata):
        """Allocate what is learned, for all problems.

        New strata of a later call are added behind the known ones.
        """
        if self.mixing > 0:
            space.safe(self.time_aware)
        n_strata = n_groups
        # In a pool the estimator has made the strata.
        if self.by == "given" and not space.stationary:
            space.strata = self._encode(strata, space.n_samples)
            n_strata = len(self.strata_)
        n_known = self.tau_.shape[1] if hasattr(self, "tau_") else 0
        for name, empty in self._learned.items():
            array = np.full((n_problems, n_strata), empty)
            if n_known:
                array[:, :n_known] = getattr(self, name)
            setattr(self, name, array)
        if not n_known:
            self._scale = np.zeros((n_problems, 4))

    def _encode(self, strata, n_samples):
        """Return given strata as indices into `strata_`."""
        if strata is None:
            raise ValueError(
                "The sampler draws given strata, but strata=None: pass strata to fit "
                "and partial_fit, or use sampler='label'."
            )
        check_strata(strata)
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

    def open(self, space, view, problem, generator):
        """Return the sampler of one problem, on the state kept here.

        It is compiled; where the space is stationary and draws come in rounds, within
        :class:`RoundsOfStrata`.
        """
        strata = view.groups if self.by == "label" else space.strata
        layout = self._layout(space, strata)
        tau = self.tau_[problem]
        unknown = np.isnan(tau)
        aware = self.time_aware and space.costs is not None
        if aware:
            costs, counts = self.mean_costs_[problem], self._cost_counts[problem]
            new = (counts == 0) & (layout.mass > 0)
            costs[new], counts[new] = layout.mean(space.costs)[new], 1.0
        if self.start == "proportional":
            # Half a row for a stratum that has not come yet.
            share = np.log(np.maximum(layout.mass, 0.5 / space.n_samples))
            if aware:
                share -= np.log(np.where(counts > 0, costs, 1.0)) / 2
            tau[unknown] = (share - share[0])[unknown]
        else:
            tau[unknown] = 0
        if space.stationary:
            return RoundsOfStrata(self, space, strata, problem, generator, layout)
        return self._compile(generator, layout, problem, self.eta0)

    def _layout(self, space, strata):
        n_strata = self.tau_.shape[1]
        safe = space.safe(self.time_aware) if self.mixing > 0 else None
        return StrataLayout(space, strata, n_strata, safe)

    def _compile(self, generator, layout, problem, eta0):
        """Return the compiled sampler, which changes the arrays kept here in place."""
        state = {
            "tau": self.tau_[problem],
            "squares": self.second_moments_[problem],
            "counts": self._counts[problem],
            "adagrad": self._adagrad[problem],
            "scale": self._scale[problem],
            "costs": self.mean_costs_[problem],
            "cost_counts": self._cost_counts[problem],
        }
        compiled = _samplers.StrataDraws(generator, layout, state, self)
        compiled.eta0 = eta0
        return compiled

    def describe(self, strata, group_names):
        """Return what numbers of strata stand for: groups, or the given strata."""
        if self.by == "given":
            return {"group": self.strata_[strata.astype(np.intp)].astype(object)}
        return {"group": group_names(strata)}


class RoundsOfStrata(OpenedSampler):
    """The compiled sampler of strata, for draws that come in rounds.

    Rounds outlive calls, so that it can be pickled: it is made again from the arrays
    that the sampler keeps.

    Parameters
    ----------
    sampler : StrataSampler
        Keeps what is learned.
    space : PoolSpace
        The rows.
    strata : ndarray of shape (n_samples,)
        Stratum of each row.
    problem : int
        Number of the problem.
    generator : numpy.random.BitGenerator
        Random stream.
    layout : StrataLayout
        The strata, for the compiled sampler.
    """

    def __init__(self, sampler, space, strata, problem, generator, layout):
        self._sampler, self._space, self._strata = sampler, space, strata
        self._problem, self._generator, self._layout = problem, generator, layout
        self._compile(sampler.eta0)

    def _compile(self, eta0):
        self._kernel = self._sampler._compile(
            self._generator, self._layout, self._problem, eta0
        )

    def __getstate__(self):
        compiled = ("_layout", "_kernel")
        return {name: v for name, v in vars(self).items() if name not in compiled}

    def __setstate__(self, state):
        vars(self).update(state)
        # Kernels write to these, and a memory map may be read-only.
        for name in (*self._sampler._learned, "_scale"):
            setattr(self._sampler, name, getattr(self._sampler, name).copy())
        self._layout = self._sampler._layout(self._space, self._strata)
        self._compile(self._sampler.eta0)

    def draw_points(self, n_points):
        """Draw points that share one state."""
        return self._kernel.draw_points(n_points)

    def observe_points(self, points):
        """Learn from points whose ``norm2`` has been filled in."""
        if self._sampler.update == "sgd":
            # The step is a sum over the round, and long rounds must not be leaps.
            self._compile(self._sampler.eta0 * min(1.0, LONGEST_STEP / len(points)))
        self._kernel.observe_points(points)

    def stratum_probabilities(self):
        """Return the probabilities of the strata, without the safe part."""
        return self._kernel.stratum_probabilities()

    def densities(self):
        """Return q of every row."""
        return self._kernel.densities()
