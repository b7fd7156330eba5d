# Set u to the solution of u = z + q (a (t - softmax(u)) - beta); p and step are work.
cdef void implicit_softmax(
    const double* z, const double* q, const double* beta, Py_ssize_t target, double a,
    Py_ssize_t n_classes, double* u, double* p, double* step,
) noexcept nogil
