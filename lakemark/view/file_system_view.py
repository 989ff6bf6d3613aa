"""The file slices of a table as of one state of its timeline.

A view is immutable. After a commit, a new view is created from the old view and the metadata of the
commit. So a writer lists the table's folders only once, when it opens the table. The new view
shares all unchanged file groups with the old view. Only the groups in the commit's metadata have
changed, because no other file becomes visible by the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from lakemark.errors import CorruptData
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_group import FileGroup
from lakemark.view.file_lister import DataFile, data_file
from lakemark.view.lost_attempts import names_instant, slot_of
from lakemark.view.visible_instants import VisibleInstants


@dataclass(frozen=True)
class FileSystemView:
    """The file groups of a table as of one state of its timeline.

    Attributes:
        timeline: the timeline, which decides which files are visible.
        groups: every file group that has a file, visible or not.
        partitions: partition paths, including those of empty partitions.
        replaced: replaced file groups, each with the instant that replaced it.
        compactions: file groups in a pending compaction, each with the instant of the compaction.
        clusterings: file groups in a pending clustering, each with the instant of the clustering.
            Queries read these groups until the clustering completes.
        unpublished: file groups that a pending clustering will write, each with the instant of the
            clustering. Commits may write logs to them before that, with rows that they also write
            to the replaced groups (``lakemark.write.log_copies``). Queries skip these file groups.
        version: version of the table, which decides to which slice a log belongs.
        until: instant of a time travel view; None for the latest state.
    """

    timeline: Timeline
    groups: Mapping[FileGroupId, FileGroup] = field(default_factory=dict)
    partitions: frozenset[str] = frozenset()
    replaced: Mapping[FileGroupId, str] = field(default_factory=dict)
    compactions: Mapping[FileGroupId, str] = field(default_factory=dict)
    clusterings: Mapping[FileGroupId, str] = field(default_factory=dict)
    unpublished: Mapping[FileGroupId, str] = field(default_factory=dict)
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
            files: the listing of a ``FileLister``. The files must be listed after the timeline was
                loaded. Then no file of a commit that completes in between is visible.
            timeline: the active timeline.
            pending_compactions: plans of the pending compactions, by instant.
            replacements: metadata of the completed replace commits, by instant.
            pending_clusterings: plans of the pending clusterings, by instant.
            version: version of the table.
        """
        view = cls(timeline, partitions=frozenset(files), version=version)
        for instant, clustering in (pending_clusterings or {}).items():
            view = view.with_clustering_plan(instant, clustering)
        for instant, plan in (pending_compactions or {}).items():
            view = view.with_compaction_plan(instant, plan)
        for instant, metadata in sorted((replacements or {}).items(), key=lambda pair: pair[0]):
            view = replace(view, replaced={**_replaced_by(instant, metadata), **view.replaced})
        return view._with_files(file for listed in files.values() for file in listed)

    def as_of(self, instant: str) -> FileSystemView:
        """Return a view of the table as of an instant (time travel).

        Slices, logs and replacements that were requested later than the instant are hidden, even if
        they completed earlier (``getLatestMergedFileSlicesBeforeOrOn``). The view is only for
        readers, so ``with_commit`` must not be called. Cleaning may have deleted files of the view;
        ``lakemark.view.retention`` checks this.
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
        """The visible instants, by which readers of the slices select log blocks."""
        return VisibleInstants.of(self.timeline, self.version, self.until)

    def latest_slices(self, partition: str | None = None) -> list[FileSlice]:
        """Return the file slices for a snapshot query, in one partition or in all partitions."""
        return self._slices(lambda group: group.for_readers, partition)

    def slices_for_writing(self, partition: str | None = None) -> list[FileSlice]:
        """Return the newest slice of every group, in one partition or in all partitions.

        If a pending compaction has opened the newest slice, this slice may have no files.
        """
        return self._slices(lambda group: group.for_writers, partition)

    def read_optimized(self, partition: str | None = None) -> list[FileSlice]:
        """Return a slice with only the newest base file for every group that has a base file."""
        return self._slices(lambda group: group.read_optimized, partition)

    def file_groups(self, partition: str | None = None) -> list[FileGroup]:
        """Return the file groups that are not replaced, sorted by partition and file id.

        File groups that a pending clustering will write are not returned either.

        Args:
            partition: return only groups in this partition; None for all partitions.
        """
        if partition is not None:
            return list(self._by_partition.get(partition, ()))
        return [group for name in sorted(self._by_partition) for group in self._by_partition[name]]

    def files(self, partition: str) -> list[DataFile]:
        """Return all files of a partition, including files of pending instants.

        Files of replaced file groups are not returned.
        """
        groups = self.file_groups(partition)
        return [file for group in groups for file in group.files.values()]

    def find_file(self, path: str) -> DataFile | None:
        """Return the data file at a path, visible or not; None if the view has no such file."""
        folder, _, name = path.rpartition("/")
        named = data_file(folder, name, size_bytes=0)
        group = named and self.groups.get(FileGroupId(folder, named.name.file_id))
        return group.files.get(name) if group else None

    def replaced_groups(self) -> list[FileGroup]:
        """Return the replaced file groups that still have files, sorted."""
        return [self.groups[name] for name in sorted(self.groups.keys() & self.replaced.keys())]

    def with_commit(self, instant: Instant, metadata: CommitMetadata) -> FileSystemView:
        """Return the view after an instant has completed.

        Args:
            instant: the completed instant.
            metadata: metadata of the instant, with a write stat for every file that became visible.

        Raises:
            CorruptData: a write stat does not name a data file.
        """
        finished = {name for name, at in self.compactions.items() if at == instant.requested_at}
        view = replace(
            self,
            timeline=self.timeline.with_instant(instant),
            replaced={**_replaced_by(instant.requested_at, metadata), **self.replaced},
            clusterings={n: at for n, at in self.clusterings.items() if at != instant.requested_at},
            unpublished={n: at for n, at in self.unpublished.items() if at != instant.requested_at},
            compactions={n: at for n, at in self.compactions.items() if n not in finished},
        )
        written = [
            _written_file(instant, path, size_bytes)
            for stat in metadata.write_stats
            for path, size_bytes in stat.sizes_bytes.items()
        ]
        lost = self._lost_attempts(instant.requested_at, written)
        return (view.without_files(lost) if lost else view)._with_files(written, also=finished)

    def with_compaction_plan(self, instant: str, plan: CompactionPlan) -> FileSystemView:
        """Return the view after a compaction was requested."""
        planned = {operation.group: instant for operation in plan.operations}
        view = replace(self, compactions={**self.compactions, **planned})
        return view._with_files((), also=planned)

    def with_clustering_plan(self, instant: str, plan: ClusteringPlan) -> FileSystemView:
        """Return the view after a clustering was requested."""
        clusterings = {**self.clusterings, **dict.fromkeys(plan.groups, instant)}
        unpublished = {**self.unpublished, **dict.fromkeys(plan.new_groups, instant)}
        return replace(self, clusterings=clusterings, unpublished=unpublished)

    def without_files(self, paths: Iterable[str]) -> FileSystemView:
        """Return the view after files were deleted by a clean or rollback.

        Args:
            paths: paths of the files, relative to the table's root.
        """
        removed = frozenset(paths)
        groups = dict(self.groups)
        for name in _groups_of(removed) & groups.keys():
            remaining = [file for file in groups[name].files.values() if file.path not in removed]
            if remaining:
                groups[name] = self._group(name, remaining)
            else:
                del groups[name]
        return replace(self, groups=groups)

    def _lost_attempts(self, instant: str, written: Iterable[DataFile]) -> list[str]:
        """Return files that other attempts to execute the same plan wrote.

        Such a file has the slot of a file in ``written`` (``lakemark.view.lost_attempts``), and
        both are named after the commit. Logs that several commits wrote for a resize may have the
        same slot (``lakemark.view.resized_logs``). The successful attempt deletes the files of the
        others, but the view's files may have been listed before the deletion.
        """
        named = [
            file
            for file in written
            if names_instant(file, self.version) and file.name.instant == instant
        ]
        return [
            other.path
            for file in named
            for other in self._other_files(file)
            if names_instant(other, self.version) and slot_of(other) == slot_of(file)
        ]

    def _other_files(self, file: DataFile) -> Iterator[DataFile]:
        """Return all other files of the file's group."""
        group = self.groups.get(FileGroupId(file.partition_path, file.name.file_id))
        known = group.files.values() if group else ()
        return (other for other in known if other.path != file.path)

    def _with_files(
        self, files: Iterable[DataFile], also: Iterable[FileGroupId] = ()
    ) -> FileSystemView:
        """Return the view with more files.

        Only the groups of these files, and the groups in ``also``, are divided into slices again.
        """
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
            if group.id not in self.replaced and group.id not in self.unpublished:
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
    """Return the ids of the file groups to which these data files belong by their names."""
    split = (path.rpartition("/") for path in paths)
    files = (data_file(folder, name, 0) for folder, _, name in split)
    return {FileGroupId(file.partition_path, file.name.file_id) for file in files if file}


def _written_file(instant: Instant, path: str, size_bytes: int) -> DataFile:
    folder, _, name = path.rpartition("/")
    file = data_file(folder, name, size_bytes)
    if file is None:
        raise CorruptData(str(instant), None, "write stats that name data files", repr(path))
    return file
