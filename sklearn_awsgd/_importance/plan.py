"""The plan of a run: from what a user gave to rounds.

The number of bins was set while looking at ``benchmarks/bench_importance.py``.
"""

import copy
from functools import partial
from numbers import Number

import numpy as np
from scipy import sparse
from sklearn.utils import check_consistent_length

from sklearn_awsgd._importance.bins import (
    MAX_STRATA,
    Strata,
    given_strata,
    join_small,
    label_strata,
    one_stratum,
    score_bins,
)
from sklearn_awsgd._importance.learned import LearnedStrata
from sklearn_awsgd._importance.losses import (
    Integrand,
    is_distribution,
    n_rows,
    row_indexable,
    surrogate_score,
)
from sklearn_awsgd._importance.pool import Locations, Pool
from sklearn_awsgd._importance.run import Integrator
from sklearn_awsgd._importance.stratified import LEAST_ROWS, StratifiedRounds
from sklearn_awsgd._importance.weighted import WeightedRounds
from sklearn_awsgd._spaces import (
    DistributionSpace,
    EntrySpace,
    PoolSpace,
    ProblemView,
)
from sklearn_awsgd._validation import (
    check_rows,
    check_strata,
    check_weights,
    validate_data,
)
from sklearn_awsgd.samplers import (
    BaseSampler,
    GaussianSampler,
    NormSampler,
    RowColumnSampler,
    StrataSampler,
    UniformSampler,
)
from sklearn_awsgd.samplers.base import DRAWN, resolve_sampler

# Bins of uneven weights in each label.
WEIGHT_BINS = 8
# Rows in one call of the loss, unless batch_size says how many.
LONGEST_CALL = 1000


def choose_sampler(sampler, X=None, y=None, strata=None):
    """Return a checked copy of the sampler that the parameter stands for.

    Parameters
    ----------
    sampler : str or BaseSampler
        The parameter.
    X, y, strata : as given to fit
        What "auto" depends on.
    """
    named = {
        "uniform": UniformSampler(),
        "label": StrataSampler(by="label"),
        "strata": StrataSampler(by="given"),
        "norm": NormSampler(),
        "row_column": RowColumnSampler(),
        "gaussian": GaussianSampler(),
    }
    if is_distribution(X):
        named = {"gaussian": named["gaussian"]}
        auto, space = "gaussian", "distribution"
    else:
        auto = "uniform" if y is None else "label"
        auto = auto if strata is None else "strata"
        chosen = named.get(sampler) if isinstance(sampler, str) else sampler
        is_sampler = isinstance(chosen, BaseSampler)
        # The first that fits: rows, if it can draw rows.
        kinds = [kind for kind in DRAWN if is_sampler and chosen.draws_from(kind)]
        space = kinds[0] if kinds else "rows"
    named = {"auto": named[auto], **named}
    return resolve_sampler(sampler, named, space, stationary=True)


def plan_run(
    estimator,
    X,
    y,
    sample_weight,
    strata,
    generator,
    *,
    reset=True,
    before=None,
    told=False,
):
    """Return the run over the rows, entries or locations of X, ready to begin.

    Parameters
    ----------
    estimator : MinVarianceImportanceEstimator
        For its parameters; n_features_in_ is set or checked.
    X, y, sample_weight, strata : as given to fit
        Data.
    generator : numpy.random.BitGenerator
        Random stream.
    reset : bool, default=True
        Whether X defines the features, or must have the known ones.
    before : Integrator, default=None
        The run over the rows of a stream that came before.
    told : bool, default=False
        Whether values will be told, so that no y is needed to compute them.
    """
    given = {"y": y, "sample_weight": sample_weight, "strata": strata}
    given |= {"surrogate": estimator.surrogate, "bounds": estimator.bounds}
    sampler = choose_sampler(estimator.sampler, X, y, strata)
    if is_distribution(X):
        rounds = _plan_distribution(estimator, sampler, X, given, generator)
        return Integrator(rounds, generator, 1.0, before, estimator.anytime)
    if hasattr(X, "rvs"):
        raise TypeError(
            f"X is a {type(X).__name__}, which has no density (logpdf); give the "
            "values of a discrete distribution as rows, and their probabilities as "
            "sample_weight."
        )
    if not (sampler.draws_from("rows") or sampler.draws_from("entries")):
        raise TypeError(
            "A Gaussian sampler needs X to be a frozen continuous distribution of "
            f"scipy.stats, got {type(X).__name__}; for rows use sampler='auto'."
        )
    # A loss knows what a row is, which may be a number.
    loose = (told or callable(estimator.loss)) and _has_numbers_as_rows(X)
    X = X if loose else _check_X(estimator, X, reset=reset)
    if sampler.draws_from("rows"):
        rounds, weight = _plan_rows(
            estimator, sampler, X, given, generator, told, before is not None
        )
    else:
        rounds = _plan_entries(estimator, sampler, X, given, generator)
        weight = float(X.shape[0] * X.shape[1])
    return Integrator(rounds, generator, weight, before, estimator.anytime)


def _plan_rows(estimator, sampler, X, given, generator, told, is_more):
    """Return rounds of the rows of X, and the total weight of these."""
    n, y = n_rows(X), given["y"]
    if callable(y):
        raise TypeError(
            f"y must be the targets of the rows, got {y!r}; a function whose mean is "
            "wanted is a parameter: MinVarianceImportanceEstimator(loss=function)."
        )
    check_strata(given["strata"])
    check_consistent_length(X, y, given["strata"])
    weights = check_weights(given["sample_weight"], n)
    y = y if y is None or hasattr(y, "iloc") else np.asarray(y)
    mass = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    integrand = Integrand(
        estimator.estimator, estimator.loss, X, y, told, estimator.bounds
    )
    if is_more and integrand.metric.over == "classes":
        raise ValueError(
            f"loss={estimator.loss!r} weights rows by the sizes of classes, which more "
            "rows change; call fit with all rows."
        )
    mass = integrand.relevant(mass)
    total = float(mass.sum())
    mass = mass / total
    pool = Pool(
        integrand,
        mass,
        _longest_call(estimator),
        guess_known=estimator.control_variate,
    )
    even = weights is None and integrand.metric.over == "rows"
    space = PoolSpace(None if even else mass, n, partial(_squared_norms, X))
    if not isinstance(sampler, (StrataSampler, UniformSampler)):
        _refuse(
            {name: given[name] for name in ("surrogate", "bounds")},
            f"sampler={estimator.sampler!r} draws without a guess of the values",
        )
        groups = one_stratum(n)
        rounds = _open(pool, sampler, space, generator, groups, given["strata"])
        return rounds, total
    by = sampler.by if isinstance(sampler, StrataSampler) else "nothing"
    labels = _labels(estimator, by, y, given["strata"], n)
    # Each stratum of each half takes some rows before anything can be learned.
    most = max(estimator.max_evaluations // (4 * LEAST_ROWS), 1)
    labels = join_small(labels, most)
    strata, learned = _cross_with_score(
        estimator, X, y, pool, labels, most // labels.n_strata, generator
    )
    if isinstance(sampler, UniformSampler):
        # Passes without replacement are what one stratum is.
        sampler = StrataSampler()
    if sampler.update == "moments" and estimator.control_variate:
        for_width = estimator.rtol is not None or estimator.atol is not None
        rounds = StratifiedRounds(pool, sampler, generator, strata, learned, for_width)
        return rounds, total
    _refuse(
        {"bounds": estimator.bounds},
        "Bounds are for draws without replacement (update='moments', "
        "control_variate=True)",
    )
    if learned is not None:
        raise ValueError(
            "surrogate='learned' needs update='moments' and control_variate=True."
        )
    space.strata = strata.index
    return _open(pool, sampler, space, generator, groups=strata), total


def _open(pool, sampler, space, generator, groups=None, strata=None):
    """Return rounds of weighted draws, by a sampler that is opened for them."""
    sampler.prepare(space, 1, 1 if groups is None else groups.n_strata, strata)
    view = None
    if groups is not None:
        # Nothing is known of the values of rows.
        view = ProblemView(groups.index, norms2=np.ones(space.n_samples))
    return WeightedRounds(pool, sampler, sampler.open(space, view, 0, generator))


def _labels(estimator, by, y, strata, n):
    """Return the strata that labels or given names make."""
    if by == "nothing":
        return one_stratum(n)
    if by == "given":
        if strata is None:
            raise ValueError(
                "The sampler draws given strata, but strata=None: pass strata to fit "
                "and partial_fit, or use sampler='label'."
            )
        return given_strata(strata)
    if y is None:
        raise ValueError("sampler='label' needs y, but y=None: pass y to fit.")
    # For the mean of y, sampling by y would presuppose the answer.
    if estimator.loss is None or np.ndim(y) != 1:
        return one_stratum(n)
    return label_strata(y)


def _cross_with_score(estimator, X, y, pool, labels, most_bins, generator):
    """Return labels crossed with bins of a score, and what learns other strata."""
    mass = pool.mass
    uneven = np.ptp(mass[mass > 0]) > 1e-9 * mass.max()
    n_labels = labels.n_strata
    if isinstance(estimator.surrogate, str):
        # Of a copy, so that rows come as they would without a surrogate.
        seed = int(copy.deepcopy(generator).random_raw() % 2**31)
        learned = LearnedStrata(_features(X, labels.index), labels, seed)
        score = np.ones(len(mass)) if uneven else None
        return Strata(labels.index, n_labels, n_labels, score), learned
    if estimator.surrogate is not None:
        n_bins = MAX_STRATA // n_labels
        score = surrogate_score(estimator.surrogate, pool.integrand, X, y, len(mass))
    elif uneven:
        # Heavy rows are large parts of the integral.
        n_bins, score = WEIGHT_BINS, np.ones(len(mass))
    else:
        return labels, None
    n_bins = max(min(n_bins, most_bins), 1)
    index = score_bins(mass * score, mass, labels.index, n_labels, n_bins)
    return Strata(index, n_labels * n_bins, n_labels, score), None


def _plan_distribution(estimator, sampler, X, given, generator):
    """Return rounds of locations."""
    if not callable(estimator.loss):
        raise ValueError(
            f"X is a distribution, but loss={estimator.loss!r}; give a callable "
            "loss(x) that takes an array of locations."
        )
    _refuse(given, "X is a distribution and has no rows")
    integrand = Integrand(estimator.estimator, estimator.loss, X, None)
    space = DistributionSpace(X, np.random.Generator(generator))
    pool = Locations(integrand, space, _longest_call(estimator))
    return _open(pool, sampler, space, generator)


def _plan_entries(estimator, sampler, X, given, generator):
    """Return rounds of the entries of a matrix."""
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
    pool = Pool(
        Integrand(estimator.estimator, estimator.loss, X, X),
        np.full(n_entries, 1 / n_entries),
        _longest_call(estimator),
        n_columns=X.shape[1],
        guess_known=estimator.control_variate,
    )
    return _open(pool, sampler, EntrySpace(X.shape, stationary=True), generator)


def _longest_call(estimator):
    """Return how many rows the loss gets at once."""
    batch_size = estimator.batch_size
    return LONGEST_CALL if batch_size == "auto" else batch_size


def _refuse(given, reason):
    """Raise if anything was given that has no meaning here."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{reason}, but {name} was given; use {name}=None.")


def _has_numbers_as_rows(X):
    """Return whether X is a range, a 1-D array or a list of numbers."""
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and isinstance(X[0], Number)
    one = isinstance(X, range) or (hasattr(X, "shape") and np.ndim(X) == 1)
    return one and len(X) > 0


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
