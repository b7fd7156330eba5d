"""Which rows of a stage were asked for and drawn."""

from dataclasses import dataclass

import numpy as np

from sklearn_awsgd._importance.stage import Drawn, Scores, Stage


@dataclass(frozen=True)
class Asked:
    """Rows to evaluate, and how many of them are of each cell."""

    rows: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class Design:
    """How the rows of a stage were drawn, which any function may be estimated from.

    Attributes
    ----------
    rows, cells : ndarray of shape (n_drawn,)
        The rows and their cells.
    sizes : ndarray of shape (n_cells,)
        Rows of each cell.
    known_before : ndarray
        Rows known before.
    n_groups : int
        Number of labels.
    score : ndarray of shape (n_drawn,) or None
        Score of each row.
    scores : Scores or None
        What is known of the scores of all rows.
    """

    rows: np.ndarray
    cells: np.ndarray
    sizes: np.ndarray
    known_before: np.ndarray
    n_groups: int
    score: np.ndarray | None
    scores: Scores | None

    def stage(self, rounds, values, target):
        """Return the moments of a function, given its values at the rows drawn."""
        mass = rounds.pool.mass[self.rows, None]
        unit = 1 / rounds.pool.n_points
        return Stage(
            Drawn(self.cells, mass * values[self.rows], self.score, unit),
            self.sizes,
            rounds.known_sum(self.known_before, values),
            rounds.half_mass,
            target,
            self.n_groups,
            self.scores,
        )


class Columns:
    """Arrays that grow at their ends, in the order of evaluation.

    The rows of a pool lie anywhere in memory; what is learned from all of them again
    and again is faster to read from here.
    """

    def __init__(self):
        self._parts = {}

    def append(self, name, array):
        """Add to the end of a column."""
        self._parts.setdefault(name, []).append(array)

    def get(self, name, dtype=np.float64):
        """Return a whole column."""
        parts = self._parts.get(name, [])
        if len(parts) > 1:
            self._parts[name] = parts = [np.concatenate(parts)]
        return parts[0] if parts else np.zeros(0, dtype=dtype)
