from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.schema.canonical import canonical
from lakemark.schema.table_columns import check_columns
from transforms.schema_text import (
    TYPES,
    ColumnType,
    parse_schema,
    parse_type,
    print_schema,
)

words = st.sampled_from(
    ["string", "int", "bigint", "float", "double", "boolean", "binary", "date", "timestamp"]
) | st.builds(
    lambda precision, scale: f"decimal({precision},{min(precision, scale)})",
    st.integers(1, 38),
    st.integers(0, 38),
)
texts = st.recursive(
    words,
    lambda inner: (
        inner.map(lambda text: f"array<{text}>")
        | st.dictionaries(st.sampled_from(["a", "b1", "_c"]), inner, min_size=1).map(
            lambda fields: f"struct<{','.join(f'{n}:{t}' for n, t in fields.items())}>"
        )
    ),
    max_leaves=5,
)


@pytest.mark.parametrize("column_type", TYPES, ids=lambda column_type: column_type.name)
def test_every_listed_type_and_synonym_is_accepted(column_type: ColumnType) -> None:
    example = {"array<type>": "array<int>", "struct<name:type,...>": "struct<a:int>"}
    declared = example.get(column_type.name, column_type.name.replace("(p,s)", "(10,2)"))
    parsed = parse_type("c", declared)
    assert column_type.arrow is None or parsed == column_type.arrow
    for other in column_type.synonyms:
        synonym = declared.replace(column_type.name.partition("(")[0], other)
        assert parse_type("c", synonym) == parsed


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["id", "at", "x_1"]), texts, min_size=1))
def test_printed_schema_equals_the_declaration(columns: dict[str, str]) -> None:
    schema = parse_schema(columns)
    assert print_schema(schema) == columns
    assert schema == canonical(schema)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LONG", pa.int64()),
        ("Integer", pa.int32()),
        ("real", pa.float32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("decimal(18, 2)", pa.decimal128(18, 2)),
        ("dec( 4 , 0 )", pa.decimal128(4, 0)),
        (" array < array<int> > ", pa.list_(pa.list_(pa.int32()))),
        ("STRUCT<a: INT, `b c` string>", pa.struct([("a", pa.int32()), ("b c", pa.string())])),
    ],
)
def test_ddl_types_of_spark_are_accepted(text: str, expected: pa.DataType) -> None:
    assert parse_type("c", text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "text", "int int", "array", "array<>", "array<int", "array<int>>", "struct<>"),
        *("struct<a>", "struct<a:int,>", "map<string,int>", "decimal(39,2)", "decimal(2,3)"),
        *("decimal(0)", "decimal(a,b)", "decimal(-1)", "decimal(²)", "int!", "`int"),
    ],
)
def test_message_for_an_invalid_type_lists_the_valid_types(text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_schema({"fine": "int", "wrong": text})
    message = str(caught.value)
    assert "'wrong'" in message
    assert repr(text) in message
    assert "accepted are string, int, bigint" in message


@pytest.mark.parametrize("text", ["decimal", "dec", "decimal(18)", "array<decimal>"])
def test_decimal_without_precision_and_scale_is_refused(text: str) -> None:
    expected = r"'amount': .* needs its precision and scale, such as decimal\(18, 2\)"
    with pytest.raises(InvalidConfig, match=expected):
        parse_type("amount", text)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "at least one column"),
        ({"user-id": "int"}, "user-id"),
        ({"a": "struct<1b:int>"}, "a.1b"),
        ({"_hoodie_record_key": "string"}, "_hoodie_record_key"),
        ({"id": "int", "ID": "int"}, "'id' and 'ID' differ only by case"),
        ({"a": "array<struct<b:int,B:int>>"}, "'a.b' and 'a.B' differ only by case"),
        ({"a": "struct<b:int,b:int>"}, "a.b"),
    ],
)
def test_invalid_column_names_are_refused(columns: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse_schema(columns)


def test_message_names_the_column_whose_type_cannot_be_declared() -> None:
    schema = check_columns(pa.schema([("m", pa.map_(pa.string(), pa.int32()))]))
    with pytest.raises(InvalidConfig, match="'m' cannot be declared as map"):
        print_schema(schema)
