# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The softmax policy of a table of states, trained on weighted episodes."""

import numpy as np

from libc.math cimport exp, fabs, fmax, fmin, sqrt
from sklearn_awsgd._kernels._episodes cimport (
    CUT,
    N_CUT,
    NORM2_TARGET,
    STEPS,
    SUCCESS,
    WEIGHTED_SUCCESS,
    Episode,
    density,
)

WEIGHTS = {"episode": EPISODE, "per_decision": PER_DECISION, "suffix": SUFFIX}
LEARNING_RATES = {
    "constant": CONSTANT, "adagrad": ADAGRAD, "rmsprop": RMSPROP, "range": RANGE
}

# What is left of the past after an episode: of the value of a state that it visits, of
# the mean over all states, and of RMSProp's squares.
VALUE_MEMORY = 0.95
MEAN_MEMORY = 0.99
RMSPROP_MEMORY = 0.99
cdef double value_memory = VALUE_MEMORY
cdef double mean_memory = MEAN_MEMORY
cdef double rmsprop_memory = RMSPROP_MEMORY


cdef class PolicyProblem(Problem):
    r"""``P_w(a | s) = softmax(w_s)_a``; a point is an episode.

    The step ascends the gradient of the expected return,

    ``d = sum_t c_t (G_t - b(s_t)) grad log P_w(a_t | s_t)``,

    G_t being the discounted return that follows step t. The loop hands in the weight
    1/q of the whole episode, q = dQ/dP_w. With ``rho_t`` the ratio P_w/Q of the first t
    steps, read from the space,

    - "episode": ``c_t = 1/q``, Algorithm 2 as it stands; unbiased.
    - "per_decision": each reward ``r_k`` of G_t is weighted with ``rho_{k+1}`` and
      ``b(s_t)`` with ``rho_{t+1}``, the ratios of all that came before; unbiased.
    - "suffix": ``c_t = min(1 / mixing, rho_T / rho_t)``, the ratio of what follows
      given what came before. Not unbiased: states count as often as Q visits them.

    Baseline values b are those from before the episode, so they do not bias the step.
    Where an episode is cut, the value of its last state stands for what would follow.

    Parameters
    ----------
    space : EpisodeSpace
        Where the episodes are. Its policy is kept equal to the softmax of the logits.
    state : dict of ndarray
        `logits` of shape (n_states, n_actions), `values` of shape (n_states, 2),
        `squares` of shape (n_states,), `scale` of shape (3,) and, for a bonus, `visits`
        of shape (n_states, n_actions); changed in place.
    weights : {"episode", "per_decision", "suffix"}
        The weights of the steps.
    rate : {"constant", "adagrad", "rmsprop", "range"}
        What `eta0` is relative to: nothing, the gradients of the state so far, or the
        largest return so far.
    eta0, discount, bonus : float
        See :class:`sklearn_awsgd.AWSGDPolicyGradient`.
    baseline : bool
        Whether there are baseline values; without them cut episodes end with nothing.
    """

    def __init__(
        self, EpisodeSpace space, state, str weights, str rate, double eta0,
        double discount, double bonus, bint baseline,
    ):
        cdef Py_ssize_t s
        self.space = space
        self.weights = WEIGHTS[weights]
        self.rate = LEARNING_RATES[rate]
        self.eta0 = eta0
        self.discount = discount
        self.bonus = bonus
        self.baseline = baseline
        self.logits = state["logits"]
        self.values = state["values"]
        self.squares = state["squares"]
        self.scale = state["scale"]
        self.visits = state["visits"] if bonus > 0 else None
        # Weighted and plain sums of each action, their totals, returns and visits.
        self.sums = np.zeros((space.n_states, 2 * space.n_actions + 4))
        self.rewards = np.zeros(space.max_steps)
        for s in range(space.n_states):
            softmax(
                &self.logits[s, 0],
                space.episode.policy + s * space.n_actions,
                space.n_actions,
            )

    cdef double value(self, Py_ssize_t s) noexcept nogil:
        if self.values[s, 1] > 0.0:
            return self.values[s, 0] / self.values[s, 1]
        return self.mean

    cdef void step(self, Point* x, double weight) noexcept nogil:
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t k
        cdef double total = 0.0
        self.knows_mean = self.scale[MEAN_WEIGHT] > 0.0
        self.mean = 0.0
        if self.knows_mean:
            self.mean = self.scale[MEAN_SUM] / self.scale[MEAN_WEIGHT]
        for k in range(episode.length):
            total += episode.rewards[k]
        x.loss = -total
        x.norm2 = 0.0
        self.count_visits(self.bonus * self.unit_of_bonus())
        self.add_up(weight)
        for k in range(episode.n_visited):
            x.norm2 += self.move(episode.visited[k], weight)
        episode.totals[STEPS] += episode.length
        if episode.ending == CUT:
            episode.totals[N_CUT] += 1.0
        elif episode.ending == SUCCESS:
            episode.totals[WEIGHTED_SUCCESS] += weight

    cdef double unit_of_bonus(self) noexcept nogil:
        """Take in the largest return; return what the bonus is relative to.

        That is the largest return from before the episode. As long as all rewards were
        zero, the bonus is the only reward and its unit is free. When the first reward
        comes, which has units of its own, what the bonus has taught of values and
        squares is forgotten: all returns were zero until then.
        """
        cdef Episode* episode = &self.space.episode
        cdef double before = self.scale[LARGEST], largest = before, earned = 0.0
        cdef Py_ssize_t t, s
        for t in range(episode.length - 1, -1, -1):
            earned = episode.rewards[t] + self.discount * earned
            largest = fmax(largest, fabs(earned))
        self.scale[LARGEST] = largest
        if before > 0.0:
            return before
        if largest == 0.0:
            return 1.0
        for s in range(self.squares.shape[0]):
            self.values[s, 0] = self.squares[s] = 0.0
        self.mean = self.scale[MEAN_SUM] = 0.0
        return 0.0

    cdef void count_visits(self, double bonus) noexcept nogil:
        """Fill `rewards`: those of the episode, with the bonus for what is new.

        In the order of time, so that a reward depends on nothing that comes later.
        """
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t t, s, a
        for t in range(episode.length):
            self.rewards[t] = episode.rewards[t]
            if self.bonus > 0.0:
                s, a = episode.states[t], episode.actions[t]
                self.visits[s, a] += 1.0
                self.rewards[t] += bonus / sqrt(self.visits[s, a])

    cdef void add_up(self, double weight) noexcept nogil:
        """Go through the episode backwards and sum up what it says of each state."""
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t t, s, a, n = episode.n_actions, total = 2 * n
        cdef double follows = 0.0, next_value = 0.0, mean = 0.0
        cdef double reward, b, plain, weighted, ratio, later
        # Nothing is known before the first episode: it sets the values and no more.
        cdef bint learning = self.knows_mean or not self.baseline
        if episode.ending == CUT:
            next_value = self.value(episode.states[episode.length])
            if self.baseline:
                follows = next_value
        later = weight * follows
        episode.n_visited = 0
        for t in range(episode.length - 1, -1, -1):
            s, a = episode.states[t], episode.actions[t]
            reward = self.rewards[t]
            follows = reward + self.discount * follows
            b = self.value(s)
            episode.pulls[t] = fabs(reward + self.discount * next_value - b) * (
                1.0 - episode.policy[s * n + a]
            )
            if self.scale[LARGEST] == 0.0:
                # There is a bonus only, in no units that the sampler could remember.
                episode.pulls[t] = 0.0
            next_value = b
            if not self.baseline:
                b = 0.0
            plain = follows - b
            if episode.mixing >= 1.0:
                weighted = plain
            elif self.weights == EPISODE:
                weighted = weight * plain
            elif self.weights == SUFFIX:
                # rho_T / rho_t, the second being 1 / density.
                ratio = fmin(1.0 / episode.mixing, weight * density(episode, t))
                weighted = plain * ratio
            else:
                ratio = 1.0 / density(episode, t + 1)
                later = ratio * reward + self.discount * later
                weighted = later - ratio * b
            if self.sums[s, total + 3] == 0.0:
                episode.visited[episode.n_visited] = <int> s
                episode.n_visited += 1
            if learning:
                self.sums[s, a] += weighted
                self.sums[s, n + a] += plain
                self.sums[s, total] += weighted
                self.sums[s, total + 1] += plain
            self.sums[s, total + 2] += follows
            self.sums[s, total + 3] += 1.0
            mean += follows
        self.scale[MEAN_SUM] *= mean_memory
        self.scale[MEAN_SUM] += weight * mean / episode.length
        self.scale[MEAN_WEIGHT] = mean_memory * self.scale[MEAN_WEIGHT] + weight

    cdef double move(self, Py_ssize_t s, double weight) noexcept nogil:
        """Move the logits and the value of a state; return its part of ||d||^2."""
        cdef Episode* episode = &self.space.episode
        cdef Py_ssize_t a, n = episode.n_actions, total = 2 * n
        cdef double* sums = &self.sums[s, 0]
        cdef double* policy = episode.policy + s * n
        cdef double norm2 = 0.0, target = 0.0, g, rate
        for a in range(n):
            # grad log P_w(a | s) = e_a - P_w(. | s), summed over the visits.
            sums[a] -= sums[total] * policy[a]
            norm2 += sums[a] * sums[a]
            g = sums[n + a] - sums[total + 1] * policy[a]
            target += g * g
        # E_Q ||g||^2 / q = E_P ||g||^2.
        episode.totals[NORM2_TARGET] += weight * target
        if norm2 > 0.0:
            rate = self.eta0
            if self.rate == ADAGRAD:
                self.squares[s] += norm2
                rate /= sqrt(self.squares[s])
            elif self.rate == RMSPROP:
                if self.squares[s] == 0.0:
                    self.squares[s] = norm2
                self.squares[s] += (1.0 - rmsprop_memory) * (norm2 - self.squares[s])
                rate /= sqrt(self.squares[s])
            elif self.rate == RANGE:
                if self.scale[LARGEST] > 0.0:
                    rate /= self.scale[LARGEST]
                # A state moves by at most one, however often it was visited.
                rate /= fmax(1.0, rate * sqrt(norm2))
            for a in range(n):
                self.logits[s, a] += rate * sums[a]
            softmax(&self.logits[s, 0], policy, n)
        self.values[s, 0] *= value_memory
        self.values[s, 0] += weight * sums[total + 2] / sums[total + 3]
        self.values[s, 1] = value_memory * self.values[s, 1] + weight
        for a in range(total + 4):
            sums[a] = 0.0
        return norm2


cdef void softmax(const double* logits, double* result, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t a
    cdef double largest = logits[0], total = 0.0
    for a in range(1, n):
        largest = fmax(largest, logits[a])
    for a in range(n):
        result[a] = exp(logits[a] - largest)
        total += result[a]
    for a in range(n):
        result[a] /= total
