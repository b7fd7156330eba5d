"""Exact solutions for the factors of rows, with the column factors held fixed.

For each row i this minimises, over u,

    sum_j weight_ij (loss(x_ij, offset_j + <u, v_j>) + alpha / 2 ||u||^2)

over its observed entries j. Rows are solved in blocks with batched linear algebra.
"""

import numpy as np
from scipy import sparse
from scipy.special import expit, xlogy

from sklearn_awsgd._factorization.observed import LEAST_RIDGE, StoredEntries
from sklearn_awsgd._kernels import _losses
from sklearn_awsgd._kernels._losses import LARGEST_Z
from sklearn_awsgd._linear.blocks import Blocks

LOSSES = {
    "squared_error": _losses.SquaredError,
    "huber": _losses.Huber,
    "log_loss": _losses.CrossEntropy,
    "poisson": _losses.Poisson,
}
# Numbers in the largest temporary array of a block: 32 MB.
BLOCK_SIZE = 4_000_000
# Numbers in the products of all pairs of factors, which rows share, at most: 128 MB of
# their half is stored. With more each row has its own.
LARGEST_PRODUCTS = 1 << 25
# Above this share of observed entries dense products are quicker than sparse ones.
DENSE_SHARE = 0.05
MAX_NEWTON_STEPS = 100
MAX_HALVINGS = 30
# Relative decrease that is left in a row when it counts as solved: that of Newton's
# next step is the square of it.
NEWTON_TOL = 1e-10


def make_loss(name, epsilon):
    """Return the compiled loss of a name."""
    return _losses.Huber(epsilon) if name == "huber" else LOSSES[name]()


def evaluate_loss(loss, epsilon, y, z):
    """Return loss, first derivative and a curvature, of arrays y and z.

    The curvature is the second derivative; for "huber" that of the smallest parabola
    above the loss that touches it at z, which is never zero.
    """
    if loss == "squared_error":
        r = z - y
        return r * r / 2, r, np.ones_like(r)
    if loss == "huber":
        r = z - y
        # As a function of z - y.
        value, first = make_loss(loss, epsilon)(np.zeros(r.size), np.ravel(r))
        first = first.reshape(r.shape)
        curvature = np.divide(first, r, out=np.ones_like(r), where=r != 0)
        return value.reshape(r.shape), r * curvature, curvature
    if loss == "log_loss":
        p = expit(z)
        return np.logaddexp(0, z) - y * z, p - y, p * expit(-z)
    rate = np.exp(np.minimum(z, LARGEST_Z))
    return rate - y * z, rate - y, rate


def deviance(loss, epsilon, y, z):
    """Return the loss, less that of the best z for each y: never negative."""
    if loss == "squared_error":
        return (z - y) ** 2 / 2
    value = evaluate_loss(loss, epsilon, y, z)[0]
    if loss == "log_loss":
        value = value + xlogy(y, y) + xlogy(1 - y, 1 - y)
    elif loss == "poisson":
        value = value + xlogy(y, y) - y
    return np.maximum(value, 0)


def solve_rows(
    data,
    factors,
    offset,
    loss,
    epsilon,
    alpha,
    n_threads=1,
    start=None,
    max_steps=MAX_NEWTON_STEPS,
):
    """Return the factors of all rows.

    Parameters
    ----------
    data : EntryData
        The observed entries of the rows.
    factors : ndarray of shape (n_columns, n_factors)
        v, the factors of the columns.
    offset : ndarray of shape (n_columns,)
        Prediction of each column for u = 0.
    loss : str
        The loss.
    epsilon : float
        Parameter of "huber".
    alpha : float
        Strength of the ridge.
    n_threads : int, default=1
        Threads, which change no result: what rows are solved together is the same.
    start : ndarray of shape (n_rows, n_factors), default=None
        Where Newton's method begins; None for zeros.
    max_steps : int, default=100
        Its largest number of steps, none of which raises the objective.

    Returns
    -------
    row_factors : ndarray of shape (n_rows, n_factors)
        The minimisers.
    """
    if loss == "squared_error":
        if data.kind != "missing" and data.weights is None:
            gram, pull = factors.T @ factors, offset @ factors
            system = CommonSystem(gram, pull, len(factors), alpha)
            found = data.row_blocks(n_threads).map(
                lambda X, part: system.solve(X.dot(factors))
            )
            return np.concatenate(list(found))
        if data.kind == "missing":
            entries = StoredEntries.of(data)
            return entries.solve(factors, offset, alpha, n_threads)[0]
        solve = _make_squared(data, factors, offset, alpha)
    else:
        if start is None:
            start = np.zeros((data.X.shape[0], factors.shape[1]))
        solve = _make_newton(
            data, factors, offset, loss, epsilon, alpha, start, max_steps
        )
    parts = row_blocks(data.X.shape[0], max(factors.shape[1] ** 2, data.X.shape[1]))
    found = Blocks(data.X, n_threads).run(solve, [(part,) for part in parts])
    return np.concatenate(list(found))


class CommonSystem:
    """The equations of rows without holes, which all have the same.

    Parameters
    ----------
    gram : ndarray of shape (n_factors, n_factors)
        ``v' v``, of the factors of the columns.
    pull : ndarray of shape (n_factors,)
        ``offset v``.
    n_columns : int
        Number of columns.
    alpha : float
        Strength of the ridge.
    """

    def __init__(self, gram, pull, n_columns, alpha):
        self._gram, self._pull = gram.copy(), pull
        add_ridge(self._gram[None], np.array([alpha * n_columns]))

    def solve(self, product):
        """Return the factors of rows, given the rows times the factors of columns."""
        return np.linalg.solve(self._gram, (product - self._pull).T).T


def add_ridge(grams, ridge):
    """Add a ridge to each matrix of a stack, in place."""
    diagonal = np.einsum("ikk->ik", grams)
    trace = diagonal.sum(axis=1)
    ridge = ridge + LEAST_RIDGE * trace
    # A row without entries: its factors are zero.
    diagonal += np.where(ridge > 0, ridge, 1.0)[:, None]


def outer_products(factors):
    """Return the upper triangles of v v', one row for each column of X.

    And for each element of v v' where it is in the triangle.
    """
    size = factors.shape[1]
    upper = np.triu_indices(size)
    place = np.zeros((size, size), dtype=np.intp)
    place[upper] = np.arange(len(upper[0]))
    place = np.maximum(place, place.T)
    return factors[:, upper[0]] * factors[:, upper[1]], place


def stack_triangles(triangles, place):
    """Return symmetric matrices from their upper triangles."""
    return np.take(triangles, place, axis=1)


def gram_maker(factors):
    """Return a function of weights, a matrix, that returns the sums of w v v'.

    One for each row, over its columns.
    """
    n_columns, size = factors.shape
    if n_columns * size**2 <= LARGEST_PRODUCTS:
        outer, place = outer_products(factors)

        def shared(weights):
            if sparse.issparse(weights):
                n_cells = weights.shape[0] * weights.shape[1]
                if weights.nnz >= DENSE_SHARE * n_cells:
                    weights = weights.toarray()
            return stack_triangles(weights @ outer, place)

        return shared

    def gram(weights, columns):
        v = factors[columns]
        return (v.T * weights) @ v

    def grams(weights):
        if not sparse.issparse(weights):
            found = [gram(w, slice(None)) for w in weights]
        else:
            ends = zip(weights.indptr[:-1], weights.indptr[1:], strict=True)
            found = [gram(weights.data[a:b], weights.indices[a:b]) for a, b in ends]
        return np.array(found).reshape(-1, size, size)

    return grams


def row_blocks(n_rows, width):
    """Return slices of rows whose arrays of that width are not too large."""
    step = max(1, BLOCK_SIZE // max(width, 1))
    return [slice(start, start + step) for start in range(0, n_rows, step)]


def _make_squared(data, factors, offset, alpha):
    """Return a function that solves some rows, of the squared error."""
    X = data.X
    n_columns = X.shape[1]
    # What every cell of the matrix has, stored or not.
    background = data.unstored_weight if data.kind == "zeros" else 0.0
    grams_of = gram_maker(factors)

    def solve(rows):
        if sparse.issparse(X):
            block = X[rows]
            weights = np.ones(block.nnz) if data.weights is None else None
            if weights is None:
                weights = data.weights[rows].data
            o = offset[block.indices]
            where = block.indices, block.indptr
            pull = sparse.csr_array(
                (weights * (block.data - o) + background * o, *where), block.shape
            )
            weights = sparse.csr_array((weights - background, *where), block.shape)
        else:
            weights = _dense_weights(data, rows)
            pull = weights * (X[rows] - offset)
        grams = grams_of(weights)
        target = pull @ factors
        total = np.asarray(weights.sum(axis=1)).ravel()
        if background:
            grams += background * (factors.T @ factors)
            target = target - background * (offset @ factors)
            total = total + background * n_columns
        add_ridge(grams, alpha * total)
        return np.linalg.solve(grams, target[:, :, None])[:, :, 0]

    return solve


def _dense_weights(data, rows):
    """Return the weights of some rows as a dense array, zero where missing."""
    shape = data.X[rows].shape
    if not sparse.issparse(data.X):
        weights = np.ones(shape) if data.weights is None else data.weights[rows]
        return weights if data.observed is None else weights * data.observed[rows]
    block = data.X[rows]
    weights = np.full(shape, data.unstored_weight if data.kind == "zeros" else 0.0)
    i = np.repeat(np.arange(shape[0]), np.diff(block.indptr))
    weights[i, block.indices] = 1 if data.weights is None else data.weights[rows].data
    return weights


def dense_block(data, rows):
    """Return values and weights of some rows as dense arrays."""
    X = data.X[rows]
    X = X.toarray() if sparse.issparse(X) else X
    return X.astype(np.float64, copy=False), _dense_weights(data, rows)


def dense_blocks(data):
    """Yield values and weights of all rows as dense arrays, some rows at a time."""
    for block, _ in data.blocks():
        for rows in row_blocks(*block.X.shape):
            yield dense_block(block, rows)


class DenseCells:
    """All cells of some rows, as arrays; missing ones have no weight.

    Parameters
    ----------
    y, weight : ndarray of shape (n_rows, n_columns)
        Values and weights.
    """

    def __init__(self, y, weight):
        self.y, self.weight = y, weight

    def take(self, rows):
        """Return the cells of some of the rows."""
        return DenseCells(self.y[rows], self.weight[rows])

    def predict(self, u, factors, offset):
        """Return z of the cells; offsets of rows come as a column."""
        return offset + u @ factors.T

    def sums(self, numbers):
        """Return the sums of numbers of the cells over each row."""
        return numbers.sum(axis=1)

    def matrix(self, numbers):
        """Return numbers of the cells as a matrix."""
        return numbers


class StoredCells:
    """The stored entries of some rows of a sparse matrix, of which others are missing.

    Parameters
    ----------
    X : CSR
        Values.
    weight : ndarray of shape (n_entries,)
        Weights.
    """

    def __init__(self, X, weight):
        self._X, self.weight = X, weight
        self.y = X.data.astype(np.float64, copy=False)
        self._row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))

    def take(self, rows):
        """Return the cells of some of the rows."""
        return StoredCells(self._X[rows], self.matrix(self.weight)[rows].data)

    def predict(self, u, factors, offset):
        """Return z of the cells; offsets of rows come as a column."""
        place = self._row, self._X.indices
        z = np.einsum("ek,ek->e", u[place[0]], factors[place[1]])
        return z + np.broadcast_to(offset, self._X.shape)[place]

    def sums(self, numbers):
        """Return the sums of numbers of the cells over each row."""
        return np.bincount(self._row, numbers, minlength=self._X.shape[0])

    def matrix(self, numbers):
        """Return numbers of the cells as a matrix."""
        X = self._X
        return sparse.csr_array((numbers, X.indices, X.indptr), X.shape)


def cells_of(data, rows):
    """Return the cells of some rows; those a sparse matrix misses take no time."""
    if not (sparse.issparse(data.X) and data.kind == "missing"):
        return DenseCells(*dense_block(data, rows))
    X = data.X[rows]
    return StoredCells(
        X, np.ones(X.nnz) if data.weights is None else data.weights[rows].data
    )


def _make_newton(data, factors, offset, loss, epsilon, alpha, start, max_steps):
    """Return a function that solves some rows, by Newton's method with halved steps."""
    grams_of = gram_maker(factors)

    def objective(u, cells, ridge):
        value, first, curvature = evaluate_loss(
            loss, epsilon, cells.y, cells.predict(u, factors, offset)
        )
        value = cells.sums(cells.weight * value) + ridge / 2 * (u * u).sum(axis=1)
        return value, cells.weight * first, cells.weight * curvature

    def solve(rows):
        all_cells = cells_of(data, rows)
        solution = start[rows].copy()
        active = np.arange(len(solution))
        for _ in range(max_steps):
            if not len(active):
                break
            everywhere = len(active) == len(solution)
            cells = all_cells if everywhere else all_cells.take(active)
            u = solution[active]
            ridge = alpha * cells.sums(cells.weight)
            value, first, curvature = objective(u, cells, ridge)
            gradient = cells.matrix(first) @ factors + ridge[:, None] * u
            grams = grams_of(cells.matrix(curvature))
            add_ridge(grams, ridge)
            move = np.linalg.solve(grams, gradient[:, :, None])[:, :, 0]
            expected = (move * gradient).sum(axis=1)
            length = np.ones(len(active))
            for _ in range(MAX_HALVINGS):
                trial = u - length[:, None] * move
                worse = objective(trial, cells, ridge)[0] > value - (
                    0.01 * length * expected
                )
                # Within rounding a solved row looks worse.
                worse &= expected > NEWTON_TOL * (1e-3 + np.abs(value))
                if not worse.any():
                    break
                length[worse] /= 2
            solution[active] = u - length[:, None] * move
            active = active[expected > NEWTON_TOL * (1e-3 + np.abs(value))]
        return solution

    return solve
