"""Archives an open table: moves old instants from the active to the archived timeline."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.services import archival
from lakemark.services.archival import Archived, metadata_compacted_at, metadata_table_limit
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.streamer_progress import commits_kept_active


def plan_archival(
    table: OpenTable, policy: ArchivalPolicy, cleaning_policy: CleaningPolicy | None
) -> tuple[Instant, ...]:
    """Return the instants that ``archive`` would move to the archived timeline now, if any."""
    keep_from = partial(_keep_from, table, table.metadata_writer.compacted_at)
    return archival.propose(table.store, table.timeline, policy, cleaning_policy, keep_from)


def archive(
    table: OpenTable, policy: ArchivalPolicy, cleaning_policy: CleaningPolicy | None
) -> Archived | None:
    """Archive the instants that the policy no longer keeps; return None if there are none.

    Two kinds of commits stay active: commits that record how far streamers have read, and commits
    that the metadata table needs.

    Args:
        table: the open table.
        policy: how many instants the active timeline keeps.
        cleaning_policy: the policy of the table's cleans, which need some of the commits; None if
            the table is not cleaned.

    Raises:
        Refused: a restore is pending.
    """
    check_no_restore(table.timeline)
    if not plan_archival(table, policy, cleaning_policy):
        return None
    keep_from = partial(_keep_from, table, None)
    archived = archival.archive(table.context, policy, cleaning_policy, keep_from)
    if archived is not None:
        table.snapshot.carry_archival(archived.leftovers, archived.timeline)
    return archived


def _keep_from(table: OpenTable, compacted_at: str | None, timeline: Timeline) -> Iterable[str]:
    """Yield the commits that archival must keep.

    Args:
        table: the open table.
        compacted_at: when the metadata table was last compacted; None to look this time up.
        timeline: the active timeline.
    """
    yield from commits_kept_active(table.store, timeline)
    if table.properties.metadata_partitions:
        if compacted_at is None:
            compacted_at = metadata_compacted_at(table.storage, table.store.clock)
        yield from metadata_table_limit(compacted_at, timeline)
