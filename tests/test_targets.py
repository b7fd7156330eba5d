"""Softmax regression, indicator targets, probabilities and sparse coefficients."""

import pickle

import numpy as np
import pytest
from helpers import (
    linear_state,
    linear_steps,
    run_draws,
    shuffle_twin,
    soft,
    stream,
    uniform_kernel,
)
from scipy import sparse
from scipy.special import expit, logsumexp, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn_awsgd._kernels._models import SoftmaxModel
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._kernels._softmax import SoftmaxProblem

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._linear.phases import softmax_proximal
from sklearn_awsgd._linear.targets import distinct

each_layout = pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])


@pytest.fixture
def labels(rng):
    """Rows with three labels, any number of which may hold."""
    X = rng.standard_normal((300, 4))
    score = X @ rng.standard_normal((4, 3)) + rng.logistic(size=(300, 3))
    return X, (score > [0, 1, 2]).astype(int)


# Softmax regression.


@each_layout
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_is_that_of_logistic_regression(
    weighted, fit_intercept, layout, three_classes, seed, rng
):
    X, y = three_classes
    weight = rng.integers(0, 3, len(y)).astype(float) if weighted else np.ones(len(y))
    peer = LogisticRegression(
        C=1 / (0.01 * weight.sum()),
        tol=1e-12,
        max_iter=1000,
        fit_intercept=fit_intercept,
    ).fit(X, y, weight)
    clf = AWSGDClassifier(
        "multinomial", alpha=0.01, fit_intercept=fit_intercept, random_state=seed
    ).fit(layout(X), y, sample_weight=weight if weighted else None)
    np.testing.assert_allclose(clf.coef_, peer.coef_, rtol=1e-4, atol=1e-5)
    # A common shift of the intercepts changes nothing; ours sum to zero.
    np.testing.assert_allclose(clf.intercept_.sum(), 0, atol=1e-9)
    expected = peer.intercept_ - np.mean(peer.intercept_)
    np.testing.assert_allclose(clf.intercept_, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        clf.predict_proba(X), peer.predict_proba(X), rtol=1e-3, atol=1e-6
    )


def softmax_value(clf, X, codes, alpha):
    Z = X @ clf.coef_.T + clf.intercept_
    losses = logsumexp(Z, axis=1) - Z[np.arange(len(codes)), codes]
    return losses.mean() + alpha / 2 * (clf.coef_**2).sum()


@pytest.mark.parametrize("n_classes", [3, 12])
@pytest.mark.parametrize("wide", [False, True])
def test_softmax_keeps_its_tolerance(wide, n_classes, seed, rng):
    """With the full curvature, that of each class, and the diagonal alone."""
    n_rows, n_features = (600, 3200) if wide else (3000, 60)
    X = rng.standard_normal((n_rows, n_features)) * (rng.random(n_features) < 0.9)
    X /= np.sqrt(n_features)
    score = 10 * X @ rng.standard_normal((n_features, n_classes))
    codes = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
    peer = LogisticRegression(C=1 / (1e-2 * n_rows), tol=1e-8, max_iter=2000)
    lowest = softmax_value(peer.fit(X, codes), X, codes, 1e-2)
    for tol in (1e-2, 1e-4):
        clf = AWSGDClassifier("multinomial", alpha=1e-2, tol=tol, random_state=seed)
        reached = softmax_value(clf.fit(X, codes), X, codes, 1e-2)
        assert reached <= lowest * (1 + 1.5 * tol)


def test_two_classes_are_logistic_regression(imbalanced, seed):
    X, y = imbalanced
    clf = AWSGDClassifier("multinomial", random_state=seed).fit(X, y)
    binary = AWSGDClassifier("log_loss", random_state=seed).fit(X, y)
    np.testing.assert_array_equal(clf.coef_, binary.coef_)
    np.testing.assert_array_equal(clf.predict_proba(X), binary.predict_proba(X))


@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
@pytest.mark.parametrize("kind", ["wide", "many classes", "sampled"])
def test_softmax_with_l1_keeps_its_tolerance(kind, penalty, seed, rng, monkeypatch):
    """Also with more features than rows, and with the curvature of some rows only."""
    n, d, K = {"wide": (150, 400, 4), "many classes": (600, 20, 12)}.get(
        kind, (1500, 10, 3)
    )
    if kind == "sampled":
        monkeypatch.setattr(softmax_proximal, "NUMBERS_IN_SAMPLE", 6000)
    X = rng.standard_normal((n, d))
    W = rng.standard_normal((K, d)) * (rng.random((K, d)) < 20 / d)
    y = (X @ W.T + rng.gumbel(size=(n, K))).argmax(axis=1)
    alpha, ratio = 0.005, {"l1": 1.0, "elasticnet": 0.7}[penalty]

    def value(clf):
        Z = clf.decision_function(X)
        return (
            np.mean(logsumexp(Z, axis=1) - Z[np.arange(n), np.searchsorted(labels, y)])
            + alpha * ratio * np.abs(clf.coef_).sum()
            + alpha * (1 - ratio) / 2 * np.sum(clf.coef_**2)
        )

    labels = np.unique(y)
    clf = AWSGDClassifier(
        "multinomial", penalty=penalty, alpha=alpha, l1_ratio=ratio, random_state=seed
    ).fit(X, y)
    found = value(clf)
    assert (clf.coef_ == 0).mean() > 0.1
    monkeypatch.undo()
    assert found <= value(clf.set_params(tol=1e-12).fit(X, y)) * (1 + 1e-3)
    np.testing.assert_allclose(clf.history_["objective"][-1], value(clf), rtol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_softmax_model_is_minimised(fit_intercept, rng):
    """Against the optimality conditions, with the Hessian written out."""
    n, d, K, l1 = 30, 3, 3, 0.08
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.7)
    A = np.hstack([X, np.ones((n, 1))])
    P = softmax(rng.standard_normal((n, K)), axis=1)
    weights = rng.random(n) / n
    ridge = np.append(np.full(d, 1e-2), 1e-2)
    G, W = 0.1 * rng.standard_normal((2, K, d + 1))
    H = np.einsum(
        "i,ikm,ij,il->kjml", weights, P[:, :, None] * (np.eye(K) - P[:, None]), A, A
    ).reshape(K * (d + 1), -1)
    H += np.diag(np.tile(ridge, K))
    columns = sparse.csc_array(X)
    model = SoftmaxModel(
        (columns.data, columns.indices, columns.indptr),
        np.ascontiguousarray(weights * P.T),
        np.ascontiguousarray(P.T),
        np.diagonal(H).reshape(K, d + 1).copy(),
        ridge,
    )
    D, converged = model.minimize(G, W, l1, fit_intercept, 1e-16, 10_000)
    assert converged
    slope = (G.ravel() + H @ D.ravel()).reshape(K, d + 1)
    new = (W + D)[:, :-1]
    zero = new == 0
    assert zero.any()
    assert not zero.all()
    assert (np.abs(slope[:, :-1][zero]) <= l1 + 1e-6).all()
    np.testing.assert_allclose(
        slope[:, :-1][~zero], -l1 * np.sign(new[~zero]), atol=1e-6
    )
    if fit_intercept:
        np.testing.assert_allclose(slope[:, -1], 0, atol=1e-6)
    else:
        assert not D[:, -1].any()


@pytest.mark.parametrize("alpha_l2", [0.0, 1e-3, 0.3])
def test_centred_coefficients_cost_least(alpha_l2, rng):
    V = rng.standard_normal((5, 7))
    V[rng.random(V.shape) < 0.3] = 0
    centred = softmax_proximal.center(V, 0.2, alpha_l2)

    def cost(W):
        return np.sum(0.2 * np.abs(W) + alpha_l2 / 2 * W**2, axis=0)

    shift = (V - centred)[:, :-1]
    np.testing.assert_allclose(shift, shift[:1].repeat(5, axis=0), atol=1e-15)
    np.testing.assert_array_equal(V[:, -1], centred[:, -1])
    for t in np.append(np.linspace(-2, 2, 401), V[:, :-1].ravel()):
        assert (cost(centred[:, :-1]) <= cost(V[:, :-1] - t) + 1e-12).all()


def softmax_twin(X, codes, draws, states, rule, l1, l2, eta0):
    """Proximal SGD on the softmax loss, every coordinate at every step."""
    K, d = len(states), X.shape[1]
    W = np.array([np.append(s["coef"], s["intercept"]) for s in states])
    squares = np.zeros((K, d + 1))
    cuts, shrink = np.append(np.full(d, l1), 0), np.append(np.full(d, l2), 0)
    losses, norms2 = 0.0, 0.0
    for i in draws:
        row = np.append(X[i], 1.0)
        z = W @ row
        losses += logsumexp(z) - z[codes[i]]
        d_z = softmax(z) - (np.arange(K) == codes[i])
        D = np.outer(d_z, row)
        norms2 += (D**2).sum()
        rho = np.full((K, d + 1), eta0)
        if rule == "adagrad":
            squares += D**2
            rho = eta0 / np.sqrt(np.where(squares > 0, squares, np.inf))
        W = soft(W - rho * D, rho * cuts) / (1 + rho * shrink)
    return W, losses, norms2


@each_layout
@pytest.mark.parametrize("rule", ["constant", "adagrad"])
@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.0, 0.1), (0.02, 0.1)])
def test_softmax_kernel_equals_its_twin(l1, l2, rule, layout, seed, rng):
    X = rng.standard_normal((40, 3))
    X[rng.random(X.shape) < 0.4] = 0
    codes = rng.integers(0, 4, 40).astype(np.int32)
    states = [linear_state(3) for _ in range(4)]
    for k, state in enumerate(states):
        state["intercept"][0] = 0.1 * k
    twins = pickle.loads(pickle.dumps(states))
    rows = Rows(layout(X))
    steps = [linear_steps(rows, s, rule, l1=l1, l2=l2, eta0=0.1) for s in states]
    problem = SoftmaxProblem(rows, codes, rows.squared_norms(), steps)
    # Before the first step all W are zero.
    gradient = softmax(0.1 * np.arange(4)) - np.eye(4)[codes]
    norms2 = (gradient**2).sum(axis=1) * ((X**2).sum(axis=1) + 1)
    np.testing.assert_allclose(problem.first_norms2(), norms2, rtol=1e-12)
    bits, twin_rng = stream(seed)
    done, sums = run_draws(problem, uniform_kernel(bits, 40), 100)
    order, draws = range(40), []
    while len(draws) < 100:
        order = shuffle_twin(twin_rng, order)
        draws += order
    W, losses, norms = softmax_twin(X, codes, draws[:100], twins, rule, l1, l2, 0.1)
    assert done == 100
    np.testing.assert_allclose([s["coef"] for s in states], W[:, :-1], atol=1e-12)
    np.testing.assert_allclose([s["intercept"][0] for s in states], W[:, -1])
    np.testing.assert_allclose(sums["loss"], losses)
    np.testing.assert_allclose(sums["norm2"], norms)
    penalty = l2 / 2 * (W[:, :-1] ** 2).sum() + l1 * np.abs(W[:, :-1]).sum()
    np.testing.assert_allclose(problem.penalty(), penalty)


@pytest.mark.parametrize("learning_rate", ["adagrad", "constant", "rmsprop"])
@pytest.mark.parametrize("sampler", ["uniform", "label", "level"])
def test_softmax_by_steps_dense_and_sparse(sampler, learning_rate, three_classes, seed):
    X, y = three_classes
    dense, csr = (
        AWSGDClassifier(
            "multinomial",
            sampler=sampler,
            learning_rate=learning_rate,
            eta0=0.02,
            max_iter=20,
            tol=None,
            random_state=seed,
        ).fit(layout(X), y)
        for layout in (np.asarray, sparse.csr_array)
    )
    np.testing.assert_allclose(dense.coef_, csr.coef_, rtol=1e-6, atol=1e-9)
    assert dense.score(X, y) > np.unique(y, return_counts=True)[1].max() / len(y)
    if sampler == "label":
        assert dense.sampler_.probabilities_.shape == (1, 3)


def test_softmax_with_a_stream(three_classes, seed):
    X, y = three_classes
    clf = AWSGDClassifier("multinomial", random_state=seed)
    for start in range(0, 300, 50):
        part = slice(start, start + 50)
        clf.partial_fit(X[part], y[part], classes=["a", "b", "c"])
    for _ in range(10):
        clf.partial_fit(X, y)
    assert clf.coef_.shape == (3, 4)
    assert clf.t_ == 1 + 300 + 10 * 300
    peer = LogisticRegression().fit(X, y)
    assert clf.score(X, y) > peer.score(X, y) - 0.05


def test_softmax_weights_are_repeated_rows(three_classes, seed, rng):
    X, y = three_classes
    weight = rng.integers(0, 3, len(y))
    clf = AWSGDClassifier("multinomial", alpha=0.01, random_state=seed)
    weighted = clf.fit(X, y, sample_weight=weight).coef_
    index = np.repeat(np.arange(len(y)), weight)
    np.testing.assert_allclose(
        clf.fit(X[index], y[index]).coef_, weighted, rtol=1e-6, atol=1e-8
    )


# Indicator targets.


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "multinomial"])
@pytest.mark.parametrize("sampler", ["auto", "uniform", "label"])
def test_indicators_are_separate_problems(sampler, loss, labels, seed):
    """The first has the random stream of a fit by itself; all have its optimum."""
    X, Y = labels
    clf = AWSGDClassifier(
        loss, sampler=sampler, random_state=seed, max_iter=20, tol=None
    ).fit(X, Y)
    one = AWSGDClassifier(
        loss, sampler=sampler, random_state=seed, max_iter=20, tol=None
    )
    for k in range(3):
        one.fit(X, Y[:, k])
        if k == 0:
            np.testing.assert_array_equal(clf.coef_[0], one.coef_[0])
            np.testing.assert_array_equal(clf.intercept_[0], one.intercept_[0])
        elif loss != "hinge":
            np.testing.assert_allclose(clf.coef_[k], one.coef_[0], rtol=1e-6)
    np.testing.assert_array_equal(clf.classes_, [0, 1, 2])


@pytest.mark.parametrize("layout", [sparse.csr_array, sparse.csr_matrix, np.bool_])
def test_indicators_of_other_types(layout, labels, seed):
    X, Y = labels
    expected = AWSGDClassifier(random_state=seed).fit(X, Y)
    clf = AWSGDClassifier(random_state=seed).fit(X, layout(Y))
    np.testing.assert_array_equal(clf.coef_, expected.coef_)
    np.testing.assert_array_equal(clf.predict(X), expected.predict(X))


def test_predictions_of_indicators(labels, seed):
    X, Y = labels
    clf = AWSGDClassifier(random_state=seed).fit(X, Y)
    scores = clf.decision_function(X)
    assert scores.shape == Y.shape
    np.testing.assert_array_equal(clf.predict(X), scores > 0)
    np.testing.assert_allclose(clf.predict_proba(X), expit(scores))
    peer = MultiOutputClassifier(AWSGDClassifier(random_state=seed)).fit(X, Y)
    np.testing.assert_array_equal(clf.predict(X), peer.predict(X))
    assert clf.score(X, Y) == peer.score(X, Y)


def test_indicators_with_one_label(labels, seed):
    X, Y = labels
    with pytest.warns(UserWarning, match="column-vector"):
        clf = AWSGDClassifier(random_state=seed).fit(X, Y[:, :1])
    one = AWSGDClassifier(random_state=seed).fit(X, Y[:, 0])
    np.testing.assert_array_equal(clf.coef_, one.coef_)


def test_a_label_that_is_always_or_never_there(labels, seed):
    X, Y = labels
    Y = np.c_[Y, np.zeros(300, int), np.ones(300, int)]
    for penalty in ("l2", "l1", None):
        clf = AWSGDClassifier(penalty=penalty, random_state=seed).fit(X, Y)
        np.testing.assert_array_equal(clf.coef_[3:], 0)
        np.testing.assert_array_equal(clf.predict(X)[:, 3:], Y[:, 3:])
        assert (clf.duality_gap_[3:] < 1e-9).all()
        np.testing.assert_array_equal(np.unique(clf.history_["problem"]), range(5))
    plain = AWSGDClassifier(fit_intercept=False, random_state=seed).fit(X, Y)
    assert np.isfinite(plain.coef_).all()


def test_a_class_without_weight(three_classes, seed):
    X, y = three_classes
    weight = (y != "c").astype(float)
    for loss in ("log_loss", "multinomial"):
        clf = AWSGDClassifier(loss, random_state=seed).fit(X, y, sample_weight=weight)
        assert clf.classes_.tolist() == ["a", "b"]
        assert set(clf.predict(X)) <= {"a", "b"}
        assert clf.predict_proba(X).shape == (len(y), 2)


def test_a_stream_of_indicators(labels, seed):
    X, Y = labels
    clf = AWSGDClassifier(random_state=seed, sampler="uniform")
    one = AWSGDClassifier(random_state=seed, sampler="uniform")
    for start in range(0, 300, 60):
        part = slice(start, start + 60)
        clf.partial_fit(X[part], Y[part])
        one.partial_fit(X[part], Y[part, 0], classes=[0, 1])
    np.testing.assert_array_equal(clf.coef_[0], one.coef_[0])
    assert clf.predict_proba(X).shape == (300, 3)
    for bad, match in ((Y[:, 0], "kind of target"), (Y[:, :2], "not the same")):
        before = pickle.dumps(clf)
        with pytest.raises(ValueError, match=match):
            clf.partial_fit(X, bad)
        assert pickle.dumps(clf) == before


def test_fit_goes_from_labels_to_indicators_and_back(labels, seed):
    X, Y = labels
    clf = AWSGDClassifier(random_state=seed)
    before = clf.fit(X, Y[:, 0]).coef_
    assert clf.fit(X, Y).predict(X).shape == Y.shape
    assert clf.fit(X, Y[:, 0]).predict(X).shape == (300,)
    np.testing.assert_array_equal(clf.coef_, before)


BAD_TARGETS = {
    "several classes": (lambda Y: Y + np.arange(300)[:, None] % 2, "indicator"),
    "real": (lambda Y: Y + 0.5, "Unknown label type"),
    "NaN": (lambda Y: np.where(Y, np.nan, 0), "NaN"),
    "3D": (lambda Y: Y[:, :, None], "dim"),
    "short": (lambda Y: Y[:-1], "inconsistent"),
}


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_bad_indicators(name, labels, seed):
    X, Y = labels
    clf = AWSGDClassifier(random_state=seed).fit(X, Y)
    before = pickle.dumps(clf)
    change, match = BAD_TARGETS[name]
    with pytest.raises(ValueError, match=match):
        clf.fit(X, change(Y))
    assert pickle.dumps(clf) == before


def test_class_weights_of_indicators_are_not_defined(labels):
    with pytest.raises(ValueError, match=r"class_weight=.*sample_weight"):
        AWSGDClassifier(class_weight="balanced").fit(*labels)


def test_sample_weights_of_indicators(labels, seed, rng):
    X, Y = labels
    weight = rng.integers(0, 3, 300)
    clf = AWSGDClassifier(random_state=seed, alpha=0.01)
    weighted = clf.fit(X, Y, sample_weight=weight).coef_
    index = np.repeat(np.arange(300), weight)
    np.testing.assert_allclose(
        clf.fit(X[index], Y[index]).coef_, weighted, rtol=1e-6, atol=1e-8
    )


# Probabilities.


@pytest.mark.parametrize("loss", ["log_loss", "multinomial", "modified_huber"])
def test_probabilities(loss, imbalanced, three_classes, seed):
    for X, y in (imbalanced, three_classes):
        clf = AWSGDClassifier(loss, random_state=seed).fit(X, y)
        p = clf.predict_proba(X)
        assert p.shape == (len(y), len(clf.classes_))
        assert p.min() >= 0
        np.testing.assert_allclose(p.sum(axis=1), 1)
        unique = np.sort(p, axis=1)[:, -1] > np.sort(p, axis=1)[:, -2]
        np.testing.assert_array_equal(
            clf.classes_[p.argmax(axis=1)][unique], clf.predict(X)[unique]
        )
        with np.errstate(divide="ignore"):
            np.testing.assert_array_equal(clf.predict_log_proba(X), np.log(p))


@pytest.mark.filterwarnings("ignore:loss='perceptron':UserWarning")
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "perceptron", "huber"])
def test_losses_without_probabilities(loss, imbalanced, seed):
    clf = AWSGDClassifier(loss, random_state=seed, max_iter=5, tol=None)
    clf.fit(*imbalanced)
    assert not hasattr(clf, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        clf.predict_proba(imbalanced[0])
    assert "loss" in f"{caught.value}{caught.value.__cause__}"


def test_probabilities_where_no_class_has_any(seed):
    clf = AWSGDClassifier("modified_huber", random_state=seed)
    X = np.repeat(np.eye(3), 5, axis=0)
    clf.fit(X, np.repeat([0, 1, 2], 5))
    clf.intercept_[:] = -10
    np.testing.assert_allclose(clf.predict_proba(X), 1 / 3)


# Sparse coefficients.


@pytest.mark.parametrize("kind", ["binary", "classes", "labels"])
def test_sparsify_and_densify(kind, imbalanced, three_classes, labels, seed):
    X, y = {"binary": imbalanced, "classes": three_classes, "labels": labels}[kind]
    clf = AWSGDClassifier(penalty="l1", alpha=0.03, random_state=seed).fit(X, y)
    coef, scores = clf.coef_.copy(), clf.decision_function(X)
    assert clf.sparsify() is clf
    assert sparse.issparse(clf.coef_)
    assert clf.coef_.nnz == np.count_nonzero(coef)
    np.testing.assert_allclose(clf.decision_function(X), scores, rtol=1e-12)
    np.testing.assert_allclose(
        clf.decision_function(sparse.csr_array(X)), scores, rtol=1e-12
    )
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_allclose(again.decision_function(X), scores, rtol=1e-12)
    assert clf.densify() is clf
    assert isinstance(clf.coef_, np.ndarray)
    np.testing.assert_array_equal(clf.coef_, coef)
    assert clf.densify() is clf


def test_training_goes_on_after_sparsify(imbalanced, seed):
    X, y = imbalanced
    clf = AWSGDClassifier(penalty="l1", random_state=seed)
    clf.partial_fit(X, y, classes=[0, 1])
    other = pickle.loads(pickle.dumps(clf))
    clf.sparsify().partial_fit(X, y)
    np.testing.assert_array_equal(clf.coef_, other.partial_fit(X, y).coef_)
    # A warm start is from the coefficients, whatever they are stored as.
    clf.set_params(warm_start=True)
    other.set_params(warm_start=True)
    np.testing.assert_array_equal(clf.sparsify().fit(X, y).coef_, other.fit(X, y).coef_)


def test_sparsify_a_regressor(imbalanced, seed):
    X, y = imbalanced
    reg = AWSGDRegressor(penalty="l1", alpha=0.01, random_state=seed).fit(X, y)
    coef, predicted = reg.coef_.copy(), reg.predict(X)
    np.testing.assert_allclose(reg.sparsify().predict(X), predicted, rtol=1e-12)
    np.testing.assert_allclose(reg.predict(sparse.csr_array(X)), predicted, rtol=1e-12)
    np.testing.assert_array_equal(reg.densify().coef_, coef)
    np.testing.assert_allclose(reg.predict(X), predicted, rtol=1e-12)


@pytest.mark.parametrize(
    "y",
    [
        np.array([3, -2, 3, 0, 3, 3]),
        np.array([-128, 127] * 200, dtype=np.int8),
        np.array([2**63, 2**63 + 5] * 4, dtype=np.uint64),
        np.array([-(2**63), 2**63 - 1]),
        np.array([True, False]),
        np.array([True, True, True])[::-2],
        np.array(["b", "a", "b"]),
        np.array([], dtype=int),
    ],
)
def test_distinct_values_are_those_of_unique(y):
    found, expected = distinct(y), np.unique(y)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
