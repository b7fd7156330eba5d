"""
How many factors do ratings support?
====================================

Users have rated a few items each; all other entries are *missing*, not zero. Too few
factors miss the users' tastes, too many learn the noise of the few ratings there are.
Cross-validation answers, because ``score`` hides half of the ratings of each user
before it predicts them.

The ratings are generated, so that the answer is known: tastes have 4 dimensions.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV

from sklearn_awsgd import AWSGDMatrixFactorization, matrix_from_entries

# %%
# 60 ratings of 1 to 5 by each of 600 users, out of 300 items. Popular items are rated
# more often, some users and items are rated higher than others.

rng = np.random.default_rng(0)
n_users, n_items, n_tastes = 600, 300, 4
tastes = rng.normal(size=(n_users, n_tastes)) @ rng.normal(size=(n_tastes, n_items))
mean = (
    3.5 + rng.normal(scale=0.3, size=(n_users, 1)) + rng.normal(scale=0.4, size=n_items)
)
noise = rng.normal(scale=0.5, size=(n_users, n_items))
truth = np.clip(np.rint(mean + 0.5 * tastes + noise), 1, 5)
popularity = rng.dirichlet(np.ones(n_items))
users = np.repeat(np.arange(n_users), 60)
items = np.concatenate(
    [
        rng.choice(n_items, 60, replace=False, p=popularity * 0.5 + 0.5 / n_items)
        for _ in range(n_users)
    ]
)
ratings = matrix_from_entries(users, items, truth[users, items], shape=truth.shape)

# %%
# ``unstored="missing"`` says what the entries are that a sparse matrix does not store.

factors = [1, 2, 3, 4, 6, 8, 12, 20]
search = GridSearchCV(
    AWSGDMatrixFactorization(
        alpha=0.05, fit_bias=True, unstored="missing", random_state=0
    ),
    {"n_components": factors},
    cv=4,
).fit(ratings)
best = search.best_estimator_
recommended = best.recommend(ratings, k=5)
everyone = np.repeat(np.arange(n_users), 5)
print(
    f"mean rating of all items {truth.mean():.2f}, of the items recommended "
    f"{truth[everyone, recommended.ravel()].mean():.2f}"
)

# %%
figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
scores = np.array([search.cv_results_[f"split{k}_test_score"] for k in range(4)])
axis.errorbar(factors, scores.mean(axis=0), scores.std(axis=0), marker="o", capsize=3)
axis.axvline(n_tastes, color="gray", linestyle="--", label="dimensions of the tastes")
axis.set(
    xscale="log",
    xlabel="n_components",
    ylabel="R² of hidden ratings of new users",
    title="Ratings support as many factors as there are tastes",
)
axis.set_xticks(factors, [str(k) for k in factors])
axis.minorticks_off()
axis.legend()
plt.show()

# %%
# The score peaks near the true number of dimensions. The items that the best model
# recommends, none of which the user had rated, are rated well above the mean.
