"""MinVarianceImportanceEstimator: estimates, data, failures."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats
from sklearn import metrics
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression

from sklearn_awsgd import MinVarianceImportanceEstimator
from sklearn_awsgd._importance.intervals import SLIGHT
from sklearn_awsgd.samplers import GaussianSampler, StrataSampler


@pytest.fixture(scope="module")
def pool():
    X, y = make_classification(
        8000, 6, weights=[0.95], flip_y=0.02, random_state=0, n_informative=4
    )
    model = LogisticRegression(solver="newton-cg").fit(X[:500], y[:500])
    cheap = LogisticRegression(C=0.01, solver="newton-cg").fit(X[:200], y[:200])
    values = -np.log(model.predict_proba(X)[np.arange(len(y)), y])
    return X, y, model, cheap, values


def estimate(*args, **parameters):
    parameters = {"random_state": 0, **parameters}
    return MinVarianceImportanceEstimator(*args, **parameters)


# What it computes.


@pytest.mark.parametrize(
    ("loss", "metric"),
    [
        ("log_loss", lambda y, p, label: metrics.log_loss(y, p)),
        ("zero_one", lambda y, p, label: metrics.zero_one_loss(y, label)),
        ("brier", lambda y, p, label: metrics.brier_score_loss(y, p[:, 1])),
        ("precision", lambda y, p, label: metrics.precision_score(y, label)),
        ("recall", lambda y, p, label: metrics.recall_score(y, label)),
        ("f1", lambda y, p, label: metrics.f1_score(y, label)),
    ],
)
def test_all_rows_give_the_metric_itself(pool, loss, metric):
    X, y, model, *_ = pool
    expected = metric(y, model.predict_proba(X), model.predict(X))
    result = estimate(model, loss, batch_size=len(y)).fit(X, y)
    assert result.status_ == "exact"
    # Of recall negatives are no part.
    assert result.n_evaluations_ == (y.sum() if loss == "recall" else len(y))
    assert_allclose(result.estimate_, expected)
    assert result.confidence_interval_ == (result.estimate_, result.estimate_)
    assert result.std_error_ == 0


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_regression_losses(loss):
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 3))
    y = X[:, 0] + random.normal(size=300)
    model = LinearRegression().fit(X[:50], y[:50])
    metric = getattr(metrics, f"mean_{loss}")
    result = estimate(model, loss, batch_size=300).fit(X, y)
    assert_allclose(result.estimate_, metric(y, model.predict(X)))


def test_multiclass_brier_score_and_unknown_labels():
    X, y = make_classification(
        90, 5, n_classes=3, n_informative=4, n_redundant=0, random_state=0
    )
    model = LogisticRegression(solver="newton-cg").fit(X, y)
    result = estimate(model, "brier").fit(X, y)
    expected = ((model.predict_proba(X) - np.eye(3)[y]) ** 2).sum(axis=1).mean()
    assert_allclose(result.estimate_, expected)
    with pytest.raises(ValueError, match="has the label 7"):
        estimate(model, "brier").fit(X, np.where(y == 0, 7, y))
    with pytest.raises(ValueError, match="binary classifiers"):
        estimate(model, "f1").fit(X, y)


def test_mean_of_y_and_weights():
    y = np.arange(50.0)
    weight = np.linspace(0, 2, 50)
    X = np.zeros((50, 1))
    assert_allclose(estimate().fit(X, y).estimate_, y.mean())
    result = estimate().fit(X, y, sample_weight=weight)
    assert_allclose(result.estimate_, np.average(y, weights=weight))
    # A row without weight is not evaluated.
    assert result.n_evaluations_ == 49


def test_weights_are_repetitions_in_expectation(pool):
    _, y, _, _, values = pool
    weight = np.random.default_rng(0).integers(0, 4, size=len(y))
    results = [
        MinVarianceImportanceEstimator(
            loss=lambda rows, y: values[rows[:, 0]],
            rtol=None,
            max_evaluations=1500,
            random_state=seed,
        ).fit(np.arange(len(y))[:, None], y, sample_weight=weight)
        for seed in range(60)
    ]
    estimates = np.array([r.estimate_ for r in results])
    error = estimates - np.average(values, weights=weight)
    assert abs(error.mean()) < 3.5 * error.std() / np.sqrt(len(error))


def test_difference_of_two_models(pool):
    X, y, model, cheap, _ = pool
    result = estimate((cheap, model), "log_loss", rtol=None, max_evaluations=3000)
    result.fit(X, y)
    expected = metrics.log_loss(y, cheap.predict_proba(X)) - metrics.log_loss(
        y, model.predict_proba(X)
    )
    low, high = result.confidence_interval_
    assert low <= expected <= high
    rates = estimate((model, cheap), "recall", batch_size=len(y)).fit(X, y)
    expected = metrics.recall_score(y, model.predict(X)) - metrics.recall_score(
        y, cheap.predict(X), zero_division=0
    )
    assert_allclose(rates.estimate_, expected)


# How it estimates.


SETTINGS = {
    "label": {},
    "uniform": {"sampler": "uniform"},
    "norm": {"sampler": "norm"},
    "surrogate": {"surrogate": "cheap"},
    "paper": {
        "sampler": StrataSampler(update="sgd", mixing=0.0),
        "control_variate": False,
    },
    "adagrad": {"sampler": StrataSampler(update="adagrad", eta0=0.1)},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_estimates_are_unbiased_and_intervals_cover(pool, name):
    X, y, _, cheap, values = pool
    parameters = dict(SETTINGS[name])
    if "surrogate" in parameters:
        cheap_loss = -np.log(cheap.predict_proba(X)[np.arange(len(y)), y])
        parameters["surrogate"] = cheap_loss
    # The last column finds the row, without adding to its norm.
    X = np.column_stack([X, np.arange(len(y)) * 1e-9])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        runs = [
            MinVarianceImportanceEstimator(
                loss=lambda rows, y: values[np.rint(rows[:, -1] * 1e9).astype(int)],
                max_evaluations=1000,
                rtol=None,
                random_state=seed,
                **parameters,
            ).fit(X, y)
            for seed in range(80)
        ]
    truth = values.mean()
    error = np.array([run.estimate_ for run in runs]) - truth
    intervals = np.array([run.confidence_interval_ for run in runs])
    covered = (intervals[:, 0] <= truth) & (truth <= intervals[:, 1])
    assert abs(error.mean()) < 3.5 * error.std() / np.sqrt(len(error))
    assert covered.mean() >= 0.88
    assert max(run.n_evaluations_ for run in runs) <= 1000
    # The standard error is that of the runs.
    assert 0.6 < np.mean([run.std_error_ for run in runs]) / error.std() < 1.7


def test_a_round_is_unbiased_by_enumeration(pool):
    """Sum over all rows of Q times the value of a draw, at the state of a run."""
    X, y, model, cheap, values = pool
    sampler = StrataSampler(update="sgd")
    result = estimate(model, "log_loss", sampler=sampler, surrogate=cheap, rtol=None)
    result.set_params(max_evaluations=700).fit(X, y)
    for _ in range(2):
        rounds = result._integrator.rounds
        q = rounds.opened.densities()
        known = rounds.pool.known.copy()
        total = rounds.pool._known_sum
        draw = total + np.where(known, 0.0, values)[:, None] / q[:, None]
        assert_allclose(q.mean(), 1)
        assert_allclose(q @ draw / len(y), values.mean(), rtol=1e-10)
        result.partial_fit()


@pytest.mark.parametrize("surrogate", [None, "cheap", "learned"])
def test_learning_beats_uniform_sampling(pool, surrogate):
    X, y, _, cheap, values = pool
    X = np.column_stack([X, np.arange(len(y))])
    if surrogate == "cheap":
        surrogate = -np.log(cheap.predict_proba(X[:, :-1])[np.arange(len(y)), y])

    n_runs = 8 if isinstance(surrogate, str) else 40

    def rmse(**parameters):
        errors = [
            MinVarianceImportanceEstimator(
                loss=lambda rows, y: values[rows[:, -1].astype(int)],
                max_evaluations=1200,
                rtol=None,
                random_state=seed,
                **parameters,
            )
            .fit(X, y)
            .estimate_
            - values.mean()
            for seed in range(n_runs)
        ]
        return np.sqrt(np.mean(np.square(errors)))

    uniform = values.std() / np.sqrt(1200)
    assert rmse(surrogate=surrogate) < 0.8 * uniform


def test_row_column_estimates_the_loss_of_a_matrix():
    random = np.random.default_rng(0)
    Y = random.normal(size=(60, 3)) @ random.normal(size=(50, 3)).T
    Y[5:15, 20:30] *= 50

    class Zero:
        def predict(self, entries):
            assert entries.shape[1] == 2
            return np.zeros(len(entries))

    uniform = (Y**2).std() / np.sqrt(1000)
    for X in (Y, sparse.csc_array(Y)):
        result = estimate(
            Zero(), "squared_error", sampler="row_column", max_evaluations=1000
        ).set_params(rtol=None)
        result.fit(X)
        assert abs(result.estimate_ - (Y**2).mean()) < uniform
        assert result.std_error_ < uniform / 2
        p, r = result.sampling_probabilities_
        assert p.shape == (60,)
        assert p[5:15].sum() > 0.5
        assert r[20:30].sum() > 0.5
    entries, weights = result.sample(20_000)
    values = Y[entries[:, 0], entries[:, 1]] ** 2
    assert_allclose((weights * values).mean(), (Y**2).mean(), rtol=0.1)


@pytest.mark.parametrize(
    ("distribution", "loss", "truth"),
    [
        (stats.norm(), lambda x: x > 4, stats.norm.sf(4)),
        (stats.expon(), lambda x: np.sqrt(x), np.sqrt(np.pi) / 2),
        (
            stats.multivariate_normal([0, 0, 0]),
            lambda x: x[:, 0] ** 2 + x[:, 1],
            1.0,
        ),
    ],
)
@pytest.mark.parametrize("update", ["moments", "sgd"])
# A Gaussian is no good for the square root on the positive half of the line.
@pytest.mark.filterwarnings("ignore:As many plain draws")
def test_integrals_under_a_distribution(distribution, loss, truth, update):
    result = estimate(
        loss=loss, sampler=GaussianSampler(update=update), max_evaluations=5000
    ).fit(distribution)
    low, high = result.confidence_interval_
    assert low <= truth <= high
    assert high - low < 0.3 * truth
    x, weights = result.sample(5000)
    assert len(x) == len(weights) == 5000
    with pytest.raises(ValueError, match="sample_weight was given"):
        result.fit(distribution, sample_weight=[1.0])
    with pytest.raises(ValueError, match="surrogate was given"):
        result.set_params(surrogate="learned").fit(distribution)


def test_a_gaussian_that_does_not_move():
    sampler = GaussianSampler(update="sgd", eta0=0)
    result = estimate(loss=lambda x: x**2, sampler=sampler).fit(stats.norm())
    assert abs(result.estimate_ - 1) < 5 * result.std_error_


def test_a_large_constant_under_a_distribution_is_told_about():
    with pytest.warns(UserWarning, match="subtract from the loss"):
        result = estimate(loss=lambda x: x, rtol=None).fit(stats.norm(100, 1))
    assert result.variance_gain_ < 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rest = estimate(loss=lambda x: x - 100, rtol=None).fit(stats.norm(100, 1))
    assert abs(rest.estimate_) < 5 * rest.std_error_
    assert rest.std_error_ < result.std_error_ / 3


def test_intervals_of_a_few_evaluations_are_told_about(pool):
    X, y, model, _, _ = pool
    few = estimate(estimator=model, loss="log_loss", max_evaluations=30)
    with pytest.warns(ConvergenceWarning, match="max_evaluations=30 to 50"):
        few.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few.set_params(max_evaluations=100).partial_fit()


def test_a_distribution_without_a_density_is_refused():
    with pytest.raises(TypeError, match="as rows, and their probabilities"):
        estimate(loss=lambda x: x).fit(stats.poisson(3))


@pytest.mark.parametrize("sampler", ["norm", "row_column"])
def test_a_surrogate_that_nobody_asks_is_refused(sampler, pool):
    X = pool[0]
    loss = estimate(loss=lambda rows, values: values, sampler=sampler)
    y = None if sampler == "row_column" else X[:, 0]
    with pytest.raises(ValueError, match="surrogate was given"):
        loss.set_params(surrogate="learned").fit(X, y)


def test_constant_integrand_is_not_stopped_by_its_zero_variance():
    X = np.zeros((5000, 1))
    result = estimate(loss=lambda rows: np.full(len(rows), 3.0), max_evaluations=500)
    with pytest.warns(ConvergenceWarning, match="do not vary"):
        result.fit(X)
    assert result.status_ == "budget"
    assert result.n_evaluations_ == 500
    assert_allclose(result.estimate_, 3.0)
    assert result.confidence_interval_ == (-np.inf, np.inf)


def test_signed_integrand(pool):
    _, y, _, _, values = pool
    signed = np.where(y == 1, -1, 1) * values
    result = estimate(loss=lambda rows, y: signed[rows[:, 0]], max_evaluations=4000)
    result.fit(np.arange(len(y))[:, None], y)
    low, high = result.confidence_interval_
    assert low <= signed.mean() <= high


def test_regression_targets_become_bins():
    random = np.random.default_rng(0)
    y = random.lognormal(sigma=0.8, size=4000)
    errors = (0.1 * y * random.normal(size=4000)) ** 2
    result = estimate(loss=lambda rows, y: errors[rows[:, 0]], max_evaluations=1000)
    result.set_params(rtol=None).fit(np.arange(4000)[:, None], y)
    assert len(result.sampling_probabilities_) == 16
    assert result.variance_gain_ > 2


@pytest.mark.filterwarnings("ignore:The .* values so far do not vary")
@pytest.mark.parametrize("loss", ["zero_one", "f1", "squared_error"])
def test_surrogate_models_of_all_losses(pool, loss):
    X, y, model, cheap, _ = pool
    if loss == "squared_error":
        model, cheap = (LinearRegression().fit(X[:n], y[:n]) for n in (500, 50))
    settings = {"max_evaluations": 1500, "rtol": None}
    result = estimate(model, loss, surrogate=cheap, **settings).fit(X, y)
    exact = estimate(model, loss, batch_size=len(y)).fit(X, y).estimate_
    low, high = result.confidence_interval_
    assert low <= exact <= high
    assert result.variance_gain_ > 2
    # A callable gets the surrogate in the place of the estimator.
    error = lambda m, rows, y: (m.predict(rows) - y) ** 2  # noqa: E731
    result = estimate(model, error, surrogate=cheap, **settings).fit(X, y)
    assert result.variance_gain_ > 2
    with pytest.raises(ValueError, match="array of scores"):
        estimate(loss=lambda rows, y: y, surrogate=cheap).fit(X, y)


def test_a_function_in_the_place_of_targets():
    with pytest.raises(TypeError, match="loss=function"):
        MinVarianceImportanceEstimator().fit(np.zeros((5, 2)), lambda X: X.sum(axis=1))


def test_given_strata(pool):
    _, y, _, _, values = pool
    strata = np.where(values > np.quantile(values, 0.9), "high", "low")
    X = np.arange(len(y))[:, None]
    result = estimate(loss=lambda rows: values[rows[:, 0]], max_evaluations=500)
    result.set_params(rtol=None).fit(X, strata=strata)
    assert result.sampling_probabilities_[0] > 0.4
    with pytest.raises(ValueError, match="strata=None"):
        estimate(loss=len, sampler="strata").fit(X)


@pytest.mark.filterwarnings("ignore:The interval of")
def test_small_strata_are_joined_and_the_others_keep_their_order():
    strata = np.repeat(["a", "b", "c", "d", "e"], [20, 200, 30, 400, 100])
    random = np.random.default_rng(0)
    values = random.normal(size=750) + 5
    result = estimate(
        loss=lambda rows: values[rows[:, 0]], max_evaluations=48, rtol=None
    ).fit(np.arange(750)[:, None], strata=strata)
    rounds = result._integrator.rounds
    sizes = rounds._sizes.reshape(2, -1).sum(axis=0)
    # At most 48 / 12 strata: b, d, e and the rest.
    assert_array_equal(sizes, [200, 400, 100, 50])
    assert result.sampling_probabilities_.shape == (4,)


# Stopping, going on, seeds.


def test_no_half_goes_on_alone():
    """A half that rests must not be what the other one waits for."""
    random = np.random.default_rng(0)
    score = random.exponential(size=10_000)
    values = score * random.uniform(0.8, 1.2, len(score))
    for seed in range(6):
        result = MinVarianceImportanceEstimator(
            loss=lambda rows: values[rows], surrogate=score, rtol=0.1,
            max_evaluations=len(score), random_state=seed,
        ).fit(np.arange(len(score)))  # fmt: skip
        assert result.status_ == "tolerance"
        assert result.n_evaluations_ < 3000


def knows_enough(result):
    """Return whether draws are enough to know their error, or that hardly matters."""
    error = 1.96 * result.std_error_
    slight = error <= SLIGHT * result.rtol * abs(result.estimate_)
    return slight or result.effective_sample_size_ >= 100


@pytest.mark.parametrize("hides_large_values", [False, True])
def test_a_good_surrogate_ends_a_run_sooner_than_labels(hides_large_values):
    """What one more event could do makes it wide, and does not call for draws."""
    random = np.random.default_rng(0)
    score = random.exponential(size=10_000)
    values = score * random.uniform(0.8, 1.2, len(score))
    if hides_large_values:
        low = np.flatnonzero(score < np.quantile(score, 0.2))
        values[random.choice(low, 20, replace=False)] = values.sum() / 9 / 20
    n_evaluations, covered = [], []
    for seed in range(12):
        for surrogate in (None, score):
            result = MinVarianceImportanceEstimator(
                loss=lambda rows: values[rows], surrogate=surrogate, rtol=0.3,
                max_evaluations=len(score), random_state=seed,
            ).fit(np.arange(len(score)))  # fmt: skip
            assert result.status_ == "tolerance"
            assert knows_enough(result)
            n_evaluations.append(result.n_evaluations_)
            low, high = result.confidence_interval_
            covered.append(low <= values.mean() <= high)
    by_label, by_surrogate = np.reshape(n_evaluations, (-1, 2)).T
    assert np.median(by_surrogate) < np.median(by_label)
    assert np.mean(covered) > 0.85


def test_stops_at_the_tolerance(pool):
    X, y, model, cheap, _ = pool
    result = estimate(model, "log_loss", surrogate=cheap, rtol=0.1).fit(X, y)
    assert result.status_ == "tolerance"
    low, high = result.confidence_interval_
    assert high - low <= 0.2 * result.estimate_
    assert result.n_evaluations_ < 2000
    assert knows_enough(result)


@pytest.mark.parametrize("rtol", [0.3, 0.6])
def test_a_learned_surrogate_stops_no_sooner_than_promised(rtol):
    """Also right after a stage has begun, nothing having been drawn in it."""
    random = np.random.default_rng(0)
    X = random.normal(size=(4000, 2))
    values = np.exp(1.5 * X[:, 0]) * random.exponential(size=4000)
    keys = np.column_stack([X, np.arange(4000)])
    n_stopped = 0
    for seed in range(8):
        result = estimate(
            loss=lambda rows: values[rows[:, -1].astype(int)],
            surrogate="learned",
            rtol=rtol,
            random_state=seed,
        ).fit(keys)
        n_stopped += result.status_ == "tolerance"
        assert knows_enough(result)
        low, high = result.confidence_interval_
        assert high - low <= 2 * rtol * result.estimate_
    assert n_stopped > 0


BUDGETED = {
    "uniform": {"sampler": "uniform"},
    "label": {},
    "strata": {"sampler": "strata"},
    "learned": {"surrogate": "learned"},
    "surrogate": {"surrogate": np.arange(900.0)},
    "norm": {"sampler": "norm"},
    "paper": {"control_variate": False},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:As many plain draws")
@pytest.mark.parametrize("name", BUDGETED)
@settings(max_examples=12, deadline=None)
@given(
    budget=st.one_of(st.integers(3, 30), st.integers(190, 260), st.integers(3, 950)),
    batch_size=st.one_of(st.just("auto"), st.integers(3, 300)),
    rtol=st.sampled_from([None, 0.2]),
    seed=st.integers(0, 100),
)
def test_the_budget_is_never_exceeded(name, budget, batch_size, rtol, seed):
    random = np.random.default_rng(seed)
    X = np.column_stack([random.random(900), np.arange(900)])
    values = np.exp(2 * X[:, 0])
    longest = []

    def loss(rows, y):
        longest.append(len(rows))
        return values[rows[:, 1].astype(int)]

    result = estimate(
        loss=loss,
        max_evaluations=budget,
        batch_size=batch_size,
        rtol=rtol,
        random_state=seed,
        **BUDGETED[name],
    )
    strata = random.integers(0, 60, 900) if name == "strata" else None
    result.fit(X, random.integers(0, 3, 900), strata=strata)
    for k in (1, 2):
        assert 3 <= result.n_evaluations_ <= k * budget
        # All calls together: one row is evaluated twice.
        assert sum(longest) <= result.n_evaluations_ + 1
        assert max(longest) <= (1000 if batch_size == "auto" else batch_size)
        assert np.isfinite(result.estimate_)
        result.partial_fit()


def test_partial_fit_goes_on_until_exact(pool):
    X, y, model, _, values = pool
    result = estimate(model, "log_loss", max_evaluations=2000, rtol=None).fit(X, y)
    before = result.n_evaluations_, result.std_error_
    result.partial_fit()
    assert before[0] + 1500 < result.n_evaluations_ <= 4000
    assert result.std_error_ < before[1]
    for _ in range(10):
        result.partial_fit()
    assert result.status_ == "exact"
    assert_allclose(result.estimate_, values.mean())
    assert (np.diff(result.history_["evaluations"]) >= 0).all()


def test_partial_fit_takes_more_rows_of_a_stream(pool):
    X, y, model, _, values = pool
    weights = np.ones(len(y))
    weights[:4000] = 3.0
    truth = np.average(values, weights=weights)
    n_covered = 0
    for seed in range(20):
        stream = estimate(model, "log_loss", max_evaluations=500, random_state=seed)
        stream.set_params(rtol=None)
        for part in (slice(0, 4000), slice(4000, None)):
            stream.partial_fit(X[part], y[part], sample_weight=weights[part])
        low, high = stream.confidence_interval_
        n_covered += low <= truth <= high
        assert stream.n_evaluations_ == 1000
    assert n_covered >= 17
    exact = estimate(model, "log_loss", batch_size=8000)
    exact.partial_fit(X[:10], y[:10]).partial_fit(X[10:50], y[10:50])
    assert_allclose(exact.estimate_, values[:50].mean())
    assert exact.status_ == "exact"
    with pytest.raises(ValueError, match="features"):
        stream.partial_fit(X[:, :3], y)
    with pytest.raises(ValueError, match="call fit"):
        estimate().partial_fit()


def test_a_stream_is_exact_only_if_all_of_it_is():
    y = np.random.default_rng(0).random(5000)
    X = np.zeros((5000, 1))
    stream = estimate(rtol=None, max_evaluations=500, sampler="uniform")
    stream.fit(X[:4000], y[:4000])
    gain, error = stream.variance_gain_, stream.std_error_
    stream.partial_fit(X[4000:4050], y[4000:4050])
    assert stream.status_ == "budget"
    # What is exact adds no variance, to neither of the two.
    assert_allclose(stream.std_error_, error * 4000 / 4050)
    assert_allclose(stream.variance_gain_, gain)
    stream.set_params(rtol=0.9).partial_fit(X[4050:4100], y[4050:4100])
    assert stream.status_ == "tolerance"


def test_same_seed_same_result(pool):
    X, y, model, _, _ = pool
    first, second, other = (
        estimate(model, "zero_one", random_state=seed, max_evaluations=500).fit(X, y)
        for seed in (0, 0, 1)
    )
    assert first.estimate_ == second.estimate_
    assert first.estimate_ != other.estimate_


def test_pickled_estimator_goes_on_alike(pool):
    X, y, model, cheap, _ = pool
    result = estimate(model, "log_loss", surrogate=cheap, max_evaluations=500).fit(X, y)
    twin = pickle.loads(pickle.dumps(result))
    assert result.partial_fit().estimate_ == twin.partial_fit().estimate_


def test_clone_keeps_a_frozen_model(pool):
    X, y, model, _, values = pool
    result = clone(estimate(FrozenEstimator(model), "log_loss", batch_size=8000))
    assert_allclose(result.fit(X, y).estimate_, values.mean())


def test_each_row_is_evaluated_once(pool):
    _, y, _, _, values = pool
    seen = []

    def loss(rows, y):
        seen.extend(rows[:, 0])
        return values[rows[:, 0]]

    result = estimate(loss=loss, rtol=None, max_evaluations=4000)
    result.fit(np.arange(len(y))[:, None], y)
    assert len(set(seen)) == result.n_evaluations_
    # One row is evaluated again, as a check.
    assert len(seen) == result.n_evaluations_ + 1
    assert result.n_draws_ == result.n_evaluations_
    seen.clear()
    result.set_params(sampler="norm").fit(np.arange(len(y))[:, None], y)
    assert len(set(seen)) == len(seen) - 1 == result.n_evaluations_
    assert result.n_draws_ > result.n_evaluations_


# Data of all kinds.


def test_data_of_all_kinds(pool):
    X, y, model, _, _ = pool
    X, y = X[:2000], y[:2000]
    frame = pd.DataFrame(X, columns=list("abcdef"))

    def loss(rows, y):
        rows = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
        return -model.predict_log_proba(rows)[np.arange(len(y)), np.asarray(y)]

    settings = {"max_evaluations": 500, "rtol": None}
    expected = estimate(loss=loss, **settings).fit(X, y).estimate_
    kinds = [
        (np.asfortranarray(X), y),
        (X.tolist(), y.tolist()),
        (sparse.csr_array(X), y),
        (sparse.coo_matrix(X), y),
        (frame, pd.Series(y, index=np.arange(2000) + 5)),
    ]
    polars = pytest.importorskip("polars") if _has_polars() else None
    if polars is not None:
        kinds.append((polars.DataFrame(X), polars.Series(y)))
    for data, target in kinds:
        result = estimate(loss=loss, **settings).fit(data, target)
        assert_allclose(result.estimate_, expected)
        assert result.n_features_in_ == 6


def _has_polars():
    try:
        import polars  # noqa: F401
    except ImportError:
        return False
    return True


def test_norms_of_data_of_all_kinds():
    X = np.arange(600).reshape(300, 2)
    loss = lambda rows: np.ones(len(rows) if hasattr(rows, "iloc") else rows.shape[0])  # noqa: E731
    kinds = [X, X * 1.0, pd.DataFrame(X), sparse.csr_array(X)]
    draws = [
        estimate(loss=loss, sampler="norm", batch_size=300).fit(data).sample(50)
        for data in kinds
    ]
    for rows, weights in draws[1:]:
        assert_allclose(rows, draws[0][0])
        assert_allclose(weights, draws[0][1])
    # Rows in proportion to sqrt(||x||^2 + 1).
    bound = np.sqrt((X**2).sum(axis=1) + 1)
    assert_allclose(draws[0][1], bound.mean() / bound[draws[0][0]])
    with pytest.raises(TypeError, match="numeric X"):
        estimate(loss=len, sampler="norm").fit(["a", "b"])


def test_texts():
    texts = [f"text number {i}" for i in range(3000)]

    def length(rows):
        assert all(isinstance(row, str) for row in rows)
        return [len(row) for row in rows]

    result = estimate(loss=length, rtol=None, max_evaluations=300).fit(texts)
    assert abs(result.estimate_ - np.mean([len(t) for t in texts])) < 0.3
    with pytest.raises(TypeError, match="learned"):
        estimate(loss=length, surrogate="learned").fit(texts)


def test_missing_values_are_the_models_business():
    random = np.random.default_rng(0)
    X = random.normal(size=(90, 2))
    y = X[:, 0].copy()
    X[::3, 1] = np.nan
    model = HistGradientBoostingRegressor(max_iter=5).fit(X, y)
    result = estimate(model, "squared_error").fit(X, y)
    assert_allclose(result.estimate_, np.mean((model.predict(X) - y) ** 2))


# Failures.


class Flaky:
    """A loss that fails at its third call, once."""

    def __init__(self, values, failure):
        self.values, self.failure, self.n_calls = values, failure, 0

    def __call__(self, rows, y):
        self.n_calls += 1
        result = self.values[rows[:, 0]]
        return self.failure(result) if self.n_calls == 3 else result


def raise_error(result):
    raise RuntimeError("connection lost")


def with_nan(result):
    return np.where(np.arange(len(result)) == 1, np.nan, result)


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        (raise_error, RuntimeError, "connection lost"),
        (with_nan, ValueError, "returned nan for one"),
        (lambda result: result[:-1], ValueError, "returned shape"),
    ],
)
def test_a_failing_loss_loses_nothing(pool, failure, error, message):
    _, y, _, _, values = pool
    X = np.arange(len(y))[:, None]
    settings = {"max_evaluations": 2000, "rtol": None}
    result = estimate(loss=Flaky(values, failure), **settings)
    with pytest.raises(error, match=message) as info:
        result.fit(X, y)
    assert "partial_fit()" in "".join(info.value.__notes__)
    assert result.status_ == "interrupted"
    n_before = result.n_evaluations_
    assert n_before > 150
    result.set_params(max_evaluations=2000 - n_before).partial_fit()
    # As if nothing had happened: the same points were evaluated in the end.
    smooth = estimate(loss=lambda rows, y: values[rows[:, 0]], **settings).fit(X, y)
    assert_allclose(result.history_["estimate"][2:5], smooth.history_["estimate"][2:5])


def test_calls_before_a_failure_in_a_long_round_are_kept(pool):
    _, y, _, _, values = pool
    seen = []

    def loss(rows, y):
        if len(seen) >= 4000 and not state["repaired"]:
            raise RuntimeError("connection lost")
        seen.extend(rows[:, 0])
        return values[rows[:, 0]]

    state = {"repaired": False}
    X = np.arange(len(y))[:, None]
    result = estimate(loss=loss, rtol=None, max_evaluations=8000)
    with pytest.raises(RuntimeError, match="connection lost"):
        result.fit(X, y)
    state["repaired"] = True
    result.partial_fit()
    assert len(seen) == len(set(seen)) + 1
    repaired = estimate(loss=loss, rtol=None, max_evaluations=500).fit(X, y)
    repaired.set_params(loss=lambda rows, y: values[rows[:, 0]]).partial_fit()
    repaired.set_params(estimator=(1, 2))
    with pytest.raises(ValueError, match="call fit"):
        repaired.partial_fit()


@pytest.mark.parametrize("fitted", [False, True])
def test_calls_before_a_failure_in_the_first_round_are_kept(pool, fitted):
    X, y, model, _, values = pool
    seen = []

    def loss(rows, y):
        if len(seen) >= 30 and not state["repaired"]:
            raise RuntimeError("connection lost")
        seen.extend(rows[:, 0])
        return values[rows[:, 0]]

    state = {"repaired": False}
    keys = np.arange(len(y))[:, None]
    result = estimate(model, "zero_one", max_evaluations=300)
    if fitted:
        result.fit(X, y)
    before = dict(vars(result))
    settings = {"estimator": None, "loss": loss, "batch_size": 10, "rtol": None}
    result.set_params(surrogate=np.arange(len(y)), **settings)
    for goes_on in (lambda: result.fit(keys, y), result.partial_fit):
        with pytest.raises(RuntimeError, match="connection lost") as info:
            goes_on()
        assert f"The {len(seen) - 1} evaluations before" in info.value.__notes__[0]
        for name, value in before.items():
            assert name in (*settings, "surrogate") or vars(result)[name] is value
        assert hasattr(result, "estimate_") is fitted
    state["repaired"] = True
    result.partial_fit()
    assert result.n_features_in_ == 1
    assert len(seen) == len(set(seen)) + 1 == result.n_evaluations_ + 1
    assert abs(result.estimate_ - values.mean()) < 5 * result.std_error_


def test_a_failure_in_a_round_of_locations_loses_nothing():
    seen, calls = [], []

    def loss(x):
        # The second call of the first round that takes more than one.
        if len(seen) > 5000 and calls[-1] == 1000 and not state["repaired"]:
            raise RuntimeError("connection lost")
        calls.append(len(x))
        seen.extend(x)
        return x**2

    state = {"repaired": False}
    settings = {"rtol": None, "max_evaluations": 9000}
    result = estimate(loss=loss, **settings)
    with pytest.raises(RuntimeError, match="connection lost"):
        result.fit(stats.norm())
    assert result.n_evaluations_ == len(seen) - 1001
    state["repaired"] = True
    result.set_params(max_evaluations=9000 - result.n_evaluations_).partial_fit()
    smooth = estimate(loss=lambda x: x**2, **settings).fit(stats.norm())
    assert len(seen) == len(set(seen)) + 1 == smooth.n_evaluations_ + 1
    assert result.estimate_ == pytest.approx(smooth.estimate_, rel=1e-12)


@pytest.mark.parametrize("other", ["brier", "recall"])
def test_another_loss_is_another_fit(pool, other):
    X, y, model, _, _ = pool
    result = estimate(model, "zero_one", rtol=None, max_evaluations=300).fit(X, y)
    with pytest.raises(ValueError, match="call fit"):
        result.set_params(loss=other).partial_fit()


def test_rates_of_labels_that_the_model_does_not_know(pool):
    X, y, model, _, _ = pool
    with pytest.raises(ValueError, match=r"labels array\(\[2\]\)"):
        estimate(model, "f1").fit(X, y + (X[:, 0] > 0))


def test_another_function_is_found_at_the_first_row(pool):
    _, y, _, _, values = pool
    keys = np.arange(len(y))[:, None]
    settings = {"rtol": None, "max_evaluations": 300}
    result = estimate(loss=lambda rows, y: values[rows[:, 0]], **settings).fit(keys, y)
    with pytest.raises(ValueError, match="another loss than before, call fit"):
        result.set_params(loss=lambda rows, y: values[rows[:, 0]] + 1).partial_fit()
    result.set_params(loss=lambda rows, y: values[rows[:, 0]]).partial_fit()
    assert result.n_evaluations_ == 600


def test_a_failure_before_new_strata_are_made(pool):
    """Rows that are pending belong to the strata they were drawn from."""
    X, y, _, _, values = pool
    seen = []

    def loss(rows, y):
        if 200 < len(seen) + len(rows) and not state["repaired"]:
            raise RuntimeError("connection lost")
        seen.extend(rows[:, -1])
        return values[rows[:, -1].astype(int)]

    state = {"repaired": False}
    X = np.column_stack([X, np.arange(len(y))])
    settings = {"surrogate": "learned", "rtol": None, "max_evaluations": 1000}
    result = estimate(loss=loss, batch_size=50, **settings)
    with pytest.raises(RuntimeError, match="connection lost"):
        result.fit(X, y)
    # The next round was to be drawn from what is known by now.
    result._integrator.rounds._learned.next_at = 100
    with pytest.raises(RuntimeError, match="connection lost"):
        result.partial_fit()
    state["repaired"] = True
    result.partial_fit()
    assert len(seen) == len(set(seen)) + 1 == result.n_evaluations_ + 1
    assert abs(result.estimate_ - values.mean()) < 5 * result.std_error_


def test_a_loss_with_two_values_for_a_row_is_found(pool):
    _, y, _, _, values = pool
    random = np.random.default_rng(0)
    result = estimate(loss=lambda rows, y: values[rows[:, 0]] + random.random(len(y)))
    with pytest.raises(ValueError, match="one value for a row"):
        result.fit(np.arange(len(y))[:, None], y)


def test_failure_at_the_first_call_leaves_all_as_it_was(pool):
    X, y, model, _, _ = pool
    result = estimate(model, "zero_one", max_evaluations=300).fit(X, y)
    before = dict(vars(result))
    result.set_params(loss=lambda m, rows, y: raise_error(rows))
    with pytest.raises(RuntimeError, match="connection lost"):
        result.fit(X[:, :2], y)
    after = dict(vars(result))
    before.pop("loss"), after.pop("loss")
    assert after == before


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"loss": "hinge"}, ValueError, "loss='hinge' is not known"),
        ({"loss": "roc_auc"}, ValueError, "estimate.'roc_auc'. after fit"),
        ({"loss": 3}, TypeError, "neither a name"),
        ({"estimator": None, "loss": "zero_one"}, ValueError, "needs a fitted"),
        ({"loss": None}, ValueError, "loss=None"),
        ({"sampler": "best"}, ValueError, "sampler='best'"),
        ({"sampler": 3}, TypeError, "sampler=3"),
        ({"sampler": "gaussian"}, TypeError, "frozen continuous"),
        ({"sampler": StrataSampler(mixing=2)}, ValueError, "sampler.mixing"),
        ({"surrogate": "best"}, ValueError, "surrogate='best'"),
        ({"surrogate": [1.0, 2.0]}, ValueError, "one score for each row"),
        ({"surrogate": np.full(8000, np.nan)}, ValueError, "not finite"),
        ({"max_evaluations": 2}, ValueError, "max_evaluations=2"),
        ({"rtol": 0}, ValueError, "rtol=0"),
        ({"confidence": 1}, ValueError, "confidence=1"),
        ({"batch_size": 1.5}, TypeError, "batch_size must be"),
        ({"estimator": (1, 2, 3)}, ValueError, "tuple of 3"),
    ],
)
def test_bad_parameters(pool, parameters, error, message):
    X, y, model, _, _ = pool
    parameters = {"estimator": model, "loss": "zero_one", **parameters}
    with pytest.raises(error, match=message):
        estimate(**parameters).fit(X, y)


def test_bad_data(pool):
    X, y, model, _, _ = pool
    with pytest.raises(ValueError, match="inconsistent"):
        estimate(model, "zero_one").fit(X, y[:-1])
    with pytest.raises(ValueError, match="requires y"):
        estimate(model, "zero_one").fit(X)
    with pytest.raises(TypeError, match="dense X"):
        estimate(model, "zero_one", surrogate="learned").fit(sparse.csr_array(X), y)
    with pytest.raises(ValueError, match="negative"):
        estimate(model, "zero_one").fit(X, y, sample_weight=-np.ones(len(y)))
    with pytest.raises(ValueError, match="y was given"):
        estimate(loss=len, sampler="row_column").fit(X, y)
    with pytest.raises(ValueError, match="callable"):
        estimate(model, "zero_one").fit(stats.norm())


# Reports.


def test_progress_counts_what_there_is_to_evaluate(capsys):
    values = np.random.default_rng(0).exponential(size=1000)
    settings = {"loss": lambda rows: values[rows[:, 0].astype(int)], "verbose": 1}
    X = np.arange(1000.0)[:, None]

    def told():
        lines = capsys.readouterr().out.splitlines()
        return {int(re.search("of at most ([0-9]+) ", line)[1]) for line in lines}

    result = estimate(max_evaluations=300, rtol=None, **settings).fit(X)
    assert told() == {300}
    result.partial_fit()
    assert told() == {600}
    estimate(rtol=1e-6, max_evaluations=5000, **settings).fit(X)
    assert told() == {1000}


def test_summary_and_progress(pool, capsys):
    X, y, model, _, _ = pool
    result = estimate(model, "zero_one", max_evaluations=1000, verbose=1)
    with pytest.raises(NotFittedError):
        result.summary()
    result.fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(result.history_["draws"])
    summary = result.summary()
    for text in (str(summary), summary._repr_html_()):
        assert f"{result.estimate_:.6g}" in text
        assert "zero_one" in text
    assert "<table>" in summary._repr_html_()


def test_sample_is_unbiased(pool):
    X, y, model, _, values = pool
    result = estimate(model, "log_loss", max_evaluations=1000).fit(X, y)
    rows, weights = result.sample(40_000)
    error = weights * values[rows] - values.mean()
    assert abs(error.mean()) < 4 * error.std() / 200


def test_history_has_columns_of_equal_length(pool):
    X, y, model, _, _ = pool
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = estimate(model, "zero_one", max_evaluations=300).fit(X, y)
    lengths = {len(column) for column in result.history_.values()}
    assert len(lengths) == 1
    assert result.history_["estimate"][-1] == result.estimate_


def test_weighted_draws_go_on_after_the_tolerance_was_reached():
    F = np.random.default_rng(0).exponential(size=(60, 80))
    estimator = MinVarianceImportanceEstimator(
        loss=lambda entries, values: values,
        sampler="row_column",
        rtol=0.2,
        random_state=0,
    ).fit(F)
    before = estimator.n_draws_, estimator.std_error_
    estimator.set_params(rtol=0.1).partial_fit()
    assert estimator.n_draws_ > before[0]
    assert estimator.std_error_ < before[1]


def test_losses_that_a_model_has_not_are_refused(rng):
    X = rng.standard_normal((100, 3))
    y = (X[:, 0] > 0).astype(int)
    with pytest.raises(TypeError, match="loss='brier' needs predict_proba"):
        MinVarianceImportanceEstimator(LinearRegression().fit(X, y), "brier").fit(X, y)
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"y has shape \(100, 2\)"):
        MinVarianceImportanceEstimator(model, "log_loss").fit(X, np.c_[y, y])


def test_the_assumed_range_is_within_what_a_loss_can_be(rng):
    X = rng.standard_normal((2000, 3))
    y = (X[:, 0] > 0).astype(int)
    estimator = MinVarianceImportanceEstimator(
        LogisticRegression().fit(X, y),
        "log_loss",
        rtol=None,
        max_evaluations=200,
        random_state=0,
    ).fit(X, y)
    low, high = estimator.assumed_range_
    assert low == 0 < high
