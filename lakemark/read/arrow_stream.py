"""The result of a query as Arrow batches, which are read lazily."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from lakemark.execution.interleave import interleaved


class ArrowStream(ABC):
    """Arrow batches from independent parts."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Columns and types of the result."""

    def batches(self, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The batches of all parts, in no order; no batch is empty.

        Args:
            threads: parts that are read at once; the number of processors when None.

        Raises:
            SnapshotChanged: a file is gone; plan the query again.
            CorruptData: bytes violate the format.
            Unsupported: a file or a block of a kind that lakemark does not read.
        """
        return interleaved(self._parts(), threads or os.cpu_count() or 1)

    def to_reader(self, threads: int | None = None) -> pa.RecordBatchReader:
        """The result as a stream that other Arrow libraries accept."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(threads))

    def to_table(self, threads: int | None = None) -> pa.Table:
        """The whole result in memory."""
        return self.to_reader(threads).read_all()

    @abstractmethod
    def _parts(self) -> Sequence[Callable[[], Iterator[pa.RecordBatch]]]:
        """One function per part, which reads it."""
