"""Numbers that belong together, as the compiled problems take them."""

from typing import NamedTuple

import numpy as np


class Penalty(NamedTuple):
    """``l2 / 2 ||w||^2 + l1 ||w||_1``."""

    l1: float = 0.0
    l2: float = 0.0


class Rate(NamedTuple):
    """How long the steps of a linear model are.

    `name` is a schedule of :class:`~sklearn_awsgd._kernels._steps.ScalarRate`, which
    uses `power_t`, `alpha` and `t0`, or a rule of
    :class:`~sklearn_awsgd._kernels._coordinate_rates.CoordinateRate`, which uses
    `decay`, its memory.
    """

    name: str
    eta0: float
    power_t: float = 0.5
    alpha: float = 0.0
    t0: float = 0.0
    decay: float = 0.99


class EntryRate(NamedTuple):
    """``eta0 / (1 + t / offset)^power`` at step t; gradient steps may diverge."""

    eta0: float
    offset: float = 1.0
    power: float = 0.0
    proximal: bool = True


class StoredValues(NamedTuple):
    """The stored entries of a matrix; `weights` is None when all weigh 1.

    Entries that are not stored are zeros of weight `unstored_weight`.
    """

    values: np.ndarray
    weights: np.ndarray | None = None
    unstored_weight: float = 1.0

    def reordered(self, order):
        """Return the same entries in another order."""
        weights = None if self.weights is None else self.weights[order]
        return StoredValues(self.values[order], weights, self.unstored_weight)


class Biases(NamedTuple):
    """``z = baseline + gain (b_i + c_j) + <u_i, v_j>``; gain 0 for no biases."""

    baseline: float = 0.0
    gain: float = 0.0
