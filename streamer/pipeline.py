"""Builds a pipeline from its configuration. Only this module uses every concrete class."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.partition_field import PartitionField
from lakemark.config.table_properties import MergeMode, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig
from lakemark.execution.limits import usable_threads
from lakemark.execution.runner import CancellableRunner, LocalRunner, Runner
from lakemark.index.bucket import BucketIndex
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.meta_columns import (
    IS_DELETED,
    RESERVED_PREFIX,
    is_reserved,
    without_meta_columns,
)
from lakemark.operations.create import create_table
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.metadata_table import drop_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation
from lakemark.storage.probe import check_conditional_puts
from sinks.dead_letters import INDEX as DEAD_LETTER_INDEX
from sinks.hudi.adaptive_exchange import AdaptiveExchange
from sinks.hudi.collect import collect_budget_bytes
from sinks.hudi.exchange import DriverExchange, StreamExchange
from sinks.hudi.partition_rule import PartitionChange
from sinks.hudi.prepare import PrepareChunk
from sinks.hudi.sink import HudiSink
from sinks.hudi.spark_exchange import SparkExchange
from sinks.reject_limit import NO_REJECTS, RejectLimit
from streamer.async_compaction import AsyncCompactionPolicy, AsyncCompactor
from streamer.batch_forecast import PipelineForecast
from streamer.cluster_runner import CancellableClusterRunner, ClusterRunner
from streamer.config.column_roles import (
    expression_problems,
    ordering_type_problems,
    timestamp_partition_problems,
)
from streamer.config.decode import AvroDecodeConfig, DecodeConfig
from streamer.config.errors import ConfigError
from streamer.config.pipeline import PipelineConfig
from streamer.config.source import METADATA_PREFIX
from streamer.events import Listener
from streamer.executors import check_executors, is_local
from streamer.jvm_exit import report_jvm_exit
from streamer.loop import StreamLoop
from streamer.partition_expiry import PartitionExpiry
from streamer.services import ServicePolicies, TableServices
from streamer.session import spark_session
from streamer.sources.kafka import KafkaSource
from streamer.start_checks import check_start
from streamer.table_setup import (
    check_partial_rows,
    check_partition_lifetime,
    check_table,
    check_unique_keys,
    columns_with,
    coordination_of,
    dead_letters_table,
    find_index,
    find_table,
    first_ring_count,
    table_spec,
)
from transforms.decode.avro import AvroDecoder
from transforms.decode.avro_differences import column_types
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.json import JsonDecoder
from transforms.decode.json_inference import infer_schema
from transforms.decode.schema_policy import SchemaPolicy
from transforms.record_converter import RecordConverter
from transforms.rejects import REJECTS_SCHEMA

_LOG = logging.getLogger(__name__)

#: The number of records from which a schema is inferred.
_SAMPLE_RECORDS = 1_000


@dataclass(frozen=True)
class Pipeline:
    """The loop, the source, the sink and the tables of one run, opened and checked.

    Attributes:
        loop: the stream loop.
        sink: commits the batches.
        source: reads the topic.
        tables: the table of the rows, and the dead-letter table if dead letters are enabled.
    """

    loop: StreamLoop
    sink: HudiSink
    source: KafkaSource
    tables: Sequence[OpenTable] = ()


@contextmanager
def build(
    config: PipelineConfig, listener: Listener, exchange: StreamExchange | None = None
) -> Iterator[Pipeline]:
    """Open the source, the tables and Spark until the block ends.

    All checks are made here: before the stream starts, and before anything is written. Checks that
    do not need Spark are made before Spark starts. Tables are created after all checks.

    Args:
        config: the configuration of the pipeline.
        listener: receives all events.
        exchange: moves records to their buckets; None to choose an exchange for each batch.

    Raises:
        HudiError: a setting, the topic or the table is not suitable; see the subclasses.
    """
    check_start(config)
    with report_jvm_exit(), _source(config, listener) as (spark, source):
        sink, writers = open_sink(config, source)
        compactor = _async_compactor(config, spark, listener)
        runner = _runner(spark)
        expiry = _partition_expiry(config, writers[0], runner, listener)
        services = TableServices(writers, _policies(config), runner, listener, compactor, expiry)
        loop = StreamLoop(
            config.name,
            source,
            sink,
            exchange or _exchange(spark, source, sink),
            services,
            config.run,
            listener,
        )
        yield Pipeline(loop, sink, source, [writer.table for writer in writers])


@contextmanager
def _source(
    config: PipelineConfig, listener: Listener
) -> Iterator[tuple[SparkSession, KafkaSource]]:
    """Yield the Spark session and the source; both are open until the block ends."""
    spark = spark_session(config)
    check_executors(spark)
    keeps_keys = config.dead_letters.enabled
    with KafkaSource(spark, config.source, listener, keeps_keys=keeps_keys) as source:
        yield spark, source


def _policies(config: PipelineConfig) -> ServicePolicies:
    compaction = config.compaction
    policy = CompactionPolicy(compaction.every_delta_commits)
    return ServicePolicies(
        policy if compaction.enabled else None,
        config.cleaning.cleaning_policy(),
        config.archival.archival_policy(compaction.every_delta_commits),
        config.bucket_resizing.resize_policy(config.concurrency),
    )


def _partition_expiry(
    config: PipelineConfig, rows: TableWriter, runner: Runner, listener: Listener
) -> PartitionExpiry | None:
    lifetime = config.partition_lifetime.lifetime()
    if lifetime is None:
        return None
    interval_s = config.partition_lifetime.interval_s
    return PartitionExpiry(rows, lifetime, interval_s, runner, listener)


def open_sink(config: PipelineConfig, source: KafkaSource) -> tuple[HudiSink, list[TableWriter]]:
    """Open the sink and the writers of its tables: that of the rows, then that of the dead letters.

    Nothing is changed before all checks are made.

    Raises:
        HudiError: a setting, the topic or a table is not suitable.
    """
    location, spec = config.table.location(), table_spec(config)
    coordination = coordination_of(config.concurrency)
    base_files = config.base_files.parquet_settings()
    found = find_table(location, config.table.timeline_timezone, coordination, base_files)
    index = find_index(config, found)
    values = _value_schema(config, source, found)
    if found is None:
        _check_expressions(config, config.row_columns() or values)
    converter = _record_converter(config, spec, values, found)
    _check_roles(config, converter.table_schema, found)
    if found is None:
        # If the topic is unreadable, fail now, so that no empty table is left behind.
        source.start_checkpoint(None)
    else:
        check_partial_rows(found, config.table.partial_update)
        check_partition_lifetime(found, config.partition_lifetime)
        if index is None and found.schema is not None:
            check_unique_keys(config, found)
        columns, policy = converter.table_schema, config.decode.policy()
        keys = _check_found(config, found, spec, index, columns, policy)
        converter = replace(converter, key_generator=keys)
    letters = _find_dead_letters(config) if config.dead_letters.enabled else None
    # All checks are made before anything is created or removed.
    table = _ready(config, location, spec, found, base_files)
    rejects = None if letters is None else _dead_letters(config, *letters)
    converter = converter.for_table(columns_with(table, converter.table_schema))
    settings = WriterSettings(
        index,
        config.table.log_format,
        config.table.merger,
        config.table.metadata_table,
        first_ring_count=first_ring_count(config, table) if index is None else None,
        global_keys=config.table.moves_rows,
    )
    rows = TableWriter(table, converter.table_schema, settings)
    prepare = PrepareChunk(converter=converter, row_index=index, reject_index=DEAD_LETTER_INDEX)
    bad = config.dead_letters
    limit = RejectLimit(bad.max_share, bad.tolerated) if rejects else NO_REJECTS
    rule = PartitionChange(config.table.partition_change)
    duplicates = Duplicates(config.table.duplicates) if config.table.inserts else None
    sink = HudiSink(rows, rejects, prepare, limit, config.source.checkpoint_id, rule, duplicates)
    return sink, [rows, *([rejects] if rejects else [])]


def _check_expressions(config: PipelineConfig, columns: pa.Schema) -> None:
    """Check the expressions that will partition a new table.

    Raises:
        ConfigError: an expression is not suitable.
    """
    problems = list(expression_problems(config.table, columns))
    if problems:
        raise ConfigError(problems)


def _check_roles(config: PipelineConfig, columns: pa.Schema, found: OpenTable | None) -> None:
    """Check the types of ordering and partition columns.

    An existing table keeps its partition columns, whatever their types are.

    Raises:
        ConfigError: an ordering column is text, or a partition column of a new table is a
            timestamp.
    """
    problems = list(ordering_type_problems(columns, config.table))
    of_partitions = list(timestamp_partition_problems(columns, config.table))
    if found is None or found.schema is None:
        problems += of_partitions
    elif of_partitions:
        _LOG.warning("%s; the table exists, so it keeps its partitions", of_partitions[0])
    if problems:
        raise ConfigError(problems)


def _find_dead_letters(
    config: PipelineConfig,
) -> tuple[StorageLocation, TableSpec, OpenTable | None]:
    """Return location and specification of the dead-letter table, and the table if it exists."""
    location, spec = dead_letters_table(config)
    found = find_table(location, coordination=coordination_of(config.concurrency))
    if found is not None:
        _check_found(config, found, spec, DEAD_LETTER_INDEX, REJECTS_SCHEMA, SchemaPolicy())
    return location, spec, found


def _dead_letters(
    config: PipelineConfig, location: StorageLocation, spec: TableSpec, found: OpenTable | None
) -> TableWriter:
    table = _ready(config, location, spec, found)
    settings = WriterSettings(DEAD_LETTER_INDEX, metadata_table=config.table.metadata_table)
    return TableWriter(table, REJECTS_SCHEMA, settings)


def _check_found(
    config: PipelineConfig,
    table: OpenTable,
    spec: TableSpec,
    index: BucketIndex | None,
    columns: pa.Schema,
    policy: SchemaPolicy,
) -> KeyGenerator:
    check_conditional_puts(table.storage)
    dropping = config.table.drops_metadata_table
    return check_table(table, spec, index, columns, policy, drops_metadata_table=dropping)


def _ready(
    config: PipelineConfig,
    location: StorageLocation,
    spec: TableSpec,
    found: OpenTable | None,
    base_files: ParquetSettings = PARQUET_DEFAULTS,
) -> OpenTable:
    """Return the table, which is created if it does not exist.

    If the pipeline is configured without a metadata table, an existing one is dropped.
    """
    coordination = coordination_of(config.concurrency)
    table = found or create_table(location, spec, coordination, base_files)
    properties = table.properties
    exists = properties.names_metadata_table or properties.metadata_indexes
    if found is not None and exists and config.table.drops_metadata_table:
        drop_metadata_table(table)
    return table


def _value_schema(
    config: PipelineConfig, source: KafkaSource, table: OpenTable | None
) -> pa.Schema:
    """Return the columns of the values: as declared, or else those of the table.

    If neither exists, they are those of the newest Avro schema, or inferred from JSON records.
    """
    declared = config.decode.declared()
    if declared is not None:
        return declared
    frozen = table.schema if table else None
    if frozen is not None:
        expressions = table.properties.partition_expressions if table else ()
        computed = (field.stored_column for field in expressions)
        added = {config.decode.rescue_column, *_kafka_columns(config), *computed}
        own = [field for field in without_meta_columns(frozen) if field.name not in added]
        decodable = AvroDecoder if isinstance(config.decode, AvroDecodeConfig) else JsonDecoder
        return pa.schema([field for field in own if decodable.is_decodable(field.type)])
    if isinstance(config.decode, AvroDecodeConfig):
        newest = config.decode.newest_schema(config.source.topic)
        columns = column_types(newest.root.arrow)
        _report_reserved([*filter(is_reserved, columns.names)], config)
        return pa.schema([field for field in columns if not is_reserved(field.name)])
    return _infer(config, source)


def _infer(config: PipelineConfig, source: KafkaSource) -> pa.Schema:
    """Infer the columns from records of the topic, and warn of omitted and rounded fields.

    Raises:
        InvalidConfig: no field has a type; or a field that the table needs has no type or is
            reserved; or no type can hold the numbers of a key exactly.
    """
    table = config.table
    exact = (*table.record_key, *table.partition_columns)
    sample = source.sample(_SAMPLE_RECORDS)
    inferred = infer_schema(sample, texts=table.record_key, exact=exact)
    untyped = ", ".join(inferred.untyped)
    if not len(inferred.schema):
        message = (
            f"topic {config.source.topic} has no JSON object from which to infer the schema"
            f"{f' (null or empty: {untyped})' if untyped else ''}; declare decode.schema, or "
            "start when there are records"
        )
        raise InvalidConfig(message)
    for name in (*table.record_key, *table.partition_columns, *table.ordering):
        if name in inferred.untyped:
            message = (
                f"column {name!r} is null or empty in all {inferred.records} sampled records, so "
                "its type cannot be inferred; declare decode.schema"
            )
            raise InvalidConfig(message)
    _report_reserved(inferred.reserved, config)
    if inferred.rounded:
        _LOG.warning(
            "fractions of more than 17 digits are rounded to double: %s; declare decimals in "
            "decode.schema to keep all digits",
            ", ".join(inferred.rounded),
        )
    if untyped:
        _LOG.warning(
            "null or empty in all %d sampled records: %s; declare them in decode.schema, or they "
            "are treated as unknown fields (decode.unknown_fields: %s)",
            inferred.records,
            untyped,
            config.decode.unknown_fields,
        )
    return inferred.schema


def _report_reserved(names: Sequence[str], config: PipelineConfig) -> None:
    """Warn of fields that are omitted because Hudi reserves their names.

    Raises:
        InvalidConfig: the table needs one of these fields.
    """
    table = config.table
    for name in (*table.record_key, *table.partition_columns, *table.ordering):
        if name in names:
            message = (
                f"column {name!r} is not inferred, because names that begin with "
                f"{RESERVED_PREFIX} are reserved by Hudi; declare decode.schema, or name another "
                "column"
            )
            raise InvalidConfig(message)
    if names:
        _LOG.warning(
            "omitted from the inferred columns, because their names are reserved by Hudi: %s; "
            "declare them in decode.schema, or they are treated as unknown fields "
            "(decode.unknown_fields: %s); %s: true deletes in any case",
            ", ".join(names),
            config.decode.unknown_fields,
            IS_DELETED,
        )


def _record_converter(
    config: PipelineConfig, spec: TableSpec, values: pa.Schema, found: OpenTable | None
) -> RecordConverter:
    decode, merging = config.decode, spec.merging
    fields, expressions = _stored_partitions(spec, found)
    keys = KeyGeneratorConfig(
        spec.record_key,
        fields,
        hive_style=spec.hive_style,
        url_encode=spec.url_encode,
        expressions=expressions,
    )
    return RecordConverter(
        _decoder(decode, values),
        KeyGenerator(keys),
        () if merging.mode is MergeMode.COMMIT_TIME else merging.ordering_fields,
        decode.tombstone_key,
        config.source.metadata_columns,
        METADATA_PREFIX,
        config.source.topic,
        merging.delete_marker,
        None if decode.tombstone_ordering == "none" else decode.tombstone_ordering,
        config.table.partial_update == "absent_fields",
        ignores_tombstones=decode.tombstones == "ignore",
        logs_deletes=spec.table_type is TableType.MERGE_ON_READ,
        deletes_by_key=config.table.moves_rows,
        inserts_only=config.table.inserts,
        chain=config.transform_chain(),
    )


def _stored_partitions(
    spec: TableSpec, found: OpenTable | None
) -> tuple[tuple[str, ...], tuple[PartitionField, ...]]:
    """Return the partition columns of the table, and those of them that store expressions."""
    if found is None:
        return spec.stored_partition_columns, spec.partition_expressions
    expressions = found.properties.partition_expressions
    if expressions:
        return found.properties.partition_fields, expressions
    # The folders of a table of Apache Hudi may be formatted times that no column stores.
    return spec.partition_columns, ()


def _decoder(decode: DecodeConfig, values: pa.Schema) -> ColumnDecoder:
    settings = values, decode.rescue_column, decode.timestamp_unit, decode.policy()
    if isinstance(decode, AvroDecodeConfig):
        limit_bytes = decode.record_limit_bytes
        return AvroDecoder(*settings, framing=decode.framing(), record_limit_bytes=limit_bytes)
    return JsonDecoder(*settings)


def _kafka_columns(config: PipelineConfig) -> list[str]:
    return [METADATA_PREFIX + name for name in config.source.metadata_columns]


def _exchange(spark: SparkSession, source: KafkaSource, sink: HudiSink) -> StreamExchange:
    budget_bytes, max_message_bytes = collect_budget_bytes(spark), source.max_message_bytes()
    if sink.looks_up_keys:
        return DriverExchange(LocalRunner(), budget_bytes)
    return AdaptiveExchange(
        DriverExchange(LocalRunner(), budget_bytes),
        lambda reduce_tasks: SparkExchange(reduce_tasks, max_message_bytes),
        budget_bytes,
        PipelineForecast(spark, source, sink),
    )


def _runner(spark: SparkSession) -> Runner:
    return LocalRunner() if is_local(spark) else ClusterRunner(spark)


def _async_compactor(
    config: PipelineConfig, spark: SparkSession, listener: Listener
) -> AsyncCompactor | None:
    compaction, retry = config.compaction, config.run.retry
    if not compaction.enabled or compaction.mode == "inline":
        return None
    policy = AsyncCompactionPolicy(
        CompactionPolicy(compaction.every_delta_commits),
        compaction.max_wait_s,
        compaction.backlog_commits,
        compaction.give_up_after_s,
        retry.backoff_s,
        retry.max_backoff_s,
    )
    return AsyncCompactor(policy, _compaction_runner(config, spark), listener)


def _compaction_runner(config: PipelineConfig, spark: SparkSession) -> CancellableRunner:
    if is_local(spark):
        return LocalRunner(max(1, usable_threads() // 2))
    return CancellableClusterRunner(spark, f"compaction of {config.name}")
