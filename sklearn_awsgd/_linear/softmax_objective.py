"""The objective of softmax regression."""

from functools import cached_property

import numpy as np
from scipy.special import entr

from sklearn_awsgd._kernels._newton import Cholesky, mix
from sklearn_awsgd._linear.curvature import InverseCurvature, add_penalty
from sklearn_awsgd._linear.objectives import Evaluation, Objective

# Up to this many parameters of all classes together, softmax regression has its full
# curvature; beyond, conjugate gradients with products on the sampled rows, as long as
# those of a step are no more than MOST_STEP_COST passes. Where there are few rows for
# each column a sample saves too little: then the mean curvature of all classes, which
# BFGS pairs improve at no cost. That took half the time on digits, and a fifteenth on
# coco's photographs by their rarest label, of 79 classes and 1280 columns.
MOST_SOFTMAX_PARAMETERS = 400
MOST_STEP_COST = 8
# Conjugate gradients leave this much of the gradient, in the norm of what they are
# preconditioned with, and take no more than so many products.
LEFT_OVER = 0.2
MOST_PRODUCTS = 60
# What they take as a rule, and how much faster the large products are that a
# factorisation needs than those of a pass, which have as few columns as classes.
USUAL_PRODUCTS = 20
PRODUCT_SPEED = 4
# Shares of the last dual point that are tried where there is an l1 penalty.
SHARES = np.linspace(0, 1, 9)


class SoftmaxObjective(Objective):
    """Softmax regression as a function of the flattened (n_classes, n_features + 1).

    Parameters
    ----------
    sums : SoftmaxSums
        Gives sums over the rows, wherever they are.
    alpha : float
        Strength of the l2 penalty.
    fit_intercept : bool
        Whether there are intercepts.
    alpha_l1 : float, default=0.0
        Strength of an l1 penalty, which gaps know of and nothing else.
    """

    sharp = True
    # Each row has something to say of several classes. With 12 mnist took 1.2 times the
    # time.
    rows_per_column = 6

    def __init__(self, sums, alpha, fit_intercept, alpha_l1=0.0):
        self.sums, self.alpha, self.fit_intercept = sums, alpha, fit_intercept
        self.alpha_l1, self.n_classes = alpha_l1, sums.n_classes
        self.n_samples, self.n_columns = sums.n_samples, sums.n_columns
        self.n_nonzero = sums.n_nonzero
        # The best dual point so far: see `mix_dual`. The first has q_i = e_i.
        self._dual = 0.0, np.zeros(self.n_classes * (self.n_columns - 1))

    def __call__(self, v):
        """Return the Evaluation at v, from one pass over the rows.

        Its `curvatures` are the traces of the rows' curvatures.
        """
        gradient, loss, spreads = self.sums.evaluate(v)
        V = v.reshape(gradient.shape)
        W = V[:, :-1]
        value, gap = loss, np.inf
        if self.alpha > 0:
            value += self.alpha / 2 * np.vdot(W, W)
        if self.alpha > 0 or self.alpha_l1 > 0:
            self.mix_dual(*self._dual_point(V, loss, gradient))
            gap = value + self.alpha_l1 * np.abs(W).sum() - self._bound(*self._dual)
        gradient[:, :-1] += self.alpha * W
        if not self.fit_intercept:
            gradient[:, -1] = 0
        return Evaluation(v, value, gradient.ravel(), gap, spreads)

    def _dual_point(self, V, loss, gradient):
        """Return the dual point of the probabilities p_i, as `mix_dual` takes it.

        A dual point is a distribution q_i for each row. Its pair (l, u) is the mean
        entropy and ``u = sum_i P_i (q_i - e_i) x_i``, where e_i has a one for the
        class of the row; ``f*(q_i - e_i)`` is minus the entropy, and that of p_i is
        ``f - <p_i - e_i, z_i>``. With intercepts it is feasible when each class has
        its share pi of the q_i. So some of the same distribution t is mixed in,
        ``q_i = (1 - s) p_i + s t``, with the least s that has one; as entropies are
        concave, l is at least the mixture of theirs.
        """
        value, mean = loss - np.vdot(gradient, V), gradient[:, :-1]
        if not self.fit_intercept:
            return value, mean.copy()
        sums, excess = self.sums.class_sums, gradient[:, -1]
        shares = sums[:, -1]
        has = np.maximum(shares + excess, 1e-300)
        s = min(max((excess / has).max(), 1e-300), 1.0)
        t = np.maximum(has - excess / s, 0)
        if not t.any():
            # All classes have too much: by rounding.
            return value, mean.copy()
        t /= t.sum()
        constant = t[:, None] * self._total - sums[:, :-1]
        return (1 - s) * value + s * entr(t).sum(), (1 - s) * mean + s * constant

    @cached_property
    def _total(self):
        """Sum of P x of all rows."""
        return self.sums.class_sums[:, :-1].sum(axis=0)

    def mix_dual(self, value, mean):
        """Take in a dual point, as `LinearObjective.mix_dual` does."""
        mean = mean.ravel()
        if self.alpha_l1 == 0:
            self._dual = mix(*self._dual, value, mean, self.alpha)
            return
        old_value, old_mean = self._dual
        change = mean - old_mean
        mixtures = (
            (old_value + share * (value - old_value), old_mean + share * change)
            for share in SHARES
        )
        self._dual = max(mixtures, key=lambda pair: self._bound(*pair))

    def _bound(self, value, mean):
        """Return the lower bound of the minimum that a dual point gives.

        With an l1 penalty alone no part of u may exceed it. If one does, all q_i are
        mixed with e_i, whose entropy is zero.
        """
        if self.alpha > 0:
            if self.alpha_l1 > 0:
                mean = np.maximum(np.abs(mean) - self.alpha_l1, 0)
            return value - mean @ mean / (2 * self.alpha)
        return value * min(1.0, self.alpha_l1 / max(np.abs(mean).max(), 1e-300))

    def canonical(self, v):
        """Return the parameters of the same predictions whose intercepts sum to zero.

        The gradient never points along a common shift, so it stays zero.
        """
        V = v.reshape(self.n_classes, self.n_columns).copy()
        V[:, -1] -= V[:, -1].mean()
        return V.ravel()

    def newton_flops(self):
        """Return the cost of the full curvature, infinite where it is not formed."""
        if not self.is_small:
            return np.inf
        return self.n_samples * (self.n_classes * self.n_columns) ** 2 / 2

    @property
    def is_small(self):
        """Whether the full curvature of all classes is formed."""
        return self.n_classes * self.n_columns <= MOST_SOFTMAX_PARAMETERS

    def sample_saves(self, n_rows):
        """Return whether products on a sample of so many rows are worth their cost."""
        return USUAL_PRODUCTS * n_rows <= MOST_STEP_COST * self.n_samples

    def inverse_curvature(self, here, n_rows, rng, floor):
        if self.is_wide:
            diagonal = self.sums.hessian_diagonal(here.v, floor)
            for line in diagonal:
                add_penalty(line, self.alpha, self.fit_intercept)
            return InverseCurvature.from_diagonal(diagonal.ravel())
        rough = not self.is_small and not self.sample_saves(n_rows)
        n_rows = self.n_samples if rough else n_rows
        sample = self.sums.sample(here.v, here.curvatures, n_rows, rng)
        if self.is_small:
            return InverseCurvature.from_hessian(self._hessian(sample, floor), cost=0.0)
        if rough:
            solve = MeanCurvature(sample, self.alpha, self.fit_intercept, floor)
            return InverseCurvature(solve, np.inf, sharp=False, rough=True)
        solve = ConjugateGradients(sample, self.alpha, self.fit_intercept, floor)
        per_pass = 4 * self.n_nonzero * self.n_classes
        flops = len(sample.p) * self.n_columns**2 + self.n_columns**3 / 3
        step_cost = USUAL_PRODUCTS * len(sample.p) / self.n_samples
        if sample.p.dtype == np.float32:
            step_cost /= 2
        return InverseCurvature(
            solve, flops / PRODUCT_SPEED / per_pass, sharp=False, step_cost=step_cost
        )

    def _hessian(self, sample, floor):
        """Return the full curvature of a sample, with the penalty."""
        p = self.n_columns
        hessian = sample.hessian(floor)
        if not self.fit_intercept:
            hessian[p - 1 :: p] = 0
            hessian[:, p - 1 :: p] = 0
        diagonal = np.einsum("ii->i", hessian).reshape(self.n_classes, p)
        for line in diagonal:
            add_penalty(line, self.alpha, self.fit_intercept)
        # A common shift of all intercepts changes nothing; this pins it.
        hessian[p - 1 :: p, p - 1 :: p] += diagonal[:, -1].mean() / self.n_classes
        return hessian


class MeanCurvature:
    """Solves for the mean of the classes' Hessians: one factorisation serves all.

    Parameters
    ----------
    sample : CurvatureSample
        Rows that carry the curvature.
    alpha, fit_intercept
        Of the objective.
    floor : float
        As for :meth:`Objective.inverse_curvature`.
    """

    def __init__(self, sample, alpha, fit_intercept, floor):
        mean = sample.mean_hessian(floor)
        if not fit_intercept:
            mean[-1] = mean[:, -1] = 0
        add_penalty(np.einsum("ii->i", mean), alpha, fit_intercept)
        self._solve, self._n_columns = Cholesky(mean), len(mean)

    def __call__(self, gradient):
        """Return the inverse applied to a gradient, of all classes in any shape."""
        lines = gradient.reshape(-1, self._n_columns)
        return self._solve(lines.T).T.reshape(gradient.shape)


class ConjugateGradients:
    """Solves for the curvature of a CurvatureSample, with an l2 penalty.

    The parameters are those of :class:`MeanCurvature`, which preconditions.
    """

    def __init__(self, sample, alpha, fit_intercept, floor):
        self.sample, self.alpha, self.floor = sample, alpha, floor
        self.fit_intercept = fit_intercept
        self._precondition = MeanCurvature(sample, alpha, fit_intercept, floor)

    def _product(self, D):
        product = self.sample.product(D, self.floor)
        product[:, :-1] += self.alpha * D[:, :-1]
        if not self.fit_intercept:
            product[:, -1] = 0
        return product

    def __call__(self, gradient):
        """Return the inverse applied to a gradient, nearly."""
        left = gradient.reshape(self.sample.p.shape[1], -1).copy()
        solution = np.zeros_like(left)
        direction = solved = self._precondition(left)
        size = first = np.vdot(left, solved)
        for _ in range(MOST_PRODUCTS):
            product = self._product(direction)
            curvature = np.vdot(direction, product)
            if not curvature > 0:
                # Rounding, or nothing left.
                break
            length = size / curvature
            solution += length * direction
            left -= length * product
            solved = self._precondition(left)
            new_size = np.vdot(left, solved)
            if not new_size > LEFT_OVER**2 * first:
                break
            direction = solved + new_size / size * direction
            size = new_size
        if not solution.any():
            solution = self._precondition(gradient.reshape(solution.shape))
        return solution.ravel()
