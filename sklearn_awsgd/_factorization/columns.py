"""What a step of all columns needs of some rows, as sums that can be added anywhere.

With the factors of the rows solved exactly for given columns, the objective is a sum of
one function for each column. Their gradients and curvatures are sums over rows: one
Newton step from them is the exact solution for the squared error; for the other losses
they tell a step that cannot raise the objective, and a longer one may be tried.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from scipy import sparse

from sklearn_awsgd._factorization.finish import basis_of
from sklearn_awsgd._factorization.row_solver import (
    add_ridge,
    cells_of,
    deviance,
    evaluate_loss,
    outer_products,
    row_blocks,
    solve_rows,
    stack_triangles,
)

# What a step that cannot be too long is multiplied with at first, and after each step
# that was not, up to a Newton step.
FIRST_BOLDNESS = 4.0
BOLDER = 2.0


@dataclass
class ColumnEquations:
    """Sums over rows.

    Where all columns have the same equations, there is one triangle and one mass.
    """

    loss: float  # of the entries
    deviance: float  # likewise, less that of the best predictions
    row_ridge: float  # squared factors of rows, each times the mass of the row
    mass: np.ndarray  # weights of the entries of columns
    gradient: np.ndarray  # of the loss, for each column
    triangles: np.ndarray  # upper ones of the curvatures
    longest: float  # norm of what the factors of columns are multiplied by, at most

    def __add__(self, other):
        return ColumnEquations(
            *(a + b for a, b in zip(self._sums(), other._sums(), strict=True)),
            max(self.longest, other.longest),
        )

    def times(self, factor):
        """Return the sums of rows that count so many times."""
        return ColumnEquations(*(factor * a for a in self._sums()), self.longest)

    def _sums(self):
        return list(vars(self).values())[:-1]

    def objective(self, columns, ridge):
        """Return the sum of losses and ridge over all entries."""
        of_columns = np.sum(self.mass[:, None] * columns**2)
        return self.loss + ridge / 2 * (self.row_ridge + of_columns)

    def step(self, columns, scales, boldness=1.0):
        """Return the factors of columns after a step, no longer than a Newton step.

        Where that may be too long, `boldness` multiplies what cannot be.
        """
        ridge = scales.ridge * self.mass
        _, place = outer_products(np.zeros((1, columns.shape[1])))
        grams = stack_triangles(self.triangles, place)
        add_ridge(grams, ridge)
        gradient = self.gradient + ridge[:, None] * columns
        if scales.is_common:
            return columns - np.linalg.solve(grams[0], gradient.T).T
        move = np.linalg.solve(grams, gradient[:, :, None])[:, :, 0]
        if scales.is_damped:
            # |loss'''| <= loss'': along a Newton step that changes no prediction by
            # more than r, the objective falls up to the part log(1 + r) / r at least.
            reach = self.longest * np.linalg.norm(move, axis=1)
            reach = np.maximum(reach, 1e-12)
            move *= np.minimum(boldness * np.log1p(reach) / reach, 1.0)[:, None]
        return columns - move


class EquationSolver:
    """Solves for rows where they are, and takes steps of all columns from sums.

    Parameters
    ----------
    visit : callable
        Takes columns and scales, has all rows solved, and returns the sum of their
        ColumnEquations.
    rows : ndarray of shape (n_rows, n_components + 1) or None
        Where `visit` leaves the factors of the rows, if anywhere.
    columns : ndarray of shape (n_columns, n_components + 1)
        Factors of the columns, with the bias last.
    scales : Scales
        Of the model.
    """

    def __init__(self, visit, rows, columns, scales):
        self._visit, self._scales = visit, scales
        self.rows, self.columns = rows, columns
        self.equations, self._before = None, None
        # Rows that are solved where they were left would have to be taken back.
        self._boldness = FIRST_BOLDNESS if rows is None else 1.0

    def solve_rows(self):
        """Have the rows solved, the columns held fixed.

        If the step of the columns was too long, a shorter one is taken.
        """
        self.equations = self._visit(self.columns, self._scales)
        if self._before is None or not self._scales.is_damped or self.rows is not None:
            return
        columns, equations, objective = self._before
        if self.objective() <= objective:
            self._boldness *= BOLDER
        elif self._boldness > 1:
            self.columns, self.equations, self._boldness = columns, equations, 1.0
            self.solve_columns()
            self.equations = self._visit(self.columns, self._scales)
            if self.objective() > objective:
                # By rounding.
                self.columns, self.equations = columns, equations

    def solve_columns(self):
        """Take the step of the columns, which is exact for the squared error."""
        n_used = self.equations.gradient.shape[1]
        self._before = self.columns, self.equations, self.objective()
        columns = self.columns.copy()
        columns[:, :n_used] = self.equations.step(
            columns[:, :n_used], self._scales, self._boldness
        )
        self.columns = columns

    def column_masses(self):
        """Return the sums of the weights of the entries of the columns."""
        return np.broadcast_to(self.equations.mass, len(self.columns))

    def objective(self):
        """Return mean loss and ridge, after the rows have been solved."""
        total = self.equations.objective(self.columns, self._scales.ridge)
        return total / self.column_masses().sum()


def visit_blocks(data, rows, columns, scales):
    """Return the ColumnEquations of rows that come in blocks, solved from `rows`."""
    found = (
        column_equations(block, columns, scales, rows[part])
        for block, part in data.blocks()
    )
    return reduce(add, found)


def column_equations(data, columns, scales, row_factors=None):
    """Return the ColumnEquations of some rows, whose factors are solved first.

    Parameters
    ----------
    data : EntryData
        Entries of the rows.
    columns : ndarray of shape (n_columns, n_components + 1)
        Factors of the columns, with the bias last.
    scales : Scales
        Of the model.
    row_factors : ndarray of shape (n_rows, n_components + 1), default=None
        From where rows are solved, with one step where that is not exact; changed in
        place. None solves them to the end, from zero.
    """
    basis, offset = basis_of(columns, scales)
    size, newton = basis.shape[1], {}
    if row_factors is not None:
        newton = {"start": row_factors[:, :size], "max_steps": 1}
    rows = solve_rows(
        data, basis, offset, scales.loss, scales.epsilon, scales.ridge, **newton
    )
    if row_factors is not None:
        row_factors[:, :size] = rows
    columns = columns[:, :size]
    squares = np.einsum("ik,ik->i", rows, rows)
    if scales.gain == 0:
        rows = np.column_stack([rows, np.zeros(len(rows))])
    basis, offset = basis_of(rows, scales)
    longest = float(np.sqrt(np.einsum("ik,ik->i", basis, basis).max(initial=0.0)))
    sums = _common_sums if scales.is_common else _sums_of_cells
    return ColumnEquations(
        *sums(data, basis, offset, columns, squares, scales), longest
    )


def _common_sums(data, basis, offset, columns, squares, scales):
    X, (n_rows, n_columns) = data.X, data.X.shape
    product, gram, pull = X.T @ basis, basis.T @ basis, offset @ basis
    by_columns = columns @ gram
    values = X.data if sparse.issparse(X) else X.ravel()
    total2 = np.einsum("e,e->", values, values, dtype=np.float64)
    row_sums = np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()
    fit = np.sum(columns * product) + row_sums @ offset
    square = np.sum(by_columns * columns) + 2 * np.sum(columns @ pull)
    square += n_columns * (offset @ offset)
    loss = max(total2 - 2 * fit + square, 0.0) / 2
    upper = np.triu_indices(len(gram))
    return (
        loss,
        loss,
        n_columns * squares.sum(),
        np.array([float(n_rows)]),
        by_columns + pull - product,
        gram[upper][None],
    )


def _sums_of_cells(data, basis, offset, columns, squares, scales):
    (n_rows, n_columns), size = data.X.shape, basis.shape[1]
    loss = total_deviance = ridge = 0.0
    mass, gradient = np.zeros(n_columns), np.zeros((n_columns, size))
    triangles = np.zeros((n_columns, size * (size + 1) // 2))
    for part in row_blocks(n_rows, max(triangles.shape[1], n_columns)):
        cells = cells_of(data, part)
        y, weight = cells.y, cells.weight
        z = cells.predict(basis[part], columns, offset[part, None])
        value, first, curvature = evaluate_loss(scales.loss, scales.epsilon, y, z)
        outer, _ = outer_products(basis[part])
        gradient += cells.matrix(weight * first).T @ basis[part]
        triangles += cells.matrix(weight * curvature).T @ outer
        placed = cells.matrix(weight)
        mass += np.asarray(placed.sum(axis=0)).ravel()
        ridge += np.asarray(placed.sum(axis=1)).ravel() @ squares[part]
        loss += np.sum(weight * value)
        total_deviance += np.sum(weight * deviance(scales.loss, scales.epsilon, y, z))
    return loss, total_deviance, ridge, mass, gradient, triangles
