"""The deterministic finish of ``learning_rate="auto"``.

Quasi-Newton iterations with exact gradients. The curvature they start from is that of a
sample of rows, drawn in proportion to ``P_i f''_i (||x_i||^2 + 1)``: near the optimum
of a problem with a rare class a few thousand rows carry nearly all of it. What the
sample gets wrong is corrected by BFGS pairs. When these correct too slowly the
curvature is sampled anew, and where it has settled already, from more rows; from all of
them this is Newton's method.
"""

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from sklearn_awsgd._kernels._models import minimize_l1_model
from sklearn_awsgd._linear.objectives import MOST_PARAMETERS, InverseCurvature, Point

# Rows of the first curvature sample: for each parameter, as a share of all, at least.
ROWS_PER_PARAMETER = 12
SHARE_OF_ROWS = 1 / 16
FEWEST_ROWS = 1500
# A step that leaves more than this fraction of the estimated suboptimality is slow.
SLOW = 0.1
# The curvature is used for so many times the passes that its next sample costs, before
# steps count as slow.
PATIENCE = 2
# Below this relative suboptimality the curvature has settled: if steps are slow there,
# the sample is too small; above it, it is only old.
NEAR = 0.02
# After so many samples of one size that were slow all the same, it is too small too.
MOST_REFRESHED = 3
# The suboptimality over its estimate is taken to be the largest seen in so many steps,
# and no less than LEAST_RATIO.
N_RATIOS = 3
LEAST_RATIO = 1.5
# Where the estimate alone cannot be trusted, the objective must have stood still too:
# for so many steps, a share of all of them, and up to a part of the tolerance. Where
# the loss has kinks or proximal steps had curvature added, and with a diagonal.
STILL = (5, 1 / 3, 1 / 4)
STILL_WITH_DIAGONAL = (2, 1 / 6, 1 / 2)
# A diagonal is renewed when the objective has fallen to this part of what it was.
RENEWAL = 0.5
# Flops of all rows' curvature below which the finish goes on until rounding decides.
CHEAP = 3e5
# Shorter steps than this mean that the curvature is far too small, as where a loss is
# linear: then each row is given a share of the largest curvature the loss can have.
SHORTEST = 1 / 64
# The first such share that proximal Newton steps try.
LEAST_FLOOR = 1e-4
# Least and most of a step that is left when it was too long.
CUT = (0.1, 0.7)
# Sweeps of coordinate descent for a quadratic model with an l1 penalty.
MAX_SWEEPS = 1000
# Trials of a line search.
MOST_TRIALS = 10
# Passes after which the finish no longer insists on that.
MOST_EXACT = 200
# Relative Newton decrement at which rounding decides.
ROUNDING = 1e-24


@dataclass
class Report:
    """How the finish ended.

    Attributes
    ----------
    point : Point
        The last point.
    n_passes : int
        Passes over the rows.
    converged : bool
        Whether the tolerance was met.
    """

    point: Point
    n_passes: int
    converged: bool


def finish(objective, v, tol, max_passes, rng, record, deadline=np.inf, enough=None):
    """Minimise from v.

    Parameters
    ----------
    objective : LinearObjective or MultinomialObjective
        What to minimise.
    v : ndarray
        Parameters to start from.
    tol : float
        Relative suboptimality to reach.
    max_passes : int
        Largest number of passes over the rows.
    rng : numpy.random.Generator
        Draws the curvature samples.
    record : callable
        Called with the point and the number of passes after each of them.
    deadline : float, default=inf
        Value of ``perf_counter`` at which to stop.
    enough : float, default=None
        Relative suboptimality that counts as converged when passes or time are over;
        None for `tol`.

    Returns
    -------
    report : Report
        How it ended.
    """
    enough = tol if enough is None else enough
    n_samples = objective.n_samples
    exact = objective.sharp and objective.newton_flops() <= CHEAP
    target = ROUNDING if exact else tol
    n_rows = _first_sample_size(objective, exact)
    values = []

    def evaluate(v):
        point = objective(v)
        values.append(point.value)
        record(point, len(values))
        return point

    point = evaluate(v)
    floor, left, n_refreshed = 0.0, np.inf, 0
    # The suboptimality over its estimate, as the last steps tell it.
    ratios, gained, estimate = [LEAST_RATIO], 0.0, np.inf
    inverse = objective.inverse_curvature(point, n_rows, rng, floor)
    # Passes until the curvature was last sampled, and the objective there.
    n_sampled, value_sampled = len(values), point.value
    # The objective after each step that was taken.
    reached = [point.value]
    while True:
        direction = -(inverse @ point.gradient)
        slope = point.gradient @ direction
        slow = -slope / 2 > SLOW * left
        left = -slope / 2
        if gained > 0:
            # If both ends of a step had r times their estimates left, it has gained r
            # times the difference.
            ratios.append(gained / (estimate - left) if left < estimate else np.inf)
        gained, estimate = 0.0, left
        scale = max(abs(point.value), 1e-10 * abs(values[0]))
        if exact and len(values) > MOST_EXACT:
            # Where the loss has kinks, Newton's method may go round in circles.
            exact, target = False, tol
        ratio = max(LEAST_RATIO, *ratios[-N_RATIOS:])
        bound = inverse.margin * ratio * left if left > 0 else 0.0
        # Between kinks steps are too uneven to be trusted alone, and what is known of
        # wide data is too little.
        if not objective.sharp and not _stands_still(reached, tol * scale, STILL):
            bound = np.inf
        if inverse.diagonal:
            if not _stands_still(reached, tol * scale, STILL_WITH_DIAGONAL):
                bound = np.inf
        bound = min(bound, point.gap)
        if bound <= target * scale:
            return Report(point, len(values), True)
        grow = left < NEAR * point.value or n_refreshed >= MOST_REFRESHED
        next_rows = _larger(n_rows, n_samples) if grow else n_rows
        n_waited = len(values) - n_sampled
        if slow and n_waited >= max(PATIENCE * inverse.cost * next_rows / n_rows, 1):
            n_refreshed = 0 if grow else n_refreshed + 1
            n_rows = next_rows
            inverse = objective.inverse_curvature(point, n_rows, rng, floor)
            n_sampled = len(values)
            continue
        step = 1.0
        while True:
            if len(values) >= max_passes or perf_counter() > deadline:
                return Report(point, len(values), bound <= enough * scale)
            new = evaluate(point.v + step * direction)
            if new.value <= point.value + 1e-4 * step * slope:
                break
            if -slope <= 1e-11 * abs(point.value):
                # The decrease is lost in the rounding of the objective: the gradient,
                # which is more exact, decides.
                if new.gradient @ (inverse @ new.gradient) < -slope / 4:
                    break
                return Report(point, len(values), True)
            step *= _shorter(point, new, direction, step)
            if step < SHORTEST:
                if floor >= 1:
                    return Report(point, len(values), False)
                floor, new = max(16 * floor, 1 / 16), None
                break
        if new is not None:
            if exact:
                new = _search_line(evaluate, point, direction, step, new)
            inverse.update(new.v - point.v, new.gradient - point.gradient)
            gained = point.value - new.value
            point = new
            reached.append(point.value)
            if not exact and floor == 0:
                if inverse.diagonal and point.value < RENEWAL * value_sampled:
                    inverse.replace(objective.inverse_curvature(point, n_rows, rng, 0))
                    value_sampled = point.value
                continue
            floor = floor / 16 if floor > 1 / 16 else 0.0
        left = np.inf
        inverse = objective.inverse_curvature(point, n_rows, rng, floor)
        n_sampled, value_sampled = len(values), point.value


def _shorter(point, new, direction, step):
    """Return what to multiply a step that was too long with.

    It goes to the minimum of the cubic through the objectives and slopes of both ends.
    """
    slope, new_slope = point.gradient @ direction, new.gradient @ direction
    mean = slope + new_slope - 3 * (new.value - point.value) / step
    root = np.sqrt(max(mean**2 - slope * new_slope, 0.0))
    bottom = new_slope - slope + 2 * root
    if not (np.isfinite(bottom) and bottom > 0):
        return 0.5
    return np.clip(1 - (new_slope + root - mean) / bottom, *CUT)


def _search_line(evaluate, point, direction, step, new):
    """Return a point near the minimum along a direction.

    Where the loss has kinks, full Newton steps may go round in circles; steps to the
    minimum along their direction do not.
    """
    slope = point.gradient @ direction
    low, high = (0.0, slope), None
    for _ in range(MOST_TRIALS):
        new_slope = new.gradient @ direction
        if abs(new_slope) <= -slope / 4:
            break
        if new_slope < 0:
            low = (step, new_slope)
        else:
            high = (step, new_slope)
        if high is None:
            step *= 2
        else:
            # Where a straight line through the two slopes is zero.
            step = (low[0] * high[1] - high[0] * low[1]) / (high[1] - low[1])
        trial = evaluate(point.v + step * direction)
        if trial.value > new.value:
            break
        new = trial
    return new


def _stands_still(reached, tolerance, rule):
    """Return whether the last steps have gained a part of the tolerance only."""
    n_steps, share, part = rule
    n_still = max(n_steps, int(share * len(reached)))
    if len(reached) <= n_still:
        return False
    return reached[-1 - n_still] - reached[-1] <= part * tolerance


def _first_sample_size(objective, exact):
    """Return the number of rows of the first curvature sample."""
    if exact:
        return objective.n_samples
    n_rows = max(
        ROWS_PER_PARAMETER * objective.n_columns,
        int(SHARE_OF_ROWS * objective.n_samples),
        FEWEST_ROWS,
    )
    if objective.n_samples < 4 * objective.n_columns:
        return objective.n_samples
    return min(n_rows, objective.n_samples // 2)


def _larger(n_rows, n_samples):
    """Return the size of the next larger sample."""
    return 4 * n_rows if 8 * n_rows < n_samples else n_samples


def _polish(hessian, point, alpha_l1, direction):
    """Solve exactly for the coefficients that coordinate descent left nonzero.

    Where that keeps their signs: else the descent was not at its end.
    """
    new = point.v + direction
    signs = np.append(np.sign(new[:-1]), 0.0)
    active = np.append(new[:-1] != 0, True)
    slope = point.gradient + hessian[:, ~active] @ direction[~active]
    slope = slope[active] + alpha_l1 * signs[active]
    inverse = InverseCurvature.from_hessian(hessian[np.ix_(active, active)], cost=0.0)
    exact = -(inverse @ slope)
    if (np.sign(point.v[active] + exact)[:-1] == signs[active][:-1]).all():
        direction[active] = exact


def can_finish_l1(n_features):
    """Return whether :func:`finish_l1` is meant for that many features."""
    return n_features < MOST_PARAMETERS


def finish_l1(
    objective, v, alpha_l1, tol, max_passes, rng, record, deadline=np.inf, enough=None
):
    """Minimise an objective plus ``alpha_l1 ||w||_1``, by proximal Newton steps.

    Each step minimises the quadratic model of a curvature sample plus the l1 penalty by
    coordinate descent, so coefficients become exactly zero. The parameters are those of
    :func:`finish`. With ``alpha_l1=0`` these are Newton's steps with new curvature each
    time, which losses need that have none in places, or suddenly much.
    """
    enough = tol if enough is None else enough
    n_samples = objective.n_samples
    cheap = objective.newton_flops() <= CHEAP
    exact = objective.sharp and cheap
    n_rows = _first_sample_size(objective, cheap)
    values = []

    def evaluate(v):
        point = objective(v)
        point.value += alpha_l1 * np.abs(v[:-1]).sum()
        if alpha_l1 > 0:
            point.gap = np.inf
        values.append(point.value)
        record(point, len(values))
        return point

    point = evaluate(v)
    reached = [point.value]
    floor, left = 0.0, np.inf
    direction = np.empty_like(v)
    while True:
        hessian, _ = objective.hessian(point, n_rows, rng, floor)
        if alpha_l1 > 0:
            hessian = np.triu(hessian) + np.triu(hessian, 1).T
            minimize_l1_model(
                hessian, point.gradient, point.v, alpha_l1, direction, MAX_SWEEPS
            )
            if exact:
                _polish(hessian, point, alpha_l1, direction)
        else:
            inverse = InverseCurvature.from_hessian(hessian, cost=0.0)
            direction[:] = -(inverse @ point.gradient)
        # The decrease that the model promises, up to its quadratic part.
        slope = point.gradient @ direction + alpha_l1 * (
            np.abs(point.v[:-1] + direction[:-1]).sum() - np.abs(point.v[:-1]).sum()
        )
        scale = max(abs(point.value), 1e-300)
        target = (ROUNDING if exact else tol) * scale
        # With curvature added a model promises too little.
        sure = floor == 0 or _stands_still(reached, tol * scale, STILL)
        if (-slope <= target and sure) or point.gap <= target:
            return Report(point, len(values), True)
        if -slope / 2 > SLOW * left and -slope / 2 < NEAR * scale:
            n_rows = _larger(n_rows, n_samples)
        left, step = -slope / 2, 1.0
        while True:
            if len(values) >= max_passes or perf_counter() > deadline:
                converged = -slope <= enough * scale and sure
                return Report(point, len(values), converged)
            new = evaluate(point.v + step * direction)
            if new.value <= point.value + 1e-4 * step * slope:
                point = new
                reached.append(point.value)
                floor = floor / 8 if floor > LEAST_FLOOR else 0.0
                break
            if -slope <= 1e-12 * scale:
                # Rounding hides the decrease: the model is trusted once more.
                return Report(new if exact else point, len(values), True)
            step /= 4
            if step < SHORTEST:
                if floor >= 1:
                    return Report(point, len(values), False)
                floor = max(32 * floor, LEAST_FLOOR)
                break
