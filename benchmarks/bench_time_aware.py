"""Time-aware sampling and row sources, in one run.

Parts, to be chosen with ``--only``:

``paper``
    Section 8 of the paper: 1000 x 1000, rank 10, half of the rows slower by f. Time is
    CPU time plus the simulated access times. *Per epoch* is what the paper reports;
    *to equal loss* is what a user gains: SGD's objective after 5 epochs, and a quarter
    of it more. Where the noise of draws that matter alike is what limits progress, at
    most 2 (1 + f) / (1 + sqrt(f))^2 can be gained, less than 2 whatever f is. The
    paper's matrix is exactly of low rank: noise dies away at the optimum, and more can
    be gained. ``aw`` is the same sampler without costs. ``by_cost`` has ``mixing=0.9``:
    nine of ten draws go by the cost alone, and one by what is learned of the gradients,
    which the slow rows have more and more of, as they are left behind.
``latency``
    A server on the loopback that needs 1 ms to seek each row of the slow half; rows
    that follow each other need one seek. Seconds until the objective is within 5 % of
    the optimum, of the first of 1, 2, 3, 4, 6, 8, ... passes of draws that end there.
``large``
    A folder of chunks, larger than the memory a fit may use: ``--gigabytes``. Rows come
    from the disk each time (what was read is dropped from the operating system's cache,
    as if memory were small), or from that cache.
``overhead``
    Of ``time_aware=True`` with nothing to learn, for each draw; and of a source that
    wraps an array, for each exact pass. CPU times, least of ``--repeats``.

``--figure`` writes the figure of ``paper``. Two constants of row sources were chosen on
``large``: how many rows are drawn first, and for how many rows of a file one at random
counts (ROWS_FOR_ONE). The 0.9 of ``by_cost`` was chosen on ``paper``, at f = 5,000; no
other was chosen on the other parts.
"""

import _common  # noqa: I001 (sets the number of threads)

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier

from sklearn_awsgd import AWSGDClassifier, AWSGDMatrixFactorization
from sklearn_awsgd.samplers import LevelSampler, RowColumnSampler, UniformSampler
from sklearn_awsgd.sources import ChunkFolder, IndexedRows, RowCache

FAST = 1e-7  # seconds of an access to the fast half


def bound(f):
    """Return the most that can be gained in time to equal loss."""
    return 2 * (1 + f) / (1 + np.sqrt(f)) ** 2


# The paper's experiment.


def low_rank(seed, n=1000, rank=10):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n))


def factorize(X, costs, sampler, n_epochs, seed):
    """Return the epochs, simulated seconds, objectives and CPU seconds of a fit."""
    model = AWSGDMatrixFactorization(
        10, sampler=sampler, max_iter=n_epochs, tol=None, random_state=seed
    )
    start = time.process_time()
    model.fit(X, access_cost=costs)
    seconds = time.process_time() - start
    history = model.history_
    return (
        history["draws"] / X.size,
        history["simulated_seconds"],
        history["objective"],
        seconds,
    )


def until(epochs, simulated, objectives, seconds, level):
    """Return when an objective falls below a level: epochs, and seconds of both kinds.

    Real seconds are spread evenly over the epochs.
    """
    reached = np.flatnonzero(objectives <= level)
    if not len(reached):
        return np.nan, np.nan
    k = reached[0]
    return epochs[k], simulated[k] + seconds * epochs[k] / epochs[-1]


def run_paper(args):
    X = low_rank(args.seed)
    slow = np.arange(len(X)) >= len(X) // 2
    rows, curves = [], {}
    for f in [2.0**k for k in range(1, 21, args.step)] + [5000.0, 50_000.0]:
        costs = FAST * np.where(slow, f, 1.0)
        aware = RowColumnSampler(time_aware=True)
        plain = factorize(X, costs, UniformSampler(), 5, args.seed)
        learned = factorize(X, costs, RowColumnSampler(), 5, args.seed)
        ours = factorize(X, costs, aware, 15, args.seed)
        by_cost = RowColumnSampler(time_aware=True, mixing=0.9)
        by_cost = factorize(X, costs, by_cost, 15, args.seed)
        one = {}
        for name, (epochs, simulated, _, seconds) in (
            ("sgd", plain),
            ("aware", ours),
            ("by_cost", by_cost),
        ):
            k = np.searchsorted(epochs, 1 - 1e-9)
            one[name] = simulated[k] + seconds / epochs[-1]
        level = 1.25 * plain[2][-1]
        epochs, ours_until = until(*ours, level)
        _, plain_until = until(*plain, level)
        _, learned_until = until(*learned, level)
        _, by_cost_until = until(*by_cost, level)
        rows.append(
            {
                "f": f,
                "time_per_epoch_ratio": one["sgd"] / one["aware"],
                "epochs_to_equal_loss": float(epochs),
                "time_to_equal_loss_ratio": float(plain_until / ours_until),
                "aw_time_to_equal_loss_ratio": float(learned_until / ours_until),
                "by_cost_time_per_epoch_ratio": one["sgd"] / one["by_cost"],
                "by_cost_time_to_equal_loss_ratio": float(plain_until / by_cost_until),
                "bound": bound(f),
            }
        )
        if f == 5000:
            curves = {
                name: {"epochs": run[0].tolist(), "objective": run[2].tolist()}
                for name, run in (("sgd", plain), ("time_aware", ours))
            }
    rows.sort(key=lambda row: row["f"])
    _common.show("Half of the rows slower by f, SGD's time over ours", rows)
    gains = [row["f"] for row in rows if row["time_per_epoch_ratio"] >= 1]
    print(f"  time per epoch is shorter from f = {min(gains, default=np.inf):g} on")
    if args.figure:
        draw_paper(rows, curves, args.figure)
    return {"paper": rows, "loss_per_epoch_f_5000": curves}


def draw_paper(rows, curves, path):
    """Draw the ratios with their bound, and the loss over the epochs."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    f = [row["f"] for row in rows]
    left.loglog(f, [row["time_per_epoch_ratio"] for row in rows], label="per epoch")
    left.loglog(
        f, [row["time_to_equal_loss_ratio"] for row in rows], label="to equal loss"
    )
    left.loglog(
        f,
        [row["aw_time_to_equal_loss_ratio"] for row in rows],
        label="to equal loss, of AW-SGD without costs",
    )
    left.loglog(f, [row["bound"] for row in rows], "k:", label="bound, if noise limits")
    left.axhline(1, color="0.8", lw=1)
    left.set(xlabel="slow rows slower by f", ylabel="time of SGD / time-aware")
    left.legend()
    for name, curve in curves.items():
        right.semilogy(curve["epochs"], curve["objective"], label=name)
    right.set(xlabel="epochs", ylabel="objective", title="f = 5000")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


# Rows behind a server with latency.


class Server(threading.Thread):
    """Gives rows over a socket, 1 ms late for each slow row that it has to seek."""

    def __init__(self, X, slow, latency=1e-3):
        super().__init__(daemon=True)
        self.X, self.slow, self.latency = X, slow, latency
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = self.socket.getsockname()
        self.start()

    def run(self):
        client, _ = self.socket.accept()
        with client, client.makefile("rb") as requests:
            while header := requests.read(8):
                rows = np.frombuffer(
                    requests.read(8 * int.from_bytes(header, "little")), dtype=np.int64
                )
                sought = np.append(True, np.diff(rows) != 1)
                time.sleep(self.latency * np.sum(sought & self.slow[rows]))
                client.sendall(self.X[rows].tobytes())


class Client:
    """A row source that asks the server; it knows which shard a row is in."""

    def __init__(self, server):
        self.shape, self.dtype = server.X.shape, server.X.dtype
        self.shard = server.slow.astype(np.intp)
        self.connection = socket.create_connection(server.address)
        self.answers = self.connection.makefile("rb")

    def places(self, indices):
        return self.shard[indices]

    def take(self, indices):
        rows = np.ascontiguousarray(indices, dtype=np.int64)
        self.connection.sendall(len(rows).to_bytes(8, "little") + rows.tobytes())
        n_bytes = len(rows) * self.shape[1] * self.dtype.itemsize
        answer = np.frombuffer(self.answers.read(n_bytes), dtype=self.dtype)
        return answer.reshape(len(rows), -1)


def run_latency(args):
    n, d, alpha = args.rows, 50, 1e-3
    X, y = make_classification(
        n, d, n_informative=20, weights=[0.9], random_state=args.seed
    )
    slow = np.arange(n) >= n // 2
    order = np.random.default_rng(args.seed).permutation(n)
    X, y = X[order], y[order]
    signs = np.where(y == 1, 1.0, -1.0)

    def objective(w, b):
        return np.logaddexp(0, -signs * (X @ w + b)).mean() + alpha / 2 * w @ w

    exact = LogisticRegression(C=1 / (alpha * n), tol=1e-8, max_iter=1000).fit(X, y)
    goal = 1.05 * objective(exact.coef_[0], exact.intercept_[0])
    rows = []
    for name, sampler, rate in (
        ("ours, default", "auto", "auto"),
        ("steps, time-aware", LevelSampler(time_aware=True), "adagrad"),
        ("steps, not aware", LevelSampler(), "adagrad"),
    ):
        for n_passes in (1, 2, 3, 4, 6, 8, 12, 16):
            client = Client(Server(X, slow))
            cache = RowCache(client, max_bytes=n // 10 * (d * 8 + 250))
            clf = AWSGDClassifier(
                alpha=alpha,
                sampler=sampler,
                learning_rate=rate,
                tol=1e-3 if rate == "auto" else None,
                max_iter=100 if rate == "auto" else n_passes,
                random_state=args.seed,
            )
            start = time.perf_counter()
            clf.fit(cache, y)
            seconds = time.perf_counter() - start
            value = objective(clf.coef_[0], clf.intercept_[0])
            if value <= goal or rate == "auto":
                break
        rows.append(
            {
                "who": name,
                "seconds": seconds,
                "reached": bool(value <= goal),
                "hits": cache.n_hits / max(cache.n_hits + cache.n_misses, 1),
            }
        )
    for order_name, shuffled in (("in order", False), ("shuffled chunks", True)):
        client, start = Client(Server(X, slow)), time.perf_counter()
        clf = SGDClassifier(
            loss="log_loss", alpha=alpha, random_state=args.seed, average=True
        )
        rng, value = np.random.default_rng(args.seed), np.inf
        chunks = np.array_split(np.arange(n), 20)
        n_passes = 0
        while value > goal and n_passes < 30:
            for k in rng.permutation(20) if shuffled else range(20):
                clf.partial_fit(client.take(chunks[k]), y[chunks[k]], classes=[0, 1])
            n_passes += 1
            value = objective(clf.coef_[0], clf.intercept_[0])
        rows.append(
            {
                "who": f"SGDClassifier.partial_fit, {order_name}",
                "seconds": time.perf_counter() - start,
                "reached": bool(value <= goal),
                "hits": 0.0,
            }
        )
    _common.show(f"{n} rows, 1 ms to seek a row of one half: seconds to 5 %", rows)
    return {"latency": rows}


# More rows than memory.


def make_chunks(folder, gigabytes, d=100, seed=0):
    """Write chunks of 50 MB; return the targets."""
    rng = np.random.default_rng(seed)
    w, y = rng.normal(size=d).astype(np.float32), []
    n_chunk = 50_000_000 // (4 * d)
    for k in range(max(int(gigabytes * 20), 1)):
        X = rng.standard_normal((n_chunk, d), dtype=np.float32)
        np.save(Path(folder) / f"{k:05d}.npy", X)
        y.append(X @ w + 3 * rng.standard_normal(n_chunk, dtype=np.float32) > 4)
    return np.concatenate(y).astype(np.int8)


class ColdFolder(ChunkFolder):
    """Chunks that come from the disk each time: more rows than memory would hold."""

    def take(self, indices):
        rows = super().take(indices)
        for k in np.unique(self.places(np.asarray(indices))):
            self.forget(k)
        return rows

    def forget(self, k):
        with open(self.files[k], "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def peak():
    """Return the largest memory of this process so far, in bytes."""
    # getrusage would tell the peak of the parent before it became this process.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def fit_folder(folder, kind):
    """Fit from a folder, in a process of its own; print what was measured."""
    source, y = kind(folder), np.load(Path(folder) / "targets")
    if kind is ColdFolder:
        for k in range(len(source.files)):
            source.forget(k)
    before, start = peak(), time.perf_counter()
    cpu_start, n_block = time.process_time(), 2**20 // source.shape[1]
    for first in range(0, source.shape[0], n_block):
        source.take(np.arange(first, min(first + n_block, source.shape[0]))).max()
    reading, cpu_reading = (
        time.perf_counter() - start,
        time.process_time() - cpu_start,
    )
    start, cpu_start = time.perf_counter(), time.process_time()
    clf = AWSGDClassifier(tol=1e-3, random_state=0).fit(source, y)
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu_start
    print(reading, seconds, cpu_reading, cpu, peak() - before, clf.n_iter_)


def run_large(args):
    rows = []
    for gigabytes in args.gigabytes:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            rows += fit_sizes(folder, gigabytes)
    _common.show("A folder of chunks", rows)
    return {"large": rows}


def fit_sizes(folder, gigabytes):
    """Return what was measured of a folder of that size."""
    y, rows = make_chunks(folder, gigabytes), []
    with open(Path(folder) / "targets", "wb") as file:
        np.save(file, y)
    for name in ("disk", "cache"):
        told = subprocess.run(
            [sys.executable, __file__, "--fit-folder", folder, "--from", name],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        reading, seconds, cpu_reading, cpu, memory, n_iter = map(float, told)
        rows.append(
            {
                "gigabytes": gigabytes,
                "from": name,
                "seconds_to_read": reading,
                "seconds_to_fit": seconds,
                "reads": seconds / reading,
                "cpu_seconds_to_read": cpu_reading,
                "cpu_seconds_to_fit": cpu,
                "passes": n_iter,
                "peak_megabytes": memory / 1e6,
                "objective_over_in_memory": None,
            }
        )
    if gigabytes <= 1:
        for row in rows:
            row["objective_over_in_memory"] = over_in_memory(folder, y)
    return rows


def over_in_memory(folder, y):
    """Return the objective of a fit from a folder over that in memory, less one.

    Both stop anywhere below `tol`, so they are compared at one that is small enough.
    """
    source = ChunkFolder(folder)
    X = source.take(np.arange(source.shape[0]))
    signs = np.where(y == 1, 1.0, -1.0)

    def objective(rows):
        clf = AWSGDClassifier(tol=1e-7, random_state=0).fit(rows, y)
        w = clf.coef_[0].astype(np.float64)
        z = X.astype(np.float64) @ w + clf.intercept_[0]
        return np.logaddexp(0, -signs * z).mean() + 1e-4 / 2 * w @ w

    return objective(source) / objective(X) - 1


# What it costs when there is nothing to learn.


def run_overhead(args):
    rng, rows = np.random.default_rng(0), []
    n, d = 20_000, 100
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) + 5 * rng.normal(size=n) > 0
    times = {True: [], False: []}
    for _ in range(args.repeats):
        for aware in (True, False):
            clf = AWSGDClassifier(
                sampler=LevelSampler(time_aware=aware),
                learning_rate="adagrad",
                max_iter=5,
                tol=None,
                random_state=0,
            )
            start = time.process_time()
            clf.fit(X, y, access_cost=np.ones(n) if aware else None)
            times[aware].append(time.process_time() - start)
    rows.append(
        {
            "what": "time_aware=True, each draw, d = 100",
            "ratio": min(times[True]) / min(times[False]),
        }
    )
    from sklearn_awsgd._kernels._losses import LogLoss

    from sklearn_awsgd._linear.blocks import Blocks
    from sklearn_awsgd._linear.fetching import SourceBlocks, SourceRows
    from sklearn_awsgd._linear.sums import LinearSums

    n = 200_000
    X = rng.normal(size=(n, d)).astype(np.float32)
    signs = np.where(X[:, 0] > 0, 1.0, -1.0)
    norms2 = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    passes = {
        "memory": LinearSums(Blocks(X), LogLoss(), signs, None, norms2),
        "source": LinearSums(
            SourceBlocks(SourceRows(IndexedRows(X))), LogLoss(), signs, None, norms2
        ),
    }
    times = {"memory": [], "source": []}
    for _ in range(args.repeats):
        for name, sums in passes.items():
            # That of the thread that reads ahead is counted, too.
            start = time.process_time()
            sums.evaluate(np.zeros(d + 1))
            times[name].append(time.process_time() - start)
    rows.append(
        {
            "what": "a source that wraps an array, each exact pass",
            "ratio": min(times["source"]) / min(times["memory"]),
        }
    )
    _common.show("Overhead", rows)
    return {"overhead": rows}


PARTS = {
    "paper": run_paper,
    "latency": run_latency,
    "large": run_large,
    "overhead": run_overhead,
}


def main():
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", type=int, default=1, help="every so many powers of 2")
    parser.add_argument("--rows", type=int, default=20_000, help="of latency")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[4.0, 0.4])
    parser.add_argument("--folder", help="for the chunks of large")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--figure", help="file for the figure of paper")
    parser.add_argument("--no-save", action="store_true")
    parser.add_argument("--fit-folder", help=argparse.SUPPRESS)
    parser.add_argument("--from", dest="source", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.fit_folder:
        kind = {"disk": ColdFolder, "cache": ChunkFolder}[args.source]
        return fit_folder(args.fit_folder, kind)
    warnings.simplefilter("ignore", ConvergenceWarning)
    results, path = {}, _common.RESULTS / "time_aware.json"
    if path.exists():
        # Parts that are not run stay as they were.
        results = json.loads(path.read_text())
        results.pop("environment")
    for name in args.only:
        results |= PARTS[name](args)
    if not args.no_save:
        _common.save("time_aware", results)


if __name__ == "__main__":
    main()
