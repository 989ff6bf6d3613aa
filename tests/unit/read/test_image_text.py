from __future__ import annotations

import base64
import json
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import Unsupported
from lakemark.read.cdc.image_text import AVRO, JACKSON
from lakemark.read.cdc.java_text import number_text
from tests.depth import examples

_SHORT_ESCAPES = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}

_RECORD = pa.struct(
    [
        pa.field("text", pa.string()),
        pa.field("number", pa.float64()),
        pa.field("count", pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("raw", pa.binary()),
        pa.field("fixed", pa.binary(3)),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("attrs", pa.map_(pa.string(), pa.int32())),
        pa.field('odd "name"', pa.struct([pa.field("x", pa.int32())])),
    ]
)

_TEXTS = st.text(st.characters(codec="utf-8", max_codepoint=0x2100), max_size=6)
_RECORDS = st.fixed_dictionaries(
    {
        "text": st.none() | _TEXTS,
        "number": st.none() | st.floats(),
        "count": st.none() | st.integers(-(2**63), 2**63 - 1),
        "flag": st.none() | st.booleans(),
        "raw": st.none() | st.binary(max_size=7),
        "fixed": st.none() | st.binary(min_size=3, max_size=3),
        "tags": st.none() | st.lists(st.none() | _TEXTS, max_size=3),
        "attrs": st.none() | st.dictionaries(_TEXTS, st.none() | st.integers(0, 9), max_size=3),
        'odd "name"': st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)}),
    }
)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.none() | _RECORDS, max_size=4), st.integers(0, 2))
def test_jackson_dialect_equals_the_model(records: list[Any], skipped: int) -> None:
    column = pa.array(records, _RECORD).slice(skipped)
    expected = [r and _jackson(_in_order(r)) for r in records[skipped:]]
    assert JACKSON.text(column).to_pylist() == expected


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.none() | _RECORDS, max_size=4), st.integers(0, 2))
def test_avro_dialect_equals_the_model(records: list[Any], skipped: int) -> None:
    column = pa.array(records, _RECORD).slice(skipped)
    expected = [r and _avro(_in_order(r)) for r in records[skipped:]]
    assert AVRO.text(column).to_pylist() == expected


@settings(deadline=None)
@given(st.lists(st.floats(width=32), min_size=1))
def test_printed_floats_parse_to_the_same_floats(values: list[float]) -> None:
    for value, text in zip(values, number_text(pa.array(values, pa.float32())), strict=True):
        read = float(text.as_py().strip('"').replace("Infinity", "inf"))
        assert struct.pack("f", read) == struct.pack("f", value) or value != value


@pytest.mark.parametrize(
    ("values", "printed"),
    [
        (pa.array([Decimal("0.00"), Decimal("1.50")]), ['{"zero":true}', '{"zero":false}']),
        (pa.array([1], pa.date32()), ["1"]),
        (pa.array([1], pa.timestamp("us", "UTC")), ["1"]),
        (pa.array([1], pa.timestamp("ms")), ["1000"]),
        (pa.array([1], pa.time32("ms")), ["1"]),
        (pa.array([1], pa.time64("us")), ["1"]),
        (pa.array([], pa.list_(pa.struct([pa.field("x", pa.int32())]))), []),
    ],
)
def test_jackson_dialect_prints_spark_values(values: pa.Array, printed: list[str]) -> None:
    assert JACKSON.text(values).to_pylist() == printed


def test_type_without_a_text_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="duration"):
        JACKSON.text(pa.array([1], pa.duration("s")))


def _in_order(record: dict[str, Any]) -> dict[str, Any]:
    return {field.name: record[field.name] for field in _RECORD}


def _jackson(value: object) -> str:
    if isinstance(value, dict):
        members = (f"{_quoted(k)}:{_jackson(v)}" for k, v in value.items() if v is not None)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_jackson, value)) + "]"
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    return _scalar(value, _quoted)


def _avro(value: object, name: str = "") -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_escaped(k)}: {_avro(v, k)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_avro, value)) + "]"
    if isinstance(value, bytes) and name == "fixed":
        return str(list(memoryview(value).cast("b")))
    if isinstance(value, bytes):
        return _escaped(value.decode("latin-1"))
    return _scalar(value, _escaped)


def _scalar(value: object, quoted: Any) -> str:
    if isinstance(value, str):
        text: str = quoted(value)
        return text
    return _java_double(value) if isinstance(value, float) else json.dumps(value)


def _quoted(text: str) -> str:
    return '"' + "".join(_character(c, c < " ") for c in text) + '"'


def _escaped(text: str) -> str:
    def is_special(c: str) -> bool:
        return c < " " or "\x7f" <= c <= "\x9f" or "\u2000" <= c <= "\u20ff"

    return '"' + "".join(_character(c, is_special(c)) for c in text) + '"'


def _character(character: str, is_special: bool) -> str:
    if character in _SHORT_ESCAPES:
        return "\\" + _SHORT_ESCAPES[character]
    return f"\\u{ord(character):04X}" if is_special else character


def _java_double(value: float) -> str:
    """Print the shortest digits of a double in the layout of ``Double.toString``."""
    if value != value or value in (float("inf"), float("-inf")):
        word = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return f'"{word}"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{rest}E{exponent + len(digits) - 1}"
