"""The objective of softmax regression."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from sklearn_awsgd._linear.curvature import (
    MOST_PARAMETERS,
    InverseCurvature,
    add_penalty,
    row_chunks,
    solver_of,
    systematic_sample,
)
from sklearn_awsgd._linear.objectives import Evaluation, Objective

# Up to this many parameters of all classes together, softmax regression has its full
# curvature; beyond, that of each class by itself.
MOST_SOFTMAX_PARAMETERS = 400


@dataclass
class ColumnSample:
    """Rows that carry the curvature, by columns."""

    rows: np.ndarray
    weights: np.ndarray  # P of these, such that sums are unbiased
    columns: tuple  # data, indices and indptr of CSC
    squares: sparse.csr_array  # of the numbers, one line for each column, ones at last


class SoftmaxObjective(Objective):
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
        As for :class:`~sklearn_awsgd._linear.objectives.LinearObjective`.
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
        """Return the Evaluation at v, from one pass over the rows.

        Its `curvatures` are the probabilities of the classes of each row.
        """
        probabilities = np.empty((self.n_samples, self.n_classes))
        V = v.reshape(self.n_classes, self.n_columns)
        gradient = np.zeros_like(V)
        value = self.alpha / 2 * np.sum(V[:, :-1] ** 2)
        for part in row_chunks(self.n_samples):
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
        return Evaluation(v, value, gradient.ravel(), np.inf, probabilities)

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

    def inverse_curvature(self, here, n_rows, rng, floor):
        """Return the inverse of a sampled curvature, as `LinearObjective` does."""
        shape = (self.n_classes, self.n_columns)
        curvature = here.curvatures * (1 - here.curvatures)
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
                add_penalty(line, self.alpha, self.fit_intercept)
            return InverseCurvature.from_diagonal(diagonal.ravel())
        chosen, times = systematic_sample(weight * (self.norms2 + 1), n_rows, rng)
        weights = times * self.mass[chosen]
        if np.prod(shape) <= MOST_SOFTMAX_PARAMETERS:
            hessian = self._full_curvature(here.curvatures, chosen, weights, floor)
            return InverseCurvature.from_hessian(hessian, cost=0.0)
        solvers = []
        for k in range(self.n_classes):
            hessian = np.zeros((self.n_columns, self.n_columns))
            for part in row_chunks(len(chosen)):
                A = self._rows_with_one(chosen[part])
                A *= np.sqrt(weights[part] * curvature[chosen[part], k])[:, None]
                hessian += A.T @ A
            if not self.fit_intercept:
                hessian[:, -1] = 0
            add_penalty(np.einsum("ii->i", hessian), self.alpha, self.fit_intercept)
            solvers.append(solver_of(hessian))
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

    def sample_columns(self, n_numbers, rng):
        """Return a ColumnSample of rows with about so many numbers in all."""
        n_rows = int(self.n_samples * n_numbers / max(self.n_nonzero, 1))
        rows, times = systematic_sample(self.mass * (self.norms2 + 1), n_rows, rng)
        X = sparse.csc_array(self.X[rows] if len(rows) < self.n_samples else self.X)
        squares = sparse.csr_array(X.multiply(X).T)
        return ColumnSample(
            rows,
            times * self.mass[rows],
            (
                np.asarray(X.data, dtype=np.float64),
                np.asarray(X.indices, dtype=np.int32),
                np.asarray(X.indptr, dtype=np.int32),
            ),
            sparse.vstack([squares, np.ones((1, X.shape[0]))]).tocsr(),
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
        for part in row_chunks(len(chosen)):
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
            add_penalty(line, self.alpha, self.fit_intercept)
        # A common shift of all intercepts changes nothing; this pins it.
        hessian[p - 1 :: p, p - 1 :: p] += diagonal[:, -1].mean() / K
        return hessian
