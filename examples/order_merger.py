"""A merger for orders that two services write, each its own columns; shown in both APIs.

The order service sends ``order_info``, the payment service ``payment_info``, each with the time at
which it was set. Each event also has the state of the order and the time ``at``, the ordering
field. Of two versions, the later one determines the state. Each info comes from the version that
set it last. So a cancelled order has both: the ordered items, and the reason why it was not paid. A
deleted order keeps them, too, for versions that arrive late.

Each info has its own time because merging must be associative: the time of a merged order is not
the time of its infos.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakemark import (
    BufferedRecord,
    BufferedRecordMerger,
    RecordContext,
    Records,
    VectorMerge,
    VectorMerger,
    choose_rows,
)

#: Each info, by the column of its time.
INFOS = {"order_info_at": "order_info", "payment_info_at": "payment_info"}


class OrderMerger(VectorMerger):
    """Merges whole columns."""

    merging_strategy = "0a3d64a4-8a4c-4e49-bd0b-7c1c7f6a3a10"

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        """Take the later version, but each info from the version that set it last."""
        newer_wins = newer.wins_over(older)
        rows = choose_rows(newer_wins, newer.rows, older.rows)
        for at, info in INFOS.items():
            filled_last = _times(newer[at]) >= _times(older[at])
            both = choose_rows(
                filled_last, newer.rows.select([at, info]), older.rows.select([at, info])
            )
            for name in (at, info):
                position = rows.column_names.index(name)
                rows = rows.set_column(position, rows.schema.field(name), both[name])
        return VectorMerge(rows, keep=~np.where(newer_wins, newer.is_delete, older.is_delete))


class OrderRecordMerger(BufferedRecordMerger):
    """Merges record by record."""

    merging_strategy = OrderMerger.merging_strategy

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """Take the later version, but each info from the version that set it last."""
        latest = newer if context.newer_wins(older, newer) else older
        infos: dict[str, object] = {}
        for at, info in INFOS.items():
            times = [context.get_value(record, at) for record in (older, newer)]
            last = newer if _rank(times[1]) >= _rank(times[0]) else older
            infos |= {name: context.get_value(last, name) for name in (at, info)}
        return context.merge_with_record(latest, infos)


def _times(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Times as numbers; a missing time is before all others."""
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    )
    return numbers


def _rank(time: object) -> int:
    return time if isinstance(time, int) else -1
