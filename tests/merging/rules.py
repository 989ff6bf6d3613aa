"""The rules that merge two records of one key: the model with which tests compare every merge.

An ordering value is a 32-bit integer, and 0 is Hudi's default: no ordering value. Source:
``BufferedRecordMergerFactory``, ``PartialUpdateHandler`` and the payload classes of Apache Hudi
1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from lakemark.model.changes import ChangeKind
from lakemark.model.meta_columns import COMMIT_TIME

Value: TypeAlias = object

#: Means "unavailable" in all models and their tables.
UNAVAILABLE = "?"


@dataclass(frozen=True)
class Record:
    """One change to a key, or the merged result of its changes.

    Attributes:
        key: the record key.
        ts: the ordering value.
        kind: data, or one of the deletes.
        values: the values of its columns, and of Hudi's own columns that matter.
        written: the columns with which it was written; None for all columns.
    """

    key: str
    ts: int
    kind: ChangeKind = ChangeKind.UPSERT
    values: Mapping[str, Value] = field(default_factory=dict)
    written: frozenset[str] | None = None

    @property
    def is_delete(self) -> bool:
        return self.kind is not ChangeKind.UPSERT

    @property
    def is_unconditional(self) -> bool:
        return self.is_delete and (self.kind is ChangeKind.COMMIT_TIME_DELETE or self.ts == 0)


Records: TypeAlias = dict[str, Record]
Rule: TypeAlias = Callable[[Record, Record], Record]
IsHole: TypeAlias = Callable[[Record, str], bool]


def folded(rule: Rule, changes: Iterable[Record]) -> Records:
    """Merge the changes of each key, one after the other."""
    outcome: Records = {}
    for change in changes:
        older = outcome.get(change.key)
        outcome[change.key] = change if older is None else rule(older, change)
    return outcome


def never(record: Record, column: str) -> bool:
    return False


def is_null(record: Record, column: str) -> bool:
    return record.values[column] is None


def is_unavailable(record: Record, column: str) -> bool:
    return record.values[column] == UNAVAILABLE


def is_unwritten(record: Record, column: str) -> bool:
    return record.written is not None and column not in record.written


def fill(high: Record, low: Record, is_hole: IsHole) -> Record:
    """Fill missing columns of ``high`` from ``low``, like ``PartialUpdateHandler.partialMerge``."""
    if high.is_delete or low.is_delete:
        return high
    if high.written is None and not any(is_hole(high, c) for c in high.values):
        return high
    values = {c: (low if is_hole(high, c) else high).values[c] for c in high.values}
    in_part = high.written is not None and low.written is not None
    written = (high.written or frozenset()) | (low.written or frozenset()) if in_part else None
    return replace(high, values=values, written=written)


def by_event_time(
    is_hole: IsHole = never, *, late_fills: bool = True, blocks_win: bool = False
) -> Rule:
    """The larger ordering value wins; if both are equal, the newer record wins."""

    def merge(older: Record, newer: Record) -> Record:
        if newer.is_unconditional or (blocks_win and newer.kind is ChangeKind.DELETE):
            return newer
        if older.is_unconditional or (blocks_win and older.kind is ChangeKind.DELETE):
            return older if newer.kind is ChangeKind.DELETE else newer
        if newer.ts >= older.ts:
            return fill(newer, older, is_hole)
        return fill(older, newer, is_hole) if late_fills else older

    return merge


def by_commit_time(is_hole: IsHole = never) -> Rule:
    """The newer record wins."""
    return lambda older, newer: fill(newer, older, is_hole)


def by_payload(is_hole: IsHole, *, is_ordered: bool) -> Rule:
    """``HoodieAvroRecordMerger`` with a payload that fills missing columns."""

    def merge(older: Record, newer: Record) -> Record:
        if older.is_unconditional or newer.is_unconditional or older.kind is ChangeKind.DELETE:
            return newer
        if newer.is_delete:
            return newer
        if not is_ordered or newer.ts >= older.ts:
            return fill(newer, replace(older, kind=ChangeKind.UPSERT), is_hole)
        if older.is_delete:
            return older
        merged = fill(older, newer, is_hole)
        meta = newer if newer.values[COMMIT_TIME] is not None else older
        return replace(merged, values={**merged.values, COMMIT_TIME: meta.values[COMMIT_TIME]})

    return merge
