"""What can be asked of a run that has ended: other losses, quantiles, p-values."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from sklearn_awsgd._importance.losses import Integrand
from sklearn_awsgd._importance.stratified import StratifiedRounds
from sklearn_awsgd._importance.targets import Mean

# Smallest p-value that is told apart from zero.
LEAST_P = 1e-12


@dataclass(frozen=True)
class Result:
    """An estimate from rows that were drawn for another one.

    Attributes
    ----------
    estimate : float
        The estimate.
    std_error : float
        Its standard error; NaN for quantiles.
    confidence_interval : tuple of two floats
        Its interval.
    """

    estimate: float
    std_error: float
    confidence_interval: tuple


def _rounds(integrator):
    if not isinstance(integrator.rounds, StratifiedRounds) or integrator.has_past:
        raise ValueError(
            "Other estimates come from rows drawn without replacement, of one call of "
            "fit; weighted draws and streams do not keep what is needed."
        )
    return integrator.rounds


def estimate_loss(integrator, estimator, loss, confidence):
    """Return the :class:`Result` of another loss at the rows evaluated so far.

    Parameters
    ----------
    integrator : Integrator
        The run.
    estimator : fitted estimator, tuple of two, or None
        Model.
    loss : str, callable or array-like of shape (n_evaluated,)
        As the parameter `loss`, or its values at the evaluated rows.
    confidence : float
        Of the interval.
    """
    rounds = _rounds(integrator)
    rows = rounds.pool.evaluated()
    integrand = rounds.pool.integrand
    if isinstance(loss, str) or callable(loss):
        other = Integrand(estimator, loss, integrand.X, integrand.y)
        values = other.at(rows)
        target = other.target
        if other.metric.over != integrand.metric.over:
            raise ValueError(
                f"loss={loss!r} is a mean over other rows or with other weights than "
                f"loss={integrand.loss!r}; call fit for it."
            )
    else:
        values = np.asarray(loss, dtype=float)
        if values.shape != (len(rows),) or not np.isfinite(values).all():
            raise ValueError(
                f"values have shape {values.shape}; give {len(rows)} finite numbers, "
                "one for each row of evaluated_."
            )
        values, target = values[:, None], Mean()
    return _result(rounds, rows, values, target, confidence)


def _result(rounds, rows, values, target, confidence):
    whole = np.zeros((len(rounds.pool.mass), values.shape[1]))
    whole[rows] = values
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
    share = Mean((0.0, 1.0), two_valued=True)

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
