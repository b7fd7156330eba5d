"""Which factorizations end with exact solutions: those that do not cost too much."""

from sklearn_awsgd._factorization.fetching import SourceEntries

# Draws alone need about 50 passes, solutions ten or so.
LARGEST_COST = 8
# Passes of draws that take as long as solving for all rows whose observed entries are
# squared, for each factor: measured on ratings with 5 to 40 factors.
PASSES_PER_FACTOR = 1 / 18
# Nanoseconds, measured with 5 to 120 factors on generated matrices of 700 x 400: a
# draw, and for each factor; of other solutions an entry in dense or in sparse products,
# for each squared factor, a system, for each cubed factor, and what a loss takes for
# each entry that is not the squared error: "log_loss", which takes longest.
DRAW, DRAW_FACTOR = 80, 0.5
DENSE_ENTRY, SPARSE_ENTRY, SYSTEM, NEWTON = 0.035, 0.3, 0.05, 120
# Solutions of one side that take no longer, 20 ms, are in nobody's way.
NO_TIME = 2e7
# Sums over the rows of a source that are kept for all columns: 512 MB.
LARGEST_SUMS = 1 << 26


def is_common(data, loss):
    """Return whether all rows have the same equations, and all columns."""
    return loss == "squared_error" and data.kind != "missing" and data.weights is None


def solving_pays(data, loss, n_factors, pass_length):
    """Return whether solutions take less time than the passes of draws they spare.

    Parameters
    ----------
    data : EntryData or SourceEntries
        The entries.
    loss : str
        The loss.
    n_factors : int
        Number of factors, with the bias.
    pass_length : int
        Draws of a pass.
    """
    if is_common(data, loss):
        return True
    from_source = isinstance(data, SourceEntries)
    if from_source and data.X.shape[1] * n_factors**2 / 2 > LARGEST_SUMS:
        return False
    n_systems, is_squared = sum(data.X.shape) / 2, loss == "squared_error"
    time_of_pass = (DRAW + DRAW_FACTOR * n_factors) * pass_length
    if is_squared and data.kind == "missing" and not from_source:
        cost = PASSES_PER_FACTOR * n_factors
        cost *= 1 + n_systems * n_factors / (3 * max(data.n_entries, 1))
        return cost <= max(LARGEST_COST, NO_TIME / time_of_pass)
    n_entries = n_cells = data.X.shape[0] * data.X.shape[1]
    # Zeros that are not stored need no time where they are squared, from memory.
    if data.kind == "missing" or (is_squared and not from_source):
        n_entries = data.n_stored
    per_square = min(SPARSE_ENTRY * n_entries, DENSE_ENTRY * n_cells)
    time = per_square * n_factors**2 + SYSTEM * n_factors**3 * n_systems
    if not is_squared:
        time += NEWTON * n_entries
    return time <= max(LARGEST_COST * time_of_pass, NO_TIME)
