"""What a fitted factorization can be asked."""

import numbers
from functools import partial

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from scipy.special import expit, logit
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, column_or_1d

from sklearn_awsgd._base import EstimatorMixin
from sklearn_awsgd._factorization.entries import EntryData, check_entries
from sklearn_awsgd._factorization.fetching import SourceEntries
from sklearn_awsgd._factorization.ids import as_ids
from sklearn_awsgd._factorization.row_solver import (
    LARGEST_Z,
    cells_of,
    dense_blocks,
    deviance,
    row_blocks,
    solve_rows,
)
from sklearn_awsgd._validation import (
    canonical,
    check_features,
    check_number,
    is_source,
    validate_data,
)

# The prediction of an entry is the link of z.
LINKS = {"log_loss": expit, "poisson": lambda z: np.exp(np.minimum(z, LARGEST_Z))}
# `score` always hides the same entries of a matrix.
SCORE_SEED = 0


class FactorizationModel(
    EstimatorMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseEstimator,
):
    """Queries of a fitted model ``link(global_bias + column_bias + U components)``."""

    _doc_page = "factorization"

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._missing_is_nan()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "components_")

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    @property
    def history_(self):
        """Objective and sampling statistics over time, a dict of arrays."""
        check_is_fitted(self)
        return self._history.table()

    @property
    def sampling_history_(self):
        """Probabilities of the columns over time, a dict of arrays."""
        check_is_fitted(self)
        records = self._history.sampling
        n_columns = len(records[0].probabilities)
        return {
            "draws": np.repeat([r.draws for r in records], n_columns),
            "column": np.tile(np.arange(n_columns), len(records)),
            "probability": np.concatenate([r.probabilities for r in records]),
        }

    def _missing_is_nan(self):
        value = self.missing_values
        return isinstance(value, numbers.Real) and bool(np.isnan(value))

    def _check_X(self, X, *, reset=False, entry_weight=None, to_train=False):
        """Return X as `EntryData`."""
        if is_source(X):
            return self._check_source(X, reset, entry_weight, to_train)
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            ensure_all_finite="allow-nan" if self._missing_is_nan() else True,
        )
        return check_entries(
            canonical(X),
            entry_weight,
            self.missing_values,
            self.unstored,
            self.loss,
            to_train,
        )

    def _check_source(self, X, reset, entry_weight, to_train):
        """Return the rows of a source as `SourceEntries`."""
        if entry_weight is not None:
            raise ValueError(
                "entry_weight has a number for each entry, and X is a row source, "
                "whose entries are not in memory; leave entry_weight out, or give "
                "chunks of rows, X.take(indices), with their weights to partial_fit."
            )
        check = partial(
            check_entries,
            entry_weight=None,
            missing_values=self.missing_values,
            unstored=self.unstored,
            loss=self.loss,
            to_train=False,
        )
        data = SourceEntries(X, check, allow_nan=self._missing_is_nan())
        check_features(self, data.X, reset)
        if to_train:
            data.survey()
        return data

    def _row_factors(self, data):
        """Return the factors of rows, in double precision."""
        return np.concatenate([self._solve(block) for block, _ in data.blocks()])

    def _solve(self, data):
        """Return the factors of rows in memory."""
        return solve_rows(
            data,
            self.components_.T.astype(np.float64, copy=False),
            self._offset(),
            self.loss,
            self._epsilon,
            self._ridge,
            effective_n_jobs(self.n_jobs),
        )

    def _offset(self):
        """Return z of each column for a row whose factors are zero."""
        return self.global_bias_ + self.column_bias_.astype(np.float64, copy=False)

    def _link(self, z):
        return LINKS[self.loss](z) if self.loss in LINKS else z

    def _mean_loss(self, data, row_factors):
        """Return the weighted mean loss of the observed entries."""
        sums = [
            self._loss_sums(block, row_factors[part]) for block, part in data.blocks()
        ]
        total, mass = np.sum(sums, axis=0)
        return total / mass

    def _loss_sums(self, data, row_factors):
        """Return the sum of the losses of rows in memory, and that of the weights."""
        factors = self.components_.T.astype(np.float64, copy=False)
        offset, total, mass = self._offset(), 0.0, 0.0
        width = len(factors)
        if sparse.issparse(data.X) and data.kind == "missing":
            # Of stored entries, factors of rows and columns are gathered.
            width = -(-data.n_entries // len(row_factors)) * factors.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in row_blocks(len(row_factors), width):
                cells = cells_of(data, rows)
                z = cells.predict(row_factors[rows], factors, offset)
                total += (cells.weight * self._deviance(cells.y, z)).sum()
                mass += cells.weight.sum()
        return total, mass

    def transform(self, X):
        """Return the factors of rows, each solved exactly on its observed entries.

        Parameters
        ----------
        X : {array-like, sparse matrix, row source} of shape (n_samples, n_features)
            Rows, with the same meaning of what is missing as in ``fit``. The factors of
            a row without observed entries are zero.

        Returns
        -------
        factors : ndarray of shape (n_samples, n_factors)
            Factors: `n_components` of them, and one more, the bias of the row, with
            ``fit_bias=True``.
        """
        check_is_fitted(self)
        data = self._check_X(X)
        return self._row_factors(data).astype(data.X.dtype, copy=False)

    def inverse_transform(self, X):
        """Return the rows that factors stand for.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_factors)
            Factors, as ``transform`` returns them.

        Returns
        -------
        rows : ndarray of shape (n_samples, n_features)
            Predictions of all entries: numbers, probabilities or expected counts.
        """
        check_is_fitted(self)
        X = check_array(X, dtype=[np.float64, np.float32])
        if X.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has {X.shape[1]} columns, the model has {self._n_features_out} "
                "factors; give what transform returns."
            )
        z = X @ self.components_ + self._offset().astype(X.dtype, copy=False)
        return self._link(z)

    def predict(self, X):
        """Return the model's reconstruction of dense rows, holes filled.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Dense rows.

        Returns
        -------
        rows : ndarray or data frame of shape (n_samples, n_features)
            Predictions of all entries, observed or not; a frame where ``set_output``
            or scikit-learn's configuration ask for one.

        Raises
        ------
        TypeError
            When X is sparse or a row source: its reconstruction would be dense.
        """
        check_is_fitted(self)
        if is_source(X):
            raise TypeError(
                "predict returns all entries, and X is a row source; use "
                "predict_entries(X, rows, columns) for the entries you need, or "
                "predict(X.take(rows)) for some rows."
            )
        if sparse.issparse(X):
            raise TypeError(
                "predict returns all entries and takes no sparse X; use "
                "predict_entries(X, rows, columns) for the entries you need, or "
                "predict(X.toarray())."
            )
        factors = self.transform(X)
        rows = self.inverse_transform(np.asarray(factors))
        if isinstance(factors, np.ndarray):
            return rows
        # `transform` knows which frame is wanted.
        default = [f"x{j}" for j in range(rows.shape[1])]
        names = list(getattr(self, "feature_names_in_", default))
        if hasattr(factors, "index"):
            return type(factors)(rows, index=factors.index, columns=names)
        return type(factors)(rows, schema=names)

    def predict_entries(self, X, rows, columns):
        """Return the predictions of single entries.

        Parameters
        ----------
        X : {array-like, sparse matrix, row source} of shape (n_samples, n_features)
            Rows, as observed.
        rows, columns : array-like of int of shape (n_entries,)
            Which entries. An index of -1, or beyond X, is a row or a column that is not
            known: what its factors and its bias would add is left out, so that the
            other bias decides.

        Returns
        -------
        values : ndarray of shape (n_entries,)
            Predictions.
        """
        check_is_fitted(self)
        rows, columns = column_or_1d(rows), column_or_1d(columns)
        if rows.shape != columns.shape:
            raise ValueError(
                f"rows has {len(rows)} elements and columns has {len(columns)}; give "
                "one of each for every entry."
            )
        if not len(rows):
            # Empty lists are arrays of floats.
            rows, columns = rows.astype(np.intp), columns.astype(np.intp)
        data = self._check_X(X)
        for name, index in (("rows", rows), ("columns", columns)):
            if index.dtype.kind not in "iu":
                raise TypeError(f"{name} must be integers, got {index.dtype}.")
            if len(index) and index.min() < -1:
                raise IndexError(f"{name} must be at least -1, got {index.min()}.")
        known = (rows >= 0) & (rows < data.X.shape[0])
        used, place = np.unique(rows[known], return_inverse=True)
        index = np.full(len(rows), -1)
        index[known] = place
        factors = np.concatenate(
            [self._solve(block) for block in data.blocks_of(used)]
            or [np.empty((0, self._n_features_out))]
        )
        values = self._entry_values(factors, index, columns)
        return values.astype(data.X.dtype, copy=False)

    def _entry_values(self, factors, rows, columns):
        """Return predictions from row factors; indices outside are not known."""
        components, offset = self.components_.T, self._offset()
        rows = np.where((rows < 0) | (rows >= len(factors)), len(factors), rows)
        outside = (columns < 0) | (columns >= len(offset))
        columns = np.where(outside, len(offset), columns)
        # Behind the last row and the last column stand those that are not known.
        factors = np.vstack([factors, np.zeros(self._n_features_out)])
        unknown = np.zeros(self._n_features_out)
        if self.fit_bias:
            unknown[-1] = self._gain
        components = np.vstack([components, unknown])
        offset = np.append(offset, self.global_bias_)
        z = np.empty(len(rows))
        for part in row_blocks(len(rows), self._n_features_out):
            i, j = rows[part], columns[part]
            z[part] = np.einsum("ek,ek->e", factors[i], components[j])
        return self._link(z + offset[columns])

    def recommend(self, X, k=10, *, rows=None, ids=None, return_scores=False):
        """Return the columns with the largest predictions that a row has not seen.

        Parameters
        ----------
        X : {array-like, sparse matrix, row source} of shape (n_samples, n_features)
            Rows. What is missing in a dense X, and what is not stored in a sparse one
            (whatever `unstored` says), has not been seen.
        k : int, default=10
            Number of columns for each row.
        rows : array-like of shape (n_rows,), default=None
            The rows of X to recommend for, in this order; None is all of them. With
            `ids` they are ids. One that is not known, or -1, is a row that has seen
            nothing: it gets the columns with the largest biases.
        ids : MatrixIds, default=None
            Ids of the rows and columns of X, from :func:`matrix_from_entries`. The
            columns are then returned as ids.
        return_scores : bool, default=False
            Whether to return the predictions as well.

        Returns
        -------
        columns : ndarray of shape (n_rows, k)
            Indices, or ids, of columns, best first; -1, or None among ids, where a row
            has fewer than k unseen columns.
        scores : ndarray of shape (n_rows, k)
            Their predictions, NaN where there is no column; only for
            ``return_scores=True``.
        """
        check_is_fitted(self)
        check_number("k", k, low=1, integer=True)
        data = self._check_X(X)
        if ids is not None and (len(ids.rows), len(ids.columns)) != data.X.shape:
            raise ValueError(
                f"ids has {len(ids.rows)} rows and {len(ids.columns)} columns, X has "
                f"shape {data.X.shape}; give the ids that came with X."
            )
        unknown = np.zeros(data.X.shape[0], dtype=bool)
        blocks = (block for block, _ in data.blocks())
        if rows is not None:
            index = _check_rows(rows, data, ids)
            unknown = index < 0
            blocks = data.blocks_of(index[~unknown])
        best = np.full((len(unknown), k), -1, dtype=np.intp)
        scores = np.full((len(unknown), k), np.nan)
        found = [self._best_unseen(block, k) for block in blocks if block.X.shape[0]]
        if found:
            best[~unknown] = np.concatenate([columns for columns, _ in found])
            scores[~unknown] = np.concatenate([values for _, values in found])
        if unknown.any():
            nothing = sparse.csr_array((1, data.X.shape[1]))
            nothing = EntryData(nothing, None, None, "missing")
            best[unknown], scores[unknown] = self._best_unseen(nothing, k)
        if ids is not None:
            best = ids.column_ids(best)
        return (best, scores) if return_scores else best

    def _best_unseen(self, data, k):
        """Return the columns to recommend to rows in memory, and their predictions."""
        n_rows, n_columns = data.X.shape
        factors = self._solve(data)
        result = np.full((n_rows, k), -1, dtype=np.intp)
        predictions = np.full((n_rows, k), np.nan)
        k = min(k, n_columns)
        for rows in row_blocks(n_rows, n_columns):
            z = factors[rows] @ self.components_ + self._offset()
            if sparse.issparse(data.X):
                block = data.X[rows]
                i = np.repeat(np.arange(len(z)), np.diff(block.indptr))
                z[i, block.indices] = -np.inf
            elif data.observed is None:
                z[:] = -np.inf
            else:
                z[data.observed[rows]] = -np.inf
            best = np.argpartition(-z, k - 1, axis=1)[:, :k]
            scores = np.take_along_axis(z, best, axis=1)
            order = np.argsort(-scores, axis=1, kind="stable")
            best = np.take_along_axis(best, order, axis=1)
            scores = np.take_along_axis(scores, order, axis=1)
            seen = np.isneginf(scores)
            result[rows, :k] = np.where(seen, -1, best)
            predictions[rows, :k] = np.where(seen, np.nan, self._link(scores))
        return result, predictions

    def score(self, X, y=None):
        """Return how well entries are predicted that the model was not shown.

        Half of the observed entries of each row are hidden, always the same ones, the
        factors of the row are solved on the others, and the hidden ones are predicted.

        Parameters
        ----------
        X : {array-like, sparse matrix, row source} of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.

        Returns
        -------
        score : float
            Fraction of the deviance explained: 1 is perfect, 0 is as good as the mean
            of the hidden entries. For the squared error this is R^2.
        """
        check_is_fitted(self)
        data = self._check_X(X)
        generator = np.random.default_rng(SCORE_SEED)
        hidden_values, predictions = [], []
        for values, weights in dense_blocks(data):
            observed = weights > 0
            keys = np.where(observed, generator.random(values.shape), 2.0)
            rank = keys.argsort(axis=1).argsort(axis=1)
            hidden = rank < (observed.sum(axis=1, keepdims=True) // 2)
            shown = observed & ~hidden
            block = EntryData(np.where(shown, values, 0), shown, None, "missing")
            z = self._solve(block) @ self.components_ + self._offset()
            hidden_values.append(values[hidden])
            predictions.append(z[hidden])
        y, z = np.concatenate(hidden_values), np.concatenate(predictions)
        if not len(y):
            raise ValueError(
                "score needs a row with two observed entries: it hides half of them."
            )
        error = self._deviance(y, z).mean()
        mean = y.mean()
        constant = {"log_loss": logit, "poisson": np.log}
        with np.errstate(divide="ignore"):
            z0 = constant[self.loss](mean) if self.loss in constant else mean
        if self.loss in constant:
            # The mean may be 0 or 1: a prediction that is certain.
            z0 = np.clip(z0, -LARGEST_Z, LARGEST_Z)
        null = self._deviance(y, np.full(len(y), z0)).mean()
        if null <= 0:
            return 1.0 if error <= 0 else 0.0
        return float(1 - error / null)

    def _deviance(self, y, z):
        return deviance(self.loss, self._epsilon, y, z)


def _check_rows(rows, data, ids):
    """Return the indices of rows of a query; -1 is a row that is not known."""
    rows = np.atleast_1d(as_ids(rows, "rows"))
    if ids is not None:
        return ids.row_index(rows)
    n_rows = data.X.shape[0]
    if rows.dtype.kind not in "iu":
        raise TypeError(
            f"rows must be indices of rows of X, got {rows.dtype}; give ids=, what "
            "matrix_from_entries returns, to name rows by their ids."
        )
    if len(rows) and not -1 <= rows.min() <= rows.max() < n_rows:
        raise IndexError(
            f"rows must be from 0 to {n_rows - 1}, or -1 for one that is not known."
        )
    return rows
