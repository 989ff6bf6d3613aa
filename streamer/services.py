"""Runs table services between two batches, and starts those that run in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from lakemark.execution.runner import Runner
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import Cleaned, clean
from lakemark.operations.compact_logs import (
    CommitCounts,
    compact_logs_if_due,
    execute_log_compaction,
    pending_log_compactions,
)
from lakemark.operations.metadata_table import maintain_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival import Archived
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import Maintained, MetadataPolicies
from lakemark.services.resize_plan import ResizePolicy
from streamer.background_compaction import SERVICE as COMPACTION
from streamer.background_replacement import describe_commit
from streamer.background_resizing import NOUNS as BUCKETS
from streamer.background_resizing import SERVICE as RESIZING
from streamer.background_services import BackgroundServices
from streamer.catalog_sync import CatalogSyncs
from streamer.clustering import TableClustering
from streamer.events import CompactionCompleted, Listener, ServiceCompleted
from streamer.partition_expiry import PartitionExpiry
from streamer.pipeline_hooks import PipelineHooks
from streamer.service_guard import ServiceGuard
from streamer.wording import counted

#: Names of work that pauses after its own failures.
_LISTING, _PLANNING = "list pending log compactions", "plan a log compaction"


@dataclass(frozen=True, slots=True)
class ServicePolicies:
    """When each service runs; None for a service that this pipeline does not run.

    Attributes:
        compaction: compacts merge-on-read tables.
        cleaning: deletes old file versions.
        archival: archives instants of the timeline.
        resizing: splits and merges buckets of tables with consistent hashing.
        min_logs: a log compaction is planned after this number of delta commits.
    """

    compaction: CompactionPolicy | None = None
    cleaning: CleaningPolicy | None = None
    archival: ArchivalPolicy | None = None
    resizing: ResizePolicy | None = None
    min_logs: int | None = None


class TableServices:
    """Runs the due services of the pipeline's tables.

    The order is: compaction merges files, a log compaction merges logs, a resize splits and merges
    buckets, a clustering combines files, expired partitions are deleted, cleaning deletes old
    files, and archival archives old instants. Then the metadata table is cleaned and archived, too,
    because its history also grows. A pending resize of another writer is executed in any case,
    because batches cannot write to its buckets, or must write rows twice. A pending log compaction
    is executed if this pipeline compacts, because it would stop the archival. Compaction, resizes
    and clusterings may run in the background.

    Args:
        writers: the writers of the pipeline's table and of its dead-letter table.
        policies: when each service runs.
        runner: executes the tasks.
        listener: receives the events of services.
        background: executes plans while batches continue; None to run all services between batches.
        expiries: delete expired partitions of the tables.
        clusterings: cluster the tables, and execute the clusterings of other writers.
        catalogs: register the table in catalogs; None if the pipeline has none.
        hooks: announce the commits of the pipeline; None if it has none.
    """

    def __init__(
        self,
        writers: Sequence[TableWriter],
        policies: ServicePolicies,
        runner: Runner,
        listener: Listener,
        background: BackgroundServices | None = None,
        expiries: Iterable[PartitionExpiry] = (),
        clusterings: Sequence[TableClustering] = (),
        catalogs: CatalogSyncs | None = None,
        hooks: PipelineHooks | None = None,
    ) -> None:
        self._writers, self._policies = list(writers), policies
        self._runner, self._listener = runner, listener
        self._background, self._clusterings = background, clusterings
        self._expiries = tuple(expiries)
        self._catalogs, self._hooks = catalogs, hooks
        self._guards = {
            url: ServiceGuard("log_compaction", url, listener)
            for url in (writer.table.location.url for writer in writers)
        }
        self._commit_counts = {url: CommitCounts() for url in self._guards}

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """The lock to hold while the open tables are used; see ``BackgroundServices``."""
        return nullcontext() if self._background is None else self._background.mutex

    @property
    def in_progress(self) -> str:
        """What runs in a thread and has not failed, such as ``compaction`` or ``hook``; else ""."""
        if self._background is not None and self._background.in_progress:
            return self._background.in_progress
        if self._catalogs is not None and self._catalogs.is_progressing:
            return "catalog sync"
        if self._hooks is not None and self._hooks.is_progressing:
            return "hook"
        return ""

    def check(self) -> None:
        """Raise if a service in the background must end the run.

        Raises:
            ServiceGivenUp: a plan has failed for too long.
        """
        if self._background is not None:
            self._background.check()

    def end(self, within_s: float) -> bool:
        """Stop asynchronous services; return whether a thread of them is still running."""
        ends_at = time.monotonic() + within_s
        is_syncing = self._catalogs is not None and self._catalogs.end(0.0)
        is_executing = self._background is not None and self._background.end(within_s)
        if is_syncing and self._catalogs is not None:
            is_syncing = self._catalogs.end(max(0.0, ends_at - time.monotonic()))
        return is_executing or is_syncing

    def run(self, refused: str = "") -> None:
        """Run the services that are due.

        Args:
            refused: the requested time of the clustering that prevented the last batch; "" if none
                did.
        """
        if self._hooks is not None:
            self._hooks.catch_up()
        self._sync_catalogs()
        for writer in self._writers:
            self._clear_dead(writer)
        if self._background is not None:
            self._background.start_next()
        for writer in self._writers:
            self._compact(writer)
            self._compact_logs(writer)
            self._resize(writer)
            for clustering in self._clusterings:
                if clustering.writer is writer:
                    clustering.run(refused, self._executed)
            for expiry in self._expiries:
                if expiry.writer is writer:
                    expiry.run_if_due()
            self._clean(writer.table)
            self._archive(writer.table)
            self._maintain_metadata_table(writer.table)
        self._sync_catalogs()

    def wait(self, stopping: threading.Event) -> None:
        """Wait for a service in the background; see ``BackgroundServices.wait``."""
        if self._background is not None:
            self._background.wait(stopping)

    def executes(self, planned: Instant) -> bool:
        """Return whether a plan is being executed in the background, or just was."""
        return self._background is not None and self._background.executes(planned.requested_at)

    def make_way(self, planned: Instant, stopping: threading.Event) -> bool:
        """Wait for a plan that refuses a batch; see ``BackgroundServices.make_way``."""
        background = self._background
        return background is not None and background.make_way(planned.requested_at, stopping)

    @property
    def _executed(self) -> str:
        return "" if self._background is None else self._background.instant

    def _is_in_background(self, service: str, writer: TableWriter) -> bool:
        return self._background is not None and self._background.handles(service, writer)

    def _sync_catalogs(self) -> None:
        if self._catalogs is not None:
            self._catalogs.request_if_changed()

    def _clear_dead(self, writer: TableWriter) -> None:
        started = time.monotonic()
        rolled_back = writer.clear_dead()
        if rolled_back:
            self._report("rollback", ", ".join(rolled_back), started, writer.table)

    def _compact(self, writer: TableWriter) -> None:
        if self._policies.compaction is None or self._is_in_background(COMPACTION, writer):
            return
        started = time.monotonic()
        for instant, metadata in writer.compact_if_due(self._policies.compaction, self._runner):
            seconds = time.monotonic() - started
            self._listener(
                CompactionCompleted.of(
                    instant.requested_at, metadata.write_stats, seconds, writer.table.location.url
                )
            )

    def _compact_logs(self, writer: TableWriter) -> None:
        table, min_logs = writer.table, self._policies.min_logs
        if self._policies.compaction is None or not table.properties.is_merge_on_read:
            return
        guard, runner = self._guards[table.location.url], self._runner
        if table.timeline.pending(Action.LOG_COMPACTION):
            for one in guard.attempt(_LISTING, partial(pending_log_compactions, table)):
                work = partial(execute_log_compaction, table, one, runner)
                self._attempt_logs(table, one[0].requested_at, work)
        if min_logs is not None:
            chosen = writer.settings.compacted_slices
            counts = self._commit_counts[table.location.url]
            work = partial(compact_logs_if_due, table, runner, min_logs, chosen, counts)
            self._attempt_logs(table, _PLANNING, work)

    def _attempt_logs(
        self, table: OpenTable, name: str, work: Callable[[], list[tuple[Instant, CommitMetadata]]]
    ) -> None:
        started, guard = time.monotonic(), self._guards[table.location.url]
        for instant, metadata in guard.attempt(name, work):
            text = f"{instant.requested_at}: {counted(len(metadata.write_stats), 'log')} written"
            self._report("log_compaction", text, started, table)

    def _resize(self, writer: TableWriter) -> None:
        if self._is_in_background(RESIZING, writer):
            return
        started = time.monotonic()
        for instant, metadata in writer.resize_if_due(self._policies.resizing, self._runner):
            summary = describe_commit(instant, metadata, BUCKETS)
            self._report(RESIZING, summary, started, writer.table, instant.requested_at)

    def _clean(self, table: OpenTable) -> None:
        if self._policies.cleaning is None:
            return
        started = time.monotonic()
        for cleaned in clean(table, self._policies.cleaning):
            self._report("cleaning", _clean_summary(cleaned), started, table)

    def _archive(self, table: OpenTable) -> None:
        policy = self._policies.archival
        if policy is None:
            return
        started = time.monotonic()
        archived = archive(table, policy, self._policies.cleaning)
        if archived is not None:
            self._report("archival", _archive_summary(archived), started, table)

    def _maintain_metadata_table(self, table: OpenTable) -> None:
        started = time.monotonic()
        policies = MetadataPolicies.for_data_table(self._policies.cleaning, self._policies.archival)
        maintained = maintain_metadata_table(table, policies)
        if maintained is not None:
            self._report("metadata", _metadata_summary(maintained), started, table)

    def _report(
        self, service: str, summary: str, started: float, table: OpenTable, instant: str = ""
    ) -> None:
        seconds = time.monotonic() - started
        self._listener(ServiceCompleted(service, summary, seconds, table.location.url, instant))


def _clean_summary(cleaned: Cleaned) -> str:
    plan = cleaned.plan
    kept = f", readable as of {plan.earliest_retained}" if plan.earliest_retained else ""
    return f"{cleaned.instant.requested_at}: {counted(len(plan.paths), 'file')} deleted{kept}"


def _archive_summary(archived: Archived) -> str:
    files = (
        f", {counted(len(archived.leftovers), 'file')} of dead writers deleted"
        if archived.leftovers
        else ""
    )
    start = archived.timeline.start
    return f"{counted(len(archived.instants), 'instant')}{files}, active since {start}"


def _metadata_summary(maintained: Maintained) -> str:
    rolled_back = (
        f", {counted(len(maintained.undone), 'commit')} of dead writers rolled back"
        if maintained.undone
        else ""
    )
    counts = (
        f"{counted(len(maintained.deleted), 'file')} deleted, "
        f"{counted(len(maintained.archived), 'instant')} archived"
    )
    return counts + rolled_back
