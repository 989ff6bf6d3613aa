"""Custom mergers for tests: one shows the order of its calls, and one merges by event time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.merge.custom import (
    BufferedRecord,
    BufferedRecordMerger,
    Operation,
    RecordContext,
    Records,
    VectorMerge,
    VectorMerger,
    choose_rows,
)


class Appending(VectorMerger):
    """Concatenates texts; a delete empties them, and a later upsert brings them back."""

    merging_strategy = "6c8f7f0e-54a3-4f0c-8f0c-3a1f0a4b7a01"

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        older_text, newer_text = (pc.fill_null(r["text"], "") for r in (older, newer))
        fresh = pa.array(older.is_delete | newer.is_delete)
        text = pc.if_else(
            fresh, newer_text, pc.binary_join_element_wise(older_text, newer_text, "")
        )
        position = newer.rows.column_names.index("text")
        rows = newer.rows.set_column(position, newer.rows.schema.field("text"), text)
        return VectorMerge(rows, ~newer.is_delete)


class AppendingRecords(BufferedRecordMerger):
    """``Appending`` as a merger of single records; it counts its calls."""

    merging_strategy = Appending.merging_strategy

    def __init__(self) -> None:
        self.calls = 0

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        self.calls += 1
        before = "" if older.is_delete or newer.is_delete else context.get_value(older, "text")
        text = f"{before or ''}{context.get_value(newer, 'text') or ''}"
        return context.merge_with_record(newer, {"text": text})


class ByEventTime(VectorMerger):
    """``EVENT_TIME_ORDERING`` as a merger of columns."""

    merging_strategy = "6c8f7f0e-54a3-4f0c-8f0c-3a1f0a4b7a02"

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        wins = newer.wins_over(older)
        deletes = np.where(wins, newer.is_delete, older.is_delete)
        return VectorMerge(choose_rows(wins, newer.rows, older.rows), ~deletes)


class ByEventTimeRecords(BufferedRecordMerger):
    """``EVENT_TIME_ORDERING`` as a merger of single records."""

    merging_strategy = ByEventTime.merging_strategy

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        return newer if context.newer_wins(older, newer) else older


def deleted(record: BufferedRecord) -> BufferedRecord:
    return BufferedRecord(record.record_key, record.ordering_value, Operation.DELETE, None)
