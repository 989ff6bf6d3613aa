"""What a query reads and how it comes out: a plan first, then Arrow batches.

A scan is a value: whoever holds a part of its slices reads that part, in this process or in a
worker, and the parts together are the whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from table.execution.interleave import interleaved
from table.model.file_slice import FileSlice
from table.read.file_group_reader import FileGroupReader
from table.read.row_filter import columns_of


@dataclass(frozen=True)
class Scan:
    """The rows of some file slices that meet a condition.

    Attributes:
        reader: reads one slice.
        slices: what is to be read, after partitions and statistics have ruled files out.
        columns: the columns of the result, in this order.
        condition: on rows; it may name other columns than ``columns``.
    """

    reader: FileGroupReader
    slices: tuple[FileSlice, ...]
    columns: tuple[str, ...]
    condition: pc.Expression | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns and types of the result."""
        return pa.schema([self.reader.schema.field(name) for name in self.columns])

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The columns of the result, then those that only decide about a row."""
        if self.condition is None:
            return self.columns
        deciding = columns_of(self.condition, self.reader.schema)
        return tuple(dict.fromkeys([*self.columns, *deciding]))

    def batches(self, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, slice by slice, in no order; none of the batches is empty.

        Args:
            threads: slices that are read at once; as many as there are processors when None.

        Raises:
            SnapshotChanged: a file is gone; plan the query again.
            CorruptData: bytes that disagree with the format.
            Unsupported: a file or a block of a kind that is not read here.
        """
        sources = [partial(self._read, file_slice) for file_slice in self.slices]
        return interleaved(sources, threads or os.cpu_count() or 1)

    def to_reader(self, threads: int | None = None) -> pa.RecordBatchReader:
        """The same as a stream that Arrow's other libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(threads))

    def to_table(self, threads: int | None = None) -> pa.Table:
        """All rows, in memory."""
        return self.to_reader(threads).read_all()

    def with_slices(self, slices: Sequence[FileSlice]) -> Scan:
        """The part of the scan that reads these of its slices."""
        return replace(self, slices=tuple(slices))

    def with_columns(self, columns: Sequence[str]) -> Scan:
        """The same rows with other columns."""
        return replace(self, columns=tuple(columns))

    def _read(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        for rows in self.reader.read(file_slice, self.columns_read, self.condition):
            yield from rows.select(self.columns).to_batches()
