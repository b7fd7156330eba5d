"""EntryRegressor: a matrix factorization whose samples are entries, named by ids."""

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from sklearn_awsgd._base import EstimatorMixin
from sklearn_awsgd._callbacks import fit_with_callbacks, with_callbacks
from sklearn_awsgd._factorization.factorization import AWSGDMatrixFactorization
from sklearn_awsgd._factorization.ids import matrix_from_entries
from sklearn_awsgd._validation import (
    check_weights,
    unchanged_on_failure,
    validate_data,
)


class EntryRegressor(RegressorMixin, MetaEstimatorMixin, EstimatorMixin, BaseEstimator):
    """Predict entries of a matrix from the ids of their row and their column.

    The samples are entries, not rows: X has two columns of ids, such as user and item,
    and y the values, such as ratings. So whatever scikit-learn does with samples is
    done with entries: ``train_test_split``, cross-validation, learning curves and
    searches hold entries out, and a score tells how well entries are predicted that
    were not seen. Ids may be texts or any numbers.

    Rows and columns that were not in the training data are predicted by the biases of
    the others.

    Parameters
    ----------
    estimator : AWSGDMatrixFactorization, default=None
        The model of the matrix. None is
        ``AWSGDMatrixFactorization(alpha=0.1, fit_bias=True)``. Entries that are not
        given are missing, whatever its `unstored` says.

    Attributes
    ----------
    estimator_ : AWSGDMatrixFactorization
        The fitted model.
    ids_ : MatrixIds
        The ids of its rows and columns.
    matrix_ : CSR array of shape (n_rows, n_columns)
        The training data.
    row_factors_ : ndarray of shape (n_rows, n_factors)
        Factors of the rows, as ``estimator_.transform(matrix_)`` returns them.
    history_ : dict of ndarray
        ``history_`` of `estimator_`.
    n_features_in_ : int
        2: the ids of the row and of the column.
    feature_names_in_ : ndarray of shape (2,)
        Names of the columns of X, where X is a data frame.

    See Also
    --------
    sklearn_awsgd.model_selection.EntryKFold : Folds that leave every row some entries.
    AWSGDMatrixFactorization : The model, whose samples are rows.

    Examples
    --------
    >>> from sklearn_awsgd import EntryRegressor
    >>> pairs = [["ann", "tea"], ["ann", "jam"], ["bob", "tea"], ["bob", "jam"],
    ...          ["cem", "tea"]]
    >>> model = EntryRegressor().fit(pairs, [5, 1, 4, 1, 5])
    >>> model.recommend(["cem"], k=1)
    array([['jam']], dtype=object)
    >>> known, unknown = model.predict([["cem", "jam"], ["dan", "jam"]])
    >>> bool(1 < known < 4 and 1 < unknown < 4)
    True
    """

    _doc_page = "factorization"

    def __init__(self, estimator=None):
        self.estimator = estimator

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # Two ids for each sample, and no array of numbers.
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "row_factors_")

    @property
    def history_(self):
        """Course of the fit of the matrix, a dict of arrays."""
        check_is_fitted(self)
        return self.estimator_.history_

    def fit(self, X, y, sample_weight=None):
        """Fit the model from scratch.

        Parameters
        ----------
        X : array-like or data frame of shape (n_entries, 2)
            Ids of the row and of the column of each entry.
        y : array-like of shape (n_entries,)
            Values of the entries.
        sample_weight : array-like of shape (n_entries,), default=None
            Weights of the entries.

        Returns
        -------
        self : EntryRegressor
            The fitted estimator.
        """
        estimator = self.estimator
        if estimator is None:
            estimator = AWSGDMatrixFactorization(alpha=0.1, fit_bias=True)
        if not isinstance(estimator, AWSGDMatrixFactorization):
            raise TypeError(
                f"estimator={estimator!r} must be an AWSGDMatrixFactorization."
            )
        with unchanged_on_failure(self):
            rows, columns = self._check_pairs(X, reset=True)
            values = column_or_1d(y, warn=True)
            self.matrix_, self.ids_ = matrix_from_entries(
                rows, columns, values, return_ids=True
            )
            weights = check_weights(sample_weight, len(values))
            if weights is not None:
                place = self.ids_.row_index(rows), self.ids_.column_index(columns)
                shape = self.matrix_.shape
                weights = sparse.coo_array((weights, place), shape=shape).tocsr()
            self.estimator_ = clone(estimator).set_params(unstored="missing")
            self._fit_with_callbacks(X, y, weights)
            self.row_factors_ = np.asarray(self.estimator_.transform(self.matrix_))
        return self

    @with_callbacks
    def _fit_with_callbacks(self, X, y, weights):
        with fit_with_callbacks(self, X, y, max_subtasks=1) as fit_task:
            task = fit_task.begin("fit-the-matrix")
            with task.passed_to(self.estimator_):
                self.estimator_.fit(self.matrix_, entry_weight=weights)
            task.end()

    def _check_pairs(self, X, *, reset=False):
        """Return the ids of rows and columns."""
        if not hasattr(X, "shape"):
            # Numbers and texts in one list keep their types.
            X = np.asarray(X, dtype=object)
        if len(X.shape) != 2 or X.shape[1] != 2:
            raise ValueError(
                f"X has shape {X.shape}; give two columns, the ids of the row and of "
                'the column of each entry: frame[["user", "item"]].'
            )
        validate_data(self, X, reset=reset, skip_check_array=True)
        if hasattr(X, "columns"):
            return [X[name] for name in X.columns]
        return X[:, 0], X[:, 1]

    def predict(self, X):
        """Return the predictions of entries.

        Parameters
        ----------
        X : array-like or data frame of shape (n_entries, 2)
            Ids of the row and of the column of each entry. Ids that were not in the
            training data are predicted by the bias of the other, or by the mean of all
            when neither is known; without ``fit_bias`` by zero.

        Returns
        -------
        values : ndarray of shape (n_entries,)
            Predictions: numbers, probabilities or expected counts.
        """
        check_is_fitted(self)
        rows, columns = self._check_pairs(X)
        return self.estimator_._entry_values(
            self.row_factors_,
            self.ids_.row_index(rows),
            self.ids_.column_index(columns),
        )

    def recommend(self, rows=None, k=10, *, return_scores=False):
        """Return the columns with the largest predictions that a row has not seen.

        Parameters
        ----------
        rows : array-like of shape (n_rows,), default=None
            Ids of the rows to recommend for; None is all of ``ids_.rows``. One that was
            not in the training data gets the columns with the largest biases.
        k : int, default=10
            Number of columns for each row.
        return_scores : bool, default=False
            Whether to return the predictions as well.

        Returns
        -------
        columns : ndarray of shape (n_rows, k)
            Ids of columns, best first; None where a row has fewer than k unseen ones.
        scores : ndarray of shape (n_rows, k)
            Their predictions, NaN where there is no column; only for
            ``return_scores=True``.
        """
        check_is_fitted(self)
        return self.estimator_.recommend(
            self.matrix_, k, rows=rows, ids=self.ids_, return_scores=return_scores
        )
