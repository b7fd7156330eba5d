"""What a run leaves of an estimator: attributes, warnings, or a run to go on with.

When to warn is a matter of judgement; no benchmark has chosen it.
"""

import warnings
from dataclasses import dataclass
from functools import partial

from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd._callbacks import NoTask
from sklearn_awsgd._importance.intervals import Precision
from sklearn_awsgd._importance.report import print_line
from sklearn_awsgd._importance.run import Integrator

# Evaluations below which intervals are too short.
FEWEST_EVALUATIONS = 50
# Below this variance gain a user is told that plain draws would be better, if there are
# evaluations enough to know.
LEAST_GAIN = 0.5
KNOWN_GAIN = 200


@dataclass
class Unfinished:
    """A run that failed before its first round was complete.

    Attributes
    ----------
    integrator : Integrator
        The run.
    features : dict
        What it knows of the features: attributes of the estimator.
    """

    integrator: Integrator
    features: dict


def run(estimator, integrator, fit_task=None):
    """Draw; return why it ended, and an error of the loss if there was one.

    An error before anything was evaluated is raised, others are for :func:`keep`.
    """
    fit_task = NoTask() if fit_task is None else fit_task
    most = min(estimator.max_evaluations, integrator.rounds.n_unknown)
    most += integrator.n_evaluations

    def report(integrator):
        if estimator.verbose:
            print_line(estimator, integrator, most)
        task = fit_task.begin("rounds")
        return task.end(partial(known_so_far, estimator, integrator))

    try:
        status = integrator.run(
            estimator.max_evaluations,
            estimator.batch_size,
            Precision(estimator.rtol, estimator.atol, estimator.confidence),
            report,
        )
    except BaseException as error:
        rounds = integrator.rounds
        if not rounds.n_fetched:
            raise
        error.add_note(
            f"The {rounds.n_fetched} evaluations before are kept: partial_fit() "
            "goes on from there."
        )
        if rounds.n_draws:
            rounds.learn()
        return "interrupted", error
    return status, None


def go_on(estimator):
    """Go on with the last run; one that failed takes its round as it was drawn."""
    unfinished = estimator._unfinished or Unfinished(estimator._integrator, {})
    integrator = unfinished.integrator
    # The loss may have been repaired since.
    integrator.rounds.pool.integrand.replace(estimator.estimator, estimator.loss)
    status, failure = run(estimator, integrator)
    if failure is not None and not integrator.rounds.n_draws:
        raise failure
    vars(estimator).update(unfinished.features)
    return keep(estimator, integrator, status, failure)


def put_aside(estimator, before, integrator):
    """Keep a run of which no round is complete, for `partial_fit` to go on with.

    Nothing can be said yet, so what was said before stays.
    """
    known = vars(estimator)
    names = ("n_features_in_", "feature_names_in_")
    features = {name: known[name] for name in names if name in known}
    known.clear()
    known.update(before)
    estimator._unfinished = Unfinished(integrator, features)


def keep(estimator, integrator, status, failure):
    """Assign what is known; pass on an error of the loss."""
    vars(estimator).pop("_unfinished", None)
    assign(estimator, integrator, status)
    if failure is not None:
        raise failure
    if status != "exact":
        text, kind = what_to_doubt(estimator, integrator)
        if text is not None:
            warnings.warn(text, kind, stacklevel=4)
    return estimator


def what_to_doubt(estimator, integrator):
    """Return a sentence about the interval or the sampler, or None, and its kind."""
    n_evaluations, gain = estimator.n_evaluations_, estimator.variance_gain_
    doubt = integrator.rounds.doubt()
    if doubt is not None:
        return f"There is no interval: {doubt}.", ConvergenceWarning
    if estimator.confidence_interval_ == integrator.target.bounds:
        return (
            f"The {n_evaluations} values so far do not vary enough to know their "
            "error; raise max_evaluations, call partial_fit(), or give a surrogate."
        ), ConvergenceWarning
    if max(n_evaluations, estimator.max_evaluations) < FEWEST_EVALUATIONS:
        return (
            f"The interval of {n_evaluations} evaluations may be far too short; raise "
            f"max_evaluations={estimator.max_evaluations} to {FEWEST_EVALUATIONS} or "
            "more, or call partial_fit()."
        ), ConvergenceWarning
    is_known = n_evaluations >= KNOWN_GAIN
    if estimator.sampler != "uniform" and is_known and gain < LEAST_GAIN:
        return (
            f"As many plain draws would have {gain:.2g} times the variance that "
            f"sampler={estimator.sampler!r} has here; subtract from the loss what is "
            "known of it, such as a constant, or, for rows, use another sampler."
        ), UserWarning
    return None, None


def known_so_far(estimator, integrator):
    """Return the attributes that tell the estimate, its error and its cost."""
    target, estimate = integrator.target, integrator.estimate()
    return {
        "estimate_": target.value(estimate.mean),
        "std_error_": estimate.standard_error(target),
        "confidence_interval_": integrator.interval(estimator.confidence),
        "n_evaluations_": integrator.n_evaluations,
        "n_draws_": integrator.n_draws,
        "_integrator": integrator,
    }


def assign(estimator, integrator, status):
    """Set the fitted attributes."""
    target, rounds = integrator.target, integrator.rounds
    estimate = integrator.estimate()
    vars(estimator).update(known_so_far(estimator, integrator))
    estimator.status_ = status
    estimator.assumed_range_ = None if estimate.exact else rounds.assumed_range()
    estimator.effective_sample_size_ = (
        float(estimator.n_evaluations_)
        if estimate.exact
        else estimate.effective_sample_size(target)
    )
    estimator.max_weight_share_ = estimate.max_weight_share()
    estimator.variance_gain_ = float(integrator.variance_gain())
    rounds.keep()
    estimator.sampler_ = rounds.sampler
    estimator.sampling_probabilities_ = rounds.probabilities()
