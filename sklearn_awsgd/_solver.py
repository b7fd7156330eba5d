"""Runs of the compiled loop: pieces, stopping, history.

A piece is one call of :func:`sklearn_awsgd._kernels._loop.run`, at most a pass over the
rows or a million draws. Between pieces everything is Python: history, stopping,
messages and Ctrl-C.
"""

from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from sklearn_awsgd._kernels._loop import POINT, SUMS, run

LONGEST_PIECE = 1_000_000
# The sampling distribution learns most of what it will know in the first pass, so that
# pass is recorded in this many pieces.
FIRST_PASS_PIECES = 8


@dataclass
class History:
    """What happened, piece by piece, ready for ``pandas.DataFrame``."""

    pieces: list = field(default_factory=list)
    sampling: list = field(default_factory=list)

    PIECE_COLUMNS = (
        "problem",
        "draws",
        "seconds",
        "objective",
        "variance_gain",
        "effective_sample_size",
    )
    SAMPLING_COLUMNS = ("problem", "draws", "stratum", "probability")

    def copy(self):
        """Return a copy that can be extended by itself."""
        return type(self)(self.pieces.copy(), self.sampling.copy())

    def add_sampling(self, label, n_draws, sampler):
        """Record what a compiled sampler has learned after some draws."""
        self.sampling += [
            (label, n_draws, stratum, probability)
            for stratum, probability in enumerate(sampler.stratum_probabilities())
        ]

    def extend(self, others):
        """Append the histories of runs that came after this one."""
        draws = max((row[1] for row in self.pieces[-1:]), default=0)
        seconds = max((row[2] for row in self.pieces[-1:]), default=0.0)
        for other in others:
            self.pieces += [
                (label, n + draws, s + seconds, *rest)
                for label, n, s, *rest in other.pieces
            ]
            self.sampling += [
                (label, n + draws, *rest) for label, n, *rest in other.sampling
            ]

    def pieces_table(self):
        """Return objective and sampling statistics as a dict of arrays."""
        return _columns(self.PIECE_COLUMNS, self.pieces)

    def sampling_table(self):
        """Return the sampling probabilities as a dict of arrays."""
        return _columns(self.SAMPLING_COLUMNS, self.sampling)


def _columns(names, rows):
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return dict(zip(names, map(np.asarray, columns), strict=True))


class StopRule:
    """Stop when the objective has not fallen enough for some passes in a row.

    Parameters
    ----------
    tol : float or None
        A pass counts as progress when it lowers the best objective so far by more than
        this fraction; None never stops.
    n_iter_no_change : int
        Number of passes without progress to stop after.
    """

    def __init__(self, tol, n_iter_no_change):
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.best = np.inf
        self.n_stalled = 0

    def __call__(self, objective):
        """Take in the objective of a pass; return whether to stop."""
        if self.tol is None:
            return False
        progress = objective < self.best - self.tol * abs(self.best)
        self.n_stalled = 0 if progress else self.n_stalled + 1
        self.best = min(self.best, objective)
        return self.n_stalled >= self.n_iter_no_change


@dataclass
class Outcome:
    """How a run ended."""

    n_iter: int
    n_draws: int
    converged: bool
    variance_gain: float
    effective_sample_size: float


def solve(
    problem,
    sampler,
    *,
    pass_length,
    max_iter,
    batch_size,
    should_stop,
    objective_scale=1.0,
    history=None,
    label=0,
    draw_counts=None,
    verbose=0,
):
    """Run passes of AW-SGD until a rule says stop.

    Parameters
    ----------
    problem, sampler : compiled Problem and Sampler
        Changed in place.
    pass_length : int
        Draws in a pass.
    max_iter : int
        Largest number of passes.
    batch_size : int
        Draws that share one state of the sampler.
    should_stop : callable
        Called with the objective of each pass, as estimated from its own draws.
    objective_scale : float, default=1.0
        Factor that takes E_P[loss] + penalty to the objective users know.
    history : History, default=None
        Added to.
    label : int, default=0
        Number of the problem in the history.
    draw_counts : ndarray of shape (n_rows,), default=None
        Draws of each row, added to.
    verbose : int, default=0
        Whether to print a line for each pass.

    Returns
    -------
    outcome : Outcome
        How the run ended.

    Raises
    ------
    ValueError
        When a step overflows.
    """
    history = History() if history is None else history
    batch = np.zeros(max(batch_size, sampler.patience), dtype=POINT)
    started = perf_counter()
    converged, n_draws, n_iter = False, 0, 0
    pass_sums = np.zeros(len(SUMS))
    while n_iter < max_iter and not converged:
        pass_sums[:] = 0
        for piece in _pieces(pass_length, first=n_iter == 0):
            sums = np.zeros(len(SUMS))
            n_done = run(problem, sampler, piece, batch, sums, draw_counts)
            if n_done < piece:
                raise ValueError(
                    "Floating-point overflow: the steps diverged after "
                    f"{n_draws + n_done} draws. Scale the features with StandardScaler "
                    "or MinMaxScaler, lower eta0, or use learning_rate='adagrad'."
                )
            n_draws += piece
            pass_sums += sums
            history.pieces.append(
                (
                    label,
                    n_draws,
                    perf_counter() - started,
                    objective_scale * (sums[0] / piece + problem.penalty()),
                    _variance_gain(sums),
                    _effective_sample_size(sums),
                )
            )
            history.add_sampling(label, n_draws, sampler)
        n_iter += 1
        objective = objective_scale * (pass_sums[0] / pass_length + problem.penalty())
        if verbose:
            print(
                f"problem {label}, pass {n_iter}: objective {objective:.6g}, "
                f"variance gain {_variance_gain(pass_sums):.3g}"
            )
        converged = should_stop(objective)
    return Outcome(
        n_iter,
        n_draws,
        converged,
        _variance_gain(pass_sums),
        _effective_sample_size(pass_sums),
    )


def _pieces(pass_length, first):
    """Return the lengths of the pieces of a pass."""
    longest = min(pass_length, LONGEST_PIECE)
    if first:
        longest = min(longest, -(-pass_length // FIRST_PASS_PIECES))
    n_full, rest = divmod(pass_length, longest)
    return [longest] * n_full + [rest] * (rest > 0)


def _variance_gain(sums):
    """Second moment of uniform draws over that of ours, from the same draws."""
    return sums[2] / sums[1] if sums[1] > 0 else 1.0


def _effective_sample_size(sums):
    return sums[3] ** 2 / sums[4]
