"""The specification's example of a custom merger: two services write parts of the same orders."""

from __future__ import annotations

from table.merge.custom.buffered_record import BufferedRecord
from table.merge.custom.buffered_record_merger import BufferedRecordMerger
from table.merge.custom.record_context import RecordContext

#: Each is written by one service, and null in the records of the other.
PARTS = ("order_info", "payment_info")


class OrderMerger(BufferedRecordMerger):
    """The later state wins, and takes over what the other service wrote."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a11"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """By event time; parts that the winner lacks come from the other."""
        wins = context.newer_wins(older, newer)
        winner, other = (newer, older) if wins else (older, newer)
        if winner.is_delete or other.is_delete:
            return winner
        missing = [part for part in PARTS if context.get_value(winner, part) is None]
        return context.merge_with_record(
            winner, {part: context.get_value(other, part) for part in missing}
        )


class DeletingMerger(OrderMerger):
    """The same, and a refunded order is deleted."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a12"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """A delete when the merged state is ``refunded``; it keeps data and ordering value."""
        merged = super().merge(older, newer, context)
        is_refunded = context.get_value(merged, "state") == "refunded"
        return context.delete(merged) if is_refunded else merged
