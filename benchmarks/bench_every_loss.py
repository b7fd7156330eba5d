"""CPU seconds to 1 %, 0.1 % and 0.01 % of the optimum: kinks, regression, l1.

What ``bench_time_to_optimum.py`` does for logistic regression with an l2 penalty, for
the other losses and penalties. Ours is at its defaults, stops by itself at the ``tol``
that is asked for, and counts only if the objective really is that close; a peer is
stopped by an oracle at the first setting of its list that gets there. One thread, CPU
time, all contestants of a row in one run; compiling by numba is not counted.

All contestants solve the same problem: there is no intercept, which some of the peers
penalise and others do not, but a constant column among the features of narrow data,
which all penalise. glum, skglm and celer take part where they are installed.

Ratings and timestamps of MovieLens are regressions on who rated what, a column for each
user and film. With an l1 penalty, alpha is a share of the least at which all
coefficients are zero.

Constants of ours were chosen on the sets in SEEN or on sets alike: on newsgroups/0,
"wide sparse" and "genes" those of the working sets of features, on mnist/0 and coco/0
when there is one, on "rating" and "timestamp" when short rows are wide, on "houses"
when least squares are one step, on the others those of the descents; what is for few
rows on rows like "few rows" and "few factors", of other sizes.

Real data are read from the folder given by ``--data`` or the environment variable
SKLEARN_AWSGD_DATA; without it only generated and bundled sets are run.
"""

import _common  # noqa: F401, I001  (sets the number of threads first)

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _common import save, show
from bench_time_to_optimum import TARGETS, fit, geometric_mean, load
from scipy import sparse
from sklearn.datasets import load_diabetes
from sklearn.linear_model import (
    ElasticNet,
    LogisticRegression,
    Ridge,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor

EPSILON = 0.1
GRID = [1, 2, 5, 10, 20, 40, 80, 160, 320, 1000, 5000]
MOST_COLUMNS_OF_GLUM = 3000
TOLS = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8]
SEEN = (
    "newsgroups/0",
    "wide sparse",
    "genes",
    "heavy tails",
    "diabetes",
    "w8a",
    "cover_2v4",
    "mammography",
    "rare normal",
    "rare correlated",
    "few rows",
    "few factors",
    "houses",
    "rating",
    "timestamp",
    "mnist/0",
    "coco/0",
)
BINARY = "w8a a9a cover_2v4 mammography mnist/0 coco/0 newsgroups/0".split()
SHARES = (0.1, 0.01, 0.001)
CLASSIFIED = ("log_loss", "hinge", "squared_hinge")


@dataclass(frozen=True)
class Case:
    """A set, a loss and a penalty."""

    data: str
    loss: str
    penalty: str = "l2"
    alpha: float = 1e-4  # with l1, relative to the least that leaves nothing
    l1_ratio: float = 0.5  # of the elastic net


def rare(name):
    """Return a generated set with a rare class: 100,000 rows or more."""
    rng = np.random.default_rng(7)
    n, d = {"rare normal": (100_000, 39), "rare correlated": (200_000, 74)}[name]
    X = rng.standard_normal((n, d))
    if name == "rare correlated":
        X = X[:, :20] @ rng.standard_normal((20, d)) + X / 2
        X /= X.std(axis=0)
    z = 2.5 * X @ rng.standard_normal(d) / np.sqrt(d) - 5
    return X, rng.random(n) < 1 / (1 + np.exp(-z))


def wide(is_class):
    """Return generated sparse rows, 26,000 columns of which 200 matter."""
    rng = np.random.default_rng(3)
    X = sparse.random(5000, 26_000, 2e-3, format="csr", random_state=rng)
    w = np.zeros(26_000)
    w[rng.permutation(26_000)[:200]] = 4 * rng.standard_normal(200)
    z = X @ w + rng.standard_normal(5000) / 2
    return X, z > 0 if is_class else z


def words(is_class):
    """Return generated sparse rows whose columns are as uneven as those of texts."""
    rng = np.random.default_rng(11)
    n, d, length = 8000, 15_000, 60
    p = 1 / np.arange(1, d + 1) ** 0.9
    columns = rng.choice(d, size=n * length, p=p / p.sum())
    rows = np.repeat(np.arange(n), length)
    numbers = rng.lognormal(0, 0.5, n * length)
    X = sparse.csr_matrix((numbers, (rows, columns)), shape=(n, d))
    w = np.zeros(d)
    w[rng.permutation(3000)[:150]] = rng.standard_normal(150)
    z = X @ w + rng.standard_normal(n)
    return X, z > 0 if is_class else z


def chain(is_class):
    """Return generated dense rows, each column of which is much like the one before."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((400, 3000))
    for j in range(1, X.shape[1]):
        X[:, j] = 0.9 * X[:, j - 1] + np.sqrt(1 - 0.81) * X[:, j]
    w = np.zeros(X.shape[1])
    w[::60] = rng.standard_normal(50)
    z = X @ w + rng.standard_normal(len(X))
    return X, z > 0 if is_class else z


def few(name, is_class):
    """Return fewer dense rows than columns: independent, or of twenty factors."""
    rng = np.random.default_rng(13)
    n, d = 300, 1000
    X = Z = rng.standard_normal((n, d))
    if name == "few factors":
        Z = rng.standard_normal((n, 20))
        X = Z @ rng.standard_normal((20, d)) / 4 + 0.1 * X
    z = Z[:, 0] + rng.standard_normal(n)
    return X, z > 0 if is_class else z


def houses():
    """Return generated rows like those of a census, skewed, and a capped target."""
    rng = np.random.default_rng(14)
    n = 20_640
    income, size = rng.lognormal(1.2, 0.45, n), rng.lognormal(7, 0.7, n)
    rooms = rng.lognormal(1.6, 0.3, n) * income**0.2
    place = rng.standard_normal((n, 2)) @ [[2, -1.7], [0, 0.5]]
    age = rng.uniform(1, 52, n)
    X = [income, age, rooms, rooms / 5 * rng.lognormal(0, 0.1, n), size]
    X += [rng.lognormal(1, 0.2, n), *place.T]
    y = 0.4 * income + 0.01 * age - 0.1 * np.abs(place).sum(axis=1)
    y = np.minimum(y + rng.laplace(0, 0.5, n), 3)
    return np.column_stack(X), (y - y.mean()) / y.std()


def entries(target, folder):
    """Return who rated what, a column for each, and a target of MovieLens."""
    z = np.load(Path(folder) / "movielens_100k.npz", allow_pickle=False)
    n, y = len(z["user"]), z[target].astype(float)
    columns = np.stack([z["user"].astype(int), 943 + z["item"].astype(int)], axis=1)
    places = columns.ravel(), 2 * np.arange(n + 1)
    X = sparse.csr_matrix((np.ones(2 * n), *places), shape=(n, 943 + 1682))
    return X, (y - y.mean()) / y.std()


def load_case(case, folder):
    """Return the rows and targets of a case."""
    name, is_class = case.data, case.loss in CLASSIFIED
    if name in ("rating", "timestamp"):
        return entries(name, folder)
    if name in ("wide sparse", "words", "chain"):
        return {"wide sparse": wide, "words": words, "chain": chain}[name](is_class)
    if name.startswith("few"):
        return few(name, is_class)
    if name == "genes":
        rng = np.random.default_rng(4)
        X = rng.standard_normal((100, 5000)) + rng.standard_normal((100, 1))
        z = X[:, :20] @ rng.standard_normal(20) + rng.standard_normal(100)
        return X, z > 0 if is_class else z
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
        y = (y - y.mean()) / y.std()
    elif name == "heavy tails":
        rng = np.random.default_rng(5)
        X = rng.standard_normal((100_000, 60))
        y = X @ rng.standard_normal(60) + rng.standard_t(3, size=len(X))
    elif name == "houses":
        X, y = houses()
    elif name.startswith("rare"):
        X, y = rare(name)
    else:
        X, y = load(name, folder)
    if name.startswith("newsgroups"):
        return X, y
    if sparse.issparse(X):
        return sparse.csr_matrix(sparse.hstack([X, np.ones((X.shape[0], 1))])), y
    X = StandardScaler().fit_transform(X)
    return np.hstack([X, np.ones((len(X), 1))]), y


def strengths(case, X, y):
    """Return the strengths of l1 and l2."""
    if case.penalty == "l2":
        return 0.0, case.alpha
    sign = np.where(y, 1.0, -1.0) if case.loss in CLASSIFIED else y
    slope = sign / 2 if case.loss == "log_loss" else sign
    l1 = case.alpha * np.abs(X.T @ slope).max() / len(y)
    return l1, 0.0 if case.penalty == "l1" else l1 * (1 / case.l1_ratio - 1)


def objective(case, X, y, w, l1, l2):
    """Return the objective of coefficients."""
    z = X @ np.ravel(w)
    if case.loss in CLASSIFIED:
        margin = np.where(y, 1, -1) * z
        losses = {
            "log_loss": lambda: np.logaddexp(0, -margin),
            "hinge": lambda: np.maximum(1 - margin, 0),
            "squared_hinge": lambda: np.maximum(1 - margin, 0) ** 2,
        }[case.loss]()
    else:
        r = np.abs(z - y)
        losses = {
            "squared_error": lambda: r**2 / 2,
            "huber": lambda: np.where(r <= 1, r**2 / 2, r - 0.5),
            "epsilon_insensitive": lambda: np.maximum(r - EPSILON, 0),
        }[case.loss]()
    return losses.mean() + l1 * np.abs(w).sum() + l2 / 2 * np.sum(np.square(w))


def ours(case, l1, l2, tol, seed):
    """Return our estimator."""
    alpha = l1 + l2
    settings = {
        "loss": case.loss,
        "penalty": case.penalty,
        "alpha": alpha,
        "l1_ratio": l1 / alpha,
        "fit_intercept": False,
        "tol": tol,
        "random_state": seed,
    }
    if case.loss in CLASSIFIED:
        return AWSGDClassifier(**settings)
    epsilon = 1.0 if case.loss == "huber" else EPSILON
    return AWSGDRegressor(epsilon=epsilon, **settings)


def peers(case, X, l1, l2):
    """Yield the name of each peer, a list of settings, and what makes a model of one.

    Models that iterate have more and more iterations, others smaller tolerances.
    """
    n, alpha = X.shape[0], l1 + l2
    exact = {"fit_intercept": False, "tol": 1e-14}
    if case.loss in ("hinge", "squared_hinge"):
        svc = {"loss": case.loss, "C": 1 / (alpha * n), "random_state": 0, **exact}
        if case.loss == "squared_hinge":
            yield (
                "LinearSVC primal",
                GRID,
                lambda k: LinearSVC(dual=False, max_iter=k, **svc),
            )
        yield "LinearSVC", GRID, lambda k: LinearSVC(dual=True, max_iter=k, **svc)
        # Rows that it leaves out come back when its tolerance is reached only.
        yield (
            "LinearSVC",
            TOLS,
            lambda tol: LinearSVC(dual=True, max_iter=10_000, **(svc | {"tol": tol})),
        )
    if case.loss == "log_loss" and case.penalty == "l2":
        logistic = {"C": 1 / (alpha * n), "random_state": 0, **exact}
        for solver in ("lbfgs", "newton-cholesky", "newton-cg", "liblinear"):
            dual = {"dual": True} if solver == "liblinear" else {}
            yield (
                solver,
                GRID,
                lambda k, solver=solver, dual=dual: LogisticRegression(
                    solver=solver, max_iter=k, **dual, **logistic
                ),
            )
    if case.loss == "epsilon_insensitive":
        svr = {"epsilon": EPSILON, "C": 1 / (alpha * n), "random_state": 0, **exact}
        yield "LinearSVR", GRID, lambda k: LinearSVR(max_iter=k, **svr)
        yield (
            "LinearSVR",
            TOLS,
            lambda tol: LinearSVR(max_iter=10_000, **(svr | {"tol": tol})),
        )
    if case.penalty == "l2" and case.loss != "squared_error":
        sgd = SGDClassifier if case.loss in CLASSIFIED else SGDRegressor
        epsilon = 1.0 if case.loss == "huber" else EPSILON
        rates = [("optimal", 0.01), ("invscaling", 0.01), ("adaptive", 0.01)]
        for rate, eta0 in rates:
            yield (
                "SGD",
                [1, 2, 5, 10, 20, 50],
                lambda k, rate=rate, eta0=eta0: sgd(
                    loss=case.loss,
                    alpha=alpha,
                    epsilon=epsilon,
                    learning_rate=rate,
                    eta0=eta0,
                    max_iter=k,
                    tol=None,
                    fit_intercept=False,
                    random_state=0,
                ),
            )
    if case.loss == "squared_error" and case.penalty == "l2":
        for solver in ("cholesky", "lsqr", "sparse_cg"):
            yield (
                f"Ridge {solver}",
                [1e-1, 1e-2, 1e-3, 1e-5, 1e-8],
                lambda tol, solver=solver: Ridge(
                    alpha * n, solver=solver, tol=tol, fit_intercept=False
                ),
            )
    if case.loss == "squared_error" and l1 > 0:
        coordinate = {"l1_ratio": l1 / alpha, "fit_intercept": False}
        yield (
            "Lasso, ElasticNet",
            TOLS,
            lambda tol: ElasticNet(alpha, tol=tol, max_iter=10_000, **coordinate),
        )
    if case.loss == "log_loss" and l1 > 0:
        logistic = {"C": 1 / (alpha * n), "l1_ratio": l1 / alpha, **exact}
        if l2 == 0:
            yield (
                "liblinear",
                GRID,
                lambda k: LogisticRegression(
                    solver="liblinear", max_iter=k, random_state=0, **logistic
                ),
            )
        yield (
            "saga",
            GRID,
            lambda k: LogisticRegression(
                solver="saga", max_iter=k, random_state=0, **logistic
            ),
        )
    yield from installed_peers(case, X, l1, l2)


def installed_peers(case, X, l1, l2):
    """Yield peers that need not be installed, as `peers` does."""
    n, alpha = X.shape[0], l1 + l2
    try:
        import glum
    except ImportError:
        glum = None
    try:
        import skglm
    except ImportError:
        skglm = None
    try:
        import celer
    except ImportError:
        celer = None
    families = {"log_loss": "binomial", "squared_error": "gaussian"}
    # It has a matrix of the curvature of all features.
    if glum and case.loss in families and X.shape[1] <= MOST_COLUMNS_OF_GLUM:
        yield (
            "glum",
            TOLS,
            lambda tol: glum.GeneralizedLinearRegressor(
                alpha=alpha,
                l1_ratio=l1 / alpha,
                family=families[case.loss],
                fit_intercept=False,
                gradient_tol=tol,
                max_iter=200,
            ),
        )
    if skglm and l1 > 0:
        settings = {"max_iter": 200, "fit_intercept": False}
        # Its tolerance is one of slopes, which are as small as alpha.
        if case.loss == "log_loss" and l2 == 0:
            yield (
                "skglm",
                TOLS,
                lambda tol: skglm.SparseLogisticRegression(
                    alpha, tol=tol * alpha, **settings
                ),
            )
        if case.loss == "squared_error":
            yield (
                "skglm",
                TOLS,
                lambda tol: skglm.ElasticNet(
                    alpha, l1_ratio=l1 / alpha, tol=tol * alpha, **settings
                ),
            )
    if celer and l1 > 0 and l2 == 0:
        if case.loss == "log_loss":
            yield (
                "celer",
                TOLS,
                lambda tol: celer.LogisticRegression(
                    C=1 / (alpha * n), tol=tol, fit_intercept=False
                ),
            )
        if case.loss == "squared_error":
            yield (
                "celer",
                TOLS,
                lambda tol: celer.Lasso(alpha, tol=tol, fit_intercept=False),
            )


def run_case(case, folder, cap, n_seeds):
    """Return a row for each accuracy."""
    X, y = load_case(case, folder)
    l1, l2 = strengths(case, X, y)

    def value(model):
        return objective(case, X, y, np.ravel(model.coef_), l1, l2)

    found = {
        to: [
            (fit(model, X, y), value(model))
            for model in (ours(case, l1, l2, to, seed) for seed in range(n_seeds))
        ]
        for to in TARGETS
    }
    best = min(v for runs in found.values() for _, v in runs)
    runs, warm = [], set()
    for peer, grid, make in peers(case, X, l1, l2):
        if peer in ("glum", "skglm", "celer") and peer not in warm:
            warm.add(peer)
            fit(make(grid[0]), X, y)
        spent = 0.0
        for setting in grid:
            model = make(setting)
            seconds = fit(model, X, y)
            runs.append((peer, seconds, value(model)))
            best, spent = min(best, runs[-1][2]), spent + seconds
            if runs[-1][2] <= (1 + TARGETS[-1] / 2) * best or spent > cap:
                break
    rows = []
    for to in TARGETS:
        seconds, values = zip(*found[to], strict=True)
        n_reached = sum(v <= (1 + to) * best for v in values)
        there = [(s, peer) for peer, s, v in runs if v <= (1 + to) * best]
        fastest, peer = min(there, default=(float("inf"), "none"))
        mine = float(np.median(seconds)) if n_reached > n_seeds / 2 else float("inf")
        rows.append(
            {
                "set": case.data,
                "loss": case.loss,
                "penalty": case.penalty,
                "alpha": case.alpha,
                "to": to,
                "ours": mine,
                "reached": f"{n_reached}/{n_seeds}",
                "best peer": peer,
                "seconds": fastest,
                "ratio": mine / fastest if np.isfinite(fastest) else 0.0,
                "peers": {
                    name: min(
                        (s for s, other in there if other == name),
                        default=float("inf"),
                    )
                    for name in dict.fromkeys(run[0] for run in runs)
                },
            }
        )
    return rows


def path(folder):
    """Return seconds of a path of ten l1 penalties: a warm-started loop, and peers."""
    X, y = load_case(Case("wide sparse", "log_loss", "l1"), folder)
    alphas = np.abs(X.T @ (y - 0.5)).max() / len(y) * np.logspace(-0.3, -2, 10)
    tol = 1e-3

    class Loop:
        def fit(self, X, y):
            model = ours(Case("", "log_loss", "l1"), 1.0, 0.0, tol, 0)
            model.set_params(warm_start=True)
            self.values = []
            for alpha in alphas:
                model.set_params(alpha=alpha).fit(X, y)
                self.values.append(model.coef_.ravel().copy())

    class Peer(Loop):
        def fit(self, X, y):
            model = LogisticRegression(
                solver="liblinear", l1_ratio=1.0, fit_intercept=False, tol=1e-4
            )
            self.values = []
            for alpha in alphas:
                model.set_params(C=1 / (alpha * len(y))).fit(X, y)
                self.values.append(model.coef_.ravel().copy())

    case, loop, peer = Case("", "log_loss", "l1"), Loop(), Peer()
    seconds = {"ours, warm_start": fit(loop, X, y), "liblinear": fit(peer, X, y)}
    worst = {}
    for name, run in (("ours, warm_start", loop), ("liblinear", peer)):
        pairs = zip(alphas, loop.values, peer.values, run.values, strict=True)
        worst[name] = max(
            objective(case, X, y, w, alpha, 0.0)
            / min(objective(case, X, y, v, alpha, 0.0) for v in (a, b))
            - 1
            for alpha, a, b, w in pairs
        )
    return [
        {"contestant": name, "seconds": s, "worst distance": float(worst[name])}
        for name, s in seconds.items()
    ]


def cases(has_data):
    """Return all cases."""
    found = []
    for share in (0.5, 0.1, 0.01, 0.001):
        if has_data:
            found.append(Case("newsgroups/0", "log_loss", "l1", share))
            found.append(Case("newsgroups/11", "log_loss", "l1", share))
        found.append(Case("wide sparse", "log_loss", "l1", share))
        found.append(Case("wide sparse", "squared_error", "l1", share))
    for share in (0.5, 0.1, 0.01):
        found.append(Case("genes", "squared_error", "l1", share))
        found.append(Case("genes", "log_loss", "l1", share))
        found.append(Case("genes", "squared_error", "elasticnet", share))
    for share in (0.1, 0.01):
        for name in ("words", "chain"):
            found.append(Case(name, "squared_error", "l1", share))
            found.append(Case(name, "log_loss", "l1", share))
    found += [
        Case("heavy tails", "squared_error", "l1", 0.01),
        Case("heavy tails", "squared_error", "elasticnet", 0.01),
        Case("rare normal", "hinge"),
        Case("rare normal", "squared_hinge"),
        Case("heavy tails", "epsilon_insensitive"),
        Case("heavy tails", "huber"),
        Case("heavy tails", "squared_error"),
        Case("diabetes", "squared_error", alpha=1e-2),
        Case("diabetes", "epsilon_insensitive", alpha=1e-2),
        Case("rare correlated", "hinge"),
        Case("rare normal", "log_loss", "l1", 0.01),
    ]
    for name in ("few rows", "few factors"):
        losses = ("log_loss", "hinge", "squared_hinge", "epsilon_insensitive")
        found += [Case(name, loss) for loss in losses]
    losses = ("squared_error", "huber", "epsilon_insensitive")
    regressions = ["houses"] + ["rating", "timestamp"] * has_data
    for name in regressions:
        found += [Case(name, loss) for loss in losses]
        found += [Case(name, "squared_error", "l1", share) for share in SHARES]
    found += [Case("diabetes", "huber", alpha=1e-2)]
    found += [Case("diabetes", "squared_error", "l1", share) for share in SHARES]
    for name in BINARY if has_data else ():
        found += [Case(name, loss) for loss in ("hinge", "squared_hinge")]
        if not name.startswith("newsgroups"):
            found += [Case(name, "log_loss", "l1", share) for share in SHARES]
        found.append(Case(name, "log_loss", "elasticnet", 0.01))
    return found


def main():
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("SKLEARN_AWSGD_DATA"))
    parser.add_argument("--cap", type=float, default=20, help="seconds for a peer")
    parser.add_argument("--seeds", type=int, default=5, help="fits of ours")
    parser.add_argument("--only", default="", help="part of a set, loss or penalty")
    options = parser.parse_args()
    if options.data is None:
        print("No data folder (--data or SKLEARN_AWSGD_DATA): generated sets only.")
    rows, warm = [], path(options.data)
    show("a path of ten l1 penalties", warm)
    for case in cases(options.data is not None):
        if options.only not in f"{case.data} {case.loss} {case.penalty}":
            continue
        new = run_case(case, options.data, options.cap, options.seeds)
        rows += new
        show(
            f"{case.data}, {case.loss}, {case.penalty}",
            [{k: v for k, v in row.items() if k != "peers"} for row in new],
        )
    if not options.only:
        results = {"rows": rows, "path": warm, "summary": summarize(rows, options.cap)}
        save("every_loss", results)
    for text, value in summarize(rows, options.cap).items():
        print(f"{text}: {value}")


def summarize(rows, cap):
    """Return what the ratios to the best peer of each row come to."""
    compared = [row for row in rows if 0 < row["ratio"] < np.inf]
    ratios = [row["ratio"] for row in compared]
    unseen = [row["ratio"] for row in compared if row["set"] not in SEEN]
    return {
        "geometric mean of ours / best peer": geometric_mean(ratios),
        "the same for sets that no constant was chosen on": geometric_mean(unseen),
        "largest ratio": max(ratios, default=float("nan")),
        "first in": f"{sum(r < 1 for r in ratios)} of {len(ratios)}",
        "not reached by ours": sum(row["ratio"] == np.inf for row in rows),
        "reached by no peer": sum(row["ratio"] == 0 for row in rows),
        "cap in seconds": cap,
    }


if __name__ == "__main__":
    main()
