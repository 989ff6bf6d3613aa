"""Lines of CSV become rows, and the lines at fault are rejected."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from transforms.decode.csv import CsvDecoder, _CsvDecoding
from transforms.reject_reason import RejectCode

SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int64())])


def decoder(delimiter: str = ",", null_text: str = "") -> CsvDecoder:
    """Return a decoder of lines whose fields have another order than the columns."""
    schema = SCHEMA.append(pa.field("other", pa.bool_()))
    return CsvDecoder(schema, fields=("n", "name"), delimiter=delimiter, null_text=null_text)


def test_fields_fill_columns_in_the_order_of_the_line() -> None:
    done = decoder().decode(pa.chunked_array([[b"1,a", b"2,b\n"], [b"-3,c\r\n"]]))
    assert done.rows.to_pylist() == [
        {"name": name, "n": n, "other": None} for name, n in (("a", 1), ("b", 2), ("c", -3))
    ]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"1,", None),
        (b'1,""', ""),
        (b'1,"a,b"', "a,b"),
        (b'1,"a ""b"""', 'a "b"'),
        (b'1,a"b', 'a"b'),
        (b'1,"a\nb"', "a\nb"),
        (b'1,"a\r\nb"\r\n', "a\r\nb"),
        (b"1,a\r", "a"),
        (b'1,"a\r"\r', "a\r"),
        ("1,ä€😀".encode(), "ä€😀"),
        (b"1, a ", " a "),
    ],
)
def test_quotation_marks_and_null(line: bytes, name: str | None) -> None:
    assert decoder().decode(pa.array([b"0,x", line, b"2,y"])).rows["name"].to_pylist() == [
        "x",
        name,
        "y",
    ]


def test_delimiter_and_null_are_settings() -> None:
    lines = pa.array([b"1\ta,b", b"2\t\\N", b'3\t"\\N"', b"4\t"])
    rows = decoder("\t", "\\N").decode(lines).rows
    assert rows["name"].to_pylist() == ["a,b", None, "\\N", ""]
    assert decoder("y", "x").decode(pa.array([b"1yx", b"2ya"])).rows["name"].to_pylist() == [
        None,
        "a",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1", "the line has 1 fields instead of 2"),
        (b"1,a,b", "the line has 3 fields instead of 2"),
        (b'1,"a', "a quotation mark is not closed"),
        (b'1,"a"b', "text follows a closing quotation mark"),
        (b'1,"a" ', "text follows a closing quotation mark"),
        (b'1,"a"\nb', "text follows a closing quotation mark"),
        (b'1,"a\nb', "a quotation mark is not closed"),
        (b"1,a\n2,b", "is not one line"),
        (b'1,a\n2,"b', "is not one line"),
        (b'x,x\r"', "is not one line"),
        (b"1,a\n\n", "is not one line"),
        (b"x,a", "column 'n': this value of type string does not fit int64"),
        (b"1.0,a", "column 'n'"),
        (b" 1,a", "column 'n'"),
        (b"99999999999999999999,a", "column 'n'"),
        (b"", "the value is empty"),
        (b"\n", "the value is empty"),
        (b"1,\xff", "the value is not UTF-8"),
        (None, "the value is null"),
    ],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_line_at_fault_is_rejected_and_no_other(
    line: bytes | None, reason: str, position: int
) -> None:
    lines: list[bytes | None] = [b"1,a", b'2,"b"']
    lines.insert(position, line)
    done = decoder().decode(pa.array(lines, pa.binary()))
    assert done.rejected.tolist() == [position]
    assert reason in done.reasons[0]
    assert done.rows["n"].to_pylist() == [1, 2]
    expected = RejectCode.INVALID_VALUE if "column" in reason else RejectCode.INVALID_MESSAGE
    assert done.reasons[0].code is expected


@pytest.mark.parametrize("line", [b"1,a\r", b'1,"a\nb"', b'"1",a\n'])
def test_lines_with_breaks_are_parsed_together(
    monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    calls: list[int] = []
    read = _CsvDecoding._read

    def counting(decoding: _CsvDecoding, values: pa.Array, skip: object) -> pa.Table | None:
        calls.append(len(values))
        return read(decoding, values, skip)

    monkeypatch.setattr(_CsvDecoding, "_read", counting)
    done = decoder().decode(pa.array([line] * 100 + [b'1,"a'] + [line] * 100))
    assert (done.rows.num_rows, done.rejected.tolist(), calls) == (200, [100], [200])


def test_infinity_is_a_number_only_if_the_text_says_so() -> None:
    given = CsvDecoder(pa.schema([("d", pa.float64())]), fields=("d",))
    texts = [b"inf", b"-Infinity", b"1e400", b"-1e400", b"1e308"]
    done = given.decode(pa.array(texts, pa.binary()))
    assert done.rows["d"].to_pylist() == [float("inf"), -float("inf"), 1e308]
    assert done.rejected.tolist() == [2, 3]


def test_number_smaller_than_the_last_place_of_a_decimal_is_no_zero() -> None:
    """Pyarrow reads many of these numbers as zero."""
    given = CsvDecoder(pa.schema([("d", pa.decimal128(38, 17))]), fields=("d",))
    small = [f"8.4421814758067507898463372e-{n}" for n in range(17, 330)]
    texts = ["0e-99", *small, "-1e-17", "0.0000001E-10", "2.5e-00001"]
    done = given.decode(pa.array([text.encode() for text in texts]))
    least = Decimal("1e-17")
    assert done.rows["d"].to_pylist() == [0, -least, least, Decimal("0.25")]
    assert len(done.reasons) == len(small)


def test_texts_become_values_of_each_type() -> None:
    types = {
        "i": (pa.int32(), "2147483647", 2147483647, "2147483648"),
        "f": (pa.float32(), "1.5", 1.5, "1e39"),
        "d": (pa.float64(), "-1.5e300", -1.5e300, "1e400"),
        "p": (pa.decimal128(4, 2), "12.3", Decimal("12.30"), "12.345"),
        "b": (pa.bool_(), "true", True, "yes"),
        "y": (pa.date32(), "2026-02-28", date(2026, 2, 28), "2026-02-29"),
        "t": (
            pa.timestamp("us", "UTC"),
            "2026-01-01T01:00:00.1234567+01:00",
            datetime(2026, 1, 1, 0, 0, 0, 123456, UTC),
            "yesterday",
        ),
    }
    schema = pa.schema([(name, kind) for name, (kind, *_) in types.items()])
    given = CsvDecoder(schema, fields=tuple(types))
    good = [text for _, text, _, _ in types.values()]
    lines = [",".join(good)]
    for position, (_, _, _, wrong) in enumerate(types.values()):
        lines.append(",".join([*good[:position], wrong, *good[position + 1 :]]))
    done = given.decode(pa.array([line.encode() for line in lines]))
    assert done.rows.to_pylist() == [{name: value for name, (_, _, value, _) in types.items()}]
    assert [f"column '{name}'" in done.reasons[n] for n, name in enumerate(types)] == [True] * 7


@pytest.mark.parametrize("kind", [pa.binary(), pa.list_(pa.int32())])
def test_types_without_a_text_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidConfig, match=r"column 'a': CSV is not decoded to"):
        CsvDecoder(pa.schema([("a", kind)]), fields=("a",))


_LINES = st.lists(st.text('ax",\n\r \ufeff', max_size=6).map(lambda text: f"1,{text}"), max_size=8)


def test_byte_order_mark_is_no_part_of_a_line() -> None:
    given = CsvDecoder(pa.schema([("name", pa.string()), ("n", pa.int64())]), fields=("name", "n"))
    lines = [b"\xef\xbb\xbfa,1", b"\xef\xbb\xbfb,2", b'\xef\xbb\xbf"c,d",3', b"\xef\xbb\xbf"]
    done = given.decode(pa.array(lines))
    assert done.rows["name"].to_pylist() == ["a", "b", "c,d"]
    assert [str(one) for one in done.reasons] == ["the value is empty"]


@given(_LINES)
def test_each_line_is_read_as_if_it_was_alone(lines: list[str]) -> None:
    """A quotation mark that is not closed does not join lines."""
    values = [line.encode() for line in lines]
    together = decoder().decode(pa.array(values, pa.binary()))
    alone = [decoder().decode(pa.array([value], pa.binary())) for value in values]
    assert together.accepted.tolist() == [n for n, one in enumerate(alone) if len(one.accepted)]
    expected = [row for one in alone for row in one.rows.to_pylist()]
    assert together.rows.to_pylist() == expected


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(min_size=1)), max_size=8))
def test_lines_of_another_program_are_read(rows: list[tuple[int, str]]) -> None:
    lines = []
    for row in rows:
        line = io.StringIO()
        csv.writer(line, quoting=csv.QUOTE_ALL).writerow(row)
        lines.append(line.getvalue().encode("utf-8", "surrogatepass"))
    valid = [
        n for n, (_, text) in enumerate(rows) if not any("\ud800" <= c < "\ue000" for c in text)
    ]
    quoted = [
        line.replace(f'"{n}"'.encode(), f"{n}".encode(), 1)
        for line, (n, _) in zip(lines, rows, strict=True)
    ]
    done = decoder().decode(pa.array(quoted, pa.binary()))
    assert done.accepted.tolist() == valid
    assert done.rows.select(["n", "name"]).to_pylist() == [
        {"n": rows[n][0], "name": rows[n][1]} for n in valid
    ]
