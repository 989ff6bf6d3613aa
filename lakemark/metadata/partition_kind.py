"""Kinds of partitions of a metadata table.

A metadata table may have several expression indexes and secondary indexes, in partitions named
``expr_index_<name>`` and ``secondary_index_<name>``. Each other kind has at most one partition.
Source: ``MetadataPartitionType`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum

from lakemark.config.table_properties import (
    EXPRESSION_INDEX_PREFIX,
    SECONDARY_INDEX_PREFIX,
    TableProperties,
)
from lakemark.errors import Unsupported


class PartitionKind(Enum):
    """A kind of partition.

    Attributes:
        stored_name: name of the partition; if it ends in ``_``, a prefix of partition names.
        payload: the field of the stored records that contains the indexed data.
    """

    FILES = ("files", "filesystemMetadata")
    COLUMN_STATS = ("column_stats", "ColumnStatsMetadata")
    BLOOM_FILTERS = ("bloom_filters", "BloomFilterMetadata")
    RECORD_INDEX = ("record_index", "recordIndexMetadata")
    PARTITION_STATS = ("partition_stats", "ColumnStatsMetadata")
    EXPRESSION_INDEX = (EXPRESSION_INDEX_PREFIX, "ColumnStatsMetadata")
    SECONDARY_INDEX = (SECONDARY_INDEX_PREFIX, "SecondaryIndexMetadata")

    def __init__(self, stored_name: str, payload: str) -> None:
        self.stored_name, self.payload = stored_name, payload

    @property
    def describes_latest_rows(self) -> bool:
        """Whether the records describe the table's latest rows, not files, which never change.

        See ``lakemark.metadata.merged_commits``.
        """
        return self in (PartitionKind.RECORD_INDEX, PartitionKind.SECONDARY_INDEX)

    @classmethod
    def of(cls, partition: str) -> PartitionKind:
        """Return the kind of a partition, by the partition's name.

        Raises:
            Unsupported: the name belongs to no known kind.
        """
        for kind in cls:
            is_named = kind.stored_name.endswith("_") and partition.startswith(kind.stored_name)
            if is_named or partition == kind.stored_name:
                return kind
        known = ", ".join(kind.stored_name for kind in cls)
        message = f"the metadata table has a partition {partition!r}; supported are {known}"
        raise Unsupported(message)


def has_record_index(properties: TableProperties) -> bool:
    """Return whether a table has a record index, which each commit of rows must update.

    An index that was dropped with the metadata table counts, too, because the next metadata table
    has it again. Until then, no keys may be written that the index could not locate.
    """
    name = PartitionKind.RECORD_INDEX.stored_name
    return name in properties.metadata_partitions or name in properties.metadata_indexes


def find_missing_statistics(partitions: Container[str]) -> str | None:
    """Return why the statistics of partitions cannot be updated, if there are any.

    A commit derives them from the statistics of files. ``DROP INDEX column_stats`` of Apache Hudi
    1.2.0 drops only the latter.

    Args:
        partitions: the partitions of a metadata table.
    """
    files = PartitionKind.COLUMN_STATS.stored_name
    whole = PartitionKind.PARTITION_STATS.stored_name
    if whole not in partitions or files in partitions:
        return None
    return f"it has {whole}, but no {files}, from which each commit derives them"
