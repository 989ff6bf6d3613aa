"""Queries over a view: which slices they read, and the rows of these one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from table.model.file_slice import FileSlice
from table.read.file_group_reader import FileGroupReader
from table.view.file_system_view import FileSystemView


def snapshot(
    view: FileSystemView,
    reader: FileGroupReader,
    columns: Sequence[str] | None = None,
    partition: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The table as of the view's timeline: base files with the changes since.

    Args:
        view: the file slices.
        reader: reads them.
        columns: the columns of the result, in this order; all when None.
        partition: one partition path ("" is the root); all when None.

    Raises:
        SnapshotChanged: a file was removed meanwhile; load the view again.
        CorruptData: bytes that disagree with the format.
        Unsupported: a file or a block of a kind that is not read here.
        InvalidConfig: the table has no such column.
    """
    return _rows(view.latest_slices(partition), reader, columns)


def read_optimized(
    view: FileSystemView,
    reader: FileGroupReader,
    columns: Sequence[str] | None = None,
    partition: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The newest base files alone, so the table as of each file group's last compaction.

    Arguments and errors as for ``snapshot``.
    """
    return _rows(view.read_optimized(partition), reader, columns)


def _rows(
    slices: Iterable[FileSlice], reader: FileGroupReader, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    for file_slice in slices:
        for rows in reader.read(file_slice, columns):
            yield from rows.to_batches()
