"""A run under observation: its events counted and judged, and the endpoint that tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from streamer.config.metrics import MetricsConfig
from streamer.config.pipeline import PipelineConfig
from streamer.events import Event, Listener, MetricsServed
from streamer.health import Health
from streamer.metrics.endpoint import endpoint
from streamer.metrics.poller import looking
from streamer.metrics.run_metrics import RunMetrics
from streamer.metrics.table_shape import DEAD_LETTERS, ROWS
from streamer.pipeline import Pipeline


@contextmanager
def observed(config: PipelineConfig, next_listener: Listener) -> Iterator[Observation]:
    """Serve metrics and health for as long as the block lasts, if the configuration names a port.

    Args:
        config: the pipeline.
        next_listener: is told of every event, too.

    Raises:
        CannotListen: the port is taken.
    """
    port = config.metrics.port
    if port is None:
        yield Observation(next_listener)
        return
    metrics = RunMetrics(config.name, config.source.topic)
    health = Health(config.metrics.stuck_after_s)

    def listen(event: Event, /) -> None:
        metrics(event)
        health(event)
        next_listener(event)

    with endpoint(config.metrics.host, port, metrics.registry, health) as listening_port:
        listen(MetricsServed(config.metrics.host, listening_port))
        yield Observation(listen, config.metrics, metrics, health)


@dataclass(frozen=True)
class Observation:
    """What a run is given to be observed by.

    Attributes:
        listener: for the run's events.
    """

    listener: Listener
    _config: MetricsConfig = field(default_factory=MetricsConfig)
    _metrics: RunMetrics | None = None
    _health: Health | None = None

    @contextmanager
    def watching(self, pipeline: Pipeline) -> Iterator[None]:
        """A block in which the built pipeline is looked at, too: its loop, its topic, its table."""
        with ExitStack() as ended:
            if self._metrics is not None and self._health is not None:
                for table in pipeline.tables[:1]:
                    self._metrics.use_clock(table.store.clock)
                self._health.watch(lambda: pipeline.loop.waiting_at)
                every_s = self._config.poll_interval_s
                tables = dict(zip((ROWS, DEAD_LETTERS), pipeline.tables, strict=False))
                look = looking(pipeline.source, tables, self._metrics, every_s)
                ended.enter_context(look)
            yield
