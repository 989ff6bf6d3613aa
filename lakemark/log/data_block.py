"""Reads and encodes the rows of a data block.

The content of an AVRO_DATA block, with the size of each field in bytes::

    4  block version, 3
    4  record count
       for each record: 4 length, then the record in Avro binary, without its schema

The content of a PARQUET_DATA block is a whole Parquet file, and the content of an HFILE_DATA block
is a whole HFile. The SCHEMA entry in the header of each block has the schema of the rows, meta
columns included.
Source: ``HoodieAvroDataBlock``, ``HoodieParquetDataBlock``, ``HoodieHFileDataBlock`` of Apache Hudi
1.2.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_rows import decode_rows, encode_rows
from lakemark.codec.byte_strings import ByteStrings, byte_strings
from lakemark.codec.hfile.reader import HFileReader
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.errors import CorruptData, Unsupported
from lakemark.log.hfile_rows import read_hfile_rows
from lakemark.log.log_block import BlockType, LogBlock
from lakemark.log.parquet_format import (
    avro_key_values,
    check_value_counts,
    open_parquet,
    parquet_writer,
)
from lakemark.schema.avro import to_arrow

AVRO_BLOCK_VERSION = 3

#: Versions 1 and 2 have the same layout as version 3.
_READ_AVRO_VERSIONS = (1, 2, 3)

Offsets = npt.NDArray[np.int64]

_PREFIX = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")


def encode_parquet(
    rows: pa.Table,
    avro_schema: Mapping[str, object],
    settings: ParquetSettings = PARQUET_DEFAULTS,
) -> memoryview:
    """Encode the content of a PARQUET_DATA block, as one row group.

    The file has no statistics, because readers never skip rows of a block.

    Args:
        rows: rows with the columns and types of the schema.
        avro_schema: schema of the rows.
        settings: compression, page size and dictionaries. The row group is not limited.
    """
    sink = pa.BufferOutputStream()
    with parquet_writer(sink, rows.schema, settings, has_statistics=False) as writer:
        writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        writer.add_key_value_metadata(avro_key_values(avro_schema))
    return memoryview(sink.getvalue())


def encode_avro(rows: pa.Table, avro_schema: Mapping[str, object]) -> memoryview:
    """Encode the content of an AVRO_DATA block; for the arguments see ``encode_parquet``."""
    block_prefix = _PREFIX.pack(AVRO_BLOCK_VERSION, rows.num_rows)
    if rows.num_rows == 0:
        return memoryview(block_prefix)
    records = ByteStrings(*encode_rows(rows, avro_schema))
    prefixes = block_prefix + records.lengths.astype(">i4").tobytes()
    # The bytes before each record: its length, and for the first one also the block's prefix.
    bounds = np.arange(_PREFIX.size, len(prefixes) + 1, _LENGTH.size, dtype=np.int64)
    bounds[0] = 0
    before = ByteStrings(np.frombuffer(prefixes, np.uint8), bounds)
    joined = pc.binary_join_element_wise(
        before.to_arrow(), records.to_arrow(), pa.scalar(b"", pa.large_binary())
    )
    content = byte_strings(joined)
    return content.data[: content.offsets[-1]].data


def read_rows(block: LogBlock, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the rows of a data block, in stored order.

    Args:
        block: an AVRO_DATA, PARQUET_DATA, HFILE_DATA or CDC_DATA block.
        columns: names of the columns to return; names that the block lacks are omitted. None
            means all columns. From a Parquet block, only these columns are read.

    Returns:
        Columns in the order of the block's schema, with the types that ``to_arrow`` derives from
        the schema.

    Raises:
        CorruptData: the content does not match the schema in the header, or violates its format.
        Unsupported: the block has another type or version.
    """
    if block.type in _READERS:
        return _READERS[block.type](block, _schema_of(block, columns))
    message = (
        f"{block.path} has a {block.type.name} block, but rows can be read only from "
        f"{', '.join(kind.name for kind in _READERS)} blocks"
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
    """Read the columns of ``schema``.

    Columns are cast to the types of ``schema``, because the names of list items may differ.
    """
    held = block.content.in_memory()
    source = block.content.open() if held is None else pa.BufferReader(held)
    try:
        with open_parquet(source, pre_buffer=held is None) as file:
            stored = file.read(columns=schema.names)
            check_value_counts(stored, file)
        return stored.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # reading from storage failed; the bytes may be valid
        raise block.corrupt(expected=f"Parquet with {schema.names}", actual=str(error)) from error


def _read_avro(block: LogBlock, schema: pa.Schema) -> pa.Table:
    content = block.content.read()
    if len(content) < _PREFIX.size:
        raise block.corrupt(expected="8 bytes or more in an Avro block", actual=str(len(content)))
    version, count = _PREFIX.unpack_from(content)
    _check_version(block, version)
    starts, ends = _record_bounds(block, content, count)
    try:
        rows = decode_rows(memoryview(content), starts, ends, block.avro_schema, block.path)
    except CorruptData as error:
        raise block.relocated(error) from error
    return rows.select(schema.names)


def _read_hfile(block: LogBlock, schema: pa.Schema) -> pa.Table:
    content = block.content
    try:
        file = HFileReader(content.open(), content.size_bytes, content.path)
        tables = [
            rows.select(schema.names)
            for rows in read_hfile_rows(file, block.avro_schema, content.path)
        ]
    except CorruptData as error:
        raise block.relocated(error) from error
    return pa.concat_tables([schema.empty_table(), *tables])


def _check_version(block: LogBlock, version: int) -> None:
    if version not in _READ_AVRO_VERSIONS:
        message = (
            f"{block.path} has an Avro block of version {version}, but only versions "
            f"{_READ_AVRO_VERSIONS} can be read; compact the table with the Hudi that wrote it"
        )
        raise Unsupported(message)


def _record_bounds(block: LogBlock, content: bytes, count: int) -> tuple[Offsets, Offsets]:
    """Return the start and end of each record in the content."""
    if not 0 <= count <= (len(content) - _PREFIX.size) // _LENGTH.size:
        raise block.corrupt(expected="a record count that fits the block", actual=str(count))
    starts = _record_starts(content, count)
    if len(starts) != count + 1 or starts[-1] != len(content) + _LENGTH.size:
        raise block.corrupt(
            expected=f"{count} records that fill the block", actual="records of other sizes"
        )
    return starts[:-1], starts[1:] - _LENGTH.size


def _record_starts(content: bytes, count: int) -> Offsets:
    """Return the start of each record, and the position where one more record would start.

    The result is shorter if a length is invalid. The position of a record follows from the length
    of the record before it. So this function loops over the records one by one.
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


_READERS: Mapping[BlockType, Callable[[LogBlock, pa.Schema], pa.Table]] = {
    BlockType.AVRO_DATA: _read_avro,
    BlockType.CDC_DATA: _read_avro,
    BlockType.PARQUET_DATA: _read_parquet,
    BlockType.HFILE_DATA: _read_hfile,
}
