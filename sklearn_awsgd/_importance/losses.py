"""What is averaged: the loss of a model at chosen rows."""

import numpy as np
from scipy import sparse

from sklearn_awsgd._importance.metrics import (
    ERRORS,
    METRICS,
    RATES,
    TOLD_PRECISION,
    Metric,
    probability_of_label,
)
from sklearn_awsgd._importance.targets import Difference, Mean
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
    told : bool, default=False
        Whether values are told, so that neither model nor y is needed.
    bounds : tuple of two floats, default=None
        Between which all values are known to lie.

    Attributes
    ----------
    metric : Metric
        What is averaged, over which rows.
    """

    def __init__(self, estimator, loss, X, y, told=False, bounds=None):
        self.models = estimator if isinstance(estimator, tuple) else (estimator,)
        self.loss = loss
        self.X = X
        self.y = y
        # The first row evaluated and its value; whether to evaluate it again.
        self._first, self._to_repeat = None, False
        if isinstance(loss, str):
            if loss == "roc_auc":
                raise ValueError(
                    "loss='roc_auc' is no mean over rows; use "
                    "loss='balanced_accuracy', and estimate('roc_auc') after fit."
                )
            check_option("loss", loss, tuple(METRICS))
            if estimator is None and not told:
                raise ValueError(
                    f"loss={loss!r} needs a fitted estimator, got estimator=None; or "
                    "give a callable loss(X_rows, y_rows)."
                )
            self.metric = METRICS[loss]
            labels_are_told = told and y is None and hasattr(estimator, "predict")
            if labels_are_told and loss == "precision":
                # What is predicted can be known before.
                self.metric = TOLD_PRECISION
        elif loss is None or callable(loss):
            self.metric = Metric(None, Mean())
        else:
            raise TypeError(f"loss={loss!r} is neither a name, a callable nor None.")
        if loss is None and estimator is not None and not told:
            raise ValueError(
                f"estimator is given but loss=None; choose one of {tuple(METRICS)} or "
                "give a callable loss(estimator, X, y)."
            )
        needs_y = (loss is None or isinstance(loss, str)) and not told
        needs_y = needs_y or self.metric.over in ("positives", "classes")
        if needs_y and y is None:
            raise ValueError(
                "This estimator requires y to be passed, but the target y is None; "
                "without y give a callable loss(X_rows)."
            )
        part, self._bounds = self.metric.target, bounds
        if bounds is not None:
            if not isinstance(part, Mean):
                raise ValueError(
                    f"bounds={bounds!r} are for a mean of values; loss={loss!r} is "
                    "none, and knows its own."
                )
            part = Mean(bounds, attained=True)
        if loss in ("log_loss", "neg_log_loss", "brier", "neg_brier_score"):
            self._check_probabilities()
        if len(self.models) not in (1, 2):
            raise ValueError(
                f"estimator is a tuple of {len(self.models)}; a difference has two."
            )
        self.target = Difference(part) if len(self.models) == 2 else part

    def _check_probabilities(self):
        """Refuse models without probabilities, and targets that are no labels."""
        for model in self.models:
            if model is not None and not hasattr(model, "predict_proba"):
                raise TypeError(
                    f"loss={self.loss!r} needs predict_proba, which estimator="
                    f"{model!r} does not have; use a classifier that has it, or a loss "
                    "of predictions such as 'zero_one' or 'squared_error'."
                )
        if self.y is not None and np.ndim(self.y) > 1:
            raise ValueError(
                f"loss={self.loss!r} is of one label for each row, but y has shape "
                f"{np.shape(self.y)}; give a callable loss(estimator, X, y)."
            )

    def relevant(self, weights):
        """Return the weights of rows, zero for those that do not matter."""
        if self.metric.over == "rows":
            return weights
        if self.metric.over == "predicted":
            return self._predicted(weights)
        classes, index = np.unique(np.asarray(self.y), return_inverse=True)
        if self.metric.over == "classes":
            return weights / np.bincount(index, weights)[index]
        model = self.models[0]
        positive = classes[-1] if model is None else np.asarray(model.classes_)[-1]
        weights = np.where(np.asarray(self.y) == positive, weights, 0.0)
        if not weights.any():
            raise ValueError(
                f"y has no row of the class {positive!r}, so there is no {self.loss}."
            )
        return weights

    def _predicted(self, weights):
        """Return the weights of rows, zero for those not predicted to be positive."""
        classes = np.asarray(self.models[0].classes_)
        if len(classes) != 2:
            raise ValueError(
                f"loss={self.loss!r} is of binary classifiers, but estimator has "
                f"{len(classes)} classes; use one of one class against the rest."
            )
        predicted = np.asarray(self.models[0].predict(self.X))
        weights = np.where(predicted == classes[1], weights, 0.0)
        if not weights.any():
            raise ValueError(
                f"estimator predicts the class {classes[1]} for no row, so there is no "
                f"{self.loss}."
            )
        return weights

    def check_told(self, values, n):
        """Return values that were told, of shape (n_rows, n_values)."""
        values = np.asarray(values)
        n_values = self.target.n_values
        if values.shape not in ((n,), (n, n_values)) or n_values > 1 == values.ndim:
            raise ValueError(
                f"values have shape {values.shape} for {n} rows; give {n} numbers"
                + (f", {n_values} for each row." if n_values > 1 else ".")
            )
        values = values.astype(float).reshape(n, n_values)
        if not np.isfinite(values).all():
            raise ValueError("values must be finite; leave such rows out of the pool.")
        return self._check_bounds(values)

    def _check_bounds(self, values):
        if self._bounds is not None:
            low, high = self._bounds
            outside = values[(values < low) | (values > high)]
            if len(outside):
                raise ValueError(
                    f"A value is {outside[0]}, outside of bounds={self._bounds!r}; "
                    "give wider ones, or None."
                )
        return values

    def replace(self, estimator, loss):
        """Take another model and loss, which have to give the same values.

        A loss that has been repaired does; that it does is seen at the first row.

        Raises
        ------
        ValueError
            When the target would be another one.
        """
        other = Integrand(estimator, loss, self.X, self.y, bounds=self._bounds)
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
        parts = [self._check(self._call(model, X, y), n) for model in self.models]
        return np.concatenate(parts, axis=1)

    def raw(self, rows):
        """Return what the loss gives at positions, unchecked; a difference of two."""
        y = None if self.y is None else take_rows(self.y, rows)
        X = take_rows(self.X, rows)
        first, *second = (np.asarray(self._call(m, X, y)) for m in self.models)
        return first - second[0] if second else first

    def _call(self, model, X, y):
        if isinstance(self.loss, str):
            return self.metric.function(model, X, y)
        arguments = (X,) if y is None else (X, y)
        return self.loss(*(arguments if model is None else (model, *arguments)))

    def _check(self, values, n):
        values = np.asarray(values)
        n_values = self.target.n_values // len(self.models)
        name = getattr(self.loss, "__name__", self.loss)
        returned = "y has" if self.loss is None else f"The loss {name!r} returned"
        if values.shape not in ((n,), (n, n_values)):
            raise ValueError(
                f"{returned} shape {values.shape} for {n} rows; it must be {n} "
                "numbers, one for each row."
                + (
                    " Rows are drawn for one number: fit it to that which matters "
                    "most, or a sum, and ask for all of them with estimate(loss)."
                    if values.ndim == 2 and len(values) == n
                    else ""
                )
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
        return self._check_bounds(values)

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
    elif integrand.metric.over == "predicted" and hasattr(surrogate, "predict_proba"):
        # Labels are what is told.
        score = np.asarray(surrogate.predict_proba(X))[:, -1]
    elif integrand.loss in ERRORS and hasattr(surrogate, "predict_proba"):
        # Finer than the loss of 0 or 1: how probable it is.
        score = 1 - probability_of_label(surrogate, X, y)[1]
    elif integrand.loss in RATES and hasattr(surrogate, "predict_proba"):
        # Positives count whether found or not, others when taken for positives.
        probabilities, _, index = probability_of_label(surrogate, X, y)
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
