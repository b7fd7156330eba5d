"""Families of sampling distributions over a finite pool.

A family draws points and learns from them through the batch door of the package,
``draw_points`` and ``observe_points``; ``refit`` starts it afresh from all that is
known, now and then. A family knows nothing of integrands.
"""

import numpy as np

from sklearn_awsgd._kernels import _samplers as kernels
from sklearn_awsgd._kernels._entries import Entries
from sklearn_awsgd._kernels._entry_samplers import ProductDraws
from sklearn_awsgd._kernels._loop import POINT
from sklearn_awsgd.samplers import RowTable, StrataLayout

# Most strata that bins of a score are crossed into.
MAX_STRATA = 48
# Draws that a gradient step of tau is made of, at most.
LONGEST_STEP = 20


def score_bins(score, mass, labels, n_labels, n_bins):
    """Return strata: bins of a score inside each label.

    The edges cut the sum of two shares, that of the rows and that of the size of the
    score, into equal parts, so that a long tail of large scores gets bins of its own.

    Parameters
    ----------
    score : ndarray of shape (n_samples,)
        Guess of the integrand, or anything that goes with its size.
    mass : ndarray of shape (n_samples,)
        P of each row.
    labels : ndarray of shape (n_samples,)
        Index of each row's label.
    n_labels : int
        Number of labels.
    n_bins : int
        Bins in each label.

    Returns
    -------
    strata : ndarray of shape (n_samples,) and dtype int32
        Stratum of each row.
    n_strata : int
        Number of strata.
    """
    # Sorted by label, then by score.
    order = np.lexsort((score, labels))
    sizes = mass * np.abs(score)
    totals = [np.bincount(labels, x, n_labels) for x in (mass, sizes)]
    share = sum(
        x / np.where(total > 0, total, 1)[labels]
        for x, total in zip((mass, sizes), totals, strict=True)
    )
    cumulative = np.cumsum(share[order])
    begin = np.searchsorted(labels[order], np.arange(n_labels))
    before = np.concatenate([[0.0], cumulative])[begin]
    whole = np.bincount(labels, share, n_labels)
    sorted_labels = labels[order]
    position = (cumulative - before[sorted_labels]) / np.where(whole > 0, whole, 1)[
        sorted_labels
    ]
    bins = np.minimum((position * n_bins).astype(np.int32), n_bins - 1)
    strata = np.empty(len(score), dtype=np.int32)
    strata[order] = sorted_labels * n_bins + bins
    return strata, n_labels * n_bins


class StrataFamily:
    """Strata with learned probabilities, rows inside a stratum as they come.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    mass : ndarray of shape (n_samples,) or None
        P of each row; None when all are equal.
    n_samples : int
        Number of rows.
    setting : StrataSampler
        How the probabilities are learned. The safe part of the mixture is P.
    """

    def __init__(self, generator, mass, n_samples, setting):
        self._generator = generator
        self._setting = setting
        self._mass = mass
        self._n_samples = n_samples
        self._table = RowTable(mass, np.zeros(n_samples))

    def set_strata(self, strata, n_strata):
        """Choose the strata; nothing is known of them yet."""
        self._strata = strata, n_strata
        self._make_layout()
        tau = np.zeros(n_strata)
        if self._setting.start == "proportional":
            share = np.log(np.maximum(self._layout.mass, 0.5 / self._n_samples))
            tau = share - share[0]
        self._state = {
            "tau": tau,
            "squares": np.zeros(n_strata),
            "counts": np.zeros(n_strata),
            "adagrad": np.zeros(n_strata),
            "scale": np.zeros(2),
        }
        self._make_kernel()

    def _make_layout(self):
        self._layout = StrataLayout(
            self._table, *self._strata, with_safe=self._setting.mixing > 0
        )

    def _make_kernel(self, eta0=None):
        self._kernel = kernels.StrataDraws(
            self._generator, self._layout, self._state, self._setting
        )
        if eta0 is not None:
            self._kernel.eta0 = eta0

    def __getstate__(self):
        # Compiled objects are made again from the arrays.
        compiled = ("_table", "_layout", "_kernel")
        return {name: v for name, v in vars(self).items() if name not in compiled}

    def __setstate__(self, state):
        vars(self).update(state)
        # Kernels write to these, and a memory map may be read-only.
        self._state = {name: array.copy() for name, array in self._state.items()}
        self._table = RowTable(self._mass, np.zeros(self._n_samples))
        self._make_layout()
        self._make_kernel()

    def draw_points(self, n_points):
        """Draw points that share one state."""
        return self._kernel.draw_points(n_points)

    def observe_points(self, points):
        """Learn from points whose ``norm2`` has been filled in."""
        if self._setting.update == "sgd":
            # The step is a sum over the round, and long rounds must not be leaps.
            share = min(1.0, LONGEST_STEP / len(points))
            self._make_kernel(self._setting.eta0 * share)
        self._kernel.observe_points(points)

    def refit(self):
        """Learn nothing more: it learns from each round."""

    def probabilities(self):
        """Return the probabilities of the strata, without the safe part."""
        return self._kernel.stratum_probabilities()

    def densities(self):
        """Return q of every row."""
        return self._kernel.densities()


class NormFamily:
    """Rows in proportion to ``sqrt(||x||^2 + 1)``: nothing is learned.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    mass : ndarray of shape (n_samples,) or None
        P of each row; None when all are equal.
    norms2 : ndarray of shape (n_samples,)
        Squared norms of the rows.
    """

    def __init__(self, generator, mass, norms2):
        bound = np.sqrt(norms2 + 1)
        weight = bound if mass is None else mass * bound
        self._random = np.random.Generator(generator)
        self._cumulative = np.cumsum(weight / weight.sum())
        self._densities = bound / (
            bound.mean() if mass is None else mass @ bound / mass.sum()
        )
        self._last = int(np.flatnonzero(weight)[-1])

    def draw_points(self, n_points):
        """Draw points."""
        points = np.zeros(n_points, dtype=POINT)
        u = self._random.random(n_points)
        rows = np.searchsorted(self._cumulative, u, side="right")
        # Rounding must not leave a draw behind the last row.
        points["i"] = np.minimum(rows, self._last)
        points["q"] = self._densities[points["i"]]
        return points

    def observe_points(self, points):
        """Learn nothing."""

    def refit(self):
        """Learn nothing."""

    def probabilities(self):
        """Return the probability of the one stratum there is."""
        return np.ones(1)

    def densities(self):
        """Return q of every row."""
        return self._densities


class PaperRowColumnFamily:
    """Entries (i, j) of a matrix, learned by the paper's gradient step.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    shape : tuple of int
        Shape of the matrix.
    setting : RowColumnSampler
        With ``update="sgd"``.
    """

    def __init__(self, generator, shape, setting):
        self._generator = generator
        self._shape = shape
        self._setting = setting
        self._state = {
            "table": np.zeros((sum(shape), 4)),
            "scale": np.zeros(2),
            "parts": np.zeros(4),
        }
        self._make_kernel()

    def _make_kernel(self):
        self._kernel = ProductDraws(
            self._generator, Entries(self._shape, "dense"), self._state, self._setting
        )

    def __getstate__(self):
        # Compiled objects are made again from the arrays.
        return {name: v for name, v in vars(self).items() if name != "_kernel"}

    def __setstate__(self, state):
        vars(self).update(state)
        # Kernels write to these, and a memory map may be read-only.
        self._state = {name: array.copy() for name, array in self._state.items()}
        self._make_kernel()

    def draw_points(self, n_points):
        """Draw points that share one state."""
        # The kernel draws random numbers ahead; a new one has none left over, so that
        # a copy goes on alike.
        self._make_kernel()
        return self._kernel.draw_points(n_points)

    def observe_points(self, points):
        """Learn from points whose ``norm2`` has been filled in, as one batch."""
        self._kernel.observe_points(points)
        self._kernel.settle()

    def refit(self):
        """Learn nothing more: it learns from each round."""

    def probabilities(self):
        """Return the probabilities of the rows and of the columns."""
        return self._kernel.row_probabilities(), self._kernel.column_probabilities()

    def densities(self):
        """Return q of every entry, in the order of the flattened matrix."""
        p, r = self.probabilities()
        mixing = self._setting.mixing
        return mixing + (1 - mixing) * np.outer(p * len(p), r * len(r)).ravel()


class RowColumnFamily:
    """Entries (i, j) of a matrix: rows and columns drawn independently.

    ``q(i, j) = (1 - mixing) n m p_i r_j + mixing``. The second moment of a draw is the
    mean of ``f_ij^2 / q(i, j)`` over entries; without the mixture it is least over p
    for

        p_i ~ sqrt(mean over row i of f_ij^2 / r_j)

    and over r likewise. The means are estimated from all draws so far, each weighted by
    the 1/q of its own time, and the two steps alternate.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    shape : tuple of int
        Shape of the matrix.
    mixing : float, default=0.1
        Share of uniform draws.
    """

    # Draws of average size that every row and column is given beforehand.
    PRIOR_DRAWS = 0.3
    N_ALTERNATIONS = 6

    def __init__(self, generator, shape, mixing=0.1):
        self._random = np.random.Generator(generator)
        self._shape = shape
        self._mixing = mixing
        self._marginals = [np.full(size, 1 / size) for size in shape]
        self._seen = []

    def draw_points(self, n_points):
        """Draw points that share one state."""
        points = np.zeros(n_points, dtype=POINT)
        safe = self._random.random(n_points) < self._mixing
        q = np.ones(n_points)
        for axis, size, p in zip("ij", self._shape, self._marginals, strict=True):
            u = self._random.random(n_points)
            learned = np.searchsorted(np.cumsum(p), u, side="right")
            uniform = (u * size).astype(np.intp)
            points[axis] = np.where(safe, uniform, np.minimum(learned, size - 1))
            q *= size * p[points[axis]]
        points["q"] = self._mixing + (1 - self._mixing) * q
        return points

    def observe_points(self, points):
        """Keep points whose ``norm2`` has been filled in."""
        self._seen.append(points)

    def refit(self):
        """Learn the marginals from all draws so far."""
        seen = self._seen = [np.concatenate(self._seen)]
        axes = [seen[0][axis] for axis in "ij"]
        q = seen[0]["q"]
        # f^2 / q: weighted like this, draws have the law of P.
        sizes = seen[0]["norm2"] * q
        if not sizes.any():
            return
        visits = [
            np.bincount(axis, 1 / q, n)
            for axis, n in zip(axes, self._shape, strict=True)
        ]
        for step in range(2 * self.N_ALTERNATIONS):
            this, other = step % 2, 1 - step % 2
            n_other = self._shape[other]
            x = sizes / (n_other * self._marginals[other][axes[other]])
            total = np.bincount(axes[this], x, self._shape[this])
            mean = total.sum() / visits[this].sum()
            p = np.sqrt(
                (total + self.PRIOR_DRAWS * mean) / (visits[this] + self.PRIOR_DRAWS)
            )
            self._marginals[this] = p / p.sum()

    def probabilities(self):
        """Return the probabilities of the rows and of the columns."""
        return tuple(p.copy() for p in self._marginals)

    def densities(self):
        """Return q of every entry, in the order of the flattened matrix."""
        p, r = self._marginals
        q = np.outer(p * len(p), r * len(r)).ravel()
        return self._mixing + (1 - self._mixing) * q
