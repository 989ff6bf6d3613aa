"""Accounts for a batch of a routed stream that is read and written in pieces.

A batch is one piece, unless it is too large to be read at once (``sinks.routed.exchange``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sinks.audit import Audit, OffsetGap, RecordsRead, audit
from sinks.batch import BatchResult, KafkaBatch
from sinks.reject_counts import merge_counts


class StageTimer:
    """Measures the stages of a piece, in seconds, one after the other."""

    def __init__(self) -> None:
        self.seconds = dict[str, float]()
        self._began = time.monotonic()

    def end(self, stage: str) -> None:
        """Note that a stage has ended."""
        now = time.monotonic()
        self.seconds[stage], self._began = now - self._began, now


@dataclass(slots=True)
class PiecesSoFar:
    """What the pieces of a batch that were read so far have found.

    Attributes:
        gaps: their offsets without a record.
        lost: the lost ranges among them.
        tables: the names of the tables that have committed a piece.
    """

    gaps: list[OffsetGap] = field(default_factory=list)
    lost: Sequence[Mapping[str, object]] = ()
    tables: set[str] = field(default_factory=set)

    def add_gaps(
        self, batch: KafkaBatch, gaps: Sequence[OffsetGap]
    ) -> Sequence[Mapping[str, object]]:
        """Add the gaps of a further piece; return the lost ranges among them.

        The source is asked about the gaps of all pieces, because the run reports, once the batch is
        written, what the source has answered last.
        """
        self.gaps += gaps
        before, self.lost = self.lost, batch.check_source(self.gaps)
        return new_ones(self.lost, before)


def audit_piece(batch: KafkaBatch, records: pa.Table) -> tuple[Audit, list[OffsetGap]]:
    """Check that records are those of a piece; return the numbers, and the gaps between records.

    Raises:
        AuditFailed: the records are not those of the piece.
    """
    read = RecordsRead.in_chunk(records)
    count, text = read.count, f"batch {batch.start} to {batch.end}"
    audited = audit(text, batch.spans, read, arrived=count, written=count, rejected=0)
    return audited, read.gaps(batch.spans)


def new_ones(
    lost: Sequence[Mapping[str, object]], known: Sequence[Mapping[str, object]]
) -> list[Mapping[str, object]]:
    """Return the lost ranges that are not known yet."""
    return [one for one in lost if one not in known]


def sum_up(results: Sequence[BatchResult]) -> BatchResult:
    """Return the result of a batch that was written in pieces, except the number of its tables."""
    first, *others = results
    for one in others:
        stages = first.seconds.keys() | one.seconds.keys()
        seconds = {n: first.seconds.get(n, 0.0) + one.seconds.get(n, 0.0) for n in stages}
        first = replace(
            first,
            records=first.records + one.records,
            rejected=first.rejected + one.rejected,
            first_reject=first.first_reject or one.first_reject,
            reject_counts=merge_counts([*first.reject_counts, *one.reject_counts]),
            seconds=seconds,
            ignored=first.ignored + one.ignored,
            skipped=first.skipped + one.skipped,
            rows_of_tables=first.rows_of_tables + one.rows_of_tables,
        )
    return first
