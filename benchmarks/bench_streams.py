"""Streams: partial_fit beside SGD, Vowpal Wabbit, river and a refit on all rows.

Every row is predicted before it is learned; log-loss (squared error for regression) and
average precision are those of the last 80 % of a stream. Ours has its defaults. Beside
it: SGDClassifier at its defaults, averaged, and the best of 16 settings in hindsight;
Vowpal Wabbit at its defaults and with ``--coin``, and river's logistic regression,
where they are installed; and LogisticRegression refitted on all rows so far, before
every chunk, with the penalty that ours has.

The constants of the package were chosen while looking at the sets of
SKLEARN_AWSGD_DATA, so that the figures of "losses" and "others" are no test of them.
Those of "unseen" are: streams that are generated here, and data that scikit-learn has.

    python benchmarks/bench_streams.py
    python benchmarks/bench_streams.py --quick
    python benchmarks/bench_streams.py --only losses cost growth
    python benchmarks/bench_streams.py --rows 20000 --all-columns
    python benchmarks/bench_streams.py --only soak
"""

import argparse
import copy
import json
import multiprocessing
import os
import pickle
import resource
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from _common import RESULTS, save, show
from scipy import sparse
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier, SGDRegressor
from sklearn.metrics import average_precision_score
from sklearn.preprocessing import StandardScaler

from sklearn_awsgd import AWSGDClassifier, AWSGDRegressor

ALPHA = 1e-4
# 16 settings, the best of which is known in hindsight only.
SETTINGS = [
    {"alpha": alpha, **rate}
    for alpha in (1e-6, 1e-5, 1e-4, 1e-3)
    for rate in (
        {},
        {"learning_rate": "constant", "eta0": 0.01},
        {"learning_rate": "constant", "eta0": 0.1},
        {"learning_rate": "invscaling", "eta0": 0.3, "power_t": 0.3},
    )
]
LEAST = 1e-7
# Generated streams that are learned in small chunks, too.
IN_SMALL_CHUNKS = "logistic", "rare class, heavy tails", "sparse, 3000 columns"


# Data.


def read_csr(z):
    """Return the CSR matrix of a file."""
    parts = z["data"].astype(float), z["indices"].astype(np.int32)
    return sparse.csr_matrix((*parts, z["indptr"].astype(np.int32)), tuple(z["shape"]))


def read_sets(folder, one):
    """Yield name, X and labels (True and False) of each set, one or three columns."""
    if folder is None:
        print("No data: set SKLEARN_AWSGD_DATA.")
        return

    def load(name):
        return np.load(os.path.join(folder, f"{name}.npz"))

    z = load("cover_2v4")
    yield "cover_2v4", StandardScaler().fit_transform(z["X"].astype(float)), z["y"] > 0
    for name in ("a9a", "w8a"):
        z = load(name)
        yield name, read_csr(z), z["y"] > 0
    z = load("mnist")
    X = z["X_train"].reshape(len(z["y_train"]), -1) / 255.0
    for digit in (3,) if one else (0, 3, 8):
        yield f"mnist {digit}", X, z["y_train"] == digit
    z = load("coco_effnetlite0")
    X, Y = z["X"].astype(float), z["Y"][:, z["voc20_columns"]]
    for column in (2,) if one else (2, 8, 14):
        yield f"coco {column}", X, Y[:, column] > 0
    z = load("newsgroups20_counts")
    X = TfidfTransformer(sublinear_tf=True).fit_transform(read_csr(z)).tocsr()
    for label in (3,) if one else (3, 10, 15):
        yield f"newsgroups {label}", X, z["y"] == label


def order_of(kind, X, y, n_rows, rng):
    """Return the rows of a stream: file order, shuffled or with a drift."""
    order = rng.permutation(len(y))[:n_rows]
    if kind == "file":
        return np.sort(order)
    if kind == "balance":
        # From one in a hundred to one in ten.
        everything = rng.permutation(len(y))
        pools = [list(everything[~y[everything]]), list(everything[y[everything]])]
        shares, rows = np.linspace(0.01, 0.1, n_rows), []
        for share in shares:
            pool = pools[int(rng.random() < share)]
            if not pool:
                break
            rows.append(pool.pop())
        return np.array(rows)
    if kind == "sorted":
        half = len(order) // 2
        columns = X[order]
        if sparse.issparse(X):
            column = columns.multiply(columns).sum(axis=0).A1.argmax()
            values = columns[half:, column].toarray().ravel()
        else:
            values = columns[half:, columns.var(axis=0).argmax()]
        order[half:] = order[half:][np.argsort(values, kind="stable")]
    return order


# Learners: `predict` returns scores of the positive class, `learn` takes a chunk.


class Plain:
    """An estimator of scikit-learn's kind."""

    def __init__(self, model, classes):
        self.model, self.arguments = model, {"classes": classes}

    def predict(self, X):
        p = np.clip(self.model.predict_proba(X), LEAST, 1 - LEAST)
        return np.log(p)

    def learn(self, X, y):
        self.model.partial_fit(X, y, **self.arguments)
        self.arguments = {}


class Regression(Plain):
    """A regressor."""

    def __init__(self, model):
        self.model, self.arguments = model, {}

    def predict(self, X):
        return self.model.predict(X)


class Refit:
    """Fitted to all rows so far, before every chunk or every `every` rows."""

    def __init__(self, classes, every=1000):
        self.classes, self.every, self.parts, self.model = classes, every, [], None
        self.n, self.n_fitted = 0, 0

    def predict(self, X):
        if self.n - self.n_fitted >= self.every or self.model is None:
            stack = sparse.vstack if sparse.issparse(X) else np.vstack
            rows = stack([part for part, _ in self.parts])
            y = np.concatenate([part for _, part in self.parts])
            if sparse.issparse(rows):
                rows = rows.tocsr()
            self.n_fitted = self.n
            if len(np.unique(y)) < 2:
                self.constant = y[0]
                return np.full((X.shape[0], len(self.classes)), np.log(0.5))
            model = LogisticRegression(C=1 / (ALPHA * self.n), tol=1e-4, max_iter=300)
            self.model = model.fit(rows, y)
        p = np.full((X.shape[0], len(self.classes)), LEAST)
        p[:, np.searchsorted(self.classes, self.model.classes_)] = (
            self.model.predict_proba(X)
        )
        return np.log(np.clip(p, LEAST, 1 - LEAST))

    def learn(self, X, y):
        self.parts.append((X, y))
        self.n += len(y)


class RidgeRefit(Refit):
    """The same with Ridge."""

    def __init__(self):
        super().__init__(None)

    def predict(self, X):
        rows = np.vstack([part for part, _ in self.parts])
        y = np.concatenate([part for _, part in self.parts])
        return Ridge(alpha=ALPHA * self.n).fit(rows, y).predict(X)


class VowpalWabbit:
    """Vowpal Wabbit, by its Python package."""

    def __init__(self, options):
        from vowpalwabbit import Workspace

        self.model = Workspace(f"--loss_function logistic --quiet {options}")

    def lines(self, X):
        X = sparse.csr_matrix(X)
        for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
            pairs = zip(X.indices[start:end], X.data[start:end], strict=True)
            yield "| " + " ".join(f"{j}:{x:.6g}" for j, x in pairs)

    def predict(self, X):
        z = np.array([self.model.predict(line) for line in self.lines(X)])
        return -np.logaddexp(0, np.column_stack([z, -z]))

    def learn(self, X, y):
        for label, line in zip(y, self.lines(X), strict=True):
            self.model.learn(f"{1 if label else -1} {line}")


class River:
    """river's logistic regression with its default optimiser, scaled."""

    def __init__(self):
        from river import linear_model, preprocessing

        self.model = preprocessing.StandardScaler() | linear_model.LogisticRegression()

    def rows(self, X):
        X = X.toarray() if sparse.issparse(X) else X
        return [dict(enumerate(row)) for row in X.tolist()]

    def predict(self, X):
        rows = self.rows(X)
        p = [self.model.predict_proba_one(row).get(True, 0.5) for row in rows]
        p = np.clip(np.array(p), LEAST, 1 - LEAST)
        return np.log(np.column_stack([1 - p, p]))

    def learn(self, X, y):
        for row, label in zip(self.rows(X), y.tolist(), strict=True):
            self.model.learn_one(row, label)


def run(learner, X, y, size, loss):
    """Return losses and scores of all rows before they were learned, and CPU time."""
    losses, scores, seconds = np.full(len(y), np.nan), np.zeros(len(y)), 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start in range(0, len(y), size):
            part = slice(start, start + size)
            rows, target = X[part], y[part]
            if start:
                predicted = learner.predict(rows)
                losses[part] = loss(predicted, target)
                scores[part] = predicted[..., -1] if predicted.ndim == 2 else predicted
            began = time.process_time()
            learner.learn(rows, target)
            seconds += time.process_time() - began
    return losses, scores, seconds


def log_loss(logs, y):
    """Return the log-loss of each row; logs of probabilities are made to sum to one."""
    logs = logs - logsumexp(logs, axis=1, keepdims=True)
    return -logs[np.arange(len(y)), y.astype(int)]


def squared_error(predicted, y):
    """Return half the squared error of each row."""
    return 0.5 * (predicted - y) ** 2


def summary(losses, scores, y, binary):
    """Return mean loss and average precision over the last 80 %."""
    last = slice(len(y) // 5, None)
    precision = average_precision_score(y[last], scores[last]) if binary else np.nan
    return float(np.nanmean(losses[last])), float(precision)


def optional_peers(X, n_rows):
    """Yield peers that are installed, where their rows are not too slow to make."""
    work = n_rows * (X.nnz / X.shape[0] if sparse.issparse(X) else X.shape[1])
    if work > 3e6:
        return
    makers = {
        "vw": lambda: VowpalWabbit(""),
        "vw coin": lambda: VowpalWabbit("--coin"),
        "river": River,
    }
    for name, make in makers.items():
        if name == "river" and n_rows * X.shape[1] > 2e6:
            continue
        try:
            yield name, make()
        except ImportError:
            continue


def losses(folder, n_rows, one=False, sets=(), chunks=(1, 100, 1000)):
    """Compare losses on binary streams."""
    rows = []
    for package in ("vowpalwabbit", "river"):
        try:
            __import__(package)
        except ImportError:
            print(f"{package} is not installed: left out.")
    for name, X, y in read_sets(folder, one):
        if sets and name.split()[0] not in sets:
            continue
        kinds = ["shuffled", "balance", "sorted"]
        kinds += ["file"] * name.startswith("newsgroups")
        for kind in kinds:
            order = order_of(kind, X, y, n_rows, np.random.default_rng(0))
            data, labels = X[order], y[order]
            for size in chunks if kind == "shuffled" else chunks[-1:]:
                rows.append(compare(f"{name}, {kind}", data, labels, size))
                show(f"{name}, {kind}, chunks of {size}", [rows[-1]])
    return rows


def compare(name, X, y, size):
    """Return the losses of all learners on one stream."""
    classes = np.array([False, True])
    if size == 1:
        X, y = X[:1500], y[:1500]
    row = {"stream": name, "rows": len(y), "chunk": size}

    def add(label, learner):
        found = run(learner, X, y, size, log_loss)
        loss, precision = summary(found[0], found[1], y, True)
        row[label], row[f"{label} AP"] = loss, precision
        return loss, precision, found[2]

    *_, seconds = add("ours", Plain(AWSGDClassifier(random_state=0), classes))
    sgd = {"loss": "log_loss", "random_state": 0}
    *_, sgd_seconds = add("sgd", Plain(SGDClassifier(**sgd), classes))
    add("averaged", Plain(SGDClassifier(**sgd, average=True), classes))
    best = None
    for setting in SETTINGS if size > 1 else SETTINGS[::4]:
        learner = Plain(SGDClassifier(**sgd, **setting), classes)
        found = run(learner, X, y, size, log_loss)
        found = summary(found[0], found[1], y, True)
        if best is None:
            best = found
        best = min(best[0], found[0]), max(best[1], found[1])
    row["tuned"], row["tuned AP"] = best
    for label, learner in optional_peers(X, len(y)) if size == 1000 else ():
        add(label, learner)
    # A refit of wide data takes seconds.
    add("refit", Refit(classes, 1000 if X.shape[1] <= 500 else 2000))
    row["ours / refit"] = row["ours"] / row["refit"]
    row["ours / tuned"] = row["ours"] / row["tuned"]
    row["CPU / sgd"] = seconds / sgd_seconds
    return row


def compare_softmax(name, X, y, size, every):
    """Return the losses of softmax regressions on one stream."""
    classes = np.unique(y)
    return compare_losses(
        name,
        {
            "ours": Plain(AWSGDClassifier("multinomial", random_state=0), classes),
            "sgd": Plain(SGDClassifier(loss="log_loss", random_state=0), classes),
            "refit": Refit(classes, every),
        },
        (X, y, size, log_loss),
    )


def compare_regression(name, X, y, size):
    """Return the squared errors of regressions on one stream."""
    return compare_losses(
        name,
        {
            "ours": Regression(AWSGDRegressor(random_state=0)),
            "sgd": Regression(SGDRegressor(random_state=0)),
            "refit": RidgeRefit(),
        },
        (X, y, size, squared_error),
    )


def compare_losses(name, learners, stream):
    """Return the losses of some learners, and their CPU seconds."""
    row = {"stream": name, "rows": len(stream[1]), "chunk": stream[2]}
    for label, learner in learners.items():
        found = run(learner, *stream)
        row[label] = summary(*found[:2], stream[1], False)[0]
        row[f"{label} s"] = found[2]
    row["ours / refit"] = row["ours"] / row["refit"]
    show(name, [row])
    return row


def others(folder, n_rows):
    """Softmax regression and regression."""
    if folder is None:
        return []
    rng, rows = np.random.default_rng(0), []
    z = np.load(os.path.join(folder, "mnist.npz"))
    order = rng.permutation(len(z["y_train"]))[:n_rows]
    X = z["X_train"].reshape(len(z["y_train"]), -1)[order] / 255.0
    y = z["y_train"][order].astype(int)
    drift = np.arange(len(y)) >= len(y) // 2
    for name, target in {
        "mnist": y,
        "mnist, labels turn": np.where(drift, (y + 1) % 10, y),
    }.items():
        rows.append(compare_softmax(name, X, target, 1000, 2000))
    z = np.load(os.path.join(folder, "cover_2v4.npz"))
    order = rng.permutation(len(z["y"]))[:n_rows]
    X = StandardScaler().fit_transform(z["X"][order].astype(float))
    X, y = np.ascontiguousarray(X[:, 1:]), X[:, 0].copy()
    sign = np.where(np.arange(len(y)) < len(y) // 2, 1, -1)
    for name, target in {"cover": y, "cover, sign turns": sign * y}.items():
        rows.append(compare_regression(name, X, target, 1000))
    return rows


def unseen_sets(n, rng):
    """Yield name, X, labels and size of the chunks of streams made here."""

    def labels(scores):
        return scores + rng.logistic(size=len(scores)) > 0

    time = np.linspace(0, 1, n)
    X = rng.standard_normal((n, 20))
    yield "logistic", X, labels(X @ rng.standard_normal(20)), 500
    X = rng.standard_t(4, (n, 30))
    yield "rare class, heavy tails", X, labels(X[:, :5].sum(axis=1) - 6.5), 500
    X = rng.standard_normal((n, 40)) @ rng.standard_normal((40, 40))
    yield "correlated", X, labels(X @ rng.standard_normal(40) / 10), 500
    X = rng.standard_normal((n, 10))
    angle = 2 * np.pi * time
    yield (
        "rotating",
        X,
        labels(3 * (np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1])),
        500,
    )
    yield "flip", X, labels(np.where(time < 0.5, 2, -2) * X[:, :4].sum(axis=1)), 500
    yield "balance turns", X, labels(2 * X[:, 0] - 4 + 6 * time), 500
    X = sparse.random(n, 3000, 0.01, "csr", random_state=0)
    X.data[:] = 1.0
    yield "sparse, 3000 columns", X, labels(X @ rng.standard_normal(3000) - 1), 500
    X = rng.standard_normal((n, 600)) @ rng.standard_normal((600, 600)) / 25
    yield "dense, 600 columns", X, labels(X @ rng.standard_normal(600) / 10 - 2), 500
    X, y = load_breast_cancer(return_X_y=True)
    order = rng.permutation(len(y))
    yield "breast cancer", StandardScaler().fit_transform(X)[order], y[order] > 0, 20


def unseen(n_rows):
    """Streams that no constant was chosen on."""
    rng, rows = np.random.default_rng(1), []
    for name, X, y, size in unseen_sets(n_rows, rng):
        for chunk in (size, 100, 1) if name in IN_SMALL_CHUNKS else (size,):
            rows.append(compare(name, X, y, chunk))
            show(f"Unseen: {name}, chunks of {chunk}", [rows[-1]])
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    others = [compare_softmax("digits", X[order] / 16, y[order], 100, 100)]
    X, y = load_diabetes(return_X_y=True)
    X, y = StandardScaler().fit_transform(X), (y - y.mean()) / y.std()
    others.append(compare_regression("diabetes", X, y, 20))
    X = rng.standard_normal((n_rows, 15))
    y = X @ rng.standard_normal(15) + rng.standard_t(3, n_rows)
    others.append(compare_regression("regression, heavy tails", X, y, 500))
    scores = X @ rng.standard_normal((15, 5)) + rng.gumbel(size=(n_rows, 5))
    others.append(compare_softmax("softmax", X, scores.argmax(axis=1), 500, 500))
    return {"binary": rows, "others": others}


def sorted_sets(n, rng):
    """Yield name, loss, X and labels of sets, of which two thirds are a stream."""
    X = rng.standard_normal((n, 8))
    scores = X @ np.linspace(1, -1, 8) - 1 + rng.logistic(size=n)
    yield "logistic", "log_loss", X, (scores > 0).astype(int)
    X = rng.standard_normal((n, 600))
    scores = 2 * X[:, :4].sum(axis=1) + rng.logistic(size=n)
    yield "600 columns", "log_loss", X, (scores > 0).astype(int)
    X = rng.standard_normal((n, 10))
    scores = X @ rng.standard_normal((10, 4)) + rng.gumbel(size=(n, 4))
    yield "softmax", "multinomial", X, scores.argmax(axis=1)
    X, y = load_digits(return_X_y=True)
    order = rng.permutation(len(y))
    yield "digits", "multinomial", X[order] / 16, y[order]


def loss_after(model, stream, others, size):
    """Return the log-loss of other rows after a stream was learned."""
    learner = Plain(model, np.unique(stream[1]))
    run(learner, *stream, size, log_loss)
    return float(log_loss(learner.predict(others[0]), others[1]).mean())


def by_class(n_rows):
    """Streams that come sorted by class: the log-loss of other rows afterwards."""
    rng, rows = np.random.default_rng(2), []
    sgd = {"loss": "log_loss", "random_state": 0}
    for name, loss, X, y in sorted_sets(n_rows, rng):
        n = 2 * len(y) // 3
        order, others = np.argsort(y[:n], kind="stable"), (X[n:], y[n:])
        fitted = AWSGDClassifier(loss, random_state=0).fit(X[:n], y[:n])
        logs = np.log(np.clip(fitted.predict_proba(X[n:]), LEAST, 1))
        shares = np.log(np.bincount(y[:n]) / n)
        for size in (50, 500):
            given = (X[order], y[order]), others, size
            tuned = [SGDClassifier(**sgd, **setting) for setting in SETTINGS]
            row = {
                "stream": name,
                "rows": n,
                "chunk": size,
                "ours": loss_after(AWSGDClassifier(loss, random_state=0), *given),
                "sgd": loss_after(SGDClassifier(**sgd), *given),
                "averaged": loss_after(SGDClassifier(**sgd, average=True), *given),
                "tuned": min(loss_after(model, *given) for model in tuned),
                "shares": float(-shares[y[n:]].mean()),
                "fit": float(log_loss(logs, y[n:]).mean()),
            }
            rows.append(row)
    show("Sorted by class: log-loss of other rows", rows)
    return rows


def least_seconds(model, X, y, size, n_calls, repeats=5):
    """Return the least CPU time of a call, over some blocks of calls."""
    best, start = np.inf, 5000
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(n_calls):
            part = slice(start, start + size)
            model.partial_fit(X[part], y[part])
            start += size
            if start + size > len(y):
                start = 0
        best = min(best, (time.process_time() - began) / n_calls)
    return best


def cost(quick):
    """CPU time of a call over SGDClassifier's, by chunk and number of features."""
    rng, rows = np.random.default_rng(0), []
    for d in (10, 30, 100, 200, 400, 1000)[: 4 if quick else 6]:
        X = rng.standard_normal((30_000, d))
        y = (X[:, 0] + rng.logistic(size=len(X)) > 1).astype(int)
        for size in (1, 32, 100, 1000):
            row = {"features": d, "chunk": size}
            for label, model in {
                "sgd": SGDClassifier(loss="log_loss", random_state=0),
                "ours": AWSGDClassifier(random_state=0),
            }.items():
                for start in range(0, 5000, 500):
                    part = slice(start, start + 500)
                    model.partial_fit(X[part], y[part], classes=[0, 1])
                n_calls = max(5, 600 // size) if size < 1000 else 5
                n_calls = 600 if size == 1 else n_calls
                row[f"{label} ms"] = 1e3 * least_seconds(model, X, y, size, n_calls)
            row["ratio"] = row["ours ms"] / row["sgd ms"]
            rows.append(row)
    show("CPU time of a call", rows)
    return rows


def peak_memory():
    """Return the largest resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def growth(quick):
    """Cost of a call, memory and pickle after many calls, in a process of their own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        rows = pool.submit(grow, quick).result()
    show("Growth over calls, chunks of 10", rows)
    return rows


def grow(quick):
    """Return the rows of `growth`."""
    rng, rows = np.random.default_rng(0), []
    X = rng.standard_normal((20_000, 30))
    y = (X[:, 0] + rng.logistic(size=len(X)) > 1).astype(int)
    model, n_calls, first = AWSGDClassifier(random_state=0), 0, None
    for goal in (100, 10_000) if quick else (100, 1000, 10_000, 100_000):
        while n_calls < goal:
            part = slice((10 * n_calls) % 20_000, (10 * n_calls) % 20_000 + 10)
            model.partial_fit(X[part], y[part], classes=[0, 1] if not n_calls else None)
            n_calls += 1
        size, state = len(pickle.dumps(model)), len(pickle.dumps(model._stream))
        first = first or peak_memory()
        rows.append(
            {
                "calls": n_calls,
                "peak MB above the first": peak_memory() - first,
                "pickle kB": size / 1024,
                "without histories kB": state / 1024,
                "records": len(model.history_["draws"]),
                # Of copies, so that all rows are after as many calls as they say.
                "ms a call": 1e3 * least_seconds(copy.copy(model), X, y, 10, 500),
            }
        )
    return rows


def soak(n_rows=100_000_000):
    """Learn 1e8 rows; nothing may grow and nothing may be lost."""
    rng, rows = np.random.default_rng(0), []
    w = rng.standard_normal(10)
    model, began = AWSGDClassifier(random_state=0), time.process_time()
    pool = rng.standard_normal((1_000_000, 10))
    noise = rng.logistic(size=1_000_000)
    for start in range(0, n_rows, 1000):
        k = (start + start // 1_000_000 * 137) % 999_000
        X = pool[k : k + 1000]
        y = (X @ w + noise[-k - 1000 : len(noise) - k] > 1).astype(int)
        model.partial_fit(X, y, classes=[0, 1] if start == 0 else None)
        if start + 1000 in (1_000_000, 10_000_000, n_rows // 2, n_rows):
            rows.append(
                {
                    "rows": start + 1000,
                    "CPU s": time.process_time() - began,
                    "peak MB": peak_memory(),
                    "error of w": float(np.abs(model.coef_[0] - w).max()),
                }
            )
    show("Soak", rows)
    return rows


def main():
    """Run all parts and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("SKLEARN_AWSGD_DATA"))
    parser.add_argument("--quick", action="store_true", help="fewer rows, not saved")
    parser.add_argument("--rows", type=int, default=6000, help="of a stream")
    parser.add_argument(
        "--all-columns", action="store_true", help="three columns of wide sets, not one"
    )
    parser.add_argument(
        "--only", nargs="*", help="losses, others, unseen, by_class, cost, growth, soak"
    )
    parser.add_argument("--sets", nargs="*", default=(), help="of the losses")
    parser.add_argument("--chunks", nargs="*", type=int, default=(1, 100, 1000))
    options = parser.parse_args()
    n_rows = 3000 if options.quick else options.rows
    one = not options.all_columns
    parts = {
        "losses": lambda: losses(
            options.data, n_rows, one, options.sets, options.chunks
        ),
        "others": lambda: others(options.data, n_rows),
        "unseen": lambda: unseen(min(n_rows, 10_000)),
        "by_class": lambda: by_class(n_rows),
        "cost": lambda: cost(options.quick),
        "growth": lambda: growth(options.quick),
        "soak": soak,
    }
    names = options.only or [name for name in parts if name != "soak"]
    for name in names:
        found = parts[name]()
        if not options.quick:
            # Parts that are not run stay as they are.
            path = RESULTS / "streams.json"
            before = json.loads(path.read_text()) if path.exists() else {}
            save("streams", before | {name: found})


if __name__ == "__main__":
    main()
