"""Only records that become rows change a table's columns, and no record is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Literal
from uuid import uuid4

import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import (
    ELEMENT,
    MAX_EVOLVED_COLUMNS,
    MAX_EVOLVED_DEPTH,
    ValueKind,
    evolve,
    unite_schemas,
)
from lakemark.storage import StorageLocation
from sinks.hudi.batch_columns import SchemaRefused, TooManyColumns
from tests.json_stream import COLUMNS, JsonStream, Record
from transforms.decode.decode_result import DecodeResult
from transforms.decode.json import JsonDecoder
from transforms.decode.json_block import BlockReader, Forms
from transforms.decode.json_inference import infer_schema
from transforms.decode.schema_policy import SchemaPolicy, UnknownFields
from transforms.schema_text import parse_schema

EVOLVE = SchemaPolicy("evolve", "evolve")
BASE = {"id": "string", "ts": "int64", "n": "int32"}
GOOD = {"id": "good", "ts": 1, "n": 1}
#: An integer that Python does not read, and pyarrow passes over.
DIGITS = b"1" * 5_000


def stream(policy: SchemaPolicy = EVOLVE, rescue_column: str | None = None) -> JsonStream:
    return JsonStream(
        StorageLocation(f"memory://{uuid4().hex}/orders"), policy, COLUMNS, rescue_column
    )


def objects(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def arrays(levels: int) -> bytes:
    return b"[" * levels + b"1" + b"]" * levels


@pytest.mark.parametrize(
    ("nested", "deepest"),
    [(objects, MAX_EVOLVED_DEPTH - 1), (arrays, (MAX_EVOLVED_DEPTH - 1) // 2)],
)
def test_a_table_stays_readable_however_deep_a_new_field_is(
    nested: Callable[[int], bytes], deepest: int
) -> None:
    rows = stream()
    rows.write([b'{"id":"a","ts":1,"x":' + nested(deepest) + b"}"])
    assert sorted(rows.schema()) == ["id", "n", "ts", "x"]
    levels = (deepest + 1, 150, 400, 2_000)
    rows.write([b'{"id":"b","ts":1,"y":' + nested(n) + b"}" for n in levels])
    rows.write([GOOD, {"id": "a", "ts": 2}])
    rows.compact()
    assert sorted(rows.read()) == ["a", "good"]
    assert all("nested" in reason for reason in rows.reasons().values())
    assert len(rows.reasons()) == len(levels)


def test_no_schema_is_deeper_than_files_can_be() -> None:
    within = tuple("x" * MAX_EVOLVED_DEPTH)
    sightings = {(within[:n], ValueKind.STRUCT) for n in range(1, len(within) + 1)}
    beyond = {((*within, "x"), ValueKind.INT)}
    schema = pa.schema([("id", pa.string())])
    assert evolve(schema, frozenset(sightings | beyond)) == schema
    listed = {(("x", *(ELEMENT,) * n), ValueKind.ARRAY) for n in range(60)}
    deep = {(("x", *(ELEMENT,) * 60), ValueKind.INT)}
    assert evolve(schema, frozenset(listed | deep)) == schema


@pytest.mark.parametrize("nested", [objects, arrays])
def test_an_inferred_schema_is_no_deeper_than_files_can_be(
    nested: Callable[[int], bytes],
) -> None:
    value = b'{"x":' + nested(90) + b"}"
    levels, found = 0, infer_schema(pa.array([value])).schema.field("x").type
    while pa.types.is_nested(found):
        levels += 2 if pa.types.is_list(found) else 1
        found = found.field(0).type
    assert levels <= MAX_EVOLVED_DEPTH


@pytest.mark.parametrize(
    "record",
    [
        {"ts": 1, "n": 2**40},
        {"ts": 1, "x": 1},
        {"ts": 1, **{f"user_{n}": n for n in range(MAX_EVOLVED_COLUMNS)}},
        {"id": "a", "x": 1, "n": 0.5},
        {"id": "a", "ts": 1, "n": 1, "m": 2, "x": 1},
        {"id": "a", "ts": 1, "n": 2**40, "m": 0.5},
        {"id": "a", "ts": 1, "_hoodie_is_deleted": True, "x": 1},
        {"id": "a", "ts": 1, "_hoodie_is_deleted": True, "n": 2**40},
        {"id": "a", "ts": 1, "n": 5.0},
        {"id": "a", "ts": 1, "n": float("nan")},
        {"id": "a", "ts": 1, "x": {"y": 1, "Y": 2}},
        b'{"id":"a","ts":1,"x":1e400}',
        b'{"id":"a","ts":1,"n":1e400}',
        b'{"id":"a","ts":1,"x":1,"x":"t"}',
        b'{"id":"a","ts":1,"x":{"y":1,"y":2}}',
    ],
)
def test_what_is_no_row_changes_no_column(record: Record) -> None:
    rows = stream(SchemaPolicy("evolve", "evolve", {"m": "n"}))
    rows.write([GOOD])
    result = rows.write([record, GOOD])
    assert result.schema_changes == ()
    assert rows.schema() == BASE
    assert rows.read() == {"good": GOOD}
    rows.write([GOOD, record, {"id": "b", "ts": 1, "n": 2**40, "x": True}])
    assert rows.schema() == {**BASE, "n": "int64", "x": "bool"}


@pytest.mark.parametrize(
    ("policy", "field"),
    [(SchemaPolicy("fail"), {"x": 1}), (SchemaPolicy("ignore", "fail"), {"n": 2**40})],
)
def test_only_what_would_be_a_row_stops_a_run(
    policy: SchemaPolicy, field: dict[str, object]
) -> None:
    rows = stream(policy)
    rows.write([{"ts": 1, **field}, {"id": "a", **field}, GOOD])
    assert rows.read() == {"good": GOOD}
    assert sorted(rows.reasons()) == [0, 1]
    with pytest.raises(SchemaRefused, match="orders 0:4"):
        rows.write(
            [{"ts": 1, **field}, {"id": "a", "ts": 1, **field}, {"id": "b", "ts": 1, **field}]
        )


DEEP = b'{"id":"a","ts":1,"x":' + arrays(2_000) + b"}"


HARD_TO_READ = [b'{"id":"a","ts":1,"y":"z","x":' + DIGITS + b"}", DEEP]


@pytest.mark.parametrize("value", HARD_TO_READ)
def test_an_unknown_field_of_a_record_that_is_hard_to_read_stops_a_run_that_is_to_fail(
    value: bytes,
) -> None:
    rows = stream(SchemaPolicy("fail"))
    with pytest.raises(SchemaRefused, match="orders 0:0"):
        rows.write([value])


@pytest.mark.parametrize("value", HARD_TO_READ)
@pytest.mark.parametrize("unknown", ["reject", "evolve"])
def test_unknown_fields_are_not_lost_where_a_record_is_hard_to_read(
    unknown: UnknownFields, value: bytes
) -> None:
    rows = stream(SchemaPolicy(unknown))
    rows.write([value, GOOD])
    assert rows.read() == {"good": GOOD}
    assert re.search("declared|no type holds|nested", rows.reasons()[0])


def test_names_that_are_values_are_not_gathered_without_end() -> None:
    values = [
        {"id": str(n), "ts": 1, "m": {f"user_{n}_{m}": 1 for m in range(20)}} for n in range(1_000)
    ]
    rows = stream()
    with pytest.raises(TooManyColumns):
        rows.write(values)
    decoder = JsonDecoder(parse_schema(COLUMNS), policy=EVOLVE)
    texts = (f'{{"m":{{"u{n}":1}}}}'.encode() for n in range(5 * MAX_EVOLVED_COLUMNS))
    asked = decoder.propose_columns(pa.array(texts))
    assert MAX_EVOLVED_COLUMNS < len(asked) <= 2 * MAX_EVOLVED_COLUMNS


@pytest.mark.parametrize("unknown", ["reject", "evolve", "rescue"])
def test_names_that_are_values_make_no_arrow_columns(
    unknown: UnknownFields, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow with the number of names times the number of records."""
    values = pa.array(f'{{"id":"{n}","m":{{"u{n}":1}}}}'.encode() for n in range(4_000))
    rescue_column = "_rescued" if unknown == "rescue" else None
    decoder = JsonDecoder(parse_schema(COLUMNS), rescue_column, policy=SchemaPolicy(unknown))
    monkeypatch.setattr("transforms.decode.json_decoding._MAX_INFERRED_FIELDS", 100)
    parse = BlockReader.parse
    parsed_bytes = []

    def measured(
        reader: BlockReader, block: pa.Array, forms: Forms, unknown: Literal["ignore", "infer"]
    ) -> pa.Table:
        table = parse(reader, block, forms, unknown)
        parsed_bytes.append(table.get_total_buffer_size())
        return table

    monkeypatch.setattr(BlockReader, "parse", measured)
    decoded = decoder.decode(values)
    assert len(decoded.rejected) == (len(values) if unknown == "reject" else 0)
    assert 0 < max(parsed_bytes) < 4 << 20


def test_columns_do_not_differ_only_by_case() -> None:
    table = pa.schema([("Foo", pa.int32()), ("s", pa.struct([("A", pa.int32())]))])
    with pytest.raises(InvalidConfig, match=r"foo differs from column Foo .* only by case"):
        unite_schemas(table, pa.schema([("foo", pa.int32())]), "here")
    nested = pa.schema([("s", pa.struct([("a", pa.int32())]))])
    with pytest.raises(InvalidConfig, match="column s"):
        unite_schemas(table, nested, "here")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"": 1}, "a field has an empty name"),
        ({"x": {"": 1}}, "a field in 'x' has an empty name"),
        ({"a" * 256: 1}, "more than 255 characters"),
    ],
)
def test_names_that_no_column_has_are_named(record: dict[str, object], reason: str) -> None:
    rows = stream()
    rows.write([{"id": "a", "ts": 1, **record}, GOOD])
    assert rows.schema() == BASE
    assert reason in rows.reasons()[0]


def test_a_declared_schema_of_any_width_may_become_wider() -> None:
    columns = {"id": "string", "ts": "bigint", **{f"c{n}": "int" for n in range(2_100)}}
    rows = JsonStream(StorageLocation(f"memory://{uuid4().hex}/orders"), EVOLVE, columns)
    rows.write([{"id": "a", "ts": 1, "c5": 2**40}])
    assert rows.schema()["c5"] == "int64"


def test_any_set_of_wider_values_is_rescued_in_one_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values too wide for their columns are rescued in one pass, whichever columns these are."""
    columns = {**{f"c{n}": "int" for n in range(8)}, "s": "struct<a:int,b:int>"}
    readings = []
    decode = JsonDecoder.decode

    def counted(decoder: JsonDecoder, values: pa.Array) -> DecodeResult:
        readings.append(len(values))
        return decode(decoder, values)

    monkeypatch.setattr(JsonDecoder, "decode", counted)
    decoder = JsonDecoder(parse_schema(columns), "_r", policy=SchemaPolicy("ignore", "rescue"))
    records = [
        {**{f"c{n}": 2**40 if number >> n & 1 else n for n in range(8)}, "s": {"a": 2**40, "b": 1}}
        for number in range(256)
    ]
    decoded = decoder.decode(pa.array(json.dumps(record).encode() for record in records))
    assert readings == [256, 256]
    for record, row in zip(records, decoded.rows.to_pylist(), strict=True):
        rescued = json.loads(row.pop("_r"))
        assert rescued.pop("s") == {"a": 2**40}
        assert row.pop("s") == {"a": None, "b": 1}
        assert {name: row[name] or rescued.get(name, 0) for name in row} == {
            name: record[name] for name in row
        }


def test_wider_values_beside_a_field_that_is_too_deep_do_not_stop_a_run() -> None:
    rows = stream(SchemaPolicy("ignore", "rescue"), "_rescued")
    rows.write([b'{"id":"a","ts":1,"n":1099511627776,"x":' + arrays(5_000) + b"}", GOOD])
    assert "good" in rows.read()
