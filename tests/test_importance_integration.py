"""Combination of rounds and intervals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import norm

from sklearn_awsgd._importance.integration import (
    Combination,
    Difference,
    Estimate,
    Mean,
    Ratio,
    hall_interval,
)


@settings(max_examples=50, deadline=None)
@given(
    skewness=st.floats(-2, 2).filter(lambda s: abs(s) > 1e-3),
    confidence=st.floats(0.5, 0.999),
)
def test_hall_interval_inverts_its_transformation(skewness, confidence):
    se = 0.3
    low, high = hall_interval(1.0, se**2, skewness * se**3, confidence)
    z = norm.ppf(0.5 + confidence / 2)
    for end, wanted in ((low, z), (high, -z)):
        t = (1.0 - end) / se
        g = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6
        assert_allclose(g, wanted, rtol=1e-6, atol=1e-6)


def test_hall_interval_is_the_normal_one_without_skewness():
    z = norm.ppf(0.95)
    assert_allclose(hall_interval(2.0, 4.0, 0.0, 0.9), (2 - 2 * z, 2 + 2 * z))
    assert hall_interval(2.0, 0.0, 0.0, 0.9) == (2.0, 2.0)


def test_hall_interval_mirrors():
    low, high = hall_interval(1.0, 0.5, 0.2, 0.95)
    assert_allclose(hall_interval(-1.0, 0.5, -0.2, 0.95), (-high, -low))


def test_hall_interval_covers_skewed_means_better_than_the_normal_one():
    random = np.random.default_rng(0)
    n, n_runs = 25, 2000
    hits = np.zeros(2)
    for values in np.exp(random.normal(size=(n_runs, n))):
        centred = values - values.mean()
        variance = centred @ centred / (n * (n - 1))
        third = (centred**3).sum() / (n * (n - 1) * (n - 2))
        for k, t in enumerate((third, 0.0)):
            low, high = hall_interval(values.mean(), variance, t, 0.95)
            hits[k] += low <= np.exp(0.5) <= high
    assert hits[0] / n_runs > hits[1] / n_runs + 0.02


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
    kish = sizes.sum() ** 2 / (sizes @ sizes)
    assert_allclose(estimate.sizes, [sizes.sum(), sizes @ sizes, sizes.max()])
    assert_allclose(estimate.max_weight_share(), sizes.max() / sizes.sum())
    mean_only = Combination(1)
    mean_only.add(rounds[1][:, :1], np.ones(1))
    d = np.abs(rounds[1][:, 0] - rounds[1][:, 0].mean())
    assert_allclose(
        mean_only.snapshot().effective_sample_size(Mean()), d.sum() ** 2 / (d @ d)
    )
    assert kish > 1


def test_allowance_widens_and_lowers_the_effective_sample_size():
    random = np.random.default_rng(2)
    combination = Combination(1)
    combination.add(random.exponential(size=(400, 1)), np.ones(1))
    plain = combination.snapshot()
    wide = combination.snapshot(
        leverage=np.array([1.0, 10.0]),
        events=np.array([0.5, 0.5]),
        second=np.array([[9.0]]),
        third=np.array([[[27.0]]]),
    )
    target = Mean()
    assert_allclose(wide.wide_second[0, 0] - wide.second[0, 0], 0.5 * 9 * 101 / 400**2)
    assert_allclose(wide.mean, plain.mean)
    low, high = wide.interval(target, 0.95)
    plain_low, plain_high = plain.interval(target, 0.95)
    assert low <= plain_low
    assert high > plain_high
    assert wide.effective_sample_size(target) < plain.effective_sample_size(target)


def test_no_interval_from_few_effective_draws():
    values = np.zeros((1000, 1))
    values[0] = 1.0
    combination = Combination(1)
    combination.add(values, np.ones(1))
    estimate = combination.snapshot()
    assert estimate.effective_sample_size(Mean()) < 25
    assert estimate.interval(Mean((0.0, 1.0)), 0.95) == (0.0, 1.0)
    constant = Combination(1)
    constant.add(np.ones((1000, 1)), np.ones(1))
    assert constant.snapshot().effective_sample_size(Mean()) == 0
    assert constant.snapshot().max_weight_share() == 0


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


@pytest.mark.parametrize("target", [Mean(), Ratio(), Difference(Ratio())])
def test_direction_is_the_gradient(target):
    mean = np.array([0.3, 0.5, 0.2, 0.6])[: target.n_values]
    step = 1e-6
    numeric = [
        (target.value(mean + step * e) - target.value(mean - step * e)) / (2 * step)
        for e in np.eye(target.n_values)
    ]
    assert_allclose(target.direction(mean), numeric, rtol=1e-6)


def test_ratio_interval_ends_where_the_difference_is_just_credible():
    mean = np.array([0.3, 0.5])
    second = np.array([[4e-4, 1e-4], [1e-4, 9e-4]])
    third = np.zeros((2, 2, 2))
    low, high = Ratio().interval(mean, second, third, 0.95)
    z = norm.ppf(0.975)
    for ratio in (low, high):
        v = np.array([1, -ratio])
        assert_allclose(abs(mean @ v), z * np.sqrt(v @ second @ v), rtol=1e-6)
    assert low < 0.6 < high


def test_ratio_interval_stays_in_its_range():
    third = np.zeros((2, 2, 2))
    wide = np.eye(2)
    assert Ratio().interval(np.array([0.3, 0.5]), wide, third, 0.95) == (0.0, 1.0)
    # Noise may lift the estimate of a rate above 1.
    target = Ratio()
    mean, second = np.array([0.52, 0.5]), 1e-6 * np.eye(2)
    assert target.value(mean) == 1.0
    assert target.interval(mean, second, third, 0.95) == (1.0, 1.0)
    assert target.value(np.zeros(2)) == 0.0
    assert np.isfinite(target.direction(np.zeros(2))).all()


def test_ratio_interval_covers():
    random = np.random.default_rng(4)
    n, n_runs, hits = 200, 500, 0
    for _ in range(n_runs):
        second_rate = random.random(n) < 0.4
        first = second_rate & (random.random(n) < 0.7)
        combination = Combination(2)
        combination.add(np.column_stack([first, second_rate]) * 1.0, np.ones(2))
        e = combination.snapshot()
        low, high = Ratio().interval(e.mean, e.second, e.third, 0.95)
        hits += low <= 0.7 <= high
    assert 0.92 <= hits / n_runs <= 0.98


def test_bounds_of_a_difference():
    assert Difference(Mean((0.0, 1.0))).bounds == (-1.0, 1.0)
    assert Difference(Mean((0.0, np.inf))).bounds == (-np.inf, np.inf)
