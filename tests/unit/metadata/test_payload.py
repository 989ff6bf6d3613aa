"""Payloads that an independent Avro codec wrote are read, also with schemas of older releases."""

from __future__ import annotations

import copy
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.hfile import HFileReader
from lakemark.errors import CorruptData, Unsupported
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.payload import PAYLOADS, read_payload
from tests.depth import examples
from tests.unit.metadata.metadata_tables import SCHEMA, SCHEMA_TEXT, Record, statistics, stored

GOLDEN = Path(__file__).parents[1] / "codec" / "golden"

LONGS = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=9)

RECORDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "filesystemMetadata": st.dictionaries(
        TEXT,
        st.fixed_dictionaries({"size": st.integers(0, 2**62), "isDeleted": st.booleans()}),
    ),
    "BloomFilterMetadata": st.fixed_dictionaries(
        {"type": TEXT, "timestamp": TEXT, "bloomFilter": st.binary(), "isDeleted": st.booleans()}
    ),
    "recordIndexMetadata": st.fixed_dictionaries(
        {
            "partitionName": st.none() | TEXT,
            "fileIdHighBits": st.none() | LONGS,
            "fileIdLowBits": st.none() | LONGS,
            "fileIndex": st.none() | st.integers(-1, 2**31 - 1),
            "fileId": st.none() | TEXT,
            "instantTime": st.none() | LONGS,
            "fileIdEncoding": st.integers(0, 1),
            "position": st.none() | LONGS,
        }
    ),
    "SecondaryIndexMetadata": st.fixed_dictionaries({"isDeleted": st.booleans()}),
}


@settings(deadline=None, max_examples=examples(60))
@given(st.sampled_from(sorted(RECORDS)), st.data())
def test_what_was_written_is_read(payload: str, data: st.DataObject) -> None:
    """Every payload is read as it was written. Records of other kinds are null."""
    expected = data.draw(st.lists(st.none() | RECORDS[payload], max_size=6))
    other = "BloomFilterMetadata" if payload != "BloomFilterMetadata" else "recordIndexMetadata"
    values = [
        stored({payload: record} if record is not None else {other: data.draw(RECORDS[other])})
        for record in expected
    ]
    column = read_payload(pa.array(values, pa.binary()), SCHEMA_TEXT, payload, "x")
    assert column.type == PAYLOADS[payload]
    assert column.to_pylist() == [_as_read(payload, record) for record in expected]


def _as_read(payload: str, record: dict[str, Any] | None) -> object:
    if record is None:
        return None
    if payload == "filesystemMetadata":
        return [
            {"name": name, "size_bytes": entry["size"], "is_deleted": entry["isDeleted"]}
            for name, entry in record.items()
        ]
    return {field.name: record[field.name] for field in PAYLOADS[payload]}


MOMENT = datetime(2026, 1, 1, 12, tzinfo=UTC)
MICROS = int(MOMENT.timestamp()) * 1_000_000
WRAPPERS: list[tuple[str, object, str, object]] = [
    ("BooleanWrapper", True, "BOOLEAN", True),
    ("IntWrapper", -7, "INT", -7),
    ("LongWrapper", 2**40, "LONG", 2**40),
    ("FloatWrapper", 1.5, "FLOAT", 1.5),
    ("DoubleWrapper", -2.5, "DOUBLE", -2.5),
    ("BytesWrapper", b"\x00\xff", "BYTES", b"\x00\xff"),
    ("StringWrapper", "é", "STRING", "é"),
    ("DateWrapper", 20454, "DATE", date(2026, 1, 1)),
    ("DecimalWrapper", Decimal("-1.5"), "DECIMAL", Decimal("-1.500000000000000")),
    ("TimeMicrosWrapper", time(1, 2, 3), "TIME_MICROS", time(1, 2, 3)),
    ("TimestampMicrosWrapper", MICROS, "TIMESTAMP_MICROS", MOMENT),
    ("LocalDateWrapper", 20454, "LOCAL_DATE", date(2026, 1, 1)),
]


def test_every_wrapper_is_read_in_its_own_rows() -> None:
    """Values of every wrapper, mixed with nulls in one batch, are read in their own rows."""
    records = [
        statistics((wrapper, value), None if number % 2 else (wrapper, value))
        for number, (wrapper, value, _, _) in enumerate(WRAPPERS)
    ]
    column = _statistics(records)
    for number, (row, (_, _, name, value)) in enumerate(
        zip(column.to_pylist(), WRAPPERS, strict=True)
    ):
        nothing = {wrapper: None for _, _, wrapper, _ in WRAPPERS}
        assert row["minValue"] == {**nothing, name: value}
        assert row["maxValue"] == (nothing if number % 2 else {**nothing, name: value})


def _statistics(records: list[Record], schema: dict[str, Any] | None = None) -> pa.StructArray:
    chosen = SCHEMA if schema is None else schema
    parsed = fastavro.parse_schema(copy.deepcopy(chosen))
    values = pa.array([stored(record, parsed) for record in records], pa.binary())
    return read_payload(values, json.dumps(chosen), "ColumnStatsMetadata", "x")


def _of_hudi_0_14() -> dict[str, Any]:
    """Return the schema of Hudi 0.14.

    It lacks tight bounds, value types, and later wrappers and indexes.
    """
    schema: dict[str, Any] = copy.deepcopy(SCHEMA)
    fields = {field["name"]: field for field in schema["fields"]}
    del fields["SecondaryIndexMetadata"]
    stats = fields["ColumnStatsMetadata"]["type"][1]
    later = ("isTightBound", "valueType")
    stats["fields"] = [field for field in stats["fields"] if field["name"] not in later]
    for field in stats["fields"]:
        if field["name"] in ("minValue", "maxValue"):
            field["type"] = [t for t in field["type"] if not _is_later(t)]
    schema["fields"] = list(fields.values())
    return schema


def _is_later(branch: object) -> bool:
    name = branch["name"] if isinstance(branch, dict) else str(branch)
    return name in ("LocalDateWrapper", "ArrayWrapper")


def test_records_of_an_older_release_lack_what_it_did_not_know() -> None:
    record = statistics(("IntWrapper", 1), ("DecimalWrapper", Decimal(2)))
    fields = record["ColumnStatsMetadata"].items()
    known = {name: v for name, v in fields if name not in ("isTightBound", "valueType")}
    column = _statistics([{"ColumnStatsMetadata": known}], _of_hudi_0_14())
    (row,) = column.to_pylist()
    assert row["minValue"]["INT"] == 1 and row["maxValue"]["DECIMAL"] == Decimal(2)
    assert row["isTightBound"] is None and row["valueType"] is None


def test_a_value_that_is_an_array_is_refused() -> None:
    record = statistics(None, None)
    array: dict[str, list[object]] = {"wrappedValues": []}
    record["ColumnStatsMetadata"]["minValue"] = ("org.apache.hudi.avro.model.ArrayWrapper", array)
    with pytest.raises(Unsupported, match="ArrayWrapper"):
        _statistics([record])


def test_a_file_of_negative_size_is_corrupt() -> None:
    values = [stored({"filesystemMetadata": {"f": {"size": -1, "isDeleted": False}}})]
    with pytest.raises(CorruptData, match="size"):
        read_payload(pa.array(values, pa.binary()), SCHEMA_TEXT, "filesystemMetadata", "x")


def test_a_schema_without_the_payload_is_corrupt() -> None:
    schema = json.dumps({"type": "record", "name": "r", "fields": []})
    with pytest.raises(CorruptData, match="recordIndexMetadata"):
        read_payload(pa.array([b""], pa.binary()), schema, "recordIndexMetadata", "x")


def _golden(name: str) -> tuple[list[bytes], str]:
    data = (GOLDEN / f"{name}.hfile").read_bytes()
    reader = HFileReader(pa.BufferReader(data), len(data), name)
    values = [value for _, block in reader.scan() for value in block.to_pylist()]
    return values, reader.file_info[b"schema"].decode()


@settings(deadline=None, max_examples=examples(150))
@given(st.sampled_from(["files", "column_stats", "record_index"]), st.data())
def test_damaged_records_raise_nothing_else(name: str, data: st.DataObject) -> None:
    values, schema = _golden(name)
    damaged = [bytearray(value) for value in values]
    for _ in range(data.draw(st.integers(1, 3))):
        value = damaged[data.draw(st.integers(0, len(damaged) - 1))]
        at = data.draw(st.integers(0, max(len(value) - 1, 0)))
        value[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    column = pa.array([bytes(value) for value in damaged], pa.binary())
    _read_or_refuse(column, schema, PartitionKind.of(name).payload)


@settings(deadline=None, max_examples=examples(100))
@given(st.sampled_from(["files", "column_stats", "record_index"]), st.data())
def test_damaged_schemas_raise_nothing_else(name: str, data: st.DataObject) -> None:
    values, schema = _golden(name)
    words = st.sampled_from(['"null"', '"long"', '"map"', "[]", "{}", "1", '"string"', "null"])
    at = data.draw(st.integers(0, len(schema) - 1))
    if data.draw(st.booleans()):
        end = at + data.draw(st.integers(0, 3))
        schema = schema[:at] + data.draw(st.text(max_size=3)) + schema[end:]
    else:
        start, end = schema.find('"', at), schema.find('"', schema.find('"', at) + 1)
        schema = schema[:start] + data.draw(words) + schema[end + 1 :]
    _read_or_refuse(pa.array(values, pa.binary()), schema, PartitionKind.of(name).payload)


def _read_or_refuse(values: pa.Array, schema: str, payload: str) -> None:
    try:
        column = read_payload(values, schema, payload, "x")
    except (CorruptData, Unsupported):
        return
    column.validate(full=True)
    assert column.type == PAYLOADS[payload] and len(column) == len(values)
