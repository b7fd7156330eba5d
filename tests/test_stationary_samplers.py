"""Samplers where nothing moves: densities, draws, learning, fits to all draws."""

import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import quad

from sklearn_awsgd._importance.bins import score_bins
from sklearn_awsgd._spaces import (
    DistributionSpace,
    EntrySpace,
    PoolSpace,
    ProblemView,
)
from sklearn_awsgd.samplers import (
    GaussianSampler,
    NormSampler,
    RowColumnSampler,
    StrataSampler,
)

N = 60


def open_sampler(sampler, space, view=None, n_groups=1, seed=0):
    """Return a sampler opened for the one problem there is."""
    sampler.prepare(space, 1, n_groups, None)
    return sampler.open(space, view, 0, np.random.PCG64(seed))


def open_strata(mass=None, **parameters):
    view = ProblemView(np.repeat([0, 1, 2], [30, 20, 10]).astype(np.int32), None)
    space = PoolSpace(mass, N, None)
    return open_sampler(StrataSampler(**parameters), space, view, n_groups=3)


def open_norm(mass=None):
    norms2 = partial(np.square, np.arange(N) * 1.0)
    return open_sampler(NormSampler(), PoolSpace(mass, N, norms2))


def open_entries(shape=(6, 10), **parameters):
    space = EntrySpace(shape, stationary=True)
    return open_sampler(RowColumnSampler(**parameters), space)


def uneven_mass():
    mass = np.random.default_rng(0).random(N)
    mass[[0, 31, 59]] = 0
    return mass / mass.sum()


def learn(opened, f, index, n_rounds=5):
    """Let an opened sampler learn from values of its points."""
    for _ in range(n_rounds):
        points = opened.draw_points(50)
        points["norm2"] = (f[index(points)] / points["q"]) ** 2
        opened.observe_points(points)


def by_row(points):
    return points["i"]


def by_entry(points):
    return points["i"] * 10 + points["j"]


# An opened sampler, P of the rows or None, and the positions of points.
OPENED = {
    "moments": lambda: (open_strata(), None, by_row),
    "sgd": lambda: (open_strata(update="sgd"), None, by_row),
    "adagrad": lambda: (open_strata(update="adagrad", mixing=0), None, by_row),
    "weighted": lambda: (open_strata(uneven_mass()), uneven_mass(), by_row),
    "norm": lambda: (open_norm(), None, by_row),
    "weighted norm": lambda: (open_norm(uneven_mass()), uneven_mass(), by_row),
    "row_column": lambda: (open_entries(), None, by_entry),
    "paper's row_column": lambda: (open_entries(update="sgd"), None, by_entry),
}


@pytest.mark.parametrize("name", OPENED)
def test_weighted_draws_are_unbiased_by_enumeration(name):
    opened, mass, index = OPENED[name]()
    mass = np.full(N, 1 / N) if mass is None else mass
    f = np.random.default_rng(1).normal(size=N) ** 3
    for _ in range(3):
        q = opened.densities().ravel()
        assert_allclose(mass @ q, 1)
        possible = mass > 0
        assert (q[possible] > 0).all()
        # Sum over rows of Q times f/q.
        weighted = f[possible] / q[possible]
        assert_allclose((mass * q)[possible] @ weighted, mass @ f, atol=1e-12)
        points = opened.draw_points(200)
        assert_allclose(points["q"], q[index(points)])
        learn(opened, f, index)
        opened.refit()


@pytest.mark.parametrize("name", OPENED)
def test_draws_have_the_density_they_say(name):
    opened, mass, index = OPENED[name]()
    mass = np.full(N, 1 / N) if mass is None else mass
    learn(opened, np.linspace(0, 3, N), index)
    opened.refit()
    expected = mass * opened.densities().ravel()
    drawn = np.bincount(index(opened.draw_points(60_000)), minlength=N)
    possible = expected > 0
    assert drawn[~possible].sum() == 0
    expected = expected[possible] * 60_000 / expected[possible].sum()
    assert stats.chisquare(drawn[possible], expected).pvalue > 1e-4


def test_strata_learn_online():
    opened = open_strata()
    f = np.repeat([0.1, 0.1, 5.0], [30, 20, 10])
    learn(opened, f, by_row, n_rounds=40)
    assert opened.stratum_probabilities()[2] > 0.6


@pytest.mark.parametrize("name", OPENED)
def test_pickled_samplers_go_on_alike(name):
    opened, _, index = OPENED[name]()
    learn(opened, np.linspace(0, 3, N), index)
    twin = pickle.loads(pickle.dumps(opened))
    assert_array_equal(opened.draw_points(20), twin.draw_points(20))
    assert_allclose(opened.densities(), twin.densities())


@settings(max_examples=50, deadline=None)
@given(
    scores=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60),
    n_labels=st.integers(1, 3),
    n_bins=st.integers(1, 6),
)
def test_bins_keep_labels_apart_and_follow_the_score(scores, n_labels, n_bins):
    score = np.array(scores)
    n = len(score)
    labels = np.arange(n) % n_labels
    strata = score_bins(score, np.full(n, 1 / n), labels, n_labels, n_bins)
    per_label = n_bins
    assert_array_equal(strata // per_label, labels)
    for label in range(n_labels):
        chosen = labels == label
        order = np.argsort(score[chosen], kind="stable")
        assert (np.diff(strata[chosen][order]) >= 0).all()


def test_bins_give_a_long_tail_bins_of_its_own():
    score = np.concatenate([np.zeros(1000), [100.0, 200.0, 300.0]])
    n = len(score)
    labels = np.zeros(n, dtype=np.intp)
    strata = score_bins(score, np.full(n, 1 / n), labels, 1, n_bins=48)
    assert len(np.unique(strata[1000:])) == 3
    assert strata[1000] > strata[:1000].max()


def block(seed):
    random = np.random.default_rng(seed)
    Y = random.normal(size=(50, 5)) @ random.normal(size=(50, 5)).T
    Y[10:20, 30:40] *= 100
    return Y**2


def second_moment(F, p, r):
    return (F**2 / np.outer(p, r)).sum()


def test_row_column_finds_a_block():
    F = block(0)
    opened = open_entries(F.shape)
    for _ in range(20):
        points = opened.draw_points(100)
        points["norm2"] = (F[points["i"], points["j"]] / points["q"]) ** 2
        opened.observe_points(points)
        opened.refit()
    p, r = opened.row_probabilities(), opened.column_probabilities()
    uniform = np.full(50, 1 / 50)
    assert second_moment(F, p, r) < second_moment(F, uniform, uniform) / 10
    best_p, best_r = uniform, uniform
    for _ in range(100):
        best_p = np.sqrt((F**2 / best_r).sum(axis=1))
        best_p /= best_p.sum()
        best_r = np.sqrt((F**2 / best_p[:, None]).sum(axis=0))
        best_r /= best_r.sum()
    assert second_moment(F, p, r) < 3 * second_moment(F, best_p, best_r)


def test_row_column_of_zeros_stays_uniform():
    opened = open_entries((4, 5))
    points = opened.draw_points(30)
    opened.observe_points(points)
    opened.refit()
    assert_allclose(opened.densities(), 1)


def gaussian(update="moments", n_components=1, distribution=None, mixing=0.1):
    setting = GaussianSampler(n_components, update=update, mixing=mixing)
    distribution = stats.norm(1, 2) if distribution is None else distribution
    space = DistributionSpace(distribution, np.random.default_rng(1))
    return open_sampler(setting, space)


def run_gaussian(opened, f, n_rounds=20, size=200):
    for _ in range(n_rounds):
        points = opened.draw_points(size)
        values = f(opened._space.arguments(points["x"]))
        points["norm2"] = (values / points["q"]) ** 2
        opened.observe_points(points)
        opened.refit()


@pytest.mark.parametrize("update", ["moments", "sgd"])
@pytest.mark.parametrize("n_components", [1, 3])
def test_gaussian_density_integrates_to_one_also_after_learning(update, n_components):
    opened = gaussian(update, n_components)
    f = lambda x: np.exp(-((x - 5) ** 2))  # noqa: E731
    for _ in range(2):
        total, _ = quad(
            lambda x: opened.densities(np.array([[x]]))[0] * stats.norm(1, 2).pdf(x),
            -40,
            40,
            limit=500,
            points=[1, 5],
        )
        assert_allclose(total, 1, rtol=1e-5)
        run_gaussian(opened, f, n_rounds=4)


@pytest.mark.parametrize("update", ["moments", "sgd"])
def test_gaussian_learns_where_the_integrand_is(update):
    opened = gaussian(update, distribution=stats.norm())
    before = opened.densities(np.array([[4.0]]))[0]
    run_gaussian(opened, lambda x: np.exp(-((x - 4) ** 2) / 0.5), n_rounds=60)
    assert opened.densities(np.array([[4.0]]))[0] > 3 * before


def test_mixture_finds_two_places():
    opened = gaussian(n_components=2, distribution=stats.multivariate_normal([0, 0]))
    run_gaussian(opened, lambda x: 1.0 * (np.abs(x[:, 0]) > 3))
    q = opened.densities(np.array([[3.3, 0.0], [-3.3, 0.0], [0.0, 0.0]]))
    assert (q[:2] > 20 * q[2]).all()


def test_no_density_outside_the_support():
    opened = gaussian(distribution=stats.expon())
    points = opened.draw_points(500)
    outside = points["x"][:, 0] < 0
    assert outside.any()
    assert np.isinf(points["q"][outside]).all()
    assert np.isfinite(points["q"][~outside]).all()


def test_gaussian_of_zeros_does_not_move():
    opened = gaussian()
    before = opened.densities(np.array([[2.0]]))
    run_gaussian(opened, np.zeros_like, n_rounds=2)
    assert_allclose(opened.densities(np.array([[2.0]])), before)


@pytest.mark.parametrize("update", ["moments", "sgd"])
def test_nothing_seen_is_nothing_learned(update):
    for opened in (open_entries(update=update), open_strata(update=update)):
        before = opened.densities()
        opened.refit()
        assert_array_equal(opened.densities(), before)
    opened, x = gaussian(update), np.array([[2.0], [5.0]])
    before = opened.densities(x)
    opened.refit()
    assert_array_equal(opened.densities(x), before)
