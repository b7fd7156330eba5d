"""What is to be seen of a run while it goes on: printed lines and callbacks."""

from functools import partial
from time import perf_counter

import numpy as np


class Reporter:
    """Tells of the passes of one problem.

    Parameters
    ----------
    name : str
        Of the problem; "" where there is only one.
    verbose : int
        Whether to print a line for each pass.
    target : str
        What to call ``tol * objective``; "" where nothing is compared with it.
    tol : float or None
        Tolerance of the run.
    task : FitTask or NoTask
        The problem, for callbacks.
    attributes : callable
        Takes parameters, or None for those that the run works on, and returns the
        attributes of an estimator that is fitted so far.
    stopped : threading.Event
        Set when a callback asks for an end.
    """

    def __init__(self, name, verbose, *, target, tol, task, attributes, stopped):
        self.name, self.verbose, self.target, self.tol = name, verbose, target, tol
        self.task, self.attributes, self.stopped = task, attributes, stopped
        self.n_passes = 0
        self._pass = None
        self._started = perf_counter()

    def begin_pass(self):
        """Tell callbacks that a pass begins."""
        self._pass = self.task.begin("pass")

    def end_pass(
        self, objective, duality_gap=np.nan, parameters=None, remark="", n_passes=1
    ):
        """Tell of a pass that is over; one that was not begun begins here.

        Parameters
        ----------
        objective, duality_gap : float
            As in ``history_``.
        parameters : callable, default=None
            Returns where the pass has led, if not to those that the run works on.
        remark : str, default=""
            To be printed behind.
        n_passes : int, default=1
            Number of passes that are told of as one.
        """
        self.n_passes += n_passes
        if self.verbose:
            self.say(
                f"pass {self.n_passes}",
                f"objective {objective:.8g}",
                f"gap {duality_gap:.3g}" if np.isfinite(duality_gap) else "",
                self._target(objective),
                remark,
            )
        if self._pass is None:
            self.begin_pass()
        if self._pass.end(partial(self._fitted, parameters)):
            self.stopped.set()
        self._pass = None

    def _fitted(self, parameters):
        """Return the attributes of an estimator that is fitted so far."""
        return self.attributes(None if parameters is None else parameters())

    def say(self, what, *facts):
        """Print a line: what happened, when, and the facts that are not empty."""
        name = f"{self.name}, " if self.name else ""
        seconds = perf_counter() - self._started
        print(f"{name}{what}, {seconds:.2f} s: {', '.join(filter(None, facts))}")

    def _target(self, objective):
        if not self.target or self.tol is None:
            return ""
        return f"{self.target} {self.tol * abs(objective):.3g}"
