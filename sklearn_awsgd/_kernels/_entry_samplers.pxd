cimport cython

from sklearn_awsgd._kernels._entries cimport POINTS_AHEAD, Entries
from sklearn_awsgd._kernels._loop cimport Point
from sklearn_awsgd._kernels._samplers cimport RandomSampler, update_mean


# Part of the mixture that a point was drawn from.
cdef enum:
    LEARNED
    COLUMN
    STORED
    SAFE


# What is known of a row or column lies together: one cache line, not four.
cdef enum:
    PROBABILITY
    SQUARE
    COUNT
    TAU
    N_FIELDS


cdef class LearnedEntryDraws(RandomSampler):
    cdef Entries entries
    # Random numbers of the next draws, two for each, and how many of them are used up.
    cdef double numbers[2 * POINTS_AHEAD]
    cdef int n_used

    @cython.final
    cdef const double* next_numbers(self) noexcept nogil
    # Asks for the memory that the next draws will read.
    cdef void look_ahead(self) noexcept nogil
    cdef double mixing, forgetting, eta0
    cdef int update
    cdef bint normalize, time_aware
    # Rows come first, then columns: two distributions, or one over both.
    cdef Py_ssize_t bounds[3]
    cdef int n_distributions
    # State that outlives the sampler: arrays of the caller, changed in place.
    cdef double[:, ::1] table
    cdef double* lines
    cdef double* cost_lines
    cdef double[::1] scale
    # What draws through a row or column cost on average, and how well that is known.
    cdef double[:, ::1] costs
    # Probability of each row and column without anything learned.
    cdef double[::1] base
    # Sums over a batch, of "sgd".
    cdef double[::1] gradient, hits
    cdef double gradient_total, n_learned, batch_norm2, batch_cost
    cdef Py_ssize_t batch_size, period

    # What a draw weighs in the next step of tau.
    @cython.final
    cdef double take(self, const Point* x) noexcept nogil

    @cython.final
    cdef void hit(self, Py_ssize_t k, double norm2) noexcept nogil
    cdef void move_tau(self) noexcept nogil
    cdef void derive(self) noexcept nogil
    # Derives all that `draw` needs from the state.
    cdef void refresh(self) noexcept nogil


cdef inline void learn(
    LearnedEntryDraws sampler, Py_ssize_t k, double share, double square, double cost
) noexcept nogil:
    """Take in a square for row or column k, drawn through it with odds `share`."""
    cdef double* line = sampler.lines + k * N_FIELDS
    update_mean(&line[SQUARE], &line[COUNT], sampler.forgetting, share, square)
    if sampler.time_aware:
        line = sampler.cost_lines + 2 * k
        update_mean(&line[0], &line[1], sampler.forgetting, share, cost)
