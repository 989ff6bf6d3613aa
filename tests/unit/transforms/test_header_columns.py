"""Headers of Kafka records that become columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from transforms.decode.json import JsonDecoder
from transforms.raw_records import HEADERS_TYPE, HeaderColumn
from transforms.record_converter import RecordConverter
from transforms.schema_text import parse_schema

CONVERTER = RecordConverter(
    JsonDecoder(parse_schema({"id": "string"})),
    KeyGenerator(KeyGeneratorConfig(("id",), ("tenant",))),
    topic="t",
    header_columns=(HeaderColumn("tenant", "x-tenant"), HeaderColumn("trace", "x-trace")),
)


def batch(*headers: Sequence[tuple[str, bytes | None]] | None) -> pa.Table:
    count = len(headers)
    listed = [
        None if one is None else [{"key": key, "value": value} for key, value in one]
        for one in headers
    ]
    return pa.table(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array([f'{{"id": "{n}"}}'.encode() for n in range(count)]),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
            "headers": pa.array(listed, HEADERS_TYPE),
        }
    )


def test_the_last_header_of_a_name_fills_its_column() -> None:
    records = batch(
        [("x-trace", b"1"), ("x-tenant", b"a"), ("x-trace", b"2")],
        [("other", b"z"), ("x-tenant", "ü".encode())],
        None,
        [("x-tenant", b"b"), ("x-trace", b"3"), ("x-trace", None)],
        [],
    )
    changes = CONVERTER(records.slice(0, 2)).changes
    assert changes.column("tenant").to_pylist() == ["a", "ü"]
    assert changes.column("trace").to_pylist() == ["2", None]
    converted = CONVERTER(records)
    assert converted.changes.column("_hoodie_partition_path").to_pylist()[:2] == ["a", "ü"]
    rows = dict(
        zip(*(converted.changes.column(n).to_pylist() for n in ("id", "trace")), strict=True)
    )
    assert rows == {"0": "2", "1": None, "2": None, "3": None, "4": None}


def test_a_header_that_is_no_text_rejects_its_record_which_keeps_its_headers() -> None:
    bad = [("x-tenant", b"a"), ("x-trace", b"\xff")]
    converted = CONVERTER(batch(bad, [("x-tenant", b"a")]))
    assert converted.changes.column("id").to_pylist() == ["1"]
    (letter,) = converted.rejects.rows.to_pylist()
    assert letter["reason"] == "column 'trace': the header 'x-trace' is not UTF-8"
    assert (letter["code"], letter["column"]) == ("invalid_value", "trace")
    assert [(one["key"], one["value"]) for one in letter["headers"]] == bad


def test_records_without_headers_have_null_columns() -> None:
    converted = CONVERTER(batch([]).drop_columns("headers"))
    assert converted.changes.column("tenant").to_pylist() == [None]


def test_a_tombstone_needs_the_header_of_its_partition() -> None:
    converter = replace(CONVERTER, tombstone_key="json")
    records = batch(
        [("x-tenant", b"a"), ("x-trace", b"\xff")],
        [],
        [("x-tenant", None)],
        [("x-tenant", b"\xff")],
    )
    keys = pa.array([f'{{"id": "{n}", "tenant": null}}'.encode() for n in range(4)])
    records = records.set_column(0, "key", keys)
    records = records.set_column(1, "value", pa.nulls(4, pa.binary()))
    converted = converter(records)
    assert converted.changes.column("_hoodie_partition_path").to_pylist() == ["a"]
    missing = "partition field 'tenant': the header 'x-tenant' is missing or null"
    assert [one["reason"] for one in converted.rejects.rows.to_pylist()] == [
        missing,
        missing,
        "column 'tenant': the header 'x-tenant' is not UTF-8",
    ]
