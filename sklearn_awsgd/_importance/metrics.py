"""Losses and metrics by name: what they are at a row, and what is made of the means."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sklearn_awsgd._importance.targets import Correlation, Mean, Ratio, Root


def _class_index(estimator, y):
    classes = np.asarray(estimator.classes_)
    y = np.asarray(y)
    index = np.searchsorted(classes, y)
    index = np.minimum(index, len(classes) - 1)
    if (classes[index] != y).any():
        unknown = y[classes[index] != y][0]
        raise ValueError(
            f"y has the label {unknown}, which estimator.classes_={classes} does not "
            "have; leave these rows out or give them weight zero."
        )
    return index


def probability_of_label(estimator, X, y):
    probabilities = np.asarray(estimator.predict_proba(X))
    index = _class_index(estimator, y)
    return probabilities, probabilities[np.arange(len(index)), index], index


def log_loss(estimator, X, y):
    """Return minus the logarithm of the probability of the label."""
    probabilities, p, _ = probability_of_label(estimator, X, y)
    return -np.log(np.clip(p, np.finfo(probabilities.dtype).eps, 1.0))


def zero_one(estimator, X, y):
    """Return 1 for a wrong label."""
    return np.asarray(estimator.predict(X)) != np.asarray(y)


def brier(estimator, X, y):
    """Return the squared distance of the probabilities from the label."""
    probabilities, p, index = probability_of_label(estimator, X, y)
    if probabilities.shape[1] <= 2:
        return (1 - p) ** 2
    probabilities = probabilities.astype(float)
    probabilities[np.arange(len(index)), index] -= 1
    return (probabilities**2).sum(axis=1)


def squared_error(estimator, X, y):
    """Return the squared error."""
    return (np.asarray(y, dtype=float) - np.asarray(estimator.predict(X))) ** 2


def absolute_error(estimator, X, y):
    """Return the absolute error."""
    return np.abs(np.asarray(y, dtype=float) - np.asarray(estimator.predict(X)))


def _positives(estimator, X, y):
    classes = estimator.classes_
    if len(classes) != 2:
        raise ValueError(
            f"precision, recall, f1 and the like are of binary classifiers, but "
            f"estimator has "
            f"{len(classes)} classes; use a callable loss, such as one class against "
            "the rest."
        )
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            f"y has labels {unknown!r} that are not among the classes {classes!r} of "
            "the estimator; precision, recall and f1 are of its second class."
        )
    positive = classes[1]
    predicted = np.asarray(estimator.predict(X)) == positive
    return predicted, np.asarray(y) == positive


def precision(estimator, X, y):
    """Return true positives and predicted positives."""
    predicted, actual = _positives(estimator, X, y)
    return np.column_stack([predicted & actual, predicted])


def f1(estimator, X, y):
    """Return twice the true positives, and predicted and actual positives together."""
    predicted, actual = _positives(estimator, X, y)
    return np.column_stack([2 * (predicted & actual), predicted * 1 + actual])


def jaccard(estimator, X, y):
    """Return true positives, and all that are positive or taken for it."""
    predicted, actual = _positives(estimator, X, y)
    return np.column_stack([predicted & actual, predicted | actual])


def confusion(estimator, X, y):
    """Return true positives, predicted and actual positives."""
    predicted, actual = _positives(estimator, X, y)
    return np.column_stack([predicted & actual, predicted, actual])


def hit(estimator, X, y):
    """Return 1 for a right label."""
    return np.asarray(estimator.predict(X)) == np.asarray(y)


def found(estimator, X, y):
    """Return 1 for a positive, among positives, that is found."""
    return _positives(estimator, X, y)[0]


def negated(function):
    """Return a loss as a score: the higher, the better."""

    def score(estimator, X, y):
        return -np.asarray(function(estimator, X, y), dtype=float)

    return score


@dataclass(frozen=True)
class Metric:
    """What a name stands for.

    Attributes
    ----------
    function : callable or None
        Takes a model and rows, returns values at each; None for values that are told,
        or of a function given by the user.
    target : Mean, Ratio, Root or Correlation
        What is made of their means.
    over : {"rows", "positives", "predicted", "classes"}
        Which rows count: all of them, those of the second class, those predicted to be
        of it, or all with the same weight for each class.
    """

    function: Callable | None
    target: object
    over: str = "rows"


POSITIVE, NEGATIVE = (0.0, np.inf), (-np.inf, 0.0)
UNIT = (0.0, 1.0)

METRICS = {
    "log_loss": Metric(log_loss, Mean(POSITIVE)),
    "zero_one": Metric(zero_one, Mean(UNIT, attained=True)),
    "brier": Metric(brier, Mean((0.0, 2.0))),
    "squared_error": Metric(squared_error, Mean(POSITIVE)),
    "absolute_error": Metric(absolute_error, Mean(POSITIVE)),
    "precision": Metric(precision, Ratio()),
    "recall": Metric(found, Mean(UNIT, attained=True), over="positives"),
    "f1": Metric(f1, Ratio()),
    "jaccard": Metric(jaccard, Ratio()),
    "matthews_corrcoef": Metric(confusion, Correlation()),
    "accuracy": Metric(hit, Mean(UNIT, attained=True)),
    "balanced_accuracy": Metric(hit, Mean(UNIT, attained=True), over="classes"),
    "neg_log_loss": Metric(negated(log_loss), Mean(NEGATIVE)),
    "neg_brier_score": Metric(negated(brier), Mean((-2.0, 0.0))),
    "neg_mean_squared_error": Metric(negated(squared_error), Mean(NEGATIVE)),
    "neg_mean_absolute_error": Metric(negated(absolute_error), Mean(NEGATIVE)),
    "neg_root_mean_squared_error": Metric(squared_error, Root()),
}
# Precision where labels are told: the share of positives among rows predicted to be.
TOLD_PRECISION = Metric(None, Mean(UNIT, attained=True), over="predicted")
# Those of positives, of which a surrogate is scored in its own way.
RATES = ("precision", "recall", "f1", "jaccard", "matthews_corrcoef")
ERRORS = ("zero_one", "accuracy", "balanced_accuracy")
