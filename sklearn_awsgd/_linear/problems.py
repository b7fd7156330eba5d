"""Compiled problems of tasks: the one place where they are built."""

import numpy as np
from scipy import sparse

from sklearn_awsgd._kernels._dual import DualSteps
from sklearn_awsgd._kernels._linear import CoordinateRate, ScalarRate
from sklearn_awsgd._kernels._multinomial import MultinomialProblem
from sklearn_awsgd._kernels._rows import Rows


def linear_problem(task):
    """Return the compiled problem of a LinearTask."""
    return _steps(task, task.target.values, task.states[0])


def softmax_problem(task):
    """Return the compiled problem of a SoftmaxTask."""
    # The models step along gradients that they are given: they need no targets.
    models = [_steps(task, np.zeros(1), state) for state in task.states]
    data = task.data
    problem = MultinomialProblem(
        Rows(data.X), task.target.values, data.norms2, models, task.fit_intercept
    )
    problem.loss_scale = data.loss_scale
    return problem


def dual_problem(task, loss, hold):
    """Return the compiled dual steps of a LinearTask, given a smooth loss."""
    data = task.data
    return DualSteps(
        Rows(data.X),
        loss,
        task.target.values,
        data.norms2,
        task.states[0],
        task.fit_intercept,
        data.mass,
        task.penalty.l2,
        hold,
    )


def _steps(task, y, state):
    """Return the compiled steps of one model, on its state."""
    data, steps = task.data, task.steps
    arguments = (
        Rows(data.X),
        task.loss,
        y,
        data.norms2,
        state,
        task.penalty.l1,
        task.penalty.l2,
        task.fit_intercept,
        steps.average_start,
        steps.rate,
        steps.eta0,
    )
    is_sparse = sparse.issparse(data.X)
    if steps.is_by_coordinate:
        problem = CoordinateRate(*arguments, steps.decay, is_sparse)
    else:
        problem = ScalarRate(
            *arguments, steps.power_t, steps.alpha, steps.first_clock, is_sparse
        )
    problem.loss_scale = data.loss_scale
    return problem
