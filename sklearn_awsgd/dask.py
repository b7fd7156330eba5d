"""Estimators for dask collections: the same optimum, on a cluster."""

import inspect

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

try:
    import dask
    import dask.array as da
    import distributed  # noqa: F401
    import pandas as pd
except ImportError as error:
    raise ImportError(
        "sklearn_awsgd.dask needs dask and distributed: pip install "
        "'sklearn_awsgd[dask]'."
    ) from error

from sklearn_awsgd._linear.classifier import AWSGDClassifier, _has_probabilities
from sklearn_awsgd._linear.regressor import AWSGDRegressor
from sklearn_awsgd._partitions.cluster import (
    ClusterRun,
    blocks_of,
    check_memory,
    find_client,
    is_collection,
    is_frame,
    whole_rows,
)
from sklearn_awsgd._partitions.linear import fit_partitions
from sklearn_awsgd._partitions.rows import Partition
from sklearn_awsgd._validation import unchanged_on_failure


def _documented(cls):
    """Give a docstring the parameters and attributes of the local estimator."""
    local = inspect.cleandoc(cls._local_class().__doc__)
    begin, end = local.index("Parameters\n---"), local.index("See Also\n---")
    own = inspect.cleandoc(cls.__doc__) + "\n"
    cls.__doc__ = own.replace("See Also\n---", local[begin:end] + "See Also\n---", 1)
    return cls


class _OnCluster:
    """What the estimators for collections share: blocks in, lazy collections out.

    The class after this one in the order of inheritance is the estimator for one
    machine, whose parameters and fitted attributes these have.
    """

    @classmethod
    def _local_class(cls):
        after = cls.__mro__.index(_OnCluster) + 1
        while issubclass(cls.__mro__[after], _OnCluster):
            after += 1
        return cls.__mro__[after]

    def to_local(self):
        """Return the estimator for one machine, fitted as this one is.

        Returns
        -------
        estimator : object
            It knows nothing of dask.
        """
        local = self._local_class()(**self.get_params(deep=False))
        params = self.get_params(deep=False)
        vars(local).update({k: v for k, v in vars(self).items() if k not in params})
        return local

    def _take_over(self, local):
        """Take the fitted attributes of an estimator for one machine."""
        vars(self).clear()
        vars(self).update(vars(local))

    def _check_columns(self, X):
        """Take names and number of the columns of a collection."""
        if X.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {X.ndim}D array instead; reshape X to rows "
                "and features."
            )
        example = _example(X, n_rows=0)
        validate_data(self, example, reset=True, skip_check_array=True)

    def _lazily(self, method, X):
        """Return what a method of the local estimator says of each block of X."""
        check_is_fitted(self)
        local = self.to_local()
        if not is_collection(X):
            return getattr(local, method)(X)
        example = getattr(local, method)(_example(X, n_rows=1))
        if is_frame(X):
            shape = (np.nan, *example.shape[1:])
            predict = dask.delayed(_call_on_block)
            local = dask.delayed(local)
            blocks = [
                da.from_delayed(
                    predict(block, local, method, example), shape, example.dtype
                )
                for block in X.to_delayed()
            ]
            return da.concatenate(blocks)
        X = whole_rows(X)
        return X.map_blocks(
            _call_on_block,
            local,
            method,
            example,
            dtype=example.dtype,
            chunks=(X.chunks[0], *((size,) for size in example.shape[1:])),
            drop_axis=1 if example.ndim == 1 else None,
            meta=example[:0],
        )

    def _block_sums(self, function, X, y, sample_weight, *arguments):
        """Return the sum over blocks of a function of the local estimator and them."""
        check_is_fitted(self)
        blocks = blocks_of(X, ("y", y), ("sample_weight", sample_weight))
        call, local = dask.delayed(_sums_of_block), dask.delayed(self.to_local())
        sums = [call(function, local, *block, *arguments) for block in blocks]
        return np.sum(dask.compute(*sums), axis=0)


def _sums_of_block(function, local, X, y, sample_weight, *arguments):
    """Return sums over the rows of a block, which may have none."""
    if not X.shape[0]:
        return 0.0, 0.0
    weight = np.ones(X.shape[0]) if sample_weight is None else np.asarray(sample_weight)
    return function(local, X, y, weight, *arguments)


def _example(X, n_rows):
    """Return rows of zeros with the columns of a collection."""
    zeros = np.zeros((n_rows, X.shape[1]))
    if is_frame(X):
        return pd.DataFrame(zeros, columns=X.columns)
    return zeros.astype(X.dtype) if X.dtype.kind == "f" else zeros


def _call_on_block(block, local, method, example):
    """Return what a method says of a block, which may have no rows."""
    return getattr(local, method)(block) if block.shape[0] else example[:0]


class _LinearOnCluster(_OnCluster):
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
        client = find_client()
        blocks = blocks_of(X, ("y", y), ("sample_weight", sample_weight))
        check_memory(client, whole_rows(X))
        local = self.to_local()
        with unchanged_on_failure(self):
            vars(local).pop("feature_names_in_", None)
            _OnCluster._check_columns(local, X)
            run = ClusterRun(client, Partition, blocks)
            self._take_over(fit_partitions(local, run, coef_init, intercept_init))
        return self

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
        if is_collection(X):
            raise TypeError(
                "partial_fit learns one chunk, in one place; use fit, or dask-ml's "
                "Incremental with the estimator for one machine."
            )
        return super()._partial_fit(X, *arguments, **options)


@_documented
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
    >>> client = Client(processes=False, n_workers=1, dashboard_address=None)
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


@_documented
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
    >>> client = Client(processes=False, n_workers=1, dashboard_address=None)
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
