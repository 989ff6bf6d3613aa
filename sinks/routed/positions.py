"""The position of one table of a routed pipeline, and the records that it has not read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from checkpoints.routed_positions import RoutedPositions, later
from lakemark.errors import Permanent


class ForeignPosition(Permanent):
    """A table records the position of another source."""

    def __init__(self, topic: str, position: str) -> None:
        super().__init__(
            f"the table has read {position}, but the pipeline reads topic {topic}; give the "
            "pipeline a source.checkpoint_id of its own, or another table.path"
        )


class PositionPassed(Permanent):
    """The stream has already read past the position of a table, which must be read again."""

    def __init__(self, table: str, position: KafkaCheckpoint, start: KafkaCheckpoint) -> None:
        super().__init__(
            f"table {table} has read up to {position}, but the stream is at {start}; the stream "
            "starts again at the position of the table"
        )


def position_of_table(
    name: str, topic: str, stored: RoutedPositions | None, own: Progress | None
) -> KafkaCheckpoint:
    """Return the position of a table: the stored one, unless that of the table counts.

    The newest commit of the pipeline in a table is at or above the stored position. If it is not,
    or if it is older than the commit that the stored positions name, an operator has moved the
    position of the table, or has undone commits.

    Args:
        name: the name of the table.
        topic: the topic.
        stored: the stored positions of all tables; None if there are none.
        own: what the table itself records; None if it records nothing.

    Raises:
        ForeignPosition: the table records the position of another source.
    """
    nothing = KafkaCheckpoint(topic, {})
    if stored is None:
        return position_in(own, topic) or nothing
    position, newest = stored.of(name), stored.commits.get(name, "")
    if own is None:
        return nothing if newest else position
    if topic_ids_differ(own.topic_id, stored.topic_id):
        return position
    recorded = position_in(own, topic) or nothing
    if own.commit == newest or (own.commit > newest and position <= recorded):
        return later(recorded, position)
    return recorded


def position_in(progress: Progress | None, topic: str) -> KafkaCheckpoint | None:
    """Return the position that a table records; None if it records none.

    Raises:
        ForeignPosition: it belongs to another source.
    """
    position = None if progress is None else progress.checkpoint
    if position is None:
        return None
    if not isinstance(position, KafkaCheckpoint) or position.topic != topic:
        raise ForeignPosition(topic, str(position))
    return position


def topic_ids_differ(one: str, other: str) -> bool:
    """Return whether two of Kafka's ids of a topic differ; "" is not known."""
    return "" not in (one, other) and one != other


def has_passed(start: KafkaCheckpoint, position: KafkaCheckpoint) -> bool:
    """Return whether a batch that begins at ``start`` lacks records that a table needs."""
    return any(offset > position.offsets.get(p, 0) for p, offset in start.offsets.items())


def with_partitions_of(position: KafkaCheckpoint, start: KafkaCheckpoint) -> KafkaCheckpoint:
    """Return a position with the partitions of ``start`` that it lacks."""
    return KafkaCheckpoint(position.topic, {**start.offsets, **position.offsets})


def keep_unread(records: pa.Table, position: KafkaCheckpoint) -> pa.Table:
    """Return the records that are not below a position.

    Args:
        records: rows with the columns ``partition`` and ``offset``, both without nulls.
        position: the first unread offset of each partition.
    """
    if not position.offsets or not records.num_rows:
        return records
    partitions = records.column("partition").to_numpy()
    highest = max(int(partitions.max()), max(position.offsets))
    begins = np.zeros(highest + 1, np.int64)
    for partition, offset in position.offsets.items():
        begins[partition] = offset
    is_unread = records.column("offset").to_numpy() >= begins[partitions]
    return records if is_unread.all() else records.filter(pa.array(is_unread))
