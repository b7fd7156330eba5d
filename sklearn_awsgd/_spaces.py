"""What P is: the rows that samplers draw from, their masses and their strata.

A space knows nothing of models, and a sampler nothing beyond its space and the view of
one problem.
"""

from dataclasses import dataclass

import numpy as np

from sklearn_awsgd._kernels import _samplers as kernels


class RowSpace:
    """The rows a sampler may draw from: their masses and their norms.

    It is shared, read-only, by the samplers of all one-vs-rest problems of a fit.

    Parameters
    ----------
    mass : ndarray of shape (n_samples,) or None
        P of each row, summing to one; None when all are equal.
    norms2 : ndarray of shape (n_samples,)
        Squared norms of the rows.
    shuffle : bool, default=True
        Whether passes over all rows take them in random order.

    Attributes
    ----------
    rows : ndarray of int32
        Rows with positive mass.
    strata : ndarray of int or None
        Given stratum of each row, as an index.
    """

    def __init__(self, mass, norms2, shuffle=True):
        self.n_samples = norms2.shape[0]
        self.shuffle = shuffle
        self.mass = mass
        self.rows = np.arange(self.n_samples, dtype=np.int32)
        if mass is not None:
            self.rows = self.rows[mass > 0]
        self.strata = None
        self._norms2 = norms2
        self._safe = None

    def safe(self):
        """Return the density and the alias table of the safe distribution.

        It is proportional to ``P_i sqrt(||x_i||^2 + 1)``, the bound of the gradient
        norm of a Lipschitz loss with an intercept: neither a large row nor a small one
        can then have a large weighted gradient.
        """
        if self._safe is None:
            bound = np.sqrt(self._norms2 + 1)
            if self.mass is None:
                density = bound / bound.mean()
                table = kernels.AliasTable(density)
            else:
                density = bound / (self.mass @ bound)
                table = kernels.AliasTable(density * self.mass)
            self._safe = density, table
        return self._safe


@dataclass
class ProblemView:
    """What a sampler may know of one problem.

    Attributes
    ----------
    groups : ndarray of shape (n_samples,) and dtype int32
        Group of each row: 1 for the positive class, 0 for the rest.
    norms2 : ndarray of shape (n_samples,)
        Squared gradient norm of each row at the start.
    """

    groups: np.ndarray
    norms2: np.ndarray


class StrataLayout:
    """Which rows are in which stratum: read-only input of the compiled sampler.

    Parameters
    ----------
    space : RowSpace
        The rows.
    strata : ndarray of shape (n_samples,) and dtype int
        Stratum of each row.
    n_strata : int
        Number of strata; some may have no rows.
    with_safe : bool
        Whether the safe distribution is needed.
    """

    def __init__(self, space, strata, n_strata, with_safe):
        # Small integers are sorted by counting, in linear time.
        narrow = np.int16 if n_strata < 2**15 else np.int32
        rows = space.rows
        chosen = strata[rows] if len(rows) < space.n_samples else strata
        self.order = rows[np.argsort(chosen.astype(narrow), kind="stable")]
        n_rows = np.bincount(chosen, minlength=n_strata)
        self.start = np.concatenate([[0], np.cumsum(n_rows)]).astype(np.intp)
        self.strata = np.ascontiguousarray(strata, dtype=np.int32)
        self.within = None
        if space.mass is None:
            self.mass = n_rows / space.n_samples
        else:
            ordered = space.mass[self.order]
            self.mass = np.bincount(
                chosen, weights=space.mass[rows], minlength=n_strata
            )
            first = np.minimum(self.start[:-1], len(ordered) - 1)
            if (ordered != np.repeat(ordered[first], n_rows)).any():
                self.within = kernels.AliasTable(ordered, self.start)
            self.strata = np.where(space.mass > 0, self.strata, np.int32(-1))
        self.safe_density, self.safe = space.safe() if with_safe else (None, None)
