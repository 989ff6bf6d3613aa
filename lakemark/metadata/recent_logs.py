"""Keeps the changes in the logs that a writer added to its metadata table, for the next compaction.

A compaction of the metadata table reads all logs since the last one. If one writer has written all
of them, it has had their content in memory, so it need not read and parse them again.

A log is known by its path and its size. Another attempt at a table service writes logs of the same
paths, which may have the same sizes. So the state of the writer, and the kept changes with it, is
discarded if an instant was not published (``MetadataUpdater.on_failure``), or if another writer has
changed the table (``WriterState``). In table version 6 several commits append to one log, so the
kept changes are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakemark.metadata.record_changes import RecordChanges
from lakemark.model.file_slice import LogFile

#: The size of the changes that are kept of a table. Those of ten small commits are much smaller.
MAX_BYTES = 1 << 20


@dataclass
class RecentLogs:
    """The changes in the logs since the last compaction, if they are small.

    Attributes:
        max_bytes: the largest size of all changes; if there are more, none are kept.
    """

    max_bytes: int = MAX_BYTES
    _changes: dict[str, tuple[int, RecordChanges]] = field(default_factory=dict, init=False)
    _kept_bytes: int = field(default=0, init=False)

    def add(self, path: str, size_bytes: int, changes: RecordChanges) -> None:
        """Add a log that was written.

        Args:
            path: its path, relative to the metadata table.
            size_bytes: its size.
            changes: its content.
        """
        self._kept_bytes += changes.nbytes
        if self._kept_bytes <= self.max_bytes:
            self._changes[path] = size_bytes, changes
        else:  # the compaction has to read logs anyway
            self._changes.clear()

    def clear(self) -> None:
        """Forget all logs, because they were compacted, or some of them were deleted."""
        self._changes.clear()
        self._kept_bytes = 0

    def find(self, logs: Sequence[LogFile]) -> list[RecordChanges] | None:
        """Return the changes in each of these logs; None if one of them is not known."""
        found = [self._changes.get(log.path) for log in logs]
        known = [
            one[1]
            for one, log in zip(found, logs, strict=True)
            if one is not None and one[0] == log.size_bytes
        ]
        return known if len(known) == len(logs) else None
