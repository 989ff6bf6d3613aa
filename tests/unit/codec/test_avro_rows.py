"""Rows in Avro binary agree with an independent codec, row by row and in both directions."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.avro_rows import decode_rows, encode_rows
from lakemark.errors import CorruptData, InvalidRecords
from lakemark.schema.avro import to_arrow, to_avro
from tests.depth import examples
from tests.unit.schema.strategies import SCHEMAS, rows

GOLDEN = Path(__file__).parent / "golden"


def raw(avro: object) -> object:
    """Return the schema without logical types, with which values are read as they are stored."""
    if isinstance(avro, list):
        return [raw(branch) for branch in avro]
    if isinstance(avro, dict):
        return {key: raw(value) for key, value in avro.items() if key != "logicalType"}
    return avro


@settings(max_examples=examples(45), deadline=None)
@given(st.data())
def test_what_is_written_is_what_an_independent_codec_writes(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    table = data.draw(rows(schema))
    avro = to_avro(schema, "t")
    datums, offsets = encode_rows(table, avro)
    parsed = fastavro.parse_schema(raw(avro))  # type: ignore[arg-type]
    for row, start, end in zip(range(table.num_rows), offsets[:-1], offsets[1:], strict=True):
        stream = BytesIO(datums[start:end].tobytes())
        read = fastavro.schemaless_reader(stream, parsed, None)
        again = BytesIO()
        fastavro.schemaless_writer(again, parsed, read)
        assert stream.tell() == end - start
        assert again.getvalue() == datums[start:end].tobytes(), row
    back = decode_rows(datums, offsets[:-1], offsets[1:], avro)
    assert back.equals(table.cast(schema))


def test_a_reader_of_avro_sees_the_rows() -> None:
    """An independent Avro reader gets logical types and nulls at each level as Python values."""
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("price", pa.decimal128(12, 2)),
            ("seen", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("tags", pa.list_(pa.string())),
            ("attrs", pa.map_(pa.string(), pa.int64())),
            ("pos", pa.struct({"lat": pa.float64(), "way": pa.list_(pa.int32())})),
        ]
    )
    table = _example(schema)
    datums, offsets = encode_rows(table, to_avro(schema, "t"))
    parsed = fastavro.parse_schema(to_avro(schema, "t"))
    stream = BytesIO(datums.tobytes())
    read = [fastavro.schemaless_reader(stream, parsed, None) for _ in range(table.num_rows)]
    expected = table.to_pylist()
    for row in expected:
        row["attrs"] = None if row["attrs"] is None else dict(row["attrs"])
    assert read == expected
    assert offsets[-1] == len(datums)


def _example(schema: pa.Schema) -> pa.Table:
    texts = {
        "id": ["a", None, "größe"],
        "price": ["-0.01", None, "12345678.90"],
        "seen": ["2026-01-02T03:04:05.000006Z", None, "1969-12-31T23:59:59Z"],
        "day": ["2026-01-02", "1969-12-31", None],
    }
    columns = [pa.array(values).cast(schema.field(name).type) for name, values in texts.items()]
    columns += [
        pa.array([["x", None], [], None], schema.field("tags").type),
        pa.array([None, [("k", 1), ("l", None)], []], schema.field("attrs").type),
        pa.array(
            [{"lat": 0.5, "way": [1, None]}, None, {"lat": None, "way": None}], schema[6].type
        ),
    ]
    return pa.table(columns, schema=schema)


def test_a_block_written_by_apache_is_read_and_written_again_the_same() -> None:
    content = (GOLDEN / "avro_data_block.bin").read_bytes()
    avro = json.loads((GOLDEN / "avro_data_block.avsc").read_text())
    starts, ends, at = [], [], 8
    for _ in range(struct.unpack_from(">i", content, 4)[0]):
        starts.append(at + 4)
        at += 4 + struct.unpack_from(">i", content, at)[0]
        ends.append(at)
    table = decode_rows(memoryview(content), starts, ends, avro)
    assert table["region"].to_pylist() == ["r1"] * table.num_rows
    datums, offsets = encode_rows(table, avro)
    theirs = [content[start:end] for start, end in zip(starts, ends, strict=True)]
    assert np.diff(offsets).tolist() == [len(datum) for datum in theirs]
    assert datums.tobytes() == b"".join(theirs)


@pytest.mark.parametrize(
    ("avro", "values", "written"),
    [
        (["string", "null"], ["a", None], b"\x00\x02a\x02"),
        (["long"], [1, -1], b"\x00\x02\x00\x01"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["B", "A"], b"\x02\x00"),
        ({"type": "fixed", "name": "f", "size": 2}, [b"ab", b"cd"], b"abcd"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 0},
            [128, -128],
            b"\x04\x00\x80\x02\x80",
        ),
        (
            {"type": "fixed", "name": "f", "size": 20, "logicalType": "decimal", "precision": 4},
            [1, -2],
            b"\x00" * 19 + b"\x01" + b"\xff" * 19 + b"\xfe",
        ),
    ],
    ids=str,
)
def test_types_of_other_writers(avro: object, values: list[object], written: bytes) -> None:
    schema: dict[str, object] = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "c", "type": avro}],
    }
    table = pa.table({"c": pa.array(values, to_arrow(schema).field("c").type)})
    datums, offsets = encode_rows(table, schema)
    assert datums.tobytes() == written
    back = decode_rows(datums, offsets[:-1], offsets[1:], schema)
    assert back["c"].to_pylist() == table["c"].to_pylist()


def test_a_decimal_of_more_digits_than_its_type_is_refused() -> None:
    fixed = {"type": "fixed", "name": "f", "size": 20, "logicalType": "decimal", "precision": 38}
    schema = {"type": "record", "name": "r", "fields": [{"name": "c", "type": fixed}]}
    with pytest.raises(CorruptData):
        decode_rows(memoryview((2**128 + 1).to_bytes(20, "big")), [0], [20], schema)


def test_arrays_in_several_blocks_are_read() -> None:
    """Arrays that Java's blocking encoder has split into blocks, with count and size, are read."""
    first = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"  # -2 items in 2 bytes; 1 item; the end
    second = b"\x00"
    third = b"\x02\x08\x01\x02\x0a\x00"
    ends = np.cumsum([len(first), len(second), len(third)])
    starts = np.concatenate([[0], ends[:-1]])
    data = np.frombuffer(first + second + third, np.uint8)
    read = decode_rows(data, starts, ends, _array_of("long"))
    assert read["c"].to_pylist() == [[1, 2, 3], [], [4, 5]]
    copies, times = np.tile(data, 50), np.repeat(np.arange(50) * len(data), 3)
    starts, ends = np.tile(starts, 50) + times, np.tile(ends, 50) + times
    read = decode_rows(copies, starts, ends, _array_of("long"))
    assert read["c"].to_pylist() == [[1, 2, 3], [], [4, 5]] * 50


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("long", lambda n: n),
        ("string", str),
        ({"type": "array", "items": "int"}, lambda n: [n] * (n % 3)),
    ],
    ids=["long", "string", "array"],
)
def test_rows_with_few_and_with_many_items_are_read_together(
    kind: object, value: Callable[[int], object]
) -> None:
    """The decoder is quick for many short arrays, few long ones, and a very long one."""
    counts = [*[n % 5 for n in range(100)], *range(40), 100_000, 0, 1]
    rows = [{"c": [value(n) for n in range(count)]} for count in counts]
    avro = _array_of(kind)
    parsed = fastavro.parse_schema(avro)
    stream, ends = BytesIO(), []
    for row in rows:
        fastavro.schemaless_writer(stream, parsed, row)
        ends.append(stream.tell())
    began = time.process_time()  # a busy machine takes its time, but does no more
    read = decode_rows(memoryview(stream.getvalue()), [0, *ends[:-1]], ends, avro)
    assert time.process_time() - began < 10, "a fraction of a second, not a round for each item"
    assert read.to_pylist() == rows


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (b"\x04\x04\x80", "ends too early"),
        (b"\x08\x02\x02\x02", "items in their row"),
        (b"\x02\x02\xff\xff\x7f\x00", "do not fit"),
        (b"\x02\x80", "ends too early"),
    ],
    ids=str,
)
def test_items_beyond_the_end_of_their_row_are_refused(row: bytes, fault: str) -> None:
    with pytest.raises(CorruptData, match=fault):
        decode_rows(memoryview(row), [0], [len(row)], _array_of("long"))


def _array_of(kind: object) -> dict[str, object]:
    fields = [{"name": "c", "type": {"type": "array", "items": kind}}]
    return {"type": "record", "name": "r", "fields": fields}


@pytest.mark.parametrize("column", ["c", "s"])
def test_a_null_where_none_is_allowed_is_named(column: str) -> None:
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    strict = pa.schema([pa.field("c", pa.int32(), nullable=False), pa.field("s", inner)])
    loose = pa.schema([("c", pa.int32()), ("s", pa.struct({"x": pa.int32()}))])
    good: dict[str, object] = {"c": 1, "s": {"x": 1}}
    bad: dict[str, object] = {"c": None, "s": {"x": None}}
    table = pa.Table.from_pylist([good | {column: bad[column]}], loose)
    with pytest.raises(InvalidRecords, match=f"column {column}"):
        encode_rows(table, to_avro(strict, "t"))


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_no_damaged_rows_crash_the_reader(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    avro = to_avro(schema, "t")
    whole, offsets = encode_rows(data.draw(rows(schema)), avro)
    damaged = whole.copy()
    for _ in range(data.draw(st.integers(0, 3)) if len(damaged) else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    shift = data.draw(st.integers(-1, 1))
    try:
        read = decode_rows(damaged, offsets[:-1] + shift, offsets[1:] + shift, avro, "a.log")
    except CorruptData as error:
        assert error.path == "a.log"
    else:
        read.validate(full=True)


def test_a_row_must_end_at_its_given_end() -> None:
    avro = to_avro(pa.schema([pa.field("c", pa.int64(), nullable=False)]), "t")
    with pytest.raises(CorruptData, match="the end of the row"):
        decode_rows(np.zeros(2, np.uint8), [0], [2], avro)
    with pytest.raises(CorruptData, match="ten bytes"):
        decode_rows(np.full(12, 0xFF, np.uint8), [0], [12], avro)
