"""Runs a pipeline that divides one topic among many tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa
from pyspark.sql import SparkSession

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.errors import Permanent
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.operations.open_table import OpenTable
from lakemark.storage import open_storage
from lakemark.storage.probe import check_conditional_puts
from sinks.hudi.collect import collect_budget_bytes
from sinks.reject_limit import NO_REJECTS, RejectLimit
from sinks.routed.exchange import RoutedExchange
from sinks.routed.position_store import PositionStore
from sinks.routed.sink import RoutedSink
from sinks.routed.tables import FindStart, TableStart
from streamer.backoff import pause_after
from streamer.capture_logs import capture_logs, log_clashes
from streamer.checks.start import check_start
from streamer.config.run import RunConfig
from streamer.config.secrets import build_redactor
from streamer.events import Listener, RunFailed, WarningLogged
from streamer.job.outcome import Outcome
from streamer.jvm_exit import report_jvm_exit
from streamer.keepalive import emit_keepalives
from streamer.loop import StreamLoop
from streamer.metrics.server import RunMonitor, RunMonitors, monitor_runs
from streamer.pipeline import open_session
from streamer.requested_services import RequestedServices
from streamer.routing.opened_table import RoutedServices
from streamer.routing.opened_tables import OpenedTables, attempts_of
from streamer.routing.stream_letters import StreamLetters
from streamer.routing.template import RouteTemplate
from streamer.sources.kafka import KafkaSource
from streamer.stream_failure import is_transient, min_pause_s
from streamer.wording import counted
from streamer.working_for import current_pipeline
from transforms.reject_reason import RejectReason
from transforms.routing import DividedRecords, divide

#: How many tables the error names.
_NAMED = 10

#: For how many values a run remembers whether a table may have their name.
_REMEMBERED_VALUES = 10_000


class TablesSetAside(Permanent):
    """Some tables of a routed pipeline are set aside; the others have all their records."""

    def __init__(self, failed: Mapping[str, Exception], num_tables: int) -> None:
        more = ", …" if len(failed) > _NAMED else ""
        super().__init__(
            f"{len(failed)} of {counted(num_tables, 'table')} were set aside: "
            f"{', '.join([*failed][:_NAMED])}{more}; the event RunFailed of each contains the "
            "reason. The next start reads their records again, from their own positions"
        )
        self.failed = tuple(failed)


@dataclass(frozen=True)
class RoutedRun:
    """A routed pipeline that is ready to run.

    Attributes:
        loop: the loop of the stream.
        sink: writes to the tables.
        tables: the tables.
        monitor: monitors the stream.
        outcome: what became of the stream.
    """

    loop: StreamLoop
    sink: RoutedSink
    tables: OpenedTables
    monitor: RunMonitor
    outcome: Outcome

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of the stream, and then of each table."""
        return [self.outcome, *self.tables.outcomes]

    @property
    def has_unfinished_work(self) -> bool:
        """Whether threads may still be at work."""
        return self.loop.has_unfinished_work

    def stop(self) -> bool:
        """Ask the stream to stop; see ``StreamLoop.stop``."""
        return self.loop.stop()

    def run(self) -> None:
        """Run until the end.

        Raises:
            TablesSetAside: some tables are set aside.
            HudiError: the stream failed permanently; the tables contain only complete batches.
        """
        try:
            stopped = self.loop.run()
        except Exception as error:
            self.monitor.listener(RunFailed(type(error).__name__, str(error)))
            self.tables.end("interrupted", self.sink.set_aside)
            raise
        self.tables.end(stopped.reason, self.sink.set_aside)
        if self.sink.set_aside:
            raise TablesSetAside(self.sink.set_aside, len(self.tables.outcomes))


@dataclass(frozen=True)
class _Watched:
    """What the monitor of the stream watches. The tables have monitors of their own."""

    loop: StreamLoop
    sink: RoutedSink
    source: KafkaSource
    tables: Sequence[OpenTable] = ()
    requested: RequestedServices | None = None


@contextmanager
def open_routed(
    template: RouteTemplate,
    output: Callable[[str], Listener],
    session: SparkSession | None = None,
) -> Iterator[RoutedRun]:
    """Open the topic and the positions, and serve the metrics of all tables, until the block ends.

    Args:
        template: describes the tables.
        output: returns the listener of a pipeline, by name; "" for the events of the process.
        session: a session that ``open_session`` has returned; None to call it.

    Raises:
        CannotListen: another process uses the port of the metrics endpoint.
        HudiError: a setting, the topic or a store is not suitable; or Spark does not start.
    """
    config, of_process = template.sample, output("")
    with monitor_runs(config.metrics, of_process, build_redactor(config)) as monitors:

        def warn(*warning: str) -> None:
            monitors.listener_of(current_pipeline(), of_process)(WarningLogged(*warning))

        with capture_logs(warn):
            log_clashes()
            check_start(config)
            spark = session or open_session(config)
            with report_jvm_exit(), _open(template, spark, monitors, output) as run:
                yield run


#: How many copies of a batch Python must hold outside the heap. Decoded rows take at most as much
#: as their records. Of the batch that is written: the records; records and rows, divided; these
#: again, joined for each table, and one table may have all; and the rows with their meta columns,
#: before and after they are sorted. Of the next batch: the records, also before and after sorting.
_COPIES_OUTSIDE_HEAP = 9


@contextmanager
def _open(
    template: RouteTemplate,
    spark: SparkSession,
    monitors: RunMonitors,
    output: Callable[[str], Listener],
) -> Iterator[RoutedRun]:
    config = template.shown
    outcome = Outcome(config.name, config.kafka.topic, output(config.name))
    monitor = monitors.add(config, outcome)
    budget_bytes = collect_budget_bytes(spark, _COPIES_OUTSIDE_HEAP)
    loops = list[StreamLoop]()
    tables = OpenedTables(template, monitors, output, lambda: loops[0].waiting_at if loops else 0.0)
    keeps_keys = config.dead_letters.enabled or config.decode.needs_keys
    with KafkaSource(
        spark,
        template.source,
        monitor.listener,
        keeps_keys=keeps_keys,
        budget_bytes=budget_bytes,
    ) as source:
        sink = build_sink(template, tables, monitor.listener, partial(_find_start, source))
        loop = StreamLoop(
            config.name,
            source,
            sink,
            RoutedExchange(LocalRunner(), budget_bytes),
            RoutedServices(tables.services),
            config.run,
            monitor.listener,
            paused=monitor.control.paused,
        )
        loops.append(loop)
        monitor.control.bind_stop(loop.stop)
        interval_s = config.run.alive_interval_s
        with (
            monitor.watch(_Watched(loop, sink, source)),
            emit_keepalives(loop, source, monitor.listener, interval_s),
        ):
            yield RoutedRun(loop, sink, tables, monitor, outcome)


def build_sink(
    template: RouteTemplate,
    tables: OpenedTables,
    listener: Listener,
    find_start: FindStart,
    threads: int | None = None,
) -> RoutedSink:
    """Return the sink of a routed pipeline.

    Args:
        template: describes the tables.
        tables: opens the tables.
        listener: receives the events of the dead-letter table's services.
        find_start: see ``RoutedSink``.
        threads: see ``RoutedSink``.

    Raises:
        HudiError: the store of the positions is not suitable.
    """
    config, bad = template.sample, template.sample.dead_letters
    storage = open_storage(template.positions)
    check_conditional_puts(storage)
    return RoutedSink(
        topic=config.kafka.topic,
        rule=template.rule,
        url=template.path,
        divide=_divider(template, LocalRunner(threads)),
        tables=tables,
        letters=StreamLetters(template.of_letters(), listener),
        limit=RejectLimit(bad.max_share, bad.tolerated) if bad.enabled else NO_REJECTS,
        store=PositionStore(storage),
        judge=partial(_judge, config.run),
        find_start=find_start,
        threads=threads,
    )


def _divider(
    template: RouteTemplate, runner: Runner
) -> Callable[[pa.Table, frozenset[str]], DividedRecords]:
    route, topic = template.route_of_records(), template.sample.kafka.topic
    refuse_name = lru_cache(_REMEMBERED_VALUES)(template.refuse_name)
    refuse_table = lru_cache(_REMEMBERED_VALUES)(template.refuse)
    most, default = template.route.max_tables, template.route.default

    def divide_records(records: pa.Table, known: frozenset[str]) -> DividedRecords:
        admitted = set(known) | ({default} if default else set())

        def refuse(value: str) -> RejectReason | None:
            if value in known:
                return None if template.route.allows(value) else refuse_name(value)
            reason = refuse_name(value)
            if reason is None and len(admitted) + (value not in admitted) > most:
                return template.refuse_further(value)
            reason = reason or refuse_table(value)  # much slower, so never for unlimited values
            if reason is None:
                admitted.add(value)
            return reason

        return divide(records, route, refuse, default, topic, runner)

    return divide_records


def _judge(run: RunConfig, error: Exception, failures: int) -> float | None:
    """Return when a table that has failed is tried again; see ``JudgeFailure``."""
    most = attempts_of(run)
    if not is_transient(error) or 0 < most <= failures:
        return None
    pause_s = pause_after(failures, run.retry.backoff_s, run.retry.max_backoff_s)
    return max(pause_s, min_pause_s(error))


def _find_start(source: KafkaSource, position: KafkaCheckpoint, topic_id: str) -> TableStart:
    begun = source.start(position, topic_id)
    return TableStart(begun.checkpoint, [one.facts(position.topic) for one in begun.lost])
