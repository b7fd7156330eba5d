"""
Where does a policy look while it does not know the reward?
===========================================================

The grid of the paper: start in the upper left corner, a reward in the lower right one,
a trap somewhere, and so few steps that a random walk finds the reward in one of a
thousand episodes. On-policy gradients mostly see nothing to learn from. The estimator
plays half of its episodes with a second policy that goes where the gradient is large or
nothing was ever tried, and pays itself a small bonus for what is new.

Upper row: both policies after 800 episodes, as arrows, over the cells that they visit,
and where the exploration policy goes more often than the target policy. Lower row: the
success of the target policy over episodes, computed exactly, of ten runs.
"""

import matplotlib.pyplot as plt
import numpy as np

from sklearn_awsgd import AWSGDPolicyGradient
from sklearn_awsgd.datasets import MOVES, GridWorld

SIZE, HORIZON = 15, 90
grid = GridWorld(SIZE, max_steps=HORIZON, random_state=3)
mdp = grid.to_mdp()

# %%
# A model early on, when its two policies still differ, and how often an episode of each
# visits each cell, by recursion over time.

model = AWSGDPolicyGradient(n_episodes=800, random_state=0).fit(grid)


def visits(policy):
    """Expected number of visits of each cell in an episode."""
    next_states, ends = grid.next_states(), [*grid.traps, grid.n_states - 1]
    now, total = np.zeros(grid.n_states), np.zeros(grid.n_states)
    now[0] = 1
    for _ in range(HORIZON):
        total += now
        then = np.zeros(grid.n_states)
        np.add.at(then, next_states, now[:, None] * policy)
        total[ends] += then[ends]
        then[ends] = 0
        now = then
    return total.reshape(SIZE, SIZE)


# %%
# Three contestants, ten runs each: the default, and on-policy gradients without the
# bonus and with it.

MARKS = np.arange(100, 3001, 100)
CONTESTANTS = {
    "AWSGDPolicyGradient()": ({}, "C0"),
    "on-policy with the same bonus": ({"sampler": "on_policy"}, "C2"),
    "on-policy": ({"sampler": "on_policy", "bonus": 0}, "C1"),
}


def success_curve(params, seed):
    """Success of the target policy after each of the marks."""
    model = AWSGDPolicyGradient(random_state=seed, **params)
    return [
        mdp.evaluate(model.partial_fit(grid, n_episodes=100).policy_).success
        for _ in MARKS
    ]


curves = {
    name: np.array([success_curve(params, seed) for seed in range(10)])
    for name, (params, _) in CONTESTANTS.items()
}

# %%
# The picture.

figure = plt.figure(figsize=(13, 8), layout="constrained")
axes = figure.subplot_mosaic("ABC;DDD", height_ratios=[1.35, 1])
figure.suptitle("Maps: after 800 episodes (circle: start, star: goal, cross: trap)")
moves = np.array(list(MOVES.values()))
policies = {
    "A": ("target policy", model.policy_),
    "B": ("exploration policy", model.behavior_policy_),
}
places = {"start": (0, "o", "C2"), "goal": (grid.n_states - 1, "*", "gold")}
places |= {f"trap {k}": (trap, "X", "C3") for k, trap in enumerate(grid.traps)}


def show_places(axis):
    """Draw start, goal and traps."""
    axis.set(xticks=[], yticks=[])
    for state, marker, colour in places.values():
        row, column = divmod(state, SIZE)
        axis.plot(column, row, marker, color=colour, ms=12, mec="black")


for key, (name, policy) in policies.items():
    axis, seen = axes[key], visits(policy)
    picture = axis.imshow(
        np.log10(np.maximum(seen, 1e-3)), cmap="Blues", vmin=-3, vmax=1
    )
    # The mean move of each cell; imshow counts rows downwards, as the grid does.
    down, right = (policy @ moves).T
    rows, columns = np.divmod(np.arange(grid.n_states), SIZE)
    alive = ~np.isin(np.arange(grid.n_states), [*grid.traps, grid.n_states - 1])
    axis.quiver(
        columns[alive],
        rows[alive],
        right[alive],
        down[alive],
        angles="xy",
        scale_units="xy",
        scale=0.95,
        pivot="mid",
        width=0.006,
    )
    show_places(axis)
    value = mdp.evaluate(policy)
    axis.set_title(
        f"{name}\n{value.success:.0%} of its episodes reach the goal", fontsize=11
    )
bar = figure.colorbar(
    picture, ax=[axes["A"], axes["B"]], location="left", shrink=0.85, pad=0.01
)
bar.set_label("visits in an episode")
bar.set_ticks([-3, -2, -1, 0, 1], labels=["≤ 0.001", "0.01", "0.1", "1", "10"])
ratio = np.log2(visits(model.behavior_policy_) / visits(model.policy_))
picture = axes["C"].imshow(ratio, cmap="PuOr_r", vmin=-2, vmax=2)
show_places(axes["C"])
axes["C"].set_title("where exploration goes\nmore often (orange) or less", fontsize=11)
bar = figure.colorbar(picture, ax=axes["C"], shrink=0.85, pad=0.01)
bar.set_label("visits, exploration / target")
bar.set_ticks([-2, -1, 0, 1, 2], labels=["1/4", "1/2", "1", "2", "4"])
axis = axes["D"]
for name, curve in curves.items():
    colour = CONTESTANTS[name][1]
    axis.plot(MARKS, curve.mean(axis=0), color=colour, lw=2.5, label=name)
    axis.plot(MARKS, curve.T, color=colour, lw=0.6, alpha=0.5)
axis.set(xlabel="episodes", ylabel="success of the target policy", ylim=(-0.02, 1.02))
axis.legend(loc="center right", title="mean of ten runs; thin: each run")
axis.grid(alpha=0.3)
plt.show()

for name, curve in curves.items():
    print(f"{name:32} success after 3,000 episodes {curve[:, -1].mean():.2f}")

# %%
# On-policy runs are all or nothing: the first success decides, and most runs have none.
# The exploration policy lingers around the goal and near the trap, where steps matter
# and the gradient is large, and leaves alone what is settled. The curves say what that
# is worth here: the bonus for what is new does nearly all of the work, and on-policy
# gradients that get it too are about as good.
