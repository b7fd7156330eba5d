"""Partitions on a dask cluster: from collections to futures, and what may fail."""

from contextlib import contextmanager

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
from distributed import KilledWorker, get_client
from distributed.client import ClosedClientError, FutureCancelledError

from sklearn_awsgd._partitions.rows import add_up

# Results that are added in one place, before the sum goes on to the next.
FAN_IN = 16


class ClusterRun:
    """Calls functions on partitions that live on the workers of a client.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    make : callable
        Makes a partition of blocks and its number.
    blocks : list of tuple
        For each partition the arguments of `make`, delayed.
    """

    def __init__(self, client, make, blocks):
        self._client = client
        delayed = dask.delayed(make, pure=False)
        parts = [delayed(*block, number) for number, block in enumerate(blocks)]
        self._partitions = client.compute(parts)

    def __call__(self, function, *arguments):
        """Return the results of a function of each partition, or some sums of them.

        Sums are taken in the order of the partitions, whatever the workers.
        """
        with told_failures():
            # Large arguments become tasks of their own and travel once to each worker.
            futures = self._client.map(
                call,
                self._partitions,
                function=function,
                arguments=arguments,
                pure=False,
            )
            while hasattr(function, "adds_up") and len(futures) > FAN_IN:
                groups = [
                    futures[first : first + FAN_IN]
                    for first in range(0, len(futures), FAN_IN)
                ]
                futures = [
                    self._client.submit(add_up, group, pure=False) for group in groups
                ]
            return self._client.gather(futures)


def call(partition, function, arguments):
    """Return the result of a function of a partition."""
    return function(partition, *arguments)


@contextmanager
def told_failures():
    """Say what it means when a cluster fails."""
    try:
        yield
    except KilledWorker as error:
        raise MemoryError(
            f"{error} Most often a worker had not enough memory for a block: use "
            "smaller blocks (rechunk or repartition), or workers with more memory."
        ) from error
    except (ClosedClientError, FutureCancelledError) as error:
        raise RuntimeError(
            "The cluster lost what it cannot compute again: the client was closed, or "
            "data were scattered to a worker that is gone. Connect again, and give "
            "collections that are read from files or made by tasks."
        ) from error


def find_client():
    """Return the client that dask users expect."""
    try:
        return get_client()
    except ValueError as error:
        raise ValueError(
            "There is no dask client; make one first, for example with "
            "distributed.Client()."
        ) from error


def is_frame(X):
    """Return whether X is a dask data frame or series."""
    return isinstance(X, dd.DataFrame | dd.Series)


def is_collection(X):
    """Return whether X is a dask array, data frame or series."""
    return isinstance(X, da.Array) or is_frame(X)


def blocks_of(X, *others):
    """Return the blocks of rows of collections that go together, a tuple for each.

    Parameters
    ----------
    X : dask array or data frame
        Rows.
    *others : (str, dask array, series or None) pairs
        Name and what belongs to the rows: targets, weights.
    """
    for name, collection in (("X", X), *others):
        if collection is not None and not is_collection(collection):
            raise TypeError(
                f"{name} must be a dask array or data frame, got "
                f"{type(collection).__name__}; use dask.array.from_array, or the "
                "estimator for one machine."
            )
    X = whole_rows(X)
    columns = [delayed_blocks(X)]
    for name, collection in others:
        if collection is None:
            columns.append([None] * len(columns[0]))
            continue
        if isinstance(collection, da.Array):
            collection = aligned(whole_rows(collection), X)
        blocks = delayed_blocks(collection)
        if len(blocks) != len(columns[0]):
            raise ValueError(
                f"{name} has {len(blocks)} blocks and X has {len(columns[0])}; rows "
                "that belong together have to be in blocks of the same number."
            )
        columns.append(blocks)
    return list(zip(*columns, strict=True))


def whole_rows(X):
    """Return an array whose blocks have all columns."""
    if isinstance(X, da.Array) and X.ndim == 2 and X.numblocks[1] > 1:
        return X.rechunk({1: -1})
    return X


def aligned(collection, X):
    """Return an array in blocks of as many rows as those of X, where they are known."""
    if not isinstance(X, da.Array):
        return collection
    rows = X.chunks[0]
    known = not (np.isnan(rows).any() or np.isnan(collection.chunks[0]).any())
    if known and sum(rows) != collection.shape[0]:
        raise ValueError(
            "Found input variables with inconsistent numbers of samples: "
            f"[{sum(rows)}, {collection.shape[0]}]"
        )
    if known and rows != collection.chunks[0]:
        return collection.rechunk({0: rows})
    return collection


def delayed_blocks(collection):
    """Return the blocks of rows, delayed."""
    return list(np.ravel(collection.to_delayed()))


def check_memory(client, X):
    """Raise MemoryError where no worker could hold a block of a dense array."""
    if not isinstance(X, da.Array) or not isinstance(X._meta, np.ndarray):
        return
    rows = max(X.chunks[0], default=0)
    limits = [
        worker["memory_limit"]
        for worker in client.scheduler_info(n_workers=-1)["workers"].values()
    ]
    # A worker without a limit tells 0.
    if np.isnan(rows) or not limits or min(limits) == 0:
        return
    size = rows * np.prod(X.shape[1:]) * X.dtype.itemsize
    if size > max(limits):
        raise MemoryError(
            f"A block of X has {rows} rows and {size / 1e9:.3g} GB, but no worker may "
            f"use more than {max(limits) / 1e9:.3g} GB; use smaller blocks, such as "
            f"X.rechunk(({int(rows * max(limits) / size / 4)}, -1))."
        )
