"""Families of sampling distributions: densities, draws, learning."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.integrate import quad

from sklearn_awsgd._importance.continuous import GaussianFamily, GaussianSampler
from sklearn_awsgd._importance.families import (
    NormFamily,
    PaperRowColumnFamily,
    RowColumnFamily,
    StrataFamily,
    score_bins,
)
from sklearn_awsgd.samplers import RowColumnSampler, StrataSampler

N = 60


def strata_family(seed=0, mass=None, **parameters):
    family = StrataFamily(np.random.PCG64(seed), mass, N, StrataSampler(**parameters))
    family.set_strata(np.repeat([0, 1, 2], [30, 20, 10]).astype(np.int32), 3)
    return family


def uneven_mass():
    mass = np.random.default_rng(0).random(N)
    mass[[0, 31, 59]] = 0
    return mass / mass.sum()


def learn(family, f, index, n_rounds=5):
    """Let a family learn from values of its points."""
    for _ in range(n_rounds):
        points = family.draw_points(50)
        points["norm2"] = (f[index(points)] / points["q"]) ** 2
        family.observe_points(points)


def by_row(points):
    return points["i"]


FAMILIES = {
    "moments": lambda: (strata_family(), None, by_row),
    "sgd": lambda: (strata_family(update="sgd"), None, by_row),
    "adagrad": lambda: (strata_family(update="adagrad", mixing=0), None, by_row),
    "weighted": lambda: (strata_family(mass=uneven_mass()), uneven_mass(), by_row),
    "norm": lambda: (
        NormFamily(np.random.PCG64(0), None, np.arange(N) ** 2.0),
        None,
        by_row,
    ),
    "weighted norm": lambda: (
        NormFamily(np.random.PCG64(0), uneven_mass(), np.arange(N) ** 2.0),
        uneven_mass(),
        by_row,
    ),
    "row_column": lambda: (
        RowColumnFamily(np.random.PCG64(0), (6, 10)),
        None,
        lambda points: points["i"] * 10 + points["j"],
    ),
    "paper's row_column": lambda: (
        PaperRowColumnFamily(
            np.random.PCG64(0), (6, 10), RowColumnSampler(update="sgd")
        ),
        None,
        lambda points: points["i"] * 10 + points["j"],
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_weighted_draws_are_unbiased_by_enumeration(name):
    family, mass, index = FAMILIES[name]()
    mass = np.full(N, 1 / N) if mass is None else mass
    f = np.random.default_rng(1).normal(size=N) ** 3
    for _ in range(3):
        q = family.densities()
        assert_allclose(mass @ q, 1)
        possible = mass > 0
        assert (q[possible] > 0).all()
        # Sum over rows of Q times f/q.
        weighted = f[possible] / q[possible]
        assert_allclose((mass * q)[possible] @ weighted, mass @ f, atol=1e-12)
        points = family.draw_points(200)
        assert_allclose(points["q"], q[index(points)])
        learn(family, f, index)
        family.refit()


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_have_the_density_they_say(name):
    family, mass, index = FAMILIES[name]()
    mass = np.full(N, 1 / N) if mass is None else mass
    learn(family, np.linspace(0, 3, N), index)
    family.refit()
    expected = mass * family.densities()
    drawn = np.bincount(index(family.draw_points(60_000)), minlength=N)
    possible = expected > 0
    assert drawn[~possible].sum() == 0
    expected = expected[possible] * 60_000 / expected[possible].sum()
    assert stats.chisquare(drawn[possible], expected).pvalue > 1e-4


def test_strata_learn_online():
    family = strata_family()
    f = np.repeat([0.1, 0.1, 5.0], [30, 20, 10])
    learn(family, f, by_row, n_rounds=40)
    assert family.probabilities()[2] > 0.6


@pytest.mark.parametrize("name", FAMILIES)
def test_pickled_families_go_on_alike(name):
    family, _, index = FAMILIES[name]()
    learn(family, np.linspace(0, 3, N), index)
    twin = pickle.loads(pickle.dumps(family))
    assert_array_equal(family.draw_points(20), twin.draw_points(20))
    assert_allclose(family.densities(), twin.densities())


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
    strata, n_strata = score_bins(score, np.full(n, 1 / n), labels, n_labels, n_bins)
    per_label = n_strata // n_labels
    assert_array_equal(strata // per_label, labels)
    for label in range(n_labels):
        chosen = labels == label
        order = np.argsort(score[chosen], kind="stable")
        assert (np.diff(strata[chosen][order]) >= 0).all()


def test_bins_give_a_long_tail_bins_of_its_own():
    score = np.concatenate([np.zeros(1000), [100.0, 200.0, 300.0]])
    n = len(score)
    labels = np.zeros(n, dtype=np.intp)
    strata, _ = score_bins(score, np.full(n, 1 / n), labels, 1, n_bins=48)
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
    family = RowColumnFamily(np.random.PCG64(0), F.shape)
    for _ in range(20):
        points = family.draw_points(100)
        points["norm2"] = (F[points["i"], points["j"]] / points["q"]) ** 2
        family.observe_points(points)
        family.refit()
    p, r = family.probabilities()
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
    family = RowColumnFamily(np.random.PCG64(0), (4, 5))
    points = family.draw_points(30)
    family.observe_points(points)
    family.refit()
    assert_allclose(family.densities(), 1)


def gaussian(update="moments", n_components=1, distribution=None, mixing=0.1):
    setting = GaussianSampler(n_components, update=update, mixing=mixing)
    distribution = stats.norm(1, 2) if distribution is None else distribution
    return GaussianFamily(np.random.PCG64(0), distribution, setting)


def run_gaussian(family, f, n_rounds=20, size=200):
    for _ in range(n_rounds):
        points = family.draw_points(size)
        values = f(family.arguments(points))
        points["norm2"] = (values / points["q"]) ** 2
        family.observe_points(points)
        family.refit()


@pytest.mark.parametrize("update", ["moments", "sgd"])
@pytest.mark.parametrize("n_components", [1, 3])
def test_gaussian_density_integrates_to_one_also_after_learning(update, n_components):
    family = gaussian(update, n_components)
    f = lambda x: np.exp(-((x - 5) ** 2))  # noqa: E731
    for _ in range(2):
        total, _ = quad(
            lambda x: family.densities(np.array([[x]]))[0] * stats.norm(1, 2).pdf(x),
            -40,
            40,
            limit=500,
            points=[1, 5],
        )
        assert_allclose(total, 1, rtol=1e-5)
        run_gaussian(family, f, n_rounds=4)


@pytest.mark.parametrize("update", ["moments", "sgd"])
def test_gaussian_learns_where_the_integrand_is(update):
    family = gaussian(update, distribution=stats.norm())
    before = family.densities(np.array([[4.0]]))[0]
    run_gaussian(family, lambda x: np.exp(-((x - 4) ** 2) / 0.5), n_rounds=60)
    assert family.densities(np.array([[4.0]]))[0] > 3 * before


def test_mixture_finds_two_places():
    family = gaussian(n_components=2, distribution=stats.multivariate_normal([0, 0]))
    run_gaussian(family, lambda x: 1.0 * (np.abs(x[:, 0]) > 3))
    q = family.densities(np.array([[3.3, 0.0], [-3.3, 0.0], [0.0, 0.0]]))
    assert (q[:2] > 20 * q[2]).all()


def test_no_density_outside_the_support():
    family = gaussian(distribution=stats.expon())
    points = family.draw_points(500)
    outside = points["x"][:, 0] < 0
    assert outside.any()
    assert np.isinf(points["q"][outside]).all()
    assert np.isfinite(points["q"][~outside]).all()


def test_gaussian_of_zeros_does_not_move():
    family = gaussian()
    before = family.densities(np.array([[2.0]]))
    run_gaussian(family, np.zeros_like, n_rounds=2)
    assert_allclose(family.densities(np.array([[2.0]])), before)
