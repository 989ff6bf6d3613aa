"""A merger that the workers import; it adds up the quantities of an order."""

from __future__ import annotations

import pyarrow.compute as pc

from lakemark.merge.custom import Records, VectorMerge, VectorMerger, choose_rows


class QuantityMerger(VectorMerger):
    """Keeps the later version, with the sum of both quantities."""

    merging_strategy = "6c0b8d0e-52f6-4d0f-9d53-0c6f6f0f7b51"

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        """Merge each older row with its newer row."""
        newer_wins = newer.wins_over(older)
        rows = choose_rows(newer_wins, newer.rows, older.rows)
        place = rows.column_names.index("quantity")
        added = pc.add(older["quantity"], newer["quantity"])
        rows = rows.set_column(place, rows.schema.field(place), added)
        return VectorMerge(rows, keep=~(newer_wins & newer.is_delete))
