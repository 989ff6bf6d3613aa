"""Reads files whose records have columns: Parquet, and Avro object container files.

``at`` is the number of records before. The columns have types that a table can store
(``lakemark.schema.canonical``). A column of Parquet with another type is read as text, so that
``decode`` decides about it, and not about the whole file. A column of type ``null`` is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from uuid import UUID

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemark.codec.avro_bounds import check_bounded
from lakemark.errors import HudiError, InvalidConfig
from lakemark.schema.avro import to_arrow
from lakemark.schema.canonical import canonical
from streamer.sources.files.errors import UnreadableFile
from streamer.sources.files.file_format import PIECE_BYTES, Piece

#: The largest number of rows that are read from Parquet at once; fewer if they are large.
_ROWS = 1 << 14

#: The size of the buffer of each column.
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ParquetFormat:
    """Parquet files."""

    def read(self, file: BinaryIO, at: int) -> Iterator[Piece]:
        """See ``FileFormat``. With a buffer, the columns of a row group are read page by page."""
        with _damage_reported():
            parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)
            yield from _read_groups(parquet, _columns_of(parquet.schema_arrow), at)

    def check(self, file: BinaryIO) -> None:
        """See ``FileFormat``. Only the footer is read."""
        with _damage_reported():
            _columns_of(pq.ParquetFile(file, pre_buffer=False).schema_arrow)


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Avro object container files."""

    def read(self, file: BinaryIO, at: int) -> Iterator[Piece]:
        """See ``FileFormat``."""
        with _damage_reported():
            blocks: Any = fastavro.block_reader(file)
            writer = blocks.writer_schema
            check_bounded(writer, "the file")
            columns = pa.struct(list(canonical(to_arrow(writer))))
            has_uuids = '"uuid"' in str(writer).replace("'", '"')
            row = 0
            for block in blocks:
                begin, row = row, row + block.num_records
                if row > at:
                    records = _records_of(block, has_uuids)[max(at - begin, 0) :]
                    yield Piece(pa.array(records, columns), row)

    def check(self, file: BinaryIO) -> None:
        """See ``FileFormat``. The header and the first block are read."""
        next(self.read(file, 0), None)


@contextmanager
def _damage_reported() -> Iterator[None]:
    """Report any error in a block as damage of the file, because damaged bytes can cause any.

    Raises:
        UnreadableFile: instead of the error.
        MemoryError: there is too little memory, which is not the fault of the file.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise UnreadableFile(_first_line(error)) from error


def _columns_of(schema: pa.Schema) -> Mapping[int, pa.Field]:
    """Return the columns of the records, by their numbers in a Parquet file."""
    names = schema.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        message = f"column {twice[0]} occurs twice"
        raise UnreadableFile(message)
    numbered = enumerate(schema)
    return {number: _column_of(one) for number, one in numbered if not pa.types.is_null(one.type)}


def _column_of(field: pa.Field) -> pa.Field:
    try:
        # The name does not matter here: the decoder judges the names of unknown fields.
        column = canonical(pa.schema([field.with_name("column")])).field(0)
    except InvalidConfig:
        return field.with_type(pa.string())
    return column.with_name(field.name)


def _read_groups(
    parquet: pq.ParquetFile, columns: Mapping[int, pa.Field], at: int
) -> Iterator[Piece]:
    row = 0
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        if row + group.num_rows <= at:
            row += group.num_rows
            continue
        row_bytes = max(group.total_byte_size // max(group.num_rows, 1), 1)
        rows = min(max(PIECE_BYTES // row_bytes, 1), _ROWS)
        for batch in parquet.iter_batches(batch_size=rows, row_groups=[number]):
            begin, row = row, row + batch.num_rows
            if row > at:
                yield Piece(_cast(batch.slice(max(at - begin, 0)), columns), row)


def _cast(rows: pa.RecordBatch, columns: Mapping[int, pa.Field]) -> pa.Array:
    """Return the rows as structs of other types. Nanoseconds are rounded down to microseconds."""
    if not columns:
        return pa.array([{}] * rows.num_rows, pa.struct([]))
    arrays = [_convert(rows.column(number), field.type) for number, field in columns.items()]
    return pa.StructArray.from_arrays(arrays, fields=[*columns.values()])


def _convert(values: pa.Array, to: pa.DataType) -> pa.Array:
    try:
        return pc.cast(values, options=pc.CastOptions(to, allow_time_truncate=True))
    except pa.ArrowNotImplementedError:
        if to != pa.string():
            raise
    texts = [None if one is None else json.dumps(one, default=str) for one in values.to_pylist()]
    return pa.array(texts, to)


def _records_of(block: Any, has_uuids: bool) -> Sequence[Mapping[str, object]]:
    records = [*block]
    return [_with_texts(one) for one in records] if has_uuids else records


def _with_texts(value: Any) -> Any:
    """Return a value with UUIDs as texts."""
    if isinstance(value, dict):
        return {name: _with_texts(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_texts(one) for one in value]
    return str(value) if isinstance(value, UUID) else value


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return (
        text.splitlines()[0]
        if isinstance(error, HudiError | pa.ArrowException)
        else (f"{type(error).__name__}: {text.splitlines()[0]}")
    )
