"""AWSGDRegressor: weights, streams, strata, bad input, and how it behaves."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import HuberRegressor, LinearRegression
from sklearn.model_selection import GridSearchCV

from sklearn_awsgd import AWSGDRegressor
from sklearn_awsgd.samplers import LevelSampler, StrataSampler

LOSSES = ["squared_error", "huber", "squared_epsilon_insensitive"]


@pytest.fixture
def linear(rng):
    """A noisy linear problem whose rows differ in size."""
    X = rng.standard_normal((300, 4)) * rng.lognormal(sigma=0.5, size=(300, 1))
    return X, X @ [1.0, -2.0, 0.5, 0.0] + 3 + 0.5 * rng.standard_normal(300)


def regressor(seed, **parameters):
    """A regressor with plain AW-SGD steps, whatever the defaults are."""
    plain = {"learning_rate": "adagrad", "max_iter": 5, "tol": None}
    return AWSGDRegressor(**{**plain, "random_state": seed, **parameters})


# The optimum.


def test_without_penalty_it_is_least_squares(linear, seed):
    X, y = linear
    reg = AWSGDRegressor(penalty=None, random_state=seed).fit(X, y)
    peer = LinearRegression().fit(X, y)
    np.testing.assert_allclose(reg.coef_, peer.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(reg.intercept_, [peer.intercept_], rtol=1e-8)
    assert reg.coef_.shape == (4,)
    assert reg.intercept_.shape == (1,)
    assert reg.predict(X).shape == (300,)
    np.testing.assert_allclose(reg.score(X, y), peer.score(X, y))


def test_outliers_do_not_move_the_huber_loss(linear, seed, rng):
    X, y = linear
    y = np.where(rng.random(300) < 0.1, y + 1000, y)
    reg = AWSGDRegressor("huber", epsilon=1.0, alpha=1e-6, random_state=seed).fit(X, y)
    np.testing.assert_allclose(reg.coef_, [1.0, -2.0, 0.5, 0.0], atol=0.3)
    square = AWSGDRegressor(alpha=1e-6, random_state=seed).fit(X, y)
    assert np.abs(square.coef_ - reg.coef_).max() > 1
    assert HuberRegressor().fit(X, y).score(X, y) < 0.5


@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet", None])
@pytest.mark.parametrize("loss", LOSSES)
def test_weights_are_repeated_rows(loss, penalty, linear, seed, rng):
    X, y = linear
    weight = rng.integers(0, 4, len(y))
    reg = AWSGDRegressor(
        loss, penalty=penalty, alpha=0.05, epsilon=0.3, random_state=seed
    )
    weighted = clone(reg).fit(X, y, sample_weight=weight)
    index = np.repeat(np.arange(len(y)), weight)
    repeated = clone(reg).fit(X[index], y[index])
    removed = clone(reg).fit(
        X[weight > 0], y[weight > 0], sample_weight=weight[weight > 0]
    )
    for other in (repeated, removed):
        np.testing.assert_allclose(other.coef_, weighted.coef_, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other.intercept_, weighted.intercept_, rtol=1e-5)
    np.testing.assert_array_equal(
        clone(reg).fit(X, y, sample_weight=np.full(300, 3.0)).coef_,
        clone(reg).fit(X, y).coef_,
    )


@pytest.mark.parametrize("sampler", ["uniform", "level", LevelSampler(mixing=0.3)])
@pytest.mark.parametrize("loss", [*LOSSES, "epsilon_insensitive"])
def test_plain_steps_come_near_the_optimum(loss, sampler, linear, seed):
    X, y = linear
    reg = regressor(
        seed, loss=loss, sampler=sampler, alpha=1e-3, epsilon=0.2, average=300 * 20
    )
    reg.set_params(max_iter=150).fit(X, y)
    compiled = reg._make_loss()

    def objective(v):
        losses, _ = compiled(y, X @ v[:-1] + v[-1])
        return losses.mean() + 5e-4 * v[:-1] @ v[:-1]

    start = np.append(reg.coef_, reg.intercept_)
    lowest = minimize(objective, start, method="Powell", tol=1e-10).fun
    assert objective(start) <= lowest * 1.05


# What stays the same.


@pytest.mark.parametrize("learning_rate", ["auto", "adagrad", "constant"])
def test_layouts_and_types_give_the_same(learning_rate, linear, seed):
    X, y = linear
    eta0 = None if learning_rate == "auto" else 0.01
    reg = regressor(seed, learning_rate=learning_rate, eta0=eta0, sampler="uniform")
    expected = clone(reg).fit(X, y).coef_
    layouts = (np.asfortranarray, sparse.csr_array, sparse.csr_matrix, sparse.csc_array)
    for layout in layouts:
        found = clone(reg).fit(layout(X), y).coef_
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-10)
    single = clone(reg).fit(X.astype(np.float32), y.astype(np.float32))
    assert single.coef_.dtype == single.predict(X.astype(np.float32)).dtype
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(single.coef_, expected, rtol=1e-3, atol=1e-4)
    frozen = X.copy()
    frozen.setflags(write=False)
    np.testing.assert_array_equal(clone(reg).fit(frozen, y).coef_, expected)


@pytest.mark.parametrize("learning_rate", ["auto", "adagrad"])
def test_same_seed_same_result(learning_rate, linear, seed):
    reg = regressor(seed, learning_rate=learning_rate)
    first, second = (clone(reg).fit(*linear) for _ in range(2))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    np.testing.assert_array_equal(
        first.history_["objective"], second.history_["objective"]
    )
    if learning_rate == "adagrad":
        other = clone(reg).set_params(random_state=seed + 1).fit(*linear)
        assert (other.coef_ != first.coef_).any()


def test_integers_lists_and_columns_as_targets(linear, seed):
    X, y = linear
    counts = np.round(y).astype(int)
    expected = regressor(seed).fit(X, counts.astype(float)).coef_
    np.testing.assert_array_equal(regressor(seed).fit(X, counts).coef_, expected)
    np.testing.assert_array_equal(
        regressor(seed).fit(X.tolist(), counts.tolist()).coef_, expected
    )


def test_the_units_of_the_targets_do_not_matter(linear, seed):
    """Step sizes come from the spread of y."""
    X, y = linear
    one = regressor(seed, alpha=0, sampler="uniform").fit(X, y)
    for factor in (1e-6, 1e6):
        other = regressor(seed, alpha=0, sampler="uniform").fit(X, factor * y)
        np.testing.assert_allclose(other.coef_ / factor, one.coef_, rtol=1e-6)


def test_pickle_copy_and_clone(linear, seed):
    X, y = linear
    reg = regressor(seed).fit(X, y)
    for other in (pickle.loads(pickle.dumps(reg)), copy.deepcopy(reg)):
        np.testing.assert_array_equal(other.predict(X), reg.predict(X))
        np.testing.assert_array_equal(
            other.partial_fit(X, y).coef_, copy.deepcopy(reg).partial_fit(X, y).coef_
        )
    assert not hasattr(clone(reg), "coef_")


def test_data_frames(linear, seed):
    pandas = pytest.importorskip("pandas")
    X, y = linear
    frame = pandas.DataFrame(X, columns=list("abcd"))
    reg = AWSGDRegressor(random_state=seed).fit(frame, pandas.Series(y))
    np.testing.assert_array_equal(reg.feature_names_in_, list("abcd"))
    np.testing.assert_array_equal(
        reg.coef_, AWSGDRegressor(random_state=seed).fit(X, y).coef_
    )
    with pytest.raises(ValueError, match="feature names"):
        reg.predict(frame[list("dcba")])
    history = pandas.DataFrame(reg.history_)
    assert list(history["phase"].unique()) == ["exact"]


def test_a_grid_search_over_the_sampler(linear, seed):
    grid = GridSearchCV(
        regressor(seed, sampler=LevelSampler()),
        {"sampler__mixing": [0.1, 0.5], "alpha": [1e-4, 10.0]},
        cv=2,
    ).fit(*linear)
    assert grid.best_params_["alpha"] == 1e-4
    assert grid.best_estimator_.sampler_.mixing == grid.best_params_["sampler__mixing"]


def test_the_sampler_is_not_mutated(linear, seed):
    sampler = LevelSampler(mixing=0.2)
    reg = regressor(seed, sampler=sampler).fit(*linear)
    expected = {"mixing": 0.2, "forgetting": 0.01, "time_aware": False}
    assert vars(sampler) == expected
    assert reg.sampler_ is not sampler
    assert reg.sampler_.probabilities_.shape == (1, 32)


# Streams.


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("update", ["sgd", "adagrad"])
def test_passes_over_one_chunk_are_the_passes_of_fit(
    update, layout, average, linear, seed, rng
):
    X, y = layout(linear[0]), linear[1]
    strata = rng.choice([0, 1, 2], len(y))
    sampler = StrataSampler("given", update=update)
    stream = regressor(seed, sampler=sampler, average=average)
    whole = regressor(seed, sampler=sampler, average=average, max_iter=3)
    for _ in range(3):
        stream.partial_fit(X, y, strata=strata)
    whole.fit(X, y, strata=strata)
    np.testing.assert_allclose(stream.coef_, whole.coef_, rtol=1e-9)
    np.testing.assert_allclose(stream.sampler_.tau_, whole.sampler_.tau_, rtol=1e-9)
    assert stream.t_ == whole.t_ == 1 + 3 * len(y)


@pytest.mark.parametrize("learning_rate", ["auto", "adagrad", "invscaling"])
def test_chunks_of_a_stream_are_learned(learning_rate, linear, seed):
    X, y = linear
    reg = regressor(seed, learning_rate=learning_rate)
    for _ in range(15):
        for start in range(0, 300, 60):
            reg.partial_fit(X[start : start + 60], y[start : start + 60])
    assert reg.t_ == 1 + 15 * 300
    phase = "stream" if learning_rate == "auto" else "sampling"
    assert set(reg.history_["phase"]) == {phase}
    assert (np.diff(reg.history_["draws"]) > 0).all()
    assert reg.score(X, y) > 0.9


def test_single_rows_and_constant_chunks(linear, seed):
    X, y = linear
    reg = regressor(seed).partial_fit(X[:1], y[:1])
    reg.partial_fit(X[:5], np.full(5, 2.0))
    for i in range(50):
        reg.partial_fit(X[i : i + 1], y[i : i + 1])
    assert np.isfinite(reg.coef_).all()
    assert reg.t_ == 1 + 1 + 5 + 50


def test_new_strata_appear(linear, seed, rng):
    X, y = linear
    strata = rng.choice(["m", "z"], len(y))
    reg = regressor(seed, sampler="strata").partial_fit(X, y, strata=strata)
    strata[::4] = "a"
    reg.partial_fit(X, y, strata=strata)
    np.testing.assert_array_equal(reg.sampler_.strata_, ["m", "z", "a"])
    np.testing.assert_allclose(reg.sampler_.probabilities_.sum(), 1)


def test_noisy_strata_are_drawn_more(linear, seed, rng):
    """In proportion to the root mean square of their gradients, not to their size."""
    X, y = linear
    strata = np.where(rng.random(300) < 0.15, "noisy", "quiet")
    y = y + 20 * (strata == "noisy") * rng.standard_normal(300)
    reg = AWSGDRegressor(
        sampler=StrataSampler("given", mixing=0, forgetting=0.01),
        learning_rate="adagrad",
        max_iter=40,
        tol=None,
        random_state=seed,
    ).fit(X, y, strata=strata)
    np.testing.assert_array_equal(reg.sampler_.strata_, ["noisy", "quiet"])
    assert reg.sampler_.probabilities_[0, 0] > 0.5 > (strata == "noisy").mean()
    assert reg.variance_gain_[0] > 1.5


# Bad input.


BAD_FITS = {
    "NaN in X": (lambda X, y: (np.where(X > 1, np.nan, X), y), {}, "X contains NaN"),
    "NaN in y": (lambda X, y: (X, np.where(y > 3, np.nan, y)), {}, "y contains NaN"),
    "infinite y": (lambda X, y: (X, np.where(y > 3, np.inf, y)), {}, "infinity"),
    "2D y": (lambda X, y: (X, np.c_[y, y]), {}, "1d array"),
    "strings": (lambda X, y: (X, np.full(len(y), "a")), {}, "could not convert"),
    "lengths": (lambda X, y: (X, y[1:]), {}, "inconsistent"),
    "weights": (lambda X, y: (X, y), {"sample_weight": -np.ones(300)}, "negative"),
    "no weight": (lambda X, y: (X, y), {"sample_weight": np.zeros(300)}, "positive"),
}
FIT_ONLY = {
    "coef_init": (lambda X, y: (X, y), {"coef_init": np.ones(3)}, "coef_init"),
    "1 row held": (lambda X, y: (X, y), {"X_val": np.ones((1, 4))}, "go together"),
}


def check_unchanged(reg, method, match, X, y, **arguments):
    before, attributes = pickle.dumps(reg), dict(vars(reg))
    with pytest.raises(ValueError, match=match):
        getattr(reg, method)(X, y, **arguments)
    assert vars(reg).keys() == attributes.keys()
    assert all(vars(reg)[name] is value for name, value in attributes.items())
    assert pickle.dumps(reg) == before


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("name", BAD_FITS)
def test_bad_data_changes_nothing(name, method, linear, seed):
    change, arguments, match = BAD_FITS[name]
    reg = regressor(seed).fit(*linear)
    check_unchanged(reg, method, match, *change(*linear), **arguments)


@pytest.mark.parametrize("name", FIT_ONLY)
def test_bad_arguments_of_fit_change_nothing(name, linear, seed):
    change, arguments, match = FIT_ONLY[name]
    reg = regressor(seed).fit(*linear)
    check_unchanged(reg, "fit", match, *change(*linear), **arguments)


BAD_PARAMETERS = {
    "loss": "log_loss",
    "penalty": "l0",
    "alpha": -1.0,
    "epsilon": -0.1,
    "sampler": "label",
    "learning_rate": "pa1",
    "max_time": -1.0,
}


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_parameters_change_nothing(name, method, linear, seed):
    reg = regressor(seed).fit(*linear).set_params(**{name: BAD_PARAMETERS[name]})
    check_unchanged(reg, method, f"{name}={BAD_PARAMETERS[name]!r}", *linear)


def test_divergence_is_an_error(linear, seed):
    X, y = linear
    reg = regressor(seed).fit(X, y)
    reg.set_params(learning_rate="constant", eta0=1e10, max_iter=50)
    check_unchanged(reg, "fit", r"overflow.*StandardScaler", X, y)
    check_unchanged(reg, "partial_fit", "overflow", X * 1e120, y)


@pytest.mark.parametrize("learning_rate", ["auto", "adagrad"])
@pytest.mark.parametrize("sampler", ["level", "uniform"])
@pytest.mark.parametrize("factor", [1e100, 1e160, 1e300])
def test_targets_whose_squares_overflow(factor, sampler, learning_rate, linear, seed):
    """An error or a finite fit, never NaN and no other warning."""
    X, y = linear
    reg = AWSGDRegressor(
        sampler=sampler, learning_rate=learning_rate, max_iter=20, random_state=seed
    )
    reg.set_params(tol=None)
    if factor > 1e150:
        with pytest.raises(ValueError, match="overflow"):
            reg.fit(X, factor * y)
        assert not hasattr(reg, "coef_")
    else:
        reg.fit(X, factor * y)
        assert np.isfinite(reg.coef_).all()


def test_sampler_of_labels_is_not_known(linear):
    with pytest.raises(ValueError, match=r"sampler='label'.*uniform"):
        AWSGDRegressor(sampler="label").fit(*linear)


def test_warm_start_goes_on_from_the_last_coefficients(linear, seed):
    X, y = linear
    reg = AWSGDRegressor(warm_start=True, alpha=0.01, random_state=seed).fit(X, y)
    first = reg.coef_
    reg.fit(X, y)
    np.testing.assert_allclose(reg.coef_, first, rtol=1e-9, atol=1e-12)
    assert "sampling" not in reg.history_["phase"]
    given = AWSGDRegressor(alpha=0.01, random_state=seed)
    given.fit(X, y, coef_init=first, intercept_init=reg.intercept_)
    np.testing.assert_allclose(given.coef_, first, rtol=1e-9, atol=1e-12)


def test_constant_targets_are_met_from_any_start(linear, seed):
    X = linear[0]
    for loss in ("squared_error", "huber"):
        reg = AWSGDRegressor(loss, random_state=seed)
        reg.fit(X, np.full(300, 7.0), intercept_init=[-4.0])
        np.testing.assert_allclose(reg.predict(X), 7.0, atol=1e-6)


def test_constant_targets_are_certified(seed, rng):
    X = rng.standard_normal((50, 3))
    reg = AWSGDRegressor("epsilon_insensitive", random_state=seed)
    reg.fit(X, np.full(50, 7.0))
    assert reg.history_["objective"][-1] == 0
    assert reg.duality_gap_[0] == 0
    np.testing.assert_allclose(reg.predict(X), 7.0, atol=0.1)


def test_absent_rows_do_not_set_the_step(linear, seed):
    X, y = linear
    X, y = np.vstack([1e6 * X[:1], X]), np.append(1e6, y)
    weight = np.append(0.0, np.ones(len(y) - 1))
    settings = {"learning_rate": "adagrad", "max_iter": 2, "tol": None}
    reg = regressor(seed, **settings).fit(X, y, sample_weight=weight)
    assert reg._eta0 == regressor(seed, **settings).fit(X[1:], y[1:])._eta0


@pytest.mark.parametrize("average", [False, True])
def test_targets_far_from_zero_in_a_stream(average, linear, seed):
    X, y = linear
    y = y + 1e4 * y.std()
    reg = AWSGDRegressor(average=average, random_state=seed)
    for _ in range(5):
        reg.partial_fit(X, y)
    exact = AWSGDRegressor(random_state=seed).fit(X, y).score(X, y)
    assert reg.score(X, y) > exact - 0.05
