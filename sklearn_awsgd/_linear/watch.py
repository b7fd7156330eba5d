"""What is to be seen of a fit of several problems while it goes on."""

import copy
from contextlib import contextmanager
from functools import partial
from threading import Event

import numpy as np

from sklearn_awsgd._callbacks import NoTask
from sklearn_awsgd._linear.steps import coefficients
from sklearn_awsgd._solver.progress import Reporter


class Watch:
    """Tells of the problems of a fit, and lets callbacks end them.

    Parameters
    ----------
    estimator : BaseAWSGD
        What is fitted.
    tasks : list of Task
        Its problems.
    rules : Rules
        How they are trained.
    budget : Budget
        What each may spend.
    fit_task : FitTask or None
        The fit, for callbacks. One problem alone is the fit.
    """

    def __init__(self, estimator, tasks, rules, budget, fit_task):
        self.estimator, self.tasks, self.budget = estimator, tasks, budget
        self.fit_task = NoTask() if fit_task is None else fit_task
        self.target = ""
        if rules.score is None:
            self.target = "target" if rules.to_optimum else "least fall"
        self._over = Event()
        self._stopped = [Event() for _ in tasks]
        self._coefficients = [self._current(task) for task in tasks]

    @contextmanager
    def problem(self, task):
        """Watch a problem; give its Reporter and its own Budget to the body."""
        estimator, stopped = self.estimator, self._stopped[task.number]
        name, told = estimator._problem_name(task.number), self.fit_task
        several = len(self.tasks) > 1
        if several:
            told = told.begin(name, estimator.max_iter, task.number)
        if self._over.is_set():
            stopped.set()
        yield (
            Reporter(
                name,
                estimator.verbose,
                target=self.target,
                tol=self.budget.tol,
                task=told,
                attributes=partial(self._attributes, task),
                stopped=stopped,
            ),
            self.budget.with_end(stopped),
        )
        # The problems that have not begun end as soon as they can.
        if several and told.end(partial(self._attributes, task, None)):
            self._over.set()

    def unstopped(self, outcomes):
        """Return the outcomes of problems that no callback has ended."""
        pairs = zip(outcomes, self._stopped, strict=True)
        return [outcome for outcome, stopped in pairs if not stopped.is_set()]

    def _current(self, task):
        return coefficients(task.states, self.estimator.average)

    def _attributes(self, task, v):
        """Return the fitted attributes, with the other problems as they were last.

        `v` are the parameters of the task, or None for those of its states.
        """
        if v is None:
            here = self._current(task)
        else:
            V = v.reshape(task.n_models, -1)
            here = V[:, :-1], V[:, -1]
        self._coefficients[task.number] = here
        coef, intercept = map(np.concatenate, zip(*self._coefficients, strict=True))
        dtype = task.data.X.dtype
        model = copy.copy(self.estimator)
        model._set_coefficients(coef.astype(dtype), intercept.astype(dtype))
        return {"coef_": model.coef_, "intercept_": model.intercept_}
