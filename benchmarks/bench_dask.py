"""Fits on a dask cluster of two workers: against dask-ml, and against one machine.

- ``peers``: seconds to 1 % and 0.1 % of the optimum of l2 logistic regression, on
  1,000,000 x 50 dense rows with 1 % positives and on 300,000 x 10,000 sparse ones.
  Ours at its defaults with ``tol`` set to the accuracy asked for, and counted only
  where the objective really is that close. A peer's time is that of the whole fit with
  the first number of iterations that gets there, which only somebody who knows the
  optimum can choose. Wanted: at most a fifth of the best.
- ``local``: the same fit on one machine, with one thread and with two. Wanted: a
  cluster takes at most 1.5 times as long.
- ``bytes``: what is sent in each direction, for each block, by the functions of a fit,
  at 100,000 and at 1,000,000 rows. Wanted: the same.
- ``memory``: 4 GB of rows in files, two workers that may use 1.5 GB each, ``tol=1e-3``.

All contestants of a table take turns on the same cluster, several times, and the least
time of each counts: wall-clock seconds, and the CPU seconds of the workers and of the
client, which depend less on what else the machine does. Other programs ran beside the
committed results. dask-ml's "newton" and "gradient_descent" have no penalty, and its
other solvers penalize the intercept; with alpha = 1e-6 neither moves the objective by
as much as 0.1 %.
"""

import _common  # isort: skip

import argparse
import itertools
import json
import os
import pickle
import tempfile
import time
import warnings
from pathlib import Path

import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait
from scipy import sparse
from scipy.special import log_expit
from sklearn.linear_model import LogisticRegression, SGDClassifier
from threadpoolctl import threadpool_limits

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd._partitions.cluster import ClusterRun
from sklearn_awsgd.dask import DaskAWSGDClassifier

ALPHA = 1e-6
TARGETS = (1e-2, 1e-3)
N_BLOCKS = 8
# Iterations that are tried for each solver of dask-ml, until one reaches the last
# target or takes too long: then more iterations would not be quicker.
ITERATIONS = {
    "lbfgs": (5, 10, 20, 40),
    "newton": (4, 6, 8, 12),
    "admm": (1, 2, 5, 15),
    "gradient_descent": (10, 50),
    "proximal_grad": (10, 50),
}
TOO_LONG = 30.0


def make_dense(n_rows, n_columns=50):
    """Return rows and labels, 1 % of them positive."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_columns))
    z = 2 * X @ rng.standard_normal(n_columns) / np.sqrt(n_columns)
    z += rng.logistic(size=n_rows)
    return X, (z > np.quantile(z, 0.99)).astype(np.int64)


def make_sparse(n_rows=300_000, n_columns=10_000, in_row=30):
    """Return rows in CSR whose columns are of very unequal length, and labels."""
    rng = np.random.default_rng(0)
    columns = (n_columns * rng.random((n_rows, in_row)) ** 3).astype(np.int32)
    indptr = np.arange(0, n_rows * in_row + 1, in_row)
    data = rng.lognormal(size=n_rows * in_row)
    X = sparse.csr_matrix((data, columns.ravel(), indptr), shape=(n_rows, n_columns))
    X.sum_duplicates()
    z = X @ rng.standard_normal(n_columns) / 5 + rng.logistic(size=n_rows)
    return X, (z > np.quantile(z, 0.95)).astype(np.int64)


def in_blocks(X, y, client):
    """Return persistent dask arrays of rows and labels."""
    bounds = np.linspace(0, X.shape[0], N_BLOCKS + 1).astype(int)
    ends = list(itertools.pairwise(bounds))
    meta = X[:0]
    blocks = [
        da.from_delayed(
            dask.delayed(X[low:high]), (high - low, X.shape[1]), X.dtype, meta
        )
        for low, high in ends
    ]
    sizes = tuple(int(high - low) for low, high in ends)
    dX = client.persist(da.concatenate(blocks))
    dy = client.persist(da.from_array(y, chunks=(sizes,)))
    return dX, dy


def objective(model, X, y):
    """Return the penalized mean logistic loss."""
    coef = np.ravel(model.coef_)
    z = X @ coef + float(np.ravel(model.intercept_)[0])
    loss = -np.mean(log_expit(np.where(y > 0, z, -z)))
    return loss + ALPHA / 2 * coef @ coef


def cpu_seconds(client):
    """Return the CPU seconds of this process and of the workers."""
    return time.process_time() + sum(client.run(time.process_time).values())


def timed(client, fit):
    """Return seconds, CPU seconds and what fit() returns."""
    cpu, wall = cpu_seconds(client), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit()
    wall = time.perf_counter() - wall
    return wall, cpu_seconds(client) - cpu, model


def fits_of_peers(dX, dy):
    """Return for each solver of dask-ml a list of settings and fits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dask_ml.linear_model import LogisticRegression as DaskLogisticRegression
        from dask_ml.wrappers import Incremental
    C = 1 / (ALPHA * dX.shape[0])

    def linear(solver, max_iter):
        # "admm" has tolerances of its own, and here the number of iterations decides.
        model = DaskLogisticRegression(
            C=C, solver=solver, max_iter=max_iter, tol=1e-12, random_state=0
        )
        if solver == "admm":
            model.set_params(solver_kwargs={"abstol": 1e-12, "reltol": 1e-12})
        return lambda: model.fit(dX, dy)

    def incremental(power):
        model = Incremental(
            SGDClassifier(
                "log_loss",
                alpha=ALPHA,
                random_state=0,
                learning_rate="invscaling",
                eta0=power,
                power_t=0.25,
            )
        )
        return lambda: model.fit(dX, dy, classes=[0, 1]).estimator_

    fits = {
        f"dask-ml {solver}": [(n, linear(solver, n)) for n in numbers]
        for solver, numbers in ITERATIONS.items()
    }
    fits["Incremental(SGDClassifier)"] = [
        (f"eta0={eta0}", incremental(eta0)) for eta0 in (0.001, 0.01, 0.1)
    ]
    return fits


def compare(client, name, X, y, repeats):
    """Return rows of the table of one set: every contestant, every setting."""
    dX, dy = in_blocks(X, y, client)
    wait([dX, dy])
    contestants = {
        "DaskAWSGDClassifier": [
            (f"tol={tol}", our_fit(dX, dy, tol)) for tol in TARGETS
        ],
        **fits_of_peers(dX, dy),
    }
    best = min(
        objective(model, X, y)
        for model in (
            LogisticRegression(C=1 / (ALPHA * len(y)), tol=1e-8, max_iter=3000).fit(
                X, y
            ),
            AWSGDClassifier(alpha=ALPHA, tol=1e-7, random_state=0).fit(X, y),
        )
    )
    rows, given_up = {}, {}
    for _ in range(repeats):
        for solver, settings in contestants.items():
            for setting, fit in settings:
                if given_up.get(solver) == "failed":
                    break
                try:
                    wall, cpu, model = timed(client, fit)
                except Exception as error:
                    given_up[solver] = "failed"
                    text = f"{type(error).__name__}: {error}"[:200]
                    rows[solver, setting] = {
                        "set": name,
                        "solver": solver,
                        "setting": str(setting),
                        "error": text,
                    }
                    break
                gap = objective(model, X, y) / best - 1
                row = rows.setdefault(
                    (solver, setting),
                    {
                        "set": name,
                        "solver": solver,
                        "setting": str(setting),
                        "seconds": np.inf,
                        "CPU seconds": np.inf,
                        "gap": gap,
                    },
                )
                row["seconds"] = min(row["seconds"], wall)
                row["CPU seconds"] = min(row["CPU seconds"], cpu)
                print(
                    f"  {name} {solver} {setting}: {wall:.2f} s, {gap:.2e}", flush=True
                )
                peer = "AWSGD" not in solver
                if peer and (gap <= min(TARGETS) or wall > TOO_LONG):
                    break
    return list(rows.values())


def our_fit(dX, dy, tol):
    """Return a function that fits ours, at its defaults."""
    model = DaskAWSGDClassifier(alpha=ALPHA, tol=tol, random_state=0)
    return lambda: model.fit(dX, dy)


def summary(rows):
    """Return the time of each solver to each target, and ours over the best."""
    result = []
    for name in dict.fromkeys(row["set"] for row in rows):
        for target in TARGETS:
            for measure in ("seconds", "CPU seconds"):
                times = {}
                for row in rows:
                    if row["set"] == name and row.get("gap", np.inf) <= target:
                        solver = row["solver"]
                        times[solver] = min(times.get(solver, np.inf), row[measure])
                ours = times.pop("DaskAWSGDClassifier", np.nan)
                peer = min(times, key=times.get, default="none")
                result.append(
                    {
                        "set": name,
                        "target": target,
                        "measure": measure,
                        "ours": ours,
                        "best peer": peer,
                        "peer": times.get(peer, np.nan),
                        "share": ours / times.get(peer, np.nan),
                    }
                )
    return result


def against_local(client, X, y, repeats):
    """Return seconds of the same fit on the cluster and on one machine."""
    dX, dy = in_blocks(X, y, client)
    wait([dX, dy])
    rows = []
    for tol in TARGETS:
        local = AWSGDClassifier(alpha=ALPHA, tol=tol, random_state=0)

        def fit_local(n_threads, local=local):
            with threadpool_limits(n_threads):
                return local.fit(X, y)

        fits = {
            "cluster": our_fit(dX, dy, tol),
            "one thread": lambda f=fit_local: f(1),
            "two threads": lambda f=fit_local: f(2),
        }
        least = dict.fromkeys(fits, (np.inf, np.inf))
        passes = {}
        for _ in range(repeats):
            for where, fit in fits.items():
                wall, cpu, model = timed(client, fit)
                least[where] = min(least[where][0], wall), min(least[where][1], cpu)
                passes[where] = int(model.n_iter_)
        wall_local = min(least["one thread"][0], least["two threads"][0])
        for where, (wall, cpu) in least.items():
            rows.append(
                {
                    "tol": tol,
                    "where": where,
                    "seconds": wall,
                    "CPU seconds": cpu,
                    "passes": passes[where],
                    "ratio": wall / wall_local,
                }
            )
    return rows


class CountingRun:
    """Counts what a ClusterRun is given and gives back, for each block."""

    def __init__(self):
        self.calls = {}

    def __enter__(self):
        self._call = call = ClusterRun.__call__

        def counted(run, function, *arguments):
            results = call(run, function, *arguments)
            down = len(pickle.dumps(arguments))
            up = max(len(pickle.dumps(result)) for result in results)
            n_calls, most_down, most_up = self.calls.get(function.__name__, (0, 0, 0))
            self.calls[function.__name__] = (
                n_calls + 1,
                max(most_down, down),
                max(most_up, up),
            )
            return results

        ClusterRun.__call__ = counted
        return self

    def __exit__(self, *error):
        ClusterRun.__call__ = self._call


def bytes_sent(client, sizes):
    """Return bytes for each block and call, for sets of several sizes."""
    rows = []
    for n_rows in sizes:
        dX, dy = in_blocks(*make_dense(n_rows), client)
        with CountingRun() as count:
            timed(client, our_fit(dX, dy, 1e-3))
        for function, (n_calls, down, up) in count.calls.items():
            rows.append(
                {
                    "rows": n_rows,
                    "function": function,
                    "calls": n_calls,
                    "bytes to a block": down,
                    "bytes from a block": up,
                }
            )
    return rows


def write_part(path, seed, n_rows, n_columns):
    """Write rows and labels of one block to files."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_columns), dtype=np.float32)
    z = X @ np.linspace(-0.5, 0.5, n_columns, dtype=np.float32)
    np.save(f"{path}/X{seed}.npy", X)
    np.save(f"{path}/y{seed}.npy", z + rng.logistic(size=n_rows) > 5)


def beyond_memory(gigabytes, folder):
    """Return what a fit took on more rows than the workers may hold."""
    n_columns, n_parts = 50, int(40 * gigabytes / 4)
    n_rows = int(gigabytes * 1e9 / 4 / n_columns / n_parts)
    settings = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1.5GB"}
    with tempfile.TemporaryDirectory(dir=folder) as path:
        for seed in range(n_parts):
            write_part(path, seed, n_rows, n_columns)
        with (
            dask.config.set({"temporary-directory": path}),
            LocalCluster(**settings, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            load = dask.delayed(np.load)
            dX = da.concatenate(
                [
                    da.from_delayed(
                        load(f"{path}/X{k}.npy"), (n_rows, n_columns), np.float32
                    )
                    for k in range(n_parts)
                ]
            )
            dy = da.concatenate(
                [
                    da.from_delayed(load(f"{path}/y{k}.npy"), (n_rows,), bool)
                    for k in range(n_parts)
                ]
            )
            before = set(client.run(os.getpid).values())
            model = DaskAWSGDClassifier(alpha=ALPHA, tol=1e-3, random_state=0)
            wall, cpu, model = timed(client, lambda: model.fit(dX, dy))
            survived = before == set(client.run(os.getpid).values())
    return {
        "GB": dX.nbytes / 1e9,
        "rows": dX.shape[0],
        "limit of a worker, GB": 1.5,
        "seconds": wall,
        "CPU seconds": cpu,
        "passes": int(model.n_iter_),
        "relative gap": float(model.duality_gap_[0] / model.history_["objective"][-1]),
        "workers survived": survived,
    }


def main():
    """Run the parts and write the results, keeping those of parts that are not run."""
    parts = ("peers", "local", "bytes", "memory")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=parts, nargs="*", default=parts)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the large files are written")
    options = parser.parse_args()
    n_rows = int(1_000_000 * options.share)
    path = _common.RESULTS / "dask.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    settings = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": 0}
    with (
        LocalCluster(**settings, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        if "peers" in options.only:
            rows = compare(client, "dense", *make_dense(n_rows), options.repeats)
            X, y = make_sparse(int(300_000 * options.share))
            rows += compare(client, "sparse", X, y, options.repeats)
            results["peers"], results["summary"] = rows, summary(rows)
        if "local" in options.only:
            data = make_dense(n_rows)
            results["local"] = against_local(client, *data, options.repeats)
        if "bytes" in options.only:
            results["bytes"] = bytes_sent(client, (n_rows // 10, n_rows))
    if "memory" in options.only:
        results["memory"] = [beyond_memory(4.0 * options.share, options.folder)]
    for name in ("summary", "local", "bytes", "memory"):
        if name in results:
            _common.show(name, results[name])
    if options.share == 1.0:
        results.pop("environment", None)
        _common.save("dask", results)


if __name__ == "__main__":
    main()
