"""Keeps the metadata table small: deletes its old file slices, and archives its old instants.

The metadata table is itself a Hudi table, in a folder of the data table. Writers change it under
the lock of the data table. Its policies are derived from those of the data table, and its timeline
reaches back as far as the data table's timeline. Source:
``HoodieBackedTableMetadataWriter.performTableServices`` and
``HoodieMetadataWriteUtils.createMetadataWriteConfig`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil

from lakemark.metadata.abandoned_commits import abandoned_commits
from lakemark.metadata.consistency import SHARED_ACTIONS
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.valid_instants import INITIAL, MILLIS_DIGITS, first_initial
from lakemark.model.action import COMMITS, Action
from lakemark.model.instant import Instant
from lakemark.services import archival, cleaning
from lakemark.services.archival_plan import ArchivalPolicy, limit_of_metadata_table, plan
from lakemark.services.cleaning_plan import CleaningPolicy, Retention, earliest_retained
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.view.file_lister import StorageFileLister
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.view_loader import load_view

_MIN_COMMITS, _FACTOR = 20, 1.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetadataPolicies:
    """The cleaning and archival policies of a metadata table.

    Attributes:
        cleaning: which files are kept.
        archival: how long the active timeline may be.
    """

    cleaning: CleaningPolicy
    archival: ArchivalPolicy

    @classmethod
    def for_data_table(
        cls, cleaning: CleaningPolicy | None = None, archival: ArchivalPolicy | None = None
    ) -> MetadataPolicies:
        """Derive the policies of a metadata table from those of its data table.

        The metadata table retains a fifth more commits, hours or file versions than the data table,
        but at least twenty commits (``hoodie.metadata.derive.from.datatable.clean.policy``). The
        metadata table keeps at least one more active commit than the data table does, and at least
        one more than its own cleans retain.

        Args:
            cleaning: cleaning policy of the data table; None if another engine cleans it, with an
                unknown policy.
            archival: archival policy of the data table; None if another engine archives it.
        """
        of_data, active = cleaning or CleaningPolicy(), archival or ArchivalPolicy()
        own = CleaningPolicy(
            of_data.retention,
            commits=max(_MIN_COMMITS, int(of_data.commits * _FACTOR)),
            hours=ceil(of_data.hours * _FACTOR),
            file_versions=ceil(of_data.file_versions * _FACTOR),
        )
        least = active.min_commits + 1
        if own.retention is Retention.COMMITS:
            least = max(least, own.commits + 1)
        most = least + active.max_commits - active.min_commits
        return cls(own, ArchivalPolicy(least, most, EVERY_DELTA_COMMITS))


class _MetadataTableContext(TableContext):
    """The context of a metadata table, which needs no heartbeats.

    The reason is that a metadata table is written only under the data table's lock.
    """

    @contextmanager
    def alive(self, instant: str) -> Iterator[None]:
        """Run a block without a heartbeat."""
        yield


@dataclass(frozen=True, slots=True)
class Maintained:
    """The result of ``maintain``.

    Attributes:
        deleted: paths of the deleted files, from the metadata table's root.
        archived: instants that were removed from the metadata table's active timeline.
        timeline: the metadata table's timeline afterwards.
        undone: pending commits of dead writers that were rolled back.
    """

    deleted: tuple[str, ...]
    archived: tuple[Instant, ...]
    timeline: Timeline
    undone: tuple[Instant, ...] = ()


def maintain(
    context: TableContext, own: Timeline, data: Timeline, policies: MetadataPolicies | None = None
) -> Maintained | None:
    """Clean and archive a metadata table; if nothing is due, return None and read nothing.

    Pending commits that no writer will complete are rolled back first, because they would block
    cleaning and archival forever.

    Args:
        context: the data table.
        own: the metadata table's timeline, as last known.
        data: the data table's timeline, as last known; with an older timeline, more is kept.
        policies: the policies of the metadata table; None for those that are derived from Apache
            Hudi's defaults for the data table.
    """
    policies = policies or MetadataPolicies.for_data_table()
    clock = context.timeline.clock
    undone: tuple[Instant, ...] = ()
    if abandoned_commits(own, data):
        own, undone = _undo_abandoned(context)
    is_clean_due = _is_clean_due(own, policies.cleaning, clock)
    archival_policy = policies.archival.with_commits_of_cleaning(policies.cleaning, own, clock)
    version = context.timeline.version
    is_long = bool(plan(own, archival_policy, version, _keep_from(own, data)))
    if not (is_clean_due or is_long):
        return Maintained((), (), own, undone) if undone else None
    metadata = _as_table(context)
    deleted = _clean(metadata, own, policies.cleaning) if is_clean_due else ()
    archived = _archive(metadata, data, policies) if is_long else ()
    return Maintained(deleted, archived, metadata.timeline.load(), undone)


def _undo_abandoned(context: TableContext) -> tuple[Timeline, tuple[Instant, ...]]:
    """Roll back commits of the metadata table that no writer will complete.

    Returns:
        The metadata table's timeline afterwards, and the commits that were rolled back.
    """
    metadata = _as_table(context)
    with context.lock.hold(LOCK_WAIT_S) as lease:
        store = MetadataStore(metadata.storage, metadata.timeline, metadata.timeline.load())
        rollbacks = store.instants.pending_rollbacks(store.timeline)
        in_rollback = {plan.instant for _, plan in rollbacks}
        # The data table's timeline is loaded last, because a data instant is created before its
        # commit to the metadata table.
        data = context.timeline.load()
        found = abandoned_commits(store.timeline, data, in_rollback)
        for commit in found:
            store.undo(commit.requested_at, lease.check)
            _log.warning("%s of the metadata table was undone: its writer died", commit)
        return store.timeline, tuple(found)


def _is_clean_due(own: Timeline, policy: CleaningPolicy, clock: TimelineClock) -> bool:
    """Return whether a clean is pending, or a compaction has made slices that may be deleted."""
    if own.pending(Action.CLEAN):
        return True
    compactions, last = own.completed(Action.COMMIT), cleaning.last_clean(own)
    if policy.retention is Retention.FILE_VERSIONS:
        new = (i for i in compactions if last is None or i.requested_at > last.requested_at)
        # Archival may remove compactions from the timeline as fast as new ones complete.
        is_over = len(compactions) >= policy.file_versions or own.has_history
        return is_over and any(new)
    until, since = _retained_from(own, policy, clock), ""
    if last is not None:
        then = Timeline.of(i for i in own.instants if i.requested_at < last.requested_at)
        since = _retained_from(then, policy, clock)
    return any(since <= i.requested_at < until for i in compactions)


def _retained_from(own: Timeline, policy: CleaningPolicy, clock: TimelineClock) -> str:
    """Return the requested time of the earliest commit to retain; "" to retain everything.

    Hours are counted back from the newest commit.
    """
    newest = max((i.requested_at for i in own.completed(*COMMITS)), default=INITIAL)
    if newest.startswith(INITIAL):
        return ""
    earliest = earliest_retained(own, policy, clock.parse(newest[:MILLIS_DIGITS]), clock)
    return earliest.requested_at if earliest else ""


def _keep_from(own: Timeline, data: Timeline) -> Iterator[str]:
    """Yield the instants that stay active because of the data table's timeline.

    While the data table's timeline has instants from before the metadata table was built, the
    instant that built it is kept, too. That instant shows which older instants the metadata
    table includes.
    """
    yield from limit_of_metadata_table(data)
    made = first_initial(own)
    if made is not None:
        at = made.completed_at or ""
        if any((i.completed_at or "") <= at for i in data.completed(*SHARED_ACTIONS)):
            yield made.requested_at


def _as_table(context: TableContext) -> TableContext:
    """Return the context of the metadata table, whose lock is that of its data table."""
    storage = FolderStorage(context.storage, METADATA_FOLDER)
    clock = context.timeline.clock
    instants = TimelineStore.of_table(storage, read_properties(storage), clock=clock)
    return _MetadataTableContext(
        storage=storage,
        timeline=instants,
        lock=context.lock,
        multi_writer=context.multi_writer,
    )


def _clean(metadata: TableContext, own: Timeline, policy: CleaningPolicy) -> tuple[str, ...]:
    """Execute the pending cleans, or plan and execute a new one; return the deleted paths."""
    claimed = ((one, cleaning.claim(metadata, one)) for one in own.pending(Action.CLEAN))
    todo = [(one, plan) for one, plan in claimed if plan is not None]
    if not todo:
        requested = cleaning.request(metadata, partial(_view_at, metadata), policy)
        todo = [requested] if requested else []
    for pending, planned in todo:
        cleaning.execute(metadata, pending, planned)
    return tuple(path for _, planned in todo for path in planned.paths)


def _view_at(metadata: TableContext, own: Timeline) -> FileSystemView:
    lister = StorageFileLister(metadata.storage)
    return load_view(metadata.timeline, own, lister, metadata.timeline.version)


def _archive(
    metadata: TableContext, data: Timeline, policies: MetadataPolicies
) -> tuple[Instant, ...]:
    archived = archival.archive(
        metadata, policies.archival, policies.cleaning, lambda own: _keep_from(own, data)
    )
    return archived.instants if archived else ()
