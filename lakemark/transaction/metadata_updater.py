"""The interface through which a writer records each change of a table in its metadata table.

The metadata table is updated under the table's lock, right before the change is published. The
update is a commit of the metadata table with the requested time of the table's instant. Readers
skip this commit while the table's instant is pending. So a crash in between has no effect on
readers. A rollback or a new attempt of the instant updates the metadata table again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

#: For each partition path, the names of files in the partition.
FileNames = Mapping[str, Sequence[str]]


class MetadataUpdater(Protocol):
    """Records each change of a table's files. A call may be repeated after a crash.

    If a method raises an error, the change is not published.
    """

    def on_commit(self, instant: Instant, metadata: CommitMetadata, timeline: Timeline) -> None:
        """Record a commit, compaction or replace commit before it is published.

        Args:
            instant: the inflight instant.
            metadata: the instant's commit metadata.
            timeline: the timeline, just loaded under the lock.
        """
        ...

    def on_clean(self, instant: Instant, deleted: FileNames, timeline: Timeline) -> None:
        """Record a clean before it is published. The cleaned files are already deleted."""
        ...

    def on_rollback(
        self,
        target: str,
        deleted: FileNames,
        timeline: Timeline,
        check_lease: Callable[[], None],
        *,
        may_have_completed: bool,
    ) -> None:
        """Record a rollback before it is published. The target's files are already deleted.

        Args:
            target: the requested time of the instant that is rolled back.
            deleted: the deleted files of the target.
            timeline: the timeline, loaded under the lock.
            check_lease: raises if the lock was lost.
            may_have_completed: whether the target may have been completed before its rollback.
        """
        ...

    def has_commit(self, requested_at: str) -> bool:
        """Return whether the metadata table has a completed commit with this requested time."""
        ...

    def on_failure(self) -> None:
        """Forget what was recorded last, because it may not have been published.

        If the change is a planned table service, another attempt may complete its instant, with
        files of other names.
        """
        ...


@contextmanager
def recording_in(updater: MetadataUpdater) -> Iterator[MetadataUpdater]:
    """Call ``on_failure`` if the block, which records a change and publishes it, fails."""
    try:
        yield updater
    except BaseException:
        updater.on_failure()
        raise


class NoMetadataUpdater:
    """A ``MetadataUpdater`` for tables without a metadata table. It records nothing."""

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
        *,
        may_have_completed: bool,
    ) -> None:
        """See ``MetadataUpdater.on_rollback``."""

    def has_commit(self, requested_at: str) -> bool:
        """See ``MetadataUpdater.has_commit``."""
        return False

    def on_failure(self) -> None:
        """See ``MetadataUpdater.on_failure``."""
