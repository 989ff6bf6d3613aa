from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lakemark.read.where import InvalidWhere, parse_where

ROWS = pa.table(
    {
        "id": pa.array(["a", "b", "it's", None]),
        "n": pa.array([1, 2, 3, None], pa.int32()),
        "x": pa.array([0.5, 0.25, None, 2.0], pa.float32()),
        "price": pa.array([Decimal("1.10"), Decimal("2.00"), None, None], pa.decimal128(10, 2)),
        "paid": pa.array([True, False, None, True]),
        "day": pa.array([date(2026, 5, 1), date(2026, 5, 2), None, None]),
        "at": pa.array([datetime(2026, 5, 1, 12, tzinfo=UTC), None, None, None]).cast(
            pa.timestamp("us", "UTC")
        ),
        "local": pa.array([datetime(2026, 5, 1, 12), None, None, None], pa.timestamp("us")),  # noqa: DTZ001
        "pos": pa.array([{"lat": 1}, {"lat": 2}, None, None], pa.struct([("lat", pa.int64())])),
        "in": pa.array([1, 2, 3, 4]),
        "raw": pa.array([b"a", None, None, None]),
    }
)


def found(condition: str) -> list[int]:
    """Return the numbers (column ``in``) of the rows that match a condition."""
    numbers: list[int] = ROWS.filter(parse_where(condition, ROWS.schema)).column("in").to_pylist()
    return numbers


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("n = 1", [1]),
        ("n != 1", [2, 3]),
        ("n <> 1 and n < 3", [2]),
        ("n >= 2 or id = 'a'", [1, 2, 3]),
        ("n = 3 or n = 1 and id = 'b'", [3]),
        ("(n = 3 or n = 1) and id = 'a'", [1]),
        ("not n = 1", [2, 3]),
        ("not (n = 1 or n = 2)", [3]),
        ("not not n = 1", [1]),
        ("n in (1, 3)", [1, 3]),
        ("n not in (1, 3)", [2]),
        ("not (n in (1, 3) or n is null)", [2]),
        ("day in ('2026-05-02', '2026-05-03')", [2]),
        ("pos.lat not in (2, 3)", [1]),
        ("n is null", [4]),
        ("n IS NOT NULL", [1, 2, 3]),
        ("id = 'it''s'", [3]),
        ("x = 0.5", [1]),
        ("x > .3", [1, 4]),
        ("x < 1e2", [1, 2, 4]),
        ("price = 1.1", [1]),
        ("price >= 1.10 and price <= 2", [1, 2]),
        ("paid = true", [1, 4]),
        ("paid != TRUE", [2]),
        ("day = '2026-05-01'", [1]),
        ("day > '2026-05-01'", [2]),
        ("at = '2026-05-01T12:00:00Z'", [1]),
        ("at = '2026-05-01 14:00:00+02:00'", [1]),
        ("at >= '2026-05-01'", [1]),
        ("local = '2026-05-01 12:00:00'", [1]),
        ("pos.lat = 2", [2]),
        ("pos is null", [3, 4]),
        ("`in` in (3)", [3]),
        ("raw is not null", [1]),
        ("n=-1", []),
    ],
)
def test_condition_selects_matching_rows(condition: str, rows: list[int]) -> None:
    assert found(condition) == rows


@pytest.mark.parametrize(
    ("condition", "character", "reason"),
    [
        ("", 1, "expected a column, found 'the end'"),
        ("idd = 1", 1, "there is no column 'idd'; did you mean id?"),
        ("pos.lon = 1", 1, "there is no column 'lon'; columns: lat"),
        ("n.x = 1", 1, "there is no column 'x'; columns: none"),
        ("n", 2, "expected a comparison, in, or is null, found 'the end'"),
        ("n =", 4, "expected a value, found 'the end' (write text in single quotes)"),
        ("id = a", 6, "expected a value, found 'a' (write text in single quotes)"),
        ("n = 'a'", 5, "'a' cannot be a value of n (int32): use a whole number in its range"),
        ("n = 1.5", 5, "1.5 cannot be a value of n (int32): use a whole number in its range"),
        ("n = 3000000000", 5, "3000000000 cannot be a value of n"),
        ("price = 1.001", 9, "1.001 cannot be a value of price (decimal128(10, 2)): use a number"),
        ("price = 1e400", 9, "1e400 cannot be a value of price"),
        ("paid = 1", 8, "1 cannot be a value of paid (bool): use true or false"),
        ("day = '1st of May'", 7, "cannot be a value of day (date32[day]): use a date such as"),
        ("at = 5", 6, "5 cannot be a value of at (timestamp[us, tz=UTC]): use a time such as"),
        ("raw = 'a'", 7, "'a' cannot be a value of raw (binary): use only is null"),
        ("n = 1 n = 2", 7, "expected and, or, or the end, found 'n'"),
        ("(n = 1", 7, "expected ), found 'the end'"),
        ("n in (1", 8, "expected ), found 'the end'"),
        ("n not 1", 7, "expected in, found '1'"),
        ("n is 1", 6, "expected null, found '1'"),
        ("n in (1, null)", 10, "null is equal to no value; write is null"),
        ("n != null", 6, "null is equal to no value; write is null"),
        ("n = 1; drop", 6, "cannot parse '; drop'"),
        ("id = 'a", 5, 'cannot parse "\'a"'),
        ("in = 1", 1, "expected a column, found 'in'"),
        ("(" * 101 + "n = 1" + ")" * 101, 101, "nested more than 100 deep"),
    ],
)
def test_invalid_condition_is_reported_with_its_position(
    condition: str, character: int, reason: str
) -> None:
    with pytest.raises(InvalidWhere) as raised:
        parse_where(condition, ROWS.schema)
    assert f"at character {character}: " in str(raised.value)
    assert reason in str(raised.value)


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ("n == 1", "write = to compare"),
        ("n => 1", "write >= for at least"),
        ("n =< 1", "write <= for at most"),
        ('id = "a"', "write text in single quotes, and a column name in backquotes"),
        ("id LIKE 'a%'", "like is not supported"),
        ("n between 1 and 2", "write column >= … and column <= …"),
        ("n = 1 && n = 2", "write and"),
        ("n = 1 || n = 2", "write or"),
        ("n / 2 = 1", "nothing is calculated"),
    ],
)
def test_words_of_other_languages_are_translated(condition: str, hint: str) -> None:
    with pytest.raises(InvalidWhere, match="at character") as raised:
        parse_where(condition, ROWS.schema)
    assert hint in str(raised.value)


def test_error_without_a_translation_has_no_hint() -> None:
    with pytest.raises(InvalidWhere, match=r"expected null, found '1'$"):
        parse_where("n is 1", ROWS.schema)


@pytest.mark.parametrize("comparison", ["=", ">=", "<"])
def test_time_with_more_digits_than_its_column_is_refused(comparison: str) -> None:
    """The time is refused, because truncated to the column's unit it would match other rows."""
    schema = pa.schema([("ms", pa.timestamp("ms", "UTC")), ("us", pa.timestamp("us"))])
    for column, digits in (("ms", "0005"), ("us", "0000019")):
        with pytest.raises(InvalidWhere, match=r"with at most [36] decimals"):
            parse_where(f"{column} {comparison} '2026-05-01 12:00:00.{digits}'", schema)
    parse_where("ms = '2026-05-01 12:00:00.001000' and us = '2026-05-01T12:00:00.000001'", schema)


@pytest.mark.parametrize("before", [0, 5, 500, 1000])
def test_error_in_a_long_list_shows_only_the_values_around_it(before: int) -> None:
    numbers = [*("7" * before), "'seven'", *("7" * (1000 - before))]
    with pytest.raises(InvalidWhere, match="'seven' cannot be a value of n") as raised:
        parse_where(f"n in ({', '.join(numbers)})", ROWS.schema)
    assert len(str(raised.value)) < 600
    assert str(raised.value).count("'seven'") == 2


def test_condition_may_have_a_list_of_thousands_of_values() -> None:
    values = ", ".join(map(str, range(2, 20_000)))
    assert found(f"n in ({values}) and not (n not in ({values}) or n = 3)") == [2]


def test_number_smaller_than_the_last_place_of_a_decimal_is_not_compared_as_zero() -> None:
    schema = pa.schema([("d", pa.decimal128(38, 17))])
    for exponent in range(18, 330):
        with pytest.raises(InvalidWhere, match="cannot be a value of d"):
            parse_where(f"d = 8.44218147580675078984633922725e-{exponent}", schema)
    assert parse_where("d = 0e-99", schema).equals(parse_where("d = 0", schema))
    assert parse_where("d = 1e-17", schema).equals(parse_where("d = 0.00000000000000001", schema))
