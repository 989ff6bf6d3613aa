"""The workload of the benchmark: the order stream of the demo, with upserts only.

It has 400,000 orders in four partitions of the table and four of the topic. Every twentieth record
is an older state that arrives late, and no two states of an order have the same ordering value.
Deletes, repeats and broken records are omitted, because the peers would treat them differently.
"""

from __future__ import annotations

import pyarrow as pa

from streamer.demo.expected import expected_orders
from streamer.demo.order_stream import OrderMix
from streamer.demo.producer import produce

TOPIC = "orders"
KAFKA_PARTITIONS = 4
RECORD_KEY = "order_id"
TABLE_PARTITION = "region"
ORDERING = "updated_at"

#: File groups in each partition of the table, and delta commits between two compactions.
BUCKETS = 2
COMPACT_EVERY = 5

_KEYS = 400_000
_MIX = OrderMix(late=0.05, repeated=0.0, deleted=0.0, tombstones=0.0, broken=0.0)


def send(bootstrap: str, first: int, count: int) -> None:
    """Send records ``first`` to ``first + count``; the first call creates the topic."""
    produce(bootstrap, TOPIC, count, keys=_KEYS, mix=_MIX, first=first, partitions=KAFKA_PARTITIONS)


def newest_rows(count: int) -> pa.Table:
    """Return the expected rows of a table after the first ``count`` records, sorted by key."""
    return expected_orders(count, _KEYS, mix=_MIX).rows
