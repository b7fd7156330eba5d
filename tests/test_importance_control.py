"""The control variate: guesses and their exact integral."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from sklearn_awsgd._importance.control import Columns, Control, shrunken_slope


def make(seed, n=40, n_values=2, n_strata=3, with_score=True, **parameters):
    random = np.random.default_rng(seed)
    mass = random.random(n)
    mass[:3] = 0
    mass /= mass.sum()
    control = Control(mass, n_values, **parameters)
    strata = random.integers(n_strata, size=n).astype(np.int32)
    score = random.normal(size=n) if with_score else None
    control.set_strata(strata, n_strata, score)
    values = random.normal(size=(n, n_values)) + strata[:, None]
    if with_score:
        values += score[:, None]
    return control, values, random


def guess_all(control):
    rows = np.arange(len(control.mass))
    return control.guess(rows, control.model(rows))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    with_score=st.booleans(),
    guess_known=st.booleans(),
)
def test_total_is_the_integral_of_the_guess(seed, with_score, guess_known):
    control, values, random = make(
        seed, with_score=with_score, guess_known=guess_known, guess_unknown=guess_known
    )
    for rows in np.split(random.permutation(len(values))[:30], 3):
        control.add(np.sort(rows), values[np.sort(rows)])
        assert_allclose(control.total(), control.mass @ guess_all(control), atol=1e-12)
        control.learn(np.array([1.0, 0.5]))
        assert_allclose(control.total(), control.mass @ guess_all(control), atol=1e-12)
    strata = random.integers(4, size=len(values)).astype(np.int32)
    control.set_strata(strata, 4, control.score)
    control.learn(np.array([1.0, 0.5]))
    assert_allclose(control.total(), control.mass @ guess_all(control), atol=1e-12)


def test_known_rows_are_guessed_exactly_and_all_known_is_exact():
    control, values, _ = make(0)
    rows = np.arange(3, len(values))
    control.add(rows[::2], values[rows[::2]])
    assert_allclose(guess_all(control)[rows[::2]], values[rows[::2]])
    assert control.n_unknown == len(rows[1::2])
    control.add(rows[1::2], values[rows[1::2]])
    assert control.n_unknown == 0
    assert_allclose(control.exact(), control.mass @ values)
    squares, _ = control.learn(np.ones(2))
    assert_allclose(squares, 0)


def test_learned_guess_is_least_squares_inside_strata():
    control, values, _ = make(1, n=400, n_values=1)
    rows = np.arange(3, 300)
    control.add(rows, values[rows])
    control.learn(np.ones(1))
    # Levels free: the slope is that of a regression with a dummy for each stratum.
    design = np.column_stack([np.eye(3)[control.strata[rows]], control.score[rows]])
    coefficients = np.linalg.lstsq(design, values[rows, 0])[0]
    assert_allclose(control.slope, coefficients[3:], rtol=0.05)
    counts = np.bincount(control.strata[rows])
    rest = values[rows, 0] - control.slope * control.score[rows]
    means = np.bincount(control.strata[rows], rest) / counts
    mean = control.stratum_mass @ means
    assert_allclose(control.level[:, 0], (means * counts + mean) / (counts + 1))


def test_steep_slope_in_one_stratum_does_not_disturb_the_others():
    random = np.random.default_rng(0)
    n = 3000
    control = Control(np.full(n, 1 / n), 1)
    strata = (np.arange(n) < 100).astype(np.int32)
    score = random.normal(size=n)
    control.set_strata(strata, 2, score)
    values = np.where(strata == 1, 50 * (score > 0), 0.01 * random.normal(size=n))
    rows = np.arange(2000)
    control.add(rows, values[rows, None])
    squares, _ = control.learn(np.ones(1))
    assert abs(control.slope[0]) < 1
    # The sum of N_s sigma_s is not above that without a slope.
    spread = [values[rows][strata[rows] == s].std() for s in range(2)]
    assert control.stratum_mass @ np.sqrt(squares) < 1.1 * control.stratum_mass @ spread


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


def test_squares_of_strata_are_residual_variances():
    control, values, _ = make(2, n=5000, n_values=1, with_score=False)
    rows = np.arange(3, 4000)
    control.add(rows, values[rows])
    squares, counts = control.learn(np.ones(1))
    assert_allclose(counts, np.bincount(control.strata[rows]))
    expected = [values[rows, 0][control.strata[rows] == s].var() for s in range(3)]
    assert_allclose(squares, expected, rtol=0.05)


def test_a_stratum_without_events_may_hide_one():
    n = 1000
    control = Control(np.full(n, 1 / n), 1)
    strata = (np.arange(n) < 100).astype(np.int32)
    control.set_strata(strata, 2)
    values = np.zeros((n, 1))
    values[:50] = 1.0
    rows = np.concatenate([np.arange(0, 100, 2), np.arange(100, 600)])
    control.add(rows, values[rows])
    squares, _ = control.learn(np.ones(1))
    assert_allclose(control.event_second, 1.0)
    assert_allclose(control.event_third, 1.0)
    # Half an event in 500 rows.
    assert_allclose(squares[0], 0.5 / 500, rtol=0.01)
    assert squares[1] > 0.2


def test_all_zero_values_leave_no_nan():
    control, values, _ = make(3, n_values=1)
    control.add(np.arange(3, 20), 0 * values[3:20])
    squares, _ = control.learn(np.ones(1))
    assert np.isfinite(squares).all()
    assert np.isfinite(control.events).all()


def test_expected_squares_before_anything_is_known():
    control, _, _ = make(4, with_score=False)
    assert_allclose(control.expected_squares() * control.stratum_mass, 1)
    scored, _, _ = make(4)
    assert (scored.expected_squares() > 0).all()


def test_columns_grow_and_are_replaced():
    columns = Columns()
    assert columns.get("a", np.intp).dtype == np.intp
    columns.append("a", np.array([1, 2]))
    columns.append("a", np.array([3]))
    assert columns.get("a").tolist() == [1, 2, 3]
    columns.replace("a", np.array([4]))
    assert columns.get("a").tolist() == [4]


@pytest.mark.parametrize("n_values", [1, 3])
def test_event_moments_agree_with_their_definition(n_values):
    control, values, _ = make(5, n_values=n_values, with_score=False)
    rows = np.arange(3, 30)
    control.add(rows, values[rows])
    direction = np.arange(1.0, n_values + 1)
    control.learn(direction)
    f = values[rows]
    chance = (f @ direction) ** 2 / ((f @ direction) ** 2).sum()
    assert_allclose(control.event_second, np.einsum("t,ti,tj->ij", chance, f, f))
    third = np.einsum("t,ti,tj,tk->ijk", chance, f, f, f)
    assert_allclose(control.event_third, third)
