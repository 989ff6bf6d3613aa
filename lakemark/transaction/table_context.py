"""The storage, timeline, lock and settings of a table that a transaction uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakemark.execution.runner import LocalRunner, Runner
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.locks.table_lock import TableLock
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.deletion import delete_files
from lakemark.transaction.metadata_updater import MetadataUpdater, NoMetadataUpdater
from lakemark.transaction.multi_writer import MultiWriter

#: Seconds for which a writer waits for the lock before it fails.
LOCK_WAIT_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContext:
    """A table's storage and timeline, and the lock under which writers publish and roll back.

    Attributes:
        storage: the storage of the table's root.
        timeline: the table's timeline.
        lock: the table's lock.
        metadata_updater: records each change in the metadata table before the change is published.
        multi_writer: the settings of a shared table; None if the table has only one writer.
        runner: runs the tasks that delete many files.
    """

    storage: Storage
    timeline: TimelineStore
    lock: TableLock
    metadata_updater: MetadataUpdater = field(default_factory=NoMetadataUpdater)
    multi_writer: MultiWriter | None = None
    runner: Runner = field(default_factory=lambda: LocalRunner(1))

    @property
    def is_non_blocking(self) -> bool:
        """Whether commits may write to a file group to which other commits write meanwhile."""
        return self.multi_writer is not None and self.multi_writer.non_blocking

    def delete_files(self, paths: Sequence[str]) -> None:
        """Delete files of the table; see ``Storage.delete``."""
        delete_files(self.storage, paths, self.runner)

    def generate_time(self, newest_time: str | None, slot: ClockSlot | None = None) -> str:
        """Return a new instant time that is later than all times on the timeline.

        The caller holds the lock; see ``TimelineClock``. If writers share the table, this method
        waits until the clocks of all writers are past the new time.
        """
        generated = self.timeline.clock.next_instant(newest_time, slot)
        if self.multi_writer is not None:
            self.multi_writer.let_clocks_pass()
        return generated

    @contextmanager
    def alive(self, instant: str) -> Iterator[None]:
        """Keep the heartbeat of an instant alive during a block, so that it is not rolled back."""
        if self.multi_writer is None:
            yield
            return
        heartbeat = self.multi_writer.heartbeat(self.storage, instant)
        try:
            yield
        finally:
            heartbeat.stop()
