"""Plans CDC queries: finds the files with the changes of a range of commits, and how to read them.

A writer may have logged its changes in a ``.cdc`` file next to the base file that it wrote.
Otherwise the reader infers the changes. All rows of a new file were inserted. All rows of a
replaced or emptied file were deleted. The logs of a file group, mostly one, are compared with the
earlier state of the file group.

The range contains requested times, in all table versions. Source: ``HoodieCDCExtractor``,
``HoodieCDCFileIndex`` of Apache Hudi 1.2.0. Apache Hudi reads from a log's write stat which files
precede the log. Lakemark derives these files from the timeline, because a write stat may be
incomplete. A write stat lists no files if the writer had CDC disabled, and too few while a
compaction is pending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from lakemark.config import keys
from lakemark.config.table_properties import LoggingMode, TableProperties
from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile, join
from lakemark.model.instant import Instant
from lakemark.read.incremental import archived_until
from lakemark.read.instant_range import InstantRange
from lakemark.read.lost_changes import LostChanges
from lakemark.read.pending_in_range import check_none_pending
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_group import FileGroup
from lakemark.view.file_lister import DataFile
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.retention import files_being_cleaned
from lakemark.view.visible_instants import VisibleInstants

#: Operations that change rows; others only rewrite them (``WriteOperationType.yieldChanges``).
_CHANGING_OPERATIONS = frozenset(
    {
        "INSERT",
        "UPSERT",
        "UPSERT_PREPPED",
        "DELETE",
        "DELETE_PREPPED",
        "BULK_INSERT",
        "DELETE_PARTITION",
        "INSERT_OVERWRITE",
        "INSERT_OVERWRITE_TABLE",
        "BOOTSTRAP",
    }
)
_DELETES = ("DELETE", "DELETE_PREPPED")


class Inference(Enum):
    """How the changes of one file are inferred (``HoodieCDCInferenceCase``)."""

    AS_IS = "logged in .cdc files"
    BASE_FILE_INSERT = "all rows of a new base file"
    BASE_FILE_DELETE = "all rows of the base file that the commit emptied"
    LOG_FILE = "logs against the state before them"
    REPLACE_COMMIT = "all rows of a replaced file group"


@dataclass(frozen=True, slots=True)
class ChangeSplit:
    """Changes of one commit in one file group; can be pickled, and any worker may read it.

    Attributes:
        group: the file group.
        instant: requested time of the commit.
        inference: how the changes are inferred.
        logs: the ``.cdc`` files, or the logs.
        before: the state of the file group before the commit, if it is needed.
        after: the base file that the commit wrote, or the state with its logs, if it is needed.
        visible: decides which log blocks are visible in the state before the commit.
    """

    group: FileGroupId
    instant: str
    inference: Inference
    logs: tuple[LogFile, ...] = ()
    before: FileSlice | None = None
    after: FileSlice | None = None
    visible: VisibleInstants = field(default_factory=VisibleInstants)

    @property
    def visible_after(self) -> VisibleInstants:
        """Decides which log blocks are visible in the state after the commit."""
        is_limited = self.visible.until is not None
        return replace(self.visible, until=self.instant) if is_limited else self.visible


@dataclass(frozen=True, slots=True)
class CdcPlan:
    """The files of a CDC query.

    Attributes:
        mode: the logging mode of the ``.cdc`` files.
        splits: the changes to read, sorted by file group and then by commit, oldest first.
    """

    mode: LoggingMode
    splits: tuple[ChangeSplit, ...]


def plan(
    view: FileSystemView,
    store: TimelineStore,
    properties: TableProperties,
    instant_range: InstantRange,
) -> CdcPlan:
    """Plan a CDC query.

    Args:
        view: the table's latest state.
        store: reads the table's instants.
        properties: properties of the table.
        instant_range: range of requested times.

    Raises:
        InvalidConfig: the table does not log changes, or did not yet log them when a commit of the
            range was made. Or commits of the range were archived, or their files were removed. Or a
            commit in the range is pending, so that the next range would miss its changes.
        CorruptData: an instant or the archive is damaged.
        SnapshotChanged: the timeline changed in the meantime; load the view again.
    """
    check_logs(properties)
    _check_active(view, store, instant_range)
    commits = [
        commit
        for commit in view.timeline.completed(*COMMITS)
        if instant_range.contains(commit.requested_at)
    ]
    check_none_pending(view, commits, instant_range)
    return plan_commits(view, store, properties, commits)


def plan_commits(
    view: FileSystemView,
    store: TimelineStore,
    properties: TableProperties,
    commits: Iterable[Instant],
) -> CdcPlan:
    """Plan to read the changes of some commits, whatever other commits are pending.

    Args:
        view: the table's latest state.
        store: reads the table's instants.
        properties: properties of the table.
        commits: completed commits on the active timeline.

    Raises:
        InvalidConfig: the table does not log changes.
        LostChanges: files that a commit needs were removed; or the table did not yet log changes
            when a commit was made.
        CorruptData: a commit is damaged.
    """
    mode, cleaned = check_logs(properties), files_being_cleaned(view.timeline, store)
    splits = [
        split
        for commit in commits
        for split in _CommitSplits(view, mode, commit, store.read_commit(commit), cleaned).all()
    ]
    return CdcPlan(mode, tuple(sorted(splits, key=lambda split: (split.group, split.instant))))


def check_logs(properties: TableProperties) -> LoggingMode:
    """Check that a table logs its changes; return the logging mode.

    Raises:
        InvalidConfig: it does not, or its logging mode is unknown.
    """
    values = properties.values
    if not properties.cdc_enabled:
        message = (
            f"table {properties.table_name} keeps no change data ({keys.CDC_ENABLED} is not "
            "true), so CDC queries cannot read it; use an incremental query, or create a table "
            "with cdc='data_before_after' (in a pipeline: table.cdc)"
        )
        raise InvalidConfig(message)
    mode = properties.cdc_logging_mode
    if mode is None:
        word, known = values[keys.CDC_LOGGING_MODE], ", ".join(LoggingMode)
        message = (
            f"{keys.CDC_LOGGING_MODE} is {word} in table {properties.table_name}; known: {known}"
        )
        raise InvalidConfig(message)
    return mode


def _check_active(view: FileSystemView, store: TimelineStore, instant_range: InstantRange) -> None:
    """Check that no commit after the beginning of the range was archived."""
    timeline = view.timeline
    until = archived_until(timeline)
    if not timeline.has_history or until is None or instant_range.begin >= until:
        return
    archived = store.load_archived().instants(instant_range.begin, until)
    commits = [
        one
        for one in archived
        if one.action in COMMITS
        and one.requested_at > instant_range.begin
        and timeline.find(one.requested_at) is None
    ]
    if commits:
        message = (
            f"{commits[0]} was archived, so its changes can no longer be read; "
            f"begin with {commits[-1].requested_at} or later"
        )
        raise InvalidConfig(message)


@dataclass(frozen=True, slots=True)
class _CommitSplits:
    """Creates the splits of one commit."""

    view: FileSystemView
    mode: LoggingMode
    commit: Instant
    metadata: CommitMetadata
    cleaned: frozenset[str]

    def all(self) -> Iterator[ChangeSplit]:
        if self.metadata.operation not in _CHANGING_OPERATIONS:
            return
        logs: dict[FileGroupId, list[tuple[WriteStat, LogFile]]] = {}
        for stat in self.metadata.write_stats:
            if stat.path is None:
                continue
            file = self._file(stat.path)
            if isinstance(file, LogFile) and not stat.cdc_stats:
                name = FileGroupId(file.partition_path, file.name.file_id)
                logs.setdefault(name, []).append((stat, file))
            else:
                yield self._written(stat, file)
        for written in logs.values():
            yield self._in_logs([stat for stat, _ in written], {log for _, log in written})
        for partition, file_ids in self.metadata.replaced_file_ids.items():
            for file_id in file_ids:
                yield self._replaced(FileGroupId(partition, file_id))

    def _in_logs(self, stats: Iterable[WriteStat], written: Collection[LogFile]) -> ChangeSplit:
        """Return the split of all logs of a file group, mostly one.

        They are compared together, because a key may be in several of them.
        """
        logs = tuple(sorted(written, key=lambda log: log.name.scan_order))
        for stat in stats:
            self._check_listed_files(stat, logs[0].partition_path)
        before, after = self._around_logs(logs)
        return self._split(logs[0], Inference.LOG_FILE, logs, before, after)

    def _written(self, stat: WriteStat, file: DataFile) -> ChangeSplit:
        if stat.cdc_stats:
            return self._logged(stat, file)
        if self.metadata.operation in _DELETES and not stat.num_writes and stat.num_deletes:
            before = self._previous_base(stat, file)
            return self._split(file, Inference.BASE_FILE_DELETE, before=before)
        if not stat.num_update_writes and stat.num_writes == stat.num_inserts:
            return self._split(file, Inference.BASE_FILE_INSERT, after=_slice_of(file))
        reason = (
            f"{self.commit} changed rows in {file.path} without a .cdc file: the table did not log "
            "changes yet"
        )
        raise LostChanges(reason, self.commit.requested_at)

    def _logged(self, stat: WriteStat, file: DataFile) -> ChangeSplit:
        logs = [self._file(name) for name in sorted(stat.cdc_stats or ())]
        cdc_logs = tuple(log for log in logs if isinstance(log, LogFile))
        before = after = None
        if self.mode is not LoggingMode.DATA_BEFORE_AFTER and isinstance(file, BaseFile):
            after = _slice_of(file)
            if self.mode is LoggingMode.OP_KEY_ONLY:
                before = self._previous_base(stat, file)
        return self._split(file, Inference.AS_IS, cdc_logs, before, after)

    def _replaced(self, name: FileGroupId) -> ChangeSplit:
        group = self.view.groups.get(name)
        last = group.for_readers if group else None
        # A clean deletes the files of a replaced file group in any order, so a part may be left.
        files = () if group is None else group.files.values()
        if last is None or any(file.path in self.cleaned for file in files):
            raise self._removed_error(join(name.partition_path, name.file_id))
        instant, visible = self.commit.requested_at, self.view.visible_instants
        return ChangeSplit(name, instant, Inference.REPLACE_COMMIT, before=last, visible=visible)

    def _previous_base(self, stat: WriteStat, file: DataFile) -> FileSlice:
        """Return a slice with the base file that the commit replaced."""
        name = FileGroupId(file.partition_path, file.name.file_id)
        for known in self.view.groups[name].slices:
            if known.base is not None and known.base_instant == stat.prev_commit:
                return _slice_of(known.base)
        raise self._removed_error(" of ".join((str(stat.prev_commit), file.path)))

    def _check_listed_files(self, stat: WriteStat, partition_path: str) -> None:
        """Check that the files exist that the write stat of a log lists."""
        for known in (stat.base_file, *(stat.log_files or ())):
            if known:
                self._file(join(partition_path, known))

    def _around_logs(self, logs: Sequence[LogFile]) -> tuple[FileSlice | None, ...]:
        """Return the states of the file group without the logs of the commit and with them.

        The state without the logs is None for a new file group.
        """
        view, newest = self.view, logs[-1]
        group = view.groups[FileGroupId(newest.partition_path, newest.name.file_id)]
        self._check_older_slice(group, newest)
        older = [file for file in group.files.values() if self._is_older(file, newest)]
        compaction = self._compaction(group.id, newest)
        return tuple(
            FileGroup.of(group.id, files, view.timeline, view.version, compaction).for_readers
            for files in (older, [*(file for file in older if file not in logs), *logs])
        )

    def _check_older_slice(self, group: FileGroup, log: LogFile) -> None:
        """Check that the slice before a log's slice exists, if the log needs it.

        If a compaction was pending when the log was written, the log is in the compaction's slice.
        The state before the log then includes the older slice, which may have been cleaned since.
        """
        own = next((s for s in group.slices if log in s.logs), None)
        if own is not None and own.base is not None and own is group.slices[0]:
            if not self._is_older(own.base, log):
                raise self._removed_error(" ".join(("the slice before", own.base.path)))

    def _is_older(self, file: DataFile, log: LogFile) -> bool:
        if isinstance(file, LogFile) and self.view.version.logs_name_their_slice:
            # The log itself may begin with blocks of older commits.
            return file.name.scan_order <= log.name.scan_order
        completed_at = self.view.timeline.completed_at(file.name.instant)
        return completed_at is not None and completed_at < (self.commit.completed_at or "")

    def _compaction(self, name: FileGroupId, log: LogFile) -> str | None:
        """Return the instant of the compaction that may have been pending when a log was written.

        If the compaction was pending, the state before the log includes the slice that
        precedes the compaction.
        """
        if self.view.version.logs_name_their_slice:
            return log.name.instant
        return self.view.compactions.get(name)

    def _split(
        self,
        file: DataFile,
        inference: Inference,
        logs: tuple[LogFile, ...] = (),
        before: FileSlice | None = None,
        after: FileSlice | None = None,
    ) -> ChangeSplit:
        name = FileGroupId(file.partition_path, file.name.file_id)
        instant = self.commit.requested_at
        return ChangeSplit(name, instant, inference, logs, before, after, self._visible_before)

    @property
    def _visible_before(self) -> VisibleInstants:
        """Decides which log blocks are visible in the state before the commit.

        In table version 6 a log may have blocks of several commits, so blocks of newer commits are
        hidden. In later versions a log belongs to one commit, so files of newer commits are omitted
        instead.
        """
        visible = self.view.visible_instants
        if not self.view.version.logs_name_their_slice:
            return visible
        commits = (i.requested_at for i in self.view.timeline.completed(*COMMITS))
        older = (
            requested_at for requested_at in commits if requested_at < self.commit.requested_at
        )
        return replace(visible, until=max(older, default=""))

    def _file(self, path: str) -> DataFile:
        file = self.view.find_file(path)
        if file is None:
            raise self._removed_error(path)
        return file

    def _removed_error(self, what: str) -> LostChanges:
        reason = f"{what} was removed, so the changes of {self.commit} can no longer be read"
        return LostChanges(reason, self.commit.requested_at)


def _slice_of(base: DataFile) -> FileSlice:
    """Return a slice with only this base file."""
    assert isinstance(base, BaseFile), base
    name = FileGroupId(base.partition_path, base.name.file_id)
    return FileSlice(name, base.name.instant, base)
