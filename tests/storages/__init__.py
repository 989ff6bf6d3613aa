"""Storages for tests. Each wraps another storage, and counts its requests or makes them fail."""

from tests.storages.counting_storage import CountingStorage, Request
from tests.storages.faulty_storage import FaultyStorage, SimulatedCrash
from tests.storages.watched_storage import WatchedStorage
from tests.storages.whole_seconds import WholeSeconds

__all__ = [
    "CountingStorage",
    "FaultyStorage",
    "Request",
    "SimulatedCrash",
    "WatchedStorage",
    "WholeSeconds",
]
