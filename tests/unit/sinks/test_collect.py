"""Which batches the driver collects, and how large Spark's Arrow batches become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.batch import KafkaBatch
from sinks.hudi.collect import (
    MAX_ARROW_BATCH_BYTES,
    TooLarge,
    arrow_batch_rows,
    collect,
    share_bytes,
)
from sinks.hudi.collect_budget import COLLECT_BUDGET_BYTES


@given(st.integers(0, 10_000_000), st.integers(32 << 20, COLLECT_BUDGET_BYTES))
def test_an_arrow_batch_holds_records_of_the_largest_permitted_size(
    records: int, budget_bytes: int
) -> None:
    share = share_bytes(records, budget_bytes)
    rows = arrow_batch_rows(share)
    assert rows * share <= MAX_ARROW_BATCH_BYTES or rows == 1
    assert rows >= min(records, 10_000, MAX_ARROW_BATCH_BYTES // max(share, 1))


def test_small_records_are_collected_in_few_arrow_batches() -> None:
    for records in (1_000, 100_000, 1_000_000):
        rows = arrow_batch_rows(share_bytes(records, COLLECT_BUDGET_BYTES))
        assert records / rows <= COLLECT_BUDGET_BYTES / MAX_ARROW_BATCH_BYTES + records / 10_000


@pytest.mark.spark
@pytest.mark.parametrize("records", [100, 10_001])
def test_record_that_takes_its_share_of_the_budget_is_collected(
    spark: SparkSession, records: int
) -> None:
    """Whether a record fits depends on the budget, and not on the limit of an Arrow batch."""
    budget_bytes = 128 << 20
    share = share_bytes(records, budget_bytes)
    collected = collect(_batch(spark, records, share), budget_bytes)
    assert collected["offset"].to_pylist() == list(range(records))
    lengths = [len(value) for value in collected["value"].to_pylist()]
    assert lengths == [share, *[1] * (records - 1)]
    with pytest.raises(TooLarge, match=f"^1 of {records} .* {share} bytes.*128 MiB.*more memory"):
        collect(_batch(spark, records, share + 1), budget_bytes)


@pytest.mark.spark
def test_more_memory_is_only_advised_if_it_helps(spark: SparkSession) -> None:
    records = 1_000_000
    share = share_bytes(records, COLLECT_BUDGET_BYTES)
    with pytest.raises(TooLarge, match=r"lower source\.max_records_per_batch$"):
        collect(_batch(spark, records, share + 1), COLLECT_BUDGET_BYTES)


def _batch(spark: SparkSession, records: int, first_bytes: int) -> KafkaBatch:
    """Create a batch whose first record has a long value, and all others have one byte."""
    rows = spark.range(records, numPartitions=2).selectExpr(
        "cast(null as binary) as key",
        f"cast(if(id = 0, repeat('x', {first_bytes}), 'x') as binary) as value",
        "0 as partition",
        "id as offset",
    )
    start, end = (KafkaCheckpoint("orders", {0: offset}) for offset in (0, records))
    return KafkaBatch(records=rows, start=start, end=end)
