"""Sorts a batch of raw Kafka records by arrival, and returns their metadata as columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.decode_result import Indices

#: Kafka metadata of a record that can become a column of the table.
KafkaColumn = Literal["topic", "partition", "offset", "timestamp", "key"]

_TYPES: dict[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "key": pa.binary(),
}


def kafka_fields(wanted: Iterable[KafkaColumn], prefix: str) -> list[pa.Field]:
    """Return the table columns for the wanted metadata."""
    return [pa.field(prefix + name, _TYPES[name]) for name in wanted]


def kafka_columns(
    records: pa.Table, indices: Indices | None, wanted: Iterable[KafkaColumn], topic: str | None
) -> list[pa.ChunkedArray]:
    """Return the values of metadata columns for some of the records.

    Args:
        records: the batch.
        indices: the rows of ``records`` to return, ascending; None for all.
        wanted: the metadata to return.
        topic: the topic of a batch that has no ``topic`` column.
    """
    if "topic" not in records.column_names:
        topics = pa.repeat(pa.scalar(topic, pa.string()), records.num_rows)
        records = records.append_column("topic", topics)
    selected = records.select(list(wanted))
    if indices is not None:
        selected = selected.take(pa.array(indices))
    return [selected.column(name).cast(_TYPES[name]) for name in selected.column_names]


def sort_by_arrival(records: pa.Table) -> pa.Table:
    """Sort records by partition and offset, and then by topic if there is a ``topic`` column."""
    partitions, offsets = (records.column(name).to_numpy() for name in ("partition", "offset"))
    step = np.diff(partitions)
    if np.all((step > 0) | ((step == 0) & (np.diff(offsets) > 0))):
        return records
    names = [name for name in ("partition", "offset", "topic") if name in records.column_names]
    sort_keys = [(name, "ascending") for name in names]
    return records.take(pc.sort_indices(records.select(names), sort_keys=sort_keys))
