"""Finds pending commits of a metadata table that no writer will complete.

A writer commits to the metadata table before its data instant completes. (The data instant is the
data table's instant with the same requested time.) If the writer dies in between, the rollback of
the data instant also undoes the commit in the metadata table. But a suspended writer may resume
after that rollback, request its commit in the metadata table, and die. Such a pending commit
prevents cleaning and archival of all later instants.

Source: Apache Hudi rolls back every pending commit of the metadata table before it writes there
(``HoodieFailedWritesCleaningPolicy.EAGER``). With streaming writes, Apache Hudi begins the commit
together with the data instant, and the next attempt at the data instant rolls the commit back
(``HoodieBackedTableMetadataWriter.startCommit``).
"""

from __future__ import annotations

from collections.abc import Collection

from lakemark.metadata.valid_instants import INITIAL, MILLIS_DIGITS
from lakemark.model.action import Action
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline


def abandoned_commits(
    metadata: Timeline, data: Timeline, in_rollback: Collection[str] = ()
) -> list[Instant]:
    """Return pending delta commits of the metadata table that no writer will complete.

    A commit of a data instant is abandoned if the data instant has completed or is gone. While the
    data instant is pending, its writer or the next attempt completes or undoes the commit. A commit
    that creates a partition is written under the data table's lock, or while an indexing action is
    pending. So it is abandoned if no indexing is pending, because the caller holds the lock. In
    table version 6, Apache Hudi also writes commits whose requested times are longer than those of
    data instants. Such commits are never returned.

    Args:
        metadata: the metadata table's timeline.
        data: the data table's timeline, loaded after ``metadata``.
        in_rollback: requested times of commits that a pending rollback of Apache Hudi undoes.
    """
    return [
        commit
        for commit in metadata.pending(Action.DELTA_COMMIT)
        if len(commit.requested_at) <= MILLIS_DIGITS
        and not (commit.requested_at.startswith(INITIAL) and data.pending(Action.INDEXING))
        and _is_not_pending(data, commit.requested_at)
        and commit.requested_at not in in_rollback
    ]


def _is_not_pending(data: Timeline, requested_at: str) -> bool:
    return all(i.is_completed for i in data.instants if i.requested_at == requested_at)
