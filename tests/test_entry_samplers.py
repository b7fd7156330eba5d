"""The samplers of matrix entries: densities, updates and shuffled passes."""

import copy

import numpy as np
import pytest
from scipy import sparse
from sklearn_awsgd._kernels._entries import Entries, ShuffledEntries
from sklearn_awsgd._kernels._product_sampler import ProductDraws
from sklearn_awsgd._kernels._two_way_sampler import TwoWayDraws

from sklearn_awsgd.samplers import RowColumnSampler

SHAPE = (7, 5)


def make_entries(kind, shape=SHAPE, seed=0):
    if kind == "dense":
        return Entries(shape, kind), np.ones(shape, dtype=bool)
    stored = np.random.default_rng(seed).random(shape) < 0.5
    # A row and a column without any entry.
    stored[1] = False
    stored[:, 2] = False
    X = sparse.csr_array(stored.astype(float))
    entries = Entries(shape, kind, X.indptr.astype(np.intp), X.indices.astype(np.int32))
    return entries, stored


def make_sampler(entries, seed=0, **settings):
    setting = RowColumnSampler(**{"forgetting": 0.05} | settings)
    size = entries.n_rows + entries.n_columns
    state = {
        "table": np.zeros((size, 4)),
        "costs": np.zeros((size, 2)),
        "scale": np.zeros(4),
        "parts": np.zeros(8),
    }
    missing = entries.kind == "missing"
    kind = TwoWayDraws if missing else ProductDraws
    sampler = kind(np.random.PCG64(seed), entries, state, setting)
    return sampler, state


def gradient_sizes(shape=SHAPE, seed=1):
    """||grad f||^2 of each cell, very different ones."""
    return np.exp(np.random.default_rng(seed).normal(scale=2, size=shape))


def feed(sampler, g2, n_points):
    """Draw, fill in ||d||^2 and learn; return the points."""
    points = sampler.draw_points(n_points)
    points["norm2"] = g2[points["i"], points["j"]] / points["q"] ** 2
    sampler.observe_points(points)
    return points


UPDATES = [
    {"update": "moments"},
    {"update": "sgd"},
    {"update": "sgd", "normalize": False, "eta0": 3e-3},
]


@pytest.mark.parametrize("kind", ["dense", "zeros", "missing"])
@pytest.mark.parametrize("settings", UPDATES)
@pytest.mark.parametrize("mixing", [0.0, 0.3])
def test_density_is_exact_after_every_move(kind, settings, mixing):
    entries, stored = make_entries(kind)
    possible = stored if kind == "missing" else np.ones(SHAPE, dtype=bool)
    sampler, _ = make_sampler(entries, mixing=mixing, **settings)
    g2 = gradient_sizes()
    first = sampler.densities()
    for _ in range(30):
        density = sampler.densities()
        # dQ/dP over a uniform P sums to the number of entries.
        np.testing.assert_allclose(density.sum(), entries.n_entries, rtol=1e-12)
        assert (density[~possible] == 0).all()
        points = feed(sampler, g2, 50)
        assert possible[points["i"], points["j"]].all()
        np.testing.assert_allclose(
            points["q"], density[points["i"], points["j"]], rtol=1e-12
        )
    assert np.abs(sampler.densities() - first).max() > 0.1


@pytest.mark.parametrize("kind", ["dense", "zeros", "missing"])
def test_draws_have_the_law_of_the_density(kind):
    entries, _ = make_entries(kind)
    sampler, _ = make_sampler(entries)
    for _ in range(50):
        feed(sampler, gradient_sizes(), 48)
    expected = sampler.densities() / entries.n_entries
    n = 200_000
    points = sampler.draw_points(n)
    counts = np.zeros(SHAPE)
    np.add.at(counts, (points["i"], points["j"]), 1)
    deviation = (counts - n * expected) / np.sqrt(n * expected + 1e-300)
    assert np.abs(deviation[expected > 0]).max() < 4.5


@pytest.mark.parametrize("kind", ["dense", "zeros", "missing"])
def test_entry_is_where_the_value_is_stored(kind):
    entries, stored = make_entries(kind)
    sampler, _ = make_sampler(entries)
    number = np.full(SHAPE, -1)
    number[stored] = np.arange(stored.sum())
    for points in (
        sampler.draw_points(500),
        ShuffledEntries(np.random.PCG64(0), entries).draw_points(500),
    ):
        np.testing.assert_array_equal(points["entry"], number[points["i"], points["j"]])


@pytest.mark.parametrize("kind", ["dense", "zeros", "missing"])
def test_weighted_means_are_unbiased_while_learning(kind):
    # A martingale: the mean of f / q is exact however the sampler moves, also when it
    # moves because of the very values that are averaged.
    entries, stored = make_entries(kind)
    possible = stored if kind == "missing" else np.ones(SHAPE, dtype=bool)
    f = gradient_sizes(seed=3)
    means = []
    for seed in range(250):
        sampler, _ = make_sampler(entries, seed=seed, forgetting=0.3)
        points = np.concatenate([feed(sampler, f**2, 12) for _ in range(15)])
        means.append((f[points["i"], points["j"]] / points["q"]).mean())
    error = np.mean(means) - f[possible].mean()
    assert abs(error) < 4 * np.std(means) / np.sqrt(len(means))


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (8, 4), (13, 11), (301, 407)])
def test_uniform_passes_have_every_entry_once(shape):
    entries, _ = make_entries("dense", shape)
    sampler = ShuffledEntries(np.random.PCG64(0), entries)
    n = entries.n_entries
    passes = [sampler.draw_points(n) for _ in range(3)]
    for points in passes:
        assert sorted(points["entry"]) == list(range(n))
        assert (points["q"] == 1).all()
    if n > 10:
        assert (passes[0]["entry"] != passes[1]["entry"]).any()


def test_uniform_order_has_no_pattern():
    # Neighbours in the order fall anywhere: the mean distance is that of random pairs.
    entries, _ = make_entries("dense", (50, 60))
    distances, first = [], []
    for seed in range(200):
        sampler = ShuffledEntries(np.random.PCG64(seed), entries)
        order = sampler.draw_points(3000)["entry"]
        first.append(order[0])
        distances.append(np.abs(np.diff(order)).mean())
    assert np.mean(distances) == pytest.approx(1000, rel=0.03)
    assert np.mean(first) == pytest.approx(1500, rel=0.15)
    assert len(set(first)) > 150


def test_uniform_blocks_are_random_and_local():
    # 32 chunks of 512 entries make a block: near each other in memory, from anywhere.
    entries, _ = make_entries("dense", (512, 800))
    first, spread = [], []
    for seed in range(40):
        sampler = ShuffledEntries(np.random.PCG64(seed), entries)
        order = sampler.draw_points(2**14)["entry"]
        chunks, counts = np.unique(order // 512, return_counts=True)
        assert len(chunks) == 32
        assert (counts == 512).all()
        assert np.abs(np.diff(order)).mean() > 50_000
        first.append(order[0] / 409_600)
        spread.append(chunks.mean() * 512 / 409_600)
        # Inside the block all orders of two chunks occur alike.
        early = np.isin(order[: 2**13] // 512, chunks[:16]).mean()
        assert 0.35 < early < 0.65
    assert np.mean(first) == pytest.approx(0.5, abs=0.15)
    assert np.mean(spread) == pytest.approx(0.5, abs=0.05)


# NumPy twins of the updates, fed with the points of the compiled sampler.


def twin_moments(squares, counts, base, forgetting):
    prior = 4 * forgetting
    seen = (counts * squares)[base > 0].sum() / max(counts[base > 0].sum(), 1e-300)
    p = base * np.sqrt((counts * squares + prior * seen) / (counts + prior))
    return p / p.sum()


def twin_learn(squares, counts, k, share, square, forgetting):
    counts[k] += forgetting * (1 - counts[k]) * share
    squares[k] += forgetting * share / counts[k] * (square - squares[k])


def test_product_moments_match_the_twin():
    n, m = SHAPE
    mixing, forgetting = 0.2, 0.1
    sampler, _ = make_sampler(
        make_entries("dense")[0], mixing=mixing, forgetting=forgetting
    )
    squares, counts = [np.zeros(n), np.zeros(m)], [np.zeros(n), np.zeros(m)]
    p = [np.full(n, 1 / n), np.full(m, 1 / m)]
    for _ in range(20):
        points = feed(sampler, gradient_sizes(), 4 * (n + m))
        for x in points:
            i, j = x["i"], x["j"]
            q_row, q_column = n * p[0][i], m * p[1][j]
            share = (1 - mixing) * q_row * q_column / x["q"]
            g2 = x["norm2"] * x["q"] ** 2
            twin_learn(squares[0], counts[0], i, share, g2 / q_column**2, forgetting)
            twin_learn(squares[1], counts[1], j, share, g2 / q_row**2, forgetting)
        p = [
            twin_moments(s, c, np.full(len(s), 1 / len(s)), forgetting)
            for s, c in zip(squares, counts, strict=True)
        ]
        np.testing.assert_allclose(sampler.row_probabilities(), p[0], rtol=1e-10)
        np.testing.assert_allclose(sampler.column_probabilities(), p[1], rtol=1e-10)


def test_two_way_moments_match_the_twin():
    n, m = SHAPE
    mixing, forgetting = 0.2, 0.1
    entries, stored = make_entries("missing")
    sampler, _ = make_sampler(entries, mixing=mixing, forgetting=forgetting)
    n_entries = stored.sum()
    base = np.concatenate([stored.sum(axis=1), stored.sum(axis=0)]) / (2 * n_entries)
    squares, counts, mass = np.zeros(n + m), np.zeros(n + m), base.copy()
    with np.errstate(invalid="ignore"):
        for _ in range(20):
            points = feed(sampler, gradient_sizes(), 4 * (n + m))
            for x in points:
                for k in (x["i"], n + x["j"]):
                    share = (1 - mixing) * mass[k] / (2 * base[k]) / x["q"]
                    square = x["norm2"] * (mass[k] / base[k]) ** 2
                    twin_learn(squares, counts, k, share, square, forgetting)
            mass = twin_moments(squares, counts, base, forgetting)
            expected = np.nan_to_num((mass / (2 * base))[:n])[:, None]
            expected = expected + np.nan_to_num((mass / (2 * base))[n:])
            expected = np.where(stored, mixing + (1 - mixing) * expected, 0)
            np.testing.assert_allclose(sampler.densities(), expected, rtol=1e-10)


def softmax(tau):
    e = np.exp(tau - tau.max())
    return e / e.sum()


@pytest.mark.parametrize("normalize", [False, True])
def test_product_sgd_matches_the_twin(normalize):
    n, m = SHAPE
    eta0, forgetting = (0.05, 0.1) if normalize else (1e-3, 0.1)
    sampler, _ = make_sampler(
        make_entries("dense")[0],
        update="sgd",
        mixing=0.0,
        eta0=eta0,
        normalize=normalize,
        forgetting=forgetting,
    )
    tau = [np.zeros(n), np.zeros(m)]
    scale = weight = 0.0
    for _ in range(20):
        points = feed(sampler, gradient_sizes(), 4 * (n + m))
        w = points["norm2"]
        for t, name in zip(tau, "ij", strict=True):
            p, one_hot = softmax(t), np.eye(len(t))[points[name]]
            if not normalize:
                t += eta0 * (w[:, None] * (one_hot - p)).sum(axis=0)
            elif scale > 0:
                others = (w.sum() - w) / (len(w) - 1)
                t += eta0 / scale * ((w - others)[:, None] * (one_hot - p)).sum(axis=0)
        weight += forgetting * (1 - weight)
        scale += forgetting / weight * (w.mean() - scale)
        np.testing.assert_allclose(sampler.row_probabilities(), softmax(tau[0]))
        np.testing.assert_allclose(sampler.column_probabilities(), softmax(tau[1]))


def test_two_way_sgd_matches_the_twin():
    n, m = SHAPE
    entries, stored = make_entries("missing")
    sampler, state = make_sampler(
        entries, update="sgd", mixing=0.3, eta0=1e-3, normalize=False
    )
    present = np.concatenate([stored.any(axis=1), stored.any(axis=0)])
    tau = np.where(present, 0.0, -np.inf)
    for _ in range(10):
        points = feed(sampler, gradient_sizes(), 50)
        # Parts of the mixture: a row, a column, or uniform (3).
        points = points[points["origin"] != 3]
        k = np.where(points["origin"] == 0, points["i"], n + points["j"])
        step = points["norm2"][:, None] * (np.eye(n + m)[k] - softmax(tau))
        tau = tau + 1e-3 * step.sum(axis=0)
    np.testing.assert_allclose(
        softmax(state["table"][:, 3][present]), softmax(tau[present]), rtol=1e-10
    )


@pytest.mark.parametrize("update", ["moments", "sgd"])
@pytest.mark.parametrize("kind", ["dense", "missing"])
def test_draws_that_wait_follow_the_distribution(kind, update):
    """Numbers that are left stand for what a sampler draws that begins now."""
    entries, _ = make_entries(kind)
    setting = RowColumnSampler(update=update, forgetting=0.05, mixing=0.2)
    sampler, state = make_sampler(entries, update=update, mixing=0.2)
    generator = np.random.PCG64(0)
    for n_points in (40, 3, 5, 7, 100, 1, 17):
        new = type(sampler)(
            copy.deepcopy(generator), entries, copy.deepcopy(state), setting
        )
        expected = new.draw_points(n_points)
        points = feed(sampler, gradient_sizes(), n_points)
        sampler.settle()
        for name in ("i", "j", "origin"):
            np.testing.assert_array_equal(points[name], expected[name])
        np.testing.assert_allclose(points["q"], expected["q"], rtol=1e-12)
        # Each draw has two numbers.
        generator.advance(2 * n_points)


@pytest.mark.parametrize("kind", ["dense", "missing"])
def test_moments_find_the_best_distribution(kind):
    # The second moment sum g^2 / q of the learned distribution comes close to the
    # smallest that the family has, found here by the exact multiplicative rule.
    shape = (12, 9)
    n, m = shape
    entries, stored = make_entries(kind, shape)
    g2 = np.where(stored, gradient_sizes(shape, seed=5), 0)
    if kind == "dense":
        rows, columns = np.ones(n), np.ones(m)
        for _ in range(200):
            rows = np.sqrt((g2 / columns).mean(axis=1))
            rows /= rows.mean()
            columns = np.sqrt((g2 / rows[:, None]).mean(axis=0))
            columns /= columns.mean()
        best = rows[:, None] * columns
    else:
        sizes = np.concatenate([stored.sum(axis=1), stored.sum(axis=0)])
        mass = sizes / (2 * stored.sum())
        for _ in range(3000):
            with np.errstate(invalid="ignore", divide="ignore"):
                part = np.nan_to_num(mass / sizes) * stored.sum()
                best = np.where(stored, part[:n, None] + part[n:], 0)
                square = np.where(stored, g2 / best**2, 0)
                mean = np.concatenate([square.sum(axis=1), square.sum(axis=0)]) / sizes
            mass = np.nan_to_num(mass * np.sqrt(mean))
            mass /= mass.sum()
    sampler, _ = make_sampler(entries, mixing=0.0, forgetting=0.002)
    for _ in range(800):
        feed(sampler, g2, 4 * (n + m))
    learned = sampler.densities()
    moment = [(g2[stored] / q[stored]).sum() for q in (np.ones(shape), learned, best)]
    assert moment[1] < 1.05 * moment[2]
    assert moment[0] > 1.4 * moment[2]


def test_settle_takes_in_the_last_draws():
    # A move is not due after 3 draws; `settle` makes it, once.
    for settings in UPDATES[:2]:
        sampler, _ = make_sampler(make_entries("dense")[0], **settings)
        feed(sampler, gradient_sizes(), 100)
        before = sampler.densities()
        feed(sampler, gradient_sizes(), 3)
        np.testing.assert_array_equal(sampler.densities(), before)
        sampler.settle()
        after = sampler.densities()
        assert np.abs(after - before).max() > 0
        sampler.settle()
        np.testing.assert_array_equal(sampler.densities(), after)


def test_zero_gradients_leave_the_distribution_defined():
    for kind in ("dense", "zeros", "missing"):
        for settings in UPDATES:
            sampler, _ = make_sampler(make_entries(kind)[0], **settings)
            for _ in range(5):
                feed(sampler, np.zeros(SHAPE), 30)
            assert np.isfinite(sampler.densities()).all()


def test_huge_steps_of_tau_stay_finite():
    for normalize in (False, True):
        sampler, state = make_sampler(
            make_entries("dense")[0], update="sgd", eta0=1e30, normalize=normalize
        )
        for _ in range(20):
            feed(sampler, 1e20 * gradient_sizes(), 30)
        assert np.isfinite(state["table"][:, 3]).all()
        assert np.isfinite(sampler.densities()).all()


@pytest.mark.parametrize("kind", ["dense", "zeros", "missing"])
@pytest.mark.parametrize("mixing", [0.0, 0.3])
def test_draws_after_a_move_are_those_of_a_sampler_that_begins_there(kind, mixing):
    # Numbers are made for some draws at once, of which a move finds some unused.
    entries, _ = make_entries(kind)
    sampler, state = make_sampler(entries, mixing=mixing)
    points = feed(sampler, gradient_sizes(), 5)
    sampler.settle()
    generator = np.random.PCG64(0).advance(2 * len(points))
    setting = RowColumnSampler(forgetting=0.05, mixing=mixing)
    other = type(sampler)(generator, entries, copy.deepcopy(state), setting)
    found, expected = sampler.draw_points(20), other.draw_points(20)
    for name in ("i", "j", "q"):
        np.testing.assert_array_equal(found[name], expected[name])
