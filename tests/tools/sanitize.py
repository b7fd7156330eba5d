"""Kernels under AddressSanitizer and UndefinedBehaviorSanitizer, or bounds-checked.

    python tests/tools/sanitize.py            both, in copies of the tree
    python tests/tools/sanitize.py address    with -fsanitize=address,undefined
    python tests/tools/sanitize.py bounds     with boundscheck=True in every kernel

Each runs all tests of kernels and 1,000 fits of the fuzzer. GCC is needed, and Linux:
the sanitizers' libraries are loaded before Python's own.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tree import build, copy_of_tree, kernel_tests, python

FLAGS = (
    "-fsanitize=address,undefined -fno-sanitize-recover=undefined "
    "-fno-omit-frame-pointer -g"
)


def library(name):
    """Return the path of a library of the compiler."""
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def with_sanitizers(folder):
    """Compile with sanitizers; return the environment that Python then needs."""
    build(folder, CFLAGS=FLAGS, LDFLAGS="-fsanitize=address,undefined")
    return {
        "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
        # Python frees little at its end; what it leaves is no leak of ours.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        # So that every array has its own red zones.
        "PYTHONMALLOC": "malloc",
    }


def with_bounds(folder):
    """Compile with every index checked."""
    for path in (folder / "sklearn_awsgd" / "_kernels").glob("*.pyx"):
        text, n_found = re.subn(
            "boundscheck=False", "boundscheck=True", path.read_text()
        )
        if not n_found:
            raise LookupError(f"{path.name} does not say boundscheck=False")
        path.write_text(text)
    build(folder)
    return {}


# Reads a thousand numbers of one: a build that does not notice is not the one wanted.
FAULT = """
import numpy as np
from sklearn_awsgd._kernels._losses import LogLoss
LogLoss()(np.ones(1000), np.ones(1))
"""
BUILDS = {"address": with_sanitizers, "bounds": with_bounds}


def run(name, n_cases):
    """Compile and test one build; return whether all went well."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        copy_of_tree(folder)
        environment = BUILDS[name](folder)
        if python(folder, "-W", "error", "-c", FAULT, **environment).returncode == 0:
            raise RuntimeError(f"{name}: a fault made on purpose was not noticed")
        print(f"{name}: compiled, and a fault made on purpose is noticed", flush=True)
        options = ["-q", "--no-header", "-p", "no:cacheprovider"]
        tests = python(
            folder,
            *("-m", "pytest", *options, *kernel_tests(folder)),
            quiet=False,
            **environment,
        )
        fits = python(
            folder,
            *("tests/tools/soak.py", "--fit-only", "--cases", str(n_cases)),
            quiet=False,
            **environment,
        )
    well = tests.returncode == 0 and fits.returncode == 0
    print(f"{name}: tests {tests.returncode}, {n_cases} fits {fits.returncode}")
    return well


def main():
    """Run the builds that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="*", help="address, bounds")
    parser.add_argument("--cases", type=int, default=1000)
    options = parser.parse_args()
    names = options.builds or list(BUILDS)
    return int(not all([run(name, options.cases) for name in names]))


if __name__ == "__main__":
    sys.exit(main())
