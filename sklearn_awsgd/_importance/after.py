"""What can be asked of a run that has ended: other losses, quantiles, p-values."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtrit

from sklearn_awsgd._importance.losses import Integrand, take_rows
from sklearn_awsgd._importance.ranks import area_values
from sklearn_awsgd._importance.stratified import StratifiedRounds
from sklearn_awsgd._importance.targets import Function, Mean

# Smallest p-value that is told apart from zero.
LEAST_P = 1e-12


@dataclass(frozen=True)
class Result:
    """An estimate from rows that were drawn for another one.

    Attributes
    ----------
    estimate : float or ndarray of shape (n_values,)
        The estimate.
    std_error : float or ndarray of shape (n_values,)
        Its standard error; NaN for quantiles.
    confidence_interval : tuple of two floats, or of two ndarrays
        Its interval; of several values each on its own.
    covariance : ndarray of shape (n_values, n_values) or None
        Covariance of the estimates of several values.
    """

    estimate: float | np.ndarray
    std_error: float | np.ndarray
    confidence_interval: tuple
    covariance: np.ndarray | None = None


def _rounds(integrator):
    if not isinstance(integrator.rounds, StratifiedRounds) or integrator.has_past:
        raise ValueError(
            "Other estimates come from rows drawn without replacement, of one call of "
            "fit; weighted draws and streams do not keep what is needed."
        )
    return integrator.rounds


def estimate_loss(integrator, estimator, loss, function, groups, confidence):
    """Return the :class:`Result` of another loss at the rows evaluated so far.

    Parameters
    ----------
    integrator : Integrator
        The run.
    estimator : fitted estimator, tuple of two, or None
        Model.
    loss : str, callable or array-like of shape (n_evaluated,) or \
(n_evaluated, n_values)
        As the parameter `loss`, or its values at the evaluated rows.
    function : callable or None
        What is wanted of the means of several values.
    groups : array-like of shape (n_samples,) or None
        Clusters of rows.
    confidence : float
        Of the interval.
    """
    rounds = _rounds(integrator)
    rows = rounds.pool.evaluated()
    values, target = _values(rounds, rows, estimator, loss)
    if function is not None:
        target = Function(function, values.shape[1])
    if groups is not None:
        return _of_clusters(rounds, values, target, groups, confidence)
    if target is not None:
        return _result(rounds, rows, values, target, confidence)
    # A mean of each column, as if it were alone, and how they vary together.
    parts = [
        _result(rounds, rows, column[:, None], Mean(), confidence)
        for column in values.T
    ]
    low, high = np.transpose([part.confidence_interval for part in parts])
    n_values = values.shape[1]
    covariance = np.zeros((n_values, n_values))
    if rounds.n_unknown:
        # The direction only matters for intervals.
        sums = Function(np.sum, n_values)
        covariance = rounds.estimate_of(_whole(rounds, rows, values), sums).second
    return Result(
        np.array([part.estimate for part in parts]),
        np.array([part.std_error for part in parts]),
        (low, high),
        covariance,
    )


def _values(rounds, rows, estimator, loss):
    """Return values at rows and what is wanted of them; None for means of columns."""
    integrand = rounds.pool.integrand
    if isinstance(loss, str) and loss == "roc_auc":
        return _area(rounds, rows, estimator)
    if isinstance(loss, str):
        other = Integrand(estimator, loss, integrand.X, integrand.y)
        if other.metric.over != integrand.metric.over:
            raise ValueError(
                f"loss={loss!r} is a mean over other rows or with other weights than "
                f"loss={integrand.loss!r}; call fit for it."
            )
        return other.at(rows), other.target
    if callable(loss):
        loss = Integrand(estimator, loss, integrand.X, integrand.y).raw(rows)
    values = np.asarray(loss, dtype=float)
    n = len(rows)
    if values.shape[:1] != (n,) or values.ndim > 2 or not np.isfinite(values).all():
        raise ValueError(
            f"values have shape {values.shape}; give {n} finite numbers, one for each "
            "row of evaluated_, or a row of several for each."
        )
    return (values[:, None], Mean()) if values.ndim == 1 else (values, None)


def _area(rounds, rows, estimator):
    """Return values whose mean is the area under the ROC curve, and their target."""
    integrand = rounds.pool.integrand
    if integrand.y is None or estimator is None or integrand.metric.over == "positives":
        raise ValueError(
            "loss='roc_auc' needs a fitted estimator, y, and rows of both classes, but "
            f"the rows were drawn for loss={integrand.loss!r} of "
            f"estimator={estimator!r}; call fit with both, for 'balanced_accuracy' or "
            "'log_loss'."
        )
    models = estimator if isinstance(estimator, tuple) else (estimator,)
    X, y = take_rows(integrand.X, rows), np.asarray(integrand.y)
    return area_values(rounds, models, X, y)


def _of_clusters(rounds, values, target, groups, confidence):
    """Return the :class:`Result` for a population of clusters like those of the pool.

    Rows stand for as many as they were drawn for; sums over a cluster are what varies
    independently.
    """
    groups = np.asarray(groups)
    n = len(rounds.pool.mass)
    if groups.shape != (n,):
        raise ValueError(
            f"groups has shape {groups.shape}, the pool has {n} rows; give one group "
            "for each."
        )
    rows, weight = rounds.expansion()
    values = values[np.searchsorted(rounds.pool.evaluated(), rows)]
    weight = weight / weight.sum()
    mean = weight @ values
    index = np.unique(groups[rows], return_inverse=True)[1]
    n_groups = int(index.max()) + 1
    if n_groups < 2:
        raise ValueError("All rows evaluated are of one group; errors need several.")
    parts = weight[:, None] * (values - mean)
    sums = np.stack([np.bincount(index, part) for part in parts.T], axis=1)
    covariance = sums.T @ sums * n_groups / (n_groups - 1)
    factor = stdtrit(n_groups - 1, (1 + confidence) / 2)
    if target is None:
        error = np.sqrt(np.diag(covariance))
        ends = mean - factor * error, mean + factor * error
        return Result(mean, error, ends, covariance)
    direction, value = target.direction(mean), target.value(mean)
    error = float(np.sqrt(direction @ covariance @ direction))
    least, most = target.bounds
    low, high = value - factor * error, value + factor * error
    return Result(value, error, (max(low, least), min(high, most)))


def _whole(rounds, rows, values):
    """Return values of all rows of the pool, zero where they are not known."""
    whole = np.zeros((len(rounds.pool.mass), values.shape[1]))
    whole[rows] = values
    return whole


def _result(rounds, rows, values, target, confidence):
    whole = _whole(rounds, rows, values)
    if rounds.n_unknown == 0:
        value = target.value(rounds.pool.mass @ whole)
        return Result(value, 0.0, (value, value))
    estimate = rounds.estimate_of(whole, target)
    return Result(
        target.value(estimate.mean),
        estimate.standard_error(target),
        estimate.interval(target, confidence),
    )


def estimate_quantile(integrator, probability, confidence):
    """Return the :class:`Result` of a quantile of the values.

    The share of the values up to t is a mean; the interval is of all t at which
    `probability` is credible for it.
    """
    rounds = _rounds(integrator)
    rows = rounds.pool.evaluated()
    values = rounds.pool.values[rows] @ rounds.target.direction(
        rounds.pool.mass @ rounds.pool.values
    )
    candidates = np.unique(values)
    share = Mean((0.0, 1.0), attained=True)

    def first(reached):
        """Return the first candidate with a property that stays once it is there."""
        low, high = 0, len(candidates)
        while low < high:
            middle = (low + high) // 2
            below = 1.0 * (values <= candidates[middle])[:, None]
            if reached(_result(rounds, rows, below, share, confidence)):
                high = middle
            else:
                low = middle + 1
        return low

    middle = first(lambda r: r.estimate >= probability - 1e-12)
    low = first(lambda r: r.confidence_interval[1] >= probability)
    high = first(lambda r: r.confidence_interval[0] >= probability)
    exact = rounds.n_unknown == 0
    ends = [-np.inf, *candidates, np.inf]
    interval = (
        ends[low + 1] if low > 0 or exact else -np.inf,
        ends[min(high + 1, len(ends) - 1)],
    )
    estimate = float(candidates[min(middle, len(candidates) - 1)])
    interval = (estimate, estimate) if exact else tuple(map(float, interval))
    return Result(estimate, np.nan, interval)


def p_value(integrator, null, alternative):
    """Return the least level at which an interval does not hold a value.

    Parameters
    ----------
    integrator : Integrator
        The run.
    null : float
        The value.
    alternative : {"two-sided", "less", "greater"}
        On which side of it the truth may be.
    """
    if integrator.is_exact and not integrator.has_past:
        value = integrator.target.value(integrator.estimate().mean)
        holds = {"two-sided": value == null, "less": value >= null}
        return float(holds.get(alternative, value <= null))
    above, below = (_tail(integrator, null, side) for side in ("lower", "upper"))
    if alternative == "two-sided":
        return min(2 * min(above, below), 1.0)
    p, other = (above, below) if alternative == "greater" else (below, above)
    return p if p < 0.5 else 1 - other


def _tail(integrator, null, side):
    """Return the least level at which one end of the interval is beyond a value."""

    def beyond(p):
        low, high = integrator.interval(1 - p, side)
        return low - null if side == "lower" else null - high

    if beyond(LEAST_P) > 0:
        return 0.0
    return 0.5 if beyond(0.5) <= 0 else float(brentq(beyond, LEAST_P, 0.5))
