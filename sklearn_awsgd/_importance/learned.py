"""A surrogate that is learned on the way.

Constants were set while looking at ``benchmarks/bench_importance_peers.py``.
"""

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from sklearn_awsgd._importance.bins import MAX_STRATA, Strata, score_bins

# Rows that a surrogate is first learned from, and their growth until the next time.
FIRST_LEARNED = 1000
GROWTH = 2.5
# Rows it is learned from at most: more make it slower, and hardly better.
MOST_LEARNED = 10_000
# Evaluated rows for each stratum that there is to be.
ROWS_PER_STRATUM = 20
# It is used if the variance is then less than this share of that of labels, as told by
# rows that it was not fitted to.
MUST_LOWER = 0.5
# Share of the rows taken in proportion to the sizes of bins, for that account.
MIXING = 0.3


class LearnedStrata:
    """Strata from a regressor of |f|, fitted to the rows evaluated so far.

    The regressor of each half of the pool is fitted to the other half.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        What the regressor sees.
    labels : Strata
        The labels.
    seed : int
        Random state.
    """

    def __init__(self, features, labels, seed):
        self._features = features
        self._labels = labels.index
        self._n_labels = labels.n_strata
        self._random = np.random.default_rng(seed)
        self.next_at = FIRST_LEARNED

    def n_strata(self, n_known):
        """Return how many strata there would be in each half, so many rows known."""
        n_bins = min(MAX_STRATA, n_known // ROWS_PER_STRATUM) // self._n_labels
        return max(n_bins, 1) * self._n_labels

    def strata(self, known, half, values, mass):
        """Return strata and scores of the rows not known yet.

        Parameters
        ----------
        known : ndarray of shape (n_samples,)
            Which rows are known.
        half : ndarray of shape (n_samples,)
            0 or 1.
        values : ndarray of shape (n_samples,)
            Values of the known rows, along the direction of interest.
        mass : ndarray of shape (n_samples,)
            P of each row.

        Returns
        -------
        strata : Strata or None
            Strata in each half, and |f| as predicted; None where they do not help.
        """
        seen = known & (mass > 0)
        n_known = int(seen.sum())
        self.next_at = GROWTH * n_known
        n_strata = self.n_strata(n_known)
        score = np.zeros(len(mass))
        strata = np.zeros(len(mass), dtype=np.int32)
        variances = np.zeros(2)
        for h in (0, 1):
            rows = np.flatnonzero(seen & (half != h))
            if len(rows) > MOST_LEARNED:
                rows = self._random.choice(rows, MOST_LEARNED, replace=False)
            to_score = np.flatnonzero(half == h)
            if not len(to_score) or known[to_score].all():
                continue
            model = HistGradientBoostingRegressor(
                max_iter=40,
                learning_rate=0.2,
                max_leaf_nodes=8,
                min_samples_leaf=5,
                max_bins=31,
                early_stopping=False,
                random_state=int(self._random.integers(2**31)),
            )
            # Of square roots, since a few large values would be all it sees.
            model.fit(self._features[rows], np.sqrt(np.abs(values[rows])))
            root = model.predict(self._features[to_score])
            score[to_score] = np.maximum(root, 0.0) ** 2
            strata[to_score] = score_bins(
                score[to_score],
                mass[to_score],
                self._labels[to_score],
                self._n_labels,
                n_strata // self._n_labels,
            )
            held_out = to_score[seen[to_score]]
            variances += self._variances(strata, held_out, values, score, to_score)
        if not variances[1] < MUST_LOWER * variances[0]:
            return None
        return Strata(strata, n_strata, self._n_labels, score)

    def _variances(self, strata, seen, values, score, rows):
        """Return the variances of one row by label, and by label and bin.

        By label rows are divided as is best for these values; by bin as the score says,
        so that the account is linear in the squares of a bin, and a bin in which no
        large value happened to be seen does not look calm for that.
        """
        by_label = self._squares(self._labels, seen, values, self._n_labels)
        size = np.bincount(self._labels[rows], minlength=self._n_labels)
        label_variance = (size * np.sqrt(by_label)).sum() ** 2
        n_strata = int(strata.max()) + 1
        n_strata += -n_strata % self._n_labels
        squares = self._squares(strata, seen, values, n_strata)
        # Bins without two rows are like the rest of their label.
        count = np.bincount(strata[seen], minlength=n_strata)
        like = np.repeat(by_label, n_strata // self._n_labels)
        squares = np.where(count < 2, like, squares)
        size = np.bincount(strata[rows], minlength=n_strata)
        share = np.bincount(strata[rows], score[rows], n_strata)
        share = (1 - MIXING) * share / max(share.sum(), 1e-300)
        share += MIXING * size / size.sum()
        some = size > 0
        return np.array([label_variance, (size**2 * squares)[some] @ (1 / share[some])])

    def _squares(self, index, rows, values, n):
        """Return the variance of values in each of n strata, from some rows."""
        index, values = index[rows], values[rows]
        count = np.maximum(np.bincount(index, minlength=n), 1)
        mean = np.bincount(index, values, n) / count
        squares = np.bincount(index, (values - mean[index]) ** 2, n)
        return squares / np.maximum(count - 1, 1)
