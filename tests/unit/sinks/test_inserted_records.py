"""``table.operation: insert``: a stream adds each record as a row."""

from __future__ import annotations

from collections import Counter
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.table_properties import TableType
from lakemark.model.action import Action
from lakemark.model.commit_metadata import Operation
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.audit import Audit
from tests.depth import examples
from tests.json_stream import JsonStream, Tombstone

COLUMNS = {"id": "string", "ts": "bigint", "region": "string"}


def new_stream(
    duplicates: Duplicates | None,
    table_type: TableType = TableType.MERGE_ON_READ,
    location: StorageLocation | None = None,
    record_key: tuple[str, ...] = ("id",),
) -> JsonStream:
    return JsonStream(
        location or StorageLocation(f"memory://{uuid4().hex}/orders"),
        columns=COLUMNS,
        table_type=table_type,
        partition_by=("region",),
        record_key=record_key,
        metadata_table=False,
        index=None,
        duplicates=duplicates,
    )


def row(key: str, region: str, ts: int) -> dict[str, object]:
    return {"id": key, "region": region, "ts": ts}


def rows_of(stream: JsonStream) -> Counter[tuple[str, str, int]]:
    table = open_table(stream.location)
    if table.schema is None:
        return Counter()
    found = table.scan(columns=["id", "region", "ts"]).to_table().to_pylist()
    return Counter((one["id"], one["region"], one["ts"]) for one in found)


ROWS = st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.integers(1, 9))
STEPS = st.lists(st.lists(ROWS, min_size=1, max_size=6) | st.just("restart"), max_size=5)


@settings(max_examples=examples(10), deadline=None)
@given(STEPS, st.sampled_from(TableType), st.sampled_from([("id",), ()]))
def test_each_record_becomes_one_row(
    steps: list[list[tuple[str, str, int]] | str],
    table_type: TableType,
    record_key: tuple[str, ...],
) -> None:
    stream = new_stream(Duplicates.ALLOW, table_type, record_key=record_key)
    expected = Counter[tuple[str, str, int]]()
    for step in steps:
        if isinstance(step, str):
            stream = new_stream(Duplicates.ALLOW, table_type, stream.location, record_key)
        else:
            stream.write([row(*one) for one in step])
            expected.update(step)
        assert rows_of(stream) == expected


@settings(max_examples=examples(10), deadline=None)
@given(STEPS, st.sampled_from(TableType))
def test_records_with_stored_keys_are_dropped(
    steps: list[list[tuple[str, str, int]] | str], table_type: TableType
) -> None:
    stream, expected = new_stream(Duplicates.DROP, table_type), dict[tuple[str, str], int]()
    for step in steps:
        if isinstance(step, str):
            stream = new_stream(Duplicates.DROP, table_type, stream.location)
            continue
        new = [one for one in step if one[:2] not in expected]
        result = stream.write([row(*one) for one in step])
        assert result.duplicates == len(step) - len(new)
        for key, region, ts in new:
            expected[key, region] = max(ts, expected.get((key, region), ts))
        assert rows_of(stream) == Counter((*key, ts) for key, ts in expected.items())


@pytest.mark.parametrize("duplicates", [Duplicates.ALLOW, Duplicates.DROP])
def test_deletes_are_dead_letters_and_the_commit_is_an_insert(duplicates: Duplicates) -> None:
    stream = new_stream(duplicates)
    deleted = {**row("a", "x", 2), "_hoodie_is_deleted": True}
    result = stream.write([row("a", "x", 1), deleted, Tombstone(b"a")])
    assert (result.records, result.rejected, result.rows) == (3, 2, 1)
    reason = "is a delete, but table.operation is insert, which only adds rows; use upsert"
    assert stream.reasons() == {
        1: f"the row {reason}",
        2: f"the value is null, so the record {reason}",
    }
    newest = stream.rows.table.newest_metadata()
    assert newest is not None
    assert newest.operation == Operation.INSERT


def test_batch_of_stored_keys_records_its_offsets_and_its_audit() -> None:
    stream = new_stream(Duplicates.DROP)
    stream.write([row("a", "x", 1)])
    stream.write([row("a", "x", 2), row("a", "x", 3)])
    newest = stream.rows.table.newest_metadata()
    audited = Audit.in_commit(newest.extra_metadata) if newest else None
    assert audited is not None
    assert (audited.records, audited.written, audited.merged) == (2, 0, 2)
    assert new_stream(Duplicates.DROP, location=stream.location).offset == 3


def test_records_without_a_key_get_the_keys_of_their_commit() -> None:
    stream = new_stream(Duplicates.ALLOW, record_key=())
    for batch in (["a", "a", "b"], ["a"]):
        stream.write([row(key, "x", 1) for key in batch])
    deleted = {**row("a", "x", 2), "_hoodie_is_deleted": True}
    result = stream.write([deleted, row("c", "y", 3), Tombstone(b"a")])
    assert (result.records, result.rejected, result.rows) == (3, 2, 1)
    reason = (
        "is a delete, but the table has automatic record keys, so lakemark cannot find the row to "
        "delete; delete rows by a condition (Table.delete)"
    )
    assert stream.reasons() == {
        4: f"the row {reason}",
        6: f"the value is null, so the record {reason}",
    }
    table = open_table(stream.location)
    first, second, third = (
        instant.requested_at for instant in table.timeline.completed(Action.DELTA_COMMIT)
    )
    stored = table.scan(columns=["_hoodie_record_key", "id"]).to_table().to_pylist()
    assert {one["_hoodie_record_key"]: one["id"] for one in stored} == {
        f"{first}_0_0": "a",
        f"{first}_0_1": "a",
        f"{first}_0_2": "b",
        f"{second}_0_0": "a",
        f"{third}_0_0": "c",
    }


CHANGES = st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), max_size=6)


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(CHANGES, min_size=1, max_size=4),
    st.sampled_from(TableType),
    st.sampled_from([None, *Duplicates]),
)
def test_rows_that_a_batch_only_copies_are_not_counted(
    batches: list[list[tuple[str, bool]]], table_type: TableType, duplicates: Duplicates | None
) -> None:
    stream, stored = new_stream(duplicates, table_type), set[str]()
    for number, batch in enumerate(batches, start=1):
        changes = batch if duplicates is None else [(key, False) for key, _ in batch]
        records = [
            {**row(key, "x", number), "_hoodie_is_deleted": deleted} for key, deleted in changes
        ]
        upserted = [key for key, deleted in dict(changes).items() if not deleted]
        if duplicates is Duplicates.ALLOW:
            upserted = [key for key, _ in changes]
        elif duplicates is Duplicates.DROP:
            upserted = [key for key in upserted if key not in stored]
        result = stream.write(records)
        assert result.rows == len(upserted)
        if records:
            metadata = stream.rows.table.newest_metadata()
            assert metadata is not None
            assert metadata.rows_written == len(upserted)
        stored.update(upserted)
