"""Several rates of forgetting at once, weighted by how well they predict."""

import numpy as np


class Bank:
    """Weights of learners by their losses before each chunk was learned.

    Parameters
    ----------
    windows : tuple of float
        Rows that each learner remembers.
    """

    def __init__(self, windows):
        self.windows = tuple(windows)
        self.evidence = np.zeros(len(self.windows))
        self.mean_loss = 0.0
        self.n = 0.0

    @property
    def weights(self):
        v = np.exp(self.evidence.min() - self.evidence)
        return v / v.sum()

    def observe(self, losses, weight, is_log_loss):
        losses = np.array(losses)
        if not is_log_loss:
            self.n = self.n * np.exp(-weight / 5000) + weight
            self.mean_loss += (losses.min() - weight * self.mean_loss) / self.n
            losses = losses / (2 * self.mean_loss + 1e-300)
        self.evidence = np.exp(-weight / 5000) * self.evidence + losses
        self.evidence -= self.evidence.min()
        return None
