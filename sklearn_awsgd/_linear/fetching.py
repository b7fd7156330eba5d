"""Rows of a source: checked when they come, and fetched ahead of those who need them.

At any time there are two blocks or batches of a task in memory: one that is worked on,
and one that a background thread reads; and as many rows as a block has, for samples of
the curvature.
"""

from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from threading import Lock
from time import perf_counter

import numpy as np
from scipy import sparse

from sklearn_awsgd._kernels._newton import weigh_rows
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._linear.blocks import Blocks, stack_rows
from sklearn_awsgd._linear.curvature import systematic_sample

# Numbers in the rows of a block: 8 MB at most, whatever the number of features.
NUMBERS_READ = 2**20
# Numbers in the rows that stay in memory, for samples of the curvature; and what share
# of all rows a sample has at most that is taken from these instead.
NUMBERS_KEPT, SHARE_IN_KEPT = 2**20, 1 / 16
# Rows of a batch of draws: they share one state of the sampler.
ROWS_IN_BATCH = 512
# Rows of each place that are fetched to see what it costs, and rows looked at for that.
PILOT_ROWS, PILOT_LOOK = 16, 4096
# Clocks and calls make less of no matter.
LEAST_COST = 1e-9


class SourceRows:
    """The rows of a source, checked, with the interface of an array.

    Parameters
    ----------
    source : row source
        As :mod:`sklearn_awsgd.sources` describes it.
    allow_nan : bool, default=False
        Whether NaN is a value like others.

    Attributes
    ----------
    shape, dtype : tuple and dtype
        Of the rows.
    is_sparse : bool
        Whether they come as CSR.
    given_places : ndarray of int or None
        Where each row is, for a source that does not say.
    kept : KeptRows or None
        Rows that are in memory, after `survey`.
    """

    given_places = kept = None

    def __init__(self, source, allow_nan=False):
        shape = tuple(source.shape)
        if len(shape) != 2 or min(shape) < 1:
            raise ValueError(
                f"The row source X has shape {shape}; it needs at least one row and "
                "one feature."
            )
        self.source, self.shape = source, (int(shape[0]), int(shape[1]))
        self.dtype = np.dtype(source.dtype)
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"The row source X has type {self.dtype}; it has to give float32 or "
                "float64: convert rows in its take."
            )
        self._allow_nan = allow_nan
        self._lock = Lock()
        # Passes in order go past a cache.
        self._in_order = getattr(source, "source", source)
        self.is_sparse = None  # Not known yet.
        self.is_sparse = sparse.issparse(self.read([0]))

    @property
    def size(self):
        """Numbers in all rows, as if they were dense."""
        return self.shape[0] * self.shape[1]

    def __getitem__(self, rows):
        if isinstance(rows, slice):
            return self.read(np.arange(*rows.indices(self.shape[0])))
        rows = np.asarray(rows)
        return self.take(np.flatnonzero(rows) if rows.dtype == bool else rows)

    def take(self, rows):
        """Return some rows, by their numbers."""
        return self._fetch(self.source, np.asarray(rows, dtype=np.intp))

    def read(self, rows):
        """Return rows in their order, past a cache."""
        return self._fetch(self._in_order, np.asarray(rows, dtype=np.intp))

    def places(self, rows):
        """Return where rows are now, as the source says; None where it does not."""
        find = getattr(self.source, "places", None)
        if find is not None:
            return np.asarray(find(rows))
        return None if self.given_places is None else self.given_places[rows]

    def _fetch(self, source, rows):
        try:
            with self._lock:
                X = source.take(rows)
        except Exception as error:
            raise RuntimeError(
                f"The row source X failed to give {named_rows(rows)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        is_sparse = sparse.issparse(X)
        if not is_sparse:
            X = np.asarray(X)
        if X.shape != (len(rows), self.shape[1]):
            raise ValueError(
                f"The row source X gave shape {X.shape} for {named_rows(rows)}, "
                f"expected {(len(rows), self.shape[1])}."
            )
        if X.dtype != self.dtype or self.is_sparse not in (None, is_sparse):
            form = {True: "sparse", False: "dense", None: "such"}
            raise ValueError(
                f"The row source X gave {form[is_sparse]} rows of type {X.dtype} for "
                f"{named_rows(rows)}, expected {form[self.is_sparse]} ones of "
                f"{self.dtype}."
            )
        if is_sparse:
            X = sparse.csr_array(X)
            X.sum_duplicates()
        else:
            X = np.ascontiguousarray(X)
        self._check_values(X, rows)
        return X

    def _check_values(self, X, rows):
        """Raise ValueError when values are not finite, or too large to be squared."""
        values = X.data if self.is_sparse or sparse.issparse(X) else X.ravel()
        with np.errstate(over="ignore", invalid="ignore"):
            # A product is the quickest look at all of them.
            if np.isfinite(values @ values):
                return
        if self._allow_nan:
            X = np.where(np.isnan(X), X.dtype.type(0), X)
        # Sums of squares of single precision may overflow where those of rows do not.
        norms2 = Rows(X).squared_norms()
        if not np.isfinite(norms2).all():
            raise ValueError(
                f"The row source X gave {'' if self._allow_nan else 'NaN, '}infinite "
                "values or values whose squares overflow in "
                f"{named_rows(rows[~np.isfinite(norms2)])}."
            )

    def survey(self):
        """Return the squared norms of all rows, from a pass over them.

        On the way some rows are kept, evenly spread: random ones of as many parts.
        """
        blocks, n_samples = SourceBlocks(self), self.shape[0]
        n_kept = min(NUMBERS_KEPT * n_samples // blocks.n_nonzero, n_samples)
        places = np.arange(n_kept) + np.random.default_rng(0).random(n_kept)
        places = (places * (n_samples / max(n_kept, 1))).astype(np.intp)

        def look(X, part):
            here = places[slice(*np.searchsorted(places, [part.start, part.stop]))]
            return Rows(X).squared_norms(), X[here - part.start]

        norms2, kept = zip(*blocks.map(look), strict=True)
        self.kept = KeptRows(places, stack_rows(kept))
        return np.concatenate(norms2)


class KeptRows:
    """Rows of a source that are in memory.

    Parameters
    ----------
    places : ndarray of int
        Their numbers, sorted.
    rows : ndarray or CSR
        The rows.
    """

    def __init__(self, places, rows):
        self.places, self.rows = places, rows

    def sample(self, size, n_rows, rng):
        """Draw some of them, for sums over all rows in proportion to `size`."""
        chosen, times = systematic_sample(size[self.places], n_rows, rng)
        return self.places[chosen], times * (len(size) / len(self.places))

    def find(self, rows):
        """Return rows by their numbers; None where not all are here."""
        where = np.searchsorted(self.places, rows)
        here = where < len(self.places)
        if not here.all() or (self.places[where] != rows).any():
            return None
        return self.rows[where]


class SourceBlocks(Blocks):
    """Rows of a source, visited block by block: one is read while one is visited.

    Parameters
    ----------
    X : SourceRows
        The rows.
    """

    def __init__(self, X):
        self._X, self.n_threads = X, 1
        self.shape, self.dtype, self.is_sparse = X.shape, X.dtype, X.is_sparse
        self.n_nonzero = X.size
        if X.is_sparse:
            # As some of the rows have them.
            some = np.linspace(0, X.shape[0] - 1, min(X.shape[0], 200)).astype(np.intp)
            self.n_nonzero = max(X.read(some).nnz * X.shape[0] // len(some), 1)

    @cached_property
    def _pool(self):
        return ThreadPoolExecutor(1)

    def take(self, rows):
        """Return some rows, by their numbers: from memory where all of them are."""
        found = None if self._X.kept is None else self._X.kept.find(rows)
        return self._X[rows] if found is None else found

    def weigh(self, rows, roots, dtype):
        """Return dense rows, a one behind each, multiplied with roots of weights."""
        return weigh_rows(self.take(rows), None, roots, dtype)

    def sample(self, size, n_rows, rng):
        """Draw rows for a curvature; a small sample from those that are in memory.

        A curvature need not be exact: a pass over the rows would cost more than it
        brings.
        """
        kept = self._X.kept
        if (
            kept is None
            or n_rows > max(SHARE_IN_KEPT * len(size), len(kept.places))
            or not size[kept.places].any()
        ):
            return super().sample(size, n_rows, rng)
        return kept.sample(size, n_rows, rng)

    @property
    def parts(self):
        """The slices of the rows of each block."""
        n_samples = self.shape[0]
        step = max(NUMBERS_READ * n_samples // max(self.n_nonzero, n_samples), 1)
        return [
            slice(start, min(start + step, n_samples))
            for start in range(0, n_samples, step)
        ]

    def map(self, function):
        """Yield ``function(X, part)`` of each block, in their order."""
        return visit_ahead(self._pool, self._X.__getitem__, self.parts, function)


def visit_ahead(pool, read, parts, function):
    """Yield ``function(read(part), part)`` of each part, one being read ahead.

    Parameters
    ----------
    pool : Executor
        Its thread reads.
    read : callable
        Returns what is at a part.
    parts : list
        The parts.
    function : callable
        Takes what was read, and the part.
    """
    ahead = pool.submit(read, parts[0])
    try:
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            found = ahead.result()
            # The one before is forgotten here: there are two at a time, never three.
            ahead = None if following is None else pool.submit(read, following)
            result = function(found, part)
            del found
            yield result
    finally:
        # After an exception nobody needs it; the source is free when it has come.
        if ahead is not None and not ahead.cancel():
            wait([ahead])


class FetchedProblem:
    """The problem of a task on a source, which sees the rows of a batch at a time.

    Parameters
    ----------
    task : Task
        Its state is changed in place.
    """

    def __init__(self, task):
        self.task, self.batch, self.eta0 = task, None, task.rate.eta0
        # Enough to ask for what does not depend on rows.
        self._first = task.data.X.read([0])

    def first_norms2(self):
        """Return the squared gradient norm of each row at the start."""
        everything = self.task.on_rows(self._first, slice(None))
        if not self.task.has("coef"):
            return everything.make_problem().first_norms2()
        found = self.task.data.blocks.map(
            lambda X, part: self.task.on_rows(X, part).make_problem().first_norms2()
        )
        return np.concatenate(list(found))

    def step_points(self, points, weights):
        """Step points of the last batch one after the other."""
        task = self.task.on_rows(self.batch, points["i"])
        problem = task.make_problem()
        problem.eta0 = self.eta0
        local = points.copy()
        local["i"] = np.arange(len(points))
        problem.step_points(local, weights)
        points["loss"], points["norm2"] = local["loss"], local["norm2"]

    def penalty(self):
        """Return the part of the objective that is not sampled."""
        return self.task.on_rows(self._first, slice(1)).make_problem().penalty()


class FetchedDraws:
    """An opened sampler whose rows are fetched a batch ahead, in the background.

    The draws of a batch are made while the batch before is stepped: their densities are
    those of the state they were drawn at, so that steps stay unbiased.

    Parameters
    ----------
    opened : opened sampler
        What draws.
    X : SourceRows
        The rows.
    problem : FetchedProblem
        Given the rows of each batch.
    measuring : bool
        Whether to set the costs of points to what their fetches took: seconds of the
        rows of a place, fetched together, for each of them.
    """

    patience = ROWS_IN_BATCH

    def __init__(self, opened, X, problem, measuring):
        self.opened, self._X, self._problem = opened, X, problem
        self._measuring = measuring
        self._pool = ThreadPoolExecutor(1)
        self._ahead = None
        self._points, self._rows, self._used = None, None, 0

    def _begin(self):
        points = self.opened.draw_points(ROWS_IN_BATCH)
        return self._pool.submit(self._fetch, points)

    def _fetch(self, points):
        if not self._measuring:
            return points, self._X.take(points["i"])
        rows, points["cost"] = timed_fetch(self._X, points["i"])
        return points, rows

    def draw_points(self, n_points):
        """Return points whose rows have come, at most as many as a batch has."""
        if self._points is None or self._used == len(self._points):
            if self._ahead is None:
                self._ahead = self._begin()
            self._points, self._rows = self._ahead.result()
            self._used, self._ahead = 0, self._begin()
        part = slice(self._used, min(self._used + n_points, len(self._points)))
        self._used = part.stop
        self._problem.batch = self._rows[part]
        return self._points[part]

    def observe_points(self, points):
        """Learn from points whose ``norm2`` has been filled in."""
        self.opened.observe_points(points)

    def stratum_probabilities(self):
        """Return the learned probabilities of the strata."""
        return self.opened.stratum_probabilities()

    def densities(self):
        """Return q of every row."""
        return self.opened.densities()

    def close(self):
        """Wait for the fetch that nobody needs any more."""
        self._pool.shutdown(cancel_futures=True)


def timed_fetch(X, rows):
    """Return rows of a source, and the seconds that each took.

    The rows of a place are fetched together, and share their time.
    """
    places = X.places(rows)
    if places is None:
        places = np.zeros(len(rows), dtype=np.intp)
    parts, where, costs = [], [], np.empty(len(rows))
    for place in np.unique(places):
        inside = np.flatnonzero(places == place)
        started = perf_counter()
        parts.append(X.take(rows[inside]))
        costs[inside] = max((perf_counter() - started) / len(inside), LEAST_COST)
        where.append(inside)
    order = np.argsort(np.concatenate(where))
    return stack_rows(parts)[order], costs


def pilot_costs(X, random):
    """Return what a row costs, for each: that of its place, from a few fetches.

    The safe part of a sampler has to know the cost before anything is learned.
    """
    everything = np.arange(X.shape[0])
    places = X.places(everything)
    if places is None:
        places = np.zeros(X.shape[0], dtype=np.intp)
    some = random.integers(X.shape[0], size=min(PILOT_LOOK, X.shape[0]))
    found, where = np.unique(places, return_inverse=True)
    costs = np.full(len(found), np.nan)
    for k in np.unique(where[some]):
        rows = some[where[some] == k][:PILOT_ROWS]
        started = perf_counter()
        X.take(rows)
        costs[k] = max((perf_counter() - started) / len(rows), LEAST_COST)
    costs[np.isnan(costs)] = np.nanmean(costs)
    return costs[where]


def named_rows(rows):
    """Return rows in words, for messages."""
    if len(rows) == 1:
        return f"row {rows[0]}"
    if len(rows) > 3 and (np.diff(rows) == 1).all():
        return f"rows {rows[0]} to {rows[-1]}"
    some = ", ".join(map(str, rows[:10]))
    return f"rows {some}" + (f" and {len(rows) - 10} more" if len(rows) > 10 else "")
