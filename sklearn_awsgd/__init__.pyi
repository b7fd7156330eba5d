"""Written by `make stubs`: change the code and run it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    TransformerMixin,
)


class AWSGDClassifier(ClassifierMixin, BaseEstimator):
    def __init__(
        self,
        loss: Any = 'log_loss',
        *,
        penalty: Literal['l2', 'l1', 'elasticnet', None] = 'l2',
        alpha: float = 0.0001,
        l1_ratio: float | None = 0.15,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float | None = 0.001,
        shuffle: bool = True,
        epsilon: float = 0.1,
        sampler: Any = 'auto',
        batch_size: int = 1,
        verbose: int | bool = 0,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
        learning_rate: Literal['auto', 'constant', 'adaptive', 'optimal', 'invscaling', 'adagrad', 'rmsprop', 'adadelta'] = 'auto',
        eta0: float | None = None,
        power_t: float = 0.5,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        scoring: str | Callable[..., float] | None = None,
        n_iter_no_change: int = 5,
        max_time: float | None = None,
        count_draws: bool = False,
        class_weight: Mapping[Any, float] | Literal['balanced'] | None = None,
        warm_start: bool = False,
        average: int | bool = False,
        memory_size: int = 1000,
        forgetting: float | Literal['auto'] = 'auto',
    ) -> None: ...
    coef_: Any
    intercept_: Any
    classes_: NDArray[Any]
    n_iter_: int
    t_: float
    sampler_: Any
    variance_gain_: NDArray[Any]
    effective_sample_size_: NDArray[Any]
    duality_gap_: NDArray[Any]
    draw_counts_: NDArray[Any]
    history_: dict[str, NDArray[Any]]
    sampling_history_: dict[str, NDArray[Any]]
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    def decision_function(self, X: Any) -> NDArray[Any]: ...
    def densify(self) -> Self: ...
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        coef_init: ArrayLike | None = None,
        intercept_init: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        X_val: Any = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
        access_cost: Any = None,
    ) -> Self: ...
    def merge(self, other: Self) -> Self: ...
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        access_cost: Any = None,
    ) -> Self: ...
    def predict(self, X: Any) -> Any: ...
    def predict_log_proba(self, X: Any) -> NDArray[Any]: ...
    def predict_proba(self, X: Any) -> NDArray[Any]: ...
    def set_callbacks(self, *callbacks: Any) -> Any: ...
    def set_params(self, **params: Any) -> Self: ...
    def sparsify(self) -> Self: ...
    ...

class AWSGDMatrixFactorization(TransformerMixin, BaseEstimator):
    def __init__(
        self,
        n_components: int = 10,
        *,
        loss: Literal['squared_error', 'huber', 'log_loss', 'poisson'] = 'squared_error',
        alpha: float = 0.005,
        epsilon: float = 1.0,
        fit_bias: bool = False,
        missing_values: float = ...,
        unstored: Literal['zero', 'missing'] = 'zero',
        sampler: Any = 'auto',
        batch_size: int = 1,
        step: Literal['proximal', 'gradient'] = 'proximal',
        learning_rate: Literal['auto', 'constant', 'inverse'] = 'auto',
        eta0: float | None = None,
        max_iter: int = 100,
        tol: float | None = 0.002,
        n_iter_no_change: int = 3,
        verbose: int | bool = 0,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
    ) -> None: ...
    components_: NDArray[Any]
    column_bias_: NDArray[Any]
    global_bias_: float
    row_probabilities_: NDArray[Any]
    column_probabilities_: NDArray[Any]
    sampler_: Any
    reconstruction_err_: float
    history_: dict[str, NDArray[Any]]
    sampling_history_: dict[str, NDArray[Any]]
    variance_gain_: float
    effective_sample_size_: float
    n_iter_: int
    t_: float
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        entry_weight: Any = None,
        access_cost: Any = None,
    ) -> Self: ...
    def inverse_transform(self, X: Any) -> NDArray[Any]: ...
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        entry_weight: Any = None,
        access_cost: Any = None,
    ) -> Self: ...
    def predict(self, X: Any) -> Any: ...
    def predict_entries(self, X: Any, rows: Any, columns: Any) -> Any: ...
    def recommend(
        self,
        X: Any,
        k: int = 10,
        *,
        rows: Any = None,
        ids: Any = None,
        return_scores: bool = False,
    ) -> Any: ...
    def score(self, X: Any, y: ArrayLike | None = None) -> float: ...
    def set_callbacks(self, *callbacks: Any) -> Any: ...
    def set_params(self, **params: Any) -> Self: ...
    def transform(self, X: Any) -> Any: ...
    ...

class AWSGDPolicyGradient(BaseEstimator):
    def __init__(
        self,
        sampler: Any = 'auto',
        *,
        weights: Literal['episode', 'per_decision', 'suffix'] = 'suffix',
        discount: float = 0.99,
        learning_rate: Literal['constant', 'adagrad', 'rmsprop', 'range'] = 'range',
        eta0: float = 0.3,
        bonus: float | None = None,
        baseline: bool = True,
        features: Any = None,
        n_episodes: int = 10000,
        max_steps: int | None = None,
        verbose: int = 0,
        random_state: int | RandomState | None = None,
    ) -> None: ...
    policy_: NDArray[Any]
    behavior_policy_: NDArray[Any]
    coef_: NDArray[Any]
    sampler_: Any
    history_: dict[str, NDArray[Any]]
    variance_gain_: float
    n_episodes_: int
    n_steps_: int
    def fit(self, env: Any, y: ArrayLike | None = None) -> Self: ...
    def partial_fit(
        self,
        env: Any,
        y: ArrayLike | None = None,
        n_episodes: int = 1000,
    ) -> Self: ...
    def predict(self, states: Any) -> Any: ...
    def predict_proba(self, states: Any) -> NDArray[Any]: ...
    def score(
        self,
        env: Any,
        y: ArrayLike | None = None,
        *,
        scoring: str | Callable[..., float] | None = 'return',
        n_episodes: int = 100,
    ) -> float: ...
    def set_callbacks(self, *callbacks: Any) -> Any: ...
    def set_params(self, **params: Any) -> Self: ...
    ...

class AWSGDRegressor(RegressorMixin, BaseEstimator):
    def __init__(
        self,
        loss: Any = 'squared_error',
        *,
        penalty: Literal['l2', 'l1', 'elasticnet', None] = 'l2',
        alpha: float = 0.0001,
        l1_ratio: float | None = 0.15,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float | None = 0.001,
        shuffle: bool = True,
        epsilon: float = 0.1,
        sampler: Any = 'auto',
        batch_size: int = 1,
        verbose: int | bool = 0,
        n_jobs: int | None = None,
        random_state: int | RandomState | None = None,
        learning_rate: Literal['auto', 'constant', 'adaptive', 'optimal', 'invscaling', 'adagrad', 'rmsprop', 'adadelta'] = 'auto',
        eta0: float | None = None,
        power_t: float = 0.25,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        scoring: str | Callable[..., float] | None = None,
        n_iter_no_change: int = 5,
        max_time: float | None = None,
        count_draws: bool = False,
        warm_start: bool = False,
        average: int | bool = False,
        memory_size: int = 1000,
        forgetting: float | Literal['auto'] = 'auto',
    ) -> None: ...
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    n_iter_: int
    t_: float
    sampler_: Any
    variance_gain_: NDArray[Any]
    effective_sample_size_: NDArray[Any]
    duality_gap_: NDArray[Any]
    draw_counts_: NDArray[Any]
    history_: dict[str, NDArray[Any]]
    sampling_history_: dict[str, NDArray[Any]]
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    def densify(self) -> Self: ...
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        coef_init: ArrayLike | None = None,
        intercept_init: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        X_val: Any = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
        access_cost: Any = None,
    ) -> Self: ...
    def merge(self, other: Self) -> Self: ...
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        access_cost: Any = None,
    ) -> Self: ...
    def predict(self, X: Any) -> Any: ...
    def set_callbacks(self, *callbacks: Any) -> Any: ...
    def set_params(self, **params: Any) -> Self: ...
    def sparsify(self) -> Self: ...
    ...

class EntryRegressor(RegressorMixin, BaseEstimator):
    def __init__(self, estimator: Any = None) -> None: ...
    estimator_: Any
    ids_: Any
    matrix_: Any
    row_factors_: NDArray[Any]
    history_: dict[str, NDArray[Any]]
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Self: ...
    def predict(self, X: Any) -> Any: ...
    def recommend(
        self,
        rows: Any = None,
        k: int = 10,
        *,
        return_scores: bool = False,
    ) -> Any: ...
    def set_callbacks(self, *callbacks: Any) -> Any: ...
    def set_params(self, **params: Any) -> Self: ...
    ...

class MatrixIds:
    def __init__(self, rows: Any, columns: Any) -> None: ...
    rows: NDArray[Any]
    columns: NDArray[Any]
    def column_ids(self, index: Any) -> Any: ...
    def column_index(self, ids: Any) -> Any: ...
    def row_ids(self, index: Any) -> Any: ...
    def row_index(self, ids: Any) -> Any: ...
    ...

class MinVarianceImportanceEstimator(BaseEstimator):
    def __init__(
        self,
        estimator: Any = None,
        loss: Any = None,
        *,
        sampler: Any = 'auto',
        surrogate: Any = None,
        control_variate: bool = True,
        max_evaluations: int = 10000,
        rtol: float | None = 0.02,
        atol: float | None = None,
        confidence: float = 0.95,
        bounds: Any = None,
        anytime: bool = False,
        batch_size: int | Literal['auto'] = 'auto',
        verbose: int | bool = 0,
        random_state: int | RandomState | None = None,
    ) -> None: ...
    estimate_: float
    std_error_: float
    confidence_interval_: Any
    assumed_range_: Any
    status_: Any
    n_evaluations_: int
    n_draws_: int
    effective_sample_size_: float
    max_weight_share_: float
    variance_gain_: float
    sampling_probabilities_: Any
    sampler_: Any
    history_: dict[str, NDArray[Any]]
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    def ask(
        self,
        n: Any,
        X: Any = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> Any: ...
    def confidence_interval(
        self,
        level: Any = None,
        side: str = 'two-sided',
    ) -> Any: ...
    def estimate(
        self,
        loss: Any,
        function: Any = None,
        groups: Any = None,
    ) -> Any: ...
    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> Self: ...
    def p_value(self, null: float = 0.0, alternative: str = 'two-sided') -> Any: ...
    def partial_fit(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> Self: ...
    def quantile(self, q: Any) -> Any: ...
    def sample(self, n_samples: int = 1) -> Any: ...
    def set_callbacks(self, *callbacks: Any) -> Any: ...
    def set_params(self, **params: Any) -> Self: ...
    def summary(self) -> Any: ...
    def tell(self, rows: Any, values: Any) -> Any: ...
    ...

class TabularMDP:
    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        terminal: Any,
        *,
        start: int = 0,
        goal: Any = None,
        max_steps: Any = None,
    ) -> None: ...
    n_states: int
    n_actions: int
    max_steps: int
    def evaluate(self, policy: Any, max_steps: Any = None) -> Any: ...
    @classmethod
    def from_table(
        cls,
        P: Any,
        start: Any,
        *,
        max_steps: Any = None,
    ) -> Any: ...
    def limit(self, max_steps: Any = None) -> Any: ...
    def simulator(self) -> Any: ...
    ...

def matrix_from_entries(
        rows: Any,
        columns: Any = None,
        values: Any = None,
        *,
        shape: Any = None,
        return_ids: bool = False,
    ) -> Any: ...

__all__ = ['AWSGDClassifier', 'AWSGDMatrixFactorization', 'AWSGDPolicyGradient', 'AWSGDRegressor', 'EntryRegressor', 'MatrixIds', 'MinVarianceImportanceEstimator', 'TabularMDP', 'matrix_from_entries']
__version__: str
