"""AWSGDMatrixFactorization: low-rank models of matrices, trained by AW-SGD."""

import copy
import numbers

import numpy as np
from scipy.special import logit
from sklearn.utils import check_random_state

from sklearn_awsgd._factorization.entries import check_entry_costs
from sklearn_awsgd._factorization.finish import Scales
from sklearn_awsgd._factorization.fitting import (
    overflow_message,
    train,
    train_with_callbacks,
)
from sklearn_awsgd._factorization.model import FactorizationModel
from sklearn_awsgd._factorization.row_solver import LOSSES
from sklearn_awsgd._factorization.training import padded
from sklearn_awsgd._solver.records import Log
from sklearn_awsgd._validation import (
    Boolean,
    Integer,
    Options,
    Real,
    check_parameters,
    unchanged_on_failure,
)
from sklearn_awsgd.samplers import RowColumnSampler, UniformSampler
from sklearn_awsgd.samplers.base import resolve_sampler

# Size of the first factors, relative to those whose products have the data's scale.
FIRST_SIZE = 0.4


class AWSGDMatrixFactorization(FactorizationModel):
    """Low-rank factorization of a matrix by SGD that learns which entries to sample.

    Each step draws one entry of X and moves the factors of its row and of its column. A
    second small learner moves the probabilities of rows and columns, so that entries
    which matter for the gradient are drawn more often; steps are weighted by 1/q and
    stay unbiased. Entries may be missing, rows may come in a stream, and entries may be
    numbers, binary or counts.

    For a full matrix that fits in memory and a squared error,
    :class:`~sklearn.decomposition.TruncatedSVD` is the better tool.

    Parameters
    ----------
    n_components : int, default=10
        Number of factors.
    loss : {"squared_error", "huber", "log_loss", "poisson"}, default="squared_error"
        The loss. "huber" is robust to outliers, "log_loss" is for binary entries (0 and
        1, or probabilities), "poisson" for counts, with the logarithm as its link.
    alpha : float >= 0, default=0.005
        Strength of the ridge, relative to the scale of the data, so that it does not
        depend on the units of X. Raise it when few entries are observed.
    epsilon : float > 0, default=1.0
        Residual at which "huber" turns from a parabola to a line, relative to the scale
        of the data.
    fit_bias : bool, default=False
        Whether to fit a global bias and one for each row and column.
    missing_values : float, default=numpy.nan
        Value of the entries that are missing.
    unstored : {"zero", "missing"}, default="zero"
        What the entries of a sparse X are that it does not store. "zero" is
        scikit-learn's convention, "missing" is what ratings need.
    sampler : {"auto", "uniform", "row_column"} or sampler object, default="auto"
        How entries are drawn.

        - "uniform": shuffled passes, nothing is learned.
        - "row_column": :class:`~sklearn_awsgd.samplers.RowColumnSampler`.
        - "auto": ``fit`` tries "row_column" for a part of a pass, keeps it when its
          variance gain is above 3, and begins anew with "uniform" otherwise;
          ``partial_fit`` takes "row_column". Where `access_cost` is given it is
          time-aware, and the gain is that for each second.
    batch_size : int, default=1
        Draws that share one state of the sampler. Steps are sequential inside it.
    step : {"proximal", "gradient"}, default="proximal"
        "proximal" minimises the loss of the entry exactly, as far as the rate allows:
        it cannot diverge. "gradient" is the paper's step, which can.
    learning_rate : {"auto", "constant", "inverse"}, default="auto"
        The rate at draw t.

        - "auto": relative to the scale of the data, and falling as 1/t after ten draws
          for each parameter of the model. With proximal steps and a `tol`, ``fit``
          makes two passes and then solves for all rows and all columns in turn, or
          takes Newton steps of them where the error is not squared, unless that costs
          too much: with missing entries from about a hundred factors on. It warns
          where it ends with draws.
        - "constant": `eta0`; for streams that change.
        - "inverse": ``eta0 / (N / 2 + t)``, N the number of entries, as in the paper.
    eta0 : float > 0, default=None
        The rate. For "auto" it has no units and None is 0.4. For the others it has the
        paper's units, for a loss of ``(x - z)^2 / 2``, and None takes the first rate of
        "auto".
    max_iter : int, default=100
        Largest number of passes. A pass has as many draws as there are observed
        entries, or twice the number of stored ones where zeros are not stored. Solving
        for all rows or all columns counts as one.
    tol : float >= 0 or None, default=0.002
        ``fit`` stops when `n_iter_no_change` passes in a row have together not lowered
        the objective by more than this fraction, or when solving for all columns and
        rows has not. None runs `max_iter` passes of draws.
    n_iter_no_change : int, default=3
        Number of passes without progress to stop after.
    verbose : int, default=0
        Whether to print a line for each pass: its number, seconds, the objective and
        the fall that `tol` asks for; and what the trial of ``sampler="auto"`` gave.
    n_jobs : int, default=None
        Threads for shuffled passes after the first, up to eight, and for exact
        solutions, of the end of ``fit`` and of ``transform``; -1 for all processors. It
        changes no result.
    random_state : int, RandomState instance or None, default=None
        Seed of the first factors and of the draws.

    Attributes
    ----------
    components_ : ndarray of shape (n_factors, n_features)
        Factors of the columns. With ``fit_bias=True`` a constant row comes last, whose
        factor is the bias of a row.
    column_bias_ : ndarray of shape (n_features,)
        Biases of the columns, zero without ``fit_bias``.
    global_bias_ : float
        The global bias, zero without ``fit_bias``.
    row_probabilities_, column_probabilities_ : ndarray
        Learned probabilities of the rows of the last call and of the columns.
    sampler_ : sampler object
        The sampler, with what it has learned.
    reconstruction_err_ : float
        Mean loss of the observed entries of the last call, without the ridge and less
        that of perfect predictions, at the row factors that training ended with; those
        of ``transform`` are a little better.
    history_ : dict of ndarray
        Objective, variance gain, effective sample size and, where costs are given,
        simulated seconds over time.
    sampling_history_ : dict of ndarray
        Column probabilities over time, in the long format.
    variance_gain_ : float
        Second moment of the gradient of uniform draws over that of ours, in the last
        pass.
    effective_sample_size_ : float
        Number of draws of equal weight that the draws of the last pass are worth.
    n_iter_ : int
        Number of passes of the last call; the trial of ``sampler="auto"`` is not
        counted.
    t_ : float
        1 + number of draws of all calls.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, when X has string names.

    See Also
    --------
    sklearn_awsgd.samplers.RowColumnSampler : Setting of the sampler.
    sklearn_awsgd.matrix_from_entries : X from (row, column, value) triples.
    sklearn.decomposition.TruncatedSVD : For full matrices.

    Notes
    -----
    The prediction of entry (i, j) is ``link(z)``, ``z = global_bias + b_i + c_j +
    <u_i, v_j>``. The objective is the weighted mean over observed entries of

    ``loss(x_ij, z) + ridge / 2 (||u_i||^2 + ||v_j||^2) + alpha / 2 (b_i^2 + c_j^2)``,

    ridge being `alpha` times the scale of the data: the mean distance of the entries
    from the global bias for "squared_error" and "huber", 1/4 for "log_loss", the mean
    for "poisson". The paper's algorithm [1]_
    is ``AWSGDMatrixFactorization(alpha=0, step="gradient", learning_rate="inverse",
    eta0=rho_0, batch_size=100, sampler=RowColumnSampler(update="sgd",
    normalize=False, mixing=0, eta0=eta_0))``.

    References
    ----------
    .. [1] G. Bouchard, T. Trouillon, J. Perez, A. Gaidon, "Online Learning to Sample".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_awsgd import AWSGDMatrixFactorization
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 40))
    >>> holes = rng.random(X.shape) < 0.3
    >>> model = AWSGDMatrixFactorization(n_components=3, random_state=0)
    >>> filled = model.fit(np.where(holes, np.nan, X)).predict(
    ...     np.where(holes, np.nan, X)
    ... )
    >>> bool(np.abs(filled - X)[holes].mean() < 0.1 * np.abs(X).mean())
    True
    """

    _parameters = {
        "loss": Options(*LOSSES),
        "unstored": Options("zero", "missing"),
        "step": Options("proximal", "gradient"),
        "learning_rate": Options("auto", "constant", "inverse"),
        "n_components": Integer(low=1),
        "alpha": Real(low=0),
        "epsilon": Real(above=0),
        "batch_size": Integer(low=1),
        "max_iter": Integer(low=1),
        "n_iter_no_change": Integer(low=1),
        "eta0": Real(above=0, optional=True),
        "tol": Real(low=0, optional=True),
        "n_jobs": Integer(optional=True),
        "fit_bias": Boolean(),
        "verbose": Integer(low=0, or_boolean=True),
    }

    def __init__(
        self,
        n_components=10,
        *,
        loss="squared_error",
        alpha=0.005,
        epsilon=1.0,
        fit_bias=False,
        missing_values=np.nan,
        unstored="zero",
        sampler="auto",
        batch_size=1,
        step="proximal",
        learning_rate="auto",
        eta0=None,
        max_iter=100,
        tol=0.002,
        n_iter_no_change=3,
        verbose=0,
        n_jobs=None,
        random_state=None,
    ):
        self.n_components = n_components
        self.loss = loss
        self.alpha = alpha
        self.epsilon = epsilon
        self.fit_bias = fit_bias
        self.missing_values = missing_values
        self.unstored = unstored
        self.sampler = sampler
        self.batch_size = batch_size
        self.step = step
        self.learning_rate = learning_rate
        self.eta0 = eta0
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X, y=None, entry_weight=None, access_cost=None):
        """Fit the model from scratch.

        Parameters
        ----------
        X : {array-like, sparse matrix, row source} of shape (n_samples, n_features)
            The matrix. Of a row source, see :ref:`time-aware`, blocks of rows are read
            as they are needed.
        y : None
            Ignored.
        entry_weight : array-like or sparse matrix of the shape of X, default=None
            Weights of the entries: 2 is the entry twice, 0 is the entry missing. For a
            sparse X a weight for each stored entry; zeros that are not stored weigh 1.
        access_cost : array-like or tuple of two, default=None
            What it costs to fetch an entry, in seconds: one number for each row, a pair
            of such arrays for rows and columns, which add, or one number for each
            entry. A sampler with ``time_aware=True`` learns the variance for each
            second; ``history_`` has their sum, as "simulated_seconds".

        Returns
        -------
        self : AWSGDMatrixFactorization
            The fitted estimator.
        """
        with unchanged_on_failure(self):
            self._check_params()
            data = self._check_X(
                X, reset=True, entry_weight=entry_weight, to_train=True
            )
            data.costs = check_entry_costs(access_cost, data)
            self._begin(data)
            train_with_callbacks(self, data, X)
        return self

    def partial_fit(self, X, y=None, entry_weight=None, access_cost=None):
        """Make one pass over a chunk of a stream of rows.

        The factors of the columns and what the sampler knows of them are kept, and the
        random stream goes on. The chunk's own factors start at their exact solution.

        Parameters
        ----------
        X : {array-like, sparse matrix, row source} of shape (n_samples, n_features)
            Rows of the chunk.
        y : None
            Ignored.
        entry_weight : array-like or sparse matrix of the shape of X, default=None
            Weights of the entries.
        access_cost : array-like or tuple of two, default=None
            What it costs to fetch an entry, as for ``fit``.

        Returns
        -------
        self : AWSGDMatrixFactorization
            The estimator.
        """
        with unchanged_on_failure(self):
            self._check_params()
            first = not hasattr(self, "components_")
            data = self._check_X(
                X, reset=first, entry_weight=entry_weight, to_train=True
            )
            data.costs = check_entry_costs(access_cost, data)
            if first:
                self._begin(data)
                factors = self._random_factors(data.X.shape[0])
            else:
                # Training changes these in place.
                for name in ("sampler_", "_columns", "_generator", "_random_state"):
                    setattr(self, name, copy.deepcopy(getattr(self, name)))
                self._history = self._history.copy()
                factors = self._row_factors(data)
            factors = train(self, data, factors, max_iter=None)
            self._set_error(self._mean_loss(data, factors))
            self._history.thin()
        return self

    def _check_params(self):
        check_parameters(self, self._parameters)
        if not isinstance(self.missing_values, numbers.Real):
            raise TypeError(
                f"missing_values={self.missing_values!r} must be a number or NaN."
            )
        self._make_sampler()

    def _make_sampler(self, time_aware=False):
        """Return a copy of the sampler that the parameter stands for."""
        named = {
            "auto": RowColumnSampler(time_aware=time_aware),
            "row_column": RowColumnSampler(),
            "uniform": UniformSampler(),
        }
        return resolve_sampler(self.sampler, named, "entries")

    def _begin(self, data):
        """Set up what outlives a call."""
        self._random_state = copy.deepcopy(check_random_state(self.random_state))
        seed = self._random_state.randint(np.iinfo(np.int32).max)
        self._generator = np.random.PCG64(seed)
        self._history = Log()
        self.sampler_ = self._make_sampler(time_aware=data.costs is not None)
        mean = data.mean()
        # Sizes of z and of the second derivative of the loss: rate and ridge are
        # relative to them, so that the units of X do not matter.
        self._z_scale, self._curvature = 1.0, 1.0
        self.global_bias_ = 0.0
        if self.loss == "log_loss":
            self._curvature = 0.25
            bias = logit(np.clip(mean, 1e-6, 1 - 1e-6))
        elif self.loss == "poisson":
            self._curvature = mean if mean > 0 else 1.0
            bias = np.log(self._curvature)
        else:
            bias = mean
        # Without biases a factor begins with the logarithm of the mean count.
        self._level = 0.0
        if self.fit_bias:
            self.global_bias_ = float(bias)
        elif self.loss == "poisson":
            self._level = float(bias)
        if self.loss in ("squared_error", "huber"):
            scale = data.mean_distance(self.global_bias_)
            self._z_scale = scale if scale > 0 else 1.0
        self._ridge = self.alpha * self._curvature * self._z_scale
        self._epsilon = self.epsilon * self._z_scale
        n_columns = data.X.shape[1]
        self._n_factors = self.n_components
        self._columns = {
            "columns": padded(self._random_factors(n_columns, np.sign(self._level))),
            "column_bias": np.zeros(n_columns),
            "clock": np.zeros(1),
        }

    @property
    def _gain(self):
        """The constant that biases are multiplied by: they are then as factors are."""
        return float(np.sqrt(self._z_scale)) if self.fit_bias else 0.0

    def _random_factors(self, n_items, sign=1.0):
        """Return first factors: random ones, and one whose products are `_level`."""
        size = FIRST_SIZE * np.sqrt(self._z_scale / np.sqrt(self.n_components))
        factors = size * self._random_state.normal(size=(n_items, self.n_components))
        if self._level:
            factors[:, 0] = sign * np.sqrt(abs(self._level))
        return factors

    def _set_error(self, mean_loss):
        """Set the mean loss, if it is one."""
        self.reconstruction_err_ = mean_loss
        if not np.isfinite(mean_loss):
            raise ValueError(overflow_message(self))

    def _column_attributes(self, dtype, columns=None):
        """Return the attributes of the columns, from factors with their bias last."""
        bias, k = self._columns["column_bias"], self._n_factors
        if columns is None:
            columns = self._columns["columns"]
        else:
            bias = columns[:, -1]
        components = columns[:, :k].T
        if self.fit_bias:
            constant = np.full((1, components.shape[1]), self._gain)
            components = np.vstack([components, constant])
        return {
            "components_": components.astype(dtype),
            "column_bias_": (self._gain * bias).astype(dtype),
        }

    def _scales(self, is_common=False):
        """Return what the objective depends on besides entries and factors."""
        return Scales(
            self.loss,
            self._epsilon,
            self._ridge,
            self.global_bias_,
            self._gain,
            is_common,
        )
