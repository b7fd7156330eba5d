"""Streams: what ``partial_fit`` does with ``learning_rate="auto"``.

A :class:`StreamLearner` is kept between calls, and changed in place.
"""

import copy
from time import perf_counter

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._linear.steps import set_values
from sklearn_awsgd._linear.streams.learner import StreamLearner
from sklearn_awsgd._linear.streams.problem import StreamProblem
from sklearn_awsgd._solver.records import Log
from sklearn_awsgd.samplers.memory import StreamMemory

# Squares of larger numbers would overflow when rows are put together.
LARGEST_SIZE, LARGEST_IN_STREAM = 1e100, 1e75


def learn_chunk(estimator, data, targets, sample, both, started):
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
    if float(data.norms2.max()) > LARGEST_SIZE or (
        targets[0].values.dtype == np.float64
        and np.abs(targets[0].values).max() > LARGEST_IN_STREAM
    ):
        raise ValueError(
            "Floating-point overflow: X or y has values whose products overflow; "
            "scale them, for example with StandardScaler."
        )
    X, norms2, values = data.X, data.norms2, [t.numbers() for t in targets]
    learner = estimator._stream
    a = np.full(n_rows, both / learner.unit)
    if data.mass is not None:
        a = data.mass * (n_rows * both / learner.unit)
        present = np.flatnonzero(a)
        if len(present) < n_rows:
            X, norms2, a = X[present], norms2[present], a[present]
            values = [part[present] for part in values]
    spread = 1.0 if targets[0].n_groups > 1 else learner.spread(values[0])
    problem = stream_problem(estimator, spread)
    if estimator._seeds is not None:
        learner.seed(problem, estimator._seeds)
        estimator._seeds = None
    before = learner.n_settled
    losses = learner.learn(
        problem, X, norms2, values, a, n_rows * sample / learner.unit
    )
    estimator._history.add_chunk(
        n_rows,
        losses * (both / sample),
        perf_counter() - started,
        cost=data.pass_cost,
        names=[estimator._problem_name(k) for k in range(len(targets))]
        if estimator.verbose
        else (),
    )
    if learner.n_settled != before:
        _look_at_memory(estimator, problem, targets)
    _set_attributes(estimator, data.X.dtype)


def stream_problem(estimator, spread):
    penalty = estimator._make_penalty(estimator.alpha)
    return StreamProblem.of(
        estimator._make_loss(),
        spread,
        alpha_l1=penalty.l1,
        alpha_l2=penalty.l2,
        memory_size=estimator.memory_size,
    )


def begin_stream(estimator, X, targets, unit):
    """Set up what is kept between calls; weights are in units of the first."""
    random_state = check_random_state(estimator.random_state)
    estimator._stream = StreamLearner(
        X,
        len(targets),
        n_classes=targets[0].n_models if targets[0].n_models > 1 else 0,
        has_signs=targets[0].n_groups > 1,
        fit_intercept=estimator.fit_intercept,
        forgetting=estimator.forgetting,
        seed=random_state.randint(np.iinfo(np.int32).max),
    )
    estimator._stream.unit = unit
    if not hasattr(estimator, "_history"):
        estimator._history = Log()
    estimator._history = estimator._history.copy()
    estimator._history.sampling.clear()
    estimator.sampler_ = StreamMemory()
    estimator.sampler_.prepare(None, len(targets), targets[0].n_groups, None)
    estimator._draw_counts = estimator._pass_length = None
    estimator.n_iter_ = 1
    # Nothing is drawn, and nothing is certified.
    estimator.variance_gain_ = np.full(len(targets), np.nan)
    estimator.effective_sample_size_ = np.zeros(len(targets))
    estimator.duality_gap_ = np.full(len(targets), np.inf)


def _look_at_memory(estimator, problem, targets):
    """Show what the memories hold."""
    for k, target in enumerate(targets):
        y, curvature = estimator._stream.memory(k)
        groups = np.zeros(len(y), dtype=np.intp)
        if target.n_models > 1:
            groups, largest = y.astype(np.intp), 0.5
        else:
            largest = problem.loss.smoothness
            if target.n_groups == 2:
                groups = (y > 0).astype(np.intp)
        estimator.sampler_.look(k, groups, curvature / largest)
        estimator._history.add_memory(k, estimator.sampler_.probabilities_[k].copy())


def _set_attributes(estimator, dtype):
    v = estimator._stream.coefficients()
    if not np.isfinite(v).all():
        raise ValueError(
            "Floating-point overflow: the coefficients are not finite. Scale the "
            "features with StandardScaler or MinMaxScaler."
        )
    estimator.t_ = 1.0 + estimator._stream_weights.n_rows
    estimator._set_coefficients(v[:, :-1].astype(dtype), v[:, -1].astype(dtype))


def leave_stream(estimator, data, targets):
    """Hand what a stream has learned over to AW-SGD."""
    if estimator._stream is None:
        return
    history, weights = estimator._history, estimator._stream_weights
    estimator._start(data, targets)
    estimator._history, estimator._stream_weights, estimator._stream = (
        history,
        weights,
        None,
    )
    coef = (
        estimator.coef_.toarray()
        if sparse.issparse(estimator.coef_)
        else estimator.coef_
    )
    for name, given in (("coef", coef), ("intercept", estimator.intercept_)):
        set_values(estimator._states, name, given, name)
    for state in estimator._states:
        state["clock"] += weights.n_rows


def merge_streams(estimator, other):
    """Do what :meth:`BaseAWSGD.merge` says."""
    check_is_fitted(estimator)
    check_is_fitted(other)
    if (
        type(other) is not type(estimator)
        or estimator._stream is None
        or (other._stream is None)
    ):
        raise TypeError(
            "merge takes an estimator of the same class, and both have to have "
            "been trained by partial_fit with learning_rate='auto'."
        )
    same = estimator.n_features_in_ == other.n_features_in_
    same = same and np.array_equal(
        getattr(estimator, "classes_", None), getattr(other, "classes_", None)
    )
    if not same or estimator.loss != other.loss:
        raise ValueError(
            "merge needs the same loss, features and classes in both estimators."
        )
    learner = copy.deepcopy(estimator._stream)
    theirs = copy.deepcopy(other._stream)
    learner.merge(stream_problem(estimator, learner.merged_spread(theirs)), theirs)
    estimator._stream = learner
    mine, others = estimator._stream_weights, other._stream_weights
    estimator._stream_weights = mine.plus(others)
    _set_attributes(estimator, estimator.coef_.dtype)
