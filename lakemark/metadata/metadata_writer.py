"""Keeps the metadata table true: the participant of every change to a table's files.

What it knows is carried from call to call, since one driver writes: the metadata table's timeline
and file groups, and the ranges of the partitions that were written to. It is read again when the
data table's timeline shows that others changed the table, and when they made the metadata table
anew.

Source: ``HoodieBackedTableMetadataWriter`` and the ``convertMetadataTo…Records`` of
``HoodieTableMetadataUtil``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.errors import CorruptData, Fenced, Retriable, TableNotFound, Unsupported
from lakemark.metadata.bootstrap import drop
from lakemark.metadata.column_stats.file_ranges import ranges_in
from lakemark.metadata.column_stats.lookup import PartitionStatistics
from lakemark.metadata.column_stats.partition_records import (
    RangesOf,
    column_statistics,
    partition_statistics,
)
from lakemark.metadata.column_stats.records import (
    deleted_column_statistics,
    deleted_partition_statistics,
)
from lakemark.metadata.column_stats.remaining_ranges import (
    Remaining,
    is_outdated,
    partitions_that_lose_files,
    remaining_ranges,
    view_of,
)
from lakemark.metadata.consistency import disagreement
from lakemark.metadata.file_records import FilesOfPartition, encode_files
from lakemark.metadata.index_definition import define_column_statistics, read_definitions
from lakemark.metadata.metadata_compaction import compact_if_due, last_compaction
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER, MetadataTableOpener
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.recorded_files import FilesDiffer
from lakemark.model.action import COMMITS
from lakemark.model.column_ranges import ColumnRanges, indexed_columns
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.scan_planner import table_schema
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import check_same_version, read_properties
from lakemark.storage.storage import ObjectInfo, Storage
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import data_file

_FILES = PartitionKind.FILES.stored_name
_COLUMNS = PartitionKind.COLUMN_STATS.stored_name
_PARTITIONS = PartitionKind.PARTITION_STATS.stored_name


class MetadataTableBehind(Retriable):
    """It cannot be continued, and the next start of this writer makes it anew."""


@dataclass
class _Known:
    """A metadata table as of the last call.

    Attributes:
        store: writes it.
        made: its properties' file; another one when it was made anew.
        partitions: its own, those that readers trust.
        told: requested times of the data table's instants that it tells of.
        columns: those that have statistics, by the index definition.
        committed: those of them that a completed commit has. The definition is written first, so it
            may name a column whose commit never completed, and no partition has a record of that.
        paths: partitions of the data table.
        ranges: what is known of those partitions that were written to.
    """

    store: MetadataStore
    made: ObjectInfo | None
    partitions: frozenset[str]
    told: set[str]
    columns: list[str]
    committed: set[str]
    paths: set[str]
    ranges: dict[str, ColumnRanges] = field(default_factory=dict)


class _Carried(NamedTuple):
    """What is known of the partitions that a commit touches.

    Attributes:
        ranges: with its files, by partition path.
        read: what had to be read in files that had no statistics.
        emptied: partitions whose last row is gone.
    """

    ranges: dict[str, ColumnRanges]
    read: list[RangesOf]
    emptied: list[str]


class MetadataWriter:
    """The ``Participant`` of a table, with a metadata table or without.

    Attributes:
        opener: opens the metadata table for readers.
        is_kept: whether whoever calls makes a metadata table anew when it starts, if need be.
    """

    def __init__(
        self,
        storage: Storage,
        instants: TimelineStore,
        opener: MetadataTableOpener | None = None,
    ) -> None:
        """Nothing is read before the first call.

        Args:
            storage: the data table's root.
            instants: the data table's timeline.
            opener: shared with readers of this process, so that each commit is read once.
        """
        self._storage, self._instants = storage, instants
        self._known: _Known | None = None
        self.opener = opener or MetadataTableOpener(storage)
        self.is_kept = False

    def on_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        """Add the files of a commit, and what their columns hold.

        Raises:
            Fenced: the instant was rolled back meanwhile.
            Refused: the table was taken to another version since it was opened.
            MetadataTableBehind: a metadata table that cannot be continued, and is kept.
            Unsupported: one that no start rebuilds; or a property of the table that appeared since
                it was opened does not allow the commit.
        """
        writes_rows = bool(metadata.write_stats) and not instant.action.is_table_service
        known = self._take(timeline, Purpose.WRITE if writes_rows else Purpose.MAINTAIN)
        if known is None:
            return
        self._compact_if_due(known, timeline, lambda: self._check_standing(instant))
        version = self._instants.version.column_statistics
        if _COLUMNS in known.partitions:
            metadata = self._with_ranges(metadata)
        stats = [stat for stat in metadata.write_stats if stat.path]
        changes = {_FILES: _files_added(stats)}
        of_files = _ranges_of(stats) if _COLUMNS in known.partitions else []
        if _PARTITIONS in known.partitions:
            carried = self._carry(known, (instant, metadata), timeline)
            of_files += carried.read
            of_partitions = [RangesOf(path, "", one) for path, one in carried.ranges.items()]
            of_partitions += self._without_new_columns(known, carried.ranges, timeline)
            written = partition_statistics(of_partitions, version)
            gone = deleted_partition_statistics(known.columns, carried.emptied)
            changes[_PARTITIONS] = RecordChanges.united([written, gone])
            known.ranges.update(carried.ranges)
        if _COLUMNS in known.partitions:
            changes[_COLUMNS] = column_statistics(of_files, version)
            self._define(known, of_files, lambda: self._check_standing(instant))
        known.store.commit(instant, changes, lambda: self._check_standing(instant))
        known.committed |= {*known.columns} & {*_columns_of(one.ranges for one in of_files).names}
        known.paths |= {stat.partition_path or "" for stat in stats}
        self._give_back(known, instant)

    def on_clean(
        self, instant: Instant, deleted: Mapping[str, Sequence[str]], timeline: Timeline
    ) -> None:
        """Take deleted files out.

        Errors as for ``on_commit``.
        """
        known = self._take(timeline)
        if known is None:
            return
        gone = {path: _data_files(path, names) for path, names in deleted.items()}
        files = [FilesOfPartition(path, removed=names) for path, names in gone.items() if names]
        changes = {_FILES: encode_files(files)} if files else {}
        if _COLUMNS in known.partitions:
            places = [(path, name) for path, names in gone.items() for name in names]
            changes[_COLUMNS] = deleted_column_statistics(known.columns, places)
        known.store.commit(instant, changes, lambda: self._check_standing(instant))
        self._give_back(known, instant)

    def on_rollback(
        self,
        target: str,
        deleted: Mapping[str, Sequence[str]],
        timeline: Timeline,
        check_lease: Callable[[], None],
    ) -> None:
        """Undo what the metadata table was told of an instant.

        What was compacted into its base files cannot be taken out for good: statistics of the files
        stay. Then the metadata table is dropped, as it is when nobody can tell, for lack of files;
        whoever writes next makes it anew.
        """
        self._known = None
        properties = read_properties(self._storage)
        if not properties.metadata_partitions:
            return
        try:
            self._open_store().undo(target, check_lease)
        except TableNotFound:
            return  # it is gone
        metadata = self._open(properties, timeline)
        if metadata.difference(_FILES) is not None or _may_list(metadata, deleted):
            drop(self._storage, properties, check_lease)

    def was_told(self, requested_at: str) -> bool:
        """Whether the metadata table has a completed commit of that time."""
        if not read_properties(self._storage).metadata_partitions:
            return False
        try:
            own = self.opener.instants(self._instants.clock).load()
        except TableNotFound:
            return False
        found = own.find(requested_at)
        return found is not None and found.is_completed

    def compact(self, timeline: Timeline, check_lease: Callable[[], None]) -> None:
        """Compact when enough was told since; errors as for ``on_commit``.

        Args:
            timeline: the data table's, just loaded, under its lock.
            check_lease: raises when the lock was lost.
        """
        known = self._take(timeline)
        if known is not None:
            self._compact_if_due(known, timeline, check_lease)
            self._known = known

    def trouble(self, timeline: Timeline, schema: pa.Schema) -> str | None:
        """Why the metadata table has to be made anew; None when it may be continued.

        Args:
            timeline: the data table's, just loaded.
            schema: the data table's.

        Raises:
            Refused: the table was taken to another version since it was opened.
            Unsupported: it has partitions that are not written here.
        """
        properties = check_same_version(self._storage, self._instants.version)
        check_allows(properties, Purpose.MAINTAIN, self._storage.location.url)
        if not properties.metadata_partitions:
            return "there is none"
        reason = self._trouble(timeline) or self._other_columns(schema)
        return reason or self._difference(self._open(properties, timeline))

    def _other_columns(self, schema: pa.Schema) -> str | None:
        """Of which column only some files would have statistics from here on; None for none.

        Apache Hudi keeps statistics of the columns that each of its writers is told to.
        """
        definition = read_definitions(self._storage).get(_COLUMNS)
        if definition is None:
            return None
        kept = indexed_columns(schema, self._instants.version)
        told = [n for n in definition.source_fields if n.partition(".")[0] in schema.names]
        lacking = [name for name in kept if name not in told]
        if lacking:
            return f"it has no statistics of column {lacking[0]}"
        other = [name for name in told if name not in kept]
        return f"it has statistics of column {other[0]}, which are not kept here" if other else None

    @property
    def timeline(self) -> Timeline | None:
        """The metadata table's, as our own commits know it; None when it is not known."""
        return self._known.store.timeline if self._known else None

    def note_upkeep(self, timeline: Timeline) -> None:
        """Go on from the metadata table's timeline as its cleaning and archival left it."""
        if self._known:
            self._known.store.timeline = timeline
            self._known.store.instants.forget_commits(timeline)

    @property
    def compacted_at(self) -> str | None:
        """When the metadata table was compacted last, "" for never; None when it is not known."""
        return last_compaction(self._known.store.timeline) if self._known else None

    def forget(self) -> None:
        """Read everything again at the next call: the metadata table was made anew."""
        self._known = None

    def _take(self, timeline: Timeline, purpose: Purpose = Purpose.MAINTAIN) -> _Known | None:
        """What is known, as of the timeline; nothing until it is given back: a call may fail."""
        known, self._known = self._known, None
        properties = check_same_version(self._storage, self._instants.version)
        check_allows(properties, purpose, self._storage.location.url)
        partitions = frozenset(properties.metadata_partitions)
        if not partitions:
            return None
        completed = {i.requested_at for i in timeline.instants if i.is_completed}
        made = self._storage.head(f"{METADATA_FOLDER}/{PROPERTIES_PATH}")
        is_known = known is not None and (known.made, known.partitions) == (made, partitions)
        if known is None or not is_known or completed - known.told:
            known = self._load(properties, made, timeline, completed)
        return known

    def _give_back(self, known: _Known, instant: Instant) -> None:
        known.told.add(instant.requested_at)
        self._known = known

    def _load(
        self,
        properties: TableProperties,
        made: ObjectInfo | None,
        timeline: Timeline,
        completed: set[str],
    ) -> _Known:
        reason = self._trouble(timeline)
        if reason is not None:
            raise self._refusal(reason)
        metadata = self._open(properties, timeline)
        self._check_files(metadata, _FILES)
        try:
            paths = set(MetadataFileLister(metadata).list_partitions())
        except CorruptData as error:
            raise self._refusal(str(error)) from error
        definition = read_definitions(self._storage).get(_COLUMNS)
        defined = list(definition.source_fields) if definition else []
        return _Known(
            self._open_store(),
            made,
            frozenset(properties.metadata_partitions),
            completed,
            defined,
            self._committed(defined, properties, timeline),
            paths,
        )

    def _committed(
        self, defined: Iterable[str], properties: TableProperties, timeline: Timeline
    ) -> set[str]:
        """Those of the columns that the newest completed commit with a schema has.

        All of them when no active commit has a schema.
        """
        for instant in reversed(timeline.completed(*COMMITS)):
            text = self._instants.read_commit(instant).extra_metadata.get(keys.SCHEMA)
            if text:
                names = set(table_schema(json.loads(text), properties).names)
                return {name for name in defined if name.partition(".")[0] in names}
        return set(defined)

    def _trouble(self, timeline: Timeline) -> str | None:
        try:
            store = self._open_store()
        except TableNotFound:
            return f"{METADATA_FOLDER} is not there"
        definition = read_definitions(self._storage).get(_COLUMNS)
        wanted = self._instants.version.column_statistics
        if definition is not None and definition.version != wanted:
            return f"its column statistics are of version {definition.version}, not {wanted}"
        return disagreement(timeline, store.timeline)

    def _difference(self, metadata: MetadataTable) -> str | None:
        """What is wrong with the files of a metadata table; ``files`` is read for that."""
        found = (metadata.difference(one) for one in sorted(metadata.partitions))
        reason = next((one for one in found if one is not None), None)
        return reason or _unreadable(metadata)

    def _check_files(self, metadata: MetadataTable, *partitions: str) -> None:
        for partition in metadata.partitions.intersection(partitions):
            reason = metadata.difference(partition)
            if reason is not None:
                raise self._refusal(reason)

    def _compact_if_due(
        self, known: _Known, timeline: Timeline, check_standing: Callable[[], None]
    ) -> None:
        try:
            compact_if_due(known.store, timeline, check_standing)
        except (FilesDiffer, CorruptData) as error:
            raise self._refusal(str(error)) from error

    def _refusal(self, reason: str) -> MetadataTableBehind | Unsupported:
        place = self._storage.location.url
        what = f"the metadata table of {place} cannot be continued: {reason}"
        if self.is_kept:
            return MetadataTableBehind(f"{what}; the next start makes it anew")
        remedy = f"make it anew with lakemark table validate {place} --rebuild"
        return Unsupported(f"{what}; {remedy}")

    def _open(self, properties: TableProperties, timeline: Timeline) -> MetadataTable:
        metadata = self.opener.open(properties, timeline, self._instants.clock)
        assert metadata is not None, properties
        return metadata

    def _open_store(self) -> MetadataStore:
        """The metadata table as it is now.

        Raises:
            TableNotFound: it is gone.
        """
        instants = self.opener.instants(self._instants.clock)
        own = FolderStorage(self._storage, METADATA_FOLDER)
        return MetadataStore(own, instants, instants.load())

    def _with_ranges(self, commit: CommitMetadata) -> CommitMetadata:
        """The commit with what its files hold; those are read that nobody asked that of.

        Their writer began before there was a metadata table.
        """
        if all(stat.column_ranges is not None for stat in commit.write_stats if stat.path):
            return commit
        avro_schema = json.loads(commit.extra_metadata[keys.SCHEMA])
        schema = table_schema(avro_schema, read_properties(self._storage))
        names = indexed_columns(schema, self._instants.version)
        columns = pa.schema([schema.field(name) for name in names])
        stats = (_with_ranges(self._storage, stat, columns) for stat in commit.write_stats)
        return replace(commit, write_stats=tuple(stats))

    def _carry(
        self, known: _Known, commit: tuple[Instant, CommitMetadata], timeline: Timeline
    ) -> _Carried:
        """What is known of the partitions that a commit touches, its files among theirs."""
        files = _ranges_by_partition(commit[1])
        before = self._before(known, commit, timeline, files)
        now = {
            path: ColumnRanges.united([*_if_any(before.ranges.get(path)), *ranges])
            for path, ranges in files.items()
        }
        losing = partitions_that_lose_files(commit[1]) & known.paths
        return _Carried(now, before.read, [path for path in losing if not now[path].columns])

    def _before(
        self,
        known: _Known,
        commit: tuple[Instant, CommitMetadata],
        timeline: Timeline,
        files: Mapping[str, Sequence[ColumnRanges]],
    ) -> Remaining:
        """What is known of these partitions, beside the commit's own files in them.

        It is carried on where every column of the commit is in it. It is made anew where the commit
        takes files away, where it may be outdated, and where a column is new: files of others may
        have values of it.
        """
        columns = _columns_of(one for ranges in files.values() for one in ranges)
        losing = partitions_that_lose_files(commit[1])
        kept = {path: one for path, one in known.ranges.items() if path in files.keys() - losing}
        kept = _with_all(columns, kept)
        unread = sorted((files.keys() & known.paths) - kept.keys())
        if not unread:
            return Remaining(kept, [])
        metadata = self._open(read_properties(self._storage), timeline)
        self._check_files(metadata, _FILES, _COLUMNS, _PARTITIONS)
        view = view_of(metadata, self._instants, timeline, unread)
        told = [
            path
            for path in unread
            if path not in losing and not is_outdated(view.latest_slices(path), timeline)
        ]
        kept |= _with_all(columns, PartitionStatistics(metadata).ranges(told, columns))
        anew = [path for path in unread if path not in kept]
        left = remaining_ranges(
            metadata, self._storage, self._instants, view, commit, anew, columns
        )
        return Remaining(kept | left.ranges, left.read)

    def _without_new_columns(
        self, known: _Known, carried: Mapping[str, ColumnRanges], timeline: Timeline
    ) -> list[RangesOf]:
        """All other partitions where the commit has a column that is new in the table: no values.

        Without that Apache Hudi finds none of their rows once a filter is on the column, whatever
        it says.
        """
        columns = _columns_of(carried.values())
        new = pa.schema([field for field in columns if field.name not in known.committed])
        others = known.paths - carried.keys()
        if not (known.columns and len(new) and others):
            return []
        metadata = self._open(read_properties(self._storage), timeline)
        self._check_files(metadata, _PARTITIONS)
        told = PartitionStatistics(metadata)
        have = {f.name: _partitions_of(told, f) for f in new if f.name in known.columns}
        rows = told.of_column(RECORD_KEY, pa.string()).to_pylist()
        counts = {row["partition_path"]: row["value_count"] or 0 for row in rows}
        return [
            RangesOf(path, "", ColumnRanges.of_nulls(lacking, counts[path]))
            for path in sorted(others & counts.keys())
            if (lacking := _without(new, path, have))
        ]

    def _define(
        self, known: _Known, of_files: Iterable[RangesOf], check_standing: Callable[[], None]
    ) -> None:
        """Say of which columns there are statistics, once there are new ones."""
        written = _columns_of(one.ranges for one in of_files).names
        new = [name for name in written if name not in known.columns]
        if new:
            known.columns += new
            version = self._instants.version.column_statistics
            check_standing()
            define_column_statistics(self._storage, known.columns, version)

    def _check_standing(self, instant: Instant) -> None:
        if not self._instants.is_prepared(instant):
            raise Fenced(instant.requested_at, "its prepared content was removed by a rollback")


def _partitions_of(statistics: PartitionStatistics, field: pa.Field) -> set[str]:
    """Partitions that have a record of a column."""
    return {*statistics.of_column(field.name, field.type)["partition_path"].to_pylist()}


def _without(columns: pa.Schema, path: str, have: Mapping[str, Collection[str]]) -> pa.Schema:
    """The columns of which a partition has no record."""
    return pa.schema([f for f in columns if path not in have.get(f.name, ())])


def _files_added(stats: Iterable[WriteStat]) -> RecordChanges:
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    for stat in stats:
        written = {stat.path or "": stat.file_size_in_bytes, **(stat.cdc_stats or {})}
        for path, size_bytes in written.items():
            sizes[stat.partition_path or ""][path.rpartition("/")[2]] = size_bytes
    files = [FilesOfPartition(path, named) for path, named in sizes.items()]
    return encode_files(files, sizes)


def _ranges_of(stats: Iterable[WriteStat]) -> list[RangesOf]:
    return [
        RangesOf(stat.partition_path or "", (stat.path or "").rpartition("/")[2], _ranges(stat))
        for stat in stats
    ]


def _with_ranges(storage: Storage, stat: WriteStat, columns: pa.Schema) -> WriteStat:
    path, name = stat.partition_path or "", (stat.path or "").rpartition("/")[2]
    file = data_file(path, name, stat.file_size_in_bytes)
    if stat.column_ranges is not None or file is None:
        return stat
    return replace(stat, column_ranges=ranges_in(storage, file, columns))


def _ranges(stat: WriteStat) -> ColumnRanges:
    assert stat.column_ranges is not None, stat.path
    return stat.column_ranges


def _ranges_by_partition(commit: CommitMetadata) -> dict[str, list[ColumnRanges]]:
    """Those of the files of a commit."""
    files: dict[str, list[ColumnRanges]] = defaultdict(list)
    for stat in commit.write_stats:
        if stat.path:
            files[stat.partition_path or ""].append(_ranges(stat))
    return files


def _with_all(columns: pa.Schema, ranges: Mapping[str, ColumnRanges]) -> dict[str, ColumnRanges]:
    """Those of partitions of which each of these columns is known."""
    wanted = {*columns.names}
    return {path: one for path, one in ranges.items() if wanted <= {*one.columns}}


def _if_any(ranges: ColumnRanges | None) -> list[ColumnRanges]:
    return [] if ranges is None else [ranges]


def _columns_of(ranges: Iterable[ColumnRanges]) -> pa.Schema:
    """All columns of which something is known, with their types."""
    fields = {f.name: f for one in ranges for f in one.bounds.schema}
    return pa.schema(list(fields.values()))


def _data_files(partition_path: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if data_file(partition_path, name, 0) is not None})


def _unreadable(metadata: MetadataTable) -> str | None:
    """What is wrong inside the files of the partition ``files``; None when they can be read."""
    try:
        MetadataFileLister(metadata).list_partitions()
    except CorruptData as error:
        return str(error)
    return None


def _may_list(metadata: MetadataTable, files: Mapping[str, Iterable[str]]) -> bool:
    try:
        listed = MetadataFileLister(metadata).list_some(files)
    except CorruptData:
        return True
    return any(
        str(file.name) in set(names) for path, names in files.items() for file in listed[path]
    )
