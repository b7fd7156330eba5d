"""What a run may spend, and what is known of it: Budget, Record and Log."""

from collections import Counter
from dataclasses import astuple, dataclass, field, fields, replace
from operator import attrgetter
from threading import Event
from time import perf_counter

import numpy as np

# Records that are kept of a stream, and those of sampling, which have an array each;
# numbers in all these arrays; and how many of each problem are kept in any case. As
# between half of them and all are kept, and pickled, they must be few beside the memory
# of a stream (bench_streams.py, growth).
MOST_RECORDS, MOST_SAMPLING, SAMPLING_NUMBERS, FEWEST_EACH = 500, 100, 100_000, 20


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
    stopped : threading.Event
        Set when a callback asks for an end.
    """

    max_passes: float = np.inf
    tol: float | None = None
    deadline: float = np.inf
    cancelled: Event = field(default_factory=Event)
    stopped: Event = field(default_factory=Event)

    @property
    def is_late(self):
        """Whether the time is over."""
        return (
            perf_counter() > self.deadline
            or self.cancelled.is_set()
            or self.stopped.is_set()
        )

    def is_spent(self, n_passes):
        """Return whether that many passes are all there are, or the time is over."""
        return n_passes >= self.max_passes or self.is_late

    def after(self, n_passes):
        """Return what is left after some passes."""
        return self.with_passes(self.max_passes - n_passes)

    def with_end(self, stopped):
        """Return the same with another event that asks for an end."""
        return Budget(self.max_passes, self.tol, self.deadline, self.cancelled, stopped)

    def with_passes(self, max_passes):
        """Return the same with another number of passes."""
        return Budget(max_passes, self.tol, self.deadline, self.cancelled, self.stopped)


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
    simulated_seconds : float
        Sum of the given access costs of all rows that were drawn or passed over; NaN
        where none are given.
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
    simulated_seconds: float = np.nan

    def __reduce__(self):
        """Pickle without what is not known at the end of the fields."""
        values = astuple(self)
        while values[-1] != values[-1]:
            values = values[:-1]
        return Record, values


@dataclass
class SamplingRecord:
    """Probabilities of the strata after some draws."""

    problem: int
    draws: int
    probabilities: np.ndarray

    def __reduce__(self):
        """Pickle without the probabilities that are zero: most are."""
        shape, which = self.probabilities.shape, np.flatnonzero(self.probabilities)
        places, shares = which.tolist(), self.probabilities[which].tolist()
        return _sampling_record, (self.problem, self.draws, shape, places, shares)


def _sampling_record(problem, draws, shape, places, shares):
    probabilities = np.zeros(shape)
    probabilities[places] = shares
    return SamplingRecord(problem, draws, probabilities)


class Log:
    """What happened, record by record.

    Parameters
    ----------
    problem : int, default=0
        Number of the problem that is recorded.
    scale : float, default=1.0
        Factor that takes ``E_P[loss] + penalty`` to the objective users know.
    progress : Reporter, default=None
        Told of each pass, if there is one.
    pass_cost : float, default=nan
        What the rows of an exact pass cost; NaN where costs are not known.

    Attributes
    ----------
    records : list of Record
        In the order of time.
    sampling : list of SamplingRecord
        Likewise.
    """

    def __init__(self, problem=0, scale=1.0, progress=None, pass_cost=np.nan):
        self.problem, self.scale, self.progress = problem, scale, progress
        self.pass_cost, self.spent = pass_cost, 0.0 * pass_cost
        self.records, self.sampling, self.ends = [], [], None
        self._started = perf_counter()

    def seconds(self):
        """Return the seconds since the log was begun."""
        return perf_counter() - self._started

    def begin_pass(self):
        """Tell that a pass of draws begins."""
        if self.progress is not None:
            self.progress.begin_pass()

    def end_pass(self, objective, variance_gain):
        """Tell that a pass of draws is over."""
        if self.progress is not None:
            remark = f"variance gain {variance_gain:.3g}"
            self.progress.end_pass(objective, remark=remark)

    def add_piece(self, draws, objective, *, cost=np.nan, **statistics):
        """Record a piece of sampled draws, and what they cost where that is known."""
        self.spent += cost
        self.ends = None
        self.records.append(
            Record(
                self.problem,
                "sampling",
                draws,
                self.seconds(),
                self.scale * objective,
                simulated_seconds=self.spent,
                **statistics,
            )
        )

    def add_exact(
        self, draws, objective, duality_gap=np.nan, parameters=None, *, n_passes=1
    ):
        """Record an exact pass over the rows, or several.

        `parameters` returns where it has led, if not to those that the run works on.
        """
        self.spent += n_passes * self.pass_cost
        self.ends = None
        record = Record(
            self.problem,
            "exact",
            draws,
            self.seconds(),
            self.scale * objective,
            duality_gap=self.scale * duality_gap,
            simulated_seconds=self.spent,
        )
        self.records.append(record)
        if self.progress is not None:
            self.progress.end_pass(
                record.objective, record.duality_gap, parameters, n_passes=n_passes
            )

    def add_chunk(self, n_rows, losses, seconds, cost=np.nan, names=()):
        """Record a chunk of a stream: the loss of each problem before it was learned.

        `cost` is that of its rows. With the `names` of the problems there is a line for
        each. Records are thinned out, so that their number does not grow with the
        stream.
        """
        ends = self._ends()
        for problem, loss in enumerate(losses.tolist()):
            draws, since, spent = ends.get(problem, (0, 0.0, 0.0))
            end = draws + n_rows, since + seconds, spent + cost
            self.records.append(
                Record(problem, "stream", *end[:2], loss, simulated_seconds=end[2])
            )
            ends[problem] = end
            if names:
                name = f"{names[problem]}, " if names[problem] else ""
                print(f"{name}{end[0]} rows, {end[1]:.2f} s: loss {loss:.6g}")
        self.thin()

    def add_memory(self, problem, shares):
        """Record what the memory of a stream holds."""
        draws = self._ends()[problem][0]
        self.sampling.append(SamplingRecord(problem, draws, shares))

    def thin(self):
        """Drop records when there are too many; those left are of all of the time."""
        n_problems = len(self._ends())
        most = max(MOST_RECORDS, FEWEST_EACH * n_problems)
        if len(self.records) > most:
            self.records = thinned(self.records, most)
        if self.sampling:
            fitting = SAMPLING_NUMBERS // max(len(self.sampling[-1].probabilities), 1)
            most = max(min(MOST_SAMPLING, fitting), FEWEST_EACH * n_problems)
            if len(self.sampling) > most:
                self.sampling = thinned(self.sampling, most)

    def _ends(self):
        """Return draws, seconds and simulated ones of each problem's last record."""
        if self.ends is None:
            self.ends = {r.problem: _end(r) for r in self.records}
        return self.ends

    def add_sampling(self, draws, probabilities):
        """Record what a sampler has learned after some draws."""
        self.sampling.append(SamplingRecord(self.problem, draws, probabilities))

    def copy(self):
        """Return a copy that can be extended by itself."""
        other = type(self)(self.problem, self.scale)
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
                    draws, seconds, simulated = ends[record.problem]
                    record = replace(
                        record,
                        draws=record.draws + draws,
                        seconds=record.seconds + seconds,
                        simulated_seconds=record.simulated_seconds + simulated,
                    )
                self.records.append(record)
                after[record.problem] = _end(record)
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


def _end(record):
    return record.draws, record.seconds, record.simulated_seconds


def thinned(records, most, problem=attrgetter("problem")):
    """Return about half as many records as there may be.

    Parameters
    ----------
    records : list
        Records with `draws`, in the order of time.
    most : int
        How many there may be.
    problem : callable, default=attrgetter("problem")
        Returns the problem of a record.

    Returns
    -------
    kept : list
        Of each problem the first and the last record, and others that are evenly apart
        in draws. Dropping every other record each time would leave next to nothing of
        what is long past.
    """
    first, last, left = {}, {}, Counter(map(problem, records))
    for record in records:
        first.setdefault(problem(record), record.draws)
        last[problem(record)] = record.draws
    kept, due = [], dict(first)
    for record in records:
        k = problem(record)
        left[k] -= 1
        if record.draws >= due[k] or not left[k]:
            kept.append(record)
            due[k] = record.draws + 2 * len(first) * (last[k] - first[k]) / most
    return kept
