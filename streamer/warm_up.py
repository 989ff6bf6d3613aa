"""``python -m streamer.warm_up``: runs the operations of a pipeline once in Spark, and exits.

With ``streamer.class_archive``, the JVM stores the classes that this module loads in an archive,
from which later starts load them faster. The archive cannot contain the classes of the Kafka
connector, because another class loader loads them. So no broker is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from lakemark.storage.scratch import scratch_folder
from sinks.hudi.collect import load_classes
from streamer.session import plain_session

_WITHIN_S = 120.0


def main() -> None:
    """Stream one batch from a built-in source of Spark, and wait for the JVM to exit."""
    spark = plain_session("warm-up")
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    with scratch_folder("stream") as scratch:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
        writer = source.load().writeStream.foreachBatch(_batch)
        writer = writer.option("checkpointLocation", scratch.as_uri()).trigger(availableNow=True)
        writer.start().awaitTermination(int(_WITHIN_S))
    spark.stop()
    process.stdin.close()  # the JVM exits when its input is closed
    process.wait(_WITHIN_S)


def _batch(records: DataFrame, _: int) -> None:
    """Process a batch in both ways: with workers and a shuffle, and collected in the driver."""
    prepared = records.mapInArrow(_unchanged, records.schema)
    prepared.repartition(2, "value").mapInArrow(_unchanged, records.schema).collect()
    load_classes(records.sparkSession)


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main()
