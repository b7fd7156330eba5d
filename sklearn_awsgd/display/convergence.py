"""ConvergenceDisplay: objectives and gaps over time."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._validation import check_option
from sklearn_awsgd.display.base import Display, check_problem, last_step


class ConvergenceDisplay(Display):
    """How objective or gap have fallen.

    Use :meth:`from_estimator` or :meth:`from_estimators` to create it.

    Parameters
    ----------
    curves : dict
        For each name a tuple of three arrays: x, y, and whether y was computed by an
        exact pass, rather than estimated from draws.
    x : {"draws", "passes", "seconds"}
        What x is.
    y : {"objective", "gap", "suboptimality"}
        What y is; the last two are drawn on a logarithmic scale.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Its figure.
    lines_ : list of matplotlib Line2D
        A line for each curve; dots are exact passes.

    See Also
    --------
    SamplingDisplay : What was learned about sampling.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import make_classification
    >>> from sklearn_awsgd import AWSGDClassifier
    >>> from sklearn_awsgd.display import ConvergenceDisplay
    >>> X, y = make_classification(2000, weights=[0.95], random_state=0)
    >>> fits = {
    ...     rate: AWSGDClassifier(learning_rate=rate, random_state=0).fit(X, y)
    ...     for rate in ("auto", "adagrad")
    ... }
    >>> best = AWSGDClassifier(tol=1e-10, random_state=0).fit(X, y)
    >>> display = ConvergenceDisplay.from_estimators(
    ...     fits, x="passes", reference=best.history_["objective"][-1]
    ... )
    >>> [line.get_label() for line in display.lines_]
    ['auto', 'adagrad']
    >>> plt.close(display.figure_)
    """

    def __init__(self, *, curves, x, y):
        self.curves = curves
        self.x = x
        self.y = y

    @classmethod
    def from_estimator(cls, estimator, *, name=None, ax=None, **options):
        """Draw how the fit of one estimator has converged.

        Parameters
        ----------
        estimator : AWSGDClassifier, AWSGDRegressor or AWSGDMatrixFactorization
            Fitted; or a pipeline or search that ends with it.
        name : str, default=None
            Name of the curve; None is that of the class.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **options : dict
            As of :meth:`from_estimators`.

        Returns
        -------
        display : ConvergenceDisplay
            The display.
        """
        name = type(last_step(estimator)).__name__ if name is None else name
        return cls.from_estimators({name: estimator}, ax=ax, **options)

    @classmethod
    def from_estimators(
        cls,
        estimators,
        *,
        x="draws",
        y="objective",
        reference=None,
        problem=0,
        ax=None,
        **kwargs,
    ):
        """Draw how the fits of several estimators have converged, in one axes.

        Parameters
        ----------
        estimators : dict
            Fitted estimators by their names, or pipelines or searches that end with
            them.
        x : {"draws", "passes", "seconds"}, default="draws"
            What to draw over. An exact pass counts as a draw of every row; a pass has
            as many draws as there are rows, or entries of a matrix.
        y : {"objective", "gap"}, default="objective"
            The objective, or its certified distance to the minimum.
        reference : float, default=None
            The minimum of the objective, or the best that is known, such as the last of
            a fit with a small `tol` (not the least: in the phase "sampling" objectives
            are estimates). If it is given, the relative distance to it is drawn; what
            is below has no place on the logarithmic scale and is left out.
        problem : int, default=0
            Number of the problem, of several; see ``history_``.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            For ``Axes.plot``.

        Returns
        -------
        display : ConvergenceDisplay
            The display.
        """
        check_option("x", x, ("draws", "passes", "seconds"))
        check_option("y", y, ("objective", "gap"))
        if reference is not None and y == "gap":
            raise ValueError(
                f"reference={reference!r} is for y='objective'; y='gap' needs none."
            )
        curves = {
            name: _convergence(estimator, x, y, reference, problem)
            for name, estimator in estimators.items()
        }
        y = y if reference is None else "suboptimality"
        return cls(curves=curves, x=x, y=y).plot(ax=ax, **kwargs)

    def plot(self, ax=None, **kwargs):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            For ``Axes.plot``.

        Returns
        -------
        display : ConvergenceDisplay
            The display.
        """
        self._begin(ax)
        self.lines_ = []
        for name, (x, y, exact) in self.curves.items():
            style = {"label": name}
            if exact.any():
                style |= {"marker": "o", "markersize": 4}
                style["markevery"] = np.flatnonzero(exact).tolist()
            self.lines_ += self.ax_.plot(x, y, **(style | kwargs))
        words = {"gap": "certified gap", "suboptimality": "relative suboptimality"}
        self.ax_.set(xlabel=self.x, ylabel=words.get(self.y, self.y))
        if self.y != "objective":
            self.ax_.set_yscale("log")
        self.ax_.legend()
        return self


def _convergence(estimator, x, y, reference, problem):
    """Return x, y and whether y is exact, for one estimator."""
    estimator = last_step(estimator)
    check_is_fitted(estimator)
    history = getattr(estimator, "history_", {})
    if "objective" not in history:
        raise TypeError(
            f"{type(estimator).__name__} has no objective in history_; "
            "ConvergenceDisplay is for AWSGDClassifier, AWSGDRegressor and "
            "AWSGDMatrixFactorization."
        )
    check_problem(problem, history["problem"])
    keep = history["problem"] == problem
    if y == "gap":
        keep &= np.isfinite(history["duality_gap"])
        if not keep.any():
            raise ValueError(
                f"y='gap': the fit of this {type(estimator).__name__} has no certified "
                "gap; use y='objective'."
            )
    values = history["duality_gap" if y == "gap" else "objective"][keep]
    if reference is not None:
        values = (values - reference) / (abs(reference) or 1.0)
    if x == "passes":
        length = getattr(estimator, "_pass_length", None)
        if length is None:
            raise ValueError(
                "x='passes': a stream has no passes; use x='draws' or x='seconds'."
            )
        places = history["draws"][keep] / length
    else:
        places = history[x][keep]
    exact = history["phase"][keep] == "exact"
    if reference is not None or y == "gap":
        # On a logarithmic scale: what is below is left out, without a gap in the line.
        shown = values > 0
        places, values, exact = places[shown], values[shown], exact[shown]
    return places, values, exact
