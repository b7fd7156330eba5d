"""The short form of the differential fuzzing; `make soak` has the long one."""

from collections import Counter

import numpy as np
import pytest
from fuzz import (
    KNOWN,
    TALL,
    Case,
    Finding,
    cases,
    check,
    make_data,
    random_case,
    simpler,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from sklearn_awsgd import AWSGDClassifier


def fuzz(seeds, **options):
    """Check cases; return how often each verdict came."""
    return Counter(check(random_case(seed, **options), KNOWN) for seed in seeds)


def test_random_problems():
    verdicts = fuzz(range(150), max_rows=40)
    assert verdicts["kept"] > 75
    assert verdicts["refused"] == 0


def test_random_wide_problems():
    verdicts = fuzz(range(20), max_rows=30, wide=True)
    assert verdicts["kept"] > 5
    assert verdicts["refused"] == 0


def test_random_tall_problems():
    verdicts = fuzz(range(20), **TALL)
    assert verdicts["kept"] > 12
    assert verdicts["refused"] == 0


# Cases that the long form found, of promises that are kept since.
FOUND = [
    # Of constant columns and the intercept, sweeps undid what each other did; their
    # model promised next to nothing.
    Case(
        seed=909259,
        n_rows=22148,
        n_columns=40,
        share=0.1,
        density=0.5,
        columns="constant",
        layout="csc",
        weights="whole",
        noise=0.1,
        penalty="elasticnet",
        l1_ratio=0.5,
        alpha=1e-7,
        sampler="strata",
        tol=1e-8,
        max_iter=200,
    ),
    # The same of offsets, in softmax regression.
    Case(
        seed=902276,
        n_rows=2028,
        n_columns=8,
        n_classes=3,
        share=0.1,
        density=0.1,
        columns="offset",
        dtype="float32",
        layout="F",
        weights="gamma",
        noise=10.0,
        loss="multinomial",
        penalty="elasticnet",
        l1_ratio=1.0,
        alpha=1e-9,
        sampler="label",
        max_iter=20,
    ),
    # A plateau, with a diagonal for the curvature and nothing that holds.
    Case(
        seed=554271,
        n_rows=851,
        n_columns=400,
        n_classes=3,
        density=0.01,
        columns="tiny",
        dtype="float32",
        layout="unsorted",
        weights="zeros",
        loss="squared_hinge",
        penalty=None,
        fit_intercept=False,
        sampler="strata",
        tol=0.01,
    ),
    # Next to nothing is left of the objective, and the bound was rounded to zero.
    Case(
        n_rows=6,
        n_columns=500,
        n_classes=0,
        noise=0.0,
        loss="squared_error",
        alpha=1e-12,
        tol=0.01,
    ),
    # A weak l1 penalty on doubled columns: minutes, as all coefficients left zero.
    Case(
        seed=991507,
        n_rows=40,
        n_columns=3001,
        density=0.5,
        columns="doubled",
        layout="csr",
        weights="gamma",
        noise=0.0,
        loss="squared_error",
        penalty="l1",
        alpha=1e-9,
        fit_intercept=False,
    ),
    # Out of passes, along lines of the losses: there was no warning.
    Case(
        seed=354,
        n_rows=6,
        n_columns=20,
        share=0.1,
        columns="spread",
        layout="F",
        weights="whole",
        loss="modified_huber",
        penalty="l1",
        alpha=1e-9,
        tol=0.01,
    ),
    # A descent that creeps was taken for one that stands still.
    Case(
        density=0.1,
        columns="offset",
        weights="gamma",
        loss="hinge",
        penalty="elasticnet",
        sampler="label",
        tol=0.01,
    ),
    Case(
        seed=1176,
        n_rows=92,
        n_columns=40,
        n_classes=3,
        share=0.1,
        density=0.5,
        columns="large",
        layout="strided",
        weights="whole",
        loss="multinomial",
        penalty="elasticnet",
        alpha=10.0,
        sampler="label",
        tol=1e-5,
    ),
    # Sweeps whose gap was rounded to zero: an error of the logarithm.
    Case(
        seed=723612,
        n_rows=11,
        n_columns=20,
        share=0.3,
        columns="constant",
        dtype="float32",
        layout="coo",
        weights="whole",
        noise=0.0,
        loss="hinge",
        alpha=1e-3,
    ),
    # Kinks, an l1 penalty and offset features: models were not solved, descents crept.
    Case(
        seed=511348,
        n_rows=8,
        n_columns=3,
        n_classes=0,
        columns="offset",
        layout="csr",
        weights="whole",
        loss="epsilon_insensitive",
        penalty="elasticnet",
        l1_ratio=0.5,
        alpha=1e-12,
        sampler="strata",
    ),
    # The curvature was sampled where most rows had some: the estimate was nothing.
    Case(
        seed=1000,
        n_rows=78,
        n_columns=60,
        share=0.5,
        density=0.5,
        columns="offset",
        layout="F",
        weights="whole",
        noise=10.0,
        loss="squared_hinge",
        penalty="elasticnet",
        l1_ratio=0.0,
        alpha=1e-7,
        sampler="level",
        max_iter=200,
    ),
    # One of many steps along lines of the losses gained a little less than they did.
    Case(
        seed=95,
        n_rows=95,
        n_columns=60,
        n_classes=0,
        share=0.1,
        density=0.5,
        columns="offset",
        layout="F",
        weights="zeros",
        noise=0.1,
        loss="huber",
        penalty="elasticnet",
        l1_ratio=1.0,
        alpha=1e-7,
        epsilon=0.1,
        fit_intercept=False,
        sampler="strata",
        tol=0.01,
        max_iter=1000,
    ),
    # Rows without a nonzero: what a Newton step costs was divided by nothing.
    Case(
        seed=92590,
        n_rows=6,
        n_columns=2,
        share=0.3,
        density=0.1,
        dtype="float32",
        layout="coo",
        weights="whole",
        noise=0.0,
        loss="epsilon_insensitive",
        alpha=1.0,
        epsilon=0.01,
        fit_intercept=False,
        sampler="label",
        tol=1e-8,
        max_iter=1000,
    ),
    # Shares of classes that are off by rounding: 0/0 in their dual point.
    Case(
        seed=6,
        n_rows=6,
        n_columns=3000,
        n_classes=3,
        share=0.5,
        density=0.1,
        layout="F",
        weights="zeros",
        noise=0.1,
        loss="multinomial",
        penalty="elasticnet",
        l1_ratio=0.0,
        alpha=0.1,
        tol=0.01,
    ),
    # Next to no curvature: each step gained twice what the model promised.
    Case(
        seed=26,
        n_rows=26,
        n_columns=4000,
        n_classes=3,
        share=0.1,
        density=0.1,
        layout="F",
        weights="gamma",
        loss="multinomial",
        penalty="l1",
        alpha=1e-12,
        max_iter=500,
    ),
    # Out of passes between the pieces of a loss, where Newton's decrement was small.
    Case(
        seed=119,
        n_rows=119,
        n_columns=8,
        share=0.3,
        density=0.1,
        layout="unsorted",
        noise=0.0,
        loss="modified_huber",
        alpha=1e-9,
        fit_intercept=False,
        max_iter=20,
    ),
    # The same with an l1 penalty, whose model was believed after six passes.
    Case(
        seed=2974,
        n_rows=77,
        n_columns=60,
        share=0.3,
        columns="doubled",
        layout="F",
        weights="zeros",
        noise=10.0,
        loss="squared_epsilon_insensitive",
        penalty="l1",
        alpha=1e-7,
        sampler="label",
        tol=1e-8,
    ),
    # Newton's method went round in circles, and then believed an estimate.
    Case(
        seed=32,
        n_rows=32,
        n_columns=12,
        n_classes=3,
        share=0.3,
        columns="large",
        dtype="float32",
        layout="strided",
        weights="spread",
        noise=1.0,
        loss="squared_hinge",
        alpha=1e-4,
        epsilon=0.01,
        tol=1e-2,
    ),
    # What is left by a damped model was 1.9 tol.
    Case(
        seed=53,
        n_rows=53,
        n_columns=40,
        n_classes=3,
        share=0.3,
        density=0.1,
        columns="constant",
        dtype="float32",
        layout="csr64",
        weights="zeros",
        noise=10.0,
        loss="multinomial",
        penalty="elasticnet",
        alpha=1e-5,
        epsilon=0.01,
        fit_intercept=False,
        sampler="strata",
        tol=1e-5,
        max_iter=200,
    ),
    # Where nothing bounds them, steps were so long that signs were lost.
    Case(
        seed=83,
        n_rows=83,
        n_columns=60,
        n_classes=3,
        share=0.1,
        density=0.1,
        columns="spread",
        layout="strided",
        weights="spread",
        noise=0.0,
        loss="hinge",
        penalty=None,
        tol=1e-8,
    ),
    # Nearly separable without a penalty: by a curvature of some steps ago next to
    # nothing was left, when 7 % were.
    *(
        Case(
            seed=600,
            n_rows=n_rows,
            n_columns=400,
            n_classes=2,
            share=0.1,
            density=0.02,
            columns="doubled",
            dtype="float32",
            layout="unsorted",
            weights="whole",
            noise=0.1,
            loss="log_loss",
            penalty=None,
            fit_intercept=False,
            sampler="uniform",
            tol=0.01,
            max_iter=200,
        )
        for n_rows in (448, 600)
    ),
    # Damped models promised next to nothing, and now and then a step gained little.
    Case(
        seed=88,
        n_rows=88,
        n_columns=60,
        n_classes=3,
        share=0.5,
        density=0.1,
        columns="spread",
        dtype="float32",
        layout="strided",
        weights="whole",
        noise=0.1,
        loss="multinomial",
        penalty="l1",
        alpha=1e-05,
        fit_intercept=False,
        sampler="uniform",
        tol=0.01,
        max_iter=200,
    ),
    # Coefficients whose squares overflowed were multiplied with no penalty.
    Case(
        seed=29078,
        n_rows=403,
        n_columns=300,
        n_classes=3,
        share=0.3,
        density=0.02,
        columns="constant",
        dtype="float32",
        layout="csc",
        weights="gamma",
        loss="multinomial",
        penalty=None,
        alpha=10.0,
        tol=1e-05,
    ),
]


@pytest.mark.parametrize("case", FOUND)
def test_what_was_found(case):
    assert check(case) in ("kept", "warned")


@settings(max_examples=20)
@given(cases(max_rows=10), st.integers(0, 100))
def test_cases_are_what_they_say(case, seed):
    """A case is written and read again; its data are the same each time."""
    assert eval(repr(case)) == case
    assert random_case(seed) == random_case(seed)
    rows, X, y, weight = make_data(case)
    again, _, other_y, other_weight = make_data(case)
    as_array = rows.toarray() if sparse.issparse(rows) else rows
    np.testing.assert_array_equal(as_array, X)
    for one, other in ((rows, again), (y, other_y), (weight, other_weight)):
        assert (one != other).sum() == 0 if one is not None else other is None
    assert len(np.unique(y)) == case.n_classes or case.n_classes == 0


@pytest.mark.parametrize("loss", ["log_loss", "hinge", "squared_hinge"])
@pytest.mark.parametrize("penalty", ["l2", "l1", None])
def test_the_net_has_no_holes(loss, penalty, monkeypatch):
    """A model that is slightly off, a certificate that is not one, a NaN: all found."""
    case = Case(loss=loss, penalty=penalty, alpha=1e-2, noise=3.0)
    assert check(case) == "kept"

    def stretch(model):
        model.coef_ *= 1.2
        model.duality_gap_ += np.inf

    def certify(model):
        model.coef_ *= 1.2
        model.duality_gap_[:] = 0

    def spoil(model):
        model.coef_[0, 0] = np.nan

    fit = AWSGDClassifier.fit
    faults = (
        (stretch, "without a warning"),
        (certify, "but duality_gap_ is 0"),
        (spoil, "coef_ is not finite"),
    )
    for fault, words in faults:

        def broken(self, *arguments, fault=fault, **options):
            fit(self, *arguments, **options)
            fault(self)
            return self

        monkeypatch.setattr(AWSGDClassifier, "fit", broken)
        with pytest.raises(Finding, match=words):
            check(case)


def test_known_findings_are_told():
    case = Case(loss="log_loss")
    with pytest.raises(Finding):
        check_broken(case, ())
    assert check_broken(case, [("known", lambda case: True)]) == "known"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fuzz.check", check_broken)
        assert simpler(Case(loss="log_loss", n_rows=23, weights="gamma")) == case


def check_broken(case, known):
    """Check a case whose model is wrong."""
    fit = AWSGDClassifier.fit

    def broken(self, *arguments, **options):
        fit(self, *arguments, **options)
        self.coef_ += 1.0
        return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AWSGDClassifier, "fit", broken)
        return check(case, known)
