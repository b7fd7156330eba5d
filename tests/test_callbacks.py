"""Progress: scikit-learn's callbacks, and what `verbose` prints."""

import copy
import pickle
import re
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDPolicyGradient,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd.datasets import GridWorld

try:
    from sklearn.callback import ProgressBar, ScoringMonitor
except ImportError:
    ScoringMonitor = None

needs_callbacks = pytest.mark.skipif(
    ScoringMonitor is None, reason="this scikit-learn has no callbacks"
)


class Witness:
    """Writes down what it is told; asks for an end after some passes."""

    def __init__(self, last=None, names=("pass",)):
        self.last, self.names = last, names
        self.told, self.models, self.open, self.given = [], [], [], []

    def setup(self, estimator, context):
        self.told.append("setup")

    def teardown(self, estimator, context):
        self.told.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.told.append(("begin", context.task_name, context.task_id))
        self.open.append(context)

    def on_fit_task_end(
        self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator
    ):
        self.told.append(("end", context.task_name, context.task_id))
        self.open.remove(context)
        self.given.append((X, y, metadata))
        if context.task_name in self.names:
            self.models.append(fitted_estimator)
            return len(self.models) == self.last
        return False


class Failing(Witness):
    """Fails in the middle of a fit."""

    def on_fit_task_end(self, estimator, context):
        raise RuntimeError("no more")


@pytest.fixture(scope="module")
def rare():
    return make_classification(3000, weights=[0.9], random_state=0)


def holes(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 40))
    return np.where(rng.random(X.shape) < 0.3, np.nan, X)


def test_versions_without_callbacks_have_no_set_callbacks():
    assert hasattr(AWSGDClassifier(), "set_callbacks") == (ScoringMonitor is not None)


@needs_callbacks
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"learning_rate": "adagrad", "max_iter": 3, "tol": None},
        {"penalty": "l1"},
        {"loss": "hinge"},
        {"average": True, "max_iter": 3, "tol": None},
    ],
)
def test_passes_are_told_one_by_one(rare, params):
    X, y = rare
    witness = Witness()
    clf = AWSGDClassifier(random_state=0, **params).set_callbacks(witness)
    weights = np.ones(len(y))
    clf.fit(X, y, sample_weight=weights)
    assert witness.told[0] == "setup"
    assert witness.told[-1] == "teardown"
    assert not witness.open
    passes = [("begin", "pass", k) for k in range(clf.n_iter_)]
    assert [t for t in witness.told if t[:2] == ("begin", "pass")] == passes
    for got_X, got_y, metadata in witness.given:
        assert got_X is X
        assert got_y is y
        assert metadata == {"sample_weight": weights}
    # The model of a pass is that pass's: the last is the result, the first is not.
    assert_allclose(witness.models[-1].coef_, clf.coef_, rtol=1e-12)
    assert_allclose(witness.models[-1].predict(X), clf.predict(X))
    assert not np.allclose(witness.models[0].coef_, clf.coef_)
    same = clone(clf).set_callbacks().fit(X, y)
    assert_array_equal(same.coef_, clf.coef_)
    assert_array_equal(pickle.loads(pickle.dumps(clf)).coef_, clf.coef_)


@needs_callbacks
@pytest.mark.parametrize("shape", [(40, 3200), (400, 3200)])
def test_passes_over_wide_data_are_told_in_its_own_coordinates(shape):
    # Few rows are trained in their span; more by dual steps.
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape)
    y = (X[:, 0] > 0).astype(int)
    witness = Witness()
    clf = AWSGDClassifier(alpha=0.1, random_state=0).set_callbacks(witness).fit(X, y)
    assert [model.coef_.shape for model in witness.models] == [(1, 3200)] * len(
        witness.models
    )
    assert_allclose(witness.models[-1].coef_, clf.coef_, rtol=1e-6, atol=1e-12)


@needs_callbacks
def test_problems_are_told_by_the_names_of_their_classes():
    X, y = load_iris(return_X_y=True, as_frame=True)
    y = y.map({0: "setosa", 1: "versicolor", 2: "virginica"})
    results = {}
    for n_jobs in (1, 2):
        witness = Witness(names=("class setosa",))
        clf = AWSGDClassifier(random_state=0, n_jobs=n_jobs).set_callbacks(witness)
        results[n_jobs] = clf.fit(X, y).coef_
        told = [t[1] for t in witness.told if t[0] == "end" and t[1] != "pass"]
        assert sorted(told[:-1]) == [f"class {name}" for name in clf.classes_]
        assert told[-1] == "fit"
        assert not witness.open
        assert_allclose(witness.models[0].coef_[0], clf.coef_[0])
    assert_array_equal(results[1], results[2])


@needs_callbacks
@pytest.mark.parametrize(
    "params", [{}, {"learning_rate": "adagrad"}, {"penalty": "l1"}]
)
def test_a_callback_stops_a_fit(rare, params):
    X, y = rare
    witness = Witness(last=2)
    clf = AWSGDClassifier(random_state=0, tol=1e-9, **params).set_callbacks(witness)
    clf.fit(X, y)  # without a warning: the tolerance was not to be reached
    assert clf.n_iter_ in (2, 3)  # a descent may have to look where it is
    assert clf.score(X, y) > 0.8


@needs_callbacks
def test_a_callback_stops_the_problems_that_have_not_begun():
    X, y = load_iris(return_X_y=True)
    witness = Witness(last=1, names=("class 0",))
    clf = AWSGDClassifier(random_state=0).set_callbacks(witness).fit(X, y)
    whole = AWSGDClassifier(random_state=0).fit(X, y)
    assert_array_equal(clf.coef_[0], whole.coef_[0])
    assert not np.allclose(clf.coef_[1], whole.coef_[1])


@needs_callbacks
def test_failures_tear_callbacks_down_and_leave_the_estimator_as_it_was(rare):
    X, y = rare
    clf = AWSGDClassifier(random_state=0).fit(X, y)
    before, failing = dict(vars(clf)), Failing()
    clf.set_callbacks(failing)
    with pytest.raises(RuntimeError, match="no more"):
        clf.fit(X, y)
    assert failing.told[-1] == "teardown"
    clf.set_callbacks()
    assert vars(clf) == before


@needs_callbacks
def test_copies_tell_the_callbacks_of_the_original(rare):
    witness = Witness()
    clf = AWSGDClassifier(random_state=0).set_callbacks(witness)
    for other in (clone(clf), clone(clone(clf)), copy.copy(clf)):
        n_told = len(witness.told)
        other.fit(*rare)
        assert len(witness.told) > n_told
    n_told = len(witness.told)
    clone(clf.set_callbacks()).fit(*rare)
    assert len(witness.told) == n_told


@needs_callbacks
def test_streams_tell_nobody(rare):
    X, y = rare
    witness = Witness()
    AWSGDClassifier().set_callbacks(witness).partial_fit(X, y, classes=[0, 1])
    AWSGDMatrixFactorization(2).set_callbacks(witness).partial_fit(holes())
    assert witness.told == []


@needs_callbacks
def test_scores_of_each_pass(rare):
    X, y = rare
    monitor = ScoringMonitor(scoring="neg_log_loss")
    clf = AWSGDClassifier(random_state=0).set_callbacks(monitor).fit(X, y)
    rows = monitor.get_logs().data
    scores = [row["neg_log_loss"] for row in rows if row["task_name"] == "pass"]
    assert len(scores) == clf.n_iter_
    assert scores[-1] > scores[0]
    monitor = ScoringMonitor(scoring="r2")
    AWSGDRegressor(random_state=0).set_callbacks(monitor).fit(X, X[:, 0])
    assert monitor.get_logs().data[-1]["r2"] > 0.99


@needs_callbacks
def test_inside_pipelines_and_searches_nothing_warns(rare):
    pytest.importorskip("rich")
    X, y = rare
    pipeline = make_pipeline(StandardScaler(), AWSGDClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"awsgdclassifier__alpha": [1e-4, 1e-2]}, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.set_callbacks(ProgressBar(max_propagation_depth=None)).fit(X, y)
    witness = Witness()
    witness.max_propagation_depth = None
    search.set_callbacks(witness).fit(X, y)
    assert sum(t == ("begin", "pass", 0) for t in witness.told) == 5


@needs_callbacks
def test_factorizations_tell_of_passes_and_of_exact_solutions():
    for X in (holes(), np.nan_to_num(holes())):
        witness = Witness()
        model = AWSGDMatrixFactorization(3, random_state=0).set_callbacks(witness)
        model.fit(X)
        assert_array_equal(witness.models[-1].components_, model.components_)
        assert_array_equal(witness.models[-1].transform(X), model.transform(X))
        assert not np.allclose(witness.models[0].components_, model.components_)
        for last in (1, 3):
            witness = Witness(last)
            model = AWSGDMatrixFactorization(3, random_state=0, tol=0)
            model.set_callbacks(witness).fit(X)
            assert len(witness.models) == last


@needs_callbacks
def test_importance_estimates_tell_of_rounds(rare):
    X, y = rare
    model = LogisticRegression().fit(X[:500], y[:500])
    settings = {"rtol": 0.02, "max_evaluations": 2500, "random_state": 0}
    witness = Witness(names=("rounds",))
    whole = MinVarianceImportanceEstimator(model, "log_loss", **settings)
    whole.set_callbacks(witness).fit(X, y)
    seen = [model.n_evaluations_ for model in witness.models]
    assert seen == sorted(seen)
    assert seen == whole.history_["evaluations"].tolist()
    low, high = witness.models[0].confidence_interval_
    assert high - low > np.ptp(whole.confidence_interval_)
    witness = Witness(last=2, names=("rounds",))
    part = MinVarianceImportanceEstimator(model, "log_loss", **settings)
    part.set_callbacks(witness).fit(X, y)
    assert part.status_ == "stopped"
    assert part.n_evaluations_ == seen[1] < whole.n_evaluations_
    assert witness.told[-1] == "teardown"


@needs_callbacks
def test_policies_tell_of_episodes():
    witness = Witness(names=("episodes",))
    model = AWSGDPolicyGradient(n_episodes=200, random_state=0).set_callbacks(witness)
    model.fit(GridWorld())
    assert [m.n_episodes_ for m in witness.models] == list(range(4, 201, 4))
    assert_array_equal(witness.models[-1].policy_, model.policy_)
    first = witness.models[0]
    assert_array_equal(first.predict_proba([0, 1]), first.policy_[:2])
    witness = Witness(last=3, names=("episodes",))
    model.set_callbacks(witness).fit(GridWorld())
    assert model.n_episodes_ == 12


def lines_of(capsys):
    return capsys.readouterr().out.splitlines()


def test_verbose_tells_pass_seconds_objective_gap_and_target(rare, capsys):
    X, y = rare
    clf = AWSGDClassifier(random_state=0, verbose=1).fit(X, y)
    lines = lines_of(capsys)
    assert len(lines) == clf.n_iter_
    number = r"[\d.e+-]+"
    sampled = f"pass 1, {number} s: objective {number}, target {number}, variance gain"
    assert re.match(sampled, lines[0])
    exact = re.fullmatch(
        rf"pass (\d+), {number} s: objective ({number}), gap ({number}), "
        rf"target ({number})",
        lines[-1],
    )
    assert int(exact[1]) == clf.n_iter_
    assert_allclose(float(exact[2]), clf.history_["objective"][-1], rtol=1e-6)
    assert_allclose(float(exact[3]), clf.duality_gap_[0], rtol=0.01)
    assert_allclose(float(exact[4]), clf.tol * float(exact[2]), rtol=0.01)


def test_verbose_names_problems(capsys):
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    AWSGDClassifier(random_state=0, verbose=1).fit(X, names[y])
    lines = lines_of(capsys)
    for name in names:
        assert any(line.startswith(f"class {name}, pass 1, ") for line in lines)
    AWSGDClassifier(random_state=0, verbose=1).fit(X, np.eye(3, dtype=int)[y])
    assert any(line.startswith("label 2, pass 1, ") for line in lines_of(capsys))


def test_verbose_of_a_stream_names_problems(capsys):
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])
    clf = AWSGDClassifier(random_state=0, verbose=1)
    clf.partial_fit(X, names[y], classes=names)
    for line, name, loss in zip(
        lines_of(capsys), names, clf.history_["objective"], strict=True
    ):
        match = re.fullmatch(rf"class {name}, 150 rows, [\d.]+ s: loss (\S+)", line)
        assert_allclose(float(match[1]), loss, rtol=1e-5)
    AWSGDRegressor(random_state=0, verbose=1).partial_fit(X, y)
    assert lines_of(capsys)[0].startswith("150 rows, ")


def test_verbose_of_plain_steps_tells_the_least_fall(rare, capsys):
    AWSGDClassifier(learning_rate="adagrad", random_state=0, verbose=1).fit(*rare)
    assert all(", least fall " in line for line in lines_of(capsys))


def test_verbose_of_a_factorization_tells_that_a_trial_is_one(capsys):
    model = AWSGDMatrixFactorization(3, random_state=0, verbose=1).fit(holes())
    lines = lines_of(capsys)
    assert re.match(r"trial of learned draws, [\d.]+ s: variance gain", lines[0])
    # Two passes of draws, a solution for the rows, and rounds of two passes each.
    assert len(lines) == 1 + 2 + 1 + (model.n_iter_ - 3) // 2
    assert lines[-1].startswith(f"pass {model.n_iter_}, ")


def test_verbose_of_an_estimate_tells_half_width_and_target(rare, capsys):
    X, y = rare
    model = LogisticRegression().fit(X[:500], y[:500])
    result = MinVarianceImportanceEstimator(
        model, "log_loss", rtol=0.3, max_evaluations=2000, random_state=0, verbose=1
    ).fit(X, y)
    last = lines_of(capsys)[-1]
    match = re.match(r"(\d+) of at most 2000 evaluations, .* half width (\S+), ", last)
    assert int(match[1]) == result.n_evaluations_
    half = np.ptp(result.confidence_interval_) / 2
    assert_allclose(float(match[2]), half, rtol=0.06)
    target = float(last.split()[-1])
    assert_allclose(target, 0.3 * result.estimate_, rtol=0.06)
