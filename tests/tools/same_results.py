"""Whether a change changes results: about a hundred fits, compared bit by bit.

    python tests/tools/same_results.py save before.pkl      in the tree before
    python tests/tools/same_results.py compare before.pkl   in the tree after

Every loss, penalty, sampler and layout, weights, softmax, several labels, streams,
early stopping, sources, factorizations, importance estimates by every family and a
policy. What is compared: fitted attributes that are numbers, and histories without
seconds.
"""

import pickle
import sys
import warnings

import numpy as np
from fuzz import MARGIN_LOSSES, RESIDUAL_LOSSES
from scipy import sparse, stats
from sklearn.datasets import make_classification, make_regression

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDPolicyGradient,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd.datasets import GridWorld
from sklearn_awsgd.samplers import NormSampler, RowColumnSampler, StrataSampler
from sklearn_awsgd.sources import IndexedRows

PENALTIES = {
    "l2": {},
    "l1": {"penalty": "l1"},
    "elasticnet": {"penalty": "elasticnet", "l1_ratio": 0.3},
    "none": {"penalty": None},
}


def classes(n_classes=2, n_rows=1500, n_features=12):
    """Return rows of unequal classes."""
    weights = np.r_[[0.8], np.full(n_classes - 1, 0.2 / (n_classes - 1))]
    return make_classification(
        n_rows,
        n_features,
        n_informative=8,
        n_classes=n_classes,
        weights=list(weights),
        random_state=0,
    )


def numbers():
    """Return rows with real targets."""
    return make_regression(1500, 12, noise=20.0, random_state=0)


def wide():
    """Return sparse rows with more features than a full curvature has."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((900, 4000), density=0.01, format="csr", rng=rng)
    y = (X @ rng.normal(size=4000) + 0.1 * rng.normal(size=900) > 0).astype(int)
    return X, y


def sparse_of(X):
    """Return rows with zeros, as CSR."""
    return sparse.csr_array(np.where(np.abs(X) < 0.7, 0.0, X))


def linear_cases():
    """Yield names and fitted linear models."""
    X, y = classes()
    rng = np.random.default_rng(1)
    weights, strata = rng.gamma(1.0, size=len(y)), rng.integers(0, 4, size=len(y))
    R, t = numbers()
    families = (
        (AWSGDClassifier, MARGIN_LOSSES, X, y),
        (AWSGDRegressor, RESIDUAL_LOSSES, R, t),
    )
    for Estimator, losses, rows, targets in families:
        for loss in losses:
            for penalty, settings in PENALTIES.items():
                model = Estimator(loss=loss, random_state=0, **settings)
                yield f"{loss} {penalty}", model.fit(rows, targets)
        model = Estimator(random_state=0)
        yield f"{Estimator.__name__} CSR", model.fit(sparse_of(rows), targets)
        model = Estimator(random_state=0).fit(rows, targets, sample_weight=weights)
        yield f"{Estimator.__name__} weights", model
        model = Estimator(random_state=0).fit(rows.astype(np.float32), targets)
        yield f"{Estimator.__name__} float32", model
        model = Estimator(random_state=0).fit(IndexedRows(rows), targets)
        yield f"{Estimator.__name__} source", model
    for sampler in ("uniform", "label", "strata", "level", NormSampler()):
        for name, rows in (("dense", X), ("CSR", sparse_of(X))):
            model = AWSGDClassifier(
                sampler=sampler, learning_rate="adagrad", max_iter=5, random_state=0
            )
            given = {"strata": strata} if sampler == "strata" else {}
            yield f"{sampler} {name}", model.fit(rows, y, **given)
    for rate in ("optimal", "constant", "invscaling"):
        model = AWSGDClassifier(learning_rate=rate, max_iter=5, random_state=0)
        yield f"{rate} averaged", model.set_params(average=True).fit(X, y)
    model = AWSGDClassifier(early_stopping=True, random_state=0)
    yield "early stopping", model.fit(X, y)
    model = AWSGDClassifier(class_weight="balanced", count_draws=True, random_state=0)
    yield "balanced, counted", model.fit(X, y)
    model = AWSGDClassifier(sampler=StrataSampler(by="label", time_aware=True))
    model.set_params(random_state=0, learning_rate="adagrad", max_iter=3)
    yield "costs", model.fit(X, y, access_cost=1.0 + strata)
    for name, settings in PENALTIES.items():
        model = AWSGDClassifier(random_state=0, **settings)
        yield f"wide {name}", model.fit(*wide())
    yield from several_cases()


def several_cases():
    """Yield names and models of several classes, of labels and of streams."""
    X, y = classes(4)
    for loss in ("log_loss", "multinomial"):
        for name, settings in PENALTIES.items():
            model = AWSGDClassifier(loss=loss, random_state=0, **settings)
            yield f"4 classes {loss} {name}", model.fit(X, y)
        model = AWSGDClassifier(loss=loss, learning_rate="adagrad", random_state=0)
        yield f"4 classes {loss} adagrad", model.fit(sparse_of(X), y)
    labels = np.column_stack([y == 0, y > 1]).astype(int)
    yield "labels", AWSGDClassifier(random_state=0).fit(X, labels)
    R, t = numbers()
    families = (
        (AWSGDClassifier, ("log_loss", "hinge", "multinomial"), X, y),
        (AWSGDRegressor, ("squared_error", "huber"), R, t),
    )
    for Estimator, losses, rows, targets in families:
        more = {"classes": np.unique(y)} if Estimator is AWSGDClassifier else {}
        for loss in losses:
            for begun in (False, True):
                model = Estimator(loss=loss, random_state=0)
                if begun:
                    model.fit(rows[:500], targets[:500])
                for start in range(500, 1500, 100):
                    part = slice(start, start + 100)
                    model.partial_fit(rows[part], targets[part], **more)
                yield f"stream {loss}{' after fit' * begun}", model
    model = AWSGDClassifier(learning_rate="adagrad", random_state=0)
    for start in range(0, 1500, 500):
        part = slice(start, start + 500)
        model.partial_fit(X[part], y[part], classes=np.unique(y))
    yield "stream adagrad", model
    X, y = wide()
    for begun in (False, True):
        model = AWSGDClassifier(random_state=0)
        if begun:
            model.fit(X[:300], y[:300])
        for start in range(300, 900, 100):
            part = slice(start, start + 100)
            model.partial_fit(X[part], y[part], classes=[0, 1])
        yield f"stream wide{' after fit' * begun}", model


def factorization_cases():
    """Yield names and fitted factorizations."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 50))
    holes = np.where(rng.random(Z.shape) < 0.4, np.nan, Z)
    matrices = {
        "squared_error": Z,
        "huber": Z,
        "log_loss": (Z > 0).astype(float),
        "poisson": rng.poisson(np.exp(Z / 3)).astype(float),
    }

    def model(**settings):
        return AWSGDMatrixFactorization(3, random_state=0, max_iter=20, **settings)

    for loss, matrix in matrices.items():
        for bias in (False, True):
            fitted = model(loss=loss, fit_bias=bias).fit(matrix)
            yield f"{loss} full{' bias' * bias}", fitted
        missing = np.where(np.isnan(holes), np.nan, matrix)
        yield f"{loss} missing", model(loss=loss, fit_bias=True).fit(missing)
    stored = sparse.csr_array(np.where(rng.random(Z.shape) < 0.8, 0.0, Z))
    for unstored in ("zero", "missing"):
        yield f"unstored {unstored}", model(unstored=unstored).fit(stored)
    for sampler in ("uniform", "row_column", RowColumnSampler(mixing=0.3)):
        yield f"{sampler}", model(sampler=sampler, tol=None).fit(holes)
    weights = rng.gamma(1.0, size=Z.shape)
    yield "entry weights", model().fit(holes, entry_weight=weights)
    yield "source", model().fit(IndexedRows(Z))
    stream = model()
    for start in range(0, 80, 20):
        stream.partial_fit(holes[start : start + 20])
    yield "stream", stream
    for step in ("gradient", "proximal"):
        fitted = model(step=step, learning_rate="inverse").fit(Z)
        yield f"{step} inverse", fitted


def importance_cases():
    """Yield names and importance estimates."""
    X, y = classes(3, 6000)
    model = AWSGDClassifier(random_state=0).fit(X[:500], y[:500])
    cheap = AWSGDClassifier(random_state=1).fit(X[:60], y[:60])

    def estimate(*arguments, **settings):
        settings = {"max_evaluations": 900, "rtol": None, "random_state": 0} | settings
        return MinVarianceImportanceEstimator(*arguments, **settings)

    for sampler in ("auto", "uniform", "label", "norm"):
        for control in (True, False):
            settings = {"sampler": sampler, "control_variate": control}
            fitted = estimate(model, "log_loss", **settings).fit(X, y)
            yield f"{sampler} {'control' if control else 'plain'}", fitted
    strata = np.arange(len(y)) % 5
    yield "strata", estimate(model, "zero_one").fit(X, y, strata=strata)
    for surrogate in (cheap, "learned"):
        settings = {"surrogate": surrogate, "max_evaluations": 2500}
        fitted = estimate(model, "log_loss", **settings).fit(X, y)
        yield f"surrogate {type(surrogate).__name__}", fitted
    yield "anytime", estimate(model, "brier", anytime=True).fit(X, y == 0)
    yield "difference", estimate((model, cheap), "log_loss").fit(X, y)
    weights = np.random.default_rng(0).gamma(1.0, size=len(y))
    yield "weights", estimate(model, "accuracy").fit(X, y, sample_weight=weights)
    stream = estimate(model, "log_loss").fit(X[:3000], y[:3000])
    yield "stream", stream.partial_fit(X[3000:], y[3000:])
    matrix = np.add.outer(np.arange(60.0), np.arange(40.0))
    fitted = estimate(None, lambda ij, x: x**2, sampler="row_column").fit(matrix)
    yield "entries", fitted
    normal = stats.multivariate_normal(np.zeros(2))
    fitted = estimate(None, lambda x: (x[:, 0] > 2) * 1.0, sampler="gaussian")
    yield "locations", fitted.fit(normal)


def policy_cases():
    """Yield the name and the fit of a policy."""
    model = AWSGDPolicyGradient(n_episodes=300, random_state=0)
    yield "grid", model.fit(GridWorld(5, random_state=0))


FAMILIES = {
    "linear": linear_cases,
    "factorization": factorization_cases,
    "importance": importance_cases,
    "policy": policy_cases,
}


def numbers_of(model):
    """Return what was fitted: arrays by names."""
    found = {}
    for name in dir(model):
        if not name.endswith("_") or name.startswith("_") or name == "sampler_":
            continue
        try:
            value = getattr(model, name)
        except AttributeError:
            continue
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for key, part in parts:
            if "seconds" in key:
                continue
            parts = part if isinstance(part, tuple) else (part,)
            for k, array in enumerate(parts):
                array = array.toarray() if sparse.issparse(array) else array
                array = np.asarray(array)
                if array.dtype.kind in "biuf":
                    found[f"{name} {key} {k}"] = array
    return found


def all_results():
    """Return what every case has found, by names."""
    results = {}
    for family, cases in FAMILIES.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, model in cases():
                results[f"{family}: {name}"] = numbers_of(model)
    return results


def same(a, b):
    """Return whether arrays are equal, bit by bit."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def compare(before, after):
    """Print what differs; return the number of cases that do."""
    n_different = 0
    for case in sorted(before | after):
        old, new = before.get(case, {}), after.get(case, {})
        names = sorted(old | new)
        different = [
            n for n in names if n not in old or n not in new or not same(old[n], new[n])
        ]
        if different or not names:
            n_different += 1
            what = ", ".join(name.strip() for name in different[:4])
            print(f"{case}: {len(different)} of {len(names)} differ: {what}")
    print(f"{len(before | after) - n_different} of {len(before | after)} cases agree")
    return n_different


def main(action, path):
    """Save what is found here, or compare it with what was saved."""
    results = all_results()
    if action == "save":
        with open(path, "wb") as file:
            pickle.dump(results, file)
        print(f"{len(results)} cases")
        return 0
    with open(path, "rb") as file:
        return compare(pickle.load(file), results)


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 1))
