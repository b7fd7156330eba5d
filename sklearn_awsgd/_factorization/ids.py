"""Matrices from lists of entries, and the ids of their rows and columns."""

import numbers
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

# Rows and columns are counted in 32 bits.
LARGEST_INDEX = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class MatrixIds:
    """The ids of the rows and the columns of a matrix, and where each of them is.

    Row i of the matrix is that of ``rows[i]``, column j that of ``columns[j]``.

    Attributes
    ----------
    rows, columns : ndarray of shape (n_rows,) and (n_columns,)
        The ids.

    See Also
    --------
    matrix_from_entries : Returns it with ``return_ids=True``.

    Examples
    --------
    >>> from sklearn_awsgd import matrix_from_entries
    >>> X, ids = matrix_from_entries(
    ...     ["ann", "bob", "ann"], [7, 7, 90], [5.0, 3.0, 1.0], return_ids=True
    ... )
    >>> ids.column_index([90, 8])
    array([ 1, -1])
    >>> ids.row_ids([1])
    array(['bob'], dtype=object)
    """

    rows: np.ndarray
    columns: np.ndarray

    def row_index(self, ids):
        """Return the rows of ids.

        Parameters
        ----------
        ids : array-like
            Ids.

        Returns
        -------
        index : ndarray of int of the shape of ids
            Their rows, -1 for an id that the matrix does not have.
        """
        return _find(self.rows, ids)

    def column_index(self, ids):
        """Return the columns of ids.

        Parameters
        ----------
        ids : array-like
            Ids.

        Returns
        -------
        index : ndarray of int of the shape of ids
            Their columns, -1 for an id that the matrix does not have.
        """
        return _find(self.columns, ids)

    def row_ids(self, index):
        """Return the ids of rows.

        Parameters
        ----------
        index : array-like of int
            Rows; -1 is none.

        Returns
        -------
        ids : ndarray of the shape of index
            Their ids; where there is none, None.
        """
        return _name(self.rows, index)

    def column_ids(self, index):
        """Return the ids of columns, such as those that are recommended.

        Parameters
        ----------
        index : array-like of int
            Columns; -1 is none.

        Returns
        -------
        ids : ndarray of the shape of index
            Their ids; where there is none, None.
        """
        return _name(self.columns, index)


def _find(known, ids):
    ids = as_ids(ids, "ids")
    # Equal ids have equal hashes whatever their types: 1 and 1.0 are the same.
    place = {name: k for k, name in enumerate(known.tolist())}
    index = [place.get(name, -1) for name in ids.ravel().tolist()]
    return np.array(index, dtype=np.intp).reshape(ids.shape)


def _name(known, index):
    index = np.asarray(index)
    if not (index < 0).any():
        return known[index]
    names = np.full(index.shape, None, dtype=object)
    names[index >= 0] = known[index[index >= 0]]
    return names


def as_ids(ids, name):
    """Return ids as an array, texts as Python objects; none may be missing."""
    array = np.asarray(ids)
    if array.dtype.kind in "US":
        # Anew from what was given: numbers among texts in a list are no texts.
        array = np.asarray(ids, dtype=object)
    # NaN and NaT are not equal to themselves.
    values = array.ravel()
    missing = values != values
    if array.dtype == object:
        missing = missing | np.array([value is None for value in values], dtype=bool)
    if np.any(missing):
        raise ValueError(
            f"{name} has {np.sum(missing)} missing ids, such as NaN or None; leave "
            "these entries out."
        )
    return array


def number_ids(ids, name):
    """Return the different ids, sorted, and the number of each that is given."""
    ids = as_ids(ids, name)
    try:
        return np.unique(ids, return_inverse=True)
    except TypeError as error:
        raise TypeError(
            f"{name} has ids that cannot be sorted: {error}; make all of them numbers "
            "or all of them texts, for example with astype(str)."
        ) from error


def matrix_from_entries(
    rows, columns=None, values=None, *, shape=None, return_ids=False
):
    """Build a CSR matrix from (row, column, value) triples, or from a frame of them.

    Zeros that are given are stored, so that with ``unstored="missing"`` they are
    observed.

    Parameters
    ----------
    rows : array-like of shape (n_entries,) or data frame with three columns
        Rows of the entries: indices from 0, or any ids with ``return_ids=True``. Or a
        frame whose columns are the rows, the columns and the values, in this order, and
        nothing else: ``ratings[["user", "item", "stars"]]``.
    columns : array-like of shape (n_entries,), default=None
        Columns of the entries, as indices or ids.
    values : array-like of shape (n_entries,), default=None
        Their values.
    shape : tuple of two int, default=None
        Shape of the matrix; the smallest that holds all entries for None.
    return_ids : bool, default=False
        Whether `rows` and `columns` are ids, such as names or numbers with gaps. Those
        that occur become the rows and columns of the matrix, sorted.

    Returns
    -------
    X : CSR array of shape `shape`
        The matrix, without duplicates and with sorted indices.
    ids : MatrixIds
        The ids of its rows and columns; only for ``return_ids=True``.

    Examples
    --------
    >>> from sklearn_awsgd import matrix_from_entries
    >>> X = matrix_from_entries([0, 0, 1], [0, 2, 1], [5.0, 3.0, 0.0])
    >>> X.shape, X.nnz
    ((2, 3), 3)
    >>> X, ids = matrix_from_entries(
    ...     ["ann", "bob", "ann"], ["tea", "tea", "jam"], [5, 3, 1], return_ids=True
    ... )
    >>> ids.columns
    array(['jam', 'tea'], dtype=object)
    """
    if columns is None and values is None:
        rows, columns, values = _frame_columns(rows)
    elif columns is None or values is None:
        raise TypeError(
            "Give rows, columns and values, or a data frame with these three columns."
        )
    values = check_array(
        values,
        ensure_2d=False,
        ensure_min_samples=0,
        dtype="numeric",
        input_name="values",
    )
    ids = None
    if return_ids:
        if shape is not None:
            raise ValueError(
                f"shape={shape!r} has no meaning for ids, which give the matrix as "
                "many rows and columns as occur; leave it out."
            )
        row_ids, rows = number_ids(rows, "rows")
        column_ids, columns = number_ids(columns, "columns")
        ids = MatrixIds(row_ids, column_ids)
        shape = len(row_ids), len(column_ids)
    X = _build_matrix(np.asarray(rows), np.asarray(columns), values, shape)
    return (X, ids) if return_ids else X


def _frame_columns(frame):
    if not (hasattr(frame, "columns") and hasattr(frame, "shape")):
        raise TypeError(
            "matrix_from_entries needs rows, columns and values, or a data frame with "
            f"these three columns, got {type(frame).__name__} alone."
        )
    names = list(frame.columns)
    if len(names) != 3:
        raise ValueError(
            f"The frame has {len(names)} columns, {names}; choose three, for rows, "
            'columns and values: frame[["user", "item", "stars"]].'
        )
    return [frame[name] for name in names]


def _build_matrix(rows, columns, values, shape):
    """Return the matrix of entries at indices from 0."""
    for name, index in (("rows", rows), ("columns", columns), ("values", values)):
        if index.shape != (values.size,):
            raise ValueError(
                f"{name} has shape {index.shape}, values has {values.shape}; give one "
                "row, one column and one value for each entry."
            )
    if values.size == 0:
        # Empty lists are arrays of floats.
        rows, columns = rows.astype(np.int32), columns.astype(np.int32)
        if shape is None:
            raise ValueError(
                "There are no entries, which leaves the shape of the matrix unknown; "
                "give shape=(n_rows, n_columns)."
            )
    for name, index in (("rows", rows), ("columns", columns)):
        if not np.issubdtype(index.dtype, np.integer) or index.min(initial=0) < 0:
            raise ValueError(
                f"{name} must be integers from 0; for names and other ids use "
                "return_ids=True."
            )
        if index.max(initial=0) >= LARGEST_INDEX:
            raise ValueError(
                f"{name} has {index.max()}, which would make a matrix of as many "
                f"{name}; return_ids=True numbers those that occur."
            )
    smallest = int(rows.max(initial=-1)) + 1, int(columns.max(initial=-1)) + 1
    shape = smallest if shape is None else shape
    if not (
        isinstance(shape, (tuple, list, np.ndarray))
        and len(shape) == 2
        and all(isinstance(size, numbers.Integral) for size in shape)
    ):
        raise TypeError(f"shape={shape!r} must be two integers.")
    shape = tuple(map(int, shape))
    if shape[0] < smallest[0] or shape[1] < smallest[1]:
        raise ValueError(
            f"shape={shape} is too small for the entries, which need {smallest}."
        )
    X = sparse.coo_array((values, (rows, columns)), shape=shape).tocsr()
    if X.nnz < len(values):
        raise ValueError(
            f"{len(values) - X.nnz} entries are given more than once; keep one value "
            "for each (row, column)."
        )
    X.sort_indices()
    return X
