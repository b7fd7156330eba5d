from sklearn_awsgd._kernels._losses cimport Loss


# u with u = z - q (a f'(y, u) + beta); sets a f'(y, u).
cdef double implicit_score(
    Loss loss, double y, double a, double z, double q, double beta, double* derivative
) noexcept nogil
