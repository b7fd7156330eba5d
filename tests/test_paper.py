"""Section 5 of the paper, every step of it, against a twin written from the paper."""

import numpy as np
import pytest
from helpers import linear_problem, linear_state, run_draws, strata_kernel, stream
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn_awsgd._kernels._losses import LogLoss

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd.samplers import StrataSampler

PAPER = StrataSampler(
    by="label",
    update="adagrad",
    eta0=0.1,
    normalize=False,
    mixing=0,
    start="balanced",
)


def paper_classifier(seed):
    """The paper's algorithm: no penalty, no intercept, AdaGrad from 0.1."""
    return AWSGDClassifier(
        sampler=PAPER,
        learning_rate="adagrad",
        eta0=0.1,
        penalty=None,
        fit_intercept=False,
        tol=None,
        random_state=seed,
    )


def problem_seed(seed):
    """Seed of the random stream of the first problem."""
    return np.random.RandomState(seed).randint(np.iinfo(np.int32).max)


def paper_twin(X, y, rng, n_draws):
    """Section 5 of the paper: AW-SGD with q = n / n(y) sigmoid(y tau), both AdaGrad."""
    n = len(y)
    members = {sign: np.flatnonzero(y == sign) for sign in (-1, 1)}
    w, squares = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    tau, tau_squares = 0.0, 0.0
    trace = []
    for _ in range(n_draws):
        sign = -1 if rng.random() < expit(-tau) else 1
        rows = members[sign]
        i = rows[int(rng.random() * len(rows))]
        q = n / len(rows) * expit(sign * tau)
        d = -sign * expit(-sign * (w @ X[i])) * X[i] / q
        squares += d**2
        w = w - 0.1 * d / np.sqrt(np.where(squares > 0, squares, 1))
        slope = d @ d * sign * (1 - expit(sign * tau))
        tau_squares += slope**2
        tau += 0.1 * slope / np.sqrt(tau_squares)
        trace.append((w, tau))
    return trace


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_section_5_of_the_paper_through_the_estimator(layout, seed, rng):
    """Coefficients and probabilities after any number of draws are the twin's."""
    X = rng.standard_normal((40, 4))
    y = np.where(np.arange(40) % 5 == 0, 1, -1)
    clf = paper_classifier(seed)
    trace = paper_twin(X, y, stream(problem_seed(seed))[1], 40 * 6)
    for max_iter in range(1, 7):
        clf.set_params(max_iter=max_iter).fit(layout(X), y)
        w, tau = trace[40 * max_iter - 1]
        np.testing.assert_allclose(clf.coef_[0], w, rtol=1e-9)
        np.testing.assert_allclose(clf.sampler_.tau_[0], [0, tau], rtol=1e-9)
        history = clf.sampling_history_
        positive = history["stratum"] == 1
        np.testing.assert_allclose(
            history["probability"][positive],
            [expit(trace[n - 1][1]) for n in history["draws"][positive]],
            rtol=1e-9,
        )
    # Chunk by chunk the stream goes on where it stopped.
    clf = paper_classifier(seed)
    for t in range(6):
        clf.partial_fit(layout(X), y, classes=[-1, 1])
        np.testing.assert_allclose(clf.coef_[0], trace[40 * (t + 1) - 1][0], rtol=1e-9)


def test_section_5_of_the_paper_every_single_step(seed, rng):
    X = rng.standard_normal((40, 4))
    y = np.where(np.arange(40) % 5 == 0, 1.0, -1.0)
    bits, rng = stream(seed)
    # The last column is the intercept of the compiled model.
    X[:, 3] = 1
    state, setting = linear_state(3), clone(PAPER)
    kernel = strata_kernel(setting, bits, (y > 0).astype(int))
    problem = linear_problem(
        np.ascontiguousarray(X[:, :3]), y, LogLoss(), state, "adagrad", eta0=0.1
    )
    for w, tau in paper_twin(X, y, rng, 400):
        run_draws(problem, kernel, 1)
        np.testing.assert_allclose(state["coef"], w[:3], rtol=1e-9)
        np.testing.assert_allclose(state["intercept"][0], w[3], rtol=1e-9)
        np.testing.assert_allclose(setting.tau_[0, 1], tau, rtol=1e-9)
