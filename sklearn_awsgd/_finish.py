"""The deterministic finish of ``learning_rate="auto"``.

Quasi-Newton iterations with exact gradients. The curvature they start from is that of a
sample of rows, drawn in proportion to ``P_i f''_i (||x_i||^2 + 1)``: near the optimum
of a problem with a rare class a few thousand rows carry nearly all of it. What the
sample gets wrong is corrected by BFGS pairs. When these correct too slowly the
curvature is sampled anew, and where it has settled already, from more rows; from all of
them this is Newton's method.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from sklearn_awsgd._kernels import _batch

# Rows of the first curvature sample: for each parameter, as a share of all, at least.
ROWS_PER_PARAMETER = 12
SHARE_OF_ROWS = 1 / 16
FEWEST_ROWS = 1500
# With more parameters only the diagonal of the curvature is used.
MOST_PARAMETERS = 3000
# A step that leaves more than this fraction of the estimated suboptimality is slow.
SLOW = 0.1
# Below this relative suboptimality the curvature has settled: if steps are slow there,
# the sample is too small; above it, it is only old.
NEAR = 0.02
N_PAIRS = 10
# Passes over which the objective must have stood still where the curvature, being only
# a diagonal, is too poor to tell the suboptimality from the gradient.
N_STILL = 5
# Flops of all rows' curvature below which the finish goes on until rounding decides.
CHEAP = 5e6
# Relative Newton decrement at which rounding decides.
ROUNDING = 1e-24


@dataclass
class Point:
    """The objective at a point, from one pass over the rows."""

    v: np.ndarray
    value: float
    gradient: np.ndarray
    gap: float


@dataclass
class Report:
    """How the finish ended.

    Attributes
    ----------
    point : Point
        The last point.
    suboptimality : float
        Estimate of how far its objective is above the minimum.
    n_passes : int
        Passes over the rows.
    converged : bool
        Whether the tolerance was met.
    """

    point: Point
    suboptimality: float
    n_passes: int
    converged: bool


class LinearObjective:
    """E_P[f(y, <x, w> + b)] + alpha / 2 ||w||^2 as a function of v = (w, b).

    Parameters
    ----------
    rows : Rows
        View of X.
    X : ndarray or CSR of shape (n_samples, n_features)
        Rows.
    loss : Loss
        A smooth loss.
    y : ndarray of shape (n_samples,)
        Targets.
    mass : ndarray of shape (n_samples,) or None
        P of each row.
    norms2 : ndarray of shape (n_samples,)
        Squared norms of the rows.
    alpha : float
        Strength of the penalty.
    fit_intercept : bool
        Whether b is free.
    """

    def __init__(self, rows, X, loss, y, mass, norms2, alpha, fit_intercept):
        self.rows, self.X, self.loss, self.y = rows, X, loss, y
        self.mass, self.norms2 = mass, norms2
        self.alpha, self.fit_intercept = alpha, fit_intercept
        self.n_samples, n_features = X.shape
        self.n_parameters = n_features + 1
        self.curvatures = np.empty(self.n_samples)
        self.n_nonzero = X.nnz if sparse.issparse(X) else X.size

    def __call__(self, v):
        """Make a pass over the rows at v; the curvature of each row is kept."""
        gradients, sums = np.empty((2, self.n_parameters)), np.empty((2, 2))
        _batch.evaluate(
            self.rows,
            self.loss,
            self.y,
            self.mass,
            v[:-1],
            v[-1],
            gradients,
            sums,
            self.curvatures,
        )
        value = sums[:, 0].sum() + self.alpha / 2 * v[:-1] @ v[:-1]
        gap = np.inf
        if self.alpha > 0:
            gap = value - self._dual_value(gradients, sums)
        gradient = gradients.sum(axis=0)
        gradient[:-1] += self.alpha * v[:-1]
        if not self.fit_intercept:
            gradient[-1] = 0
        return Point(v, value, gradient, gap)

    def _dual_value(self, gradients, sums):
        """Return a lower bound of the minimum.

        The derivatives c_i are a dual point. With an intercept it is feasible when
        their mean is zero, so the side with the larger sum is scaled down, by s. As
        ``f*(s c) <= s f*(c)`` for a loss whose infimum is zero, and
        ``f*(c) = c z - f`` at c = f'(z), the dual objective is at least
        ``sum s (f - c z) - ||sum s c x||^2 / (2 alpha)``.
        """
        scale = np.ones(2)
        if self.fit_intercept:
            below, above = -gradients[0, -1], gradients[1, -1]
            larger = int(above > below)
            scale[larger] = min(below, above) / max(below, above, 1e-300)
        combined = scale @ gradients[:, :-1]
        return scale @ (sums[:, 0] - sums[:, 1]) - combined @ combined / (
            2 * self.alpha
        )

    def newton_flops(self):
        """Return the cost of the curvature of all rows."""
        return self.n_nonzero**2 / self.n_samples + self.n_parameters**3 / 3

    def inverse_curvature(self, n_rows, rng):
        """Return the inverse of a sampled curvature."""
        if self.n_parameters > MOST_PARAMETERS:
            diagonal = _batch.hessian_diagonal(self.rows, self.mass, self.curvatures)
            self._add_penalty(diagonal)
            return InverseCurvature(1 / diagonal, cost=np.inf)
        chosen, weights = self._sample(n_rows, rng)
        hessian = np.zeros((self.n_parameters, self.n_parameters))
        per_row = self.n_nonzero / self.n_samples
        if sparse.issparse(self.X):
            _batch.add_hessian(self.rows, chosen, weights, hessian)
            flops = len(chosen) * per_row**2 / 2
            if n_rows < self.n_samples:
                # A rare feature may be missing from the sample; without its own
                # curvature the step along it would be far too long.
                diagonal = _batch.hessian_diagonal(
                    self.rows, self.mass, self.curvatures
                )
                np.fill_diagonal(hessian, np.maximum(np.diagonal(hessian), diagonal))
        else:
            # Matrix products run ten times as fast as passes, which wait for memory.
            flops = len(chosen) * per_row**2 / 10
            for start in range(0, len(chosen), 4096):
                part = slice(start, start + 4096)
                A = np.empty((len(chosen[part]), self.n_parameters))
                A[:, :-1] = self.X[chosen[part]]
                A[:, -1] = 1
                A *= np.sqrt(weights[part, None])
                hessian += A.T @ A
        if not self.fit_intercept:
            hessian[:, -1] = 0
        self._add_penalty(np.einsum("ii->i", hessian))
        flops += self.n_parameters**3 / 30
        return InverseCurvature(
            cho_factor(hessian, overwrite_a=True, check_finite=False),
            cost=flops / (4 * self.n_samples * (per_row + 5)),
        )

    def _add_penalty(self, diagonal):
        diagonal[:-1] += self.alpha
        if not self.fit_intercept:
            diagonal[-1] = 1
        # Features without curvature and without penalty must not break the inverse.
        diagonal += 1e-12 * diagonal.max() + 1e-300

    def _sample(self, n_rows, rng):
        """Return rows and weights whose weighted curvature has the right mean."""
        weight = self.curvatures * (
            1 / self.n_samples if self.mass is None else self.mass
        )
        size = weight * (self.norms2 + 1)
        total = size.sum()
        if n_rows >= self.n_samples or not total > 0:
            chosen = np.flatnonzero(weight)
            return chosen, weight[chosen]
        # Systematic sampling: each row as often as its share says, up to one.
        steps = np.floor(np.cumsum(size) * (n_rows / total) + rng.random())
        times = np.diff(steps, prepend=0.0)
        chosen = np.flatnonzero(times)
        return chosen, times[chosen] * weight[chosen] * (total / n_rows) / size[chosen]


class InverseCurvature:
    """The inverse of a curvature, improved by BFGS pairs.

    Parameters
    ----------
    base : tuple or ndarray
        Cholesky factor, or the inverse of a diagonal.
    cost : float
        What it cost, in passes over the rows.
    """

    def __init__(self, base, cost):
        self.base, self.cost = base, cost
        self.n_steps = 0
        self._pairs = []

    @property
    def is_diagonal(self):
        """Whether only the diagonal of the curvature is known."""
        return isinstance(self.base, np.ndarray)

    def update(self, step, change):
        """Take in a step and the change of the gradient along it."""
        self.n_steps += 1
        product = step @ change
        if product > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
            self._pairs = [*self._pairs[1 - N_PAIRS :], (step, change, 1 / product)]

    def __matmul__(self, gradient):
        """Return the L-BFGS product with a gradient."""
        g, factors = gradient.copy(), []
        for step, change, inverse in reversed(self._pairs):
            factors.append(inverse * (step @ g))
            g -= factors[-1] * change
        if self.is_diagonal:
            g *= self.base
        else:
            g = cho_solve(self.base, g, check_finite=False)
        for (step, change, inverse), a in zip(
            self._pairs, reversed(factors), strict=True
        ):
            g += (a - inverse * (change @ g)) * step
        return g


def best_constant(loss, y, mass):
    """Return the b that minimises E_P[f(y, b)], nearly.

    It is where the sampling phase starts: a rare class is far from b = 0, and the
    derivatives at its own b tell which rows matter.
    """
    low, high = y.min(), y.max()
    is_high = y == high
    if (is_high | (y == low)).all():
        share = is_high.mean() if mass is None else mass @ is_high
        values, weights = np.array([low, high]), np.array([1 - share, share])
    else:
        values, weights = y, np.full(len(y), 1 / len(y)) if mass is None else mass
    b, step = weights @ values, 0.0
    best = np.inf
    for _ in range(50):
        z = np.full(len(values), b)
        losses, derivatives = loss(values, z)
        if weights @ losses > best:
            step /= 2
            b += step
            continue
        best = weights @ losses
        curvature = weights @ loss.second_derivatives(values, z)
        if curvature <= 1e-12:
            break
        step = weights @ derivatives / curvature
        if abs(step) <= 1e-6 * (1 + abs(b)):
            break
        b -= step
    return b


def finish(objective, v, tol, max_passes, rng, record):
    """Minimise from v.

    Parameters
    ----------
    objective : LinearObjective
        What to minimise.
    v : ndarray of shape (n_features + 1,)
        Coefficients and intercept to start from.
    tol : float
        Relative suboptimality to reach.
    max_passes : int
        Largest number of passes over the rows.
    rng : numpy.random.Generator
        Draws the curvature samples.
    record : callable
        Called with the point and the number of passes after each of them.

    Returns
    -------
    report : Report
        How it ended.
    """
    n_samples = objective.n_samples
    exact = objective.newton_flops() <= CHEAP
    target = ROUNDING if exact else tol
    n_rows = max(
        ROWS_PER_PARAMETER * objective.n_parameters,
        int(SHARE_OF_ROWS * n_samples),
        FEWEST_ROWS,
    )
    n_rows = n_samples if exact else min(n_rows, max(n_samples // 2, 1))
    values = []

    def evaluate(v):
        point = objective(v)
        values.append(point.value)
        record(point, len(values))
        return point

    point = evaluate(v)
    inverse = objective.inverse_curvature(n_rows, rng)
    left = np.inf
    while True:
        direction = -(inverse @ point.gradient)
        slope = point.gradient @ direction
        slow = -slope / 2 > SLOW * left
        left = -slope / 2
        scale = max(abs(point.value), 1e-10 * abs(values[0]))
        still = not inverse.is_diagonal or (
            len(values) > N_STILL and values[-1 - N_STILL] - values[-1] <= tol * scale
        )
        if (2 * left <= target * scale and still) or point.gap <= target * scale:
            return Report(point, left, len(values), True)
        if slow and inverse.n_steps >= inverse.cost:
            if left < NEAR * point.value:
                n_rows = 4 * n_rows if 8 * n_rows < n_samples else n_samples
            inverse = objective.inverse_curvature(n_rows, rng)
            continue
        step = 1.0
        while True:
            if len(values) >= max_passes:
                return Report(point, left, len(values), 2 * left <= tol * scale)
            new = evaluate(point.v + step * direction)
            if new.value <= point.value + 1e-4 * step * slope:
                break
            if -slope <= 1e-11 * abs(point.value):
                # The decrease is lost in the rounding of the objective: the gradient,
                # which is more exact, decides.
                if new.gradient @ (inverse @ new.gradient) < -slope / 4:
                    break
                return Report(point, left, len(values), True)
            if step < 1e-10:
                return Report(point, left, len(values), False)
            step /= 2
        inverse.update(new.v - point.v, new.gradient - point.gradient)
        point = new
        if exact:
            inverse = objective.inverse_curvature(n_rows, rng)
