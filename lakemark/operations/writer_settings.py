"""Settings of a writer that the table does not store in its properties."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.config import keys
from lakemark.index.bucket import BucketIndex


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Settings that every commit of one writer shares.

    Attributes:
        index: buckets of a partition, and the fields that are hashed.
        log_format: of data blocks, ``parquet`` or ``avro``; None leaves the choice to
            ``default_log_format``.
        merger_class: path of the class (``MergerName``) that merges, for mode ``CUSTOM``.
        metadata_table: whether ``TableWriter.recover`` builds a metadata table if there is none.
    """

    index: BucketIndex
    log_format: str | None = None
    merger_class: str | None = None
    metadata_table: bool = True

    def bucket_metadata(self) -> dict[str, str]:
        """The bucket count and hash fields for the commit, because no property stores them."""
        hashed = self.index.hash_fields or self.index.key_fields
        return {
            keys.BUCKET_COUNT: str(self.index.bucket_count),
            keys.BUCKET_HASH_FIELDS: ",".join(hashed),
        }
