"""What P is: the rows, entries or locations that samplers draw from.

A space knows nothing of models, and a sampler nothing beyond its space and the view of
one problem. A space has a `kind`, which a sampler names that can draw from it, and says
whether it is `stationary`: in the mean of a function, each point has one value, so that
all draws so far tell of the same thing and a sampler may learn from all of them again.
While a model is trained its gradients move, and old draws tell of an old model.
"""

from functools import cached_property

import numpy as np

from sklearn_awsgd._kernels._entries import Entries
from sklearn_awsgd._kernels._loop import POINT, Costs
from sklearn_awsgd._kernels._tables import AliasTable, SafeRows

# Draws from a distribution that show where it lies, before anything is evaluated.
N_PILOT = 2000


def empty_points(n_points, dtype=POINT):
    """Return points of which nothing is known but that each costs 1 to draw."""
    points = np.zeros(n_points, dtype=dtype)
    if "cost" in points.dtype.names:
        points["cost"] = 1
    return points


class RowSpace:
    """The rows a sampler may draw from: their masses and their norms.

    It is shared, read-only, by the samplers of all one-vs-rest problems of a fit.

    Parameters
    ----------
    mass : ndarray of shape (n_samples,) or None
        P of each row, summing to one; None when all are equal.
    norms2 : ndarray of shape (n_samples,)
        Squared norms of the rows.
    shuffle : bool, default=True
        Whether passes over all rows take them in random order.
    costs : ndarray of shape (n_samples,), default=None
        What it costs to fetch each row, where that is known.

    Attributes
    ----------
    n_rows : int
        Number of rows with positive mass.
    strata : ndarray of int or None
        Given stratum of each row, as an index.
    """

    kind = "rows"
    stationary = False

    def __init__(self, mass, norms2, shuffle=True, costs=None):
        self._set_rows(mass, norms2.shape[0], shuffle)
        self.norms2 = norms2
        self.costs = costs

    def _set_rows(self, mass, n_samples, shuffle):
        self.n_samples = n_samples
        self.shuffle = shuffle
        self.mass = mass
        self.n_rows = n_samples if mass is None else int(np.count_nonzero(mass))
        self.strata = None
        self.costs = None
        # Safe distributions that were asked for, by whether they know costs.
        self._safe = {}

    def __getstate__(self):
        # The compiled tables are made again when they are wanted.
        return {**vars(self), "_safe": {}}

    @property
    def rows(self):
        """The rows with positive mass, a new array of int32."""
        if self.mass is None:
            return np.arange(self.n_samples, dtype=np.int32)
        return np.flatnonzero(self.mass > 0).astype(np.int32)

    def points(self, n_points):
        """Return empty points for draws: ``i``, ``origin`` and ``q`` are to be set."""
        return empty_points(n_points)

    def masses(self):
        """Return P of each row."""
        if self.mass is None:
            return np.full(self.n_samples, 1 / self.n_samples)
        return self.mass

    def safe(self, time_aware=False):
        """Return the safe distribution, made once for the samplers of all problems.

        It is proportional to P times the bound of the gradient norm: neither a large
        row nor a small one can then have a large weighted gradient. A time-aware one is
        divided by the root of the cost: a share of draws that did not know the cost
        would be all that is paid for. Weighted gradients are then bounded by that root.
        """
        costs = self.costs if time_aware else None
        aware = costs is not None
        if aware not in self._safe:
            self._safe[aware] = SafeRows(
                self.n_samples, self._bounding_norms2(), self.mass, costs
            )
        return self._safe[aware]

    def _bounding_norms2(self):
        """Return the norms that bound gradients, or None where nothing does."""
        return self.norms2


class PoolSpace(RowSpace):
    """The rows of a pool over which a function is averaged.

    Nothing bounds the function, so that the safe distribution is P.

    Parameters
    ----------
    mass : ndarray of shape (n_samples,) or None
        P of each row, summing to one; None when all are equal.
    n_samples : int
        Number of rows.
    find_norms2 : callable
        Returns the squared norms of the rows, for a sampler that asks for them; it
        raises where rows have none.
    """

    stationary = True

    def __init__(self, mass, n_samples, find_norms2):
        self._set_rows(mass, n_samples, shuffle=True)
        self._find_norms2 = find_norms2

    def __getstate__(self):
        state = super().__getstate__()
        state.pop("norms2", None)
        return state

    @cached_property
    def norms2(self):
        """Squared norms of the rows."""
        return self._find_norms2()

    def _bounding_norms2(self):
        return None


class ProblemView:
    """What a sampler may know of one problem.

    Parameters
    ----------
    groups : ndarray of shape (n_samples,) and dtype int32, or callable
        Group of each row: 1 for the positive class, 0 for the rest. A function takes a
        slice of the rows.
    norms2 : ndarray of shape (n_samples,), or callable
        Squared gradient norm of each row at the start; ones when nothing is known.
    """

    def __init__(self, groups, norms2):
        self._groups, self._norms2 = groups, norms2

    def part(self, rows):
        """Return groups and squared gradient norms of a slice of the rows."""
        return _numbers_of(self._groups, rows), _numbers_of(self._norms2, rows)

    @property
    def groups(self):
        """The groups of all rows."""
        return _numbers_of(self._groups, slice(None))

    @property
    def norms2(self):
        """The squared gradient norms of all rows."""
        return _numbers_of(self._norms2, slice(None))


def _numbers_of(known, rows):
    """Return the numbers of a slice of rows, from an array or by a function."""
    return known(rows) if callable(known) else known[rows]


class StrataLayout:
    """Which rows are in which stratum: read-only input of the compiled sampler.

    Parameters
    ----------
    space : RowSpace
        The rows.
    strata : ndarray of shape (n_samples,) and dtype int
        Stratum of each row.
    n_strata : int
        Number of strata; some may have no rows.
    safe : SafeRows or None
        The safe distribution.
    """

    def __init__(self, space, strata, n_strata, safe):
        # Small integers are sorted by counting, in linear time.
        narrow = np.int16 if n_strata < 2**15 else np.int32
        rows = space.rows
        chosen = strata[rows] if len(rows) < space.n_samples else strata
        self.order = rows[np.argsort(chosen.astype(narrow), kind="stable")]
        n_rows = np.bincount(chosen, minlength=n_strata)
        self.start = np.concatenate([[0], np.cumsum(n_rows)]).astype(np.intp)
        self.strata = np.ascontiguousarray(strata, dtype=np.int32)
        self.within = None
        if space.mass is None:
            self.mass = n_rows / space.n_samples
        else:
            ordered = space.mass[self.order]
            self.mass = np.bincount(
                chosen, weights=space.mass[rows], minlength=n_strata
            )
            first = np.minimum(self.start[:-1], len(ordered) - 1)
            if (ordered != np.repeat(ordered[first], n_rows)).any():
                self.within = AliasTable(ordered, self.start)
            self.strata = np.where(space.mass > 0, self.strata, np.int32(-1))
        self.safe = safe
        self._p = space.mass

    def mean(self, values):
        """Return the mean over P of values of the rows, for each stratum with mass."""
        n_strata, here = len(self.mass), self.strata[self.order]
        p = 1 / len(values) if self._p is None else self._p[self.order]
        totals = np.bincount(here, weights=p * values[self.order], minlength=n_strata)
        return totals / np.where(self.mass > 0, self.mass, 1)


class EntrySpace:
    """The entries of a matrix that a sampler may draw; P is uniform over them.

    Parameters
    ----------
    shape : tuple of two int
        Numbers of rows and columns.
    holes : {"dense", "zeros", "missing"}, default="dense"
        Whether all entries are stored, and what those are that are not: missing ones
        are not drawn.
    row_start, columns : ndarray, default=None
        Where entries are stored, as `indptr` and `indices` of a canonical CSR matrix;
        None for "dense".
    stationary : bool, default=False
        Whether a function of the entries is averaged, and no model is trained.
    costs : EntryCosts, default=None
        What it costs to fetch each entry, where that is known.

    Attributes
    ----------
    entries : compiled Entries
        The same for compiled samplers.
    """

    kind = "entries"

    def __init__(
        self,
        shape,
        holes="dense",
        row_start=None,
        columns=None,
        *,
        stationary=False,
        costs=None,
    ):
        self.shape = shape
        self.costs = costs
        self.holes = holes
        self.stationary = stationary
        self._stored = None
        if holes != "dense":
            self._stored = row_start.astype(np.intp), columns.astype(np.int32)

    def __getstate__(self):
        # The compiled view is made again when it is wanted.
        return {name: v for name, v in vars(self).items() if name != "entries"}

    @cached_property
    def entries(self):
        """Where the entries are, for compiled samplers."""
        return Entries(self.shape, self.holes, *(self._stored or ()))

    def points(self, n_points):
        """Return empty points: ``i``, ``j``, ``origin`` and ``q`` are to be set.

        :meth:`locate` then sets ``entry``.
        """
        return empty_points(n_points)

    def places(self):
        """Return the rows and the columns of all entries that may be drawn."""
        if self.holes != "missing":
            return tuple(np.indices(self.shape).reshape(2, -1))
        row_start, columns = self._stored
        return np.repeat(np.arange(self.shape[0]), np.diff(row_start)), columns

    def locate(self, points):
        """Set where the values of points are stored, from ``i`` and ``j``."""
        n_columns = np.intp(self.shape[1])
        place = points["i"] * n_columns + points["j"]
        if self._stored is not None:
            row_start, columns = self._stored
            rows = np.repeat(np.arange(self.shape[0]), np.diff(row_start))
            stored = np.append(rows * n_columns + columns, np.iinfo(np.intp).max)
            found = np.searchsorted(stored, place)
            place = np.where(stored[found] == place, found, -1)
        points["entry"] = place


class EntryCosts:
    """What it costs to fetch the entries of a matrix.

    Parameters
    ----------
    rows, columns : ndarray, default=None
        Costs of rows and of columns, which add; the latter may be zero.
    cells : ndarray of shape (n_rows, n_columns), default=None
        Cost of each entry, instead.
    entries : ndarray of shape (n_entries,), default=None
        Cost of each observed entry of a matrix with holes, row by row, instead.
    """

    def __init__(self, rows=None, columns=None, cells=None, entries=None):
        self.rows, self.columns = rows, columns
        self.cells, self.entries = cells, entries

    @cached_property
    def kernel(self):
        """The same for the loop."""
        return Costs(self.rows, self.columns, self.cells, self.entries)

    def __getstate__(self):
        return {name: v for name, v in vars(self).items() if name != "kernel"}

    def at(self, i, j):
        """Return the costs of all observed entries, given their rows and columns."""
        if self.entries is not None:
            return self.entries
        return (
            self.rows[i] + self.columns[j] if self.cells is None else self.cells[i, j]
        )

    def marginals(self, space):
        """Return the mean costs of the entries of each row and of each column.

        Of a row or column without entries it is one.
        """
        if space.holes == "missing":
            i, j = space.places()
            costs, means = self.at(i, j), []
            for place, size in zip((i, j), space.shape, strict=True):
                n = np.bincount(place, minlength=size)
                total = np.bincount(place, weights=costs, minlength=size)
                means.append(np.where(n > 0, total, 1.0) / np.maximum(n, 1))
            return tuple(means)
        if self.cells is not None:
            return self.cells.mean(axis=1), self.cells.mean(axis=0)
        return self.rows + self.columns.mean(), self.columns + self.rows.mean()

    def mean(self, space):
        """Return the mean cost of an entry that may be drawn."""
        if space.holes == "missing":
            return self.at(*space.places()).mean()
        return self.marginals(space)[0].mean()


class DistributionSpace:
    """The locations that a continuous distribution gives.

    Parameters
    ----------
    distribution : frozen distribution of scipy.stats
        P: it has ``rvs`` and ``logpdf``.
    random : numpy.random.Generator
        Draws the pilot.

    Attributes
    ----------
    pilot : ndarray of shape (n_pilot, n_dimensions)
        Draws from P.
    """

    kind = "distribution"
    stationary = True

    def __init__(self, distribution, random):
        self.distribution = distribution
        pilot = np.asarray(
            distribution.rvs(size=N_PILOT, random_state=random), dtype=float
        )
        self._is_flat = pilot.ndim == 1
        self.pilot = pilot.reshape(N_PILOT, -1)

    def points(self, n_points):
        """Return empty points: locations ``x`` and ``q`` are to be set."""
        x = ("x", np.float64, (self.pilot.shape[1],))
        return empty_points(n_points, np.dtype([*POINT.descr, x]))

    def arguments(self, x):
        """Return locations (n, n_dimensions) in the shape in which P draws them."""
        return x[:, 0] if self._is_flat else x

    def draw(self, n, random):
        """Return locations drawn from P, of shape (n, n_dimensions)."""
        x = self.distribution.rvs(size=n, random_state=random)
        # Some distributions drop the axis of a single draw.
        return np.reshape(x, (n, -1))

    def log_density(self, x):
        """Return the logarithm of P's density at locations (n, n_dimensions)."""
        value = self.distribution.logpdf(self.arguments(x))
        return np.asarray(value, dtype=float).reshape(len(x))
