"""Numbers at the far ends, and nothing at all: right, or an error that says why."""

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.base import clone

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    MinVarianceImportanceEstimator,
    matrix_from_entries,
)
from sklearn_awsgd.samplers import NormSampler, StrataSampler


def factorize(X, weight, **options):
    model = AWSGDMatrixFactorization(2, max_iter=5, tol=None, random_state=0, **options)
    return model.fit(X, entry_weight=weight).components_


def matrices(rng):
    """Every kind of matrix, with weights of its entries and the setting it needs."""
    X = rng.standard_normal((20, 8))
    weight = rng.gamma(1.0, size=X.shape) + 0.1
    there = rng.random(X.shape) < 0.6
    stored = sparse.csr_array(np.where(there, X, 0))
    stored_weight = stored.copy()
    stored_weight.data = weight[there]
    yield X, weight, {}
    yield np.where(there, X, np.nan), weight, {}
    yield stored, stored_weight, {"unstored": "missing"}


@pytest.mark.parametrize("scale", [1e307, 1e120, 1e-120, 1e-305])
def test_only_ratios_of_entry_weights_matter(scale, rng):
    for X, weight, options in matrices(rng):
        expected = factorize(X, weight, **options)
        result = factorize(X, weight * scale, **options)
        np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-10)


def test_equal_entry_weights_of_any_size(rng):
    for X, weight, options in matrices(rng):
        values = weight.data if sparse.issparse(weight) else weight
        values[:] = 1.0
        expected = factorize(X, weight, **options)
        for size in (1e308, 5e-324):
            values[:] = size
            result = factorize(X, weight, **options)
            np.testing.assert_allclose(result, expected, rtol=1e-8, atol=1e-10)


def test_entries_that_outweigh_the_zeros(rng):
    X = sparse.csr_array(np.where(rng.random((20, 8)) < 0.5, 1.0, 0.0))
    weight = X.copy()
    # Zeros that are not stored weigh 1, which is nothing beside these.
    weight.data = np.full(X.nnz, 1e308)
    model = AWSGDMatrixFactorization(1, max_iter=60, tol=None, random_state=0)
    model.fit(X, entry_weight=weight)
    assert model.reconstruction_err_ < 0.01
    # And these are nothing beside the zeros.
    weight.data = np.full(X.nnz, 1e-308)
    model.fit(X, entry_weight=weight)
    assert np.abs(model.components_).max() < 0.1


def absolute(X, y):
    return np.abs(y)


def estimators(scale, rng):
    """Estimates by every family, of values of some scale."""
    X = rng.standard_normal((2000, 3))
    y = rng.standard_normal(2000) * scale
    options = {"rtol": None, "max_evaluations": 300, "random_state": 0}
    samplers = "auto", "uniform", "norm", StrataSampler(update="sgd")
    for sampler in samplers:
        yield (
            MinVarianceImportanceEstimator(None, absolute, sampler=sampler, **options),
            (X, y),
        )
    yield MinVarianceImportanceEstimator(None, None, **options), (X, np.abs(y))
    yield (
        MinVarianceImportanceEstimator(None, absolute, surrogate=np.abs(y), **options),
        (X, y),
    )
    yield (
        MinVarianceImportanceEstimator(
            None, lambda places, x: np.abs(x) * scale, sampler="row_column", **options
        ),
        (X,),
    )
    yield (
        MinVarianceImportanceEstimator(None, lambda x: np.abs(x) * scale, **options),
        (stats.norm(),),
    )


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_estimates_of_any_scale(scale, rng):
    for model, data in estimators(scale, rng):
        model.fit(*data)
        assert 0.5 < model.estimate_ / scale < 1.1
        low, high = model.confidence_interval_
        assert low < model.estimate_ < high < 2 * model.estimate_


@pytest.mark.parametrize(
    ("scale", "words"),
    [(1e300, "large"), (1e160, "large"), (1e100, "large"), (1e-100, "small")],
)
def test_values_whose_powers_overflow(scale, words, rng):
    for model, data in estimators(scale, rng):
        with pytest.raises(ValueError, match=f"numbers as {words} as .* other units"):
            model.fit(*data)
        assert not hasattr(model, "estimate_")


def test_small_values_beside_others(rng):
    y = np.where(np.arange(2000) < 1500, 1e-200, 1.0)
    model = MinVarianceImportanceEstimator(None, absolute, random_state=0)
    assert model.fit(np.zeros((2000, 1)), y).estimate_ == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize(
    "values", [np.ones(9) + 1j, np.ones(9, dtype="M8[s]"), np.array(["one"] * 9)]
)
def test_values_that_are_no_numbers(values):
    model = MinVarianceImportanceEstimator(None, lambda X: values[: len(X)])
    with pytest.raises(TypeError, match=r"The loss '<lambda>' returned .* number"):
        model.fit(np.zeros((9, 1)))
    model = MinVarianceImportanceEstimator(None, None)
    with pytest.raises(TypeError, match=r"y has .* number"):
        model.fit(np.zeros((9, 1)), values)


def test_complex_rows():
    X = sparse.csr_array(np.eye(4) * 1j)
    with pytest.raises(ValueError, match="Complex data not supported: X is complex"):
        AWSGDClassifier().fit(X, [0, 1, 0, 1])
    model = MinVarianceImportanceEstimator(None, absolute, sampler="norm")
    with pytest.raises(ValueError, match="Complex data not supported"):
        model.fit(np.eye(4) * 1j, [0, 1, 0, 1])


@pytest.mark.parametrize("loss", ["squared_error", "huber", "log_loss", "poisson"])
@pytest.mark.parametrize("fit_bias", [False, True])
def test_rows_without_entries(loss, fit_bias, rng):
    X = (rng.random((20, 8)) < 0.5).astype(float)
    X[rng.random(X.shape) < 0.3] = np.nan
    model = AWSGDMatrixFactorization(
        2, loss=loss, fit_bias=fit_bias, max_iter=3, tol=None, random_state=0
    ).fit(X)
    X[3] = np.nan
    nothing = np.full((2, 8), np.nan)
    for query in (model.transform, model.predict, lambda X: model.recommend(X, 3)):
        np.testing.assert_array_equal(query(nothing), query(X)[[3, 3]])
    np.testing.assert_array_equal(model.transform(nothing), 0)
    places = [0, 1], [2, 5]
    expected = model.predict(nothing)[places]
    np.testing.assert_allclose(model.predict_entries(nothing, *places), expected)
    with pytest.raises(ValueError, match="two observed entries"):
        model.score(nothing)
    # There is nothing to learn from them.
    before = model.components_.copy()
    for train in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="no observed entry"):
            train(nothing)
    np.testing.assert_array_equal(model.components_, before)


def test_empty_rows_of_ratings(rng):
    X = sparse.csr_array(np.where(rng.random((20, 8)) < 0.5, 3.0, 0.0))
    model = AWSGDMatrixFactorization(
        2, unstored="missing", max_iter=3, tol=None, random_state=0
    ).fit(X)
    np.testing.assert_array_equal(model.transform(sparse.csr_array((3, 8))), 0)


def test_no_entries():
    X = matrix_from_entries([], [], [], shape=(3, 4))
    assert X.shape == (3, 4)
    assert X.nnz == 0
    with pytest.raises(ValueError, match=r"no entries.* give shape"):
        matrix_from_entries([], [], [])


@pytest.mark.parametrize(
    ("arguments", "shape", "error", "words"),
    [
        (([0, 1, 2], [0, 1], [1, 2]), None, ValueError, "rows has shape"),
        (([0, 1], [0], [1, 2]), None, ValueError, "columns has shape"),
        ((1, 1, 1), None, ValueError, "one value for each entry"),
        (([[0]], [0], [1]), None, ValueError, "rows has shape"),
        (([0.0], [0], [1]), None, ValueError, "rows must be integers"),
        (([0], ["a"], [1]), None, ValueError, "columns must be integers"),
        (([0], [-1], [1]), None, ValueError, "columns must be integers"),
        (([0, 2**40], [0, 1], [1, 2]), None, ValueError, "rows has 1099511627776"),
        (([0], [0], [np.nan]), None, ValueError, "values contains NaN"),
        (([0], [0], [1]), 5, TypeError, "two integers"),
        (([0], [0], [1]), (2, 2, 2), TypeError, "two integers"),
        (([0], [0], [1]), (2, 2.5), TypeError, "two integers"),
        (([3], [0], [1]), (2, 2), ValueError, "too small"),
    ],
)
def test_entries_that_make_no_matrix(arguments, shape, error, words):
    with pytest.raises(error, match=words):
        matrix_from_entries(*arguments, shape=shape)


def test_places_that_are_no_integers(rng):
    X = rng.standard_normal((20, 8))
    model = AWSGDMatrixFactorization(2, random_state=0).fit(X)
    assert model.predict_entries(X, [], []).shape == (0,)
    for rows in ([0.5], ["a"]):
        with pytest.raises(TypeError, match="rows must be integers"):
            model.predict_entries(X, rows, [1])


def test_the_name_of_a_column_is_no_strata():
    model = MinVarianceImportanceEstimator(None, absolute)
    with pytest.raises(TypeError, match=r"strata='town' is a text.*X\['town'\]"):
        model.fit(np.zeros((9, 1)), np.zeros(9), strata="town")


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("rate", ["auto", "adagrad"])
def test_rows_next_to_the_largest_of_single_precision(layout, rate, rng):
    """They are summed up in double precision, without a warning."""
    X = np.clip(rng.standard_normal((400, 5)), -1, 1)
    y = (X[:, 0] > 0).astype(int)
    clf = AWSGDClassifier(learning_rate=rate, max_iter=3, tol=None, random_state=0)
    found, expected = (
        clone(clf).fit(layout((3e38 * X).astype(np.float32)).astype(dtype), y).coef_
        for dtype in (np.float32, np.float64)
    )
    np.testing.assert_allclose(
        found, expected.astype(np.float32), rtol=1e-3, atol=1e-44
    )
    assert found.any()


@pytest.mark.parametrize("n_columns", [5, 300])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("loss", ["log_loss", "multinomial"])
def test_streams_of_large_rows_of_single_precision(loss, layout, n_columns, rng):
    """The squares of a chunk have no room for their sum in single precision."""
    X = np.clip(rng.standard_normal((400, n_columns)), -1, 1)
    y = np.digitize(X[:, 0], [-0.5, 0.5][: 1 + (loss == "multinomial")])
    X = layout((7e18 / n_columns**0.5 * X).astype(np.float32))
    found, expected = (
        AWSGDClassifier(loss, random_state=0)
        .partial_fit(rows, y, classes=np.unique(y))
        .coef_
        for rows in (X, X.astype(np.float64))
    )
    np.testing.assert_allclose(found, expected.astype(np.float32), rtol=1e-3)


def test_large_class_weights_do_not_overflow_in_single_precision(rng):
    """A stream begins with rows that are drawn by their weights and norms."""
    X = rng.standard_normal((20_000, 4)).astype(np.float32)
    y = (X[:, 0] + rng.standard_normal(20_000) > 0).astype(int)
    clf = AWSGDClassifier("hinge", random_state=0, alpha=1e97)
    clf.set_params(class_weight={0: 1e100, 1: 1e100})
    found, expected = (
        clone(clf).fit(rows, y).partial_fit(rows[:500], y[:500]).coef_
        for rows in (X, X.astype(np.float64))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sampler", ["uniform", "label", "level", NormSampler()])
@pytest.mark.parametrize("loss", ["log_loss", "hinge"])
@pytest.mark.parametrize("rate", ["auto", "adagrad"])
def test_weights_of_any_size_beside_each_other(rate, loss, sampler, rng):
    """Rows of no weight to speak of are not there: one over it would overflow."""
    X = rng.standard_normal((2000, 5))
    y = (X[:, 0] + rng.logistic(size=2000) > 0).astype(int)
    weight = 10.0 ** rng.uniform(-300, 300, size=2000)
    clf = AWSGDClassifier(loss, sampler=sampler, learning_rate=rate, alpha=1e-3)
    clf.set_params(max_iter=20, tol=None, random_state=0)
    clf.fit(X, y, sample_weight=weight)
    there = weight > 1e-140 * weight.sum()
    expected = clone(clf).fit(X, y, sample_weight=np.where(there, weight, 0))
    np.testing.assert_array_equal(clf.coef_, expected.coef_)
    assert clf.coef_.any()
