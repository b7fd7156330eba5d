"""What to tell users whose passes or time were over too early."""


def limit_warning(estimator, budget, outcomes):
    """Return what to say if a tolerance was not reached, and what helps; else None."""
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
