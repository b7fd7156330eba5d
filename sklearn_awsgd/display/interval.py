"""IntervalDisplay: an estimate and its interval over evaluations."""

from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._validation import check_option
from sklearn_awsgd.display.base import Display


class IntervalDisplay(Display):
    """An importance estimate and its interval, as evaluations came in.

    Use :meth:`from_estimator` to create it.

    Parameters
    ----------
    x : {"evaluations", "draws", "seconds"}
        What is drawn over.
    places : ndarray of shape (n_records,)
        Values of x.
    estimates, low, high : ndarray of shape (n_records,)
        Estimates, and the ends of their intervals.
    truth : float or None, default=None
        What is estimated, where it is known.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Its figure.
    line_ : matplotlib Line2D
        The estimate.
    band_ : matplotlib PolyCollection
        The interval.
    truth_ : matplotlib Line2D or None
        The truth.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.metrics import log_loss
    >>> from sklearn_awsgd import MinVarianceImportanceEstimator
    >>> from sklearn_awsgd.display import IntervalDisplay
    >>> X, y = make_classification(20_000, weights=[0.98], random_state=0)
    >>> model = LogisticRegression().fit(X[:1000], y[:1000])
    >>> estimate = MinVarianceImportanceEstimator(
    ...     model, "log_loss", rtol=0.1, random_state=0
    ... ).fit(X, y)
    >>> truth = log_loss(y, model.predict_proba(X))
    >>> display = IntervalDisplay.from_estimator(estimate, truth=truth)
    >>> plt.close(display.figure_)
    """

    def __init__(self, *, x, places, estimates, low, high, truth=None):
        self.x = x
        self.places = places
        self.estimates = estimates
        self.low = low
        self.high = high
        self.truth = truth

    @classmethod
    def from_estimator(
        cls, estimator, *, truth=None, x="evaluations", ax=None, **kwargs
    ):
        """Draw how an estimate became sure.

        Parameters
        ----------
        estimator : MinVarianceImportanceEstimator
            Fitted.
        truth : float, default=None
            What is estimated, where it is known: the mean over the whole pool.
        x : {"evaluations", "draws", "seconds"}, default="evaluations"
            What to draw over.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            For ``Axes.plot``.

        Returns
        -------
        display : IntervalDisplay
            The display.
        """
        check_is_fitted(estimator)
        check_option("x", x, ("evaluations", "draws", "seconds"))
        history = getattr(estimator, "history_", {})
        if "estimate" not in history:
            raise TypeError(
                f"{type(estimator).__name__} estimates no mean; IntervalDisplay is for "
                "MinVarianceImportanceEstimator."
            )
        display = cls(
            x=x,
            places=history[x],
            estimates=history["estimate"],
            low=history["low"],
            high=history["high"],
            truth=truth,
        )
        return display.plot(ax=ax, **kwargs)

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
        display : IntervalDisplay
            The display.
        """
        self._begin(ax)
        style = {"label": "estimate", "marker": "o", "markersize": 4}
        (self.line_,) = self.ax_.plot(self.places, self.estimates, **(style | kwargs))
        self.band_ = self.ax_.fill_between(
            self.places,
            self.low,
            self.high,
            color=self.line_.get_color(),
            alpha=0.2,
            label="interval",
        )
        self.truth_ = None
        if self.truth is not None:
            self.truth_ = self.ax_.axhline(
                self.truth, color="black", linestyle="--", label="truth"
            )
        self.ax_.set(xlabel=self.x, ylabel="estimate")
        self.ax_.legend()
        return self
