"""Ask and tell, other losses from the same rows, other intervals, metrics by name."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import metrics
from sklearn.datasets import make_classification
from sklearn.linear_model import LinearRegression, LogisticRegression

from sklearn_awsgd import MinVarianceImportanceEstimator


@pytest.fixture(scope="module")
def pool():
    X, y = make_classification(
        4000, 6, weights=[0.9], flip_y=0.02, random_state=0, n_informative=4
    )
    model = LogisticRegression(solver="newton-cg").fit(X[:300], y[:300])
    other = LogisticRegression(C=0.01, solver="newton-cg").fit(X[:200], y[:200])
    values = -np.log(model.predict_proba(X)[np.arange(len(y)), y])
    return X, y, model, other, values


def estimate(*args, **parameters):
    parameters = {"random_state": 0, "rtol": None, **parameters}
    return MinVarianceImportanceEstimator(*args, **parameters)


# Ask and tell.


def test_told_values_give_what_called_ones_give(pool):
    X, y, _, _, values = pool
    called = estimate(
        loss=lambda rows, y: values[rows], batch_size=100, max_evaluations=500
    ).fit(np.arange(len(y)), y)
    told = estimate(loss=lambda rows, y: 1 / 0)
    rows = told.ask(100, X, y)
    for _ in range(4):
        assert len(rows) == 100
        told.tell(rows, values[rows])
        rows = told.ask(100)
    told.tell(rows, values[rows])
    assert told.status_ == "told"
    assert_allclose(told.estimate_, called.estimate_, rtol=0.2)
    assert told.n_evaluations_ == called.n_evaluations_ == 500
    assert_array_equal(told.evaluated_["value"], values[told.evaluated_["row"]])
    assert len(told.history_["estimate"]) == 5


def test_rows_are_told_in_any_order_and_later(pool):
    _, y, _, _, values = pool
    in_order, mixed = (estimate(loss=None) for _ in range(2))
    asked = [[e.ask(60, range(len(y))), e.ask(60)] for e in (in_order, mixed)]
    for rows in asked[0]:
        in_order.tell(rows, values[rows])
    rows = np.random.default_rng(0).permutation(np.concatenate(asked[1]))
    for part in np.array_split(rows, 7):
        mixed.tell(part, values[part])
    assert mixed.estimate_ == pytest.approx(in_order.estimate_, rel=1e-12)
    assert mixed.confidence_interval_ == pytest.approx(in_order.confidence_interval_)
    # No row is asked for twice, told or not.
    assert len(np.unique(np.concatenate([rows, mixed.ask(500)]))) == 620


def test_a_round_counts_once_it_is_complete(pool):
    _, y, _, _, values = pool
    told = estimate()
    rows = told.ask(50, np.arange(len(y)))
    told.tell(rows[:49], values[rows[:49]])
    assert not hasattr(told, "estimate_")
    with pytest.raises(ValueError, match="1 rows that ask"):
        told.partial_fit()
    told.tell(rows[49:], values[rows[49:]])
    assert told.n_evaluations_ == 50


def test_all_rows_told_are_exact(pool):
    _, y, model, _, _ = pool
    X = pool[0][:100]
    told = estimate(model, "precision")
    rows = told.ask(1000, X, y[:100])
    assert len(rows) == 100
    predicted = model.predict(X[rows]) == 1
    told.tell(rows, np.column_stack([predicted & (y[rows] == 1), predicted]))
    assert told.status_ == "exact"
    expected = metrics.precision_score(y[:100], model.predict(X))
    assert_allclose(told.estimate_, expected)


@pytest.mark.parametrize("with_surrogate", [False, True])
def test_precision_asks_for_predicted_positives_alone(pool, with_surrogate):
    """Predictions are there, labels are what is told."""
    X, y, model = pool[:3]
    predicted, positive = model.predict(X) == 1, y == 1
    truth = metrics.precision_score(y, model.predict(X))
    surrogate = LogisticRegression().fit(X[:100], y[:100]) if with_surrogate else None
    covered, errors = [], []
    n = int(predicted.sum()) // 3
    for seed in range(30):
        study = estimate(model, "precision", random_state=seed, surrogate=surrogate)
        for _ in range(2):
            rows = study.ask(n // 2, *([] if _ else [X]))
            assert predicted[rows].all()
            study.tell(rows, positive[rows])
        low, high = study.confidence_interval_
        covered.append(low <= truth <= high)
        errors.append(study.estimate_ - truth)
    assert np.mean(covered) >= 0.9
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(30) + 1e-9
    study = estimate(model, "precision", random_state=0)
    rows = study.ask(len(y), X)
    assert len(rows) == predicted.sum()
    assert study.tell(rows, positive[rows]).estimate_ == pytest.approx(truth)
    assert study.status_ == "exact"


def test_no_row_predicted_has_no_precision(pool):
    X, _, model = pool[:3]
    with pytest.raises(ValueError, match="predicts the class 1 for no row"):
        estimate(model, "precision").ask(10, X[model.predict(X) == 0])


def test_several_values_are_for_estimate(pool):
    X = pool[0]
    with pytest.raises(ValueError, match=r"ask for all of them with estimate\(loss\)"):
        estimate(loss=lambda X: X[:, :2]).fit(X)


def test_what_cannot_be_told(pool):
    told = estimate()
    with pytest.raises(ValueError, match=r"call ask\(n, X\) first"):
        told.ask(10)
    with pytest.raises(ValueError, match="call ask"):
        told.tell([1], [1.0])
    rows = told.ask(10, range(1000))
    strange = np.setdiff1d(np.arange(1000), rows)[:1]
    for bad, values, message in (
        (strange, [1.0], "was told, but each row"),
        (rows[[0, 0]], [1.0, 1.0], "more than once"),
        (rows[:1], [np.nan], "must be finite"),
        (rows[:2], [1.0], "give 2 numbers"),
        ([0.5], [1.0], "rows must be positions"),
    ):
        with pytest.raises(ValueError, match=message):
            told.tell(bad, values)
    with pytest.raises(ValueError, match="without replacement"):
        estimate(sampler="norm").ask(3, pool[0])


# Other losses from the same rows.


def test_another_loss_is_unbiased_and_covered(pool):
    X, y, model, _, values = pool
    wrong = 1.0 * (model.predict(X) != y)
    errors, covered = [], 0
    for seed in range(60):
        result = estimate(
            loss=lambda rows, y: values[rows], max_evaluations=400, random_state=seed
        ).fit(np.arange(len(y)), y)
        second = result.estimate(wrong[result.evaluated_["row"]])
        errors.append(second.estimate - wrong.mean())
        low, high = second.confidence_interval
        covered += low <= wrong.mean() <= high
        # Its own loss comes out as it was.
        again = result.estimate(result.evaluated_["value"])
        assert again.estimate == pytest.approx(result.estimate_, rel=1e-12)
        assert again.std_error == pytest.approx(result.std_error_, rel=1e-9)
    assert abs(np.mean(errors)) < 3.5 * np.std(errors) / np.sqrt(60)
    assert covered >= 53


def test_another_loss_by_name(pool):
    X, y, model, _, _ = pool
    result = estimate(model, "log_loss", max_evaluations=len(y)).fit(X, y)
    second = result.estimate("f1")
    assert_allclose(second.estimate, metrics.f1_score(y, model.predict(X)))
    with pytest.raises(ValueError, match="other rows"):
        result.estimate("recall")
    with pytest.raises(ValueError, match="one for each row of evaluated_"):
        result.estimate([1.0])


def test_quantiles_are_covered(pool):
    _, y, _, _, values = pool
    covered = 0
    for seed in range(40):
        result = estimate(
            loss=lambda rows, y: values[rows], max_evaluations=400, random_state=seed
        ).fit(np.arange(len(y)), y)
        low, high = result.quantile(0.9).confidence_interval
        covered += low <= np.quantile(values, 0.9, method="inverted_cdf") <= high
    assert covered >= 35
    exact = result.set_params(max_evaluations=len(y)).fit(np.arange(len(y)), y)
    expected = np.quantile(values, 0.9, method="inverted_cdf")
    assert exact.quantile(0.9).estimate == expected
    assert exact.quantile(0.9).confidence_interval == (expected, expected)


# Other intervals.


def test_levels_sides_and_p_values_agree(pool):
    X, y, model, other, _ = pool
    result = estimate((other, model), "log_loss", max_evaluations=800).fit(X, y)
    low, high = result.confidence_interval()
    assert (low, high) == result.confidence_interval_
    wide = result.confidence_interval(0.99)
    assert wide[0] < low < high < wide[1]
    assert result.confidence_interval(0.975, "lower") == pytest.approx((low, np.inf))
    assert result.confidence_interval(0.975, "upper") == pytest.approx((-np.inf, high))
    # The p-value is the level at which the interval ends there.
    assert result.p_value(low) == pytest.approx(0.05, rel=1e-6)
    assert result.p_value(high) == pytest.approx(0.05, rel=1e-6)
    assert result.p_value(low, "greater") == pytest.approx(0.025, rel=1e-6)
    assert result.p_value(low, "less") == pytest.approx(0.975, rel=1e-6)
    assert result.p_value() < 0.05 or low < 0 < high


def test_an_absolute_tolerance(pool):
    X, y, model, _, _ = pool
    result = estimate(model, "zero_one", atol=0.02).fit(X, y)
    low, high = result.confidence_interval_
    assert result.status_ == "tolerance"
    assert high - low <= 0.04
    assert result.n_evaluations_ < len(y)


def test_intervals_that_hold_at_all_times(pool):
    """All looks of a run hold the truth together, in at least 93 % of the runs."""
    _, y, _, _, values = pool
    truth, held, wider = values.mean(), 0, []
    for seed in range(40):
        runs = [
            estimate(
                loss=lambda rows, y: values[rows],
                anytime=anytime,
                batch_size=30,
                max_evaluations=1500,
                random_state=seed,
            ).fit(np.arange(len(y)), y)
            for anytime in (True, False)
        ]
        history = runs[0].history_
        held += ((history["low"] <= truth) & (truth <= history["high"])).all()
        widths = [np.diff(run.confidence_interval_)[0] for run in runs]
        wider.append(widths[0] / widths[1])
    assert held >= 37
    assert 1.2 < np.median(wider) < 2


def test_models_that_differ_in_a_few_rows_are_not_known_to_be_alike():
    """50 of 50,000 rows: no interval of width zero, and zero is not the only truth."""
    n = 50_000
    y = np.random.default_rng(0).integers(0, 2, size=n)

    class Known:
        classes_ = np.array([0, 1])

        def __init__(self, predicted):
            self.predicted = predicted

        def predict(self, X):
            return self.predicted[X[:, 0].astype(int)]

    flipped = y.copy()
    flipped[::1000] = 1 - flipped[::1000]
    for seed in range(10):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = estimate(
                (Known(flipped), Known(y)),
                "zero_one",
                max_evaluations=500,
                random_state=seed,
            ).fit(np.arange(n)[:, None], y)
        low, high = result.confidence_interval_
        assert low < 0
        assert high >= 0.001


def test_a_misleading_surrogate_is_covered():
    """Large values, as large as others, at rows of small scores."""
    random = np.random.default_rng(0)
    n = 20_000
    score = np.exp(1.5 * random.normal(size=n))
    values = score * random.uniform(0.8, 1.2, size=n)
    small = np.flatnonzero(score < np.median(score))
    values[random.choice(small, 40, replace=False)] = np.sort(values)[-40:]
    covered = 0
    for seed in range(40):
        result = estimate(
            loss=lambda rows: values[rows],
            surrogate=score,
            max_evaluations=500,
            random_state=seed,
        ).fit(np.arange(n))
        low, high = result.confidence_interval_
        covered += low <= values.mean() <= high
    assert covered >= 36


def test_a_learned_surrogate_of_noise_changes_nothing():
    random = np.random.default_rng(0)
    X = np.column_stack([random.normal(size=(5000, 2)), np.arange(5000)])
    values = random.exponential(size=5000)
    y = random.integers(0, 2, size=5000)
    X[:, :2] = random.normal(size=(5000, 2))

    def loss(rows, y):
        return values[rows[:, 2].astype(int)]

    results = [
        estimate(loss=loss, max_evaluations=1500, surrogate=surrogate).fit(X, y)
        for surrogate in (None, "learned")
    ]
    assert results[0].estimate_ == results[1].estimate_


# Metrics by name.


@pytest.mark.parametrize(
    "name",
    [
        "accuracy",
        "balanced_accuracy",
        "neg_log_loss",
        "neg_brier_score",
        "jaccard",
        "matthews_corrcoef",
        "recall",
    ],
)
def test_scorers_of_classifiers(pool, name):
    X, y, model, _, _ = pool
    expected = metrics.get_scorer(name)(model, X, y)
    exact = estimate(model, name, max_evaluations=len(y)).fit(X, y)
    assert_allclose(exact.estimate_, expected)
    some = estimate(model, name, max_evaluations=390).fit(X, y)
    low, high = some.confidence_interval_
    assert low <= expected <= high
    assert low < high


@pytest.mark.parametrize(
    "name",
    [
        "neg_mean_squared_error",
        "neg_mean_absolute_error",
        "neg_root_mean_squared_error",
    ],
)
def test_scorers_of_regressors(name):
    random = np.random.default_rng(0)
    X = random.normal(size=(2000, 3))
    y = X[:, 0] + random.normal(size=2000)
    model = LinearRegression().fit(X[:50], y[:50])
    expected = metrics.get_scorer(name)(model, X, y)
    exact = estimate(model, name, max_evaluations=2000).fit(X, y)
    assert_allclose(exact.estimate_, expected)
    low, high = (
        estimate(model, name, max_evaluations=300).fit(X, y).confidence_interval_
    )
    assert low < expected < high


def test_matthews_correlation_is_covered(pool):
    X, y, model, _, _ = pool
    truth = metrics.matthews_corrcoef(y, model.predict(X))
    covered = 0
    for seed in range(40):
        result = estimate(
            model, "matthews_corrcoef", max_evaluations=500, random_state=seed
        ).fit(X, y)
        low, high = result.confidence_interval_
        covered += low <= truth <= high
    assert covered >= 36


def test_weights_of_classes_are_of_all_rows(pool):
    X, y, model, _, _ = pool
    result = estimate(model, "balanced_accuracy", max_evaluations=300).fit(X, y)
    with pytest.raises(ValueError, match="call fit with all rows"):
        result.partial_fit(X, y)
    with pytest.raises(ValueError, match="no row of the class"):
        estimate(model, "recall").fit(X, np.zeros(len(y), dtype=int))
