"""Row sources: training rows that live elsewhere, on a disk or behind a network.

A *row source* is any object with

``shape``
    The numbers of rows and features.
``dtype``
    The type of the numbers, float32 or float64.
``take(indices)``
    The rows with these numbers, in this order, as an array or a CSR matrix. It may be
    called by another thread than the one that fits, by one at a time.

and, if it likes,

``places(indices)``
    Where these rows are now, as integers: rows of one place are fetched together and
    cost alike. Time-aware samplers measure what a row of each place costs.

Retries are the matter of the source. An exception of ``take`` reaches the user, with
the rows concerned, and the estimator stays as it was.
"""

from collections import OrderedDict
from pathlib import Path
from threading import Lock

import numpy as np
from scipy import sparse

from sklearn_awsgd._validation import check_number

__all__ = ["ChunkFolder", "IndexedRows", "RowCache"]

# What the bookkeeping of a row in a cache takes, beside its numbers.
BYTES_OF_ENTRY = 250
# A row at random from a file takes as long as about so many rows in order: a hundred
# from the cache of the operating system, a thousand and more from a disk.
ROWS_FOR_ONE = 500
# What is read at a time to choose rows from.
BYTES_READ = 2**20


class IndexedRows:
    """A row source of anything that can be indexed by arrays: a memory map, HDF5, Zarr.

    A :class:`numpy.memmap` can be given to ``fit`` as it is; wrapped in this it is a
    source, of which only some blocks are in memory at a time.

    Parameters
    ----------
    rows : object
        It has ``shape`` and ``dtype``, and ``rows[indices]`` for sorted indices without
        repetition, which is all that h5py takes.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_awsgd import AWSGDRegressor
    >>> from sklearn_awsgd.sources import IndexedRows
    >>> X = np.random.default_rng(0).normal(size=(1000, 3))
    >>> reg = AWSGDRegressor(random_state=0).fit(IndexedRows(X), X @ [1.0, 2.0, 3.0])
    >>> reg.coef_.round(2)
    array([1., 2., 3.])
    """

    def __init__(self, rows):
        self.rows = rows
        self.shape, self.dtype = tuple(rows.shape), np.dtype(rows.dtype)

    def take(self, indices):
        """Return rows by their numbers.

        Parameters
        ----------
        indices : ndarray of int
            The numbers, in any order, perhaps repeated.

        Returns
        -------
        rows : ndarray or CSR of shape (n_indices, n_features)
            The rows.
        """
        n = len(indices)
        if n and indices[-1] - indices[0] == n - 1 and (np.diff(indices) == 1).all():
            return self._read(slice(int(indices[0]), int(indices[-1]) + 1))
        unique, where = np.unique(indices, return_inverse=True)
        rows = self._read(unique)
        return (
            rows if len(unique) == n and (where[1:] > where[:-1]).all() else rows[where]
        )

    def _read(self, which):
        rows = self.rows[which]
        return rows if sparse.issparse(rows) else np.asarray(rows)


class ChunkFolder:
    """A row source of a folder with chunks of rows, files in NumPy's format.

    The chunks are the files ``*.npy`` in the order of their names; each has some rows
    of all features.

    Parameters
    ----------
    folder : str or path
        Where the files are.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from sklearn_awsgd.sources import ChunkFolder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for k in range(3):
    ...         np.save(Path(folder) / f"chunk-{k}.npy", np.full((4, 2), float(k)))
    ...     source = ChunkFolder(folder)
    ...     source.shape, source.take(np.array([9, 0]))
    ((12, 2), array([[2., 2.],
           [0., 0.]]))
    """

    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.npy"))
        if not self.files:
            raise ValueError(f"{folder} has no file *.npy: give a folder with chunks.")
        first, shapes, self._offsets = np.load(self.files[0], mmap_mode="r"), [], []
        for file in self.files:
            chunk = np.load(file, mmap_mode="r")
            if not chunk.flags.c_contiguous:
                raise ValueError(
                    f"{file.name} has its columns one after the other; save chunks as "
                    "numpy.ascontiguousarray(rows)."
                )
            self._offsets.append(chunk.offset)
            if chunk.ndim != 2 or (chunk.shape[1], chunk.dtype) != (
                first.shape[-1],
                first.dtype,
            ):
                raise ValueError(
                    f"{file.name} has shape {chunk.shape} and type {chunk.dtype}, "
                    f"{self.files[0].name} {first.shape} and {first.dtype}; all "
                    "chunks need the same features and type."
                )
            shapes.append(chunk.shape)
        self.starts = np.concatenate([[0], np.cumsum([n for n, _ in shapes])])
        self.shape = int(self.starts[-1]), shapes[0][1]
        self.dtype = first.dtype

    def places(self, indices):
        """Return the chunk of each row."""
        return np.searchsorted(self.starts, indices, side="right") - 1

    def take(self, indices):
        """Return rows by their numbers, as :meth:`IndexedRows.take` does."""
        indices = np.asarray(indices)
        rows, chunks = (
            np.empty((len(indices), self.shape[1]), self.dtype),
            self.places(indices),
        )
        for k in np.unique(chunks):
            inside = np.flatnonzero(chunks == k)
            wanted = indices[inside] - self.starts[k]
            if len(inside) == len(indices) and (np.diff(wanted) == 1).all():
                self._read(k, int(wanted[0]), rows)
            else:
                unique, where = np.unique(wanted, return_inverse=True)
                rows[inside] = self._gather(k, unique)[where]
        return rows

    def _gather(self, k, wanted):
        """Return rows of a chunk by sorted numbers."""
        if len(wanted) * ROWS_FOR_ONE < self.starts[k + 1] - self.starts[k]:
            # Mapped for this call alone: pages of past ones are not kept.
            shape = int(self.starts[k + 1] - self.starts[k]), self.shape[1]
            chunk = np.memmap(self.files[k], self.dtype, "r", self._offsets[k], shape)
            return chunk[wanted]
        rows = np.empty((len(wanted), self.shape[1]), self.dtype)
        step = max(BYTES_READ // (self.shape[1] * self.dtype.itemsize), 1)
        for start in range(int(wanted[0]), int(wanted[-1]) + 1, step):
            inside = slice(*np.searchsorted(wanted, [start, start + step]))
            if inside.start < inside.stop:
                size = int(wanted[inside.stop - 1]) - start + 1
                read = np.empty((size, self.shape[1]), self.dtype)
                self._read(k, start, read)
                rows[inside] = read[wanted[inside] - start]
        return rows

    def _read(self, k, first, rows):
        """Fill an array with neighbouring rows of a chunk."""
        with open(self.files[k], "rb", buffering=0) as file:
            file.seek(self._offsets[k] + first * self.shape[1] * self.dtype.itemsize)
            view = memoryview(rows).cast("B")
            while len(view):
                n_read = file.readinto(view)
                if not n_read:
                    raise OSError(f"{self.files[k]} has become shorter.")
                view = view[n_read:]


class RowCache:
    """A row source that keeps rows of another in memory.

    The rows asked for last stay, as many as fit. Exact passes read all rows in order
    and go past the cache. What is cheap changes while a model is trained: a time-aware
    sampler follows, as the rows it draws often are those that are kept.

    Parameters
    ----------
    source : row source
        Where rows come from.
    max_bytes : int
        Most memory that the rows kept may take.

    Attributes
    ----------
    n_bytes : int
        Memory that they take now.
    n_hits, n_misses : int
        Rows that were and were not there when they were asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_awsgd.sources import IndexedRows, RowCache
    >>> cache = RowCache(IndexedRows(np.eye(5)), max_bytes=10_000)
    >>> _ = cache.take(np.array([1, 2])), cache.take(np.array([2, 3]))
    >>> cache.n_hits, cache.n_misses
    (1, 3)
    """

    def __init__(self, source, max_bytes):
        check_number("max_bytes", max_bytes, low=0, integer=True)
        self.source, self.max_bytes = source, max_bytes
        self.shape, self.dtype = source.shape, source.dtype
        self.n_bytes = self.n_hits = self.n_misses = 0
        self._rows = OrderedDict()
        self._lock = Lock()

    def __getstate__(self):
        return {**vars(self), "_rows": OrderedDict(), "n_bytes": 0, "_lock": None}

    def __setstate__(self, state):
        vars(self).update(state)
        self._lock = Lock()

    def places(self, indices):
        """Return 0 for rows in memory, 1 + their place in the source for others."""
        inner = np.zeros(len(indices), dtype=np.intp)
        if hasattr(self.source, "places"):
            inner = np.asarray(self.source.places(indices))
        if not self._rows:
            return 1 + inner
        kept = np.fromiter((i in self._rows for i in indices.tolist()), bool)
        return np.where(kept, 0, 1 + inner)

    def take(self, indices):
        """Return rows by their numbers, as :meth:`IndexedRows.take` does."""
        with self._lock:
            numbers = np.asarray(indices).tolist()
            missing = np.array(
                sorted({i for i in numbers if i not in self._rows}), dtype=np.intp
            )
            self.n_misses += len(missing)
            self.n_hits += len(numbers) - len(missing)
            new = {}
            if len(missing):
                rows = self.source.take(missing)
                new = {i: rows[k : k + 1] for k, i in enumerate(missing.tolist())}
            parts = [new[i] if i in new else self._rows[i] for i in numbers]
            stack = sparse.vstack if sparse.issparse(parts[0]) else np.concatenate
            result = stack(parts)
            self._keep(numbers, new)
            return result.tocsr() if sparse.issparse(result) else result

    def _keep(self, numbers, new):
        """Keep new rows and make those asked for the last to go."""
        for i in numbers:
            if i in self._rows:
                self._rows.move_to_end(i)
            elif i in new:
                # A copy: a view would keep the whole batch.
                self._rows[i] = new[i].copy()
                self.n_bytes += _bytes_of(self._rows[i])
        while self.n_bytes > self.max_bytes:
            self.n_bytes -= _bytes_of(self._rows.popitem(last=False)[1])


def _bytes_of(row):
    """Return the memory that one row takes."""
    if sparse.issparse(row):
        numbers = row.data.nbytes + row.indices.nbytes + row.indptr.nbytes
        return numbers + 4 * BYTES_OF_ENTRY
    return row.nbytes + BYTES_OF_ENTRY
