"""Finds how far a pipeline has read its source, without Spark and without the source."""

from __future__ import annotations

from checkpoints.lookup import find_progress
from checkpoints.progress import Progress
from lakemark.operations.open_table import OpenTable
from streamer.config.any_source import AnySource
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.sources.start_rules import check_own_topic


def find_own_progress(source: AnySource, table: OpenTable) -> Progress | None:
    """Return the progress at which a pipeline continues its table; None if the table has none.

    Args:
        source: the settings of the pipeline's source.
        table: the table of the rows.

    Raises:
        DamagedCheckpoint: the checkpoint cannot be read.
        ForeignCheckpoint: the checkpoint belongs to another topic.
    """
    progress = find_progress(table, table.timeline, source.checkpoint_id)
    checkpoint = None if progress is None else progress.checkpoint
    if checkpoint is not None and isinstance(source, KafkaSourceConfig):
        check_own_topic(source, checkpoint)
    return progress
