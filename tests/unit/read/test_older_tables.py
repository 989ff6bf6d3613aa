"""Tables of other versions and writers are read: partial updates, HFiles, virtual keys."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.codec.avro_rows import encode_rows
from lakemark.errors import CorruptData, InvalidRecords, Unsupported
from lakemark.log.log_block import BlockType, HeaderKey, encode
from lakemark.merge.record_merger import RecordMerger, commit_time_merger, event_time_merger
from lakemark.model.file_names import BaseFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice
from lakemark.model.meta_columns import with_meta_columns
from lakemark.read.virtual_keys import VirtualKeys
from lakemark.schema.avro import to_avro, to_json
from tests.unit.codec.hfiles import HFileBuilder
from tests.unit.read.slices import (
    SCHEMA,
    USER_SCHEMA,
    Row,
    Slice,
    data_block,
    delete_block,
    row,
    rows_of,
    table_of,
)

PART = {HeaderKey.IS_PARTIAL: "true"}


@pytest.fixture
def file_slice(tmp_path: Path) -> Slice:
    return Slice(tmp_path)


def part_of(*columns: str) -> pa.Schema:
    """Return a schema that MERGE INTO writes: meta columns, key, ordering and some columns."""
    kept = [field for field in USER_SCHEMA if field.name in ("id", "ts", *columns)]
    return with_meta_columns(pa.schema(kept))


WIDE_USER = pa.schema([*USER_SCHEMA, ("more", pa.int64())])
WIDE = with_meta_columns(WIDE_USER)


@pytest.mark.parametrize("kind", [BlockType.PARQUET_DATA, BlockType.AVRO_DATA])
@pytest.mark.parametrize("memory_budget_bytes", [1, 1 << 20])
def test_partial_update_changes_only_its_written_columns(
    file_slice: Slice, kind: BlockType, memory_budget_bytes: int
) -> None:
    file_slice.base([row("a", 1, "old", more=1), row("b", 1, "old", more=1)], WIDE)
    only_text = part_of("text")
    file_slice.log(data_block([row("a", 2, "new")], only_text, kind=kind, header=PART))
    file_slice.log(data_block([row("b", 2, None)], only_text, "12", kind, PART))
    rows = file_slice.read(WIDE, memory_budget_bytes=memory_budget_bytes)
    assert sorted(rows, key=lambda row: str(row["id"])) == [
        {"id": "a", "ts": 2, "text": "new", "more": 1},
        {"id": "b", "ts": 2, "text": None, "more": 1},
    ]


@pytest.mark.parametrize("merger", [event_time_merger(["ts"]), commit_time_merger()])
def test_partial_updates_merge_with_each_other_and_with_whole_rows(
    file_slice: Slice, merger: RecordMerger
) -> None:
    """A late partial update fills the missing columns of the update that wins."""
    file_slice.log(data_block([row("a", 5, "lost", more=7)], WIDE))
    file_slice.log(delete_block(["a"], pa.array([6]), "12"))
    file_slice.log(data_block([row("a", 9)], part_of(), "13", header=PART))
    file_slice.log(data_block([row("a", 8, "late")], part_of("text"), "14", header=PART))
    ts = 9 if merger.ordering_fields else 8
    assert file_slice.read(WIDE, merger=merger) == [
        {"id": "a", "ts": ts, "text": "late", "more": None}
    ]


def test_columns_of_a_partial_update_can_be_projected(file_slice: Slice) -> None:
    file_slice.base([row("a", 1, "old", more=1)], WIDE)
    file_slice.log(data_block([row("a", 2, "new")], part_of("text"), header=PART))
    reader = file_slice.reader(WIDE)
    assert rows_of(reader.read(file_slice.value, ["more"])) == [{"more": 1}]
    assert rows_of(reader.read(file_slice.value, ["text"])) == [{"text": "new"}]


KEYLESS = pa.schema([("id", pa.int32()), ("region", pa.string()), ("ts", pa.int64())])


@pytest.mark.parametrize("kind", [BlockType.PARQUET_DATA, BlockType.AVRO_DATA])
@pytest.mark.parametrize(
    ("fields", "deleted"), [(("id",), "2"), (("id", "region"), "id:2,region:eu")]
)
def test_rows_with_virtual_keys_are_merged_by_their_key_fields(
    file_slice: Slice, kind: BlockType, fields: tuple[str, ...], deleted: str
) -> None:
    file_slice.base([_keyless(1, 1), _keyless(2, 1), _keyless(3, 1)], KEYLESS)
    file_slice.log(data_block([_keyless(1, 2), _keyless(4, 1)], KEYLESS, kind=kind))
    file_slice.log(delete_block([deleted], pa.array([5]), "12"))
    reader = file_slice.reader(KEYLESS, virtual_keys=VirtualKeys(fields))
    rows = [row for rows in reader.read(file_slice.value) for row in rows.to_pylist()]
    assert rows == [_keyless(1, 2), _keyless(3, 1), _keyless(4, 1)]
    pruned = [row for rows in reader.read(file_slice.value, ["ts"]) for row in rows.to_pylist()]
    assert pruned == [{"ts": 2}, {"ts": 1}, {"ts": 1}]


def test_virtual_key_inside_a_struct_is_read(file_slice: Slice) -> None:
    schema = pa.schema([("at", pa.struct([("id", pa.int32())])), ("ts", pa.int64())])
    file_slice.base([{"at": {"id": 1}, "ts": 1}], schema)
    file_slice.log(data_block([{"at": {"id": 1}, "ts": 2}], schema))
    reader = file_slice.reader(schema, virtual_keys=VirtualKeys(("at.id",)))
    assert rows_of(reader.read(file_slice.value, ["ts"])) == [{"ts": 2}]


def test_virtual_key_without_fields_is_refused(file_slice: Slice) -> None:
    with pytest.raises(Unsupported, match=r"hoodie\.table\.recordkey\.fields"):
        VirtualKeys(())
    file_slice.log(data_block([{"id": None, "region": "eu", "ts": 1}], KEYLESS))
    reader = file_slice.reader(KEYLESS, virtual_keys=VirtualKeys(("id",)))
    with pytest.raises(InvalidRecords, match="without a key"):
        list(reader.read(file_slice.value))


def _keyless(number: int, ts: int) -> Row:
    return {"id": number, "region": "eu", "ts": ts}


def test_hfile_base_files_and_blocks_are_read(file_slice: Slice, tmp_path: Path) -> None:
    base = BaseFileName("g", "0-0-0", "10", "hfile")
    content = _hfile([row("a", 1), row("b", 1)])
    (tmp_path / str(base)).write_bytes(content)
    header = {HeaderKey.INSTANT_TIME: "11", HeaderKey.SCHEMA: _schema_text()}
    file_slice.log(encode(BlockType.HFILE_DATA, header, _hfile([row("b", 2, "new")])))
    group = FileGroupId("", "g")
    value = FileSlice(group, "10", BaseFile("", base, len(content)), file_slice.value.logs)
    assert rows_of(file_slice.reader().read(value)) == [
        {"id": "a", "ts": 1, "text": None},
        {"id": "b", "ts": 2, "text": "new"},
    ]
    nameless = HFileBuilder().build([(b"a", b"")])
    (tmp_path / str(base)).write_bytes(nameless)
    value = FileSlice(group, "10", BaseFile("", base, len(nameless)))
    with pytest.raises(CorruptData, match="Avro schema in the file info"):
        list(file_slice.reader().read(value))


def _schema_text() -> str:
    return to_json(to_avro(SCHEMA, "trips"))


def _hfile(rows: list[Row]) -> bytes:
    data, offsets = encode_rows(table_of(rows, SCHEMA), to_avro(SCHEMA, "trips"))
    values = [data[start:end].tobytes() for start, end in pairwise(offsets)]
    keys = [row["id"].encode() for row in rows]
    builder = HFileBuilder(info={b"schema": _schema_text().encode()})
    return builder.build(zip(keys, values, strict=True))


OLD = with_meta_columns(
    pa.schema(
        [
            ("id", pa.string()),
            ("dropped", pa.string()),
            ("n", pa.int32()),
            ("f", pa.float32()),
            ("price", pa.decimal128(5, 2)),
            ("ts", pa.int32()),
            ("pos", pa.struct([("lat", pa.float32()), ("gone", pa.bool_())])),
            ("tags", pa.list_(pa.field("element", pa.int32()))),
            ("attrs", pa.map_(pa.string(), pa.float32())),
            ("day", pa.date32()),
            ("whole", pa.int64()),
        ]
    )
)
NEW = with_meta_columns(
    pa.schema(
        [
            ("f", pa.float64()),
            ("id", pa.string()),
            ("ts", pa.int64()),
            ("n", pa.float64()),
            ("price", pa.decimal128(12, 2)),
            ("pos", pa.struct([("added", pa.string()), ("lat", pa.float64())])),
            ("tags", pa.list_(pa.field("element", pa.int64()))),
            ("attrs", pa.map_(pa.string(), pa.float64())),
            ("day", pa.string()),
            ("whole", pa.decimal128(12, 1)),
            ("added", pa.date32()),
        ]
    )
)


@pytest.mark.parametrize("kind", [BlockType.PARQUET_DATA, BlockType.AVRO_DATA])
def test_columns_are_read_in_their_current_types_and_order(
    file_slice: Slice, kind: BlockType
) -> None:
    old = {
        "dropped": "x", "n": 3, "f": 0.1, "price": Decimal("1.50"), "ts": 1,
        "pos": {"lat": 0.1, "gone": True}, "tags": [1, None], "attrs": [("k", 0.1)],
        "day": date(2026, 5, 1), "whole": 7,
    }  # fmt: skip
    new = {
        "f": 0.1, "ts": 1, "n": 3.0, "price": Decimal("1.50"),
        "pos": {"added": None, "lat": 0.1}, "tags": [1, None], "attrs": [("k", 0.1)],
        "day": "2026-05-01", "whole": Decimal("7.0"), "added": None,
    }  # fmt: skip
    empty = dict.fromkeys(new) | {"ts": 2}
    file_slice.base([{"_hoodie_record_key": key, "id": key, **old} for key in "ab"], OLD)
    file_slice.log(data_block([{"_hoodie_record_key": "c", "id": "c", **old}], OLD, kind=kind))
    file_slice.log(data_block([{"_hoodie_record_key": "b", "id": "b", "ts": 2}], NEW, kind=kind))
    tables = list(file_slice.reader(NEW).read(file_slice.value))
    assert {rows.schema for rows in tables} == {NEW}
    expected = [{"id": "a", **new}, {"id": "b", **empty}, {"id": "c", **new}]
    assert rows_of(iter(tables)) == expected


def test_fractional_number_does_not_become_text(file_slice: Slice) -> None:
    with pytest.raises(Unsupported, match="print such numbers differently"):
        file_slice.base([row("a", 1) | {"text": 0.5}], _with_text(pa.float64())).read()


def _with_text(kind: pa.DataType) -> pa.Schema:
    return SCHEMA.set(SCHEMA.get_field_index("text"), pa.field("text", kind))
