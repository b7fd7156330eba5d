"""What does a draw cost beside a step of SGDClassifier, and how much memory a fit?

About ten minutes with the default number of turns; ``--turns 3`` gives a first idea.

CPU time on one thread. The cost of a draw is the difference between fits with many and
few passes over the number of draws between them, so that validation and set-up are not
in it. Contestants take turns, and each cost is given as the median over the turns and
from the fastest turns. Loss, penalty and step sizes are the same for all.

The classes are random and of equal size, so that the learned probabilities stay where
they start: otherwise the rows of a rare class would stay in the cache and flatter the
learned sampler. How far they moved is in the table.
"""

import _common  # isort: skip  (sets the number of threads)

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
from scipy import sparse
from sklearn.linear_model import SGDClassifier
from sklearn.multioutput import MultiOutputClassifier

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd._solver.records import Log
from sklearn_awsgd._spaces import ProblemView, RowSpace
from sklearn_awsgd.samplers import LevelSampler, StrataSampler, UniformSampler

STEPS = {
    "loss": "log_loss",
    "penalty": "l2",
    "alpha": 1e-4,
    "learning_rate": "constant",
    "eta0": 1e-4,
    "tol": None,
    "random_state": 0,
}
L1 = {**STEPS, "penalty": "l1"}
N_MODELS = 10


def contestants(peer, settings):
    """Return SGDClassifier, or a model made of it, and ours: n_passes -> model."""
    ours = {
        name: lambda n_passes, name=name: AWSGDClassifier(
            **settings, sampler=name, max_iter=n_passes
        )
        for name in ("uniform", "label")
    }
    return {"SGDClassifier": peer, **ours}


TWO_CLASSES = contestants(lambda n: SGDClassifier(**STEPS, max_iter=n), STEPS)
TWO_CLASSES_L1 = contestants(lambda n: SGDClassifier(**L1, max_iter=n), L1)
# Ten one-vs-rest models in one, of which each row updates all: so does softmax.
SOFTMAX = contestants(TWO_CLASSES["SGDClassifier"], {**STEPS, "loss": "multinomial"})
LABELS = contestants(
    lambda n: MultiOutputClassifier(SGDClassifier(**STEPS, max_iter=n)), STEPS
)


OURS = {name: TWO_CLASSES[name] for name in ("uniform", "label")}


def random_labels(rng, n_samples):
    """Return two classes of equal size in random order."""
    return rng.permutation(np.arange(n_samples) % 2)


def dense(rng, n_samples, n_features, dtype):
    """Return Gaussian rows, filled in pieces: no copy in another dtype."""
    X = np.empty((n_samples, n_features), dtype=dtype)
    for first in range(0, n_samples, 1000):
        piece = X[first : first + 1000]
        piece[...] = rng.standard_normal(piece.shape, dtype=np.float32)
    return X


def csr(rng, n_samples, n_nonzeros, n_features=20_000):
    """Return rows with the same number of nonzeros each, at random places."""
    indices = np.sort(rng.integers(0, n_features, (n_samples, n_nonzeros)), axis=1)
    # Equal neighbours would be merged, with a copy, before training.
    indices = (indices + np.arange(n_nonzeros)).astype(np.int32)
    indptr = np.arange(0, indices.size + 1, n_nonzeros, dtype=np.int32)
    values = rng.standard_normal(indices.size)
    shape = (n_samples, n_features + n_nonzeros)
    return sparse.csr_array((values, indices.ravel(), indptr), shape=shape)


def cost_per_update(models, X, y, passes, n_turns, n_models=1):
    """Return nanoseconds of CPU time for an update, by contestant: (median, fastest).

    An update is a step of one linear model along the gradient of one row; a draw is one
    update of each of `n_models`.
    """
    few, many = passes
    times = {name: {few: [], many: []} for name in models}
    for turn in range(n_turns):
        # Another order each turn: nobody always follows the same contestant.
        for name in np.roll(list(models), turn):
            for n_passes in passes:
                model = models[name](n_passes)
                started = time.process_time()
                model.fit(X, y)
                times[name][n_passes].append(time.process_time() - started)
    to_ns = 1e9 / ((many - few) * len(y) * n_models)
    return {
        name: (
            to_ns * float(np.median(np.subtract(found[many], found[few]))),
            to_ns * (min(found[many]) - min(found[few])),
        )
        for name, found in times.items()
    }


def how_far_moved(X, y):
    """Return the largest distance of a learned probability from the class's share."""
    clf = TWO_CLASSES["label"](3).fit(X, y)
    history = clf.sampling_history_
    positive = history["stratum"] == 1
    return float(np.abs(history["probability"][positive] - y.mean()).max())


def against_sgd(n_turns):
    """Compare with SGDClassifier for dense and sparse rows."""
    rng = np.random.default_rng(0)
    cases = [
        (f"dense d={d} {np.dtype(dtype).name}", n, d, dtype)
        for d, n in ((10, 100_000), (100, 30_000), (300, 15_000), (1280, 6_000))
        for dtype in (np.float64, np.float32)
    ] + [(f"CSR {k} nonzeros", 50_000, k, None) for k in (20, 80)]
    rows = []
    for case, n_samples, width, dtype in cases:
        y = random_labels(rng, n_samples)
        if dtype is None:
            X = csr(rng, n_samples, width)
        else:
            X = dense(rng, n_samples, width, dtype)
        # About the same number of numbers read in each case.
        many = 2 + max(4, 60_000_000 // (n_samples * (width + 20)))
        costs = cost_per_update(TWO_CLASSES, X, y, (2, many), n_turns)
        rows.append({"rows": case, **_ratios(costs)})
    return rows


def _ratios(costs):
    reference = costs["SGDClassifier"]
    row = {"SGDClassifier ns": reference[0]}
    for name in ("uniform", "label"):
        row[f"{name} ns"] = costs[name][0]
        row[f"{name} / SGD"] = costs[name][0] / reference[0]
        row[f"{name} / SGD, fastest"] = costs[name][1] / reference[1]
    return row


def other_problems(n_turns):
    """Compare softmax, several labels and l1 with SGDClassifier, for each update."""
    rng = np.random.default_rng(0)
    rows = []
    cases = [
        (f"dense d={d}", n, d) for d, n in ((10, 20_000), (100, 6_000), (300, 3_000))
    ]
    for case, n_samples, width in [*cases, ("CSR 80 nonzeros", 8_000, None)]:
        if width is None:
            X = csr(rng, n_samples, 80)
        else:
            X = dense(rng, n_samples, width, np.float64)
        numbers = n_samples * (80 if width is None else width + 20)
        many = 2 + max(2, 30_000_000 // (numbers * N_MODELS))
        # Of equal size, for the same reason as two classes are.
        classes = rng.permutation(np.arange(n_samples) % N_MODELS)
        labels = np.stack([random_labels(rng, n_samples) for _ in range(N_MODELS)], 1)
        for name, models, y, n_models in (
            (f"softmax, {N_MODELS} classes", SOFTMAX, classes, N_MODELS),
            (f"{N_MODELS} labels", LABELS, labels, N_MODELS),
            ("l1", TWO_CLASSES_L1, labels[:, 0], 1),
        ):
            n_passes = 2 + (many - 2) * (N_MODELS if n_models == 1 else 1)
            costs = cost_per_update(models, X, y, (2, n_passes), n_turns, n_models)
            rows.append({"problem": name, "rows": case, **_ratios(costs)})
    return rows


def recording(n_turns):
    """Return what it costs to record ``history_`` and ``sampling_history_``.

    The same fits with and without it would differ by less than the noise of a machine.
    So the recording of one piece is timed by itself, a thousand times, on the sampler
    of a fit; and compared with a draw of the cheapest rows.
    """
    rng = np.random.default_rng(0)
    X, y = dense(rng, 100_000, 10, np.float64), random_labels(rng, 100_000)
    costs = cost_per_update(TWO_CLASSES, X, y, (2, 8), n_turns)
    rows = []
    table = RowSpace(None, np.ones(len(y)))
    view = ProblemView(y.astype(np.int32), np.ones(len(y)))
    for name, setting in (
        ("uniform", UniformSampler()),
        ("label", StrataSampler()),
        ("level", LevelSampler()),
    ):
        setting.prepare(table, 1, 2, None)
        sampler = setting.open(table, view, 0, np.random.PCG64(0))
        seconds = []
        for _ in range(n_turns):
            log = Log()
            started = time.process_time()
            for k in range(1000):
                log.add_piece(k, 0.5, variance_gain=1.0, effective_sample_size=1.0)
                log.add_sampling(k, sampler.stratum_probabilities())
            seconds.append((time.process_time() - started) / 1000)
        record_ns = 1e9 * float(np.median(seconds))
        draw_ns = costs["uniform" if name == "uniform" else "label"][0]
        rows.append(
            {
                "sampler": name,
                "record ns": record_ns,
                "draw ns, d=10": draw_ns,
                "share of the loop, a record in 1000 draws": record_ns / draw_ns / 1e3,
                "share, a record in 10000 draws": record_ns / draw_ns / 1e4,
            }
        )
    return rows


def label_over_uniform(n_turns):
    """Compare the label sampler with uniform draws on long rows."""
    rng = np.random.default_rng(0)
    X, y = dense(rng, 30_000, 1280, np.float64), random_labels(rng, 30_000)
    costs = cost_per_update(OURS, X, y, (1, 4), n_turns)
    return [
        {
            "rows": "dense d=1280 float64",
            "uniform ns": costs["uniform"][0],
            "label ns": costs["label"][0],
            "label / uniform": costs["label"][0] / costs["uniform"][0],
            "fastest": costs["label"][1] / costs["uniform"][1],
            "probabilities moved by": how_far_moved(X, y),
        }
    ]


def number_of_rows(n_turns):
    """Return the cost of a draw for more and more rows."""
    rng = np.random.default_rng(0)
    rows = []
    for n_samples in (10_000, 100_000, 1_000_000):
        X, y = dense(rng, n_samples, 30, np.float64), random_labels(rng, n_samples)
        many = 1 + max(2, 2_000_000 // n_samples)
        costs = cost_per_update(OURS, X, y, (1, many), n_turns)
        rows.append(
            {
                "rows": f"n={n_samples} d=30",
                "MB": X.nbytes / 1e6,
                **{f"{name} ns": cost[0] for name, cost in costs.items()},
                **{f"{name} ns, fastest": cost[1] for name, cost in costs.items()},
            }
        )
    return rows


def peak_memory(gigabytes):
    """Return the peak memory of a fit over the size of its data, in a child process."""
    command = [sys.executable, __file__, "--memory-child", str(gigabytes)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(result.stdout)]


def memory_child(gigabytes):
    """Fit at the defaults on an array of some size and print what it took.

    The interpreter and the libraries are in the peak before the fit already.
    """
    rng = np.random.default_rng(0)
    X = np.empty((int(gigabytes * 1e9 / 800), 100))
    for part in np.array_split(X, 50):
        part[:] = rng.standard_normal(part.shape)
    y = (X[:, 0] + X[:, 1] > 2.5).astype(np.int8)
    before = _peak_bytes()
    AWSGDClassifier(random_state=0).fit(X, y)
    row = {
        "array GB": X.nbytes / 1e9,
        "peak GB before fit": before / 1e9,
        "peak GB after fit": _peak_bytes() / 1e9,
        "peak / array": _peak_bytes() / X.nbytes,
        "array and what fit adds / array": 1 + (_peak_bytes() - before) / X.nbytes,
    }
    print(json.dumps(row))


def _peak_bytes():
    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main():
    """Run everything, print tables, write results/step_cost.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=15, help="repetitions")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="memory test")
    parser.add_argument("--memory-child", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_child:
        memory_child(arguments.memory_child)
        return
    results = {}
    for name, title, measure in (
        ("against_sgd", "CPU time of a draw beside SGDClassifier", against_sgd),
        ("other_problems", "CPU time of an update, other problems", other_problems),
        ("recording", "What recording costs", recording),
        ("label_over_uniform", "Label sampler beside uniform", label_over_uniform),
        ("number_of_rows", "CPU time of a draw for more rows", number_of_rows),
    ):
        results[name] = measure(arguments.turns)
        _common.show(title, results[name])
    results["peak_memory"] = peak_memory(arguments.gigabytes)
    _common.show("Peak memory of fit", results["peak_memory"])
    _common.save("step_cost", {"turns": arguments.turns, **results})


if __name__ == "__main__":
    main()
