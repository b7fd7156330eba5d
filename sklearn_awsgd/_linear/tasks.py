"""Tasks: one problem to train each, with all that phases need to know of it."""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from sklearn_awsgd._kernels._coordinate_rates import make_steps
from sklearn_awsgd._kernels._dual import DualSteps
from sklearn_awsgd._kernels._kinks import KinkSteps
from sklearn_awsgd._kernels._linear import LinearProblem
from sklearn_awsgd._kernels._losses import (
    Huber,
    Loss,
    ModifiedHuber,
    SquaredEpsilonInsensitive,
    SquaredError,
    SquaredHinge,
)
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._kernels._softmax import SoftmaxProblem
from sklearn_awsgd._kernels.settings import Penalty, Rate
from sklearn_awsgd._linear.columns import ColumnModel, QuadraticColumnModel
from sklearn_awsgd._linear.curvature import (
    MOST_INVERTING,
    MOST_PARAMETERS,
    cost_of_inverting,
)
from sklearn_awsgd._linear.data import Data
from sklearn_awsgd._linear.objectives import (
    LinearObjective,
    best_constant,
    few_values,
)
from sklearn_awsgd._linear.softmax_objective import SoftmaxObjective
from sklearn_awsgd._linear.softmax_sums import SoftmaxSums
from sklearn_awsgd._linear.sums import LinearSums
from sklearn_awsgd._linear.targets import Target


@dataclass(kw_only=True)
class Task(ABC):
    """One problem to train.

    Parameters are a vector v of the coefficients and the intercept of each model, one
    model after the other; they live in `states`.
    """

    number: int = 0
    data: Data
    target: Target
    loss: Loss
    penalty: Penalty
    fit_intercept: bool = True
    rate: Rate  # of plain AW-SGD
    average_start: int = 0  # step to begin with means of the parameters; 0 for none
    states: list  # of dicts of arrays, one for each linear model; changed in place
    generator: np.random.PCG64
    # Of the loss near the parameters, as `Objective.curvature`, if a descent knows it.
    curvature: np.ndarray | None = None
    # Of each row at the parameters, as `Evaluation.curvatures`, likewise.
    row_curvatures: np.ndarray | None = None

    @property
    def n_samples(self):
        """Number of rows, those that weigh nothing included."""
        return self.data.X.shape[0]

    @property
    def n_features(self):
        """Number of features."""
        return self.data.X.shape[1]

    @property
    def is_wide(self):
        """Whether features are too many for a matrix of their curvature.

        Between kinks, or where no penalty holds anything, a diagonal says too little to
        do without a matrix that can be had.
        """
        n_columns, X = self.n_features + 1, self.data.X
        is_long = n_columns > MOST_PARAMETERS
        is_held = self.is_smooth and max(self.penalty.l1, self.penalty.l2) > 0
        if is_long or not (is_held and sparse.issparse(X)):
            return is_long
        cost = cost_of_inverting(n_columns, self.n_samples, X.nnz)
        return cost > MOST_INVERTING * self.n_models

    @property
    def is_at_hand(self):
        """Whether the rows are in memory."""
        return not self.data.is_source

    @property
    def n_models(self):
        """Number of linear models."""
        return len(self.states)

    @property
    def is_smooth(self):
        """Whether the loss has no kinks."""
        return np.isfinite(self.loss.smoothness)

    @property
    def has_lines(self):
        """Whether the loss is a line in places, or has kinks."""
        return isinstance(self.loss, Huber) or not self.is_smooth

    @property
    def has_jumps(self):
        """Whether the loss has no kinks, but its curvature has jumps."""
        return isinstance(
            self.loss, (Huber, ModifiedHuber, SquaredEpsilonInsensitive, SquaredHinge)
        )

    # Whether there are `make_dual_problem` and `first_dual_norms2`.
    has_dual_steps = False
    # Whether there is `make_column_model`.
    has_columns = False
    # Whether sums over some rows, those next to kinks, can be taken alone.
    has_active_rows = False

    @property
    @abstractmethod
    def has_proximal_steps(self):
        """Whether proximal steps can form the curvature that they need."""

    def has(self, name):
        """Return whether an array of the states is not zero: there is a start."""
        return any(state[name].any() for state in self.states)

    def on_rows(self, X, rows):
        """Return the task of some rows, on the same state.

        `X` are the rows, `rows` their numbers or a slice.
        """
        data, target = self.data, copy(self.target)
        target.values = target.values[rows]
        mass = data.mass if data.mass is None else data.mass[rows]
        return replace(
            self,
            data=replace(data, X=X, norms2=data.norms2[rows], mass=mass),
            target=target,
        )

    def parameters(self):
        """Return v, a copy."""
        return np.concatenate(
            [np.append(state["coef"], state["intercept"]) for state in self.states]
        )

    def set_parameters(self, v, n_draws=0):
        """Set v, which took so many more draws of each model."""
        for state, part in zip(self.states, v.reshape(self.n_models, -1), strict=True):
            state["coef"][:] = part[:-1]
            state["intercept"][0] = part[-1]
            state["clock"] += n_draws

    def parameter_arrays(self):
        """Return the arrays that hold coefficients, intercepts and their means."""
        return [
            array
            for state in self.states
            for name, array in state.items()
            if name.endswith(("coef", "intercept"))
        ]

    def begin_at_constants(self):
        """Set the intercepts to the best constants, unless they are given."""
        if not self.has("intercept"):
            self.set_constants()

    @abstractmethod
    def set_constants(self):
        """Set the intercepts to the best constants, as far as there are any."""

    @abstractmethod
    def constant_loss(self):
        """Return E_P[loss] of the intercepts alone."""

    def value(self, v):
        """Return the objective, kinks and penalties included."""
        V = v.reshape(self.n_models, -1)
        W = V[:, :-1]
        penalty = self.penalty.l2 / 2 * np.sum(W**2)
        return self._mean_loss(V) + penalty + self.penalty.l1 * np.abs(W).sum()

    @abstractmethod
    def _mean_loss(self, V):
        """Return E_P[loss] of parameters, a line for each model."""

    @abstractmethod
    def useless_loss(self):
        """Return the largest loss of a row whose predictions are zero."""

    @abstractmethod
    def make_problem(self):
        """Return the compiled problem."""

    def _make_steps(self, rows):
        """Return the compiled steps of each model, on its state."""
        settings = self.penalty, self.rate, self.fit_intercept, self.average_start
        return [make_steps(rows, state, *settings) for state in self.states]

    @abstractmethod
    def make_objective(self, width=0.0):
        """Return the smooth part of the objective, kinks rounded over a width."""


class LinearTask(Task):
    """One linear model with a loss of one prediction."""

    has_dual_steps = has_columns = has_active_rows = True

    @property
    def has_proximal_steps(self):
        return not self.is_wide

    def set_constants(self):
        loss = self.loss.rounded(self.target.spread)
        constant = best_constant(loss, self.target.values, self.data.mass)
        self.states[0]["intercept"][0] = constant

    def constant_loss(self):
        y, weights = few_values(self.target.values, self.data.mass)
        constant = np.full(len(y), self.states[0]["intercept"][0])
        return weights @ self.loss(y, constant)[0]

    def useless_loss(self):
        largest = np.abs(self.target.values).max(keepdims=True)
        return self.loss(largest.astype(np.float64), np.zeros(1))[0][0]

    def make_problem(self):
        data, rows = self.data, Rows(self.data.X)
        (steps,) = self._make_steps(rows)
        return LinearProblem(
            rows, self.loss, self.target.values, data.norms2, steps, data.loss_scale
        )

    def make_dual_problem(self, hold):
        """Return the compiled dual steps; `hold` is what holds the intercept."""
        return DualSteps(*self._dual_arguments(hold))

    def make_kink_problem(self, hold, rows, together, shuffle):
        """Return the compiled dual steps of a loss with kinks, over some rows.

        So many that lie next to each other take their turns together.
        """
        generator = self.generator if shuffle else None
        return KinkSteps(rows, together, generator, *self._dual_arguments(hold))

    def _dual_arguments(self, hold):
        """Return what compiled dual steps are made of."""
        data = self.data
        return (
            Rows(data.X),
            self.loss,
            self.target.values,
            data.norms2,
            self.states[0],
            data.mass,
            self.penalty.l2,
            hold if self.fit_intercept else None,
        )

    def first_dual_norms2(self, rows):
        """Return squared gradient norms at the start of dual steps, of a slice."""
        y = self.target.numbers(rows)
        z = np.full(len(y), self.states[0]["intercept"][0])
        derivatives = self.loss(y, z)[1]
        return derivatives**2 * (self.data.norms2[rows] + self.fit_intercept)

    def make_objective(self, width=0.0):
        objective = LinearObjective(
            self.make_sums(width),
            self.penalty.l2,
            self.fit_intercept,
            sharp=self.is_smooth,
            alpha_l1=self.penalty.l1,
        )
        objective.is_wide, objective.is_at_hand = self.is_wide, self.is_at_hand
        objective.has_jumps = self.has_jumps
        objective.is_quadratic = isinstance(self.loss, SquaredError)
        return objective

    def make_sums(self, width):
        """Return the sums over the rows, kinks rounded over a width; 0 for none."""
        loss = self.loss.rounded(width) if width > 0 else self.loss
        data = self.data
        return LinearSums(data.blocks, loss, self.target.values, data.mass, data.norms2)

    def make_column_model(self, width):
        """Return the ColumnModel, kinks rounded over a width; 0 for none."""
        is_quadratic = isinstance(self.loss, SquaredError)
        kind = QuadraticColumnModel if is_quadratic else ColumnModel
        return kind(
            self.data.columns,
            self.loss.rounded(width) if width > 0 else self.loss,
            self.target.numbers(),
            self.data.mass,
            self.penalty.l2,
            self.fit_intercept,
        )

    def _mean_loss(self, V):
        return self.make_sums(0.0).mean_loss(V[0])


class SoftmaxTask(Task):
    """Softmax regression: one linear model for each class, trained together."""

    @property
    def has_proximal_steps(self):
        # They take the curvature row by row.
        return True

    def set_constants(self):
        constants = np.log(np.maximum(self.shares(), 1e-12))
        for state, constant in zip(self.states, constants, strict=True):
            state["intercept"][0] = constant - constants.mean()

    def constant_loss(self):
        constants = self._intercepts()
        return logsumexp(constants) - self.shares() @ constants

    def useless_loss(self):
        return np.log(self.n_models)

    def shares(self):
        """Return P of each class."""
        codes, mass = self.target.values, self.data.mass
        share = np.bincount(codes, weights=mass, minlength=self.n_models)
        return share / share.sum()

    def _intercepts(self):
        return np.array([state["intercept"][0] for state in self.states])

    def _mean_loss(self, V):
        return self.make_sums().evaluate(V.ravel())[1]

    def make_problem(self):
        data, rows = self.data, Rows(self.data.X)
        steps = self._make_steps(rows)
        return SoftmaxProblem(
            rows, self.target.values, data.norms2, steps, data.loss_scale
        )

    def make_objective(self, width=0.0):
        objective = SoftmaxObjective(
            self.make_sums(), self.penalty.l2, self.fit_intercept, self.penalty.l1
        )
        objective.is_wide = self.is_wide
        return objective

    def make_sums(self):
        """Return the sums over the rows."""
        data = self.data
        return SoftmaxSums(
            data.blocks, self.target.values, self.n_models, data.mass, data.norms2
        )


def make_task(target, **settings):
    """Return the Task of a target; the settings are the attributes of a Task."""
    kind = LinearTask if target.n_models == 1 else SoftmaxTask
    return kind(target=target, **settings)
