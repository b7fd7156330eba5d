"""
What does it bring to know which rows are slow?
===============================================

Half of the rows are at hand, the other half are a thousand times slower to fetch. Three
samplers take the same number of draws: shuffled passes, the level sampler, and the
level sampler that knows the cost. The left panel counts draws, the right one seconds of
(simulated) access. Per draw the time-aware sampler is behind, as it sees slow rows
seldom and with large weights. Per second it has something to show long before the
others have made a pass. How much of that lead is left in the end depends: where all
that remains is noise, no allocation gains more than a factor of two.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd.samplers import LevelSampler, UniformSampler

ALPHA, FACTOR = 1e-3, 1000.0
SAMPLERS = {
    "shuffled passes": UniformSampler(),
    "level": LevelSampler(),
    "level, time-aware": LevelSampler(time_aware=True),
}
COLORS = ("0.5", "#0072b2", "#d55e00")
PASSES = (1, 2, 4, 8, 16)


def load_data(n=6000):
    """Return rows, classes and the seconds that each row costs."""
    X, y = make_classification(
        n, 20, n_informative=10, weights=[0.9], flip_y=0.02, random_state=0
    )
    slow = np.random.default_rng(0).random(n) < 0.5
    return X, y, 1e-5 * np.where(slow, FACTOR, 1.0)


def objective(X, y, w, b):
    """Return the mean logistic loss and the penalty."""
    margins = np.where(y == 1, 1, -1) * (X @ w + b)
    return np.logaddexp(0, -margins).mean() + ALPHA / 2 * w @ w


def train(sampler, n_passes, seed):
    """Return what is left of the objective, and the seconds of access."""
    clf = AWSGDClassifier(
        alpha=ALPHA,
        sampler=sampler,
        learning_rate="adagrad",
        max_iter=n_passes,
        tol=None,
        random_state=seed,
    ).fit(X, y, access_cost=costs)
    value = objective(X, y, clf.coef_[0], clf.intercept_[0])
    return value / best - 1, clf.history_["simulated_seconds"][-1]


# %%
# Each sampler takes 1 to 16 passes' worth of draws, five times.

X, y, costs = load_data()
exact = LogisticRegression(C=1 / (ALPHA * len(y)), tol=1e-8, max_iter=1000).fit(X, y)
best = objective(X, y, exact.coef_[0], exact.intercept_[0])
figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
for (name, sampler), color in zip(SAMPLERS.items(), COLORS, strict=True):
    runs = [[train(sampler, n, seed) for seed in range(5)] for n in PASSES]
    left, seconds = np.mean(runs, axis=1).T
    draws = len(y) * np.array(PASSES)
    print(f"{name:20s} {seconds[-1]:6.1f} s, {draws[-1]} draws: {left[-1]:.4f} left")
    for panel, time in zip(panels, (draws, seconds), strict=True):
        panel.loglog(time, left, marker="o", color=color, label=name)
panels[0].set(xlabel="draws", ylabel="objective over the optimum, less 1")
panels[1].set(xlabel="seconds of access")
panels[0].legend()
figure.tight_layout()
plt.show()
