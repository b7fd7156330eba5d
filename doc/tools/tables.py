"""Tables of the pages and of the README, made from ``benchmarks/results/*.json``.

The pages include what ``make doc`` writes here; the README has its table between two
comments, and ``make tables`` writes it again after a benchmark. A test compares.
"""

import json
import textwrap
from operator import itemgetter
from pathlib import Path

from rst import against, number, of_keys, pivot, table

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
PAGES = {}


def read(name):
    """Return the committed results of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def ratio(row):
    """Return ours over the best peer, a dash where no peer got there."""
    return number(row["ratio"] or None)


def facts(results):
    """Return the summary of a benchmark."""
    rows = [{"text": text, "value": v} for text, v in results["summary"].items()]
    return table(rows, ("summary", "{text}"), ("", "{value:~}"))


def page(make):
    """Add the table that a function makes to those that pages include."""
    PAGES[make.__name__] = make
    return make


SECONDS = ("ours", "{ours:.3f} s")
DATA, ACCURACY = ("data", "{set}"), ("to", "{to:percent}")


def readme_table():
    """Return the README's table: sets of each kind, one penalty, one accuracy."""
    results = read("time_to_optimum")
    of_set = {
        row["set"]: row
        for row in results["rows"]
        if row["alpha"] == 1e-4 and row["to"] == 1e-3
    }
    shown = table([of_set[name] for name in SHOWN], DATA, SECONDS, *against(PEERS))
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
    return f"\n{shown}\n{textwrap.fill(text, 88)}\n"


@page
def solvers():
    """Return every row of the benchmark of solvers."""
    results = read("time_to_optimum")
    every = table(
        results["rows"],
        DATA,
        ("alpha", "{alpha:g}"),
        ACCURACY,
        SECONDS,
        *against(PEERS),
        ("ours / best peer", ratio),
    )
    return f"{facts(results)}\n{every}"


@page
def every_loss():
    """Return seconds to the optimum of other losses and penalties."""
    results = read("every_loss")
    path = table(
        results["path"],
        ("ten l1 penalties, sparse, 26,000 columns", "{contestant}"),
        ("CPU s", "{seconds:~}"),
        ("worst distance", "{worst distance:.1e}"),
    )
    cases = {}
    for row in results["rows"]:
        case = tuple(row[name] for name in ("set", "loss", "penalty", "alpha"))
        cases.setdefault(case, []).append(row)

    def percent(row):
        return f"{100 * row['to']:g} %"

    def best(row):
        peer = row["best peer"]
        return peer if peer == "none" else f"{number(row['ratio'])} {peer}"

    lines = [
        {
            **rows[0],
            "n kept": sum(int(row["reached"].partition("/")[0]) for row in rows),
            "n fits": sum(int(row["reached"].partition("/")[2]) for row in rows),
            **{f"ms to {percent(row)}": number(1e3 * row["ours"]) for row in rows},
            **{f"over best, {percent(row)}": best(row) for row in rows},
        }
        for rows in cases.values()
    ]
    accuracies = dict.fromkeys(map(percent, results["rows"]))
    titles = [f"{what} {to}" for what in ("ms to", "over best,") for to in accuracies]
    every = table(
        lines,
        DATA,
        ("loss", "{loss}"),
        ("penalty", "{penalty}"),
        ("alpha", "{alpha:g}"),
        # By function, as a dot in a template means something else.
        *[(title, itemgetter(title)) for title in titles],
        ("tol kept", "{n kept}/{n fits}"),
    )
    return f"{facts(results)}\n{path}\n{every}"


@page
def softmax():
    """Return seconds to the optimum of softmax regression, and those of the peers."""
    results = read("softmax")
    every = table(
        results["rows"],
        DATA,
        ACCURACY,
        SECONDS,
        ("tol kept", "{reached}"),
        *against({name: name for name in ("lbfgs", "newton-cg", "newton-cholesky")}),
        ("ours / best peer", ratio),
    )
    return f"{facts(results)}\n{every}"


@page
def small():
    """Return CPU times of small fits, and of searches for a penalty."""
    results = read("small")
    fits = table(
        results["rows"],
        DATA,
        ("ours", "{ours}"),
        ("ms", "{ms:~}"),
        ("LogisticRegression, ms", "{LogisticRegression ms:~}"),
        ("ours / peer", "{fit:~}"),
    )
    searches = table(
        results["paths"],
        ("search of a penalty", "{set}"),
        ("ours, s", "{ours s:~}"),
        ("LogisticRegressionCV, s", "{LogisticRegressionCV s:~}"),
        ("ours / peer", "{search:~}"),
    )
    return f"{fits}\n{searches}"


@page
def scale():
    """Return memory and time of fits of many rows."""
    return table(
        read("scale")["rows"],
        ("data", "{problem}"),
        ("rows", "{rows:,}"),
        ("data, MB", "{data MB:.0f}"),
        ("data and what fit adds / data", "{memory:~3}"),
        ("passes", "{passes}"),
        ("seconds", "{seconds:~}"),
        ("ns for a number and pass", "{ns:~}"),
    )


@page
def draws():
    """Return passes of draws until 1 % and 0.1 %."""
    names = ("level", "label", "shuffled", "with replacement")
    return table(
        read("sampling")["draws"],
        DATA,
        ("positive", "{positive:.1%}"),
        ACCURACY,
        *of_keys({name: name for name in names}),
    )


@page
def draw_costs():
    """Return nanoseconds of a draw and its step, beside those of SGDClassifier."""
    return table(
        read("step_cost")["against_sgd"],
        ("rows", "{rows}"),
        ("SGDClassifier", "{SGDClassifier ns:~3}"),
        ("shuffled", "{uniform ns:~3}"),
        ("by label", "{label ns:~3}"),
        ("by label / SGDClassifier", "{label / SGD:~}"),
    )


@page
def factorization():
    """Return held-out errors and seconds of factorizations."""
    results = read("factorization")
    ratings = table(
        [{"name": name, **row} for name, row in results["movielens"].items()],
        ("MovieLens 100k", "{name}"),
        ("RMSE", "{rmse:.4f}"),
        ("CPU s", "{CPU s:~}"),
    )
    inpainting = results["inpainting"]
    error, seconds = inpainting["columns"]
    pixels = table(
        [
            {"name": name, "error": row[0], "seconds": row[1]}
            for name, row in inpainting.items()
            if isinstance(row, list) and name != "columns"
        ],
        ("MNIST zeros, half missing", "{name}"),
        (error, "{error:.4f}"),
        (seconds, "{seconds:~}"),
    )
    return f"{ratings}\n{pixels}"


@page
def entry_costs():
    """Return nanoseconds of an update, with shuffled and learned draws and of libmf."""
    rows = []
    for name, ns in read("factorization")["cost"].items():
        entries, factors, who = name.split(", ")
        rows.append({"of": f"{entries}, {factors}", "who": who, "ns": ns})
    return table(
        pivot(rows, "of", "who", lambda row: row["ns"]),
        ("entries, factors", "{of}"),
        *of_keys({"uniform": "shuffled", "row_column": "learned", "libmf": "libmf"}),
    )


@page
def entry_parts():
    """Return nanoseconds of the parts of a learned update."""
    rows = []
    for name, ns in read("factorization")["parts"].items():
        factors, part = name.split(", ", 1)
        rows.append({"factors": factors, "part": part, "ns": ns})
    parts = list(dict.fromkeys(row["part"] for row in rows))
    return table(
        pivot(rows, "factors", "part", lambda row: row["ns"]),
        ("factors", "{factors}"),
        *of_keys({part: part for part in parts}),
    )


@page
def threads():
    """Return wall seconds of fits in one thread and in two."""
    return table(
        read("threads")["rows"],
        ("data", "{set}"),
        ("loss", "{loss}"),
        ("one thread", "{one thread:.3f} s"),
        ("two", "{two:.3f} s"),
        ("one / two", "{ratio:~}"),
        ("products alone", "{products alone:~}"),
        ("coefficients", lambda row: "the same" if row["same"] else "different"),
    )


@page
def ratings_ending():
    """Return where fits of ratings end, over seeds."""
    return table(
        read("ratings")["ending"],
        ("ratings", "{set}"),
        ("fit", "{fit}"),
        ("objective", "{least objective:.4f} to {largest objective:.4f}"),
        ("RMSE", "{least rmse:.3f} to {largest rmse:.3f}"),
        ("CPU s", "{median CPU s:~}"),
    )


@page
def ratings_choosing():
    """Return the held-out errors of what searches choose."""
    return table(
        read("ratings")["choosing"],
        ("RMSE", "{set}"),
        ("folds", "{folds}"),
        ("best of the grid", "{best of the grid:.3f}"),
        ("chosen over rows", "{over rows:.3f}"),
        ("chosen over entries", "{over entries:.3f}"),
    )


@page
def evaluations():
    """Return how many evaluations of a loss are saved."""
    kinds = {
        "ours_uniform": "uniform",
        "ours_label": "by label",
        "ours_surrogate": "with a cheap surrogate",
        "ours_learned": "with a learned surrogate",
    }
    gain = "gain_over_uniform"
    return table(
        read("importance")["gains"],
        ("sampler", lambda row: kinds.get(row["sampler"], row["sampler"])),
        (
            "pools",
            lambda row: f"{row['n_rows']}, {'unseen' if row['unseen'] else 'seen'}",
        ),
        ("median", f"{{median_{gain}:~}}"),
        ("least", f"{{least_{gain}:~}}"),
        ("median, with replacement", f"{{median_{gain}_with_replacement:~}}"),
    )


@page
def intervals():
    """Return coverage, widths and errors of each contestant over all rows."""
    return table(
        read("importance_peers")["summary"],
        ("contestant", "{contestant}"),
        ("rows", "{n_rows}"),
        ("least coverage", "{least_coverage:.3f}"),
        ("rows below 93 %", "{rows_below_93}"),
        ("median width", "{median_width_over_errors:~3}"),
        ("error / by label", "{median_error_over_labels:~3}"),
        ("most", "{most_error_over_labels:~3}"),
        ("error / best peer", "{median_error_over_best_peer:~3}"),
        ("most", "{most_error_over_best_peer:~3}"),
    )


@page
def interval_pools():
    """Return errors and coverages of all contestants, one line for a question."""
    names = {
        "ours, label": "by label",
        "ours, surrogate": "surrogate",
        "ours, learned": "learned",
        "ours, surrogate and bounds": "and bounds",
        "plain average": "plain average",
        "ppi++": "ppi++",
        "active inference": "active inf.",
        "LURE": "LURE",
        "vegas": "vegas",
    }
    lines = {}
    for row in read("importance_peers")["rows"]:
        key = row["pool"], row["question"], row["budget"]
        line = lines.setdefault(key, {**row, "runs_of_peers": ""})
        if row["contestant"] == "ppi++":
            line["runs_of_peers"] = row["n_runs"]
        cell = f"{number(row['relative_rmse'])} ({100 * row['coverage']:.0f} %)"
        line[row["contestant"]] = cell
    return table(
        lines.values(),
        ("pool", "{pool}"),
        ("question", "{question}"),
        ("budget", "{budget:,}"),
        ("runs", "{n_runs}"),
        ("of peers", "{runs_of_peers}"),
        *of_keys(names),
    )


@page
def anytime():
    """Return how often intervals hold at all looks together."""
    return table(
        read("importance_peers")["anytime"],
        ("pool", "{pool}"),
        ("sampler", lambda row: row["contestant"].removeprefix("ours, ")),
        ("runs", "{n_runs}"),
        ("looks", "{n_looks}"),
        ("anytime=True", "{all_looks_anytime:.3f}"),
        ("anytime=False", "{all_looks_default:.3f}"),
    )


@page
def figure3():
    """Return the standard deviations of the paper's third figure."""
    return table(
        read("importance")["figure3"],
        ("entries seen of 10,000", "{evaluations:,}"),
        ("one draw", "{gain_of_one_draw:~}"),
        ("the best product", "{best_product:~}"),
        ("the estimate", "{gain_of_estimate:~}"),
    )


@page
def figure4():
    """Return losses and epochs of the paper's fourth figure."""
    last = "our loss after 1, 2, 3, 5, 10 passes"
    rows = read("factorization")["figure4"].items()
    return table(
        [{"name": name, **row, "last": row[last][-1]} for name, row in rows],
        ("", "{name}"),
        ("uniform after 10 epochs", "{uniform loss after 10 epochs:~3}"),
        ("ours after 10 passes", "{last:~3}"),
        ("ours is there after", "{epochs of ours to that loss} epochs"),
    )


@page
def figure5():
    """Return the speed-ups on the zeros of MNIST."""
    rows = []
    for name, value in read("factorization")["mnist"].items():
        if name.startswith(("default / ", "learned draws / ")):
            contestants, _, how = name.partition(": ")[0].rpartition(", ")
            found = [f"{v}x" for v in value] if isinstance(value, list) else [None] * 2
            rows.append(
                {"who": contestants, "how": how, "epochs": found[0], "cpu": found[1]}
            )
    return table(
        rows,
        ("contestants", "{who}"),
        ("factors of the rows", "{how}"),
        *of_keys({"epochs": "epochs", "cpu": "CPU"}),
    )


def share(value):
    """Return a probability of success as short text: ``.84``, ``>.99``, ``1``."""
    if value >= 0.9995 or round(value, 2) == 0:
        return f"{value:.0f}"
    return ">.99" if value >= 0.995 else f"{value:.2f}"[1:]


def success(row):
    """Return the success after 1,000, 3,000, 10,000 and 20,000 episodes."""
    return " / ".join(share(row[n]) for n in ("1,000", "3,000", "10,000", "20,000"))


@page
def policy_grids():
    """Return success on the paper's grids, a row for each grid and horizon."""
    rows = [
        row | {"grid": f"{row['l']}, {row['horizon']:,} ({100 * row['chance']:.2g} %)"}
        for row in read("policy")["grid"]
    ]
    n_runs = {row["grid"]: row["seeds"] for row in rows}
    names = dict.fromkeys(row["contestant"] for row in rows)
    return table(
        pivot(rows, "grid", "contestant", success),
        (
            "l, horizon (chance), runs",
            lambda row: f"{row['grid']}, {n_runs[row['grid']]}",
        ),
        *of_keys({name: name for name in names}),
    )


@page
def policy_parts():
    """Return what each part of exploration does, a column for each grid."""
    rows = read("policy")["ablation"]
    grids = {row["l"]: f"l = {row['l']}, horizon {row['horizon']:,}" for row in rows}
    return table(
        pivot(rows, "contestant", "l", success),
        ("contestant", "{contestant}"),
        *(
            (title, lambda row, size=size: row.get(str(size), "not run"))
            for size, title in grids.items()
        ),
    )


@page
def policy_toys():
    """Return mean returns on Gymnasium's tables."""

    def after(n):
        def cell(row):
            if n not in row:
                return "\\"
            return f"{row[n]:.2f}" if abs(row[n]) < 10 else f"{row[n]:,.0f}"

        return n, cell

    return table(
        read("policy")["toys"],
        ("environment (best possible)", "{environment} ({best possible:~3})"),
        ("contestant", "{contestant}"),
        *map(after, ("30,000", "100,000", "300,000", "1,000,000")),
    )


@page
def policy_speed():
    """Return environment steps in a CPU second."""
    steps = "million steps / CPU s"
    return table(
        pivot(read("policy")["speed"], "l", "sampler", lambda row: row[steps]),
        ("l", "{l}"),
        ("learned exploration", "{trajectory:.1f} million"),
        ("on-policy", "{on_policy:.1f} million"),
    )


@page
def slow_rows():
    """Return times of the paper's experiment with slow rows, SGD's over ours."""
    return table(
        read("time_aware")["paper"],
        ("slower by", "{f:,.0f}"),
        ("one epoch", "{time_per_epoch_ratio:~}"),
        ("by cost", "{by_cost_time_per_epoch_ratio:~}"),
        ("to equal loss", "{time_to_equal_loss_ratio:~}"),
        ("by cost", "{by_cost_time_to_equal_loss_ratio:~}"),
        ("of AW-SGD", "{aw_time_to_equal_loss_ratio:~}"),
        ("bound", "{bound:.2f}"),
    )


@page
def sources():
    """Return what was measured of row sources."""
    results = read("time_aware")
    latency = table(
        results["latency"],
        ("1 ms to seek a row of one half", "{who}"),
        (
            "seconds to 5 %",
            lambda row: (
                number(row["seconds"]) if row["reached"] else "not in 30 passes"
            ),
        ),
        ("from the cache", "{hits:.0%}"),
    )
    large = table(
        results["large"],
        ("a folder of chunks", "{gigabytes:g} GB"),
        ("from", "{from}"),
        ("one read", "{seconds_to_read:~} s"),
        ("fit", "{reads:~} reads"),
        ("CPU", "{cpu_seconds_to_fit:~} s"),
        ("passes", "{passes:.0f}"),
        ("peak memory", "{peak_megabytes:.0f} MB"),
    )
    overhead = table(
        results["overhead"], ("overhead", "{what}"), ("ratio", "{ratio:~3}")
    )
    return f"{latency}\n{large}\n{overhead}"


@page
def cluster_peers():
    """Return seconds to the optimum on a cluster, and those of the best peer."""
    return table(
        [row for row in read("dask")["summary"] if row["measure"] == "seconds"],
        ("rows", "{set}"),
        ("to", "{target:percent}"),
        ("ours", "{ours:.1f} s"),
        ("best peer", "{best peer}"),
        ("its time", "{peer:~}"),
        ("ours / best peer", "{share:~}"),
    )


@page
def cluster_local():
    """Return seconds of the same fit on a cluster and on one machine."""
    return table(
        read("dask")["local"],
        ("tol", "{tol:g}"),
        ("where", "{where}"),
        ("seconds", "{seconds:~}"),
        ("CPU seconds", "{CPU seconds:~}"),
        ("passes", "{passes}"),
        ("time / best of one machine", "{ratio:~}"),
    )


@page
def cluster_bytes():
    """Return bytes that are sent for each block, by function and number of rows."""
    rows = read("dask")["bytes"]
    sizes = sorted({row["rows"] for row in rows})
    return table(
        pivot(rows, "function", "rows", lambda row: row),
        ("function", "{function}"),
        *(
            (f"{way}, {n:,} rows", f"{{{n}[bytes {way} a block]:,}}")
            for n in sizes
            for way in ("to", "from")
        ),
    )


@page
def cluster_memory():
    """Return what a fit took on more rows than the workers may hold."""
    return table(
        read("dask")["memory"],
        ("GB of rows", "{GB:~}"),
        ("limit of each of two workers, GB", "{limit of a worker, GB}"),
        ("seconds", "{seconds:~}"),
        ("passes", "{passes}"),
    )


@page
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

    def losses(title, rows):
        known = {key: kinds[key] for key in kinds if any(key in row for row in rows)}
        scored = {
            f"{key} AP": f"AP, {name}"
            for key, name in list(known.items())[:3]
            if f"{key} AP" in rows[0]
        }
        return table(
            rows,
            (title, "{stream}, chunks of {chunk:,}"),
            *of_keys(known | scored, "~3"),
        )

    unseen = results["unseen"]
    tables = [
        losses("constants chosen here", results["losses"]),
        losses("others", unseen["binary"]),
        losses("softmax and regression", unseen["others"]),
    ]
    return "\n".join(tables)


@page
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
    return table(
        read("streams")["by_class"],
        ("sorted by class", "{stream}, chunks of {chunk:,}"),
        *of_keys(kinds, "~3"),
    )


@page
def stream_growth():
    """Return what grows with the number of calls."""
    rows = read("streams")["growth"]
    columns = {name: name for name in rows[0] if name != "calls"}
    return table(rows, ("calls", "{calls:,}"), *of_keys(columns))


@page
def stream_costs():
    """Return CPU times of calls over SGDClassifier's."""
    rows = read("streams")["cost"]
    sizes = {str(n): f"chunks of {n:,}" for n in sorted({row["chunk"] for row in rows})}
    lines = pivot(rows, "features", "chunk", lambda row: row["ratio"])
    lines.sort(key=lambda line: line["features"])
    return table(lines, ("features", "{features}"), *of_keys(sizes))


def write_pages(folder):
    """Write every table that a page includes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        # A class of its own: cells with figures are not broken into lines.
        text = textwrap.indent(make(), "   ")
        (folder / f"{name}.inc").write_text(f".. container:: figures\n\n{text}")


def with_table(text):
    """Return the README with its table made anew."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{readme_table()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
