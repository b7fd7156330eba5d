"""Records of streams: bounded, and the whole course stays to be seen."""

import pickle

import numpy as np
import pytest

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd._solver.records import FEWEST_EACH, Log


@pytest.mark.parametrize("rate", ["auto", "adagrad"])
def test_records_are_bounded(rate, rng, monkeypatch):
    monkeypatch.setattr("sklearn_awsgd._solver.records.MOST_RECORDS", 50)
    monkeypatch.setattr("sklearn_awsgd._solver.records.MOST_SAMPLING", 30)
    X = rng.standard_normal((600, 3))
    y = X[:, 0] + rng.logistic(size=600) > 1
    clf = AWSGDClassifier(learning_rate=rate, random_state=0)
    for start in range(0, 600, 2):
        part = slice(start, start + 2)
        clf.partial_fit(X[part], y[part], classes=[False, True])
    draws, held = clf.history_["draws"], np.unique(clf.sampling_history_["draws"])
    assert 20 <= len(draws) <= 50
    assert draws[0] <= 2
    assert draws[-1] == 600
    assert np.diff(draws).max() <= 600 / 10
    assert len(held) <= 30
    assert np.diff(held).max() <= 600 / 4


def test_records_of_all_problems_are_kept():
    log, rng = Log(), np.random.default_rng(0)
    for _ in range(700):
        log.add_chunk(10, rng.random(150), 0.1)
        log.add_memory(149, np.ones(8))
    assert len(log.records) <= FEWEST_EACH * 150
    table = log.table()
    for problem in (0, 149):
        draws = table["draws"][table["problem"] == problem]
        assert draws[0] == 10
        assert draws[-1] == 7000
        assert np.diff(draws).max() <= 7000 / 3


def test_pickled_records_are_small_and_the_same(rng):
    log = Log()
    sizes = []
    for chunk in range(5000):
        log.add_chunk(10, rng.random(1), 0.1)
        shares = np.zeros(32)
        shares[chunk % 32] = rng.random()
        log.add_memory(0, shares)
        if chunk % 100 == 99:
            sizes.append(len(pickle.dumps(log)))
    # What a memory of 1,000 rows x 30 columns takes is 240 kB, of which 5 % are 12 kB.
    assert max(sizes[10:]) - min(sizes[10:]) <= 12_000
    again = pickle.loads(pickle.dumps(log))
    assert again.records[-1].draws == log.records[-1].draws == 50_000
    assert again.records[-1].objective == log.records[-1].objective
    assert np.isnan(again.records[-1].duality_gap)
    for name, column in log.sampling_table().items():
        np.testing.assert_array_equal(column, again.sampling_table()[name])


@pytest.mark.parametrize("n_columns", [5, 40])
def test_records_of_the_factorization_are_bounded(n_columns, rng, monkeypatch):
    monkeypatch.setattr("sklearn_awsgd._solver.records.MOST_RECORDS", 50)
    monkeypatch.setattr("sklearn_awsgd._solver.records.SAMPLING_NUMBERS", 400)
    model, sizes = AWSGDMatrixFactorization(2, random_state=0), []
    for _ in range(150):
        model.partial_fit(rng.standard_normal((6, n_columns)))
        sizes.append(len(pickle.dumps(model)))
    draws = model.history_["draws"]
    assert len(draws) <= 50
    assert draws[0] <= 6 * n_columns
    assert model.sampling_history_["draws"][-1] == draws[-1]
    assert len(model.sampling_history_["draws"]) <= max(400, 20 * n_columns)
    assert max(sizes[75:]) <= 1.2 * max(sizes[:75])


def test_records_of_estimates_are_bounded(rng, monkeypatch):
    monkeypatch.setattr("sklearn_awsgd._importance.run.MOST_RECORDS", 30)
    estimator = MinVarianceImportanceEstimator(max_evaluations=60, random_state=0)
    for _ in range(40):
        estimator.partial_fit(rng.standard_normal((100, 1)), rng.standard_normal(100))
    evaluations = estimator.history_["evaluations"]
    assert len(evaluations) <= 30
    assert evaluations[-1] == estimator.n_evaluations_ > 40 * 50
    assert np.diff(evaluations).max() <= evaluations[-1] / 5
