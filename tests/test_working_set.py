"""An l1 penalty on wide data: columns, working sets, certificates."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn_awsgd._kernels._columns import (
    combine,
    correlate,
    count_numbers,
    minimize_by_columns,
)
from sklearn_awsgd._kernels._losses import LogLoss
from sklearn_awsgd._kernels._rows import Rows

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._kernels.settings import Penalty
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd._linear.columns import (
    SHARE_COPIED,
    DenseColumns,
    SparseColumns,
    weighted_gram,
)
from sklearn_awsgd._linear.objectives import penalized_bound
from sklearn_awsgd._linear.phases.working_set import (
    FEWEST_FEATURES,
    MANY_FEATURES,
    MOST_ROWS_PER_FEATURE,
    needs_working_set,
)
from sklearn_awsgd._linear.sums import LinearSums
from sklearn_awsgd.sources import IndexedRows

FORMS = [
    np.ascontiguousarray,
    lambda C: C.astype(np.float32),
    sparse.csr_array,
    lambda C: sparse.csr_array(C.astype(np.float32)),
]


@pytest.mark.parametrize("form", FORMS)
def test_columns_as_numpy_has_them(form):
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((7, 30)) * (rng.random((7, 30)) < 0.5)
    columns = columns.astype(np.float32).astype(float)
    which = np.array([5, 0, 3])
    w, c = np.array([1.0, 0.0, -2.0]), rng.standard_normal(30)
    rows = Rows(form(columns))
    assert_allclose(combine(rows, which, w, 0.5), 0.5 + w @ columns[which])
    assert_allclose(correlate(rows, which, c), columns[which] @ c)
    chosen = np.vstack([columns[which], np.ones(30)])
    products = (chosen * c**2) @ chosen.T
    assert_allclose(weighted_gram(form(columns[which]), c**2), products, atol=1e-13)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_are_copied_as_they_are_asked_for(index, dtype):
    X = sparse.random(40, 60, 0.2, format="csr", random_state=0, dtype=dtype)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    dense = X.toarray()
    assert_array_equal(count_numbers(Rows(X)), (dense != 0).sum(axis=0))
    columns = SparseColumns(X)
    few = [np.array([7, 3]), np.array([0, 3, 59]), np.array([59])]
    for which in [*few, np.arange(60)]:
        matrix, places = columns.take(which)
        assert_array_equal(matrix[places].toarray(), dense[:, which].T)
        n_copied = matrix.nnz if len(which) < 60 else 0
        assert n_copied <= SHARE_COPIED * X.nnz
    # Nothing is copied twice, and nothing that is not asked for.
    matrix, _ = SparseColumns(X).take(few[0])
    assert matrix.shape == (2, 40)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_columns_are_kept_while_they_are_few(dtype):
    X = np.random.default_rng(0).standard_normal((40, 60)).astype(dtype)
    columns = DenseColumns(Blocks(X, parts=[slice(0, 15), slice(15, 40)]))
    kept = 0
    for which in ([7, 3], [0, 3, 59], range(0, 20, 2), range(31, 60), range(60), [5]):
        which = np.array(which)
        matrix, places = columns.take(which)
        assert matrix.flags.c_contiguous
        assert_array_equal(matrix[places], X[:, which].T)
        n_kept = len(matrix)
        # More than half of them are none too many, if they are asked for together.
        assert n_kept <= max(SHARE_COPIED * 60, len(which), kept)
        kept = n_kept
    assert kept == 60


@pytest.mark.parametrize("form", [*FORMS, lambda X: np.ascontiguousarray(X[:, :9])])
def test_known_predictions_spare_products_with_the_rows(form):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((130, 700)) * (rng.random((130, 700)) < 0.5)
    X = form(X.astype(np.float32).astype(float))
    y, norms2 = rng.choice([-1.0, 1.0], 130), np.ones(130)
    sums = LinearSums(Blocks(X), LogLoss(), y, None, norms2)
    v = rng.standard_normal(X.shape[1] + 1) / 30
    z = X @ v[:-1] + v[-1]
    for known, asked in zip(sums.evaluate(v, z), sums.evaluate(v), strict=True):
        assert_allclose(known, asked, rtol=1e-6, atol=1e-9)
    # They are what counts, not v.
    for known, asked in zip(sums.evaluate(0 * v, z), sums.evaluate(v), strict=True):
        assert_allclose(known, asked, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("is_same", [True, False], ids=["same h", "any h"])
def test_minimum_of_a_model_by_columns(form, fit_intercept, is_same):
    """The subgradient of the model contains zero at what the kernel returns."""
    rng = np.random.default_rng(1)
    columns = rng.standard_normal((9, 40)) * (rng.random((9, 40)) < 0.6)
    columns = columns.astype(np.float32).astype(float)
    which, h = np.array([8, 1, 2, 5, 6]), rng.random(40)
    h = np.full(40, 0.1) if is_same else h
    gradient, v = rng.standard_normal(6), rng.standard_normal(6)
    v[2], l1, l2 = 0.0, 0.7, 0.3
    gradient[-1] *= fit_intercept
    enough = 1e-13, (1e-13 if fit_intercept else np.inf), 0.0
    d, n_sweeps = minimize_by_columns(
        Rows(form(columns)), which, h, gradient, v, (l1, l2), enough, 10_000
    )
    assert n_sweeps < 10_000
    moves = d[:-1] @ columns[which] + d[-1]
    slope = gradient + np.append(columns[which] @ (h * moves), h @ moves)
    slope[:-1] += l2 * d[:-1]
    w = (v + d)[:-1]
    assert (w == 0).any()
    assert (w != 0).any()
    assert_allclose(slope[:-1][w != 0], -l1 * np.sign(w[w != 0]), atol=1e-11)
    assert (np.abs(slope[:-1][w == 0]) <= l1 + 1e-11).all()
    assert d[-1] == 0 if not fit_intercept else abs(slope[-1]) < 1e-11


def plain_sweeps(gram, gradient, l1, flat):
    """Return how many sweeps of coordinate descent from zero a model takes."""
    d, curvature = np.zeros(len(gradient)), np.diag(gram)
    for n_sweeps in range(1, 100_000):
        worst = 0.0
        for j in range(len(d)):
            aim = d[j] - (gradient[j] + gram[j] @ d) / curvature[j]
            new = np.sign(aim) * max(abs(aim) - l1 / curvature[j], 0.0)
            worst, d[j] = max(worst, curvature[j] * abs(new - d[j])), new
        if worst <= flat:
            return n_sweeps, d
    raise AssertionError("more sweeps than ever")


@pytest.mark.parametrize("form", FORMS)
def test_models_of_columns_alike_take_few_sweeps(form):
    """Sweeps are extrapolated from, and lead to the same minimum."""
    rng = np.random.default_rng(2)
    columns = np.cumsum(rng.standard_normal((30, 200)), axis=0) + 3
    columns = columns.astype(np.float32).astype(float)
    h, gradient = np.full(200, 1 / 200), 10 * rng.standard_normal(31)
    gradient[-1], l1, flat = 0.0, 0.5, 1e-9
    rows, v = Rows(form(columns)), np.zeros(31)
    d, n_sweeps = minimize_by_columns(
        rows, np.arange(30), h, gradient, v, (l1, 0.0), (flat, np.inf, 0.0), 100_000
    )
    gram = (columns * h) @ columns.T
    plain, expected = plain_sweeps(gram, gradient[:-1], l1, flat)
    assert 2 * n_sweeps < plain
    assert_allclose(d[:-1], expected, atol=1e-5 * np.abs(expected).max())


def test_a_model_that_is_cut_short_says_so():
    columns = np.random.default_rng(0).standard_normal((5, 4))
    h, gradient = np.ones(4), np.ones(6)
    arguments = (Rows(columns), np.arange(5), h, gradient, np.zeros(6), (0.1, 0.0))
    assert minimize_by_columns(*arguments, (0.0, 0.0, 0.0), 3)[1] == 3


@pytest.mark.parametrize("form", FORMS)
def test_sweeps_end_where_slopes_cost_little(form):
    """So little as was said, which takes fewer sweeps the more that is."""
    rng = np.random.default_rng(4)
    columns = np.cumsum(rng.standard_normal((30, 200)), axis=0) + 3
    columns = columns.astype(np.float32).astype(float)
    h, gradient, l1 = np.full(200, 1 / 200), 10 * rng.standard_normal(31), 0.5
    gradient[-1], rows, v = 0.0, Rows(form(columns)), np.zeros(31)

    def minimise(gain):
        arguments = rows, np.arange(30), h, gradient, v, (l1, 0.0)
        d, n_sweeps = minimize_by_columns(*arguments, (0.0, np.inf, gain), 100_000)
        moves = d[:-1] @ columns
        return h @ moves**2 / 2 + gradient @ d + l1 * np.abs(d).sum(), n_sweeps

    least, most = minimise(1e-13)
    sweeps = [most]
    for gain in (1e-8, 1e-4, 1.0):
        value, n_sweeps = minimise(gain)
        assert least - 1e-9 <= value <= least + gain
        sweeps.append(n_sweeps)
    assert sweeps == sorted(sweeps, reverse=True)
    assert sweeps[-1] < sweeps[0] / 2


@settings(max_examples=100)
@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=6),
    st.floats(0.01, 5),
    st.sampled_from([0.0, 1e-6, 0.1, 3.0]),
    st.floats(-1, 10),
    st.sampled_from([0.0, 1e-6, 1.0, 30.0]),
)
def test_bound_of_the_best_scale(mean, l1, l2, value, spare):
    """As good as the best scale of a dual point that a search finds."""
    mean = np.array(mean)

    def bound(s):
        beyond = np.maximum(s * np.abs(mean) - l1, 0)
        spared = s * (1 - s) * spare
        if l2 == 0:
            return s * value + spared if beyond.max() <= 1e-12 else -np.inf
        return s * value + spared - beyond @ beyond / (2 * l2)

    largest = min(1.0, l1 / max(np.abs(mean).max(), 1e-300))
    best = max(map(bound, [largest, *np.linspace(0, 1, 1001)]))
    ours = penalized_bound(value, mean, l1, l2, spare)
    assert ours >= best - 1e-9 * (1 + abs(best))
    # No better than the best: it is a bound. Between the scales tried the slope is at
    # most that at zero.
    assert ours <= best + 1e-3 * (abs(value) + spare) + 1e-9


@pytest.mark.parametrize("alpha", [1e-3, 0.03, 0.3])
def test_least_squares_of_few_features_are_solved_once(alpha, rng):
    """The second pass certifies it, and nothing is solved again."""
    X = rng.standard_normal((500, 6)) + 3
    y = X[:, 0] - X[:, 1] + rng.standard_normal(500)
    y = (y - y.mean()) / y.std()
    model = AWSGDRegressor(penalty="l1", alpha=alpha, tol=1e-6).fit(X, y)
    lasso = Lasso(alpha=alpha, tol=1e-14, max_iter=100_000).fit(X, y)
    assert_allclose(model.coef_, lasso.coef_, atol=1e-8)
    assert model.n_iter_ == 2
    assert model.duality_gap_[0] <= 1e-10


LOSSES = {
    "log_loss": lambda y, z: (np.logaddexp(0, -y * z), -y / (1 + np.exp(y * z))),
    "squared_hinge": lambda y, z: (
        np.maximum(1 - y * z, 0) ** 2,
        -2 * y * np.maximum(1 - y * z, 0),
    ),
    "squared_error": lambda y, z: ((z - y) ** 2 / 2, z - y),
    "huber": lambda y, z: (
        np.where(
            np.abs(z - y) <= 1, (z - y) ** 2 / 2, np.maximum(np.abs(z - y) - 0.5, 0)
        ),
        np.clip(z - y, -1, 1),
    ),
}


def objective(loss, X, y, P, l1, l2, w, b):
    return P @ LOSSES[loss](y, X @ w + b)[0] + l1 * np.abs(w).sum() + l2 / 2 * w @ w


def reference(loss, X, y, P, l1, l2, fit_intercept):
    """Return the minimum, by scipy on the positive and negative parts."""
    d = X.shape[1]

    def evaluate(x):
        w, b = x[:d] - x[d : 2 * d], x[-1]
        losses, c = LOSSES[loss](y, X @ w + b)
        g = X.T @ (P * c) + l2 * w
        value = P @ losses + l1 * x[:-1].sum() + l2 / 2 * w @ w
        return value, np.concatenate([g + l1, l1 - g, [P @ c * fit_intercept]])

    bounds = [(0, None)] * (2 * d) + [(None, None)]
    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-10}
    x = np.zeros(2 * d + 1)
    for _ in range(3):
        x = minimize(
            evaluate, x, jac=True, bounds=bounds, method="L-BFGS-B", options=options
        ).x
    return evaluate(x)[0]


@settings(max_examples=25)
@given(
    loss=st.sampled_from(sorted(LOSSES)),
    share=st.sampled_from([1.0, 0.5, 0.05]),
    strength=st.sampled_from([0.7, 0.2, 0.03]),
    is_sparse=st.booleans(),
    weighted=st.booleans(),
    fit_intercept=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_tol_and_certificate(
    loss, share, strength, is_sparse, weighted, fit_intercept, seed
):
    """Within tol of an optimum found by other means; the gap is no less than that."""
    rng = np.random.default_rng(seed)
    n, d = 30, FEWEST_FEATURES
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
    y = X[:, :4].sum(axis=1) + rng.standard_normal(n)
    kind = AWSGDRegressor
    if loss in ("log_loss", "squared_hinge"):
        kind, y = AWSGDClassifier, np.where(y > 0.5, 1.0, -1.0)
    weight = rng.integers(0, 4, n) + 0.5 if weighted else np.ones(n)
    P = weight / weight.sum()
    alpha = strength * np.abs(X.T @ (P * y)).max()
    model = kind(
        loss=loss,
        penalty="elasticnet",
        l1_ratio=share,
        alpha=alpha,
        epsilon=1.0,
        fit_intercept=fit_intercept,
        tol=1e-4,
    )
    rows = sparse.csr_array(X) if is_sparse else X
    model.fit(rows, y, sample_weight=weight if weighted else None)
    penalties = share * alpha, (1 - share) * alpha
    best = reference(loss, X, y, P, *penalties, fit_intercept)
    w, b = model.coef_.ravel(), model.intercept_.item()
    ours = objective(loss, X, y, P, *penalties, w, b)
    assert ours <= (1 + 1e-4) * best + 1e-9
    assert model.duality_gap_[0] >= ours - best - 1e-9
    assert model.duality_gap_[0] <= 1e-4 * ours


@pytest.mark.parametrize("l1_ratio", [1.0, 0.3])
def test_same_as_elastic_net(l1_ratio):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3100))
    y = X[:, :5].sum(axis=1) + 10
    settings = {"alpha": 0.1, "l1_ratio": l1_ratio}
    ours = AWSGDRegressor(penalty="elasticnet", tol=1e-13, **settings).fit(X, y)
    theirs = ElasticNet(tol=1e-12, max_iter=100_000, **settings).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    assert ((ours.coef_ == 0) == (theirs.coef_ == 0)).all()
    assert (ours.history_["phase"] == "exact").all()


@pytest.mark.parametrize("loss", ["hinge", "epsilon_insensitive"])
def test_kinks(loss):
    """Rounded ever more sharply, with the certificate of the loss with its kinks."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3000))
    z = X[:, :3].sum(axis=1) + rng.standard_normal(40)
    kind, y = AWSGDRegressor, z
    if loss == "hinge":
        kind, y = AWSGDClassifier, z > 0
    rough = kind(loss=loss, penalty="l1", alpha=0.1, tol=1e-2).fit(X, y)
    fine = kind(loss=loss, penalty="l1", alpha=0.1, tol=1e-5).fit(X, y)

    def value(model):
        w, z = model.coef_.ravel(), X @ model.coef_.ravel() + model.intercept_
        if loss == "hinge":
            losses = np.maximum(1 - np.where(y, 1, -1) * z, 0)
        else:
            losses = np.maximum(np.abs(z - y) - 0.1, 0)
        return losses.mean() + 0.1 * np.abs(w).sum()

    assert value(rough) <= 1.01 * value(fine)
    assert rough.duality_gap_[0] >= value(rough) - value(fine)
    assert fine.duality_gap_[0] <= 1e-3 * value(fine)


def test_one_against_the_rest_and_weights_of_classes():
    rng = np.random.default_rng(0)
    X = sparse.random(300, 3200, 0.02, format="csr", random_state=0)
    y = rng.integers(0, 3, 300)
    settings = {"penalty": "l1", "alpha": 2e-3, "tol": 1e-7}
    model = AWSGDClassifier(class_weight="balanced", **settings).fit(X, y)
    again = AWSGDClassifier(class_weight="balanced", n_jobs=2, **settings).fit(X, y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    weight = len(y) / (3 * np.bincount(y)[y])
    given_weight = AWSGDClassifier(**settings).fit(X, y, sample_weight=weight)
    assert_allclose(model.coef_, given_weight.coef_, atol=1e-4)


def test_rows_of_a_source():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3000))
    y = X[:, 0] - X[:, 1] > 0
    model = AWSGDClassifier(penalty="l1", alpha=0.02, tol=1e-6)
    here = model.fit(X, y).coef_
    assert_allclose(model.fit(IndexedRows(X), y).coef_, here, atol=1e-9)


def test_path_of_penalties_begins_where_the_last_ended():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 3000))
    y = X[:, :10].sum(axis=1) + rng.standard_normal(100) > 0
    alphas = 0.2 * np.logspace(0, -2, 6)
    warm = AWSGDClassifier(penalty="l1", warm_start=True, tol=1e-5)
    n_warm = n_cold = 0
    for alpha in alphas:
        n_warm += warm.set_params(alpha=alpha).fit(X, y).n_iter_
        cold = AWSGDClassifier(penalty="l1", alpha=alpha, tol=1e-5).fit(X, y)
        n_cold += cold.n_iter_
        ours, theirs = warm.history_["objective"][-1], cold.history_["objective"][-1]
        assert_allclose(ours, theirs, rtol=2e-5)
    assert n_warm <= n_cold


@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
def test_columns_that_go_together(l1_ratio):
    """Coordinate descent crawls there: it took 145 passes, without a matrix."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((100, 2000)) + rng.standard_normal((100, 1))
    y = X[:, :20] @ rng.standard_normal(20) + rng.standard_normal(100)
    alpha = 0.01 * np.abs(X.T @ y).max() / 100
    settings = {"alpha": alpha, "l1_ratio": l1_ratio, "fit_intercept": False}
    model = AWSGDRegressor(
        penalty="elasticnet", tol=1e-7, random_state=0, **settings
    ).fit(X, y)
    assert model.n_iter_ < 20
    w, l1 = model.coef_, alpha * l1_ratio
    slope = X.T @ (X @ w - y) / 100 + (alpha - l1) * w
    assert_allclose(slope[w != 0], -l1 * np.sign(w[w != 0]), rtol=1e-3)
    assert (np.abs(slope[w == 0]) <= 1.001 * l1).all()


def test_above_the_largest_penalty_all_is_zero():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 3000)), rng.standard_normal(30)
    alpha = 1.001 * np.abs(X.T @ (y - y.mean())).max() / 30
    model = AWSGDRegressor(penalty="l1", alpha=alpha).fit(X, y)
    assert not model.coef_.any()
    assert model.n_iter_ == 1
    assert_allclose(model.intercept_, y.mean())


def test_narrow_data_have_a_certificate_too():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 30))
    y = X[:, 0] + rng.standard_normal(2000) > 1
    model = AWSGDClassifier(penalty="l1", alpha=0.01).fit(X, y)
    best = LogisticRegression(
        solver="saga", l1_ratio=1.0, C=1 / (0.01 * 2000), tol=1e-9, max_iter=5000
    ).fit(X, y)
    P, sign = np.full(2000, 1 / 2000), np.where(y, 1.0, -1.0)

    def value(m):
        w, b = m.coef_.ravel(), m.intercept_[0]
        return objective("log_loss", X, sign, P, 0.01, 0.0, w, b)

    assert np.isfinite(model.duality_gap_[0])
    assert -1e-12 <= value(model) - value(best) + 1e-9
    assert model.duality_gap_[0] >= value(model) - value(best) - 1e-12


def test_passes_that_do_not_suffice_are_told():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3000))
    y = X[:, :40].sum(axis=1) > 0
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        AWSGDClassifier(penalty="l1", alpha=1e-3, max_iter=2, tol=1e-6).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AWSGDClassifier(penalty="l1", alpha=1e-3, tol=1e-6).fit(X, y)


def test_problems_share_the_copied_columns():
    """Threads that ask for columns at the same time get theirs."""
    rng = np.random.default_rng(0)
    X = sparse.random(200, 4000, 0.02, format="csr", random_state=rng)
    y, settings = rng.integers(0, 6, 200), {"penalty": "l1", "alpha": 3e-3}
    alone = AWSGDClassifier(random_state=0, **settings).fit(X, y).coef_
    assert alone.any()
    for _ in range(10):
        together = AWSGDClassifier(random_state=0, n_jobs=4, **settings).fit(X, y)
        assert_array_equal(together.coef_, alone)


@pytest.mark.parametrize(
    ("n_rows", "n_features", "expected"),
    [
        (MANY_FEATURES, MANY_FEATURES, True),
        (20 * MANY_FEATURES, MANY_FEATURES, True),
        (20 * MANY_FEATURES, MANY_FEATURES - 1, False),
        (MOST_ROWS_PER_FEATURE * MANY_FEATURES + 1, MANY_FEATURES, False),
        (FEWEST_FEATURES - 1, FEWEST_FEATURES, True),
        (FEWEST_FEATURES, FEWEST_FEATURES, False),
    ],
)
def test_which_rows_have_a_working_set(n_rows, n_features, expected):
    facts = SimpleNamespace(
        n_samples=n_rows,
        n_features=n_features,
        penalty=Penalty(l1=0.1),
        has_columns=True,
        is_smooth=True,
        is_at_hand=True,
        has_proximal_steps=True,
    )
    assert needs_working_set(facts) == expected
    facts.penalty = Penalty(l2=0.1)
    assert not needs_working_set(facts)


def test_many_features_of_more_rows(rng):
    X = rng.standard_normal((1500, MANY_FEATURES)) + rng.standard_normal((1500, 1))
    signs = np.where(X[:, :20].sum(axis=1) + 5 * rng.logistic(size=1500) > 0, 1, -1)
    clf = AWSGDClassifier(penalty="l1", alpha=0.01, tol=1e-8, random_state=0)
    w = clf.fit(X, signs).coef_[0]
    assert (clf.history_["phase"] == "exact").all()
    margins = signs * (X @ w + clf.intercept_[0])
    derivatives = -signs / (1 + np.exp(margins)) / 1500
    slopes, used = X.T @ derivatives, w != 0
    assert_allclose(slopes[used], -0.01 * np.sign(w[used]), atol=1e-5)
    assert np.abs(slopes[~used]).max() <= 0.01 + 1e-5
    assert abs(derivatives.sum()) <= 1e-5
    assert 0 < used.sum() < 200


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("share", [0.1, 0.003])
def test_least_squares_of_one_hot_rows_take_two_looks(share, fit_intercept):
    """All features are in the working set, and the model is the objective."""
    rng = np.random.default_rng(0)
    n, levels = 4000, 300
    columns = rng.integers(0, levels, (n, 2))
    columns[:, 1] += levels
    places = (
        columns.ravel().astype(np.int32),
        np.arange(0, 2 * n + 1, 2, dtype=np.int32),
    )
    X = sparse.csr_array((np.ones(2 * n), *places), shape=(n, 2 * levels))
    weight = rng.integers(1, 4, n)
    y = X @ rng.standard_normal(2 * levels) + 3 + rng.standard_normal(n)
    P = weight / weight.sum()
    alpha = share * np.abs(X.T @ (P * (y - fit_intercept * (P @ y)))).max()
    settings = {"alpha": alpha, "l1_ratio": 1.0, "fit_intercept": fit_intercept}
    model = AWSGDRegressor(penalty="elasticnet", tol=1e-5, **settings)
    model.fit(X, y, sample_weight=weight)
    assert model.n_iter_ <= 3
    exact = ElasticNet(tol=1e-12, max_iter=100_000, **settings)
    exact.fit(X, y, sample_weight=weight)

    def value(m):
        b = m.intercept_ * np.ones(1)
        return objective("squared_error", X, y, P, alpha, 0.0, m.coef_, b)

    best = value(exact)
    assert -1e-9 <= value(model) / best - 1 <= 1e-5
    assert value(model) - best <= model.duality_gap_[0] <= 1e-5 * best


def test_sweeps_that_find_nothing_to_do_are_not_the_end():
    """Slopes of when each was met were flat while the gap was not: 23 passes."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((100, 5000)) + rng.standard_normal((100, 1))
    y = X[:, :20] @ rng.standard_normal(20) + rng.standard_normal(100)
    alpha = 0.02 * np.abs(X.T @ y).max() / 100
    model = AWSGDRegressor(
        penalty="elasticnet", l1_ratio=0.5, alpha=alpha, fit_intercept=False, tol=1e-4
    ).fit(X, y)
    assert model.n_iter_ <= 12
