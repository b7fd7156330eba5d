"""Ratings: where fits end, and which settings a search chooses.

Run with ``OMP_NUM_THREADS=1``. The ratings are generated, with few or many for each
user; where ``--data`` or the environment variable SKLEARN_AWSGD_DATA names a folder
with ``movielens_100k.npz``, MovieLens takes part too. A tenth of the ratings is held
out. Times are CPU seconds, contestants in turn.

``ending`` compares fits at the default `tol` with 50 passes of draws alone, about where
they come to rest, on several seeds. Objectives are those of ``history_``: that of draws
is of the model while it was learned, a little above what it ended with. ``choosing``
compares two searches over the same grid: over rows, where `score` hides half of the
entries of rows that were not trained on, and over entries, with EntryRegressor and
EntryKFold.

The number of passes before the exact end was chosen on all of these sets. The number of
folds was five at first: the search over entries then chose worse settings than that
over rows on two of the four sets, "few ratings each" and MovieLens; see ``--folds 5``.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from sklearn_awsgd import (
    AWSGDMatrixFactorization,
    EntryRegressor,
    matrix_from_entries,
)
from sklearn_awsgd.model_selection import EntryKFold

RESULTS = Path(__file__).parent / "results" / "ratings.json"
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


def bench_ending(user, item, value, held_out, options):
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
    result = {}
    for name, rows in found.items():
        objective, error, seconds = np.transpose(rows)
        result[name] = {
            "objective, best and worst": [objective.min(), objective.max()],
            "rmse, best and worst": [error.min(), error.max()],
            "CPU s, median": float(np.median(seconds)),
        }
    return result


def bench_choosing(user, item, value, held_out, options):
    """Error of held-out ratings of what each search chooses, and of the whole grid."""
    shape, shown = (user.max() + 1, item.max() + 1), ~held_out
    model = AWSGDMatrixFactorization(fit_bias=True, unstored="missing", random_state=0)
    X = matrix_from_entries(user[shown], item[shown], value[shown], shape=shape)
    pairs = np.column_stack([user, item])
    by_rows = GridSearchCV(model, GRID, cv=options.folds, refit=False).fit(X)
    grid = {f"estimator__{name}": values for name, values in GRID.items()}
    by_entries = GridSearchCV(
        EntryRegressor(model),
        grid,
        cv=EntryKFold(options.folds, random_state=0),
        refit=False,
    ).fit(pairs[shown], value[shown])
    errors = []
    for params in by_rows.cv_results_["params"]:
        fitted = EntryRegressor(model.set_params(**params))
        fitted.fit(pairs[shown], value[shown])
        errors.append(rmse(fitted.predict(pairs[held_out]), value[held_out]))
    return {
        "rmse of the best setting": min(errors),
        "rmse of the setting chosen over rows": errors[by_rows.best_index_],
        "rmse of the setting chosen over entries": errors[by_entries.best_index_],
        "chosen over rows": by_rows.best_params_,
        "chosen over entries": by_entries.best_params_,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=os.environ.get("SKLEARN_AWSGD_DATA"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--folds", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = {}
    for name, (user, item, value) in ratings(options.data):
        held_out = np.random.default_rng(1).random(len(user)) < 0.1
        results[name] = {
            part.__name__.removeprefix("bench_"): part(
                user, item, value, held_out, options
            )
            for part in (bench_ending, bench_choosing)
        }
        print(name, json.dumps(results[name], indent=1), flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
