"""A fit of a factorization: passes of draws, then exact solutions where they pay."""

import warnings
from dataclasses import replace
from functools import partial

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd._callbacks import NoTask, fit_with_callbacks, with_callbacks
from sklearn_awsgd._factorization.columns import EquationSolver, visit_blocks
from sklearn_awsgd._factorization.costs import is_common, solving_pays
from sklearn_awsgd._factorization.either_side import EitherSideSolver
from sklearn_awsgd._factorization.fetching import SourceEntries, SourceProblem
from sklearn_awsgd._factorization.finish import (
    SAMPLING_PASSES,
    AlternatingSolver,
    ObservedSolver,
    solve_alternately,
)
from sklearn_awsgd._factorization.row_solver import make_loss
from sklearn_awsgd._factorization.training import padded, run_passes
from sklearn_awsgd._kernels._factorization import FactorizationProblem
from sklearn_awsgd._kernels.settings import Biases, EntryRate, StoredValues
from sklearn_awsgd._solver.progress import Reporter
from sklearn_awsgd._solver.records import Budget, Log
from sklearn_awsgd._solver.runs import Diverged
from sklearn_awsgd._solver.stopping import StopRule

# The default rate, in units of 1 / (curvature scale sqrt(n_components)), and the draws
# for each parameter of the model after which it has halved.
AUTO_RATE = 0.4
AUTO_DRAWS = 10


@with_callbacks
def train_with_callbacks(estimator, data, X, finish=None):
    """Train, and tell callbacks of it, with what was given to fit."""
    with fit_with_callbacks(estimator, X, max_subtasks=estimator.max_iter) as fit_task:
        factors = estimator._random_factors(data.X.shape[0])
        factors = train(estimator, data, factors, estimator.max_iter, fit_task, finish)
        if finish is None:
            estimator._set_error(estimator._mean_loss(data, factors))


def train(estimator, data, row_factors, max_iter, fit_task=None, finish=None):
    """Train on the rows of `data`, assign fitted attributes, return row factors.

    `max_iter` is None for a chunk of a stream; `fit_task` is for callbacks; with
    `finish` a fit ends on other rows than these, as by `solve_alternately` on these.
    """
    streaming = max_iter is None
    estimator._pass_length = None if streaming else draws_of_pass(estimator, data)
    budget = Budget(1, None) if streaming else Budget(max_iter, estimator.tol)
    k = estimator._n_factors
    rows = {
        "rows": padded(row_factors[:, :k]),
        "row_bias": np.zeros(len(row_factors)),
    }
    if row_factors.shape[1] > k:
        rows["row_bias"][:] = row_factors[:, k]
    if getattr(estimator.sampler_, "time_aware", False) and data.costs is None:
        why = "access_cost is not given; give access_cost."
        if isinstance(data, SourceEntries):
            why = "rows of a source are read in blocks, each once in a pass."
        warnings.warn(
            f"sampler={estimator.sampler!r} is time-aware, but all entries cost the "
            f"same: {why}",
            UserWarning,
            stacklevel=3,
        )
    make = partial(make_problem, estimator, rate=make_rate(estimator, data))
    if isinstance(data, SourceEntries):
        problem = SourceProblem(rows | estimator._columns, make)
    else:
        problem = make(data, rows | estimator._columns)
    log = Log(
        progress=Reporter(
            "",
            estimator.verbose,
            target="least fall",
            tol=budget.tol,
            task=NoTask() if fit_task is None else fit_task,
            attributes=partial(estimator._column_attributes, data.X.dtype),
            stopped=budget.stopped,
        ),
        pass_cost=data.pass_cost,
    )
    elsewhere = finish is not None
    should_finish = (
        estimator.learning_rate == "auto"
        and estimator.step == "proximal"
        and budget.tol is not None
        and not elsewhere
    )
    n_factors = k + estimator.fit_bias
    if should_finish and solving_pays(
        data, estimator.loss, n_factors, estimator._pass_length
    ):
        finish = partial(
            solve_alternately,
            partial(make_solver, estimator, data),
            rows,
            estimator._columns,
            pass_length=estimator._pass_length,
        )
    first = budget
    if finish is not None:
        first = replace(budget, max_passes=min(max_iter, SAMPLING_PASSES), tol=None)
    outcome = run(estimator, problem, data, first, log, streaming)
    if finish is not None:
        n_solved, outcome.converged = finish(budget.after(outcome.n_iter), log)
        estimator.n_iter_ += n_solved
    if data.kind == "missing" and not streaming and not elsewhere:
        # Nothing is known of a column without entries, also not its first factors.
        estimator._columns["columns"][data.column_counts() == 0] = 0.0
    estimator._history.extend([log])
    missed = budget.tol is not None and not outcome.converged
    if missed and not budget.stopped.is_set():
        warnings.warn(
            f"The objective was still falling after max_iter={max_iter} passes; "
            "raise max_iter or tol.",
            ConvergenceWarning,
            stacklevel=5,
        )
    elif should_finish and finish is None:
        warnings.warn(
            "Passes of draws have no longer much effect, but the objective may be "
            "well above its minimum: exact solutions, with which fit ends elsewhere, "
            f"would take too long with n_components={estimator.n_components} and "
            f"loss={estimator.loss!r} here. Lower tol for more passes.",
            ConvergenceWarning,
            stacklevel=5,
        )
    estimator.variance_gain_ = outcome.variance_gain
    estimator.effective_sample_size_ = outcome.effective_sample_size
    estimator.t_ = 1.0 + estimator._columns["clock"][0]
    row_factors = rows["rows"][:, :k]
    if estimator.fit_bias:
        row_factors = np.column_stack([row_factors, rows["row_bias"]])
    vars(estimator).update(estimator._column_attributes(data.X.dtype))
    return row_factors


def run(estimator, problem, data, budget, log, streaming):
    """Run the passes; return their outcome."""
    trying = estimator.sampler == "auto" and not streaming and budget.max_passes > 1
    try:
        outcome, opened = run_passes(
            problem,
            data,
            estimator.sampler_,
            estimator._generator,
            log,
            trying=trying,
            n_threads=effective_n_jobs(estimator.n_jobs),
            pass_length=draws_of_pass(estimator, data),
            budget=budget,
            batch_size=estimator.batch_size,
            should_stop=StopRule(budget.tol, estimator.n_iter_no_change, together=True),
        )
    except Diverged as error:
        raise ValueError(overflow_message(estimator)) from error
    estimator.n_iter_ = outcome.n_iter
    estimator.row_probabilities_ = opened.row_probabilities()
    estimator.column_probabilities_ = opened.column_probabilities()
    return outcome


def draws_of_pass(estimator, data):
    """Return the number of draws of a pass."""
    if data.kind != "zeros":
        return data.n_entries
    n_parameters = sum(data.X.shape) * estimator.n_components
    return min(data.n_entries, max(2 * data.n_stored, n_parameters))


def make_rate(estimator, data):
    """Return the rates of the steps."""
    n_rows, n_columns = data.X.shape
    unit = estimator._curvature * estimator._z_scale * np.sqrt(estimator.n_components)
    eta0, offset, power = estimator.eta0, 1.0, 1.0
    if estimator.learning_rate == "auto":
        eta0 = (AUTO_RATE if eta0 is None else eta0) / unit
        offset = AUTO_DRAWS * (n_rows + n_columns) * estimator.n_components
    elif estimator.learning_rate == "constant":
        eta0 = AUTO_RATE / unit if eta0 is None else eta0
        power = 0.0
    else:
        offset = data.n_entries / 2
        eta0 = AUTO_RATE / unit if eta0 is None else eta0 / offset
    return EntryRate(eta0, offset, power, estimator.step == "proximal")


def make_problem(estimator, data, state, rate):
    """Return the compiled problem of some entries."""
    values, weights = data.stored()
    return FactorizationProblem(
        StoredValues(values, weights, data.unstored_weight),
        state,
        make_loss(estimator.loss, estimator._epsilon),
        estimator._ridge,
        Biases(estimator.global_bias_, estimator._gain),
        rate,
    )


def make_solver(estimator, data, row_factors, column_factors):
    """Return what solves for all rows and all columns in turn."""
    scales, from_source = estimator._scales(), isinstance(data, SourceEntries)
    n_threads = effective_n_jobs(estimator.n_jobs)
    sides = row_factors, column_factors, scales
    if is_common(data, estimator.loss):
        return AlternatingSolver(data.row_blocks(n_threads), *sides, from_source)
    if from_source:
        return EquationSolver(partial(visit_blocks, data, row_factors), *sides)
    if estimator.loss == "squared_error" and data.kind == "missing":
        return ObservedSolver(data, *sides, n_threads)
    return EitherSideSolver(data, *sides, n_threads)


def overflow_message(estimator):
    """Return what to say when numbers have grown out of bounds."""
    remedy = "scale X"
    if estimator.step == "gradient":
        remedy = f"lower eta0={estimator.eta0!r} or use step='proximal'"
    return f"Floating-point overflow: the steps diverged; {remedy}."
