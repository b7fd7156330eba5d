"""AWSGDClassifier: linear classifiers trained by AW-SGD."""

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from sklearn_awsgd._base import BaseAWSGD
from sklearn_awsgd._kernels import _losses
from sklearn_awsgd._validation import check_weights, unchanged_on_failure


def _has_probabilities(estimator):
    if estimator.loss in ("log_loss", "modified_huber"):
        return True
    raise AttributeError(
        f"predict_proba is not available for loss={estimator.loss!r}; use "
        "loss='log_loss' or loss='modified_huber', or CalibratedClassifierCV."
    )


class AWSGDClassifier(ClassifierMixin, BaseAWSGD):
    """Linear classifier trained by SGD that learns which rows to sample.

    Beside the model a second small learner moves the sampling distribution, so that
    rows which matter for the gradient are drawn more often. Each step is weighted by
    1/q and stays unbiased: the sampler changes how fast the optimum is reached, never
    which optimum.

    Parameters
    ----------
    loss : {"log_loss", "hinge", "squared_hinge", "modified_huber", "perceptron", \
"squared_error", "huber", "epsilon_insensitive", "squared_epsilon_insensitive"}, \
default="log_loss"
        The loss. "log_loss" is logistic regression, "hinge" a linear support vector
        machine. The last four are regression losses on targets -1 and +1.
    penalty : {"l2", "l1", "elasticnet", None}, default="l2"
        The penalty. "l1" and "elasticnet" give exact zeros.
    alpha : float >= 0, default=0.0001
        Strength of the penalty. The objective is the weighted mean of the losses plus
        `alpha` times the penalty, so ``LogisticRegression(C=1 / (alpha * n_samples))``
        has the same optimum.
    l1_ratio : float in [0, 1], default=0.15
        Share of l1 in "elasticnet".
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is not penalised.
    max_iter : int >= 1, default=1000
        Largest number of passes of n_samples draws each.
    tol : float >= 0 or None, default=1e-3
        Training stops when `n_iter_no_change` passes in a row have not lowered the
        objective by more than this fraction. None runs `max_iter` passes.
    epsilon : float >= 0, default=0.1
        Width of "huber" and of the epsilon-insensitive losses.
    sampler : {"auto", "uniform", "label", "strata"} or sampler object, default="auto"
        What is learned about sampling.

        - "uniform": shuffled passes, nothing is learned.
        - "label": the probability of each class, as in the paper.
        - "strata": the probability of each of the `strata` given to ``fit``.
        - "auto": "strata" when strata are given, else "label".
        - An object of :mod:`sklearn_awsgd.samplers` sets the details.
    batch_size : int >= 1, default=1
        Draws that share one state of the sampler. Model steps are sequential inside a
        batch.
    verbose : int, default=0
        Whether to print a line for each pass.
    n_jobs : int or None, default=None
        Threads over the one-vs-rest problems. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    learning_rate : {"auto", "adagrad", "rmsprop", "adadelta", "constant", "optimal", \
"invscaling"}, default="auto"
        Step sizes. "auto" is "adagrad". "optimal" is ``1 / (alpha (t0 + t))``,
        "invscaling" is ``eta0 / t^power_t``.
    eta0 : float > 0 or None, default=None
        Initial step size; None takes 0.1 for "adagrad", 0.001 for "rmsprop", 1 for
        "adadelta" and 0.01 for the others.
    power_t : float, default=0.5
        Exponent of "invscaling".
    n_iter_no_change : int >= 1, default=5
        See `tol`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the objective. This changes the optimum; to see a rare
        class more often without changing the optimum is what `sampler` does.
    warm_start : bool, default=False
        Whether ``fit`` starts from the last coefficients.
    average : bool or int >= 0, default=False
        Whether the coefficients are the mean over all steps; an integer is the step to
        start at.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the features.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    n_iter_ : int
        Passes until the slowest problem stopped.
    t_ : float
        One plus the number of steps.
    sampler_ : sampler object
        Copy of the sampler with what it has learned, ``sampler_.probabilities_`` among
        it.
    variance_gain_ : ndarray of shape (n_problems,)
        Second moment of the gradient under plain sampling over that under the learned
        distribution, from the draws of the last pass. 2 means half the variance.
    effective_sample_size_ : ndarray of shape (n_problems,)
        Effective number of draws of the last pass, given their weights.
    history_ : dict of ndarray
        Columns problem, draws, seconds, objective, variance_gain and
        effective_sample_size, ready for ``pandas.DataFrame``.
    sampling_history_ : dict of ndarray
        Columns problem, draws, stratum and probability.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, when X has string column names.

    See Also
    --------
    sklearn.linear_model.SGDClassifier : SGD with uniform sampling.
    sklearn.linear_model.LogisticRegression : Batch solvers of the same objective.

    Notes
    -----
    Draws x ~ Q with density q against the data's own distribution P move the model by
    ``d = grad f(x; w) / q(x)``, and the sampler towards the minimum of
    ``E_Q ||d||^2`` (Algorithm 2 of [1]_). There is no proof of convergence of the joint
    process; unbiasedness holds for any sampler.

    References
    ----------
    .. [1] G. Bouchard, T. Trouillon, J. Perez, A. Gaidon, "Online Learning to Sample".

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn_awsgd import AWSGDClassifier
    >>> X, y = make_classification(weights=[0.97], class_sep=2, random_state=0)
    >>> clf = make_pipeline(StandardScaler(), AWSGDClassifier(random_state=0))
    >>> clf.fit(X, y).score(X, y) > 0.9
    True
    >>> bool(clf[-1].variance_gain_[0] > 1)
    True
    """

    _losses = {
        "log_loss": lambda self: _losses.LogLoss(),
        "hinge": lambda self: _losses.Hinge(1.0),
        "squared_hinge": lambda self: _losses.SquaredHinge(),
        "modified_huber": lambda self: _losses.ModifiedHuber(),
        "perceptron": lambda self: _losses.Hinge(0.0),
        "squared_error": lambda self: _losses.SquaredError(),
        "huber": lambda self: _losses.Huber(self.epsilon),
        "epsilon_insensitive": lambda self: _losses.EpsilonInsensitive(self.epsilon),
        "squared_epsilon_insensitive": lambda self: _losses.SquaredEpsilonInsensitive(
            self.epsilon
        ),
    }

    def __init__(
        self,
        loss="log_loss",
        *,
        penalty="l2",
        alpha=0.0001,
        l1_ratio=0.15,
        fit_intercept=True,
        max_iter=1000,
        tol=1e-3,
        epsilon=0.1,
        sampler="auto",
        batch_size=1,
        verbose=0,
        n_jobs=None,
        random_state=None,
        learning_rate="auto",
        eta0=None,
        power_t=0.5,
        n_iter_no_change=5,
        class_weight=None,
        warm_start=False,
        average=False,
    ):
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.epsilon = epsilon
        self.sampler = sampler
        self.batch_size = batch_size
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.power_t = power_t
        self.n_iter_no_change = n_iter_no_change
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.average = average

    def fit(
        self,
        X,
        y,
        coef_init=None,
        intercept_init=None,
        sample_weight=None,
        strata=None,
    ):
        """Fit the model from scratch, or from the last one with `warm_start`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows. C-contiguous float arrays and CSR are read where they lie.
        y : array-like of shape (n_samples,)
            Class labels.
        coef_init : array-like of shape (n_classes, n_features), default=None
            Coefficients to start from.
        intercept_init : array-like of shape (n_classes,), default=None
            Intercepts to start from.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows: 2 is the row twice, 0 is the row absent.
        strata : array-like of shape (n_samples,), default=None
            Strata to sample, for ``sampler="strata"``.

        Returns
        -------
        self : AWSGDClassifier
            The fitted estimator.
        """
        with unchanged_on_failure(self):
            self._check_params()
            sampler = self._make_sampler(strata)
            data, y = self._check_data(X, y, strata, reset=True)
            check_classification_targets(y)
            classes = np.unique(y)
            codes = np.searchsorted(classes, y)
            sample_weight = check_weights(sample_weight, len(y))
            present = codes if sample_weight is None else codes[sample_weight > 0]
            if len(np.unique(present)) < 2:
                raise ValueError(
                    "The number of classes with positive weight has to be greater than "
                    f"one; got {len(np.unique(present))} class. Give rows of at least "
                    "two classes."
                )
            same_classes = np.array_equal(getattr(self, "classes_", None), classes)
            self.classes_ = classes
            data.set_weights(sample_weight, self._class_weights(codes, sample_weight))
            targets = self._targets(codes)
            self.sampler_ = sampler
            self._start(data.X, targets)
            if not same_classes and self.warm_start and hasattr(self, "coef_"):
                raise ValueError(
                    "warm_start=True needs the classes of the last fit; use "
                    "warm_start=False for new classes."
                )
            self._start_from(coef_init, intercept_init)
            self._train(data, targets, self.max_iter, self.tol)
        return self

    def partial_fit(self, X, y, classes=None, sample_weight=None, strata=None):
        """Make one pass over a chunk of a stream.

        What the model and the sampler have learned is kept, and the random stream goes
        on. A chunk need not have rows of every class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of the chunk.
        y : array-like of shape (n_samples,)
            Class labels.
        classes : array-like of shape (n_classes,), default=None
            All classes of the stream; needed in the first call.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        strata : array-like of shape (n_samples,), default=None
            Strata to sample, for ``sampler="strata"``. New ones may appear.

        Returns
        -------
        self : AWSGDClassifier
            The estimator.
        """
        with unchanged_on_failure(self):
            self._check_params()
            if self.class_weight == "balanced":
                raise ValueError(
                    "class_weight='balanced' is not supported for partial_fit, which "
                    "never sees all classes' counts; give the weights as a dict, for "
                    "example from sklearn.utils.compute_class_weight."
                )
            first = not hasattr(self, "coef_")
            if classes is not None:
                classes = np.unique(classes)
                if not first and not np.array_equal(classes, self.classes_):
                    raise ValueError(
                        f"classes={classes!r} is not the same as on last call to "
                        f"partial_fit, was: {self.classes_!r}."
                    )
            elif first:
                raise ValueError(
                    "classes must be passed on the first call to partial_fit."
                )
            data, y = self._check_data(X, y, strata, reset=first)
            check_classification_targets(y)
            if first:
                if len(classes) < 2:
                    raise ValueError(
                        "The number of classes has to be greater than one; got "
                        f"{len(classes)} class."
                    )
                self.classes_ = classes
            unknown = np.setdiff1d(y, self.classes_)
            if len(unknown):
                raise ValueError(
                    f"y has labels {unknown!r} that are not in classes="
                    f"{self.classes_!r}; name all classes at the first partial_fit."
                )
            codes = np.searchsorted(self.classes_, y)
            sample_weight = check_weights(sample_weight, len(y))
            data.set_weights(sample_weight, self._class_weights(codes, sample_weight))
            targets = self._targets(codes)
            if first:
                self.sampler_ = self._make_sampler(strata, streaming=True)
                self._start(data.X, targets)
            else:
                self._detach()
            self._train(data, targets, max_iter=1, tol=None, streaming=True)
        return self

    def _class_weights(self, codes, sample_weight):
        """Return the class weight of each row, or None."""
        if self.class_weight is None:
            return None
        if self.class_weight == "balanced" and sample_weight is not None:
            counts = np.bincount(
                codes, weights=sample_weight, minlength=len(self.classes_)
            )
            weights = counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1e-300))
            weights[counts == 0] = 0
        else:
            weights = compute_class_weight(
                self.class_weight, classes=self.classes_, y=self.classes_[codes]
            )
        if not (np.isfinite(weights).all() and weights.min() >= 0):
            raise ValueError(
                f"class_weight={self.class_weight!r} has a value that is negative or "
                "not finite; a weight is how often a row of the class counts."
            )
        weights = weights[codes]
        if not (weights if sample_weight is None else weights * sample_weight).any():
            raise ValueError(
                f"class_weight={self.class_weight!r} leaves no row with a positive "
                "weight."
            )
        return weights

    def _targets(self, codes):
        """Return a vector of -1 and +1 for each one-vs-rest problem."""
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [np.where(codes == k, 1.0, -1.0) for k in positive]

    def decision_function(self, X):
        """Return the signed distance to the separating hyperplanes, up to scale.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Positive where the second class (or the class of the column) is predicted.
        """
        scores = self._linear_predictor(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X):
        """Return the predicted class of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Class labels.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X):
        """Return the probability of each class.

        For more than two classes the one-vs-rest probabilities are normalised.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        scores = self._linear_predictor(X)
        if self.loss == "log_loss":
            positive = expit(scores)
        else:
            positive = (np.clip(scores, -1, 1) + 1) / 2
        if positive.shape[1] == 1:
            return np.hstack([1 - positive, positive])
        total = positive.sum(axis=1, keepdims=True)
        n_classes = positive.shape[1]
        return np.where(
            total > 0, positive / np.where(total > 0, total, 1), 1 / n_classes
        )

    @available_if(_has_probabilities)
    def predict_log_proba(self, X):
        """Return the logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return np.log(self.predict_proba(X))
