"""RowColumnSampler: the setting of the samplers of matrix entries."""

import numpy as np
from sklearn.base import BaseEstimator

from sklearn_awsgd._documentation import DocumentationLinkMixin
from sklearn_awsgd._kernels._entry_samplers import UPDATES, ProductDraws
from sklearn_awsgd._kernels._two_way_sampler import TwoWayDraws
from sklearn_awsgd._validation import check_number, check_option


class RowColumnSampler(DocumentationLinkMixin, BaseEstimator):
    """Draw entries of a matrix with a learned probability of each row and column.

    In a matrix without holes row i and column j are drawn independently, with
    probabilities p_i and p_j. In one with missing entries the observed ones are drawn
    from the two-way mixture ``Q(i, j) = r_i / |row i| + c_j / |column j|``, a row or a
    column first and then one of its entries. The weights 1/q keep every step unbiased
    whatever the probabilities are.

    Parameters
    ----------
    update : {"moments", "sgd"}, default="moments"
        How the probabilities are learned.

        - "moments": in closed form from the running mean of the squared gradient norms
          of each row and column. No step size.
        - "sgd": the paper's gradient step on tau, the logits of the probabilities.
    mixing : float in [0, 1), default=0.1
        Share of draws that are uniform over the entries. It bounds the weights; 0 is
        the paper's algorithm.
    forgetting : float in (0, 1], default=0.02
        Weight of the newest visit of a row or column in its running mean. Raise it to
        follow a stream that changes faster.
    eta0 : float >= 0, default=0.05
        Step size of "sgd".
    normalize : bool, default=True
        Whether "sgd" divides the squared gradient norm by its running mean, so that
        `eta0` has no units, and subtracts a baseline, which lowers the noise of the
        step. False is the paper's algorithm.

    Attributes
    ----------
    row_probabilities_ : ndarray of shape (n_rows,)
        Probability of each row of the last call, without the uniform part.
    column_probabilities_ : ndarray of shape (n_columns,)
        Probability of each column.

    Notes
    -----
    "moments", the mixtures and the normalisation are additions of this package to the
    paper [1]_; ``RowColumnSampler(update="sgd", normalize=False, mixing=0)`` is the
    paper's own sampler.

    References
    ----------
    .. [1] G. Bouchard, T. Trouillon, J. Perez, A. Gaidon, "Online Learning to Sample".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_awsgd import AWSGDMatrixFactorization
    >>> from sklearn_awsgd.samplers import RowColumnSampler
    >>> X = np.random.default_rng(0).normal(size=(30, 20))
    >>> X[:, 3] *= 10
    >>> model = AWSGDMatrixFactorization(
    ...     n_components=3, sampler=RowColumnSampler(mixing=0.2), random_state=0
    ... ).fit(X)
    >>> int(model.sampler_.column_probabilities_.argmax())
    3
    """

    _doc_page = "factorization"

    def __init__(
        self,
        *,
        update="moments",
        mixing=0.1,
        forgetting=0.02,
        eta0=0.05,
        normalize=True,
    ):
        self.update = update
        self.mixing = mixing
        self.forgetting = forgetting
        self.eta0 = eta0
        self.normalize = normalize

    def _check(self):
        check_option("sampler.update", self.update, tuple(UPDATES))
        check_number("sampler.mixing", self.mixing, low=0, below=1)
        check_number("sampler.forgetting", self.forgetting, above=0, high=1)
        check_number("sampler.eta0", self.eta0, low=0)

    def _kernel(self, generator, entries):
        """Return the compiled sampler, with what is known of the columns.

        The rows of each call are new.
        """
        n_rows, n_columns = entries.n_rows, entries.n_columns
        state = {
            "table": np.zeros((n_rows + n_columns, 4)),
            "scale": np.zeros(2),
            "parts": np.zeros(4),
        }
        known = getattr(self, "_state", None)
        if known is not None:
            state["table"][n_rows:] = known["table"][-n_columns:]
            state["scale"][:] = known["scale"]
            state["parts"][:] = known["parts"]
        self._state = state
        kind = TwoWayDraws if entries.kind == "missing" else ProductDraws
        return kind(generator, entries, state, self)

    def _store(self, kernel):
        """Keep what the compiled sampler has learned, up to its last draw."""
        kernel.settle()
        self.row_probabilities_ = kernel.row_probabilities()
        self.column_probabilities_ = kernel.column_probabilities()
