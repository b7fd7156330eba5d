"""The table of a fit below the diagram of an estimator."""

import re

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDPolicyGradient,
    AWSGDRegressor,
    EntryRegressor,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd._fit_table import fit_rows
from sklearn_awsgd.datasets import GridWorld

X = np.random.default_rng(0).normal(size=(300, 4))
y = (X[:, 0] > 1).astype(int)


def fitted():
    model = LogisticRegression().fit(X, y)
    pairs = np.argwhere(np.ones((6, 5)))
    return [
        AWSGDClassifier(random_state=0).fit(X, y),
        AWSGDRegressor(random_state=0).fit(X, X[:, 0] + y),
        AWSGDMatrixFactorization(2, random_state=0).fit(X),
        EntryRegressor().fit(pairs, np.arange(30.0)),
        MinVarianceImportanceEstimator(model, "log_loss", random_state=0).fit(X, y),
        AWSGDPolicyGradient(n_episodes=50, random_state=0).fit(
            GridWorld(4, random_state=0)
        ),
    ]


@pytest.mark.filterwarnings("ignore")
def test_every_fitted_estimator_has_a_table():
    for estimator in fitted():
        html = estimator._repr_mimebundle_()["text/html"]
        assert html.count("sklearn-awsgd-fit") == 1
        assert re.sub(r"sk-\S+", "", estimator._repr_html_()).endswith("</details>")
        assert "nan" not in html.partition("sklearn-awsgd-fit")[2]
        new = type(estimator)()
        assert "sklearn-awsgd-fit" not in new._repr_mimebundle_()["text/html"]
        with config_context(display="text"):
            assert "text/html" not in estimator._repr_mimebundle_()
            assert not hasattr(estimator, "_repr_html_")


def test_rows_are_the_ends_of_phases():
    model = AWSGDClassifier(random_state=0).fit(X, np.arange(300) % 3)
    names, rows = fit_rows(model.history_)
    history = model.history_
    assert names[:4] == ["problem", "phase", "draws", "seconds"]
    assert len(rows) == len({*zip(history["problem"], history["phase"], strict=True)})
    for row in rows:
        place = (history["problem"] == row[0]) & (history["phase"] == row[1])
        assert row[2] == history["draws"][place].max()
        assert row[names.index("objective")] == history["objective"][place][-1]
    gaps = [row[names.index("gap")] for row in rows if row[1] == "exact"]
    # But for the rounding of objectives.
    np.testing.assert_allclose(gaps, model.duality_gap_, atol=1e-15)


def test_problems_have_their_names_and_numbers_are_readable():
    names = np.array(["<a>", "b", "c"])[np.arange(300) % 3]
    model = AWSGDClassifier(random_state=0, learning_rate="adagrad", max_iter=40)
    html = model.set_params(tol=None).fit(X, names)._fit_html()
    assert "class &lt;a&gt;</td>" in html
    assert "<a>" not in html
    assert ">12,000</td>" in html


def test_many_rows_are_cut():
    labels = np.arange(300) % 20
    html = AWSGDClassifier(random_state=0, max_iter=3, tol=None).fit(X, labels)
    html = html._repr_mimebundle_()["text/html"].partition("sklearn-awsgd-fit")[2]
    assert html.count("<tr>") == 13
    assert "rows more" in html
