"""The area under the ROC curve, from rows drawn for another question."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from sklearn_awsgd import MinVarianceImportanceEstimator
from sklearn_awsgd._importance.ranks import right_pairs


@pytest.fixture(scope="module")
def pool():
    X, y = make_classification(
        6000, weights=[0.9], n_informative=4, flip_y=0.05, random_state=0
    )
    model = LogisticRegression().fit(X[:500], y[:500])
    cheap = LogisticRegression(C=0.01).fit(X[:200], y[:200])
    return X, y, model, cheap


def estimate(model, loss="balanced_accuracy", **parameters):
    parameters = {"max_evaluations": 800, "rtol": None, "random_state": 0, **parameters}
    return MinVarianceImportanceEstimator(model, loss, **parameters)


def test_right_pairs_make_the_area():
    random = np.random.default_rng(0)
    scores = random.integers(8, size=200) / 4
    positive = random.random(200) < 0.1 + 0.4 * scores
    weight = random.random(200)
    right = right_pairs(scores, positive, weight)
    area = roc_auc_score(positive, scores, sample_weight=weight)
    for one in (positive, ~positive):
        assert_allclose(np.average(right[one], weights=weight[one]), area)


def test_all_rows_give_the_area_itself(pool):
    X, y, model, _ = pool
    forest = RandomForestClassifier(5, random_state=0).fit(X[:500], y[:500])
    areas = [
        roc_auc_score(y, model.decision_function(X)),
        roc_auc_score(y, forest.predict_proba(X)[:, 1]),
    ]
    for models, truth in ((model, areas[0]), ((model, forest), areas[0] - areas[1])):
        result = estimate(models, max_evaluations=len(y)).fit(X, y).estimate("roc_auc")
        assert_allclose(result.estimate, truth)
        assert result.confidence_interval == (result.estimate, result.estimate)


def test_error_is_that_of_two_samples(pool):
    """Of plain samples of the classes it is that of DeLong, without replacement."""
    X, y, model, _ = pool
    fitted = estimate(model, "log_loss").fit(X, y)
    rows = fitted.evaluated_["row"]
    half = fitted._integrator.rounds.half
    scores, positive = model.decision_function(X), y == 1
    # Cells: classes in halves, of which each is a plain sample.
    cells = 2 * half + positive
    counts, sizes = (np.bincount(x, minlength=4) for x in (cells[rows], cells))
    weight = (sizes / counts)[cells[rows]]
    right = right_pairs(scores[rows], positive[rows], weight)
    variance = 0.0
    for cell in range(4):
        own = right[cells[rows] == cell]
        share = sizes[cell] / np.bincount(positive)[cell % 2]
        left = 1 - counts[cell] / sizes[cell]
        variance += share**2 * left * own.var(ddof=1) / counts[cell]
    result = fitted.estimate("roc_auc")
    assert_allclose(result.std_error, np.sqrt(variance))
    area = roc_auc_score(y[rows], scores[rows], sample_weight=weight)
    assert_allclose(result.estimate, area)


@pytest.mark.parametrize("how", ["label", "surrogate", "difference"])
def test_areas_are_covered(pool, how):
    X, y, model, cheap = pool
    truth = roc_auc_score(y, model.decision_function(X))
    models, parameters = model, {}
    if how == "surrogate":
        parameters = {"surrogate": cheap}
    if how == "difference":
        models = (model, cheap)
        truth -= roc_auc_score(y, cheap.decision_function(X))
    errors, covered = [], []
    for seed in range(60):
        fitted = estimate(models, "log_loss", random_state=seed, **parameters)
        result = fitted.fit(X, y).estimate("roc_auc")
        errors.append((result.estimate - truth) / result.std_error)
        low, high = result.confidence_interval
        covered.append(low <= truth <= high)
    assert np.mean(covered) >= 0.9
    assert abs(np.mean(errors)) < 0.5
    assert 0.7 < np.std(errors) < 1.3


def test_what_has_no_area(pool):
    X, y, model, _ = pool
    with pytest.raises(ValueError, match="needs a fitted estimator, y, and rows"):
        estimate(model, "recall").fit(X, y).estimate("roc_auc")
    values = MinVarianceImportanceEstimator(loss=lambda X: X[:, 0]).fit(X)
    with pytest.raises(ValueError, match="needs a fitted estimator"):
        values.estimate("roc_auc")
    few = estimate(model, "log_loss", sampler="uniform", max_evaluations=100).fit(X, y)
    with pytest.raises(ValueError, match=r"positives .* have been evaluated"):
        few.estimate("roc_auc")
    three = LogisticRegression().fit(X[:600], np.arange(600) % 3)
    with pytest.raises(ValueError, match="3 classes"):
        estimate(three, lambda m, X, y: X[:, 0]).fit(X, y).estimate("roc_auc")
