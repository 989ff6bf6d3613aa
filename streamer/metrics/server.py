"""Monitors a run: collects metrics and health from its events, and serves them over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from streamer.config.metrics import MetricsConfig
from streamer.config.pipeline import PipelineConfig
from streamer.events import Event, Listener, MetricsServed
from streamer.health import Health
from streamer.metrics.endpoint import serve
from streamer.metrics.poller import poll_in_background
from streamer.metrics.run_metrics import RunMetrics
from streamer.metrics.table_shape import DEAD_LETTERS, ROWS
from streamer.pipeline import Pipeline


@contextmanager
def monitor_run(config: PipelineConfig, next_listener: Listener) -> Iterator[RunMonitor]:
    """Serve metrics and health until the block ends, if the configuration sets a port.

    Args:
        config: the configuration of the pipeline.
        next_listener: receives every event after the metrics were updated.

    Raises:
        CannotListen: another process uses the port.
    """
    port = config.metrics.port
    if port is None:
        yield RunMonitor(next_listener)
        return
    metrics = RunMetrics(config.name, config.source.topic)
    health = Health(config.metrics.stuck_after_s)

    def listen(event: Event, /) -> None:
        metrics(event)
        health(event)
        next_listener(event)

    with serve(config.metrics.host, port, metrics.registry, health) as listening_port:
        listen(MetricsServed(config.metrics.host, listening_port))
        yield RunMonitor(listen, config.metrics, metrics, health)


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
                poller = poll_in_background(pipeline.source, tables, self._metrics, interval_s)
                ended.enter_context(poller)
            yield
