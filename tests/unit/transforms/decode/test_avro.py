from __future__ import annotations

import json
import pickle
import struct
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import evolve
from tests.schema_registry import FaultyRegistry
from transforms.decode.avro import AvroDecoder
from transforms.decode.avro_framing import (
    ConfluentFraming,
    PlainFraming,
    WriterSchema,
    load_writer_schema,
)
from transforms.decode.avro_references import resolve_references
from transforms.decode.decode_result import DecodeResult
from transforms.decode.schema_differences import column_types
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decode.schema_registry import SchemaNotFound, SchemaRegistry
from transforms.decode.stored_schema import Reference, StoredSchema
from transforms.schema_text import parse_schema, print_schema

EVOLVE = SchemaPolicy("evolve", "evolve")


def record(**fields: object) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "order", "namespace": "shop", "fields": listed}


def encode(avro: dict[str, Any], value: object, schema_id: int | None = None) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(avro), value)
    head = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    return head + body.getvalue()


def plain(avro: dict[str, Any]) -> PlainFraming:
    return PlainFraming(StoredSchema(json.dumps(avro)))


def decode_one(
    columns: dict[str, str], avro: dict[str, Any], value: object, **settings: Any
) -> DecodeResult:
    decoder = AvroDecoder(parse_schema(columns), framing=plain(avro), **settings)
    return decoder.decode(pa.array([encode(avro, value)]))


#: Parts of the reasons for which a record is rejected.
REASONS = ("does not fit", "1 to 9999")


@pytest.mark.parametrize(
    ("written", "value", "declared", "expected"),
    [
        ("int", 7, "bigint", 7),
        ("long", 7, "int", 7),
        ("long", 2**40, "int", "does not fit"),
        ("long", 2**53 + 1, "double", float(2**53)),
        ("float", 0.1, "double", 0.1),
        ("double", 1e39, "float", "does not fit"),
        ("double", 0.5, "float", 0.5),
        ("double", 1.0, "int", "does not fit"),
        ("string", "1", "int", "does not fit"),
        ("bytes", b"ab", "string", "ab"),
        ("bytes", b"\xff", "string", "does not fit"),
        ("string", "ab", "binary", b"ab"),
        ({"type": "fixed", "name": "f", "size": 2}, b"ab", "binary", b"ab"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "string", "B"),
        ("int", 12, "decimal(4,2)", "12.00"),
        ("int", 123, "decimal(4,2)", "does not fit"),
        ("long", 1_000, "timestamp", "1970-01-01 00:00:01+00:00"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 0, "timestamp", "1970-01-01 00:00"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, 0, "timestamp", "1970-01-01"),
        ({"type": "long", "logicalType": "timestamp-micros"}, 2**62, "timestamp", "1 to 9999"),
        ({"type": "int", "logicalType": "time-millis"}, 5, "int", 5),
    ],
)
def test_value_is_converted_to_the_type_of_its_column_or_its_record_is_rejected(
    written: object, value: object, declared: str, expected: object
) -> None:
    bare = record(v={"type": "long"} if isinstance(value, int) else written)
    if isinstance(written, str) or isinstance(value, str | bytes):
        bare = record(v=written)
    decoder = AvroDecoder(parse_schema({"v": declared}), framing=plain(record(v=written)))
    decoded = decoder.decode(pa.array([encode(bare, {"v": value})]))
    found = decoded.rows.column("v")[0].as_py() if decoded.rows.num_rows else decoded.reasons[0]
    if expected in REASONS:
        assert not decoded.rows.num_rows
        assert str(expected) in found
    elif isinstance(expected, str):
        assert not decoded.reasons
        assert str(found).startswith(expected)
    else:
        assert not decoded.reasons
        assert found == expected


def test_reject_of_an_unreadable_value_names_reason_and_field() -> None:
    avro = record(id="int", name="string")
    good = encode(avro, {"id": 1, "name": "a"})
    decoder = AvroDecoder(parse_schema({"id": "int", "name": "string"}), framing=plain(avro))
    values = [good, None, b"", good + b"x", good[:-1], b"\x02\x02\xff", good]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert decoded.accepted.tolist() == [0, 6]
    assert decoded.reasons == [
        "the value is null",
        "the value is empty",
        "the declared schema: 1 bytes follow the record",
        "the declared schema: field 'name': a value of 1 bytes does not fit the remaining 0 bytes",
        "the declared schema: field 'name': the text is not UTF-8",
    ]


def test_broken_record_does_not_affect_the_other_records_of_its_batch() -> None:
    avro = record(id="int")
    values = [encode(avro, {"id": n}) for n in range(40_000)]
    for broken in (0, 20_000, 39_999):
        values[broken] = b"\xff"
    decoder = AvroDecoder(parse_schema({"id": "int"}), framing=plain(avro))
    decoded = decoder.decode(pa.array(values))
    assert decoded.rejected.tolist() == [0, 20_000, 39_999]
    assert decoded.rows.column("id").to_pylist() == decoded.accepted.tolist()


def _nested(levels: int) -> object:
    kind: object = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


@pytest.mark.parametrize(
    "kind",
    [
        ["int", "string"],
        ["null", "string", "int"],
        ["long", "double"],
        ["int", "float"],
        ["int", {"type": "long", "logicalType": "timestamp-millis"}],
        ["null"],
        {"type": "array", "items": "null"},
        _nested(70),
        {"type": "fixed", "name": "f", "size": 1 << 20},
        {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]},
    ],
)
def test_records_of_a_schema_that_cannot_become_columns_are_rejected(kind: object) -> None:
    decoder = AvroDecoder(parse_schema({"id": "int"}), framing=plain(record(id="int", v=kind)))
    decoded = decoder.decode(pa.array([b"\x02\x00"]))
    assert "the declared schema" in decoded.reasons[0]


@pytest.mark.parametrize(
    ("kind", "datums", "arrow", "expected"),
    [
        (["null", "int", "long"], [b"\0", b"\x02\x03", b"\x04\x04"], pa.int64(), [None, -2, 2]),
        (["long", "int"], [b"\0\x04", b"\x02\x02"], pa.int64(), [2, 1]),
        (
            ["float", "null", "double"],
            [b"\0\0\0\0\x3f", b"\x02", b"\x04" + struct.pack("<d", 0.1)],
            pa.float64(),
            [0.5, None, 0.1],
        ),
        (["double", "int"], [b"\x02\x02"], pa.float64(), [1.0]),
    ],
    ids=str,
)
def test_union_of_numbers_becomes_the_type_that_holds_all_of_them(
    kind: list[str], datums: list[bytes], arrow: pa.DataType, expected: list[float | None]
) -> None:
    avro = record(id="int", v=kind)
    schema = load_writer_schema("it", StoredSchema(json.dumps(avro)), None)
    assert isinstance(schema, WriterSchema)
    columns = column_types(schema.root.arrow)
    assert columns.field("v").type == arrow
    decoder = AvroDecoder(columns, framing=plain(avro))
    # Because of a broken value, the values are also read one by one.
    decoded = decoder.decode(pa.array([b"\x02" + datum for datum in datums] + [b"\x02\x0a\0"]))
    assert decoded.rows.column("v").to_pylist() == expected
    assert decoded.reasons == ["the declared schema: field 'v': the union has no branch 5"]


def test_field_of_type_null_does_not_become_a_column() -> None:
    home = {"type": "record", "name": "h", "fields": [{"name": "n", "type": "null"}]}
    home["fields"].append({"name": "zip", "type": "string"})  # type: ignore[attr-defined]
    avro = record(gone="null", id="int", old={"type": "null"}, home=home)
    value = {"gone": None, "id": 1, "old": None, "home": {"n": None, "zip": "7"}}
    decoded = decode_one({"id": "int"}, avro, value, policy=EVOLVE)
    assert decoded.rows.to_pylist() == [{"id": 1}]
    decoder = AvroDecoder(parse_schema({"id": "int"}), framing=plain(avro), policy=EVOLVE)
    wide = evolve(decoder.schema, decoder.propose_columns(pa.array([encode(avro, value)])))
    assert print_schema(wide) == {"id": "int", "home": "struct<zip:string>"}


def test_new_writer_schema_requests_columns_of_its_types() -> None:
    new = record(
        id="long",
        price={"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        at={"type": "long", "logicalType": "timestamp-micros"},
        share="float",
        tags={"type": "map", "values": {"type": "array", "items": "int"}},
        home={"type": "record", "name": "h", "fields": [{"name": "zip", "type": "bytes"}]},
    )
    value = {
        "id": 1,
        "price": Decimal("1.10"),
        "at": 0,
        "share": 0.5,
        "tags": {"a": [1]},
        "home": {"zip": b""},
    }
    values = pa.array([encode(new, value)])
    decoder = AvroDecoder(parse_schema({"id": "int"}), framing=plain(new), policy=EVOLVE)
    assert decoder.decode(values).requesting.tolist() == [0]
    wide = evolve(decoder.schema, decoder.propose_columns(values))
    assert print_schema(wide.remove(wide.get_field_index("tags"))) == {
        "id": "bigint",
        "at": "timestamp",
        "home": "struct<zip:binary>",
        "price": "decimal(10,2)",
        "share": "float",
    }
    assert wide.field("tags").type == pa.map_(
        pa.string(), pa.list_(pa.field("element", pa.int32()))
    )
    again = AvroDecoder(wide, framing=plain(new), policy=EVOLVE).decode(values)
    assert not len(again.requesting)
    assert again.rows.column("price")[0].as_py() == value["price"]


def test_records_of_a_schema_that_would_add_too_many_columns_are_rejected() -> None:
    names = [f"c{n}" for n in range(2_100)]
    wide = record(id="int", **dict.fromkeys(names, "int"))
    decoded = decode_one({"id": "int"}, wide, {"id": 1, **dict.fromkeys(names, 1)}, policy=EVOLVE)
    assert not len(decoded.requesting)
    (reason,) = decoded.reasons
    assert "its unknown fields would add 2100 columns, more than the 1999" in reason


def test_policy_decides_about_unknown_fields_and_wider_values() -> None:
    avro = record(
        id="long",
        home={
            "type": "record",
            "name": "home",
            "fields": [{"name": "zip", "type": "string"}, {"name": "floor", "type": "int"}],
        },
        extra=["null", "bytes"],
    )
    columns = {"id": "int", "home": "struct<zip:string>"}
    value = {"id": 2**40, "home": {"zip": "1", "floor": 3}, "extra": b"\xff"}
    rescued = decode_one(
        columns, avro, value, rescue_column="_r", policy=SchemaPolicy("rescue", "rescue")
    )
    (row,) = rescued.rows.to_pylist()
    kept = json.loads(row.pop("_r"))
    assert row == {"id": None, "home": {"zip": "1"}}
    assert kept == {"id": 2**40, "home": {"floor": 3}, "extra": "/w=="}
    small = {**value, "id": 1}
    ignored = decode_one(columns, avro, small)
    assert ignored.rows.to_pylist() == [{"id": 1, "home": {"zip": "1"}}]
    refused = decode_one(columns, avro, small, policy=SchemaPolicy("reject"))
    assert "'home.floor' is not declared" in refused.reasons[0]
    assert (refused.reasons[0].code, refused.reasons[0].column) == ("unknown_field", "home.floor")
    failing = decode_one(columns, avro, small, policy=SchemaPolicy("fail"))
    assert "'home.floor' is not declared" in failing.refusals[0]
    wide = decode_one(columns, avro, value, policy=SchemaPolicy("ignore", "fail"))
    assert "decode.wider_values is fail" in wide.refusals[0]
    fixed_id = SchemaPolicy("rescue", "rescue", fixed_types=frozenset({"id"}))
    kept = decode_one(columns, avro, value, rescue_column="_r", policy=fixed_id)
    assert "does not fit" in kept.reasons[0]
    assert (kept.reasons[0].code, kept.reasons[0].column) == ("invalid_value", "id")


def test_renamed_field_fills_the_column_of_its_alias() -> None:
    avro = record(count="int")
    decoder = AvroDecoder(
        parse_schema({"n": "int"}),
        framing=plain(avro),
        policy=SchemaPolicy("evolve", aliases={"count": "n"}),
    )
    decoded = decoder.decode(pa.array([encode(avro, {"count": 3})]))
    assert decoded.rows.to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"ID": "int"}, "only by case"), ({"_hoodie_file_name": "string"}, "not filled from records")],
)
def test_record_with_an_invalid_column_name_is_rejected(
    fields: dict[str, object], reason: str
) -> None:
    avro = record(id="int", **fields)
    value = {"id": 1, **dict.fromkeys(fields, 1 if "ID" in fields else "x")}
    assert reason in decode_one({"id": "int"}, avro, value, policy=EVOLVE).reasons[0]


def test_each_record_is_read_with_the_schema_of_its_id() -> None:
    old, new = record(id="int"), record(id="int", note="string")
    with FaultyRegistry() as server:  # it logs the requests, and real ones do not use such ids
        for schema_id, avro in ((1, old), (1 << 24 | 1, new)):
            server.answers[f"/schemas/ids/{schema_id}"] = {"schema": json.dumps(avro)}
        decoder = AvroDecoder(
            parse_schema({"id": "int", "note": "string"}),
            framing=ConfluentFraming(SchemaRegistry(server.url)),
        )
        values = [
            encode(new, {"id": 1, "note": "a"}, 1 << 24 | 1),
            encode(old, {"id": 2}, 1),
            encode(old, {"id": 3}, 5),
            b"\0\0",
            b"{}   ",
            encode(new, {"id": 4, "note": "b"}, 1 << 24 | 1),
        ]
        decoded = pickle.loads(pickle.dumps(decoder)).decode(pa.array(values))
        assert decoded.rows.to_pylist() == [
            {"id": 1, "note": "a"},
            {"id": 2, "note": None},
            {"id": 4, "note": "b"},
        ]
        assert decoded.rejected.tolist() == [2, 3, 4]
        assert "has no schemas/ids/5" in decoded.reasons[0]
        assert "Confluent wire format" in decoded.reasons[2]
        codes = [reason.code for reason in decoded.reasons]
        assert codes == ["unknown_schema", "invalid_message", "invalid_message"]
        ids = decoder.schema_ids(pa.chunked_array([[*values, None]], pa.binary()))
        assert ids is not None
        assert ids.to_pylist() == [1 << 24 | 1, 1, 5, None, None, 1 << 24 | 1, None]
        decoder.decode(pa.array(values[:2]))
        assert sorted(server.asked).count("/schemas/ids/1") == 1, "each id is requested once"
        stopping = ConfluentFraming(decoder.framing.registry, "fail")  # type: ignore[attr-defined]
        with pytest.raises(SchemaNotFound, match="has no schemas/ids/5"):
            AvroDecoder(decoder.schema, framing=stopping).decode(pa.array(values))


def test_record_that_exceeds_the_memory_limit_is_rejected_although_its_message_is_small() -> None:
    fields = [{"name": f"f{n}", "type": "string"} for n in range(1_000)]
    wide = ["null", {"type": "record", "name": "wide", "fields": fields}]
    avro = record(id="int", items={"type": "array", "items": wide})
    nulls = [encode(avro, {"id": n, "items": [None] * count}) for n, count in enumerate([9, 11, 9])]
    full = encode(avro, {"id": 3, "items": [{field["name"]: "x" * 30 for field in fields}]})
    decoder = AvroDecoder(
        parse_schema({"id": "int"}), framing=plain(avro), record_limit_bytes=36_100
    )
    decoded = decoder.decode(pa.array([*nulls, full, b"\x02\x14\0"]))
    assert decoded.rows.column("id").to_pylist() == [0, 2, 3]
    assert decoded.reasons == [
        "the declared schema: field 'items[]': its columns take more than the 36100 bytes of a "
        "record; see decode.record_limit_bytes",
        "the declared schema: field 'items': 10 items do not fit the remaining 1 bytes",
    ]
    assert [reason.code for reason in decoded.reasons] == ["too_large", "invalid_message"]
    generous = AvroDecoder(decoder.schema, framing=decoder.framing)
    assert generous.decode(pa.array([*nulls, full])).rows.num_rows == 4


def test_references_to_other_schemas_are_resolved() -> None:
    item = {
        "type": "record",
        "name": "item",
        "namespace": "shop",
        "fields": [{"name": "sku", "type": "string"}],
    }
    order = {
        "type": "record",
        "name": "order",
        "namespace": "shop",
        "fields": [
            {"name": "first", "type": "item"},
            {"name": "other", "type": ["null", "shop.item"]},
        ],
    }
    stored = StoredSchema(
        json.dumps(order), (Reference("shop.item", StoredSchema(json.dumps(item))),)
    )
    decoder = AvroDecoder(
        parse_schema({"first": "struct<sku:string>", "other": "struct<sku:string>"}),
        framing=PlainFraming(stored),
    )
    resolved = resolve_references(stored)
    assert isinstance(resolved, dict)
    value = {"first": {"sku": "a"}, "other": {"sku": "b"}}
    decoded = decoder.decode(pa.array([encode(resolved, value)]))
    assert decoded.rows.to_pylist() == [value]


def test_unsupported_column_type_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="'v': Avro is not decoded to large_string"):
        AvroDecoder(pa.schema([("v", pa.large_string())]), framing=plain(record(v="string")))


def test_null_struct_is_read_as_null() -> None:
    inner = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "int"}]}
    avro = record(s=["null", inner])
    decoder = AvroDecoder(parse_schema({"s": "struct<x:bigint>"}), framing=plain(avro))
    values = [encode(avro, {"s": {"x": 1}}), encode(avro, {"s": None})]
    assert decoder.decode(pa.array(values)).rows.column("s").to_pylist() == [{"x": 1}, None]


def test_timestamp_with_zone_is_not_converted_to_a_local_timestamp() -> None:
    avro = record(v={"type": "long", "logicalType": "timestamp-micros"})
    decoder = AvroDecoder(pa.schema([("v", pa.timestamp("us"))]), framing=plain(avro))
    decoded = decoder.decode(pa.array([encode(record(v="long"), {"v": 0})]))
    assert decoded.rows.num_rows == 0
    assert "does not fit" in decoded.reasons[0]
