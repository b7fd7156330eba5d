"""A surrogate that is learned on the way."""

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from sklearn_awsgd._importance.bins import MAX_STRATA, Strata, score_bins

# Rows that a surrogate is first learned from, and their growth until the next time.
FIRST_ROWS = 200
GROWTH = 3
# Rows it is learned from at most: more make it slower, and hardly better.
MOST_ROWS = 10_000
# Evaluated rows for each stratum that there is to be.
ROWS_PER_STRATUM = 20


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
        self.next_at = FIRST_ROWS

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
        strata : Strata
            Strata in each half, and |f| as predicted.
        """
        seen = known & (mass > 0)
        n_known = int(seen.sum())
        self.next_at = GROWTH * n_known
        n_strata = self.n_strata(n_known)
        score = np.zeros(len(mass))
        strata = np.zeros(len(mass), dtype=np.int32)
        for h in (0, 1):
            rows = np.flatnonzero(seen & (half != h))
            if len(rows) > MOST_ROWS:
                rows = self._random.choice(rows, MOST_ROWS, replace=False)
            to_score = np.flatnonzero(~known & (half == h))
            if not len(to_score):
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
        return Strata(strata, n_strata, self._n_labels, score)
