"""Step sizes: their settings, the state they need, and the first of them."""

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from sklearn_awsgd._kernels.settings import Rate

# Learning rates, and the eta0 each takes for eta0=None. The rates with a step size for
# each coordinate are relative to the gradients it has seen, the others are not.
SCALAR_RATES = {
    "constant": 0.01,
    "adaptive": 0.01,
    "optimal": 0.01,
    "invscaling": 0.01,
}
COORDINATE_RATES = {"adagrad": None, "rmsprop": 0.001, "adadelta": 1.0}
# Rows whose mean size is measured for the first step of AdaGrad, at most, and numbers
# in them: of long rows, a few tell as much. Those of a sparse matrix are in some runs.
ROWS_MEASURED = 1000
NUMBERS_MEASURED = 200_000
RUNS_MEASURED = 8


def make_rate(name, eta0, power_t, alpha):
    """Return the Rate of a name; `alpha` is relative to E_P[loss].

    The t0 of "optimal" is L. Bottou's heuristic: the first step has the size of a
    typical weight, alpha^(-1/4).
    """
    t0 = alpha**-0.75 if alpha > 0 else 0.0
    return Rate(name, eta0, power_t, alpha, t0)


def new_state(n_features):
    """Return the state of a model before any step."""
    sizes = {"coef": n_features, "intercept": 1, "clock": 1}
    return {name: np.zeros(size) for name, size in sizes.items()}


def complete_state(state, rate, average):
    """Add to the state of a model what a rate and means of coefficients need."""
    n_features = len(state["coef"])
    sizes = {}
    if rate in COORDINATE_RATES:
        sizes |= {"squares": n_features + 1, "moves": n_features + 1}
    if average:
        sizes |= {"average_coef": n_features}
        sizes |= {"average_intercept": 1, "average_clock": 1}
    for name, size in sizes.items():
        state.setdefault(name, np.zeros(size))


def check_start(given, name):
    """Return an array of what a user gives to start from."""
    return check_array(np.atleast_1d(given), ensure_2d=False, input_name=f"{name}_init")


def set_values(states, name, given, what):
    """Set "coef" or "intercept" of all models; `what` was given, for messages."""
    shape = (len(states), states[0][name].shape[0])
    if given.size != np.prod(shape):
        raise ValueError(
            f"{what} does not match dataset: it has shape {given.shape}, "
            f"expected {shape}."
        )
    for state, values in zip(states, given.reshape(shape), strict=True):
        state[name][:] = values


def coefficients(states, average):
    """Return coefficients and intercepts: the means of w where there are any."""
    prefix = ""
    if average and all(state["average_clock"][0] > 0 for state in states):
        prefix = "average_"
    coef = np.array([state[prefix + "coef"] for state in states])
    return coef, np.array([state[prefix + "intercept"][0] for state in states])


def mean_size(X, n_rows):
    """Return the mean ||x||_1 of about so many rows of a CSR matrix.

    They are runs of rows, which are read where they lie.
    """
    length = -(-n_rows // RUNS_MEASURED)
    starts = np.linspace(0, X.shape[0] - length, RUNS_MEASURED).astype(np.intp)
    begins, ends = X.indptr[starts], X.indptr[starts + length]
    total = sum(
        np.abs(X.data[begin:end]).sum(dtype=np.float64)
        for begin, end in zip(begins, ends, strict=True)
    )
    return total / (length * RUNS_MEASURED)


def default_eta0(rate, data, target):
    """Return the initial step size of a rate, from the data's own scale for AdaGrad.

    The first step of AdaGrad moves every coordinate by eta0, so a prediction by
    eta0 ||x||_1: that is set to three times the spread of the targets, which is one for
    classes.
    """
    if rate != "adagrad":
        return (SCALAR_RATES | COORDINATE_RATES)[rate]
    X = data.X
    n_rows = X.shape[0] if data.mass is None else np.count_nonzero(data.mass)
    n_numbers = X.nnz if sparse.issparse(X) else X.size
    most = max(NUMBERS_MEASURED * X.shape[0] // max(n_numbers, 1), 1)
    every = max(n_rows // min(most, ROWS_MEASURED), 1)
    if sparse.issparse(X) and data.mass is None:
        return 3 * target.spread / (1 + mean_size(X, max(n_rows // every, 1)))
    if data.mass is not None:
        some = X[np.flatnonzero(data.mass)[::every]]
    elif data.is_source:
        some = X[np.arange(0, n_rows, every)]
    else:
        # A slice is read where it lies.
        some = X[::every]
    values = some.data if sparse.issparse(some) else some
    size = 1 + np.abs(values).sum(dtype=np.float64) / some.shape[0]
    return 3 * target.spread / size
