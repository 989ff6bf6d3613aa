"""What is left of a partition's statistics once a commit took files out of sight.

Statistics of a partition are those of the files that queries read. A commit that only adds files
widens them. One that takes the place of files, as a compaction does, ends what these held, so the
statistics of the files that stay are read, and where a file has none of a column, the file itself.
Source: ``convertMetadataToPartitionStatRecords`` of ``HoodieTableMetadataUtil``, Apache Hudi 1.2.0,
which reads them at every commit, and treats a file without statistics as one without values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from lakemark.metadata.column_stats.file_ranges import ranges_in
from lakemark.metadata.column_stats.lookup import ColumnStatistics
from lakemark.metadata.column_stats.partition_records import RangesOf
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileSlice, LogFile
from lakemark.model.instant import Instant
from lakemark.storage.storage import Storage
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.view_loader import load_view

#: Completes later than all else.
_LAST = "9" * 17


def partitions_that_lose_files(commit: CommitMetadata) -> set[str]:
    """Partitions in which a commit takes files out of the newest slices: it has a new base file."""
    return {
        stat.partition_path or ""
        for stat in commit.write_stats
        if stat.prev_commit not in (None, "null") and not _is_log(stat.path or "")
    }


def view_of(
    metadata: MetadataTable,
    instants: TimelineStore,
    timeline: Timeline,
    partitions: Collection[str],
) -> FileSystemView:
    """The view of some partitions.

    Args:
        metadata: the metadata table, as of ``timeline``.
        instants: reads the data table's instants.
        timeline: the data table's, just loaded, under its lock.
        partitions: their paths.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: the metadata table, or an instant, cannot be
            read.
    """
    lister = _SomePartitions(MetadataFileLister(metadata), partitions)
    return load_view(instants, timeline, lister, instants.version)


def is_outdated(slices: Sequence[FileSlice], timeline: Timeline) -> bool:
    """Whether the statistics of a partition may not be those of the files that queries read.

    The record of the commit that was requested last stands, Apache Hudi's, too. So it does not tell
    of a commit that was requested before that one and completed after it.

    Args:
        slices: the newest ones of the partition.
        timeline: the data table's.
    """
    return _is_any_late(files_of(slices), slices, timeline)


def may_be_wide(slices: Sequence[FileSlice], timeline: Timeline) -> bool:
    """Whether they may tell of files that queries no longer read, too: a compaction is late so.

    Args: as for ``is_outdated``.
    """
    bases = (one.base for one in slices if one.base is not None)
    return _is_any_late(bases, slices, timeline)


class Remaining(NamedTuple):
    """What is left of some partitions.

    Attributes:
        ranges: by partition path; none of a partition that has no other file.
        read: of files that had no statistics of some column: what was read in them.
    """

    ranges: dict[str, ColumnRanges]
    read: list[RangesOf]


def remaining_ranges(
    metadata: MetadataTable,
    storage: Storage,
    instants: TimelineStore,
    view: FileSystemView,
    commit: tuple[Instant, CommitMetadata],
    partitions: Collection[str],
    columns: pa.Schema,
) -> Remaining:
    """What the files hold that queries read beside a commit's own.

    Args:
        metadata: the metadata table, with statistics of files.
        storage: the data table's root.
        instants: reads the data table's instants.
        view: of these partitions at least, under the data table's lock.
        commit: about to be published.
        partitions: paths of those that are asked for.
        columns: those that are asked for, with their types.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: as ``view_of``; or a file cannot be read.
    """
    instant, content = commit
    after = view.with_commit(instant.completed(_LAST), content)
    own = {stat.path for stat in content.write_stats}
    left: dict[str, dict[str, DataFile]] = {}
    for path in partitions:
        for file in files_of(after.latest_slices(path)):
            if file.path not in own and not _holds_no_rows(file, instants, view.timeline):
                left.setdefault(path, {})[str(file.name)] = file
    told = ColumnStatistics(metadata).ranges(left, columns)
    read = []
    for (path, name), untold in told.untold.items():
        schema = pa.schema([columns.field(column) for column in untold])
        read.append(RangesOf(path, name, _read(storage, left[path][name], schema)))
    ranges = dict(told.ranges)
    for one in read:
        ranges[one.partition_path] = ColumnRanges.united([ranges[one.partition_path], one.ranges])
    return Remaining(ranges, read)


def _read(storage: Storage, file: DataFile, schema: pa.Schema) -> ColumnRanges:
    """What a file holds; of a column that it does not have, no value, so that it is asked once."""
    found = ranges_in(storage, file, schema)
    whole = ColumnRanges.united([ColumnRanges.of_nulls(schema, 0), found])
    return replace(whole, sizes=found.sizes)


def files_of(slices: Iterable[FileSlice]) -> Iterator[DataFile]:
    """The files that a query reads."""
    for one in slices:
        if one.base is not None:
            yield one.base
        yield from one.logs


@dataclass(frozen=True)
class _SomePartitions:
    """Lists these partitions and no others."""

    lister: MetadataFileLister
    partitions: Collection[str]

    def list_files(self) -> Mapping[str, list[DataFile]]:
        return self.lister.list_some(self.partitions)


def _holds_no_rows(file: DataFile, instants: TimelineStore, timeline: Timeline) -> bool:
    """Whether a log is known to hold deletes alone, of which there are no statistics."""
    if not isinstance(file, LogFile):
        return False
    instant = timeline.find(file.name.instant)
    if instant is None or not instant.is_completed:
        return False
    stats = instants.read_commit(instant).write_stats
    return any(stat.path == file.path and stat.num_writes == 0 for stat in stats)


def _is_any_late(
    files: Iterable[DataFile], slices: Sequence[FileSlice], timeline: Timeline
) -> bool:
    """Whether one of the files came into sight after the commit that was requested last."""
    newest = max((file.name.instant for file in files_of(slices)), default="")
    until = _completed_at(newest, timeline)
    return any(_completed_at(file.name.instant, timeline) > until for file in files)


def _completed_at(name: str, timeline: Timeline) -> str:
    """When an instant completed; of an archived one, which is older than all others, its name."""
    found = timeline.find(name)
    return (found and found.completed_at) or name


def _is_log(path: str) -> bool:
    return LogFileName.parse(path.rpartition("/")[2]) is not None
