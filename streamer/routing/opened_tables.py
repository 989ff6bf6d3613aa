"""Opens the tables of a routed pipeline, each with a monitor of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakemark.errors import InvalidConfig
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
from streamer.routing.uncreated_table import UncreatedTable
from streamer.routing.unusable_records import divide_first_records
from streamer.services import TableServices
from streamer.sources.kafka_offsets import describe_facts
from streamer.table_setup import coordination_of, find_table


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
    _uncreated: dict[str, UncreatedTable] = field(default_factory=dict)
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
        if not _has_columns(config):
            return None
        return self._open(name, config, pa.table({"value": pa.array([], pa.binary())}))

    def create(self, name: str, records: pa.Table) -> OpenedTable | UncreatedTable | None:
        """See ``RoutedTables``."""
        config = self._config(name)
        try:
            return self._open(name, config, records)
        except NoRecordsYet:
            return None
        except InvalidConfig:
            if config.decode.declared() is not None or _has_columns(config):
                raise
            found = divide_first_records(config, records)
            if not len(found.rejects):
                raise
        if found.usable.num_rows:  # the columns were inferred from the first records only
            return self._open(name, config, found.usable)
        if name not in self._uncreated:
            self._uncreated[name] = UncreatedTable(config, self._monitor(name).listener)
        return self._uncreated[name]

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


def _has_columns(config: PipelineConfig) -> bool:
    """Return whether the table of a pipeline exists and has columns."""
    found = find_table(
        config.table.location(),
        config.table.timeline_timezone,
        coordination_of(config.concurrency),
        config.base_files.parquet_settings(),
    )
    return found is not None and found.schema is not None


def attempts_of(run: RunConfig) -> int:
    """Return how often a table is tried that fails for a transient reason; 0 for no limit."""
    return run.retry.max_attempts if run.mode == "once" else 0
