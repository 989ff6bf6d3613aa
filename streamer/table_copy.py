"""Copies the rows of a table into a new table, at which a pipeline continues."""

from __future__ import annotations

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from lakemark.metadata.index_sources import RECORD_INDEX
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.create import create_with_schema
from lakemark.operations.create_index import create_index
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_index import (
    DEFAULT_BUCKETS,
    ChosenIndex,
    IndexKind,
    has_bucket_index,
)
from lakemark.operations.write import RowWriter
from lakemark.read.queries import Snapshot
from streamer.config.pipeline import PipelineConfig
from streamer.table_setup import coordination_of, table_spec


def copy_table(
    source: OpenTable, as_of: str, config: PipelineConfig, checkpoint: KafkaCheckpoint
) -> OpenTable:
    """Create the table of a pipeline with the rows of another table, and return it.

    The checkpoint is recorded last, so a table without it was not copied completely.

    Args:
        source: the table to copy.
        as_of: the requested time of its commit to copy.
        config: the pipeline that continues the new table.
        checkpoint: the offsets up to which the copied rows contain the topic.

    Raises:
        InvalidConfig: the settings of the pipeline do not fit the columns of the table.
        SnapshotChanged: cleaning deleted files of the commit.
        HudiError: a table cannot be read or written.
    """
    scan = source.scan(Snapshot(as_of))
    columns = without_meta_columns(scan.schema)
    index = _index_like(source, config)
    table = create_with_schema(
        config.table.location(),
        table_spec(config),
        columns,
        index,
        coordination_of(config.concurrency),
        allow_text_ordering=config.table.allow_text_ordering,
        base_files=config.base_files.parquet_settings(),
    )
    # If keys should be unique in the whole table, they are so in the source. The commits of the
    # pipeline record this.
    RowWriter(table).bulk_insert(scan.with_columns(columns.names).to_reader())
    if config.table.has_record_index:
        partitioned = config.table.has_partitioned_index
        create_index(table, RECORD_INDEX.partition, partitioned=partitioned)
    write_checkpoint(table, "", checkpoint)
    return table


def _index_like(source: OpenTable, config: PipelineConfig) -> ChosenIndex:
    """Return an index of the same kind as that of a table."""
    given = config.table.given_buckets
    if source.first_ring_count is not None:
        return ChosenIndex(IndexKind.CONSISTENT_HASHING, source.first_ring_count)
    if config.table.needs_lookup_index or not has_bucket_index(source, given):
        return ChosenIndex(IndexKind.LOOKUP, None)
    return ChosenIndex(IndexKind.BUCKET, given or source.bucket_count or DEFAULT_BUCKETS)
