"""partial_fit of the linear estimators: streams."""

import copy
from time import perf_counter

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._linear import data as _data
from sklearn_awsgd._linear.steps import set_values
from sklearn_awsgd._linear.streams.learner import StreamLearner
from sklearn_awsgd._linear.streams.memory import StreamMemory
from sklearn_awsgd._linear.streams.problem import StreamProblem
from sklearn_awsgd._solver.records import Log
from sklearn_awsgd._validation import check_weights, mean_weight, unchanged_on_failure

# Squares of larger numbers would overflow when rows are put together.
LARGEST_SIZE, LARGEST_TARGET = 1e100, 1e75


class StreamingMixin:
    """How the linear estimators learn a stream.

    With ``learning_rate="auto"`` a :class:`StreamLearner` is kept between calls, and
    changed in place; else one pass of AW-SGD is made over each chunk.
    """

    # What is known of a stream, and what a fit leaves for one.
    _stream = None
    _seeds = None

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

    def _partial_fit(self, X, y, sample_weight, strata, classes=None):
        """Learn a chunk of a stream."""
        started = perf_counter()
        with unchanged_on_failure(self):
            self._check_params()
            self._check_streaming()
            first = not hasattr(self, "coef_")
            data = _data.check_data(
                self, X, y, strata, reset=first, **self._target_checks
            )
            self._check_chunk(data, classes, first)
            data.sample_weight = check_weights(sample_weight, len(data.y))
            targets = self._encode(data)
            exactly = self._learns_exactly(strata)
            if first and not exactly:
                self.sampler_ = self._make_sampler(strata, streaming=True)
                self._start(data, targets)
            elif not exactly:
                self._leave_stream(data, targets)
                self._go_on(data, targets)
            weights = _data.StreamWeights() if first else self._stream_weights
            sample, total = mean_weight(sample_weight), data.total
            self._stream_weights = weights.weigh(data, sample_weight)
            if exactly:
                if self._stream is None:
                    self._begin_stream(data.X, targets, weights.sample or sample)
                self._learn(data, targets, sample, sample * total, started)
            else:
                self._train(data, targets, streaming=True)
                self._history.thin()
        return self

    def _learn(self, data, targets, sample, both, started):
        """Learn a chunk with the memory.

        Parameters
        ----------
        data : Data
            The rows.
        targets : list of Target
            One for each problem.
        sample, both : float
            Means of the sample weights, and of these times the class weights.
        started : float
            When the call began.
        """
        n_rows = len(data.norms2)
        if data.norms2.max() > LARGEST_SIZE or (
            targets[0].values.dtype == np.float64
            and np.abs(targets[0].values).max() > LARGEST_TARGET
        ):
            raise ValueError(
                "Floating-point overflow: X or y has values whose products overflow; "
                "scale them, for example with StandardScaler."
            )
        X, norms2, values = data.X, data.norms2, [t.values for t in targets]
        learner = self._stream
        a = np.full(n_rows, both / learner.unit)
        if data.mass is not None:
            a = data.mass * (n_rows * both / learner.unit)
            present = np.flatnonzero(a)
            if len(present) < n_rows:
                X, norms2, a = X[present], norms2[present], a[present]
                values = [part[present] for part in values]
        spread = 1.0 if targets[0].n_groups > 1 else learner.spread(values[0])
        problem = self._stream_problem(spread)
        if self._seeds is not None:
            learner.seed(problem, self._seeds)
            self._seeds = None
        before = learner.n_settled
        losses = learner.learn(
            problem, X, norms2, values, a, n_rows * sample / learner.unit
        )
        self._history.add_chunk(
            n_rows, losses * (both / sample), perf_counter() - started, self.verbose
        )
        if learner.n_settled != before:
            self._look_at_memory(problem, targets)
        self._set_stream_attributes(data.X.dtype)

    def _stream_problem(self, spread):
        l1_ratio = {"l1": 1.0, "elasticnet": self.l1_ratio, "l2": 0.0, None: 0.0}
        l1 = self.alpha * l1_ratio[self.penalty]
        return StreamProblem.of(
            self._make_loss(),
            spread,
            alpha_l1=l1,
            alpha_l2=0.0 if self.penalty is None else self.alpha - l1,
            memory_size=self.memory_size,
        )

    def _begin_stream(self, X, targets, unit):
        """Set up what is kept between calls; weights are in units of the first."""
        random_state = check_random_state(self.random_state)
        self._stream = StreamLearner(
            X,
            len(targets),
            n_classes=targets[0].n_models if targets[0].n_models > 1 else 0,
            fit_intercept=self.fit_intercept,
            forgetting=self.forgetting,
            seed=random_state.randint(np.iinfo(np.int32).max),
        )
        self._stream.unit = unit
        if not hasattr(self, "_history"):
            self._history = Log()
        self._history = self._history.copy()
        self._history.sampling.clear()
        self.sampler_ = StreamMemory()
        self.sampler_.prepare(None, len(targets), targets[0].n_groups, None)
        self._draw_counts = None
        self.n_iter_ = 1
        ones = np.ones(len(targets))
        self.variance_gain_, self.effective_sample_size_ = ones, ones * np.nan
        self.duality_gap_ = ones * np.inf

    def _look_at_memory(self, problem, targets):
        """Show what the memories hold."""
        for k, target in enumerate(targets):
            y, curvature = self._stream.memory(k)
            groups = np.zeros(len(y), dtype=np.intp)
            if target.n_models > 1:
                groups, largest = y.astype(np.intp), 0.5
            else:
                largest = problem.loss.smoothness
                if target.n_groups == 2:
                    groups = (y > 0).astype(np.intp)
            self.sampler_.look(k, groups, curvature / largest)
            self._history.add_memory(k, self.sampler_.probabilities_[k].copy())

    def _set_stream_attributes(self, dtype):
        v = self._stream.coefficients()
        if not np.isfinite(v).all():
            raise ValueError(
                "Floating-point overflow: the coefficients are not finite. Scale the "
                "features with StandardScaler or MinMaxScaler."
            )
        self.t_ = 1.0 + self._stream_weights.n_rows
        self._set_coefficients(v[:, :-1].astype(dtype), v[:, -1].astype(dtype))

    def _leave_stream(self, data, targets):
        """Hand what a stream has learned over to AW-SGD."""
        if self._stream is None:
            return
        history, weights = self._history, self._stream_weights
        self._start(data, targets)
        self._history, self._stream_weights, self._stream = history, weights, None
        coef = self.coef_.toarray() if sparse.issparse(self.coef_) else self.coef_
        for name, given in (("coef", coef), ("intercept", self.intercept_)):
            set_values(self._states, name, given, name)
        for state in self._states:
            state["clock"] += weights.n_rows

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
        check_is_fitted(self)
        check_is_fitted(other)
        if (
            type(other) is not type(self)
            or self._stream is None
            or (other._stream is None)
        ):
            raise TypeError(
                "merge takes an estimator of the same class, and both have to have "
                "been trained by partial_fit with learning_rate='auto'."
            )
        same = self.n_features_in_ == other.n_features_in_
        same = same and np.array_equal(
            getattr(self, "classes_", None), getattr(other, "classes_", None)
        )
        if not same or self.loss != other.loss:
            raise ValueError(
                "merge needs the same loss, features and classes in both estimators."
            )
        learner = copy.deepcopy(self._stream)
        theirs = copy.deepcopy(other._stream)
        learner.merge(self._stream_problem(learner.merged_spread(theirs)), theirs)
        self._stream = learner
        mine, others = self._stream_weights, other._stream_weights
        self._stream_weights = mine.plus(others)
        self._set_stream_attributes(self.coef_.dtype)
        return self
