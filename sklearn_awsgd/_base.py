"""What the linear estimators share: parameters, weights, strata and training."""

import copy
import warnings
from abc import ABCMeta
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_awsgd._kernels._linear import CoordinateRate, ScalarRate
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._solver import History, StopRule, solve
from sklearn_awsgd._validation import check_number, check_option, check_rows
from sklearn_awsgd.samplers import RowTable, StrataSampler, UniformSampler

# Learning rates, and the eta0 each takes for eta0=None. The rates with a step size for
# each coordinate are relative to the gradients it has seen, the others are not.
SCALAR_RATES = {"constant": 0.01, "optimal": 0.01, "invscaling": 0.01}
COORDINATE_RATES = {"adagrad": 0.1, "rmsprop": 0.001, "adadelta": 1.0}
# Memory of RMSProp and AdaDelta.
DECAY = 0.99


@dataclass
class Data:
    """Validated training data.

    Attributes
    ----------
    X : ndarray or CSR of shape (n_samples, n_features)
        Rows.
    norms2 : ndarray of shape (n_samples,)
        Their squared norms.
    mass : ndarray of shape (n_samples,) or None
        P, summing to one; None when all rows weigh the same.
    total : float
        Sum of all weights over the sum of `sample_weight`: the objective is `total`
        times E_P[loss], plus the penalty.
    strata : array-like of shape (n_samples,) or None
        As given to fit.
    """

    X: object
    norms2: np.ndarray
    mass: np.ndarray | None = None
    total: float = 1.0
    strata: object = None

    def set_weights(self, sample_weight, class_weight):
        """Set P from two vectors of weights, either of which may be None."""
        if class_weight is None:
            weight = sample_weight
        elif sample_weight is None:
            weight = class_weight
            self.total = class_weight.mean()
        else:
            weight = sample_weight * class_weight
            self.total = weight.sum() / sample_weight.sum()
        if weight is not None:
            self.mass = weight / weight.sum()


class BaseAWSGD(BaseEstimator, metaclass=ABCMeta):
    """Base class of the linear estimators.

    A subclass turns its targets into one vector for each problem (one-vs-rest, or real
    valued); here each of them gets a compiled problem and sampler and is handed to the
    solver.
    """

    # Losses by name, each a function of the estimator that makes the compiled loss.
    _losses = {}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self):
        return hasattr(self, "coef_")

    @property
    def history_(self):
        """Objective and sampling statistics over time, a dict of arrays."""
        check_is_fitted(self)
        return self._history.pieces_table()

    @property
    def sampling_history_(self):
        """Probabilities of the strata over time, a dict of arrays."""
        check_is_fitted(self)
        return self._history.sampling_table()

    @property
    def _rate(self):
        return "adagrad" if self.learning_rate == "auto" else self.learning_rate

    def _linear_predictor(self, X):
        """Return <x, w> + b of every row, of shape (n_samples, n_problems)."""
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_

    def _check_params(self):
        check_option("loss", self.loss, tuple(self._losses))
        check_option("penalty", self.penalty, ("l2", "l1", "elasticnet", None))
        rates = ("auto", *SCALAR_RATES, *COORDINATE_RATES)
        check_option("learning_rate", self.learning_rate, rates)
        check_number("alpha", self.alpha, low=0)
        check_number("l1_ratio", self.l1_ratio, low=0, high=1)
        check_number("epsilon", self.epsilon, low=0)
        check_number("power_t", self.power_t)
        check_number("batch_size", self.batch_size, low=1, integer=True)
        check_number("max_iter", self.max_iter, low=1, integer=True)
        check_number("n_iter_no_change", self.n_iter_no_change, low=1, integer=True)
        if self.eta0 is not None:
            check_number("eta0", self.eta0, above=0)
        if self.tol is not None:
            check_number("tol", self.tol, low=0)
        if not isinstance(self.average, (bool, np.bool_)):
            check_number("average", self.average, low=0, integer=True)
        if self.learning_rate == "optimal" and self.alpha == 0:
            raise ValueError(
                "learning_rate='optimal' divides by alpha, got alpha=0; give a "
                "positive alpha or choose another learning_rate."
            )

    def _make_sampler(self, strata):
        """Return a copy of the setting that the parameter `sampler` stands for."""
        settings = {
            "auto": StrataSampler(by="label" if strata is None else "given"),
            "uniform": UniformSampler(),
            "label": StrataSampler(by="label"),
            "strata": StrataSampler(by="given"),
        }
        if isinstance(self.sampler, str):
            check_option("sampler", self.sampler, tuple(settings))
            sampler = settings[self.sampler]
        elif isinstance(self.sampler, tuple(map(type, settings.values()))):
            sampler = clone(self.sampler)
        else:
            raise TypeError(
                f"sampler={self.sampler!r} is neither one of {tuple(settings)} nor a "
                "sampler of sklearn_awsgd.samplers."
            )
        sampler._check()
        return sampler

    def _check_data(self, X, y, strata, *, reset):
        X, y = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            # `check_rows` finds values that are not finite without a pass of its own.
            ensure_all_finite=False,
        )
        X, norms2 = check_rows(X)
        return Data(X, norms2, strata=strata), y

    def _start(self, n_problems, n_features):
        """Set up what outlives a call: states, random streams, history."""
        random_state = check_random_state(self.random_state)
        seeds = random_state.randint(np.iinfo(np.int32).max, size=n_problems)
        self._generators = [np.random.PCG64(seed) for seed in seeds]
        self._history = History()
        self._states = []
        for _ in range(n_problems):
            state = {
                "coef": np.zeros(n_features),
                "intercept": np.zeros(1),
                "clock": np.zeros(1),
            }
            if self._rate in COORDINATE_RATES:
                state["squares"] = np.zeros(n_features + 1)
                state["moves"] = np.zeros(n_features + 1)
            if self.average:
                state["average_coef"] = np.zeros(n_features)
                state["average_intercept"] = np.zeros(1)
                state["average_clock"] = np.zeros(1)
            self._states.append(state)

    def _start_from(self, coef_init, intercept_init):
        """Start from given coefficients, or from those of the last fit."""
        warm = self.warm_start and hasattr(self, "coef_")
        if coef_init is None and warm:
            coef_init = self.coef_
        if intercept_init is None and warm:
            intercept_init = self.intercept_
        for name, given in (("coef", coef_init), ("intercept", intercept_init)):
            if given is None:
                continue
            shape = (len(self._states), self._states[0][name].shape[0])
            given = check_array(given, ensure_2d=False, input_name=f"{name}_init")
            if given.size != np.prod(shape):
                raise ValueError(
                    f"Provided {name}_init does not match dataset: it has shape "
                    f"{given.shape}, expected {shape}."
                )
            for state, values in zip(self._states, given.reshape(shape), strict=True):
                state[name][:] = values

    def _detach(self):
        """Copy what training changes in place, for `partial_fit` to go on from."""
        self.sampler_ = copy.deepcopy(self.sampler_)
        self._states = copy.deepcopy(self._states)
        self._generators = copy.deepcopy(self._generators)
        self._history = self._history.copy()

    def _train(self, data, targets, max_iter, tol):
        """Train all problems and assign the fitted attributes.

        Parameters
        ----------
        data : Data
            Rows, weights and strata.
        targets : list of ndarray of shape (n_samples,)
            Targets of each problem.
        max_iter : int
            Largest number of passes.
        tol : float or None
            Tolerance of the stopping rule.
        """
        sampler = self.sampler_
        table = RowTable(data.mass, data.norms2)
        strata = sampler._prepare(table, len(targets), data.strata)

        def train(k):
            history = History()
            kernel = sampler._kernel(
                k, self._generators[k], table, strata, lambda: targets[k] > 0
            )
            outcome = solve(
                self._make_problem(data, targets[k], self._states[k]),
                kernel,
                pass_length=len(table.rows),
                max_iter=max_iter,
                batch_size=self.batch_size,
                should_stop=StopRule(tol, self.n_iter_no_change),
                objective_scale=data.total,
                history=history,
                label=k,
                verbose=self.verbose,
            )
            sampler._store(k, kernel)
            return outcome, history

        outcomes, histories = zip(
            *Parallel(n_jobs=self.n_jobs, prefer="threads")(
                delayed(train)(k) for k in range(len(targets))
            ),
            strict=True,
        )
        self._history.extend(histories)
        if tol is not None and not all(outcome.converged for outcome in outcomes):
            warnings.warn(
                f"The objective was still falling after max_iter={max_iter} passes; "
                "raise max_iter or tol, or scale the features.",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.n_iter_ = max(outcome.n_iter for outcome in outcomes)
        self.variance_gain_ = np.array([o.variance_gain for o in outcomes])
        self.effective_sample_size_ = np.array(
            [o.effective_sample_size for o in outcomes]
        )
        self.t_ = 1.0 + max(state["clock"][0] for state in self._states)
        self._assign_coefficients(data.X.dtype)

    def _make_problem(self, data, target, state):
        """Return the compiled problem of one target."""
        rate = self._rate
        eta0 = self.eta0
        if eta0 is None:
            eta0 = (SCALAR_RATES | COORDINATE_RATES)[rate]
        # The compiled objective is E_P[loss] plus this share of the penalty.
        alpha = self.alpha / data.total
        l1_ratio = {"l1": 1.0, "elasticnet": self.l1_ratio}.get(self.penalty, 0.0)
        alpha_l1 = alpha * l1_ratio
        alpha_l2 = alpha * (1 - l1_ratio) if self.penalty else 0.0
        arguments = (
            Rows(data.X),
            self._losses[self.loss](self),
            target,
            data.norms2,
            state,
            alpha_l1,
            alpha_l2,
            self.fit_intercept,
            int(self.average),
        )
        is_sparse = sparse.issparse(data.X)
        if rate in COORDINATE_RATES:
            return CoordinateRate(*arguments, rate, eta0, DECAY, is_sparse)
        # L. Bottou's heuristic: the first step has the size of a typical weight,
        # alpha^(-1/4).
        t0 = alpha**-0.75 if alpha > 0 else 0.0
        return ScalarRate(*arguments, rate, eta0, self.power_t, alpha, t0, is_sparse)

    def _assign_coefficients(self, dtype):
        prefix = ""
        if self.average and all(s["average_clock"][0] > 0 for s in self._states):
            prefix = "average_"
        coef = np.array([s[prefix + "coef"] for s in self._states], dtype=dtype)
        intercept = np.array([s[prefix + "intercept"][0] for s in self._states])
        intercept = intercept.astype(dtype)
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise ValueError(
                "Floating-point overflow: the coefficients are not finite. Scale the "
                "features with StandardScaler or MinMaxScaler, or lower eta0."
            )
        self.coef_, self.intercept_ = coef, intercept
