"""MinVarianceImportanceEstimator: an integral, with an error bar, from few draws."""

import copy

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._base import EstimatorMixin
from sklearn_awsgd._callbacks import fit_with_callbacks, with_callbacks
from sklearn_awsgd._importance.after import (
    estimate_loss,
    estimate_quantile,
    p_value,
)
from sklearn_awsgd._importance.fitting import (
    Unfinished,
    assign,
    go_on,
    keep,
    put_aside,
    run,
)
from sklearn_awsgd._importance.plan import choose_sampler, plan_run
from sklearn_awsgd._importance.report import Summary
from sklearn_awsgd._importance.told import Outstanding
from sklearn_awsgd._validation import (
    Boolean,
    Integer,
    Real,
    check_number,
    check_option,
    check_parameters,
    unchanged_on_failure,
)


class MinVarianceImportanceEstimator(EstimatorMixin, BaseEstimator):
    """Mean of a function over rows, from a few of them, with a confidence interval.

    What to evaluate is learned as values come in, so that the estimate varies as little
    as possible. Rows are sampled by strata, without replacement, more of those strata
    whose values vary. Entries of a matrix and locations under a distribution are drawn
    with learned probabilities and weights 1/q (Algorithm 1 of the paper [1]_). It is
    made for functions that are expensive to evaluate: the loss of a large model over a
    labelled pool, the difference of two models, the loss of a factorisation over the
    entries of a matrix, an integral under a distribution.

    Parameters
    ----------
    estimator : fitted estimator, tuple of two, or None, default=None
        The model that `loss` is about. A tuple (a, b) asks for the loss of a less that
        of b, on the same rows. Wrap it in :class:`sklearn.frozen.FrozenEstimator` when
        this estimator is going to be cloned. None when `loss` needs no model.
    loss : str, callable or None, default=None
        What to average. A name: "log_loss", "zero_one", "brier", "squared_error",
        "absolute_error"; one of "precision", "recall", "f1", "jaccard" and
        "matthews_corrcoef" of the second class of a binary classifier; or a scorer of
        scikit-learn that is made of means: "accuracy", "balanced_accuracy",
        "neg_log_loss", "neg_brier_score", "neg_mean_squared_error",
        "neg_mean_absolute_error", "neg_root_mean_squared_error". A callable
        ``loss(X_rows, y_rows)`` that returns one number, of any sign, for each row; it
        gets the estimator as first argument when there is one, and no `y_rows` when
        ``fit`` got no y. None averages y.
    sampler : {"auto", "uniform", "label", "strata", "norm", "row_column", "gaussian"} \
or sampler object, default="auto"
        What is learned about sampling.

        - "label": the share of each class, or of bins of a continuous y.
        - "strata": the share of each of the `strata` given to ``fit``.
        - "uniform": nothing.
        - "norm": nothing; rows come in proportion to ``sqrt(||x||^2 + 1)``.
        - "row_column": X is a matrix; probabilities of its rows and of its columns. The
          loss gets an array of entries (i, j) and their values.
        - "gaussian": X is a frozen distribution of :mod:`scipy.stats`; a Gaussian that
          draws locations. The loss gets the locations.
        - "auto": "gaussian" for a distribution, "strata" when strata are given, "label"
          when there is y, else "uniform".
        - :class:`~sklearn_awsgd.samplers.StrataSampler`,
          :class:`~sklearn_awsgd.samplers.RowColumnSampler` or
          :class:`~sklearn_awsgd.samplers.GaussianSampler` set the details, among them
          the paper's gradient step instead of closed forms. Of a StrataSampler with
          ``update="moments"`` and ``control_variate=True`` only `by` and `mixing` are
          used, the latter as the share of rows taken in proportion to the sizes of
          strata; the rest is for draws with replacement. So is any other sampler, also
          one of one's own.
    surrogate : fitted estimator, array-like of shape (n_samples,), "learned" or None, \
default=None
        A cheap guess of the function at *every* row. Labels or strata are then divided
        into bins of it, and it becomes a control variate. A fitted cheap model is
        scored by its own `loss`; an array is taken as it is; "learned" fits a gradient
        boosted regressor of the absolute values to the rows evaluated so far, the first
        time to 1,000 of them, and uses it if it halves the variance by the account of
        rows it was not fitted to (X must be dense and numeric).
    control_variate : bool, default=True
        Whether what is known of rows is used to lower the variance. False is the
        paper's algorithm, with replacement.
    max_evaluations : int >= 3, default=10000
        Largest number of evaluations, in ``fit`` and in each ``partial_fit``.
    rtol : float > 0 or None, default=0.02
        Stop when half the width of the interval is this fraction of the estimate. None
        spends `max_evaluations`.
    atol : float > 0 or None, default=None
        The same as an absolute number; with both, the wider one is enough.
    confidence : float in (0, 1), default=0.95
        Probability of the interval to cover.
    bounds : tuple of two floats or None, default=None
        Between which all values of `loss` are known to lie, for rows drawn without
        replacement. The interval then holds whatever has not been seen, and is wider;
        without, it rests on `assumed_range_`. The losses of zero or one and the rates
        need none.
    anytime : bool, default=False
        Whether intervals are to hold at all times together, so that one may look after
        every round and stop when one likes (a confidence sequence). They are about half
        as wide again.
    batch_size : int >= 3 or "auto", default="auto"
        Draws in a round, which share one state of the sampler, and most rows that the
        loss gets in one call. "auto" starts with 100 and lets rounds grow with the
        number of draws, up to 10,000, in calls of at most 1,000 rows. The first round
        of strata may be longer, to have three rows of each in each half.
    verbose : int, default=0
        Whether to print a line now and then: evaluations so far, the estimate, half the
        width of its interval and what `rtol` asks for.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.

    Attributes
    ----------
    estimate_ : float
        The estimate.
    std_error_ : float
        Its standard error; 0 when every row has been evaluated.
    confidence_interval_ : tuple of two floats
        Interval that covers the truth with probability `confidence`. When values did
        not vary at all, what else is known: the range of the loss.
    assumed_range_ : tuple of two floats or None
        The interval holds if no row that has not been evaluated has a value far outside
        of this range, which goes beyond the values seen (in a label no further than
        some times its own largest), and with a surrogate not many more rows than are
        known to be as large; `bounds` where they are known. None where all is
        known, and for functions of several means and weighted draws.
    status_ : {"exact", "tolerance", "budget", "stopped", "interrupted"}
        Why sampling ended; "stopped" by a callback, "interrupted" after an error of the
        loss.
    n_evaluations_ : int
        Number of distinct rows evaluated; each is evaluated once. (One of them is
        evaluated again, to check that the loss is a function.)
    n_draws_ : int
        Number of draws. Of strata each is a new row; other samplers draw with
        replacement.
    effective_sample_size_ : float
        How many draws of equal size would have varied as much.
    max_weight_share_ : float
        Share of the largest draw among the deviations of all draws.
    variance_gain_ : float
        Estimated variance of a plain average of as many rows, over ours.
    sampling_probabilities_ : ndarray, or tuple of two for "row_column"
        Learned probabilities of the strata, rows and columns, or components. Strata
        come in sorted order; if there are more than ``max_evaluations / 12``, the
        smallest are joined to a last one.
    sampler_ : sampler object
        Copy of the sampler, with what it has learned about the rows last given; one of
        strata for "uniform".
    history_ : dict of ndarray
        How the estimate, the ends `low` and `high` of its interval, error and gain
        went, ready for a data frame.
    n_features_in_ : int
        Number of features, where X has any.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has any.

    See Also
    --------
    sklearn.model_selection.cross_val_score : Evaluates every row.

    Notes
    -----
    Strata are sampled without replacement, each in numbers proportional to its size and
    the spread of its values (Neyman), and the estimate is the stratified mean. The pool
    is dealt into two halves, and each learns from the other, so that the size of a
    sample does not depend on its own values. Matrices, distributions, "norm" and the
    paper's update rules draw with replacement, with weights 1/q; rounds k are averaged
    with weights ``B_k sqrt(T_k)``, B_k draws in the round and T_k so far [2]_. The
    interval allows for skewness and for one more large value than has been seen [3]_.

    References
    ----------
    .. [1] G. Bouchard, T. Trouillon, J. Perez, A. Gaidon, "Online Learning to Sample".
    .. [2] A. Owen, Y. Zhou, "The square root rule for adaptive importance sampling".
    .. [3] M. P. Fay, E. J. Feuer, "Confidence intervals for directly standardized
       rates: a method based on the gamma distribution", 1997.

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

    _doc_page = "importance"
    _parameters = {
        "max_evaluations": Integer(low=3),
        "confidence": Real(above=0, below=1),
        "rtol": Real(above=0, optional=True),
        "atol": Real(above=0, optional=True),
        "batch_size": Integer(low=3, words=("auto",)),
        "control_variate": Boolean(),
        "anytime": Boolean(),
        "verbose": Integer(low=0, or_boolean=True),
    }
    _unfinished = None

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
        atol=None,
        confidence=0.95,
        bounds=None,
        anytime=False,
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
        self.atol = atol
        self.confidence = confidence
        self.bounds = bounds
        self.anytime = anytime
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

    @with_callbacks
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
            Strata of the rows, for sampling. Each needs some rows before anything is
            known of it: beyond ``max_evaluations / 12`` of them, or of the labels in y,
            the smallest are joined.

        Returns
        -------
        self : object
            Fitted estimator.

        Notes
        -----
        When the loss fails, the error is passed on, what has been evaluated is kept,
        and ``partial_fit()`` goes on from there.
        """
        with fit_with_callbacks(
            self, X, y, sample_weight, max_subtasks=None
        ) as fit_task:
            before = dict(vars(self))
            with unchanged_on_failure(self):
                self._check_params()
                seed = check_random_state(self.random_state).randint(2**31 - 1)
                generator = np.random.PCG64(seed)
                integrator = plan_run(self, X, y, sample_weight, strata, generator)
                status, failure = run(self, integrator, fit_task)
            if failure is not None and not integrator.rounds.n_draws:
                put_aside(self, before, integrator)
                raise failure
            return keep(self, integrator, status, failure)

    def partial_fit(self, X=None, y=None, sample_weight=None, strata=None):
        """Go on drawing, from the same rows or with more rows of a stream.

        Parameters
        ----------
        X, y, sample_weight, strata : as in fit
            More rows: the estimate is then of all rows so far. Without X, up to
            `max_evaluations` more of the last rows given are evaluated; after a
            failure, the round that failed first, as it was drawn.

        Returns
        -------
        self : object
            Fitted estimator.
        """
        if getattr(self, "_outstanding", None):
            raise ValueError(
                f"{len(self._outstanding)} rows that ask() gave have not been told; "
                "tell their values first."
            )
        if X is None:
            if not (hasattr(self, "_integrator") or self._unfinished):
                raise ValueError(
                    "partial_fit() without X goes on with the rows of fit, but there "
                    "was none yet; call fit(X, y) first."
                )
            self._check_params()
            return go_on(self)
        if not hasattr(self, "_integrator"):
            return self.fit(X, y, sample_weight, strata)
        with unchanged_on_failure(self):
            self._check_params()
            before = self._integrator
            generator = copy.deepcopy(before.generator)
            integrator = plan_run(
                self, X, y, sample_weight, strata, generator, reset=False, before=before
            )
            status, failure = run(self, integrator)
        if failure is not None and not integrator.rounds.n_draws:
            put_aside(self, dict(vars(self)), integrator)
            raise failure
        return keep(self, integrator, status, failure)

    def ask(self, n, X=None, y=None, sample_weight=None, strata=None):
        """Return rows to evaluate, for values that are not computed by a call.

        Someone may label them by hand, or a service may take its time. Their values go
        to :meth:`tell`, in any order; more may be asked for in between.

        Parameters
        ----------
        n : int
            Number of rows wanted. There are fewer if fewer are left.
        X, y, sample_weight, strata : as in fit
            A pool to begin with; None goes on with the pool of the last call. y may be
            None whatever the loss, which only says what values are going to be told.

        Returns
        -------
        rows : ndarray of shape (n_rows,)
            Positions of rows in X. The first call for a pool may give more than n: some
            rows of every stratum.
        """
        check_number("n", n, low=1, integer=True)
        if X is not None:
            with unchanged_on_failure(self):
                self._check_params()
                seed = check_random_state(self.random_state).randint(2**31 - 1)
                integrator = plan_run(
                    self, X, y, sample_weight, strata, np.random.PCG64(seed), told=True
                )
                outstanding = Outstanding(integrator.rounds)
            self._unfinished = Unfinished(integrator, {})
            self._outstanding = outstanding
        elif getattr(self, "_outstanding", None) is None:
            raise ValueError("ask(n) needs rows to choose from: call ask(n, X) first.")
        rounds = self._unfinished.integrator.rounds
        return self._outstanding.ask(max(n, rounds.least_round()))

    def tell(self, rows, values):
        """Take the values of rows that were asked for.

        Parameters
        ----------
        rows : array-like of shape (n_rows,)
            Some of the rows that :meth:`ask` gave, from one call or several.
        values : array-like of shape (n_rows,) or (n_rows, n_values)
            Their losses; of rates numerator and denominator, as "precision" has true
            and predicted positives. With an `estimator` and without y, "precision" asks
            for rows that are predicted to be positive alone, and takes one number for
            each: whether it is.

        Returns
        -------
        self : object
            The estimator, fitted as soon as every stratum has some rows. What a call of
            `ask` gave counts once all of it has been told; `status_` is "told".
        """
        if getattr(self, "_outstanding", None) is None:
            raise ValueError("tell() takes values of rows that ask() gave; call ask.")
        integrator = self._unfinished.integrator
        if self._outstanding.tell(rows, values):
            integrator.rounds.learn()
            if integrator.rounds.is_measured:
                integrator.record(self.confidence)
                assign(self, integrator, "exact" if integrator.is_exact else "told")
        return self

    @property
    def evaluated_(self):
        """Rows evaluated so far and their values, a dict of two arrays."""
        check_is_fitted(self)
        pool = self._integrator.rounds.pool
        if not hasattr(pool, "evaluated"):
            raise AttributeError("Locations under a distribution are not kept.")
        rows = pool.evaluated()
        values = pool.values[rows]
        values = values[:, 0] if values.shape[1] == 1 else values
        return {"row": rows, "value": values}

    def estimate(self, loss, function=None, groups=None):
        """Estimate another loss from the rows evaluated so far.

        No other row is looked at. The rows were drawn for the first loss: the interval
        holds, but is not as narrow as one from rows drawn for this loss.

        Parameters
        ----------
        loss : str, callable or array-like of shape (n_evaluated,) or \
(n_evaluated, n_values)
            As the parameter `loss`, in which case the model is called for these rows,
            or "roc_auc"; or the values of the loss at the rows of `evaluated_`. A
            callable or an array may have several values for each row.
        function : callable, default=None
            Takes the vector of the means of all values and returns the number that is
            wanted, such as a ratio: a smooth function, for the delta method. None for
            the means themselves, with their covariance if there are several.
        groups : array-like of shape (n_samples,), default=None
            Clusters of the rows of the pool, such as persons. The error is then that
            for the population which the clusters come from, not for this pool; a
            control variate is not used.

        Returns
        -------
        result : object
            With `estimate`, `std_error`, `confidence_interval` and, for the means of
            several values, `covariance`.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn_awsgd import MinVarianceImportanceEstimator
        >>> x = np.random.default_rng(0).exponential(size=5000)
        >>> mean = MinVarianceImportanceEstimator(
        ...     loss=lambda x: x, max_evaluations=500, rtol=None, random_state=0
        ... ).fit(x)
        >>> spread = mean.estimate(
        ...     lambda x: np.column_stack([x, x**2]),
        ...     function=lambda m: np.sqrt(m[1] - m[0] ** 2),
        ... )
        >>> low, high = spread.confidence_interval
        >>> bool(low < x.std() < high)
        True
        """
        check_is_fitted(self)
        return estimate_loss(
            self._integrator, self.estimator, loss, function, groups, self.confidence
        )

    def quantile(self, q):
        """Estimate a quantile of the values, with an interval.

        Parameters
        ----------
        q : float in (0, 1)
            Share of the pool with values up to the quantile.

        Returns
        -------
        result : object
            With `estimate` and `confidence_interval`.
        """
        check_is_fitted(self)
        check_number("q", q, above=0, below=1)
        return estimate_quantile(self._integrator, q, self.confidence)

    def confidence_interval(self, level=None, side="two-sided"):
        """Return the interval at another level, or one end of it.

        Parameters
        ----------
        level : float in (0, 1), default=None
            Probability to cover; None for `confidence`.
        side : {"two-sided", "lower", "upper"}, default="two-sided"
            "lower" for a lower limit that holds with probability `level`, the upper one
            then being that of the range of the loss.
        """
        check_is_fitted(self)
        check_option("side", side, ("two-sided", "lower", "upper"))
        level = self.confidence if level is None else level
        check_number("level", level, above=0, below=1)
        return self._integrator.interval(level, side)

    def p_value(self, null=0.0, alternative="two-sided"):
        """Return the p-value of a truth, as of no difference between two models.

        Parameters
        ----------
        null : float, default=0.0
            The truth that is doubted.
        alternative : {"two-sided", "less", "greater"}, default="two-sided"
            Where else the truth may be: "less" than `null` or "greater".

        Returns
        -------
        p : float
            The least level at which the interval does not hold it.
        """
        check_is_fitted(self)
        check_option("alternative", alternative, ("two-sided", "less", "greater"))
        return p_value(self._integrator, null, alternative)

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
        return self._integrator.rounds.sample(n_samples)

    @property
    def history_(self):
        """Estimate, error and gain over time, a dict of arrays."""
        check_is_fitted(self)
        return self._integrator.history_table()

    def summary(self):
        """Return a summary that prints as text and shows as a table in notebooks."""
        check_is_fitted(self)
        return Summary(self)

    def _check_params(self):
        choose_sampler(self.sampler)
        if isinstance(self.surrogate, str):
            check_option("surrogate", self.surrogate, ("learned",))
        check_parameters(self, self._parameters)
        if self.bounds is not None:
            self._check_bounds()

    def _check_bounds(self):
        numbers = np.asarray(self.bounds)
        if numbers.shape != (2,) or numbers.dtype.kind not in "iuf":
            raise TypeError(
                f"bounds={self.bounds!r} must be two numbers (low, high), or None."
            )
        if not -np.inf < numbers[0] < numbers[1] < np.inf:
            raise ValueError(
                f"bounds={self.bounds!r} must be finite, the first below the second; "
                "use None where a value may be anything."
            )
