"""Losses with kinks and an l2 penalty: dual steps, then Newton's method.

Dual steps (:class:`~sklearn_awsgd._kernels._kinks.KinkSteps`) are exact along each row
and need no rounding. A few rows are drawn by what is learned of them; then sweeps
set aside the rows that have nothing to say, and stop by the duality gap of the rows as
they are met. A pass over all rows tells how far that is true. Where sweeps become slow,
the rows that were not set aside are solved by Newton's method with multipliers. Of rows
that are far more than their columns all are: after the draws of plain AW-SGD first
some, drawn in proportion to their gradients and weighed by one over that, then more of
them. Passes over all are few, and what a step promises may end them.

Constants were chosen on the sets that ``multipliers.py`` names, and on cover_2v4,
"rare normal" and "rare correlated".
"""

import math
from dataclasses import replace
from functools import cached_property

import numpy as np

from sklearn_awsgd._linear.curvature import systematic_sample
from sklearn_awsgd._linear.objectives import Evaluation
from sklearn_awsgd._linear.phases.descent import Report
from sklearn_awsgd._linear.phases.dual import (
    curvature_ratio,
    hold_intercept,
    rows_together,
)
from sklearn_awsgd._linear.phases.kinks import POLISHED
from sklearn_awsgd._linear.phases.multipliers import (
    CURVATURE_ROWS_PER_COLUMN,
    FIRST_WIDTH,
    RowsInPlay,
    begin_far,
    begin_near,
    conjugate_cost,
    curvature_cost,
    minimize_with_multipliers,
)
from sklearn_awsgd._linear.phases.sampling import count_first_draws, sample_first
from sklearn_awsgd._solver.runs import Outcome

# On wide data the curvature of a row, relative to what the penalty gives it: beyond
# this, passes over all rows are quicker. Chosen on newsgroups.
LARGEST_KINK_RATIO = 800.0
# First draws, as a share of the rows, at most: sweeps cost a fraction. Chosen on
# "rating", "timestamp", newsgroups, w8a and mammography.
SHARE_DRAWN_BEFORE_SWEEPS = 1 / 32
# Least tolerance: closer to the optimum rounding decides. So it does where hardly
# anything is left of the objective, relative to that of the best constant; a constant
# loses so much at least, relative to the targets: nothing for the perceptron.
LEAST_KINK_TOL = 1e-10
LEAST_VALUE = 1e-10
LEAST_CONSTANT = 1e-3
# Flops of all rows' curvature below which rounding decides in any case.
TINY = 5e4
# Numbers in rows up to which several sweeps are one call, and how many at most.
NUMBERS_IN_CALL = 40_000
MOST_IN_CALL = 8
# What a sweep costs, in passes over the same rows; sweeps whose rate is looked at
# together, at least; and the passes that Newton's method takes.
SWEEP_COST = 4.0
N_RATES = 2
NEWTON_PASSES = 25
# Numbers that a pass looks at in the time of the calls of a Newton step; and what this
# step costs at most, in passes, where there are no sweeps.
NEWTON_CALLS = 100_000
CHEAP_NEWTON_STEP = 2.0
# Rows next to a kink for each column, about, where a search ends.
CURVED_PER_COLUMN = 2
# Where rows are far more than columns, those that are drawn to begin with, for each
# column and as a share of all; how many times as many are next, and the most; their
# least slope; and how well they are solved, between these two.
DRAWN_PER_COLUMN = 50
SHARE_DRAWN = 1 / 32
DRAWN_GROWTH = 4
LARGEST_SHARE_DRAWN = 1 / 4
LEAST_ROUNDED = 0.05
DRAWN_TOL = 0.02
BEST_DRAWN_TOL = 0.002
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
    # The curvature of a parabola as high as the loss at the distance of the targets.
    value = task.constant_loss()
    curvature = value / task.target.spread**2
    ratio = curvature_ratio(curvature, task.data.mass, task.data.norms2, l2)
    if task.is_wide and (task.has("coef") or not 0 < ratio <= LARGEST_KINK_RATIO):
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
    record : callable, default=None
        Called after each pass with the number of passes so far, the objective, its gap
        or NaN, and the parameters or None for those of the task.

    Attributes
    ----------
    here : Evaluation or None
        The last one, of all rows.
    """

    def __init__(self, task, objective, problem, least, budget, record=None):
        self.task, self.problem, self.budget = task, problem, budget
        self.least = least
        self._record, self._n_recorded = record, 0
        self.objective = objective
        self.tol = max(budget.tol or 0.0, LEAST_KINK_TOL)
        # What is tried: where passes cost nothing, rounding may decide.
        is_tiny = self.objective.newton_flops() <= TINY
        self.goal = min(self.tol, POLISHED) if is_tiny else self.tol
        self.here, self._cost, self._least_expected = None, 0.0, -math.inf

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
        if here is None:
            return False
        left = min(here.gap, here.value - self._least_expected)
        return left <= tol * max(here.value, self.least)

    def estimate(self, least):
        """Learn what the minimum is at least, as far as steps tell."""
        self._least_expected = max(self._least_expected, least)

    def spend(self, cost, value, gap=np.nan, v=None):
        """Count passes, or parts of one, and record what they have led to."""
        self._cost += cost
        while self._n_recorded < self.n_passes:
            self._n_recorded += 1
            if self._record is not None:
                self._record(self._n_recorded, value, gap, v)

    def look(self, v):
        """Evaluate parameters on all rows."""
        self.here = self.objective(v)
        self.spend(1, self.here.value, self.here.gap, v)

    def sweep(self):
        """Sweep until the tolerance is reached, or Newton's method is quicker."""
        problem, task, gaps, ratio = self.problem, self.task, [], 1.0
        # Of few rows, several sweeps take the time of their call.
        numbers = max(self.objective.n_nonzero, 1)
        most = min(max(NUMBERS_IN_CALL // numbers, 1), MOST_IN_CALL)
        while not self.is_spent:
            share = problem.n_active / task.n_samples
            # One pass is left for a last look.
            left = self.budget.max_passes - 1 - self.n_passes
            times = int(min(most, max(left / max(share, 1e-3), 1)))
            gap, value = problem.sweep(times)
            self.here = None
            self.spend(times * share, value + gap)
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
            if self._is_slow(gaps, goal / ratio, times):
                return

    def _is_slow(self, gaps, goal, times):
        """Return whether sweeps would take longer than Newton's method.

        There is a gap for so many sweeps.
        """
        if self.task.is_wide or len(gaps) <= N_RATES:
            return False
        # Of the last half of the sweeps, as single ones are uneven.
        n = max(N_RATES, len(gaps) // 2)
        if gaps[-1] <= 0 or gaps[-1] >= gaps[-1 - n]:
            # Rounding has taken what sweeps could tell, or they lead nowhere.
            return True
        rate = (gaps[-1] / gaps[-1 - n]) ** (1 / n)
        n_calls = math.log(max(gaps[-1] / max(goal, 1e-300), 1.0)) / -math.log(rate)
        newton = newton_step_cost(self.objective, self.problem.n_active)
        return SWEEP_COST * times * n_calls > NEWTON_PASSES * newton

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

    def solve_drawn(self):
        """Solve some rows that are drawn, then more of them, and in the end all."""
        task, n, v = self.task, self.task.n_samples, self.task.parameters()
        mass = np.broadcast_to(1 / n if task.data.mass is None else task.data.mass, n)
        chances, value = self._chances(v, mass)
        self.spend(1, value, v=v)
        rng = np.random.Generator(task.generator)
        n_drawn = max(DRAWN_PER_COLUMN * len(v), math.ceil(SHARE_DRAWN * n))
        is_near, tol = False, min(DRAWN_TOL, max(self.tol, BEST_DRAWN_TOL))
        while n_drawn <= LARGEST_SHARE_DRAWN * n:
            rows, times = systematic_sample(chances, n_drawn, rng)
            few = task.on_rows(task.data.X[rows], rows)
            few.data.mass = mass[rows] * times
            few.data.mass /= few.data.mass.sum()
            nothing = np.zeros(len(rows))
            play = RowsInPlay(few, np.arange(len(rows)), nothing)
            start = begin_near(play, v, tol) if is_near else begin_far(play, v, nothing)
            run = KinkRun(few, few.make_objective(), None, self.least, self.budget)
            goal = tol, self.least
            best, _, _ = minimize_with_multipliers(play, start, goal, run, rng)
            v = best.v
            self.spend(run.n_passes * play.n_rows / n, value, v=v)
            is_near, n_drawn = True, DRAWN_GROWTH * n_drawn
        task.set_parameters(v)
        self.solve(np.arange(n), np.zeros(n), is_near)

    def _chances(self, v, mass):
        """Return what to draw rows in proportion to, and the objective.

        That is the size of their gradients, kinks rounded over a width of the distance
        that rows have from them: those that may yet cross one count, too.
        """
        task, (low, high) = self.task, self._ends
        n, blocks, norms2 = task.n_samples, task.data.blocks, task.data.norms2
        # First how far rows are beyond their kinks, then their chances.
        found = np.empty(n)

        def look(X, part):
            z = X.dot(v[:-1]) + v[-1]
            beyond = np.maximum(low[part] - z, z - high[part], out=found[part])
            losses = np.maximum(beyond, 0)
            return losses @ losses, mass[part] @ losses

        squares, value = np.sum(list(blocks.map(look)), axis=0)
        width = max(FIRST_WIDTH * math.sqrt(squares / n), 1e-300)

        def weigh(X, part):
            slopes = np.clip(1 + found[part] / width, LEAST_ROUNDED, 1)
            slopes *= np.sqrt(norms2[part] + 1)
            np.multiply(slopes, mass[part], out=found[part])

        for _ in blocks.map(weigh):
            pass
        return found, value + task.penalty.l2 / 2 * v[:-1] @ v[:-1]

    def solve(self, rows, variates, is_near=False):
        """Go on by Newton's method, with these rows in play and variates of all.

        The latter do not matter close to the optimum.
        """
        task = self.task
        rng = np.random.Generator(task.generator)
        v, goal = task.parameters(), SHARE_IN_PLAY * self.goal
        for _ in range(MOST_ROUNDS):
            if len(rows) > MOST_COPIED * task.n_samples:
                rows = np.arange(task.n_samples)
            play = RowsInPlay(task, rows, variates)
            if is_near:
                start = begin_near(play, v, goal)
            else:
                start = begin_far(play, v, variates[rows])
            best, variates[rows], reached = minimize_with_multipliers(
                play, start, (goal, self.least), self, rng
            )
            v = best.v
            if reached and play.share == 1:
                # All that a look would tell is known.
                gap = best.value - self.objective.lower_bound()
                self.here = Evaluation(v, best.value, best.gradient, gap, None)
            else:
                self.look(v)
            if self.is_there or self.is_spent or not reached:
                return
            # With the rows that are not on the line of their variate.
            rows = np.union1d(rows, np.flatnonzero(variates != self._slopes(v)))

    @cached_property
    def _ends(self):
        """Where the losses of all rows are flat."""
        return self.task.loss.flat_ends(self.task.target.numbers())

    def _predict(self, v):
        """Return the predictions of all rows."""
        parts = self.task.data.blocks.map(lambda X, part: X.dot(v[:-1]) + v[-1])
        return np.concatenate(list(parts)).astype(np.float64, copy=False)

    def _slopes(self, v):
        """Return the derivatives of all rows."""
        z, (low, high) = self._predict(v), self._ends
        self.spend(1, self.here.value, self.here.gap, v)
        return np.where(z < low, -1.0, np.where(z > high, 1.0, 0.0))


def newton_step_cost(objective, n_rows):
    """Return what a Newton step with some rows in play costs, in passes over them."""
    columns, per_row = objective.n_columns, objective.n_nonzero / objective.n_samples
    n_sampled = min(n_rows, CURVATURE_ROWS_PER_COLUMN * columns)
    numbers = min(
        curvature_cost(columns, per_row, n_sampled),
        conjugate_cost(per_row, min(n_rows, CURVED_PER_COLUMN * columns)),
    )
    # Rows may be empty.
    return 1 + (numbers + NEWTON_CALLS) / max(per_row * n_rows, 1.0)


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
    fresh = not task.has("coef")
    scale = max(task.constant_loss(), LEAST_CONSTANT * task.target.spread)
    least = LEAST_VALUE * scale
    objective, problem, outcome = task.make_objective(), None, Outcome()
    is_tall = newton_step_cost(objective, task.n_samples) <= CHEAP_NEWTON_STEP
    is_tall &= not task.is_wide
    if fresh and is_tall:
        outcome = sample_first(task, draws, budget, log)
    elif fresh:
        rows = draws.space.rows
        together = rows_together(len(rows), objective.n_nonzero)
        problem = task.make_kink_problem(hold, rows, together, draws.space.shuffle)
        n_first = count_first_draws(task, draws)
        n_first = min(n_first, math.ceil(SHARE_DRAWN_BEFORE_SWEEPS * draws.n_rows))
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
        if not (run.is_there or run.is_spent or task.is_wide):
            run.solve_swept()
        elif run.here is None:
            run.objective.mix_dual(*problem.dual_point())
            run.look(task.parameters())
    elif fresh:
        run.solve_drawn()
    else:
        run.solve_warm()
    return outcome, Report(run.here, run.n_passes, run.converged)
