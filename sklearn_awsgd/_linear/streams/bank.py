"""Several rates of forgetting at once, weighted by how well they predict."""

import numpy as np

# Rows after which evidence counts 1/e of what it did.
EVIDENCE_WINDOW = 5000.0
# What a learner that forgets has to make good when it begins, in units of evidence:
# logarithms of probabilities.
HANDICAP = 3.0
# Evidence at which a learner that lost goes on from the past of the one that won.
RESTART = 15.0
# No learner is further behind than this, so that one whose time comes is soon heard.
FURTHEST = 20.0


class Bank:
    """Weights of learners by their losses before each chunk was learned.

    Parameters
    ----------
    windows : tuple of float
        Rows that each learner remembers, from the longest to the shortest.

    Attributes
    ----------
    behind : ndarray of shape (n_learners,)
        Discounted loss of each learner, less that of the best.
    """

    def __init__(self, windows):
        self.windows = tuple(windows)
        self.behind = np.full(len(self.windows), HANDICAP)
        self.behind[0] = 0.0
        self.mean_loss, self.weight = 0.0, 0.0

    def weights(self, n_learners):
        """Return the weights of the first learners, those that have begun."""
        weights = np.exp(-self.behind[:n_learners])
        return weights / weights.sum()

    def is_due(self, k, n):
        """Return whether learner k begins: not before there is what to forget."""
        return k < len(self.windows) and n >= self.windows[k]

    def observe(self, losses, weight, is_log_loss):
        """Take in the losses of a chunk before it was learned.

        Parameters
        ----------
        losses : list of float
            Sum of the losses of each learner.
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
        losses, keep = np.array(losses), np.exp(-weight / EVIDENCE_WINDOW)
        if not is_log_loss:
            self.weight = keep * self.weight + weight
            self.mean_loss += (losses.min() - weight * self.mean_loss) / self.weight
            losses /= 2 * self.mean_loss + 1e-300
        n = len(losses)
        behind = keep * self.behind[:n] + losses
        behind -= behind.min()
        self.behind[:n] = np.minimum(behind, FURTHEST)
        winner = int(behind.argmin())
        if winner and behind[0] > RESTART:
            self.behind[:winner] = 0.0
            return winner
        return 0
