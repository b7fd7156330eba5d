"""learning_rate="auto": the optimum, its certificate, and nothing that diverges."""

import warnings

import numpy as np
import pytest
from helpers import SMOOTH_LOSSES, linear_objective, minimum
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd._linear.curvature import InverseCurvature
from sklearn_awsgd._linear.objectives import LinearObjective, best_constant
from sklearn_awsgd._linear.phases.descent import CHEAP, descend
from sklearn_awsgd._linear.phases.newton import NewtonDirection
from sklearn_awsgd._linear.sums import LinearSums
from sklearn_awsgd._solver.records import Budget

PENALTIES = ["l2", None, "l1", "elasticnet"]
REGRESSION = ["squared_error", "huber", "squared_epsilon_insensitive"]
ESTIMATORS = [
    *[(AWSGDClassifier, loss) for loss in SMOOTH_LOSSES],
    *[(AWSGDRegressor, loss) for loss in REGRESSION],
]
each_estimator = pytest.mark.parametrize(
    ("Estimator", "loss"),
    ESTIMATORS,
    ids=lambda value: getattr(value, "__name__", value),
)
each_layout = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
each_penalty = pytest.mark.parametrize("penalty", PENALTIES)


def strengths(estimator):
    """Return the l1 and l2 strengths of an estimator."""
    ratio = {"l1": 1.0, "elasticnet": estimator.l1_ratio}.get(estimator.penalty, 0.0)
    alpha = 0.0 if estimator.penalty is None else estimator.alpha
    return alpha * ratio, alpha * (1 - ratio)


def objective(estimator, X, y, P=None):
    """The objective of the documentation at the fitted coefficients."""
    l1, l2 = strengths(estimator)
    w = np.ravel(estimator.coef_)
    losses, _ = estimator._make_loss()(y, np.asarray(X @ w + estimator.intercept_[0]))
    P = np.full(len(y), 1 / len(y)) if P is None else P
    return P @ losses + l2 / 2 * w @ w + l1 * np.abs(w).sum()


def best(estimator, X, y, P=None):
    """The minimum of the same, by scipy."""
    P = np.full(len(y), 1 / len(y)) if P is None else P
    return minimum(
        X, y, estimator._make_loss(), P, *strengths(estimator), estimator.fit_intercept
    )


def exact_passes(estimator):
    return (estimator.history_["phase"] == "exact").sum()


@each_penalty
@each_layout
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@each_estimator
def test_the_optimum_of_scipy(
    Estimator, loss, weighted, fit_intercept, layout, penalty, seed, rng
):
    X = rng.standard_normal((150, 4)) * [0.5, 1, 2, 1]
    X[rng.random(X.shape) < 0.3] = 0
    y = X @ [1.0, -1, 0.3, 0] + rng.logistic(size=150) + 0.5
    if Estimator is AWSGDClassifier:
        y = np.where(y > 1, 1.0, -1.0)
    weight = rng.integers(0, 4, 150).astype(float) if weighted else np.ones(150)
    estimator = Estimator(
        loss,
        penalty=penalty,
        alpha=0.05,
        l1_ratio=0.4,
        tol=1e-5,
        fit_intercept=fit_intercept,
        random_state=seed,
    )
    estimator.fit(layout(X), y, sample_weight=weight if weighted else None)
    P = weight / weight.sum()
    lowest, reached = best(estimator, X, y, P), objective(estimator, X, y, P)
    assert reached <= lowest * (1 + 1e-4)
    if not fit_intercept:
        assert estimator.intercept_[0] == 0
    if penalty == "l2":
        assert -1e-12 * lowest <= estimator.duality_gap_[0]
        assert reached - lowest <= estimator.duality_gap_[0] + 1e-9 * lowest


def larger(rng, kind, real=False):
    """Problems that are too large to be polished whatever tol says."""
    if kind == "imbalanced":
        X = rng.standard_normal((4000, 50))
        score = 2 * X[:, 0] - X[:, 1] + rng.logistic(size=4000)
    elif kind == "norms":
        # Rows whose norms differ by two orders of magnitude.
        X = rng.standard_normal((4000, 50)) * rng.lognormal(sigma=1.5, size=(4000, 1))
        score = X[:, :3].sum(axis=1) + rng.logistic(size=4000)
    elif kind == "rare features":
        density = np.minimum(1, 5.0 / np.arange(1, 301))
        X = sparse.csr_array(
            (rng.random((4000, 300)) < density) * rng.exponential(size=(4000, 300))
        )
        score = X @ rng.standard_normal(300) + rng.logistic(size=4000)
    else:
        X = sparse.random_array((1500, 3500), density=0.01, rng=rng, format="csr")
        score = X @ rng.standard_normal(3500) + 0.3 * rng.logistic(size=1500)
    if real:
        return X, score
    share = 0.97 if kind == "imbalanced" else 0.7
    return X, np.where(score > np.quantile(score, share), 1.0, -1.0)


KINDS = ["imbalanced", "norms", "rare features", "wide"]
LARGER = [
    *[(AWSGDClassifier, "log_loss", kind, "l2") for kind in [*KINDS, "wide, hard"]],
    *[(AWSGDClassifier, "squared_hinge", kind, "l2") for kind in KINDS[:3]],
    *[(AWSGDRegressor, "squared_error", kind, "l2") for kind in KINDS],
    (AWSGDRegressor, "huber", "norms", "l2"),
    (AWSGDClassifier, "modified_huber", "imbalanced", "l2"),
    *[(AWSGDClassifier, "log_loss", kind, "l1") for kind in KINDS[:3]],
    (AWSGDRegressor, "squared_error", "norms", "l1"),
    (AWSGDRegressor, "huber", "norms", "elasticnet"),
]


@pytest.mark.parametrize(("Estimator", "loss", "kind", "penalty"), LARGER)
def test_tol_bounds_the_suboptimality(Estimator, loss, kind, penalty, seed, rng):
    """And the duality gap is a true bound at each tolerance."""
    X, y = larger(rng, kind, real=Estimator is AWSGDRegressor)
    estimator = Estimator(
        loss,
        penalty=penalty,
        alpha=1e-5 if kind == "wide, hard" else 1e-3,
        epsilon=1.0,
        random_state=seed,
    )
    lowest = best(estimator, X, y)
    for tol in (1e-2, 1e-3, 1e-4):
        estimator.set_params(tol=tol).fit(X, y)
        n_nonzero = X.nnz if sparse.issparse(X) else X.size
        assert n_nonzero**2 / len(y) + X.shape[1] ** 3 / 3 > CHEAP
        excess = objective(estimator, X, y) - lowest
        # The rule estimates the suboptimality from a sample of the curvature.
        assert excess <= 1.5 * tol * lowest
        if penalty == "l2":
            gap = estimator.duality_gap_[0]
            assert np.isfinite(gap)
            assert gap >= excess - 1e-9 * lowest
            assert gap >= -1e-12


def test_the_duality_gap_is_a_bound_far_from_the_optimum(seed, rng):
    """At any point, not only near the minimum, for every loss."""
    X, y = larger(rng, "imbalanced")
    for loss, make in SMOOTH_LOSSES.items():
        clf = AWSGDClassifier(loss, alpha=0.01)
        compiled = make(clf)
        for fit_intercept in (True, False):
            lowest = minimum(
                X, y, compiled, np.full(len(y), 1 / len(y)), 0, 0.01, fit_intercept
            )
            F = linear_objective(
                X, compiled, y, None, (X**2).sum(axis=1), 0.01, fit_intercept
            )
            for size in (0.0, 0.01, 0.1, 1.0, 10.0):
                v = size * rng.standard_normal(51)
                v[-1] *= fit_intercept
                point = F(v)
                assert point.gap >= point.value - lowest - 1e-9 * lowest


@pytest.mark.parametrize("loss", [*SMOOTH_LOSSES, "hinge", "multinomial"])
def test_the_duality_gap_is_never_above_the_objective(loss, rng):
    """No loss is below zero, however bad the dual points of the passes are."""
    X = rng.lognormal(0, 2, (4000, 25))
    y = np.log(X) @ rng.standard_normal(25) + rng.logistic(size=4000) > 2
    clf = AWSGDClassifier(loss, random_state=0).fit(X, y)
    assert np.all(clf.duality_gap_ <= clf.history_["objective"][-1])


def test_agrees_with_logistic_regression(imbalanced, seed):
    X, y = imbalanced
    peer = LogisticRegression(C=1 / (0.01 * len(y)), tol=1e-12, max_iter=1000)
    clf = AWSGDClassifier(alpha=0.01, random_state=seed).fit(X, y)
    peer.fit(X, y)
    np.testing.assert_allclose(clf.coef_, peer.coef_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(clf.intercept_, peer.intercept_, rtol=1e-5)


def test_agrees_with_logistic_regression_under_l1(imbalanced, seed):
    X, y = imbalanced
    alpha = 0.03
    peer = LogisticRegression(
        C=1 / (alpha * len(y)), l1_ratio=1, solver="saga", tol=1e-10, max_iter=20_000
    )
    if "penalty" in peer.get_params() and peer.penalty == "l2":
        peer.set_params(penalty="elasticnet")
    peer.fit(X, y)
    clf = AWSGDClassifier(penalty="l1", alpha=alpha, random_state=seed).fit(X, y)
    np.testing.assert_allclose(clf.coef_, peer.coef_, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(clf.coef_ == 0, peer.coef_ == 0)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_agrees_with_ridge_lasso_and_elastic_net(fit_intercept, seed, rng):
    X = rng.standard_normal((200, 8)) * np.logspace(-1, 1, 8)
    y = X @ [1, 0, 0, 2, 0, 0, 0.2, 0] + rng.standard_normal(200) + 3
    common = {"fit_intercept": fit_intercept}
    peers = {
        "l2": Ridge(alpha=0.1 * len(y), tol=1e-12, **common),
        "l1": Lasso(alpha=0.1, tol=1e-12, max_iter=100_000, **common),
        "elasticnet": ElasticNet(
            alpha=0.1, l1_ratio=0.3, tol=1e-12, max_iter=100_000, **common
        ),
    }
    for penalty, peer in peers.items():
        reg = AWSGDRegressor(
            penalty=penalty, alpha=0.1, l1_ratio=0.3, random_state=seed, **common
        ).fit(X, y)
        peer.fit(X, y)
        np.testing.assert_allclose(reg.coef_, peer.coef_, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(reg.intercept_, peer.intercept_, rtol=1e-6)
        np.testing.assert_array_equal(reg.coef_ == 0, peer.coef_ == 0)


@each_layout
@pytest.mark.parametrize("n_rows", [300, 4000])
def test_l1_gives_exact_zeros(n_rows, layout, seed, rng):
    """On problems that are polished and on those that are not."""
    X = rng.standard_normal((n_rows, 60))
    y = X[:, 0] - X[:, 1] + 0.5 * rng.logistic(size=n_rows) > 0
    clf = AWSGDClassifier(penalty="l1", alpha=0.06, random_state=seed)
    clf.fit(layout(X), y)
    assert (clf.coef_[0, :2] != 0).all()
    assert (clf.coef_[0, 2:] == 0).mean() > 0.8


# Nothing diverges.


def check_sound(estimator, X, y):
    """Everything fitted is finite, and no worse than the best constant.

    The Huber loss may need more passes, far from its targets where it is a line; then
    there is a warning.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, y)
    assert all(warning.category is ConvergenceWarning for warning in caught)
    assert np.isfinite(estimator.coef_).all()
    assert np.isfinite(estimator.intercept_).all()
    assert not np.isnan(estimator.duality_gap_).any()
    assert np.isfinite(estimator.history_["objective"]).all()
    if estimator.loss == "huber" and caught:
        return
    P = np.full(len(y), 1 / len(y))
    loss = estimator._make_loss()
    constant = P @ loss(y, np.full(len(y), best_constant(loss, y, None)))[0]
    assert objective(estimator, X, y) <= constant * (1 + 1e-6) + 1e-300


@pytest.mark.parametrize("alpha", [0.0, 1e-12, 1e-6, 1e-2, 1.0, 1e3])
@pytest.mark.parametrize("data", ["one-hot", "separable", "noisy", "duplicates"])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
def test_hard_classification_is_sound(loss, data, alpha, seed, rng):
    X = rng.standard_normal((120, 4))
    y = np.where(X[:, 0] + (data == "noisy") * rng.logistic(size=120) > 0, 1.0, -1.0)
    if data == "one-hot":
        X = sparse.csr_array(np.eye(40)[rng.integers(0, 40, 120)])
    elif data == "duplicates":
        X = np.c_[X, X, np.ones(120)]
    for penalty in ("l2", "l1"):
        clf = AWSGDClassifier(
            loss, penalty=penalty, alpha=alpha, max_iter=100, random_state=seed
        )
        check_sound(clf, X, y)


@pytest.mark.parametrize("n_rows", [120, 3000])
@pytest.mark.parametrize("penalty", ["l2", "l1"])
@each_estimator
def test_features_of_very_different_scale(Estimator, loss, penalty, n_rows, seed, rng):
    X = rng.standard_normal((n_rows, 50)) * np.logspace(-6, 6, 50)
    y = X[:, 25] + rng.logistic(size=n_rows)
    if Estimator is AWSGDClassifier:
        y = np.where(y > 1, 1.0, -1.0)
    estimator = Estimator(loss, penalty=penalty, max_iter=50, random_state=seed)
    check_sound(estimator, X, y)


@pytest.mark.parametrize("y_kind", ["huge", "tiny", "constant", "zero", "offset"])
@pytest.mark.parametrize("penalty", ["l2", "l1", None])
@pytest.mark.parametrize("loss", REGRESSION)
def test_hard_regression_is_sound(loss, penalty, y_kind, seed, rng):
    X = rng.standard_normal((120, 4))
    y = {
        "huge": 1e12 * (X[:, 0] + rng.standard_normal(120)),
        "tiny": 1e-12 * (X[:, 0] + rng.standard_normal(120)),
        "constant": np.full(120, 7.0),
        "zero": np.zeros(120),
        "offset": 1e6 + X[:, 0] + rng.standard_normal(120),
    }[y_kind]
    reg = AWSGDRegressor(loss, penalty=penalty, max_iter=100, random_state=seed)
    check_sound(reg, X, y)
    if y_kind in ("constant", "zero"):
        np.testing.assert_allclose(reg.predict(X), y, atol=0.1 + 1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("alpha", [0.0, 1e-12, 1e-2, 1e3])
@pytest.mark.parametrize("data", ["one-hot", "separable", "scales"])
@each_penalty
def test_hard_softmax_is_sound(penalty, data, alpha, seed, rng):
    X = rng.standard_normal((120, 4))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    if data == "one-hot":
        X = sparse.csr_array(np.eye(40)[rng.integers(0, 40, 120)])
    elif data == "scales":
        X = X * [1e-6, 1, 1e3, 1e6]
    clf = AWSGDClassifier(
        "multinomial",
        penalty=penalty,
        alpha=alpha,
        max_iter=100,
        random_state=seed,
    ).fit(X, y)
    assert np.isfinite(clf.coef_).all()
    assert np.isfinite(clf.intercept_).all()
    value = -np.mean(
        np.log(np.maximum(clf.predict_proba(X)[np.arange(120), y], 1e-300))
    )
    l1, l2 = strengths(clf)
    value += l1 * np.abs(clf.coef_).sum() + l2 / 2 * (clf.coef_**2).sum()
    assert value <= np.log(3) * (1 + 1e-6)


def test_too_few_passes_are_a_warning(seed, rng):
    X, y = larger(rng, "imbalanced")
    clf = AWSGDClassifier(max_iter=2, tol=1e-6, random_state=seed)
    with pytest.warns(ConvergenceWarning, match=r"tol=1e-06.*max_iter=2 passes"):
        clf.fit(X, y)
    assert np.isfinite(clf.coef_).all()
    # tol=None asks for the passes, not for a tolerance.
    clf.set_params(tol=None).fit(X, y)
    assert exact_passes(clf) == 1
    assert clf.n_iter_ == 2


@pytest.mark.parametrize("learning_rate", ["auto", "adagrad"])
@pytest.mark.parametrize("loss", ["log_loss", "multinomial", "hinge"])
def test_time_that_is_up_is_a_warning(loss, learning_rate, three_classes, seed):
    X, y = three_classes
    clf = AWSGDClassifier(
        loss, learning_rate=learning_rate, max_time=1e-9, random_state=seed
    )
    with pytest.warns(ConvergenceWarning, match=r"max_time=1e-09 seconds"):
        clf.fit(X, y)
    assert np.isfinite(clf.coef_).all()
    # Nothing was drawn.
    assert (clf.effective_sample_size_ == 0).all()
    assert np.isnan(clf.variance_gain_).all()
    assert clf.n_iter_ <= 1
    clf.set_params(max_time=1e6, tol=None, max_iter=3).fit(X, y)
    assert clf.n_iter_ > 1


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_warm_start_at_the_optimum_needs_few_passes(penalty, seed, rng):
    X, y = larger(rng, "imbalanced")
    clf = AWSGDClassifier(
        penalty=penalty, alpha=1e-3, tol=1e-4, warm_start=True, random_state=seed
    ).fit(X, y)
    first, coef = exact_passes(clf), clf.coef_
    clf.fit(X, y)
    assert exact_passes(clf) <= 2 < first
    assert "sampling" not in clf.history_["phase"]
    np.testing.assert_allclose(clf.coef_, coef, atol=0.02)
    # A small change of the data is not far either.
    clf.fit(X[10:], y[10:])
    assert exact_passes(clf) <= first


@pytest.mark.parametrize("loss", ["log_loss", "multinomial", "hinge"])
def test_same_seed_same_result_for_any_number_of_threads(loss, seed, rng):
    X, y = make_classification(
        3000, 45, n_informative=8, n_classes=4, random_state=seed
    )
    fitted = [
        AWSGDClassifier(
            loss, n_jobs=n_jobs, random_state=seed, max_iter=5, tol=None
        ).fit(X, y)
        for n_jobs in (None, 1, 2, 4)
    ]
    for other in fitted[1:]:
        np.testing.assert_array_equal(other.coef_, fitted[0].coef_)
        np.testing.assert_array_equal(other.intercept_, fitted[0].intercept_)
        np.testing.assert_array_equal(
            other.history_["objective"], fitted[0].history_["objective"]
        )


def test_history_has_both_phases(imbalanced, seed):
    X, y = imbalanced
    clf = AWSGDClassifier(random_state=seed).fit(X, y)
    history = clf.history_
    phases = list(history["phase"])
    n_sampling = phases.count("sampling")
    assert phases == ["sampling"] * n_sampling + ["exact"] * (len(phases) - n_sampling)
    assert (np.diff(history["draws"]) > 0).all()
    assert (np.diff(history["seconds"]) >= 0).all()
    signs = np.where(y == 1, 1.0, -1.0)
    np.testing.assert_allclose(
        history["objective"][-1], objective(clf, X, signs), rtol=1e-9
    )
    assert clf.n_iter_ == 1 + exact_passes(clf)
    assert clf.t_ == 1 + history["draws"][-1]


@pytest.mark.parametrize("class_weight", [{0: 1.0, 1: 5.0}, "balanced"])
def test_class_weights_scale_objective_and_gap(class_weight, imbalanced, seed):
    """The history and the gap are in the units of the weighted objective."""
    X, y = imbalanced
    factor = 5.0 if isinstance(class_weight, dict) else None
    clf = AWSGDClassifier(class_weight=class_weight, alpha=0.01, random_state=seed)
    clf.fit(X, y)
    sizes = np.bincount(y)
    weight = np.where(y == 1, factor, 1.0) if factor else len(y) / (2 * sizes[y])
    signs = np.where(y == 1, 1.0, -1.0)
    value = objective(clf, X, signs, P=weight / len(y))
    np.testing.assert_allclose(clf.history_["objective"][-1], value, rtol=1e-9)
    assert value <= best(clf, X, signs, P=weight / len(y)) * (1 + 1e-6)


class WrongCurvature(LinearObjective):
    """Its curvature is a multiple of what it should be."""

    factor = 1.0

    def hessian(self, *arguments):
        hessian, cost = super().hessian(*arguments)
        # Costly, so that it is not sampled anew.
        return self.factor * hessian, max(cost, 1e3)


@pytest.mark.parametrize("tol", [1e-2, 1e-4])
@pytest.mark.parametrize("factor", [0.8, 1.0, 5.0, 30.0])
def test_steps_tell_how_wrong_the_estimate_is(factor, tol, rng, monkeypatch):
    """Without BFGS pairs, which would hide it from the estimate, but only in part."""
    monkeypatch.setattr(InverseCurvature, "update", lambda *_: None)
    X = rng.standard_normal((2000, 15))
    y = np.where(X[:, 0] + rng.logistic(size=2000) > 2, 1.0, -1.0)
    loss = SMOOTH_LOSSES["log_loss"](None)
    sums = LinearSums(Blocks(X), loss, y, None, (X**2).sum(axis=1))
    F = WrongCurvature(sums, 1e-2, True)
    F.factor = factor
    assert F.newton_flops() > CHEAP
    direction = NewtonDirection(F, tol, rng)
    report = descend(direction, np.zeros(16), Budget(1000), lambda *_: None)
    assert report.converged
    best = minimum(X, y, loss, np.full(2000, 1 / 2000), 0.0, 1e-2, True)
    assert report.end.value <= (1 + tol) * best


@pytest.mark.parametrize("max_iter", range(2, 9))
def test_the_warning_is_about_tol_where_rounding_would_decide(max_iter, rng):
    """Small data are polished beyond tol, and may run out of passes there."""
    X = rng.standard_normal((200, 5))
    y = X[:, 0] + rng.logistic(size=200) > 0
    best = AWSGDClassifier(random_state=0).fit(X, y).history_["objective"][-1]
    clf = AWSGDClassifier(random_state=0, tol=1e-2, max_iter=max_iter)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(X, y)
    excess = clf.history_["objective"][-1] / best - 1
    assert excess <= 1e-2 or caught
    assert excess > 1e-6 or not caught


SCALES = {
    "time stamps": lambda X: X * [1e5, 1, 1, 1, 1, 1] + [1.7e9, 0, 0, 0, 0, 0],
    "twelve decades": lambda X: X * 10.0 ** np.linspace(-6, 6, 6),
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("penalty", ["l2", None])
def test_raw_features_of_very_different_size(penalty, scale, rng):
    """Without a penalty that is felt, the scale of features changes nothing."""
    X = rng.standard_normal((3000, 6))
    y = X @ [1, -1, 0.5, 0, 0, 1] + rng.logistic(size=3000) > 3
    best = AWSGDClassifier(penalty=None, tol=1e-8, random_state=0).fit(X, y)
    raw = AWSGDClassifier(penalty=penalty, alpha=1e-18, random_state=0)
    raw.fit(SCALES[scale](X), y)
    best, value = (c.history_["objective"][-1] for c in (best, raw))
    assert value <= best * (1 + 1e-3)


def test_wide_data_reach_the_tolerance_with_next_to_no_penalty():
    rng = np.random.default_rng(4)
    n, d, alpha, tol = 3000, 3050, 1e-7, 0.01

    def sizes(size):
        return rng.lognormal(size=size)

    X = sparse.random_array(
        (n, d), density=15 / d, format="csr", rng=rng, data_sampler=sizes
    )
    y = rng.random(n) < 1 / (1 + np.exp(2 - X @ rng.normal(size=d) / 2))
    signs = np.where(y, 1.0, -1.0)
    exact = AWSGDClassifier(alpha=alpha, tol=1e-9, max_iter=5000, random_state=0)
    optimum = objective(exact.fit(X, y), X, signs)
    # The estimate alone would let the second stop at twice the tolerance.
    for seed in range(4):
        clf = AWSGDClassifier(alpha=alpha, tol=tol, random_state=seed).fit(X, y)
        assert objective(clf, X, signs) <= (1 + tol) * optimum
        assert clf.n_iter_ < exact.n_iter_ / 2


def test_a_finish_that_stands_still_says_so(rng):
    # Without a penalty the hinge of separable classes falls to nothing, of which no
    # fraction is small.
    X = rng.normal(size=(400, 5))
    clf = AWSGDClassifier("hinge", alpha=0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="no step lowered") as caught:
        clf.fit(X, X[:, 0] > 0)
    assert clf.n_iter_ < clf.max_iter
    assert any(f"after {clf.n_iter_} passes" in str(w.message) for w in caught)
    with pytest.warns(ConvergenceWarning, match="give a penalty"):
        clf.set_params(penalty=None).fit(X, X[:, 0] > 0)
    assert clf.score(X, X[:, 0] > 0) == 1
