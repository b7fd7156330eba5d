"""What the displays share."""

from sklearn.pipeline import Pipeline


class Display:
    """A picture, with an axes to draw in."""

    def _begin(self, ax):
        """Set `ax_` and `figure_`: those of a given axes, or new ones."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                f"{type(self).__name__} draws with matplotlib, which is not "
                "installed; use pip install matplotlib."
            ) from error
        self.ax_ = plt.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure


def last_step(estimator):
    """Return the estimator at the end of searches and pipelines."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, Pipeline):
            estimator = estimator[-1]
        else:
            return estimator


def check_problem(problem, known):
    """Raise an error unless a problem is among those that are known."""
    known = sorted(set(map(int, known)))
    if not known:
        raise ValueError("Nothing was sampled: the fit made exact passes only.")
    if problem not in known:
        raise ValueError(
            f"problem={problem!r} is not there; the problems are {known[0]} to "
            f"{known[-1]}."
        )
