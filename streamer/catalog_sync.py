"""Registers the table of a pipeline in catalogs, in a thread for each catalog, after commits.

The thread opens the table itself and only reads it, so a batch never waits for a catalog, and a
failure of a catalog never fails a batch. A sync that fails is reported and repeated after a pause,
and it includes all commits since the last one that succeeded. The first sync follows the start of
the run. So a sync that an earlier run did not finish is repeated.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakemark.catalogs.catalog import CatalogChanged
from lakemark.catalogs.open_catalog import check_installed, open_catalog
from lakemark.catalogs.sync import SyncPlan, execute_sync, plan_sync
from lakemark.catalogs.table_definition import Registration
from lakemark.errors import SnapshotChanged
from lakemark.model.action import COMMITS, Action
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable, open_table
from streamer.config.catalogs import CatalogConfig
from streamer.config.pipeline import PipelineConfig
from streamer.config.table import TableConfig
from streamer.events import Listener, ServiceCompleted
from streamer.service_guard import ServiceFailures

#: The name of this service in events and metrics.
SERVICE = "catalog_sync"

#: The longest pause after a failure.
_LONGEST_PAUSE_S = 600.0

#: How often a sync is tried while the table is cleaned, or the catalog is changed by others.
_ATTEMPTS = 3

#: Actions that may change the columns or the partitions of a table.
_CHANGING = (*COMMITS, Action.ROLLBACK, Action.RESTORE)


@dataclass(frozen=True, slots=True)
class SyncTarget:
    """A catalog, and how the table is registered in it.

    Attributes:
        kind: the kind of the catalog.
        database: the database of the catalog.
        options: the options of the catalog; they are never printed.
        registration: how the table is registered.
    """

    kind: str
    database: str
    options: Mapping[str, str] = field(repr=False)
    registration: Registration

    def sync(self, table: OpenTable) -> SyncPlan:
        """Register the table; return what was changed.

        Raises:
            HudiError: the catalog does not answer or refuses the table, or the table cannot be
                read.
        """
        with open_catalog(self.kind, self.database, self.options) as catalog:
            plan = plan_sync(table, catalog, self.registration)
            execute_sync(catalog, plan)
            return plan


class CatalogSync:
    """Registers a table in one catalog, whenever this is requested.

    Args:
        target: the catalog.
        open_newest: opens the table as of now.
        url: the URL of the table, for events.
        listener: receives the events, in the thread of this object.
    """

    def __init__(
        self,
        target: SyncTarget,
        open_newest: Callable[[], OpenTable],
        url: str,
        listener: Listener,
    ) -> None:
        self._target, self._open_newest = target, open_newest
        self._url, self._listener = url, listener
        self._failures = ServiceFailures(SERVICE, url, listener, _LONGEST_PAUSE_S)
        self._changed = threading.Condition()
        self._requested = self._done = 0
        self._is_failing, self._is_ending, self._retry_at = False, False, -math.inf
        self._thread: threading.Thread | None = None

    @property
    def is_progressing(self) -> bool:
        """Whether a requested sync is not complete, and the last attempt did not fail."""
        return self._done < self._requested and not self._is_failing

    def request(self) -> None:
        """Let the thread sync the newest commit; return at once."""
        with self._changed:
            self._requested += 1
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=SERVICE, daemon=True)
                self._thread.start()

    def end(self, within_s: float) -> bool:
        """Start no more syncs; return whether the thread is still running after ``within_s``."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        if self._thread is None:
            return False
        self._thread.join(within_s)
        return self._thread.is_alive()

    def _run(self) -> None:
        while (request := self._await_request()) is not None:
            self._attempt(request)

    def _await_request(self) -> int | None:
        """Wait until a sync is due; return the number of requests it fulfils, None at the end."""
        with self._changed:
            while not self._is_ending:
                is_requested = self._done < self._requested
                remaining_s = self._retry_at - time.monotonic()
                if is_requested and remaining_s <= 0:
                    return self._requested
                self._changed.wait(remaining_s if is_requested else None)
        return None

    def _attempt(self, request: int) -> None:
        began = time.monotonic()
        try:
            plan = self._sync()
        except Exception as error:  # a catalog of another package may raise any error
            self._is_failing = True
            self._retry_at = time.monotonic() + self._failures.report(error)
            return
        summary = describe(plan, self._target)
        try:
            if summary or self._is_failing:
                seconds = time.monotonic() - began
                done = summary or f"{label(self._target)}: complete again"
                self._listener(ServiceCompleted(SERVICE, done, seconds, self._url))
        finally:  # a listener that fails ends this thread, but the run must not wait for it
            self._failures.forget()
            self._done, self._is_failing = request, False

    def _sync(self) -> SyncPlan:
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._target.sync(self._open_newest())
            except (SnapshotChanged, CatalogChanged):
                # The pipeline has cleaned or archived, or another one has registered the table.
                continue
        return self._target.sync(self._open_newest())


class CatalogSyncs:
    """Requests syncs with all catalogs of a pipeline when its table has changed.

    Args:
        table: the table as the pipeline has it in memory.
        syncs: the catalogs.
    """

    def __init__(self, table: OpenTable, syncs: Sequence[CatalogSync]) -> None:
        self._table, self._syncs = table, tuple(syncs)
        self._seen: tuple[Instant, ...] | None = None

    @property
    def is_progressing(self) -> bool:
        """Whether a catalog is behind, and its last sync did not fail."""
        return any(one.is_progressing for one in self._syncs)

    def request_if_changed(self) -> None:
        """Request a sync if a commit has completed or was undone since the last request."""
        if not self._syncs:
            return
        newest = self._table.timeline.completed(*_CHANGING)[-1:]
        if newest != self._seen:
            self._seen = newest
            for one in self._syncs:
                one.request()

    def end(self, within_s: float) -> bool:
        """Start no more syncs; return whether one is still running after ``within_s`` seconds."""
        ends_at = time.monotonic() + within_s
        running = [one.end(max(0.0, ends_at - time.monotonic())) for one in self._syncs]
        return any(running)


def sync_targets(config: PipelineConfig) -> list[SyncTarget]:
    """Return the catalogs of a pipeline.

    Raises:
        ConfigError: a value cannot be found.
        InvalidConfig: the library of a catalog is not installed.
    """
    return [sync_target(config.table, one) for one in config.catalogs]


def sync_target(table: TableConfig, catalog: CatalogConfig) -> SyncTarget:
    """Return one catalog of a pipeline, whose library is installed.

    Raises:
        ConfigError: a value cannot be found.
        InvalidConfig: the library of the catalog is not installed.
    """
    check_installed(catalog.kind)
    return SyncTarget(
        catalog.kind,
        catalog.database,
        catalog.resolved_options(),
        catalog.registration(table.path, table.name),
    )


def catalog_syncs(config: PipelineConfig, table: OpenTable, listener: Listener) -> CatalogSyncs:
    """Return what registers the table of a pipeline in its catalogs.

    Raises:
        ConfigError, InvalidConfig: as for ``sync_targets``.
    """

    def open_newest() -> OpenTable:
        return open_table(config.table.location(), timezone=config.table.timeline_timezone)

    url = table.location.url
    targets = sync_targets(config)
    return CatalogSyncs(table, [CatalogSync(one, open_newest, url, listener) for one in targets])


def label(target: SyncTarget) -> str:
    """Return the catalog and the name of the table in it, for messages."""
    return f"{target.kind} {target.database}.{target.registration.name}"


def describe(plan: SyncPlan, target: SyncTarget) -> str:
    """Return what a sync has changed, except the time of the newest commit; "" if nothing."""
    changes = describe_changes(plan)
    return f"{label(target)}: {'; '.join(changes)}" if changes else ""


def describe_changes(plan: SyncPlan) -> list[str]:
    """Return a text for each change of a sync, except the time of the newest commit."""
    changes = ["create the database"] if plan.creates_database else []
    for one in plan.tables:
        changes += [f"{one.table.name}: {text}" for text in one.describe()]
    return changes
