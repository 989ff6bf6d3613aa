"""Writes the active timeline on storage.

Invariants: files are created, never replaced; an instant goes requested → inflight → completed;
a completed instant is never rewritten; ``publish`` is the only way to complete an instant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakemark.model.action import State
from lakemark.model.clean_plan import CleanMetadata
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.archive_log_writer import ArchiveLogWriter
from lakemark.timeline.archiving import ArchiveWriter, TimelineArchive
from lakemark.timeline.lsm_history import LsmHistory
from lakemark.timeline.lsm_writer import LsmWriter
from lakemark.timeline.prepared import prepared_of, prepared_path
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_reader import TimelineReader


class TimelineStore(TimelineReader):
    """Reads and writes the instants of one table."""

    def archive(self, instants: Sequence[Instant], check: Callable[[], None]) -> None:
        """Move completed instants into the archive, under the table's lock.

        Args:
            instants: oldest first, at least one.
            check: called before each change that needs the lock; raises if the lock was lost.

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

    def archive_writer(self, check: Callable[[], None]) -> ArchiveWriter:
        """A writer that adds instants to the archive, under the table's lock; see ``archive``."""
        if isinstance(self._archive, LsmHistory):
            return LsmWriter(self._storage, self._archive, check)
        return ArchiveLogWriter(self._storage, self._archive, check)

    def make_folder(self) -> None:
        """Create the folder of the timeline before its first instant: Apache Hudi lists it."""
        self._storage.make_folder(self._layout.folder)

    def create(self, instant: Instant, content: bytes = b"") -> None:
        """Create a requested or inflight instant; an inflight or planned one is made durable.

        So after a power failure no file of an instant exists without the instant, and no file that
        a plan deletes is missing without the plan.

        Raises:
            AlreadyExists: another writer created an instant of this name.
        """
        assert not instant.is_completed, instant
        self._storage.create(self.path_of(instant), content)
        if content or instant.state is State.INFLIGHT:
            self._storage.make_durable()

    def prepare(self, pending: Instant, content: bytes) -> None:
        """Write the prepared content of the completed instant, which a rollback would delete."""
        self._storage.put(prepared_path(pending), content, may_be_cut=True)

    def make_durable(self) -> None:
        """Return when everything that was written to the table survives a power failure."""
        self._storage.make_durable()

    def publish(
        self, pending: Instant, completed_at: str, check_lock: Callable[[], None]
    ) -> Instant:
        """Create the completed instant from its prepared content; from here on readers see it.

        All that was written to the table before is forced to the disk first, because that may take
        long. The lock is checked after it, right before the one request that publishes. The instant
        is durable when this returns.

        Args:
            pending: inflight, with prepared content.
            completed_at: its completion time.
            check_lock: raises if another writer may be at work by now.

        Returns:
            The instant as ``load`` returns it.

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
        """Give the prepared content the completion time if no name of a file contains it.

        In layout 1 the modification time of the file is the completion time. A store that does not
        allow to set it uses the time of the copy.
        """
        if not self._layout.names_completion:
            self._storage.set_modified_at(prepared_path(pending), self.clock.parse(completed_at))

    def unpublish(self, completed: Instant) -> None:
        """Make a completed instant pending again; from here on readers ignore its files.

        This is durable, so its files may be deleted afterwards.
        """
        assert completed.is_completed, completed
        self._storage.delete([self.path_of(completed)])
        self._storage.make_durable()
        self._commits.pop(completed, None)

    def withdraw(self, pending: Instant) -> None:
        """Delete an instant's prepared content, after it was published or so that it cannot be."""
        self._storage.delete([prepared_path(pending)])

    def withdraw_all(self, requested_at: str, check_lease: Callable[[], None]) -> None:
        """Delete the prepared content of all attempts at an instant; see ``withdraw``.

        The lease is checked between the listing and the deletion, so the listing has only content
        of earlier attempts. A later attempt prepares its content under another name.

        Args:
            requested_at: requested time of the instant.
            check_lease: raises if the lock was lost; called if there is content to delete.
        """
        prepared = prepared_of(self._storage, {requested_at})
        if prepared:
            check_lease()
        self._storage.delete(prepared)

    def forget(self, instant: Instant, keep_plan: bool = False) -> None:
        """Remove a pending instant, inflight first, after all its files have been deleted.

        Args:
            instant: in any pending state.
            keep_plan: whether to keep the requested file, so that the service can start again.
        """
        for state in (State.INFLIGHT,) if keep_plan else (State.INFLIGHT, State.REQUESTED):
            self._storage.delete(
                [self.path_of(Instant(instant.requested_at, instant.action, state))]
            )

    def note_commit(self, instant: Instant, metadata: CommitMetadata) -> None:
        """Keep the metadata of this writer's own commit for ``read_commit``."""
        self._commits[instant] = metadata

    def forget_commits(self, timeline: Timeline) -> None:
        """Drop the metadata of commits that are no longer on that timeline."""
        active = set(timeline.instants)
        self._commits = {i: commit for i, commit in self._commits.items() if i in active}

    def note_clean(self, instant: Instant, metadata: CleanMetadata) -> None:
        """Keep the metadata of this writer's own clean for ``read_clean``."""
        self._cleans[instant] = metadata
