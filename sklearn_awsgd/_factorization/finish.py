"""Alternating exact solutions: how ``fit`` ends where they cost less than a pass.

For the squared error and a matrix without missing entries all rows share one system of
equations, and so do all columns: solving one side costs a matrix product, a small part
of a pass of single draws, and reads every entry once.
"""

import numpy as np
from scipy import sparse

from sklearn_awsgd._factorization.row_solver import solve_common

# Passes of draws that come before: they find the subspace, the solutions sharpen it.
SAMPLING_PASSES = 2


class AlternatingSolver:
    """Minimises the objective of a factorization over one side at a time.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_rows, n_columns)
        The matrix.
    rows, columns : ndarray of shape (n, n_components + 1)
        Factors, with the bias last; changed in place.
    baseline : float
        The global bias.
    gain : float
        What biases are multiplied by; 0 for a model without them.
    ridge : float
        Strength of the ridge.
    """

    def __init__(self, X, rows, columns, baseline, gain, ridge):
        self.X = X
        self.rows = rows
        self.columns = columns
        self.baseline = baseline
        self.gain = gain
        self.ridge = ridge
        # X times what the columns multiply, while the columns stay as they are.
        self._product = None
        stored = X.data if sparse.issparse(X) else X.ravel()
        # In double precision: `objective` takes the difference of large numbers.
        self._total2 = float(np.einsum("e,e->", stored, stored, dtype=np.float64))
        self._column_sums = np.asarray(X.sum(axis=0, dtype=np.float64)).ravel()

    def _basis(self, factors):
        """Return what the other side is multiplied by, and what is added."""
        offset = self.baseline + self.gain * factors[:, -1]
        constant = np.full((len(factors), int(self.gain > 0)), self.gain)
        return np.column_stack([factors[:, :-1], constant]), offset

    def solve_rows(self):
        """Solve for the rows, the columns held fixed."""
        self._product = self._solve(self.X, self.rows, self.columns)

    def solve_columns(self):
        """Solve for the columns, the rows held fixed."""
        self._solve(self.X.T, self.columns, self.rows)
        self._product = None

    def _solve(self, X, side, other):
        basis, offset = self._basis(other)
        product = X @ basis
        solution = solve_common(product, basis, offset, self.ridge)
        side[:, : solution.shape[1]] = solution
        return product

    def objective(self):
        """Return mean loss and ridge, from products of small matrices."""
        basis, offset = self._basis(self.columns)
        rows = self.rows[:, : basis.shape[1]]
        # After the rows have been solved their product is known: X is not read again.
        product = self.X @ basis if self._product is None else self._product
        fit = np.sum(rows * product) + self._column_sums @ offset
        gram = np.sum((rows.T @ rows) * (basis.T @ basis))
        cross = rows.sum(axis=0) @ (offset @ basis)
        square = gram + 2 * cross + len(rows) * (offset @ offset)
        error = max(self._total2 - 2 * fit + square, 0.0)
        n, m = self.X.shape
        ridge = np.sum(self.rows**2) / n + np.sum(self.columns**2) / m
        return error / (2 * n * m) + self.ridge / 2 * ridge


def solve_alternately(X, rows, columns, scales, budget, log, pass_length):
    """Solve for rows and columns in turn, until a round has no longer much effect.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_rows, n_columns)
        The matrix.
    rows, columns : dict of ndarray
        State of a :class:`FactorizationProblem`, changed in place. Columns of zeros
        behind the factors stay as they are.
    scales : tuple of three float
        Global bias, gain of the biases and ridge.
    budget : Budget
        The largest number of solutions, of either side (rows come last), and the least
        fraction by which a round lowers the objective.
    log : Log
        Added to.
    pass_length : int
        Draws that a solution counts as.

    Returns
    -------
    n_iter : int
        Number of solutions.
    converged : bool
        Whether the last round lowered the objective by less than `tol`.
    """
    if budget.is_spent(0):
        return 0, False
    n_draws = log.records[-1].draws
    solver = AlternatingSolver(
        X,
        np.column_stack([rows["rows"], rows["row_bias"]]),
        np.column_stack([columns["columns"], columns["column_bias"]]),
        *scales,
    )
    solver.solve_rows()
    n_iter, converged, last = 1, False, solver.objective()
    log.add_exact(n_draws + pass_length, last, parameters=lambda: solver.columns)
    while not converged and not budget.is_spent(n_iter + 1):
        solver.solve_columns()
        solver.solve_rows()
        n_iter += 2
        objective = solver.objective()
        log.add_exact(
            n_draws + n_iter * pass_length,
            objective,
            parameters=lambda: solver.columns,
            n_passes=2,
        )
        converged = last - objective <= budget.tol * abs(last)
        last = objective
    rows["rows"][:], rows["row_bias"][:] = solver.rows[:, :-1], solver.rows[:, -1]
    columns["columns"][:] = solver.columns[:, :-1]
    columns["column_bias"][:] = solver.columns[:, -1]
    return n_iter, converged
