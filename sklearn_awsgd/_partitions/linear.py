"""Linear models on rows in partitions: a sample of the rows first, then exact passes.

The phases are those of rows in memory. A few thousand rows, drawn by importance from
all partitions, are trained as any others; from there, exact passes over all rows go on,
whose sums come from the partitions.

Of what was tried for the first phase, on five sets in eight or four parts (CPU time and
passes, 200,000 x 50 with 1 % positives as it is and sorted by class, w8a, coco,
newsgroups, mnist), this was the best on all. AW-SGD on each partition from the same
start, with the mean of the models or the one weighted by their curvature, took up to
eight times the passes, and was worse than no sampling where classes are unequally
spread.
"""

from dataclasses import dataclass, fields, replace
from functools import partial
from uuid import uuid4

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from sklearn_awsgd._linear.blocks import stack_rows
from sklearn_awsgd._linear.curvature import MOST_PARAMETERS
from sklearn_awsgd._linear.data import LARGEST_TOTAL, Data, StreamWeights
from sklearn_awsgd._linear.fitting import train_with_callbacks
from sklearn_awsgd._linear.objectives import best_constant
from sklearn_awsgd._linear.phases.kinks import descend_over_kinks
from sklearn_awsgd._linear.streams.seed import seed_of
from sklearn_awsgd._linear.targets import RealTarget
from sklearn_awsgd._linear.tasks import LinearTask, SoftmaxTask
from sklearn_awsgd._linear.train import conclude, solve_constant, train_to_optimum
from sklearn_awsgd._partitions import rows
from sklearn_awsgd._partitions.columns import PartitionedColumnModel
from sklearn_awsgd._partitions.rows import Facts, ProblemFacts, add_up
from sklearn_awsgd._partitions.sums import (
    MOST_NUMBERS,
    PartitionedSoftmaxSums,
    PartitionedSums,
)
from sklearn_awsgd._solver.records import Log
from sklearn_awsgd._solver.runs import Outcome
from sklearn_awsgd._validation import unchanged_on_failure

# Rows drawn for the first phase: at least, for each parameter, and for each problem
# beyond the first.
FEWEST_DRAWN = 10_000
DRAWN_PER_PARAMETER = 10
DRAWN_PER_PROBLEM = 5_000
# Relative suboptimality to reach on them: their optimum is no better for all rows.
FIRST_TOL = 1e-2
# Settings that need all rows in one place, and the only value they may have here.
UNSUPPORTED = {
    "early_stopping": False,
    "average": False,
    "count_draws": False,
    "shuffle": True,
    "learning_rate": "auto",
}


def fit_partitions(estimator, run, coef_init=None, intercept_init=None):
    """Fit a linear model to the rows of all partitions.

    Parameters
    ----------
    estimator : AWSGDClassifier or AWSGDRegressor
        Changed in place, as by its own ``fit``.
    run : callable
        Calls a function on every partition: ``run(function, *arguments)`` returns
        ``function(partition, *arguments)`` of each, in their order. What it returns for
        a function with the attribute ``adds_up`` may be sums of several results.
    coef_init, intercept_init : array-like, default=None
        What to start from.

    Returns
    -------
    estimator : object
        The fitted estimator.
    """
    with unchanged_on_failure(estimator):
        check_settings(estimator, UNSUPPORTED)
        facts = merge_facts(run(rows.describe, is_classifier(estimator)))
        set_n_features(estimator, facts)
        classes = learn_classes(estimator, facts)
        problems, total = make_problems(estimator, facts, classes)
        data = draw_data(run, problems, facts, estimator.random_state)
        data.total = total
        targets = make_targets(classes, data, facts)
        estimator.sampler_ = estimator._make_sampler(None)
        estimator._stream = estimator._seeds = None
        estimator._start(data, targets)
        mean_weight = facts.largest_weight * (facts.weight / facts.n_rows)
        estimator._stream_weights = StreamWeights(
            facts.n_rows, mean_weight, mean_weight * total
        )
        estimator._start_from(coef_init, intercept_init)
        # Callbacks see the rows that were drawn.
        tasks = train_with_callbacks(
            estimator,
            data,
            targets,
            data.X,
            data.y,
            None,
            make_task=partial(make_task, run, problems, facts),
            train=train,
        )
        if estimator._learns_exactly(None):
            estimator._seeds = [seed_of_all(task) for task in tasks]
    return estimator


def check_settings(estimator, unsupported):
    """Refuse what needs all rows in one place."""
    estimator._check_params()
    for name, only in unsupported.items():
        value = getattr(estimator, name)
        if value != only or type(value) is not type(only):
            raise ValueError(
                f"{name}={value!r} needs all rows in one place; on partitions use "
                f"{name}={only!r}."
            )


def set_n_features(estimator, facts):
    """Set the number of features, unless names of columns have set it."""
    if not hasattr(estimator, "feature_names_in_"):
        empty = np.empty((0, facts.n_features))
        validate_data(estimator, empty, skip_check_array=True)


def merge_alike(parts):
    """Return what is known of the partitions with rows, which have to be alike."""
    parts = list(parts)
    present = [part for part in parts if part.n_rows]
    if not present:
        raise ValueError(
            f"Found array with 0 sample(s) in {len(parts)} partitions while a minimum "
            "of 1 is required."
        )
    first = present[0]
    for part in present:
        for name in ("n_features", "is_sparse"):
            if getattr(part, name) != getattr(first, name):
                raise ValueError(
                    f"Partition {part.number} has {name}={getattr(part, name)}, but "
                    f"partition {first.number} has {name}={getattr(first, name)}; all "
                    "have to be alike."
                )
    return present


def merge_facts(parts):
    """Return the Facts of all rows, from those of the partitions."""
    present = merge_alike(parts)
    first = present[0]
    largest = max(part.largest_weight for part in present)
    if largest == 0:
        raise ValueError(
            "sample_weight is zero for every sample; at least one row needs a "
            "positive weight."
        )
    scales = [part.largest_weight / largest for part in present]
    counted = [(p, s) for p, s in zip(present, scales, strict=True) if p.weight * s > 0]
    merged = Facts(
        number=0,
        n_rows=sum(part.n_rows for part in present),
        n_features=first.n_features,
        n_numbers=sum(part.n_numbers for part in present),
        dtype=np.result_type(*(part.dtype for part in present)),
        is_sparse=first.is_sparse,
        largest_weight=largest,
        weight=sum(part.weight * scale for part, scale in counted),
    )
    merge_targets(merged, counted)
    return merged


def merge_targets(merged, counted):
    """Add what is known of the targets; `counted` has partitions and scales."""
    first = counted[0][0]
    for part, _ in counted:
        if part.n_outputs != first.n_outputs:
            raise ValueError(
                f"Partition {part.number} has {part.n_outputs or 1} target columns, "
                f"but partition {first.number} has {first.n_outputs or 1}."
            )
    if first.moments is not None:
        weights = np.array([part.weight * scale for part, scale in counted])
        low, high, means, squares = np.array([p.moments for p, _ in counted]).T
        mean = np.average(means, weights=weights)
        square = np.average(squares + (means - mean) ** 2, weights=weights)
        merged.moments = low.min(), high.max(), mean, square
    elif first.n_outputs is not None:
        merged.n_outputs = first.n_outputs
        merged.label_weights = sum(scale * p.label_weights for p, scale in counted)
    else:
        merged.labels = np.unique(np.concatenate([p.labels for p, _ in counted]))
        merged.label_weights = np.zeros(len(merged.labels))
        for part, scale in counted:
            codes = np.searchsorted(merged.labels, part.labels)
            merged.label_weights[codes] += scale * part.label_weights


def learn_classes(estimator, facts):
    """Set the classes of a classifier; return how they become problems, or None."""
    if not is_classifier(estimator):
        return None
    estimator._multilabel = facts.n_outputs is not None
    labels = facts.labels
    if estimator._multilabel:
        labels = np.arange(facts.n_outputs)
        if estimator.class_weight is not None:
            raise ValueError(
                f"class_weight={estimator.class_weight!r} is not defined for indicator "
                "targets; use sample_weight."
            )
    estimator._set_classes(labels)
    return estimator._classes


def make_problems(estimator, facts, classes):
    """Return the problems, and what all weights are over the sample weights."""
    class_weights, total = None, 1.0
    if classes is not None and estimator.class_weight is not None:
        class_weights = classes.weights_of_rows(
            classes.values, estimator.class_weight, facts.label_weights
        )
        total = class_weights @ facts.label_weights / facts.weight
        if not 0 < total < LARGEST_TOTAL:
            raise ValueError(
                f"The weights of the classes are {total:.3g} on average, too large or "
                "too small to add up; divide all of them by the largest, and alpha by "
                "the same number."
            )
    name, loss = uuid4().hex, estimator._make_loss()
    return [
        ProblemFacts(
            name=f"{name} {number}",
            number=number,
            family=type(estimator),
            loss=estimator.loss,
            epsilon=estimator.epsilon,
            fit_intercept=estimator.fit_intercept,
            classes=classes,
            class_weights=class_weights,
            largest_weight=facts.largest_weight,
            total=total * facts.weight,
            constants=constants * estimator.fit_intercept,
        )
        for number, constants in enumerate(
            first_constants(classes, facts, class_weights, loss)
        )
    ], total


def first_constants(classes, facts, class_weights, loss):
    """Return the intercepts to start from, an array for each problem."""
    if classes is None:
        return [np.array([facts.moments[2]])]
    weights = facts.label_weights
    if class_weights is not None:
        weights = weights * class_weights
    shares = weights / (facts.weight if classes.is_multilabel else weights.sum())
    if classes.is_softmax:
        constants = np.log(np.maximum(shares, 1e-12))
        return [constants - constants.mean()]
    if classes.is_one_problem:
        shares = shares[1:]
    values, loss = np.array([-1.0, 1.0]), loss.rounded(1.0)
    return [
        np.array([best_constant(loss, values, np.array([1 - share, share]))])
        for share in shares
    ]


def draw_data(run, problems, facts, random_state):
    """Return Data of rows that are drawn by importance from all partitions."""
    n_columns = facts.n_features + 1
    n_rows = max(FEWEST_DRAWN, DRAWN_PER_PARAMETER * n_columns)
    n_rows += DRAWN_PER_PROBLEM * (len(problems) - 1)
    per_row = max(facts.n_numbers / facts.n_rows, 1.0)
    n_rows = int(min(n_rows, MOST_NUMBERS / per_row))
    means = add_up(run(rows.first_masses, problems))
    start = check_random_state(random_state).random_sample()
    drawn = run(rows.draw_rows, problems, means, n_rows, start)
    X, y, norms2, counts = zip(
        *(part for part in drawn if part is not None), strict=True
    )
    counts = np.concatenate(counts)
    return Data(
        stack_rows(X).astype(facts.dtype, copy=False),
        np.concatenate(y),
        np.concatenate(norms2),
        mass=counts / counts.sum(),
    )


def make_targets(classes, data, facts):
    """Return the targets of the drawn rows, with what is known of all."""
    if classes is not None:
        return classes.encode(data.y, data.mass)
    target = RealTarget(data.y.astype(np.float64, copy=False), data.mass)
    target.spread = float(np.sqrt(facts.moments[3])) or 1.0
    return [target]


@dataclass(kw_only=True)
class OnPartitions:
    """What tasks have in common whose rows are in partitions.

    `data` and `target` are those of the rows that were drawn.
    """

    run: object
    problem: ProblemFacts
    facts: Facts

    has_dual_steps = has_active_rows = is_at_hand = False

    @property
    def is_wide(self):
        """Whether features are too many for a matrix of their curvature."""
        return self.n_features >= MOST_PARAMETERS

    @property
    def n_samples(self):
        """Number of rows in all partitions."""
        return self.facts.n_rows

    def drawn(self):
        """Return the task of the rows that were drawn, on the same states."""
        kind = type(self).__mro__[2]
        return kind(**{field.name: getattr(self, field.name) for field in fields(kind)})

    @property
    def is_constant(self):
        """Whether all rows of all partitions have the same target."""
        if self.facts.moments is not None:
            return self.facts.moments[0] == self.facts.moments[1]
        weights = self.facts.label_weights
        if self.facts.n_outputs is None:
            return len(weights) == 1
        return weights[self.number] in (0.0, self.facts.weight)

    def set_constants(self):
        """Set the intercepts to the best constants of the rows that were drawn."""
        self.drawn().set_constants()

    def constant_loss(self):
        """Return E_P[loss] of the intercepts alone."""
        return self._mean_loss(self.parameters())

    def make_sums(self, width=0.0):
        """Return sums over the rows of all partitions."""
        drawn = self.drawn().make_sums(width)
        return PartitionedSums(self.run, self.problem, self.facts, width, drawn)

    def _mean_loss(self, V):
        return add_up(self.run(rows.mean_loss, self.problem, V.ravel()))[0]


@dataclass(kw_only=True)
class PartitionedLinearTask(OnPartitions, LinearTask):
    """A LinearTask on partitions."""

    def make_column_model(self, width):
        """Return the model on columns, kinks rounded over a width; 0 for none."""
        return PartitionedColumnModel(self, width)


@dataclass(kw_only=True)
class PartitionedSoftmaxTask(OnPartitions, SoftmaxTask):
    """A SoftmaxTask on partitions."""

    def make_sums(self):
        """Return sums over the rows of all partitions."""
        drawn = self.drawn().make_sums()
        return PartitionedSoftmaxSums(self.run, self.problem, self.facts, drawn)


def make_task(run, problems, facts, target, **settings):
    """Return the task of a target on partitions."""
    problem = problems[settings["number"]]
    kind = PartitionedLinearTask if target.n_models == 1 else PartitionedSoftmaxTask
    return kind(run=run, problem=problem, facts=facts, target=target, **settings)


def train(task, draws, budget, log, rules):
    """Train a task: the rows that were drawn first, then exact passes over all.

    Parameters and result are those of :func:`sklearn_awsgd._linear.train.train`.
    """
    outcome = Outcome()
    if not task.has("coef"):
        if task.is_constant and task.fit_intercept:
            return solve_constant(task, log)
        outcome = train_drawn(task, draws, budget, log)
    left = budget.after(outcome.n_iter)
    if left.max_passes <= 0:
        return outcome
    report = descend_over_kinks(task, outcome.n_draws, left, log)
    return conclude(task, outcome, report, task.n_samples)


def train_drawn(task, draws, budget, log):
    """Train on the rows that were drawn, which counts as one pass."""
    first = Log(log.problem, log.scale)
    tol = max(budget.tol or 0.0, FIRST_TOL)
    outcome = train_to_optimum(task.drawn(), draws, replace(budget, tol=tol), first)
    # Exact passes over the drawn rows say nothing exact of all rows.
    first.records = [r for r in first.records if r.phase == "sampling"]
    first.sampling = first.sampling if first.records else []
    log.extend([first])
    n_draws = int(task.states[0]["clock"][0])
    return replace(
        outcome, n_iter=1, n_draws=n_draws, converged=False, duality_gap=np.inf
    )


def seed_of_all(task):
    """Return what a stream begins with, as `seed_of` does, for the rows of all."""
    curvature, v, n_drawn = seed_of(task.drawn())
    return curvature * (task.n_samples / n_drawn), v, float(task.n_samples)
