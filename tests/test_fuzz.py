"""The short form of the differential fuzzing; `make soak` has the long one."""

from collections import Counter

import numpy as np
import pytest
from fuzz import KNOWN, Case, Finding, cases, check
from hypothesis import HealthCheck, Phase, given, settings

from sklearn_awsgd import AWSGDClassifier


def fuzz(strategy, n_cases):
    """Check cases; return how often each verdict came."""
    verdicts = Counter()

    @settings(
        max_examples=n_cases,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def every(case):
        verdicts[check(case, KNOWN)] += 1

    every()
    return verdicts


def test_random_problems():
    verdicts = fuzz(cases(max_rows=40), 150)
    assert verdicts["kept"] > 50
    assert verdicts["refused"] == 0


def test_random_wide_problems():
    verdicts = fuzz(cases(max_rows=30, wide=True), 15)
    assert verdicts["kept"] > 5
    assert verdicts["refused"] == 0


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
