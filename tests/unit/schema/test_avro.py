"""Avro schemas equal Apache Hudi's, and a damaged schema raises only a typed error."""

from __future__ import annotations

import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import CorruptData, InvalidConfig, Unsupported
from lakemark.model.meta_columns import without_meta_columns
from lakemark.schema.avro import canonical, record_name, to_arrow, to_avro, to_json
from tests.depth import examples
from tests.unit.schema.strategies import SCHEMAS

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("file", "table"),
    [("v9_mor_avro_bucket.avsc", "v9_mor_avro_bucket"), ("nested_by_spark.avsc", "t")],
)
def test_a_schema_printed_by_apache_is_printed_the_same(file: str, table: str) -> None:
    printed = (GOLDEN / file).read_text("utf-8")
    assert to_json(to_avro(to_arrow(printed), table)) == printed


def test_columns_as_spark_hands_them_over_become_apaches_schema() -> None:
    """Arrow types that Spark passes become the types that Spark SQL wrote.

    The schema of Spark SQL is ``nested_by_spark.avsc``.
    """
    columns = pa.schema(
        [
            pa.field("id", pa.large_string(), nullable=False),
            ("b", pa.int8()),
            ("s", pa.int16()),
            ("i", pa.int32()),
            ("l", pa.int64()),
            ("f", pa.float32()),
            ("d", pa.float64()),
            ("bo", pa.bool_()),
            ("bin", pa.large_binary()),
            ("da", pa.date32()),
            ("ts", pa.timestamp("ns", "Europe/Paris")),
            ("tn", pa.timestamp("s")),
            ("d1", pa.decimal128(5, 0)),
            ("d2", pa.decimal256(38, 18)),
            ("ad", pa.list_(pa.decimal128(10, 2))),
            ("aa", pa.large_list(pa.list_(pa.int32()))),
            ("st", _nested_struct()),
            ("ms", pa.map_(pa.string(), pa.struct({"v": pa.int64(), "w": pa.decimal128(4, 1)}))),
            ("ast", pa.list_(pa.struct({"k": pa.string(), "t": pa.timestamp("ms", "UTC")}))),
            ("größe", pa.int32()),
        ]
    )
    printed = (GOLDEN / "nested_by_spark.avsc").read_text("utf-8")
    assert to_json(to_avro(canonical(columns), "t")) == printed


def _nested_struct() -> pa.StructType:
    leaf = pa.list_(pa.struct({"z": pa.int32()}))
    inner = pa.struct([pa.field("x", pa.string(), nullable=False), ("y", leaf)])
    return pa.struct([("a", pa.int32()), ("d", pa.decimal128(20, 3)), ("inner", inner)])


def test_meta_columns_are_left_out_of_what_a_commit_records() -> None:
    whole = to_arrow((GOLDEN / "v9_mor_avro_bucket.avsc").read_text())
    fields = to_avro(without_meta_columns(whole), "t")["fields"]
    assert isinstance(fields, list)
    assert [field["name"] for field in fields][:2] == ["id", "region"]


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("orders", "orders"),
        ("my-table", "my__table"),
        ("1st.table", "__st__table"),
        ("über", "__ber"),
    ],
)
def test_a_table_name_is_converted_to_an_avro_name_as_apache_does(table: str, name: str) -> None:
    assert record_name(table) == (f"{name}_record", f"hoodie.{name}")


@settings(max_examples=examples(60), deadline=None)
@given(SCHEMAS)
def test_arrow_survives_the_way_through_avro(schema: pa.Schema) -> None:
    avro = to_avro(schema, "t")
    fastavro.parse_schema(json.loads(to_json(avro)))
    assert to_arrow(avro) == schema
    assert to_arrow(to_json(avro)) == schema
    assert to_avro(to_arrow(avro), "t") == avro


@pytest.mark.parametrize(
    ("avro", "arrow"),
    [
        (["string", "null"], pa.field("c", pa.string())),
        (["string"], pa.field("c", pa.string(), nullable=False)),
        ({"type": {"type": "long"}}, pa.field("c", pa.int64(), nullable=False)),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.field("c", pa.string(), False)),
        ({"type": "fixed", "name": "f", "size": 3}, pa.field("c", pa.binary(3), False)),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            pa.field("c", pa.decimal128(9, 2), False),
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            pa.field("c", pa.timestamp("ms", "UTC"), False),
        ),
        ({"type": "string", "logicalType": "uuid"}, pa.field("c", pa.string(), False)),
        ({"type": "string", "avro.java.string": "String"}, pa.field("c", pa.string(), False)),
    ],
)
def test_schemas_of_other_writers_are_read(avro: object, arrow: pa.Field) -> None:
    assert to_arrow(_record(avro)) == pa.schema([arrow])


def test_a_named_type_may_be_used_again() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    schema = _record(point) | {
        "namespace": "shop",
        "fields": [
            {"name": "a", "type": point},
            {"name": "b", "type": ["null", "Point"]},
            {"name": "c", "type": "shop.Point"},
        ],
    }
    struct = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    assert to_arrow(schema).types == [struct, struct, struct]


@pytest.mark.parametrize(
    "avro",
    [
        ["int", "string"],
        ["null"],
        "r",
        {"type": "array", "items": ["null", "r"]},
        {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 2},
    ],
    ids=str,
)
def test_a_type_without_arrow_equivalent_is_refused(avro: object) -> None:
    with pytest.raises(Unsupported):
        to_arrow(_record(avro))


@pytest.mark.parametrize("arrow", [pa.null(), pa.duration("s"), pa.map_(pa.int32(), pa.int32())])
def test_a_type_that_avro_does_not_have_is_refused_by_name(arrow: pa.DataType) -> None:
    schema = pa.schema([("outer", pa.struct([("inner", arrow)]))])
    with pytest.raises(InvalidConfig, match=r"outer\.inner"):
        to_avro(schema, "t")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just("record"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "size", "logicalType"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(90), deadline=None)
@given(st.dictionaries(st.sampled_from(["type", "name", "fields"]), JSON) | JSON.map(json.dumps))
def test_no_json_crashes_the_reader(avro: dict[str, object] | str) -> None:
    try:
        schema = to_arrow(avro)
    except (CorruptData, Unsupported):
        return
    assert schema.empty_table().schema == schema, "what is read can hold rows"


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_no_damaged_schema_crashes_the_reader(data: st.DataObject) -> None:
    text = (GOLDEN / "nested_by_spark.avsc").read_text("utf-8")
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.text(max_size=2)) + text[at + data.draw(st.integers(0, 9)) :]
    try:
        schema = to_arrow(damaged)
    except (CorruptData, Unsupported):
        return
    assert schema.empty_table().schema == schema, "what is read can hold rows"


def test_endless_nesting_is_corrupt() -> None:
    avro: object = "int"
    for _ in range(10_000):
        avro = {"type": "array", "items": avro}
    with pytest.raises(CorruptData):
        to_arrow(_record(avro))


def _record(avro: object) -> dict[str, object]:
    return {"type": "record", "name": "r", "fields": [{"name": "c", "type": avro}]}
