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


class GridWorld:
    def __init__(
        self,
        size: int = 15,
        *,
        n_traps: Any = None,
        goal_reward: float = 1000.0,
        trap_reward: float = -1000.0,
        step_reward: float = -1.0,
        max_steps: Any = None,
        random_state: int | RandomState | None = None,
    ) -> None: ...
    traps: NDArray[Any]
    n_states: int
    n_actions: int
    def next_states(self) -> Any: ...
    def to_gymnasium(self, render_mode: Any = None) -> Any: ...
    def to_mdp(self) -> Any: ...
    ...

__all__ = ['GridWorld']
