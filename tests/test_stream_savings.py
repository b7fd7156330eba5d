"""What large chunks of narrow streams save: sampled curvature, and learners asleep."""

import numpy as np
import pytest
from scipy import sparse

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd._linear.streams import narrow
from sklearn_awsgd._linear.streams.bank import CALM, FURTHEST, Bank


def log_losses(clf, X, y, size):
    """Return the losses of rows before they are learned, but for the first chunk."""
    losses = []
    for start in range(0, len(y), size):
        rows, labels = X[start : start + size], y[start : start + size]
        if start:
            p = clf.predict_proba(rows)[np.arange(len(labels)), labels]
            losses.append(-np.log(p))
        clf.partial_fit(rows, labels, classes=[0, 1])
    return np.concatenate(losses)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
def test_sampled_curvature_is_as_good_as_all_of_it(layout, rng, monkeypatch):
    n, p = 12_000, 30
    # Columns that are hardly ever filled: no row of a sample may touch them.
    X = rng.standard_normal((n, p)) * (rng.random((n, p)) < np.geomspace(1e-3, 1, p))
    y = (X @ rng.standard_normal(p) + rng.logistic(size=n) > 1).astype(int)
    found = {}
    for work in (np.inf, 0.0):
        monkeypatch.setattr(narrow, "WORK_TO_SAMPLE", work)
        clf = AWSGDClassifier(random_state=0)
        losses = log_losses(clf, layout(X), y, 1000)
        past = clf._stream.streams[0].best.pasts[0]
        found[work] = losses.mean(), past.curvature
        assert np.linalg.eigvalsh(past.curvature).min() > -1e-9
    (every, exact), (sampled, estimated) = found.values()
    assert sampled == pytest.approx(every, rel=0.005)
    assert not np.allclose(estimated, exact, rtol=0.01, atol=0.1)
    assert np.trace(estimated) == pytest.approx(np.trace(exact), rel=0.1)


def test_a_learner_asleep_wakes_when_the_stream_turns(rng, monkeypatch):
    n = 20_000
    X = rng.standard_normal((n, 30))
    sign = np.where(np.arange(n) < 16_000, 2, -2)
    y = (sign * X[:, :4].sum(axis=1) + rng.logistic(size=n) > 0).astype(int)
    asleep, may_sleep = [], Bank.may_sleep

    def watched(*arguments):
        asleep.append(may_sleep(*arguments))
        return asleep[-1]

    monkeypatch.setattr(Bank, "may_sleep", watched)
    losses = {}
    for nap in (1, 1000):
        monkeypatch.setattr(narrow, "NAP", nap)
        losses[nap] = log_losses(AWSGDClassifier(random_state=0), X, y, 1000).mean()
    assert sum(asleep) > 3
    assert losses[1000] == pytest.approx(losses[1], rel=0.01)


def test_only_who_is_furthest_behind_sleeps_and_only_in_calm():
    bank = Bank((np.inf, 500.0))
    # Of the first chunk it is not known whether it is as usual.
    for _ in range(CALM + 1):
        assert not bank.may_sleep(1, 50.0, 100.0, True)
        bank.observe([50.0, 50.0 + 2 * FURTHEST], 100.0, True)
    assert bank.may_sleep(1, 50.0, 100.0, True)
    assert not bank.may_sleep(1, 51.0 + FURTHEST, 100.0, True)
    bank.observe([50.0, None], 100.0, True)
    assert bank.behind[1] == FURTHEST
    bank.observe([500.0, 500.0], 100.0, True)
    assert not bank.may_sleep(1, 50.0, 100.0, True)
    bank.behind[1] = FURTHEST - 1
    bank.calm = CALM
    assert not bank.may_sleep(1, 50.0, 100.0, True)
