"""Storages for tests: any other storage with something added."""

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
