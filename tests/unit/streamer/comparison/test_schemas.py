from __future__ import annotations

import pyarrow as pa

from lakemark.model.meta_columns import with_meta_columns
from streamer.comparison.report import type_text
from streamer.comparison.schemas import compare_schemas


def described(old: pa.Schema, new: pa.Schema) -> list[tuple[str, str, str]]:
    types = compare_schemas(old, new).types
    return [(one.path, type_text(one.old), type_text(one.new)) for one in types]


def test_order_nullability_and_meta_columns_are_no_difference() -> None:
    old = pa.schema([("a", pa.int32()), pa.field("b", pa.string(), nullable=False)])
    new = with_meta_columns(pa.schema([("b", pa.string()), ("a", pa.int32())]))
    found = compare_schemas(old, new)
    assert found.is_equal
    assert found.compared.names == ["a", "b"]


def test_columns_of_one_table_are_listed_unless_they_are_ignored() -> None:
    old, new = pa.schema([("a", pa.int32()), ("b", pa.int32())]), pa.schema([("c", pa.int32())])
    found = compare_schemas(old, new, ["b"])
    assert (found.only_old, found.only_new) == (("a",), ("c",))


def test_types_are_compared_in_the_wider_one() -> None:
    old = pa.schema(
        [
            ("n", pa.int32()),
            ("d", pa.decimal128(10, 2)),
            ("at", pa.timestamp("ms", "UTC")),
            ("s", pa.string()),
        ]
    )
    new = pa.schema(
        [
            ("n", pa.int64()),
            ("d", pa.decimal128(12, 4)),
            ("at", pa.timestamp("us", "UTC")),
            ("s", pa.bool_()),
        ]
    )
    found = compare_schemas(old, new)
    assert found.compared == pa.schema(
        [("n", pa.int64()), ("d", pa.decimal128(12, 4)), ("at", pa.timestamp("us", "UTC"))]
    )
    assert found.not_compared == ("s",)
    assert ("n", "int", "bigint") in described(old, new)
    assert len(found.types) == 4


def test_differences_in_nested_types_are_named_by_path() -> None:
    old = pa.struct([("zip", pa.int32()), ("codes", pa.list_(pa.int32())), ("x", pa.string())])
    new = pa.struct([("codes", pa.list_(pa.int64())), ("zip", pa.string()), ("y", pa.string())])
    kinds = [pa.schema([("m", pa.map_(pa.string(), one))]) for one in (old, new)]
    assert described(*kinds) == [
        ("m{}.zip", "int", "string"),
        ("m{}.codes[]", "int", "bigint"),
        ("m{}.x", "string", "absent"),
        ("m{}.y", "absent", "string"),
    ]
    assert compare_schemas(*kinds).not_compared == ("m",)
