"""The report of a run: figures from the times of its batches, and ratios between engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from benchmarks.peers.contract import Answer


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one engine. A batch lasts from the end of the one before to its own end.

    So services between two batches (compaction, cleaning) count, and those after the last too.

    Attributes:
        records: the records of all large batches.
        records_per_s: the rate of all large batches, from the first start to the end of the work.
        steady_records_per_s: the rate without the first batch; None if it was the only one.
        first_batch_s: the time of the first batch, in which classes are loaded and compiled.
        small_batch_s: the median time of the small batches.
    """

    records: int
    records_per_s: float
    steady_records_per_s: float | None
    first_batch_s: float
    small_batch_s: float

    @classmethod
    def of(cls, large: Answer, small: Answer) -> Figures:
        """Compute the figures of one engine."""
        first = large.batches[0]
        records = sum(batch.records for batch in large.batches)
        steady_s = large.ended_s - first.completed_s
        return cls(
            records=records,
            records_per_s=records / (large.ended_s - first.started_s),
            steady_records_per_s=(records - first.records) / steady_s
            if len(large.batches) > 1
            else None,
            first_batch_s=first.completed_s - first.started_s,
            small_batch_s=median(durations_s(small)),
        )


def durations_s(answer: Answer) -> list[float]:
    """Compute the seconds of each batch, services before it included."""
    ends = [answer.batches[0].started_s, *(batch.completed_s for batch in answer.batches)]
    return [end - start for start, end in pairwise(ends)]


def ratios(figures: Mapping[str, Figures], of: str) -> dict[str, dict[str, float | None]]:
    """Compute how many times faster ``of`` is than every other engine, for each figure."""
    ours = figures[of]
    return {
        name: {
            "records_per_s": ours.records_per_s / theirs.records_per_s,
            "steady_records_per_s": _quotient(
                ours.steady_records_per_s, theirs.steady_records_per_s
            ),
            "first_batch_s": theirs.first_batch_s / ours.first_batch_s,
            "small_batch_s": theirs.small_batch_s / ours.small_batch_s,
        }
        for name, theirs in figures.items()
        if name != of
    }


def _quotient(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or theirs is None else ours / theirs


def as_lines(figures: Mapping[str, Figures], of: str) -> list[str]:
    """Render the figures as a table."""
    lines = [f"{'':28}{'records/s':>12}{'steady':>12}{'first batch':>14}{'small batch':>14}"]
    lines += [
        f"{name:28}{each.records_per_s:12,.0f}{each.steady_records_per_s or 0:12,.0f}"
        f"{each.first_batch_s:12.2f} s{each.small_batch_s:12.2f} s"
        for name, each in figures.items()
    ]
    if of in figures:
        lines += [
            f"{of + ' / ' + name:28}{each['records_per_s'] or 0:11.2f}x"
            f"{each['steady_records_per_s'] or 0:11.2f}x"
            f"{each['first_batch_s'] or 0:13.2f}x{each['small_batch_s'] or 0:13.2f}x"
            for name, each in ratios(figures, of).items()
        ]
    return lines
