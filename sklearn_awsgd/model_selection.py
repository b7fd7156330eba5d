"""Splits for model selection where the samples are entries of a matrix."""

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from sklearn_awsgd._factorization.ids import number_ids
from sklearn_awsgd._validation import check_number

__all__ = ["EntryKFold"]


class EntryKFold(BaseCrossValidator):
    """K folds of entries, each with its share of every row.

    The entries of a row are dealt to the folds in turn, in random order. So no row is
    held out as a whole: a row with two or more entries has some to learn from in every
    training set, and those that are held out look like those that are not. Rows can
    be users and columns items; entries are told apart by the ids in X.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.
    random_state : int, RandomState instance or None, default=None
        Seed of the order in which the entries of a row are dealt.

    See Also
    --------
    sklearn_awsgd.EntryRegressor : A model that is trained and scored on entries.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_awsgd.model_selection import EntryKFold
    >>> X = [["ann", "tea"], ["ann", "jam"], ["bob", "tea"], ["bob", "jam"]]
    >>> for train, test in EntryKFold(2, random_state=0).split(X):
    ...     print([X[i][0] for i in train], [X[i][0] for i in test])
    ['ann', 'bob'] ['ann', 'bob']
    ['ann', 'bob'] ['ann', 'bob']
    """

    def __init__(self, n_splits=5, *, random_state=None):
        check_number("n_splits", n_splits, low=2, integer=True)
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X=None, y=None, groups=None):
        """Return the number of folds.

        Parameters
        ----------
        X, y, groups : object, default=None
            Ignored.

        Returns
        -------
        n_splits : int
            The number of folds.
        """
        return self.n_splits

    def split(self, X, y=None, groups=None):
        """Generate the indices of training and of held-out entries.

        Parameters
        ----------
        X : array-like or data frame of shape (n_entries, n_columns)
            Entries, the id of the row first, as :class:`EntryRegressor` takes them.
        y, groups : object, default=None
            Ignored.

        Yields
        ------
        train, test : ndarray of int
            Indices of the entries.
        """
        if not hasattr(X, "shape"):
            X = np.asarray(X, dtype=object)
        if len(X.shape) != 2:
            raise ValueError(
                f"X has shape {X.shape}; give two columns, the ids of the row and of "
                "the column of each entry."
            )
        ids = X[X.columns[0]] if hasattr(X, "columns") else X[:, 0]
        rows = number_ids(ids, "X")[1]
        if self.n_splits > len(rows):
            raise ValueError(
                f"n_splits={self.n_splits} is larger than the number of entries, "
                f"{len(rows)}."
            )
        random = check_random_state(self.random_state).uniform(size=len(rows))
        fold = np.empty(len(rows), dtype=np.intp)
        fold[np.lexsort((random, rows))] = np.arange(len(rows)) % self.n_splits
        for k in range(self.n_splits):
            yield np.flatnonzero(fold != k), np.flatnonzero(fold == k)
