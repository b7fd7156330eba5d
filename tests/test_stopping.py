"""When training stops: held-out scores, standing still, and what the history says."""

import copy
import math
import pickle

import numpy as np
import pytest
from helpers import log_loss
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    make_scorer,
    r2_score,
)
from sklearn.model_selection import train_test_split

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._linear.data import frequent_labels, keep_labels
from sklearn_awsgd._linear.phases.newton import NewtonDirection
from sklearn_awsgd._solver.stopping import StopRule, ValidationStop
from sklearn_awsgd.samplers import LevelSampler, StrataSampler


def stopping(seed, **parameters):
    """A classifier that stops by held-out data, whose scores go up and down."""
    plain = {
        "early_stopping": True,
        "learning_rate": "constant",
        "eta0": 0.3,
        "sampler": "uniform",
        "max_iter": 60,
        "n_iter_no_change": 4,
        "random_state": seed,
    }
    return AWSGDClassifier(**{**plain, **parameters})


def scores(estimator, problem=0):
    """Return the validation score of each pass."""
    history = estimator.history_
    found = history["validation_score"][history["problem"] == problem]
    return found[~np.isnan(found)]


def passes_until_stop(found, tol, n_iter_no_change):
    """The rule of the documentation on a sequence of scores."""
    best, stalled = -np.inf, 0
    for k, score in enumerate(found):
        if score > best + tol:
            best, stalled = score, 0
        else:
            stalled += 1
        if stalled >= n_iter_no_change:
            return k + 1
    return None


SCORERS = {
    None: lambda clf, X, y: accuracy_score(y, clf.predict(X)),
    "average_precision": lambda clf, X, y: average_precision_score(
        y, clf.decision_function(X)
    ),
    make_scorer(accuracy_score): lambda clf, X, y: accuracy_score(y, clf.predict(X)),
}
each_scoring = pytest.mark.parametrize(
    "scoring", SCORERS, ids=["accuracy", "average_precision", "callable"]
)


@each_scoring
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_the_best_coefficients_are_restored(scoring, layout, imbalanced, seed):
    X, y = imbalanced
    held = np.arange(len(y)) % 3 == 0
    clf = stopping(seed, early_stopping=False, scoring=scoring, tol=0.0)
    clf.fit(layout(X[~held]), y[~held], X_val=layout(X[held]), y_val=y[held])
    found = scores(clf)
    assert len(found) == clf.n_iter_
    assert len(np.unique(found)) > 1
    reached = SCORERS[scoring](clf, X[held], y[held])
    np.testing.assert_allclose(reached, found.max(), rtol=1e-12)
    assert passes_until_stop(found, 0.0, 4) == clf.n_iter_


@pytest.mark.parametrize("n_iter_no_change", [1, 3, 10])
@pytest.mark.parametrize("tol", [0.0, 1e-3, 0.05])
def test_training_stops_when_the_score_stalls(tol, n_iter_no_change, imbalanced, seed):
    clf = stopping(
        seed, tol=tol, n_iter_no_change=n_iter_no_change, scoring="average_precision"
    ).set_params(max_iter=200)
    clf.fit(*imbalanced)
    assert passes_until_stop(scores(clf), tol, n_iter_no_change) == clf.n_iter_ < 200


def test_tol_none_makes_all_passes_and_keeps_the_best(imbalanced, seed):
    X, y = imbalanced
    clf = stopping(seed, tol=None, max_iter=12).fit(X, y, X_val=X, y_val=y)
    assert clf.n_iter_ == len(scores(clf)) == 12
    np.testing.assert_allclose(clf.score(X, y), scores(clf).max())


def test_scores_that_go_on_rising_are_a_warning(imbalanced, seed):
    clf = stopping(seed, max_iter=2, n_iter_no_change=5)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        clf.fit(*imbalanced)


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_a_part_in_proportion_is_held_out(fraction, imbalanced, seed):
    """What is trained on is the rest: the draws count its rows."""
    X, y = imbalanced
    clf = stopping(seed, validation_fraction=fraction, count_draws=True).fit(X, y)
    train, held = train_test_split(
        np.arange(len(y)),
        test_size=fraction,
        random_state=np.random.RandomState(seed),
        stratify=y,
    )
    assert clf.draw_counts_.shape == (1, len(train))
    np.testing.assert_allclose(y[held].mean(), y.mean(), atol=1 / len(held))
    # The same rows given by hand are the same fit.
    again = stopping(seed, early_stopping=False, count_draws=True)
    again.fit(X[train], y[train], X_val=X[held], y_val=y[held])
    np.testing.assert_array_equal(clf.coef_, again.coef_)
    np.testing.assert_array_equal(clf.draw_counts_, again.draw_counts_)


def test_weights_and_strata_are_held_out_with_their_rows(imbalanced, seed, rng):
    X, y = imbalanced
    weight, strata = rng.uniform(0.5, 2, len(y)), rng.choice(list("ab"), len(y))
    train, held = train_test_split(
        np.arange(len(y)),
        test_size=0.1,
        random_state=np.random.RandomState(seed),
        stratify=y,
    )
    clf = stopping(seed, sampler="strata").fit(
        X, y, sample_weight=weight, strata=strata
    )
    again = stopping(seed, sampler="strata", early_stopping=False).fit(
        X[train],
        y[train],
        sample_weight=weight[train],
        strata=strata[train],
        X_val=X[held],
        y_val=y[held],
        sample_weight_val=weight[held],
    )
    np.testing.assert_array_equal(clf.coef_, again.coef_)
    np.testing.assert_allclose(scores(clf), scores(again), rtol=1e-12)


def test_validation_weights_weigh_the_score(imbalanced, seed, rng):
    X, y = imbalanced
    weight = rng.integers(0, 5, len(y)).astype(float)
    clf = stopping(seed, early_stopping=False, tol=0.0)
    clf.fit(X, y, X_val=X, y_val=y, sample_weight_val=weight)
    reached = accuracy_score(y, clf.predict(X), sample_weight=weight)
    np.testing.assert_allclose(scores(clf).max(), reached)
    plain = stopping(seed, early_stopping=False, tol=0.0).fit(X, y, X_val=X, y_val=y)
    n = min(len(scores(clf)), len(scores(plain)))
    assert (scores(clf)[:n] != scores(plain)[:n]).any()


def test_each_of_several_classes_is_scored_by_itself(three_classes, seed):
    X, y = three_classes
    clf = stopping(seed, scoring="average_precision", tol=0.0, early_stopping=False)
    clf.fit(X, y, X_val=X, y_val=y)
    for k, label in enumerate(clf.classes_):
        reached = average_precision_score(y == label, clf.decision_function(X)[:, k])
        np.testing.assert_allclose(scores(clf, k).max(), reached)


def test_softmax_is_scored_as_one(three_classes, seed):
    X, y = three_classes
    clf = stopping(seed, loss="multinomial", tol=0.0).fit(X, y, X_val=X, y_val=y)
    np.testing.assert_allclose(scores(clf).max(), clf.score(X, y))


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_indicators_are_scored_label_by_label(layout, seed, rng):
    X = rng.standard_normal((200, 3))
    Y = (X[:, :2] + rng.logistic(size=(200, 2)) > 0).astype(int)
    clf = stopping(seed, scoring="average_precision", tol=0.0, early_stopping=False)
    clf.fit(X, layout(Y), X_val=X, y_val=layout(Y))
    for k in range(2):
        reached = average_precision_score(Y[:, k], clf.decision_function(X)[:, k])
        np.testing.assert_allclose(scores(clf, k).max(), reached)


def test_a_regressor_is_scored_by_r2(seed, rng):
    X = rng.standard_normal((300, 5))
    y = X @ [1.0, 2, 0, 0, -1] + rng.standard_normal(300)
    reg = AWSGDRegressor(
        learning_rate="constant", eta0=0.05, max_iter=50, tol=0.0, random_state=seed
    )
    reg.fit(X[:200], y[:200], X_val=X[200:], y_val=y[200:])
    reached = r2_score(y[200:], reg.predict(X[200:]))
    np.testing.assert_allclose(scores(reg).max(), reached)
    held = AWSGDRegressor(early_stopping=True, random_state=seed).fit(X, y)
    assert held.score(X, y) > 0.7
    assert len(scores(held)) == held.n_iter_


def test_auto_with_early_stopping_makes_steps_only(imbalanced, seed):
    clf = AWSGDClassifier(early_stopping=True, random_state=seed).fit(*imbalanced)
    assert set(clf.history_["phase"]) == {"sampling"}
    assert np.isinf(clf.duality_gap_).all()


def test_averages_are_restored_too(imbalanced, seed):
    """The mean over the steps belongs to the pass that scored best."""
    X, y = imbalanced
    clf = stopping(seed, average=True, tol=None, max_iter=10)
    clf.fit(X, y, X_val=X, y_val=y)
    # Of equal scores the latest, and it is the mean that is scored.
    best = np.flatnonzero(scores(clf) == scores(clf).max())[-1]
    assert clf.score(X, y) == scores(clf).max()
    shorter = stopping(seed, average=True, tol=None, max_iter=int(best) + 1)
    shorter.fit(X, y, X_val=X, y_val=y)
    np.testing.assert_allclose(clf.coef_, shorter.coef_, rtol=1e-12)


def test_rare_classes_can_be_held_out(seed, rng):
    """A class too small for a share of its own is no error."""
    X = rng.standard_normal((60, 3))
    y = np.zeros(60, dtype=int)
    y[:3] = 1
    clf = stopping(seed, tol=None, max_iter=3)
    clf.fit(np.tile(X, (2, 1)), np.tile(y, 2))
    assert np.isfinite(clf.coef_).all()


@pytest.mark.parametrize("split", range(20))
def test_no_class_is_held_out_as_a_whole(split, rng):
    X = rng.standard_normal((60, 3))
    y = np.array(["a"] * 40 + ["b"] * 19 + ["c"])
    clf = stopping(split, tol=None, max_iter=2).fit(X, y)
    assert list(clf.classes_) == ["a", "b", "c"]
    train, held = keep_labels(y, np.arange(59), np.array([59]))
    assert 59 in train
    assert len(held) == 0


def test_classes_with_rows_enough_are_still_held_out_in_proportion():
    y = np.array([0] * 60 + [1] * 30 + [2])
    np.testing.assert_array_equal(frequent_labels(y, 0.1), [0] * 60 + [1] * 30 + [0])


def test_names_of_features_are_no_warning(imbalanced, seed):
    pandas = pytest.importorskip("pandas")
    X, y = imbalanced
    frame = pandas.DataFrame(X, columns=list("abcde"))
    clf = stopping(seed, tol=None, max_iter=2).fit(frame, y)
    assert list(clf.feature_names_in_) == list("abcde")


@pytest.mark.parametrize("n_strata", [399, 401])
def test_strata_of_another_length(n_strata, imbalanced, seed):
    clf = stopping(seed, tol=None, max_iter=2, sampler="strata")
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clf.fit(*imbalanced, strata=np.zeros(n_strata))


def test_time_that_is_over_is_a_warning(imbalanced, seed):
    clf = AWSGDClassifier(
        learning_rate="adagrad", tol=None, max_iter=10**6, max_time=0.05
    )
    with pytest.warns(ConvergenceWarning, match=r"max_time=0.05 seconds were over"):
        clf.fit(*imbalanced)


BAD_ARGUMENTS = {
    "X_val alone": ({"X_val": np.zeros((3, 5))}, "X_val and y_val go together"),
    "y_val alone": ({"y_val": [0, 1]}, "X_val and y_val go together"),
    "features": ({"X_val": np.zeros((2, 4)), "y_val": [0, 1]}, "4 features"),
    "lengths": ({"X_val": np.zeros((3, 5)), "y_val": [0, 1]}, "inconsistent"),
    "NaN": ({"X_val": np.full((2, 5), np.nan), "y_val": [0, 1]}, "NaN"),
    "weights": (
        {"X_val": np.zeros((2, 5)), "y_val": [0, 1], "sample_weight_val": [1.0]},
        "inconsistent",
    ),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_validation_data(name, imbalanced, seed):
    arguments, match = BAD_ARGUMENTS[name]
    clf = stopping(seed, tol=None, max_iter=2).fit(*imbalanced)
    before = pickle.dumps(clf)
    with pytest.raises(ValueError, match=match):
        clf.fit(*imbalanced, **arguments)
    assert pickle.dumps(clf) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("validation_fraction", 0.0),
        ("validation_fraction", 1.5),
        ("scoring", "nothing"),
    ],
)
def test_bad_parameters(name, value, imbalanced, seed):
    with pytest.raises(ValueError, match=str(value)):
        stopping(seed, **{name: value}).fit(*imbalanced)


def test_too_few_rows_to_hold_out(seed):
    with pytest.raises(ValueError, match=r"train set|class"):
        stopping(seed, validation_fraction=0.99).fit([[0.0], [1.0]], [0, 1])


def test_the_rule_of_the_objective():
    rule = StopRule(tol=0.1, n_iter_no_change=2)
    assert [rule(value) for value in (10.0, 8.0, 7.9, 7.5)] == [0, 0, 0, 1]
    rule = StopRule(tol=0.1, n_iter_no_change=2)
    assert [rule(value) for value in (10.0, 9.9, 5.0, 4.9, 4.8)] == [0, 0, 0, 0, 1]
    at_once = StopRule(tol=0.0, n_iter_no_change=1)
    assert [at_once(value) for value in (10.0, 9.0, 9.0)] == [0, 0, 1]
    never = StopRule(tol=None, n_iter_no_change=1)
    assert not any(never(1.0) for _ in range(10))


def test_the_rule_of_the_score_keeps_copies():
    parameters = [np.zeros(2)]
    values = iter([0.5, 0.7, 0.6, 0.65])
    rule = ValidationStop(0.0, 2, score=lambda: next(values), parameters=parameters)
    stops = []
    for k in range(4):
        parameters[0][:] = k
        stops.append(rule(np.nan))
    assert stops == [False, False, False, True]
    rule.restore_best()
    np.testing.assert_array_equal(parameters[0], 1)


# The objective in the history.


def frozen(seed, sampler, **parameters):
    """An estimator whose steps are too small to see."""
    return AWSGDClassifier(
        sampler=sampler,
        learning_rate="constant",
        eta0=1e-300,
        max_iter=1,
        tol=None,
        random_state=seed,
        **parameters,
    )


COEF, INTERCEPT = np.array([[1.0, -0.5, 0.2, 0.0, 0.3]]), [-1.0]
SAMPLERS = {
    "label": StrataSampler(forgetting=0.05),
    "label, sgd": StrataSampler(update="sgd"),
    "level": LevelSampler(forgetting=0.1),
    "level, mixing 0": LevelSampler(mixing=0, forgetting=0.1),
}


@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet", None])
@pytest.mark.parametrize("class_weight", [None, {0: 1.0, 1: 5.0}])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_objective_of_the_draws_is_unbiased(
    sampler, class_weight, penalty, imbalanced, seed
):
    """The mean over many runs is within 4 standard errors of the exact value."""
    X, y = imbalanced
    weight = np.ones(len(y)) if class_weight is None else np.where(y == 1, 5.0, 1.0)
    losses, _ = log_loss(np.where(y == 1, 1.0, -1.0), X @ COEF[0] + INTERCEPT[0])
    ratio = {"l2": 0.0, "l1": 1.0, "elasticnet": 0.15}.get(penalty)
    exact = (weight * losses).mean()
    if penalty is not None:
        exact += 0.1 * ratio * np.abs(COEF).sum() + 0.05 * (1 - ratio) * (COEF**2).sum()
    clf = frozen(
        seed,
        SAMPLERS[sampler],
        alpha=0.1,
        penalty=penalty,
        class_weight=class_weight,
    )
    found = []
    for k in range(40):
        clf.set_params(random_state=1000 * seed + k)
        clf.fit(X, y, coef_init=COEF, intercept_init=INTERCEPT)
        # Pieces of one pass have the same number of draws.
        assert len(np.unique(np.diff(clf.history_["draws"]))) == 1
        found.append(clf.history_["objective"].mean())
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert 0 < error < 0.1 * exact
    assert abs(np.mean(found) - exact) < 4 * error


def test_the_objective_of_a_shuffled_pass_is_exact(imbalanced, seed, rng):
    X, y = imbalanced
    weight = rng.integers(0, 4, len(y)).astype(float)
    losses, _ = log_loss(np.where(y == 1, 1.0, -1.0), X @ COEF[0] + INTERCEPT[0])
    clf = frozen(seed, "uniform", alpha=0.1)
    clf.fit(X, y, COEF, INTERCEPT, sample_weight=weight)
    exact = weight @ losses / weight.sum() + 0.05 * (COEF**2).sum()
    n_draws = np.diff(clf.history_["draws"], prepend=0)
    assert n_draws.sum() == (weight > 0).sum()
    mean = n_draws @ clf.history_["objective"] / n_draws.sum()
    np.testing.assert_allclose(mean, exact, rtol=1e-9)


def test_scores_stand_at_the_end_of_each_pass(imbalanced, seed):
    clf = stopping(seed, tol=None, max_iter=3).fit(*imbalanced)
    history = clf.history_
    n_rows = history["draws"][-1] // 3
    scored = ~np.isnan(history["validation_score"])
    np.testing.assert_array_equal(
        history["draws"][scored], n_rows * np.array([1, 2, 3])
    )


def test_the_callers_model_is_not_touched_while_scoring(imbalanced, seed):
    """Scoring works on a copy: parameters and attributes stay what they are."""
    X, y = imbalanced
    clf = stopping(seed)
    before = copy.deepcopy(clf.get_params())
    clf.fit(X, y)
    assert clf.get_params() == before
    np.testing.assert_array_equal(clf.classes_, [0, 1])


@pytest.mark.parametrize("loss", ["log_loss", "multinomial"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_an_adaptive_rate_falls_instead_of_stopping(
    early_stopping, loss, imbalanced, three_classes, seed
):
    """As often as it takes from 1 to below 1e-6 in steps of a fifth, then it stops."""
    X, y = imbalanced if loss == "log_loss" else three_classes
    optimum = AWSGDClassifier(loss, alpha=0.01, tol=1e-6, random_state=seed).fit(X, y)

    def fit(rate):
        clf = stopping(seed, early_stopping=early_stopping, max_iter=1000, alpha=0.01)
        return clf.set_params(loss=loss, learning_rate=rate, eta0=1.0).fit(X, y)

    constant, adaptive = fit("constant"), fit("adaptive")
    n_falls = math.ceil(math.log(1e6, 5))
    assert constant.n_iter_ + 4 * n_falls <= adaptive.n_iter_ < 1000
    if early_stopping:
        assert len(scores(adaptive)) == adaptive.n_iter_
    else:
        far, near = (
            np.abs(clf.coef_ - optimum.coef_).max() for clf in (constant, adaptive)
        )
        assert near < far / 3


def test_rows_that_are_all_that_have_curvature(rng, monkeypatch):
    # Nearly separable: few rows are left at the optimum, and which they are is what a
    # squared hinge has to find out.
    X = rng.standard_normal((2000, 150))
    y = X[:, 0] + 0.02 * rng.standard_normal(2000) > 0
    clf = AWSGDClassifier("squared_hinge", alpha=1e-4, tol=1e-6, random_state=0)
    value, n_passes = clf.fit(X, y).history_["objective"][-1], clf.n_iter_
    monkeypatch.setattr(NewtonDirection, "_takes_all", lambda self, here: False)
    without = clone(clf).fit(X, y)
    assert value <= without.history_["objective"][-1] * (1 + 1e-6)
    assert n_passes < without.n_iter_
