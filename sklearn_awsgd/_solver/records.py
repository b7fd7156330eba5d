"""What a run may spend, and what is known of it: Budget, Record and Log."""

from dataclasses import dataclass, field, fields, replace
from threading import Event
from time import perf_counter

import numpy as np

# Records that are kept of a stream; those of sampling have an array each.
MOST_RECORDS, MOST_SAMPLING = 4000, 1000


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
    cancelled : threading.Event
        Set when nobody waits for the run any more, as after Ctrl-C.
    """

    max_passes: float = np.inf
    tol: float | None = None
    deadline: float = np.inf
    cancelled: Event = field(default_factory=Event)

    @property
    def is_late(self):
        """Whether the time is over."""
        return perf_counter() > self.deadline or self.cancelled.is_set()

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
    phase : {"sampling", "exact", "stream"}
        Whether the objective is estimated from draws, without bias, computed, or the
        loss of a chunk of a stream before it was learned.
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
        self.records, self.sampling, self.ends = [], [], None
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

    def add_chunk(self, n_rows, losses, seconds, verbose=0):
        """Record a chunk of a stream: the loss of each problem before it was learned.

        Records are thinned out, so that their number does not grow with the stream.
        """
        ends = self._ends()
        for problem, loss in enumerate(losses.tolist()):
            draws, since = ends.get(problem, (0, 0.0))
            draws, since = draws + n_rows, since + seconds
            self.records.append(Record(problem, "stream", draws, since, loss))
            ends[problem] = draws, since
            if verbose:
                print(f"problem {problem}, {draws} rows: loss {loss:.6g}")
        self.thin()

    def add_memory(self, problem, shares):
        """Record what the memory of a stream holds."""
        draws = self._ends()[problem][0]
        self.sampling.append(SamplingRecord(problem, draws, shares))

    def thin(self):
        """Drop every other record of each problem when there are too many."""
        if len(self.records) > MOST_RECORDS:
            self.records = every_other(self.records)
        if len(self.sampling) > MOST_SAMPLING:
            self.sampling = every_other(self.sampling)

    def _ends(self):
        """Return draws and seconds of the last record of each problem."""
        if self.ends is None:
            self.ends = {r.problem: (r.draws, r.seconds) for r in self.records}
        return self.ends

    def add_sampling(self, draws, probabilities):
        """Record what a sampler has learned after some draws."""
        self.sampling.append(SamplingRecord(self.problem, draws, probabilities))

    def copy(self):
        """Return a copy that can be extended by itself."""
        other = type(self)(self.problem, self.scale, self.verbose)
        other.records, other.sampling = self.records.copy(), self.sampling.copy()
        other.ends = dict(self._ends())
        return other

    def extend(self, logs):
        """Append the logs of runs, each of one problem, that came after this."""
        ends = self._ends()
        for log in logs:
            after = {}
            for record in log.records:
                if record.problem in ends:
                    draws, seconds = ends[record.problem]
                    record = replace(
                        record,
                        draws=record.draws + draws,
                        seconds=record.seconds + seconds,
                    )
                self.records.append(record)
                after[record.problem] = record.draws, record.seconds
            for record in log.sampling:
                if record.problem in ends:
                    draws = ends[record.problem][0]
                    record = replace(record, draws=record.draws + draws)
                self.sampling.append(record)
            ends |= after

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


def every_other(records):
    """Return every other record of each problem, the last ones included."""
    kept, keep = [], {}
    for record in reversed(records):
        if keep.get(record.problem, True):
            kept.append(record)
        keep[record.problem] = not keep.get(record.problem, True)
    return kept[::-1]
