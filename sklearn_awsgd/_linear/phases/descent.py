"""One driver for all descents with exact passes.

The driver counts and records passes, asks for sufficient decrease, keeps to the budget
and says how it ended. Where to go and when to stop is a :class:`Direction`:
quasi-Newton (``newton.py``), proximal Newton (``proximal.py``) or the latter for
softmax regression (``softmax_proximal.py``).

Constants of the descents were chosen while looking at the sets that
``benchmarks/bench_time_to_optimum.py`` lists in SEEN, unless they say otherwise.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from sklearn_awsgd._linear.curvature import cost_of_pass
from sklearn_awsgd._linear.objectives import Evaluation

# Share of the decrease that the slope promises which a step must bring.
SUFFICIENT = 1e-4
# Flops of all rows' curvature below which a descent goes on until rounding decides.
CHEAP = 3e5
# Passes that the curvature of all rows may cost where it is the same everywhere, so
# that one step is all: for a dozen columns. And how much faster products of matrices
# are than passes. Chosen on generated rows, 5,000 x 12 to 200,000 x 40.
ONE_STEP = 0.6
HESSIAN_SPEED = 5
# Relative Newton decrement at which rounding decides.
ROUNDING = 1e-24
# How far a loss with rounded kinks is above the loss, in widths of the rounding.
ROUNDING_ERROR = 2 * np.log(2)
# Rows of the first curvature sample: as a share of all, and at least.
SHARE_IN_SAMPLE = 1 / 16
FEWEST_SAMPLED = 1500
# Below this relative suboptimality the curvature has settled: if steps are slow there,
# the sample is too small; above it, it is only old.
NEAR = 0.02
# A step that leaves more than this fraction of the estimated suboptimality is slow.
SLOW_STEP = 0.1
# Share of what the slope says that a step gains at most where there is curvature; next
# to a minimum of it, it is a half.
ON_LINES = 0.95
# Steps after one along lines until models are believed again: some of a way along lines
# may gain less. Chosen on a case of the fuzzer, a huber loss with an l1 penalty.
OFF_LINES = 3
# Gain of a step, relative to the tolerance, below which it does not matter.
MATTERS = 1e-3


@dataclass(frozen=True)
class Stillness:
    """When an objective stands still: the last steps gained next to nothing."""

    n_steps: int  # least number of these steps
    share: float  # their least share of all steps
    part: float  # part of the tolerance that is next to nothing


# Where the estimate alone cannot be trusted, the objective must have stood still too:
# where the loss has kinks or proximal steps had curvature added.
STILL = Stillness(5, 1 / 3, 1 / 4)


@dataclass
class Report:
    """How a descent ended."""

    end: Evaluation
    n_passes: int
    converged: bool  # whether the tolerance was met
    width: float = 0.0  # over which the kinks of the loss were rounded
    curvature: np.ndarray | None = None  # of the loss, as `Objective.curvature`

    @property
    def gap(self):
        """Certified bound of the suboptimality, for the loss with its kinks."""
        # By rounding, gaps next to zero may be negative.
        return max(self.end.gap, 0.0) + ROUNDING_ERROR * self.width


@dataclass
class Proposal:
    """What a direction proposes."""

    step: np.ndarray
    slope: float  # change that the step promises, up to its quadratic part
    scale: float  # what suboptimality is relative to: the objective, away from zero
    bound: float  # the suboptimality as far as it is known; the descent stops by it
    estimate: float  # the same for a descent that runs out of passes


class Trail:
    """Where a descent has been: passes are counted and recorded.

    Attributes
    ----------
    n_passes : int
        Passes so far.
    reached : list of float
        The objective at the start and after each step that was taken.
    """

    def __init__(self, evaluate, record):
        self._evaluate, self._record = evaluate, record
        self.n_passes, self.reached = 0, []

    def visit(self, v):
        """Evaluate some parameters, which costs a pass."""
        there = self._evaluate(v)
        self.n_passes += 1
        self._record(there, self.n_passes)
        return there

    def stands_still(self, tolerance, rule):
        """Return whether the last steps have gained a part of the tolerance only.

        And whether their gains fall: a descent that creeps does not stand still.
        """
        reached = self.reached
        n = max(rule.n_steps, int(rule.share * len(reached)))
        if len(reached) <= n or reached[-1 - n] - reached[-1] > rule.part * tolerance:
            return False
        if len(reached) <= 2 * n or reached[-1 - n] == reached[-1]:
            return True
        return self.rest(n) <= tolerance

    def rest(self, n_steps):
        """Return what is left if the gains go on falling as they did.

        It is the rest of the geometric series that begins with what the last steps
        gained and as many before them; infinite where the gains do not fall.
        """
        if len(self.reached) <= 2 * n_steps:
            return np.inf
        first, middle, last = self.reached[-1 - 2 * n_steps :: n_steps]
        before, gained = first - middle, middle - last
        return gained**2 / (before - gained) if gained < before else np.inf


class Direction(ABC):
    """Where a descent goes next, and when it is there.

    It stops at `tol`, the relative suboptimality to reach, or where rounding decides:
    when ``Proposal.bound / Proposal.scale`` is no more than `goal`.
    """

    # Shorter steps than this mean that the curvature is far too small, as where a loss
    # is linear: then some is added.
    shortest = 1 / 64
    # What is left of a step that was too long.
    cut = 1 / 4
    # Decrease, relative to the objective, that its rounding hides.
    lost = 1e-12

    def __init__(self, objective, tol, rng):
        self.objective, self.tol, self.rng = objective, tol, rng
        self.goal = tol
        # Steps since one that went along lines of the losses: see `count_off_lines`.
        self._n_off_lines = OFF_LINES

    def count_off_lines(self, here, new, proposal, length):
        """Learn from a step whether models can be believed.

        One that has gained all that its slope said went along lines of the losses, and
        the next may gain as much, whatever the model promises.
        """
        least = max(
            ON_LINES * -length * proposal.slope, MATTERS * self.tol * proposal.scale
        )
        on_lines = here.value - new.value > least
        self._n_off_lines = 0 if on_lines else self._n_off_lines + 1

    @property
    def is_off_lines(self):
        """Whether none of the last steps went along lines of the losses."""
        return self._n_off_lines >= OFF_LINES

    def evaluate(self, v):
        """Return the Evaluation of parameters, all penalties included."""
        return self.objective(v)

    def begin(self, here, trail):
        """Take in the first point."""

    @abstractmethod
    def propose(self, here, trail):
        """Return a Proposal."""

    def renew(self, here, trail):
        """Renew the curvature, if that pays; return whether to propose again."""
        return False

    def shorten(self, here, new, proposal, length):
        """Return what to multiply a step that was too long with."""
        return self.cut

    def is_lost(self, here, new, proposal, length):
        """Return whether rounding hides the decrease of a step that was not taken."""
        return -proposal.slope <= self.lost * proposal.scale

    def last_word(self, here, new, proposal):
        """Return where to end, as rounding decides; None if the step is to be taken."""
        return here

    @abstractmethod
    def take(self, here, new, proposal, length, trail):
        """Return where a step has led."""

    @abstractmethod
    def stiffen(self, here, trail):
        """Add curvature, as no step was short enough; return whether there is more."""


def descend(direction, v, budget, record, enough=None):
    """Minimise from v; return a Report.

    Parameters
    ----------
    direction : Direction
        Knows what to minimise, and how.
    v : ndarray
        Parameters to start from.
    budget : Budget
        Passes over the rows, and time; the tolerance is the direction's matter.
    record : callable
        Called with the Evaluation and the number of passes after each of them.
    enough : float, default=None
        Relative suboptimality that counts as converged when passes or time are over;
        None for that of the direction.
    """
    enough = direction.tol if enough is None else enough
    trail = Trail(direction.evaluate, record)
    here = trail.visit(v)
    trail.reached.append(here.value)
    direction.begin(here, trail)
    while True:
        proposal = direction.propose(here, trail)
        if proposal.bound <= direction.goal * proposal.scale:
            return Report(here, trail.n_passes, True)
        if direction.renew(here, trail):
            continue
        length = 1.0
        while length >= direction.shortest:
            if budget.is_spent(trail.n_passes):
                is_enough = proposal.estimate <= enough * proposal.scale
                return Report(here, trail.n_passes, is_enough)
            new = trail.visit(here.v + length * proposal.step)
            if new.value <= here.value + SUFFICIENT * length * proposal.slope:
                break
            if direction.is_lost(here, new, proposal, length):
                end = direction.last_word(here, new, proposal)
                if end is None:
                    break
                return Report(end, trail.n_passes, True)
            length *= direction.shorten(here, new, proposal, length)
        else:
            if not direction.stiffen(here, trail):
                return Report(here, trail.n_passes, False)
            continue
        here = direction.take(here, new, proposal, length, trail)
        trail.reached.append(here.value)


def takes_one_step(objective):
    """Return whether a step with the curvature of all rows ends it, at little cost."""
    if not objective.is_quadratic or objective.is_wide:
        return False
    flops = objective.newton_flops()
    one_pass = cost_of_pass(objective.n_samples, objective.n_nonzero)
    return flops <= max(CHEAP, ONE_STEP * HESSIAN_SPEED * one_pass)


def first_sample_size(objective, exact):
    """Return the number of rows of the first curvature sample."""
    if exact or takes_one_step(objective):
        return objective.n_samples
    n_rows = max(
        objective.rows_per_column * objective.n_columns,
        int(SHARE_IN_SAMPLE * objective.n_samples),
        FEWEST_SAMPLED,
    )
    if objective.n_samples < 4 * objective.n_columns:
        return objective.n_samples
    return min(n_rows, objective.n_samples // 2)


def larger_sample_size(n_rows, n_samples):
    """Return the size of the next larger sample."""
    return 4 * n_rows if 8 * n_rows < n_samples else n_samples
