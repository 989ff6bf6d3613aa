"""Simulated threads, locks, clocks and random numbers for the code under test."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from lakemark.transaction.streamer_progress import _ExtraMetadata
from tests.simulation.memo import cache_results
from tests.simulation.scheduler import Scheduler

T = TypeVar("T")


class SimulatedThreads:
    """The replacement for the module ``threading`` in the code under test."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.Event = lambda: _Event(scheduler)
        self.Lock = lambda: _Lock(scheduler)
        self.RLock = lambda: _Lock(scheduler)
        self._scheduler = scheduler

    def Thread(
        self, target: Callable[..., None], args: Sequence[Any] = (), **named: object
    ) -> SimpleNamespace:
        """Create a task of the same process; it never runs outside of ``Scheduler.run``."""
        process = self._scheduler.process

        def start() -> None:
            if process is not None:
                self._scheduler.start(process, lambda: target(*args))

        return SimpleNamespace(start=start)


class _Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float) -> bool:
        if not self._is_set:
            self._scheduler.wait_for(self.is_set, int(1000 * timeout))
        return self._is_set


class _Lock:
    """A lock within one process. It is reentrant, for ``Lock`` and ``RLock`` alike."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: object = None
        self._depth = 0

    def __enter__(self) -> None:
        task = self._scheduler.task
        if self._holder not in (None, task):
            self._scheduler.wait_for(lambda: self._holder is None)
        self._holder = task
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._holder = None


def _one_after_another(
    sources: Sequence[Callable[[], Iterator[T]]], threads: int, ahead: int = 2
) -> Iterator[T]:
    for source in sources:
        yield from source()


def _read_here(source: Callable[[], Iterator[T]], ahead: int = 1) -> Generator[T, None, None]:
    yield from source()


@contextmanager
def simulated(scheduler: Scheduler, seed: str) -> Iterator[None]:
    """Run a block in which all that a history depends on is drawn from a seed."""
    draw = random.Random(seed)
    time = scheduler.time
    with pytest.MonkeyPatch.context() as patch:
        threads = SimulatedThreads(scheduler)
        for module in ("transaction.heartbeat", "timeline.locks.table_lock"):
            patch.setattr(f"lakemark.{module}.threading", threads)
        # Until Python 3.12 a cached property is under a lock. This one reads from the store.
        patch.setattr(vars(_ExtraMetadata)["_loaded"], "lock", _Lock(scheduler), raising=False)
        for module in ("heartbeat", "multi_writer", "transaction", "rollback"):
            patch.setattr(f"lakemark.transaction.{module}.time", time)
        for module in ("restore", "savepoint", "cleaning"):
            patch.setattr(f"lakemark.services.{module}.time", time)
        for module in ("transaction.heartbeat", "services.cleaning"):
            patch.setattr(f"lakemark.{module}.datetime", time)
        patch.setattr("lakemark.timeline.locks.table_lock.random", draw)
        patch.setattr("lakemark.read.scan.interleaved", _one_after_another)
        patch.setattr("lakemark.write.file_group_write.read_ahead", _read_here)
        patch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
        patch.setattr("lakemark.model.column_ranges.MAX_COLUMNS", 1)  # of statistics
        cache_results(patch)
        patch.setattr(uuid, "os", SimpleNamespace(urandom=draw.randbytes))
        yield
