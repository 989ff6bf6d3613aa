"""The rules of a pipeline for the start of a run: which starts are refused. Without I/O.

A run applies them with offsets that Kafka's Java client has read, and ``lakemark doctor`` with
those that librdkafka has read.
"""

from __future__ import annotations

from collections.abc import Mapping

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.position import Position
from checkpoints.snapshot_position import SnapshotPosition
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.sources import kafka_offsets
from streamer.sources.errors import (
    EndingNotReached,
    EndingPassed,
    ForeignCheckpoint,
    LostOffsets,
    SnapshotUnread,
    TopicRecreated,
    UnknownPartitions,
)
from streamer.sources.kafka_offsets import Fallback, OffsetRange, Start, Starting


def first_start(
    source: KafkaSourceConfig, starting: Starting, available: Mapping[int, OffsetRange]
) -> Start:
    """Return the start of the first run.

    Args:
        source: the settings of the source.
        starting: ``source.starting_offsets``; a time is resolved to offsets.
        available: the offsets of each partition.

    Raises:
        UnknownPartitions: the topic does not have all named partitions.
    """
    if isinstance(starting, Mapping) and not starting.keys() <= available.keys():
        unknown = starting.keys() - available.keys()
        raise UnknownPartitions(source.topic, unknown, len(available))
    return kafka_offsets.first_start(source.topic, available, starting, fallback_of(source))


def check_own_topic(source: KafkaSourceConfig, checkpoint: Position) -> KafkaCheckpoint:
    """Return a checkpoint that belongs to the topic of the pipeline.

    Raises:
        SnapshotUnread: a snapshot was not read completely.
        ForeignCheckpoint: it belongs to another topic, or to another kind of source.
    """
    if isinstance(checkpoint, SnapshotPosition) and checkpoint.then.topic == source.topic:
        raise SnapshotUnread(source.topic, str(checkpoint))
    if not isinstance(checkpoint, KafkaCheckpoint) or checkpoint.topic != source.topic:
        raise ForeignCheckpoint(source.topic, str(checkpoint))
    return checkpoint


def fallback_of(source: KafkaSourceConfig) -> Fallback:
    """Return where a partition continues if it does not have the wanted offset."""
    policy = source.on_offset_out_of_range
    return "earliest" if policy == "fail" else policy


def is_recreated(read: str, found: str) -> bool:
    """Return whether a topic was created again.

    Args:
        read: the id of the topic that the table has read; "" if it is not known.
        found: the id of the current topic; "" if the broker does not return it.
    """
    return "" not in (read, found) and read != found


def check_losses(source: KafkaSourceConfig, start: Start, read: str, found: str) -> None:
    """Check that the start loses no records, unless the pipeline allows this.

    Args:
        source: the settings of the source.
        start: the start.
        read: as for ``is_recreated``.
        found: as for ``is_recreated``.

    Raises:
        TopicRecreated: the topic was created again, and ``source.on_offset_out_of_range`` is
            ``fail``.
        LostOffsets: unread records were deleted, and this setting is ``fail``.
    """
    if source.on_offset_out_of_range != "fail":
        return
    if is_recreated(read, found):
        raise TopicRecreated(source.topic, read, found)
    if start.lost:
        raise LostOffsets(source.topic, start.lost)


def check_ending(
    source: KafkaSourceConfig, start: KafkaCheckpoint, available: Mapping[int, OffsetRange]
) -> None:
    """Check that a run can read up to ``source.ending_offsets``, if they are set.

    Args:
        source: the settings of the source.
        start: where the run starts.
        available: the offsets of each partition.

    Raises:
        EndingPassed: the run starts after these offsets.
        EndingNotReached: the topic does not have these offsets.
    """
    for partition, ending in (source.ending_offsets or {}).items():
        read, held = start.offsets.get(partition, 0), available.get(partition)
        if held is None or held.end < ending:
            end = None if held is None else held.end
            raise EndingNotReached(source.topic, partition, end, ending)
        if read > ending:
            raise EndingPassed(source.topic, partition, read, ending)
