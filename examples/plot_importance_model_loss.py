"""
How many predictions does it take to know the loss of a model?
==============================================================

A model that is slow or costs money has to be judged on a pool of 60,000 labelled rows,
of which 3 % are positive. The plain way is to score randomly chosen rows. Here the rows
are chosen by what has been learned about them:

- from the *labels*, since errors are more frequent among the positives;
- from a *cheap model*: the rows it finds hard are likely to be hard for the other one;
- from a *learned* guess: a regressor fitted to the rows scored so far.

No row is scored twice. Learning from the scored rows which ones to score next costs a
little bias, at most a fraction of the standard error. Which one gets to a small error
bar first?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from sklearn_awsgd import MinVarianceImportanceEstimator

X, y = make_classification(
    70_000,
    n_features=12,
    n_informative=8,
    weights=[0.97],
    flip_y=0.002,
    class_sep=0.8,
    random_state=0,
)
train, pool = slice(0, 10_000), slice(10_000, None)
expensive = HistGradientBoostingClassifier(random_state=0).fit(X[train], y[train])
cheap = LogisticRegression().fit(X[:2000], y[:2000])
truth = log_loss(y[pool], expensive.predict_proba(X[pool]))

# %%
# Four ways to spend 8,000 predictions
# ------------------------------------

contestants = {
    "uniform": {"sampler": "uniform"},
    "labels": {},
    "labels, cheap model": {"surrogate": cheap},
    "labels, learned": {"surrogate": "learned"},
}
fitted = {
    name: MinVarianceImportanceEstimator(
        expensive, "log_loss", max_evaluations=8000, rtol=None, random_state=1, **how
    ).fit(X[pool], y[pool])
    for name, how in contestants.items()
}
for name, result in fitted.items():
    low, high = result.confidence_interval_
    print(
        f"{name:20s} {result.estimate_:.4f} in [{low:.4f}, {high:.4f}] from "
        f"{result.n_evaluations_} rows, variance gain {result.variance_gain_:.1f}"
    )
print(f"{'all 60,000 rows':20s} {truth:.4f}")

# %%
# Error against cost
# ------------------

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for k, (name, result) in enumerate(fitted.items()):
    history = result.history_
    evaluations = history["evaluations"]
    seen = evaluations >= 300
    low, high = result.confidence_interval_
    left.errorbar(
        k,
        result.estimate_,
        [[result.estimate_ - low], [high - result.estimate_]],
        fmt="o",
        capsize=5,
        color=f"C{k}",
    )
    right.loglog(
        evaluations[seen],
        100 * history["std_error"][seen] / truth,
        color=f"C{k}",
        # Dashed, for it may lie on the curve of the labels.
        linestyle="--" if name == "labels, learned" else "-",
        label=name,
    )
left.axhline(truth, color="0.4", linestyle="--", label="loss over all 60,000 rows")
left.set_xticks(range(len(fitted)), [name.replace(", ", ",\n") for name in fitted])
left.set_xlim(-0.5, len(fitted) - 0.5)
left.set_ylabel("log-loss")
left.set_title("Estimate and 95 % interval, 8,000 predictions")
left.legend(loc="lower right")
ticks = np.array([300, 1000, 3000, 8000])
right.set_xticks(ticks, [f"{t:,}" for t in ticks])
right.minorticks_off()
percent = np.array([0.5, 1, 2, 5, 10, 20, 50])
right.set_yticks(percent, [f"{p:g} %" for p in percent])
right.set_xlabel("predictions of the expensive model")
right.set_ylabel("standard error, relative to the loss")
right.set_title("Error against cost")
right.legend()
plt.show()

# %%
# With the labels alone the error is several times smaller than that of a plain average
# of different rows. For most of the way, a cheap model that has seen 2,000 rows nearly
# halves it again. The lead over the plain average grows towards the end: rows are drawn
# without replacement, and once most rows of the few that vary are scored, little is
# left to chance. A guess that is learned on the way needs no second model, but on these
# data, where the labels say most, it is no better than them: its curve lies on theirs.
# A jump of a curve is a rare large loss that had not been seen before: that is what
# intervals have to allow for, and why they are longer above than below.
