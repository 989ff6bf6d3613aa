"""Commits of lakemark contain the same event times as those of Apache Hudi."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from lakemark.model.action import COMMITS
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
#: Seconds since 1970, of 10 digits.
DAY_S = 1_767_225_600
TRACKED = {
    "hoodie.payload.event.time.field": "ts",
    "hoodie.write.track.event.time.watermark": "true",
}


def rows(*after: tuple[str, int]) -> pa.Table:
    columns = [[id for id, _ in after], [DAY_S + s for _, s in after], [id for id, _ in after]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def event_times(path: Path) -> list[tuple[int, int]]:
    """Return the earliest and the latest event time of each commit, in milliseconds."""
    table, found = open_table(StorageLocation(str(path))), []
    for commit in map(table.store.read_commit, table.timeline.completed(*COMMITS)):
        stats = commit.write_stats
        times = [t for s in stats for t in (s.min_event_time, s.max_event_time) if t is not None]
        found.append((min(times), max(times)))
    return found


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_commits_have_the_event_times_that_apache_records(
    oracle: Oracle, tmp_path: Path, table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
) -> None:
    apache, ours = tmp_path / "apache", tmp_path / "ours"
    table = ApacheTable("t", ["id"], [], ["ts"], table_type, 9)
    first, second = rows(("a", 50), ("b", 10), ("c", 90)), rows(("b", 70), ("d", 60))
    for batch in (first, second):
        oracle.write(apache, batch, table, options=TRACKED)
    oracle.write(ours, first, table, options=TRACKED)
    lakemark.open(
        ours, only_writer=True, buckets=table.bucket_count, event_time_column="ts"
    ).upsert(second)
    expected = [((DAY_S + a) * 1000, (DAY_S + b) * 1000) for a, b in ((10, 90), (60, 70))]
    assert event_times(apache) == expected
    assert event_times(ours) == expected
