"""AWSGDMatrixFactorization: what users meet."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from sklearn_awsgd import AWSGDMatrixFactorization, matrix_from_entries
from sklearn_awsgd._factorization.entries import check_entries
from sklearn_awsgd._factorization.row_solver import evaluate_loss, solve_rows
from sklearn_awsgd.samplers import RowColumnSampler, StrataSampler, UniformSampler

LOSSES = ("squared_error", "huber", "log_loss", "poisson")


def low_rank(n=40, m=25, rank=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, rank)) @ rng.normal(size=(rank, m))


def with_holes(X, share=0.3, seed=1):
    holes = np.random.default_rng(seed).random(X.shape) < share
    return np.where(holes, np.nan, X), holes


def data_for(loss, seed=0, n=30, m=20):
    X = low_rank(n, m, seed=seed)
    if loss == "log_loss":
        return (X > 0).astype(float)
    if loss == "poisson":
        return np.random.default_rng(seed).poisson(np.exp(X.clip(-2, 2))).astype(float)
    return X


def model(n_components=3, **params):
    params = {"random_state": 0, "tol": None, "max_iter": 20} | params
    return AWSGDMatrixFactorization(n_components, **params)


def test_recovers_a_low_rank_matrix():
    X = low_rank()
    fitted = model(max_iter=60, alpha=0).fit(X)
    assert np.abs(fitted.predict(X) - X).max() < 0.02 * np.abs(X).max()
    assert fitted.score(X) > 0.999
    assert fitted.reconstruction_err_ < 1e-3


@pytest.mark.parametrize("bias", [False, True])
def test_fills_holes(bias):
    X = low_rank() + (5 if bias else 0)
    shown, holes = with_holes(X)
    fitted = model(max_iter=60, alpha=1e-3, fit_bias=bias).fit(shown)
    error = np.abs(fitted.predict(shown) - X)[holes].mean()
    assert error < 0.15 * np.abs(X - X.mean()).mean()
    stored = sparse.csr_array(np.nan_to_num(shown))
    same = model(max_iter=60, alpha=1e-3, fit_bias=bias, unstored="missing").fit(stored)
    np.testing.assert_allclose(same.components_, fitted.components_)
    i, j = np.nonzero(holes)
    np.testing.assert_allclose(
        same.predict_entries(stored, i, j), fitted.predict(shown)[i, j], rtol=1e-6
    )


def test_missing_values_may_be_a_number():
    shown, holes = with_holes(low_rank())
    fitted = model().fit(shown)
    other = model(missing_values=-99.0).fit(np.where(holes, -99.0, shown))
    np.testing.assert_array_equal(other.components_, fitted.components_)
    with pytest.raises(ValueError, match="NaN"):
        model(missing_values=-99.0).fit(shown)


def test_sparse_zeros_are_the_zeros_of_a_dense_matrix():
    X = np.where(np.random.default_rng(0).random((40, 30)) < 0.2, low_rank(40, 30), 0)
    dense = model(sampler="uniform").fit(X)
    stored = model(sampler="uniform", max_iter=200).fit(sparse.csr_matrix(X))
    # Passes have other lengths, the objective is one: compare what was reached.
    assert stored.score(sparse.csr_array(X)) == pytest.approx(dense.score(X), abs=0.1)
    np.testing.assert_allclose(
        dense.transform(sparse.csr_array(X)), dense.transform(X), atol=1e-9
    )
    learned = model(max_iter=200).fit(sparse.csr_array(X))
    assert learned.reconstruction_err_ < 1.1 * dense.reconstruction_err_


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["dense", "holes", "zeros", "missing"])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_solved_exactly(loss, kind, weighted):
    rng = np.random.default_rng(3)
    X = data_for(loss, n=6, m=15)
    if kind == "holes":
        X = with_holes(X, 0.4)[0]
        X[2] = np.nan  # A row without any entry.
    elif kind != "dense":
        X = sparse.csr_array(np.where(rng.random(X.shape) < 0.5, X, 0))
    weights = None
    if weighted:
        weights = rng.uniform(0.5, 2, size=X.shape)
    data = check_entries(
        X, weights, np.nan, "zero" if kind == "zeros" else "missing", loss
    )
    factors, offset = rng.normal(size=(15, 3)), 0.3 * rng.normal(size=15)
    alpha, epsilon = 0.05, 0.8
    solved = solve_rows(data, factors, offset, loss, epsilon, alpha)
    dense = X.toarray() if sparse.issparse(X) else X
    w = np.ones(X.shape) if weights is None else weights.copy()
    if sparse.issparse(X):
        stored = sparse.csr_array((np.ones(X.nnz), X.indices, X.indptr)).toarray() > 0
        w = np.where(stored, w, 1.0 if kind == "zeros" else 0.0)
    w = np.where(np.isnan(dense), 0, w)
    for i in range(len(solved)):
        if not w[i].any():
            assert (solved[i] == 0).all()
            continue

        def objective(u, i=i):
            value = evaluate_loss(
                loss, epsilon, np.nan_to_num(dense[i]), offset + factors @ u
            )[0]
            return w[i] @ (value + alpha / 2 * u @ u)

        best = minimize(objective, solved[i] * 0.9 + 0.01, options={"gtol": 1e-8})
        assert objective(solved[i]) <= best.fun + 1e-7 * (1 + abs(best.fun))
        np.testing.assert_allclose(solved[i], best.x, atol=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_fit_their_data(loss):
    X = data_for(loss, n=60, m=40)
    fitted = model(loss=loss, alpha=0.05, fit_bias=loss != "huber").fit(X)
    assert fitted.score(X) > 0.3
    predicted = fitted.predict(X)
    assert np.isfinite(predicted).all()
    if loss == "log_loss":
        assert ((predicted > 0.5) == X).mean() > 0.9
        assert 0 <= predicted.min() <= predicted.max() <= 1
    if loss == "poisson":
        assert predicted.min() >= 0


def test_huber_resists_outliers():
    X = low_rank(60, 40, rank=2)
    rng = np.random.default_rng(0)
    spoilt = np.where(rng.random(X.shape) < 0.05, 50 * rng.normal(size=X.shape), X)
    errors = [
        np.median(
            np.abs(model(2, loss=loss, epsilon=0.1).fit(spoilt).predict(spoilt) - X)
        )
        for loss in ("squared_error", "huber")
    ]
    assert errors[1] < 0.3 * errors[0]


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
@pytest.mark.parametrize("bias", [False, True])
def test_units_do_not_matter(loss, bias):
    X = with_holes(low_rank())[0]
    fits = [
        model(loss=loss, fit_bias=bias).fit(scale * X).predict(scale * X) / scale
        for scale in (2.0**-20, 1.0, 2.0**20)
    ]
    np.testing.assert_allclose(fits[0], fits[1], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(fits[2], fits[1], rtol=1e-6, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    loss=st.sampled_from(LOSSES),
    eta0=st.floats(-6, 3),
    scale=st.floats(-6, 6),
    kind=st.sampled_from(["dense", "holes", "zeros", "missing"]),
    bias=st.booleans(),
    rate=st.sampled_from(["auto", "constant", "inverse"]),
    update=st.sampled_from(["moments", "sgd"]),
)
def test_no_rate_and_no_scale_diverges(loss, eta0, scale, kind, bias, rate, update):
    X = data_for(loss, n=12, m=9)
    if loss in ("squared_error", "huber"):
        X = X * 10**scale
    X[0, 0] = X[0, 0] * 1e3 if loss == "squared_error" else X[0, 0]
    if kind == "holes":
        X = with_holes(X)[0]
    elif kind != "dense":
        X = sparse.csr_array(X * (np.random.default_rng(0).random(X.shape) < 0.6))
    fitted = model(
        loss=loss,
        eta0=10**eta0,
        learning_rate=rate,
        fit_bias=bias,
        max_iter=4,
        unstored="missing" if kind == "missing" else "zero",
        sampler=RowColumnSampler(update=update),
    ).fit(X)
    fitted.partial_fit(X)
    for value in (fitted.components_, fitted.transform(X), fitted.column_bias_):
        assert np.isfinite(value).all()
    assert np.isfinite(fitted.reconstruction_err_)
    assert np.isfinite(fitted.score(X))
    for name in ("draws", "objective", "variance_gain", "effective_sample_size"):
        assert np.isfinite(fitted.history_[name]).all()


def test_gradient_steps_that_diverge_are_an_error():
    X = low_rank()
    fitted = model().fit(X)
    before = fitted.components_
    fitted.set_params(step="gradient", learning_rate="constant", eta0=100.0)
    with pytest.raises(ValueError, match="step='proximal'"):
        fitted.fit(X)
    assert fitted.components_ is before


def test_learned_sampling_beats_uniform_draws_of_gradients():
    X = low_rank(60, 60, rank=5)
    X[:8, :8] *= 30
    fitted = model(5, max_iter=3).fit(X)
    assert fitted.variance_gain_ > 2
    assert fitted.row_probabilities_[:8].sum() > 2 * 8 / 60
    assert fitted.column_probabilities_[:8].sum() > 2 * 8 / 60
    assert fitted.sampler_.column_probabilities_.sum() == pytest.approx(1)


def test_auto_takes_shuffled_passes_where_nothing_is_gained():
    X = with_holes(low_rank())[0]
    fitted = model().fit(X)
    share = (~np.isnan(X)).mean(axis=0)
    np.testing.assert_allclose(fitted.column_probabilities_, share / share.sum())
    assert fitted.variance_gain_ == 1
    assert (model(sampler="row_column").fit(X).variance_gain_) != 1


def test_zero_weight_is_missing_and_two_is_twice():
    X = low_rank()
    shown, holes = with_holes(X)
    fitted = model().fit(shown)
    weighted = model().fit(np.where(holes, 123.0, X), entry_weight=1.0 * ~holes)
    np.testing.assert_allclose(weighted.components_, fitted.components_)
    doubled = model().fit(X, entry_weight=np.full(X.shape, 2.0))
    np.testing.assert_allclose(doubled.components_, model().fit(X).components_)


def test_weights_move_the_fit_to_heavy_entries():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 30))
    weights = np.where(np.arange(30) < 10, 20.0, 1.0) * np.ones((40, 1))
    error = [
        ((fitted.predict(X) - X)[:, :10] ** 2).mean()
        for fitted in (
            model(5, max_iter=60).fit(X),
            model(5, max_iter=60).fit(X, entry_weight=weights),
        )
    ]
    assert error[1] < 0.75 * error[0]
    stored = sparse.csr_array(X)
    heavy = sparse.csr_array((weights.ravel(), stored.indices, stored.indptr))
    same = [
        model(5, unstored="missing").fit(stored, entry_weight=w).components_
        for w in (weights, heavy)
    ]
    np.testing.assert_array_equal(*same)


def test_streaming_follows_the_stream():
    digits, labels = load_digits(return_X_y=True)
    digits = digits / 16
    zeros, ones = digits[labels == 0], digits[labels == 1]
    stream = model(
        5, learning_rate="constant", sampler=RowColumnSampler(forgetting=0.1)
    )
    for chunk in np.array_split(zeros, 20):
        stream.partial_fit(chunk)
    before = stream.column_probabilities_
    score = stream.score(ones)
    for _ in range(2):
        for chunk in np.array_split(ones, 20):
            stream.partial_fit(chunk)
    assert stream.score(ones) > score
    weight = ones.std(axis=0) - zeros.std(axis=0)
    assert np.corrcoef(stream.column_probabilities_ - before, weight)[0, 1] > 0.2
    assert stream.t_ == 1 + zeros.size + 2 * ones.size
    assert stream.n_iter_ == 1


def test_partial_fit_goes_on_and_leaves_copies_alone():
    X = low_rank()
    first = model().partial_fit(X[:20])
    kept = pickle.loads(pickle.dumps(first))
    components = first.components_.copy()
    again = [m.partial_fit(X[20:]).components_ for m in (first, kept)]
    np.testing.assert_array_equal(*again)
    assert np.abs(again[0] - components).max() > 0
    with pytest.raises(ValueError, match="features"):
        first.partial_fit(X[:, :5])
    np.testing.assert_array_equal(first.components_, again[0])


def test_same_seed_same_result_and_sampler_is_not_touched():
    X = with_holes(low_rank())[0]
    sampler = RowColumnSampler(mixing=0.3)
    fits = [model(sampler=sampler).fit(X) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    assert not hasattr(sampler, "column_probabilities_")
    other = model(sampler=sampler, random_state=1).fit(X)
    assert np.abs(other.components_ - fits[0].components_).max() > 0
    assert clone(fits[0]).get_params()["sampler"].mixing == 0.3


def test_float32_is_read_and_returned():
    X = low_rank().astype(np.float32)
    fitted = model().fit(X)
    for value in (fitted.components_, fitted.transform(X), fitted.predict(X)):
        assert value.dtype == np.float32
    wide = model().fit(X.astype(np.float64))
    np.testing.assert_allclose(fitted.components_, wide.components_, rtol=1e-5)


def test_read_only_and_fortran_input():
    X = low_rank()
    fitted = model().fit(X)
    fixed = X.copy()
    fixed.flags.writeable = False
    for other in (fixed, np.asfortranarray(X)):
        np.testing.assert_array_equal(
            model().fit(other).components_, fitted.components_
        )


def test_sparse_input_with_wide_indices_and_duplicates():
    X = sparse.csr_array(
        np.where(np.random.default_rng(0).random((40, 25)) < 0.5, 1, 0)
    )
    X = (X * low_rank()).tocsr()
    fitted = model(unstored="missing").fit(X)
    wide = X.copy()
    wide.indices, wide.indptr = (
        wide.indices.astype(np.int64),
        wide.indptr.astype(np.int64),
    )
    twice = sparse.csr_array(
        (np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), X.shape
    )
    for other in (wide, twice, X.tocoo(), sparse.csc_array(X)):
        np.testing.assert_allclose(
            model(unstored="missing").fit(other).components_, fitted.components_
        )


def test_predict_of_sparse_rows_points_to_predict_entries():
    X = sparse.csr_array(low_rank())
    fitted = model(unstored="missing").fit(X)
    with pytest.raises(TypeError, match="predict_entries"):
        fitted.predict(X)
    values = fitted.predict_entries(X, [0, 3], [1, 2])
    np.testing.assert_allclose(values, fitted.predict(X.toarray())[[0, 3], [1, 2]])
    with pytest.raises(IndexError, match="columns"):
        fitted.predict_entries(X, [0], [-2])
    with pytest.raises(ValueError, match="one of each"):
        fitted.predict_entries(X, [0], [1, 2])


def test_recommend_gives_the_best_unseen_columns():
    X = low_rank()
    shown, holes = with_holes(X, 0.3)
    holes[0], shown[0] = False, X[0]
    fitted = model().fit(shown)
    best = fitted.recommend(shown, k=4)
    predicted = fitted.predict(shown)
    assert (best[0] == -1).all()
    for i in range(1, len(X)):
        unseen = np.flatnonzero(holes[i])
        expected = unseen[np.argsort(-predicted[i, unseen])][:4]
        np.testing.assert_array_equal(best[i][: len(expected)], expected)
    stored = sparse.csr_array(np.nan_to_num(shown))
    same = model(unstored="missing").fit(stored).recommend(stored, k=4)
    np.testing.assert_array_equal(same, best)
    assert fitted.recommend(shown, k=100).shape == (40, 100)


def test_score_hides_what_it_scores():
    # Noise cannot be predicted. A model with a factor for each column reproduces what
    # it is shown perfectly, and must not be rewarded for it.
    X = np.random.default_rng(0).normal(size=(60, 12))
    assert model(12, alpha=0).fit(X).score(X) < 0.1
    assert model().fit(X).score(X) == model().fit(X).score(X)
    with pytest.raises(ValueError, match="two observed"):
        model(1).fit(X).score(np.where(np.eye(12)[:3] > 0, 1.0, np.nan))


def test_score_is_r2_for_perfect_and_constant_models():
    X = low_rank()
    fitted = model(max_iter=60, alpha=0).fit(X)
    assert fitted.score(X) == pytest.approx(1, abs=1e-3)
    fitted.components_ = np.zeros_like(fitted.components_)
    fitted.column_bias_ = np.full(25, X.mean())
    assert fitted.score(X) == pytest.approx(0, abs=0.05)


def test_grid_search_finds_the_rank():
    X = low_rank(90, 30, rank=2) + 0.3 * np.random.default_rng(0).normal(size=(90, 30))
    search = GridSearchCV(
        model(max_iter=40), {"n_components": [1, 2, 12], "sampler": ["uniform"]}, cv=3
    ).fit(X)
    assert search.best_params_["n_components"] == 2


def test_pipeline_in_front_of_a_classifier():
    X, y = load_digits(return_X_y=True)
    pipeline = make_pipeline(
        AWSGDMatrixFactorization(16, random_state=0, tol=None, max_iter=3),
        KNeighborsClassifier(),
    )
    assert pipeline.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.85


def test_output_names():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(low_rank(), columns=[f"pixel{j}" for j in range(25)])
    fitted = model(fit_bias=True).set_output(transform="pandas").fit(X)
    out = fitted.transform(X)
    assert list(out.columns) == [f"awsgdmatrixfactorization{k}" for k in range(4)]
    assert list(fitted.feature_names_in_) == list(X.columns)


def test_inverse_transform_of_the_factors():
    X = low_rank() + 3
    fitted = model(fit_bias=True, max_iter=60, alpha=1e-4).fit(X)
    factors = fitted.fit_transform(X)
    assert factors.shape == (40, 4)
    np.testing.assert_allclose(
        fitted.inverse_transform(factors),
        fitted.global_bias_ + fitted.column_bias_ + factors @ fitted.components_,
    )
    assert np.abs(fitted.inverse_transform(factors) - X).mean() < 0.1
    with pytest.raises(ValueError, match="factors"):
        fitted.inverse_transform(factors[:, :2])


def test_history_is_ready_for_a_table():
    X = low_rank()
    fitted = model(max_iter=3, sampler="row_column").fit(X)
    lengths = {len(column) for column in fitted.history_.values()}
    assert len(lengths) == 1
    assert fitted.history_["draws"][-1] == 3 * X.size
    assert fitted.history_["objective"][-1] < fitted.history_["objective"][0]
    table = fitted.sampling_history_
    assert len(table["draws"]) == len(table["column"]) == len(table["probability"])
    last = table["draws"] == 3 * X.size
    np.testing.assert_allclose(table["probability"][last].sum(), 1)
    assert fitted.n_iter_ == 3


def test_stops_by_tol_and_warns_otherwise():
    X = low_rank()
    fitted = AWSGDMatrixFactorization(3, tol=0.5, random_state=0).fit(X)
    assert fitted.n_iter_ < 100
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        AWSGDMatrixFactorization(3, tol=0.0, max_iter=2, random_state=0).fit(X)


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"loss": "hinge"}, ValueError, "loss='hinge'"),
        ({"n_components": 0}, ValueError, "n_components=0"),
        ({"n_components": 2.5}, TypeError, "n_components"),
        ({"alpha": -1}, ValueError, "alpha=-1"),
        ({"eta0": 0}, ValueError, "eta0=0"),
        ({"unstored": "nan"}, ValueError, "unstored"),
        ({"step": "newton"}, ValueError, "step"),
        ({"learning_rate": "optimal"}, ValueError, "learning_rate"),
        ({"sampler": "label"}, ValueError, "sampler"),
        ({"sampler": StrataSampler()}, TypeError, "RowColumnSampler"),
        ({"sampler": RowColumnSampler(update="adam")}, ValueError, "sampler.update"),
        ({"sampler": RowColumnSampler(mixing=1)}, ValueError, "sampler.mixing"),
        ({"tol": -1}, ValueError, "tol"),
        ({"missing_values": None}, TypeError, "missing_values=None"),
        ({"loss": "log_loss"}, ValueError, "from 0 to 1"),
        ({"loss": "poisson"}, ValueError, "needs entries"),
    ],
)
def test_bad_parameters_name_the_remedy(params, error, match):
    with pytest.raises(error, match=match):
        AWSGDMatrixFactorization(**params).fit(low_rank())


def test_bad_data_names_the_remedy():
    X = low_rank()
    with pytest.raises(ValueError, match="no observed"):
        model().fit(np.full((3, 4), np.nan))
    with pytest.raises(ValueError, match="entry_weight has shape"):
        model().fit(X, entry_weight=np.ones((2, 2)))
    with pytest.raises(ValueError, match="negative"):
        model().fit(X, entry_weight=-np.ones(X.shape))
    with pytest.raises(ValueError, match="unstored='missing'"):
        model().fit(sparse.csr_array(with_holes(X)[0]))
    with pytest.raises(ValueError, match="give both dense"):
        model().fit(X, entry_weight=sparse.csr_array(np.ones(X.shape)))
    with pytest.raises(ValueError, match="stores other"):
        model().fit(sparse.csr_array(X), entry_weight=sparse.csr_array(X.shape))


def test_uniform_sampler_object_is_the_same_as_its_name():
    X = low_rank()
    fits = [model(sampler=s).fit(X).components_ for s in ("uniform", UniformSampler())]
    np.testing.assert_array_equal(*fits)


def test_all_zero_matrix():
    fitted = model().fit(np.zeros((6, 5)))
    assert np.abs(fitted.predict(np.zeros((6, 5)))).max() < 0.1
    assert model().fit(sparse.csr_array((6, 5))).score(np.zeros((2, 5))) in (0.0, 1.0)


def test_matrix_from_entries():
    X = matrix_from_entries([1, 0, 1], [2, 0, 0], [5.0, 0.0, 3.0])
    np.testing.assert_array_equal(X.toarray(), [[0, 0, 0], [3, 0, 5]])
    assert X.nnz == 3
    assert matrix_from_entries([0], [0], [1], shape=(4, 5)).shape == (4, 5)
    for arguments, match in (
        (([0, 0], [1, 1], [1, 2]), "more than once"),
        ((["a"], [0], [1]), "return_ids=True"),
        (([-1], [0], [1]), "integers from 0"),
        (([0, 1], [0], [1]), "rows has shape"),
    ):
        with pytest.raises(ValueError, match=match):
            matrix_from_entries(*arguments)
    with pytest.raises(ValueError, match="too small"):
        matrix_from_entries([3], [0], [1], shape=(2, 2))
