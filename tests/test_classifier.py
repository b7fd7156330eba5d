"""AWSGDClassifier: the optimum it reaches, and how it behaves."""

import copy
import io
import pickle

import joblib
import numpy as np
import pytest
from helpers import log_loss
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd.samplers import StrataSampler, UniformSampler


def classifier(seed, **parameters):
    """A classifier with plain AW-SGD steps, whatever the defaults are."""
    plain = {
        "learning_rate": "adagrad",
        "eta0": 0.1,
        "sampler": "label",
        "max_iter": 5,
        "tol": None,
        "random_state": seed,
    }
    return AWSGDClassifier(**{**plain, **parameters})


def objective(clf, X, y, alpha, weight=None):
    """The objective of the documentation, from the fitted coefficients."""
    weight = np.ones(len(y)) if weight is None else weight
    z = X @ clf.coef_[0].astype(float) + clf.intercept_[0]
    signs = np.where(y == clf.classes_[1], 1, -1)
    return weight @ log_loss(signs, z)[0] + alpha / 2 * (clf.coef_**2).sum()


@pytest.mark.parametrize("learning_rate", ["adagrad", "optimal", "invscaling"])
@pytest.mark.parametrize("sampler", ["uniform", "label"])
def test_the_optimum_is_that_of_logistic_regression(
    sampler, learning_rate, imbalanced, seed
):
    X, y = imbalanced
    alpha, weight = 0.01, np.full(len(y), 1 / len(y))
    best = LogisticRegression(C=1 / (alpha * len(y)), tol=1e-10).fit(X, y)
    clf = classifier(
        seed, sampler=sampler, learning_rate=learning_rate, alpha=alpha, max_iter=150
    )
    clf.set_params(eta0=None if learning_rate == "adagrad" else 0.5, average=400 * 50)
    clf.fit(X, y)
    reached = objective(clf, X, y, alpha, weight)
    lowest = objective(best, X, y, alpha, weight)
    assert lowest * (1 - 1e-9) <= reached <= lowest * (1 + 1e-3)


def test_averaging_removes_the_noise_of_a_constant_rate(imbalanced, seed):
    X, y = imbalanced
    alpha, weight = 0.01, np.full(len(y), 1 / len(y))
    best = LogisticRegression(C=1 / (alpha * len(y)), tol=1e-10).fit(X, y)
    lowest = objective(best, X, y, alpha, weight)
    excess = {}
    for average in (False, 400 * 20):
        clf = classifier(
            seed, learning_rate="constant", eta0=0.1, average=average, max_iter=60
        )
        clf.set_params(alpha=alpha).fit(X, y)
        excess[average] = objective(clf, X, y, alpha, weight) - lowest
    assert excess[400 * 20] < 0.5 * excess[False]


@pytest.mark.parametrize("sampler", ["uniform", "label"])
@pytest.mark.parametrize("class_weight", [None, {0: 1.0, 1: 5.0}, "balanced"])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_have_the_meaning_of_logistic_regression(
    weighted, class_weight, sampler, imbalanced, seed, rng
):
    X, y = imbalanced
    alpha = 0.01
    sample_weight = rng.integers(0, 4, len(y)).astype(float) if weighted else None
    total = len(y) if sample_weight is None else sample_weight.sum()
    weight = np.ones(len(y)) if sample_weight is None else sample_weight.copy()
    factors = class_weight
    if class_weight == "balanced":
        # From the weighted counts; old versions of scikit-learn count rows.
        sums = [weight[y == k].sum() for k in (0, 1)]
        factors = {k: sum(sums) / (2 * sums[k]) for k in (0, 1)}
    best = LogisticRegression(C=1 / (alpha * total), class_weight=factors, tol=1e-10)
    best.fit(X, y, sample_weight)
    if factors is not None:
        weight *= np.where(y == 1, factors[1], factors[0])
    weight /= total
    clf = classifier(seed, sampler=sampler, alpha=alpha, class_weight=class_weight)
    clf.set_params(max_iter=150, average=400 * 50).fit(
        X, y, sample_weight=sample_weight
    )
    reached = objective(clf, X, y, alpha, weight)
    lowest = objective(best, X, y, alpha, weight)
    assert lowest * (1 - 1e-9) <= reached <= lowest * (1 + 2e-3)


def frozen(seed, coef, **parameters):
    """A classifier that makes no steps worth mentioning, from given coefficients."""
    clf = classifier(seed, learning_rate="constant", eta0=1e-300, **parameters)

    def fit(X, y, **kwargs):
        init = {"coef_init": coef, "intercept_init": [0.3]}
        return clf.fit(X, y, **init, **kwargs)

    return fit


@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet", None])
@pytest.mark.parametrize("class_weight", [None, {0: 1.0, 1: 5.0}])
def test_the_objective_of_a_pass_is_exact_on_a_frozen_model(
    class_weight, penalty, imbalanced, seed, rng
):
    X, y = imbalanced
    coef, sample_weight = rng.standard_normal(5), rng.integers(0, 3, len(y))
    fit = frozen(
        seed,
        coef,
        sampler="uniform",
        max_iter=2,
        penalty=penalty,
        alpha=0.05,
        class_weight=class_weight,
    )
    clf = fit(X, y, sample_weight=sample_weight)
    weight = sample_weight * (1 if class_weight is None else np.where(y == 1, 5, 1))
    losses = log_loss(2 * y - 1, X @ coef + 0.3)[0]
    l1_ratio = {"l1": 1.0, "elasticnet": 0.15}.get(penalty, 0.0)
    size = (1 - l1_ratio) / 2 * coef @ coef + l1_ratio * np.abs(coef).sum()
    expected = weight @ losses / sample_weight.sum() + 0.05 * size * bool(penalty)
    np.testing.assert_allclose(clf.history_["objective"][-1], expected, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_variance_gain_agrees_with_enumeration(weighted, imbalanced, seed, rng):
    X, y = np.tile(imbalanced[0], (20, 1)), np.tile(imbalanced[1], 20)
    coef = rng.standard_normal(5)
    sample_weight = rng.integers(1, 4, len(y)) if weighted else None
    # Step size zero: the classes stay equally likely, and q is known.
    sampler = StrataSampler(update="sgd", eta0=0, start="balanced", mixing=0)
    clf = frozen(seed, coef, sampler=sampler)(X, y, sample_weight=sample_weight)
    P = np.ones(len(y)) if sample_weight is None else sample_weight
    P = P / P.sum()
    q = np.where(y == 1, 0.5 / P[y == 1].sum(), 0.5 / P[y == 0].sum())
    norms2 = log_loss(2 * y - 1, X @ coef + 0.3)[1] ** 2 * ((X**2).sum(axis=1) + 1)
    gain = (P @ norms2) / (P @ (norms2 / q))
    # Spread of the ratio of two means over the draws of the last pass.
    ratio = norms2 / q - gain * norms2 / q**2
    sigma = np.sqrt(P @ (q * ratio**2) / len(y)) / (P @ (norms2 / q))
    assert abs(clf.variance_gain_[0] - gain) < 5 * sigma
    weight = 1 / q
    size = len(y) * (P @ np.ones(len(y))) ** 2 / (P @ weight)
    np.testing.assert_allclose(clf.effective_sample_size_[0], size, rtol=0.05)


def test_label_sampling_lowers_the_variance_of_a_rare_class(imbalanced, seed):
    X, y = imbalanced
    clf = classifier(seed, max_iter=20).fit(X, y)
    assert clf.variance_gain_[0] > 1.2
    assert clf.sampler_.probabilities_[0, 1] > 1.5 * y.mean()
    uniform = classifier(seed, sampler="uniform").fit(X, y)
    assert uniform.variance_gain_[0] == 1
    assert uniform.effective_sample_size_[0] == len(y)


def test_given_strata(imbalanced, seed):
    X, y = imbalanced
    strata = np.array(["low", "high"])[(X[:, 0] > 0).astype(int)]
    clf = classifier(seed, sampler="strata").fit(X, y, strata=strata)
    np.testing.assert_array_equal(clf.sampler_.strata_, ["high", "low"])
    assert clf.sampler_.probabilities_.shape == (1, 2)
    by_label = classifier(seed, sampler="strata").fit(X, y, strata=y)
    label = classifier(seed, sampler="label").fit(X, y)
    np.testing.assert_array_equal(by_label.coef_, label.coef_)


@pytest.mark.parametrize("sampler", ["uniform", "label"])
def test_any_number_of_jobs_gives_the_same_result(sampler, three_classes, seed):
    X, y = three_classes
    fits = [
        classifier(seed, sampler=sampler, n_jobs=n_jobs).fit(X, y)
        for n_jobs in (None, 2, 3)
    ]
    for clf in fits[1:]:
        np.testing.assert_array_equal(clf.coef_, fits[0].coef_)
        np.testing.assert_array_equal(clf.variance_gain_, fits[0].variance_gain_)


def test_one_vs_rest_is_one_binary_problem_for_each_class(three_classes, seed):
    X, y = three_classes
    clf = classifier(seed, max_iter=200, alpha=0.01, average=300 * 80).fit(X, y)
    assert clf.coef_.shape == (3, 4)
    assert clf.sampler_.probabilities_.shape == (3, 2)
    for k, name in enumerate(clf.classes_):
        best = LogisticRegression(C=1 / (0.01 * len(y)), tol=1e-8).fit(X, y == name)
        np.testing.assert_allclose(clf.coef_[k], best.coef_[0], atol=0.08)
    probabilities = clf.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    expected = expit(clf.decision_function(X))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected)
    np.testing.assert_allclose(clf.predict_log_proba(X), np.log(probabilities))
    assert clf.score(X, y) == np.mean(clf.predict(X) == y) > 0.5


def test_probabilities_of_each_loss(imbalanced, seed):
    X, y = imbalanced
    assert not hasattr(classifier(seed, loss="hinge").fit(X, y), "predict_proba")
    clf = classifier(seed, loss="modified_huber").fit(X, y)
    expected = (np.clip(clf.decision_function(X), -1, 1) + 1) / 2
    np.testing.assert_allclose(clf.predict_proba(X)[:, 1], expected)


def test_same_seed_same_result_and_another_seed_another(imbalanced, seed):
    X, y = imbalanced
    first, again = classifier(seed).fit(X, y), classifier(seed).fit(X, y)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    np.testing.assert_array_equal(again.fit(X, y).coef_, first.coef_)
    assert (classifier(seed + 1).fit(X, y).coef_ != first.coef_).any()
    state = np.random.RandomState(seed)
    np.testing.assert_array_equal(classifier(state).fit(X, y).coef_, first.coef_)


LAYOUTS = {
    "F order": np.asfortranarray,
    "not contiguous": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc": sparse.csc_array,
    "coo": sparse.coo_array,
    "list": lambda X: X.tolist(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_model(layout, imbalanced, seed):
    X, y = imbalanced
    expected = classifier(seed).fit(X, y)
    clf = classifier(seed).fit(LAYOUTS[layout](X), y)
    np.testing.assert_allclose(clf.coef_, expected.coef_, rtol=1e-9)
    np.testing.assert_allclose(
        clf.decision_function(LAYOUTS[layout](X)),
        expected.decision_function(X),
        rtol=1e-9,
    )


def test_float32_in_float32_out(imbalanced, seed):
    X, y = imbalanced
    clf = classifier(seed).fit(X.astype(np.float32), y)
    assert clf.coef_.dtype == clf.intercept_.dtype == np.float32
    assert clf.decision_function(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(clf.coef_, classifier(seed).fit(X, y).coef_, rtol=1e-4)


def test_memory_mapped_read_only_data(imbalanced, seed, tmp_path):
    X, y = imbalanced
    joblib.dump((X, y), tmp_path / "data.joblib")
    mapped, labels = joblib.load(tmp_path / "data.joblib", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    clf = classifier(seed).fit(mapped, labels)
    np.testing.assert_array_equal(clf.coef_, classifier(seed).fit(X, y).coef_)


def test_classes_of_equal_scores_tie_whatever_the_other_rows(rng):
    """Rounding of products, which depends on how many rows there are, has no say."""
    X = rng.standard_normal((60, 5))
    clf = AWSGDClassifier().fit(X, np.arange(60) % 3)
    # The last two classes are the same, but for the order of their sums.
    clf.coef_[1] = clf.coef_[2] = rng.standard_normal(5)
    clf.coef_[0] -= 100 * clf.coef_[1]
    clf.intercept_[1:] = 0.1
    expected = clf.predict(X)
    assert set(expected) == {0, 1}
    clf.coef_[2] *= 1 + 4 * np.finfo(np.float64).eps
    np.testing.assert_array_equal(clf.predict(X), expected)
    alone = [clf.predict(row)[0] for row in X[:, None]]
    np.testing.assert_array_equal(alone, expected)


def through_joblib(clf):
    buffer = io.BytesIO()
    joblib.dump(clf, buffer)
    buffer.seek(0)
    return joblib.load(buffer)


@pytest.mark.parametrize(
    "copied",
    [lambda clf: pickle.loads(pickle.dumps(clf)), through_joblib, copy.deepcopy],
    ids=["pickle", "joblib", "deepcopy"],
)
def test_copies_predict_and_continue_alike(copied, imbalanced, seed):
    X, y = imbalanced
    clf = classifier(seed).fit(X, y)
    other = copied(clf)
    np.testing.assert_array_equal(other.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_array_equal(
        other.partial_fit(X, y).coef_, clf.partial_fit(X, y).coef_
    )


def test_clone_has_the_parameters_and_nothing_learned(imbalanced, seed):
    X, y = imbalanced
    clf = classifier(seed, sampler=StrataSampler(mixing=0.3)).fit(X, y)
    fresh = clone(clf)
    assert fresh.sampler.mixing == 0.3
    assert not hasattr(fresh, "coef_")
    np.testing.assert_array_equal(fresh.fit(X, y).coef_, clf.coef_)


def test_the_sampler_parameter_is_never_changed(imbalanced, seed):
    X, y = imbalanced
    sampler = StrataSampler()
    before = dict(vars(sampler))
    clf = classifier(seed, sampler=sampler).fit(X, y).partial_fit(X, y)
    assert vars(sampler) == before
    assert clf.sampler is sampler
    assert clf.sampler_ is not sampler


def test_grid_search_over_the_sampler(imbalanced, seed):
    X, y = imbalanced
    search = GridSearchCV(
        make_pipeline(StandardScaler(), classifier(seed, sampler=StrataSampler())),
        {
            "awsgdclassifier__sampler__mixing": [0.05, 0.5],
            "awsgdclassifier__alpha": [1e-4, 1e-1],
        },
        scoring="average_precision",
        cv=3,
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    mixing = search.best_params_["awsgdclassifier__sampler__mixing"]
    assert search.best_estimator_[-1].sampler_.mixing == mixing
    over_kinds = GridSearchCV(
        classifier(seed),
        {"sampler": ["uniform", "label", UniformSampler(), StrataSampler()]},
        cv=2,
    ).fit(X, y)
    scores = over_kinds.cv_results_["mean_test_score"]
    assert scores[0] == scores[2]
    assert scores[1] == scores[3]


@pytest.mark.parametrize("learning_rate", ["adagrad", "rmsprop", "constant"])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_warm_start_goes_on_from_the_last_coefficients(
    layout, learning_rate, imbalanced, seed
):
    X, y = imbalanced
    X = layout(np.maximum(X, 0))
    start = classifier(seed, max_iter=40).fit(X, y)
    for clf, given in (
        (copy.deepcopy(start).set_params(warm_start=True), {}),
        (clone(start), {"coef_init": start.coef_, "intercept_init": start.intercept_}),
    ):
        clf.set_params(learning_rate=learning_rate, eta0=1e-9, max_iter=1).fit(
            X, y, **given
        )
        np.testing.assert_allclose(clf.coef_, start.coef_, atol=1e-5)
        np.testing.assert_allclose(clf.intercept_, start.intercept_, atol=1e-5)
    cold = clone(start).set_params(max_iter=1, eta0=1e-9).fit(X, y)
    assert np.abs(cold.coef_).max() < 1e-5


def test_history_tables(three_classes, seed):
    X, y = three_classes
    clf = classifier(seed, max_iter=4).fit(X, y)
    for table in (clf.history_, clf.sampling_history_):
        assert len({len(column) for column in table.values()}) == 1
        numbers = {
            name: column for name, column in table.items() if column.dtype.kind in "if"
        }
        # Neither held-out data nor costs are given, and plain steps certify nothing.
        for name in ("validation_score", "duality_gap", "simulated_seconds"):
            assert np.isnan(numbers.pop(name, np.nan)).all()
        assert len(numbers) >= 3
        assert all(np.isfinite(column).all() for column in numbers.values())
    history = clf.history_
    for k in range(3):
        draws = history["draws"][history["problem"] == k]
        assert (np.diff(draws) > 0).all()
        assert draws[-1] == 4 * len(y)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(clf.sampling_history_)
    sums = frame.groupby(["problem", "draws"])["probability"].sum()
    np.testing.assert_allclose(sums, 1)
    assert len(pandas.DataFrame(history)) == len(sums)
    assert clf.t_ == 1 + 4 * len(y)
    assert clf.n_iter_ == 4


def test_feature_names_of_a_data_frame(imbalanced, seed):
    pandas = pytest.importorskip("pandas")
    X, y = imbalanced
    frame = pandas.DataFrame(X, columns=list("abcde"))
    clf = classifier(seed).fit(frame, pandas.Series(y))
    np.testing.assert_array_equal(clf.feature_names_in_, list("abcde"))
    np.testing.assert_array_equal(clf.coef_, classifier(seed).fit(X, y).coef_)
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[list("edcba")])


def test_verbose_prints_a_line_for_each_pass(imbalanced, seed, capsys):
    X, y = imbalanced
    classifier(seed, max_iter=3).fit(X, y)
    assert capsys.readouterr().out == ""
    classifier(seed, max_iter=3, verbose=1).fit(X, y)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_tol_stops_and_max_iter_warns(imbalanced, seed):
    X, y = imbalanced
    clf = classifier(seed, tol=1e-3, max_iter=1000, n_iter_no_change=3).fit(X, y)
    assert clf.n_iter_ < 1000
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        classifier(seed, tol=1e-3, max_iter=2).fit(X, y)


@pytest.mark.parametrize("batch_size", [1, 10, 1000])
def test_batch_size_keeps_the_number_of_draws(batch_size, imbalanced, seed):
    X, y = imbalanced
    clf = classifier(seed, batch_size=batch_size).fit(X, y)
    assert clf.t_ == 1 + 5 * len(y)
    assert clf.score(X, y) > 0.85


def test_zero_weight_is_the_row_absent_and_two_is_the_row_twice(imbalanced, seed, rng):
    """With shuffled passes and a frozen model the objectives are the same numbers."""
    X, y = imbalanced
    weight, coef = rng.integers(0, 3, len(y)), rng.standard_normal(5)
    fit = frozen(seed, coef, sampler="uniform", max_iter=2)
    weighted = fit(X, y, sample_weight=weight).history_["objective"][-1]
    repeated = fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted, repeated.history_["objective"][-1], rtol=1e-10)
