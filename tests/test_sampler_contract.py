"""The contract of samplers: what all of them keep, and what estimators ask of them."""

import inspect
import pickle
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn_awsgd._kernels._loop import POINT, SUMS

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
    samplers,
)
from sklearn_awsgd._solver.records import Budget, Log
from sklearn_awsgd._solver.runs import run_batches, solve
from sklearn_awsgd._spaces import EntrySpace, PoolSpace, ProblemView, RowSpace
from sklearn_awsgd._validation import Boolean
from sklearn_awsgd.samplers import (
    BaseSampler,
    GaussianSampler,
    LevelSampler,
    NormSampler,
    OpenedSampler,
    RowColumnSampler,
    StrataSampler,
    UniformSampler,
)
from sklearn_awsgd.samplers.base import resolve_sampler

GUIDE = Path(__file__).parent.parent / "doc" / "developer.rst"
N = 40


def run_code_of_the_guide(name, wanted):
    """Run a named block of code of the developer's guide; return what it defines."""
    text = GUIDE.read_text()
    block = re.search(rf"    :name: {name}\n\n((?:    .*\n|\n)+)", text)[1]
    lines = [line[4:] for line in block.splitlines()]
    # As if it were written here, so that it can be pickled.
    exec("\n".join(lines), globals())
    return globals()[wanted]


RunningNormSampler = run_code_of_the_guide("running-norm-sampler", "RunningNormSampler")


class EntryDraws(OpenedSampler):
    """Observed entries, those of the first column twice as often."""

    patience = 16

    def __init__(self, space, places, generator):
        self.space, self.places = space, places
        self.random = np.random.Generator(generator)

    def densities(self):
        q = np.zeros(self.space.shape)
        q[tuple(self.places)] = np.where(self.places[1] == 0, 2.0, 1.0)
        return q / q[tuple(self.places)].mean()

    def draw_points(self, n_points):
        points = self.space.points(n_points)
        q = self.densities()[tuple(self.places)]
        chosen = self.random.choice(len(q), size=n_points, p=q / q.sum())
        points["i"], points["j"] = self.places[:, chosen]
        points["q"] = q[chosen]
        self.space.locate(points)
        return points


class EntrySampler(BaseSampler):
    """A sampler of entries written in Python."""

    _space = "entries"

    def open(self, space, view, problem, generator):
        return EntryDraws(space, np.stack(space.places()), generator)


ROW_SAMPLERS = {
    "uniform": UniformSampler(),
    "label": StrataSampler(),
    "given": StrataSampler(by="given"),
    "adagrad": StrataSampler(update="adagrad", mixing=0),
    "level": LevelSampler(),
    "norm": NormSampler(),
    "guide": RunningNormSampler(),
}


def open_rows(sampler, *, mass=None, space=None):
    random = np.random.default_rng(1)
    norms2 = random.exponential(size=N)
    space = RowSpace(mass, norms2) if space is None else space
    sampler = clone(sampler)
    groups = (np.arange(N) % 3 == 0).astype(np.int32)
    sampler.prepare(space, 1, 2, np.arange(N) % 5)
    view = ProblemView(groups, random.exponential(size=N))
    return sampler, sampler.open(space, view, 0, np.random.PCG64(0))


def uneven_mass():
    mass = np.random.default_rng(0).random(N)
    mass[[0, 31]] = 0
    return mass / mass.sum()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_shuffled_pass_is_unbiased(weighted):
    mass = uneven_mass() if weighted else None
    sampler, opened = open_rows(UniformSampler(), mass=mass)
    mass = np.full(N, 1 / N) if mass is None else mass
    f = np.random.default_rng(2).normal(size=N)
    for _ in range(2):
        points = opened.draw_points(np.count_nonzero(mass))
        assert_array_equal(np.sort(points["i"]), np.flatnonzero(mass))
        assert_allclose(np.mean(f[points["i"]] / points["q"]), mass @ f)
    sampler.keep(0, opened)
    assert_array_equal(sampler.probabilities_, [[1.0]])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", sorted(ROW_SAMPLERS.keys() - {"uniform"}))
def test_densities_are_exact_at_every_state(name, weighted):
    """Sum to one, weight draws without bias, and are those of the draws."""
    mass = uneven_mass() if weighted else None
    sampler, opened = open_rows(ROW_SAMPLERS[name], mass=mass)
    mass = np.full(N, 1 / N) if mass is None else mass
    f = np.random.default_rng(2).normal(size=N) ** 3
    possible = mass > 0
    for _ in range(5):
        q = opened.densities()
        assert_allclose(mass @ q, 1)
        assert (q[possible] > 0).all()
        weighted_f = f[possible] / q[possible]
        assert_allclose((mass * q)[possible] @ weighted_f, mass @ f, atol=1e-12)
        points = opened.draw_points(opened.patience)
        assert_allclose(points["q"], q[points["i"]])
        assert possible[points["i"]].all()
        points["norm2"] = (f[points["i"]] / points["q"]) ** 2
        opened.observe_points(points)
    sampler.keep(0, opened)
    assert_allclose(sampler.probabilities_.sum(axis=1), 1)
    strata = np.arange(sampler.probabilities_.shape[1])
    for column in sampler.describe(strata, lambda groups: groups).values():
        assert len(column) == len(strata)


@pytest.mark.parametrize("name", ["label", "norm", "guide"])
def test_draws_have_the_densities_they_say(name):
    _, opened = open_rows(ROW_SAMPLERS[name], mass=uneven_mass())
    expected = uneven_mass() * opened.densities() * 40_000
    drawn = np.bincount(opened.draw_points(40_000)["i"], minlength=N)
    possible = expected > 0
    assert drawn[~possible].sum() == 0
    total = drawn.sum() / expected.sum()
    pvalue = stats.chisquare(drawn[possible], expected[possible] * total).pvalue
    assert pvalue > 1e-4


@pytest.mark.parametrize("name", ["label", "level", "norm"])
def test_norms_in_single_precision_draw_the_same_rows(name, rng):
    """Probabilities of many rows are not added up in single precision."""
    n_rows = 200_000
    norms2 = rng.exponential(size=n_rows).astype(np.float32)
    groups = (np.arange(n_rows) % 3 == 0).astype(np.int32)
    found = []
    for dtype in (np.float32, np.float64):
        space = RowSpace(None, norms2.astype(dtype))
        sampler = clone(ROW_SAMPLERS[name])
        sampler.prepare(space, 1, 2, None)
        view = ProblemView(groups, norms2.astype(np.float64))
        opened = sampler.open(space, view, 0, np.random.PCG64(0))
        found.append(opened.draw_points(10_000))
    assert_array_equal(found[0]["i"], found[1]["i"])
    assert_array_equal(found[0]["q"], found[1]["q"])


@pytest.mark.parametrize(
    "sampler", [*ROW_SAMPLERS.values(), RowColumnSampler(), GaussianSampler()], ids=repr
)
def test_samplers_are_cloned_checked_and_documented(sampler):
    copy = clone(sampler)
    assert copy.get_params() == sampler.get_params()
    assert vars(copy) == copy.get_params()
    copy.check()
    names = set(inspect.signature(type(sampler)).parameters)
    assert set(sampler._parameters) <= names
    if type(sampler).__module__.startswith("sklearn_awsgd"):
        assert set(sampler._parameters) == names
        assert type(sampler).__name__ in samplers.__all__
    for name, kind in sampler._parameters.items():
        bad = np.ones(2) if isinstance(kind, Boolean) else object()
        with pytest.raises((TypeError, ValueError), match=f"^sampler.{name}"):
            sampler.__class__(**{name: bad}).check()


@pytest.mark.parametrize(
    ("estimator", "given", "message"),
    [
        (
            AWSGDClassifier(),
            RowColumnSampler(),
            "RowColumnSampler draws entries of a matrix, and here rows are drawn; "
            "samplers of these are LevelSampler, NormSampler, StrataSampler, Uniform",
        ),
        (AWSGDRegressor(), GaussianSampler(), "draws locations of a distribution, and"),
        (
            AWSGDMatrixFactorization(),
            LevelSampler(),
            "draws rows, and here entries of a matrix are drawn; samplers of these are "
            "RowColumnSampler, UniformSampler",
        ),
        (
            MinVarianceImportanceEstimator(loss=len),
            LevelSampler(),
            "LevelSampler follows gradients that change .* NormSampler, StrataSampler",
        ),
        (AWSGDClassifier(), StrataSampler, r"give an instance: StrataSampler\(\)"),
        (AWSGDMatrixFactorization(), RowColumnSampler, "give an instance: RowColumn"),
        (MinVarianceImportanceEstimator(loss=len), NormSampler, "give an instance"),
        (AWSGDClassifier(), object(), "is neither one of .*sklearn_awsgd.samplers"),
        (AWSGDMatrixFactorization(), 3, "sampler=3 is neither one of"),
        (MinVarianceImportanceEstimator(loss=len), 3, "sampler=3 is neither one of"),
    ],
)
def test_a_sampler_that_does_not_fit_is_refused(estimator, given, message):
    X, y = make_classification(random_state=0)
    with pytest.raises(TypeError, match=message):
        estimator.set_params(sampler=given).fit(X, y)


def test_a_distribution_is_drawn_by_no_sampler_of_rows():
    mean = MinVarianceImportanceEstimator(loss=lambda x: x, sampler=StrataSampler())
    with pytest.raises(TypeError, match="samplers of these are GaussianSampler"):
        mean.fit(stats.norm())


def test_samplers_of_users_are_copied():
    given = StrataSampler(mixing=0.3)
    resolved = resolve_sampler(given, {}, "rows")
    assert resolved is not given
    assert resolved.mixing == 0.3
    named = {"a": given}
    # What a name stands for is made for each call, and no user has it.
    assert resolve_sampler("a", named, "rows") is given
    with pytest.raises(ValueError, match="sampler='b' is not known; choose one of 'a'"):
        resolve_sampler("b", named, "rows")
    with pytest.raises(ValueError, match=r"sampler.mixing=2 is out of range"):
        resolve_sampler(StrataSampler(mixing=2), named, "rows")


def test_the_guides_sampler_trains_to_the_same_optimum():
    X, y = make_classification(600, weights=[0.9], random_state=0)
    settings = {"alpha": 0.03, "random_state": 0}
    best = AWSGDClassifier(tol=1e-9, **settings).fit(X, y)
    given = RunningNormSampler(mixing=0.3)
    steps = {"learning_rate": "adagrad", "average": True, "max_iter": 50, "tol": None}
    clf = AWSGDClassifier(sampler=given, **steps, **settings).fit(X, y)
    # In ten seeds the farthest coefficient was .010 to .025 off.
    assert_allclose(clf.coef_, best.coef_, atol=0.03)
    assert clf.variance_gain_ > 1.3
    assert clf.sampler_ is not given
    assert not hasattr(given, "probabilities_")
    assert_array_equal(clf.sampler_.probabilities_, [[1.0]])
    assert set(clf.sampling_history_["group"]) == {"all"}
    # As the first phase of the way to the optimum, for three problems, on sparse rows.
    X, y = make_classification(
        300, n_informative=5, n_classes=3, random_state=0, shuffle=False
    )
    X = sparse.csr_array(X)
    best = AWSGDClassifier(tol=1e-9, random_state=0).fit(X, y)
    clf = AWSGDClassifier(sampler=given, tol=1e-9, random_state=0).fit(X, y)
    assert_allclose(clf.coef_, best.coef_, atol=1e-3)


def test_the_guides_sampler_follows_a_stream():
    X, y = make_classification(600, random_state=0)
    clf = AWSGDClassifier(sampler=RunningNormSampler(), random_state=0)
    for part in np.array_split(np.arange(600), 3):
        clf.partial_fit(X[part], y[part], classes=[0, 1])
    assert clf.score(X, y) > 0.8
    twin = pickle.loads(pickle.dumps(clf)).partial_fit(X, y)
    assert_array_equal(twin.coef_, clf.partial_fit(X, y).coef_)


def test_threads_do_not_change_what_python_draws():
    X, y = make_classification(
        200, n_informative=5, n_classes=3, random_state=0, shuffle=False
    )
    settings = {"sampler": RunningNormSampler(), "learning_rate": "adagrad"}
    fits = [
        AWSGDClassifier(**settings, n_jobs=n_jobs, random_state=0).fit(X, y)
        for n_jobs in (1, 2)
    ]
    assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_a_diverging_step_is_told_also_by_the_batch_door():
    X, y = make_regression(100, 5, random_state=0)
    reg = AWSGDRegressor(
        sampler=RunningNormSampler(), learning_rate="constant", eta0=1e9
    )
    with pytest.raises(ValueError, match="Floating-point overflow"):
        reg.fit(X, y)


@pytest.mark.parametrize(
    "given",
    [
        StrataSampler(update="sgd"),
        StrataSampler(),
        NormSampler(),
        UniformSampler(),
        RowColumnSampler(),
        RowColumnSampler(update="sgd"),
    ],
    ids=repr,
)
def test_the_sampler_of_a_mean_keeps_what_it_has_learned(given):
    random = np.random.default_rng(0)
    X = random.lognormal(size=(60, 50))
    y = (X[:, 0] > 1).astype(int) if given.draws_from("rows") else None
    loss = (lambda rows, y: rows[:, 0] ** 2) if y is not None else first_of_all
    mean = MinVarianceImportanceEstimator(
        loss=loss, sampler=given, max_evaluations=40, rtol=None, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="may be far too short"):
        mean.fit(X, y)
    before = vars(clone(given))
    assert vars(given) == before
    assert mean.sampler_ is not given
    learned = {n for n in vars(mean.sampler_) if n.endswith("probabilities_")}
    assert learned
    if mean.loss is not first_of_all:
        return
    # A copy has its own, and goes on alike.
    twin = pickle.loads(pickle.dumps(mean))
    for result in (mean, twin):
        result.set_params(max_evaluations=100).partial_fit()
    for name in learned:
        assert_array_equal(getattr(twin.sampler_, name), getattr(mean.sampler_, name))
    assert_array_equal(
        twin.sampler_.row_probabilities_, mean.sampling_probabilities_[0]
    )


def first_of_all(entries, values):
    """Return the values of entries."""
    return values


def test_the_guides_sampler_trains_a_regressor():
    X, y = make_regression(400, 5, noise=10, random_state=0)
    best = AWSGDRegressor(tol=1e-9, random_state=0).fit(X, y)
    reg = AWSGDRegressor(
        sampler=RunningNormSampler(), count_draws=True, tol=1e-9, random_state=0
    ).fit(X, y)
    assert_allclose(reg.coef_, best.coef_, rtol=1e-4)
    assert reg.draw_counts_.sum() > 0


@pytest.mark.parametrize("weighted", [False, True])
def test_the_guides_sampler_estimates_a_mean(weighted):
    random = np.random.default_rng(0)
    values = random.lognormal(0, 2, size=3000)
    weight = random.random(3000) if weighted else None
    X = np.arange(3000)[:, None]
    means = [
        MinVarianceImportanceEstimator(
            loss=lambda rows: values[rows[:, 0]],
            sampler=RunningNormSampler(forgetting=1.0),
            max_evaluations=300,
            rtol=None,
            random_state=seed,
        ).fit(X, sample_weight=weight)
        for seed in range(30)
    ]
    truth = np.average(values, weights=weight)
    error = np.array([mean.estimate_ for mean in means]) - truth
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(30)
    rows, weights = means[0].sample(1000)
    assert_allclose(weights, 1 / means[0]._integrator.rounds.opened.densities()[rows])
    # It outlives a call.
    opened = means[0]._integrator.rounds.opened
    twin = pickle.loads(pickle.dumps(opened))
    assert_array_equal(twin.draw_points(9), opened.draw_points(9))


@pytest.mark.parametrize("name", ["dense", "missing", "zeros"])
def test_entries_drawn_in_python(name):
    random = np.random.default_rng(0)
    X = random.normal(size=(30, 3)) @ random.normal(size=(3, 20))
    settings = {"n_components": 3, "random_state": 0, "tol": None, "max_iter": 60}
    if name == "missing":
        X[random.random(X.shape) < 0.2] = np.nan
    if name == "zeros":
        X = sparse.csr_array(np.where(random.random(X.shape) < 0.3, X, 0))
        settings["n_components"] = 10
    model = AWSGDMatrixFactorization(sampler=EntrySampler(), **settings).fit(X)
    plain = AWSGDMatrixFactorization(sampler="uniform", **settings).fit(X)
    assert model.reconstruction_err_ < 2 * plain.reconstruction_err_ + 1e-3
    assert_allclose(model.row_probabilities_.sum(), 1)
    assert model.column_probabilities_[0] > model.column_probabilities_[1:].max()


def test_places_of_entries_are_found():
    X = sparse.random_array((9, 7), density=0.4, rng=np.random.default_rng(0)).tocsr()
    X.sort_indices()
    space = EntrySpace(X.shape, "zeros", X.indptr, X.indices)
    points = space.points(63)
    points["i"], points["j"] = np.divmod(np.arange(63), 7)
    space.locate(points)
    dense = X.toarray().ravel()
    stored = points["entry"] >= 0
    assert_array_equal(stored, dense != 0)
    assert_array_equal(X.data[points["entry"][stored]], dense[stored])
    space = EntrySpace((9, 7))
    space.locate(points)
    assert_array_equal(points["entry"], np.arange(63))


def test_the_safe_part_of_a_pool_is_p():
    mass = uneven_mass()
    space = PoolSpace(mass, N, partial(np.full, N, 4.0))
    assert_allclose(space.safe().densities(), 1)
    assert_allclose(space.safe().probabilities(), mass)
    assert_array_equal(space.norms2, np.full(N, 4.0))
    twin = pickle.loads(pickle.dumps(space))
    assert_allclose(twin.safe().probabilities(), mass)
    assert space.stationary
    assert not RowSpace(mass, np.ones(N)).stationary


class Squares:
    """A problem in Python: f = (w - t)^2 / 2 of rows with targets t."""

    def __init__(self, targets):
        self.targets, self.w, self.rate = targets, 0.0, 0.05

    def penalty(self):
        return 0.0

    def step_points(self, points, weights):
        for point, weight in zip(points, weights, strict=True):
            gradient = self.w - self.targets[point["i"]]
            point["loss"] = gradient**2 / 2
            point["norm2"] = (gradient * weight) ** 2
            self.w -= self.rate * weight * gradient


def test_the_batch_door_counts_as_the_compiled_loop_does():
    targets = np.random.default_rng(0).normal(3, 1, size=N)
    _, opened = open_rows(RunningNormSampler())
    problem, sums = Squares(targets), np.zeros(len(SUMS))
    counts = np.zeros(N, dtype=np.uint32)
    drawn = []
    draw = opened.draw_points
    opened.draw_points = lambda n: drawn.append(draw(n)) or drawn[-1]
    batch = np.zeros(7, dtype=POINT)
    assert run_batches(problem, opened, 500, batch, sums, counts) == 500
    assert [len(points) for points in drawn] == [7] * 71 + [3]
    points = np.concatenate(drawn)
    assert_array_equal(counts, np.bincount(points["i"], minlength=N))
    q, norm2 = points["q"], points["norm2"]
    expected = [points["loss"] / q, norm2, norm2 * q, 1 / q, 1 / q**2, points["cost"]]
    assert_allclose(sums, [part.sum() for part in expected])
    assert abs(problem.w - targets.mean()) < 1


def test_the_batch_door_stops_at_an_overflow():
    _, opened = open_rows(NormSampler())
    problem, sums = Squares(np.ones(N)), np.zeros(len(SUMS))
    problem.w = 1e200
    batch = np.zeros(10, dtype=POINT)
    with np.errstate(over="ignore"):
        assert run_batches(problem, opened, 100, batch, sums) == 0


def test_points_outside_the_support_count_nothing():
    class Outside(OpenedSampler):
        def densities(self):
            return np.full(N, np.inf)

        def draw_points(self, n_points):
            points = np.zeros(n_points, dtype=POINT)
            points["q"] = np.where(np.arange(n_points) % 2, np.inf, 0.5)
            return points

    problem, sums = Squares(np.ones(N)), np.zeros(len(SUMS))
    assert run_batches(problem, Outside(), 10, np.zeros(10, dtype=POINT), sums) == 10
    assert np.isfinite(sums).all()
    assert sums[3] == 10


def test_samplers_and_spaces_know_no_estimator():
    package = Path(samplers.__file__).parent.parent
    files = [package / "_spaces.py", *(package / "samplers").glob("*.py")]
    assert len(files) > 8
    for file in files:
        text = file.read_text()
        assert not re.search(r"sklearn_awsgd\._(linear|factorization|importance)", text)


def test_the_problem_of_the_guide_goes_to_the_mean(rng):
    """A problem written in Python, driven by a compiled sampler."""
    MeanProblem = run_code_of_the_guide("mean-problem", "MeanProblem")
    strata = np.arange(200) % 2
    y = np.where(strata == 1, 50.0, 1.0) + rng.standard_normal(200)
    space = RowSpace(None, np.ones(200))
    sampler = StrataSampler(by="given")
    sampler.prepare(space, 1, 1, strata)
    opened = sampler.open(space, None, 0, np.random.PCG64(0))
    problem, log = MeanProblem(y, eta0=1.0), Log()
    outcome = solve(problem, opened, pass_length=200, budget=Budget(50), log=log)
    assert outcome.n_draws == 10_000
    assert abs(problem.w - y.mean()) < 2.0
    # The objective of the draws is that of all rows, at w of the time.
    last = log.records[-1].objective
    assert abs(last / np.mean((y - problem.w) ** 2 / 2) - 1) < 0.2
