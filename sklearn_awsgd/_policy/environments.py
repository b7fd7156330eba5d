"""Tables of transitions, and how an environment becomes one."""

import numbers
from dataclasses import dataclass

import numpy as np

from sklearn_awsgd._kernels._episodes import ENDINGS, OUTCOME, Simulator
from sklearn_awsgd._validation import check_number

# Where neither the environment nor the user names a limit, an episode has this many
# steps for each state, and at least so many.
STEPS_PER_STATE = 10
LEAST_LIMIT = 1000
# Wrappers of Gymnasium that leave the table of transitions as it is.
TRANSPARENT_WRAPPERS = ("TimeLimit", "OrderEnforcing", "PassiveEnvChecker")


@dataclass
class PolicyValue:
    """What a policy is worth, exactly.

    Attributes
    ----------
    mean_return : float
        Expected sum of the rewards of an episode, not discounted.
    success : float
        Probability that an episode ends at a goal.
    n_steps : float
        Expected number of steps.
    """

    mean_return: float
    success: float
    n_steps: float


class TabularMDP:
    """A Markov decision process given by arrays.

    Parameters
    ----------
    transitions : array-like
        Either the next state of each state and action, integers of shape (n_states,
        n_actions), or probabilities of shape (n_states, n_actions, n_states) that sum
        to one.
    rewards : array-like
        Of shape (n_states, n_actions), or (n_states, n_actions, n_states) where they
        depend on the next state, or (n_states,) for entering a state.
    terminal : array-like of shape (n_states,)
        Boolean; an episode ends when it enters such a state.
    start : int or array-like of shape (n_states,), default=0
        The state that episodes begin in, or the probabilities of all states.
    goal : array-like of shape (n_states,), default=None
        Boolean; the terminal states that count as success. None takes those that are
        entered with the largest reward that ends an episode.
    max_steps : int, default=None
        Number of steps after which an episode is cut. None is ten for each state, at
        least 1,000.

    Attributes
    ----------
    n_states, n_actions, max_steps : int
        Sizes.

    Examples
    --------
    A corridor of five states with a reward at its right end.

    >>> import numpy as np
    >>> from sklearn_awsgd import TabularMDP
    >>> state = np.arange(5)
    >>> mdp = TabularMDP(
    ...     np.stack([np.maximum(state - 1, 0), np.minimum(state + 1, 4)], axis=1),
    ...     rewards=[0, 0, 0, 0, 1],
    ...     terminal=state == 4,
    ... )
    >>> mdp.evaluate(np.tile([0, 1], (5, 1)))
    PolicyValue(mean_return=1.0, success=1.0, n_steps=4.0)
    """

    def __init__(
        self, transitions, rewards, terminal, *, start=0, goal=None, max_steps=None
    ):
        transitions = np.asarray(transitions)
        terminal = _mask("terminal", terminal, len(transitions))
        if transitions.ndim == 2:
            outcomes = _from_next_states(transitions)
        elif transitions.ndim == 3:
            outcomes = _from_probabilities(transitions)
        else:
            raise ValueError(
                f"transitions has shape {transitions.shape}; give next states of shape "
                "(n_states, n_actions) or probabilities of shape (n_states, n_actions, "
                "n_states)."
            )
        n_states, n_actions = transitions.shape[:2]
        pairs, probabilities, states = outcomes
        _check_states(states, n_states)
        rewards = _rewards_of(rewards, pairs, states, n_states, n_actions)
        if goal is not None:
            goal = _mask("goal", goal, n_states)[states]
        self._assign(
            (n_states, n_actions),
            (pairs, probabilities, states, rewards, terminal[states]),
            start,
            goal,
            max_steps,
        )
        begins = np.zeros(n_states, dtype=bool)
        begins[self._start_states] = True
        if (begins & terminal).any():
            raise ValueError(
                f"start: state {np.flatnonzero(begins & terminal)[0]} is terminal; an "
                "episode has to begin in a state where there is something to do."
            )

    @classmethod
    def from_table(cls, P, start, *, max_steps=None):
        """Return the MDP of a table as Gymnasium's toy environments have it.

        Parameters
        ----------
        P : dict or list
            ``P[state][action]`` is a list of (probability, next state, reward, ended).
        start : array-like of shape (n_states,)
            Probabilities of the first state.
        max_steps : int, default=None
            As of the class.

        Returns
        -------
        mdp : TabularMDP
            The process.
        """
        n_states, n_actions = len(P), len(P[0])
        rows = [
            (s * n_actions + a, *outcome)
            for s in range(n_states)
            for a in range(n_actions)
            for outcome in P[s][a]
            if outcome[0] > 0
        ]
        pairs, probabilities, states, rewards, ended = map(
            np.asarray, zip(*rows, strict=True)
        )
        _check_states(states, n_states)
        mdp = cls.__new__(cls)
        columns = (pairs, probabilities.astype(float), states, rewards.astype(float))
        mdp._assign((n_states, n_actions), (*columns, ended), start, None, max_steps)
        return mdp

    def _assign(self, shape, outcomes, start, goal, max_steps):
        """Check the outcomes and keep them in the layout of the simulator."""
        pairs, probabilities, states, rewards, ended = outcomes
        self.n_states, self.n_actions = n_states, n_actions = shape
        if max_steps is not None:
            check_number("max_steps", max_steps, low=1, integer=True)
        self.max_steps = max_steps
        if not np.isfinite(rewards).all():
            pair = pairs[~np.isfinite(rewards)][0]
            raise ValueError(
                f"rewards: that of state {pair // n_actions}, action "
                f"{pair % n_actions} is NaN or infinite."
            )
        _check_probabilities(pairs, probabilities, n_states, n_actions)
        order = np.argsort(pairs, kind="stable")
        counts = np.bincount(pairs, minlength=n_states * n_actions)
        self._first = np.concatenate([[0], np.cumsum(counts)]).astype(np.intp)
        self._outcomes = table = np.zeros(len(order), dtype=OUTCOME)
        sums = np.cumsum(probabilities[order])
        before = np.concatenate([[0.0], sums])[self._first[:-1]]
        table["cumulative"] = sums - np.repeat(before, counts)
        # Exactly one, whatever the rounding: the last outcome takes what is left.
        table["cumulative"][self._first[1:] - 1] = 1.0
        table["state"] = states[order]
        table["reward"] = rewards[order]
        table["ending"] = np.where(ended, ENDINGS["ended"], ENDINGS["cut"])[order]
        self._start_states, self._start_cumulative = _check_start(start, n_states)
        if goal is None:
            ends = self._possible() & (table["ending"] == ENDINGS["ended"])
            goal = ends & (
                table["reward"] == table["reward"][ends].max(initial=-np.inf)
            )
        else:
            goal = goal[order] & (table["ending"] == ENDINGS["ended"])
        table["ending"][goal] = ENDINGS["success"]

    def simulator(self):
        """Return the compiled simulator."""
        return Simulator(
            self._outcomes,
            self._first,
            self._start_states,
            self._start_cumulative,
            self.n_actions,
        )

    def limit(self, max_steps=None):
        """Return the number of steps at which an episode is cut.

        Raises
        ------
        ValueError
            When nobody names a limit and no episode can ever end.
        """
        if max_steps is None:
            max_steps = self.max_steps
        if max_steps is not None:
            return max_steps
        if not self._can_end():
            raise ValueError(
                "The environment never ends: no terminal state can be reached from its "
                "start. Give max_steps, the number of steps at which to cut an episode."
            )
        return max(LEAST_LIMIT, STEPS_PER_STATE * self.n_states)

    def _possible(self):
        """Return which outcomes can ever happen."""
        pairs = np.repeat(np.arange(len(self._first) - 1), np.diff(self._first))
        sources = pairs // self.n_actions
        goes_on = self._outcomes["ending"] == ENDINGS["cut"]
        reached = np.zeros(self.n_states, dtype=bool)
        reached[self._start_states] = True
        n_reached = 0
        while reached.sum() > n_reached:
            n_reached = reached.sum()
            reached[self._outcomes["state"][reached[sources] & goes_on]] = True
        return reached[sources]

    def _can_end(self):
        """Return whether an end can be reached from the start."""
        return (self._outcomes["ending"][self._possible()] != ENDINGS["cut"]).any()

    def evaluate(self, policy, max_steps=None):
        """Return the exact worth of a policy, by recursion over time.

        Parameters
        ----------
        policy : array-like of shape (n_states, n_actions)
            Probabilities of the actions.
        max_steps : int, default=None
            Number of steps at which episodes are cut; None as in training.

        Returns
        -------
        value : PolicyValue
            Expected return, success and number of steps.
        """
        policy = np.ascontiguousarray(policy, dtype=np.float64)
        if policy.shape != (self.n_states, self.n_actions):
            raise ValueError(
                f"policy has shape {policy.shape}, the environment has "
                f"{self.n_states} states and {self.n_actions} actions."
            )
        return PolicyValue(*self.simulator().evaluate(policy, self.limit(max_steps)))


def _mask(name, values, n_states):
    values = np.asarray(values)
    if values.shape != (n_states,) or values.dtype.kind not in "bi":
        raise ValueError(
            f"{name} must have a boolean for each of the {n_states} states, got an "
            f"array of shape {values.shape} and type {values.dtype}."
        )
    return values.astype(bool)


def _check_states(states, n_states):
    outside = (states < 0) | (states >= n_states)
    if outside.any():
        raise ValueError(
            f"transitions: next state {states[outside][0]} is out of range, there are "
            f"states 0 to {n_states - 1}."
        )


def _from_next_states(transitions):
    if transitions.dtype.kind not in "iu":
        raise ValueError(
            "transitions of shape (n_states, n_actions) are next states and must be "
            f"integers, got {transitions.dtype}."
        )
    states = transitions.ravel()
    return np.arange(states.size), np.ones(states.size), states


def _from_probabilities(transitions):
    n_states, _, n_next = transitions.shape
    if n_next != n_states:
        raise ValueError(
            f"transitions has shape {transitions.shape}: its first and its last size, "
            "both the number of states, differ."
        )
    flat = transitions.reshape(-1, n_states).astype(float)
    # NaN is kept, to be found by the check of the sums.
    pairs, states = np.nonzero(~(flat == 0))
    return pairs, flat[pairs, states], states


def _rewards_of(rewards, pairs, states, n_states, n_actions):
    """Return the reward of each outcome."""
    rewards = np.asarray(rewards, dtype=np.float64)
    if rewards.shape == (n_states,):
        return rewards[states]
    if rewards.shape == (n_states, n_actions):
        return rewards.ravel()[pairs]
    if rewards.shape == (n_states, n_actions, n_states):
        return rewards.reshape(-1, n_states)[pairs, states]
    raise ValueError(
        f"rewards has shape {rewards.shape}; give one for each pair, "
        f"{(n_states, n_actions)}, for each state that is entered, {(n_states,)}, or "
        f"for each pair and next state, {(n_states, n_actions, n_states)}."
    )


def _check_probabilities(pairs, probabilities, n_states, n_actions):
    size = n_states * n_actions
    sums = np.bincount(pairs, weights=probabilities, minlength=size)
    # NaN is not close to one either.
    wrong = ~(np.abs(sums - 1) <= 1e-8)
    if wrong.any():
        pair = np.flatnonzero(wrong)[0]
        raise ValueError(
            f"transitions: the probabilities of state {pair // n_actions}, action "
            f"{pair % n_actions} sum to {sums[pair]:.6g} and not to one."
        )
    if probabilities.min() < 0:
        pair = pairs[probabilities.argmin()]
        raise ValueError(
            f"transitions: state {pair // n_actions}, action {pair % n_actions} has a "
            f"negative probability, {probabilities.min():.6g}."
        )


def _check_start(start, n_states):
    """Return the states that an episode can begin in, and cumulative probabilities."""
    if isinstance(start, numbers.Integral):
        if not 0 <= start < n_states:
            raise ValueError(
                f"start={start} is out of range, there are states 0 to {n_states - 1}."
            )
        return np.array([start], dtype=np.intc), np.ones(1)
    start = np.asarray(start, dtype=np.float64)
    if start.shape != (n_states,) or not (start >= 0).all():
        raise ValueError(
            "start must be a state or a probability for each of the "
            f"{n_states} states, got an array of shape {start.shape}."
        )
    if not abs(start.sum() - 1) <= 1e-8:
        raise ValueError(f"start: the probabilities sum to {start.sum():.6g}, not one.")
    states = np.flatnonzero(start)
    cumulative = np.cumsum(start[states])
    cumulative[-1] = 1.0
    return states.astype(np.intc), cumulative


def as_table(env):
    """Return the table of an environment, or None where it has none.

    Parameters
    ----------
    env : TabularMDP, GridWorld or Gymnasium environment
        What a user hands in.

    Returns
    -------
    mdp : TabularMDP or None
        The process. None for an environment without a table of its transitions, or
        with wrappers that may change what the table says.
    """
    if isinstance(env, TabularMDP):
        return env
    if hasattr(env, "to_mdp"):
        return env.to_mdp()
    _check_interface(env)
    bare, max_steps = env, None
    while type(bare).__name__ in TRANSPARENT_WRAPPERS and hasattr(bare, "env"):
        # The limit of the innermost wrapper or of the outermost, whichever is less.
        own = getattr(bare, "_max_episode_steps", None)
        max_steps = own if max_steps is None else min(max_steps, own or max_steps)
        bare = bare.env
    if bare is not env.unwrapped:
        return None
    if hasattr(bare, "to_mdp"):
        mdp = bare.to_mdp()
        mdp.max_steps = mdp.max_steps if max_steps is None else max_steps
        return mdp
    P, start = getattr(bare, "P", None), getattr(bare, "initial_state_distrib", None)
    if P is None or start is None or not hasattr(env.observation_space, "n"):
        return None
    return TabularMDP.from_table(P, start, max_steps=max_steps)


def _check_interface(env):
    needed = ("reset", "step", "action_space", "observation_space")
    missing = [name for name in needed if not hasattr(env, name)]
    if missing:
        raise TypeError(
            f"env={env!r} is neither a TabularMDP, a GridWorld nor a Gymnasium "
            f"environment: it has no {missing[0]}."
        )
    if not hasattr(env.action_space, "n"):
        raise ValueError(
            f"env has actions {env.action_space}; a softmax policy needs finitely many "
            "(gymnasium.spaces.Discrete)."
        )
