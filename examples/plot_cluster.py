"""
The same optimum on a cluster
=============================

Rows in blocks on the workers of a dask cluster, here one inside this process; with
``Client("scheduler:8786")`` nothing else would change. The fit ends where that on one
machine does, and what is sent for a pass does not depend on the number of rows.
"""

import pickle

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client
from matplotlib.ticker import MaxNLocator

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd.dask import DaskAWSGDClassifier
from sklearn_awsgd.partitions import Partition, fit_partitions

BLUE, ORANGE = "#0072b2", "#d55e00"
SETTINGS = {"alpha": 1e-5, "tol": 1e-8, "random_state": 0}


def make_rows(n_rows, n_columns=20):
    """Return rows and labels, 2 % of them positive."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    score = 2 * X[:, 0] - X[:, 1] + rng.logistic(size=n_rows)
    return X, (score > np.quantile(score, 0.98)).astype(int)


# %%
# Two workers, eight blocks. Predictions are lazy, the fitted model is an ordinary one.

X, y = make_rows(50_000)
local = AWSGDClassifier(**SETTINGS).fit(X, y)
with Client(
    processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"
) as client:
    blocks = da.from_array(X, chunks=(6_250, -1))
    labels = da.from_array(y, chunks=6_250)
    model = DaskAWSGDClassifier(**SETTINGS).fit(blocks, labels)
    print(model.predict_proba(blocks))
    print(f"accuracy {model.score(blocks, labels):.4f}")
plain = model.to_local()
print(
    type(plain).__name__, "differs by", f"{np.abs(plain.coef_ - local.coef_).max():.1e}"
)

# %%
# What is sent: the same functions, with a ``run`` that counts the bytes.


def bytes_of_rounds(n_rows):
    """Return the bytes that go to and come from a block, for each round of a fit."""
    X, y = make_rows(n_rows)
    parts = [Partition(X[i::8], y[i::8], number=i) for i in range(8)]
    sent = {}

    def run(function, *arguments):
        results = [function(part, *arguments) for part in parts]
        sizes = [len(pickle.dumps(result)) for result in results]
        sent[function.__name__] = len(pickle.dumps(arguments)), max(sizes)
        return results

    fit_partitions(AWSGDClassifier(**SETTINGS), run)
    return sent


sizes = [100_000, 1_000_000]
sent = [bytes_of_rounds(n_rows) for n_rows in sizes]

# %%
# Both fits, and the messages.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
best = min(fitted.history_["objective"][-1] for fitted in (local, plain))
for fitted, color, name in (
    (local, BLUE, "one machine"),
    (plain, ORANGE, "two workers, eight blocks"),
):
    exact = fitted.history_["phase"] == "exact"
    gap = fitted.history_["objective"][exact] / best - 1
    passes = np.arange(1, len(gap) + 1)
    left.semilogy(passes, np.maximum(gap, 1e-12), ".-", color=color, label=name)
left.xaxis.set_major_locator(MaxNLocator(integer=True))
left.set(xlabel="exact passes", ylabel="relative suboptimality")
left.set_title("The same optimum ...")
left.legend()
names = [name for name in sent[0] if name in sent[1]]
place = np.arange(len(names))
for n_rows, found, color, shift in zip(
    sizes, sent, (BLUE, ORANGE), (-0.2, 0.2), strict=True
):
    right.barh(
        place + shift,
        [sum(found[name]) for name in names],
        height=0.4,
        color=color,
        label=f"{n_rows:,} rows",
    )
right.set(xscale="log", xlabel="bytes to and from a block")
right.set_yticks(place, names)
right.invert_yaxis()
right.set_title("... from messages of the same size")
right.legend(loc="lower right")
plt.show()

# %%
# Distances below 1e-12 are drawn there. The cluster's first pass is ahead, because it
# begins with a model of rows that the blocks have drawn. These are the largest message,
# sent once; an exact pass sends coefficients, and gets sums back.
