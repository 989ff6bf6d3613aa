"""The stream reader answers in the order in which Spark calls it, also with a late checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyspark
import pytest

import lakemark
from lakemark.errors import InvalidConfig
from lakemark.operations.change_feed import ChangesRemoved, CommitUndone
from lakemark.spark.source_options import SourceOptions
from tests.unit.operations.tables import FAST, SCHEMA, rows

if TYPE_CHECKING:
    from lakemark.spark.stream_reader import CommitStreamReader

pytestmark = pytest.mark.skipif(
    pyspark.__version__.startswith("3."), reason="Spark 3.5 has no data sources in Python"
)

Offset = Mapping[str, Any]


@pytest.fixture
def table() -> lakemark.Table:
    """A table with a commit without rows and six commits of one row."""
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type="copy_on_write",
        index="bucket",
        buckets=1,
        cdc="data_before",
        multi_writer=FAST,
    )
    for ts in range(6):
        table.upsert(rows(("a", "north", ts, ts)))
    return table


def start(table: lakemark.Table, **options: str) -> CommitStreamReader:
    from lakemark.spark.stream_reader import CommitStreamReader

    given = {"path": table.location, "query": "cdc", "begin": "earliest"} | options
    return CommitStreamReader(SourceOptions.of(given), SCHEMA.names)


def run(reader: CommitStreamReader) -> tuple[Offset, int]:
    """Run a new stream for one micro-batch; return its end and the number of its changes."""
    end = reader.latestOffset()
    return end, count(reader, reader.initialOffset(), end)


def count(reader: CommitStreamReader, first: Offset, end: Offset) -> int:
    parts = reader.partitions(first, end)
    return sum(batch.num_rows for part in parts for batch in reader.read(part))


def available_now(reader: CommitStreamReader, checkpoint: Offset) -> tuple[Offset, int]:
    """Run an existing stream as the wrapper of ``Trigger.AvailableNow`` does."""
    end = reader.latestOffset()
    assert reader.partitions(checkpoint, checkpoint) == []
    return end, count(reader, checkpoint, end)


@pytest.mark.parametrize("query", ["cdc", "incremental"])
def test_run_continues_although_commits_before_its_checkpoint_were_archived(
    table: lakemark.Table, query: str
) -> None:
    end, _ = run(start(table, query=query))
    table.clean(retain_commits=2)
    table.archive(retain_commits=2, min_commits=3, max_commits=4)
    table.upsert(rows(("a", "north", 7, 7)))
    newer, changes = available_now(start(table, query=query), end)
    assert (newer["completed_at"] > end["completed_at"], changes) == (True, 1)
    assert available_now(start(table, query=query), newer) == (newer, 0)
    with pytest.raises(ChangesRemoved, match="was archived"):
        run(start(table, query=query))


def test_run_does_not_move_the_checkpoint_back(table: lakemark.Table) -> None:
    limited = start(table, commits_per_batch="2")
    first, changes = run(limited)
    end = limited.latestOffset()
    assert (changes, count(limited, first, end)) == (1, 2)  # the first commit has no rows
    again = start(table, commits_per_batch="2")
    assert again.partitions(end, end) == []  # a usual restart
    assert count(again, end, again.latestOffset()) == 2
    with pytest.raises(InvalidConfig, match="commits_per_batch; remove one of them"):
        available_now(start(table, commits_per_batch="2"), end)
    with pytest.raises(InvalidConfig, match="were already read"):
        start(table).partitions(end, first)


def test_new_stream_waits_for_the_first_commit_after_its_beginning(table: lakemark.Table) -> None:
    for limit in ({}, {"commits_per_batch": "2"}):
        reader = start(table, begin="latest", **limit)
        end, changes = run(reader)
        assert (end, changes) == (reader.latestOffset(), 0)
        table.upsert(rows(("a", "north", 9, 9)))
        assert count(reader, end, reader.latestOffset()) == 1


@pytest.mark.parametrize("query", ["cdc", "incremental"])
def test_run_notices_that_the_commit_of_its_checkpoint_was_undone(
    table: lakemark.Table, query: str
) -> None:
    end, _ = run(start(table, query=query))
    table.rollback(table.timeline.completed()[-1].requested_at)
    table.upsert(rows(("a", "north", 7, 7)))
    with pytest.raises(CommitUndone):
        available_now(start(table, query=query), end)
