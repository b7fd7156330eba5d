"""NumPy twins of the compiled code, and the one place that builds kernels for tests."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn_awsgd._kernels._coordinate_rates import make_steps
from sklearn_awsgd._kernels._linear import LinearProblem
from sklearn_awsgd._kernels._loop import POINT, SUMS, run
from sklearn_awsgd._kernels._rows import Rows

from sklearn_awsgd import AWSGDClassifier, _spaces
from sklearn_awsgd._kernels import _samplers, _tables
from sklearn_awsgd._kernels.settings import Penalty, Rate
from sklearn_awsgd._linear.blocks import Blocks
from sklearn_awsgd._linear.objectives import LinearObjective
from sklearn_awsgd._linear.sums import LinearSums

RUN = _tables.ROWS_IN_RUN
# What makes each loss that has second derivatives, from an estimator.
SMOOTH_LOSSES = {
    name: AWSGDClassifier._losses[name]
    for name in (
        "log_loss",
        "squared_hinge",
        "modified_huber",
        "squared_error",
        "huber",
        "squared_epsilon_insensitive",
    )
}


def stream(seed):
    """Return a kernel's random stream and NumPy's view of the same numbers."""
    return np.random.PCG64(seed), np.random.Generator(np.random.PCG64(seed))


def strata_kernel(setting, generator, strata, n_strata=None, mass=None, norms2=None):
    """Return the compiled sampler of a setting, on strata given as 0, 1, ..."""
    n_strata = int(strata.max()) + 1 if n_strata is None else n_strata
    norms2 = np.ones(len(strata)) if norms2 is None else norms2
    table = _spaces.RowSpace(mass, norms2)
    # Naming all strata first fixes their order, also of those that are absent.
    setting.set_params(by="given").strata_ = np.arange(n_strata)
    setting.prepare(table, 1, n_strata, strata)
    return setting.open(table, None, 0, generator)


def uniform_kernel(generator, n_rows, mass=None, **options):
    """Return the compiled sampler of shuffled passes."""
    rows = np.arange(n_rows, dtype=np.int32)
    if mass is not None:
        rows = rows[mass > 0]
    return _samplers.ShuffledPasses(generator, rows, mass, **options)


def linear_state(n_features, coef=None):
    """Return the state of a linear problem before the first step."""
    return {
        "coef": np.zeros(n_features) if coef is None else np.array(coef, dtype=float),
        "intercept": np.zeros(1),
        "clock": np.zeros(1),
        "squares": np.zeros(n_features + 1),
        "moves": np.zeros(n_features + 1),
        "average_coef": np.zeros(n_features),
        "average_intercept": np.zeros(1),
        "average_clock": np.zeros(1),
    }


def linear_problem(X, y, loss, state, rule, *, l1=0.0, l2=0.0, average_start=0, **rate):
    """Return the compiled linear problem of a rule for the step sizes."""
    rows = Rows(X)
    steps = linear_steps(
        rows, state, rule, l1=l1, l2=l2, average_start=average_start, **rate
    )
    return LinearProblem(rows, loss, y, rows.squared_norms(), steps)


def linear_steps(rows, state, rule, *, l1=0.0, l2=0.0, average_start=0, **rate):
    """Return the compiled steps of a rule for the step sizes."""
    return make_steps(
        rows, state, Penalty(l1, l2), Rate(rule, **rate), True, average_start
    )


def run_draws(problem, sampler, n_draws, batch_size=1, draw_counts=None):
    """Run the loop; return the number of draws done and the sums over them."""
    sums = np.zeros(len(SUMS))
    batch = np.zeros(batch_size, dtype=POINT)
    done = run(problem, sampler, n_draws, batch, sums, draw_counts)
    return done, dict(zip(SUMS, sums, strict=True))


def shuffle_twin(rng, rows):
    """Fisher and Yates' shuffle, on the random stream of the kernel."""
    rows = list(rows)
    for k in range(len(rows) - 1, 0, -1):
        other = int(rng.random() * (k + 1))
        rows[k], rows[other] = rows[other], rows[k]
    return rows


def soft(u, threshold):
    """Soft threshold, the proximal operator of the l1 norm."""
    return np.sign(u) * np.maximum(np.abs(u) - threshold, 0)


def log_loss(y, z):
    """Logistic loss and its derivative."""
    return np.logaddexp(0, -y * z), -y * expit(-y * z)


def linear_twin(X, y, draws, weights, state, rule, *, l1, l2, average_start, **rate):
    """Proximal SGD on the logistic loss, every coordinate at every step.

    Changes `state` as the compiled problem does and returns the sums of weighted losses
    and of ||d||^2.
    """
    n_features = X.shape[1]
    w = np.append(state["coef"], state["intercept"])
    squares, moves = state["squares"], state["moves"]
    cuts = np.append(np.full(n_features, l1), 0.0)
    shrink = np.append(np.full(n_features, l2), 0.0)
    kept, losses, norms2 = [], 0.0, 0.0
    for i, weight in zip(draws, weights, strict=True):
        row = np.append(X[i], 1.0)
        loss, derivative = log_loss(y[i], row @ w)
        d = weight * derivative * row
        losses, norms2 = losses + weight * loss, norms2 + d @ d
        state["clock"] += 1
        t = state["clock"][0]
        seen = d != 0
        if rule == "constant":
            rho = rate["eta0"]
        elif rule == "optimal":
            rho = 1 / (rate["alpha"] * (rate["t0"] + t - 1))
        elif rule == "invscaling":
            rho = rate["eta0"] / t ** rate["power_t"]
        elif rule == "adagrad":
            squares += d**2
            rho = rate["eta0"] / np.sqrt(np.where(squares > 0, squares, np.inf))
        else:
            squares[seen] += 0.01 * (d**2 - squares)[seen]
            if rule == "rmsprop":
                rho = rate["eta0"] / (np.sqrt(squares) + 1e-6)
            else:
                rho = rate["eta0"] * np.sqrt((moves + 1e-6) / (squares + 1e-6))
                moves[seen] += 0.01 * ((rho * d) ** 2 - moves)[seen]
            # A coordinate that has seen no gradient has no rate yet.
            rho = np.where(squares > 0, rho, 0.0)
        w = soft(w - rho * d, rho * cuts) / (1 + rho * shrink)
        if 0 < average_start <= t:
            kept.append(w)
    state["coef"][:], state["intercept"][0] = w[:-1], w[-1]
    if kept:
        mean = np.mean(kept, axis=0)
        state["average_coef"][:], state["average_intercept"][0] = mean[:-1], mean[-1]
    return losses, norms2


def minimum(X, y, loss, P, l1, l2, fit_intercept):
    """The smallest value of a linear objective, by L-BFGS-B.

    With an l1 penalty over u and v, w = u - v, both at least zero: then it is smooth.
    """
    d = X.shape[1]
    n_parts = 2 if l1 > 0 else 1

    def evaluate(parameters):
        parts, b = parameters[:-1].reshape(n_parts, d), parameters[-1]
        w = parts[0] - parts[1] if l1 > 0 else parts[0]
        losses, derivatives = loss(y, np.asarray(X @ w + b))
        gradient = X.T @ (P * derivatives) + l2 * w
        slope = [gradient + l1, l1 - gradient] if l1 > 0 else [gradient]
        value = P @ losses + l2 / 2 * w @ w + l1 * parts.sum() * (l1 > 0)
        return value, np.append(slope, fit_intercept * (P @ derivatives))

    bounds = [(0, None) if l1 > 0 else (None, None)] * (n_parts * d) + [(None, None)]
    result = minimize(
        evaluate,
        np.zeros(n_parts * d + 1),
        jac=True,
        bounds=bounds,
        method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-9},
    )
    return result.fun


def alias_twin(weights):
    """Walker's alias table of one block: acceptance and alternative of each cell."""
    accept = weights / (np.cumsum(weights)[-1] / len(weights))
    other = np.arange(len(weights))
    small, large = list(np.flatnonzero(accept < 1)), list(np.flatnonzero(accept >= 1))
    while small and large:
        k = small.pop()
        other[k] = large[-1]
        accept[large[-1]] -= 1 - accept[k]
        if accept[large[-1]] < 1:
            small.append(large.pop())
    accept[small + large] = 1
    return accept, other


class SafeTwin:
    """Draws of rows in proportion to weights: a run of rows, then a row of it."""

    def __init__(self, weights):
        self.runs = np.split(weights, range(RUN, len(weights), RUN))
        self.accept, self.other = alias_twin(np.array([sum(run) for run in self.runs]))

    def pick(self, u):
        k, rest = divmod(u * len(self.runs), 1)
        accept = self.accept[int(k)]
        if rest < accept:
            k, rest = int(k), rest / accept
        else:
            k, rest = self.other[int(k)], (rest - accept) / (1 - accept)
        ends = np.cumsum(self.runs[k])
        return int(k * RUN + np.searchsorted(ends, rest * ends[-1], side="right"))


class StrataTwin:
    """The strata sampler, rule by rule, in NumPy.

    `update`, `mixing`, `forgetting`, `eta0`, `normalize` and `start` are those of
    :class:`sklearn_awsgd.samplers.StrataSampler`.
    """

    def __init__(self, rng, setting, strata, n_strata, mass=None, norms2=None):
        n_rows = len(strata)
        self.rng, self.setting, self.strata = rng, setting, strata
        self.P = np.full(n_rows, 1 / n_rows) if mass is None else mass
        self.weighted = mass is not None
        self.N = np.bincount(strata, weights=self.P, minlength=n_strata)
        members = [
            np.flatnonzero((strata == s) & (self.P > 0)) for s in range(n_strata)
        ]
        self.members = members
        bound = np.sqrt((np.ones(n_rows) if norms2 is None else norms2) + 1)
        self.safe = bound / (self.P @ bound)
        self.safe_rows = SafeTwin(bound * (self.P if self.weighted else 1))
        self.tau = np.zeros(n_strata)
        if setting.start == "proportional":
            share = np.log(np.maximum(self.N, 0.5 / n_rows))
            self.tau = share - share[0]
        self.squares, self.counts = np.zeros(n_strata), np.zeros(n_strata)
        self.adagrad, self.scale = np.zeros(n_strata), [0.0, 0.0]

    def probabilities(self):
        """pi, from the state."""
        if self.setting.update == "moments":
            seen = self.counts > 0
            mean = 1.0
            if self.N[seen].sum() > 0:
                mean = self.N[seen] @ self.squares[seen] / self.N[seen].sum()
            pi = self.N * np.sqrt(np.where(seen, self.squares, mean) + 1e-150)
        else:
            pi = np.where(self.N > 0, np.exp(self.tau - self.tau.max()), 0)
        return pi / pi.sum()

    def densities(self):
        """q of every row."""
        mixing = self.setting.mixing
        inside = self.probabilities() / np.where(self.N > 0, self.N, 1)
        q = (1 - mixing) * inside[self.strata] + mixing * self.safe
        return np.where(self.P > 0, q, 0)

    def pick(self, accept, other):
        u = self.rng.random() * len(accept)
        return int(u) if u % 1 < accept[int(u)] else other[int(u)]

    def draw(self):
        """Draw a row."""
        mixing, u = self.setting.mixing, self.rng.random()
        if u < mixing:
            return self.safe_rows.pick(self.rng.random())
        cumulative = mixing + (1 - mixing) * np.cumsum(self.probabilities())
        rows = self.members[np.searchsorted(cumulative, u, side="right")]
        weights = self.P[rows]
        if (self.P[self.P > 0] == self.P.max()).all() or not self.weighted:
            return rows[int(self.rng.random() * len(rows))]
        return rows[self.pick(*alias_twin(weights))]

    def learn(self, rows, norms2):
        """Move tau by a batch of draws that shared one state."""
        setting, pi, q = self.setting, self.probabilities(), self.densities()
        inside = (1 - setting.mixing) * pi / np.where(self.N > 0, self.N, 1)
        if setting.update == "moments":
            for i, norm2 in zip(rows, norms2, strict=True):
                s = self.strata[i]
                share, forgetting = inside[s] / q[i], setting.forgetting
                self.counts[s] += forgetting * (1 - self.counts[s]) * share
                weight = forgetting * share / self.counts[s]
                self.squares[s] += weight * (norm2 * q[i] ** 2 - self.squares[s])
            return
        gradient = np.zeros(len(pi))
        for i, norm2 in zip(rows, norms2, strict=True):
            s = self.strata[i]
            if setting.normalize:
                norm2 = norm2 / self.scale[0] if self.scale[0] > 0 else 0.0
            # grad_tau log q_i
            gradient += norm2 * inside[s] / q[i] * (np.arange(len(pi)) == s)
            gradient -= norm2 * inside[s] / q[i] * pi
        if setting.update == "adagrad":
            self.adagrad += gradient**2
            gradient = gradient / np.sqrt(np.where(self.adagrad > 0, self.adagrad, 1))
        self.tau[1:] += setting.eta0 * gradient[1:]
        self.scale[1] += setting.forgetting * (1 - self.scale[1])
        step = setting.forgetting / self.scale[1]
        self.scale[0] += step * (np.mean(norms2) - self.scale[0])


def linear_objective(X, loss, y, mass, norms2, alpha, fit_intercept):
    """Return the LinearObjective of rows in memory."""
    sums = LinearSums(Blocks(X), loss, y, mass, norms2)
    return LinearObjective(sums, alpha, fit_intercept)
