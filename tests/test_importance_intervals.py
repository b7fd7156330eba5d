"""Combination of rounds and intervals."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, poisson

from sklearn_awsgd._importance.intervals import Estimate, Precision, gamma_quantile
from sklearn_awsgd._importance.targets import (
    Correlation,
    Difference,
    Mean,
    Ratio,
    Root,
)
from sklearn_awsgd._importance.weighted import Combination, WeightedRounds


@settings(max_examples=50, deadline=None)
@given(
    count=st.integers(1, 300),
    weight=st.floats(0.01, 100),
    confidence=st.floats(0.5, 0.999),
)
def test_limits_of_a_count_are_exact(count, weight, confidence):
    """As many events of one weight: the limits are those of a Poisson mean."""
    estimate = Estimate(
        np.array([weight * count]),
        np.array([[weight**2 * count]]),
        np.array([[[weight**3 * count]]]),
        np.array([[weight]]),
        np.zeros(3),
    )
    low, high = estimate.limits(np.ones(1), confidence)
    tail = (1 - confidence) / 2
    assert_allclose(poisson.sf(count - 1, low / weight), tail, rtol=1e-5)
    assert_allclose(poisson.cdf(count, high / weight), tail, rtol=1e-5)


def test_no_event_gives_the_rule_of_three():
    zero = np.zeros(1)
    estimate = Estimate(zero, zero[:, None], zero[:, None, None], np.array([[0.01]]), 0)
    low, high = estimate.limits(np.ones(1), 0.9)
    assert_allclose([low, high], [0, 0.01 * np.log(20)], atol=1e-12)


def test_gamma_quantile_is_normal_without_skewness():
    z = norm.ppf(0.95)
    assert_allclose(gamma_quantile(2.0, 4.0, 0.0, 0.95), 2 + 2 * z)
    assert_allclose(gamma_quantile(2.0, 4.0, 0.01, 0.95), 2 + 2 * z, rtol=1e-3)
    assert gamma_quantile(2.0, 0.0, 0.0, 0.9) == 2.0


def test_gamma_quantile_mirrors():
    upper = gamma_quantile(1.0, 0.5, 0.2, 0.975)
    assert_allclose(gamma_quantile(-1.0, 0.5, -0.2, 0.025), -upper)


def test_skewed_means_are_covered_better_than_by_the_normal_interval():
    random = np.random.default_rng(0)
    n, n_runs = 25, 2000
    hits = np.zeros(2)
    z = norm.ppf(0.975)
    for values in np.exp(random.normal(size=(n_runs, n))):
        combination = Combination(1)
        combination.add(values[:, None], np.ones(1))
        estimate = combination.snapshot()
        low, high = estimate.interval(Mean(), 0.95)
        hits[0] += low <= np.exp(0.5) <= high
        half = z * estimate.standard_error(Mean())
        hits[1] += abs(values.mean() - np.exp(0.5)) <= half
    assert hits[0] / n_runs > hits[1] / n_runs + 0.03
    assert hits[0] / n_runs > 0.9


def test_combination_agrees_with_its_definition():
    random = np.random.default_rng(1)
    combination = Combination(2)
    rounds = [random.exponential(size=(size, 2)) for size in (5, 40, 11)]
    direction = np.array([1.0, -0.5])
    weights, done = [], 0
    for values in rounds:
        combination.add(values, direction)
        done += len(values)
        weights.append(len(values) * np.sqrt(done))
    c = np.array(weights) / np.sum(weights)
    estimate = combination.snapshot()
    assert_allclose(estimate.mean, sum(w * v.mean(0) for w, v in zip(c, rounds)))
    expected = sum(w**2 * np.cov(v.T) / len(v) for w, v in zip(c, rounds))
    assert_allclose(estimate.second, expected)
    third = 0
    for w, v in zip(c, rounds):
        n, d = len(v), v - v.mean(0)
        cubes = np.einsum("ti,tj,tk->ijk", d, d, d)
        third += w**3 * cubes / (n * (n - 1) * (n - 2))
    assert_allclose(estimate.third, third)
    sizes = np.concatenate(
        [np.abs((v - v.mean(0)) @ direction) * w / len(v) for w, v in zip(c, rounds)]
    )
    assert_allclose(estimate.sizes, [sizes.sum(), sizes @ sizes, sizes.max()])
    assert_allclose(estimate.max_weight_share(), sizes.max() / sizes.sum())
    moves = np.concatenate([(v - v.mean(0)) * w / len(v) for w, v in zip(c, rounds)])
    for hidden, sign in zip(estimate.hidden, (1, -1)):
        along = moves @ direction
        assert_allclose(hidden, moves[np.argmax(sign * along)])
    mean_only = Combination(1)
    mean_only.add(rounds[1][:, :1], np.ones(1))
    d = np.abs(rounds[1][:, 0] - rounds[1][:, 0].mean())
    estimate = mean_only.snapshot()
    d = np.append(d / len(d), np.abs(estimate.hidden).max())
    kish = d.sum() ** 2 / (d @ d)
    assert_allclose(estimate.effective_sample_size(Mean()), kish)


def test_hidden_events_widen_and_lower_the_effective_sample_size():
    random = np.random.default_rng(2)
    combination = Combination(1)
    combination.add(random.exponential(size=(400, 1)), np.ones(1))
    wide, plain = combination.snapshot(), combination.snapshot()
    plain.hidden = np.zeros((0, 1))
    low, high = wide.interval(Mean(), 0.95)
    plain_low, plain_high = plain.interval(Mean(), 0.95)
    assert low < plain_low
    assert high > plain_high
    assert wide.effective_sample_size(Mean()) < plain.effective_sample_size(Mean())


def test_no_interval_when_nothing_varied():
    constant = Combination(1)
    constant.add(np.ones((1000, 1)), np.ones(1))
    estimate = constant.snapshot()
    assert estimate.effective_sample_size(Mean()) == 0
    assert estimate.max_weight_share() == 0
    assert estimate.interval(Mean((0.0, 2.0)), 0.95) == (0.0, 2.0)


def test_merge_is_the_weighted_mean_of_independent_parts():
    random = np.random.default_rng(3)
    parts = []
    for size in (50, 80):
        combination = Combination(1)
        combination.add(random.exponential(size=(size, 1)), np.ones(1))
        parts.append(combination.snapshot())
    a, b = parts
    both = a.merge(b, 0.25)
    assert_allclose(both.mean, 0.75 * a.mean + 0.25 * b.mean)
    assert_allclose(both.second, 0.75**2 * a.second + 0.25**2 * b.second)
    assert_allclose(both.third, 0.75**3 * a.third + 0.25**3 * b.third)
    assert both.sizes[2] == max(0.75 * a.sizes[2], 0.25 * b.sizes[2])
    assert not both.exact
    exact = Estimate.of_exact(np.array([2.0]))
    assert exact.merge(exact, 0.5).exact
    assert not exact.merge(a, 0.5).exact
    assert exact.interval(Mean(), 0.95) == (2.0, 2.0)


def halves_of(first, second):
    """Return rounds whose halves have had these values, without a pool."""
    pool = SimpleNamespace(integrand=SimpleNamespace(target=Mean()))
    rounds = WeightedRounds(pool, sampler=None, opened=None)
    for half, values in zip(rounds.halves, (first, second)):
        half.add(values[:, None], np.ones(1))
    return rounds


@pytest.mark.parametrize("factor", [1.0, 1e-3, 1e3])
def test_a_half_is_ended_by_the_other_one(factor):
    random = np.random.default_rng(0)
    narrow = 10 + random.normal(size=500)
    wide = 10 + 40 * random.normal(size=700)
    # Whatever its own values are, the first half goes on or ends by the second.
    own = 10 + factor * (narrow - 10)
    for other, goes_on in ((wide, True), (narrow, False)):
        rounds = halves_of(own, other)
        reached = rounds.has_reached(
            Precision(0.05, None, 0.95), lambda estimate: estimate
        )
        assert reached == (not goes_on and factor <= 1)
        # After the end all can go on again.
        assert rounds._active[0] == (goes_on or reached)
        assert rounds._active[1] == (reached or factor > 1)
    rounds = halves_of(narrow, wide)
    assert not rounds.has_reached(
        Precision(0.05, None, 0.95), lambda estimate: estimate
    )
    assert_array_equal(rounds._active, [True, False])
    assert [(h is rounds.halves[0], s) for h, s in rounds._deal(9)] == [
        (True, slice(0, 9))
    ]
    # A later run may want something else.
    rounds.go_on()
    assert len(list(rounds._deal(9))) == 2


def test_halves_count_alike_whatever_their_numbers_of_draws():
    random = np.random.default_rng(1)
    parts = [random.exponential(size=size) for size in (30, 80)]
    estimate = halves_of(*parts).estimate()
    assert_allclose(estimate.mean[0], np.mean([part.mean() for part in parts]))
    second = sum(part.var(ddof=1) / len(part) for part in parts) / 4
    assert_allclose(estimate.second[0, 0], second)


@given(n_draws=st.integers(3, 50), behind=st.integers(0, 1))
def test_rounds_are_dealt_to_the_halves(n_draws, behind):
    counts = [10, 10]
    counts[behind] -= 1
    rounds = halves_of(*(np.arange(count) * 1.0 for count in counts))
    dealt = list(rounds._deal(n_draws))
    rows = np.concatenate([np.arange(n_draws)[part] for _, part in dealt])
    assert_array_equal(np.sort(rows), np.arange(n_draws))
    assert len(dealt) == (2 if n_draws >= 6 else 1)
    assert dealt[0][0] is rounds.halves[behind]
    sizes = [part.stop - part.start for _, part in dealt]
    assert min(sizes) >= 3
    assert 0 <= sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize(
    "target", [Mean(), Ratio(), Difference(Ratio()), Root(), Correlation()]
)
def test_direction_is_the_gradient(target):
    mean = np.array([0.15, 0.5, 0.2, 0.6])[: target.n_values]
    step = 1e-6
    numeric = [
        (target.value(mean + step * e) - target.value(mean - step * e)) / (2 * step)
        for e in np.eye(target.n_values)
    ]
    assert_allclose(target.direction(mean), numeric, rtol=1e-6)


def of_moments(mean, second):
    n = len(mean)
    return Estimate(
        np.array(mean), second, np.zeros((n, n, n)), np.zeros((0, n)), np.ones(3)
    )


def test_ratio_interval_ends_where_the_difference_is_just_credible():
    mean = np.array([0.3, 0.5])
    second = np.array([[4e-4, 1e-4], [1e-4, 9e-4]])
    low, high = of_moments(mean, second).interval(Ratio(), 0.95)
    z = norm.ppf(0.975)
    for ratio in (low, high):
        v = np.array([1, -ratio])
        assert_allclose(abs(mean @ v), z * np.sqrt(v @ second @ v), rtol=1e-6)
    assert low < 0.6 < high


def test_ratio_interval_stays_in_its_range():
    target = Ratio()
    assert of_moments([0.3, 0.5], np.eye(2)).interval(target, 0.95) == (0.0, 1.0)
    # Noise may lift the estimate of a rate above 1.
    mean, second = np.array([0.52, 0.5]), 1e-6 * np.eye(2)
    assert target.value(mean) == 1.0
    assert of_moments(mean, second).interval(target, 0.95) == (1.0, 1.0)
    assert target.value(np.zeros(2)) == 0.0
    assert np.isfinite(target.direction(np.zeros(2))).all()


def test_ratio_interval_covers():
    random = np.random.default_rng(4)
    n, n_runs, hits, rate = 200, 500, 0, 0.7
    for _ in range(n_runs):
        second_rate = random.random(n) < 0.4
        first = second_rate & (random.random(n) < rate)
        combination = Combination(2)
        values = np.column_stack([first, second_rate]) * 1.0
        combination.add(values, np.array([1.0, -rate]))
        low, high = combination.snapshot().interval(Ratio(), 0.95)
        hits += low <= rate <= high
    assert 0.93 <= hits / n_runs


def test_bounds_of_a_difference():
    assert Difference(Mean((0.0, 1.0))).bounds == (-1.0, 1.0)
    assert Difference(Mean((0.0, np.inf))).bounds == (-np.inf, np.inf)
