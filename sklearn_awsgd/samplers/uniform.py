"""UniformSampler: shuffled passes."""

from sklearn_awsgd._kernels import _entries, _samplers
from sklearn_awsgd.samplers.base import BaseSampler


class UniformSampler(BaseSampler):
    """Shuffled passes: every row once in random order, then all again.

    This is how :class:`~sklearn.linear_model.SGDClassifier` samples. Nothing is
    learned. With ``shuffle=False`` the linear estimators take the rows in their order.
    A factorization goes through the entries of its matrix in the same way.

    Attributes
    ----------
    probabilities_ : ndarray of shape (n_problems, 1)
        All ones: there is one stratum.

    Examples
    --------
    >>> from sklearn_awsgd import AWSGDClassifier
    >>> from sklearn_awsgd.samplers import UniformSampler
    >>> clf = AWSGDClassifier(sampler=UniformSampler())
    """

    _space = ("rows", "entries")

    def open(self, space, view, problem, generator):
        """Return the compiled sampler of one problem."""
        if space.kind == "entries":
            return _entries.ShuffledEntries(generator, space.entries)
        return _samplers.ShuffledPasses(
            generator, space.rows, space.mass, space.shuffle
        )

    def keep(self, problem, opened):
        """Keep what the compiled sampler of one problem has learned: nothing."""
