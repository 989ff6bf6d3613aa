"""Finds the keys of secondary indexes from the rows that queries read.

A new secondary index is built from these keys, and an existing one is compared with them. Source:
``readSecondaryKeysFromFileSlices`` of ``SecondaryIndexRecordGenerationUtils`` and
``HoodieMetadataTableValidator.validateSecondaryIndex`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.metadata.difference import Difference
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index import SecondaryIndex, encode_keys
from lakemark.metadata.secondary_index_records import index_keys
from lakemark.model.file_slice import FileSlice, join
from lakemark.model.meta_columns import RECORD_KEY

#: Yields the live rows of a file slice, with these columns.
ReadRows: TypeAlias = Callable[[FileSlice, Sequence[str]], Iterator[pa.Table]]

_NO_KEYS = pa.array([], pa.string())


def no_rows(file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield nothing; for a table that has no rows, or no secondary index."""
    return iter(())


def read_index_keys(
    file_slice: FileSlice, column: SecondaryColumn, read_rows: ReadRows
) -> Iterator[pa.Array]:
    """Yield the keys of the live rows of a file slice in a secondary index; see ``index_keys``.

    Args:
        file_slice: the file slice.
        column: the indexed column.
        read_rows: reads the rows of the slice.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: a file cannot be read.
    """
    names = dict.fromkeys([RECORD_KEY, column.name])
    for rows in read_rows(file_slice, [*names]):
        yield index_keys(rows, column)


def secondary_index_differences(
    metadata: MetadataTable,
    columns: Iterable[SecondaryColumn],
    slices: Sequence[FileSlice],
    read_rows: ReadRows,
) -> Iterator[Difference]:
    """Yield the indexes that lack the value of a row, or have a value that no row has.

    Each difference counts values and names one.

    Args:
        metadata: the metadata table.
        columns: the columns with a secondary index.
        slices: the slices that queries read.
        read_rows: reads the rows of a slice.

    Raises:
        SnapshotChanged: the table was changed in the meantime; call again.
        CorruptData, Unsupported: a file cannot be read.
    """
    for column in columns:
        rows = [chunk for one in slices for chunk in read_index_keys(one, column, read_rows)]
        scanned = SecondaryIndex(metadata, column.partition).scan()
        stored = [encode_keys(*map(_whole, part.columns)) for part in scanned]
        yield from _if_any(column, rows, stored, "no value", "a row")
        yield from _if_any(column, stored, rows, "a value", "no row")


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _if_any(
    column: SecondaryColumn,
    keys: Sequence[pa.Array],
    others: Sequence[pa.Array],
    stored: str,
    actual: str,
) -> Iterator[Difference]:
    """Yield a difference if some keys of the index are not among the others."""
    known = pa.concat_arrays([_NO_KEYS, *others])
    extra = [chunk.filter(pc.invert(pc.is_in(chunk, value_set=known))) for chunk in keys]
    count = sum(map(len, extra))
    if count:
        first = min(pc.min(chunk).as_py() for chunk in extra if len(chunk))
        of = f"of {count} records, such as {first!r}"
        path = join(METADATA_FOLDER, column.partition)
        yield Difference(path, column.partition, f"{stored} {of}", actual)
