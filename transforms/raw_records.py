"""The raw records of a batch: their columns, their order, and their metadata as columns of a table.

``key`` and ``value``   the record. A record of a file has no key. Its value is the bytes of a line,
                        or a struct if the format of the file has columns
``topic``               the origin of the record: a topic, or the URL of a file. Without this
                        column, all records of a batch have the topic of the pipeline
``partition``           the partition of the topic; 0 in a file
``offset``              the number of the record in its partition or file
``timestamp``           when the record was sent, or its file modified
``headers``             the headers of the record, if headers become columns
``part``                the number of the file in its batch. Without this column, a partition is a
                        part of the batch
``decoded``             the decoded value as a struct, if the records were routed by a field
                        (``transforms.decoded_rows``)
``fault``               why the rest of a file cannot be read. If there is this column, the table
                        contains nothing but such faults
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.decode.decode_result import Indices
from transforms.decode.json_screening import find_utf8

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


#: The column of raw records with their headers, if headers become columns.
HEADERS = "headers"
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """A column of text that a header of the records fills.

    Attributes:
        name: the name of the column.
        header: the name of the header. If a record has several headers of this name, the last one
            counts.
    """

    name: str
    header: str

    @property
    def field(self) -> pa.Field:
        """The column of the table."""
        return pa.field(self.name, pa.string())

    def texts(self, records: pa.Table, indices: Indices) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """Return the texts of the header.

        Args:
            records: the batch. Without a ``headers`` column, no record has headers.
            indices: the rows of ``records`` to return.

        Returns:
            The texts, null where there is none; and which records have bytes that are no text.
        """
        values = self._values(records, indices)
        is_broken = ~find_utf8(values) & values.is_valid().to_numpy(zero_copy_only=False)
        return pc.if_else(pa.array(~is_broken), values, None).cast(pa.string()), is_broken

    def _values(self, records: pa.Table, indices: Indices) -> pa.Array:
        if HEADERS not in records.column_names:
            return pa.nulls(len(indices), pa.binary())
        headers = records.column(HEADERS).take(pa.array(indices)).combine_chunks()
        names, values = headers.cast(HEADERS_TYPE).flatten().flatten()
        is_wanted = pc.fill_null(pc.equal(names, self.header), False)
        found = np.flatnonzero(is_wanted.to_numpy(zero_copy_only=False))
        newest = np.full(len(indices), -1, np.int64)
        newest[pc.list_parent_indices(headers).to_numpy()[found]] = found  # the last one counts
        return values.take(pa.array(newest, mask=newest < 0))


#: The number of the part of a batch to which a record belongs.
PART = "part"

#: Why the rest of a file cannot be read.
FAULT = "fault"


def parts_of(records: pa.Table) -> pa.ChunkedArray:
    """Return the part of the batch to which each record belongs, a number."""
    return records.column(PART if PART in records.column_names else "partition")


def offsets_by_part(records: pa.Table) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield each part of the batch that has records, with their offsets in ascending order.

    Args:
        records: raw records in any order. Neither their parts nor their offsets may be null.
    """
    parts, offsets = parts_of(records).to_numpy(), records.column("offset").to_numpy()
    if not _is_in_order(parts, offsets):
        order = np.lexsort((offsets, parts))
        parts, offsets = parts[order], offsets[order]
    edges = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield int(parts[begin]), offsets[begin:end]


def sort_by_arrival(records: pa.Table) -> pa.Table:
    """Sort records by part and offset, and then by topic if several topics may be in one part."""
    if PART in records.column_names:
        return records  # the records of files are read in their order
    partitions, offsets = (records.column(name).to_numpy() for name in ("partition", "offset"))
    if _is_in_order(partitions, offsets):
        return records
    names = [name for name in ("partition", "offset", "topic") if name in records.column_names]
    sort_keys = [(name, "ascending") for name in names]
    return records.take(pc.sort_indices(records.select(names), sort_keys=sort_keys))


def _is_in_order(parts: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> bool:
    step = np.diff(parts)
    return bool(np.all((step > 0) | ((step == 0) & (np.diff(offsets) > 0))))
