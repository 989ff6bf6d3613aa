"""The figures of one run of an engine, and of its repeats: medians, their spread, and ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from benchmarks.peers.contract import Answer


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run. A batch lasts from the end of the one before to its own end.

    So services between two batches (compaction, cleaning) count, and those after the last too.

    Attributes:
        records: the records of all batches.
        records_per_s: the rate from the start of the first batch to the end of the last service.
        steady_records_per_s: the rate without the first batch; None if it was the only one.
        first_batch_s: the time of the first batch, in which classes are loaded and compiled.
        batch_s: the median time of all batches.
    """

    records: int
    records_per_s: float
    steady_records_per_s: float | None
    first_batch_s: float
    batch_s: float

    @classmethod
    def of(cls, answer: Answer) -> Figures:
        """Compute the figures of one run."""
        first = answer.batches[0]
        records = sum(batch.records for batch in answer.batches)
        steady_s = answer.ended_s - first.completed_s
        return cls(
            records=records,
            records_per_s=records / (answer.ended_s - first.started_s),
            steady_records_per_s=(records - first.records) / steady_s
            if len(answer.batches) > 1
            else None,
            first_batch_s=first.completed_s - first.started_s,
            batch_s=median(durations_s(answer)),
        )


def durations_s(answer: Answer) -> list[float]:
    """Return the seconds of each batch, with the table services that ran before it."""
    ends = [answer.batches[0].started_s, *(batch.completed_s for batch in answer.batches)]
    return [end - start for start, end in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some repeats, with the smallest and the largest value."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Compute the spread of at least one value."""
        return cls(median(values), min(values), max(values))


#: The figures of a report, and whether a larger value is better.
FIGURES = {
    "records_per_s": True,
    "steady_records_per_s": True,
    "first_batch_s": False,
    "batch_s": False,
}


def spreads(runs: Sequence[Figures]) -> dict[str, Spread]:
    """Compute the spread of each figure that every run has."""
    values = {name: [getattr(run, name) for run in runs] for name in FIGURES}
    return {name: Spread.of(each) for name, each in values.items() if None not in each}


def ratios(runs: Mapping[str, Sequence[Figures]], of: str, figure: str) -> dict[str, Spread]:
    """Compute how many times faster ``of`` is than each other engine, from each pair of repeats."""
    is_rate = FIGURES[figure]
    ratios_of = {}
    for name, theirs in runs.items():
        pairs = [
            (getattr(our, figure), getattr(their, figure))
            for our, their in zip(runs.get(of, ()), theirs, strict=False)
        ]
        quotients = [a / b if is_rate else b / a for a, b in pairs if a and b]
        if name != of and quotients:
            ratios_of[name] = Spread.of(quotients)
    return ratios_of
