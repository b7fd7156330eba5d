"""Eight threads on shared data get what one gets alone."""

import copy
import subprocess
import sys
import sysconfig
import threading
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)

N_THREADS = 8


def in_threads(function, n_threads=N_THREADS):
    """Return the results of a function of the thread's number, all at once."""
    results, barrier = [None] * n_threads, threading.Barrier(n_threads)

    def work(k):
        barrier.wait()
        try:
            results[k] = function(k)
        except BaseException as error:
            results[k] = error

    threads = [threading.Thread(target=work, args=(k,)) for k in range(n_threads)]
    # As many changes of threads as there can be.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def data(layout):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 8))
    score = X @ np.linspace(-1, 1, 8) + rng.logistic(size=600)
    if layout == "csr":
        X = sparse.csr_array(np.where(rng.random(X.shape) < 0.5, X, 0))
    elif layout == "float32":
        X = X.astype(np.float32)
    return X, (score > 1).astype(int)


def absolute(X, y):
    return np.abs(np.asarray(X.sum(axis=1)).ravel()) + y


def fitted(X, y, k):
    """Return what each estimator learns, with a seed of its own for each thread."""
    hinge = AWSGDClassifier("hinge", random_state=k).fit(X, y)
    softmax = AWSGDClassifier("multinomial", random_state=k)
    softmax.partial_fit(X, y + (y == 0) * 2 * (np.arange(len(y)) % 2), classes=range(3))
    target = AWSGDRegressor(random_state=k, learning_rate="adagrad", max_iter=20)
    factors = AWSGDMatrixFactorization(2, random_state=k, max_iter=3, tol=None)
    estimate = MinVarianceImportanceEstimator(
        None, absolute, max_evaluations=200, rtol=None, random_state=k
    )
    return (
        hinge.coef_,
        hinge.predict(X),
        softmax.coef_,
        target.fit(X, y.astype(float)).coef_,
        factors.fit(X).components_,
        np.array(estimate.fit(X, y).confidence_interval_),
    )


# Warnings are those of the process, not of a thread.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("layout", ["dense", "csr", "float32"])
def test_estimators_of_their_own(layout):
    X, y = data(layout)
    alone = [fitted(X, y, k) for k in range(N_THREADS)]
    # A new matrix, of which nothing has been found out yet.
    X, y = data(layout)
    together = in_threads(lambda k: fitted(X, y, k))
    for one, other in zip(alone, together, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_one_model_asked_by_many():
    X, y = data("csr")
    model = AWSGDClassifier(random_state=0).fit(X, y)
    expected = model.predict_proba(X)
    for answer in in_threads(lambda k: model.predict_proba(X)):
        np.testing.assert_array_equal(answer, expected)
    factors = AWSGDMatrixFactorization(2, random_state=0).fit(X)
    expected = factors.transform(X)
    for answer in in_threads(lambda k: factors.transform(X)):
        np.testing.assert_array_equal(answer, expected)


def test_threads_inside_threads():
    X, y = data("dense")
    y = y + (X[:, 0] > 0)
    model = AWSGDClassifier(random_state=0).fit(X, y)
    many = in_threads(
        lambda k: AWSGDClassifier(random_state=0, n_jobs=2).fit(X, y).coef_, 4
    )
    for coef in many:
        np.testing.assert_array_equal(coef, model.coef_)


def test_copies_of_one_stream():
    X, y = data("dense")
    model = AWSGDClassifier(random_state=0).partial_fit(X, y, classes=[0, 1])
    copies = [copy.deepcopy(model) for _ in range(N_THREADS)]
    expected = model.partial_fit(X, y).coef_
    for coef in in_threads(lambda k: copies[k].partial_fit(X, y).coef_):
        np.testing.assert_array_equal(coef, expected)


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="This Python has the GIL."
)
def test_kernels_leave_the_gil_off():
    # In a process of its own: what other tests import may have switched it on.
    text = """
import importlib, pkgutil, sys, sklearn_awsgd._kernels as kernels
for module in pkgutil.iter_modules(kernels.__path__):
    importlib.import_module(f"{kernels.__name__}.{module.name}")
sys.exit(sys._is_gil_enabled())
"""
    subprocess.run([sys.executable, "-W", "error", "-c", text], check=True)


def test_a_failing_thread_is_heard():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with pytest.raises(ZeroDivisionError):
            in_threads(lambda k: 1 / (k - 3))
