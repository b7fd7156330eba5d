"""What a score lets expect: how large squares are in each cell, by different beliefs.

The steps of the fit were set while looking at ``benchmarks/bench_importance_peers.py``.
"""

import numpy as np

from sklearn_awsgd._kernels._cells import mix_shapes

# Steps from shapes of equal weights towards what was seen.
SHAPE_STEPS = 10
# Least square to expect in a cell, relative to those of all.
LEAST_EXPECTED = 1e-12


def score_shapes(cells, score, sizes):
    """Return the squares to expect in cells of rows with some scores, by beliefs.

    If the score is no use, squares are the same everywhere; if values are events and
    the score is their probability, they go with the score itself; and if values are as
    large as the score, with its square.

    Parameters
    ----------
    cells, score : ndarray of shape (n_rows,)
        Cell and score of each row.
    sizes : ndarray of shape (n_cells,)
        Rows of each cell.

    Returns
    -------
    shapes : ndarray of shape (n_cells, 3)
        Means of the shapes in each cell; over all rows, each has a mean of one.
    """
    shapes = [np.ones(len(sizes))]
    for shape in (np.abs, np.square):
        sums = np.bincount(cells, shape(score), len(sizes))
        factor = max(len(cells), 1) / (sums.sum() or 1.0)
        shapes.append(sums * factor / np.maximum(sizes, 1))
    return np.stack(shapes, axis=1)


def fit_shapes(shapes, squares, rows):
    """Return mixtures of shapes that are fitted to the squares of cells.

    A sum of squares scatters as much as it is large. These are multiplicative steps to
    the largest likelihood of gamma distributions with a degree of freedom for each row,
    from shapes of equal weights; few, so that it does not go far for little reason.

    Parameters
    ----------
    shapes : ndarray of shape (n_parts, n_cells, n_shapes)
        Squares to expect of a row in each cell, up to a factor, each on its own.
    squares, rows : ndarray of shape (n_parts, n_cells)
        Sums of squares, and of how many rows they are.

    Returns
    -------
    expected : ndarray of shape (n_parts * n_cells,)
        Squares to expect of a row in each cell.
    """
    first = (rows * shapes.mean(axis=2)).sum(axis=1)
    scale = squares.sum(axis=1) / np.where(first > 0, first, 1.0)
    weights = np.repeat(scale[:, None] / shapes.shape[2], shapes.shape[2], axis=1)
    shapes, least = np.ascontiguousarray(shapes), LEAST_EXPECTED * scale
    return mix_shapes(shapes, squares, rows, weights, least, SHAPE_STEPS).ravel()
