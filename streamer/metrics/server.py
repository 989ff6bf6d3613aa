"""Monitors a run: collects metrics and health from its events, and serves them over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from streamer.config.metrics import MetricsConfig
from streamer.config.pipeline import PipelineConfig
from streamer.events import Event, Listener, MetricsServed
from streamer.health import Health, SharedHealth
from streamer.metrics.endpoint import serve
from streamer.metrics.metric_families import MetricFamilies
from streamer.metrics.poller import poll_in_background
from streamer.metrics.run_metrics import RunMetrics
from streamer.metrics.table_shape import DEAD_LETTERS, ROWS
from streamer.pipeline import Pipeline
from transforms.expectations import Rule


@contextmanager
def monitor_run(config: PipelineConfig, next_listener: Listener) -> Iterator[RunMonitor]:
    """Serve metrics and health until the block ends, if the configuration sets a port.

    Args:
        config: the configuration of the pipeline.
        next_listener: receives every event after the metrics were updated.

    Raises:
        CannotListen: another process uses the port.
    """
    served = config.metrics
    if served.port is None:
        yield RunMonitor(next_listener)
        return
    metrics = RunMetrics(config.name, config.source.origin, rules=config.rules())
    monitor, health = _monitor(metrics, served, next_listener)
    with serve(served.host, served.port, metrics.registry, health) as listening_port:
        monitor.listener(MetricsServed(served.host, listening_port))
        yield monitor


@contextmanager
def monitor_runs(served: MetricsConfig, listener: Listener) -> Iterator[RunMonitors]:
    """Serve the metrics and the health of several pipelines in one endpoint, as ``monitor_run``.

    Args:
        served: the section that the pipelines have in common.
        listener: receives the events of the process.

    Raises:
        CannotListen: another process uses the port.
    """
    monitors = RunMonitors(served)
    if served.port is None:
        yield monitors
        return
    registry, health = monitors.families.registry, monitors.health
    with serve(served.host, served.port, registry, health) as listening_port:
        listener(MetricsServed(served.host, listening_port))
        yield monitors


class RunMonitors:
    """The monitors of several pipelines, which share an endpoint.

    Two threads must not add monitors at the same time.

    Attributes:
        families: the metrics of all pipelines.
        health: the health of all pipelines.
    """

    def __init__(self, served: MetricsConfig) -> None:
        self.families, self.health = MetricFamilies(), SharedHealth()
        self._served = served
        self._monitors: dict[str, RunMonitor] = {}

    def add(self, config: PipelineConfig, next_listener: Listener) -> RunMonitor:
        """Return the monitor of a further pipeline."""
        name, topic, rules = config.name, config.source.origin, config.rules()
        return self._add(name, topic, rules, next_listener, self.health.add)

    def add_refused(self, name: str, topic: str, next_listener: Listener) -> RunMonitor:
        """Return the monitor for a topic that has no pipeline, because it is not suitable.

        Args:
            name: a name that no pipeline has.
            topic: the topic.
            next_listener: receives every event after the metrics were updated.
        """
        return self._add(name, topic, (), next_listener, self.health.add)

    def add_search(self, name: str, pattern: str, next_listener: Listener) -> RunMonitor:
        """Return the monitor for a search for topics; see ``add_refused``."""
        return self._add(name, pattern, (), next_listener, self.health.add_search)

    def _add(
        self,
        name: str,
        topic: str,
        rules: Sequence[Rule],
        next_listener: Listener,
        add_health: Callable[[str, Health], None],
    ) -> RunMonitor:
        assert name not in self._monitors, f"{name} is monitored already"
        if self._served.port is None:
            monitor = RunMonitor(next_listener)
        else:
            metrics = RunMetrics(name, topic, rules=rules, families=self.families)
            monitor, health = _monitor(metrics, self._served, next_listener)
            add_health(name, health)
        self._monitors[name] = monitor
        return monitor

    def listener_of(self, pipeline: str, otherwise: Listener) -> Listener:
        """Return the listener of a pipeline, or another one if there is no such pipeline."""
        monitor = self._monitors.get(pipeline)
        return otherwise if monitor is None else monitor.listener


def _monitor(
    metrics: RunMetrics, served: MetricsConfig, next_listener: Listener
) -> tuple[RunMonitor, Health]:
    health = Health(served.stuck_after_s)

    def listen(event: Event, /) -> None:
        metrics(event)
        health(event)
        next_listener(event)

    return RunMonitor(listen, served, metrics, health), health


@dataclass(frozen=True)
class RunMonitor:
    """The monitor of one run.

    Attributes:
        listener: receives the events of the run.
    """

    listener: Listener
    _config: MetricsConfig = field(default_factory=MetricsConfig)
    _metrics: RunMetrics | None = None
    _health: Health | None = None

    def watch_wait(self, waiting_at: Callable[[], float]) -> None:
        """Until ``watch`` is called, use this time as that at which the thread last waited."""
        if self._health is not None:
            self._health.watch(waiting_at)

    @contextmanager
    def watch(self, pipeline: Pipeline) -> Iterator[None]:
        """Until the block ends, also monitor the loop, the topic and the tables of a pipeline."""
        with ExitStack() as ended:
            if self._metrics is not None and self._health is not None:
                for table in pipeline.tables[:1]:
                    self._metrics.use_clock(table.store.clock)
                self._health.watch(lambda: pipeline.loop.waiting_at)
                interval_s = self._config.poll_interval_s
                tables = dict(zip((ROWS, DEAD_LETTERS), pipeline.tables, strict=False))
                poller = poll_in_background(
                    pipeline.source,
                    tables,
                    self._metrics,
                    interval_s,
                    lambda: pipeline.loop.is_idle,
                )
                ended.enter_context(poller)
            yield
