"""What the methods of ``lakemark.Table`` share: the open table, and the writer of its rows."""

from __future__ import annotations

from functools import cached_property

from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_index import PartitionChange
from lakemark.operations.write import RowWriter
from lakemark.operations.write_checks import check_maintainable
from lakemark.transaction.rollback_checks import check_no_restore


class TableFacade:
    """An open table, and the writer of its rows, which is created with the first write."""

    def __init__(
        self,
        table: OpenTable,
        buckets: int | None = None,
        partition_change: PartitionChange | None = None,
        event_time_column: str | None = None,
    ) -> None:
        """Wrap an open table; users call ``lakemark.open`` or ``lakemark.create`` instead.

        Args:
            table: the open table.
            buckets: number of buckets in each partition, for a table whose commits do not record
                the number.
            partition_change: what happens to a row whose key exists in another partition.
            event_time_column: the column whose earliest and latest values the commits contain.
        """
        self._table = table
        self._buckets = buckets
        self._partition_change = partition_change
        self._event_time_column = event_time_column

    @cached_property
    def _rows(self) -> RowWriter:
        return RowWriter(
            self._table,
            self._buckets,
            partition_change=self._partition_change,
            event_time_column=self._event_time_column,
        )

    def _maintained(self) -> OpenTable:
        """Refresh the table, check that this project may rewrite its files, and return it."""
        table = self._refreshed()
        check_maintainable(table)
        return table

    def _refreshed(self) -> OpenTable:
        """Refresh the table, check that no restore is pending and its clock is known."""
        self._table.refresh()
        check_no_restore(self._table.timeline)
        self._table.store.clock.check()
        return self._table
