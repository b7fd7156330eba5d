"""What a fit leaves for a stream that goes on from it: its curvature."""

import numpy as np
from scipy.special import softmax

from sklearn_awsgd._kernels import _batch
from sklearn_awsgd._kernels._newton import mirrored
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._linear.curvature import systematic_sample
from sklearn_awsgd._linear.streams.learner import is_narrow
from sklearn_awsgd._linear.streams.problem import StreamProblem
from sklearn_awsgd._linear.streams.rows import make_rows

# Rows whose curvature is taken: at least, and for each parameter. On parts of w8a, a9a
# and cover_2v4 three times as many were no better after 12 chunks.
FEWEST_ROWS, ROWS_PER_PARAMETER = 1000, 4
# Of more rows, so many are looked at: a fit must not cost much more for a stream that
# may never come.
MOST_LOOKED_AT = 4_096


def seed_of(task):
    """Return curvature, parameters and number of rows of a task that was trained.

    Parameters
    ----------
    task : Task
        After training.

    Returns
    -------
    curvature : ndarray of shape (p, p) or (p,)
        Of the sum of all losses, from a sample of the rows: the last one of the descent
        where the loss has curvature everywhere, else a new one. Its diagonal for wide
        data.
    v : ndarray of shape (p,) or (n_models, p)
        Coefficients, the intercept last.
    n : float
        Number of rows.
    """
    data, n = task.data, task.n_samples
    problem = StreamProblem.of(task.loss, task.target.spread)
    has_lines = not (problem.is_log_loss or problem.is_quadratic)
    if task.curvature is not None and is_narrow(data.X) and not has_lines:
        # A new sample took up to a tenth of the time of a fit, and 12 chunks later was
        # no better, on w8a, a9a, cover_2v4, mammography and four generated sets.
        curvature = mirrored(task.curvature, n * data.total)
        return curvature, task.parameters(), float(n)
    a = np.broadcast_to(data.total, n)
    if data.mass is not None:
        a = data.mass * (n * data.total)
    X, y, norms2 = data.X, task.target.values, data.norms2
    known, h = None if has_lines else task.row_curvatures, None
    # Making a generator takes longer than all the rest of a small task.
    rng = np.random.default_rng(0) if n > FEWEST_ROWS else None
    # To take most of the rows would cost more than to look at all.
    if n > 2 * MOST_LOOKED_AT:
        size = norms2 + 1
        # Not their weights, which may be out of the range of single precision.
        if data.mass is not None:
            size *= data.mass
        some, times = data.blocks.sample(size, MOST_LOOKED_AT, rng)
        times *= a[some]
        del size
        if known is None or data.is_source or is_narrow(X):
            X, y, norms2, a = data.blocks.take(some), y[some], norms2[some], times
            known = None if known is None else known[some]
        else:
            # Rows without weight are passed over sooner than others are copied.
            h = np.zeros(n)
            h[some] = times * known[some]
    elif data.is_source:
        X = X[:]
    v = task.parameters().reshape(task.n_models, -1)
    if h is None:
        a = np.ascontiguousarray(a)
        h = _curvatures(problem, X, y, a, v) if known is None else a * known
    if task.n_models > 1:
        # Half of the trace is what a class has at most.
        return _diagonal(X, h / 2), v, float(n)
    if not is_narrow(X):
        return _diagonal(X, h), v[0], float(n)
    size = h * (norms2 + 1)
    n_rows = max(FEWEST_ROWS, ROWS_PER_PARAMETER * v.shape[1])
    chosen, times = systematic_sample(size, n_rows, rng)
    rows, curvature = make_rows(X, task.fit_intercept), np.zeros((v.size, v.size))
    rows.append(X[chosen])
    rows.add_gram(h[chosen] * times, curvature)
    return curvature, v[0], float(n)


def _curvatures(problem, X, y, a, v):
    """Return the curvature of rows; of softmax regression, its trace."""
    scores = X @ v[:, :-1].T + v[:, -1]
    if len(v) > 1:
        p = softmax(scores, axis=1)
        return a * (1 - np.einsum("ij,ij->i", p, p))
    values = np.empty((3, len(a)))
    z = np.ascontiguousarray(scores[:, 0], dtype=np.float64)
    problem.evaluate(np.asarray(y, dtype=np.float64), z, a, values)
    return values[2]


def _diagonal(X, h):
    return len(h) * _batch.hessian_diagonal(Rows(X), None, h)
