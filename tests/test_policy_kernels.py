"""The kernels of the policy gradient: exact densities and gradients, and the twin."""

import copy

import numpy as np
import pytest
from policy_twin import (
    PolicyTwin,
    all_paths,
    make_problem,
    new_state,
    open_sampler,
    small_mdp,
    trained,
)
from sklearn_awsgd._kernels._loop import POINT

from sklearn_awsgd import TabularMDP
from sklearn_awsgd.samplers import TrajectorySampler

SAMPLERS = {
    "closed form": TrajectorySampler(mixing=0.3),
    "no optimism": TrajectorySampler(optimism=0.0, carry=0.5, forgetting=0.3),
    "scale-free step": TrajectorySampler(update="sgd", mixing=0.4, eta0=0.5),
    "raw step": TrajectorySampler(update="sgd", mixing=0.2, eta0=0.05, normalize=False),
    "on-policy": TrajectorySampler(mixing=1.0),
}


def new_setting(name):
    return copy.deepcopy(SAMPLERS[name])


@pytest.mark.parametrize("weights", ["suffix", "per_decision", "episode"])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    "settings",
    [
        {"rate": "constant", "eta0": 0.1},
        {"rate": "range", "eta0": 0.3, "bonus": 0.1},
        {"rate": "adagrad", "eta0": 0.3, "discount": 1.0},
        {"rate": "rmsprop", "eta0": 0.1, "baseline": False},
        {"rate": "range", "eta0": 0.3, "bonus": 0.1, "sparse": True},
        {"rate": "adagrad", "eta0": 0.3, "bonus": 0.1, "sparse": True},
    ],
    ids=lambda settings: settings["rate"] + ", sparse" * settings.get("sparse", False),
)
def test_kernels_agree_with_their_twin(weights, sampler, settings, seed):
    settings = {"weights": weights, **settings}
    sparse = settings.pop("sparse", False)
    mdp, arrays = small_mdp(seed, 7, sparse)
    n_episodes, setting = 150 if sparse else 60, new_setting(sampler)
    state, _, space, _, sums = trained(mdp, setting, n_episodes, seed, **settings)
    rng = np.random.Generator(np.random.PCG64(seed))
    twin = PolicyTwin(rng, mdp, arrays, 7, new_setting(sampler), **settings)
    for _ in range(n_episodes):
        twin.episode()
    assert np.abs(twin.w).max() > 0.05
    np.testing.assert_allclose(state["logits"], twin.w, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(state["policy"], twin.P, rtol=1e-8)
    np.testing.assert_allclose(state["values"][:, 0], twin.value_sums, rtol=1e-8)
    np.testing.assert_allclose(list(sums.values()), twin.sums, rtol=1e-8)
    totals = space.take_totals()
    np.testing.assert_allclose(totals["norm2_target"], twin.norm2_target, rtol=1e-8)
    if setting.mixing < 1:
        assert np.abs(twin.Q[:3] - twin.P[:3]).max() > 1e-3
        np.testing.assert_allclose(setting.behavior_policy_, twin.Q, rtol=1e-8)
        np.testing.assert_allclose(setting.moments_, twin.m, rtol=1e-8)


class Frozen:
    """A trained problem and sampler, and what becomes of each possible episode."""

    def __init__(self, sampler, seed, max_steps=3, **settings):
        mdp, arrays = small_mdp(seed, max_steps)
        self.paths = all_paths(arrays, max_steps)
        self.setting = new_setting(sampler)
        self.state, *_ = trained(
            mdp, self.setting, 300, seed, rate="adagrad", eta0=0.3, discount=0.9
        )
        self.max_steps, self.settings, self.seed = max_steps, settings, seed
        self.P = self.state["policy"].copy()
        self.Q = self.setting.behavior_policy_.copy()
        # Apart from P by now, or the test would show nothing.
        if self.setting.mixing < 1:
            assert np.abs(self.P - self.Q)[:3].max() > 0.05

    def gradient(self, path, on_policy=False):
        """The density of an episode, its gradient, and ||g||^2 / q."""
        state = copy.deepcopy(self.state)
        setting = copy.deepcopy(self.setting)
        if on_policy:
            setting.mixing = 1.0
        problem, space = make_problem(state, self.max_steps, **self.settings)
        sampler = open_sampler(setting, space, None, self.seed)
        space.place(path.states, path.actions, path.rewards, path.ending)
        q = sampler.weigh()
        before = state["logits"].copy()
        point = np.zeros(1, dtype=POINT)
        problem.step_points(point, np.array([1 / q]))
        d = state["logits"] - before
        np.testing.assert_allclose(point["norm2"][0], (d**2).sum(), rtol=1e-9)
        return q, d, space.take_totals()["norm2_target"]

    def mixture(self, path):
        mixing = self.setting.mixing
        return mixing * path.probability(self.P) + (1 - mixing) * path.probability(
            self.Q
        )

    def means(self):
        """E_Q of the weighted gradient and E_P of the plain one."""
        weighted, plain = 0.0, 0.0
        for path in self.paths:
            weighted += self.mixture(path) * self.gradient(path)[1]
            plain += path.probability(self.P) * self.gradient(path, True)[1]
        return weighted, plain


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_density_of_every_episode_is_exact(sampler, seed):
    frozen = Frozen(sampler, seed)
    total = 0.0
    for path in frozen.paths:
        q, *_ = frozen.gradient(path)
        expected = frozen.mixture(path) / path.probability(frozen.P)
        np.testing.assert_allclose(q, expected, rtol=1e-10)
        assert 1 / q <= 1 / frozen.setting.mixing + 1e-12
        total += frozen.mixture(path)
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("weights", ["episode", "per_decision"])
@pytest.mark.parametrize("bonus", [0.0, 0.2])
def test_weighted_gradient_is_unbiased_after_tau_has_moved(
    sampler, weights, bonus, seed
):
    weighted, plain = Frozen(sampler, seed, weights=weights, bonus=bonus).means()
    assert np.abs(plain).max() > 0.01
    np.testing.assert_allclose(weighted, plain, rtol=1e-9, atol=1e-12)


def test_suffix_weights_are_biased_and_point_the_same_way(seed):
    # What the documentation says: not unbiased, but an ascent direction here.
    weighted, plain = Frozen("closed form", seed, weights="suffix").means()
    bias = np.linalg.norm(weighted - plain) / np.linalg.norm(plain)
    cosine = (weighted * plain).sum()
    cosine /= np.linalg.norm(weighted) * np.linalg.norm(plain)
    assert 1e-3 < bias < 1.0
    assert cosine > 0.7
    # On-policy there is nothing to correct.
    weighted, plain = Frozen("on-policy", seed, weights="suffix").means()
    np.testing.assert_allclose(weighted, plain, rtol=1e-12)


def test_second_moment_of_on_policy_episodes_is_estimated_without_bias(seed):
    frozen = Frozen("closed form", seed, weights="suffix")
    estimated = expected = 0.0
    for path in frozen.paths:
        estimated += frozen.mixture(path) * frozen.gradient(path)[2]
        g = frozen.gradient(path, on_policy=True)[1]
        expected += path.probability(frozen.P) * (g**2).sum()
    np.testing.assert_allclose(estimated, expected, rtol=1e-9)


def test_gradient_is_that_of_the_expected_return(seed):
    # A process that always ends in time, no discount and no baseline: then the mean
    # gradient is the derivative of the expected return.
    rng = np.random.default_rng(seed)
    transitions = np.zeros((4, 2, 4))
    transitions[0, :, 1:] = rng.dirichlet(np.ones(3), size=2)
    transitions[1, :, 2:] = rng.dirichlet(np.ones(2), size=2)
    transitions[2:, :, 3] = 1
    rewards, terminal = rng.normal(size=(4, 2, 4)), np.arange(4) == 3
    mdp = TabularMDP(transitions, rewards, terminal, max_steps=5)
    arrays = transitions, rewards, terminal, np.eye(4)[0]
    logits = rng.normal(size=(4, 2))

    def expected_return(logits):
        policy = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return mdp.evaluate(policy).mean_return

    slope = np.zeros_like(logits)
    for place in np.ndindex(*logits.shape):
        step = np.zeros_like(logits)
        step[place] = 1e-5
        slope[place] = expected_return(logits + step) - expected_return(logits - step)
    slope /= 2e-5
    mean = 0.0
    for path in all_paths(arrays, 5):
        state = {
            "policy": np.empty((4, 2)),
            "logits": logits.copy(),
            "values": np.zeros((4, 2)),
            "squares": np.zeros(4),
            "scale": np.zeros(3),
        }
        problem, space = make_problem(state, 5, discount=1.0, baseline=False)
        probability = path.probability(state["policy"])
        space.place(path.states, path.actions, path.rewards, path.ending)
        problem.step_points(np.zeros(1, dtype=POINT), np.ones(1))
        mean += probability * (state["logits"] - logits)
    np.testing.assert_allclose(mean, slope, rtol=1e-6, atol=1e-9)


def test_evaluation_is_the_sum_over_all_episodes(seed):
    mdp, arrays = small_mdp(seed, max_steps=5)
    policy = np.random.default_rng(seed).dirichlet(np.ones(2), size=5)
    paths = all_paths(arrays, 5)
    p = np.array([path.probability(policy) for path in paths])
    value = mdp.evaluate(policy)
    returns = [sum(path.rewards) for path in paths]
    np.testing.assert_allclose(value.mean_return, p @ returns, rtol=1e-10)
    lengths = [len(path.actions) for path in paths]
    np.testing.assert_allclose(value.n_steps, p @ lengths, rtol=1e-10)
    ends = [path.rewards[-1] for path in paths if path.ending == "ended"]
    good = [path.ending == "ended" and path.rewards[-1] == max(ends) for path in paths]
    np.testing.assert_allclose(value.success, p @ good, rtol=1e-10)


def test_draws_have_the_law_of_the_mixture(seed):
    mdp, arrays = small_mdp(seed, max_steps=3)
    setting = new_setting("closed form")
    state, _, space, sampler, _ = trained(mdp, setting, 300, seed, rate="adagrad")
    P, Q, mixing = state["policy"], setting.behavior_policy_, setting.mixing
    n, counts = 40_000, {}
    for _ in range(n):
        sampler.draw_points(1)
        episode = space.last_episode()
        key = tuple(episode["states"]), tuple(episode["actions"])
        counts[key] = counts.get(key, 0) + 1
    expected = {
        (tuple(path.states), tuple(path.actions)): n
        * (mixing * path.probability(P) + (1 - mixing) * path.probability(Q))
        for path in all_paths(arrays, 3)
    }
    assert set(counts) <= set(expected)
    common = [key for key in expected if expected[key] > 20]
    wrong = [(counts.get(k, 0) - expected[k]) / np.sqrt(expected[k]) for k in common]
    assert len(common) > 10
    assert np.abs(wrong).max() < 4.8


def test_long_episodes_do_not_overflow_the_weights():
    # Two actions that do the same, ten thousand times: P/Q of an episode of Q is below
    # the smallest double, its logarithm is not.
    mdp = TabularMDP(np.zeros((1, 2), dtype=int), [0.0], [False], max_steps=10_000)
    state = {
        "policy": np.empty((1, 2)),
        "logits": np.array([[0.0, 5.0]]),
        "values": np.zeros((1, 2)),
        "squares": np.zeros(1),
        "scale": np.zeros(3),
    }
    _, space = make_problem(state, 10_000)
    setting = TrajectorySampler(update="sgd", mixing=0.5)
    sampler = open_sampler(setting, space, mdp.simulator(), 0)
    points = np.concatenate([sampler.draw_points(1) for _ in range(20)])
    assert set(points["origin"]) == {0, 1}
    assert np.isfinite(points["q"]).all()
    np.testing.assert_allclose(points["q"][points["origin"] == 0], 0.5)
    assert (points["q"][points["origin"] == 1] > 1e200).all()


def test_too_long_an_episode_is_refused():
    _, space = make_problem(new_state((5, 2)), 2)
    with pytest.raises(ValueError, match="3 steps, max_steps is 2"):
        space.place([0, 0, 0, 0], [0, 0, 0], [0, 0, 0], "cut")
