"""The active timeline on storage.

Invariants: files are created, never replaced; an instant goes requested → inflight → completed;
a completed instant is never rewritten; ``publish`` is the only way to complete one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TypeAlias, TypeVar

from lakemark.codec import avro_container
from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.errors import CorruptData, HudiError, SnapshotChanged
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.clean import CleanMetadata, CleanPlan, metadata_record
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.restore import RestorePlan, restore_record
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.model.savepoint import SavepointMetadata
from lakemark.storage.storage import NotFound, ObjectInfo, Storage
from lakemark.timeline.archive_log import ArchiveLogs
from lakemark.timeline.archive_log_writer import ArchiveLogWriter
from lakemark.timeline.archived_timeline import ArchivedTimeline, Part
from lakemark.timeline.archiving import ArchiveWriter, TimelineArchive
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock
from lakemark.timeline.content import (
    Record,
    commit_json,
    decode_as,
    decode_commit,
    decode_record,
    value_of,
)
from lakemark.timeline.layout import LayoutV1, LayoutV2, TimelineLayout, layout_of
from lakemark.timeline.lsm_history import LsmHistory
from lakemark.timeline.lsm_writer import LsmWriter
from lakemark.timeline.prepared import prepared_of, prepared_path
from lakemark.timeline.timeline import ArchivedTime, Timeline
from lakemark.timeline.zone import ZoneEvidence, find_clock, parse_zone, stored_zone

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: The clock of a timeline whose instants show so much of its zone.
ClockFinder: TypeAlias = Callable[[ZoneEvidence], TimelineClock]

_SCHEMAS = {
    Action.COMMIT: "HoodieCommitMetadata",
    Action.DELTA_COMMIT: "HoodieCommitMetadata",
    Action.REPLACE_COMMIT: "HoodieReplaceCommitMetadata",
}


class TimelineStore:
    """Reads and writes instants of one table.

    Attributes:
        version: the table's.
        judged: archived instants whose files were found to be no leftovers of a rollback; the
            history is not asked about them again.
    """

    def __init__(
        self,
        storage: Storage,
        layout: TimelineLayout | None = None,
        version: FormatVersion = FormatVersion.V9,
        clock: TimelineClock | ClockFinder = UTC_CLOCK,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._evidence: ZoneEvidence | None = None
        self._layout = layout or LayoutV2()
        self.version = version
        self.judged: set[str] = set()
        self._archive = _archive_of(storage, self._layout)
        self._commits: dict[Instant, CommitMetadata] = {}
        self._cleans: dict[Instant, CleanMetadata] = {}
        self._savepoints: dict[Instant, SavepointMetadata] = {}
        self._rollbacks: dict[Instant, RollbackPlan] = {}
        self._restores: dict[str, RestorePlan] = {}

    @classmethod
    def of_table(
        cls,
        storage: Storage,
        properties: TableProperties,
        timezone: str | None = None,
        clock: TimelineClock | None = None,
    ) -> TimelineStore:
        """The store of a table of any version.

        Args:
            storage: the table's root.
            properties: the table's.
            timezone: the IANA name of the timeline's zone, for a table in local time.
            clock: the table's, if it is known; of a metadata table that of its data table.

        Raises:
            Unsupported: a version that this project does not read.
            InvalidConfig: ``timezone`` names no time zone.
        """
        url, stored = storage.location.url, stored_zone(properties)
        version = FormatVersion.of(properties.version, url)
        finder = partial(find_clock, url, stored, timezone)
        if clock is None and stored == "UTC":
            clock = finder(ZoneEvidence(()))
        elif timezone is not None:
            parse_zone(timezone)
        return cls(storage, layout_of(properties, version), version, clock or finder)

    @property
    def clock(self) -> TimelineClock:
        """Formats and parses the timeline's instant times; what it shows of its zone is read once.

        Readers use a clock that is in doubt, writers do not: see ``TimelineClock``.
        """
        if not isinstance(self._clock, TimelineClock):
            if self._evidence is None:
                self._note_evidence(self._storage.list_folder(self._layout.folder)[1])
            assert self._evidence is not None
            self._clock = self._clock(self._evidence)
        return self._clock

    def instant_of(self, file: ObjectInfo) -> Instant | None:
        """The instant that a file of the timeline's folder names; None if it names none."""
        instant = self._layout.parse(file.name)
        if instant is None or not instant.is_legacy:
            return instant
        # A copy may carry an older modification time; nothing completes before it was requested.
        completed_at = max(self.clock.format(file.modified_at), instant.requested_at)
        return replace(instant, completed_at=completed_at)

    def load(self) -> Timeline:
        """The active timeline as storage shows it now; one listing. The archive is not read."""
        folders, objects = self._storage.list_folder(self._layout.folder)
        self._note_evidence(objects)
        instants = [i for o in objects if (i := self.instant_of(o)) is not None]
        archive = self._layout.archive_folder
        has_history = archive == self._layout.folder or any(
            f"{archive}/".startswith(f"{folder.rstrip('/')}/") for folder in folders
        )
        return Timeline.of(instants, has_history, self._archived_time())

    def load_archived(self) -> ArchivedTimeline:
        """The instants that left the active timeline; their files are read on demand.

        Raises:
            SnapshotChanged: the archive was rewritten at this very moment; call again.
            CorruptData: the archive is damaged.
        """
        return self._archive.load()

    def archive(self, instants: Sequence[Instant], check: Callable[[], None]) -> None:
        """Move completed instants into the archive, under the table's lock.

        Args:
            instants: oldest first, at least one.
            check: called before each change that counts; raises when the lock is lost.

        Raises:
            WriteConflict: another archiver moved some of them at the same time.
        """
        writer = self.archive_writer(check)
        TimelineArchive(self._storage, self._layout).move(instants, writer, check)
        names = {instant.requested_at for instant in instants}
        self._storage.delete(prepared_of(self._storage, names))
        for instant in instants:
            self._commits.pop(instant, None)
            self._cleans.pop(instant, None)
            self._rollbacks.pop(instant, None)

    @property
    def archive_files(self) -> ArchiveLogs | LsmHistory:
        """The archive itself, for who reads all of it."""
        return self._archive

    def archive_writer(self, check: Callable[[], None]) -> ArchiveWriter:
        """What adds instants to the archive, under the table's lock; see ``archive``."""
        if isinstance(self._archive, LsmHistory):
            return LsmWriter(self._storage, self._archive, check)
        return ArchiveLogWriter(self._storage, self._archive, check)

    def without(self, timeline: Timeline, archived: Collection[Instant]) -> Timeline:
        """The timeline once these instants have been archived."""
        left = [instant for instant in timeline.instants if instant not in archived]
        return Timeline.of(left, True, self._archived_time())

    def make_folder(self) -> None:
        """Have a folder for instants before there is one: Apache Hudi lists it."""
        self._storage.make_folder(self._layout.folder)

    def path_of(self, instant: Instant) -> str:
        """Path of an instant's file, from the table's root."""
        return f"{self._layout.folder}/{self._layout.name_of(instant)}"

    def create(self, instant: Instant, content: bytes = b"") -> None:
        """Write a requested or inflight instant; durable once it is inflight or planned.

        So no file of an instant, and nothing that a plan deletes, outlives the instant in a power
        failure.

        Raises:
            AlreadyExists: another writer made an instant of this name.
        """
        assert not instant.is_completed, instant
        self._storage.create(self.path_of(instant), content)
        if content or instant.state is State.INFLIGHT:
            self._storage.make_durable()

    def is_requested(self, instant: Instant) -> bool:
        """Whether an instant's request is there."""
        requested = replace(instant, state=State.REQUESTED)
        return self._storage.head(self.path_of(requested)) is not None

    def prepare(self, pending: Instant, content: bytes) -> None:
        """Lay down the content of the completed instant where a rollback would remove it."""
        self._storage.put(prepared_path(pending), content, may_be_cut=True)

    def make_durable(self) -> None:
        """Return once what was written to the table survives a power failure."""
        self._storage.make_durable()

    def is_prepared(self, pending: Instant) -> bool:
        """Whether an instant's prepared content is there: nobody has rolled it back."""
        return self._storage.head(prepared_path(pending)) is not None

    def publish(self, pending: Instant, completed_at: str) -> Instant:
        """Make the prepared content the completed instant: from here on readers see it.

        In layout 1 an instant completes when its file was written, which here is when it was
        prepared, so the store is told the time; one that takes no times says when it copied it.

        Returns:
            The instant as ``load`` shows it.

        Raises:
            NotFound: somebody removed the prepared content; nothing was published.
        """
        completed = pending.completed(completed_at)
        prepared, path = prepared_path(pending), self.path_of(completed)
        if not self._layout.names_completion:
            self._storage.set_modified_at(prepared, self.clock.parse(completed_at))
        self._storage.publish(prepared, path)
        if self._layout.names_completion:
            return completed
        written = self._storage.head(path)
        return (self.instant_of(written) if written else None) or completed

    def unpublish(self, completed: Instant) -> None:
        """Make a completed instant pending again: from here on no reader sees what it wrote.

        Its files may be deleted then: no power failure makes it complete again.
        """
        assert completed.is_completed, completed
        self._storage.delete([self.path_of(completed)])
        self._storage.make_durable()
        self._commits.pop(completed, None)

    def withdraw(self, pending: Instant) -> None:
        """Remove an instant's prepared content: it cannot be published any more, or it has been."""
        self._storage.delete([prepared_path(pending)])

    def withdraw_all(self, requested_at: str, check_lease: Callable[[], None]) -> None:
        """Remove what is prepared of an instant, by whichever attempt; see ``withdraw``.

        The lease is checked between the listing and the deletion: so the listing holds content of
        attempts before ours alone. An attempt that begins later prepares under another name.

        Args:
            requested_at: requested time of the instant.
            check_lease: raises when the lock was lost; called if there is something to remove.
        """
        prepared = prepared_of(self._storage, {requested_at})
        if prepared:
            check_lease()
        self._storage.delete(prepared)

    def writer_of(self, pending: Instant) -> str:
        """Who made an instant inflight, as its content says; "" if it says nothing.

        Apache Hudi's says nothing, and that of a compaction is empty.
        """
        path = self.path_of(pending.inflight())
        try:
            content = self._storage.read(path)
        except NotFound:
            return ""
        extra = decode_commit(content, path).extra_metadata if content else {}
        return extra.get(keys.WRITER_ID, "")

    def forget(self, instant: Instant, keep_plan: bool = False) -> None:
        """Remove a pending instant, inflight first, once none of its files are left.

        Args:
            instant: in any pending state.
            keep_plan: leave it requested, for a service that is to be begun anew.
        """
        for state in (State.INFLIGHT,) if keep_plan else (State.INFLIGHT, State.REQUESTED):
            self._storage.delete(
                [self.path_of(Instant(instant.requested_at, instant.action, state))]
            )

    def read_commit(self, instant: Instant) -> CommitMetadata:
        """Metadata of a completed commit, delta commit or replace commit; read once.

        One that was archived since its timeline was loaded is found in the archive.

        Raises:
            SnapshotChanged: it is in neither; somebody rolled it back.
            CorruptData: its file is damaged.
        """
        if instant not in self._commits:
            self._commits[instant] = self._read_commit(instant)
        return self._commits[instant]

    def note_commit(self, instant: Instant, metadata: CommitMetadata) -> None:
        """Remember what our own commit holds: ``read_commit`` need not ask for it."""
        self._commits[instant] = metadata

    def forget_commits(self, timeline: Timeline) -> None:
        """Forget what commits hold that are on that timeline no more."""
        active = set(timeline.instants)
        self._commits = {i: commit for i, commit in self._commits.items() if i in active}

    def read_compaction_plan(self, requested_at: str) -> CompactionPlan:
        """Plan of a compaction, pending or completed.

        This and the methods below find an instant in the archive that was archived since its
        timeline was loaded.

        Raises:
            SnapshotChanged: it is in neither; it was rolled back or deleted.
            CorruptData: its file is damaged, or lost while it is pending.
        """
        requested = Instant(requested_at, Action.COMPACTION, State.REQUESTED)
        return self._read_as(CompactionPlan.from_record, requested)

    def read_clustering_plan(self, requested: Instant) -> ClusteringPlan | None:
        """Plan of a clustering, pending or completed; None when the instant is an overwrite.

        The request of an overwrite has no plan, or, of old writers, no content.
        """
        path = self.path_of(replace(requested, state=State.REQUESTED))
        try:
            data = self._storage.read(path)
        except NotFound:
            record = self._archived(requested, Part.PLAN)
            if record is None:
                raise
            return value_of(ClusteringPlan.from_record, record, path) if record else None
        return decode_as(ClusteringPlan.from_record, data, path) if data else None

    def is_clustering(self, pending: Instant) -> bool:
        """Whether a pending instant is a clustering; in table version 6 its plan says so.

        It changes no row, and a writer that starts leaves it (``getInstantsToRollback`` of
        Apache Hudi's ``BaseHoodieTableServiceClient``).
        """
        if pending.action is Action.CLUSTERING or pending.action is not Action.REPLACE_COMMIT:
            return pending.action is Action.CLUSTERING
        try:
            return self.read_clustering_plan(pending) is not None
        except NotFound:
            return False

    def pending_writes(self, timeline: Timeline) -> list[Instant]:
        """Pending commits without clusterings, which table version 6 calls commits, too."""
        return [i for i in timeline.pending(*COMMITS) if not self.is_clustering(i)]

    def read_rollback_plan(self, requested_at: str) -> RollbackPlan:
        """Plan of a pending rollback. One that completed may have lost it to an archiver."""
        requested = Instant(requested_at, Action.ROLLBACK, State.REQUESTED)
        return self._read_as(RollbackPlan.from_record, requested)

    def read_rollback(self, completed: Instant) -> RollbackPlan:
        """What a completed rollback undid; read once."""
        if completed not in self._rollbacks:
            self._rollbacks[completed] = self._read_as(RollbackPlan.from_metadata, completed)
        return self._rollbacks[completed]

    def read_savepoint(self, instant: Instant) -> SavepointMetadata:
        """What a completed savepoint keeps; read once."""
        if instant not in self._savepoints:
            self._savepoints[instant] = self._read_as(SavepointMetadata.from_record, instant)
        return self._savepoints[instant]

    def read_restore_plan(self, requested_at: str) -> RestorePlan:
        """Plan of a restore, pending or completed; read once."""
        if requested_at not in self._restores:
            requested = Instant(requested_at, Action.RESTORE, State.REQUESTED)
            self._restores[requested_at] = self._read_as(RestorePlan.from_record, requested)
        return self._restores[requested_at]

    def read_clean_plan(self, requested_at: str) -> CleanPlan | None:
        """Plan of a clean, pending or completed; None if it is lost: an empty file, or no file."""
        requested = Instant(requested_at, Action.CLEAN, State.REQUESTED)
        path = self.path_of(requested)
        try:
            data = self._storage.read(path)
        except NotFound:
            record = self._archived(requested, Part.PLAN)
            return value_of(CleanPlan.from_record, record, path) if record else None
        return decode_as(CleanPlan.from_record, data, path) if data else None

    def read_clean(self, instant: Instant) -> CleanMetadata | None:
        """Metadata of a completed clean; read once.

        If its file is empty, the plan says the same. Apache Hudi executes such a plan a second
        time (``CleanPlanActionExecutor.requestClean``).

        Returns:
            None if the file and its plan are both lost: what the clean deleted is not known.
        """
        if instant not in self._cleans:
            record = self._completed_record(instant)
            if not record:
                return self._clean_of_plan(instant)
            path = self.path_of(instant)
            self._cleans[instant] = value_of(CleanMetadata.from_record, record, path)
        return self._cleans[instant]

    def _completed_record(self, instant: Instant) -> Record:
        """What a completed instant's file holds, or the archive; empty if the file is empty."""
        path = self.path_of(instant)
        try:
            data = self._storage.read(path)
        except NotFound:
            record = self._archived(instant, Part.METADATA)
            if record is None:
                raise self._gone(instant) from None
            return record
        return decode_record(data, path) if data else {}

    def _clean_of_plan(self, instant: Instant) -> CleanMetadata | None:
        plan = self.read_clean_plan(instant.requested_at)
        if plan is None:
            _log.warning("%s and its plan are empty: what it deleted is not known", instant)
            return None
        _log.warning("%s is empty: its plan is read instead", self.path_of(instant))
        self._cleans[instant] = CleanMetadata.of(plan)
        return self._cleans[instant]

    def note_clean(self, instant: Instant, metadata: CleanMetadata) -> None:
        """Remember what our own clean says: ``read_clean`` need not ask for it."""
        self._cleans[instant] = metadata

    def _read_as(self, build: Callable[[Record], T], instant: Instant) -> T:
        path = self.path_of(instant)
        try:
            data = self._storage.read(path)
        except NotFound:
            part = Part.METADATA if instant.is_completed else Part.PLAN
            record = self._archived(instant, part)
            if not record:
                raise self._gone(instant) from None
            return value_of(build, record, path)
        return decode_as(build, data, path)

    def _archived(self, instant: Instant, part: Part) -> Record | None:
        return self.load_archived().read(instant, part)

    def _gone(self, instant: Instant) -> HudiError:
        """The error for an instant whose file is neither here nor in the archive."""
        path, action = self.path_of(instant), instant.action.completes_as
        states = [
            one
            for one in self.load().instants
            if (one.requested_at, one.action.completes_as) == (instant.requested_at, action)
        ]
        if states and not any(one.is_completed for one in states):
            return CorruptData(path, None, f"the plan of {states[-1]}", "no such file")
        message = f"instant {instant} is gone: {path} was removed; load the timeline again"
        return SnapshotChanged(message)

    def _read_commit(self, instant: Instant) -> CommitMetadata:
        path = self.path_of(instant)
        try:
            return decode_commit(self._storage.read(path), path)
        except NotFound:
            archived = self.load_archived().read_commit(instant)
        if archived is None:
            message = f"instant {instant} is gone: {path} was rolled back; load the timeline again"
            raise SnapshotChanged(message)
        return archived

    def _note_evidence(self, objects: Sequence[ObjectInfo]) -> None:
        if isinstance(self._clock, TimelineClock):
            return
        named = ((self._layout.parse(o.name), o.modified_at) for o in objects)
        self._evidence = ZoneEvidence.of((i, at) for i, at in named if i is not None)

    def _archived_time(self) -> ArchivedTime:
        """Completion times out of the archive as it is at the first question, if there is one."""
        load = cache(self.load_archived)

        def completed_at(requested_at: str) -> str | None:
            found = load().find(requested_at)
            return found.completed_at if found else None

        return completed_at


def _archive_of(storage: Storage, layout: TimelineLayout) -> ArchiveLogs | LsmHistory:
    if isinstance(layout, LayoutV1):
        return ArchiveLogs(storage, layout.archive_folder)
    return LsmHistory(storage, layout.archive_folder, layout.folder)


def commit_content(
    action: Action, metadata: CommitMetadata, version: FormatVersion = FormatVersion.V9
) -> bytes:
    """Stored bytes of a completed (or inflight) commit, in a table of that version."""
    record = metadata.to_record()
    if action.completes_as is Action.REPLACE_COMMIT:
        replaced = {partition: list(ids) for partition, ids in metadata.replaced_file_ids.items()}
        record["partitionToReplaceFileIds"] = replaced
    if version.timeline_layout == 1:
        return commit_json(record)
    return avro_container.encode(_SCHEMAS[action.completes_as], record)


def compaction_plan_content(plan: CompactionPlan) -> bytes:
    """Stored bytes of a requested compaction."""
    return avro_container.encode("HoodieCompactionPlan", plan.to_record())


def clean_plan_content(plan: CleanPlan, root: str) -> bytes:
    """Stored bytes of a requested clean; see ``CleanPlan.to_record``."""
    return avro_container.encode("HoodieCleanerPlan", plan.to_record(root))


def clean_metadata_content(plan: CleanPlan, started_at: str, took_ms: int) -> bytes:
    """Stored bytes of a completed clean; see ``metadata_record``."""
    return avro_container.encode("HoodieCleanMetadata", metadata_record(plan, started_at, took_ms))


def rollback_plan_content(plan: RollbackPlan) -> bytes:
    """Stored bytes of a requested rollback."""
    return avro_container.encode("HoodieRollbackPlan", plan.to_record())


def rollback_metadata_content(plan: RollbackPlan, started_at: str, took_ms: int) -> bytes:
    """Stored bytes of a completed rollback."""
    return avro_container.encode(
        "HoodieRollbackMetadata", plan.metadata_record(started_at, took_ms)
    )


def savepoint_content(metadata: SavepointMetadata) -> bytes:
    """Stored bytes of a completed savepoint."""
    return avro_container.encode("HoodieSavepointMetadata", metadata.to_record())


def restore_plan_content(plan: RestorePlan) -> bytes:
    """Stored bytes of a requested restore."""
    return avro_container.encode("HoodieRestorePlan", plan.to_record())


def restore_metadata_content(
    started_at: str, took_ms: int, undone: Sequence[RollbackPlan]
) -> bytes:
    """Stored bytes of a completed restore; see ``restore_record``."""
    record = restore_record(started_at, took_ms, undone)
    return avro_container.encode("HoodieRestoreMetadata", record)
