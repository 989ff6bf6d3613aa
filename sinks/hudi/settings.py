"""How a writer writes, beside what the table is."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.config import keys
from lakemark.index.bucket import BucketIndex


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Settings that every commit of one writer shares.

    Attributes:
        index: buckets of a partition, and the fields that are hashed.
        log_format: ``parquet`` or ``avro``, the content of data blocks; None leaves it to
            ``default_log_format``.
        merger_class: ``package.module:Class`` that merges, for a table of mode ``CUSTOM``.
        metadata_table: whether ``TableWriter.recover`` makes one where there is none.
    """

    index: BucketIndex
    log_format: str | None = None
    merger_class: str | None = None
    metadata_table: bool = True

    def bucket_metadata(self) -> dict[str, str]:
        """The bucket count, for the commit: it is nowhere else in a table."""
        hashed = self.index.hash_fields or self.index.key_fields
        return {
            keys.BUCKET_COUNT: str(self.index.bucket_count),
            keys.BUCKET_HASH_FIELDS: ",".join(hashed),
        }
