"""What the estimators for dask collections share: blocks in, lazy collections out."""

import inspect

import dask
import dask.array as da
import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_awsgd._partitions.cluster import (
    ClusterRun,
    blocks_of,
    check_memory,
    find_client,
    is_collection,
    is_frame,
    whole_rows,
)
from sklearn_awsgd._validation import unchanged_on_failure


def documented(cls):
    """Give a docstring the parameters and attributes of the local estimator."""
    local = inspect.cleandoc(cls._local_class().__doc__)
    begin, end = local.index("Parameters\n---"), local.index("See Also\n---")
    own = inspect.cleandoc(cls.__doc__) + "\n"
    cls.__doc__ = own.replace("See Also\n---", local[begin:end] + "See Also\n---", 1)
    return cls


class OnCluster:
    """What the estimators for collections share: blocks in, lazy collections out.

    The class after this one in the order of inheritance is the estimator for one
    machine, whose parameters and fitted attributes these have.
    """

    @classmethod
    def _local_class(cls):
        after = cls.__mro__.index(OnCluster) + 1
        while issubclass(cls.__mro__[after], OnCluster):
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

    def _fit_blocks(self, fit, partition, X, *others):
        """Fit a local estimator to blocks on the cluster, and become what it is."""
        client = find_client()
        blocks = blocks_of(X, *others)
        check_memory(client, whole_rows(X))
        local = self.to_local()
        with unchanged_on_failure(self):
            vars(local).pop("feature_names_in_", None)
            OnCluster._check_columns(local, X)
            run = ClusterRun(client, partition, blocks)
            self._take_over(fit(local, run))
        return self

    def _check_columns(self, X):
        """Take names and number of the columns of a collection."""
        if X.ndim != 2:
            raise ValueError(
                f"Expected 2D array, got {X.ndim}D array instead; reshape X to rows "
                "and features."
            )
        example = _example(X, n_rows=0)
        validate_data(self, example, reset=True, skip_check_array=True)

    def _refuse_collection(self, X):
        if is_collection(X):
            raise TypeError(
                "partial_fit learns one chunk, in one place; use fit, or dask-ml's "
                "Incremental with the estimator for one machine."
            )

    def _lazily(self, method, X, *arguments):
        """Return what a method of the local estimator says of each block of X."""
        check_is_fitted(self)
        local = self.to_local()
        if not is_collection(X):
            return getattr(local, method)(X, *arguments)
        example = getattr(local, method)(_example(X, n_rows=1), *arguments)
        if is_frame(X):
            shape = (np.nan, *example.shape[1:])
            predict = dask.delayed(_call_on_block)
            local = dask.delayed(local)
            blocks = [
                da.from_delayed(
                    predict(block, local, method, example, *arguments),
                    shape,
                    example.dtype,
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
            *arguments,
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


def _call_on_block(block, local, method, example, *arguments):
    """Return what a method says of a block, which may have no rows."""
    if not block.shape[0]:
        return example[:0]
    return getattr(local, method)(block, *arguments)
