"""A stream of orders that resembles real streams, and the rows that its table must have."""

from __future__ import annotations

from streamer.demo.expected import ExpectedOrders, expected_orders
from streamer.demo.order_messages import ORDER_SCHEMA, order_messages, orders
from streamer.demo.order_stream import OrderMix
from streamer.demo.producer import (
    Produced,
    ProduceFailed,
    TopicNotCreated,
    count_partitions,
    create_topic,
    produce,
)

__all__ = [
    "ORDER_SCHEMA",
    "ExpectedOrders",
    "OrderMix",
    "ProduceFailed",
    "Produced",
    "TopicNotCreated",
    "count_partitions",
    "create_topic",
    "expected_orders",
    "order_messages",
    "orders",
    "produce",
]
