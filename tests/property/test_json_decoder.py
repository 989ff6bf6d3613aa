"""The columnar JSON decoder, compared with a model that reads single records and values."""

from __future__ import annotations

import base64
import binascii
import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from transforms.decode.decode_result import DecodeResult
from transforms.decode.json import JsonDecoder
from transforms.decode.json_block import decode_base64

TIMESTAMP = pa.timestamp("us", "UTC")
EXAMPLES = examples(100)
NAMES = ("a", "b", "c", "né")


class Broken(Exception):
    """The model rejects the record."""


# The model: the rules of ``transforms.decode.json``, value by value.


def model_record(text: str, schema: pa.Schema) -> dict[str, object]:
    value = json.loads(text, parse_float=Decimal, object_pairs_hook=list_of_pairs)
    forms: Forms = {}
    row = model_value(value, pa.struct(list(schema)), "", forms)
    assert isinstance(row, dict)
    if any(len(kinds) > 1 for kinds in forms.values()):
        raise Broken
    return row


#: Path of a timestamp to the types of its values; a record may use only one type for each.
Forms = dict[str, set[type]]


class Pairs(list[tuple[str, object]]):
    """A JSON object as a list of its fields, repeated ones included."""


def list_of_pairs(pairs: list[tuple[str, object]]) -> Pairs:
    return Pairs(pairs)


def model_value(value: object, wanted: pa.DataType, path: str, forms: Forms) -> object:
    if value is None:
        return None
    if pa.types.is_struct(wanted):
        return model_struct(value, wanted, path, forms)
    if pa.types.is_list(wanted):
        if not isinstance(value, list) or isinstance(value, Pairs):
            raise Broken
        return [model_value(element, wanted.value_type, path, forms) for element in value]
    if pa.types.is_decimal(wanted):
        return model_decimal(value, wanted.precision, wanted.scale)
    if wanted == TIMESTAMP:
        forms.setdefault(path, set()).add(type(value))
    return MODELS[wanted](value)


def model_struct(value: object, wanted: pa.DataType, path: str, forms: Forms) -> dict[str, object]:
    if not isinstance(value, Pairs):
        raise Broken
    row: dict[str, object] = {field.name: None for field in wanted}
    given_names = [name for name, _ in value if name in row]
    if len(set(given_names)) < len(given_names):
        raise Broken
    for name, member in value:
        if name in row:
            row[name] = model_value(member, wanted.field(name).type, f"{path}.{name}", forms)
    return row


def model_decimal(value: object, precision: int, scale: int) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        raise Broken
    if isinstance(value, str) and not re.fullmatch(
        r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", value
    ):
        raise Broken
    unscaled = Fraction(Decimal(value)) * 10**scale
    if unscaled.denominator != 1 or abs(unscaled) >= 10**precision:
        raise Broken
    _, digits, _ = Decimal(unscaled.numerator).as_tuple()
    return Decimal((int(unscaled < 0), digits, -scale))


def model_string(value: object) -> str:
    if not isinstance(value, str):
        raise Broken
    return value


def model_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise Broken
    return value


def model_int(value: object, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Broken
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise Broken
    return value


def model_double(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise Broken
    try:
        number = float(value)
    except OverflowError:
        raise Broken from None
    if abs(number) == float("inf"):
        raise Broken
    return number


def model_float(value: object) -> float:
    with np.errstate(over="ignore"):
        single = float(np.float32(model_double(value)))
    if abs(single) == float("inf"):
        raise Broken
    return single


def model_date(value: object) -> date:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise Broken
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise Broken from None


def model_timestamp(value: object) -> datetime:
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
        except OverflowError:
            raise Broken from None
    if not isinstance(value, str):
        raise Broken
    try:
        text = re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", value)
        parsed = datetime.fromisoformat(text)
        return parsed.replace(tzinfo=parsed.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Broken from None


def model_binary(value: object) -> bytes:
    if not isinstance(value, str) or not value.isascii() or len(value) % 4:
        raise Broken
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise Broken from None


MODELS = {
    pa.string(): model_string,
    pa.bool_(): model_boolean,
    pa.int32(): lambda value: model_int(value, 32),
    pa.int64(): lambda value: model_int(value, 64),
    pa.float32(): model_float,
    pa.float64(): model_double,
    pa.date32(): model_date,
    TIMESTAMP: model_timestamp,
    pa.binary(): model_binary,
}


# Records: most values fit their column, some do not, and some fields are unknown.

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
decimals = st.builds(
    lambda digits, scale: str(Decimal(digits).scaleb(-scale)),
    st.integers(0, 12).flatmap(lambda digits: st.integers(-(10**digits), 10**digits)),
    st.integers(0, 4),
)
instants = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 as written
zones = st.sampled_from(["", "Z", "+00:00", "-05:30", "+0530", "+02"])
timestamp_texts = st.builds(
    lambda at, separator, digits, zone: (
        at.strftime(f"%Y-%m-%d{separator}%H:%M:%S").rjust(19, "0")
        + (f".{at.microsecond:06}123"[: digits + 1] if digits else "")
        + zone
    ),
    instants,
    st.sampled_from("T "),
    st.integers(0, 9),
    zones,
)
epochs = st.integers(-62_000_000_000_000, 253_000_000_000_000)

converter = {
    pa.string(): texts,
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
    pa.date32(): st.dates().map(lambda day: day.isoformat()),
    TIMESTAMP: timestamp_texts | epochs,
    pa.binary(): st.binary(max_size=7).map(lambda data: base64.b64encode(data).decode()),
    pa.decimal128(10, 2): decimals,
    pa.decimal128(38, 20): decimals | st.decimals(places=18, allow_nan=False).map(str),
}
leaf_types = st.sampled_from(list(converter))
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([10**308, 10**309, -(10**500)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | decimals
    | timestamp_texts
    | st.sampled_from(["2024-02-30", "2024-01-01T24:00:00Z", "QQ=", "QQ==", "1e3", "true", ""]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=4,
)


def structs(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3).map(
        lambda fields: pa.struct(list(fields.items()))
    )


types = st.recursive(leaf_types, lambda inner: structs(inner) | inner.map(pa.list_), max_leaves=4)
schemas = structs(types).map(lambda struct: pa.schema(list(struct)))


def values_of(wanted: pa.DataType, *, mostly: int = 12) -> st.SearchStrategy[object]:
    if pa.types.is_struct(wanted):
        fields = {field.name: values_of(field.type) for field in wanted}
        good: st.SearchStrategy[object] = st.fixed_dictionaries({}, optional=fields)
    elif pa.types.is_list(wanted):
        good = st.lists(values_of(wanted.value_type), max_size=3)
    else:
        good = converter[wanted]
    choices = st.integers(0, mostly)
    return choices.flatmap(
        lambda drawn: anything if drawn == 0 else st.none() if drawn == 1 else good
    )


def records_of(schema: pa.Schema) -> st.SearchStrategy[str]:
    known = {field.name: values_of(field.type) for field in schema}
    unknown = {name: anything for name in ("x", "y", *NAMES) if name not in known}
    return st.builds(
        lambda members, ascii_, indent, shuffled: json.dumps(
            {name: members[name] for name in shuffled if name in members},
            ensure_ascii=ascii_,
            indent=indent,
        ),
        st.fixed_dictionaries({}, optional={**known, **unknown}),
        st.booleans(),
        st.sampled_from([None, None, 1]),
        st.permutations(list({**known, **unknown})),
    )


batches = schemas.flatmap(
    lambda schema: st.tuples(st.just(schema), st.lists(records_of(schema), max_size=8))
)


def decode(decoder: JsonDecoder, values: list[bytes]) -> DecodeResult:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    every = np.concatenate([decoded.accepted, decoded.rejected])
    assert sorted(every.tolist()) == list(range(len(values)))
    assert all(decoded.reasons)
    decoded.rows.validate(full=True)
    return decoded


@pytest.mark.parametrize("rescue_column", [None, "_rescued"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(batch=batches)
def test_batch_is_decoded_as_its_single_records_are(
    rescue_column: str | None, batch: tuple[pa.Schema, list[str]]
) -> None:
    schema, texts_ = batch
    expected: dict[int, dict[str, object]] = {}
    for index, text in enumerate(texts_):
        try:
            expected[index] = model_record(text, schema)
        except Broken:
            continue
    decoded = decode(JsonDecoder(schema, rescue_column), [text.encode() for text in texts_])
    assert decoded.accepted.tolist() == list(expected)
    assert decoded.rows.select(schema.names).to_pylist() == list(expected.values())
    if rescue_column:
        rescued = decoded.rows.column(rescue_column).to_pylist()
        for index, kept in zip(expected, rescued, strict=True):
            assert (kept and json.loads(kept)) == model_unknown(json.loads(texts_[index]), schema)


def model_unknown(record: dict[str, object], schema: pa.Schema) -> dict[str, object] | None:
    return unknown_of(record, pa.struct(list(schema))) or None


def unknown_of(value: dict[str, object], known: pa.DataType) -> dict[str, object]:
    types_ = {field.name: field.type for field in known}
    kept: dict[str, object] = {}
    for name, member in value.items():
        if name not in types_:
            part: object = member
        elif isinstance(member, dict):
            part = unknown_of(member, types_[name]) or None
        else:
            part = member if has_unknown(member, types_[name]) else None
        if part is not None:
            kept[name] = part
    return kept


def has_unknown(value: object, known: pa.DataType) -> bool:
    if isinstance(value, dict):
        return bool(unknown_of(value, known))
    return isinstance(value, list) and any(has_unknown(one, known.value_type) for one in value)


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", TIMESTAMP),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.struct([("k", pa.string()), ("v", pa.float64())]))),
    ]
)
GOOD = (
    b'{"id": 1, "name": "a}{b", "at": "2024-01-01T00:00:00Z", "price": 1.10, "tags": []}',
    b'{"id":2,"at":1700000000000,"tags":[{"k":"x","v":1},null,{"k":null}],"more":{"x":[1]}}',
    b' {\n"id": 3, "name": "\\u00e9\\n", "at": "2024-01-01 00:00:00.123456789"}\n',
)


def mutated(record: bytes) -> st.SearchStrategy[bytes]:
    """Draw the record with bytes inserted, removed or overwritten."""
    positions = st.integers(0, len(record))
    pieces = st.binary(max_size=3) | st.sampled_from(
        [
            *(b"{", b"}", b'"', b"\n", b"\0", b",", b"}{", b"[", b"]", b"null", b"\\", b"Inf"),
            *(
                b"\xff",
                b"1e999",
                b"99e307",
                b"-",
                b'"id":5,',
                b'{"id":9}',
                b"\\ud800",
                b"\xef\xbb\xbf",
            ),
        ]
    )
    return st.builds(
        lambda start, length, piece: record[:start] + piece + record[start + length :],
        positions,
        st.integers(0, 4),
        pieces,
    )


@pytest.mark.parametrize("rescue_column", [None, "_rescued"])
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    values=st.lists(
        st.sampled_from(GOOD)
        | st.sampled_from(GOOD).flatmap(mutated)
        | st.binary(max_size=12)
        | st.sampled_from([b"", b" ", b"[]", b"1", b"{}", b'"{}"', b"{}{}", b"\0{}"]),
        max_size=10,
    )
)
def test_result_for_a_record_does_not_depend_on_other_records(
    rescue_column: str | None, values: list[bytes]
) -> None:
    decoder = JsonDecoder(SCHEMA, rescue_column)
    together = decode(decoder, values)
    rows = dict(zip(together.accepted.tolist(), together.rows.to_pylist(), strict=True))
    for index, value in enumerate(values):
        alone = decode(decoder, [value])
        assert alone.rows.to_pylist() == ([rows[index]] if index in rows else [])
        if value in GOOD:
            assert index in rows


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=9)))
def test_base64_is_decoded_to_the_encoded_bytes(data: list[bytes | None]) -> None:
    encoded = [None if one is None else base64.b64encode(one).decode() for one in data]
    assert decode_base64(pa.array(encoded, pa.string())).to_pylist() == data


@settings(deadline=None)
@given(st.lists(st.text("AQ=/-\n ", max_size=8), min_size=1))
def test_invalid_base64_is_refused(texts_: list[str]) -> None:
    try:
        expected = [model_binary(text) for text in texts_]
    except Broken:
        with pytest.raises(binascii.Error):
            decode_base64(pa.array(texts_, pa.string()))
    else:
        assert decode_base64(pa.array(texts_, pa.string())).to_pylist() == expected
