"""From what a user gave to what is integrated over."""

from numbers import Number

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.multiclass import type_of_target

from sklearn_awsgd._importance.continuous import GaussianFamily, GaussianSampler
from sklearn_awsgd._importance.families import (
    MAX_STRATA,
    NormFamily,
    PaperRowColumnFamily,
    RowColumnFamily,
    StrataFamily,
    score_bins,
)
from sklearn_awsgd._importance.integrands import (
    Integrand,
    is_distribution,
    n_rows,
    row_indexable,
    surrogate_score,
)
from sklearn_awsgd._importance.learned import LearnedStrata
from sklearn_awsgd._importance.spaces import DistributionSpace, FiniteSpace, Pool
from sklearn_awsgd._importance.stratified import LEAST_ROWS, StratifiedRounds
from sklearn_awsgd._importance.weighted import WeightedRounds
from sklearn_awsgd._validation import (
    check_option,
    check_rows,
    check_strata,
    check_weights,
    validate_data,
)
from sklearn_awsgd.samplers import RowColumnSampler, StrataSampler

# A target with more values than this is a number, not a label; it is cut into bins.
MAX_LABELS = 100
TARGET_BINS = 16
# Bins of uneven weights in each label.
WEIGHT_BINS = 8
# Rows in one call of the loss, unless batch_size says how many.
LONGEST_CALL = 1000


def make_rounds(estimator, X, y, sample_weight, strata, generator, *, reset):
    """Return what draws and evaluates, and the total weight of the rows.

    Parameters
    ----------
    estimator : MinVarianceImportanceEstimator
        For its parameters; n_features_in_ is set or checked.
    X, y, sample_weight, strata : as given to fit
        Data.
    generator : numpy.random.BitGenerator
        Random stream.
    reset : bool
        Whether X defines the features, or must have the known ones.
    """
    sampler = estimator.sampler
    given = {"y": y, "sample_weight": sample_weight, "strata": strata}
    given["surrogate"] = estimator.surrogate
    if is_distribution(X):
        return _make_distribution(estimator, X, given, generator), 1.0
    if hasattr(X, "rvs"):
        raise TypeError(
            f"X is a {type(X).__name__}, which has no density (logpdf); give the "
            "values of a discrete distribution as rows, and their probabilities as "
            "sample_weight."
        )
    if sampler == "gaussian" or isinstance(sampler, GaussianSampler):
        raise TypeError(
            "A Gaussian sampler needs X to be a frozen continuous distribution of "
            f"scipy.stats, got {type(X).__name__}; for rows use sampler='auto'."
        )
    X = _check_X(estimator, X, reset=reset)
    if sampler == "row_column" or isinstance(sampler, RowColumnSampler):
        return _make_entries(estimator, X, given, generator)
    return _make_rows(estimator, X, y, sample_weight, strata, generator)


def _make_rows(estimator, X, y, sample_weight, strata, generator):
    """Return the rows of X as a space, and their total weight."""
    n = n_rows(X)
    check_strata(strata)
    check_consistent_length(X, y, strata)
    weights = check_weights(sample_weight, n)
    y = y if y is None or hasattr(y, "iloc") else np.asarray(y)
    integrand = Integrand(estimator.estimator, estimator.loss, X, y)
    mass = np.full(n, 1 / n) if weights is None else weights / weights.sum()
    uneven = None if weights is None else mass
    pool = Pool(integrand, mass, _longest_call(estimator))
    total = _total_weight(sample_weight, n)
    if estimator.sampler == "norm":
        surrogate = {"surrogate": estimator.surrogate}
        _refuse(surrogate, "sampler='norm' draws by the norms of the rows alone")
        family = NormFamily(generator, uneven, _squared_norms(X))
        space = FiniteSpace(pool, family, estimator.control_variate)
        return WeightedRounds(space), total
    setting = StrataSampler()
    if isinstance(estimator.sampler, StrataSampler):
        setting = clone(estimator.sampler)
    by_paper = setting.update != "moments" or not estimator.control_variate
    labels, n_labels = _labels(estimator, y, strata, n)
    # Each stratum of each half takes some rows before anything can be learned.
    most = max(estimator.max_evaluations // (4 * LEAST_ROWS), 1)
    labels, n_labels = _join_small(labels, n_labels, most)
    index, n_strata, score, learned = _strata(
        estimator, X, y, pool, labels, n_labels, most // n_labels, generator
    )
    if not by_paper:
        rounds = StratifiedRounds(
            pool, generator, setting.mixing, index, n_strata, n_labels, score, learned
        )
        return rounds, total
    if learned is not None:
        raise ValueError(
            "surrogate='learned' needs update='moments' and control_variate=True."
        )
    family = StrataFamily(generator, uneven, n, setting)
    family.set_strata(index, n_strata)
    return WeightedRounds(FiniteSpace(pool, family, estimator.control_variate)), total


def _strata(estimator, X, y, pool, labels, n_labels, most_bins, generator):
    """Return strata, their number, a score for a control variate, and a learner."""
    mass = pool.mass
    uneven = np.ptp(mass[mass > 0]) > 1e-9 * mass.max()
    if isinstance(estimator.surrogate, str):
        seed = int(generator.random_raw() % 2**31)
        learned = LearnedStrata(_features(X, labels), labels, n_labels, seed)
        return labels, n_labels, np.ones(len(mass)) if uneven else None, learned
    score, n_bins = None, None
    if estimator.surrogate is not None:
        n = len(mass)
        score = surrogate_score(estimator.surrogate, pool.integrand, X, y, n)
    elif uneven:
        # Heavy rows are large parts of the integral.
        score, n_bins = np.ones(len(mass)), WEIGHT_BINS
    if score is None:
        return labels, n_labels, None, None
    n_bins = min(n_bins or MAX_STRATA // n_labels, most_bins)
    part = mass * score
    strata, n_strata = score_bins(part, mass, labels, n_labels, max(n_bins, 1))
    return strata, n_strata, score, None


def _join_small(strata, n_strata, most):
    """Return strata of which the smallest are joined to a last one, so many at most.

    The others stay in their order.
    """
    if n_strata <= most:
        return strata.astype(np.int32), n_strata
    order = np.argsort(-np.bincount(strata, minlength=n_strata), kind="stable")
    index = np.full(n_strata, most - 1, dtype=np.int32)
    index[np.sort(order[: most - 1])] = np.arange(most - 1)
    return index[strata], most


def _make_distribution(estimator, X, given, generator):
    """Return a distribution as a space."""
    setting = estimator.sampler
    if isinstance(setting, str):
        check_option("sampler", setting, ("auto", "gaussian"))
        setting = GaussianSampler()
    elif not isinstance(setting, GaussianSampler):
        raise TypeError("X is a distribution: use sampler='gaussian'.")
    if not callable(estimator.loss):
        raise ValueError(
            f"X is a distribution, but loss={estimator.loss!r}; give a callable "
            "loss(x) that takes an array of locations."
        )
    _refuse(given, "X is a distribution and has no rows")
    integrand = Integrand(estimator.estimator, estimator.loss, X, None)
    family = GaussianFamily(generator, X, clone(setting))
    space = DistributionSpace(integrand, family, _longest_call(estimator))
    return WeightedRounds(space)


def _make_entries(estimator, X, given, generator):
    """Return the entries of a matrix as a space, and their number."""
    if not (callable(estimator.loss) or estimator.estimator is not None):
        raise ValueError(
            "sampler='row_column' needs loss(entries, values), or an estimator whose "
            "predict takes an array of entries (i, j)."
        )
    _refuse(given, "With sampler='row_column' the entries of X are the targets")
    if not isinstance(X, np.ndarray) and not sparse.issparse(X):
        raise TypeError(
            "sampler='row_column' needs X to be an array or a sparse matrix, got "
            f"{type(X).__name__}."
        )
    n_entries = X.shape[0] * X.shape[1]
    integrand = Integrand(estimator.estimator, estimator.loss, X, X)
    mass = np.full(n_entries, 1 / n_entries)
    pool = Pool(integrand, mass, _longest_call(estimator), n_columns=X.shape[1])
    setting = estimator.sampler
    setting = RowColumnSampler() if isinstance(setting, str) else clone(setting)
    if setting.update == "moments":
        family = RowColumnFamily(generator, X.shape, setting.mixing)
    else:
        family = PaperRowColumnFamily(generator, X.shape, setting)
    space = FiniteSpace(pool, family, estimator.control_variate)
    return WeightedRounds(space), float(n_entries)


def _longest_call(estimator):
    """Return how many rows the loss gets at once."""
    batch_size = estimator.batch_size
    return LONGEST_CALL if batch_size == "auto" else batch_size


def _refuse(given, reason):
    """Raise if anything was given that has no meaning here."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{reason}, but {name} was given; use {name}=None.")


def _check_X(estimator, X, *, reset):
    """Check what can be checked without looking at every row."""
    if hasattr(X, "columns"):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if n_rows(X) == 0:
            raise ValueError("X has 0 sample(s), at least one is required.")
        return X
    # Numbers or rows of numbers; anything else is passed to the model as it is.
    numeric = (Number, list, tuple, np.ndarray)
    if isinstance(X, (list, tuple)) and len(X) and not isinstance(X[0], numeric):
        return X
    X = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse=True,
        dtype=None,
        ensure_all_finite=False,
    )
    return row_indexable(X)


def _labels(estimator, y, strata, n):
    """Return the index of each row's label or stratum, and their number."""
    kind = estimator.sampler
    if isinstance(kind, StrataSampler):
        kind = "strata" if kind.by == "given" else "label"
    if kind == "auto":
        kind = "strata" if strata is not None else "label"
        kind = "uniform" if kind == "label" and y is None else kind
    one = np.zeros(n, dtype=np.intp), 1
    if kind == "uniform":
        return one
    if kind == "strata":
        if strata is None:
            raise ValueError(
                "The sampler draws given strata, but strata=None: pass strata to fit "
                "and partial_fit, or use sampler='label'."
            )
        values, index = np.unique(column_or_1d(strata), return_inverse=True)
        return index, len(values)
    if y is None:
        raise ValueError("sampler='label' needs y, but y=None: pass y to fit.")
    y = np.asarray(y)
    # For the mean of y, sampling by y would presuppose the answer.
    if estimator.loss is None or y.ndim != 1:
        return one
    if y.dtype.kind in "bui" and int(y.max()) - int(y.min()) < MAX_LABELS:
        # Small integers are counted in linear time.
        index = y.astype(np.intp) - int(y.min())
        present = np.bincount(index) > 0
        return (np.cumsum(present) - 1)[index], int(present.sum())
    values, index = np.unique(y, return_inverse=True)
    if len(values) <= MAX_LABELS and type_of_target(y) != "continuous":
        return index, len(values)
    score = y.astype(float)
    mass = np.full(n, 1 / n)
    strata, n_strata = score_bins(score - np.median(score), mass, *one, TARGET_BINS)
    return strata.astype(np.intp), n_strata


def _features(X, labels):
    """Return the features a surrogate is learned from: X and the label."""
    if sparse.issparse(X):
        raise TypeError(
            "surrogate='learned' needs dense X, got a sparse matrix; give X.toarray(), "
            "or a cheap fitted model as surrogate."
        )
    remedy = "surrogate='learned' needs numeric X; give a cheap fitted model or an "
    return np.column_stack([_numbers(X, remedy + "array of scores."), labels])


def _squared_norms(X):
    """Return the squared norms of rows."""
    if sparse.issparse(X):
        return check_rows(X.astype(np.float64))[1]
    remedy = "sampler='norm' needs numeric X; use sampler='auto'."
    return check_rows(_numbers(X, remedy))[1]


def _numbers(X, remedy):
    """Return X as an array of numbers."""
    if np.asarray(X).dtype.kind == "c":
        raise TypeError(remedy)
    try:
        X = np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(remedy) from error
    if X.ndim != 2:
        raise TypeError(remedy)
    return X


def _total_weight(sample_weight, n):
    """Return the weight of all rows together."""
    if sample_weight is None:
        return float(n)
    weight = np.asarray(sample_weight, dtype=float)
    return float(np.broadcast_to(weight, n).sum())
