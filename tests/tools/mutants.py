"""Deliberate faults, and the tests that catch them.

Each mutant is a text that stands once in the package, what stands there instead, and
the test files that are expected to fail. The faults are made in a copy of the tree, one
at a time; kernels that are touched are compiled again. A mutant that no test catches,
or whose text is no longer found, is an error.

    python tests/tools/mutants.py              all of them
    python tests/tools/mutants.py --only loop  those whose names have a word
    python tests/tools/mutants.py --list       names, files and texts
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tree import ROOT, build, copy_of_tree, python

# Seconds that the tests of a mutant may take.
TIMEOUT = 600


@dataclass(frozen=True)
class Mutant:
    """A fault: `text` becomes `instead`, and `tests` are to fail."""

    name: str
    text: str
    instead: str
    tests: str

    def path(self):
        """Return the one file of the package that has the text."""
        sources = sorted((ROOT / "sklearn_awsgd").rglob("*.p*"))
        sources = [path for path in sources if path.suffix in (".py", ".pyx", ".pxd")]
        found = [
            (path, path.read_text().count(self.text))
            for path in sources
            if self.text in path.read_text()
        ]
        if len(found) != 1 or found[0][1] != 1:
            places = ", ".join(f"{path.name} ({n})" for path, n in found) or "no file"
            raise LookupError(
                f"mutant {self.name!r}: its text is in {places}, it has to stand once; "
                f"write it anew: {self.text!r}"
            )
        return found[0][0].relative_to(ROOT)


MUTANTS = [
    # Kernels.
    Mutant(
        "certificates: what is spared is not scaled",
        "spare += scale[j] * scale[j] * sums[j, 2]",
        "spare += scale[j] * sums[j, 2]",
        "test_newton.py",
    ),
    Mutant(
        "certificates: all of what is spared counts",
        "return s * value + s * (1 - s) * spare\n\n\n",
        "return s * value + s * spare\n\n\n",
        "test_working_set.py",
    ),
    Mutant(
        "passes: a row with a weight is forgotten",
        "n_there += weights[start + k] != 0.0",
        "n_there += weights[start + k] > 0.0",
        "test_blocks.py",
    ),
    Mutant(
        "columns: sweeps end where slopes cost far more",
        "worst * model.norm <= gain",
        "worst <= gain",
        "test_working_set.py",
    ),
    Mutant(
        "kinks: rows that were set aside are lost",
        "self.room[n_marked] = -1 - i",
        "self.room[n_marked] = -i",
        "test_kink_steps.py",
    ),
    Mutant(
        "kinks: estimates are believed where most rows have curvature",
        "LARGEST_SHARE_CURVED = 1 / 3",
        "LARGEST_SHARE_CURVED = 1.0",
        "test_kink_steps.py",
    ),
    Mutant(
        "kinks: a constant of some rows is near",
        "LEAST_SPREAD = 0.05",
        "LEAST_SPREAD = 0.0",
        "test_kink_steps.py",
    ),
    Mutant(
        "descent: old curvatures are believed without a penalty",
        "fallen = BARELY_FALLEN",
        "pass",
        "test_fuzz.py",
    ),
    Mutant(
        "classes: rounding breaks ties",
        "ROUNDING_OF_SCORES = 100",
        "ROUNDING_OF_SCORES = 0",
        "test_classifier.py",
    ),
    Mutant(
        "loop: the weight is not 1/q",
        "                weight = 1.0 / x.q\n",
        "                weight = 1.0\n",
        "test_loop.py test_samplers.py test_linear_kernels.py",
    ),
    Mutant(
        "loop: the sampler never moves",
        "            sampler.adapt()\n",
        "            pass\n",
        "test_loop.py test_samplers.py",
    ),
    Mutant(
        "rows: the last number of an odd dense row is forgotten",
        "            even += x[size - 1] * w[size - 1]\n        return even + odd",
        "            pass\n        return even + odd",
        "test_rows.py",
    ),
    Mutant(
        "rows: a sparse product reads the wrong column",
        "odd += x[k + 1] * w[j[k + 1]]",
        "odd += x[k + 1] * w[j[k]]",
        "test_rows.py test_linear_kernels.py",
    ),
    Mutant(
        "rows: index arrays are looked at with gaps",
        "begin += TOGETHER - 1",
        "begin += TOGETHER",
        "test_sparse_input.py",
    ),
    Mutant(
        "losses: the logistic curvature without its second factor",
        "return fabs(derivative) * (1.0 - fabs(derivative))\n",
        "return fabs(derivative)\n",
        "test_losses.py",
    ),
    Mutant(
        "losses: Huber's line is too high",
        "return epsilon * (fabs(r) - 0.5 * epsilon)",
        "return epsilon * fabs(r)",
        "test_losses.py test_factorization_kernels.py",
    ),
    Mutant(
        "losses: modified Huber has a slope of 2 on its line",
        "derivative[0] = -4.0 * y",
        "derivative[0] = -2.0 * y",
        "test_losses.py",
    ),
    Mutant(
        "observed entries: weights count twice",
        "root = sqrt(weights[first + e])",
        "root = weights[first + e]",
        "test_factorization_training.py",
    ),
    Mutant(
        "observed entries: the ridge does not count entries",
        "ridge = alpha * total + jitter * ridge",
        "ridge = alpha + jitter * ridge",
        "test_factorization_training.py",
    ),
    Mutant(
        "steps: the l2 penalty shrinks twice",
        "cdef double growth = 1.0 + rho * self.alpha_l2",
        "cdef double growth = 1.0 + 2.0 * rho * self.alpha_l2",
        "test_linear_kernels.py",
    ),
    Mutant(
        "steps: the soft threshold goes through zero",
        "return copysign(size, u) if size > 0.0 else 0.0",
        "return copysign(size, u)",
        "test_linear_kernels.py",
    ),
    Mutant(
        "steps: the intercept of a constant rate stands still",
        "            self.intercept[0] -= rho * g\n        if self.summing and not",
        "            pass\n        if self.summing and not",
        "test_linear_kernels.py",
    ),
    Mutant(
        "samplers: shuffled passes leave a row at its place",
        "there = size * <Py_ssize_t> (uniform(self.bits) * (k + 1))",
        "there = size * <Py_ssize_t> (uniform(self.bits) * k)",
        "test_samplers.py",
    ),
    Mutant(
        "samplers: the density of strata forgets the safe part",
        "            x.q += self.mixing * self.safe.density(x.i)\n\n"
        "    cdef void observe(self, const Point* x) noexcept nogil:\n"
        "        cdef Py_ssize_t s = x.origin\n",
        "            pass\n\n"
        "    cdef void observe(self, const Point* x) noexcept nogil:\n"
        "        cdef Py_ssize_t s = x.origin\n",
        "test_samplers.py",
    ),
    Mutant(
        "samplers: the reference stratum moves too",
        "for s in range(1, n_strata):\n            g = self.gradient[s]",
        "for s in range(0, n_strata):\n            g = self.gradient[s]",
        "test_samplers.py",
    ),
    Mutant(
        "level: rows are one level too low",
        "return (<Py_ssize_t> (bits >> 52) - 1023) >> 1",
        "return ((<Py_ssize_t> (bits >> 52) - 1023) >> 1) - 1",
        "test_level_sampler.py",
    ),
    Mutant(
        "level: a boundary is not shifted",
        "                self.start[s] += 1\n                s -= 1",
        "                s -= 1",
        "test_level_sampler.py",
    ),
    Mutant(
        "entries: the density of a product forgets the mixture",
        "x.q = self.safe_share(x.i, x.j) + self.product_share(x.i, x.j)",
        "x.q = self.product_share(x.i, x.j)",
        "test_entry_samplers.py test_factorization_kernels.py",
    ),
    Mutant(
        "two-way: the way through the column is forgotten",
        "x.q = self.safe_share(x.entry) + self.density[x.i] + self.density[n + x.j]",
        "x.q = self.safe_share(x.entry) + self.density[x.i]",
        "test_entry_samplers.py test_factorization_kernels.py",
    ),
    Mutant(
        "two-way: a move leaves draws that were looked up before",
        "        if self.n_used < 2 * POINTS_AHEAD:\n",
        "        if False:\n",
        "test_entry_samplers.py",
    ),
    Mutant(
        "newton: the diagonal of a factor is not enlarged",
        "                diagonal[i] += more\n",
        "                diagonal[i] += 0.0\n",
        "test_newton.py",
    ),
    Mutant(
        "newton: a dual point is not made feasible",
        "scale[above > below] = min(below, above) / max(below, above, 1e-300)",
        "pass",
        "test_newton.py test_objectives.py",
    ),
    Mutant(
        "factorization: the ridge of a proximal step is doubled",
        "shrink = 1.0 / (1.0 + h * self.alpha) if self.proximal",
        "shrink = 1.0 / (1.0 + 2.0 * h * self.alpha) if self.proximal",
        "test_factorization_kernels.py",
    ),
    Mutant(
        "factorization: the squared norm misses the ridge",
        "            + self.alpha * self.alpha * (norm2 + bias2)\n",
        "",
        "test_factorization_kernels.py",
    ),
    Mutant(
        "dual: the conjugate of another point",
        "conjugate[0] = derivative * here - value",
        "conjugate[0] = derivative * z - value",
        "test_dual.py",
    ),
    Mutant(
        "columns: the slope of a coordinate misses the penalty",
        "dot(&column, &self.weighed[0]) + self.l2 * self.d[j]",
        "dot(&column, &self.weighed[0])",
        "test_working_set.py",
    ),
    Mutant(
        "columns: a step of the intercept moves no row",
        "            self.weighed[i] += change * self.h[i]\n",
        "            pass\n",
        "test_working_set.py",
    ),
    Mutant(
        "softmax: probabilities miss the intercepts",
        "line[i] = z[i * n_classes + k] + b[k];",
        "line[i] = z[i * n_classes + k];",
        "test_softmax.py",
    ),
    Mutant(
        "softmax: moves of the scores keep their mean",
        "kept * p[i, k] * (moves[i, k] - mean)",
        "kept * p[i, k] * moves[i, k]",
        "test_softmax.py",
    ),
    Mutant(
        "softmax: dual steps leave the intercepts",
        "intercepts[c] += step[c] * per_intercept",
        "pass",
        "test_softmax.py",
    ),
    Mutant(
        "exponential: a term of the series is wrong",
        "1.0 / 720, 1.0 / 120",
        "1.0 / 720, 1.0 / 121",
        "test_softmax.py test_losses.py",
    ),
    # Samplers that know what draws cost.
    Mutant(
        "costs: those of the points are not set",
        "points[b].cost = self.of(&points[b])",
        "points[b].cost = 1.0",
        "test_time_aware.py test_loop.py",
    ),
    Mutant(
        "costs: strata are divided by the cost, not by its root",
        "self.probabilities[s] /= sqrt(\n",
        "self.probabilities[s] /= (\n",
        "test_time_aware.py test_samplers.py",
    ),
    Mutant(
        "costs: levels are those of the norms alone",
        "        if self.time_aware:\n            norm2 /= x.cost\n",
        "",
        "test_time_aware.py test_level_sampler.py",
    ),
    Mutant(
        "costs: rows and columns forget theirs",
        "g /= self.costs[k, 0] if self.costs[k, 1] > 0.0 else cost",
        "g /= 1.0",
        "test_time_aware.py",
    ),
    # Phases, objectives and stopping.
    Mutant(
        "weights: a row of weight zero may be drawn",
        "np.flatnonzero(self.mass > 0)",
        "np.flatnonzero(self.mass >= 0)",
        "test_samplers.py test_classifier.py",
    ),
    Mutant(
        "weighted zeros: those that are not stored have no loss",
        "total += background / 2 * (square",
        "total += 0 * (square",
        "test_factorization_ends.py",
    ),
    Mutant(
        "kinks: the conjugate has one side only",
        "return a * (a != 0.0 ? end : 0.0);",
        "return a * (a < 0.0 ? end : 0.0);",
        "test_kink_steps.py",
    ),
    Mutant(
        "kinks: smooth losses forget the multiplier",
        "s = z[i] + width * a[i]",
        "s = z[i]",
        "test_kink_steps.py",
    ),
    Mutant(
        "active rows: the lines of the others have no slope",
        "return gradients + self._slopes, sums, curvatures",
        "return gradients, sums, curvatures",
        "test_active_rows.py",
    ),
    Mutant(
        "certificates: a dual point is not scaled into the l1 ball",
        "s = min(1.0, l1 / max(largest, l1))",
        "s = 1.0",
        "test_working_set.py",
    ),
    Mutant(
        "row solver: no ridge",
        "    ridge = ridge + LEAST_RIDGE * trace\n",
        "    ridge = 0 * ridge + LEAST_RIDGE * trace\n",
        "test_factorization.py",
    ),
    Mutant(
        "entry weights: their mean is not one",
        "data.weights = used / (used.sum() / data.n_entries)",
        "data.weights = used",
        "test_factorization.py test_far_ends.py",
    ),
    Mutant(
        "checks: sparse matrices are trusted",
        '    elif X.format in ("csr", "csc", "bsr"):\n'
        "        return _check_compressed(X, name)\n",
        "",
        "test_sparse_input.py",
    ),
    # Rows elsewhere.
    Mutant(
        "sources: all blocks have as many draws",
        "self.shares = counts / data.n_entries",
        "self.shares = np.full(len(counts), 1 / len(counts))",
        "test_factorization_sources.py",
    ),
    Mutant(
        "partitions: each counts as much as the others",
        "return tuple(share * result for result in results)",
        "return tuple(results)",
        "test_partitions.py",
    ),
    Mutant(
        "partitions: the curvature of one counts as that of all",
        "return share * matrix, flops",
        "return matrix, flops",
        "test_partitions.py",
    ),
    Mutant(
        "partitions: entries of one weigh as much as those of the others",
        "column_equations(data, columns, scales).times(mean_weight)",
        "column_equations(data, columns, scales).times(1.0)",
        "test_partitioned_factorization.py",
    ),
    Mutant(
        "partitions: bold steps of columns are never taken back",
        "elif self._boldness > 1:",
        "elif self._boldness < 0:",
        "test_partitioned_factorization.py",
    ),
    Mutant(
        "partitions: columns that travel weigh alike, whatever their partition",
        "return task.target.numbers(), share * mass",
        "return task.target.numbers(), mass",
        "test_partitions.py",
    ),
    Mutant(
        "partitions: a Hessian that was brought along is used at any place",
        "brought is not None and brought[0] is v and brought[1] == (floor, n_rows)",
        "brought is not None",
        "test_partitions.py",
    ),
    Mutant(
        "partitions: steps of columns are whole Newton steps",
        "move *= np.minimum(boldness * np.log1p(reach) / reach, 1.0)[:, None]",
        "move *= 1.0",
        "test_partitioned_factorization.py",
    ),
    # Ask and tell.
    Mutant(
        "told: values come back in another order",
        "self._values[key][place] = value",
        "self._values[key][-1 - place] = value",
        "test_importance_asking.py",
    ),
    Mutant(
        "told: a row counts twice",
        "if strange or len(np.unique(rows)) < len(rows):",
        "if strange:",
        "test_importance_asking.py",
    ),
    # Intervals.
    Mutant(
        "sequences: the price of looking at all times is not paid",
        "limit = (1 + 1 / time) * (np.log1p(time) - 2 * np.log(1 - confidence))",
        "limit = -2 * np.log(1 - confidence)",
        "test_importance_asking.py test_importance_intervals.py",
    ),
    Mutant(
        "intervals: both tails at one end",
        "tail = (1 - confidence) / 2",
        "tail = 1 - confidence",
        "test_importance_intervals.py test_importance.py",
    ),
    Mutant(
        "intervals: no event is hidden",
        "event = sign * np.max(sign * (self.hidden @ v), initial=0.0)",
        "event = 0.0",
        "test_importance_intervals.py test_importance.py",
    ),
    Mutant(
        "intervals: an event of the largest value has any number of rows",
        "rows = np.minimum(weights, most[:, None])",
        "rows = weights + 0 * most[:, None]",
        "test_importance_stratified.py",
    ),
    Mutant(
        "intervals: rows drawn are not rows fewer",
        "self.leverage2 = sizes * (sizes - counts) / (n * np.maximum(n - 1, 1))",
        "self.leverage2 = sizes * sizes / (n * np.maximum(n - 1, 1))",
        "test_importance_stratified.py test_importance.py",
    ),
    Mutant(
        "rounds: a half that is too small rests, and the other waits for it",
        "self._active = (n_draws < wanted) | ~np.isfinite(wanted[::-1])",
        "self._active = n_draws < wanted",
        "test_importance.py",
    ),
    Mutant(
        "stages: scores of one label explain the squares of another",
        "return fit(2 * self._n_groups, squares, rows)",
        "return half",
        "test_importance_stratified.py",
    ),
    Mutant(
        "areas: each class counts by its rows",
        "parts.append(area + (right - area) / np.where(seen, share, 1 - share))",
        "parts.append(area + 2 * (right - area))",
        "test_importance_ranks.py",
    ),
    Mutant(
        "rounds: weights by draws alone",
        "weight = n * np.sqrt(self.n_draws) * trust",
        "weight = n * trust",
        "test_stationary_samplers.py test_importance_intervals.py test_importance.py",
    ),
    Mutant(
        "columns: the matrix of the curvature has no weights",
        "np.vstack([columns, np.ones(len(h))]) * np.sqrt(h)",
        "np.vstack([columns, np.ones(len(h))])",
        "test_working_set.py",
    ),
    Mutant(
        "rounds: the variance of a round is that of a draw",
        "second = deviation.T @ deviation / (n * (n - 1))",
        "second = deviation.T @ deviation / (n - 1)",
        "test_stationary_samplers.py test_importance_intervals.py test_importance.py",
    ),
    Mutant(
        "streams: a class that has stopped coming is not missed",
        "            if since * seen > MISSED * total:\n",
        "            if since > MISSED * total:\n",
        "test_streams.py",
    ),
    Mutant(
        "streams: evidence for a penalty is never discounted",
        "        losses += self.n / total * self.losses\n",
        "        losses += self.losses\n",
        "test_stream_contest.py",
    ),
    Mutant(
        "streams: stronger penalties grow with the rows",
        "                strength = share if factor == CONSTANT else factor * share\n",
        "                strength = share if factor == CONSTANT else factor\n",
        "test_stream_contest.py",
    ),
    Mutant(
        "streams: who follows forgets the slope of new rows",
        "        self.curvature += gram\n        self.slope += slope\n",
        "        self.curvature += gram\n",
        "test_streams.py",
    ),
    Mutant(
        "streams: rows without weight count",
        "unit = weights.sample or sample / there",
        "unit = weights.sample or sample",
        "test_streaming.py",
    ),
    Mutant(
        "streams: merged weights keep their units",
        "other.rescale(other.unit / self.unit)",
        "other.rescale(1.0)",
        "test_streaming.py",
    ),
    Mutant(
        "streams: steps begin anew after one",
        "set_values(estimator._states, name, given, name)",
        "set_values(estimator._states, name, 0 * given, name)",
        "test_streaming.py",
    ),
    Mutant(
        "rates: an adaptive one never ends",
        "if self.problem.eta0 < 1e-6:",
        "if self.problem.eta0 < 0:",
        "test_stopping.py",
    ),
    # Wide rows, and models without their intercept.
    Mutant(
        "conjugate: what is left is of the step before",
        "                self._ratio = excess / (self._least * excess + share)\n",
        "                self._ratio = length\n",
        "test_conjugate.py",
    ),
    Mutant(
        "conjugate: the mean is not taken off",
        "product -= self.total * (self.center @ p) * self.center",
        "product -= 0.0",
        "test_conjugate.py",
    ),
    Mutant(
        "wide: one-hot rows of a loss with kinks are",
        "        is_held = self.is_smooth and max(",
        "        is_held = max(",
        "test_conjugate.py",
    ),
    Mutant(
        "proximal: an intercept keeps what was taken off",
        "            step[-1] -= center @ step[:-1]\n",
        "            pass\n",
        "test_regressor.py test_every_loss.py test_fuzz.py",
    ),
    Mutant(
        "passes: losses of the upper side count twice",
        "            a0 += number_if(!is_upper, losses[k]);\n",
        "            a0 += losses[k];\n",
        "test_objectives.py test_linear_kernels.py",
    ),
]


def kill(mutant, path, folder):
    """Return which test catches a mutant, or None."""
    target = folder / path
    original = target.read_text()
    compiled = path.suffix != ".py"
    kernels = folder / "sklearn_awsgd" / "_kernels"
    made = [*kernels.glob("*.c"), *kernels.glob("*.so")] if compiled else []
    kept = {p: p.read_bytes() for p in made}
    try:
        target.write_text(original.replace(mutant.text, mutant.instead))
        if compiled:
            build(folder)
        tests = [f"tests/{name}" for name in mutant.tests.split()]
        options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider"]
        try:
            result = python(folder, "-m", "pytest", *options, *tests, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return f"no end within {TIMEOUT} s"
    finally:
        target.write_text(original)
        # In the order in which they are made, so that nothing looks out of date.
        for product, content in kept.items():
            if product.read_bytes() != content:
                product.write_bytes(content)
    if result.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", result.stdout, re.MULTILINE)
    if failed is None and result.returncode > 0:
        raise RuntimeError(f"the tests did not run:\n{result.stdout[-2000:]}")
    return failed.group(1) if failed else f"signal {-result.returncode}"


def main():
    """Run the mutants that were asked for; return the number that survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="words of the names")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    # All of them, so that a text that has gone is seen before an hour has passed.
    places = [mutant.path() for mutant in MUTANTS]
    chosen = [
        (mutant, path)
        for mutant, path in zip(MUTANTS, places, strict=True)
        if any(word in mutant.name for word in options.only)
    ]
    if options.list:
        for mutant, path in chosen:
            print(f"{mutant.name}\n    {path}: {mutant.text.strip()!r}")
        return 0
    survivors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_of_tree(folder, compiled=True)
        for mutant, path in chosen:
            begin = time.perf_counter()
            caught = kill(mutant, path, folder)
            seconds = time.perf_counter() - begin
            print(f"{mutant.name:<58} {caught or 'SURVIVES'}  ({seconds:.0f} s)")
            sys.stdout.flush()
            if caught is None:
                survivors.append(mutant.name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were caught")
    return len(survivors)


if __name__ == "__main__":
    sys.exit(main())
