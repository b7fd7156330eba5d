"""Dual steps, the middle of ``learning_rate="auto"`` for wide data.

Where there are too many features for their curvature, passes of steps with control
variates (:class:`~sklearn_awsgd._kernels._dual.DualSteps`) come before the descent.
Each touches the nonzeros of one row, and their dual objective is a lower bound of the
minimum that is tight enough to stop by.

Losses with kinks have steps of their own (``kink_steps.py``).

The constants were chosen while looking at the wide ones of the sets that
``benchmarks/bench_time_to_optimum.py`` lists in SEEN, newsgroups and `sparse`.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from sklearn_awsgd._kernels._losses import SquaredError
from sklearn_awsgd._kernels._samplers import ShuffledPasses
from sklearn_awsgd._linear.curvature import expectation
from sklearn_awsgd._linear.phases.descent import CHEAP, Report
from sklearn_awsgd._solver.records import Log
from sklearn_awsgd._solver.runs import Outcome

# The curvature of a row, relative to what the penalty gives it. The larger, the more
# passes the steps need; beyond this the descent is quicker.
LARGEST_RATIO = 64.0
# Passes are slow, and the descent quicker, if more of the gap is left after two.
SLOW_PASSES = 0.7
# Of few rows, so many for each feature at most, descents are slower: most directions
# have little curvature but that of the penalty. Chosen on normal rows, 200 x 250 to
# 1000 x 900, which took down to a tenth of the time, and rows with 20 factors.
ROWS_PER_FEATURE = 2
SLOW_PASSES_OF_FEW = 0.9
# Of a squared error, steps are for rows of so many numbers whose curvature, times how
# often the rows fill the features, is no more than so many times that of the penalty:
# else conjugate gradients are quicker. Chosen on "wide sparse", "words" and "rating" of
# bench_every_loss.py, one-hot rows of eight features and 10,000 texts of 2,000 words.
LONG_ROW = 16
LARGEST_OVERLAP = 10.0
# Draws by what is learned of the rows, before the passes: as a share of the rows.
SHARE_DRAWN_LEARNED = 1 / 2
# Numbers in the rows that stay next to each other in shuffled passes: where the data do
# not fit into the cache, single short rows would have to be waited for.
NUMBERS_IN_RUN = 500
# Most rows in a block, as a share of all: rows that always follow each other undo what
# the ones before did to the intercept, which each moves by 1 / (HOLD n) of its error.
BLOCK_SHARE = 3e-4
# What holds the intercept, relative to its curvature at the start: the larger, the
# slower the intercept; the smaller, the less steady all else.
HOLD = 0.003
# Least mean curvature, as a share of the largest that the loss can have.
LEAST_MEAN_CURVATURE = 1e-3


@dataclass
class DualResult:
    """Where dual steps have led."""

    outcome: Outcome
    report: Report | None = None  # the end, where they reached the tolerance
    dual_point: tuple | None = None  # what the descent may begin its bound with


def curvature_ratio(curvature, mass, norms2, alpha):
    """Return the curvature of a mean row, relative to what the penalty gives it."""
    return curvature * expectation(norms2, mass) / (alpha * len(norms2))


def plan_dual_steps(task):
    """Return what holds the intercept, or None where dual steps do not pay.

    They are for an l2 penalty and a loss without kinks, on wide data where the penalty
    is felt, and where rows are few. A curvature that is the same everywhere needs no
    steps but Newton's.
    """
    alpha, mass = task.penalty.l2, task.data.mass
    is_quadratic = isinstance(task.loss, SquaredError)
    few = has_rows_for_dual_steps(task) and not is_quadratic
    if (
        not (task.has_dual_steps and task.is_smooth)
        or task.data.is_source
        or not (few or task.is_wide)
        or not (alpha > 0 and task.penalty.l1 == 0)
    ):
        return None
    loss, y = task.loss, task.target.numbers()
    z = np.full(len(y), task.states[0]["intercept"][0])
    curvatures = loss.second_derivatives(y, z)
    # Where all rows lie on lines of their losses there is none yet.
    least = LEAST_MEAN_CURVATURE * loss.smoothness
    curvature = max(expectation(curvatures, mass), least)
    ratio = curvature_ratio(curvature, mass, task.data.norms2, alpha)
    if ratio == 0 or (ratio > LARGEST_RATIO and not few):
        return None
    if is_quadratic and not is_quicker_than_gradients(task, ratio):
        return None
    return hold_intercept(task, curvature)


def is_quicker_than_gradients(task, ratio):
    """Return whether rows are long and share little, given `curvature_ratio`."""
    overlap = ratio * max(1.0, task.n_samples / task.n_features)
    numbers = task.data.blocks.n_nonzero
    return overlap <= LARGEST_OVERLAP and numbers >= LONG_ROW * task.n_samples


def has_rows_for_dual_steps(task):
    """Return whether rows are few beside the features: nearly independent."""
    rows, columns = task.n_samples, task.n_features
    return rows <= ROWS_PER_FEATURE * columns and rows * columns**2 > CHEAP


def hold_intercept(task, curvature):
    """Return what holds the intercept, relative to a curvature.

    Where the penalty is all that holds the coefficients, as where classes are
    separable, the intercept is held no more than a feature is.
    """
    hold, mean_norm2 = HOLD * curvature, expectation(task.data.norms2, task.data.mass)
    total = task.penalty.l2 * task.n_features
    return hold if hold * mean_norm2 <= total else total / mean_norm2


class DualStop:
    """Stop when the duality gap is small enough, or shrinks too slowly.

    The gap is guessed from those of the rows as they were met in a pass; when the guess
    is small enough, one exact pass tells.

    `evaluate` takes the dual point of the variates and returns the Evaluation of the
    current parameters; `scale` takes the gap to the objective that the solver knows;
    passes are slow if more than `slow` of the gap is left after so many.

    Attributes
    ----------
    end : Evaluation or None
        Where the gap was small enough.
    n_exact, n_passes : int
        Number of exact passes, and of all passes.
    """

    last_score = np.nan

    def __init__(
        self, problem, evaluate, tol, max_passes, scale=1.0, slow=SLOW_PASSES, after=2
    ):
        self.problem, self.evaluate, self.tol = problem, evaluate, tol
        self.max_passes, self.scale = max_passes, scale
        self.slow, self.after = slow, after
        self.end, self.n_exact = None, 0
        # What the rows met in the last passes had of the gap.
        self._met = []
        # The gap over that of the rows as they were met, as last seen.
        self._known_ratio = None

    @property
    def n_passes(self):
        """Return the number of passes so far."""
        return len(self._met) + self.n_exact

    def __call__(self, objective):
        """Take in a pass; return whether to stop."""
        # By rounding, gaps next to zero may be negative.
        last = max(self.problem.take_gap(), 0.0)
        self._met.append(last)
        close = self.scale * self._guess() <= self.tol * objective
        if close and self.n_passes < self.max_passes:
            here = self.evaluate(self.problem.dual_point())
            self.n_exact += 1
            self._known_ratio = here.gap / last if last > 0 else 0.0
            if here.gap <= self.tol * here.value:
                self.end = here
                return True
        self.problem.recenter()
        slow = self._is_slow(last)
        return slow or self.n_passes >= self.max_passes

    def _is_slow(self, last):
        n = self.after
        return len(self._met) > n and last > self.slow * self._met[-1 - n]

    def _guess(self):
        """Return a guess of the gap after the last pass."""
        if self._known_ratio is not None:
            return self._known_ratio * self._met[-1]
        if len(self._met) == 1:
            return np.inf
        before, last = self._met[-2:]
        return np.sqrt(last / before) * last if before > 0 else last


def take_dual_steps(task, hold, draws, budget, log, after=2):
    """Go towards the optimum by dual steps; return a DualResult.

    The first rows are drawn by what is learned of them; then the passes are shuffled,
    as draws with replacement leave out a third of the rows. `hold` is what holds the
    intercept, from `plan_dual_steps`; `after` so many passes it is asked whether they
    are slow.
    """
    n_rows = draws.n_rows
    n_first = math.ceil(SHARE_DRAWN_LEARNED * n_rows)
    clock = task.states[0]["clock"]
    problem = task.make_dual_problem(hold)
    objective = task.make_objective()

    def evaluate(dual_point):
        objective.mix_dual(*dual_point)
        here = objective(task.parameters())
        later.add_exact(int(clock[0]) - n_first, here.value, here.gap)
        return here

    tol = 0.0 if budget.tol is None else budget.tol
    slow = SLOW_PASSES_OF_FEW if has_rows_for_dual_steps(task) else SLOW_PASSES
    stop = DualStop(problem, evaluate, tol, budget.max_passes, log.scale, slow, after)

    opened = draws.open(task, task.first_dual_norms2)
    first = replace(budget, max_passes=1)
    outcome = draws.run(problem, opened, n_first, first, log, stop)
    draws.keep(task, opened)
    del opened  # Its tables are as large as several numbers for each row.

    later = Log(log.problem, log.scale, log.progress, log.pass_cost)
    shuffled = _shuffled_blocks(task, draws, objective.n_nonzero)
    after = draws.run(problem, shuffled, n_rows, budget.after(1), later, stop)
    # Shuffled passes learn nothing.
    later.sampling.clear()
    n_exact = 0
    for record in later.records:
        # Exact passes count as draws, for all records from their own on.
        n_exact += record.phase == "exact"
        record.draws += n_exact * n_rows
    log.extend([later])
    clock += stop.n_exact * n_rows
    outcome.n_iter, outcome.converged = stop.n_passes, False
    outcome.n_draws += after.n_draws + stop.n_exact * n_rows
    if stop.end is None and stop.n_passes >= budget.max_passes:
        # Nothing follows that would tell how far the optimum is.
        outcome.duality_gap = evaluate(problem.dual_point()).gap
    if stop.end is None:
        return DualResult(outcome, dual_point=problem.dual_point())
    end = Report(stop.end, n_passes=0, converged=True)
    return DualResult(outcome, report=end)


def rows_together(n_rows, n_nonzero):
    """Return how many rows that lie next to each other stay so in every order."""
    share = min(NUMBERS_IN_RUN / max(n_nonzero, 1), BLOCK_SHARE)
    return int(max(1, n_rows * share))


def _shuffled_blocks(task, draws, n_nonzero):
    """Return a sampler of shuffled passes, over blocks of rows."""
    space = draws.space
    return ShuffledPasses(
        task.generator,
        space.rows,
        space.mass,
        space.shuffle,
        block_size=rows_together(draws.n_rows, n_nonzero),
    )
