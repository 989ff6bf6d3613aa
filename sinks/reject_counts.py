"""Counts the rejects of a batch by the code of their reason, for reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sinks.dead_letters import first_reject


@dataclass(frozen=True, slots=True)
class RejectCount:
    """The rejects of a batch whose reasons have the same code.

    Attributes:
        code: the code of the reasons (``transforms.reject_reason.RejectCode``).
        count: the number of records.
        first: the origin and the reason of the first of these records.
    """

    code: str
    count: int
    first: str


def count_by_code(changes: pa.Table) -> tuple[RejectCount, ...]:
    """Count the dead letters among the changes of a table; empty if they are rows of a pipeline."""
    if first_reject(changes) is None:
        return ()
    codes = changes.column("code")
    return tuple(
        RejectCount(
            one["values"] or "",
            one["counts"],
            first_reject(changes.slice(pc.index(codes, one["values"]).as_py())) or "",
        )
        for one in pc.value_counts(codes).to_pylist()
    )


def merge_counts(counts: Iterable[RejectCount]) -> tuple[RejectCount, ...]:
    """Add up the counts of each code; the first records are those of the earlier counts."""
    merged: dict[str, RejectCount] = {}
    for one in counts:
        known = merged.get(one.code)
        total = one.count + (known.count if known else 0)
        merged[one.code] = RejectCount(one.code, total, known.first if known else one.first)
    return tuple(merged.values())
