"""Archives an open table: moves old instants from the active to the archived timeline."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.services import archival
from lakemark.services.archival import (
    Archived,
    metadata_compacted_at,
    metadata_table_limit,
    replaced_and_not_cleaned,
)
from lakemark.services.archival_plan import ArchivalPolicy, is_due, needed_on
from lakemark.services.cleaning_plan import CleaningPolicy, commits_by_request
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.streamer_progress import commits_kept_active


def plan_archival(
    table: OpenTable, policy: ArchivalPolicy, cleaning_policy: CleaningPolicy | None
) -> tuple[Instant, ...]:
    """Return the instants that ``archive`` would move to the archived timeline now, if any."""
    keep_from = partial(_keep_from, table, table.metadata_writer.compacted_at)
    return archival.propose(table.store, table.timeline, policy, cleaning_policy, keep_from)


def explain_no_archival(
    table: OpenTable, policy: ArchivalPolicy, cleaning_policy: CleaningPolicy | None
) -> str:
    """Return why ``plan_archival`` finds no instants, as a clause for a message."""
    timeline = table.timeline
    active = f"{len(commits_by_request(timeline))} commits are active"
    if not is_due(timeline, policy):
        return f"{active}, and archival begins with more than {policy.max_commits}"
    wanted = policy.with_commits_of_cleaning(cleaning_policy, timeline, table.store.clock)
    if not is_due(timeline, wanted):
        return (
            f"{active}, but because of the commits that cleaning retains (--retain-commits), "
            f"archival begins with more than {wanted.max_commits}"
        )
    needed = [
        *needed_on(timeline, wanted, table.version),
        *(
            (i, f"the files that {i} replaced are not cleaned yet")
            for i in replaced_and_not_cleaned(table.store, timeline)
        ),
        *_needed_elsewhere(table, table.metadata_writer.compacted_at, timeline),
    ]
    first, reason = min(needed, default=(timeline.start, "they are needed"))
    return f"all instants from {first} on stay active, because {reason}"


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
    """Yield the commits that archival must keep; see ``_needed_elsewhere``."""
    return (instant for instant, _ in _needed_elsewhere(table, compacted_at, timeline))


def _needed_elsewhere(
    table: OpenTable, compacted_at: str | None, timeline: Timeline
) -> Iterable[tuple[str, str]]:
    """Yield the commits that pipelines and the metadata table need, each with the reason.

    Args:
        table: the open table.
        compacted_at: when the metadata table was last compacted; None to look this time up.
        timeline: the active timeline.
    """
    for one in commits_kept_active(table.store, timeline):
        yield one, f"{one} records how far a pipeline has read"
    if table.properties.metadata_partitions:
        if compacted_at is None:
            compacted_at = metadata_compacted_at(table.storage, table.store.clock)
        for one in metadata_table_limit(compacted_at, timeline):
            yield one, f"the metadata table was not compacted after {one}"
