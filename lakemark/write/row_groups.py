"""Divides rows into tables of bounded size, independently of their batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidRecords

#: Offset and validity of a value, rounded up to whole bytes.
_OFFSET_BYTES, _VALIDITY_BYTES = 8, 1

Bytes = npt.NDArray[np.int64]


class RowGroups:
    """Combines rows into tables of at most ``max_bytes`` of Arrow memory.

    The boundaries depend on the rows alone, not on their batches, so a task that runs again writes
    the same bytes. A single row that is larger becomes a table of its own.
    """

    def __init__(self, schema: pa.Schema, max_bytes: int) -> None:
        self._schema, self._max_bytes = schema, max_bytes
        self._gathered: list[pa.Table] = []
        self._gathered_bytes = 0

    def add(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Add rows; yields each table that is full.

        Raises:
            InvalidRecords: a column is missing, or a value does not fit the schema's type.
        """
        rows = _conform(rows, self._schema)
        ends = np.cumsum(row_bytes(rows))
        start, done_bytes = 0, 0
        while start < rows.num_rows:
            room_bytes = self._max_bytes - self._gathered_bytes
            end = int(np.searchsorted(ends, done_bytes + room_bytes, side="right"))
            if end <= start and self._gathered:
                yield from self.flush()
                continue
            end = max(end, start + 1)
            self._gathered.append(rows.slice(start, end - start))
            self._gathered_bytes += int(ends[end - 1]) - done_bytes
            start, done_bytes = end, int(ends[end - 1])

    def flush(self) -> Iterator[pa.Table]:
        """Yield the table of the remaining rows; nothing if there are none."""
        if self._gathered:
            # One chunk per column, because Parquet's pages end where a chunk ends.
            yield pa.concat_tables(self._gathered).combine_chunks()
        self._gathered, self._gathered_bytes = [], 0


def divide_rows(rows: pa.Table, schema: pa.Schema, max_bytes: int) -> Iterator[pa.Table]:
    """Divide ``rows`` into tables of at most ``max_bytes``; nothing if there are no rows.

    Raises:
        InvalidRecords: a column is missing, or a value does not fit the schema's type.
    """
    row_groups = RowGroups(schema, max_bytes)
    yield from row_groups.add(rows)
    yield from row_groups.flush()


def row_bytes(rows: pa.Table) -> Bytes:
    """Arrow bytes of each row, with validity and offsets rounded up."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        sizes = [_value_bytes(chunk) for chunk in column.chunks]
        total += np.concatenate(sizes) if sizes else 0
    return total


def _conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if rows.schema.equals(schema):
        return rows
    try:
        return rows.select(schema.names).cast(schema)
    except (KeyError, ValueError, pa.ArrowException) as error:
        message = f"rows do not fit the table's schema: {error}"
        raise InvalidRecords(message) from error


def _value_bytes(values: pa.Array) -> Bytes:
    arrow = values.type
    if pa.types.is_struct(arrow):
        fields = [_value_bytes(field) for field in values.flatten()]
        return sum(fields, np.full(len(values), _VALIDITY_BYTES, np.int64))
    if pa.types.is_map(arrow):
        entries = pa.list_(pa.struct([arrow.key_field, arrow.item_field]))
        return _value_bytes(values.cast(entries))
    if pa.types.is_nested(arrow):
        return _items_bytes(values) + (_OFFSET_BYTES + _VALIDITY_BYTES)
    if _has_length(arrow):
        return _lengths(pc.binary_length(values)) + (_OFFSET_BYTES + _VALIDITY_BYTES)
    return np.full(len(values), -(-arrow.bit_width // 8) + _VALIDITY_BYTES, np.int64)


def _items_bytes(lists: pa.Array) -> Bytes:
    """Return the bytes of the items of each list."""
    items = _value_bytes(lists.flatten())
    up_to_item = np.concatenate(([0], np.cumsum(items)))
    up_to_list = np.concatenate(([0], np.cumsum(_lengths(pc.list_value_length(lists)))))
    return np.diff(up_to_item[up_to_list])


def _has_length(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_binary(arrow))


def _lengths(lengths: pa.Array) -> Bytes:
    counted: Bytes = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return counted
