"""The phases of training in their order."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sklearn_awsgd._linear.phases.conjugate import (
    suits_conjugate_gradients,
    take_conjugate_steps,
)
from sklearn_awsgd._linear.phases.dual import plan_dual_steps, take_dual_steps
from sklearn_awsgd._linear.phases.kept_rows import descend_on_kept_rows
from sklearn_awsgd._linear.phases.kink_steps import plan_kink_steps, take_kink_steps
from sklearn_awsgd._linear.phases.kinks import descend_over_kinks
from sklearn_awsgd._linear.phases.sampling import (
    first_draws_pay,
    sample_first,
    sample_until_stopped,
)
from sklearn_awsgd._linear.phases.softmax_dual import (
    suits_dual_steps,
    take_softmax_steps,
)
from sklearn_awsgd._linear.phases.span import CHEAP_SPAN, Span, has_span, span_cost
from sklearn_awsgd._linear.phases.working_set import needs_working_set
from sklearn_awsgd._solver.records import Log
from sklearn_awsgd._solver.runs import Outcome

# Share of the objective that the basis of a span may lose where tol is None.
ROUNDING_OF_BASIS = 1e-9
# Passes after which dual steps in a span may be slow: where curvatures have jumps, a
# descent takes far longer. Chosen on normal rows and on rows with 20 factors.
PATIENCE = 30


@dataclass(frozen=True)
class Rules:
    """How tasks are trained."""

    # Whether to go on to the optimum by exact passes; else AW-SGD alone, which
    to_optimum: bool = True
    # begins at the best constants, where they are known: targets may be far from zero,
    # and the first rows of a stream may be of one class;
    begin_at_constants: bool = True
    # and stops after so many passes without progress
    n_iter_no_change: int = 5
    # of the objective, or of a task's score on held-out data.
    score: Callable | None = None


def train(task, draws, budget, log, rules):
    """Train a task.

    Parameters
    ----------
    task : Task
        Changed in place.
    draws : Draws
        How rows are drawn.
    budget, log : Budget and Log
        What may be spent, and what is recorded.
    rules : Rules
        How.

    Returns
    -------
    outcome : Outcome
        How it ended.
    """
    if rules.to_optimum:
        return train_to_optimum(task, draws, budget, log)
    fresh = not (task.has("clock") or task.has("coef"))
    if rules.begin_at_constants and task.fit_intercept and fresh:
        if task.target.has_all_groups:
            task.begin_at_constants()
    return sample_until_stopped(
        task, draws, budget, log, rules.n_iter_no_change, rules.score
    )


def train_to_optimum(task, draws, budget, log):
    """Train a task by AW-SGD or dual steps, and then to the optimum by exact passes.

    The parameters and the result are those of :func:`train`.
    """
    outcome, report, dual_point = Outcome(), None, None
    if not task.has("coef") and task.fit_intercept:
        if task.target.is_constant:
            return solve_constant(task, log)
        task.begin_at_constants()
    cost = span_cost(task)
    # Dual steps go back and forth over all rows, which a source gives in order.
    hold = plan_kink_steps(task) if cost > CHEAP_SPAN else None
    if hold is not None:
        outcome, report = take_kink_steps(task, hold, draws, budget, log)
        if report is None:
            return outcome
    elif not task.has("coef"):
        hold = plan_dual_steps(task)
        if hold is not None:
            dual = take_dual_steps(task, hold, draws, budget, log)
            outcome, report, dual_point = dual.outcome, dual.report, dual.dual_point
        elif budget.max_passes > 1 and suits_dual_steps(task):
            outcome, report = take_softmax_steps(task, budget, log)
        elif cost > CHEAP_SPAN and not needs_working_set(task):
            # A single pass is no more than a look at where an exact step begins.
            if budget.max_passes == 1 or first_draws_pay(task, draws):
                outcome = sample_first(task, draws, budget, log)
        if task.data.is_source:
            descend_on_kept_rows(task, budget.after(outcome.n_iter))
    if report is None:
        left = budget.after(outcome.n_iter)
        if left.max_passes <= 0:
            return outcome
        if cost > CHEAP_SPAN and suits_conjugate_gradients(task, left):
            report = take_conjugate_steps(task, outcome.n_draws, left, log)
    if report is None:
        outcome, report = descend_within(
            cost, task, draws, outcome, left, log, dual_point
        )
        if report is None:
            return outcome
    task.row_curvatures = report.end.curvatures
    return conclude(task, outcome, report, draws.n_rows)


def conclude(task, outcome, report, n_rows):
    """Set what a descent over so many rows has found; return the Outcome of it all."""
    task.set_parameters(report.end.v, report.n_passes * n_rows)
    task.curvature = report.curvature
    outcome.n_iter += report.n_passes
    outcome.converged = report.converged
    # A bound is a difference of sums that may be as large as the loss of no model:
    # where hardly anything is left of them, that is rounding.
    rounding = np.finfo(np.float64).eps * task.useless_loss()
    outcome.duality_gap = max(report.gap, rounding)
    return outcome


def descend_within(cost, task, draws, outcome, budget, log, dual_point):
    """Go to the optimum by exact passes, in the span of the rows where that pays.

    Passes over the rows as they are come first unless they cost more than the span;
    what they have not reached by then, the span will.

    Parameters
    ----------
    cost : float
        That of the span, in passes.
    task, draws, budget, log : Task, Draws, Budget and Log
        As for :func:`train`.
    outcome : Outcome
        Of what came before; changed.
    dual_point : tuple or None
        What the bound may begin with.

    Returns
    -------
    outcome : Outcome
        With what was drawn.
    report : Report or None
        None where passes or time ended it before there was one.
    """
    n_passes = 0
    if cost > CHEAP_SPAN:
        first = replace(budget, max_passes=min(budget.max_passes, cost))
        report = descend_over_kinks(task, outcome.n_draws, first, log, dual_point)
        spent = budget.is_spent(report.n_passes)
        if report.converged or spent or not has_span(task):
            return outcome, report
        n_passes = report.n_passes
        task.set_parameters(report.end.v, n_passes * task.n_samples)
        outcome.n_draws += n_passes * task.n_samples
    outcome.n_iter += n_passes
    return train_in_span(task, draws, outcome, budget.after(n_passes), log)


def train_in_span(task, draws, before, budget, log):
    """Train a task in the span of its rows, and look at the rows as they are.

    The parameters and the results are those of :func:`descend_within`.
    """
    span, report, dual_point = Span(task), None, None
    inner, inner_log = (
        span.task,
        Log(log.problem, log.scale, log.progress, log.pass_cost),
    )
    # One pass is left for the rows as they are: the basis is exact up to rounding only.
    left, outcome = budget.after(1), Outcome()
    with span.told_outside(log.progress):
        hold = plan_kink_steps(inner)
        if hold is not None:
            outcome, report = take_kink_steps(inner, hold, draws, left, inner_log)
        elif inner.has_jumps and (hold := plan_dual_steps(inner)) is not None:
            # Dual steps do.
            for state in inner.states:
                state["coef"][:] = 0
            dual = take_dual_steps(inner, hold, draws, left, inner_log, PATIENCE)
            outcome, report, dual_point = dual.outcome, dual.report, dual.dual_point
        left = left.after(outcome.n_iter)
        if report is None and left.max_passes > 0:
            report = descend_over_kinks(
                inner, outcome.n_draws, left, inner_log, dual_point
            )
    log.extend([inner_log])
    task.set_parameters(span.parameters(inner.parameters()), inner.states[0]["clock"])
    if before.n_draws:
        # What was learned of the rows as they are.
        outcome = replace(
            before,
            n_iter=before.n_iter + outcome.n_iter,
            n_draws=before.n_draws + outcome.n_draws,
            duality_gap=outcome.duality_gap,
        )
    if report is None:
        return outcome, None
    inside = report.end
    end = task.make_objective(report.width)(span.parameters(inside.v))
    lost = abs(end.value - inside.value)
    is_little = lost <= (budget.tol or ROUNDING_OF_BASIS) * abs(end.value)
    # What was certified in another basis holds here as far as the basis does.
    gap = inside.gap + lost if is_little else end.gap
    report = replace(
        report,
        end=replace(end, gap=gap),
        n_passes=report.n_passes + 1,
        converged=report.converged and is_little,
        # It is in another basis.
        curvature=None,
    )
    n_draws = log.records[-1].draws + task.n_samples
    log.add_exact(n_draws, end.value, report.gap, lambda: end.v)
    return outcome, report


def solve_constant(task, log):
    """Solve a task where all rows have one target: nothing to sample.

    No loss is negative, so what is left of it bounds the suboptimality; a loss that is
    zero at infinity only would never fall by a last fraction.
    """
    task.set_constants()
    value = task.constant_loss()
    log.add_exact(task.n_samples, value, value)
    for state in task.states:
        state["clock"] += task.n_samples
    return Outcome(n_iter=1, converged=True, duality_gap=value)
