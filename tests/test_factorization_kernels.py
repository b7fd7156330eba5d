"""The low-rank problem: losses, gradients and proximal steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from sklearn_awsgd._kernels._entries import Entries, ShuffledEntries
from sklearn_awsgd._kernels._factorization import FactorizationProblem
from sklearn_awsgd._kernels._loop import POINT, SUMS, run
from sklearn_awsgd._kernels._losses import SquaredError

from sklearn_awsgd._factorization.row_solver import LOSSES, evaluate_loss, make_loss
from sklearn_awsgd._kernels import _product_sampler as samplers
from sklearn_awsgd._kernels.settings import Biases, EntryRate, StoredValues
from sklearn_awsgd.samplers import RowColumnSampler

EPSILON = 0.7


def target(loss, rng):
    kinds = {
        "log_loss": lambda: float(rng.integers(2)),
        "poisson": lambda: float(rng.poisson(3)),
    }
    return kinds.get(loss, lambda: 3 * rng.normal())()


class OneEntry:
    """A 1 x 1 matrix: every draw is its entry, with q = 1."""

    def __init__(
        self,
        y,
        u,
        v,
        loss,
        *,
        alpha=0.0,
        gain=0.0,
        bias=(0.0, 0.0),
        h=0.1,
        weight=None,
        proximal=True,
    ):
        self.state = {
            "rows": np.array([u]),
            "columns": np.array([v]),
            "row_bias": np.array([bias[0]]),
            "column_bias": np.array([bias[1]]),
            "clock": np.zeros(1),
        }
        self.arguments = (loss, EPSILON, alpha, gain, 0.2 if gain else 0.0)
        self.y, self.h, self.weight, self.proximal = y, h, weight, proximal

    def step(self):
        weights = None if self.weight is None else np.array([self.weight])
        loss, epsilon, alpha, gain, baseline = self.arguments
        problem = FactorizationProblem(
            StoredValues(np.array([self.y]), weights),
            self.state,
            make_loss(loss, epsilon),
            alpha,
            Biases(baseline, gain),
            EntryRate(self.h, proximal=self.proximal),
        )
        sampler = ShuffledEntries(np.random.PCG64(0), Entries((1, 1), "dense"))
        batch = np.zeros(32, dtype=POINT)
        assert run(problem, sampler, 1, batch, np.zeros(len(SUMS))) == 1
        return batch[0]

    def parameters(self):
        return np.concatenate(
            [
                self.state["rows"][0],
                self.state["columns"][0],
                self.state["row_bias"],
                self.state["column_bias"],
            ]
        )

    def f(self, parameters):
        loss, epsilon, alpha, gain, baseline = self.arguments
        u, v = np.split(parameters[:-2], 2)
        z = baseline + gain * parameters[-2:].sum() + u @ v
        value = evaluate_loss(loss, epsilon, np.array(self.y), np.array(z))[0]
        used = parameters if gain else parameters[:-2]
        weight = 1.0 if self.weight is None else self.weight
        return weight * (value + alpha / 2 * used @ used)


def random_entry(loss, seed, **settings):
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(2, 3)) * rng.choice([0.3, 1.0, 2.0])
    bias = rng.normal(size=2) if settings.get("gain") else (0.0, 0.0)
    return OneEntry(target(loss, rng), u, v, loss, bias=bias, **settings)


SETTINGS = [
    {},
    {"alpha": 0.3},
    {"gain": 0.8, "alpha": 0.1},
    {"gain": 1.0, "weight": 2.5},
]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("options", SETTINGS)
def test_loss_and_gradient_norm(loss, options):
    for seed in range(20):
        entry = random_entry(loss, seed, **options)
        start = entry.parameters()
        gradient = np.array(
            [
                (entry.f(start + e) - entry.f(start - e)) / 2e-6
                for e in 1e-6 * np.eye(len(start))
            ]
        )
        if not options.get("gain"):
            gradient[-2:] = 0
        value = entry.f(start)
        point = entry.step()
        assert point["loss"] == pytest.approx(value, rel=1e-10)
        assert point["norm2"] == pytest.approx(gradient @ gradient, rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("options", SETTINGS)
def test_gradient_step(loss, options):
    for seed in range(10):
        entry = random_entry(loss, seed, proximal=False, h=0.01, **options)
        start = entry.parameters()
        gradient = np.array(
            [
                (entry.f(start + e) - entry.f(start - e)) / 2e-6
                for e in 1e-6 * np.eye(len(start))
            ]
        )
        if not options.get("gain"):
            gradient[-2:] = 0
        entry.step()
        np.testing.assert_allclose(
            entry.parameters(), start - 0.01 * gradient, atol=1e-7
        )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("options", SETTINGS)
@pytest.mark.parametrize("h", [0.01, 0.5, 10.0])
def test_proximal_step_is_the_minimum(loss, options, h):
    for seed in range(4):
        entry = random_entry(loss, seed, h=h, **options)
        start = entry.parameters()
        free = len(start) if options.get("gain") else len(start) - 2

        def objective(x):
            x = np.concatenate([x, start[len(x) :]])
            return h * entry.f(x) + ((x - start) ** 2).sum() / 2

        entry.step()
        ours = entry.parameters()[:free]
        best = min(
            (
                minimize(objective, first, method="BFGS", options={"gtol": 1e-9})
                for first in (start[:free], ours)
            ),
            key=lambda result: result.fun,
        )
        assert objective(ours) <= best.fun + 1e-6 * (1 + abs(best.fun))
        # The step is stationary: it is the exact one, not a linearised one.
        gradient = np.array(
            [
                (objective(ours + e) - objective(ours - e)) / 2e-6
                for e in 1e-6 * np.eye(free)
            ]
        )
        size = 1 + np.linalg.norm(ours - start[:free])
        assert np.linalg.norm(gradient) < 2e-3 * size * (1 + h)


@settings(max_examples=300, deadline=None)
@given(
    loss=st.sampled_from(list(LOSSES)),
    seed=st.integers(0, 10**6),
    h=st.floats(-9, 12),
    scale=st.floats(-6, 6),
)
def test_no_rate_makes_the_entry_worse(loss, seed, h, scale):
    rng = np.random.default_rng(seed)
    y = target(loss, rng)
    size = 1.0
    if loss in ("squared_error", "huber"):
        y, size = y * 10**scale, 10 ** (scale / 2)
    u, v = rng.normal(size=(2, 4)) * size
    entry = OneEntry(y, u, v, loss, h=10**h)
    start = entry.parameters()
    before = entry.f(start)
    entry.step()
    after = entry.f(entry.parameters())
    assert np.isfinite(entry.parameters()).all()
    assert after <= before + 1e-9 * (1 + abs(before))
    # A proximal step is no longer than the fall of the loss pays for.
    move2 = ((entry.parameters() - start) ** 2).sum()
    assert move2 / 2 <= 1.01 * 10**h * (before - after) + 1e-9 * (1 + move2)


def twin_step(u, v, y, h):
    """The proximal step of the squared error in plain NumPy."""
    norm2, product = u @ u + v @ v, u @ v

    def gap(c):
        z = (
            (norm2 + 2 * product) / (1 + c) ** 2 - (norm2 - 2 * product) / (1 - c) ** 2
        ) / 4
        return c - h * (z - y)

    c = brentq(gap, -1 + 1e-9, 1 - 1e-9, xtol=1e-14)
    return (u - c * v) / (1 - c * c), (v - c * u) / (1 - c * c)


def test_short_steps_are_exact_enough():
    # Where the power series takes the place of the root: from tiny rates to rates that
    # make the step as long as the residual asks, at any angle of u and v.
    rng = np.random.default_rng(0)
    n_short = 0
    for _ in range(400):
        u, v = rng.normal(size=(2, 3)) * 10.0 ** rng.uniform(-1, 1)
        if rng.random() < 0.3:
            v = rng.choice([-1.0, 1.0]) * u
        h = 10.0 ** rng.uniform(-5, 3)
        s = h / (1 + h * (u @ u + v @ v))
        first = rng.uniform(-0.06, 0.06)
        y = u @ v - first / s
        expected = np.concatenate(twin_step(u, v, y, h))
        entry = OneEntry(y, u, v, "squared_error", h=h)
        entry.step()
        move = entry.parameters()[:-2] - np.concatenate([u, v])
        difference = entry.parameters()[:-2] - expected
        n_short += abs(first) < 0.05
        assert np.abs(difference).max() <= 1e-4 * np.abs(move).max() + 1e-9
    assert 200 < n_short < 400


@pytest.mark.parametrize("kind", ["uniform", "product"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_run_matches_the_twin(kind, dtype):
    n, m, k = 6, 5, 3
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, m)).astype(dtype)
    weights = rng.uniform(0.5, 2, size=(n, m))
    U, V = rng.normal(size=(n, k)), rng.normal(size=(m, k))
    state = {
        "rows": U.copy(),
        "columns": V.copy(),
        "row_bias": np.zeros(n),
        "column_bias": np.zeros(m),
        "clock": np.zeros(1),
    }
    eta0, offset, power = 0.3, 40.0, 0.75
    problem = FactorizationProblem(
        StoredValues(X.ravel(), weights.ravel()),
        state,
        SquaredError(),
        0.0,
        Biases(),
        EntryRate(eta0, offset, power),
    )
    entries = Entries((n, m), "dense")

    def make():
        if kind == "uniform":
            return ShuffledEntries(np.random.PCG64(3), entries)
        learned = {"table": np.zeros((n + m, 4)), "costs": np.zeros((n + m, 2))}
        learned |= {"scale": np.zeros(4), "parts": np.zeros(8)}
        setting = RowColumnSampler(mixing=0.2, forgetting=0.1)
        return samplers.ProductDraws(np.random.PCG64(3), entries, learned, setting)

    sums = np.zeros(len(SUMS))
    n_draws = 192
    run(problem, make(), n_draws, np.zeros(32, dtype=POINT), sums)
    sampler = make()
    t = 0
    for _ in range(n_draws // 32):
        points = sampler.draw_points(32)
        for x in points:
            i, j = x["i"], x["j"]
            weight = weights[i, j] / x["q"]
            residual = U[i] @ V[j] - X[i, j]
            x["norm2"] = (weight * residual) ** 2 * (U[i] @ U[i] + V[j] @ V[j])
            h = eta0 / (1 + t / offset) ** power * weight
            U[i], V[j] = twin_step(U[i], V[j], X[i, j], h)
            t += 1
        sampler.observe_points(points)
    assert state["clock"][0] == n_draws
    np.testing.assert_allclose(state["rows"], U, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state["columns"], V, rtol=1e-4, atol=1e-5)


def test_paper_setting_step_by_step():
    # Section 6 of the paper in plain NumPy, on the same random stream: batches share
    # one tau, rho_0 / (N / 2 + t), constant eta, tau = 0 at the start.
    n, m, k, batch_size = 12, 9, 2, 25
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, m))
    X[:3, :2] *= 5
    U, V = rng.normal(size=(n, k)), rng.normal(size=(m, k))
    rho0, eta = 3.0, 2e-3
    state = {
        "rows": U.copy(),
        "columns": V.copy(),
        "row_bias": np.zeros(n),
        "column_bias": np.zeros(m),
        "clock": np.zeros(1),
    }
    half = n * m / 2
    problem = FactorizationProblem(
        StoredValues(X.ravel()),
        state,
        SquaredError(),
        0.0,
        Biases(),
        EntryRate(rho0 / half, half, 1.0, proximal=False),
    )
    learned = {"table": np.zeros((n + m, 4)), "costs": np.zeros((n + m, 2))}
    learned |= {"scale": np.zeros(4), "parts": np.zeros(8)}
    sampler = samplers.ProductDraws(
        np.random.PCG64(5),
        Entries((n, m), "dense"),
        learned,
        RowColumnSampler(update="sgd", mixing=0, eta0=eta, normalize=False),
    )
    stream = np.random.Generator(np.random.PCG64(5))
    row_tau, column_tau = np.zeros(n), np.zeros(m)
    t = 0
    batch = np.zeros(batch_size, dtype=POINT)
    for _ in range(8):
        run(problem, sampler, batch_size, batch, np.zeros(len(SUMS)))
        p, r = (np.exp(tau) / np.exp(tau).sum() for tau in (row_tau, column_tau))
        draws = []
        for _ in range(batch_size):
            i = np.searchsorted(np.cumsum(p), stream.random(), side="right")
            j = np.searchsorted(np.cumsum(r), stream.random(), side="right")
            draws.append((i, j))
        for i, j in draws:
            q = n * m * p[i] * r[j]
            s = U[i] @ V[j] - X[i, j]
            d_u, d_v = s * V[j] / q, s * U[i] / q
            rho = rho0 / (half + t)
            U[i] -= rho * d_u
            V[j] -= rho * d_v
            norm2 = d_u @ d_u + d_v @ d_v
            row_tau += eta * norm2 * (np.eye(n)[i] - p)
            column_tau += eta * norm2 * (np.eye(m)[j] - r)
            t += 1
        np.testing.assert_array_equal(batch["i"], [i for i, _ in draws])
        np.testing.assert_array_equal(batch["j"], [j for _, j in draws])
        np.testing.assert_allclose(state["rows"], U, rtol=1e-9)
        np.testing.assert_allclose(state["columns"], V, rtol=1e-9)
        expected = np.exp(row_tau) / np.exp(row_tau).sum()
        np.testing.assert_allclose(sampler.row_probabilities(), expected, rtol=1e-9)
    assert np.ptp(sampler.row_probabilities()) > 0.01


def test_unstored_entries_are_zeros_with_their_weight():
    state = {
        "rows": np.ones((1, 1)),
        "columns": np.ones((2, 1)),
        "row_bias": np.zeros(1),
        "column_bias": np.zeros(2),
        "clock": np.zeros(1),
    }
    problem = FactorizationProblem(
        StoredValues(np.array([3.0]), np.array([2.0]), unstored_weight=0.5),
        state,
        SquaredError(),
        0.0,
        Biases(),
        EntryRate(1e-9),
    )
    entries = Entries(
        (1, 2), "zeros", np.array([0, 1], dtype=np.intp), np.array([1], dtype=np.int32)
    )
    sampler = ShuffledEntries(np.random.PCG64(0), entries)
    batch = np.zeros(32, dtype=POINT)
    run(problem, sampler, 2, batch, np.zeros(len(SUMS)))
    losses = {int(x["j"]): x["loss"] for x in batch[:2]}
    assert losses[0] == pytest.approx(0.5 * 0.5, rel=1e-6)
    assert losses[1] == pytest.approx(2.0 * 2.0, rel=1e-6)
