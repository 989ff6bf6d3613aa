"""Who else must know of a change before it is published: the metadata table.

A participant is told under the table's lock, right before the publishing line. It commits on its
own under the same requested time, and its readers pass over what it wrote for as long as the data
instant is pending: a crash in between shows nothing, and whoever rolls the data instant back, or
does it again, tells the participant, too.
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
    """Is told of every change to a table's files; each call may be repeated after a crash.

    Every method raises what it must to keep the change from being published.
    """

    def on_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        """A commit, compaction or replace commit is about to be published.

        Args:
            instant: ours, inflight.
            metadata: what it is to say of itself.
            timeline: as just loaded, under the lock.
        """
        ...

    def on_clean(self, instant: Instant, deleted: FileNames, timeline: Timeline) -> None:
        """Files that no query can ask for any more were deleted, and that is to be published."""
        ...

    def on_rollback(
        self,
        target: str,
        deleted: FileNames,
        timeline: Timeline,
        check_lease: Callable[[], None],
    ) -> None:
        """What the instant requested at ``target`` wrote was deleted; that is to be published.

        Args:
            target: requested time of the instant that is undone.
            deleted: its files.
            timeline: as just loaded, under the lock.
            check_lease: raises when the lock was lost.
        """
        ...

    def has_commit(self, requested_at: str) -> bool:
        """Whether it holds a completed commit of that time, which counts or is about to."""
        ...


class NoMetadataUpdater:
    """Of a table without a metadata table."""

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
