"""Several values, functions of means, clusters, heavy tails, rows of all kinds."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, norm
from sklearn import metrics
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from sklearn_awsgd import MinVarianceImportanceEstimator
from sklearn_awsgd._importance.stage import MOST_BEYOND, beyond_seen
from sklearn_awsgd._importance.targets import Function
from sklearn_awsgd.samplers import RowColumnSampler


def estimate(values, seed, budget=400, y=None, **parameters):
    """Return a fitted estimator of the mean of known values."""

    def loss(rows, y=None):
        return values[rows]

    return MinVarianceImportanceEstimator(
        loss=loss,
        max_evaluations=budget,
        rtol=None,
        random_state=seed,
        **parameters,
    ).fit(np.arange(len(values)), y)


@pytest.fixture(scope="module")
def columns():
    random = np.random.default_rng(0)
    x = random.exponential(size=4000)
    return np.column_stack([x, x**2, random.normal(size=4000) + x])


def test_several_values_have_a_covariance(columns):
    """That of the estimates over many runs is the one that is told."""
    estimates, covariances, covered = [], [], []
    for seed in range(150):
        fitted = estimate(columns[:, 0], seed)
        result = fitted.estimate(columns[fitted.evaluated_["row"]])
        estimates.append(result.estimate)
        covariances.append(result.covariance)
        low, high = result.confidence_interval
        covered.append((low <= columns.mean(axis=0)) & (columns.mean(axis=0) <= high))
        assert_allclose(np.diag(result.covariance), result.std_error**2, rtol=1e-9)
    errors = np.array(estimates) - columns.mean(axis=0)
    scale = np.sqrt(np.diag(np.mean(covariances, axis=0)))
    seen = errors.T @ errors / len(errors)
    assert_allclose(
        seen / np.outer(scale, scale),
        np.mean(covariances, axis=0) / np.outer(scale, scale),
        atol=0.35,
    )
    assert (np.mean(covered, axis=0) > 0.88).all()


def test_all_rows_give_several_values_exactly(columns):
    fitted = estimate(columns[:, 0], 0, budget=len(columns))
    result = fitted.estimate(lambda rows: columns[rows])
    assert_allclose(result.estimate, columns.mean(axis=0))
    assert not result.covariance.any()
    assert_allclose(result.confidence_interval[0], columns.mean(axis=0))


def test_functions_of_means_are_covered(columns):
    truth = columns[:, 0].std()
    covered = 0
    for seed in range(60):
        fitted = estimate(columns[:, 0], seed)
        result = fitted.estimate(
            lambda rows: columns[rows, :2], lambda m: np.sqrt(m[1] - m[0] ** 2)
        )
        low, high = result.confidence_interval
        covered += low <= truth <= high
    assert covered >= 51


def test_a_point_of_a_precision_recall_curve():
    X, y = make_classification(3000, weights=[0.8], random_state=0)
    model = LogisticRegression().fit(X[:200], y[:200])
    scores = model.decision_function(X)
    fitted = estimate(1.0 * (scores > 1), 0, budget=len(y))
    hits = scores > 1
    result = fitted.estimate(
        lambda rows: np.column_stack([hits & (y == 1), hits])[rows],
        lambda m: m[0] / m[1],
    )
    assert result.estimate == pytest.approx(metrics.precision_score(y, hits))


def test_gradient_of_a_function_is_that_of_the_formula():
    target = Function(lambda m: m[0] * np.exp(m[1]), 2)
    assert_allclose(
        target.direction([2.0, 0.5]), [np.exp(0.5), 2 * np.exp(0.5)], rtol=1e-8
    )
    assert_allclose(target.direction([2.0, 0.0]), [1, 2], rtol=1e-8)
    with pytest.raises(ValueError, match="one finite number"):
        Function(lambda m: m, 2).value([1.0, 2.0])


def test_what_cannot_be_estimated(columns):
    fitted = estimate(columns[:, 0], 0)
    with pytest.raises(ValueError, match="one for each row of evaluated_"):
        fitted.estimate(columns)
    with pytest.raises(ValueError, match="one group"):
        fitted.estimate(fitted.evaluated_["value"], groups=[1, 2])
    with pytest.raises(ValueError, match="of one group"):
        fitted.estimate(fitted.evaluated_["value"], groups=np.zeros(len(columns)))


def test_clusters_are_of_the_population_they_come_from():
    """Intervals of clusters hold its mean, those of rows do not."""
    covered = np.zeros(2)
    for seed in range(80):
        random = np.random.default_rng(seed)
        groups = np.repeat(np.arange(60), 40)
        values = random.normal(size=60)[groups] + random.normal(size=len(groups))
        y = random.integers(0, 2, size=len(groups))
        fitted = estimate(values, seed, budget=600, y=y)
        by_cluster = fitted.estimate(fitted.evaluated_["value"], groups=groups)
        ends = by_cluster.confidence_interval, fitted.confidence_interval_
        covered += [low <= 0 <= high for low, high in ends]
    assert covered[0] >= 70
    assert covered[1] < 60


def test_beyond_the_largest_value():
    random = np.random.default_rng(0)
    # As of 5 errors in 100 rows: they are all alike.
    assert beyond_seen(np.repeat([0.95, -0.05], [5, 95]), 10) == 1
    assert beyond_seen(np.zeros(10), 10) == 1
    light, heavy = (
        np.mean([beyond_seen(draw(1000), 10) for _ in range(50)])
        for draw in (random.standard_normal, lambda n: random.pareto(1.5, size=n))
    )
    assert 1 < light < 1.3
    assert 1.6 < heavy < MOST_BEYOND
    # Where every row of the tail is known, none is larger.
    assert beyond_seen(random.pareto(1.5, size=1000), 1) == 1


def test_hill_index_of_a_pareto_tail():
    """Quantiles of a Pareto law of index 2: the factor is exp(1/2)."""
    levels = (np.arange(100_000) + 0.5) / 100_000
    assert beyond_seen(levels**-0.5, 10) == pytest.approx(np.exp(0.5), rel=0.05)


@pytest.mark.parametrize("case", ["lognormal", "large at small scores", "noise"])
def test_values_that_mislead_are_covered(case):
    random = np.random.default_rng(1)
    n = 10_000
    score = random.exponential(size=n)
    values = score.copy()
    if case == "lognormal":
        values = np.exp(2 * random.normal(size=n))
    elif case == "noise":
        values = random.exponential(size=n) ** 2
    else:
        small = np.flatnonzero(score < np.median(score))
        values[random.choice(small, n // 100, replace=False)] = 20.0
    for surrogate in (None, score):
        covered = 0
        for seed in range(60):
            fitted = estimate(values, seed, 500, surrogate=surrogate)
            low, high = fitted.confidence_interval_
            covered += low <= values.mean() <= high
        assert covered >= 51


def few_large_values(n_large, size):
    """Return values like their scores but for a few large ones at small scores."""
    random = np.random.default_rng(2)
    score = random.exponential(size=10_000)
    values = score * random.uniform(0.8, 1.2, 10_000)
    small = np.flatnonzero(score < np.quantile(score, 0.2))
    values[random.choice(small, n_large, replace=False)] = size
    return values, score


def test_few_large_values_at_small_scores_are_covered():
    """What one more could add does not shrink with the rate of rows at small scores."""
    values, score = few_large_values(30, 18.0)
    covered = 0
    for seed in range(100):
        low, high = estimate(values, seed, 1000, surrogate=score).confidence_interval_
        covered += low <= values.mean() <= high
    assert covered >= 91


def test_bounds_hold_for_what_no_run_has_seen():
    values, score = few_large_values(2, 3000.0)
    covered = {None: 0, (0.0, 3000.0): 0}
    for bounds in covered:
        for seed in range(30):
            fitted = estimate(values, seed, 500, surrogate=score, bounds=bounds)
            low, high = fitted.confidence_interval_
            covered[bounds] += low <= values.mean() <= high
    assert covered[0.0, 3000.0] >= 28
    # Nobody could know; but it is told what the interval rests on.
    assert covered[None] < 28
    assert fitted.assumed_range_ == (0.0, 3000.0)


def test_the_assumed_range_is_told():
    values, score = few_large_values(0, 0.0)
    y = np.arange(len(values)) % 2
    fitted = estimate(values, 0, 500, surrogate=score)
    seen = fitted.evaluated_["value"]
    low, high = fitted.assumed_range_
    # Half as far again from the mean as the largest value seen.
    assert_allclose(high - values.mean(), 1.5 * (seen.max() - values.mean()), rtol=0.01)
    assert low < seen.min()
    assert f"{high:.4g}" in str(fitted.summary())
    # By label no guess can mislead: as far as the tail goes.
    by_label = estimate(values, 0, 500, y=y)
    assert by_label.assumed_range_[1] < high
    assert estimate(values, 0, len(values)).assumed_range_ is None
    weighted = estimate(values, 0, 500, control_variate=False)
    assert weighted.assumed_range_ is None


@pytest.mark.parametrize(
    ("parameters", "error", "match"),
    [
        ({"bounds": 3.0}, TypeError, "bounds=3.0 must be two numbers"),
        ({"bounds": ("a", "b")}, TypeError, "must be two numbers"),
        ({"bounds": (1.0, 0.0)}, ValueError, "the first below the second"),
        ({"bounds": (0.0, np.inf)}, ValueError, "must be finite"),
        ({"bounds": (0.0, 1.0)}, ValueError, r"outside of bounds=\(0.0, 1.0\)"),
        (
            {"bounds": (0.0, 99.0), "control_variate": False},
            ValueError,
            "without replacement .* but bounds was given",
        ),
        (
            {"bounds": (0.0, 99.0), "sampler": "norm"},
            ValueError,
            "draws without a guess .* but bounds was given",
        ),
    ],
)
def test_bounds_that_are_none_are_refused(parameters, error, match):
    values, _ = few_large_values(0, 0.0)
    with pytest.raises(error, match=match):
        estimate(values, 0, **parameters)


def test_bounds_are_for_means():
    X, y = make_classification(500, random_state=0)
    model = LogisticRegression().fit(X, y)
    for loss in ("precision", "matthews_corrcoef"):
        estimator = MinVarianceImportanceEstimator(model, loss, bounds=(0.0, 1.0))
        with pytest.raises(ValueError, match="are for a mean of values"):
            estimator.fit(X, y)
    study = MinVarianceImportanceEstimator(bounds=(0.0, 1.0), random_state=0)
    rows = study.ask(50, X)
    with pytest.raises(ValueError, match=r"A value is 2\.0, outside of bounds"):
        study.tell(rows, np.full(len(rows), 2.0))


def test_a_missed_mode_has_no_interval_or_one_that_holds():
    """P(|z| > 4) in ten dimensions, where one Gaussian finds the modes by luck."""
    wrong = silent = 0
    for seed in range(12):
        estimator = MinVarianceImportanceEstimator(
            loss=lambda x: np.abs(x[:, 0]) > 4,
            max_evaluations=4000,
            rtol=None,
            random_state=seed,
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            estimator.fit(multivariate_normal(np.zeros(10)))
        low, high = estimator.confidence_interval_
        wrong += not low <= 2 * norm.sf(4) <= high
        silent += np.isinf(high) and not told
    assert wrong <= 2
    assert not silent


def test_a_step_size_that_collapses_is_told_about():
    """The paper's step without a scale of its own: a few entries are drawn for ever."""
    random = np.random.default_rng(0)
    values = random.normal(size=(60, 60)) ** 2
    values[:10, :10] *= 1e4
    sampler = RowColumnSampler(update="sgd", normalize=False, eta0=1e-4, mixing=1e-6)
    estimator = MinVarianceImportanceEstimator(
        loss=lambda entries, values: values,
        sampler=sampler,
        control_variate=False,
        max_evaluations=1000,
        batch_size=20,
        rtol=None,
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="weights 1/q have a mean of"):
        estimator.fit(values)
    assert estimator.confidence_interval_ == (-np.inf, np.inf)


@pytest.mark.parametrize("kind", [list, tuple, range, np.array, "series"])
def test_rows_may_be_numbers(kind):
    values = np.random.default_rng(0).random(200)
    if kind == "series":
        X = pytest.importorskip("pandas").Series(range(200))
    else:
        X = range(200) if kind is range else kind(range(200))
    result = MinVarianceImportanceEstimator(
        loss=lambda rows: values[np.asarray(rows)], max_evaluations=200
    ).fit(X)
    assert result.estimate_ == pytest.approx(values.mean())


def test_frames_in_and_out():
    pandas = pytest.importorskip("pandas")
    X, y = make_classification(500, random_state=0)
    X = pandas.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    model = LogisticRegression().fit(X, y)
    result = MinVarianceImportanceEstimator(
        model, "neg_log_loss", max_evaluations=200, rtol=None, random_state=0
    ).fit(X, pandas.Series(y, index=X.index[::-1]))
    history = pandas.DataFrame(result.history_)
    assert history["estimate"].iloc[-1] == result.estimate_
    evaluated = pandas.DataFrame(result.evaluated_).set_index("row")
    assert len(evaluated) == 200
    assert (evaluated["value"] <= 0).all()


def test_the_last_rows_may_still_be_events():
    """One event in 100 rows, 92 of which are seen: it is missed by 8 % of the runs."""
    values = np.zeros(100)
    values[7] = 1.0

    def covered(seed):
        result = MinVarianceImportanceEstimator(
            loss="zero_one", sampler="uniform", random_state=seed
        )
        rows = result.ask(92, range(100))
        low, high = result.tell(rows, values[rows]).confidence_interval_
        return low <= 0.01 <= high

    assert all(covered(seed) for seed in range(40))
