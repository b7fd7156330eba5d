"""
Which rows does the sampler draw, and why?
==========================================

The digits that come with scikit-learn; the model has to find the eights, most of which
were removed. Plain SGD draws every digit alike. The level sampler learns which of them
still move the model. Here it runs with plain steps, so that all there is to see is
sampling, and every draw of every row is counted.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from sklearn_awsgd import AWSGDClassifier

DIGIT, KEPT = 8, 0.3
N_PASSES = 30
BLUE, ORANGE = "#0072b2", "#d55e00"

# %%
# The digits, most eights left out, and what will be drawn.


def load_data():
    """Return images and labels, 1 for an eight; most eights are left out."""
    X, digits = load_digits(return_X_y=True)
    y = (digits == DIGIT).astype(int)
    kept = (y == 0) | (np.random.RandomState(0).rand(len(y)) < KEPT)
    return X[kept] / 16, y[kept], digits[kept]


def rare_probability(history):
    """Return draws and the probability to draw the rare class, from the history."""
    draws = np.unique(history["draws"])
    rare = history["group"] == 1
    place = np.searchsorted(draws, history["draws"][rare])
    probability = np.bincount(place, history["probability"][rare], len(draws))
    return draws, probability


def plot_share(axes, clf, y):
    """Draw how often the rare class is drawn, over time."""
    draws, probability = rare_probability(clf.sampling_history_)
    axes.plot(draws / len(y), probability, color=ORANGE, marker=".", ms=4)
    axes.axhline(y.mean(), color="#555555", ls="--")
    axes.text(N_PASSES, y.mean() + 0.01, "share in the data", ha="right", va="bottom")
    axes.set(xscale="log", ylim=(0, None), xlabel="passes")
    axes.set_ylabel("probability to draw an eight")
    axes.set_title("The rare class is drawn more often ...")


def plot_rows(axes, clf, X, y, counts):
    """Draw how often each row was drawn, against how wrong the model is about it."""
    wrong = np.abs(y - clf.predict_proba(X)[:, 1])
    for value, color, name in ((0, BLUE, "another digit"), (1, ORANGE, "an eight")):
        rows = y == value
        axes.scatter(
            wrong[rows], counts[rows], s=9, color=color, alpha=0.6, label=name, lw=0
        )
    axes.axhline(N_PASSES, color="#555555", ls="--")
    axes.text(1.3e-6, N_PASSES * 1.1, "plain SGD", va="bottom")
    axes.set(xscale="log", yscale="log", xlim=(1e-6, 1.5))
    axes.set_xlabel("|label - probability| of the row in the end")
    axes.set_ylabel(f"draws in {N_PASSES} passes")
    axes.set_title("... but what counts is the row")
    axes.legend(frameon=False, loc="upper left", markerscale=2)


def plot_images(figure, X, digits, counts):
    """Draw the eights and the other digits that were drawn most often."""
    order = np.argsort(-counts)
    eights = order[digits[order] == DIGIT][:6]
    others = order[digits[order] != DIGIT][:6]
    figure.suptitle("Drawn most often, with counts")
    cells = figure.subplots(4, 3).ravel()
    for axes, row in zip(cells, [*eights, *others], strict=True):
        axes.imshow(X[row].reshape(8, 8), cmap="gray_r")
        color = ORANGE if digits[row] == DIGIT else BLUE
        axes.set_title(f"{digits[row]}: {counts[row]}", size=9, color=color, pad=2)
        axes.set(xticks=[], yticks=[])


# %%
# Fit, and count every draw of every row.

X, y, digits = load_data()
clf = AWSGDClassifier(
    sampler="level",
    learning_rate="adagrad",
    max_iter=N_PASSES,
    tol=None,
    count_draws=True,
    random_state=0,
).fit(X, y)
counts = clf.draw_counts_[0]
eights = counts[y == 1].sum() / counts.sum()
order = np.sort(counts)[::-1]
half = np.searchsorted(np.cumsum(order), counts.sum() / 2) + 1
print(f"Eights: {y.mean():.1%} of the rows, {eights:.1%} of the draws.")
print(f"Half of the draws went to {half} of the {len(y)} rows.")
print(f"Noise of plain draws over ours: {clf.variance_gain_[0]:.1f}.")

# %%
figure = plt.figure(figsize=(13, 4.4), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[3, 1])
over_time, by_row = left.subplots(1, 2)
plot_share(over_time, clf, y)
plot_rows(by_row, clf, X, y, counts)
plot_images(right, X, digits, counts)
plt.show()

# %%
# A row is drawn about as often as the model is wrong about it. Eights are drawn often
# because most of them are hard to tell; another digit that looks like an eight is drawn
# often too, and easy rows hardly ever.
