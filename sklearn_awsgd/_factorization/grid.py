"""Shuffled passes over a matrix in threads.

Columns are cut into parts, rows into many more. As many parts of rows as of columns,
from anywhere in the matrix, make a band, and the entries where its parts meet the
blocks of the band. Blocks that share neither rows nor columns make a round and are
stepped at the same time: they touch no number of each other, so that nobody can tell
when each of them ran. Then comes the next round of the band, and after as many as there
are parts the next band.

Blocks of a round learn on their own. In a first pass they would find bases of their own
before they meet, and the pass would be worth little: it goes through the matrix as a
whole, in one thread.
"""

from itertools import pairwise

import numpy as np

from sklearn_awsgd._kernels import _loop
from sklearn_awsgd._kernels._entries import ShuffledEntries

# Parts of the columns, at most: threads that can work at the same time. No result
# depends on how many do.
MOST_PARTS = 8
# Bands of a pass, at least, and entries of a block on average: calls and threads that
# wait for each other should cost little, and its memory should fit into a cache. Chosen
# on generated ratings, where a pass is worth no less than without blocks.
FEWEST_BANDS = 4
FEWEST_OF_BLOCK, MOST_OF_BLOCK = 4096, 16384
# Entries of a row in a block on average, at least: its factors are read once for them.
FEWEST_OF_ROW = 8
# Numbers that threads write should not lie in one line of the cache.
APART = 16


def count_parts(n_entries, shape):
    """Return the parts of columns, and of bands; one part where nothing is gained."""
    by_size = (n_entries / (FEWEST_BANDS * FEWEST_OF_BLOCK)) ** 0.5
    by_row = n_entries / (shape[0] * FEWEST_OF_ROW)
    n_parts = max(int(min(by_size, by_row, MOST_PARTS)), 1)
    n_bands = max(FEWEST_BANDS, round(n_entries / (n_parts**2 * MOST_OF_BLOCK)))
    if n_parts * n_bands > shape[0]:
        return 1, 1
    return n_parts, n_bands


class GridPasses:
    """Every entry once, then all again in a new order, block by block from then on.

    Parameters
    ----------
    entries : Entries
        The entries.
    generator : numpy.random.BitGenerator
        Random stream; each part of a band has its own, seeded from it.
    threads : Blocks
        Has threads.
    n_parts, n_bands : int
        Parts of the columns and of a band, and bands.
    """

    def __init__(self, entries, generator, threads, n_parts, n_bands):
        self._threads, self._generator, self._entries = threads, generator, entries
        self._counts = entries.row_counts(), entries.column_counts()
        self._n_parts, self._n_bands = n_parts, n_bands
        self._whole = ShuffledEntries(generator, entries)
        self._n_first = entries.n_entries
        self.patience = self._whole.patience
        self._dealers = None

    def _cut_matrix(self, problem):
        """Cut the matrix into blocks, once."""
        n_parts, entries = self._n_parts, self._entries
        self._random = np.random.Generator(self._generator)
        self._rows = _cut(self._counts[0], n_parts * self._n_bands)
        self._columns = _cut(self._counts[1], n_parts)
        self._order, self._starts = _group(entries, self._rows, self._columns)
        if self._order is not None:
            # Block by block in memory too, which is then read as it comes.
            entries = entries.reordered(self._order)
        self._dealers = [
            ShuffledEntries(np.random.PCG64(seed), entries)
            for seed in self._random.integers(2**63, size=n_parts)
        ]
        self._batches = np.zeros((n_parts, self.patience), dtype=_loop.POINT)
        self._clocks = np.zeros((n_parts, APART))
        self._problems = problem.share(self._clocks[:, :1], self._order)
        self._rounds, self._waiting = [], []

    def run(self, problem, n_draws, batch, sums, draw_counts=None, costs=None):
        """Run some draws, as :func:`sklearn_awsgd._kernels._loop.run` does.

        Parameters
        ----------
        problem : FactorizationProblem
            Changed in place.
        n_draws : int
            Number of draws.
        batch : ndarray
            Work space of the first pass; later each part has its own.
        sums : ndarray
            Sums over the draws, added to.
        draw_counts : None
            Not used.
        costs : Costs, default=None
            What draws cost, where that is known.
        """
        n_first = min(self._n_first, n_draws)
        done = _loop.run(problem, self._whole, n_first, batch, sums, costs=costs)
        self._n_first -= done
        if done == n_draws or done < n_first:
            return done
        if self._dealers is None:
            self._cut_matrix(problem)
        if costs is not None and self._order is not None:
            costs = costs.reordered(self._order)
        clock = problem.state["clock"]
        while done < n_draws:
            calls = self._next_calls(n_draws - done, clock[0])
            waiting = iter(calls)

            def step_blocks(waiting=waiting):
                # A thread takes the next block when it is done with one.
                for part, size, own_sums, n_done in waiting:
                    n_done[0] = _loop.run(
                        self._problems[part],
                        self._dealers[part],
                        size,
                        self._batches[part],
                        own_sums,
                        costs=costs,
                    )

            n_threads = min(self._threads.n_threads, len(calls))
            for _ in self._threads.run(step_blocks, [()] * n_threads):
                pass
            for _, size, own_sums, (n_done,) in calls:
                sums += own_sums
                clock += n_done
                done += n_done
                if n_done < size:
                    return done
        return done

    def _next_calls(self, n_draws, clock):
        """Return what is to be run of a round: parts, their draws, space for results.

        The clock of a part begins where that of the one before will end.
        """
        if not self._waiting:
            self._begin_round()
        calls = []
        while self._waiting and n_draws > 0:
            part, n_left = self._waiting.pop()
            size = min(n_left, n_draws)
            if size < n_left:
                self._waiting.append((part, n_left - size))
            self._clocks[part, 0] = clock
            calls.append((part, size, np.zeros(APART)[: len(_loop.SUMS)], [0]))
            n_draws -= size
            clock += size
        return calls

    def _begin_round(self):
        """Have each part deal a block, the largest first."""
        n_parts = self._n_parts
        if not self._rounds:
            order = self._random.permutation(len(self._rows))
            for rows in order.reshape(self._n_bands, n_parts):
                columns = self._random.permutation(n_parts)
                self._rounds += [(rows, np.roll(columns, k)) for k in range(n_parts)]
        for part, (row, column) in enumerate(zip(*self._rounds.pop(), strict=True)):
            block = row * n_parts + column
            entries = slice(*self._starts[block : block + 2])
            dealer = self._dealers[part]
            dealer.turn_to(self._rows[row], self._columns[column], entries)
            if dealer.n_entries:
                self._waiting.append((part, dealer.n_entries))
        self._waiting.sort(key=lambda block: block[1])

    def row_probabilities(self):
        """Return the share of each row in the draws."""
        return self._counts[0] / self._counts[0].sum()

    def column_probabilities(self):
        """Return the share of each column in the draws."""
        return self._counts[1] / self._counts[1].sum()

    def stratum_probabilities(self):
        """Return what is recorded over time: the probabilities of the columns."""
        return self.column_probabilities()


def _cut(counts, n_parts):
    """Return rows or columns as slices, with about as many entries each."""
    ends = np.cumsum(counts)
    shares = ends[-1] * np.arange(1, n_parts) / n_parts
    limits = [0, *np.searchsorted(ends, shares, side="right"), len(counts)]
    return [slice(*pair) for pair in pairwise(limits)]


def _group(entries, rows, columns):
    """Return the numbers of the entries, block by block, and where blocks begin."""
    n_blocks = len(rows) * len(columns)
    if entries.kind != "missing":
        return None, np.zeros(n_blocks + 1, dtype=np.intp)
    row_labels = len(columns) * _labels(rows)
    return entries.sort(row_labels, _labels(columns), n_blocks)


def _labels(parts):
    """Return the part of each row or column."""
    sizes = [part.stop - part.start for part in parts]
    return np.repeat(np.arange(len(parts), dtype=np.int32), sizes)
