"""Reads a table's timeline: the active and archived instants, and their content."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Self, TypeAlias, TypeVar

from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.errors import CorruptData, HudiError, SnapshotChanged
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.clean_plan import CleanMetadata, CleanPlan
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.format_version import FormatVersion
from lakemark.model.index_plan import IndexPlan
from lakemark.model.instant import Instant
from lakemark.model.restore_plan import RestorePlan, records_deleted_archived
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import NotFound, ObjectInfo, Storage
from lakemark.timeline.archive_log import ArchiveLogs
from lakemark.timeline.archived_timeline import ArchivedTimeline, Part
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock
from lakemark.timeline.content import Record, build_value, decode_as, decode_commit, decode_record
from lakemark.timeline.layout import LayoutV1, LayoutV2, TimelineLayout, layout_of
from lakemark.timeline.lsm_history import LsmHistory
from lakemark.timeline.prepared import prepared_path
from lakemark.timeline.timeline import ArchivedTime, Timeline
from lakemark.timeline.zone import ZoneEvidence, find_clock, parse_zone, stored_zone

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Finds the clock of a timeline; the time zone may be derived from the times of its instants.
ClockFinder: TypeAlias = Callable[[ZoneEvidence], TimelineClock]


class TimelineReader:
    """Reads the instants of one table.

    Immutable content is read only once.

    Attributes:
        version: the table's format version.
        judged: the requested times of instants that were looked up in the history and found not to
            be rolled back. These instants are not looked up again.
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
        self._emptied: dict[Instant, bool] = {}
        self._parsed: dict[str, Instant | None] = {}

    @classmethod
    def of_table(
        cls,
        storage: Storage,
        properties: TableProperties,
        timezone: str | None = None,
        clock: TimelineClock | None = None,
    ) -> Self:
        """Open the timeline of a table of any version.

        Args:
            storage: the storage of the table's root.
            properties: the table's properties.
            timezone: the IANA name of the timeline's zone, for a table in local time.
            clock: the table's clock, if it is known. A metadata table uses its data table's clock.

        Raises:
            Unsupported: lakemark does not read tables of this version.
            InvalidConfig: ``timezone`` is not a time zone.
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
        """The clock that formats and parses the timeline's instant times.

        The time zone is determined only once. If the zone is in doubt, readers may use the clock,
        but writers may not (see ``TimelineClock``).
        """
        if not isinstance(self._clock, TimelineClock):
            if self._evidence is None:
                self._note_evidence(self._storage.list_folder(self._layout.folder)[1])
            assert self._evidence is not None
            self._clock = self._clock(self._evidence)
        return self._clock

    def instant_of(self, file: ObjectInfo) -> Instant | None:
        """Return the instant of a file in the timeline's folder; None for any other file."""
        path = file.path
        known = self._parsed
        instant = known[path] if path in known else self._layout.parse(file.name)
        if instant is None or not instant.is_legacy:
            return instant
        # A copied file may have an older modification time than the original, but no instant
        # completes before it is requested.
        completed_at = max(self.clock.format(file.modified_at), instant.requested_at)
        return replace(instant, completed_at=completed_at)

    def load(self) -> Timeline:
        """Load the active timeline with one listing. The archive is not read.

        The names of the files are parsed only once, because most of them were in the last listing.
        """
        folders, objects = self._storage.list_folder(self._layout.folder)
        self._note_evidence(objects)
        known = self._parsed
        self._parsed = {
            o.path: known[o.path] if o.path in known else self._layout.parse(o.name)
            for o in objects
        }
        instants = [i for o in objects if (i := self.instant_of(o)) is not None]
        archive = self._layout.archive_folder
        has_history = archive == self._layout.folder or any(
            f"{archive}/".startswith(f"{folder.rstrip('/')}/") for folder in folders
        )
        return Timeline.of(instants, has_history, self._archived_time())

    def load_archived(self) -> ArchivedTimeline:
        """Load the archived timeline; its files are read on demand.

        Raises:
            SnapshotChanged: the archive was rewritten at the same time; call again.
            CorruptData: the archive is damaged.
        """
        return self._archive.load()

    @property
    def archive_files(self) -> ArchiveLogs | LsmHistory:
        """The reader of the archive, for callers that read the whole archive."""
        return self._archive

    def without(self, timeline: Timeline, archived: Collection[Instant]) -> Timeline:
        """Return the timeline after these instants have been archived."""
        kept = [instant for instant in timeline.instants if instant not in archived]
        return Timeline.of(kept, True, self._archived_time())

    def path_of(self, instant: Instant) -> str:
        """Return the path of an instant's file, relative to the table's root."""
        return f"{self._layout.folder}/{self._layout.name_of(instant)}"

    def is_requested(self, instant: Instant) -> bool:
        """Return whether the requested file of an instant exists."""
        requested = replace(instant, state=State.REQUESTED)
        return self._storage.head(self.path_of(requested)) is not None

    def is_prepared(self, pending: Instant) -> bool:
        """Return whether the prepared content of an instant exists.

        A rollback of the instant deletes this content.
        """
        return self._storage.head(prepared_path(pending)) is not None

    def writer_of(self, pending: Instant) -> str:
        """Return the writer id in the content of an inflight instant; "" if there is none.

        Apache Hudi writes no writer id, and the content of an inflight compaction is empty.
        """
        path = self.path_of(pending.inflight())
        try:
            content = self._storage.read(path)
        except NotFound:
            return ""
        extra = decode_commit(content, path).extra_metadata if content else {}
        return extra.get(keys.WRITER_ID, "")

    def read_commit(self, instant: Instant) -> CommitMetadata:
        """Return the metadata of a completed commit, delta commit or replace commit; read once.

        If the commit was archived after its timeline was loaded, it is read from the archive.

        Raises:
            SnapshotChanged: the commit is neither active nor archived, because it was rolled back.
            CorruptData: the commit's file is damaged.
        """
        if instant not in self._commits:
            self._commits[instant] = self._read_commit(instant)
        return self._commits[instant]

    def read_commits(self, instants: Iterable[Instant]) -> list[CommitMetadata]:
        """Return the metadata of completed commits, read at once; see ``read_commit``."""
        listed = list(instants)
        unknown = [instant for instant in listed if instant not in self._commits]
        read = request_all(self._storage, self._read_commit, unknown)
        self._commits.update(zip(unknown, read, strict=True))
        return [self._commits[instant] for instant in listed]

    def read_compaction_plan(self, requested_at: str) -> CompactionPlan:
        """Return the plan of a pending or completed compaction.

        The plan is also found if the compaction was archived after its timeline was loaded.

        Raises:
            SnapshotChanged: the compaction is neither active nor archived, because it was rolled
                back or deleted.
            CorruptData: the plan is damaged, or the compaction is pending and its plan is lost.
        """
        requested = Instant(requested_at, Action.COMPACTION, State.REQUESTED)
        return self._read_as(CompactionPlan.from_record, requested)

    def read_pending_compaction(self, pending: Instant) -> CompactionPlan:
        """Return the plan of a pending compaction or log compaction; empty if it was removed.

        A compaction is inflight without a plan if its inflight file was created after the plan had
        been removed. This happens if the writer was paused, or if the store executed the request
        late. Such a compaction cannot complete; ``recover`` removes it.

        Raises:
            SnapshotChanged, CorruptData: see ``read_compaction_plan``.
        """
        requested = Instant(pending.requested_at, pending.action, State.REQUESTED)
        found = self._find_as(CompactionPlan.from_record, requested)
        if found is not None:
            return found
        gone = self._gone(requested)
        if not isinstance(gone, CorruptData) or self.is_requested(pending):
            raise gone
        if pending.state is State.REQUESTED:  # as of a timeline from before the plan was removed
            message = f"the plan of {pending} was removed; load the timeline again"
            raise SnapshotChanged(message)
        return CompactionPlan(())

    def read_clustering_plan(self, requested: Instant) -> ClusteringPlan | None:
        """Return the plan of a pending or completed clustering; None if it is an overwrite.

        The requested file of an overwrite contains no plan. Old writers left this file empty.
        """
        path = self.path_of(replace(requested, state=State.REQUESTED))
        try:
            data = self._storage.read(path)
        except NotFound:
            record = self._archived(requested, Part.PLAN)
            if record is None:
                raise
            return build_value(ClusteringPlan.from_record, record, path) if record else None
        return decode_as(ClusteringPlan.from_record, data, path) if data else None

    def is_clustering(self, pending: Instant) -> bool:
        """Return whether a pending instant is a clustering.

        In table version 6, only the plan distinguishes a clustering from an overwrite. A starting
        writer does not roll back a pending clustering, because it changes no rows
        (``getInstantsToRollback`` of Apache Hudi's ``BaseHoodieTableServiceClient``).
        """
        if pending.action is Action.CLUSTERING or pending.action is not Action.REPLACE_COMMIT:
            return pending.action is Action.CLUSTERING
        try:
            return self.read_clustering_plan(pending) is not None
        except NotFound:
            return False

    def pending_writes(self, timeline: Timeline) -> list[Instant]:
        """Return the pending commits except clusterings, in every table version."""
        return [i for i in timeline.pending(*COMMITS) if not self.is_clustering(i)]

    def read_rollback_plan(self, requested_at: str) -> RollbackPlan:
        """Return the plan of a pending rollback. Later, the plan may be archived."""
        requested = Instant(requested_at, Action.ROLLBACK, State.REQUESTED)
        return self._read_as(RollbackPlan.from_record, requested)

    def find_rollback_plan(self, requested_at: str) -> RollbackPlan | None:
        """Return the plan of a pending rollback; None if its requested file does not exist.

        A rollback may be inflight without a plan, if a process that had lost the lock created the
        inflight file after another process had completed and archived the rollback.
        """
        path = self.path_of(Instant(requested_at, Action.ROLLBACK, State.REQUESTED))
        try:
            data = self._storage.read(path)
        except NotFound:
            return None
        return decode_as(RollbackPlan.from_record, data, path)

    def pending_rollbacks(self, timeline: Timeline) -> list[tuple[Instant, RollbackPlan]]:
        """Return the pending rollbacks with their plans. Rollbacks without a plan are omitted."""
        pending = timeline.pending(Action.ROLLBACK)
        plans = ((one, self.find_rollback_plan(one.requested_at)) for one in pending)
        return [(one, plan) for one, plan in plans if plan is not None]

    def pending_indexing(self, timeline: Timeline) -> list[tuple[Instant, IndexPlan]]:
        """Return the pending indexing actions with their plans.

        An action without a requested file has an empty plan. Its inflight file appeared again, or
        its process died while it removed the action.
        """
        return [(one, self._index_plan(one)) for one in timeline.pending(Action.INDEXING)]

    def _index_plan(self, pending: Instant) -> IndexPlan:
        path = self.path_of(replace(pending, state=State.REQUESTED))
        try:
            data = self._storage.read(path)
        except NotFound:
            return IndexPlan(partitions=(), up_to="")
        return decode_as(IndexPlan.from_record, data, path)

    def read_rollback(self, completed: Instant) -> RollbackPlan:
        """Return the content of a completed rollback; read once."""
        if completed not in self._rollbacks:
            self._rollbacks[completed] = self._read_as(RollbackPlan.from_metadata, completed)
        return self._rollbacks[completed]

    def read_savepoint(self, instant: Instant) -> SavepointMetadata:
        """Return the content of a completed savepoint; read once."""
        if instant not in self._savepoints:
            self._savepoints[instant] = self._read_as(SavepointMetadata.from_record, instant)
        return self._savepoints[instant]

    def read_restore_plan(self, requested_at: str) -> RestorePlan:
        """Return the plan of a pending or completed restore; read once."""
        if requested_at not in self._restores:
            requested = Instant(requested_at, Action.RESTORE, State.REQUESTED)
            self._restores[requested_at] = self._read_as(RestorePlan.from_record, requested)
        return self._restores[requested_at]

    def has_deleted_archived(self, completed: Instant) -> bool:
        """Return whether a restore deleted the files of archived instants, too; read once."""
        if completed not in self._emptied:
            self._emptied[completed] = self._read_as(records_deleted_archived, completed)
        return self._emptied[completed]

    def read_clean_plan(self, requested_at: str) -> CleanPlan | None:
        """Return the plan of a pending or completed clean; None if its file is empty or missing."""
        requested = Instant(requested_at, Action.CLEAN, State.REQUESTED)
        path = self.path_of(requested)
        try:
            data = self._storage.read(path)
        except NotFound:
            record = self._archived(requested, Part.PLAN)
            return build_value(CleanPlan.from_record, record, path) if record else None
        return decode_as(CleanPlan.from_record, data, path) if data else None

    def read_clean(self, instant: Instant) -> CleanMetadata | None:
        """Return the metadata of a completed clean; read once.

        If the completed file is empty, the metadata is built from the plan, which lists the same
        files. Apache Hudi instead executes such a plan again
        (``CleanPlanActionExecutor.requestClean``).

        Returns:
            The metadata; None if the content of the clean and its plan are both lost, so that the
            deleted files are unknown.
        """
        if instant not in self._cleans:
            record = self._completed_record(instant)
            if not record:
                return self._clean_of_plan(instant)
            path = self.path_of(instant)
            self._cleans[instant] = build_value(CleanMetadata.from_record, record, path)
        return self._cleans[instant]

    def _completed_record(self, instant: Instant) -> Record:
        """Return the content of an active or archived instant; empty if its file is empty."""
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
            _log.warning("%s and its plan are empty: its deleted files are unknown", instant)
            return None
        _log.warning("%s is empty: its plan is read instead", self.path_of(instant))
        self._cleans[instant] = CleanMetadata.of(plan)
        return self._cleans[instant]

    def _read_as(self, build: Callable[[Record], T], instant: Instant) -> T:
        found = self._find_as(build, instant)
        if found is None:
            raise self._gone(instant)
        return found

    def _find_as(self, build: Callable[[Record], T], instant: Instant) -> T | None:
        """Return the content of an instant; None if the instant is neither active nor archived."""
        path = self.path_of(instant)
        try:
            data = self._storage.read(path)
        except NotFound:
            part = Part.METADATA if instant.is_completed else Part.PLAN
            record = self._archived(instant, part)
            return build_value(build, record, path) if record else None
        return decode_as(build, data, path)

    def _archived(self, instant: Instant, part: Part) -> Record | None:
        return self.load_archived().read(instant, part)

    def _gone(self, instant: Instant) -> HudiError:
        """Return the error for an instant that is neither active nor archived."""
        path, action = self.path_of(instant), instant.action.completes_as
        states = [
            one
            for one in self.load().instants
            if (one.requested_at, one.action.completes_as) == (instant.requested_at, action)
        ]
        if states and not any(one.is_completed for one in states):
            return CorruptData(path, None, f"the plan of {states[-1]}", "no such file")
        message = f"instant {instant} does not exist: {path} was deleted; load the timeline again"
        return SnapshotChanged(message)

    def _read_commit(self, instant: Instant) -> CommitMetadata:
        path = self.path_of(instant)
        try:
            return decode_commit(self._storage.read(path), path)
        except NotFound:
            archived = self.load_archived().read_commit(instant)
        if archived is None:
            message = (
                f"instant {instant} does not exist: {path} was rolled back; load the timeline again"
            )
            raise SnapshotChanged(message)
        return archived

    def _note_evidence(self, objects: Sequence[ObjectInfo]) -> None:
        if isinstance(self._clock, TimelineClock):
            return
        named = ((self._layout.parse(o.name), o.modified_at) for o in objects)
        self._evidence = ZoneEvidence.of((i, at) for i, at in named if i is not None)

    def _archived_time(self) -> ArchivedTime:
        """Return a function that looks up completion times in the archive.

        The archive is loaded at the function's first call.
        """
        load = cache(self.load_archived)

        def completed_at(requested_at: str) -> str | None:
            found = load().find(requested_at)
            return found.completed_at if found else None

        return completed_at


def _archive_of(storage: Storage, layout: TimelineLayout) -> ArchiveLogs | LsmHistory:
    if isinstance(layout, LayoutV1):
        return ArchiveLogs(storage, layout.archive_folder)
    return LsmHistory(storage, layout.archive_folder, layout.folder)
