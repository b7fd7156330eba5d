from libc.math cimport copysign, exp, fabs, log1p

cdef enum:
    # exp of more would overflow before the root of a step is found.
    HIGHEST_Z = 150


cdef class Loss:
    # Largest second derivative; infinite for a loss with kinks.
    cdef readonly double smoothness
    # Returns f(y, z) and sets `derivative` to df/dz, in one call so that the
    # exponential they share is computed once.
    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil
    # d2f/dz2, given what `evaluate` said of the derivative.
    cdef double curvature(self, double y, double z, double derivative) noexcept nogil
    # Where a loss with kinks is zero: beyond `low` and `high` it rises as a line of
    # slope -1 and 1. What is infinite is never reached.
    cdef void flat(self, double y, double* low, double* high) noexcept nogil
    # All three of n rows, for exact passes.
    cdef void evaluate_many(
        self, const double* y, const double* z, Py_ssize_t n, double* losses,
        double* derivatives, double* curvatures
    ) noexcept nogil


# Formulas that problems with losses of their own write into their steps: the classes of
# the same names are made of them.

cdef inline double squared_error(double y, double z, double* first) noexcept nogil:
    first[0] = z - y
    return 0.5 * (z - y) * (z - y)


cdef inline double huber(
    double epsilon, double y, double z, double* first
) noexcept nogil:
    cdef double r = z - y
    if fabs(r) <= epsilon:
        first[0] = r
        return 0.5 * r * r
    first[0] = copysign(epsilon, r)
    return epsilon * (fabs(r) - 0.5 * epsilon)


cdef inline double cross_entropy(
    double y, double z, double* first, double* second
) noexcept nogil:
    cdef double e = exp(-fabs(z))
    first[0] = (1.0 / (1.0 + e) if z > 0.0 else e / (1.0 + e)) - y
    second[0] = e / ((1.0 + e) * (1.0 + e))
    return (z if z > 0.0 else 0.0) + log1p(e) - y * z


cdef inline double poisson(
    double y, double z, double* first, double* second
) noexcept nogil:
    cdef double e = exp(min(z, <double> HIGHEST_Z))
    first[0] = e - y
    second[0] = e
    return e - y * z
