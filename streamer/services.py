"""Table services that run between two batches, and the one that may run beside them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from lakemark.execution.runner import Runner
from lakemark.operations.archive import archive
from lakemark.operations.clean import Cleaned, clean
from lakemark.operations.metadata_table import maintain_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival import Archived
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import Maintained, MetadataPolicies
from streamer.async_compaction import AsyncCompactor
from streamer.events import CompactionDone, Listener, ServiceDone


@dataclass(frozen=True, slots=True)
class ServicePolicies:
    """When to do what; None leaves it to others.

    Attributes:
        compaction: of merge-on-read tables.
        cleaning: of files.
        archival: of the timeline.
    """

    compaction: CompactionPolicy | None = None
    cleaning: CleaningPolicy | None = None
    archival: ArchivalPolicy | None = None


class TableServices:
    """Keeps the pipeline's tables in shape; does nothing when nothing is due.

    First files are merged, then the old ones deleted, then the instants that made them archived;
    at last the metadata table, which reaches as far back, is cleaned and archived itself.

    Args:
        writers: the pipeline's table and its dead letters.
        policies: when to do what.
        runner: where the work is done.
        listener: is told of what was done.
        beside: compacts beside the batches; None compacts between them.
    """

    def __init__(
        self,
        writers: Sequence[TableWriter],
        policies: ServicePolicies,
        runner: Runner,
        listener: Listener,
        beside: AsyncCompactor | None = None,
    ) -> None:
        self._writers, self._policies = list(writers), policies
        self._runner, self._listener = runner, listener
        self._beside = beside

    @property
    def turn(self) -> AbstractContextManager[object]:
        """A block in which nobody else changes the open tables; see ``AsyncCompactor``."""
        return nullcontext() if self._beside is None else self._beside.turn

    @property
    def is_progressing(self) -> bool:
        """Whether a compaction is at work that is worth waiting for."""
        return self._beside is not None and self._beside.is_progressing

    def check(self) -> None:
        """Pass unless something beside the batches must end the run.

        Raises:
            CompactionGivenUp: a compaction has failed for too long.
        """
        if self._beside is not None:
            self._beside.check()

    def end(self, within_s: float) -> bool:
        """Begin nothing more beside the batches; whether a thread is still at it after so long."""
        return self._beside is not None and self._beside.end(within_s)

    def run(self) -> None:
        """Do what is due now, in turn."""
        for writer in tuple(self._writers):
            self._clear_dead(writer)
            self._compact(writer)
            self._clean(writer.table)
            self._archive(writer.table)
            self._tend_metadata(writer.table)

    def wait(self, stopping: threading.Event) -> None:
        """Let what is done beside the batches catch up; see ``AsyncCompactor.wait``."""
        if self._beside is not None:
            self._beside.wait(stopping)

    def _clear_dead(self, writer: TableWriter) -> None:
        started = time.monotonic()
        rolled_back = writer.clear_dead()
        if rolled_back:
            self._done("rollback", ", ".join(rolled_back), started)

    def _compact(self, writer: TableWriter) -> None:
        if self._policies.compaction is None:
            return
        if self._beside is not None:
            if self._beside.advance(writer):  # others that wait for the place come first then
                self._writers.remove(writer)
                self._writers.append(writer)
            return
        started = time.monotonic()
        for instant, metadata in writer.compact_if_due(self._policies.compaction, self._runner):
            seconds = time.monotonic() - started
            self._listener(CompactionDone.of(instant.requested_at, metadata.write_stats, seconds))

    def _clean(self, table: OpenTable) -> None:
        if self._policies.cleaning is None:
            return
        started = time.monotonic()
        for cleaned in clean(table, self._policies.cleaning):
            self._done("cleaning", _cleaned(cleaned), started)

    def _archive(self, table: OpenTable) -> None:
        policy = self._policies.archival
        if policy is None:
            return
        started = time.monotonic()
        archived = archive(table, policy, self._policies.cleaning)
        if archived is not None:
            self._done("archival", _archived(archived), started)

    def _tend_metadata(self, table: OpenTable) -> None:
        started = time.monotonic()
        beside = MetadataPolicies.for_data_table(self._policies.cleaning, self._policies.archival)
        maintained = maintain_metadata_table(table, beside)
        if maintained is not None:
            self._done("metadata", _tended(maintained), started)

    def _done(self, service: str, summary: str, started: float) -> None:
        self._listener(ServiceDone(service, summary, time.monotonic() - started))


def _cleaned(cleaned: Cleaned) -> str:
    plan = cleaned.plan
    kept = f", readable as of {plan.earliest_retained}" if plan.earliest_retained else ""
    return f"{cleaned.instant.requested_at}: {len(plan.paths):,} files deleted{kept}"


def _archived(archived: Archived) -> str:
    files = f", {len(archived.leftovers):,} files of dead writers" if archived.leftovers else ""
    start = archived.timeline.start
    return f"{len(archived.instants):,} instants{files}, active since {start}"


def _tended(maintained: Maintained) -> str:
    undone = (
        f", {len(maintained.undone):,} commits of dead writers undone" if maintained.undone else ""
    )
    counts = (
        f"{len(maintained.deleted):,} files deleted, {len(maintained.archived):,} instants archived"
    )
    return counts + undone
