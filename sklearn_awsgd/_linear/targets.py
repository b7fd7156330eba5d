"""From classes and indicators to targets, and softmax regression as one problem."""

import numpy as np
from scipy import sparse
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from sklearn_awsgd._kernels._rows import Rows
from sklearn_awsgd._kernels._softmax import SoftmaxProblem
from sklearn_awsgd._linear.finish_softmax import finish_softmax_l1
from sklearn_awsgd._linear.objectives import MultinomialObjective
from sklearn_awsgd.samplers import ProblemView


class ClassTargetsMixin:
    """How the classifier turns its targets into problems, and names their parts."""

    def _check_labels(self, y):
        """Return y as a vector of labels or as a dense indicator matrix."""
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self._multilabel = y.ndim == 2
        if self._multilabel:
            if type_of_target(y, input_name="y") != "multilabel-indicator":
                raise ValueError(
                    f"y of shape {y.shape} must be an indicator matrix of zeros and "
                    "ones; for several multiclass outputs use MultiOutputClassifier."
                )
            if self.class_weight is not None:
                raise ValueError(
                    f"class_weight={self.class_weight!r} is not defined for indicator "
                    "targets; use sample_weight."
                )
            y = y.toarray() if sparse.issparse(y) else y
            if not np.isin(y, (0, 1)).all():
                raise ValueError(
                    "y has several columns with values other than 0 and 1; code each "
                    "label as 1 where it applies and 0 elsewhere, for example with "
                    "MultiLabelBinarizer."
                )
        return y

    def _check_classes(self, classes, y, first):
        """Check the classes of a stream, and keep them the first time."""
        if classes is not None:
            classes = np.unique(classes)
            if not first and not np.array_equal(classes, self.classes_):
                raise ValueError(
                    f"classes={classes!r} is not the same as on last call to "
                    f"partial_fit, was: {self.classes_!r}."
                )
        if first:
            if len(classes) < 2 and not self._multilabel:
                raise ValueError(
                    "The number of classes has to be greater than one; got "
                    f"{len(classes)} class."
                )
            self.classes_ = classes
        if not self._multilabel:
            unknown = np.setdiff1d(y, self.classes_)
            if len(unknown):
                raise ValueError(
                    f"y has labels {unknown!r} that are not in classes="
                    f"{self.classes_!r}; name all classes at the first partial_fit."
                )

    def _encode(self, data, y, sample_weight):
        """Return the targets of all problems; the weights go to `data`."""
        if self._multilabel:
            data.set_weights(sample_weight, None)
            return [np.where(column > 0, 1.0, -1.0) for column in y.T]
        codes = np.searchsorted(self.classes_, y)
        data.set_weights(sample_weight, self._class_weights(codes, sample_weight))
        if self._is_softmax:
            return [codes.astype(np.int32)]
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [np.where(codes == k, 1.0, -1.0) for k in positive]

    def _class_weights(self, codes, sample_weight):
        """Return the class weight of each row, or None."""
        if self.class_weight is None:
            return None
        if self.class_weight == "balanced" and sample_weight is not None:
            counts = np.bincount(
                codes, weights=sample_weight, minlength=len(self.classes_)
            )
            weights = counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1e-300))
            weights[counts == 0] = 0
        else:
            weights = compute_class_weight(
                self.class_weight, classes=self.classes_, y=self.classes_[codes]
            )
        if not (np.isfinite(weights).all() and weights.min() >= 0):
            raise ValueError(
                f"class_weight={self.class_weight!r} has a value that is negative or "
                "not finite; a weight is how often a row of the class counts."
            )
        weights = weights[codes]
        if not (weights if sample_weight is None else weights * sample_weight).any():
            raise ValueError(
                f"class_weight={self.class_weight!r} leaves no row with a positive "
                "weight."
            )
        return weights

    @property
    def _is_softmax(self):
        return (
            self.loss == "multinomial"
            and not self._multilabel
            and len(self.classes_) > 2
        )

    @property
    def _finish_l1(self):
        return finish_softmax_l1 if self._is_softmax else super()._finish_l1

    def _can_finish_l1(self, n_features):
        return self._is_softmax or super()._can_finish_l1(n_features)

    def _n_models(self, target):
        return len(self.classes_) if self._is_softmax else 1

    def _n_groups(self):
        return len(self.classes_) if self._is_softmax else 2

    def _group_name(self, k, group):
        if not self._multilabel and (self._is_softmax or len(self.classes_) == 2):
            return self.classes_[group]
        return self.classes_[k] if group == 1 else "rest"

    def _problem_states(self, k):
        return self._states if self._is_softmax else super()._problem_states(k)

    def _target_spread(self, data, target):
        return 1.0

    def _stratify(self, y):
        """Return what to hold out in proportion: classes that have enough rows."""
        if self._multilabel:
            return None
        _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        share = min(self.validation_fraction, 1 - self.validation_fraction)
        too_few = counts * share < 1
        return np.where(too_few[codes], counts.argmax(), codes)

    def _keep_classes(self, y, train, held):
        """Move rows from the held-out ones such that no class is missing."""
        if self._multilabel:
            return train, held
        missing = np.setdiff1d(y[held], y[train])
        moved = [held[np.argmax(y[held] == label)] for label in missing]
        return np.append(train, np.intp(moved)), np.setdiff1d(held, moved)

    def _validation_target(self, model, y, k):
        """Return the labels that problem k is scored on."""
        if self._multilabel:
            y = y.toarray() if sparse.issparse(y) else np.asarray(y)
            model._multilabel, model.classes_ = False, np.array([0, 1])
            return y[:, k]
        if self._is_softmax or len(self.classes_) == 2:
            return y
        model.classes_ = np.array([0, 1])
        return (np.asarray(y) == self.classes_[k]).astype(int)

    def _set_constants(self, data, target, states):
        if not self._is_softmax:
            super()._set_constants(data, target, states)
        elif not any(state["intercept"].any() for state in states):
            share = np.bincount(target, weights=data.mass, minlength=len(states))
            constants = np.log(np.maximum(share / share.sum(), 1e-12))
            for state, constant in zip(states, constants, strict=True):
                state["intercept"][0] = constant - constants.mean()

    def _make_objective(self, data, target, loss):
        if not self._is_softmax:
            return super()._make_objective(data, target, loss)
        return MultinomialObjective(
            data.X,
            target,
            len(self.classes_),
            data.mass,
            data.norms2,
            self._alphas(data)[1],
            self.fit_intercept,
        )

    def _make_kernels(self, data, table, k, target):
        if not self._is_softmax:
            return super()._make_kernels(data, table, k, target)
        rows = Rows(data.X)
        steps = [self._make_steps(data, rows, state) for state in self._states]
        problem = SoftmaxProblem(rows, target, data.norms2, steps, data.loss_scale)
        view = ProblemView(target, problem.first_norms2())
        return problem, self.sampler_._kernel(k, self._generators[k], table, view)
