"""Writes rows of a partition to new file groups, without comparing their keys with stored keys.

Each file group gets one base file, also in a merge-on-read table. The number of rows of a file
follows from the size of a row: of the first file from a sample, of the next files from the file
before. Source: ``BulkInsertDataInternalWriterHelper`` of Apache Hudi 1.2.0, which begins a file
when the last one has reached ``hoodie.parquet.max.file.size``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from lakemark.codec.bloom import FooterKeys
from lakemark.log.parquet_format import parquet_writer
from lakemark.merge.change_index import MergeCounts, MergeResult
from lakemark.merge.merge_stream import MergeStream
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.projection import conform
from lakemark.schema.dictionaries import encoded_columns, with_encoded
from lakemark.write.file_group_write import create_partition, write_base_file
from lakemark.write.index_changes import IndexedRows
from lakemark.write.meta_column_values import set_meta_columns
from lakemark.write.row_groups import divide_rows
from lakemark.write.write_context import WriteContext

#: Number of rows that are encoded to estimate the size of a row. The number is exact, so that the
#: files do not depend on the tables in which the rows arrive.
_SAMPLE_ROWS = 10_000

#: A number that is as long as the number of a file group in sequence numbers.
_SAMPLE_SERIES = 1 << 62


def write_new_file_groups(
    context: WriteContext,
    partition_path: str,
    rows: Iterable[pa.Table],
    max_file_bytes: int,
    new_file_id: Callable[[int], str],
    *,
    is_new_partition: bool,
) -> list[WriteStat]:
    """Write rows to as many new file groups as their size requires.

    Args:
        context: the commit.
        partition_path: the partition of all rows.
        rows: rows or upserts, with record keys and partition paths. Columns of the table that they
            lack are null.
        max_file_bytes: the size that files approximately have, except the last one.
        new_file_id: returns the file id of the n-th file group.
        is_new_partition: whether the partition may have no metafile yet.

    Raises:
        Refused: the partition has data files, but no metafile.
        ContentMismatch: another attempt wrote other rows.
    """
    waiting = _Waiting(conform(part, context.schema, "") for part in rows)
    sample = waiting.peek(_SAMPLE_ROWS)
    if not sample.num_rows:
        return []
    create_partition(context, partition_path, is_new_partition=is_new_partition)
    row_bytes = _encoded_row_bytes(context, sample)
    written: list[WriteStat] = []
    while waiting.has_rows():
        group = FileGroupId(partition_path, new_file_id(len(written)))
        limit = max(1, round(max_file_bytes / row_bytes))
        indexed = IndexedRows.of(context)
        stat = write_base_file(context, group, _new_rows(waiting.take(limit)), written=[indexed])
        written.append(indexed.describe_changes(stat, IndexedRows()))
        row_bytes = written[-1].total_write_bytes / written[-1].num_writes
    return written


def divide_among_file_groups(
    context: WriteContext,
    partition_path: str,
    rows: Iterable[pa.Table],
    rows_of_file: int | None,
    new_file_id: Callable[[int], str],
) -> list[WriteStat]:
    """Write rows that other file groups have now to new file groups with a number of rows each.

    Args:
        context: the table service.
        partition_path: the partition of all rows, which exists.
        rows: stored rows, which keep their commit times. Columns of the table that they lack are
            null. Columns of texts may be dictionary-encoded, the same ones in all tables.
        rows_of_file: the number of rows of each file, except the last one; None for one file.
        new_file_id: returns the file id of the n-th file group.

    Returns:
        The write stats, with the keys of each file if the table has a record index.
    """
    waiting = _Waiting(_with_all_columns(part, context.schema) for part in rows)
    written: list[WriteStat] = []
    while waiting.has_rows():
        group, indexed = (
            FileGroupId(partition_path, new_file_id(len(written))),
            IndexedRows.of(context),
        )
        taken = _new_rows(waiting.take(rows_of_file))
        stat = write_base_file(context, group, taken, written=[indexed])
        written.append(indexed.describe_changes(stat, IndexedRows()))
    return written


def _with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return conform(rows, with_encoded(schema, encoded_columns(rows.schema)), "")


def _new_rows(tables: Iterable[pa.Table]) -> MergeStream:
    return MergeStream(MergeResult(rows, MergeCounts(inserted=rows.num_rows)) for rows in tables)


def _encoded_row_bytes(context: WriteContext, sample: pa.Table) -> float:
    """Return the size of a row in a base file, with its part of the Bloom filter."""
    rows = set_meta_columns(sample, context.instant, _SAMPLE_SERIES, "0" * 60)
    sink, footer = pa.BufferOutputStream(), FooterKeys()
    with parquet_writer(sink, context.schema, context.base_files) as writer:
        for row_group in divide_rows(rows, context.schema, context.base_files.row_group_bytes):
            writer.write_table(row_group, row_group_size=row_group.num_rows)
            for keys in row_group.column(RECORD_KEY).chunks:
                footer.add(keys)
        encoded_bytes: int = sink.tell()
    footer_bytes = sum(len(text) for text in footer.entries().values())
    row_bytes: float = (encoded_bytes + footer_bytes) / sample.num_rows
    return row_bytes


class _Waiting:
    """Rows of a stream that were not taken yet."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = iter(tables)
        self._first: list[pa.Table] = []

    def peek(self, limit: int) -> pa.Table:
        """Return the next ``limit`` rows, or all if there are fewer; they stay."""
        while sum(part.num_rows for part in self._first) < limit:
            following = next((part for part in self._tables if part.num_rows), None)
            if following is None:
                break
            self._first.append(following)
        return pa.concat_tables(self._first).slice(0, limit) if self._first else pa.table({})

    def has_rows(self) -> bool:
        """Return whether there are more rows."""
        return bool(self.peek(1).num_rows)

    def take(self, limit: int | None) -> Iterator[pa.Table]:
        """Yield the next ``limit`` rows, or all if it is None."""
        remaining = math.inf if limit is None else limit
        while remaining and self.has_rows():
            part = self._first.pop(0)
            if part.num_rows > remaining:
                self._first.insert(0, part.slice(int(remaining)))
                part = part.slice(0, int(remaining))
            remaining -= part.num_rows
            yield part
