"""Apache Hudi upserts rows into copies of a table; with ``--create``, it creates the table.

The index is in the name of the task. A table is created by a bulk insert that sorts the rows by
partition and key.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.orders import KEY, ORDERING, PARTITION
from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.read_contract import ReadAnswer, change_each, peak_memory_bytes
from benchmarks.peers.spark_read import stored_sums
from benchmarks.peers.spark_session import local_session
from benchmarks.tables import NAME
from streamer.toolchain import cache_home, resolve
from tests.interop.oracle_server import HUDI_COORDINATE, HUDI_SETTINGS

_OPTIONS = {
    "hoodie.table.name": NAME,
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.partitionpath.field": PARTITION,
    "hoodie.table.ordering.fields": ORDERING,
    "hoodie.upsert.shuffle.parallelism": "4",
    "hoodie.bulkinsert.shuffle.parallelism": "4",
    "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=lambda path: ChangeTask.from_json(Path(path).read_text()))
    parser.add_argument("--create", action="store_true")
    arguments = parser.parse_args()
    task: ChangeTask = arguments.task
    jars = resolve([HUDI_COORDINATE], cache_home() / "jars")
    spark = local_session("upsert", task.driver_memory, jars, HUDI_SETTINGS)
    operation = "bulk_insert" if arguments.create else "upsert"

    def write(path: str) -> None:
        rows = spark.read.parquet(task.rows_path)
        options = {**_OPTIONS, **index_options(task.name)}
        writer = rows.write.format("hudi").mode("append").options(**options)
        writer.option("hoodie.datasource.write.operation", operation).save(path)

    java = _process_id(spark)
    reading = change_each(
        task.name, task.tables, write, lambda path: stored_sums(spark, path, "snapshot"), java
    )
    ReadAnswer((reading,), peak_memory_bytes(java)).write(Path(task.answer_path))
    spark.stop()


def index_options(name: str) -> dict[str, str]:
    """Return the options of an index; tables of other names have the index ``SIMPLE``."""
    if name == "record_index":
        return {
            "hoodie.index.type": "RECORD_INDEX",
            "hoodie.metadata.record.index.enable": "true",
        }
    return {"hoodie.index.type": "BLOOM" if name == "bloom" else "SIMPLE"}


def _process_id(spark: SparkSession) -> int:
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
