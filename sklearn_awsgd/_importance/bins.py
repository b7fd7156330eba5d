"""Which rows are sampled together: labels, given strata, bins of a score.

The numbers of strata were set while looking at the pools of
``benchmarks/bench_importance.py``.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import type_of_target

# Most strata that bins of a score are crossed into.
MAX_STRATA = 48
# Weights of the shares that edges of bins cut into equal parts: of rows, of the size of
# the score, and of its square (looked at in ``benchmarks/bench_importance_peers.py``).
EDGE_WEIGHTS = (1.0, 1.0, 0.5)
# A target with more values than this is a number, not a label; it is cut into bins.
MAX_LABELS = 100
TARGET_BINS = 16


@dataclass
class Strata:
    """Strata of rows.

    Attributes
    ----------
    index : ndarray of shape (n_samples,)
        Stratum of each row.
    n_strata : int
        Number of strata; those of a label follow each other.
    n_labels : int
        Number of labels, each of the same number of strata.
    score : ndarray of shape (n_samples,) or None
        Guess of the function, up to a factor: a control variate.
    """

    index: np.ndarray
    n_strata: int
    n_labels: int
    score: np.ndarray | None = None


def score_bins(score, mass, labels, n_labels, n_bins):
    """Return strata: bins of a score inside each label.

    The edges cut the sum of three shares, that of the rows, of the size of the score
    and of its square, into equal parts, so that a long tail of large scores gets bins
    of its own.

    Parameters
    ----------
    score : ndarray of shape (n_samples,)
        Guess of the integrand, or anything that goes with its size.
    mass : ndarray of shape (n_samples,)
        P of each row.
    labels : ndarray of shape (n_samples,)
        Index of each row's label.
    n_labels : int
        Number of labels.
    n_bins : int
        Bins in each label.

    Returns
    -------
    index : ndarray of shape (n_samples,) and dtype int32
        Stratum of each row, of ``n_labels * n_bins``.
    """
    # Few arrays of this length at a time: pools may have many millions of rows.
    size = np.abs(score)
    size /= size.max(initial=0.0) or 1.0
    part, share = mass.copy(), np.zeros(len(score))
    for weight in EDGE_WEIGHTS:
        total = np.bincount(labels, part, n_labels)
        share += (weight / np.where(total > 0, total, 1))[labels] * part
        part *= size
    del part, size
    whole = np.bincount(labels, share, n_labels)
    # Sorted by label, then by score.
    order = np.lexsort((score, labels))
    position = share[order]
    del share
    np.cumsum(position, out=position)
    sorted_labels = labels[order]
    begin = np.searchsorted(sorted_labels, np.arange(n_labels))
    before = np.concatenate([[0.0], position])[begin]
    position -= before[sorted_labels]
    position *= (n_bins / np.where(whole > 0, whole, 1))[sorted_labels]
    bins = position.astype(np.int32)
    np.minimum(bins, n_bins - 1, out=bins)
    index = np.empty(len(score), dtype=np.int32)
    index[order] = sorted_labels * n_bins + bins
    return index


def one_stratum(n_samples):
    """Return all rows as one stratum."""
    return Strata(np.zeros(n_samples, dtype=np.intp), 1, 1)


def given_strata(values):
    """Return strata from their names, one for each row."""
    names, index = np.unique(column_or_1d(values), return_inverse=True)
    return Strata(index, len(names), len(names))


def label_strata(y):
    """Return labels as strata; a target of many values is cut into bins."""
    y = np.asarray(y)
    if y.dtype.kind in "bui" and int(y.max()) - int(y.min()) < MAX_LABELS:
        # Small integers are counted in linear time.
        index = y.astype(np.intp) - int(y.min())
        present = np.bincount(index) > 0
        index, n_labels = (np.cumsum(present) - 1)[index], int(present.sum())
        return Strata(index, n_labels, n_labels)
    values, index = np.unique(y, return_inverse=True)
    if len(values) <= MAX_LABELS and type_of_target(y) != "continuous":
        return Strata(index, len(values), len(values))
    score = y.astype(float)
    mass = np.full(len(y), 1 / len(y))
    whole = np.zeros(len(y), dtype=np.intp)
    index = score_bins(score - np.median(score), mass, whole, 1, TARGET_BINS)
    return Strata(index.astype(np.intp), TARGET_BINS, TARGET_BINS)


def join_small(labels, most):
    """Return labels of which the smallest are joined to a last one, so many at most.

    The others stay in their order.
    """
    if labels.n_strata <= most:
        return Strata(labels.index.astype(np.int32), labels.n_strata, labels.n_strata)
    sizes = np.bincount(labels.index, minlength=labels.n_strata)
    order = np.argsort(-sizes, kind="stable")
    joined = np.full(labels.n_strata, most - 1, dtype=np.int32)
    joined[np.sort(order[: most - 1])] = np.arange(most - 1)
    return Strata(joined[labels.index], most, most)
