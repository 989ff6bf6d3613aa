"""Builds a pipeline from its configuration. Only this module uses every concrete class."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.execution.limits import usable_threads
from lakemark.execution.runner import CancellableRunner, LocalRunner, Runner
from lakemark.operations.create import create_table
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.metadata_table import drop_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.storage.probe import check_conditional_puts
from sinks.hudi.adaptive_exchange import AdaptiveExchange
from sinks.hudi.collect import collect_budget_bytes, load_classes
from sinks.hudi.exchange import DriverExchange, MemoryExchange, StreamExchange
from sinks.hudi.partition_rule import PartitionChange
from sinks.hudi.prepare import PrepareChunk
from sinks.hudi.sink import HudiSink
from sinks.hudi.spark_exchange import SparkExchange
from sinks.letter_layout import INDEX as DEAD_LETTER_INDEX
from sinks.letter_layout import LetterLayout
from sinks.reject_limit import NO_REJECTS, RejectLimit
from streamer.async_compaction import AsyncCompactionPolicy, AsyncCompactor
from streamer.batch_forecast import PipelineForecast
from streamer.catalog_sync import catalog_syncs
from streamer.checks.start import check_start
from streamer.cluster_runner import CancellableClusterRunner, ClusterRunner
from streamer.clustering import ClusteringRules, PendingPlans, TableClustering
from streamer.config.files_source import FilesSourceConfig
from streamer.config.pipeline import PipelineConfig
from streamer.config.snapshot import snapshot_warnings
from streamer.config.table_source import TableSourceConfig
from streamer.events import CAUGHT_UP, Event, Listener, RunStopped, SnapshotRead
from streamer.executors import check_executors, is_local
from streamer.index_setup import create_record_index, first_ring_count, index_of_new_table
from streamer.jvm_exit import report_jvm_exit
from streamer.letter_expiry import LetterExpiry
from streamer.loop import StreamLoop
from streamer.partition_expiry import PartitionExpiry
from streamer.pipeline_hooks import PipelineHooks, pipeline_hooks
from streamer.prepared_sink import PreparedSink, PreparedTable, prepare_letters, prepare_sink
from streamer.requested_services import RequestedServices, RequestPolicies
from streamer.schedule import UNSHARED
from streamer.services import ServicePolicies, TableServices
from streamer.session import spark_session
from streamer.shared_process import SharedProcess
from streamer.snapshot import check_columns, find_state
from streamer.source_defaults import with_source_defaults
from streamer.sources.errors import SourceBeingWritten
from streamer.sources.files.source import FilesSource
from streamer.sources.kafka import KafkaSource
from streamer.sources.snapshots.check import check_snapshot
from streamer.sources.snapshots.source import SnapshotSource
from streamer.sources.snapshots.topic import TopicAfterSnapshot
from streamer.sources.source import FirstRecords, Source
from streamer.sources.tables.source import TableSource
from streamer.table_setup import coordination_of

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pipeline:
    """The loop, the source, the sink and the tables of one run, opened and checked.

    Attributes:
        loop: the stream loop.
        sink: commits the batches.
        source: reads the records.
        tables: the table of the rows, and the dead-letter table if dead letters are enabled.
        requested: takes requests for table services; None if it takes none.
    """

    loop: StreamLoop
    sink: HudiSink
    source: Source
    tables: Sequence[OpenTable] = ()
    requested: RequestedServices | None = None


@contextmanager
def build(
    config: PipelineConfig,
    listener: Listener,
    exchange: StreamExchange[Any] | None = None,
    process: SharedProcess | None = None,
    paused: threading.Event | None = None,
    *,
    is_snapshot_read: bool = False,
) -> Iterator[Pipeline]:
    """Open the source, the tables and Spark until the block ends.

    All checks are made here: before the stream starts, and before anything is written. Checks that
    do not need Spark are made before Spark starts. Tables are created after all checks. The
    pipeline does not read its snapshot, if it has one; see ``build_snapshot``.

    Args:
        config: the configuration of the pipeline.
        listener: receives all events.
        exchange: moves records to their buckets; None to choose an exchange for each batch.
        process: the process that the pipeline shares with others; None if it has its own.
        paused: set while the run should pause; None if it never should.
        is_snapshot_read: whether the pipeline of ``build_snapshot`` has just read the snapshot to
            its end.

    Raises:
        HudiError: a setting, the topic or the table is not suitable; see the subclasses.
    """
    config = with_source_defaults(config)
    check_start(config)
    session = None if process is None else process.spark
    hooks = pipeline_hooks(config, listener)
    opened = _open_source(config, hooks.listen, session, is_snapshot_read=is_snapshot_read)
    with report_jvm_exit(), hooks.until_end(), opened as (spark, source):
        yield _assemble(config, spark, source, hooks, hooks.listen, exchange, process, paused)


@contextmanager
def build_snapshot(
    config: PipelineConfig,
    listener: Listener,
    exchange: StreamExchange[Any] | None = None,
    paused: threading.Event | None = None,
) -> Iterator[Pipeline]:
    """Open a pipeline that reads the snapshot of ``config`` and ends; see ``build``.

    What can be checked of the topic is checked, too, so that the run does not fail hours later.

    Raises:
        BadSnapshot: the snapshot is empty, or damaged.
        HudiError: a setting, the topic or the table is not suitable; see the subclasses.
    """
    of_snapshot = config.of_snapshot()
    check_start(config)
    if find_state(config).position is None:
        check_snapshot(of_snapshot)
        for text in snapshot_warnings(config.kafka, config.table):
            _LOG.warning(text)
    check_start(of_snapshot)
    hooks = pipeline_hooks(config, listener, reads_snapshot=True)
    with (
        report_jvm_exit(),
        hooks.until_end(),
        open_source(config, hooks.listen) as (spark, topic),
        open_rows_of_snapshot(of_snapshot) as rows,
        SnapshotSource(rows, topic) as source,
    ):
        check_columns(config, prepare_sink(of_snapshot, source))
        ends = _end_of_snapshot(of_snapshot, hooks.listen)
        yield _assemble(of_snapshot, spark, source, hooks, ends, exchange, None, paused)


def _end_of_snapshot(config: PipelineConfig, listener: Listener) -> Listener:
    """Return a listener that receives ``SnapshotRead`` when the snapshot is read.

    The run continues with the topic, so it has not stopped.
    """

    def listen(event: Event, /) -> None:
        if isinstance(event, RunStopped) and event.reason == CAUGHT_UP:
            event = SnapshotRead(
                config.source.origin, event.batches, event.rows_written, event.seconds
            )
        listener(event)

    return listen


def _assemble(
    config: PipelineConfig,
    spark: SparkSession | None,
    source: Source,
    hooks: PipelineHooks,
    listener: Listener,
    exchange: StreamExchange[Any] | None,
    process: SharedProcess | None,
    paused: threading.Event | None,
) -> Pipeline:
    """Open the tables of a pipeline, and build its loop; see ``build``."""
    sink, writers = open_sink(config, source, hooks.record)
    hooks.begin(writers[0].table)
    services = table_services(config, spark, writers, listener, hooks)
    loop = StreamLoop(
        config.name,
        source,
        sink,
        exchange or _exchange(spark, source, sink, 1 if process is None else process.num_batches),
        services,
        config.run,
        listener,
        UNSHARED if process is None else process.schedule_of(config),
        paused,
    )
    tables = [writer.table for writer in writers]
    return Pipeline(loop, sink, source, tables, services.requested)


def table_services(
    config: PipelineConfig,
    spark: SparkSession | None,
    writers: Sequence[TableWriter],
    listener: Listener,
    hooks: PipelineHooks | None = None,
    runner: Runner | None = None,
) -> TableServices:
    """Return the table services of a pipeline.

    Args:
        config: the configuration of the pipeline.
        spark: the session; None to execute all tasks in this process.
        writers: the writer of the table, and that of its dead letters, if there are any.
        listener: receives all events.
        hooks: announce the commits; None if the pipeline has none.
        runner: executes the tasks between batches; None for all cores of the process or cluster.
    """
    runner = runner or _runner(spark)
    policies, compactor = _policies(config), _async_compactor(config, spark, listener)
    clusterings = table_clusterings(config, writers, runner, listener)
    of_requests = RequestPolicies(
        policies.compaction is not None, policies.cleaning, policies.archival
    )
    return TableServices(
        writers,
        policies,
        runner,
        listener,
        compactor,
        _partition_expiries(config, writers, runner, listener),
        clusterings,
        catalog_syncs(config, writers[0].table, listener),
        hooks,
        RequestedServices(writers, of_requests, runner, listener, compactor, clusterings),
    )


def letter_services(
    config: PipelineConfig, letters: TableWriter, listener: Listener
) -> TableServices:
    """Return the services of a dead-letter table that belongs to no table of rows."""
    runner, retention = LocalRunner(), config.dead_letters.kept_for()
    expiries = [] if retention is None else [LetterExpiry(letters, retention, runner, listener)]
    return TableServices([letters], _policies(config), runner, listener, None, expiries)


@contextmanager
def _open_source(
    config: PipelineConfig,
    listener: Listener,
    session: SparkSession | None,
    *,
    is_snapshot_read: bool,
) -> Iterator[tuple[SparkSession | None, Source]]:
    """Open the source of any kind until the block ends; yield it, and Spark if it needs Spark."""
    without_spark = open_source_without_spark(config)
    if without_spark is not None:
        with without_spark as source:
            yield session, source
        return
    if config.snapshot is not None:
        spark = session or open_session(config)
        keeps_keys = _keeps_keys(config)
        with TopicAfterSnapshot(
            spark,
            config.kafka,
            listener,
            keeps_keys=keeps_keys,
            is_snapshot_read=is_snapshot_read,
        ) as topic:
            yield spark, topic
        return
    with open_source(config, listener, session) as opened:
        yield opened


def open_rows_of_snapshot(config: PipelineConfig) -> Source:
    """Open the files or the table of a snapshot.

    Args:
        config: the pipeline that reads the snapshot (``PipelineConfig.of_snapshot``).

    Raises:
        HudiError: a setting of the source is not suitable.
    """
    if isinstance(config.source, TableSourceConfig):
        return TableSource(config.source, only_snapshot=True)
    assert isinstance(config.source, FilesSourceConfig), config.source
    return FilesSource(config.source, config.decode)


def open_source_without_spark(config: PipelineConfig) -> Source | None:
    """Open a source that this process reads itself; None if the source is Kafka.

    Raises:
        HudiError: a setting of the source is not suitable.
    """
    if isinstance(config.source, FilesSourceConfig):
        return FilesSource(config.source, config.decode)
    if isinstance(config.source, TableSourceConfig):
        return TableSource(config.source)
    return None


@contextmanager
def open_source(
    config: PipelineConfig, listener: Listener, session: SparkSession | None = None
) -> Iterator[tuple[SparkSession, KafkaSource]]:
    """Start Spark, or use a running session, and open the source of Kafka until the block ends.

    Args:
        config: the configuration of the pipeline.
        listener: receives all events.
        session: a session that ``open_session`` has returned; None to call it.

    Raises:
        HudiError: Spark does not start, or a property of the source is not accepted.
    """
    spark = session or open_session(config)
    with KafkaSource(spark, config.kafka, listener, keeps_keys=_keeps_keys(config)) as source:
        yield spark, source


def _keeps_keys(config: PipelineConfig) -> bool:
    return config.dead_letters.enabled or config.decode.needs_keys


def open_session(config: PipelineConfig, *, is_shared: bool = False) -> SparkSession:
    """Start Spark, or use the running session, and check the executors.

    Args:
        config: the configuration of the pipeline.
        is_shared: whether several pipelines share the session.

    Raises:
        HudiError: Spark does not start, or an executor cannot run the project.
    """
    spark = spark_session(config, is_shared=is_shared)
    check_executors(spark)
    _load_classes_early(spark)
    return spark


def _load_classes_early(spark: SparkSession) -> None:
    """Load the JVM's classes for the first batch while the tables and the topic are opened.

    On two cores, the first batch is published 0.8 s earlier. No failure matters: the first batch
    fails in the same way, or the run has ended, and Spark's JVM with it.
    """

    def run() -> None:
        with suppress(Exception):
            load_classes(spark)

    if is_local(spark):
        threading.Thread(target=run, name="class-loading", daemon=True).start()


def _policies(config: PipelineConfig) -> ServicePolicies:
    policy = config.compaction.compaction_policy()
    return ServicePolicies(
        policy if config.compaction.enabled else None,
        config.cleaning.cleaning_policy(),
        config.archival.archival_policy(policy.after_commits),
        config.bucket_resizing.resize_policy(config.concurrency),
        config.compaction.logs,
        config.bucket_resizing.mode == "background" and config.run.mode == "continuous",
    )


def table_clusterings(
    config: PipelineConfig, writers: Sequence[TableWriter], runner: Runner, listener: Listener
) -> list[TableClustering]:
    """Return what clusters each table. No clustering of the dead-letter table is planned."""
    rules = clustering_rules(config)
    return [
        TableClustering(
            one, rules if one is writers[0] else replace(rules, policy=None), runner, listener
        )
        for one in writers
    ]


def clustering_rules(config: PipelineConfig) -> ClusteringRules:
    """Return when a pipeline clusters its table."""
    clustering = config.clustering
    return ClusteringRules(
        policy=clustering.clustering_policy() if clustering.enabled else None,
        after_commits=clustering.after_commits,
        chooses=clustering.chooses,
        pending=PendingPlans(clustering.pending),
        in_background=clustering.mode == "background" and config.run.mode == "continuous",
    )


def _partition_expiries(
    config: PipelineConfig, writers: Sequence[TableWriter], runner: Runner, listener: Listener
) -> Iterator[PartitionExpiry]:
    """Yield what deletes old partitions of the pipeline's table, and of its dead-letter table."""
    rows, *letters = writers
    of_rows = _partition_expiry(config, rows, runner, listener)
    if of_rows is not None:
        yield of_rows
    retention = config.dead_letters.kept_for()
    if retention is not None:
        yield from (LetterExpiry(one, retention, runner, listener) for one in letters)


def _partition_expiry(
    config: PipelineConfig, rows: TableWriter, runner: Runner, listener: Listener
) -> PartitionExpiry | None:
    lifetime = config.partition_lifetime.lifetime()
    if lifetime is None:
        return None
    interval_s = config.partition_lifetime.interval_s
    return PartitionExpiry(rows, lifetime, interval_s, runner, listener)


@dataclass(frozen=True)
class OpenedTables:
    """The tables of a pipeline, opened and checked.

    Attributes:
        rows: the writer of the table.
        rejects: the writer of the dead-letter table; None if dead letters are not enabled.
        prepare: converts raw records to changes of the table.
        rule: the rule for rows whose key exists in another partition.
        duplicates: what an insert does with stored keys; None for upserts and deletes.
    """

    rows: TableWriter
    rejects: TableWriter | None
    prepare: PrepareChunk
    rule: PartitionChange
    duplicates: Duplicates | None


def open_sink(
    config: PipelineConfig, source: FirstRecords, notes: Callable[[], Mapping[str, str]] = dict
) -> tuple[HudiSink, list[TableWriter]]:
    """Open the sink and the writers of its tables: that of the rows, then that of the dead letters.

    Nothing is changed before all checks are made.

    Args:
        config: the configuration of the pipeline.
        source: reads the first records, if the columns must be inferred.
        notes: returns further metadata for each commit.

    Raises:
        HudiError: a setting, the topic or a table is not suitable.
    """
    opened, bad = _open_tables(config, source), config.dead_letters
    rows, rejects = opened.rows, opened.rejects
    limit = RejectLimit(bad.max_share, bad.tolerated) if rejects else NO_REJECTS
    sink = HudiSink(
        rows,
        rejects,
        opened.prepare,
        limit,
        config.source.checkpoint_id,
        opened.rule,
        opened.duplicates,
        notes,
    )
    return sink, [rows, *([rejects] if rejects else [])]


def _open_tables(config: PipelineConfig, source: FirstRecords) -> OpenedTables:
    """Open or create the tables of a pipeline. Nothing is changed before all checks are made."""
    prepared = prepare_sink(config, source)
    if prepared.rows.found is None:
        # If the source is unreadable, fail now, so that no empty table is left behind. The loop
        # waits for other programs, and can be stopped meanwhile.
        with suppress(SourceBeingWritten):
            source.start(None)
    for one in (prepared.rows, prepared.letters):
        if one is not None and one.found is not None:
            check_conditional_puts(one.found.storage)
    # All checks are made before anything is created or removed.
    rows = _ready(config, prepared.rows, config.base_files.parquet_settings())
    letters = None
    if prepared.letters is not None:
        letters = _ready(config, prepared.letters, of_letters=True)
    builds = config.table.metadata_table
    return open_writers(config, prepared, rows, letters, builds_metadata_tables=builds)


def open_writers(
    config: PipelineConfig,
    prepared: PreparedSink,
    rows: OpenTable,
    letters: OpenTable | None,
    *,
    builds_metadata_tables: bool,
) -> OpenedTables:
    """Return the writers of the tables of a pipeline. Nothing is changed.

    Args:
        config: the configuration of the pipeline.
        prepared: the checked tables.
        rows: the table of the rows, which exists.
        letters: the dead-letter table, which exists; None if dead letters are not enabled.
        builds_metadata_tables: whether ``TableWriter.recover`` builds a metadata table if there is
            none. An existing one is always kept up to date.
    """

    def keeps_metadata(table: OpenTable) -> bool:
        return builds_metadata_tables or table.properties.names_metadata_table

    index, converter = prepared.index, prepared.converter
    settings = WriterSettings(
        index,
        config.table.log_format,
        config.table.merger,
        keeps_metadata(rows),
        first_ring_count=first_ring_count(config, rows) if index is None else None,
        global_keys=config.table.moves_rows,
        compacted_slices=config.compaction.slice_choice(),
        event_time_column=config.table.event_time_column,
    )
    rejects = None
    if letters is not None:
        rejects = letter_writer(letters, keeps_metadata_table=keeps_metadata(letters))
    return OpenedTables(
        rows=TableWriter(rows, converter.table_schema, settings),
        rejects=rejects,
        prepare=PrepareChunk(converter=converter, row_index=index, reject_index=DEAD_LETTER_INDEX),
        rule=PartitionChange(config.table.partition_change),
        duplicates=Duplicates(config.table.duplicates) if config.table.inserts else None,
    )


def letter_writer(letters: OpenTable, *, keeps_metadata_table: bool) -> TableWriter:
    """Return the writer of a dead-letter table, which exists."""
    settings = WriterSettings(DEAD_LETTER_INDEX, metadata_table=keeps_metadata_table)
    return TableWriter(letters, LetterLayout.of(letters.properties).columns, settings)


def open_letters(config: PipelineConfig, *, creates: bool) -> TableWriter | None:
    """Open only the dead-letter table of a pipeline.

    Args:
        config: the configuration of the pipeline.
        creates: whether the table is created if it does not exist.

    Returns:
        The writer; None if the table does not exist.

    Raises:
        HudiError: the table is not suitable.
    """
    prepared = prepare_letters(config)
    if prepared.found is None and not creates:
        return None
    if prepared.found is not None:
        check_conditional_puts(prepared.found.storage)
    table = _ready(config, prepared, of_letters=True)
    keeps = config.table.metadata_table or table.properties.names_metadata_table
    return letter_writer(table, keeps_metadata_table=keeps)


def _ready(
    config: PipelineConfig,
    prepared: PreparedTable,
    base_files: ParquetSettings = PARQUET_DEFAULTS,
    *,
    of_letters: bool = False,
) -> OpenTable:
    """Return the table, which is created if it does not exist.

    If the pipeline is configured without a metadata table, an existing one is dropped. A table
    without rows gets the record index of the settings.
    """
    coordination = coordination_of(config.concurrency, of_letters=of_letters)
    found = prepared.found
    index = None if of_letters else index_of_new_table(config)
    table = found or create_table(prepared.location, prepared.spec, coordination, base_files, index)
    properties = table.properties
    exists = properties.names_metadata_table or properties.metadata_indexes
    if found is not None and exists and config.table.drops_metadata_table:
        drop_metadata_table(table)
    if not of_letters:
        create_record_index(config, table)
    return table


def _exchange(
    spark: SparkSession | None, source: Source, sink: HudiSink, num_batches: int
) -> StreamExchange[Any]:
    """Return the exchange of a pipeline, if ``num_batches`` batches share the driver's memory."""
    if spark is None or not isinstance(source, KafkaSource):
        return MemoryExchange(LocalRunner())
    budget_bytes = collect_budget_bytes(spark) // num_batches
    max_message_bytes = source.max_message_bytes()
    if sink.looks_up_keys:
        return DriverExchange(LocalRunner(), budget_bytes)
    return AdaptiveExchange(
        DriverExchange(LocalRunner(), budget_bytes),
        lambda reduce_tasks: SparkExchange(reduce_tasks, max_message_bytes),
        budget_bytes,
        PipelineForecast(spark, source, sink),
    )


def _runner(spark: SparkSession | None) -> Runner:
    return LocalRunner() if spark is None or is_local(spark) else ClusterRunner(spark)


def _async_compactor(
    config: PipelineConfig, spark: SparkSession | None, listener: Listener
) -> AsyncCompactor | None:
    compaction, retry = config.compaction, config.run.retry
    if not compaction.enabled or compaction.mode == "inline":
        return None
    policy = AsyncCompactionPolicy(
        compaction.compaction_policy(),
        compaction.max_wait_s,
        compaction.backlog_commits,
        compaction.give_up_after_s,
        retry.backoff_s,
        retry.max_backoff_s,
    )
    return AsyncCompactor(policy, _compaction_runner(config, spark), listener)


def _compaction_runner(config: PipelineConfig, spark: SparkSession | None) -> CancellableRunner:
    if spark is None or is_local(spark):
        return LocalRunner(max(1, usable_threads() // 2))
    return CancellableClusterRunner(spark, f"compaction of {config.name}")
