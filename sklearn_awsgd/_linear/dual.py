"""The middle of ``learning_rate="auto"`` for wide data: when it starts and ends.

Where there are too many features for their curvature, passes of steps with control
variates (:class:`~sklearn_awsgd._kernels._dual.DualSteps`) come before the finish. A
pass of them costs about as much as one exact gradient, and their dual objective is a
lower bound of the minimum that is tight enough to stop by.
"""

from time import perf_counter

import numpy as np

from sklearn_awsgd._kernels._dual import DualSteps
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._linear.finish import Report
from sklearn_awsgd._linear.objectives import MOST_PARAMETERS
from sklearn_awsgd._solver import History, solve
from sklearn_awsgd.samplers import ProblemView, UniformSampler

# The curvature of a row, relative to what the penalty gives it. The larger, the more
# passes the steps need; beyond this the finish is quicker.
LARGEST_RATIO = 8.0
# Two passes that leave more of the gap than this are slow: the finish is quicker.
SLOW = 0.7
# What holds the intercept, relative to its curvature at the start. Tried from 1 to
# 1e-4: the larger, the slower the intercept; the smaller, the less steady all else.
HOLD = 0.003
# Least curvature, as a share of the largest that the loss can have.
LEAST_CURVATURE = 1e-3


def curvature_ratio(loss, target, intercept, mass, norms2, alpha):
    """Return the mean curvature of a row, and it relative to the penalty's."""
    curvatures = loss.second_derivatives(target, np.full(len(target), intercept))
    mass = np.full(len(target), 1 / len(target)) if mass is None else mass
    # Where all rows lie on lines of their losses there is none yet.
    curvature = max(mass @ curvatures, LEAST_CURVATURE * loss.smoothness)
    return curvature, curvature * (mass @ norms2) / (alpha * len(target))


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

    Attributes
    ----------
    point : Point or None
        Where the gap was small enough.
    n_exact, n_passes : int
        Number of exact passes, and of all passes.
    """

    last_score = np.nan

    def __init__(self, problem, evaluate, tol, max_passes, scale=1.0):
        self.problem, self.evaluate, self.tol = problem, evaluate, tol
        self.max_passes, self.scale = max_passes, scale
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
        slow = len(self._met) > 2 and last > SLOW * self._met[-3]
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

    def _intercept_hold(self, data, k, target):
        """Return what holds the intercept of dual steps; None where they do not pay.

        They are for wide data, a smooth loss and an l2 penalty that is felt.
        """
        alpha_l1, alpha = self._alphas(data)
        loss = self._make_loss()
        if (
            data.X.shape[1] < MOST_PARAMETERS
            or not (alpha > 0 and alpha_l1 == 0)
            or not np.isfinite(loss.smoothness)
            or self._n_models(target) > 1
        ):
            return None
        curvature, ratio = curvature_ratio(
            loss,
            target,
            self._states[k]["intercept"][0],
            data.mass,
            data.norms2,
            alpha,
        )
        return HOLD * curvature if ratio <= LARGEST_RATIO else None

    def _take_dual_steps(self, data, table, k, target, beta, max_iter, tol, options):
        """Take problem k towards the optimum by dual steps.

        The rows of the first pass are drawn by what is learned of them; then all have
        been seen and the passes are shuffled, as draws with replacement leave out a
        third of the rows.
        """
        state, loss, history = self._states[k], self._make_loss(), options["history"]
        alpha = self._alphas(data)[1]
        problem = DualSteps(
            Rows(data.X),
            loss,
            target,
            data.norms2,
            state,
            self.fit_intercept,
            data.mass,
            alpha,
            beta,
        )
        objective = self._make_objective(data, target, loss)
        n_rows, later = len(table.rows), History()

        def evaluate(dual_point):
            objective.mix_dual(*dual_point)
            point = objective(np.append(state["coef"], state["intercept"]))
            later.add_pass(
                k,
                int(state["clock"][0]) - n_rows,
                perf_counter() - started,
                data.total * point.value,
                data.total * point.gap,
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
        stop = DualStop(problem, evaluate, tol, max_iter, data.total)
        options = {**options, "pass_length": n_rows, "should_stop": stop}
        outcome = solve(problem, kernel, max_iter=1, **options)
        self.sampler_._store(k, kernel)
        shuffled = UniformSampler()._kernel(k, self._generators[k], table, view)
        options["history"], started = later, perf_counter()
        after = solve(problem, shuffled, max_iter=max_iter - 1, **options)
        # Shuffled passes learn nothing.
        later.sampling.clear()
        history.extend([later])
        state["clock"] += stop.n_exact * n_rows
        outcome.n_iter = stop.n_passes
        outcome.n_draws += after.n_draws + stop.n_exact * n_rows
        if stop.point is None:
            return outcome, None, problem.dual_point()
        return outcome, Report(stop.point, n_passes=0, converged=True), None
