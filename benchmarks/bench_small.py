"""Small data, as people grid-search them: the CPU time of one ``fit``.

Classifiers at their defaults on scikit-learn's own sets, standardised, and on made-up
ones of 150 to 2,000 rows, with the same penalty for both, ``C = 1 / (n alpha)``. Ours
are one-vs-rest ("log_loss") and softmax ("multinomial"), the peer is
``LogisticRegression()``, which is softmax from three classes on. Turns are interleaved,
and the least of each counts. What a fit is worth is in the columns "above": how far the
objective, one-vs-rest or softmax, is above the optimum. How many rows are drawn at
first was chosen while looking at digits and breast_cancer.

"paths" are searches for the strength of the penalty by cross-validation: ours as a loop
with ``warm_start``, as the user guide has it, against ``LogisticRegressionCV``, on the
same folds and strengths, with a fit to all rows at the end. Two larger sets are added.
"""

import _common  # isort: skip

import argparse
import time
import warnings

import numpy as np
from scipy.special import logsumexp
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
)
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from sklearn_awsgd import AWSGDClassifier

ALPHA = 1e-3
# Of scikit-learn, and rows of those that are made.
LOADED = {
    "iris": load_iris,
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "digits": load_digits,
}
MADE = (150, 500, 2000)
# Of the paths: sets of those above, larger ones, strengths and folds.
SEARCHED = ("iris", "breast_cancer", "digits", "made, 2000 rows")
ALPHAS = np.logspace(0, -5, 10)
FOLDS = StratifiedKFold(5)


def make_sets():
    """Return rows and labels of each set, by name."""
    sets = {}
    for name, load in LOADED.items():
        X, y = load(return_X_y=True)
        sets[name] = StandardScaler().fit_transform(X), y
    for n_rows in MADE:
        sets[f"made, {n_rows} rows"] = make_classification(n_rows, 20, random_state=0)
    return sets


def contestants(y):
    """Return estimators by name, ours first."""
    ours = {"one-vs-rest": AWSGDClassifier(alpha=ALPHA)}
    if len(np.unique(y)) > 2:
        ours["softmax"] = AWSGDClassifier(loss="multinomial", alpha=ALPHA)
    return ours | {"peer": LogisticRegression(C=1 / (ALPHA * len(y)))}


def objective(model, X, y):
    """Return softmax loss, or the log-losses of all problems, with their penalty."""
    W, b = model.coef_, model.intercept_
    Z = X @ W.T + b
    codes = np.searchsorted(model.classes_, y)
    penalty = ALPHA / 2 * (W**2).sum()
    if getattr(model, "loss", "multinomial") == "multinomial" and len(b) > 1:
        return np.mean(logsumexp(Z, axis=1) - Z[np.arange(len(Z)), codes]) + penalty
    signs = np.where(codes == 1, 1, -1)[:, None]
    if len(b) > 1:
        signs = np.where(codes[:, None] == np.arange(len(b)), 1, -1)
    return np.logaddexp(0, -signs * Z).mean(axis=0).sum() + penalty


def seconds_of(call):
    """Return the CPU time of a call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def optimum(model, X, y):
    """Return the objective that a model would reach without a tolerance."""
    if isinstance(model, LogisticRegression):
        best = LogisticRegression(C=model.C, tol=1e-12, max_iter=100_000)
    else:
        best = AWSGDClassifier(**model.get_params()).set_params(
            tol=1e-12, max_iter=10_000
        )
    return objective(best.fit(X, y), X, y)


def measure(name, X, y, n_turns):
    """Return the rows of a set: each of ours against the peer."""
    models = contestants(y)
    fits, predictions = ({key: [] for key in models} for _ in range(2))
    for _ in range(n_turns):
        for key, model in models.items():
            fits[key].append(seconds_of(lambda model=model: model.fit(X, y)))
            predictions[key].append(seconds_of(lambda model=model: model.predict(X)))
    above = {
        key: objective(m, X, y) / optimum(m, X, y) - 1 for key, m in models.items()
    }
    peer = models.pop("peer")
    return [
        {
            "set": name,
            "ours": key,
            "ms": 1e3 * min(fits[key]),
            f"{type(peer).__name__} ms": 1e3 * min(fits["peer"]),
            "fit": min(fits[key]) / min(fits["peer"]),
            "predict": min(predictions[key]) / min(predictions["peer"]),
            "above": float(max(above[key], 0.0)),
            "peer above": float(max(above["peer"], 0.0)),
        }
        for key in models
    ]


def make_searched():
    """Return rows and labels of the sets of the paths, by name."""
    sets = make_sets()
    larger = {
        "made, 20000 rows": make_classification(20_000, 50, random_state=0),
        "made, 10000 rows, 10 classes": make_classification(
            10_000, 100, n_informative=20, n_classes=10, random_state=0
        ),
    }
    return {name: sets[name] for name in SEARCHED} | larger


def search(X, y):
    """Search for alpha by cross-validation; return a model, and its mean score."""
    loss = "multinomial" if len(np.unique(y)) > 2 else "log_loss"
    scores = []
    for train, test in FOLDS.split(X, y):
        model = AWSGDClassifier(loss, warm_start=True)
        for alpha in ALPHAS:
            model.set_params(alpha=alpha).fit(X[train], y[train])
            scores.append(model.score(X[test], y[test]))
    means = np.reshape(scores, (-1, len(ALPHAS))).mean(axis=0)
    alpha = ALPHAS[means.argmax()]
    return AWSGDClassifier(loss, alpha=alpha).fit(X, y), float(means.max())


def search_of_peer(X, y):
    """Do the same by LogisticRegressionCV."""
    n_rows = len(y) * (FOLDS.n_splits - 1) // FOLDS.n_splits
    model = LogisticRegressionCV(
        Cs=1 / (ALPHAS * n_rows),
        cv=FOLDS,
        l1_ratios=(0,),
        scoring="accuracy",
        use_legacy_attributes=False,
    )
    model.fit(X, y)
    return model, float(model.scores_.mean(axis=0).max())


def measure_path(name, X, y, n_turns):
    """Return the row of a search for the strength of the penalty."""
    seconds, scores = {search: [], search_of_peer: []}, {}
    for _ in range(n_turns):
        for call, taken in seconds.items():
            begin = time.process_time()
            scores[call] = call(X, y)[1]
            taken.append(time.process_time() - begin)
    ours, peer = min(seconds[search]), min(seconds[search_of_peer])
    return {
        "set": name,
        "ours s": ours,
        "LogisticRegressionCV s": peer,
        "search": ours / peer,
        "score": scores[search],
        "peer's score": scores[search_of_peer],
    }


def main():
    """Measure all sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, (X, y) in make_sets().items():
        rows += measure(name, X, y, options.turns)
    _common.show("CPU time of fit and predict, ours over LogisticRegression's", rows)
    paths = [
        measure_path(name, X, y, min(options.turns, 3))
        for name, (X, y) in make_searched().items()
    ]
    _common.show("CPU time of a search, ours over LogisticRegressionCV's", paths)
    if not options.no_save:
        _common.save("small", {"rows": rows, "paths": paths})


if __name__ == "__main__":
    main()
