"""From labels and numbers to targets, one for each problem."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from sklearn_awsgd._linear.curvature import ROWS_IN_PART, row_chunks

# Squares of targets are summed, and divided by.
LARGEST_TARGET, SMALLEST_TARGET = 1e150, 1e-140


@dataclass
class Target(ABC):
    """What one problem is to predict."""

    values: np.ndarray  # as they are kept, one for each row
    mass: np.ndarray | None  # P of each row
    n_groups: int  # some may have no rows
    n_models: int = 1  # linear models that predict it together
    # How far apart the values are: one for classes.
    spread = 1.0

    @abstractmethod
    def groups(self, rows=slice(None)):
        """Return the groups of some rows that a sampler may tell apart, int32."""

    def numbers(self, rows=slice(None)):
        """Return the values of some rows as a loss takes them."""
        return self.values[rows]

    @property
    def present(self):
        """Values of the rows that count."""
        return self.values if self.mass is None else self.values[self.mass > 0]

    @property
    def is_constant(self):
        """Whether all rows that count have the same value."""
        present = self.present
        return (present == present[0]).all()

    @property
    def has_all_groups(self):
        """Whether no group is without rows."""
        return len(np.unique(self.groups())) == self.n_groups


class SignTarget(Target):
    """One class against the rest: +1 and -1, of dtype int8."""

    def __init__(self, is_positive, mass=None):
        signs = np.where(is_positive, np.int8(1), np.int8(-1))
        super().__init__(signs, mass, n_groups=2)

    def groups(self, rows=slice(None)):
        """Return 1 for the positive class, 0 for the rest."""
        return (self.values[rows] > 0).astype(np.int32)

    def numbers(self, rows=slice(None)):
        """Return +1 and -1 as float64."""
        return self.values[rows].astype(np.float64)


class CodeTarget(Target):
    """Codes of classes, for softmax regression."""

    def __init__(self, codes, n_classes, mass=None):
        super().__init__(codes.astype(np.int32), mass, n_classes, n_classes)

    def groups(self, rows=slice(None)):
        """Return the classes."""
        return self.values[rows]


class RealTarget(Target):
    """Real numbers."""

    def __init__(self, values, mass=None):
        super().__init__(values, mass, n_groups=1)

    def groups(self, rows=slice(None)):
        """Return one group for all rows."""
        return np.zeros(len(self.values[rows]), dtype=np.int32)

    @cached_property
    def spread(self):
        """Standard deviation of the rows that count."""
        # Of a stream whose first chunk is constant nothing is known.
        return float(np.std(self.present)) or 1.0


def check_real_targets(y):
    """Return the targets as a float64 vector whose squares are finite and not lost."""
    if not (type(y) is np.ndarray and y.ndim == 1):
        y = column_or_1d(y)
    y = np.ascontiguousarray(y, dtype=np.float64)
    largest = np.abs(y).max()
    for wrong, what in (
        (largest > LARGEST_TARGET, "large that their squares overflow"),
        (0 < largest < SMALLEST_TARGET, "small that their squares are lost"),
    ):
        if wrong:
            raise ValueError(
                f"y has values so {what}; scale the targets, for example with "
                "TransformedTargetRegressor."
            )
    return y


def check_labels(y, class_weight):
    """Return y as a vector of labels or as a dense indicator matrix."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    if not are_plain_labels(y):
        check_classification_targets(y)
    if y.ndim == 1:
        return y
    if type_of_target(y, input_name="y") != "multilabel-indicator":
        raise ValueError(
            f"y of shape {y.shape} must be an indicator matrix of zeros and "
            "ones; for several multiclass outputs use MultiOutputClassifier."
        )
    if class_weight is not None:
        raise ValueError(
            f"class_weight={class_weight!r} is not defined for indicator "
            "targets; use sample_weight."
        )
    y = y.toarray() if sparse.issparse(y) else y
    if not np.isin(y, (0, 1)).all():
        raise ValueError(
            "y has several columns with values other than 0 and 1; code each "
            "label as 1 where it applies and 0 elsewhere, for example with "
            "MultiLabelBinarizer."
        )
    return y


def are_plain_labels(y):
    """Return whether y is a vector of which scikit-learn would have nothing to say.

    Integers and texts are classes, and no regression, if each comes twice on average.
    To ask takes scikit-learn as long as some passes over few rows.
    """
    if y.ndim != 1 or y.dtype.kind not in "biuU":
        return False
    if y.dtype.kind in "iu" and 2 * (int(y.max()) - int(y.min()) + 1) <= len(y):
        # There cannot be more.
        return True
    return 2 * len(distinct(y)) <= len(y)


def distinct(y):
    """Return the sorted values of a vector, integers close to each other by counting.

    ``numpy.unique`` took a twelfth of the time of a fit to 1e6 rows of 50 features.
    """
    if y.dtype.kind == "b":
        return distinct(y.view(np.uint8)).astype(bool)
    if y.dtype.kind in "iu" and len(y):
        low, high = int(y.min()), int(y.max())
        if high - low < len(y):
            is_there = np.zeros(high - low + 1, dtype=bool)
            # In parts: differences of narrow integers may not fit in them.
            for part in row_chunks(len(y), ROWS_IN_PART):
                wide = y[part] if y.dtype.itemsize == 8 else y[part].astype(np.int64)
                places = wide - wide.dtype.type(low)
                is_there[places.astype(np.intp, copy=False)] = True
            found = np.flatnonzero(is_there).astype(wide.dtype)
            return (found + wide.dtype.type(low)).astype(y.dtype)
    return np.unique(y)


def are_known(y, classes):
    """Return whether y is a vector of known labels, of the type of the classes."""
    if y.ndim != 1 or y.dtype != classes.dtype:
        return False
    codes = np.searchsorted(classes, y)
    return (classes[np.minimum(codes, len(classes) - 1)] == y).all()


def check_classes(classes, y, known):
    """Return the classes of a stream.

    Parameters
    ----------
    classes : array-like or None
        As given.
    y : ndarray of shape (n_samples,) or (n_samples, n_labels)
        Labels or indicators of a chunk.
    known : ndarray or None
        The classes of the calls before, if there were any.
    """
    if classes is not None:
        classes = np.unique(list(classes))
        if known is not None and not np.array_equal(classes, known):
            raise ValueError(
                f"classes={classes!r} is not the same as on last call to "
                f"partial_fit, was: {known!r}."
            )
    if known is None:
        if len(classes) < 2 and y.ndim == 1:
            raise ValueError(
                "The number of classes has to be greater than one; got "
                f"{len(classes)} class."
            )
        known = classes
    unknown = np.setdiff1d(y, known) if y.ndim == 1 else ()
    if len(unknown):
        raise ValueError(
            f"y has labels {unknown!r} that are not in classes="
            f"{known!r}; name all classes at the first partial_fit."
        )
    return known


@dataclass(frozen=True)
class Classes:
    """How classes become problems, and what to call their parts."""

    values: np.ndarray  # sorted; the numbers of the labels of indicators
    is_multilabel: bool  # whether there are indicators of several labels
    # Whether all classes are one problem; else each is one, against the rest, but two
    # classes are one problem together.
    is_softmax: bool

    @property
    def is_one_problem(self):
        """Whether there is one problem, whose groups are the classes."""
        return not self.is_multilabel and (self.is_softmax or len(self.values) == 2)

    def codes(self, y):
        """Return the number of each label; rows that do not count may have others."""
        return np.minimum(np.searchsorted(self.values, y), len(self.values) - 1)

    def encode(self, y, mass):
        """Return the Target of each problem, from labels or indicators and P."""
        if self.is_multilabel:
            return [SignTarget(column > 0, mass) for column in y.T]
        if self.is_softmax:
            return [CodeTarget(self.codes(y), len(self.values), mass)]
        positive = self.values[1:] if len(self.values) == 2 else self.values
        return [SignTarget(y == value, mass) for value in positive]

    def group_name(self, problem, group):
        """Return what to call a group of the rows of a problem."""
        if self.is_one_problem:
            return self.values[group]
        return self.values[problem] if group == 1 else "rest"

    def problem_name(self, problem):
        """Return what to call a problem; "" if there is only one."""
        if self.is_one_problem:
            return ""
        kind = "label" if self.is_multilabel else "class"
        return f"{kind} {self.values[problem]}"

    def weights_of_rows(self, y, class_weight, sample_weight):
        """Return the class weight of each row, or None."""
        if class_weight is None:
            return None
        codes = self.codes(y)
        if class_weight == "balanced" and sample_weight is not None:
            counts = np.bincount(
                codes, weights=sample_weight, minlength=len(self.values)
            )
            weights = counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1e-300))
            weights[counts == 0] = 0
        else:
            weights = compute_class_weight(
                class_weight, classes=self.values, y=self.values[codes]
            )
        if not (np.isfinite(weights).all() and weights.min() >= 0):
            raise ValueError(
                f"class_weight={class_weight!r} has a value that is negative or "
                "not finite; a weight is how often a row of the class counts."
            )
        weights = weights[codes]
        if not (weights if sample_weight is None else weights * sample_weight).any():
            raise ValueError(
                f"class_weight={class_weight!r} leaves no row with a positive weight."
            )
        return weights
