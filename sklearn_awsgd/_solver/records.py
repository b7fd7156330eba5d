"""What a run may spend, and what is known of it: Budget, Record and Log."""

from dataclasses import dataclass, fields, replace
from time import perf_counter

import numpy as np


@dataclass(frozen=True)
class Budget:
    """What a run may spend, and what it is to reach.

    Attributes
    ----------
    max_passes : float
        Largest number of passes.
    tol : float or None
        Tolerance of the stopping rule; None goes on until rounding decides, or until
        the passes are over.
    deadline : float
        Value of ``perf_counter`` at which to stop.
    """

    max_passes: float = np.inf
    tol: float | None = None
    deadline: float = np.inf

    @property
    def is_late(self):
        """Whether the time is over."""
        return perf_counter() > self.deadline

    def is_spent(self, n_passes):
        """Return whether that many passes are all there are, or the time is over."""
        return n_passes >= self.max_passes or self.is_late

    def after(self, n_passes):
        """Return what is left after some passes."""
        return replace(self, max_passes=self.max_passes - n_passes)


@dataclass
class Record:
    """One line of ``history_``.

    Attributes
    ----------
    problem : int
        Number of the problem.
    phase : {"sampling", "exact"}
        Whether the objective is estimated from draws, without bias, or computed.
    draws : int
        Draws so far; an exact pass counts as a draw of every row.
    seconds : float
        Since the beginning.
    objective : float
        What is minimised.
    variance_gain, effective_sample_size : float
        Of the draws since the last record.
    duality_gap : float
        Certified bound of the suboptimality.
    validation_score : float
        Score on held-out data.
    """

    problem: int
    phase: str
    draws: int
    seconds: float
    objective: float
    variance_gain: float = np.nan
    effective_sample_size: float = np.nan
    duality_gap: float = np.nan
    validation_score: float = np.nan


@dataclass
class SamplingRecord:
    """Probabilities of the strata after some draws."""

    problem: int
    draws: int
    probabilities: np.ndarray


class Log:
    """What happened, record by record.

    Parameters
    ----------
    problem : int, default=0
        Number of the problem that is recorded.
    scale : float, default=1.0
        Factor that takes ``E_P[loss] + penalty`` to the objective users know.
    verbose : int, default=0
        Whether to print a line for each pass.

    Attributes
    ----------
    records : list of Record
        In the order of time.
    sampling : list of SamplingRecord
        Likewise.
    """

    def __init__(self, problem=0, scale=1.0, verbose=0):
        self.problem, self.scale, self.verbose = problem, scale, verbose
        self.records, self.sampling = [], []
        self._started = perf_counter()

    def seconds(self):
        """Return the seconds since the log was begun."""
        return perf_counter() - self._started

    def add_piece(self, draws, objective, **statistics):
        """Record a piece of sampled draws."""
        self.records.append(
            Record(
                self.problem,
                "sampling",
                draws,
                self.seconds(),
                self.scale * objective,
                **statistics,
            )
        )

    def add_exact(self, draws, objective, duality_gap=np.nan):
        """Record an exact pass over the rows."""
        record = Record(
            self.problem,
            "exact",
            draws,
            self.seconds(),
            self.scale * objective,
            duality_gap=self.scale * duality_gap,
        )
        self.records.append(record)
        if self.verbose:
            gap = record.duality_gap
            told = "" if np.isnan(gap) else f", duality gap {gap:.3g}"
            print(
                f"problem {self.problem}, exact pass: objective "
                f"{record.objective:.10g}{told}"
            )

    def add_sampling(self, draws, probabilities):
        """Record what a sampler has learned after some draws."""
        self.sampling.append(SamplingRecord(self.problem, draws, probabilities))

    def copy(self):
        """Return a copy that can be extended by itself."""
        other = type(self)(self.problem, self.scale, self.verbose)
        other.records, other.sampling = self.records.copy(), self.sampling.copy()
        return other

    def extend(self, logs):
        """Append the logs of runs, each of one problem, that came after this."""
        ends = {record.problem: record for record in self.records}
        for log in logs:
            for record in log.records:
                end = ends.get(record.problem)
                if end is not None:
                    record = replace(
                        record,
                        draws=record.draws + end.draws,
                        seconds=record.seconds + end.seconds,
                    )
                self.records.append(record)
            for record in log.sampling:
                end = ends.get(record.problem)
                if end is not None:
                    record = replace(record, draws=record.draws + end.draws)
                self.sampling.append(record)

    def table(self):
        """Return objective and sampling statistics as a dict of arrays."""
        return {
            field.name: np.array([getattr(r, field.name) for r in self.records])
            for field in fields(Record)
        }

    def sampling_table(self):
        """Return the sampling probabilities that are not zero as a dict of arrays."""
        strata = [np.flatnonzero(r.probabilities) for r in self.sampling]
        sizes = [len(s) for s in strata]
        parts = [r.probabilities[s] for r, s in zip(self.sampling, strata, strict=True)]
        return {
            "problem": np.repeat([r.problem for r in self.sampling], sizes),
            "draws": np.repeat([r.draws for r in self.sampling], sizes),
            "stratum": np.concatenate([*strata, np.empty(0, dtype=np.intp)]),
            "probability": np.concatenate([*parts, np.empty(0)]),
        }
