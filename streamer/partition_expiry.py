"""Deletes the partitions of a pipeline's table whose lifetime has ended, between two batches.

A deletion is one replace commit, from its request to its publication, while no batch is being
written. It repeats the progress of all streamers, so the next batch continues at its offsets. A
failure is reported, and the stream continues: the deletion is rolled back, and the next check makes
it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from lakemark.execution.runner import Runner
from lakemark.operations.partition_deletion import PartitionDeletion, delete_between_commits
from lakemark.operations.partition_expiry import find_expired
from lakemark.operations.table_writer import TableWriter
from lakemark.services.partition_lifetime import MAX_EXPIRED, PartitionLifetime
from lakemark.view.file_system_view import FileSystemView
from streamer.events import Listener, PartitionsExpired
from streamer.service_guard import ServiceFailures

#: The name of this service in events and metrics.
SERVICE = "partition_expiry"


def _utc_now() -> datetime:
    return datetime.now(UTC)


class PartitionExpiry:
    """Deletes expired partitions of one table. The first check is due at once.

    Attributes:
        writer: the writer of the table, which also writes the batches.

    Args:
        writer: see above.
        lifetime: how long the rows of a partition are kept.
        interval_s: the seconds from one check to the next.
        runner: reads the keys of deleted rows, if the table has a record index.
        listener: receives the events.
        now: returns the current time, which is compared with the times of commits.
        monotonic_s: returns seconds of a clock that is never set back.

    Raises:
        InvalidConfig: the table is not partitioned.
    """

    def __init__(
        self,
        writer: TableWriter,
        lifetime: PartitionLifetime,
        interval_s: float,
        runner: Runner,
        listener: Listener,
        now: Callable[[], datetime] = _utc_now,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.writer = writer
        self._find_expired = find_expired(writer.table, lifetime, now)
        self._interval_s, self._runner = interval_s, runner
        self._listener, self._monotonic_s = listener, monotonic_s
        self._due_at = -math.inf
        url = writer.table.location.url
        self._failures = ServiceFailures(SERVICE, url, listener, interval_s)

    def run_if_due(self) -> None:
        """Delete the expired partitions if a check is due. Call this between two batches.

        Raises:
            HudiError: a deletion failed and could not be rolled back. A restart of the stream rolls
                it back.
        """
        began = self._monotonic_s()
        if began < self._due_at:
            return
        try:
            self._announce()
            deletion = delete_between_commits(self.writer, self._choose, self._runner)
        except Exception as error:
            self.writer.abandon()
            self.writer.recover()  # removes an instant that was only requested
            self._due_at = self._monotonic_s() + self._failures.report(error)
            return
        self._failures.forget()
        may_be_more = len(deletion.partitions) >= MAX_EXPIRED
        self._due_at = began if may_be_more else began + self._interval_s
        if deletion.instant is not None:
            self._report(deletion.instant, deletion, self._monotonic_s() - began)

    def _announce(self) -> None:
        """Report what will be deleted; nothing in general."""

    def _choose(self, view: FileSystemView) -> Sequence[str]:
        """Return the expired partitions without a pending compaction.

        The others are deleted by a later check. An asynchronous compaction may be rewriting them.
        """
        compacted = {group.partition_path for group in view.compactions}
        return [path for path in self._find(view) if path not in compacted]

    def _find(self, view: FileSystemView) -> Sequence[str]:
        """Return the expired partitions."""
        return self._find_expired(view)

    def _report(self, instant: str, deletion: PartitionDeletion, seconds: float) -> None:
        contents = deletion.partitions
        known = [one.rows for one in contents if one.rows is not None]
        self._listener(
            PartitionsExpired(
                instant=instant,
                partitions=tuple(one.path for one in contents),
                files=sum(one.files for one in contents),
                bytes_expired=sum(one.size_bytes for one in contents),
                rows=sum(known) if len(known) == len(contents) else None,
                seconds=seconds,
                table=self.writer.table.location.url,
            )
        )
