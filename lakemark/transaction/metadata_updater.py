"""The interface through which a change of a table updates its metadata table.

The metadata table is updated under the table's lock, right before the change is published. It has a
commit of its own with the same requested time. Readers skip this commit while the instant of the
table is pending, so a crash in between has no effect on them. A rollback of the instant, or another
attempt at it, updates the metadata table again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

#: Partition path → names of files in it.
FileNames = Mapping[str, Sequence[str]]


class MetadataUpdater(Protocol):
    """Records each change of a table's files; a call may be repeated after a crash.

    If a method raises an error, the change is not published.
    """

    def on_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        """Record a commit, compaction or replace commit before it is published.

        Args:
            instant: the inflight instant.
            metadata: its commit metadata.
            timeline: the timeline that was just loaded under the lock.
        """
        ...

    def on_clean(self, instant: Instant, deleted: FileNames, timeline: Timeline) -> None:
        """Record a clean before it is published; its files are deleted."""
        ...

    def on_rollback(
        self,
        target: str,
        deleted: FileNames,
        timeline: Timeline,
        check_lease: Callable[[], None],
    ) -> None:
        """Record a rollback before it is published; the files of its target are deleted.

        Args:
            target: requested time of the instant that is rolled back.
            deleted: its files.
            timeline: the timeline that was just loaded under the lock.
            check_lease: raises if the lock was lost.
        """
        ...

    def has_commit(self, requested_at: str) -> bool:
        """Return whether the metadata table has a completed commit of this requested time."""
        ...


class NoMetadataUpdater:
    """Records nothing, for tables without a metadata table."""

    def on_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        """See ``MetadataUpdater.on_commit``."""

    def on_clean(self, instant: Instant, deleted: FileNames, timeline: Timeline) -> None:
        """See ``MetadataUpdater.on_clean``."""

    def on_rollback(
        self,
        target: str,
        deleted: FileNames,
        timeline: Timeline,
        check_lease: Callable[[], None],
    ) -> None:
        """See ``MetadataUpdater.on_rollback``."""

    def has_commit(self, requested_at: str) -> bool:
        """See ``MetadataUpdater.has_commit``."""
        return False
