"""How a writer writes, beside what the table is."""

from __future__ import annotations

from dataclasses import dataclass

from table.config import keys
from table.index.bucket import BucketIndex
from table.model.commit_metadata import Operation


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Settings that every commit of one writer shares.

    Attributes:
        index: buckets of a partition, and the fields that are hashed.
        log_format: ``parquet`` or ``avro``, the content of data blocks.
        operation: what the commits say they do.
    """

    index: BucketIndex
    log_format: str = "parquet"
    operation: Operation = Operation.UPSERT

    def bucket_metadata(self) -> dict[str, str]:
        """The bucket count, for the commit: it is nowhere else in a table."""
        hashed = self.index.hash_fields or self.index.key_fields
        return {
            keys.BUCKET_COUNT: str(self.index.bucket_count),
            keys.BUCKET_HASH_FIELDS: ",".join(hashed),
        }
