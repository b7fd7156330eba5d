"""Losses with kinks: rows next to a kink, and the lines of all others."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn_awsgd._kernels._losses import EpsilonInsensitive, Hinge

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._linear.active_rows import ActiveRows
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd._linear.phases import kinks
from sklearn_awsgd._linear.sums import LinearSums
from sklearn_awsgd.sources import IndexedRows


def rare(n=20_000, d=8):
    """Return rows and labels, a few of a hundred of which are positive."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    z = 2 * X @ rng.standard_normal(d) / np.sqrt(d) - 3
    return X, rng.random(n) < 1 / (1 + np.exp(-z))


@pytest.mark.parametrize("loss", [Hinge(1.0), EpsilonInsensitive(0.3)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", [np.ascontiguousarray, sparse.csr_array])
def test_sums_with_lines(loss, weighted, form):
    """As exact where no row leaves its line, and nowhere above the rows as they are."""
    rng = np.random.default_rng(1)
    n, d = 9000, 4
    X = rng.standard_normal((n, d))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    mass = rng.random(n) if weighted else None
    mass = mass / mass.sum() if weighted else None
    norms2 = np.sum(X**2, axis=1)
    v, width = rng.standard_normal(d + 1), 0.01
    sums = LinearSums(Blocks(form(X)), loss, y, mass, norms2)
    active = ActiveRows(sums, [v], reach=0.5)
    assert 0 < active.n_rows < n
    some = active.make_sums(loss.rounded(width))
    all_rows = LinearSums(Blocks(form(X)), loss.rounded(width), y, mass, norms2)
    # No row leaves its line; rounding adds exp(-reach / width) there.
    near = v + 1e-3 * rng.standard_normal(d + 1)
    (slopes, totals, _), (expected, expected_totals, _) = (
        sums.evaluate(near) for sums in (some, all_rows)
    )
    assert_allclose(slopes, expected, atol=1e-10)
    assert_allclose(totals[:, :2], expected_totals[:, :2], atol=1e-10)
    # What lines could spare is left out.
    assert (totals[:, 2] <= expected_totals[:, 2]).all()
    for far in rng.standard_normal((10, d + 1)):
        ours, theirs = some.evaluate(far)[1], all_rows.evaluate(far)[1]
        assert ours[:, 0].sum() <= theirs[:, 0].sum() + 1e-12
    # Rows that cross a kink between two points are active.
    both = ActiveRows(sums, [v, far], reach=0.5).make_sums(loss.rounded(width))
    assert_allclose(both.evaluate(far)[1][:, 0].sum(), theirs[:, 0].sum(), atol=1e-10)


def count_active(monkeypatch):
    """Return a list of the numbers of active rows of each time they are looked for."""
    found = []

    class Counted(ActiveRows):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            found.append(self.n_rows)

    monkeypatch.setattr(kinks, "ActiveRows", Counted)
    return found


@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-4])
def test_most_rows_are_not_looked_at_in_most_passes(tol, monkeypatch):
    found = count_active(monkeypatch)
    X, y = rare()
    settings = {"alpha": 1e-3, "tol": tol, "random_state": 0}
    models = []
    for _ in range(2):
        model = AWSGDClassifier("hinge", penalty="elasticnet", l1_ratio=0.3, **settings)
        models.append(model.fit(X, y))
        monkeypatch.setattr(kinks, "MANY_NUMBERS", np.inf)
    assert found[-1] < len(y) / 4
    some, every = (model.history_["objective"][-1] for model in models)
    assert_allclose(some, every, rtol=tol)


@pytest.mark.parametrize("reach", [0.5, 0.01])
def test_rows_that_were_missed_are_found(reach, monkeypatch):
    """Too few rows are active at first: what they leave out is seen, or told."""
    X, y = rare()
    model = AWSGDClassifier("hinge", penalty="l1", alpha=1e-3, tol=1e-4, random_state=0)
    expected = model.fit(X, y).history_["objective"][-1]
    monkeypatch.setattr(kinks, "REACH", reach)
    monkeypatch.setattr(kinks, "ACTIVE_PER_COLUMN", 1)
    found = count_active(monkeypatch)
    model.fit(X, y)
    # More of them where others had left their lines.
    assert max(np.diff(found)) > len(y) / 2
    assert model.history_["objective"][-1] <= expected * (1 + 1e-4)
    short = clone(model).set_params(max_iter=30)
    with pytest.warns(ConvergenceWarning, match="tol=0.0001 was not reached"):
        short.fit(X, y)
    excess = short.history_["objective"][-1] - expected
    assert 1e-4 * expected < excess <= short.duality_gap_[0]


def test_residuals_next_to_a_kink(monkeypatch):
    found = count_active(monkeypatch)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 8))
    y = X @ rng.standard_normal(8) + rng.standard_t(3, size=len(X))
    values = []
    for _ in range(2):
        model = AWSGDRegressor("epsilon_insensitive", penalty=None, random_state=0)
        values.append(model.fit(X, y).history_["objective"][-1])
        monkeypatch.setattr(kinks, "MANY_NUMBERS", np.inf)
    assert found
    assert_allclose(*values, rtol=1e-3)


@pytest.mark.parametrize(
    "form",
    [sparse.csr_array, lambda X: X.astype(np.float32), IndexedRows],
    ids=["csr", "float32", "source"],
)
def test_forms_of_rows(form):
    X, y = rare()
    X = X.astype(np.float32).astype(float)
    here = AWSGDClassifier("hinge", penalty="l1", random_state=0).fit(X, y)
    there = AWSGDClassifier("hinge", penalty="l1", random_state=0).fit(form(X), y)
    values = [model.history_["objective"][-1] for model in (here, there)]
    assert_allclose(*values, rtol=2e-3)


def test_weights_and_warm_starts():
    X, y = rare()
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    twice = np.repeat(np.arange(len(y)), weight)
    model = AWSGDClassifier("hinge", penalty="l1", tol=1e-4, random_state=0)
    weighted = model.fit(X, y, sample_weight=weight).history_["objective"][-1]
    repeated = model.fit(X[twice], y[twice]).history_["objective"][-1]
    assert_allclose(weighted, repeated, rtol=2e-4)
    n_iter = model.n_iter_
    model.set_params(warm_start=True).fit(X[twice], y[twice])
    assert_allclose(model.history_["objective"][-1], repeated, rtol=2e-4)
    assert model.n_iter_ < 3 * n_iter
    balanced = AWSGDClassifier("hinge", class_weight="balanced", random_state=0)
    assert balanced.fit(X, y).predict(X)[y].mean() > 0.5
