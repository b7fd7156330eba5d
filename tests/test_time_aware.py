"""Samplers that know what draws cost: densities, where they lead, what is recorded."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn_awsgd._kernels._loop import Costs

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd._spaces import EntryCosts, EntrySpace, ProblemView, RowSpace
from sklearn_awsgd.samplers import (
    LevelSampler,
    NormSampler,
    RowColumnSampler,
    StrataSampler,
)

N = 60
GROUPS = np.repeat(np.arange(2, dtype=np.int32), N // 2)


def row_space(seed=0, weighted=True):
    rng = np.random.default_rng(seed)
    mass = rng.random(N)
    mass[7] = 0
    costs = np.exp(2 * rng.normal(size=N))
    return RowSpace(mass / mass.sum() if weighted else None, rng.random(N), costs=costs)


def opened_rows(setting, space, norms2=None, seed=0):
    setting.prepare(space, 1, 2, GROUPS)
    norms2 = np.ones(N) if norms2 is None else norms2
    return setting.open(space, ProblemView(GROUPS, norms2), 0, np.random.PCG64(seed))


def feed(opened, costs, g2, n_points):
    """Draw, charge, fill in ||d||^2 and learn; return the points."""
    points = opened.draw_points(n_points)
    costs.charge(points)
    index = points["i"] if g2.ndim == 1 else (points["i"], points["j"])
    points["norm2"] = g2[index] / points["q"] ** 2
    opened.observe_points(points)
    return points


STRATA = [
    {},
    {"update": "sgd"},
    {"update": "adagrad", "normalize": False, "eta0": 0.01},
]
ROW_SETTINGS = [
    *[StrataSampler(by="label", time_aware=True, **more) for more in STRATA],
    LevelSampler(time_aware=True),
    NormSampler(time_aware=True),
]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("setting", ROW_SETTINGS, ids=str)
def test_density_of_rows_is_exact_after_every_move(setting, weighted):
    space = row_space(weighted=weighted)
    opened = opened_rows(sklearn.clone(setting), space)
    g2 = np.exp(np.random.default_rng(1).normal(scale=2, size=N))
    for _ in range(20):
        q = opened.densities()
        assert_allclose(space.masses() @ q, 1, rtol=1e-12)
        points = feed(opened, Costs(space.costs), g2, 50)
        assert_allclose(points["q"], q[points["i"]], rtol=1e-12)


def make_entries(holes, costs, seed=0):
    stored = np.random.default_rng(seed).random((7, 5)) < 0.6
    stored[1], stored[:, 2] = False, False
    X = sparse.csr_array(stored.astype(float))
    if holes == "dense":
        return EntrySpace(X.shape, costs=costs)
    return EntrySpace(X.shape, holes, X.indptr, X.indices, costs=costs)


def entry_costs(kind, seed=2):
    rng = np.random.default_rng(seed)
    if kind == "pair":
        return EntryCosts(np.exp(2 * rng.normal(size=7)), np.exp(rng.normal(size=5)))
    return EntryCosts(cells=np.exp(2 * rng.normal(size=(7, 5))))


@pytest.mark.parametrize("kind", ["pair", "cells"])
@pytest.mark.parametrize("holes", ["dense", "zeros", "missing"])
@pytest.mark.parametrize(
    "more", [{}, {"update": "sgd"}, {"update": "sgd", "normalize": False}]
)
def test_density_of_entries_is_exact_after_every_move(holes, kind, more):
    costs = entry_costs(kind)
    space = make_entries(holes, costs)
    setting = RowColumnSampler(time_aware=True, mixing=0.3, **more)
    setting.prepare(space, 1, 1, None)
    opened = setting.open(space, None, 0, np.random.PCG64(0))
    g2 = np.exp(np.random.default_rng(1).normal(size=(7, 5)))
    for _ in range(20):
        q = opened.densities()
        assert_allclose(q.sum(), space.entries.n_entries, rtol=1e-12)
        points = feed(opened, costs.kernel, g2, 50)
        assert_allclose(points["q"], q[points["i"], points["j"]], rtol=1e-12)
    # The safe part bounds the weights by what the documentation says.
    if holes == "missing":
        c = costs.at(*space.places())
        least = 0.3 / np.sqrt(c) / np.mean(1 / np.sqrt(c))
        assert (opened.densities()[space.places()] >= least * (1 - 1e-12)).all()


def second_moment_per_cost(space, g2, q):
    """E||d||^2 E[cost], which the best distribution makes least."""
    P = space.masses()
    used = q > 0
    return np.sum((P * g2)[used] / q[used]) * np.sum(P * q * space.costs)


def best_strata(space, g2):
    """Probabilities N_s sqrt(M_s / C_s) of the two groups."""
    P, pi = space.masses(), []
    for s in range(2):
        inside = GROUPS == s
        mass = P[inside].sum()
        square = P[inside] @ g2[inside] / mass
        cost = P[inside] @ space.costs[inside] / mass
        pi.append(mass * np.sqrt(square / cost))
    return np.array(pi) / np.sum(pi)


@pytest.mark.parametrize("known", [True, False])
def test_moments_reach_the_best_allocation(known):
    space = row_space()
    g2 = np.exp(np.random.default_rng(1).normal(size=N)) * np.where(GROUPS, 9.0, 1.0)
    costs = Costs(space.costs)
    if not known:
        # Learned from the draws: the space says nothing.
        space.costs, kept = None, space.costs
    opened = opened_rows(
        StrataSampler(by="label", time_aware=True, forgetting=1e-4), space
    )
    for _ in range(400):
        feed(opened, costs, g2, 200)
    if not known:
        space.costs = kept
    assert_allclose(opened.stratum_probabilities(), best_strata(space, g2), rtol=0.03)


def test_gradient_steps_reach_the_best_allocation_and_the_paper_s_do_not():
    space = row_space()
    rng = np.random.default_rng(3)
    g2 = np.exp(rng.normal(size=N)) * np.where(GROUPS, 9.0, 1.0)
    # In one stratum costs differ by far: the paper's division takes their harmonic
    # mean.
    space.costs = np.where(GROUPS, np.exp(4 * rng.normal(size=N)), 1.0)
    best, reached = best_strata(space, g2), {}
    for normalize, eta0 in ((True, 0.001), (False, 0.0002)):
        setting = StrataSampler(
            by="label",
            time_aware=True,
            update="sgd",
            normalize=normalize,
            eta0=eta0,
            mixing=0,
        )
        opened = opened_rows(setting, space)
        means = []
        for step in range(3000):
            feed(opened, Costs(space.costs), g2, 20)
            if step > 1500:
                means.append(opened.stratum_probabilities())
        reached[normalize] = np.mean(means, axis=0)
    assert abs(reached[True] - best).max() < 0.05
    assert abs(reached[False] - best).max() > 0.15


def test_level_sampler_is_near_the_best_distribution():
    space = row_space(weighted=False)
    g2 = np.exp(2 * np.random.default_rng(1).normal(size=N))
    P, ratio = space.masses(), {}
    bound = np.sum(P * np.sqrt(g2 * space.costs)) ** 2
    for time_aware in (True, False):
        setting = LevelSampler(time_aware=time_aware, mixing=0.02)
        opened = opened_rows(setting, space, norms2=g2)
        for _ in range(100):
            feed(opened, Costs(space.costs), g2, 100)
        q = opened.densities()
        ratio[time_aware] = second_moment_per_cost(space, g2, q) / bound
    assert ratio[True] < 1.25
    assert ratio[False] > 1.5 * ratio[True]


@pytest.mark.parametrize("holes", ["dense", "missing"])
def test_entries_are_sampled_for_variance_and_cost(holes):
    rng = np.random.default_rng(0)
    costs = EntryCosts(np.repeat([1.0, 400.0], [4, 3]), np.zeros(5))
    space = make_entries(holes, costs)
    g2, reached = np.exp(0.1 * rng.normal(size=(7, 5))), {}
    for time_aware in (True, False):
        setting = RowColumnSampler(time_aware=time_aware, mixing=0.05)
        setting.prepare(space, 1, 1, None)
        opened = setting.open(space, None, 0, np.random.PCG64(0))
        for _ in range(300):
            feed(opened, costs.kernel, g2, 64)
        q = opened.densities()
        used = q > 0
        cells = costs.rows[:, None] + costs.columns
        reached[time_aware] = np.sum(g2[used] / q[used]) * np.sum(q * cells)
    assert reached[True] < 0.75 * reached[False]


def twin_of_strata(space, rng, g2, mixing, forgetting, n_rounds, n_points):
    """StrataSampler(by="label", time_aware=True), line by line."""
    P = space.masses()
    mass = np.array([P[GROUPS == s].sum() for s in range(2)])
    cost = np.array(
        [P[GROUPS == s] @ space.costs[GROUPS == s] / mass[s] for s in range(2)]
    )
    squares, counts, known = np.zeros(2), np.zeros(2), np.ones(2)
    safe = np.sqrt(space.norms2 + 1) / np.sqrt(space.costs)
    safe /= P @ safe
    for _ in range(n_rounds):
        seen = mass @ (squares * (counts > 0)) / max(mass @ (counts > 0), 1e-300)
        m = np.where(counts > 0, squares, seen if counts.any() else 1.0)
        pi = mass * np.sqrt(m / cost)
        pi /= pi.sum()
        learned = (1 - mixing) * (pi / mass)[GROUPS]
        q = learned + mixing * safe
        for i in (yield pi, q):
            s, share = GROUPS[i], learned[i] / q[i]
            for mean, weight, value in (
                (squares, counts, g2[i]),
                (cost, known, space.costs[i]),
            ):
                weight[s] += forgetting * (1 - weight[s]) * share
                mean[s] += forgetting * share / weight[s] * (value - mean[s])


def test_strata_do_as_their_twin_does():
    space, g2 = row_space(), np.exp(np.random.default_rng(1).normal(size=N))
    setting = StrataSampler(by="label", time_aware=True, forgetting=0.05)
    opened = opened_rows(setting, space)
    twin = twin_of_strata(space, None, g2, 0.1, 0.05, 30, 40)
    pi, q = next(twin)
    for _ in range(20):
        assert_allclose(opened.stratum_probabilities(), pi, rtol=1e-10)
        assert_allclose(opened.densities()[space.rows], q[space.rows], rtol=1e-10)
        points = feed(opened, Costs(space.costs), g2, 40)
        pi, q = twin.send(points["i"])


def data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    y = (X @ rng.normal(size=5) + rng.normal(size=n) > 0.8).astype(int)
    return X, y, np.where(np.arange(n) % 2, 50.0, 0.5)


@pytest.mark.parametrize("sampler", ["uniform", "auto", "label"])
def test_simulated_seconds_are_the_costs_of_the_draws(sampler):
    X, y, costs = data()
    clf = AWSGDClassifier(
        learning_rate="adagrad",
        sampler=sampler,
        max_iter=3,
        tol=None,
        count_draws=True,
        random_state=0,
    ).fit(X, y, access_cost=costs)
    simulated = clf.history_["simulated_seconds"]
    assert_allclose(simulated[-1], clf.draw_counts_[0] @ costs, rtol=1e-9)
    assert (np.diff(simulated) > 0).all()
    assert np.isnan(clf.fit(X, y).history_["simulated_seconds"]).all()


def test_exact_passes_cost_what_all_rows_cost():
    X, y, costs = data()
    clf = AWSGDClassifier(random_state=0).fit(X, y, access_cost=costs)
    history = clf.history_
    exact = np.diff(history["simulated_seconds"])[history["phase"][1:] == "exact"]
    assert_allclose(exact, costs.sum())
    assert clf.sampler_.time_aware
    again = AWSGDClassifier(sampler="level", random_state=0).fit(X, y)
    # The optimum is the same.
    assert_allclose(clf.coef_, again.coef_, rtol=0.05, atol=0.01)


def test_time_aware_draws_cost_less():
    X, y, costs = data()
    spent = {}
    for time_aware in (True, False):
        reg = AWSGDRegressor(
            learning_rate="adagrad",
            sampler=LevelSampler(time_aware=time_aware),
            max_iter=5,
            tol=None,
            random_state=0,
        ).fit(X, y, access_cost=costs)
        spent[time_aware] = reg.history_["simulated_seconds"][-1]
    assert spent[True] < spent[False] / 2


@pytest.mark.parametrize("sampler", [LevelSampler, StrataSampler])
def test_equal_costs_change_nothing(sampler):
    X, y, _ = data()
    fits = [
        AWSGDClassifier(
            sampler=sampler(time_aware=time_aware),
            learning_rate="adagrad",
            max_iter=3,
            tol=None,
            random_state=0,
        ).fit(X, y, access_cost=np.ones(len(y)))
        for time_aware in (True, False)
    ]
    assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-9)


def test_streams_take_costs():
    X, y, costs = data()
    clf = AWSGDClassifier(random_state=0)
    for part in np.split(np.arange(400), 4):
        clf.partial_fit(X[part], y[part], classes=[0, 1], access_cost=costs[part])
    assert_allclose(clf.history_["simulated_seconds"][-1], costs.sum())
    sampler = StrataSampler(time_aware=True)
    clf = AWSGDClassifier(sampler=sampler, random_state=0)
    for part in np.split(np.arange(400), 4):
        clf.partial_fit(X[part], y[part], classes=[0, 1], access_cost=costs[part])
    assert clf.sampler_.mean_costs_.shape == (1, 2)
    assert np.isfinite(clf.sampler_.mean_costs_).all()


def test_costs_are_routed_as_metadata():
    X, y, costs = data()
    with sklearn.config_context(enable_metadata_routing=True):
        clf = AWSGDClassifier(random_state=0).set_fit_request(access_cost=True)
        pipeline = make_pipeline(StandardScaler(), clf).fit(X, y, access_cost=costs)
        assert pipeline[-1].sampler_.time_aware
        mf = AWSGDMatrixFactorization(2).set_fit_request(access_cost=True)
        make_pipeline(StandardScaler(), mf).fit(X, access_cost=costs)


def test_costs_are_split_with_the_rows_in_a_search():
    X, y, costs = data()
    with sklearn.config_context(enable_metadata_routing=True):
        clf = AWSGDClassifier(random_state=0).set_fit_request(access_cost=True)
        search = GridSearchCV(clf, {"alpha": [1e-4, 1e-2]}, cv=2)
        best = search.fit(X, y, access_cost=costs).best_estimator_
    assert best.sampler_.time_aware
    exact = best.history_["phase"] == "exact"
    assert_allclose(np.diff(best.history_["simulated_seconds"])[exact[1:]], costs.sum())


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        (np.ones(3), "give what each row costs"),
        (np.zeros(400), "costs have to be positive"),
        (np.full(400, np.nan), "access_cost contains NaN"),
        (np.ones((400, 2)), "give what each row costs"),
    ],
)
def test_wrong_costs_are_refused(costs, words):
    X, y, _ = data()
    clf = AWSGDClassifier(random_state=0).fit(X, y)
    before = clf.coef_.copy()
    with pytest.raises(ValueError, match=words):
        clf.fit(X, y, access_cost=costs)
    with pytest.raises(ValueError, match=words):
        clf.partial_fit(X, y, access_cost=costs)
    assert_array_equal(clf.coef_, before)


def test_time_aware_without_costs_is_told():
    X, y, _ = data()
    sampler = LevelSampler(time_aware=True)
    with pytest.warns(UserWarning, match="all rows cost the same"):
        AWSGDClassifier(sampler=sampler).fit(X, y)
    with pytest.warns(UserWarning, match="all entries cost the same"):
        AWSGDMatrixFactorization(2, sampler=RowColumnSampler(time_aware=True)).fit(X)
    with pytest.raises(ValueError, match="use time_aware=False"):
        MinVarianceImportanceEstimator(
            loss=lambda rows: rows[:, 0], sampler=NormSampler(time_aware=True)
        ).fit(X)


def factorize(X, costs, **settings):
    return AWSGDMatrixFactorization(
        2,
        sampler=RowColumnSampler(time_aware=True),
        learning_rate="constant",
        max_iter=2,
        tol=None,
        random_state=0,
        **settings,
    ).fit(X, access_cost=costs)


def test_entry_costs_may_be_given_in_several_ways():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
    rows, columns = np.where(np.arange(30) < 15, 1.0, 100.0), np.full(20, 0.5)
    cells = rows[:, None] + columns
    pair = factorize(X, (rows, columns))
    assert_allclose(factorize(X, cells).components_, pair.components_, rtol=1e-6)
    assert pair.row_probabilities_[:15].sum() > 0.8
    total = pair.history_["simulated_seconds"][-1]
    assert 1200 * 1.5 < total < 1200 * 30
    holes = rng.random(X.shape) < 0.5
    X[holes] = np.nan
    dense = factorize(X, cells)
    places = np.nonzero(~holes)
    stored = sparse.csr_array((X[places], places), shape=X.shape)
    costs = sparse.csr_array((cells[places], places), shape=X.shape)
    other = factorize(stored, costs, unstored="missing")
    assert_allclose(other.components_, dense.components_, rtol=1e-6)
    with pytest.raises(ValueError, match="stores the same entries"):
        factorize(X, costs)
    with pytest.raises(ValueError, match="a pair"):
        factorize(X, cells[:, :3])


def test_a_stream_of_matrices_takes_costs():
    rng = np.random.default_rng(0)
    V, mf = rng.normal(size=(2, 20)), AWSGDMatrixFactorization(2, random_state=0)
    for _ in range(3):
        X = rng.normal(size=(30, 2)) @ V
        mf.partial_fit(X, access_cost=np.linspace(1, 2, 30))
    assert mf.sampler_.time_aware
    assert 3 * 600 < mf.history_["simulated_seconds"][-1] < 6 * 600
