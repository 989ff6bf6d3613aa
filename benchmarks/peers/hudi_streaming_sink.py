"""Apache Hudi's own streaming sink, configured for the same table as lakemark's.

Merge-on-read, upsert, bucket index with the same number of buckets, inline compaction at the same
interval. Its metadata table is enabled, which is the default, unless ``--no-metadata-table`` is
given.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.peers.contract import TableShape, Task
from benchmarks.peers.spark_stream import (
    row_stream,
    run_until_caught_up,
    run_until_stopped,
    start_session,
)
from tests.interop.oracle_server import HUDI_COORDINATE, HUDI_SETTINGS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=lambda path: Task.from_json(Path(path).read_text()))
    parser.add_argument("--no-metadata-table", action="store_true")
    parser.add_argument("--continuous", action="store_true", help="run until it is stopped")
    arguments = parser.parse_args()
    task: Task = arguments.task
    spark = start_session("hudi", task, [HUDI_COORDINATE], HUDI_SETTINGS)
    options = write_options(task.table, has_metadata_table=not arguments.no_metadata_table)
    writer: DataStreamWriter = (
        row_stream(spark, task).writeStream.format("hudi").outputMode("append")
    )
    writer = writer.options(**options, path=task.table_path)
    if arguments.continuous:
        run_until_stopped(writer, task)
        return
    run_until_caught_up(writer, task).write(Path(task.answer_path))
    spark.stop()


def write_options(table: TableShape, *, has_metadata_table: bool) -> dict[str, str]:
    """Return the options of the sink; all others keep Hudi's defaults."""
    return {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.recordkey.field": table.record_key,
        "hoodie.datasource.write.partitionpath.field": table.partition,
        "hoodie.table.ordering.fields": table.ordering,
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": str(table.buckets),
        "hoodie.upsert.shuffle.parallelism": "4",
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": str(table.compact_every),
        "hoodie.datasource.compaction.async.enable": "false",
        "hoodie.metadata.enable": str(has_metadata_table).lower(),
    }


if __name__ == "__main__":
    main()
