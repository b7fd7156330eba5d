"""
Everything on one page
======================

A rare class from a data frame, in a pipeline and a grid search; what the sampler did; a
stream; and the loss of a slow model from a part of the predictions. Fifteen steps, each
a few lines.
"""

# %%
# A frame of payments, of which one in a hundred is fraud. The amounts are skewed, one
# column is a category.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
n = 20_000
frame = pd.DataFrame(
    {
        "amount": rng.lognormal(3, 1.2, n),
        "hour": rng.integers(0, 24, n),
        "age_of_account": rng.exponential(500, n),
        "country": rng.choice(["at", "be", "ch", "de"], n, p=[0.5, 0.3, 0.15, 0.05]),
    }
)
score = 1.8 * np.log(frame["amount"]) - 1.2 * np.log1p(frame["age_of_account"])
score += 2 * (frame["country"] == "de") + 1.5 * (frame["hour"] < 6)
fraud = (rng.random(n) < 1 / (1 + np.exp(6.5 - score))).map({True: "yes", False: "no"})
fraud.value_counts(normalize=True)

# %%
# Training and test rows.

from sklearn.model_selection import train_test_split

X, X_test, y, y_test = train_test_split(frame, fraud, stratify=fraud, random_state=0)
X.head()

# %%
# A pipeline as with any classifier of scikit-learn. There is nothing to tune: the
# default draws rows that matter, and then goes on to the optimum of the objective.

from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from sklearn_awsgd import AWSGDClassifier

log = FunctionTransformer(np.log1p, feature_names_out="one-to-one")
columns = make_column_transformer(
    (OneHotEncoder(), ["country"]),
    (make_pipeline(log, StandardScaler()), ["amount", "age_of_account"]),
    (StandardScaler(), ["hour"]),
)
model = make_pipeline(columns, AWSGDClassifier(random_state=0)).fit(X, y)
model

# %%
# How close is it to the optimum? ``duality_gap_`` is a bound. How much noise did the
# learned sampling save? ``variance_gain_`` times less than plain draws have.

clf = model[-1]
gap, gain = clf.duality_gap_[0], clf.variance_gain_[0]
print(f"gap at most {gap:.1e}, noise divided by {gain:.1f}")

# %%
# Probabilities are those of the data: nothing was weighted, no row was duplicated.

from sklearn.metrics import average_precision_score

probability, truth = model.predict_proba(X_test)[:, 1], y_test == "yes"
print(f"predicted share of fraud {probability.mean():.4f}, true {truth.mean():.4f}")
print(f"average precision {average_precision_score(truth, probability):.3f}")

# %%
# A grid search, over the penalty and over a parameter of the sampler. From scikit-learn
# 1.9 on, callbacks show how far it is: fits, problems, passes.

from sklearn.model_selection import GridSearchCV

from sklearn_awsgd.samplers import LevelSampler

search = GridSearchCV(
    make_pipeline(columns, AWSGDClassifier(sampler=LevelSampler(), random_state=0)),
    {
        "awsgdclassifier__alpha": [1e-5, 1e-4, 1e-3, 1e-2],
        "awsgdclassifier__sampler__mixing": [0.1, 0.3],
    },
    scoring="average_precision",
    cv=3,
)
if hasattr(search, "set_callbacks"):
    from sklearn.callback import ProgressBar

    search.set_callbacks(ProgressBar(max_propagation_depth=1))
search.fit(X, y == "yes")
print(search.best_params_, f"{search.best_score_:.3f}")

# %%
# What was drawn, over time: the share of the draws that went to fraud.

from sklearn_awsgd.display import SamplingDisplay

SamplingDisplay.from_estimator(clf)
plt.show()

# %%
# The way to the optimum, pass by pass: draws first, then exact passes.

history = pd.DataFrame(clf.history_)
history[["phase", "draws", "seconds", "objective"]]

# %%
# Several settings, one axes: plain steps with uniform draws and with learned ones.

from sklearn_awsgd.display import ConvergenceDisplay

transformed = columns.fit_transform(X)
settings = {"learning_rate": "adagrad", "max_iter": 8, "tol": None, "random_state": 0}
fits = {
    sampler: AWSGDClassifier(sampler=sampler, **settings).fit(transformed, y)
    for sampler in ("uniform", "label", "level")
}
best = AWSGDClassifier(tol=1e-10, random_state=0).fit(transformed, y)
lowest = best.history_["objective"][-1]
ConvergenceDisplay.from_estimators({**fits, "default": clf}, reference=lowest)
plt.show()

# %%
# A class weight is something else: it changes the objective, and the probabilities.

weighted = AWSGDClassifier(class_weight="balanced", random_state=0).fit(transformed, y)
share = weighted.predict_proba(transformed)[:, 1].mean()
print(f"predicted share of fraud {share:.4f}")

# %%
# A stream: chunks as they come, each seen once. Close to a fit on all rows, without a
# learning rate to choose.

stream = AWSGDClassifier(random_state=0)
for chunk in np.array_split(np.arange(len(y)), 30):
    stream.partial_fit(transformed[chunk], y.iloc[chunk], classes=["no", "yes"])
print(f"largest difference of a coefficient {abs(stream.coef_ - clf.coef_).max():.3f}")

# %%
# Two halves of the stream, learned apart, merge.

halves = [AWSGDClassifier(random_state=0) for _ in range(2)]
for half, rows in zip(halves, np.array_split(np.arange(len(y)), 2), strict=True):
    half.partial_fit(transformed[rows], y.iloc[rows], classes=["no", "yes"])
merged = halves[0].merge(halves[1])
print(f"largest difference of a coefficient {abs(merged.coef_ - clf.coef_).max():.3f}")

# %%
# A slow model, whose loss on the test rows is wanted but not its prediction of every
# row. The linear model says which rows are likely to be hard.

from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator

from sklearn_awsgd import MinVarianceImportanceEstimator

slow = make_pipeline(columns, HistGradientBoostingClassifier(random_state=0)).fit(X, y)
loss = MinVarianceImportanceEstimator(
    FrozenEstimator(slow),
    "log_loss",
    surrogate=FrozenEstimator(model),
    max_evaluations=1000,
    rtol=None,
    random_state=0,
).fit(X_test, y_test)
print(loss.summary())

# %%
# The same from all 5,000 predictions, and how the interval shrank around it.

from sklearn.metrics import log_loss

from sklearn_awsgd.display import IntervalDisplay

truth = log_loss(y_test, slow.predict_proba(X_test))
print(f"{truth:.5f}")
IntervalDisplay.from_estimator(loss, truth=truth)
plt.show()

# %%
# And a saved model is a pickle, as always.

import pickle

again = pickle.loads(pickle.dumps(model))
print((again.predict(X_test) == model.predict(X_test)).all())
