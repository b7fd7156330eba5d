"""The finish of softmax regression with an l1 penalty.

Proximal Newton steps for all classes together, whose quadratic models are minimised by
coordinate descent: coefficients become exactly zero.
"""

from time import perf_counter

import numpy as np
from scipy import sparse

from sklearn_awsgd._kernels._models import SoftmaxModel
from sklearn_awsgd._linear.finish import CHEAP, MOST_TRIALS, ROUNDING, Report
from sklearn_awsgd._linear.objectives import systematic_sample

# Numbers in the rows that the curvature is taken from.
MOST_NUMBERS = 20_000_000
# Sweeps of coordinate descent for one quadratic model.
MAX_SWEEPS = 100
# Precision of the first of these, and that from which on it tells the suboptimality.
FIRST_PRECISION = 1e-2
SURE_PRECISION = 1e-3
# Least curvature of a coordinate, as a share of the largest it can have: where all rows
# are fitted well there is next to none, and steps would be far too long.
LEAST_CURVATURE = 1e-8


def finish_softmax_l1(
    objective, v, alpha_l1, tol, max_passes, rng, record, deadline=np.inf, enough=None
):
    """Minimise a MultinomialObjective plus ``alpha_l1 ||W||_1``.

    The parameters are those of :func:`~sklearn_awsgd._linear.finish.finish`.
    """
    enough = tol if enough is None else enough
    shape = (objective.n_classes, objective.n_columns)
    curvature = _Curvature(objective, rng)
    n_passes = 0

    def evaluate(V):
        nonlocal n_passes
        n_passes += 1
        V = _center(V, alpha_l1, objective.alpha)
        point = objective(objective.canonical(V.ravel()))
        point.value += alpha_l1 * np.abs(V[:, :-1]).sum()
        record(point, n_passes)
        return point

    point = evaluate(v.reshape(shape))
    # As in `finish`: where passes cost nothing, rounding decides.
    exact = objective.newton_flops() <= CHEAP
    max_sweeps = 50 * MAX_SWEEPS if exact else MAX_SWEEPS
    damping, last_decrease = 0.0, np.inf
    # Far from the optimum the model is not worth much work.
    precision = ROUNDING if exact else FIRST_PRECISION
    while True:
        V = point.v.reshape(shape)
        D, solved = curvature.direction(point, alpha_l1, damping, precision, max_sweeps)
        # The decrease that the model promises, up to its quadratic part.
        slope = np.sum(point.gradient * D.ravel()) + alpha_l1 * (
            np.abs(V[:, :-1] + D[:, :-1]).sum() - np.abs(V[:, :-1]).sum()
        )
        scale = max(abs(point.value), 1e-300)
        small = (ROUNDING if exact else max(tol, 1e-14)) * scale
        sure = (solved and precision < SURE_PRECISION) or last_decrease <= small
        if -slope <= small and sure:
            return Report(point, n_passes, True)
        step = 1.0
        for _ in range(MOST_TRIALS):
            if n_passes >= max_passes or perf_counter() > deadline:
                return Report(point, n_passes, -slope <= enough * scale and sure)
            new = evaluate(V + step * D)
            if new.value <= point.value + 1e-4 * step * slope:
                break
            step /= 2
        else:
            if -slope <= 1e-12 * scale:
                return Report(point, n_passes, True)
            damping = max(4 * damping, 1e-3)
            continue
        damping = damping / 4 if step == 1 else max(damping, 1e-3)
        precision = max(precision / 4, ROUNDING)
        last_decrease, point = point.value - new.value, new


class _Curvature:
    """The rows that the curvature is taken from, by columns."""

    def __init__(self, objective, rng):
        self.objective = objective
        X = objective.X
        n_rows = int(objective.n_samples * MOST_NUMBERS / max(objective.n_nonzero, 1))
        size = objective.mass * (objective.norms2 + 1)
        self.chosen, times = systematic_sample(size, n_rows, rng)
        self.weights = times * objective.mass[self.chosen]
        if len(self.chosen) < objective.n_samples:
            X = X[self.chosen]
        X = sparse.csc_array(X)
        self.columns = (
            np.asarray(X.data, dtype=np.float64),
            np.asarray(X.indices, dtype=np.int32),
            np.asarray(X.indptr, dtype=np.int32),
        )
        squares = sparse.csr_array(X.multiply(X).T)
        self.squares = sparse.vstack([squares, np.ones((1, X.shape[0]))]).tocsr()

    def direction(self, point, alpha_l1, damping, precision, max_sweeps):
        """Return the minimiser of the quadratic model, and whether it was reached."""
        objective = self.objective
        shape = (objective.n_classes, objective.n_columns)
        p = np.ascontiguousarray(point.curvatures[self.chosen].T)
        diagonal = np.ascontiguousarray(
            (self.squares @ (self.weights * p * (1 - p)).T).T
        )
        # No class can have more curvature than half of this.
        ridge = (LEAST_CURVATURE + damping) / 2 * (self.squares @ self.weights)
        ridge[:-1] += objective.alpha
        ridge += 1e-300
        diagonal += ridge
        model = SoftmaxModel(self.columns, self.weights * p, p, diagonal, ridge)
        return model.minimize(
            point.gradient.reshape(shape),
            point.v.reshape(shape),
            alpha_l1,
            objective.fit_intercept,
            precision,
            max_sweeps,
        )


def _center(V, alpha_l1, alpha_l2):
    """Shift each feature's coefficients to where their common shift costs least.

    The predictions do not depend on it, so no curvature would tell.
    """
    W = V[:, :-1]
    K = len(W)
    if alpha_l2 > 0:
        # The median formula of a sum of distances plus a square.
        reach = alpha_l1 / (K * alpha_l2) * (K - 2 * np.arange(K + 1))
        shift = np.median(np.vstack([W, W.mean(axis=0) + reach[:, None]]), axis=0)
    else:
        # All between two medians cost the same: that next to zero.
        ordered = np.sort(W, axis=0)
        shift = np.clip(0.0, ordered[(K - 1) // 2], ordered[K // 2])
    shift[np.abs(shift) <= 1e-12 * np.abs(W).max(axis=0)] = 0
    return np.hstack([W - shift, V[:, -1:]])
