cdef class Loss:
    # Largest second derivative; infinite for a loss with kinks.
    cdef readonly double smoothness
    # Returns f(y, z) and sets `derivative` to df/dz, in one call so that the
    # exponential they share is computed once.
    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil
    # d2f/dz2, given what `evaluate` said of the derivative.
    cdef double curvature(self, double y, double z, double derivative) noexcept nogil
    # All three of n rows, for exact passes.
    cdef void evaluate_many(
        self, const double* y, const double* z, Py_ssize_t n, double* losses,
        double* derivatives, double* curvatures
    ) noexcept nogil
