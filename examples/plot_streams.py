"""
How close does partial_fit come to a model that is refitted on all rows so far?
===============================================================================

A stream of rows in chunks, with a rare class, whose model changes half-way. Every chunk
is predicted before it is learned, by ``AWSGDClassifier`` and ``SGDClassifier`` at their
defaults, and by a logistic regression that is fitted to all rows so far, before every
chunk.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, SGDClassifier

from sklearn_awsgd import AWSGDClassifier

N_CHUNKS, CHUNK, N_FEATURES, SMOOTHING = 120, 250, 20, 8
COLORS = {
    "AWSGDClassifier": "#d55e00",
    "SGDClassifier": "#56b4e9",
    "refit on all rows so far": "#0072b2",
    "true probabilities": "black",
}


def make_stream(seed=0):
    """Return rows, labels and their true probabilities."""
    rng = np.random.default_rng(seed)
    n = N_CHUNKS * CHUNK
    X = rng.standard_normal((n, N_FEATURES))
    w = 0.6 * rng.standard_normal(N_FEATURES)
    later = np.where(np.arange(N_FEATURES) < N_FEATURES // 2, -w, w)
    scores = np.where(np.arange(n) < n // 2, X @ w, X @ later)
    p = expit(scores - 3)
    return X, (rng.random(n) < p).astype(int), p


def log_losses(p, y):
    """Return the log-loss of each row."""
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return -np.log(np.where(y == 1, p, 1 - p))


def follow(X, y):
    """Return the mean loss of each chunk before it was learned, of each learner."""
    learners = {
        "AWSGDClassifier": AWSGDClassifier(random_state=0),
        "SGDClassifier": SGDClassifier(loss="log_loss", random_state=0),
    }
    found = {name: [] for name in [*learners, "refit on all rows so far"]}
    for start in range(0, len(y), CHUNK):
        chunk = slice(start, start + CHUNK)
        for name, learner in learners.items():
            if start:
                p = learner.predict_proba(X[chunk])[:, 1]
                found[name].append(log_losses(p, y[chunk]).mean())
            learner.partial_fit(X[chunk], y[chunk], classes=[0, 1])
        if start:
            refit = LogisticRegression(C=1 / (1e-4 * start)).fit(X[:start], y[:start])
            p = refit.predict_proba(X[chunk])[:, 1]
            found["refit on all rows so far"].append(log_losses(p, y[chunk]).mean())
    return {name: np.array(losses) for name, losses in found.items()}


def smooth(values):
    """Return the mean over the last chunks, fewer at the beginning."""
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - SMOOTHING, 0)
    return (sums[ends] - sums[begins]) / (ends - begins)


# %%
# Losses before the change, and well after it.

X, y, p = make_stream()
truth = log_losses(p, y).reshape(N_CHUNKS, CHUNK).mean(axis=1)[1:]
found = {**follow(X, y), "true probabilities": truth}
rows = np.arange(1, N_CHUNKS) * CHUNK
half = len(rows) // 2
for name, losses in found.items():
    before, after = losses[half // 2 : half].mean(), losses[-half // 2 :].mean()
    print(f"{name:26s} before the change {before:.3f}, well after it {after:.3f}")

# %%
figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
for name, losses in found.items():
    axes.plot(rows, smooth(losses), color=COLORS[name], label=name)
axes.axvline(len(y) // 2, color="#777777", ls="--", lw=0.8)
axes.set(
    yscale="log",
    xlabel="rows seen",
    ylabel=f"log-loss of new rows, mean of {SMOOTHING} chunks",
    title="A stream whose model changes half-way",
)
ticks = [0.25, 0.5, 1, 2]
axes.set_yticks(ticks, map(str, ticks))
axes.minorticks_off()
axes.legend(frameon=False, fontsize=9)
plt.show()

# %%
# Before the change ``partial_fit`` is as good as the refit. After it the refit keeps
# averaging two models, and ``partial_fit`` forgets the first.
