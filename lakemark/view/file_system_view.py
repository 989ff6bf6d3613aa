"""File slices of a table at one moment of its timeline.

A view is a value: a change to the table gives a new one, made from the commit's own metadata, so
that a writer lists data folders once, when it opens the table. Groups that a commit did not touch
are shared between the views: a completed instant changes only the groups that it names, since no
file of it was visible before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from lakemark.errors import CorruptData
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_group import FileGroup
from lakemark.view.file_lister import DataFile, data_file
from lakemark.view.visible_instants import VisibleInstants


@dataclass(frozen=True)
class FileSystemView:
    """The file groups of a table, as its timeline shows them.

    Attributes:
        timeline: decides which files are there.
        groups: every file group of which there is a file, visible or not.
        partitions: partitions that have their metafile, also empty ones.
        replaced: groups taken out of sight, and the instant that did it.
        compactions: groups that a pending compaction is to rewrite, and its instant.
        clusterings: groups that a pending clustering is to replace, and its instant; until it
            completes they are read as ever.
        version: the table's; decides which logs a slice has.
        until: the instant that the view shows the table as of; None for the latest state.
    """

    timeline: Timeline
    groups: Mapping[FileGroupId, FileGroup] = field(default_factory=dict)
    partitions: frozenset[str] = frozenset()
    replaced: Mapping[FileGroupId, str] = field(default_factory=dict)
    compactions: Mapping[FileGroupId, str] = field(default_factory=dict)
    clusterings: Mapping[FileGroupId, str] = field(default_factory=dict)
    version: FormatVersion = FormatVersion.V9
    until: str | None = None

    @classmethod
    def of(
        cls,
        files: Mapping[str, Iterable[DataFile]],
        timeline: Timeline,
        pending_compactions: Mapping[str, CompactionPlan] | None = None,
        replacements: Mapping[str, CommitMetadata] | None = None,
        pending_clusterings: Mapping[str, ClusteringPlan] | None = None,
        version: FormatVersion = FormatVersion.V9,
    ) -> FileSystemView:
        """The view of a listing.

        Args:
            files: what a ``FileLister`` listed, after the timeline was: what completed in between
                is then not yet there, rather than there in part.
            timeline: the active timeline.
            pending_compactions: plans of the pending compactions, by instant.
            replacements: metadata of the completed replace commits, by instant.
            pending_clusterings: plans of the pending clusterings, by instant.
            version: the table's.
        """
        view = cls(
            timeline,
            partitions=frozenset(files),
            clusterings={
                group: instant
                for instant, clustering in (pending_clusterings or {}).items()
                for group in clustering.groups
            },
            version=version,
        )
        for instant, plan in (pending_compactions or {}).items():
            view = view.with_compaction_plan(instant, plan)
        for instant, metadata in sorted((replacements or {}).items(), key=lambda pair: pair[0]):
            view = replace(view, replaced={**_replaced_by(instant, metadata), **view.replaced})
        return view._with_files(file for listed in files.values() for file in listed)

    def as_of(self, instant: str) -> FileSystemView:
        """The table as it was when the instant was the newest one (time travel).

        Slices, logs and replacements of instants requested later are out of sight, whenever they
        completed (``getLatestMergedFileSlicesBeforeOrOn``). A view for readers: it takes no new
        commits. Whether the past is still there, ``time_travel.check_retained`` tells.
        """
        groups = {name: group.as_of(instant, self.version) for name, group in self.groups.items()}
        return replace(
            self,
            groups={name: group for name, group in groups.items() if group.slices},
            replaced={name: at for name, at in self.replaced.items() if at <= instant},
            until=instant,
        )

    @property
    def visible_instants(self) -> VisibleInstants:
        """Which blocks of the slices' logs count; a reader of a slice needs it."""
        return VisibleInstants.of(self.timeline, self.version, self.until)

    def latest_slices(self, partition: str | None = None) -> list[FileSlice]:
        """What a snapshot query reads, in one partition or in all of them."""
        return self._slices(lambda group: group.for_readers, partition)

    def slices_for_writing(self, partition: str | None = None) -> list[FileSlice]:
        """The newest slice of every group as it is; empty where a pending compaction opened it."""
        return self._slices(lambda group: group.for_writers, partition)

    def read_optimized(self, partition: str | None = None) -> list[FileSlice]:
        """The newest base file of every group that has one."""
        return self._slices(lambda group: group.read_optimized, partition)

    def file_groups(self, partition: str | None = None) -> list[FileGroup]:
        """File groups in sight, in one partition or in all of them, by name."""
        if partition is not None:
            return list(self._by_partition.get(partition, ()))
        return [group for name in sorted(self._by_partition) for group in self._by_partition[name]]

    def files(self, partition: str) -> list[DataFile]:
        """All files of the visible groups of a partition, of pending instants, too."""
        groups = self.file_groups(partition)
        return [file for group in groups for file in group.files.values()]

    def replaced_groups(self) -> list[FileGroup]:
        """File groups out of sight whose files have not been removed yet, by name."""
        return [self.groups[name] for name in sorted(self.groups.keys() & self.replaced.keys())]

    def with_commit(self, instant: Instant, metadata: CommitMetadata) -> FileSystemView:
        """The view once that instant has completed.

        Args:
            instant: the completed instant.
            metadata: its metadata; every file that it made visible has a write stat.

        Raises:
            CorruptData: a write stat names no data file.
        """
        finished = {name for name, at in self.compactions.items() if at == instant.requested_at}
        view = replace(
            self,
            timeline=self.timeline.with_instant(instant),
            replaced={**_replaced_by(instant.requested_at, metadata), **self.replaced},
            clusterings={n: at for n, at in self.clusterings.items() if at != instant.requested_at},
            compactions={n: at for n, at in self.compactions.items() if n not in finished},
        )
        written = [_written_file(instant, stat) for stat in metadata.write_stats if stat.path]
        lost = self._lost_attempts(written)
        return (view.without_files(lost) if lost else view)._with_files(written, also=finished)

    def with_compaction_plan(self, instant: str, plan: CompactionPlan) -> FileSystemView:
        """The view once that compaction has been requested."""
        planned = {operation.group: instant for operation in plan.operations}
        view = replace(self, compactions={**self.compactions, **planned})
        return view._with_files((), also=planned)

    def without_files(self, paths: Iterable[str]) -> FileSystemView:
        """The view once these files (paths from the root) were cleaned or rolled back."""
        removed = frozenset(paths)
        groups = dict(self.groups)
        for name in _groups_of(removed) & groups.keys():
            kept = [file for file in groups[name].files.values() if file.path not in removed]
            if kept:
                groups[name] = self._group(name, kept)
            else:
                del groups[name]
        return replace(self, groups=groups)

    def _lost_attempts(self, written: Iterable[DataFile]) -> list[str]:
        """Base files with the instant and file id of one that a compaction has just completed.

        Other attempts at it wrote them (``lakemark.view.lost_attempts``). The view may have been
        listed before the attempt that completed deleted them.
        """
        bases = [file for file in written if isinstance(file, BaseFile)]
        return [
            other.path
            for base in bases
            for other in self._other_files(base)
            if isinstance(other, BaseFile) and other.name.instant == base.name.instant
        ]

    def _other_files(self, file: DataFile) -> Iterator[DataFile]:
        """Known files of a file's group, without itself."""
        group = self.groups.get(FileGroupId(file.partition_path, file.name.file_id))
        known = group.files.values() if group else ()
        return (other for other in known if other.path != file.path)

    def _with_files(
        self, files: Iterable[DataFile], also: Iterable[FileGroupId] = ()
    ) -> FileSystemView:
        """The view with more files; their groups, and the other ones named, are sliced anew."""
        added: dict[FileGroupId, list[DataFile]] = {name: [] for name in also}
        for file in files:
            name = FileGroupId(file.partition_path, file.name.file_id)
            added.setdefault(name, []).append(file)
        groups = dict(self.groups)
        for name, more in added.items():
            known = groups[name].files.values() if name in groups else ()
            groups[name] = self._group(name, [*known, *more])
        partitions = self.partitions | {name.partition_path for name in added}
        return replace(self, groups=groups, partitions=partitions)

    def _group(self, name: FileGroupId, files: Iterable[DataFile]) -> FileGroup:
        compaction = self.compactions.get(name)
        return FileGroup.of(name, files, self.timeline, self.version, compaction)

    def _slices(
        self, choose: Callable[[FileGroup], FileSlice | None], partition: str | None
    ) -> list[FileSlice]:
        chosen = map(choose, self.file_groups(partition))
        return [file_slice for file_slice in chosen if file_slice is not None]

    @cached_property
    def _by_partition(self) -> dict[str, list[FileGroup]]:
        grouped: dict[str, list[FileGroup]] = {}
        for group in self.groups.values():
            if not self.replaced or group.id not in self.replaced:
                grouped.setdefault(group.id.partition_path, []).append(group)
        for groups in grouped.values():
            groups.sort(key=lambda group: group.id.file_id)
        return grouped


def _replaced_by(instant: str, metadata: CommitMetadata) -> dict[FileGroupId, str]:
    return {
        FileGroupId(partition, file_id): instant
        for partition, file_ids in metadata.replaced_file_ids.items()
        for file_id in file_ids
    }


def _groups_of(paths: Iterable[str]) -> set[FileGroupId]:
    """The file groups that data files belong to, by their names."""
    split = (path.rpartition("/") for path in paths)
    files = (data_file(folder, name, 0) for folder, _, name in split)
    return {FileGroupId(file.partition_path, file.name.file_id) for file in files if file}


def _written_file(instant: Instant, stat: WriteStat) -> DataFile:
    folder, _, name = (stat.path or "").rpartition("/")
    file = data_file(folder, name, stat.file_size_in_bytes)
    if file is None:
        raise CorruptData(str(instant), None, "write stats that name data files", repr(stat.path))
    return file
