"""NumPy twin of the policy kernels, and all episodes of a small process."""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax
from sklearn_awsgd._kernels._episodes import EpisodeSpace
from sklearn_awsgd._kernels._policy import PolicyProblem

from sklearn_awsgd import TabularMDP
from sklearn_awsgd.samplers import TrajectorySampler

POLICY = {
    "weights": "suffix",
    "rate": "constant",
    "eta0": 1.0,
    "discount": 0.9,
    "bonus": 0.0,
    "baseline": True,
}


def small_mdp(seed=0, max_steps=4, sparse=False):
    """Three states that go on and two that end, two actions, random outcomes.

    A sparse one pays nothing but at a single, rare end.
    """
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.full(5, 0.7), size=(5, 2))
    # Some outcomes are certain, some are impossible.
    transitions[0, 0] = [0, 1, 0, 0, 0]
    transitions[1, 1] = [0.5, 0, 0.5, 0, 0]
    rewards = rng.normal(size=(5, 2, 5))
    if sparse:
        transitions[:, :, 4] *= 0.2
        transitions /= transitions.sum(axis=2, keepdims=True)
        rewards[...] = 7.0 * (np.arange(5) == 4)
    terminal = np.array([False, False, False, True, True])
    start = [0.7, 0.0, 0.3, 0.0, 0.0]
    return TabularMDP(
        transitions, rewards, terminal, start=start, max_steps=max_steps
    ), (transitions, rewards, terminal, np.array(start))


def new_state(shape):
    """The state of a problem before the first episode."""
    return {
        "policy": np.full(shape, 1 / shape[1]),
        "logits": np.zeros(shape),
        "values": np.zeros((shape[0], 2)),
        "squares": np.zeros(shape[0]),
        "scale": np.zeros(3),
        "visits": np.zeros(shape),
    }


def make_problem(state, max_steps, **settings):
    """The compiled problem and its space."""
    space = EpisodeSpace(state["policy"], max_steps)
    return PolicyProblem(space, state, *(POLICY | settings).values()), space


@dataclass
class Path:
    """An episode, and the probability of all that is not the policy's doing."""

    states: list
    actions: list
    rewards: list
    ending: str
    chance: float

    def probability(self, policy):
        return self.chance * np.prod(policy[self.states[:-1], self.actions])


def all_paths(arrays, max_steps):
    """Every episode that can happen."""
    transitions, rewards, terminal, start = arrays
    paths = []

    def extend(states, actions, gains, chance):
        s = states[-1]
        if len(actions) == max_steps or terminal[s]:
            ending = "ended" if terminal[s] else "cut"
            paths.append(Path(states, actions, gains, ending, chance))
            return
        for a in range(transitions.shape[1]):
            for then in np.flatnonzero(transitions[s, a]):
                extend(
                    [*states, int(then)],
                    [*actions, a],
                    [*gains, rewards[s, a, then]],
                    chance * transitions[s, a, then],
                )

    for s in np.flatnonzero(start):
        extend([int(s)], [], [], start[s])
    return paths


class PolicyTwin:
    """Draw, step and observe, rule by rule."""

    def __init__(self, rng, mdp, arrays, max_steps, setting, **settings):
        self.rng, self.max_steps, self.setting = rng, max_steps, setting
        self.transitions, self.rewards, self.terminal, self.start = arrays
        self.settings = POLICY | settings
        shape = self.transitions.shape[:2]
        self.w, self.tau = np.zeros(shape), np.zeros(shape)
        self.value_sums, self.value_weights = np.zeros(shape[0]), np.zeros(shape[0])
        self.mean_sum = self.mean_weight = self.largest = 0.0
        self.squares, self.counts = np.zeros(shape[0]), np.zeros(shape)
        self.m, self.tries, self.largest_pull = np.zeros(shape), np.zeros(shape), 0.0
        self.norm2, self.norm2_weight = 0.0, 0.0
        self.P = np.full(shape, 1 / shape[1])
        self.Q = self.P.copy()
        self.sums = np.zeros(6)
        self.norm2_target = 0.0

    def pick(self, probabilities):
        """An index, from a random number unless there is one choice only."""
        possible = np.flatnonzero(probabilities)
        if len(possible) == 1:
            return int(possible[0])
        u = self.rng.random()
        cumulative = np.cumsum(probabilities[possible])
        return int(possible[np.searchsorted(cumulative[:-1], u, side="right")])

    def draw(self):
        mixing = self.setting.mixing
        learned = mixing < 1 and self.rng.random() >= mixing
        s = self.pick(self.start)
        states, actions, rewards = [s], [], []
        while len(actions) < self.max_steps and not self.terminal[s]:
            row = (self.Q if learned else self.P)[s]
            u = self.rng.random()
            a = int(np.searchsorted(np.cumsum(row)[:-1], u, side="right"))
            then = self.pick(self.transitions[s, a])
            actions.append(a)
            rewards.append(self.rewards[s, a, then])
            s = then
            states.append(s)
        return states, actions, rewards

    def densities(self, states, actions):
        """dQ/dP of the first t steps, for every t."""
        ratios = self.Q[states[:-1], actions] / self.P[states[:-1], actions]
        mixing = self.setting.mixing
        return mixing + (1 - mixing) * np.concatenate([[1.0], np.cumprod(ratios)])

    def value(self, s):
        if self.value_weights[s] > 0:
            return self.value_sums[s] / self.value_weights[s]
        return self.mean_sum / self.mean_weight if self.mean_weight else 0.0

    def episode(self):
        """One turn of the loop."""
        states, actions, rewards = self.draw()
        n, settings = len(actions), self.settings
        gamma, baseline = settings["discount"], settings["baseline"]
        cut, knows = not self.terminal[states[-1]], self.mean_weight > 0
        density = self.densities(states, actions)
        weight = 1 / density[-1]
        earned = np.array(rewards)
        gains = earned.copy()
        discounts = gamma ** np.arange(n + 1)

        def returns(values, last):
            tail = np.append(values, last)
            return np.array([tail[t:] @ discounts[: n + 1 - t] for t in range(n)])

        unit = self.largest or 1.0
        largest = np.abs(returns(earned, 0.0)).max()
        if self.largest == 0 and largest > 0:
            # The first reward: all returns were zero, whatever the bonus has taught.
            unit, self.mean_sum = 0.0, 0.0
            self.value_sums[:] = self.squares[:] = 0
        self.largest = max(self.largest, largest)
        for t in range(n):
            if settings["bonus"]:
                self.counts[states[t], actions[t]] += 1
                new = 1 / np.sqrt(self.counts[states[t], actions[t]])
                gains[t] += settings["bonus"] * unit * new
        b = np.array([self.value(s) for s in states])
        b[-1] *= cut
        bootstrap = b[-1] if baseline else 0.0
        G = returns(gains, bootstrap)
        delta = gains + gamma * b[1:] - b[:-1]
        pulls = np.abs(delta) * (1 - self.P[states[:-1], actions])
        pulls *= self.largest > 0
        used = b[:-1] if baseline else np.zeros(n)
        plain = G - used
        if settings["weights"] == "episode":
            weighted = weight * plain
        elif settings["weights"] == "suffix":
            weighted = plain * np.minimum(
                1 / self.setting.mixing, weight * density[:-1]
            )
        else:
            ratio = 1 / density[1:]
            weighted = returns(ratio * gains, weight * bootstrap) - ratio * used
        if baseline and not knows:
            plain, weighted = np.zeros(n), np.zeros(n)
        d, g = np.zeros_like(self.w), np.zeros_like(self.w)
        for t, (s, a) in enumerate(zip(states[:-1], actions, strict=True)):
            direction = np.eye(self.w.shape[1])[a] - self.P[s]
            d[s] += weighted[t] * direction
            g[s] += plain[t] * direction
        self.step(d)
        self.norm2_target += weight * (g**2).sum()
        for s in set(states[:-1]):
            here = [t for t in range(n) if states[t] == s]
            self.value_sums[s] = 0.95 * self.value_sums[s] + weight * G[here].mean()
            self.value_weights[s] = 0.95 * self.value_weights[s] + weight
        self.mean_sum = 0.99 * self.mean_sum + weight * G.mean()
        self.mean_weight = 0.99 * self.mean_weight + weight
        norm2 = (d**2).sum()
        q = density[-1]
        self.sums += -weight * sum(rewards), norm2, norm2 * q, weight, weight**2, 1.0
        self.observe(states, actions, cut, pulls, norm2, q)

    def step(self, d):
        settings = self.settings
        for s in range(len(self.w)):
            norm2 = d[s] @ d[s]
            if norm2 == 0:
                continue
            rate = settings["eta0"]
            if settings["rate"] == "adagrad":
                self.squares[s] += norm2
                rate /= np.sqrt(self.squares[s])
            elif settings["rate"] == "rmsprop":
                before = self.squares[s] or norm2
                self.squares[s] = 0.99 * before + 0.01 * norm2
                rate /= np.sqrt(self.squares[s])
            elif settings["rate"] == "range":
                rate /= self.largest or 1.0
                rate /= max(1, rate * np.sqrt(norm2))
            self.w[s] += rate * d[s]
        self.P = softmax(self.w, axis=1)

    def observe(self, states, actions, cut, pulls, norm2, q):
        setting, n = self.setting, len(actions)
        if setting.mixing == 1:
            return
        touched = list(set(states[:-1]))
        if setting.update == "sgd":
            step = setting.eta0 * (1 - setting.mixing / q) * norm2
            if setting.normalize:
                step = step / self.norm2 if self.norm2 > 0 else 0.0
                self.norm2_weight += 0.01 * (1 - self.norm2_weight)
                self.norm2 += 0.01 / self.norm2_weight * (norm2 - self.norm2)
            move = np.zeros_like(self.tau)
            for s, a in zip(states[:-1], actions, strict=True):
                move[s] += np.eye(self.tau.shape[1])[a] - self.Q[s]
            self.tau += step * move
            self.Q[touched] = softmax(self.tau[touched], axis=1)
            return

        def known(s):
            new = setting.optimism * self.largest_pull
            return np.where(self.tries[s] > 0, self.m[s], new)

        for t in range(n - 1, -1, -1):
            s, a, then = states[t], actions[t], states[t + 1]
            target = pulls[t]
            self.largest_pull = max(self.largest_pull, target)
            if t < n - 1 or cut:
                target += setting.carry * self.P[then] @ known(then)
            self.tries[s, a] += 1
            share = max(setting.forgetting, 1 / self.tries[s, a])
            self.m[s, a] += share * (min(target, self.largest_pull) - self.m[s, a])
        for s in touched:
            factor = known(s) + setting.floor * self.largest_pull
            if self.largest_pull == 0:
                factor = np.ones_like(factor)
            self.Q[s] = self.P[s] * factor / (self.P[s] @ factor)


def open_sampler(setting, space, simulator, seed):
    """The compiled sampler of a setting."""
    setting.prepare(space, 1, 1, None)
    return setting.open(space, simulator, 0, np.random.PCG64(seed))


def trained(mdp, setting, n_episodes, seed, **settings):
    """A problem and a sampler that have seen some episodes."""
    from helpers import run_draws

    state = new_state((mdp.n_states, mdp.n_actions))
    problem, space = make_problem(state, mdp.max_steps, **settings)
    sampler = open_sampler(setting, space, mdp.simulator(), seed)
    done, sums = run_draws(problem, sampler, n_episodes)
    assert done == n_episodes
    return state, problem, space, sampler, sums


__all__ = [
    "PolicyTwin",
    "TrajectorySampler",
    "all_paths",
    "make_problem",
    "new_state",
    "open_sampler",
    "small_mdp",
    "trained",
]
