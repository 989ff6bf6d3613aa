"""Messages of Protocol Buffers; ``tests/property`` compares them with Google's implementation."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

from lakemark.codec.varint import unsigned, zigzag
from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import evolve
from tests.schema_registry import FaultyRegistry
from transforms.decode.decode_result import DecodeResult
from transforms.decode.json import JsonDecoder
from transforms.decode.protobuf.decoder import ProtobufDecoder
from transforms.decode.protobuf.field_walk import FieldWalk
from transforms.decode.protobuf.framing import (
    Indexes,
    RegistryMessage,
    WriterMessage,
    load_declared,
    load_stored,
)
from transforms.decode.schema_differences import column_types
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decode.schema_registry import SchemaNotFound, SchemaRegistry
from transforms.decode.stored_schema import Reference, StoredSchema
from transforms.schema_text import parse_schema
from transforms.tombstone_keys import TombstoneKeyDecoder

ORDER = """
syntax = "proto3";
package shop.v1;
message Ignored { string id = 1; }
message Order {
  message Line { string sku = 1; int32 count = 2; Order part_of = 3; }
  string id = 1;
  int32 amount = 2;
  repeated Line lines = 3;
}
"""
#: The indexes of ``Ignored``, ``Order`` and ``Line``.
IGNORED, ORDERS, LINE = (0,), (1,), (1, 0)
EVOLVE = SchemaPolicy("evolve", "evolve")


def framed(schema_id: int, indexes: Indexes, body: bytes) -> bytes:
    numbers = b"\0" if indexes == (0,) else b"".join(map(zigzag, (len(indexes), *indexes)))
    return b"\0" + schema_id.to_bytes(4, "big") + numbers + body


def text(number: int, content: str | bytes) -> bytes:
    body = content.encode() if isinstance(content, str) else content
    return unsigned(number << 3 | 2) + unsigned(len(body)) + body


def number(of_field: int, value: int) -> bytes:
    return unsigned(of_field << 3) + unsigned(value % 2**64)


def order(key: str, amount: int) -> bytes:
    return text(1, key) + number(2, amount)


@pytest.fixture
def server() -> Iterator[FaultyRegistry]:
    with FaultyRegistry() as running:
        running.answers["/schemas/ids/1"] = {"schemaType": "PROTOBUF", "schema": ORDER}
        yield running


def registry(server: FaultyRegistry) -> SchemaRegistry:
    return SchemaRegistry(server.url, retry_timeout_s=0, kind="PROTOBUF")


def decode(
    server: FaultyRegistry, columns: dict[str, str], values: list[bytes | None], **settings: Any
) -> DecodeResult:
    framing = RegistryMessage(registry(server))
    decoder = ProtobufDecoder(parse_schema(columns), framing=framing, **settings)
    decoder = cast(ProtobufDecoder, pickle.loads(pickle.dumps(decoder)))
    return decoder.decode(pa.chunked_array([values[:1], values[1:]], pa.binary()))


def columns_of(schema: str, message: str = "m.M") -> pa.Schema:
    found = load_stored("it", StoredSchema(schema), message)
    assert isinstance(found, WriterMessage), found
    return column_types(found.type.arrow)


def test_each_value_is_read_with_the_message_of_its_own_schema(server: FaultyRegistry) -> None:
    newer = ORDER.replace("int32 amount = 2", "int64 amount = 9")
    server.answers["/schemas/ids/2"] = {"schemaType": "PROTOBUF", "schema": newer}
    values = [
        framed(1, ORDERS, order("a", -1)),
        framed(2, ORDERS, text(1, "b") + number(9, 5)),
        framed(1, IGNORED, text(1, "c")),
        framed(1, LINE, text(1, "sku")),
        None,
    ]
    decoded = decode(server, {"id": "string", "amount": "int"}, values)
    assert decoded.rows.to_pylist() == [
        {"id": "a", "amount": -1},
        {"id": "b", "amount": 5},
        {"id": "c", "amount": None},
        {"id": None, "amount": None},
    ]
    assert decoded.reasons == ["the value is null"]
    assert sorted(server.asked) == ["/schemas/ids/1", "/schemas/ids/2"], "each id is asked for once"


@pytest.mark.parametrize(
    ("value", "code", "reason"),
    [
        (b"{}", "invalid_message", "does not begin with the byte 0"),
        (
            framed(1, (7,), b""),
            "unknown_schema",
            "schema 1: it has no message with the indexes [7]",
        ),
        (framed(1, (1, 0, 0), b""), "unknown_schema", "no message with the indexes [1, 0, 0]"),
        (b"\0\0\0\0\1", "invalid_message", "not followed by the indexes of a message"),
        (b"\0\0\0\0\1\xff", "invalid_message", "not followed by the indexes of a message"),
        (b"\0\0\0\0\1\x01\x00", "invalid_message", "not followed by the indexes of a message"),
        (framed(9, ORDERS, b""), "unknown_schema", "has no schemas/ids/9"),
        (
            framed(1, ORDERS, text(1, b"\xff")),
            "invalid_message",
            "schema 1, message shop.v1.Order: field 'id': the text is not UTF-8",
        ),
        (framed(1, ORDERS, text(1, "abc")[:-1]), "invalid_message", "ends inside a field"),
        (framed(1, ORDERS, b"\x06"), "invalid_message", "a wire type that does not exist"),
        (
            framed(1, ORDERS, text(3, text(1, "x")[:-1])),
            "invalid_message",
            "field 'lines[]': the message ends inside a field",
        ),
    ],
)
def test_a_value_that_is_no_message_is_rejected_with_the_reason(
    server: FaultyRegistry, value: bytes, code: str, reason: str
) -> None:
    columns = {"id": "string", "lines": "array<struct<sku string>>"}
    good = framed(1, ORDERS, text(1, "good"))
    decoded = decode(server, columns, [value, good])
    assert decoded.accepted.tolist() == [1]
    (found,) = decoded.reasons
    assert found.code == code
    assert reason in found


def test_the_run_stops_for_an_unknown_schema_if_this_is_configured(server: FaultyRegistry) -> None:
    framing = RegistryMessage(registry(server), fails_if_unknown=True)
    decoder = ProtobufDecoder(parse_schema({"id": "string"}), framing=framing)
    with pytest.raises(SchemaNotFound, match="has no schemas/ids/9"):
        decoder.decode(pa.array([framed(9, ORDERS, b"x")]))
    server.answers["/schemas/ids/3"] = {"schema": '"int"'}
    with pytest.raises(SchemaNotFound, match="is of type AVRO, not PROTOBUF"):
        decoder.decode(pa.array([framed(3, ORDERS, b"x")]))


def test_policies_apply_to_fields_of_the_type(server: FaultyRegistry) -> None:
    value = framed(1, ORDERS, order("a", 5))
    evolving = decode(server, {"id": "string"}, [value], policy=EVOLVE)
    assert evolving.requesting.tolist() == [0]
    decoder = ProtobufDecoder(
        parse_schema({"id": "string"}), framing=RegistryMessage(registry(server)), policy=EVOLVE
    )
    evolved = evolve(decoder.schema, decoder.propose_columns(pa.array([value])))
    assert evolved.field("amount").type == pa.int32()
    assert sorted(evolved.field("lines").type.value_type.names) == ["count", "part_of", "sku"]

    rejected = decode(server, {"id": "string"}, [value], policy=SchemaPolicy("reject"))
    assert "field 'amount' is not declared" in rejected.reasons[0]
    rescued = decode(server, {"id": "string"}, [value], rescue_column="rest")
    assert rescued.rows["rest"].to_pylist() == ['{"amount": 5, "lines": []}']
    failing = decode(server, {"id": "string"}, [value], policy=SchemaPolicy("fail"))
    assert "amount" in failing.refusals[0]


def test_the_last_member_of_a_oneof_counts_and_parts_of_a_message_are_joined(
    server: FaultyRegistry,
) -> None:
    schema = """
        syntax = "proto3";
        message M { oneof one { int32 a = 1; P b = 2; } P c = 3; repeated int32 d = 4; }
        message P { int32 x = 1; int32 y = 2; }
    """
    server.answers["/schemas/ids/7"] = {"schemaType": "PROTOBUF", "schema": schema}
    x, y = number(1, 1), number(2, 2)
    bodies = [
        text(2, x) + number(1, 5) + text(2, y),
        text(2, x) + text(2, y) + text(3, y) + number(4, 1) + text(3, x),
        number(1, 0) + number(4, 1) + text(4, b"\x02\x03") + number(4, 4),
        text(2, x) + number(1, 0),
    ]
    columns = {
        "a": "int",
        "b": "struct<x int, y int>",
        "c": "struct<x int, y int>",
        "d": "array<int>",
    }
    for copies in (1, 20):  # many messages are divided in rounds
        values: list[bytes | None] = [framed(7, (0,), body) for body in bodies * copies]
        rows = decode(server, columns, values).rows.to_pylist()
        assert rows[:4] == [
            {"a": None, "b": {"x": 0, "y": 2}, "c": None, "d": []},
            {"a": None, "b": {"x": 1, "y": 2}, "c": {"x": 1, "y": 2}, "d": [1]},
            {"a": 0, "b": None, "c": None, "d": [1, 2, 3, 4]},
            {"a": 0, "b": None, "c": None, "d": []},
        ]
        assert rows == rows[:4] * copies


def test_a_value_that_does_not_fit_its_column_is_rejected(server: FaultyRegistry) -> None:
    wide = ORDER.replace("int32 amount = 2", "int64 amount = 2")
    server.answers["/schemas/ids/2"] = {"schemaType": "PROTOBUF", "schema": wide}
    values: list[bytes | None] = [framed(2, ORDERS, order("a", n)) for n in (1, 2**40)]
    decoded = decode(server, {"id": "string", "amount": "int"}, values)
    assert decoded.accepted.tolist() == [0]
    assert decoded.reasons[0].code == "invalid_value"
    assert decoded.reasons[0].column == "amount"


def test_bytes_of_fields_without_a_column_are_not_looked_at(server: FaultyRegistry) -> None:
    value = framed(1, ORDERS, order("a", 5) + text(3, b"\xff"))
    assert decode(server, {"id": "string"}, [value]).rows.to_pylist() == [{"id": "a"}]


def test_a_small_message_that_becomes_large_is_rejected(server: FaultyRegistry) -> None:
    fields = "".join(f" double d{n} = {n};" for n in range(1, 500))
    schema = f'syntax = "proto3"; message M {{ repeated W w = 1; message W {{{fields} }} }}'
    server.answers["/schemas/ids/5"] = {"schemaType": "PROTOBUF", "schema": schema}
    bomb, good = framed(5, (0,), text(1, b"") * 50_000), framed(5, (0,), text(1, b""))
    decoded = decode(
        server,
        {"w": "array<struct<d1 double>>"},
        [bomb, good],
        record_limit_bytes=1 << 20,
    )
    assert decoded.accepted.tolist() == [1]
    assert decoded.reasons[0].code == "too_large"
    assert "decode.record_limit_bytes" in decoded.reasons[0]


def test_keys_of_tombstones_may_be_messages(server: FaultyRegistry) -> None:
    key_schema = 'syntax = "proto3"; message Key { string id = 1; optional string day = 2; }'
    bare_schema = 'syntax = "proto3"; message Key { string id = 1; }'
    for schema_id, schema in ((8, key_schema), (9, bare_schema)):
        server.answers[f"/schemas/ids/{schema_id}"] = {"schemaType": "PROTOBUF", "schema": schema}
    columns = parse_schema({"id": "string", "day": "string", "amount": "int"})
    values = ProtobufDecoder(columns, framing=RegistryMessage(registry(server)))
    keys = TombstoneKeyDecoder.for_table("protobuf", values, ("id", "day"))
    given = [
        framed(8, (0,), text(1, "a") + text(2, "x")),
        framed(8, (0,), text(1, "b")),
        framed(9, (0,), text(1, "c")),
        b"d",
    ]
    decoded = keys.decode(pa.array(given))
    assert decoded.rows.to_pylist() == [
        {"id": "a", "day": "x"},
        {"id": "b", "day": None},
        {"id": "c", "day": None},
    ]
    assert decoded.reasons[0].startswith("Kafka key: the value does not begin with the byte 0")
    assert keys.find_absent(pa.array(given[:3]), "day").tolist() == [False, False, True]
    with pytest.raises(InvalidConfig, match="tombstone keys are protobuf, but values are not"):
        TombstoneKeyDecoder.for_table("protobuf", JsonDecoder(columns), ("id",))


def test_references_and_well_known_types_are_found(server: FaultyRegistry) -> None:
    item = 'syntax = "proto3"; package shop; message Item { Kind kind = 1; } enum Kind { A = 0; }'
    main = """
        syntax = "proto3";
        package shop.sub;
        import "item.proto";
        import "google/protobuf/timestamp.proto";
        import "confluent/meta.proto";
        message M { Item item = 1; .google.protobuf.Timestamp at = 2; shop.Kind kind = 3; }
    """
    stored = StoredSchema(main, (Reference("item.proto", StoredSchema(item)),))
    found = load_stored("it", stored, (0,))
    assert isinstance(found, WriterMessage), found
    assert column_types(found.type.arrow) == pa.schema(
        [
            pa.field("item", pa.struct([pa.field("kind", pa.string())])),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("kind", pa.string()),
        ]
    )
    alone = load_stored("it", StoredSchema(main), (0,))
    assert alone == "it: type Item is not declared, and no schema that is referred to declares it"


def test_syntax_of_files_that_have_no_effect_on_columns_is_skipped() -> None:
    schema = """
        /* a file */ syntax = 'proto2'; // its syntax
        package m;
        option java_package = "a;b"; option (x.y).z = { text: "}" list: [1, 2]; };
        extend google.protobuf.FieldOptions { optional string note = 50000; }
        message M {
          option deprecated = true;
          extensions 100 to 199, 500 to max;
          reserved 2, 9 to 11; reserved "old", 'older';
          required string id = 0x1 [(note) = "];", deprecated = true];
          optional E e = 03 [default = B];
          repeated int32 many = 4 [packed = true];;
          enum E { option allow_alias = true; reserved 7; A = 1 [(n) = 1]; B = -2; C = 1; }
          message Inner {}
          optional group_name group = 5;
          oneof choice { option (o) = 1; string message = 6; Inner inner = 7; }
          extend M { optional int32 more = 100; }
          map < string , Inner > optional = 8;
          message group_name { optional float x = 1; }
        }
        service S { rpc Get (M) returns (stream M) { option (http) = { get: "/" }; } }
    """
    assert columns_of(schema) == pa.schema(
        [
            pa.field("id", pa.string()),
            pa.field("e", pa.string()),
            pa.field("many", pa.list_(pa.field("element", pa.int32()))),
            pa.field("group", pa.struct([pa.field("x", pa.float32())])),
            pa.field("message", pa.string()),
            pa.field("inner", pa.bool_()),
            pa.field("optional", pa.map_(pa.string(), pa.field("value", pa.bool_()))),
        ]
    )


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("message M { repeated group G = 1 { } }", "field 'G' is a group"),
        ('edition = "2023"; message M { int32 a = 1; }', "editions are not supported"),
        ('syntax = "proto4"; message M { int32 a = 1; }', "the syntax 'proto4'"),
        ("message M { int32 a = 1;", "line 1: the text ends early"),
        ("message M { int32 a = 1; } /* ", "line 1: a comment is not closed"),
        ("message M { int32 a = one; }", "expected an integer, found 'one'"),
        ("message M { Missing a = 1; }", "type Missing is not declared"),
        ("message M { int32 a = 1; int32 b = 1; }", "the same name or the same number"),
        ("message M { int32 a = 0; }", "a number that no field may have"),
        ("message M { map<double, int32> a = 1; }", "double is no type of keys"),
        ("message M {}", "message M has no fields"),
        ("message N { int32 a = 1; }", "there is no message M; the messages are N"),
        ("message M { E e = 1; enum E {} }", "enum M.E has no values"),
        ("message M { " * 40, "nested more than 32 levels"),
        (
            "".join(f"message M{n or ''} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(20))
            + "message M20 { int32 a = 1; }",
            "more than 10000 fields",
        ),
    ],
)
def test_a_schema_that_is_not_supported_is_refused_with_the_reason(
    schema: str, reason: str
) -> None:
    found = load_stored("it", StoredSchema(schema), "M")
    assert isinstance(found, str), found
    assert reason in found
    assert found.code == "unknown_schema"


def test_types_are_found_from_the_inside_outwards() -> None:
    schema = """
        syntax = "proto3"; package m;
        message T { int32 outer = 1; }
        message M { message T { int32 inner = 1; } T near = 1; .m.T far = 2; m.T named = 3; }
    """
    names = {field.name: field.type.names for field in columns_of(schema)}
    assert names == {"near": ["inner"], "far": ["outer"], "named": ["outer"]}


def test_a_known_type_cannot_be_declared_otherwise() -> None:
    schema = """
        package google.protobuf;
        message M { optional Timestamp at = 1; } message Timestamp { optional string x = 1; }
    """
    assert columns_of(schema, "google.protobuf.M").field("at").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("body", [b"", b"\xff", b"{}", text(1, "a.proto"), text(1, text(4, "M"))])
def test_bytes_that_are_no_descriptors_are_refused(body: bytes) -> None:
    found = load_declared(body, "M")
    assert isinstance(found, str), found
    assert "decode.descriptors: " in found


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(-62_135_596_801, 0), (253_402_300_800, 0), (0, -1), (0, 10**9)]
)
def test_a_timestamp_that_is_out_of_range_is_rejected(
    server: FaultyRegistry, seconds: int, nanos: int
) -> None:
    schema = """
        syntax = "proto3"; import "google/protobuf/timestamp.proto";
        message M { google.protobuf.Timestamp at = 1; }
    """
    server.answers["/schemas/ids/6"] = {"schemaType": "PROTOBUF", "schema": schema}
    values: list[bytes | None] = [
        framed(6, (0,), text(1, number(1, one) + number(2, other)))
        for one, other in ((seconds, nanos), (0, 0))
    ]
    decoded = decode(server, {"at": "timestamp"}, values)
    assert decoded.accepted.tolist() == [1]
    assert "field 'at': the timestamp is out of range" in decoded.reasons[0]


def test_a_column_type_that_no_table_has_is_refused(server: FaultyRegistry) -> None:
    with pytest.raises(InvalidConfig, match="Protocol Buffers are not decoded to"):
        ProtobufDecoder(
            pa.schema([("a", pa.duration("us"))]), framing=RegistryMessage(registry(server))
        )


MIXED = """
    syntax = "proto3"; import "google/protobuf/duration.proto";
    message M {
      oneof one { string id = 1; int32 number = 2; }
      repeated int32 many = 3;
      map<string, int32> counts = 4;
      google.protobuf.Duration length = 5;
    }
"""


@pytest.mark.parametrize("copies", [1, 40])  # many messages are divided in rounds
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (text(1, "a") + text(3, b""), {"id": "a", "many": []}),
        (
            text(4, text(1, "k") + number(2, 5) + number(7, 1)),
            {"counts": [("k", 5)]},  # the entry has a field that its type lacks
        ),
        (text(1, b"\xff") + text(1, "a"), "field 'id': the text is not UTF-8"),
        (text(1, b"\xff") + number(2, 1), "field 'id': the text is not UTF-8"),
        (b"\x4b\x00\x00\x4c", "a field has a number or a wire type that does not exist"),
        (b"\x4b\x08\x00\x4c" + number(2, 1), {"number": 1}),  # a group that the type lacks
        (text(5, number(2, -(2**31))), "field 'length': the duration is out of range"),
    ],
)
def test_rare_encodings_are_read_or_rejected(
    server: FaultyRegistry, body: bytes, expected: dict[str, Any] | str, copies: int
) -> None:
    server.answers["/schemas/ids/7"] = {"schemaType": "PROTOBUF", "schema": MIXED}
    framing = RegistryMessage(registry(server))
    decoder = ProtobufDecoder(columns_of(MIXED, "M"), framing=framing)
    decoded = decoder.decode(pa.array([framed(7, (0,), body)] * copies))
    if isinstance(expected, str):
        assert len(decoded.reasons) == copies
        assert expected in decoded.reasons[0]
    else:
        empty: dict[str, Any] = {
            "id": None,
            "number": None,
            "many": [],
            "counts": [],
            "length": None,
        }
        assert decoded.rows.to_pylist() == [empty | expected] * copies


def test_a_message_with_many_groups_is_walked_once(
    server: FaultyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[FieldWalk] = []

    class CountedWalk(FieldWalk):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            walks.append(self)

    monkeypatch.setattr("transforms.decode.protobuf.fields.FieldWalk", CountedWalk)
    group = b"\x4b\x4c"
    body = text(1, "a") + 100 * group + number(2, 5) + group + text(1, "b")
    broken = text(1, "c") + group + number(2, 5) + b"\x4b"
    values: list[bytes | None] = [framed(1, ORDERS, body), framed(1, ORDERS, broken)]
    decoded = decode(server, {"id": "string", "amount": "int"}, values * 20)
    assert decoded.rows.to_pylist() == [{"id": "b", "amount": 5}] * 20
    assert len(decoded.reasons) == 20
    assert len(walks) == 40
