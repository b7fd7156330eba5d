"""A matrix whose rows are fetched from a source.

Means, exact solutions and predictions read blocks of rows in their order. Draws go
through the rows in blocks too, as a row that is fetched for one entry brings all of its
entries: each block is fetched while the draws of the one before are stepped, and its
entries are drawn as often as their share of all entries says. Inside a block the
sampler decides, with what it knows of the columns and of these rows.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np

from sklearn_awsgd._factorization.training import padded
from sklearn_awsgd._kernels._loop import POINT
from sklearn_awsgd._linear.blocks import stack_rows
from sklearn_awsgd._linear.fetching import SourceBlocks, SourceRows, named_rows
from sklearn_awsgd._solver.runs import choose_loop

# Runs of neighbouring rows in a block of draws: from this many places of the matrix.
RUNS_IN_BLOCK = 8


class SourceEntries:
    """The entries of a matrix whose rows come from a source.

    It has what :class:`~sklearn_awsgd._factorization.entries.EntryData` has, as far as
    it can be had without the entries.

    Parameters
    ----------
    source : row source
        As :mod:`sklearn_awsgd.sources` describes it.
    check : callable
        Returns some rows, as an array or CSR, as `EntryData`; raises ValueError when
        they are out of range.
    allow_nan : bool
        Whether NaN is a value like others: that of missing entries.

    Attributes
    ----------
    X : SourceRows
        The rows.
    kind : {"dense", "zeros", "missing"} or None
        Whether all entries are there, and what those are that are not stored; None
        before `survey`, as the rest.
    row_counts : ndarray of shape (n_rows,)
        Number of entries of each row.
    n_entries, n_stored : int
        Number of entries, and of those that are stored.
    """

    weights = costs = None
    pass_cost = np.nan

    def __init__(self, source, check, allow_nan):
        self.X, self._check, self.kind = SourceRows(source, allow_nan), check, None

    def survey(self):
        """Read all rows once: what training has to know of them before it begins."""
        self.row_counts = np.zeros(self.X.shape[0], dtype=np.intp)
        self._column_counts = np.zeros(self.X.shape[1], dtype=np.intp)
        kinds, self.n_stored, sums = set(), 0, np.zeros(2)
        for block, part in self.blocks():
            kinds.add(block.kind)
            values = block.stored()[0]
            self.n_stored += len(values)
            self._column_counts += block.column_counts()
            if block.kind == "missing" and block.observed is None:
                self.row_counts[part] = np.diff(block.X.indptr)
            elif block.kind == "missing":
                self.row_counts[part] = block.observed.sum(axis=1)
            else:
                self.row_counts[part] = block.X.shape[1]
            sums += values.sum(dtype=np.float64), np.abs(values).sum(dtype=np.float64)
        self.kind = "missing" if "missing" in kinds else kinds.pop()
        self.n_entries = int(self.row_counts.sum())
        if self.n_entries == 0:
            raise ValueError("X has no observed entry; at least one is needed.")
        self._mean, self._mean_size = sums / self.n_entries

    def column_counts(self):
        """Return the number of observed entries of each column."""
        return self._column_counts

    @cached_property
    def fetched(self):
        """The rows, block by block, one ahead."""
        return SourceBlocks(self.X)

    def draws(self, generator, pass_length, batch_size, n_threads):
        """Return what opens samplers of the entries, block by block."""
        return SourceDraws(self, generator, pass_length, batch_size)

    def blocks(self):
        """Yield the entries of blocks of rows in their order, and where they are."""
        return self.fetched.map(lambda X, part: (self.entries_of(X, part), part))

    def entries_of(self, X, rows):
        """Return fetched rows, whose numbers are given, as `EntryData`."""
        try:
            block = self._check(X)
        except ValueError as error:
            if isinstance(rows, slice):
                rows = np.arange(rows.start, rows.stop)
            raise ValueError(f"In {named_rows(rows)}: {error}") from error
        if self.kind == "missing" and block.kind == "dense":
            # Other rows have holes: they are to be drawn alike.
            block.kind, block.observed = "missing", np.ones(block.X.shape, dtype=bool)
        return block

    def row_blocks(self, n_threads):
        """Return the rows, for sums over them; one thread reads ahead."""
        return self.fetched

    def blocks_of(self, rows):
        """Yield the entries of some rows, those that are looked at together."""
        size = self.fetched.parts[0].stop
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            yield self.entries_of(self.X.take(some), some)

    def mean(self):
        """Return the mean of the entries."""
        return self._mean

    def mean_distance(self, center):
        """Return the mean distance of the entries from a number."""
        if center == 0:
            return self._mean_size
        return sum(
            block.n_entries / self.n_entries * block.mean_distance(center)
            for block, _ in self.blocks()
            if block.n_entries
        )


class SourceProblem:
    """The problem of all rows: it makes that of a block.

    Parameters
    ----------
    state : dict of ndarray
        State of a :class:`FactorizationProblem` of the whole matrix, changed in place.
    make : callable
        Takes `EntryData` and the state of its rows, returns the compiled problem.
    """

    def __init__(self, state, make):
        self.state, self.make = state, make

    def penalty(self):
        """Return the part of the objective that is not sampled: none."""
        return 0.0


class SourceDraws:
    """Opens samplers of the entries of a source.

    P of a block is uniform over its entries, and a pass has as many draws of a block as
    its share of all entries says: steps of a pass are unbiased as a whole. Which rows
    are together in a block stays, the order of the blocks is new in each pass.

    Parameters
    ----------
    data : SourceEntries
        The entries.
    generator : numpy.random.BitGenerator
        Random stream.
    pass_length : int
        Draws of a pass.
    batch_size : int
        Draws that share one state of the sampler.
    """

    costs = None

    def __init__(self, data, generator, pass_length, batch_size):
        self.data, self.generator, self.batch_size = data, generator, batch_size
        self.random = np.random.Generator(generator)
        self.rows = self._deal_rows()
        counts = np.array([data.row_counts[rows].sum() for rows in self.rows])
        self.shares = counts / data.n_entries
        ends = np.rint(pass_length * np.cumsum(self.shares)).astype(np.intp)
        self.n_draws = np.diff(ends, prepend=0)

    def __enter__(self):
        self._pool = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *exception):
        # Nobody needs the block that is still read; the source is free after it.
        self._pool.shutdown(cancel_futures=True)

    def _deal_rows(self):
        """Return the numbers of the rows of each block: runs of rows, at random."""
        n_rows, parts = self.data.X.shape[0], self.data.fetched.parts
        size = -(-(parts[0].stop - parts[0].start) // RUNS_IN_BLOCK)
        order = self.random.permutation(-(-n_rows // size))
        blocks = []
        for first in range(0, len(order), RUNS_IN_BLOCK):
            starts = size * np.sort(order[first : first + RUNS_IN_BLOCK])
            rows = (starts[:, None] + np.arange(size)).ravel()
            rows = rows[rows < n_rows]
            if self.data.row_counts[rows].any():
                blocks.append(rows)
        return blocks

    def fetch(self, k):
        """Return the entries of block k as a future."""
        return self._pool.submit(self._read, self.rows[k])

    def _read(self, rows):
        # Neighbouring rows are read together.
        runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
        X = stack_rows([self.data.X.read(run) for run in runs])
        return self.data.entries_of(X, rows)

    def open(self, sampler):
        """Return what draws entries."""
        return BlockPasses(self, sampler)


class BlockPasses:
    """Passes of one sampler over the blocks of a source.

    Parameters
    ----------
    draws : SourceDraws
        The blocks.
    sampler : BaseSampler
        Opened for each block; keeps what is learned of the columns.
    """

    patience = 1

    def __init__(self, draws, sampler):
        self._draws, self._sampler = draws, sampler
        data, n_columns = draws.data, draws.data.X.shape[1]
        # What is known of the rows of each block, and how often they are drawn.
        self._known = [None] * len(draws.rows)
        self._row_probabilities = data.row_counts / data.n_entries
        self._column_probabilities = np.full(n_columns, 1 / n_columns)
        self._order, self._ahead = [], None
        self.n_left = 0

    def _fetch(self):
        """Begin to read the next block, of a new order where one is at its end."""
        if not self._order:
            self._order = self._draws.random.permutation(len(self._known)).tolist()
        k = self._order.pop()
        return k, self._draws.fetch(k)

    def run(self, problem, n_draws, batch, sums, draw_counts=None, costs=None):
        """Run AW-SGD for some draws, as :func:`sklearn_awsgd._kernels._loop.run` does.

        Parameters
        ----------
        problem : SourceProblem
            Changed in place.
        n_draws : int
            Number of draws.
        batch : ndarray
            Not used: samplers of blocks have their own.
        sums : ndarray
            Sums over the draws, added to.
        draw_counts, costs : None
            Not used.
        """
        done = 0
        while done < n_draws:
            if self.n_left == 0:
                self.begin_block(problem)
            size = min(self.n_left, n_draws - done)
            n_done = self.run_block(size, sums)
            done += n_done
            if self.n_left == 0:
                self.end_block()
            if n_done < size:
                break
        return done

    def begin_block(self, problem):
        """Wait for the next block, and begin to read the one after."""
        k, read = self._ahead or self._fetch()
        data = read.result()
        self._ahead = self._fetch()
        self._k, rows, space = k, self._draws.rows[k], data.space()
        self._whole, self._own = (
            problem.state,
            {
                "rows": padded(problem.state["rows"][rows]),
                "row_bias": problem.state["row_bias"][rows],
            },
        )
        self._sampler.prepare(space, n_problems=1, n_groups=1, strata=None)
        if self._known[k] is not None:
            self._sampler.recall_rows(self._known[k])
        self._opened = self._sampler.open(space, None, 0, self._draws.generator)
        self._problem = problem.make(data, problem.state | self._own)
        self.n_left = self._draws.n_draws[k]

    def run_block(self, n_draws, sums):
        """Take draws of the block; return their number, less where steps overflow."""
        problem, opened = self._problem, self._opened
        batch_size = max(self._draws.batch_size, opened.patience)
        batch = np.zeros(batch_size, dtype=POINT)
        n_done = choose_loop(problem, opened)(problem, opened, n_draws, batch, sums)
        self.n_left -= n_done
        for name, array in self._own.items():
            self._whole[name][self._draws.rows[self._k]] = array
        return n_done

    def end_block(self):
        """Keep what was learned in the block."""
        k, sampler, opened = self._k, self._sampler, self._opened
        sampler.keep(0, opened)
        self._known[k] = sampler.known_rows()
        rows, share = self._draws.rows[k], self._draws.shares[k]
        self._row_probabilities[rows] = share * opened.row_probabilities()
        self._column_probabilities = opened.column_probabilities()
        self._problem = self._opened = self._own = None

    def row_probabilities(self):
        """Return the share of each row in the draws of a pass."""
        return self._row_probabilities.copy()

    def column_probabilities(self):
        """Return the probability of each column, in the last block."""
        return self._column_probabilities.copy()

    def stratum_probabilities(self):
        """Return what is recorded over time: the probabilities of the columns."""
        return self.column_probabilities()
