"""Wall seconds of fits in two threads, and whether they find the same coefficients.

A pass over rows that do not fit into the cache waits for memory, which two cores share.
What that allows is measured beside each fit: the products of a pass over the same rows,
block by block, by two threads that do nothing else ("products alone"). Fits of one and
two threads take turns; the least time of each counts.

Wall time is what is measured: nothing else may run on the machine. mnist is read from
the folder given by ``--data`` or the environment variable SKLEARN_AWSGD_DATA.
"""

import _common  # noqa: F401, I001  (sets the number of threads first)

import argparse
import os
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from _common import save, show
from bench_softmax import load
from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd import AWSGDClassifier

# Rows that are multiplied together.
NUMBERS_TOGETHER = 2**19


def rare(n_samples, n_features):
    """Return rows of a frequent and a rare class."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n_features))
    z = 2 * X @ rng.standard_normal(n_features) / np.sqrt(n_features) - 3
    return X, rng.random(n_samples) < 1 / (1 + np.exp(-z))


def least(functions, n_turns):
    """Return the least wall seconds of functions that take turns."""
    times = [[] for _ in functions]
    for _ in range(n_turns):
        for function, taken in zip(functions, times, strict=True):
            begin = time.perf_counter()
            function()
            taken.append(time.perf_counter() - begin)
    return [min(taken) for taken in times]


def products_alone(X, n_models, n_turns):
    """Return how many times as quick a pass of products is in two threads."""
    W = np.ones((X.shape[1], n_models), dtype=X.dtype)
    size = max(NUMBERS_TOGETHER // X.shape[1], 1)
    parts = [X[k : k + size] for k in range(0, len(X), size)]

    def multiply(some):
        for rows in some:
            rows.T.dot(rows.dot(W))

    with ThreadPoolExecutor(2) as pool:
        halves = [parts[0::2], parts[1::2]]
        one, two = least(
            [lambda: multiply(parts), lambda: list(pool.map(multiply, halves))],
            5 * n_turns,
        )
    return one / two


def run(name, X, y, loss, n_turns):
    """Return the row of a set."""
    coefs = {}

    def fit(n_jobs):
        model = AWSGDClassifier(loss, n_jobs=n_jobs, random_state=0).fit(X, y)
        coefs[n_jobs] = model.coef_

    one, two = least([lambda: fit(1), lambda: fit(2)], n_turns)
    n_models = 1 if loss != "multinomial" else len(np.unique(y))
    return {
        "set": name,
        "loss": loss,
        "one thread": one,
        "two": two,
        "ratio": one / two,
        "products alone": products_alone(X, n_models, n_turns),
        "same": bool(np.array_equal(coefs[1], coefs[2])),
    }


def main():
    """Run all sets and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("SKLEARN_AWSGD_DATA"))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    rows = []
    for n, d in ((100_000, 100), (200_000, 200), (1_000_000, 50)):
        for loss in ("log_loss", "hinge"):
            rows.append(run(f"{n:,} x {d}", *rare(n, d), loss, options.turns))
            show("wall seconds", rows[-1:])
    for name in ("tall", "mnist")[: 2 if options.data else 1]:
        X, y = load(name, options.data)
        rows.append(run(name, X, y, "multinomial", options.turns))
        show("wall seconds", rows[-1:])
    if options.data and not options.no_save:
        save("threads", {"rows": rows})


if __name__ == "__main__":
    main()
