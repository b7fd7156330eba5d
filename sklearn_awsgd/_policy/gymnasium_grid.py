"""The grid world as a Gymnasium environment. Imported only where that is installed."""

import gymnasium
import numpy as np
from gymnasium import spaces

from sklearn_awsgd.datasets import GridWorld


class GridWorldEnv(gymnasium.Env):
    """A :class:`~sklearn_awsgd.datasets.GridWorld` with Gymnasium's interface.

    Parameters
    ----------
    render_mode : {"ansi", None}, default=None
        "ansi" draws the grid as text, with the agent as ``A``.
    grid : GridWorld, default=None
        The grid; None makes one from the other parameters.
    **params : dict
        Parameters of :class:`~sklearn_awsgd.datasets.GridWorld`.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(self, render_mode=None, grid=None, **params):
        self.grid = GridWorld(**params) if grid is None else grid
        self.render_mode = render_mode
        self.observation_space = spaces.Discrete(self.grid.n_states)
        self.action_space = spaces.Discrete(self.grid.n_actions)
        self._next_states = self.grid.next_states()
        self._state = self._n_steps = 0

    def to_mdp(self):
        """Return the table of transitions."""
        return self.grid.to_mdp()

    def reset(self, *, seed=None, options=None):
        """Go to the upper left cell."""
        super().reset(seed=seed)
        self._state = self._n_steps = 0
        return self._state, {}

    def step(self, action):
        """Move; return state, reward, terminated, truncated and info."""
        grid = self.grid
        self._state = int(self._next_states[self._state, int(action)])
        self._n_steps += 1
        at_goal = self._state == grid.n_states - 1
        trapped = self._state in grid.traps
        reward = float(
            grid.step_reward + at_goal * grid.goal_reward + trapped * grid.trap_reward
        )
        cut = self._n_steps >= grid.max_steps
        info = {"is_success": at_goal}
        return self._state, reward, bool(at_goal or trapped), cut, info

    def render(self):
        """Return the grid as text."""
        if self.render_mode != "ansi":
            return None
        rows = np.array([line.split(" ") for line in str(self.grid).splitlines()])
        rows[divmod(self._state, self.grid.size)] = "A"
        return "\n".join(map(" ".join, rows))
