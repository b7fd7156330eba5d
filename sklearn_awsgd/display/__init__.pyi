"""Written by `make stubs`: change the code and run it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    TransformerMixin,
)


class ConvergenceDisplay:
    def __init__(self, *, curves: Any, x: Any, y: ArrayLike) -> None: ...
    ax_: Any
    figure_: Any
    lines_: Any
    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        name: Any = None,
        ax: Any = None,
        **options: Any,
    ) -> Self: ...
    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, Any] | Sequence[Any],
        *,
        x: str = 'draws',
        y: ArrayLike = 'objective',
        reference: Any = None,
        problem: int = 0,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    def plot(self, ax: Any = None, **kwargs: Any) -> Self: ...
    ...

class IntervalDisplay:
    def __init__(
        self,
        *,
        x: Any,
        places: Any,
        estimates: Any,
        low: Any,
        high: Any,
        truth: Any = None,
    ) -> None: ...
    ax_: Any
    figure_: Any
    line_: Any
    band_: Any
    truth_: Any
    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        truth: Any = None,
        x: str = 'evaluations',
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    def plot(self, ax: Any = None, **kwargs: Any) -> Self: ...
    ...

class SamplingDisplay:
    def __init__(
        self,
        *,
        by: Any,
        draws: Any,
        probabilities: Any,
        names: Any,
    ) -> None: ...
    ax_: Any
    figure_: Any
    lines_: Any
    mesh_: Any
    colorbar_: Any
    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        by: Any = None,
        problem: int = 0,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self: ...
    def plot(self, ax: Any = None, **kwargs: Any) -> Self: ...
    ...

__all__ = ['ConvergenceDisplay', 'IntervalDisplay', 'SamplingDisplay']
