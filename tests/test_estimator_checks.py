"""scikit-learn's own checks, on every setting that trains in a different way."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_awsgd import (
    AWSGDClassifier,
    AWSGDMatrixFactorization,
    AWSGDRegressor,
    MinVarianceImportanceEstimator,
)
from sklearn_awsgd.samplers import StrataSampler

# The checks cut max_iter short.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RANDOM_DRAWS = (
    "A repeated row and a row of weight 2 are the same to the objective, but other "
    "draws, so that a run of SGD ends at another point near the same optimum."
)
WEIGHT_EQUIVALENCE = {
    "check_sample_weight_equivalence_on_dense_data": RANDOM_DRAWS,
    "check_sample_weight_equivalence_on_sparse_data": RANDOM_DRAWS,
}

# Every setting with the checks it is expected to fail, and why. An entry that passes
# is an error.
EXPECTED_FAILURES = {
    AWSGDClassifier(): {},
    AWSGDClassifier(sampler="uniform"): {},
    AWSGDClassifier(sampler="label"): {},
    AWSGDClassifier(loss="multinomial"): {},
    AWSGDClassifier(loss="multinomial", penalty="elasticnet"): {},
    AWSGDClassifier(loss="hinge"): {},
    AWSGDClassifier(penalty="elasticnet"): {},
    AWSGDClassifier(shuffle=False): {},
    AWSGDRegressor(): {},
    AWSGDRegressor(loss="huber"): {},
    AWSGDRegressor(loss="epsilon_insensitive"): {},
    AWSGDRegressor(penalty="elasticnet"): {},
    AWSGDMatrixFactorization(): {},
    MinVarianceImportanceEstimator(): {},
    AWSGDClassifier(learning_rate="adagrad", sampler="label"): WEIGHT_EQUIVALENCE,
    AWSGDClassifier(learning_rate="adagrad", average=10): WEIGHT_EQUIVALENCE,
    AWSGDClassifier(
        learning_rate="adagrad",
        penalty="elasticnet",
        sampler=StrataSampler(update="adagrad", mixing=0.2),
    ): WEIGHT_EQUIVALENCE,
}


@parametrize_with_checks(
    list(EXPECTED_FAILURES), expected_failed_checks=EXPECTED_FAILURES.get
)
def test_estimator_checks(estimator, check):
    check(estimator)
