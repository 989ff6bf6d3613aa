"""Every value lies between the bounds of its column, however the bounds were combined."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakemark.model.bounds import MAX_LENGTH, bounds_of, pair_bounds
from lakemark.model.column_ranges import ColumnRanges

LAST = chr(sys.maxunicode)
LONG = MAX_LENGTH + 1
#: Few characters, so that long texts begin alike: of one byte to four, around the surrogates.
TEXTS = st.text("a\x7f\u07ff\ud7ff\ue000\uffff\U00010000" + LAST, max_size=3)
LONG_TEXTS = st.builds(
    lambda start, one, end: one * (MAX_LENGTH - len(start)) + start + end,
    TEXTS,
    st.sampled_from("a\ud7ff" + LAST),
    TEXTS,
)
BYTES = st.builds(
    lambda one, count, end: one * count + end,
    st.sampled_from([b"", b"\x00", b"\xfe", b"\xff"]),
    st.sampled_from([0, MAX_LENGTH - 1, MAX_LENGTH]),
    st.binary(max_size=2),
)
FLOATS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324])


def column(values: list[Any], kind: pa.DataType) -> ColumnRanges:
    return ColumnRanges.of(pa.table({"c": pa.array(values, kind)}), ["c"])


def bounds(ranges: ColumnRanges) -> tuple[Any, Any]:
    low, high = ranges.bounds.column(0).to_pylist()
    return low, high


@given(st.data(), st.sampled_from([(pa.string(), TEXTS | LONG_TEXTS), (pa.binary(), BYTES)]))
def test_texts_and_bytes_are_between_their_bounds(data: st.DataObject, kind: Any) -> None:
    values = data.draw(st.lists(st.none() | kind[1], min_size=1))
    here = data.draw(st.integers(0, len(values)))
    whole = column(values, kind[0])
    parts = [column(values[:here], kind[0]), column(values[here:], kind[0])]
    low, high = bounds(whole)
    assert (low, high) == bounds(ColumnRanges.union(parts)), "parts make the same bounds"
    assert (low, high) == bounds(column([low, high], kind[0])), "bounds bound themselves"
    there = [value for value in values if value is not None]
    assert all(low <= value <= high for value in there)
    assert (low is None) == (high is None) == (not there)
    for bound, value in ((low, min(there, default=None)), (high, max(there, default=None))):
        assert value is None or len(value) > MAX_LENGTH or bound == value


def test_long_bounds_are_cut() -> None:
    assert bounds(column(["a" * LONG, "b" * LONG], pa.string())) == (
        "a" * MAX_LENGTH,
        "b" * (MAX_LENGTH - 1) + "c",
    )
    before_surrogates = "a" * (MAX_LENGTH - 1) + "\ud7ff" + "b"
    assert bounds(column([before_surrogates], pa.string()))[1] == "a" * (MAX_LENGTH - 1) + "\ue000"
    last = b"\xff" * LONG
    assert bounds(column([last], pa.binary())) == (b"\xff" * MAX_LENGTH, last), "nothing is after"


def is_read(condition: str, low: float, high: float, number: float) -> bool:
    """Whether Apache Hudi reads a file with these bounds for a condition on its column."""
    return {
        "=": low <= number <= high,
        "<": low < number,
        "<=": low <= number,
        ">": high > number,
        ">=": high >= number,
        "!=": not low == high == number,
    }[condition]


def meets(condition: str, value: float, number: float) -> bool:
    """Whether a value meets the condition in Spark, where NaN is larger than all other values."""
    if math.isnan(value):
        return condition in (">", ">=", "!=")
    return {
        "=": value == number,
        "<": value < number,
        "<=": value <= number,
        ">": value > number,
        ">=": value >= number,
        "!=": value != number,
    }[condition]


@given(
    st.lists(FLOATS, min_size=1),
    FLOATS.filter(lambda number: not math.isnan(number)),
    st.sampled_from(["=", "<", "<=", ">", ">=", "!="]),
)
@example([math.nan], math.inf, "!=")
@example([math.nan, math.inf], math.inf, "!=")
def test_no_file_with_a_number_that_is_asked_for_is_left_out(
    values: list[float], number: float, condition: str
) -> None:
    low, high = bounds(column(values, pa.float64()))
    assert not math.isnan(low) and not math.isnan(high)
    if condition == ">" and number == math.inf:
        return  # Only a NaN is above infinity, and Apache Hudi does not find it so.
    if any(meets(condition, value, number) for value in values):
        assert is_read(condition, low, high, number)


@given(st.data(), st.sampled_from([pa.float32(), pa.float64()]))
def test_parts_of_floats_make_the_bounds_of_the_whole(
    data: st.DataObject, kind: pa.DataType
) -> None:
    width = kind.bit_width
    floats = st.floats(width=width) | st.sampled_from([math.nan, math.inf, 1.5])
    values = data.draw(st.lists(st.none() | floats, min_size=1))
    here = data.draw(st.integers(0, len(values)))
    parts = [column(values[:here], kind), column(values[here:], kind)]
    assert bounds(column(values, kind)) == bounds(ColumnRanges.union(parts))


@pytest.mark.parametrize(
    ("older", "newer", "low", "high"),
    [
        (pa.array([9, 10], pa.int32()), pa.array([2**40]), 9, 2**40),
        (pa.array([2**40]), pa.array([9, 10], pa.int32()), 9, 2**40),
        (pa.array([2**60 + 1]), pa.array([1.5]), 1.5, float(2**60)),
        (pa.array([0.1, 2.5], pa.float32()), pa.array([0.2]), 0.1, 2.5),
        (pa.array([7], pa.int32()), pa.array([Decimal("1.5")], pa.decimal128(12, 1)), 1.5, 7),
        (pa.array([9, 10]), pa.array(["10"]), "", "\x7f"),
        (pa.array([9, 10]), pa.array(["é"]), "", "é"),
        (pa.array([None], pa.int32()), pa.array(["é"]), "é", "é"),
        (pa.array([b"a"]), pa.array(["b"]), "a", "b"),
        (pa.array([True]), pa.array([1]), 1, 1),
        (pa.array([False]), pa.array([1]), 1, 1),
    ],
)
def test_bounds_of_a_column_whose_type_changed(
    older: pa.Array, newer: pa.Array, low: object, high: object
) -> None:
    parts = [ColumnRanges.of(pa.table({"c": one}), ["c"]) for one in (older, newer)]
    assert bounds(ColumnRanges.union(parts)) == (low, high)


@given(st.lists(st.lists(st.none() | st.integers(-2, 2)), min_size=1, max_size=4))
def test_counts_of_parts_add_up_to_those_of_the_whole(parts: list[list[int | None]]) -> None:
    tables = [pa.table({"c": pa.array(part, pa.int64())}) for part in parts]
    whole = ColumnRanges.of(pa.concat_tables(tables), ["c"])
    united = ColumnRanges.union([ColumnRanges.of(table, ["c"]) for table in tables])
    assert united.null_counts == whole.null_counts
    assert united.value_counts == whole.value_counts
    assert bounds(united) == bounds(whole)


@given(
    st.lists(st.tuples(st.none() | st.floats(), st.none() | st.floats())),
    st.lists(st.tuples(st.none() | st.text("aé\U0010ffff", max_size=260), st.none() | st.text())),
)
def test_paired_bounds_are_those_of_each_pair(
    numbers: list[tuple[float | None, float | None]], texts: list[tuple[str | None, str | None]]
) -> None:
    for given_, kind in ((numbers, pa.float64()), (texts, pa.string())):
        pairs = [sorted(pair, key=_order) for pair in given_ if None not in pair]
        low, high = (pa.array([pair[at] for pair in pairs], kind) for at in (0, 1))
        expected = [bounds_of(pa.chunked_array([pa.array(pair, kind)])) for pair in pairs]
        assert list(map(str, pair_bounds(low, high))) == list(map(str, expected))


@given(st.lists(st.none() | TEXTS | LONG_TEXTS), st.integers(0, 9))
def test_bounds_of_encoded_texts_are_those_of_plain_ones(
    texts: list[str | None], first: int
) -> None:
    # The dictionary has texts that no row has, as after a slice of a table.
    column = pa.chunked_array([pa.array(["", *texts, LAST], pa.string())])
    encoded = column.dictionary_encode()[1:-1].slice(first)
    assert bounds_of(encoded).equals(bounds_of(column[1:-1].slice(first)))


def _order(value: float | str | None) -> bytes | tuple[bool, float]:
    """Return a key that sorts text by its bytes, and NaN last."""
    if isinstance(value, str):
        return value.encode()
    assert value is not None
    return math.isnan(value), value
