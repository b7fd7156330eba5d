"""Columns of the rows, and a linear model with an l1 penalty on some of them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError

from sklearn_awsgd._kernels._batch import add_hessian
from sklearn_awsgd._kernels._columns import (
    collect,
    combine,
    correlate,
    count_numbers,
    minimize_by_columns,
)
from sklearn_awsgd._kernels._newton import Cholesky
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._linear.curvature import expectation
from sklearn_awsgd._linear.objectives import penalized_bound

# Share of the numbers of a sparse matrix from which on all columns are copied, and of
# dense columns up to which they are kept. Chosen on newsgroups and
# "wide sparse" of bench_every_loss.py.
SHARE_COPIED = 0.5
# Models of the losses on some columns, sweeps of coordinate descent for each, and
# trials of a step along its minimiser.
MOST_MODELS = 50
MOST_SWEEPS = 60
STEP_TRIALS = 8
# Where these sweeps do not solve a model, or it leaves so much of the largest slope, or
# so many times as many coefficients as rows are not zero, a matrix of their curvature
# does it, of so many at most. Chosen on newsgroups and the sets "genes" and "chain" of
# bench_every_loss.py and on cases of tests/tools/fuzz.py.
SLOW_MODEL = 0.5
MANY_COEFFICIENTS = 2
MOST_SETTLED = 600
# What slopes may cost along all coefficients, relative to the gap that is small enough.
SHARE_OF_BOUND = 0.25
# Gain, relative to the gap that is small enough, of a model that has come to nothing.
STALLED = 1e-3
# Slopes of the next model that count as zero, relative to the largest of this one.
PRECISION = 0.2
# Share of the largest curvature that each row has at least, the first that is added
# where steps were too long, and the most.
LEAST_CURVATURE = 1e-8
FIRST_CURVATURE = 1e-4
MOST_CURVATURE = 1.0
# Share of the decrease that the slope promises which a step must bring.
SUFFICIENT = 1e-4
# Relative error of a value.
VALUE_ERROR = 1e-15


class KeptColumns(ABC):
    """The columns of a matrix in memory, copied when they are first asked for.

    Parameters
    ----------
    n_features : int
        Number of columns.
    """

    def __init__(self, n_features):
        # Copies, and where they are; -1 for what has not been copied.
        self._columns, self._places = None, np.full(n_features, -1, dtype=np.intp)
        # Several problems may ask at the same time.
        self._lock = Lock()

    def take(self, which):
        """Return a matrix whose rows are columns, and which of these are meant."""
        with self._lock:
            missing = which[self._places[which] < 0]
            if len(missing) or self._columns is None:
                self._copy(missing, which)
            return self._columns, self._places[which]

    @abstractmethod
    def _copy(self, missing, wanted):
        """Copy columns, some of those that are wanted."""


class SparseColumns(KeptColumns):
    """The columns of a CSR matrix.

    A reading of the rows copies those that are missing. Where few columns matter, this
    takes a fraction of the time of a copy of the matrix; else that is made.

    Parameters
    ----------
    X : CSR of shape (n_samples, n_features)
        The rows.
    """

    def __init__(self, X):
        super().__init__(X.shape[1])
        self._X, self._rows = X, Rows(X)
        self._counts = count_numbers(self._rows)
        self._columns = sparse.csr_array((0, X.shape[0]))

    def _copy(self, missing, wanted):
        """Copy columns, or all if these are too many."""
        before, counts = self._columns, self._counts[missing]
        n_before, n_rows = before.shape
        most = min(SHARE_COPIED * self._X.nnz, np.iinfo(np.int32).max)
        if before.nnz + counts.sum() > most:
            self._columns = self._X.tocsc().T
            self._places = np.arange(len(self._places))
            return
        values, indices, indptr = collect(self._rows, missing, counts)
        self._columns = sparse.csr_array((n_before + len(missing), n_rows))
        self._columns.data = np.append(before.data, values)
        self._columns.indices = np.append(before.indices, indices)
        self._columns.indptr = np.append(before.indptr, before.indptr[-1] + indptr[1:])
        self._places[missing] = np.arange(n_before, n_before + len(missing))


class DenseColumns(KeptColumns):
    """The columns of dense rows.

    Parameters
    ----------
    blocks : Blocks
        The rows.
    """

    def __init__(self, blocks):
        super().__init__(blocks.shape[1])
        self._blocks, self._buffer = blocks, np.empty((0, blocks.shape[0]))

    def _copy(self, missing, wanted):
        """Copy columns behind the others; the latter are forgotten if too many."""
        n_before = 0 if self._columns is None else len(self._columns)
        most = SHARE_COPIED * len(self._places)
        if n_before + len(missing) > max(most, len(wanted)):
            self._places[:] = -1
            missing, n_before, self._buffer = wanted, 0, self._buffer[:0]
        n_columns = n_before + len(missing)
        if n_columns > len(self._buffer):
            # Twice as large, so that what is there is copied a few times only.
            larger = np.empty((max(n_columns, 2 * n_before), self._buffer.shape[1]))
            larger[:n_before] = self._buffer[:n_before]
            self._buffer = larger
        self._columns = self._buffer[:n_columns]
        copy_dense(self._blocks, missing, self._columns[n_before:])
        self._places[missing] = np.arange(n_before, n_columns)


class SourceColumns:
    """Columns of the rows of a source, collected block by block each time.

    Parameters
    ----------
    blocks : Blocks
        The rows.
    """

    def __init__(self, blocks):
        self._blocks = blocks

    def take(self, which):
        """Return a matrix whose rows are columns, and which of these are meant."""
        numbers = np.arange(len(which))
        if self._blocks.is_sparse:
            parts = list(self._blocks.map(lambda X, part: X[:, which]))
            return sparse.vstack(parts).tocsc().T, numbers
        columns = np.empty((len(which), self._blocks.shape[0]))
        copy_dense(self._blocks, which, columns)
        return columns, numbers


def copy_dense(blocks, which, columns):
    """Copy columns of dense rows to the rows of an array."""

    def copy(X, part):
        columns[:, part] = X[:, which].T

    for _ in blocks.map(copy):
        pass


def make_columns(data):
    """Return the columns of Data."""
    if sparse.issparse(data.X):
        return SparseColumns(data.X)
    return SourceColumns(data.blocks) if data.is_source else DenseColumns(data.blocks)


def weighted_gram(columns, h):
    """Return ``X^T diag(h) X`` of the columns of X and, last, one of ones."""
    gram = np.zeros((columns.shape[0] + 1,) * 2)
    if sparse.issparse(columns):
        add_hessian(Rows(columns.T.tocsr()), h, gram)
        return np.triu(gram) + np.triu(gram, 1).T
    scaled = np.vstack([columns, np.ones(len(h))]) * np.sqrt(h)
    return scaled @ scaled.T


def spread(v, which, size):
    """Return parameters that are zero but for some columns and the intercept."""
    full = np.zeros(size)
    full[which], full[-1] = v[:-1], v[-1]
    return full


def slope_distances(v, gradient, l1):
    """Return how far the slope of each coefficient is from where it has to be."""
    w, slope = v[:-1], gradient[:-1]
    return np.where(
        w == 0,
        np.maximum(np.abs(slope) - l1, 0.0),
        np.abs(slope + l1 * np.sign(w)),
    )


@dataclass
class ColumnPoint:
    """Where a model on some columns is."""

    v: np.ndarray  # coefficients of the columns, then the intercept
    z: np.ndarray  # predictions
    value: float  # objective, penalties included
    gradient: np.ndarray  # of the smooth part
    losses: np.ndarray
    derivatives: np.ndarray
    curvatures: np.ndarray


class ColumnModel:
    """E_P[f(y, <x, w> + b)] + l1 ||w||_1 + l2 / 2 ||w||^2 on some columns.

    It is minimised by proximal Newton steps: coordinate descent on the quadratic model
    of all rows, then trials along the line to its minimum, which cost a look at the
    predictions alone.

    Parameters
    ----------
    columns : KeptColumns or SourceColumns
        Columns.
    loss : Loss
        A smooth loss.
    y : ndarray of shape (n_samples,)
        Targets.
    mass : ndarray of shape (n_samples,) or None
        P of each row.
    l2 : float
        Strength of the l2 penalty; that of l1 is for each minimum to say.
    fit_intercept : bool
        Whether b is free.
    """

    # Columns that it can be minimised over at once.
    most_columns = np.inf

    def __init__(self, columns, loss, y, mass, l2, fit_intercept):
        self.columns, self.loss, self.y, self.mass = columns, loss, y, mass
        self.l1, self.l2, self.fit_intercept = 0.0, l2, fit_intercept
        self._p = 1 / len(y) if mass is None else mass
        # Share of the largest curvature that is added to each row's.
        self.floor = LEAST_CURVATURE
        # The columns of the last minimum: which of all, and where they are.
        self._which, self._taken = np.empty(0, dtype=np.intp), None

    def minimize(self, start, which, l1, bound, slack=0.0):
        """Minimise over some columns and the intercept.

        Parameters
        ----------
        start : Evaluation
            Where to start: zero but for the intercept and the columns `which`.
        which : ndarray of int
            Numbers of the columns.
        l1 : float
            Strength of the l1 penalty.
        bound : float
            Duality gap that is small enough.
        slack : float, default=0.0
            Distance of a slope from where it has to be that is small enough.

        Returns
        -------
        v : ndarray of shape (n_features + 1,)
            The minimiser.
        """
        self.l1 = l1
        columns, rows, numbers = self._take(which)
        inner = np.append(start.v[which], start.v[-1])
        z = combine(rows, numbers, inner[:-1], inner[-1])
        here = self._at(rows, numbers, inner, z)
        for _ in range(MOST_MODELS):
            violation = self._violation(here)
            if violation <= slack or self._gap(here) <= bound:
                break
            flat = max(PRECISION * violation, slack / 4)
            step, is_solved = self._model_step(rows, numbers, here, bound, flat)
            new = self._along(rows, numbers, here, step)
            if new is not None:
                self.floor = max(self.floor / 8, LEAST_CURVATURE)
                before, here = here.value, new
                crawls = self._violation(new) > SLOW_MODEL * violation
                n_used = np.count_nonzero(new.v[:-1])
                if crawls or not is_solved or n_used > MANY_COEFFICIENTS * len(self.y):
                    here = self._settle(columns, rows, numbers, new)
                if crawls and before - here.value <= STALLED * bound:
                    # What is left is rounding.
                    break
            elif self.floor < MOST_CURVATURE:
                self.floor = min(max(32 * self.floor, FIRST_CURVATURE), MOST_CURVATURE)
            else:
                break
        return spread(here.v, which, len(start.v))

    def _take(self, which):
        """Return a matrix with some columns, its rows, and which of them are meant."""
        columns, numbers = self.columns.take(which)
        rows = Rows(columns)
        self._which, self._taken = which, (rows, numbers)
        return columns, rows, numbers

    def predictions(self, v):
        """Return those of parameters that are zero but for the last columns, or None.

        Without a reading of the rows, as few columns are needed.
        """
        used = np.flatnonzero(v[:-1])
        if len(used) == 0:
            return np.full(len(self.y), v[-1])
        places = np.searchsorted(self._which, used)
        if places[-1] == len(self._which) or (self._which[places] != used).any():
            return None
        rows, numbers = self._taken
        return combine(rows, numbers[places], v[used], v[-1])

    def _value(self, v, z):
        of_rows = self.loss.with_curvatures(self.y, z)
        w = v[:-1]
        value = expectation(of_rows[0], self.mass) + self.l1 * np.abs(w).sum()
        return value + self.l2 / 2 * w @ w, of_rows

    def _at(self, rows, numbers, v, z, known=None):
        """Return the ColumnPoint of v with the predictions z."""
        value, (losses, derivatives, curvatures) = known or self._value(v, z)
        slopes = self._p * derivatives
        gradient = np.append(correlate(rows, numbers, slopes), slopes.sum())
        gradient[:-1] += self.l2 * v[:-1]
        if not self.fit_intercept:
            gradient[-1] = 0
        return ColumnPoint(v, z, value, gradient, losses, derivatives, curvatures)

    def _gap(self, here):
        """Return the duality gap, as `LinearObjective` does, of these columns."""
        mean = here.gradient[:-1] - self.l2 * here.v[:-1]
        dual = here.losses - here.derivatives * here.z
        spare = here.derivatives**2 / (2 * self.loss.smoothness)
        if self.fit_intercept:
            # The mean of the derivatives has to be zero: the side with the larger sum
            # is scaled down. What that does to the slopes is left out.
            is_above = here.derivatives > 0
            above = expectation(here.derivatives * is_above, self.mass)
            below = above - here.gradient[-1]
            larger = is_above if above > below else ~is_above
            share = min(below, above) / max(below, above, 1e-300)
            dual[larger] *= share
            dual[larger] += share * (1 - share) * spare[larger]
            spare[larger] *= share**2
        value, spare = expectation(dual, self.mass), expectation(spare, self.mass)
        bound = penalized_bound(value, mean, self.l1, self.l2, spare)
        return here.value - bound

    def _model_step(self, rows, numbers, here, bound, enough):
        """Return the step to the minimum of the quadratic model."""
        share = bound / max(abs(here.value), 1e-300)
        flat = max(self._flat(share, bound, len(here.v)) / 4, enough)
        level = np.inf
        if self.fit_intercept:
            size = expectation(np.abs(here.derivatives), self.mass)
            level = max(share * size / 8, PRECISION * abs(here.gradient[-1]))
            level = max(level, 1e-15 * size)
        step, n_sweeps = self._sweep(
            rows,
            numbers,
            self._curvatures(here),
            here.gradient,
            here.v,
            (flat, level, SHARE_OF_BOUND * bound),
        )
        return step, n_sweeps < MOST_SWEEPS

    def _flat(self, share, bound, size):
        """Return slopes of so many parameters that cost so much, or a share of it."""
        flat = max(share * self.l1, np.sqrt(self.l2 * bound / size))
        return max(flat, 4e-15 * self.l1)

    def _sweep(self, rows, numbers, h, gradient, v, enough):
        """Return the step of coordinate descent, and the number of its sweeps."""
        penalties = self.l1, self.l2
        return minimize_by_columns(
            rows, numbers, h, gradient, v, penalties, enough, MOST_SWEEPS
        )

    def _curvatures(self, here):
        """Return the curvature of each row times its P."""
        least = self.floor * self.loss.smoothness
        return self._p * np.maximum(here.curvatures, least)

    def _settle(self, columns, rows, numbers, here):
        """Return the minimum over the coefficients that are not zero.

        Coordinate descent knows which these are long before it knows their values,
        where columns go together. Here the matrix of their curvature tells: that of one
        factorisation, with a multiplier for each that would change its sign and becomes
        zero.
        """
        used = np.flatnonzero(here.v[:-1])
        if len(used) > MOST_SETTLED:
            return here
        gram = weighted_gram(columns[numbers[used]], self._curvatures(here))
        np.einsum("ii->i", gram)[:-1] += self.l2
        size = len(used) + self.fit_intercept
        used = np.append(used, len(numbers))[:size]
        v, move, zeroed = here.v[used], np.zeros(size), []
        signs = np.where(used < len(numbers), np.sign(v), 0.0)
        try:
            # Columns may be the same: its diagonal is enlarged a little.
            solve = Cholesky(gram[:size, :size])
            newton = -solve(here.gradient[used] + self.l1 * signs)
            columns = np.empty((size, 0))
            while True:
                end = newton
                if zeroed:
                    lacking = -(v + newton)[zeroed]
                    end = newton + columns @ np.linalg.solve(columns[zeroed], lacking)
                    end[zeroed] = -v[zeroed]
                crosses = signs * (v + end) < 0
                if not crosses.any():
                    break
                shares = np.where(crosses, v + move, np.inf)
                shares[crosses] /= (move - end)[crosses]
                first = np.argmin(shares)
                move += shares[first] * (end - move)
                zeroed.append(first)
                unit = np.zeros(size)
                unit[first] = 1.0
                columns = np.column_stack([columns, solve(unit)])
        except LinAlgError:
            return here
        step = np.zeros_like(here.v)
        step[used] = end
        return self._along(rows, numbers, here, step) or here

    def _violation(self, here):
        """Return the largest distance of a slope from where it has to be."""
        distances = slope_distances(here.v, here.gradient, self.l1)
        return max(distances.max(initial=0.0), abs(here.gradient[-1]))

    def _along(self, rows, numbers, here, step):
        """Return the ColumnPoint a step leads to, or None where it is far too long."""
        moves = combine(rows, numbers, step[:-1], step[-1])
        w, change = here.v[:-1], step[:-1]
        slope = here.gradient @ step + self.l1 * (
            np.abs(w + change).sum() - np.abs(w).sum()
        )
        length = 1.0
        for _ in range(STEP_TRIALS):
            v, z = here.v + length * step, here.z + length * moves
            known = self._value(v, z)
            # Next to the minimum, slopes still tell what values no longer do.
            most = here.value + VALUE_ERROR * abs(here.value)
            if known[0] <= most + SUFFICIENT * length * slope:
                return self._at(rows, numbers, v, z, known)
            length /= 2
        return None


class QuadraticColumnModel(ColumnModel):
    """A :class:`ColumnModel` of squared errors, whose model is the objective.

    So a step needs no trials, and the slopes where it begins are known.
    """

    def minimize(self, start, which, l1, bound, slack=0.0):
        self.l1 = l1
        _, rows, numbers = self._take(which)
        v = np.append(start.v[which], start.v[-1])
        gradient = np.append(start.gradient[which], start.gradient[-1])
        share, level = bound / max(abs(start.value), 1e-300), np.inf
        if self.fit_intercept:
            # At least the mean size of the derivatives.
            size = np.sqrt(2 * start.value)
            level = max(share / 8, 1e-15) * size
        enough = self._flat(share, bound, len(v)), level, SHARE_OF_BOUND * bound
        h = np.full(len(self.y), 1.0) * self._p
        step, n_sweeps = self._sweep(rows, numbers, h, gradient, v, enough)
        v = spread(v + step, which, len(start.v))
        if 1 < n_sweeps < MOST_SWEEPS:
            return v
        # Columns go together, and sweeps are slow; or one sweep found nothing to do
        # though the gap did: its slopes are those of when each was met.
        return super().minimize(replace(start, v=v), which, l1, bound, slack)
