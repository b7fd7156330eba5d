"""Where SGDClassifier stood: containers, metadata, copies, rows in their order."""

import copy
import email.message
import io
import pickle

import joblib
import numpy as np
import pytest
import sklearn
from scipy import sparse
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
    _base,
)
from sklearn_awsgd.samplers import LevelSampler, StrataSampler, UniformSampler

ESTIMATORS = [
    AWSGDClassifier(),
    AWSGDClassifier("multinomial"),
    AWSGDClassifier("hinge", average=True),
    AWSGDClassifier("multinomial", learning_rate="rmsprop", sampler="uniform"),
    AWSGDClassifier(learning_rate="invscaling", sampler=StrataSampler(update="sgd")),
    AWSGDClassifier(penalty="l1", sampler=LevelSampler(mixing=0.3)),
    AWSGDRegressor(),
    AWSGDRegressor("huber", penalty="elasticnet", learning_rate="adadelta"),
]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)


def dumped(estimator):
    """Return a copy by way of joblib's file format."""
    file = io.BytesIO()
    joblib.dump(estimator, file)
    file.seek(0)
    return joblib.load(file)


COPIES = {
    "pickle": lambda e: pickle.loads(pickle.dumps(e)),
    "deepcopy": copy.deepcopy,
    "joblib": dumped,
}
each_copy = pytest.mark.parametrize("make_copy", COPIES.values(), ids=COPIES)


def targets(y, estimator):
    """Return classes as they are, or numbers for a regressor."""
    if isinstance(estimator, AWSGDClassifier):
        return y
    return np.unique(y, return_inverse=True)[1].astype(float)


def chunks(X, y, estimator):
    """Return the arguments of the calls of partial_fit for a stream."""
    y = targets(y, estimator)
    parts = [(X[part], y[part]) for part in np.array_split(np.arange(len(y)), 5)]
    if isinstance(estimator, AWSGDRegressor):
        return parts
    return [(*part, np.unique(y)) for part in parts]


def assert_same(one, other):
    """Everything that is fitted is the same, to the last bit."""
    for name in ("coef_", "intercept_", "t_", "variance_gain_", "n_features_in_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("history_", "sampling_history_"):
        expected = getattr(other, name)
        for column, values in getattr(one, name).items():
            if column != "seconds":
                np.testing.assert_array_equal(values, expected[column])


# Copies.


@pytest.mark.filterwarnings("ignore:sampler=.* begins anew:UserWarning")
@each_copy
@each_estimator
def test_a_copy_goes_on_with_the_stream(estimator, make_copy, three_classes, seed):
    """Whenever it is made, and what it was made from goes on too."""
    X, y = three_classes
    calls = chunks(X, y, estimator)
    whole = clone(estimator).set_params(random_state=seed)
    for arguments in calls:
        whole.partial_fit(*arguments)
    for when in range(len(calls) + 1):
        original = clone(estimator).set_params(random_state=seed)
        for arguments in calls[:when]:
            original.partial_fit(*arguments)
        twin = make_copy(original)
        # Taking turns, so that anything they share would show.
        for arguments in calls[when:]:
            twin.partial_fit(*arguments)
            original.partial_fit(*arguments)
        assert_same(twin, whole)
        assert_same(original, whole)


@each_copy
@each_estimator
def test_a_copy_of_what_is_fitted(estimator, make_copy, three_classes, seed):
    X, y = three_classes
    y = targets(y, estimator)
    fitted = clone(estimator).set_params(random_state=seed, tol=None, max_iter=4)
    fitted.fit(X, y)
    twin = make_copy(fitted)
    assert_same(twin, fitted)
    np.testing.assert_array_equal(twin.predict(X), fitted.predict(X))
    # A clone has the parameters and nothing else.
    fresh = clone(twin)
    assert not hasattr(fresh, "coef_")
    assert_same(fresh.fit(X, y), fitted)


# Rows in their order.


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_rows_in_their_order(layout, imbalanced, seed):
    """A pass is the same as one row after the other."""
    X, y = imbalanced
    rates = {"learning_rate": "invscaling", "random_state": seed, "tol": None}
    passes = AWSGDClassifier(shuffle=False, max_iter=2, **rates).fit(layout(X), y)
    single = AWSGDClassifier(sampler="uniform", **rates)
    for _ in range(2):
        for i in range(len(y)):
            single.partial_fit(layout(X[i : i + 1]), y[i : i + 1], classes=[0, 1])
    np.testing.assert_allclose(passes.coef_, single.coef_, rtol=1e-10)
    np.testing.assert_allclose(passes.intercept_, single.intercept_, rtol=1e-10)
    other_seed = AWSGDClassifier(shuffle=False, max_iter=2, **rates)
    other_seed.set_params(random_state=seed + 1, sampler=UniformSampler())
    np.testing.assert_array_equal(other_seed.fit(X, y).coef_, passes.coef_)
    shuffled = AWSGDClassifier(sampler="uniform", max_iter=2, **rates).fit(X, y)
    assert (shuffled.coef_ != passes.coef_).any()


def test_rows_in_their_order_with_weights(imbalanced, seed):
    """Rows of weight zero are absent."""
    X, y = imbalanced
    weight = np.arange(len(y)) % 2
    clf = AWSGDClassifier(shuffle=False, learning_rate="constant", tol=None, max_iter=2)
    one = clone(clf).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(
        one.coef_, clone(clf).fit(X[1::2], y[1::2]).coef_, rtol=1e-12
    )


@pytest.mark.parametrize("sampler", ["label", "level", "strata", StrataSampler()])
def test_learned_samplers_have_no_order(sampler, imbalanced):
    X, y = imbalanced
    with pytest.raises(ValueError, match="shuffle=False takes the rows in their order"):
        AWSGDClassifier(shuffle=False, sampler=sampler).fit(X, y, strata=y)


# Containers.


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("Estimator", [AWSGDClassifier, AWSGDRegressor])
def test_data_frames(library, Estimator, imbalanced, seed):
    module = pytest.importorskip(library)
    X, y = imbalanced
    names = list("abcde")
    frame = module.DataFrame(dict(zip(names, X.T, strict=True)))
    column, strata = module.Series(y), module.Series(np.where(X[:, 0] > 0, "u", "v"))
    weight = module.Series(np.arange(len(y)) % 3 + 0.5)
    estimator = Estimator(random_state=seed, learning_rate="adagrad", max_iter=3)
    estimator.set_params(tol=None).fit(
        frame, column, sample_weight=weight, strata=strata, X_val=frame, y_val=column
    )
    np.testing.assert_array_equal(estimator.feature_names_in_, names)
    plain = clone(estimator).fit(
        X,
        y,
        sample_weight=np.asarray(weight),
        strata=np.asarray(strata),
        X_val=X,
        y_val=y,
    )
    np.testing.assert_array_equal(estimator.coef_, plain.coef_)
    np.testing.assert_allclose(estimator.predict(frame), plain.predict(X), rtol=1e-9)
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(frame[names[::-1]])
    assert set(estimator.sampling_history_["group"]) == {"u", "v"}
    stream = clone(estimator)
    classes = {"classes": [0, 1]} if Estimator is AWSGDClassifier else {}
    stream.partial_fit(frame[:200], column[:200], **classes)
    stream.partial_fit(frame[200:], column[200:])
    np.testing.assert_array_equal(stream.feature_names_in_, names)
    with pytest.raises(ValueError, match="feature names"):
        stream.partial_fit(frame[names[::-1]], column)


# Metadata routing.


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("Estimator", [AWSGDClassifier, AWSGDRegressor])
def test_metadata_through_a_pipeline(Estimator, imbalanced, seed, rng):
    """Weights, strata and validation rows arrive, the latter transformed."""
    X, y = imbalanced
    X_val, y_val = 3 * X[:100], y[:100]
    metadata = {
        "sample_weight": rng.random(len(y)),
        "strata": np.arange(len(y)) % 3,
        "X_val": X_val,
        "y_val": y_val,
        "sample_weight_val": rng.random(100),
    }
    estimator = Estimator(random_state=seed, max_iter=4, tol=None)
    requested = clone(estimator).set_fit_request(**dict.fromkeys(metadata, True))
    model = Pipeline(
        [
            ("scale", StandardScaler().set_fit_request(sample_weight=True)),
            ("model", requested),
        ],
        transform_input=["X_val"],
    ).fit(X, y, **metadata)
    scaler = StandardScaler().fit(X, sample_weight=metadata["sample_weight"])
    metadata["X_val"] = scaler.transform(X_val)
    direct = estimator.fit(scaler.transform(X), y, **metadata)
    assert_same(model[-1], direct)
    assert set(direct.sampling_history_["group"]) == {0, 1, 2}
    assert np.isfinite(direct.history_["validation_score"]).any()


@pytest.mark.usefixtures("routing")
def test_metadata_that_was_not_requested_is_an_error(imbalanced):
    X, y = imbalanced
    model = Pipeline([("model", AWSGDClassifier())])
    with pytest.raises(ValueError, match=r"strata.*are passed but"):
        model.fit(X, y, strata=y)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("Estimator", [AWSGDClassifier, AWSGDRegressor])
def test_metadata_through_a_grid_search(Estimator, imbalanced, seed, rng):
    """Each fold gets its own rows' weights and strata, all the validation rows."""
    X, y = imbalanced
    X, y = X[:300], y[:300]
    X_val, y_val = imbalanced[0][300:], imbalanced[1][300:]
    weight, strata = rng.random(300), np.arange(300) % 3
    names = ("sample_weight", "strata", "X_val", "y_val")
    estimator = Estimator(random_state=seed, max_iter=4, tol=None)
    requested = clone(estimator).set_fit_request(**dict.fromkeys(names, True))
    requested.set_score_request(sample_weight=False)
    folds = [
        (np.arange(200), np.arange(200, 300)),
        (np.arange(100, 300), np.arange(90)),
    ]
    search = GridSearchCV(requested, {"alpha": [1e-4, 1e-1]}, cv=folds)
    search.fit(X, y, sample_weight=weight, strata=strata, X_val=X_val, y_val=y_val)
    for k, (train, test) in enumerate(folds):
        for alpha, score in zip(
            (1e-4, 1e-1), search.cv_results_[f"split{k}_test_score"], strict=True
        ):
            direct = clone(estimator).set_params(alpha=alpha)
            direct.fit(
                X[train],
                y[train],
                sample_weight=weight[train],
                strata=strata[train],
                X_val=X_val,
                y_val=y_val,
            )
            assert score == direct.score(X[test], y[test])
    best = clone(estimator).set_params(**search.best_params_)
    best.fit(X, y, sample_weight=weight, strata=strata, X_val=X_val, y_val=y_val)
    assert_same(search.best_estimator_, best)


@pytest.mark.usefixtures("routing")
def test_metadata_of_partial_fit(imbalanced):
    clf = AWSGDClassifier().set_partial_fit_request(strata=True, sample_weight=True)
    request = clf.get_metadata_routing().partial_fit.requests
    assert request["strata"]
    assert request["sample_weight"]


# What was drawn.


@pytest.mark.parametrize("learning_rate", ["auto", "adagrad"])
def test_groups_and_levels_have_names(learning_rate, three_classes, seed):
    X, y = three_classes
    binary = np.where(y == "a", "yes", "no")
    options = {"learning_rate": learning_rate, "random_state": seed, "max_iter": 3}
    cases = [
        (AWSGDClassifier(tol=None, **options), binary, {"yes", "no"}),
        (AWSGDClassifier(tol=None, **options), y, {"a", "b", "c", "rest"}),
        (AWSGDClassifier("multinomial", tol=None, **options), y, {"a", "b", "c"}),
        (AWSGDRegressor("huber", tol=None, **options), X[:, 0] + X[:, 1] ** 2, {"all"}),
    ]
    for estimator, target, groups in cases:
        # Of few rows, softmax regression draws none on the way to the optimum.
        times = 50 if estimator.loss == "multinomial" else 1
        rows, target = np.tile(X, (times, 1)), np.tile(target, times)
        table = estimator.fit(rows, target).sampling_history_
        assert set(table["group"]) == groups
        level = table["level"]
        # Most of what is drawn is not far below the largest gradient at the start.
        assert -27 <= level.min() < level.max() <= 4
        assert level[table["probability"].argmax()] >= -8
        first = table["draws"] == table["draws"].min()
        sums = [
            table["probability"][first & (table["problem"] == k)].sum()
            for k in np.unique(table["problem"])
        ]
        np.testing.assert_allclose(sums, 1)


def test_groups_of_other_samplers(three_classes, labels_of_rows, seed):
    X, y = three_classes
    clf = AWSGDClassifier(
        sampler="label",
        learning_rate="adagrad",
        random_state=seed,
        max_iter=2,
        tol=None,
    )
    table = clf.fit(X, y).sampling_history_
    assert "level" not in table
    rest = table["probability"][(table["problem"] == 0) & (table["group"] == "rest")]
    np.testing.assert_allclose(
        rest, 1 - table["probability"][table["group"] == "a"], rtol=1e-12
    )
    table = clf.fit(X, labels_of_rows).sampling_history_
    assert set(table["group"]) == {0, 1, "rest"}
    clf.set_params(sampler="uniform")
    assert set(clf.fit(X, y).sampling_history_["group"]) == {"all"}


@pytest.fixture
def labels_of_rows(three_classes):
    X, _ = three_classes
    return (X[:, :2] > 0).astype(int)


def test_counts_that_were_not_asked_for(imbalanced, seed):
    X, y = imbalanced
    clf = AWSGDClassifier(random_state=seed)
    with pytest.raises(AttributeError, match="not fitted"):
        clf.draw_counts_
    clf.fit(X, y)
    with pytest.raises(AttributeError, match="count_draws=True"):
        clf.draw_counts_
    assert clf.set_params(count_draws=True).fit(X, y).draw_counts_.sum() > 0


def least_absolute_residuals(X, y):
    """Return the least sum of absolute residuals of a linear model, by scipy."""
    n, d = X.shape
    A = np.hstack([X, np.ones((n, 1)), np.eye(n), -np.eye(n)])
    cost = np.r_[np.zeros(d + 1), np.ones(2 * n)]
    bounds = [(None, None)] * (d + 1) + [(0, None)] * (2 * n)
    return linprog(cost, A_eq=A, b_eq=y, bounds=bounds).fun


def test_huber_far_below_the_residuals(seed, rng):
    """It still ends where it should; the warning of too few passes says why."""
    X = rng.standard_normal((200, 5))
    y = 100 * (X @ [1.0, 2, 0, 0, -1] + rng.standard_normal(200))
    small = AWSGDRegressor("huber", epsilon=0.01, random_state=seed).fit(X, y)
    assert small.n_iter_ < 1000
    with pytest.warns(UserWarning, match=r"raise max_iter or tol.*raise epsilon=0\.01"):
        small.set_params(max_iter=3).fit(X, y)
    reg = AWSGDRegressor("huber", epsilon=0.5, alpha=1e-9, random_state=seed)
    assert reg.fit(X, y).n_iter_ < 1000
    # With so small an epsilon the loss is nearly |residual|, but for a factor.
    best = least_absolute_residuals(X, y)
    residuals = abs(y - reg.predict(X)).sum()
    assert best <= residuals <= 1.002 * best


# Documentation.


@pytest.fixture
def project_url(monkeypatch):
    """The package's metadata name an address."""
    entries = {"Project-URL": ["Source, src", "Documentation, https://docs.example/"]}
    message = email.message.Message()
    for name, values in entries.items():
        for value in values:
            message[name] = value
    monkeypatch.setattr(_base, "metadata", lambda package: message)
    _base.documentation_url.cache_clear()
    yield
    _base.documentation_url.cache_clear()


@pytest.mark.usefixtures("project_url")
def test_the_html_representation_links_to_the_documentation():
    page = 'href="https://docs.example/'
    assert page + "classifier.html" in AWSGDClassifier()._repr_html_()
    pipeline = Pipeline([("scale", StandardScaler()), ("reg", AWSGDRegressor())])
    assert page + "classifier.html" in pipeline._repr_html_()
    assert page + "sampling.html" in LevelSampler()._repr_html_()
    assert page + "factorization.html" in AWSGDMatrixFactorization()._repr_html_()
    assert page + "importance.html" in MinVarianceImportanceEstimator()._repr_html_()


def test_no_link_without_an_address(monkeypatch):
    monkeypatch.setattr(_base, "metadata", lambda package: email.message.Message())
    _base.documentation_url.cache_clear()
    assert 'href="' not in AWSGDClassifier()._repr_html_()
    assert 'href="' in StandardScaler()._repr_html_()
    _base.documentation_url.cache_clear()
