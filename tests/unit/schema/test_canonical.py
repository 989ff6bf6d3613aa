"""Incoming columns get types that Hudi on Spark supports; an error names other columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from lakemark.errors import InvalidConfig
from lakemark.schema.avro import canonical, to_avro
from tests.depth import examples
from tests.unit.schema.strategies import SCHEMAS


@pytest.mark.parametrize(
    ("incoming", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.binary(4), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.timestamp("s", "America/New_York"), pa.timestamp("us", "UTC")),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.decimal256(20, 2), pa.decimal128(20, 2)),
        (pa.list_(pa.int8(), 3), pa.list_(pa.int32())),
        (pa.map_(pa.large_string(), pa.uint8()), pa.map_(pa.string(), pa.int32())),
        (pa.struct([("a", pa.timestamp("ms"))]), pa.struct([("a", pa.timestamp("us"))])),
    ],
    ids=str,
)
def test_a_type_becomes_one_that_can_be_stored(incoming: pa.DataType, stored: pa.DataType) -> None:
    assert canonical(pa.schema([("c", incoming)])) == pa.schema([("c", stored)])
    assert to_avro(canonical(pa.schema([("c", incoming)])), "t")


@pytest.mark.parametrize(
    "refused",
    [
        pa.null(),
        pa.duration("us"),
        pa.time64("us"),
        pa.map_(pa.int64(), pa.string()),
        pa.decimal256(39, 0),
        pa.decimal128(5, -2),
        pa.struct([]),
        pa.struct([("member0", pa.int32()), ("member1", pa.string())]),  # Hudi makes it a union
        pa.dense_union([pa.field("a", pa.int32())]),
    ],
    ids=str,
)
def test_what_cannot_be_stored_is_refused_by_the_columns_name(refused: pa.DataType) -> None:
    nested = pa.schema([("order", pa.struct([("lines", pa.list_(refused))]))])
    with pytest.raises(InvalidConfig, match=r"order\.lines"):
        canonical(nested)


@pytest.mark.parametrize("name", ["a-b", "1a", "a b", "a.b", ""])
def test_a_name_that_apache_refuses_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="rename"):
        canonical(pa.schema([(name, pa.int32())]))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="a occurs twice"):
        canonical(pa.schema([("a", pa.int32()), ("a", pa.int64())]))


@settings(max_examples=examples(40), deadline=None)
@given(SCHEMAS)
def test_what_can_be_stored_is_left_alone(schema: pa.Schema) -> None:
    assert canonical(schema) == schema
