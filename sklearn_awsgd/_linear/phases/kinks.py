"""To the optimum by exact passes, over the kinks of a loss that has any.

Kinks are rounded, over widths that shrink until they matter less than the tolerance. Of
many rows, only those next to a kink are looked at from the second width on: the others
lie on a line of their loss, and what is missed if one of them crosses a kink is seen by
a pass over all rows at the end of each width.

Constants of the active rows were chosen on w8a and on two generated sets like "rare
normal" and "rare correlated" of ``benchmarks/bench_every_loss.py``.
"""

import math
from dataclasses import replace

import numpy as np

from sklearn_awsgd._linear.active_rows import ActiveRows
from sklearn_awsgd._linear.objectives import LinearObjective
from sklearn_awsgd._linear.phases.descent import CHEAP, ROUNDING_ERROR, descend
from sklearn_awsgd._linear.phases.newton import NewtonDirection
from sklearn_awsgd._linear.phases.proximal import ProximalDirection, add_l1_penalty
from sklearn_awsgd._linear.phases.softmax_proximal import SoftmaxProximalDirection
from sklearn_awsgd._linear.phases.working_set import (
    WorkingSetDirection,
    needs_working_set,
)

# Passes to spend on polishing the solution for one width, and the relative
# suboptimality that this aims at.
MOST_POLISHING = 60
POLISHED = 1e-14
# What a width is divided by, and the least tolerance that decides the last of them.
SHRINKING = 3
LEAST_TOL = 1e-9
# Numbers in the rows from which on it pays to look at the active ones alone.
MANY_NUMBERS = 100_000
# How far from a kink rows are active, in widths of the last rounding, and what that is
# multiplied with if rows were missed; the most active rows, as a share of all.
REACH = 4.0
FARTHER = 4.0
MOST_ACTIVE = 0.6
# Fewest active rows, relative to the parameters: so many lie on kinks at the optimum.
ACTIVE_PER_COLUMN = 2
# What the same width is divided by where active rows are few, and how well it is solved
# before the last one: a share of the width, relative to the objective.
ACTIVE_SHRINKING = 6
SHARE_OF_WIDTH = 0.02
# How well the last width is solved, relative to the tolerance: where passes cost
# little, the certificate is worth some.
SHARE_OF_TOL = 0.02
# Passes over active rows before one over all rows tells what they are worth.
MOST_ON_ACTIVE = 40


class _Recorder:
    """Writes the exact passes of several descents into one log.

    A trial step that is taken back is a pass, but no place to be: the best is recorded.
    """

    def __init__(self, log, n_draws, task):
        self.log, self.n_draws, self.task = log, n_draws, task
        self.n_before = 0
        self.begin(0.0)

    def begin(self, width):
        """Begin with another width, so with another objective."""
        self.width, self.best = width, None

    def __call__(self, there, n_passes):
        """Record a pass."""
        above = 0.0 if self.best is None else there.value - self.best.value
        if above <= 0:
            self.best = there
        elif there.gap < self.best.gap + above:
            # What bounds the minimum from there bounds it from here too.
            self.best = replace(self.best, gap=max(there.gap - above, 0.0))
        self.log.add_exact(
            self.n_draws + (self.n_before + n_passes) * self.task.n_samples,
            self.best.value,
            self.best.gap + ROUNDING_ERROR * self.width,
            lambda: self.best.v,
        )


def choose_direction(task, objective, width, tol, rng):
    """Return the Direction that suits a task whose kinks are rounded over a width."""
    if needs_working_set(task):
        model = task.make_column_model(width)
        return WorkingSetDirection(objective, tol, rng, task.penalty.l1, model)
    if task.penalty.l1 > 0 and task.n_models > 1:
        return SoftmaxProximalDirection(objective, tol, rng, task.penalty.l1)
    # Where a loss is a line it has no curvature, which steps have to cope with.
    if task.penalty.l1 > 0 or (task.has_lines and task.has_proximal_steps):
        return ProximalDirection(objective, tol, rng, task.penalty.l1)
    return NewtonDirection(objective, tol, rng)


def descend_over_kinks(task, n_draws, budget, log, dual_point=None):
    """Go from the parameters of a task, which stay, to the optimum; return a Report.

    The log knows of `n_draws` before; the bound may begin with a `dual_point`.
    """
    tol = 0.0 if budget.tol is None else budget.tol
    rng = np.random.Generator(task.generator)
    record = _Recorder(log, n_draws, task)
    width = 0.0 if task.is_smooth else task.target.spread
    before = last = report = None
    v = task.parameters()
    while True:
        record.begin(width)
        objective = task.make_objective(width)
        if dual_point is not None:
            objective.mix_dual(*dual_point)
        is_active = before is not None and looks_at_active_rows(task, objective)
        if is_active:
            level = before, width, last, report.end.value
            report = _descend_active(task, objective, v, level, budget, record, rng)
            is_active = report is not None
        if not is_active:
            report = _descend_all(task, objective, v, width, budget, record, rng)
        v = report.end.v
        # A power of two, so that runs which differ by rounding agree on it.
        last = 2.0 ** np.floor(
            np.log2(max(tol, LEAST_TOL) * report.end.value / 2 + 1e-12)
        )
        over = record.n_before >= budget.max_passes
        if width <= last or not report.converged or over:
            return replace(
                report,
                n_passes=record.n_before,
                converged=bool(report.converged and width <= last),
                width=width,
                curvature=objective.curvature,
            )
        before, width = (
            width,
            max(width / (ACTIVE_SHRINKING if is_active else SHRINKING), last),
        )


def _descend_all(task, objective, v, width, budget, record, rng):
    """Descend for one width by passes over all rows; return a Report."""
    tol = 0.0 if budget.tol is None else budget.tol
    # Where passes cost nothing, rounding may decide, as for smooth losses; but
    # between kinks so sharp that it does not soon, the tolerance will do.
    cheap = not objective.sharp and objective.newton_flops() <= CHEAP
    for goal, most in [(POLISHED, MOST_POLISHING)] * cheap + [(tol, np.inf)]:
        left = budget.max_passes - record.n_before
        report = descend(
            choose_direction(task, objective, width, goal, rng),
            objective.canonical(v),
            replace(budget, max_passes=min(most, left)),
            record,
            enough=tol,
        )
        record.n_before += report.n_passes
        v = report.end.v
        if report.converged or budget.is_spent(record.n_before):
            break
    return report


def looks_at_active_rows(task, objective):
    """Return whether to look at active rows alone: where they are at hand, and many."""
    return (
        task.has_active_rows
        and not task.is_wide
        and objective.n_nonzero >= MANY_NUMBERS
        and not needs_working_set(task)
    )


def _descend_active(task, objective, v, level, budget, record, rng):
    """Descend for one width by passes over active rows; return a Report.

    A line is nowhere above the rounded loss. So what the rows as they are cost more, at
    the minimum over the active ones, is all that was missed.

    Return None where too many rows are active. `level` has the last width, that of the
    objective, the one to end with, and the value so far.
    """
    before, width, last, value = level
    tol = 0.0 if budget.tol is None else budget.tol
    loss, penalty, reach = task.loss.rounded(width), task.penalty, REACH * before
    sums, points, is_last = task.make_sums(0.0), [v], width <= last
    goal = SHARE_OF_TOL * tol
    if not is_last:
        goal = max(goal, SHARE_OF_WIDTH * width / max(value, 1e-300))
    while True:
        active = ActiveRows(sums, points, reach)
        record.n_before += 1
        share = active.n_rows / task.n_samples
        if share > MOST_ACTIVE or budget.is_spent(record.n_before):
            return None
        if active.n_rows < ACTIVE_PER_COLUMN * objective.n_columns:
            reach *= FARTHER
            continue
        inner = LinearObjective(
            active.make_sums(loss),
            penalty.l2,
            task.fit_intercept,
            sharp=False,
            alpha_l1=penalty.l1,
        )
        left = (budget.max_passes - record.n_before) / max(share, 1e-3)
        values = []
        report = descend(
            choose_direction(task, inner, width, goal, rng),
            v,
            replace(budget, max_passes=min(int(left) + 1, MOST_ON_ACTIVE)),
            lambda there, n_passes: values.append(there.value),
            enough=tol / 2,
        )
        record.n_before += math.ceil(share * report.n_passes)
        there = add_l1_penalty(objective(report.end.v), penalty.l1)
        missed = max(there.value - report.end.value, 0.0)
        there.gap = min(there.gap, missed + report.end.gap)
        record(there, 1)
        record.n_before += 1
        enough = report.converged and missed <= tol / 4 * there.value
        if enough or (not is_last and there.value <= value):
            return replace(report, end=there, converged=True)
        if budget.is_spent(record.n_before):
            return replace(report, end=there, converged=False)
        if there.value < values[0]:
            # Better than before: from here.
            v, points = there.v, [there.v]
        else:
            points.append(there.v)
