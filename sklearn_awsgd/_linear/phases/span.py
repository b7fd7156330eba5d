"""Fewer rows than features: the same task in the span of the rows.

With an l2 penalty or none, what is orthogonal to all rows changes no prediction and can
only cost: the optimum is a combination of the rows. In an orthonormal basis of their
span, X = R Q^T, the task has as many features as there are independent rows, and all
lengths are the same; there it has a full curvature, which sees the penalty in every
direction. A diagonal of the curvature does not: along what the rows do not see, the
penalty is all there is.
"""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpstrf

from sklearn_awsgd._linear.curvature import MOST_PARAMETERS
from sklearn_awsgd._linear.phases.descent import CHEAP
from sklearn_awsgd._linear.steps import complete_state, new_state

# Passes over the rows that a span may cost to be taken at once. If it costs more, as
# many passes come first: what they cannot do is worth the span then. Chosen on normal
# rows, 10 x 3000 to 2000 x 5000, whose descents took 20 to 40 passes and missed tol.
CHEAP_SPAN = 100
# Hessians that a descent in the span is taken to need.
N_HESSIANS = 4
# Flops of matrix products in the time of one flop of a pass.
SPEED = 10
# Columns that are converted together to double precision.
COLUMNS_TOGETHER = 4096


def has_span(task):
    """Return whether the task is the same in the span of its rows, which are few."""
    few = task.n_samples < MOST_PARAMETERS
    return few and task.penalty.l1 == 0 and not task.data.is_source


def has_few_rows(task):
    """Return whether there are no more rows than features, and many of both.

    With few of both, the curvature of the features costs nothing.
    """
    rows, columns = task.n_samples, task.n_features
    return rows <= columns and rows * columns**2 > CHEAP


def span_cost(task):
    """Return the passes that the span of the rows costs; inf where it is of no use."""
    n_rows = task.n_samples
    if not has_span(task) or not (task.is_wide or has_few_rows(task)):
        return np.inf
    X = task.data.X
    n_nonzero = X.nnz if sparse.issparse(X) else X.size
    # Losses with kinks have dual steps there.
    n_hessians = N_HESSIANS if task.is_smooth else 1 / 3
    products = n_rows * n_nonzero + n_hessians * n_rows**3
    return products / SPEED / (4 * (n_nonzero + 5 * n_rows))


def _gram(X):
    """Return X X^T in double precision: rows may be nearly parallel."""
    if sparse.issparse(X):
        X = X.astype(np.float64, copy=False)
        return (X @ X.T).toarray()
    gram = np.zeros((len(X), len(X)))
    for begin in range(0, X.shape[1], COLUMNS_TOGETHER):
        part = X[:, begin : begin + COLUMNS_TOGETHER].astype(np.float64, copy=False)
        gram += part @ part.T
    return gram


class Span:
    """An orthonormal basis Q of the span of rows.

    Parameters
    ----------
    task : Task
        Whose rows.

    Attributes
    ----------
    task : Task
        The same task in the coordinates of the basis. Its parameters are those of the
        task, without what is orthogonal to all rows.
    """

    def __init__(self, task):
        X, norms = task.data.X, np.sqrt(task.data.norms2)
        gram = _gram(X)
        # Rows of length one: small rows are no less independent than large ones.
        norms = np.where(norms > 0, norms, 1.0)
        gram /= norms
        gram /= norms[:, None]
        factor, order, rank, _ = dpstrf(gram, lower=1)
        factor = np.tril(factor)[:, :rank]
        rows = np.empty_like(factor)
        rows[order - 1] = factor
        # The independent rows span all others: X[basis] = norms L Q^T.
        self._basis = order[:rank] - 1
        self._triangle = norms[self._basis, None] * factor[:rank]
        self._rows = X[self._basis]
        rows *= norms[:, None]
        states = []
        for state in task.states:
            inner = new_state(rank)
            inner["coef"][:] = self._enter(state["coef"])
            inner["intercept"][:] = state["intercept"]
            complete_state(inner, task.rate.name, task.average_start > 0)
            states.append(inner)
        data = replace(task.data, X=rows, norms2=np.einsum("ij,ij->i", rows, rows))
        self.task = replace(task, data=data, states=states)

    def _enter(self, coef):
        """Return Q^T w."""
        return solve_triangular(self._triangle, self._rows @ coef, lower=True)

    def _leave(self, coef):
        """Return Q u."""
        weights = solve_triangular(self._triangle, coef, lower=True, trans="T")
        return self._rows.T @ weights

    @contextmanager
    def told_outside(self, progress):
        """Have a Reporter, or None, tell of parameters as those of the task itself."""
        if progress is None:
            yield
            return
        attributes = progress.attributes
        progress.attributes = lambda v: attributes(
            self.parameters(self.task.parameters() if v is None else v)
        )
        try:
            yield
        finally:
            progress.attributes = attributes

    def parameters(self, v):
        """Return parameters of the task in the span as those of the task itself."""
        parts = np.split(v, self.task.n_models)
        return np.concatenate([np.append(self._leave(u[:-1]), u[-1]) for u in parts])
