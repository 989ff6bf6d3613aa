"""Write options of Apache Hudi, in groups that recipes combine."""

from __future__ import annotations

from collections.abc import Mapping

Options = Mapping[str, str]

_EVERY_TABLE = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.parquet.small.file.limit": "0",
}

BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
#: Every bucket is split by the next clustering, because files are larger than 1,000 bytes.
CONSISTENT_HASHING = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.bucket.index.max.num.buckets": "8",
    "hoodie.bucket.index.min.num.buckets": "1",
    "hoodie.parquet.max.file.size": "1000",  # so that every bucket is split
    "hoodie.clustering.plan.strategy.class": (
        "org.apache.hudi.client.clustering.plan.strategy.SparkConsistentBucketClusteringPlanStrategy"
    ),
    "hoodie.clustering.execution.strategy.class": (
        "org.apache.hudi.client.clustering.run.strategy."
        "SparkConsistentBucketClusteringExecutionStrategy"
    ),
    "hoodie.clustering.updates.strategy": (
        "org.apache.hudi.client.clustering.update.strategy."
        "SparkConsistentBucketDuplicateUpdateStrategy"
    ),
}
NO_METADATA = {"hoodie.metadata.enable": "false"}
ORDERED_THE_OLD_WAY = {"hoodie.datasource.write.precombine.field": "ts"}

_EVENT_TIME_PAYLOAD = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
_EVENT_TIME = {
    "hoodie.datasource.write.payload.class": _EVENT_TIME_PAYLOAD,
    "hoodie.compaction.payload.class": _EVENT_TIME_PAYLOAD,
    "hoodie.payload.ordering.field": "ts",
    "hoodie.payload.event.time.field": "ts",
}


def copy_on_write(*groups: Options) -> dict[str, str]:
    """Combine the options of a copy-on-write table; later groups win."""
    return _table("COPY_ON_WRITE", groups)


def merge_on_read(*groups: Options) -> dict[str, str]:
    """Combine the options of a merge-on-read table; later groups win."""
    return _table("MERGE_ON_READ", groups)


def version(number: int) -> dict[str, str]:
    """Set the version of a table, and keep writes from upgrading it."""
    pinned = {"hoodie.write.table.version": str(number), "hoodie.write.auto.upgrade": "false"}
    return pinned | (ORDERED_THE_OLD_WAY if number == 6 else {})


def of_older_release(*groups: Options) -> dict[str, str]:
    """Combine options that releases before 0.14 need under their names of that time.

    Records are merged by event time, unless a group names another payload.
    """
    options = {**ORDERED_THE_OLD_WAY, **_EVENT_TIME}
    for group in groups:
        options |= group
    return options


def version_unpinned(number: int) -> dict[str, str]:
    """Set the version of a table. Use this if writes would upgrade to the same version anyway."""
    return {"hoodie.write.table.version": str(number)}


def logs_of(block_format: str) -> dict[str, str]:
    """Set the format of data blocks: ``avro``, ``parquet`` or ``hfile``."""
    return {"hoodie.logfile.data.block.format": block_format}


def keyed_by(generator: str, *, record: str = "id", partition: str = "region") -> dict[str, str]:
    """Set the key columns, the partition columns and one of Hudi's key generators."""
    return {
        "hoodie.datasource.write.recordkey.field": record,
        "hoodie.datasource.write.partitionpath.field": partition,
        "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{generator}",
    }


def _table(table_type: str, groups: tuple[Options, ...]) -> dict[str, str]:
    options = {**_EVERY_TABLE, "hoodie.datasource.write.table.type": table_type}
    for group in groups:
        options |= group
    return options
