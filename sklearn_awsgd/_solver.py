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
        "phase",
        "draws",
        "seconds",
        "objective",
        "variance_gain",
        "effective_sample_size",
        "duality_gap",
        "validation_score",
    )
    SAMPLING_COLUMNS = ("problem", "draws", "stratum", "probability")

    def copy(self):
        """Return a copy that can be extended by itself."""
        return type(self)(self.pieces.copy(), self.sampling.copy())

    def add_sampling(self, label, n_draws, sampler):
        """Record what a compiled sampler has learned after some draws."""
        self.sampling.append((label, n_draws, sampler.stratum_probabilities()))

    def extend(self, others):
        """Append the histories of runs, each of one problem, that came after this."""
        # Where each problem was.
        ends = {label: (n, s) for label, _, n, s, *_ in self.pieces}
        for other in others:
            for label, phase, n, s, *rest in other.pieces:
                draws, seconds = ends.get(label, (0, 0.0))
                self.pieces.append((label, phase, n + draws, s + seconds, *rest))
            for label, n, *rest in other.sampling:
                self.sampling.append((label, n + ends.get(label, (0, 0.0))[0], *rest))

    def count_exact_passes(self, n_rows):
        """Let exact passes count as draws, for all records from their own on."""
        n_exact = 0
        for k, (label, phase, n, *rest) in enumerate(self.pieces):
            n_exact += phase == "exact"
            self.pieces[k] = (label, phase, n + n_exact * n_rows, *rest)

    def seconds(self):
        """Return the seconds until the last record."""
        return self.pieces[-1][3] if self.pieces else 0.0

    def add_pass(self, label, n_draws, seconds, objective, gap, verbose):
        """Record an exact pass over the rows."""
        sampled = (np.nan, np.nan)
        self.pieces.append(
            (label, "exact", n_draws, seconds, objective, *sampled, gap, np.nan)
        )
        if verbose:
            print(
                f"problem {label}, exact pass: objective {objective:.10g}, "
                f"duality gap {gap:.3g}"
            )

    def pieces_table(self):
        """Return objective and sampling statistics as a dict of arrays."""
        return _columns(self.PIECE_COLUMNS, self.pieces)

    def sampling_table(self):
        """Return the sampling probabilities that are not zero as a dict of arrays."""
        rows = [
            (label, n_draws, stratum, probability)
            for label, n_draws, probabilities in self.sampling
            for stratum, probability in enumerate(probabilities.tolist())
            if probability > 0
        ]
        return _columns(self.SAMPLING_COLUMNS, rows)


def _columns(names, rows):
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return dict(zip(names, map(np.asarray, columns), strict=True))


def never(objective):
    """Return that it is not time to stop."""
    return False


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
        self.last_score = np.nan

    def __call__(self, objective):
        """Take in the objective of a pass; return whether to stop."""
        if self.tol is None:
            return False
        first = np.isinf(self.best)
        progress = first or objective < self.best - self.tol * abs(self.best)
        self.n_stalled = 0 if progress else self.n_stalled + 1
        self.best = min(self.best, objective)
        return self.n_stalled >= self.n_iter_no_change


class AdaptiveRate:
    """Divide the step size by five where another rule would stop.

    Parameters
    ----------
    rule : callable
        A stopping rule with a count `n_stalled`.
    problem : compiled Problem
        Its `eta0` is lowered, until it is less than 1e-6.
    """

    def __init__(self, rule, problem):
        self.rule = rule
        self.problem = problem

    def __call__(self, objective):
        """Take in the objective of a pass; return whether to stop."""
        if not self.rule(objective):
            return False
        if self.problem.eta0 < 1e-6:
            return True
        self.problem.eta0 /= 5
        self.rule.n_stalled = 0
        return False

    @property
    def last_score(self):
        """Return the score of the last pass, NaN without validation data."""
        return self.rule.last_score


class ValidationStop:
    """Stop when the score on held-out data has not risen for some passes in a row.

    Parameters
    ----------
    tol : float or None
        What a score must rise by, above the best so far, to count.
    n_iter_no_change : int
        Number of passes without a rise to stop after.
    score : callable
        Returns the score of the current parameters; higher is better.
    parameters : list of ndarray
        The parameters, of which the best are kept.
    """

    def __init__(self, tol, n_iter_no_change, score, parameters):
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.score = score
        self.parameters = parameters
        self.best_score = self.best_counted = -np.inf
        self.best_parameters = None
        self.n_stalled = 0
        self.last_score = np.nan

    def __call__(self, objective):
        """Score the parameters of a pass; return whether to stop."""
        self.last_score = score = self.score()
        # Of equal scores the latest: it has seen more.
        if score >= self.best_score:
            self.best_score = score
            self.best_parameters = [array.copy() for array in self.parameters]
        if score > self.best_counted + (self.tol or 0.0):
            self.best_counted = score
            self.n_stalled = 0
        else:
            self.n_stalled += 1
        return self.tol is not None and self.n_stalled >= self.n_iter_no_change

    def restore_best(self):
        """Give the parameters the values that scored best."""
        if self.best_parameters is not None:
            for array, best in zip(self.parameters, self.best_parameters, strict=True):
                array[:] = best


@dataclass
class Outcome:
    """How a run ended."""

    n_iter: int = 0
    n_draws: int = 0
    converged: bool = False
    variance_gain: float = 1.0
    effective_sample_size: float = 0.0
    duality_gap: float = np.inf


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
    deadline=np.inf,
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
    deadline : float, default=inf
        Value of ``perf_counter`` at which to stop.

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
    while n_iter < max_iter and not converged and perf_counter() <= deadline:
        pass_sums[:] = 0
        n_in_pass = 0
        for piece in _pieces(pass_length, first=n_iter == 0):
            sums = np.zeros(len(SUMS))
            n_done = run(problem, sampler, piece, batch, sums, draw_counts)
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                penalty = problem.penalty()
            if n_done < piece or not np.isfinite(penalty):
                raise ValueError(
                    "Floating-point overflow: the steps diverged after "
                    f"{n_draws + n_done} draws. Scale the features with StandardScaler "
                    "or MinMaxScaler, lower eta0, or use learning_rate='adagrad'."
                )
            n_draws += piece
            n_in_pass += piece
            pass_sums += sums
            history.pieces.append(
                (
                    label,
                    "sampling",
                    n_draws,
                    perf_counter() - started,
                    objective_scale * (sums[0] / piece + penalty),
                    _variance_gain(sums),
                    _effective_sample_size(sums),
                    np.nan,
                    np.nan,
                )
            )
            history.add_sampling(label, n_draws, sampler)
            if perf_counter() > deadline:
                break
        n_iter += 1
        objective = objective_scale * (pass_sums[0] / n_in_pass + penalty)
        if verbose:
            print(
                f"problem {label}, pass {n_iter}: objective {objective:.6g}, "
                f"variance gain {_variance_gain(pass_sums):.3g}"
            )
        converged = should_stop(objective)
        if should_stop is not never:
            history.pieces[-1] = (*history.pieces[-1][:-1], should_stop.last_score)
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
    return sums[3] ** 2 / sums[4] if sums[4] > 0 else 0.0
