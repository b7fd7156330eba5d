"""RowColumnSampler: entries of a matrix, by learned rows and columns."""

import numpy as np

from sklearn_awsgd._kernels._entry_samplers import ENTRY_UPDATES
from sklearn_awsgd._kernels._product_sampler import ProductDraws
from sklearn_awsgd._kernels._two_way_sampler import TwoWayDraws
from sklearn_awsgd._validation import Boolean, Options, Real
from sklearn_awsgd.samplers.base import BaseSampler, OpenedSampler


class RowColumnSampler(BaseSampler):
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
    time_aware : bool, default=False
        Whether to learn the variance for each second, from what draws cost
        (`access_cost` of ``fit``, or measured): the mean square of a row or column is
        divided by its mean cost. The step of "sgd" is the paper's Algorithm 3,
        ``||d||^2`` divided by the cost, with ``normalize=False``; else it goes down
        E||d||^2 E[cost]. The safe part is in proportion to one over the root of the
        cost, not uniform. See :ref:`time-aware`.

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
    _space = "entries"
    _parameters = {
        "update": Options(*ENTRY_UPDATES),
        "mixing": Real(low=0, below=1),
        "forgetting": Real(above=0, high=1),
        "eta0": Real(low=0),
        "normalize": Boolean(),
        "time_aware": Boolean(),
    }

    def __init__(
        self,
        *,
        update="moments",
        mixing=0.1,
        forgetting=0.02,
        eta0=0.05,
        normalize=True,
        time_aware=False,
    ):
        self.update = update
        self.mixing = mixing
        self.forgetting = forgetting
        self.eta0 = eta0
        self.normalize = normalize
        self.time_aware = time_aware

    def prepare(self, space, n_problems, n_groups, strata):
        """Allocate what is learned: what is known of the columns goes on.

        The rows of each call are new.
        """
        n_rows, n_columns = space.shape
        state = {
            "table": np.zeros((n_rows + n_columns, 4)),
            "costs": np.zeros((n_rows + n_columns, 2)),
            "scale": np.zeros(4),
            "parts": np.zeros(8),
        }
        known = getattr(self, "_state", None)
        if known is not None:
            for name in ("table", "costs"):
                state[name][n_rows:] = known[name][-n_columns:]
            state["scale"][:] = known["scale"]
            state["parts"][:] = known["parts"]
        if self.time_aware and space.costs is not None:
            # Given costs need not be learned.
            new = state["costs"][:, 1] == 0
            marginals = np.concatenate(space.costs.marginals(space))
            state["costs"][new] = np.column_stack([marginals, np.ones(len(new))])[new]
            if self.update == "sgd" and self.normalize:
                # Logits, at most zero: of two distributions, or of one over both.
                parts = [slice(n_rows), slice(n_rows, None)]
                for part in [slice(None)] if space.holes == "missing" else parts:
                    start = -np.log(marginals[part]) / 2
                    tau = state["table"][part, 3]
                    tau[:] = np.where(new[part], start - start.max(), tau)
        self._state = state

    def open(self, space, view, problem, generator):
        """Return the sampler of the entries, on the state kept here.

        It is compiled where a model is trained. Where the space is stationary, draws
        come in rounds: "moments" is fitted to all draws so far, the paper's step is
        that of the compiled sampler, within :class:`RoundsOfProducts`.
        """
        if not space.stationary:
            return self._compile(generator, space)
        if self.update == "moments":
            return RefittedProduct(generator, space, self.mixing)
        return RoundsOfProducts(self, space, generator)

    def _compile(self, generator, space):
        """Return the compiled sampler, which changes the arrays kept here in place."""
        costs = space.costs if self.time_aware else None
        if space.holes == "missing":
            costs = None if costs is None else costs.at(*space.places())
            return TwoWayDraws(generator, space.entries, self._state, self, costs)
        costs = None if costs is None else costs.marginals(space)
        return ProductDraws(generator, space.entries, self._state, self, costs)

    def known_rows(self):
        """Return what was learned of the rows of the last call."""
        n_rows = len(self.row_probabilities_)
        return {name: self._state[name][:n_rows].copy() for name in ("table", "costs")}

    def recall_rows(self, known):
        """Begin with what was learned of these rows."""
        for name, rows in known.items():
            self._state[name][: len(rows)] = rows

    def keep(self, problem, opened):
        """Keep what the opened sampler has learned, up to its last draw."""
        if hasattr(opened, "settle"):
            opened.settle()
        self.row_probabilities_ = opened.row_probabilities()
        self.column_probabilities_ = opened.column_probabilities()


class Product(OpenedSampler):
    """What opened samplers of rows times columns share.

    ``q(i, j) = (1 - mixing) n m p_i r_j + mixing``. Subclasses have `_mixing`,
    `row_probabilities` and `column_probabilities`, p and r.
    """

    def stratum_probabilities(self):
        """Return what is recorded over time: the probabilities of the columns."""
        return self.column_probabilities()

    def densities(self):
        """Return q of every entry, of shape (n_rows, n_columns)."""
        p, r = self.row_probabilities(), self.column_probabilities()
        q = np.outer(p * len(p), r * len(r))
        return self._mixing + (1 - self._mixing) * q


class RoundsOfProducts(Product):
    """The compiled sampler of rows times columns, for draws that come in rounds.

    Rounds outlive calls, so that it can be pickled: it is made again from the arrays
    that the sampler keeps.

    Parameters
    ----------
    sampler : RowColumnSampler
        With ``update="sgd"``; keeps what is learned.
    space : EntrySpace
        The entries.
    generator : numpy.random.BitGenerator
        Random stream.
    """

    def __init__(self, sampler, space, generator):
        self._sampler, self._space, self._generator = sampler, space, generator
        self._mixing = sampler.mixing
        self._kernel = sampler._compile(generator, space)

    def __getstate__(self):
        return {name: v for name, v in vars(self).items() if name != "_kernel"}

    def __setstate__(self, state):
        vars(self).update(state)
        # Kernels write to these, and a memory map may be read-only.
        known = self._sampler._state
        self._sampler._state = {name: array.copy() for name, array in known.items()}
        self._kernel = self._sampler._compile(self._generator, self._space)

    def draw_points(self, n_points):
        """Draw points that share one state."""
        # The kernel draws random numbers ahead; a new one has none left over, so that
        # a copy goes on alike.
        self._kernel = self._sampler._compile(self._generator, self._space)
        return self._kernel.draw_points(n_points)

    def observe_points(self, points):
        """Learn from points whose ``norm2`` has been filled in, as one batch."""
        self._kernel.observe_points(points)
        self._kernel.settle()

    def row_probabilities(self):
        """Return the probability of each row."""
        return self._kernel.row_probabilities()

    def column_probabilities(self):
        """Return the probability of each column."""
        return self._kernel.column_probabilities()


class RefittedProduct(Product):
    """Rows and columns drawn independently, fitted to all draws so far.

    The second moment of a draw is the mean of ``f_ij^2 / q(i, j)`` over entries;
    without the mixture it is least over p for

        p_i ~ sqrt(mean over row i of f_ij^2 / r_j)

    and over r likewise. The means are estimated from all draws so far, each weighted by
    the 1/q of its own time, and the two steps alternate.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    space : EntrySpace
        The entries of a matrix without holes.
    mixing : float, default=0.1
        Share of uniform draws.
    """

    # Draws of average size that every row and column is given beforehand.
    MARGINAL_DRAWS = 0.3
    N_ALTERNATIONS = 6

    def __init__(self, generator, space, mixing=0.1):
        self._random = np.random.Generator(generator)
        self._space = space
        self._mixing = mixing
        self._marginals = [np.full(size, 1 / size) for size in space.shape]
        self._seen = []

    def draw_points(self, n_points):
        """Draw points that share one state."""
        points = self._space.points(n_points)
        safe = self._random.random(n_points) < self._mixing
        q = np.ones(n_points)
        for axis, size, p in zip("ij", self._space.shape, self._marginals, strict=True):
            u = self._random.random(n_points)
            learned = np.searchsorted(np.cumsum(p), u, side="right")
            uniform = (u * size).astype(np.intp)
            points[axis] = np.where(safe, uniform, np.minimum(learned, size - 1))
            q *= size * p[points[axis]]
        points["q"] = self._mixing + (1 - self._mixing) * q
        return points

    def observe_points(self, points):
        """Keep points whose ``norm2`` has been filled in."""
        self._seen.append(points)

    def refit(self):
        """Learn the marginals from all draws so far."""
        if not self._seen:
            return
        seen = self._seen = [np.concatenate(self._seen)]
        shape, axes = self._space.shape, [seen[0][axis] for axis in "ij"]
        q = seen[0]["q"]
        # f^2 / q: weighted like this, draws have the law of P.
        sizes = seen[0]["norm2"] * q
        if not sizes.any():
            return
        visits = [
            np.bincount(axis, 1 / q, n) for axis, n in zip(axes, shape, strict=True)
        ]
        for step in range(2 * self.N_ALTERNATIONS):
            this, other = step % 2, 1 - step % 2
            x = sizes / (shape[other] * self._marginals[other][axes[other]])
            total = np.bincount(axes[this], x, shape[this])
            mean = total.sum() / visits[this].sum()
            p = np.sqrt(
                (total + self.MARGINAL_DRAWS * mean)
                / (visits[this] + self.MARGINAL_DRAWS)
            )
            self._marginals[this] = p / p.sum()

    def row_probabilities(self):
        """Return the probability of each row."""
        return self._marginals[0].copy()

    def column_probabilities(self):
        """Return the probability of each column."""
        return self._marginals[1].copy()
