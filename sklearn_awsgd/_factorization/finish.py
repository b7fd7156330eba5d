"""Alternating exact solutions: how ``fit`` ends where they cost less than a pass.

For the squared error and a matrix without missing entries all rows share one system of
equations, and so do all columns: solving one side costs a matrix product, a small part
of a pass of single draws, and reads every entry once.
"""

import time

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
        stored = X.data if sparse.issparse(X) else X.ravel()
        self._total2 = float(np.dot(stored, stored))
        self._column_sums = np.asarray(X.sum(axis=0), dtype=float).ravel()

    def _basis(self, factors):
        """Return what the other side is multiplied by, and what is added."""
        offset = self.baseline + self.gain * factors[:, -1]
        if not self.gain:
            return factors[:, :-1], offset
        return np.column_stack(
            [factors[:, :-1], np.full(len(factors), self.gain)]
        ), offset

    def solve_rows(self):
        """Solve for the rows, the columns held fixed."""
        self._solve(self.X, self.rows, self.columns)

    def solve_columns(self):
        """Solve for the columns, the rows held fixed."""
        self._solve(self.X.T, self.columns, self.rows)

    def _solve(self, X, side, other):
        basis, offset = self._basis(other)
        solution = solve_common(X, basis, offset, self.ridge)
        side[:, : solution.shape[1]] = solution

    def objective(self):
        """Return mean loss and ridge, from products of small matrices."""
        basis, offset = self._basis(self.columns)
        rows = self.rows[:, : basis.shape[1]]
        fit = np.sum(rows * (self.X @ basis)) + self._column_sums @ offset
        gram = np.sum((rows.T @ rows) * (basis.T @ basis))
        cross = rows.sum(axis=0) @ (offset @ basis)
        square = gram + 2 * cross + len(rows) * (offset @ offset)
        error = max(self._total2 - 2 * fit + square, 0.0)
        n, m = self.X.shape
        ridge = np.sum(self.rows**2) / n + np.sum(self.columns**2) / m
        return error / (2 * n * m) + self.ridge / 2 * ridge

    def run(self, tol, max_iter, report):
        """Alternate until a round lowers the objective by less than a fraction.

        Parameters
        ----------
        tol : float
            The fraction.
        max_iter : int
            Largest number of solutions, of either side. Rows come last.
        report : callable
            Called after each round with the objective, the number of solutions and the
            seconds so far.

        Returns
        -------
        n_iter : int
            Number of solutions.
        converged : bool
            Whether the last round lowered the objective by less than `tol`.
        """
        if max_iter < 1:
            return 0, False
        started = time.perf_counter()
        self.solve_rows()
        n_iter, converged = 1, False
        last = self.objective()
        report(last, n_iter, time.perf_counter() - started)
        while not converged and n_iter + 2 <= max_iter:
            self.solve_columns()
            self.solve_rows()
            n_iter += 2
            objective = self.objective()
            report(objective, n_iter, time.perf_counter() - started)
            converged = last - objective <= tol * abs(last)
            last = objective
        return n_iter, converged
