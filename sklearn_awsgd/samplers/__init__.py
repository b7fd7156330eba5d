"""Samplers, as given to the `sampler` parameter of the estimators.

A sampler is a scikit-learn estimator without ``fit``: it can be cloned, printed and
searched over (``sampler__mixing`` in a grid search). Fitted estimators carry a copy in
``sampler_`` that holds what was learned; the parameter itself never changes.

Each module has one; :mod:`sklearn_awsgd.samplers.base` has the contract, for those who
write their own.
"""

from sklearn_awsgd.samplers.base import BaseSampler, OpenedSampler
from sklearn_awsgd.samplers.gaussian import GaussianSampler
from sklearn_awsgd.samplers.level import LevelSampler
from sklearn_awsgd.samplers.norm import NormSampler
from sklearn_awsgd.samplers.row_column import RowColumnSampler
from sklearn_awsgd.samplers.strata import StrataSampler
from sklearn_awsgd.samplers.trajectory import TrajectorySampler
from sklearn_awsgd.samplers.uniform import UniformSampler

__all__ = [
    "BaseSampler",
    "GaussianSampler",
    "LevelSampler",
    "NormSampler",
    "OpenedSampler",
    "RowColumnSampler",
    "StrataSampler",
    "TrajectorySampler",
    "UniformSampler",
]
