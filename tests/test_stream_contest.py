"""Streams with several strengths of the penalty, weighted by how they predict."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._kernels import _losses
from sklearn_awsgd._linear.streams import contest as contest_module
from sklearn_awsgd._linear.streams.contest import Contest
from sklearn_awsgd._linear.streams.learner import contradicts
from sklearn_awsgd._linear.streams.problem import StreamProblem

PROBLEM = StreamProblem.of(_losses.LogLoss(), alpha_l2=0.01)


class Scripted:
    """A stream whose coefficients are the strength of its penalty, and a record."""

    def __init__(self):
        self.v, self.strengths = np.zeros(2), []

    def learn(self, problem, X, sizes, y, a, count, balanced):
        self.v = np.array([problem.alpha_l2, 0.0])
        self.strengths.append(problem.alpha_l2)


def feed(contest, X, y, size, problem=PROBLEM, balanced=True):
    """Learn rows in chunks."""
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        rows, a = X[part], np.ones(len(y[part]))
        sizes = (rows * rows).sum(axis=1)
        contest.learn(problem, rows, sizes, y[part], a, a.sum(), balanced)
    return contest


def make_rows(rng, n):
    X = rng.standard_normal((n, 1))
    return X, np.where(rng.random(n) < 0.5, 1.0, -1.0)


def learn_stream(model, X, y, size, **arguments):
    """Return the mean loss of rows before they were learned, and the model."""
    losses = []
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        if start:
            margins = (2 * y[part] - 1) * model.decision_function(X[part])
            losses.append(np.logaddexp(0, -margins).mean())
        model.partial_fit(X[part], y[part], **arguments)
    return np.mean(losses), model


def test_evidence_is_the_loss_of_rows_before_they_were_learned(rng):
    X, y = make_rows(rng, 12)
    contest = feed(Contest(Scripted()), X, y, 4)
    factors = np.array([1.0, *contest_module.OTHERS])
    total, n = np.zeros(5), 4
    for part in (slice(4, 8), slice(8, 12)):
        scores = 0.01 * np.outer(factors, X[part, 0])
        losses = np.logaddexp(0, -y[part] * scores).sum(axis=1)
        total = n / (n + 4) * total + losses
        n += 4
    behind = total + np.append(0, np.full(4, contest_module.HANDICAP))
    behind -= behind.min()
    np.testing.assert_allclose(contest.behind, behind, rtol=1e-12)
    weights = np.exp(-behind) / np.exp(-behind).sum()
    np.testing.assert_allclose(contest.v, [0.01 * weights @ factors, 0])


def test_a_first_chunk_is_evidence_for_its_second_half(rng):
    X, y = make_rows(rng, 40)
    whole = feed(Contest(Scripted()), X, y, 40)
    halves = feed(Contest(Scripted()), X, y, 20)
    assert [len(stream.strengths) for stream in whole.streams] == [2] * 5
    # The first of the two chunks was learned in halves, too.
    assert [len(stream.strengths) for stream in halves.streams] == [3] * 5
    assert whole.n == halves.n == 40
    order = np.argsort(y)
    one_class = feed(Contest(Scripted()), X[order], y[order], 40)
    assert [len(stream.strengths) for stream in one_class.streams] == [1] * 5


def test_scores_of_the_second_half_are_weighted_with_its_evidence(rng):
    """Only of the first chunk; and others have none."""
    X, y = make_rows(rng, 40)
    contest = Contest(Scripted())
    scores = contest.learn(PROBLEM, X, (X * X).sum(axis=1), y, np.ones(40), 40.0)
    weights = np.exp(-contest.behind) / np.exp(-contest.behind).sum()
    factors = 0.01 * np.array(contest.factors)
    np.testing.assert_allclose(scores, (weights @ factors) * X[20:, 0])
    assert contest.learn(PROBLEM, X, y, y, np.ones(40), 40.0) is None
    few = Contest(Scripted())
    assert few.learn(PROBLEM, X[:10], y[:10], y[:10], np.ones(10), 10.0) is None


def test_strengths_are_those_of_a_prior_that_does_not_grow(rng, monkeypatch):
    monkeypatch.setattr(contest_module, "PRIOR_ROWS", 10.0)
    monkeypatch.setattr(contest_module, "HANDICAP", 0.0)
    X, y = make_rows(rng, 50)
    contest = feed(Contest(Scripted()), X, y, 5)
    n = 5.0 * np.arange(1, 11)
    share = np.minimum(1, 10 / n)
    given, weaker, six, *_, constant = (stream.strengths for stream in contest.streams)
    np.testing.assert_allclose(given, np.full(10, 0.01))
    np.testing.assert_allclose(weaker, 0.01 / 6 * share)
    np.testing.assert_allclose(six, 0.01 * np.maximum(6 * share, 1))
    np.testing.assert_allclose(constant, 0.01 * share)


def test_rows_that_are_no_evidence(rng):
    X, y = make_rows(rng, 40)
    contest = feed(Contest(Scripted()), X, y, 4, balanced=False)
    np.testing.assert_array_equal(contest.behind[1:], contest_module.HANDICAP)


def test_the_best_goes_on_alone(rng):
    """After twenty rows for each of its two coefficients, or a thousand."""
    X, y = make_rows(rng, 1010)
    contest = feed(Contest(Scripted()), X[:1000], y[:1000], 10)
    assert contest.is_open
    feed(contest, X[1000:], y[1000:], 10)
    assert not contest.is_open
    assert len(contest.streams) == len(contest.behind) == len(contest.factors) == 1


def test_who_is_far_behind_is_out(rng, monkeypatch):
    """But not before there are rows enough, and what was given may be, too."""
    X = 30 * make_rows(rng, 60)[0]
    for sign, left in ((1, [36.0, 216.0]), (-1, [1.0, 1 / 6])):
        contest = feed(Contest(Scripted()), X, sign * np.sign(X[:, 0]), 10)
        assert len(contest.streams) == 5
        monkeypatch.setattr(contest_module, "ROWS_TO_DROP", 70.0)
        feed(contest, X[:10], sign * np.sign(X[:10, 0]), 10)
        assert contest.factors == left
        monkeypatch.undo()


@pytest.mark.parametrize(
    "settings",
    [
        {"penalty": "l1"},
        {"penalty": "elasticnet", "l1_ratio": 0.5},
        {"penalty": None},
        {"alpha": 0.0},
        {"forgetting": 0.0},
        {"forgetting": 0.01},
    ],
    ids=str,
)
def test_no_contest_where_the_objective_is_given(settings, rng):
    X, y = rng.standard_normal((60, 8)), rng.integers(0, 2, 60)
    clf = AWSGDClassifier(**settings).partial_fit(X, y, classes=[0, 1])
    assert clf._stream.streams[0].factors == [1.0]


def test_no_contest_after_a_fit(rng):
    X, y = rng.standard_normal((60, 8)), rng.integers(0, 2, 60)
    clf = AWSGDClassifier().fit(X, y).partial_fit(X, y)
    assert clf._stream.streams[0].factors == [1.0]


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("size", [20, 200])
@pytest.mark.parametrize("d", [50, 500])
def test_few_rows_for_many_features(d, size, layout, rng):
    """Where most features are noise a stronger penalty predicts better."""
    X = rng.standard_normal((600, d))
    y = (rng.random(600) < expit(2 * X[:, 0])).astype(int)
    X = layout(X)
    alone, _ = learn_stream(AWSGDClassifier(forgetting=0), X, y, size, classes=[0, 1])
    several, clf = learn_stream(AWSGDClassifier(), X, y, size, classes=[0, 1])
    assert several < 0.9 * alone
    contest = clf._stream.streams[0]
    assert contest.factors[contest.behind.argmin()] > 1


def test_softmax_and_several_problems(rng):
    """Each problem has its own strength."""
    X = rng.standard_normal((600, 300))
    scores = 2 * X[:, :3] + rng.gumbel(size=(600, 3))
    y = scores.argmax(axis=1)
    for loss, n_problems in {"multinomial": 1, "log_loss": 3}.items():
        models = AWSGDClassifier(loss), AWSGDClassifier(loss, forgetting=0)
        for start in range(0, 500, 100):
            part = slice(start, start + 100)
            for model in models:
                model.partial_fit(X[part], y[part], classes=[0, 1, 2])
        rows = np.arange(500, 600)
        losses = [
            -np.log(model.predict_proba(X[rows])[np.arange(100), y[rows]]).mean()
            for model in models
        ]
        assert losses[0] < losses[1]
        assert len(models[0]._stream.streams) == n_problems


def test_regression(rng):
    """Squared errors are evidence relative to their mean: any unit will do."""
    X = rng.standard_normal((100, 40))
    y = X[:, 0] + rng.standard_normal(100)
    errors = {}
    for unit in (1.0, 1000.0):
        for forgetting in ("auto", 0.0):
            model = AWSGDRegressor(forgetting=forgetting)
            for start in range(0, 60, 20):
                part = slice(start, start + 20)
                model.partial_fit(X[part], unit * y[part])
            error = model.predict(X[60:]) / unit - y[60:]
            errors[unit, forgetting] = np.mean(error**2)
    assert errors[1.0, "auto"] < errors[1.0, 0.0]
    np.testing.assert_allclose(errors[1000.0, "auto"], errors[1.0, "auto"], rtol=1e-4)


@pytest.mark.parametrize("d", [30, 300])
def test_a_contest_goes_on_bit_by_bit_from_a_pickle(d, rng):
    X = rng.standard_normal((1500, d))
    y = (rng.random(1500) < expit(X[:, 0])).astype(int)
    one = AWSGDClassifier(random_state=0)
    two = AWSGDClassifier(random_state=0)
    for start in range(0, 1500, 100):
        part = slice(start, start + 100)
        one.partial_fit(X[part], y[part], classes=[0, 1])
        two = pickle.loads(pickle.dumps(two))
        two.partial_fit(X[part], y[part], classes=[0, 1])
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_merging_ends_the_contest(rng):
    X = rng.standard_normal((30, 30))
    y = (rng.random(30) < expit(X[:, 0])).astype(int)
    one = AWSGDClassifier().partial_fit(X[:15], y[:15], classes=[0, 1])
    other = AWSGDClassifier().partial_fit(X[15:], y[15:], classes=[0, 1])
    assert len(other._stream.streams[0].streams) > 1
    one.merge(other)
    contest = one._stream.streams[0]
    assert len(contest.streams) == 1
    assert contest.n == 30
    one.partial_fit(X, y)
    assert np.isfinite(one.coef_).all()


@pytest.mark.parametrize("n_columns", [5, 250])
def test_a_stream_that_turns_begins_anew(n_columns, rng):
    n = 6000
    X = rng.standard_normal((n, n_columns))
    sign = np.where(np.arange(n) < 4000, 2, -2)
    y = (sign * X[:, :4].sum(axis=1) + rng.logistic(size=n) > 0).astype(int)
    turned, fresh = AWSGDClassifier(random_state=0), AWSGDClassifier(random_state=0)
    kept = AWSGDClassifier(forgetting=0.0, random_state=0)
    losses = {turned: [], fresh: [], kept: []}
    for start in range(0, n, 500):
        part = slice(start, start + 500)
        for clf, found in losses.items():
            if start >= 4500:
                p = clf.predict_proba(X[part])[np.arange(500), y[part]]
                found.append(-np.log(p).mean())
            if start >= 4000 or clf is not fresh:
                clf.partial_fit(X[part], y[part], classes=[0, 1])
    assert np.mean(losses[turned]) < 1.02 * np.mean(losses[fresh])
    # It is a default that forgets, and what was lost is on record.
    assert np.mean(losses[kept]) > 1.5 * np.mean(losses[fresh])
    history = turned.history_
    assert history["objective"][history["draws"] == 4500] > 1


def test_scores_contradict_only_what_they_oppose(rng):
    scores, noise = rng.standard_normal((2, 400))
    assert contradicts(scores, np.where(noise > scores, 1.0, -1.0))
    assert contradicts(scores, noise - scores)
    assert not contradicts(scores, np.where(noise > -scores, 1.0, -1.0))
    assert not contradicts(scores[:40], -scores[:40])
    assert not contradicts(scores, np.ones(400))
    assert not any(contradicts(scores, rng.standard_normal(400)) for _ in range(1000))
    # One row far away is no evidence.
    scores[0], targets = 1e6, np.where(noise > 0, 1.0, -1.0)
    targets[0] = -1.0
    assert not contradicts(scores, targets)
