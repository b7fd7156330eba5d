"""What a fit keeps for each row at its peak, beside the rows."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd._linear import blocks

N_ROWS = 200_000


def make_dense(n_rows, rng, dtype):
    return rng.standard_normal((n_rows, 20)).astype(dtype)


def make_wide(n_rows, rng):
    """Return CSR with 20 numbers in a row, wide enough for dual steps."""
    indices = np.arange(20) * 200 + rng.integers(0, 200, (n_rows, 20))
    indptr = np.arange(0, 20 * n_rows + 1, 20, dtype=np.int32)
    data = rng.standard_normal(20 * n_rows)
    return sparse.csr_array((data, indices.ravel().astype(np.int32), indptr))


# Bytes for each row: a fifth of those of the rows, where these are single precision,
# and about twice as many where they are not.
KINDS = {
    "float32": (lambda n, rng: make_dense(n, rng, np.float32), 0.2 * 20 * 4),
    "float64": (lambda n, rng: make_dense(n, rng, np.float64), 28),
    "wide": (make_wide, 0.2 * 20 * 12),
}


def traced_peak(X, y):
    """Return the bytes that a fit has at its peak."""
    tracemalloc.start()
    AWSGDClassifier(random_state=0).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize(
    ("kind", "labels"),
    [("float32", np.int8), ("float32", np.int64), ("float64", bool), ("wide", np.int8)],
)
def test_few_bytes_for_each_row(kind, labels, rng, monkeypatch):
    # What blocks take, however many rows there are, must not be the peak.
    monkeypatch.setattr(blocks, "NUMBERS_IN_BLOCK", 2**14)
    monkeypatch.setattr(blocks, "FEWEST_IN_BLOCK", 2**10)
    make_rows, most = KINDS[kind]
    X = make_rows(2 * N_ROWS, rng)
    score = X @ rng.standard_normal(X.shape[1]) / 3 + rng.logistic(size=X.shape[0])
    y = (score > 1).astype(labels)
    traced_peak(X[:1000], y[:1000])
    few, many = (traced_peak(X[:n], y[:n]) for n in (N_ROWS, 2 * N_ROWS))
    assert (many - few) / N_ROWS < most
