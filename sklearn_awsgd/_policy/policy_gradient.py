"""AWSGDPolicyGradient: policies that learn how to explore while they are learned."""

import copy
import warnings
from functools import partial

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._base import EstimatorMixin
from sklearn_awsgd._callbacks import NoTask, fit_with_callbacks, with_callbacks
from sklearn_awsgd._kernels._policy import LEARNING_RATES, WEIGHTS
from sklearn_awsgd._policy.tasks import FeatureTask, PolicySettings, make_task
from sklearn_awsgd._policy.training import (
    LEAST_PIECES,
    EpisodeLog,
    piece_length,
    run_episodes,
)
from sklearn_awsgd._solver.runs import Diverged
from sklearn_awsgd._validation import (
    Boolean,
    Integer,
    Options,
    Real,
    check_number,
    check_option,
    check_parameters,
    unchanged_on_failure,
)
from sklearn_awsgd.samplers.base import resolve_sampler
from sklearn_awsgd.samplers.trajectory import TrajectorySampler

# The default bonus where states can be counted.
AUTO_BONUS = 0.01


class AWSGDPolicyGradient(EstimatorMixin, BaseEstimator):
    """Policy gradient that learns how to explore while it learns the policy.

    The target policy P_w is a softmax in each state and ascends its expected return. A
    part of the episodes is played by an exploration policy Q_tau, which goes where the
    gradient of the target policy is large or has never been seen. Episodes are weighted
    for what they would be worth under P_w.

    It is for environments that can be simulated and whose reward is rare. Where the
    whole table of transitions is known and small, planning is exact and quicker.

    Parameters
    ----------
    sampler : {"auto", "trajectory", "on_policy"} or TrajectorySampler, default="auto"
        Where episodes come from.

        - "trajectory": :class:`~sklearn_awsgd.samplers.TrajectorySampler`, half of the
          episodes from P_w and half from the learned Q_tau.
        - "on_policy": all from P_w, the usual policy gradient.
        - "auto": "trajectory" for finitely many states, "on_policy" for features, where
          there is no table of pairs to learn the exploration on.
    weights : {"suffix", "per_decision", "episode"}, default="suffix"
        What the gradient of a step is weighted with when an episode is not the target
        policy's own.

        - "suffix": the ratio P_w/Q of what follows the step, at most 1 / mixing. The
          least noisy and not unbiased: states count as often as they are visited, not
          as often as P_w would.
        - "per_decision": each reward by the ratio of all that led to it; unbiased.
        - "episode": the ratio of the whole episode, the paper's; unbiased.
    discount : float in (0, 1], default=0.99
        Factor of rewards that come one step later.
    learning_rate : {"range", "adagrad", "rmsprop", "constant"}, default="range"
        What `eta0` is relative to: the largest return so far (and no state moves by
        more than one in an episode), all past gradients of a state, its recent ones, or
        nothing. The first three do not depend on the units of the reward.
    eta0 : float > 0, default=0.3
        Step size. With "range", 1 is quicker where outcomes are certain and too much
        where they are noisy.
    bonus : float >= 0 or None, default=None
        Reward for trying a pair (state, action) for the n-th time, divided by sqrt(n),
        relative to the largest return so far. None is 0.01 for finitely many states,
        and nothing for features, which cannot be counted. 0 is the paper's algorithm.
    baseline : bool, default=True
        Whether to subtract state values from the returns and to let them stand for what
        would follow a cut episode. False is the paper's algorithm.
    features : fitted transformer or callable, default=None
        Takes observations of a Gymnasium environment, one in a row, to the features of
        a linear softmax policy. It needs a constant feature if it is to have an
        intercept. None where observations are the numbers of states.
    n_episodes : int, default=10000
        Number of episodes of ``fit``.
    max_steps : int, default=None
        Number of steps at which an episode is cut. None takes the limit of the
        environment; a table without one is cut after ten steps for each state, at
        least 1,000.
    verbose : int, default=0
        Whether to print a line for each piece of the history.
    random_state : int, RandomState instance or None, default=None
        Seed of the episodes.

    Attributes
    ----------
    policy_ : ndarray of shape (n_states, n_actions)
        The target policy P_w. Not there with `features`.
    behavior_policy_ : ndarray of shape (n_states, n_actions)
        The exploration policy Q_tau; on-policy, P_w itself. Not there with `features`.
    coef_ : ndarray of shape (n_actions, n_features)
        Coefficients of the linear policy, with `features` only.
    sampler_ : TrajectorySampler
        The sampler, with what it has learned.
    history_ : dict of ndarray
        Over time: `episodes`, `steps`, `seconds`, `return` and `success` of the target
        policy (weighted means over the last episodes, rewards not discounted), `cut`
        (share of episodes that were cut), `effective_sample_size` and `variance_gain`.
        ``fit`` adds 50 to 500 records, ``partial_fit`` one for a call of usual length.
    variance_gain_ : float
        Second moment of the gradient of on-policy episodes over that of ours, estimated
        from the last piece of the history.
    n_episodes_, n_steps_ : int
        Number of episodes, and of steps in them, of all calls.

    See Also
    --------
    sklearn_awsgd.TabularMDP : A process given by arrays.
    sklearn_awsgd.datasets.GridWorld : The grid of the paper.

    Notes
    -----
    The step of an episode is

    ``d = sum_t c_t (G_t - b(s_t)) grad log P_w(a_t | s_t)``,

    with G_t the discounted return that follows step t, b the baseline values from
    before the episode and c_t the weight. As usual, steps are not discounted by how
    late they come. The paper's algorithm [1]_ is ``AWSGDPolicyGradient(
    sampler=TrajectorySampler(update="sgd", normalize=False, mixing=0, eta0=eta_0),
    weights="episode", learning_rate="constant", eta0=rho_0, baseline=False,
    bonus=0)``.

    References
    ----------
    .. [1] G. Bouchard, T. Trouillon, J. Perez, A. Gaidon, "Online Learning to Sample".

    Examples
    --------
    >>> from sklearn_awsgd import AWSGDPolicyGradient
    >>> from sklearn_awsgd.datasets import GridWorld
    >>> grid = GridWorld(6, random_state=0)
    >>> model = AWSGDPolicyGradient(n_episodes=2000, random_state=0).fit(grid)
    >>> model.score(grid, scoring="success") > 0.9
    True
    >>> bool(grid.to_mdp().evaluate(model.policy_).success > 0.9)
    True
    """

    _doc_page = "policy"
    _parameters = {
        "weights": Options(*WEIGHTS),
        "discount": Real(above=0, high=1),
        "learning_rate": Options(*LEARNING_RATES),
        "eta0": Real(above=0),
        "bonus": Real(low=0, optional=True),
        "baseline": Boolean(),
        "n_episodes": Integer(low=1),
        "max_steps": Integer(low=1, optional=True),
    }

    def __init__(
        self,
        sampler="auto",
        *,
        weights="suffix",
        discount=0.99,
        learning_rate="range",
        eta0=0.3,
        bonus=None,
        baseline=True,
        features=None,
        n_episodes=10_000,
        max_steps=None,
        verbose=0,
        random_state=None,
    ):
        self.sampler = sampler
        self.weights = weights
        self.discount = discount
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.bonus = bonus
        self.baseline = baseline
        self.features = features
        self.n_episodes = n_episodes
        self.max_steps = max_steps
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, env, y=None):
        """Learn a policy from scratch.

        Parameters
        ----------
        env : TabularMDP, GridWorld or Gymnasium environment
            The environment. Gymnasium's with a table of transitions, such as
            FrozenLake, CliffWalking and Taxi, run compiled; others are played.
        y : None
            Ignored.

        Returns
        -------
        self : AWSGDPolicyGradient
            The fitted estimator.
        """
        with unchanged_on_failure(self):
            self._check_params()
            task = make_task(env, self.features, self.max_steps)
            self._begin(task)
            self._train_with_callbacks(task, env)
        return self

    def partial_fit(self, env, y=None, n_episodes=1000):
        """Go on learning, from where the last call ended.

        Parameters
        ----------
        env : TabularMDP, GridWorld or Gymnasium environment
            The environment, with the same states and actions as before.
        y : None
            Ignored.
        n_episodes : int, default=1000
            Number of episodes.

        Returns
        -------
        self : AWSGDPolicyGradient
            The estimator.
        """
        with unchanged_on_failure(self):
            self._check_params()
            check_number("n_episodes", n_episodes, low=1, integer=True)
            task = make_task(env, self.features, self.max_steps)
            if not hasattr(self, "_state"):
                self._begin(task)
            self._check_shape(task)
            # Training changes these in place.
            for name in ("sampler_", "_state", "_generator"):
                setattr(self, name, copy.deepcopy(getattr(self, name)))
            self._log = self._log.copy()
            piece = piece_length(n_episodes, 1, task.max_steps)
            self._train(task, n_episodes, piece)
        return self

    def predict(self, states):
        """Return the most probable action in each state.

        Parameters
        ----------
        states : array-like
            Numbers of states, or observations, one in a row, with `features`.

        Returns
        -------
        actions : ndarray
            Actions, counted from zero.
        """
        return self.predict_proba(states).argmax(axis=-1)

    def predict_proba(self, states):
        """Return the probabilities of the actions of the target policy.

        Parameters
        ----------
        states : array-like
            Numbers of states, or observations, one in a row, with `features`.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_actions)
            They sum to one in each row.
        """
        check_is_fitted(self, "history_")
        return self._reader.probabilities(self._state, states)

    def score(self, env, y=None, *, scoring="return", n_episodes=100):
        """Play fresh episodes with the target policy and return how it did.

        Parameters
        ----------
        env : TabularMDP, GridWorld or Gymnasium environment
            The environment.
        y : None
            Ignored.
        scoring : {"return", "success"}, default="return"
            The mean sum of rewards, or the share of episodes that end at a goal.
        n_episodes : int, default=100
            Number of episodes.

        Returns
        -------
        score : float
            Higher is better.
        """
        check_is_fitted(self, "history_")
        check_option("scoring", scoring, ("return", "success"))
        check_number("n_episodes", n_episodes, low=1, integer=True)
        task = make_task(env, self.features, self.max_steps)
        self._check_shape(task)
        # Apart from the stream that trained the policy.
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        generator = np.random.PCG64([1, seed])
        on_policy = TrajectorySampler(mixing=1.0)
        returns, successes = task.returns(self._state, on_policy, n_episodes, generator)
        if scoring == "return":
            return float(returns.mean())
        if not task.knows_success:
            raise ValueError(
                "scoring='success': the environment does not say what success is. It "
                "has to put 'is_success' into the info of the last step; otherwise use "
                "scoring='return'."
            )
        return float(successes.mean())

    def _check_params(self):
        check_parameters(self, self._parameters)
        if self.bonus and self.features is not None:
            raise ValueError(
                f"bonus={self.bonus!r} counts visits of states, which features do not "
                "have: use bonus=None or 0 with features."
            )
        self._make_sampler()

    def _make_sampler(self):
        """Return a copy of the sampler that the parameter `sampler` stands for."""
        on_tables = self.features is None
        named = {
            "auto": TrajectorySampler(mixing=0.5 if on_tables else 1.0),
            "trajectory": TrajectorySampler(update="moments" if on_tables else "sgd"),
            "on_policy": TrajectorySampler(mixing=1.0),
        }
        sampler = resolve_sampler(self.sampler, named, "episodes")
        learning = sampler.mixing < 1
        if learning and sampler.update == "moments" and not on_tables:
            raise ValueError(
                "sampler.update='moments' needs a table of states; with features use "
                "update='sgd' or sampler='on_policy'."
            )
        return sampler

    def _begin(self, task):
        """Set up what outlives a call."""
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self._generator = np.random.PCG64(seed)
        self._log = EpisodeLog()
        self._state = task.first_state()
        self._shape = task.shape
        self.sampler_ = self._make_sampler()

    def _check_shape(self, task):
        if task.shape != self._shape:
            raise ValueError(
                f"The environment has {task.shape[0]} states and {task.shape[1]} "
                f"actions, the policy was learned for {self._shape[0]} and "
                f"{self._shape[1]}; use fit for a new environment."
            )

    @with_callbacks
    def _train_with_callbacks(self, task, env):
        """Train, and tell callbacks of it, with what was given to fit."""
        piece = piece_length(self.n_episodes, LEAST_PIECES, task.max_steps)
        n_pieces = -(-self.n_episodes // piece)
        with fit_with_callbacks(self, env, max_subtasks=n_pieces) as fit_task:
            self._train(task, self.n_episodes, piece, fit_task)

    def _train(self, task, n_episodes, piece, fit_task=None):
        """Run the episodes and assign the fitted attributes."""
        fit_task = NoTask() if fit_task is None else fit_task
        bonus = self.bonus
        if bonus is None:
            bonus = 0.0 if isinstance(task, FeatureTask) else AUTO_BONUS
        settings = PolicySettings(
            weights=self.weights,
            learning_rate=self.learning_rate,
            eta0=self.eta0,
            discount=self.discount,
            bonus=bonus,
            baseline=self.baseline,
        )
        problem, space = task.make(self._state, settings)
        opened = task.open(self.sampler_, self._state, space, self._generator)
        self._log.verbose = self.verbose
        n_before = len(self._log.records)
        try:
            run_episodes(
                problem,
                opened,
                space,
                n_episodes,
                piece,
                self._log,
                lambda: partial(
                    fit_task.begin("episodes").end, partial(self._snapshot, task)
                ),
            )
            if not task.is_finite(self._state):
                raise Diverged(self._log.last.episodes)
        except Diverged as error:
            raise ValueError(
                f"Floating-point overflow: the steps diverged after "
                f"{error.n_draws} episodes. Lower eta0={self.eta0!r}, use "
                "learning_rate='range', or raise the sampler's mixing, which bounds "
                "the weights of episodes by 1 / mixing."
            ) from error
        if all(record.cut == 1 for record in self._log.records):
            warnings.warn(
                f"All {self._log.last.episodes} episodes were cut at "
                f"{task.max_steps} steps and none has ended: raise max_steps, or train "
                "on more episodes.",
                ConvergenceWarning,
                stacklevel=5,
            )
        if not task.knows_success:
            for record in self._log.records[n_before:]:
                record.success = np.nan
        vars(self).update(self._fitted_attributes(task))

    def _snapshot(self, task):
        """Return fitted attributes that training does not change any more."""
        state = copy.deepcopy(self._state)
        return self._fitted_attributes(task) | {"_state": state}

    def _fitted_attributes(self, task):
        """Return the fitted attributes, as of the last record."""
        reader, last = task.reader(), self._log.last
        return reader.attributes(self._state, self.sampler_) | {
            "_reader": reader,
            "history_": self._log.table(),
            "variance_gain_": last.variance_gain,
            "n_episodes_": last.episodes,
            "n_steps_": last.steps,
        }
