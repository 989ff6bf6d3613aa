"""Finds how far a pipeline has read its source, without Spark and without the source."""

from __future__ import annotations

from checkpoints.lookup import find_progress
from checkpoints.position import Position
from checkpoints.progress import Progress
from checkpoints.snapshot_position import SnapshotPosition
from lakemark.operations.open_table import OpenTable
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.pipeline import PipelineConfig
from streamer.sources.start_rules import check_own_topic


def find_own_progress(config: PipelineConfig, table: OpenTable) -> Progress | None:
    """Return the progress at which a pipeline continues its table; None if the table has none.

    Args:
        config: the settings of the pipeline.
        table: the table of the rows.

    Raises:
        DamagedCheckpoint: the checkpoint cannot be read.
        SnapshotUnread: a snapshot was not read completely, and the pipeline has none.
        ForeignCheckpoint: the checkpoint belongs to another topic.
    """
    source = config.source
    progress = find_progress(table, table.timeline, source.checkpoint_id)
    checkpoint = None if progress is None else progress.checkpoint
    if checkpoint is not None and isinstance(source, KafkaSourceConfig):
        check_own_topic(source, after_snapshot(config, checkpoint))
    return progress


def after_snapshot(config: PipelineConfig, checkpoint: Position) -> Position:
    """Return where the topic is read after a snapshot that is not read completely.

    It is the same position if the pipeline has no snapshot, or has read it.
    """
    if config.snapshot is not None and isinstance(checkpoint, SnapshotPosition):
        return checkpoint.then
    return checkpoint
