"""A CDC query as a scan, whose parts any worker may read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakemark.read import cdc
from lakemark.read.cdc import CdcPlan, ChangeSplit
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.scan import ArrowStream


@dataclass(frozen=True)
class CdcScan(ArrowStream):
    """The changes of a range of commits as Arrow batches.

    Attributes:
        reader: reads file slices of the table.
        plan: the files that contain the changes, and how to read them.
    """

    reader: FileGroupReader
    plan: CdcPlan

    @property
    def schema(self) -> pa.Schema:
        """The columns ``op``, ``ts_ms``, ``before`` and ``after``."""
        return cdc.SCHEMA

    def _parts(self) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
        return [partial(self._read, split) for split in self.plan.splits]

    def _read(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        return cdc.read(replace(self.plan, splits=(split,)), self.reader)
