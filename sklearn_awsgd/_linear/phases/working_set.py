"""A working set of features, for an l1 penalty on wide data.

Most coefficients are zero at the optimum. Each step minimises over a few columns: those
whose coefficients are not zero, and those whose slopes exceed the penalty most. Then a
pass over all rows brings the slopes of all features, so what is missing, and the
duality gap, which decides when to stop.

The constants were chosen on newsgroups (``benchmarks/bench_every_loss.py``).
"""

import numpy as np

from sklearn_awsgd._linear.phases.descent import Direction, Proposal
from sklearn_awsgd._linear.phases.proximal import add_l1_penalty, l1_change

# With fewer rows than features, so many of the latter are enough for a working set.
FEWEST_FEATURES = 200
# In memory, for a loss without kinks, so many are enough in any case, unless there are
# more than so many times as many rows. Chosen on mnist/0, coco/0, generated rows from
# 5,000 x 300 to 100,000 x 200 and one-hot rows.
MANY_FEATURES = 500
MOST_ROWS_PER_FEATURE = 100
# Features that are added at least, and as a share of those that are not zero.
FEWEST_ADDED = 200
SHARE_ADDED = 2.0
# Rows of so few numbers, on average, have all features in their working set: sweeps
# over short columns cost less than what each step costs for each row. Chosen on
# "rating", "timestamp" and one-hot rows of 3, 6 and 12 numbers.
SHORT_ROWS = 4
# Features whose slope is a smaller share of the penalty are none of them. Chosen on
# newsgroups, "wide sparse" and "genes".
SHARE_OF_PENALTY = 0.9
# How well the model on the columns is minimised: its gap, as a share of what was there
# before, or of what is asked for in the end.
SHARE_OF_GAP = 0.03
SHARE_OF_GOAL = 0.3
SHARE_OF_SLOPE = 0.3
# The least penalty of a step, as a share of the largest slope.
SHARE_OF_LARGEST = 0.1


def needs_working_set(task):
    """Return whether a task is trained on a working set of features.

    So it is where they are too many for a matrix of their curvature, or so many more
    than the rows that most of it would say nothing, or where it would cost too much.
    """
    if not (task.penalty.l1 > 0 and task.has_columns):
        return False
    rows, features = task.n_samples, task.n_features
    many = features >= MANY_FEATURES and rows <= MOST_ROWS_PER_FEATURE * features
    many &= task.is_smooth and task.is_at_hand
    few_rows = rows < features >= FEWEST_FEATURES
    return many or few_rows or not task.has_proximal_steps


class WorkingSetDirection(Direction):
    """Steps to the minimum over some columns.

    `model` is the ColumnModel, `alpha_l1` the strength of the l1 penalty.
    """

    # A step is the minimum over its columns: none is too long but by rounding.
    shortest = 1 / 2

    def __init__(self, objective, tol, rng, alpha_l1, model):
        super().__init__(objective, tol, rng)
        self.alpha_l1, self.model = alpha_l1, model
        n_features = objective.n_columns - 1
        per_row = objective.n_nonzero / objective.n_samples
        self._takes_all = per_row <= SHORT_ROWS and n_features <= model.most_columns
        # Fewer than these have fewer numbers than there are rows.
        self._fewest_added = max(FEWEST_ADDED, int(n_features / max(per_row, 1)))

    def evaluate(self, v):
        there = self.objective(v, self.model.predictions(v))
        return add_l1_penalty(there, self.alpha_l1)

    def propose(self, here, trail):
        scale = max(abs(here.value), 1e-300)
        if here.gap <= self.goal * scale:
            return Proposal(np.zeros_like(here.v), 0.0, scale, here.gap, here.gap)
        v = self.model.minimize(here, *self._plan(here, scale))
        w, step = here.v[:-1], v - here.v
        slope = here.gradient @ step + self.alpha_l1 * l1_change(w, step[:-1])
        return Proposal(step, slope, scale, here.gap, here.gap)

    def _plan(self, here, scale):
        """Return what to minimise over, with what penalty, and how well.

        These are arguments of ``ColumnModel.minimize``.
        """
        goal = self.goal * scale
        if self._takes_all and self.objective.is_quadratic:
            # The model is the objective, and of all features: once will do, as a rule.
            bound = min(goal, SHARE_OF_GAP * here.gap)
            return np.arange(len(here.v) - 1), self.alpha_l1, bound
        bound = max(SHARE_OF_GAP * here.gap, SHARE_OF_GOAL * goal)
        used, slopes = np.flatnonzero(here.v[:-1]), np.abs(here.gradient[:-1])
        # A weak penalty is approached from above: at once, nearly all coefficients
        # would leave zero before any of them is what it has to be.
        l1 = max(self.alpha_l1, SHARE_OF_LARGEST * slopes.max())
        # What the columns that were left out lack is not worth more precision.
        slopes[used] = 0.0
        slack = SHARE_OF_SLOPE * (slopes.max() - l1)
        return self._choose(used, slopes, SHARE_OF_PENALTY * l1), l1, bound, slack

    def _choose(self, used, slopes, least):
        """Return the features to minimise over, sorted; slopes are `least` at least.

        Those that are used have slopes of zero.
        """
        if self._takes_all:
            return np.arange(len(slopes))
        n_added = max(self._fewest_added, int(SHARE_ADDED * len(used)))
        n_added = min(n_added, max(self.model.most_columns - len(used), 0))
        others = np.flatnonzero(slopes >= least)
        if len(others) > n_added:
            others = others[np.argpartition(-slopes[others], n_added)[:n_added]]
        return np.sort(np.append(used, others))

    def is_lost(self, here, new, proposal, length):
        # The gap decides, unless nothing is asked of it.
        decides = self.goal == 0 or new.gap < here.gap
        return decides and super().is_lost(here, new, proposal, length)

    def last_word(self, here, new, proposal):
        return None if new.gap < here.gap else here

    def take(self, here, new, proposal, length, trail):
        return new

    def stiffen(self, here, trail):
        return False
