"""Runs table services that clients of the endpoint ask for, between two batches.

A requested service runs now, although it is not due. Its other settings are those of the pipeline,
and only services that the pipeline runs anyway can be requested: another process may run the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from lakemark.execution.runner import Runner
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import ALWAYS
from streamer.async_compaction import AsyncCompactor
from streamer.clustering import TableClustering
from streamer.events import (
    CompactionCompleted,
    Listener,
    RequestedServiceFailed,
    ServiceCompleted,
)
from streamer.service_summaries import archive_summary, clean_summary


class RunnableService(StrEnum):
    """The services that can be requested; the value is the last part of the path of a request."""

    COMPACTION = "compaction"
    CLUSTERING = "clustering"
    CLEANING = "cleaning"
    ARCHIVAL = "archival"


@dataclass(frozen=True, slots=True)
class RequestPolicies:
    """What requested services do; None for a service that the pipeline does not run.

    Attributes:
        compacts: whether the pipeline compacts.
        cleaning: how far back queries can go.
        archival: how long the active timeline may be.
    """

    compacts: bool = False
    cleaning: CleaningPolicy | None = None
    archival: ArchivalPolicy | None = None


class RequestedServices:
    """The services that were requested, and how they run. Any thread may request one.

    Attributes:
        possible: the services that can be requested.

    Args:
        writers: the writers of the pipeline's tables.
        policies: what the services do.
        runner: executes the tasks.
        listener: receives the events.
        compactor: compacts asynchronously; None to compact between batches.
        clusterings: cluster the tables.
    """

    def __init__(
        self,
        writers: Sequence[TableWriter],
        policies: RequestPolicies,
        runner: Runner,
        listener: Listener,
        compactor: AsyncCompactor | None = None,
        clusterings: Sequence[TableClustering] = (),
    ) -> None:
        self._writers, self._policies = list(writers), policies
        self._runner, self._listener = runner, listener
        self._compactor, self._clusterings = compactor, clusterings
        self._lock, self._requested = threading.Lock(), list[RunnableService]()
        self._perform: dict[RunnableService, Callable[[TableWriter], bool]] = {
            RunnableService.COMPACTION: self._compact,
            RunnableService.CLUSTERING: self._cluster,
            RunnableService.CLEANING: self._clean,
            RunnableService.ARCHIVAL: self._archive,
        }
        self.possible = tuple(one for one in RunnableService if any(self._serves(one)))

    @property
    def are_waiting(self) -> bool:
        """Whether a service was requested and has not begun."""
        return bool(self._requested)

    def request(self, service: RunnableService) -> None:
        """Let a service run before the next batch; a service that already waits runs once."""
        with self._lock:
            if service not in self._requested:
                self._requested.append(service)

    def run(self) -> None:
        """Run what was requested. A failure is reported, and the batches continue.

        Call this between two batches.

        Raises:
            HudiError: a table cannot be read after a failure.
        """
        while self._requested:
            with self._lock:
                service = self._requested.pop(0)
            for writer in tuple(self._writers):
                self._run_for(service, writer)

    def _serves(self, service: RunnableService) -> list[bool]:
        return [self._is_possible(service, writer) for writer in self._writers]

    def _is_possible(self, service: RunnableService, writer: TableWriter) -> bool:
        match service:
            case RunnableService.COMPACTION:
                return self._policies.compacts and writer.table.properties.is_merge_on_read
            case RunnableService.CLUSTERING:
                return any(one.writer is writer and one.plans for one in self._clusterings)
            case RunnableService.CLEANING:
                return self._policies.cleaning is not None
            case RunnableService.ARCHIVAL:
                return self._policies.archival is not None

    def _run_for(self, service: RunnableService, writer: TableWriter) -> None:
        if not self._is_possible(service, writer):
            return
        url, began = writer.table.location.url, time.monotonic()
        try:
            has_work = self._perform[service](writer)
        except Exception as error:
            kind = type(error).__name__
            self._listener(RequestedServiceFailed(service.value, str(error), kind, url))
            writer.table.refresh()
            return
        if not has_work:
            self._report(service, "requested, but there is nothing to do; checked", began, writer)

    def _compact(self, writer: TableWriter) -> bool:
        if self._compactor is not None:
            return self._compactor.start_next(writer, ALWAYS) or self._compactor.is_progressing
        began, done = time.monotonic(), writer.compact_if_due(ALWAYS, self._runner)
        for instant, metadata in done:
            seconds, url = time.monotonic() - began, writer.table.location.url
            self._listener(
                CompactionCompleted.of(instant.requested_at, metadata.write_stats, seconds, url)
            )
        return bool(done)

    def _cluster(self, writer: TableWriter) -> bool:
        own = [one for one in self._clusterings if one.writer is writer and one.plans]
        return any(one.run_now() for one in own)

    def _clean(self, writer: TableWriter) -> bool:
        assert self._policies.cleaning is not None, "checked by _is_possible"
        began, policy = time.monotonic(), replace(self._policies.cleaning, every_commits=1)
        done = list(clean(writer.table, policy))
        for one in done:
            self._report(RunnableService.CLEANING, clean_summary(one), began, writer)
        return bool(done)

    def _archive(self, writer: TableWriter) -> bool:
        """Archive what exceeds the smallest number of active commits."""
        policy = self._policies.archival
        assert policy is not None, "checked by _is_possible"
        began, lowered = time.monotonic(), replace(policy, max_commits=policy.min_commits + 1)
        done = archive(writer.table, lowered, self._policies.cleaning)
        if done is not None:
            self._report(RunnableService.ARCHIVAL, archive_summary(done), began, writer)
        return done is not None

    def _report(
        self, service: RunnableService, summary: str, began: float, writer: TableWriter
    ) -> None:
        seconds, url = time.monotonic() - began, writer.table.location.url
        self._listener(ServiceCompleted(service.value, summary, seconds, url))
