from sklearn_awsgd._kernels._episodes cimport EpisodeSpace, Simulator
from sklearn_awsgd._kernels._loop cimport Point
from sklearn_awsgd._kernels._samplers cimport RandomSampler


cdef enum:
    # How tau learns: in closed form, or by the paper's step.
    MOMENTS
    SGD

cdef enum:
    # Places in `scale`: the largest pull so far, and the running mean of ||d||^2 with
    # the weight it has gathered.
    LARGEST_PULL
    NORM2
    NORM2_WEIGHT


cdef class TrajectoryDraws(RandomSampler):
    cdef EpisodeSpace space
    cdef Simulator simulator
    cdef int update
    cdef double mixing, optimism, floor, carry, forgetting, eta0
    cdef bint normalize
    # State that outlives the sampler: arrays of the caller, changed in place.
    cdef double[:, ::1] behavior, log_ratio, moments, visits, tau
    cdef double[::1] scale
    # Visits of the pairs in the last episode, of "sgd", and the step along them.
    cdef double[:, ::1] hits
    cdef double step
    cdef double pair(self, Py_ssize_t s, Py_ssize_t a) noexcept nogil
    cdef void learn_moments(self) noexcept nogil
    cdef void learn_tau(self, const Point* x) noexcept nogil
    cdef void refresh(self, Py_ssize_t s) noexcept nogil
    cdef void refresh_from_tau(self, Py_ssize_t s) noexcept nogil
