"""What is averaged: the loss of a model at chosen rows."""

import numpy as np
from scipy import sparse

from sklearn_awsgd._importance.targets import Difference, Mean, Ratio
from sklearn_awsgd._validation import check_option

# A second evaluation may differ by the rounding of a float32 network.
REPEAT_RTOL = 1e-3
# Fourth powers of values are summed.
LARGEST_VALUE, SMALLEST_VALUE = 1e70, 1e-75


def take_rows(X, rows):
    """Return rows of anything that has rows.

    Parameters
    ----------
    X : array, sparse matrix, data frame, list or other sequence
        Data.
    rows : ndarray of int
        Positions.
    """
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "shape"):
        return X[rows]
    return [X[i] for i in rows]


def n_rows(X):
    """Return the number of rows of anything that has rows."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


def row_indexable(X):
    """Return X in a form whose rows can be taken."""
    return X.tocsr() if sparse.issparse(X) else X


def is_distribution(X):
    """Return whether X is a frozen continuous distribution of scipy.stats."""
    return hasattr(X, "rvs") and hasattr(X, "logpdf")


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


def _probability_of_label(estimator, X, y):
    probabilities = np.asarray(estimator.predict_proba(X))
    index = _class_index(estimator, y)
    return probabilities, probabilities[np.arange(len(index)), index], index


def log_loss(estimator, X, y):
    """Return minus the logarithm of the probability of the label."""
    probabilities, p, _ = _probability_of_label(estimator, X, y)
    return -np.log(np.clip(p, np.finfo(probabilities.dtype).eps, 1.0))


def zero_one(estimator, X, y):
    """Return 1 for a wrong label."""
    return np.asarray(estimator.predict(X)) != np.asarray(y)


def brier(estimator, X, y):
    """Return the squared distance of the probabilities from the label."""
    probabilities, p, index = _probability_of_label(estimator, X, y)
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
            f"precision, recall and f1 are of binary classifiers, but estimator has "
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


def recall(estimator, X, y):
    """Return true positives and positives."""
    predicted, actual = _positives(estimator, X, y)
    return np.column_stack([predicted & actual, actual])


def f1(estimator, X, y):
    """Return twice the true positives, and predicted and actual positives together."""
    predicted, actual = _positives(estimator, X, y)
    return np.column_stack([2 * (predicted & actual), predicted * 1 + actual])


LOSSES = {
    "log_loss": (log_loss, (0.0, np.inf)),
    "zero_one": (zero_one, (0.0, 1.0)),
    "brier": (brier, (0.0, 2.0)),
    "squared_error": (squared_error, (0.0, np.inf)),
    "absolute_error": (absolute_error, (0.0, np.inf)),
}
RATES = {"precision": precision, "recall": recall, "f1": f1}


class Integrand:
    """The values of f at given rows.

    Parameters
    ----------
    estimator : fitted estimator, tuple of two of them, or None
        Model, or the two models whose difference is wanted.
    loss : str, callable or None
        Loss; None for the mean of y.
    X, y : data
        All rows; None for y when there is none.
    """

    def __init__(self, estimator, loss, X, y):
        self.models = estimator if isinstance(estimator, tuple) else (estimator,)
        self.loss = loss
        self.X = X
        self.y = y
        # The first row evaluated and its value; whether to evaluate it again.
        self._first, self._to_repeat = None, False
        if isinstance(loss, str):
            check_option("loss", loss, (*LOSSES, *RATES))
            if estimator is None:
                raise ValueError(
                    f"loss={loss!r} needs a fitted estimator, got estimator=None; or "
                    "give a callable loss(X_rows, y_rows)."
                )
            part = Ratio() if loss in RATES else Mean(LOSSES[loss][1])
        elif loss is None or callable(loss):
            part = Mean()
        else:
            raise TypeError(f"loss={loss!r} is neither a name, a callable nor None.")
        if loss is None and estimator is not None:
            raise ValueError(
                "estimator is given but loss=None; choose one of "
                f"{(*LOSSES, *RATES)} or give a callable loss(estimator, X, y)."
            )
        needs_y = loss is None or isinstance(loss, str)
        if needs_y and y is None:
            raise ValueError(
                "This estimator requires y to be passed, but the target y is None; "
                "without y give a callable loss(X_rows)."
            )
        if len(self.models) not in (1, 2):
            raise ValueError(
                f"estimator is a tuple of {len(self.models)}; a difference has two."
            )
        self.target = Difference(part) if len(self.models) == 2 else part

    def replace(self, estimator, loss):
        """Take another model and loss, which have to give the same values.

        A loss that has been repaired does; that it does is seen at the first row.

        Raises
        ------
        ValueError
            When the target would be another one.
        """
        other = Integrand(estimator, loss, self.X, self.y)
        same = other.target.n_values == self.target.n_values
        same = same and type(other.target) is type(self.target)
        if isinstance(loss, str) or isinstance(self.loss, str):
            same = same and loss == self.loss
        if not same:
            raise ValueError(
                f"loss={loss!r} estimates something else than before; call fit."
            )
        pairs = zip(self.models, other.models, strict=True)
        if self.loss is not other.loss or any(a is not b for a, b in pairs):
            self._to_repeat = self._first is not None
        self.models, self.loss = other.models, other.loss

    def at(self, rows):
        """Return the values at positions, of shape (n_rows, n_values)."""
        y = None if self.y is None else take_rows(self.y, rows)
        if self.loss is None:
            return self._check(y, len(rows))
        return self.on(take_rows(self.X, rows), y, len(rows))

    def on(self, X, y, n):
        """Return the values on given data, of shape (n_rows, n_values)."""
        parts = []
        for model in self.models:
            if isinstance(self.loss, str):
                function = RATES.get(self.loss) or LOSSES[self.loss][0]
                values = function(model, X, y)
            else:
                arguments = (X,) if y is None else (X, y)
                if model is not None:
                    arguments = (model, *arguments)
                values = self.loss(*arguments)
            parts.append(self._check(values, n))
        return np.concatenate(parts, axis=1)

    def _check(self, values, n):
        values = np.asarray(values)
        n_values = self.target.n_values // len(self.models)
        name = getattr(self.loss, "__name__", self.loss)
        returned = "y has" if self.loss is None else f"The loss {name!r} returned"
        if values.shape not in ((n,), (n, n_values)):
            raise ValueError(
                f"{returned} shape {values.shape} for {n} rows; it must be {n} "
                "numbers, one for each row."
            )
        # A cast would cut complex numbers and count days.
        if values.dtype.kind in "cmM":
            raise TypeError(f"{returned} {values.dtype}; it must be real numbers.")
        try:
            values = values.astype(float).reshape(n, n_values)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{returned} {values.ravel()[0]!r}, which is no number."
            ) from error
        if not np.isfinite(values).all():
            raise ValueError(
                f"{returned} {values[~np.isfinite(values)][0]} for one of the rows; "
                "it must be finite, so clip it or leave such rows out."
            )
        largest = np.abs(values).max(initial=0.0)
        # Later, small values stand beside those of the rows before.
        too_small = self._first is None and 0 < largest < SMALLEST_VALUE
        if largest > LARGEST_VALUE or too_small:
            raise ValueError(
                f"{returned} numbers as {'small' if too_small else 'large'} as "
                f"{largest:.3g}, whose powers cannot be added; use other units, and "
                "multiply the estimate."
            )
        return values

    def in_calls(self, evaluate, keys, longest_call):
        """Yield the values of keys, those of one call of the loss at a time.

        The first row of all is once evaluated again, to see that the loss repeats.

        Parameters
        ----------
        evaluate : callable
            Takes an array of keys, returns their values.
        keys : ndarray
            What to evaluate: positions, entries or locations.
        longest_call : int
            Most rows in one call, with the one that is repeated; 2 at least.
        """
        done = 0
        while done < len(keys):
            part = keys[done : done + longest_call - self._to_repeat]
            yield self._repeatable(evaluate, part)
            done += len(part)

    def _repeatable(self, evaluate, keys):
        if not self._to_repeat:
            values = evaluate(keys)
            if self._first is None:
                self._first, self._to_repeat = (keys[:1].copy(), values[0]), True
            return values
        key, before = self._first
        values = evaluate(np.concatenate([key, keys]))
        again = values[0]
        if not np.allclose(again, before, rtol=REPEAT_RTOL, atol=1e-12):
            raise ValueError(
                f"The loss gave {before} for a row and {again} when it was evaluated "
                "again; it must give one value for a row: switch off dropout and other "
                "randomness, or fix its seed. If it is another loss than before, call "
                "fit."
            )
        self._to_repeat = False
        return values[1:]


def surrogate_score(surrogate, integrand, X, y, n):
    """Return the score of every row: what a cheap model says of f.

    Parameters
    ----------
    surrogate : fitted estimator or array-like of shape (n_samples,)
        A cheap model, evaluated at all rows, or the scores themselves.
    integrand : Integrand
        For its loss.
    X, y : data
        All rows.
    n : int
        Number of rows.
    """
    if not hasattr(surrogate, "predict"):
        score = np.asarray(surrogate, dtype=float)
        if score.shape != (n,):
            raise ValueError(
                f"surrogate has shape {score.shape}, X has {n} rows; give one score "
                "for each row, a fitted estimator, or 'learned'."
            )
    elif integrand.models[0] is None:
        raise ValueError(
            "surrogate is a model, but there is no estimator whose place it could take "
            "in the loss; give an array of scores, one for each row."
        )
    elif integrand.loss == "zero_one" and hasattr(surrogate, "predict_proba"):
        # Finer than the loss of 0 or 1: how probable it is.
        score = 1 - _probability_of_label(surrogate, X, y)[1]
    elif integrand.loss in RATES and hasattr(surrogate, "predict_proba"):
        # Positives count whether found or not, others when taken for positives.
        probabilities, _, index = _probability_of_label(surrogate, X, y)
        score = probabilities[:, -1] + (index == probabilities.shape[1] - 1)
    else:
        cheap = Integrand(surrogate, integrand.loss, X, y)
        values = cheap.on(X, y, n)
        score = values @ cheap.target.direction(values.mean(axis=0))
    if not np.isfinite(score).all():
        raise ValueError(
            "surrogate gives scores that are not finite; give finite ones."
        )
    score = score.astype(float)
    largest = np.abs(score).max(initial=0.0)
    # Only their ratios matter.
    out_of_range = largest > LARGEST_VALUE or 0 < largest < SMALLEST_VALUE
    return score / largest if out_of_range else score
