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
compaction is named after the newest commit, followed by ``001``. A commit that adds a partition has
the requested time of the indexing action. Only the instants of a new metadata table have random
numbers (``draw_first_number``). Source: ``HoodieBackedTableMetadataWriter``,
``…TableVersionSix`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from lakemark.config import keys
from lakemark.errors import Fenced
from lakemark.log.log_writers import writers_in
from lakemark.metadata.log_names import SliceNames, has_no_files
from lakemark.metadata.metadata_files import (
    BASE_FILE_EXTENSION,
    FIRST_WRITE_TOKEN,
    BaseContent,
    first_log_file,
    log_file,
)
from lakemark.metadata.partition_shards import PartitionedChanges
from lakemark.metadata.recent_logs import RecentLogs
from lakemark.metadata.record_changes import RecordChanges, ShardChanges, stored_schema
from lakemark.metadata.shards import file_ids
from lakemark.metadata.valid_instants import INITIAL
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
from lakemark.view.file_lister import PARTITION_METAFILE, DataFile, data_file

_DELTA = Action.DELTA_COMMIT
#: Creation time of the files of instants that create partitions.
CREATED_MS_OF_FIRST = 0
_UPSERT, _INITIALISE = "UPSERT_PREPPED", "BULK_INSERT_PREPPED"


@dataclass(frozen=True, slots=True)
class FirstRecords:
    """The first records of a partition.

    Attributes:
        file_ids: the ids of the file groups.
        read: yields the base file of each file group, in the order of ``file_ids``; a base file
            without records is not written.
    """

    file_ids: Sequence[str]
    read: Callable[[], Iterator[BaseContent]]

    @classmethod
    def of(cls, changes: RecordChanges, prefix: str, group_count: int) -> FirstRecords:
        """Return records that are in memory.

        Args:
            changes: the records.
            prefix: prefix of the ids of the file groups.
            group_count: the number of file groups.
        """

        def read() -> Iterator[BaseContent]:
            for shard in changes.by_shard(group_count):
                yield BaseContent.of(shard.written, CREATED_MS_OF_FIRST)

        return cls(file_ids(prefix, group_count), read)


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
        recent_logs: the changes in the logs that this object has written since the last compaction.
    """

    storage: Storage
    instants: TimelineStore
    timeline: Timeline
    groups: dict[str, list[str]] = field(default_factory=dict)
    recent_logs: RecentLogs = field(default_factory=RecentLogs)

    def commit(
        self,
        data_instant: Instant,
        changes: Mapping[str, RecordChanges | PartitionedChanges],
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
            WriteConflict: in version 6, a dead writer has begun file groups that this commit needs.
        """
        instant = data_instant.requested_at
        self.undo(instant, check_not_fenced)
        # In version 6, drop a pending compaction first. Otherwise the logs of this commit would be
        # named after the slice of the compaction, or the compaction would miss them.
        for planned in self.timeline.pending(Action.COMPACTION) if self._names_slices else ():
            self.undo(planned.requested_at, check_not_fenced)
        requested = Instant(instant, _DELTA, State.REQUESTED, attempt=data_instant.attempt)
        pending = self.begin(requested)
        logs = []
        for partition, whole in changes.items():
            shards = list(self._shards_of(partition, whole))
            names = self._log_names(partition, shards, instant)
            logs += [(partition, n, s.changes) for n, s in zip(names, shards, strict=True)]
        if self._names_slices:
            # Another attempt at the instant may have completed before this one read the log
            # versions. Readers would treat logs of this attempt as logs of the completed commit.
            check_not_fenced()
        created_ms = self.created_ms(instant)
        stats = request_all(
            self.storage,
            lambda log: self._append(*log, instant=instant, created_ms=created_ms),
            logs,
        )
        if not self.instants.version.logs_name_their_slice:  # such a log has several commits
            for stat, (_, _, content) in zip(stats, logs, strict=True):
                self.recent_logs.add(stat.path or "", stat.file_size_in_bytes, content)
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
        self.recent_logs.clear()
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
        instant: str,
        partition: str,
        records: FirstRecords,
        listed_at: str | None,
        check_lease: Callable[[], None],
    ) -> None:
        """Create a partition: its file groups, and a base file for each file group with records.

        Args:
            instant: requested time of the instant that creates the partition; see
                ``creates_partition``.
            partition: name of the partition.
            records: its file groups, and the first records of each.
            listed_at: the newest time on the data table's timeline that the records include. The
                instant completes after this time.
            check_lease: raises if the lock was lost.

        Raises:
            ClockBehind: ``listed_at`` is too far ahead of this machine's clock.
        """
        pending = self.begin(Instant(instant, _DELTA, State.REQUESTED))
        text = f"#partition metadata\ncommitTime={instant}\npartitionDepth=1\n"
        self.storage.create(join(partition, PARTITION_METAFILE), text.encode())
        stats = []
        for file_id, base in zip(records.file_ids, records.read(), strict=True):
            check_lease()
            name = LogFileName(file_id, instant, 1, FIRST_WRITE_TOKEN)
            self.storage.create(join(partition, str(name)), first_log_file(instant))
            if base.count:
                stats.append(self.write_base(partition, file_id, instant, base))
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
            found = self.stored_groups(partition)
            if not found:
                raise has_no_files(partition)
            self.groups[partition] = found
        return self.groups[partition]

    def stored_groups(self, partition: str) -> list[str]:
        """Return the ids of all file groups with files of any writer in a partition."""
        return sorted({file.name.file_id for file in self._stored(partition)})

    def _stored(self, partition: str) -> list[DataFile]:
        _, objects = self.storage.list_folder(partition)
        files = (data_file(partition, o.name, o.size_bytes) for o in objects)
        return [file for file in files if file is not None]

    def _shards_of(
        self, partition: str, whole: RecordChanges | PartitionedChanges
    ) -> Iterator[ShardChanges]:
        if isinstance(whole, PartitionedChanges):
            return whole.shards()
        return whole.shards(self.groups_of(partition))

    def _append(
        self,
        partition: str,
        name: LogFileName,
        changes: RecordChanges,
        *,
        instant: str,
        created_ms: int,
    ) -> WriteStat:
        content = (
            first_log_file(instant)
            if changes.is_empty
            else log_file(changes, partition, instant, created_ms)
        )
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

    def _log_names(
        self, partition: str, shards: Iterable[ShardChanges], instant: str
    ) -> Iterator[LogFileName]:
        """Yield the name of the next log of each file group; errors as for ``SliceNames``.

        In table version 6 the log is named after the newest slice, in later versions after the
        instant that writes it.
        """
        names: SliceNames | None = None
        for shard in shards:
            token = f"{shard.number}-0-0"
            if not self._names_slices:
                yield LogFileName(shard.file_id, instant, 1, token)
                continue
            if names is None:
                stored = (file.name for file in self._stored(partition))
                names = SliceNames.of(partition, stored, self.timeline, self.instants.load)
            name = names.next_log(shard, instant, token)
            self.timeline = names.timeline
            yield name

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
                if file is not None and instant in self._writers_of(file):
                    found.append(info.path)
        return found

    def _writers_of(self, file: DataFile) -> set[str]:
        """Return the instants that wrote a file; none if it was deleted after it was listed.

        A process that lost the lock while it dropped the metadata table may still delete its files.
        """
        if not (self._names_slices and isinstance(file, LogFile)):
            return {file.name.instant}
        try:
            return writers_in(self.storage, file)
        except NotFound:
            return set()


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


@cache
def _own_schema() -> str:
    """Return the schema of stored records for commit metadata, without the meta columns."""
    schema = json.loads(stored_schema())
    own = [field for field in schema["fields"] if field["name"] not in META_COLUMNS]
    return to_json({**schema, "fields": own})


def _number_of(file_id: str) -> int:
    return int(file_id.removesuffix("-0")[-4:])
