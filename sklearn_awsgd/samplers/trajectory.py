"""TrajectorySampler: episodes of a policy, and of a learned exploration."""

import numpy as np

from sklearn_awsgd._kernels._trajectory_sampler import (
    TRAJECTORY_UPDATES,
    TrajectoryDraws,
)
from sklearn_awsgd._validation import Boolean, Options, Real
from sklearn_awsgd.samplers.base import BaseSampler


class TrajectorySampler(BaseSampler):
    """Draw episodes from a mixture of the target policy and a learned exploration.

    Before an episode a coin decides whether it follows the target policy P_w, with
    probability `mixing`, or the exploration policy Q_tau. The weight P_w/Q of a whole
    episode is then at most 1 / `mixing`, however long it is.

    Parameters
    ----------
    update : {"moments", "sgd"}, default="moments"
        How the exploration is learned.

        - "moments": in closed form, ``Q(a|s) ~ P_w(a|s) (m(s, a) + floor largest)``,
          m being a running mean of the size of the gradient that follows the pair. No
          step size; needs a table of states.
        - "sgd": the paper's gradient step on tau, the logits of Q_tau.
    mixing : float in [0, 1], default=0.5
        Share of the episodes that follow P_w. 0 is the paper's algorithm, whose weights
        have no bound; 1 is on-policy learning.
    optimism : float >= 0, default=1.0
        What m is for a pair that was never tried, relative to the largest gradient of a
        single step so far. 0 explores only where there was something to learn before.
    floor : float > 0, default=0.01
        What is added to m, relative to the same: a pair with nothing left to learn is
        still tried.
    carry : float in [0, 1), default=0.9
        How much of the gradient that can follow the next state is counted for a pair.
    forgetting : float in (0, 1], default=0.1
        Least weight of the newest visit in the running means.
    eta0 : float >= 0, default=0.05
        Step size of "sgd".
    normalize : bool, default=True
        Whether "sgd" divides the squared gradient norm by its running mean, so that
        `eta0` has no units. False is the paper's algorithm.

    Attributes
    ----------
    behavior_policy_ : ndarray of shape (n_states, n_actions)
        Q_tau, the learned part of the mixture.
    moments_, visits_ : ndarray of shape (n_states, n_actions)
        The running means of "moments", and how often each pair was tried.
    tau_ : ndarray of shape (n_states, n_actions) or (n_actions, n_features)
        Logits of "sgd", or with features its coefficients.

    Notes
    -----
    With ``delta = r + gamma b(s') - b(s)``, b being the state values of the baseline, a
    visit of (s, a) moves m by ``max(forgetting, 1 / visits)`` towards

    ``|delta| (1 - P(a|s)) + carry sum_a' P(a'|s') m(s', a')``,

    clipped at the largest ``|delta| (1 - P)`` so far: the norm of the gradient of the
    step, and what of it can follow. Everything is in units of the reward, so that the
    units do not matter. The mixture, "moments" and the normalisation are additions of
    this package to the paper [1]_; ``TrajectorySampler(update="sgd", normalize=False,
    mixing=0)`` is the paper's own sampler.

    References
    ----------
    .. [1] G. Bouchard, T. Trouillon, J. Perez, A. Gaidon, "Online Learning to Sample".

    Examples
    --------
    >>> from sklearn_awsgd import AWSGDPolicyGradient
    >>> from sklearn_awsgd.datasets import GridWorld
    >>> from sklearn_awsgd.samplers import TrajectorySampler
    >>> model = AWSGDPolicyGradient(
    ...     sampler=TrajectorySampler(mixing=0.3), n_episodes=50, random_state=0
    ... ).fit(GridWorld(5, random_state=0))
    >>> model.sampler_.behavior_policy_.shape
    (25, 4)
    """

    _doc_page = "policy"
    _space = "episodes"
    _parameters = {
        "update": Options(*TRAJECTORY_UPDATES),
        "mixing": Real(low=0, high=1),
        "optimism": Real(low=0),
        "floor": Real(above=0),
        "carry": Real(low=0, below=1),
        "forgetting": Real(above=0, high=1),
        "eta0": Real(low=0),
        "normalize": Boolean(),
    }
    _needs_training = True
    # Learned arrays of the shape of the policy.
    _learned = {
        "behavior_policy_": "behavior",
        "_log_ratio": "log_ratio",
        "moments_": "moments",
        "visits_": "visits",
        "tau_": "tau",
    }

    def __init__(
        self,
        *,
        update="moments",
        mixing=0.5,
        optimism=1.0,
        floor=0.01,
        carry=0.9,
        forgetting=0.1,
        eta0=0.05,
        normalize=True,
    ):
        self.update = update
        self.mixing = mixing
        self.optimism = optimism
        self.floor = floor
        self.carry = carry
        self.forgetting = forgetting
        self.eta0 = eta0
        self.normalize = normalize

    def prepare(self, space, n_problems, n_groups, strata):
        """Allocate what is learned, unless it is there from an earlier call."""
        if not hasattr(self, "tau_"):
            for name in self._learned:
                setattr(self, name, np.zeros((space.n_states, space.n_actions)))
            self._scale = np.zeros(3)

    def prepare_features(self, shape):
        """Allocate the logits of a linear exploration policy on features."""
        if not hasattr(self, "tau_"):
            self.tau_ = np.zeros(shape)
            self._scale = np.zeros(3)

    def open(self, space, view, problem, generator):
        """Return the compiled sampler, on the state kept here.

        Parameters
        ----------
        space : EpisodeSpace
            P_w, and where the episodes are put.
        view : Simulator or None
            What simulates episodes in the compiled loop; None where they come from
            elsewhere.
        problem : int
            Number of the problem; there is one.
        generator : numpy.random.BitGenerator
            Random stream.

        Returns
        -------
        opened : TrajectoryDraws
            The sampler.
        """
        state = {key: getattr(self, name) for name, key in self._learned.items()}
        state["scale"] = self._scale
        return TrajectoryDraws(
            generator, space, view, state, self.update, self.get_params()
        )

    def keep(self, problem, opened):
        """Keep what was learned: it is in the arrays of this object already."""

    def describe(self, strata, group_names):
        """Return what numbers of strata stand for: the two parts of the mixture."""
        return {"group": np.array(["target", "learned"], dtype=object)[strata]}
