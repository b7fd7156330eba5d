"""Compiled problems of tasks: the one place where they are built."""

from sklearn_awsgd._kernels._coordinate_rates import make_steps
from sklearn_awsgd._kernels._dual import DualSteps
from sklearn_awsgd._kernels._linear import LinearProblem
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._kernels._softmax import SoftmaxProblem


def linear_problem(task):
    """Return the compiled problem of a LinearTask."""
    data, rows = task.data, Rows(task.data.X)
    (steps,) = _steps(task, rows)
    return LinearProblem(
        rows, task.loss, task.target.values, data.norms2, steps, data.loss_scale
    )


def softmax_problem(task):
    """Return the compiled problem of a SoftmaxTask."""
    data, rows = task.data, Rows(task.data.X)
    return SoftmaxProblem(
        rows, task.target.values, data.norms2, _steps(task, rows), data.loss_scale
    )


def dual_problem(task, loss, hold):
    """Return the compiled dual steps of a LinearTask, given a smooth loss."""
    data = task.data
    return DualSteps(
        Rows(data.X),
        loss,
        task.target.values,
        data.norms2,
        task.states[0],
        data.mass,
        task.penalty.l2,
        hold if task.fit_intercept else None,
    )


def _steps(task, rows):
    """Return the compiled steps of each model, on its state."""
    return [
        make_steps(
            rows, state, task.penalty, task.rate, task.fit_intercept, task.average_start
        )
        for state in task.states
    ]
