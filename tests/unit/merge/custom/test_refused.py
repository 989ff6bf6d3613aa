"""An invalid result is refused; the error names the merger, the record and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig
from lakemark.merge.custom import (
    BufferedRecord,
    BufferedRecordMerger,
    RecordContext,
    Records,
    VectorMerge,
    VectorMerger,
)
from lakemark.merge.custom.adapter import custom_record_merger
from lakemark.model.changes import CHANGE_KIND, ChangeKind
from tests.unit.merge.custom.mergers import deleted
from tests.unit.merge.custom.test_adapter import Change, table_of

TABLE = table_of([Change(key, ts) for ts in (1, 2) for key in "xyz"])


def vectorised(result: Callable[[Records, Records], Any]) -> VectorMerger:
    class Careless(VectorMerger):
        merging_strategy = "6c8f7f0e-54a3-4f0c-8f0c-3a1f0a4b7a03"

        def merge(self, older: Records, newer: Records) -> VectorMerge:
            merged: VectorMerge = result(older, newer)
            return merged

    return Careless()


def by_record(
    result: Callable[[BufferedRecord, BufferedRecord, RecordContext], Any],
) -> BufferedRecordMerger:
    class Careless(BufferedRecordMerger):
        merging_strategy = "6c8f7f0e-54a3-4f0c-8f0c-3a1f0a4b7a04"

        def merge(
            self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
        ) -> BufferedRecord:
            merged: BufferedRecord = result(older, newer, context)
            return merged

    return Careless()


def merge_of(rows: object, count: int = 3) -> VectorMerge:
    return VectorMerge(rows, np.ones(count, np.bool_))


def without(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(column), column, values)


def without_ordering(records: Records) -> pa.Table:
    return without(records.rows, "ts", pa.nulls(len(records), pa.int32()))


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (lambda a, b: None, "NoneType came back"),
        (lambda a, b: merge_of(None), "NoneType came back for 3 records"),
        (lambda a, b: merge_of(b.rows.slice(1)), "2 rows came back for 3"),
        (lambda a, b: merge_of(b.rows, 2), "keep is bool of shape"),
        (lambda a, b: merge_of(b.rows.drop_columns(["text"])), "columns text were"),
        (lambda a, b: merge_of(without(b.rows, "text", pa.array([1, 2, 3]))), "text is int64"),
        (lambda a, b: merge_of(b.rows.take([1, 0, 2])), "row of another record"),
        (lambda a, b: merge_of(without_ordering(b)), "ts is null"),
        (lambda a, b: VectorMerge(without_ordering(b), np.zeros(3, np.bool_)), "ts is null"),
    ],
)
def test_invalid_result_of_vectorised_merger_is_refused(
    result: Callable[[Records, Records], Any], fault: str
) -> None:
    merger = vectorised(result)
    with pytest.raises(InvalidConfig, match=rf"Careless, record 'x': .*{fault}"):
        custom_record_merger(merger, ["ts"]).fold(TABLE)


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (lambda a, b, c: None, "never None"),
        (lambda a, b, c: replace(b, record_key="other"), "'other' came back"),
        (lambda a, b, c: replace(b, data=None), r"set Operation\.DELETE"),
        (lambda a, b, c: replace(deleted(b), ordering_value=None), "ordering value was lost"),
        (lambda a, b, c: replace(b, ordering_value=9), "its data is 2"),
        (lambda a, b, c: c.merge_with_record(b, {"txet": ""}), "no column txet"),
        (lambda a, b, c: c.merge_with_record(b, {"text": 7}), "text is string and cannot hold 7"),
        (lambda a, b, c: replace(b, data={"ts": 2}), "text is missing"),
    ],
)
def test_invalid_result_of_record_merger_is_refused(
    result: Callable[[BufferedRecord, BufferedRecord, RecordContext], Any], fault: str
) -> None:
    merger = by_record(result)
    with pytest.raises(InvalidConfig, match=rf"Careless, record 'x': .*{fault}"):
        custom_record_merger(merger, ["ts"]).fold(TABLE)


def test_exception_of_record_merger_names_the_merger() -> None:
    merger = by_record(lambda a, b, c: 1 // 0)
    with pytest.raises(ZeroDivisionError) as raised:
        custom_record_merger(merger, ["ts"]).fold(TABLE)
    assert "Careless, record 'x'" in raised.value.__notes__[0]


def test_exception_of_vectorised_merger_names_the_merger() -> None:
    merger = vectorised(lambda a, b: 1 // 0)
    with pytest.raises(ZeroDivisionError) as raised:
        custom_record_merger(merger, ["ts"]).fold(TABLE)
    assert "Careless, 3 records from 'x' on" in raised.value.__notes__[0]


def kept_newer(a: Records, b: Records) -> VectorMerge:
    return VectorMerge(b.rows, np.ones(len(b), np.bool_))


def kept_with_ordering_of_older(a: Records, b: Records) -> VectorMerge:
    return merge_of(without(b.rows, "ts", a["ts"]), len(b))


@pytest.mark.parametrize(
    ("delete", "result", "fault"),
    [
        (ChangeKind.COMMIT_TIME_DELETE, kept_newer, "ts is null"),
        (ChangeKind.COMMIT_TIME_DELETE, kept_with_ordering_of_older, "delete the record, set keep"),
        (ChangeKind.DELETE, kept_newer, "delete the record, set keep to False"),
    ],
)
def test_live_row_from_a_delete_without_data_is_refused(
    delete: ChangeKind, result: Callable[[Records, Records], Any], fault: str
) -> None:
    merger = custom_record_merger(vectorised(result), ["ts"])
    changes = [Change("w", 1), Change("x", 1), Change("w", 2), Change("x", 2, kind=delete)]
    refused = rf"Careless, record 'x': .*{fault}"
    with pytest.raises(InvalidConfig, match=refused):
        merger.fold(table_of(changes))
    base = table_of(changes[:2]).drop_columns([CHANGE_KIND])
    with pytest.raises(InvalidConfig, match=refused):
        merger.apply(base, table_of(changes[2:]))


@pytest.mark.parametrize("delete", [ChangeKind.COMMIT_TIME_DELETE, ChangeKind.DELETE])
def test_live_row_that_was_empty_before_is_accepted(delete: ChangeKind) -> None:
    merger = vectorised(lambda a, b: merge_of(a.rows, len(a)))
    changes = table_of([Change("x", 1, None), Change("x", 2, kind=delete)])
    assert custom_record_merger(merger, ["ts"]).fold(changes)["ts"].to_pylist() == [1]


def test_data_of_a_record_is_read_only() -> None:
    def change(a: BufferedRecord, b: BufferedRecord, c: RecordContext) -> BufferedRecord:
        b.data["text"] = "changed"  # type: ignore[index]
        return b

    with pytest.raises(TypeError, match="does not support item assignment"):
        custom_record_merger(by_record(change), ["ts"]).fold(TABLE)
