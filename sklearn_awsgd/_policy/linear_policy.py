"""A linear softmax policy on features, in NumPy: the maths of the compiled kernels.

With one feature for each state these are the compiled problem and sampler, but for the
baseline, which is a regression on the features here.
"""

import numpy as np
from scipy.special import log_softmax, softmax

from sklearn_awsgd._kernels._episodes import TOTALS
from sklearn_awsgd._kernels._loop import POINT
from sklearn_awsgd._kernels._policy import RMSPROP_MEMORY, VALUE_MEMORY
from sklearn_awsgd._kernels._trajectory_sampler import NORM2_FORGETTING
from sklearn_awsgd.samplers.base import OpenedSampler

# Ridge of the baseline, relative to the mean square of the features.
VALUE_RIDGE = 1e-6


class FeatureSpace:
    """Episodes of a linear softmax policy: P_w, and the episode played last.

    Parameters
    ----------
    coef : ndarray of shape (n_actions, n_features)
        Coefficients of P_w, changed in place by the problem.
    max_steps : int
        Number of steps at which an episode is cut.
    """

    kind = "episodes"
    stationary = False

    def __init__(self, coef, max_steps):
        self.coef = coef
        self.max_steps = max_steps
        self.mixing = 1.0
        self.features = self.actions = self.rewards = self.log_ratios = None
        self.ending = "cut"
        self.totals = dict.fromkeys(TOTALS, 0.0)

    def density(self):
        """Return dQ/dP of the first t steps, for every t."""
        if self.mixing >= 1:
            return np.ones(len(self.log_ratios))
        return self.mixing + (1 - self.mixing) * np.exp(
            np.minimum(self.log_ratios, 600)
        )

    def take_totals(self):
        """Return the sums over episodes since the last call, and begin anew."""
        totals, self.totals = self.totals, dict.fromkeys(TOTALS, 0.0)
        return totals


class LinearPolicyProblem:
    """``P_w(a | s) = softmax(W features(s))_a``; a point is an episode.

    Parameters
    ----------
    space : FeatureSpace
        Where the episodes are.
    state : dict of ndarray
        `squares` of shape (n_features,), `scale` of shape (1,), `gram` of shape
        (n_features, n_features) and `moment` of shape (n_features,); changed in place.
    weights, rate, eta0, discount, baseline
        As of :class:`sklearn_awsgd._kernels._policy.PolicyProblem`. The rates are those
        of a feature where the table has those of a state.
    """

    def __init__(self, space, state, weights, rate, eta0, discount, baseline):
        self.space = space
        self.state = state
        self.weights = weights
        self.rate = rate
        self.eta0 = eta0
        self.discount = discount
        self.baseline = baseline

    def step_points(self, points, weights):
        """Step on the episode of the space: one point with its weight."""
        space, state, weight = self.space, self.state, float(weights[0])
        features = space.features[:-1]
        n_steps = len(features)
        values = self._values(space.features)
        knows = state["gram"].any()
        bootstrap = values[-1] if space.ending == "cut" and self.baseline else 0.0
        follows = self._returns(space.rewards, bootstrap)
        b = values[:-1] if self.baseline else np.zeros(n_steps)
        plain = follows - b
        weighted = self._weigh(plain, b, bootstrap, weight)
        if self.baseline and not knows:
            # Nothing is known before the first episode: it sets the values only.
            plain, weighted = np.zeros(n_steps), np.zeros(n_steps)
        residual = -softmax(features @ space.coef.T, axis=1)
        residual[np.arange(n_steps), space.actions] += 1
        gradient = (weighted[:, None] * residual).T @ features
        target = (plain[:, None] * residual).T @ features
        earned = np.abs(self._returns(space.rewards, 0.0)).max()
        state["scale"][0] = max(state["scale"][0], earned)
        space.coef += self._rates(gradient) * gradient
        state["gram"] *= VALUE_MEMORY
        state["gram"] += weight / n_steps * features.T @ features
        state["moment"] *= VALUE_MEMORY
        state["moment"] += weight / n_steps * features.T @ follows
        points["loss"] = -np.sum(space.rewards)
        points["norm2"] = (gradient**2).sum()
        space.totals["steps"] += n_steps
        space.totals["n_cut"] += space.ending == "cut"
        space.totals["weighted_success"] += weight * (space.ending == "success")
        space.totals["norm2_target"] += weight * (target**2).sum()

    def _returns(self, rewards, last):
        returns = np.empty(len(rewards))
        for t in range(len(rewards) - 1, -1, -1):
            last = rewards[t] + self.discount * last
            returns[t] = last
        return returns

    def _weigh(self, plain, b, bootstrap, weight):
        """Return the weighted advantages, as the compiled problem does."""
        density = self.space.density()
        if self.weights == "episode":
            return weight * plain
        if self.weights == "suffix":
            mixing = self.space.mixing
            bound = 1 / mixing if mixing > 0 else np.inf
            return plain * np.minimum(bound, weight * density[:-1])
        ratio = 1 / density[1:]
        rewards = ratio * self.space.rewards
        return self._returns(rewards, weight * bootstrap) - ratio * b

    def _rates(self, gradient):
        """Return the rate of each feature."""
        norm2 = (gradient**2).sum(axis=0)
        squares, seen = self.state["squares"], norm2 > 0
        rates = np.full(len(norm2), float(self.eta0))
        if self.rate == "adagrad":
            squares += norm2
        elif self.rate == "rmsprop":
            fresh = seen & (squares == 0)
            squares[fresh] = norm2[fresh]
            squares[seen] += (1 - RMSPROP_MEMORY) * (norm2 - squares)[seen]
        elif self.rate == "range":
            rates /= max(self.state["scale"][0], np.finfo(float).tiny)
            return rates / np.maximum(1.0, rates * np.sqrt(norm2))
        else:
            return rates
        return np.where(seen, rates / np.sqrt(np.where(seen, squares, 1.0)), 0.0)

    def _values(self, features):
        """Return the baseline: a ridge regression on the returns of the past."""
        gram, moment = self.state["gram"], self.state["moment"]
        size = np.trace(gram) / len(gram)
        if size == 0:
            return np.zeros(len(features))
        ridge = VALUE_RIDGE * size * np.eye(len(gram))
        return features @ np.linalg.solve(gram + ridge, moment)


class LinearTrajectoryDraws(OpenedSampler):
    """Episodes from P_w and from a linear softmax policy with coefficients tau.

    Parameters
    ----------
    space : FeatureSpace
        P_w, and where the episode is put.
    player : Player
        Plays the episodes.
    tau : ndarray of shape (n_actions, n_features)
        Coefficients of Q_tau, changed in place.
    scale : ndarray of shape (3,)
        Running mean of ``||d||^2`` and its weight, in its last two places.
    setting : TrajectorySampler
        Its `mixing`, `eta0` and `normalize` are used.
    """

    def __init__(self, space, player, tau, scale, setting):
        self.space = space
        self.player = player
        self.tau = tau
        self.scale = scale
        self.setting = setting
        space.mixing = setting.mixing

    def draw_points(self, n_points):
        """Play one episode, put it into the space, and return its point."""
        space, mixing = self.space, self.setting.mixing
        learned = mixing < 1 and self.player.rng.random() >= mixing
        coef = self.tau if learned else space.coef
        episode = self.player.play(lambda features: softmax(coef @ features))
        space.features = np.array(episode.states)
        space.actions = np.array(episode.actions)
        space.rewards = np.array(episode.rewards)
        space.ending = episode.ending
        seen = space.features[:-1]
        steps = np.arange(len(seen)), space.actions
        ratios = log_softmax(seen @ self.tau.T, axis=1)[steps]
        ratios -= log_softmax(seen @ space.coef.T, axis=1)[steps]
        space.log_ratios = np.concatenate([[0.0], np.cumsum(ratios)])
        point = np.zeros(1, dtype=POINT)
        point["origin"] = learned
        point["q"] = space.density()[-1]
        return point

    def densities(self):
        """Return q of the first t steps of the last episode, for every t."""
        return self.space.density()

    def observe_points(self, points):
        """Take the paper's step on tau, in units of the mean of ``||d||^2``."""
        setting, space = self.setting, self.space
        if setting.mixing >= 1:
            return
        norm2, q = float(points["norm2"][0]), float(points["q"][0])
        step = setting.eta0 * (1 - setting.mixing / q) * norm2
        if setting.normalize:
            step = step / self.scale[1] if self.scale[1] > 0 else 0.0
            self.scale[2] += NORM2_FORGETTING * (1 - self.scale[2])
            self.scale[1] += NORM2_FORGETTING / self.scale[2] * (norm2 - self.scale[1])
        seen = space.features[:-1]
        residual = -softmax(seen @ self.tau.T, axis=1)
        residual[np.arange(len(seen)), space.actions] += 1
        self.tau += step * residual.T @ seen
