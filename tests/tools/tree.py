"""Copies of the source tree, to be changed, compiled and tested apart."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What a test imports that runs kernels directly.
RUNS_KERNELS = re.compile(
    r"^from (sklearn_awsgd\._kernels|helpers|policy_twin)\b", re.MULTILINE
)
# Tests that reach the other kernels, through estimators.
THROUGH_ESTIMATORS = (
    "test_every_loss.py",
    "test_factorization.py",
    "test_factorization_training.py",
)


def copy_of_tree(folder, compiled=False):
    """Copy what git knows into a folder, and the compiled modules if wanted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    paths = [Path(name) for name in listed.stdout.split("\0") if name]
    if compiled:
        # With the C files and where setuptools looks for the modules, without which
        # all of them would be made again.
        kernels = ROOT / "sklearn_awsgd" / "_kernels"
        made = [*kernels.glob("*.c"), *kernels.glob("*.so")]
        made += (ROOT / "build").glob("lib*/sklearn_awsgd/_kernels/*.so")
        paths += [path.relative_to(ROOT) for path in made]
    for path in paths:
        if (ROOT / path).exists():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, folder / path)


def kernel_tests(folder):
    """Return the tests of a tree that run kernels, for one process."""
    return [
        str(path.relative_to(folder))
        for path in sorted((folder / "tests").glob("test_*.py"))
        if path.name in THROUGH_ESTIMATORS or RUNS_KERNELS.search(path.read_text())
    ]


def python(folder, *arguments, quiet=True, timeout=None, **environment):
    """Run Python in a copy, whose package comes first; return the finished process."""
    environment = os.environ | environment
    path = [str(folder), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment.setdefault(name, "1")
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=quiet,
        text=True,
        timeout=timeout,
        check=False,
    )


def build(folder, **environment):
    """Compile the kernels of a copy in place, optimised less than for use."""
    setup = folder / "setup.py"
    setup.write_text(setup.read_text().replace('"-O3"', '"-O1"'))
    result = python(folder, "setup.py", "build_ext", "--inplace", **environment)
    if result.returncode:
        raise RuntimeError(
            f"the kernels do not compile:\n{result.stdout[-2000:]}\n"
            f"{result.stderr[-2000:]}"
        )
