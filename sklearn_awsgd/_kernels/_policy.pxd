from sklearn_awsgd._kernels._episodes cimport EpisodeSpace
from sklearn_awsgd._kernels._loop cimport Point, Problem


cdef enum:
    # What the gradient of a step is weighted with.
    EPISODE
    PER_DECISION
    SUFFIX

cdef enum:
    # What the step size is relative to.
    CONSTANT
    ADAGRAD
    RMSPROP
    RANGE

cdef enum:
    # Places in `scale`: the largest return so far, and the running mean of returns as
    # a weighted sum and its weight.
    LARGEST
    MEAN_SUM
    MEAN_WEIGHT


cdef class PolicyProblem(Problem):
    cdef EpisodeSpace space
    cdef int weights, rate
    cdef bint baseline
    cdef double eta0, discount, bonus
    # State that outlives the problem: arrays of the caller, changed in place.
    cdef double[:, ::1] logits, values, visits
    cdef double[::1] squares, scale
    # Sums of one episode, a row for each state; zero between episodes.
    cdef double[:, ::1] sums
    # Rewards of the episode with the bonus.
    cdef double[::1] rewards
    # Value of states that were never met.
    cdef double mean
    cdef bint knows_mean
    cdef double value(self, Py_ssize_t s) noexcept nogil
    cdef double unit_of_bonus(self) noexcept nogil
    cdef void count_visits(self, double bonus) noexcept nogil
    cdef void add_up(self, double weight) noexcept nogil
    cdef double move(self, Py_ssize_t s, double weight) noexcept nogil
