"""Renamed fields in partial rows: a record with the alias writes the column."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pyarrow as pa

from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.changes import WRITTEN_COLUMNS
from lakemark.model.meta_columns import META_COLUMNS
from lakemark.model.written_columns import is_written
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy
from transforms.record_converter import RecordConverter
from transforms.schema_text import parse_schema

SCHEMA = parse_schema({"id": "string", "ts": "bigint", "n": "int", "m": "int"})


def test_null_in_an_alias_is_written_but_an_absent_field_is_not() -> None:
    decoder = JsonDecoder(SCHEMA, policy=SchemaPolicy(aliases={"count": "n"}))
    keys = KeyGenerator(KeyGeneratorConfig(("id",)))
    columns = SCHEMA.append(pa.field("of_another_writer", pa.string()))
    converter = RecordConverter(decoder, keys, ("ts",), topic="t", keeps_absent_fields=True)
    fields: list[dict[str, object]] = [{"count": None}, {"n": None}, {"count": 2}, {}]
    values = [json.dumps({"id": str(n), "ts": 1, **more}) for n, more in enumerate(fields)]
    records = pa.table(
        {
            "key": pa.nulls(4, pa.binary()),
            "value": pa.array([value.encode() for value in values]),
            "partition": pa.array([0] * 4, pa.int32()),
            "offset": pa.array(range(4), pa.int64()),
            "timestamp": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 4),
        }
    )
    changes = converter.for_table(columns)(records).changes
    width = len(META_COLUMNS) + len(columns)
    rows = changes.column(WRITTEN_COLUMNS).to_pylist()
    of_columns = [is_written(bits, width)[len(META_COLUMNS) :] for bits in rows]
    assert [row[2] for row in of_columns] == [True, True, True, False]
    assert [row[3:] for row in of_columns] == [[False, False]] * 4
    assert changes.column("n").to_pylist() == [None, None, 2, None]
