"""A Hudi table for users: query it, write to it, and run its services.

``Table`` is a thin facade. Its state and the work are in ``lakemark.operations``. Opening a table
for a query opens no lock and no writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.validation import Difference
from lakemark.model.action import Action
from lakemark.model.file_slice import join
from lakemark.model.format_version import FormatVersion
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.operations.archive import archive
from lakemark.operations.change_version import PlannedChange, change_table_version
from lakemark.operations.clean import clean
from lakemark.operations.compact import Compaction, pending_compactions, request_compaction
from lakemark.operations.given_keys import Keys
from lakemark.operations.metadata_table import (
    compact_and_maintain_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.open_table import LATEST, OpenTable
from lakemark.operations.restore import restore_table
from lakemark.operations.rollback import roll_back_instant
from lakemark.operations.savepoint import create_savepoint, delete_savepoint, list_savepoints
from lakemark.operations.scan_arguments import check_scan_arguments
from lakemark.operations.write import Rows, RowWriter, WriteResult, merger_class
from lakemark.operations.write_checks import check_maintainable
from lakemark.read.cdc.scan import CdcScan
from lakemark.read.instant_range import EARLIEST
from lakemark.read.queries import Query, ReadOptimized
from lakemark.read.query_instant import GivenTime
from lakemark.read.scan import Scan
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.instant_files import names_of
from lakemark.transaction.rollback_checks import check_no_restore


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """What a table service or an undo did.

    Attributes:
        instants: requested times of the instants that it completed, archived or undid.
        files: paths of the files that it wrote (a compaction) or deleted.
    """

    instants: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class Table:
    """One open table, as of the last ``refresh``, or the last change through this object.

    Not for several threads at once.
    """

    def __init__(self, table: OpenTable, buckets: int | None = None) -> None:
        """For ``lakemark.open`` and ``lakemark.create``.

        Args:
            table: the open table.
            buckets: in each partition, for a table whose commits do not record it.
        """
        self._table = table
        self._buckets = buckets

    def __repr__(self) -> str:
        properties = self._table.properties
        keys = ", ".join(properties.record_key_fields)
        return (
            f"Table({self.location!r}, {properties.table_type.value.lower()}, "
            f"version {self.version}, record key {keys})"
        )

    def __dir__(self) -> list[str]:
        """Public names only."""
        return sorted(name for name in vars(type(self)) if not name.startswith("_"))

    @property
    def location(self) -> str:
        """The path or URL of the table."""
        return self._table.location.url

    @property
    def version(self) -> int:
        """The table version: 6, 8 or 9."""
        return int(self._table.version)

    @property
    def properties(self) -> TableProperties:
        """The table's properties as last read."""
        return self._table.properties

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns, meta columns first; None if they are not known yet."""
        return self._table.known_schema

    @property
    def timeline(self) -> Timeline:
        """The active timeline."""
        return self._table.timeline

    def refresh(self) -> None:
        """Load the timeline again.

        Raises:
            Refused: the table has another version now; open it again.
        """
        self._table.refresh()

    def scan(
        self,
        query: Query = LATEST,
        columns: Sequence[str] | None = None,
        where: pc.Expression | str | None = None,
        record_keys: Sequence[str] | None = None,
    ) -> Scan:
        """Plan to read rows; no row is read yet.

        Args:
            query: which rows.
            columns: columns of the result, in this order; None for all, Hudi's own first.
            where: a condition on rows, as an Arrow expression or as text (docs/reading.md). It
                prunes partitions, files and row groups.
            record_keys: only rows with these record keys. If the metadata table has a record index,
                a query of the latest rows reads only the file groups that it names.

        Raises:
            InvalidConfig: an unknown column, or a condition, time or range that is not valid.
            SnapshotChanged: other writers cleaned or rolled back while the query was planned.
            CorruptData, Unsupported: the table cannot be read.
        """
        check_scan_arguments(query, columns, record_keys)
        return self._table.scan(query, columns, where, record_keys)

    def changes(self, begin: GivenTime = EARLIEST, end: GivenTime | None = None) -> CdcScan:
        """Plan to read what each commit of a range did to each record; errors as for ``scan``.

        Args:
            begin: requested time after which the range begins.
            end: the last requested time in it; None for no end.
        """
        return self._table.changes(begin, end)

    def snapshot(
        self, columns: Sequence[str] | None = None, where: pc.Expression | str | None = None
    ) -> pa.RecordBatchReader:
        """Read the latest rows: base files merged with their logs."""
        return self.scan(LATEST, columns, where).to_reader()

    def read_optimized(
        self, columns: Sequence[str] | None = None, where: pc.Expression | str | None = None
    ) -> pa.RecordBatchReader:
        """Read the rows of the base files alone: cheaper, and as old as the last compaction."""
        return self.scan(ReadOptimized(), columns, where).to_reader()

    def upsert(self, rows: Rows, *, add_columns: bool = False) -> WriteResult:
        """Write rows in one commit: each inserts its record, or is merged with the stored row.

        The table's merge mode decides which row wins. A column that the rows lack is null. A row
        with ``_hoodie_is_deleted: true`` deletes its record, if the table has that column.

        Args:
            rows: an Arrow table, a record batch, a reader or batches. They are held in memory.
            add_columns: whether columns that the table lacks are added to it, and types widened.

        Raises:
            InvalidConfig: a column does not fit the table; the message names it.
            InvalidRecords: a row has no record key, partition or ordering value; nothing was
                written.
            WriteConflict: other writers changed the same file groups, again and again.
            WriterAlive: another writer is writing, and this one was opened as the only one.
            OutcomeUnknown: the store did not answer; look for the commit before you write again.
        """
        return self._rows.upsert(rows, add_columns=add_columns)

    def delete(
        self, keys: Keys | None = None, *, where: pc.Expression | str | None = None
    ) -> WriteResult:
        """Delete records in one commit, whatever their ordering values.

        Args:
            keys: record keys as text, or rows with the columns of the record key. An Arrow array
                may have the type of the key's only column.
            where: a condition on rows, as for ``scan``. With ``keys``, both must hold.

        Raises:
            InvalidConfig: neither is given, or ``keys`` are not keys (a text alone is none); or as
                for ``scan``.
            InvalidRecords: a key is null.
            WriteConflict, WriterAlive, OutcomeUnknown: as for ``upsert``.
        """
        if keys is None and where is None:
            message = "delete needs keys=… or where=…; to delete all rows, pass all keys"
            raise InvalidConfig(message)
        return self._rows.delete(keys, where)

    def compact(self) -> ServiceResult:
        """Merge log files into base files: execute pending compactions, or else plan one.

        A compaction that another writer executes is skipped.

        Raises:
            Unsupported: the table is copy-on-write, or this project does not write it.
            Refused: a restore is pending.
        """
        table = self._maintained()
        if not table.properties.is_merge_on_read:
            message = f"table {self.location} is copy-on-write: it has no logs to compact"
            raise Unsupported(message)
        planned = pending_compactions(table)
        if not planned:
            requested = request_compaction(table)
            planned = [requested] if requested else []
        instants, files = [], []
        for one in planned:
            try:
                compaction = Compaction.begin(table, one, merger_class(table))
            except WriteConflict:
                table.refresh()
                continue
            instant, metadata = compaction.run(table.runner or LocalRunner())
            instants.append(instant.requested_at)
            files += [stat.path for stat in metadata.write_stats if stat.path]
        return ServiceResult(instants=tuple(instants), files=tuple(files))

    def clean(
        self,
        *,
        retain_commits: int | None = None,
        retain_hours: int | None = None,
        retain_versions: int | None = None,
    ) -> ServiceResult:
        """Delete files that no query within the retention reads; pending cleans first.

        Args:
            retain_commits: keep what queries as of this number of commits need (default: 10).
            retain_hours: keep what queries as of this number of hours need.
            retain_versions: keep this number of file slices in each file group.

        Raises:
            InvalidConfig: more than one is given, or a number below 1.
            Refused: a restore is pending.
        """
        policy = _cleaning_policy(retain_commits, retain_hours, retain_versions)
        table = self._maintained()
        done = clean(table, policy)
        compact_and_maintain_metadata_table(table, MetadataPolicies.for_data_table(policy))
        return ServiceResult(
            instants=tuple(one.instant.requested_at for one in done),
            files=tuple(path for one in done for path in one.plan.paths),
        )

    def archive(
        self, *, min_commits: int = 20, max_commits: int = 30, retain_commits: int = 10
    ) -> ServiceResult:
        """Move old instants from the active timeline to the archived timeline.

        Commits that record the progress of streamers stay active.

        Args:
            min_commits: commits that stay active.
            max_commits: archive only if more commits are active.
            retain_commits: of the table's cleans, which need these commits on the active timeline.

        Raises:
            InvalidConfig: ``min_commits`` is not below ``max_commits``.
            Refused: a restore is pending.
        """
        policy = ArchivalPolicy(min_commits, max_commits)
        cleaning = CleaningPolicy(commits=retain_commits)
        table = self._maintained()
        archived = archive(table, policy, cleaning)
        compact_and_maintain_metadata_table(
            table, MetadataPolicies.for_data_table(cleaning, policy)
        )
        if archived is None:
            return ServiceResult()
        instants = tuple(one.requested_at for one in archived.instants)
        return ServiceResult(instants=instants, files=archived.leftovers)

    def rollback(self, instant: str) -> ServiceResult:
        """Undo one instant: the newest commit, or a pending instant.

        Args:
            instant: its requested time.

        Raises:
            InvalidConfig: there is no such instant on the active timeline.
            Refused: it cannot be undone; the message says what to do first.
        """
        undone = roll_back_instant(self._maintained(), instant)
        return ServiceResult(instants=(instant,), files=_paths(undone))

    @property
    def savepoints(self) -> dict[str, SavepointMetadata]:
        """Each savepoint by the requested time of its commit."""
        return list_savepoints(self._table)

    def savepoint(self, instant: str | None = None, *, user: str = "", comment: str = "") -> str:
        """Keep the files of the state as of a commit from cleaning.

        Args:
            instant: requested time of the commit; None for the newest.
            user: that the savepoint records.
            comment: that the savepoint records.

        Returns:
            The requested time of the commit.

        Raises:
            InvalidConfig: there is no such commit on the active timeline.
            Refused: it has a savepoint, its files were cleaned, or a clean or restore is pending.
        """
        chosen = instant or self._newest_commit()
        create_savepoint(self._table, chosen, user, comment)
        return chosen

    def delete_savepoint(self, instant: str) -> None:
        """Let cleaning delete the files of a savepoint again.

        Raises:
            InvalidConfig: there is no savepoint of that commit.
        """
        delete_savepoint(self._table, instant)

    def restore(self, instant: str | None = None) -> ServiceResult:
        """Undo every write after a commit; a restore that is pending is completed instead.

        Args:
            instant: requested time of the commit, or of its savepoint; None only completes.

        Raises:
            InvalidConfig: there is no such commit; or no restore is pending.
            Refused: the state cannot be brought back; the message says why.
        """
        self._table.refresh()
        if instant is None and not self._table.timeline.pending(Action.RESTORE):
            message = f"no restore of {self._table.location.url} is pending; name a commit"
            raise InvalidConfig(message)
        undone = restore_table(self._table, instant)
        return ServiceResult(
            instants=tuple(one.instant for one in undone),
            files=tuple(path for one in undone for path in _paths(one)),
        )

    def change_version(self, version: int) -> PlannedChange:
        """Change the table version, up or down, whole or not at all.

        Pending instants of dead writers are rolled back, and pending compactions executed. Stop all
        other writers first.

        Args:
            version: 6, 8 or 9.

        Raises:
            WriterAlive: another writer is writing.
            Refused: the table cannot have that version; the message says what to do first.
        """
        wanted = FormatVersion.of(version, self.location)
        table = self._maintained()
        change = change_table_version(
            table, wanted, table.runner or LocalRunner(), merger_class(table)
        )
        self._table = table.with_properties(read_properties(table.storage))
        self.__dict__.pop("_rows", None)
        return change

    def upgrade(self, version: int = 9) -> PlannedChange:
        """Change the table to a newer version; see ``change_version``.

        Raises:
            InvalidConfig: the table has a newer version.
        """
        if version < self.version:
            message = f"table {self.location} has version {self.version}; use change_version"
            raise InvalidConfig(message)
        return self.change_version(version)

    def rebuild_metadata_table(self) -> None:
        """Build the metadata table again from the files."""
        rebuild_metadata_table(self._table)

    def metadata_differences(self) -> list[Difference]:
        """Where the metadata table and the files differ; empty if there is no metadata table."""
        return metadata_differences(self._table)

    @cached_property
    def _rows(self) -> RowWriter:
        return RowWriter(self._table, self._buckets)

    def _maintained(self) -> OpenTable:
        """Return the table as of now, if this project may rewrite its files."""
        self._table.refresh()
        check_maintainable(self._table)
        check_no_restore(self._table.timeline)
        self._table.store.clock.check()
        return self._table

    def _newest_commit(self) -> str:
        self._table.refresh()  # another writer may have committed
        completed = [i for i in self._table.timeline.completed() if i.action.is_ingest]
        if not completed:
            message = f"table {self.location} has no commit to keep"
            raise InvalidConfig(message)
        return completed[-1].requested_at


def _paths(undone: RollbackPlan) -> tuple[str, ...]:
    """Return the files of an undone instant, from the table's root."""
    named = names_of(undone.files).items()
    return tuple(join(partition, name) for partition, names in named for name in names)


def _cleaning_policy(
    commits: int | None, hours: int | None, versions: int | None
) -> CleaningPolicy:
    if sum(given is not None for given in (commits, hours, versions)) > 1:
        message = "pass one of retain_commits, retain_hours and retain_versions"
        raise InvalidConfig(message)
    for given in (commits, hours, versions):
        if given is not None and given < 1:  # of 0 versions, the newest would be deleted
            message = f"a clean retains at least 1 commit, hour or version, not {given}"
            raise InvalidConfig(message)
    if hours is not None:
        return CleaningPolicy(Retention.HOURS, hours=hours)
    if versions is not None:
        return CleaningPolicy(Retention.FILE_VERSIONS, file_versions=versions)
    return CleaningPolicy() if commits is None else CleaningPolicy(commits=commits)
