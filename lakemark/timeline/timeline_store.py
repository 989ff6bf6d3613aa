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

    def archive_writer(self, check: Callable[[], None]) -> ArchiveWriter:
        """What adds instants to the archive, under the table's lock; see ``archive``."""
        if isinstance(self._archive, LsmHistory):
            return LsmWriter(self._storage, self._archive, check)
        return ArchiveLogWriter(self._storage, self._archive, check)

    def make_folder(self) -> None:
        """Have a folder for instants before there is one: Apache Hudi lists it."""
        self._storage.make_folder(self._layout.folder)

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

    def prepare(self, pending: Instant, content: bytes) -> None:
        """Lay down the content of the completed instant where a rollback would remove it."""
        self._storage.put(prepared_path(pending), content, may_be_cut=True)

    def make_durable(self) -> None:
        """Return once what was written to the table survives a power failure."""
        self._storage.make_durable()

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

    def note_commit(self, instant: Instant, metadata: CommitMetadata) -> None:
        """Remember what our own commit holds: ``read_commit`` need not ask for it."""
        self._commits[instant] = metadata

    def forget_commits(self, timeline: Timeline) -> None:
        """Forget what commits hold that are on that timeline no more."""
        active = set(timeline.instants)
        self._commits = {i: commit for i, commit in self._commits.items() if i in active}

    def note_clean(self, instant: Instant, metadata: CleanMetadata) -> None:
        """Remember what our own clean says: ``read_clean`` need not ask for it."""
        self._cleans[instant] = metadata
