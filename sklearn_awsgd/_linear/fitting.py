"""The problems of a fit: each becomes a task, is trained, and its end is kept."""

import copy
import warnings
from functools import partial
from time import perf_counter

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring

from sklearn_awsgd._callbacks import fit_with_callbacks, with_callbacks
from sklearn_awsgd._linear.fetching import pilot_costs
from sklearn_awsgd._linear.limits import (
    ignored_settings,
    limit_warning,
    nothing_drawn,
    rounding_warning,
)
from sklearn_awsgd._linear.phases.sampling import Draws
from sklearn_awsgd._linear.steps import coefficients, make_rate
from sklearn_awsgd._linear.tasks import make_task
from sklearn_awsgd._linear.train import Rules, train
from sklearn_awsgd._linear.watch import Watch
from sklearn_awsgd._solver.records import Budget, Log
from sklearn_awsgd._solver.runs import Diverged
from sklearn_awsgd._spaces import RowSpace


@with_callbacks
def train_with_callbacks(estimator, data, targets, X, y, sample_weight, **how):
    """Train as `train_problems` does, and tell callbacks what fit was given."""
    n_problems = len(targets)
    with fit_with_callbacks(
        estimator,
        X,
        y,
        sample_weight,
        max_subtasks=n_problems if n_problems > 1 else estimator.max_iter,
        sequential_subtasks=n_problems == 1,
    ) as fit_task:
        return train_problems(estimator, data, targets, fit_task, **how)


def train_problems(
    estimator,
    data,
    targets,
    fit_task=None,
    *,
    streaming=False,
    make_task=make_task,
    train=train,
):
    """Train all problems and assign the fitted attributes.

    Parameters
    ----------
    estimator : BaseAWSGD
        Changed in place: states, random streams, sampler, history, attributes.
    data : Data
        Rows, weights and strata.
    targets : list of Target
        One for each problem.
    fit_task : FitTask, default=None
        For callbacks.
    streaming : bool, default=False
        Whether the rows are a chunk of a stream, of which nothing may be concluded
        beyond one pass of steps.
    make_task, train : callable, optional
        What makes a task of a target, and what trains it: others where rows are
        elsewhere, and `data` has some of them only.

    Returns
    -------
    tasks : list of Task
        As they were trained.
    """
    estimator._pass_length = None if streaming else data.X.shape[0]
    sampler = estimator.sampler_
    n_jobs = effective_n_jobs(estimator.n_jobs)
    space = RowSpace(data.mass, data.norms2, estimator.shuffle, data.costs)
    measured = data.is_source and data.costs is None
    measured = measured and getattr(sampler, "time_aware", False)
    if measured:
        data.set_places()
        space.costs = pilot_costs(data.X, np.random.default_rng(0))
    sampler.prepare(space, len(targets), targets[0].n_groups, data.strata)
    data.n_threads = max(n_jobs // len(targets), 1)
    tasks = make_tasks(estimator, data, targets, make_task)
    rules = make_rules(estimator, data, tasks, streaming)
    for text in ignored_settings(
        estimator,
        sampler,
        data,
        to_optimum=rules.to_optimum,
        streaming=streaming,
    ):
        warnings.warn(text, UserWarning, stacklevel=4 if streaming else 5)
    budget = make_budget(estimator, streaming)
    counts = [None] * len(tasks)
    if estimator.count_draws:
        counts = np.zeros((len(tasks), data.X.shape[0]), dtype=np.uint32)

    watch = Watch(estimator, tasks, rules, budget, fit_task)

    # A sampler that was given, or counts of its draws.
    asked_for = estimator.sampler != "auto" or estimator.count_draws

    def train_one(task):
        draws = Draws(
            sampler,
            space,
            estimator.batch_size,
            counts[task.number],
            measured,
            asked_for,
        )
        with watch.problem(task) as (progress, own_budget):
            log = Log(task.number, data.total, progress, data.pass_cost)
            return train(task, draws, own_budget, log, rules), log

    try:
        if n_jobs == 1 or len(tasks) == 1:
            results = [train_one(task) for task in tasks]
        else:
            results = Parallel(n_jobs=estimator.n_jobs, require="sharedmem")(
                delayed(train_one)(task) for task in tasks
            )
    except Diverged as error:
        raise ValueError(
            f"Floating-point overflow: {error}. Scale the features with "
            "StandardScaler or MinMaxScaler, lower eta0, or use "
            "learning_rate='adagrad'."
        ) from error
    except BaseException:
        # Other threads end with the piece that they are at.
        budget.cancelled.set()
        raise
    outcomes, logs = zip(*results, strict=True)
    estimator._history.extend(logs)
    text = limit_warning(estimator, budget, watch.unstopped(outcomes))
    if text:
        warnings.warn(text, ConvergenceWarning, stacklevel=5)
    estimator.n_iter_ = max(outcome.n_iter for outcome in outcomes)
    estimator.variance_gain_ = np.array([o.variance_gain for o in outcomes])
    if asked_for and np.isnan(estimator.variance_gain_).all():
        text = nothing_drawn(estimator)
        warnings.warn(text, UserWarning, stacklevel=4 if streaming else 5)
    estimator.effective_sample_size_ = np.array(
        [o.effective_sample_size for o in outcomes]
    )
    estimator.duality_gap_ = data.total * np.array([o.duality_gap for o in outcomes])
    # Of a source, rounding would cost two passes more.
    dtype = np.dtype(np.float64) if data.is_source else data.X.dtype
    if rules.to_optimum and dtype == np.float32:
        text = rounding_warning(budget, round_parameters(estimator, tasks, data.total))
        if text:
            warnings.warn(text, ConvergenceWarning, stacklevel=5)
    estimator.t_ = 1.0 + max(state["clock"][0] for state in estimator._states)
    estimator._draw_counts = counts if estimator.count_draws else None
    assign_coefficients(estimator, dtype)
    return tasks


def make_tasks(estimator, data, targets, make_task):
    """Return the task of each target, on the states and streams of the estimator."""
    alpha = estimator.alpha / data.total
    rate = make_rate(estimator._rate, estimator._eta0, estimator.power_t, alpha)
    states = iter(estimator._states)
    return [
        make_task(
            target,
            number=k,
            data=data,
            loss=estimator._make_loss(),
            penalty=estimator._make_penalty(alpha),
            fit_intercept=estimator.fit_intercept,
            rate=rate,
            average_start=int(estimator.average),
            states=[next(states) for _ in range(target.n_models)],
            generator=estimator._generators[k],
        )
        for k, target in enumerate(targets)
    ]


def make_rules(estimator, data, tasks, streaming):
    """Return how to train: "auto" has more to it than AW-SGD."""
    auto = estimator.learning_rate == "auto"
    task = tasks[0]
    can_descend = task.penalty.l1 == 0 or task.has_proximal_steps or task.has_columns
    plain = streaming or estimator.average or data.validation is not None
    score = None
    if data.validation is not None:
        score = partial(validation_score, estimator, data.validation)
    return Rules(
        to_optimum=auto and can_descend and not plain,
        begin_at_constants=auto,
        n_iter_no_change=estimator.n_iter_no_change,
        score=score,
    )


def make_budget(estimator, streaming):
    """Return what each problem may spend: one pass over a chunk of a stream."""
    if streaming:
        return Budget(1)
    deadline = np.inf
    if estimator.max_time is not None:
        deadline = perf_counter() + estimator.max_time
    return Budget(estimator.max_iter, estimator.tol, deadline)


def validation_score(estimator, validation, task):
    """Return the score of a task at its current coefficients."""
    model = copy.copy(estimator)
    if validation.is_split:
        vars(model).pop("feature_names_in_", None)
    model.coef_, model.intercept_ = coefficients(task.states, estimator.average)
    y = estimator._scored_target(model, validation.y, task.number)
    return validation.score(check_scoring(estimator, estimator.scoring), model, y)


def round_parameters(estimator, tasks, total):
    """Round the parameters to single precision; return what each objective loses.

    The losses are relative; the certificate becomes that of what is returned.
    """
    relative = []
    for task in tasks:
        v = task.parameters()
        value = task.value(v)
        rounded = v.astype(np.float32).astype(np.float64)
        lost = task.value(rounded) - value
        task.set_parameters(rounded)
        estimator.duality_gap_[task.number] += total * max(lost, 0.0)
        relative.append(lost / max(abs(value), np.finfo(np.float64).tiny))
    return relative


def assign_coefficients(estimator, dtype):
    """Set the coefficients of all states, if they are numbers."""
    coef, intercept = coefficients(estimator._states, estimator.average)
    coef, intercept = coef.astype(dtype), intercept.astype(dtype)
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise ValueError(
            "Floating-point overflow: the coefficients are not finite. Scale the "
            "features with StandardScaler or MinMaxScaler, or lower eta0."
        )
    estimator._set_coefficients(coef, intercept)
