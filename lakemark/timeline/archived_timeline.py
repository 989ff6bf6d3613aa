"""Finds archived instants without reading the whole archive.

An archive is a set of immutable files. Each file contains the instants of a range of requested
times. A file is read only when a caller requests an instant or a range that the file may contain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from lakemark.errors import CorruptData
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.timeline.content import Record, build_commit


class Part(StrEnum):
    """The metadata or the plan of an archived instant. The value is a column name of the history.

    Attributes:
        METADATA: the content of the instant's completed file.
        PLAN: the plan of a compaction, a clean or a clustering, from the instant's requested file.
    """

    METADATA = "metadata"
    PLAN = "plan"


class ArchiveFile(Protocol):
    """One file of an archive."""

    def may_hold(self, since: str, until: str | None) -> bool:
        """Return whether the file may contain an instant that was requested in a time range.

        The file's name decides; the file is not read.

        Args:
            since: the first requested time of the range.
            until: the end of the range, exclusive; None if the range has no end.
        """
        ...

    def instants(self) -> Sequence[Instant]:
        """Return the completed instants of the file.

        Raises:
            SnapshotChanged: the archive was rewritten in the meantime; load the archive again.
            CorruptData: the file does not match the format, or is missing.
        """
        ...

    def read(self, instants: Collection[Instant], part: Part) -> Iterator[tuple[Instant, Record]]:
        """Yield the plan or the metadata of each of the completed instants that the file contains.

        The file is read once. A record is empty if the instant has no plan or metadata. Raises what
        ``instants`` raises.
        """
        ...


class Archive(Protocol):
    """The archived instants of a table."""

    def load(self) -> ArchivedTimeline:
        """List the archive's files.

        Raises:
            SnapshotChanged: the archive was rewritten at the same time; call again.
            CorruptData: the list of the archive's files is damaged.
        """
        ...


@dataclass(frozen=True, slots=True)
class ArchivedTimeline:
    """The files of an archive when the archive was loaded. A file is read on demand.

    Attributes:
        files: the archive's files; files with newer instants come first.
    """

    files: tuple[ArchiveFile, ...] = ()

    def instants(self, since: str = "", until: str | None = None) -> tuple[Instant, ...]:
        """Return the completed instants requested in a time range, oldest first.

        Args:
            since: the first requested time of the range.
            until: the end of the range, exclusive; None if the range has no end.

        Raises:
            SnapshotChanged: the archive was rewritten in the meantime; load the archive again.
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

    def reaches_before(self, requested_at: str) -> bool:
        """Return whether the archive has an older instant. Raises what ``instants`` raises.

        Archives are shortened from their beginning.
        """
        older = (file for file in reversed(self.files) if file.may_hold("", requested_at))
        return any(one.requested_at < requested_at for file in older for one in file.instants())

    def find(self, requested_at: str) -> Instant | None:
        """Find the instant requested at a time. Raises what ``instants`` raises.

        A savepoint has the requested time of its commit. The savepoint is returned only if the
        archive lacks the commit.
        """
        ranked = sorted(self._named(requested_at), key=lambda i: i.action is Action.SAVEPOINT)
        return ranked[0] if ranked else None

    def read_commit(self, instant: Instant) -> CommitMetadata | None:
        """Return the metadata of a commit; None if the commit is not archived.

        Raises what ``read`` raises.
        """
        record = self.read(instant, Part.METADATA)
        return None if record is None else _commit(instant, record)

    def read_commits(self, instants: Iterable[Instant]) -> Iterator[tuple[Instant, CommitMetadata]]:
        """Yield the metadata of those of the commits that are archived; see ``read_all``."""
        for instant, record in self.read_all(instants, Part.METADATA):
            yield instant, _commit(instant, record)

    def read_all(self, instants: Iterable[Instant], part: Part) -> Iterator[tuple[Instant, Record]]:
        """Yield the plan or the metadata of those of the completed instants that are archived.

        Each file of the archive is read at most once, so the order is that of the files. Records
        and errors are as for ``read``.
        """
        left = {(one.requested_at, one.action): one for one in instants}
        for file in self.files:
            wanted = [i for i in left.values() if _may_hold(file, i)]
            for instant, record in file.read(wanted, part) if wanted else ():
                del left[instant.requested_at, instant.action]
                yield instant, record

    def read(self, instant: Instant, part: Part) -> Record | None:
        """Return the plan or the metadata of an archived instant.

        The record is empty if the instant has no plan or metadata. The result is None if the
        instant is not archived.

        Args:
            instant: the instant, in any state. Only completed instants are archived.
            part: whether to read the plan or the metadata.

        Raises:
            SnapshotChanged: the archive was rewritten in the meantime; load the archive again.
            CorruptData: a file does not match the format, or is missing.
        """
        completed = instant.completed(instant.completed_at or instant.requested_at)
        for file in self.files:
            if _may_hold(file, instant):
                for _, record in file.read([completed], part):
                    return record
        return None

    def _named(self, requested_at: str) -> tuple[Instant, ...]:
        return self.instants(requested_at, just_after(requested_at))


def _may_hold(file: ArchiveFile, instant: Instant) -> bool:
    return file.may_hold(instant.requested_at, just_after(instant.requested_at))


def _commit(instant: Instant, record: Record) -> CommitMetadata:
    path = f"archived instant {instant}"
    if not record:
        raise CorruptData(path, None, "commit metadata", "an empty field")
    return build_commit(record, path)


def just_after(requested_at: str) -> str:
    """Return the exclusive end of a range that contains only ``requested_at``.

    A space is appended, because a space sorts before every digit.
    """
    return requested_at + " "
