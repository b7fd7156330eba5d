"""
What happens in a fit?
======================

Estimators keep a history of what they did. :mod:`sklearn_awsgd.display` draws it, one
line for each picture: what was sampled, how the objective fell, and how sure an
estimate is.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd.display import ConvergenceDisplay, IntervalDisplay, SamplingDisplay

# %%
# One row in fifty is of class 1. Plain AW-SGD is fitted twice, with learned draws and
# with shuffled passes, and once the default goes on to the optimum.

X, y = make_classification(20_000, weights=[0.98], class_sep=1.5, random_state=0)
settings = {"learning_rate": "adagrad", "tol": None, "max_iter": 10, "random_state": 0}
fits = {
    "learned draws": AWSGDClassifier(sampler="label", count_draws=True, **settings),
    "shuffled passes": AWSGDClassifier(sampler="uniform", **settings),
    "default": AWSGDClassifier(random_state=0),
}
for model in fits.values():
    model.fit(X, y)
best = AWSGDClassifier(tol=1e-10, random_state=0).fit(X, y).history_["objective"][-1]


# %%
# The columns of a matrix have scales that differ by factors of ten.

rng = np.random.default_rng(0)
matrix = rng.normal(size=(300, 5)) @ rng.normal(size=(5, 60))
matrix *= np.exp(rng.normal(size=60))
factorization = AWSGDMatrixFactorization(
    5, sampler="row_column", tol=None, max_iter=10, random_state=0
).fit(matrix)

# %%
# What is the log loss of a model over all rows, if each evaluation is expensive?

model = LogisticRegression().fit(X[:1000], y[:1000])
estimate = MinVarianceImportanceEstimator(
    model, "log_loss", rtol=0.05, random_state=0
).fit(X, y)
truth = log_loss(y, model.predict_proba(X))

# %%
# A line for each picture.

figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
SamplingDisplay.from_estimator(fits["learned draws"], ax=axes[0, 0])
axes[0, 0].set_title("Classes")
SamplingDisplay.from_estimator(fits["default"], by="level", ax=axes[0, 1])
axes[0, 1].set_title("Levels")
ConvergenceDisplay.from_estimators(fits, x="passes", reference=best, ax=axes[1, 0])
axes[1, 0].set_title("Convergence")
SamplingDisplay.from_estimator(fits["learned draws"], by="row", ax=axes[1, 1])
axes[1, 1].set_title("Rows")
SamplingDisplay.from_estimator(factorization, ax=axes[0, 2])
axes[0, 2].set_title("Columns of a matrix")
IntervalDisplay.from_estimator(estimate, truth=truth, ax=axes[1, 2])
axes[1, 2].set_title("Log loss of a model")
plt.show()

# %%
# The rare class, one row in fifty, gets a third of the draws. By level, two kinds of
# rows share them: few with large gradients, many with small ones. Plain AW-SGD comes
# close to the optimum and stays there (its objectives are estimates; those below the
# optimum are left out); the default goes on in a few exact passes. The interval of the
# estimate shrinks around the truth.
