"""Deletes the partitions of a dead-letter table whose days are older than the retention.

A partition has the dead letters that were rejected on one day (UTC), which its path names. So it
expires when the whole day is older, whenever a replay or a compaction wrote to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.execution.runner import Runner
from lakemark.operations.table_writer import TableWriter
from lakemark.services.partition_lifetime import MAX_EXPIRED, PartitionLifetime
from lakemark.view.file_system_view import FileSystemView
from sinks.letter_layout import REJECTED_ON, day_of
from streamer.events import Listener, UnresolvedLettersExpire
from streamer.partition_expiry import PartitionExpiry

#: Seconds between two checks.
_INTERVAL_S = 3600.0
_DAY = timedelta(days=1)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class LetterExpiry(PartitionExpiry):
    """Deletes old dead letters; a commit deletes at most ``MAX_EXPIRED`` days.

    Args:
        writer: the writer of the dead-letter table.
        retention: how long dead letters are kept.
        runner: see ``PartitionExpiry``.
        listener: receives the events, also the number of unresolved letters before a deletion.
        now: returns the current time.
        monotonic_s: see ``PartitionExpiry``.

    Raises:
        InvalidConfig: the table is not partitioned.
    """

    def __init__(
        self,
        writer: TableWriter,
        retention: timedelta,
        runner: Runner,
        listener: Listener,
        now: Callable[[], datetime] = _utc_now,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        lifetime = PartitionLifetime(retention)
        super().__init__(writer, lifetime, _INTERVAL_S, runner, listener, now, monotonic_s)
        self._retention, self._now = retention, now

    def _find(self, view: FileSystemView) -> Sequence[str]:
        """See ``PartitionExpiry``; the oldest days come first."""
        end = self._now() - self._retention
        paths = {one.group.partition_path for one in view.latest_slices()}
        days = sorted((day, path) for path in paths if (day := day_of(path)) is not None)
        return [path for day, path in days if day + _DAY <= end][:MAX_EXPIRED]

    def _announce(self) -> None:
        """Report the number of unresolved letters among those that will be deleted."""
        table = self.writer.table
        paths = self._choose(table.view())
        if not paths:
            return
        days = ", ".join(f"'{path.partition('=')[2]}'" for path in paths)
        found = table.scan(columns=["resolved_at"], where=f"{REJECTED_ON} in ({days})")
        letters = sum(batch.num_rows - _count_resolved(batch) for batch in found.batches(1))
        if letters:
            url = table.location.url
            self._listener(UnresolvedLettersExpire(letters, tuple(paths), url))


def _count_resolved(batch: pa.RecordBatch) -> int:
    count: int = pc.count(batch.column("resolved_at")).as_py()
    return count
