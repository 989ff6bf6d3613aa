"""The public class ``Table``: queries, writes and table services of one Hudi table.

``Table`` is a thin facade for ``lakemark.operations``. This module has its state, its queries and
the change of its version; ``lakemark.facade`` has the other methods, by family. A query opens
neither the lock nor the writer of the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig
from lakemark.execution.runner import LocalRunner
from lakemark.facade.history import HistoryMethods
from lakemark.facade.indexes import IndexMethods
from lakemark.facade.rows import RowMethods
from lakemark.facade.services import ServiceMethods
from lakemark.operations.change_version import change_table_version
from lakemark.operations.create_checks import choose_version
from lakemark.operations.scan_arguments import check_scan_arguments
from lakemark.operations.service_result import ServiceResult
from lakemark.operations.table_queries import LATEST
from lakemark.operations.write_checks import check_convertible
from lakemark.operations.write_context import merger_class
from lakemark.read.cdc.scan import CdcScan
from lakemark.read.explanation import Explanation
from lakemark.read.instant_range import EARLIEST
from lakemark.read.queries import Query, ReadOptimized
from lakemark.read.query_instant import GivenTime
from lakemark.read.scan import Scan
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline


class Table(RowMethods, ServiceMethods, HistoryMethods, IndexMethods):
    """An open table, as of the last ``refresh`` or the last change through this object.

    The object must not be used by several threads at the same time.
    """

    def __repr__(self) -> str:
        properties = self._table.properties
        keys = ", ".join(properties.record_key_fields) or "automatic"
        return (
            f"Table({self.location!r}, {properties.table_type.value.lower()}, "
            f"version {self.version}, record key {keys})"
        )

    def __dir__(self) -> list[str]:
        """Return only the public names."""
        names = {name for kind in type(self).__mro__[:-1] for name in vars(kind)}
        return sorted(name for name in names if not name.startswith("_"))

    @property
    def location(self) -> str:
        """The path or URL of the table."""
        return self._table.location.url

    @property
    def version(self) -> int:
        """The table version: 2 to 6, 8 or 9. Only versions from 6 on are written."""
        return int(self._table.version)

    @property
    def properties(self) -> TableProperties:
        """The table's properties, as they were last read."""
        return self._table.properties

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns, meta columns first; None if no columns are known yet."""
        return self._table.known_schema

    @property
    def timeline(self) -> Timeline:
        """The active timeline."""
        return self._table.timeline

    def refresh(self) -> None:
        """Load the timeline again.

        Raises:
            Refused: the table has another version now; open the table again.
        """
        self._table.refresh()

    def scan(
        self,
        query: Query = LATEST,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Scan:
        """Plan a query. No row is read yet.

        Args:
            query: type and time of the query: latest rows, time travel, incremental or read
                optimized.
            columns: columns of the result, in this order; None for all columns, Hudi's meta columns
                first.
            where: a condition on rows, as an Arrow expression or as text (docs/reading.md). The
                scan skips partitions, files and row groups that cannot contain matching rows.
            record_keys: record keys of the rows to read; None for all rows. The scan skips files
                that cannot contain these keys, by the record index or by Bloom filters, as for a
                condition on the record key.

        Raises:
            InvalidConfig: a column is unknown, or a condition, time or range is not valid.
            SnapshotChanged: other writers deleted files by a clean or rollback while the query was
                planned.
            CorruptData, Unsupported: the table cannot be read.
        """
        check_scan_arguments(query, columns, record_keys)
        return self._table.scan(query, columns, where, record_keys)

    def explain(
        self,
        query: Query = LATEST,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Explanation:
        """Explain which file groups ``scan`` reads, and why it skips the others. No row is read.

        Args:
            query: as for ``scan``.
            where: as for ``scan``.
            record_keys: as for ``scan``.

        Raises:
            InvalidConfig, SnapshotChanged, CorruptData, Unsupported: as for ``scan``.
        """
        check_scan_arguments(query, None, record_keys)
        return self._table.explain(query, where, record_keys)

    def changes(self, begin: GivenTime = EARLIEST, end: GivenTime | None = None) -> CdcScan:
        """Plan a CDC query, which returns the changes that each commit of a range made to records.

        The method raises the same errors as ``scan``.

        Args:
            begin: requested time after which the range begins.
            end: the last requested time in the range; None for a range without an end.
        """
        return self._table.changes(begin, end)

    def snapshot(
        self, columns: Sequence[str] | None = None, where: pc.Expression | str | None = None
    ) -> pa.RecordBatchReader:
        """Read the latest rows, which are base files merged with their logs."""
        return self.scan(LATEST, columns, where).to_reader()

    def read_optimized(
        self, columns: Sequence[str] | None = None, where: pc.Expression | str | None = None
    ) -> pa.RecordBatchReader:
        """Read only the base files.

        This is cheaper than a snapshot query, but the rows are as old as the last compaction.
        """
        return self.scan(ReadOptimized(), columns, where).to_reader()

    def change_version(self, version: int) -> ServiceResult:
        """Upgrade or downgrade the table. The change is atomic.

        Stop all other writers first. Pending instants of dead writers are rolled back, and pending
        compactions are executed.

        Args:
            version: the new table version: 6, 8 or 9. A table of a version before 6 is upgraded to
                6 first.

        Returns:
            The pending instants that were rolled back, and no files.

        Raises:
            InvalidConfig: there is no such version.
            WriterAlive: another writer is writing.
            Refused: the table cannot have that version. The message says what to do first.
        """
        wanted = choose_version(version)
        table = self._refreshed()
        check_convertible(table)
        change = change_table_version(
            table, wanted, table.runner or LocalRunner(), merger_class(table)
        )
        self._table = table.with_properties(read_properties(table.storage))
        self.__dict__.pop("_rows", None)
        return ServiceResult(instants=change.rolled_back)

    def upgrade(self, version: int = 9) -> ServiceResult:
        """Upgrade the table to a newer version; see ``change_version``.

        Raises:
            InvalidConfig: the table has a newer version.
        """
        if version < self.version:
            message = (
                f"table {self.location} has version {self.version}; to downgrade it, use "
                "change_version"
            )
            raise InvalidConfig(message)
        return self.change_version(version)
