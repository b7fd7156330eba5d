"""Passes of draws over the entries of a matrix, with a learned sampler or without."""

import numpy as np

from sklearn_awsgd._solver.records import Budget, Log
from sklearn_awsgd._solver.runs import solve
from sklearn_awsgd.samplers import UniformSampler

# "auto" keeps the learned sampler only when it gains more than this. On generated data
# of many kinds shuffled passes were better below a gain of 2 at equal draws, and below
# one of 3 to 4 at equal time.
SHUFFLED_GAIN = 3.0
# The share of a pass after which "auto" decides, and the least number of draws for each
# row and column.
TRIAL_SHARE = 1 / 8
TRIAL_DRAWS = 20
# The compiled loops go over eight factors at a time, a line of the cache.
LANES = 8


def padded(factors):
    """Return factors with columns of zeros, as many as the compiled loops like.

    Steps leave them zero.
    """
    n_items, n_factors = factors.shape
    width = -(-n_factors // LANES) * LANES
    memory = np.zeros(n_items * width + LANES)
    # Each row begins with a line of the cache.
    first = -(memory.ctypes.data // memory.itemsize) % LANES
    result = memory[first : first + n_items * width].reshape(n_items, width)
    result[:, :n_factors] = factors
    return result


def run_passes(
    problem, data, sampler, generator, log, *, trying, n_threads=1, **settings
):
    """Run passes; return the outcome and the opened sampler of the last one.

    Parameters
    ----------
    problem : FactorizationProblem or SourceProblem
        Changed in place.
    data : EntryData or SourceEntries
        The entries.
    sampler : BaseSampler
        Keeps what is learned.
    generator : numpy.random.BitGenerator
        Random stream.
    log : Log
        Added to.
    trying : bool
        Whether to go over to shuffled passes where learning does not pay.
    n_threads : int, default=1
        Threads for shuffled passes.
    **settings : dict
        Of :func:`sklearn_awsgd._solver.runs.solve`.

    Returns
    -------
    outcome : Outcome
        How the passes ended; a trial is not one of them.
    opened : compiled Sampler, OpenedSampler or SourceDraws
        What drew.
    """
    draws = data.draws(
        generator, settings["pass_length"], settings["batch_size"], n_threads
    )
    with draws:
        settings["costs"] = draws.costs
        opened = draws.open(sampler)
        if trying:
            gain = _try_learning(problem, opened, data, log, settings)
            pays = gain >= SHUFFLED_GAIN
            sampler.keep(0, opened)
            if log.progress is not None and log.progress.verbose:
                choice = "learned draws" if pays else "shuffled passes, from the start"
                log.progress.say(
                    "trial of learned draws", f"variance gain {gain:.3g}", choice
                )
            if not pays:
                sampler = UniformSampler()
                opened = draws.open(sampler)
        passes = Log(log.problem, log.scale, log.progress, log.pass_cost)
        outcome = solve(problem, opened, log=passes, **settings)
    log.extend([passes])
    sampler.keep(0, opened)
    return outcome, opened


def _try_learning(problem, opened, data, log, settings):
    """Try the learned sampler; return its variance gain, for each second with costs.

    When shuffled passes gain more, the factors are as they were before.
    """
    before = {name: array.copy() for name, array in problem.state.items()}
    whole, shape = settings["pass_length"], data.X.shape
    n_draws = min(whole, max(int(TRIAL_SHARE * whole), TRIAL_DRAWS * sum(shape)))
    trial = Log(log.problem, log.scale, pass_cost=log.pass_cost)
    # The gain of the second half counts: the first has had little to learn from.
    outcome = solve(
        problem,
        opened,
        pass_length=-(-n_draws // 2),
        budget=Budget(max_passes=2),
        batch_size=settings["batch_size"],
        log=trial,
        costs=settings["costs"],
    )
    log.extend([trial])
    gain = outcome.variance_gain
    if data.costs is not None:
        gain *= data.mean_cost() / outcome.mean_cost
    if gain < SHUFFLED_GAIN:
        for name, array in problem.state.items():
            array[:] = before[name]
    return gain
