"""Alternating exact solutions: how ``fit`` ends where they cost less than passes.

For the squared error and a matrix without missing entries all rows share one system of
equations, and so do all columns: solving one side costs a matrix product, a small part
of a pass of single draws, and reads every entry once. Where entries are missing, each
row has its own (``observed.py``).
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from sklearn_awsgd._factorization.observed import StoredEntries
from sklearn_awsgd._factorization.row_solver import CommonSystem

# Passes of draws that come before: they find the subspace, the solutions sharpen it.
SAMPLING_PASSES = 2


@dataclass(frozen=True)
class Scales:
    """What the objective of a factorization depends on besides entries and factors."""

    loss: str
    epsilon: float
    ridge: float
    baseline: float  # the global bias
    gain: float  # what biases are multiplied by; 0 for a model without them
    # Whether all columns of all rows have the same equations: there are no holes and no
    # weights, and the loss is squared.
    is_common: bool = False

    @property
    def is_damped(self):
        """Whether a whole Newton step may be too long.

        The parabola of "huber" is nowhere below the loss.
        """
        return self.loss in ("log_loss", "poisson")


def basis_of(factors, scales):
    """Return what the other side is multiplied by, and what is added.

    The last of the factors is the bias, which is multiplied by the gain of the Scales.
    """
    gain = scales.gain
    offset = scales.baseline + gain * factors[:, -1]
    constant = np.full((len(factors), int(gain > 0)), gain)
    return np.column_stack([factors[:, :-1], constant]), offset


class AlternatingSolver:
    """Minimises over one side at a time where no entry is missing.

    Parameters
    ----------
    blocks : Blocks
        The rows of the matrix.
    rows, columns : ndarray of shape (n, n_components + 1)
        Factors, with the bias last; changed in place.
    scales : Scales
        Of the model.
    at_once : bool, default=False
        Whether a pass over the blocks that solves for the rows also sums up what
        solving for the columns will need: where reading costs more than the products.
    """

    def __init__(self, blocks, rows, columns, scales, at_once=False):
        self.blocks, self.at_once = blocks, at_once
        self.rows, self.columns, self.scales = rows, columns, scales
        # X times what the columns multiply, while the columns stay as they are; what
        # solving for them needs of the rows; sums of the entries, which never change.
        self._product = self._of_rows = self._of_entries = None

    def solve_rows(self):
        """Solve for the rows, the columns held fixed."""
        basis, offset = basis_of(self.columns, self.scales)
        size = basis.shape[1]
        system = CommonSystem(
            basis.T @ basis, offset @ basis, len(basis), self.scales.ridge
        )
        new = self._of_entries is None

        def solve(X, part):
            self._product[part] = X.dot(basis)
            self.rows[part, :size] = system.solve(self._product[part])
            back = self._sums_of_rows(X, part) if self.at_once else ()
            return *back, *(self._sums_of_entries(X) if new else ())

        self._product = np.empty((len(self.rows), size))
        sums = _add(self.blocks.map(solve))
        if new:
            self._of_entries = sums[-2:]
        self._of_rows = sums[:3] if self.at_once else None

    def _sums_of_rows(self, X, part):
        """Return what solving for the columns needs of some rows."""
        basis, offset = basis_of(self.rows[part], self.scales)
        return X.T.dot(basis), basis.T.dot(basis), offset @ basis

    def _sums_of_entries(self, X):
        """Return the sum of the squares of entries, and the sums of the columns."""
        values = X.data if sparse.issparse(X) else X.ravel()
        # In double precision: `objective` takes the difference of large numbers.
        squares = np.einsum("e,e->", values, values, dtype=np.float64)
        return squares, np.asarray(X.sum(axis=0, dtype=np.float64)).ravel()

    def solve_columns(self):
        """Solve for the columns, the rows held fixed."""
        if self._of_rows is None:
            self._of_rows = _add(self.blocks.map(self._sums_of_rows))
        product, gram, pull = self._of_rows
        solution = CommonSystem(gram, pull, len(self.rows), self.scales.ridge).solve(
            product
        )
        self.columns[:, : solution.shape[1]] = solution
        self._of_rows = self._product = None

    def objective(self):
        """Return mean loss and ridge, from products of small matrices.

        After the rows have been solved no entry is read again.
        """
        basis, offset = basis_of(self.columns, self.scales)
        rows = self.rows[:, : basis.shape[1]]
        if self._of_entries is None:
            self._of_entries = _add(
                self.blocks.map(lambda X, _: self._sums_of_entries(X))
            )
        product = self._product
        if product is None:
            product = np.concatenate(list(self.blocks.map(lambda X, _: X.dot(basis))))
        total2, column_sums = self._of_entries
        fit = np.sum(rows * product) + column_sums @ offset
        gram = np.sum((rows.T @ rows) * (basis.T @ basis))
        cross = rows.sum(axis=0) @ (offset @ basis)
        square = gram + 2 * cross + len(rows) * (offset @ offset)
        error = max(total2 - 2 * fit + square, 0.0)
        n, m = self.blocks.shape
        ridge = np.sum(self.rows**2) / n + np.sum(self.columns**2) / m
        return error / (2 * n * m) + self.scales.ridge / 2 * ridge


class ObservedSolver:
    """Minimises over one side at a time where entries are missing.

    Parameters
    ----------
    data : EntryData
        The entries, some of which are missing.
    rows, columns : ndarray of shape (n, n_components + 1)
        Factors, with the bias last; changed in place.
    scales : Scales
        Of the model.
    n_threads : int, default=1
        Threads.
    """

    def __init__(self, data, rows, columns, scales, n_threads=1):
        self._by_rows = StoredEntries.of(data)
        self._by_columns = self._by_rows.transposed(data.X.shape[1])
        self._column_masses = self._by_columns.masses()
        self.rows, self.columns, self.scales = rows, columns, scales
        self._n_threads = n_threads
        self._least = None

    def _solve(self, entries, side, other):
        basis, offset = basis_of(other, self.scales)
        solution, least = entries.solve(
            basis, offset, self.scales.ridge, self._n_threads
        )
        side[:, : solution.shape[1]] = solution
        return least.sum()

    def solve_rows(self):
        """Solve for the rows, the columns held fixed."""
        self._least = self._solve(self._by_rows, self.rows, self.columns)

    def solve_columns(self):
        """Solve for the columns, the rows held fixed."""
        self._solve(self._by_columns, self.columns, self.rows)

    def objective(self):
        """Return mean loss and ridge, after the rows have been solved."""
        ridge = self.scales.ridge * (
            self._column_masses @ np.sum(self.columns**2, axis=1)
        )
        return (self._least + ridge) / (2 * self._column_masses.sum())


def _add(parts):
    """Return the sums of tuples of arrays, added in their order."""
    parts = iter(parts)
    total = list(next(parts))
    for part in parts:
        total = [a + b for a, b in zip(total, part, strict=True)]
    return total


def solve_alternately(make_solver, rows, columns, budget, log, pass_length):
    """Solve for rows and columns in turn, until a round has no longer much effect.

    Parameters
    ----------
    make_solver : callable
        Returns the solver, :class:`AlternatingSolver` or one like it, of the factors of
        rows and columns, with the bias last.
    rows, columns : dict of ndarray
        State of a :class:`FactorizationProblem`, changed in place. Columns of zeros
        behind the factors stay as they are.
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
    solver = make_solver(
        np.column_stack([rows["rows"], rows["row_bias"]]),
        np.column_stack([columns["columns"], columns["column_bias"]]),
    )
    n_iter, converged = alternate(solver, budget, log, pass_length)
    rows["rows"][:], rows["row_bias"][:] = solver.rows[:, :-1], solver.rows[:, -1]
    columns["columns"][:] = solver.columns[:, :-1]
    columns["column_bias"][:] = solver.columns[:, -1]
    return n_iter, converged


def alternate(solver, budget, log, pass_length):
    """Solve for rows and columns in turn, at least once for the rows.

    Parameters
    ----------
    solver : object
        With `solve_rows`, `solve_columns`, `objective` and `columns`, as an
        :class:`AlternatingSolver`.
    budget, log, pass_length : Budget, Log, int
        As for :func:`solve_alternately`, which says what is returned.
    """
    n_draws = log.records[-1].draws
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
        if budget.tol is not None:
            converged = last - objective <= budget.tol * abs(last)
        last = objective
    return n_iter, converged
