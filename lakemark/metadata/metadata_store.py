"""Writes the metadata table, which is a merge-on-read table in a folder of the data table.

A writer holds the data table's lock, so the metadata table has one writer at a time. This list
shows the steps of a commit, and next to each step what a crash right after the step leaves behind:

1. create the requested and the inflight instant
                            a pending instant, which ``undo`` removes
2. write a log in each file group that changes
                            files of a pending instant, which no reader reads
3. prepare                  the prepared content of the completed instant
4. check that the data instant is not fenced, that is, that its own prepared content exists
5. publish                  an instant that readers ignore until the data instant has completed

A rollback of the data instant first deletes the prepared content of the data instant, and then the
prepared content of the metadata table's commit. So a writer that was suspended before step
4 or 5 finds that one of these contents is missing. If the writer has already published the commit,
the rollback undoes it.

Instants and files are named as in Apache Hudi: a commit has the data instant's requested time, and
one log in each file group that changes. In table version 6 such a log is named after its slice. A
compaction is named after the newest commit, followed by ``001``. Only the instants that create
partitions have random numbers (``draw_first_number``). Source: ``HoodieBackedTableMetadataWriter``,
``…TableVersionSix`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from lakemark.config import keys
from lakemark.errors import Fenced, SnapshotChanged
from lakemark.log.log_writers import writers_in
from lakemark.metadata.metadata_files import (
    BASE_FILE_EXTENSION,
    FIRST_WRITE_TOKEN,
    BaseContent,
    first_log_file,
    log_file,
)
from lakemark.metadata.record_changes import RecordChanges, stored_schema
from lakemark.metadata.valid_instants import INITIAL, initial
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import LogFile, join
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import META_COLUMNS
from lakemark.schema.avro import to_json
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import NotFound, Storage
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_commit
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import PARTITION_METAFILE, data_file

_DELTA = Action.DELTA_COMMIT
#: Creation time of the files of instants that create partitions.
CREATED_MS_OF_FIRST = 0
_UPSERT, _INITIALISE = "UPSERT_PREPPED", "BULK_INSERT_PREPPED"


@dataclass(frozen=True, slots=True)
class FirstRecords:
    """The first records of a partition.

    Attributes:
        group_count: the number of file groups.
        read: yields the base file of each file group, in the order of the file groups' numbers; a
            base file without records is not written.
    """

    group_count: int
    read: Callable[[], Iterator[BaseContent]]

    @classmethod
    def of(cls, changes: RecordChanges, group_count: int) -> FirstRecords:
        """Return records that are in memory."""

        def read() -> Iterator[BaseContent]:
            for shard in changes.by_shard(group_count):
                yield BaseContent.of(shard.written, CREATED_MS_OF_FIRST)

        return cls(group_count, read)


@dataclass
class MetadataStore:
    """Writes one metadata table.

    The store keeps the timeline in memory, so no other writer may change the metadata table
    meanwhile.

    Attributes:
        storage: the metadata table's root.
        instants: reads and writes the metadata table's timeline.
        timeline: the metadata table's timeline as last read, with this writer's changes.
        groups: file group ids of each partition, in the order of their numbers; read on demand.
    """

    storage: Storage
    instants: TimelineStore
    timeline: Timeline
    groups: dict[str, list[str]] = field(default_factory=dict)

    def commit(
        self,
        data_instant: Instant,
        changes: Mapping[str, RecordChanges],
        check_not_fenced: Callable[[], None],
    ) -> None:
        """Commit the changes of a data instant; readers see them once that instant has completed.

        Args:
            data_instant: the inflight instant of the data table.
            changes: changes by partition of the metadata table.
            check_not_fenced: raises if the data instant was rolled back.

        Raises:
            Fenced: the data instant was rolled back in the meantime.
            SnapshotChanged: the metadata table was dropped in the meantime.
        """
        instant = data_instant.requested_at
        self.undo(instant, check_not_fenced)
        # In version 6, drop a pending compaction first. Otherwise the logs of this commit would be
        # named after the slice of the compaction, or the compaction would miss them.
        for planned in self.timeline.pending(Action.COMPACTION) if self._names_slices else ():
            self.undo(planned.requested_at, check_not_fenced)
        requested = Instant(instant, _DELTA, State.REQUESTED, attempt=data_instant.attempt)
        pending = self.begin(requested)
        logs = [
            (partition, self._log_name(partition, number, instant), part)
            for partition, whole in changes.items()
            for number, part in enumerate(whole.by_shard(len(self.groups_of(partition))))
            if not part.is_empty
        ]
        if self._names_slices:
            # Another attempt at the instant may have completed before this one read the log
            # versions. Readers would treat logs of this attempt as logs of the completed commit.
            check_not_fenced()
        stats = request_all(
            self.storage, lambda log: self._append(log[0], log[1], instant, log[2]), logs
        )
        self.publish(pending, commit_metadata(stats, _UPSERT), check_not_fenced)

    def undo(self, instant: str, check_not_fenced: Callable[[], None]) -> None:
        """Remove an instant in any state, and its files; do nothing if the instant does not exist.

        Args:
            instant: requested time of the instant.
            check_not_fenced: raises if another writer may be writing the table. That writer may
                have begun an instant with the same requested time.
        """
        known = self.timeline.find(instant)
        if known is None:
            return
        check_not_fenced()
        is_pending_service = known.action is Action.COMPACTION
        pending = Instant(instant, known.action if is_pending_service else _DELTA, State.INFLIGHT)
        self.instants.withdraw_all(instant, check_not_fenced)
        if known.is_completed:
            self.instants.unpublish(known)
        files = self._files_of(instant)
        check_not_fenced()
        self.storage.delete(files)
        self.instants.forget(pending)
        kept = (i for i in self.timeline.instants if i.requested_at != instant)
        self.timeline = Timeline.of(kept, self.timeline.has_history, self.timeline.archived_time)

    def initialise(
        self,
        number: int,
        partition: str,
        prefix: str,
        records: FirstRecords,
        listed_at: str | None,
        check_lease: Callable[[], None],
    ) -> None:
        """Create a partition: its file groups, and a base file for each file group with records.

        Args:
            number: number of the instant that creates the partition; see ``draw_first_number``.
            partition: name of the partition.
            prefix: prefix of the ids of its file groups.
            records: the first records of each file group.
            listed_at: the newest time on the data table's timeline that the records include. The
                instant completes after this time.
            check_lease: raises if the lock was lost.

        Raises:
            ClockBehind: ``listed_at`` is too far ahead of this machine's clock.
        """
        instant = initial(number)
        pending = self.begin(Instant(instant, _DELTA, State.REQUESTED))
        text = f"#partition metadata\ncommitTime={instant}\npartitionDepth=1\n"
        self.storage.create(join(partition, PARTITION_METAFILE), text.encode())
        groups = [f"{prefix}{shard:04d}-0" for shard in range(records.group_count)]
        stats = []
        for file_id, base in zip(groups, records.read(), strict=True):
            check_lease()
            name = LogFileName(file_id, instant, 1, FIRST_WRITE_TOKEN)
            self.storage.create(join(partition, str(name)), first_log_file(instant))
            if base.count:
                stats.append(self.write_base(partition, file_id, instant, base))
        self.groups[partition] = groups
        self.publish(pending, commit_metadata(stats, _INITIALISE), check_lease, listed_at)

    def begin(self, requested: Instant, content: bytes = b"") -> Instant:
        """Create an instant, requested and then inflight, and return the inflight instant.

        The instant is added to ``timeline`` first, so that ``undo`` finds it even if the store's
        answer is lost.
        """
        self.timeline = self.timeline.with_instant(requested)
        self.instants.create(requested, content)
        self.instants.create(requested.inflight())
        return requested.inflight()

    def write_base(
        self, partition: str, file_id: str, instant: str, base: BaseContent
    ) -> WriteStat:
        """Write a base file with all records of a file group, and return its write stat."""
        name = BaseFileName(file_id, f"{_number_of(file_id)}-0-0", instant, BASE_FILE_EXTENSION)
        self.storage.create(join(partition, str(name)), base.content)
        return WriteStat(
            file_id=file_id,
            path=join(partition, str(name)),
            partition_path=partition,
            num_writes=base.count,
            num_inserts=base.count,
            total_write_bytes=len(base.content),
            file_size_in_bytes=len(base.content),
        )

    def publish(
        self,
        pending: Instant,
        metadata: CommitMetadata,
        check_not_fenced: Callable[[], None],
        after: str | None = None,
    ) -> None:
        """Complete an instant.

        Args:
            pending: the inflight instant.
            metadata: content of the completed instant.
            check_not_fenced: raises if another writer may be writing the table.
            after: the completion time must be later than this time.

        Raises:
            Fenced: the instant was undone in the meantime.
        """
        content = encode_commit(pending.action, metadata, self.instants.version)
        self.instants.prepare(pending, content)
        completed_at = self.next_time(after=after)
        try:
            completed = self.instants.publish(pending, completed_at, check_not_fenced)
        except NotFound:
            check_not_fenced()
            reason = "its commit in the metadata table was removed by a rollback"
            raise Fenced(pending.requested_at, reason) from None
        self.instants.withdraw(pending)
        self.instants.note_commit(completed, metadata)
        self.timeline = self.timeline.with_instant(completed)

    def compaction_time(self) -> str:
        """Return the requested time for a compaction of all commits so far.

        In table version 6 the time is derived from the newest delta commit. In later versions a new
        time is generated.
        """
        if not self._names_slices:
            return self.next_time(ClockSlot.SERVICE)
        return compaction_v6(max(i.requested_at for i in self.timeline.completed(_DELTA)))

    def next_time(self, slot: ClockSlot | None = None, after: str | None = None) -> str:
        """Generate a time that is later than ``after`` and than every time on the timeline."""
        newest = max(self.timeline.newest_time or INITIAL, after or INITIAL)
        clock = self.instants.clock
        return clock.next_instant(None if newest.startswith(INITIAL) else newest, slot)

    def groups_of(self, partition: str) -> list[str]:
        """Return the ids of a partition's file groups, in the order of their numbers.

        Raises:
            SnapshotChanged: the partition has no files.
        """
        if partition not in self.groups:
            _, objects = self.storage.list_folder(partition)
            files = (data_file(partition, o.name, o.size_bytes) for o in objects)
            found = sorted({file.name.file_id for file in files if file})
            if not found:
                raise _has_no_files(partition)
            self.groups[partition] = found
        return self.groups[partition]

    def _append(
        self, partition: str, name: LogFileName, instant: str, changes: RecordChanges
    ) -> WriteStat:
        content = log_file(changes, partition, instant, self.created_ms(instant))
        path = join(partition, str(name))
        self.storage.create(path, content, may_be_cut=True)
        count = len(changes.written.keys)
        return WriteStat(
            file_id=name.file_id,
            path=path,
            partition_path=partition,
            prev_commit=name.instant,
            num_writes=count,
            num_update_writes=count,
            num_deletes=len(changes.deleted),
            total_write_bytes=len(content),
            file_size_in_bytes=len(content),
            log_version=name.version,
            log_offset=0,
            base_file="",
            log_files=(str(name),),
        )

    @property
    def _names_slices(self) -> bool:
        return self.instants.version.logs_name_their_slice

    def _log_name(self, partition: str, number: int, instant: str) -> LogFileName:
        """Return the name of the next log of a file group.

        In table version 6 the log is named after the newest slice, in later versions after the
        instant that writes it.

        Raises:
            SnapshotChanged: the file group has no files in version 6.
        """
        file_id, token = self.groups_of(partition)[number], f"{number}-0-0"
        if not self._names_slices:
            return LogFileName(file_id, instant, 1, token)
        _, objects = self.storage.list_folder(partition)
        files = [file for o in objects if (file := data_file(partition, o.name, o.size_bytes))]
        names = [file.name for file in files if file.name.file_id == file_id]
        starts = self._starts(names)
        if not starts:
            raise _has_no_files(join(partition, file_id))
        start = max(starts)
        logs = (name for name in names if isinstance(name, LogFileName))
        versions = (name.version for name in logs if name.instant == start)
        return LogFileName(file_id, start, 1 + max(versions, default=0), token)

    def _starts(self, names: Collection[BaseFileName | LogFileName]) -> list[str]:
        """Return the instants that begin the slices of these files.

        Instants that were removed from the timeline are omitted, because readers ignore logs in
        their slices. Such files exist if a removed compaction wrote a base file late, or if the
        store brings back a log of a dropped metadata table. If the timeline lacks an instant, the
        timeline is loaded again, because another process may have compacted the table since.
        """
        if not all(self.timeline.is_committed(name.instant) for name in names):
            self.timeline = self.instants.load()
        return [name.instant for name in names if self._begins_slice(name)]

    def _begins_slice(self, name: BaseFileName | LogFileName) -> bool:
        """Return whether a file's instant is completed, or is pending and already has logs."""
        if self.timeline.is_committed(name.instant):
            return True
        return isinstance(name, LogFileName) and self.timeline.find(name.instant) is not None

    def created_ms(self, instant: str) -> int:
        """Return the creation time of an instant's files, which is the same in each attempt."""
        if instant.startswith(INITIAL):
            return CREATED_MS_OF_FIRST
        return int(self.instants.clock.parse(instant).timestamp() * 1000)

    def _files_of(self, instant: str) -> list[str]:
        """Return the paths of the data files that an instant wrote."""
        found = []
        folders, _ = self.storage.list_folder("")
        for folder in folders:
            partition = folder.rstrip("/")
            _, objects = self.storage.list_folder(partition)
            for info in objects:
                file = data_file(partition, info.name, info.size_bytes)
                if file is None:
                    continue
                is_shared = self._names_slices and isinstance(file, LogFile)
                wrote = writers_in(self.storage, info) if is_shared else {file.name.instant}
                if instant in wrote:
                    found.append(info.path)
        return found


def compaction_v6(newest: str) -> str:
    """Return the requested time of a compaction up to commit ``newest``, in table version 6."""
    return f"{newest}001"


def commit_metadata(
    stats: Iterable[WriteStat], operation: str, *, compacted: bool = False
) -> CommitMetadata:
    """Return the content of a completed instant of the metadata table."""
    return CommitMetadata(
        write_stats=tuple(stats),
        extra_metadata={keys.SCHEMA: _own_schema()},
        operation=operation,
        compacted=compacted,
    )


def _has_no_files(path: str) -> SnapshotChanged:
    """Return the error for a path that has no files.

    A path has no files if a rollback or restore has just dropped the metadata table.
    """
    message = f"{path} of the metadata table has no file that begins a slice: the table was dropped"
    return SnapshotChanged(message)


@cache
def _own_schema() -> str:
    """Return the schema of stored records for commit metadata, without the meta columns."""
    schema = json.loads(stored_schema())
    own = [field for field in schema["fields"] if field["name"] not in META_COLUMNS]
    return to_json({**schema, "fields": own})


def _number_of(file_id: str) -> int:
    return int(file_id.removesuffix("-0")[-4:])
