"""The specification's example of a custom merger: two services write parts of the same orders.

Also mergers that differ from it by one guideline of the specification.
"""

from __future__ import annotations

from typing import ClassVar

from lakemark.merge.custom.api import BufferedRecordMerger
from lakemark.merge.custom.buffered_record import BufferedRecord, Operation, RecordContext

#: Each is written by one service, and null in the records of the other.
PARTS = ("order_info", "payment_info")


class OrderMerger(BufferedRecordMerger):
    """The later state wins, and keeps the parts that the other service wrote."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a11"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Merge by event time; parts that the winner lacks come from the other record."""
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
        """A delete if the merged state is ``refunded``; it keeps data and ordering value."""
        merged = super().merge(older, newer, context)
        is_refunded = context.get_value(merged, "state") == "refunded"
        return context.delete(merged) if is_refunded else merged


class RevivingMerger(DeletingMerger):
    """The same, and a deleted order provides its parts to later states."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a14"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """As before, but a deleted order that appears again has its parts."""
        if newer.is_delete or not older.is_delete:
            return super().merge(older, newer, context)
        missing = [part for part in PARTS if context.get_value(newer, part) is None]
        return context.merge_with_record(
            newer, {part: context.get_value(older, part) for part in missing}
        )


class ForgettingMerger(DeletingMerger):
    """The same, and a refunded order is deleted without its data."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a15"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """A delete with only key and ordering value."""
        merged = super().merge(older, newer, context)
        if not merged.is_delete:
            return merged
        return BufferedRecord(merged.record_key, merged.ordering_value, Operation.DELETE, None)


class WitnessMerger(OrderMerger):
    """The same; it records its arguments for the tests."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a16"

    given: ClassVar[list[tuple[BufferedRecord, BufferedRecord, RecordContext]]] = []

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """As before."""
        self.given.append((older, newer, context))
        return super().merge(older, newer, context)


class FirstMerger(BufferedRecordMerger):
    """The first record wins; it has the strategy id of ``OrderMerger``."""

    merging_strategy = OrderMerger.merging_strategy

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Return the older record."""
        return older


class VisitMerger(BufferedRecordMerger):
    """Counts visits, and keeps the location of the last one, with the context only."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a17"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """The later visit, with the visits of both."""
        latest = newer if context.newer_wins(older, newer) else older
        visits = [context.get_value(record, "visits") for record in (older, newer)]
        city = context.get_value(latest, "place.city")
        return context.merge_with_record(
            latest,
            {
                "visits": sum(count for count in visits if isinstance(count, int)),
                "note": f"{context.record_key(latest)} was in {city}",
            },
        )
