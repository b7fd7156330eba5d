"""Estimators for dask collections, on a cluster of two processes."""

import os
import signal
import threading
import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import joblib
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDRegressor,
)
from sklearn_awsgd._partitions import cluster as on_cluster
from sklearn_awsgd.dask import (
    DaskAWSGDClassifier,
    DaskAWSGDMatrixFactorization,
    DaskAWSGDRegressor,
)
from sklearn_awsgd.partitions import (
    MatrixPartition,
    Partition,
    factorize_partitions,
    fit_partitions,
)

# Of dask, when machines are busy or workers end.
pytestmark = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning:distributed", "ignore::UserWarning:distributed"
)


@pytest.fixture(scope="module")
def cluster():
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "60s"}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


def in_blocks(X, y, size=150):
    return da.from_array(X, chunks=(size, -1)), da.from_array(y, chunks=size)


def runner(X, y, size=150):
    """Return what calls functions on the same blocks, in this process."""
    parts = [
        Partition(X[i : i + size], y[i : i + size], number=i // size)
        for i in range(0, len(y), size)
    ]
    return lambda function, *arguments: [function(p, *arguments) for p in parts]


SETTINGS = {"alpha": 0.01, "tol": 1e-8, "random_state": 0}


@pytest.mark.parametrize("size", [400, 150, 20])
def test_the_cluster_changes_nothing(size, client, imbalanced):
    """Twenty blocks are added in a tree, which moves the last digits only."""
    X, y = imbalanced
    model = DaskAWSGDClassifier(**SETTINGS).fit(*in_blocks(X, y, size))
    plain = fit_partitions(AWSGDClassifier(**SETTINGS), runner(X, y, size))
    rtol = 0 if size > 25 else 1e-9
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=rtol)
    local = AWSGDClassifier(**SETTINGS).fit(X, y)
    np.testing.assert_allclose(model.coef_, local.coef_, rtol=1e-6)
    assert model.duality_gap_[0] <= 1e-8 * model.history_["objective"][-1]


@pytest.mark.parametrize(
    ("n_features", "loss", "penalty"),
    [(8, "multinomial", "l2"), (8, "multinomial", "l1"), (3100, "log_loss", "l1")],
)
def test_softmax_and_l1_penalties(n_features, loss, penalty, client, rng):
    X = np.where(rng.random((400, n_features)) < 0.1, 3.0, 0.0)
    X[:, :8] = rng.standard_normal((400, 8))
    n_classes = 3 if loss == "multinomial" else 2
    y = np.argmax(X[:, :n_classes] + rng.gumbel(size=(400, n_classes)), axis=1)
    settings = {**SETTINGS, "tol": 1e-6, "loss": loss, "penalty": penalty}
    model = DaskAWSGDClassifier(**settings).fit(*in_blocks(X, y))
    plain = fit_partitions(AWSGDClassifier(**settings), runner(X, y))
    # Matrix products depend on where their arrays lie, in the last digits.
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-9, atol=1e-12)
    value = model.history_["objective"][-1]
    local = AWSGDClassifier(**settings).fit(X, y).history_["objective"][-1]
    np.testing.assert_allclose(value, local, rtol=1e-6)
    assert model.duality_gap_[0] <= 1e-5 * value
    assert (model.coef_ == 0).any() == (penalty == "l1")


def test_lazy_predictions(client, imbalanced):
    X, y = imbalanced
    dX, dy = in_blocks(X, np.array(["no", "yes"])[y])
    model = DaskAWSGDClassifier(**SETTINGS).fit(dX, dy)
    local = model.to_local()
    assert type(local) is AWSGDClassifier
    assert local.get_params() == model.get_params()
    for method in (
        "predict",
        "decision_function",
        "predict_proba",
        "predict_log_proba",
    ):
        expected = getattr(local, method)(X)
        lazy = getattr(model, method)(dX)
        assert isinstance(lazy, da.Array)
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(lazy.compute(), expected)
        np.testing.assert_array_equal(getattr(model, method)(X), expected)
    np.testing.assert_allclose(model.score(dX, dy), local.score(X, dy.compute()))
    weight = da.from_array(np.arange(400.0), chunks=150)
    np.testing.assert_allclose(
        model.score(dX, dy, weight), local.score(X, dy.compute(), np.arange(400.0))
    )
    assert not hasattr(DaskAWSGDClassifier("hinge"), "predict_proba")


def test_regression_with_weights(client, rng):
    X, weight = rng.standard_normal((400, 3)), rng.random(400)
    y = X @ [1.0, 2.0, 3.0] + rng.standard_normal(400)
    dX, dy = in_blocks(X, y)
    dw = da.from_array(weight, chunks=400)  # In other blocks, of known size.
    model = DaskAWSGDRegressor(**SETTINGS).fit(dX, dy, sample_weight=dw)
    local = AWSGDRegressor(**SETTINGS).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.coef_, local.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.predict(dX).compute(), model.predict(X))
    np.testing.assert_allclose(model.score(dX, dy, dw), local.score(X, y, weight))


def test_data_frames(client, imbalanced):
    X, y = imbalanced
    frame = pd.DataFrame(X, columns=list("abcde"))
    number = np.arange(400)
    lazy = dd.from_pandas(frame.assign(y=y, number=number), npartitions=4)
    # Blocks of unknown size, one of them empty.
    lazy = lazy[(lazy["number"] < 90) | (lazy["number"] > 220)]
    assert lazy.partitions[1].compute().empty
    kept = (number < 90) | (number > 220)
    dX, dy = lazy[list("abcde")], lazy["y"]
    model = DaskAWSGDClassifier(**SETTINGS).fit(dX, dy)
    local = AWSGDClassifier(**SETTINGS).fit(frame[kept], y[kept])
    np.testing.assert_allclose(model.coef_, local.coef_, rtol=1e-6)
    np.testing.assert_array_equal(model.feature_names_in_, list("abcde"))
    np.testing.assert_array_equal(model.predict(dX), local.predict(frame[kept]))
    probabilities = model.predict_proba(dX)
    assert probabilities.shape[1] == 2
    np.testing.assert_allclose(probabilities, local.predict_proba(frame[kept]), 1e-5)
    np.testing.assert_allclose(model.score(dX, dy), local.score(frame[kept], y[kept]))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(dX.rename(columns={"a": "z"}))


def test_blocks_of_csr_and_of_unknown_size(client, imbalanced):
    X, y = imbalanced
    X[np.abs(X) < 0.5] = 0
    dX, dy = in_blocks(X, y)
    sparse_X = dX.map_blocks(sparse.csr_array)
    keep = dX[:, 0] > -1
    unknown_X, unknown_y = dX[keep], dy[keep]
    assert np.isnan(unknown_X.shape[0])
    local = AWSGDClassifier(**SETTINGS)
    model = DaskAWSGDClassifier(**SETTINGS).fit(sparse_X, dy)
    np.testing.assert_allclose(model.coef_, local.fit(X, y).coef_, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(sparse_X), local.predict(X))
    model.fit(unknown_X, unknown_y)
    rows = X[:, 0] > -1
    local.fit(X[rows], y[rows])
    np.testing.assert_allclose(model.coef_, local.coef_, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(unknown_X), local.predict(X[rows]))


def test_columns_in_several_blocks(client, imbalanced):
    X, y = imbalanced
    dX, dy = da.from_array(X, chunks=(150, 2)), da.from_array(y, chunks=150)
    model = DaskAWSGDClassifier(**SETTINGS).fit(dX, dy)
    plain = fit_partitions(AWSGDClassifier(**SETTINGS), runner(X, y))
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.predict(dX), plain.predict(X))


def test_what_is_refused(client, imbalanced):
    X, y = imbalanced
    dX, dy = in_blocks(X, y)
    model = DaskAWSGDClassifier(**SETTINGS).fit(dX, dy)
    before = model.coef_
    bad = X.copy()
    bad[160, 0] = np.nan
    unknown = dX[dX[:, 0] > -9]
    huge = da.zeros((10**9, 1000), chunks=(10**9, 1000))
    for error, text, arguments in [
        (ValueError, "Partition 1: Input X contains NaN", (in_blocks(bad, y)[0], dy)),
        (ValueError, "inconsistent numbers of samples", (dX, dy[1:])),
        (ValueError, "y has 1 blocks and X has 3", (unknown, dy.rechunk(400))),
        (ValueError, "number of classes", (dX, da.zeros(400, chunks=150))),
        (ValueError, "Expected 2D array, got 1D", (dy, dy)),
        (TypeError, "X must be a dask array or data frame, got ndarray", (X, dy)),
        (MemoryError, "8e\\+03 GB, but no worker", (huge, huge[:, 0])),
    ]:
        with pytest.raises(error, match=text):
            model.fit(*arguments)
        assert model.coef_ is before
    with pytest.raises(TypeError, match="partial_fit learns one chunk"):
        model.partial_fit(dX, dy)


def test_a_client_is_needed(imbalanced):
    with pytest.raises(ValueError, match="There is no dask client"):
        DaskAWSGDClassifier().fit(*in_blocks(*imbalanced))


def test_a_block_that_ends_workers(client, imbalanced):
    """Too little memory ends a worker; after several of them dask gives up."""
    X, y = imbalanced
    run = on_cluster.ClusterRun(client, Partition, [(X, y, None)])
    client.run_on_scheduler(forgive_nothing)
    try:
        with pytest.raises(MemoryError, match="not enough memory for a block"):
            run(end_worker)
    finally:
        client.run_on_scheduler(forgive_some)
        client.wait_for_workers(2, timeout=60)


def forgive_nothing(dask_scheduler):
    dask_scheduler.allowed_failures = 0


def forgive_some(dask_scheduler):
    dask_scheduler.allowed_failures = 3


def end_worker(partition):
    os.kill(os.getpid(), signal.SIGKILL)


def kill_during(phase, client, monkeypatch):
    """Kill a worker when a function is called; return the list of who is left to."""
    client.wait_for_workers(2, timeout=60)
    victims = list(client.run(os.getpid).values())
    call = on_cluster.ClusterRun.__call__

    def call_and_kill(run, function, *arguments):
        if function.__name__ == phase and victims:
            victim = victims[0]
            victims.clear()
            threading.Timer(0.005, os.kill, (victim, signal.SIGKILL)).start()
        return call(run, function, *arguments)

    monkeypatch.setattr(on_cluster.ClusterRun, "__call__", call_and_kill)
    return victims


@pytest.mark.parametrize(
    "phase", ["describe", "draw_rows", "evaluate_with_hessian", "evaluate"]
)
def test_a_worker_is_killed(phase, client, rng, monkeypatch):
    """During any phase: the fit goes on, and ends at the same optimum."""
    X = rng.standard_normal((12_000, 8))
    y = (X[:, 0] + rng.logistic(size=12_000) > 3).astype(int)
    settings = {"alpha": 1e-3, "tol": 1e-8, "random_state": 0}
    plain = fit_partitions(AWSGDClassifier(**settings), runner(X, y, 2000))
    victims = kill_during(phase, client, monkeypatch)
    model = DaskAWSGDClassifier(**settings).fit(*in_blocks(X, y, 2000))
    assert not victims
    np.testing.assert_array_equal(model.coef_, plain.coef_)


@pytest.fixture
def ratings(rng):
    X = rng.normal(size=(600, 3)) @ rng.normal(size=(3, 10))
    return X + rng.normal(size=X.shape)


def factorized(X, weights=None, size=150, **settings):
    """Return what is factorized in the same blocks, in this process."""
    parts = [
        MatrixPartition(
            X[i : i + size],
            None if weights is None else weights[i : i + size],
            number=i // size,
        )
        for i in range(0, X.shape[0], size)
    ]
    return factorize_partitions(
        AWSGDMatrixFactorization(3, tol=0.05, random_state=0, **settings),
        lambda function, *arguments: [function(p, *arguments) for p in parts],
    )


def assert_same_components(model, other):
    """Products of matrices depend on where in memory these begin, in the last digit."""
    np.testing.assert_allclose(model.components_, other.components_, atol=1e-9)


def test_factorization(client, ratings, rng):
    X, weights = ratings, rng.random(ratings.shape)
    X[rng.random(X.shape) < 0.2] = np.nan
    dX, dw = (da.from_array(array, chunks=(150, 5)) for array in (X, weights))
    model = DaskAWSGDMatrixFactorization(3, tol=0.05, random_state=0).fit(
        dX, entry_weight=dw
    )
    plain = factorized(X, weights)
    assert_same_components(model, plain)
    local = model.to_local()
    assert type(local) is AWSGDMatrixFactorization
    assert local.get_params() == model.get_params()
    for method in ("transform", "predict", "recommend"):
        lazy, expected = getattr(model, method)(dX), getattr(local, method)(X)
        assert isinstance(lazy, da.Array)
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(lazy.compute(), expected, rtol=1e-9)
        np.testing.assert_array_equal(getattr(model, method)(X), expected)
    back = model.inverse_transform(model.transform(dX))
    np.testing.assert_allclose(back.compute(), local.predict(X), rtol=1e-9)
    assert model.recommend(dX, k=2).shape == (600, 2)
    np.testing.assert_array_equal(
        model.predict_entries(X, [0, 5], [1, 2]),
        local.predict_entries(X, [0, 5], [1, 2]),
    )
    assert model.score(X) == local.score(X)
    for call in (
        lambda: model.partial_fit(dX),
        lambda: model.score(dX),
        lambda: model.predict_entries(dX, [0], [0]),
    ):
        with pytest.raises(TypeError, match="in one place"):
            call()


def test_factorization_of_csr_and_frames(client, ratings):
    X = np.where(np.abs(ratings) < 1, 0, ratings)
    dX = da.from_array(X, chunks=(150, -1)).map_blocks(sparse.csr_array)
    model = DaskAWSGDMatrixFactorization(3, tol=0.05, random_state=0).fit(dX)
    plain = factorized(sparse.csr_array(X))
    assert_same_components(model, plain)
    np.testing.assert_allclose(model.transform(dX), plain.transform(X), rtol=1e-6)
    frame = pd.DataFrame(X, columns=list("abcdefghij"))
    lazy = dd.from_pandas(frame, npartitions=4)
    model.fit(lazy[lazy["a"] > -1])
    assert list(model.feature_names_in_) == list(frame)
    factors = model.transform(lazy)
    assert factors.compute().shape == (600, 3)


def test_a_worker_is_killed_during_a_factorization(client, ratings, monkeypatch):
    victims = kill_during("equations", client, monkeypatch)
    dX = da.from_array(ratings, chunks=(150, -1))
    model = DaskAWSGDMatrixFactorization(3, tol=0.05, random_state=0).fit(dX)
    assert not victims
    assert_same_components(model, factorized(ratings))


def test_a_lost_client_raises(client, imbalanced, monkeypatch):
    dX, dy = in_blocks(*imbalanced)
    call = on_cluster.ClusterRun.__call__

    def call_and_close(run, function, *arguments):
        if function.__name__ == "evaluate_with_hessian":
            run._client.close()
        return call(run, function, *arguments)

    monkeypatch.setattr(on_cluster.ClusterRun, "__call__", call_and_close)
    model = DaskAWSGDClassifier()
    with client.as_current(), pytest.raises(RuntimeError, match="client"):
        model.fit(dX, dy)
    assert not hasattr(model, "coef_")


def test_the_backend_of_joblib(client, three_classes):
    """`n_jobs` and a grid search of the estimators for one machine, on the cluster."""
    X, y = three_classes
    alone = AWSGDClassifier(random_state=0).fit(X, y)
    with joblib.parallel_config(backend="dask"):
        model = AWSGDClassifier(random_state=0, n_jobs=2).fit(X, y)
        search = GridSearchCV(clone(model), {"alpha": [1e-4, 1e-1]}, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(model.coef_, alone.coef_)
    expected = GridSearchCV(clone(model), {"alpha": [1e-4, 1e-1]}).fit(X, y)
    assert search.best_params_ == expected.best_params_


def test_incremental_of_dask_ml(client, imbalanced):
    with warnings.catch_warnings():
        # Of what it imports.
        warnings.simplefilter("ignore")
        wrappers = pytest.importorskip("dask_ml.wrappers")
    X, y = imbalanced
    dX, dy = in_blocks(X, y)
    model = wrappers.Incremental(AWSGDClassifier(random_state=0), shuffle_blocks=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(dX, dy, classes=[0, 1])
    expected = AWSGDClassifier(random_state=0)
    for i in range(0, 400, 150):
        expected.partial_fit(X[i : i + 150], y[i : i + 150], classes=[0, 1])
    np.testing.assert_allclose(model.estimator_.coef_, expected.coef_, rtol=1e-6)


def test_results_travel_and_can_be_cloned(client, imbalanced):
    dX, dy = in_blocks(*imbalanced)
    model = DaskAWSGDClassifier(**SETTINGS).fit(dX, dy)
    assert clone(model).get_params() == model.get_params()
    back = client.submit(lambda model: model, model).result()
    np.testing.assert_array_equal(back.coef_, model.coef_)
    names = set(vars(AWSGDClassifier(**SETTINGS).fit(*imbalanced)))
    assert names == set(vars(model))
