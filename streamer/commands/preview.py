"""``lakemark preview``: shows what a run would make of some records, and writes nothing.

They are the newest records of a topic, or the next records of files or of a table. If a run would
read a snapshot first, they are the next records of the snapshot.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.snapshot_position import SnapshotPosition
from lakemark.errors import InvalidConfig
from sinks.batch import KafkaBatch, RecordsBatch
from sinks.hudi.collect import TooLarge, collect, collect_budget_bytes
from streamer import pipeline
from streamer.checks.start import check_start
from streamer.commands.dead_letters import group_letters
from streamer.commands.table import Facts
from streamer.config.errors import ConfigError, Problem
from streamer.config.load import load, load_tree
from streamer.config.pipeline import PipelineConfig
from streamer.config.routed_tree import has_route
from streamer.config.secrets import build_redactor
from streamer.continuation import find_own_progress
from streamer.events import ignore
from streamer.jvm_exit import report_jvm_exit
from streamer.prepared_sink import PreparedSink, prepare_sink
from streamer.preview import Preview, preview_records
from streamer.row_output import first_rows, print_facts, print_grid, print_rows, screen_value
from streamer.snapshot import find_state
from streamer.source_defaults import with_source_defaults
from streamer.sources.source import Source, StreamSettings
from streamer.wording import counted

#: How many partition paths are shown.
_PARTITIONS_SHOWN = 10


def execute(arguments: argparse.Namespace) -> int:
    """Print columns, rows, rejects and the commit that a run would make of the records.

    Raises:
        ConfigError: the pipeline file is not valid.
        TooManyRejects, SchemaRefused: a run would stop with this error.
        HudiError: the topic or the table is not suitable, or Spark does not start.
    """
    config = _load(arguments)
    arguments.redacted = build_redactor(config)
    config = with_source_defaults(config)
    check_start(config, tries_stores=False)
    source = pipeline.open_source_without_spark(config)
    if find_state(config).is_due:
        config = config.of_snapshot()
        check_start(config, tries_stores=False)
        source = pipeline.open_rows_of_snapshot(config)
    if source is None:
        prepared, preview, origin = _preview_topic(config, arguments.records)
    else:
        with source:
            prepared, preview, origin = _preview_next(config, source, arguments.records)
    _show(config, prepared, origin, preview, arguments.rows)
    if preview.refusal is not None:
        raise preview.refusal
    return 0


def _load(arguments: argparse.Namespace) -> PipelineConfig:
    """Load the pipeline.

    Raises:
        ConfigError: the file is not valid, or divides its topic among many tables.
    """
    tree = load_tree(arguments.pipeline, arguments.overrides)
    if has_route(tree):
        text = (
            "a preview shows one table, but a route divides the topic among many; remove the "
            "section in a copy of the file, and filter the records of one table (transform)"
        )
        raise ConfigError([Problem("route", text)])
    return load(arguments.pipeline, arguments.overrides)


def _preview_topic(config: PipelineConfig, count: int) -> tuple[PreparedSink, Preview, str]:
    """Preview the newest records of a topic; also return a description of their origin."""
    with report_jvm_exit(), pipeline.open_source(config, ignore) as (spark, source):
        prepared = prepare_sink(config, source)
        batch = source.newest(count)
        preview = preview_records(config, prepared, _collect(batch, spark))
    return prepared, preview, f"topic {config.kafka.topic}, {_range_text(batch)}"


def _preview_next(
    config: PipelineConfig, source: Source, count: int
) -> tuple[PreparedSink, Preview, str]:
    """Preview the next records of a source that this process reads itself."""
    prepared = prepare_sink(config, source)
    found = prepared.rows.found
    progress = None if found is None else find_own_progress(config, found)
    position = None if progress is None else progress.checkpoint
    begun = source.start(position.read if isinstance(position, SnapshotPosition) else position)
    once = StreamSettings(mode="once", trigger_interval_s=0.0, scratch=Path())
    batch = source.open_stream(begun, once, lambda end, gaps: ()).plan(None, 0)
    if batch is None:
        message = f"{config.source.origin} has no unread records, so there is nothing to preview"
        raise InvalidConfig(message)
    assert isinstance(batch, RecordsBatch), batch
    records = batch.tables[0].slice(0, count)
    return prepared, preview_records(config, prepared, records), begun.checkpoint.origin


def _collect(batch: KafkaBatch, spark: SparkSession) -> pa.Table:
    try:
        return collect(batch, collect_budget_bytes(spark))
    except TooLarge as error:
        message = f"{error}; for a preview, lower --records"
        raise TooLarge(message) from None


def _show(
    config: PipelineConfig, prepared: PreparedSink, origin: str, preview: Preview, rows: int
) -> None:
    console = Console()
    _print_title("columns", console)
    print_facts({field.name: str(field.type) for field in preview.columns}, console)
    found = preview.rows()
    _print_title(f"rows ({min(rows, found.num_rows)} of {found.num_rows:,})", console)
    print_rows(first_rows(found.to_batches(), rows), console)
    _print_title(f"rejected records ({preview.rejects.num_rows:,})", console)
    print_grid(list(_reject_rows(preview.rejects)), console, "no rejected records")
    _print_title("the commit that a run would make", console)
    print_facts(_commit_facts(config, prepared, origin, preview), console)


def _print_title(title: str, console: Console) -> None:
    console.print(f"\n{title}", style="bold", soft_wrap=True, highlight=False)


def _reject_rows(rejects: pa.Table) -> Iterator[Facts]:
    """Yield one row for each reason, with the value of one record."""
    origins = zip(
        *(rejects.column(name).to_pylist() for name in ("topic", "partition", "offset")),
        strict=True,
    )
    positions = {":".join(map(str, origin)): row for row, origin in enumerate(origins)}
    for row in group_letters(rejects):
        value = rejects.column("value")[positions[str(row["such as"])]].as_py()
        yield {**row, "value": screen_value(value)}


def _commit_facts(
    config: PipelineConfig, prepared: PreparedSink, origin: str, preview: Preview
) -> Facts:
    table, partitions = prepared.rows.found, preview.partitions
    more = len(partitions) - _PARTITIONS_SHOWN
    shown = [path or "(not partitioned)" for path in partitions[:_PARTITIONS_SHOWN]]
    letters = config.dead_letters
    return {
        "table": config.table.path if table else f"{config.table.path} (would be created)",
        "records": f"{preview.records:,} of {origin}",
        "changes": f"{counted(preview.changes.num_rows - preview.deletes, 'row')}, "
        f"{counted(preview.deletes, 'delete')}",
        "keys": preview.keys,
        "partitions": [*shown, *([f"and {more:,} more"] if more > 0 else [])],
        "new columns": list(preview.new_columns),
        "rejected": f"{preview.rejects.num_rows:,} to {letters.path}"
        if letters.enabled
        else preview.rejects.num_rows,
        "ignored tombstones": preview.ignored,
        "dropped by transform": preview.filtered,
        "violated rules": [
            f"{one.rule} ({one.outcome}): {counted(one.count, 'row')}, such as {one.first}"
            for one in preview.violations
        ],
    }


def _range_text(batch: KafkaBatch) -> str:
    return f"from offsets {_offsets(batch.start)} to {_offsets(batch.end)}"


def _offsets(checkpoint: KafkaCheckpoint) -> str:
    return ", ".join(f"{n}:{offset}" for n, offset in sorted(checkpoint.offsets.items()))
