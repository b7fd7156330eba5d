"""The long form of the differential fuzzing (tests/tools/fuzz.py).

    python tests/tools/soak.py                    10,000 cases, about an hour
    python tests/tools/soak.py --cases 500        fewer
    python tests/tools/soak.py --fit-only         no reference: for sanitizers
    python tests/tools/soak.py --store            keep the result in benchmarks/results

One case in ten has up to 5,000 columns, one in ten up to 30,000 rows, and one in ten
rows of a few numbers, in hundreds of columns. Every finding is printed as it is found,
with the argument that ``python tests/tools/fuzz.py`` takes; the exit code is the number
of findings that the table `KNOWN` there does not explain.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections import Counter

from fuzz import KNOWN, SHORT, TALL, Finding, cases, check, make_data, make_estimator
from hypothesis import HealthCheck, Phase, given, seed, settings
from tree import ROOT

RESULT = ROOT / "benchmarks" / "results" / "soak.json"

# Cases of one seed of hypothesis, which likes to vary what it has had before.
TOGETHER = 100
# Of ten seeds, those that are not of small data.
KINDS = {7: SHORT, 8: TALL, 9: {"max_rows": 40, "wide": True}}


def fit_only(case):
    """Fit for a second at most and predict, and look at nothing but errors.

    Those of functions that can raise none, as an index out of bounds in a loop without
    the GIL, come as unraisable.
    """
    unraisable = []
    sys.unraisablehook = lambda error: unraisable.append(repr(error.exc_value))
    rows, _, y, weight = make_data(case)
    strata = {"strata": y * 0} if case.sampler == "strata" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_estimator(case).set_params(max_time=1.0)
        model.fit(rows, y, sample_weight=weight, **strata)
    model.predict(rows)
    if unraisable:
        raise Finding(f"{unraisable} in {case}")
    return "fitted"


def soak(n_cases, first_seed, judge, report):
    """Check cases; return how often each verdict came, and the findings."""
    verdicts, findings = Counter(), []

    def examine(case):
        try:
            verdicts[judge(case)] += 1
        except Finding as finding:
            verdicts["FINDING"] += 1
            findings.append(str(finding))
            report(f"finding: {finding}")
        except Exception as error:
            verdicts["EXCEPTION"] += 1
            findings.append(f"{case}: {error!r}")
            report(f"exception: {case}: {error!r}")

    for number in range(-(-n_cases // TOGETHER)):
        options = KINDS.get(number % 10, {"max_rows": 120})

        @seed(first_seed + number)
        @settings(
            max_examples=min(TOGETHER, n_cases - number * TOGETHER),
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases(**options))
        def every(case):
            examine(case)

        every()
        report(f"{sum(verdicts.values())} cases: {dict(verdicts)}")
    return verdicts, findings


def tree():
    """Return the commit of the tree that is tested, and whether it has changes."""
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or "no repository"


def main():
    """Run the soak that was asked for; return the number of findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fit-only", action="store_true")
    parser.add_argument("--strict", action="store_true", help="explain nothing")
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    known = () if options.strict else KNOWN

    def judge(case):
        return fit_only(case) if options.fit_only else check(case, known)

    begin, of_tree = time.perf_counter(), tree()
    verdicts, findings = soak(
        options.cases, options.seed, judge, lambda text: print(text, flush=True)
    )
    seconds = time.perf_counter() - begin
    print(f"\n{options.cases} cases from seed {options.seed}, {seconds:.0f} s")
    for verdict, n in verdicts.most_common():
        print(f"{n:>8}  {verdict}")
    if options.store:
        content = {
            "cases": options.cases,
            "seed": options.seed,
            "commit": of_tree,
            "verdicts": dict(verdicts.most_common()),
            "findings": findings,
        }
        RESULT.write_text(json.dumps(content, indent=1) + "\n")
    return min(len(findings), 100)


if __name__ == "__main__":
    sys.exit(main())
