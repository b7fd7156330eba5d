"""Differential fuzzing: random problems against an optimum found by other means.

A :class:`Case` says everything about one problem in a few words and numbers; `check`
fits it and raises `Finding` when a promise is broken:

- the objective is within 1.5 `tol` of the best that anybody finds, or there is a
  `ConvergenceWarning`;
- `duality_gap_` is not below the distance to the best that anybody finds;
- nothing is NaN, and there is no exception but a ValueError that explains.

The reference is a Newton method in NumPy, written for this purpose, in the span of the
rows; with an l1 penalty, scipy's L-BFGS-B. Both may stop early: they then accuse
nobody wrongly, since any point is an upper bound of the minimum.

``python tests/tools/fuzz.py "Case(...)"`` runs one case again, and looks for a simpler
one that fails as well.
"""

import math
import sys
import warnings
from dataclasses import dataclass, fields, replace

import numpy as np
from hypothesis import strategies as st
from scipy import sparse
from scipy.linalg import LinAlgError, cho_factor, cho_solve, qr
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor

# How far above tol the objective may end.
SLACK = 1.5
# Columns over which the reference minimises with an l1 penalty.
MOST_FREE = 100
# Where data can be fitted without a loss, no relative distance to the optimum is small:
# then this share of the loss of a useless model is near enough.
NEAR_ZERO = 1e-11
MARGIN_LOSSES = ("log_loss", "hinge", "squared_hinge", "modified_huber", "perceptron")
RESIDUAL_LOSSES = (
    "squared_error",
    "huber",
    "epsilon_insensitive",
    "squared_epsilon_insensitive",
)
KINKED_LOSSES = ("hinge", "perceptron", "epsilon_insensitive")
PENALTIES = ("l2", "l1", "elasticnet", None)
LAYOUTS = ("C", "F", "strided", "csr", "csr64", "csc", "coo", "unsorted")
COLUMNS = ("plain", "spread", "offset", "doubled", "constant", "tiny", "large")
WEIGHTS = ("none", "gamma", "zeros", "whole", "spread")


class Finding(AssertionError):
    """A promise of the documentation that was broken."""


@dataclass(frozen=True)
class Case:
    """One problem: data, weights and setting."""

    seed: int = 0
    n_rows: int = 50
    n_columns: int = 5
    # 0 for real targets.
    n_classes: int = 2
    share: float = 0.5
    density: float = 1.0
    columns: str = "plain"
    dtype: str = "float64"
    layout: str = "C"
    weights: str = "none"
    noise: float = 1.0
    loss: str = "log_loss"
    penalty: str | None = "l2"
    l1_ratio: float = 0.15
    alpha: float = 1e-4
    epsilon: float = 0.1
    fit_intercept: bool = True
    sampler: str = "auto"
    tol: float = 1e-3
    max_iter: int = 1000


NARROW = (1, 2, 3, 5, 8, 12, 20, 40, 60)
SOME_HUNDRED = (300, 400)
WIDE = (500, 1000, 2999, 3000, 3001, 4000, 5000)
# Options of cases that are solved in other ways. Of many rows, curvatures are those of
# samples, and from 200,000 numbers on losses with kinks begin with some of the rows; of
# rows with a few numbers, curvatures are diagonals.
TALL = {"min_rows": 2_000, "max_rows": 30_000}
SHORT = {"min_rows": 400, "max_rows": 1_000, "short": True}


def build_case(choose, whole, min_rows=6, max_rows=80, wide=False, short=False):
    """Return a case from choices.

    Parameters
    ----------
    choose : callable
        Takes a sequence, returns one of its elements.
    whole : callable
        Takes two integers, returns one between them, ends included.
    min_rows, max_rows : int
        Least and largest number of rows.
    wide : bool
        Whether there are up to 5,000 columns.
    short : bool
        Whether there are some hundred, rows have a few numbers, and no kinks.
    """
    n_classes = choose([2, 2, 2, 0, 0, 3])
    if n_classes == 0:
        losses = RESIDUAL_LOSSES
    elif n_classes == 3:
        losses = (*MARGIN_LOSSES[:4], "multinomial")
    else:
        losses = MARGIN_LOSSES + RESIDUAL_LOSSES
    loss = choose([name for name in losses if not (short and name in KINKED_LOSSES)])
    columns = SOME_HUNDRED if short else WIDE if wide else NARROW
    samplers = ["auto", "auto", "uniform", "strata", "level"]
    samplers += ["label"] if n_classes else []
    return Case(
        seed=whole(0, 10**6),
        n_rows=whole(min_rows, max_rows),
        n_columns=choose(columns),
        n_classes=n_classes,
        share=choose([0.5, 0.3, 0.1]),
        density=choose([0.005, 0.01, 0.02] if short else [1.0, 1.0, 0.5, 0.1]),
        # Offsets leave no zeros.
        columns=choose([c for c in COLUMNS if not (short and c == "offset")]),
        dtype=choose(["float64", "float64", "float32"]),
        layout=choose(LAYOUTS[3:] if short else LAYOUTS),
        weights=choose(WEIGHTS),
        noise=choose([0.0, 0.1, 1.0, 10.0]),
        loss=loss,
        penalty=choose(PENALTIES),
        l1_ratio=choose([0.0, 0.15, 0.5, 1.0]),
        alpha=10.0 ** choose([-12, -9, -7, -5, -4, -3, -2, -1, 0, 1, 3]),
        epsilon=choose([0.1, 0.1, 1.0, 0.01]),
        fit_intercept=choose([True, False]),
        sampler=choose(samplers),
        tol=choose([1e-2, 1e-3, 1e-3, 1e-5, 1e-8]),
        max_iter=choose([1000, 200, 20]),
    )


@st.composite
def cases(draw, **options):
    """Return a strategy of cases, with the options of :func:`build_case`."""
    return build_case(
        lambda sequence: draw(st.sampled_from(sequence)),
        lambda low, high: draw(st.integers(low, high)),
        **options,
    )


def random_case(seed, **options):
    """Return the case of a number: the same whatever else is loaded or installed."""
    rng = np.random.default_rng(seed)
    return build_case(
        lambda sequence: sequence[rng.integers(len(sequence))],
        lambda low, high: int(rng.integers(low, high + 1)),
        **options,
    )


def make_data(case):
    """Return rows in their layout, the same as a float64 array, targets and weights."""
    rng = np.random.default_rng(case.seed)
    n, d = case.n_rows, case.n_columns
    X = rng.standard_normal((n, d))
    X[rng.random((n, d)) >= case.density] = 0
    signal = rng.standard_normal(d) / math.sqrt(d * case.density)
    score = X @ signal
    if case.columns == "spread":
        X = X * 10.0 ** rng.uniform(-3, 3, d)
    elif case.columns == "offset":
        X = X + 10.0 ** rng.uniform(0, 3, d)
    elif case.columns == "doubled":
        X[:, d // 2 :] = X[:, : d - d // 2]
    elif case.columns == "constant":
        X[:, :: max(1, d // 2)] = 1.0
    elif case.columns == "tiny":
        X = X * 1e-6
    elif case.columns == "large":
        X = X * 1e4
    score = score + case.noise * rng.logistic(size=n)
    if case.n_classes == 0:
        y = score * 10.0 ** rng.integers(-2, 3)
    elif case.n_classes == 2:
        y = (score > np.quantile(score, 1 - case.share)).astype(int)
        y[rng.integers(n)] = 1
        y[np.flatnonzero(y == 1)[0] - 1] = 0
    else:
        cuts = np.quantile(score, [(1 - case.share) / 2, 1 - case.share])
        y = np.digitize(score, cuts)
        y[rng.permutation(n)[:3]] = [0, 1, 2]
    X = X.astype(case.dtype)
    return (
        as_layout(X, case.layout),
        X.astype(np.float64),
        y,
        make_weights(case, y, rng),
    )


def make_weights(case, y, rng):
    """Return the weights of the rows; every class keeps a row that counts."""
    n = len(y)
    if case.weights == "none":
        return None
    if case.weights == "gamma":
        return rng.gamma(1.0, size=n)
    if case.weights == "whole":
        return rng.integers(1, 5, n).astype(float)
    if case.weights == "spread":
        return 10.0 ** rng.uniform(-4, 4, n)
    weight = (rng.random(n) < 0.7).astype(float)
    weight[np.unique(y, return_index=True)[1][:3]] = 1.0
    return weight


def as_layout(X, layout):
    """Return an array in a layout of memory."""
    if layout == "F":
        return np.asfortranarray(X)
    if layout == "strided":
        return np.repeat(X, 2, axis=1)[:, ::2]
    if layout == "C":
        return X
    S = sparse.csr_array(X)
    if layout == "csr64":
        S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    elif layout == "unsorted":
        ends = zip(S.indptr, S.indptr[1:], strict=False)
        order = np.concatenate([np.arange(a, b)[::-1] for a, b in ends])
        S = sparse.csr_array((S.data[order], S.indices[order], S.indptr), S.shape)
    elif layout in ("csc", "coo"):
        S = S.asformat(layout)
    return S


def make_estimator(case):
    """Return the estimator of a case."""
    options = {
        name: getattr(case, name)
        for name in (
            "loss penalty l1_ratio alpha epsilon fit_intercept sampler tol max_iter"
        ).split()
    }
    cls = AWSGDClassifier if case.n_classes else AWSGDRegressor
    return cls(**options, random_state=case.seed % 1000)


# --- the objective, written down from the documentation -------------------------------


def rounded(u, width):
    """max(0, u) with a parabola of some width at its kink, and two derivatives."""
    inside = (u > 0) & (u < width)
    value = np.where(inside, u**2 / (2 * width), np.maximum(u - width / 2, 0))
    return value, np.clip(u / width, 0, 1), inside / width


def loss_of(case, y, z, width):
    """Return losses and their first and second derivatives in z.

    `width` rounds kinks.
    """
    name, epsilon = case.loss, case.epsilon
    if name == "hinge":
        value, first, second = rounded(1 - y * z, width)
        return value, -y * first, second
    if name == "perceptron":
        value, first, second = rounded(-y * z, width)
        return value, -y * first, second
    if name in ("log_loss", "multinomial"):
        p = expit(-y * z)
        return np.logaddexp(0, -y * z), -y * p, p * (1 - p)
    m, r = y * z, z - y
    if name == "squared_hinge":
        u = np.maximum(1 - m, 0)
        return u**2, -2 * y * u, 2.0 * (u > 0)
    if name == "modified_huber":
        u = np.maximum(1 - m, 0)
        far = m < -1
        value, first = np.where(far, -4 * m, u**2), np.where(far, -4 * y, -2 * y * u)
        return value, first, 2.0 * ((u > 0) & ~far)
    if name == "squared_error":
        return r**2 / 2, r, np.ones_like(r)
    if name == "huber":
        near = np.abs(r) <= epsilon
        value = np.where(near, r**2 / 2, epsilon * (np.abs(r) - epsilon / 2))
        return value, np.clip(r, -epsilon, epsilon), near * 1.0
    if name == "epsilon_insensitive":
        above, below = rounded(r - epsilon, width), rounded(-r - epsilon, width)
        return above[0] + below[0], above[1] - below[1], above[2] + below[2]
    u = np.maximum(np.abs(r) - epsilon, 0)
    return u**2, 2 * np.sign(r) * u, 2.0 * (u > 0)


def penalties(case):
    """Return the strengths of l1 and of half the squared l2 norm."""
    share = {"l2": 0.0, "l1": 1.0, "elasticnet": case.l1_ratio, None: 0.0}[case.penalty]
    alpha = 0.0 if case.penalty is None else case.alpha
    return alpha * share, alpha * (1 - share)


class Objective:
    """The objective of one problem of a case, in float64."""

    def __init__(self, case, X, y, P):
        self.case, self.X, self.y, self.P = case, X, y, P
        self.l1, self.l2 = penalties(case)

    def __call__(self, w, b):
        """Return the objective, and a bound of the rounding in it."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = self.X @ w + b
            losses, slopes, _ = loss_of(self.case, self.y, z, 1e-300)
            value = self.P @ losses + self.l1 * np.abs(w).sum() + self.l2 / 2 * w @ w
            size = np.abs(self.X) @ np.abs(w) + abs(b) + np.abs(self.y)
            rounding = 1e-15 * (self.P @ (np.abs(slopes) * size) + abs(value))
        return value, 8 * rounding

    def of_useless_model(self):
        """Return the loss of predictions that are all wrong, or all zero."""
        is_class = self.case.n_classes > 0
        z = -self.y if is_class else np.zeros_like(self.y)
        return self.P @ loss_of(self.case, self.y, z, 1e-300)[0]

    def reference(self, w, b):
        """Return the least value found by a method of another kind.

        With a bound of its rounding: coefficients that are far too large are near
        enough to anything.
        """
        with np.errstate(all="ignore"):
            return self._by_lbfgs(w, b) if self.l1 > 0 else self._by_newton(w, b)

    def _widths(self, w, b):
        """Return the widths of kinks to go through."""
        if self.case.loss not in KINKED_LOSSES:
            return [1e-300] * 5
        size = max(np.abs(self.X @ w + b).max(), np.abs(self.y).max(), 1e-12)
        return size * 10.0 ** np.arange(0, -11, -1)

    def _by_newton(self, w, b):
        # In an orthonormal basis of the span of the rows, which has all that an l2
        # penalty leaves; the intercept is a last column.
        X, basis = self.X, None
        if X.shape[1] > X.shape[0]:
            basis, R = qr(X.T, mode="economic")
            X = R.T
        A = np.column_stack([X, np.ones(len(X))])
        ridge = np.append(np.full(X.shape[1], self.l2), 0.0)
        free = np.ones(A.shape[1], dtype=bool)
        free[-1] = self.case.fit_intercept
        start = np.append(w if basis is None else basis.T @ w, b)
        best = np.inf
        widths = self._widths(w, b)
        for t, few in ((start, widths[3:]), (np.zeros_like(start), widths)):
            for width in few:
                t = self._newton(A, ridge, free, t, width)
                point = t[:-1] if basis is None else basis @ t[:-1]
                best = min(best, sum(self(point, t[-1])))
        return best

    def _newton(self, A, ridge, free, t, width):
        """Newton's method with a damping, for losses with kinks of some width."""

        def evaluate(t):
            losses, slopes, curves = loss_of(self.case, self.y, A @ t, width)
            return self.P @ losses + ridge @ t**2 / 2, slopes, curves

        damping = 1e-12
        value, slopes, curves = evaluate(t)
        for _ in range(100):
            gradient = (A.T @ (self.P * slopes) + ridge * t)[free]
            H = (A.T * (self.P * curves)) @ A + np.diag(ridge)
            H = H[np.ix_(free, free)]
            diagonal = np.maximum(np.diag(H), 1e-12 * np.diag(H).max() + 1e-300)
            scale = np.sqrt(diagonal)
            H = H / scale / scale[:, None]
            step = np.zeros_like(t)
            while damping < 1e12:
                try:
                    factor = cho_factor(H + damping * np.eye(len(H)))
                except (LinAlgError, ValueError):
                    damping = max(10 * damping, 1e-12)
                    continue
                step[free] = -cho_solve(factor, gradient / scale) / scale
                new = evaluate(t + step)
                if new[0] < value:
                    break
                damping *= 10
            else:
                break
            fall, t = value - new[0], t + step
            value, slopes, curves = new
            damping = max(damping / 100, 1e-14)
            if fall <= 1e-14 * abs(value):
                break
        return t

    def _by_lbfgs(self, w, b):
        # Over the columns that pull most; the others stay: still an upper bound.
        size = np.sqrt(self.P @ self.X**2)
        slopes = loss_of(self.case, self.y, self.X @ w + b, 1e-300)[1]
        pull = np.abs(self.X.T @ (self.P * slopes) + self.l2 * w)
        rank = np.where(size > 0, (pull + self.l1 * (w != 0)) / np.maximum(size, 1), -1)
        used = np.argsort(-rank)[:MOST_FREE]
        used = used[size[used] > 0]
        fixed = w.copy()
        fixed[used] = 0
        z0, cost = self.X @ fixed, self.l1 * np.abs(fixed).sum()
        cost += self.l2 / 2 * fixed @ fixed
        size = size[used]
        X, l1, l2 = self.X[:, used] / size, self.l1 / size, self.l2 / size**2
        k, best = len(used), np.inf
        start = w[used] * size
        x = np.concatenate([np.maximum(start, 0), np.maximum(-start, 0), [b]])
        bounds = [(0, None)] * (2 * k) + [(None, None)]
        for width in self._widths(w, b)[4::2]:

            def evaluate(x, width=width):
                v, bias = x[:k] - x[k:-1], x[-1]
                z = z0 + X @ v + bias
                losses, slopes, _ = loss_of(self.case, self.y, z, width)
                g = X.T @ (self.P * slopes) + l2 * v
                value = self.P @ losses + l1 @ (x[:k] + x[k:-1]) + l2 @ v**2 / 2
                last = self.case.fit_intercept * (self.P @ slopes)
                return value + cost, np.concatenate([g + l1, l1 - g, [last]])

            x = _lbfgs(evaluate, x, bounds)
            v = fixed.copy()
            v[used] = (x[:k] - x[k:-1]) / size
            best = min(best, sum(self(v, x[-1])))
        return best


def _lbfgs(evaluate, x, bounds):
    options = {"maxiter": 250, "maxfun": 500, "ftol": 1e-15, "gtol": 1e-12}
    result = minimize(
        evaluate, x, jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    return result.x


class SoftmaxObjective:
    """The objective of "multinomial" with three classes or more."""

    def __init__(self, case, X, y, P):
        self.case, self.X, self.P = case, X, P
        self.codes = y
        self.l1, self.l2 = penalties(case)

    def __call__(self, W, b):
        Z = self.X @ W.T + b
        losses = logsumexp(Z, axis=1) - Z[np.arange(len(Z)), self.codes]
        penalty = self.l1 * np.abs(W).sum() + self.l2 / 2 * (W**2).sum()
        size = np.abs(self.X) @ np.abs(W).T + np.abs(b)
        rounding = 1e-15 * (self.P @ size.sum(axis=1) + abs(self.P @ losses))
        return self.P @ losses + penalty, 8 * rounding

    def of_useless_model(self):
        """Return the loss of predictions that are all the same."""
        return math.log(self.codes.max() + 1)

    def reference(self, W, b):
        """Return the least value found by a method of another kind, and its error."""
        size = np.sqrt(self.P @ self.X**2)
        used = np.flatnonzero(size)[:400]
        X, shape = self.X[:, used] / size[used], (len(b), len(used))
        target = np.eye(len(b))[self.codes]
        l1, l2 = self.l1 / size[used], self.l2 / size[used] ** 2
        k = shape[0] * shape[1]

        def evaluate(x):
            V, bias = (x[:k] - x[k : 2 * k]).reshape(shape), x[2 * k :]
            Z = X @ V.T + bias
            losses = logsumexp(Z, axis=1) - Z[np.arange(len(Z)), self.codes]
            G = self.P[:, None] * (softmax(Z, axis=1) - target)
            both = (x[:k] + x[k : 2 * k]).reshape(shape)
            value = self.P @ losses + (both @ l1).sum() + (V**2 @ l2).sum() / 2
            g = (G.T @ X + l2 * V).ravel()
            cut = np.tile(l1, shape[0])
            last = self.case.fit_intercept * G.sum(axis=0)
            return value, np.concatenate([g + cut, cut - g, last])

        start = (W[:, used] * size[used]).ravel()
        x = np.concatenate([np.maximum(start, 0), np.maximum(-start, 0), b])
        bounds = [(0, None)] * (2 * k) + [(None, None)] * len(b)
        with np.errstate(all="ignore"):
            x = _lbfgs(evaluate, x, bounds)
        V = np.zeros_like(W)
        V[:, used] = (x[:k] - x[k : 2 * k]).reshape(shape) / size[used]
        return sum(self(V, x[2 * k :]))


# Findings that are known, each with the reason why it is so; see :func:`check`.
KNOWN = []


# --- the promises ---------------------------------------------------------------------


def problems(case, X, y, P, model):
    """Yield the objective of each problem and the point that the model is at."""
    W, b = np.atleast_2d(model.coef_).astype(float), model.intercept_.astype(float)
    if case.n_classes == 0:
        yield Objective(case, X, y, P), W[0], b[0]
    elif case.n_classes == 2:
        yield Objective(case, X, np.where(y == 1, 1.0, -1.0), P), W[0], b[0]
    elif case.loss == "multinomial":
        yield SoftmaxObjective(case, X, y, P), W, b
    else:
        for k in range(case.n_classes):
            target = np.where(y == k, 1.0, -1.0)
            yield Objective(case, X, target, P), W[k], b[k]


def check(case, known=()):
    """Fit a case; return "kept", "warned", "refused" or the reason why it is excused.

    Parameters
    ----------
    case : Case
        What to fit.
    known : sequence of (reason, predicate)
        Findings that are known: when the predicate is true of a case, its reason is
        returned instead of `Finding` being raised.

    Raises
    ------
    Finding
        When a promise is broken.
    """
    rows, X, y, weight = make_data(case)
    model = make_estimator(case)
    fit = {"strata": np.arange(len(y)) % 4} if case.sampler == "strata" else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Both say what is so: draws that are not needed, a minimum that is no model.
        warnings.filterwarnings("ignore", "sampler=.* had no effect", UserWarning)
        warnings.filterwarnings("ignore", "loss='perceptron'", UserWarning)
        try:
            model.fit(rows, y, sample_weight=weight, **fit)
        except ValueError as error:
            if len(str(error)) < 20 or "broadcast" in str(error):
                raise Finding(f"{case}: unclear {error!r}") from error
            return "refused"
    strange = [w for w in caught if not issubclass(w.category, ConvergenceWarning)]
    warned = len(caught) > len(strange)
    try:
        _judge(case, X, y, weight, model, rows, strange, warned)
    except Finding:
        for reason, predicate in known:
            if predicate(case):
                return reason
        raise
    return "warned" if warned else "kept"


def _judge(case, X, y, weight, model, rows, strange, warned):
    if strange:
        raise Finding(f"{case}: {strange[0].category.__name__} {strange[0].message}")
    for name in ("coef_", "intercept_"):
        if not np.isfinite(getattr(model, name)).all():
            raise Finding(f"{case}: {name} is not finite")
    if np.isnan(model.duality_gap_).any():
        raise Finding(f"{case}: duality_gap_ is NaN")
    predictions = np.asarray(model.predict(rows))
    if predictions.dtype.kind == "f" and not np.isfinite(predictions).all():
        raise Finding(f"{case}: predictions are not finite")
    P = np.full(len(y), 1 / len(y)) if weight is None else weight / weight.sum()
    for k, (objective, w, b) in enumerate(problems(case, X, y, P, model)):
        value, rounding = objective(w, b)
        best = min(objective.reference(w, b), value)
        excess = value - best
        gap = model.duality_gap_[k]
        # Values themselves are known to eleven digits or so.
        if excess > gap * (1 + 1e-9) + 2 * rounding + 1e-11 * abs(value):
            raise Finding(
                f"{case}: problem {k} is {excess:.3g} above {best:.6g}, but "
                f"duality_gap_ is {gap:.3g}"
            )
        enough = SLACK * case.tol * abs(best) + 2 * rounding
        enough = max(enough, NEAR_ZERO * objective.of_useless_model())
        if not warned and excess > enough:
            raise Finding(
                f"{case}: problem {k} ends at {value:.9g} after {model.n_iter_} passes "
                f"without a warning, {excess:.3g} above {best:.9g}"
            )


def simpler(case, known=()):
    """Return a case that fails as well, with as many defaults as possible."""

    def fails(case):
        try:
            check(case, known)
        except Finding:
            return True
        return False

    for field in fields(case):
        trial = replace(case, **{field.name: field.default})
        if trial != case and fails(trial):
            case = trial
    return case


if __name__ == "__main__":
    for text in sys.argv[1:]:
        try:
            print(check(eval(text)))
        except Finding as finding:
            print(finding)
            print(f"as well: {simpler(eval(text))}")
