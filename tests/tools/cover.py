"""Coverage of the Python and the Cython lines by the tests.

    python tests/tools/cover.py              all tests
    python tests/tools/cover.py --least 95   fail where either is below this percentage
    python tests/tools/cover.py -- ARGUMENTS for pytest, instead of the whole suite

Python lines are counted by coverage.py. Kernels are compiled in a copy of the tree to
count the lines of their C files, with GCC and gcov; Cython writes there which of its
lines each stands for. Its own tracing takes a hundred times as long.
"""

import argparse
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tree import build, copy_of_tree, python

SETTINGS = """\
[run]
source = sklearn_awsgd
parallel = True
[report]
show_missing = True
skip_covered = True
exclude_also =
    if __name__ == .__main__.:
"""
# Where C that stands for a line begins, and where it ends without another.
LINE = re.compile(
    r'\s*/\* "(sklearn_awsgd/\S+\.p(?:yx|xd))":(\d+)$|\s*/\* function exit'
)


def kernel_lines(folder):
    """Return how often each line of each kernel was run."""
    counts = defaultdict(dict)
    for data in sorted(folder.glob("build/temp*/**/*.gcno")):
        source = Path("sklearn_awsgd", "_kernels", f"{data.stem}.c")
        command = ["gcov", "--json-format", "--stdout", str(data)]
        found = subprocess.run(command, cwd=folder, capture_output=True, check=True)
        files = json.loads(found.stdout)["files"]
        of_c = [line for f in files if f["file"] == str(source) for line in f["lines"]]
        runs = {line["line_number"]: line["count"] for line in of_c}
        place = None
        for number, text in enumerate((folder / source).open(), start=1):
            if begins := LINE.match(text):
                place = begins.groups()
            elif text.startswith("}"):
                # Of a structure: it has no code.
                place = None
            elif number in runs and place and place[0]:
                # What follows belongs to the end of a block as well.
                name, of_kernel = place
                before = counts[name].get(int(of_kernel), 0)
                counts[name][int(of_kernel)] = max(before, runs[number])
                place = None
    return counts


def ranges(numbers):
    """Return numbers of lines as text, those in a row together."""
    groups = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    rows = [[number for _, number in group] for _, group in groups]
    return ", ".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in rows)


def report_kernels(counts):
    """Print the lines that were never run; return the percentage of those that were."""
    n_lines = n_missed = 0
    for name, lines in sorted(counts.items()):
        missed = sorted(number for number, n_runs in lines.items() if n_runs == 0)
        n_lines, n_missed = n_lines + len(lines), n_missed + len(missed)
        if missed:
            print(f"{name:<48} {len(lines):>5} {len(missed):>5}   {ranges(missed)}")
    percentage = 100 * (1 - n_missed / n_lines)
    print(f"{'Kernels':<48} {n_lines:>5} {n_missed:>5}   {percentage:.1f}%")
    return percentage


def main():
    """Measure, and print the lines that no test reaches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--least", type=float, default=0.0)
    parser.add_argument("tests", nargs="*", default=["tests"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_of_tree(folder)
        build(folder, CFLAGS="--coverage", LDFLAGS="--coverage")
        (folder / ".coveragerc").write_text(SETTINGS)
        run = ("-m", "coverage", "run", "-m", "pytest", "-q", "--no-header")
        run += ("-p", "no:cacheprovider")
        failed = python(folder, *run, *options.tests, quiet=False).returncode
        python(folder, "-m", "coverage", "combine", "-q", quiet=False)
        report = ("-m", "coverage", "report", f"--fail-under={options.least}")
        failed |= python(folder, *report, "--precision=1", quiet=False).returncode
        failed |= report_kernels(kernel_lines(folder)) < options.least
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
