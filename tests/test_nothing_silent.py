"""What would be missed or ignored in silence: tolerances, settings, interruptions."""

import threading
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from helpers import SMOOTH_LOSSES
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd._linear import train
from sklearn_awsgd._linear.curvature import MOST_PARAMETERS
from sklearn_awsgd._linear.phases.span import Span
from sklearn_awsgd._solver.records import Budget
from sklearn_awsgd.samplers import StrataSampler


def ridge_optimum(X, y, alpha):
    """Return the minimum of the mean of (y - z)^2 / 2 plus alpha / 2 ||w||^2."""
    n = len(y)
    A, b = X - X.mean(axis=0), y - y.mean()
    w = A.T @ np.linalg.solve(A @ A.T / n + alpha * np.eye(n), b / n)
    residual = y - y.mean() - A @ w
    return residual @ residual / (2 * n) + alpha / 2 * w @ w


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("alpha", [1e-6, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("n_rows", [10, 100, 400])
def test_wide_data_with_few_rows_keep_tol(n_rows, alpha, layout, rng):
    X = rng.standard_normal((n_rows, MOST_PARAMETERS))
    # Dependent rows: a repeated one, and one that is zero.
    X[1], X[2] = X[0], 0
    y = X[:, 0] + 0.1 * rng.standard_normal(n_rows)
    model = AWSGDRegressor(alpha=alpha, random_state=0).fit(layout(X), y)
    residual = y - model.predict(X)
    value = residual @ residual / (2 * n_rows) + alpha / 2 * model.coef_ @ model.coef_
    optimum = ridge_optimum(X, y, alpha)
    assert value <= optimum * (1 + 1.5e-3)
    assert model.duality_gap_[0] >= value - optimum - 1e-12 * value


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_wide_rows_that_are_nearly_parallel_keep_tol_in_single_precision(layout, rng):
    X = (1000 + rng.standard_normal((7, MOST_PARAMETERS))).astype(np.float32)
    y = rng.standard_normal(7)
    alpha = 1.0
    model = AWSGDRegressor(alpha=alpha, fit_intercept=False, random_state=0)
    model.fit(layout(X), y)
    A, n, w = X.astype(float), len(y), model.coef_.astype(float)
    residual = y - A @ w
    value = residual @ residual / (2 * n) + alpha / 2 * w @ w
    dual = np.linalg.solve(A @ A.T / n + alpha * np.eye(n), y)
    assert value <= alpha * y @ dual / (2 * n) * (1 + 1.5e-3)


@pytest.mark.parametrize(
    ("n_rows", "penalty"), [(MOST_PARAMETERS, "l2"), (200, "l1"), (200, "l2")]
)
def test_only_few_rows_without_l1_are_seen_in_another_basis(
    n_rows, penalty, rng, monkeypatch
):
    """A descent that stands still is helped by it, at the cost of n_rows^2 numbers."""
    spans, real = [], train.descend_over_kinks

    def remember(task):
        spans.append(task.n_samples)
        return Span(task)

    monkeypatch.setattr(train, "Span", remember)
    monkeypatch.setattr(
        train, "descend_over_kinks", lambda *args: replace(real(*args), converged=False)
    )
    X = rng.standard_normal((n_rows, 5))
    y = X[:, 0] > rng.standard_normal(n_rows)
    model = AWSGDClassifier(penalty=penalty, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    assert spans == ([n_rows] if n_rows < MOST_PARAMETERS and penalty == "l2" else [])


def test_the_last_step_of_l1_does_not_lose_what_was_found():
    X, y = np.zeros((6, 2)), np.array([0, 1, 1, 0, 0, 1])
    X[1, 0] = -25532.918
    weight = np.array([2.06, 5806.0, 0.016, 1439.0, 0.078, 0.031])
    model = AWSGDRegressor(
        "squared_epsilon_insensitive",
        penalty="l1",
        alpha=1e-12,
        fit_intercept=False,
        random_state=0,
    ).fit(X, 2.0 * y - 1, sample_weight=weight)
    # Within epsilon nothing is lost.
    assert abs(model.predict(X)[1] - 1) < 0.101


@pytest.mark.parametrize("loss", ["log_loss", "squared_hinge", "multinomial"])
def test_wide_classes_are_those_of_the_span(loss, rng):
    """A rotation of features changes nothing: here to as many as there are rows."""
    n_rows = 60
    X = rng.standard_normal((n_rows, MOST_PARAMETERS))
    y = rng.integers(3 if loss == "multinomial" else 2, size=n_rows)
    Q = np.linalg.qr(X.T)[0]
    wide, narrow = (
        AWSGDClassifier(loss, alpha=1e-3, tol=1e-6, random_state=0).fit(rows, y)
        for rows in (X, X @ Q)
    )
    assert abs(
        wide.history_["objective"][-1] / narrow.history_["objective"][-1] - 1
    ) < (2e-6)
    np.testing.assert_allclose(wide.coef_ @ Q, narrow.coef_, atol=2e-3)


def test_a_warm_start_enters_the_span(rng):
    X = rng.standard_normal((50, MOST_PARAMETERS))
    y = X[:, 0] + 0.1 * rng.standard_normal(50)
    cold = AWSGDRegressor(alpha=1e-2, tol=1e-9, random_state=0).fit(X, y)
    # What no row sees goes away, however large it is.
    far = cold.coef_ + 100 * rng.standard_normal(MOST_PARAMETERS)
    warm = AWSGDRegressor(alpha=1e-2, tol=1e-9, random_state=0)
    warm.fit(X, y, coef_init=far)
    np.testing.assert_allclose(warm.coef_, cold.coef_, atol=1e-6)


@pytest.mark.parametrize("loss", sorted(SMOOTH_LOSSES))
def test_certificates_of_single_precision_hold_for_what_is_returned(loss, rng):
    X = (1e3 + rng.standard_normal((300, 4))).astype(np.float32)
    y = (X[:, 0] > 1e3).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = AWSGDClassifier(loss, alpha=1e-3, tol=1e-8, random_state=0).fit(X, y)
        exact = AWSGDClassifier(loss, alpha=1e-3, tol=1e-12, random_state=0).fit(
            X.astype(float), y
        )

    def value(model):
        coef, intercept = model.coef_.astype(float), model.intercept_.astype(float)
        z = X.astype(float) @ coef[0] + intercept[0]
        losses = model._make_loss()(np.where(y, 1.0, -1.0), z)[0]
        return losses.mean() + 1e-3 / 2 * np.sum(coef**2)

    above = value(model) - value(exact)
    assert model.duality_gap_[0] >= above - 1e-9


def test_rounding_that_misses_tol_is_told(rng):
    X = (1e6 + rng.standard_normal((500, 3))).astype(np.float32)
    y = X[:, 0].astype(float) - 1e6
    with pytest.warns(ConvergenceWarning, match="single precision.*StandardScaler"):
        AWSGDRegressor(random_state=0).fit(X, y)


@pytest.mark.parametrize("scale", [1e-160, 1e-200, 1e-300])
def test_targets_that_are_lost_when_squared(scale, rng):
    X = rng.standard_normal((30, 2))
    with pytest.raises(ValueError, match="small that their squares are lost"):
        AWSGDRegressor().fit(X, scale * X[:, 0])


@pytest.mark.parametrize("sample_weight", [None, 2.0])
def test_class_weights_that_overflow(sample_weight, rng):
    X, y = rng.standard_normal((30, 2)), np.arange(30) % 2
    model = AWSGDClassifier(class_weight={0: 1e308, 1: 1e308})
    with pytest.raises(ValueError, match="weights of the classes are"):
        model.fit(X, y, sample_weight=sample_weight)


@pytest.mark.parametrize("loss", ["log_loss", "multinomial"])
@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_class_without_weight_is_absent(absent, loss, rng):
    X, y = rng.standard_normal((90, 3)), np.arange(90) % 3
    X[:, 0] += y
    weight = (y != absent).astype(float)
    with_zeros = AWSGDClassifier(loss, tol=1e-10, random_state=0).fit(
        X, y, sample_weight=weight
    )
    without = AWSGDClassifier(loss, tol=1e-10, random_state=0).fit(
        X[y != absent], y[y != absent]
    )
    np.testing.assert_array_equal(with_zeros.classes_, without.classes_)
    np.testing.assert_allclose(with_zeros.coef_, without.coef_, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "given", "match"),
    [
        ({"sampler": "level"}, {"strata": True}, "sampler='strata'"),
        ({"sampler": "label"}, {"strata": True}, "sampler='strata'"),
        ({"scoring": "roc_auc"}, {}, "early_stopping=True"),
        ({"eta0": 0.1}, {}, "learning_rate"),
    ],
)
def test_settings_without_effect_are_told(settings, given, match, rng):
    X, y = rng.standard_normal((60, 2)), np.arange(60) % 2
    given = {name: np.arange(60) % 3 for name in given}
    with pytest.warns(UserWarning, match=match):
        AWSGDClassifier(random_state=0, **settings).fit(X, y, **given)


def test_levels_of_a_stream_are_told(rng):
    X, y = rng.standard_normal((60, 2)), np.arange(60) % 2
    with pytest.warns(UserWarning, match="begins anew"):
        AWSGDClassifier(sampler="level").partial_fit(X, y, classes=[0, 1])


def test_settings_with_an_effect_are_not(rng):
    X, y = rng.standard_normal((60, 2)), np.arange(60) % 2
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        AWSGDClassifier(random_state=0).fit(X, y, strata=np.arange(60) % 3)
        for settings in (
            {"eta0": 0.1, "learning_rate": "adagrad"},
            {"scoring": "roc_auc", "early_stopping": True, "max_iter": 3},
        ):
            AWSGDClassifier(random_state=0, tol=None, **settings).fit(X, y)
    assert not told


@pytest.mark.parametrize(
    "estimator",
    [
        AWSGDClassifier(sampler="label"),
        AWSGDRegressor(),
        AWSGDMatrixFactorization(),
        MinVarianceImportanceEstimator(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_parameters_of_a_sampler_that_is_a_name(estimator):
    with pytest.raises(ValueError, match=r"sampler__mixing.*is a name"):
        estimator.set_params(sampler__mixing=0.2)
    estimator.set_params(sampler=StrataSampler(), sampler__mixing=0.2)
    assert estimator.sampler.mixing == 0.2


def test_a_grid_search_over_a_sampler(rng):
    X, y = rng.standard_normal((60, 2)), np.arange(60) % 2
    grid = {"sampler__mixing": [0.1, 0.2]}
    with pytest.raises(ValueError, match="is a name"):
        GridSearchCV(AWSGDClassifier(sampler="label"), grid, cv=2).fit(X, y)
    search = GridSearchCV(AWSGDClassifier(sampler=StrataSampler()), grid, cv=2)
    assert search.fit(X, y).best_params_["sampler__mixing"] in (0.1, 0.2)


def test_the_text_of_strata_is_refused(rng):
    X, y = rng.standard_normal((60, 2)), np.arange(60) % 2
    with pytest.raises(TypeError, match="is a text"):
        AWSGDClassifier(sampler="strata").fit(X, y, strata="town")


def test_threads_end_when_nobody_waits(rng, monkeypatch):
    """As after Ctrl-C: one problem fails, the others end with their piece."""
    X = rng.standard_normal((2000, 5))
    y = np.arange(2000) % 6
    begun, ended = [], []
    is_late = Budget.is_late.fget

    def watched(self):
        if not begun:
            begun.append(threading.get_ident())
            raise KeyboardInterrupt
        late = is_late(self)
        if late:
            ended.append(threading.get_ident())
        return late

    monkeypatch.setattr(Budget, "is_late", property(watched))
    model = AWSGDClassifier(
        learning_rate="constant", tol=None, max_iter=10**6, n_jobs=2, random_state=0
    )
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    for _ in range(100):
        if ended and threading.active_count() <= before + 2:
            break
        time.sleep(0.05)
    assert ended


def test_models_of_an_l1_penalty_that_were_not_minimised_are_no_end():
    """Nearly collinear columns: coordinate descent promises too little."""
    rng = np.random.default_rng(0)
    X = 100 + rng.standard_normal((6, 8))
    y = np.array([0, 0, 0, 0, 0, 1])
    model = AWSGDClassifier(
        "squared_hinge", penalty="l1", alpha=0.1, random_state=0, max_iter=20
    )
    longer = AWSGDClassifier(
        "squared_hinge", penalty="l1", alpha=0.1, random_state=0, max_iter=100_000
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        best = longer.fit(X, y).history_["objective"].min()
    above = model.history_["objective"][-1] / best - 1
    assert told or above <= 1.5e-3


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (AWSGDClassifier(), "fit_intercept"),
        (AWSGDClassifier(), "shuffle"),
        (AWSGDRegressor(), "early_stopping"),
        (AWSGDRegressor(), "warm_start"),
        (AWSGDRegressor(), "count_draws"),
        (AWSGDMatrixFactorization(), "fit_bias"),
        (MinVarianceImportanceEstimator(), "anytime"),
        (MinVarianceImportanceEstimator(), "control_variate"),
    ],
)
@pytest.mark.parametrize("value", ["no", None, 2, 0.5])
def test_what_is_neither_true_nor_false_is_refused(model, name, value, rng):
    X = rng.standard_normal((20, 3))
    with pytest.raises(TypeError, match=f"{name} must be True or False, got {value!r}"):
        model.set_params(**{name: value}).fit(X, np.arange(20) % 2)
    model.set_params(**{name: np.bool_(False)})


def test_a_warm_start_without_an_intercept_has_none(rng):
    X = rng.standard_normal((200, 3))
    y = X[:, 0] + 5
    reg = AWSGDRegressor(warm_start=True, random_state=0).fit(X, y)
    assert reg.intercept_[0] > 4
    cold = AWSGDRegressor(fit_intercept=False, random_state=0).fit(X, y)
    reg.set_params(fit_intercept=False).fit(X, y)
    assert reg.intercept_[0] == 0
    np.testing.assert_allclose(reg.coef_, cold.coef_, atol=1e-8)


def test_a_perceptron_that_ends_at_zero_is_told(rng):
    X = rng.standard_normal((200, 3))
    with pytest.warns(UserWarning, match="loss='perceptron' is least at coefficients"):
        AWSGDClassifier("perceptron").fit(X, X[:, 0] > 0)
    own = AWSGDClassifier(
        "perceptron", learning_rate="constant", eta0=1, penalty=None, random_state=0
    )
    assert own.fit(X, X[:, 0] > 0).score(X, X[:, 0] > 0) > 0.8


@pytest.mark.parametrize(
    ("setting", "text"),
    [({"sampler": "label"}, "sampler='label'"), ({"count_draws": True}, "count_draws")],
)
def test_draws_that_are_asked_for_and_not_made_are_told(setting, text, rng):
    X, y = rng.standard_normal((150, 4)), np.arange(150) % 3
    clf = AWSGDClassifier("multinomial", random_state=0)
    # No gain is known where nothing was drawn.
    assert np.isnan(clf.fit(X, y).variance_gain_).all()
    with pytest.warns(UserWarning, match=f"{text}.* had no effect"):
        clf.set_params(**setting).fit(X, y)
