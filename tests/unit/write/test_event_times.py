"""Write stats contain the earliest and latest event time of the rows that a commit wrote."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakemark
from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.write.event_times import EventTimes
from tests.unit.operations.tables import FAST

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
DAY_MS = 1_767_225_600_000


def rows(*given: tuple[str, int, int]) -> pa.Table:
    """Rows of key, ordering value, and milliseconds after a day's begin."""
    times = [datetime.fromtimestamp((DAY_MS + ms) / 1000, UTC) for _, _, ms in given]
    columns = [[one[0] for one in given], [one[1] for one in given], times]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def event_times(path: Path) -> list[tuple[int | None, int | None]]:
    """Return the event times in the only write stat of each commit, after the day's begin."""
    table = open_table(StorageLocation(str(path)))
    commits = (table.store.read_commit(i) for i in table.timeline.completed(*COMMITS))
    stats = [stat for commit in commits for stat in commit.write_stats]
    ranges = [(stat.min_event_time, stat.max_event_time) for stat in stats]
    return [(a and a - DAY_MS, b and b - DAY_MS) for a, b in ranges]


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_commits_contain_the_event_times_of_their_own_rows(tmp_path: Path, table_type: str) -> None:
    path = tmp_path / "t"
    lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        ordering=["ts"],
        table_type=table_type,
        buckets=1,
        multi_writer=FAST,
    )
    table = lakemark.open(path, multi_writer=FAST, event_time_column="at")
    table.upsert(rows(("a", 1, 500), ("b", 1, 100), ("c", 1, 900)))
    table.upsert(rows(("b", 2, 700), ("d", 2, 600)))
    table.delete(keys=["a"])
    if table_type == "MERGE_ON_READ":
        table.compact()
    lakemark.open(path, multi_writer=FAST).upsert(rows(("e", 3, 50)))
    expected: list[Any] = [(100, 900), (600, 700), (None, None), (None, None)]
    found = event_times(path)
    assert found[: len(expected)] == expected
    assert set(found[len(expected) :]) <= {(None, None)}


#: Numbers of seconds and of milliseconds, other numbers, and those at the borders between them.
_NUMBERS = st.one_of(
    st.none(),
    st.integers(10**9, 10**10 - 1),
    st.integers(10**12, 10**13 - 1),
    st.integers(-(10**14), 10**14),
    st.sampled_from([10**n + by for n in (9, 10, 12, 13) for by in (-1, 0)]),
)


@given(st.lists(_NUMBERS, max_size=20), st.integers(1, 5))
def test_numbers_of_10_digits_are_seconds_and_of_13_digits_milliseconds(
    numbers: list[int | None], size: int
) -> None:
    times = EventTimes("t")
    for start in range(0, len(numbers), size):
        part = pa.array(numbers[start : start + size], pa.int64())
        times.add_rows(pa.table({"t": part}))
    digits = {number: len(str(number)) for number in numbers if number is not None and number > 0}
    millis = [n * 1000 for n, count in digits.items() if count == 10]
    millis += [n for n, count in digits.items() if count == 13]
    assert times.min_ms == min(millis, default=None)
    assert times.max_ms == max(millis, default=None)


@pytest.mark.parametrize(
    ("column", "message"), [("none", "does not exist"), ("id", "must contain timestamps")]
)
def test_column_without_times_is_refused(tmp_path: Path, column: str, message: str) -> None:
    path = tmp_path / "t"
    lakemark.create(path, schema=SCHEMA, record_key="id", multi_writer=FAST)
    table = lakemark.open(path, multi_writer=FAST, event_time_column=column)
    with pytest.raises(InvalidConfig, match=message):
        table.upsert(rows(("a", 1, 1)))
