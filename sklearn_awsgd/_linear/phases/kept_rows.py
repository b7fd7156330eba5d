"""The rows of a source that are in memory: a step towards the optimum of all rows.

They are evenly spread, so their optimum is near that of all rows where they are many
for each parameter. With them a fit of 1,000,000 x 100 from a folder, the smaller set of
``benchmarks/bench_time_aware.py --only large``, takes three exact passes instead of
five.
"""

from dataclasses import replace

import numpy as np

from sklearn_awsgd._linear.phases.kinks import descend_over_kinks
from sklearn_awsgd._solver.records import Log

# Rows of each class for each parameter, at least: with fewer, draws have come closer.
ROWS_PER_COLUMN = 10
# Relative suboptimality to reach on them.
KEPT_TOL = 1e-3


def descend_on_kept_rows(task, budget):
    """Go from the parameters of a task, which are changed, to the optimum of few rows.

    Nothing is recorded: what is exact for these rows is not so for all.
    """
    kept = task.data.X.kept
    few = task.on_rows(kept.rows, kept.places)
    sizes = np.bincount(few.target.groups(), minlength=few.target.n_groups)
    if sizes.min() < ROWS_PER_COLUMN * (task.n_features + 1):
        return
    if few.data.mass is not None:
        mass = few.data.mass
        few = replace(few, data=replace(few.data, mass=mass / mass.sum()))
    budget = replace(budget, tol=max(budget.tol or 0.0, KEPT_TOL))
    report = descend_over_kinks(few, 0, budget, Log(task.number))
    task.set_parameters(report.end.v)
