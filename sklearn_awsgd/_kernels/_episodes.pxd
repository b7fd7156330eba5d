# What P is for a policy: episodes of an environment with finitely many states.
#
# The space holds what a problem and a trajectory sampler share. The problem writes the
# target policy P_w and the size of the gradient of each step; the sampler writes the
# episode and its densities. Both read all of it, and neither knows the other.

from libc.math cimport exp
from numpy.random cimport bitgen_t


cdef enum:
    # How an episode ended: cut at the largest number of steps, by itself, at a goal.
    CUT
    ENDED
    SUCCESS

cdef enum:
    # Sums over episodes, in the order of `TOTALS`.
    STEPS
    N_CUT
    WEIGHTED_SUCCESS
    NORM2_TARGET
    N_TOTALS


cdef packed struct Outcome:
    # What can follow a pair (state, action).
    double cumulative   # probability of this outcome or an earlier one of the pair
    double reward
    int state           # the next state
    int ending          # CUT where the episode goes on, ENDED or SUCCESS


cdef class Simulator:
    cdef readonly Py_ssize_t n_states, n_actions
    cdef const Outcome[::1] outcomes
    cdef const Py_ssize_t[::1] first
    cdef const double[::1] start_cumulative
    cdef const int[::1] start_states
    cdef int start(self, bitgen_t* bits) noexcept nogil
    cdef const Outcome* move(
        self, bitgen_t* bits, Py_ssize_t state, Py_ssize_t action
    ) noexcept nogil


cdef struct Episode:
    # The episode drawn last, and what it was drawn from. The arrays are the space's.
    Py_ssize_t n_actions
    Py_ssize_t max_steps
    double* policy        # P_w(a | s), a row for each state; written by the problem
    double mixing         # share of episodes from P_w itself; written by the sampler
    # Written by the sampler: the steps t < length, and the state that it stopped in.
    Py_ssize_t length
    int ending
    int* states
    int* actions
    double* rewards
    double* log_ratios    # log Q_tau / P_w of the first t steps, zero for t = 0
    # Written by the problem.
    double* pulls         # size of the gradient of step t, without any weight
    int* visited          # the distinct states that had an action
    Py_ssize_t n_visited
    double* totals        # sums over episodes


cdef inline double density(const Episode* x, Py_ssize_t t) noexcept nogil:
    """Return dQ/dP of the first t steps of an episode, Q being the mixture."""
    # Far beyond the largest weight that matters, and no overflow.
    return x.mixing + (1.0 - x.mixing) * exp(min(x.log_ratios[t], 600.0))


cdef class EpisodeSpace:
    cdef readonly Py_ssize_t n_states, n_actions, max_steps
    cdef Episode episode
    cdef dict arrays
