"""The middle of ``learning_rate="auto"`` for wide data: when it starts and ends.

Where there are too many features for their curvature, passes of steps with control
variates (:class:`~sklearn_awsgd._kernels._dual.DualSteps`) come before the finish. A
pass of them costs about as much as one exact gradient, and their dual objective is a
lower bound of the minimum that is tight enough to stop by.
"""

import numpy as np

# The curvature of a row, relative to what the penalty gives it. The steps converge in
# about as many passes, so beyond this the finish is quicker.
LARGEST_RATIO = 8.0
# Two passes that leave more of the gap than this are slow: the finish is quicker.
SLOW = 0.7
# What holds the intercept, relative to its curvature at the start. Tried from 1 to
# 1e-4: the larger, the slower the intercept; the smaller, the less steady all else.
HOLD = 0.003


def curvature_ratio(loss, target, intercept, mass, norms2, alpha):
    """Return the mean curvature of a row, and it relative to the penalty's."""
    curvatures = loss.second_derivatives(target, np.full(len(target), intercept))
    mass = np.full(len(target), 1 / len(target)) if mass is None else mass
    curvature = mass @ curvatures
    return curvature, curvature * (mass @ norms2) / (alpha * len(target))


class DualStop:
    """Stop when the duality gap is small enough, or shrinks too slowly.

    The gap is guessed from those of the rows as they were met in a pass; when the guess
    is small enough, one exact pass tells.

    Parameters
    ----------
    problem : DualSteps
        The problem that is stepped; the center of its intercept is moved.
    evaluate : callable
        Takes the dual point of the variates and returns the exact point of the current
        parameters, at the cost of a pass.
    tol : float
        Relative gap to reach.

    Attributes
    ----------
    point : Point or None
        Where the gap was small enough.
    n_passes : int
        Number of exact passes.
    """

    last_score = np.nan

    def __init__(self, problem, evaluate, tol):
        self.problem, self.evaluate, self.tol = problem, evaluate, tol
        self.point, self.n_passes = None, 0
        # What the rows met in the last passes had of the gap.
        self._met = []
        # The gap over that of the rows as they were met, as last seen.
        self._known_ratio = None

    def __call__(self, objective):
        """Take in a pass; return whether to stop."""
        self._met.append(self.problem.take_gap())
        last = self._met[-1]
        if len(self._met) > 1:
            ratio = self._known_ratio or np.sqrt(last / self._met[-2])
            if ratio * last <= self.tol * objective:
                point = self.evaluate(self.problem.dual_point())
                self.n_passes += 1
                self._known_ratio = point.gap / last
                if point.gap <= self.tol * point.value:
                    self.point = point
                    return True
        self.problem.recenter()
        return len(self._met) > 2 and last > SLOW * self._met[-3]
