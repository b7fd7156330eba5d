"""SGD that learns how to sample, as scikit-learn estimators."""

from sklearn_awsgd._factorization.entry_regressor import EntryRegressor
from sklearn_awsgd._factorization.factorization import AWSGDMatrixFactorization
from sklearn_awsgd._factorization.ids import MatrixIds, matrix_from_entries
from sklearn_awsgd._importance.estimator import MinVarianceImportanceEstimator
from sklearn_awsgd._linear.classifier import AWSGDClassifier
from sklearn_awsgd._linear.regressor import AWSGDRegressor
from sklearn_awsgd._policy.environments import TabularMDP
from sklearn_awsgd._policy.policy_gradient import AWSGDPolicyGradient

__all__ = [
    "AWSGDClassifier",
    "AWSGDMatrixFactorization",
    "AWSGDPolicyGradient",
    "AWSGDRegressor",
    "EntryRegressor",
    "MatrixIds",
    "MinVarianceImportanceEstimator",
    "TabularMDP",
    "matrix_from_entries",
]
__version__ = "0.1.0.dev0"
