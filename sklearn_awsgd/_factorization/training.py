"""Passes of draws over the entries of a matrix, with a learned sampler or without."""

import numpy as np

from sklearn_awsgd._factorization.model import EntryHistory
from sklearn_awsgd._factorization.row_column import RowColumnSampler
from sklearn_awsgd._kernels._entries import ShuffledEntries
from sklearn_awsgd._solver import StopRule, solve

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


def run_passes(problem, data, setting, generator, history, *, trying, **settings):
    """Run passes; return the outcome and the compiled sampler of the last one.

    Parameters
    ----------
    problem : FactorizationProblem
        Changed in place.
    data : EntryData
        The entries.
    setting : RowColumnSampler or UniformSampler
        Keeps what is learned.
    generator : numpy.random.BitGenerator
        Random stream.
    history : EntryHistory
        Added to.
    trying : bool
        Whether to go over to shuffled passes where learning does not pay.
    **settings : dict
        Of :func:`sklearn_awsgd._solver.solve`.

    Returns
    -------
    outcome : Outcome
        How the passes ended; a trial is not one of them.
    kernel : compiled Sampler
        The sampler.
    """
    places = data.places()
    uniform = ShuffledEntries(generator, places)
    learned = isinstance(setting, RowColumnSampler)
    kernel = setting._kernel(generator, places) if learned else uniform
    if trying:
        learned = _learning_pays(problem, kernel, data, history, settings)
        setting._store(kernel)
        kernel = kernel if learned else uniform
    passes = EntryHistory()
    outcome = solve(problem, kernel, history=passes, **settings)
    history.extend([passes])
    if learned:
        setting._store(kernel)
    return outcome, kernel


def _learning_pays(problem, kernel, data, history, settings):
    """Try the learned sampler; return whether it gains more than shuffled passes.

    When it does not, the factors are as they were before.
    """
    before = {name: array.copy() for name, array in problem.state.items()}
    whole = settings["pass_length"]
    n_draws = min(whole, max(int(TRIAL_SHARE * whole), TRIAL_DRAWS * sum(data.X.shape)))
    # The gain of the second half counts: the first has had little to learn from.
    trial = {
        "pass_length": -(-n_draws // 2),
        "max_iter": 2,
        "should_stop": StopRule(None, 1),
    }
    outcome = solve(problem, kernel, history=history, **settings | trial)
    if outcome.variance_gain >= SHUFFLED_GAIN:
        return True
    for name, array in problem.state.items():
        array[:] = before[name]
    return False
