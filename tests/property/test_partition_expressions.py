"""Partition expressions have the values of a plain model, and pruning by them loses no row."""

from __future__ import annotations

import zlib
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.config.partition_field import PartitionField
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.keygen.partition_expressions import (
    compute_expressions,
    evaluate_expression,
    with_expression_columns,
)
from lakemark.read.pruning import SlicePruner

_STRFTIME = {
    "year": "",
    "month": "-%m",
    "day": "-%m-%d",
    "hour": "-%m-%d-%H",
    "format:yyyyMMdd": "%m%d",
    "format:yyyy.MM.dd HH_mm_ss": ".%m.%d %H_%M_%S",
    "format:HH-mm": None,
    "format:dd-MM-yyyy": None,
    "format:y-M": None,
}
_TYPES = [
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us"),
    pa.timestamp("us", "Europe/Berlin"),
    pa.date32(),
]

#: Times of all years, and of few days, so that rows share folders.
_TIMES = st.one_of(
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
    st.datetimes(datetime(2026, 2, 27, 23), datetime(2026, 3, 1, 1)),  # noqa: DTZ001
    st.datetimes(datetime(1969, 12, 31, 23, 59, 59), datetime(1970, 1, 1, 0, 0, 1)),  # noqa: DTZ001
)
_TEXTS = st.text(st.characters(codec="utf-8", max_codepoint=0x10FFFF), max_size=5)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_SMALL = st.integers(-12, 12)


def _field(function: str, *arguments: object) -> PartitionField:
    name, _, pattern = function.partition(":")
    listed = ["c", *([pattern] if pattern else []), *map(str, arguments)]
    return PartitionField.parse(f"{name}({', '.join(listed)})")


def _time_column(times: list[datetime | None], kind: pa.DataType) -> pa.Array:
    """Return the times, of which each type keeps the leading part."""
    if pa.types.is_date(kind):
        return pa.array([one and one.date() for one in times], kind)
    micros = pa.array(times, pa.timestamp("us")).cast(pa.timestamp(kind.unit), safe=False)
    return micros.cast(pa.int64()).cast(kind)


def _model_of_time(function: str, time: datetime | date) -> str:
    """Format a time without ``TimePattern``; Python's %Y does not pad years before 1000."""
    if function == "format:HH-mm":
        return time.strftime("%H-%M")
    if function == "format:dd-MM-yyyy":
        return time.strftime("%d-%m-") + f"{time.year:04d}"
    if function == "format:y-M":
        return f"{time.year}-{time.month}"
    return f"{time.year:04d}" + time.strftime(_STRFTIME[function] or "")


def _values(column: pa.Array, field: PartitionField) -> list[Any]:
    values: list[Any] = evaluate_expression(pa.table({"c": column}), field).to_pylist()
    return values


@given(
    times=st.lists(st.none() | _TIMES, max_size=6),
    kind=st.sampled_from(_TYPES),
    function=st.sampled_from([*_STRFTIME]),
)
def test_times_are_formatted_in_utc(
    times: list[datetime | None], kind: pa.DataType, function: str
) -> None:
    column = _time_column(times, kind)
    utc = kind if pa.types.is_date(kind) else pa.timestamp(kind.unit)
    plain = column if pa.types.is_date(kind) else column.cast(pa.int64()).cast(utc)
    expected = [one and _model_of_time(function, _as_time(one)) for one in plain.to_pylist()]
    assert _values(column, _field(function)) == expected


def _as_time(value: date) -> datetime:
    if isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day)  # noqa: DTZ001


@given(texts=st.lists(st.none() | _TEXTS), count=st.integers(1, 20))
def test_bucket_of_a_text_is_its_crc32(texts: list[str | None], count: int) -> None:
    expected = [None if one is None else zlib.crc32(one.encode()) % count for one in texts]
    assert _values(pa.array(texts, pa.string()), _field("bucket", count)) == expected


@given(numbers=st.lists(_INT64), count=st.integers(1, 20))
def test_bucket_of_an_integer_does_not_depend_on_its_width(numbers: list[int], count: int) -> None:
    expected = [zlib.crc32(str(one).encode()) % count for one in numbers]
    assert _values(pa.array(numbers, pa.int64()), _field("bucket", count)) == expected
    small = [one for one in numbers if abs(one) < 2**31]
    expected = _values(pa.array(small, pa.int64()), _field("bucket", count))
    assert _values(pa.array(small, pa.int32()), _field("bucket", count)) == expected


def test_bucket_of_a_date_is_that_of_its_text() -> None:
    expected = zlib.crc32(b"2026-01-02") % 16
    assert _values(pa.array([date(2026, 1, 2)]), _field("bucket", 16)) == [expected]


@given(texts=st.lists(st.none() | _TEXTS), width=st.integers(1, 6))
def test_truncated_text_has_the_first_characters(texts: list[str | None], width: int) -> None:
    expected = [None if one is None else one[:width] for one in texts]
    assert _values(pa.array(texts, pa.string()), _field("truncate", width)) == expected


@given(
    numbers=st.lists(st.none() | _INT64 | _SMALL),
    width=st.integers(1, 10) | st.integers(1, 2**31 - 1),
)
def test_truncated_integer_is_a_multiple(numbers: list[int | None], width: int) -> None:
    multiples = [None if one is None else one // width * width for one in numbers]
    expected = [None if one is None or one < -(2**63) else one for one in multiples]
    assert _values(pa.array(numbers, pa.int64()), _field("truncate", width)) == expected


@pytest.mark.parametrize(
    ("column", "field"),
    [
        (pa.array([2**62, None], pa.timestamp("us", "UTC")), _field("day")),
        (pa.array([-(2**62), None], pa.timestamp("ms")), _field("year")),
        (pa.array([2**31 - 1, None], pa.date32()), _field("month")),
        (pa.array([-(2**31), None], pa.int32()), _field("truncate", 1000)),
    ],
)
def test_row_without_a_value_has_no_path_but_a_null_has(
    column: pa.Array, field: PartitionField
) -> None:
    rows = _with_column(pa.table({"c": column}), field)
    config = KeyGeneratorConfig(("id",), (field.stored_column,), expressions=(field,))
    paths = KeyGenerator(config).partition_paths(rows).to_pylist()
    assert paths == [None, "__HIVE_DEFAULT_PARTITION__"]


def _with_column(rows: pa.Table, field: PartitionField) -> pa.Table:
    columns = with_expression_columns(rows.schema, [field])
    added = rows.append_column(columns.field(-1), pa.nulls(rows.num_rows, columns.field(-1).type))
    return compute_expressions(added, [field])


_COLUMNS = st.one_of(
    st.tuples(
        st.lists(st.none() | _TIMES, min_size=1, max_size=6),
        st.sampled_from(_TYPES),
        st.sampled_from([*_STRFTIME]),
    ).map(lambda drawn: (_time_column(drawn[0], drawn[1]), _field(drawn[2]))),
    st.tuples(st.lists(st.none() | _TEXTS, min_size=1, max_size=6), st.integers(1, 4)).map(
        lambda drawn: (pa.array(drawn[0], pa.string()), _field("truncate", drawn[1]))
    ),
    st.tuples(st.lists(st.none() | _INT64 | _SMALL, min_size=1, max_size=6), st.integers(1, 5)).map(
        lambda drawn: (pa.array(drawn[0], pa.int64()), _field("truncate", drawn[1]))
    ),
    st.tuples(st.lists(st.none() | _SMALL, min_size=1, max_size=6), st.integers(1, 5)).map(
        lambda drawn: (pa.array(drawn[0], pa.int64()), _field("bucket", drawn[1]))
    ),
)
_COMPARE = [
    lambda c, v: c == v,
    lambda c, v: c >= v,
    lambda c, v: c > v,
    lambda c, v: c <= v,
    lambda c, v: c < v,
    lambda c, v: c != v,
    lambda c, v: c.isin([v]),
    lambda c, v: c.is_null() | (c == v),
    lambda c, v: ~(c > v),
    lambda c, v: c.is_null(),
    lambda c, v: c.is_valid(),
]


@given(
    drawn=_COLUMNS,
    compare=st.sampled_from(_COMPARE),
    at=st.integers(0, 5),
    hive_style=st.booleans(),
)
def test_pruning_keeps_every_folder_with_a_matching_row(
    drawn: tuple[pa.Array, PartitionField], compare: Any, at: int, hive_style: bool
) -> None:
    column, field = drawn
    rows = _with_column(pa.table({"c": column}), field)
    config = KeyGeneratorConfig(
        ("id",),
        (field.stored_column,),
        hive_style=hive_style,
        url_encode=True,
        expressions=(field,),
    )
    paths = KeyGenerator(config).partition_paths(rows)
    rows = rows.append_column("path", paths).filter(paths.is_valid())
    condition = compare(pc.field("c"), column[at % len(column)])
    pruner = SlicePruner(
        rows.schema,
        (field.stored_column,),
        is_url_encoded=True,
        is_hive_style=hive_style,
        expressions={field.stored_column: field},
    )
    wanted = set(rows.filter(condition)["path"].to_pylist())
    assert wanted <= set(pruner.select_partitions(set(rows["path"].to_pylist()), condition))


@pytest.mark.parametrize("last", ["\ud7ff", "\U0010ffff", "\x7f", "z"], ids=ascii)
def test_prefix_with_any_last_character_is_found(last: str) -> None:
    field, texts = _field("truncate", 2), [f"a{last}", f"a{last}\U0010ffff", f"a{last}a"]
    rows = _with_column(pa.table({"c": texts}), field)
    pruner = SlicePruner(rows.schema, (name := field.stored_column,), expressions={name: field})
    for text in texts:
        assert pruner.select_partitions([f"a{last}"], pc.field("c") == text) == [f"a{last}"]


@pytest.mark.parametrize(
    ("column", "field", "value", "left"),
    [
        (
            [datetime(2026, 3, day, 12, tzinfo=UTC) for day in (1, 2, 3)],
            _field("day"),
            datetime(2026, 3, 2, 12, tzinfo=UTC),
            ["2026-03-02", "2026-03-03"],
        ),
        (
            [datetime(2026, 1, 31, tzinfo=UTC) + timedelta(days=30 * n) for n in range(3)],
            _field("month"),
            datetime(2026, 3, 1, tzinfo=UTC),
            ["2026-03", "2026-04"],
        ),
        ([date(2025, 12, 31), date(2026, 1, 1)], _field("year"), date(2026, 1, 1), ["2026"]),
        (["apple", "banana", "cherry"], _field("truncate", 1), "bz", ["b", "c"]),
        ([5, 15, 25], _field("truncate", 10), 19, ["10", "20"]),
    ],
)
def test_filter_on_the_column_skips_folders(
    column: list[Any], field: PartitionField, value: object, left: list[str]
) -> None:
    rows = _with_column(pa.table({"c": column}), field)
    name = field.stored_column
    pruner = SlicePruner(rows.schema, (name,), expressions={name: field})
    paths = {str(one) for one in rows[name].to_pylist()}
    condition = pc.field("c") >= pa.scalar(value, rows.schema.field("c").type)
    found = pruner.select_partitions(paths, condition)
    assert found == [one for one in left if one in paths]
    assert len(found) < len(paths)
    without = SlicePruner(rows.schema, (name,))
    assert without.select_partitions(paths, condition) == sorted(paths)
