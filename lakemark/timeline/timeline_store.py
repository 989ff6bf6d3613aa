"""Writes the active timeline on storage.

Invariants:
- Files are created, never replaced.
- The state of an instant changes from requested to inflight to completed.
- A completed instant is never rewritten.
- ``publish`` is the only way to complete an instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakemark.model.action import Action, State
from lakemark.model.clean_plan import CleanMetadata
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.archive_log_writer import ArchiveLogWriter
from lakemark.timeline.archiving import ArchiveWriter, TimelineArchive
from lakemark.timeline.lsm_history import LsmHistory
from lakemark.timeline.lsm_writer import DEFAULTS, HistorySettings, LsmWriter
from lakemark.timeline.prepared import prepared_of, prepared_path
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_reader import TimelineReader


class TimelineStore(TimelineReader):
    """Reads and writes the instants of one table."""

    def archive(
        self,
        instants: Sequence[Instant],
        check: Callable[[], None],
        settings: HistorySettings = DEFAULTS,
    ) -> None:
        """Move completed instants into the archive. The caller holds the table's lock.

        Args:
            instants: the instants, oldest first, at least one.
            check: called before each change that needs the lock; raises if the lock was lost.
            settings: when files of the archive are merged, in table version 8 and later.

        Raises:
            WriteConflict: another archiver moved some of the instants at the same time.
        """
        writer = self.archive_writer(check, settings)
        TimelineArchive(self._storage, self._layout).move(instants, writer, check)
        names = {instant.requested_at for instant in instants}
        self._storage.delete(prepared_of(self._storage, names))
        for instant in instants:
            self._commits.pop(instant, None)
            self._cleans.pop(instant, None)
            self._rollbacks.pop(instant, None)

    def archive_writer(
        self, check: Callable[[], None], settings: HistorySettings = DEFAULTS
    ) -> ArchiveWriter:
        """Return a writer that adds instants to the archive. The caller holds the table's lock."""
        if isinstance(self._archive, LsmHistory):
            return LsmWriter(self._storage, self._archive, check, settings)
        return ArchiveLogWriter(self._storage, self._archive, check)

    def make_folder(self) -> None:
        """Create the timeline's folder, because Apache Hudi lists it even without instants."""
        self._storage.make_folder(self._layout.folder)

    def create(self, instant: Instant, content: bytes = b"") -> None:
        """Create a requested or inflight instant.

        An inflight instant, or an instant with content such as a plan, is made durable at once. So
        after a power failure, the instant of every data file still exists, and so does every plan
        by which files were deleted.

        Of a rollback, only the instant itself is made durable. Otherwise a file that the system
        could not force to a full disk would prevent the rollback that deletes the file.

        Raises:
            AlreadyExists: another writer created the same file.
        """
        assert not instant.is_completed, instant
        path = self.path_of(instant)
        self._storage.create(path, content)
        if content or instant.state is State.INFLIGHT:
            self._storage.make_durable(path if instant.action is Action.ROLLBACK else None)

    def prepare(self, pending: Instant, content: bytes) -> None:
        """Write an instant's prepared content, from which ``publish`` completes the instant.

        A rollback deletes this content.
        """
        self._storage.put(prepared_path(pending), content, may_be_cut=True)

    def make_durable(self) -> None:
        """Make everything that was written to the table survive a power failure."""
        self._storage.make_durable()

    def publish(
        self, pending: Instant, completed_at: str, check_lock: Callable[[], None]
    ) -> Instant:
        """Complete an instant from its prepared content, so that readers see the instant.

        First, everything written to the table is made durable, which may take long. Only then is
        the lock checked, right before the single request that publishes. When this method returns,
        the instant is durable.

        Args:
            pending: the inflight instant; its content is prepared.
            completed_at: the completion time.
            check_lock: raises if another writer may have acquired the lock.

        Returns:
            The completed instant, equal to the one that ``load`` would return.

        Raises:
            NotFound: the prepared content was deleted; nothing was published.
        """
        completed = pending.completed(completed_at)
        path = self.path_of(completed)
        self._set_completion_time(pending, completed_at)
        self.make_durable()
        check_lock()
        self._storage.publish(prepared_path(pending), path)
        if self._layout.names_completion:
            return completed
        written = self._storage.head(path)
        return (self.instant_of(written) if written else None) or completed

    def _set_completion_time(self, pending: Instant, completed_at: str) -> None:
        """Set the prepared file's modification time to the completion time, in layout 1.

        In layout 1, the modification time of the completed file is the completion time. If the
        store cannot set modification times, the time at which the file is copied is used.
        """
        if not self._layout.names_completion:
            self._storage.set_modified_at(prepared_path(pending), self.clock.parse(completed_at))

    def unpublish(self, completed: Instant) -> None:
        """Make a completed instant pending again, so that readers ignore its files.

        The change is durable when this method returns, so the files may be deleted afterwards.
        """
        assert completed.is_completed, completed
        self._storage.delete([self.path_of(completed)])
        self._storage.make_durable()
        self._commits.pop(completed, None)

    def withdraw(self, pending: Instant) -> None:
        """Delete an instant's prepared content, after publication or to prevent publication."""
        self._storage.delete([prepared_path(pending)])

    def withdraw_all(self, requested_at: str, check_lease: Callable[[], None]) -> None:
        """Delete the prepared content of all attempts at an instant; see ``withdraw``.

        The lease is checked between the listing and the deletion. So only content of earlier
        attempts is deleted. A later attempt uses another file name.

        Args:
            requested_at: the instant's requested time.
            check_lease: raises if the lock was lost; called if there is content to delete.
        """
        prepared = prepared_of(self._storage, {requested_at})
        if prepared:
            check_lease()
        self._storage.delete(prepared)

    def forget(self, instant: Instant, keep_plan: bool = False) -> None:
        """Remove a pending instant from the timeline, the inflight file first.

        All data files of the instant must have been deleted before.

        Args:
            instant: the instant, in any pending state.
            keep_plan: whether to keep the requested file, so that the table service can be retried.
        """
        for state in (State.INFLIGHT,) if keep_plan else (State.INFLIGHT, State.REQUESTED):
            self._storage.delete(
                [self.path_of(Instant(instant.requested_at, instant.action, state))]
            )

    def note_commit(self, instant: Instant, metadata: CommitMetadata) -> None:
        """Cache the metadata of this writer's own commit for ``read_commit``."""
        self._commits[instant] = metadata

    def forget_commits(self, timeline: Timeline) -> None:
        """Drop the cached metadata of commits that are not on the given timeline."""
        active = set(timeline.instants)
        self._commits = {i: commit for i, commit in self._commits.items() if i in active}

    def note_clean(self, instant: Instant, metadata: CleanMetadata) -> None:
        """Cache the metadata of this writer's own clean for ``read_clean``."""
        self._cleans[instant] = metadata
