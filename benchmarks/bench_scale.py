"""Large data: memory beside that of the data, and time for each number.

Two problems at their full size and at a tenth of it, each in a process of its own:

- 10,000,000 rows x 20 columns, float32, dense;
- 1,000,000 rows x 50,000 columns, CSR with 20,000,000 numbers.

Wanted: no more than 1.2 times the memory of the data at the peak of ``fit`` (rows and
targets; what the interpreter and its modules take is not counted), and a CPU time for
each number and pass within 1.5 times that at a tenth of the size. ``--share 0.1`` runs
both sizes ten times smaller.
"""

import _common  # isort: skip

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
from scipy import sparse

from sklearn_awsgd import AWSGDClassifier

PROBLEMS = ("dense", "csr")
PASSES = 5


def make_data(problem, n_rows):
    """Return rows and labels, made in parts so that making them takes no memory."""
    rng = np.random.default_rng(0)
    part = 100_000
    if problem == "dense":
        X = np.empty((n_rows, 20), dtype=np.float32)
        for begin in range(0, n_rows, part):
            X[begin : begin + part] = rng.standard_normal(
                X[begin : begin + part].shape, dtype=np.float32
            )
        score = X[:, 0] - X[:, 1]
    else:
        n_columns, in_row = 50_000, 20
        indices = np.empty(n_rows * in_row, dtype=np.int32)
        # One column from each of as many ranges: sorted, and no two the same.
        steps = np.arange(in_row) * (n_columns // in_row)
        for begin in range(0, n_rows, part):
            n = min(part, n_rows - begin)
            columns = steps + rng.integers(0, n_columns // in_row, (n, in_row))
            indices[begin * in_row : (begin + n) * in_row] = columns.ravel()
        data = rng.standard_normal(n_rows * in_row)
        indptr = np.arange(0, n_rows * in_row + 1, in_row, dtype=np.int32)
        X = sparse.csr_matrix((data, indices, indptr), shape=(n_rows, n_columns))
        score = X @ rng.standard_normal(n_columns)
    score += rng.logistic(size=n_rows).astype(score.dtype)
    return X, (score > 1).astype(np.int8)


def size_of(X):
    """Return the bytes of a matrix."""
    if sparse.issparse(X):
        return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    return X.nbytes


def now_used():
    """Return the bytes that the process has in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Watch(threading.Thread):
    """The largest amount of memory seen while a block runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.largest, self.over = 0, threading.Event()

    def run(self):
        while not self.over.wait(0.005):
            self.largest = max(self.largest, now_used())

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.join()


def measure(problem, n_rows):
    """Return a row of the table: memory and time of one fit."""
    warnings.simplefilter("ignore")
    # What the first call of anything takes is not that of the data.
    AWSGDClassifier(random_state=0).fit(*make_data(problem, 1000))
    X, y = make_data(problem, n_rows)
    data = size_of(X) + y.nbytes
    before = now_used()
    with Watch() as watch:
        begin = time.process_time()
        model = AWSGDClassifier(random_state=0, max_iter=PASSES).fit(X, y)
        seconds = time.process_time() - begin
    numbers = X.nnz if sparse.issparse(X) else X.size
    return {
        "problem": problem,
        "rows": n_rows,
        "data MB": data / 2**20,
        "more MB": (watch.largest - before) / 2**20,
        "memory": 1 + (watch.largest - before) / data,
        "seconds": seconds,
        "passes": int(model.n_iter_),
        "ns": seconds / model.n_iter_ / numbers * 1e9,
    }


def main():
    """Measure all, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--one", nargs=2, metavar=("PROBLEM", "ROWS"))
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]))))
        return
    rows = []
    for problem, full in zip(PROBLEMS, (10_000_000, 1_000_000), strict=True):
        for share in (0.1, 1.0):
            n_rows = int(full * share * options.share)
            command = [sys.executable, __file__, "--one", problem, str(n_rows)]
            output = subprocess.run(command, capture_output=True, check=True, text=True)
            rows.append(json.loads(output.stdout))
    _common.show("memory, and nanoseconds for each number and pass", rows)
    for small, large in zip(rows[::2], rows[1::2], strict=True):
        print(
            f"{large['problem']}: memory {large['memory']:.2f} (wanted 1.2), time "
            f"{large['ns'] / small['ns']:.2f} of that at a tenth (wanted 1.5)"
        )
    if options.share == 1.0:
        _common.save("scale", {"rows": rows})


if __name__ == "__main__":
    main()
