"""Bad input: an error that names the remedy, and a fitted state that stays."""

import pickle

import numpy as np
import pytest
from scipy import sparse

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd._validation import (
    Boolean,
    Integer,
    Options,
    Real,
    check_number,
    check_option,
    check_parameters,
    check_weights,
)
from sklearn_awsgd.samplers import StrataSampler


def classifier(seed=0, **parameters):
    """A classifier with plain AW-SGD steps, whatever the defaults are."""
    plain = {
        "learning_rate": "adagrad",
        "sampler": "label",
        "max_iter": 3,
        "tol": None,
        "random_state": seed,
    }
    return AWSGDClassifier(**{**plain, **parameters})


def check_unchanged_after_failure(clf, error, match, X, y, **arguments):
    """A refit that fails leaves every attribute the object it was."""
    before, attributes = pickle.dumps(clf), dict(vars(clf))
    with pytest.raises(error, match=match):
        clf.fit(X, y, **arguments)
    assert vars(clf).keys() == attributes.keys()
    assert all(vars(clf)[name] is value for name, value in attributes.items())
    assert pickle.dumps(clf) == before


@pytest.fixture
def fitted(imbalanced, seed):
    return classifier(seed).fit(*imbalanced)


BAD_PARAMETERS = {
    "loss": "logistic",
    "penalty": "l3",
    "alpha": -1e-4,
    "l1_ratio": 1.5,
    "max_iter": 0,
    "tol": -1.0,
    "epsilon": -0.1,
    "sampler": "labels",
    "batch_size": 0,
    "learning_rate": "fast",
    "eta0": 0.0,
    "power_t": np.nan,
    "n_iter_no_change": 0,
    "validation_fraction": 1.0,
    "max_time": 0.0,
    "average": -1,
}


@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_values_out_of_range(name, fitted, imbalanced):
    """The message names the parameter, the value and what is allowed."""
    value = BAD_PARAMETERS[name]
    fitted.set_params(**{name: value})
    match = rf"{name}={value!r}.*(must be|choose one of)"
    check_unchanged_after_failure(fitted, ValueError, match, *imbalanced)


@pytest.mark.parametrize(
    "name", ["alpha", "l1_ratio", "max_iter", "tol", "batch_size", "eta0", "average"]
)
@pytest.mark.parametrize("value", ["0.5", [1]])
def test_numbers_of_the_wrong_type(name, value, fitted, imbalanced):
    fitted.set_params(**{name: value})
    check_unchanged_after_failure(fitted, TypeError, f"{name} must be", *imbalanced)


@pytest.mark.parametrize("name", ["alpha", "eta0", "tol", "power_t"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite(name, value, fitted, imbalanced):
    fitted.set_params(**{name: value})
    check_unchanged_after_failure(fitted, ValueError, f"{name}=", *imbalanced)


@pytest.mark.parametrize(
    "name", ["max_iter", "batch_size", "n_iter_no_change", "n_jobs"]
)
def test_integers_are_asked_for(name, fitted, imbalanced):
    fitted.set_params(**{name: 2.5})
    check_unchanged_after_failure(
        fitted, TypeError, f"{name} must be an integer, got 2.5", *imbalanced
    )


BAD_SAMPLERS = {
    "by": "labels",
    "update": "moment",
    "mixing": 1.0,
    "forgetting": 0.0,
    "eta0": -0.1,
    "start": "equal",
}


@pytest.mark.parametrize("name", BAD_SAMPLERS)
def test_sampler_settings_out_of_range(name, fitted, imbalanced):
    value = BAD_SAMPLERS[name]
    fitted.set_params(sampler=StrataSampler(**{name: value}))
    match = rf"sampler\.{name}={value!r}"
    check_unchanged_after_failure(fitted, ValueError, match, *imbalanced)


def test_a_sampler_that_is_none(fitted, imbalanced):
    fitted.set_params(sampler=3)
    match = "sampler=3 is neither.*sklearn_awsgd.samplers"
    check_unchanged_after_failure(fitted, TypeError, match, *imbalanced)


def test_optimal_rate_needs_a_penalty(fitted, imbalanced):
    fitted.set_params(learning_rate="optimal", alpha=0)
    check_unchanged_after_failure(fitted, ValueError, "alpha=0.*positive", *imbalanced)


def with_value(X, value):
    X = X.copy()
    X[7, 2] = value
    return X


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layout", [np.asarray, np.float32, sparse.csr_array])
def test_rows_that_are_not_finite(layout, value, fitted, imbalanced):
    X, y = imbalanced
    check_unchanged_after_failure(
        fitted, ValueError, "X contains", layout(with_value(X, value)), y
    )


def test_rows_whose_squares_overflow(fitted, imbalanced):
    X, y = imbalanced
    match = "overflow.*StandardScaler"
    check_unchanged_after_failure(fitted, ValueError, match, with_value(X, 1e200), y)


BAD_DATA = {
    "1D": (lambda X, y: (X[:, 0], y), "2D array"),
    "3D": (lambda X, y: (X[:, :, None], y), "dim"),
    "empty": (lambda X, y: (X[:0], y[:0]), "0 sample"),
    "no features": (lambda X, y: (X[:, :0], y), "0 feature"),
    "lengths": (lambda X, y: (X, y[:-1]), "inconsistent"),
    "strings": (lambda X, y: (np.full(X.shape, "a"), y), "could not convert"),
    "complex": (lambda X, y: (X * 1j, y), "Complex"),
    "y is None": (lambda X, y: (X, None), "y"),
    "y is real": (lambda X, y: (X, X[:, 0]), "Unknown label type"),
    "y has NaN": (lambda X, y: (X, np.where(y == 1, np.nan, 0)), "NaN"),
    "y is 2D": (lambda X, y: (X, np.c_[y, y + 1]), "indicator.*MultiOutputClassifier"),
    "one class": (lambda X, y: (X, np.zeros(len(y))), "greater than one"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_data_of_the_wrong_kind(name, fitted, imbalanced):
    change, match = BAD_DATA[name]
    check_unchanged_after_failure(fitted, ValueError, match, *change(*imbalanced))


def test_integers_and_booleans_are_converted(imbalanced, seed):
    X, y = imbalanced
    for dtype in (np.int64, np.uint8, bool):
        clf = classifier(seed).fit((X > 0).astype(dtype), y)
        expected = classifier(seed).fit((X > 0).astype(float), y)
        np.testing.assert_array_equal(clf.coef_, expected.coef_)


def negative(n):
    weight = np.ones(n)
    weight[3] = -0.5
    return weight


BAD_WEIGHTS = {
    "negative": (negative, "negative value, -0.5.*use 0"),
    "zero": (np.zeros, "zero for every sample.*positive weight"),
    "NaN": (lambda n: np.full(n, np.nan), "sample_weight contains NaN"),
    "infinite": (lambda n: np.full(n, np.inf), "sample_weight contains inf"),
    "short": (lambda n: np.ones(n - 1), r"sample_weight.shape == \(399,\)"),
    "2D": (lambda n: np.ones((n, 2)), "1D array or scalar"),
}


@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_bad_sample_weights(name, fitted, imbalanced):
    make, match = BAD_WEIGHTS[name]
    X, y = imbalanced
    check_unchanged_after_failure(
        fitted, ValueError, match, X, y, sample_weight=make(len(y))
    )


def test_weights_that_leave_one_class(fitted, imbalanced):
    X, y = imbalanced
    check_unchanged_after_failure(
        fitted, ValueError, "positive weight", X, y, sample_weight=y.astype(float)
    )


@pytest.mark.parametrize(
    ("class_weight", "match"),
    [
        ({0: 1.0, 1: -1.0}, "class_weight=.*negative"),
        ({0: 1.0, 1: np.nan}, "class_weight=.*not finite"),
        ({0: 0.0, 1: 0.0}, "class_weight=.*no row"),
        ("balance", "class_weight"),
    ],
)
def test_bad_class_weights(class_weight, match, fitted, imbalanced):
    fitted.set_params(class_weight=class_weight)
    check_unchanged_after_failure(fitted, ValueError, match, *imbalanced)


def test_huge_weights_do_not_overflow(imbalanced, seed):
    X, y = imbalanced
    clf = classifier(seed).fit(X, y, sample_weight=np.where(y == 1, 1e308, 5e307))
    expected = classifier(seed).fit(X, y, sample_weight=np.where(y == 1, 2.0, 1.0))
    np.testing.assert_allclose(clf.coef_, expected.coef_, rtol=1e-9)


@pytest.mark.parametrize(
    ("strata", "match"),
    [
        (None, "strata=None.*pass strata"),
        (np.zeros(399), "strata has 399 values, X has 400 rows"),
        (np.full(400, np.nan), "strata contains NaN"),
        (np.zeros((400, 2)), "1d array"),
    ],
    ids=["none", "short", "NaN", "2D"],
)
def test_mismatched_strata(strata, match, fitted, imbalanced):
    fitted.set_params(sampler="strata")
    check_unchanged_after_failure(fitted, ValueError, match, *imbalanced, strata=strata)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("coef_init", np.zeros((1, 4)), "coef_init does not match"),
        ("coef_init", np.full((1, 5), np.nan), "coef_init contains NaN"),
        ("intercept_init", np.zeros(2), "intercept_init does not match"),
    ],
)
def test_bad_coefficients_to_start_from(name, value, match, fitted, imbalanced):
    check_unchanged_after_failure(
        fitted, ValueError, match, *imbalanced, **{name: value}
    )


def test_warm_start_with_other_classes_or_features(fitted, imbalanced, three_classes):
    X, y = imbalanced
    fitted.set_params(warm_start=True)
    match = "warm_start=True needs the classes"
    check_unchanged_after_failure(fitted, ValueError, match, X, y + 1)
    check_unchanged_after_failure(
        fitted, ValueError, "warm_start=True: the last coef_ does not", X[:, :3], y
    )


def test_partial_fit_needs_the_classes_once(imbalanced):
    X, y = imbalanced
    clf = classifier()
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        clf.partial_fit(X, y)
    with pytest.raises(ValueError, match="greater than one"):
        clf.partial_fit(X, y, classes=[0])
    with pytest.raises(ValueError, match=r"y has labels.*name all classes"):
        clf.partial_fit(X, y, classes=[0, 2])
    assert not hasattr(clf, "classes_")
    clf.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="not the same as on last call"):
        clf.partial_fit(X, y, classes=[0, 1, 2])
    clf.set_params(class_weight="balanced")
    with pytest.raises(ValueError, match=r"balanced.*dict"):
        clf.partial_fit(X, y)


DIVERGING = {
    "squared_error": {"loss": "squared_error", "eta0": 1e10},
    "squared_hinge": {"loss": "squared_hinge", "eta0": 1e10},
    "sparse": {"loss": "squared_error", "eta0": 1e10},
    "no penalty": {"loss": "squared_error", "eta0": 10.0, "penalty": None},
}


@pytest.mark.parametrize("sampler", ["uniform", "label"])
@pytest.mark.parametrize("name", DIVERGING)
def test_divergence_is_an_error(name, sampler, fitted, imbalanced):
    X, y = imbalanced
    fitted.set_params(
        learning_rate="constant", max_iter=50, sampler=sampler, **DIVERGING[name]
    )
    check_unchanged_after_failure(
        fitted,
        ValueError,
        "overflow.*StandardScaler.*eta0",
        sparse.csr_array(X) if name == "sparse" else X,
        y,
    )


def check_finite_or_overflow(clf, X, y):
    """Fitting raises the error of an overflow, or everything fitted is finite."""
    message = None
    try:
        clf.fit(X, y)
    except ValueError as error:
        message = str(error)
    if message is None:
        for fitted in (clf.coef_, clf.intercept_, clf.sampler_.probabilities_):
            assert np.isfinite(fitted).all()
    else:
        assert "overflow" in message
        assert not hasattr(clf, "coef_")


@pytest.mark.parametrize("learning_rate", ["constant", "adagrad", "invscaling"])
@pytest.mark.parametrize("loss", ["log_loss", "hinge", "modified_huber"])
@pytest.mark.parametrize("scale", [1e-150, 1e30, 1e150])
def test_extreme_scales_never_give_nan(scale, loss, learning_rate, imbalanced, seed):
    X, y = imbalanced
    clf = classifier(seed, loss=loss, learning_rate=learning_rate, eta0=1e10)
    check_finite_or_overflow(clf, X * scale, y)


@pytest.mark.parametrize("update", ["sgd", "adagrad"])
def test_a_raw_step_on_tau_that_runs_away_never_gives_nan(update, imbalanced, seed):
    X, y = imbalanced
    sampler = StrataSampler(update=update, normalize=False, eta0=1e6, mixing=0)
    clf = classifier(seed, sampler=sampler)
    check_finite_or_overflow(clf, X * 1e3, y)


def test_rows_that_are_all_zero(seed):
    clf = classifier(seed).fit(np.zeros((20, 3)), np.arange(20) % 2)
    np.testing.assert_array_equal(clf.coef_, 0)
    assert np.isfinite(clf.intercept_).all()


def test_helpers_accept_what_is_allowed():
    check_option("penalty", None, ("l2", None))
    check_number("alpha", 0, low=0)
    check_number("alpha", np.float32(0.5), above=0, below=1)
    check_number("n", np.int64(3), low=3, high=3, integer=True)
    with pytest.raises(TypeError, match="alpha must be a number, got True"):
        check_number("alpha", True, low=0)
    assert check_weights(None, 3) is None
    assert check_weights(2.0, 3) is None
    assert check_weights([5, 5, 5], 3) is None
    np.testing.assert_allclose(check_weights([0, 2, 4], 3), [0, 0.5, 1])


class Settings:
    _parameters = {
        "kind": Options("a", "b", None),
        "share": Real(low=0, below=1),
        "rate": Real(above=0, optional=True),
        "size": Integer(low=3, words=("auto",)),
        "average": Integer(low=0, or_boolean=True),
        "flag": Boolean(),
    }

    def __init__(self, **values):
        self.kind, self.share, self.rate = "a", 0, None
        self.size, self.average, self.flag = "auto", True, 0
        vars(self).update(values)

    def check(self):
        check_parameters(self, self._parameters, "sampler.")


@pytest.mark.parametrize(
    "good", [{}, {"kind": None}, {"rate": 2}, {"size": 3, "average": 0, "share": 0.99}]
)
def test_parameters_within_their_table_pass(good):
    Settings(**good).check()


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        ({"kind": "c"}, ValueError, r"^sampler.kind='c' is not known; choose one of"),
        ({"share": 1}, ValueError, r"^sampler.share=1 is out of range: .*>= 0 and < 1"),
        ({"share": None}, TypeError, r"^sampler.share must be a number, got None"),
        ({"share": True}, TypeError, r"^sampler.share must be a number, got True"),
        ({"rate": 0}, ValueError, r"^sampler.rate=0 is out of range"),
        ({"rate": np.nan}, ValueError, r"^sampler.rate=nan is out of range"),
        ({"size": 4.0}, TypeError, r"^sampler.size must be an integer, got 4.0"),
        ({"size": "all"}, TypeError, r"^sampler.size must be an integer, got 'all'"),
        ({"average": -1}, ValueError, r"^sampler.average=-1 is out of range"),
        ({"flag": np.ones(2)}, TypeError, r"^sampler.flag must be True or False"),
    ],
)
def test_parameters_outside_their_table_are_refused(bad, error, match):
    with pytest.raises(error, match=match):
        Settings(**bad).check()


def test_arrays_that_need_no_conversion_are_checked_all_the_same(imbalanced):
    X, y = imbalanced
    named = pytest.importorskip("pandas").DataFrame(X).add_prefix("x")
    clf = classifier().fit(named, y)
    assert clf.feature_names_in_[0] == "x0"
    assert not hasattr(clf.fit(X, y), "feature_names_in_")
    assert clf.fit(X[:, :2].copy(), y).n_features_in_ == 2
    for bad, labels, match in (
        (X[:0], y[:0], "0 sample"),
        (X[:, :0], y, "0 feature"),
        (X[1:], y, "inconsistent"),
    ):
        check_unchanged_after_failure(clf, ValueError, match, bad, labels)
    for value in (np.nan, np.inf):
        holes = X.copy()
        holes[3, 1] = value
        check_unchanged_after_failure(clf, ValueError, "X contains", holes, y)
        check_unchanged_after_failure(
            clf, ValueError, "y contains", X, np.where(np.arange(len(y)) == 5, value, y)
        )


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_predictions_are_refused_for_numbers_that_are_not_finite(
    value, is_sparse, imbalanced
):
    X, y = imbalanced
    clf = AWSGDClassifier(penalty="l1", alpha=0.2).fit(X, y)
    assert not clf.coef_.all()
    clf = clf.sparsify() if is_sparse else clf
    for column in range(X.shape[1]):
        holes = X.copy()
        holes[3, column] = value
        with pytest.raises(ValueError, match="X contains"):
            clf.predict(holes)
    with pytest.raises(ValueError, match="expecting 5 features"):
        clf.predict(X[:, :2].copy())
    with pytest.raises(ValueError, match="0 sample"):
        clf.predict(X[:0])


def test_parameters_are_checked_when_they_change(imbalanced):
    clf = classifier().fit(*imbalanced)
    for name, value in (("alpha", -1.0), ("loss", "hinges"), ("tol", "little")):
        before = getattr(clf, name)
        with pytest.raises((TypeError, ValueError), match=name):
            clf.set_params(**{name: value}).fit(*imbalanced)
        clf.set_params(**{name: before}).fit(*imbalanced)


def test_numbers_of_which_most_come_once_are_no_classes(rng):
    X, y = rng.standard_normal((60, 2)), np.arange(60) // 2
    with pytest.warns(UserWarning, match="greater than 50%"):
        classifier(max_iter=1).fit(X, np.maximum(np.arange(60), 20))
    classifier(max_iter=1).fit(X, y)
    with pytest.raises(ValueError, match="continuous"):
        classifier().fit(X, y + 0.5 * (y == 3))
