"""Estimators for dask collections: the same optimum, on a cluster."""

from functools import partial

import numpy as np
from sklearn.utils.metaestimators import available_if

try:
    import dask  # noqa: F401
    import distributed  # noqa: F401
    import pandas  # noqa: F401
except ImportError as error:
    raise ImportError(
        "sklearn_awsgd.dask needs dask and distributed: pip install "
        "'sklearn_awsgd[dask]'."
    ) from error

from sklearn_awsgd._factorization.factorization import AWSGDMatrixFactorization
from sklearn_awsgd._linear.classifier import AWSGDClassifier, _has_probabilities
from sklearn_awsgd._linear.regressor import AWSGDRegressor
from sklearn_awsgd._partitions.cluster import is_collection
from sklearn_awsgd._partitions.collections import OnCluster, documented
from sklearn_awsgd._partitions.entries import MatrixPartition
from sklearn_awsgd._partitions.factorization import factorize_partitions
from sklearn_awsgd._partitions.linear import fit_partitions
from sklearn_awsgd._partitions.rows import Partition


class _LinearOnCluster(OnCluster):
    """What classifier and regressor share."""

    def fit(self, X, y, coef_init=None, intercept_init=None, sample_weight=None):
        """Fit the model to rows that stay on the workers.

        Parameters
        ----------
        X : dask array or data frame of shape (n_samples, n_features)
            Rows, dense or blocks of CSR; sizes of blocks may be unknown.
        y : dask array or series of shape (n_samples,) or (n_samples, n_labels)
            Targets, in blocks that go with those of X.
        coef_init, intercept_init : array-like, default=None
            Coefficients and intercepts to start from.
        sample_weight : dask array or series of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        fit = partial(
            fit_partitions, coef_init=coef_init, intercept_init=intercept_init
        )
        return self._fit_blocks(
            fit, Partition, X, ("y", y), ("sample_weight", sample_weight)
        )

    def predict(self, X):
        """Return the prediction of each row.

        Parameters
        ----------
        X : dask array or data frame, or {array-like, sparse matrix}
            Rows, of shape (n_samples, n_features).

        Returns
        -------
        y : dask array, or ndarray, of shape (n_samples,) or (n_samples, n_labels)
            Lazy where X is a collection.
        """
        return self._lazily("predict", X)

    def _partial_fit(self, X, *arguments, **options):
        self._refuse_collection(X)
        return super()._partial_fit(X, *arguments, **options)


@documented
class DaskAWSGDClassifier(_LinearOnCluster, AWSGDClassifier):
    """AWSGDClassifier for dask collections: the same optimum, on a cluster.

    Rows stay on their workers. A few thousand of them, drawn by importance from all
    blocks, are trained first; exact passes over all blocks go on from there, each with
    one small message in both directions. Workers may come and go. Parameters and fitted
    attributes are those of :class:`~sklearn_awsgd.AWSGDClassifier`.

    See Also
    --------
    sklearn_awsgd.AWSGDClassifier : For one machine.

    Notes
    -----
    The client is the current one: that of ``distributed.Client(...)``, or of a block
    ``with client.as_current()``.

    `learning_rate` has to be "auto"; `early_stopping`, `average`, `count_draws` and
    ``shuffle=False`` need all rows in one place and are refused. `sampler_` and
    `sampling_history_` tell of the rows that were drawn first.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn_awsgd.dask import DaskAWSGDClassifier
    >>> client = Client(processes=False, n_workers=1, dashboard_address=":0")
    >>> rng = da.random.default_rng(0)
    >>> X = rng.normal(size=(10_000, 5), chunks=(2_500, 5))
    >>> y = X[:, 0] + X[:, 1] > 2
    >>> clf = DaskAWSGDClassifier(random_state=0).fit(X, y)
    >>> clf.predict(X)
    dask.array<_call_on_block, shape=(10000,), dtype=bool, chunksize=(2500,), ...>
    >>> bool(clf.score(X, y) > 0.98)
    True
    >>> client.close()
    """

    def decision_function(self, X):
        """Return the signed distance to the separating hyperplanes, up to scale.

        Parameters
        ----------
        X : dask array or data frame, or {array-like, sparse matrix}
            Rows, of shape (n_samples, n_features).

        Returns
        -------
        scores : dask array, or ndarray, of shape (n_samples,) or (n_samples, n_classes)
            Lazy where X is a collection.
        """
        return self._lazily("decision_function", X)

    @available_if(_has_probabilities)
    def predict_proba(self, X):
        """Return the probability of each class.

        Parameters
        ----------
        X : dask array or data frame, or {array-like, sparse matrix}
            Rows, of shape (n_samples, n_features).

        Returns
        -------
        probabilities : dask array, or ndarray, of shape (n_samples, n_classes)
            Lazy where X is a collection.
        """
        return self._lazily("predict_proba", X)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X):
        """Return the logarithm of :meth:`predict_proba`.

        Parameters
        ----------
        X : dask array or data frame, or {array-like, sparse matrix}
            Rows, of shape (n_samples, n_features).

        Returns
        -------
        log_probabilities : dask array, or ndarray, of shape (n_samples, n_classes)
            Lazy where X is a collection.
        """
        return self._lazily("predict_log_proba", X)

    def score(self, X, y, sample_weight=None):
        """Return the accuracy.

        Parameters
        ----------
        X : dask array or data frame, or {array-like, sparse matrix}
            Rows, of shape (n_samples, n_features).
        y : dask array or series, or array-like
            Labels.
        sample_weight : dask array or series, or array-like, default=None
            Weights of the rows.

        Returns
        -------
        score : float
            Share of the rows that are predicted right, all labels of a row.
        """
        if not is_collection(X):
            return self.to_local().score(X, y, sample_weight)
        n, right = self._block_sums(accuracy_sums, X, y, sample_weight)
        return float(right / n)


@documented
class DaskAWSGDRegressor(_LinearOnCluster, AWSGDRegressor):
    """AWSGDRegressor for dask collections: the same optimum, on a cluster.

    See :class:`DaskAWSGDClassifier` for how it is trained, and for what is refused.

    See Also
    --------
    sklearn_awsgd.AWSGDRegressor : For one machine.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn_awsgd.dask import DaskAWSGDRegressor
    >>> client = Client(processes=False, n_workers=1, dashboard_address=":0")
    >>> X = da.random.default_rng(0).normal(size=(10_000, 5), chunks=(2_500, 5))
    >>> model = DaskAWSGDRegressor(random_state=0).fit(X, X[:, 0] - X[:, 1])
    >>> bool(model.score(X, X[:, 0] - X[:, 1]) > 0.99)
    True
    >>> client.close()
    """

    def score(self, X, y, sample_weight=None):
        """Return the coefficient of determination, R^2.

        Parameters
        ----------
        X : dask array or data frame, or {array-like, sparse matrix}
            Rows, of shape (n_samples, n_features).
        y : dask array or series, or array-like
            Targets.
        sample_weight : dask array or series, or array-like, default=None
            Weights of the rows.

        Returns
        -------
        score : float
            1 is perfect, 0 is as good as the mean.
        """
        if not is_collection(X):
            return self.to_local().score(X, y, sample_weight)
        n, mean = self._block_sums(mean_sums, X, y, sample_weight)
        error, total = self._block_sums(square_sums, X, y, sample_weight, mean / n)
        return float(1 - error / total) if total > 0 else float(error == 0)


@documented
class DaskAWSGDMatrixFactorization(OnCluster, AWSGDMatrixFactorization):
    """AWSGDMatrixFactorization for dask collections: rows in blocks on a cluster.

    Ten thousand rows at most, from all blocks, are trained first. Then rows and columns
    are solved for in turn, whatever the loss and whether or not entries are missing:
    each worker solves for the rows of its blocks, exactly, and sends what a step of the
    columns needs of them. The step is the exact solution for the squared error, and a
    damped Newton step that never raises the objective otherwise. Parameters and fitted
    attributes are those of :class:`~sklearn_awsgd.AWSGDMatrixFactorization`.

    See Also
    --------
    sklearn_awsgd.AWSGDMatrixFactorization : For one machine.

    Notes
    -----
    `learning_rate` has to be "auto" and `step` "proximal". `sampler_`,
    `row_probabilities_` and `sampling_history_` tell of the rows that were drawn first.
    In each direction a pass sends as many numbers for a block as the columns have
    factors; where entries are missing or weighted, or the loss is not the squared
    error, a worker sends half of their square for each column.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn_awsgd.dask import DaskAWSGDMatrixFactorization
    >>> client = Client(processes=False, n_workers=1, dashboard_address=":0")
    >>> rng = da.random.default_rng(0)
    >>> U = 3 * rng.normal(size=(2_000, 3), chunks=(500, 3))
    >>> X = U @ rng.normal(size=(3, 20)) + rng.normal(size=(2_000, 20))
    >>> X = X.rechunk((500, 20)).persist()
    >>> model = DaskAWSGDMatrixFactorization(n_components=3, random_state=0).fit(X)
    >>> model.transform(X)
    dask.array<_call_on_block, shape=(2000, 3), dtype=float64, chunksize=(500, 3), ...>
    >>> bool(model.reconstruction_err_ < 0.5)
    True
    >>> client.close()
    """

    def fit(self, X, y=None, entry_weight=None):
        """Fit the model to rows that stay on the workers.

        Parameters
        ----------
        X : dask array or data frame of shape (n_samples, n_features)
            The matrix, dense or blocks of CSR; sizes of blocks may be unknown.
        y : None
            Ignored.
        entry_weight : dask array or data frame of the shape of X, default=None
            Weights of the entries, in blocks that go with those of X.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        return self._fit_blocks(
            factorize_partitions, MatrixPartition, X, ("entry_weight", entry_weight)
        )

    def partial_fit(self, X, y=None, entry_weight=None, access_cost=None):
        """Make one pass over a chunk of a stream of rows, which is in one place.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows of the chunk.
        y : None
            Ignored.
        entry_weight, access_cost : array-like, default=None
            As for :class:`~sklearn_awsgd.AWSGDMatrixFactorization`.

        Returns
        -------
        self : object
            The estimator.
        """
        self._refuse_collection(X)
        return super().partial_fit(X, y, entry_weight, access_cost)

    def transform(self, X):
        """Return the factors of rows, each solved exactly on its observed entries.

        Parameters
        ----------
        X : dask array or data frame, or {array-like, sparse matrix}
            Rows, of shape (n_samples, n_features).

        Returns
        -------
        factors : dask array, or ndarray, of shape (n_samples, n_factors)
            Lazy where X is a collection.
        """
        return self._lazily("transform", X)

    def inverse_transform(self, X):
        """Return the rows that factors stand for.

        Parameters
        ----------
        X : dask array, or array-like, of shape (n_samples, n_factors)
            Factors, as ``transform`` returns them.

        Returns
        -------
        rows : dask array, or ndarray, of shape (n_samples, n_features)
            Lazy where X is a collection.
        """
        return self._lazily("inverse_transform", X)

    def predict(self, X):
        """Return the model's reconstruction of dense rows, holes filled.

        Parameters
        ----------
        X : dask array or data frame, or array-like
            Rows, of shape (n_samples, n_features).

        Returns
        -------
        rows : dask array, or ndarray, of shape (n_samples, n_features)
            Lazy where X is a collection.
        """
        return self._lazily("predict", X)

    def recommend(self, X, k=10):
        """Return the columns with the largest predictions that a row has not seen.

        Parameters
        ----------
        X : dask array or data frame, or {array-like, sparse matrix}
            Rows, of shape (n_samples, n_features).
        k : int, default=10
            Number of columns for each row.

        Returns
        -------
        columns : dask array, or ndarray, of int of shape (n_samples, k)
            Best first; -1 where a row has fewer than k unseen columns.
        """
        return self._lazily("recommend", X, k)

    def predict_entries(self, X, rows, columns):
        """Return the predictions of single entries of rows in one place.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows, as observed.
        rows, columns : array-like of int of shape (n_entries,)
            Which entries.

        Returns
        -------
        values : ndarray of shape (n_entries,)
            Predictions.
        """
        self._need_rows("predict_entries", X)
        return self.to_local().predict_entries(X, rows, columns)

    def score(self, X, y=None):
        """Return how well entries are predicted that the model was not shown.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows in one place.
        y : None
            Ignored.

        Returns
        -------
        score : float
            Fraction of the deviance explained.
        """
        self._need_rows("score", X)
        return self.to_local().score(X)

    def _need_rows(self, method, X):
        if is_collection(X):
            raise TypeError(
                f"{method} takes rows in one place, not a collection; give it some of "
                "them, such as X.partitions[0].compute()."
            )


def accuracy_sums(local, X, y, weight):
    """Return the weight of a block, and that of what is predicted right."""
    right = np.asarray(y) == local.predict(X)
    right = right.all(axis=1) if right.ndim == 2 else right
    return weight.sum(), weight @ right


def mean_sums(local, X, y, weight):
    """Return the weight of a block, and the weighted sum of the targets."""
    return weight.sum(), weight @ np.asarray(y, dtype=np.float64)


def square_sums(local, X, y, weight, mean):
    """Return the sums of the squared errors and of the squared deviations."""
    y = np.asarray(y, dtype=np.float64)
    return weight @ (y - local.predict(X)) ** 2, weight @ (y - mean) ** 2
