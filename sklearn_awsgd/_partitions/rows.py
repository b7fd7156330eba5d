"""Rows of one partition, and the functions that are called where it is.

All functions take a partition and small arguments, and return something small: wherever
a partition has to be made anew, the result is the same.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_consistent_length

from sklearn_awsgd._kernels.settings import Penalty
from sklearn_awsgd._linear.curvature import expectation, systematic_sample
from sklearn_awsgd._linear.data import Data
from sklearn_awsgd._linear.steps import complete_state, make_rate, new_state
from sklearn_awsgd._linear.targets import (
    Classes,
    CodeTarget,
    RealTarget,
    SignTarget,
    check_labels,
    check_real_targets,
)
from sklearn_awsgd._linear.tasks import make_task
from sklearn_awsgd._validation import check_rows, check_sparse

# Between the random starts of partitions: its multiples are spread evenly.
GOLDEN = (np.sqrt(5) - 1) / 2


@contextmanager
def naming_partition(number):
    """Say of which partition an error tells."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"Partition {number}: {error}") from error


def as_rows(X):
    """Return X as an array or CSR of floats, whose values may be anything."""
    return check_array(
        check_sparse(X),
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        order="C",
        ensure_all_finite=False,
        ensure_min_samples=0,
        input_name="X",
    )


def take_columns(X, which):
    """Return some columns, and the squared norms of what is left of the rows."""
    return check_rows(as_rows(X[:, which]))


def size_of(X):
    """Return the bytes of an array or a sparse matrix."""
    parts = (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)
    return sum(part.nbytes for part in parts)


@dataclass(frozen=True)
class ProblemFacts:
    """One problem of a fit, as partitions need to know it."""

    name: str  # of which there is no other
    number: int
    family: type  # the estimator, which knows the losses
    loss: str
    epsilon: float
    fit_intercept: bool
    classes: Classes | None  # None for a regressor
    class_weights: np.ndarray | None
    largest_weight: float  # of all rows; weights are relative to it
    total: float  # sum of these times the class weights
    constants: np.ndarray  # intercepts of the models to start from
    columns: np.ndarray | None = None  # features the models have; None for all

    def make_loss(self):
        """Return the compiled loss, which itself does not travel."""
        return self.family._losses[self.loss](self)


@dataclass
class Facts:
    """What there is to know of the rows of a partition, or of several."""

    number: int
    n_rows: int
    n_features: int
    n_numbers: int  # in the rows
    dtype: np.dtype
    is_sparse: bool
    largest_weight: float
    weight: float  # sum of the weights over the largest
    n_outputs: int | None = None  # columns of indicators
    labels: np.ndarray | None = None  # sorted, those without weight left out
    label_weights: np.ndarray | None = None
    # Of real targets with weight: least, largest, mean and mean of squared deviations.
    moments: tuple | None = None


class Partition:
    """Rows, targets and weights in one place.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_rows, n_features)
        Rows; there may be none.
    y : array-like of shape (n_rows,) or (n_rows, n_labels)
        Targets.
    sample_weight : array-like of shape (n_rows,), default=None
        Weights of the rows.
    number : int, default=0
        Which of the partitions it is: errors tell.

    Raises
    ------
    ValueError
        When something is wrong with the data.
    """

    def __init__(self, X, y, sample_weight=None, number=0):
        self.number = number
        with naming_partition(number):
            self._load(X, y, sample_weight)
        self._forget()

    def _load(self, X, y, sample_weight):
        self.X, self.norms2 = check_rows(as_rows(X))
        self.y = check_array(
            y, ensure_2d=False, dtype=None, ensure_min_samples=0, input_name="y"
        )
        if self.y.ndim == 2 and self.y.shape[1] == 1:
            self.y = self.y[:, 0]
        self.sample_weight = None
        if sample_weight is not None:
            self.sample_weight = check_array(
                sample_weight,
                ensure_2d=False,
                dtype=np.float64,
                ensure_min_samples=0,
                input_name="sample_weight",
            )
            if self.sample_weight.ndim != 1:
                raise ValueError(
                    "Sample weights must be 1D array or scalar, got "
                    f"{self.sample_weight.ndim}D array."
                )
            if len(self.sample_weight) and self.sample_weight.min() < 0:
                raise ValueError(
                    f"sample_weight has a negative value, {self.sample_weight.min()}; "
                    "a weight is how often a row counts: use 0 to leave a row out."
                )
        check_consistent_length(self.X, self.y, self.sample_weight)

    def __len__(self):
        return self.X.shape[0]

    def __sizeof__(self):
        """Return the bytes of the arrays: clusters ask, and save what is too much."""
        return sum(map(size_of, (self.X, self.y, self.norms2)))

    def _forget(self):
        # What the last calls have found out; all of it can be found out again.
        self._last_task = self._last_curvatures = None

    def __getstate__(self):
        state = vars(self).copy()
        state["_last_task"] = state["_last_curvatures"] = None
        return state

    def describe(self, classify):
        """Return the Facts of the rows, with their targets checked."""
        X, weight = self.X, self.sample_weight
        largest = 1.0 if weight is None else weight.max(initial=0.0)
        weight = np.ones(len(self)) if weight is None else weight / (largest or 1.0)
        facts = Facts(
            self.number,
            *X.shape,
            X.nnz if sparse.issparse(X) else X.size,
            X.dtype,
            sparse.issparse(X),
            largest,
            weight.sum(),
        )
        counts = weight > 0
        if not counts.any():
            return facts
        with naming_partition(self.number):
            y = check_labels(self.y, None) if classify else check_real_targets(self.y)
        if not classify:
            y, weight = y[counts], weight[counts]
            mean = np.average(y, weights=weight)
            square = np.average((y - mean) ** 2, weights=weight)
            facts.moments = y.min(), y.max(), mean, square
        elif y.ndim == 2:
            facts.n_outputs = y.shape[1]
            facts.label_weights = weight @ y
        else:
            y, weight = y[counts], weight[counts]
            # Finding the labels takes no sort; `return_inverse` would.
            facts.labels = np.unique(y)
            codes = np.searchsorted(facts.labels, y)
            facts.label_weights = np.bincount(codes, weights=weight)
        return facts

    def share_and_mass(self, problem):
        """Return P of the partition, and P of its rows inside it; None if all equal."""
        weight = None
        if self.sample_weight is not None:
            weight = self.sample_weight / problem.largest_weight
        if problem.class_weights is not None:
            by_class = problem.class_weights[problem.classes.codes(self.y)]
            weight = by_class if weight is None else weight * by_class
        if weight is None or not len(weight):
            return len(self) / problem.total, None
        total = weight.sum()
        if total == 0 or (weight == weight[0]).all():
            return total / problem.total, None
        return total / problem.total, weight / total

    def share(self, problem):
        """Return P of the partition."""
        if self._last_task is not None and self._last_task[0] == problem.name:
            return self._last_task[2]
        return self.share_and_mass(problem)[0]

    def task(self, problem):
        """Return the task of a problem on these rows, and P of the partition."""
        if self._last_task is not None and self._last_task[0] == problem.name:
            return self._last_task[1:]
        share, mass = self.share_and_mass(problem)
        X, norms2 = self.X, self.norms2
        if problem.columns is not None:
            X, norms2 = take_columns(X, problem.columns)
        data = Data(X, self.y, norms2, mass=mass)
        states = [new_state(X.shape[1]) for _ in problem.constants]
        for state, constant in zip(states, problem.constants, strict=True):
            state["intercept"][0] = constant
            complete_state(state, "adagrad", average=False)
        task = make_task(
            self._target(problem, mass),
            data=data,
            loss=problem.make_loss(),
            penalty=Penalty(0.0, 0.0),
            fit_intercept=problem.fit_intercept,
            rate=make_rate("adagrad", 1.0, 0.5, 0.0),
            states=states,
            generator=np.random.PCG64(0),
        )
        self._last_task = problem.name, task, share
        return task, share

    def _target(self, problem, mass):
        classes = problem.classes
        if classes is None:
            return RealTarget(check_real_targets(self.y), mass)
        if classes.is_multilabel:
            return SignTarget(self.y[:, problem.number] > 0, mass)
        codes = classes.codes(self.y)
        if classes.is_softmax:
            return CodeTarget(codes, len(classes.values), mass)
        is_two = len(classes.values) == 2
        return SignTarget(codes == (1 if is_two else problem.number), mass)

    def sums(self, problem, width):
        """Return the sums over the rows, and P of the partition."""
        task, share = self.task(problem)
        return task.make_objective(width).sums, share

    def curvatures(self, problem, width, v):
        """Return what `evaluate` of the sums said of the curvatures at v."""
        if self._last_curvatures is not None:
            key, v_then, curvatures = self._last_curvatures
            if key == (problem.name, width) and np.array_equal(v, v_then):
                return curvatures
        sums, _ = self.sums(problem, width)
        return self.keep_curvatures(problem, width, v, sums.evaluate(v)[-1])

    def keep_curvatures(self, problem, width, v, curvatures):
        """Remember the curvatures at v: the next question is often about them."""
        self._last_curvatures = (problem.name, width), v, curvatures
        return curvatures


def adds_up(function):
    """Mark a function of a partition and a problem: its results may be added anywhere.

    It is called only where rows count, and the result is None elsewhere.
    """

    @wraps(function)
    def call(partition, problem, *arguments):
        if partition.share(problem) == 0:
            return None
        return function(partition, problem, *arguments)

    call.adds_up = True
    return call


def add_up(results):
    """Return the sum of results, tuples of numbers and arrays; None is nothing."""
    total = None
    for result in results:
        if result is None:
            continue
        if total is None:
            total = result
        else:
            total = tuple(a + b for a, b in zip(total, result, strict=True))
    return total


def describe(partition, classify):
    """Return the Facts of a partition."""
    return partition.describe(classify)


@adds_up
def evaluate(partition, problem, width, v):
    """Return the sums of one pass over the rows."""
    sums, share = partition.sums(problem, width)
    *results, curvatures = sums.evaluate(v)
    partition.keep_curvatures(problem, width, v, curvatures)
    return tuple(share * result for result in results)


@adds_up
def mean_loss(partition, problem, v):
    """Return the loss at v, kinks and all."""
    task, share = partition.task(problem)
    return (share * task.value(v),)


@adds_up
def hessian(partition, problem, width, v, floor, n_rows, total, start):
    """Return a sampled Hessian and its flops.

    All partitions together draw about `n_rows` rows, each by its part of `total`, about
    the sum of all sizes; None is all rows.
    """
    sums, share = partition.sums(problem, width)
    curvatures = partition.curvatures(problem, width, v)
    n_here = _part_of(n_rows, share, sums.sizes(curvatures, floor), total)
    matrix, flops = sums.hessian(
        curvatures, floor, n_here, Start(start, partition.number)
    )
    return share * matrix, flops


@adds_up
def evaluate_with_hessian(partition, problem, width, v, *sample):
    """Return what `evaluate` does, and then what `hessian` does."""
    sums = evaluate(partition, problem, width, v)
    return *sums, *hessian(partition, problem, width, v, *sample)


@adds_up
def hessian_diagonal(partition, problem, width, v, floor):
    """Return the diagonal of the Hessian."""
    sums, share = partition.sums(problem, width)
    curvatures = partition.curvatures(problem, width, v)
    return (share * sums.hessian_diagonal(curvatures, floor),)


@adds_up
def column_counts(partition, problem):
    """Return how many numbers each column has."""
    X = partition.X
    if sparse.issparse(X):
        return (np.bincount(X.indices, minlength=X.shape[1]),)
    return (np.full(X.shape[1], len(partition)),)


def columns(partition, problem, which):
    """Return some columns of the rows."""
    return partition.X[:, which] if partition.share(problem) else None


def targets(partition, problem):
    """Return the targets of the rows, and P of each among all rows."""
    if partition.share(problem) == 0:
        return None
    task, share = partition.task(problem)
    n_rows = len(partition)
    mass = np.full(n_rows, 1 / n_rows) if task.data.mass is None else task.data.mass
    return task.target.numbers(), share * mass


# The same of softmax regression.


@adds_up
def class_sums(partition, problem):
    """Return the sums of the rows of each class."""
    sums, share = partition.sums(problem, 0.0)
    return (share * sums.class_sums,)


def softmax_sample(partition, problem, v, n_rows, total, start):
    """Return rows, weights and probabilities of a CurvatureSample.

    All partitions together draw about `n_rows` rows, each by its part of `total`, about
    the sum of all sizes; None is all rows.
    """
    if partition.share(problem) == 0:
        return None
    sums, share = partition.sums(problem, 0.0)
    spreads = partition.curvatures(problem, 0.0, v)
    n_here = _part_of(n_rows, share, sums.sizes(spreads), total)
    sample = sums.sample(v, spreads, n_here, Start(start, partition.number))
    # As precise as they are used: what travels.
    X = sample.X.astype(sample.p.dtype, copy=False)
    return X, share * sample.weights, sample.p


def norm_sample(partition, problem, n_rows, total, start):
    """Return rows and weights of a ColumnSample.

    All partitions together draw about `n_rows` rows, each by its part of `total`, about
    the sum of all sizes; None is all rows.
    """
    if partition.share(problem) == 0:
        return None
    sums, share = partition.sums(problem, 0.0)
    n_here = _part_of(n_rows, share, sums.norm_sizes(), total)
    chosen, weights = sums.draw_by_norms(n_here, Start(start, partition.number))
    return partition.X[chosen], share * weights


def _part_of(n_rows, share, sizes, total):
    """Return how many of the rows to draw in all a partition draws; None is all."""
    if n_rows is None or not total > 0:
        return len(sizes)
    return int(np.ceil(min(n_rows * (share * sizes.sum() / total), len(sizes))))


@adds_up
def softmax_diagonal(partition, problem, v, floor):
    """Return the diagonals of the classes' Hessians."""
    sums, share = partition.sums(problem, 0.0)
    return (share * sums.hessian_diagonal(v, floor),)


class Start:
    """The random number of a partition, for functions that draw one.

    Those of all partitions are spread evenly, and each is random.
    """

    def __init__(self, start, number):
        self._value = (start + GOLDEN * number) % 1.0

    def random(self):
        """Return the number."""
        return self._value


def first_masses(partition, problems):
    """Return E_P of the bound of the gradient norm, and of the norm of each problem.

    The norms are those at the constants; the bound is that of a loss whose slope is 1.
    """
    share, mass = _share_and_mass(partition, problems)
    if share == 0:
        return None
    bound = share * expectation(_bounds(partition), mass)
    norms = [expectation(norms, mass) for norms in _first_norms(partition, problems)]
    return bound, share * np.array(norms)


first_masses.adds_up = True


def draw_rows(partition, problems, means, n_rows, start):
    """Draw rows by importance; all partitions together draw about `n_rows`.

    One half of the distribution is in proportion to the gradient norms at the
    constants, each problem having the same part of it, the other to their bound: a row
    whose gradient is zero now may have one later.

    Returns
    -------
    drawn : tuple or None
        Rows, targets, squared norms, and what each counts for an unbiased mean.
    """
    share, mass = _share_and_mass(partition, problems)
    if share == 0:
        return None
    size = first_sizes(partition, problems, means)
    size *= share / len(partition) if mass is None else share * mass
    n_here = int(np.ceil(n_rows * size.sum()))
    rows, times = systematic_sample(size, n_here, Start(start, partition.number))
    return (
        partition.X[rows],
        partition.y[rows],
        partition.norms2[rows],
        times * (share / len(partition) if mass is None else share * mass[rows]),
    )


def first_sizes(partition, problems, means):
    """Return what rows are drawn in proportion to, apart from P; its mean is one.

    In place: a worker's arrays are memory that is new each time, which takes longer
    than what is done with it.
    """
    mean_bound, mean_norms = means
    size, n_felt = _bounds(partition), np.count_nonzero(mean_norms)
    size /= 2 * mean_bound if n_felt else mean_bound
    for norms, mean in zip(_first_norms(partition, problems), mean_norms, strict=True):
        if mean > 0:
            norms /= 2 * n_felt * mean
            size += norms
    return size


def _share_and_mass(partition, problems):
    """Return P of the partition, and P of its rows inside it, of all problems."""
    share = partition.share(problems[0])
    return share, partition.task(problems[0])[0].data.mass if share else None


def _bounds(partition):
    """Return the gradient norms of a loss whose slope is 1."""
    bounds = partition.norms2 + 1.0
    return np.sqrt(bounds, out=bounds)


def _first_norms(partition, problems):
    """Yield the gradient norms at the constants, an array for each problem."""
    for problem in problems:
        task, _ = partition.task(problem)
        norms = task.make_problem().first_norms2()
        yield np.sqrt(norms, out=norms)
