"""The changes of a span of commits as a scan, in parts that any worker may read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from table.execution.interleave import interleaved
from table.read import cdc
from table.read.cdc import CdcPlan, ChangeSplit
from table.read.file_group_reader import FileGroupReader


@dataclass(frozen=True)
class CdcScan:
    """Changes, as ``Scan`` has rows.

    Attributes:
        reader: reads file slices of the table.
        plan: which files tell of the changes, and how.
    """

    reader: FileGroupReader
    plan: CdcPlan

    @property
    def schema(self) -> pa.Schema:
        """``op``, ``ts_ms``, ``before`` and ``after``."""
        return cdc.SCHEMA

    def batches(self, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """The changes, split by split, in no order; see ``Scan.batches``."""
        sources = [partial(self._read, split) for split in self.plan.splits]
        return interleaved(sources, threads or os.cpu_count() or 1)

    def to_reader(self, threads: int | None = None) -> pa.RecordBatchReader:
        """The same as a stream that Arrow's other libraries take."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(threads))

    def to_table(self, threads: int | None = None) -> pa.Table:
        """All changes, in memory."""
        return self.to_reader(threads).read_all()

    def _read(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        return cdc.read(replace(self.plan, splits=(split,)), self.reader)
