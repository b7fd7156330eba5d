"""What is to be read of an estimate: lines on the way, a summary at the end."""

from html import escape


def print_line(estimator, integrator, most):
    """Print how far a run of at most so many evaluations is, for ``verbose``."""
    now = integrator.history[-1]
    wanted = ""
    if estimator.rtol is not None:
        wanted = f", target {estimator.rtol * abs(now.estimate):.2g}"
    print(
        f"{now.evaluations} of at most {most:.0f} evaluations, "
        f"{now.seconds:.2f} s: estimate {now.estimate:.6g}, half width "
        f"{(now.high - now.low) / 2:.2g}{wanted}"
    )


class Summary:
    """What was estimated, how well, and at what cost.

    Parameters
    ----------
    estimator : MinVarianceImportanceEstimator
        Fitted.
    """

    def __init__(self, estimator):
        low, high = estimator.confidence_interval_
        loss = estimator.loss
        name = "mean of y" if loss is None else getattr(loss, "__name__", loss)
        if isinstance(estimator.estimator, tuple):
            name = f"difference of {name}"
        self.rows = {
            "Estimate of": str(name),
            "Estimate": f"{estimator.estimate_:.6g}",
            "Standard error": f"{estimator.std_error_:.3g}",
            f"{100 * estimator.confidence:g} % interval": f"{low:.6g} to {high:.6g}",
            **self._condition(estimator.assumed_range_),
            "Ended by": estimator.status_,
            "Rows evaluated": f"{estimator.n_evaluations_}",
            "Draws": f"{estimator.n_draws_}",
            "Effective sample size": f"{estimator.effective_sample_size_:.0f}",
            "Largest draw's share": f"{100 * estimator.max_weight_share_:.2g} %",
            "Variance gain over uniform": f"{estimator.variance_gain_:.3g}",
        }

    @staticmethod
    def _condition(assumed):
        """Return what the interval rests on."""
        if assumed is None:
            return {}
        low, high = assumed
        return {"if no other value is beyond": f"{low:.4g} to {high:.4g}"}

    def __str__(self):
        width = max(map(len, self.rows))
        return "\n".join(f"{name:<{width}}  {text}" for name, text in self.rows.items())

    __repr__ = __str__

    def _repr_html_(self):
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td>{escape(text)}</td></tr>"
            for name, text in self.rows.items()
        )
        return f"<table>{body}</table>"
