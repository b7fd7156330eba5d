"""Ratings: where fits end, and which settings a search chooses.

The ratings are generated, with few or many for each user; where ``--data`` or the
environment variable SKLEARN_AWSGD_DATA names a folder with ``movielens_100k.npz``,
MovieLens takes part too. A tenth of the ratings is held out. Times are CPU seconds,
contestants in turn.

``ending`` compares fits at the default `tol` with 50 passes of draws alone, about where
they come to rest, on several seeds. Objectives are those of ``history_``: that of draws
is of the model while it was learned, a little above what it ended with. ``choosing``
compares two searches over the same grid: over rows, where `score` hides half of the
entries of rows that were not trained on, and over entries, with EntryRegressor and
EntryKFold.

The number of passes before the exact end was chosen on all of these sets. Both numbers
of folds are reported, because ten were only thought of after five.
"""

import _common  # noqa: F401, I001  (sets the number of threads first)

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, ParameterGrid

from _common import save, show

from sklearn_awsgd import (
    AWSGDMatrixFactorization,
    EntryRegressor,
    matrix_from_entries,
)
from sklearn_awsgd.model_selection import EntryKFold

GRID = {"n_components": [5, 20], "alpha": [0.05, 0.1, 0.2, 0.4]}


def generated(n_users, n_items, n_each, size):
    """Ratings from 1 to 5, of 4 dimensions, biases and noise."""
    rng = np.random.default_rng(0)
    z = size * rng.normal(size=(n_users, 4)) @ rng.normal(size=(4, n_items))
    z += 3.5 + rng.normal(scale=0.3, size=(n_users, 1))
    z += rng.normal(scale=0.4, size=n_items)
    stars = np.clip(np.rint(z + rng.normal(scale=0.5, size=z.shape)), 1, 5)
    popularity = 0.5 * rng.dirichlet(np.ones(n_items)) + 0.5 / n_items
    user = np.repeat(np.arange(n_users), n_each)
    item = np.concatenate(
        [rng.choice(n_items, n_each, False, popularity) for _ in range(n_users)]
    )
    return user, item, stars[user, item]


def ratings(data):
    """Yield names, users, items and values."""
    yield "few ratings each", generated(600, 300, 20, 0.25)
    yield "few ratings, strong tastes", generated(600, 300, 20, 0.5)
    yield "many ratings each", generated(600, 300, 60, 0.5)
    path = Path(data or "", "movielens_100k.npz")
    if not path.is_file():
        print("no MovieLens: left out")
        return
    with np.load(path, allow_pickle=False) as z:
        yield (
            "MovieLens",
            tuple(z[name].astype(int) for name in ("user", "item", "rating")),
        )


def rmse(predicted, values):
    return float(np.sqrt(np.mean((predicted - values) ** 2)))


def ending(user, item, value, held_out, options):
    """Objective, error of held-out ratings and seconds, over seeds."""
    shape, shown = (user.max() + 1, item.max() + 1), ~held_out
    X = matrix_from_entries(user[shown], item[shown], value[shown], shape=shape)
    settings = {"alpha": 0.2, "fit_bias": True, "unstored": "missing"}
    contestants = {"draws alone": {"tol": None, "max_iter": 50}, "default": {}}
    found = {name: [] for name in contestants}
    for seed in range(options.seeds):
        for name, params in contestants.items():
            model = AWSGDMatrixFactorization(5, random_state=seed, **settings, **params)
            start = time.process_time()
            model.fit(X)
            seconds = time.process_time() - start
            predicted = model.predict_entries(X, user[held_out], item[held_out])
            objective = model.history_["objective"][-1]
            found[name].append((objective, rmse(predicted, value[held_out]), seconds))
    rows = []
    for name, runs in found.items():
        objective, error, seconds = np.transpose(runs)
        rows.append(
            {
                "fit": name,
                "least objective": objective.min(),
                "largest objective": objective.max(),
                "least rmse": error.min(),
                "largest rmse": error.max(),
                "median CPU s": float(np.median(seconds)),
            }
        )
    return rows


def choosing(user, item, value, held_out, options):
    """Errors of what each search chooses, and of the best setting of the grid."""
    shape, shown = (user.max() + 1, item.max() + 1), ~held_out
    model = AWSGDMatrixFactorization(fit_bias=True, unstored="missing", random_state=0)
    X = matrix_from_entries(user[shown], item[shown], value[shown], shape=shape)
    pairs = np.column_stack([user, item])
    errors = []
    for params in ParameterGrid(GRID):
        fitted = EntryRegressor(clone(model).set_params(**params))
        fitted.fit(pairs[shown], value[shown])
        errors.append(rmse(fitted.predict(pairs[held_out]), value[held_out]))
    rows = []
    for n_folds in options.folds:
        by_rows = GridSearchCV(model, GRID, cv=n_folds, refit=False).fit(X)
        by_entries = GridSearchCV(
            EntryRegressor(model),
            {f"estimator__{name}": values for name, values in GRID.items()},
            cv=EntryKFold(n_folds, random_state=0),
            refit=False,
        ).fit(pairs[shown], value[shown])
        rows.append(
            {
                "folds": n_folds,
                "best of the grid": min(errors),
                "over rows": errors[by_rows.best_index_],
                "over entries": errors[by_entries.best_index_],
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=os.environ.get("SKLEARN_AWSGD_DATA"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--folds", type=int, nargs="*", default=[5, 10])
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = {"ending": [], "choosing": []}
    for name, entries in ratings(options.data):
        held_out = np.random.default_rng(1).random(len(entries[0])) < 0.1
        for part in (ending, choosing):
            rows = part(*entries, held_out, options)
            results[part.__name__] += [{"set": name, **row} for row in rows]
    show("Objectives and held-out errors", results["ending"])
    show("Held-out RMSE of what a search chooses", results["choosing"])
    save("ratings", results)


if __name__ == "__main__":
    main()
