"""Runs of episodes: pieces of the loop, and what is recorded of each."""

from dataclasses import dataclass, field, fields
from time import perf_counter

import numpy as np

from sklearn_awsgd._kernels._loop import POINT, SUMS, Sampler, run
from sklearn_awsgd._solver.runs import Diverged, run_batches

# Pieces of ``fit``: enough for the history to have a shape, and no more than that it
# stays small.
LEAST_PIECES = 50
MOST_PIECES = 500
# Steps of a piece, where that leaves few enough: what Ctrl-C may have to wait for.
STEPS_IN_PIECE = 2_000_000


@dataclass
class EpisodeRecord:
    """What happened in a piece.

    Return and success are those of the target policy, as weighted means over the
    episodes of the piece; `cut` is the share of episodes that were cut.
    """

    episodes: int
    steps: int
    seconds: float
    mean_return: float
    success: float
    cut: float
    effective_sample_size: float
    variance_gain: float


@dataclass
class EpisodeLog:
    """The records of all calls, ready for ``pandas.DataFrame``."""

    verbose: int = 0
    records: list = field(default_factory=list)

    @property
    def last(self):
        """Return the last record; an empty one before the first."""
        nothing = EpisodeRecord(0, 0, 0.0, np.nan, np.nan, np.nan, 0.0, 1.0)
        return self.records[-1] if self.records else nothing

    def add(self, record):
        """Append a record, and print it when asked to."""
        self.records.append(record)
        if self.verbose:
            print(
                f"episode {record.episodes}, {record.seconds:.2f} s: return "
                f"{record.mean_return:.6g}, success {record.success:.3f}, variance "
                f"gain {record.variance_gain:.3g}"
            )

    def copy(self):
        """Return a copy that can be extended by itself."""
        return EpisodeLog(self.verbose, self.records.copy())

    def table(self):
        """Return a dict of arrays; the column of `mean_return` is called return."""
        names = [field.name for field in fields(EpisodeRecord)]
        return {
            "return" if name == "mean_return" else name: np.array(
                [getattr(record, name) for record in self.records]
            )
            for name in names
        }


def piece_length(n_episodes, n_pieces, max_steps):
    """Return the episodes of a piece, to have at least a number of pieces."""
    longest = max(1, STEPS_IN_PIECE // max_steps)
    piece = max(1, min(longest, n_episodes // n_pieces))
    return max(piece, -(-n_episodes // MOST_PIECES))


def run_episodes(problem, opened, space, n_episodes, piece, log, tell):
    """Train on a number of episodes.

    Parameters
    ----------
    problem : compiled or Python problem
        The policy; changed in place.
    opened : compiled or Python sampler
        Where the episodes come from. When both are compiled the compiled loop runs,
        otherwise the batch door.
    space : EpisodeSpace or a Python object with `max_steps` and `take_totals`
        What both share.
    n_episodes : int
        Number of episodes.
    piece : int
        Episodes of a piece.
    log : EpisodeLog
        Added to, once for a piece.
    tell : callable
        Called before each piece; returns what is to be called after it, which returns
        whether to stop.

    Raises
    ------
    Diverged
        When a step was not finite.
    """
    batch = np.zeros(1, dtype=POINT)
    loop = run if isinstance(opened, Sampler) else run_batches
    begin = perf_counter() - log.last.seconds
    n_left = n_episodes
    while n_left > 0:
        is_enough = tell()
        size = min(piece, n_left)
        sums = np.zeros(len(SUMS))
        with np.errstate(over="ignore", invalid="ignore"):
            n_done = loop(problem, opened, size, batch, sums)
        if n_done < size:
            raise Diverged(log.last.episodes + n_done)
        n_left -= size
        log.add(_record(sums, space.take_totals(), size, log.last, begin))
        if is_enough():
            break


def _record(sums, totals, size, last, begin):
    loss, norm2, _, weight, weight2, _ = sums
    # Divided by the sum of the weights, not by their number: a mean of returns must lie
    # between the returns.
    return EpisodeRecord(
        episodes=last.episodes + size,
        steps=last.steps + int(totals["steps"]),
        seconds=perf_counter() - begin,
        mean_return=-loss / weight if weight > 0 else np.nan,
        success=totals["weighted_success"] / weight if weight > 0 else np.nan,
        cut=totals["n_cut"] / size,
        effective_sample_size=weight**2 / weight2 if weight2 > 0 else 0.0,
        variance_gain=totals["norm2_target"] / norm2 if norm2 > 0 else 1.0,
    )
