"""
Does the learned sampling follow a stream whose class balance drifts?
=====================================================================

A stream of rows in chunks, seen once each by ``partial_fit``. The positive class falls
from a fifth of the rows to one in a hundred and comes back. Nothing tells the model so.
The label sampler watches the gradients of both classes, and its probability to draw a
positive row has to follow by itself.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd.samplers import StrataSampler

N_CHUNKS, CHUNK, N_FEATURES = 160, 500, 20
HIGH, LOW = 0.2, 0.01
SEEDS = range(5)
STYLES = {0.0003: "#56b4e9", 0.001: "#0072b2", 0.01: "#d55e00"}


def shares():
    """Return the share of positive rows in each chunk: high, low, high again."""
    steps = np.interp(np.linspace(0, 4, N_CHUNKS), [1, 1.25, 2.5, 2.75], [0, 1, 1, 0])
    return HIGH ** (1 - steps) * LOW**steps


def make_chunk(share, rng):
    """Return rows of two overlapping clouds."""
    y = (rng.random(CHUNK) < share).astype(int)
    X = rng.normal(size=(CHUNK, N_FEATURES))
    X[:, :5] += 0.9 * y[:, None]
    return X, y


def follow(forgetting, seed):
    """Return what the sampler learned after each chunk, and the gain in noise."""
    rng = np.random.default_rng(seed)
    clf = AWSGDClassifier(
        sampler=StrataSampler(forgetting=forgetting), random_state=seed
    )
    learned, best, gain = [], [], []
    for share in shares():
        X, y = make_chunk(share, rng)
        clf.partial_fit(X, y, classes=[0, 1])
        learned.append(clf.sampler_.probabilities_[0, 1])
        gain.append(clf.variance_gain_[0])
        # What the best probability would be for the model as it is now.
        X, y = make_chunk(0.5, rng)
        wrong = expit(clf.decision_function(X)) - y
        norm2 = wrong**2 * (np.sum(X**2, axis=1) + 1)
        mass = np.array([1 - share, share])
        root = mass * [np.sqrt(norm2[y == k].mean()) for k in (0, 1)]
        best.append(root[1] / root.sum())
    return learned, best, gain


# %%
# Three memories of the sampler, five streams each.

seen = np.arange(1, N_CHUNKS + 1) * CHUNK
rare = shares() < (HIGH + LOW) / 2
found = {
    forgetting: np.mean([follow(forgetting, seed) for seed in SEEDS], axis=0)
    for forgetting in STYLES
}
for forgetting, (_, _, gain) in found.items():
    print(
        f"forgetting={forgetting:<7g} plain noise over ours: "
        f"{gain[rare].mean():.1f} while the class is rare, "
        f"{gain[~rare].mean():.1f} otherwise"
    )

# %%
figure, (top, bottom) = plt.subplots(
    2, 1, figsize=(8, 6.8), sharex=True, layout="constrained", height_ratios=[3, 2]
)
for forgetting, color in STYLES.items():
    learned, best, gain = found[forgetting]
    top.plot(seen, learned, color=color, label=f"drawn, forgetting={forgetting:g}")
    bottom.plot(seen, gain, color=color)
top.plot(seen, best, "k", lw=0.8, label="best for the model of the moment")
top.plot(seen, shares(), color="#777777", ls="--", label="share in the stream")
top.set(yscale="log", ylabel="probability of a positive row")
figure.legend(loc="outside lower center", ncols=2, frameon=False)
top.set_title("A class becomes rare and comes back; mean of five streams")
bottom.axhline(1, color="#777777", ls="--")
bottom.set(xlabel="rows seen", ylabel="noise of plain draws over ours")
plt.show()

# %%
# The probability falls and rises with the class, but by far less than its share, since
# a class that gets rare is also predicted worse. The gain is there when it is needed. A
# forgetting above the default 0.001 follows a fast drift more closely.
