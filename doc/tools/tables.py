"""Tables of the pages and of the README, made from ``benchmarks/results/*.json``.

The pages include what ``make doc`` writes here; the README has its table between two
comments, and ``make tables`` writes it again after a benchmark. A test compares.
"""

import json
import math
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.rst"
BEGIN, END = ".. begin of the table", ".. end of the table"
PEERS = {
    "lbfgs": "lbfgs",
    "newton-cholesky": "newton-cholesky",
    "liblinear dual": "liblinear",
    "saga": "saga",
    "SGDClassifier tuned": "SGDClassifier, tuned",
}
# One set of each kind for the README; the page has all of them.
SHOWN = (
    "w8a a9a cover_2v4 mammography mnist/0 coco/0 newsgroups/0 imbalanced "
    "heterogeneous sparse"
).split()


def read(name):
    """Return the committed results of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def number(value, digits=2):
    """Return a number as text with some digits, a dash if it was not reached."""
    if isinstance(value, str):
        return value
    if value is None or not math.isfinite(value):
        return "--"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 6)}f}"


def rst_table(columns, rows):
    """Return a simple table of reStructuredText."""
    cells = [[str(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = "  ".join("=" * width for width in widths)

    def line(row):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([rule, line(cells[0]), rule, *map(line, cells[1:]), rule]) + "\n"


def times(peer, ours):
    """Return how many times as long a peer took."""
    return f"{number(peer / ours)}x" if math.isfinite(peer) else "--"


def solver_rows(rows):
    """Return rows of the table of solvers: ours in seconds, peers as multiples."""
    return [
        [f"{row['ours']:.3f} s", *(times(row[peer], row["ours"]) for peer in PEERS)]
        for row in rows
    ]


def readme_table():
    """Return the README's table: sets of each kind, one penalty, one accuracy."""
    results = read("time_to_optimum")
    of_set = {
        row["set"]: row
        for row in results["rows"]
        if row["alpha"] == 1e-4 and row["to"] == 1e-3
    }
    rows = [of_set[name] for name in SHOWN]
    table = rst_table(
        ["data", "ours", *PEERS.values()],
        [[row["set"], *cells] for row, cells in zip(rows, solver_rows(rows))],
    )
    summary = results["summary"]
    mean = summary["geometric mean of ours / best peer of each set"]
    unseen = summary["the same for sets that no constant was chosen on"]
    n_sets = len({row["set"] for row in results["rows"]})
    text = (
        f"Over {n_sets} sets, two penalties and three accuracies, ours takes "
        f"{mean:.2f} of the time of the *best* peer of each row (geometric mean; "
        f"{unseen:.2f} on the sets that no constant of ours was chosen on), at worst "
        f"{summary['largest ratio']:.2f}."
    )
    return f"\n{table}\n{textwrap.fill(text, 88)}\n"


def all_solvers():
    """Return every row of the benchmark of solvers."""
    results = read("time_to_optimum")
    rows = results["rows"]
    table = rst_table(
        ["data", "alpha", "to", "ours", *PEERS.values(), "ours / best peer"],
        [
            [
                row["set"],
                f"{row['alpha']:g}",
                f"{100 * row['to']:g} %",
                *cells,
                number(row["ratio"] or None),
            ]
            for row, cells in zip(rows, solver_rows(rows))
        ],
    )
    facts = rst_table(
        ["summary", ""],
        [[text, number(value)] for text, value in results["summary"].items()],
    )
    return f"{facts}\n{table}"


def every_loss():
    """Return seconds to the optimum of other losses and penalties."""
    results = read("every_loss")
    table = rst_table(
        ["data", "loss", "penalty", "alpha", "to", "ours", "tol kept", "best peer", ""],
        [
            [
                row["set"],
                row["loss"],
                row["penalty"],
                f"{row['alpha']:g}",
                f"{100 * row['to']:g} %",
                f"{row['ours']:.3f} s",
                row["reached"],
                row["best peer"],
                times(row["seconds"], row["ours"]),
            ]
            for row in results["rows"]
        ],
    )
    path = rst_table(
        ["ten l1 penalties, sparse, 26,000 columns", "CPU s", "worst distance"],
        [
            [row["contestant"], number(row["seconds"]), f"{row['worst distance']:.1e}"]
            for row in results["path"]
        ],
    )
    facts = rst_table(
        ["summary", ""],
        [[text, number(value)] for text, value in results["summary"].items()],
    )
    return f"{facts}\n{path}\n{table}"


def softmax():
    """Return seconds to the optimum of softmax regression, and those of the peers."""
    results = read("softmax")
    solvers = ("lbfgs", "newton-cg", "newton-cholesky")
    table = rst_table(
        ["data", "to", "ours", "tol kept", *solvers, "ours / best peer"],
        [
            [
                row["set"],
                f"{100 * row['to']:g} %",
                f"{row['ours']:.3f} s",
                row["reached"],
                *(times(row[solver], row["ours"]) for solver in solvers),
                number(row["ratio"] or None),
            ]
            for row in results["rows"]
        ],
    )
    facts = rst_table(
        ["summary", ""],
        [[text, number(value)] for text, value in results["summary"].items()],
    )
    return f"{facts}\n{table}"


def small():
    """Return CPU times of small fits, and of searches for a penalty."""
    results = read("small")
    fits = rst_table(
        ["data", "ours", "ms", "LogisticRegression, ms", "ours / peer"],
        [
            [
                row["set"],
                row["ours"],
                number(row["ms"]),
                number(row["LogisticRegression ms"]),
                number(row["fit"]),
            ]
            for row in results["rows"]
        ],
    )
    searches = rst_table(
        ["search of a penalty", "ours, s", "LogisticRegressionCV, s", "ours / peer"],
        [
            [
                row["set"],
                number(row["ours s"]),
                number(row["LogisticRegressionCV s"]),
                number(row["search"]),
            ]
            for row in results["paths"]
        ],
    )
    return f"{fits}\n{searches}"


def draws():
    """Return passes of draws until 1 % and 0.1 %."""
    names = ("level", "label", "shuffled", "with replacement")
    return rst_table(
        ["data", "positive", "to", *names],
        [
            [
                row["set"],
                f"{row['positive']:.1%}",
                f"{100 * row['to']:g} %",
                *(number(row[name]) for name in names),
            ]
            for row in read("sampling")["draws"]
        ],
    )


def factorization():
    """Return held-out errors and seconds of factorizations."""
    results = read("factorization")
    ratings = rst_table(
        ["MovieLens 100k", "RMSE", "CPU s"],
        [
            [name, f"{row['rmse']:.4f}", number(row["CPU s"])]
            for name, row in results["movielens"].items()
        ],
    )
    pixels = rst_table(
        ["MNIST zeros, half missing", *results["inpainting"]["columns"]],
        [
            [name, f"{row[0]:.4f}", number(row[1])]
            for name, row in results["inpainting"].items()
            if isinstance(row, list) and name != "columns"
        ],
    )
    return f"{ratings}\n{pixels}"


def evaluations():
    """Return how many evaluations of a loss are saved."""
    kinds = {
        "ours_uniform": "uniform",
        "ours_label": "by label",
        "ours_surrogate": "with a cheap surrogate",
        "ours_learned": "with a learned surrogate",
    }
    return rst_table(
        ["sampler", "pools", "median", "least", "median, with replacement"],
        [
            [
                kinds.get(row["sampler"], row["sampler"]),
                f"{row['n_rows']}, {'unseen' if row['unseen'] else 'seen'}",
                number(row["median_gain_over_uniform"]),
                number(row["least_gain_over_uniform"]),
                number(row["median_gain_over_uniform_with_replacement"]),
            ]
            for row in read("importance")["gains"]
        ],
    )


def intervals():
    """Return coverage, widths and errors of each contestant over all rows."""
    columns = (
        "contestant",
        "rows",
        "least coverage",
        "rows below 93 %",
        "median width",
        "error / by label",
        "most",
        "error / best peer",
        "most",
    )
    return rst_table(
        columns,
        [
            [
                row["contestant"],
                row["n_rows"],
                f"{row['least_coverage']:.3f}",
                row["rows_below_93"],
                number(row["median_width_over_errors"], 3),
                number(row["median_error_over_labels"], 3),
                number(row["most_error_over_labels"], 3),
                number(row["median_error_over_best_peer"], 3),
                number(row["most_error_over_best_peer"], 3),
            ]
            for row in read("importance_peers")["summary"]
        ],
    )


def interval_pools():
    """Return errors and coverages of all contestants, one line for a question."""
    names = {
        "ours, label": "by label",
        "ours, surrogate": "surrogate",
        "ours, learned": "learned",
        "plain average": "plain average",
        "ppi++": "ppi++",
        "active inference": "active inf.",
        "LURE": "LURE",
        "vegas": "vegas",
    }
    lines = {}
    for row in read("importance_peers")["rows"]:
        key = row["pool"], row["question"], f"{row['budget']:,}"
        cell = f"{number(row['relative_rmse'])} ({100 * row['coverage']:.0f} %)"
        line = lines.setdefault(key, {"runs": row["n_runs"]})
        line[row["contestant"]] = cell
    return rst_table(
        ["pool", "question", "budget", "runs", *names.values()],
        [
            [*key, line["runs"], *(line.get(name, "--") for name in names)]
            for key, line in lines.items()
        ],
    )


def anytime():
    """Return how often intervals hold at all looks together."""
    rows = read("importance_peers")["anytime"]
    return rst_table(
        ["pool", "sampler", "runs", "looks", "anytime=True", "anytime=False"],
        [
            [
                row["pool"],
                row["contestant"].removeprefix("ours, "),
                row["n_runs"],
                row["n_looks"],
                f"{row['all_looks_anytime']:.3f}",
                f"{row['all_looks_default']:.3f}",
            ]
            for row in rows
        ],
    )


def figure3():
    """Return the standard deviations of the paper's third figure."""
    return rst_table(
        ["entries seen of 10,000", "one draw", "the best product", "the estimate"],
        [
            [
                f"{row['evaluations']:,}",
                number(row["gain_of_one_draw"]),
                number(row["best_product"]),
                number(row["gain_of_estimate"]),
            ]
            for row in read("importance")["figure3"]
        ],
    )


def figure4():
    """Return losses and epochs of the paper's fourth figure."""
    return rst_table(
        ["", "uniform after 10 epochs", "ours after 10 passes", "ours is there after"],
        [
            [
                name,
                number(row["uniform loss after 10 epochs"], 3),
                number(row["our loss after 1, 2, 3, 5, 10 passes"][-1], 3),
                f"{row['epochs of ours to that loss']} epochs",
            ]
            for name, row in read("factorization")["figure4"].items()
        ],
    )


def figure5():
    """Return the speed-ups on the zeros of MNIST."""
    rows = []
    for name, value in read("factorization")["mnist"].items():
        if name.startswith("default / ") or name.startswith("learned draws / "):
            contestants, _, how = name.partition(": ")[0].rpartition(", ")
            found = (
                [f"{v}x" for v in value] if isinstance(value, list) else ["--", "--"]
            )
            rows.append([contestants, how, *found])
    return rst_table(["contestants", "factors of the rows", "epochs", "CPU"], rows)


def share(value):
    """Return a probability of success as short text: ``.84``, ``>.99``, ``1``."""
    if value >= 0.9995 or round(value, 2) == 0:
        return f"{value:.0f}"
    return ">.99" if value >= 0.995 else f"{value:.2f}"[1:]


def success(row):
    """Return the success after 1,000, 3,000, 10,000 and 20,000 episodes."""
    return " / ".join(share(row[n]) for n in ("1,000", "3,000", "10,000", "20,000"))


def policy_grids():
    """Return success on the paper's grids, a row for each grid and horizon."""
    rows = read("policy")["grid"]
    names = list(dict.fromkeys(row["contestant"] for row in rows))
    found = {(row["l"], row["horizon"], row["contestant"]): row for row in rows}
    grids = [row for row in rows if row["contestant"] == names[0]]
    return rst_table(
        ["l, horizon (chance), runs", *names],
        [
            [
                f"{row['l']}, {row['horizon']:,} ({100 * row['chance']:.2g} %), "
                f"{row['seeds']}",
                *(success(found[row["l"], row["horizon"], name]) for name in names),
            ]
            for row in grids
        ],
    )


def policy_parts():
    """Return what each part of exploration does, a column for each grid."""
    rows = read("policy")["ablation"]
    found = {(row["contestant"], row["l"]): success(row) for row in rows}
    grids = {row["l"]: f"l = {row['l']}, horizon {row['horizon']:,}" for row in rows}
    return rst_table(
        ["contestant", *grids.values()],
        [
            [name, *(found.get((name, size), "not run") for size in grids)]
            for name in dict.fromkeys(row["contestant"] for row in rows)
        ],
    )


def policy_toys():
    """Return mean returns on Gymnasium's tables."""
    rows = read("policy")["toys"]
    steps = ["30,000", "100,000", "300,000", "1,000,000"]
    return rst_table(
        ["environment (best possible)", "contestant", *steps],
        [
            [
                f"{row['environment']} ({number(row['best possible'], 3)})",
                row["contestant"],
                *(
                    f"{row[n]:.2f}" if abs(row[n]) < 10 else f"{row[n]:,.0f}"
                    for n in steps
                    if n in row
                ),
                *("\\" for n in steps if n not in row),
            ]
            for row in rows
        ],
    )


def policy_speed():
    """Return environment steps in a CPU second."""
    rows = read("policy")["speed"]
    kinds = ("trajectory", "on_policy")
    found = {(row["l"], row["sampler"]): row["million steps / CPU s"] for row in rows}
    return rst_table(
        ["l", "learned exploration", "on-policy"],
        [
            [size, *(f"{found[size, name]:.1f} million" for name in kinds)]
            for size in dict.fromkeys(row["l"] for row in rows)
        ],
    )


def slow_rows():
    """Return times of the paper's experiment with slow rows, SGD's over ours."""
    return rst_table(
        [
            "slower by",
            "one epoch",
            "by cost",
            "to equal loss",
            "by cost",
            "of AW-SGD",
            "bound",
        ],
        [
            [
                f"{row['f']:,.0f}",
                number(row["time_per_epoch_ratio"]),
                number(row["by_cost_time_per_epoch_ratio"]),
                number(row["time_to_equal_loss_ratio"]),
                number(row["by_cost_time_to_equal_loss_ratio"]),
                number(row["aw_time_to_equal_loss_ratio"]),
                f"{row['bound']:.2f}",
            ]
            for row in read("time_aware")["paper"]
        ],
    )


def sources():
    """Return what was measured of row sources."""
    results = read("time_aware")
    latency = rst_table(
        ["1 ms to seek a row of one half", "seconds to 5 %", "from the cache"],
        [
            [
                row["who"],
                number(row["seconds"]) if row["reached"] else "not in 30 passes",
                f"{row['hits']:.0%}",
            ]
            for row in results["latency"]
        ],
    )
    large = rst_table(
        [
            "a folder of chunks",
            "from",
            "one read",
            "fit",
            "CPU",
            "passes",
            "peak memory",
        ],
        [
            [
                f"{row['gigabytes']:g} GB",
                row["from"],
                f"{number(row['seconds_to_read'])} s",
                f"{number(row['reads'])} reads",
                f"{number(row['cpu_seconds_to_fit'])} s",
                f"{row['passes']:.0f}",
                f"{row['peak_megabytes']:.0f} MB",
            ]
            for row in results["large"]
        ],
    )
    overhead = rst_table(
        ["overhead", "ratio"],
        [[row["what"], number(row["ratio"], 3)] for row in results["overhead"]],
    )
    return f"{latency}\n{large}\n{overhead}"


def cluster_peers():
    """Return seconds to the optimum on a cluster, and those of the best peer."""
    rows = [row for row in read("dask")["summary"] if row["measure"] == "seconds"]
    return rst_table(
        ["rows", "to", "ours", "best peer", "its time", "ours / best peer"],
        [
            [
                row["set"],
                f"{100 * row['target']:g} %",
                f"{row['ours']:.1f} s",
                row["best peer"],
                number(row["peer"]),
                number(row["share"]),
            ]
            for row in rows
        ],
    )


def cluster_local():
    """Return seconds of the same fit on a cluster and on one machine."""
    return rst_table(
        [
            "tol",
            "where",
            "seconds",
            "CPU seconds",
            "passes",
            "time / best of one machine",
        ],
        [
            [
                f"{row['tol']:g}",
                row["where"],
                number(row["seconds"]),
                number(row["CPU seconds"]),
                row["passes"],
                number(row["ratio"]),
            ]
            for row in read("dask")["local"]
        ],
    )


def cluster_bytes():
    """Return bytes that are sent for each block, by function and number of rows."""
    rows = read("dask")["bytes"]
    sizes = sorted({row["rows"] for row in rows})
    names = list(dict.fromkeys(row["function"] for row in rows))
    found = {(row["function"], row["rows"]): row for row in rows}
    return rst_table(
        ["function", *(f"{way}, {n:,} rows" for n in sizes for way in ("to", "from"))],
        [
            [
                name,
                *(
                    f"{found[name, n][f'bytes {way} a block']:,}"
                    for n in sizes
                    for way in ("to", "from")
                ),
            ]
            for name in names
        ],
    )


def cluster_memory():
    """Return what a fit took on more rows than the workers may hold."""
    return rst_table(
        ["GB of rows", "limit of each of two workers, GB", "seconds", "passes"],
        [
            [
                number(row["GB"]),
                row["limit of a worker, GB"],
                number(row["seconds"]),
                row["passes"],
            ]
            for row in read("dask")["memory"]
        ],
    )


def stream_losses():
    """Return losses of streams, of sets that constants were chosen on and others."""
    results = read("streams")
    kinds = {
        "ours": "ours",
        "refit": "refit",
        "tuned": "SGD tuned",
        "averaged": "averaged",
        "sgd": "default",
        "vw": "VW",
        "vw coin": "VW coin",
        "river": "river",
    }

    def table(title, rows):
        known = [kind for kind in kinds if any(kind in row for row in rows)]
        scored = [kind for kind in known[:3] if f"{kind} AP" in rows[0]]
        return rst_table(
            [title, *map(kinds.get, known), *(f"AP, {kinds[kind]}" for kind in scored)],
            [
                [
                    f"{row['stream']}, chunks of {row['chunk']:,}",
                    *(number(row.get(kind, math.nan), 3) for kind in known),
                    *(number(row[f"{kind} AP"], 3) for kind in scored),
                ]
                for row in rows
            ],
        )

    unseen = results["unseen"]
    tables = [
        table("constants chosen here", results["losses"]),
        table("others", unseen["binary"]),
        table("softmax and regression", unseen["others"]),
    ]
    return "\n".join(tables)


def streams_by_class():
    """Return losses after streams that came sorted by class."""
    kinds = {
        "ours": "ours",
        "tuned": "SGD tuned",
        "averaged": "averaged",
        "sgd": "default",
        "shares": "shares of classes",
        "fit": "fit",
    }
    return rst_table(
        ["sorted by class", *kinds.values()],
        [
            [
                f"{row['stream']}, chunks of {row['chunk']:,}",
                *(number(row[kind], 3) for kind in kinds),
            ]
            for row in read("streams")["by_class"]
        ],
    )


def stream_growth():
    """Return what grows with the number of calls."""
    rows = read("streams")["growth"]
    columns = [name for name in rows[0] if name != "calls"]
    return rst_table(
        ["calls", *columns],
        [[f"{row['calls']:,}", *(number(row[k]) for k in columns)] for row in rows],
    )


def stream_costs():
    """Return CPU times of calls over SGDClassifier's."""
    rows = read("streams")["cost"]
    sizes = sorted({row["chunk"] for row in rows})
    found = {(row["features"], row["chunk"]): row["ratio"] for row in rows}
    return rst_table(
        ["features", *(f"chunks of {size:,}" for size in sizes)],
        [
            [d, *(number(found[d, size]) for size in sizes)]
            for d in sorted({row["features"] for row in rows})
        ],
    )


PAGES = {
    "cluster_bytes": cluster_bytes,
    "cluster_peers": cluster_peers,
    "cluster_local": cluster_local,
    "cluster_memory": cluster_memory,
    "slow_rows": slow_rows,
    "stream_losses": stream_losses,
    "stream_costs": stream_costs,
    "stream_growth": stream_growth,
    "streams_by_class": streams_by_class,
    "sources": sources,
    "solvers": all_solvers,
    "every_loss": every_loss,
    "softmax": softmax,
    "small": small,
    "draws": draws,
    "factorization": factorization,
    "evaluations": evaluations,
    "intervals": intervals,
    "interval_pools": interval_pools,
    "anytime": anytime,
    "figure3": figure3,
    "figure4": figure4,
    "figure5": figure5,
    "policy_grids": policy_grids,
    "policy_parts": policy_parts,
    "policy_toys": policy_toys,
    "policy_speed": policy_speed,
}


def write_pages(folder):
    """Write every table that a page includes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        # A class of its own: cells with figures are not broken into lines.
        table = textwrap.indent(make(), "   ")
        (folder / f"{name}.inc").write_text(f".. container:: figures\n\n{table}")


def with_table(text):
    """Return the README with its table made anew."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{readme_table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
