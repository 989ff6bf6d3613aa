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

from lakemark.errors import Refused
from lakemark.metadata.difference import Difference
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index import SecondaryIndex, encode_keys
from lakemark.metadata.secondary_index_records import encode_index_keys, index_keys
from lakemark.model.file_slice import FileSlice, join
from lakemark.model.meta_columns import RECORD_KEY

#: Yields the live rows of a file slice, with these columns.
ReadRows: TypeAlias = Callable[[FileSlice, Sequence[str]], Iterator[pa.Table]]

_NO_KEYS = pa.array([], pa.string())

#: The most bytes of keys of which an index is built. An Arrow array holds at most 2 GiB.
_MAX_BYTES = 1 << 30


def no_rows(file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield nothing; for a table that has no rows, or no secondary index."""
    return iter(())


def encode_values(
    slices: Iterable[FileSlice],
    columns: Sequence[SecondaryColumn],
    read_rows: ReadRows,
    check_lease: Callable[[], None],
) -> dict[SecondaryColumn, RecordChanges]:
    """Return the records of new secondary indexes; this reads the indexed columns of all rows.

    Args:
        slices: the slices that queries read.
        columns: the columns to index.
        read_rows: reads the rows of a slice.
        check_lease: raises if the lock was lost.

    Raises:
        Refused: the keys of an index take too much memory.
        SnapshotChanged, CorruptData, Unsupported: a file cannot be read.
    """
    found: dict[SecondaryColumn, list[pa.Array]] = {column: [] for column in columns}
    for one in slices if columns else ():
        check_lease()
        for column, keys in read_index_keys(one, columns, read_rows).items():
            found[column] += keys
            _check_size(found[column], column)
    return {
        column: encode_index_keys(pa.concat_arrays([_NO_KEYS, *chunks]), _NO_KEYS, column)
        for column, chunks in found.items()
    }


def read_index_keys(
    file_slice: FileSlice, columns: Sequence[SecondaryColumn], read_rows: ReadRows
) -> dict[SecondaryColumn, list[pa.Array]]:
    """Return the keys of the live rows of a file slice in each secondary index; see ``index_keys``.

    Args:
        file_slice: the file slice.
        columns: the indexed columns.
        read_rows: reads the rows of the slice.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: a file cannot be read.
    """
    names = dict.fromkeys([RECORD_KEY, *(column.name for column in columns)])
    found: dict[SecondaryColumn, list[pa.Array]] = {column: [] for column in columns}
    for rows in read_rows(file_slice, [*names]):
        for column, chunks in found.items():
            chunks.append(index_keys(rows, column))
    return found


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
        of_slices = (read_index_keys(one, [column], read_rows)[column] for one in slices)
        rows = [chunk for chunks in of_slices for chunk in chunks]
        scanned = SecondaryIndex(metadata, column.partition).scan()
        stored = [encode_keys(*map(_whole, part.columns)) for part in scanned]
        yield from _if_any(column, rows, stored, "no value", "a row")
        yield from _if_any(column, stored, rows, "a value", "no row")


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _check_size(chunks: Sequence[pa.Array], column: SecondaryColumn) -> None:
    if sum(chunk.nbytes for chunk in chunks) > _MAX_BYTES:
        message = (
            f"the values of column {column.name!r} and their record keys take more than "
            f"{_MAX_BYTES:,} bytes, of which lakemark builds no index {column.partition}; drop the "
            "index, or build it with Apache Hudi"
        )
        raise Refused(message)


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
