from __future__ import annotations

import json
import math
import pickle
import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import EpochUnit
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy, UnknownFields
from transforms.schema_text import parse_schema

SCHEMA = parse_schema(
    {
        "s": "string",
        "i": "int",
        "l": "bigint",
        "f": "float",
        "d": "double",
        "b": "boolean",
        "m": "decimal(10,2)",
        "day": "date",
        "at": "timestamp",
        "raw": "binary",
        "home": "struct<zip:string,at:array<timestamp>>",
    }
)


def decode_one(text: str | bytes, decoder: JsonDecoder | None = None) -> dict[str, object] | str:
    """Return the row without nulls, or the reason of the reject."""
    value = text.encode() if isinstance(text, str) else text
    decoded = (decoder or JsonDecoder(SCHEMA)).decode(pa.array([value]))
    if decoded.reasons:
        return decoded.reasons[0]
    return {name: cell for name, cell in decoded.rows.to_pylist()[0].items() if cell is not None}


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("{}", {}),
        (' \r\n{"i": null,\n"x": [{"y": 1}]} ', {}),
        ('{"s": "\\u00e9\\ud83d\\ude00\\u0000"}', {"s": "é😀\0"}),
        ('{"\\u0069": -2147483648}', {"i": -(2**31)}),
        ('{"d": 9007199254740993, "f": -0.1}', {"d": 2.0**53, "f": pytest.approx(-0.1)}),
        ('{"d": -Infinity, "f": Infinity}', {"d": -float("inf"), "f": float("inf")}),
        ('{"m": 12345678.90}', {"m": Decimal("12345678.90")}),
        ('{"m": "-0.1"}', {"m": Decimal("-0.10")}),
        ('{"m": 1e3}', {"m": Decimal("1000.00")}),
        ('{"m": "12345678.9000"}', {"m": Decimal("12345678.90")}),
        ('{"day": "2024-02-29"}', {"day": date(2024, 2, 29)}),
        ('{"at": "2024-01-01"}', {"at": datetime(2024, 1, 1, tzinfo=UTC)}),
        ('{"at": "2024-01-01T02:00:00+02:00"}', {"at": datetime(2024, 1, 1, tzinfo=UTC)}),
        ('{"at": "2024-01-01 00:00:00.5"}', {"at": datetime(2024, 1, 1, 0, 0, 0, 500_000, UTC)}),
        (
            '{"at": "2024-01-01T00:00:00.123456789Z"}',
            {"at": datetime(2024, 1, 1, 0, 0, 0, 123_456, UTC)},
        ),
        (
            '{"at": "2024-01-01T00:00:00.123456789"}',
            {"at": datetime(2024, 1, 1, 0, 0, 0, 123_456, UTC)},
        ),
        ('{"at": 1704067200001}', {"at": datetime(2024, 1, 1, 0, 0, 0, 1_000, UTC)}),
        ('{"raw": "AAE="}', {"raw": b"\0\1"}),
        (
            '{"home": {"at": ["2024-01-01", null], "zip": null}}',
            {"home": {"zip": None, "at": [datetime(2024, 1, 1, tzinfo=UTC), None]}},
        ),
        ('{"x": ' + "[" * 5_000 + "]" * 5_000 + "}", {}),
    ],
)
def test_values_are_converted_to_the_types_of_their_columns(
    text: str, row: dict[str, object]
) -> None:
    assert decode_one(text) == row


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the value is empty"),
        (" \n", "the value is empty"),
        (b"\xff{}", "the value is not UTF-8"),
        (b'{"x": "\xed\xa0\x80"}', "the value is not UTF-8"),
        ("[1]", "the value is not a JSON object: it starts with '[', ends with ']'"),
        ('"{}"', "the value is not a JSON object"),
        ("{} {}", "invalid JSON: Extra data"),
        ('{"s": "a\nb"}', "invalid JSON: Invalid control character"),
        ('{"s": "a\0b"}', "invalid JSON: Invalid control character"),
        ('{"i": 1,}', "invalid JSON"),
        ('{"s": "\\ud800"}', "surrogate"),
        ('{"s": 1}', "column 's': number 1 is not a string"),
        ('{"i": "1"}', "column 'i': string '1' is not an integer"),
        ('{"i": 1.0}', "column 'i': number 1.0 is not an integer"),
        ('{"i": true}', "column 'i': boolean true is not an integer"),
        ('{"i": 2147483648}', "column 'i': number 2147483648 does not fit int"),
        (
            '{"l": 9223372036854775808}',
            "column 'l': number 9223372036854775808 does not fit bigint",
        ),
        ('{"f": 1e39}', "column 'f': number 1E+39 does not fit float"),
        ('{"f": 1%s}' % ("0" * 39), "0 does not fit float"),
        ('{"d": "1"}', "column 'd': string '1' is not a number"),
        ('{"b": 0}', "column 'b': number 0 is not a boolean"),
        ('{"m": 1.234}', "column 'm': number 1.234 does not fit decimal(10,2)"),
        ('{"m": "123456789"}', "column 'm': string '123456789' does not fit decimal(10,2)"),
        ('{"m": %s}' % ("9" * 75), "9... does not fit decimal(10,2)"),
        ('{"m": "1,5"}', "column 'm': string '1,5' is not a decimal number"),
        ('{"day": "2023-02-29"}', "column 'day': string '2023-02-29' is not a date"),
        ('{"day": 19000}', "column 'day': number 19000 is not a date"),
        ('{"at": "yesterday"}', "column 'at': string 'yesterday' is not a timestamp"),
        ('{"at": 1700000000000000}', "outside the years 1 to 9999"),
        ('{"raw": "A"}', "column 'raw': string 'A' is not Base64"),
        ('{"home": []}', "column 'home': an array is not an object"),
        ('{"home": {"zip": {}}}', "column 'home.zip': an object is not a string"),
        ('{"home": {"at": [{}]}}', "column 'home.at[]': an object is not a timestamp"),
        ('{"home": {"at": ["2024-01-01", 0]}}', "column 'home.at[]': texts and integers are mixed"),
        ('{"i": 1, "i": 2}', "column 'i': it is given twice"),
        ('{"s": "' + "x" * 99 + '", "i": "' + "y" * 99 + '"}', f"string '{'y' * 39}... is not"),
    ],
)
def test_invalid_record_is_rejected_with_the_reason(text: str | bytes, reason: str) -> None:
    found = decode_one(text)
    assert isinstance(found, str)
    assert reason in found


LONG_INTEGER = "1" * 5_000
TOO_LARGE = ("1e400", "-1e400", "99e307", "1e9999999999999999999", LONG_INTEGER, "1" * 350)
IDS = [number[:12] for number in TOO_LARGE]


def members_with(number: str) -> dict[str, str]:
    """Return values with a number, by floating-point column."""
    return {"f": number, "d": number, "ds": f"[1,{number}]", "x": f'{{"d":{number}}}'}


@pytest.mark.parametrize("neighbours", [0, 300])
@pytest.mark.parametrize("rescue_column", [None, "rescued"])
@pytest.mark.parametrize("number", TOO_LARGE, ids=IDS)
def test_number_beyond_double_is_rejected_instead_of_becoming_infinity(
    number: str, rescue_column: str | None, neighbours: int
) -> None:
    schema = {"f": "float", "d": "double", "ds": "array<double>", "x": "struct<d:double>"}
    good = ['{"d":1e5}', '{"d":Infinity,"f":-Infinity,"s":"1e5"}', '{"x":{"d":NaN}}']
    bad = [f'{{"{column}":{value}}}' for column, value in members_with(number).items()]
    texts = [*good * neighbours, *bad, *good]
    decoder = JsonDecoder(parse_schema(schema), rescue_column)
    decoded = decoder.decode(pa.array(texts, pa.binary()))
    assert decoded.rejected.tolist() == [texts.index(text) for text in bad]
    for column, reason in zip(schema, decoded.reasons, strict=True):
        assert re.match(rf"column '{column}.*': number .* does not fit (double|float)$", reason)
    infinities = [d for d in decoded.rows.column("d").to_pylist() if d == math.inf]
    assert len(infinities) == neighbours + 1


@pytest.mark.parametrize("number", ["Inf", "-Inf", "-Infinity", "NaN", "-NaN"])
@pytest.mark.parametrize("neighbour", ['{"d":1}', '{"d":"x"}'])
def test_special_number_is_read_whether_or_not_its_neighbour_is_broken(
    number: str, neighbour: str
) -> None:
    decoder = JsonDecoder(parse_schema({"d": "double", "s": "string"}))
    texts = [f'{{"d":{number},"s":"-NaN Inf"}}', neighbour]
    row = decoder.decode(pa.array(texts, pa.binary())).rows.to_pylist()[0]
    assert str(row["d"]) == str(float(number.replace("-NaN", "NaN")))
    assert row["s"] == "-NaN Inf"


@pytest.mark.parametrize("number", TOO_LARGE, ids=IDS)
@pytest.mark.parametrize("column", ["i", "l", "m", "s", "at", "day"])
def test_reason_names_the_column_of_a_number_that_is_too_large(column: str, number: str) -> None:
    reason = decode_one(f'{{"{column}":{number}}}')
    assert isinstance(reason, str)
    assert reason.startswith(f"column {column!r}: number ")
    assert len(reason) < 150


@pytest.mark.parametrize("number", TOO_LARGE, ids=IDS)
@pytest.mark.parametrize(
    "unknown",
    ['"x":{0}', '"x":[{{"y":{0}}}]', '"home":{{"zip":"1","x":{0}}}', '"tags":[{{"k":1,"x":{0}}}]'],
)
def test_number_of_an_unknown_field_does_not_reject_its_record(unknown: str, number: str) -> None:
    schema = parse_schema(
        {"d": "double", "home": "struct<zip:string>", "tags": "array<struct<k:int>>"}
    )
    text = f'{{"d":Infinity,{unknown.format(number)}}}'
    ignoring = decode_one(text, JsonDecoder(schema))
    assert isinstance(ignoring, dict)
    assert ignoring["d"] == math.inf
    rescuing = decode_one(text, JsonDecoder(schema, "rescued"))
    assert isinstance(rescuing, dict)
    assert number in str(rescuing["rescued"])


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("evolve", "field 'x': no type holds the number"),
        ("reject", "field 'x' is not declared"),
    ],
)
@pytest.mark.parametrize("number", TOO_LARGE, ids=IDS)
def test_reason_names_the_unknown_field_whose_number_is_too_large(
    policy: UnknownFields, expected: str, number: str
) -> None:
    reason = decode_one(f'{{"i":1,"x":{number}}}', JsonDecoder(SCHEMA, policy=SchemaPolicy(policy)))
    assert isinstance(reason, str)
    assert reason.startswith(expected)


def test_reason_names_the_column_that_only_pyarrow_refuses() -> None:
    reason = decode_one('{"i": 1, "at": "2024-01-01T24:00:00Z", "x": 1e400}')
    assert isinstance(reason, str)
    assert reason.startswith("column 'at': ")


@pytest.mark.parametrize(
    ("unit", "epoch"), [("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_999)]
)
def test_integer_timestamps_use_the_declared_unit(unit: EpochUnit, epoch: int) -> None:
    decoder = JsonDecoder(parse_schema({"at": "timestamp"}), epoch_unit=unit)
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert decode_one(f'{{"at": {epoch}}}', decoder) == {"at": second}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"i": 1}', None),
        ('{"i": 1, "x": null, "home": {"y": null}}', None),
        ('{"x": 1.10, "i": 1, "y":{ "z" : "}" } }', '{"x":1.10,"y":{ "z" : "}" }}'),
        ('{"home": {"zip": "1", "floor": 3}}', '{"home":{"floor":3}}'),
        ('{"x": 123456789012345678901234567890}', '{"x":123456789012345678901234567890}'),
        ('{"caf\\u00e9\\"": [], "d": Inf}', '{"caf\\u00e9\\"":[]}'),
        ('{"x": [null]}', '{"x":[null]}'),
    ],
)
def test_rescued_fields_have_the_text_of_the_record(text: str, kept: str | None) -> None:
    row = decode_one(text, JsonDecoder(SCHEMA, "_rescued"))
    assert isinstance(row, dict)
    assert row.get("_rescued") == kept


def test_unknown_fields_are_rescued_if_their_types_differ() -> None:
    values = [b'{"i":1,"x":1}', b'{"i":2,"x":"a"}', b'{"i":3}', b'{"i":4,"x":{"x":1}}']
    rows = JsonDecoder(SCHEMA, "_rescued").decode(pa.array(values)).rows
    assert rows.column("i").to_pylist() == [1, 2, 3, 4]
    assert rows.column("_rescued").to_pylist() == ['{"x":1}', '{"x":"a"}', None, '{"x":{"x":1}}']


def test_value_nested_half_a_million_levels_deep_does_not_affect_other_records() -> None:
    deep = b'{"x":' + b"[" * 500_000 + b"]" * 500_000 + b"}"
    values = pa.array([b'{"i":1}', deep, b'{"i":2,"x":[]}'])
    assert JsonDecoder(SCHEMA).decode(values).accepted.tolist() == [0, 1, 2]
    timed = deep.replace(b"{", b'{"at":0,', 1)
    for neighbour in (b'{"i":"broken"}', b'{"at":"2024-01-01"}', b'{"at":1}'):
        accepted = JsonDecoder(SCHEMA).decode(pa.array([neighbour, timed])).accepted
        assert 1 in accepted.tolist()
    rescued = JsonDecoder(SCHEMA, "_rescued").decode(values)
    assert rescued.accepted.tolist() == [0, 2]
    assert rescued.reasons == ["unknown fields cannot be kept: it is nested too deeply"]


def _cut(text: str) -> str:
    return text.replace('"s"', '"s')


@pytest.mark.parametrize("share", [0.0003, 0.05, 0.9])
@pytest.mark.parametrize(
    "damage",
    [_cut, lambda text: text.replace('"i": ', '"i": 9999999999'), lambda text: "", lambda t: t + t],
    ids=["cut", "overflow", "empty", "doubled"],
)
def test_broken_records_do_not_change_the_valid_rows_of_a_large_batch(
    damage: Callable[[str], str], share: float
) -> None:
    chance = random.Random(7)
    texts = [
        json.dumps({"i": number, "s": f"row {number}", "at": 1_700_000_000_000 + number})
        for number in range(10_000)
    ]
    broken = {number for number in range(len(texts)) if chance.random() < share}
    values = [(damage(text) if n in broken else text).encode() for n, text in enumerate(texts)]
    halves = pa.chunked_array([pa.array(values[:6_000]), pa.array(values)[6_000:]])
    decoded = JsonDecoder(SCHEMA).decode(halves)
    good = [number for number in range(len(texts)) if number not in broken]
    assert decoded.rejected.tolist() == sorted(broken)
    assert decoded.accepted.tolist() == decoded.rows.column("i").to_pylist() == good
    assert decoded.rows.column("s").to_pylist() == [f"row {number}" for number in good]


def test_records_of_a_batch_may_use_different_timestamp_forms() -> None:
    encoded = [
        '"2024-01-01T00:00:00Z"',
        "1704067200000",
        '"2024-01-01T00:00:00.000000999Z"',
        "null",
    ]
    values = [f'{{"at": {encoded[n % 4]}}}'.encode() for n in range(1_000)]
    rows = JsonDecoder(SCHEMA).decode(pa.array(values)).rows
    start = datetime(2024, 1, 1, tzinfo=UTC)
    assert rows.column("at").to_pylist() == [None if n % 4 == 3 else start for n in range(1_000)]


def test_large_values_are_read_in_several_blocks() -> None:
    values = [b'{"i":%d,"s":"%s"}' % (n, b"x" * 3_000_000) for n in range(7)]
    assert JsonDecoder(SCHEMA).decode(pa.array(values)).rows.column("i").to_pylist() == [*range(7)]


def test_null_values_and_other_array_layouts_are_accepted() -> None:
    values = pa.array([b"no", None, b'{"i":1}'], pa.large_binary())[1:]
    decoded = JsonDecoder(SCHEMA).decode(values)
    assert (decoded.accepted.tolist(), decoded.rejected.tolist()) == ([1], [0])
    assert decoded.reasons == ["the value is null"]
    nothing = JsonDecoder(SCHEMA, "_rescued").decode(pa.array([], pa.binary()))
    assert nothing.rows.schema == JsonDecoder(SCHEMA, "_rescued").rows_schema


def test_decoder_can_be_pickled() -> None:
    decoder = JsonDecoder(SCHEMA, "_rescued", "us")
    assert pickle.loads(pickle.dumps(decoder)) == decoder


@pytest.mark.parametrize(
    "column", [pa.int8(), pa.map_(pa.string(), pa.int32()), pa.struct([]), pa.timestamp("us")]
)
def test_unsupported_column_type_is_refused(column: pa.DataType) -> None:
    with pytest.raises(InvalidConfig, match=r"'a\[\]'"):
        JsonDecoder(pa.schema([("a", pa.list_(column))]))


@pytest.mark.parametrize(
    ("value", "unknown_fields", "code", "column"),
    [
        (b"", "ignore", "invalid_message", None),
        (b"\xff", "ignore", "invalid_message", None),
        (b"[1]", "ignore", "invalid_message", None),
        (b'{"i": }', "ignore", "invalid_message", None),
        (b'{"i": "x"}', "ignore", "invalid_value", "i"),
        (b'{"home": {"at": [1, "x"]}}', "ignore", "invalid_value", "home.at[]"),
        (b'{"d": 1e400}', "ignore", "invalid_value", "d"),
        (b'{"home": {"u": 1}}', "reject", "unknown_field", "home.u"),
        (b'{"I": 1}', "evolve", "unknown_field", None),
        (b'{"j": 1, "i": 2}', "ignore", "invalid_value", "i"),
    ],
)
def test_reason_has_a_code_and_the_column(
    value: bytes, unknown_fields: UnknownFields, code: str, column: str | None
) -> None:
    policy = SchemaPolicy(unknown_fields, aliases={"j": "i"})
    (reason,) = JsonDecoder(SCHEMA, policy=policy).decode(pa.array([value])).reasons
    assert (reason.code, reason.column) == (code, column)


@pytest.mark.parametrize("twice", [b'"u":1,"u":2', b'"st":{"u":1,"u":2}'])
def test_record_with_a_repeated_unknown_field_is_rejected(twice: bytes) -> None:
    known = pa.schema([("id", pa.string()), ("st", pa.struct([("x", pa.int32())]))])
    values = pa.array([b'{"id":"a",' + twice + b"}", b'{"id":"b","u":1}'])
    decoded = JsonDecoder(known, "_rescued").decode(values)
    assert decoded.rows.column("id").to_pylist() == ["b"]
    assert decoded.reasons == ["unknown fields cannot be kept: 'u' is given twice"]


def test_rescue_column_with_the_name_of_a_column_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="rescue column 's'"):
        JsonDecoder(SCHEMA, "s")


@pytest.mark.parametrize("form", ["%s", '"%s"'], ids=["number", "text"])
def test_number_smaller_than_the_last_place_of_a_decimal_is_no_zero(form: str) -> None:
    """Pyarrow reads some of these numbers as zero, if no other value of the block is at fault."""
    decoder = JsonDecoder(pa.schema([("d", pa.decimal128(38, 17))]))

    def decode(text: str) -> DecodeResult:
        return decoder.decode(pa.array([b'{"d":1}', b'{"d":%s}' % (form % text).encode()]))

    for digits in ("2.6126817003819904", "8.4421814758067507898463372"):
        for exponent in range(17, 330):
            (reason,) = decode(f"{digits}e-{exponent}").reasons
            assert "does not fit decimal" in reason
    for text, value in (("0e-99", 0), ("1E-17", Decimal("1e-17")), ("1000e-020", Decimal("1e-17"))):
        assert decode(text).rows["d"].to_pylist() == [1, value]
