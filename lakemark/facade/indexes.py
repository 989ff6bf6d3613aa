"""The methods of ``lakemark.Table`` for its metadata table and the indexes in it."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark.facade.base import TableFacade
from lakemark.metadata.difference import Difference
from lakemark.operations.create_checks import column_names
from lakemark.operations.create_index import create_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.metadata_table import (
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.statistics_columns import choose_statistics_columns
from lakemark.operations.table_indexes import TableIndex, list_indexes


class IndexMethods(TableFacade):
    """Creates, drops and checks what the metadata table contains."""

    @property
    def indexes(self) -> list[TableIndex]:
        """The indexes in the metadata table, as of now, sorted by name."""
        return list_indexes(self._table)

    def create_index(
        self,
        name: str,
        *,
        column: str | None = None,
        expression: str | None = None,
        kind: str = "column_stats",
        partitioned: bool = False,
    ) -> None:
        """Create an index, while other writers of lakemark may commit; see docs/indexes.md.

        Nothing happens if the table has this index. No writer of Apache Hudi may write meanwhile.

        Args:
            name: ``record_index``, ``bloom_filters``, ``column_stats``, ``partition_stats``, or a
                name of your choice with ``column`` or ``expression``.
            column: the column of a secondary index, which contains texts or integers. The table
                needs a record index of all partitions.
            expression: the expression of an expression index, such as ``lower(name)`` or
                ``from_unixtime(ts, 'yyyy-MM-dd')``.
            kind: what an expression index has for each file: ``column_stats`` or ``bloom_filters``.
            partitioned: whether the keys of a record index are unique only within a partition.

        Raises:
            InvalidConfig: the name or the expression is invalid, or the table has this index of
                another column or expression, or with keys that are unique elsewhere.
            Unsupported: the table may not have such an index, or lakemark does not update it.
            Refused: two rows have the same record key; another process builds the index; or Apache
                Hudi would fail at a null in it.
        """
        create_index(
            self._refreshed(),
            name,
            column,
            expression=expression,
            kind=kind,
            partitioned=partitioned,
        )

    def drop_index(self, name: str) -> None:
        """Drop an index, or what a dead process has built of it.

        Args:
            name: the name of the index.

        Raises:
            InvalidConfig: there is no such index.
            Refused: a process builds the index, or a secondary index needs it.
        """
        drop_index(self._refreshed(), name)

    def choose_statistics_columns(self, columns: Sequence[str] | None) -> None:
        """Choose the columns with statistics, by which queries skip files.

        The metadata table is built again. Other writers that are open refuse to commit until they
        have opened the table again.

        Args:
            columns: the columns; None for the default, the first 32 that can have statistics. The
                record key and the partition path always have statistics.

        Raises:
            InvalidConfig: a column does not exist, or its type has no order.
            Unsupported: lakemark does not update an index of the table.
            WriteConflict: another process has changed the properties of the table meanwhile.
        """
        names = None if columns is None else column_names(columns, "columns")
        choose_statistics_columns(self._refreshed(), names)

    def rebuild_metadata_table(self) -> None:
        """Build the metadata table again from a listing of the files."""
        rebuild_metadata_table(self._table)

    def metadata_differences(self) -> list[Difference]:
        """Compare the metadata table with the files, and return the differences.

        The list is empty if there is no metadata table.
        """
        return metadata_differences(self._table)
