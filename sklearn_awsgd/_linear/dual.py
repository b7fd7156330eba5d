"""The middle of ``learning_rate="auto"`` for wide data: when it starts and ends.

Where there are too many features for their curvature, passes of steps with control
variates (:class:`~sklearn_awsgd._kernels._dual.DualSteps`) come before the finish. Each
touches the nonzeros of one row, and their dual objective is a lower bound of the
minimum that is tight enough to stop by.
"""

import math
from time import perf_counter

import numpy as np

from sklearn_awsgd._kernels._dual import DualSteps
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._kernels._samplers import ShuffledPasses
from sklearn_awsgd._linear.finish import Report
from sklearn_awsgd._linear.objectives import MOST_PARAMETERS, expectation
from sklearn_awsgd._solver import History, solve
from sklearn_awsgd.samplers import ProblemView

# The curvature of a row, relative to what the penalty gives it. The larger, the more
# passes the steps need; beyond this the finish is quicker.
LARGEST_RATIO = 64.0
# The same for losses with kinks, for which the finish takes many more passes.
LARGEST_RATIO_WITH_KINKS = 800.0
# Passes are slow, and the finish quicker, if more of the gap is left after two. With
# kinks the finish is never quicker.
SLOW = 0.7
# Draws by what is learned of the rows, before the passes: as a share of the rows.
SHARE_OF_ROWS = 1 / 2
# Numbers in the rows that stay next to each other in shuffled passes: where the data do
# not fit into the cache, single short rows would have to be waited for.
NUMBERS_IN_BLOCK = 500
# Most rows in a block, as a share of all: rows that always follow each other undo what
# the ones before did to the intercept, which each moves by 1 / (HOLD n) of its error.
BLOCK_SHARE = 3e-4
# What holds the intercept, relative to its curvature at the start: the larger, the
# slower the intercept; the smaller, the less steady all else.
HOLD = 0.003
# Least curvature, as a share of the largest that the loss can have.
LEAST_CURVATURE = 1e-3
# How far a loss with rounded kinks is above the loss, in widths of the rounding.
ROUNDING_ERROR = 2 * np.log(2)
# The width of the rounding is this part of tol times the objective at the start, as it
# has to matter less than tol at the end too, and as if tol were at least SMALLEST_TOL.
ROUNDING_SHARE = 4096
SMALLEST_TOL = 1e-9


def curvature_ratio(curvature, mass, norms2, alpha):
    """Return the curvature of a mean row, relative to what the penalty gives it."""
    return curvature * expectation(norms2, mass) / (alpha * len(norms2))


class DualStop:
    """Stop when the duality gap is small enough, or shrinks too slowly.

    The gap is guessed from those of the rows as they were met in a pass; when the guess
    is small enough, one exact pass tells.

    Parameters
    ----------
    problem : DualSteps
        The problem that is stepped; the center of its intercept is moved.
    evaluate : callable
        Takes the dual point of the variates and returns the exact point of the current
        parameters, at the cost of a pass.
    tol : float
        Relative gap to reach.
    max_passes : int
        Largest number of passes, exact ones included.
    scale : float, default=1.0
        Factor that takes the gap to the objective that the solver knows.
    slow : float, default=SLOW
        Share of the gap that slow passes leave, of two.

    Attributes
    ----------
    point : Point or None
        Where the gap was small enough.
    n_exact, n_passes : int
        Number of exact passes, and of all passes.
    """

    last_score = np.nan

    def __init__(self, problem, evaluate, tol, max_passes, scale=1.0, slow=SLOW):
        self.problem, self.evaluate, self.tol = problem, evaluate, tol
        self.max_passes, self.scale, self.slow = max_passes, scale, slow
        self.point, self.n_exact = None, 0
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
            point = self.evaluate(self.problem.dual_point())
            self.n_exact += 1
            self._known_ratio = point.gap / last if last > 0 else 0.0
            if point.gap <= self.tol * point.value:
                self.point = point
                return True
        self.problem.recenter()
        slow = len(self._met) > 2 and last > self.slow * self._met[-3]
        return slow or self.n_passes >= self.max_passes

    def _guess(self):
        """Return a guess of the gap after the last pass."""
        if self._known_ratio is not None:
            return self._known_ratio * self._met[-1]
        if len(self._met) == 1:
            return np.inf
        before, last = self._met[-2:]
        return np.sqrt(last / before) * last if before > 0 else last


class DualStepsMixin:
    """How the linear estimators take dual steps."""

    def _plan_dual_steps(self, data, k, target, tol):
        """Return the loss, its rounding and the hold of the intercept for dual steps.

        None where they do not pay: they are for wide data and an l2 penalty that is
        felt. The kinks of a loss that has any are rounded, over a width that matters
        less than `tol` unless the objective falls to a small part of what it is.
        """
        alpha_l1, alpha = self._alphas(data)
        if (
            data.X.shape[1] < MOST_PARAMETERS
            or not (alpha > 0 and alpha_l1 == 0)
            or self._n_models(target) > 1
        ):
            return None
        loss, width = self._make_loss(), 0.0
        z = np.full(len(target), self._states[k]["intercept"][0])
        if np.isfinite(loss.smoothness):
            curvatures = loss.second_derivatives(target, z)
            # Where all rows lie on lines of their losses there is none yet.
            least = LEAST_CURVATURE * loss.smoothness
            curvature = max(expectation(curvatures, data.mass), least)
        else:
            # That of a parabola as high as the loss at the distance of the targets.
            value = expectation(loss(target, z)[0], data.mass)
            curvature = value / self._target_spread(data, target) ** 2
            width = max(tol or 0.0, SMALLEST_TOL) * value / ROUNDING_SHARE
            loss = loss.rounded(width)
        ratio = curvature_ratio(curvature, data.mass, data.norms2, alpha)
        if not 0 < ratio <= (LARGEST_RATIO_WITH_KINKS if width else LARGEST_RATIO):
            return None
        return loss, width, HOLD * curvature

    def _take_dual_steps(self, data, table, k, target, plan, max_iter, tol, options):
        """Take problem k towards the optimum by dual steps.

        The first rows are drawn by what is learned of them; then the passes are
        shuffled, as draws with replacement leave out a third of the rows.
        """
        loss, width, beta = plan
        state, history = self._states[k], options["history"]
        alpha = self._alphas(data)[1]
        problem = DualSteps(
            Rows(data.X),
            loss,
            target,
            data.norms2,
            state,
            data.mass,
            alpha,
            beta if self.fit_intercept else None,
        )
        objective = self._make_objective(data, target, loss)
        n_rows, later = len(table.rows), History()
        n_first = math.ceil(SHARE_OF_ROWS * n_rows)

        def evaluate(dual_point):
            objective.mix_dual(*dual_point)
            point = objective(np.append(state["coef"], state["intercept"]))
            later.add_pass(
                k,
                int(state["clock"][0]) - n_first,
                perf_counter() - started,
                data.total * point.value,
                data.total * (point.gap + ROUNDING_ERROR * width),
                self.verbose,
            )
            return point

        derivatives = loss(target, np.full(len(target), state["intercept"][0]))[1]
        view = ProblemView(
            groups=self._groups(target),
            norms2=derivatives**2 * (data.norms2 + self.fit_intercept),
        )
        kernel = self.sampler_._kernel(k, self._generators[k], table, view)
        tol = 0.0 if tol is None else tol
        # With rounded kinks, half of the tolerance is for what that changes.
        tol = tol / 2 if width > 0 else tol
        slow = np.inf if width > 0 else SLOW
        stop = DualStop(problem, evaluate, tol, max_iter, data.total, slow)
        options = {**options, "should_stop": stop}
        outcome = solve(problem, kernel, max_iter=1, pass_length=n_first, **options)
        self.sampler_._store(k, kernel)
        shuffled = ShuffledPasses(
            self._generators[k],
            table.rows.copy(),
            table.mass,
            table.shuffle,
            block_size=int(
                max(
                    1, n_rows * min(NUMBERS_IN_BLOCK / objective.n_nonzero, BLOCK_SHARE)
                )
            ),
        )
        options["history"], started = later, perf_counter()
        options["pass_length"] = n_rows
        after = solve(problem, shuffled, max_iter=max_iter - 1, **options)
        # Shuffled passes learn nothing.
        later.sampling.clear()
        later.count_exact_passes(n_rows)
        history.extend([later])
        state["clock"] += stop.n_exact * n_rows
        outcome.n_iter, outcome.converged = stop.n_passes, False
        outcome.n_draws += after.n_draws + stop.n_exact * n_rows
        point = stop.point
        if point is None and stop.n_passes >= max_iter:
            # Nothing follows that would tell how far the optimum is.
            gap = evaluate(problem.dual_point()).gap
            outcome.duality_gap = gap + ROUNDING_ERROR * width
        if point is None or ROUNDING_ERROR * width > tol * point.value:
            return outcome, None, problem.dual_point() if width == 0 else None
        return outcome, Report(point, n_passes=0, converged=True), None
