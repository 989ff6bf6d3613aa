"""Settings of a writer that are not in the table's properties."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.config import keys
from lakemark.index.bucket import BucketIndex
from lakemark.services.slice_choice import ALL_SLICES, SliceChoice


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Settings that every commit of one writer shares.

    Attributes:
        index: the number of buckets in a partition, and the fields that are hashed; None if the
            table has no bucket index, so that keys are looked up in its files.
        log_format: the format of data blocks, ``parquet`` or ``avro``; None to use
            ``default_log_format``.
        merger_class: the import path (``MergerName``) of the user's merger, for merge mode
            ``CUSTOM``.
        metadata_table: whether ``TableWriter.recover`` builds a metadata table if there is none.
        first_ring_count: the number of buckets of a new partition, if the table has consistent
            hashing. Then ``index`` is None.
        global_keys: whether keys are looked up in all partitions, and a row moves if its partition
            changes. Then ``index`` is None.
        compacted_slices: which slices a compaction that the writer plans rewrites.
        event_time_column: the column with event times, whose earliest and latest values the write
            stats of commits contain (``hoodie.payload.event.time.field``); None for none.
    """

    index: BucketIndex | None
    log_format: str | None = None
    merger_class: str | None = None
    metadata_table: bool = True
    first_ring_count: int | None = None
    global_keys: bool = False
    compacted_slices: SliceChoice = ALL_SLICES
    event_time_column: str | None = None

    @property
    def looks_up_keys(self) -> bool:
        """Whether the table has a lookup index."""
        return self.index is None and self.first_ring_count is None

    @property
    def may_repeat_keys(self) -> bool:
        """Whether keys are looked up, but only in the partitions of their changes."""
        return self.looks_up_keys and not self.global_keys

    def index_metadata(self) -> dict[str, str]:
        """Return the index for commits, because no table property has it.

        A bucket index has a bucket count and hash fields, any other index has a name. Consistent
        hashing also has the bucket count of new partitions.
        """
        if self.first_ring_count is not None:
            count = str(self.first_ring_count)
            return {keys.INDEX: keys.CONSISTENT_HASHING, keys.FIRST_BUCKETS: count}
        if self.index is None:
            return {keys.INDEX: keys.GLOBAL_LOOKUP if self.global_keys else keys.LOOKUP}
        hashed = self.index.hash_fields or self.index.key_fields
        if self.index.partitions is not None:
            name = keys.PARTITION_BUCKETS
            return {keys.INDEX: name, keys.BUCKET_HASH_FIELDS: ",".join(hashed)}
        return {
            keys.BUCKET_COUNT: str(self.index.bucket_count),
            keys.BUCKET_HASH_FIELDS: ",".join(hashed),
        }
