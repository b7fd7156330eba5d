"""Checks of parameters and weights; every message names the remedy."""

import numbers
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array

from sklearn_awsgd._kernels._rows import Rows


def check_option(name, value, options):
    """Raise ValueError unless `value` is one of `options`."""
    if not any(value is option or value == option for option in options):
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name}={value!r} is not known; choose one of {listed}.")


def check_number(
    name, value, *, low=None, above=None, high=None, below=None, integer=False
):
    """Raise unless `value` is a number in the given range.

    `low` and `high` are allowed values, `above` and `below` are not.
    """
    kind = numbers.Integral if integer else numbers.Real
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, kind):
        word = "an integer" if integer else "a number"
        raise TypeError(f"{name} must be {word}, got {value!r}.")
    bounds = [
        (low, ">=", lambda bound: value >= bound),
        (above, ">", lambda bound: value > bound),
        (high, "<=", lambda bound: value <= bound),
        (below, "<", lambda bound: value < bound),
    ]
    used = [bound for bound in bounds if bound[0] is not None]
    # NaN fails every comparison; infinity is never a setting.
    if not np.isfinite(value) or not all(holds(bound) for bound, _, holds in used):
        text = " and ".join(f"{sign} {bound}" for bound, sign, _ in used)
        raise ValueError(f"{name}={value!r} is out of range: it must be {text}.")


class Options:
    """A parameter that has one of some values.

    Parameters
    ----------
    *options : object
        The values.
    """

    def __init__(self, *options):
        self.options = options

    def check(self, name, value):
        """Raise ValueError unless `value` is one of them."""
        check_option(name, value, self.options)


@dataclass(frozen=True, kw_only=True)
class Real:
    """A parameter that is a number in a range.

    Attributes
    ----------
    low, high : float or None
        The least and the largest value.
    above, below : float or None
        Bounds that are not values themselves.
    optional : bool
        Whether it may be None.
    words : tuple of str
        What it may be instead of a number.
    or_boolean : bool
        Whether it may be True or False instead.
    """

    low: float | None = None
    above: float | None = None
    high: float | None = None
    below: float | None = None
    optional: bool = False
    words: tuple = ()
    or_boolean: bool = False
    integer = False

    def check(self, name, value):
        """Raise TypeError or ValueError unless `value` is in the range."""
        if (self.optional and value is None) or (
            isinstance(value, str) and value in self.words
        ):
            return
        if self.or_boolean and isinstance(value, (bool, np.bool_)):
            return
        check_number(
            name,
            value,
            low=self.low,
            above=self.above,
            high=self.high,
            below=self.below,
            integer=self.integer,
        )


class Integer(Real):
    """A parameter that is an integer in a range; see :class:`Real`."""

    integer = True


class Boolean:
    """A parameter that is True or False; anything with a truth value will do."""

    def check(self, name, value):
        """Raise TypeError when `value` has no truth value, as an array has none."""
        try:
            bool(value)
        except ValueError as error:
            raise TypeError(f"{name} must be True or False, got {value!r}.") from error


def check_parameters(obj, table, prefix=""):
    """Raise unless the parameters of an object are what its table says.

    Parameters
    ----------
    obj : object
        Its attributes are checked, in the order of the table.
    table : dict
        What each parameter may be, by name: :class:`Options`, :class:`Real`,
        :class:`Integer` or :class:`Boolean`.
    prefix : str, default=""
        What stands before a name in messages, such as "sampler.".
    """
    for name, kind in table.items():
        kind.check(prefix + name, getattr(obj, name))


def check_weights(sample_weight, n_samples):
    """Return `sample_weight` as a float64 vector, or None when all are equal.

    Raises
    ------
    ValueError
        When weights are negative, not finite, all zero or of the wrong length.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Number):
        sample_weight = np.full(n_samples, sample_weight, dtype=np.float64)
    weight = check_array(
        sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        order="C",
        input_name="sample_weight",
    )
    if weight.ndim != 1:
        raise ValueError(
            f"Sample weights must be 1D array or scalar, got {weight.ndim}D array."
        )
    if weight.shape[0] != n_samples:
        raise ValueError(
            f"sample_weight.shape == {weight.shape}, expected {(n_samples,)}!"
        )
    if weight.min() < 0:
        raise ValueError(
            f"sample_weight has a negative value, {weight.min()}; a weight is how "
            "often a row counts: use 0 to leave a row out."
        )
    if weight.max() == 0:
        raise ValueError(
            "sample_weight is zero for every sample; at least one row needs a "
            "positive weight."
        )
    # Scaled first: the sum of huge weights must not overflow.
    weight = weight / weight.max()
    return None if (weight == weight[0]).all() else weight


def mean_weight(sample_weight):
    """Return the mean of weights that have been checked; 1 without any."""
    if sample_weight is None:
        return 1.0
    weight = np.asarray(sample_weight, dtype=np.float64)
    # Scaled first: the sum of huge weights must not overflow.
    return float(weight.max() * np.mean(weight / weight.max()))


@contextmanager
def unchanged_on_failure(estimator):
    """Give an estimator its attributes back when the body raises."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def check_rows(X):
    """Return a canonical X and the squared norms of its rows.

    The pass that computes the norms also finds values that are not finite.

    Raises
    ------
    ValueError
        When X has NaN, infinite values or values whose squares overflow.
    """
    if sparse.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    norms2 = Rows(X).squared_norms()
    if not np.isfinite(norms2).all():
        assert_all_finite(X, input_name="X")
        raise ValueError(
            "X has values so large that their squares overflow; scale the features, "
            "for example with StandardScaler."
        )
    return X, norms2
