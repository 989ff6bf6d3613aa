"""Finds archived instants without reading the whole archive.

An archive is a set of immutable files, each with the instants of a range of requested times. A file
is read once, when an instant or a range that may be in it is requested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from lakemark.errors import CorruptData
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.content import Record, build_commit


class Part(StrEnum):
    """A part of an archived instant; the value is its column in the history.

    Attributes:
        METADATA: the content of the completed file.
        PLAN: the content of the requested file, of a compaction, a clean or a clustering.
    """

    METADATA = "metadata"
    PLAN = "plan"


class ArchiveFile(Protocol):
    """One file of an archive."""

    def may_hold(self, since: str, until: str | None) -> bool:
        """Return whether an instant requested in that range may be in it, by its name.

        Args:
            since: the first requested time.
            until: the first one after the range; None for an open end.
        """
        ...

    def instants(self) -> Sequence[Instant]:
        """Completed instants in it.

        Raises:
            SnapshotChanged: the archive was rewritten in the meantime; load it again.
            CorruptData: the file does not match the format, or is missing.
        """
        ...

    def read(self, instant: Instant, part: Part) -> Record | None:
        """Content of a completed instant; empty if it has none, None if it is not in the file.

        Errors as for ``instants``.
        """
        ...


class Archive(Protocol):
    """The archived instants of a table."""

    def load(self) -> ArchivedTimeline:
        """List the archive's files.

        Raises:
            SnapshotChanged: the archive was rewritten at the same time; call again.
            CorruptData: the list of its files is damaged.
        """
        ...


@dataclass(frozen=True, slots=True)
class ArchivedTimeline:
    """An archive at one time; its files are read on demand.

    Attributes:
        files: those with the newest instants first.
    """

    files: tuple[ArchiveFile, ...] = ()

    def instants(self, since: str = "", until: str | None = None) -> tuple[Instant, ...]:
        """Completed instants requested from ``since`` on and before ``until``, oldest first.

        Raises:
            SnapshotChanged: the archive was rewritten in the meantime; load it again.
            CorruptData: a file does not match the format, or is missing.
        """
        found = {
            (instant.requested_at, instant.action): instant
            for file in self.files
            if file.may_hold(since, until)
            for instant in file.instants()
            if since <= instant.requested_at and (until is None or instant.requested_at < until)
        }
        return tuple(found[name] for name in sorted(found))

    def find(self, requested_at: str) -> Instant | None:
        """Find the instant of that time; a savepoint only if there is no other. Errors as above."""
        ranked = sorted(self._named(requested_at), key=lambda i: i.action is Action.SAVEPOINT)
        return ranked[0] if ranked else None

    def read_commit(self, instant: Instant) -> CommitMetadata | None:
        """Metadata of an archived commit; None if it is not archived. Errors as above."""
        record = self.read(instant, Part.METADATA)
        if record is None:
            return None
        path = f"archived instant {instant}"
        if not record:
            raise CorruptData(path, None, "commit metadata", "an empty field")
        return build_commit(record, path)

    def read(self, instant: Instant, part: Part) -> Record | None:
        """Content of an archived instant; empty if it has none, None if it is not archived.

        Args:
            instant: in any state; it is archived only if it has completed.
            part: of its content.

        Raises:
            SnapshotChanged: the archive was rewritten in the meantime; load it again.
            CorruptData: a file does not match the format, or is missing.
        """
        completed = instant.completed(instant.completed_at or instant.requested_at)
        for file in self.files:
            if file.may_hold(instant.requested_at, just_after(instant.requested_at)):
                record = file.read(completed, part)
                if record is not None:
                    return record
        return None

    def _named(self, requested_at: str) -> tuple[Instant, ...]:
        return self.instants(requested_at, just_after(requested_at))


def just_after(requested_at: str) -> str:
    """Return the end of a range with only this time: a space sorts before every digit."""
    return requested_at + " "
