"""Odd JSON values are stored in a table exactly, or become dead letters.

The reason of a dead letter names the field.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.storage import StorageLocation
from tests.depth import examples
from tests.json_stream import COLUMNS, JsonStream, present
from transforms.decode.json import JsonDecoder
from transforms.schema_text import parse_schema

TYPES = {
    "i": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "n": "decimal(10,2)",
    "m": "decimal(38,0)",
    "s": "string",
    "b": "boolean",
    "day": "date",
    "at": "timestamp",
    "raw": "binary",
}

NUMBERS = [
    *("0", "-0", "-0.0", "1.0", "1e3", "1E+2", "0.1", "0.10", "1.005", "123e-2", "1e-400", "1e400"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "16777217", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
    *("18446744073709551617", "99999999.99", "100000000", "99999999.995", "9" * 38, "1" + "0" * 38),
    *("3.4028235e38", "3.4028236e38", "1.7976931348623157e308", "1.7976931348623159e308", "99e307"),
    *(
        "5e-324",
        "1e-46",
        "0." + "0" * 90,
        "1" * 80,
        "1" * 400,
        "-" + "1" * 5000,
        "1e999999999999999999",
    ),
    *("NaN", "Infinity", "-Infinity", "Inf"),
]
TEXTS = [
    *(
        "",
        " ",
        "true",
        "True",
        "1",
        "01",
        "+1",
        " 1",
        "1e2",
        "NaN",
        "0x10",
        "1_0",
        "\0",
        "a\0b",
        "\ufeff",
    ),
    *(
        "2023-02-29",
        "2024-02-29",
        "0000-01-01",
        "0001-01-01",
        "9999-12-31",
        "10000-01-01",
        "2024-1-1",
    ),
    *("2016-12-31T23:59:60Z", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00.1234567891Z"),
    *("1969-12-31T23:59:59.9999999999+05:30", "2024-01-01T00:00:00+24:00", "2024-01-01 00:00:00"),
    *(
        "0001-01-01T00:00:00+00:01",
        "0001-01-01T00:00:00Z",
        "0000-12-31T23:59:59Z",
        "2024-01-01T00Z",
    ),
    *("9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59-00:01", "10000-01-01T00:00:00Z"),
    *("QQ==", "QQ=", "QQ", "-_==", "Q Q=", "x" * 40_000),
]
#: JSON that ``json.dumps`` does not generate from texts.
JSON_TEXTS = [
    *(
        '"\\ud800"',
        '"x\\udc00"',
        '"\\ud83d\\ude00"',
        '"\\u0000"',
        "true",
        "false",
        "null",
        "[]",
        "{}",
    ),
    *(
        "[1]",
        '{"":1}',
        '{"a":1,"a":1}',
        "[" * 1_500 + "]" * 1_500,
        '{"":' * 1_500 + "1" + "}" * 1_500,
    ),
]
ODD = [*NUMBERS, *map(json.dumps, TEXTS), *JSON_TEXTS]


class Broken(Exception):
    """The model rejects the value."""


def exactly(text: str) -> Decimal:
    """Return the number of a JSON text."""
    if not re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", text, re.ASCII) or len(text) > 4_000:
        raise Broken
    exponent = re.search(r"[eE]\+?(\d+)$", text)
    if exponent and int(exponent[1]) > 10_000:
        raise Broken
    return Decimal(text)


def integer(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"-?\d+", text) or not -(2 ** (bits - 1)) <= exactly(text) < 2 ** (
            bits - 1
        ):
            raise Broken
        return int(text)

    return read


def floating(code: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "Inf": math.inf}
        if text in named:
            return named[text]
        try:
            number = float(exactly(text))
            rounded = struct.unpack(code, struct.pack(code, number))[0]
        except OverflowError:
            raise Broken from None
        if math.isinf(rounded):
            raise Broken
        return float(rounded)

    return read


def decimal(precision: int, scale: int) -> Callable[[str], Decimal]:
    def read(text: str) -> Decimal:
        if text.startswith('"'):
            text = plain(text).removeprefix("+")
            text = re.sub(r"^(-?)0+(?=\d)", r"\1", text)
        number = exactly(text)
        if len(text) > 76:  # pyarrow reads at most 76 digits
            raise Broken
        unscaled = Fraction(number) * 10**scale
        if unscaled.denominator != 1 or abs(unscaled) >= 10**precision:
            raise Broken
        return number

    return read


def plain(text: str) -> str:
    value = json.loads(text) if text.startswith('"') else None
    if not isinstance(value, str) or re.search("[\ud800-\udfff]", value):
        raise Broken
    return value


def boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise Broken
    return text == "true"


def day(text: str) -> date:
    value = plain(text)
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        raise Broken
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise Broken from None


def instant(text: str) -> datetime:
    if not text.startswith('"'):
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=integer(64)(text))
        except OverflowError:
            raise Broken from None
    value = plain(text)
    if not re.fullmatch(
        r"\d{4}-\d\d-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", value
    ):
        raise Broken
    try:
        parsed = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value))
        return parsed.replace(tzinfo=parsed.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Broken from None


def binary(text: str) -> bytes:
    try:
        return base64.b64decode(plain(text), validate=True)
    except ValueError:
        raise Broken from None


MODELS: dict[str, Callable[[str], object]] = {
    "i": integer(32),
    "l": integer(64),
    "f": floating("<f"),
    "d": floating("<d"),
    "n": decimal(10, 2),
    "m": decimal(38, 0),
    "s": plain,
    "b": boolean,
    "day": day,
    "at": instant,
    "raw": binary,
}

drawn = st.one_of(
    st.sampled_from(ODD),
    st.integers(-(10**40), 10**40).map(str),
    st.builds(
        lambda centre, step: str(centre + step),
        st.sampled_from(
            [2**31, 2**53, 2**63, 10**10, 10**38, -62_135_596_800_000, 253_402_300_800_000]
        ),
        st.integers(-2, 2),
    ),
    st.floats().map(json.dumps),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: str(number).lower()),
    st.text(max_size=5).map(json.dumps),
    st.datetimes(timezones=st.timezones()).map(lambda at: json.dumps(at.isoformat())),
)


@settings(max_examples=examples(12), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(TYPES)), drawn), min_size=20, max_size=60))
def test_drawn_value_is_read_back_exactly_or_its_dead_letter_names_the_field(
    values: list[tuple[str, str]],
) -> None:
    assert faults(values) == []


def test_odd_value_is_read_back_exactly_or_its_dead_letter_names_the_field() -> None:
    assert faults([(name, text) for name in TYPES for text in ODD]) == []


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'\xef\xbb\xbf{"id":"a","ts":1}', "it starts with '\\ufeff'"),
        (b'{"id":"a","ts":1,"s":"\xff"}', "the value is not UTF-8"),
        (b'{"id":"a","ts":1,"s":"\xed\xa0\x80"}', "the value is not UTF-8"),
        (b'{"id":"a","ts":1,"s":"\0"}', "invalid JSON: Invalid control character"),
        (b'{"id":"a","ts":1}{"id":"b","ts":1}', "invalid JSON: Extra data"),
        (b'{"id":"a","ts":1,"s":"x","s":"x"}', "column 's': it is given twice"),
        (b'{"id":"a","ts":1,"":"x","\\u0000":[],"x":1,"x":2,"S":"y"}', None),
        (b'{"id":"a","ts":1,"x":"\\ud800","y":NaN,"z":1e400}', None),
        (b'{"id":"a","ts":1,"x":' + b"[" * 9_000 + b"]" * 9_000 + b"}", None),
    ],
)
def test_odd_record_is_a_row_or_a_dead_letter_with_its_reason(
    record: bytes, reason: str | None
) -> None:
    decoder = JsonDecoder(parse_schema({**COLUMNS, **TYPES}))
    decoded = decoder.decode(pa.array([record], pa.binary()))
    if reason is None:
        assert present(decoded.rows.to_pylist()[0]) == {"id": "a", "ts": 1}
    else:
        assert reason in decoded.reasons[0]


def faults(values: list[tuple[str, str]]) -> list[tuple[str, str, object, object]]:
    """Return fields and values whose result differs from the model, with both results.

    Args:
        values: field and JSON of the value, for each record.
    """
    with TemporaryDirectory() as folder:
        stream = JsonStream(StorageLocation(str(Path(folder) / "t")), columns={**COLUMNS, **TYPES})
        stream.write(
            b'{"id":"%d","ts":1,"%s":%s}' % (number, name.encode(), text.encode())
            for number, (name, text) in enumerate(values)
        )
        rows, reasons = stream.read(), stream.reasons()
    found: list[tuple[str, str, object, object]] = []
    for number, (name, text) in enumerate(values):
        expected = model(name, text)
        row, reason = rows.get(str(number)), reasons.get(number)
        if isinstance(expected, Broken):
            is_correct = row is None and f"column '{name}" in (reason or "")
        else:
            is_correct = row is not None and distinguishable(row.get(name)) == distinguishable(
                expected
            )
        if not is_correct:
            found.append((name, text[:40], expected, row or reason))
    return found


def model(name: str, text: str) -> object:
    """Return the value of a column, or the error of the model."""
    try:
        return None if text == "null" else MODELS[name](text)
    except Broken as refusal:
        return refusal


def distinguishable(value: object) -> object:
    """Return a value for comparisons in which 0.0 differs from -0.0, and NaN equals NaN."""
    return repr(value) if isinstance(value, float) else value
