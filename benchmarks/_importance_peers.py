"""Other ways to a mean from few values: what bench_importance_peers.py compares with.

Each takes the values of all rows, of which it may look at `budget`, a score of each,
and a random generator, and returns an estimate and the ends of a 95 % interval.
"""

import numpy as np

Z = 1.959963984540054
# Share of the draws that come whatever the score says; the best one is reported.
SAFE_SHARES = (0.1, 0.3, 0.5)


def _normal(mean, error):
    return mean, mean - Z * error, mean + Z * error


def plain(values, score, budget, random):
    """Return the plain mean of different rows."""
    f = values[random.choice(len(values), budget, replace=False)]
    return _normal(f.mean(), f.std(ddof=1) * np.sqrt(1 / budget - 1 / len(values)))


def ppi(values, score, budget, random):
    """Return the mean by prediction-powered inference (ppi++ of ppi-python)."""
    from ppi_py import ppi_mean_ci, ppi_mean_pointestimate

    order = random.permutation(len(values))
    seen, rest = order[:budget], order[budget:]
    data = values[seen], score[seen], score[rest]
    low, high = ppi_mean_ci(*data, alpha=0.05)
    return tuple(
        float(np.ravel(x)[0]) for x in (ppi_mean_pointestimate(*data), low, high)
    )


def active_inference(values, score, budget, random, safe=0.3):
    """Return the mean by active statistical inference (Zrnic and Candes).

    A tenth of the budget is drawn uniformly, to bring the score to the scale of the
    values; the others come with probabilities that go with its size.
    """
    n = len(values)
    first = random.choice(n, max(budget // 10, 20), replace=False)
    square = score[first] @ score[first]
    guess = score * (values[first] @ score[first] / square if square > 0 else 0.0)
    size = np.abs(score) / (np.abs(score).mean() or 1.0)
    wanted = (budget - len(first)) / n
    p = wanted * ((1 - safe) * size + safe)
    for _ in range(20):
        # What rows beyond a probability of one cannot take goes to the others.
        p = np.minimum(p, 1.0)
        p[p < 1] *= (wanted * n - (p >= 1).sum()) / p[p < 1].sum()
    drawn = random.random(n) < np.minimum(p, 1.0)
    parts = guess + drawn * (values - guess) / p
    return _normal(parts.mean(), parts.std(ddof=1) / np.sqrt(n))


def lure(values, score, budget, random, safe=0.3):
    """Return the levelled unbiased risk estimator (Farquhar and others).

    Rows are drawn one after the other, without replacement, in proportion to the size
    of the score. It has no interval of its own; that here is of independent draws.
    """
    n = len(values)
    size = np.abs(score)
    size = (1 - safe) * size / (size.mean() or 1.0) + safe
    # The order of these is that of draws in proportion to the sizes.
    order = np.argsort(random.exponential(size=n) / size)[:budget]
    before = np.concatenate([[0.0], np.cumsum(size[order])[:-1]])
    q = size[order] / (size.sum() - before)
    m = np.arange(1, budget + 1)
    weight = 1 + (n - budget) / (n - m) * (1 / ((n - m + 1) * q) - 1)
    parts = weight * values[order]
    return _normal(parts.mean(), parts.std(ddof=1) / np.sqrt(budget))


def vegas(values, score, budget, random):
    """Return the mean by vegas, over rows in the order of the score."""
    import vegas

    n = len(values)
    ordered = values[np.argsort(score, kind="stable")]

    @vegas.lbatchintegrand
    def integrand(x):
        return ordered[np.minimum((x[:, 0] * n).astype(int), n - 1)]

    integrator = vegas.Integrator([[0, 1]], ran_array_generator=random.random)
    result = integrator(integrand, nitn=5, neval=budget // 5)
    return _normal(result.mean, result.sdev)


PEERS = {
    "plain average": (plain, None),
    "ppi++": (ppi, "ppi_py"),
    "active inference": (active_inference, None),
    "LURE": (lure, None),
    "vegas": (vegas, "vegas"),
}
