"""Computes the rows that a table must have after the first part of the order stream.

The table must merge in event-time mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamer.demo.order_messages import DEFAULT_MIX, ORDER_SCHEMA, order_rows
from streamer.demo.order_stream import EventBlock, EventKind, OrderMix, event_blocks


@dataclass(frozen=True, slots=True)
class ExpectedOrders:
    """The expected result of a stream.

    Attributes:
        rows: rows of ``ORDER_SCHEMA``, sorted by ``order_id``: the newest version of each order
            that is not deleted.
        broken_count: the number of messages that cannot be decoded, which become dead letters.
    """

    rows: pa.Table
    broken_count: int


def expected_orders(
    count: int, keys: int = 10_000, seed: int = 0, mix: OrderMix = DEFAULT_MIX
) -> ExpectedOrders:
    """Return the expected result of the first ``count`` messages of ``order_messages``."""
    newest = np.full(keys, -1, dtype=np.int64)
    broken_count = 0
    for events in event_blocks(count, keys, seed, mix):
        broken = events.kind == EventKind.BROKEN
        broken_count += int(broken.sum())
        np.maximum.at(newest, events.order[~broken], events.updated_at[~broken])
    rows = pa.Table.from_batches(
        _surviving(event_blocks(count, keys, seed, mix), newest), ORDER_SCHEMA
    )
    return ExpectedOrders(rows.sort_by("order_id"), broken_count)


def _surviving(
    blocks: Iterator[EventBlock], newest: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the orders whose newest event is not a delete; repeats are left out."""
    for events in blocks:
        is_row = np.isin(events.kind, (EventKind.UPSERT, EventKind.LATE))
        survives = is_row & (events.updated_at == newest[events.order])
        yield order_rows(events.take(np.flatnonzero(survives)))
