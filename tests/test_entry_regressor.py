"""Entries named by ids: matrices, recommendations, model selection."""

import pickle
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.utils import estimator_checks, get_tags

from sklearn_awsgd import (
    AWSGDMatrixFactorization,
    EntryRegressor,
    MatrixIds,
    matrix_from_entries,
)
from sklearn_awsgd.model_selection import EntryKFold

FRAMES = ["pandas", "polars"]


def ratings(n_users=60, n_items=30, n_each=12, seed=0):
    """Return user, item and stars of entries, ids with gaps and texts."""
    rng = np.random.default_rng(seed)
    truth = 3 + rng.normal(size=(n_users, 2)) @ rng.normal(size=(2, n_items))
    truth += rng.normal(scale=0.5, size=n_items)
    users = np.repeat(np.arange(n_users), n_each)
    items = np.concatenate(
        [rng.choice(n_items, n_each, replace=False) for _ in range(n_users)]
    )
    stars = truth[users, items] + rng.normal(scale=0.3, size=len(users))
    order = rng.permutation(len(users))
    names = np.array([f"item {7 * j}" for j in range(n_items)], dtype=object)
    return 10 * users[order] + 1000, names[items[order]], stars[order]


def frame_of(library, **columns):
    return pytest.importorskip(library).DataFrame(columns)


def regressor(**params):
    settings = {"alpha": 0.1, "fit_bias": True, "random_state": 0} | params
    return EntryRegressor(AWSGDMatrixFactorization(3, **settings))


@pytest.mark.parametrize("library", FRAMES)
def test_matrix_of_a_frame_maps_ids_back(library):
    users, items, stars = ratings()
    frame = frame_of(library, user=users, item=items, stars=stars)
    X, ids = matrix_from_entries(frame, return_ids=True)
    assert isinstance(ids, MatrixIds)
    assert X.shape == (60, 30)
    np.testing.assert_array_equal(ids.rows, np.unique(users))
    i, j = ids.row_index(users), ids.column_index(items)
    np.testing.assert_array_equal(X[i, j], stars)
    np.testing.assert_array_equal(ids.column_ids(j), items)
    np.testing.assert_array_equal(ids.row_ids(i), users)
    series = [frame[name] for name in ("user", "item", "stars")]
    same, _ = matrix_from_entries(*series, return_ids=True)
    np.testing.assert_array_equal(same.toarray(), X.toarray())


def test_ids_that_are_not_known():
    _, ids = matrix_from_entries([5, 9], ["a", "b"], [1.0, 2.0], return_ids=True)
    np.testing.assert_array_equal(ids.row_index([[9.0, 6]]), [[1, -1]])
    np.testing.assert_array_equal(ids.column_index([5, "a"]), [-1, 0])
    assert list(ids.column_ids([1, -1])) == ["b", None]


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((["a", 1], [0, 1], [1, 2]), TypeError, "cannot be sorted"),
        ((["a", None], [0, 1], [1, 2]), ValueError, "missing ids"),
        (([np.nan, 1.0], [0, 1], [1, 2]), ValueError, "missing ids"),
        ((["a", "a"], ["b", "b"], [1, 2]), ValueError, "more than once"),
        ((["a", "b"], ["b"], [1, 2]), ValueError, "columns has shape"),
        ((["a", "b"],), TypeError, "data frame"),
        ((["a", "b"], ["b", "c"]), TypeError, "rows, columns and values"),
    ],
)
def test_bad_ids_name_the_remedy(arguments, error, match):
    with pytest.raises(error, match=match):
        matrix_from_entries(*arguments, return_ids=True)


def test_bad_frames_and_shapes_name_the_remedy():
    frame = frame_of("pandas", user=[1], item=[2], stars=[3.0], time=[4])
    with pytest.raises(ValueError, match="choose three"):
        matrix_from_entries(frame, return_ids=True)
    with pytest.raises(ValueError, match="no meaning for ids"):
        matrix_from_entries([1], [2], [3.0], shape=(4, 4), return_ids=True)
    with pytest.raises(ValueError, match="return_ids=True"):
        matrix_from_entries(["a"], [2], [3.0])


def test_entries_that_are_not_known_get_biases():
    users, items, stars = ratings()
    X, _ = matrix_from_entries(users, items, stars, return_ids=True)
    model = AWSGDMatrixFactorization(
        3, alpha=0.1, fit_bias=True, unstored="missing", random_state=0
    ).fit(X)
    mean, bias = model.global_bias_, model.column_bias_
    row_bias = model.transform(X[[4]])[0, -1] * model.components_[-1, 0]
    values = model.predict_entries(X, [-1, 60, 4, 99], [5, 6, 30, -1])
    np.testing.assert_allclose(
        values, [mean + bias[5], mean + bias[6], mean + row_bias, mean]
    )
    with pytest.raises(IndexError, match="at least -1"):
        model.predict_entries(X, [-2], [0])


def test_columns_without_entries_are_not_known_either():
    X = matrix_from_entries([0, 1, 1], [0, 0, 2], [4.0, 2.0, 5.0], shape=(2, 4))
    model = AWSGDMatrixFactorization(
        3, alpha=0.1, fit_bias=True, unstored="missing", random_state=0
    ).fit(X)
    inside, outside = (model.predict_entries(X, [0, 1], [j, j]) for j in (3, 4))
    np.testing.assert_allclose(inside, outside)


def test_recommend_scores_rows_and_ids():
    users, items, stars = ratings()
    X, ids = matrix_from_entries(users, items, stars, return_ids=True)
    model = AWSGDMatrixFactorization(
        3, alpha=0.1, fit_bias=True, unstored="missing", random_state=0
    ).fit(X)
    best, scores = model.recommend(X, k=4, return_scores=True)
    for k in range(4):
        np.testing.assert_allclose(
            scores[:, k], model.predict_entries(X, np.arange(60), best[:, k])
        )
    some = model.recommend(X, k=4, rows=[7, 3])
    np.testing.assert_array_equal(some, best[[7, 3]])
    named = model.recommend(X, k=4, rows=[1070, 1030], ids=ids)
    np.testing.assert_array_equal(named, ids.columns[some])
    popular = np.argsort(-model.column_bias_, kind="stable")[:4]
    best, scores = model.recommend(X, k=4, rows=[-1], return_scores=True)
    np.testing.assert_array_equal(best, [popular])
    np.testing.assert_allclose(
        scores, [model.global_bias_ + model.column_bias_[popular]]
    )
    full, scores = model.recommend(X, k=25, rows=[3], return_scores=True)
    assert (full[0, 18:] == -1).all()
    assert np.isnan(scores[0, 18:]).all()
    assert model.recommend(X, k=25, rows=[1030], ids=ids)[0, -1] is None
    with pytest.raises(TypeError, match="give ids="):
        model.recommend(X, rows=["ann"])
    with pytest.raises(IndexError, match="from 0 to 59"):
        model.recommend(X, rows=[60])
    with pytest.raises(ValueError, match="came with X"):
        model.recommend(X[:5], rows=[1000], ids=ids)


@pytest.mark.parametrize("library", FRAMES)
def test_predict_honours_set_output(library):
    pytest.importorskip(library)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 6))
    names = [f"sensor {j}" for j in range(6)]
    X = frame_of("pandas", **dict(zip(names, values.T, strict=True)))
    X.index = [f"day {i}" for i in range(20)]
    model = AWSGDMatrixFactorization(2, random_state=0).fit(X)
    plain = model.predict(X)
    assert isinstance(plain, np.ndarray)
    # A clone, as in a grid search, remembers.
    asked = clone(model.set_output(transform=library)).fit(X)
    frame = asked.predict(X)
    assert type(frame).__module__.partition(".")[0] == library
    assert list(frame.columns) == names
    np.testing.assert_allclose(frame.to_numpy(), plain)
    assert list(asked.fit(values).predict(values).columns)[:2] == ["x0", "x1"]
    if library == "pandas":
        assert list(frame.index) == list(X.index)


@pytest.mark.parametrize("library", [None, *FRAMES])
def test_regressor_predicts_as_its_model(library):
    users, items, stars = ratings()
    if library is None:
        pairs = [[int(user), item] for user, item in zip(users, items, strict=True)]
    else:
        pairs = frame_of(library, user=users, item=items)
    model = regressor().fit(pairs, stars)
    assert model.n_features_in_ == 2
    i, j = model.ids_.row_index(users), model.ids_.column_index(items)
    np.testing.assert_allclose(
        model.predict(pairs), model.estimator_.predict_entries(model.matrix_, i, j)
    )
    assert model.score(pairs, stars) > 0.7
    inner = model.estimator_
    new = [[-1, "item 7"], [1000, "new"], [-1, "new"]]
    if library is not None:
        new = frame_of(
            library, user=[pair[0] for pair in new], item=[pair[1] for pair in new]
        )
    row = model.row_factors_[0, -1] * inner.components_[-1, 0]
    column = inner.column_bias_[model.ids_.column_index("item 7")]
    np.testing.assert_allclose(
        model.predict(new), inner.global_bias_ + np.array([column, row, 0.0])
    )
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(pairs), model.predict(pairs))
    np.testing.assert_array_equal(
        model.recommend([1030, 5], k=3)[0],
        inner.recommend(model.matrix_, 3, rows=[1030], ids=model.ids_)[0],
    )


def test_regressor_takes_weights():
    users, items, stars = ratings()
    pairs = np.column_stack([users.astype(object), items])
    weights = np.random.default_rng(1).random(len(stars))
    model = regressor().fit(pairs, stars, sample_weight=weights)
    heavy, ids = matrix_from_entries(users, items, weights, return_ids=True)
    inner = clone(model.estimator_).fit(model.matrix_, entry_weight=heavy)
    np.testing.assert_allclose(model.estimator_.components_, inner.components_)
    np.testing.assert_array_equal(model.ids_.columns, ids.columns)


def test_regressor_names_the_remedy():
    users, items, stars = ratings()
    pairs = np.column_stack([users.astype(object), items])
    with pytest.raises(ValueError, match="give two columns"):
        regressor().fit(np.ones((3, 4)), [1, 2, 3])
    with pytest.raises(TypeError, match="AWSGDMatrixFactorization"):
        EntryRegressor("svd").fit(pairs, stars)
    model = regressor().fit(pairs, stars)
    before = model.predict(pairs)
    with pytest.raises(ValueError, match="more than once"):
        model.fit(np.vstack([pairs, pairs]), np.append(stars, stars))
    np.testing.assert_array_equal(model.predict(pairs), before)


@pytest.mark.parametrize(
    "check",
    [
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_get_params_invariance",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_set_params",
    ],
)
def test_regressor_passes_the_checks_that_need_no_numbers(check):
    # The others train on arrays of numbers with any number of columns.
    getattr(estimator_checks, check)("EntryRegressor", EntryRegressor())


def test_tags_say_what_the_regressor_takes():
    tags = get_tags(EntryRegressor())
    assert tags.estimator_type == "regressor"
    assert tags.input_tags.string
    assert not tags.input_tags.two_d_array


@pytest.mark.parametrize("library", [None, *FRAMES])
def test_folds_share_every_row(library):
    users, items, _ = ratings(n_each=13)
    X = np.column_stack([users.astype(object), items])
    if library is not None:
        X = frame_of(library, user=users, item=items)
    splitter = EntryKFold(4, random_state=0)
    assert splitter.get_n_splits() == 4
    held_out = []
    for train, test in splitter.split(X):
        assert not set(train) & set(test)
        assert len(train) + len(test) == len(users)
        assert set(Counter(users[test]).values()) <= {3, 4}
        held_out.extend(test)
    assert sorted(held_out) == list(range(len(users)))
    first, second = (next(splitter.split(X))[1] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = next(EntryKFold(4, random_state=1).split(X))[1]
    assert not np.array_equal(first, other)
    assert repr(splitter) == "EntryKFold(n_splits=4, random_state=0)"


def test_bad_folds_name_the_remedy():
    with pytest.raises(ValueError, match="n_splits=1"):
        EntryKFold(1)
    with pytest.raises(ValueError, match="number of entries"):
        next(EntryKFold(3).split([["a", "b"], ["a", "c"]]))
    with pytest.raises(ValueError, match="two columns"):
        next(EntryKFold(2).split(["a", "b", "c"]))


def test_scikit_learn_holds_out_entries():
    users, items, stars = ratings()
    pairs = frame_of("pandas", user=users, item=items)
    cv = EntryKFold(4, random_state=0)
    scores = cross_val_score(regressor(), pairs, stars, cv=cv)
    predicted = cross_val_predict(regressor(), pairs, stars, cv=cv)
    errors = [
        1 - ((stars - predicted)[test] ** 2).mean() / stars[test].var()
        for _, test in cv.split(pairs)
    ]
    np.testing.assert_allclose(scores, errors)
    alphas = [0.03, 0.3, 10.0]
    search = GridSearchCV(
        regressor(),
        {"estimator__alpha": alphas},
        cv=cv,
        scoring="neg_root_mean_squared_error",
    ).fit(pairs, stars)
    matrix, ids = matrix_from_entries(users, items, stars, return_ids=True)
    place = ids.row_index(users), ids.column_index(items)
    errors = []
    for alpha, (train, test) in product(alphas, cv.split(pairs)):
        shown = np.full(matrix.shape, np.nan)
        shown[place[0][train], place[1][train]] = stars[train]
        model = regressor(alpha=alpha).estimator.fit(shown)
        predicted = model.predict(shown)[place[0][test], place[1][test]]
        errors.append(np.sqrt(((predicted - stars[test]) ** 2).mean()))
    errors = np.reshape(errors, (3, 4)).mean(axis=1)
    np.testing.assert_allclose(-search.cv_results_["mean_test_score"], errors)
    assert search.best_params_ == {"estimator__alpha": alphas[errors.argmin()]}
    assert search.best_estimator_.recommend([1000], k=2).shape == (1, 2)


def test_callbacks_see_the_fit_of_the_matrix():
    callback = pytest.importorskip("sklearn.callback")
    users, items, stars = ratings()
    pairs = np.column_stack([users.astype(object), items])
    seen = []

    class Watch(callback.AutoPropagatedCallback):
        max_propagation_depth = None

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            pass

        def on_fit_task_begin(self, estimator, context):
            seen.append((context.estimator_name, context.task_name))

        def on_fit_task_end(self, estimator, context):
            return False

    regressor().set_callbacks(Watch()).fit(pairs, stars)
    assert {name for name, _ in seen} == {"EntryRegressor", "AWSGDMatrixFactorization"}
    assert len(seen) > 5


def test_sparse_matrices_are_entries_too():
    users, items, stars = ratings()
    X, _ = matrix_from_entries(users, items, stars, return_ids=True)
    entries = sparse.coo_array(X)
    pairs = np.column_stack([entries.row, entries.col])
    scores = cross_val_score(
        regressor(), pairs, entries.data, cv=EntryKFold(3, random_state=0)
    )
    assert scores.mean() > 0.5
