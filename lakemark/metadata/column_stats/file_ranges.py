"""Column ranges of a data file that is there already.

The footer of a Parquet file says what most columns hold, so that their rows are not read. It leaves
a NaN out, as Arrow does; so columns of floats are read. A text that its writer has cut short is a
bound still, if a wider one; only writers that are known to cut none are believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.log.data_block import read_rows
from lakemark.log.log_block import BlockType
from lakemark.log.log_reader import read_blocks
from lakemark.log.parquet_format import column_sizes
from lakemark.model.column_ranges import ColumnRanges, ColumnSize
from lakemark.model.file_slice import LogFile
from lakemark.read.base_file import open_data_file, read_base_file, read_footer
from lakemark.storage.storage import Storage
from lakemark.view.file_lister import DataFile

#: Writers whose footers hold texts whole, or not at all.
_CUT_NO_TEXTS = ("parquet-cpp-arrow ", "parquet-mr ")

_DATA_BLOCKS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA)


def ranges_in(storage: Storage, file: DataFile, schema: pa.Schema) -> ColumnRanges:
    """The ranges of these columns, as far as the file has them.

    Args:
        storage: the table's root.
        file: a base file or a log. A file of change images tells nothing of the table's rows.
        schema: the columns, with the types that they have now.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: as the readers of such files.
    """
    if isinstance(file, LogFile):
        tables = _log_rows(storage, file, schema.names)
        return ColumnRanges.united([ColumnRanges.of(rows, schema.names) for rows in tables])
    if file.name.extension != "parquet":
        told, sizes = ColumnRanges.united([]), dict[str, ColumnSize]()
    else:
        footer = read_footer(storage, file)
        told, sizes = _told_by_footer(footer, schema), column_sizes(footer)
    asked = [field for field in schema if field.name not in told.columns]
    if not asked:
        return replace(told, sizes=sizes)
    tables = read_base_file(storage, file, pa.schema(asked))
    names = [field.name for field in asked]
    whole = ColumnRanges.united([told, *(ColumnRanges.of(rows, names) for rows in tables)])
    return replace(whole, sizes=sizes)


def _told_by_footer(footer: pq.FileMetaData, schema: pa.Schema) -> ColumnRanges:
    """The ranges of those columns of which each row group has statistics that are exact."""
    stored = footer.schema.to_arrow_schema()
    places = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
    cuts_none = (footer.created_by or "").startswith(_CUT_NO_TEXTS)
    exact = [
        field
        for field in schema
        if field.name in places
        and stored.field(field.name).type == field.type
        and _is_exact(field.type, cuts_none)
    ]
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    told = [
        field
        for field in exact
        if all(_is_told(group.column(places[field.name])) for group in groups)
    ]
    return ColumnRanges.united([_of_group(group, told, places) for group in groups])


def _is_exact(kind: pa.DataType, cuts_none: bool) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return not pa.types.is_floating(kind) and (cuts_none or not is_text)


def _is_told(column: pq.ColumnChunkMetaData) -> bool:
    known = column.statistics
    if known is None or not known.has_null_count:
        return False
    return bool(known.has_min_max or known.null_count == column.num_values)


def _of_group(
    group: pq.RowGroupMetaData, told: Sequence[pa.Field], places: Mapping[str, int]
) -> ColumnRanges:
    chunks = [group.column(places[field.name]) for field in told]
    pairs = [
        pa.array([chunk.statistics.min, chunk.statistics.max], field.type)
        for field, chunk in zip(told, chunks, strict=True)
    ]
    return replace(
        ColumnRanges.of(pa.table(pairs, schema=pa.schema(told)), [f.name for f in told]),
        null_counts=tuple(chunk.statistics.null_count for chunk in chunks),
        value_counts=tuple(chunk.num_values for chunk in chunks),
    )


def _log_rows(storage: Storage, file: LogFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    if file.name.is_cdc:
        return
    with open_data_file(storage, file.path) as stream:
        for block in read_blocks(stream, file.size_bytes, file.path):
            if block.type in _DATA_BLOCKS:
                yield read_rows(block, columns)
