"""Monitors a run: collects metrics, health and status from its events; serves them over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa

from lakemark.operations.open_table import OpenTable
from streamer.config.errors import ConfigError
from streamer.config.metrics import MetricsConfig
from streamer.config.pipeline import PipelineConfig
from streamer.config.secrets import build_redactor
from streamer.events import Event, Listener, MetricsServed
from streamer.health import Health, Judge, SharedHealth
from streamer.loop import StreamLoop
from streamer.metrics.endpoint import serve
from streamer.metrics.metric_families import MetricFamilies
from streamer.metrics.poller import poll_in_background
from streamer.metrics.run_metrics import RunMetrics
from streamer.metrics.table_shape import DEAD_LETTERS, ROWS, shape_of
from streamer.requested_services import RequestedServices
from streamer.sources.source import Source
from streamer.status.action_token import ActionToken
from streamer.status.control import PipelineControl
from streamer.status.history import RunHistory
from streamer.status.pipeline_status import PipelineStatus
from streamer.status.process_status import ProcessStatus
from streamer.status.table_status import TableStatus


@contextmanager
def monitor_run(config: PipelineConfig, next_listener: Listener) -> Iterator[RunMonitor]:
    """Serve metrics and health until the block ends, if the configuration sets a port.

    Args:
        config: the configuration of the pipeline.
        next_listener: receives every event after the metrics were updated.

    Raises:
        CannotListen: another process uses the port.
        ConfigError: the token of actions cannot be found, or is too short.
    """
    served = config.metrics
    if served.port is None:
        yield RunMonitor(next_listener)
        return
    name, origin = config.name, config.source.origin
    metrics = RunMetrics(name, origin, rules=config.rules(), checks=config.checks())
    monitor, health, status = _monitor(
        name, origin, config, metrics, served, next_listener, build_redactor(config)
    )
    process = _process_status(health, served)
    process.add(status)
    with serve(served.host, served.port, metrics.registry, health, process) as listening_port:
        monitor.listener(MetricsServed(served.host, listening_port, served.status_page))
        yield monitor


@contextmanager
def monitor_runs(
    served: MetricsConfig, listener: Listener, redacted: Callable[[str], str]
) -> Iterator[RunMonitors]:
    """Serve the metrics and the health of several pipelines in one endpoint, as ``monitor_run``.

    Args:
        served: the section that the pipelines have in common.
        listener: receives the events of the process.
        redacted: removes the secrets of all pipelines from a text.

    Raises:
        CannotListen: another process uses the port.
        ConfigError: the token of actions cannot be found, or is too short.
    """
    monitors = RunMonitors(served, redacted)
    if served.port is None:
        yield monitors
        return
    registry, health = monitors.families.registry, monitors.health
    with serve(served.host, served.port, registry, health, monitors.status) as listening_port:
        listener(MetricsServed(served.host, listening_port, served.status_page))
        yield monitors


class RunMonitors:
    """The monitors of several pipelines, which share an endpoint.

    Two threads must not add monitors at the same time.

    Attributes:
        families: the metrics of all pipelines.
        health: the health of all pipelines.
        status: the status of all pipelines.
    """

    def __init__(self, served: MetricsConfig, redacted: Callable[[str], str]) -> None:
        self.families, self.health = MetricFamilies(), SharedHealth()
        self.status = _process_status(self.health, served)
        self._served, self._redacted = served, redacted
        self._monitors: dict[str, RunMonitor] = {}

    def add(self, config: PipelineConfig, next_listener: Listener) -> RunMonitor:
        """Return the monitor of a further pipeline."""
        return self._add(config.name, config.source.origin, config, next_listener, self.health.add)

    def add_refused(self, name: str, topic: str, next_listener: Listener) -> RunMonitor:
        """Return the monitor for a topic that has no pipeline, because it is not suitable.

        Args:
            name: a name that no pipeline has.
            topic: the topic.
            next_listener: receives every event after the metrics were updated.
        """
        return self._add(name, topic, None, next_listener, self.health.add)

    def add_search(self, name: str, pattern: str, next_listener: Listener) -> RunMonitor:
        """Return the monitor for a search for topics; see ``add_refused``."""
        return self._add(name, pattern, None, next_listener, self.health.add_search)

    def _add(
        self,
        name: str,
        topic: str,
        config: PipelineConfig | None,
        next_listener: Listener,
        add_health: Callable[[str, Health], None],
    ) -> RunMonitor:
        assert name not in self._monitors, f"{name} is monitored already"
        if self._served.port is None:
            monitor = RunMonitor(next_listener)
        else:
            rules, checks = ((), ()) if config is None else (config.rules(), config.checks())
            metrics = RunMetrics(name, topic, rules=rules, checks=checks, families=self.families)
            monitor, health, status = _monitor(
                name, topic, config, metrics, self._served, next_listener, self._redacted
            )
            add_health(name, health)
            self.status.add(status)
        self._monitors[name] = monitor
        return monitor

    def listener_of(self, pipeline: str, otherwise: Listener) -> Listener:
        """Return the listener of a pipeline, or another one if there is no such pipeline."""
        monitor = self._monitors.get(pipeline)
        return otherwise if monitor is None else monitor.listener


def _process_status(health: Judge, served: MetricsConfig) -> ProcessStatus:
    if problems := served.unresolved():
        raise ConfigError(problems)
    token = None if served.action_token is None else ActionToken(served.action_token)
    return ProcessStatus(health, token, has_page=served.status_page)


def _monitor(
    name: str,
    source: str,
    config: PipelineConfig | None,
    metrics: RunMetrics,
    served: MetricsConfig,
    next_listener: Listener,
    redacted: Callable[[str], str],
) -> tuple[RunMonitor, Health, PipelineStatus]:
    health, history = Health(served.stuck_after_s), RunHistory(redacted=redacted)

    def listen(event: Event, /) -> None:
        metrics(event)
        health(event)
        history(event)
        next_listener(event)

    control = PipelineControl()
    status = PipelineStatus(
        name, source, config, metrics, history, health, redacted, control, listen
    )
    monitored = _Monitored(metrics, health, status)
    return RunMonitor(listen, served, monitored, control), health, status


class WatchedColumns(Protocol):
    """What a monitor reads of a sink."""

    @property
    def columns(self) -> pa.Schema:
        """The columns of the rows; any thread may ask for them."""
        ...


class WatchedRun(Protocol):
    """What a monitor watches of a run; see ``streamer.pipeline.Pipeline``."""

    @property
    def loop(self) -> StreamLoop:
        """The loop of the stream."""
        ...

    @property
    def sink(self) -> WatchedColumns:
        """The sink."""
        ...

    @property
    def source(self) -> Source:
        """The source."""
        ...

    @property
    def tables(self) -> Sequence[OpenTable]:
        """The tables of the run, if it has one table of rows."""
        ...

    @property
    def requested(self) -> RequestedServices | None:
        """Takes requests for table services; None if it takes none."""
        ...


@dataclass(frozen=True)
class _Monitored:
    """What a monitor updates, if there is an endpoint."""

    metrics: RunMetrics
    health: Health
    status: PipelineStatus

    def watch(self, pipeline: WatchedRun) -> dict[str, OpenTable]:
        """Also report the loop and the tables of a pipeline; return the tables by name."""
        self.health.watch(lambda: pipeline.loop.waiting_at)
        return self.show(pipeline.tables, lambda: pipeline.sink.columns)

    def show(
        self, tables: Sequence[OpenTable], columns: Callable[[], pa.Schema]
    ) -> dict[str, OpenTable]:
        """Also report these tables: that of the rows, and the dead letters; return them by name."""
        for table in tables[:1]:
            self.metrics.use_clock(table.store.clock)
        named = dict(zip((ROWS, DEAD_LETTERS), tables, strict=False))
        shown = [
            TableStatus(name, table, partial(self.metrics.shape_of, name))
            for name, table in named.items()
        ]
        self.status.watch(tuple(shown), columns)
        return named

    def record(self, tables: Mapping[str, OpenTable]) -> None:
        """Record the shapes of tables. Their views are in memory, so no storage is listed."""
        for name, table in tables.items():
            view = table.snapshot.loaded_view
            if view is not None:
                self.metrics.record_table(name, shape_of(view))


@dataclass(frozen=True)
class RunMonitor:
    """The monitor of one run.

    Attributes:
        listener: receives the events of the run.
        control: the switches of the run, which clients of the endpoint use.
    """

    listener: Listener
    _config: MetricsConfig = field(default_factory=MetricsConfig)
    _monitored: _Monitored | None = None
    control: PipelineControl = field(default_factory=PipelineControl)

    def watch_wait(self, waiting_at: Callable[[], float]) -> None:
        """Until ``watch`` is called, use this time as that at which the thread last waited."""
        if self._monitored is not None:
            self._monitored.health.watch(waiting_at)

    def watch_tables(
        self, tables: Sequence[OpenTable], columns: Callable[[], pa.Schema]
    ) -> Callable[[], None]:
        """Also report tables that have no loop of their own.

        Args:
            tables: the table of the rows, and that of the dead letters, if there is one.
            columns: returns the columns of the rows; any thread may call it.

        Returns:
            A function that records the shapes of the tables; it is called after each commit.
        """
        monitored = self._monitored
        if monitored is None:
            return lambda: None
        named = monitored.show(tables, columns)
        return lambda: monitored.record(named)

    @contextmanager
    def watch(self, pipeline: WatchedRun) -> Iterator[None]:
        """Until the block ends, also monitor the loop, the topic and the tables of a pipeline."""
        monitored = self._monitored
        if monitored is None:
            yield
            return
        with poll_in_background(
            pipeline.source,
            monitored.watch(pipeline),
            monitored.metrics,
            self._config.poll_interval_s,
            lambda: pipeline.loop.is_idle,
            monitored.status.note_lag,
        ):
            self.control.bind_services(pipeline.requested)
            try:
                yield
            finally:
                self.control.bind_services(None)
