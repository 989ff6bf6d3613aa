"""Keeps the column ranges of the files of some partitions between the commits of one writer.

A commit that replaces files may narrow the statistics of a partition, so it needs the ranges of the
files that remain. If the writer keeps these ranges, such a commit reads neither the listing nor the
statistics of the partition from the metadata table.

The kept files must be those that queries read. They are, as long as all commits are those of this
writer, because ``WriterState`` is discarded if another writer has changed the table, and if an
instant of this writer has not completed or was undone. While a compaction is pending, new logs do
not belong to the newest slices that the view shows, so nothing is kept. The compaction that is
about to be published does not count: if no commit came between its plan and its end, the kept files
are those before it, and its base files replace the slices of their groups. Another attempt that
completes it instead writes the same rows to the same groups. Nothing is kept after a clustering:
its file groups have other ids in another attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakemark.metadata.column_stats.derive import FileRange, completed_at
from lakemark.model.action import Action
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.commit_metadata import CommitMetadata, Operation
from lakemark.model.file_slice import LogFile
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import data_file

#: The largest number of ranges, each of one column of one file. They take about 40 MB.
MAX_RANGES = 10_000


@dataclass
class KnownFiles:
    """The files that queries read in the partitions that a writer changed last.

    Attributes:
        max_ranges: the largest number of ranges that are kept.
    """

    max_ranges: int = MAX_RANGES
    _files: dict[str, list[FileRange]] = field(default_factory=dict, init=False)
    _as_of: str = field(default="", init=False)

    def forget_outdated(self, timeline: Timeline, instant: Instant) -> None:
        """Forget all files if the last commit did not complete, or if a compaction is pending.

        Args:
            timeline: the data table's timeline, just loaded under the table's lock.
            instant: the instant of the commit that is about to be published.
        """
        last = timeline.find(self._as_of)
        is_complete = last is not None and last.is_completed
        if not is_complete or _is_other_compaction_pending(timeline, instant):
            self._files.clear()

    def remaining(
        self,
        paths: Iterable[str],
        commit: tuple[Instant, CommitMetadata],
        timeline: Timeline,
        columns: pa.Schema,
    ) -> dict[str, list[ColumnRanges]]:
        """Return the ranges of the files that partitions keep after a commit, except its own.

        Args:
            paths: the paths of the partitions.
            commit: the commit that is about to be published.
            timeline: the data table's timeline, just loaded under the table's lock.
            columns: the columns, with their current types.

        Returns:
            The ranges of each file, by partition path. A partition is missing if the ranges of one
            of its files are not known.
        """
        written = _files_by_partition(commit[1])
        found = {path: self._kept(path, commit, written, timeline) for path in paths}
        return {
            path: [_select(one.ranges, columns) for one in kept]
            for path, kept in found.items()
            if kept is not None and all(_has(one.ranges, columns) for one in kept)
        }

    def add_derived(self, path: str, files: Sequence[FileRange]) -> None:
        """Add the files that a partition keeps after the commit that is about to be published."""
        self._files[path] = [*files]

    def add_new_partitions(self, paths: Iterable[str]) -> None:
        """Add partitions that have no file before the commit that is about to be published."""
        self._files.update((path, []) for path in paths)

    def add_commit(
        self, commit: tuple[Instant, CommitMetadata], timeline: Timeline, paths: Iterable[str]
    ) -> None:
        """Replace the files of these partitions as a commit does.

        Args:
            commit: the commit that is about to be published; its write stats have column ranges.
            timeline: the data table's timeline, just loaded under the table's lock.
            paths: the partitions that the commit changes.
        """
        instant, content = commit
        self._as_of = instant.requested_at
        if content.operation == Operation.CLUSTER or _is_other_compaction_pending(
            timeline, instant
        ):
            self._files.clear()
            return
        written = _files_by_partition(content)
        for path in paths:
            kept = self._kept(path, commit, written, timeline)
            self._files.pop(path, None)
            if kept is not None and path not in content.replaced_partitions:
                self._files[path] = [*kept, *written.get(path, ())]  # the newest is last
        self._evict()

    def _kept(
        self,
        path: str,
        commit: tuple[Instant, CommitMetadata],
        written: Mapping[str, Sequence[FileRange]],
        timeline: Timeline,
    ) -> list[FileRange] | None:
        """Return the files whose file groups a commit does not replace.

        If a file of a replaced group completed after the commit was requested, it may belong to the
        new slice of the group, so the result is None.
        """
        instant, content = commit
        files = self._files.get(path)
        if files is None:
            return None
        bases = (one.file for one in written.get(path, ()) if not isinstance(one.file, LogFile))
        groups = {*content.replaced_file_ids.get(path, ()), *(file.name.file_id for file in bases)}
        replaced = {one.file.name.instant for one in files if one.file.name.file_id in groups}
        if any(completed_at(name, timeline) >= instant.requested_at for name in replaced):
            return None
        return [one for one in files if one.file.name.file_id not in groups]

    def _evict(self) -> None:
        """Forget the partitions that were changed longest ago, if there are too many ranges."""
        counts = {path: _count_ranges(files) for path, files in self._files.items()}
        total = sum(counts.values())
        for path, count in counts.items():
            if total <= self.max_ranges:
                return
            del self._files[path]
            total -= count


def _is_other_compaction_pending(timeline: Timeline, instant: Instant) -> bool:
    """Return whether a compaction is pending other than the one that is about to be published."""
    if timeline.pending(Action.LOG_COMPACTION):
        return True
    planned = timeline.pending(Action.COMPACTION)
    return any(one.requested_at != instant.requested_at for one in planned)


def _files_by_partition(content: CommitMetadata) -> dict[str, list[FileRange]]:
    """Return the files of a commit by partition path, except logs that contain only deletes."""
    files: dict[str, list[FileRange]] = {}
    for stat in content.write_stats:
        if not stat.path:
            continue
        path = stat.partition_path or ""
        file = data_file(path, stat.path.rpartition("/")[2], stat.file_size_in_bytes)
        assert file is not None and stat.column_ranges is not None, stat.path
        if stat.num_writes or not isinstance(file, LogFile):
            files.setdefault(path, []).append(FileRange(file, stat.column_ranges))
    return files


def _has(ranges: ColumnRanges, columns: pa.Schema) -> bool:
    """Return whether there are ranges of all these columns, in their current types."""
    known = ranges.bounds.schema
    return all(
        (at := known.get_field_index(one.name)) >= 0 and known.field(at).type == one.type
        for one in columns
    )


def _select(ranges: ColumnRanges, columns: pa.Schema) -> ColumnRanges:
    return ranges if len(ranges.columns) == len(columns) else ranges.select(columns.names)


def _count_ranges(files: Iterable[FileRange]) -> int:
    return sum(len(one.ranges.columns) for one in files)
