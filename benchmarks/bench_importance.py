"""How good are estimates of MinVarianceImportanceEstimator, and what do they cost?

Four questions, each a section of the JSON that is written:

- ``figure3``: the paper's block matrix, spread against uniform sampling.
- ``coverage``: how often 95 % intervals hold the truth, and the bias.
- ``evaluations``: rows to evaluate for a relative error of 2 %.
- ``overhead``: time of our own code for each evaluation.

The losses of all rows are computed once and looked up, so that thousands of runs take
minutes; the estimator only ever sees those it asks for.

Read the results with this in mind: the method was developed on cover_2v4, w8a, mnist
and the block matrix; the weight of neighbouring bins was chosen on just these splits
and models, with other seeds. Rows with ``unseen=True``, on mammography, a9a and two
other matrices, are of data that it was not developed on; later constants of surrogates
were looked at on mammography too, and checked on a9a. The rows of our uniform sampler
are a check of the measurement: it is the plain average of different rows.

Run ``python benchmarks/bench_importance.py --data DIR`` (or set SKLEARN_AWSGD_DATA);
without data it runs on generated data and says so. ``--runs`` is the number of runs of
each row of ``coverage``, to which the others go in proportion; CPU seconds of each
section are written with the results. ``--quick`` makes a tenth of them and writes
nothing.
"""

from _common import RESULTS, save, show  # isort: skip  (sets the threads)

import argparse
import json
import os
import time
import warnings
from itertools import groupby
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from sklearn_awsgd import MinVarianceImportanceEstimator

# Of these all sections together take about ten CPU minutes.
DEFAULT_RUNS = 100


def block_matrix(seed, n=100, rank=10, block=20):
    """Return the squared entries of the paper's matrix: the loss of the zero model."""
    random = np.random.default_rng(seed)
    Y = random.normal(size=(n, rank)) @ random.normal(size=(n, rank)).T
    rows, columns = (random.choice(n, block, replace=False) for _ in range(2))
    Y[np.ix_(rows, columns)] *= 100
    return Y**2


def lognormal_matrix(seed, shape=(120, 150)):
    """Return noise whose scale is a product of a row's and a column's."""
    random = np.random.default_rng(seed)
    scales = (np.exp(random.normal(size=size)) for size in shape)
    return np.outer(*scales) * random.exponential(size=shape)


def entry_value(entries, values):
    """Return the integrand of the block matrix."""
    return values


def best_product(F, n_steps=200):
    """Return the best product distribution for a matrix."""
    p, r = (np.full(size, 1 / size) for size in F.shape)
    for _ in range(n_steps):
        p = np.sqrt((F**2 / r).sum(axis=1))
        p /= p.sum()
        r = np.sqrt((F**2 / p[:, None]).sum(axis=0))
        r /= r.sum()
    return p, r


def draw_std(F, p, r, mixing):
    """Return the standard deviation of f/q of one draw."""
    q = (1 - mixing) * np.outer(p, r) * F.size + mixing
    return np.sqrt((F**2 / q).mean() - F.mean() ** 2)


def load(name, data):
    """Return X and a rare binary y."""
    if data is None:
        X, y = make_classification(
            50_000, 20, n_informative=8, weights=[0.98], random_state=len(name)
        )
        return X, y
    z = np.load(Path(data) / f"{name}.npz", allow_pickle=False)
    if name in ("w8a", "a9a"):
        parts = (z["data"].astype("f8"), z["indices"], z["indptr"])
        X = sparse.csr_matrix(parts, shape=tuple(z["shape"])).toarray()
        return X, (z["y"] > 0).astype(int)
    if name == "mnist":
        X = np.concatenate([z["X_train"], z["X_test"]]).reshape(-1, 784)[:, ::4] / 255.0
        y = np.concatenate([z["y_train"], z["y_test"]]) == 8
        return X, y.astype(int)
    return StandardScaler().fit_transform(z["X"].astype("f8")), (z["y"] > 0).astype(int)


def label_loss(model, X, y):
    """Return log-loss, zero-one loss and the probability of error of every row."""
    p = model.predict_proba(X)[np.arange(len(y)), y]
    return {
        "log_loss": -np.log(np.clip(p, 1e-15, 1)),
        "zero_one": 1.0 * (p < 0.5),
    }, 1 - p


def pools(data, names, kinds=("logistic", "boosted")):
    """Yield pools: 80 % of the rows, models of some kinds trained on the rest.

    The surrogate is a logistic regression on 2,000 of the training rows.
    """
    for name in names:
        X, y = load(name, data)
        train = np.random.default_rng(0).random(len(y)) < 0.2
        few = np.flatnonzero(train)[:2000]
        Xp, yp = X[~train], y[~train]
        cheap = LogisticRegression(C=0.1, max_iter=200).fit(X[few], y[few])
        cheap_loss, cheap_error = label_loss(cheap, Xp, yp)
        models = {
            "logistic": LogisticRegression(max_iter=200),
            "boosted": HistGradientBoostingClassifier(max_iter=50, random_state=0),
        }
        for kind, model in models.items():
            if kind not in kinds:
                continue
            losses, _ = label_loss(model.fit(X[train], y[train]), Xp, yp)
            yield {
                "name": name,
                "model": kind,
                "X": Xp,
                "y": yp,
                "losses": losses,
                "scores": {"log_loss": cheap_loss["log_loss"], "zero_one": cheap_error},
                "hits": model.predict(Xp) == 1,
            }


class Looked:
    """A binary classifier whose predictions are known."""

    classes_ = np.array([0, 1])

    def __init__(self, hits):
        self.hits = hits.astype(int)

    def predict(self, X):
        return self.hits[X[:, -1].astype(int)]


def run(f, y, seed, X=None, **parameters):
    """Run the estimator on known values; X is only needed by a learned surrogate."""
    keys = np.arange(len(f), dtype=float)[:, None]
    X = keys if X is None else np.column_stack([X, keys])

    def loss(rows, y_rows):
        return f[rows[:, -1].astype(int)]

    model = None
    if y.max() == 1 and np.isin(f, (0, 1)).all():
        # Under its name, so that the range of the loss is known.
        model, loss = Looked(np.where(f > 0, 1 - y, y)), "zero_one"
    estimator = MinVarianceImportanceEstimator(
        model, loss, random_state=seed, **parameters
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def figure3(n_seeds):
    """Compare with uniform sampling on the block matrix."""
    rows = []
    for budget in (2400, 5000):
        gains, best, errors, draws = [], [], [], []
        for seed in range(n_seeds):
            F = block_matrix(seed)
            uniform = F.std()
            estimator = MinVarianceImportanceEstimator(
                loss=entry_value,
                sampler="row_column",
                max_evaluations=budget,
                rtol=None,
                random_state=seed,
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                estimator.fit(F)
            p, r = estimator.sampling_probabilities_
            gains.append(uniform / draw_std(F, p, r, 0.1))
            best.append(uniform / draw_std(F, *best_product(F), 0.0))
            error = (estimator.estimate_ - F.mean()) / (uniform / np.sqrt(budget))
            errors.append(error)
            draws.append(estimator.n_draws_)
        rows.append(
            {
                "evaluations": budget,
                "draws": float(np.mean(draws)),
                "gain_of_one_draw": float(np.mean(gains)),
                "gain_of_one_draw_worst": float(np.min(gains)),
                "best_product": float(np.mean(best)),
                "gain_of_estimate": float(1 / np.sqrt(np.mean(np.square(errors)))),
            }
        )
    return rows


def coverage_row(name, truth, fits, **labels):
    """Return coverage and bias of fitted estimators."""
    estimates, low, high, given, evaluations, errors = np.array(fits).T
    slack = 1e-12 * abs(truth)
    holds = (low <= truth + slack) & (truth - slack <= high)
    error = estimates - truth
    rmse = float(np.sqrt(np.mean(error**2)))
    given = given > 0
    half = (high - low)[given] / 2
    return {
        "name": name,
        **labels,
        "n_runs": len(fits),
        "interval_given": float(given.mean()),
        "coverage": float(holds[given].mean()) if given.any() else None,
        "too_low": float((high + slack < truth).mean()),
        "too_high": float((low - slack > truth).mean()),
        "bias_over_error": float(error.mean() / rmse) if rmse > slack else 0.0,
        "relative_rmse": rmse / abs(truth),
        "std_error_over_rmse": float(errors.mean() / rmse) if rmse > slack else None,
        "half_width_over_rmse": float(np.median(half) / rmse)
        if given.any() and rmse > slack
        else None,
        "evaluations": float(evaluations.mean()),
    }


def numbers(fit):
    """Return what of a fitted estimator is needed for the coverage."""
    low, high = fit.confidence_interval_
    given = (low, high) != (-np.inf, np.inf)
    error = fit.std_error_
    return fit.estimate_, low, high, given, fit.n_evaluations_, error


def matrix_coverage(n_runs):
    """Yield rows for the entries of matrices."""
    cases = (
        ("block matrix", block_matrix(0), False),
        ("small block", block_matrix(1, block=10), True),
        ("lognormal rows x columns", lognormal_matrix(0), True),
    )
    for name, F, unseen in cases:
        for most, rtol in ((2400, None), (F.size // 2, 0.1)):
            fits = []
            for seed in range(n_runs):
                estimator = MinVarianceImportanceEstimator(
                    loss=entry_value,
                    sampler="row_column",
                    max_evaluations=most,
                    rtol=rtol,
                    random_state=seed,
                )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    fits.append(numbers(estimator.fit(F)))
            labels = {"budget": most, "rtol": rtol, "unseen": unseen}
            yield coverage_row(name, F.mean(), fits, **labels)


def generated_coverage(n_runs):
    """Yield rows for integrands that are constant or have heavy tails."""
    n = 50_000
    random = np.random.default_rng(0)
    cases = {
        "constant": np.full(n, 3.0),
        "lognormal, sigma 2": np.exp(2 * random.normal(size=n)),
        "Pareto, index 1.5": random.pareto(1.5, size=n),
    }
    y = random.integers(0, 2, size=n)
    for name, f in cases.items():
        fits = [numbers(run(f, y, s, max_evaluations=4000)) for s in range(n_runs)]
        yield coverage_row(name, f.mean(), fits, budget=4000)


def rate_coverage(pool, n_runs, **labels):
    """Yield rows for precision, recall and F1."""
    y, hits = pool["y"], pool["hits"]
    keys = np.arange(len(y), dtype=float)[:, None]
    found = (hits & (y == 1)).sum()
    truths = {
        "precision": found / hits.sum(),
        "recall": found / y.sum(),
        "f1": 2 * found / (hits.sum() + y.sum()),
    }
    for loss, truth in truths.items():
        for sampler in ("uniform", "label"):
            fits = []
            for seed in range(n_runs):
                estimator = MinVarianceImportanceEstimator(
                    Looked(hits),
                    loss,
                    sampler=sampler,
                    max_evaluations=4000,
                    rtol=None,
                    random_state=seed,
                )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    fits.append(numbers(estimator.fit(keys, y)))
            yield coverage_row(
                pool["name"],
                truth,
                fits,
                loss=loss,
                sampler=sampler,
                budget=4000,
                **labels,
            )


# Stopping is tried at a tolerance that some runs reach and others do not.
TOLERANCES = {"cover_2v4": 0.3, "w8a": 0.1, "mammography": 0.1, "a9a": 0.03}


def pool_coverage(pool, n_runs, budgets, **labels):
    """Yield rows for the losses of a classifier on a pool."""
    rtol = TOLERANCES[pool["name"]]
    settings = [("label", budget, None) for budget in budgets]
    settings += [
        ("label", budgets[-1], rtol),
        ("uniform", budgets[1], None),
        ("surrogate", budgets[1], None),
        ("surrogate", budgets[-1], rtol / 2),
    ]
    for loss, f in pool["losses"].items():
        for sampler, budget, tolerance in settings:
            score = pool["scores"][loss] if sampler == "surrogate" else None
            fits = [
                numbers(
                    run(
                        f,
                        pool["y"],
                        seed,
                        sampler="uniform" if sampler == "uniform" else "auto",
                        surrogate=score,
                        max_evaluations=budget,
                        rtol=tolerance,
                    )
                )
                for seed in range(n_runs)
            ]
            yield coverage_row(
                pool["name"],
                f.mean(),
                fits,
                loss=loss,
                sampler=sampler,
                budget=budget,
                rtol=tolerance,
                **labels,
            )


def coverage(data, n_runs):
    """Yield how often intervals hold the truth."""
    n_others = max(n_runs // 5, 10)
    yield from matrix_coverage(n_runs)
    yield from generated_coverage(n_others)
    for pool in pools(data, ("cover_2v4", "w8a"), ("logistic",)):
        yield from pool_coverage(pool, n_runs, (1000, 4000, 16_000))
        yield from rate_coverage(pool, n_others)
    for pool in pools(data, ("mammography", "a9a"), ("logistic",)):
        budgets = (500, 1500, 5000)
        yield from pool_coverage(pool, 2 * n_others, budgets, unseen=True)
        yield from rate_coverage(pool, n_others, unseen=True)


def evaluations_for(truth, fits, wanted=0.02):
    """Return after how many evaluations the root mean square error is as wanted.

    The squared errors of all runs at all times are made a falling function of the
    number of evaluations by isotonic regression. None when they do not get there.
    """
    histories = [fit.history_ for fit in fits]
    evaluations = np.concatenate([h["evaluations"] for h in histories])
    error = np.concatenate([h["estimate"] for h in histories]) / truth - 1
    # Between two points it is linear in 1/n, as the variance of an average is.
    rising = IsotonicRegression().fit(1 / evaluations, error**2)
    grid = np.geomspace(evaluations.min(), evaluations.max(), 2000)
    reached = rising.predict(1 / grid) <= wanted**2
    return float(grid[np.argmax(reached)]) if reached.any() else None


def neyman_evaluations(f, strata, wanted=0.02):
    """Return the rows that stratified sampling needs when all variances are known."""
    counts = np.bincount(strata)
    spread = np.array([f[strata == s].std() for s in range(len(counts))])
    low, high = 2.0, float(len(f))
    variance = (wanted * f.mean()) ** 2
    for _ in range(60):
        total = (low + high) / 2
        share = np.minimum(total * counts * spread / (counts @ spread), counts)
        for _ in range(20):
            # Rows that a full stratum cannot take go to the others.
            left = total - share.sum()
            free = share < counts
            if left <= 1e-9 or not free.any():
                break
            grow = left * counts * spread * free / ((counts * spread * free).sum() or 1)
            share = np.minimum(share + grow, counts)
        part = (counts / len(f)) ** 2 * spread**2
        error = (part * (1 / np.maximum(share, 1e-9) - 1 / counts)).sum()
        low, high = (total, high) if error > variance else (low, total)
    return high


def vegas_evaluations(f, n_seeds, wanted=0.02):
    """Return the evaluations vegas needs on the sum in shuffled order, or None."""
    try:
        import vegas
    except ImportError:
        return None
    truth, n = f.mean(), len(f)

    def error(total, seed):
        random = np.random.default_rng(seed)
        shuffled = random.permutation(f)

        @vegas.batchintegrand
        def integrand(x):
            return shuffled[np.minimum((x[:, 0] * n).astype(int), n - 1)]

        vegas.ran_array_generator = random.random
        integrator = vegas.Integrator([[0, 1]])
        return integrator(integrand, nitn=10, neval=total // 10).mean / truth - 1

    for total in np.geomspace(1000, 64 * n, 14).astype(int):
        rmse = np.sqrt(np.mean([error(total, seed) ** 2 for seed in range(n_seeds)]))
        if rmse <= wanted:
            return float(total)
    return float("inf")


def evaluations(data, n_runs, uniform_doubt):
    """Yield evaluations for a relative error of 2 %.

    "uniform" is a plain average of different rows, the fair baseline for a pool;
    "uniform_with_replacement" that of independent draws, as of a stream. Our uniform
    sampler has so many runs that the measured number is known up to `uniform_doubt`,
    one relative standard error.
    """
    for pool in pools(data, ("cover_2v4", "w8a", "mnist", "mammography", "a9a")):
        y = pool["y"]
        n = len(y)
        for loss, f in pool["losses"].items():
            truth = f.mean()
            # Of a plain average without replacement the variance is known.
            plain = f.var() / (0.02 * truth) ** 2
            row = {
                "pool": pool["name"],
                "model": pool["model"],
                "loss": loss,
                "unseen": pool["name"] in ("mammography", "a9a"),
                "n_rows": n,
                "uniform": plain / (1 + plain / n),
                "uniform_with_replacement": plain,
                "neyman_label": neyman_evaluations(f, y),
            }

            def count(name, runs, most=n, truth=truth, f=f, y=y, row=row, **parameters):
                started = time.process_time()
                fits = [
                    run(f, y, seed, max_evaluations=most, rtol=None, **parameters)
                    for seed in range(runs)
                ]
                row[name] = evaluations_for(truth, fits)
                row[name + "_seconds"] = (time.process_time() - started) / runs

            # A variance from R runs is known up to sqrt(2 / R), and the number without
            # replacement follows it the less, the more of the pool it is.
            spread = np.sqrt(2) * (1 - row["uniform"] / n)
            uniform_runs = max(n_runs, int((spread / uniform_doubt) ** 2))
            most = min(n, int(2 * row["uniform"]))
            count("ours_uniform", uniform_runs, most=most, sampler="uniform")
            count("ours_label", n_runs)
            count("ours_surrogate", n_runs, surrogate=pool["scores"][loss])
            row["vegas"] = vegas_evaluations(f, 5)
            if loss == "log_loss":
                learned = {"X": pool["X"], "surrogate": "learned"}
                count("ours_learned", max(n_runs // 2, 3), **learned)
            yield row


def summarise(rows):
    """Return medians and worst cases of the gains over uniform sampling."""
    result = []
    for unseen in (False, True):
        chosen = [row for row in rows if row["unseen"] is unseen]
        for ours in ("ours_uniform", "ours_label", "ours_surrogate", "ours_learned"):
            part = [row for row in chosen if ours in row]
            if not part:
                continue
            summary = {"unseen": unseen, "sampler": ours, "n_rows": len(part)}
            for baseline in ("uniform", "uniform_with_replacement"):
                gains = [row[baseline] / (row[ours] or np.inf) for row in part]
                summary[f"median_gain_over_{baseline}"] = float(np.median(gains))
                summary[f"least_gain_over_{baseline}"] = float(np.min(gains))
            result.append(summary)
    return result


def overhead(n_repeats, n=1_000_000):
    """Time our own code, in CPU seconds: the slope between runs of two lengths."""
    random = np.random.default_rng(0)
    y = (random.random(n) < 0.03).astype(int)
    f = random.exponential(size=n) * (1 + 20 * y)
    rows = []
    for name, score in (("label", None), ("surrogate", f * random.random(n))):
        slopes, setups = [], []
        for _ in range(n_repeats):
            seconds, done = [], []
            for budget in (50_000, 250_000):
                started = time.process_time()
                fit = run(
                    f,
                    y,
                    0,
                    surrogate=score,
                    batch_size=1000,
                    max_evaluations=budget,
                    rtol=None,
                )
                seconds.append(time.process_time() - started)
                done.append(fit.n_evaluations_)
            slope = (seconds[1] - seconds[0]) / (done[1] - done[0])
            slopes.append(slope)
            setups.append(seconds[0] - slope * done[0])
        rows.append(
            {
                "sampler": name,
                "n_rows": n,
                "microseconds_per_evaluation": 1e6 * float(np.median(slopes)),
                "setup_seconds": float(np.median(setups)),
            }
        )
    return rows


def main():
    """Run all sections and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("SKLEARN_AWSGD_DATA"))
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=None)
    options = parser.parse_args()
    quick = options.quick
    runs = max(options.runs // 10, 10) if quick else options.runs
    sections = {
        "figure3": lambda: figure3(max(runs // 2, 10)),
        "overhead": lambda: overhead(1 if quick else 3),
        "coverage": lambda: coverage(options.data, runs),
        # Of so many runs a variance is known up to this share of itself.
        "evaluations": lambda: evaluations(
            options.data, max(runs // 20, 3), np.sqrt(2 / runs)
        ),
    }
    path = RESULTS / "importance.json"
    results = {}
    if path.exists() and not quick:
        # Sections that are not run stay; the environment is that of the last run.
        results = json.loads(path.read_text())
        results.pop("environment", None)
    for name, section in sections.items():
        if options.only and name not in options.only:
            continue
        results[name] = []
        results["data"] = "given" if options.data else "generated"
        started = time.process_time()
        # A table for each run of rows with the same columns.
        for _, rows in groupby(section(), key=list):
            rows = list(rows)
            results[name] += rows
            show(name, rows)
            if not quick:
                save("importance", results)
        seconds = results.setdefault("cpu_seconds", {})
        seconds[name] = round(time.process_time() - started, 1)
        print(f"{name}: {seconds[name]} CPU seconds")
        if name == "evaluations":
            results["gains"] = summarise(results[name])
            show("gains over uniform sampling", results["gains"])
        if not quick:
            save("importance", results)


if __name__ == "__main__":
    main()
