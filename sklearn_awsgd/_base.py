"""What the linear estimators share: parameters, weights, strata and training."""

import copy
import warnings
from abc import ABCMeta
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array, check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_awsgd._finish import can_finish_l1, finish, finish_l1
from sklearn_awsgd._kernels._linear import CoordinateRate, ScalarRate
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._objectives import LinearObjective, best_constant
from sklearn_awsgd._solver import (
    History,
    Outcome,
    StopRule,
    ValidationStop,
    solve,
)
from sklearn_awsgd._validation import check_number, check_option, check_rows
from sklearn_awsgd.samplers import (
    LevelSampler,
    ProblemView,
    RowTable,
    StrataSampler,
    UniformSampler,
)

# Learning rates, and the eta0 each takes for eta0=None. The rates with a step size for
# each coordinate are relative to the gradients it has seen, the others are not.
SCALAR_RATES = {"constant": 0.01, "optimal": 0.01, "invscaling": 0.01}
COORDINATE_RATES = {"adagrad": None, "rmsprop": 0.001, "adadelta": 1.0}
# Memory of RMSProp and AdaDelta.
DECAY = 0.99
# Draws of the sampling phase of learning_rate="auto": at least, for each parameter, and
# as a share of the rows; never more than one pass.
FEWEST_DRAWS = 10_000
DRAWS_PER_PARAMETER = 60
SHARE_OF_ROWS = 1 / 8


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
    validation : Validation or None
        Data that decides when to stop.
    """

    X: object
    norms2: np.ndarray
    mass: np.ndarray | None = None
    total: float = 1.0
    strata: object = None
    validation: object = None

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


@dataclass
class Validation:
    """Held-out data: rows, targets of the score, and weights or None."""

    X: object
    y: np.ndarray
    sample_weight: np.ndarray | None = None


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

    def sparsify(self):
        """Store the coefficients as a CSR matrix, which saves memory after l1.

        Returns
        -------
        self : object
            The fitted estimator; ``partial_fit`` makes the coefficients dense again.
        """
        check_is_fitted(self)
        self.coef_ = sparse.csr_matrix(self.coef_)
        return self

    def densify(self):
        """Store the coefficients as an array, as ``fit`` leaves them.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        check_is_fitted(self)
        if sparse.issparse(self.coef_):
            self.coef_ = self.coef_.toarray()
        return self

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
        if self.max_time is not None:
            check_number("max_time", self.max_time, above=0)
        check_number("validation_fraction", self.validation_fraction, above=0, below=1)
        if not isinstance(self.average, (bool, np.bool_)):
            check_number("average", self.average, low=0, integer=True)
        if self.learning_rate == "optimal" and self.alpha == 0:
            raise ValueError(
                "learning_rate='optimal' divides by alpha, got alpha=0; give a "
                "positive alpha or choose another learning_rate."
            )

    def _make_sampler(self, strata, *, streaming=False):
        """Return a copy of the setting that the parameter `sampler` stands for."""
        settings = {
            "auto": LevelSampler(),
            "uniform": UniformSampler(),
            "label": StrataSampler(by="label"),
            "strata": StrataSampler(by="given"),
            "level": LevelSampler(),
        }
        if is_regressor(self):
            settings.pop("label")
        if strata is not None:
            settings["auto"] = settings["strata"]
        elif streaming:
            # A stream has no second look at a row.
            settings["auto"] = settings.get("label", settings["uniform"])
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

    def _check_data(self, X, y, strata, *, reset, **options):
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
            **options,
        )
        X, norms2 = check_rows(X)
        return Data(X, norms2, strata=strata), y

    def _hold_out(self, data, y, sample_weight, validation):
        """Set validation data aside, or take those given.

        Parameters
        ----------
        data : Data
            Validated rows; reduced to those left for training.
        y, sample_weight : ndarray
            Validated targets and weights.
        validation : tuple of (X_val, y_val, sample_weight_val)
            As given to fit; the first two are None without it.

        Returns
        -------
        y, sample_weight : ndarray
            Those left for training.
        """
        X_val, y_val, weight_val = validation
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val go together: give both or neither.")
        if X_val is not None:
            data.validation = Validation(X_val, y_val, weight_val)
            return y, sample_weight
        if not self.early_stopping:
            return y, sample_weight
        train, held = train_test_split(
            np.arange(len(data.norms2)),
            test_size=self.validation_fraction,
            random_state=check_random_state(self.random_state),
            stratify=self._stratify(y),
        )
        weight_val = None if sample_weight is None else sample_weight[held]
        data.validation = Validation(data.X[held], y[held], weight_val)
        data.X, data.norms2 = data.X[train], data.norms2[train]
        if data.strata is not None:
            data.strata = np.asarray(data.strata)[train]
        return y[train], None if sample_weight is None else sample_weight[train]

    def _validation_score(self, validation, k):
        """Return the score of problem k at its current coefficients."""
        model = copy.copy(self)
        states = self._problem_states(k)
        model.coef_ = np.array([state["coef"] for state in states])
        model.intercept_ = np.array([state["intercept"][0] for state in states])
        y = self._validation_target(model, validation.y, k)
        scorer = check_scoring(self, self.scoring)
        weights = {}
        if validation.sample_weight is not None:
            weights["sample_weight"] = validation.sample_weight
        return scorer(model, validation.X, y, **weights)

    def _start(self, X, targets):
        """Set up what outlives a call: states, random streams, history."""
        n_problems, n_features = len(targets), X.shape[1]
        self._eta0 = self._choose_eta0(X, targets)
        n_models = sum(self._n_models(target) for target in targets)
        random_state = check_random_state(self.random_state)
        seeds = random_state.randint(np.iinfo(np.int32).max, size=n_problems)
        self._generators = [np.random.PCG64(seed) for seed in seeds]
        self._history = History()
        self._states = []
        for _ in range(n_models):
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
            is_sparse = sparse.issparse(self.coef_)
            coef_init = self.coef_.toarray() if is_sparse else self.coef_
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

    def _train(self, data, targets, max_iter, tol, *, streaming=False):
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
        streaming : bool, default=False
            Whether the rows are a chunk of a stream, of which nothing may be concluded
            beyond one pass of steps.
        """
        table = RowTable(data.mass, data.norms2)
        self.sampler_._prepare(table, len(targets), self._n_groups(), data.strata)
        deadline = np.inf
        if self.max_time is not None and not streaming:
            deadline = perf_counter() + self.max_time
        counts = None
        if self.count_draws:
            counts = np.zeros((len(targets), data.X.shape[0]), dtype=np.uint32)
        finishing = (
            not streaming
            and data.validation is None
            and self._has_finish(data.X.shape[1])
        )
        train = self._train_to_optimum if finishing else self._train_by_steps

        def train_one(k, target):
            history = History()
            options = {
                "objective_scale": data.total,
                "batch_size": self.batch_size,
                "history": history,
                "label": k,
                "verbose": self.verbose,
                "deadline": deadline,
                "draw_counts": None if counts is None else counts[k],
            }
            outcome = train(data, table, k, target, max_iter, tol, options)
            return outcome, history

        results = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(train_one)(k, target) for k, target in enumerate(targets)
        )
        outcomes, histories = zip(*results, strict=True)
        self._history.extend(histories)
        if tol is not None and not all(outcome.converged for outcome in outcomes):
            limit = f"max_iter={max_iter} passes"
            if perf_counter() > deadline:
                limit = f"max_time={self.max_time} seconds"
            warnings.warn(
                f"tol={tol} was not reached in {limit}; raise it or tol, or scale the "
                "features.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.n_iter_ = max(outcome.n_iter for outcome in outcomes)
        self.variance_gain_ = np.array([o.variance_gain for o in outcomes])
        self.effective_sample_size_ = np.array(
            [o.effective_sample_size for o in outcomes]
        )
        self.duality_gap_ = data.total * np.array([o.duality_gap for o in outcomes])
        self.t_ = 1.0 + max(state["clock"][0] for state in self._states)
        if counts is not None:
            self.draw_counts_ = counts
        self._assign_coefficients(data.X.dtype)

    def _has_finish(self, n_features):
        """Return whether "auto" can go on to the optimum with exact passes."""
        return (
            self.learning_rate == "auto"
            and not self.average
            and np.isfinite(self._make_loss().smoothness)
            and (self.penalty in ("l2", None) or can_finish_l1(n_features))
        )

    def _train_by_steps(self, data, table, k, target, max_iter, tol, options):
        """Train problem k by AW-SGD."""
        problem, kernel = self._make_kernels(data, table, k, target)
        if data.validation is None:
            should_stop = StopRule(tol, self.n_iter_no_change)
        else:
            should_stop = ValidationStop(
                tol,
                self.n_iter_no_change,
                score=partial(self._validation_score, data.validation, k),
                parameters=[
                    state[name]
                    for state in self._problem_states(k)
                    for name in state
                    if name.endswith(("coef", "intercept"))
                ],
            )
        outcome = solve(
            problem,
            kernel,
            pass_length=len(table.rows),
            max_iter=max_iter,
            should_stop=should_stop,
            **options,
        )
        if data.validation is not None:
            should_stop.restore_best()
        self.sampler_._store(k, kernel)
        return outcome

    def _train_to_optimum(self, data, table, k, target, max_iter, tol, options):
        """Train problem k by AW-SGD, then by exact passes."""
        states = self._problem_states(k)
        n_rows = len(table.rows)
        outcome = Outcome()
        history = options["history"]
        if not any(state["coef"].any() for state in states):
            if self.fit_intercept and _is_constant(data, target):
                return self._train_constant(data, k, target, history)
            if self.fit_intercept:
                self._set_constants(data, target, states)
            n_draws = max(
                FEWEST_DRAWS,
                DRAWS_PER_PARAMETER * (data.X.shape[1] + 1),
                int(SHARE_OF_ROWS * n_rows),
            )
            problem, kernel = self._make_kernels(data, table, k, target)
            outcome = solve(
                problem,
                kernel,
                pass_length=min(n_rows, n_draws),
                max_iter=1,
                should_stop=lambda objective: False,
                **options,
            )
            self.sampler_._store(k, kernel)
        started = perf_counter() - history.seconds()
        objective = self._make_objective(data, target)
        v = np.concatenate([np.append(s["coef"], s["intercept"]) for s in states])
        alpha_l1 = self._alphas(data)[0]
        minimize = partial(finish_l1, alpha_l1=alpha_l1) if alpha_l1 > 0 else finish
        report = minimize(
            objective,
            objective.canonical(v),
            tol=0.0 if tol is None else tol,
            max_passes=max_iter,
            rng=np.random.Generator(self._generators[k]),
            record=lambda point, n_passes: history.add_pass(
                k,
                outcome.n_draws + n_passes * n_rows,
                perf_counter() - started,
                data.total * point.value,
                self.verbose,
            ),
            deadline=options["deadline"],
        )
        for state, v in zip(states, np.split(report.point.v, len(states)), strict=True):
            state["coef"][:] = v[:-1]
            state["intercept"][0] = v[-1]
            state["clock"] += report.n_passes * n_rows
        outcome.n_iter += report.n_passes
        outcome.converged = report.converged
        outcome.duality_gap = report.point.gap
        return outcome

    def _train_constant(self, data, k, target, history):
        """Solve problem k where all rows have one target: nothing to sample.

        No loss is negative, so what is left of it bounds the suboptimality; a loss that
        is zero at infinity only would never fall by a last fraction.
        """
        state = self._states[k]
        state["intercept"][0] = best_constant(self._make_loss(), target, data.mass)
        v = np.append(state["coef"], state["intercept"])
        value = self._make_objective(data, target)(v).value
        history.add_pass(k, len(target), 0.0, data.total * value, self.verbose)
        state["clock"] += len(target)
        return Outcome(n_iter=1, converged=True, duality_gap=value)

    # What follows is overridden for softmax regression, one problem of many models.

    def _n_models(self, target):
        """Return the number of linear models of a problem."""
        return 1

    def _n_groups(self):
        """Return the number of groups of rows that a sampler tells apart."""
        return 2

    def _groups(self, target):
        """Return the group of each row: the positive class and the rest."""
        return (target > 0).astype(np.int32)

    def _problem_states(self, k):
        """Return the states of the models of problem k."""
        return [self._states[k]]

    def _set_constants(self, data, target, states):
        """Start from the best constant prediction."""
        if not states[0]["intercept"].any():
            constant = best_constant(self._make_loss(), target, data.mass)
            states[0]["intercept"][0] = constant

    def _make_objective(self, data, target):
        """Return the objective of one problem."""
        return LinearObjective(
            data.X,
            self._make_loss(),
            target,
            data.mass,
            data.norms2,
            self._alphas(data)[1],
            self.fit_intercept,
        )

    def _make_kernels(self, data, table, k, target):
        """Return the compiled problem and sampler of problem k."""
        problem = self._make_problem(data, target, self._states[k])
        view = ProblemView(groups=self._groups(target), norms2=problem.first_norms2())
        return problem, self.sampler_._kernel(k, self._generators[k], table, view)

    def _make_loss(self):
        return self._losses[self.loss](self)

    def _alphas(self, data):
        """Return the l1 and l2 strengths relative to E_P[loss]."""
        alpha = self.alpha / data.total
        l1_ratio = {"l1": 1.0, "elasticnet": self.l1_ratio, "l2": 0.0, None: 0.0}
        alpha_l1 = alpha * l1_ratio[self.penalty]
        return alpha_l1, 0.0 if self.penalty is None else alpha - alpha_l1

    def _make_problem(self, data, target, state):
        """Return the compiled problem of one target."""
        rate = self._rate
        arguments = (
            Rows(data.X),
            self._make_loss(),
            target,
            data.norms2,
            state,
            *self._alphas(data),
            self.fit_intercept,
            int(self.average),
        )
        is_sparse = sparse.issparse(data.X)
        if rate in COORDINATE_RATES:
            return CoordinateRate(*arguments, rate, self._eta0, DECAY, is_sparse)
        # L. Bottou's heuristic: the first step has the size of a typical weight,
        # alpha^(-1/4).
        alpha = self.alpha / data.total
        t0 = alpha**-0.75 if alpha > 0 else 0.0
        return ScalarRate(
            *arguments, rate, self._eta0, self.power_t, alpha, t0, is_sparse
        )

    def _choose_eta0(self, X, targets):
        """Return eta0, or one from the data's own scale.

        The first step of AdaGrad moves every coordinate by eta0, so a prediction by
        eta0 ||x||_1: that is set to three times the spread of the targets, which is one
        for classes.
        """
        if self.eta0 is not None:
            return self.eta0
        if self._rate != "adagrad":
            return (SCALAR_RATES | COORDINATE_RATES)[self._rate]
        some = X[:: max(X.shape[0] // 1000, 1)]
        size = 1 + abs(some).sum() / some.shape[0]
        return 3 * self._target_spread(targets) / size

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


def _is_constant(data, target):
    """Return whether all rows that count have the same target."""
    present = target if data.mass is None else target[data.mass > 0]
    return (present == present[0]).all()
