"""Losses with kinks and an l2 penalty: dual steps, then Newton's method.

Dual steps (:class:`~sklearn_awsgd._kernels._kinks.KinkSteps`) are exact along each row
and need no rounding. The first rows are drawn by what is learned of them; then sweeps
set aside the rows that have nothing to say, and stop by the duality gap of the rows as
they are met. A pass over all rows tells how far that is true. Where sweeps become slow,
the rows that were not set aside are solved by Newton's method with multipliers. Of rows
that are far more than their columns all are, after the draws of plain AW-SGD.

Constants were chosen on the sets that ``multipliers.py`` names, and on cover_2v4,
"rare normal" and "rare correlated".
"""

import math
from dataclasses import replace

import numpy as np

from sklearn_awsgd._linear.curvature import MOST_PARAMETERS, expectation
from sklearn_awsgd._linear.phases.descent import Report
from sklearn_awsgd._linear.phases.dual import curvature_ratio, hold_intercept
from sklearn_awsgd._linear.phases.kinks import POLISHED
from sklearn_awsgd._linear.phases.multipliers import (
    CURVATURE_ROWS_PER_COLUMN,
    RowsInPlay,
    minimize_with_multipliers,
)
from sklearn_awsgd._linear.phases.sampling import count_first_draws, sample_first
from sklearn_awsgd._solver.runs import Outcome

# On wide data the curvature of a row, relative to what the penalty gives it: beyond
# this, passes over all rows are quicker. Chosen on newsgroups.
LARGEST_KINK_RATIO = 800.0
# First draws, as a share of the rows, at most.
SHARE_DRAWN_LEARNED = 1 / 2
# Least tolerance: closer to the optimum rounding decides. So it does where hardly
# anything is left of the objective, relative to that of the best constant.
LEAST_KINK_TOL = 1e-10
LEAST_VALUE = 1e-10
# Flops of all rows' curvature below which rounding decides in any case.
TINY = 5e4
# What a sweep costs, in passes over the same rows; sweeps whose rate is looked at
# together, at least; and the passes that Newton's method takes.
SWEEP_COST = 4.0
N_RATES = 2
NEWTON_PASSES = 25
# Numbers that a pass looks at in the time of the calls of a Newton step; and what this
# step costs at most, in passes, where there are no sweeps.
NEWTON_CALLS = 100_000
CHEAP_NEWTON_STEP = 1.5
# How well the rows in play are solved, relative to what is asked for in the end.
SHARE_IN_PLAY = 0.7
# Rounds of Newton's method, each with the rows that the last one missed.
MOST_ROUNDS = 30
# Share of the rows in play from which on copying them does not pay: all rows are.
MOST_COPIED = 0.5


def plan_kink_steps(task):
    """Return what holds the intercept, or None where these steps do not suit a task.

    On wide data they are for a penalty that is felt, and begin at zero.
    """
    l2 = task.penalty.l2
    suited = task.has_dual_steps and not task.is_smooth and not task.data.is_source
    if not (suited and l2 > 0 and task.penalty.l1 == 0):
        return None
    y = task.target.numbers()
    z = np.full(len(y), task.states[0]["intercept"][0])
    # The curvature of a parabola as high as the loss at the distance of the targets.
    value = expectation(task.loss(y, z)[0], task.data.mass)
    curvature = value / task.target.spread**2
    ratio = curvature_ratio(curvature, task.data.mass, task.data.norms2, l2)
    is_wide = task.n_features >= MOST_PARAMETERS
    if is_wide and (task.has("coef") or not 0 < ratio <= LARGEST_KINK_RATIO):
        return None
    return hold_intercept(task, curvature if value > 0 else 1.0)


class KinkRun:
    """Sweeps of dual steps and rounds of Newton's method, and what is known of them.

    Parameters
    ----------
    task : LinearTask
        Changed by the sweeps.
    objective : LinearObjective
        That of the task.
    problem : KinkSteps or None
        Has made the first draws; None where there are no sweeps.
    least : float
        Objective below which rounding decides.
    budget : Budget
        What is left after them.
    record : callable
        Called after each pass with the number of passes so far, the objective, its gap
        or NaN, and the parameters or None for those of the task.

    Attributes
    ----------
    here : Evaluation or None
        The last one, of all rows.
    """

    def __init__(self, task, objective, problem, least, budget, record):
        self.task, self.problem, self.budget = task, problem, budget
        self.least = least
        self._record, self._n_recorded = record, 0
        self.objective = objective
        self.tol = max(budget.tol or 0.0, LEAST_KINK_TOL)
        # What is tried: where passes cost nothing, rounding may decide.
        is_tiny = self.objective.newton_flops() <= TINY
        self.goal = min(self.tol, POLISHED) if is_tiny else self.tol
        self.here, self._cost = None, 0.0

    @property
    def n_passes(self):
        """Passes over all rows, or as many numbers."""
        return math.ceil(self._cost)

    @property
    def is_spent(self):
        """Whether passes or time are over, but for a last look."""
        return self.budget.is_spent(self.n_passes + 1)

    @property
    def is_there(self):
        """Whether what is tried is reached for certain."""
        return self._is_within(self.goal)

    @property
    def converged(self):
        """Whether the tolerance is."""
        return self._is_within(self.tol)

    def _is_within(self, tol):
        here = self.here
        return here is not None and here.gap <= tol * max(here.value, self.least)

    def spend(self, cost, value, gap=np.nan, v=None):
        """Count passes, or parts of one, and record what they have led to."""
        self._cost += cost
        while self._n_recorded < self.n_passes:
            self._n_recorded += 1
            self._record(self._n_recorded, value, gap, v)

    def look(self, v):
        """Evaluate parameters on all rows."""
        self.here = self.objective(v)
        self.spend(1, self.here.value, self.here.gap, v)

    def sweep(self):
        """Sweep until the tolerance is reached, or Newton's method is quicker."""
        problem, task, gaps, ratio = self.problem, self.task, [], 1.0
        while not self.is_spent:
            share = problem.n_active / task.n_samples
            gap, value = problem.sweep()
            self.spend(share, value + gap)
            gaps.append(gap)
            goal = self.goal * max(value + gap, self.least)
            if ratio * gap <= goal:
                self.objective.mix_dual(*problem.dual_point())
                self.look(task.parameters())
                if self.is_there:
                    return
                # The gap over that of the rows as they were met, at least.
                ratio = max(self.here.gap / max(gap, 1e-300), 2 * ratio)
                problem.activate()
            if self._is_slow(gaps, goal / ratio):
                return

    def _is_slow(self, gaps, goal):
        """Return whether sweeps would take longer than Newton's method."""
        if self.task.n_features >= MOST_PARAMETERS or len(gaps) <= N_RATES:
            return False
        # Of the last half of the sweeps, as single ones are uneven.
        n = max(N_RATES, len(gaps) // 2)
        if gaps[-1] <= 0 or gaps[-1] >= gaps[-1 - n]:
            # Rounding has taken what sweeps could tell, or they lead nowhere.
            return True
        rate = (gaps[-1] / gaps[-1 - n]) ** (1 / n)
        n_sweeps = math.log(max(gaps[-1] / max(goal, 1e-300), 1.0)) / -math.log(rate)
        newton = newton_step_cost(self.objective, self.problem.n_active)
        return SWEEP_COST * n_sweeps > NEWTON_PASSES * newton

    def solve_swept(self):
        """Go on by Newton's method from what the sweeps have left."""
        problem = self.problem
        self.objective.mix_dual(*problem.dual_point())
        rows = np.sort(problem.order[: problem.n_active])
        self.solve(rows, np.array(problem.variates))

    def solve_warm(self):
        """Go on by Newton's method from other coefficients, unless they will do."""
        v = self.task.parameters()
        self.look(v)
        if not (self.is_there or self.is_spent):
            self.solve(np.arange(self.task.n_samples), self._slopes(v))

    def solve(self, rows, variates):
        """Go on by Newton's method, with these rows in play and variates of all."""
        task = self.task
        rng = np.random.Generator(task.generator)
        v, goal = task.parameters(), SHARE_IN_PLAY * self.goal
        for _ in range(MOST_ROUNDS):
            if len(rows) > MOST_COPIED * task.n_samples:
                rows = np.arange(task.n_samples)
            play = RowsInPlay(task, rows, variates)
            v, variates[rows], reached = minimize_with_multipliers(
                play, v, variates[rows], (goal, self.least), self, rng
            )
            self.look(v)
            if self.is_there or self.is_spent or not reached:
                return
            # With the rows that are not on the line of their variate.
            rows = np.union1d(rows, np.flatnonzero(variates != self._slopes(v)))

    def _slopes(self, v):
        """Return the derivatives of all rows."""
        low, high = self.task.loss.flat_ends(self.task.target.numbers())
        parts = self.task.data.blocks.map(lambda X, part: X.dot(v[:-1]) + v[-1])
        z = np.concatenate(list(parts))
        self.spend(1, self.here.value, self.here.gap, v)
        return np.where(z < low, -1.0, np.where(z > high, 1.0, 0.0))


def newton_step_cost(objective, n_rows):
    """Return what a Newton step with some rows in play costs, in passes over them."""
    columns, per_row = objective.n_columns, objective.n_nonzero / objective.n_samples
    n_sampled = min(n_rows, CURVATURE_ROWS_PER_COLUMN * columns)
    flops = n_sampled * per_row**2 + columns**3 / 3
    # Rows may be empty.
    return 1 + (flops / 10 / 4 + NEWTON_CALLS) / max(per_row * n_rows, 1.0)


def take_kink_steps(task, hold, draws, budget, log):
    """Go to the optimum; return the Outcome of the first draws, and a Report or None.

    From coefficients that are not zero, there are neither draws nor sweeps: dual steps
    have to begin at zero.

    Parameters
    ----------
    task : LinearTask
        Suits :func:`plan_kink_steps`, which says what holds its intercept.
    hold : float
        That.
    draws : Draws
        How rows are drawn.
    budget, log : Budget and Log
        What may be spent, and what is recorded.
    """
    fresh, least = not task.has("coef"), LEAST_VALUE * task.constant_loss()
    objective, problem, outcome = task.make_objective(), None, Outcome()
    is_tall = task.n_features < MOST_PARAMETERS
    is_tall &= newton_step_cost(objective, task.n_samples) <= CHEAP_NEWTON_STEP
    if fresh and is_tall:
        outcome = sample_first(task, draws, budget, log)
    elif fresh:
        rows = draws.space.rows
        problem = task.make_kink_problem(hold, rows, draws.space.shuffle)
        n_first = count_first_draws(task, draws)
        n_first = min(n_first, math.ceil(SHARE_DRAWN_LEARNED * draws.n_rows))
        opened = draws.open(task, task.first_dual_norms2)
        one_pass = replace(budget, max_passes=1)
        outcome = draws.run(problem, opened, n_first, one_pass, log)
        draws.keep(task, opened)
        del opened  # Its tables are as large as several numbers for each row.

    def record(n_passes, value, gap, v):
        at = outcome.n_draws + n_passes * draws.n_rows
        if v is None:
            # What rows have lost as they were met is an estimate, as of draws.
            log.add_piece(at, value, cost=log.pass_cost, variance_gain=1.0)
            log.end_pass(log.scale * value, 1.0)
        else:
            log.add_exact(at, value, gap, lambda: v)

    left = budget.after(outcome.n_iter)
    if left.max_passes <= 0:
        return outcome, None
    run = KinkRun(task, objective, problem, least, left, record)
    if problem is not None:
        run.sweep()
        if not (run.is_there or run.is_spent) and task.n_features < MOST_PARAMETERS:
            run.solve_swept()
        elif run.here is None:
            run.objective.mix_dual(*problem.dual_point())
            run.look(task.parameters())
    elif fresh:
        run.solve(np.arange(task.n_samples), np.zeros(task.n_samples))
    else:
        run.solve_warm()
    return outcome, Report(run.here, run.n_passes, run.converged)
