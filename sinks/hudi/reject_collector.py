"""Writes rows, and keeps rejects in memory, for a caller that decides what to do with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakemark.write.partitioner import Bucket
from sinks.hudi.exchange import Portion, PortionKind, PortionResult
from sinks.hudi.prepare import WriteBuckets


@dataclass(frozen=True)
class RejectCollector:
    """Writes the portions of records, and keeps the rejects, too.

    Attributes:
        write: writes the rows, and only counts rejects.
        rejects: receives the rejects, as changes of the dead-letter table.
    """

    write: WriteBuckets
    rejects: list[pa.Table]

    def __call__(
        self, kind: PortionKind, bucket: Bucket, tables: Iterable[pa.Table]
    ) -> PortionResult:
        """See ``Write``."""
        if kind is PortionKind.REJECTS:
            tables = list(tables)
            self.rejects.extend(tables)
        return self.write(kind, bucket, tables)

    def place(self, portions: Sequence[Portion]) -> tuple[RejectCollector, Sequence[Portion]]:
        """See ``Write.place``."""
        placed, portions = self.write.place(portions)
        return replace(self, write=placed), portions

    def for_tasks(self, tasks: int) -> Sequence[RejectCollector]:
        """See ``Write.for_tasks``."""
        return [self] * tasks
