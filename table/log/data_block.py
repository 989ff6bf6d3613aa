"""The rows of a data block.

AVRO_DATA::

    4  block version, 3
    4  record count
       for each record: 4 length, then the record in Avro binary, without its schema

PARQUET_DATA is a whole Parquet file. For both, the schema (meta columns included) is the SCHEMA
entry of the block's header. Source: ``HoodieAvroDataBlock``, ``HoodieParquetDataBlock`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from table.codec.avro_rows import decode_rows, encode_rows
from table.codec.byte_strings import ByteStrings
from table.errors import CorruptData, Unsupported
from table.log.log_block import BlockType, LogBlock
from table.log.parquet_format import avro_key_values, parquet_writer
from table.schema.avro import to_arrow

AVRO_BLOCK_VERSION = 3

Offsets = npt.NDArray[np.int64]

_PREFIX = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")


def encode_parquet(rows: pa.Table, avro_schema: Mapping[str, object]) -> memoryview:
    """Content of a PARQUET_DATA block, as one row group.

    Args:
        rows: columns and types of the schema.
        avro_schema: the rows' schema.
    """
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, rows.schema) as writer:
        writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        writer.add_key_value_metadata(avro_key_values(avro_schema))
    return memoryview(sink.getvalue())


def encode_avro(rows: pa.Table, avro_schema: Mapping[str, object]) -> memoryview:
    """Content of an AVRO_DATA block; arguments as for ``encode_parquet``."""
    records = ByteStrings(*encode_rows(rows, avro_schema))
    lengths = np.frombuffer(records.lengths.astype(">i4").tobytes(), np.uint8)
    prefixes = ByteStrings(lengths, np.arange(0, len(lengths) + 1, 4, dtype=np.int64))
    # One kernel lays out length and record by turns.
    laid_out = pc.binary_join_element_wise(
        prefixes.to_arrow(), records.to_arrow(), pa.scalar(b"", pa.large_binary())
    )
    block_prefix = _PREFIX.pack(AVRO_BLOCK_VERSION, rows.num_rows)
    return memoryview(b"".join((block_prefix, laid_out.buffers()[2] or b"")))


def read_rows(block: LogBlock, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a data block, in stored order.

    Args:
        block: an AVRO_DATA or PARQUET_DATA block; of the latter only what is asked for is read.
        columns: names of those wanted; ones that the block lacks are left out. None means all.

    Returns:
        Columns in the order of the block's schema, with the types that ``to_arrow`` gives it.

    Raises:
        CorruptData: the content disagrees with the schema in the header, or with its own format.
        Unsupported: a block of another kind or version.
    """
    if block.type is BlockType.PARQUET_DATA:
        return _read_parquet(block, _schema_of(block, columns))
    if block.type is BlockType.AVRO_DATA:
        return _read_avro(block).select(_schema_of(block, columns).names)
    message = (
        f"{block.path} holds a {block.type.name} block; rows can be read from "
        "AVRO_DATA and PARQUET_DATA blocks, compact the table with the Hudi that wrote it"
    )
    raise Unsupported(message)


def _schema_of(block: LogBlock, columns: Sequence[str] | None) -> pa.Schema:
    try:
        schema = to_arrow(block.avro_schema)
    except CorruptData as error:
        raise block.corrupt(expected=error.expected, actual=error.actual) from error
    if columns is None:
        return schema
    wanted = set(columns)
    return pa.schema([field for field in schema if field.name in wanted])


def _read_parquet(block: LogBlock, schema: pa.Schema) -> pa.Table:
    """The columns of ``schema``; one whose stored type differs (a list's inner names) is cast."""
    try:
        with pq.ParquetFile(block.content.open(), pre_buffer=True) as file:
            stored = file.read(columns=schema.names)
        return stored.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the store failed, not the bytes
        raise block.corrupt(expected=f"Parquet with {schema.names}", actual=str(error)) from error


def _read_avro(block: LogBlock) -> pa.Table:
    content = block.content.read()
    if len(content) < _PREFIX.size:
        raise block.corrupt(expected="8 bytes or more in an Avro block", actual=str(len(content)))
    version, count = _PREFIX.unpack_from(content)
    _check_version(block, version)
    starts, ends = _record_bounds(block, content, count)
    try:
        return decode_rows(memoryview(content), starts, ends, block.avro_schema, block.path)
    except CorruptData as error:
        raise block.relocated(error) from error


def _check_version(block: LogBlock, version: int) -> None:
    if version != AVRO_BLOCK_VERSION:
        message = (
            f"{block.path} holds an Avro block of version {version}; version "
            f"{AVRO_BLOCK_VERSION} can be read, compact the table with the Hudi that wrote it"
        )
        raise Unsupported(message)


def _record_bounds(block: LogBlock, content: bytes, count: int) -> tuple[Offsets, Offsets]:
    """Where each record begins and ends in the content."""
    if not 0 <= count <= (len(content) - _PREFIX.size) // _LENGTH.size:
        raise block.corrupt(expected="a record count that fits the block", actual=str(count))
    bounds = _record_starts(content, count)
    starts, ends = bounds[:-1], bounds[1:] - _LENGTH.size
    if len(starts) < count or ends[-1:].sum() != (len(content) if count else 0):
        raise block.corrupt(expected=f"{count} records that fill the block", actual="others")
    return starts, ends


def _record_starts(content: bytes, count: int) -> Offsets:
    """Where each record begins, and where one more would; ends early when a length leads astray.

    A length says only where the next one stands, so this is the one step taken record by record.
    """
    starts = [_PREFIX.size + _LENGTH.size]
    size_bytes, read_length = len(content), _LENGTH.unpack_from
    for _ in range(count):
        start = starts[-1]
        length = read_length(content, start - _LENGTH.size)[0] if start <= size_bytes else -1
        if length < 0:
            break
        starts.append(start + length + _LENGTH.size)
    return np.array(starts, np.int64)
