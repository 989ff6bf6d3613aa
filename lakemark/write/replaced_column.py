"""Copies a Parquet file, and gives all rows another value in one of its columns.

The other columns are copied as bytes, so this takes a small part of the time of encoding them. The
copy has the bytes that a writer would have written that had known the value from the beginning. So
the file must be one of ``parquet_writer``. The layout of such a file is::

    PAR1                      each row group has one chunk of pages for each column
    chunks of row group 1
    chunks of row group 2 …
    column indexes            the bounds of pages, without offsets
    offset indexes            the offsets of pages
    footer                    describes each chunk, with the offsets of the chunk and of its indexes
    length of the footer
    PAR1

Source: ``parquet.thrift`` of Apache Parquet.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.codec.thrift_compact import Field, Kind, Struct, parse_struct, print_struct
from lakemark.config.parquet_settings import ParquetSettings
from lakemark.log.parquet_format import column_sizes, parquet_writer
from lakemark.model.column_ranges import NO_SIZE, ColumnSize

_MAGIC = b"PAR1"
_COPIED_AT_ONCE_BYTES = 4 << 20

# Numbers of fields: FileMetaData
_ROW_GROUPS = 4
# RowGroup
_COLUMNS, _TOTAL_BYTE_SIZE, _NUM_ROWS, _GROUP_OFFSET, _GROUP_COMPRESSED = 1, 2, 3, 5, 6
# ColumnChunk
_FILE_OFFSET, _META_DATA = 2, 3
_OFFSET_INDEX, _OFFSET_INDEX_LENGTH, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH = 4, 5, 6, 7
# ColumnMetaData
_PATH, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 3, 6, 7, 9, 11
_PAGE_OFFSETS = (_DATA_PAGE, 10, _DICTIONARY_PAGE)
# OffsetIndex and PageLocation
_PAGE_LOCATIONS, _PAGE_OFFSET = 1, 1

#: Appends bytes to the copy.
Write = Callable[[bytes | memoryview], object]


def replace_column(
    source: BinaryIO, write: Write, field: pa.Field, value: str, settings: ParquetSettings
) -> ColumnSize:
    """Copy a Parquet file with another value in one column.

    Args:
        source: a file of ``parquet_writer`` with a page index.
        write: appends bytes to the copy.
        field: the column, as in the schema of the file.
        value: the value of each row in the column.
        settings: the settings with which the file was written.

    Returns:
        The size of the new column.
    """
    footer = _read_footer(source)
    groups = footer[_ROW_GROUPS].value.values
    column = _encode([group[_NUM_ROWS].value for group in groups], field, value, settings)
    copy = _Copy(source, io.BytesIO(column), write)
    new_groups = _read_footer(copy.column)[_ROW_GROUPS].value.values
    copy.write(_MAGIC)
    chunks = []
    for group, new_group in zip(groups, new_groups, strict=True):
        (new_chunk,) = new_group[_COLUMNS].value.values
        chunks += list(copy.row_group(group, field.name.encode(), new_chunk))
    copy.page_index(chunks)
    content = print_struct(footer)
    copy.write(content + len(content).to_bytes(4, "little") + _MAGIC)
    return column_sizes(pq.read_metadata(pa.BufferReader(column))).get(field.name, NO_SIZE)


def _encode(counts: list[int], field: pa.Field, value: str, settings: ParquetSettings) -> bytes:
    """Return a file with only the column, in row groups of these numbers of rows."""
    sink, schema = io.BytesIO(), pa.schema([field])
    with parquet_writer(sink, schema, settings, has_page_index=True) as writer:
        for count in counts:
            values = pa.repeat(pa.scalar(value, field.type), count)
            writer.write_table(pa.table([values], schema=schema), row_group_size=count)
    return sink.getvalue()


def _read_footer(file: BinaryIO) -> Struct:
    file.seek(-8, io.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(-8 - length, io.SEEK_END)
    return parse_struct(file.read(length))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk of the copy.

    Attributes:
        fields: its description in the footer of the copy.
        file: the file from which it is copied.
        shift: the difference between its place in the copy and in that file.
        listed_at: the place of its indexes in the source, for their order: of the column index (0
            if there is none) and of the offset index.
    """

    fields: Struct
    file: BinaryIO
    shift: int
    listed_at: tuple[int, int]


class _Copy:
    """A copy that is being written: chunk after chunk, then the page index."""

    def __init__(self, source: BinaryIO, column: BinaryIO, write: Write) -> None:
        self.column = column
        self._source, self._write = source, write
        self._end = 0

    def write(self, data: bytes | memoryview) -> None:
        self._write(data)
        self._end += len(data)

    def row_group(self, group: Struct, path: bytes, new_chunk: Struct) -> Iterator[_Chunk]:
        """Copy the chunks of a row group, and change its description."""
        chunks = group[_COLUMNS].value.values
        for number, old in enumerate(chunks):
            is_replaced = old[_META_DATA].value[_PATH].value.values == [path]
            listed_at = (_value(old, _COLUMN_INDEX), old[_OFFSET_INDEX].value)
            if is_replaced:
                _adapt_sizes(group, old[_META_DATA].value, new_chunk[_META_DATA].value)
                chunks[number] = new_chunk
            file = self.column if is_replaced else self._source
            if number == 0 and _GROUP_OFFSET in group:
                _add(group, _GROUP_OFFSET, self._end - _start_of(old[_META_DATA].value))
            yield _Chunk(chunks[number], file, self._chunk(file, chunks[number]), listed_at)

    def page_index(self, chunks: list[_Chunk]) -> None:
        """Write the column indexes and the offset indexes in their order in the source."""
        for chunk in sorted(chunks, key=lambda chunk: chunk.listed_at[0]):
            if chunk.listed_at[0]:
                content = _read(chunk, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH)
                self._index(chunk, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH, content)
        for chunk in sorted(chunks, key=lambda chunk: chunk.listed_at[1]):
            index = parse_struct(_read(chunk, _OFFSET_INDEX, _OFFSET_INDEX_LENGTH))
            for page in index[_PAGE_LOCATIONS].value.values:
                _add(page, _PAGE_OFFSET, chunk.shift)
            self._index(chunk, _OFFSET_INDEX, _OFFSET_INDEX_LENGTH, print_struct(index))

    def _chunk(self, file: BinaryIO, chunk: Struct) -> int:
        """Copy a chunk, change the offsets in its description, and return their difference."""
        described = chunk[_META_DATA].value
        start = _start_of(described)
        shift = self._end - start
        file.seek(start)
        left = described[_COMPRESSED].value
        while left:
            data = file.read(min(left, _COPIED_AT_ONCE_BYTES))
            assert data, "the chunk ends after the file"
            self.write(data)
            left -= len(data)
        for number in _PAGE_OFFSETS:
            if number in described:
                _add(described, number, shift)
        if _value(chunk, _FILE_OFFSET):
            _add(chunk, _FILE_OFFSET, shift)
        return shift

    def _index(self, chunk: _Chunk, at: int, length: int, content: bytes) -> None:
        chunk.fields[at] = Field(Kind.I64, self._end)
        chunk.fields[length] = Field(Kind.I32, len(content))
        self.write(content)


def _read(chunk: _Chunk, at: int, length: int) -> bytes:
    chunk.file.seek(chunk.fields[at].value)
    return chunk.file.read(chunk.fields[length].value)


def _start_of(described: Struct) -> int:
    """Return the offset of the first page of a chunk: that of its dictionary, if it has one."""
    return _value(described, _DICTIONARY_PAGE) or int(described[_DATA_PAGE].value)


def _adapt_sizes(group: Struct, old: Struct, new: Struct) -> None:
    """Change the size of a row group by the difference between two of its chunks."""
    _add(group, _TOTAL_BYTE_SIZE, new[_UNCOMPRESSED].value - old[_UNCOMPRESSED].value)
    _add(group, _GROUP_COMPRESSED, new[_COMPRESSED].value - old[_COMPRESSED].value)


def _add(fields: Struct, number: int, amount: int) -> None:
    fields[number] = fields[number]._replace(value=fields[number].value + amount)


def _value(fields: Struct, number: int) -> int:
    return int(fields[number].value) if number in fields else 0
