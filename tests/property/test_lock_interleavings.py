"""The table's lock under every order of its steps that Hypothesis can think of.

Each writer runs in a thread and takes one call of its storage at a time, when it is its turn; the
turns, and how long the clock moves before each, are the example. So a writer may be paused between
any two calls, for longer than a lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Condition, Thread
from typing import TypeVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from table.errors import LockTimeout
from table.storage import Storage, StorageLocation, open_storage
from table.timeline.lock import Lease, LeaseLost, open_lock
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")

WRITERS = 3
LEASE_S = 10.0
ROUNDS = 3
EXAMPLES = 150


class Turns:
    """Lets one writer at a time go on, in the order of the example, and moves the clock."""

    def __init__(self, turns: Iterable[tuple[int, int]]) -> None:
        self.time_ms = 1_700_000_000_000
        self._turns = iter(turns)
        self._condition = Condition()
        self._running = set(range(WRITERS))
        self._waiting: set[int] = set()
        self._next: int | None = None

    def now_ms(self) -> int:
        return self.time_ms

    def sleep(self, seconds: float) -> None:
        self.time_ms += 1

    def wait(self, writer: int) -> None:
        """Until it is this writer's turn; it was the only one to run, or starts."""
        with self._condition:
            self._waiting.add(writer)
            self._choose()
            self._condition.wait_for(lambda: self._next == writer)
            self._waiting.discard(writer)
            self._next = None

    def leave(self, writer: int) -> None:
        with self._condition:
            self._running.discard(writer)
            self._choose()

    def _choose(self) -> None:
        if self._running and self._waiting == self._running:
            chosen, passed_ms = next(self._turns, (0, 1))
            candidates = sorted(self._waiting)
            self.time_ms += passed_ms
            self._next = candidates[chosen % len(candidates)]
            self._condition.notify_all()


class TurnStorage(WrappedStorage):
    """Every call waits for its writer's turn."""

    def __init__(self, inner: Storage, turns: Turns, writer: int) -> None:
        super().__init__(inner)
        self._turns, self._writer = turns, writer

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._turns.wait(self._writer)
        return call()

    _writing = _reading


class Writers:
    """Writers that take, renew and release the lock, and look whether another one has it too."""

    def __init__(self, location: StorageLocation, turns: Turns) -> None:
        self._location = location
        self._turns = turns
        self._leases: dict[int, Lease] = {}
        self.failures: list[BaseException] = []
        self.held = 0

    def run(self) -> None:
        threads = [Thread(target=self._run_one, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run_one(self, writer: int) -> None:
        try:
            storage = TurnStorage(open_storage(self._location), self._turns, writer)
            lock = open_lock(storage, lease_s=LEASE_S, clock=self._turns)
            for _ in range(ROUNDS):
                with suppress(LockTimeout, LeaseLost), lock.hold(wait_s=0.01) as lease:
                    self._use(writer, lease)
        except BaseException as failure:
            self.failures.append(failure)
        finally:
            self._turns.leave(writer)

    def _use(self, writer: int, lease: Lease) -> None:
        self._leases[writer] = lease
        try:
            for step in (lease.check, lease.renew, lease.check):
                self._alone(writer)
                step()
            self._alone(writer)
            self.held += 1
        finally:
            del self._leases[writer]

    def _alone(self, writer: int) -> None:
        if self._leases[writer].remaining_s() > 0:
            others = [lease for other, lease in self._leases.items() if other != writer]
            assert not any(lease.remaining_s() > 0 for lease in others)


# A pause shorter than a lease, too short to take over, long enough.
PAUSES_MS = [1, 1, 1, 9_999, 10_500, 10_503, 10_503]
stretches = st.tuples(
    st.integers(0, WRITERS - 1), st.integers(1, 8), st.sampled_from(PAUSES_MS)
)


def turns_of(stretches: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """A writer goes on for some calls after each pause: races need few switches, well placed."""
    return [
        (writer, pause_ms if call == 0 else 1)
        for writer, calls, pause_ms in stretches
        for call in range(calls)
    ]


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_two_leases_are_never_valid_at_once(kind: str) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.reuse, Phase.generate])
    @given(st.lists(stretches, min_size=5, max_size=20).map(turns_of))
    def never(turns: list[tuple[int, int]]) -> None:
        with TemporaryDirectory() as folder:
            url = folder if kind == "local" else f"memory://{Path(folder).name}"
            writers = Writers(StorageLocation(url), Turns(turns))
            writers.run()
        if writers.failures:
            raise writers.failures[0]

    never()
