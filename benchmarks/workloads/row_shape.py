"""The rows of a workload: the orders of the demo, in any number of partitions and of columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.orders import decimals, scattered
from streamer.demo.order_messages import ORDER_SCHEMA, REGIONS, order_rows
from streamer.demo.order_stream import EventBlock, Ints

RECORD_KEY = "order_id"
PARTITION = "region"
ORDERING = "updated_at"

_MONEY = pa.decimal128(10, 2)

#: The types of the columns after those of an order, in turn, and their values.
_EXTRA: tuple[tuple[pa.DataType, Callable[[Ints], pa.Array]], ...] = (
    (pa.string(), lambda drawn: pc.binary_join_element_wise("value", _text(drawn % 10_000), "-")),
    (pa.int32(), lambda drawn: pa.array((drawn % 1_000_000).astype(np.int32))),
    (pa.int64(), lambda drawn: pa.array(drawn * 1_000_003)),
    (pa.float64(), lambda drawn: pa.array(drawn % 1_000_000 / 1_000)),
    (_MONEY, lambda drawn: decimals(drawn % 10_000_000, _MONEY)),
    (pa.bool_(), lambda drawn: pa.array(drawn % 2 == 0)),
)


@dataclass(frozen=True, slots=True)
class RowShape:
    """The partitions of the table, and how many columns it has besides those of an order."""

    partitions: int = len(REGIONS)
    extra_columns: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        extra = [(f"c{n:03d}", _EXTRA[n % len(_EXTRA)][0]) for n in range(self.extra_columns)]
        return pa.schema([*ORDER_SCHEMA, *(pa.field(name, kind) for name, kind in extra)])

    def rows(self, events: EventBlock) -> pa.RecordBatch:
        """Return events as rows; two versions of an order differ in the extra columns, too."""
        orders = order_rows(events)
        columns = dict(zip(orders.schema.names, orders.columns, strict=True))
        if self.partitions != len(REGIONS):
            columns[PARTITION] = _regions(events.order % self.partitions)
        drawn = (scattered(events.updated_at, seed) for seed in range(self.extra_columns))
        extra = [_EXTRA[n % len(_EXTRA)][1](numbers) for n, numbers in enumerate(drawn)]
        return pa.RecordBatch.from_arrays([*columns.values(), *extra], schema=self.schema)


def _regions(numbers: Ints) -> pa.Array:
    return pc.binary_join_element_wise("region", pc.utf8_lpad(_text(numbers), 3, "0"), "-")


def _text(numbers: Ints) -> pa.Array:
    return pc.cast(pa.array(numbers), pa.string())
