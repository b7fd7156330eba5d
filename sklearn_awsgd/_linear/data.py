"""Validated training data, their weights, and data that are held out."""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.utils import (
    check_array,
    check_consistent_length,
    check_random_state,
    column_or_1d,
)

from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd._linear.columns import make_columns
from sklearn_awsgd._linear.fetching import SourceBlocks, SourceRows
from sklearn_awsgd._validation import (
    check_features,
    check_rows,
    check_sparse,
    check_strata,
    is_source,
    mean_weight,
    squared_norms,
    validate_data,
)

# Weights of classes that are larger on average cannot be told from overflow.
LARGEST_TOTAL = 1e150
# Rows of a smaller share of all weights are not there: one over it would overflow.
LEAST_MASS = 1e-140


@dataclass
class Validation:
    """Held-out data: rows, targets of the score, and weights or None."""

    X: object
    y: np.ndarray
    sample_weight: np.ndarray | None = None
    # Whether they are rows of the training data, which have no names any more.
    is_split: bool = False

    def score(self, scorer, model, y):
        """Return the score of a model, for targets that are prepared for it."""
        weights = {}
        if self.sample_weight is not None:
            weights["sample_weight"] = self.sample_weight
        return scorer(model, self.X, y, **weights)


@dataclass
class Data:
    """Validated training data."""

    X: object  # ndarray or CSR of shape (n_samples, n_features)
    y: np.ndarray  # targets, as far as they have been checked
    norms2: np.ndarray  # squared norms of the rows
    strata: object = None  # as given to fit
    sample_weight: np.ndarray | None = None  # None when all rows weigh the same
    validation: Validation | None = None  # what decides when to stop
    mass: np.ndarray | None = None  # P, summing to one; None when all are equal
    # Sum of all weights over the sum of `sample_weight`: the objective is `total` times
    # E_P[loss], plus the penalty.
    total: float = 1.0
    costs: np.ndarray | None = None  # what it costs to fetch each row
    loss_scale: float = 1.0  # weight relative to all rows of a stream so far
    n_threads: int = 1  # threads that take sums over the rows

    @cached_property
    def blocks(self):
        """The rows, as sums over them are taken."""
        if self.is_source:
            return SourceBlocks(self.X)
        return Blocks(self.X, self.n_threads)

    @cached_property
    def columns(self):
        """The columns of the rows."""
        return make_columns(self)

    @property
    def is_source(self):
        """Whether rows are fetched from a source."""
        return isinstance(self.X, SourceRows)

    def set_places(self):
        """Let given strata say where the rows of a source are, unless it does."""
        if self.strata is not None:
            check_strata(self.strata)
            check_consistent_length(self.strata, self.y)
            self.X.given_places = np.unique(self.strata, return_inverse=True)[1]

    @property
    def pass_cost(self):
        """What a pass over all rows costs; NaN where that is not known."""
        return np.nan if self.costs is None else self.costs.sum()

    def set_mass(self, class_weight=None):
        """Set P from the sample weights and the class weights of the rows, or None."""
        weight, sample_weight = self.sample_weight, self.sample_weight
        with np.errstate(over="ignore"):
            if class_weight is not None and sample_weight is None:
                weight = class_weight
                self.total = class_weight.mean()
            elif class_weight is not None:
                weight = sample_weight * class_weight
                self.total = weight.sum() / sample_weight.sum()
        if weight is None:
            return
        if not 0 < self.total < LARGEST_TOTAL:
            raise ValueError(
                f"The weights of the classes are {self.total:.3g} on average, too "
                "large or too small to add up; divide all of them by the largest, and "
                "alpha by the same number."
            )
        self.mass = weight / weight.sum()
        self.mass[self.mass < LEAST_MASS] = 0.0


@dataclass(frozen=True)
class StreamWeights:
    """What the rows of a stream have weighed so far."""

    n_rows: int = 0
    sample: float = 0.0  # mean of the sample weights
    both: float = 0.0  # mean of these times the class weights

    def weigh(self, data, sample_weight):
        """Take in the weights of some rows, and scale their loss.

        P sums to one over a chunk, so what its rows weigh beside those of other chunks
        is a factor of the loss: relative to the mean weight so far, theirs included.
        """
        n, sample = len(data.norms2), mean_weight(sample_weight)
        both = sample * data.total
        share = n / (self.n_rows + n)
        after = StreamWeights(
            self.n_rows + n,
            self.sample + share * (sample - self.sample),
            self.both + share * (both - self.both),
        )
        if self.n_rows:
            data.loss_scale = both / after.both
            data.total = after.both / after.sample
        return after

    def plus(self, other):
        """Return what the rows of two streams have weighed."""
        n_rows = self.n_rows + other.n_rows
        share = other.n_rows / n_rows
        return StreamWeights(
            n_rows,
            self.sample + share * (other.sample - self.sample),
            self.both + share * (other.both - self.both),
        )


def check_data(estimator, X, y, strata, *, reset, **options):
    """Return validated Data, of which the targets need more checks.

    The options are what ``validate_data`` is to know of the targets.
    """
    if is_source(X):
        return check_source(estimator, X, y, strata, reset, options)
    if is_plain(X, y) and (reset or knows_features(estimator, X)):
        # What `validate_data` finds out takes it as long as some passes over few rows.
        X = check_sparse(X)
        estimator.n_features_in_ = X.shape[1]
        vars(estimator).pop("feature_names_in_", None)
    else:
        X, y = validate_data(
            estimator,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            # `check_rows` finds values that are not finite without a pass of its own.
            ensure_all_finite=False,
            **options,
        )
    X, norms2 = check_rows(X, partial(norms_in_threads, estimator.n_jobs))
    return Data(X, y, norms2, strata)


def norms_in_threads(n_jobs, X, dtype):
    """Return the squared norms of rows, block by block where there are threads."""
    if n_jobs in (None, 1):
        return squared_norms(X, dtype)
    blocks = Blocks(X, effective_n_jobs(n_jobs))
    parts = blocks.map(lambda rows, part: squared_norms(rows, dtype))
    return np.concatenate(list(parts))


def check_source(estimator, X, y, strata, reset, options):
    """Return validated Data whose rows are fetched from a source."""
    X = SourceRows(X)
    check_features(estimator, X, reset)
    y = check_array(
        y,
        ensure_2d=False,
        dtype="numeric" if options.get("y_numeric") else None,
        input_name="y",
    )
    y = y if options.get("multi_output") else column_or_1d(y, warn=True)
    check_consistent_length(np.broadcast_to(0, X.shape[0]), y)
    return Data(X, y, X.survey(), strata)


def is_plain(X, y):
    """Return whether X and y are arrays as they are wanted, which need no conversion.

    Of what `validate_data` looks at, values of X that are not finite are left, and the
    places of the numbers of a sparse X.
    """
    return (
        (has_plain_rows(X) or is_plain_csr(X))
        and type(y) is np.ndarray
        and y.ndim == 1
        and X.shape[0] == len(y)
        and y.dtype.kind in "biufU"
        and (y.dtype.kind != "f" or np.isfinite(y).all())
    )


def has_plain_rows(X):
    """Return whether X is an array as it is wanted, whatever its values."""
    return (
        type(X) is np.ndarray
        and X.ndim == 2
        and X.size > 0
        and X.dtype in (np.float64, np.float32)
        and X.flags.c_contiguous
        and X.flags.aligned
    )


def is_plain_csr(X):
    """Return whether X is a CSR matrix of numbers as they are wanted."""
    return (
        type(X) in (sparse.csr_matrix, sparse.csr_array)
        and X.ndim == 2
        and min(X.shape) > 0
        and X.dtype in (np.float64, np.float32)
    )


def knows_features(estimator, X):
    """Return whether the features of an array are those of the calls before."""
    known = X.shape[1] == estimator.n_features_in_
    return known and not hasattr(estimator, "feature_names_in_")


def given_validation(X_val, y_val, sample_weight_val):
    """Return the Validation that was given to fit, or None."""
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val go together: give both or neither.")
    return None if X_val is None else Validation(X_val, y_val, sample_weight_val)


def hold_out(data, labels, fraction, random_state, shuffle):
    """Return the data left for training when a fraction is set aside.

    Labels, if given, are held out in proportion, and none of them may be missing.
    """
    if data.is_source:
        raise ValueError(
            "early_stopping=True would fetch the held-out rows of the row source X "
            "again and again; give X_val and y_val."
        )
    train, held = train_test_split(
        np.arange(len(data.norms2)),
        test_size=fraction,
        random_state=check_random_state(random_state),
        stratify=None if labels is None else frequent_labels(labels, fraction),
    )
    if labels is not None:
        train, held = keep_labels(labels, train, held)
    if not shuffle:
        train.sort()
    weight, held_weight = data.sample_weight, None
    if weight is not None:
        weight, held_weight = weight[train], weight[held]
        if not held_weight.any():
            raise ValueError(
                "sample_weight is zero for all held-out rows; use another random_state "
                f"or a larger validation_fraction than {fraction}."
            )
    strata = data.strata
    if strata is not None:
        check_consistent_length(strata, data.y)
        strata = np.asarray(strata)[train]
    return replace(
        data,
        X=data.X[train],
        y=data.y[train],
        norms2=data.norms2[train],
        costs=None if data.costs is None else data.costs[train],
        strata=strata,
        sample_weight=weight,
        validation=Validation(data.X[held], data.y[held], held_weight, is_split=True),
    )


def frequent_labels(labels, fraction):
    """Return the codes of labels, those with too few rows to be split put together."""
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    too_few = counts * min(fraction, 1 - fraction) < 1
    return np.where(too_few[codes], counts.argmax(), codes)


def keep_labels(labels, train, held):
    """Move rows from the held-out ones such that no label is missing."""
    missing = np.setdiff1d(labels[held], labels[train])
    moved = [held[np.argmax(labels[held] == label)] for label in missing]
    return np.append(train, np.intp(moved)), np.setdiff1d(held, moved)
