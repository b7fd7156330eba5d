"""The area under the ROC curve, from rows that were drawn for another question.

It is the share of the pairs of a positive and a negative that are in the right order, a
U-statistic of two samples. To first order it varies like a mean: that of each row's own
share of right pairs, among the rows of the other class (Hoeffding's projection, which
gives the variance of DeLong, DeLong and Clarke-Pearson for plain samples). So the area
is estimated like any mean of a function of rows, by strata and without replacement.
"""

import numpy as np

from sklearn_awsgd._importance.targets import Mean

# Rows of each class that are needed, unless the pool has no more: with 11 positives of
# mammography intervals cover 75 %, with 46 of them 97 %.
LEAST_OF_CLASS = 30


def area_values(rounds, models, X, labels):
    """Return values at the evaluated rows whose mean is the area, and their target.

    Parameters
    ----------
    rounds : StratifiedRounds
        What drew the rows.
    models : tuple of one or two fitted classifiers
        Of two, the difference of the areas is wanted.
    X : data
        The evaluated rows, in the order of the pool.
    labels : ndarray of shape (n_samples,)
        Labels of all rows of the pool.

    Returns
    -------
    values : ndarray of shape (n_evaluated, 1)
        Up to terms of second order, the area is their mean over the pool.
    target : Mean
        What is wanted of them.
    """
    pool = rounds.pool
    rows, weight = rounds.expansion()
    in_order = np.argsort(rows)
    weight = weight[in_order]
    parts = []
    for model in models:
        positive = _positive(model, labels)
        seen = positive[rows[in_order]]
        for name, kind in (("positives", True), ("negatives", False)):
            n_seen, n = (seen == kind).sum(), (positive == kind)[pool.mass > 0].sum()
            if n_seen < min(LEAST_OF_CLASS, max(n, 1)):
                raise ValueError(
                    f"Of {n} {name} {n_seen} have been evaluated; loss='roc_auc' needs "
                    f"{LEAST_OF_CLASS} of each class: draw by sampler='label' for "
                    "loss='balanced_accuracy', or raise max_evaluations."
                )
        share = pool.mass @ positive
        right = right_pairs(_scores(model, X), seen, weight)
        area = np.average(right[seen], weights=weight[seen])
        # In each class the mean deviation is that of the area by this class.
        parts.append(area + (right - area) / np.where(seen, share, 1 - share))
    if len(parts) == 1:
        return parts[0][:, None], Mean((0.0, 1.0))
    return (parts[0] - parts[1])[:, None], Mean((-1.0, 1.0))


def right_pairs(scores, positive, weight):
    """Return for each row the share of the other class that is on the right side of it.

    Ties count for half.

    Parameters
    ----------
    scores : ndarray of shape (n_rows,)
        The higher, the more positive.
    positive : ndarray of shape (n_rows,) and dtype bool
        The class of each row.
    weight : ndarray of shape (n_rows,)
        How much each row stands for.
    """
    right = np.empty(len(scores))
    for one, sign in ((positive, 1), (~positive, -1)):
        others, mass = sign * scores[~one], weight[~one]
        order = np.argsort(others)
        below = np.concatenate([[0.0], np.cumsum(mass[order])]) / mass.sum()
        own = sign * scores[one]
        places = (
            np.searchsorted(others[order], own, side) for side in ("left", "right")
        )
        right[one] = sum(below[place] for place in places) / 2
    return right


def _positive(model, labels):
    classes = np.asarray(model.classes_)
    if len(classes) != 2:
        raise ValueError(
            f"loss='roc_auc' is of binary classifiers, but estimator has "
            f"{len(classes)} classes; use a classifier of one class against the rest."
        )
    return labels == classes[1]


def _scores(model, X):
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(X), dtype=float)
    return np.asarray(model.predict_proba(X), dtype=float)[:, 1]
