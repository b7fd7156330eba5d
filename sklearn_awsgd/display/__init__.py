"""Pictures of fits: what was sampled, how it converged, how sure an estimate is.

The classes follow scikit-learn's displays: ``from_estimator`` makes one and draws it,
``plot(ax=...)`` draws it again. matplotlib is imported when something is drawn.
"""

from sklearn_awsgd.display.convergence import ConvergenceDisplay
from sklearn_awsgd.display.interval import IntervalDisplay
from sklearn_awsgd.display.sampling import SamplingDisplay

__all__ = ["ConvergenceDisplay", "IntervalDisplay", "SamplingDisplay"]
