"""Reads what a planner planned, as ``table.read.scan_planner`` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from table.read.file_group_reader import FileGroupReader
from table.read.incremental import IncrementalPlan
from table.read.scan import Scan
from table.read.time_travel import TimeTravel


def read(
    plan: TimeTravel | IncrementalPlan,
    reader: FileGroupReader,
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a plan; all columns when None."""
    names = tuple(reader.schema.names if columns is None else columns)
    condition = plan.condition if isinstance(plan, IncrementalPlan) else None
    seen = replace(reader, is_visible=plan.visible)
    return Scan(seen, plan.slices, names, condition).batches(threads=1)
