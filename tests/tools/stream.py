"""A process that learns from a stream and dumps its models as it goes.

    python tests/tools/stream.py FOLDER N_CHUNKS

It goes on from the last dump in the folder. What it does next stands on its standard
output, so that whoever reads it can end the process at the worst moment.
"""

import os
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd.samplers import StrataSampler

ROWS, COLUMNS = 3000, 8


def chunk(t):
    """Return rows, labels and targets of one chunk: the same in every process."""
    rng = np.random.default_rng(t)
    X = rng.standard_normal((ROWS, COLUMNS))
    score = X @ np.linspace(-1, 1, COLUMNS) + rng.logistic(size=ROWS)
    return X, (score > 2).astype(int), score


def deviation(X, y):
    """A loss of rows that needs no model."""
    return np.abs(y - X[:, 0])


def fresh():
    """Return the models before the first chunk."""
    return {
        "classifier": AWSGDClassifier(random_state=0),
        "average": AWSGDClassifier("hinge", average=True, random_state=0),
        "softmax": AWSGDClassifier("multinomial", random_state=0),
        "regressor": AWSGDRegressor(learning_rate="adadelta", random_state=0),
        "factorization": AWSGDMatrixFactorization(3, random_state=0),
        "importance": MinVarianceImportanceEstimator(
            None, deviation, max_evaluations=200, rtol=None, random_state=0
        ),
        "paper": MinVarianceImportanceEstimator(
            None,
            deviation,
            sampler=StrataSampler(update="sgd"),
            max_evaluations=200,
            rtol=None,
            random_state=0,
        ),
    }


def learn(models, t):
    """Let all models learn from a chunk."""
    X, label, score = chunk(t)
    data = {
        "classifier": (X, label),
        "average": (X, label),
        "softmax": (X, np.digitize(score, [-1, 1])),
        "regressor": (X, score),
        "factorization": (X[:100],),
        "importance": (X, label),
        "paper": (X, label),
    }
    for name, model in models.items():
        first = {}
        if t == 0 and isinstance(model, AWSGDClassifier):
            first = {"classes": np.arange(3 if name == "softmax" else 2)}
        model.partial_fit(*data[name], **first)


def dump(folder, models, t):
    """Write the models so that a reader finds the old file or the new one."""
    partial = folder / "models.partial"
    with partial.open("wb") as file:
        pickle.dump((t, models), file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / "models.pkl")


def load(folder):
    """Return the next chunk and the models of the last dump."""
    path = folder / "models.pkl"
    if not path.exists():
        return 0, fresh()
    with path.open("rb") as file:
        return pickle.load(file)


def main():
    """Learn from all chunks that are left."""
    folder, n_chunks = Path(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")
    first, models = load(folder)
    for t in range(first, n_chunks):
        print(f"learn {t}", flush=True)
        learn(models, t)
        print(f"dump {t}", flush=True)
        dump(folder, models, t + 1)
        print(f"done {t}", flush=True)


if __name__ == "__main__":
    # Under its own name, so that what is pickled here can be found from elsewhere.
    import stream

    stream.main()
