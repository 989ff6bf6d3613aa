"""Reads expression indexes: statistics or bloom filters of a function of a column.

Each index has its own partition ``expr_index_<name>`` of the metadata table, in the format of
``column_stats`` or ``bloom_filters``. Statistics are stored under the name of the column. An index
of statistics also has records for whole partitions of the data table. The keys of these records
have ``__partition_stat__`` before the partition. Source: ``HoodieExpressionIndex``,
``HoodieTableMetadataUtil.getPartitionStatsIndexKey`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakemark.codec.bloom import BloomFilter
from lakemark.errors import CorruptData, InvalidConfig
from lakemark.metadata.bloom_filters import BloomFilters
from lakemark.metadata.column_stats.lookup import ColumnStatistics, PartitionStatistics
from lakemark.metadata.expressions.indexed_expression import OF_PARTITIONS
from lakemark.metadata.index_definition import DEFINITIONS_PATH, IndexDefinition
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind

_COLUMN_STATS = PartitionKind.COLUMN_STATS
_BLOOM_FILTERS = PartitionKind.BLOOM_FILTERS


@dataclass(frozen=True)
class ExpressionIndex:
    """Reads one partition ``expr_index_<name>``.

    Attributes:
        metadata: the metadata table that contains the index.
        definition: the definition of the index.
    """

    metadata: MetadataTable
    definition: IndexDefinition

    @classmethod
    def of(cls, metadata: MetadataTable, partition: str) -> ExpressionIndex:
        """Return the index in a partition of the metadata table.

        Raises:
            CorruptData: the table has no definition of the index.
        """
        definition = metadata.definitions.get(partition)
        if definition is None or not definition.source_fields:
            expected = f"a definition of {partition} that names a column"
            raise CorruptData(DEFINITIONS_PATH, None, expected, "no such definition")
        return cls(metadata, definition)

    @property
    def column(self) -> str:
        """The column that the function is applied to."""
        return self.definition.source_fields[0]

    def of_files(self, data_type: pa.DataType, partitions: Sequence[str] | None = None) -> pa.Table:
        """Return the statistics of the expression by file.

        Args:
            data_type: type of the expression's values.
            partitions: paths of the partitions whose files are looked up; None for all partitions.

        Returns:
            A table with the schema ``statistics_schema("file_name", data_type)``.

        Raises:
            InvalidConfig: this is an index of bloom filters.
            SnapshotChanged, CorruptData, Unsupported: as for ``ColumnStatistics.of_column``.
        """
        self._check_kind(_COLUMN_STATS)
        partition = self.definition.partition
        statistics = ColumnStatistics(self.metadata, partition, counts_nulls=False)
        return statistics.of_column(self.column, data_type, partitions)

    def of_partitions(
        self, data_type: pa.DataType, partitions: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the statistics of the expression by partition.

        Arguments and errors are as for ``of_files``.

        Returns:
            A table with the schema ``statistics_schema("partition_path", data_type)``.
        """
        self._check_kind(_COLUMN_STATS)
        partition = self.definition.partition
        statistics = PartitionStatistics(self.metadata, partition, OF_PARTITIONS, False)
        return statistics.of_column(self.column, data_type, partitions)

    def bloom_filters(self, files: Iterable[tuple[str, str]]) -> dict[tuple[str, str], BloomFilter]:
        """Return, for each file, the bloom filter of the expression's values.

        Args:
            files: partition path and name of each base file.

        Raises:
            InvalidConfig: this is an index of statistics.
            SnapshotChanged, CorruptData, Unsupported: as for ``BloomFilters.of_files``.
        """
        self._check_kind(_BLOOM_FILTERS)
        return BloomFilters(self.metadata, self.definition.partition).of_files(files)

    def _check_kind(self, kind: PartitionKind) -> None:
        if self.definition.kind != kind.stored_name:
            message = (
                f"{self.definition.partition} is an index of {self.definition.kind}, "
                f"not of {kind.stored_name}"
            )
            raise InvalidConfig(message)
