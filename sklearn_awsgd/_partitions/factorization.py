"""Factorizations of matrices whose rows are in partitions.

Some rows are gathered and trained as any others, which finds the columns roughly. Then
rows and columns are solved for in turn: each partition solves for its own rows, which
stay nowhere, and what the step of the columns needs of them is added up.
"""

import copy
from functools import partial

import numpy as np
from sklearn.utils import check_random_state

from sklearn_awsgd._factorization.columns import EquationSolver
from sklearn_awsgd._factorization.entries import check_entries
from sklearn_awsgd._factorization.finish import alternate
from sklearn_awsgd._factorization.fitting import train_with_callbacks
from sklearn_awsgd._linear.blocks import stack_rows
from sklearn_awsgd._partitions import entries
from sklearn_awsgd._partitions.entries import EntryFacts, Reading
from sklearn_awsgd._partitions.linear import (
    check_settings,
    merge_alike,
    set_n_features,
)
from sklearn_awsgd._partitions.rows import add_up
from sklearn_awsgd._validation import unchanged_on_failure

# Rows that are gathered, and the most numbers in them, as they travel.
MOST_DRAWN = 10_000
MOST_NUMBERS = 8_000_000
# Settings that need all rows in one place, and the only value they may have here.
UNSUPPORTED_STEPS = {"learning_rate": "auto", "step": "proximal"}


def factorize_partitions(estimator, run):
    """Fit a factorization to the rows of all partitions.

    Parameters
    ----------
    estimator : AWSGDMatrixFactorization
        Changed in place, as by its own ``fit``.
    run : callable
        Calls a function on every :class:`MatrixPartition`, as for `fit_partitions`.

    Returns
    -------
    estimator : object
        The fitted estimator.
    """
    with unchanged_on_failure(estimator):
        check_settings(estimator, UNSUPPORTED_STEPS)
        reading = Reading(estimator.missing_values, estimator.unstored, estimator.loss)
        facts = merge_facts(run(entries.describe, reading))
        set_n_features(estimator, facts)
        drawn = draw_data(run, reading, facts, estimator.random_state)
        estimator._begin(Survey(run, reading, facts, drawn.X))
        finish = Finish(estimator, run, reading, facts)
        # Callbacks see the rows that were drawn.
        train_with_callbacks(estimator, drawn, drawn.X, finish)
        estimator._set_error(finish.mean_loss)
    return estimator


def merge_facts(parts):
    """Return the EntryFacts of all rows, from those of the partitions."""
    present = merge_alike(parts)
    first, mass = present[0], sum(part.mass for part in present)
    if mass == 0:
        raise ValueError(
            "X has no observed entry with a positive weight; at least one is needed."
        )
    if not np.isfinite(mass):
        raise ValueError(
            "entry_weight is too large to add up; divide all weights by the largest."
        )
    return EntryFacts(
        number=0,
        n_rows=sum(part.n_rows for part in present),
        n_features=first.n_features,
        n_entries=sum(part.n_entries for part in present),
        n_stored=sum(part.n_stored for part in present),
        dtype=np.result_type(*(part.dtype for part in present)),
        is_sparse=first.is_sparse,
        is_full=all(part.is_full for part in present),
        mass=mass,
        mean=sum(part.mass / mass * part.mean for part in present),
    )


def draw_data(run, reading, facts, random_state):
    """Return EntryData of rows from all partitions."""
    per_row = max(facts.n_stored / facts.n_rows, 1.0)
    n_rows = min(MOST_DRAWN, MOST_NUMBERS / per_row)
    share = min(n_rows / facts.n_rows, 1.0)
    start = copy.deepcopy(check_random_state(random_state)).random_sample()
    drawn = [p for p in run(entries.draw_rows, share, start) if p is not None]
    X, weights = zip(*drawn, strict=True)
    return check_entries(
        stack_rows(X).astype(facts.dtype, copy=False),
        None if weights[0] is None else stack_rows(weights),
        reading.missing_values,
        reading.unstored,
        reading.loss,
    )


class Survey:
    """What a factorization has to know of all entries before it begins.

    `X` are the rows that were drawn.
    """

    costs = None

    def __init__(self, run, reading, facts, X):
        self._run, self._reading, self._facts, self.X = run, reading, facts, X

    def mean(self):
        """Return the weighted mean of the entries."""
        return self._facts.mean

    def mean_distance(self, center):
        """Return the weighted mean distance of the entries from a number."""
        parts = self._run(entries.distances, self._reading, center)
        return add_up(parts)[0] / self._facts.mass


class Finish:
    """Exact solutions of all rows and columns in turn, with rows in partitions.

    Parameters
    ----------
    estimator : AWSGDMatrixFactorization
        Whose columns are changed.
    run, reading, facts : callable, Reading, EntryFacts
        The partitions, and what is known of them.

    Attributes
    ----------
    mean_loss : float
        Less that of the best predictions, at the end.
    """

    def __init__(self, estimator, run, reading, facts):
        self._estimator, self._facts = estimator, facts
        self._run = partial(run, entries.equations, reading)

    def _visit(self, columns, scales):
        """Have the partitions solve for their rows."""
        (equations,) = add_up(self._run(columns, scales))
        return equations

    def __call__(self, budget, log):
        model, columns = self._estimator, self._estimator._columns
        k = model._n_factors
        is_common = self._facts.is_full and model.loss == "squared_error"
        solver = EquationSolver(
            self._visit,
            None,
            np.column_stack([columns["columns"][:, :k], columns["column_bias"]]),
            model._scales(is_common),
        )
        n_iter, converged = alternate(solver, budget, log, self._facts.n_entries)
        # Nothing is known of a column without entries, also not its first factors.
        solver.columns[solver.column_masses() == 0] = 0
        columns["columns"][:, :k] = solver.columns[:, :-1]
        columns["column_bias"][:] = solver.columns[:, -1]
        self.mean_loss = solver.equations.deviance / self._facts.mass
        return n_iter, converged
