"""The batch door: episodes of environments that have no table of transitions."""

from dataclasses import dataclass

import numpy as np

from sklearn_awsgd._kernels._loop import POINT
from sklearn_awsgd.samplers.base import OpenedSampler

# An episode this long, in an environment without a limit, is taken for endless.
ENDLESS = 100_000


@dataclass
class PlayedEpisode:
    """An episode that was played in Python.

    Attributes
    ----------
    states : list
        What the policy saw before each step, and at the end.
    actions : list of int
        Actions, counted from zero.
    rewards : list of float
        Rewards.
    ending : {"cut", "ended", "success"}
        How it ended.
    """

    states: list
    actions: list
    rewards: list
    ending: str


class Player:
    """Plays episodes of a Gymnasium environment.

    Parameters
    ----------
    env : Gymnasium environment
        With finitely many actions.
    encode : callable
        Takes an observation to what the policy sees of it.
    max_steps : int or None
        Number of steps at which an episode is cut; None leaves it to the environment.
    rng : numpy.random.Generator
        Seeds the environment and draws the actions.

    Attributes
    ----------
    knows_success : bool
        Whether the environment has said ``info["is_success"]`` at the end of an
        episode.
    """

    def __init__(self, env, encode, max_steps, rng):
        self.env = env
        self.encode = encode
        self.max_steps = max_steps
        self.rng = rng
        self.first_action = int(getattr(env.action_space, "start", 0))
        self.knows_success = False
        self._seed = int(rng.integers(2**31))

    def play(self, probabilities):
        """Play an episode.

        Parameters
        ----------
        probabilities : callable
            Takes what the policy sees to the probabilities of the actions.

        Returns
        -------
        episode : PlayedEpisode
            What happened.
        """
        observation, _ = self.env.reset(seed=self._seed)
        # The environment goes on with its own stream.
        self._seed = None
        limit = ENDLESS if self.max_steps is None else self.max_steps
        states, actions, rewards = [self.encode(observation)], [], []
        while len(actions) < limit:
            cumulative = np.cumsum(probabilities(states[-1]))
            action = int(np.searchsorted(cumulative, self.rng.random(), side="right"))
            action = min(action, len(cumulative) - 1)
            observation, reward, ended, cut, info = self.env.step(
                action + self.first_action
            )
            if not np.isfinite(reward):
                raise ValueError(
                    f"The environment returned the reward {reward!r} after "
                    f"{len(actions) + 1} steps; rewards must be finite."
                )
            states.append(self.encode(observation))
            actions.append(action)
            rewards.append(float(reward))
            if ended or cut:
                break
        else:
            ended = False
            if self.max_steps is None:
                raise ValueError(
                    f"The environment has not ended after {ENDLESS} steps. Give "
                    "max_steps, the number of steps at which to cut an episode."
                )
        self.knows_success |= "is_success" in info
        ending = "cut"
        if ended:
            ending = "success" if info.get("is_success") else "ended"
        return PlayedEpisode(states, actions, rewards, ending)


class PlayedDraws(OpenedSampler):
    """Episodes played in Python for a compiled problem and a compiled sampler.

    The compiled sampler weighs the episodes and learns from them.

    Parameters
    ----------
    sampler : TrajectoryDraws
        Compiled, opened without a simulator.
    space : EpisodeSpace
        Where episodes are put.
    policy, behavior : ndarray of shape (n_states, n_actions)
        The two parts of the mixture, kept up to date by problem and sampler.
    mixing : float
        Share of the episodes that follow `policy`.
    player : Player
        Plays them.
    """

    def __init__(self, sampler, space, policy, behavior, mixing, player):
        self.sampler = sampler
        self.space = space
        self.parts = policy, behavior
        self.mixing = mixing
        self.player = player

    def draw_points(self, n_points):
        """Play one episode, put it into the space, and return its point."""
        origin = int(self.mixing < 1 and self.player.rng.random() >= self.mixing)
        table = self.parts[origin]
        episode = self.player.play(lambda state: table[state])
        self.space.place(
            episode.states, episode.actions, episode.rewards, episode.ending
        )
        point = np.zeros(1, dtype=POINT)
        point["i"], point["origin"] = episode.states[0], origin
        point["q"] = self.sampler.weigh()
        return point

    def densities(self):
        """Return q of the first t steps of the last episode, for every t."""
        return self.sampler.densities()

    def observe_points(self, points):
        """Learn from the episode."""
        self.sampler.observe_points(points)
