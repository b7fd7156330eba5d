"""What an estimator trains on: a table, played states, or played features.

A task makes the problem and the space of episodes, opens the sampler on them, and plays
episodes of a finished policy. It knows its environment and no estimator.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from sklearn_awsgd._kernels._episodes import EpisodeSpace
from sklearn_awsgd._kernels._policy import PolicyProblem
from sklearn_awsgd._policy.environments import as_table
from sklearn_awsgd._policy.episodes import ENDLESS, PlayedDraws, Player
from sklearn_awsgd._policy.linear_policy import (
    FeatureSpace,
    LinearPolicyProblem,
    LinearTrajectoryDraws,
)


@dataclass
class PolicySettings:
    """How the policy is trained; see :class:`sklearn_awsgd.AWSGDPolicyGradient`."""

    weights: str
    learning_rate: str
    eta0: float
    discount: float
    bonus: float
    baseline: bool


class StateReader:
    """How a finished policy of finitely many states is read.

    Parameters
    ----------
    n_states : int
        Number of states.
    """

    def __init__(self, n_states):
        self.n_states = n_states

    def probabilities(self, state, states):
        """Return the probabilities of the actions in states given by number."""
        states = np.asarray(states)
        if states.dtype.kind not in "iu":
            raise ValueError(
                f"states must be integers, the numbers of states; got {states.dtype}."
            )
        if states.size and not 0 <= states.min() <= states.max() < self.n_states:
            wrong = states.min() if states.min() < 0 else states.max()
            raise ValueError(
                f"state {wrong} is out of range, the policy knows states 0 to "
                f"{self.n_states - 1}."
            )
        return state["policy"][states]

    def attributes(self, state, sampler):
        """Return the fitted attributes."""
        policy = state["policy"].copy()
        behavior = policy if sampler.mixing == 1 else sampler.behavior_policy_
        return {"policy_": policy, "behavior_policy_": behavior.copy()}


class FeatureReader:
    """How a finished policy on features is read.

    Parameters
    ----------
    features : fitted transformer or callable
        Takes observations, one in a row, to features.
    """

    def __init__(self, features):
        self.features = features

    def transform(self, observations):
        """Return the features of observations."""
        transform = getattr(self.features, "transform", self.features)
        features = transform(np.asarray(observations, dtype=float))
        if hasattr(features, "toarray"):
            features = features.toarray()
        return np.asarray(features, dtype=float)

    def probabilities(self, state, observations):
        """Return the probabilities of the actions."""
        return softmax(self.transform(observations) @ state["coef"].T, axis=1)

    def attributes(self, state, sampler):
        """Return the fitted attributes."""
        return {"coef_": state["coef"].copy()}


class StateTask:
    """Finitely many states, numbered from zero: a policy for each.

    Parameters
    ----------
    n_states, n_actions : int
        Sizes.
    max_steps : int
        Number of steps at which an episode is cut.
    """

    knows_success = True

    def __init__(self, n_states, n_actions, max_steps):
        self.shape = n_states, n_actions
        self.max_steps = max_steps

    def first_state(self):
        """Return what is learned, before anything is."""
        n_states = self.shape[0]
        return {
            "policy": np.empty(self.shape),
            "logits": np.zeros(self.shape),
            "values": np.zeros((n_states, 2)),
            "squares": np.zeros(n_states),
            "scale": np.zeros(3),
            "visits": np.zeros(self.shape),
        }

    def make(self, state, settings):
        """Return the compiled problem, and the space it shares with the sampler."""
        space = EpisodeSpace(state["policy"], self.max_steps)
        problem = PolicyProblem(
            space,
            state,
            settings.weights,
            settings.learning_rate,
            settings.eta0,
            settings.discount,
            settings.bonus,
            settings.baseline,
        )
        return problem, space

    def is_finite(self, state):
        """Return whether the policy can be trusted."""
        return np.isfinite(state["policy"]).all()

    def reader(self):
        """Return what reads the finished policy, without the environment."""
        return StateReader(self.shape[0])


class TableTask(StateTask):
    """A table of transitions: everything is compiled.

    Parameters
    ----------
    mdp : TabularMDP
        The table.
    max_steps : int or None
        Number of steps at which an episode is cut; None leaves it to the table.
    """

    def __init__(self, mdp, max_steps):
        super().__init__(mdp.n_states, mdp.n_actions, mdp.limit(max_steps))
        self.simulator = mdp.simulator()

    def open(self, sampler, state, space, generator):
        """Return the compiled sampler."""
        sampler.prepare(space, 1, 1, None)
        return sampler.open(space, self.simulator, 0, generator)

    def returns(self, state, on_policy, n_episodes, generator):
        """Return rewards and successes of fresh episodes of the target policy."""
        space = EpisodeSpace(state["policy"], self.max_steps)
        opened = self.open(on_policy, state, space, generator)
        totals, successes = np.empty(n_episodes), np.empty(n_episodes)
        for k in range(n_episodes):
            opened.draw_points(1)
            episode = space.last_episode()
            totals[k] = episode["rewards"].sum()
            successes[k] = episode["ending"] == "success"
        return totals, successes


class PlayedTask:
    """What tasks share whose episodes are played in Python."""

    def _begin(self, env, max_steps):
        self.env = env
        self._given_limit = max_steps

    def _player(self, generator):
        rng = np.random.Generator(generator)
        self._last_player = Player(self.env, self.encode, self._given_limit, rng)
        return self._last_player

    @property
    def knows_success(self):
        """Whether the environment has said what success is."""
        return self._last_player.knows_success

    def returns(self, state, on_policy, n_episodes, generator):
        """Return rewards and successes of fresh episodes of the target policy."""
        player = self._player(generator)
        episodes = [
            player.play(lambda seen: self.probabilities(state, seen))
            for _ in range(n_episodes)
        ]
        totals = np.array([sum(episode.rewards) for episode in episodes])
        return totals, np.array([e.ending == "success" for e in episodes], dtype=float)


class PlayedStateTask(PlayedTask, StateTask):
    """An environment with finitely many states that gives no table."""

    def __init__(self, env, max_steps):
        space = env.observation_space
        limit = _limit(env, max_steps)
        StateTask.__init__(self, int(space.n), int(env.action_space.n), limit)
        self._begin(env, max_steps)
        self._first_state = int(getattr(space, "start", 0))

    def encode(self, observation):
        """Return the number of a state, counted from zero."""
        state = np.intp(observation) - self._first_state
        if not 0 <= state < self.shape[0]:
            raise ValueError(
                f"The environment returned the observation {observation!r}, which is "
                f"not in its observation space {self.env.observation_space}."
            )
        return state

    def probabilities(self, state, seen):
        """Return the probabilities of the actions."""
        return state["policy"][seen]

    def open(self, sampler, state, space, generator):
        """Return a sampler that plays, weighs and learns."""
        sampler.prepare(space, 1, 1, None)
        opened = sampler.open(space, None, 0, generator)
        behavior, mixing = sampler.behavior_policy_, sampler.mixing
        player = self._player(generator)
        return PlayedDraws(opened, space, state["policy"], behavior, mixing, player)


class FeatureTask(PlayedTask):
    """An environment whose observations are turned into features.

    Parameters
    ----------
    env : Gymnasium environment
        With finitely many actions.
    features : fitted transformer or callable
        Takes observations, one in a row, to features.
    max_steps : int or None
        Number of steps at which an episode is cut.
    """

    def __init__(self, env, features, max_steps):
        self._begin(env, max_steps)
        self.max_steps = _limit(env, max_steps)
        self._reader = FeatureReader(features)
        observation = env.observation_space.sample()
        self.shape = int(env.action_space.n), len(self.encode(observation))

    def is_finite(self, state):
        """Return whether the policy can be trusted."""
        return np.isfinite(state["coef"]).all()

    def reader(self):
        """Return what reads the finished policy, without the environment."""
        return self._reader

    def encode(self, observation):
        """Return the features of an observation."""
        return self._reader.transform(np.reshape(observation, (1, -1)))[0]

    def probabilities(self, state, seen):
        """Return the probabilities of the actions."""
        return softmax(state["coef"] @ seen)

    def first_state(self):
        """Return what is learned, before anything is."""
        width = self.shape[1]
        return {
            "coef": np.zeros(self.shape),
            "squares": np.zeros(width),
            "scale": np.zeros(1),
            "gram": np.zeros((width, width)),
            "moment": np.zeros(width),
        }

    def make(self, state, settings):
        """Return the problem, and the space it shares with the sampler."""
        space = FeatureSpace(state["coef"], self.max_steps)
        problem = LinearPolicyProblem(
            space,
            state,
            settings.weights,
            settings.learning_rate,
            settings.eta0,
            settings.discount,
            settings.baseline,
        )
        return problem, space

    def open(self, sampler, state, space, generator):
        """Return a sampler that plays, weighs and learns."""
        sampler.prepare_features(self.shape)
        player = self._player(generator)
        return LinearTrajectoryDraws(
            space, player, sampler.tau_, sampler._scale, sampler
        )


def make_task(env, features, max_steps):
    """Return the task of an environment.

    Parameters
    ----------
    env : TabularMDP, GridWorld or Gymnasium environment
        What the user hands in.
    features : transformer, callable or None
        What turns observations into features.
    max_steps : int or None
        Number of steps at which an episode is cut.
    """
    table = as_table(env)
    if features is not None:
        if not hasattr(env, "observation_space"):
            raise ValueError(
                "features=... is for Gymnasium environments with observations; this "
                "environment has a table of states. Use features=None."
            )
        return FeatureTask(env, features, max_steps)
    if table is not None:
        return TableTask(table, max_steps)
    if hasattr(env.observation_space, "n"):
        return PlayedStateTask(env, max_steps)
    raise ValueError(
        f"env has observations {env.observation_space}: give features=, a fitted "
        "transformer that takes observations to the features of a linear policy."
    )


def _limit(env, max_steps):
    """Return the number of steps that no episode exceeds."""
    own = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    return max_steps or own or ENDLESS
