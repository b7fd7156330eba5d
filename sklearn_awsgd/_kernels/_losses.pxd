cdef class Loss:
    # Returns f(y, z) and sets `derivative` to df/dz, in one call so that the
    # exponential they share is computed once.
    cdef double evaluate(self, double y, double z, double* derivative) noexcept nogil
