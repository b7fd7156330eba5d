# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Steps along the coordinates of a linear model, by the columns of its rows.

Columns are the rows of the transposed matrix: CSC of rows is CSR of columns.
"""

import numpy as np

from libc.math cimport NAN, fabs, isnan, sqrt

from scipy.linalg.cython_blas cimport dsyrk
from scipy.linalg.cython_lapack cimport dposv

from sklearn_awsgd._kernels._rows cimport Row, Rows, axpy, dot, get_row
from sklearn_awsgd._kernels._steps cimport soft

cdef enum:
    # Sweeps over the coordinates that are not zero, before one over all.
    MOST_PARTIAL = 10
    # Sweeps that are extrapolated from. On "wide sparse" of bench_every_loss.py, at
    # .001 of the largest useful alpha, 3 to 15 of them took as long.
    N_EXTRAPOLATED = 5

# Added to the diagonal of the products of sweeps, whose trace is one.
cdef double RIDGE_OF_SWEEPS = 1e-14


def count_numbers(Rows rows):
    """Return how many numbers of sparse rows are in each column."""
    cdef Py_ssize_t i, m
    cdef Row row
    counts = np.zeros(rows.n_features, dtype=np.int32)
    cdef int[::1] view = counts
    with nogil:
        for i in range(rows.n_rows):
            get_row(rows, i, &row)
            for m in range(row.size):
                view[row.indices[m]] += 1
    return counts


def collect(Rows rows, const Py_ssize_t[::1] which, const int[::1] counts):
    """Copy some columns of sparse rows, in one reading.

    Parameters
    ----------
    rows : Rows
        The rows.
    which : ndarray of shape (p,)
        Numbers of the columns.
    counts : ndarray of shape (p,)
        How many numbers they have; not more than 2^31 - 1 together.

    Returns
    -------
    values, indices, indptr : ndarrays
        The columns as the rows of a CSR matrix.
    """
    cdef Py_ssize_t i, m, j, k, n_found, p = which.shape[0]
    cdef int place
    cdef Row row
    indptr = np.zeros(p + 1, dtype=np.int32)
    np.cumsum(counts, out=indptr[1:])
    values, indices = np.empty(indptr[p]), np.empty(indptr[p], dtype=np.int32)
    cdef double[::1] value_view = values
    cdef int[::1] index_view = indices
    # Whether a column is copied, and where its next number goes.
    cdef unsigned char[::1] wanted = np.zeros(rows.n_features, dtype=np.uint8)
    cdef int[::1] places = np.empty(rows.n_features, dtype=np.int32)
    cdef int[::1] found = np.empty(rows.longest + 1, dtype=np.int32)
    for j in range(p):
        wanted[which[j]] = 1
        places[which[j]] = indptr[j]
    with nogil:
        for i in range(rows.n_rows):
            get_row(rows, i, &row)
            # Without a branch, which would be foreseen badly.
            n_found = 0
            for m in range(row.size):
                found[n_found] = <int> m
                n_found += wanted[row.indices[m]]
            for k in range(n_found):
                m = found[k]
                place = places[row.indices[m]]
                value_view[place] = row.values[m]
                index_view[place] = <int> i
                places[row.indices[m]] = place + 1
    return values, indices, indptr


def combine(Rows columns, const Py_ssize_t[::1] which, const double[::1] w, double b):
    """Return ``b + sum_j w_j x_j`` over some columns."""
    cdef Py_ssize_t j
    cdef Row column
    total = np.full(columns.n_features, b)
    cdef double[::1] view = total
    with nogil:
        for j in range(which.shape[0]):
            if w[j] != 0.0:
                get_row(columns, which[j], &column)
                axpy(w[j], &column, &view[0])
    return total


def correlate(Rows columns, const Py_ssize_t[::1] which, const double[::1] c):
    """Return ``<x_j, c>`` of some columns."""
    cdef Py_ssize_t j
    cdef Row column
    products = np.empty(which.shape[0])
    cdef double[::1] view = products
    with nogil:
        for j in range(which.shape[0]):
            get_row(columns, which[j], &column)
            view[j] = dot(&column, &c[0])
    return products


cdef extern from *:
    """
    WIDE static void add_weighted_dense(
        double a, const double* x, const double* h, Py_ssize_t n, double* total
    ) {
        for (Py_ssize_t i = 0; i < n; i++)
            total[i] += a * (h[i] * x[i]);
    }
    """
    void add_weighted_dense(
        double a, const double* x, const double* h, Py_ssize_t n, double* total
    ) noexcept nogil


cdef inline void add_weighted(
    double a, const Row* column, const double* h, double* total
) noexcept nogil:
    """total += a h x, row by row."""
    cdef Py_ssize_t m, i
    if column.indices == NULL:
        add_weighted_dense(a, column.values, h, column.size, total)
        return
    for m in range(column.size):
        i = column.indices[m]
        total[i] += a * (h[i] * column.values[m])


cdef inline double weighted_square(const Row* column, const double* h) noexcept nogil:
    """<x, h x>."""
    cdef Py_ssize_t m
    cdef double total = 0.0
    cdef const double* x = column.values
    if column.indices == NULL:
        for m in range(column.size):
            total += h[m] * (x[m] * x[m])
        return total
    for m in range(column.size):
        total += h[column.indices[m]] * (x[m] * x[m])
    return total


cdef class _Model:
    """The model of `minimize_by_columns`, and where its minimisation is."""

    cdef Rows columns
    cdef const Py_ssize_t[::1] which
    cdef const double[::1] h, gradient, v
    cdef double l1, l2, total_h
    # The curvature of all rows, if it is the same; else NaN.
    cdef double same_h
    cdef double[::1] d, curvature
    cdef double[::1] weighed  # h times the move of each row
    cdef Py_ssize_t[::1] used  # coordinates that were not zero at the last full sweep
    cdef Py_ssize_t n_used
    cdef double norm  # ||w + d||_1 after the last full sweep
    # What they were after the last sweeps, the intercept last, and what may be next.
    cdef double[:, ::1] past
    cdef double[::1] ahead, weighed_ahead, changes
    cdef int n_past

    def __init__(self, columns, which, h, gradient, v, l1, l2):
        cdef Py_ssize_t j, p = len(which), n = len(h)
        cdef Row column
        self.columns, self.which, self.h = columns, which, h
        self.gradient, self.v, self.l1, self.l2 = gradient, v, l1, l2
        self.total_h = np.sum(h)
        self.same_h = h[0] if np.all(h == h[0]) else NAN
        self.d, self.curvature, self.weighed = np.zeros(p + 1), np.empty(p), np.zeros(n)
        self.used, self.n_used, self.n_past = np.empty(p, dtype=np.intp), 0, 0
        self.past = np.empty((N_EXTRAPOLATED + 1, p + 1))
        self.ahead, self.weighed_ahead = np.empty(p + 1), np.empty(n)
        self.changes = np.empty(N_EXTRAPOLATED * (p + 1))
        with nogil:
            for j in range(p):
                get_row(self.columns, self.which[j], &column)
                self.curvature[j] = weighted_square(&column, &self.h[0]) + self.l2

    cdef double step(self, Py_ssize_t j) noexcept nogil:
        """Minimise along a coordinate; return what its slope was off, nearly."""
        cdef Row column
        cdef double slope, old = self.v[j] + self.d[j], change
        get_row(self.columns, self.which[j], &column)
        slope = self.gradient[j] + dot(&column, &self.weighed[0]) + self.l2 * self.d[j]
        change = soft(
            old - slope / self.curvature[j], self.l1 / self.curvature[j]
        ) - old
        if change == 0.0:
            return 0.0
        self.d[j] += change
        self.add(change, &column, &self.weighed[0])
        return fabs(change) * self.curvature[j]

    cdef void add(
        self, double change, const Row* column, double* weighed
    ) noexcept nogil:
        """Add h times what a change of its coefficient moves the rows of a column."""
        if isnan(self.same_h):
            add_weighted(change, column, &self.h[0], weighed)
        else:
            axpy(change * self.same_h, column, weighed)

    cdef double step_intercept(self) noexcept nogil:
        """Minimise along the intercept; return what its slope was."""
        cdef Py_ssize_t i, p = self.which.shape[0]
        cdef double slope = self.gradient[p], change
        for i in range(self.h.shape[0]):
            slope += self.weighed[i]
        change = -slope / self.total_h
        self.d[p] += change
        for i in range(self.h.shape[0]):
            self.weighed[i] += change * self.h[i]
        return fabs(slope)

    cdef double sweep_all(self) noexcept nogil:
        """Step along all coordinates; return the largest error of a slope."""
        cdef Py_ssize_t j
        cdef double worst = 0.0
        self.n_used, self.norm = 0, 0.0
        for j in range(self.which.shape[0]):
            if self.curvature[j] > 0.0:
                worst = max(worst, self.step(j))
                if self.v[j] + self.d[j] != 0.0:
                    self.used[self.n_used] = j
                    self.n_used += 1
                    self.norm += fabs(self.v[j] + self.d[j])
        self.n_past = 0
        return worst

    cdef double sweep_used(self) noexcept nogil:
        """Step along the coordinates that are not zero."""
        cdef Py_ssize_t m, j
        cdef double worst = 0.0
        for m in range(self.n_used):
            j = self.used[m]
            if self.v[j] + self.d[j] != 0.0:
                worst = max(worst, self.step(j))
        return worst

    cdef void keep(self) noexcept nogil:
        """Keep what a sweep has led to; now and then look ahead."""
        cdef Py_ssize_t m, p = self.which.shape[0]
        for m in range(self.n_used):
            self.past[self.n_past, m] = self.d[self.used[m]]
        self.past[self.n_past, self.n_used] = self.d[p]
        self.n_past += 1
        if self.n_past == N_EXTRAPOLATED + 1:
            self.n_past = 0
            if self.extrapolate() and self.is_lower_ahead():
                self.d, self.ahead = self.ahead, self.d
                self.weighed, self.weighed_ahead = self.weighed_ahead, self.weighed
            self.keep()

    cdef bint extrapolate(self) noexcept nogil:
        """Look where sweeps are heading; return False if nowhere.

        They are nearly linear once it is known which coefficients are not zero: the
        combination of the last ones whose change is least, as measured by the
        curvature, is far closer to the minimum (Anderson). What it takes beyond zero
        stays there.
        """
        cdef Py_ssize_t m, j, p = self.which.shape[0]
        cdef int k, other, info = 0, one = 1
        cdef int n = N_EXTRAPOLATED, size = <int> self.n_used
        cdef double[N_EXTRAPOLATED * N_EXTRAPOLATED] products
        cdef double[N_EXTRAPOLATED] shares
        cdef double total = 0.0, trace = 0.0, unit = 1.0, zero = 0.0, root
        if size == 0:
            return False
        for m in range(size):
            root = sqrt(self.curvature[self.used[m]])
            for k in range(n):
                self.changes[m * n + k] = root * (
                    self.past[k + 1, m] - self.past[k, m]
                )
        dsyrk(
            b"L", b"N", &n, &size, &unit, &self.changes[0], &n, &zero, products, &n
        )
        for k in range(n):
            trace += products[k * n + k]
        if not trace > 0.0:
            return False
        for k in range(n):
            shares[k] = 1.0
            for other in range(k + 1):
                products[other * n + k] /= trace
            products[k * n + k] += RIDGE_OF_SWEEPS
        dposv(b"L", &n, &one, products, &n, shares, &n, &info)
        for k in range(n):
            total += shares[k]
        if info != 0 or not total > 0.0:
            return False
        self.ahead[:] = self.d
        for m in range(size + 1):
            j = self.used[m] if m < size else p
            self.ahead[j] = 0.0
            for k in range(n):
                self.ahead[j] += shares[k] / total * self.past[k + 1, m]
            if m < size and (self.v[j] + self.d[j]) * (self.v[j] + self.ahead[j]) <= 0:
                self.ahead[j] = -self.v[j]
        return True

    cdef bint is_lower_ahead(self) noexcept nogil:
        """Return whether the model is lower ahead."""
        cdef Py_ssize_t i, j, m, p = self.which.shape[0]
        cdef Row column
        cdef double change = self.ahead[p] - self.d[p], old, new
        cdef double lower = self.gradient[p] * change
        for i in range(self.h.shape[0]):
            self.weighed_ahead[i] = self.weighed[i] + change * self.h[i]
        for m in range(self.n_used):
            j = self.used[m]
            old, new = self.d[j], self.ahead[j]
            if new == old:
                continue
            lower += self.gradient[j] * (new - old)
            lower += self.l1 * (fabs(self.v[j] + new) - fabs(self.v[j] + old))
            lower += self.l2 / 2 * (new - old) * (new + old)
            get_row(self.columns, self.which[j], &column)
            self.add(new - old, &column, &self.weighed_ahead[0])
        for i in range(self.h.shape[0]):
            if self.h[i] > 0.0:
                old, new = self.weighed[i], self.weighed_ahead[i]
                lower += (new - old) * (new + old) / (2 * self.h[i])
        return lower < 0.0


def minimize_by_columns(
    Rows columns, const Py_ssize_t[::1] which, const double[::1] h,
    const double[::1] gradient, const double[::1] v, penalties, enough,
    Py_ssize_t max_sweeps,
):
    """Minimise a quadratic model with an l1 penalty, by coordinate descent.

    Now and then it goes on from where the last sweeps are heading, if that is lower.

    With the coefficients of some columns and the intercept, v = (w, b), the model is
    ``<g, d> + sum_i h_i m_i^2 / 2 + l1 ||w + d||_1 + l2 / 2 ||d||^2`` where the move
    of row i is ``m_i = sum_j d_j x_ij + d_b``.

    Parameters
    ----------
    columns : Rows
        The columns.
    which : ndarray of shape (p,)
        Numbers of the columns that the model has.
    h : ndarray of shape (n_samples,)
        Curvature of each row times its P.
    gradient, v : ndarray of shape (p + 1,)
        g and v, the intercept's last.
    penalties : tuple of float
        l1 and l2.
    enough : tuple of float
        Slopes that count as zero, of the coefficients and of the intercept, infinite
        without one; and what they may cost along all of w + d if they are larger.
    max_sweeps : int
        Largest number of sweeps over the coordinates that are not zero, and now and
        then over all.

    Returns
    -------
    d : ndarray of shape (p + 1,)
        The minimiser.
    n_sweeps : int
        Number of sweeps; `max_sweeps` where it was not reached.
    """
    cdef double flat = enough[0], flat_intercept = enough[1], gain = enough[2], worst
    cdef bint fit_intercept = flat_intercept < np.inf
    cdef _Model model = _Model(columns, which, h, gradient, v, *penalties)
    cdef Py_ssize_t sweep = 0, n_partial = 0
    cdef bint everything = True, quiet = False
    with nogil:
        while sweep < max_sweeps:
            sweep += 1
            worst = model.sweep_all() if everything else model.sweep_used()
            quiet = worst <= flat or worst * model.norm <= gain
            if fit_intercept and model.total_h > 0.0:
                quiet &= model.step_intercept() <= flat_intercept
            if quiet and everything:
                break
            model.keep()
            n_partial = 0 if everything else n_partial + 1
            everything = quiet or n_partial == MOST_PARTIAL
    return np.asarray(model.d), sweep if quiet else max_sweeps
