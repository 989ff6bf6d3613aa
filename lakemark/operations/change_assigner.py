"""Assigns the changes of one commit to file groups, with whatever index the table has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lakemark.errors import SnapshotChanged
from lakemark.execution.runner import LocalRunner
from lakemark.index.global_keys import MovedChanges, move_rows
from lakemark.index.key_lookup import KeyLookup, NoLookup
from lakemark.index.lookup import LookupIndex
from lakemark.index.record_level import PartitionedRecordLevelIndex, RecordLevelIndex
from lakemark.index.stored_filters import StoredFilters
from lakemark.index.stored_keys import StoredKeys
from lakemark.metadata.partition_shards import check_path
from lakemark.metadata.record_index import RecordIndex
from lakemark.model.action import COMMITS
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.assigned_changes import AssignedChanges, PlacedBuckets
from lakemark.operations.bucket_assigner import BucketAssigner
from lakemark.operations.file_group_assigner import (
    FileGroupAssigner,
    FileGroupAssignment,
    SharedGroups,
)
from lakemark.operations.hash_ring_assigner import HashRingAssigner
from lakemark.operations.index import Index
from lakemark.operations.later_commits import conflicts_with_later_commits
from lakemark.operations.lookup_assigner import LookupAssigner, searched_groups
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_index import has_partitioned_index
from lakemark.operations.writer_settings import WriterSettings
from lakemark.timeline.timeline import Timeline
from lakemark.write.file_sizing import estimate_record_bytes
from lakemark.write.write_context import WriteContext

#: The number of commits from which the size of a record is estimated.
_SIZED_COMMITS = 20

#: Fewest base files that are searched in the metadata table first. To open the metadata table takes
#: about as many requests as the footers of so many files.
_MIN_FILES = 16

#: Largest number of Bloom filters that are read from the metadata table.
_MAX_FILTERS = 10_000


@dataclass
class ChangeAssigner:
    """Assigns the changes of one commit to file groups, as of ``TableWriter.begin``.

    Attributes:
        table: the open table.
        settings: decide which ``Index`` the table has.
        groups: the file groups of a bucket index, which several commits share.
        shared_instant: the requested time of the commit, if other writers may write the same file
            groups (``non_blocking``); otherwise None.
        spared: file groups of a lookup index that receive no new keys.
    """

    table: OpenTable
    settings: WriterSettings
    groups: FileGroupAssigner
    shared_instant: str | None = None
    spared: frozenset[FileGroupId] = frozenset()
    _used: list[Index] = field(default_factory=list, init=False)

    def assign_file_groups(self) -> FileGroupAssignment:
        """Return the existing file slices of the buckets (bucket index)."""
        assert self.settings.index is not None
        view = self.table.view()
        assignment = self.groups.assign(view, self.settings.index)
        if self.shared_instant is None:
            return assignment
        return replace(assignment, shared=SharedGroups.of(self.shared_instant, view.replaced))

    def assign(
        self,
        context: WriteContext,
        changes: pa.Table,
        *,
        looks_up: bool = True,
        stored: KeyLookup | None = None,
    ) -> AssignedChanges:
        """Return the file group of each change.

        Args:
            context: the context that ``TableWriter.begin`` returned.
            changes: all changes of the commit, at least one.
            looks_up: as for ``index``.
            stored: as for ``index``.

        Raises:
            SnapshotChanged: another writer deleted a file of the table.
            WriteConflict: another writer has added one of the keys since ``TableWriter.begin``.
            Refused: several file groups of a partition contain the same key; or the table has a
                record index, and a key is in another partition.
            MetadataTableBehind: the record index cannot be used until the next start.
            InvalidConfig: a file group was created with more buckets, or by another index.
        """
        with conflicts_with_later_commits(self.table):
            return self.index(context, looks_up=looks_up, stored=stored).assign(changes)

    def place_buckets(
        self, context: WriteContext, find_paths: Callable[[], Iterable[str]]
    ) -> PlacedBuckets | None:
        """Return the buckets of the table; None with a lookup index.

        Args:
            context: the context that ``TableWriter.begin`` returned.
            find_paths: as for ``Index.place``.

        Raises:
            InvalidConfig: as for ``assign``.
            CorruptData: a stored ring is damaged.
        """
        return self.index(context).place(find_paths)

    def index(
        self, context: WriteContext, *, looks_up: bool = True, stored: KeyLookup | None = None
    ) -> Index:
        """Return the index of the table, for the changes of this commit.

        Args:
            context: the context that ``TableWriter.begin`` returned.
            looks_up: whether a lookup index searches the keys. If not, all keys are treated as new.
            stored: the file groups of the changes, if they are known (``MovedChanges``,
                ``FoundGroups``).

        Raises:
            InvalidConfig: as for ``assign``.
        """
        index = self._open_index(context, looks_up=looks_up, stored=stored)
        self._used.append(index)
        return index

    def check_index(self, timeline: Timeline) -> None:
        """Check, under the lock, that no other writer has changed the buckets of this commit.

        Raises:
            WriteConflict: see ``Index.check_unchanged``.
        """
        for index in self._used:
            index.check_unchanged(timeline)

    def move_rows(self, context: WriteContext, changes: pa.Table) -> MovedChanges:
        """Decide how changes are written so that rows move to their partitions.

        Args:
            context: the context that ``TableWriter.begin`` returned.
            changes: all changes of the commit, at least one. The writer has global keys.

        Raises:
            SnapshotChanged: another writer deleted a file of the table.
            WriteConflict: another writer has added one of the keys since ``TableWriter.begin``.
            Refused: several partitions have a row of the same key.
            MetadataTableBehind: the record index cannot be used until the next start.
            Unsupported: the keys of the record index are unique only within a partition.
        """
        assert self.settings.global_keys
        locate = partial(self.find_stored, context)
        return move_rows(context.reader, changes, locate, LocalRunner())

    def keys_are_global(self, context: WriteContext) -> bool:
        """Return whether each record key has at most one row in the whole table.

        Raises:
            SnapshotChanged, MetadataTableBehind: as for ``move_rows``.
        """
        if not context.has_record_index:
            return self.settings.global_keys
        return self.settings.global_keys or not self._record_index().is_partitioned

    def find_stored(self, context: WriteContext, record_keys: pa.Array) -> StoredKeys:
        """Find the file groups of some distinct keys in all partitions.

        Raises:
            SnapshotChanged, WriteConflict, Refused, MetadataTableBehind: as for ``move_rows``.
            Unsupported: the keys of the record index are unique only within a partition.
        """
        groups = searched_groups(self.table.view())
        if context.has_record_index:
            index = self._record_index()
            if index.is_partitioned:
                raise has_partitioned_index(self.table)
            with conflicts_with_later_commits(self.table):
                return RecordLevelIndex.of(index, record_keys).stored_keys(groups)
        return StoredKeys.search(context.reader, groups, record_keys, LocalRunner(), self._filters)

    def lookup_assigner(
        self, context: WriteContext, open_lookup: Callable[[pa.Table], KeyLookup]
    ) -> LookupAssigner:
        """Return what assigns changes to file groups, in a table with a lookup index.

        Args:
            context: the context that ``TableWriter.begin`` returned.
            open_lookup: returns what looks up the keys of changes.
        """
        properties, sizing = self.table.properties, self.table.base_files
        newest = self.table.timeline.completed(*COMMITS)[: -_SIZED_COMMITS - 1 : -1]
        commits = (self.table.store.read_commit(instant) for instant in newest)
        record_bytes = estimate_record_bytes(commits, sizing)
        if properties.is_merge_on_read and properties.cdc_enabled:
            # CDC queries of Apache Hudi fail on a rewritten base file of a delta commit
            # (``HoodieCDCExtractor``).
            sizing = replace(sizing, small_file_bytes=0)
        return LookupAssigner(
            open_lookup=open_lookup,
            view=self.table.view(),
            sizing=sizing,
            record_bytes=record_bytes,
            instant=context.instant,
            table_name=context.table_name,
            is_merge_on_read=properties.is_merge_on_read,
            deletes_may_add=context.merger.needs_whole_rows,
            spared=self.spared,
        )

    def _open_index(
        self, context: WriteContext, *, looks_up: bool, stored: KeyLookup | None
    ) -> Index:
        if self.settings.index is not None:
            return BucketAssigner(self.settings.index, self.assign_file_groups())
        count = self.settings.first_ring_count
        if count is not None:
            table, key_fields = self.table, self.table.properties.record_key_fields
            return HashRingAssigner(table.storage, table.view(), table.timeline, key_fields, count)

        def open_lookup(changes: pa.Table) -> KeyLookup:
            if not looks_up:
                return NoLookup()
            return self._lookup_of(context, changes) if stored is None else stored

        return self.lookup_assigner(context, open_lookup)

    def _lookup_of(self, context: WriteContext, changes: pa.Table) -> KeyLookup:
        """Return the record index if the table has one, and otherwise search the files."""
        if not context.has_record_index:
            return LookupIndex(context.reader, LocalRunner(), self._filters)
        index = self._record_index()
        if index.is_partitioned:
            for path in changes.column(PARTITION_PATH).unique().to_pylist():
                check_path(path)  # before files are written
            refusal = self.table.metadata_writer.refusal_of_record_index
            return PartitionedRecordLevelIndex(index, refusal)
        return RecordLevelIndex.of(index, changes.column(RECORD_KEY))

    @property
    def _filters(self) -> StoredFilters:
        """The key ranges and Bloom filters in the metadata table."""
        return StoredFilters(self.table.snapshot.metadata_with, _MIN_FILES, _MAX_FILTERS)

    def _record_index(self) -> RecordIndex:
        index = self.table.metadata_writer.record_index(self.table.timeline)
        if index is None:
            url = self.table.location.url
            message = f"the record index of {url} was dropped meanwhile; open the table again"
            raise SnapshotChanged(message)
        return index
