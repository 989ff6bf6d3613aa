"""A stream of Spark writes each micro-batch once, although Spark repeats batches after a crash."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import lakemark
from lakemark.errors import InvalidConfig
from lakemark.spark import foreach_batch
from tests.short_lived import short_lived
from tests.spark.killed_stream import files_of
from tests.unit.operations.tables import SCHEMA, operations, rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("few_tasks")]


@pytest.fixture
def table(tmp_path: Path) -> lakemark.Table:
    """A table that stores a key twice if its rows are inserted twice."""
    return lakemark.create(
        tmp_path / "orders", schema=SCHEMA, record_key="id", partition_by="region", index="lookup"
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with three files of one row each."""
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(3):
        add_file(folder, number)
    return folder


def add_file(folder: Path, number: int) -> None:
    pq.write_table(rows((f"k{number}", "r", number, number)), folder / f"{number}.parquet")


def run(frame: DataFrame, write: Any, checkpoint: Path) -> None:
    """Run a stream until it has written all files that exist."""
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def stored(table: lakemark.Table) -> list[str]:
    found: pa.Table = lakemark.open(table.location).snapshot(["id"]).read_all()
    return sorted(found["id"].to_pylist())


def test_a_batch_whose_run_was_killed_after_its_commit_is_not_written_again(
    spark: SparkSession, tmp_path: Path, table: lakemark.Table, source: Path
) -> None:
    program = [sys.executable, "-m", "tests.spark.killed_stream"]
    checkpoint = tmp_path / "checkpoint"
    killed = subprocess.run(
        [*program, str(source), table.location, str(checkpoint)],
        env=short_lived(),
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(stored(table)) == 2
    assert not (checkpoint / "commits/1").exists(), "Spark does not know that batch 1 was written"
    run(files_of(spark, str(source)), foreach_batch(table, "insert"), checkpoint)
    assert stored(table) == ["k0", "k1", "k2"]
    assert operations(table).count("INSERT") == 3


def test_each_batch_is_written_once_although_every_run_fails(
    spark: SparkSession, tmp_path: Path, table: lakemark.Table, source: Path
) -> None:
    """Each run fails after its first new commit. Later, a new checkpoint begins from 0 again."""
    frame, write = files_of(spark, str(source)), foreach_batch(table, "insert")

    def write_and_fail(given: DataFrame, number: int) -> None:
        before = operations(table)
        write(given, number)
        if operations(table) != before:
            message = "the driver was lost"
            raise RuntimeError(message)

    for _ in range(3):
        with pytest.raises(StreamingQueryException, match="the driver was lost"):
            run(frame, write_and_fail, tmp_path / "checkpoint")
    run(frame, write_and_fail, tmp_path / "checkpoint")
    assert stored(table) == ["k0", "k1", "k2"]
    run(frame, write, tmp_path / "other")
    assert stored(table) == sorted(2 * ["k0", "k1", "k2"]), "another query is another stream"


def test_a_named_stream_skips_what_another_checkpoint_wrote(
    spark: SparkSession,
    tmp_path: Path,
    table: lakemark.Table,
    source: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    frame, write = files_of(spark, str(source)), foreach_batch(table, "insert", stream="orders")
    run(frame, write, tmp_path / "checkpoint")
    assert "was not written" not in caplog.text
    add_file(source, 3)
    run(frame, write, tmp_path / "other")
    assert stored(table) == ["k0", "k1", "k2", "k3"]
    skipped = [one for one in caplog.messages if "give the stream another name" in one]
    assert [one.partition(" of stream 'orders' was not written")[0] for one in skipped] == [
        "batch 0",
        "batch 1",
        "batch 2",
    ]


def test_two_functions_do_not_write_one_batch_to_one_table(
    spark: SparkSession, tmp_path: Path, table: lakemark.Table, source: Path
) -> None:
    """The second one would skip its rows, because the first one has recorded the batch."""
    frame = files_of(spark, str(source))

    def write_both(rows: DataFrame, number: int) -> None:
        foreach_batch(table, "insert")(rows, number)
        foreach_batch(table, "upsert")(rows.selectExpr("concat('x', id) as id", *more), number)

    more = ["region", "ts", "v"]
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="two functions of foreach_batch write"):
            run(frame, write_both, tmp_path / "checkpoint")
    first = stored(table)
    assert len(first) == 1
    assert first[0].startswith("k")

    def write_parts(rows: DataFrame, number: int) -> None:
        foreach_batch(table, "insert", stream="plain")(rows, number)
        other = rows.selectExpr("concat('x', id) as id", *more)
        foreach_batch(table, "insert", stream="x")(other, number)

    run(frame, write_parts, tmp_path / "other")
    assert stored(table) == sorted([*first, "k0", "k1", "k2", "xk0", "xk1", "xk2"])


def test_a_function_outside_of_a_query_needs_the_name_of_the_stream(
    spark: SparkSession, table: lakemark.Table
) -> None:
    given = spark.createDataFrame([("k", "r", 1, 1)], "id string, region string, ts long, v int")
    with pytest.raises(InvalidConfig, match="pass stream"):
        foreach_batch(table)(given, 0)
    with pytest.raises(InvalidConfig, match="no option 'taks'; did you mean tasks"):
        foreach_batch(table, "upsert", taks=2)  # type: ignore[call-arg]
    for number in (0, 0, 1):
        foreach_batch(table, "insert", stream="orders")(given, number)
    assert stored(table) == ["k", "k"]
