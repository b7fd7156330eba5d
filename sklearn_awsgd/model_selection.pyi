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


class EntryKFold:
    def __init__(
        self,
        n_splits: int = 5,
        *,
        random_state: int | RandomState | None = None,
    ) -> None: ...
    def get_n_splits(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        groups: Any = None,
    ) -> Any: ...
    def split(
        self,
        X: Any,
        y: ArrayLike | None = None,
        groups: Any = None,
    ) -> Any: ...
    ...

__all__ = ['EntryKFold']
