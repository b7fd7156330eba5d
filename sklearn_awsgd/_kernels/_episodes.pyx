# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Episodes of tables of transitions: simulated, and evaluated without simulation."""

import numpy as np

# The layout of `Outcome`, for arrays on the Python side.
OUTCOME = np.dtype(
    [
        ("cumulative", np.float64),
        ("reward", np.float64),
        ("state", np.intc),
        ("ending", np.intc),
    ]
)

# How an episode can end.
ENDINGS = {"cut": CUT, "ended": ENDED, "success": SUCCESS}

# Sums over episodes that a space keeps, in the order of its `totals`: steps, episodes
# that were cut, weighted successes, and ||g||^2 / q, whose mean is the second moment of
# the gradient of on-policy episodes.
TOTALS = ("steps", "n_cut", "weighted_success", "norm2_target")


cdef class Simulator:
    """A table of transitions that can be walked through.

    Parameters
    ----------
    outcomes : structured ndarray and dtype OUTCOME
        What can follow each pair (state, action), those of a pair together.
    first : ndarray of shape (n_states * n_actions + 1,) and dtype intp
        Where the outcomes of pair ``state * n_actions + action`` begin.
    start_states : ndarray of int32
        States that an episode can begin in.
    start_cumulative : ndarray of float64
        Their cumulative probabilities.
    n_actions : int
        Number of actions.
    """

    def __init__(
        self, const Outcome[::1] outcomes, const Py_ssize_t[::1] first,
        const int[::1] start_states, const double[::1] start_cumulative,
        Py_ssize_t n_actions,
    ):
        self.outcomes = outcomes
        self.first = first
        self.start_states = start_states
        self.start_cumulative = start_cumulative
        self.n_actions = n_actions
        self.n_states = (first.shape[0] - 1) // n_actions

    cdef int start(self, bitgen_t* bits) noexcept nogil:
        """Draw the first state; no random number where there is one only."""
        cdef Py_ssize_t k = 0, last = self.start_states.shape[0] - 1
        cdef double u
        if last > 0:
            u = bits.next_double(bits.state)
            while k < last and u >= self.start_cumulative[k]:
                k += 1
        return self.start_states[k]

    cdef const Outcome* move(
        self, bitgen_t* bits, Py_ssize_t state, Py_ssize_t action
    ) noexcept nogil:
        """Draw an outcome; no random number where there is one only."""
        cdef Py_ssize_t pair = state * self.n_actions + action
        cdef Py_ssize_t k = self.first[pair], last = self.first[pair + 1] - 1
        cdef double u
        if k < last:
            u = bits.next_double(bits.state)
            while k < last and u >= self.outcomes[k].cumulative:
                k += 1
        return &self.outcomes[k]

    def evaluate(
        self, const double[:, ::1] policy, Py_ssize_t max_steps, double tail=1e-12
    ):
        """Return what a policy is worth, by forward recursion over its states.

        Parameters
        ----------
        policy : ndarray of shape (n_states, n_actions)
            Probabilities of the actions.
        max_steps : int
            Steps after which an episode is cut.
        tail : float, default=1e-12
            Probability of episodes that are still going on at which to stop.

        Returns
        -------
        mean_return, success, n_steps : float
            Expected sum of rewards, probability of ending at a goal, and expected
            number of steps.
        """
        cdef Py_ssize_t s, a, k, _t, pair
        cdef double[::1] now = np.zeros(self.n_states), then = np.zeros(self.n_states)
        cdef double[::1] other
        cdef double before = 0.0, mass, alive = 1.0, success = 0.0, steps = 0.0
        cdef double total = 0.0
        for k in range(self.start_states.shape[0]):
            now[self.start_states[k]] += self.start_cumulative[k] - before
            before = self.start_cumulative[k]
        with nogil:
            for _t in range(max_steps):
                if alive < tail:
                    break
                steps += alive
                for s in range(self.n_states):
                    if now[s] == 0.0:
                        continue
                    for a in range(self.n_actions):
                        pair = s * self.n_actions + a
                        before = 0.0
                        for k in range(self.first[pair], self.first[pair + 1]):
                            mass = now[s] * policy[s, a]
                            mass *= self.outcomes[k].cumulative - before
                            before = self.outcomes[k].cumulative
                            total += mass * self.outcomes[k].reward
                            if self.outcomes[k].ending == CUT:
                                then[self.outcomes[k].state] += mass
                            elif self.outcomes[k].ending == SUCCESS:
                                success += mass
                    now[s] = 0.0
                other = now
                now = then
                then = other
                alive = 0.0
                for s in range(self.n_states):
                    alive += now[s]
        return total, success, steps


cdef class EpisodeSpace:
    """The episodes of a softmax policy: P_w, and the episode drawn last.

    Parameters
    ----------
    policy : ndarray of shape (n_states, n_actions)
        P_w, an array of the caller, changed in place by the problem.
    max_steps : int
        Number of steps at which an episode is cut.

    Attributes
    ----------
    n_states, n_actions, max_steps : int
        Sizes.
    """

    kind = "episodes"
    stationary = False

    def __init__(self, double[:, ::1] policy, Py_ssize_t max_steps):
        self.n_states, self.n_actions = policy.shape[0], policy.shape[1]
        self.max_steps = max_steps
        cdef int[::1] states = np.zeros(max_steps + 1, dtype=np.intc)
        cdef int[::1] actions = np.zeros(max_steps, dtype=np.intc)
        cdef int[::1] visited = np.zeros(min(self.n_states, max_steps), dtype=np.intc)
        cdef double[::1] rewards = np.zeros(max_steps)
        cdef double[::1] log_ratios = np.zeros(max_steps + 1)
        cdef double[::1] pulls = np.zeros(max_steps)
        cdef double[::1] totals = np.zeros(N_TOTALS)
        self.episode.n_actions = self.n_actions
        self.episode.max_steps = max_steps
        self.episode.policy = &policy[0, 0]
        self.episode.mixing = 1.0
        self.episode.states = &states[0]
        self.episode.actions = &actions[0]
        self.episode.visited = &visited[0]
        self.episode.rewards = &rewards[0]
        self.episode.log_ratios = &log_ratios[0]
        self.episode.pulls = &pulls[0]
        self.episode.totals = &totals[0]
        # They keep the memory that the pointers point to.
        self.arrays = {
            "policy": np.asarray(policy),
            "states": np.asarray(states),
            "actions": np.asarray(actions),
            "visited": np.asarray(visited),
            "rewards": np.asarray(rewards),
            "log_ratios": np.asarray(log_ratios),
            "pulls": np.asarray(pulls),
            "totals": np.asarray(totals),
        }

    def place(self, states, actions, rewards, str ending):
        """Put an episode here that was simulated elsewhere.

        A sampler then sets its densities (``TrajectoryDraws.weigh``).

        Parameters
        ----------
        states : array-like of shape (length + 1,)
            The states, and the one that the episode stopped in.
        actions, rewards : array-like of shape (length,)
            Actions and rewards of the steps.
        ending : {"cut", "ended", "success"}
            How it ended.
        """
        cdef Py_ssize_t length = len(actions)
        if length > self.max_steps:
            raise ValueError(
                f"The episode has {length} steps, max_steps is {self.max_steps}."
            )
        self.arrays["states"][:length + 1] = states
        self.arrays["actions"][:length] = actions
        self.arrays["rewards"][:length] = rewards
        self.episode.length = length
        self.episode.ending = ENDINGS[ending]

    def last_episode(self):
        """Return a copy of the episode drawn last."""
        n = self.episode.length
        names = {"states": n + 1, "actions": n, "rewards": n, "log_ratios": n + 1}
        return {
            "ending": list(ENDINGS)[self.episode.ending],
            **{name: self.arrays[name][:size].copy() for name, size in names.items()},
        }

    def take_totals(self):
        """Return the sums over episodes since the last call, and begin anew."""
        totals = dict(zip(TOTALS, self.arrays["totals"].tolist(), strict=True))
        self.arrays["totals"][:] = 0.0
        return totals
