"""
How much sooner does SGD get there when it learns which rows to draw?
=====================================================================

The digits that come with scikit-learn, one of them made rare, and the same objective
for all: logistic regression with an l2 penalty. SGDClassifier, at its defaults and with
its best step sizes, beside AWSGDClassifier at its defaults. Two more settings of
AWSGDClassifier show what the sampling alone does: plain AW-SGD with its best step
sizes, once with uniform draws and once with learned probabilities of the two classes.
Prints a table and writes the picture demo_digits.png. Run it by ``make demo``.

The penalty is alpha=1e-3. With 1e-4 the exact solution overfits these few digits: it is
still reached soonest by the defaults, but runs that stop short of it then rank held-out
digits better: set ALPHA to see it.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
import itertools
import time
import warnings

import matplotlib
import numpy as np
from scipy.special import expit
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split

from sklearn_awsgd import AWSGDClassifier

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ALPHA = 1e-3
DIGIT, KEEP = 8, 0.5
PASSES = (1, 2, 3, 5, 8, 12, 20, 30)
SEEDS = range(5)
# Where the picture ends: nobody needs the objective more exactly.
SOLVED = 1e-6


def load_data():
    """Return training and test parts of the digits, an eight being the rare class."""
    X, y = load_digits(return_X_y=True)
    X, y = X / 16.0, (y == DIGIT).astype(int)
    kept = (y == 0) | (np.random.RandomState(0).rand(len(y)) < KEEP)
    return train_test_split(
        X[kept], y[kept], test_size=0.5, stratify=y[kept], random_state=0
    )


def objective(model, X, y):
    """Return the mean logistic loss plus the l2 penalty."""
    z = X @ model.coef_[0] + model.intercept_[0]
    return -np.log(expit((2 * y - 1) * z)).mean() + ALPHA / 2 * (model.coef_**2).sum()


def sgd(**parameters):
    """Return a maker of SGDClassifier."""
    return lambda **kw: SGDClassifier(loss="log_loss", alpha=ALPHA, **parameters, **kw)


def awsgd(**parameters):
    """Return a maker of AWSGDClassifier."""
    return lambda **kw: AWSGDClassifier(alpha=ALPHA, **parameters, **kw)


def grid(*rates, **fixed):
    """Return the step sizes to choose from, for the learning rates with an eta0."""
    steps = itertools.product(rates, (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0))
    steps = [*steps, ("optimal", 0.01)]
    return [
        {"learning_rate": rate, "eta0": eta0, "average": average, **fixed}
        for (rate, eta0), average in itertools.product(steps, (False, True))
    ]


def tune(maker, candidates, X, y):
    """Return the parameters with the lowest objective in the end."""

    def reached(parameters):
        models = (
            maker(**parameters)(max_iter=PASSES[-1], tol=None, random_state=seed)
            for seed in SEEDS
        )
        return np.median([objective(model.fit(X, y), X, y) for model in models])

    return min(candidates, key=reached)


def race(maker, data):
    """Fit for growing numbers of passes and for every seed.

    Every fit starts from scratch: all contestants are treated alike, whatever they do
    between passes. Returns objectives and numbers of rows visited, one column for each
    number of passes, and average precision and CPU seconds of the longest fits.
    """
    X, X_test, y, y_test = data
    objectives, visited = np.empty((2, len(SEEDS), len(PASSES)))
    precisions, seconds = [], []
    for seed, (k, n_passes) in itertools.product(SEEDS, enumerate(PASSES)):
        model = maker(max_iter=n_passes, tol=None, random_state=seed)
        started = time.process_time()
        model.fit(X, y)
        elapsed = time.process_time() - started
        objectives[seed, k] = objective(model, X, y)
        visited[seed, k] = model.t_ - 1
        if n_passes == PASSES[-1]:
            scores = model.decision_function(X_test)
            precisions.append(average_precision_score(y_test, scores))
            seconds.append(elapsed)
    return objectives, visited, np.median(precisions), np.median(seconds)


def draw(results, lowest, label_model, share):
    """Draw objective against draws, and what the label sampler drew."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), width_ratios=[3, 2])
    styles = {
        "SGDClassifier, default": ("#bbbbbb", "-", "v"),
        "SGDClassifier, tuned": ("#333333", "--", "s"),
        "AWSGDClassifier, uniform, tuned": ("#56b4e9", "-", "^"),
        "AWSGDClassifier, label, tuned": ("#0072b2", "-", "D"),
        "AWSGDClassifier, default": ("#d55e00", "-", "o"),
    }
    for name, (objectives, visited, _, _) in results.items():
        color, line, marker = styles[name]
        excess = np.maximum(objectives / lowest - 1, SOLVED)
        draws = np.median(visited, axis=0)
        low, middle, high = np.quantile(excess, (0, 0.5, 1), axis=0)
        # Wide: tuning may end with the defaults, and lie on them.
        width = 4 if name == "SGDClassifier, default" else 1.5
        left.plot(
            draws, middle, line, color=color, lw=width, marker=marker, ms=4, label=name
        )
        left.fill_between(draws, low, high, color=color, alpha=0.1, lw=0)
    left.axhline(SOLVED, color="black", lw=0.6)
    left.text(left.get_xlim()[1], SOLVED, "solved ", ha="right", va="bottom")
    left.set(xscale="log", yscale="log", xlabel="draws (rows visited)")
    left.set_ylabel("objective above the optimum, relative")
    left.set_title("Training: median and range of five seeds")
    left.grid(alpha=0.25)
    left.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 0.06))

    history = label_model.sampling_history_
    rare = history["stratum"] == 1
    right.plot(
        history["draws"][rare],
        history["probability"][rare],
        color="#0072b2",
        marker=".",
    )
    right.axhline(share, color="#555555", linestyle="--")
    right.text(
        history["draws"].max(), share, "share in the data ", ha="right", va="bottom"
    )
    right.set(xscale="log", xlabel="draws", ylim=(0, None))
    right.set_ylabel("probability of the rare class")
    right.set_title("What the label sampler learned to draw")
    right.grid(alpha=0.25)
    figure.tight_layout()
    figure.savefig("demo_digits.png", dpi=130)


def main():
    """Run the race, print the table, write the picture."""
    data = X, _, y, _ = load_data()
    best = LogisticRegression(C=1 / (ALPHA * len(y)), tol=1e-10, max_iter=100_000)
    lowest = objective(best.fit(X, y), X, y)
    tuned = tune(sgd, grid("constant", "invscaling", "adaptive"), X, y)
    uniform, label = (
        tune(awsgd, grid("constant", "invscaling", "adagrad", sampler=sampler), X, y)
        for sampler in ("uniform", "label")
    )
    makers = {
        "SGDClassifier, default": sgd(),
        "SGDClassifier, tuned": sgd(**tuned),
        "AWSGDClassifier, uniform, tuned": awsgd(**uniform),
        "AWSGDClassifier, label, tuned": awsgd(**label),
        "AWSGDClassifier, default": awsgd(),
    }
    print(
        f"{len(y)} digits of 8 x 8 pixels, {y.sum()} of them an {DIGIT}: "
        f"find these.\nObjective of the exact solution: {lowest:.6f}.\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = {name: race(maker, data) for name, maker in makers.items()}
        label_model = awsgd(**label)(max_iter=PASSES[-1], tol=None, random_state=0)
        label_model.fit(X, y)
    columns = ("objective", "above optimum", "average precision", "draws", "CPU ms")
    title = f"at most {PASSES[-1]} passes"
    print(f"{title:32}" + "".join(f"{column:>19}" for column in columns))
    for name, (objectives, visited, precision, seconds) in results.items():
        final, draws = np.median(objectives[:, -1]), np.median(visited[:, -1])
        print(
            f"{name:32}{final:19.6f}{max(final / lowest - 1, 0):19.1e}{precision:19.3f}"
            f"{draws:19.0f}{1000 * seconds:19.1f}"
        )
    print(
        "\nMedians of five seeds. Average precision is that of held-out digits. "
        "Tuning is not in the time.\nPicture: demo_digits.png"
    )
    draw(results, lowest, label_model, y.mean())


if __name__ == "__main__":
    main()
