"""Rules that decide after each pass whether to stop.

A rule is called with the objective of the pass, as estimated from its own draws, and
has `last_score`, the score of the pass on held-out data or NaN.
"""

import numpy as np


class StopRule:
    """Stop when the objective has not fallen enough for some passes in a row.

    Parameters
    ----------
    tol : float or None, default=None
        A pass counts as progress when it lowers the best objective so far by more than
        this fraction; None never stops.
    n_iter_no_change : int, default=1
        Number of passes without progress to stop after.
    together : bool, default=False
        Whether passes without progress add up: what is to be lowered is the objective
        of the last pass with progress, not the best so far. A fall that is slow but
        does not end is not the end then.
    """

    def __init__(self, tol=None, n_iter_no_change=1, together=False):
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.together = together
        self.best = np.inf
        self.n_stalled = 0
        self.last_score = np.nan

    def __call__(self, objective):
        """Take in the objective of a pass; return whether to stop."""
        if self.tol is None:
            return False
        first = np.isinf(self.best)
        progress = first or objective < self.best - self.tol * abs(self.best)
        self.n_stalled = 0 if progress else self.n_stalled + 1
        if progress or not self.together:
            self.best = min(self.best, objective)
        return self.n_stalled >= self.n_iter_no_change


class AdaptiveRate:
    """Divide the step size by five where another rule would stop.

    Parameters
    ----------
    rule : callable
        A stopping rule with a count `n_stalled`.
    problem : compiled Problem
        Its `eta0` is lowered, until it is less than 1e-6.
    """

    def __init__(self, rule, problem):
        self.rule = rule
        self.problem = problem

    def __call__(self, objective):
        """Take in the objective of a pass; return whether to stop."""
        if not self.rule(objective):
            return False
        if self.problem.eta0 < 1e-6:
            return True
        self.problem.eta0 /= 5
        self.rule.n_stalled = 0
        return False

    @property
    def last_score(self):
        """Return the score of the last pass, NaN without validation data."""
        return self.rule.last_score


class ValidationStop:
    """Stop when the score on held-out data has not risen for some passes in a row.

    Parameters
    ----------
    tol : float or None
        What a score must rise by, above the best so far, to count.
    n_iter_no_change : int
        Number of passes without a rise to stop after.
    score : callable
        Returns the score of the current parameters; higher is better.
    parameters : list of ndarray
        The parameters, of which the best are kept.
    """

    def __init__(self, tol, n_iter_no_change, score, parameters):
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.score = score
        self.parameters = parameters
        self.best_score = self.best_counted = -np.inf
        self.best_parameters = None
        self.n_stalled = 0
        self.last_score = np.nan

    def __call__(self, objective):
        """Score the parameters of a pass; return whether to stop."""
        self.last_score = score = self.score()
        # Of equal scores the latest: it has seen more.
        if score >= self.best_score:
            self.best_score = score
            self.best_parameters = [array.copy() for array in self.parameters]
        if score > self.best_counted + (self.tol or 0.0):
            self.best_counted = score
            self.n_stalled = 0
        else:
            self.n_stalled += 1
        return self.tol is not None and self.n_stalled >= self.n_iter_no_change

    def restore_best(self):
        """Give the parameters the values that scored best."""
        if self.best_parameters is not None:
            for array, best in zip(self.parameters, self.best_parameters, strict=True):
                array[:] = best
