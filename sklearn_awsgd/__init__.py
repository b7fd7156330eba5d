"""SGD that learns how to sample, as scikit-learn estimators."""

from sklearn_awsgd._importance import MinVarianceImportanceEstimator
from sklearn_awsgd._linear import AWSGDClassifier

__all__ = ["AWSGDClassifier", "MinVarianceImportanceEstimator"]
__version__ = "0.1.0.dev0"
