"""AWSGDPolicyGradient: what users see of it."""

import pickle
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures

from sklearn_awsgd import AWSGDPolicyGradient, TabularMDP
from sklearn_awsgd.datasets import GridWorld
from sklearn_awsgd.samplers import TrajectorySampler

PAPER = {
    "sampler": TrajectorySampler(update="sgd", normalize=False, mixing=0, eta0=1e-8),
    "weights": "episode",
    "learning_rate": "constant",
    "eta0": 1e-4,
    "baseline": False,
    "bonus": 0,
}


def corridor(length=6, **params):
    """Left or right; the right end pays."""
    state = np.arange(length)
    moves = [np.maximum(state - 1, 0), np.minimum(state + 1, length - 1)]
    pay = np.where(state == length - 1, 1.0, 0.0)
    return TabularMDP(np.stack(moves, axis=1), pay, state == length - 1, **params)


def grid(**params):
    return GridWorld(6, random_state=0, **params)


@pytest.mark.parametrize("sampler", ["auto", "trajectory", "on_policy"])
@pytest.mark.parametrize("learning_rate", ["range", "adagrad", "rmsprop"])
@pytest.mark.parametrize("weights", ["suffix", "per_decision", "episode"])
def test_every_setting_learns_the_grid(sampler, learning_rate, weights, seed):
    eta0 = 0.1 if learning_rate == "rmsprop" else 0.3
    model = AWSGDPolicyGradient(
        sampler,
        learning_rate=learning_rate,
        weights=weights,
        eta0=eta0,
        n_episodes=3000,
        random_state=seed,
    ).fit(grid())
    value = grid().to_mdp().evaluate(model.policy_)
    assert value.success > 0.95
    # The shortest way has ten steps, a random walk takes sixty.
    assert value.n_steps < 25


def test_rare_reward_is_found_where_on_policy_finds_nothing():
    # A random walk succeeds in one of a thousand episodes.
    world = GridWorld(15, max_steps=90, random_state=0)
    uniform = np.full((225, 4), 0.25)
    assert world.to_mdp().evaluate(uniform).success < 0.002
    success = {
        name: [
            world.to_mdp()
            .evaluate(
                AWSGDPolicyGradient(n_episodes=3000, random_state=seed, **params)
                .fit(world)
                .policy_
            )
            .success
            for seed in range(5)
        ]
        for name, params in {
            "ours": {},
            "on-policy": {"sampler": "on_policy", "bonus": 0},
        }.items()
    }
    assert min(success["ours"]) > 0.95
    assert np.mean(success["on-policy"]) < 0.7


def test_fitted_attributes():
    model = AWSGDPolicyGradient(n_episodes=400, random_state=0).fit(grid())
    assert model.policy_.shape == model.behavior_policy_.shape == (36, 4)
    np.testing.assert_allclose(model.policy_.sum(axis=1), 1)
    np.testing.assert_allclose(model.behavior_policy_.sum(axis=1), 1)
    assert np.abs(model.policy_ - model.behavior_policy_).max() > 0.05
    history = model.history_
    assert set(history) == {
        "episodes",
        "steps",
        "seconds",
        "return",
        "success",
        "cut",
        "effective_sample_size",
        "variance_gain",
    }
    assert {len(column) for column in history.values()} == {50}
    assert history["episodes"][-1] == model.n_episodes_ == 400
    assert history["steps"][-1] == model.n_steps_
    assert (np.diff(history["steps"]) > 0).all()
    assert ((history["success"] >= 0) & (history["success"] <= 1 + 1e-12)).all()
    assert (history["effective_sample_size"] <= 8 + 1e-9).all()
    assert history["success"][-10:].mean() > history["success"][:10].mean()
    assert model.variance_gain_ == history["variance_gain"][-1] > 0
    on_policy = AWSGDPolicyGradient("on_policy", n_episodes=400, random_state=0)
    on_policy.fit(grid())
    np.testing.assert_array_equal(on_policy.policy_, on_policy.behavior_policy_)
    np.testing.assert_allclose(on_policy.history_["variance_gain"][1:], 1)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"learning_rate": "adagrad", "weights": "per_decision"},
        {"learning_rate": "rmsprop", "sampler": "on_policy"},
        {"sampler": TrajectorySampler(update="sgd"), "weights": "episode"},
    ],
    ids=["defaults", "adagrad", "rmsprop", "scale-free step"],
)
def test_scale_of_rewards_does_not_matter(scale, params, seed):
    def policy(scale):
        world = grid(
            goal_reward=1000 * scale, trap_reward=-1000 * scale, step_reward=-scale
        )
        model = AWSGDPolicyGradient(n_episodes=500, random_state=seed, **params)
        return model.fit(world).policy_

    assert np.ptp(policy(1.0)) > 0.5
    np.testing.assert_allclose(policy(scale), policy(1.0), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("learning_rate", ["range", "adagrad"])
def test_scale_does_not_matter_where_most_rewards_are_zero(scale, learning_rate, seed):
    # Until the first reward comes, the bonus has no unit to be relative to.
    def fit(scale):
        state = np.arange(40)
        moves = np.stack([np.maximum(state - 1, 0), np.minimum(state + 1, 39)], axis=1)
        mdp = TabularMDP(moves, scale * (state == 39), state == 39, max_steps=80)
        model = AWSGDPolicyGradient(
            n_episodes=1500, learning_rate=learning_rate, random_state=seed
        ).fit(mdp)
        return model, mdp.evaluate(model.policy_).success

    model, success = fit(1.0)
    # A random walk gets there in one of a hundred thousand episodes.
    assert success > 0.9
    assert model.history_["success"][0] == 0
    scaled, _ = fit(scale)
    np.testing.assert_allclose(scaled.policy_, model.policy_, rtol=1e-4, atol=1e-8)


def test_papers_algorithm_is_one_setting():
    model = AWSGDPolicyGradient(n_episodes=300, random_state=0, **PAPER).fit(grid())
    assert not np.allclose(model.sampler_.tau_, 0)
    # Without a mixture all episodes come from Q_tau, with weights that have no bound.
    assert model.history_["effective_sample_size"].min() < 5.9


def test_diverging_steps_are_an_error_that_names_the_remedy():
    params = PAPER | {"sampler": TrajectorySampler(update="sgd", normalize=False)}
    model = AWSGDPolicyGradient(n_episodes=300, random_state=0, **params)
    model.set_params(eta0=1e307)
    with pytest.raises(ValueError, match=r"diverged after .* episodes\. Lower eta0"):
        model.fit(grid())
    assert not hasattr(model, "policy_")


def test_partial_fit_goes_on_where_it_was():
    whole = AWSGDPolicyGradient(n_episodes=300, random_state=0).fit(grid())
    parts = AWSGDPolicyGradient(random_state=0)
    for n_episodes in (100, 50, 150):
        parts.partial_fit(grid(), n_episodes=n_episodes)
    np.testing.assert_array_equal(whole.policy_, parts.policy_)
    np.testing.assert_array_equal(whole.behavior_policy_, parts.behavior_policy_)
    assert parts.n_episodes_ == 300
    assert parts.n_steps_ == whole.n_steps_
    assert (np.diff(parts.history_["episodes"]) > 0).all()
    with pytest.raises(ValueError, match="25 states and 4 actions"):
        parts.partial_fit(GridWorld(5))


def test_failed_partial_fit_changes_nothing():
    model = AWSGDPolicyGradient(n_episodes=100, random_state=0).fit(grid())
    before = pickle.dumps(vars(model))
    model.set_params(learning_rate="constant", eta0=1e306)
    settings = model.get_params()
    with pytest.raises(ValueError, match="diverged"):
        model.partial_fit(grid())
    model.set_params(learning_rate="range", eta0=0.3)
    assert pickle.dumps(vars(model)) == before
    assert settings["eta0"] == 1e306


def test_same_seed_same_result():
    fits = [
        AWSGDPolicyGradient(n_episodes=200, random_state=seed).fit(grid())
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(fits[0].policy_, fits[1].policy_)
    assert (fits[0].policy_ != fits[2].policy_).any()
    assert fits[0].score(grid()) == fits[1].score(grid())


def test_clone_pickle_and_representation():
    model = AWSGDPolicyGradient(
        TrajectorySampler(mixing=0.4), n_episodes=100, random_state=0
    ).fit(grid())
    again = clone(model)
    assert again.get_params()["sampler__mixing"] == 0.4
    assert not hasattr(again, "policy_")
    assert not hasattr(model.sampler, "moments_")
    assert "AWSGDPolicyGradient" in model._repr_html_()
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(range(36)), model.predict(range(36)))
    # It goes on as the original does.
    loaded.partial_fit(grid(), n_episodes=50)
    model.partial_fit(grid(), n_episodes=50)
    np.testing.assert_array_equal(loaded.policy_, model.policy_)


def test_memory_does_not_grow_with_the_number_of_episodes():
    resource = pytest.importorskip("resource")
    world = corridor()
    model = AWSGDPolicyGradient(n_episodes=20_000, random_state=0).fit(world)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.set_params(n_episodes=1_000_000).fit(world)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 2_000
    assert 50 <= len(model.history_["episodes"]) <= 500


def test_score_is_that_of_the_target_policy():
    model = AWSGDPolicyGradient(n_episodes=300, random_state=0).fit(grid())
    exact = grid().to_mdp().evaluate(model.policy_)
    success = model.score(grid(), scoring="success", n_episodes=4000)
    spread = np.sqrt(exact.success * (1 - exact.success) / 4000)
    assert abs(success - exact.success) < 4.5 * spread + 1e-9
    returns = model.score(grid(), n_episodes=4000)
    assert abs(returns - exact.mean_return) < 4.5 * 1000 / np.sqrt(4000)


def test_predict():
    model = AWSGDPolicyGradient(n_episodes=300, random_state=0).fit(corridor())
    np.testing.assert_array_equal(model.predict([0, 1, 2, 3, 4]), 1)
    assert model.predict_proba([3]).shape == (1, 2)
    with pytest.raises(ValueError, match="state 6 is out of range"):
        model.predict([0, 6])
    with pytest.raises(ValueError, match="state -1 is out of range"):
        model.predict_proba([-1])
    with pytest.raises(ValueError, match="must be integers"):
        model.predict([0.5])
    with pytest.raises(NotFittedError):
        AWSGDPolicyGradient().predict([0])
    with pytest.raises(NotFittedError):
        AWSGDPolicyGradient().score(corridor())


def test_verbose(capsys):
    AWSGDPolicyGradient(n_episodes=3, verbose=1, random_state=0).fit(corridor())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert re.match(r"episode 1, \d+\.\d\d s: return ", lines[0])


@pytest.mark.parametrize(
    ("params", "error", "match"),
    [
        ({"weights": "none"}, ValueError, "weights='none' is not known"),
        ({"learning_rate": "auto"}, ValueError, "learning_rate='auto'"),
        ({"discount": 0}, ValueError, "discount=0 is out of range"),
        ({"discount": 1.1}, ValueError, "discount=1.1"),
        ({"eta0": 0}, ValueError, "eta0=0"),
        ({"bonus": -1}, ValueError, "bonus=-1"),
        ({"n_episodes": 0}, ValueError, "n_episodes=0"),
        ({"n_episodes": 1.5}, TypeError, "n_episodes must be an integer"),
        ({"max_steps": 0}, ValueError, "max_steps=0"),
        ({"sampler": "level"}, ValueError, "sampler='level' is not known"),
        ({"sampler": 3}, TypeError, "sampler=3 is neither"),
        ({"sampler": TrajectorySampler(mixing=2)}, ValueError, "sampler.mixing=2"),
        ({"sampler": TrajectorySampler(update="x")}, ValueError, "sampler.update"),
        ({"sampler": TrajectorySampler(floor=0)}, ValueError, "sampler.floor=0"),
        ({"sampler": TrajectorySampler(carry=1)}, ValueError, "sampler.carry=1"),
        ({"sampler": TrajectorySampler(optimism=-1)}, ValueError, "optimism=-1"),
        ({"sampler": TrajectorySampler(forgetting=0)}, ValueError, "forgetting=0"),
        ({"sampler": TrajectorySampler(eta0=-1)}, ValueError, "sampler.eta0=-1"),
        ({"features": np.ones}, ValueError, "features=None"),
        ({"features": np.ones, "bonus": 0.1}, ValueError, "bonus=0.1 counts"),
    ],
)
def test_parameters_are_checked(params, error, match):
    with pytest.raises(error, match=match):
        AWSGDPolicyGradient(**params).fit(grid())


STEP = np.array([[0, 1], [1, 1]])
END = np.array([False, True])


@pytest.mark.parametrize(
    ("arguments", "params", "match"),
    [
        ((STEP, [0, np.nan], END), {}, "state 0, action 1 is NaN or infinite"),
        ((STEP, [[0, 0], [np.inf, 0]], END), {}, "state 1, action 0 is NaN"),
        ((STEP + 1, [0, 1], END), {}, "next state 2 is out of range"),
        ((STEP - 1, [0, 1], END), {}, "next state -1 is out of range"),
        ((STEP + 0.5, [0, 1], END), {}, "must be integers"),
        ((np.full((2, 2, 2), 0.4), [0, 1], END), {}, "action 0 sum to 0.8"),
        ((np.full((2, 2, 2), np.nan), [0, 1], END), {}, "sum to nan"),
        (
            (np.array([[[2.0, -1], [0, 1]]] * 2), [0, 1], END),
            {},
            "state 0, action 0 has a negative probability, -1",
        ),
        ((np.ones((2, 2, 3)), [0, 1], END), {}, "differ"),
        ((np.ones(2, dtype=int), [0, 1], END), {}, "transitions has shape"),
        ((STEP, [0, 1, 2], END), {}, "rewards has shape"),
        ((STEP, [0, 1], [False]), {}, "terminal must have a boolean for each"),
        ((STEP, [0, 1], [0.0, 1.0]), {}, "terminal must have a boolean"),
        ((STEP, [0, 1], END), {"goal": [True]}, "goal must have"),
        ((STEP, [0, 1], END), {"start": 1}, "state 1 is terminal"),
        ((STEP, [0, 1], END), {"start": 2}, "start=2 is out of range"),
        ((STEP, [0, 1], END), {"start": [0.5, 0.4]}, "sum to 0.9"),
        ((STEP, [0, 1], END), {"start": [1.0]}, "start must be"),
        ((STEP, [0, 1], END), {"max_steps": 0}, "max_steps=0"),
    ],
)
def test_tables_are_checked(arguments, params, match):
    with pytest.raises(ValueError, match=match):
        TabularMDP(*arguments, **params)


def test_environment_that_never_ends():
    endless = TabularMDP(np.array([[1, 0], [0, 1]]), [0.0, 1.0], [False, False])
    with pytest.raises(ValueError, match=r"never ends.*Give max_steps"):
        AWSGDPolicyGradient().fit(endless)
    model = AWSGDPolicyGradient(max_steps=20, n_episodes=50, random_state=0)
    with pytest.warns(ConvergenceWarning, match="All 50 episodes were cut at 20"):
        model.fit(endless)
    assert (model.history_["cut"] == 1).all()
    # An end that exists and cannot be reached is no end.
    island = TabularMDP(np.array([[0, 0], [1, 1]]), [0.0, 1.0], END)
    with pytest.raises(ValueError, match="no terminal state can be reached"):
        AWSGDPolicyGradient().fit(island)


def test_cut_episodes_are_counted():
    world = corridor(max_steps=15)
    model = AWSGDPolicyGradient("on_policy", n_episodes=20, random_state=0).fit(world)
    assert 0 < model.history_["cut"].mean() < 1
    longer = AWSGDPolicyGradient("on_policy", n_episodes=20, random_state=0)
    longer.set_params(max_steps=10_000).fit(world)
    assert (longer.history_["cut"] == 0).all()


def test_policy_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"policy has shape \(2, 2\)"):
        corridor().evaluate(np.ones((2, 2)))


def test_not_an_environment():
    with pytest.raises(TypeError, match="it has no reset"):
        AWSGDPolicyGradient().fit(np.ones((3, 2)))


def test_probabilities_and_next_states_are_the_same_process():
    moves = np.array([[0, 1], [0, 2], [2, 2]])
    terminal = np.arange(3) == 2
    rewards = np.array([[0.0, -1.0], [0.5, 3.0], [0.0, 0.0]])
    tables = [
        TabularMDP(moves, rewards, terminal),
        TabularMDP(np.eye(3)[moves], rewards, terminal),
        TabularMDP(
            np.eye(3)[moves], np.repeat(rewards[:, :, None], 3, axis=2), terminal
        ),
        TabularMDP.from_table(
            {
                s: {
                    a: [(1.0, moves[s, a], rewards[s, a], bool(terminal[moves[s, a]]))]
                    for a in (0, 1)
                }
                for s in range(3)
            },
            [1.0, 0.0, 0.0],
        ),
    ]
    policies = [
        AWSGDPolicyGradient(n_episodes=50, random_state=0).fit(table).policy_
        for table in tables
    ]
    for policy in policies[1:]:
        np.testing.assert_array_equal(policy, policies[0])


gymnasium = pytest.importorskip("gymnasium")


def cart_features(observations):
    """A constant, and the observations on scales of about one."""
    scaled = observations / [2.4, 2.0, 0.2, 2.0]
    return np.column_stack([np.ones(len(scaled)), scaled])


def test_cart_pole_is_solved(seed):
    env = gymnasium.make("CartPole-v1")
    model = AWSGDPolicyGradient(
        features=FunctionTransformer(cart_features), n_episodes=500, random_state=seed
    ).fit(env)
    assert model.score(env) >= 475
    assert model.coef_.shape == (2, 5)
    assert model.predict([[0, 0, 0.1, 0.5]]) == [1]
    np.testing.assert_allclose(model.predict_proba(np.zeros((3, 4))).sum(axis=1), 1)
    # It says nothing of success.
    assert np.isnan(model.history_["success"]).all()
    with pytest.raises(ValueError, match="does not say what success is"):
        model.score(env, scoring="success", n_episodes=1)
    pickle.loads(pickle.dumps(model)).predict([[0, 0, 0.1, 0.5]])


@pytest.mark.parametrize("weights", ["suffix", "per_decision", "episode"])
def test_learned_exploration_on_features(weights):
    env = gymnasium.make("CartPole-v1")
    features = make_pipeline(
        FunctionTransformer(lambda X: X / [2.4, 2.0, 0.2, 2.0]),
        PolynomialFeatures(1).fit(np.zeros((1, 4))),
    )
    model = AWSGDPolicyGradient(
        "trajectory",
        weights=weights,
        learning_rate="adagrad",
        features=features,
        n_episodes=60,
        random_state=0,
    ).fit(env)
    assert model.sampler_.tau_.any()
    assert model.history_["return"][-10:].mean() > model.history_["return"][:10].mean()


@pytest.mark.parametrize("weights", ["suffix", "per_decision", "episode"])
@pytest.mark.parametrize("learning_rate", ["range", "adagrad", "rmsprop", "constant"])
@pytest.mark.parametrize("mixing", [0.4, 1.0])
def test_one_feature_for_each_state_is_the_table(weights, learning_rate, mixing, seed):
    # The same episodes through the compiled kernels and through those of features. The
    # baseline differs, a running mean and a regression, so it is left out.
    env = GridWorld(3, random_state=0, max_steps=20).to_gymnasium()
    params = {
        "sampler": TrajectorySampler(update="sgd", mixing=mixing),
        "weights": weights,
        "learning_rate": learning_rate,
        "eta0": 1e-4 if learning_rate == "constant" else 0.3,
        "baseline": False,
        "n_episodes": 40,
        "random_state": seed,
    }
    table = AWSGDPolicyGradient(bonus=0, **params).fit(Opaque(env))
    linear = AWSGDPolicyGradient(features=one_hot, **params).fit(Opaque(env))
    logits = linear.coef_.T
    policy = np.exp(logits - logits.max(axis=1, keepdims=True))
    policy /= policy.sum(axis=1, keepdims=True)
    assert np.abs(policy - 0.25).max() > 0.02
    np.testing.assert_allclose(policy, table.policy_, rtol=1e-6)
    for name in ("return", "variance_gain", "effective_sample_size", "success"):
        np.testing.assert_allclose(
            linear.history_[name], table.history_[name], rtol=1e-6, err_msg=name
        )
    if mixing < 1:
        tau = table.sampler_.tau_
        assert tau.any()
        np.testing.assert_allclose(linear.sampler_.tau_.T, tau, rtol=1e-6, atol=1e-9)


def one_hot(observations):
    return np.eye(9)[np.asarray(observations, dtype=int).ravel()]


class Opaque(gymnasium.Wrapper):
    """A wrapper that might change anything, so the table is not to be trusted."""


def test_wrapped_environments_are_played():
    env = Opaque(grid().to_gymnasium())
    model = AWSGDPolicyGradient(n_episodes=300, random_state=0).fit(env)
    assert grid().to_mdp().evaluate(model.policy_).success > 0.9
    assert model.score(env, scoring="success") > 0.9
    assert model.history_["success"][-1] > 0.5


def test_played_rewards_are_checked():
    class Broken(gymnasium.Wrapper):
        def step(self, action):
            state, _, *rest = self.env.step(action)
            return state, np.nan, *rest

    with pytest.raises(ValueError, match="reward nan after 1 steps"):
        AWSGDPolicyGradient(n_episodes=5).fit(Broken(grid().to_gymnasium()))


def test_played_states_are_checked():
    class Broken(gymnasium.Wrapper):
        def step(self, action):
            return 36, *self.env.step(action)[1:]

    with pytest.raises(ValueError, match="observation 36, which is not in"):
        AWSGDPolicyGradient(n_episodes=5).fit(Broken(grid().to_gymnasium()))


def test_played_environment_that_never_ends(monkeypatch):
    class Endless(gymnasium.Wrapper):
        def step(self, action):
            state, reward, _, _, info = self.env.step(action)
            return state, reward, False, False, info

    monkeypatch.setattr("sklearn_awsgd._policy.episodes.ENDLESS", 500)
    env = Endless(grid().to_gymnasium())
    with pytest.raises(ValueError, match=r"not ended after 500 steps\. Give max_steps"):
        AWSGDPolicyGradient(n_episodes=5).fit(env)
    with pytest.warns(ConvergenceWarning, match="were cut at 9 steps"):
        AWSGDPolicyGradient(n_episodes=5, max_steps=9, random_state=0).fit(env)


def test_spaces_are_checked():
    cart = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match="give features="):
        AWSGDPolicyGradient().fit(cart)
    with pytest.raises(ValueError, match="needs a table of states"):
        AWSGDPolicyGradient(TrajectorySampler(), features=cart_features).fit(cart)
    with pytest.raises(ValueError, match="finitely many"):
        AWSGDPolicyGradient().fit(gymnasium.make("Pendulum-v1"))


@pytest.mark.parametrize(
    ("name", "n_states", "n_actions"),
    [("FrozenLake-v1", 16, 4), ("CliffWalking-v1", 48, 4), ("Taxi-v4", 500, 6)],
)
def test_toy_environments_run_compiled(name, n_states, n_actions):
    if name not in gymnasium.registry:
        pytest.skip("another version of Gymnasium")
    env = gymnasium.make(name)
    model = AWSGDPolicyGradient(n_episodes=2000, max_steps=300, random_state=0)
    model.fit(env)
    assert model.policy_.shape == (n_states, n_actions)
    # The score through the table is that of playing.
    through_table = model.score(env, n_episodes=2000)
    spread = 4.5 * max(1, abs(through_table)) / np.sqrt(60)
    assert abs(model.score(Opaque(env), n_episodes=60) - through_table) < spread


def test_limit_of_the_environment_is_taken():
    env = gymnasium.make("FrozenLake-v1", max_episode_steps=7)
    model = AWSGDPolicyGradient(n_episodes=100, random_state=0).fit(env)
    assert model.n_steps_ <= 700
    assert model.history_["cut"].max() > 0
