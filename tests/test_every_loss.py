"""Every loss with every penalty: its gradient, its optimum, its zeros.

The references are scipy's: finite differences of the objective of the documentation,
linear programs where it is made of lines, and smooth minimisation elsewhere.
"""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import approx_fprime, linprog, minimize, minimize_scalar
from scipy.special import logsumexp
from sklearn.base import clone

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor

# Its minimum is no model, but one that can be computed.
pytestmark = pytest.mark.filterwarnings("ignore:loss='perceptron':UserWarning")

PENALTIES = ["l2", None, "l1", "elasticnet"]
ESTIMATORS = [
    *[(AWSGDClassifier, loss) for loss in AWSGDClassifier._losses],
    *[(AWSGDRegressor, loss) for loss in AWSGDRegressor._losses],
]
each_penalty = pytest.mark.parametrize("penalty", PENALTIES)
each_estimator = pytest.mark.parametrize(
    ("Estimator", "loss"),
    ESTIMATORS,
    ids=lambda value: getattr(value, "__name__", value),
)
each_intercept = pytest.mark.parametrize("fit_intercept", [True, False])
N_ROWS, N_CLASSES, EPSILON = 60, 3, 0.2


def margin_loss(of_margin):
    return lambda y, z: of_margin(y * z)


def residual_loss(of_residual):
    return lambda y, z: of_residual(np.abs(y - z))


# Written down once more, from the documentation.
LOSSES = {
    "log_loss": margin_loss(lambda m: np.logaddexp(0, -m)),
    "hinge": margin_loss(lambda m: np.maximum(0, 1 - m)),
    "squared_hinge": margin_loss(lambda m: np.maximum(0, 1 - m) ** 2),
    "modified_huber": margin_loss(
        lambda m: np.where(m >= -1, np.maximum(0, 1 - m) ** 2, -4 * m)
    ),
    "perceptron": margin_loss(lambda m: np.maximum(0, -m)),
    "squared_error": residual_loss(lambda r: r**2 / 2),
    "huber": residual_loss(
        lambda r: np.where(r <= EPSILON, r**2 / 2, EPSILON * (r - EPSILON / 2))
    ),
    "epsilon_insensitive": residual_loss(lambda r: np.maximum(0, r - EPSILON)),
    "squared_epsilon_insensitive": residual_loss(
        lambda r: np.maximum(0, r - EPSILON) ** 2
    ),
    # Of class codes, and a prediction for each class.
    "multinomial": lambda y, Z: logsumexp(Z, axis=1) - Z[np.arange(len(y)), y],
}
# Losses made of lines, as the largest of slope * z + offset.
LINES = {
    "hinge": lambda y: [(-y, np.ones(len(y)))],
    "perceptron": lambda y: [(-y, np.zeros(len(y)))],
    "epsilon_insensitive": lambda y: [
        (np.ones(len(y)), -y - EPSILON),
        (-np.ones(len(y)), y - EPSILON),
    ],
}


def problem(Estimator, loss, rng, signal=(1.0, -1, 0.3, 0)):
    """Return rows and targets, as fit takes them and as the loss does."""
    X = rng.standard_normal((N_ROWS, 4)) * [0.5, 1, 2, 1]
    X[rng.random(X.shape) < 0.3] = 0
    score = X @ signal + rng.logistic(size=N_ROWS) + 0.5
    if loss == "multinomial":
        return X, np.digitize(score, [0, 1.5])
    return X, np.where(score > 1, 1.0, -1.0) if Estimator is AWSGDClassifier else score


def make(Estimator, loss, penalty, seed, **options):
    options = {"alpha": 0.05, "l1_ratio": 0.4, "epsilon": EPSILON, **options}
    return Estimator(loss, penalty=penalty, random_state=seed, **options)


def strengths(estimator):
    ratio = {"l1": 1.0, "elasticnet": estimator.l1_ratio}.get(estimator.penalty, 0.0)
    alpha = 0.0 if estimator.penalty is None else estimator.alpha
    return alpha * ratio, alpha * (1 - ratio)


def mean_loss(estimator, X, y, W, b):
    Z = X @ np.atleast_2d(W).T + b
    z = Z if estimator.loss == "multinomial" else Z[:, 0]
    return LOSSES[estimator.loss](y, z).mean()


def objective(estimator, X, y, W, b):
    l1, l2 = strengths(estimator)
    penalty = l1 * np.abs(W).sum() + l2 / 2 * np.sum(W**2)
    return mean_loss(estimator, X, y, W, b) + penalty


@each_penalty
@each_intercept
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@each_estimator
def test_steps_follow_the_gradient(
    Estimator, loss, layout, fit_intercept, penalty, seed, rng
):
    """A pass of tiny steps moves along the gradient by finite differences."""
    X, y = problem(Estimator, loss, rng)
    n_models = N_CLASSES if loss == "multinomial" else 1
    W, b = rng.standard_normal((n_models, 4)), rng.standard_normal(n_models)
    b *= fit_intercept
    step = 1e-8
    estimator = make(
        Estimator,
        loss,
        penalty,
        seed,
        learning_rate="constant",
        eta0=step,
        max_iter=1,
        tol=None,
        sampler="uniform",
        fit_intercept=fit_intercept,
    )
    estimator.fit(layout(X), y, coef_init=W, intercept_init=b)
    moved = np.append(W - estimator.coef_, b - estimator.intercept_) / (N_ROWS * step)

    def of_vector(v):
        return objective(estimator, X, y, v[: W.size].reshape(W.shape), v[W.size :])

    expected = approx_fprime(np.append(W, b), of_vector, 1e-7)
    if not fit_intercept:
        expected[W.size :] = 0
    np.testing.assert_allclose(moved, expected, rtol=1e-5, atol=5e-6)


def reference(estimator, X, y):
    """Return the lowest value of the objective and coefficients that reach it."""
    if estimator.loss in LINES:
        return reference_of_lines(estimator, X, y)
    n_models = N_CLASSES if estimator.loss == "multinomial" else 1
    l1, l2 = strengths(estimator)
    size = n_models * 4
    targets = np.eye(N_CLASSES)[y] if n_models > 1 else y

    def split(v):
        parts = v[: 2 * size].reshape(2, n_models, 4)
        return parts[0] - parts[1], v[2 * size :]

    def evaluate(v):
        W, b = split(v)
        Z = X @ W.T + b
        if n_models > 1:
            slopes = np.exp(Z - logsumexp(Z, axis=1)[:, None]) - targets
        else:
            slopes = estimator._make_loss()(y, Z[:, 0])[1][:, None]
        slopes /= N_ROWS
        G = slopes.T @ X + l2 * W
        value = mean_loss(estimator, X, y, W, b) + l2 / 2 * np.sum(W**2)
        return (
            value + l1 * v[: 2 * size].sum(),
            np.concatenate(
                [(l1 + G).ravel(), (l1 - G).ravel(), b * 0 + slopes.sum(axis=0)]
            ),
        )

    free = (None, None) if estimator.fit_intercept else (0, 0)
    result = minimize(
        evaluate,
        np.zeros(2 * size + n_models),
        jac=True,
        bounds=[(0, None)] * (2 * size) + [free] * n_models,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10},
    )
    return result.fun, split(result.x)[0]


def reference_of_lines(estimator, X, y):
    """A linear program, or with an l2 penalty a quadratic one.

    Over w = u - v, both at least zero, b, and for each line and row the part of the
    loss that it carries.
    """
    l1, l2 = strengths(estimator)
    lines = LINES[estimator.loss](y)
    A = np.vstack(
        [
            np.hstack(
                [
                    slope[:, None] * np.hstack([X, -X, np.ones((N_ROWS, 1))]),
                    *[-np.eye(N_ROWS) * (other == k) for other in range(len(lines))],
                ]
            )
            for k, (slope, _) in enumerate(lines)
        ]
    )
    bound = -np.concatenate([offset for _, offset in lines])
    n_slack = N_ROWS * len(lines)
    cost = np.concatenate([np.full(8, l1), [0], np.full(n_slack, 1 / N_ROWS)])
    free = (None, None) if estimator.fit_intercept else (0, 0)
    bounds = [(0, None)] * 8 + [free] + [(0, None)] * n_slack
    if l2 == 0:
        result = linprog(cost, A, bound, bounds=bounds)
        assert result.status == 0
        return result.fun, result.x[:4] - result.x[4:8]

    def evaluate(x):
        w = x[:4] - x[4:8]
        slope = cost.copy()
        slope[:8] += l2 * np.append(w, -w)
        return cost @ x + l2 / 2 * w @ w, slope

    start = np.zeros(len(cost))
    start[9:] = np.maximum(0, -bound)
    result = minimize(
        evaluate,
        start,
        jac=True,
        bounds=bounds,
        method="SLSQP",
        constraints={
            "type": "ineq",
            "fun": lambda x: bound - A @ x,
            "jac": lambda x: -A,
        },
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return result.fun, result.x[:4] - result.x[4:8]


@each_penalty
@each_intercept
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@each_estimator
def test_the_optimum(Estimator, loss, layout, fit_intercept, penalty, seed, rng):
    """To 1e-4 with tol=1e-5, without a warning."""
    X, y = problem(Estimator, loss, rng)
    estimator = make(
        Estimator, loss, penalty, seed, tol=1e-5, fit_intercept=fit_intercept
    )
    estimator.fit(layout(X), y)
    lowest, _ = reference(estimator, X, y)
    reached = objective(estimator, X, y, estimator.coef_, estimator.intercept_)
    assert reached >= lowest - 1e-6
    if loss == "perceptron":
        # Nothing costs nothing, for the perceptron: its minimum is zero.
        assert lowest == 0
        assert reached < 1e-9
    else:
        assert reached <= lowest * (1 + 1e-4)


def alpha_of_all_zeros(estimator, X, y):
    """Return the strength of l1 from which on all coefficients are zero, nearly."""
    if estimator.loss == "multinomial":
        share = np.bincount(y) / N_ROWS
        return np.abs((share - np.eye(N_CLASSES)[y]).T @ X).max() / N_ROWS
    b = minimize_scalar(lambda b: mean_loss(estimator, X, y, np.zeros(4), b)).x
    slopes = estimator._make_loss()(y, np.full(N_ROWS, b))[1]
    return np.abs(slopes @ X).max() / N_ROWS


@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@each_estimator
def test_zeros_are_exact(Estimator, loss, layout, penalty, seed, rng):
    """The coefficients that are zero at scipy's optimum are so at ours."""
    X, y = problem(Estimator, loss, rng, signal=[3.0, -3, 0, 0])
    estimator = make(Estimator, loss, penalty, seed, tol=1e-6, l1_ratio=0.9)
    # All coefficients of the perceptron are zero at its minimum. Those we give have
    # the direction, and the zeros, of the logistic loss: it rounds the kink.
    like = clone(estimator)
    if loss == "perceptron":
        like.set_params(loss="log_loss")
    alpha = alpha_of_all_zeros(like, X, y)
    W = np.zeros(1)
    while not W.any():
        alpha *= 0.7
        W = reference(like.set_params(alpha=alpha), X, y)[1]
        W[np.abs(W) < 1e-6] = 0
    estimator.set_params(alpha=alpha).fit(layout(X), y)
    W = W.reshape(estimator.coef_.shape)
    assert not W.all()
    assert (estimator.coef_[W == 0] == 0).all()
    assert (estimator.coef_[np.abs(W) > 1e-3] != 0).all()


@each_penalty
@pytest.mark.parametrize(
    ("Estimator", "loss"),
    [
        (AWSGDClassifier, "hinge"),
        (AWSGDRegressor, "epsilon_insensitive"),
        (AWSGDRegressor, "huber"),
    ],
)
def test_losses_with_lines_keep_their_tolerance(Estimator, loss, penalty, seed, rng):
    """Also where not all rows give the curvature; and there are passes enough."""
    X = rng.standard_normal((2000, 30)) * rng.lognormal(size=30)
    score = X @ (rng.standard_normal(30) * (np.arange(30) < 10))
    y = score + 3 * rng.logistic(size=2000)
    if Estimator is AWSGDClassifier:
        y = np.where(y > np.quantile(y, 0.8), 1.0, -1.0)
    values, gaps = [], []
    for tol in (1e-3, 1e-7):
        estimator = make(Estimator, loss, penalty, seed, alpha=1e-3, tol=tol)
        estimator.fit(X, y)
        values.append(objective(estimator, X, y, estimator.coef_, estimator.intercept_))
        gaps.append(estimator.duality_gap_[0])
    assert gaps[0] >= values[0] - values[1] - 1e-9
    assert np.isfinite(gaps).all() == (penalty is not None)
    assert values[1] <= values[0] <= values[1] * (1 + 1e-3)
