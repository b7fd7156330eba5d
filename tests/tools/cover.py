"""Coverage of the Python and the Cython lines by the tests.

    python tests/tools/cover.py              all tests, Python lines and kernels
    python tests/tools/cover.py --python     Python lines alone, much quicker
    python tests/tools/cover.py --least 95   fail where either is below
    python tests/tools/cover.py -- ARGUMENTS for pytest, instead of the whole suite

Kernels are compiled with line tracing in a copy of the tree; they are some ten times
slower then, so that their own tests run with it and the whole suite without.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tree import build, copy_of_tree, kernel_tests, python

SETTINGS = """\
[run]
source = sklearn_awsgd
branch = False
parallel = True
{plugins}
[report]
show_missing = True
skip_covered = True
exclude_also =
    if __name__ == .__main__.:
"""


def trace_lines(folder):
    """Compile the kernels of a copy with line tracing."""
    for path in (folder / "sklearn_awsgd" / "_kernels").glob("*.pyx"):
        text = path.read_text()
        path.write_text(text.replace("# cython: ", "# cython: linetrace=True, ", 1))
    build(folder, CFLAGS="-DCYTHON_TRACE_NOGIL=1")


def main():
    """Measure, and print the lines that no test reaches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="store_true", help="no kernels")
    parser.add_argument("--least", type=float, default=0.0)
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_of_tree(folder, compiled=True)
        settings = folder / ".coveragerc"
        run = ("-m", "coverage", "run", "-m", "pytest", "-q", "--no-header")
        run += ("-p", "no:cacheprovider")
        settings.write_text(SETTINGS.format(plugins=""))
        failed = python(folder, *run, *(options.tests or ["tests"]), quiet=False)
        failed = failed.returncode
        if not options.python:
            trace_lines(folder)
            settings.write_text(SETTINGS.format(plugins="plugins = Cython.Coverage"))
            tests = options.tests or kernel_tests(folder)
            failed |= python(folder, *run, *tests, quiet=False).returncode
        python(folder, "-m", "coverage", "combine", "-q", quiet=False)
        report = ("-m", "coverage", "report", f"--fail-under={options.least}")
        for language in ["*.py"] if options.python else ["*.py", "*.pyx,*.pxd"]:
            missing = python(folder, *report, f"--include={language}", quiet=False)
            failed |= missing.returncode
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
