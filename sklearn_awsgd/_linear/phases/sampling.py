"""Phases that draw rows: the first draws, and plain AW-SGD."""

from dataclasses import dataclass, replace

import numpy as np

from sklearn_awsgd._kernels._loop import Costs
from sklearn_awsgd._linear.fetching import FetchedDraws, FetchedProblem
from sklearn_awsgd._linear.phases.descent import first_sample_size, takes_one_step
from sklearn_awsgd._solver.runs import solve
from sklearn_awsgd._solver.stopping import AdaptiveRate, StopRule, ValidationStop
from sklearn_awsgd._spaces import ProblemView, RowSpace

# First draws of learning_rate="auto": at least, for each parameter, and as a share of
# the rows; never more than one pass. Chosen on mammography, w8a, a9a, cover_2v4,
# "heterogeneous" of bench_time_to_optimum.py, digits, breast_cancer and generated sets
# of 500 to 1,000,000 rows: fewer cost exact passes, which take more.
# Softmax regression has a share alone: its exact passes are matrix products, in which a
# row takes an eighth of the time of a draw (mnist).
FEWEST_DRAWS = 500
DRAWS_PER_PARAMETER = 20
SHARE_DRAWN_FIRST = 1 / 32
SHARE_OF_SOFTMAX = 1 / 16


@dataclass
class Draws:
    """How the rows of one task are drawn."""

    sampler: object  # prepared; keeps what is learned
    space: RowSpace
    batch_size: int = 1  # draws that share one state of the sampler
    counts: np.ndarray | None = None  # draws of each row, added to
    measured: bool = False  # whether costs are measured, not given
    asked_for: bool = False  # by a sampler that was given, or by counting

    @property
    def costs(self):
        """What draws cost, for the loop; None where that is not known."""
        if self.measured or self.space.costs is None:
            return None
        return Costs(self.space.costs)

    @property
    def n_rows(self):
        """Number of rows that can be drawn."""
        return self.space.n_rows

    def open(self, task, norms2):
        """Return the opened sampler of a task, given squared norms of gradients.

        These are an array, or a function of a slice of the rows.
        """
        view = ProblemView(task.target.groups, norms2)
        return self.sampler.open(self.space, view, task.number, task.generator)

    def begin(self, task):
        """Return the problem of a task and its opened sampler."""
        if not task.data.is_source:
            problem = task.make_problem()
            return problem, self.open(task, problem.first_norms2)
        problem = FetchedProblem(task)
        opened = self.open(task, problem.first_norms2())
        return problem, FetchedDraws(opened, task.data.X, problem, self.measured)

    def run(self, problem, opened, pass_length, budget, log, should_stop=None):
        """Run the loop; return its Outcome."""
        try:
            return solve(
                problem,
                opened,
                pass_length=pass_length,
                budget=budget,
                log=log,
                batch_size=self.batch_size,
                should_stop=should_stop,
                draw_counts=self.counts,
                costs=self.costs,
            )
        except BaseException:
            if isinstance(opened, FetchedDraws):
                opened.close()
            raise

    def keep(self, task, opened):
        """Keep what the opened sampler of a task has learned."""
        if isinstance(opened, FetchedDraws):
            opened.close()
            opened = opened.opened
        self.sampler.keep(task.number, opened)


def first_draws_pay(task, draws):
    """Return whether to start with draws.

    Where the curvature of all rows is cheap, one step solves least squares, and where
    it is not formed, conjugate gradients do: then only if somebody asks for draws.

    Softmax regression does without where its curvature is not sampled either: on
    digits and on coco's photographs by their rarest label, steps of single rows left
    more for the exact ones to undo than they had gained.
    """
    if task.data.is_source:
        return True
    objective = task.make_objective()
    if objective.is_quadratic and (objective.is_wide or takes_one_step(objective)):
        return draws.asked_for
    if task.n_models == 1 or task.penalty.l1 > 0:
        return True
    return objective.sample_saves(first_sample_size(objective, exact=False))


def count_first_draws(task, draws):
    """Return how many rows are drawn at the start, of at most one pass."""
    n_draws = max(FEWEST_DRAWS, DRAWS_PER_PARAMETER * (task.n_features + 1))
    if task.n_models > 1:
        share = max(int(SHARE_OF_SOFTMAX * draws.n_rows), 1)
        n_draws = min(n_draws, share) if task.data.is_source else share
    elif not task.data.is_source:
        # From a disk a row at random takes as long as a thousand in order.
        n_draws = max(n_draws, int(SHARE_DRAWN_FIRST * draws.n_rows))
    return min(draws.n_rows, n_draws)


def sample_first(task, draws, budget, log):
    """Start with the draws of at most one pass."""
    problem, opened = draws.begin(task)
    one_pass = replace(budget, max_passes=1)
    n_draws = count_first_draws(task, draws)
    outcome = draws.run(problem, opened, n_draws, one_pass, log)
    draws.keep(task, opened)
    return outcome


def sample_until_stopped(task, draws, budget, log, n_iter_no_change, score=None):
    """Take the steps of plain AW-SGD until the objective stands still.

    With `score`, which takes the task and returns its score on held-out data, that
    decides, and the parameters that scored best are kept.
    """
    problem, opened = draws.begin(task)
    if score is None:
        rule = StopRule(budget.tol, n_iter_no_change)
    else:
        rule = ValidationStop(
            budget.tol, n_iter_no_change, lambda: score(task), task.parameter_arrays()
        )
    should_stop = AdaptiveRate(rule, problem) if task.rate.name == "adaptive" else rule
    outcome = draws.run(problem, opened, draws.n_rows, budget, log, should_stop)
    if score is not None:
        rule.restore_best()
    draws.keep(task, opened)
    return outcome
