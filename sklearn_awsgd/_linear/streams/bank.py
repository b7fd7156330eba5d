"""Several rates of forgetting at once, weighted by how well they predict."""

import math

import numpy as np

from sklearn_awsgd._kernels import _stream

# Rows after which evidence counts 1/e of what it did.
EVIDENCE_WINDOW = 5000.0
# What a learner that forgets has to make good, in units of evidence: logarithms of
# probabilities. It is not forgotten, however long nothing tells two learners apart:
# where it was, like evidence, losses of cover_2v4 in ten orders were up to 40 % higher.
LASTING_HANDICAP = 5.0
# What a shift of the intercept has to make good when it begins.
HANDICAP = 3.0
# Windows that have to be full before a learner begins that is not costly: one that has
# forgotten next to nothing only adds noise (a loss 1.5 % higher on w8a with one).
WINDOWS_TO_BEGIN = 2.0
# Evidence at which a learner that lost goes on from the past of the one that won.
RESTART = 15.0
# A chunk is a surprise when its loss is so many standard deviations above the mean, if
# that is of so many chunks.
SURPRISE, KNOWN_LOSSES = 4.0, 2.5
# No learner is further behind than this, so that one whose time comes is soon heard.
FURTHEST = 20.0
# Chunks without great losses after which learners may sleep.
CALM = 3


# Rows that a moving intercept remembers, a prior of it at zero, and its Newton steps;
# and the curvature of what is not to move.
SHIFT_WINDOW, SHIFT_PRIOR, SHIFT_STEPS, KNOWN = 1000.0, 1.0, 2, 1e30


class Shift:
    """An intercept that forgets, for a learner that does not.

    Where only the balance of the classes drifts, all else that was learned holds. It is
    used as far as it predicts better than no shift.

    Attributes
    ----------
    value : float
        What to add to the scores of the learner.
    """

    def __init__(self):
        self.value = 0.0
        self._best, self._curvature, self._slope = 0.0, 0.0, 0.0
        self._behind = HANDICAP

    def observe(self, problem, y, scores, a, raw):
        """Take in the scores of rows before they were learned.

        Returns
        -------
        loss : float
            Of the rows with the shift; without it that is `raw`.
        """
        loss, weight = problem.total(y, scores + self.value, a), a.sum()
        keep, gains = math.exp(-weight / SHIFT_WINDOW), np.empty(5)
        self._curvature *= keep
        self._slope *= keep
        # A calibration whose slope is known to be 1.
        point, curvature = np.array([1.0, self._best]), self._curvature + SHIFT_PRIOR
        prior = np.array([KNOWN, 0.0, curvature, KNOWN, self._slope])
        own = _stream.calibrate(
            problem.loss, scores, y, a, point, prior, SHIFT_STEPS, gains
        )
        behind = math.exp(-weight / EVIDENCE_WINDOW) * self._behind + own - raw
        self._behind = min(max(behind, -FURTHEST), FURTHEST)
        self._best = float(point[1])
        self._curvature += gains[2]
        self._slope += gains[4] - gains[1]
        self.value = self._best / (1 + math.exp(self._behind))
        return loss


class Bank:
    """Weights of learners by their losses before each chunk was learned.

    Parameters
    ----------
    windows : tuple of float
        Rows that each learner remembers, in the order in which they begin.
    on_demand : bool, default=False
        Whether the third and later ones, because they are costly, begin only when drift
        shows, and end when they are of no use.

    Attributes
    ----------
    behind : ndarray of shape (n_learners,)
        Discounted loss of each learner and its handicap, less those of the best.
    """

    def __init__(self, windows, on_demand=False):
        self.windows, self.on_demand = tuple(windows), on_demand
        self.behind = np.full(len(self.windows), LASTING_HANDICAP)
        self.behind[0] = 0.0
        # Mean of the losses of the best, their variance for rows of weight 1, and what
        # both are means of.
        self.mean_loss, self.variance, self.weight = 0.0, 0.0, 0.0
        # Whether the last chunk was a surprise, and chunks since one that cost much.
        self.surprised, self.calm = False, 0

    def weights(self, n_learners):
        """Return the weights of the first learners, those that have begun."""
        weights = np.exp(-self.behind[:n_learners])
        return weights / weights.sum()

    def is_due(self, k, n):
        """Return whether learner k begins: not before there is what to forget.

        On demand only when the one before it is ahead, or when the last chunk was a
        surprise, so that streams without drift do not pay for it.
        """
        if k == len(self.windows):
            return False
        if not self.on_demand:
            return n >= WINDOWS_TO_BEGIN * self.windows[k]
        due = n >= self.windows[k]
        if not due or k == 1:
            return due
        return self.surprised or self.behind[k - 1] < self.behind[: k - 1].min()

    def is_over(self, k):
        """Return whether learner k ends: one of those that only drift calls for."""
        over = self.on_demand and k > 1 and self.behind[k] >= FURTHEST
        if over:
            self.behind[k] = LASTING_HANDICAP
        return over

    def may_sleep(self, k, loss, weight, is_log_loss):
        """Return whether learner k need not be looked at.

        It is as far behind as can be, and the first has not lost much more than it used
        to, in this chunk and those just before.
        """
        calm = self.calm >= CALM and not self._costs_much(loss, weight, is_log_loss)
        return calm and self.behind[k] >= FURTHEST

    def _costs_much(self, loss, weight, is_log_loss):
        unit = 1.0 if is_log_loss else 2 * self.mean_loss + 1e-300
        return loss - weight * self.mean_loss > FURTHEST * unit

    def observe(self, losses, weight, is_log_loss):
        """Take in the losses of a chunk before it was learned.

        Parameters
        ----------
        losses : list of float or None
            Sum of the losses of each learner; None for those furthest behind, which
            stay there.
        weight : float
            What the rows weigh.
        is_log_loss : bool
            Whether losses are logarithms of probabilities. Others are taken for the
            exponents of a distribution whose width is that of the losses so far.

        Returns
        -------
        winner : int
            The learner that those before it should go on from; 0 is none.
        """
        keep, n = math.exp(-weight / EVIDENCE_WINDOW), len(losses)
        # None becomes NaN, which `fmin` leaves out.
        losses = np.array(losses, dtype=float)
        costly = self._costs_much(losses[0], weight, is_log_loss)
        self.calm = 0 if costly else self.calm + 1
        self._watch(np.fmin.reduce(losses), weight, keep)
        if not is_log_loss:
            losses /= 2 * self.mean_loss + 1e-300
        handicap = LASTING_HANDICAP * (np.arange(n) > 0)
        behind = keep * (self.behind[:n] - handicap) + handicap + losses
        behind = np.fmin(behind - np.fmin.reduce(behind), FURTHEST)
        self.behind[:n] = behind
        winner = int(behind.argmin())
        if winner and behind[0] > RESTART:
            self.behind[:winner] = 0.0
            return winner
        return 0

    def _watch(self, loss, weight, keep):
        """Take in the loss of the best learner, and see whether it is a surprise."""
        excess, before = loss - weight * self.mean_loss, self.weight
        self.surprised = (
            before > KNOWN_LOSSES * weight
            and excess > SURPRISE * math.sqrt(weight * self.variance)
        )
        self.weight = keep * before + weight
        self.mean_loss += excess / self.weight
        if before:
            gap = excess * excess / weight - self.variance
            self.variance += weight / self.weight * gap
