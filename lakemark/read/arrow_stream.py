"""What a query gives, however it is planned: Arrow batches, read when they are asked for."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from lakemark.execution.interleave import interleaved


class ArrowStream(ABC):
    """Batches out of independent parts."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Columns and types of the result."""

    def batches(self, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The result, part by part, in no order; none of the batches is empty.

        Args:
            threads: parts that are read at once; as many as there are processors when None.

        Raises:
            SnapshotChanged: a file is gone; plan the query again.
            CorruptData: bytes that disagree with the format.
            Unsupported: a file or a block of a kind that is not read here.
        """
        return interleaved(self._parts(), threads or os.cpu_count() or 1)

    def to_reader(self, threads: int | None = None) -> pa.RecordBatchReader:
        """The same as a stream that Arrow's other libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(threads))

    def to_table(self, threads: int | None = None) -> pa.Table:
        """All of it, in memory."""
        return self.to_reader(threads).read_all()

    @abstractmethod
    def _parts(self) -> Sequence[Callable[[], Iterator[pa.RecordBatch]]]:
        """What reads each part."""
