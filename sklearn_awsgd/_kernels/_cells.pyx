# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sums over the cells of a stratified sample, and how a round is divided among them."""

import numpy as np

from libc.math cimport fabs


def centre(
    const Py_ssize_t[::1] cells, const double[:] values, const double[:] means,
    double[:] deviations,
):
    """Set deviations to ``values - means[cells]``, and to zero where it is rounding.

    Values that are all alike must not vary.
    """
    cdef Py_ssize_t i
    cdef double deviation
    with nogil:
        for i in range(cells.shape[0]):
            deviation = values[i] - means[cells[i]]
            if fabs(deviation) <= 1e-13 * fabs(values[i]):
                deviation = 0.0
            deviations[i] = deviation


def cell_sizes(
    const Py_ssize_t[::1] cells, const double[:] deviations, Py_ssize_t n_cells
):
    """Return how large deviations are in each cell.

    Returns
    -------
    sizes : ndarray of shape (4, n_cells)
        Sums of absolute values, of squares and of fourth powers, and the largest
        absolute value.
    """
    sizes = np.zeros((4, n_cells))
    cdef double[:, ::1] view = sizes
    cdef Py_ssize_t i, c
    cdef double x, x2
    with nogil:
        for i in range(cells.shape[0]):
            c = cells[i]
            x = fabs(deviations[i])
            x2 = x * x
            view[0, c] += x
            view[1, c] += x2
            view[2, c] += x2 * x2
            view[3, c] = max(view[3, c], x)
    return sizes


def mix_shapes(
    const double[:, :, ::1] shapes, const double[:, ::1] squares,
    const double[:, ::1] rows, double[:, ::1] weights, const double[::1] least,
    Py_ssize_t n_steps,
):
    """Fit mixtures of shapes to the squares of cells, from `weights` on, in place.

    Returns
    -------
    expected : ndarray of shape (n_parts, n_cells)
        Squares to expect of a row in each cell, not below `least` of its part.
    """
    cdef Py_ssize_t n_parts = shapes.shape[0], n_cells = shapes.shape[1]
    cdef Py_ssize_t n_shapes = shapes.shape[2], p, c, k, step
    expected = np.empty((n_parts, n_cells))
    sums = np.empty((2, n_shapes))
    cdef double[:, ::1] view = expected
    cdef double[:, ::1] total = sums
    cdef double x
    with nogil:
        for p in range(n_parts):
            for step in range(n_steps + 1):
                for k in range(n_shapes):
                    total[0, k] = total[1, k] = 0.0
                for c in range(n_cells):
                    x = 0.0
                    for k in range(n_shapes):
                        x += shapes[p, c, k] * weights[p, k]
                    view[p, c] = x = max(x, least[p])
                    if x > 0.0:
                        for k in range(n_shapes):
                            total[0, k] += shapes[p, c, k] * squares[p, c] / (x * x)
                            total[1, k] += shapes[p, c, k] * rows[p, c] / x
                if step < n_steps:
                    for k in range(n_shapes):
                        weights[p, k] *= total[0, k]
                        if total[1, k] > 0.0:
                            weights[p, k] /= total[1, k]
    return expected


def fill(double total, const double[::1] weight, const double[::1] room):
    """Return `total` divided in proportion to `weight`, nothing above its room."""
    wanted = np.zeros(room.shape[0])
    cdef double[::1] view = wanted
    cdef Py_ssize_t i
    cdef double left = total, free, share
    cdef bint found = True
    with nogil:
        while found:
            found = False
            free = 0.0
            for i in range(room.shape[0]):
                if view[i] < room[i]:
                    free += weight[i]
            if free <= 0.0:
                break
            # What is full is set aside, and the rest divided among the others.
            share = left / free
            for i in range(room.shape[0]):
                if view[i] < room[i] and weight[i] > 0.0:
                    if share * weight[i] >= room[i]:
                        view[i] = room[i]
                        left -= room[i]
                        found = True
            if not found:
                for i in range(room.shape[0]):
                    if view[i] < room[i]:
                        view[i] = share * weight[i]
    return wanted
