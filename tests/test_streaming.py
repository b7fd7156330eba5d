"""partial_fit: what was learned stays, the random stream goes on, drift is followed."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._linear.streams.seed import seed_of
from sklearn_awsgd.samplers import StrataSampler, UniformSampler

SAMPLERS = {
    "uniform": UniformSampler(),
    "moments": StrataSampler(forgetting=0.01),
    "sgd": StrataSampler(update="sgd"),
    "adagrad": StrataSampler(update="adagrad"),
}
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def streaming(seed, **parameters):
    """A classifier with plain AW-SGD steps, whatever the defaults are."""
    plain = {"learning_rate": "adagrad", "eta0": 0.1, "sampler": "label", "tol": None}
    return AWSGDClassifier(**{**plain, "random_state": seed, **parameters})


def chunk(rng, n_positive, n_negative, noise=0.0):
    """Two overlapping classes; `noise` of the positives lie among the negatives."""
    y = np.repeat([1, 0], [n_positive, n_negative])
    X = rng.standard_normal((len(y), 3)) + np.outer(2 * y - 1, [1.0, 0.5, 0.0])
    wrong = (y == 1) & (rng.random(len(y)) < noise)
    X[wrong, :2] *= -1
    return X, y


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("update", ["sgd", "adagrad"])
def test_passes_over_one_chunk_are_the_passes_of_fit(
    update, layout, average, imbalanced, seed
):
    """Model, sampler, averages and random stream all go on exactly where they were."""
    X, y = layout(imbalanced[0]), imbalanced[1]
    clf = streaming(seed, sampler=StrataSampler(update=update), average=average)
    whole = streaming(seed, sampler=StrataSampler(update=update), average=average)
    for _ in range(3):
        clf.partial_fit(X, y, classes=[0, 1])
    whole.set_params(max_iter=3).fit(X, y)
    np.testing.assert_allclose(clf.coef_, whole.coef_, rtol=1e-9)
    np.testing.assert_allclose(clf.sampler_.tau_, whole.sampler_.tau_, rtol=1e-9)
    assert clf.history_["draws"][-1] == whole.history_["draws"][-1] == 3 * len(y)


@each_sampler
def test_the_random_stream_goes_on(sampler, imbalanced, seed):
    """A second call is not the first one again on another model."""
    X, y = imbalanced
    clf = streaming(seed, sampler=sampler).partial_fit(X, y, classes=[0, 1])
    again = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(
        clf.partial_fit(X, y).coef_, again.partial_fit(X, y).coef_
    )
    restarted = pickle.loads(pickle.dumps(clf))
    for k, generator in enumerate(restarted._generators):
        restarted._generators[k] = type(generator)(0)
    assert (restarted.partial_fit(X, y).coef_ != clf.partial_fit(X, y).coef_).any()


def test_what_the_sampler_has_learned_is_kept(seed, rng):
    sampler = StrataSampler(forgetting=0.01, mixing=0)
    clf = streaming(seed, sampler=sampler)
    clf.partial_fit(*chunk(rng, 50, 450, noise=0.3), classes=[0, 1])
    learned = clf.sampler_.second_moments_[0].copy()
    ratio = np.sqrt(learned[1] / learned[0])
    assert ratio > 1.2
    # One row of each class: the probabilities are those of the learned moments.
    clf.partial_fit(np.zeros((2, 3)), [0, 1])
    first = clf.sampling_history_["probability"][-2:]
    np.testing.assert_allclose(first[1] / first[0], ratio, rtol=0.05)


@each_sampler
def test_training_a_shallow_copy_leaves_the_original_alone(sampler, imbalanced, seed):
    X, y = imbalanced
    clf = streaming(seed, sampler=sampler).partial_fit(X, y, classes=[0, 1])
    before = pickle.dumps(clf)
    copy.copy(clf).partial_fit(X, y)
    assert pickle.dumps(clf) == before


def test_fit_after_partial_fit_starts_afresh(imbalanced, seed):
    X, y = imbalanced
    clf = streaming(seed, max_iter=2).partial_fit(X, y, classes=[0, 1]).fit(X, y)
    fresh = streaming(seed, max_iter=2).fit(X, y)
    np.testing.assert_array_equal(clf.coef_, fresh.coef_)
    np.testing.assert_array_equal(clf.history_["draws"], fresh.history_["draws"])


@each_sampler
def test_chunks_without_a_class(sampler, seed, rng):
    X, y = chunk(rng, 60, 60)
    clf = streaming(seed, sampler=sampler)
    clf.partial_fit(X[:60], y[:60], classes=[0, 1])
    assert np.isfinite(clf.coef_).all()
    clf.partial_fit(X[60:], y[60:])
    for _ in range(10):
        clf.partial_fit(X, y)
    assert np.isfinite(clf.coef_).all()
    assert clf.score(X, y) > 0.8
    assert np.isfinite(clf.history_["variance_gain"]).all()


@each_sampler
def test_a_class_that_is_absent_from_the_first_chunk_of_three(
    sampler, three_classes, seed
):
    X, y = three_classes
    clf = streaming(seed, sampler=sampler)
    known = y != "c"
    clf.partial_fit(X[known], y[known], classes=["a", "b", "c"])
    for _ in range(5):
        clf.partial_fit(X, y)
    assert clf.coef_.shape == (3, 4)
    scores = clf.decision_function(X)[:, 2]
    assert scores[y == "c"].mean() > scores[y != "c"].mean() + 0.2


def test_class_weights_with_a_class_that_is_absent(seed, rng):
    X, y = chunk(rng, 60, 60)
    clf = streaming(seed, class_weight={0: 1.0, 1: 3.0})
    clf.partial_fit(X[:60], y[:60], classes=[0, 1])
    for _ in range(5):
        clf.partial_fit(X, y)
    plain = streaming(seed)
    for _ in range(6):
        plain.partial_fit(X, y, classes=[0, 1])
    assert (clf.predict(X) == 1).sum() > (plain.predict(X) == 1).sum()


def test_single_rows(seed, rng):
    X, y = chunk(rng, 50, 150)
    clf = streaming(seed)
    for i in rng.permutation(len(y)):
        clf.partial_fit(X[i : i + 1], y[i : i + 1], classes=[0, 1])
    assert clf.t_ == 1 + len(y)
    assert clf.score(X, y) > 0.75


def test_new_strata_appear(seed, rng):
    X, y = chunk(rng, 60, 140)
    strata = rng.choice(["m", "z"], 200)
    clf = streaming(seed, sampler=StrataSampler(by="given", forgetting=0.01))
    clf.partial_fit(X, y, classes=[0, 1], strata=strata)
    known = clf.sampler_.second_moments_[0].copy()
    strata[::4] = "a"
    clf.partial_fit(X, y, strata=strata)
    np.testing.assert_array_equal(clf.sampler_.strata_, ["m", "z", "a"])
    assert clf.sampler_.probabilities_.shape == (1, 3)
    assert (clf.sampler_.probabilities_ > 0).all()
    assert (clf.sampler_.second_moments_[0, :2] != known).all()
    # Strata that are absent keep their place and are not drawn.
    clf.partial_fit(X, y, strata=np.full(200, "a"))
    np.testing.assert_allclose(clf.sampler_.probabilities_[0], [0, 0, 1])


@pytest.mark.parametrize("update", ["moments", "sgd", "adagrad"])
def test_a_drifting_class_balance_is_followed(update, seed, rng):
    """As one class becomes rare its probability falls, but less than its share."""
    sampler = StrataSampler(update=update, forgetting=0.01, eta0=0.02)
    if update == "adagrad":
        sampler.set_params(eta0=0.3)
    clf = streaming(seed, sampler=sampler)
    found = {}
    shares = [*[0.5] * 12, *np.linspace(0.5, 0.02, 12), *[0.02] * 25]
    for t, share in enumerate(shares):
        n_positive = int(200 * share)
        clf.partial_fit(*chunk(rng, n_positive, 200 - n_positive), classes=[0, 1])
        found[t] = clf.sampler_.probabilities_[0, 1]
    balanced = np.mean([found[t] for t in range(6, 12)])
    rare = np.mean([found[t] for t in range(len(shares) - 10, len(shares))])
    assert 0.35 < balanced < 0.65
    assert 1.5 * 0.02 < rare < balanced - 0.1


def test_a_drifting_difficulty_is_followed(seed, rng):
    """At a constant class balance the class that became harder is drawn more."""
    clf = streaming(seed, sampler=StrataSampler(forgetting=0.01))
    easy, hard = [], []
    for noise, found in ((0.0, easy), (0.4, hard)):
        for _ in range(30):
            clf.partial_fit(*chunk(rng, 40, 160, noise), classes=[0, 1])
            found.append(clf.sampler_.probabilities_[0, 1])
    assert np.mean(hard[-10:]) > np.mean(easy[-10:]) + 0.03


# By a part of the message.
FAILURES = {
    "NaN": (lambda X, y: (np.full_like(X, np.nan), y), {}),
    "2 features": (lambda X, y: (X[:, :2], y), {}),
    "y has labels": (lambda X, y: (X, y + 5), {}),
    "not the same": (lambda X, y: (X, y), {"classes": [0, 1, 2]}),
    "negative": (lambda X, y: (X, y), {"sample_weight": -np.ones(200)}),
    "overflow": (lambda X, y: (X * 1e120, y), {}),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_partial_fit_changes_nothing(failure, seed, rng):
    X, y = chunk(rng, 60, 140)
    clf = streaming(seed, loss="squared_error", learning_rate="constant", eta0=0.01)
    clf.partial_fit(X, y, classes=[0, 1])
    before, attributes = pickle.dumps(clf), dict(vars(clf))
    change, arguments = FAILURES[failure]
    with pytest.raises(ValueError, match=failure):
        clf.partial_fit(*change(X, y), **arguments)
    assert vars(clf).keys() == attributes.keys()
    assert all(vars(clf)[name] is value for name, value in attributes.items())
    assert pickle.dumps(clf) == before
    # And training goes on as if nothing had happened.
    other = pickle.loads(before)
    np.testing.assert_array_equal(
        clf.partial_fit(X, y).coef_, other.partial_fit(X, y).coef_
    )


def test_a_failed_first_partial_fit_leaves_an_unfitted_estimator(seed, rng):
    X, y = chunk(rng, 60, 140)
    clf = streaming(seed)
    attributes = dict(vars(clf))
    with pytest.raises(ValueError, match="NaN"):
        clf.partial_fit(np.full_like(X, np.nan), y, classes=[0, 1])
    assert vars(clf) == attributes
    clf.partial_fit(X, y, classes=[0, 1])


@pytest.mark.parametrize("by", ["sample_weight", "class_weight"])
@pytest.mark.parametrize("loss", ["log_loss", "multinomial"])
def test_weights_count_across_chunks(loss, by, seed, rng):
    """A chunk of heavy rows takes longer steps: relative to the mean weight so far."""
    n_classes = 3 if loss == "multinomial" else 2
    X, y = rng.standard_normal((6, 2)), np.array([0, 1, 1, 0, 1, 0])
    weights = np.where(y == 1, 4.0, 1.0)
    clf = AWSGDClassifier(
        loss,
        penalty=None,
        learning_rate="constant",
        eta0=0.1,
        sampler="uniform",
        class_weight=dict(enumerate([1, 4, 1][:n_classes]))
        if by == "class_weight"
        else None,
    )
    w, total = np.zeros((n_classes if n_classes > 2 else 1, 3)), 0.0
    for t, (x, label, weight) in enumerate(zip(X, y, weights, strict=True), start=1):
        clf.partial_fit(
            x[None],
            [label],
            classes=range(n_classes),
            sample_weight=[weight] if by == "sample_weight" else None,
        )
        total += weight
        scores = w @ [*x, 1]
        if n_classes == 2:
            error = 1 / (1 + np.exp(-scores)) - label
        else:
            error = np.exp(scores) / np.exp(scores).sum() - np.eye(3)[label]
        w -= 0.1 * (weight / (total / t)) * np.outer(error, [*x, 1])
        np.testing.assert_allclose(clf.coef_, w[:, :2], rtol=1e-12)


def test_the_objective_of_a_chunk_has_its_weights(seed, rng):
    X, y = chunk(rng, 30, 30)
    clf = streaming(seed, class_weight={0: 1, 1: 4}, sampler="uniform", eta0=1e-12)
    for label in (0, 1):
        clf.partial_fit(X[y == label], y[y == label], classes=[0, 1])
        expected = (1, 4)[label] * np.log(2)
        assert clf.history_["objective"][-1] == pytest.approx(expected, rel=1e-9)


def test_a_stream_after_fit_has_a_sampler_for_streams(imbalanced, seed):
    """Every row is used once: what is not drawn would be lost."""
    X, y = imbalanced
    clf = AWSGDClassifier(random_state=seed).fit(X, y)
    assert type(clf.sampler_).__name__ == "LevelSampler"
    clf.set_params(learning_rate="adagrad", count_draws=True).partial_fit(X, y)
    assert isinstance(clf.sampler_, UniformSampler)
    np.testing.assert_array_equal(clf.draw_counts_, 1)
    strata = np.arange(len(y)) % 3
    clf.partial_fit(X, y, strata=strata)
    assert clf.sampler_.by == "given"
    with pytest.raises(ValueError, match="strata"):
        clf.partial_fit(X, y)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"learning_rate": "constant"}, {"learning_rate": "adagrad"}),
        ({"learning_rate": "adagrad"}, {"learning_rate": "constant"}),
        ({"average": False}, {"average": True}),
        ({"eta0": 0.1}, {"eta0": 0.5}),
        ({"sampler": "uniform"}, {"sampler": StrataSampler()}),
    ],
)
def test_parameters_may_change_between_calls(before, after, imbalanced, seed):
    X, y = imbalanced
    clf = streaming(seed, **before).partial_fit(X, y, classes=[0, 1])
    same = copy.deepcopy(clf).partial_fit(X, y)
    clf.set_params(**after).partial_fit(X, y)
    assert np.isfinite(clf.coef_).all()
    assert not np.allclose(clf.coef_, same.coef_)
    if after.get("learning_rate") == "constant":
        clf.set_params(eta0=None).partial_fit(X, y)
        assert clf._eta0 == 0.01


def test_the_history_of_each_problem_goes_on(three_classes, seed):
    X, y = three_classes
    clf = AWSGDClassifier(random_state=seed).fit(X, y).partial_fit(X, y)
    history = clf.history_
    for k in range(3):
        own = history["problem"] == k
        assert (np.diff(history["draws"][own]) > 0).all()
        assert (np.diff(history["seconds"][own]) >= 0).all()


@pytest.mark.parametrize("sparsify", [False, True])
def test_steps_begin_where_a_stream_was(sparsify, imbalanced, seed):
    X, y = imbalanced
    clf = AWSGDClassifier(random_state=seed).partial_fit(X, y, classes=[0, 1])
    coef, intercept = clf.coef_.copy(), clf.intercept_.copy()
    other = copy.deepcopy(clf)
    if sparsify:
        clf.sparsify()
    clf.set_params(learning_rate="constant", eta0=1e-9, alpha=0.0).partial_fit(X, y)
    np.testing.assert_allclose(clf.coef_, coef, rtol=0, atol=1e-5)
    np.testing.assert_allclose(clf.intercept_, intercept, rtol=0, atol=1e-5)
    assert clf.t_ == 1 + 2 * len(y)
    assert list(np.unique(clf.history_["phase"])) == ["sampling", "stream"]
    assert (np.diff(clf.history_["draws"]) > 0).all()
    with pytest.raises(TypeError, match="merge"):
        other.merge(clf)


@pytest.mark.parametrize(("n_rows", "n_columns"), [(400, 5), (40, 30), (400, 300)])
def test_merged_streams_weigh_their_rows_alike(n_rows, n_columns, rng):
    """Whatever the weights that each of them has begun with."""
    X = rng.standard_normal((n_rows, n_columns))
    y = X[:, :3].sum(axis=1) + 0.3 * rng.standard_normal(n_rows)
    weight = np.where(np.arange(n_rows) < n_rows // 2, 1.0, 5.0)

    def stream(weight, *parts):
        regressors = [
            AWSGDRegressor(random_state=0).partial_fit(X[p], y[p], weight[p])
            for p in parts
        ]
        return regressors[0].merge(regressors[1]).coef_

    first, second = slice(0, n_rows // 2), slice(n_rows // 2, None)
    merged = stream(weight, first, second)
    np.testing.assert_allclose(merged, stream(weight, second, first), atol=1e-3)
    alike = stream(np.ones(n_rows), first, second)
    assert np.abs(merged - alike).max() > 1e-2


def test_rows_without_weight_are_not_there(rng):
    X = rng.standard_normal((200, 5))
    y = X.sum(axis=1) + rng.standard_normal(200)
    there = np.arange(200) % 3 > 0
    y[~there] = 100.0
    weight = there.astype(float)
    clf = AWSGDRegressor(random_state=0).partial_fit(X, y, sample_weight=weight)
    expected = AWSGDRegressor(random_state=0).partial_fit(X[there], y[there])
    np.testing.assert_allclose(clf.coef_, expected.coef_, rtol=1e-9)


@pytest.mark.parametrize(("of_X", "of_y"), [(1e60, 1.0), (1.0, 1e80)])
def test_products_that_overflow_are_refused(of_X, of_y, rng):
    X, y = rng.standard_normal((20, 3)), rng.standard_normal(20)
    with pytest.raises(ValueError, match=r"overflow.*StandardScaler"):
        AWSGDRegressor().partial_fit(of_X * X, of_y * y)


@pytest.mark.parametrize("loss", ["log_loss", "multinomial", "squared_error"])
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_curvature_that_training_knows_is_that_of_a_new_look(
    loss, penalty, monkeypatch
):
    """What a stream begins with, where the last pass has told the curvatures."""
    rng = np.random.default_rng(0)
    X = sparse.random(300, 3500, 0.02, format="csr", random_state=rng)
    tasks = []

    def keep(task):
        tasks.append(task)
        return seed_of(task)

    monkeypatch.setattr("sklearn_awsgd._linear.base.seed_of", keep)
    AWSGDClassifier(loss, penalty=penalty, alpha=1e-3, random_state=0).fit(
        X, rng.integers(0, 3, 300)
    )
    for task in tasks:
        assert task.row_curvatures is not None
        known = seed_of(task)[0]
        task.row_curvatures = None
        np.testing.assert_allclose(known, seed_of(task)[0], rtol=1e-9, atol=1e-12)
