"""Fits on partitions end where fits on all rows do, wherever the partitions are."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from joblib import Parallel, delayed
from scipy import sparse

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor
from sklearn_awsgd._partitions import columns, linear, rows, sums
from sklearn_awsgd.partitions import Partition, fit_partitions

# Its minimum is no model, but one that can be computed.
pytestmark = pytest.mark.filterwarnings("ignore:loss='perceptron':UserWarning")


def cut(X, y, sample_weight=None, bounds=(150, 150, 320)):
    """Return partitions of unequal size; between equal bounds there is an empty one."""
    edges = [0, *bounds, X.shape[0]]
    slices = [slice(*edges[k : k + 2]) for k in range(len(edges) - 1)]
    weights = [None if sample_weight is None else sample_weight[s] for s in slices]
    return [
        Partition(X[s], y[s], w, number)
        for number, (s, w) in enumerate(zip(slices, weights, strict=True))
    ]


def runner(partitions):
    return lambda function, *arguments: [function(p, *arguments) for p in partitions]


def objective(model):
    return model.history_["objective"][-1]


def assert_same_optimum(model, X, y, partitions, sample_weight=None, rtol=1e-6):
    """Fit both ways and compare; return what was fitted on partitions."""
    with warnings.catch_warnings():
        # Kinks may not be reached to the last digit; then both are as far.
        warnings.simplefilter("ignore")
        local = type(model)(**model.get_params()).fit(X, y, sample_weight=sample_weight)
        fit_partitions(model, runner(partitions))
    # The perceptron's minimum is zero.
    np.testing.assert_allclose(objective(model), objective(local), rtol, atol=1e-10)
    # Both are certified: neither may be below what the other bounds from below.
    for one, other in ((model, local), (local, model)):
        if one.duality_gap_.size == 1 and np.isfinite(one.duality_gap_[0]):
            lower = objective(one) - one.duality_gap_[0]
            assert objective(other) >= lower - 1e-9 * abs(lower)
    return model


@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet", None])
@pytest.mark.parametrize("loss", [*AWSGDClassifier._losses])
def test_every_loss_and_penalty_of_the_classifier(loss, penalty, imbalanced):
    # The perceptron's minimum is zero, at the model that is zero.
    X, y = imbalanced
    model = AWSGDClassifier(
        loss, penalty=penalty, alpha=0.01, tol=1e-7, random_state=0, max_iter=3000
    )
    assert_same_optimum(model, X, y, cut(X, y))


@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet", None])
@pytest.mark.parametrize("loss", [*AWSGDRegressor._losses])
def test_every_loss_and_penalty_of_the_regressor(loss, penalty, rng):
    X = rng.standard_normal((400, 4))
    y = 100 + X @ rng.standard_normal(4) + rng.standard_t(3, size=400)
    model = AWSGDRegressor(
        loss, penalty=penalty, alpha=0.01, tol=1e-7, random_state=0, max_iter=3000
    )
    assert_same_optimum(model, X, y, cut(X, y))


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_more_rows_than_are_drawn(layout, dtype, rng, monkeypatch):
    """Then the sample is a part of the rows, and so is the curvature."""
    monkeypatch.setattr(linear, "FEWEST_DRAWN", 500)
    monkeypatch.setattr(linear, "DRAWN_PER_PARAMETER", 1)
    X = rng.standard_normal((9000, 30)) * (rng.random((9000, 30)) < 0.3)
    score = X @ rng.standard_normal(30) + rng.logistic(size=9000)
    X, y = layout(X.astype(dtype)), score > np.quantile(score, 0.97)
    partitions = cut(X, y, bounds=(1000, 1000, 6000))
    # The largest data of these tests: a tolerance that steps of sampled curvature meet.
    model = AWSGDClassifier(tol=1e-6, alpha=1e-3, random_state=0)
    assert_same_optimum(model, X, y, partitions, rtol=2e-6)
    assert model.coef_.dtype == dtype
    drawn = model.history_["phase"] == "sampling"
    assert 0 < model.history_["draws"][drawn].max() <= 9000
    assert model.sampler_.probabilities_.shape[0] == 1


def test_wide_data(rng):
    """The curvature is a diagonal, and dual steps are taken on the sample alone."""
    X = sparse.random_array((500, 3200), density=0.01, rng=rng, format="csr")
    y = X @ rng.standard_normal(3200) > 0
    model = AWSGDClassifier(alpha=1e-2, tol=1e-7, random_state=0)
    assert_same_optimum(model, X, y, cut(X, y))


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1, 1: 7}])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights(class_weight, weighted, imbalanced, rng):
    X, y = imbalanced
    weight = rng.integers(0, 4, size=len(y)) * 1e200 if weighted else None
    model = AWSGDClassifier(
        class_weight=class_weight, alpha=0.01, tol=1e-8, random_state=0
    )
    assert_same_optimum(model, X, y, cut(X, y, weight), weight)


def test_a_partition_without_weight_is_absent(imbalanced):
    X, y = imbalanced
    weight = np.ones(len(y))
    weight[:150] = 0
    model = AWSGDClassifier(alpha=0.01, tol=1e-8, random_state=0)
    assert_same_optimum(model, X, y, cut(X, y, weight), weight)
    fit_partitions(model, runner(cut(X[150:], y[150:], bounds=(170,))))
    assert_same_optimum(model, X, y, cut(X, y, weight), weight)


@pytest.mark.parametrize("kind", ["classes", "labels"])
def test_several_problems(kind, three_classes):
    X, y = three_classes
    if kind == "labels":
        y = (y[:, None] == np.array(["a", "b", "c", "absent"])).astype(int)
    partitions = cut(X, y, bounds=(100, 100, 220))
    model = AWSGDClassifier(alpha=0.01, tol=1e-9, random_state=0)
    local = AWSGDClassifier(alpha=0.01, tol=1e-9, random_state=0).fit(X, y)
    fit_partitions(model, runner(partitions))
    np.testing.assert_array_equal(model.classes_, local.classes_)
    np.testing.assert_allclose(model.coef_[:3], local.coef_[:3], atol=1e-7)
    np.testing.assert_array_equal(model.predict(X), local.predict(X))


@pytest.mark.parametrize("n_features", [2, 150])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_softmax(n_features, class_weight, three_classes, rng):
    """With the curvature of all classes, and with conjugate gradients on a sample."""
    X, y = three_classes
    X = np.column_stack([X, rng.standard_normal((len(y), n_features))])
    settings = {"alpha": 0.01, "tol": 1e-8, "random_state": 0}
    model = AWSGDClassifier("multinomial", class_weight=class_weight, **settings)
    assert_same_optimum(model, X, y, cut(X, y, bounds=(100, 100, 220)))
    assert 0 <= model.duality_gap_[0] < 1e-3 * objective(model)
    # At the optimum, where the penalty is least.
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0, atol=1e-4)


def test_softmax_of_wide_rows_and_of_few_that_travel(rng, monkeypatch):
    X = sparse.random_array((600, 3100), density=0.01, rng=rng, format="csr")
    y = np.argmax(X @ rng.standard_normal((3100, 3)), axis=1)
    model = AWSGDClassifier("multinomial", alpha=0.01, tol=1e-6, random_state=0)
    assert_same_optimum(model, X, y, cut(X, y))
    monkeypatch.setattr(sums, "MOST_NUMBERS", 5000)
    X = rng.standard_normal((2000, 8))
    y = np.argmax(X[:, :4] + rng.gumbel(size=(2000, 4)), axis=1)
    model = AWSGDClassifier("multinomial", alpha=0.01, tol=1e-8, random_state=0)
    assert_same_optimum(model, X, y, cut(X, y))


WIDE_L1 = [("log_loss", "l1"), ("squared_hinge", "elasticnet"), ("hinge", "l1")]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("loss", "penalty"), WIDE_L1)
def test_wide_data_with_an_l1_penalty(loss, penalty, weighted, rng):
    """The columns of a working set travel, and are minimised over in one place."""
    X = sparse.random_array((400, 3200), density=0.02, rng=rng, format="csr")
    y = X @ rng.standard_normal(3200) > 0
    weight = rng.integers(0, 4, size=400).astype(float) if weighted else None
    tol = 1e-3 if loss == "hinge" else 1e-7
    model = AWSGDClassifier(loss, penalty=penalty, alpha=4e-3, tol=tol, random_state=0)
    assert_same_optimum(model, X, y, cut(X, y, weight), weight, rtol=max(tol, 1e-6))
    # Kinks that are rounded over the last width count, too.
    assert model.duality_gap_[0] <= 2 * tol * objective(model)
    assert 0 < np.count_nonzero(model.coef_) < 1500


@pytest.mark.parametrize(("loss", "penalty"), WIDE_L1)
def test_columns_that_do_not_travel(loss, penalty, rng, monkeypatch):
    """A model on a working set is one of narrow rows in partitions."""
    X = sparse.random_array((3000, 3200), density=0.005, rng=rng, format="csr")
    X = sparse.hstack([rng.standard_normal((3000, 5)), X]).tocsr()
    y = X[:, :5].sum(axis=1) + rng.logistic(size=3000) > 0
    tol = 1e-3 if loss == "hinge" else 1e-7
    model = AWSGDClassifier(loss, penalty=penalty, alpha=0.01, tol=tol, random_state=0)
    monkeypatch.setattr(sums, "MOST_NUMBERS", 100)
    assert_same_optimum(model, X, y, cut(X, y), rtol=max(tol, 1e-6))
    # Kinks that are rounded over the last width count, too.
    assert model.duality_gap_[0] <= 2 * tol * objective(model)
    assert (model.coef_[0, 5:] == 0).mean() > 0.8


def test_few_columns_that_do_not_travel(rng, monkeypatch):
    X = rng.standard_normal((300, 700))
    y = X[:, :5].sum(axis=1) + rng.standard_normal(300)
    monkeypatch.setattr(sums, "MOST_NUMBERS", 100)
    monkeypatch.setattr(columns.PartitionedColumnModel, "most_columns", 40)
    partitions = cut(X, y, bounds=(100, 100, 220))
    model = AWSGDRegressor(penalty="l1", alpha=0.2, tol=1e-7, random_state=0)
    assert_same_optimum(model, X, y, partitions)
    assert np.count_nonzero(model.coef_) <= 40
    model.set_params(alpha=1e-3)
    with pytest.raises(ValueError, match=r"at most 40 .* alpha=0.001; use a larger"):
        fit_partitions(model, runner(partitions))
    assert np.count_nonzero(model.coef_) <= 40  # as it was


@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
@pytest.mark.parametrize("n_features", [6, 3100])
def test_softmax_with_an_l1_penalty(n_features, penalty, rng, monkeypatch):
    """With the columns of all rows, or of a few that travel."""
    X = rng.standard_normal((600, 6))
    y = np.argmax(X[:, :3] + rng.gumbel(size=(600, 3)), axis=1)
    if n_features > 6:
        noise = sparse.random_array((600, n_features - 6), density=0.01, rng=rng)
        X = sparse.hstack([X, noise]).tocsr()
    model = AWSGDClassifier(
        "multinomial", penalty=penalty, alpha=0.02, tol=1e-7, random_state=0
    )
    assert_same_optimum(model, X, y, cut(X, y))
    assert (model.coef_ == 0).any()
    if n_features > 6:
        monkeypatch.setattr(sums, "MOST_NUMBERS", 10_000)
        assert_same_optimum(model, X, y, cut(X, y))


def test_partitions_of_one_class_each(imbalanced):
    X, y = imbalanced
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    partitions = cut(X, y, bounds=(100, (y == 0).sum()))
    assert {len(np.unique(p.y)) for p in partitions} == {1}
    model = AWSGDClassifier(alpha=0.01, tol=1e-8, random_state=0)
    assert_same_optimum(model, X, y, partitions)


def test_the_number_of_partitions_does_not_matter(imbalanced):
    X, y = imbalanced
    models = [
        fit_partitions(
            AWSGDClassifier(alpha=0.01, tol=1e-8, random_state=0),
            runner(cut(X, y, bounds=bounds)),
        )
        for bounds in [(), (200,), tuple(range(20, 400, 20))]
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model.coef_, models[0].coef_, rtol=1e-6)


def test_constant_targets(rng):
    X = rng.standard_normal((60, 2))
    model = AWSGDRegressor(random_state=0)
    fit_partitions(model, runner(cut(X, np.full(60, 7.0), bounds=(20, 50))))
    np.testing.assert_allclose(model.predict(X), 7.0)


def test_warm_start_and_given_coefficients(imbalanced):
    X, y = imbalanced
    run = runner(cut(X, y))
    model = AWSGDClassifier(alpha=0.01, tol=1e-8, random_state=0, warm_start=True)
    first = fit_partitions(model, run).n_iter_
    assert fit_partitions(model, run).n_iter_ < first
    other = AWSGDClassifier(alpha=0.01, tol=1e-8, random_state=0)
    fit_partitions(other, run, model.coef_, model.intercept_)
    assert other.n_iter_ < first


def test_a_stream_goes_on_from_partitions(imbalanced):
    X, y = imbalanced
    model = fit_partitions(AWSGDClassifier(random_state=0), runner(cut(X, y)))
    before = model.coef_.copy()
    model.partial_fit(X[:5], y[:5])
    # Five rows known already, after 400, change little.
    np.testing.assert_allclose(model.coef_, before, atol=0.1)


# The functions that are called on partitions.


def make_problem(partitions, estimator):
    facts = linear.merge_facts([p.describe(True) for p in partitions])
    classes = linear.learn_classes(estimator, facts)
    return linear.make_problems(estimator, facts, classes)[0], facts


def test_sums_are_those_of_all_rows(imbalanced, rng):
    X, y = imbalanced
    weight = rng.random(len(y))
    estimator = AWSGDClassifier(class_weight={0: 1, 1: 3})
    pieces = cut(X, y, weight)
    whole = cut(X, y, weight, bounds=())
    (problem,), facts = make_problem(pieces, estimator)
    v = rng.standard_normal(6)
    drawn, _ = whole[0].sums(problem, 0.0)
    some, all_ = (
        sums.PartitionedSums(runner(partitions), problem, facts, 0.0, drawn)
        for partitions in (pieces, whole)
    )
    for a, b in zip(some.evaluate(v), all_.evaluate(v), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    for floor in (0.0, 0.5):
        a, b = (s.hessian(v, floor, 400, rng)[0] for s in (some, all_))
        np.testing.assert_allclose(np.triu(a), np.triu(b), rtol=1e-11)
        # Brought along with an evaluation, as it was expected, or else asked for.
        for n_rows, of_rows in ((400, 400), (100, 400)):
            some.expect_hessian(floor, n_rows, rng)
            gradients, _, here = some.evaluate(v)
            np.testing.assert_allclose(gradients, all_.evaluate(v)[0], rtol=1e-12)
            again = some.hessian(here, floor, of_rows, rng)[0]
            np.testing.assert_allclose(np.triu(again), np.triu(b), rtol=1e-11)
        a, b = (s.hessian_diagonal(v, floor) for s in (some, all_))
        # The mean curvature that is added is that of a partition.
        np.testing.assert_allclose(a, b, rtol=0.1)


def breakpoints(size, n_draws):
    """Return the starts between which a systematic sample stays the same."""
    sums = np.cumsum(size) * (n_draws / size.sum())
    return np.unique(np.concatenate([[0.0], -sums % 1.0, [1.0]]))


def test_sampled_hessians_are_unbiased_by_enumeration(imbalanced, rng):
    X, y = imbalanced
    (problem,), _ = make_problem(cut(X, y), AWSGDClassifier())
    partition, v = Partition(X[:60], y[:60]), rng.standard_normal(6)
    arguments = (problem, 0.0, v, 0.0)
    full, _ = rows.hessian(partition, *arguments, None, None, 0.0)
    own, share = partition.sums(problem, 0.0)
    size = own.sizes(partition.curvatures(problem, 0.0, v), 0.0)
    mass = share * size.sum()
    # The other partitions have as much again: half of the 24 rows are drawn here.
    edges, mean = breakpoints(size, 12), 0.0
    for low, high in itertools.pairwise(edges):
        start = (low + high) / 2
        sampled, _ = rows.hessian(partition, *arguments, 24, 2 * mass, start)
        mean = mean + (high - low) * np.triu(sampled)
    np.testing.assert_allclose(mean, np.triu(full), rtol=1e-9, atol=1e-15)


def test_drawn_rows_are_unbiased_by_enumeration(three_classes):
    X, y = three_classes
    partitions = cut(X, y, bounds=(100,))
    problems, _ = make_problem(partitions, AWSGDClassifier(class_weight="balanced"))
    means = rows.add_up(rows.first_masses(p, problems) for p in partitions)
    task, share = partitions[0].task(problems[0])
    masses = share * task.data.mass
    norms = np.array([*rows._first_norms(partitions[0], problems)])
    bounds = np.sqrt((partitions[0].X ** 2).sum(axis=1) + 1)
    size = masses * (bounds / means[0] + (norms / means[1][:, None]).mean(axis=0)) / 2
    np.testing.assert_allclose(
        masses * rows.first_sizes(partitions[0], problems, means), size
    )
    n_draws = int(np.ceil(40 * size.sum()))
    place = {row.tobytes(): i for i, row in enumerate(partitions[0].X)}
    edges, mean = breakpoints(size, n_draws), np.zeros(100)
    for low, high in itertools.pairwise(edges):
        start = (low + high) / 2
        drawn, _, _, counts = rows.draw_rows(partitions[0], problems, means, 40, start)
        assert abs(len(drawn) - n_draws) <= 1
        for row, count in zip(drawn, counts, strict=True):
            mean[place[row.tobytes()]] += (high - low) * count
    np.testing.assert_allclose(mean, masses, rtol=1e-9)


def test_partitions_can_be_made_anew(imbalanced, rng):
    """What a partition remembers changes no result, and does not travel."""
    X, y = imbalanced
    partition = Partition(X, y)
    problems, _ = make_problem([partition], AWSGDClassifier())
    v, w = rng.standard_normal((2, 6))
    arguments = (problems[0], 0.0, v, 0.0, 50, 1.0, 0.3)
    first = rows.hessian(Partition(X, y), *arguments)
    rows.evaluate(partition, problems[0], 0.0, v)
    np.testing.assert_array_equal(rows.hessian(partition, *arguments)[0], first[0])
    rows.evaluate(partition, problems[0], 0.0, w)
    np.testing.assert_array_equal(rows.hessian(partition, *arguments)[0], first[0])
    again = pickle.loads(pickle.dumps(partition))
    assert again._last_task is None
    assert again._last_curvatures is None
    np.testing.assert_array_equal(rows.hessian(again, *arguments)[0], first[0])


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_the_backends_of_joblib(backend, imbalanced):
    X, y = imbalanced
    partitions = cut(X, y)
    with Parallel(n_jobs=2, backend=backend) as parallel:

        def run(function, *arguments):
            return parallel(delayed(function)(p, *arguments) for p in partitions)

        model = fit_partitions(AWSGDClassifier(random_state=0), run)
    plain = fit_partitions(AWSGDClassifier(random_state=0), runner(partitions))
    np.testing.assert_array_equal(model.coef_, plain.coef_)


# What is refused.


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"X": np.nan}, "Partition 1: Input X contains NaN"),
        ({"y": np.nan}, "Partition 1: Input y contains NaN"),
        ({"sample_weight": -1.0}, "Partition 1: sample_weight has a negative value"),
        ({"sample_weight": np.inf}, "Partition 1: Input sample_weight contains inf"),
    ],
)
def test_errors_name_the_partition(wrong, text, imbalanced):
    X, y = imbalanced
    parts = {"X": X, "y": y.astype(float), "sample_weight": np.ones(len(y))}
    for name, value in wrong.items():
        parts[name] = parts[name].copy()
        parts[name][7] = value
    with pytest.raises(ValueError, match=text):
        Partition(**parts, number=1)
    with pytest.raises(ValueError, match="Partition 3: Found input variables with"):
        Partition(X, y[1:], number=3)


def test_errors_of_all_partitions(imbalanced):
    X, y = imbalanced
    model = AWSGDClassifier()
    for partitions, text in [
        ([Partition(X[:0], y[:0])], "Found array with 0 sample"),
        (cut(X, np.zeros(400)), "number of classes with positive weight"),
        (cut(X, X[:, 0]), "Partition 0: Unknown label type: continuous"),
        (cut(X, y, np.zeros(400)), "sample_weight is zero for every sample"),
        (
            [*cut(X, y), Partition(X[:, :3], y, number=4)],
            "Partition 4 has n_features=3",
        ),
        (
            [*cut(X, y), Partition(sparse.csr_array(X), y, number=4)],
            "Partition 4 has is_sparse=True",
        ),
    ]:
        with pytest.raises(ValueError, match=text):
            fit_partitions(model, runner(partitions))
        assert not hasattr(model, "coef_")
        assert not hasattr(model, "classes_")


@pytest.mark.parametrize(
    "setting",
    [
        {"early_stopping": True},
        {"average": True},
        {"average": 10},
        {"count_draws": True},
        {"shuffle": False},
        {"learning_rate": "adagrad"},
    ],
)
def test_settings_that_need_all_rows_in_one_place(setting, imbalanced):
    ((name, value),) = setting.items()
    with pytest.raises(ValueError, match=f"{name}={value!r} needs all rows"):
        fit_partitions(AWSGDClassifier(**setting), runner(cut(*imbalanced)))
