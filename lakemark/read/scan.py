"""A planned query, whose rows are read as Arrow batches.

A scan can be divided: each process or worker reads some of its file slices, and the rows of all
slices together are the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.execution.interleave import interleaved
from lakemark.execution.limits import usable_threads
from lakemark.model.file_slice import FileSlice
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.row_filter import referenced_columns


class ArrowStream(ABC):
    """A result that is read as Arrow batches, from independent parts."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Columns and types of the result."""

    def batches(self, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """Return the batches of all parts, in no order; no batch is empty.

        Args:
            threads: number of parts that are read at once; None for the number of cores that this
                process may use, but at least two, so that one part is merged while the store
                sends the next one.

        Raises:
            SnapshotChanged: a file no longer exists; plan the query again.
            CorruptData: bytes violate the format.
            Unsupported: lakemark does not read this kind of file or block.
        """
        return interleaved(self._parts(), threads or max(2, usable_threads()))

    def to_reader(self, threads: int | None = None) -> pa.RecordBatchReader:
        """Return the result as a stream that other Arrow libraries accept."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(threads))

    def to_table(self, threads: int | None = None) -> pa.Table:
        """Return the whole result in memory."""
        return self.to_reader(threads).read_all()

    @abstractmethod
    def _parts(self) -> Sequence[Callable[[], Iterator[pa.RecordBatch]]]:
        """Return for each part a function that reads the part."""


@dataclass(frozen=True, repr=False)
class Scan(ArrowStream):
    """The rows of some file slices that meet a condition.

    Attributes:
        reader: reads one slice.
        slices: file slices to read, after pruning by partitions and statistics.
        columns: the columns of the result, in this order.
        condition: condition on the rows; it may use columns that are not in ``columns``.
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
        """The columns of the result, then the columns that only the condition needs."""
        if self.condition is None:
            return self.columns
        deciding = referenced_columns(self.condition, self.reader.schema)
        return tuple(dict.fromkeys([*self.columns, *deciding]))

    def with_slices(self, slices: Sequence[FileSlice]) -> Scan:
        """Return a scan of only these slices."""
        return replace(self, slices=tuple(slices))

    def with_columns(self, columns: Sequence[str]) -> Scan:
        """Return a scan of the same rows with these columns."""
        return replace(self, columns=tuple(columns))

    def _parts(self) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
        return [partial(self._read, file_slice) for file_slice in self.slices]

    def _read(self, file_slice: FileSlice) -> Iterator[pa.RecordBatch]:
        found = self.reader.read(file_slice, self.columns_read, self.condition, keeps_order=False)
        for rows in found:
            yield from rows.select(self.columns).to_batches()
