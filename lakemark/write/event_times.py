"""Finds the earliest and latest event time of the rows that a commit writes to a file.

The write stats contain both times, so that a user can derive from the commits up to which time of
the events a table is complete. Source: ``WriteStatus.markSuccess`` and
``HoodieWriteHandle.getRecordMetadata`` of Apache Hudi 1.2.0, with
``hoodie.write.track.event.time.watermark`` and ``hoodie.payload.event.time.field``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import COMMIT_TIME

#: Whole numbers of 10 digits are seconds since 1970, those of 13 digits are milliseconds. Other
#: numbers are not times, as in Apache Hudi.
_SECONDS, _MILLIS = (10**9, 10**10), (10**12, 10**13)


def check_event_time(schema: pa.Schema, column: str) -> None:
    """Check that a column can contain event times.

    Raises:
        InvalidConfig: there is no such column, or it contains neither timestamps nor integers.
    """
    if column not in schema.names:
        message = f"the event time column {column!r} does not exist; columns: {schema.names}"
        raise InvalidConfig(message)
    kind = schema.field(column).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
        message = (
            f"the event time column {column!r} has the type {kind}; it must contain timestamps, or "
            "whole seconds or milliseconds since 1970"
        )
        raise InvalidConfig(message)


@dataclass(slots=True)
class EventTimes:
    """The range of event times of the rows that are added one table after the other.

    Attributes:
        column: the name of the column with event times; None to find no times.
        min_ms: the earliest event time in milliseconds since 1970; None if there is none.
        max_ms: the latest event time.
    """

    column: str | None
    min_ms: int | None = field(default=None, init=False)
    max_ms: int | None = field(default=None, init=False)

    def add_rows(self, rows: pa.Table) -> None:
        """Add the new and changed rows among the rows of a base file; they have no commit time."""
        if self.column is not None and COMMIT_TIME in rows.column_names:
            self._add(rows.filter(rows.column(COMMIT_TIME).is_null()))
        elif self.column is not None:
            self._add(rows)

    def add_changes(self, changes: pa.Table) -> None:
        """Add the rows among the changes that are written to a log; deletes have no event time."""
        if self.column is not None:
            kinds = changes.column(CHANGE_KIND)
            self._add(changes.filter(pc.equal(kinds, int(ChangeKind.UPSERT))))

    def describe(self, stat: WriteStat) -> WriteStat:
        """Return the write stat of a file, with the event times of its rows."""
        if self.min_ms is None:
            return stat
        return replace(stat, min_event_time=self.min_ms, max_event_time=self.max_ms)

    def _add(self, rows: pa.Table) -> None:
        assert self.column is not None
        if self.column not in rows.column_names:
            return
        found = pc.min_max(_as_millis(rows.column(self.column)))
        least, most = found["min"].as_py(), found["max"].as_py()
        if least is not None:
            self.min_ms = least if self.min_ms is None else min(self.min_ms, least)
            self.max_ms = most if self.max_ms is None else max(self.max_ms, most)


def _as_millis(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times in milliseconds since 1970; null for values that are no times."""
    if pa.types.is_timestamp(times.type):
        zone = times.type.tz
        return times.cast(pa.timestamp("ms", zone), safe=False).cast(pa.int64())
    numbers = times.cast(pa.int64(), safe=False)
    from_seconds = pc.multiply(_only(numbers, _SECONDS), 1_000)
    return pc.coalesce(from_seconds, _only(numbers, _MILLIS))


def _only(numbers: pa.ChunkedArray, limits: tuple[int, int]) -> pa.ChunkedArray:
    """Return the numbers within limits, the second one exclusive, and null for the others."""
    least, end = limits
    is_inside = pc.and_(pc.greater_equal(numbers, least), pc.less(numbers, end))
    return pc.if_else(is_inside, numbers, pa.scalar(None, pa.int64()))
