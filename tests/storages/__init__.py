"""Storages for tests: any other storage with something added."""

from tests.storages.counting_storage import CountingStorage, Request
from tests.storages.faulty_storage import FaultyStorage, SimulatedCrash

__all__ = ["CountingStorage", "FaultyStorage", "Request", "SimulatedCrash"]
