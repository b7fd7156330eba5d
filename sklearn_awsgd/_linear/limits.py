"""What to tell users: limits that came too early, settings that do nothing."""


def ignored_settings(estimator, sampler, data, *, to_optimum, streaming):
    """Return a sentence for each setting that was given and has no effect."""
    by_strata = getattr(sampler, "by", None) == "given"
    is_ours = type(sampler).__module__.startswith("sklearn_awsgd.")
    found = []
    if data.strata is not None and not by_strata and is_ours:
        found.append(
            f"strata are given, but sampler={estimator.sampler!r} does not draw by "
            "them; use sampler='strata'."
        )
    aware = getattr(sampler, "time_aware", False)
    if aware and data.costs is None and not data.is_source:
        found.append(
            f"sampler={estimator.sampler!r} is time-aware, but all rows cost the same: "
            "X is in memory and access_cost is not given; give access_cost."
        )
    if estimator.scoring is not None and data.validation is None and not streaming:
        found.append(
            f"scoring={estimator.scoring!r} has no effect without held-out data; use "
            "early_stopping=True, or give X_val and y_val."
        )
    if estimator.eta0 is not None and to_optimum:
        found.append(
            f"eta0={estimator.eta0!r} sets the first draws alone, as learning_rate="
            "'auto' goes on to the optimum by exact passes; use another learning_rate, "
            "or eta0=None."
        )
    if estimator.loss == "perceptron" and to_optimum:
        found.append(
            "loss='perceptron' is least at coefficients of zero, to which "
            "learning_rate='auto' goes; use learning_rate='constant', eta0=1 and "
            "penalty=None for the perceptron's own steps, or loss='hinge'."
        )
    if streaming and getattr(sampler, "_needs_training", False):
        found.append(
            f"sampler={estimator.sampler!r} begins anew with each call of partial_fit, "
            "which has no second look at a row; use sampler='auto'."
        )
    return found


def nothing_drawn(estimator):
    """Return what to say if draws were asked for, and none were made."""
    setting = f"sampler={estimator.sampler!r}"
    if estimator.count_draws:
        setting = "count_draws=True"
    return (
        f"{setting} had no effect: learning_rate='auto' reached the optimum of these "
        "data without draws; use another learning_rate, such as 'adagrad'."
    )


def rounding_warning(budget, losses):
    """Return what to say if coefficients of single precision missed the tolerance.

    Parameters
    ----------
    budget : Budget
        Its tolerance.
    losses : list of float
        What each objective lost by rounding, relative to it.
    """
    if budget.tol is None or max(losses, default=0.0) <= budget.tol:
        return None
    return (
        f"tol={budget.tol} was reached, but coefficients in single precision, as X is, "
        f"lose {max(losses):.2g} of the objective; center and scale the features, for "
        "example with StandardScaler, or give X as float64."
    )


def limit_warning(estimator, budget, outcomes):
    """Return what to say if a tolerance was not reached, and what helps; else None.

    Runs that a callback has stopped are not among the `outcomes`.
    """
    slow = [outcome for outcome in outcomes if not outcome.converged]
    late, max_iter = budget.is_late, estimator.max_iter
    if not slow or (budget.tol is None and not late):
        return None
    if budget.tol is None:
        return (
            f"max_time={estimator.max_time} seconds were over before max_iter="
            f"{max_iter} passes; raise max_time, or give tol."
        )
    missed = f"tol={budget.tol} was not reached"
    remedy = "scale the features"
    if estimator.loss == "huber":
        remedy += (
            f", or raise epsilon={estimator.epsilon}: far below the residuals it makes "
            "the loss a line with a kink"
        )
    if late:
        limit = f"max_time={estimator.max_time} seconds"
        return f"{missed} in {limit}; raise max_time or tol, or {remedy}."
    n_most = max(outcome.n_iter for outcome in slow)
    if n_most >= max_iter:
        limit = f"max_iter={max_iter} passes"
        return f"{missed} in {limit}; raise max_iter or tol, or {remedy}."
    stronger = f"raise tol or alpha={estimator.alpha}"
    if estimator.penalty is None:
        stronger = "raise tol, or give a penalty"
    return (
        f"{missed} as after {n_most} passes no step lowered the objective any more; "
        f"{stronger}, or {remedy}."
    )
