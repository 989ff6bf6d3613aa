"""A Kafka broker that has one node and needs no Docker, for the demo, tests and benchmarks."""

from __future__ import annotations

from streamer.broker.detached import BrokerInfo, start_detached, status, stop_detached
from streamer.broker.embedded import EmbeddedBroker
from streamer.broker.launch import BrokerFailed

__all__ = [
    "BrokerFailed",
    "BrokerInfo",
    "EmbeddedBroker",
    "start_detached",
    "status",
    "stop_detached",
]
