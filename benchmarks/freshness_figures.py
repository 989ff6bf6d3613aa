"""The report of the freshness benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Sent(NamedTuple):
    """A record: when it was sent, and when its commit was visible (seconds since the epoch)."""

    at_s: float
    visible_at_s: float


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of the freshness of some records, in seconds."""

    p50_s: float
    p99_s: float
    max_s: float

    @classmethod
    def of(cls, records: Sequence[Sent]) -> Spread:
        """Compute the distribution of at least one record."""
        ages_s = np.array([record.visible_at_s - record.at_s for record in records])
        p50_s, p99_s, max_s = np.percentile(ages_s, [50, 99, 100])
        return cls(float(p50_s), float(p99_s), float(max_s))


@dataclass(frozen=True, slots=True)
class Freshness:
    """The figures of one engine.

    Attributes:
        whole: the freshness of all records.
        by_minute: the freshness of the records that were sent in each minute.
        cpu_busy_s: CPU seconds of the engine in a minute with records.
        cpu_idle_s: CPU seconds of the engine in a minute without records.
        commits: the number of commits that contain the records.
    """

    whole: Spread
    by_minute: tuple[Spread, ...]
    cpu_busy_s: float
    cpu_idle_s: float
    commits: int

    @classmethod
    def of(
        cls, records: Sequence[Sent], began_s: float, cpu_busy_s: float, cpu_idle_s: float
    ) -> Freshness:
        """Compute the figures.

        Args:
            records: the measured records, at least one, in the order in which they were sent.
            began_s: when the first minute began, in seconds since the epoch.
            cpu_busy_s: see the attribute.
            cpu_idle_s: see the attribute.
        """
        minutes: dict[int, list[Sent]] = {}
        for record in records:
            minutes.setdefault(int((record.at_s - began_s) // 60), []).append(record)
        return cls(
            Spread.of(records),
            tuple(Spread.of(minutes[minute]) for minute in sorted(minutes)),
            cpu_busy_s,
            cpu_idle_s,
            len({record.visible_at_s for record in records}),
        )


def as_lines(figures: Mapping[str, Freshness]) -> Iterator[str]:
    """Yield the lines of the report."""
    heads = ("p50", "p99", "max", "CPU/min", "idle", "commits")
    yield f"{'':20}" + "".join(f"{head:>10}" for head in heads)
    for name, each in figures.items():
        spread = each.whole
        times = (spread.p50_s, spread.p99_s, spread.max_s, each.cpu_busy_s, each.cpu_idle_s)
        yield f"{name:20}" + "".join(f"{value:>8.2f} s" for value in times) + f"{each.commits:>10}"
    for name, each in figures.items():
        yield f"{name}, p50 / p99 of each minute"
        pairs = (f"{one.p50_s:.2f} / {one.p99_s:.2f} s" for one in each.by_minute)
        yield "  " + ", ".join(pairs)
