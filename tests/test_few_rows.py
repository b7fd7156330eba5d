"""Rows that are no more than the features: dual steps, and the span of the rows."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC, LinearSVR

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor

LOSSES = [
    "log_loss",
    "squared_error",
    "hinge",
    "epsilon_insensitive",
    "squared_hinge",
    "modified_huber",
    "squared_epsilon_insensitive",
    "huber",
    "multinomial",
]


def normal(rng, n_rows, n_features):
    """Return independent rows, and targets by the first feature."""
    X = rng.standard_normal((n_rows, n_features))
    return X, X[:, 0] + rng.standard_normal(n_rows)


def factors(rng, n_rows, n_features):
    """Return rows of a few factors and some noise, and targets by the first of them."""
    Z = rng.standard_normal((n_rows, 10))
    X = Z @ rng.standard_normal((10, n_features)) / 3
    X += 0.1 * rng.standard_normal((n_rows, n_features))
    return X, Z[:, 0] + rng.standard_normal(n_rows) / 2


@pytest.mark.parametrize("make", [normal, factors])
@pytest.mark.parametrize("shape", [(150, 160), (120, 600), (60, 3200)])
@pytest.mark.parametrize("loss", LOSSES)
def test_few_rows_reach_tol_for_certain(loss, shape, make, rng):
    """In a silence that is deserved: the gap says so, and warnings are errors."""
    X, z = make(rng, *shape)
    y = np.digitize(z, [-0.5, 0.5]) if loss == "multinomial" else (z > 0).astype(int)
    clf = AWSGDClassifier(loss, random_state=0).fit(X, y)
    value = clf.history_["objective"][-1]
    # A loss with smooth curvature may end by an estimate, which is within tol too.
    closer = AWSGDClassifier(loss, tol=1e-6, random_state=0).fit(X, y)
    best = closer.history_["objective"][-1] - closer.duality_gap_[0]
    assert value <= best * (1 + 1.5e-3) + 1e-12
    assert clf.n_iter_ <= 600


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "log_loss"])
def test_few_rows_against_liblinear(loss, rng):
    X, z = normal(rng, 120, 500)
    y, alpha = z > 0, 1e-3
    settings = {"C": 1 / (alpha * len(y)), "fit_intercept": False, "tol": 1e-8}
    if loss == "log_loss":
        other = LogisticRegression(max_iter=10_000, **settings)
    else:
        other = LinearSVC(loss=loss, max_iter=1_000_000, **settings)
        if loss == "squared_hinge":
            other.set_params(dual=True)
    clf = AWSGDClassifier(loss, alpha=alpha, fit_intercept=False, tol=1e-8)
    np.testing.assert_allclose(
        clf.fit(X, y).coef_, other.fit(X, y).coef_, atol=2e-4 * np.abs(clf.coef_).max()
    )


def test_few_rows_of_a_regression_against_liblinear(rng):
    X, y = normal(rng, 120, 500)
    alpha = 1e-3
    other = LinearSVR(
        epsilon=0.1,
        C=1 / (alpha * len(y)),
        fit_intercept=False,
        tol=1e-8,
        max_iter=1_000_000,
    ).fit(X, y)
    reg = AWSGDRegressor(
        "epsilon_insensitive", alpha=alpha, fit_intercept=False, tol=1e-8
    ).fit(X, y)
    np.testing.assert_allclose(
        reg.coef_, other.coef_, atol=2e-4 * np.abs(reg.coef_).max()
    )


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "log_loss"])
def test_the_intercept_keeps_up_where_the_penalty_is_weak(loss, rng):
    """It was held as if the losses had their curvature: thousands of passes."""
    X, z = normal(rng, 400, 700)
    clf = AWSGDClassifier(loss, random_state=0).fit(X, z > 0)
    assert clf.n_iter_ <= 150
