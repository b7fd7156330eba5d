"""Pictures: that they show what the estimators know, and say what they cannot show."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDPolicyGradient,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd.datasets import GridWorld
from sklearn_awsgd.display import ConvergenceDisplay, IntervalDisplay, SamplingDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def rare():
    return make_classification(3000, weights=[0.95], random_state=0)


@pytest.fixture(scope="module")
def fitted(rare):
    return AWSGDClassifier(random_state=0, count_draws=True).fit(*rare)


def pixels(display):
    """Draw and return the picture."""
    display.figure_.canvas.draw()
    return np.asarray(display.figure_.canvas.buffer_rgba())


def test_matplotlib_is_imported_when_something_is_drawn():
    code = (
        "import sys, sklearn_awsgd.display; "
        "assert not any(name.startswith('matplotlib') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_error_says_what_to_install(fitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        SamplingDisplay.from_estimator(fitted)


# Sampling.


def test_probabilities_of_classes(fitted):
    display = SamplingDisplay.from_estimator(fitted, linewidth=3)
    assert display.by == "group"
    assert display.names.tolist() == [0, 1]
    assert_allclose(display.probabilities.sum(axis=1), 1)
    history = fitted.sampling_history_
    last = history["draws"] == history["draws"].max()
    rare_class = last & (history["group"] == 1)
    assert_allclose(
        display.probabilities[-1, 1], history["probability"][rare_class].sum()
    )
    assert_array_equal(display.lines_[1].get_ydata(), display.probabilities[:, 1])
    assert display.lines_[0].get_linewidth() == 3
    assert display.ax_.get_legend() is not None
    assert pixels(display).min() < 100


def test_probabilities_of_levels(fitted):
    display = SamplingDisplay.from_estimator(fitted, by="level", cmap="magma")
    assert (np.diff(display.names.astype(int)) > 0).all()
    assert_array_equal(display.mesh_.get_array(), display.probabilities.T)
    assert display.mesh_.get_cmap().name == "magma"
    # What was left out hardly matters.
    assert (display.probabilities.sum(axis=1) > 0.98).all()
    pixels(display)


def test_rows_by_their_draws(fitted, rare):
    display = SamplingDisplay.from_estimator(fitted, by="row")
    counts = fitted.draw_counts_[0]
    shown = display.lines_[0].get_ydata()
    assert_allclose(shown, np.sort(counts)[::-1] / counts.mean())
    assert_array_equal(display.draws, [counts.sum()])
    with pytest.raises(ValueError, match="count_draws=True"):
        SamplingDisplay.from_estimator(AWSGDClassifier().fit(*rare), by="row")
    X = np.random.default_rng(0).normal(size=(20, 10))
    with pytest.raises(ValueError, match="AWSGDMatrixFactorization has not counted"):
        SamplingDisplay.from_estimator(
            AWSGDMatrixFactorization(2, random_state=0).fit(X), by="row"
        )


def test_columns_of_a_factorization():
    X = np.random.default_rng(0).normal(size=(40, 30))
    X[:, 3] *= 20
    model = AWSGDMatrixFactorization(
        3, sampler="row_column", tol=None, max_iter=5, random_state=0
    ).fit(X)
    display = SamplingDisplay.from_estimator(model)
    assert display.by == "column"
    assert display.probabilities[-1].argmax() == 3
    history = model.sampling_history_
    assert_allclose(display.probabilities[-1], history["probability"][-30:])
    assert display.ax_.get_ylabel() == "column"
    assert pixels(display).std() > 10
    with pytest.raises(ValueError, match=r"by='group'.*use by='column'"):
        SamplingDisplay.from_estimator(model, by="group")


def test_strata_and_regressors(rare):
    X, _ = rare
    strata = np.array(["left", "right"])[(X[:, 0] > 0).astype(int)]
    model = AWSGDRegressor(sampler="strata", random_state=0)
    display = SamplingDisplay.from_estimator(model.fit(X, X[:, 1] ** 2, strata=strata))
    assert display.names.tolist() == ["left", "right"]
    display = SamplingDisplay.from_estimator(
        AWSGDRegressor(random_state=0).fit(X, X[:, 1] ** 2)
    )
    assert display.by == "level"


def test_problems_are_chosen_by_number():
    X, y = load_iris(return_X_y=True)
    clf = AWSGDClassifier(random_state=0).fit(X, y)
    display = SamplingDisplay.from_estimator(clf, problem=2)
    assert display.names.tolist() == [2, "rest"]
    for cls in (SamplingDisplay, ConvergenceDisplay):
        with pytest.raises(ValueError, match=r"problem=3 is not there.*0 to 2"):
            cls.from_estimator(clf, problem=3)


def test_streams_have_memories_to_show(rare):
    X, y = rare
    clf = AWSGDClassifier(random_state=0)
    for chunk in np.array_split(np.arange(len(y)), 5):
        clf.partial_fit(X[chunk], y[chunk], classes=[0, 1])
    assert SamplingDisplay.from_estimator(clf).by == "group"
    ConvergenceDisplay.from_estimator(clf)
    with pytest.raises(ValueError, match="a stream has no passes"):
        ConvergenceDisplay.from_estimator(clf, x="passes")


# Convergence.


@pytest.mark.parametrize("x", ["draws", "passes", "seconds"])
def test_objectives_over(fitted, rare, x):
    display = ConvergenceDisplay.from_estimator(fitted, x=x, color="red")
    (line,) = display.lines_
    assert_array_equal(line.get_ydata(), fitted.history_["objective"])
    if x == "passes":
        assert_allclose(line.get_xdata() * len(rare[1]), fitted.history_["draws"])
    else:
        assert_array_equal(line.get_xdata(), fitted.history_[x])
    assert line.get_color() == "red"
    assert line.get_label() == "AWSGDClassifier"
    exact = np.flatnonzero(fitted.history_["phase"] == "exact")
    assert line.get_markevery() == exact.tolist()
    assert display.ax_.get_xlabel() == x


def test_several_fits_against_a_reference(fitted, rare):
    X, y = rare
    best = AWSGDClassifier(tol=1e-10, random_state=0).fit(X, y)
    reference = best.history_["objective"][-1]
    other = AWSGDClassifier(learning_rate="adagrad", random_state=0).fit(X, y)
    figure, ax = plt.subplots()
    display = ConvergenceDisplay.from_estimators(
        {"auto": fitted, "adagrad": other}, reference=reference, ax=ax
    )
    assert display.figure_ is figure
    assert [line.get_label() for line in display.lines_] == ["auto", "adagrad"]
    last = display.lines_[0].get_ydata()[-1]
    assert_allclose(last, fitted.history_["objective"][-1] / reference - 1)
    # What is below a reference is left out, and the line goes on.
    objective = fitted.history_["objective"]
    middle = np.median(objective)
    line = ConvergenceDisplay.from_estimator(fitted, reference=middle, ax=ax).lines_[0]
    assert_allclose(line.get_ydata(), objective[objective > middle] / middle - 1)
    assert 0 < last < 1e-2
    assert ax.get_yscale() == "log"
    assert ax.get_ylabel() == "relative suboptimality"
    again = display.plot()
    assert again is display
    assert again.ax_ is not ax


def test_gaps(fitted, rare):
    display = ConvergenceDisplay.from_estimator(fitted, y="gap")
    gaps = fitted.history_["duality_gap"]
    assert_array_equal(display.lines_[0].get_ydata(), gaps[np.isfinite(gaps)])
    assert_allclose(display.lines_[0].get_ydata()[-1], fitted.duality_gap_[0])
    with pytest.raises(ValueError, match="no certified gap; use y='objective'"):
        ConvergenceDisplay.from_estimator(
            AWSGDClassifier(learning_rate="adagrad", random_state=0).fit(*rare), y="gap"
        )
    with pytest.raises(ValueError, match="y='gap' needs none"):
        ConvergenceDisplay.from_estimator(fitted, y="gap", reference=0.1)


def test_exact_solutions_of_a_factorization_count_as_passes():
    X = np.random.default_rng(0).normal(size=(40, 30))
    model = AWSGDMatrixFactorization(3, random_state=0, sampler="uniform").fit(X)
    display = ConvergenceDisplay.from_estimator(model, x="passes")
    assert_allclose(display.lines_[0].get_xdata()[-1], model.n_iter_)


# Intervals.


def test_intervals_and_the_truth(rare):
    X, y = rare
    model = LogisticRegression().fit(X[:500], y[:500])
    result = MinVarianceImportanceEstimator(
        model, "log_loss", rtol=0.3, max_evaluations=2000, random_state=0
    ).fit(X, y)
    truth = log_loss(y, model.predict_proba(X))
    display = IntervalDisplay.from_estimator(result, truth=truth, color="green")
    assert (display.low[-1], display.high[-1]) == result.confidence_interval_
    assert_allclose(display.line_.get_ydata()[-1], result.estimate_)
    assert_array_equal(display.line_.get_xdata(), result.history_["evaluations"])
    assert_array_equal(display.truth_.get_ydata(), [truth, truth])
    low, high = result.history_["low"], result.history_["high"]
    assert (low <= result.history_["estimate"]).all()
    assert (high >= result.history_["estimate"]).all()
    box = display.band_.get_datalim(display.ax_.transData)
    assert_allclose([box.y0, box.y1], [low.min(), high.max()])
    assert IntervalDisplay.from_estimator(result, x="seconds").truth_ is None


# What cannot be shown.


def test_unfitted_and_other_estimators(fitted):
    for cls in (SamplingDisplay, ConvergenceDisplay):
        with pytest.raises(NotFittedError):
            cls.from_estimator(AWSGDClassifier())
        policy = AWSGDPolicyGradient(n_episodes=50, random_state=0).fit(GridWorld())
        with pytest.raises(TypeError, match="AWSGDPolicyGradient has no"):
            cls.from_estimator(policy)
    with pytest.raises(NotFittedError):
        IntervalDisplay.from_estimator(MinVarianceImportanceEstimator())
    with pytest.raises(TypeError, match="AWSGDClassifier estimates no mean"):
        IntervalDisplay.from_estimator(fitted)


@pytest.mark.parametrize(
    ("cls", "params"),
    [
        (SamplingDisplay, {"by": "class"}),
        (ConvergenceDisplay, {"x": "epochs"}),
        (ConvergenceDisplay, {"y": "loss"}),
        (IntervalDisplay, {"x": "passes"}),
    ],
)
def test_unknown_options(fitted, cls, params):
    ((name, value),) = params.items()
    with pytest.raises(ValueError, match=f"{name}={value!r} is not known"):
        cls.from_estimator(fitted, **params)


def test_pipelines_and_searches_show_their_last_step(rare):
    X, y = rare
    pipeline = make_pipeline(StandardScaler(), AWSGDClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"awsgdclassifier__alpha": [1e-3]}, cv=2)
    search.fit(X, y)
    inner = search.best_estimator_[-1]
    shown = SamplingDisplay.from_estimator(search)
    direct = SamplingDisplay.from_estimator(inner)
    assert_array_equal(shown.probabilities, direct.probabilities)
    display = ConvergenceDisplay.from_estimator(search.best_estimator_)
    (name,) = display.curves
    assert name == "AWSGDClassifier"
    assert_array_equal(display.curves[name][1], inner.history_["objective"])


def test_only_curves_with_exact_passes_have_dots(rare):
    plain = AWSGDClassifier(learning_rate="adagrad", max_iter=3, random_state=0)
    fits = {"plain": plain.set_params(tol=None), "auto": AWSGDClassifier()}
    for model in fits.values():
        model.fit(*rare)
    lines = ConvergenceDisplay.from_estimators(fits).lines_
    assert [line.get_marker() for line in lines] == ["None", "o"]
