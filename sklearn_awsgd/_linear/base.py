"""What the linear estimators share: parameters, fit, and what is fitted."""

import copy
from abc import ABCMeta, abstractmethod
from time import perf_counter
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._base import EstimatorMixin
from sklearn_awsgd._kernels import _losses
from sklearn_awsgd._kernels.settings import Penalty
from sklearn_awsgd._linear import data as _data
from sklearn_awsgd._linear import steps as _steps
from sklearn_awsgd._linear.fetching import SourceBlocks, SourceRows
from sklearn_awsgd._linear.fitting import train_problems, train_with_callbacks
from sklearn_awsgd._linear.streaming import (
    begin_stream,
    learn_chunk,
    leave_stream,
    merge_streams,
)
from sklearn_awsgd._linear.streams.seed import seed_of
from sklearn_awsgd._solver.records import Log
from sklearn_awsgd._validation import (
    Boolean,
    Integer,
    Options,
    Real,
    check_costs,
    check_parameters,
    check_weights,
    draw_seeds,
    is_source,
    mean_weight,
    unchanged_on_failure,
    validate_data,
)
from sklearn_awsgd.samplers import LevelSampler, StrataSampler, UniformSampler
from sklearn_awsgd.samplers.base import resolve_sampler

# Of each class, the parameters of its last fit.
_checked = WeakKeyDictionary()


class BaseAWSGD(EstimatorMixin, BaseEstimator, metaclass=ABCMeta):
    """Base class of the linear estimators.

    A subclass checks its targets and encodes them, one for each problem (one-vs-rest,
    softmax or real valued); each becomes a task that is trained by itself.
    """

    # What is known of a stream, and what a fit leaves for one.
    _stream = None
    _seeds = None
    _doc_page = "classifier"
    # Losses by name, each a function of the estimator that makes the compiled loss.
    _losses = {
        "squared_error": lambda self: _losses.SquaredError(),
        "huber": lambda self: _losses.Huber(self.epsilon),
        "epsilon_insensitive": lambda self: _losses.EpsilonInsensitive(self.epsilon),
        "squared_epsilon_insensitive": lambda self: _losses.SquaredEpsilonInsensitive(
            self.epsilon
        ),
    }
    # Options of `validate_data` for the targets.
    _target_checks = {}
    _parameters = {
        "penalty": Options("l2", "l1", "elasticnet", None),
        "learning_rate": Options(
            "auto", *_steps.SCALAR_RATES, *_steps.COORDINATE_RATES
        ),
        "alpha": Real(low=0),
        "l1_ratio": Real(low=0, high=1, optional=True),
        "epsilon": Real(low=0),
        "power_t": Real(low=0),
        "batch_size": Integer(low=1),
        "max_iter": Integer(low=1),
        "n_iter_no_change": Integer(low=1),
        "eta0": Real(above=0, optional=True),
        "tol": Real(low=0, optional=True),
        "max_time": Real(above=0, optional=True),
        "validation_fraction": Real(above=0, below=1),
        "average": Integer(low=0, or_boolean=True),
        "memory_size": Integer(low=0),
        "forgetting": Real(low=0, below=1, words=("auto",)),
        "n_jobs": Integer(optional=True),
        "verbose": Integer(low=0, or_boolean=True),
        **{
            name: Boolean()
            for name in (
                "fit_intercept",
                "shuffle",
                "early_stopping",
                "count_draws",
                "warm_start",
            )
        },
    }

    # What a subclass knows of its targets.

    @abstractmethod
    def _check_targets(self, y):
        """Return targets that have been checked."""

    @abstractmethod
    def _encode(self, data):
        """Set P of the data; return the Target of each problem."""

    def _learn_classes(self, data):
        """Learn the classes of all data, where there are any."""

    def _check_chunk(self, data, classes, first):
        """Check the targets of a chunk of a stream."""
        data.y = self._check_targets(data.y)

    def _labels_to_hold_out(self, y):
        """Return labels of which none may be held out as a whole, or None."""
        return None

    def _group_name(self, problem, group):
        """Return what to call a group of the rows of a problem."""
        return "all"

    def _problem_name(self, problem):
        """Return what to call a problem; "" if there is only one."""
        return ""

    def _scored_target(self, model, y, problem):
        """Return the targets that a problem is scored on, and prepare the model."""
        return y

    def fit(
        self,
        X,
        y,
        coef_init=None,
        intercept_init=None,
        sample_weight=None,
        strata=None,
        X_val=None,
        y_val=None,
        sample_weight_val=None,
        access_cost=None,
    ):
        """Fit the model from scratch, or from the last one with `warm_start`.

        Parameters
        ----------
        X : {array-like, sparse matrix, row source} of shape (n_samples, n_features)
            Training rows. C-contiguous float arrays and CSR are read where they lie;
            rows of a source (:mod:`sklearn_awsgd.sources`) are fetched as needed.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Targets of a regressor; class labels, or indicators of several labels, of a
            classifier.
        coef_init : array-like of the shape of `coef_`, default=None
            Coefficients to start from.
        intercept_init : array-like of the shape of `intercept_`, default=None
            Intercepts to start from.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows: 2 is the row twice, 0 is the row absent.
        strata : array-like of shape (n_samples,), default=None
            Strata to sample, for ``sampler="strata"``.
        X_val, y_val : array-like, default=None
            Rows and targets that decide when to stop, as `early_stopping` does.
        sample_weight_val : array-like, default=None
            Weights of the rows of `X_val`.
        access_cost : array-like of shape (n_samples,), default=None
            What it costs to fetch each row, in seconds or another unit. A sampler with
            ``time_aware=True``, which "auto" then is, learns the variance for each
            second; ``history_`` has the sum of the costs, as "simulated_seconds".

        Returns
        -------
        self : object
            The fitted estimator.
        """
        with unchanged_on_failure(self):
            self._check_params()
            sampler = self._make_sampler(strata, time_aware=access_cost is not None)
            data = _data.check_data(
                self, X, y, strata, reset=True, **self._target_checks
            )
            data.y = self._check_targets(data.y)
            data.sample_weight = check_weights(sample_weight, len(data.y))
            data.costs = check_costs(access_cost, len(data.y))
            data.validation = _data.given_validation(X_val, y_val, sample_weight_val)
            if self.early_stopping and data.validation is None:
                data = _data.hold_out(
                    data,
                    self._labels_to_hold_out(data.y),
                    self.validation_fraction,
                    self.random_state,
                    self.shuffle,
                )
            self._learn_classes(data)
            targets = self._encode(data)
            self.sampler_ = sampler
            self._stream = self._seeds = None
            self._start(data, targets)
            self._stream_weights = self._stream_weights.weigh(data, sample_weight)
            self._start_from(coef_init, intercept_init)
            tasks = train_with_callbacks(self, data, targets, X, y, sample_weight)
            if self._learns_exactly(data.strata):
                self._seeds = [seed_of(task) for task in tasks]
        return self

    def _partial_fit(self, X, y, sample_weight, strata, access_cost, classes=None):
        """Learn a chunk of a stream."""
        started = perf_counter()
        if is_source(X):
            raise TypeError(
                "X is a row source, and partial_fit learns chunks that are in memory; "
                "give rows of it, X.take(indices), or the source to fit."
            )
        with unchanged_on_failure(self):
            self._check_params()
            self._check_streaming()
            first = not hasattr(self, "coef_")
            data = _data.check_data(
                self, X, y, strata, reset=first, **self._target_checks
            )
            self._check_chunk(data, classes, first)
            data.sample_weight = check_weights(sample_weight, len(data.y))
            data.costs = check_costs(access_cost, len(data.y))
            targets = self._encode(data)
            exactly = self._learns_exactly(strata)
            if first and not exactly:
                self.sampler_ = self._make_sampler(strata, streaming=True)
                self._start(data, targets)
            elif not exactly:
                leave_stream(self, data, targets)
                self._go_on(data, targets)
            weights = _data.StreamWeights() if first else self._stream_weights
            sample, total = mean_weight(sample_weight), data.total
            self._stream_weights = weights.weigh(data, sample_weight)
            if exactly:
                if self._stream is None:
                    # Rows without weight are not there.
                    there = 1.0 if data.mass is None else np.mean(data.mass > 0)
                    unit = weights.sample or sample / there
                    begin_stream(self, data.X, targets, unit)
                learn_chunk(self, data, targets, sample, sample * total, started)
            else:
                train_problems(self, data, targets, streaming=True)
                self._history.thin()
        return self

    def merge(self, other):
        """Take in what an estimator has learned from another part of a stream.

        Past losses are quadratics, which add, as do the rows that are kept exactly: the
        result is close to what one estimator would have learned from both parts, and
        the same for the squared error. Both have to have been trained by
        ``partial_fit`` with ``learning_rate="auto"``.

        Parameters
        ----------
        other : object
            An estimator with the same parameters, features and classes.

        Returns
        -------
        self : object
            This estimator, which now knows both; `other` is not changed.
        """
        merge_streams(self, other)
        return self

    def __copy__(self):
        """Return a copy that learns by itself."""
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        if self._stream is not None:
            other._stream = copy.deepcopy(self._stream)
            other.sampler_ = copy.deepcopy(self.sampler_)
            other._history = self._history.copy()
        return other

    def _check_streaming(self):
        """Refuse settings that need all data at once."""
        if self.early_stopping:
            raise ValueError(
                "early_stopping should be False with partial_fit, which does not know "
                "what is to come; score held-out rows between the calls instead."
            )

    def _learns_exactly(self, strata):
        """Return whether chunks are learned with a memory, rather than by steps."""
        return (
            self.learning_rate == "auto"
            and isinstance(self.sampler, str)
            and self.sampler == "auto"
            and strata is None
            and not self.average
            and not self.count_draws
            and getattr(getattr(self, "sampler_", None), "by", None) != "given"
        )

    @property
    def _rate(self):
        return "adagrad" if self.learning_rate == "auto" else self.learning_rate

    def _make_loss(self):
        return self._losses[self.loss](self)

    def _make_penalty(self, alpha):
        """Return the Penalty of a strength."""
        if self.penalty is None:
            return Penalty()
        l1_ratio = {"l1": 1.0, "elasticnet": self.l1_ratio, "l2": 0.0}[self.penalty]
        return Penalty(alpha * l1_ratio, alpha - alpha * l1_ratio)

    def _check_params(self):
        # Values that were right in the last fit of the class need no second look.
        table = {"loss": Options(*self._losses), **self._parameters}
        values = {name: getattr(self, name) for name in table}
        known = _checked.get(type(self), {})
        new = [name for name in table if values[name] is not known.get(name, self)]
        check_parameters(self, {name: table[name] for name in new})
        if self.penalty == "elasticnet" and self.l1_ratio is None:
            raise ValueError(
                "l1_ratio must be set when penalty is 'elasticnet', got l1_ratio=None; "
                "give a number between 0 and 1."
            )
        if self.learning_rate == "optimal" and self.alpha == 0:
            raise ValueError(
                "learning_rate='optimal' divides by alpha, got alpha=0; give a "
                "positive alpha or choose another learning_rate."
            )
        _checked[type(self)] = values

    def _make_sampler(self, strata, *, streaming=False, time_aware=False):
        """Return a copy of the setting that the parameter `sampler` stands for."""
        settings = {
            "auto": LevelSampler(time_aware=time_aware),
            "uniform": UniformSampler(),
            "label": StrataSampler(by="label"),
            "strata": StrataSampler(by="given"),
            "level": LevelSampler(),
        }
        if isinstance(self, RegressorMixin):
            settings.pop("label")
        if not self.shuffle:
            settings["auto"] = settings["uniform"]
        elif strata is not None:
            settings["auto"] = StrataSampler(by="given", time_aware=time_aware)
        elif streaming:
            # A row that is not used would be lost.
            settings["auto"] = settings["uniform"]
        sampler = resolve_sampler(self.sampler, settings, "rows")
        if not self.shuffle and not isinstance(sampler, UniformSampler):
            raise ValueError(
                f"shuffle=False takes the rows in their order, which sampler="
                f"{self.sampler!r} does not; use shuffle=True, or sampler='uniform'."
            )
        return sampler

    def _start(self, data, targets):
        """Set up what outlives a call: states, random streams, history."""
        self._set_eta0(data, targets)
        seeds = draw_seeds(self.random_state, len(targets))
        self._generators = [np.random.PCG64(seed) for seed in seeds]
        self._history = Log()
        self._stream_weights = _data.StreamWeights()
        n_models = sum(target.n_models for target in targets)
        self._states = [_steps.new_state(data.X.shape[1]) for _ in range(n_models)]
        for state in self._states:
            _steps.complete_state(state, self._rate, self.average)

    def _set_eta0(self, data, targets):
        """Set eta0, and remember what it was chosen for."""
        self._eta0 = self.eta0
        if self.eta0 is None:
            self._eta0 = _steps.default_eta0(self._rate, data, targets[0])
        self._eta0_for = self.eta0, self._rate

    def _start_from(self, coef_init, intercept_init):
        """Start from given coefficients, or from those of the last fit."""
        warm = self.warm_start and hasattr(self, "coef_")
        for name, given in (("coef", coef_init), ("intercept", intercept_init)):
            what = f"Provided {name}_init"
            if given is not None:
                given = _steps.check_start(given, name)
            elif warm and (name == "coef" or self.fit_intercept):
                what = f"warm_start=True: the last {name}_"
                given = getattr(self, f"{name}_")
                given = given.toarray() if sparse.issparse(given) else given
            if given is not None:
                _steps.set_values(self._states, name, given, what)

    def _go_on(self, data, targets):
        """Copy what training changes in place, for `partial_fit` to go on from.

        Parameters may have changed, and `fit` may have chosen a sampler that needs all
        rows: then the one for streams begins to learn.
        """
        self._states = copy.deepcopy(self._states)
        self._generators = copy.deepcopy(self._generators)
        self._history = self._history.copy()
        if self._eta0_for != (self.eta0, self._rate):
            self._set_eta0(data, targets)
        for state in self._states:
            _steps.complete_state(state, self._rate, self.average)
        old, new = self.sampler_, self._make_sampler(data.strata, streaming=True)
        same = type(old) is type(new) and old.get_params() == new.get_params()
        # Strata that were given once must not be forgotten in silence.
        forgotten = data.strata is None and getattr(old, "by", None) == "given"
        if same or (forgotten and self.sampler == "auto"):
            self.sampler_ = copy.deepcopy(old)
        else:
            self.sampler_ = new
            self._history.sampling.clear()

    def _set_coefficients(self, coef, intercept):
        self.coef_, self.intercept_ = coef, intercept

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "coef_")

    @property
    def history_(self):
        """Objective and sampling statistics over time, a dict of arrays."""
        check_is_fitted(self)
        return self._history.table()

    @property
    def sampling_history_(self):
        """Probabilities of the strata over time, a dict of arrays."""
        check_is_fitted(self)
        table = self._history.sampling_table()
        problems = table["problem"]

        def group_names(groups):
            pairs = zip(problems.tolist(), groups.tolist(), strict=True)
            names = np.empty(len(groups), dtype=object)
            names[:] = [self._group_name(k, group) for k, group in pairs]
            return names

        return table | self.sampler_.describe(table["stratum"], group_names)

    @property
    def draw_counts_(self):
        """How often each row was drawn in the last call."""
        check_is_fitted(self)
        if self._draw_counts is None:
            raise AttributeError(
                "draw_counts_ is not there: the draws were not counted. Set "
                "count_draws=True before fit or partial_fit."
            )
        return self._draw_counts

    def _linear_predictor(self, X):
        """Return <x, w> + b of every row, of shape (n_samples, n_problems)."""
        check_is_fitted(self)
        if is_source(X):
            parts = SourceBlocks(SourceRows(X)).map(
                lambda rows, part: self._linear_predictor(rows)
            )
            return np.concatenate(list(parts))
        is_known = _data.has_plain_rows(X) and _data.knows_features(self, X)
        if is_known and not sparse.issparse(self.coef_):
            with np.errstate(over="ignore", invalid="ignore"):
                scores = safe_sparse_dot(X, self.coef_.T) + self.intercept_
            # Of numbers that are not finite, no score is: 0 times infinity is none. But
            # zeros that are not stored multiply nothing.
            if np.isfinite(scores).all():
                return scores
        X = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_

    def sparsify(self):
        """Store the coefficients as a CSR matrix, which saves memory after l1.

        Returns
        -------
        self : object
            The fitted estimator; ``partial_fit`` makes the coefficients dense again.
        """
        check_is_fitted(self)
        self.coef_ = sparse.csr_matrix(self.coef_)
        return self

    def densify(self):
        """Store the coefficients as an array, as ``fit`` leaves them.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        check_is_fitted(self)
        if sparse.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self
