"""JSON whose schema is in a registry."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import evolve
from tests.depth import examples
from tests.schema_registry import FaultyRegistry
from transforms.decode.json_schema import JsonSchemaDecoder
from transforms.decode.json_schema_types import find_columns
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decode.schema_registry import SchemaRegistry
from transforms.decode.stored_schema import Reference, StoredSchema
from transforms.schema_text import parse_schema, print_schema
from transforms.tombstone_keys import TombstoneKeyDecoder

WORDS = [
    *("type", "properties", "items", "oneOf", "anyOf", "allOf", "enum", "const", "$ref", "format"),
    *("title", "connect.type", "connect.parameters", "scale", "connect.decimal.precision"),
]
HUGE_SCALE = {"scale": math.inf}
DECIMAL = {
    "title": "org.apache.kafka.connect.data.Decimal",
    "connect.type": "bytes",
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "12"},
}


def columns(schema: object, *references: tuple[str, object]) -> dict[str, str]:
    stored = [Reference(name, StoredSchema(json.dumps(one))) for name, one in references]
    found = find_columns(StoredSchema(json.dumps(schema), tuple(stored)))
    return {name: str(kind) for name, kind in print_schema(found.columns).items()}


def column(part: object) -> str | None:
    return columns({"type": "object", "properties": {"c": part}}).get("c")


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": ["string", "null"], "format": "date-time"}, "timestamp"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": "string", "connect.type": "bytes"}, "binary"),
        ({"enum": ["a", "b"]}, "string"),
        ({"const": "a"}, "string"),
        ({"type": "integer"}, "bigint"),
        ({"type": "integer", "connect.type": "int16"}, "int"),
        ({"type": "number"}, "double"),
        ({"type": "number", "connect.type": "float32"}, "float"),
        ({"type": "number", **DECIMAL}, "decimal(12,2)"),
        ({"type": ["integer", "number"]}, "double"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}]}, "double"),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "boolean"),
        ({"type": "array", "items": {"type": "string"}}, "array<string>"),
        ({"properties": {"x": {"type": "integer"}, "y": {}}}, "struct<x: bigint>"),
        ({"type": ["string", "integer"]}, None),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, None),
        ({"type": "array"}, None),
        ({"type": "object", "additionalProperties": {"type": "string"}}, None),
        ({"enum": ["a", 1]}, None),
        ({}, None),
        (True, None),
        ({"$ref": "#"}, None),
        ({"$ref": "#/missing"}, None),
        ({"$ref": "elsewhere.json"}, None),
        ({"type": "number", **DECIMAL, "connect.parameters": {}}, None),
    ],
)
def test_a_property_becomes_a_column_of_its_type(part: object, expected: str | None) -> None:
    found = column(part)
    assert (found and found.replace(" ", "")) == (expected and expected.replace(" ", ""))


def test_references_and_all_of_are_followed() -> None:
    base = {"properties": {"id": {"type": "string"}}, "$defs": {"n": {"type": "integer"}}}
    schema = {
        "allOf": [{"$ref": "base.json"}, {"properties": {"a": {"$ref": "#/definitions/a~1b"}}}],
        "properties": {"n": {"$ref": "base.json#/$defs/n"}},
        "definitions": {"a/b": {"type": "boolean"}},
    }
    assert columns(schema, ("base.json", base)) == {"id": "string", "a": "boolean", "n": "bigint"}


@pytest.mark.parametrize("text", ["", "[]", "1", '"a"', "{}", '{"type": "string"}', "[" * 9000])
def test_a_schema_of_no_object_has_no_columns(text: str) -> None:
    assert len(find_columns(StoredSchema(text)).columns) == 0


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 40) | st.sampled_from([math.inf, "null", "object"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(WORDS), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(WORDS), _JSON) | _JSON)
@settings(max_examples=examples(300), deadline=None)
@example({"properties": {"a": {"type": ["string", {"type": "null"}]}}})
@example({"properties": {"a": {"type": "number", **DECIMAL, "connect.parameters": HUGE_SCALE}}})
def test_any_json_may_be_a_schema(schema: object) -> None:
    found = find_columns(StoredSchema(json.dumps(schema)))
    assert isinstance(found.columns, pa.Schema)


def test_parts_that_refer_to_each_other_are_refused() -> None:
    names = [f"T{number}" for number in range(12)]
    references = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    one = {"properties": {"v": {"type": "string"}, **references}}
    schema = {"$ref": "#/$defs/T0", "$defs": dict.fromkeys(names)}
    schema["$defs"] = {name: dict(one) for name in names}
    with pytest.raises(InvalidConfig, match="more than 10000 parts"):
        find_columns(StoredSchema(json.dumps(schema)))


def test_alternatives_do_not_hide_the_properties_next_to_them() -> None:
    required: list[object] = [{"required": ["a"]}, {"required": ["b"]}]
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": required}
    assert columns(schema) == {"a": "string"}
    assert columns({"properties": {"x": schema}}) == {"x": "struct<a:string>"}


def test_properties_without_a_column_are_named() -> None:
    inner = {"properties": {"x": {"type": "string"}, "y": {}}}
    text = {"type": "string"}
    schema = {"properties": {"a": inner, "b": {"type": "array"}, "": text, "_hoodie_x": text}}
    found = find_columns(StoredSchema(json.dumps(schema)))
    assert found.columns.names == ["a", "_hoodie_x"]
    assert found.omitted == ("a.y", "b", "")


@pytest.fixture
def server() -> Iterator[FaultyRegistry]:
    with FaultyRegistry() as running:
        properties = {"id": {"type": "string"}, "at": {"type": "string", "format": "date-time"}}
        text = json.dumps({"type": "object", "properties": properties})
        running.answers["/schemas/ids/1"] = {"schemaType": "JSON", "schema": text}
        yield running


def framed(schema_id: int, value: object) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + json.dumps(value).encode()


def decoder(server: FaultyRegistry, policy: SchemaPolicy) -> JsonSchemaDecoder:
    registry = SchemaRegistry(server.url, retry_timeout_s=0, kind="JSON")
    made = JsonSchemaDecoder(parse_schema({"id": "string"}), policy=policy, registry=registry)
    found = pickle.loads(pickle.dumps(made))
    assert isinstance(found, JsonSchemaDecoder)
    return found


def test_objects_are_decoded_without_asking_the_registry(server: FaultyRegistry) -> None:
    values = [framed(1, {"id": "a"}), b"{}", None, b"", framed(9, {"id": "b"}), framed(1, [1])]
    array = pa.chunked_array([values[:3], values[3:]], pa.binary())
    one = decoder(server, SchemaPolicy())
    decoded = one.decode(array)
    assert decoded.rows.to_pylist() == [{"id": "a"}, {"id": "b"}]
    assert decoded.accepted.tolist() == [0, 4]
    assert decoded.rejected.tolist() == [1, 2, 3, 5]
    assert "Confluent wire format" in decoded.reasons[0]
    ids = one.schema_ids(array)
    assert ids is not None
    assert ids.to_pylist() == [1, None, None, None, 9, 1]
    assert server.asked == []


def test_the_writers_schema_decides_the_types_of_new_columns(server: FaultyRegistry) -> None:
    one = decoder(server, SchemaPolicy("evolve"))
    time, other = {"id": "a", "at": "2024-01-02T03:04:05Z"}, {"id": "b", "n": 1}
    values = pa.array([framed(1, time), framed(9, other), b"{}"])
    decoded = one.decode(values)
    assert decoded.requesting.tolist() == [0, 1]
    evolved = evolve(one.schema, one.propose_columns(values))
    assert evolved.field("at").type == pa.timestamp("us", "UTC")
    assert evolved.field("n").type == pa.int64()


def test_a_column_holds_the_types_of_all_schemas_of_a_batch(server: FaultyRegistry) -> None:
    for schema_id, kind in ((2, "number"), (3, "integer")):
        text = json.dumps({"properties": {"id": {"type": "string"}, "n": {"type": kind}}})
        server.answers[f"/schemas/ids/{schema_id}"] = {"schemaType": "JSON", "schema": text}
    one = decoder(server, SchemaPolicy("evolve"))
    values = [framed(2, {"id": "a", "n": 1.5}), framed(3, {"id": "b", "n": 2})]
    for order in (values, values[::-1]):
        evolved = evolve(one.schema, one.propose_columns(pa.array(order)))
        assert evolved.field("n").type == pa.float64()


def test_keys_of_tombstones_may_have_a_schema_id(server: FaultyRegistry) -> None:
    registry = SchemaRegistry(server.url, retry_timeout_s=0, kind="JSON")
    values = JsonSchemaDecoder(parse_schema({"id": "string", "day": "string"}), registry=registry)
    keys = TombstoneKeyDecoder.for_table("json", values, ("id", "day"))
    given = pa.array([framed(1, {"id": "a", "day": None}), b'{"id": "b"}', None, framed(1, {})])
    decoded = keys.decode(given)
    assert [row["id"] for row in decoded.rows.to_pylist()] == ["a", "b", None]
    assert decoded.rejected.tolist() == [2]
    assert keys.find_absent(given.drop_null(), "day").tolist() == [False, True, True]
