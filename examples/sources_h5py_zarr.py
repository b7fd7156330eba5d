"""
Train from HDF5 and Zarr files without loading them
===================================================

Both can be indexed by sorted arrays of row numbers, which is all that ``IndexedRows``
needs. Needs ``pip install sklearn_awsgd[sources]``; what is not installed is left out.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sklearn_awsgd import AWSGDClassifier
from sklearn_awsgd.sources import IndexedRows, RowCache

CHUNK = 4096


class ZarrRows:
    """What ``IndexedRows`` needs of a Zarr array: rows by number are its ``oindex``."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, rows):
        return self.array[rows] if isinstance(rows, slice) else self.array.oindex[rows]


def hdf5_source(path, X):
    """Write X to an HDF5 file; return it as a row source."""
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, chunks=(min(CHUNK, len(X)), X.shape[1]))
    return IndexedRows(h5py.File(path)["X"])


def zarr_source(path, X):
    """Write X to a Zarr array; return it as a row source."""
    import zarr

    array = zarr.open(
        str(path),
        mode="w",
        shape=X.shape,
        chunks=(min(CHUNK, len(X)), X.shape[1]),
        dtype=X.dtype,
    )
    array[:] = X
    return IndexedRows(ZarrRows(array))


ADAPTERS = {"h5py": hdf5_source, "zarr": zarr_source}


def main():
    """Fit from each kind of file, and from memory."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 20)).astype(np.float32)
    y = X @ rng.normal(size=20) + rng.normal(size=len(X)) > 1
    near = AWSGDClassifier(random_state=0).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        for name, make in ADAPTERS.items():
            if find_spec(name) is None:
                print(f"{name} is not installed")
                continue
            source = RowCache(make(Path(folder) / name, X), max_bytes=1_000_000)
            far = AWSGDClassifier(random_state=0).fit(source, y)
            ratio = far.history_["objective"][-1] / near.history_["objective"][-1]
            print(f"{name}: objective {ratio:.6f} of that in memory")


if __name__ == "__main__":
    main()
