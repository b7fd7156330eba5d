"""What the benchmarks share: one thread, tables, and results as JSON.

Import it before NumPy: it sets the number of threads.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import json
import platform
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def environment():
    """Return what the figures depend on besides the code."""
    packages = ("scikit-learn", "numpy", "scipy")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: version(name) for name in packages},
    }


def save(name, results):
    """Write results, a dict of lists of rows, to ``results/<name>.json``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {**results, "environment": environment()}
    path.write_text(json.dumps(content, indent=1) + "\n")


def show(title, rows):
    """Print rows, dicts with the same keys, as a table."""
    print(f"\n{title}")
    cells = [list(rows[0])] + [[_text(v) for v in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        print("  " + "   ".join(padded), flush=True)


def _text(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)
