"""
Which solver is first at the optimum when one row in two hundred is positive?
=============================================================================

200,000 generated rows with 30 features, 0.5 % of them positive, and the same objective
for all: logistic regression with an l2 penalty. Every solver of LogisticRegression and
SGDClassifier, each stopped after growing numbers of iterations and so at its best at
every accuracy, beside AWSGDClassifier at its defaults, which stops by itself at its
``tol``. Times are CPU seconds of one thread, of whole fits.

Prints a table and writes the picture demo.png. Run it by ``make demo``.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import time
import warnings

import matplotlib
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler

from sklearn_awsgd import AWSGDClassifier

matplotlib.use("Agg")
import matplotlib.pyplot as plt

N_ROWS, ALPHA = 200_000, 1e-4
TARGETS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
# A contestant is not given more iterations once a fit has taken this many seconds.
PATIENCE = 1.5
SOLVERS = {
    "lbfgs": ((3, 5, 7, 10, 14, 20, 30, 45, 70, 100), "#0072b2"),
    "newton-cg": ((2, 3, 4, 6, 8, 10, 15), "#56b4e9"),
    "newton-cholesky": ((2, 3, 4, 6, 8, 10, 15), "#009e73"),
    "liblinear": ((2, 3, 4, 6, 8, 10, 15), "#cc79a7"),
    "sag": ((1, 2, 4, 8, 16, 32, 64), "#999999"),
    "saga": ((1, 2, 4, 8, 16, 32, 64), "#555555"),
}


def make_data():
    """Return scaled rows and labels, 0.5 % of them positive."""
    X, y = make_classification(
        N_ROWS,
        n_features=30,
        n_informative=10,
        weights=[0.995],
        flip_y=0,
        random_state=0,
    )
    return StandardScaler().fit_transform(X), y


def contestants():
    """Yield name, color, and makers of models, from short fits to long ones."""
    yield (
        "AWSGDClassifier",
        "#d55e00",
        [
            lambda tol=tol: AWSGDClassifier(alpha=ALPHA, tol=tol, random_state=0)
            for tol in TARGETS
        ],
    )
    for solver, (iterations, color) in SOLVERS.items():
        yield (
            f"LogisticRegression, {solver}",
            color,
            [
                lambda k=k, solver=solver: LogisticRegression(
                    solver=solver,
                    C=1 / (ALPHA * N_ROWS),
                    # liblinear penalises the intercept: the less the larger this is.
                    intercept_scaling=10,
                    max_iter=k,
                    tol=1e-12,
                    random_state=0,
                )
                for k in iterations
            ],
        )
    yield (
        "SGDClassifier",
        "#e69f00",
        [
            lambda k=k: SGDClassifier(
                "log_loss", alpha=ALPHA, max_iter=k, tol=None, random_state=0
            )
            for k in (1, 2, 5, 10, 20)
        ],
    )


def objective(model, X, y):
    """Return the mean logistic loss plus the l2 penalty."""
    margin = np.where(y, 1, -1) * (X @ model.coef_[0] + model.intercept_[0])
    return np.logaddexp(0, -margin).mean() + ALPHA / 2 * (model.coef_**2).sum()


def race(makers, X, y):
    """Return CPU seconds and objectives of fits of growing length."""
    found = []
    for make in makers:
        model = make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            started = time.process_time()
            model.fit(X, y)
        found.append((time.process_time() - started, objective(model, X, y)))
        if found[-1][0] > PATIENCE:
            break
    return np.array(found)


def seconds_to(target, seconds, excess):
    """Return the seconds of the quickest fit that is within a target, or None."""
    reached = seconds[excess <= target]
    return reached.min() if len(reached) else None


def draw(results, colors):
    """Draw the distance to the optimum against seconds."""
    figure, axes = plt.subplots(figsize=(9, 4.8), layout="constrained")
    for name, (seconds, excess) in results.items():
        ours = name == "AWSGDClassifier"
        axes.plot(
            seconds,
            np.maximum(excess, 1e-7),
            marker="o",
            ms=6 if ours else 4,
            lw=2.5 if ours else 1.3,
            color=colors[name],
            label=name,
            zorder=3 if ours else 2,
        )
    axes.set(xscale="log", yscale="log", ylim=(0.7e-7, 10))
    axes.set(xlabel="CPU seconds of a fit, one thread")
    axes.set_ylabel("objective above the optimum, relative")
    axes.set_title(f"{N_ROWS:,} rows, 0.5 % positive: logistic regression")
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    axes.set_xticks(ticks, map(str, ticks))
    powers = range(-7, 2)
    axes.set_yticks(
        [10.0**k for k in powers],
        [f"$10^{{{k}}}$" if k > -7 else "at most $10^{-7}$" for k in powers],
    )
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig("demo.png", dpi=130)


def main():
    """Run the race, print the table, write the picture."""
    X, y = make_data()
    colors, found = {}, {}
    for name, color, makers in contestants():
        colors[name], found[name] = color, race(makers, X, y)
    exact = LogisticRegression(
        C=1 / (ALPHA * N_ROWS), solver="newton-cholesky", tol=1e-10
    ).fit(X, y)
    reached = [runs[:, 1].min() for runs in found.values()]
    lowest = min(objective(exact, X, y), *reached)
    results = {
        name: (runs[:, 0], runs[:, 1] / lowest - 1) for name, runs in found.items()
    }
    print(f"{N_ROWS:,} rows, {y.sum():,} positive. CPU seconds until the objective is")
    print(f"{'within':36}" + "".join(f"{100 * target:>9g} %" for target in TARGETS))
    for name, runs in results.items():
        times = [seconds_to(target, *runs) for target in TARGETS]
        cells = (f"{'--' if t is None else format(t, '.2f'):>11}" for t in times)
        print(f"{name:36}{''.join(cells)}")
    print("of the optimum. Picture: demo.png")
    draw(results, colors)


if __name__ == "__main__":
    main()
