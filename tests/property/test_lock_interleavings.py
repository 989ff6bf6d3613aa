"""The table's lock with its writers paused between any two of their calls to storage.

Each writer runs in a thread and makes one call when it is its turn. The turns, and how far the
clock moves before each, are the example: a writer may stand still for longer than a lease.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Semaphore, Thread
from typing import TypeVar
from uuid import uuid4

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from table.errors import LockTimeout
from table.storage import Storage, StorageLocation, open_storage
from table.timeline.lock import Lease, LeaseLost, open_lock
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")

WRITERS = 2
ROUNDS = 4
LEASE_S = 10.0
EXAMPLES = 200

# No pause; one shorter than a lease; one that is long enough to take over.
PAUSES_MS = [1, 9_999, 10_503, 10_503]


class Turns:
    """Lets one writer at a time go on, in the order of the example, and moves the clock."""

    def __init__(self, turns: list[tuple[int, int]]) -> None:
        self.time_ms = 1_700_000_000_000
        self._turns = iter(turns)
        self._gates = [Semaphore(0) for _ in range(WRITERS)]
        self._running = list(range(WRITERS))

    def now_ms(self) -> int:
        return self.time_ms

    def sleep(self, seconds: float) -> None:
        self.time_ms += 1

    def wait(self, writer: int) -> None:
        self._gates[writer].acquire()

    def leave(self, writer: int) -> None:
        self._running.remove(writer)
        if self._running:
            self.give()

    def give(self) -> None:
        chosen, pause_ms = next(self._turns, (0, 1))
        self.time_ms += pause_ms
        self._gates[self._running[chosen % len(self._running)]].release()


class TurnStorage(WrappedStorage):
    """Every call waits for its writer's turn."""

    def __init__(self, inner: Storage, turns: Turns, writer: int, conditional: bool) -> None:
        super().__init__(inner)
        self._turns, self._writer, self._conditional = turns, writer, conditional

    @property
    def supports_compare_and_swap(self) -> bool:
        return self._conditional

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._turns.give()
        self._turns.wait(self._writer)
        return call()

    _writing = _reading


class Writers:
    """Writers that take, renew and release the lock, and look whether another one has it too."""

    def __init__(self, turns: Turns, conditional: bool) -> None:
        self._location = StorageLocation(f"memory://{uuid4().hex}")
        self._turns = turns
        self._conditional = conditional
        self._leases: dict[int, Lease] = {}
        self.failures: list[BaseException] = []
        self.held = 0

    def run(self) -> None:
        threads = [Thread(target=self._run_one, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        self._turns.give()
        for thread in threads:
            thread.join()

    def _run_one(self, writer: int) -> None:
        inner = open_storage(self._location)
        storage = TurnStorage(inner, self._turns, writer, self._conditional)
        lock = open_lock(storage, lease_s=LEASE_S, clock=self._turns)
        self._turns.wait(writer)
        try:
            for _ in range(ROUNDS):
                with suppress(LockTimeout, LeaseLost), lock.hold(wait_s=0.005) as lease:
                    self._use(writer, lease)
        except BaseException as failure:
            self.failures.append(failure)
        finally:
            self._turns.leave(writer)

    def _use(self, writer: int, lease: Lease) -> None:
        self._leases[writer] = lease
        try:
            self._alone()
            lease.renew()
            self._alone()
            self.held += 1
        finally:
            del self._leases[writer]

    def _alone(self) -> None:
        valid = [writer for writer, lease in self._leases.items() if lease.remaining_s() > 0]
        assert len(valid) <= 1, valid


# Races need few switches, well placed: a writer goes on for some calls after each.
stretches = st.tuples(
    st.integers(0, WRITERS - 1), st.integers(1, 12), st.sampled_from(PAUSES_MS)
)


def turns_of(stretches: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [
        (writer, pause_ms if call == 0 else 1)
        for writer, calls, pause_ms in stretches
        for call in range(calls)
    ]


@pytest.mark.parametrize("conditional", [True, False], ids=["conditional", "generations"])
def test_two_leases_are_never_valid_at_once(conditional: bool) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.reuse, Phase.generate])
    @given(st.lists(stretches, min_size=2, max_size=12).map(turns_of))
    def never(turns: list[tuple[int, int]]) -> None:
        writers = Writers(Turns(turns), conditional)
        writers.run()
        if writers.failures:
            raise writers.failures[0]

    never()
