"""A stream of Spark that is killed right after the commit of its second micro-batch.

It reads the Parquet files of a folder, one for each micro-batch. Arguments: the folder, the path of
the table, and the folder of the checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import DataFrame, SparkSession

import lakemark
from lakemark.spark import foreach_batch

COLUMNS = "id string, region string, ts long, v int"


def files_of(spark: SparkSession, folder: str) -> DataFrame:
    """Return a stream of one file for each micro-batch."""
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "1")
    return reader.parquet(folder)


def main(folder: str, path: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    write = foreach_batch(lakemark.open(path), "insert")

    def write_and_die(rows: DataFrame, number: int) -> None:
        write(rows, number)
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    stream = files_of(spark, folder).writeStream.foreachBatch(write_and_die)
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
