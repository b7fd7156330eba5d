"""Training of the linear models: problem by problem, to the optimum or by steps."""

import warnings
from functools import partial
from time import perf_counter

import numpy as np
from joblib import Parallel, delayed
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklearn_awsgd._kernels._coordinate_rates import make_steps
from sklearn_awsgd._kernels._linear import LinearProblem
from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._kernels.settings import Penalty, Rate
from sklearn_awsgd._linear.dual import ROUNDING_ERROR, DualStepsMixin
from sklearn_awsgd._linear.finish import (
    CHEAP,
    can_finish_l1,
    finish,
    finish_l1,
)
from sklearn_awsgd._linear.objectives import (
    LinearObjective,
    best_constant,
)
from sklearn_awsgd._solver import (
    AdaptiveRate,
    History,
    Outcome,
    StopRule,
    ValidationStop,
    never,
    solve,
)
from sklearn_awsgd.samplers import ProblemView, RowTable

# Learning rates, and the eta0 each takes for eta0=None. The rates with a step size for
# each coordinate are relative to the gradients it has seen, the others are not.
SCALAR_RATES = {
    "constant": 0.01,
    "adaptive": 0.01,
    "optimal": 0.01,
    "invscaling": 0.01,
}
COORDINATE_RATES = {"adagrad": None, "rmsprop": 0.001, "adadelta": 1.0}
# Passes to spend on polishing the solution for one such width.
MOST_POLISHING = 60
# Memory of RMSProp and AdaDelta.
DECAY = 0.99
# Draws of the sampling phase of learning_rate="auto": at least, for each parameter, and
# as a share of the rows; never more than one pass.
FEWEST_DRAWS = 5_000
DRAWS_PER_PARAMETER = 30
SHARE_OF_ROWS = 1 / 16


class TrainingMixin(DualStepsMixin):
    """How the linear estimators train.

    Each problem (one-vs-rest, or real valued) gets a compiled problem and sampler and
    is handed to the solver, and then to the finish where there is one.
    """

    def _train(self, data, targets, max_iter, tol, *, streaming=False):
        """Train all problems and assign the fitted attributes.

        Parameters
        ----------
        data : Data
            Rows, weights and strata.
        targets : list of ndarray of shape (n_samples,)
            Targets of each problem.
        max_iter : int
            Largest number of passes.
        tol : float or None
            Tolerance of the stopping rule.
        streaming : bool, default=False
            Whether the rows are a chunk of a stream, of which nothing may be concluded
            beyond one pass of steps.
        """
        table = RowTable(data.mass, data.norms2, self.shuffle)
        self.sampler_._prepare(table, len(targets), self._n_groups(), data.strata)
        deadline = np.inf
        if self.max_time is not None and not streaming:
            deadline = perf_counter() + self.max_time
        counts = None
        if self.count_draws:
            counts = np.zeros((len(targets), data.X.shape[0]), dtype=np.uint32)
        finishing = (
            not streaming
            and data.validation is None
            and self._has_finish(data.X.shape[1])
        )
        train = self._train_to_optimum if finishing else self._train_by_steps

        def train_one(k, target):
            history = History()
            options = {
                "objective_scale": data.total,
                "batch_size": self.batch_size,
                "history": history,
                "label": k,
                "verbose": self.verbose,
                "deadline": deadline,
                "draw_counts": None if counts is None else counts[k],
            }
            outcome = train(data, table, k, target, max_iter, tol, options)
            return outcome, history

        results = Parallel(n_jobs=self.n_jobs, require="sharedmem")(
            delayed(train_one)(k, target) for k, target in enumerate(targets)
        )
        outcomes, histories = zip(*results, strict=True)
        self._history.extend(histories)
        converged = all(outcome.converged for outcome in outcomes)
        late = perf_counter() > deadline
        if tol is None and late and not converged:
            warnings.warn(
                f"max_time={self.max_time} seconds were over before max_iter="
                f"{max_iter} passes; raise max_time, or give tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        if tol is not None and not converged:
            name, limit, unit = "max_iter", max_iter, "passes"
            if late:
                name, limit, unit = "max_time", self.max_time, "seconds"
            remedy = "scale the features"
            if self.loss == "huber":
                remedy += (
                    f", or raise epsilon={self.epsilon}: far below the residuals it "
                    "makes the loss a line with a kink"
                )
            n_most = max(o.n_iter for o in outcomes if not o.converged)
            if late or n_most >= max_iter:
                reason = f"in {name}={limit} {unit}; raise {name} or tol, or {remedy}."
            else:
                stronger = f"raise tol or alpha={self.alpha}"
                if self.penalty is None:
                    stronger = "raise tol, or give a penalty"
                reason = (
                    f"as after {n_most} passes no step lowered the objective any more; "
                    f"{stronger}, or {remedy}."
                )
            warnings.warn(
                f"tol={tol} was not reached {reason}", ConvergenceWarning, stacklevel=3
            )
        self.n_iter_ = max(outcome.n_iter for outcome in outcomes)
        self.variance_gain_ = np.array([o.variance_gain for o in outcomes])
        self.effective_sample_size_ = np.array(
            [o.effective_sample_size for o in outcomes]
        )
        self.duality_gap_ = data.total * np.array([o.duality_gap for o in outcomes])
        self.t_ = 1.0 + max(state["clock"][0] for state in self._states)
        self._draw_counts = counts
        self._assign_coefficients(data.X.dtype)

    def _has_finish(self, n_features):
        """Return whether "auto" can go on to the optimum with exact passes."""
        return (
            self.learning_rate == "auto"
            and not self.average
            and (self.penalty in ("l2", None) or self._can_finish_l1(n_features))
        )

    def _train_by_steps(self, data, table, k, target, max_iter, tol, options):
        """Train problem k by AW-SGD."""
        self._begin_at_constants(data, k, target)
        problem, kernel = self._make_kernels(data, table, k, target)
        if data.validation is None:
            should_stop = StopRule(tol, self.n_iter_no_change)
        else:
            should_stop = ValidationStop(
                tol,
                self.n_iter_no_change,
                score=partial(self._validation_score, data.validation, k),
                parameters=[
                    state[name]
                    for state in self._problem_states(k)
                    for name in state
                    if name.endswith(("coef", "intercept"))
                ],
            )
        outcome = solve(
            problem,
            kernel,
            pass_length=len(table.rows),
            max_iter=max_iter,
            should_stop=(
                AdaptiveRate(should_stop, problem)
                if self.learning_rate == "adaptive"
                else should_stop
            ),
            **options,
        )
        if data.validation is not None:
            should_stop.restore_best()
        self.sampler_._store(k, kernel)
        return outcome

    def _begin_at_constants(self, data, k, target):
        """Let "auto" begin at the best constant, where it is known: targets may be far
        from zero, and the first rows of a stream may be of one class.
        """
        states = self._problem_states(k)
        fresh = not any(state["clock"][0] or state["coef"].any() for state in states)
        if self.learning_rate == "auto" and self.fit_intercept and fresh:
            groups = self._groups(target) if self._n_models(target) == 1 else target
            if len(np.unique(groups)) == self._n_groups():
                self._set_constants(data, target, states)

    def _train_to_optimum(self, data, table, k, target, max_iter, tol, options):
        """Train problem k by AW-SGD, then by exact passes."""
        states = self._problem_states(k)
        n_rows = len(table.rows)
        outcome, report, dual_point, width = Outcome(), None, None, 0.0
        if not any(state["coef"].any() for state in states):
            if self.fit_intercept:
                if _is_constant(data, target):
                    return self._train_constant(data, k, target, options["history"])
                self._set_constants(data, target, states)
            plan = self._plan_dual_steps(data, k, target, tol)
            if plan is not None:
                outcome, report, dual_point = self._take_dual_steps(
                    data, table, k, target, plan, max_iter, tol, options
                )
                width = plan[1]
            else:
                outcome = self._sample_first(data, table, k, target, options)
        max_iter -= outcome.n_iter
        if report is None:
            if max_iter <= 0:
                return outcome
            v = np.concatenate([np.append(s["coef"], s["intercept"]) for s in states])
            report, width = self._finish(
                data, target, v, k, outcome.n_draws, max_iter, tol, options, dual_point
            )
        for state, v in zip(states, np.split(report.point.v, len(states)), strict=True):
            state["coef"][:] = v[:-1]
            state["intercept"][0] = v[-1]
            state["clock"] += report.n_passes * n_rows
        outcome.n_iter += report.n_passes
        outcome.converged = report.converged
        # By rounding, gaps next to zero may be negative.
        outcome.duality_gap = max(report.point.gap, 0.0) + ROUNDING_ERROR * width
        return outcome

    def _train_constant(self, data, k, target, history):
        """Solve problem k where all rows have one target: nothing to sample.

        No loss is negative, so what is left of it bounds the suboptimality; a loss that
        is zero at infinity only would never fall by a last fraction.
        """
        state = self._states[k]
        loss = self._make_loss()
        rounded = loss.rounded(self._target_spread(data, target))
        constant = best_constant(rounded, target, data.mass)
        state["intercept"][0] = constant
        losses = loss(target, np.full(len(target), constant))[0]
        value = data.total * np.average(losses, weights=data.mass)
        history.add_pass(k, len(target), 0.0, value, value, self.verbose)
        state["clock"] += len(target)
        return Outcome(n_iter=1, converged=True, duality_gap=value / data.total)

    def _sample_first(self, data, table, k, target, options):
        """Start problem k with the draws of at most one pass."""
        n_rows = len(table.rows)
        n_draws = max(
            FEWEST_DRAWS,
            DRAWS_PER_PARAMETER * (data.X.shape[1] + 1),
            int(SHARE_OF_ROWS * n_rows),
        )
        problem, kernel = self._make_kernels(data, table, k, target)
        outcome = solve(
            problem,
            kernel,
            pass_length=min(n_rows, n_draws),
            max_iter=1,
            should_stop=never,
            **options,
        )
        self.sampler_._store(k, kernel)
        return outcome

    def _finish(
        self, data, target, v, k, n_draws, max_iter, tol, options, dual_point=None
    ):
        """Go from v to the optimum; return a report and the rounding of the loss.

        The kinks of a loss that has any are rounded, over widths that shrink until they
        matter less than `tol`.
        """
        loss, history = self._make_loss(), options["history"]
        tol = 0.0 if tol is None else tol
        rng = np.random.Generator(self._generators[k])
        alpha_l1 = self._alphas(data)[0]
        started = perf_counter() - history.seconds()
        n_before, best = 0, None

        def record(point, n_passes):
            # A trial step that is taken back is a pass, but no place to be.
            nonlocal best
            if best is None or point.value <= best.value:
                best = point
            history.add_pass(
                k,
                n_draws + (n_before + n_passes) * data.X.shape[0],
                perf_counter() - started,
                data.total * best.value,
                data.total * (best.gap + ROUNDING_ERROR * width),
                self.verbose,
            )

        smooth = np.isfinite(loss.smoothness)
        width = 0.0 if smooth else self._target_spread(data, target)
        # Where a loss is a line it has no curvature, which steps have to cope with.
        lines = self.loss == "huber" or not smooth
        lines &= self._can_finish_l1(data.X.shape[1])
        while True:
            objective = self._make_objective(data, target, loss.rounded(width))
            if dual_point is not None:
                objective.mix_dual(*dual_point)
            # Where passes cost nothing, rounding may decide, as for smooth losses; but
            # between kinks so sharp that it does not soon, the tolerance will do.
            cheap = not objective.sharp and objective.newton_flops() <= CHEAP
            minimize = finish
            if alpha_l1 > 0 or lines:
                minimize = partial(self._finish_l1, alpha_l1=alpha_l1)
            for target_tol, most in [(1e-14, MOST_POLISHING)] * cheap + [(tol, np.inf)]:
                report = minimize(
                    objective,
                    objective.canonical(v),
                    tol=target_tol,
                    enough=tol,
                    max_passes=min(most, max_iter - n_before),
                    rng=rng,
                    record=record,
                    deadline=options["deadline"],
                )
                n_before += report.n_passes
                report.n_passes, v = n_before, report.point.v
                over = n_before >= max_iter or perf_counter() > options["deadline"]
                if report.converged or over:
                    break
            # A power of two, so that runs which differ by rounding agree on it.
            last = 2.0 ** np.floor(
                np.log2(max(tol, 1e-9) * report.point.value / 2 + 1e-12)
            )
            if width <= last or not report.converged or n_before >= max_iter:
                report.converged &= width <= last
                return report, width
            width, best = max(width / 3, last), None

    # What follows is overridden for softmax regression, one problem of many models.

    _finish_l1 = staticmethod(finish_l1)
    _can_finish_l1 = staticmethod(can_finish_l1)

    def _n_models(self, target):
        """Return the number of linear models of a problem."""
        return 1

    def _n_groups(self):
        """Return the number of groups of rows that a sampler tells apart."""
        return 2

    def _groups(self, target):
        """Return the group of each row: the positive class and the rest."""
        return (target > 0).astype(np.int32)

    def _group_name(self, k, group):
        """Return what to call a group of the rows of problem k."""
        return "all"

    def _problem_states(self, k):
        """Return the states of the models of problem k."""
        return [self._states[k]]

    def _set_constants(self, data, target, states):
        """Start from the best constant prediction."""
        if not states[0]["intercept"].any():
            loss = self._make_loss().rounded(self._target_spread(data, target))
            constant = best_constant(loss, target, data.mass)
            states[0]["intercept"][0] = constant

    def _make_objective(self, data, target, loss):
        """Return the objective of one problem, with a smooth loss."""
        return LinearObjective(
            data.X,
            loss,
            target,
            data.mass,
            data.norms2,
            self._alphas(data)[1],
            self.fit_intercept,
            sharp=np.isfinite(self._make_loss().smoothness),
        )

    def _make_kernels(self, data, table, k, target):
        """Return the compiled problem and sampler of problem k."""
        problem = self._make_problem(data, target, self._states[k])
        view = ProblemView(groups=self._groups(target), norms2=problem.first_norms2())
        return problem, self.sampler_._kernel(k, self._generators[k], table, view)

    def _make_loss(self):
        return self._losses[self.loss](self)

    def _alphas(self, data):
        """Return the l1 and l2 strengths relative to E_P[loss]."""
        alpha = self.alpha / data.total
        l1_ratio = {"l1": 1.0, "elasticnet": self.l1_ratio, "l2": 0.0, None: 0.0}
        alpha_l1 = alpha * l1_ratio[self.penalty]
        return alpha_l1, 0.0 if self.penalty is None else alpha - alpha_l1

    def _make_problem(self, data, target, state):
        """Return the compiled problem of one target."""
        rows = Rows(data.X)
        return LinearProblem(
            rows,
            self._make_loss(),
            target,
            data.norms2,
            self._make_steps(data, rows, state),
            data.loss_scale,
        )

    def _make_steps(self, data, rows, state):
        """Return the compiled steps of one model."""
        # L. Bottou's heuristic: the first step has the size of a typical weight,
        # alpha^(-1/4).
        alpha = self.alpha / data.total
        t0 = alpha**-0.75 if alpha > 0 else 0.0
        return make_steps(
            rows,
            state,
            Penalty(*self._alphas(data)),
            Rate(self._rate, self._eta0, self.power_t, alpha, t0, DECAY),
            self.fit_intercept,
            int(self.average),
        )

    def _choose_eta0(self, data, targets):
        """Return eta0, or one from the data's own scale.

        The first step of AdaGrad moves every coordinate by eta0, so a prediction by
        eta0 ||x||_1: that is set to three times the spread of the targets, which is one
        for classes.
        """
        if self.eta0 is not None:
            return self.eta0
        if self._rate != "adagrad":
            return (SCALAR_RATES | COORDINATE_RATES)[self._rate]
        X = data.X
        present = slice(None) if data.mass is None else np.flatnonzero(data.mass)
        rows = np.arange(X.shape[0])[present]
        some = X[rows[:: max(len(rows) // 1000, 1)]]
        values = some.data if sparse.issparse(X) else some
        size = 1 + np.abs(values).sum() / some.shape[0]
        return 3 * self._target_spread(data, targets[0]) / size


def _is_constant(data, target):
    """Return whether all rows that count have the same target."""
    present = target if data.mass is None else target[data.mass > 0]
    return (present == present[0]).all()
