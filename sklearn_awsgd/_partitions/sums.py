"""Sums over the rows of all partitions, for the objectives of the exact passes."""

from functools import cached_property

import numpy as np

from sklearn_awsgd._linear.blocks import Blocks, stack_rows
from sklearn_awsgd._linear.softmax_sums import (
    ColumnSample,
    CurvatureSample,
    class_probabilities,
    split_classes,
)
from sklearn_awsgd._partitions import rows
from sklearn_awsgd._partitions.rows import add_up

# Most numbers in rows that are drawn, as they travel.
MOST_NUMBERS = 8_000_000


class PartitionedSums:
    """Sums over the rows of all partitions.

    What :class:`~sklearn_awsgd._linear.sums.LinearSums` has, from small messages. The
    partitions remember the curvatures at the last v, or compute them again, so that v
    is all that is said of them.

    Parameters
    ----------
    run : callable
        As for `fit_partitions`.
    problem, facts : ProblemFacts and Facts
        What the partitions and the rows are.
    width : float
        Over which kinks are rounded.
    drawn : LinearSums or SoftmaxSums
        Of the rows that were drawn first. They tell about what mass the rows of a
        sample are drawn from, which decides how many there are, and nothing else.
    """

    def __init__(self, run, problem, facts, width, drawn):
        self._run, self._arguments, self._drawn = run, (problem, width), drawn
        self.n_samples, self.n_columns = facts.n_rows, facts.n_features + 1
        self.n_nonzero = facts.n_numbers
        # How the next evaluation is to bring a Hessian along, and the one it brought.
        self._expected = self._brought = None

    def _sum(self, function, *arguments):
        return add_up(self._run(function, *self._arguments, *arguments))

    def evaluate(self, v):
        """Return sums of one pass over the rows, and v."""
        expected, self._expected = self._expected, None
        if expected is None:
            return *self._sum(rows.evaluate, v), v
        gradients, sums, *hessian = self._sum(
            rows.evaluate_with_hessian, v, *self._sample_of(v, *expected)
        )
        self._brought = v, expected[:2], hessian
        return gradients, sums, v

    def expect_hessian(self, floor, n_rows, rng):
        """Have the next evaluation bring the Hessian along, in the same messages."""
        self._expected = floor, n_rows, rng.random()

    def hessian(self, v, floor, n_rows, rng):
        """Return the upper triangle of a sampled Hessian, and its flops."""
        brought, self._brought = self._brought, None
        if brought is not None and brought[0] is v and brought[1] == (floor, n_rows):
            return brought[2]
        sample = self._sample_of(v, floor, n_rows, rng.random())
        return self._sum(rows.hessian, v, *sample)

    def _sample_of(self, v, floor, n_rows, start):
        """Return floor, rows to draw, their mass among all, and a random start."""
        if n_rows >= self.n_samples:
            return floor, None, None, start
        sizes = self._drawn.sizes(self._drawn.evaluate(v)[-1], floor)
        return floor, n_rows, sizes.sum(), start

    def hessian_diagonal(self, v, floor):
        """Return the diagonal of the Hessian, with the mean curvature added."""
        (diagonal,) = self._sum(rows.hessian_diagonal, v, floor)
        return diagonal


class PartitionedSoftmaxSums(PartitionedSums):
    """What :class:`~sklearn_awsgd._linear.softmax_sums.SoftmaxSums` has, likewise."""

    def __init__(self, run, problem, facts, drawn):
        super().__init__(run, problem, facts, 0.0, drawn)
        self.n_classes = len(problem.constants)
        self._problem, self._per_row = problem, facts.n_numbers / facts.n_rows

    def _sum_of_classes(self, function, *arguments):
        (total,) = add_up(self._run(function, self._problem, *arguments))
        return total

    @cached_property
    def class_sums(self):
        """Sum of P x of the rows of each class, that of P last."""
        return self._sum_of_classes(rows.class_sums)

    def sample(self, v, spreads, n_rows, rng):
        """Return a CurvatureSample at v, of no more rows than may travel."""
        most = MOST_NUMBERS / (self._per_row + self.n_classes)
        total = self._drawn.sizes(self._drawn.evaluate(v)[-1]).sum()
        n_rows = None if n_rows >= self.n_samples <= most else min(n_rows, most)
        drawn, weights, p = self._collect(
            rows.softmax_sample, v, n_rows, total, rng.random()
        )
        blocks = Blocks(drawn, n_threads=1)
        return CurvatureSample(drawn, weights, p, blocks.run)

    def sample_columns(self, n_numbers, has_intercept, rng):
        """Return a ColumnSample, of no more rows than may travel."""
        n_rows = min(n_numbers, MOST_NUMBERS) / max(self._per_row, 1.0)
        if n_rows >= self.n_samples:
            n_rows = None
        total = self._drawn.norm_sizes().sum()
        drawn, weights = self._collect(rows.norm_sample, n_rows, total, rng.random())
        return ColumnSample.of(drawn, weights, drawn, has_intercept)

    def probabilities(self, v, drawn):
        """Return rows of a ColumnSample, and the probabilities of classes."""
        return drawn, class_probabilities(drawn, *split_classes(v, self.n_classes))

    def _collect(self, function, *arguments):
        """Return what all partitions have drawn, rows first."""
        parts = self._run(function, self._problem, *arguments)
        drawn, *others = zip(*(part for part in parts if part is not None), strict=True)
        return stack_rows(drawn), *map(np.concatenate, others)

    def hessian_diagonal(self, v, floor):
        """Return the diagonals of the classes' Hessians."""
        return self._sum_of_classes(rows.softmax_diagonal, v, floor)
