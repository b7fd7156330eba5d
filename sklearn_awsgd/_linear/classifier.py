"""AWSGDClassifier: linear classifiers trained by AW-SGD."""

import numpy as np
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from sklearn_awsgd._kernels import _losses
from sklearn_awsgd._linear.base import BaseAWSGD
from sklearn_awsgd._linear.targets import (
    Classes,
    are_known,
    check_classes,
    check_labels,
    distinct,
)

# Scores of classes that differ by so many units of rounding are equal.
ROUNDING_OF_SCORES = 100


def _has_probabilities(estimator):
    if estimator.loss in ("log_loss", "multinomial", "modified_huber"):
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
"multinomial", "squared_error", "huber", "epsilon_insensitive", \
"squared_epsilon_insensitive"}, default="log_loss"
        The loss. "log_loss" is logistic regression, one-vs-rest for more than two
        classes; "multinomial" is softmax regression for three classes or more and
        "log_loss" for two classes or indicators; "hinge" is a linear support vector
        machine. The last four are regression losses on targets -1 and +1.
    penalty : {"l2", "l1", "elasticnet", None}, default="l2"
        The penalty. "l1" and "elasticnet" give exact zeros.
    alpha : float >= 0, default=0.0001
        Strength of the penalty. The objective is the weighted mean of the losses plus
        `alpha` times the penalty, so ``LogisticRegression(C=1 / (alpha * n_samples))``
        has the same optimum.
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
        Width of "huber" and of the epsilon-insensitive losses.
    sampler : {"auto", "uniform", "label", "strata", "level"} or sampler object, \
default="auto"
        What is learned about sampling.

        - "uniform": shuffled passes, nothing is learned.
        - "label": the probability of each class, as in the paper.
        - "strata": the probability of each of the `strata` given to ``fit``.
        - "level": the probability of a row, by the size of its last seen gradient.
        - "auto": "strata" when strata are given; else "level" in ``fit``, and in
          ``partial_fit`` a memory (see `memory_size`), or "uniform" for an explicit
          `learning_rate`: a row of a stream that is not drawn would be lost.
        - An object of :mod:`sklearn_awsgd.samplers` sets the details.
    batch_size : int >= 1, default=1
        Draws that share one state of the sampler. Model steps are sequential inside a
        batch.
    verbose : int, default=0
        Whether to print a line for each pass: its number, seconds, the objective, its
        certified gap and what `tol` allows.
    n_jobs : int or None, default=None
        Threads over the one-vs-rest problems, or over blocks of rows where there are
        more threads than problems. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    learning_rate : {"auto", "adagrad", "rmsprop", "adadelta", "constant", \
"adaptive", "optimal", "invscaling"}, default="auto"
        Step sizes. "auto" samples with "adagrad" for at most a pass and then goes to
        the optimum with exact passes; with 3000 features or more and an l2 penalty,
        passes of dual steps, which have no step size, may come first. There is none in
        ``partial_fit`` either: past losses are a quadratic, and the chunk and
        `memory_size` past rows are exact. It is "adagrad" throughout with early
        stopping or averaging, and in ``partial_fit`` with a `sampler`. With an l1
        penalty and 3000 features or more, or 200 or more and fewer rows than features,
        it draws no rows but minimises over a working set of features; not so with
        "multinomial". Any other value means plain AW-SGD: "optimal" is
        ``1 / (alpha (t0 + t))``, "invscaling" is ``eta0 / t^power_t``, "adaptive" is
        `eta0`, divided by five whenever training would stop.
    eta0 : float > 0 or None, default=None
        Initial step size. None takes ``3 / (1 + mean ||x||_1)`` for "adagrad", 0.001
        for "rmsprop", 1 for "adadelta" and 0.01 for the others.
    power_t : float >= 0, default=0.5
        Exponent of "invscaling".
    early_stopping : bool, default=False
        Whether to set a part of the data aside and to stop when the score on it has not
        risen by more than `tol` for `n_iter_no_change` passes. The coefficients are
        those that scored best. `X_val` and `y_val` given to ``fit`` do the same.
    validation_fraction : float in (0, 1), default=0.1
        Share of the data set aside by `early_stopping`.
    scoring : str, callable or None, default=None
        Score of early stopping, such as "average_precision"; None is accuracy. For
        more than two classes each one-vs-rest problem is scored by itself.
    n_iter_no_change : int >= 1, default=5
        See `tol` and `early_stopping`.
    max_time : float > 0 or None, default=None
        Seconds after which training stops, with a warning.
    count_draws : bool, default=False
        Whether to count the draws of each row, in `draw_counts_`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in the objective. This changes the optimum; to see a rare
        class more often without changing the optimum is what `sampler` does.
    warm_start : bool, default=False
        Whether ``fit`` starts from the last coefficients.
    average : bool or int >= 0, default=False
        Whether the coefficients are the mean over all steps; an integer is the step to
        start at.
    memory_size : int >= 0, default=1000
        Past rows of a stream that ``partial_fit`` keeps exactly with
        ``learning_rate="auto"``: those with the largest curvature. 0 keeps a quadratic
        alone.
    forgetting : "auto" or float in [0, 1), default="auto"
        Share of what is known of a stream that each row replaces: after
        ``1 / forgetting`` rows a row counts 1/e of what it did. 0 forgets nothing.
        "auto" keeps a learner that forgets beside one that does not and, while there
        are few rows for each feature, learners with other strengths of the l2 penalty
        beside `alpha`. All are weighed by how well they predict rows before they are
        learned.

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
        distribution, from the last pass that the sampler drew. 2 means half the
        variance, NaN that nothing was drawn.
    effective_sample_size_ : ndarray of shape (n_problems,)
        Effective number of draws of that pass, given their weights; 0 if there were
        none.
    duality_gap_ : ndarray of shape (n_problems,)
        Certified bound on how far the objective is above its minimum, and never more
        than the objective itself; infinite where there is none (plain AW-SGD, no
        penalty).
    draw_counts_ : ndarray of shape (n_problems, n_samples)
        How often each row was drawn in the last call, with `count_draws`.
    history_ : dict of ndarray
        Columns problem, phase, draws, seconds, objective, variance_gain,
        effective_sample_size, duality_gap, validation_score and simulated_seconds (the
        sum of `access_cost`), NaN where they do not apply, ready for
        ``pandas.DataFrame``. In the phase "sampling" the objective is estimated from
        the draws, without bias; in the phase "exact" it is computed; in the phase
        "stream" it is the loss of a chunk before it was learned. Problem k of several
        is that of ``classes_[k]``.
    sampling_history_ : dict of ndarray
        Columns problem, draws, stratum, probability and group: the class of the rows
        (the class of the problem or "rest" for more than two), the value in `strata`,
        or "all". "level" has also a column level, the size of the gradient: 0 that of
        the largest at the start, -1 half of it, and so on.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
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
    >>> X, y = make_classification(1000, weights=[0.97], class_sep=2, random_state=0)
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
        # For two classes; for more see `_classes`.
        "multinomial": lambda self: _losses.LogLoss(),
        **BaseAWSGD._losses,
    }
    _target_checks = {"multi_output": True}

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
        shuffle=True,
        epsilon=0.1,
        sampler="auto",
        batch_size=1,
        verbose=0,
        n_jobs=None,
        random_state=None,
        learning_rate="auto",
        eta0=None,
        power_t=0.5,
        early_stopping=False,
        validation_fraction=0.1,
        scoring=None,
        n_iter_no_change=5,
        max_time=None,
        count_draws=False,
        class_weight=None,
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
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.average = average
        self.memory_size = memory_size
        self.forgetting = forgetting

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    @property
    def _classes(self):
        """How the classes become problems."""
        is_softmax = (
            self.loss == "multinomial"
            and not self._multilabel
            and len(self.classes_) > 2
        )
        return Classes(self.classes_, self._multilabel, is_softmax)

    def _check_targets(self, y):
        y = check_labels(y, self.class_weight)
        self._multilabel = y.ndim == 2
        return y

    def _labels_to_hold_out(self, y):
        return None if self._multilabel else y

    def _learn_classes(self, data):
        if self._multilabel:
            self._set_classes(np.arange(data.y.shape[1]))
            return
        present = data.y
        if data.sample_weight is not None:
            present = data.y[data.sample_weight > 0]
        self._set_classes(distinct(present))

    def _set_classes(self, classes):
        """Set the classes, of which there have to be enough."""
        if not self._multilabel and len(classes) < 2:
            raise ValueError(
                "The number of classes with positive weight has to be greater "
                "than one; got 1 class. Give rows of at least two classes."
            )
        warm = self.warm_start and hasattr(self, "coef_")
        if warm and not np.array_equal(self.classes_, classes):
            raise ValueError(
                f"warm_start=True needs the classes of the last fit, "
                f"{self.classes_!r}, got {classes!r}; use warm_start=False."
            )
        self.classes_ = classes

    def _encode(self, data):
        weights = None
        if not self._multilabel:
            weights = self._classes.weights_of_rows(
                data.y, self.class_weight, data.sample_weight
            )
        data.set_mass(weights)
        return self._classes.encode(data.y, data.mass)

    def _group_name(self, problem, group):
        return self._classes.group_name(problem, group)

    def _problem_name(self, problem):
        return self._classes.problem_name(problem)

    def _scored_target(self, model, y, problem):
        if self._classes.is_one_problem:
            return y
        model.classes_ = np.array([0, 1])
        if self._multilabel:
            model._multilabel = False
            y = y.toarray() if sparse.issparse(y) else np.asarray(y)
            return y[:, problem]
        return (np.asarray(y) == self.classes_[problem]).astype(int)

    def partial_fit(
        self,
        X,
        y,
        classes=None,
        sample_weight=None,
        strata=None,
        access_cost=None,
    ):
        """Learn a chunk of a stream.

        With ``learning_rate="auto"`` the model is then close to the one that ``fit``
        would find on all rows so far, at about the cost of one pass. A chunk may have
        any number of rows, and need not have rows of every class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of the chunk.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Class labels, or indicators of several labels.
        classes : array-like of shape (n_classes,), default=None
            All classes of the stream; needed in the first call, but not for indicators.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, relative to those of all chunks so far.
        strata : array-like of shape (n_samples,), default=None
            Strata to sample, for ``sampler="strata"``. New ones may appear.
        access_cost : array-like of shape (n_samples,), default=None
            What it costs to fetch each row, as for ``fit``.

        Returns
        -------
        self : AWSGDClassifier
            The estimator.
        """
        return self._partial_fit(X, y, sample_weight, strata, access_cost, classes)

    def _check_streaming(self):
        super()._check_streaming()
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} is not supported for "
                "partial_fit, which never sees all classes' counts; give the "
                "weights as a dict, for example from "
                "sklearn.utils.compute_class_weight."
            )

    def _check_chunk(self, data, classes, first):
        if not first and classes is None and not self._multilabel:
            if are_known(data.y, self.classes_):
                return
        was_multilabel = getattr(self, "_multilabel", None)
        data.y = y = self._check_targets(data.y)
        if not first and was_multilabel != self._multilabel:
            raise ValueError(
                f"y has shape {y.shape}, which is not the kind of target of the "
                "calls before; start anew with a clone of the estimator."
            )
        if self._multilabel:
            classes = np.arange(y.shape[1])
        elif classes is None and first:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        known = None if first else self.classes_
        self.classes_ = check_classes(classes, y, known)

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
        binary = scores.shape[1] == 1 and not self._multilabel
        return scores[:, 0] if binary else scores

    def predict(self, X):
        """Return the predicted class of each row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,) or (n_samples, n_labels)
            Class labels, or indicators.
        """
        scores = self.decision_function(X)
        if self._multilabel:
            return (scores > 0).astype(int)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        # Rows on the margins of two classes have equal scores, up to rounding, which
        # must not decide: it depends on the other rows of X.
        best = scores.max(axis=1, keepdims=True)
        rounding = ROUNDING_OF_SCORES * np.finfo(scores.dtype).eps
        is_best = scores >= best - rounding * (1 + np.abs(best))
        return self.classes_[is_best.argmax(axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X):
        """Return the probability of each class.

        For more than two classes the one-vs-rest probabilities are normalised; those of
        several labels are not.

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
        if self._stream is not None and self.loss != "modified_huber":
            scores = self._stream.calibration(scores)
        if self.loss == "modified_huber":
            positive = (np.clip(scores, -1, 1) + 1) / 2
        elif self._classes.is_softmax:
            return softmax(scores, axis=1)
        else:
            positive = expit(scores)
        if self._multilabel:
            return positive
        if positive.shape[1] == 1:
            return np.hstack([1 - positive, positive])
        total = positive.sum(axis=1, keepdims=True)
        # Where no class has any probability, all have the same.
        positive[total[:, 0] == 0] = 1
        return positive / positive.sum(axis=1, keepdims=True)

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
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))
