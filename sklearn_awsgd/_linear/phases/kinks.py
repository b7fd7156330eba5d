"""To the optimum by exact passes, over the kinks of a loss that has any.

Kinks are rounded, over widths that shrink until they matter less than the tolerance.
"""

from dataclasses import replace

import numpy as np

from sklearn_awsgd._linear.phases.descent import CHEAP, ROUNDING_ERROR, descend
from sklearn_awsgd._linear.phases.newton import NewtonDirection
from sklearn_awsgd._linear.phases.proximal import ProximalDirection
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
        if self.best is None or there.value <= self.best.value:
            self.best = there
        self.log.add_exact(
            self.n_draws + (self.n_before + n_passes) * self.task.n_samples,
            self.best.value,
            self.best.gap + ROUNDING_ERROR * self.width,
            self._parameters,
        )

    def _parameters(self):
        v, leave = self.best.v, self.task.leave
        return v if leave is None else leave(v)


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
    v = task.parameters()
    while True:
        record.begin(width)
        objective = task.make_objective(width)
        if dual_point is not None:
            objective.mix_dual(*dual_point)
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
            )
        width = max(width / SHRINKING, last)
