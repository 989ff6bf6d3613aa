"""What a query reads and how it comes out: a plan first, then Arrow batches.

A scan is a value: whoever holds a part of its slices reads that part, in this process or in a
worker, and the parts together are the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.file_slice import FileSlice
from lakemark.read.arrow_stream import ArrowStream
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.row_filter import columns_of


@dataclass(frozen=True, repr=False)
class Scan(ArrowStream):
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

    def __repr__(self) -> str:
        count = len(self.slices)
        where = "" if self.condition is None else f", where {self.condition}"
        columns = ", ".join(self.columns)
        return f"Scan({count} file slice{'' if count == 1 else 's'}, columns {columns}{where})"

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

    def with_slices(self, slices: Sequence[FileSlice]) -> Scan:
        """The part of the scan that reads these of its slices."""
        return replace(self, slices=tuple(slices))

    def with_columns(self, columns: Sequence[str]) -> Scan:
        """The same rows with other columns."""
        return replace(self, columns=tuple(columns))

    def _parts(self) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
        return [partial(self._read, file_slice) for file_slice in self.slices]

    def _read(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        for rows in self.reader.read(file_slice, self.columns_read, self.condition):
            yield from rows.select(self.columns).to_batches()
