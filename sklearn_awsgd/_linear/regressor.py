"""AWSGDRegressor: linear regression trained by AW-SGD."""

from sklearn.base import RegressorMixin

from sklearn_awsgd._linear.base import BaseAWSGD
from sklearn_awsgd._linear.targets import RealTarget, check_real_targets


class AWSGDRegressor(RegressorMixin, BaseAWSGD):
    """Linear regression trained by SGD that learns which rows to sample.

    The counterpart of :class:`AWSGDClassifier` for real targets: rows with large
    residuals and large features are drawn more often, each step is weighted by 1/q and
    stays unbiased.

    Parameters
    ----------
    loss : {"squared_error", "huber", "epsilon_insensitive", \
"squared_epsilon_insensitive"}, default="squared_error"
        The loss: ``(y - z)^2 / 2``, the same continued as a line beyond `epsilon`,
        ``max(0, |y - z| - epsilon)`` or its square.
    penalty : {"l2", "l1", "elasticnet", None}, default="l2"
        The penalty. "l1" and "elasticnet" give exact zeros.
    alpha : float >= 0, default=0.0001
        Strength of the penalty, relative to the mean loss.
    l1_ratio : float in [0, 1] or None, default=0.15
        Share of l1 in "elasticnet"; not used otherwise.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    max_iter : int >= 1, default=1000
        Largest number of passes, of n_samples draws or exact ones.
    tol : float >= 0 or None, default=1e-3
        With ``learning_rate="auto"``: the relative distance to the optimum at which
        training stops; it is estimated, `duality_gap_` is certified. With plain AW-SGD
        training stops when `n_iter_no_change` passes in a row have not lowered the
        objective by more than this fraction. None goes on until rounding decides, or
        for `max_iter` passes.
    shuffle : bool, default=True
        False takes the rows in their order, pass after pass. Nothing is learned about
        sampling then: `sampler` has to be "auto" or "uniform".
    epsilon : float >= 0, default=0.1
        Width of "huber" and of the epsilon-insensitive losses, in the units of y.
    sampler : {"auto", "uniform", "strata", "level"} or sampler object, default="auto"
        What is learned about sampling, as in :class:`AWSGDClassifier`. "auto" is
        "strata" when strata are given; else "level" in ``fit``. In ``partial_fit`` it
        is the memory of past rows, or "uniform" with an explicit `learning_rate`.
    batch_size : int >= 1, default=1
        Draws that share one state of the sampler.
    verbose : int, default=0
        Whether to print a line for each pass: its number, seconds, the objective, its
        certified gap and what `tol` allows.
    n_jobs : int or None, default=None
        Threads over blocks of rows. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    learning_rate : {"auto", "adagrad", "rmsprop", "adadelta", "constant", \
"adaptive", "optimal", "invscaling"}, default="auto"
        Step sizes, as in :class:`AWSGDClassifier`.
    eta0 : float > 0 or None, default=None
        Initial step size. None takes ``3 std(y) / (1 + mean ||x||_1)`` for "adagrad",
        0.001 for "rmsprop", 1 for "adadelta" and 0.01 for the others.
    power_t : float >= 0, default=0.25
        Exponent of "invscaling".
    early_stopping : bool, default=False
        Whether to stop by the score on data set aside, as in :class:`AWSGDClassifier`.
    validation_fraction : float in (0, 1), default=0.1
        Share of the data set aside by `early_stopping`.
    scoring : str, callable or None, default=None
        Score of early stopping; None is R^2.
    n_iter_no_change : int >= 1, default=5
        See `tol` and `early_stopping`.
    max_time : float > 0 or None, default=None
        Seconds after which training stops, with a warning.
    count_draws : bool, default=False
        Whether to count the draws of each row, in `draw_counts_`.
    warm_start : bool, default=False
        Whether ``fit`` starts from the last coefficients.
    average : bool or int >= 0, default=False
        Whether the coefficients are the mean over all steps; an integer is the step to
        start at.
    memory_size : int >= 0, default=1000
        Past rows of a stream that ``partial_fit`` keeps exactly with
        ``learning_rate="auto"``; the squared error needs none.
    forgetting : "auto" or float in [0, 1), default="auto"
        As in :class:`AWSGDClassifier`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the features.
    intercept_ : ndarray of shape (1,)
        Intercept.
    n_iter_ : int
        Passes made.
    t_ : float
        One plus the number of steps.
    sampler_ : sampler object
        Copy of the sampler with what it has learned.
    variance_gain_ : ndarray of shape (1,)
        Second moment of the gradient under plain sampling over that under the learned
        distribution, from the draws of the last sampled pass; NaN if nothing was drawn.
    effective_sample_size_ : ndarray of shape (1,)
        Effective number of draws of the last sampled pass, given their weights; 0 if
        there were none.
    duality_gap_ : ndarray of shape (1,)
        Certified bound on how far the objective is above its minimum; infinite where
        there is none.
    draw_counts_ : ndarray of shape (1, n_samples)
        How often each row was drawn in the last call, with `count_draws`.
    history_ : dict of ndarray
        As in :class:`AWSGDClassifier`.
    sampling_history_ : dict of ndarray
        As in :class:`AWSGDClassifier`.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, when X has string column names.

    See Also
    --------
    AWSGDClassifier : The classifier.
    sklearn.linear_model.SGDRegressor : SGD with uniform sampling.
    sklearn.linear_model.Ridge : Direct solvers for the squared error.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from sklearn_awsgd import AWSGDRegressor
    >>> X, y = make_regression(noise=1.0, random_state=0)
    >>> AWSGDRegressor(random_state=0).fit(X, y).score(X, y) > 0.99
    True
    """

    _target_checks = {"y_numeric": True}

    def __init__(
        self,
        loss="squared_error",
        *,
        penalty="l2",
        alpha=0.0001,
        l1_ratio=0.15,
        fit_intercept=True,
        max_iter=1000,
        tol=1e-3,
        shuffle=True,
        epsilon=0.1,
        sampler="auto",
        batch_size=1,
        verbose=0,
        n_jobs=None,
        random_state=None,
        learning_rate="auto",
        eta0=None,
        power_t=0.25,
        early_stopping=False,
        validation_fraction=0.1,
        scoring=None,
        n_iter_no_change=5,
        max_time=None,
        count_draws=False,
        warm_start=False,
        average=False,
        memory_size=1000,
        forgetting="auto",
    ):
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.shuffle = shuffle
        self.epsilon = epsilon
        self.sampler = sampler
        self.batch_size = batch_size
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.power_t = power_t
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.scoring = scoring
        self.n_iter_no_change = n_iter_no_change
        self.max_time = max_time
        self.count_draws = count_draws
        self.warm_start = warm_start
        self.average = average
        self.memory_size = memory_size
        self.forgetting = forgetting

    def _check_targets(self, y):
        return check_real_targets(y)

    def _encode(self, data):
        data.set_mass()
        return [RealTarget(data.y, data.mass)]

    def partial_fit(
        self,
        X,
        y,
        sample_weight=None,
        strata=None,
        access_cost=None,
    ):
        """Learn a chunk of a stream.

        With ``learning_rate="auto"`` the model is then close to the one that ``fit``
        would find on all rows so far, at about the cost of one pass; for the squared
        error it is the same.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of the chunk.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, relative to those of all chunks so far.
        strata : array-like of shape (n_samples,), default=None
            Strata to sample, for ``sampler="strata"``. New ones may appear.
        access_cost : array-like of shape (n_samples,), default=None
            What it costs to fetch each row, as for ``fit``.

        Returns
        -------
        self : AWSGDRegressor
            The estimator.
        """
        return self._partial_fit(X, y, sample_weight, strata, access_cost)

    def predict(self, X):
        """Return the predicted target of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Predictions.
        """
        return self._linear_predictor(X).ravel()

    def densify(self):
        """Store the coefficients as an array, as ``fit`` leaves them.

        Returns
        -------
        self : AWSGDRegressor
            The fitted estimator.
        """
        super().densify()
        self.coef_ = self.coef_.reshape(-1)
        return self

    def _set_coefficients(self, coef, intercept):
        super()._set_coefficients(coef[0], intercept)
