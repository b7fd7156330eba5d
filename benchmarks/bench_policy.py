"""Policy gradient: does learning to explore pay, and what of it does?

Parts, choose with ``--only``: ``grid``, the paper's table; ``ablation``, what does the
work; ``toys``, Gymnasium's tables against Q-learning and value iteration; ``speed``.
``--quick`` runs a small version of each and saves nothing; ``--sizes 15,50 --horizons
0,1`` runs these grids and keeps what the last results say of others.

Success of the target policy is computed exactly, by recursion over time, not sampled.
"Ours" is ``AWSGDPolicyGradient()`` at its defaults; "tuned" is the best of a grid of
six settings (two rules for the step size, three sizes) on the tuning seeds, for ours
and for on-policy alike. Tuning seeds and evaluation seeds have different grids and
different random streams. The defaults were chosen on seeds below 200, evaluation seeds
begin at 1000; but the three toy tables have no seeds, and the default step size was
chosen looking at them too. "On-policy" is the same code with all episodes from the
target policy, the same baseline and no bonus.
"""

import argparse
import itertools
import json
import resource
import time
import warnings

import _common
import numpy as np
from _common import save, show
from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd import AWSGDPolicyGradient
from sklearn_awsgd._policy.environments import as_table
from sklearn_awsgd.datasets import GridWorld
from sklearn_awsgd.samplers import TrajectorySampler

MARKS = (1_000, 3_000, 10_000, 20_000)
# Horizons at which a random walk succeeds in about .1 % and 1 % of the episodes, and as
# often as it can: traps end most random walks on large grids.
HORIZONS = {15: (90, 150, 500), 50: (1200, 2000, 15_000), 80: (3000, 6500, 20_000)}
GRID = [
    {"learning_rate": rule, "eta0": eta0}
    for rule, eta0 in itertools.product(("range", "adagrad"), (0.1, 0.3, 1.0))
]
ON_POLICY = {"sampler": "on_policy", "bonus": 0}
FIRST_EVALUATION_SEED = 1000


def raw_step(**params):
    """The paper's step on tau, as it stands."""
    return TrajectorySampler(update="sgd", normalize=False, **params)


# The paper's algorithm, and its step on tau with our mixture, baseline and step sizes.
PAPER = {
    "weights": "episode",
    "learning_rate": "constant",
    "baseline": False,
    "bonus": 0,
}
ABLATION = {
    "on-policy": [ON_POLICY],
    "on-policy, bonus": [{"sampler": "on_policy"}],
    "learned, no optimism": [
        {"sampler": TrajectorySampler(optimism=0.0), "bonus": 0},
    ],
    "learned, optimism": [{"bonus": 0}],
    "learned, optimism, unbiased weights": [{"bonus": 0, "weights": "per_decision"}],
    "learned, optimism, bonus (ours)": [{}],
    "raw step on tau, our mixture": [
        {"bonus": 0, "sampler": raw_step(eta0=eta0)} for eta0 in (1e-9, 1e-7, 1e-5)
    ],
    "the paper's algorithm": [
        {**PAPER, "eta0": rho, "sampler": raw_step(mixing=0, eta0=eta0)}
        for rho, eta0 in itertools.product((1e-4, 1e-3, 3e-3), (1e-12, 1e-9))
    ],
}


def curve(params, size, horizon, seed, marks=MARKS):
    """Exact success after numbers of episodes; zero from where steps diverged on."""
    world = GridWorld(size, max_steps=horizon, random_state=seed)
    mdp = world.to_mdp()
    model = AWSGDPolicyGradient(random_state=seed, **params)
    success, n_done = [], 0
    for mark in marks:
        try:
            model.partial_fit(world, n_episodes=mark - n_done)
        except ValueError:
            return success + [0.0] * (len(marks) - len(success))
        success.append(mdp.evaluate(model.policy_).success)
        n_done = mark
    return success


def curves(params, size, horizon, seeds):
    return np.array([curve(params, size, horizon, seed) for seed in seeds])


def best_of(settings, size, horizon, seeds):
    """The setting with the best mean over the curve, on tuning seeds."""
    if len(settings) == 1:
        return settings[0]
    scores = [curves(params, size, horizon, seeds).mean() for params in settings]
    return settings[int(np.argmax(scores))]


def row(found, **labels):
    """A line of a table: means over seeds, and the standard error of the last."""
    means = {
        f"{mark:,}": float(m) for mark, m in zip(MARKS, found.mean(0), strict=True)
    }
    error = float(found[:, -1].std() / np.sqrt(len(found)))
    return {**labels, **means, "error of the last": error, "seeds": len(found)}


def told(params):
    """A setting in few words."""
    return ", ".join(f"{name}={value}" for name, value in params.items())


def others(rows, cells):
    """What is known of grids that do not run."""
    return [row for row in rows if (row["l"], row["horizon"]) not in cells]


def evaluation_seeds(n_seeds):
    return range(FIRST_EVALUATION_SEED, FIRST_EVALUATION_SEED + n_seeds)


def bench_grid(options, results):
    """Success of the target policy: the paper's table at three horizons."""
    cells = [
        (size, HORIZONS[size][k]) for size in options.sizes for k in options.horizons
    ]
    rows = results["grid"] = others(results.get("grid", []), cells)
    for size in options.sizes:
        uniform = np.full((size**2, 4), 0.25)
        for horizon in (HORIZONS[size][k] for k in options.horizons):
            worlds = [
                GridWorld(size, max_steps=horizon, random_state=seed).to_mdp()
                for seed in range(3 if size == 80 else 10)
            ]
            chance = np.mean([world.evaluate(uniform).success for world in worlds])
            seeds = evaluation_seeds(options.seeds)
            tuning = range(options.tuning_seeds[size])
            contestants = {
                "ours": {},
                "ours, tuned": best_of(GRID, size, horizon, tuning),
                "on-policy, tuned": best_of(
                    [ON_POLICY | params for params in GRID], size, horizon, tuning
                ),
                "on-policy": ON_POLICY,
            }
            for name, params in contestants.items():
                rows.append(
                    row(
                        curves(params, size, horizon, seeds),
                        l=size,
                        horizon=horizon,
                        chance=float(chance),
                        contestant=name,
                        setting=told(params) if "tuned" in name else "",
                    )
                )
            show(f"l = {size}, horizon {horizon}", rows[-len(contestants) :])
            options.save(results)


def bench_ablation(options, results):
    """What does the work, at the rare horizons."""
    cells = [(size, HORIZONS[size][0]) for size in options.sizes]
    rows = results["ablation"] = others(results.get("ablation", []), cells)
    for size, horizon in cells:
        n_seeds = options.seeds if size < 80 else options.slow_seeds
        for name, settings in ABLATION.items():
            if size == 80 and len(settings) > 1:
                # Hours: the raw step learns little here and walks to the horizon.
                continue
            tuning = range(options.tuning_seeds[size])
            params = best_of(settings, size, horizon, tuning)
            found = curves(params, size, horizon, evaluation_seeds(n_seeds))
            chosen = told(params) if len(settings) > 1 else ""
            rows.append(row(found, l=size, horizon=horizon, contestant=name))
            rows[-1]["setting"] = chosen
        show(f"l = {size}, horizon {horizon}", [r for r in rows if r["l"] == size])
        options.save(results)


def outcomes_of(mdp):
    """The table as flat arrays: pair, probability, next state, reward, goes on."""
    table, first = mdp._outcomes, mdp._first
    pairs = np.repeat(np.arange(len(first) - 1), np.diff(first))
    p = np.diff(table["cumulative"], prepend=0)
    p[first[:-1]] = table["cumulative"][first[:-1]]
    return pairs, p, table["state"], table["reward"], table["ending"] == 0


def value_iteration(mdp, max_steps):
    """The largest expected return of any policy within the horizon."""
    pairs, p, states, rewards, goes_on = outcomes_of(mdp)
    values = np.zeros(mdp.n_states)
    for _ in range(max_steps):
        worth = p * (rewards + goes_on * values[states])
        pair_values = np.bincount(pairs, weights=worth)
        values = pair_values.reshape(mdp.n_states, mdp.n_actions).max(axis=1)
    starts = np.diff(mdp._start_cumulative, prepend=0)
    return float(starts @ values[mdp._start_states])


def q_learning(mdp, max_steps, marks, seed, alpha, epsilon, discount=0.99):
    """Tabular Q-learning; yields the greedy policy after numbers of steps."""
    rng = np.random.default_rng(seed)
    # Ties are broken at random, or it would walk into the same wall for ever.
    Q = 1e-6 * rng.random((mdp.n_states, mdp.n_actions))
    table, first, n_actions = mdp._outcomes, mdp._first.tolist(), mdp.n_actions
    cumulative, ends = table["cumulative"].tolist(), table["ending"].tolist()
    states, rewards = table["state"].tolist(), table["reward"].tolist()
    q, t, marks = Q.tolist(), 0, list(marks)
    while True:
        start = np.searchsorted(mdp._start_cumulative, rng.random(), side="right")
        s = int(mdp._start_states[start])
        for _ in range(max_steps):
            u, v, z = rng.random(3).tolist()
            here = q[s]
            a = here.index(max(here)) if u >= epsilon else int(v * n_actions)
            k = first[s * n_actions + a]
            while z >= cumulative[k]:
                k += 1
            follows = rewards[k] + (0 if ends[k] else discount * max(q[states[k]]))
            here[a] += alpha * (follows - here[a])
            s, t = states[k], t + 1
            if t == marks[0]:
                yield np.eye(n_actions)[np.argmax(q, axis=1)]
                marks.pop(0)
                if not marks:
                    return
            if ends[k]:
                break


def ours_at_steps(mdp, marks, seed, params):
    """Policies of ours after numbers of steps, and the episode they end in."""
    model = AWSGDPolicyGradient(random_state=seed, **params)
    for mark in marks:
        while getattr(model, "n_steps_", 0) < mark:
            # No more than the steps that are left allow, while there are many.
            n_left = (mark - getattr(model, "n_steps_", 0)) // params["max_steps"]
            model.partial_fit(mdp, n_episodes=max(1, min(n_left, 100)))
        yield model.policy_


def bench_toys(options, results):
    """Return at equal numbers of environment steps, on Gymnasium's tables."""
    import gymnasium

    rows = results["toys"] = []
    all_marks = (30_000, 100_000, 300_000, 1_000_000)
    tables = {
        "FrozenLake 8x8": (
            gymnasium.make("FrozenLake-v1", map_name="8x8", max_episode_steps=200),
            200,
            4,
        ),
        "CliffWalking": (gymnasium.make("CliffWalking-v1"), 1000, 3),
        "Taxi": (gymnasium.make("Taxi-v4"), 200, 3),
    }
    for name, (env, horizon, n_marks) in tables.items():
        mdp = as_table(env)
        marks = all_marks[: 2 if options.quick else n_marks]

        def values(policies, mdp=mdp, horizon=horizon):
            return [mdp.evaluate(policy, horizon).mean_return for policy in policies]

        def played(params, seed, mdp=mdp, horizon=horizon, marks=marks, values=values):
            params = {"max_steps": horizon, **params}
            return values(ours_at_steps(mdp, marks, seed, params))

        def learned(params, seed, mdp=mdp, horizon=horizon, marks=marks, values=values):
            return values(q_learning(mdp, horizon, marks, seed, **params))

        q_grid = [
            {"alpha": alpha, "epsilon": epsilon}
            for alpha, epsilon in itertools.product((0.03, 0.1, 0.5), (0.1, 0.3))
        ]
        contestants = {
            "ours": (played, [{}]),
            "ours, tuned": (played, GRID),
            "on-policy, tuned": (played, [ON_POLICY | params for params in GRID]),
            "on-policy": (played, [ON_POLICY]),
            "on-policy, bonus": (played, [{"sampler": "on_policy"}]),
            "Q-learning, tuned": (learned, q_grid),
        }
        for contestant, (function, settings) in contestants.items():
            params = settings[0]
            if len(settings) > 1:
                # By what is reached at the end: early returns are nearly noise.
                tuning = range(options.tuning_seeds[50])
                scores = [
                    np.mean([function(params, seed)[-1] for seed in tuning])
                    for params in settings
                ]
                params = settings[int(np.argmax(scores))]
            found = np.array(
                [
                    function(params, seed)
                    for seed in evaluation_seeds(options.slow_seeds)
                ]
            )
            rows.append(
                {
                    "environment": name,
                    "contestant": contestant,
                    **{
                        f"{mark:,}": float(mean)
                        for mark, mean in zip(marks, found.mean(0), strict=True)
                    },
                    "error of the last": float(
                        found[:, -1].std() / np.sqrt(len(found))
                    ),
                    "best possible": value_iteration(mdp, horizon),
                    "seeds": len(found),
                    "setting": told(params) if len(settings) > 1 else "",
                }
            )
        show(name, [r for r in rows if r["environment"] == name])
        options.save(results)


def bench_speed(options, results):
    """Environment steps a second, one core; memory of long runs."""
    rows = results["speed"] = []
    for size, horizon, n_episodes in (
        (15, 150, 50_000),
        (50, 2000, 10_000),
        (80, 6500, 3_000),
    ):
        for sampler in ("trajectory", "on_policy"):
            rates = []
            for seed in range(3):
                model = AWSGDPolicyGradient(
                    sampler, n_episodes=n_episodes, random_state=seed
                )
                begin = time.process_time()
                model.fit(GridWorld(size, max_steps=horizon, random_state=seed))
                rates.append(model.n_steps_ / (time.process_time() - begin))
            rows.append(
                {
                    "l": size,
                    "horizon": horizon,
                    "sampler": sampler,
                    "million steps / CPU s": float(np.median(rates) / 1e6),
                }
            )
    show("steps a second", rows)
    rows = results["memory"] = []
    for n_episodes in (10_000, 100_000, 1_000_000):
        model = AWSGDPolicyGradient(n_episodes=n_episodes, random_state=0)
        model.fit(GridWorld(5, random_state=0))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        rows.append({"episodes": n_episodes, "peak MB": round(peak, 1)})
    show("memory", rows)
    options.save(results)


PARTS = {
    "speed": bench_speed,
    "grid": bench_grid,
    "ablation": bench_ablation,
    "toys": bench_toys,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="small, saves nothing")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--sizes", default="15,50,80")
    parser.add_argument("--horizons", default="0,1,2", help="which of each size's")
    parser.add_argument(
        "--slow-seeds", type=int, default=10, help="seeds of toys and of l = 80's parts"
    )
    options = parser.parse_args()
    options.sizes = [int(size) for size in options.sizes.split(",")]
    options.horizons = [int(k) for k in options.horizons.split(",")]
    options.tuning_seeds = {15: 5, 50: 3, 80: 2}
    options.save = lambda results: save("policy", results)
    if options.quick:
        options.seeds = options.slow_seeds = 2
        options.tuning_seeds = dict.fromkeys(HORIZONS, 1)
        options.save = lambda results: None
        options.sizes = [15]
    warnings.simplefilter("ignore", ConvergenceWarning)
    path = _common.RESULTS / "policy.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    results.pop("environment", None)
    for part in options.only.split(","):
        begin = time.process_time()
        print(f"\n{part}: {PARTS[part].__doc__}", flush=True)
        PARTS[part](options, results)
        print(f"  {time.process_time() - begin:.0f} CPU s", flush=True)


if __name__ == "__main__":
    main()
