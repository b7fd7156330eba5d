"""A linear model with an l1 penalty on some columns of rows in partitions."""

from dataclasses import replace
from functools import cached_property
from uuid import uuid4

import numpy as np
from scipy import sparse

from sklearn_awsgd._linear.blocks import stack_rows
from sklearn_awsgd._linear.columns import ColumnModel, spread
from sklearn_awsgd._linear.curvature import MOST_PARAMETERS
from sklearn_awsgd._linear.objectives import LinearObjective
from sklearn_awsgd._linear.phases.descent import descend
from sklearn_awsgd._linear.phases.proximal import ProximalDirection
from sklearn_awsgd._partitions import rows, sums
from sklearn_awsgd._solver.records import Budget

# Passes over the columns of one working set.
MOST_PASSES = 50


class CollectedColumns:
    """Columns that are collected from all partitions, to be in one place.

    Parameters
    ----------
    run : callable
        As for `fit_partitions`.
    problem : ProblemFacts
        Whose partitions without weight are left out.
    """

    def __init__(self, run, problem):
        self._run, self._problem = run, problem

    def take(self, which):
        """Return a matrix whose rows are columns, and which of these are meant."""
        parts = self._run(rows.columns, self._problem, which)
        X = stack_rows([part for part in parts if part is not None])
        columns = X.tocsc().T if sparse.issparse(X) else np.ascontiguousarray(X.T)
        return columns, np.arange(len(which))


class CertifiedSteps(ProximalDirection):
    """Proximal Newton directions that end by the duality gap alone.

    An estimate is reached much earlier, but then the gap over all columns stays where
    it is.
    """

    def propose(self, here, trail):
        return replace(super().propose(here, trail), bound=here.gap)


class PartitionedColumnModel:
    """What :class:`~sklearn_awsgd._linear.columns.ColumnModel` has, on partitions.

    Columns of few numbers travel, and such a model is made of them. On more it is that
    of narrow rows, minimised by the descent that these have: its sums come from the
    same columns of all partitions.

    Parameters
    ----------
    task : PartitionedLinearTask
        What to minimise.
    width : float
        Over which kinks are rounded.
    """

    # Where columns do not travel their curvature is a matrix.
    most_columns = MOST_PARAMETERS - 1

    def __init__(self, task, width):
        self.task, self.width = task, width
        self._rng = np.random.Generator(task.generator)

    @cached_property
    def _counts(self):
        """Numbers in each column."""
        (counts,) = rows.add_up(self.task.run(rows.column_counts, self.task.problem))
        return counts

    @cached_property
    def _collected(self):
        """The model in one place, whose targets have travelled."""
        task = self.task
        parts = task.run(rows.targets, task.problem)
        y, mass = zip(*(part for part in parts if part is not None), strict=True)
        return ColumnModel(
            CollectedColumns(task.run, task.problem),
            task.loss.rounded(self.width) if self.width > 0 else task.loss,
            np.concatenate(y),
            np.concatenate(mass),
            task.penalty.l2,
            task.fit_intercept,
        )

    def minimize(self, start, which, l1, bound, slack=0.0):
        """Minimise over some columns and the intercept.

        Parameters and results are those of ``ColumnModel.minimize``.
        """
        n_numbers = int(self._counts[which].sum())
        if n_numbers + 2 * self.task.n_samples <= sums.MOST_NUMBERS:
            return self._collected.minimize(start, which, l1, bound, slack)
        if len(which) > self.most_columns:
            raise ValueError(
                f"On so many rows in partitions an l1 penalty may leave at most "
                f"{self.most_columns} coefficients that are not zero, got {len(which)} "
                f"with alpha={self.task.penalty.l1 + self.task.penalty.l2:.3g}; use a "
                "larger alpha, or penalty='l2'."
            )
        return self._descend(start, which, n_numbers, l1, bound)

    def predictions(self, v):
        """Return None: nobody has the predictions of all partitions."""

    def _descend(self, start, which, n_numbers, l1, bound):
        """Minimise by passes over these columns of all partitions."""
        task = self.task
        drawn = task.drawn()
        X, norms2 = rows.take_columns(drawn.data.X, which)
        drawn = replace(drawn, data=replace(drawn.data, X=X, norms2=norms2))
        objective = LinearObjective(
            sums.PartitionedSums(
                task.run,
                replace(task.problem, name=uuid4().hex, columns=which),
                replace(task.facts, n_features=len(which), n_numbers=n_numbers),
                self.width,
                drawn.make_sums(self.width),
            ),
            task.penalty.l2,
            task.fit_intercept,
            sharp=task.is_smooth,
            alpha_l1=l1,
        )
        tol = bound / max(abs(start.value), 1e-300)
        report = descend(
            CertifiedSteps(objective, tol, self._rng, l1),
            np.append(start.v[which], start.v[-1]),
            Budget(max_passes=MOST_PASSES),
            lambda there, n_passes: None,
        )
        return spread(report.end.v, which, len(start.v))
