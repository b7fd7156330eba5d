"""Sums over the rows of a linear model: losses, gradients, curvature."""

import numpy as np

from sklearn_awsgd._kernels import _batch
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._linear.curvature import ROWS_IN_PART, expectation, row_chunks

# From here on dense rows are sampled in single precision: products are what costs.
MANY_COLUMNS = 256
# Squares of single precision must not overflow.
LARGEST_SINGLE_NORM2 = float(np.sqrt(np.finfo(np.float32).max))
# Largest curvatures of a loss that single precision has the range for, others being
# less by far: from, and, times squared norms, to.
LEAST_CURVED, MOST_CURVED = 1e-20, 1e30


class LinearSums:
    """Sums over rows, all that an objective knows of them.

    Whoever has rows elsewhere gives the same sums with these methods. What `evaluate`
    returns as `curvatures` is handed back to the other methods as it is.

    Parameters
    ----------
    blocks : Blocks
        Rows.
    loss : Loss
        A smooth loss, but for `mean_loss`.
    y : ndarray of shape (n_samples,)
        Targets, of any type of numbers.
    mass : ndarray of shape (n_samples,) or None
        P of each row.
    norms2 : ndarray of shape (n_samples,)
        Squared norms of the rows.

    Attributes
    ----------
    n_samples, n_columns, n_nonzero : int
        Rows, features and one for the intercept, and numbers in the rows.
    """

    def __init__(self, blocks, loss, y, mass, norms2):
        self.blocks, self.loss, self.y = blocks, loss, y
        self.mass, self.norms2 = mass, norms2
        self.n_samples, n_features = blocks.shape
        self.n_columns, self.n_nonzero = n_features + 1, blocks.n_nonzero
        largest = float(norms2.max())
        is_safe = largest < LARGEST_SINGLE_NORM2
        is_worth_it = self.n_columns >= MANY_COLUMNS
        self._sample_dtype = np.float32 if is_safe and is_worth_it else np.float64
        # Curvatures are as exact as the rows, if their range allows, and so are their
        # products with norms: of ten million rows, an array is a tenth of the data.
        fits = LEAST_CURVED < loss.smoothness < MOST_CURVED / max(largest, 1.0)
        self._dtype = blocks.dtype if fits else np.dtype(np.float64)

    def targets(self, part):
        """Return the targets of a slice as kernels take them."""
        return np.asarray(self.y[part], dtype=np.float64)

    def masses(self, part):
        """Return P of the rows of a slice, an array or one number for all."""
        return 1 / self.n_samples if self.mass is None else self.mass[part]

    def _block_mass(self, part):
        """Return P of the rows of a block as kernels take it, and its factor.

        To a kernel that is given None, the rows of a block are all there are.
        """
        if self.mass is None:
            return None, (part.stop - part.start) / self.n_samples
        return self.mass[part], 1.0

    def evaluate(self, v, predictions=None):
        """Return sums of one pass over the rows.

        The rows fall in two sides by the sign of their derivative c = df/dz, c <= 0
        first, which is what a certificate of optimality needs.

        Parameters
        ----------
        v : ndarray of shape (n_columns,)
            Coefficients, then the intercept.
        predictions : ndarray of shape (n_samples,), default=None
            Predictions at v, if they are known.

        Returns
        -------
        gradients : ndarray of shape (2, n_columns)
            Sum of P c x of each side, the intercept's last.
        sums : ndarray of shape (2, 3)
            Sums of P f, of P c z and of P c^2 / (2 L) of each side, see
            :func:`_batch.evaluate`.
        curvatures : object
            For `hessian` and `hessian_diagonal`.
        """
        curvatures = np.empty(self.n_samples, dtype=self._dtype)

        def evaluate_block(X, part):
            gradients, sums = np.empty((2, self.n_columns)), np.empty((2, 3))
            mass, factor = self._block_mass(part)
            # Curvatures of all rows may be kept in single precision.
            direct = self._dtype == np.float64
            found = curvatures[part] if direct else np.empty(X.shape[0])
            _batch.evaluate(
                Rows(X),
                self.loss,
                self.targets(part),
                mass,
                v,
                gradients,
                sums,
                found,
                predictions=None if predictions is None else predictions[part],
            )
            if not direct:
                curvatures[part] = found
            if factor != 1:
                gradients *= factor
                sums *= factor
            return gradients, sums

        results = self.blocks.map(evaluate_block)
        gradients, sums = next(results)
        for more_gradients, more_sums in results:
            gradients += more_gradients
            sums += more_sums
        return gradients, sums, curvatures

    def mean_loss(self, v):
        """Return E_P[f] at v; the loss may have kinks."""

        def lose(X, part):
            z = X.dot(v[:-1]) + v[-1]
            losses = self.loss(self.targets(part), np.asarray(z, dtype=np.float64))[0]
            return np.sum(losses * self.masses(part))

        return sum(self.blocks.map(lose))

    def expect_hessian(self, floor, n_rows, rng):
        """Be told that `hessian` will be asked for after the next evaluation."""

    def hessian(self, curvatures, floor, n_rows, rng):
        """Return the upper triangle of a sampled Hessian of E_P[f], and its flops.

        Parameters
        ----------
        curvatures : object
            From `evaluate`.
        floor : float
            Least curvature of a row, as a share of the largest the loss can have.
        n_rows : int
            Size of the sample; all rows when it is `n_samples`.
        rng : numpy.random.Generator
            Draws the sample.
        """
        if n_rows >= self.n_samples:
            chosen, times = np.arange(self.n_samples), 1.0
            # Of a loss with lines, many rows have no curvature.
            if floor == 0 and np.count_nonzero(curvatures) < self.n_samples:
                chosen = np.flatnonzero(curvatures)
        else:
            size = self.sizes(curvatures, floor)
            chosen, times = self.blocks.sample(size, n_rows, rng)
            del size
        # A slice is read where it lies.
        some = chosen if len(chosen) < self.n_samples else slice(None)
        weights = self._floored(curvatures[some], floor).astype(np.float64)
        weights *= times * self.masses(some)
        hessian = np.zeros((self.n_columns, self.n_columns))
        per_row = self.n_nonzero / self.n_samples
        if self.blocks.is_sparse:
            for part in row_chunks(len(chosen)):
                rows = Rows(self.blocks.take(chosen[part]))
                _batch.add_hessian(rows, weights[part], hessian)
            flops = len(chosen) * per_row**2 / 2
            if n_rows < self.n_samples:
                # A rare feature may be missing from the sample; without its own
                # curvature the step along it would be far too long.
                diagonal = self._diagonal(self._floored(curvatures, floor))
                np.fill_diagonal(hessian, np.maximum(np.diagonal(hessian), diagonal))
            return hessian, flops
        # In single precision, more exact than a sample is, matrix products run ten
        # times as fast as passes, which wait for memory.
        dtype = self._sample_dtype if n_rows < self.n_samples else np.float64
        speed = 10 if dtype == np.float32 else 5

        def square(part):
            A = self.blocks.weigh(chosen[part], np.sqrt(weights[part]), dtype)
            return A.T.dot(A)

        calls = [(part,) for part in row_chunks(len(chosen))]
        for more in self.blocks.run(square, calls):
            hessian += more
        return hessian, len(chosen) * per_row**2 / speed

    def sizes(self, curvatures, floor):
        """Return what `hessian` draws rows in proportion to.

        The parameters are those of `hessian`.
        """
        size = np.empty_like(curvatures)
        # In parts: arrays of all rows are what takes memory beside the rows.
        for part in row_chunks(self.n_samples, ROWS_IN_PART):
            weight = self._floored(curvatures[part], floor) * self.masses(part)
            np.multiply(weight, self.norms2[part] + 1, out=size[part])
        return size

    def hessian_diagonal(self, curvatures, floor):
        """Return the diagonal of the Hessian of E_P[f], with the mean curvature added.

        The rows that matter change on the way, so the others count too. The parameters
        are those of `hessian`.
        """
        curvatures = self._floored(curvatures, floor)
        return self._diagonal(curvatures + expectation(curvatures, self.mass))

    def _diagonal(self, curvatures):
        def add(X, part):
            mass, factor = self._block_mass(part)
            here = np.asarray(curvatures[part], dtype=np.float64)
            return factor * _batch.hessian_diagonal(Rows(X), mass, here)

        return sum(self.blocks.map(add))

    def _floored(self, curvatures, floor):
        """Return the curvature of each row, at least a share of the largest."""
        if floor == 0:
            return curvatures
        return np.maximum(curvatures, floor * self.loss.smoothness)
