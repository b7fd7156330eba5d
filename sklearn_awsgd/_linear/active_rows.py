"""The rows next to a kink of their loss; all others lie on a line of theirs.

A loss with kinks is a line in most places. As far as rows do not cross a kink, those
far from one add a constant to the gradient, or nothing: sums over them are known once
and for all, and passes need to look at the others only.
"""

import numpy as np

from sklearn_awsgd._linear.blocks import Blocks, stack_rows
from sklearn_awsgd._linear.sums import LinearSums


class ActiveRows:
    """Rows whose prediction is close to a kink or crosses it, and lines of all others.

    Parameters
    ----------
    sums : LinearSums
        Sums over all rows, with the loss as it is.
    points : list of ndarray of shape (n_columns,)
        Coefficients, then the intercept: what predictions are of. A row crosses a kink
        that lies between two of its predictions.
    reach : float
        How far from a kink a prediction is close to it.

    Attributes
    ----------
    n_rows : int
        Number of rows that are close.
    """

    def __init__(self, sums, points, reach):
        # Sums of P c x on each side, as `LinearSums.evaluate` has them, and of the part
        # of P f that does not depend on v.
        self._slopes, self._constants = np.zeros((2, sums.n_columns)), np.zeros(2)
        rows, numbers, V = [], [], np.transpose(points)

        def look(X, part):
            y = sums.targets(part)
            Z = np.asarray(X.dot(V[:-1]) + V[-1], dtype=np.float64)
            z, low, high = np.ascontiguousarray(Z[:, 0]), Z.min(axis=1), Z.max(axis=1)
            losses, c = sums.loss(y, z)
            # On a line, the derivatives at both ends are the same.
            is_line = sums.loss(y, low - reach)[1] == sums.loss(y, high + reach)[1]
            close = np.flatnonzero(~is_line)
            p = sums.masses(part)
            weights = np.where(is_line, p * c, 0.0)
            constants = np.where(is_line, p * (losses - c * z), 0.0)
            for side, is_side in enumerate((c <= 0, c > 0)):
                w = np.where(is_side, weights, 0.0)
                if w.any():
                    self._slopes[side, :-1] += X.T.dot(w)
                    self._slopes[side, -1] += w.sum()
                    self._constants[side] += constants[is_side].sum()
            return X[close], close + part.start

        for X, close in sums.blocks.map(look):
            rows.append(X)
            numbers.append(close)
        numbers = np.concatenate(numbers)
        self.n_rows = len(numbers)
        self._y = sums.y[numbers]
        self._mass = np.ascontiguousarray(
            np.broadcast_to(sums.masses(slice(None)), sums.n_samples)[numbers]
        )
        self._norms2 = sums.norms2[numbers]
        self._rows = rows

    def make_sums(self, loss):
        """Return sums over all rows with another loss next to the kinks."""
        X = stack_rows(self._rows)
        sums = LinearSums(Blocks(X), loss, self._y, self._mass, self._norms2)
        return SumsWithLines(sums, self._slopes, self._constants)


class SumsWithLines:
    """Sums over some rows, and the lines of all others: see ActiveRows."""

    def __init__(self, sums, slopes, constants):
        self._sums, self._slopes, self._constants = sums, slopes, constants
        self.n_samples, self.n_columns = sums.n_samples, sums.n_columns
        self.n_nonzero = sums.n_nonzero
        # The lines have no curvature.
        self.hessian, self.hessian_diagonal = sums.hessian, sums.hessian_diagonal
        self.expect_hessian = sums.expect_hessian

    def evaluate(self, v):
        """Return sums of one pass over the rows, as `LinearSums` does."""
        gradients, sums, curvatures = self._sums.evaluate(v)
        along = self._slopes @ v
        sums[:, 0] += self._constants + along
        sums[:, 1] += along
        return gradients + self._slopes, sums, curvatures
