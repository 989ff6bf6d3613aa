"""Divides rows into tables of bounded size, regardless of the batches in which they arrive."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidRecords

#: Bytes that a value needs for its offset and its validity, rounded up to whole bytes.
_OFFSET_BYTES, _VALIDITY_BYTES = 8, 1

Bytes = npt.NDArray[np.int64]


class RowGroups:
    """Combines rows into tables of at most ``max_bytes`` of Arrow memory.

    The boundaries of the tables depend only on the rows, not on the batches in which they arrive.
    So a task that runs again writes the same bytes. A row that is larger than ``max_bytes`` becomes
    a table with only this row.
    """

    def __init__(self, schema: pa.Schema, max_bytes: int) -> None:
        self._schema, self._max_bytes = schema, max_bytes
        self._gathered: list[pa.Table] = []
        self._gathered_bytes = 0

    def add(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Add rows, and yield each table that is full.

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
        """Yield the remaining rows as a table; yield nothing if no rows remain."""
        if self._gathered:
            # The columns get one chunk each, because a Parquet page ends at the end of a chunk.
            yield pa.concat_tables(self._gathered).combine_chunks()
        self._gathered, self._gathered_bytes = [], 0


def divide_rows(rows: pa.Table, schema: pa.Schema, max_bytes: int) -> Iterator[pa.Table]:
    """Yield ``rows`` in tables of at most ``max_bytes``; yield nothing if there are no rows.

    Raises:
        InvalidRecords: a column is missing, or a value does not fit the schema's type.
    """
    rows = _conform(rows, schema)
    if _certainly_fit(rows, max_bytes):
        if rows.num_rows:
            yield rows.combine_chunks()
        return
    row_groups = RowGroups(schema, max_bytes)
    yield from row_groups.add(rows)
    yield from row_groups.flush()


def _certainly_fit(rows: pa.Table, max_bytes: int) -> bool:
    """Return whether the sum of ``row_bytes`` cannot exceed a limit, without computing the sum.

    Without the sizes of rows and empty deletes, a log of 100 rows is encoded in 55 % of the time
    (measured).
    """
    if any(pa.types.is_nested(kind) or pa.types.is_dictionary(kind) for kind in rows.schema.types):
        return False
    overhead_bytes = (_OFFSET_BYTES + _VALIDITY_BYTES) * rows.num_rows * rows.num_columns
    return bool(rows.nbytes + overhead_bytes <= max_bytes)


def row_bytes(rows: pa.Table) -> Bytes:
    """Return the size of each row in Arrow memory, with validity and offsets rounded up."""
    total, fixed_bytes = np.zeros(rows.num_rows, np.int64), 0
    for column in rows.columns:
        width = _fixed_bytes(column.type)
        fixed_bytes += width or 0
        at = 0
        for chunk in column.chunks if width is None else ():
            total[at : at + len(chunk)] += _value_bytes(chunk)
            at += len(chunk)
    return total + fixed_bytes


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
    if pa.types.is_dictionary(arrow):
        of_texts = pa.array(_value_bytes(values.dictionary))
        return _lengths(of_texts.take(values.indices), _OFFSET_BYTES + _VALIDITY_BYTES)
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
    return np.full(len(values), _fixed_bytes(arrow), np.int64)


def _fixed_bytes(arrow: pa.DataType) -> int | None:
    """Return the size of each value of a type; None if values have different sizes."""
    if pa.types.is_nested(arrow) or pa.types.is_dictionary(arrow) or _has_length(arrow):
        return None
    return int(-(-arrow.bit_width // 8)) + _VALIDITY_BYTES


def _items_bytes(lists: pa.Array) -> Bytes:
    """Return for each list the total bytes of its items."""
    items = _value_bytes(lists.flatten())
    up_to_item = np.concatenate(([0], np.cumsum(items)))
    up_to_list = np.concatenate(([0], np.cumsum(_lengths(pc.list_value_length(lists)))))
    return np.diff(up_to_item[up_to_list])


def _has_length(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_binary(arrow))


def _lengths(lengths: pa.Array, of_null: int = 0) -> Bytes:
    counted: Bytes = lengths.fill_null(of_null).to_numpy(zero_copy_only=False).astype(np.int64)
    return counted
