"""Stratified samples without replacement: moments, allocation, halves."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.tree import DecisionTreeRegressor
from sklearn_awsgd._kernels._cells import cell_sizes, centre, fill

from sklearn_awsgd import MinVarianceImportanceEstimator
from sklearn_awsgd._importance import learned as learned_module
from sklearn_awsgd._importance.bins import Strata, one_stratum
from sklearn_awsgd._importance.design import Columns
from sklearn_awsgd._importance.learned import LearnedStrata
from sklearn_awsgd._importance.losses import Integrand
from sklearn_awsgd._importance.pool import Pool
from sklearn_awsgd._importance.shapes import fit_shapes
from sklearn_awsgd._importance.stage import (
    LEAST_BEYOND,
    MORE_THAN_KNOWN,
    Drawn,
    Scores,
    Stage,
    most_hidden,
    round_to,
    shrunken_slope,
)
from sklearn_awsgd._importance.stratified import StratifiedRounds
from sklearn_awsgd._importance.targets import Difference, Mean, Ratio
from sklearn_awsgd.samplers import StrataSampler


class TwoMeans(Mean):
    """Two integrals; the first is the target."""

    n_values = 2

    def extremes(self, parts, unit):
        return np.zeros((0, 2))

    def direction(self, mean):
        return np.array([1.0, 0.0])


@pytest.mark.parametrize("with_score", [False, True])
def test_stage_has_the_moments_of_all_possible_samples(with_score):
    """Mean, variance and third moment, by enumeration of all samples."""
    random = np.random.default_rng(0)
    n, known_sum = 10, np.array([[0.3, -0.2], [0.1, 0.4]])
    cell_of = np.repeat([0, 1], 5)
    parts = random.exponential(size=(n, 2))
    score = random.random(n)
    parts[:, 0] += with_score * score
    sizes, half_mass = np.array([5, 5]), np.array([0.5, 0.5])
    extra = []
    means, seconds, thirds = [], [], []
    for first, second in product(*(combinations(range(b, b + 5), 3) for b in (0, 5))):
        rows = np.array(first + second)
        if with_score:
            sums = np.bincount(cell_of, score)
            scores = Scores(sums, shapes=np.ones((2, 1)))
            extra = [scores]
        drawn = Drawn(cell_of[rows], parts[rows], score[rows] if with_score else None)
        stage = Stage(drawn, sizes, known_sum, half_mass, TwoMeans(), 1, *extra)
        means.append(stage.mean)
        seconds.append(stage.second)
        thirds.append(stage.third)
    truth = known_sum + np.stack([parts[:5].sum(axis=0), parts[5:].sum(axis=0)])
    assert_allclose(np.mean(means, axis=0), truth, rtol=1e-12)
    if with_score:
        return
    deviations = np.array(means) - truth
    covariance = np.einsum("rhi,rhj->hij", deviations, deviations) / len(means)
    assert_allclose(np.mean(seconds, axis=0), covariance)
    cubes = np.einsum("rhi,rhj,rhk->hijk", *[deviations] * 3) / len(means)
    assert_allclose(np.mean(thirds, axis=0), cubes)


def test_stage_forgets_nothing_of_full_cells():
    parts = np.arange(6.0)[:, None]
    stage = Stage(
        Drawn(np.array([0, 0, 0, 1, 1, 1]), parts), np.array([3, 3]), np.zeros((2, 1)),
        np.array([0.5, 0.5]), Mean(), 1,
    )  # fmt: skip
    assert_allclose(stage.mean[:, 0], [3, 12])
    assert_allclose(stage.second, 0)
    assert_allclose(stage.events(), 0)
    assert stage.is_known.all()


def test_one_more_event_has_the_weight_of_the_least_sampled_group():
    """No error in 100 of 1,000 rows: one more would stand for nine or ten others."""
    values = np.zeros((400, 1))
    values[:50] = 1.0
    # Cells: few rows known to err often, many rows without an error; two halves.
    cells = np.repeat([0, 1, 2, 3], 100)
    values[200:250] = 1.0
    stage = Stage(
        Drawn(cells, values), np.array([100, 1000, 100, 1000]), np.zeros((2, 1)),
        np.array([0.5, 0.5]), Mean(), 2,
    )  # fmt: skip
    up, down = stage.events()[:, 0]
    # At most three times as large as the largest of that label.
    # A row of it stands for 1 / log(1000 / 900) others.
    assert_allclose(up, 3 * 50 / 1100 / np.log(1000 / 900))
    assert down < 0


@pytest.mark.parametrize("n_large", [1, 20])
def test_one_more_event_does_not_shrink_with_the_score(n_large):
    """The bin looked at most seldom hides more than the largest value of all.

    But not of so many rows, if hardly any is known to be as large.
    """
    cells = np.repeat([0, 1, 2, 3], [10, 90, 10, 90])
    values = np.where(cells % 2 == 0, 0.01, 1.0)
    values[20 : 20 + n_large] = values[120 : 120 + n_large] = 7.0
    score = Scores(np.zeros(2), np.ones((4, 1)))
    stage = Stage(
        Drawn(cells, values[:, None], values), np.array([900, 100, 900, 100]),
        np.zeros((2, 1)), np.array([0.5, 0.5]), Mean(), 1, score,
    )  # fmt: skip
    mean = (900 * 0.01 + 100 * values[10:100].mean()) / 1000
    weight = min(1 / np.log(900 / 890), MORE_THAN_KNOWN * 2 * n_large * 100 / 90)
    event = weight * LEAST_BEYOND * (7.0 - mean)
    # As both halves are alike, each of them tells the same.
    for half in (None, 0, 1):
        assert_allclose(stage.events(half)[0, 0], event)
    assert_allclose(stage.hidden(0, np.array([1e-3, weight]))[1], weight * (7.0 - mean))
    assert_allclose(stage.reach()[1], mean + LEAST_BEYOND * (7.0 - mean))
    # A half of which nothing was left to draw hides nothing.
    first = cells < 2
    stage = Stage(
        Drawn(cells[first], values[first, None], values[first]),
        np.array([900, 100, 0, 0]), np.zeros((2, 1)), np.array([0.5, 0.5]), Mean(), 1,
        score,
    )  # fmt: skip
    assert not stage.hidden(1, np.array([1.0, 10.0])).any()


@pytest.mark.parametrize("n", [5, 90, 400])
def test_what_is_hidden_most(n):
    """No more rows than several times those known to be as large, or it is smaller."""
    random = np.random.default_rng(n)
    values, rows_each = random.normal(size=n) ** 3, 1 + 9 * random.random(n)
    weights = np.array([0.1, 10.0, 30.0, 300.0])
    chosen, rows = most_hidden(values, rows_each, weights)
    known = np.array([rows_each[values >= value].sum() for value in values])
    allowed = np.minimum(weights[:, None], MORE_THAN_KNOWN * known)
    assert_allclose(values[chosen] * rows, (values * allowed).max(axis=1))
    assert (rows <= weights).all()


def test_squares_are_fitted_by_shapes():
    """Values as large as the score, or events as probable as it, or neither."""
    random = np.random.default_rng(0)
    score = np.geomspace(0.01, 10, 24)
    shapes = np.stack([np.ones(24), score / score.mean(), score**2 / np.mean(score**2)])
    rows = np.full((3, 24), 40.0)
    squares = shapes * random.chisquare(40, (3, 24))
    expected = fit_shapes(np.stack([shapes.T] * 3), squares, rows).reshape(3, 24)
    equal = shapes.mean(axis=0)
    for truth, fitted in zip(shapes, expected):
        assert_allclose(fitted[8:], truth[8:], rtol=0.6)
        ratio, before = fitted / truth, equal / truth
        assert np.ptp(np.log(ratio)) < 0.7 * np.ptp(np.log(before))
    # What is so well told by the shapes stays as it is, and nothing gives nothing.
    same = fit_shapes(shapes.T[None], (40 * equal)[None], rows[:1])
    assert_allclose(same, equal)
    assert not fit_shapes(shapes.T[None], np.zeros((1, 24)), rows[:1]).any()


@pytest.mark.parametrize("scale", [1e-70, 1.0, 1e65])
def test_shapes_of_one_label_do_not_explain_another(scale):
    """Squares are larger in a label of larger scores, and not inside of it."""
    random = np.random.default_rng(0)
    cells = np.repeat(np.arange(24), 50)
    score = np.tile(np.geomspace(0.1, 3, 6), 4) * np.repeat([1, 10, 1, 10], 6)
    level = scale * np.repeat([1.0, 10.0, 1.0, 10.0], 6)
    values = level[cells] * random.normal(size=len(cells))
    shapes = np.stack([score**k / np.mean(score**k) for k in (0, 1, 2)], axis=1)
    stage = Stage(
        Drawn(cells, values[:, None], score[cells]), np.full(24, 1000),
        np.zeros((2, 1)), np.array([0.5, 0.5]), Mean(), 2, Scores(np.zeros(2), shapes),
    )  # fmt: skip
    expected = stage._expect(shapes).reshape(4, 6)
    assert (expected.max(axis=1) < 3 * expected.min(axis=1)).all()


def test_differences_and_events_are_always_possible():
    """Nothing but zeros is no proof that there is nothing else."""
    same = np.zeros((100, 2))
    cells = np.repeat([0, 1], 50)
    for target in (Difference(Mean((0.0, 1.0), attained=True)), Difference(Ratio())):
        parts = np.tile(same, target.n_values // 2)
        stage = Stage(
            Drawn(cells, parts, None, 1e-3), np.array([500, 500]),
            np.zeros((2, target.n_values)), np.array([0.5, 0.5]), target, 1,
        )  # fmt: skip
        v = target.direction(np.zeros(target.n_values))
        events = stage.events() @ v
        assert events.max() > 0 > events.min()


def test_spreads_lean_on_the_bins_around():
    """Large values around count as two more, in as many rows as they come from."""
    n_bins, n = 6, 20
    parts = np.zeros((2, n_bins, n))
    parts[:, 4, 0] = 1.0
    parts[:, 5, :7] = 1.0
    cells = np.repeat(np.arange(2 * n_bins), n)
    stage = Stage(
        Drawn(cells, parts.reshape(-1, 1)), np.full(2 * n_bins, 50), np.zeros((2, 1)),
        np.array([0.5, 0.5]), Mean(), 1,
    )  # fmt: skip
    deviations = parts[0] - parts[0].mean(axis=1, keepdims=True)
    own, fourth = deviations.var(axis=1, ddof=1), (deviations**4).mean(axis=1)
    expected = []
    for b in range(n_bins):
        weight = [(2, 2, 1, 0, 0, 0)[abs(b - k)] for k in range(n_bins)]
        around, around4 = (np.average(x, weights=weight) for x in (own, fourth))
        rows = 2 * around4 / around**2 if around > 0 else 0.0
        expected.append((n * own[b] + rows * around) / (n + rows))
    # What may be hidden in a bin is added to all alike, and the first has nothing else.
    for half in stage.squares.reshape(2, n_bins):
        assert_allclose(half - half[0], expected, atol=1e-15)
    assert expected[3] > expected[2] > expected[1] == 0


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)),
        min_size=1,
        max_size=30,
    )
)
def test_sums_over_cells_agree_with_numpy(rows):
    cells, values, _ = (np.array(x) for x in zip(*rows))
    parts = np.array([row[1:] for row in rows])
    # One mean is off a value by no more than rounding.
    means = np.array([values[0] * (1 + 1e-15), 0.0, 1.0, -2.5])
    deviations = np.empty_like(parts)
    for part, deviation in zip(parts.T, deviations.T):
        centre(cells, part, means, deviation)
    expected = parts - means[cells][:, None]
    expected[np.abs(expected) <= 1e-13 * np.abs(parts)] = 0.0
    assert_array_equal(deviations, expected)
    if cells[0] == 0:
        assert deviations[0, 0] == 0
    total, squares, fourth, largest = cell_sizes(cells, deviations[:, 0], 4)
    for c in range(4):
        size = np.abs(expected[cells == c, 0])
        assert_allclose(total[c], size.sum())
        assert_allclose(squares[c], (size**2).sum())
        assert_allclose(fourth[c], (size**4).sum())
        assert largest[c] == size.max(initial=0.0)


def test_slope_is_kept_as_far_as_it_is_certain():
    random = np.random.default_rng(0)
    x = random.normal(size=(500, 1))
    x -= x.mean()
    y = np.column_stack(
        [3 * x[:, 0], 3 * x[:, 0] + random.normal(size=500), 0 * x[:, 0]]
    )
    y -= y.mean(axis=0)
    slope = shrunken_slope(x, y)
    assert_allclose(slope[0], 3)
    least_squares = np.linalg.lstsq(x, y[:, 1])[0][0]
    # The jackknife's variance is about that of least squares: 1 / n.
    assert_allclose(slope[1], least_squares - 2 / 500 / 3, rtol=1e-3)
    assert slope[2] == 0
    # A slope that hangs on one row is none.
    y = np.zeros((500, 1))
    y[np.argmax(x)] = 10.0
    assert shrunken_slope(x, y - y.mean()) == 0
    assert shrunken_slope(np.zeros((5, 1)), np.ones((5, 2))).tolist() == [0, 0]


@settings(max_examples=100, deadline=None)
@given(
    cells=st.lists(
        st.tuples(st.integers(0, 30), st.floats(0.01, 10)), min_size=1, max_size=8
    ),
    share=st.floats(0, 1),
    offset=st.floats(0, 0.999),
)
def test_rows_are_divided_as_wanted(cells, share, offset):
    room, weight = (np.array(x) for x in zip(*cells))
    total = int(share * room.sum())
    wanted = fill(total, weight.astype(float), room.astype(float))
    assert_allclose(wanted.sum(), total, atol=1e-9)
    assert (wanted <= room + 1e-9).all()
    # What has room left is in proportion to its weight.
    free = (wanted < room - 1e-9) & (room > 0)
    if free.any():
        ratio = (wanted / weight)[free]
        assert_allclose(ratio, ratio[0], atol=1e-6)
        assert ((wanted / weight)[room > 0] <= ratio[0] + 1e-6).all()
    counts = round_to(total, wanted, room, offset)
    assert counts.sum() == total
    assert (counts >= 0).all()
    assert (counts <= room).all()
    assert (np.abs(counts - wanted) < 2).all()


@settings(max_examples=100, deadline=None)
@given(
    room=st.lists(st.integers(0, 30), min_size=1, max_size=8),
    share=st.floats(0, 1),
    offset=st.floats(0, 0.999),
)
def test_more_than_there_is_to_divide(room, share, offset):
    room = np.array(room)
    total = int(share * room.sum())
    counts = round_to(total, 1.0 * room, room, offset)
    assert counts.sum() == total
    assert (counts >= 0).all()
    assert (np.abs(counts - room * (total / max(room.sum(), 1))) < 2).all()


def make(values, seed=0, strata=None, n_strata=1, n_groups=1, score=None, learned=None):
    n = len(values)
    strata = np.zeros(n, dtype=np.int32) if strata is None else strata
    X = np.arange(n)[:, None]
    integrand = Integrand(None, lambda rows: values[rows[:, 0]], X, None)
    pool = Pool(integrand, np.full(n, 1 / n), 1000)
    strata = Strata(strata, n_strata, n_groups, score)
    return StratifiedRounds(
        pool, StrataSampler(), np.random.PCG64(seed), strata, learned
    )


def test_uniform_rounds_are_the_plain_mean_of_different_rows():
    values = np.random.default_rng(0).exponential(size=500)
    rounds = make(values)
    for _ in range(3):
        rounds.draw(40)
    rounds.learn()
    estimate = rounds.estimate()
    rows = np.flatnonzero(rounds.pool.known)
    assert len(rows) == 120
    assert_allclose(estimate.mean[0], values[rows].mean())
    plain = values[rows].var(ddof=1) * (1 / 120 - 1 / 500)
    assert_allclose(estimate.second[0, 0], plain, rtol=0.1)


@pytest.mark.parametrize("with_score", [False, True])
def test_a_half_does_not_listen_to_itself(with_score):
    """Other values in a half change nothing in how it is sampled."""
    random = np.random.default_rng(0)
    values = random.exponential(size=400)
    strata = np.repeat([0, 1, 2, 3], 100).astype(np.int32)
    score = random.random(400) if with_score else None
    both = []
    for factor in (0.0, 1.0):
        rounds = make(values.copy(), 0, strata, 4, 4, score=score)
        other = np.where(rounds.half == 0, values ** (1 + factor * strata), values)
        rounds.pool.integrand.loss = lambda rows, other=other: other[rows[:, 0]]
        rounds.draw(100)
        rounds.learn()
        both.append((rounds.allocate(60), rounds._stage.slopes))
    first, second = both
    assert_array_equal(first[0][:4], second[0][:4])
    assert_allclose(first[1][0], second[1][0])
    assert (first[0][4:] != second[0][4:]).any()


def test_rare_errors_of_many_bins_are_not_missing_from_the_mean(seed):
    """A bin without an error so far must not be left alone for that."""
    errors = (0, 0, 0, 0, 1, 2, 2, 3, 3, 5, 10, 50)
    strata = np.repeat(np.arange(len(errors)), 100).astype(np.int32)
    values = np.concatenate([np.arange(100) < count for count in errors]) * 1.0
    estimates = []
    for run in range(200):
        rounds = make(values, 1000 * seed + run, strata, len(errors), 1)
        while rounds.n_evaluations < 600:
            rounds.draw(50)
            rounds.learn()
        estimates.append(rounds.estimate().mean[0])
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - values.mean()) < 4 * error


def test_allocation_is_neymans():
    random = np.random.default_rng(0)
    strata = np.repeat([0, 1], [9000, 1000]).astype(np.int32)
    values = random.normal(size=10_000) * np.where(strata == 1, 9, 1)
    rounds = make(values, 0, strata, 2, 2)
    for _ in range(20):
        rounds.draw(100)
        rounds.learn()
    # Sizes times spreads are equal; a tenth comes in proportion to the sizes.
    assert_allclose(rounds.probabilities(), [0.54, 0.46], atol=0.04)
    taken = rounds._taken.reshape(2, 2)
    assert_allclose(taken[:, 0] / taken.sum(axis=1), 0.54, atol=0.06)


def test_new_strata_keep_the_estimate_unbiased(monkeypatch):
    """Stages whose strata follow the other half's values.

    Those of a tree, which follow them more closely than boosted ones, and are quicker.
    """
    monkeypatch.setattr(learned_module, "MUST_LOWER", np.inf)
    monkeypatch.setattr(
        learned_module,
        "HistGradientBoostingRegressor",
        lambda **_: DecisionTreeRegressor(min_samples_leaf=5, random_state=0),
    )
    random = np.random.default_rng(0)
    x = random.random(300)
    values = np.exp(3 * x) * random.exponential(size=300)
    estimates, errors, n_runs = [], [], 240
    for seed in range(n_runs):
        learned = LearnedStrata(x[:, None], one_stratum(300), seed)
        learned.next_at = 60
        rounds = make(values, seed, learned=learned)
        for _ in range(6):
            rounds.draw(20)
            rounds.learn(left=180)
        assert len(rounds._past_stages) >= 1
        estimate = rounds.estimate()
        estimates.append(estimate.mean[0])
        errors.append(estimate.second[0, 0])
    error = np.array(estimates) - values.mean()
    assert abs(error.mean()) < 3.5 * error.std() / np.sqrt(n_runs)
    assert_allclose(np.sqrt(np.mean(errors)), error.std(), rtol=0.3)


def test_sample_has_the_weights_of_its_distribution():
    values = np.random.default_rng(0).exponential(size=200)
    strata = np.repeat([0, 1], [150, 50]).astype(np.int32)
    rounds = make(values, 0, strata, 2, 2)
    rounds.draw(30)
    rounds.learn()
    rounds.restratify(Strata(strata, 2, 2))
    rows, weights = rounds.sample(200_000)
    # The mean of weights on a row is its mass.
    mass = np.bincount(rows, weights, 200) / 200_000
    assert_allclose(mass, 1 / 200, rtol=0.25)
    assert_allclose(mass.sum(), 1, rtol=0.01)


def test_rates_of_a_bounded_loss_without_an_event():
    rounds = make(np.zeros(1000))
    rounds.draw(100)
    rounds.learn()
    assert rounds.estimate().interval(Mean(), 0.95) == (-np.inf, np.inf)
    rounds.target = Mean((0.0, 1.0))
    rounds.learn()
    low, high = rounds.estimate().interval(rounds.target, 0.95)
    assert low == 0
    # "Three over n", two-sided: so many events that none of them is among 100 rows.
    assert_allclose(high, np.log(0.025) / np.log(0.9) / 1000, rtol=1e-6)


def test_a_rate_of_zero_so_far_has_an_upper_limit():
    """No hit among 50: the interval is that of a count of zero."""
    values = np.zeros((1000, 2))
    values[:, 1] = 1.0
    rounds = make(values)
    rounds.pool.integrand.target = rounds.target = Ratio()
    rounds.pool.values = np.zeros((1000, 2))
    rounds.restratify(Strata(np.zeros(1000, dtype=np.int32), 1, 1))
    rounds.draw(50)
    rounds.learn()
    low, high = rounds.estimate().interval(Ratio(), 0.95)
    assert low == 0
    assert_allclose(high, -np.log(0.025) * 19 / 1000, rtol=0.1)


def test_ratio_direction_comes_from_the_other_half():
    cells = np.repeat([0, 1], 20)
    parts = np.zeros((40, 2))
    parts[:20] = [0.5, 1.0]
    parts[20:] = [0.1, 1.0]
    stage = Stage(
        Drawn(cells, parts), np.array([40, 40]), np.zeros((2, 2)),
        np.array([40.0, 40.0]), Ratio(), 1,
    )  # fmt: skip
    assert np.isfinite(stage.squares).all()
    assert_allclose(stage.mean, [[20, 40], [4, 40]])


def test_rows_of_many_strata_are_kept_apart():
    n_strata = 20_000
    strata = np.arange(2 * n_strata, dtype=np.int32) % n_strata
    rounds = make(strata.astype(float), 0, strata, n_strata, n_strata)
    for _ in range(2):
        cells = (rounds.half * np.int32(n_strata) + strata)[rounds._order]
        assert (np.diff(cells) >= 0).all()
        rounds.restratify(Strata(strata, n_strata, n_strata))


def test_every_cell_of_a_new_stage_gets_its_first_rows():
    """Also of a half that has had enough rows for its tolerance."""
    random = np.random.default_rng(0)
    values = random.exponential(size=400)
    rounds = make(values)
    rounds.draw(100)
    rounds.learn()
    strata = np.repeat([0, 1, 2, 3], 100).astype(np.int32)
    rounds.restratify(Strata(strata, 4, 1))
    rounds._active[:] = [True, False]
    assert rounds.least_round() == 24
    assert_array_equal(rounds.allocate(24), np.full(8, 3))
    assert rounds.allocate(30).sum() == 30
    assert_array_equal(rounds.allocate(30)[4:], 3)


def test_no_stage_begins_that_cannot_be_finished(monkeypatch):
    monkeypatch.setattr(learned_module, "MUST_LOWER", np.inf)
    monkeypatch.setattr(learned_module, "FIRST_LEARNED", 400)
    random = np.random.default_rng(0)
    x = random.random(600)
    learned = LearnedStrata(x[:, None], one_stratum(600), 0)
    rounds = make(np.exp(x), 0, learned=learned)
    rounds.draw(400)
    # Twenty strata in two halves, three rows each.
    rounds.learn(119)
    assert rounds.n_strata == 1
    rounds.learn(120)
    assert rounds.n_strata == 20
    assert rounds.least_round() <= 120


def test_other_rows_than_those_that_failed():
    """Values fetched before a failure belong to the rows of that round."""
    state = {"broken": True}

    def loss(rows):
        if state["broken"] and 5 in rows:
            raise RuntimeError("connection lost")
        return 1.0 * rows[:, 0]

    pool = Pool(
        Integrand(None, loss, np.arange(9)[:, None], None), np.full(9, 1 / 9), 3
    )
    with pytest.raises(RuntimeError, match="connection lost"):
        pool.evaluate(np.array([0, 1, 2, 3, 5]))
    state["broken"] = False
    assert_array_equal(pool.evaluate(np.array([0, 4, 8]))[:, 0], [0, 4, 8])
    assert_array_equal(pool.evaluate(np.array([1, 2]))[:, 0], [1, 2])
    assert pool.n_unknown == 4


def test_columns_grow():
    columns = Columns()
    assert columns.get("a", np.intp).dtype == np.intp
    columns.append("a", np.array([1, 2]))
    columns.append("a", np.array([3]))
    assert columns.get("a").tolist() == [1, 2, 3]


@pytest.mark.parametrize("run", range(6))
def test_rows_that_run_out_do_not_keep_a_run_from_ending(run, seed):
    """Once most rows that vary are known, few are left to draw an error from."""
    rng = np.random.default_rng([seed, run])
    y = (rng.random(20_000) < 0.03).astype(int)
    f = rng.random(20_000) < np.where(y == 1, 0.5, 0.003)
    result = MinVarianceImportanceEstimator(
        loss=lambda rows, y: f[rows[:, 0]],
        rtol=0.1,
        max_evaluations=15_000,
        random_state=run,
    ).fit(np.arange(20_000)[:, None], y)
    assert result.status_ == "tolerance"
    assert result.n_evaluations_ < 8000
