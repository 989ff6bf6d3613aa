"""A batch as one Arrow table in the driver, in memory that is bounded beforehand.

Spark holds what it collects on its heap, whatever the size of the messages. So each value may
carry so many bytes and no more, the batch's budget divided by its records; a longer one is left
out by Spark itself and counted, and the batch then takes the other way.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from lakemark.errors import Permanent
from sinks.batch import KafkaBatch
from transforms.kafka_records import sort_by_arrival

#: Arrow bytes of one collected batch, at most; also limited by the JVM's heap.
COLLECT_BUDGET_BYTES = 768 << 20

#: Arrow bytes of one record batch on the way, at most.
MAX_ARROW_BATCH_BYTES = 64 << 20

#: What a record costs beside its key and value: offsets, timestamp, validity.
_ROW_OVERHEAD_BYTES = 48

#: Copies of a batch that Spark's heap holds at once while it is collected (measured: 3 to 4).
_COPIES_ON_HEAP = 6

#: The setting that limits Arrow batches by rows, on every version of Spark.
ROWS_IN_ARROW_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"

_ROWS = 10_000
_CUT = "__cut"


class TooLarge(Permanent):
    """A record does not fit the share of memory that one record of this batch may have."""


def collect_budget_bytes(spark: SparkSession) -> int:
    """How much a batch collected in this session may weigh."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    heap_bytes = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    return min(COLLECT_BUDGET_BYTES, heap_bytes // _COPIES_ON_HEAP)


def share_bytes(records: int, budget_bytes: int) -> int:
    """Bytes that the key and value of one record may have, for a batch of so many."""
    return budget_bytes // max(records, 1) - _ROW_OVERHEAD_BYTES


def collect(batch: KafkaBatch, budget_bytes: int) -> pa.Table:
    """All records of the batch, in order of arrival; one Spark job.

    Args:
        batch: what to collect.
        budget_bytes: what it may weigh.

    Raises:
        TooLarge: a record is longer than its share.
    """
    spark = batch.records.sparkSession
    spark.conf.set(ROWS_IN_ARROW_BATCH, _ROWS)
    records = max(batch.planned_records, 1)
    share = min(
        share_bytes(records, budget_bytes),
        MAX_ARROW_BATCH_BYTES // min(records, _ROWS),
    )
    table = _to_arrow(_cut_short(batch.records, share))
    cut = pc.sum(table.column(_CUT)).as_py() or 0
    if cut:
        message = f"{cut} records are longer than {share} bytes in a batch of {records}"
        raise TooLarge(message)
    return sort_by_arrival(table.drop_columns([_CUT]))


def _cut_short(records: DataFrame, share: int) -> DataFrame:
    key_bytes, value_bytes = (
        f.coalesce(f.octet_length(name), f.lit(0)) for name in ("key", "value")
    )
    is_cut = key_bytes + value_bytes > share
    kept = [
        f.when(is_cut, None).otherwise(f.col(name)).alias(name)
        if name in ("key", "value")
        else f.col(name)
        for name in records.columns
    ]
    return records.select(*kept, is_cut.alias(_CUT))


def _to_arrow(records: DataFrame) -> pa.Table:
    to_arrow = getattr(records, "toArrow", None)
    if to_arrow is not None:
        return to_arrow()
    # Spark 3.5 has the same, by the name under which ``toPandas`` calls it.
    batches = getattr(records, "_collect_as_arrow")()  # noqa: B009 (not in the stubs of 4.0)
    return pa.Table.from_batches(batches) if batches else _empty(records)


def _empty(records: DataFrame) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(records.schema).empty_table()
