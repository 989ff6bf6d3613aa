"""Collects a batch as one Arrow table in the driver, within a memory budget.

Spark collects a batch on its heap, even if the messages are huge. So each record may only be as
large as the batch's budget divided by the number of records. Spark counts larger records, and omits
their keys and values. If there is such a record, the batch uses Spark's exchange. The rows of an
Arrow batch are chosen so that the largest permitted records fit in it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lakemark.errors import Permanent
from lakemark.execution.limits import usable_memory_bytes
from lakemark.spark.collected import collect_arrow
from sinks.batch import KafkaBatch
from sinks.hudi.collect_budget import (
    COLLECT_BUDGET_BYTES,
    COPIES_OUTSIDE_HEAP,
    driver_budget_bytes,
)
from transforms.raw_records import HEADERS, sort_by_arrival

#: The maximum Arrow size of a record batch between Spark and Python.
MAX_ARROW_BATCH_BYTES = 64 << 20

#: The size of a record in addition to its key and value: offsets, timestamp, validity.
_ROW_OVERHEAD_BYTES = 48

#: The setting that limits the rows of Arrow batches, in every version of Spark.
ROWS_IN_ARROW_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"

#: The maximum number of rows in an Arrow batch of small records.
_MAX_ROWS = 10_000
_CUT = "__cut"

#: For each column whose cells may be large: the expression of a cell's size in bytes.
_SIZES = {
    "key": "coalesce(octet_length(key), 0)",
    "value": "coalesce(octet_length(value), 0)",
    HEADERS: (
        f"coalesce(aggregate({HEADERS}, 0, (sum, one) -> sum + octet_length(one.key) + "
        "coalesce(octet_length(one.value), 0)), 0)"
    ),
}


class TooLarge(Permanent):
    """A record is larger than its share of the batch's memory budget."""


def collect_budget_bytes(
    spark: SparkSession, copies_outside_heap: int = COPIES_OUTSIDE_HEAP
) -> int:
    """Return the maximum size of a batch that is collected in this session.

    Args:
        spark: the session.
        copies_outside_heap: see ``driver_budget_bytes``.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    heap_bytes = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    return driver_budget_bytes(heap_bytes, usable_memory_bytes(), copies_outside_heap)


def share_bytes(records: int, budget_bytes: int) -> int:
    """Return how many bytes the key and the value of each record may have together."""
    return budget_bytes // max(records, 1) - _ROW_OVERHEAD_BYTES


def arrow_batch_rows(share: int) -> int:
    """Return how many rows an Arrow batch may have, if each record may have ``share`` bytes.

    A batch of Kafka records needs at most about budget / 64 MiB = 12 more Arrow batches for this.
    """
    return min(_MAX_ROWS, max(1, MAX_ARROW_BATCH_BYTES // max(share, 1)))


def collect(batch: KafkaBatch, budget_bytes: int) -> pa.Table:
    """Collect all records of a batch, in order of arrival, with one Spark job.

    Args:
        batch: the batch.
        budget_bytes: the maximum size of the batch.

    Raises:
        TooLarge: a record is larger than its share of the budget.
    """
    spark = batch.records.sparkSession
    share = share_bytes(batch.planned_records, budget_bytes)
    spark.conf.set(ROWS_IN_ARROW_BATCH, arrow_batch_rows(share))
    table = collect_arrow(_omit_large_records(batch.records, share))
    cut = pc.sum(table.column(_CUT)).as_py() or 0
    if cut:
        raise TooLarge(_too_large(cut, batch.planned_records, share, budget_bytes))
    return sort_by_arrival(table.drop_columns([_CUT]))


def load_classes(spark: SparkSession) -> None:
    """Collect two rows, so that the JVM has the classes of ``collect`` before the first batch."""
    rows = spark.range(0, 2, 1, 2).selectExpr(
        "cast(string(id) as binary) as value",
        "cast(string(id) as binary) as key",
        "int(id) as partition",
        "id as offset",
        "timestamp_millis(id) as timestamp",
    )
    collect_arrow(_omit_large_records(rows, share=0))


def _too_large(cut: int, records: int, share: int, budget_bytes: int) -> str:
    remedy = "lower source.max_records_per_batch"
    if budget_bytes < COLLECT_BUDGET_BYTES:
        remedy += (
            ", or give the driver more memory: the budget is the smaller of one sixth of "
            "spark.driver.memory and a quarter (with a route, a ninth) of the machine's remaining "
            "memory"
        )
    return (
        f"{cut} of {records} records are longer than {share} bytes, their share of the "
        f"{budget_bytes >> 20} MiB that a batch may take in the driver; {remedy}"
    )


def _omit_large_records(records: DataFrame, share: int) -> DataFrame:
    """Replace key and value of large records by null.

    This is one call of the JVM. The same expressions, built as columns, are thirty calls, which
    took 30 to 60 ms of each batch while the previous batch was published.
    """
    sizes = {name: size for name, size in _SIZES.items() if name in records.columns}
    is_cut = f"({' + '.join(sizes.values())} > {share})"
    kept = [
        f"if({is_cut}, null, {name}) as {name}" if name in sizes else f"`{name}`"
        for name in records.columns
    ]
    return records.selectExpr(*kept, f"{is_cut} as {_CUT}")
