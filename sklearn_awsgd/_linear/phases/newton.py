"""Quasi-Newton steps.

The curvature they start from is that of a sample of rows, drawn in proportion to
``P_i f''_i (||x_i||^2 + 1)``: near the optimum of a problem with a rare class a few
thousand rows carry nearly all of it. What the sample gets wrong is corrected by BFGS
pairs. When these correct too slowly the curvature is sampled anew, and where it has
settled already, from more rows; from all of them this is Newton's method.
"""

import numpy as np

from sklearn_awsgd._linear.phases import descent
from sklearn_awsgd._linear.phases.descent import Direction, Proposal
from sklearn_awsgd._linear.sums import MANY_COLUMNS

# The curvature is used for so many times the passes that its next sample costs, before
# steps count as slow.
CURVATURE_PATIENCE = 2
# After so many samples of one size that were slow all the same, it is too small too.
MOST_REFRESHED = 3
# The suboptimality over its estimate is taken to be the largest seen in so many steps,
# and no less than LEAST_RATIO; more where the curvature of the loss jumps. The latter
# was chosen on w8a.
N_RATIOS = 3
LEAST_RATIO = 2.0
LEAST_RATIO_OF_JUMPS = 3.0
# Times the margin of the estimate, how many times as high the objective was where a
# curvature was sampled that is stale.
FALLEN = 1.5
# Without a penalty and with so few rows for each column, classes may be separable, or
# nearly: curvatures fall as long as one goes on, and no older one is believed. Chosen
# on two cases of the fuzzer, 450 and 600 sparse rows of 400 features.
FEW_WITHOUT_PENALTY = 4
BARELY_FALLEN = 1.01
# Where the curvature is rough, estimates go up and down, and what the last steps have
# gained tells more: at least so many, and such a share of all, are compared with as
# many before them. Chosen on digits and on coco's photographs by their rarest label.
ROUGH_STEPS = 5
ROUGH_SHARE = 1 / 6
# On a way of so many steps objectives may stand still for a while and fall again, where
# a weak penalty or none holds hardly anything: it has to be for a third of the way.
# Chosen on unpenalised sparse rows of tests/tools/fuzz.py.
LONG_WAY = 30
# So few rows for each column, directions are many along which the penalty is most of
# the curvature, and of which a diagonal knows nothing. Chosen on short rows of
# tests/tools/fuzz.py.
FEW_FOR_DIAGONAL = 4
# A rough curvature is renewed when the objective has fallen to this part of it. With
# the scaling by the last BFGS pair that took 60 passes instead of 78 on `sparse`
# of bench_time_to_optimum.py at alpha 1e-6.
RENEWAL = 0.5
# That of a matrix takes as long as some passes where columns are many, and waits for
# this part. Chosen on "many classes" and coco's photographs of bench_softmax.py, where
# it took .7 and .8 of the time; with the 64 columns of digits it would take 1.2.
LATE_RENEWAL = 0.1
# Least and most of a step that is left when it was too long.
CUT = (0.1, 0.7)
# Trials of a line search.
LINE_TRIALS = 10
# Passes after which the descent no longer insists that rounding decides.
MOST_EXACT = 200


class NewtonDirection(Direction):
    """Quasi-Newton directions."""

    lost = 1e-11

    def __init__(self, objective, tol, rng):
        super().__init__(objective, tol, rng)
        self.exact = objective.sharp and objective.newton_flops() <= descent.CHEAP
        self.goal = descent.ROUNDING if self.exact else tol
        self.n_rows = descent.first_sample_size(objective, self.exact)
        self.floor, self.n_refreshed, self.goes_round = 0.0, 0, False
        objective.expect_curvature(self.n_rows, rng, self.floor)
        # Half the Newton decrement: what is left, by the curvature at hand.
        self.left, self.slow = np.inf, False
        # The suboptimality over its estimate, as the last steps tell it.
        self.ratios, self.gained, self.estimate = [LEAST_RATIO], 0.0, np.inf

    def begin(self, here, trail):
        self.first_value = here.value
        self._sample(here, trail)

    def _sample(self, here, trail, n_rows=None):
        """Sample the curvature, from so many rows if they are given."""
        self.inverse = self.objective.inverse_curvature(
            here, n_rows or self.n_rows, self.rng, self.floor
        )
        # Passes until the curvature was last sampled, and the objective there.
        self.n_sampled, self.value_sampled = trail.n_passes, here.value

    def _is_stale(self, here):
        """Return whether the objective has fallen far since the curvature was sampled.

        Then so may have the curvature, as where most rows are on the flat part of a
        squared hinge by now: more is left than twice or four times the estimate. So it
        is soon where rows are few and nothing else can tell what is left.
        """
        fallen = FALLEN * self.inverse.margin
        few = self.objective.n_samples < FEW_WITHOUT_PENALTY * self.objective.n_columns
        if few and np.isinf(here.gap) and not self.objective.is_quadratic:
            fallen = BARELY_FALLEN
        return fallen * here.value < self.value_sampled

    def propose(self, here, trail):
        step = -(self.inverse @ here.gradient)
        slope = here.gradient @ step
        left = -slope / 2
        self.slow = left > descent.SLOW_STEP * self.left
        # `left` is forgotten where the curvature is new, `estimate` is not.
        is_slow_anyway = left > descent.SLOW_STEP * self.estimate
        self.left = left
        if self.gained > 0:
            # If both ends of a step had r times their estimates left, it has gained r
            # times the difference.
            self.ratios.append(
                self.gained / (self.estimate - left) if left < self.estimate else np.inf
            )
        self.gained, self.estimate = 0.0, left
        scale = max(abs(here.value), 1e-10 * abs(self.first_value))
        if self.exact and trail.n_passes > MOST_EXACT:
            # Where the loss has kinks, Newton's method may go round in circles.
            self.exact, self.goal, self.goes_round = False, self.tol, True
        bound = self._bound(here, trail, scale)
        # Newton's method is fast where its estimate holds. If it is not yet, as between
        # the pieces of a loss, only the certificate tells what is left.
        estimate = here.gap if self.exact and is_slow_anyway else bound
        return Proposal(step, slope, scale, bound, estimate)

    def _bound(self, here, trail, scale):
        """Return the suboptimality: certified, or estimated where that can be trusted.

        Between kinks steps are too uneven to be trusted alone, and what is known of
        wide data is too little.
        """
        if self.inverse.rough:
            n = max(ROUGH_STEPS, int(ROUGH_SHARE * len(trail.reached)))
            left = max(LEAST_RATIO * self.left, trail.rest(n))
            is_long = len(trail.reached) > LONG_WAY
            if is_long and not trail.stands_still(self.tol * scale, descent.STILL):
                # It may be on a plateau.
                left = np.inf
            per_column = FEW_FOR_DIAGONAL if self.inverse.diagonal else 0
            if self._needs_certificate(here, per_column):
                left = np.inf
        elif self._is_stale(here):
            left = np.inf
        elif self.objective.has_jumps and self._needs_certificate(here, 2):
            left = np.inf
        elif self.left > 0:
            least = LEAST_RATIO_OF_JUMPS if self.objective.has_jumps else LEAST_RATIO
            left = max(least, *self.ratios[-N_RATIOS:]) * self.left
        else:
            left = 0.0
        if not self.objective.sharp and not trail.stands_still(
            self.tol * scale, descent.STILL
        ):
            left = np.inf
        return min(self.inverse.margin * left, here.gap)

    def _needs_certificate(self, here, rows_per_column):
        """Return whether rows are few or steps go round, and a certificate can decide.

        Along most directions the penalty is then all there is: of rows whose curvature
        a step takes away, or which a diagonal does not see.
        """
        few = self.objective.n_samples < rows_per_column * self.objective.n_columns
        return (few or self.goes_round) and np.isfinite(here.gap)

    def renew(self, here, trail):
        """Sample the curvature anew when steps are slow, and it has paid for itself.

        Or when it is an old one that would have the descent stop.
        """
        is_small = self.left <= self.tol * abs(here.value)
        if is_small and not self.inverse.rough and self._is_stale(here):
            self._sample(here, trail)
            return True
        grow = (
            self.left < descent.NEAR * here.value or self.n_refreshed >= MOST_REFRESHED
        )
        next_rows = self.n_rows
        if grow:
            next_rows = descent.larger_sample_size(
                self.n_rows, self.objective.n_samples
            )
        n_waited = trail.n_passes - self.n_sampled
        ratio, per_step = next_rows / self.n_rows, self.inverse.step_cost
        cost = self.inverse.cost * ratio + (per_step * ratio if ratio > 1 else 0)
        patience = CURVATURE_PATIENCE * cost / (1 + per_step)
        if not (self.slow and n_waited >= max(patience, 1)):
            return False
        self.n_refreshed = 0 if grow else self.n_refreshed + 1
        self.n_rows = next_rows
        self._sample(here, trail)
        return True

    def shorten(self, here, new, proposal, length):
        """Go to the minimum of the cubic through the values and slopes of both ends."""
        slope, new_slope = proposal.slope, new.gradient @ proposal.step
        with np.errstate(over="ignore", invalid="ignore"):
            mean = slope + new_slope - 3 * (new.value - here.value) / length
            root = np.sqrt(max(mean**2 - slope * new_slope, 0.0))
            bottom = new_slope - slope + 2 * root
        if not (np.isfinite(bottom) and bottom > 0):
            return 0.5
        return np.clip(1 - (new_slope + root - mean) / bottom, *CUT)

    def is_lost(self, here, new, proposal, length):
        # Relative to the objective itself: `scale` is away from zero.
        return -proposal.slope <= self.lost * abs(here.value)

    def last_word(self, here, new, proposal):
        """Let the gradient decide, which is more exact than the objective."""
        if new.gradient @ (self.inverse @ new.gradient) < -proposal.slope / 4:
            return None
        return here

    def take(self, here, new, proposal, length, trail):
        """Take a step, and learn from it."""
        takes_all = self._takes_all(here)
        if self.exact or (takes_all and length < 1):
            new = search_line(trail.visit, here, proposal, length, new)
        self.gained = here.value - new.value
        if takes_all and self.floor == 0:
            self._start_anew(new, trail, self.objective.n_samples)
            return new
        if self.exact or self.floor > 0:
            self.floor = self.floor / 16 if self.floor > 1 / 16 else 0.0
            if not self.objective.is_quadratic:
                self._start_anew(new, trail)
            return new
        self.inverse.update(new.v - here.v, new.gradient - here.gradient)
        if self.inverse.rough and new.value < self._renewal * self.value_sampled:
            self.inverse.replace(
                self.objective.inverse_curvature(new, self.n_rows, self.rng, 0)
            )
            self.value_sampled = new.value
        return new

    def _takes_all(self, here):
        """Return whether all rows with curvature are no more than a sample.

        Where curvatures jump, that is: then Newton's method with all of them soon knows
        the rows that matter at the optimum, and pairs learn of rows that leave or come.
        """
        objective = self.objective
        if self.exact or not (objective.has_jumps and objective.is_at_hand):
            return False
        n_curved = np.count_nonzero(here.curvatures)
        return not self.inverse.rough and n_curved <= self.n_rows

    @property
    def _renewal(self):
        """Part of the objective at which a rough curvature is renewed."""
        is_large = self.objective.n_columns >= MANY_COLUMNS
        return LATE_RENEWAL if is_large and not self.inverse.diagonal else RENEWAL

    def stiffen(self, here, trail):
        n_samples = self.objective.n_samples
        if self.floor >= 1:
            if self.n_rows >= n_samples:
                return False
            # The sample lacks rows that alone have some column.
            self.n_rows = descent.larger_sample_size(self.n_rows, n_samples)
        self.floor = min(max(16 * self.floor, 1 / 16), 1.0)
        self._start_anew(here, trail)
        return True

    def _start_anew(self, here, trail, n_rows=None):
        self.left = np.inf
        self._sample(here, trail, n_rows)


def search_line(evaluate, here, proposal, length, new):
    """Return a point near the minimum along a direction.

    Where the loss has kinks, full Newton steps may go round in circles; steps to the
    minimum along their direction do not.
    """
    slope = proposal.slope
    low, high = (0.0, slope), None
    for _ in range(LINE_TRIALS):
        new_slope = new.gradient @ proposal.step
        if abs(new_slope) <= -slope / 4:
            break
        if new_slope < 0:
            low = (length, new_slope)
        else:
            high = (length, new_slope)
        if high is None:
            length *= 2
        else:
            # Where a straight line through the two slopes is zero.
            length = (low[0] * high[1] - high[0] * low[1]) / (high[1] - low[1])
        trial = evaluate(here.v + length * proposal.step)
        if trial.value > new.value:
            break
        new = trial
    return new
