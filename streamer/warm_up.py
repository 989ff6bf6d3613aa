"""``python -m streamer.warm_up``: a Spark that does once what a pipeline does, and ends.

``streamer.class_archive`` lets its JVM write down which classes that took. Those of the connector
are not among them, since Spark loads its jars in a way of its own; so no broker is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from lakemark.storage.scratch import scratch_folder
from streamer.session import plain_session

_WITHIN_S = 120.0


def main() -> None:
    """Stream one batch from a source that Spark has itself, and let the JVM come to its end."""
    spark = plain_session("warm-up")
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    with scratch_folder("stream") as scratch:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
        writer = source.load().writeStream.foreachBatch(_batch)
        writer = writer.option("checkpointLocation", scratch.as_uri()).trigger(availableNow=True)
        writer.start().awaitTermination(int(_WITHIN_S))
    spark.stop()
    process.stdin.close()  # it exits once nothing can speak to it any more
    process.wait(_WITHIN_S)


def _batch(records: DataFrame, _: int) -> None:
    """Workers prepare, rows are shuffled, workers write; and the driver does it alone."""
    prepared = records.mapInArrow(_unchanged, records.schema)
    prepared.repartition(2, "value").mapInArrow(_unchanged, records.schema).collect()
    records.selectExpr("cast(value as string)", "struct(value) as key").toPandas()


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    main()
