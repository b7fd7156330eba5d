"""
How soon are classifiers of rare image labels good, and what do they draw?
==========================================================================

As Figures 1 and 2 of the paper: mean average precision on test data against passes and
against CPU seconds, and the learned probability to draw a positive row of each class
over time. Contestants are

- SGD with uniform draws (shuffled passes),
- balanced importance sampling: both classes of each problem alike, for ever,
- the paper's AW-SGD, which starts there and learns,
- our level sampler,
- AWSGDClassifier at its defaults.

All but the last have the step sizes of the paper, AdaGrad from 0.1. The data are
scikit-learn's digits; where the environment variable SKLEARN_AWSGD_DATA names a folder
with ``coco_effnetlite0.npz``, they are the 20 Pascal VOC labels of COCO photographs.
"""

import os
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import average_precision_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd.samplers import StrataSampler

SEEDS = range(3)
PASSES = (1, 2, 3, 4, 6)
PIECES = 8  # Records in the first pass.
PAPER = {"learning_rate": "adagrad", "eta0": 0.1}
BALANCED = StrataSampler(update="sgd", eta0=0, mixing=0, start="balanced")
LEARNED = StrataSampler(
    update="adagrad", eta0=0.1, normalize=False, mixing=0, start="balanced"
)
# Name, parameters, whether it can be cut into pieces of a pass, color.
CONTESTANTS = {
    "uniform SGD": ({**PAPER, "sampler": "uniform"}, True, "#999999"),
    "balanced": ({**PAPER, "sampler": BALANCED}, True, "#56b4e9"),
    "AW-SGD of the paper": ({**PAPER, "sampler": LEARNED}, True, "#0072b2"),
    "level sampler, same steps": ({**PAPER, "sampler": "level"}, False, "#009e73"),
    "AWSGDClassifier()": ({}, False, "#d55e00"),
}


def load_data():
    """Return the split data with indicator targets, names of the labels and a title."""
    path = Path(os.environ.get("SKLEARN_AWSGD_DATA", ""), "coco_effnetlite0.npz")
    if not path.is_file():
        X, y = load_digits(return_X_y=True)
        Y = (y[:, None] == np.arange(10)).astype(int)
        parts = train_test_split(X / 16, Y, test_size=0.5, random_state=0, stratify=y)
        return (
            parts,
            [str(digit) for digit in range(10)],
            "digits, one against the rest",
        )
    with np.load(path, allow_pickle=False) as z:
        X, columns, test = z["X"].astype(np.float32), z["voc20_columns"], z["test"]
        Y, names = z["Y"][:, columns].astype(int), [str(n) for n in z["voc20_names"]]
    X, test = normalize(X), test.astype(bool)
    parts = X[~test], X[test], Y[~test], Y[test]
    return parts, names, "20 VOC labels of COCO photographs"


def precision(model, X_test, Y_test):
    """Return the mean average precision over the labels."""
    return average_precision_score(Y_test, model.decision_function(X_test))


def run_in_pieces(parameters, seed, data):
    """Return passes, seconds, precisions and the model of plain steps, in chunks."""
    X, X_test, Y, Y_test = data
    model = AWSGDClassifier(random_state=seed, **parameters)
    rng = np.random.default_rng(seed)
    passes, seconds, scores, spent = [], [], [], 0.0
    for n_pass in range(PASSES[-1]):
        pieces = np.array_split(rng.permutation(len(X)), PIECES if n_pass == 0 else 1)
        for k, rows in enumerate(pieces):
            chunk = X[rows], Y[rows]
            started = time.process_time()
            model.partial_fit(*chunk)
            spent += time.process_time() - started
            passes.append(n_pass + (k + 1) / len(pieces))
            seconds.append(spent)
            scores.append(precision(model, X_test, Y_test))
    return passes, seconds, scores, model


def run_whole(parameters, seed, data):
    """Return the same for fits of growing length, and the last model."""
    X, X_test, Y, Y_test = data
    passes, seconds, scores = [], [], []
    for max_iter in PASSES:
        model = AWSGDClassifier(
            max_iter=max_iter, tol=1e-6, random_state=seed, **parameters
        )
        started = time.process_time()
        model.fit(X, Y)
        seconds.append(time.process_time() - started)
        passes.append((model.t_ - 1) / len(X))
        scores.append(precision(model, X_test, Y_test))
    return passes, seconds, scores, model


def plot_probabilities(axes, history, Y, names):
    """Draw the probability of a positive row of each label over time."""
    positive = history["stratum"] == 1
    colors = plt.get_cmap("tab20")(np.arange(len(names)))
    ends = []
    for k, color in enumerate(colors):
        rows = positive & (history["problem"] == k)
        probability = history["probability"][rows]
        axes.plot(history["draws"][rows] / len(Y), probability, color=color, lw=1.2)
        ends.append(probability[-1])
    axes.set(xlabel="passes", ylabel="probability to draw a positive row")
    axes.set_title("What AW-SGD of the paper learned\n(share of the label in the data)")
    # Names at the right, from the top, moved down where they would overlap.
    low, high = axes.get_ylim()
    place = np.inf
    for n_left, k in zip(range(len(names), 0, -1), np.argsort(ends)[::-1], strict=True):
        gap = (high - low) / 24
        place = max(min(ends[k], place - gap), low + gap * n_left)
        axes.text(
            PASSES[-1] * 1.06,
            place,
            f"{names[k]} ({Y[:, k].mean():.1%})",
            color=colors[k],
            size=8,
            va="center",
        )


# %%
# All contestants, three seeds each.

warnings.simplefilter("ignore", ConvergenceWarning)
data, names, title = load_data()
found = {}
print(f"{title}: test mean average precision, mean of {len(SEEDS)} seeds")
for name, (parameters, in_pieces, _) in CONTESTANTS.items():
    run = run_in_pieces if in_pieces else run_whole
    runs = [run(parameters, seed, data) for seed in SEEDS]
    passes, seconds = (np.mean([run[k] for run in runs], axis=0) for k in (0, 1))
    scores = np.array([run[2] for run in runs])
    found[name] = passes, seconds, scores, runs[0][3]
    mean = scores.mean(axis=0)
    second, third = np.interp([2, 3], passes, mean)
    print(
        f"  {name:26} {second:.4f} after 2 passes, {third:.4f} after 3, "
        f"{mean[-1]:.4f} at the end, {seconds[-1]:.2f} s"
    )

# %%
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(17, 5), layout="constrained"
)
middle.sharey(left)
for name, (passes, seconds, scores, _) in found.items():
    color = CONTESTANTS[name][2]
    for axes, x in ((left, passes), (middle, seconds)):
        mean, low, high = (f(scores, axis=0) for f in (np.mean, np.min, np.max))
        axes.plot(x, mean, color=color, marker="o", ms=3.5, label=name)
        axes.fill_between(x, low, high, color=color, alpha=0.15, lw=0)
of_paper = found["AW-SGD of the paper"][3]
plot_probabilities(right, of_paper.sampling_history_, data[2], names)
left.set(xscale="log", xlabel="passes", ylabel="test mean average precision")
left.set_xticks([0.125, 0.25, 0.5, 1, 2, 4], ["1/8", "1/4", "1/2", 1, 2, 4])
left.minorticks_off()
left.set_title(f"{title}:\nmean and range of {len(SEEDS)} seeds")
left.legend(frameon=False, loc="lower right")
middle.set(xscale="log", xlabel="CPU seconds, all labels")
middle.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
middle.xaxis.set_major_formatter("{x:g}")
middle.minorticks_off()
middle.set_title("The same against time")
for axes in (left, middle):
    axes.grid(alpha=0.25)
plt.show()

# %%
# With the same steps, what is drawn matters most where labels are rare, and in the
# first passes. The paper's sampler starts from balanced classes and draws fewer
# positives as they are learned, to about the same precision. The default, which goes on
# with exact passes, is ahead of all from the second pass on.
