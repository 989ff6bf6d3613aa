"""Cleaning and archival of an open table, whose timeline and view are carried on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from checkpoints.lookup import find_commits_to_keep
from lakemark.model.action import Action
from lakemark.model.clean_plan import CleanPlan
from lakemark.model.instant import Instant
from lakemark.services import archival, cleaning
from lakemark.services.archival import Archived, metadata_compacted_at, metadata_table_limit
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.metadata_table_services import Maintained, MetadataPolicies, maintain
from lakemark.table import Table
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.view.file_system_view import FileSystemView


@dataclass(frozen=True, slots=True)
class Cleaned:
    """One clean that was completed.

    Attributes:
        instant: the clean.
        plan: what it deleted.
    """

    instant: Instant
    plan: CleanPlan


def clean(table: Table, policy: CleaningPolicy) -> list[Cleaned]:
    """Finish pending cleans, whoever planned them, then plan and do one if there is anything to do.

    Looks at the timeline as the last commit left it; the plan is made from a new one.

    Raises:
        Refused: a restore is pending.
    """
    check_no_restore(table.timeline)
    pending = [i for i in table.timeline.pending(Action.CLEAN) if cleaning.is_free(table.access, i)]
    done = [one for one in map(partial(_finish, table), pending) if one is not None]
    if cleaning.propose(table.store, table.timeline, table.view, policy) is None:
        return done
    requested = cleaning.request(table.access, lambda timeline: _view_at(table, timeline), policy)
    if requested is not None:
        done.append(_execute(table, *requested))
    return done


def archivable(
    table: Table, policy: ArchivalPolicy, cleaning_policy: CleaningPolicy | None
) -> tuple[Instant, ...]:
    """The instants that ``archive`` would take off the active timeline now; maybe none."""
    keep_from = partial(_keep_from, table, table.metadata_compacted_at)
    return archival.propose(table.store, table.timeline, policy, cleaning_policy, keep_from)


def archive(
    table: Table, policy: ArchivalPolicy, cleaning_policy: CleaningPolicy | None
) -> Archived | None:
    """Archive what is due; None when nothing is.

    Commits that tell how far streamers have read stay, as do those that the metadata table needs.

    Args:
        table: the table.
        policy: how long its active timeline may be.
        cleaning_policy: of its cleans, whose commits stay; None without cleans.

    Raises:
        Refused: a restore is pending.
    """
    check_no_restore(table.timeline)
    if not archivable(table, policy, cleaning_policy):
        return None
    keep_from = partial(_keep_from, table, None)
    archived = archival.archive(table.access, policy, cleaning_policy, keep_from)
    if archived is not None:
        table.note_archived(archived.leftovers, archived.timeline)
    return archived


def maintain_metadata_table(table: Table, policies: MetadataPolicies) -> Maintained | None:
    """Clean and archive the table's metadata table itself; None when neither is due.

    Looks at its timeline as our own commits know it; without one there is nothing to do yet.
    """
    own = table.metadata_timeline
    maintained = maintain(table.access, own, table.timeline, policies) if own is not None else None
    if maintained is not None:
        table.note_metadata_services(maintained.timeline)
    return maintained


def maintain_metadata_table_now(table: Table, policies: MetadataPolicies) -> Maintained | None:
    """The same for who has not committed: looks itself, and compacts it, too, if that is due."""
    if not table.properties.metadata_partitions:
        return None
    table.compact_metadata_table()
    return maintain_metadata_table(table, policies)


def _keep_from(table: Table, compacted_at: str | None, timeline: Timeline) -> Iterable[str]:
    """What a table's archival must leave; looks itself when the metadata table was compacted."""
    yield from find_commits_to_keep(table, timeline)
    if table.properties.metadata_partitions:
        if compacted_at is None:
            compacted_at = metadata_compacted_at(table.storage, table.store.clock)
        yield from metadata_table_limit(compacted_at, timeline)


def _execute(table: Table, pending: Instant, plan: CleanPlan) -> Cleaned:
    instant, timeline = cleaning.execute(table.access, pending, plan)
    table.note_clean(instant, plan, timeline)
    return Cleaned(instant, plan)


def _finish(table: Table, pending: Instant) -> Cleaned | None:
    """Execute a pending clean; None if it was removed instead, or has ended."""
    plan = cleaning.take_up(table.access, pending)
    if plan is not None:
        return _execute(table, pending, plan)
    table.refresh()
    return None


def _view_at(table: Table, timeline: Timeline) -> FileSystemView:
    table.refresh(timeline)
    return table.view()
