"""Samplers: exact densities, unbiasedness, draws, and every update rule by its twin."""

import numpy as np
import pytest
from helpers import (
    StrataTwin,
    alias_twin,
    log_loss,
    shuffle_twin,
    strata_kernel,
    stream,
    uniform_kernel,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from sklearn.base import clone
from sklearn_awsgd._kernels._tables import AliasTable, SafeRows

from sklearn_awsgd.samplers import StrataSampler

N_ROWS, N_STRATA = 40, 4

SETTINGS = {
    "moments": StrataSampler(forgetting=0.05),
    "moments, mixing 0": StrataSampler(mixing=0, forgetting=0.05),
    "moments, mixing .5": StrataSampler(mixing=0.5, forgetting=0.05),
    "sgd": StrataSampler(update="sgd", forgetting=0.05),
    "sgd, balanced": StrataSampler(update="sgd", start="balanced", mixing=0),
    "sgd, raw": StrataSampler(update="sgd", normalize=False, eta0=0.01),
    "adagrad": StrataSampler(update="adagrad", forgetting=0.05),
    "adagrad, paper": StrataSampler(
        update="adagrad", eta0=0.1, normalize=False, mixing=0, start="balanced"
    ),
}
each_setting = pytest.mark.parametrize("name", SETTINGS)
weighted_or_not = pytest.mark.parametrize("weighted", [False, True])


class Case:
    """Rows with masses, norms and strata of which the second is absent."""

    def __init__(self, name, seed, weighted):
        rng = np.random.default_rng([seed, 1])
        self.strata = rng.choice([0, 2, 2, 3, 3, 3], size=N_ROWS)
        self.strata[:3] = [0, 2, 3]
        self.mass = None
        if weighted:
            self.mass = rng.integers(0, 4, N_ROWS) * rng.uniform(0.5, 2, N_ROWS)
            self.mass[:3] = 1.0
            self.mass /= self.mass.sum()
        self.P = np.full(N_ROWS, 1 / N_ROWS) if self.mass is None else self.mass
        self.norms2 = rng.exponential(5, N_ROWS)
        self.setting = clone(SETTINGS[name])
        self.bits, self.rng = stream(seed)
        self.kernel = strata_kernel(
            clone(self.setting),
            self.bits,
            self.strata,
            N_STRATA,
            self.mass,
            self.norms2,
        )
        self.twin = StrataTwin(
            self.rng, self.setting, self.strata, N_STRATA, self.mass, self.norms2
        )

    def observe_random(self, n_points, rng):
        """Let the sampler learn from arbitrary norms, of many magnitudes."""
        points = self.kernel.draw_points(n_points)
        points["norm2"] = rng.lognormal(sigma=2, size=n_points) / points["q"] ** 2
        self.kernel.observe_points(points)


def check_densities(P, q, values):
    """sum_i P_i q_i = 1 and sum_i Q_i g_i / q_i = sum_i P_i g_i, by enumeration."""
    np.testing.assert_allclose(P @ q, 1, rtol=1e-12)
    drawn = q > 0
    np.testing.assert_array_equal(drawn, P > 0)
    weighted = np.where(drawn, values.T / np.where(drawn, q, 1), 0).T
    np.testing.assert_allclose((P * q) @ weighted, P @ values, rtol=1e-10, atol=1e-12)


@st.composite
def weights(draw):
    size = draw(st.integers(1, 60))
    exponents = draw(hnp.arrays(np.float64, size, elements=st.floats(-12, 12)))
    zero = draw(hnp.arrays(np.bool_, size))
    zero[draw(st.integers(0, size - 1))] = False
    return np.where(zero, 0.0, 10.0**exponents)


@given(weights())
def test_alias_table_has_the_probabilities_of_its_weights(w):
    p = AliasTable(w).probabilities()
    np.testing.assert_allclose(p, w / w.sum(), rtol=0, atol=1e-15 * len(w))
    assert (p[w == 0] == 0).all()


@given(st.lists(weights(), min_size=1, max_size=4))
def test_alias_table_serves_each_block_by_itself(blocks):
    start = np.cumsum([0] + [len(w) for w in blocks]).astype(np.intp)
    table = AliasTable(np.concatenate(blocks), start)
    for w, first, last in zip(blocks, start[:-1], start[1:], strict=True):
        p = table.probabilities(first, last)
        np.testing.assert_allclose(
            p[first:last], w / w.sum(), rtol=0, atol=1e-15 * len(w)
        )
        assert p[:first].sum() == p[last:].sum() == 0


def test_alias_table_with_an_empty_block():
    table = AliasTable(np.array([1.0, 3.0]), np.array([0, 0, 2, 2], dtype=np.intp))
    np.testing.assert_allclose(table.probabilities(0, 2), [0.25, 0.75])


@given(weights())
def test_alias_twin_is_the_table(w):
    accept, other = alias_twin(w)
    p = accept / len(w)
    np.add.at(p, other, (1 - accept) / len(w))
    np.testing.assert_allclose(
        AliasTable(w).probabilities(), p, rtol=1e-12, atol=1e-300
    )


@given(weights(), st.booleans(), st.booleans(), st.sampled_from([None, "d", "f"]))
def test_safe_draws_have_the_probabilities_of_their_bounds(
    w, weighted, paid, precision
):
    norms2 = None if precision is None else w.astype(precision)
    mass = w[::-1] / w.sum() if weighted else None
    costs = 1 + w if paid else None
    safe = SafeRows(len(w), norms2, None if mass is None else mass.copy(), costs)
    bound = np.ones(len(w)) if norms2 is None else np.sqrt(norms2.astype(float) + 1)
    bound = bound / np.sqrt(costs) if paid else bound
    P = np.full(len(w), 1 / len(w)) if mass is None else mass
    density = bound / (P @ bound)
    np.testing.assert_allclose(safe.densities(), density, rtol=1e-12)
    found = safe.probabilities()
    np.testing.assert_allclose(found, P * density, rtol=1e-9, atol=1e-15 * len(w))
    assert (found[P == 0] == 0).all()


@weighted_or_not
@each_setting
def test_densities_and_unbiasedness_by_enumeration(name, weighted, seed, rng):
    case = Case(name, seed, weighted)
    values = rng.standard_normal((N_ROWS, 3))
    check_densities(case.P, case.kernel.densities(), values)
    for _ in range(20):
        case.observe_random(7, rng)
        check_densities(case.P, case.kernel.densities(), values)
        np.testing.assert_allclose(case.kernel.stratum_probabilities().sum(), 1)


@weighted_or_not
def test_uniform_densities_and_unbiasedness_by_enumeration(weighted, seed, rng):
    mass = np.array([0.0, 1, 2, 3, 0, 2]) / 8 if weighted else None
    P = mass if weighted else np.full(6, 1 / 6)
    kernel = uniform_kernel(np.random.PCG64(seed), 6, mass)
    check_densities(P, kernel.densities(), rng.standard_normal((6, 3)))


@weighted_or_not
def test_a_pass_of_the_uniform_sampler_sums_to_the_full_gradient(weighted, seed, rng):
    mass = np.array([0.0, 1, 2, 3, 0, 2]) / 8 if weighted else None
    P = mass if weighted else np.full(6, 1 / 6)
    kernel = uniform_kernel(np.random.PCG64(seed), 6, mass)
    gradients = rng.standard_normal((6, 3))
    n_rows = (P > 0).sum()
    for _ in range(3):
        points = kernel.draw_points(n_rows)
        np.testing.assert_array_equal(np.sort(points["i"]), np.flatnonzero(P))
        mean = (gradients[points["i"]].T / points["q"]).mean(axis=1)
        np.testing.assert_allclose(mean, P @ gradients, rtol=1e-12)


@pytest.mark.parametrize("block_size", [1, 8, 50, 64])
def test_uniform_sampler_shuffles_as_its_twin(block_size, seed):
    bits, rng = stream(seed)
    kernel = uniform_kernel(bits, 50, block_size=block_size)
    n_whole = 50 // block_size * block_size
    blocks = np.arange(n_whole).reshape(-1, block_size)
    for _ in range(3):
        blocks = np.array(shuffle_twin(rng, blocks.tolist())).reshape(blocks.shape)
        order = [*blocks.ravel(), *range(n_whole, 50)]
        np.testing.assert_array_equal(kernel.draw_points(50)["i"], order)


@weighted_or_not
@each_setting
def test_draws_have_the_densities_they_claim(name, weighted, seed, rng):
    case = Case(name, seed, weighted)
    case.observe_random(200, rng)
    q = case.kernel.densities()
    points = case.kernel.draw_points(20_000)
    np.testing.assert_array_equal(points["q"], q[points["i"]])
    np.testing.assert_array_equal(points["origin"], case.strata[points["i"]])
    expected = 20_000 * case.P * q
    counts = np.bincount(points["i"], minlength=N_ROWS)
    assert (counts[expected == 0] == 0).all()
    # Rows too rare for the chi2 approximation are counted together.
    rare = (expected < 10) & (expected > 0)
    observed = np.append(counts[expected >= 10], counts[rare].sum())
    theory = np.append(expected[expected >= 10], expected[rare].sum())
    statistic = ((observed - theory)[theory > 0] ** 2 / theory[theory > 0]).sum()
    assert stats.chi2.sf(statistic, (theory > 0).sum() - 1) > 1e-6


@weighted_or_not
@each_setting
def test_strata_samplers_equal_their_twins(name, weighted, seed, rng):
    """Same random stream, same rows, same densities, through draws and updates."""
    case = Case(name, seed, weighted)
    for batch_size in [1] * 40 + [5] * 10:
        points = case.kernel.draw_points(batch_size)
        rows = [case.twin.draw() for _ in range(batch_size)]
        np.testing.assert_array_equal(points["i"], rows)
        np.testing.assert_allclose(
            case.kernel.densities(), case.twin.densities(), rtol=1e-9
        )
        points["norm2"] = rng.lognormal(sigma=1.5, size=batch_size)
        case.kernel.observe_points(points)
        case.twin.learn(rows, points["norm2"])
    np.testing.assert_allclose(
        case.kernel.stratum_probabilities(), case.twin.probabilities(), rtol=1e-9
    )


def logistic_rows(rng):
    X = rng.standard_normal((N_ROWS, 4)) * rng.lognormal(sigma=0.5, size=(N_ROWS, 1))
    return X, np.where(rng.random(N_ROWS) < 0.3, 1.0, -1.0)


@weighted_or_not
@each_setting
def test_gradients_are_a_martingale_around_the_true_gradient(name, weighted, seed):
    """The sum of d_t - grad F(w_t) stays within 4 sigma while w and tau both move."""
    case = Case(name, seed, weighted)
    X, y = logistic_rows(np.random.default_rng([seed, 2]))
    w = np.zeros(4)
    total, variance = np.zeros(4), np.zeros(4)
    for _ in range(3000):
        gradients = log_loss(y, X @ w)[1][:, None] * X
        full = case.P @ gradients
        q = case.kernel.densities()
        point = case.kernel.draw_points(1)
        d = gradients[point["i"][0]] / point["q"][0]
        total += d - full
        Q, drawn = (case.P * q)[q > 0], gradients[q > 0] / q[q > 0, None]
        variance += Q @ (drawn - full) ** 2
        w -= 0.1 * d
        point["norm2"] = d @ d
        case.kernel.observe_points(point)
    assert np.isfinite(w).all()
    assert (np.abs(total) < 4 * np.sqrt(variance)).all()


@pytest.mark.parametrize(
    "setting",
    [
        StrataSampler(mixing=0, forgetting=0.01),
        StrataSampler(mixing=0.2, forgetting=0.01),
        StrataSampler(update="sgd", mixing=0.2, eta0=0.01, forgetting=0.01),
        StrataSampler(update="adagrad", mixing=0.2, eta0=0.3, forgetting=0.01),
    ],
    ids=["moments", "moments, mixing", "sgd", "adagrad"],
)
def test_learned_probabilities_reach_the_best_allocation(setting, seed):
    """On fixed gradients E_q ||d||^2 comes near its minimum over the probabilities."""
    strata = np.repeat([0, 1, 2], [30, 15, 5])
    roots = np.array([1.0, 4.0, 12.0])[strata]
    kernel = strata_kernel(clone(setting), np.random.PCG64(seed), strata)
    recent = []
    for t in range(6000):
        points = kernel.draw_points(1)
        points["norm2"] = (roots[points["i"]] / points["q"]) ** 2
        kernel.observe_points(points)
        if t >= 3000:
            recent.append((roots**2 / kernel.densities()).mean())
    # With q ~ sqrt(M_s) the second moment is the square of the mean norm.
    best, uniform = roots.mean() ** 2, (roots**2).mean()
    assert best * (1 - 1e-12) <= min(recent)
    assert np.mean(recent) < best + 0.25 * (uniform - best)
    if setting.update == "moments" and setting.mixing == 0:
        np.testing.assert_allclose(recent, best, rtol=1e-9)


@each_setting
def test_gradients_that_are_all_zero_leave_the_densities_sound(name, seed, rng):
    case = Case(name, seed, weighted=True)
    for _ in range(5):
        points = case.kernel.draw_points(10)
        case.kernel.observe_points(points)
        check_densities(
            case.P, case.kernel.densities(), rng.standard_normal((N_ROWS, 2))
        )


def test_the_safe_part_bounds_the_weights(seed, rng):
    case = Case("moments, mixing .5", seed, weighted=True)
    case.observe_random(500, rng)
    bound = np.sqrt(case.norms2 + 1)
    q = case.kernel.densities()
    drawn = q > 0
    # ||grad|| <= bound for a 1-Lipschitz loss, so ||d|| <= 2 E_P[bound].
    assert ((bound / np.where(drawn, q, 1))[drawn] <= 2 * case.P @ bound + 1e-9).all()


def test_a_stratum_that_is_not_drawn_any_more_keeps_what_is_known(seed, rng):
    setting = StrataSampler(mixing=0, forgetting=0.05)
    kernel = strata_kernel(setting, np.random.PCG64(seed), np.array([0, 1, 2] * 5))
    points = kernel.draw_points(300)
    points["norm2"] = np.array([1.0, 9.0, 4.0])[points["i"] % 3] / points["q"] ** 2
    kernel.observe_points(points)
    before = setting.second_moments_[0].copy()
    np.testing.assert_allclose(before, [1, 9, 4], rtol=1e-9)
    later = strata_kernel(setting, np.random.PCG64(seed), np.array([0, 2] * 5), 3)
    np.testing.assert_allclose(later.stratum_probabilities(), [1 / 3, 0, 2 / 3])
    np.testing.assert_array_equal(setting.second_moments_[0], before)


def test_a_stratum_not_seen_yet_has_the_mean_moment_of_the_others(seed):
    setting = StrataSampler(mixing=0, forgetting=0.05)
    kernel = strata_kernel(setting, np.random.PCG64(seed), np.array([0, 1] * 5), 3)
    points = kernel.draw_points(100)
    points["norm2"] = np.array([1.0, 9.0])[points["i"] % 2] / points["q"] ** 2
    kernel.observe_points(points)
    later = strata_kernel(setting, np.random.PCG64(seed), np.array([0, 1, 2] * 5), 3)
    expected = np.array([1, 3, np.sqrt(5)])
    np.testing.assert_allclose(
        later.stratum_probabilities(), expected / expected.sum(), rtol=1e-9
    )
