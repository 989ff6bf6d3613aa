"""File slices of a table in one state of its timeline.

A view is a value: a change to the table creates a new view from the metadata of the commit. So a
writer lists data folders only once, when it opens the table. Both views share the groups that the
commit did not change. A completed instant changes only the groups in its metadata, because none of
its files was visible before.
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
        timeline: decides which files are visible.
        groups: every file group that has a file, visible or not.
        partitions: partitions with a metafile, including empty ones.
        replaced: replaced groups, each with the instant that replaced it.
        compactions: groups in a pending compaction, each with the instant of the compaction.
        clusterings: groups in a pending clustering, each with the instant of the clustering. They
            are read as usual until the clustering completes.
        version: the table's; decides which logs belong to a slice.
        until: the view shows the table as of this instant; None for the latest state.
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
        """Return the view of a listing.

        Args:
            files: the listing of a ``FileLister``, made after the timeline was loaded. Then a
                commit that completes in between is missing entirely, rather than partly.
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
        """Return the table as of an instant (time travel).

        Slices, logs and replacements that were requested later are hidden, even if they completed
        earlier (``getLatestMergedFileSlicesBeforeOrOn``). The view is for readers only: commits
        cannot be added. ``lakemark.view.retention`` checks whether the state still exists.
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
        """Which blocks of the slices' logs are visible; a reader of a slice needs it."""
        return VisibleInstants.of(self.timeline, self.version, self.until)

    def latest_slices(self, partition: str | None = None) -> list[FileSlice]:
        """Return the slices of a snapshot query, in one partition or in all of them."""
        return self._slices(lambda group: group.for_readers, partition)

    def slices_for_writing(self, partition: str | None = None) -> list[FileSlice]:
        """The newest slice of every group as it is; empty if a pending compaction opened it."""
        return self._slices(lambda group: group.for_writers, partition)

    def read_optimized(self, partition: str | None = None) -> list[FileSlice]:
        """Return the newest base file of every group that has one."""
        return self._slices(lambda group: group.read_optimized, partition)

    def file_groups(self, partition: str | None = None) -> list[FileGroup]:
        """Visible file groups, in one partition or in all of them, by name."""
        if partition is not None:
            return list(self._by_partition.get(partition, ()))
        return [group for name in sorted(self._by_partition) for group in self._by_partition[name]]

    def files(self, partition: str) -> list[DataFile]:
        """All files of the visible groups of a partition, including those of pending instants."""
        groups = self.file_groups(partition)
        return [file for group in groups for file in group.files.values()]

    def find_file(self, path: str) -> DataFile | None:
        """Return the data file at a path, visible or replaced; None if it was removed."""
        folder, _, name = path.rpartition("/")
        named = data_file(folder, name, size_bytes=0)
        group = named and self.groups.get(FileGroupId(folder, named.name.file_id))
        return group.files.get(name) if group else None

    def replaced_groups(self) -> list[FileGroup]:
        """Replaced file groups whose files have not been removed yet, by name."""
        return [self.groups[name] for name in sorted(self.groups.keys() & self.replaced.keys())]

    def with_commit(self, instant: Instant, metadata: CommitMetadata) -> FileSystemView:
        """Return the view after that instant has completed.

        Args:
            instant: the completed instant.
            metadata: its metadata, with a write stat for every file that became visible.

        Raises:
            CorruptData: a write stat does not name a data file.
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
        """Return the view after that compaction was requested."""
        planned = {operation.group: instant for operation in plan.operations}
        view = replace(self, compactions={**self.compactions, **planned})
        return view._with_files((), also=planned)

    def without_files(self, paths: Iterable[str]) -> FileSystemView:
        """Return the view after these files (paths from the root) were cleaned or rolled back."""
        removed = frozenset(paths)
        groups = dict(self.groups)
        for name in _groups_of(removed) & groups.keys():
            remaining = [file for file in groups[name].files.values() if file.path not in removed]
            if remaining:
                groups[name] = self._group(name, remaining)
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
        """The view with more files; slices their groups again, and the groups in ``also``."""
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
    """Return the file groups of data files, from their names."""
    split = (path.rpartition("/") for path in paths)
    files = (data_file(folder, name, 0) for folder, _, name in split)
    return {FileGroupId(file.partition_path, file.name.file_id) for file in files if file}


def _written_file(instant: Instant, stat: WriteStat) -> DataFile:
    folder, _, name = (stat.path or "").rpartition("/")
    file = data_file(folder, name, stat.file_size_in_bytes)
    if file is None:
        raise CorruptData(str(instant), None, "write stats that name data files", repr(stat.path))
    return file
