"""Delta Lake or Iceberg: each batch is merged into the table with ``MERGE``, in ``foreachBatch``.

A batch first keeps the newest row of each key, because ``MERGE`` accepts one row for each key. The
tables merge on read: with deletion vectors, and without compaction, which neither runs by itself.

``--read FOLDER`` instead writes the rows of the table to Parquet files.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from benchmarks.peers.contract import TableShape, Task
from benchmarks.peers.spark_stream import (
    columns_ddl,
    row_stream,
    run_until_caught_up,
    start_session,
)

DELTA_COORDINATE = "io.delta:delta-spark_2.13:4.0.0"
ICEBERG_COORDINATE = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"
_BATCH_VIEW = "newest_of_batch"


@dataclass(frozen=True, slots=True)
class TableFormat:
    """What differs between the two formats.

    Attributes:
        name: the name of the format in SQL.
        coordinate: its Maven package.
        settings: the settings of the session; ``{path}`` is the path of the table.
        table: the name of the table in SQL; ``{path}`` is its path.
        properties: the properties of the table.
    """

    name: str
    coordinate: str
    settings: dict[str, str]
    table: str
    properties: dict[str, str]


FORMATS = {
    "delta": TableFormat(
        "delta",
        DELTA_COORDINATE,
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # the default, 50, suits a cluster; ``spark.sql.shuffle.partitions`` is also 4
            "spark.databricks.delta.snapshotPartitions": "4",
        },
        "delta.`{path}`",
        {"delta.enableDeletionVectors": "true"},
    ),
    "iceberg": TableFormat(
        "iceberg",
        ICEBERG_COORDINATE,
        {
            "spark.sql.extensions": (
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
            ),
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": "{path}",
        },
        "lake.shop.orders",
        {
            "format-version": "3",
            "write.merge.mode": "merge-on-read",
            "write.update.mode": "merge-on-read",
            "write.delete.mode": "merge-on-read",
        },
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=lambda path: Task.from_json(Path(path).read_text()))
    parser.add_argument("--format", choices=sorted(FORMATS), required=True)
    parser.add_argument("--read", metavar="FOLDER")
    arguments = parser.parse_args()
    task: Task = arguments.task
    table_format = FORMATS[arguments.format]
    name = table_format.table.format(path=task.table_path)
    spark = start_format_session(task, table_format)
    if arguments.read:
        spark.table(name).write.parquet(arguments.read)
    else:
        run(spark, task, table_format, name)
    spark.stop()


def start_format_session(task: Task, table_format: TableFormat) -> SparkSession:
    """Start a session that can read and write the format."""
    settings = {
        key: value.format(path=task.table_path) for key, value in table_format.settings.items()
    }
    return start_session(table_format.name, task, [table_format.coordinate], settings)


def run(spark: SparkSession, task: Task, table_format: TableFormat, name: str) -> None:
    """Merge the records of the topic, batch by batch, and write the answer."""
    spark.sql(create_statement(task.table, table_format, name))
    statement = merge_statement(task.table, name)

    def merge(batch: DataFrame, _batch_id: int) -> None:
        newest_rows(batch, task.table).createOrReplaceTempView(_BATCH_VIEW)
        batch.sparkSession.sql(statement)

    writer = row_stream(spark, task).writeStream.foreachBatch(merge)
    run_until_caught_up(writer, task).write(Path(task.answer_path))


def newest_rows(batch: DataFrame, table: TableShape) -> DataFrame:
    """Keep the newest row of each key."""
    newest = expr(f"max_by(struct(*), {table.ordering})").alias("newest")
    return batch.groupBy(table.record_key).agg(newest).select("newest.*")


def create_statement(table: TableShape, table_format: TableFormat, name: str) -> str:
    """Return the statement that creates the table, with the same partitions as all engines."""
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in table_format.properties.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {name} ({columns_ddl(table)}) USING {table_format.name} "
        f"PARTITIONED BY ({table.partition}) TBLPROPERTIES ({properties})"
    )


def merge_statement(table: TableShape, name: str) -> str:
    """Return the statement that merges a batch: newer rows win, and deletes delete."""
    keys = (table.record_key, table.partition)
    matches = " AND ".join(f"held.{key} = arrived.{key}" for key in keys)
    is_newer = f"arrived.{table.ordering} > held.{table.ordering}"
    delete, insert = "", ""
    if table.deleted is not None:
        delete = f"WHEN MATCHED AND {is_newer} AND arrived.{table.deleted} THEN DELETE "
        insert = f" AND NOT arrived.{table.deleted}"
    return (
        f"MERGE INTO {name} AS held USING {_BATCH_VIEW} AS arrived ON {matches} {delete}"
        f"WHEN MATCHED AND {is_newer} THEN UPDATE SET * "
        f"WHEN NOT MATCHED{insert} THEN INSERT *"
    )


if __name__ == "__main__":
    main()
