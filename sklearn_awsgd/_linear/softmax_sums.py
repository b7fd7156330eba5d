"""Sums over the rows of softmax regression: losses, gradients, curvature."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from sklearn_awsgd._kernels import _softmax_batch
from sklearn_awsgd._kernels._newton import weigh_rows
from sklearn_awsgd._linear.curvature import expectation, systematic_sample
from sklearn_awsgd._linear.sums import LARGEST_SINGLE_NORM2, MANY_COLUMNS

# Numbers of dense rows that are multiplied together, so that the second product finds
# them in the cache, and the least rows: products with few take as long.
NUMBERS_TOGETHER = 2**17
FEWEST_TOGETHER = 128
# Calls that a product with the curvature takes, about, which threads share.
CALLS_OF_PRODUCT = 8


@dataclass
class CurvatureSample:
    """Rows with weights w and probabilities p that carry the curvature.

    It is the sum over rows, with a column of ones at last, of the Kronecker products of
    ``w (diag(p) - p p^T)`` and ``x x^T``.
    """

    X: object  # ndarray or CSR of shape (n_rows, n_features)
    weights: np.ndarray
    p: np.ndarray  # of shape (n_rows, n_classes)
    run: Callable  # as `Blocks.run`

    @cached_property
    def rows(self):
        """The rows with a column of ones, as precise as p."""
        n_rows, n_features = self.X.shape
        if sparse.issparse(self.X):
            return sparse.hstack([self.X, np.ones((n_rows, 1))], format="csr")
        rows = np.empty((n_rows, n_features + 1), dtype=self.p.dtype)
        rows[:, :-1] = self.X
        rows[:, -1] = 1
        return rows

    def product(self, D, floor):
        """Multiply with D, of shape (n_classes, n_columns).

        A share `floor` of each row's matrix is replaced by 1/2, its bound.
        """
        D = np.ascontiguousarray(D.T, dtype=self.p.dtype)

        def multiply(parts):
            total = 0
            for part in parts:
                rows = self.rows[part]
                moves = rows.dot(D)
                _softmax_batch.curve(moves, self.p[part], self.weights[part], floor)
                total += rows.T.dot(moves)
            return total

        products = self.run(multiply, self._parts)
        total = next(products)
        for more in products:
            total += more
        return total.T.astype(np.float64)

    @cached_property
    def _parts(self):
        """Rows that are worked on together, several times so in each call of `run`."""
        n_rows, n_features = self.X.shape
        size = max(NUMBERS_TOGETHER // (n_features + 1), FEWEST_TOGETHER)
        if sparse.issparse(self.X):
            size = n_rows
        starts = range(0, max(n_rows, 1), size)
        parts = [slice(start, start + size) for start in starts]
        # A call by another thread takes a third of the time of a product.
        several = max(len(parts) // CALLS_OF_PRODUCT, 1)
        return [(parts[k : k + several],) for k in range(0, len(parts), several)]

    def mean_hessian(self, floor):
        """Return the mean of the classes' Hessians, with the mean curvature added.

        The rows that matter change on the way, so the others count too.
        """
        curvature = (1 - np.einsum("ij,ij->i", self.p, self.p)) / self.p.shape[1]
        curvature += self.weights @ curvature / self.weights.sum()
        weights = self.weights * ((1 - floor) * curvature + floor / 2)
        if sparse.issparse(self.X):
            weighted = sparse.diags_array(weights) @ self.rows
            return (self.rows.T @ weighted).toarray()
        roots = np.sqrt(weights).astype(np.float64, copy=False)

        def square(parts):
            total = 0
            for part in parts:
                rows = weigh_rows(self.X[part], None, roots[part], weights.dtype)
                total += rows.T.dot(rows)
            return total

        return sum(self.run(square, self._parts)).astype(np.float64)

    def hessian(self, floor):
        """Return the Hessian of all classes together, one class after the other."""
        A, (n_rows, n_classes) = self.rows, self.p.shape
        A = A.toarray() if sparse.issparse(A) else A
        n_columns = A.shape[1]
        parts = np.sqrt(self.weights)[:, None] * self.p
        B = (parts[:, :, None] * A[:, None]).reshape(n_rows, n_classes * n_columns)
        hessian = (floor - 1) * (B.T @ B)
        own = self.weights[:, None] * ((1 - floor) * self.p + floor / 2)
        for k in range(n_classes):
            part = slice(k * n_columns, (k + 1) * n_columns)
            hessian[part, part] += (A * own[:, k, None]).T @ A
        return hessian


@dataclass
class ColumnSample:
    """Rows that carry the curvature, by columns.

    Where there are intercepts, dense columns are taken from their means: of columns
    with offsets each would undo what the one before did.
    """

    rows: object  # as `SoftmaxSums.probabilities` takes them
    weights: np.ndarray  # P of these, such that sums are unbiased
    columns: tuple  # data, indices and indptr of CSC
    squares: sparse.csr_array  # of the numbers, one line for each column, ones at last
    center: np.ndarray  # of the columns, zeros where it was not taken off

    @classmethod
    def of(cls, rows, weights, X, has_intercept):
        """Return a sample of the rows X, dense or CSR."""
        center = np.zeros(X.shape[1])
        if has_intercept and not sparse.issparse(X):
            center = weights @ X / weights.sum()
            X = X - center
        X = sparse.csc_array(X)
        squares = sparse.csr_array(X.multiply(X).T)
        return cls(
            rows,
            weights,
            (
                np.asarray(X.data, dtype=np.float64),
                np.asarray(X.indices, dtype=np.int32),
                np.asarray(X.indptr, dtype=np.int32),
            ),
            sparse.vstack([squares, np.ones((1, X.shape[0]))]).tocsr(),
            center,
        )


class SoftmaxSums:
    """Sums over rows, all that a SoftmaxObjective knows of them.

    Parameters
    ----------
    blocks : Blocks
        Rows.
    codes : ndarray of shape (n_samples,)
        Class of each row.
    n_classes : int
        Number of classes.
    mass : ndarray of shape (n_samples,) or None
        P of each row.
    norms2 : ndarray of shape (n_samples,)
        Squared norms of the rows.

    Attributes
    ----------
    n_samples, n_columns, n_nonzero : int
        Rows, features and one for the intercept, and numbers in the rows.
    """

    def __init__(self, blocks, codes, n_classes, mass, norms2):
        self.blocks, self.codes, self.n_classes = blocks, codes, n_classes
        self.mass, self.norms2 = mass, norms2
        self.n_samples, n_features = blocks.shape
        self.n_columns, self.n_nonzero = n_features + 1, blocks.n_nonzero
        is_safe = norms2.max() < LARGEST_SINGLE_NORM2
        is_worth_it = self.n_columns >= MANY_COLUMNS and not blocks.is_sparse
        self._sample_dtype = np.float32 if is_safe and is_worth_it else np.float64

    def _chunks(self, X, part):
        """Yield rows of a block that are worked on together, and where they stand."""
        n_rows = max(NUMBERS_TOGETHER // self.n_columns, FEWEST_TOGETHER)
        if self.blocks.is_sparse or n_rows >= X.shape[0]:
            yield X, part
            return
        for start in range(0, X.shape[0], n_rows):
            stop = min(start + n_rows, X.shape[0])
            rows = np.asarray(X[start:stop], dtype=np.float64)
            yield rows, slice(part.start + start, part.start + stop)

    def evaluate(self, v):
        """Return sums of one pass over the rows.

        Parameters
        ----------
        v : ndarray of shape (n_classes * n_columns,)
            Coefficients and the intercept of each class.

        Returns
        -------
        gradient : ndarray of shape (n_classes, n_columns)
            Sum of P c x, the intercepts' last.
        loss : float
            Sum of P f.
        spreads : ndarray of shape (n_samples,)
            Trace of the curvature of each row.
        """
        W, b = split_classes(v, self.n_classes)
        spreads = np.empty(self.n_samples)

        def evaluate_block(X, part):
            gradient, loss = np.zeros((self.n_columns, self.n_classes)), 0.0
            sums = np.empty(self.n_classes)
            for rows, here in self._chunks(X, part):
                scores = np.asarray(rows.dot(W), dtype=np.float64)
                loss += _softmax_batch.evaluate(
                    scores,
                    b,
                    self.codes[here],
                    None if self.mass is None else self.mass[here],
                    1 / self.n_samples,
                    spreads[here],
                    sums,
                )
                gradient[:-1] += rows.T.dot(scores)
                gradient[-1] += sums
            return gradient, loss

        results = self.blocks.map(evaluate_block)
        gradient, loss = next(results)
        for more, more_loss in results:
            gradient += more
            loss += more_loss
        return np.ascontiguousarray(gradient.T), loss, spreads

    @cached_property
    def class_sums(self):
        """Sum of P x of the rows of each class, that of P last."""

        def add(X, part):
            codes, n_rows = self.codes[part], part.stop - part.start
            if not sparse.issparse(X):
                members = np.zeros((self.n_classes, n_rows))
                mass = 1 / self.n_samples if self.mass is None else self.mass[part]
                members[codes, np.arange(n_rows)] = mass
                return np.column_stack([members.dot(X), members.sum(axis=1)])
            rows = np.argsort(codes, kind="stable")
            mass = np.full(n_rows, 1 / self.n_samples)
            if self.mass is not None:
                mass = self.mass[part][rows]
            ends = np.cumsum(np.bincount(codes, minlength=self.n_classes))
            members = sparse.csr_array(
                (mass, rows, np.append(0, ends)), shape=(self.n_classes, n_rows)
            )
            return np.column_stack([(members @ X).toarray(), members.sum(axis=1)])

        return sum(self.blocks.map(add))

    def sample(self, v, spreads, n_rows, rng):
        """Return a CurvatureSample at v.

        Parameters
        ----------
        v, spreads : ndarrays
            What was given to `evaluate`, and what it has returned.
        n_rows : int
            Size of the sample; all rows when it is `n_samples`.
        rng : numpy.random.Generator
            Draws the sample.
        """
        if n_rows >= self.n_samples:
            chosen, times = np.arange(self.n_samples), 1.0
        else:
            chosen, times = systematic_sample(self.sizes(spreads), n_rows, rng)
        X, p = self.probabilities(v, chosen)
        weights = np.full(len(chosen), times)
        weights *= 1 / self.n_samples if self.mass is None else self.mass[chosen]
        dtype = self._sample_dtype
        return CurvatureSample(
            X,
            weights.astype(dtype, copy=False),
            p.astype(dtype, copy=False),
            self.blocks.run,
        )

    def sizes(self, spreads):
        """Return what rows of a CurvatureSample are drawn in proportion to."""
        mass = 1 / self.n_samples if self.mass is None else self.mass
        # A row that is fitted well has next to no curvature now, but may have some
        # after the next step.
        spreads = spreads + 0.01 * expectation(spreads, self.mass) + 1e-300
        return mass * spreads * (self.norms2 + 1)

    def probabilities(self, v, chosen):
        """Return some rows, by their numbers, and the probabilities of classes."""
        W, b = split_classes(v, self.n_classes)
        X = self.blocks.take(chosen)
        return X, class_probabilities(X, W, b)

    def hessian_diagonal(self, v, floor):
        """Return the diagonals of the classes' Hessians, mean curvatures added.

        As in `LinearSums.hessian_diagonal`; a line for each class.
        """
        W, b = split_classes(v, self.n_classes)

        def add(X, part):
            p = class_probabilities(X, W, b)
            mass = 1 / self.n_samples if self.mass is None else self.mass[part, None]
            squares = X.multiply(X) if sparse.issparse(X) else X * X
            weighted = np.maximum(p * (1 - p), floor / 2) * mass
            of_ones = np.broadcast_to(mass, (len(p), 1))
            return (
                np.vstack([squares.T.dot(weighted), weighted.sum(axis=0)]),
                np.vstack([squares.T.dot(of_ones), of_ones.sum(axis=0)]),
            )

        results = self.blocks.map(add)
        own, total = next(results)
        for more, more_total in results:
            own += more
            total += more_total
        return np.ascontiguousarray((own + total * own[-1]).T)

    def sample_columns(self, n_numbers, has_intercept, rng):
        """Return a ColumnSample of rows with about so many numbers in all."""
        n_rows = int(self.n_samples * n_numbers / max(self.n_nonzero, 1))
        rows, weights = self.draw_by_norms(n_rows, rng)
        return ColumnSample.of(rows, weights, self.blocks.take(rows), has_intercept)

    def draw_by_norms(self, n_rows, rng):
        """Draw about so many rows; return their numbers, and P for unbiased sums."""
        rows, times = systematic_sample(self.norm_sizes(), n_rows, rng)
        mass = 1 / self.n_samples if self.mass is None else self.mass[rows]
        return rows, times * mass

    def norm_sizes(self):
        """Return what `draw_by_norms` draws rows in proportion to."""
        mass = 1 / self.n_samples if self.mass is None else self.mass
        return mass * (self.norms2 + 1)


def split_classes(v, n_classes):
    """Return the coefficients, a column for each class, and the intercepts."""
    V = v.reshape(n_classes, -1)
    return np.ascontiguousarray(V[:, :-1].T), np.ascontiguousarray(V[:, -1])


def class_probabilities(X, W, b):
    """Return the probabilities of the classes of rows."""
    p = np.asarray(X.dot(W), dtype=np.float64)
    _softmax_batch.probabilities(p, b)
    return p
