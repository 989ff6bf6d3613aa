"""Opens the tables of a routed pipeline, each with a monitor of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from sinks.routed.letters import LetterSink
from streamer import pipeline
from streamer.config.errors import ConfigError
from streamer.config.pipeline import PipelineConfig
from streamer.config.run import RunConfig
from streamer.events import Listener, OffsetsLost, Retrying, RunFailed, RunStopped
from streamer.job.outcome import Outcome
from streamer.metrics.server import RunMonitor, RunMonitors
from streamer.record_conversion import NoRecordsYet
from streamer.routing.first_records import RecordsOfTable
from streamer.routing.opened_table import OpenedTable, RunnerOfTable
from streamer.routing.template import RouteTemplate
from streamer.services import TableServices
from streamer.sources.kafka_offsets import describe_facts
from streamer.table_setup import coordination_of, find_table
from transforms.rejects import Rejects


@dataclass
class OpenedTables:
    """The tables that a run has opened. Implements ``RoutedTables``.

    Args:
        template: describes the tables.
        monitors: monitors the tables.
        output: returns the listener of a table, by the name of its pipeline.
        waiting_at: when the stream last waited for records.
    """

    template: RouteTemplate
    monitors: RunMonitors
    output: Callable[[str], Listener]
    waiting_at: Callable[[], float]
    _outcomes: dict[str, Outcome] = field(default_factory=dict)
    _tables: dict[str, OpenedTable] = field(default_factory=dict)
    _monitors: dict[str, RunMonitor] = field(default_factory=dict)
    _configs: dict[str, PipelineConfig] = field(default_factory=dict)
    _adding: threading.Lock = field(default_factory=threading.Lock)

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of each table, in order of their names."""
        return [one for _, one in sorted(self._outcomes.items())]

    def find(self, name: str) -> OpenedTable | None:
        """See ``RoutedTables``."""
        config = self._config(name)
        found = find_table(
            config.table.location(),
            config.table.timeline_timezone,
            coordination_of(config.concurrency),
            config.base_files.parquet_settings(),
        )
        if found is None or found.schema is None:
            return None
        return self._open(name, config, pa.table({"value": pa.array([], pa.binary())}))

    def create(self, name: str, records: pa.Table) -> OpenedTable | None:
        """See ``RoutedTables``."""
        try:
            return self._open(name, self._config(name), records)
        except NoRecordsYet:
            return None

    def set_aside(self, name: str, error: Exception, attempt: int, pause_s: float | None) -> None:
        """See ``RoutedTables``."""
        listener, kind = self._monitor(name).listener, type(error).__name__
        if (table := self._tables.get(name)) is not None:
            table.note_failure()
        if pause_s is None:
            listener(RunFailed(kind, str(error)))
        else:
            run = self.template.sample.run
            listener(Retrying(str(error), attempt, attempts_of(run), pause_s, kind))

    def report_lost(self, name: str, lost: Sequence[Mapping[str, object]]) -> None:
        """See ``RoutedTables``."""
        topic = self.template.sample.kafka.topic
        texts = tuple(map(describe_facts, lost))
        self._monitor(name).listener(OffsetsLost(topic, texts, tuple(lost)))

    def services(self) -> Sequence[TableServices]:
        """Return the services of all open tables."""
        return [one.services for one in tuple(self._tables.values())]

    def end(self, reason: str, failed: Mapping[str, Exception]) -> None:
        """Report the end of each table.

        Args:
            reason: as for ``RunStopped``.
            failed: the tables that are set aside.
        """
        for name, monitor in self._monitors.items():
            listener = monitor.listener
            error = failed.get(name)
            if error is not None:
                if not self._outcomes[name].has_failed:
                    listener(RunFailed(type(error).__name__, str(error)))
                continue
            table = self._tables.get(name)
            batches, rows = (table.num_batches, table.rows_written) if table else (0, 0)
            listener(RunStopped(reason, {}, batches, rows, 0.0))

    def _open(self, name: str, config: PipelineConfig, records: pa.Table) -> OpenedTable:
        monitor = self._monitor(name)
        listener = monitor.listener
        first = RecordsOfTable(config.kafka.topic, records)
        sink, writers = pipeline.open_sink(config, first)
        runner = RunnerOfTable()
        services = pipeline.table_services(config, None, writers, listener, runner=runner)
        after_commit = monitor.watch_tables(
            [writer.table for writer in writers], lambda: sink.columns
        )
        table = OpenedTable(config, sink, services, runner, listener, after_commit)
        self._tables[name] = table
        return table

    def _config(self, name: str) -> PipelineConfig:
        """Return the pipeline of a table, which is validated once: this takes a while."""
        if name not in self._configs:
            self._configs[name] = self.template.table_of(name)
        return self._configs[name]

    def _monitor(self, name: str) -> RunMonitor:
        """Return the monitor of a table, which is added at the first call."""
        with self._adding:
            if name not in self._monitors:
                pipeline_name = self.template.name_of(name)
                topic = self.template.sample.kafka.topic
                outcome = Outcome(pipeline_name, topic, self.output(pipeline_name))
                try:
                    monitor = self.monitors.add(self._config(name), outcome)
                except ConfigError:  # a known table, whose settings contradict each other now
                    monitor = self.monitors.add_refused(pipeline_name, topic, outcome)
                monitor.watch_wait(self.waiting_at)
                self._outcomes[name] = outcome
                self._monitors[name] = monitor
            return self._monitors[name]


def attempts_of(run: RunConfig) -> int:
    """Return how often a table is tried that fails for a transient reason; 0 for no limit."""
    return run.retry.max_attempts if run.mode == "once" else 0


class StreamLetters:
    """The dead letters of records that belong to no table. Implements ``UnroutedLetters``.

    Args:
        config: a pipeline with this dead-letter table.
        listener: receives the events of its services.
    """

    def __init__(self, config: PipelineConfig, listener: Listener) -> None:
        self._config, self._listener = config, listener
        self._sink: LetterSink | None = None
        self._services: TableServices | None = None

    @property
    def url(self) -> str:
        """See ``UnroutedLetters``."""
        return self._config.dead_letters.path if self._config.dead_letters.enabled else ""

    def recover(self) -> Progress | None:
        """See ``UnroutedLetters``."""
        if not self.url:
            return None
        sink = self._sink or self._open(creates=False)
        return None if sink is None else sink.recover()[1]

    def write(
        self, rejects: Rejects, start: KafkaCheckpoint, end: KafkaCheckpoint, topic_id: str
    ) -> pa.Table:
        """See ``UnroutedLetters``."""
        if self._sink is None:
            self._sink = self._open(creates=True)
            assert self._sink is not None
            self._sink.recover()
        changes = self._sink.write(rejects, start, end, topic_id)
        if self._services is not None:
            self._services.run()
        return changes

    def _open(self, *, creates: bool) -> LetterSink | None:
        writer = pipeline.open_letters(self._config, creates=creates)
        if writer is None:
            return None
        self._services = pipeline.letter_services(self._config, writer, self._listener)
        self._sink = LetterSink(writer, self._config.source.checkpoint_id)
        return self._sink
