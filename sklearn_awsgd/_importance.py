"""MinVarianceImportanceEstimator: an integral, with an error bar, from few draws."""

import copy
import warnings
from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_awsgd._continuous import GaussianFamily, GaussianSampler
from sklearn_awsgd._control import Control
from sklearn_awsgd._families import (
    NormFamily,
    RowColumnFamily,
    StrataFamily,
    score_bins,
)
from sklearn_awsgd._integrands import (
    Integrand,
    is_distribution,
    n_rows,
    row_indexable,
    surrogate_score,
)
from sklearn_awsgd._integration import LEAST_SAMPLE_SIZE
from sklearn_awsgd._integrator import HISTORY_COLUMNS, Integrator
from sklearn_awsgd._report import Summary
from sklearn_awsgd._spaces import DistributionSpace, FiniteSpace
from sklearn_awsgd._validation import (
    check_number,
    check_option,
    check_rows,
    check_weights,
    unchanged_on_failure,
)
from sklearn_awsgd.samplers import StrataSampler

SAMPLERS = ("auto", "uniform", "label", "strata", "norm", "row_column", "gaussian")
# A target with more values than this is a number, not a label.
MAX_LABELS = 100


class MinVarianceImportanceEstimator(BaseEstimator):
    """Mean of a function over rows, from a few of them, with a confidence interval.

    Rows are drawn with probabilities that are learned as values come in, so that the
    estimate varies as little as possible (Algorithm 1 of the paper [1]_). Weights 1/q
    keep it unbiased. It is made for functions that are expensive to evaluate: the loss
    of a large model over a labelled pool, the difference of two models, the loss of a
    factorisation over the entries of a matrix, an integral under a distribution.

    Parameters
    ----------
    estimator : fitted estimator, tuple of two, or None, default=None
        The model that `loss` is about. A tuple (a, b) asks for the loss of a less that
        of b, on the same rows. Wrap it in :class:`sklearn.frozen.FrozenEstimator` when
        this estimator is going to be cloned. None when `loss` needs no model.
    loss : str, callable or None, default=None
        What to average. A name: "log_loss", "zero_one", "brier", "squared_error",
        "absolute_error", or one of the rates "precision", "recall", "f1". A callable
        ``loss(X_rows, y_rows)`` that returns one number, of any sign, for each row; it
        gets the estimator as first argument when there is one, and no `y_rows` when
        ``fit`` got no y. None averages y.
    sampler : {"auto", "uniform", "label", "strata", "norm", "row_column", "gaussian"} \
or sampler object, default="auto"
        What is learned about sampling.

        - "label": the probability of each class, or of bins of a continuous y.
        - "strata": the probability of each of the `strata` given to ``fit``.
        - "uniform": nothing.
        - "norm": nothing; rows come in proportion to ``sqrt(||x||^2 + 1)``.
        - "row_column": X is a matrix; probabilities of its rows and of its columns. The
          loss gets an array of entries (i, j) and their values.
        - "gaussian": X is a frozen distribution of :mod:`scipy.stats`; a Gaussian that
          draws locations. The loss gets the locations.
        - "auto": "gaussian" for a distribution, "strata" when strata are given, "label"
          when there is y, else "uniform".
        - :class:`~sklearn_awsgd.samplers.StrataSampler` or
          :class:`~sklearn_awsgd.samplers.GaussianSampler` set the details, among them
          the paper's gradient step instead of closed forms.
    surrogate : fitted estimator, array-like of shape (n_samples,), "learned" or None, \
default=None
        A cheap guess of the function at *every* row. Labels or strata are then divided
        into bins of it, and it becomes a control variate. A fitted cheap model is
        scored by its own `loss`; an array is taken as it is; "learned" fits a gradient
        boosted regressor of the absolute values to the rows evaluated so far, at every
        doubling of their number (X must be dense and numeric).
    control_variate : bool, default=True
        Whether what is known of rows is used to lower the variance. False is the
        paper's algorithm.
    max_evaluations : int >= 3, default=10000
        Largest number of evaluations, in ``fit`` and in each ``partial_fit``.
    rtol : float > 0 or None, default=0.02
        Stop when half the width of the interval is this fraction of the estimate. None
        spends `max_evaluations`.
    confidence : float in (0, 1), default=0.95
        Probability of the interval to cover.
    batch_size : int >= 3 or "auto", default="auto"
        Draws in a round: they share one state of the sampler and are evaluated in one
        call. "auto" starts with 100 and lets rounds grow by a quarter of all draws.
    verbose : int, default=0
        Whether to print a line now and then.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.

    Attributes
    ----------
    estimate_ : float
        The estimate.
    std_error_ : float
        Its standard error; 0 when every row has been evaluated.
    confidence_interval_ : tuple of two floats
        Interval that covers the truth with probability `confidence`. When the effective
        sample size is below 25, all that is known: the range of the loss.
    status_ : {"exact", "tolerance", "budget"}
        Why sampling ended.
    n_evaluations_ : int
        Number of distinct rows evaluated; each is evaluated once. (One of them is
        evaluated again, to check that the loss is a function.)
    n_draws_ : int
        Number of draws, with replacement.
    effective_sample_size_ : float
        How many draws of equal size would have varied as much.
    max_weight_share_ : float
        Share of the largest draw among the deviations of all draws.
    variance_gain_ : float
        Estimated variance of a plain average of as many rows, over ours.
    sampling_probabilities_ : ndarray, or tuple of two for "row_column"
        Learned probabilities of the strata, rows and columns, or components.
    history_ : dict of ndarray
        How estimate, error and gain went, ready for a data frame.
    n_features_in_ : int
        Number of features, where X has any.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X has any.

    See Also
    --------
    sklearn.model_selection.cross_val_score : Evaluates every row.

    Notes
    -----
    Round k gives ``A_k + mean((f - a_k) / q_k)``: q_k is the density learned before the
    round, a_k a guess of f made before the round (its value for rows evaluated before)
    and A_k the exact mean of the guess. Each round is unbiased; they are averaged with
    weights ``B_k sqrt(T_k)``, B_k draws in the round and T_k so far [2]_. The interval
    allows for skewness [3]_ and for large values that may not have been seen yet.

    References
    ----------
    .. [1] G. Bouchard, T. Trouillon, J. Perez, A. Gaidon, "Online Learning to Sample".
    .. [2] A. Owen, Y. Zhou, "The square root rule for adaptive importance sampling".
    .. [3] P. Hall, "On the removal of skewness by transformation", 1992.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn_awsgd import MinVarianceImportanceEstimator
    >>> X, y = make_classification(50_000, weights=[0.98], random_state=0)
    >>> model = LogisticRegression().fit(X[:1000], y[:1000])
    >>> loss = MinVarianceImportanceEstimator(
    ...     model, "log_loss", rtol=0.1, random_state=0
    ... ).fit(X, y)
    >>> loss.n_evaluations_ < 10_000
    True
    >>> low, high = loss.confidence_interval_
    >>> low < loss.estimate_ < high
    True
    """

    def __init__(
        self,
        estimator=None,
        loss=None,
        *,
        sampler="auto",
        surrogate=None,
        control_variate=True,
        max_evaluations=10_000,
        rtol=0.02,
        confidence=0.95,
        batch_size="auto",
        verbose=0,
        random_state=None,
    ):
        self.estimator = estimator
        self.loss = loss
        self.sampler = sampler
        self.surrogate = surrogate
        self.control_variate = control_variate
        self.max_evaluations = max_evaluations
        self.rtol = rtol
        self.confidence = confidence
        self.batch_size = batch_size
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        # The model may take missing values; its rows are passed on as they are.
        tags.input_tags.allow_nan = True
        tags.target_tags.required = not callable(self.loss)
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "estimate_")

    def fit(self, X, y=None, sample_weight=None, strata=None):
        """Estimate the mean over rows.

        Parameters
        ----------
        X : array-like, sparse matrix, data frame, sequence, or frozen distribution
            Anything with rows. The model sees the rows that are drawn, never the rest.
        y : array-like of shape (n_samples,), default=None
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows in the mean.
        strata : array-like of shape (n_samples,), default=None
            Strata of the rows, for sampling.

        Returns
        -------
        self : object
            Fitted estimator.

        Notes
        -----
        When the loss fails, the error is passed on, what has been evaluated is kept,
        and ``partial_fit()`` goes on from there.
        """
        with unchanged_on_failure(self):
            self._check_params()
            seed = check_random_state(self.random_state).randint(2**31 - 1)
            generator = np.random.PCG64(seed)
            space, weight = self._make_space(
                X, y, sample_weight, strata, generator, reset=True
            )
        integrator = Integrator(space, space.integrand.target)
        return self._advance(integrator, generator, weight)

    def partial_fit(self, X=None, y=None, sample_weight=None, strata=None):
        """Go on drawing, from the same rows or with more rows of a stream.

        Parameters
        ----------
        X, y, sample_weight, strata : as in fit
            More rows: the estimate is then of all rows so far. Without X, up to
            `max_evaluations` more of the last rows given are evaluated.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        started = hasattr(self, "_integrator")
        if X is None:
            if not started:
                raise ValueError(
                    "partial_fit() without X goes on with the rows of fit, but there "
                    "was none yet; call fit(X, y) first."
                )
            self._check_params()
            return self._advance(self._integrator, self._generator, self._weight)
        if not started:
            return self.fit(X, y, sample_weight, strata)
        with unchanged_on_failure(self):
            self._check_params()
            generator = copy.deepcopy(self._generator)
            space, weight = self._make_space(
                X, y, sample_weight, strata, generator, reset=False
            )
        total = self._weight + weight
        past = (self._integrator.estimate(), self._weight / total)
        integrator = Integrator(space, space.integrand.target, past)
        return self._advance(integrator, generator, total)

    def sample(self, n_samples=1):
        """Draw rows from the learned distribution.

        Parameters
        ----------
        n_samples : int, default=1
            Number of draws, with replacement.

        Returns
        -------
        rows : ndarray of shape (n_samples,) or (n_samples, 2)
            Positions of rows, entries (i, j) of a matrix, or locations.
        weights : ndarray of shape (n_samples,)
            1/q: the mean of weights times values is unbiased for the mean over all.
        """
        check_is_fitted(self)
        check_number("n_samples", n_samples, low=1, integer=True)
        points = self._integrator.space.family.draw_points(n_samples)
        if "x" in points.dtype.names:
            rows = self._integrator.space.family.arguments(points)
        elif self.sampler == "row_column":
            rows = np.column_stack([points["i"], points["j"]])
        else:
            rows = points["i"].copy()
        return rows, 1 / points["q"]

    @property
    def history_(self):
        """Estimate, error and gain over time, a dict of arrays."""
        check_is_fitted(self)
        columns = zip(*self._integrator.history, strict=True)
        return dict(zip(HISTORY_COLUMNS, map(np.asarray, columns), strict=True))

    def summary(self):
        """Return a summary that prints as text and shows as a table in notebooks."""
        check_is_fitted(self)
        return Summary(self)

    def _check_params(self):
        if isinstance(self.sampler, str):
            check_option("sampler", self.sampler, SAMPLERS)
        elif isinstance(self.sampler, (StrataSampler, GaussianSampler)):
            self.sampler._check()
        else:
            raise TypeError(
                f"sampler={self.sampler!r} is neither one of {SAMPLERS} nor a "
                "StrataSampler or GaussianSampler of sklearn_awsgd.samplers."
            )
        if isinstance(self.surrogate, str):
            check_option("surrogate", self.surrogate, ("learned",))
        check_number("max_evaluations", self.max_evaluations, low=3, integer=True)
        check_number("confidence", self.confidence, above=0, below=1)
        if self.rtol is not None:
            check_number("rtol", self.rtol, above=0)
        if self.batch_size != "auto":
            check_number("batch_size", self.batch_size, low=3, integer=True)

    def _make_space(self, X, y, sample_weight, strata, generator, *, reset):
        """Return what is integrated over, and its total weight."""
        if is_distribution(X):
            return self._make_distribution(X, y, sample_weight, strata, generator), 1.0
        if self.sampler == "gaussian" or isinstance(self.sampler, GaussianSampler):
            raise TypeError(
                "A Gaussian sampler needs X to be a frozen continuous distribution of "
                f"scipy.stats, got {type(X).__name__}; for rows use sampler='auto'."
            )
        X = self._check_X(X, reset=reset)
        if self.sampler == "row_column":
            return self._make_entries(X, y, sample_weight, strata, generator)
        n = n_rows(X)
        check_consistent_length(X, y, strata)
        weights = check_weights(sample_weight, n)
        y = y if y is None or hasattr(y, "iloc") else np.asarray(y)
        integrand = Integrand(self.estimator, self.loss, X, y)
        equal = np.full(n, 1 / n)
        mass = equal if weights is None else weights / weights.sum()
        uneven = None if weights is None else mass
        labels, n_labels = self._labels(y, strata, n)
        control = Control(
            mass,
            integrand.target.n_values,
            guess_known=self.control_variate,
            guess_unknown=self.control_variate and self.sampler != "norm",
        )
        if self.sampler == "norm":
            family = NormFamily(generator, uneven, check_rows(X)[1])
            return FiniteSpace(integrand, mass, family, control), self._total(
                sample_weight, n
            )
        setting = StrataSampler()
        if isinstance(self.sampler, StrataSampler):
            setting = clone(self.sampler)
        family = StrataFamily(generator, uneven, n, setting)
        space = FiniteSpace(integrand, mass, family, control)
        score = None
        given, n_strata = labels.astype(np.int32), n_labels
        if isinstance(self.surrogate, str):
            features = self._features(X, labels)
            seed = int(generator.random_raw() % 2**31)
            space.learn_surrogate(features, labels, n_labels, seed)
        elif self.surrogate is not None:
            score = surrogate_score(self.surrogate, integrand, X, y, n)
            given, n_strata = score_bins(score, mass, labels, n_labels)
        family.set_strata(given, n_strata)
        control.set_strata(given, n_strata, score)
        if n_strata > 1:
            family.refit(control.expected_squares(), np.zeros(n_strata))
        return space, self._total(sample_weight, n)

    def _make_distribution(self, X, y, sample_weight, strata, generator):
        setting = self.sampler
        if isinstance(setting, str):
            check_option("sampler", setting, ("auto", "gaussian"))
            setting = GaussianSampler()
        elif isinstance(setting, StrataSampler):
            raise TypeError("X is a distribution: use sampler='gaussian'.")
        if not callable(self.loss):
            raise ValueError(
                f"X is a distribution, but loss={self.loss!r}; give a callable "
                "loss(x) that takes an array of locations."
            )
        for name, value in (
            ("y", y),
            ("sample_weight", sample_weight),
            ("strata", strata),
        ):
            if value is not None:
                raise ValueError(f"X is a distribution and has no rows: give {name}=None.")
        integrand = Integrand(self.estimator, self.loss, X, None)
        return DistributionSpace(integrand, GaussianFamily(generator, X, clone(setting)))

    def _make_entries(self, X, y, sample_weight, strata, generator):
        if not (callable(self.loss) or self.estimator is not None):
            raise ValueError(
                "sampler='row_column' needs loss(entries, values), or an estimator "
                "whose predict takes an array of entries (i, j)."
            )
        if y is not None or sample_weight is not None or strata is not None:
            raise ValueError(
                "With sampler='row_column' X is the matrix and its entries are the "
                "targets: give y=None, sample_weight=None and strata=None."
            )
        n_entries = X.shape[0] * X.shape[1]
        integrand = Integrand(self.estimator, self.loss, X, X)
        mass = np.full(n_entries, 1 / n_entries)
        control = Control(
            mass,
            integrand.target.n_values,
            guess_known=self.control_variate,
            guess_unknown=False,
        )
        family = RowColumnFamily(generator, X.shape)
        space = FiniteSpace(integrand, mass, family, control, n_columns=X.shape[1])
        return space, float(n_entries)

    def _check_X(self, X, *, reset):
        """Check what can be checked without looking at every row."""
        if hasattr(X, "iloc") or hasattr(X, "__dataframe__"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if n_rows(X) == 0:
                raise ValueError("X has 0 sample(s), at least one is required.")
            return X
        if isinstance(X, (list, tuple)) and len(X) and not _is_numeric(X[0]):
            return X
        return row_indexable(
            validate_data(
                self,
                X,
                reset=reset,
                accept_sparse=True,
                dtype=None,
                ensure_all_finite=False,
            )
        )

    def _labels(self, y, strata, n):
        """Return the index of each row's label or stratum, and their number."""
        kind = self.sampler
        if isinstance(kind, StrataSampler):
            kind = "strata" if kind.by == "given" else "label"
        if kind == "auto":
            kind = "strata" if strata is not None else "label"
            kind = "uniform" if kind == "label" and y is None else kind
        one = np.zeros(n, dtype=np.intp), 1
        if kind in ("uniform", "norm"):
            return one
        if kind == "strata":
            if strata is None:
                raise ValueError(
                    "The sampler draws given strata, but strata=None: pass strata to "
                    "fit and partial_fit, or use sampler='label'."
                )
            values, index = np.unique(column_or_1d(strata), return_inverse=True)
            return index, len(values)
        if y is None:
            raise ValueError("sampler='label' needs y, but y=None: pass y to fit.")
        # The mean of y itself: sampling by y would presuppose the answer.
        if self.loss is None:
            return one
        y = np.asarray(y)
        if y.ndim != 1:
            return one
        values, index = np.unique(y, return_inverse=True)
        if len(values) <= MAX_LABELS and type_of_target(y) != "continuous":
            return index, len(values)
        score = y.astype(float)
        return score_bins(score - np.median(score), np.full(n, 1 / n), n_bins=16)

    def _features(self, X, labels):
        """Return the features a surrogate is learned from: X and the label."""
        if sparse.issparse(X):
            raise TypeError(
                "surrogate='learned' needs dense X, got a sparse matrix; give "
                "X.toarray(), or a cheap fitted model as surrogate."
            )
        try:
            X = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                "surrogate='learned' needs numeric X; give a cheap fitted model or an "
                "array of scores as surrogate."
            ) from error
        return np.column_stack([X, labels])

    @staticmethod
    def _total(sample_weight, n):
        """Return the weight of all rows together."""
        if sample_weight is None:
            return float(n)
        weight = np.asarray(sample_weight, dtype=float)
        return float(np.broadcast_to(weight, n).sum())

    def _advance(self, integrator, generator, weight):
        """Draw, and assign what is known at the end, even when the loss fails."""
        status = "budget"
        try:
            status = integrator.run(
                self.max_evaluations,
                self.batch_size,
                self.rtol,
                self.confidence,
                self._print if self.verbose else lambda integrator: None,
            )
        except BaseException as error:
            if not integrator.n_draws:
                raise
            error.add_note(
                f"The {integrator.space.n_evaluations} evaluations before are kept: "
                "partial_fit() goes on from there."
            )
            raise
        finally:
            if integrator.n_draws or integrator.is_exact:
                self._integrator = integrator
                self._generator = generator
                self._weight = weight
                self._assign(integrator, status)
        ess = self.effective_sample_size_
        if status != "exact" and ess < LEAST_SAMPLE_SIZE:
            warnings.warn(
                f"The effective sample size is {ess:.3g}, too small for an interval to "
                "be trusted; raise max_evaluations, call partial_fit(), or give a "
                "surrogate.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _assign(self, integrator, status):
        target = integrator.target
        estimate = integrator.estimate()
        self.estimate_ = target.value(estimate.mean)
        self.std_error_ = estimate.standard_error(target)
        self.confidence_interval_ = estimate.interval(target, self.confidence)
        self.status_ = status
        self.n_evaluations_ = integrator.space.n_evaluations
        self.n_draws_ = integrator.n_draws
        self.effective_sample_size_ = (
            float(self.n_evaluations_)
            if estimate.exact
            else estimate.effective_sample_size(target)
        )
        self.max_weight_share_ = estimate.max_weight_share()
        self.variance_gain_ = float(integrator.variance_gain(estimate))
        self.sampling_probabilities_ = integrator.space.family.probabilities()

    def _print(self, integrator):
        row = dict(zip(HISTORY_COLUMNS, integrator.history[-1], strict=True))
        print(
            f"{row['evaluations']} evaluations, {row['seconds']:.1f} s: "
            f"{row['estimate']:.6g} +- {row['std_error']:.2g}, effective sample size "
            f"{row['effective_sample_size']:.0f}"
        )


def _is_numeric(row):
    """Return whether an element of a list is a number or a row of numbers."""
    return isinstance(row, (Integral, float, complex)) or (
        isinstance(row, (list, tuple, np.ndarray)) and not isinstance(row, str)
    )
