"""Dual steps for softmax regression on wide data.

Each step solves for the probabilities of one row, all classes at once, and touches its
nonzeros alone: see :mod:`sklearn_awsgd._linear.phases.dual` for one linear model. Where
the penalty is felt, a handful of shuffled passes is enough. Each is followed by an
exact one, which tells how far it has led.

The constants were chosen on newsgroups at alpha 1e-4.
"""

import numpy as np

from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._kernels._softmax_batch import probabilities
from sklearn_awsgd._kernels._softmax_dual import take_steps
from sklearn_awsgd._linear.phases.descent import Report
from sklearn_awsgd._linear.phases.dual import (
    LARGEST_RATIO,
    SLOW_PASSES,
    curvature_ratio,
)
from sklearn_awsgd._solver.runs import Outcome

# What holds the intercepts, relative to their mean curvature at the start.
HOLD = 0.003
# Newton steps for the intercepts, and how well each class has its share after them.
MOST_SOLVES = 30
BALANCED = 1e-10


def suits_dual_steps(task):
    """Return whether dual steps pay: wide rows in memory, a penalty that is felt."""
    penalty = task.penalty
    if task.n_models == 1 or task.data.is_source or not task.is_wide:
        return False
    if penalty.l1 > 0 or penalty.l2 == 0:
        return False
    data, curvature = task.data, _mean_curvature(task)
    ratio = curvature_ratio(curvature, data.mass, data.norms2, penalty.l2)
    return 0 < ratio <= LARGEST_RATIO


def _mean_curvature(task):
    """Return the mean over classes of p (1 - p) for their shares p."""
    shares = task.shares()
    return (1 - shares @ shares) / len(shares)


def take_softmax_steps(task, budget, log):
    """Go towards the optimum by dual steps from zero coefficients.

    Returns
    -------
    outcome : Outcome
        What it took.
    report : Report or None
        The end, where it reached the tolerance or the budget is spent; otherwise the
        parameters of the task are where to go on.
    """
    data, n_rows = task.data, task.n_samples
    rng = np.random.Generator(task.generator)
    objective = task.make_objective()
    shape = (task.n_models, task.n_features + 1)
    V = task.parameters().reshape(shape)
    coef, intercepts = np.zeros(shape)[:, :-1].T.copy(), V[:, -1].copy()
    variates, rows = np.zeros((n_rows, task.n_models)), Rows(data.X)
    weights = np.ones(n_rows) if data.mass is None else data.mass * n_rows
    hold = HOLD * _mean_curvature(task) * n_rows if task.fit_intercept else 0.0
    outcome, gaps, tol = Outcome(), [], budget.tol or 0.0
    while True:
        take_steps(
            rows,
            rng.permutation(n_rows),
            task.target.values,
            weights,
            data.norms2.astype(np.float64, copy=False),
            variates,
            coef,
            intercepts,
            task.penalty.l2 * n_rows,
            hold,
        )
        if task.fit_intercept:
            _solve_intercepts(data, task.shares(), coef, intercepts)
        V = np.column_stack([coef.T, intercepts])
        here = objective(objective.canonical(V.ravel()))
        outcome.n_iter += 2
        outcome.n_draws += 2 * n_rows
        log.add_exact(outcome.n_draws, here.value, here.gap, lambda: here.v, n_passes=2)
        converged = here.gap <= tol * here.value
        if converged or budget.is_spent(outcome.n_iter + 1):
            task.set_parameters(here.v, outcome.n_draws)
            return outcome, Report(here, 0, bool(converged))
        gaps.append(here.gap)
        if len(gaps) > 2 and gaps[-1] > SLOW_PASSES * gaps[-3]:
            task.set_parameters(here.v, outcome.n_draws)
            return outcome, None


def _solve_intercepts(data, shares, coef, intercepts):
    """Move the intercepts to where they are best for the coefficients.

    There each class has its share of the probabilities, so that these are a dual point
    as they are, and its bound loses nothing.
    """
    scores = np.asarray(data.X @ coef, dtype=np.float64)
    mass = np.full(len(scores), 1 / len(scores)) if data.mass is None else data.mass
    for _ in range(MOST_SOLVES):
        p = scores.copy()
        probabilities(p, intercepts)
        excess = mass @ p - shares
        if np.abs(excess).max() <= BALANCED:
            break
        curvature = np.diag(mass @ p) - (p * mass[:, None]).T @ p
        # A common shift changes nothing; this pins it.
        curvature += np.mean(np.diag(curvature)) + 1e-12 * np.eye(len(shares))
        step = np.linalg.solve(curvature, excess)
        intercepts -= step / max(1.0, np.abs(step).max())
