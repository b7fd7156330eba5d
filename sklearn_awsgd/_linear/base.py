"""What the linear estimators share: parameters, data, weights and state."""

import copy
from abc import ABCMeta
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.metrics import check_scoring
from sklearn.model_selection import train_test_split
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from sklearn_awsgd._documentation import DocumentationLinkMixin
from sklearn_awsgd._linear.training import COORDINATE_RATES, SCALAR_RATES, TrainingMixin
from sklearn_awsgd._solver import History
from sklearn_awsgd._validation import (
    check_number,
    check_option,
    check_rows,
    mean_weight,
    validate_data,
)
from sklearn_awsgd.samplers import LevelSampler, StrataSampler, UniformSampler


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
    loss_scale : float
        Weight of these rows relative to all rows of a stream so far.
    strata : array-like of shape (n_samples,) or None
        As given to fit.
    validation : Validation or None
        Data that decides when to stop.
    """

    X: object
    norms2: np.ndarray
    mass: np.ndarray | None = None
    total: float = 1.0
    loss_scale: float = 1.0
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
    # Whether they are rows of the training data, which have no names any more.
    is_split: bool = False


class BaseAWSGD(
    TrainingMixin, DocumentationLinkMixin, BaseEstimator, metaclass=ABCMeta
):
    """Base class of the linear estimators.

    A subclass turns its targets into one vector for each problem (one-vs-rest, or real
    valued), and hands them to :class:`TrainingMixin`.
    """

    _doc_page = "classifier"
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
        table = self._history.sampling_table()
        problems = table["problem"]

        def group_names(groups):
            pairs = zip(problems.tolist(), groups.tolist(), strict=True)
            names = np.empty(len(groups), dtype=object)
            names[:] = [self._group_name(k, group) for k, group in pairs]
            return names

        return table | self.sampler_._describe(table["stratum"], group_names)

    @property
    def draw_counts_(self):
        """How often each row was drawn in the last call."""
        check_is_fitted(self)
        if self._draw_counts is None:
            raise AttributeError(
                "draw_counts_ is not there: the draws were not counted. Set "
                "count_draws=True before fit or partial_fit."
            )
        return self._draw_counts

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
        if self.l1_ratio is not None:
            check_number("l1_ratio", self.l1_ratio, low=0, high=1)
        elif self.penalty == "elasticnet":
            raise ValueError(
                "l1_ratio must be set when penalty is 'elasticnet', got l1_ratio=None; "
                "give a number between 0 and 1."
            )
        check_number("epsilon", self.epsilon, low=0)
        check_number("power_t", self.power_t, low=0)
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
        if not self.shuffle:
            settings["auto"] = settings["uniform"]
        elif strata is not None:
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
        if not self.shuffle and not isinstance(sampler, UniformSampler):
            raise ValueError(
                f"shuffle=False takes the rows in their order, which sampler="
                f"{self.sampler!r} does not; use shuffle=True, or sampler='uniform'."
            )
        return sampler

    def _check_streaming(self):
        """Refuse settings that need all data at once."""
        if self.early_stopping:
            raise ValueError(
                "early_stopping should be False with partial_fit, which does not know "
                "what is to come; score held-out rows between the calls instead."
            )

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
        train, held = self._keep_classes(y, train, held)
        if not self.shuffle:
            train.sort()
        weight_val = None if sample_weight is None else sample_weight[held]
        if weight_val is not None and not weight_val.any():
            raise ValueError(
                "sample_weight is zero for all held-out rows; use another random_state "
                f"or a larger validation_fraction than {self.validation_fraction}."
            )
        data.validation = Validation(data.X[held], y[held], weight_val, is_split=True)
        data.X, data.norms2 = data.X[train], data.norms2[train]
        if data.strata is not None:
            check_consistent_length(data.strata, y)
            data.strata = np.asarray(data.strata)[train]
        return y[train], None if sample_weight is None else sample_weight[train]

    def _validation_score(self, validation, k):
        """Return the score of problem k at its current coefficients."""
        model = copy.copy(self)
        if validation.is_split:
            vars(model).pop("feature_names_in_", None)
        model.coef_, model.intercept_ = self._coefficients(self._problem_states(k))
        y = self._validation_target(model, validation.y, k)
        scorer = check_scoring(self, self.scoring)
        weights = {}
        if validation.sample_weight is not None:
            weights["sample_weight"] = validation.sample_weight
        return scorer(model, validation.X, y, **weights)

    def _start(self, data, targets):
        """Set up what outlives a call: states, random streams, history."""
        n_problems, n_features = len(targets), data.X.shape[1]
        self._set_eta0(data, targets)
        n_models = sum(self._n_models(target) for target in targets)
        random_state = check_random_state(self.random_state)
        seeds = random_state.randint(np.iinfo(np.int32).max, size=n_problems)
        self._generators = [np.random.PCG64(seed) for seed in seeds]
        self._history = History()
        # Rows so far, and the means of their sample weights and of these times class
        # weights.
        self._n_weighed, self._mean_weights = 0, np.zeros(2)
        self._states = []
        for _ in range(n_models):
            state = {
                "coef": np.zeros(n_features),
                "intercept": np.zeros(1),
                "clock": np.zeros(1),
            }
            self._complete(state)
            self._states.append(state)

    def _set_eta0(self, data, targets):
        """Set eta0, and remember what it was chosen for."""
        self._eta0 = self._choose_eta0(data, targets)
        self._eta0_for = self.eta0, self._rate

    def _complete(self, state):
        """Add to the state of a model what the parameters ask for."""
        n_features = len(state["coef"])
        sizes = {}
        if self._rate in COORDINATE_RATES:
            sizes |= {"squares": n_features + 1, "moves": n_features + 1}
        if self.average:
            sizes |= {"average_coef": n_features}
            sizes |= {"average_intercept": 1, "average_clock": 1}
        for name, size in sizes.items():
            state.setdefault(name, np.zeros(size))

    def _weigh_in(self, data, sample_weight):
        """Take in the weights of some rows of a stream, and scale their loss.

        P sums to one over a chunk, so what its rows weigh beside those of other chunks
        is a factor of the loss: relative to the mean weight so far, theirs included.
        """
        n, mean = len(data.norms2), mean_weight(sample_weight)
        both, before = mean * data.total, self._n_weighed
        self._n_weighed = before + n
        self._mean_weights = self._mean_weights + (n / self._n_weighed) * (
            np.array([mean, both]) - self._mean_weights
        )
        if before:
            data.loss_scale = both / self._mean_weights[1]
            data.total = self._mean_weights[1] / self._mean_weights[0]

    def _start_from(self, coef_init, intercept_init):
        """Start from given coefficients, or from those of the last fit."""
        warm = self.warm_start and hasattr(self, "coef_")
        pairs = {"coef": coef_init, "intercept": intercept_init}
        user_given = [name for name, value in pairs.items() if value is not None]
        if coef_init is None and warm:
            is_sparse = sparse.issparse(self.coef_)
            coef_init = self.coef_.toarray() if is_sparse else self.coef_
        if intercept_init is None and warm:
            intercept_init = self.intercept_
        for name, given in (("coef", coef_init), ("intercept", intercept_init)):
            if given is None:
                continue
            shape = (len(self._states), self._states[0][name].shape[0])
            given = check_array(
                np.atleast_1d(given), ensure_2d=False, input_name=f"{name}_init"
            )
            if given.size != np.prod(shape):
                what = f"warm_start=True: the last {name}_"
                if name in user_given:
                    what = f"Provided {name}_init"
                raise ValueError(
                    f"{what} does not match dataset: it has shape {given.shape}, "
                    f"expected {shape}."
                )
            for state, values in zip(self._states, given.reshape(shape), strict=True):
                state[name][:] = values

    def _go_on(self, data, targets, strata):
        """Copy what training changes in place, for `partial_fit` to go on from.

        Parameters may have changed, and `fit` may have chosen a sampler that needs all
        rows: then the one for streams begins to learn.
        """
        self._states = copy.deepcopy(self._states)
        self._generators = copy.deepcopy(self._generators)
        self._history = self._history.copy()
        if self._eta0_for != (self.eta0, self._rate):
            self._set_eta0(data, targets)
        for state in self._states:
            self._complete(state)
        old, new = self.sampler_, self._make_sampler(strata, streaming=True)
        same = type(old) is type(new) and old.get_params() == new.get_params()
        # Strata that were given once must not be forgotten in silence.
        forgotten = strata is None and getattr(old, "by", None) == "given"
        if same or (forgotten and self.sampler == "auto"):
            self.sampler_ = copy.deepcopy(old)
        else:
            self.sampler_ = new
            self._history.sampling.clear()

    def _coefficients(self, states):
        """Return coefficients and intercepts: the means of w where there are any."""
        prefix = ""
        if self.average and all(s["average_clock"][0] > 0 for s in states):
            prefix = "average_"
        coef = np.array([s[prefix + "coef"] for s in states])
        return coef, np.array([s[prefix + "intercept"][0] for s in states])

    def _assign_coefficients(self, dtype):
        coef, intercept = self._coefficients(self._states)
        coef, intercept = coef.astype(dtype), intercept.astype(dtype)
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise ValueError(
                "Floating-point overflow: the coefficients are not finite. Scale the "
                "features with StandardScaler or MinMaxScaler, or lower eta0."
            )
        self.coef_, self.intercept_ = coef, intercept
