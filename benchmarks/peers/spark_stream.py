"""Code that the peers on Spark share: the session, the topic as a stream of rows, and progress."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, from_json
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.peers.contract import Answer, Batch, TableShape, Task
from benchmarks.peers.spark_session import local_session
from streamer.sources.kafka import FETCH_PROPERTIES
from streamer.sources.poll_size import MAX_RECORDS
from streamer.toolchain import cache_home, find_spark, resolve, spark_kafka_jars


def start_session(
    name: str, task: Task, packages: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session of two threads with the Kafka connector and further Maven packages."""
    jars = spark_kafka_jars()
    for coordinate in [*packages, *_avro_packages(task.table)]:
        jars += resolve([coordinate], cache_home() / "jars")
    return local_session(name, task.driver_memory, jars, settings)


def kafka_stream(spark: SparkSession, task: Task) -> DataFrame:
    """Read the topic from its beginning as a stream of batches of limited size.

    All peers fetch as lakemark does, so that the floor shows the limit, not Kafka's defaults.
    """
    properties = {**FETCH_PROPERTIES, "max.poll.records": str(MAX_RECORDS)}
    return (
        spark.readStream.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in properties.items()})
        .option("kafka.bootstrap.servers", task.bootstrap)
        .option("subscribe", task.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", task.records_per_batch)
        .load()
    )


def row_stream(spark: SparkSession, task: Task) -> DataFrame:
    """Read the topic as a stream of rows."""
    value, table = col("value"), task.table
    if table.avro_schema is not None:
        rows = from_avro(value, table.avro_schema)
    else:
        rows = from_json(value.cast("string"), columns_ddl(table))
    return kafka_stream(spark, task).select(rows.alias("row")).select("row.*")


def columns_ddl(table: TableShape) -> str:
    """Return the columns as SQL declares them."""
    return ", ".join(f"{name} {kind}" for name, kind in table.columns.items())


def run_until_caught_up(writer: DataStreamWriter, task: Task) -> Answer:
    """Run a query until it has read all current records; return the batches that it reports."""
    writer = writer.option("checkpointLocation", f"{task.scratch_path}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = [json.loads(each.json()) for each in query._jsq.recentProgress()]
    return Answer.of([_batch(each) for each in progress])


def run_until_stopped(writer: DataStreamWriter, task: Task) -> None:
    """Run a query, batch after batch without a pause, until the process is stopped."""
    writer = writer.option("checkpointLocation", f"{task.scratch_path}/checkpoint")
    writer.trigger(processingTime="0 seconds").start().awaitTermination()


def _avro_packages(table: TableShape) -> list[str]:
    spark = find_spark()
    coordinate = f"org.apache.spark:spark-avro_{spark.scala}:{spark.version}"
    return [] if table.avro_schema is None else [coordinate]


def _batch(progress: Mapping[str, Any]) -> Batch:
    started_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
    took_s = progress["durationMs"]["triggerExecution"] / 1000
    return Batch(_records(progress["sources"][0]), started_s, started_s + took_s)


def _records(source: Mapping[str, Any]) -> int:
    """Count records by offsets, because Spark counts rows twice if a sink reads them twice."""
    return _total(source["endOffset"]) - _total(source["startOffset"])


def _total(offsets: Mapping[str, Mapping[str, int]] | None) -> int:
    return sum(sum(partitions.values()) for partitions in (offsets or {}).values())
