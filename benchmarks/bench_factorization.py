"""Matrix factorization against its peers, in one run.

Run with ``OMP_NUM_THREADS=1``. Parts: ``figure4``, ``mnist``, ``inpainting``,
``movielens``, ``cost``, ``parts``, ``safety``; choose with ``--only``. The data folder
is ``--data`` or the environment variable SKLEARN_AWSGD_DATA; without it the parts that
need it run on scikit-learn's digits, or not at all, and say so. libmf, cmfrec and
scikit-surprise take part when they are installed. Times are CPU seconds.

Ours runs at its defaults; `alpha`, the ridge, is named where it is set. Peers run at
the best setting of the grids that are written here, in ``mnist`` and ``inpainting``
chosen on what is reported, which favours them. In ``movielens`` all contestants choose
by a split of the training part alone.

Epochs are numbers of times that all entries were read: draws over entries, the trial of
``sampler="auto"`` included, and one for each exact solution of all rows or all columns.

The default rate and ridge were chosen while looking at MNIST's zeros, the block matrix
and other splits of MovieLens; when to keep the learned sampler on generated matrices.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd import AWSGDMatrixFactorization, matrix_from_entries
from sklearn_awsgd._factorization import training
from sklearn_awsgd._solver.runs import solve
from sklearn_awsgd.samplers import RowColumnSampler

RESULTS = Path(__file__).parent / "results" / "factorization.json"


def cpu(function, *arguments, **keywords):
    """Return the result of a call and its CPU seconds."""
    start = time.process_time()
    result = function(*arguments, **keywords)
    return result, time.process_time() - start


def load_peer(name):
    """Import a peer quietly; None when it is not installed."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if name == "libmf":
                from libmf import mf

                return mf
            if name == "cmfrec":
                import cmfrec

                return cmfrec
            import surprise

            return surprise
        except ImportError:
            print(f"  {name} is not installed: left out")
            return None


def uniform_sgd(n_components, rho0, seed, max_iter, *, step="gradient", replace=True):
    """SGD with the paper's rate, rho_0 / (N / 2 + t).

    Draws are with replacement as in the paper, or shuffled passes, which are better.
    """
    frozen = RowColumnSampler(update="sgd", eta0=0, mixing=0)
    return AWSGDMatrixFactorization(
        n_components,
        alpha=0,
        step=step,
        learning_rate="inverse",
        eta0=rho0,
        sampler=frozen if replace else "uniform",
        max_iter=max_iter,
        tol=None,
        random_state=seed,
    )


def ours(n_components, seed, max_iter, **params):
    params = {"tol": None} | params
    return AWSGDMatrixFactorization(
        n_components, max_iter=max_iter, random_state=seed, **params
    )


def loss_after(model, X):
    """Mean squared error after training; infinite when the steps diverged."""
    try:
        return 2 * model.fit(X).reconstruction_err_
    except ValueError:
        return np.inf


def n_epochs(model, X):
    """How often all entries of X were read for a fit, by draws or exact solutions."""
    return float(model.history_["draws"][-1] / X.size)


def block_matrix(seed, n=100, rank=10, block=20):
    """The paper's matrix: rank 10, and a random block times 100."""
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n))
    rows, columns = rng.permutation(n)[:block], rng.permutation(n)[:block]
    Y[np.ix_(rows, columns)] *= 100
    return Y


def bench_figure4(options):
    """Epochs to the loss of the best uniform SGD after 10 epochs."""
    result = {}
    for n_components in (10, 20):
        matrices = [block_matrix(seed) for seed in range(options.seeds)]
        # Rates in units of the entries: rho_0 / (N / 2) times their scale.
        grid = np.geomspace(1e-2, 3, 10)
        for step in ("gradient", "proximal"):
            final = {
                rho: [
                    loss_after(
                        uniform_sgd(
                            n_components,
                            rho * Y.size / 2 / np.abs(Y).mean(),
                            seed,
                            10,
                            step=step,
                        ),
                        Y,
                    )
                    for seed, Y in enumerate(matrices)
                ]
                for rho in grid
            }
            best = min(grid, key=lambda rho: np.median(final[rho]))
            target = float(np.median(final[best]))
            epochs, curves = [], []
            for seed, Y in enumerate(matrices):
                models = [ours(n_components, seed, passes) for passes in range(1, 11)]
                curve = np.array([loss_after(model, Y) for model in models])
                curves.append(curve)
                reached = np.flatnonzero(curve <= target)
                epochs.append(n_epochs(models[reached[0]], Y) if len(reached) else 99)
            result[f"K={n_components}, uniform {step} steps"] = {
                "uniform loss after 10 epochs": target,
                "its rate": float(best),
                "epochs of ours to that loss": float(np.median(epochs)),
                "our loss after 1, 2, 3, 5, 10 passes": [
                    round(float(v), 3)
                    for v in np.median(curves, axis=0)[[0, 1, 2, 4, 9]]
                ],
            }
    return result


def mnist_zeros(options):
    path = Path(options.data or "") / "mnist.npz"
    if not options.data or not path.exists():
        print("  no MNIST: scikit-learn's digits instead, K = 16")
        return load_digits().data / 16, 16
    with np.load(path, allow_pickle=False) as z:
        X = z["X_train"][z["y_train"] == 0].reshape(-1, 784) / 255.0
    return np.ascontiguousarray(X), 50


def cost_of(row, solved):
    """Error, CPU seconds and epochs of a row of the table of ``mnist``."""
    if solved:
        # An exact solution of the rows reads all entries once more.
        return row[2], row[3], row[4] + 1
    return row[0], row[1], row[4]


def bench_mnist(options):
    """Epochs and CPU time to the error of tuned uniform SGD after 10 epochs.

    Errors are given with the row factors that the draws left, and with those of
    ``transform``, for all contestants.
    """
    X, n_components = mnist_zeros(options)
    unit = X.size / 2 / np.abs(X).mean()

    def measure(model):
        error, seconds = cpu(loss_after, model, X)
        if not np.isfinite(error):
            return [np.inf] * 5
        solved, more = cpu(lambda: float(np.mean((model.predict(X) - X) ** 2)))
        return [error, seconds, solved, seconds + more, n_epochs(model, X)]

    contestants = {}
    for replace in (True, False):
        name = "uniform, with replacement" if replace else "uniform, shuffled"
        # The seed of the tuning is none of those that are reported.
        tuning = {
            rho: loss_after(
                uniform_sgd(n_components, rho * unit, 1000, 10, replace=replace), X
            )
            for rho in (0.02, 0.04, 0.08)
        }
        print(f"  {name}, rates: {tuning}", flush=True)
        rho = unit * min(tuning, key=tuning.get)
        contestants[name] = lambda seed, rho=rho, replace=replace: uniform_sgd(
            n_components, rho, seed, 10, replace=replace
        )
    for passes in (1, 2, 4, 6):
        contestants[f"learned draws, {passes} passes"] = lambda seed, p=passes: ours(
            n_components, seed, p, sampler="row_column"
        )
    for passes in (1, 2, 3, 4, 6):
        contestants[f"shuffled, our rate, {passes} passes"] = lambda seed, p=passes: (
            ours(n_components, seed, p, sampler="uniform")
        )
    for passes in (3, 5, 7, 9):
        contestants[f"default, max_iter={passes}"] = lambda seed, p=passes: ours(
            n_components, seed, p, tol=0.003
        )
    found = {name: [] for name in contestants}
    n_seeds = min(options.seeds, options.slow_seeds)
    for seed in range(n_seeds):
        for name, make in contestants.items():
            found[name].append(measure(make(seed)))
    medians = {name: np.median(rows, axis=0) for name, rows in found.items()}
    columns = ["mse", "CPU s", "mse, solved rows", "CPU s, solved rows", "epochs"]
    result = {"seeds": n_seeds, "columns": columns}
    result |= {
        name: [float(f"{value:.5g}") for value in row] for name, row in medians.items()
    }
    families = ("learned draws", "shuffled, our rate", "default")
    for target in ("uniform, with replacement", "uniform, shuffled"):
        for kind, theirs_solved, ours_solved in (
            ("rows of the draws", False, False),
            ("ours with solved rows", False, True),
            ("both with solved rows", True, True),
        ):
            goal, budget, limit = cost_of(medians[target], theirs_solved)
            for family in families:
                # The default ends with solved rows: they are not solved again.
                solved = ours_solved and family != "default"
                costs = [
                    cost_of(row, solved)
                    for name, row in medians.items()
                    if name.startswith(family)
                ]
                reached = [cost for cost in costs if cost[0] <= goal]
                name = f"{family} / {target}, {kind}: epochs, CPU"
                result[name] = "not reached"
                if reached:
                    ratios = limit / reached[0][2], budget / reached[0][1]
                    result[name] = [float(f"{ratio:.3g}") for ratio in ratios]
    best = np.linalg.svd(X.T @ X, hermitian=True)[1][n_components:].sum() / X.size
    result["least mse of this rank"] = float(best)
    return result


def iterated_svd(X, observed, rank, threshold, n_iter, error):
    """Fill the holes by a soft-thresholded SVD, again and again.

    Returns the least error over the iterations and the CPU time it took to reach it.
    """
    start = time.process_time()
    filled = np.where(observed, X, 0.0)
    best, seconds, spent = np.inf, 0.0, 0.0
    for _ in range(n_iter):
        values, vectors = np.linalg.eigh(filled.T @ filled)
        values, vectors = np.sqrt(values[-rank:].clip(0)), vectors[:, -rank:]
        shrink = np.maximum(values - threshold, 0) / np.maximum(values, 1e-300)
        low_rank = (filled @ vectors * shrink) @ vectors.T
        filled = np.where(observed, X, low_rank)
        pause = time.process_time()
        now = error(low_rank)
        if now < best - 1e-5:
            best, seconds = now, pause - start - spent
        spent += time.process_time() - pause
    return best, seconds


def bench_inpainting(options):
    """Half of the entries missing: test RMSE over standard deviation."""
    X, n_components = mnist_zeros(options)
    rng = np.random.default_rng(2026)
    observed = rng.random(X.shape) < 0.5
    spread = X[~observed].std()

    def error(predicted, where=~observed):
        return float(np.sqrt(np.mean((predicted - X)[where] ** 2)) / spread)

    shown = np.where(observed, X, np.nan)
    rows, columns = np.nonzero(observed)
    values = X[observed]
    result = {}
    # The ridge is chosen on a tenth of the observed entries, held out for that.
    inner = observed & (rng.random(X.shape) < 0.1)
    inner_shown = np.where(inner, np.nan, shown)
    ridges = {
        alpha: error(
            ours(n_components, 1000, 8, alpha=alpha)
            .fit(inner_shown)
            .predict(inner_shown),
            inner,
        )
        for alpha in (0.01, 0.02, 0.04)
    }
    alpha = min(ridges, key=ridges.get)
    result["ours, alpha chosen on held out entries"] = alpha
    print(f"  ours, ridges: {ridges}", flush=True)
    for passes in (4, 6, 8, 12):
        found = []
        for seed in range(min(options.seeds, options.slow_seeds)):
            model = ours(n_components, seed, passes, alpha=alpha)
            predicted, seconds = cpu(lambda m=model: m.fit(shown).predict(shown))
            found.append((error(predicted), seconds))
        result[f"ours, {passes} passes"] = np.median(found, axis=0).tolist()
        print(
            f"  ours, {passes} passes: {result[f'ours, {passes} passes']}", flush=True
        )
    grid = [
        iterated_svd(X, observed, n_components, threshold, 25, error)
        for threshold in (2.0, 4.0, 8.0)
    ]
    result["iterated SVD"] = list(min(grid))
    print(f"  iterated SVD: {grid}", flush=True)
    libmf = load_peer("libmf")
    if libmf:
        triples = np.column_stack([rows, columns, values])
        grid = []
        for penalty in (0.01, 0.03):
            model = libmf.MF(
                k=n_components,
                nr_threads=1,
                nr_iters=15,
                eta=0.1,
                lambda_p1=0.0,
                lambda_q1=0.0,
                lambda_p2=penalty,
                lambda_q2=penalty,
                quiet=True,
            )
            _, seconds = cpu(model.fit, triples)
            predicted = model.p_factors() @ model.q_factors().T
            grid.append((error(predicted), seconds))
        result["libmf"] = list(min(grid))
        print(f"  libmf: {grid}", flush=True)
    cmfrec = load_peer("cmfrec")
    if cmfrec:
        grid = []
        matrix = sparse.coo_matrix((values, (rows, columns)), shape=X.shape)
        for penalty in (3.0, 10.0):
            model = cmfrec.CMF(
                k=n_components,
                lambda_=penalty,
                nthreads=1,
                verbose=False,
                user_bias=False,
                item_bias=False,
                center=False,
            )
            _, seconds = cpu(model.fit, matrix)
            grid.append((error(model.A_ @ model.B_.T), seconds))
        result["cmfrec"] = list(min(grid))
        print(f"  cmfrec: {grid}", flush=True)
    return {"columns": ["test rmse / sd", "CPU s"], **result}


def bench_movielens(options):
    """Five random 90/10 splits; RMSE of the held out ratings, clipped to 1..5.

    K and penalty are chosen by a further 90/10 split of the training part.
    """
    path = Path(options.data or "") / "movielens_100k.npz"
    if not options.data or not path.exists():
        print("  no MovieLens: left out")
        return {}
    with np.load(path, allow_pickle=False) as z:
        user, item = z["user"].astype(int), z["item"].astype(int)
        rating = z["rating"].astype(float)
    shape = user.max() + 1, item.max() + 1
    peers = {name: load_peer(name) for name in ("libmf", "cmfrec", "surprise")}

    def run_ours(train, test, k, penalty, seed):
        X = matrix_from_entries(user[train], item[train], rating[train], shape=shape)
        model = AWSGDMatrixFactorization(
            k, alpha=penalty, fit_bias=True, unstored="missing", random_state=seed
        )
        return model.fit(X).predict_entries(X, user[test], item[test])

    def run_cmfrec(train, test, k, penalty, seed):
        X = sparse.coo_matrix((rating[train], (user[train], item[train])), shape=shape)
        model = peers["cmfrec"].CMF(
            k=k, lambda_=penalty, nthreads=1, verbose=False, random_state=seed + 1
        )
        return model.fit(X).predict(user[test], item[test])

    def run_libmf(train, test, k, penalty, seed):
        model = peers["libmf"].MF(
            k=k,
            nr_threads=1,
            nr_iters=30,
            eta=0.05,
            lambda_p1=0.0,
            lambda_q1=0.0,
            lambda_p2=penalty,
            lambda_q2=penalty,
            quiet=True,
        )
        model.fit(np.column_stack([user[train], item[train], rating[train]]))
        P, Q = model.p_factors(), model.q_factors()
        u, i = np.minimum(user[test], len(P) - 1), np.minimum(item[test], len(Q) - 1)
        return np.nan_to_num((P[u] * Q[i]).sum(axis=1), nan=rating[train].mean())

    def run_surprise(train, test, k, penalty, seed):
        surprise = peers["surprise"]
        raw = [
            (u, i, r, None) for u, i, r in zip(user[train], item[train], rating[train])
        ]
        data = surprise.Dataset(reader=surprise.Reader(rating_scale=(1, 5)))
        model = surprise.SVD(
            n_factors=k, reg_all=penalty, n_epochs=30, random_state=seed
        )
        model.fit(data.construct_trainset(raw))
        return np.array(
            [model.predict(u, i).est for u, i in zip(user[test], item[test])]
        )

    def rmse(function, train, test, k, penalty, seed):
        predicted, seconds = cpu(function, train, test, k, penalty, seed)
        wrong = predicted.clip(1, 5) - rating[test]
        return float(np.sqrt(np.mean(wrong**2))), seconds

    # Factors of two around what each documentation names.
    contestants = {"ours": (run_ours, (0.05, 0.1, 0.2))}
    if peers["cmfrec"]:
        contestants["cmfrec"] = run_cmfrec, (5.0, 10.0, 20.0)
    if peers["libmf"]:
        contestants["libmf"] = run_libmf, (0.05, 0.1, 0.2)
    if peers["surprise"]:
        contestants["surprise"] = run_surprise, (0.02, 0.05, 0.1)
    found = {name: [] for name in contestants}
    for split in range(5):
        order = np.random.default_rng(options.split_seed + split).permutation(
            len(rating)
        )
        test, train = np.split(order, [len(rating) // 10])
        valid, rest = np.split(train, [len(train) // 10])
        for name, (function, penalties) in contestants.items():
            grid = [(k, penalty) for k in (10, 40) for penalty in penalties]
            k, penalty = min(
                grid, key=lambda point: rmse(function, rest, valid, *point, split)[0]
            )
            found[name].append(
                (*rmse(function, train, test, k, penalty, split), k, penalty)
            )
    result = {}
    for name, rows in found.items():
        result[name] = {
            "rmse": float(np.mean([row[0] for row in rows])),
            "CPU s": float(np.mean([row[1] for row in rows])),
            "rmse of the splits": [round(row[0], 4) for row in rows],
            "chosen K and penalty": [row[2:] for row in rows],
        }
    return result


def bench_cost(options):
    """Nanoseconds for an update: medians of interleaved runs."""
    rng = np.random.default_rng(0)
    result = {}
    libmf = load_peer("libmf")
    n, m = 5923, 784
    X = np.where(rng.random((n, m)) < 0.5, rng.normal(size=(n, m)), np.nan)
    rows, columns = np.nonzero(~np.isnan(X))
    triples = np.column_stack([rows, columns, X[rows, columns]])

    def fit_ours(X, k, sampler, n_passes):
        return cpu(ours(k, 0, n_passes, sampler=sampler).fit, X)[1]

    def fit_libmf(X, k, sampler, n_passes):
        model = libmf.MF(
            k=k,
            nr_threads=1,
            nr_iters=n_passes,
            eta=0.01,
            lambda_p1=0.0,
            lambda_q1=0.0,
            lambda_p2=0.01,
            lambda_q2=0.01,
            quiet=True,
        )
        return cpu(model.fit, triples)[1]

    def nanoseconds(jobs, n_passes, n_updates):
        # The difference of two fits leaves out what is done once.
        times = {name: ([], []) for name in jobs}
        for _ in range(options.turns):
            for name, (function, *arguments) in jobs.items():
                # The first fit after another contestant's finds cold memory.
                function(*arguments, 1)
                for side, count in zip(times[name], (1, 1 + n_passes), strict=True):
                    side.append(function(*arguments, count))
        return {
            name: float(
                (np.median(long) - np.median(short)) / n_passes / n_updates * 1e9
            )
            for name, (short, long) in times.items()
        }

    for k in (10, 50):
        jobs = {
            f"half missing, K={k}, {sampler}": (fit_ours, X, k, sampler)
            for sampler in ("uniform", "row_column")
        }
        if libmf:
            jobs[f"half missing, K={k}, libmf"] = fit_libmf, X, k, None
        result |= nanoseconds(jobs, 8, len(triples))
    for n_rows in (1_000, 10_000, 100_000, 1_000_000):
        Y = rng.normal(size=(n_rows, 8)).astype(np.float32)
        jobs = {
            f"{n_rows} x 8, K=10, {sampler}": (fit_ours, Y, 10, sampler)
            for sampler in ("uniform", "row_column")
        }
        result |= nanoseconds(jobs, max(1, 4_000_000 // Y.size), Y.size)
    return result


def bench_parts(options):
    """Nanoseconds of the parts of a learned update, one after the other."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5923, 784))
    X[rng.random(X.shape) < 0.5] = np.nan
    result = {}
    for k in (10, 50):
        opened = {}

        def keep(problem, sampler, opened=opened, **settings):
            opened.update(problem=problem, sampler=sampler)
            return solve(problem, sampler, **settings)

        with mock.patch.object(training, "solve", keep):
            ours(k, 0, 2, sampler="row_column").fit(X)
        problem, sampler = opened["problem"], opened["sampler"]
        times = {"draw": [], "learn": [], "step, entries in order": []}
        for _ in range(20 * options.turns):
            points, seconds = cpu(sampler.draw_points, 50_000)
            times["draw"].append(seconds)
            weights = 1 / points["q"]
            problem.step_points(points, weights)
            times["learn"].append(cpu(sampler.observe_points, points)[1])
            order = np.lexsort((points["j"], points["i"]))
            points, weights = points[order], weights[order]
            times["step, entries in order"].append(
                cpu(problem.step_points, points, weights)[1]
            )
        for part, seconds in times.items():
            result[f"K={k}, {part}"] = float(np.median(seconds) / 50_000 * 1e9)
    return result


def bench_safety(options):
    """Fits that end with a number that is not finite, or with an error."""
    rng = np.random.default_rng(0)
    n_runs, bad = 0, []
    for scale in 10.0 ** np.arange(-6, 7, 2):
        for eta0 in 10.0 ** np.arange(-6, 4):
            for name, X in (
                ("block", block_matrix(0)),
                (
                    "holes",
                    np.where(rng.random((60, 40)) < 0.5, np.nan, 1.0)
                    * rng.normal(size=(60, 40)),
                ),
            ):
                for tol in (None, 0.003):
                    n_runs += 1
                    try:
                        model = ours(5, 0, 5, eta0=eta0, tol=tol).fit(scale * X)
                        if not np.isfinite(model.predict(scale * X)).all():
                            bad.append((name, scale, eta0, "not finite"))
                    except ValueError as error:
                        bad.append((name, scale, eta0, str(error)))
    return {"fits": n_runs, "failed": bad}


PARTS = {
    "figure4": bench_figure4,
    "mnist": bench_mnist,
    "inpainting": bench_inpainting,
    "movielens": bench_movielens,
    "cost": bench_cost,
    "parts": bench_parts,
    "safety": bench_safety,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=os.environ.get("SKLEARN_AWSGD_DATA"))
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--slow-seeds", type=int, default=10, help="seeds of mnist and inpainting"
    )
    parser.add_argument("--turns", type=int, default=5, help="repetitions of cost")
    parser.add_argument(
        "--split-seed", type=int, default=1000, help="first seed of movielens' splits"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in options.only.split(","):
        print(part, "-", PARTS[part].__doc__, flush=True)
        results[part] = PARTS[part](options)
        for name, value in results[part].items():
            print(f"  {name:45} {value}")
        results["machine"] = {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "threads": os.environ.get("OMP_NUM_THREADS", "not set"),
            "python": platform.python_version(),
            "numpy": np.__version__,
        }
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
