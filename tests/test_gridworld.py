"""The grid of the paper, as a table and as a Gymnasium environment."""

import subprocess
import sys

import numpy as np
import pytest

from sklearn_awsgd.datasets import MOVES, GridWorld

UP, DOWN, LEFT, RIGHT = range(4)


def test_moves_and_edges():
    grid = GridWorld(3, n_traps=0)
    assert list(MOVES) == ["up", "down", "left", "right"]
    expected = {
        0: [0, 3, 0, 1],
        4: [1, 7, 3, 5],
        5: [2, 8, 4, 5],
        6: [3, 6, 6, 7],
    }
    for state, states in expected.items():
        np.testing.assert_array_equal(grid.next_states()[state], states)


@pytest.mark.parametrize(("size", "n_traps"), [(15, 1), (25, 1), (50, 2), (80, 4)])
def test_number_of_traps_is_the_papers(size, n_traps, seed):
    grid = GridWorld(size, random_state=seed)
    assert len(grid.traps) == n_traps
    assert not np.isin(grid.traps, [0, size**2 - 1]).any()


def test_traps_depend_on_the_seed_only():
    first, again, other = (GridWorld(40, random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.traps, again.traps)
    assert (first.traps != other.traps).any()


def test_rewards_and_ends():
    grid = GridWorld(3, n_traps=0)
    grid.traps = np.array([4])
    mdp = grid.to_mdp()
    along_the_edge = np.zeros((9, 4))
    along_the_edge[[0, 3], DOWN] = 1
    along_the_edge[[6, 7], RIGHT] = 1
    value = mdp.evaluate(along_the_edge)
    assert (value.mean_return, value.success, value.n_steps) == (996.0, 1.0, 4.0)
    into_the_trap = along_the_edge.copy()
    into_the_trap[3] = np.eye(4)[RIGHT]
    value = mdp.evaluate(into_the_trap)
    assert (value.mean_return, value.success, value.n_steps) == (-1002.0, 0.0, 2.0)
    stay = np.zeros((9, 4))
    stay[:, UP] = 1
    value = mdp.evaluate(stay, max_steps=7)
    assert (value.mean_return, value.success, value.n_steps) == (-7.0, 0.0, 7.0)


def test_no_traps_and_printing():
    assert str(GridWorld(2, n_traps=0)) == "S .\n. G"


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"size": 1}, "size=1"),
        ({"n_traps": -1}, "n_traps=-1"),
        ({"size": 2, "n_traps": 3}, "n_traps=3"),
        ({"max_steps": 0}, "max_steps=0"),
    ],
)
def test_parameters_are_checked(params, match):
    with pytest.raises(ValueError, match=match):
        GridWorld(**params)


def test_gymnasium_accepts_it():
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    # A warning of the checker would be an error here.
    env = gymnasium.make(
        "sklearn_awsgd/GridWorld-v0", size=5, max_steps=30, render_mode="ansi"
    )
    check_env(env.unwrapped)


def test_it_is_registered_with_gymnasium():
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("sklearn_awsgd/GridWorld-v0", size=4, random_state=0)
    assert env.observation_space.n == 16
    assert env.unwrapped.grid.traps == GridWorld(4, random_state=0).traps


def test_environment_and_table_say_the_same(seed):
    pytest.importorskip("gymnasium")
    rng = np.random.default_rng(seed)
    grid = GridWorld(4, random_state=seed, n_traps=2, max_steps=20)
    env = grid.to_gymnasium(render_mode="ansi")
    endings = set()
    for _ in range(60):
        state, _ = env.reset()
        for step in range(1, 21):
            action = rng.integers(4)
            expected = grid.next_states()[state, action]
            state, reward, ended, cut, info = env.step(action)
            assert state == expected
            assert cut == (step == 20)
            assert ended == (state == 15 or state in grid.traps)
            assert info["is_success"] == (state == 15)
            assert reward == -1 + 1000 * (state == 15) - 1000 * (state in grid.traps)
            assert env.render().split().index("A") == state
            if ended or cut:
                endings.add((bool(ended), info["is_success"]))
                break
    assert endings >= {(True, False)}


def test_gymnasium_is_not_needed():
    # Importing the package must not import it, and the grid works without it.
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from sklearn_awsgd import AWSGDPolicyGradient\n"
        "from sklearn_awsgd.datasets import GridWorld\n"
        "model = AWSGDPolicyGradient(n_episodes=20, random_state=0)\n"
        "print(model.fit(GridWorld(4, random_state=0)).n_episodes_)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "20"


def test_package_does_not_import_gymnasium():
    code = "import sys, sklearn_awsgd; print('gymnasium' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
