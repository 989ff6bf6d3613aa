"""A stream of Spark returns each commit of a table in one micro-batch, also after a restart."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import lakemark
from tests.unit.operations.tables import FAST, SCHEMA, rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        pyspark.__version__.startswith("3."), reason="Spark 3.5 has no data sources in Python"
    ),
]

#: How often a stream is started at most.
MAX_STARTS = 10

#: Operation and value after the change.
Seen = tuple[str, int | None]


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    importlib.import_module("lakemark.spark.data_source").register(spark)
    return spark


@pytest.fixture
def table(tmp_path: Path) -> lakemark.Table:
    return lakemark.create(
        tmp_path / "orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        buckets=1,
        cdc="data_before",
        multi_writer=FAST,
    )


def stream(spark: SparkSession, table: lakemark.Table, options: Mapping[str, str]) -> DataFrame:
    reader = spark.readStream.format("lakemark").options(**options)
    return reader.load(table.location)


@contextmanager
def batches_of(frame: DataFrame, checkpoint: Path) -> Iterator[list[list[Any]]]:
    """Run a stream until it has read all commits; yield the rows of its micro-batches."""
    found: list[list[Any]] = []
    query = run(frame, checkpoint, found)
    try:
        yield found
    finally:
        query.stop()


def run(frame: DataFrame, checkpoint: Path, found: list[list[Any]]) -> StreamingQuery:
    """Start a stream, and wait until it has read all commits.

    Spark waits ten seconds for the Python process of a source, which on a busy machine may need
    more. The stream then fails before its first micro-batch, and starts again.
    """
    writer = frame.writeStream.option("checkpointLocation", str(checkpoint))
    writer = writer.foreachBatch(lambda batch, _: found.append(batch.collect()))
    starts = 0
    while True:
        query, starts = writer.start(), starts + 1
        try:
            query.processAllAvailable()
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error) or starts == MAX_STARTS:
                raise
        else:
            return query


def changes(batch: list[Any]) -> list[Seen]:
    images = [(row.op, json.loads(row.after or "null")) for row in batch]
    return sorted((op, image and image["v"]) for op, image in images)


def test_micro_batches_have_a_number_of_commits_and_continue_after_a_restart(
    registered: SparkSession, table: lakemark.Table, tmp_path: Path
) -> None:
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 2)))
    options = {"query": "cdc", "begin": "latest", "commits_per_batch": "2"}
    frame = stream(registered, table, options)
    with batches_of(frame, tmp_path / "checkpoint") as found:
        assert not any(found)
    for ts in range(2, 7):
        table.upsert(rows(("a", "north", ts, ts)))
    table.compact()
    with batches_of(stream(registered, table, options), tmp_path / "checkpoint") as found:
        assert [changes(batch) for batch in found] == [
            [("u", 2), ("u", 3)],
            [("u", 4), ("u", 5)],
            [("u", 6)],
        ]
    table.delete(["a"])
    with batches_of(stream(registered, table, options), tmp_path / "checkpoint") as found:
        assert [changes(batch) for batch in found] == [[("d", None)]]


def test_incremental_stream_returns_selected_columns_of_written_rows(
    registered: SparkSession, table: lakemark.Table, tmp_path: Path
) -> None:
    for ts in range(1, 4):
        table.upsert(rows(("a", "north", ts, ts), ("b", "south", ts, 10 * ts)))
    options = {"query": "incremental", "begin": "earliest", "columns": "v,id", "where": "v < 30"}
    with batches_of(stream(registered, table, options), tmp_path / "checkpoint") as found:
        assert [sorted(map(tuple, batch)) for batch in found] == [[(3, "a")]]
    limited = {**options, "commits_per_batch": "2"}
    with batches_of(stream(registered, table, limited), tmp_path / "limited") as found:
        listed = [sorted(map(tuple, batch)) for batch in found]
        assert listed == [[(1, "a"), (10, "b")], [(3, "a")]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "cannot be read as a stream"),
        ({"query": "incremental"}, "begin"),
        ({"query": "cdc", "begin": "earliest", "end": "2026-01-01"}, "option end"),
        ({"query": "cdc", "begin": "earliest", "commits_per_batch": "0"}, "from 1 on"),
        ({"query": "cdc", "begin": "yesterday"}, "not a time"),
    ],
)
def test_invalid_options_are_refused(
    registered: SparkSession,
    table: lakemark.Table,
    tmp_path: Path,
    options: dict[str, str],
    message: str,
) -> None:
    table.upsert(rows(("a", "north", 1, 1)))
    with (
        pytest.raises((AnalysisException, StreamingQueryException), match=message),
        batches_of(stream(registered, table, options), tmp_path / "checkpoint"),
    ):
        pass
