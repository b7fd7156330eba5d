"""Runs of the loop: pieces, stopping, records.

A piece is one call of the loop, at most a pass over the rows or a million draws.
Between pieces everything is Python: records, stopping, messages and Ctrl-C.

The loop exists twice. :func:`sklearn_awsgd._kernels._loop.run` is compiled, for a
problem and a sampler that are. :func:`run_batches` is the batch door: the same three
steps for whole batches of points, for a problem or a sampler written in Python.
"""

from dataclasses import dataclass

import numpy as np

from sklearn_awsgd._kernels import _loop
from sklearn_awsgd._solver.stopping import StopRule

# Draws of a call of the loop: what Ctrl-C may have to wait for.
LONGEST_PIECE = 1_000_000
# The sampling distribution learns most of what it will know in the first pass, so that
# pass is recorded in this many pieces; but a record takes as long as 200 draws do.
FIRST_PASS_PIECES, SHORTEST_PIECE = 8, 200


class Diverged(ArithmeticError):
    """A step overflowed; what is left of the parameters is not to be trusted.

    Parameters
    ----------
    n_draws : int
        Draws until then.
    """

    def __init__(self, n_draws):
        super().__init__(f"the steps diverged after {n_draws} draws")
        self.n_draws = n_draws


@dataclass
class Outcome:
    """How a run ended.

    Attributes
    ----------
    n_iter, n_draws : int
        Passes and draws made.
    converged : bool
        Whether the stopping rule ended it.
    variance_gain, effective_sample_size : float
        Of the draws of the last pass; NaN and 0 if nothing was drawn.
    mean_cost : float
        Likewise, of a draw.
    duality_gap : float
        Certified bound of the suboptimality at the end.
    """

    n_iter: int = 0
    n_draws: int = 0
    converged: bool = False
    variance_gain: float = np.nan
    effective_sample_size: float = 0.0
    mean_cost: float = 1.0
    duality_gap: float = np.inf


def solve(
    problem,
    sampler,
    *,
    pass_length,
    budget,
    log,
    batch_size=1,
    should_stop=None,
    draw_counts=None,
    costs=None,
):
    """Run passes of AW-SGD until a rule says stop.

    Parameters
    ----------
    problem, sampler : compiled Problem and Sampler, or Python objects that do the same
        Changed in place. See "How to add a sampler" in the developer's guide for what
        they must have.
    pass_length : int
        Draws in a pass.
    budget : Budget
        Passes and time; its tolerance is the rule's matter.
    log : Log
        Added to.
    batch_size : int, default=1
        Draws that share one state of the sampler.
    should_stop : callable, default=None
        Rule of :mod:`sklearn_awsgd._solver.stopping`; None never stops.
    draw_counts : ndarray of shape (n_rows,), default=None
        Draws of each row, added to.
    costs : Costs, default=None
        What draws cost, where that is known.

    Returns
    -------
    outcome : Outcome
        How the run ended.

    Raises
    ------
    Diverged
        When a step overflows.
    """
    should_stop = StopRule() if should_stop is None else should_stop
    batch_size = max(batch_size, sampler.patience)
    run = choose_loop(problem, sampler)
    batch = np.zeros(batch_size, dtype=_loop.POINT)
    outcome = Outcome()
    while (
        outcome.n_iter < budget.max_passes
        and not outcome.converged
        and not budget.is_late
    ):
        log.begin_pass()
        pass_sums = np.zeros(len(_loop.SUMS))
        n_before = outcome.n_draws
        for piece in _pieces(pass_length, first=outcome.n_iter == 0):
            sums = np.zeros(len(_loop.SUMS))
            n_done = run(problem, sampler, piece, batch, sums, draw_counts, costs)
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                penalty = problem.penalty()
            if n_done < piece or not np.isfinite(penalty):
                raise Diverged(outcome.n_draws + n_done)
            outcome.n_draws += piece
            pass_sums += sums
            log.add_piece(
                outcome.n_draws,
                sums[0] / piece + penalty,
                cost=sums[5],
                variance_gain=_variance_gain(sums),
                effective_sample_size=_effective_sample_size(sums),
            )
            log.add_sampling(outcome.n_draws, sampler.stratum_probabilities())
            if budget.is_late:
                break
        outcome.n_iter += 1
        outcome.variance_gain = _variance_gain(pass_sums)
        outcome.effective_sample_size = _effective_sample_size(pass_sums)
        outcome.mean_cost = pass_sums[5] / (outcome.n_draws - n_before)
        objective = log.scale * (pass_sums[0] / (outcome.n_draws - n_before) + penalty)
        log.end_pass(objective, outcome.variance_gain)
        outcome.converged = should_stop(objective)
        log.records[-1].validation_score = should_stop.last_score
    return outcome


def choose_loop(problem, sampler):
    """Return the loop for a problem and a sampler: the compiled one if both are.

    What goes through a matrix in blocks calls it itself, block by block.
    """
    if hasattr(sampler, "run"):
        return lambda problem, sampler, *arguments: sampler.run(problem, *arguments)
    compiled = isinstance(problem, _loop.Problem) and isinstance(sampler, _loop.Sampler)
    return _loop.run if compiled else run_batches


def run_batches(problem, sampler, n_draws, batch, sums, draw_counts=None, costs=None):
    """Run AW-SGD for a number of draws, batch by batch: the batch door.

    The arguments and the result are those of
    :func:`sklearn_awsgd._kernels._loop.run`, but `problem` and `sampler` may be Python
    objects, with ``problem.step_points(points, weights)``, which sets ``loss`` and
    ``norm2`` of the points, and ``sampler.draw_points(n_points)`` and
    ``sampler.observe_points(points)``.
    """
    done = 0
    while done < n_draws:
        points = sampler.draw_points(min(len(batch), n_draws - done))
        if costs is not None:
            costs.charge(points)
        weights = unbiasing_weights(points)
        problem.step_points(points, weights)
        norm2 = points["norm2"]
        with np.errstate(over="ignore", invalid="ignore"):
            sums += (
                weights @ points["loss"],
                norm2.sum(),
                # q is infinite outside the support of P, where d is zero.
                norm2 @ np.where(norm2 > 0, points["q"], 0.0),
                weights.sum(),
                weights @ weights,
                points["cost"].sum(),
            )
        if draw_counts is not None:
            np.add.at(draw_counts, points["i"], 1)
        if not np.isfinite(sums[:2]).all():
            break
        sampler.observe_points(points)
        done += len(points)
    return done


def unbiasing_weights(points):
    """Return 1/q of drawn points: the only place outside the compiled loop."""
    return 1 / points["q"]


def _pieces(pass_length, first):
    """Return the lengths of the pieces of a pass."""
    longest = min(pass_length, LONGEST_PIECE)
    if first:
        piece = -(-pass_length // FIRST_PASS_PIECES)
        longest = min(longest, max(piece, SHORTEST_PIECE))
    n_full, rest = divmod(pass_length, longest)
    return [longest] * n_full + [rest] * (rest > 0)


def _variance_gain(sums):
    """Second moment of uniform draws over that of ours, from the same draws."""
    return sums[2] / sums[1] if sums[1] > 0 else 1.0


def _effective_sample_size(sums):
    return sums[3] ** 2 / sums[4] if sums[4] > 0 else 0.0
