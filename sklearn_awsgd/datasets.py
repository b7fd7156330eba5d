"""Problems to try the estimators on."""

import contextlib

import numpy as np
from sklearn.utils import check_random_state

from sklearn_awsgd._policy.environments import TabularMDP
from sklearn_awsgd._validation import check_number

__all__ = ["GridWorld"]

GYMNASIUM_ID = "sklearn_awsgd/GridWorld-v0"
# Moves of the four actions, as (rows, columns).
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class GridWorld:
    """The grid of the paper: a corner to reach, traps to avoid, and nothing else.

    The agent starts in the upper left cell of a square grid and moves up, down, left or
    right; a move off the grid leaves it where it is. Each step costs 1. The lower right
    cell pays 1000 and ends the episode, a trap costs 1000 and ends it too. Cell (row,
    column) is state ``row * size + column``.

    Parameters
    ----------
    size : int, default=15
        Number of rows and of columns.
    n_traps : int, default=None
        Number of traps. None is the paper's, size / 25, rounded up.
    goal_reward, trap_reward, step_reward : float, default=1000, -1000, -1
        Rewards. That of the step is also paid for the last one.
    max_steps : int, default=None
        Number of steps at which an episode is cut. None is ``4 * size**2``, which a
        random walk often needs. The smaller it is, the rarer is the reward.
    random_state : int, RandomState instance or None, default=None
        Where the traps are.

    Attributes
    ----------
    traps : ndarray of shape (n_traps,)
        States that are traps.
    n_states, n_actions : int
        ``size**2`` and 4.

    Notes
    -----
    With Gymnasium installed the grid is also registered there, as
    ``"sklearn_awsgd/GridWorld-v0"``, once this module is imported.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_awsgd.datasets import GridWorld
    >>> grid = GridWorld(5, random_state=0)
    >>> print(grid)
    S . . . .
    . . . . .
    . . X . .
    . . . . .
    . . . . G
    >>> uniform = np.full((grid.n_states, grid.n_actions), 1 / 4)
    >>> round(grid.to_mdp().evaluate(uniform).success, 3)
    0.153
    """

    n_actions = len(MOVES)

    def __init__(
        self,
        size=15,
        *,
        n_traps=None,
        goal_reward=1000.0,
        trap_reward=-1000.0,
        step_reward=-1.0,
        max_steps=None,
        random_state=None,
    ):
        check_number("size", size, low=2, integer=True)
        n_traps = -(-size // 25) if n_traps is None else n_traps
        check_number("n_traps", n_traps, low=0, high=size**2 - 2, integer=True)
        max_steps = 4 * size**2 if max_steps is None else max_steps
        check_number("max_steps", max_steps, low=1, integer=True)
        self.size = size
        self.goal_reward = goal_reward
        self.trap_reward = trap_reward
        self.step_reward = step_reward
        self.max_steps = max_steps
        self.n_states = size**2
        cells = 1 + check_random_state(random_state).permutation(size**2 - 2)
        self.traps = np.sort(cells[:n_traps])

    def next_states(self):
        """Return the next state of each state and action."""
        row, column = np.divmod(np.arange(self.n_states), self.size)
        last = self.size - 1
        return np.stack(
            [
                np.clip(row + down, 0, last) * self.size
                + np.clip(column + right, 0, last)
                for down, right in MOVES.values()
            ],
            axis=1,
        )

    def to_mdp(self):
        """Return the grid as a :class:`~sklearn_awsgd.TabularMDP`."""
        goal = np.arange(self.n_states) == self.n_states - 1
        trap = np.isin(np.arange(self.n_states), self.traps)
        rewards = np.where(goal, self.goal_reward, 0.0)
        rewards += np.where(trap, self.trap_reward, 0.0) + self.step_reward
        return TabularMDP(
            self.next_states(),
            rewards,
            goal | trap,
            goal=goal,
            max_steps=self.max_steps,
        )

    def to_gymnasium(self, render_mode=None):
        """Return the grid as a Gymnasium environment, which has to be installed."""
        from sklearn_awsgd._policy.gymnasium_grid import GridWorldEnv

        return GridWorldEnv(grid=self, render_mode=render_mode)

    def __str__(self):
        cells = np.full(self.n_states, ".")
        cells[self.traps] = "X"
        cells[0], cells[-1] = "S", "G"
        return "\n".join(map(" ".join, cells.reshape(self.size, self.size)))


def register_gymnasium():
    """Make the grid known to Gymnasium, where it is installed."""
    with contextlib.suppress(ImportError):
        import gymnasium

        if GYMNASIUM_ID not in gymnasium.registry:
            gymnasium.register(
                GYMNASIUM_ID,
                entry_point="sklearn_awsgd._policy.gymnasium_grid:GridWorldEnv",
            )


register_gymnasium()
