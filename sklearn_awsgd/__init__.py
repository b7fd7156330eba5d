"""SGD that learns how to sample, as scikit-learn estimators."""

from sklearn_awsgd._entries import matrix_from_entries
from sklearn_awsgd._factorization import AWSGDMatrixFactorization
from sklearn_awsgd._linear import AWSGDClassifier

__all__ = ["AWSGDClassifier", "AWSGDMatrixFactorization", "matrix_from_entries"]
__version__ = "0.1.0.dev0"
