"""Kinds of partitions that a metadata table has; parse and print by one table.

``files`` and the others of one word are there once; an expression index and a secondary index are
called ``expr_index_<name>`` and ``secondary_index_<name>``. Source: ``MetadataPartitionType`` of
Apache Hudi 1.2.0.
"""

from __future__ import annotations

from enum import Enum

from lakemark.errors import Unsupported


class PartitionKind(Enum):
    """What a partition of the metadata table holds; the value is its name, or how it begins.

    Attributes:
        payload: field of the stored record that holds what is indexed.
    """

    FILES = ("files", "filesystemMetadata")
    COLUMN_STATS = ("column_stats", "ColumnStatsMetadata")
    BLOOM_FILTERS = ("bloom_filters", "BloomFilterMetadata")
    RECORD_INDEX = ("record_index", "recordIndexMetadata")
    PARTITION_STATS = ("partition_stats", "ColumnStatsMetadata")
    EXPRESSION_INDEX = ("expr_index_", "ColumnStatsMetadata")
    SECONDARY_INDEX = ("secondary_index_", "SecondaryIndexMetadata")

    def __init__(self, stored_name: str, payload: str) -> None:
        self.stored_name, self.payload = stored_name, payload

    @classmethod
    def of(cls, partition: str) -> PartitionKind:
        """The kind of the partition of that name.

        Raises:
            Unsupported: a partition that nobody had written yet.
        """
        for kind in cls:
            is_named = kind.stored_name.endswith("_") and partition.startswith(kind.stored_name)
            if is_named or partition == kind.stored_name:
                return kind
        known = ", ".join(kind.stored_name for kind in cls)
        message = f"the metadata table has a partition {partition!r}; known are {known}"
        raise Unsupported(message)
