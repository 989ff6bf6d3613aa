"""Runs table services between two batches; compaction may also run asynchronously."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lakemark.execution.runner import Runner
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.compact_logs import (
    CommitCounts,
    compact_logs_if_due,
    execute_log_compaction,
    pending_log_compactions,
)
from lakemark.operations.metadata_table import maintain_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import Maintained, MetadataPolicies
from lakemark.services.resize_plan import ResizePolicy
from streamer.async_compaction import AsyncCompactor
from streamer.bucket_resizing import BucketResizing
from streamer.catalog_sync import CatalogSyncs
from streamer.clustering import TableClustering
from streamer.events import CompactionCompleted, Listener, ServiceCompleted
from streamer.partition_expiry import PartitionExpiry
from streamer.pipeline_hooks import PipelineHooks
from streamer.requested_services import RequestedServices
from streamer.service_guard import ServiceGuard
from streamer.service_summaries import archive_summary, clean_summary
from streamer.wording import counted

#: Names of work that pauses after its own failures.
_LISTING, _PLANNING = "list pending log compactions", "plan a log compaction"


class StreamServices(Protocol):
    """The table services of a stream: those of one table, or of many."""

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """The lock to hold while the open tables are used."""
        ...

    @property
    def has_requests(self) -> bool:
        """Whether a service was requested that has not begun."""
        ...

    @property
    def in_progress(self) -> str:
        """The asynchronous work that runs and has not failed; "" if there is none."""
        ...

    def check(self) -> None:
        """Raise an error if asynchronous work must end the run."""
        ...

    def end(self, within_s: float) -> bool:
        """Stop asynchronous work; return whether a thread of it is still running."""
        ...

    def run(self, refused: str = "") -> None:
        """Run the services that are due."""
        ...

    def wait(self, stopping: threading.Event) -> None:
        """Wait for asynchronous work that is behind."""
        ...


@dataclass(frozen=True, slots=True)
class ServicePolicies:
    """When each service runs; None for a service that this pipeline does not run.

    Attributes:
        compaction: compacts merge-on-read tables.
        cleaning: deletes old file versions.
        archival: archives instants of the timeline.
        resizing: splits and merges buckets of tables with consistent hashing.
        min_logs: a log compaction is planned after this number of delta commits.
        prepares_resizes: whether buckets are prepared while batches are written.
    """

    compaction: CompactionPolicy | None = None
    cleaning: CleaningPolicy | None = None
    archival: ArchivalPolicy | None = None
    resizing: ResizePolicy | None = None
    min_logs: int | None = None
    prepares_resizes: bool = False


class TableServices:
    """Runs the due services of the pipeline's tables.

    The order is: compaction merges files, a log compaction merges logs, a resize splits and merges
    buckets, a clustering combines files, expired partitions are deleted, cleaning deletes old
    files, and archival archives old instants. Then the metadata table is cleaned and archived, too,
    because its history also grows. A pending resize of another writer is executed in any case,
    because no row can be written to its buckets. A pending log compaction is executed if this
    pipeline compacts, because it would stop the archival.

    Args:
        writers: the writers of the pipeline's table and of its dead-letter table.
        policies: when each service runs.
        runner: executes the tasks.
        listener: receives the events of services.
        compactor: compacts asynchronously; None to compact between batches.
        expiries: delete expired partitions of the tables.
        clusterings: cluster the tables, and execute the clusterings of other writers.
        catalogs: register the table in catalogs; None if the pipeline has none.
        hooks: announce the commits of the pipeline; None if it has none.
        requested: services that clients of the endpoint ask for; None if they cannot.
    """

    def __init__(
        self,
        writers: Sequence[TableWriter],
        policies: ServicePolicies,
        runner: Runner,
        listener: Listener,
        compactor: AsyncCompactor | None = None,
        expiries: Iterable[PartitionExpiry] = (),
        clusterings: Sequence[TableClustering] = (),
        catalogs: CatalogSyncs | None = None,
        hooks: PipelineHooks | None = None,
        requested: RequestedServices | None = None,
    ) -> None:
        self._writers, self._policies = list(writers), policies
        self._runner, self._listener = runner, listener
        self._compactor, self._clusterings = compactor, clusterings
        self._resizing = BucketResizing(
            policies.resizing, runner, listener, in_background=policies.prepares_resizes
        )
        self._expiries = tuple(expiries)
        self._catalogs, self._hooks, self._requested = catalogs, hooks, requested
        self._guards = {
            url: ServiceGuard("log_compaction", url, listener)
            for url in (writer.table.location.url for writer in writers)
        }
        self._commit_counts = {url: CommitCounts() for url in self._guards}

    @property
    def mutex(self) -> AbstractContextManager[object]:
        """The lock to hold while the open tables are used; see ``AsyncCompactor``."""
        return nullcontext() if self._compactor is None else self._compactor.mutex

    @property
    def requested(self) -> RequestedServices | None:
        """Takes requests for services; None if there are none to request."""
        return self._requested

    @property
    def has_requests(self) -> bool:
        """Whether a service was requested that has not begun."""
        return self._requested is not None and self._requested.are_waiting

    @property
    def in_progress(self) -> str:
        """``compaction``, ``catalog sync`` or ``hook`` if one runs that has not failed, else ""."""
        if self._compactor is not None and self._compactor.is_progressing:
            return "compaction"
        if self._catalogs is not None and self._catalogs.is_progressing:
            return "catalog sync"
        if self._hooks is not None and self._hooks.is_progressing:
            return "hook"
        return ""

    def check(self) -> None:
        """Raise if asynchronous compaction must end the run.

        Raises:
            CompactionGivenUp: a compaction has failed for too long.
        """
        if self._compactor is not None:
            self._compactor.check()

    def end(self, within_s: float) -> bool:
        """Stop asynchronous services; return whether a thread of them is still running."""
        ends_at = time.monotonic() + within_s
        ends = (self._resizing.end, *(one.end for one in self._clusterings))
        preparing = [end for end in ends if end(0.0)]
        is_syncing = self._catalogs is not None and self._catalogs.end(0.0)
        is_compacting = self._compactor is not None and self._compactor.end(within_s)
        if is_syncing and self._catalogs is not None:
            is_syncing = self._catalogs.end(max(0.0, ends_at - time.monotonic()))
        preparing = [end for end in preparing if end(max(0.0, ends_at - time.monotonic()))]
        return is_compacting or is_syncing or bool(preparing)

    def run(self, refused: str = "") -> None:
        """Run the services that are due.

        Args:
            refused: the requested time of the clustering that prevented the last batch; "" if none
                did.
        """
        if self._hooks is not None:
            self._hooks.catch_up()
        self._sync_catalogs()
        for writer in tuple(self._writers):
            self._clear_dead(writer)
            self._compact(writer)
            self._compact_logs(writer)
            self._resizing.run(writer)
            for clustering in self._clusterings:
                if clustering.writer is writer:
                    clustering.run(refused)
            for expiry in self._expiries:
                if expiry.writer is writer:
                    expiry.run_if_due()
            self._clean(writer.table)
            self._archive(writer.table)
            self._maintain_metadata_table(writer.table)
        if self._requested is not None:
            self._requested.run()
        self._sync_catalogs()

    def wait(self, stopping: threading.Event) -> None:
        """Wait for asynchronous compaction if it is behind; see ``AsyncCompactor.wait``."""
        if self._compactor is not None:
            self._compactor.wait(stopping)

    def _sync_catalogs(self) -> None:
        if self._catalogs is not None:
            self._catalogs.request_if_changed()

    def _clear_dead(self, writer: TableWriter) -> None:
        started = time.monotonic()
        rolled_back = writer.clear_dead()
        if rolled_back:
            self._report("rollback", ", ".join(rolled_back), started, writer.table)

    def _compact(self, writer: TableWriter) -> None:
        if self._policies.compaction is None or self._resizing.is_preparing(writer):
            return
        if self._is_clustering_prepared(writer):
            return
        if self._compactor is not None:
            if self._compactor.start_next(writer):  # then the other tables come first next time
                self._writers.remove(writer)
                self._writers.append(writer)
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
        if min_logs is not None and not self._is_clustering_prepared(writer):
            chosen = writer.settings.compacted_slices
            counts = self._commit_counts[table.location.url]
            work = partial(compact_logs_if_due, table, runner, min_logs, chosen, counts)
            self._attempt_logs(table, _PLANNING, work)

    def _is_clustering_prepared(self, writer: TableWriter) -> bool:
        return any(one.writer is writer and one.is_preparing for one in self._clusterings)

    def _attempt_logs(
        self, table: OpenTable, name: str, work: Callable[[], list[tuple[Instant, CommitMetadata]]]
    ) -> None:
        started, guard = time.monotonic(), self._guards[table.location.url]
        for instant, metadata in guard.attempt(name, work):
            text = f"{instant.requested_at}: {counted(len(metadata.write_stats), 'log')} written"
            self._report("log_compaction", text, started, table)

    def _clean(self, table: OpenTable) -> None:
        if self._policies.cleaning is None:
            return
        started = time.monotonic()
        for cleaned in clean(table, self._policies.cleaning):
            self._report("cleaning", clean_summary(cleaned), started, table)

    def _archive(self, table: OpenTable) -> None:
        policy = self._policies.archival
        if policy is None:
            return
        started = time.monotonic()
        archived = archive(table, policy, self._policies.cleaning)
        if archived is not None:
            self._report("archival", archive_summary(archived), started, table)

    def _maintain_metadata_table(self, table: OpenTable) -> None:
        started = time.monotonic()
        policies = MetadataPolicies.for_data_table(self._policies.cleaning, self._policies.archival)
        maintained = maintain_metadata_table(table, policies)
        if maintained is not None:
            self._report("metadata", _metadata_summary(maintained), started, table)

    def _report(self, service: str, summary: str, started: float, table: OpenTable) -> None:
        seconds = time.monotonic() - started
        self._listener(ServiceCompleted(service, summary, seconds, table.location.url))


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
