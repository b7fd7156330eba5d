"""SamplingDisplay: what was learned about sampling."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._validation import check_option
from sklearn_awsgd.display.base import Display, check_problem, last_step

# Records of a heat map: more could not be told apart.
RECORDS_SHOWN = 400
# Ticks of the levels of a heat map.
MOST_TICKS = 8
# Levels at either end whose probabilities never exceed this are left out.
LEAST_SHOWN = 1e-3


class SamplingDisplay(Display):
    """What a sampler has learned, over the draws that it was learned from.

    Use :meth:`from_estimator` to create it.

    Parameters
    ----------
    by : {"group", "level", "column", "row"}
        What the probabilities are of.
    draws : ndarray of shape (n_records,)
        Draws before each record.
    probabilities : ndarray of shape (n_records, n_names)
        Probability of each name at each record. Of rows there is one record, the share
        of the draws that each row had.
    names : ndarray of shape (n_names,)
        Groups, levels, or numbers of columns or rows.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Its figure.
    lines_ : list of matplotlib Line2D
        Of groups or rows.
    mesh_ : matplotlib QuadMesh
        Heat map of levels or columns.
    colorbar_ : matplotlib Colorbar
        Colours of the heat map.

    See Also
    --------
    ConvergenceDisplay : Objective or gap over draws, passes or seconds.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklearn.datasets import make_classification
    >>> from sklearn_awsgd import AWSGDClassifier
    >>> from sklearn_awsgd.display import SamplingDisplay
    >>> X, y = make_classification(2000, weights=[0.95], random_state=0)
    >>> clf = AWSGDClassifier(random_state=0).fit(X, y)
    >>> display = SamplingDisplay.from_estimator(clf)
    >>> [line.get_label() for line in display.lines_]
    ['0', '1']
    >>> plt.close(display.figure_)
    """

    def __init__(self, *, by, draws, probabilities, names):
        self.by = by
        self.draws = draws
        self.probabilities = probabilities
        self.names = names

    @classmethod
    def from_estimator(cls, estimator, *, by=None, problem=0, ax=None, **kwargs):
        """Draw what a fitted estimator has learned about sampling.

        Parameters
        ----------
        estimator : AWSGDClassifier, AWSGDRegressor or AWSGDMatrixFactorization
            Fitted; or a pipeline or search that ends with it.
        by : {"group", "level", "column", "row"}, default=None
            What to draw.

            - "group": a line for the probability of each class or stratum.
            - "level": a heat map of the probabilities of the levels, the sizes of
              gradients in powers of two; at either end without those below .001.
            - "column": a heat map of the columns of a factorization.
            - "row": how often each row was drawn, the most drawn first; for an
              estimator with ``count_draws=True``.

            None is "column" for a factorization, "group" where there are several
            groups, and else "level" if there are levels.
        problem : int, default=0
            Number of the problem, of several; see ``history_``.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            For ``Axes.plot`` or ``Axes.pcolormesh``.

        Returns
        -------
        display : SamplingDisplay
            The display.
        """
        estimator = last_step(estimator)
        check_is_fitted(estimator)
        if by is not None:
            check_option("by", by, ("group", "level", "column", "row"))
        if by == "row":
            draws, shares = _draws_of_rows(estimator, problem)
            names = np.arange(shares.shape[1])
        else:
            by, draws, shares, names = _learned_shares(estimator, by, problem)
        display = cls(by=by, draws=draws, probabilities=shares, names=names)
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax=None, **kwargs):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            For ``Axes.plot`` or ``Axes.pcolormesh``.

        Returns
        -------
        display : SamplingDisplay
            The display.
        """
        self._begin(ax)
        if self.by == "group":
            self._plot_groups(kwargs)
        elif self.by == "row":
            self._plot_rows(kwargs)
        else:
            self._plot_heat(kwargs)
        return self

    def _plot_groups(self, kwargs):
        self.lines_ = [
            self.ax_.plot(self.draws, share, **({"label": str(name)} | kwargs))[0]
            for name, share in zip(self.names, self.probabilities.T, strict=True)
        ]
        self.ax_.set(xlabel="draws", ylabel="probability", ylim=(0, None))
        self.ax_.legend(title="group")

    def _plot_rows(self, kwargs):
        shares = np.sort(self.probabilities[0])[::-1]
        rank = np.arange(1, len(shares) + 1)
        self.lines_ = self.ax_.plot(rank, shares * len(shares), **kwargs)
        self.ax_.axhline(1, color="gray", linestyle=":", zorder=0)
        self.ax_.set(
            xlabel="rows, the most drawn first",
            ylabel="draws, 1 being the mean",
            xscale="log",
            ylim=(0, None),
        )

    def _plot_heat(self, kwargs):
        keep = np.unique(np.linspace(0, len(self.draws) - 1, RECORDS_SHOWN).astype(int))
        places = np.arange(len(self.names))
        self.mesh_ = self.ax_.pcolormesh(
            self.draws[keep],
            places,
            self.probabilities[keep].T,
            **({"shading": "nearest", "rasterized": True} | kwargs),
        )
        self.colorbar_ = self.figure_.colorbar(
            self.mesh_, ax=self.ax_, label="probability"
        )
        self.ax_.set(xlabel="draws", ylabel="column")
        if self.by == "level":
            ticks = places[:: -(-len(places) // MOST_TICKS)]
            self.ax_.set_yticks(ticks, [f"$2^{{{self.names[k]}}}$" for k in ticks])
            self.ax_.set_ylabel("size of the gradient")


def _learned_shares(estimator, by, problem):
    """Return what to draw by, draws, probabilities and names."""
    table = getattr(estimator, "sampling_history_", None)
    if table is None:
        raise TypeError(
            f"{type(estimator).__name__} has no sampling_history_; SamplingDisplay is "
            "for AWSGDClassifier, AWSGDRegressor and AWSGDMatrixFactorization."
        )
    if "problem" in table:
        check_problem(problem, table["problem"])
        keep = table["problem"] == problem
        table = {name: column[keep] for name, column in table.items()}
    known = [name for name in ("group", "level", "column") if name in table]
    if by is None:
        several = "group" in table and len(set(table["group"])) > 1
        by = "group" if several else known[-1]
    if by not in known:
        raise ValueError(
            f"by={by!r}: the sampler of this {type(estimator).__name__} has learned no "
            f"probabilities of that; use by={known[-1]!r}."
        )
    draws, record = np.unique(table["draws"], return_inverse=True)
    names = np.array(sorted(set(table[by].tolist()), key=_sort_key), dtype=object)
    place = {name: k for k, name in enumerate(names)}
    shares = np.zeros((len(draws), len(names)))
    places = [place[name] for name in table[by].tolist()]
    np.add.at(shares, (record, places), table["probability"])
    # Calls that begin with the same number of draws share a record.
    shares /= shares.sum(axis=1, keepdims=True)
    if by == "level":
        (seen,) = np.nonzero(shares.max(axis=0) > LEAST_SHOWN)
        seen = slice(seen[0], seen[-1] + 1)
        shares, names = shares[:, seen], names[seen]
    return by, draws, shares, names


def _sort_key(name):
    return isinstance(name, str), name


def _draws_of_rows(estimator, problem):
    """Return the number of draws, and the share that each row had of them."""
    counts = getattr(estimator, "draw_counts_", None)
    if counts is None:
        raise ValueError(
            f"by='row' needs the draws of each row, which this "
            f"{type(estimator).__name__} has not counted; use AWSGDClassifier or "
            "AWSGDRegressor with count_draws=True."
        )
    check_problem(problem, range(len(counts)))
    total = counts[problem].sum()
    if total == 0:
        raise ValueError("No row was drawn: the fit made exact passes only.")
    return np.array([total]), counts[problem][None] / total
