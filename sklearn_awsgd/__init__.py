"""SGD that learns how to sample, as scikit-learn estimators."""

from sklearn_awsgd._classifier import AWSGDClassifier
from sklearn_awsgd._regressor import AWSGDRegressor

__all__ = ["AWSGDClassifier", "AWSGDRegressor"]
__version__ = "0.1.0.dev0"
