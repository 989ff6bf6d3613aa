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


@pytest.mark.parametrize("one", TYPES, ids=lambda one: one.name)
def test_every_listed_type_and_synonym_is_accepted(one: ColumnType) -> None:
    example = {"array<type>": "array<int>", "struct<name:type,...>": "struct<a:int>"}
    declared = example.get(one.name, one.name.replace("(p,s)", "(10,2)"))
    parsed = parse_type("c", declared)
    assert one.arrow is None or parsed == one.arrow
    for other in one.synonyms:
        assert parse_type("c", declared.replace(one.name.partition("(")[0], other)) == parsed


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["id", "at", "x_1"]), texts, min_size=1))
def test_a_declaration_is_printed_as_it_was_read(columns: dict[str, str]) -> None:
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
def test_what_spark_reads_is_read(text: str, expected: pa.DataType) -> None:
    assert parse_type("c", text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "text", "int int", "array", "array<>", "array<int", "array<int>>", "struct<>"),
        *("struct<a>", "struct<a:int,>", "map<string,int>", "decimal(39,2)", "decimal(2,3)"),
        *("decimal(0)", "decimal(a,b)", "decimal(-1)", "decimal(²)", "int!", "`int"),
    ],
)
def test_a_wrong_type_is_refused_with_the_right_ones(text: str) -> None:
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
    ("columns", "told"),
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
def test_names_that_no_table_can_have_are_refused(columns: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        parse_schema(columns)


def test_a_type_without_a_text_is_told_by_its_column() -> None:
    schema = check_columns(pa.schema([("m", pa.map_(pa.string(), pa.int32()))]))
    with pytest.raises(InvalidConfig, match="'m' cannot be declared as map"):
        print_schema(schema)
