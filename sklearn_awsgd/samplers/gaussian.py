"""GaussianSampler: locations, by a Gaussian mixture that learns.

The part that stays wide was set on integrals like those of the tests; no benchmark has
chosen it.
"""

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import logsumexp

from sklearn_awsgd._validation import Integer, Options, Real
from sklearn_awsgd.samplers.base import BaseSampler, OpenedSampler

N_EM_STEPS = 10
# Weight of P's own covariance in that of a component, in effective draws.
COVARIANCE_DRAWS = 2.0
# Scales of the part that stays wide, relative to P: of all coordinates, and of one
# alone, so many at most; and its share of the draws.
WIDE_SCALES = (1.5, 2.5)
STRETCH, MOST_STRETCHED = 3.0, 32
WIDE_SHARE = 0.2


class GaussianSampler(BaseSampler):
    """Draw from a Gaussian mixture that learns where the integrand is large.

    For integrals under a distribution P, see
    :class:`~sklearn_awsgd.MinVarianceImportanceEstimator`.

    Parameters
    ----------
    n_components : int >= 1, default=1
        Number of Gaussian components.
    update : {"moments", "sgd"}, default="moments"
        How the mixture is learned.

        - "moments": it is fitted to all draws so far, weighted by ``|f| / q``, by EM.
          No step size, full covariances. A fifth of the draws stays wide: Gaussians
          of 1.5 and 2.5 times the spread of P, and of three times its spread in one
          coordinate, which look for what the mixture might have missed.
        - "sgd": the paper's gradient step on weights, means and logarithms of the
          standard deviations (diagonal covariances).
    mixing : float in (0, 1), default=0.1
        Share of draws from P itself. It bounds the weights by ``1 / mixing``.
    eta0 : float >= 0, default=0.1
        Step size of "sgd".

    Attributes
    ----------
    probabilities_ : ndarray of shape (1, n_components)
        Weights of the components.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from sklearn_awsgd import MinVarianceImportanceEstimator
    >>> from sklearn_awsgd.samplers import GaussianSampler
    >>> tail = MinVarianceImportanceEstimator(
    ...     loss=lambda x: x > 4, sampler=GaussianSampler(), random_state=0
    ... ).fit(norm())
    >>> low, high = tail.confidence_interval_
    >>> bool(low < norm.sf(4) < high)
    True
    """

    _doc_page = "importance"
    _space = "distribution"
    _parameters = {
        "n_components": Integer(low=1),
        "update": Options("moments", "sgd"),
        "mixing": Real(above=0, below=1),
        "eta0": Real(low=0),
    }

    def __init__(self, n_components=1, *, update="moments", mixing=0.1, eta0=0.1):
        self.n_components = n_components
        self.update = update
        self.mixing = mixing
        self.eta0 = eta0

    def prepare(self, space, n_problems, n_groups, strata):
        """Allocate what is learned: the weights of the components."""
        self.probabilities_ = np.ones((n_problems, self.n_components))

    def open(self, space, view, problem, generator):
        """Return the mixture that draws."""
        return GaussianMixture(self, space, generator)


class GaussianMixture(OpenedSampler):
    """A Gaussian mixture, mixed with P.

    Parameters
    ----------
    setting : GaussianSampler
        How the mixture is learned.
    space : DistributionSpace
        P.
    generator : numpy.random.BitGenerator
        Random stream.
    """

    def __init__(self, setting, space, generator):
        self._random = np.random.Generator(generator)
        self._space = space
        self._setting = setting
        pilot = space.pilot
        # Quartiles, since P may have no moments.
        low, middle, high = np.quantile(pilot, [0.25, 0.5, 0.75], axis=0)
        spread = np.maximum((high - low) / 1.35, 1e-12 * (1 + np.abs(middle)))
        # Wider than P: the integrand may live in a tail that P hardly visits.
        spread = spread * (1 + 2 / np.sqrt(pilot.shape[1]))
        self._prior = np.diag(spread**2)
        k = setting.n_components
        self._weights = np.full(k, 1 / k)
        self._means = pilot[:k].copy() if k > 1 else middle[None, :]
        self._covariances = np.repeat(self._prior[None], k, axis=0)
        self._scale = None
        self._seen = []
        # The paper's way has none of it.
        self._wide_share = WIDE_SHARE if setting.update == "moments" else 0.0
        self._centre = middle.copy()
        self._wide = self._wide_scales(len(middle)) * np.maximum(
            (high - low) / 1.35, 1e-12 * (1 + np.abs(middle))
        )
        self._placed = k == 1

    def _log_components(self, x):
        """Return log(weight * density) of each component, (n, n_components)."""
        result = np.empty((len(x), len(self._weights)))
        for k, (mean, covariance) in enumerate(
            zip(self._means, self._covariances, strict=True)
        ):
            root = cholesky(covariance, lower=True)
            z = solve_triangular(root, (x - mean).T, lower=True)
            result[:, k] = -0.5 * (z**2).sum(axis=0) - np.log(np.diag(root)).sum()
        dimension = x.shape[1]
        with np.errstate(divide="ignore"):
            return result + np.log(self._weights) - 0.5 * dimension * np.log(2 * np.pi)

    def densities(self, x):
        """Return dQ/dP at locations; infinite where P has no density."""
        mixing, wide = self._setting.mixing, self._wide_share
        log_p = self._space.log_density(x)
        with np.errstate(over="ignore"):
            ratio = np.exp(logsumexp(self._log_components(x), axis=1) - log_p)
            density = mixing + (1 - mixing) * (1 - wide) * ratio
            if wide:
                log_wide = logsumexp(self._log_wide(x), axis=1) - log_p
                density += (1 - mixing) * wide * np.exp(log_wide)
        return density

    def _wide_scales(self, dimension):
        """Return scales of the coordinates of the wide Gaussians, one in each row."""
        scales = np.repeat(np.array(WIDE_SCALES)[:, None], dimension, axis=1)
        n_stretched = min(dimension, MOST_STRETCHED)
        stretched = np.ones((n_stretched, dimension))
        chosen = self._random.permutation(dimension)[:n_stretched]
        stretched[np.arange(n_stretched), chosen] = STRETCH
        # As many draws of the one kind as of the other.
        repeats = max(n_stretched // len(WIDE_SCALES), 1)
        return np.concatenate([np.repeat(scales, repeats, axis=0), stretched])

    def _log_wide(self, x):
        """Return log(weight * density) of each wide Gaussian, (n, n_scales)."""
        z2 = (((x - self._centre)[:, None] / self._wide) ** 2).sum(axis=2)
        norm = np.log(self._wide).sum(axis=1) + 0.5 * x.shape[1] * np.log(2 * np.pi)
        return -0.5 * z2 - norm - np.log(len(self._wide))

    def draw_points(self, n_points):
        """Draw points that share one state."""
        points = self._space.points(n_points)
        component = self._random.choice(
            len(self._weights), size=n_points, p=self._weights
        )
        noise = self._random.standard_normal((n_points, self._means.shape[1]))
        for k, covariance in enumerate(self._covariances):
            chosen = component == k
            root = cholesky(covariance, lower=True)
            points["x"][chosen] = self._means[k] + noise[chosen] @ root.T
        if self._wide_share:
            scale = self._random.integers(len(self._wide), size=n_points)
            wide = self._random.random(n_points) < self._wide_share
            points["x"][wide] = self._centre + (noise * self._wide[scale])[wide]
        safe = self._random.random(n_points) < self._setting.mixing
        n_safe = int(safe.sum())
        if n_safe:
            points["x"][safe] = self._space.draw(n_safe, self._random)
        points["q"] = self.densities(points["x"])
        return points

    def observe_points(self, points):
        """Learn from points whose ``norm2`` has been filled in."""
        if self._setting.update == "moments":
            self._seen.append(points)
        else:
            self._step(points)

    def _step(self, points):
        """Take the paper's step: tau += eta (norm2 / ema) grad log q."""
        norm2 = points["norm2"]
        mean_norm2 = norm2.mean()
        if self._scale is not None and self._scale > 0:
            x, q = points["x"], points["q"]
            log_parts = self._log_components(x)
            log_mixture = logsumexp(log_parts, axis=1, keepdims=True)
            share = 1 - self._setting.mixing / q
            weight = norm2 / self._scale * share / len(points)
            responsibility = np.exp(log_parts - log_mixture) * weight[:, None]
            eta = self._setting.eta0
            for k in range(len(self._weights)):
                sd = np.sqrt(np.diag(self._covariances[k]))
                z = (x - self._means[k]) / sd
                # Steps in units of the component's own width.
                r = responsibility[:, k]
                self._means[k] += sd * np.clip(eta * (r @ z), -1, 1)
                growth = eta * (r @ (z**2 - 1)) / 2
                self._covariances[k] = np.diag(
                    (sd * np.exp(np.clip(growth, -1, 1))) ** 2
                )
            move = responsibility.sum(axis=0) - weight.sum() * self._weights
            weights = self._weights * np.exp(np.clip(eta * move, -1, 1))
            self._weights = weights / weights.sum()
        forget = 1.0 if self._scale is None else 0.1
        self._scale = (1 - forget) * (self._scale or 0.0) + forget * mean_norm2

    def refit(self):
        """Fit the mixture to all draws so far."""
        if not self._seen:
            return
        seen = self._seen = [np.concatenate(self._seen)]
        x = seen[0]["x"]
        # sqrt(norm2) is |f| / q: weighted like this, draws have the law |f| P.
        weight = np.sqrt(seen[0]["norm2"])
        useful = weight > 0
        if not useful.any():
            return
        x, weight = x[useful], weight[useful] / weight[useful].sum()
        n_effective = 1 / (weight @ weight)
        if not self._placed and n_effective >= len(self._weights):
            self._place(x, weight)
        for _ in range(N_EM_STEPS if len(self._weights) > 1 else 1):
            log_parts = self._log_components(x)
            r = np.exp(log_parts - logsumexp(log_parts, axis=1, keepdims=True))
            r *= weight[:, None]
            total = r.sum(axis=0)
            for k, mass in enumerate(total):
                if mass * n_effective < 1:
                    continue
                self._means[k] = r[:, k] @ x / mass
                centred = x - self._means[k]
                scatter = (r[:, k, None] * centred).T @ centred * n_effective
                self._covariances[k] = (scatter + COVARIANCE_DRAWS * self._prior) / (
                    mass * n_effective + COVARIANCE_DRAWS
                )
            self._weights = (total + 0.01) / (total + 0.01).sum()

    def _place(self, x, weight):
        """Start components at draws of large weight that are far from each other."""
        self._placed = True
        z = (x - self._centre) / self._wide[0]
        chosen = [int(np.argmax(weight))]
        for _ in range(len(self._weights) - 1):
            gaps = (z[:, None] - z[chosen]) ** 2
            chosen.append(int(np.argmax(weight * gaps.sum(axis=2).min(axis=1))))
        self._means = x[chosen].copy()

    def stratum_probabilities(self):
        """Return the weights of the components."""
        return self._weights.copy()
