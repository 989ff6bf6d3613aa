"""Two services write the same orders, each its own columns; one merger, written in both ways.

The order service sends ``order_info``, the payment service ``payment_info``, both with the time at
which they filled it; each event has the state of the order and the time ``at``, the ordering field.
Of two versions the later one says the state, and each info is the one that was filled last,
whichever version brought it. So a cancelled order has both: what was ordered, and why it was not
paid. A deleted order keeps them too, for versions that come in late.

The infos have times of their own because merging must be associative: the time of a merged order
says nothing about either of them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakemark.merge.custom import (
    BufferedRecord,
    BufferedRecordMerger,
    RecordContext,
    Records,
    VectorMerge,
    VectorMerger,
    choose_rows,
)

#: By the column of its time, each info.
INFOS = {"order_info_at": "order_info", "payment_info_at": "payment_info"}


class OrderMerger(VectorMerger):
    """Columns at once."""

    merging_strategy = "0a3d64a4-8a4c-4e49-bd0b-7c1c7f6a3a10"

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        """The later version, with the last of each info."""
        newer_wins = newer.wins_over(older)
        rows = choose_rows(newer_wins, newer.rows, older.rows)
        for at, info in INFOS.items():
            filled_last = _times(newer[at]) >= _times(older[at])
            both = choose_rows(
                filled_last, newer.rows.select([at, info]), older.rows.select([at, info])
            )
            for name in (at, info):
                place = rows.column_names.index(name)
                rows = rows.set_column(place, rows.schema.field(name), both[name])
        return VectorMerge(rows, keep=~np.where(newer_wins, newer.is_delete, older.is_delete))


class OrderRecordMerger(BufferedRecordMerger):
    """Record by record."""

    merging_strategy = OrderMerger.merging_strategy

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        """The later version, with the last of each info."""
        latest = newer if context.newer_wins(older, newer) else older
        infos: dict[str, object] = {}
        for at, info in INFOS.items():
            times = [context.get_value(record, at) for record in (older, newer)]
            last = newer if _rank(times[1]) >= _rank(times[0]) else older
            infos |= {name: context.get_value(last, name) for name in (at, info)}
        return context.merge_with_record(latest, infos)


def _times(column: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Times as numbers; one that is not there is before all others."""
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    )
    return numbers


def _rank(time: object) -> int:
    return time if isinstance(time, int) else -1
