"""Alternating solutions for any loss and weights, of entries in memory.

The columns are the rows of the transposed matrix: both sides are solved by what
``transform`` solves rows with.
"""

from dataclasses import replace

import numpy as np

from sklearn_awsgd._factorization.finish import basis_of
from sklearn_awsgd._factorization.row_solver import (
    cells_of,
    evaluate_loss,
    row_blocks,
    solve_rows,
)
from sklearn_awsgd._linear.blocks import Blocks

# Newton's steps for one side before the other has its turn.
NEWTON_STEPS = 1


class EitherSideSolver:
    """Minimises the objective of a factorization over one side at a time.

    Exactly for the squared error; for other losses it takes Newton steps, each of which
    lowers the objective, from where the side is.

    Parameters
    ----------
    data : EntryData
        The entries.
    rows, columns : ndarray of shape (n, n_components + 1)
        Factors, with the bias last; changed in place.
    scales : Scales
        Of the model.
    n_threads : int, default=1
        Threads.
    """

    def __init__(self, data, rows, columns, scales, n_threads=1):
        if data.observed is not None and data.n_entries < data.X.size / 2:
            data = data.as_sparse()
        self._by_rows, self._by_columns = data, data.transposed()
        self._row_masses = data.masses()
        self._column_masses = self._by_columns.masses()
        self.rows, self.columns = rows, columns
        self._scales, self._n_threads = scales, n_threads

    def _solve(self, data, side, other):
        basis, offset = basis_of(other, self._scales)
        size = basis.shape[1]
        side[:, :size] = solve_rows(
            data,
            basis,
            offset,
            self._scales.loss,
            self._scales.epsilon,
            self._scales.ridge,
            self._n_threads,
            start=side[:, :size],
            max_steps=NEWTON_STEPS,
        )

    def solve_rows(self):
        """Solve for the rows, the columns held fixed."""
        self._solve(self._by_rows, self.rows, self.columns)

    def solve_columns(self):
        """Solve for the columns, the rows held fixed."""
        self._solve(self._by_columns, self.columns, self.rows)

    def objective(self):
        """Return mean loss and ridge."""
        ridge = self._row_masses @ np.sum(self.rows**2, axis=1)
        ridge += self._column_masses @ np.sum(self.columns**2, axis=1)
        total = self._loss() + self._scales.ridge / 2 * ridge
        return total / self._row_masses.sum()

    def _loss(self):
        """Return the sum of the losses."""
        data, scales = self._by_rows, self._scales
        basis, offset = basis_of(self.columns, scales)
        rows = self.rows[:, : basis.shape[1]]
        background = 0.0
        if data.kind == "zeros" and scales.loss == "squared_error":
            # Zeros everywhere, from products of small matrices; what is stored differs.
            background = data.unstored_weight
            data = replace(data, kind="missing")

        def loss(part):
            cells = cells_of(data, part)
            z = cells.predict(rows[part], basis, offset)
            value = evaluate_loss(scales.loss, scales.epsilon, cells.y, z)[0]
            return np.sum(cells.weight * value) - background / 2 * np.sum(z * z)

        parts = row_blocks(len(rows), max(data.X.shape[1], basis.shape[1]))
        found = Blocks(data.X, self._n_threads).run(loss, [(part,) for part in parts])
        total = sum(found)
        if background:
            square = np.sum((rows.T @ rows) * (basis.T @ basis))
            square += 2 * rows.sum(axis=0) @ (offset @ basis)
            total += background / 2 * (square + len(rows) * (offset @ offset))
        return total
