"""A CDC query as a scan, whose parts any worker may read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakemark.read import cdc
from lakemark.read.cdc import AS_TEXT, CdcPlan, ChangeFormat, ChangeSplit
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.scan import ArrowStream


@dataclass(frozen=True)
class CdcScan(ArrowStream):
    """The changes of a range of commits as Arrow batches.

    Attributes:
        reader: reads file slices of the table.
        plan: the files that contain the changes, and how to read them.
        form: the columns of the changes.
    """

    reader: FileGroupReader
    plan: CdcPlan
    form: ChangeFormat = AS_TEXT

    @property
    def schema(self) -> pa.Schema:
        """The columns of the changes: by default ``op``, ``ts_ms``, ``before`` and ``after``."""
        return self.form.schema

    def with_splits(self, splits: Sequence[ChangeSplit]) -> CdcScan:
        """Return a scan of only these splits."""
        return replace(self, plan=replace(self.plan, splits=tuple(splits)))

    def read(self, splits: Sequence[ChangeSplit]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of some splits, one split after another. Raises what ``batches`` does.

        Args:
            splits: splits of the plan, which a worker may have received without the plan.
        """
        return cdc.read(replace(self.plan, splits=tuple(splits)), self.reader, self.form)

    def _parts(self) -> list[Callable[[], Iterator[pa.RecordBatch]]]:
        return [partial(self.read, (split,)) for split in self.plan.splits]
