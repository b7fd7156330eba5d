"""
From a frame of ratings to recommendations
==========================================

Ratings come as a frame: who rated what, and how. Its ids are names, or numbers with
gaps. :class:`~sklearn_awsgd.EntryRegressor` takes the two columns of ids as X and the
ratings as y. Its samples are single ratings, so that a search holds out ratings, and
chooses what predicts ratings that users have not given yet. A search over the rows of a
matrix holds out users instead, and answers another question: what predicts new users?

The ratings are generated. Where the environment variable SKLEARN_AWSGD_DATA names a
folder with ``movielens_100k.npz`` (arrays ``user``, ``item`` and ``rating``), they are
those of MovieLens.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, train_test_split

from sklearn_awsgd import (
    AWSGDMatrixFactorization,
    EntryRegressor,
    matrix_from_entries,
)
from sklearn_awsgd.model_selection import EntryKFold

# %%
# Without MovieLens: 600 users rate 20 of 300 items each, with 4 dimensions of taste.


def generate():
    rng = np.random.default_rng(0)
    stars = 0.5 * rng.normal(size=(600, 4)) @ rng.normal(size=(4, 300))
    stars += 3.5 + rng.normal(scale=0.4, size=300)
    stars = np.clip(np.rint(stars + rng.normal(scale=0.5, size=stars.shape)), 1, 5)
    user = np.repeat(np.arange(600), 20)
    item = np.concatenate([rng.choice(300, 20, replace=False) for _ in range(600)])
    return user, item, stars[user, item]


path = Path(os.environ.get("SKLEARN_AWSGD_DATA", ""), "movielens_100k.npz")
if path.is_file():
    with np.load(path) as file:
        user, item, stars = (file[name] for name in ("user", "item", "rating"))
else:
    user, item, stars = generate()
ratings = pd.DataFrame(
    {
        "user": [f"user {number}" for number in user],
        "item": [f"item {number}" for number in item],
        "stars": np.asarray(stars, dtype=float),
    }
)
train, test = train_test_split(ratings, test_size=0.1, random_state=0)
print(train.head(3))

# %%
# The search over ratings. ``EntryKFold`` deals the ratings of every user to all folds.

pair = ["user", "item"]
grid = {"n_components": [4, 20], "alpha": [0.03, 0.1, 0.2, 0.4]}
model = AWSGDMatrixFactorization(
    fit_bias=True, unstored="missing", max_iter=500, random_state=0
)
over_ratings = GridSearchCV(
    EntryRegressor(model),
    {f"estimator__{name}": values for name, values in grid.items()},
    cv=EntryKFold(5, random_state=0),
).fit(train[pair], train["stars"])

# %%
# The search over users, on the same grid: the rows of a matrix are its samples.

matrix, ids = matrix_from_entries(train[[*pair, "stars"]], return_ids=True)
over_users = GridSearchCV(model, grid, cv=5, refit=False).fit(matrix)


def held_out(params):
    """Return the error of the ratings that no search has seen, and their R²."""
    fitted = EntryRegressor(model.set_params(**params))
    fitted.fit(train[pair], train["stars"])
    error = fitted.predict(test[pair]) - test["stars"]
    return np.sqrt(np.mean(error**2)), fitted.score(test[pair], test["stars"])


settings = over_users.cv_results_["params"]
rmse, r2 = np.transpose([held_out(params) for params in settings])
print(f"RMSE of held-out ratings: best setting of the grid {rmse.min():.3f},")
print(f"chosen over ratings {rmse[over_ratings.best_index_]:.3f},", end=" ")
print(f"chosen over users {rmse[over_users.best_index_]:.3f}")

# %%
# Recommendations, by id and with scores. A user who has rated nothing gets the items
# with the largest biases; an unknown item is predicted by the bias of the user.

best = over_ratings.best_estimator_
someone = train["user"].iloc[0]
items, scores = best.recommend([someone, "a new user"], k=3, return_scores=True)
for name, row, score in zip((someone, "a new user"), items, scores, strict=True):
    print(
        name, "->", ", ".join(f"{i} ({s:.1f})" for i, s in zip(row, score, strict=True))
    )
new = pd.DataFrame({"user": [someone, "a new user"], "item": ["a new item"] * 2})
print("predictions of a new item:", best.predict(new).round(2))

# %%
figure, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for search, name, marker in (
    (over_ratings, "search over ratings", "o"),
    (over_users, "search over users", "s"),
):
    scores = search.cv_results_["mean_test_score"]
    (points,) = axis.plot(r2, scores, marker, label=name, alpha=0.7)
    k = search.best_index_
    axis.plot(
        r2[k], scores[k], marker, ms=14, mfc="none", mew=2, color=points.get_color()
    )
axis.axline((r2.max(), r2.max()), slope=1, color="gray", lw=1, ls="--", label="equal")
axis.set(
    xlabel="R² of held-out ratings",
    ylabel="R² in cross-validation",
    title="What a search is told, and what is true (rings: chosen)",
)
axis.legend(loc="upper left")
plt.show()

# %%
# Scores of the search over ratings follow what held-out ratings say, and are the ones
# to report. The search over users hides half of the ratings of users it was not trained
# on: its scores are lower and put settings into another order, which may end in another
# choice. It is right where the model is to serve users who come later.
