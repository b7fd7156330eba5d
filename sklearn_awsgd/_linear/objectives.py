"""Objectives of the linear models, evaluated exactly, with sampled curvature."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import daxpy
from scipy.special import logsumexp

from sklearn_awsgd._kernels import _batch
from sklearn_awsgd._kernels._rows import Rows

# With more parameters only the diagonal of the curvature is used.
MOST_PARAMETERS = 3000
# Up to this many parameters of all classes together, softmax regression has its full
# curvature; beyond, that of each class by itself.
MOST_SOFTMAX_PARAMETERS = 400
# From here on dense rows are sampled in single precision: products are what costs.
MANY_COLUMNS = 256
N_PAIRS = 20
# Rows handled together where arrays of their size are made.
CHUNK = 4096


@dataclass
class Point:
    """The objective at a point, from one pass over the rows."""

    v: np.ndarray
    value: float
    gradient: np.ndarray
    gap: float
    curvatures: np.ndarray


class LinearObjective:
    """E_P[f(y, <x, w> + b)] + alpha / 2 ||w||^2 as a function of v = (w, b).

    Parameters
    ----------
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
    sharp : bool, default=True
        Whether the curvature holds beyond the next kink of the loss.
    """

    def __init__(self, X, loss, y, mass, norms2, alpha, fit_intercept, sharp=True):
        self.sharp = sharp
        # The best dual point so far: see `mix_dual`.
        self._dual = None
        self.rows, self.X, self.loss, self.y = Rows(X), X, loss, y
        self.mass, self.norms2 = mass, norms2
        self.alpha, self.fit_intercept = alpha, fit_intercept
        self.n_samples, n_features = X.shape
        self.n_columns = n_features + 1
        self.n_nonzero = X.nnz if sparse.issparse(X) else X.size
        # Squares of single precision must not overflow.
        is_safe = norms2.max() < np.sqrt(np.finfo(np.float32).max)
        is_worth_it = self.n_columns >= MANY_COLUMNS
        self._sample_dtype = np.float32 if is_safe and is_worth_it else np.float64

    def __call__(self, v):
        """Return the point at v, from one pass over the rows."""
        gradients, sums = np.empty((2, self.n_columns)), np.empty((2, 2))
        curvatures = np.empty(self.n_samples)
        _batch.evaluate(
            self.rows,
            self.loss,
            self.y,
            self.mass,
            v,
            gradients,
            sums,
            curvatures,
        )
        value = sums[:, 0].sum() + self.alpha / 2 * v[:-1] @ v[:-1]
        gap = np.inf
        if self.alpha > 0:
            self.mix_dual(*self._dual_point(gradients, sums))
            gap = value - self._lower_bound()
        gradient = gradients.sum(axis=0)
        gradient[:-1] += self.alpha * v[:-1]
        if not self.fit_intercept:
            gradient[-1] = 0
        return Point(v, value, gradient, gap, curvatures)

    def _dual_point(self, gradients, sums):
        """Return the dual point of the derivatives c_i, as `mix_dual` takes it.

        With an intercept it is feasible when their mean is zero, so the side with the
        larger sum is scaled down, by s. As ``f*(s c) <= s f*(c)`` for a loss whose
        infimum is zero, and ``f*(c) = c z - f`` at c = f'(z), its dual objective is at
        least ``sum s (f - c z) - ||sum s c x||^2 / (2 alpha)``.
        """
        scale = np.ones(2)
        if self.fit_intercept:
            below, above = -gradients[0, -1], gradients[1, -1]
            larger = int(above > below)
            scale[larger] = min(below, above) / max(below, above, 1e-300)
        return scale @ (sums[:, 0] - sums[:, 1]), scale @ gradients[:, :-1]

    def mix_dual(self, value, mean):
        """Take in a dual point: mix it with the best so far such that the bound rises.

        A dual point is a pair (l, u), ``l <= -sum P f*(a)`` and ``u = sum P a x``, with
        the bound ``l - ||u||^2 / (2 alpha)``; as f* is convex, mixtures of pairs are
        pairs of mixtures. What is left of the gradients of several points partly
        cancels, so a mixture is far better than the last point.
        """
        if self._dual is None:
            self._dual = value, mean
            return
        old_value, old_mean = self._dual
        change = mean - old_mean
        slope = self.alpha * (value - old_value) - old_mean @ change
        share = np.clip(slope / max(change @ change, 1e-300), 0, 1)
        self._dual = (
            old_value + share * (value - old_value),
            old_mean + share * change,
        )

    def _lower_bound(self):
        """Return the best lower bound of the minimum."""
        value, mean = self._dual
        return value - mean @ mean / (2 * self.alpha)

    def canonical(self, v):
        """Return v: no other parameters give the same predictions."""
        return v

    def newton_flops(self):
        """Return the cost of the curvature of all rows."""
        return self.n_nonzero**2 / self.n_samples + self.n_columns**3 / 3

    def inverse_curvature(self, point, n_rows, rng, floor):
        """Return the inverse of a sampled curvature.

        Parameters
        ----------
        point : Point
            Where.
        n_rows : int
            Size of the sample; all rows when it is `n_samples`.
        rng : numpy.random.Generator
            Draws the sample.
        floor : float
            Least curvature of a row, as a share of the largest the loss can have: with
            1 a step cannot overshoot.
        """
        if self.n_columns > MOST_PARAMETERS:
            curvatures = self._floored(point, floor)
            # The rows that matter change on the way, so the others count too.
            curvatures = curvatures + expectation(curvatures, self.mass)
            diagonal = _batch.hessian_diagonal(self.rows, self.mass, curvatures)
            _add_penalty(diagonal, self.alpha, self.fit_intercept)
            return InverseCurvature.from_diagonal(diagonal)
        return InverseCurvature.from_hessian(*self.hessian(point, n_rows, rng, floor))

    def hessian(self, point, n_rows, rng, floor):
        """Return the upper triangle of a sampled Hessian, and its cost in passes.

        The parameters are those of :meth:`inverse_curvature`.
        """
        curvatures = self._floored(point, floor)
        weight = curvatures * (1 / self.n_samples if self.mass is None else self.mass)
        chosen, times = systematic_sample(weight * (self.norms2 + 1), n_rows, rng)
        weights = times * weight[chosen]
        hessian = np.zeros((self.n_columns, self.n_columns))
        per_row = self.n_nonzero / self.n_samples
        if sparse.issparse(self.X):
            _batch.add_hessian(self.rows, chosen, weights, hessian)
            flops = len(chosen) * per_row**2 / 2
            if n_rows < self.n_samples:
                # A rare feature may be missing from the sample; without its own
                # curvature the step along it would be far too long.
                diagonal = _batch.hessian_diagonal(self.rows, self.mass, curvatures)
                np.fill_diagonal(hessian, np.maximum(np.diagonal(hessian), diagonal))
        else:
            # In single precision, more exact than a sample is, matrix products run ten
            # times as fast as passes, which wait for memory.
            dtype = self._sample_dtype if n_rows < self.n_samples else np.float64
            speed = 10 if dtype == np.float32 else 5
            flops = len(chosen) * per_row**2 / speed
            for part in _chunks(len(chosen)):
                A = np.empty((len(chosen[part]), self.n_columns), dtype=dtype)
                A[:, :-1] = self.X[chosen[part]]
                A[:, -1] = 1
                A *= np.sqrt(weights[part, None])
                hessian += A.T @ A
        if not self.fit_intercept:
            hessian[:, -1] = 0
        _add_penalty(np.einsum("ii->i", hessian), self.alpha, self.fit_intercept)
        flops += self.n_columns**3 / 30
        return hessian, flops / (4 * self.n_samples * (per_row + 5))

    def _floored(self, point, floor):
        """Return the curvature of each row, at least a share of the largest."""
        if floor == 0:
            return point.curvatures
        return np.maximum(point.curvatures, floor * self.loss.smoothness)


class MultinomialObjective:
    """Softmax regression as a function of the flattened (n_classes, n_features + 1).

    Parameters
    ----------
    X : ndarray or CSR of shape (n_samples, n_features)
        Rows.
    codes : ndarray of shape (n_samples,)
        Class of each row.
    n_classes : int
        Number of classes.
    mass, norms2, alpha, fit_intercept
        As for :class:`LinearObjective`.
    """

    sharp = True

    def __init__(self, X, codes, n_classes, mass, norms2, alpha, fit_intercept):
        self.X, self.codes, self.n_classes = X, codes, n_classes
        self.n_samples, n_features = X.shape
        if mass is None:
            mass = np.full(self.n_samples, 1 / self.n_samples)
        self.mass, self.norms2 = mass, norms2
        self.alpha, self.fit_intercept = alpha, fit_intercept
        self.n_columns = n_features + 1
        self.n_nonzero = X.nnz if sparse.issparse(X) else X.size

    def __call__(self, v):
        """Return the point at v, from one pass over the rows.

        Its `curvatures` are the probabilities of the classes of each row.
        """
        probabilities = np.empty((self.n_samples, self.n_classes))
        V = v.reshape(self.n_classes, self.n_columns)
        gradient = np.zeros_like(V)
        value = self.alpha / 2 * np.sum(V[:, :-1] ** 2)
        for part in _chunks(self.n_samples):
            X = self.X[part]
            Z = X @ V[:, :-1].T + V[:, -1]
            own = (np.arange(len(Z)), self.codes[part])
            log_sum = logsumexp(Z, axis=1)
            value += self.mass[part] @ (log_sum - Z[own])
            residual = np.exp(Z - log_sum[:, None])
            probabilities[part] = residual
            residual[own] -= 1
            residual *= self.mass[part, None]
            gradient[:, :-1] += (X.T @ residual).T
            gradient[:, -1] += residual.sum(axis=0)
        gradient[:, :-1] += self.alpha * V[:, :-1]
        if not self.fit_intercept:
            gradient[:, -1] = 0
        return Point(v, value, gradient.ravel(), np.inf, probabilities)

    def canonical(self, v):
        """Return the parameters of the same predictions whose intercepts sum to zero.

        The gradient never points along a common shift, so it stays zero.
        """
        V = v.reshape(self.n_classes, self.n_columns).copy()
        V[:, -1] -= V[:, -1].mean()
        return V.ravel()

    def newton_flops(self):
        """Return the cost of the full curvature, infinite where it is not formed."""
        n_parameters = self.n_classes * self.n_columns
        if n_parameters > MOST_SOFTMAX_PARAMETERS:
            return np.inf
        return self.n_samples * n_parameters**2 / 2

    def inverse_curvature(self, point, n_rows, rng, floor):
        """Return the inverse of a sampled curvature, as `LinearObjective` does."""
        shape = (self.n_classes, self.n_columns)
        curvature = point.curvatures * (1 - point.curvatures)
        if floor > 0:
            curvature = np.maximum(curvature, floor / 2)
        weight = self.mass * curvature.sum(axis=1)
        per_row = self.n_nonzero / self.n_samples
        if self.n_columns > MOST_PARAMETERS:
            squares = self.X.multiply(self.X) if sparse.issparse(self.X) else self.X**2
            diagonal = np.empty(shape)
            # As for `LinearObjective`.
            weighted = (curvature + self.mass @ curvature) * self.mass[:, None]
            diagonal[:, :-1] = (squares.T @ weighted).T
            diagonal[:, -1] = weighted.sum(axis=0)
            for line in diagonal:
                _add_penalty(line, self.alpha, self.fit_intercept)
            return InverseCurvature.from_diagonal(diagonal.ravel())
        chosen, times = systematic_sample(weight * (self.norms2 + 1), n_rows, rng)
        weights = times * self.mass[chosen]
        if np.prod(shape) <= MOST_SOFTMAX_PARAMETERS:
            hessian = self._full_curvature(point.curvatures, chosen, weights, floor)
            return InverseCurvature.from_hessian(hessian, cost=0.0)
        solvers = []
        for k in range(self.n_classes):
            hessian = np.zeros((self.n_columns, self.n_columns))
            for part in _chunks(len(chosen)):
                A = self._rows_with_one(chosen[part])
                A *= np.sqrt(weights[part] * curvature[chosen[part], k])[:, None]
                hessian += A.T @ A
            if not self.fit_intercept:
                hessian[:, -1] = 0
            _add_penalty(np.einsum("ii->i", hessian), self.alpha, self.fit_intercept)
            solvers.append(_solver_of(hessian))
        flops = len(chosen) * self.n_columns**2 / 10 + self.n_columns**3 / 30
        return InverseCurvature(
            lambda g: np.concatenate(
                [
                    solve(line)
                    for solve, line in zip(solvers, g.reshape(shape), strict=True)
                ]
            ),
            flops / (4 * self.n_samples * (per_row + 5)),
            sharp=False,
        )

    def _rows_with_one(self, chosen):
        X = self.X[chosen]
        A = np.empty((len(chosen), self.n_columns))
        A[:, :-1] = X.toarray() if sparse.issparse(X) else X
        A[:, -1] = 1
        return A

    def _full_curvature(self, all_probabilities, chosen, weights, floor):
        """Return sum_i P_i (diag(p_i) - p_i p_i^T) x x_i x_i^T, with the penalty.

        A share `floor` of each matrix in brackets is replaced by 1/2, its bound.
        """
        K, p = self.n_classes, self.n_columns
        hessian = np.zeros((K, p, K, p))
        for part in _chunks(len(chosen)):
            A = self._rows_with_one(chosen[part])
            probabilities = all_probabilities[chosen[part]]
            for k in range(K):
                for m in range(k, K):
                    w = -probabilities[:, k] * probabilities[:, m]
                    if k == m:
                        w += probabilities[:, k]
                    w *= 1 - floor
                    if k == m:
                        w += floor / 2
                    block = (A * (weights[part] * w)[:, None]).T @ A
                    hessian[k, :, m] += block
        for k in range(K):
            for m in range(k):
                hessian[k, :, m] = hessian[m, :, k].T
        if not self.fit_intercept:
            hessian[:, -1] = 0
            hessian[:, :, :, -1] = 0
        hessian = hessian.reshape(K * p, K * p)
        diagonal = np.einsum("ii->i", hessian).reshape(K, p)
        for line in diagonal:
            _add_penalty(line, self.alpha, self.fit_intercept)
        # A common shift of all intercepts changes nothing; this pins it.
        hessian[p - 1 :: p, p - 1 :: p] += diagonal[:, -1].mean() / K
        return hessian


class InverseCurvature:
    """The inverse of a curvature, improved by BFGS pairs.

    Parameters
    ----------
    solve : callable
        Applies the inverse to a vector.
    cost : float
        What it cost, in passes over the rows.
    sharp : bool
        Whether it is good enough to tell the suboptimality from the gradient.
    diagonal : bool, default=False
        Whether it is a diagonal: then the last pair tells its scale, and it may be
        replaced by that of another point without forgetting the pairs.

    Attributes
    ----------
    margin : float
        What the estimate of the suboptimality is multiplied with to be on the safe
        side.
    """

    def __init__(self, solve, cost, sharp, diagonal=False):
        self.margin = 2.0 if sharp else 4.0
        self._solve, self.cost, self.diagonal = solve, cost, diagonal
        self._pairs, self._scale = [], 1.0

    @classmethod
    def from_hessian(cls, hessian, cost):
        """Invert a matrix, whose diagonal may be changed."""
        return cls(_solver_of(hessian), cost, True)

    @classmethod
    def from_diagonal(cls, diagonal):
        """Invert a diagonal, which is never worth being sampled from more rows."""
        return cls(lambda g: g / diagonal, np.inf, sharp=False, diagonal=True)

    def update(self, step, change):
        """Take in a step and the change of the gradient along it."""
        product = step @ change
        if product > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change):
            self._pairs = [*self._pairs[1 - N_PAIRS :], (step, change, 1 / product)]
            self._rescale()

    def replace(self, other):
        """Take over another diagonal."""
        self._solve = other._solve
        self._rescale()

    def _rescale(self):
        if self.diagonal and self._pairs:
            _, change, inverse = self._pairs[-1]
            self._scale = 1 / (inverse * (change @ self._solve(change)))

    def __matmul__(self, gradient):
        """Return the L-BFGS product with a gradient."""
        g, factors = gradient.copy(), []
        for step, change, inverse in reversed(self._pairs):
            factors.append(inverse * (step @ g))
            g = daxpy(change, g, a=-factors[-1])
        g = self._scale * self._solve(g)
        for (step, change, inverse), a in zip(
            self._pairs, reversed(factors), strict=True
        ):
            g = daxpy(step, g, a=a - inverse * (change @ g))
        return g


def expectation(values, mass):
    """Return E_P of values; a mass of None means that all rows are equal."""
    return values.mean() if mass is None else mass @ values


def systematic_sample(size, n_rows, rng):
    """Draw rows in proportion to `size`, about `n_rows` times in all.

    Returns
    -------
    chosen : ndarray of int
        The rows drawn at least once; all rows when `n_rows` says so.
    times : ndarray of float
        What to multiply a row's contribution with for an unbiased sum.
    """
    if n_rows >= len(size) or not size.any():
        chosen = np.flatnonzero(size)
        return chosen, np.ones(len(chosen))
    return _batch.draw_systematically(size, n_rows, rng.random())


def _solver_of(hessian):
    """Return what solves for a positive matrix, whose upper triangle is changed.

    It is scaled to a unit diagonal, so that features of very different size are alike,
    and the diagonal is enlarged where rounding asks for it.
    """
    diagonal = np.einsum("ii->i", hessian)
    root = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    hessian /= root
    hessian /= root[:, None]
    more = 1e-12
    diagonal += more
    while True:
        try:
            factor = cho_factor(hessian, check_finite=False)
            break
        except LinAlgError:
            if more > 1e300:
                raise
            more *= 100
            diagonal += more
    return lambda g: cho_solve(factor, g / root, check_finite=False) / root


def _chunks(n_rows):
    return [slice(start, start + CHUNK) for start in range(0, n_rows, CHUNK)]


def _add_penalty(diagonal, alpha, fit_intercept):
    """Add the penalty's curvature to the diagonal of one model."""
    diagonal[:-1] += alpha
    if not fit_intercept:
        diagonal[-1] = 1
    # Features without curvature and without penalty must not break the inverse.
    diagonal[diagonal <= 0] = 1e-12 * diagonal.max() + 1e-200


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
            # On the lines of all losses: a step that the test above may take back.
            curvature = 0.01 * loss.smoothness
        step = weights @ derivatives / curvature
        if abs(step) <= 1e-6 * (1 + abs(b)):
            break
        b -= step
    return b
