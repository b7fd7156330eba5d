"""LevelSampler: exact densities at every moment, through moves and observations."""

import numpy as np
import pytest
from helpers import SafeTwin, log_loss, stream
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd._kernels import _level_sampler
from sklearn_awsgd._spaces import ProblemView, RowSpace
from sklearn_awsgd.samplers import LevelSampler

N_ROWS, N_GROUPS = 60, 2
N_LEVELS = _level_sampler.N_LEVELS_PER_GROUP
HEADROOM = 4

SETTINGS = {
    "default": LevelSampler(),
    "mixing 0": LevelSampler(mixing=0),
    "mixing .5": LevelSampler(mixing=0.5, forgetting=0.3),
    "no memory": LevelSampler(mixing=0.1, forgetting=1.0),
}
each_setting = pytest.mark.parametrize("name", SETTINGS)
# Masses: all equal, all positive, some zero.
each_mass = pytest.mark.parametrize("mass", [None, "positive", "zeros"])
# Squared norms at the start: alike, some zero, all zero, over many decades.
each_start = pytest.mark.parametrize("start", ["alike", "zeros", "all zero", "decades"])


def make_mass(kind, rng, n_rows=N_ROWS):
    if kind is None:
        return None
    mass = rng.lognormal(sigma=1.5, size=n_rows)
    if kind == "zeros":
        mass[rng.random(n_rows) < 0.3] = 0
        mass[0] = 1.0
    return mass / mass.sum()


def make_norms2(kind, rng, n_rows=N_ROWS):
    norms2 = rng.uniform(0.5, 2, n_rows)
    if kind == "zeros":
        norms2[rng.random(n_rows) < 0.5] = 0
    elif kind == "all zero":
        norms2[:] = 0
    elif kind == "decades":
        norms2 = 10.0 ** rng.uniform(-40, 40, n_rows)
    return norms2


class LevelTwin:
    """The level sampler in NumPy, with the rows of a stratum in the same order."""

    def __init__(self, rng, setting, mass, norms2, groups, start2):
        n = len(norms2)
        self.rng, self.setting, self.groups = rng, setting, groups
        self.rows = np.arange(n) if mass is None else np.flatnonzero(mass > 0)
        self.n = len(self.rows)
        self.P = np.full(n, 1 / n) if mass is None else mass
        self.scaled = np.ones(n) if mass is None else self.n * mass
        bound = np.sqrt(norms2 + 1)
        self.safe = bound / (bound.mean() if mass is None else mass @ bound)
        self.safe_rows = SafeTwin(bound if mass is None else bound * mass)
        largest = (start2 * self.scaled**2).max()
        self.base = 1.0
        if largest > 0:
            power = np.floor(np.log2(largest) / 2)
            self.base = 4.0 ** (power - (N_LEVELS - 1 - HEADROOM))
        self.strata = [[] for _ in range(N_GROUPS * N_LEVELS)]
        for i in self.rows:
            self.strata[self.stratum(i, start2[i] * self.scaled[i] ** 2)].append(i)
        levels = np.arange(N_GROUPS * N_LEVELS) % N_LEVELS
        self.squares = 2 * self.base * 4.0**levels
        self.counts = np.zeros(N_GROUPS * N_LEVELS)

    def stratum(self, i, norm2):
        relative = norm2 / self.base
        level = np.floor(np.log2(relative) / 2) if relative >= 1 else 0
        return int(self.groups[i] * N_LEVELS + min(max(level, 0), N_LEVELS - 1))

    def where(self, i):
        return next(s for s, rows in enumerate(self.strata) if i in rows)

    def row_probabilities(self):
        """Q of one row of each stratum, in the learned part."""
        sizes = np.array([len(rows) for rows in self.strata])
        values = np.where(sizes > 0, np.sqrt(self.squares + 1e-6 * self.base), 0)
        return (1 - self.setting.mixing) * values / (sizes @ values)

    def densities(self):
        q, one = np.zeros(len(self.P)), self.row_probabilities()
        for s, rows in enumerate(self.strata):
            for i in rows:
                q[i] = one[s] / self.P[i] + self.setting.mixing * self.safe[i]
        return q

    def draw(self):
        u, mixing = self.rng.random(), self.setting.mixing
        if u < mixing:
            return self.safe_rows.pick(self.rng.random())
        sizes = np.array([len(rows) for rows in self.strata])
        ends = mixing + np.cumsum(sizes * self.row_probabilities())
        rows = self.strata[np.searchsorted(ends, u, side="right")]
        return int(rows[int(self.rng.random() * len(rows))])

    def learn(self, drawn, norms2):
        q, one = self.densities(), self.row_probabilities()
        moves = []
        for i, norm2 in zip(drawn, norms2, strict=True):
            s = self.where(i)
            seen = norm2 * (q[i] * self.scaled[i]) ** 2
            share = one[s] / (self.P[i] * q[i])
            forgetting = self.setting.forgetting
            # 1 - forgetting * share, and a mean of positive terms: neither cancels.
            safe_share = self.setting.mixing * self.safe[i] / q[i]
            kept = self.counts[s] * (1 - forgetting + forgetting * safe_share)
            weights = [kept, forgetting * share]
            self.counts[s] = sum(weights)
            self.squares[s] = np.average([self.squares[s], seen], weights=weights)
            target = self.stratum(i, seen)
            if target != s:
                moves.append((i, target))
        for i, target in moves:
            self.move(i, target)

    def move(self, i, target):
        """One stratum at a time, as bubbles: rows keep the places of the kernel."""
        s = self.where(i)
        while s != target:
            here = self.strata[s]
            k = here.index(i)
            if s < target:
                # Swap with the last row; the boundary then passes it.
                here[k], here[-1] = here[-1], here[k]
                self.strata[s + 1].insert(0, here.pop())
                s += 1
            else:
                here[k], here[0] = here[0], here[k]
                self.strata[s - 1].append(here.pop(0))
                s -= 1


class Case:
    """A kernel and its twin on the same rows and the same random stream."""

    def __init__(self, setting, seed, mass=None, start="alike", n_rows=N_ROWS):
        rng = np.random.default_rng([seed, 3])
        self.mass = make_mass(mass, rng, n_rows)
        self.P = np.full(n_rows, 1 / n_rows) if self.mass is None else self.mass
        self.norms2 = rng.exponential(5, n_rows)
        self.start2 = make_norms2(start, rng, n_rows)
        self.groups = (rng.random(n_rows) < 0.3).astype(np.int32)
        self.setting = clone(setting)
        bits, twin_rng = stream(seed)
        self.kernel = level_kernel(
            self.setting, bits, self.groups, self.start2, self.mass, self.norms2
        )
        self.twin = LevelTwin(
            twin_rng, setting, self.mass, self.norms2, self.groups, self.start2
        )

    def observe_random(self, n_points, rng, sigma=3.0):
        """Let the sampler see norms of many magnitudes, some of them zero."""
        points = self.kernel.draw_points(n_points)
        norms2 = self.twin.base * 4.0**20 * rng.lognormal(sigma=sigma, size=n_points)
        norms2[rng.random(n_points) < 0.1] = 0
        points["norm2"] = norms2 / points["q"] ** 2
        self.kernel.observe_points(points)
        return points


def level_kernel(setting, bits, groups, start2, mass=None, norms2=None):
    """Return the compiled sampler of a setting."""
    table = RowSpace(mass, np.ones(len(groups)) if norms2 is None else norms2)
    setting.prepare(table, 1, N_GROUPS, None)
    return setting.open(table, ProblemView(groups, start2), 0, bits)


def check_state(case, values):
    """Densities sum to one and are unbiased; strata are a partition that has them."""
    P, q = case.P, case.kernel.densities()
    np.testing.assert_allclose(P @ q, 1, rtol=1e-12)
    drawn = P > 0
    np.testing.assert_array_equal(q > 0, drawn)
    weighted = values[drawn] / q[drawn, None]
    np.testing.assert_allclose(
        (P * q)[drawn] @ weighted, P @ values, rtol=1e-10, atol=1e-12
    )
    strata = case.kernel.row_strata()
    np.testing.assert_array_equal(strata >= 0, drawn)
    # A row stays in its group whatever it shows.
    np.testing.assert_array_equal(strata[drawn] // N_LEVELS, case.groups[drawn])
    pi = case.kernel.stratum_probabilities()
    np.testing.assert_allclose(pi.sum(), 1, rtol=1e-12)
    counts = np.bincount(strata[drawn], minlength=N_GROUPS * N_LEVELS)
    np.testing.assert_array_equal(pi > 0, counts > 0)
    mixing = case.setting.mixing
    safe = np.sqrt(case.norms2 + 1) / (P @ np.sqrt(case.norms2 + 1))
    expected = (1 - mixing) * (pi / np.maximum(counts, 1))[strata] / np.maximum(
        P, 1e-300
    ) + mixing * safe
    np.testing.assert_allclose(q[drawn], expected[drawn], rtol=1e-10)


@each_start
@each_mass
@each_setting
def test_densities_and_unbiasedness_by_enumeration(name, mass, start, seed, rng):
    case = Case(SETTINGS[name], seed, mass, start)
    values = rng.standard_normal((N_ROWS, 3))
    check_state(case, values)
    for n_points in [1, 5, 64] * 20:
        case.observe_random(n_points, rng)
        check_state(case, values)


@each_mass
def test_every_row_can_be_drawn_after_thousands_of_moves(mass, seed, rng):
    """Swaps at the boundaries never lose a row or have it twice."""
    case = Case(LevelSampler(mixing=0.3, forgetting=0.5), seed, mass)
    moved = 0
    for _ in range(200):
        before = case.kernel.row_strata()
        case.observe_random(64, rng)
        moved += (case.kernel.row_strata() != before).sum()
    assert moved > 2000
    # Same norms everywhere again: all rows that are drawn come to one level.
    seen = np.zeros(N_ROWS, dtype=bool)
    for _ in range(60):
        points = case.kernel.draw_points(64)
        scaled = case.twin.scaled[points["i"]]
        points["norm2"] = case.twin.base * 4.0**20.5 / (points["q"] * scaled) ** 2
        case.kernel.observe_points(points)
        seen[points["i"]] = True
    assert seen.sum() > 0.8 * (case.P > 0).sum()
    np.testing.assert_array_equal(case.kernel.row_strata()[seen] % N_LEVELS, 20)
    counts = np.bincount(case.kernel.draw_points(40_000)["i"], minlength=N_ROWS)
    check_frequencies(counts, 40_000 * case.P * case.kernel.densities())


@pytest.mark.parametrize("norm2", [np.nan, np.inf, 0.0])
def test_gradients_that_are_no_numbers_leave_rows_in_their_group(norm2, seed):
    """The loop ends by them, but not before the sampler has seen them."""
    case = Case(LevelSampler(), seed)
    before = case.kernel.row_strata() // N_LEVELS
    points = case.kernel.draw_points(64)
    points["norm2"] = norm2
    case.kernel.observe_points(points)
    np.testing.assert_array_equal(case.kernel.row_strata() // N_LEVELS, before)


def test_a_batch_larger_than_the_queue_of_moves(seed, rng):
    case = Case(LevelSampler(), seed)
    case.observe_random(10_000, rng)
    check_state(case, rng.standard_normal((N_ROWS, 3)))


@given(
    exponents=st.lists(st.floats(-150, 150), min_size=2, max_size=12),
    zero=st.integers(0, 11),
    factor=st.floats(-140, 140),
)
def test_norms_at_the_ends_of_floating_point(exponents, zero, factor):
    """Whatever is seen, densities are positive, finite and sum to one."""
    start2 = 10.0 ** np.array(exponents)
    start2[zero % len(start2)] = 0
    setting = LevelSampler(mixing=0.1, forgetting=0.5)
    groups = np.zeros(len(start2), dtype=np.int32)
    kernel = level_kernel(setting, np.random.PCG64(0), groups, start2)
    for power in (factor, -factor, -300.0):
        points = kernel.draw_points(8)
        points["norm2"] = 10.0**power
        kernel.observe_points(points)
        q = kernel.densities()
        assert np.isfinite(q).all()
        assert q.min() > 0
        np.testing.assert_allclose(q.mean(), 1, rtol=1e-12)


def check_frequencies(counts, expected):
    """chi2 of counts against their expectation, rare rows together."""
    assert (counts[expected == 0] == 0).all()
    often, rare = expected >= 10, (expected < 10) & (expected > 0)
    observed = np.append(counts[often], counts[rare].sum())
    theory = np.append(expected[often], expected[rare].sum())
    used = theory > 0
    statistic = ((observed - theory)[used] ** 2 / theory[used]).sum()
    assert stats.chi2.sf(statistic, max(used.sum() - 1, 1)) > 1e-6


@each_start
@each_mass
@each_setting
def test_draws_have_the_densities_they_claim(name, mass, start, seed, rng):
    case = Case(SETTINGS[name], seed, mass, start)
    for n_observed in (0, 500):
        case.observe_random(n_observed, rng)
        q = case.kernel.densities()
        points = case.kernel.draw_points(20_000)
        np.testing.assert_allclose(points["q"], q[points["i"]], rtol=1e-13)
        np.testing.assert_array_equal(
            points["origin"], case.kernel.row_strata()[points["i"]]
        )
        counts = np.bincount(points["i"], minlength=N_ROWS)
        check_frequencies(counts, 20_000 * case.P * q)


@each_start
@each_mass
@each_setting
def test_sampler_equals_its_twin(name, mass, start, seed, rng):
    """Same random stream, same rows, same densities, through draws and moves."""
    case = Case(SETTINGS[name], seed, mass, start)
    for batch_size in [1] * 30 + [7] * 15:
        np.testing.assert_allclose(
            case.kernel.densities(), case.twin.densities(), rtol=1e-9
        )
        points = case.kernel.draw_points(batch_size)
        rows = [case.twin.draw() for _ in range(batch_size)]
        np.testing.assert_array_equal(points["i"], rows)
        seen = case.twin.base * 10.0 ** rng.uniform(-2, 20, batch_size)
        points["norm2"] = seen / points["q"] ** 2
        case.kernel.observe_points(points)
        case.twin.learn(rows, points["norm2"])


@each_mass
@each_setting
def test_gradients_are_a_martingale_around_the_true_gradient(name, mass, seed):
    """The sum of d_t - grad F(w_t) stays within 4 sigma while model and rows move."""
    case = Case(SETTINGS[name], seed, mass)
    rng = np.random.default_rng([seed, 4])
    X = rng.standard_normal((N_ROWS, 4)) * rng.lognormal(sigma=0.5, size=(N_ROWS, 1))
    y = np.where(case.groups == 1, 1.0, -1.0)
    w = np.zeros(4)
    total, variance = np.zeros(4), np.zeros(4)
    moved = 0
    for _ in range(3000):
        gradients = log_loss(y, X @ w)[1][:, None] * X
        full = case.P @ gradients
        q = case.kernel.densities()
        strata = case.kernel.row_strata()
        point = case.kernel.draw_points(1)
        d = gradients[point["i"][0]] / point["q"][0]
        total += d - full
        Q, drawn = (case.P * q)[q > 0], gradients[q > 0] / q[q > 0, None]
        variance += Q @ (drawn - full) ** 2
        w -= 0.1 * d
        point["norm2"] = d @ d
        case.kernel.observe_points(point)
        moved += (case.kernel.row_strata() != strata).any()
    assert moved > 50
    assert np.isfinite(w).all()
    assert (np.abs(total) < 4 * np.sqrt(variance)).all()


def test_fixed_gradients_are_drawn_in_proportion_to_their_norm(seed):
    """Within the factor of two that a level spans, and the safe part."""
    n_rows = 200
    roots = 10.0 ** np.random.default_rng([seed, 5]).uniform(-3, 1, n_rows)
    setting = LevelSampler(mixing=0.05, forgetting=0.1)
    groups = np.zeros(n_rows, dtype=np.int32)
    kernel = level_kernel(setting, np.random.PCG64(seed), groups, np.ones(n_rows))
    for _ in range(400):
        points = kernel.draw_points(64)
        points["norm2"] = (roots[points["i"]] / points["q"]) ** 2
        kernel.observe_points(points)
    best, uniform = roots.mean() ** 2, (roots**2).mean()
    reached = (roots**2 / kernel.densities()).mean()
    assert best <= reached < 1.3 * best < 0.7 * uniform


def test_rows_whose_gradient_shrinks_are_drawn_less(seed):
    n_rows = 100
    small = np.arange(n_rows) < 50
    groups = np.zeros(n_rows, dtype=np.int32)
    setting = LevelSampler(mixing=0.1, forgetting=0.1)
    kernel = level_kernel(setting, np.random.PCG64(seed), groups, np.ones(n_rows))
    # Not a power of two: rounding would move rows across the edge of a level.
    roots = np.full(n_rows, 1.3)
    np.testing.assert_allclose(kernel.densities(), 1)
    # At the end their gradient grows, and the safe part finds them again.
    for factor in (0.5, 0.1, 0.01, 1.0):
        roots[small] = 1.3 * factor
        for _ in range(200):
            points = kernel.draw_points(64)
            points["norm2"] = (roots[points["i"]] / points["q"]) ** 2
            kernel.observe_points(points)
        # A safe part of 0.1, the rest in proportion to the norms.
        expected = 0.1 + 0.9 * factor / (0.5 + 0.5 * factor)
        np.testing.assert_allclose(kernel.densities()[small], expected, rtol=0.02)


def test_rows_that_are_learned_are_drawn_less_in_a_fit(imbalanced, seed):
    """Easy rows sink, the rare class stays: what the classifier counts says so."""
    X, y = imbalanced
    clf = AWSGDClassifier(
        sampler="level",
        learning_rate="adagrad",
        max_iter=60,
        tol=None,
        count_draws=True,
        random_state=seed,
    ).fit(X, y)
    counts = clf.draw_counts_
    assert counts.shape == (1, len(y))
    assert counts.sum() == 60 * len(y) == clf.history_["draws"][-1]
    norm = np.abs(clf.predict_proba(X)[:, 1] - y) * np.sqrt((X**2).sum(axis=1) + 1)
    assert stats.spearmanr(counts[0], norm).statistic > 0.8
    assert counts[0, y == 1].mean() > 2 * counts[0, y == 0].mean()


@pytest.mark.parametrize("weighted", [False, True])
def test_counted_draws_are_those_of_the_loop(weighted, three_classes, seed, rng):
    X, y = three_classes
    weight = rng.integers(0, 3, len(y)).astype(float) if weighted else None
    clf = AWSGDClassifier(
        sampler=LevelSampler(mixing=0.2),
        learning_rate="adagrad",
        max_iter=3,
        tol=None,
        count_draws=True,
        random_state=seed,
    ).fit(X, y, sample_weight=weight)
    n_rows = len(y) if weight is None else (weight > 0).sum()
    np.testing.assert_array_equal(clf.draw_counts_.sum(axis=1), 3 * n_rows)
    if weighted:
        assert (clf.draw_counts_[:, weight == 0] == 0).all()
    assert clf.sampler_.probabilities_.shape == (3, 2 * N_LEVELS)
    np.testing.assert_allclose(clf.sampler_.probabilities_.sum(axis=1), 1)


def test_draws_are_not_counted_unless_asked_for(imbalanced, seed):
    clf = AWSGDClassifier(random_state=seed).fit(*imbalanced)
    assert not hasattr(clf, "draw_counts_")


@pytest.mark.parametrize("mixing", [0, 0.1])
def test_passes_reach_the_gain_that_the_draws_estimate(mixing, imbalanced, seed):
    """variance_gain_ is the ratio of second moments, here by enumeration."""
    X, y = imbalanced
    signs = np.where(y == 1, 1.0, -1.0)
    start = np.array([1.0, -0.5, 0.2, 0.0, 0.0])
    clf = AWSGDClassifier(
        sampler=LevelSampler(mixing=mixing),
        learning_rate="constant",
        eta0=1e-300,
        max_iter=40,
        tol=None,
        random_state=seed,
    ).fit(X, y, coef_init=start[None], intercept_init=[-2.0])
    derivative = log_loss(signs, X @ start - 2)[1]
    norms = np.abs(derivative) * np.sqrt((X**2).sum(axis=1) + 1)
    best = (norms**2).mean() / norms.mean() ** 2
    assert 0.7 * best < clf.variance_gain_[0] < 1.2 * best


@pytest.mark.parametrize(
    ("name", "value"), [("mixing", 1.0), ("mixing", -0.1), ("forgetting", 0.0)]
)
def test_bad_settings(name, value, imbalanced):
    sampler = LevelSampler(**{name: value})
    with pytest.raises(ValueError, match=rf"sampler\.{name}={value}"):
        AWSGDClassifier(sampler=sampler).fit(*imbalanced)
