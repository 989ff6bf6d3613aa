"""Executes a read plan in the same way as ``lakemark.read.scan_planner``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.incremental import IncrementalPlan
from lakemark.read.scan import Scan
from lakemark.read.time_travel import TimeTravel


def read(
    plan: TimeTravel | IncrementalPlan,
    reader: FileGroupReader,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a plan; ``columns`` None for all columns."""
    names = tuple(reader.schema.names if columns is None else columns)
    condition = plan.condition if isinstance(plan, IncrementalPlan) else None
    seen = replace(reader, is_visible=plan.visible)
    return Scan(seen, plan.slices, names, condition).batches(threads=1)
