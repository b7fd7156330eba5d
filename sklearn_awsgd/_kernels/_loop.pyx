# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Algorithm 2 of the paper (AW-SGD): draw, step, observe.

Algorithm 1 (importance sampling of an integral) is the same loop with
``d = f(x) / q(x)`` and no model; its integrand is Python code, so it comes in through
the batch door: :meth:`Sampler.draw_points`, evaluate, :meth:`Sampler.observe_points`.
"""

import numpy as np

from libc.math cimport isfinite

cdef Point NO_POINT
# The layout of `Point`, for arrays of points on the Python side.
POINT = np.asarray(<Point[:1]> &NO_POINT).dtype

cdef enum:
    # How many draws ahead the rows are asked for.
    AHEAD = 4

# Sums over draws that `run` keeps, in the order of the array `sums`.
SUMS = ("loss", "norm2", "norm2_uniform", "weight", "weight2", "cost")


cdef class Costs:
    """What it costs to fetch a point, where that is known; in seconds or any unit.

    Parameters
    ----------
    rows : ndarray of shape (n_rows,), default=None
        Costs of the rows.
    columns : ndarray of shape (n_columns,), default=None
        Costs of the columns of a matrix, which add to those of the rows.
    cells : ndarray of shape (n_rows, n_columns), default=None
        Costs of the entries of a matrix, instead.
    entries : ndarray of shape (n_entries,), default=None
        Costs of the observed entries of a matrix with holes, row by row, instead.
    """

    def __init__(self, rows=None, columns=None, cells=None, entries=None):
        self.rows, self.columns = rows, columns
        self.cells, self.entries = cells, entries

    cdef double of(self, const Point* x) noexcept nogil:
        if self.entries is not None:
            return self.entries[x.entry]
        if self.cells is not None:
            return self.cells[x.i, x.j]
        if self.columns is not None:
            return self.rows[x.i] + self.columns[x.j]
        return self.rows[x.i]

    def reordered(self, order):
        """Return the same for entries in another order."""
        if self.entries is None:
            return self
        return Costs(entries=np.asarray(self.entries)[order])

    def charge(self, Point[::1] points):
        """Set the costs of points."""
        cdef Py_ssize_t b
        for b in range(points.shape[0]):
            points[b].cost = self.of(&points[b])


cdef class Problem:
    """Parameters w and a way to step them; see ``_loop.pxd``."""

    cdef void step(self, Point* x, double weight) noexcept nogil:
        pass

    cdef void prefetch(self, const Point* x) noexcept nogil:
        pass

    cdef void flush(self) noexcept nogil:
        pass

    def penalty(self):
        """Return the part of the objective that is not sampled, at the current w."""
        return 0.0

    def step_points(self, Point[::1] points, const double[::1] weights):
        """Step points one after the other, along their gradients times `weights`.

        Parameters
        ----------
        points : structured ndarray of shape (n_points,) and dtype POINT
            Their ``loss`` and ``norm2`` are set.
        weights : ndarray of shape (n_points,)
            1/q of each, for steps that are unbiased.
        """
        cdef Py_ssize_t b
        if weights.shape[0] != points.shape[0]:
            raise ValueError(
                f"{points.shape[0]} points have {weights.shape[0]} weights."
            )
        with nogil:
            for b in range(points.shape[0]):
                self.step(&points[b], weights[b])
            self.flush()


cdef class Sampler:
    """A distribution Q_tau over points and a way to learn tau; see ``_loop.pxd``."""

    def __cinit__(self, *args, **kwargs):
        self.patience = 1

    cdef void draw(self, Point* x) noexcept nogil:
        pass

    cdef void observe(self, const Point* x) noexcept nogil:
        pass

    cdef void adapt(self) noexcept nogil:
        pass

    def draw_points(self, Py_ssize_t n_points):
        """Draw points that share one state of the sampler.

        Parameters
        ----------
        n_points : int
            Number of draws.

        Returns
        -------
        points : structured ndarray of shape (n_points,) and dtype POINT
            ``i``, ``j``, ``origin``, ``q`` and ``cost`` are set.
        """
        points = np.zeros(n_points, dtype=POINT)
        cdef Point[::1] view = points
        cdef Py_ssize_t b
        with nogil:
            for b in range(n_points):
                draw_anew(self, &view[b])
        return points

    def observe_points(self, Point[::1] points):
        """Learn from points whose ``norm2`` has been filled in, as one batch."""
        cdef Py_ssize_t b
        with nogil:
            for b in range(points.shape[0]):
                self.observe(&points[b])
            self.adapt()

    def stratum_probabilities(self):
        """Return the learned probabilities of the strata: here there is one."""
        return np.ones(1)


cdef inline void draw_anew(Sampler sampler, Point* x) noexcept nogil:
    """Draw x, which costs 1 unless the sampler or the problem says otherwise."""
    x.cost = 1.0
    sampler.draw(x)


def run(
    Problem problem,
    Sampler sampler,
    Py_ssize_t n_draws,
    Point[::1] batch,
    double[::1] sums,
    unsigned int[::1] draw_counts=None,
    Costs costs=None,
):
    """Run AW-SGD for a number of draws, without the GIL.

    Parameters
    ----------
    problem : Problem
        Its parameters are changed in place.
    sampler : Sampler
        Its tau and its random stream are changed in place.
    n_draws : int
        Number of draws.
    batch : structured ndarray of shape (batch_size,) and dtype POINT
        Work space. Draws of one batch share one state of the sampler; the steps
        inside it are sequential. Its size is at least ``sampler.patience``.
    sums : ndarray of shape (6,)
        Sums over the draws, added to: see ``SUMS``. From them come the objective
        (mean of loss / q, unbiased), the variance gain and the effective sample size.
    draw_counts : ndarray of shape (n_rows,) and dtype uint32, default=None
        Number of draws of each row, added to.
    costs : Costs, default=None
        What draws cost; else what the sampler says, or 1.

    Returns
    -------
    n_done : int
        Less than `n_draws` when a step overflowed: then the parameters are not to be
        trusted.
    """
    cdef Py_ssize_t done = 0, b, size
    cdef double weight
    cdef Point* x
    cdef bint counting = draw_counts is not None, charging = costs is not None
    with nogil:
        while done < n_draws:
            size = min(batch.shape[0], n_draws - done)
            for b in range(size):
                draw_anew(sampler, &batch[b])
                if charging:
                    batch[b].cost = costs.of(&batch[b])
            for b in range(min(<Py_ssize_t> AHEAD, size)):
                problem.prefetch(&batch[b])
            for b in range(size):
                x = &batch[b]
                if b + AHEAD < size:
                    problem.prefetch(&batch[b + AHEAD])
                # The unbiasing factor 1/q is formed here and, for samplers written in
                # Python, in the batch door of the solver: nowhere else.
                weight = 1.0 / x.q
                problem.step(x, weight)
                sampler.observe(x)
                sums[0] += weight * x.loss
                sums[1] += x.norm2
                sums[2] += x.norm2 * x.q
                sums[3] += weight
                sums[4] += weight * weight
                sums[5] += x.cost
                if counting:
                    draw_counts[x.i] += 1
            if not isfinite(sums[1]) or not isfinite(sums[0]):
                break
            sampler.adapt()
            done += size
        problem.flush()
    return done
