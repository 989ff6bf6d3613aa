"""A merger of single records for the merge benchmark, which merges by event time."""

from __future__ import annotations

from lakemark.config.merger_name import MergerName
from lakemark.merge.custom import BufferedRecord, BufferedRecordMerger, RecordContext


class NewestOrder(BufferedRecordMerger):
    """Keeps the order with the larger ordering value."""

    merging_strategy = "b0f7c1de-64a5-4b64-8a39-0b8f3f1f7c55"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Return one of the two records."""
        return newer if context.newer_wins(older, newer) else older


MERGER = MergerName(f"{__name__}:{NewestOrder.__name__}", NewestOrder.merging_strategy)
