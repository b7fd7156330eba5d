# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Episodes from a mixture of the target policy and a learned one."""

import numpy as np

from libc.math cimport exp, fmax, fmin, log
from sklearn_awsgd._kernels._episodes cimport CUT, Episode, Outcome, density
from sklearn_awsgd._kernels._samplers cimport uniform

TRAJECTORY_UPDATES = {"moments": MOMENTS, "sgd": SGD}

# Weight of the newest episode in the running mean of ||d||^2.
NORM2_FORGETTING = 0.01
cdef double norm2_forgetting = NORM2_FORGETTING


cdef class TrajectoryDraws(RandomSampler):
    """An episode comes from P_w with probability `mixing`, else from Q_tau.

    The coin is thrown once in an episode, so ``q = dQ/dP_w = mixing + (1 - mixing)
    Q_tau/P_w`` of the whole episode and the weight 1/q is at most 1 / mixing, however
    long it is. The space holds one episode, so a batch has one.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream: a number for the coin (none for mixing=1), then for each step one
        for the action and, where the outcome is random, one for that.
    space : EpisodeSpace
        P_w, and where the episode is put.
    simulator : Simulator or None
        The environment. None when episodes are simulated elsewhere, see :meth:`weigh`.
    state : dict of ndarray
        `behavior` (Q_tau), `log_ratio` (log Q_tau / P_w), `moments`, `visits`, `tau` of
        shape (n_states, n_actions) and `scale` of shape (3,), changed in place.
    update : {"moments", "sgd"}
        How Q_tau is learned.
    settings : dict of float
        `mixing`, `optimism`, `floor`, `carry`, `forgetting`, `eta0` and `normalize`,
        see :class:`sklearn_awsgd.samplers.TrajectorySampler`.
    """

    def __init__(
        self, generator, EpisodeSpace space, Simulator simulator, state, str update,
        settings,
    ):
        cdef Py_ssize_t s
        super().__init__(generator)
        self.space = space
        self.simulator = simulator
        self.update = TRAJECTORY_UPDATES[update]
        self.mixing = settings["mixing"]
        self.optimism = settings["optimism"]
        self.floor = settings["floor"]
        self.carry = settings["carry"]
        self.forgetting = settings["forgetting"]
        self.eta0 = settings["eta0"]
        self.normalize = settings["normalize"]
        self.behavior = state["behavior"]
        self.log_ratio = state["log_ratio"]
        self.moments = state["moments"]
        self.visits = state["visits"]
        self.tau = state["tau"]
        self.scale = state["scale"]
        self.hits = np.zeros((space.n_states, space.n_actions))
        space.episode.mixing = self.mixing
        for s in range(space.n_states):
            self.refresh(s)

    cdef void draw(self, Point* x) noexcept nogil:
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t t = 0, a, last = episode.n_actions - 1
        cdef int s = 0
        cdef double u, log_ratio = 0.0
        cdef bint learned = self.mixing < 1.0
        cdef const double* row
        cdef const Outcome* outcome
        x.origin = 0
        if learned and uniform(self.bits) >= self.mixing:
            x.origin = 1
        s = self.simulator.start(self.bits)
        episode.states[0] = s
        episode.ending = CUT
        while t < episode.max_steps:
            row = episode.policy + s * episode.n_actions
            if x.origin == 1:
                row = &self.behavior[s, 0]
            u = uniform(self.bits)
            a = 0
            while a < last and u >= row[a]:
                u -= row[a]
                a += 1
            if learned:
                log_ratio += self.log_ratio[s, a]
                episode.log_ratios[t + 1] = log_ratio
            outcome = self.simulator.move(self.bits, s, a)
            episode.actions[t] = <int> a
            episode.rewards[t] = outcome.reward
            s = outcome.state
            t += 1
            episode.states[t] = s
            if outcome.ending != CUT:
                episode.ending = outcome.ending
                break
        episode.length = t
        x.i = episode.states[0]
        x.q = density(episode, t) if learned else 1.0

    def weigh(self):
        """Set the densities of an episode that was placed in the space.

        Returns
        -------
        q : float
            dQ/dP of the whole episode.
        """
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t t
        for t in range(episode.length):
            episode.log_ratios[t + 1] = (
                episode.log_ratios[t]
                + self.log_ratio[episode.states[t], episode.actions[t]]
            )
        return density(episode, episode.length) if self.mixing < 1.0 else 1.0

    cdef void observe(self, const Point* x) noexcept nogil:
        if self.mixing >= 1.0:
            return
        if self.update == MOMENTS:
            self.learn_moments()
        else:
            self.learn_tau(x)

    cdef double pair(self, Py_ssize_t s, Py_ssize_t a) noexcept nogil:
        """Return m(s, a); of a pair that was never tried what optimism says."""
        if self.visits[s, a] > 0.0:
            return self.moments[s, a]
        return self.optimism * self.scale[LARGEST_PULL]

    cdef void learn_moments(self) noexcept nogil:
        """Back up the pulls of the episode, from its end to its start."""
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t t, s, a, k, then
        cdef double target, later
        cdef const double* row
        for t in range(episode.length - 1, -1, -1):
            s, a = episode.states[t], episode.actions[t]
            target = episode.pulls[t]
            self.scale[LARGEST_PULL] = fmax(self.scale[LARGEST_PULL], target)
            if t < episode.length - 1 or episode.ending == CUT:
                then = episode.states[t + 1]
                later = 0.0
                row = episode.policy + then * episode.n_actions
                for k in range(episode.n_actions):
                    later += row[k] * self.pair(then, k)
                target += self.carry * later
            self.visits[s, a] += 1.0
            self.moments[s, a] += fmax(self.forgetting, 1.0 / self.visits[s, a]) * (
                fmin(target, self.scale[LARGEST_PULL]) - self.moments[s, a]
            )

    cdef void learn_tau(self, const Point* x) noexcept nogil:
        """Note the direction of the paper's step: it is taken by `adapt`.

        ``grad_tau log q`` is that of log Q_tau times the probability that the episode
        came from Q_tau, ``1 - mixing / q``.
        """
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t t
        self.step = self.eta0 * (1.0 - self.mixing / x.q) * x.norm2
        if self.normalize:
            # The running mean is that of the episodes before, so the step has no units.
            if self.scale[NORM2] > 0.0:
                self.step /= self.scale[NORM2]
            else:
                self.step = 0.0
            self.scale[NORM2_WEIGHT] += norm2_forgetting * (
                1.0 - self.scale[NORM2_WEIGHT]
            )
            self.scale[NORM2] += norm2_forgetting / self.scale[NORM2_WEIGHT] * (
                x.norm2 - self.scale[NORM2]
            )
        for t in range(episode.length):
            self.hits[episode.states[t], episode.actions[t]] += 1.0

    cdef void adapt(self) noexcept nogil:
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t k, s, a
        cdef double total
        if self.mixing >= 1.0:
            return
        for k in range(episode.n_visited):
            s = episode.visited[k]
            if self.update == SGD:
                total = 0.0
                for a in range(episode.n_actions):
                    total += self.hits[s, a]
                for a in range(episode.n_actions):
                    self.tau[s, a] += self.step * (
                        self.hits[s, a] - total * self.behavior[s, a]
                    )
                    self.hits[s, a] = 0.0
            self.refresh(s)

    cdef void refresh(self, Py_ssize_t s) noexcept nogil:
        """Derive Q_tau(. | s) from what is known of the state."""
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t a, n = episode.n_actions
        cdef double total = 0.0, factor, least
        if self.update == SGD:
            self.refresh_from_tau(s)
            return
        least = self.floor * self.scale[LARGEST_PULL]
        for a in range(n):
            factor = self.pair(s, a) + least
            if self.scale[LARGEST_PULL] == 0.0:
                factor = 1.0
            self.log_ratio[s, a] = factor
            self.behavior[s, a] = factor * episode.policy[s * n + a]
            total += self.behavior[s, a]
        for a in range(n):
            self.behavior[s, a] /= total
            self.log_ratio[s, a] = log(self.log_ratio[s, a] / total)

    cdef void refresh_from_tau(self, Py_ssize_t s) noexcept nogil:
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t a, n = episode.n_actions
        cdef double largest = self.tau[s, 0], total = 0.0
        for a in range(1, n):
            largest = fmax(largest, self.tau[s, a])
        for a in range(n):
            self.behavior[s, a] = exp(self.tau[s, a] - largest)
            total += self.behavior[s, a]
        for a in range(n):
            self.behavior[s, a] /= total
            # A probability that underflows is never drawn from P_w.
            self.log_ratio[s, a] = (
                self.tau[s, a] - largest - log(total)
                - log(fmax(episode.policy[s * n + a], 1e-300))
            )

    def stratum_probabilities(self):
        """Return the shares of P_w and of Q_tau."""
        return np.array((self.mixing, 1.0 - self.mixing))

    def densities(self):
        """Return q of the first t steps of the last episode, for every t.

        There are too many episodes to list them all.
        """
        cdef Py_ssize_t t
        cdef const Episode* episode = &self.space.episode
        if self.mixing >= 1.0:
            return np.ones(episode.length + 1)
        return np.array([density(episode, t) for t in range(episode.length + 1)])
