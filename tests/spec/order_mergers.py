"""The specification's example of a custom merger: two services write parts of the same orders.

Other mergers here differ from it in one guideline of the specification each.
"""

from __future__ import annotations

from typing import ClassVar

from lakemark.merge.custom.api import BufferedRecordMerger
from lakemark.merge.custom.buffered_record import BufferedRecord, Operation, RecordContext

#: Each is written by one service, and null in the records of the other.
PARTS = ("order_info", "payment_info")


class OrderMerger(BufferedRecordMerger):
    """The later state wins, and keeps the part that the other service wrote."""

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
    """Like ``OrderMerger``, but a refunded order is deleted."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a12"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Return a delete, with data and ordering value, if the merged state is ``refunded``."""
        merged = super().merge(older, newer, context)
        is_refunded = context.get_value(merged, "state") == "refunded"
        return context.delete(merged) if is_refunded else merged


class RevivingMerger(DeletingMerger):
    """Like ``DeletingMerger``, but a later state gets missing parts from the deleted order."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a14"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Merge as before, but fill missing parts of the newer record from an older delete."""
        if newer.is_delete or not older.is_delete:
            return super().merge(older, newer, context)
        missing = [part for part in PARTS if context.get_value(newer, part) is None]
        return context.merge_with_record(
            newer, {part: context.get_value(older, part) for part in missing}
        )


class ForgettingMerger(DeletingMerger):
    """Like ``DeletingMerger``, but the delete of a refunded order has no data."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a15"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Merge as before; keep only the key and the ordering value of a delete."""
        merged = super().merge(older, newer, context)
        if not merged.is_delete:
            return merged
        return BufferedRecord(merged.record_key, merged.ordering_value, Operation.DELETE, None)


class WitnessMerger(OrderMerger):
    """Like ``OrderMerger``, but it records its arguments for the tests."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a16"

    given: ClassVar[list[tuple[BufferedRecord, BufferedRecord, RecordContext]]] = []

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Record the arguments, and merge as before."""
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
    """Counts visits, and keeps the location of the last one.

    It uses only the methods of the context.
    """

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a17"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Return the later visit, with the sum of both counts."""
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
