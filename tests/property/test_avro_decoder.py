"""Avro decoding, compared with fastavro, and of random bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.avro_rows import decode_rows
from lakemark.errors import CorruptData
from tests.depth import examples
from transforms.decode.avro import AvroDecoder
from transforms.decode.avro_decoding import find_datum_fault
from transforms.decode.avro_framing import PlainFraming, WriterSchema, load_writer_schema
from transforms.decode.decode_result import DecodeResult
from transforms.decode.schema_differences import column_types
from transforms.decode.stored_schema import StoredSchema

_DAY_US = 86_400_000_000
_TIMES = st.integers(-719_162 * _DAY_US, 2_932_896 * _DAY_US)

#: Types that are not nested, each with its values for fastavro without a logical type.
_LEAVES: list[tuple[object, st.SearchStrategy[object]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=5)),
    ("bytes", st.binary(max_size=5)),
    ({"type": "int", "logicalType": "date"}, st.integers(-719_162, 2_932_896)),
    ({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_399_999)),
    ({"type": "long", "logicalType": "timestamp-micros"}, _TIMES),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, _TIMES),
]

#: Unions of numbers; fastavro uses the first branch that fits a value.
_NUMBERS: list[tuple[object, st.SearchStrategy[object]]] = [
    (["int", "long"], st.integers(-(2**63), 2**63 - 1)),
    (["null", "int", "long"], st.none() | st.integers(-(2**33), 2**33)),
    (["int", "null", "double"], st.none() | st.integers(-9, 9) | st.floats(allow_nan=False)),
]


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> tuple[object, st.SearchStrategy[Any]]:
    """Draw a type, and a strategy for its values."""
    number = draw(st.integers(0, len(_LEAVES) + (6 if depth else 2)))
    if number < len(_LEAVES):
        return _LEAVES[number]
    name = f"t{draw(st.uuids()).hex}"
    if number == len(_LEAVES):
        symbols = ["A", "B"]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if number == len(_LEAVES) + 1:
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    if number == len(_LEAVES) + 2:
        optional = [(["null", kind], st.none() | values) for kind, values in _LEAVES]
        return draw(st.sampled_from([*optional, *_NUMBERS]))
    inner, values = draw(types(depth - 1))
    if number == len(_LEAVES) + 3:
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if number == len(_LEAVES) + 4:
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=2), values)
    return draw(records(depth - 1))


@st.composite
def records(draw: st.DrawFn, depth: int = 2) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    """Draw a record, and a strategy for its values."""
    members = {f"f{n}": draw(types(depth)) for n in range(draw(st.integers(1, 4)))}
    fields = [{"name": name, "type": kind} for name, (kind, _) in members.items()]
    record = {"type": "record", "name": f"r{draw(st.uuids()).hex}", "fields": fields}
    return record, st.fixed_dictionaries({name: values for name, (_, values) in members.items()})


@given(st.data())
@settings(max_examples=examples(80), deadline=None)
def test_records_of_fastavro_are_read_unless_truncated_or_extended(
    data: st.DataObject,
) -> None:
    avro, values = data.draw(records())
    written = data.draw(st.lists(values, min_size=1, max_size=6))
    datums = [_encode(avro, value) for value in written]
    decoded = _decode(avro, datums)
    assert decoded.rejected.tolist() == [], decoded.reasons
    assert _plain(decoded.rows) == written
    spoiled = [datums[0], datums[0] + b"\0", datums[0][:-1]]
    assert _decode(avro, spoiled).accepted.tolist() == [0]


@given(st.data())
@settings(max_examples=examples(80), deadline=None)
def test_memory_of_a_record_is_within_the_upper_bound(data: st.DataObject) -> None:
    avro, values = data.draw(records())
    schema, datum = _schema(avro), _encode(avro, data.draw(values))
    bound = int(schema.sizes.upper_bounds(np.array([len(datum)]))[0])
    ends = np.arange(1, 101) * len(datum)
    rows = decode_rows(memoryview(datum * 100), ends - len(datum), ends, schema.avro)
    # Each value also has a validity bit, and each column a last offset.
    assert rows.nbytes <= 100 * 1.2 * bound + 2_000
    assert schema.sizes.find_excess(datum, bound) is None
    assert schema.sizes.find_excess(datum, len(datum)) is not None


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_random_bytes_become_rows_or_rejects(data: st.DataObject) -> None:
    avro, values = data.draw(records())
    good = _encode(avro, data.draw(values))
    bad = data.draw(st.lists(st.binary(max_size=40) | _damaged(good), max_size=8))
    datums = [*bad, good]
    decoded = _decode(avro, datums)
    accepted = set(decoded.accepted.tolist())
    assert accepted | set(decoded.rejected.tolist()) == set(range(len(datums)))
    assert len(datums) - 1 in accepted
    # The result for a record does not depend on other records.
    for index, datum in enumerate(datums):
        assert (_decode(avro, [datum]).accepted.tolist() == [0]) is (index in accepted)


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_inspection_of_single_records_agrees_with_columnar_decoding(data: st.DataObject) -> None:
    avro, values = data.draw(records())
    datum = data.draw(st.binary(max_size=40) | _damaged(_encode(avro, data.draw(values))))
    schema = _schema(avro)
    try:
        decode_rows(memoryview(datum), [0], [len(datum)], schema.avro)
        is_read = True
    except CorruptData:
        is_read = False
    assert (find_datum_fault(datum, schema.root) is None) is is_read


def _near(*positions: int) -> st.SearchStrategy[int]:
    return st.builds(
        lambda position, step: position + step, st.sampled_from(positions), st.integers(-2, 2)
    )


_LONGS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    _near(0, 2**31, -(2**31), 2**53, -(2**53), 10**8, -(10**8)),
)
_DOUBLES = st.floats() | st.sampled_from(
    [0.1, -0.0, 3.4028235677973366e38, -3.5e38, 1e-46, 2.0**31]
)


def _in_32_bits(value: int) -> int | None:
    return value if -(2**31) <= value < 2**31 else None


def _in_cents(value: int) -> Decimal | None:
    return Decimal(value) if abs(value) < 10**8 else None


def _nearest_float(value: float) -> float | None:
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return None if math.isinf(rounded) and not math.isinf(value) else rounded


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


@pytest.mark.parametrize(
    ("written", "column", "values", "model"),
    [
        ("long", pa.int32(), _LONGS, _in_32_bits),
        ("long", pa.float64(), _LONGS, float),
        ("long", pa.decimal128(10, 2), _LONGS, _in_cents),
        ("long", pa.decimal128(38, 0), _LONGS, Decimal),
        ("double", pa.float32(), _DOUBLES, _nearest_float),
        ("double", pa.float64(), _DOUBLES, float),
        ("bytes", pa.string(), st.binary(max_size=4) | st.text(max_size=2).map(str.encode), _text),
        ("string", pa.binary(), st.text(max_size=4), str.encode),
    ],
    ids=lambda part: str(part) if isinstance(part, str | pa.DataType) else "with",
)
@given(data=st.data())
@settings(max_examples=examples(40), deadline=None)
def test_value_of_another_type_is_stored_exactly_or_its_dead_letter_names_the_column(
    written: str,
    column: pa.DataType,
    values: st.SearchStrategy[Any],
    model: Callable[[Any], object],
    data: st.DataObject,
) -> None:
    avro = {"type": "record", "name": "r", "fields": [{"name": "v", "type": written}]}
    drawn = data.draw(st.lists(values, min_size=1, max_size=6))
    framing = PlainFraming(StoredSchema(json.dumps(avro)))
    decoder = AvroDecoder(pa.schema([("v", column)]), framing=framing)
    datums = [_encode(avro, {"v": value}) for value in drawn]
    decoded = decoder.decode(pa.array(datums, pa.binary()))
    expected = [one for value in drawn if (one := model(value)) is not None]
    found = decoded.rows.column("v").to_pylist()
    assert [*map(_distinguishable, found)] == [*map(_distinguishable, expected)]
    assert all(reason.startswith("column 'v': ") for reason in decoded.reasons)
    assert len(found) + len(decoded.reasons) == len(drawn)


def _distinguishable(value: object) -> object:
    return repr(value) if isinstance(value, float) else value


def _damaged(good: bytes) -> st.SearchStrategy[bytes]:
    """Draw the bytes of a record with one byte changed."""
    if not good:
        return st.just(b"")
    positions = st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255))
    return positions.map(lambda p: good[: p[0]] + bytes([p[1]]) + good[p[0] + 1 :])


def _schema(avro: dict[str, Any]) -> WriterSchema:
    schema = load_writer_schema("it", StoredSchema(json.dumps(avro)), None)
    assert isinstance(schema, WriterSchema), schema
    return schema


def _decode(avro: dict[str, Any], datums: list[bytes]) -> DecodeResult:
    columns = column_types(_schema(avro).root.arrow)
    decoder = AvroDecoder(columns, framing=PlainFraming(StoredSchema(json.dumps(avro))))
    return decoder.decode(pa.array(datums, pa.binary()))


def _encode(avro: dict[str, Any], value: object) -> bytes:
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(_bare(avro)), value)
    return body.getvalue()


def _bare(avro: Any) -> Any:
    """Return the schema without logical types, because values are given as they are written."""
    if isinstance(avro, list):
        return [_bare(branch) for branch in avro]
    if isinstance(avro, dict):
        return {name: _bare(part) for name, part in avro.items() if name != "logicalType"}
    return avro


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows with dates and times as integers."""
    numbers = rows.cast(pa.schema([f.with_type(_numbers(f.type)) for f in rows.schema]))
    plain: list[dict[str, Any]] = numbers.to_pylist(maps_as_pydicts="lossy")
    return plain


def _numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_numbers(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), kind.item_field.with_type(_numbers(kind.item_type)))
    return kind
