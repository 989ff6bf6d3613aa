"""The result of a table service, a rollback or a restore, for its caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceResult:
    """The result of a table service, a rollback or a restore.

    Attributes:
        instants: requested times of the instants that were completed, archived or undone.
        files: paths of the files that a compaction, a clustering or a resize of buckets wrote, or
            that any other operation deleted.
    """

    instants: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def result_of_commits(done: Sequence[tuple[Instant, CommitMetadata]]) -> ServiceResult:
    """Return the result of a service that completed some commits."""
    return ServiceResult(
        instants=tuple(instant.requested_at for instant, _ in done),
        files=tuple(stat.path for _, made in done for stat in made.write_stats if stat.path),
    )
