# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Samplers of rows: the shuffled pass and the learned strata."""

import numpy as np

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport exp, sqrt

TINY_MOMENT = 1e-150

cdef enum:
    # Draws that share one state where the state hardly moves from draw to draw.
    STEADY_DRAWS = 16

UPDATES = {"moments": MOMENTS, "sgd": SGD, "adagrad": ADAGRAD}


cdef class RandomSampler(Sampler):
    """A sampler with a random stream.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Its state moves with every draw.
    """

    def __init__(self, generator):
        self.generator = generator
        self.bits = <bitgen_t*> PyCapsule_GetPointer(
            generator.capsule, "BitGenerator"
        )


cdef class ShuffledPasses(RandomSampler):
    """Passes over the rows: every row once, then all again in a new order.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    rows : ndarray of shape (n_rows,) and dtype int32
        Indices of the rows with positive mass; shuffled in place.
    mass : ndarray of shape (n_samples,), default=None
        P of each row, summing to one; None when all are equal.
    shuffle : bool, default=True
        Whether each pass has a new order; else all have that of `rows`.
    block_size : int, default=1
        Number of rows that stay next to each other in every order: a pass over blocks
        does not wait for memory.
    """

    def __init__(
        self, generator, int[::1] rows, const double[::1] mass=None, bint shuffle=True,
        Py_ssize_t block_size=1,
    ):
        super().__init__(generator)
        self.order = rows
        self.mass = mass
        self.shuffle = shuffle
        self.n_rows = rows.shape[0]
        self.block_size = block_size
        self.position = self.n_rows
        self.patience = STEADY_DRAWS

    cdef void draw(self, Point* x) noexcept nogil:
        if self.position == self.n_rows:
            if self.shuffle:
                self.shuffle_blocks()
            self.position = 0
        x.i = self.order[self.position]
        x.origin = 0
        # Q is 1 / n_rows, so dQ/dP = 1 / (n_rows P).
        x.q = 1.0 if self.mass is None else 1.0 / (self.n_rows * self.mass[x.i])
        self.position += 1

    cdef void shuffle_blocks(self) noexcept nogil:
        """Bring the blocks into a random order; what is left of a block stays last."""
        cdef Py_ssize_t k, b, here, there, size = self.block_size
        for k in range(self.n_rows // size - 1, 0, -1):
            here = k * size
            there = size * <Py_ssize_t> (uniform(self.bits) * (k + 1))
            for b in range(size):
                self.order[here + b], self.order[there + b] = (
                    self.order[there + b], self.order[here + b]
                )

    def densities(self):
        """Return q of every row; of those that cannot be drawn, zero."""
        if self.mass is None:
            return np.ones(self.n_rows)
        mass = np.asarray(self.mass)
        result = np.zeros(mass.shape[0])
        result[self.order] = 1 / (self.n_rows * mass[self.order])
        return result


cdef class StrataDraws(RandomSampler):
    """Strata with learned probabilities, mixed with a safe distribution.

    A stratum s with P-mass N_s is drawn with probability pi_s, a row inside it in
    proportion to P. With probability `mixing` the row comes from the safe distribution
    instead. The density is that of the whole mixture,
    ``q_i = (1 - mixing) pi_s / N_s + mixing safe_density_i``.

    Parameters
    ----------
    generator : numpy.random.BitGenerator
        Random stream.
    layout : StrataLayout
        Which rows are in which stratum, and the alias tables; read only.
    state : dict of ndarray
        `tau`, `squares`, `counts`, `adagrad`, `costs` and `cost_counts` of shape
        (n_strata,) and `scale` of shape (4,), changed in place: they carry what was
        learned to the next call.
    setting : StrataSampler
        Its `update`, `mixing`, `forgetting`, `eta0`, `normalize` and `time_aware` are
        used.
    """

    def __init__(self, generator, layout, state, setting):
        super().__init__(generator)
        n_strata = layout.mass.shape[0]
        self.order = layout.order
        self.strata = layout.strata
        self.start = layout.start
        self.mass = layout.mass
        self.within = layout.within
        self.safe = layout.safe
        self.update = UPDATES[setting.update]
        self.mixing = setting.mixing
        self.forgetting = setting.forgetting
        self.eta0 = setting.eta0
        self.normalize = setting.normalize
        self.time_aware = setting.time_aware
        self.costs = state["costs"]
        self.cost_counts = state["cost_counts"]
        self.tau = state["tau"]
        self.squares = state["squares"]
        self.counts = state["counts"]
        self.adagrad = state["adagrad"]
        self.scale = state["scale"]
        self.probabilities = np.empty(n_strata)
        self.cumulative = np.empty(n_strata)
        self.density = np.empty(n_strata)
        self.gradient = np.zeros(n_strata)
        if self.update == MOMENTS:
            # `adapt` is O(n_strata), so not at each draw.
            self.patience = max(n_strata, STEADY_DRAWS)
        self.refresh()

    cdef void draw(self, Point* x) noexcept nogil:
        cdef double u = uniform(self.bits)
        cdef Py_ssize_t s = 0, k
        if u < self.mixing:
            k = self.safe.pick_run(uniform(self.bits), &u)
            x.i = self.safe.pick_row(k, u)
            s = self.strata[x.i]
        else:
            s = first_above(&self.cumulative[0], self.cumulative.shape[0], u)
            if self.within is None:
                k = self.start[s + 1] - self.start[s]
                k = self.start[s] + <Py_ssize_t> (uniform(self.bits) * k)
            else:
                k = self.within.pick(
                    uniform(self.bits), self.start[s], self.start[s + 1]
                )
            x.i = self.order[k]
        x.origin = s
        x.q = self.density[s]
        if self.mixing > 0.0:
            x.q += self.mixing * self.safe.density(x.i)

    cdef void observe(self, const Point* x) noexcept nogil:
        cdef Py_ssize_t s = x.origin
        # Probability that this row came from the learned part. Weighted by it, draws
        # of the mixture have the law of the learned part: P inside the stratum.
        cdef double share = self.density[s] / x.q
        cdef double weight
        if self.update == MOMENTS:
            update_mean(
                &self.squares[s], &self.counts[s], self.forgetting, share,
                x.norm2 * x.q * x.q,
            )
            if self.time_aware:
                update_mean(
                    &self.costs[s], &self.cost_counts[s], self.forgetting, share, x.cost
                )
        else:
            # grad_tau log q = share * (e_s - pi); the sum over the batch of the
            # dense part is applied once, in `adapt`.
            weight = x.norm2
            if self.time_aware:
                weight = step_weight(x.norm2, x.cost, self.scale, self.normalize)
                self.batch_cost += x.cost
            weight *= share
            if self.normalize:
                # The running mean is that of the batches before this one, so that the
                # step has no units; before the first batch tau does not move.
                weight = weight / self.scale[0] if self.scale[0] > 0.0 else 0.0
            self.batch_norm2 += x.norm2
            self.batch_size += 1
            self.gradient[s] += weight
            self.gradient_total += weight

    cdef void adapt(self) noexcept nogil:
        cdef Py_ssize_t s, n_strata = self.mass.shape[0]
        cdef double g
        if self.update == MOMENTS:
            self.refresh()
            return
        # Stratum 0 is the reference of the softmax, tau_0 = 0: with two strata tau_1 is
        # the log-odds of the paper's section 5.
        for s in range(1, n_strata):
            g = self.gradient[s] - self.gradient_total * self.probabilities[s]
            if self.update == ADAGRAD:
                self.adagrad[s] += g * g
                if self.adagrad[s] > 0.0:
                    g /= sqrt(self.adagrad[s])
            self.tau[s] += self.eta0 * g
            self.gradient[s] = 0.0
        self.gradient[0] = 0.0
        self.gradient_total = 0.0
        # The running mean of ||d||^2, with the weight it has gathered so far.
        update_mean(
            &self.scale[0], &self.scale[1], self.forgetting, 1.0,
            self.batch_norm2 / self.batch_size,
        )
        if self.time_aware:
            update_mean(
                &self.scale[2], &self.scale[3], self.forgetting, 1.0,
                self.batch_cost / self.batch_size,
            )
        self.batch_norm2 = self.batch_cost = 0.0
        self.batch_size = 0
        self.refresh()

    cdef void refresh(self) noexcept nogil:
        """Derive probabilities and densities from the state.

        Strata without mass have probability zero; what is known of them stays.
        """
        cdef Py_ssize_t s, last = 0, n_strata = self.mass.shape[0]
        cdef double total = 0.0, largest = -1e300, seen = 0.0, seen_mass = 0.0
        cdef double cost = 0.0, cost_mass = 0.0
        if self.update == MOMENTS:
            # The prior of a stratum not seen yet is the mean of those seen.
            for s in range(n_strata):
                if self.counts[s] > 0.0:
                    seen += self.mass[s] * self.squares[s]
                    seen_mass += self.mass[s]
                if self.cost_counts[s] > 0.0:
                    cost += self.mass[s] * self.costs[s]
                    cost_mass += self.mass[s]
            cost = cost / cost_mass if cost_mass > 0.0 else 1.0
            seen = seen / seen_mass if seen_mass > 0.0 else 1.0
            for s in range(n_strata):
                self.probabilities[s] = self.mass[s] * sqrt(
                    TINY_MOMENT + (self.squares[s] if self.counts[s] > 0.0 else seen)
                )
                if self.time_aware:
                    self.probabilities[s] /= sqrt(
                        self.costs[s] if self.cost_counts[s] > 0.0 else cost
                    )
                total += self.probabilities[s]
        else:
            for s in range(n_strata):
                if self.mass[s] > 0.0 and self.tau[s] > largest:
                    largest = self.tau[s]
            for s in range(n_strata):
                self.probabilities[s] = 0.0
                if self.mass[s] > 0.0:
                    self.probabilities[s] = exp(self.tau[s] - largest)
                total += self.probabilities[s]
        seen = 0.0
        for s in range(n_strata):
            self.probabilities[s] /= total
            seen += self.probabilities[s]
            self.cumulative[s] = self.mixing + (1.0 - self.mixing) * seen
            self.density[s] = 0.0
            if self.mass[s] > 0.0:
                self.density[s] = (
                    (1.0 - self.mixing) * self.probabilities[s] / self.mass[s]
                )
                if self.probabilities[s] > 0.0:
                    last = s
        # Rounding must not leave a draw behind the last stratum.
        for s in range(last, n_strata):
            self.cumulative[s] = 2.0

    def stratum_probabilities(self):
        """Return pi, the probabilities of the strata in the learned part."""
        return np.array(self.probabilities)

    def densities(self):
        """Return q of every row; of those that cannot be drawn, zero."""
        strata = np.asarray(self.strata)
        result = np.asarray(self.density)[strata]
        if self.mixing > 0:
            result = result + self.mixing * self.safe.densities()
        result[strata < 0] = 0
        return result
