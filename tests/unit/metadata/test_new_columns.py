"""After a column was added, the statistics of each partition record that it has no value."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.metadata.column_stats.lookup import PartitionStatistics
from lakemark.metadata.metadata_table_opener import open_metadata_table
from lakemark.model.action import COMMITS
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import Storage, StorageLocation
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.content import encode_commit
from tests.clocks import SharedClock, on_clock
from tests.depth import sample
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable
from tests.storages import SimulatedCrash
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")

CLOCK = SharedClock()

#: Of a commit, the write that is the first of those for the metadata table, or one before it.
FIRST_METADATA_WRITE = 6

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64())])
WIDER = SCHEMA.append(pa.field("more", pa.string()))
NEW = pa.table({"id": ["b"], "p": ["p"], "ts": [2], "more": ["new"]}, WIDER)
TABLE = ApacheTable("t", ["id"], ["p"], ["ts"], has_metadata=True, bucket_count=1)


@pytest.mark.parametrize("same_process", [True, False])
def test_other_partitions_have_no_value_of_a_new_column(tmp_path: Path, same_process: bool) -> None:
    path = tmp_path / "t"
    writer = LakemarkWriter.open(path, TABLE, SCHEMA)
    writer.upsert(pa.table({"id": ["a", "z", "y"], "p": ["p", "q", "q"], "ts": [1, 1, 1]}, SCHEMA))
    writer = LakemarkWriter.open(path, TABLE, WIDER)
    writer.upsert(pa.table({"id": ["b"], "p": ["p"], "ts": [2], "more": ["new"]}, WIDER))
    assert _of_partitions(path) == {"p": ("new", "new", 1, 2), "q": (None, None, 2, 2)}
    if not same_process:
        writer = LakemarkWriter.open(path, TABLE, WIDER)
    writer.upsert(pa.table({"id": ["x"], "p": ["q"], "ts": [3], "more": ["old"]}, WIDER))
    assert _of_partitions(path)["q"] == ("old", "old", 2, 3)
    assert metadata_differences(open_table(StorageLocation(str(path)))) == []


def _of_partitions(path: Path) -> dict[str, tuple[object, ...]]:
    """Return bounds, null count and value count of the new column by partition."""
    table = open_table(StorageLocation(str(path)))
    metadata = open_metadata_table(table.storage, table.properties, table.timeline, UTC_CLOCK)
    assert metadata is not None
    rows = PartitionStatistics(metadata).of_column("more", pa.string()).to_pylist()
    return {path: tuple(known) for path, *known in (row.values() for row in rows)}


class DiesAt(WrappedStorage):
    """The storage of a process that dies before one of its writes, or that only counts them."""

    def __init__(self, inner: Storage, nth: int | None = None) -> None:
        super().__init__(inner)
        self._nth, self.writes = nth, 0

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self.writes == self._nth:
            raise SimulatedCrash
        self.writes += 1
        return call()


def _add_column(path: Path, nth: int | None = None) -> DiesAt:
    """Create a table, and upsert a row with a new column in a process that may die."""
    writer = LakemarkWriter.open(path, TABLE, SCHEMA)
    writer.upsert(pa.table({"id": ["a", "z", "y"], "p": ["p", "q", "q"], "ts": [1, 1, 1]}, SCHEMA))
    dying = LakemarkWriter.open(path, TABLE, WIDER)
    whole = dying.writer.table
    storage = DiesAt(whole.storage, nth)
    dying.writer.table = OpenTable(storage, whole.properties)
    with suppress(SimulatedCrash):
        dying.upsert(NEW)
    return storage


def test_other_partitions_have_no_value_of_a_new_column_after_a_crash(tmp_path: Path) -> None:
    """Statistics stay right if the index definition names a column whose commit was rolled back."""
    expected = {"p": ("new", "new", 1, 2), "q": (None, None, 2, 2)}
    writes = _add_column(tmp_path / "whole").writes
    assert writes > FIRST_METADATA_WRITE + 10
    assert _of_partitions(tmp_path / "whole") == expected
    for nth in sample(range(FIRST_METADATA_WRITE, writes), name="new column"):
        path = tmp_path / str(nth)
        _add_column(path, nth)
        again = LakemarkWriter.open(path, TABLE, WIDER)
        again = replace(again, writer=on_clock(again.writer, CLOCK))
        CLOCK.sleep(61)
        again.writer.recover()
        if len(again.writer.table.timeline.completed(*COMMITS)) == 1:
            again.upsert(NEW)
        assert _of_partitions(path) == expected, nth


def test_partitions_keep_their_values_of_a_column_that_the_newest_commit_lacks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t"
    writer = LakemarkWriter.open(path, TABLE, WIDER)
    rows = {"id": ["a", "z"], "p": ["p", "q"], "ts": [1, 1], "more": ["one", "two"]}
    writer.upsert(pa.table(rows, WIDER))
    table = LakemarkWriter.open(path, TABLE, SCHEMA).writer.table
    commit = table.timeline.completed()[-1]
    metadata = table.store.read_commit(commit)
    lacking = json.loads(metadata.extra_metadata[keys.SCHEMA])
    lacking["fields"] = [f for f in lacking["fields"] if f["name"] != "more"]
    extra = {**metadata.extra_metadata, keys.SCHEMA: json.dumps(lacking)}
    content = encode_commit(commit.action, replace(metadata, extra_metadata=extra))
    table.storage.put(table.store.path_of(commit), content)
    again = LakemarkWriter.open(path, TABLE, WIDER)
    again.upsert(pa.table({"id": ["b"], "p": ["p"], "ts": [2], "more": ["six"]}, WIDER))
    assert _of_partitions(path)["q"] == ("two", "two", 0, 1)
