from numpy.random cimport bitgen_t

from sklearn_awsgd._kernels._loop cimport Point, Sampler
from sklearn_awsgd._kernels._tables cimport AliasTable, SafeRows

# How the parameters tau of a sampler learn.
cdef enum:
    MOMENTS
    SGD
    ADAGRAD

# Keeps the probabilities defined while all gradients seen are zero.
cdef double TINY_MOMENT


cdef inline double uniform(bitgen_t* bits) noexcept nogil:
    return bits.next_double(bits.state)


cdef inline void update_mean(
    double* mean, double* weight, double forgetting, double share, double value
) noexcept nogil:
    """Take a value that counts for `share` of one into a running mean.

    `weight` is what all values so far weigh, from 0 to 1: the newest has the weight
    `forgetting`, older ones fade, and before there are many the mean is that of all.
    """
    weight[0] += forgetting * (1.0 - weight[0]) * share
    if weight[0] > 0.0:
        mean[0] += forgetting * share / weight[0] * (value - mean[0])


cdef inline double step_weight(
    double norm2, double cost, const double[::1] scale, bint normalize
) noexcept nogil:
    """What a draw weighs in a gradient step of tau that knows what draws cost.

    The paper divides ||d||^2 by the cost, which leads to the best allocation only where
    costs are alike inside a stratum. The normalised step goes down the logarithm of
    E||d||^2 E[cost]: ``||d||^2 / mean - cost / mean``, here times the first mean.
    `scale` has the two running means, each with its weight behind it.
    """
    if not normalize:
        return norm2 / cost
    return norm2 - cost * scale[0] / scale[2] if scale[2] > 0.0 else 0.0


cdef inline Py_ssize_t first_above(
    const double* cumulative, Py_ssize_t size, double u
) noexcept nogil:
    """Return the first index whose cumulative probability exceeds u."""
    cdef Py_ssize_t low = 0, high = size - 1, middle
    while low < high:
        middle = (low + high) // 2
        if u >= cumulative[middle]:
            low = middle + 1
        else:
            high = middle
    return low


cdef class RandomSampler(Sampler):
    cdef object generator
    cdef bitgen_t* bits


cdef class ShuffledPasses(RandomSampler):
    cdef int[::1] order
    cdef const double[::1] mass
    cdef Py_ssize_t position, n_rows, block_size
    cdef bint shuffle
    cdef void shuffle_blocks(self) noexcept nogil


cdef class StrataDraws(RandomSampler):
    cdef const int[::1] order, strata
    cdef const Py_ssize_t[::1] start
    cdef const double[::1] mass
    cdef AliasTable within
    cdef SafeRows safe
    cdef double mixing, forgetting
    cdef public double eta0
    cdef int update
    cdef bint normalize, time_aware
    # State that outlives the sampler: arrays of the caller, changed in place.
    cdef double[::1] tau, squares, counts, adagrad, scale
    # What rows of a stratum cost on average, and what is known of that: from 0 to 1.
    cdef double[::1] costs, cost_counts
    # Derived from the state by `refresh`.
    cdef double[::1] probabilities, cumulative, density, gradient
    cdef double gradient_total, batch_norm2, batch_cost
    cdef Py_ssize_t batch_size
    cdef void refresh(self) noexcept nogil
