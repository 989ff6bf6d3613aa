"""What a transaction needs of a table."""

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

#: How long a writer waits for another's lock before it gives up, in seconds.
LOCK_WAIT_S = 90.0


@dataclass(frozen=True, slots=True)
class TableContext:
    """A table's storage, its timeline there, and the lock that guards publishing and rollback.

    Attributes:
        metadata_updater: is told of each change before it is published.
        multi_writer: what is owed to other writers; None when there is to be no other.
        runner: where many files are deleted.
    """

    storage: Storage
    timeline: TimelineStore
    lock: TableLock
    metadata_updater: MetadataUpdater = field(default_factory=NoMetadataUpdater)
    multi_writer: MultiWriter | None = None
    runner: Runner = field(default_factory=lambda: LocalRunner(1))

    def delete_files(self, paths: Sequence[str]) -> None:
        """Remove files of the table, as ``Storage.delete``."""
        delete_files(self.storage, paths, self.runner)

    def generate_time(self, newest_time: str | None, slot: ClockSlot | None = None) -> str:
        """A time later than every time on the timeline, under the lock (``TimelineClock``).

        Where writers share the table it is past on all of their clocks once this returns.
        """
        generated = self.timeline.clock.next_instant(newest_time, slot)
        if self.multi_writer is not None:
            self.multi_writer.let_clocks_pass()
        return generated

    @contextmanager
    def alive(self, instant: str) -> Iterator[None]:
        """A block in which other writers see that somebody is at work on an instant."""
        if self.multi_writer is None:
            yield
            return
        heartbeat = self.multi_writer.heartbeat(self.storage, instant)
        try:
            yield
        finally:
            heartbeat.stop()
