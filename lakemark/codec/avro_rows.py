"""Encodes and decodes the rows of an Arrow table in Avro binary, as stored in Avro log blocks.

Both directions work on columns. Writing encodes each column, then joins the bytes row by row.
Reading moves one cursor in each row through the fields of the schema. Reading is 12 times as fast
as with ``fastavro``, and writing 21 times (``python -m benchmarks.codecs``).

Source: Avro 1.11, "Binary Encoding"; the types are those of ``lakemark.schema.avro``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.avro_binary import join
from lakemark.codec.avro_cursors import Cursors
from lakemark.codec.avro_nodes import Node, root_of
from lakemark.codec.avro_row_reader import read_value
from lakemark.codec.avro_row_writer import lay_out
from lakemark.codec.byte_strings import ByteStrings
from lakemark.errors import CorruptData, InvalidRecords

#: Rows encoded at a time, so that their bytes stay in the cache.
_CHUNK_ROWS = 1 << 14


def encode_rows(
    rows: pa.Table, avro_schema: Mapping[str, object]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Encode all rows, one after the other.

    Args:
        rows: the columns of the schema, in any order; they are cast to the types of the schema.
        avro_schema: schema of a record.

    Returns:
        The bytes of all rows, and ``n + 1`` offsets: row ``i`` is
        ``data[offsets[i]:offsets[i + 1]]``, and the first offset is 0.

    Raises:
        InvalidRecords: a column has a null that the schema does not allow, or a value that does
            not fit its type.
    """
    root = root_of(avro_schema)
    ordered = _cast(rows, pa.schema(root.arrow.fields))
    batches = ordered.combine_chunks().to_batches(_CHUNK_ROWS)
    encoded = [_encode(batch, root) for batch in batches if batch.num_rows]
    data = [np.empty(0, np.uint8), *(datums.data for datums in encoded)]
    lengths = [np.zeros(1, np.int64), *(datums.lengths for datums in encoded)]
    return np.concatenate(data), np.cumsum(np.concatenate(lengths))


def decode_rows(
    data: npt.NDArray[np.uint8] | memoryview,
    starts: Sequence[int] | npt.NDArray[np.int64],
    ends: Sequence[int] | npt.NDArray[np.int64],
    avro_schema: Mapping[str, object],
    path: str = "Avro rows",
) -> pa.Table:
    """Decode rows; row ``i`` is encoded in ``data[starts[i]:ends[i]]``.

    Args:
        data: bytes that contain the rows, maybe with other bytes between them.
        starts: start of each row, in ascending order.
        ends: end of each row, at most the start of the next row.
        avro_schema: schema of the record with which the rows were written.
        path: file that contains the rows, for messages.

    Returns:
        A table whose column types are those that ``to_arrow`` derives from the schema.

    Raises:
        CorruptData: the bytes do not match the schema.
    """
    root = root_of(avro_schema)
    first, end = np.array(starts, np.int64), np.array(ends, np.int64)
    cursors = Cursors(np.frombuffer(data, np.uint8), first, end, path)
    behind = np.append(first[1:], len(data))[: len(first)]
    cursors.check((first >= 0) & (first <= end) & (end <= behind), "rows that do not overlap")
    try:
        rows = read_value(cursors, root)
    except pa.ArrowException as error:
        raise CorruptData(path, None, "values of the schema's types", str(error)) from error
    cursors.check_finished()
    return pa.Table.from_arrays(rows.flatten(), schema=pa.schema(root.arrow.fields))


def _cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [_cast_column(rows.column(field.name), field) for field in schema]
    # Allow nulls here, because the error that the writer raises for a null names the column.
    loose = [field.with_nullable(True) for field in schema]
    return pa.Table.from_arrays(columns, schema=pa.schema(loose))


def _cast_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column if column.type.equals(field.type) else column.cast(field.type)
    except pa.ArrowInvalid as error:
        message = f"column {field.name} has values that its schema does not allow: {error}"
        raise InvalidRecords(message) from error


def _encode(batch: pa.RecordBatch, root: Node) -> ByteStrings:
    pieces = lay_out(batch, root)
    nothing = ByteStrings(np.empty(0, np.uint8), np.zeros(batch.num_rows + 1, np.int64))
    return join(pieces) if pieces else nothing
