"""Fits on rows in partitions, by whatever calls functions where these are.

:mod:`sklearn_awsgd.dask` is made of this; for other clusters a few lines will do. What
is needed is a function ``run(function, *arguments)`` that returns
``function(partition, *arguments)`` of every :class:`Partition`, or for a factorization
of every :class:`MatrixPartition`, in their order.

Examples
--------
>>> import numpy as np
>>> from sklearn_awsgd import AWSGDClassifier
>>> from sklearn_awsgd.partitions import Partition, fit_partitions
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(1000, 3))
>>> y = X[:, 0] > 1
>>> parts = [Partition(X[i::4], y[i::4], number=i) for i in range(4)]
>>> def run(function, *arguments):
...     return [function(part, *arguments) for part in parts]
>>> fit_partitions(AWSGDClassifier(random_state=0), run).score(X, y) > 0.95
True
"""

from sklearn_awsgd._partitions.entries import MatrixPartition
from sklearn_awsgd._partitions.factorization import factorize_partitions
from sklearn_awsgd._partitions.linear import fit_partitions
from sklearn_awsgd._partitions.rows import Partition

__all__ = ["MatrixPartition", "Partition", "factorize_partitions", "fit_partitions"]
